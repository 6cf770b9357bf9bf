//! One sequence of jobs on one machine under one rule.

use phalanx_engine::{Placer, Share};
use phalanx_model::DeviceMask;

use super::machines::Bench;
use super::rules::{Ahead, Rule, SIZES};
use crate::placement::mix::{Random, of_size};

/// One event; the same for every rule, as any job fits that has enough free devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    /// A job of so many devices.
    Comes(u32),
    /// One of those that run, by its place in the order in which they came.
    Ends(usize),
}

impl Drawn {
    pub(super) const fn size(self) -> Option<u32> {
        match self {
            Self::Comes(size) => Some(size),
            Self::Ends(_) => None,
        }
    }
}

/// Jobs come while less than the share is taken. Of those that run, any may end.
pub(super) fn draw(devices: u32, fill_percent: u32, seed: u64, jobs: usize) -> Vec<Drawn> {
    let mut random = Random(seed);
    let (mut events, mut running, mut used, mut came) = (Vec::new(), Vec::new(), 0, 0);
    while came < jobs {
        let size = loop {
            let (size, _) = SIZES[usize::try_from(random.below(100)).map_or(0, by_weight)];
            if size <= devices {
                break size;
            }
        };
        while used + size > devices || used * 100 >= fill_percent * devices {
            let at = usize::try_from(random.below(running.len() as u64)).unwrap_or(0);
            used -= running.remove(at);
            events.push(Drawn::Ends(at));
        }
        running.push(size);
        used += size;
        events.push(Drawn::Comes(size));
        came += usize::from(size > 1);
    }
    events
}

/// The size at a percentile of the mix.
fn by_weight(percentile: usize) -> usize {
    let mut below = 0;
    let is_below = |(_, weight): &(u32, u64)| {
        below += usize::try_from(*weight).unwrap_or(0);
        percentile < below
    };
    SIZES.iter().position(is_below).unwrap_or(0)
}

/// What became of the jobs of two devices and more.
#[derive(Debug, Default)]
pub(super) struct Played {
    pub(super) times_ns: Vec<u64>,
    /// As fast as the fastest set of the free devices.
    pub(super) fastest: usize,
    /// That, and no equally fast set leaves better places.
    pub(super) best_rest: usize,
}

pub(super) fn play(machine: &Bench, rule: Rule, events: &[Drawn]) -> Result<Played, String> {
    let ahead = Ahead::new(machine);
    let mut free = DeviceMask::first(machine.devices);
    let mut placer = Placer::new(&machine.levels, [machine.node.clone()], &machine.costs);
    let mut running: Vec<(u32, Vec<Share>, DeviceMask)> = Vec::new();
    let mut played = Played::default();
    for event in events {
        if let Drawn::Ends(at) = event {
            let (size, shares, set) = running.remove(*at);
            free = free.union(set);
            if rule == Rule::Phalanx {
                placer.give_back(&of_devices(size), &shares);
            }
            continue;
        }
        let Some(size) = event.size() else { continue };
        let (shares, set) = match rule {
            Rule::Phalanx => {
                let gang = of_devices(size);
                placer
                    .place(&gang)
                    .ok_or(format!("{}: {size} devices of {free} have no place", machine.name))?;
                let shares: Vec<Share> = placer.shares().collect();
                placer.take(&gang);
                let set = shares.iter().fold(DeviceMask::EMPTY, |all, share| all.union(share.devices));
                (shares, set)
            }
            _ => (Vec::new(), rule.choose(machine, &ahead, free, size)),
        };
        if set.count() != size || !set.is_subset_of(free) {
            return Err(format!("{}: {size} devices of {free} became {set}", machine.name));
        }
        if size > 1 {
            played.times_ns.push(machine.time_ns(set));
            if rule == Rule::Phalanx {
                let (is_fastest, is_best) = ahead.judge(machine, free, set);
                played.fastest += usize::from(is_fastest);
                played.best_rest += usize::from(is_fastest && is_best);
            }
        }
        free = free.minus(set);
        running.push((size, shares, set));
    }
    Ok(played)
}

fn of_devices(size: u32) -> phalanx_model::Gang {
    let mut gang = of_size(size);
    (gang.needs.cpu_milli, gang.needs.memory_bytes) = (0, 0);
    gang
}
