//! Queues: nodes of the quota tree.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use phalanx_model::{DecayedUsage, QueueReport, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amount, Condition};

/// A queue, a node of the quota tree. Jobs wait in queues without children.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "phalanx.dev",
    version = "v1alpha1",
    kind = "Queue",
    plural = "queues",
    shortname = "phq",
    category = "phalanx",
    derive = "PartialEq",
    status = "QueueStatus",
    doc = "A queue, a node of the quota tree. Jobs wait in queues without children.",
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.parent"),
    printcolumn(name = "GPUs", type_ = "string", json_path = ".status.usage.gpus.used"),
    printcolumn(name = "Guaranteed", type_ = "string", json_path = ".status.usage.gpus.guaranteed"),
    printcolumn(name = "Due", type_ = "string", json_path = ".status.usage.gpus.due", priority = "1"),
    printcolumn(name = "Running", type_ = "integer", json_path = ".status.running"),
    printcolumn(name = "Pending", type_ = "integer", json_path = ".status.pending"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Accepted')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("!has(self.spec.parent) || self.spec.parent != self.metadata.name")
        .message("a queue cannot stand below itself")
        .field_path(".spec.parent")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.guaranteed) || !has(self.limit) || self.guaranteed.all(k, !(k in self.limit) || type(self.guaranteed[k]) != int || type(self.limit[k]) != int || self.guaranteed[k] <= self.limit[k])")
        .message("a limit cannot be less than what is guaranteed"),
    validation = Rule::new("!has(self.lend) || !has(self.guaranteed) || self.lend.all(k, !(k in self.guaranteed) || type(self.lend[k]) != int || type(self.guaranteed[k]) != int || self.lend[k] <= self.guaranteed[k])")
        .message("a queue cannot lend more than what is guaranteed to it")
)]
pub struct QueueSpec {
    /// Queue that it stands below. Default: none, it stands at the top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub parent: Option<String>,
    /// What is its own: lent to others while idle, and taken back when needed. By resource: gpus, gpus/MODEL, cpus, memory,
    /// and what the cluster counts by name. Default: nothing, or what its children are guaranteed together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    #[x_kube(
        validation = Rule::new(OF_RESOURCES).message(NAMES),
        validation = Rule::new(OF_AMOUNTS).message(AMOUNTS)
    )]
    pub guaranteed: BTreeMap<String, Amount>,
    /// The most that it may use, what is borrowed included. Default: all there is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    #[x_kube(
        validation = Rule::new(OF_RESOURCES).message(NAMES),
        validation = Rule::new(OF_AMOUNTS).message(AMOUNTS)
    )]
    pub limit: BTreeMap<String, Amount>,
    /// The most of what is guaranteed that others may borrow while it is idle. Default: all of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    #[x_kube(
        validation = Rule::new(OF_RESOURCES).message(NAMES),
        validation = Rule::new(OF_AMOUNTS).message(AMOUNTS)
    )]
    pub lend: BTreeMap<String, Amount>,
    /// Its part of what is left above the guarantees, against its siblings: a number from 0 to 1000000, as text where it has
    /// a fraction. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("type(self) == int ? self >= 0 && self <= 1000000 : self.matches('^[0-9]{1,7}([.][0-9]{1,3})?$')")
            .message("a weight is a number from 0 to 1000000")
    )]
    pub weight: Option<Amount>,
    /// Guarantees that are places: so many domains of a level, with so many whole nodes in each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub shapes: Vec<ShapeSpec>,
    /// Gangs that wait, at most. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_pending: Option<i32>,
    /// Gangs that hold capacity at once, at most. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_running: Option<i32>,
    /// Whole GPUs of one gang, at most. Default: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_gang_gpus: Option<i32>,
    /// Longest running time, which gangs without a limit are given: 4h, 90m. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub max_time: Option<String>,
    /// How long its gangs hold out for a nearer place, where they say nothing: 10m, or "priced" for as long as
    /// that is worth. Default: as the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub wait: Option<String>,
    /// The nodes that its gangs may use. Default: all of the queue above it, or of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("has(self.required) != has(self.preferred)")
            .message("nodes are either required or preferred")
    )]
    pub nodes: Option<QueueNodesSpec>,
    /// Namespaces whose pods may wait here, and do where they name no queue. Default: any namespace may, of pods that name
    /// this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<LabelSelector>,
}

