//! What people see: the state of an engine turned into the documents of the protocol.
//!
//! Every world answers with these functions. [`Books`] says which jobs a reader sees: names of other jobs are in no
//! document, and what others hold is shown as held, without saying by which job.

#![forbid(unsafe_code)]

mod array;
mod books;
mod calendar;
mod counts;
mod first_fit;
mod jobs;
mod map;
mod nodes;
mod predict;
mod queues;
mod service;
mod told;

use phalanx_model::{DeviceMask, NodeName};

pub use books::Books;
pub use calendar::calendar;
pub use counts::{counts, job_counts, waiting};
pub use jobs::{
    Reasons, changed, dry_run, job, jobs, newest, reasons, reports, tasks, topology, unkept_spares,
};
pub use map::map;
pub use nodes::{Found, Held, find_nodes, held, node};
pub use predict::Map;
pub use queues::{queue, queues};
pub use told::why as why_sentences;

/// The devices of a node that processes of unknown jobs hold.
pub type Unknown<'a> = &'a dyn Fn(&NodeName) -> DeviceMask;
