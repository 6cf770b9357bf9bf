//! Policies to compare with, each small and from its paper or documentation, and Phalanx itself, on one world.

mod backfill;
mod center;
mod gangs;
mod gavel;
mod optimus;
mod ordered;
mod orders;
mod parts;
pub mod peers;
mod phalanx;
mod places;
mod shares;
mod tiresias;

pub use backfill::{Backfill, Promise};
pub(crate) use gangs::gang;
pub use gavel::{Gavel, Goal};
pub use optimus::Optimus;
pub use ordered::{Order, Ordered, Preemption};
pub use orders::{Fifo, Gandiva, Las, Sjf, Srsf, Srtf};
pub use phalanx::{Phalanx, Rules};
pub use places::{Packing, Room};
pub use shares::{Drf, Hived, Themis};
pub use tiresias::Tiresias;

use std::collections::BTreeMap;

use phalanx_spec::Preset;

use crate::replay::{Job, Machines, Scheduler};

/// Turns of Gandiva: its time slice of a minute (OSDI 2018, section 3.1).
const GANDIVA_MS: u64 = 60_000;
/// Leases of Themis (NSDI 2020, section 8.1: 20 minutes), and rounds of least attained service in Gavel (OSDI 2020:
/// 6 minutes).
const THEMIS_MS: u64 = 1_200_000;
const LAS_MS: u64 = 360_000;
/// Promises of conservative backfill at one time, as Slurm's `bf_max_job_test`.
const PROMISES_MAX: usize = 500;

/// The policies by the words of the command line. `oracle` is whether it knows how long jobs take.
pub const NAMES: [(&str, bool); 24] = [
    ("phalanx", false),
    ("phalanx-fair", false),
    ("phalanx-first-come", false),
    ("fifo", false),
    ("first-fit", false),
    ("best-fit", false),
    ("spread", false),
    ("random", false),
    ("topology", false),
    ("sjf", true),
    ("srtf", true),
    ("srsf", true),
    ("las", false),
    ("tiresias", false),
    ("gandiva", false),
    ("themis", true),
    ("gavel", false),
    ("gavel-las", false),
    ("drf", false),
    ("hived", false),
    ("easy", false),
    ("conservative", false),
    ("kueue", false),
    ("slurm", false),
];

/// Whether a policy asks how long jobs take: their time limits, or where they have none their run times, which makes an
/// oracle of it.
#[must_use]
pub fn needs_estimates(name: &str) -> bool {
    matches!(name, "easy" | "conservative" | "slurm")
}

/// The turns of a policy that has any: as its paper has them, and as they are where a start takes so long. In a turn a job
/// gets on for at least as long as it starts; or jobs would take turns for ever and none would end.
#[must_use]
pub fn turn_ms(name: &str, starts_ms: u64) -> Option<(u64, u64)> {
    let of_paper = match name {
        "las" | "gavel" | "gavel-las" => LAS_MS,
        "gandiva" => GANDIVA_MS,
        "themis" => THEMIS_MS,
        _ => return None,
    };
    Some((of_paper, of_paper.max(starts_ms.saturating_mul(2))))
}

/// Devices of the virtual cluster of each queue that jobs name: its share of all device time, rounded down.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the devices")]
#[must_use]
pub fn cells(jobs: &[Job], gpus: u32) -> BTreeMap<String, u32> {
    let mut times: BTreeMap<String, f64> = BTreeMap::new();
    for job in jobs {
        if let Some(queue) = &job.queue {
            *times.entry(queue.clone()).or_default() += job.work * job.devices();
        }
    }
    let all: f64 = times.values().sum();
    times.into_iter().map(|(queue, time)| (queue, (time / all.max(1.0) * f64::from(gpus)) as u32)).collect()
}

/// A policy by its word, as it is compared with others: whoever preempts does it by count, and places are consolidated
/// unless the word says otherwise. `cells` are the devices of each virtual cluster, for those that mind it.
///
/// # Errors
/// When there is none of that name, or the engine refuses the cluster.
pub fn named(
    name: &str,
    cluster: &Machines,
    rules: &Rules,
    cells: &BTreeMap<String, u32>,
) -> Result<Box<dyn Scheduler>, String> {
    const PASSING: Preemption = Preemption::Never { is_strict: false };
    let near = Packing::Consolidated;
    let turn_ms = turn_ms(name, rules.starts_ms).map_or(0, |(_, ms)| ms);
    fn made<O: Order + 'static>(order: O, preemption: Preemption, packing: Packing) -> Box<dyn Scheduler> {
        Box::new(Ordered::new(order, preemption, packing))
    }
    Ok(match name {
        "phalanx" => Box::new(Phalanx::new(cluster, rules)?),
        "phalanx-fair" => Box::new(Phalanx::of_preset("phalanx-fair", Preset::Fair, cluster, rules)?),
        "phalanx-first-come" => {
            Box::new(Phalanx::of_preset("phalanx-first-come", Preset::FirstCome, cluster, rules)?)
        }
        "fifo" => made(Fifo, Preemption::Never { is_strict: true }, near),
        "first-fit" => made(Named("first-fit"), PASSING, Packing::FirstFit),
        "best-fit" => made(Named("best-fit"), PASSING, near),
        "spread" => made(Named("spread"), PASSING, Packing::Spread),
        "random" => made(Named("random"), PASSING, Packing::Random),
        "topology" => made(Named("topology"), PASSING, Packing::Topology),
        "sjf" => made(Sjf, PASSING, near),
        "srtf" => made(Srtf, Preemption::ByCount, near),
        "srsf" => made(Srsf, Preemption::ByCount, near),
        "las" => Box::new(Ordered::new(Las, Preemption::ByCount, near).every(turn_ms)),
        "tiresias" => made(Tiresias::default(), Preemption::ByCount, near),
        "gandiva" => Box::new(Ordered::new(Gandiva, Preemption::ByCount, near).every(turn_ms)),
        "themis" => Box::new(Ordered::new(Themis::default(), Preemption::ByCount, near).every(turn_ms)),
        "gavel" => Box::new(Gavel::new(Goal::MaxMin, turn_ms)),
        "gavel-las" => Box::new(Gavel::new(Goal::MaxMinUnaware, turn_ms)),
        "drf" => made(Drf::default(), PASSING, near),
        "hived" => made(Hived::new(cells.clone()), Preemption::ByCount, near),
        "easy" => Box::new(Backfill::new(Promise::First, near)),
        "conservative" => Box::new(Backfill::new(Promise::All { at_most: PROMISES_MAX }, near)),
        "kueue" => made(Named("kueue"), PASSING, Packing::Kueue),
        "slurm" => Box::new(
            Backfill::new(Promise::All { at_most: PROMISES_MAX }, Packing::SlurmTree).called("slurm"),
        ),
        other => {
            let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            return Err(format!("there is no policy {other}; known are {}", known.join(", ")));
        }
    })
}

/// First come first served under another name: what differs is the place.
#[derive(Clone, Copy, Debug)]
struct Named(&'static str);

impl Order for Named {
    fn name(&self) -> String {
        self.0.to_owned()
    }

    fn key(&mut self, _: &crate::replay::View<'_>, _: usize) -> (u64, f64) {
        (0, 0.0)
    }
}
