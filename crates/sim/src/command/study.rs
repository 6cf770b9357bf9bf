//! `run`, `compare` and `policies`: a trace on a cluster under policies, and what came of it.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_spec::QueueFile;
use phalanx_spec::quantity::parse_milli;

use super::hang::{self, Hung};
use super::traces::{self, Selected};
use super::words::Words;
use super::{CommandError, Host};
use crate::policies::{NAMES, Rules, named};
use crate::replay::{Job, Machines, NodeEvent, NodeFaults, Placed, Progress, Recorded, Replay, Settings};
use crate::report::{About, Entry, Input, POINTS_MAX, Report, TraceFacts};
use crate::trace::Trace;

/// What is compared where nothing is said.
const COMPARED: &str = "fifo,srtf,las,drf,best-fit,phalanx";
/// Declared costs, where nothing is said: as long as a container and a framework take to come up, and to read a checkpoint.
const START_MS: u64 = 30_000;
const RESTORE_MS: u64 = 30_000;
const CHECKPOINT_MS: u64 = 1_800_000;
/// How long a lost node is away, where nothing is said.
const REPAIR_MS: u64 = 4 * 3_600_000;
/// A slow node: for an hour, and 3 times as slow as others, as where a slow worker dominates a job (ByteDance, OSDI 2025).
const SLOW_MS: u64 = 3_600_000;
const SLOW_TIMES_MILLI: u32 = 3_000;
/// Of a GPU-hour, in thousandths: what is reckoned with where nobody says.
const PRICE_MILLI: u64 = 2_500;
/// Points of charts over time, where nothing is said.
const POINTS: u64 = 400;
/// Of queue files.
const QUEUES_BYTES_MAX: u64 = 16 << 20;

/// A line for each policy of [`NAMES`].
const ABOUT: [(&str, &str); 22] = [
    ("phalanx", "the production engine"),
    (
        "phalanx-least-served",
        "the same; in every queue whoever had less GPU time goes first, and may preempt",
    ),
    ("fifo", "in the order of submission; nobody passes"),
    ("first-fit", "in the order of submission, whoever fits; the first free devices"),
    ("best-fit", "the same; the fullest node that fits, or the fewest whole ones"),
    ("spread", "the same; the emptiest nodes"),
    ("topology", "the same; the place that the engine's search finds"),
    ("sjf", "the shortest job first; nothing is stopped"),
    ("srtf", "the shortest remaining time first, stopping others"),
    ("srsf", "the least remaining time x GPUs first, stopping others (Tiresias, NSDI 2019)"),
    ("las", "the least attained service first, looked at every 6 min (Gavel, OSDI 2020)"),
    ("tiresias", "least attained service in two queues, time x GPUs (Tiresias, NSDI 2019)"),
    ("gandiva", "turns of a minute; devices are not shared (Gandiva, OSDI 2018)"),
    ("themis", "the worst finish-time fairness first, leases of 20 min, no auctions (Themis, NSDI 2020)"),
    ("gavel", "max-min of throughputs over kinds of device, rounds of 6 min (Gavel, OSDI 2020)"),
    ("gavel-las", "the same where all devices count alike"),
    ("drf", "the user with the least dominant share first (DRF, NSDI 2011)"),
    ("hived", "each queue has cells by its share of the GPU time; others may borrow them (HiveD, OSDI 2020)"),
    ("easy", "backfill that delays the first in the line by no limit of time (Lifka, 1995)"),
    ("conservative", "backfill that delays nobody in the line (Mu'alem and Feitelson, 2001)"),
    ("kueue", "first come first served, whoever fits, placed as Kueue does"),
    ("slurm", "conservative backfill, placed as Slurm's tree topology does"),
];

/// The option of `compare` that says which.
pub(super) fn policies_line() -> String {
    format!("--policies A,B,…  several of what `policies` lists; without it {COMPARED}")
}

pub(super) fn help(verb: &str, which: &str) -> String {
    format!(
        "\
usage: {verb} --trace FILE [options]

  {which}
{}
  --queues FILE     a queue file for phalanx; without it all are in one queue
  --seed N          of what is drawn: what befalls nodes; without it 1
  --price X         of a GPU-hour, in any currency; without it 2.50
The world:
  --start TIME      what each start takes until work goes on; without it 30s
  --restore TIME    what it takes in addition where there is work to restore; without it 30s
  --checkpoint TIME how often running jobs save their work; without it 30m
  --traffic X       part of its time that a job of 2 GPUs or more communicates at the best place, as 0.3; farther places are
                    slower by the cost model; without it places do not matter
  --checkpoint-cost TIME  what of that time they stand still for it; without it 0s
  --share-links     jobs that send across the same uplinks at a time share them; without it uplinks are taken to be full
  --mtbf TIME       mean time until a node is lost, or whose: `llama3` (264 days), `rsc1` (154 days); without it none is
  --repair TIME     mean time until it is back; without it 4h
  --slow-every TIME mean time until a node is slow; without it none is
  --slow-for TIME   mean time that it is; without it 1h
  --slow-by X       times as slow, for all jobs on it, whose members wait for each other; without it 3
The trace:
  --trace FILE      `-` reads standard input
{}
The result:
  -o FILE           the report as one HTML page
  --json FILE       the same figures as JSON; `-` is standard output
  --points N        points of charts over time, at most {POINTS_MAX}; without it {POINTS}
  -q                no table
",
        hang::OPTIONS,
        traces::options()
    )
}

