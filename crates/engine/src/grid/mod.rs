//! Parallelism grids on a placement: the seat of each rank, so that the heaviest groups share the lowest domains.
//!
//! A job of tensor x expert x data x pipeline parallel ranks communicates along the axes of a grid. [`map`] tries
//! every nesting of the axes on the given sites, plainly in topology order and with whole groups packed into the
//! smallest domains that hold them. It counts the real traffic of each through every uplink, orders the stages of
//! pipelines, and improves the best by swaps. Tensor groups never leave a site: that is a condition, not a cost.
//!
//! The communication of a step is, summed over the axes, the time of the slowest group of the axis: latency, plus the
//! longest drain of an uplink that the group crosses, plus the filling of the pipeline, as `phalanx-cost` has it for
//! rings. All groups of an axis communicate at once, so an uplink drains when the bytes of all of them are through.
//! Megabytes are 10^6 bytes, one way; the arithmetic is integer.

mod chain;
mod nest;
mod sites;
mod swap;
mod time;

#[cfg(test)]
mod tests;

pub use phalanx_model::{Axis, AxisKind, Collective};
pub use sites::{Domain, Site, Sites};

use time::{Lane, Measure, StepCost};

/// The most ranks of a grid: more than the largest cluster has devices.
pub const RANKS_MAX: u32 = 1 << 17;
/// The most bytes of one call: 16 TiB, beyond every model.
pub const BYTES_MAX: u64 = 1 << 44;
/// The most calls of one axis in a step.
pub const CALLS_MAX: u32 = 1 << 20;
/// The budget of [`Grid::swaps`]: seats that all swaps together read, some milliseconds.
const SWAP_WORK: u32 = 1 << 19;
/// Layouts whose pipelines are ordered.
const CHAINS_MAX: usize = 2;

/// The axes of a job, checked. Ranks are numbered along the first axis, then the second, and so on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    axes: Vec<Axis>,
    ranks: u32,
}

/// Why a grid, its sites or an order of ranks cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GridError {
    #[error("a grid has at least one axis")]
    NoAxes,
    #[error("two axes are {}", .0.word())]
    Twice(AxisKind),
    #[error("the tensor axis is the innermost axis and must come first")]
    TensorNotFirst,
    #[error(
        "the {} axis has a degree outside 1..={RANKS_MAX}, or more than {BYTES_MAX} bytes or {CALLS_MAX} calls",
        .0.word()
    )]
    OutOfRange(AxisKind),
    #[error("the grid has more than {RANKS_MAX} ranks")]
    TooLarge,
    #[error("domain {0} is inside a domain that does not come before it")]
    Parent(u32),
    #[error("site {0} is in a domain that does not exist")]
    NoDomain(u32),
    #[error("more than {max} {what}")]
    TooMany { what: &'static str, max: u32 },
    #[error("the grid has {grid} ranks, and the sites hold {sites}")]
    Ranks { grid: u32, sites: u32 },
    #[error("site {site} holds {ranks} ranks, which is not a multiple of tensor groups of {degree}")]
    TensorSplit { site: u32, ranks: u32, degree: u32 },
    #[error("every layout splits parts that must stay together")]
    PartSplit,
    #[error("rank {0} has a position that does not exist or that another rank has")]
    Seat(u32),
}

/// The seat of one rank: the `index`-th rank of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seat {
    pub site: u32,
    pub index: u32,
}

/// Ranks that an order keeps together: each so many consecutive ones on places of one label. The last ones may be
/// fewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub ranks: u32,
    /// By place, site by site: the domain that counts.
    pub labels: Vec<u32>,
}

/// The communication time of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prediction {
    pub ns: u64,
    /// In the order of the grid's axes, each rounded up.
    pub axes_ns: Vec<u64>,
}

/// The gain of the rank order of a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gain {
    /// The same places with the ranks in the order of the tree.
    pub in_order: Prediction,
    pub chosen: Prediction,
}

/// An order of ranks, and its gain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// By rank.
    pub seats: Vec<Seat>,
    /// The layout of the axes from which the swaps began, innermost first.
    pub nesting: Vec<AxisKind>,
    /// Ranks in the order of the sites, as if nothing were mapped.
    pub as_given: Prediction,
    /// The best layout without swaps. Swaps may have begun with another one.
    pub nested: Prediction,
    /// With swaps.
    pub found: Prediction,
    pub swaps_tried: u32,
    pub swaps_made: u32,
}

impl Mapping {
    /// The time that one step saves against the order of the sites.
    #[must_use]
    pub const fn gain_ns(&self) -> u64 {
        self.as_given.ns.saturating_sub(self.found.ns)
    }
}

