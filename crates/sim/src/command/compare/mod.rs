//! `run`, `compare` and `policies`: a trace on a cluster under policies, and what came of it.

mod world;

use std::collections::BTreeSet;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use phalanx_spec::QueueFile;

use self::world::{Modelled, World};
use super::hang::{self, Hung};
use super::traces::{self, Part, Selected};
use super::values::milli;
use super::{CommandError, Host};
use crate::policies::{NAMES, Rules, cells, named, needs_estimates};
use crate::replay::{Job, Machines, Placed, Progress, Recorded, Replay};
use crate::report::{About, Entry, Input, POINTS_MAX, PerJob, Report, TraceFacts};

/// What is compared by default.
const COMPARED: &str = "fifo,srtf,las,drf,best-fit,phalanx";
/// Points of charts over time by default.
const POINTS: u64 = 400;
/// Of queue files.
const QUEUES_BYTES_MAX: u64 = 16 << 20;

/// A line for each policy of [`NAMES`].
const ABOUT: [(&str, &str); 24] = [
    ("phalanx", "the production engine, as it is where nobody says anything, or by --queues"),
    ("phalanx-fair", "the same with the preset `fair`: by GPU time in smaller steps"),
    ("phalanx-first-come", "the same with the preset `first-come`: by priority and age"),
    ("fifo", "in the order of submission; nobody passes"),
    ("first-fit", "in the order of submission, whoever fits; the first free devices"),
    ("best-fit", "the same; the fullest node that fits, or the fewest whole ones"),
    ("spread", "the same; the emptiest nodes"),
    ("random", "the same; whole nodes in a random order"),
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

#[derive(Debug, Args)]
pub struct Run {
    /// Policy; `policies` lists them
    #[arg(long, value_name = "NAME", default_value = "phalanx", value_parser = names(), hide_possible_values = true)]
    policy: String,
    #[command(flatten)]
    replayed: Replayed,
}

#[derive(Debug, Args)]
pub struct Compare {
    /// Policies; `policies` lists them
    #[arg(long, value_name = "A,B,…", default_value = COMPARED, value_delimiter = ',', value_parser = names(),
          hide_possible_values = true)]
    policies: Vec<String>,
    #[command(flatten)]
    replayed: Replayed,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(NAMES.map(|(name, _)| name))
}

