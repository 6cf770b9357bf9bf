//! One gang, one place: the engine's against the best there is.

use phalanx_model::Gang;

use super::ask;
use super::draw::{self, Cluster, Instance, Talk, Wish};
use super::objective::{self, Used};
use super::problem::{Best, Map, Problem, Sets};
use super::{exhaustive, sweep};

/// How many placements are tried one by one; with more, the other methods answer alone.
#[cfg(not(debug_assertions))]
const TRIED_MAX: u64 = 1_000_000;
#[cfg(debug_assertions)]
const TRIED_MAX: u64 = 20_000;

/// What came of one instance.
pub(super) struct Judged {
    pub(super) seed: u64,
    pub(super) talk: Talk,
    pub(super) wish: Wish,
    pub(super) ours: Ours,
    pub(super) exact: Exact,
}

/// The best there is, and which methods besides the sweep say so.
pub(super) struct Exact {
    pub(super) best: Option<Best>,
    /// Placements tried one by one; none where they are too many.
    pub(super) tried: Option<u64>,
    /// Whether the solver says so too.
    pub(super) is_solved: bool,
}

/// The engine's answer.
pub(super) enum Ours {
    Placed {
        ns: u64,
        used: Vec<Used>,
    },
    NoPlace,
    /// It breaks what the gang insists on, or names what is not there.
    Wrong(String),
}

impl Judged {
    pub(super) fn is_optimal(&self) -> bool {
        match (&self.ours, &self.exact.best) {
            (Ours::Placed { ns, .. }, Some(best)) => *ns == best.ns,
            (Ours::NoPlace, None) => true,
            _ => false,
        }
    }

    /// How much longer ours takes than the best, where both are placements.
    pub(super) fn gap(&self) -> Option<f64> {
        match (&self.ours, &self.exact.best) {
            (Ours::Placed { ns, .. }, Some(best)) => Some(super::stats::gap(*ns, best.ns)),
            _ => None,
        }
    }
}

/// # Errors
/// When the exact methods disagree, or a placement of theirs does not hold: then nothing is measured.
pub(super) fn judge(seed: u64) -> Result<Judged, String> {
    let Instance { talk, wish, cluster, gang } = draw::instance(seed);
    let exact = exact(&cluster, &gang).map_err(|why| format!("seed {seed}: {why}"))?;
    Ok(Judged { seed, talk, wish, ours: ours(&cluster, &gang), exact })
}

/// The best place by every method that can answer, once they agree.
pub(super) fn exact(cluster: &Cluster, gang: &Gang) -> Result<Exact, String> {
    let map = Map::new(cluster)?;
    let problem = Problem::new(&map, cluster, gang, Sets::Best);
    let best = sweep::best(&problem);
    if let Some(best) = &best {
        holds(cluster, gang, best).map_err(|why| format!("the sweep is wrong: {why}"))?;
    }
    let count = exhaustive::count(&problem, TRIED_MAX + 1);
    let tried = (count <= TRIED_MAX).then_some(count);
    if tried.is_some() {
        let other = exhaustive::best(&problem);
        if let Some(other) = &other {
            holds(cluster, gang, other).map_err(|why| format!("the exhaustive search is wrong: {why}"))?;
        }
        let ns = |best: &Option<Best>| best.as_ref().map(|best| best.ns);
        if ns(&other) != ns(&best) {
            return Err(format!("all placements give {:?}, the sweep {:?}", ns(&other), ns(&best)));
        }
    }
    #[cfg(feature = "milp")]
    let is_solved = super::milp::agrees(cluster, gang, &problem, best.as_ref())?;
    #[cfg(not(feature = "milp"))]
    let is_solved = false;
    Ok(Exact { best, tried, is_solved })
}

/// Whether a placement is one and takes the time it says.
pub(super) fn holds(cluster: &Cluster, gang: &Gang, best: &Best) -> Result<(), String> {
    objective::check(cluster, gang, &best.used)?;
    let ns = objective::time_ns(cluster, gang, &best.used);
    if ns == best.ns { Ok(()) } else { Err(format!("it says {} ns and takes {ns} ns", best.ns)) }
}

fn ours(cluster: &Cluster, gang: &Gang) -> Ours {
    let placed = ask::engine(cluster, std::slice::from_ref(gang)).and_then(|placed| {
        let Some(placement) = placed.into_iter().next().flatten() else { return Ok(Ours::NoPlace) };
        let used = objective::used(cluster, gang, &placement)?;
        objective::check(cluster, gang, &used)?;
        Ok(Ours::Placed { ns: objective::time_ns(cluster, gang, &used), used })
    });
    placed.unwrap_or_else(Ours::Wrong)
}
