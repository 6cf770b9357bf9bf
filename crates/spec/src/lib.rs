//! What users write: job, cluster and queue files, parsed, validated, turned into the model.
//!
//! A file is read into a struct whose values know where they were written ([`At`]); flags become the same
//! struct. Turning that into the model checks what concerns more than one value. Every failure is a
//! [`SpecError`], which shows the line and what would be accepted.

#![forbid(unsafe_code)]

pub mod cluster;
pub mod error;
pub mod flags;
pub mod gpus;
pub mod job;
pub mod moment;
pub mod nodes;
pub mod parallel;
pub mod pattern;
pub mod place;
mod program;
pub mod quantity;
pub mod queues;
pub mod resources;
pub mod roles;
pub mod scalar;
pub mod schema;
pub mod service;
mod shape;
mod short;
mod submit;
mod together;
pub mod topology;
pub mod turn;
mod yaml;

pub use cluster::{
    BuildError, Cluster, ClusterFile, DeclaredDevices, DeclaredHardware, DeclaredLink, DeclaredNode,
    Hardware, LinkFile, MeasuredEnd, MeasuredFile, MeasuredPair, NodeFile, Price, SpotFile, UplinkFile,
    WindowFile, Written,
};
pub use error::{Place, Source, SpecError};
pub use flags::SubmitFlags;
pub use job::JobFile;
pub use place::{At, Scalar};
pub use program::RANKS_PER_NODE_ENV;
pub use queues::{Preset, QueueFile, SharePolicy};
pub use schema::{cluster_schema, job_schema, queues_schema};
pub use submit::SubmitContext;
pub use yaml::{FILE_BYTES_MAX, from_yaml};