/// What is replayed, where, and what the report is.
#[derive(Debug, Args)]
struct Replayed {
    /// Cluster: 16x32x8, FILE.yaml, FILE.csv or lingjun:FILE [default: sized for the load]
    ///
    /// - 16x32x8: leaves, nodes of each leaf, GPUs of each node
    /// - 4x16x32x8:2: the same below 4 blocks, with uplinks that are oversubscribed 2 to 1
    /// - FILE.yaml: a cluster file
    /// - FILE.csv: published nodes (openb, Tiresias, Muri)
    /// - lingjun:FILE[:2]: a table of hosts and switches, 8 GPUs each
    #[arg(long, value_name = "WHAT", verbatim_doc_comment, value_hint = ValueHint::FilePath)]
    cluster: Option<String>,
    /// Queue file for `phalanx` [default: one queue]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    queues: Option<String>,
    /// Seed of what is drawn: failures and slow times of nodes
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Price of a GPU-hour, in any currency
    #[arg(long, value_name = "X", default_value = "2.50", value_parser = milli)]
    price: u32,
    #[command(flatten)]
    world: Modelled,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    result: Wanted,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Trace")]
struct Source {
    /// Trace in any of the formats; `-` reads standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    trace: String,
    #[command(flatten)]
    part: Part,
}

/// What the report is asked to be.
#[derive(Debug, Args)]
#[command(next_help_heading = "Result")]
struct Wanted {
    /// Write the report as one HTML page
    #[arg(short = 'o', long = "output", value_name = "FILE", value_hint = ValueHint::FilePath)]
    page: Option<String>,
    /// Write the same figures as JSON; `-` is standard output
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<String>,
    /// Write what became of every job under every policy, as .csv, .jsonl or .parquet
    #[arg(long, value_name = "FILE", value_parser = PerJob::of_file, value_hint = ValueHint::FilePath)]
    per_job: Option<(String, PerJob)>,
    /// Points of charts over time, at most 1000
    #[arg(long, value_name = "N", default_value_t = POINTS, value_parser = clap::value_parser!(u64).range(1..=POINTS_MAX as u64))]
    points: u64,
    /// Print no table
    #[arg(short = 'q')]
    no_table: bool,
}

pub(super) fn policies(host: &mut dyn Host) -> Result<(), CommandError> {
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

impl Run {
    pub(super) fn run(&self, host: &mut dyn Host) -> Result<(), CommandError> {
        self.replayed.under(&[&self.policy], host)
    }
}

impl Compare {
    pub(super) fn run(&self, host: &mut dyn Host) -> Result<(), CommandError> {
        let names: Vec<&str> = self.policies.iter().map(String::as_str).collect();
        if names.iter().collect::<BTreeSet<_>>().len() < names.len() {
            return Err(CommandError::Usage("--policies: name each policy once".to_owned()));
        }
        self.replayed.under(&names, host)
    }
}

impl Replayed {
    fn under(&self, names: &[&str], host: &mut dyn Host) -> Result<(), CommandError> {
        let world = World::of(&self.world)?;
        let Selected { format, trace, mut inputs } =
            traces::select(&self.source.trace, &self.source.part, host)?;
        traces::tell_bad(&trace, host);
        let Hung { cluster, name, inputs: read } = hang::hang(self.cluster.as_deref(), &trace, host)?;
        inputs.extend(read);
        let rules =
            Rules { starts_ms: world.starts_ms(), ..rules(self.queues.as_deref(), &mut inputs, host)? };
        let machines = Machines::from(cluster);
        let jobs = world.jobs(&trace)?;
        let node_events = world.node_events(&jobs, &machines, self.seed)?;
        let entries = entries(names, &machines, &jobs, &rules)?;
        let summary = trace.summary();
        let about = About {
            seed: self.seed,
            inputs,
            command: command_line(&host.words()),
            world: world.told(&trace, &jobs, names, self.price),
            trace: TraceFacts { format: format.name().to_owned(), replayed: jobs.len(), summary },
            cluster: name,
            points_max: usize::try_from(self.result.points).unwrap_or(POINTS_MAX),
            keeps_jobs: self.result.per_job.is_some(),
            price_milli: self.price.into(),
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
        hand_out(
            &report.map_err(|failure| CommandError::Correctness(failure.to_string()))?,
            &self.result,
            host,
        )
    }
}

fn hand_out(report: &Report, wanted: &Wanted, host: &mut dyn Host) -> Result<(), CommandError> {
    let json = wanted.json.as_deref();
    if !wanted.no_table && json != Some("-") {
        host.print(report.table().as_bytes()).map_err(CommandError::Input)?;
    }
    match json {
        Some("-") => host.print(report.json().as_bytes()).map_err(CommandError::Input)?,
        Some(file) => host.write(file, report.json().as_bytes()).map_err(CommandError::Input)?,
        None => {}
    }
    if let Some((file, format)) = &wanted.per_job {
        let bytes = format.bytes(report).map_err(|why| CommandError::Input(format!("{file}: {why}")))?;
        host.write(file, &bytes).map_err(CommandError::Input)?;
    }
    let write = |file: &String| host.write(file, report.html().as_bytes()).map_err(CommandError::Input);
    wanted.page.as_ref().map_or(Ok(()), write)
}

/// What was typed, as a shell takes it.
fn command_line(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    let quoted = |word: &String| match word.as_str() {
        word if !word.is_empty() && word.chars().all(is_plain) => word.to_owned(),
        word => format!("'{}'", word.replace('\'', r"'\''")),
    };
    let words: Vec<String> = words.iter().map(quoted).collect();
    format!("phalanx {}", words.join(" "))
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
        let is_oracle = NAMES.iter().any(|(known, is_oracle)| known == name && *is_oracle)
            || needs_estimates(name) && jobs.iter().any(|job| job.limit_ms.is_none());
        Ok(Entry { name: (*name).to_owned(), is_oracle, policy })
    };
    names.iter().map(entry).collect()
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
