//! How the ranks of a gang are laid out for parallel training: the axes of its grid.

use serde::{Deserialize, Serialize};

/// For whom a group of ranks talks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AxisKind {
    /// Shares every layer: its groups stay on one node.
    Tensor,
    Expert,
    Data,
    Pipeline,
}

/// How the ranks of a group talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// One axis: every `degree` ranks that differ in nothing but their place on it are a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// The word users write and read.
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
