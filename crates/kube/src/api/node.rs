//! Nodes, as far as a scheduler looks at them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeCondition, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};

/// Conditions with which administrators say, from Kubernetes 1.37 on, that a node is about to be, is being, or has been
/// cleared. Like a cordon, each closes the node to new pods while it is true; kube-scheduler 1.37 ignores them.
const CLOSING: [&str; 5] = [
    "GracefulNodeShutdownInProgress",
    "DrainInProgress",
    "Drained",
    "MaintenanceInProgress",
    "MaintenancePlanned",
];

#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = k8s_openapi::api::core::v1::Node)]
pub struct Node {
    #[serde(deserialize_with = "super::meta::used")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: NodeSpec,
    #[serde(default)]
    pub status: NodeStatus,
    /// The sign by which it counts as broken, in words: see [`crate::recognise::BrokenSigns`]. Found when it is observed.
    #[serde(skip)]
    pub broken: Option<Arc<str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// Of extended resources alone: what there was before some of it broke.
    #[serde(deserialize_with = "extended", skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Quantity>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// Features that the kubelet says it has, of those that pods may depend on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub declared_features: Vec<String>,
}

/// Reads a list of resources and keeps those that are extended.
fn extended<'de, D: Deserializer<'de>>(reader: D) -> Result<BTreeMap<String, Quantity>, D::Error> {
    let mut all = BTreeMap::<String, Quantity>::deserialize(reader)?;
    all.retain(|name, _| name.contains('/'));
    Ok(all)
}

/// The condition of a node that closes it to new pods.
pub(crate) fn closing(conditions: &[NodeCondition]) -> Option<&'static str> {
    let is_true = |name: &&str| conditions.iter().any(|one| one.type_ == **name && one.status == "True");
    CLOSING.into_iter().find(is_true)
}

impl Node {
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// What closes the node to new pods, in words.
    #[must_use]
    pub fn closed_by(&self) -> Option<Cow<'_, str>> {
        let closing = closing(&self.status.conditions).map(|name| Cow::Owned(format!("condition {name}")));
        closing.or_else(|| self.broken.as_deref().map(Cow::Borrowed))
    }

    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }
}
