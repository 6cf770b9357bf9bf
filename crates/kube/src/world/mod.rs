//! The world around the lifecycle of gangs: watches that never end, calls that are repeated within their deadlines, the lease that
//! says who decides.
//!
//! | module | what lives there |
//! |---|---|
//! | `watch` | lists and watches, as events |
//! | `kinds` | which kinds are served, and watched in which version |
//! | `devices` | the same for claims and devices |
//! | `bind` | one pod to its node |
//! | `claims` | claims for devices, given and given back |
//! | `call` | one request, until it is no use any more |
//! | `observe` | the watches alone, for a process that only reads |
//! | `lanes` | what the lifecycle asks for: bindings, stops, reports |
//! | `checkpoint` | pods that are told to save their work |
//! | `suspend` | owners that are suspended, and let go on |
//! | `explain` | reasons, written slowly and late |
//! | `groups` | conditions and phases of groups |
//! | `provision` | nodes that autoscalers are asked for |
//! | `lease` | leadership |
//! | `desk` | the event loop, a thread that owns the lifecycle |
//! | `gang_log` | what the log says of gangs |
//! | `trouble` | what it says of calls and watches that went wrong |
//! | `serve` | health and metrics, over HTTP |
//! | `metrics` | what is counted |
//! | `waits` | how long gangs wait for their start |
//! | `pulse` | whether desk and engine do their work |
//! | `traces` | spans, for a collector |
//! | `run` | all of it together |

mod bind;
mod call;
mod checkpoint;
mod claims;
mod desk;
mod devices;
mod explain;
mod gang_log;
mod groups;
mod kinds;
mod lanes;
mod lease;
mod metrics;
mod observe;
mod provision;
mod pulse;
mod run;
mod serve;
mod suspend;
mod traces;
mod trouble;
mod waits;
mod watch;

pub use call::ANSWER;
pub(crate) use kinds::{Sink, kinds, read_core, read_found};
pub use lease::{LeaseSettings, unique_holder as holder};
pub(crate) use observe::{Observed, Observer};
pub(crate) use run::told_to_end;
pub use run::{SchedulerError, Settings, run};
pub(crate) use serve::serve;
pub(crate) use trouble::Trouble;
pub(crate) use watch::Convert;
