//! The queue file: how a cluster is shared.

mod amounts;
mod budget;
mod defragmentation;
mod idle;
mod migration;
mod order;
pub(crate) mod pools;
mod preset;
mod scalar;
mod tree;
mod written;

use std::collections::BTreeMap;

use phalanx_model::{
    Access, Class, ClassName, LevelName, Queue, QueueName, Reclaim, Settings, ShapeQuota, Spares,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Place, Source, SpecError, listed, nearest};
use crate::gpus::ModelName;
use crate::place::At;
use crate::scalar::{Count, Span, TimeLimit, Wait};
use crate::yaml;

pub use amounts::AmountsFile;
pub use budget::{BudgetFile, Money, Per, Then};
pub use defragmentation::{DefragmentationFile, WhenToMove};
pub use idle::{IdleFile, IdleThenWord, WhenIdle};
pub use migration::{MigrationFile, When};
pub use order::{GpuHours, OrderWord};
pub use pools::{PoolFile, QueueNodesFile, label};
pub use preset::Preset;
pub use scalar::{Account, Depth, Percent, SpanFromZero, Weight, Worth};

/// Most queues in one file.
pub const QUEUES_MAX: usize = 10_000;
/// Most queues above each other.
pub const DEPTH_MAX: usize = 8;
/// Most shapes that one queue is guaranteed.
const SHAPES_MAX: usize = 64;
/// Most classes.
const CLASSES_MAX: usize = 64;
/// Most models that have a worth.
const WORTHS_MAX: usize = 64;
/// Running time of a class that does not say how long its gangs are left alone: that of the classes that are
/// built in.
const MIN_RUN_MS: u64 = 10 * 60 * 1_000;

/// How a cluster is shared: queues with what is theirs, classes of priority, and what holds for all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Phalanx queues")]
pub struct QueueFile {
    /// The queues, children inside their parents or beside them with `parent`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueEntry>,
    /// What the cluster goes by when it is full: `throughput`, `fair` or `first-come`. Default: throughput.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<At<Preset>>,
    /// Classes of priority; they stand for those that are built in: serving, training, research and opportunistic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<Vec<ClassFile>>,
    /// Class of jobs that name none. Default: training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_class: Option<At<ClassName>>,
    /// Past use counts half after this time. Default: 7d.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_life: Option<At<Span>>,
    /// Waiting so long counts as much as one more of priority; 0: waiting counts nothing. Default: 1h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ageing: Option<At<SpanFromZero>>,
    /// Jobs at the head of the line that hold a reservation, behind which smaller ones are filled in: `1` is EASY
    /// back-fill, `all` conservative back-fill. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<At<Depth>>,
    /// How long GPUs may stay idle for a job whose start is not known: until their idle time is this part of its waiting
    /// time, both in GPU time. 0%: never. Default: 10%.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_idle: Option<At<Percent>>,
    /// How long jobs hold out for a nearer place than one that is free, where neither they nor their queues say: `10m`, or
    /// `priced` for as long as that is worth. Default: priced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<At<Wait>>,
    /// Up to where capacity is taken back from queues that use more than is theirs: `fair_share`, their due share, or
    /// `guarantee`, what they are guaranteed. Default: fair_share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<At<Reclaim>>,
    /// What one GPU counts whose model contains the text, ignoring case: `{A100: 0.4}`. Default: 1.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub worth: BTreeMap<At<ModelName>, At<Worth>>,
    /// How far an operator may raise a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boost: Option<BoostFile>,
    /// Nodes that stay free for jobs whose nodes or GPUs fail. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spares: Option<SparesFile>,
    /// When jobs that save checkpoints move off degraded nodes and GPUs. Default: when that costs less than staying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration: Option<MigrationFile>,
    /// When jobs that may move do so to open places for others. Default: when an operator asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defragmentation: Option<DefragmentationFile>,
    /// The text that the places point into.
    #[serde(skip)]
    #[schemars(skip)]
    pub source: Source,
}