pub(super) fn policies(words: &[&str], host: &mut dyn Host) -> Result<(), CommandError> {
    Words::read(words, &[])?.done()?;
    let width = ABOUT.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, is_oracle): &(&str, bool)| {
        let about = ABOUT.iter().find(|(known, _)| known == name).map_or("", |(_, about)| about);
        let oracle = if *is_oracle { "oracle" } else { "" };
        format!("{name:width$}  {oracle:6}  {about}\n")
    };
    let lines: String = NAMES.iter().map(line).collect();
    let text = format!("{lines}\nOracles know how long jobs take, which no scheduler does.\n");
    host.print(text.as_bytes()).map_err(CommandError::Input)
}

pub(super) fn run(words: &[&str], host: &mut dyn Host) -> Result<(), CommandError> {
    study(words, "--policy", "phalanx", host)
}

pub(super) fn compare(words: &[&str], host: &mut dyn Host) -> Result<(), CommandError> {
    study(words, "--policies", COMPARED, host)
}

/// What the report is asked to be.
struct Wanted<'a> {
    html: Option<&'a str>,
    json: Option<&'a str>,
    is_quiet: bool,
}

fn study(words: &[&str], which: &str, otherwise: &str, host: &mut dyn Host) -> Result<(), CommandError> {
    let mut words = Words::read(words, &["-q", "--quiet", "--cpus-as-gpus", "--share-links"])?;
    let names = words.take(which).unwrap_or(otherwise);
    let names = policy_names(names, which)?;
    let file =
        words.take("--trace").ok_or_else(|| CommandError::Usage("--trace FILE is missing".to_owned()))?;
    let (cluster, queues) = (words.take("--cluster"), words.take("--queues"));
    let seed = words.take_number("--seed")?.unwrap_or(1);
    let points = words.take_number("--points")?.unwrap_or(POINTS);
    let points_max = usize::try_from(points).ok().filter(|points| (1..=POINTS_MAX).contains(points));
    let points_max = points_max
        .ok_or_else(|| CommandError::Usage(format!("--points: {points} is not from 1 to {POINTS_MAX}")))?;
    let wanted = Wanted {
        html: words.take("-o").or_else(|| words.take("--output")),
        json: words.take("--json"),
        is_quiet: words.has("-q") | words.has("--quiet"),
    };
    let world = World::read(&mut words)?;
    let Selected { format, trace, mut inputs } = traces::select(file, words, host)?;
    traces::tell_bad(&trace, host);
    let Hung { cluster, name, inputs: read } = hang::hang(cluster, &trace, host)?;
    inputs.extend(read);
    let rules = rules(queues, &mut inputs, host)?;
    let machines = Machines::from(cluster);
    let jobs = world.jobs(&trace)?;
    let node_events = world.node_events(&jobs, &machines, seed)?;
    let entries = entries(&names, &machines, &jobs, &rules)?;
    let summary = trace.summary();
    let about = About {
        seed,
        inputs,
        world: world.told(&trace, jobs.len()),
        trace: TraceFacts { format: format.name().to_owned(), replayed: jobs.len(), summary },
        cluster: name,
        points_max,
        price_milli: world.price_milli,
    };
    let placed = if world.shares_links { Placed::among_others() } else { Placed::default() };
    let progress: &dyn Progress = if world.traffic_milli > 0 { &placed } else { &Recorded };
    let replay = Replay {
        cluster: &machines,
        jobs: &jobs,
        progress,
        settings: world.settings,
        node_events: &node_events,
    };
    let report = Report::of(&replay, entries, about, &mut |progress| host.progress(Some(progress)));
    host.progress(None);
    hand_out(&report.map_err(|failure| CommandError::Correctness(failure.to_string()))?, &wanted, host)
}

