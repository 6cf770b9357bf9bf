//! Grades of devices and nodes from evidence.
//!
//! A [`Grader`] is given Xids, samples of devices and network ports, and reports by people. It derives a grade for each device and for
//! each node, and says what changed as [`phalanx_model::Health`] facts. What was measured of the bandwidth of nodes becomes
//! [`phalanx_model::Bandwidth`] facts, which close nothing and are forgotten with time. A grade rises at once and falls only by time, by
//! a repair or by a person. Automation closes a limited share of the devices. The grader reads no clock: equal calls give
//! equal grades.

mod admission;
mod bandwidth;
mod breaker;
mod evidence;
mod grader;
mod lemon;
mod policy;
mod ports;
mod report;
mod restart;
mod state;
mod subject;
mod vitals;
pub mod xid;

pub use admission::{Admission, Closing};
pub use evidence::{Evidence, Seen};
pub use grader::Grader;
pub use policy::Policy;
pub use report::{Line, Next};
pub use restart::{Kept, Machine};
pub use state::State;
pub use xid::{Action, Repair};

pub(crate) const MINUTE_MS: u64 = 60_000;