/// One queue. Jobs wait in queues without children.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueEntry {
    /// Name; no other queue has it.
    pub name: At<QueueName>,
    /// Queue that it stands below, where it is not written inside of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<At<QueueName>>,
    /// What is its own: lent to others while idle, and taken back when needed. Default: nothing, or what its children
    /// are guaranteed together.
    #[serde(default, skip_serializing_if = "AmountsFile::is_empty")]
    pub guaranteed: AmountsFile,
    /// The most that it may use, what is borrowed included. Default: all there is.
    #[serde(default, skip_serializing_if = "AmountsFile::is_empty")]
    pub limit: AmountsFile,
    /// The most of what is guaranteed that others may borrow while it is idle. Default: all of it.
    #[serde(default, skip_serializing_if = "AmountsFile::is_empty")]
    pub lend: AmountsFile,
    /// Its part of what is left above the guarantees, against its siblings. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<At<Weight>>,
    /// Guarantees that are places: so many domains of a level, with so many whole nodes in each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<ShapeFile>,
    /// Jobs that wait, at most; of an array its tasks. Default: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pending: Option<At<u32>>,
    /// Jobs that hold capacity at once, at most; of an array its tasks. Default: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<At<u32>>,
    /// Whole GPUs of one job, at most; of an array of one task. Default: any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gang_gpus: Option<At<Count>>,
    /// Longest time limit, which jobs without one are given. A plain number is minutes, as in Slurm. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_time: Option<At<TimeLimit>>,
    /// How long its jobs hold out for a nearer place, where they say nothing: `10m`, or `priced` for as long as
    /// that is worth. Default: as the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<At<Wait>>,
    /// Who of one class goes first in it: `priority`, by priority and age, or `least_served`, whoever had less GPU time so
    /// far, which may then preempt who had more. Default: priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<At<OrderWord>>,
    /// GPU-hours at which a job rises by a level each, with `order: least_served`; from the least on. Default: from 0.25 to
    /// 4096, each the double of the one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<Vec<At<GpuHours>>>,
    /// The nodes that its jobs may use. Default: all of the queue above it, or of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<QueueNodesFile>,
    /// What its jobs, and those of the queues below it, may cost in a period. Default: anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetFile>,
    /// What happens to its jobs, and those of the queues below it, that do not use their GPUs. Default: as the queue above
    /// it, or their owners are notified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdleFile>,
    /// Accounts that may submit to it, by name or number; `'*'` is every account. It counts where one daemon serves
    /// several users. Default: as the queue above it, or every account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<At<Account>>,
    /// Groups whose accounts may do so too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<At<Account>>,
    /// Highest `priority` of jobs of these accounts. Default: as the queue above it, or 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority: Option<At<i32>>,
    /// Queues below it, among which it is divided again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<Self>,
}

/// A guarantee that is a place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShapeFile {
    /// Level of the domains, e.g. `leaf`.
    pub level: At<LevelName>,
    /// Number of domains. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<At<Count>>,
    /// Whole nodes in each.
    pub nodes: At<Count>,
}

/// A class of priority.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassFile {
    /// Name that jobs say.
    pub name: At<ClassName>,
    /// Higher goes first, and may preempt lower; no two classes have the same.
    pub rank: At<i32>,
    /// Whether its jobs may be preempted. Those that may not borrow nothing that is guaranteed to others. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<At<bool>>,
    /// Whether its jobs preempt others. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempts: Option<At<bool>>,
    /// Running time after a start within which its jobs are not preempted. Default: 10m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_run: Option<At<SpanFromZero>>,
    /// Longest time that jobs which make way for it have to save their work and end. Default: as long as they say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_max: Option<At<SpanFromZero>>,
    /// Accounts that may submit jobs of this class, by name or number; `'*'` is every account. It counts where one daemon serves
    /// several users. Default: every account if the class preempts no other, else none but operators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<At<Account>>,
    /// Groups whose accounts may do so too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<At<Account>>,
    /// Highest `priority` of jobs of these accounts. Default: that of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority: Option<At<i32>>,
}

