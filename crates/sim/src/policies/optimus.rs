//! Optimus (Peng et al., `EuroSys` 2018): each job gets one device, and the rest go one by one to whom they save most time.

use std::collections::BTreeMap;

use super::places::{Packing, Room};
use crate::replay::{Act, Scheduler, View};

/// In rounds. How much time a device saves is what the model of progress says: an oracle, as Pollux (OSDI 2021) compares
/// with ("Optimus+Oracle"). Whoever keeps its number of devices keeps its place; the smallest of the others are placed first.
#[derive(Debug)]
pub struct Optimus {
    round_ms: u64,
    next_round: u64,
    room: Room,
}

impl Optimus {
    #[must_use]
    pub fn new(round_ms: u64, packing: Packing) -> Self {
        Self { round_ms: round_ms.max(1), next_round: 0, room: Room::new(packing) }
    }

    /// By job, in the order of submission.
    fn shares(view: &View<'_>) -> BTreeMap<usize, u32> {
        let mut left: u32 = super::places::all_up(view).whole().iter().map(|free| free.count()).sum();
        let mut shares: BTreeMap<usize, u32> = BTreeMap::new();
        let mut gains: BTreeMap<usize, f64> = BTreeMap::new();
        let gain = |job: usize, gpus: u32| {
            let is_most = gpus == 0 || gpus >= view.jobs[job].gpus_max;
            if is_most { 0.0 } else { view.left_ms(job, gpus) - view.left_ms(job, gpus + 1) }
        };
        for job in view.active() {
            let gpus = Some(view.jobs[job].gpus_min).filter(|gpus| *gpus <= left).unwrap_or(0);
            left -= gpus;
            shares.insert(job, gpus);
            gains.insert(job, gain(job, gpus));
        }
        while left > 0 {
            let most = gains.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
            let Some((job, _)) = most.map(|(job, gain)| (*job, *gain)).filter(|(_, gain)| *gain > 0.0) else {
                break;
            };
            left -= 1;
            let gpus = shares.get(&job).copied().unwrap_or(0) + 1;
            shares.insert(job, gpus);
            gains.insert(job, gain(job, gpus));
        }
        shares
    }
}

impl Scheduler for Optimus {
    fn name(&self) -> String {
        "optimus".to_owned()
    }

    fn decide(&mut self, view: &View<'_>, acts: &mut Vec<Act>) -> Option<u64> {
        if view.now < self.next_round {
            return Some(self.next_round);
        }
        self.next_round = (view.now / self.round_ms + 1) * self.round_ms;
        if !view.now.is_multiple_of(self.round_ms) {
            return Some(self.next_round);
        }
        let shares = Self::shares(view);
        self.room.become_free(view.cluster, view.free);
        let mut changed: Vec<(u32, usize)> = Vec::new();
        for (job, gpus) in shares {
            let has = crate::replay::gpus_of(view.place(job));
            if gpus == has {
                continue;
            }
            if has > 0 {
                self.room.give_back(view.place(job));
                acts.push(Act::Stop { job, keep_progress: true });
            }
            if gpus > 0 {
                changed.push((gpus, job));
            }
        }
        changed.sort_unstable();
        for (gpus, job) in changed {
            if let Some(place) = self.room.find(view.cluster, &view.jobs[job], gpus) {
                self.room.take(&place);
                acts.push(Act::Start { job, place });
            }
        }
        (!view.active().is_empty()).then_some(self.next_round)
    }
}
