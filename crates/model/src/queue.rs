//! How a cluster is shared: queues with guarantees and limits, priority classes, and cluster-wide settings.

mod report;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{
    Budget, ClassName, Defragmentation, DomainName, IdlePolicy, LevelName, Levels, Migration, NameError,
    Node, NodeName, NodeSet, QueueName, ResourceName, Served,
};

pub use report::{DecayedUsage, PoolReport, QueueReport, ResourceReport, ShapeReport};

/// A resource that queues share by amount.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub enum Resource {
    /// Devices of any model, in thousandths of a device, weighted by model ([`Settings::worth`]).
    Gpus,
    /// Devices whose model contains this text, ignoring case, in thousandths of a device.
    Model(String),
    /// In thousandths of a core.
    Cpus,
    /// In bytes.
    Memory,
    /// In the units of the cluster file.
    Named(ResourceName),
}

const MODEL_PREFIX: &str = "gpus/";

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpus => f.write_str("gpus"),
            Self::Model(model) => write!(f, "{MODEL_PREFIX}{model}"),
            Self::Cpus => f.write_str("cpus"),
            Self::Memory => f.write_str("memory"),
            Self::Named(name) => write!(f, "{name}"),
        }
    }
}

impl FromStr for Resource {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Ok(match text {
            "gpus" => Self::Gpus,
            "cpus" => Self::Cpus,
            "memory" => Self::Memory,
            _ => match text.strip_prefix(MODEL_PREFIX) {
                Some("") => return Err(NameError::Empty),
                Some(model) => Self::Model(model.to_owned()),
                None => Self::Named(ResourceName::new(text)?),
            },
        })
    }
}

impl TryFrom<String> for Resource {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Resource> for String {
    fn from(resource: Resource) -> Self {
        resource.to_string()
    }
}

impl Resource {
    /// An amount as people write it.
    #[must_use]
    pub fn show(&self, amount: u64) -> String {
        match self {
            Self::Gpus | Self::Model(_) | Self::Cpus => crate::show::milli(amount),
            Self::Memory if amount.is_multiple_of(1_000_000_000) => format!("{}GB", amount / 1_000_000_000),
            Self::Memory if amount.is_multiple_of(1 << 30) => format!("{}GiB", amount >> 30),
            Self::Memory => format!("{}MiB", amount >> 20),
            Self::Named(_) => amount.to_string(),
        }
    }
}

/// An amount of each resource. A resource that is absent is not restricted.
pub type Amounts = BTreeMap<Resource, u64>;

/// A node of the quota tree. Jobs are submitted to queues without children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Queue {
    pub name: QueueName,
    /// `None`: the queue is at the top of the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<QueueName>,
    /// The guarantee: lent to other queues while it is idle, and reclaimed on demand. At least the sum of the
    /// guarantees of its children.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub guaranteed: Amounts,
    /// The limit of its use, borrowed amounts included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limit: Amounts,
    /// The largest part of the guarantee that other queues may borrow while it is idle. A resource that is absent is
    /// lent in full.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lend_max: Amounts,
    /// Its weight, in thousandths, when siblings share the capacity above the guarantees. 0 is the least weight.
    #[serde(default = "weight_of_one")]
    pub weight_milli: u64,
    /// Guaranteed domains: a number of domains of a level, with a number of whole nodes in each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<ShapeQuota>,
    #[serde(default)]
    pub caps: Caps,
    /// The order of gangs of one class in a queue; that of [`Settings::order`] if it says none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<QueueOrder>,
    /// Who may submit to the queue and to those below it.
    #[serde(default, skip_serializing_if = "Access::says_nothing")]
    pub access: Access,
    /// The nodes that gangs of the queue, and of those below it, are placed on.
    #[serde(default, skip_serializing_if = "Pools::are_none")]
    pub nodes: Pools,
    /// The highest cost of jobs of the queue and of those below it. A world that keeps an account enforces it; the engine does
    /// not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The rule for jobs of the queue, and of those below it, that do not use their GPUs. Worlds that sample GPUs enforce it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<IdlePolicy>,
}

