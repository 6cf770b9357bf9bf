//! Racks in a row, aggregated by powers of two, and jobs in segments that stay inside of a rack.
//!
//! This is Slurm's `topology/block`: a rack is a base block, and blocks of level l are 2^l racks in a row, aligned.
//! A rack of an NVL72 has 18 nodes, and jobs come in segments of 16 or 18 of them.

use std::fmt;
use std::ops::Range;

use super::rack_sets::Sets;

/// The highest level: blocks of 65,536 racks, which are all there may be.
const LEVEL_MAX: u8 = 16;
/// Nodes of a rack.
const RACK_NODES_MAX: u32 = 256;

/// Which levels there are, and the memory of a search.
#[derive(Clone, Debug)]
pub struct Racks {
    /// Ascending, from 0 to [`LEVEL_MAX`], which is all of the row.
    levels: Vec<u8>,
    sets: Sets,
}

/// What is asked of racks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RackAsk {
    pub nodes: u32,
    /// Nodes that have to share a rack; 1 where none do. Where it does not divide the nodes, the last segment is
    /// smaller.
    pub segment: u32,
    /// The highest level at which all of the job has to lie in one block; none where it may take any racks.
    pub within: Option<u8>,
}

/// A choice of racks. Its memory can be used again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RackChoice {
    /// The level at which one block holds all of it, and the lowest at which one can; none for the whole row.
    pub level: Option<u8>,
    /// Blocks of the next level below that it takes part of, which are as few as can be.
    pub blocks: u32,
    /// In order of racks.
    pub racks: Vec<RackUse>,
    /// Free nodes that are left in these racks.
    pub left: u32,
    /// Whether it is known that nothing is better. Only the search over very many racks and segments stops early.
    pub is_best: bool,
}

/// What a job takes of a rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RackUse {
    /// Index into the row.
    pub rack: u32,
    /// Whole segments.
    pub segments: u32,
    /// Nodes of the smaller, last segment.
    pub rest: u32,
}

/// Why racks cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RacksError {
    Level(u8),
    TooManyRacks(usize),
    TooManyNodes { rack: usize, free: u32 },
}

impl fmt::Display for RacksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(level) => write!(f, "level {level} of blocks, and {LEVEL_MAX} is the highest"),
            Self::TooManyRacks(racks) => {
                write!(f, "{racks} racks in a row, and {} at most", 1_u32 << LEVEL_MAX)
            }
            Self::TooManyNodes { rack, free } => {
                write!(f, "{free} free nodes in rack {rack}, and {RACK_NODES_MAX} at most")
            }
        }
    }
}

impl std::error::Error for RacksError {}

/// Why there are no racks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRacks {
    Bad(RacksError),
    /// A job of no nodes.
    Empty,
    /// No rack has so many free nodes as one segment; `most` is the largest number in one.
    NoSegment {
        segment: u32,
        most: u32,
        free: u64,
    },
    /// No block of the level has room for all segments (the smaller last one counts as one). `most` is how many fit
    /// the block with the most room; the level is none for the whole row.
    NoRoom {
        level: Option<u8>,
        segments: u64,
        segment: u32,
        most: u64,
        free: u64,
    },
}

impl fmt::Display for NoRacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bad(error) => error.fmt(f),
            Self::Empty => f.write_str("a job of no nodes"),
            Self::NoSegment { segment, most, free } => {
                write!(f, "no rack has {segment} free nodes: {free} are free, {most} at most in one rack")
            }
            Self::NoRoom { level, segments, segment, most, free } => {
                match level {
                    Some(level) => write!(f, "no block of {} racks has", 1_u64 << (*level).min(LEVEL_MAX))?,
                    None => f.write_str("there is no")?,
                }
                write!(
                    f,
                    " room for {segments} segments of {segment} nodes: {most} fit at most, {free} nodes are free"
                )
            }
        }
    }
}

impl std::error::Error for NoRacks {}

