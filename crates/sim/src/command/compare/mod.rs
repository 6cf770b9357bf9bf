//! `run`, `compare` and `policies`: a trace on a cluster under policies, and what came of it.

mod world;

use std::collections::BTreeSet;

use phalanx_spec::QueueFile;

use self::world::World;
use super::hang::{self, Hung};
use super::traces::{self, Selected};
use super::words::Words;
use super::{CommandError, Host};
use crate::policies::{NAMES, Rules, cells, named, needs_estimates};
use crate::replay::{Job, Machines, Placed, Progress, Recorded, Replay};
use crate::report::{About, Entry, Input, POINTS_MAX, PerJob, Report, TraceFacts};

/// What is compared where nothing is said.
const COMPARED: &str = "fifo,srtf,las,drf,best-fit,phalanx";
/// Points of charts over time, where nothing is said.
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
  --limits WHAT     of jobs whose trace has time limits: `obey`, a job is ended at its limit whoever the policy is, and has
                    failed; `none`, nobody knows of limits; `stretch`, as `obey`, with limits that are longer by the
                    slowdown that is predicted for the place of a run (see --traffic); without it obey
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
  --per-job FILE    what became of every job under every policy, as .csv, .jsonl or .parquet by the end of the name
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
    jobs: Option<(&'a str, PerJob)>,
    json: Option<&'a str>,
    is_quiet: bool,
}

fn study(words: &[&str], which: &str, otherwise: &str, host: &mut dyn Host) -> Result<(), CommandError> {
    let command = command_line(if which == "--policy" { "run" } else { "compare" }, words);
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
        jobs: words.take("--per-job").map(PerJob::of_file).transpose().map_err(CommandError::Usage)?,
        is_quiet: words.has("-q") | words.has("--quiet"),
    };
    let world = World::read(&mut words)?;
    let Selected { format, trace, mut inputs } = traces::select(file, words, host)?;
    traces::tell_bad(&trace, host);
    let Hung { cluster, name, inputs: read } = hang::hang(cluster, &trace, host)?;
    inputs.extend(read);
    let rules = Rules { starts_ms: world.starts_ms(), ..rules(queues, &mut inputs, host)? };
    let machines = Machines::from(cluster);
    let jobs = world.jobs(&trace)?;
    let node_events = world.node_events(&jobs, &machines, seed)?;
    let entries = entries(&names, &machines, &jobs, &rules)?;
    let summary = trace.summary();
    let about = About {
        seed,
        inputs,
        command,
        world: world.told(&trace, &jobs, &names),
        trace: TraceFacts { format: format.name().to_owned(), replayed: jobs.len(), summary },
        cluster: name,
        points_max,
        keeps_jobs: wanted.jobs.is_some(),
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
        Some(file) => host.write(file, report.json().as_bytes()).map_err(CommandError::Input)?,
        None => {}
    }
    if let Some((file, format)) = wanted.jobs {
        let bytes = format.bytes(report).map_err(|why| CommandError::Input(format!("{file}: {why}")))?;
        host.write(file, &bytes).map_err(CommandError::Input)?;
    }
    wanted.html.map_or(Ok(()), |file| host.write(file, report.html().as_bytes()).map_err(CommandError::Input))
}

/// What was typed, as a shell takes it.
fn command_line(verb: &str, words: &[&str]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    let quoted = |word: &&str| match word {
        word if !word.is_empty() && word.chars().all(is_plain) => (*word).to_owned(),
        word => format!("'{}'", word.replace('\'', r"'\''")),
    };
    let words: Vec<String> = words.iter().map(quoted).collect();
    format!("phalanx sim {verb} {}", words.join(" "))
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
