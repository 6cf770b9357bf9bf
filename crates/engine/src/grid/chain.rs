//! The order of the stages of a pipeline: neighbours share domains, and at the ends, which have only one hop, are the
//! stages that cross the narrowest uplinks.
//!
//! The order of the places of an axis changes nothing for the groups of other axes, and the traffic of each pair of
//! places through every uplink is counted once; so an exchange costs little.

use super::Kept;
use super::time::{Lane, Measure};

/// Counts kept: pairs of places times domains.
const COUNTS_MAX: usize = 1 << 16;
/// Times that all pairs are tried.
const ROUNDS_MAX: u32 = 4;

/// Memory that is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// By pair of places and domain: hops that cross it.
    crossings: Vec<u32>,
    /// By domain.
    load: Vec<u64>,
    homes: Vec<u32>,
    order: Vec<u32>,
    seated: Vec<u32>,
}

/// Puts the stages of an axis in a better order, if there is one.
pub(super) fn order(
    measure: &mut Measure<'_>,
    axis: usize,
    seated: &mut [u32],
    (homes, kept): (&[u32], Kept<'_>),
    scratch: &mut Scratch,
) {
    let Some(lane) = measure.axes.get(axis).copied() else { return };
    let (degree, domains) = (lane.degree as usize, measure.domains() as usize);
    if degree < 3 || degree.saturating_mul(degree).saturating_mul(domains) > COUNTS_MAX {
        return;
    }
    count(measure, lane, seated, homes, scratch);
    let Scratch { crossings, load, order, .. } = &mut *scratch;
    order.clear();
    order.extend(0..lane.degree);
    let mut worth = |order: &[u32]| {
        load.clear();
        load.resize(domains, 0);
        for pair in order.windows(2) {
            let [a, b] = [pair[0] as usize, pair[1] as usize];
            let at = (a.min(b) * degree + a.max(b)) * domains;
            let of_pair = crossings.get(at..at + domains).unwrap_or(&[]);
            load.iter_mut().zip(of_pair).for_each(|(load, crossings)| *load += u64::from(*crossings));
        }
        let drains = || load.iter().zip(measure.units(axis)).map(|(load, unit)| load.saturating_mul(*unit));
        (drains().max().unwrap_or(0), drains().fold(0_u64, u64::saturating_add))
    };
    let mut least = worth(order);
    for _ in 0..ROUNDS_MAX {
        let before = least;
        for a in 0..degree {
            for b in a + 1..degree {
                order.swap(a, b);
                let found = worth(order);
                if found < least {
                    least = found;
                } else {
                    order.swap(a, b);
                }
            }
        }
        if least == before {
            break;
        }
    }
    apply(measure, axis, lane, seated, (homes, kept), scratch);
}

/// Counts the traffic of the hop between every two places through every domain.
fn count(measure: &Measure<'_>, lane: Lane, seated: &[u32], homes: &[u32], scratch: &mut Scratch) {
    let (degree, domains) = (lane.degree as usize, measure.domains());
    let Scratch { crossings, homes: of_group, .. } = scratch;
    crossings.clear();
    crossings.resize(degree * degree * domains as usize, 0);
    let home = |block: u32| {
        let place = seated.get(block as usize).copied().unwrap_or(0);
        homes.get(place as usize).copied().unwrap_or(0)
    };
    for head in lane.heads(seated.len()) {
        of_group.clear();
        of_group.extend((0..lane.degree).map(|place| measure.domain_of(home(head + place * lane.stride))));
        for (a, from) in of_group.iter().enumerate() {
            for (b, to) in of_group.iter().enumerate().skip(a + 1) {
                let at = (a * degree + b) * domains as usize;
                measure.walk(*from, *to, |cut| {
                    if let Some(crossings) = crossings.get_mut(at + cut as usize) {
                        *crossings += 1;
                    }
                });
            }
        }
    }
}

/// Seats the stages in their new order, if that costs less.
fn apply(
    measure: &mut Measure<'_>,
    axis: usize,
    lane: Lane,
    seated: &mut [u32],
    (homes, kept): (&[u32], Kept<'_>),
    scratch: &mut Scratch,
) {
    let Scratch { order, seated: found, .. } = scratch;
    if order.is_sorted() {
        return;
    }
    found.clear();
    found.extend((0..).take(seated.len()).map(|block: u32| {
        let place = block / lane.stride % lane.degree;
        let from = order.get(place as usize).copied().unwrap_or(place);
        let block = block - place * lane.stride + from * lane.stride;
        seated.get(block as usize).copied().unwrap_or(0)
    }));
    let before = measure.cost_of(axis, seated, homes);
    if measure.cost_of(axis, found, homes) < before && kept.allows(found) {
        seated.copy_from_slice(found);
    }
}
