//! The choice among gangs that may be preempted: the placement of the preempting gang and its victims, chosen together.

#![allow(
    clippy::cast_possible_truncation,
    reason = "nodes, domains, levels and classes: far fewer than 2^32"
)]

mod candidate;
mod knapsack;
mod select;
mod sum;
mod take;
mod useful;
mod weigh;

pub(crate) use candidate::Candidate;
pub(crate) use select::{Selected, select};