impl Racks {
    /// Racks that are aggregated to blocks of 2^l racks, for these levels l. Level 0, the rack, is always there, as
    /// is the whole row.
    ///
    /// # Errors
    /// When a level is above 16.
    pub fn new(levels: &[u8]) -> Result<Self, RacksError> {
        if let Some(level) = levels.iter().find(|level| **level > LEVEL_MAX) {
            return Err(RacksError::Level(*level));
        }
        let mut levels: Vec<u8> = levels.iter().copied().chain([0, LEVEL_MAX]).collect();
        levels.sort_unstable();
        levels.dedup();
        Ok(Self { levels, sets: Sets::default() })
    }

    /// The best racks for a job, given the free nodes of each rack in the row: in one block of the lowest level that
    /// has room; there in the fewest blocks of the level below; in the fewest racks; with the fewest free nodes left
    /// in them; the first. If there are racks for it, they are found.
    ///
    /// # Errors
    /// Why there are none. `out` then says nothing.
    pub fn place(&mut self, free: &[u32], ask: &RackAsk, out: &mut RackChoice) -> Result<(), NoRacks> {
        check(free).map_err(NoRacks::Bad)?;
        if ask.nodes == 0 {
            return Err(NoRacks::Empty);
        }
        let segment = ask.segment.clamp(1, ask.nodes);
        let need = Need { segment, units: ask.nodes / segment, rest: ask.nodes % segment };
        self.sets.load(free, need);
        let mut refused = None;
        for (i, level) in self.levels.iter().enumerate() {
            if refused.is_some() && ask.within.is_some_and(|within| *level > within) {
                break;
            }
            let below = i.checked_sub(1).and_then(|i| self.levels.get(i)).copied();
            match self.sets.best_block(*level, below) {
                Ok(found) => {
                    out.level = (*level < LEVEL_MAX).then_some(*level);
                    out.blocks = found.blocks;
                    out.is_best = found.is_best;
                    self.sets.fill(&mut out.racks);
                    let all: u32 = out.racks.iter().filter_map(|used| free.get(used.rack as usize)).sum();
                    out.left = all - ask.nodes;
                    return Ok(());
                }
                Err(most) => refused = Some((*level, most)),
            }
        }
        let (level, most) = refused.unwrap_or((LEVEL_MAX, 0));
        let total = free.iter().map(|nodes| u64::from(*nodes)).sum();
        let largest = free.iter().copied().max().unwrap_or(0);
        if largest < segment {
            return Err(NoRacks::NoSegment { segment, most: largest, free: total });
        }
        let segments = u64::from(need.units) + u64::from(need.rest > 0);
        let level = (level < LEVEL_MAX).then_some(level);
        Err(NoRacks::NoRoom { level, segments, segment, most, free: total })
    }
}

impl RackChoice {
    /// The segments in rank order, each with its rack and its number of nodes: whole ones rack by rank, then the
    /// smaller one, so that rank r is always in segment r / segment.
    pub fn segments_by_rank(&self, segment: u32) -> impl Iterator<Item = (u32, u32)> {
        let whole =
            self.racks.iter().flat_map(move |used| (0..used.segments).map(move |_| (used.rack, segment)));
        let rest = self.racks.iter().filter(|used| used.rest > 0).map(|used| (used.rack, used.rest));
        whole.chain(rest)
    }
}

/// A job as units of one segment each, and a rest that is smaller than a unit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Need {
    pub(super) segment: u32,
    pub(super) units: u32,
    pub(super) rest: u32,
}

fn check(free: &[u32]) -> Result<(), RacksError> {
    if free.len() > 1 << LEVEL_MAX {
        return Err(RacksError::TooManyRacks(free.len()));
    }
    match (0..).zip(free).find(|(_, free)| **free > RACK_NODES_MAX) {
        Some((rack, free)) => Err(RacksError::TooManyNodes { rack, free: *free }),
        None => Ok(()),
    }
}

/// The blocks of a level among `racks`, as ranges of racks.
pub(super) fn blocks(racks: Range<usize>, level: u8) -> impl Iterator<Item = Range<usize>> {
    let step = 1 << level;
    racks.clone().step_by(step).map(move |start| start..(start + step).min(racks.end))
}