/// The nodes of a queue, as pools in order of preference: a gang is placed in the first pool that has room for all of
/// it. No pools: all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pools {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<Pool>,
    /// A gang for which no pool has room is placed on any node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub or_any: bool,
}

impl Pools {
    #[must_use]
    pub const fn are_none(&self) -> bool {
        self.pools.is_empty()
    }

    /// Whether a gang has one of several pools, or one of them and any other node.
    #[must_use]
    pub const fn are_choices(&self) -> bool {
        !self.pools.is_empty() && (self.or_any || self.pools.len() > 1)
    }

    /// Whether gangs are placed nowhere else.
    #[must_use]
    pub const fn are_required(&self) -> bool {
        !self.or_any && !self.pools.is_empty()
    }
}

/// The nodes for which all of this holds. What is empty holds for every node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Pool {
    /// It is one of these; in order, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeName>,
    /// The model of each of its devices contains this text, ignoring case; a node without devices has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// It is inside all of these domains.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub path: BTreeMap<LevelName, DomainName>,
    /// It is in all of these sets: [`Node::labels`] and [`Node::sets`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<NodeSet>,
}

impl Pool {
    #[must_use]
    pub fn has(&self, node: &Node, levels: &Levels) -> bool {
        let is_inside = |(level, domain): (&LevelName, &DomainName)| {
            let at = levels.above.iter().position(|above| above == level);
            at.and_then(|at| node.path.get(at)) == Some(domain)
        };
        let devices = &node.machine.devices;
        let is_of_model = |model: &String| {
            !devices.is_empty() && devices.iter().all(|device| contains(&device.model, model))
        };
        (self.nodes.is_empty() || self.nodes.binary_search(&node.name).is_ok())
            && self.model.as_ref().is_none_or(is_of_model)
            && self.path.iter().all(is_inside)
            && self.sets.iter().all(|set| node.labels.contains(set) || node.sets.contains(set))
    }
}

impl fmt::Display for Pool {
    /// `model H100 and rack r1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const HOSTS_SHOWN: usize = 3;
        let mut all: Vec<String> = Vec::new();
        if !self.nodes.is_empty() {
            let shown: Vec<&str> = self.nodes.iter().take(HOSTS_SHOWN).map(NodeName::as_str).collect();
            let more = self.nodes.len() - shown.len();
            let more = if more > 0 { format!(", … ({more} more)") } else { String::new() };
            all.push(format!("{}{more}", shown.join(", ")));
        }
        all.extend(self.model.iter().map(|model| format!("model {model}")));
        all.extend(self.path.iter().map(|(level, domain)| format!("{level} {domain}")));
        all.extend(self.sets.iter().map(NodeSet::to_string));
        f.write_str(&all.join(" and "))
    }
}

/// Who may use a queue or a class, where one daemon serves several users. A world that admits jobs checks it; the engine
/// does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Access {
    /// Names or numbers of accounts; [`Access::ALL`] is every account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The highest priority of a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_max: Option<i32>,
}

impl Access {
    /// Every account.
    pub const ALL: &str = "*";

    #[must_use]
    pub fn says_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it names accounts.
    #[must_use]
    pub const fn names_accounts(&self) -> bool {
        !self.users.is_empty() || !self.groups.is_empty()
    }
}

const fn weight_of_one() -> u64 {
    1_000
}

impl Queue {
    /// A queue with nothing but its name.
    #[must_use]
    pub fn named(name: QueueName) -> Self {
        Self {
            name,
            parent: None,
            guaranteed: Amounts::new(),
            limit: Amounts::new(),
            lend_max: Amounts::new(),
            weight_milli: weight_of_one(),
            shapes: Vec::new(),
            caps: Caps::default(),
            order: None,
            access: Access::default(),
            nodes: Pools::default(),
            budget: None,
            idle: None,
        }
    }
}

/// The order of gangs of one class in a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueueOrder {
    /// By priority and age, without preemption.
    #[default]
    Priority,
    /// By attained service: gangs on a lower level go first, and within a level gangs go by priority and age. A
    /// pending gang on a lower level preempts a running gang on a higher level.
    LeastServed {
        /// The thresholds between levels, in milliseconds of one device, in increasing order; at most
        /// [`SERVICE_LEVELS_MAX`].
        levels: Vec<u64>,
    },
}

