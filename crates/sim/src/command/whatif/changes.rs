//! What was typed, as facts that people tell an engine.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use clap::{Args, ValueHint};
use phalanx_model::{
    Admin, DeviceMask, DomainName, ForeignUse, Input as Fact, JobId, Kept, Node, NodeName, Owner, Queue,
    Settings, Snapshot, SyncKind,
};
use phalanx_spec::{FILE_BYTES_MAX, JobFile, QueueFile, SharePolicy, SubmitContext};
use serde_json::Value;

use super::super::{CommandError, Host};
use crate::report::Input;

/// Nodes that are added, at most.
const ADDED_MAX: u32 = 100_000;
/// Names that an error lists.
const LISTED_MAX: usize = 12;
/// Who submits the jobs: nobody whose past is known.
const NOBODY: u32 = u32::MAX;

/// The changes of one command line, in the order in which they are made.
#[derive(Debug, Args)]
#[command(next_help_heading = "Changes, all at once")]
pub(super) struct Wishes {
    /// Apply another queue file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    queues: Option<String>,
    /// Set a value of the queue file: queues.research.weight=2, queues.research.guaranteed.gpus=8, half_life=3d
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<Setting>,
    /// Add nodes that are like most nodes of this domain: 16:leaf-9
    #[arg(long, value_name = "N:DOMAIN")]
    add_nodes: Vec<Addition>,
    /// Drain nodes: nothing new starts there, and running jobs move; also A,B
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    drain: Vec<String>,
    /// Submit this job
    #[arg(long = "job", value_name = "FILE", value_hint = ValueHint::FilePath)]
    job_files: Vec<String>,
}

/// `queues.research.weight=2`.
#[derive(Clone, Debug)]
struct Setting {
    path: String,
    value: String,
}

impl FromStr for Setting {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shape = "expected PATH=VALUE, as in queues.research.weight=2 or half_life=3d";
        let (path, value) = text.split_once('=').ok_or(shape)?;
        Ok(Self { path: path.to_owned(), value: value.to_owned() })
    }
}

/// `16:leaf-9`.
#[derive(Clone, Debug)]
struct Addition {
    count: u32,
    domain: String,
}

impl FromStr for Addition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shape = || "expected N:DOMAIN, as in 16:leaf-9".to_owned();
        let (count, domain) = text.split_once(':').ok_or_else(shape)?;
        let count = count.parse().map_err(|_| shape())?;
        if !(1..=ADDED_MAX).contains(&count) {
            return Err(format!("expected from 1 to {ADDED_MAX} nodes"));
        }
        Ok(Self { count, domain: domain.to_owned() })
    }
}

/// All of them, and each in one sentence.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) facts: Vec<Fact>,
    pub(super) told: Vec<String>,
}

/// What a change may name.
struct Known<'a> {
    snapshot: &'a Snapshot,
    nodes: BTreeMap<NodeName, Node>,
    policy: SharePolicy,
    is_policy_new: bool,
    next_job: u64,
}

impl Changes {
    /// # Errors
    /// What is wrong with which.
    pub(super) fn read(
        snapshot: &Snapshot,
        wishes: &Wishes,
        inputs: &mut Vec<Input>,
        host: &mut dyn Host,
    ) -> Result<Self, CommandError> {
        let mut known = Known::of(snapshot);
        let mut changes = Self::default();
        let mut text = |file: &str| {
            let bytes = host.read(file, FILE_BYTES_MAX as u64 + 1).map_err(CommandError::Input)?;
            inputs.push(Input::of(file, &bytes));
            String::from_utf8(bytes).map_err(|_| CommandError::Input(format!("{file} is no text")))
        };
        let Self { facts, told } = &mut changes;
        if let Some(file) = &wishes.queues {
            known.policy = policy(&text(file)?, file)?;
            known.is_policy_new = true;
            told.push(format!("the queues are those of {file}"));
        }
        for setting in &wishes.set {
            told.push(known.set(setting)?);
        }
        for addition in &wishes.add_nodes {
            told.push(known.add(addition, facts)?);
        }
        if !wishes.drain.is_empty() {
            told.push(known.drain(&wishes.drain, facts)?);
        }
        for file in &wishes.job_files {
            told.push(known.submit(&text(file)?, file, facts)?);
        }
        let mut facts = known.policy_facts();
        facts.append(&mut changes.facts);
        Ok(Self { facts, ..changes })
    }
}