/// Slips that would else name a resource that nobody has.
const OF_RESOURCES: &str = "self.all(k, !(k in ['gpu', 'cpu', 'mem', 'nvidia.com/gpu']))";
const OF_AMOUNTS: &str =
    "self.all(k, type(self[k]) == int ? self[k] >= 0 : self[k].matches('^[0-9]+([.][0-9]+)?[ ]?[A-Za-z]*$'))";
const NAMES: &str = "resources are gpus, gpus/MODEL, cpus, memory, and names of what the cluster counts";
const AMOUNTS: &str =
    "an amount is a number from 0, as text where it has a unit or a fraction: 8, \"0.5\", \"512Gi\"";

/// The nodes of a queue, as pools in order of preference: a gang goes to the first that has room for all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueNodesSpec {
    /// Its gangs go nowhere else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    pub required: Vec<PoolSpec>,
    /// A gang for which none of these has room goes to any node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    pub preferred: Vec<PoolSpec>,
}

/// The nodes for which all of this holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct PoolSpec {
    /// Labels of nodes with these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub labels: BTreeMap<String, String>,
    /// Text that the model of each GPU of the node contains, ignoring case: H100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub model: Option<String>,
    /// Domains that the node is inside, by level: {rack: r1}.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 16))]
    pub path: BTreeMap<String, String>,
    /// Names of nodes, or patterns of them: gpu-[1-4].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub hosts: Vec<String>,
}

/// A guarantee that is a place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShapeSpec {
    /// Level of the domains.
    #[schemars(length(min = 1, max = 253))]
    pub level: String,
    /// Number of domains. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub count: Option<i32>,
    /// Whole nodes in each.
    #[schemars(range(min = 1))]
    pub nodes: i32,
}

/// Which labels are meant, as Kubernetes has it everywhere: all that is said must hold. Empty: every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels with these values. Every namespace has its name as kubernetes.io/metadata.name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub match_labels: BTreeMap<String, String>,
    /// Conditions on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<LabelRequirement>,
}

/// A condition on one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)")
        .message("In and NotIn take values, Exists and DoesNotExist take none")
)]
pub struct LabelRequirement {
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// In, NotIn, Exists or DoesNotExist.
    #[schemars(regex(pattern = "^(In|NotIn|Exists|DoesNotExist)$"))]
    pub operator: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Whether an object with these labels is meant.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| requirement.is_met(labels))
    }
}

impl LabelRequirement {
    fn is_met(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator.as_str() {
            "In" => value.is_some_and(|value| self.values.contains(value)),
            "NotIn" => value.is_none_or(|value| !self.values.contains(value)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            // The schema takes no other.
            _ => false,
        }
    }
}

/// How a queue stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// The generation that is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Gangs that wait, those of the queues below included.
    #[serde(default)]
    pub pending: i64,
    /// Gangs that hold capacity, those of the queues below included.
    #[serde(default)]
    pub running: i64,
    /// By resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<String, UsageStatus>,
    /// What it has above its guarantee of the resource of which that is the largest part of the cluster, by weight. The
    /// queue with the least goes first among its siblings.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub share: String,
    /// The resource of that share.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dominant: String,
    /// What it used in the past, faded, as a part of the cluster.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub past: String,
    /// The same as it is counted on, for the scheduler to read back after a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faded_use: Option<FadedUseStatus>,
    /// The places that it is guaranteed, and where each is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<PlaceStatus>,
    /// Its pools, and its use of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pools: Vec<PoolStatus>,
    /// The first that wait, those of the queues below included, as they would go, and for what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub waiting: Vec<WaitingStatus>,
    /// What its own gangs that wait were promised, for the scheduler to keep after a restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub promises: Vec<PromiseStatus>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}

/// How much of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageStatus {
    pub used: String,
    /// What its pending gangs ask for, at least.
    pub wanted: String,
    pub guaranteed: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// What is due to it now: its guarantee, and its part by weight of what others leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<String>,
    /// All there is in the cluster.
    pub capacity: String,
}

