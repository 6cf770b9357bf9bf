//! What is modelled beside the cluster: costs of starts, communication, time limits, and what befalls nodes.

use clap::{Args, ValueEnum};

use crate::command::CommandError;
use crate::command::values::{factor_milli, interval_ms, ms, part_milli};
use crate::policies::{needs_estimates, turn_ms};
use crate::replay::{Job, Machines, NodeEvent, NodeFaults, Settings};
use crate::trace::Trace;

/// What is modelled beside the cluster, as it is typed. Costs are declared: a start takes as long by default as a container
/// and a framework take to come up, and a restore as long as a checkpoint takes to read. A slow node is 3 times as slow, as
/// measured if a slow worker dominates a job (ByteDance, OSDI 2025).
#[derive(Debug, Args)]
#[command(next_help_heading = "World")]
pub(super) struct Modelled {
    /// Time from each start of a job until its work continues
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = ms)]
    start: u64,
    /// Additional time if there is work to restore
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = ms)]
    restore: u64,
    /// Time between two checkpoints of a running job
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = ms)]
    checkpoint: u64,
    /// Part of its time that a job of 2 GPUs or more communicates at the best placement, as 0.3
    ///
    /// Farther placements are slower by the cost model. With 0 placements do not matter.
    #[arg(long, value_name = "X", default_value = "0", value_parser = part_milli)]
    traffic: u32,
    /// What time limits of the trace do
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    limits: Limits,
    /// Time for which a checkpoint stops a job
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = ms)]
    checkpoint_cost: u64,
    /// Share uplinks among the jobs that send across them at the same time; without it uplinks are taken to be full
    #[arg(long)]
    share_links: bool,
    /// Mean time until a node is lost, or the measured one of `llama3` (264d) or `rsc1` (154d) [default: no node is lost]
    #[arg(long, value_name = "TIME", value_parser = mtbf_ms)]
    mtbf: Option<u64>,
    /// Mean time until a lost node is back
    #[arg(long, value_name = "TIME", default_value = "4h", value_parser = ms)]
    repair: u64,
    /// Mean time until a node is slow [default: no node is slow]
    #[arg(long, value_name = "TIME", value_parser = interval_ms)]
    slow_every: Option<u64>,
    /// Mean time for which a node is slow
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = ms)]
    slow_for: u64,
    /// Slowdown of all jobs on a slow node, whose members wait for each other
    #[arg(long, value_name = "X", default_value = "3", value_parser = factor_milli)]
    slow_by: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Limits {
    /// A job ends at its limit under every policy, and has failed
    #[default]
    Obey,
    /// No policy knows of limits
    None,
    /// As obey, with limits that are longer by the slowdown predicted for the placement of a run (see --traffic)
    Stretch,
}

/// Of a name, or a duration.
fn mtbf_ms(text: &str) -> Result<u64, String> {
    match text {
        "llama3" => Ok(NodeFaults::LLAMA_3_MTBF_MS),
        "rsc1" => Ok(NodeFaults::RSC_1_MTBF_MS),
        text => interval_ms(text).map_err(|error| format!("{error}, or llama3 or rsc1")),
    }
}

/// What is modelled beside the cluster.
pub(super) struct World {
    pub(super) settings: Settings,
    pub(super) traffic_milli: u32,
    pub(super) shares_links: bool,
    obeys_limits: bool,
    faults: NodeFaults,
}

impl World {
    pub(super) fn of(modelled: &Modelled) -> Result<Self, CommandError> {
        let settings = Settings {
            start_ms: modelled.start,
            restore_ms: modelled.restore,
            checkpoint_every_ms: Some(modelled.checkpoint),
            checkpoint_ms: modelled.checkpoint_cost,
            stretches_limits: modelled.limits == Limits::Stretch,
            ..Settings::default()
        };
        if settings.checkpoint_ms > 0 && settings.checkpoint_ms >= modelled.checkpoint {
            let error = "--checkpoint-cost: jobs would do nothing but save; --checkpoint has to be longer";
            return Err(CommandError::Usage(error.to_owned()));
        }
        if modelled.share_links && modelled.traffic == 0 {
            let error = "--share-links: jobs send nothing; say how much with --traffic";
            return Err(CommandError::Usage(error.to_owned()));
        }
        Ok(Self {
            settings,
            traffic_milli: modelled.traffic,
            shares_links: modelled.share_links,
            obeys_limits: modelled.limits != Limits::None,
            faults: NodeFaults {
                mtbf_ms: modelled.mtbf,
                repair_ms: modelled.repair,
                slow_every_ms: modelled.slow_every,
                slow_ms: modelled.slow_for,
                slow_times_milli: modelled.slow_by,
            },
        })
    }

    /// What a start takes at most.
    pub(super) const fn starts_ms(&self) -> u64 {
        self.settings.start_ms.saturating_add(self.settings.restore_ms)
    }

    pub(super) fn jobs(&self, trace: &Trace) -> Result<Vec<Job>, CommandError> {
        let mut jobs = Job::all_of(trace);
        if jobs.is_empty() {
            let error = "no job of the trace has devices and a known run time, so none can be replayed";
            return Err(CommandError::Input(error.to_owned()));
        }
        for job in &mut jobs {
            job.traffic_milli = self.traffic_milli;
            job.limit_ms = job.limit_ms.filter(|_| self.obeys_limits);
        }
        Ok(jobs)
    }