/// How far an operator may raise a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BoostFile {
    /// Priority that is added, at most. Default: 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<At<u32>>,
    /// Time after which it is gone, at most. Default: 7d.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest: Option<At<Span>>,
}

/// Spare nodes: they stay free for jobs whose nodes or GPUs fail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SparesFile {
    /// Whole nodes in each domain of the level.
    pub nodes: At<Count>,
    /// Level of the domains, e.g. `rack`. Default: the whole cluster is one domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<At<LevelName>>,
    /// Whether jobs that take spot nodes may use spare nodes until these are needed. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<At<bool>>,
}

impl SparesFile {
    fn spares(&self) -> Spares {
        let (level, is_filled) = (&self.level, self.fill.as_ref().is_some_and(|fill| fill.value));
        Spares {
            level: level.as_ref().map(|level| level.value.clone()),
            nodes: self.nodes.value.0,
            is_filled,
        }
    }

    fn of(spares: &Spares) -> Self {
        Self {
            nodes: Count(spares.nodes).into(),
            level: spares.level.clone().map(At::from),
            fill: spares.is_filled.then(|| true.into()),
        }
    }
}

/// What a queue file says, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharePolicy {
    pub settings: Settings,
    /// Parents before their children, then by name.
    pub queues: Vec<Queue>,
}

impl Default for SharePolicy {
    /// That of a cluster of which nothing is said.
    fn default() -> Self {
        Self { settings: Preset::default().settings(), queues: Vec::new() }
    }
}

yaml::define_file!(QueueFile);

impl QueueFile {
    /// Checks what concerns more than one field, and fills in what is not said.
    ///
    /// # Errors
    /// When two queues or classes have one name, a parent or class is not known, queues stand below each other in a
    /// ring, or more is guaranteed than the parent or the limit has.
    pub fn into_policy(self) -> Result<SharePolicy, SpecError> {
        let (settings, queues) = (self.settings()?, self.tree()?);
        self.check_spared_classes(&self.queues, &settings)?;
        Ok(SharePolicy { settings, queues })
    }

    fn settings(&self) -> Result<Settings, SpecError> {
        let mut settings = self.preset.map_or_else(Preset::default, |preset| preset.value).settings();
        if let Some(classes) = &self.classes {
            settings.classes = self.classes(classes)?;
        }
        if let Some(name) = &self.default_class {
            settings.default_class = name.value.clone();
        }
        self.check_default_class(&settings)?;
        if let Some(half_life) = self.half_life {
            settings.half_life_ms = half_life.value.millis();
        }
        if let Some(ageing) = self.ageing {
            settings.ageing_ms = ageing.value.millis();
        }
        if let Some(depth) = self.reservations {
            settings.reservation_depth = depth.value.0;
        }
        if let Some(part) = self.hold_idle {
            settings.hold_idle_max_milli = part.value.0;
        }
        if let Some(wait) = self.wait {
            settings.wait = wait.value.into();
        }
        if let Some(reclaim) = self.reclaim {
            settings.reclaim = reclaim.value;
        }
        settings.worth = self.worth()?;
        let boost = self.boost.clone().unwrap_or_default();
        if let Some(max) = boost.max {
            settings.boost_max = i32::try_from(max.value).unwrap_or(i32::MAX);
        }
        if let Some(longest) = boost.longest {
            settings.boost_max_ms = longest.value.millis();
        }
        settings.spares = self.spares.as_ref().map(SparesFile::spares);
        settings.migration = self.migration.as_ref().map_or(settings.migration, MigrationFile::migration);
        settings.defragmentation = self
            .defragmentation
            .as_ref()
            .map_or(settings.defragmentation, DefragmentationFile::defragmentation);
        Ok(settings)
    }

