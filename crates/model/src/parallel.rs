//! The axes of a gang's parallelism grid.

use serde::{Deserialize, Serialize};

/// The kind of an axis: the purpose of the communication of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AxisKind {
    /// Shares every layer: its groups stay on one node.
    Tensor,
    Expert,
    Data,
    Pipeline,
}

/// The communication pattern of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// A ring in the order of the axis, twice around.
    AllReduce,
    /// A ring, once around; bytes are what every rank has in the end. A reduce-scatter costs the same.
    AllGather,
    /// Bytes are what one rank sends to all ranks together, itself among them.
    AllToAll,
    /// Each rank to the next and back, as stages of a pipeline do.
    PointToPoint,
}

/// One axis. Every `degree` ranks that differ only in their position on the axis form a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Axis {
    pub kind: AxisKind,
    /// Ranks of one group.
    pub degree: u32,
    pub collective: Collective,
    /// Bytes of one call, as the collective counts them.
    pub bytes: u64,
    /// Calls per step.
    pub calls: u32,
}

impl AxisKind {
    /// The kind as users write and read it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tensor => "tensor",
            Self::Expert => "expert",
            Self::Data => "data",
            Self::Pipeline => "pipeline",
        }
    }
}
