//! The flags of a submission, and how they are put on top of a job file.

use std::collections::BTreeMap;

use phalanx_model::NodeName;

use crate::error::{Place, Source, SpecError};
use crate::job::{CheckpointFile, JobFile, NodesFile, ResourcesFile, RetryFile, SecretFile};
use crate::place::{At, Scalar};
use crate::scalar::{Count, Gpus, SignalNumber, Span, VariableName};
use crate::topology::{SegmentFile, TopologyFile};

/// What was typed on the command line, unread. Every flag that is given wins over the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubmitFlags {
    pub name: Option<String>,
    pub nodes: Option<String>,
    /// Names of the only nodes it may use; without `nodes` all of them.
    pub named: Vec<String>,
    /// Total, `[MODEL:]NUMBER`, whether or not `nodes` is given (in a file it is per node then).
    pub gpus: Option<String>,
    pub gpus_per_node: Option<String>,
    pub ranks: Option<String>,
    pub ranks_per_node: Option<String>,
    /// Per node when `nodes` is given, otherwise total, as in a file.
    pub cpus: Option<String>,
    pub memory: Option<String>,
    pub time_limit: Option<String>,
    pub queue: Option<String>,
    pub priority: Option<String>,
    /// `LEVEL[:required|preferred][@WAIT]`.
    pub topology: Option<String>,
    /// `RANKS@LEVEL` each; together they stand for those of the file.
    pub segments: Vec<String>,
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
        self.set_resources(&mut file)?;
        self.set_lists(&mut file)?;
        self.set_topology(&mut file)?;
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

    fn set_resources(&self, file: &mut JobFile) -> Result<(), SpecError> {
        let total_before = file.nodes.is_none();
        self.set_nodes(file)?;
        let mut resources = file.resources.clone().unwrap_or_default();
        set("--cpus", self.cpus.as_deref(), &mut resources.cpus)?;
        set("--memory", self.memory.as_deref(), &mut resources.memory)?;
        let total = self.gpus.as_deref().map(|text| read::<Gpus>("--gpus", text)).transpose()?;
        let per_node =
            self.gpus_per_node.as_deref().map(|text| read::<Gpus>("--gpus-per-node", text)).transpose()?;
        match (total, per_node) {
            (None, None) => {}
            (Some(total), None) => {
                resources.gpus = Some(match &file.node_count() {
                    Some(nodes) => spread(&total, nodes)?,
                    None => total,
                });
            }
            (None, Some(per_node)) => {
                // As in Slurm, a job of which only one node is described is one node.
                file.nodes.get_or_insert(NodesFile::any(At::new(Count(1), per_node.place)));
                resources.gpus = Some(per_node);
            }
            (Some(total), Some(per_node)) => {
                let count = nodes_for(&total, &per_node, file.node_count())?;
                file.nodes.get_or_insert(NodesFile::any(count)).count = count;
                let model = per_node.value.model.clone().or_else(|| total.value.model.clone());
                resources.gpus = Some(At::new(Gpus { model, count: per_node.value.count }, per_node.place));
            }
        }
        if let Some(nodes) = &file.node_count()
            && total_before
            && nodes.value.0 > 1
        {
            self.refuse_new_meaning(nodes, file)?;
        }
        if resources != ResourcesFile::default() {
            file.resources = Some(resources);
        }
        Ok(())
    }

    fn set_nodes(&self, file: &mut JobFile) -> Result<(), SpecError> {
        let named = self.named.iter().map(|name| read::<NodeName>("--node", name));
        if let Some(nodes) = NodesFile::all(named.collect::<Result<_, _>>()?) {
            file.nodes = Some(nodes);
        }
        let mut count = None;
        set("--nodes", self.nodes.as_deref(), &mut count)?;
        if let Some(count) = count {
            file.nodes.get_or_insert(NodesFile::any(count)).count = count;
        }
        Ok(())
    }

    /// `--topology` is about the whole job, and leaves the file's segments as they are.
    fn set_topology(&self, file: &mut JobFile) -> Result<(), SpecError> {
        if let Some(text) = &self.topology {
            let short = TopologyFile::from_short(text, Place::Flag("--topology"));
            let short = short.map_err(|message| refuse("--topology", &message))?;
            let segments = file.topology.take().unwrap_or_default().segments;
            file.topology = Some(TopologyFile { segments, ..short });
        }
        let read = |text: &String| {
            let segment = SegmentFile::from_short(text, Place::Flag("--segment"));
            segment.map_err(|message| refuse("--segment", &message))
        };
        let segments: Vec<SegmentFile> = self.segments.iter().map(read).collect::<Result<_, _>>()?;
        if !segments.is_empty() {
            file.topology.get_or_insert_default().segments = segments;
        }
        Ok(())
    }

    /// A file without `nodes` gives totals. Flags that say `nodes` would turn those into amounts per node.
    fn refuse_new_meaning(&self, nodes: &At<Count>, file: &JobFile) -> Result<(), SpecError> {
        let Some(total) = &file.resources else { return Ok(()) };
        let gpus =
            if self.gpus.is_none() && self.gpus_per_node.is_none() { total.gpus.as_ref() } else { None };
        let kept = [
            (gpus.map(|at| at.place), "gpus", "--gpus or --gpus-per-node"),
            (total.cpus.filter(|_| self.cpus.is_none()).map(|at| at.place), "cpus", "--cpus"),
            (total.memory.filter(|_| self.memory.is_none()).map(|at| at.place), "memory", "--memory"),
        ];
        let Some((place, field, flag)) =
            kept.into_iter().find_map(|(at, field, flag)| Some((at?, field, flag)))
        else {
            return Ok(());
        };
        let what =
            format!("would turn `{field}` of {} from a total into an amount per node", file.source.name());
        let error = file.source.error(nodes.place, what, format!("say `nodes` in the file, or {flag} too"));
        Err(error.also(&file.source, place, "a total, as the file says no `nodes`"))
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

/// `--gpus` is a total, and a file says GPUs per node where it says nodes.
fn spread(total: &At<Gpus>, nodes: &At<Count>) -> Result<At<Gpus>, SpecError> {
    let (count, nodes) = (total.value.count, nodes.value.0);
    if !count.is_multiple_of(nodes) {
        let multiple = count.div_ceil(nodes).saturating_mul(nodes);
        let what = format!("{count} GPUs cannot be divided evenly among {nodes} nodes");
        let accepted =
            format!("a multiple of {nodes}, such as {multiple}; --gpus is the total, --gpus-per-node is not");
        return Err(refuse("--gpus", &format!("{what}\n{accepted}")));
    }
    Ok(At::new(Gpus { model: total.value.model.clone(), count: count / nodes }, total.place))
}

/// The number of nodes that a total and a number per node mean.
fn nodes_for(total: &At<Gpus>, per_node: &At<Gpus>, said: Option<At<Count>>) -> Result<At<Count>, SpecError> {
    let (all, each) = (total.value.count, per_node.value.count);
    if let (Some(a), Some(b)) = (&total.value.model, &per_node.value.model)
        && a != b
    {
        return Err(refuse(
            "--gpus",
            &format!("asks for {a}, and --gpus-per-node for {b}\none model for the whole job"),
        ));
    }
    if !all.is_multiple_of(each) {
        let what = format!("{all} GPUs in total are no whole number of nodes with {each} each");
        let multiple = all.div_ceil(each).saturating_mul(each);
        return Err(refuse("--gpus", &format!("{what}\na multiple of {each}, such as {multiple}")));
    }
    match said {
        Some(nodes) if nodes.value.0 != all / each => {
            let what = format!(
                "{all} GPUs in total, and {} nodes with {each} each are {}",
                nodes.value.0,
                u64::from(nodes.value.0) * u64::from(each)
            );
            Err(refuse(
                "--gpus",
                &format!("{what}\none of --gpus, --gpus-per-node and --nodes to be left out"),
            ))
        }
        Some(nodes) => Ok(nodes),
        None => Ok(At::new(Count(all / each), total.place)),
    }
}

/// `USR1`, `USR1@120` or `USR1@2m`.
fn read_signal(text: &str) -> Result<(At<SignalNumber>, Option<At<Span>>), SpecError> {
    let Some((signal, lead)) = text.split_once('@') else { return Ok((read("--signal", text)?, None)) };
    let lead = if lead.bytes().all(|c| c.is_ascii_digit()) { format!("{lead}s") } else { lead.to_owned() };
    Ok((read("--signal", signal)?, Some(read("--signal", &lead)?)))
}