    fn classes(&self, classes: &[ClassFile]) -> Result<Vec<Class>, SpecError> {
        if classes.is_empty() {
            let accepted = "leave it out for those that are built in, or name at least one";
            return Err(self.source.error(Place::Nowhere, "`classes` is empty", accepted));
        }
        if let Some(beyond) = classes.get(CLASSES_MAX) {
            let what = format!("{} classes", classes.len());
            return Err(self.source.error(beyond.name.place, what, format!("at most {CLASSES_MAX}")));
        }
        let (mut names, mut ranks) = (BTreeMap::new(), BTreeMap::new());
        for ClassFile { name, rank, .. } in classes {
            if let Some(first) = names.insert(&name.value, name.place) {
                let what = format!("the class {} is given twice", name.value);
                let error = self.source.error(name.place, what, "give every class once");
                return Err(error.also(&self.source, first, "the first"));
            }
            if let Some((other, first)) = ranks.insert(rank.value, (&name.value, rank.place)) {
                let what = format!("{} and {other} have the same rank", name.value);
                let error = self.source.error(rank.place, what, "give every class a rank of its own");
                return Err(error.also(&self.source, first, "the first"));
            }
        }
        Ok(classes.iter().map(ClassFile::class).collect())
    }

    /// Jobs that name no class have one.
    fn check_default_class(&self, settings: &Settings) -> Result<(), SpecError> {
        if settings.class(None).is_some() {
            return Ok(());
        }
        let known: Vec<&str> = settings.classes.iter().map(|class| class.name.as_str()).collect();
        let name = settings.default_class.as_str();
        let (place, what) = match &self.default_class {
            Some(said) => (said.place, format!("no class is named {name:?}")),
            None => {
                let first = self.classes.iter().flatten().next();
                let place = first.map_or(Place::Nowhere, |class| class.name.place);
                (place, format!("no class is named {name:?}, which jobs have that name none"))
            }
        };
        let accepted = match (nearest(name, &known), &self.default_class) {
            (Some(meant), _) => format!("did you mean {meant:?}?"),
            (None, Some(_)) => String::new(),
            (None, None) => "add such a class, or say `default_class`".to_owned(),
        };
        Err(self.source.error(place, what, accepted).note(format!("the classes are {}", listed(&known))))
    }

    /// Of a device that several texts would mean, the first of these in order counts: so none may hide another.
    fn worth(&self) -> Result<BTreeMap<String, u64>, SpecError> {
        if let Some((beyond, _)) = self.worth.iter().nth(WORTHS_MAX) {
            let what = format!("{} models", self.worth.len());
            return Err(self.source.error(beyond.place, what, format!("at most {WORTHS_MAX}")));
        }
        let mut before: Vec<&At<ModelName>> = Vec::with_capacity(self.worth.len());
        for model in self.worth.keys() {
            let text = &model.value.0;
            let hides = before.iter().find(|other| phalanx_model::queue::contains(text, &other.value.0));
            if let Some(other) = hides {
                let what = format!("every model that contains {text} contains {} too", other.value.0);
                let error = self.source.error(model.place, what, "give one of them");
                return Err(error.also(&self.source, other.place, "counts for these"));
            }
            before.push(model);
        }
        Ok(self.worth.iter().map(|(model, worth)| (model.value.0.clone(), worth.value.0)).collect())
    }
}

impl ClassFile {
    fn class(&self) -> Class {
        Class {
            name: self.name.value.clone(),
            rank: self.rank.value,
            is_preemptible: self.preemptible.is_none_or(|said| said.value),
            may_preempt: self.preempts.is_none_or(|said| said.value),
            min_run_ms: self.min_run.map_or(MIN_RUN_MS, |span| span.value.millis()),
            grace_max_ms: self.grace_max.map(|span| span.value.millis()),
            access: access(&self.users, &self.groups, self.max_priority),
        }
    }
}

/// Who may use a queue or a class.
fn access(users: &[At<Account>], groups: &[At<Account>], max_priority: Option<At<i32>>) -> Access {
    let names = |accounts: &[At<Account>]| accounts.iter().map(|account| account.value.0.clone()).collect();
    Access {
        users: names(users),
        groups: names(groups),
        priority_max: max_priority.map(|priority| priority.value),
    }
}

impl ShapeFile {
    fn quota(&self) -> ShapeQuota {
        ShapeQuota {
            level: self.level.value.clone(),
            count: self.count.map_or(1, |count| count.value.0),
            nodes: self.nodes.value.0,
        }
    }
}
