//! How a cluster is shared: queues with what they are guaranteed and limited to, classes of priority, and the settings
//! that hold for all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{ClassName, LevelName, NameError, QueueName, ResourceName, Served, Timestamp};

/// Something that is shared by amount.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Resource {
    /// Devices of any model, in thousandths of one, each times the worth of its model ([`Settings::worth`]).
    Gpus,
    /// Devices whose model contains this text, ignoring case, in thousandths of one.
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
            Self::Memory => format!("{}MiB", amount >> 20),
            Self::Named(_) => amount.to_string(),
        }
    }
}

/// So much of each; what is not named is not spoken of.
pub type Amounts = BTreeMap<Resource, u64>;

/// A node of the quota tree. Jobs wait in queues without children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    pub name: QueueName,
    /// None: it stands at the top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<QueueName>,
    /// What is its own: lent to others while idle, and taken back when needed. At least the sum of its children's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub guaranteed: Amounts,
    /// The most that it may use, borrowed amounts included.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limit: Amounts,
    /// The most of what is guaranteed that others may borrow while it is idle; what is not named is lent in full.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lend_max: Amounts,
    /// Its part of what is left above the guarantees, against its siblings, in thousandths. 0: the least there is.
    #[serde(default = "weight_of_one")]
    pub weight_milli: u64,
    /// Guarantees that are places: so many domains of a level, each with so many whole nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<ShapeQuota>,
    #[serde(default)]
    pub caps: Caps,
    /// Who of one class goes first in it.
    #[serde(default, skip_serializing_if = "QueueOrder::is_priority")]
    pub order: QueueOrder,
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
            order: QueueOrder::default(),
        }
    }
}

/// Who of one class goes first in a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueOrder {
    /// By priority and age; none evicts another.
    #[default]
    Priority,
    /// Whoever had less service first, by levels, and within a level by priority and age. Who waits on a lower level evicts
    /// who runs on a higher one.
    LeastServed {
        /// Device time, in milliseconds of one device, at which a gang rises by a level each; from the least on, at most
        /// [`SERVICE_LEVELS_MAX`].
        levels: Vec<u64>,
    },
}

/// Thresholds of a queue in the order of service that names none, in milliseconds of one device: from a quarter of an hour to
/// 4,096 hours, each the double of the one before it.
pub const SERVICE_LEVELS_DEFAULT_MS: [u64; 15] = {
    let (mut levels, mut at) = ([HOUR_MS / 4; 15], 1);
    while at < levels.len() {
        levels[at] = levels[at - 1] * 2;
        at += 1;
    }
    levels
};
/// Most thresholds of a queue in the order of service.
pub const SERVICE_LEVELS_MAX: usize = 32;

impl QueueOrder {
    #[must_use]
    pub const fn is_priority(&self) -> bool {
        matches!(self, Self::Priority)
    }

    /// The thresholds between levels; none where service does not matter.
    #[must_use]
    pub fn levels(&self) -> &[u64] {
        match self {
            Self::Priority => &[],
            Self::LeastServed { levels } => levels,
        }
    }

    /// The level of who has had so much service: how many thresholds that has reached.
    #[must_use]
    pub fn level_of(&self, served: Served) -> u32 {
        let reached =
            self.levels().iter().take_while(|level| served.device_us >= level.saturating_mul(1_000));
        u32::try_from(reached.count()).unwrap_or(u32::MAX)
    }
}

/// A guarantee that is a place: `count` domains of `level`, with `nodes` whole nodes in each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShapeQuota {
    pub level: LevelName,
    pub count: u32,
    pub nodes: u32,
}

/// What a queue takes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caps {
    /// Gangs that wait, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_max: Option<u32>,
    /// Gangs that hold capacity at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
    /// Whole devices of one gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_devices_max: Option<u32>,
    /// Longest time limit; jobs without one are given it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_max_ms: Option<u64>,
    /// How long its jobs hold out for a level that they prefer, where they say nothing themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_out: Option<HoldOut>,
}

/// How long to hold out for a closer place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldOut {
    /// So many milliseconds.
    For(u64),
    /// Until that has cost as much as the farther place would: what an hour of waiting is worth, in thousandths of an hour
    /// of running.
    Priced(u32),
}

