//! How close together a job must be: the whole of it, its segments, what is kept apart, and slices of a torus.

mod file;

use phalanx_model::{LaunchKind, LevelName, Segment, Spread, Topology};
use serde::Serialize;

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::place::{At, Scalar, wrong};
use crate::scalar::{Count, Mode, Sides, Wait};
use crate::shape::Shape;

/// Segments inside each other, as many as the engine takes.
const SEGMENTS_MAX: usize = 8;

/// Levels that a job is spread over.
const SPREADS_MAX: usize = 8;

/// How close together the whole job must or should be, and which parts of it share a lower domain. It has a level,
/// or segments, or both.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TopologyFile {
    /// All of the job inside one domain of this level, e.g. `leaf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<At<LevelName>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<At<Mode>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<At<Wait>>,
    /// In any order; the larger hold the smaller.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<SegmentFile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spread: Vec<SpreadFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<At<Sides>>,
}

/// Consecutive ranks that must share a domain. Where the size does not divide the job, the last segment is smaller.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SegmentFile {
    /// Ranks.
    pub size: At<Count>,
    pub level: At<LevelName>,
}

impl TopologyFile {
    pub(crate) const SHORT: &'static str = "LEVEL, LEVEL:required, LEVEL:preferred, each with @WAIT or without, such as leaf:required or leaf:preferred@10m, or nearest, nearest@10m, anywhere";

    /// Reads the short form `LEVEL[:required|preferred][@wait]`, `nearest[@wait]` or `anywhere`.
    ///
    /// # Errors
    /// What is wrong, and on the second line what is accepted.
    pub fn from_short(text: &str, place: Place) -> Result<Self, String> {
        let (rest, wait) = match text.split_once('@') {
            Some((rest, wait)) => (rest, Some(Wait::read_at(wait, place)?)),
            None => (text, None),
        };
        if let Ok(mode @ (Mode::Nearest | Mode::Anywhere)) = Mode::read(rest) {
            return Ok(Self { mode: Some(At::new(mode, place)), wait, ..Self::default() });
        }
        let (level, mode) = match rest.rsplit_once(':') {
            Some((level, mode)) => (level, Some(Mode::read_at(mode, place)?)),
            None => (rest, None),
        };
        let level = LevelName::read(level)
            .map_err(|_| format!("{}\n{}", wrong(text, "does not begin with a level"), Self::SHORT))?;
        Ok(Self { level: Some(At::new(level, place)), mode, wait, ..Self::default() })
    }
}

impl SegmentFile {
    const SHORT: &'static str = "RANKS@LEVEL, such as 8@node";

    /// Reads the short form `RANKS@LEVEL`.
    ///
    /// # Errors
    /// What is wrong, and on the second line what is accepted.
    pub fn from_short(text: &str, place: Place) -> Result<Self, String> {
        let Some((size, level)) = text.split_once('@') else {
            return Err(format!("{}\n{}", wrong(text, "names no level"), Self::SHORT));
        };
        Ok(Self { size: Count::read_at(size, place)?, level: LevelName::read_at(level, place)? })
    }
}

/// Keeps ranks apart: a failure of one domain takes at most so many.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpreadFile {
    pub level: At<LevelName>,
    /// Ranks inside one domain.
    pub max: At<Count>,
}

impl SpreadFile {
    const SHORT: &'static str = "RANKS@LEVEL, such as 1@rack";

    /// Reads the short form `RANKS@LEVEL`.
    ///
    /// # Errors
    /// What is wrong, and on the second line what is accepted.
    pub fn from_short(text: &str, place: Place) -> Result<Self, String> {
        let Some((max, level)) = text.split_once('@') else {
            return Err(format!("{}\n{}", wrong(text, "names no level"), Self::SHORT));
        };
        Ok(Self { level: LevelName::read_at(level, place)?, max: Count::read_at(max, place)? })
    }
}

impl JobFile {
    /// `nearest` and `anywhere` are about no level, and who goes anywhere does not wait.
    fn check_mode(&self, topology: &TopologyFile, mode: Mode) -> Result<(), SpecError> {
        let (level, wait) = (topology.level.as_ref(), topology.wait.as_ref());
        let level = level.filter(|_| matches!(mode, Mode::Nearest | Mode::Anywhere)).map(|level| level.place);
        let wait = wait.filter(|_| mode == Mode::Anywhere).map(|wait| wait.place);
        let wrong = level.map(|place| (place, "names a level")).or(wait.map(|place| (place, "has a wait")));
        let Some((place, what)) = wrong else { return Ok(()) };
        let what = format!("topology: {} {what}", Scalar::write(&mode));
        Err(self.source.error(place, what, "leave it out, or say another mode"))
    }