impl<'a> Known<'a> {
    fn of(snapshot: &'a Snapshot) -> Self {
        let (mut settings, mut queues) = (Settings::default(), Vec::<Queue>::new());
        let (mut nodes, mut next_job) = (BTreeMap::new(), 1);
        for fact in &snapshot.facts {
            match fact {
                Fact::SettingsConfigured { settings: told } => settings = (**told).clone(),
                Fact::QueueObserved { queue } => queues.push((**queue).clone()),
                Fact::NodeObserved { node } => drop(nodes.insert(node.name.clone(), (**node).clone())),
                Fact::JobObserved { job, .. } => next_job = next_job.max(job.id.0.saturating_add(1)),
                _ => {}
            }
        }
        let policy = SharePolicy { settings, queues };
        Self { snapshot, nodes, policy, is_policy_new: false, next_job }
    }

    /// Every queue anew, where anything about them was said.
    fn policy_facts(&self) -> Vec<Fact> {
        if !self.is_policy_new {
            return Vec::new();
        }
        let SharePolicy { settings, queues } = &self.policy;
        let kind = SyncKind::Queues;
        let begin =
            [Fact::SettingsConfigured { settings: Box::new(settings.clone()) }, Fact::SyncBegin { kind }];
        let queues = queues.iter().map(|queue| Fact::QueueObserved { queue: Box::new(queue.clone()) });
        begin.into_iter().chain(queues).chain([Fact::SyncEnd { kind }]).collect()
    }

    /// The queue file of the present policy with this value in it, read as every queue file is.
    fn set(&mut self, Setting { path, value }: &Setting) -> Result<String, CommandError> {
        let typed = format!("{path}={value}");
        let wrong = |why: String| CommandError::Input(format!("--set {typed}: {why}"));
        let written = serde_json::to_value(QueueFile::of_policy(&self.policy));
        let mut file = written.map_err(|error| wrong(error.to_string()))?;
        put(&mut file, path, value).map_err(wrong)?;
        let text = serde_json::to_string_pretty(&file).map_err(|error| wrong(error.to_string()))?;
        self.policy = policy(&text, &format!("--set {typed}"))?;
        self.is_policy_new = true;
        Ok(format!("{path} is {value}"))
    }

    /// Nodes like most of the nodes in the domain.
    fn add(&mut self, addition: &Addition, facts: &mut Vec<Fact>) -> Result<String, CommandError> {
        let Addition { count, ref domain } = *addition;
        let wrong = |why: String| CommandError::Input(format!("--add-nodes {count}:{domain}: {why}"));
        let template = self.like_most_in(domain).map_err(wrong)?;
        if template.torus.is_some() {
            return Err(wrong(format!("{} stands in a torus, whose places are all taken", template.name)));
        }
        let mut names = Vec::new();
        let mut number = 0_u64;
        while names.len() < count as usize {
            number += 1;
            let name = NodeName::new(format!("new-{number}")).map_err(|error| wrong(error.to_string()))?;
            if self.nodes.contains_key(&name) {
                continue;
            }
            let node = Node {
                name: name.clone(),
                admin: Admin::Open,
                foreign: DeviceMask::EMPTY,
                foreign_use: ForeignUse::default(),
                uuids: Vec::new(),
                kept: Kept::default(),
                ..template.clone()
            };
            self.nodes.insert(name.clone(), node.clone());
            facts.push(Fact::NodeObserved { node: Box::new(node) });
            names.push(name);
        }
        let (first, last) = (names.first(), names.last());
        let span = match (first, last) {
            (Some(first), Some(last)) if first != last => format!("{first} to {last}"),
            (first, _) => first.map(ToString::to_string).unwrap_or_default(),
        };
        let (nodes, verb) = if count == 1 { ("node", "is") } else { ("nodes", "are") };
        let devices = template.machine.device_count();
        Ok(format!(
            "{count} {nodes} more {verb} in {domain}: {span}, each like {} ({devices} GPUs)",
            template.name
        ))
    }

    /// A node of the kind of which the innermost domain of this name, or of this path, has most.
    fn like_most_in(&self, domain: &str) -> Result<Node, String> {
        let said: Vec<&str> = domain.split('/').collect();
        let stands_inside = |node: &&Node| {
            let path: Vec<&str> = node.path.iter().map(DomainName::as_str).collect();
            path.ends_with(&said)
        };
        let inside: Vec<&Node> = self.nodes.values().filter(stands_inside).collect();
        let paths: BTreeSet<&[DomainName]> = inside.iter().map(|node| node.path.as_slice()).collect();
        let written = |path: &[DomainName]| phalanx_model::report::show_path(path);
        if paths.len() > 1 {
            let all: Vec<String> = paths.into_iter().map(written).collect();
            return Err(format!("several domains are named so; say which: {}", listed(&all)));
        }
        let mut kinds: BTreeMap<_, Vec<&Node>> = BTreeMap::new();
        inside.iter().for_each(|node| kinds.entry(&node.machine.shape).or_default().push(node));
        let most = kinds.into_values().rev().max_by_key(Vec::len);
        if let Some(node) = most.and_then(|kind| kind.first().copied()) {
            return Ok(node.clone());
        }
        let all: BTreeSet<&[DomainName]> = self.nodes.values().map(|node| node.path.as_slice()).collect();
        let all: Vec<String> = all.into_iter().map(written).collect();
        Err(format!("no node stands right in {domain:?}; nodes stand in {}", listed(&all)))
    }