/// The thresholds of a queue that orders by attained service and names none, in milliseconds of one device: from 8 to
/// 4,096 hours, each double the threshold before it.
pub const SERVICE_LEVELS_DEFAULT_MS: [u64; 10] = {
    let (mut levels, mut at) = ([8 * HOUR_MS; 10], 1);
    while at < levels.len() {
        levels[at] = levels[at - 1] * 2;
        at += 1;
    }
    levels
};
/// The most thresholds of a queue that orders by attained service.
pub const SERVICE_LEVELS_MAX: usize = 32;

impl QueueOrder {
    #[must_use]
    pub const fn is_priority(&self) -> bool {
        matches!(self, Self::Priority)
    }

    /// The thresholds between levels. Empty if the queue does not order by service.
    #[must_use]
    pub fn levels(&self) -> &[u64] {
        match self {
            Self::Priority => &[],
            Self::LeastServed { levels } => levels,
        }
    }

    /// The level of a gang with this attained service: the number of thresholds that it has reached.
    #[must_use]
    pub fn level_of(&self, served: Served) -> u32 {
        let reached =
            self.levels().iter().take_while(|level| served.device_us >= level.saturating_mul(1_000));
        u32::try_from(reached.count()).unwrap_or(u32::MAX)
    }
}

/// Guaranteed domains: `count` domains of `level`, with `nodes` whole nodes in each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShapeQuota {
    pub level: LevelName,
    pub count: u32,
    pub nodes: u32,
}

/// The admission limits of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Caps {
    /// The most pending gangs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_max: Option<u32>,
    /// The most gangs that hold capacity at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
    /// The most whole devices of one gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_devices_max: Option<u32>,
    /// The longest time limit. Jobs without a time limit get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_max_ms: Option<u64>,
    /// The delay of its jobs for a closer placement, if they set none themselves.
    #[serde(rename = "hold_out", default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Delay>,
}

/// How long a gang delays its start for a closer placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Delay {
    /// A time in milliseconds.
    For(u64),
    /// Until the delay has cost as much as the farther placement would: the worth of an hour of waiting, in
    /// thousandths of an hour of running.
    Priced(u32),
}

impl Default for Delay {
    fn default() -> Self {
        Self::For(0)
    }
}

impl Delay {
    /// The price of an hour of waiting that equals an hour of running.
    pub const PAR: Self = Self::Priced(1_000);

    #[must_use]
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::For(0))
    }
}

/// A priority class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Class {
    pub name: ClassName,
    /// A higher rank goes first, and may preempt a lower rank.
    pub rank: i32,
    /// Whether its gangs can be preempted. Gangs that cannot be preempted may not borrow the guarantees of other
    /// queues.
    pub is_preemptible: bool,
    /// Whether its gangs may preempt.
    pub may_preempt: bool,
    /// The running time after a start within which a gang of the class is not preempted.
    pub min_run_ms: u64,
    /// The longest time that gangs preempted for this class have to save work and exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_max_ms: Option<u64>,
    /// Who may use the class; if it names no accounts, every account if the class preempts no other, and otherwise
    /// operators.
    #[serde(default, skip_serializing_if = "Access::says_nothing")]
    pub access: Access,
}

/// How far capacity is reclaimed from queues that borrowed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reclaim {
    /// Up to the guarantee of the queue.
    Guarantee,
    /// Up to the fair share of the queue: its guarantee, and its part by weight of the remaining capacity.
    #[default]
    FairShare,
}