/// A class of priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    pub name: ClassName,
    /// Higher goes first, and may evict lower.
    pub rank: i32,
    /// Whether its gangs may be evicted. What may not be evicted borrows nothing that is guaranteed to others.
    pub is_preemptible: bool,
    /// Whether its gangs evict.
    pub may_preempt: bool,
    /// Running time after a start within which a gang of it is not evicted.
    pub min_run_ms: u64,
    /// Longest time that gangs evicted for this class have to save their work and end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_max_ms: Option<u64>,
}

/// Up to where capacity is taken back from those that use more than is theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reclaim {
    /// Up to what the queue is guaranteed.
    Guarantee,
    /// Up to its due share: what it is guaranteed, and its part by weight of what is left.
    #[default]
    FairShare,
}

/// What holds for the whole cluster. The defaults are in `docs/policy.md`, in one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub classes: Vec<Class>,
    pub default_class: ClassName,
    /// Past use counts half after this time.
    pub half_life_ms: u64,
    /// Waiting so long counts as much as one more of priority; 0: it counts nothing.
    pub ageing_ms: u64,
    /// Heads of the line that hold a reservation: 1 is EASY back-fill, `u32::MAX` conservative.
    pub reservation_depth: u32,
    /// In thousandths of the cluster's devices: what reservations without a known start may keep idle.
    pub hold_idle_max_milli: u32,
    pub reclaim: Reclaim,
    /// Of devices whose model contains the text, ignoring case: what one is worth, in thousandths. Others: 1,000.
    pub worth: BTreeMap<String, u64>,
    /// The longest and highest boost that an operator may give.
    pub boost_max_ms: u64,
    pub boost_max: i32,
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
            hold_idle_max_milli: 500,
            reclaim: Reclaim::default(),
            worth: BTreeMap::new(),
            boost_max_ms: 7 * DAY_MS,
            boost_max: 1_000,
        }
    }
}

impl Settings {
    /// The class of this name; the default class where none is named.
    #[must_use]
    pub fn class(&self, name: Option<&ClassName>) -> Option<&Class> {
        let name = name.unwrap_or(&self.default_class);
        self.classes.iter().find(|class| class.name == *name)
    }

    /// What a device of a model is worth, in thousandths.
    #[must_use]
    pub fn worth_of(&self, model: &str) -> u64 {
        let of = |(text, worth): (&String, &u64)| contains(model, text).then_some(*worth);
        self.worth.iter().find_map(of).unwrap_or(1_000)
    }
}

/// Whether a device's model is one that a text means.
#[must_use]
pub fn contains(model: &str, text: &str) -> bool {
    text.is_empty()
        || model.as_bytes().windows(text.len()).any(|part| part.eq_ignore_ascii_case(text.as_bytes()))
}

/// How a queue stands, with every term of the order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueReport {
    pub queue: Queue,
    /// Queues above it.
    pub depth: u32,
    /// Gangs, those of the queues below included.
    pub pending: u32,
    pub running: u32,
    pub goods: Vec<GoodReport>,
    /// What it has above its guarantee of the resource of which that is the largest part of the cluster, by weight: in
    /// millionths. The queue with the least goes first among its siblings.
    pub share: u64,
    pub dominant: Resource,
    /// What it used in the past, faded, as a part of the cluster over one half-life, by weight: in millionths. Added to
    /// `share`.
    pub past: u64,
    /// The places that it is guaranteed, and where each is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceReport>,
}

/// Equal places that a queue is guaranteed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceReport {
    pub shape: ShapeQuota,
    /// The domains that they are bound to: fewer than [`ShapeQuota::count`] where whole nodes are short.
    pub domains: Vec<String>,
}

/// One resource of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoodReport {
    pub resource: Resource,
    pub used: u64,
    /// What its pending gangs ask for, at least.
    pub wanted: u64,
    pub guaranteed: u64,
    pub limit: Option<u64>,
    /// What is due to it now: its guarantee, and its part by weight of what others leave; of devices only.
    pub due: Option<u64>,
    /// All there is.
    pub capacity: u64,
}

/// What a queue used, faded: what is left at `at` of device-milliseconds, in thousandths of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FadedUse {
    pub device_ms: u128,
    pub at: Timestamp,
}
