//! What holds for all queues.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amount, Condition};

/// How the cluster is shared, as far as it concerns all queues. There is one, named default.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "phalanx.dev",
    version = "v1alpha1",
    kind = "SharePolicy",
    plural = "sharepolicies",
    category = "phalanx",
    derive = "PartialEq",
    status = "SharePolicyStatus",
    doc = "How the cluster is shared, as far as it concerns all queues. There is one, named default.",
    printcolumn(name = "Default class", type_ = "string", json_path = ".spec.defaultClass"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type=='Accepted')].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name == 'default'")
        .message("a cluster has one SharePolicy, named default")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.classes) || !has(self.defaultClass) || self.classes.exists(c, c.name == self.defaultClass)")
        .message("defaultClass is none of the classes")
)]
pub struct SharePolicySpec {
    /// Classes of priority; they stand for those that are built in: serving, training, research and opportunistic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(
        validation = Rule::new("self.all(a, self.exists_one(b, a.name == b.name))").message("two classes have one name"),
        validation = Rule::new("self.all(a, self.exists_one(b, a.rank == b.rank))").message("two classes have one rank")
    )]
    pub classes: Option<Vec<ClassSpec>>,
    /// What the cluster goes by when it is full: throughput, fair or first-come. Default: throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(throughput|fair|first-come)$"))]
    pub preset: Option<String>,
    /// Class of jobs that name none. Default: training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub default_class: Option<String>,
    /// Past use counts half after this time. Default: 7d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub half_life: Option<String>,
    /// Waiting so long counts as much as one more of priority; "0": waiting counts nothing. Default: 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub ageing: Option<String>,
    /// Gangs at the head of the line that hold a reservation, behind which smaller ones are filled in: 1 is EASY back-fill,
    /// "all" conservative back-fill. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("type(self) == int ? self >= 0 : self == 'all'").message("reservations are a number, or \"all\"")
    )]
    pub reservations: Option<Amount>,
    /// How long GPUs may stay idle for a gang whose start is not known: until their idle time is this part of its waiting
    /// time, both in GPU time. 0%: never. Default: 10%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9]{1,3}([.][0-9])?%$"))]
    pub hold_idle: Option<String>,
    /// How long gangs hold out for a nearer place than one that is free, where neither they nor their queues say: 10m, or
    /// "priced" for as long as that is worth. Default: priced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub wait: Option<String>,
    /// Up to where capacity is taken back from queues that use more than is theirs: fair_share, their due share, or
    /// guarantee, what they are guaranteed. Default: fair_share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^(fair_share|guarantee)$"))]
    pub reclaim: Option<String>,
    /// What one GPU counts whose model contains the text, ignoring case: {A100: "0.4"}. Default: 1.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub worth: BTreeMap<String, Amount>,
    /// How far an operator may raise a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boost: Option<BoostSpec>,
    /// Nodes that stay free for gangs whose nodes or GPUs fail. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spares: Option<SparesSpec>,
}

/// A class of priority. It holds for pods whose priority is its rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassSpec {
    /// Name that jobs say.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Priority of the pods for which the class holds. Higher goes first, and may preempt lower; no two classes have the same.
    pub rank: i32,
    /// Whether its jobs may be preempted. Those that may not borrow nothing that is guaranteed to others. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    /// Whether its jobs preempt others. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempts: Option<bool>,
    /// Running time after a start within which its jobs are not preempted. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub min_run: Option<String>,
    /// Longest time that jobs which make way for it have to save their work and end. Default: as long as they say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub grace_max: Option<String>,
}

/// How far an operator may raise a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoostSpec {
    /// Priority that is added, at most. Default: 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max: Option<i32>,
    /// Time after which it is gone, at most. Default: 7d.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub longest: Option<String>,
}

/// Spare nodes: they stay free for gangs whose nodes or GPUs fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SparesSpec {
    /// Whole nodes in each domain of the level.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub nodes: i32,
    /// Level of the domains, such as rack. Default: the whole cluster is one domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub level: Option<String>,
}

/// Whether the policy is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharePolicyStatus {
    /// The generation that is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub conditions: Vec<Condition>,
}
