//! What is modelled beside the cluster: costs of starts, communication, time limits, and what befalls nodes.

use phalanx_spec::quantity::parse_milli;

use crate::command::CommandError;
use crate::command::words::Words;
use crate::policies::{needs_estimates, turn_ms};
use crate::replay::{Job, Machines, NodeEvent, NodeFaults, Settings};
use crate::trace::Trace;

/// Declared costs, where nothing is said: as long as a container and a framework take to come up, and to read a checkpoint.
const START_MS: u64 = 30_000;
const RESTORE_MS: u64 = 30_000;
const CHECKPOINT_MS: u64 = 1_800_000;
/// How long a lost node is away, where nothing is said.
const REPAIR_MS: u64 = 4 * 3_600_000;
/// A slow node: for an hour, and 3 times as slow as others, as where a slow worker dominates a job (ByteDance, OSDI 2025).
const SLOW_MS: u64 = 3_600_000;
const SLOW_TIMES_MILLI: u32 = 3_000;
/// What `--limits` may say.
const LIMITS: [&str; 3] = ["obey", "none", "stretch"];
/// Of a GPU-hour, in thousandths: what is reckoned with where nobody says.
const PRICE_MILLI: u64 = 2_500;
/// What is modelled beside the cluster.
pub(super) struct World {
    pub(super) settings: Settings,
    pub(super) traffic_milli: u32,
    pub(super) shares_links: bool,
    obeys_limits: bool,
    faults: NodeFaults,
    pub(super) price_milli: u64,
}

impl World {
    pub(super) fn read(words: &mut Words<'_>) -> Result<Self, CommandError> {
        let every_ms = words.take_ms("--checkpoint")?.unwrap_or(CHECKPOINT_MS);
        let settings = Settings {
            start_ms: words.take_ms("--start")?.unwrap_or(START_MS),
            restore_ms: words.take_ms("--restore")?.unwrap_or(RESTORE_MS),
            checkpoint_every_ms: Some(every_ms),
            checkpoint_ms: words.take_ms("--checkpoint-cost")?.unwrap_or(0),
            ..Settings::default()
        };
        if settings.checkpoint_ms > 0 && settings.checkpoint_ms >= every_ms {
            let error = "--checkpoint-cost: jobs would do nothing but save; --checkpoint has to be longer";
            return Err(CommandError::Usage(error.to_owned()));
        }
        let milli = |text: &str| {
            let milli = parse_milli(text).ok().and_then(|milli| u32::try_from(milli).ok());
            milli.ok_or_else(|| "is no number".to_owned())
        };
        let part = |text: &str| {
            let part = milli(text).ok().filter(|milli| *milli <= 1_000);
            part.ok_or_else(|| "is no part from 0 to 1".to_owned())
        };
        let price_milli = words.parsed("--price", milli)?.map_or(PRICE_MILLI, u64::from);
        let traffic_milli = words.parsed("--traffic", part)?.unwrap_or(0);
        let shares_links = words.has("--share-links");
        if shares_links && traffic_milli == 0 {
            let error = "--share-links: jobs send nothing; say how much with --traffic";
            return Err(CommandError::Usage(error.to_owned()));
        }
        let (obeys_limits, stretches_limits) = match words.take("--limits") {
            None | Some("obey") => (true, false),
            Some("none") => (false, false),
            Some("stretch") => (true, true),
            Some(other) => {
                let error = format!("--limits: {other:?} is none of {}", LIMITS.join(", "));
                return Err(CommandError::Usage(error));
            }
        };
        Ok(Self {
            settings: Settings { stretches_limits, ..settings },
            traffic_milli,
            shares_links,
            obeys_limits,
            faults: faults(words, milli)?,
            price_milli,
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
    pub(super) fn told(&self, trace: &Trace, jobs: &[Job], policies: &[&str]) -> Vec<String> {
        let Settings { start_ms, restore_ms, checkpoint_every_ms, checkpoint_ms, .. } = self.settings;
        let mut told = vec![format!(
            "declared: a start takes {}, and {} more with work to restore; work is saved every {}, which takes {}; a \
             GPU-hour costs {}.{:02}",
            span(start_ms),
            span(restore_ms),
            span(checkpoint_every_ms.unwrap_or(0)),
            span(checkpoint_ms),
            self.price_milli / 1_000,
            self.price_milli % 1_000 / 10
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

/// What befalls nodes.
fn faults(
    words: &mut Words<'_>,
    milli: impl Fn(&str) -> Result<u32, String>,
) -> Result<NodeFaults, CommandError> {
    let every = |words: &mut Words<'_>, name: &str| {
        let ms = words.take_ms(name)?;
        if ms == Some(0) {
            return Err(CommandError::Usage(format!("{name}: nodes that always fail run nothing")));
        }
        Ok(ms)
    };
    let mtbf_ms = match words.peek("--mtbf") {
        Some("llama3") => words.take("--mtbf").map(|_| NodeFaults::LLAMA_3_MTBF_MS),
        Some("rsc1") => words.take("--mtbf").map(|_| NodeFaults::RSC_1_MTBF_MS),
        _ => every(words, "--mtbf")?,
    };
    let slow_times_milli = words.parsed("--slow-by", milli)?.unwrap_or(SLOW_TIMES_MILLI);
    if slow_times_milli < 1_000 {
        return Err(CommandError::Usage("--slow-by: a slow node takes at least once the time".to_owned()));
    }
    Ok(NodeFaults {
        mtbf_ms,
        repair_ms: words.take_ms("--repair")?.unwrap_or(REPAIR_MS),
        slow_every_ms: every(words, "--slow-every")?,
        slow_ms: words.take_ms("--slow-for")?.unwrap_or(SLOW_MS),
        slow_times_milli,
    })
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