/// Cluster-wide settings. The defaults are in one table in `docs/reference/policy.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Settings {
    pub classes: Vec<Class>,
    pub default_class: ClassName,
    /// The half-life of decayed usage.
    pub half_life_ms: u64,
    /// Ageing: this waiting time counts as one more of priority. 0: waiting does not count.
    pub ageing_ms: u64,
    /// The number of gangs at the head of the queue that hold a reservation: 1 is EASY backfill, `u32::MAX` is
    /// conservative backfill.
    pub reservation_depth: u32,
    /// How long devices may stay idle for a reservation without a known start: until their idle time is this part of the
    /// waiting time of the gang, both in device time; in thousandths. 0: nothing is reserved without a known start.
    pub hold_idle_max_milli: u32,
    pub reclaim: Reclaim,
    /// The weight of devices whose model contains the text, ignoring case, in thousandths. Other devices weigh 1,000.
    pub worth: BTreeMap<String, u64>,
    /// The order of queues that say none. Only jobs that save their work when they are stopped ([`crate::Job::saves_work`])
    /// make way by it.
    #[serde(skip_serializing_if = "QueueOrder::is_priority")]
    pub order: QueueOrder,
    /// How long gangs delay their start for a closer placement if neither they nor their queues say.
    #[serde(skip_serializing_if = "Delay::is_none")]
    pub wait: Delay,
    /// The longest boost that an operator may give; `boost_max` is the highest.
    pub boost_max_ms: u64,
    pub boost_max: i32,
    /// Nodes that are kept for gangs that lose hardware.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spares: Option<Spares>,
    /// When gangs move off degraded hardware. `None`: they stay until they end. Journals of versions that did not know
    /// migrations have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<Migration>,
    /// Which gangs move to open places for others, and when.
    #[serde(default, skip_serializing_if = "Defragmentation::is_default")]
    pub defragmentation: Defragmentation,
}

/// Spare nodes: in each domain of a level so many whole, healthy nodes stay free for gangs whose nodes or devices fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spares {
    /// A level above the node. `None`: the whole cluster is one domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<LevelName>,
    /// Nodes of each domain, at least 1.
    pub nodes: u32,
    /// Whether gangs that take spot nodes ([`crate::Turn::takes_spot`]) may use spare nodes until these are needed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_filled: bool,
}

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

impl Default for Settings {
    fn default() -> Self {
        let class = |name: &str, rank, is_preemptible, may_preempt, min_run_ms, grace_max_ms| Class {
            name: ClassName::new(name).unwrap_or_else(|_| unreachable!("a constant name")),
            rank,
            is_preemptible,
            may_preempt,
            min_run_ms,
            grace_max_ms,
            access: Access::default(),
        };
        let classes = vec![
            class("serving", 300, false, true, 10 * MINUTE_MS, Some(30_000)),
            class("training", 200, true, true, 10 * MINUTE_MS, None),
            class("research", 100, true, true, 10 * MINUTE_MS, None),
            class("opportunistic", 0, true, false, 0, None),
        ];
        Self {
            default_class: classes[1].name.clone(),
            classes,
            half_life_ms: 7 * DAY_MS,
            ageing_ms: HOUR_MS,
            reservation_depth: 1,
            hold_idle_max_milli: 100,
            reclaim: Reclaim::default(),
            worth: BTreeMap::new(),
            order: QueueOrder::default(),
            wait: Delay::default(),
            boost_max_ms: 7 * DAY_MS,
            boost_max: 1_000,
            spares: None,
            migration: Some(Migration::default()),
            defragmentation: Defragmentation::default(),
        }
    }
}

impl Settings {
    /// The class of this name, or the default class if no name is given.
    #[must_use]
    pub fn class(&self, name: Option<&ClassName>) -> Option<&Class> {
        let name = name.unwrap_or(&self.default_class);
        self.classes.iter().find(|class| class.name == *name)
    }

    /// The weight of a device of a model, in thousandths.
    #[must_use]
    pub fn worth_of(&self, model: &str) -> u64 {
        let of = |(text, worth): (&String, &u64)| contains(model, text).then_some(*worth);
        self.worth.iter().find_map(of).unwrap_or(1_000)
    }
}

/// Whether the name of a device model contains a text, ignoring case.
#[must_use]
pub fn contains(model: &str, text: &str) -> bool {
    text.is_empty()
        || model.as_bytes().windows(text.len()).any(|part| part.eq_ignore_ascii_case(text.as_bytes()))
}