impl Grid {
    /// # Errors
    /// When the axes are none, of one kind twice, beyond the limits, or the tensor axis is not the first.
    pub fn new(axes: &[Axis]) -> Result<Self, GridError> {
        if axes.is_empty() {
            return Err(GridError::NoAxes);
        }
        let mut ranks = 1_u32;
        for (at, axis) in axes.iter().enumerate() {
            if axes.iter().take(at).any(|before| before.kind == axis.kind) {
                return Err(GridError::Twice(axis.kind));
            }
            if axis.kind == AxisKind::Tensor && at > 0 {
                return Err(GridError::TensorNotFirst);
            }
            let is_sane =
                (1..=RANKS_MAX).contains(&axis.degree) && axis.bytes <= BYTES_MAX && axis.calls <= CALLS_MAX;
            if !is_sane {
                return Err(GridError::OutOfRange(axis.kind));
            }
            ranks = ranks.checked_mul(axis.degree).filter(|r| *r <= RANKS_MAX).ok_or(GridError::TooLarge)?;
        }
        Ok(Self { axes: axes.to_vec(), ranks })
    }

    #[must_use]
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    #[must_use]
    pub const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The ranks of every group of an axis, in the order in which they talk; nothing for an axis that is not
    /// there.
    pub fn groups(&self, axis: usize) -> impl Iterator<Item = impl Iterator<Item = u32>> {
        let degree = self.axes.get(axis).map_or(0, |axis| axis.degree);
        let stride = self.axes.iter().take(axis).fold(1, |stride, axis| stride * axis.degree);
        let heads = (0..self.ranks).filter(move |rank| degree > 0 && rank / stride % degree == 0);
        heads.map(move |head| (0..degree).map(move |place| head + place * stride))
    }

    /// Parts of the gang that may gain from sharing a domain, in ranks, ascending: in every nesting of the axes, the
    /// groups inside each other. A planner searches for placements without segments and with each of these as a
    /// segment, and keeps the placement whose [`map`] is the fastest.
    #[must_use]
    pub fn segments(&self) -> Vec<u32> {
        let together = self.together();
        let free: Vec<u32> =
            self.axes.iter().filter(|a| a.kind != AxisKind::Tensor).map(|a| a.degree).collect();
        // Every set of axes is the inner part of some nesting.
        let sets = 0..1_u32 << free.len();
        let of_set = |set: u32| {
            let chosen = (0..).zip(&free).filter(|(bit, _)| set >> bit & 1 == 1);
            chosen.fold(together, |ranks, (_, degree)| ranks * degree)
        };
        let mut found: Vec<u32> = sets.map(of_set).filter(|r| *r > together && *r < self.ranks).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Ranks of a tensor group, which move together; 1 without one.
    #[must_use]
    pub fn together(&self) -> u32 {
        self.axes.first().filter(|axis| axis.kind == AxisKind::Tensor).map_or(1, |axis| axis.degree)
    }

    /// A budget of swaps that costs about the same for every size.
    #[must_use]
    pub fn swaps(&self) -> u32 {
        SWAP_WORK / (self.ranks / self.together()).max(1)
    }
}

/// Memory that is kept between mappings.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    time: time::Scratch,
    nest: nest::Scratch,
    chain: chain::Scratch,
}

/// The best order found for the ranks of `grid` on `sites`: all nestings of the axes, the cheapest first, and
/// from each on swaps of two tensor groups or of two places of an axis, of which at most `swaps` are tried in
/// all (see [`Grid::swaps`]). Never worse than the order of the sites. Equal inputs give equal seats; of
/// equal orders the first counts.
///
/// # Errors
/// When the sites do not hold exactly the grid's ranks, or one of them no whole tensor groups.
pub fn map(grid: &Grid, sites: &Sites, swaps: u32, scratch: &mut Scratch) -> Result<Mapping, GridError> {
    map_within(grid, sites, &[], swaps, scratch)
}

