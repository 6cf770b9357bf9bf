//! What the scheduler says of gangs, in conditions, events and statuses.
//!
//! | module | what lives there |
//! |---|---|
//! | `explain` | why a gang waits and what happens to it, on its pods, its owner and its group |
//! | `waits` | why gangs wait, in the conditions of pods and the statuses of queues |
//! | `shortage` | what a gang requests that no node has |
//! | `soft_constraints` | preferences that the scheduler does not weigh |
//! | `promises` | what waiting gangs were promised, for the next leader |
//! | `provision` | what autoscalers are asked for |
//! | `volcano` | the status of Volcano's groups |
//! | `overcommit` | nodes whose pods hold more than they have |

pub(crate) mod explain;
pub(crate) mod overcommit;
pub mod promises;
pub(crate) mod provision;
pub(crate) mod shortage;
pub(crate) mod soft_constraints;
pub(crate) mod volcano;
pub mod waits;
