//! The flags of a submission, and how they are put on top of a job file.

mod resources;

use std::collections::BTreeMap;

use crate::error::{Place, Source, SpecError};
use crate::job::{CheckpointFile, JobFile, RetryFile, SecretFile};
use crate::parallel::ParallelismFile;
use crate::place::{At, Scalar};
use crate::scalar::{SignalNumber, Span, VariableName};
use crate::topology::{SegmentFile, SpreadFile, TopologyFile};
use crate::turn::{AfterFile, AftersFile, ArrayFile};

/// What was typed on the command line, unread. Every flag that is given wins over the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubmitFlags {
    pub name: Option<String>,
    pub nodes: Option<String>,
    /// Names of the only nodes it may use; without `nodes` all of them.
    pub named: Vec<String>,
    /// Names of nodes that it may not use; they stand for those of the file.
    pub exclude: Vec<String>,
    /// Names of nodes that it should use; they stand for those of the file.
    pub prefer: Vec<String>,
    /// Nobody else on its nodes.
    pub exclusive: bool,
    /// Total, `[MODEL[|MODEL]:]NUMBER`, whether or not `nodes` is given (in a file it is per node then); or a part of
    /// one for each rank, `0.25`.
    pub gpus: Option<String>,
    /// A MIG profile for each rank.
    pub mig: Option<String>,
    pub gpus_per_node: Option<String>,
    pub ranks: Option<String>,
    pub ranks_per_node: Option<String>,
    /// Per node when `nodes` is given, otherwise total, as in a file.
    pub cpus: Option<String>,
    pub memory: Option<String>,
    /// `NAME=AMOUNT`, as `cpus`.
    pub resources: Vec<String>,
    pub time_limit: Option<String>,
    pub queue: Option<String>,
    pub priority: Option<String>,
    pub class: Option<String>,
    /// It waits until it is released.
    pub hold: bool,
    /// `JOB[:END]` each; together they stand for those of the file.
    pub after: Vec<String>,
    /// A time with its offset from UTC, or `+SPAN` from the submission.
    pub begin: Option<String>,
    /// As `begin`.
    pub deadline: Option<String>,
    /// `SIZE[%MAX_RUNNING]`.
    pub array: Option<String>,
    pub preempt: Option<String>,
    /// It may be moved to open a place for another job.
    pub may_move: bool,
    /// Nodes that may be taken back will do.
    pub spot: bool,
    /// `LEVEL[:required|preferred][@WAIT]`.
    pub topology: Option<String>,
    /// `RANKS@LEVEL` each; together they stand for those of the file.
    pub segments: Vec<String>,
    /// `RANKS@LEVEL` each; together they stand for those of the file.
    pub spread: Vec<String>,
    /// `XxYxZ`.
    pub slice: Option<String>,
    /// `AXIS=DEGREE`, separated by commas.
    pub parallel: Option<String>,
    /// `NAME=VALUE`.
    pub env: Vec<String>,
    /// `NAME` or `NAME=FILE`.
    pub secrets: Vec<String>,
    pub key: Option<String>,
    /// Restarts.
    pub retry: Option<String>,
    /// `SIGNAL[@TIME]`; a plain number of TIME is seconds, as in Slurm.
    pub signal: Option<String>,
    pub grace: Option<String>,
    pub launch: Option<String>,
    pub workdir: Option<String>,
    pub terminal: bool,
    pub notify: Option<String>,
    pub checkpoint_dir: Option<String>,
    /// Program and arguments; empty when the file says what runs.
    pub argv: Vec<String>,
}

impl SubmitFlags {
    /// A job that flags alone describe.
    ///
    /// # Errors
    /// When a flag has a value that it does not take; the message begins with the flag.
    pub fn into_job_file(self) -> Result<JobFile, SpecError> {
        self.over(JobFile::default())
    }

    /// Puts the flags on top of a file.
    ///
    /// # Errors
    /// When a flag has a value that it does not take; the message begins with the flag.
    pub fn over(self, mut file: JobFile) -> Result<JobFile, SpecError> {
        set("--name", self.name.as_deref(), &mut file.name)?;
        set("--queue", self.queue.as_deref(), &mut file.queue)?;
        set("--priority", self.priority.as_deref(), &mut file.priority)?;
        set("--ranks", self.ranks.as_deref(), &mut file.ranks)?;
        set("--ranks-per-node", self.ranks_per_node.as_deref(), &mut file.ranks_per_node)?;
        set("--launch", self.launch.as_deref(), &mut file.launch)?;
        set("--time", self.time_limit.as_deref(), &mut file.time_limit)?;
        set("--workdir", self.workdir.as_deref(), &mut file.workdir)?;
        set("--grace", self.grace.as_deref(), &mut file.grace)?;
        set("--notify", self.notify.as_deref(), &mut file.notify)?;
        set("--key", self.key.as_deref(), &mut file.key)?;
        self.set_turn(&mut file)?;
        self.set_resources(&mut file)?;
        self.set_lists(&mut file)?;
        self.set_topology(&mut file)?;
        if self.terminal {
            file.terminal = Some(At::new(true, Place::Flag("--pty")));
        }
        if self.exclusive {
            file.exclusive = Some(At::new(true, Place::Flag("--exclusive")));
        }
        if let Some(text) = &self.parallel {
            let axes = ParallelismFile::from_short(text, Place::Flag("--parallel"));
            file.parallelism = Some(axes.map_err(|message| refuse("--parallel", &message))?);
        }
        if let Some(dir) = &self.checkpoint_dir {
            let checkpoint = file.checkpoint.get_or_insert_with(CheckpointFile::default);
            set("--checkpoint-dir", Some(dir), &mut checkpoint.dir)?;
        }
        if let Some(signal) = &self.signal {
            let checkpoint = file.checkpoint.get_or_insert_with(CheckpointFile::default);
            let (signal, lead) = read_signal(signal)?;
            checkpoint.signal = Some(signal);
            checkpoint.grace = lead.or(checkpoint.grace);
        }
        if let Some(retry) = &self.retry {
            set("--retry", Some(retry), &mut file.retry.get_or_insert_with(RetryFile::default).max)?;
        }
        if !self.argv.is_empty() {
            let words = self.argv.iter().map(|word| read(COMMAND, word)).collect::<Result<Vec<_>, _>>()?;
            file.command = Some(words);
            file.run = None;
        }
        Ok(file)
    }