    fn drain(&self, names: &[String], facts: &mut Vec<Fact>) -> Result<String, CommandError> {
        for name in names {
            let Some((node, _)) = self.nodes.iter().find(|(node, _)| node.as_str() == name.trim()) else {
                let all: Vec<String> = self.nodes.keys().map(ToString::to_string).collect();
                let why = format!("--drain: there is no node {name:?}; there are {}", listed(&all));
                return Err(CommandError::Input(why));
            };
            facts.push(Fact::DrainRequested { node: node.clone() });
        }
        let verb = if names.len() > 1 { "are" } else { "is" };
        Ok(format!("{} {verb} drained", names.join(", ")))
    }

    fn submit(&mut self, text: &str, file: &str, facts: &mut Vec<Fact>) -> Result<String, CommandError> {
        let context = SubmitContext {
            id: JobId(self.next_job),
            owner: Owner { uid: NOBODY, gid: NOBODY, name: "what-if".to_owned() },
            submitted_at: self.snapshot.taken_at,
            default_workdir: "/".to_owned(),
        };
        let job = JobFile::from_yaml(text, file).and_then(|file| file.into_job(context));
        let job = job.map_err(|error| CommandError::Input(error.to_string()))?;
        self.next_job = self.next_job.saturating_add(1);
        let devices = job.each_gang().fold(0_u32, |sum, gang| sum.saturating_add(gang.device_count()));
        let limit = match job.policy.time_limit_ms {
            Some(ms) => phalanx_model::show::span(ms),
            None => "no time limit".to_owned(),
        };
        let told = format!(
            "{file} is submitted as job {} ({}, {devices} GPUs, queue {}, {limit})",
            job.id, job.name, job.queue
        );
        facts.push(Fact::JobSubmitted { job: Box::new(job) });
        Ok(told)
    }
}

fn policy(text: &str, name: &str) -> Result<SharePolicy, CommandError> {
    let policy = QueueFile::from_yaml(text, name).and_then(QueueFile::into_policy);
    policy.map_err(|error| CommandError::Input(error.to_string()))
}

/// Puts a value where a path of names leads; entries of lists are found by their `name`.
fn put(file: &mut Value, path: &str, value: &str) -> Result<(), String> {
    let mut words = path.split('.').peekable();
    let mut at = file;
    while let Some(word) = words.next() {
        if word.is_empty() {
            return Err("a name in its path is empty".to_owned());
        }
        if word == "queues" || word == "classes" {
            let name = words.next().ok_or_else(|| format!("which of the {word}? as in {word}.NAME.FIELD"))?;
            let mut all = Vec::new();
            names(at.get(word), &mut all);
            at = entry(at.get_mut(word), name)
                .ok_or_else(|| format!("none of the {word} is named {name:?}; there are {}", listed(&all)))?;
            if words.peek().is_none() {
                return Err(format!("what of {name}? as in {path}.weight"));
            }
            continue;
        }
        let Value::Object(fields) = at else {
            return Err(format!("{word:?} is inside of no group of values"));
        };
        if words.peek().is_none() {
            fields.insert(word.to_owned(), scalar(value));
            return Ok(());
        }
        at = fields.entry(word).or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    Err("it has no path".to_owned())
}

/// Numbers and words as YAML reads them.
fn scalar(text: &str) -> Value {
    match text {
        "true" | "false" => Value::Bool(text == "true"),
        _ => text.parse::<u64>().map_or_else(|_| Value::String(text.to_owned()), Value::from),
    }
}

/// The entry of this name in a list, or in the lists below it.
fn entry<'v>(list: Option<&'v mut Value>, name: &str) -> Option<&'v mut Value> {
    for item in list?.as_array_mut()? {
        if item.get("name").and_then(Value::as_str) == Some(name) {
            return Some(item);
        }
        if let Some(found) = entry(item.get_mut("queues"), name) {
            return Some(found);
        }
    }
    None
}

fn names(list: Option<&Value>, all: &mut Vec<String>) {
    for item in list.and_then(Value::as_array).into_iter().flatten() {
        all.extend(item.get("name").and_then(Value::as_str).map(str::to_owned));
        names(item.get("queues"), all);
    }
}

fn listed(all: &[String]) -> String {
    let more = all.len().saturating_sub(LISTED_MAX);
    match (all.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (_, 0) => all.join(", "),
        (_, more) => format!("{} and {more} more", all.get(..LISTED_MAX).unwrap_or(all).join(", ")),
    }
}