/// What a queue used, faded to a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FadedUseStatus {
    /// Device-milliseconds in thousandths of a device, as text: it may be more than 64 bits hold.
    #[schemars(regex(pattern = "^[0-9]{1,39}$"))]
    pub device_ms: String,
    /// RFC 3339.
    #[schemars(length(max = 64))]
    pub at: String,
}

/// Equal places that a queue is guaranteed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlaceStatus {
    pub level: String,
    /// Whole nodes in each.
    pub nodes: i64,
    /// The domains that they are bound to: fewer than asked for where whole nodes are short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<String>,
}

/// A pool of a queue. A node that is in several counts in each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// As in `model H100`.
    pub pool: String,
    pub nodes: i64,
    /// GPUs there, without what others use.
    pub gpus: String,
    /// GPUs there that its gangs hold.
    pub used: String,
}

/// A gang that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingStatus {
    /// As in `Job team/ring`.
    pub gang: String,
    /// RFC 3339.
    pub since: String,
    /// In a sentence.
    pub reason: String,
}

/// Promises of one queue that are written: as many as [`QueueStatus::promises`] takes.
pub const PROMISES_MAX: usize = 64;

/// What a gang that waits was promised.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PromiseStatus {
    /// As in `Job team/ring`.
    pub gang: String,
    /// Of the object that owns its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// How often gangs behind it started before it.
    #[serde(default)]
    pub passed_over: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<ReservedStatus>,
}

/// A place that is kept for a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReservedStatus {
    /// RFC 3339: when all of it is free at the latest. Nothing where a gang without a time limit holds some of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<String>,
    /// RFC 3339.
    pub made_at: String,
    /// Gangs were preempted for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cleared: bool,
    /// The narrowest level whose single domain holds it.
    pub level: String,
    /// Node and devices of each rank in the order of ranks: `a 0-3; b 0-3`.
    pub placement: String,
}

impl QueueStatus {
    /// What a report says; conditions, promises and the gangs that wait are left as they are.
    pub fn set_report(&mut self, report: &QueueReport) {
        self.pending = i64::from(report.pending);
        self.running = i64::from(report.running);
        let usage = |good: &phalanx_model::ResourceReport| {
            let shown = |amount: u64| good.resource.show(amount);
            let usage = UsageStatus {
                used: shown(good.used),
                wanted: shown(good.wanted),
                guaranteed: shown(good.guaranteed),
                limit: good.limit.map(shown),
                due: good.fair_share.map(shown),
                capacity: shown(good.capacity),
            };
            (good.resource.to_string(), usage)
        };
        self.usage = report.resources.iter().map(usage).collect();
        self.share = millionths(report.share);
        self.dominant = report.dominant.to_string();
        self.past = millionths(report.decayed_usage);
        let place = |place: &phalanx_model::ShapeReport| PlaceStatus {
            level: place.shape.level.to_string(),
            nodes: i64::from(place.shape.nodes),
            domains: place.domains.clone(),
        };
        self.places = report.places.iter().map(place).collect();
        let gpus = |milli: u64| phalanx_model::Resource::Gpus.show(milli);
        let pool = |pool: &phalanx_model::PoolReport| PoolStatus {
            pool: pool.pool.to_string(),
            nodes: i64::from(pool.nodes),
            gpus: gpus(pool.capacity),
            used: gpus(pool.used),
        };
        self.pools = report.pools.iter().map(pool).collect();
    }
}

/// `0.25` of 250,000.
fn millionths(part: u64) -> String {
    let text = format!("{}.{:06}", part / 1_000_000, part % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl FadedUseStatus {
    /// # Errors
    /// When the moment is beyond what a date can say.
    pub fn of(faded: DecayedUsage) -> Result<Self, jiff::Error> {
        let ms = i64::try_from(faded.at.0).unwrap_or(i64::MAX);
        let at = jiff::Timestamp::from_millisecond(ms)?;
        Ok(Self { device_ms: faded.device_ms.to_string(), at: at.to_string() })
    }

    /// Back again; nothing where somebody else wrote it and it is neither a number nor a date.
    #[must_use]
    pub fn read(&self) -> Option<DecayedUsage> {
        let at: jiff::Timestamp = self.at.parse().ok()?;
        let at = u64::try_from(at.as_millisecond()).ok()?;
        Some(DecayedUsage { device_ms: self.device_ms.parse().ok()?, at: Timestamp(at) })
    }
}