/// As [`map`], with parts of the job that stay together, as they do in the order of the sites.
///
/// # Errors
///
/// As [`map`], and if some part does not stay together in any layout.
pub fn map_within(
    grid: &Grid,
    sites: &Sites,
    parts: &[Part],
    swaps: u32,
    scratch: &mut Scratch,
) -> Result<Mapping, GridError> {
    check_fit(grid, sites)?;
    let together = grid.together();
    let kept = Kept { parts, together };
    let mut measure = Measure::new(grid, sites, together, &mut scratch.time);
    // Places of blocks of ranks that move together, and the site of each.
    let homes: Vec<u32> = sites.homes(together);
    let mut starts = starts(&mut measure, sites, &homes, &mut scratch.nest);
    // The first nesting is the grid's own, laid out plainly: the order of the sites.
    let as_given = starts.first().map(|start| measure.prediction(&start.seated, &homes));
    starts.retain(|start| kept.allows(&start.seated));
    starts.sort_by_key(|start| start.cost);
    let chains = (0..measure.axes.len()).filter(|axis| measure.is_chain(*axis)).collect::<Vec<_>>();
    for start in starts.iter_mut().take(CHAINS_MAX) {
        for axis in &chains {
            chain::order(&mut measure, *axis, &mut start.seated, (&homes, kept), &mut scratch.chain);
        }
        start.cost = measure.cost(&start.seated, &homes);
    }
    let mut in_turn: Vec<&Start> = starts.iter().collect();
    in_turn.sort_by_key(|start| start.cost);
    in_turn.dedup_by(|start, before| start.seated == before.seated);
    let (mut tried, mut made) = (0, 0);
    let mut best: Option<(StepCost, Vec<u32>, &Start)> = None;
    for start in &in_turn {
        let mut seated = start.seated.clone();
        let budget = swaps - tried;
        let end = swap::improve(&mut measure, &mut seated, (&homes, kept), budget);
        tried += end.tried;
        if best.as_ref().is_none_or(|(least, ..)| end.cost < *least) {
            made = end.made;
            best = Some((end.cost, seated, start));
        }
    }
    let Some((_, seated, start)) = best else { return Err(GridError::PartSplit) };
    let nested = in_turn.first().map_or(&start.seated, |cheapest| &cheapest.seated);
    let nested = measure.prediction(nested, &homes);
    let found = measure.prediction(&seated, &homes);
    let fixed = grid.axes.first().map(|axis| axis.kind).filter(|kind| *kind == AxisKind::Tensor);
    Ok(Mapping {
        seats: sites.seats(&seated, together),
        nesting: fixed.into_iter().chain(start.nesting.iter().map(|lane| lane.kind)).collect(),
        as_given: as_given.unwrap_or_else(|| nested.clone()),
        nested,
        found,
        swaps_tried: tried,
        swaps_made: made,
    })
}

/// The parts that every order keeps together.
#[derive(Clone, Copy)]
struct Kept<'a> {
    parts: &'a [Part],
    /// Ranks of a block.
    together: u32,
}

impl Kept<'_> {
    fn allows(self, seated: &[u32]) -> bool {
        self.parts.iter().all(|part| {
            let blocks = (part.ranks / self.together).max(1) as usize;
            let label = |place: &u32| part.labels.get((place * self.together) as usize);
            seated
                .chunks(blocks)
                .all(|part| part.iter().all(|place| label(place) == part.first().and_then(label)))
        })
    }
}

/// An order to begin with.
struct Start {
    cost: StepCost,
    /// The place of each block of ranks.
    seated: Vec<u32>,
    nesting: Vec<Lane>,
}

/// Every nesting of the axes with every packing; the grid's own order first.
fn starts(
    measure: &mut Measure<'_>,
    sites: &Sites,
    homes: &[u32],
    scratch: &mut nest::Scratch,
) -> Vec<Start> {
    let mut order: Vec<u32> = (0..).take(homes.len()).collect();
    let mut starts = Vec::new();
    for nesting in nest::nestings(&measure.axes) {
        for packing in nest::Packing::ALL {
            nest::pack(&mut order, &nesting, (sites, homes), packing, scratch);
            let seated = nest::lay(&order, &nesting);
            starts.push(Start { cost: measure.cost(&seated, homes), seated, nesting: nesting.clone() });
        }
    }
    starts
}

/// The communication time of one step if rank r has the r-th of `seats`.
///
/// # Errors
///
/// If the sites do not hold exactly the grid's ranks, or the seats are not theirs, each once.
pub fn predict(
    grid: &Grid,
    sites: &Sites,
    seats: &[Seat],
    scratch: &mut Scratch,
) -> Result<Prediction, GridError> {
    let held = sites.ranks();
    let given = u32::try_from(seats.len()).unwrap_or(u32::MAX);
    if given != grid.ranks || held != grid.ranks {
        return Err(GridError::Ranks { grid: grid.ranks, sites: given.min(held) });
    }
    let seated = sites.places(seats)?;
    let homes = sites.homes(1);
    Ok(Measure::new(grid, sites, 1, &mut scratch.time).prediction(&seated, &homes))
}

fn check_fit(grid: &Grid, sites: &Sites) -> Result<(), GridError> {
    if sites.ranks() != grid.ranks {
        return Err(GridError::Ranks { grid: grid.ranks, sites: sites.ranks() });
    }
    let degree = grid.together();
    match (0..).zip(sites.sites()).find(|(_, site)| site.ranks % degree != 0) {
        Some((site, Site { ranks, .. })) => Err(GridError::TensorSplit { site, ranks: *ranks, degree }),
        None => Ok(()),
    }
}