fn hand_out(report: &Report, wanted: &Wanted<'_>, host: &mut dyn Host) -> Result<(), CommandError> {
    if !wanted.is_quiet && wanted.json != Some("-") {
        host.print(report.table().as_bytes()).map_err(CommandError::Input)?;
    }
    match wanted.json {
        Some("-") => host.print(report.json().as_bytes()).map_err(CommandError::Input)?,
        Some(file) => host.write(file, &report.json()).map_err(CommandError::Input)?,
        None => {}
    }
    wanted.html.map_or(Ok(()), |file| host.write(file, &report.html()).map_err(CommandError::Input))
}

/// Names between commas, each known and said once.
fn policy_names<'a>(text: &'a str, which: &str) -> Result<Vec<&'a str>, CommandError> {
    let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let unknown = names.iter().find(|name| NAMES.iter().all(|(known, _)| known != *name));
    if let Some(name) = unknown {
        let error = format!("{which}: there is no policy {name:?}; `policies` lists them");
        return Err(CommandError::Usage(error));
    }
    if names.is_empty() || names.iter().collect::<BTreeSet<_>>().len() < names.len() {
        return Err(CommandError::Usage(format!("{which}: name each policy once, with commas between")));
    }
    Ok(names)
}

fn rules(file: Option<&str>, inputs: &mut Vec<Input>, host: &mut dyn Host) -> Result<Rules, CommandError> {
    let Some(file) = file else { return Ok(Rules::default()) };
    let bytes = host.read(file, QUEUES_BYTES_MAX).map_err(CommandError::Input)?;
    inputs.push(Input::of(file, &bytes));
    let text = String::from_utf8(bytes).map_err(|_| CommandError::Input(format!("{file} is no text")))?;
    let policy = QueueFile::from_yaml(&text, file).and_then(QueueFile::into_policy);
    let policy = policy.map_err(|error| CommandError::Input(error.to_string()))?;
    Ok(Rules { queues: policy.queues, settings: policy.settings, ..Rules::default() })
}

fn entries(
    names: &[&str],
    machines: &Machines,
    jobs: &[Job],
    rules: &Rules,
) -> Result<Vec<Entry>, CommandError> {
    let cells = cells(jobs, machines.gpus());
    let entry = |name: &&str| {
        let policy = named(name, machines, rules, &cells).map_err(CommandError::Input)?;
        let is_oracle = NAMES.iter().any(|(known, is_oracle)| known == name && *is_oracle);
        Ok(Entry { name: (*name).to_owned(), is_oracle, policy })
    };
    names.iter().map(entry).collect()
}

/// Devices of each queue by its share of all device time, rounded down.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of the devices")]
fn cells(jobs: &[Job], gpus: u32) -> BTreeMap<String, u32> {
    let mut times: BTreeMap<String, f64> = BTreeMap::new();
    for job in jobs {
        if let Some(queue) = &job.queue {
            *times.entry(queue.clone()).or_default() += job.work * f64::from(job.gpus);
        }
    }
    let all: f64 = times.values().sum();
    times.into_iter().map(|(queue, time)| (queue, (time / all.max(1.0) * f64::from(gpus)) as u32)).collect()
}

/// What is modelled beside the cluster.
struct World {
    settings: Settings,
    traffic_milli: u32,
    shares_links: bool,
    faults: NodeFaults,
    price_milli: u64,
}

impl World {
    fn read(words: &mut Words<'_>) -> Result<Self, CommandError> {
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
        Ok(Self { settings, traffic_milli, shares_links, faults: faults(words, milli)?, price_milli })
    }

    fn jobs(&self, trace: &Trace) -> Result<Vec<Job>, CommandError> {
        let mut jobs = Job::all_of(trace);
        if jobs.is_empty() {
            let error = "no job of the trace has devices and a known run time, so none can be replayed";
            return Err(CommandError::Input(error.to_owned()));
        }
        jobs.iter_mut().for_each(|job| job.traffic_milli = self.traffic_milli);
        Ok(jobs)
    }

    /// Until twice the time that the trace covers and all devices need for its work; a run that is longer has none after
    /// that.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    fn node_events(
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
    fn told(&self, trace: &Trace, replayed: usize) -> Vec<String> {
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
        let shared = trace.jobs.iter().filter(|job| job.gpu_milli < 1_000).count();
        if shared > 0 {
            told.push(format!("not modelled: {shared} jobs take parts of GPUs, and get whole ones"));
        }
        let left_out = trace.jobs.len().saturating_sub(replayed);
        if left_out > 0 {
            told.push(format!("left out: {left_out} jobs without GPUs or without a known run time"));
        }
        if !trace.generated.is_empty() {
            told.push(format!("not measured: {} (drawn by the publisher)", trace.generated.join(", ")));
        }
        told
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_its_line() {
        let names = NAMES.map(|(name, _)| name);
        assert_eq!(ABOUT.map(|(name, _)| name), names);
    }
}