    /// Until twice the time that the trace covers and all devices need for its work; a run that is longer has none after
    /// that.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    pub(super) fn node_events(
        &self,
        jobs: &[Job],
        machines: &Machines,
        seed: u64,
    ) -> Result<Vec<NodeEvent>, CommandError> {
        let work: f64 = jobs.iter().map(|job| job.work * f64::from(job.gpus)).sum();
        let longest = jobs.iter().map(|job| job.work).fold(0.0, f64::max);
        let work_ms = (work / f64::from(machines.gpus().max(1)) + longest) as u64;
        let last_ms = jobs.last().map_or(0, |job| job.submit_ms);
        let end_ms = last_ms.saturating_add(work_ms).saturating_mul(2);
        let events = self.faults.events(machines.nodes.len(), end_ms, seed);
        events.map_err(|error| CommandError::Input(format!("--mtbf, --slow-every: {error}")))
    }

    /// A sentence for each thing that a reader of figures must know.
    pub(super) fn told(
        &self,
        trace: &Trace,
        jobs: &[Job],
        policies: &[&str],
        price_milli: u32,
    ) -> Vec<String> {
        let Settings { start_ms, restore_ms, checkpoint_every_ms, checkpoint_ms, .. } = self.settings;
        let mut told = vec![format!(
            "declared: a start takes {}, and {} more with work to restore; work is saved every {}, which takes {}; a \
             GPU-hour costs {}.{:02}",
            span(start_ms),
            span(restore_ms),
            span(checkpoint_every_ms.unwrap_or(0)),
            span(checkpoint_ms),
            price_milli / 1_000,
            price_milli % 1_000 / 10
        )];
        told.push(match self.traffic_milli {
            0 => "modelled: jobs run as long as recorded, wherever they are".to_owned(),
            milli => format!(
                "modelled: {} % of the time of a job with 2 GPUs or more is communication at the best place (declared), \
                 and slower elsewhere by the cost model; {}",
                milli / 10,
                if self.shares_links {
                    "jobs that send across the same uplinks share them"
                } else {
                    "uplinks are taken to be full"
                }
            ),
        });
        let NodeFaults { mtbf_ms, repair_ms, slow_every_ms, slow_ms, slow_times_milli } = self.faults;
        if let Some(mtbf_ms) = mtbf_ms {
            let (mtbf, repair) = (span(mtbf_ms), span(repair_ms));
            told.push(format!(
                "drawn: each node is lost after {mtbf} on the average, and back after {repair}"
            ));
        }
        if let Some(every_ms) = slow_every_ms {
            let (every, lasts, times) = (span(every_ms), span(slow_ms), format_milli(slow_times_milli));
            told.push(format!("drawn: each node is {times} times as slow for {lasts} after {every} on the average; no policy is told"));
        }
        self.tell_limits(trace, jobs, policies, &mut told);
        told.extend(shares(jobs));
        let left_out = trace.jobs.len().saturating_sub(jobs.len());
        if left_out > 0 {
            told.push(format!("left out: {left_out} jobs without GPUs or without a known run time"));
        }
        if !trace.generated.is_empty() {
            told.push(format!("not measured: {} (drawn by the publisher)", trace.generated.join(", ")));
        }
        told
    }

    /// What time limits and starts mean for the policies.
    fn tell_limits(&self, trace: &Trace, jobs: &[Job], policies: &[&str], told: &mut Vec<String>) {
        let limited = trace.jobs.iter().filter(|job| job.limit_ms.is_some()).count();
        match (limited, self.obeys_limits) {
            (0, _) => {}
            (_, true) if self.settings.stretches_limits => told.push(format!(
                "stretched under all policies: the time limits of {limited} jobs, in each run by the slowdown that the cost \
                 model predicts for the place; a job that has run so long is ended, and failed"
            )),
            (_, true) => told.push(format!(
                "obeyed under all policies: the time limits of {limited} jobs; a job that has run so long is ended, and failed"
            )),
            (_, false) => told.push(format!("left out: the time limits of {limited} jobs, which no policy knows")),
        }
        let knows: Vec<&str> = policies.iter().copied().filter(|name| needs_estimates(name)).collect();
        if !knows.is_empty() && jobs.iter().any(|job| job.limit_ms.is_none()) {
            told.push(format!(
                "oracles here: {}, which take the run time for the estimate of a job without a time limit",
                knows.join(", ")
            ));
        }
        for name in policies {
            let Some((of_paper, here)) = turn_ms(name, self.starts_ms()).filter(|(one, other)| one != other)
            else {
                continue;
            };
            told.push(format!(
                "stretched: turns of {name} take {} and not {}, for a start with work to restore takes {}",
                span(here),
                span(of_paper),
                span(self.starts_ms())
            ));
        }
    }
}

/// How many jobs ask for shares of devices, and what is taken for granted of those.
fn shares(jobs: &[Job]) -> Option<String> {
    let shares = jobs.iter().filter(|job| job.share_milli.is_some()).count();
    (shares > 0).then(|| {
        format!(
            "modelled: {shares} jobs ask for shares of GPUs, which others may share under every policy; they run as long as \
             recorded beside others, and each has the same part of the GPU's memory"
        )
    })
}

/// Thousandths as a number.
fn format_milli(milli: u32) -> String {
    let text = format!("{}.{:03}", milli / 1_000, milli % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// As it would be typed.
fn span(ms: u64) -> String {
    match ms {
        0 => "0s".to_owned(),
        ms if ms % 86_400_000 == 0 => format!("{}d", ms / 86_400_000),
        ms if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        ms => format!("{ms}ms"),
    }
}