    /// A level that is held out for is preferred for that long, also when it is called required: the model's
    /// required level is never given up.
    pub(crate) fn topology(&self, shape: &Shape) -> Result<Topology, SpecError> {
        let Some(topology) = &self.topology else { return Ok(Topology::default()) };
        let level = topology.level.as_ref().map(|level| level.value.clone());
        let mode = topology.mode.map_or(Mode::Preferred, |mode| mode.value);
        self.check_mode(topology, mode)?;
        let whole = match (mode, topology.wait) {
            (Mode::Anywhere, _) => Topology { price_milli: Some(Topology::ANYWHERE), ..Topology::default() },
            (Mode::Nearest, None) => Topology { wait_ms: Topology::FOREVER_MS, ..Topology::default() },
            (Mode::Required, None) => Topology { required: level, ..Topology::default() },
            (Mode::Required | Mode::Preferred | Mode::Nearest, wait) => {
                let (wait_ms, price_milli) = match wait.map(|wait| wait.value) {
                    None => (0, None),
                    Some(Wait::For(span)) => (span.millis(), None),
                    Some(Wait::Priced(milli)) => (0, Some(milli)),
                };
                Topology { preferred: level, wait_ms, price_milli, ..Topology::default() }
            }
        };
        Ok(Topology {
            segments: self.segments(&topology.segments, shape)?,
            spread: self.spread(&topology.spread, shape)?,
            slice: topology.slice.map(|slice| slice.value.0),
            ..whole
        })
    }

    /// Segments of members, widest first: each a whole number of times the next.
    fn segments(&self, written: &[SegmentFile], shape: &Shape) -> Result<Vec<Segment>, SpecError> {
        let mut widest_first: Vec<&SegmentFile> = written.iter().collect();
        widest_first.sort_by_key(|segment| std::cmp::Reverse(segment.size.value));
        if let Some(one_more) = written.get(SEGMENTS_MAX) {
            let what = format!("{} segments inside each other", written.len());
            let place = one_more.size.place;
            return Err(self.source.error(place, what, format!("expected at most {SEGMENTS_MAX}")));
        }
        for (outer, inner) in widest_first.iter().zip(widest_first.iter().skip(1)) {
            let (wide, narrow) = (outer.size.value.0, inner.size.value.0);
            if !wide.is_multiple_of(narrow) {
                let what = format!("segments of {narrow} ranks do not divide segments of {wide}");
                let part = (1..narrow).rev().find(|size| wide.is_multiple_of(*size)).unwrap_or(1);
                let accepted = format!("expected a whole part of {wide}, such as {part}");
                return Err(self.source.error(inner.size.place, what, accepted));
            }
            if outer.level == inner.level {
                let what = format!("{} has segments of {wide} and of {narrow} ranks", inner.level.value);
                let error = self.source.error(inner.level.place, what, "expected one segment for each level");
                return Err(error.also(&self.source, outer.level.place, "the other one"));
            }
        }
        let each = self.ranks_per_member(shape);
        let of_members = |segment: &&SegmentFile| {
            let ranks = segment.size.value.0;
            if ranks.is_multiple_of(each) {
                return Ok(Segment { size: ranks / each, level: segment.level.value.clone() });
            }
            let what =
                format!("segments of {ranks} ranks cut through what one launcher starts, {each} on a node");
            let accepted = format!("expected a multiple of {each}, or `launch: ranks`");
            Err(self.source.error(segment.size.place, what, accepted))
        };
        widest_first.iter().map(of_members).collect()
    }

    /// At most so many members in a domain of each level.
    fn spread(&self, written: &[SpreadFile], shape: &Shape) -> Result<Vec<Spread>, SpecError> {
        if let Some(one_more) = written.get(SPREADS_MAX) {
            let what = format!("{} levels to spread over", written.len());
            return Err(self.source.error(
                one_more.max.place,
                what,
                format!("expected at most {SPREADS_MAX}"),
            ));
        }
        let each = self.ranks_per_member(shape);
        let of_members = |(index, spread): (usize, &SpreadFile)| {
            let ranks = spread.max.value.0;
            if let Some(first) = written.iter().take(index).find(|other| other.level == spread.level) {
                let what = format!("{} is given twice", spread.level.value);
                let error = self.source.error(spread.level.place, what, "give every level once");
                return Err(error.also(&self.source, first.level.place, "the first"));
            }
            if !ranks.is_multiple_of(each) {
                let what =
                    format!("a limit of {ranks} cuts through what one launcher starts, {each} on a node");
                let accepted = format!("expected a multiple of {each}, or `launch: ranks`");
                return Err(self.source.error(spread.max.place, what, accepted));
            }
            Ok(Spread { level: spread.level.value.clone(), max: ranks / each })
        };
        written.iter().enumerate().map(of_members).collect()
    }

    /// The slice of a torus that the job takes.
    pub(crate) fn slice(&self) -> Option<At<Sides>> {
        self.topology.as_ref()?.slice
    }

    /// Ranks that one member of the gang starts: those of a node, where a launcher starts them.
    pub(crate) fn ranks_per_member(&self, shape: &Shape) -> u32 {
        match self.launch_kind() {
            LaunchKind::Ranks | LaunchKind::Jax | LaunchKind::None => 1,
            LaunchKind::Torchrun | LaunchKind::Mpi => shape.ranks_per_node.unwrap_or(shape.devices).max(1),
        }
    }
}
