//! Our own resources, as Rust types: how the cluster is shared ([`Queue`], [`SharePolicy`]), how its network is laid out
//! ([`Fabric`]), and what stands in a node ([`NodeTopology`]).
//!
//! The words are those of the files that `phalanx up` reads, written as Kubernetes writes names: `maxPending` for
//! `max_pending`. What can be judged of one object is judged by the API server (CEL rules in the schema); what concerns
//! several is judged when they are [put together](policy).

#[allow(unreachable_pub, reason = "the derive repeats a struct inside a function")]
mod fabric;
mod health;
#[allow(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "the derive repeats a struct inside a function, and columns are attributes"
)]
mod node_topology;
pub mod policy;
#[allow(unreachable_pub, reason = "the derive repeats a struct inside a function")]
mod queue;
pub mod requests;
#[allow(unreachable_pub, reason = "the derive repeats a struct inside a function")]
mod share_policy;

use std::borrow::Cow;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

pub use fabric::{Fabric, FabricError, FabricLevel, FabricSource, FabricSpec, FabricStatus, LevelStatus};
pub use health::{GradeSpec, HealthSpec, NextSpec, RepairSpec};
pub use node_topology::{
    DeviceSpec, GroupSpec, LinkSpec, MachineError, NicSpec, NodeTopology, NodeTopologySpec, OriginSpec,
};
pub use queue::{
    FadedUseStatus, LabelRequirement, LabelSelector, PROMISES_MAX, PlaceStatus, PoolSpec, PoolStatus,
    PromiseStatus, Queue, QueueNodesSpec, QueueSpec, QueueStatus, ReservedStatus, ShapeSpec, UsageStatus,
    WaitingStatus,
};
pub use share_policy::{BoostSpec, ClassSpec, SharePolicy, SharePolicySpec, SharePolicyStatus};

/// API group of all of them.
pub const GROUP: &str = "phalanx.dev";

/// The only name of resources of which a cluster has one.
pub const SINGLETON: &str = "default";

/// All definitions.
#[must_use]
pub fn all() -> [CustomResourceDefinition; 4] {
    [Queue::crd(), SharePolicy::crd(), Fabric::crd(), NodeTopology::crd()]
}

/// All definitions as YAML, with the name of the file that each belongs into.
///
/// # Errors
/// When the writer refuses a value; it has no known reason to.
pub fn documents() -> Result<Vec<(String, String)>, serde_saphyr::ser::Error> {
    let document = |crd: CustomResourceDefinition| {
        let name = crd.metadata.name.clone().unwrap_or_default();
        Ok((format!("{name}.yaml"), serde_saphyr::to_string(&crd)?))
    };
    all().into_iter().map(document).collect()
}

/// An amount as people write it: a whole number, or a number with a unit or a fraction as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    Number(i64),
    Text(String),
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // Without a bound the API server reckons that rules about it could cost too much.
        json_schema!({ "x-kubernetes-int-or-string": true, "maxLength": 32 })
    }
}

/// One aspect of how an object stands, as Kubernetes has it everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which aspect: `Accepted`.
    #[schemars(length(min = 1, max = 316))]
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(regex(pattern = "^(True|False|Unknown)$"))]
    pub status: String,
    /// Why, in one word.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// Why, in a sentence.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When the status last changed, RFC 3339.
    pub last_transition_time: String,
    /// The generation of the object that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
