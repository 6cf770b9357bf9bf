//! Replicas of a service, for routers of requests.

use phalanx_model::{DeviceMask, DomainName, JobId, LevelName, NodeName, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointsView {
    pub job: JobId,
    pub name: String,
    /// Names of the levels of [`EndpointView::path`], outermost first.
    pub levels: Vec<LevelName>,
    /// The nearest to [`Self::from`] first, then by replica.
    pub endpoints: Vec<EndpointView>,
    /// The node of which the distances are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<NodeName>,
}

/// A replica that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointView {
    pub replica: u32,
    pub attempt: u32,
    pub state: EndpointState,
    /// The node of its rank 0, which listens.
    pub node: NodeName,
    /// The domains of the node, outermost first.
    pub path: Vec<DomainName>,
    pub devices: DeviceMask,
    /// The address of the node.
    pub address: String,
    /// As the replica reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Requests that the replica serves now, as it reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<u32>,
    /// Requests that the replica serves at once, as it reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// Its capacity in proportion to the largest one of the service, from 1 to 256; 256 for all if one reports none.
    pub weight: u32,
    /// Levels to the smallest domain that also holds the given node: 0 is the node itself, 1 its innermost domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distance: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<Timestamp>,
    /// Why the line of the replica cannot be parsed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointState {
    /// It takes requests.
    Ready,
    /// It reported no port yet, or withdrew it.
    NotReady,
    /// It is being stopped.
    Stopping,
}

impl EndpointState {
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady => "not ready",
            Self::Stopping => "stopping",
        }
    }
}