    /// When the job goes, and when it makes way.
    fn set_turn(&self, file: &mut JobFile) -> Result<(), SpecError> {
        set("--class", self.class.as_deref(), &mut file.class)?;
        set("--begin", self.begin.as_deref(), &mut file.begin)?;
        set("--deadline", self.deadline.as_deref(), &mut file.deadline)?;
        set("--preempt", self.preempt.as_deref(), &mut file.preempt)?;
        if self.hold {
            file.hold = Some(At::new(true, Place::Flag("--hold")));
        }
        if self.may_move {
            file.may_move = Some(At::new(true, Place::Flag("--may-move")));
        }
        if self.spot {
            file.spot = Some(At::new(true, Place::Flag("--spot")));
        }
        let after = read_all("--after", &self.after, AfterFile::from_short)?;
        if !after.is_empty() {
            file.after = AftersFile(after);
        }
        if let Some(text) = &self.array {
            let array = ArrayFile::from_short(text, Place::Flag("--array"));
            file.array = Some(array.map_err(|message| refuse("--array", &message))?);
        }
        Ok(())
    }

    /// `--topology` is about the whole job, and leaves what the file says of parts of it.
    fn set_topology(&self, file: &mut JobFile) -> Result<(), SpecError> {
        if let Some(text) = &self.topology {
            let short = TopologyFile::from_short(text, Place::Flag("--topology"));
            let TopologyFile { level, mode, wait, .. } =
                short.map_err(|message| refuse("--topology", &message))?;
            let parts = file.topology.take().unwrap_or_default();
            file.topology = Some(TopologyFile { level, mode, wait, ..parts });
        }
        let segments = read_all("--segment", &self.segments, SegmentFile::from_short)?;
        if !segments.is_empty() {
            file.topology.get_or_insert_default().segments = segments;
        }
        let spread = read_all("--spread", &self.spread, SpreadFile::from_short)?;
        if !spread.is_empty() {
            file.topology.get_or_insert_default().spread = spread;
        }
        if let Some(slice) = &self.slice {
            file.topology.get_or_insert_default().slice = Some(read("--slice", slice)?);
        }
        Ok(())
    }

    fn set_lists(&self, file: &mut JobFile) -> Result<(), SpecError> {
        let mut env: BTreeMap<At<VariableName>, At<String>> = BTreeMap::new();
        for text in &self.env {
            let Some((name, value)) = text.split_once('=') else {
                return Err(refuse(
                    "--env",
                    &format!("{text:?} has no '='\nNAME=VALUE; a secret goes into --secret NAME"),
                ));
            };
            env.insert(read("--env", name)?, read("--env", value)?);
        }
        // A map keeps the old key, and with it the old place, when a value is replaced.
        file.env.retain(|name, _| !env.contains_key(name));
        file.env.append(&mut env);
        for text in &self.secrets {
            let (name, path) =
                text.split_once('=').map_or((text.as_str(), None), |(name, path)| (name, Some(path)));
            let name = read("--secret", name)?;
            let secret = SecretFile { file: path.map(|path| read("--secret", path)).transpose()? };
            file.secrets.0.remove(&name);
            file.secrets.0.insert(name, secret);
        }
        Ok(())
    }
}

/// The place of the words after `--`.
const COMMAND: &str = "command";

fn read<T: Scalar>(flag: &'static str, text: &str) -> Result<At<T>, SpecError> {
    T::read_at(text, Place::Flag(flag)).map_err(|message| refuse(flag, &message))
}

fn read_all<T>(
    flag: &'static str,
    texts: &[String],
    read: fn(&str, Place) -> Result<T, String>,
) -> Result<Vec<T>, SpecError> {
    let one = |text: &String| read(text, Place::Flag(flag)).map_err(|message| refuse(flag, &message));
    texts.iter().map(one).collect()
}

fn set<T: Scalar>(
    flag: &'static str,
    text: Option<&str>,
    field: &mut Option<At<T>>,
) -> Result<(), SpecError> {
    if let Some(text) = text {
        *field = Some(read(flag, text)?);
    }
    Ok(())
}

/// What is wrong stands on the first line of the message, what is accepted on the second.
fn refuse(flag: &'static str, message: &str) -> SpecError {
    let (what, accepted) = message.split_once('\n').unwrap_or((message, ""));
    let accepted = if accepted.is_empty() { String::new() } else { format!("expected {accepted}") };
    Source::default().error(Place::Flag(flag), what, accepted)
}

/// `USR1`, `USR1@120` or `USR1@2m`.
fn read_signal(text: &str) -> Result<(At<SignalNumber>, Option<At<Span>>), SpecError> {
    let Some((signal, lead)) = text.split_once('@') else { return Ok((read("--signal", text)?, None)) };
    let lead = if lead.bytes().all(|c| c.is_ascii_digit()) { format!("{lead}s") } else { lead.to_owned() };
    Ok((read("--signal", signal)?, Some(read("--signal", &lead)?)))
}
