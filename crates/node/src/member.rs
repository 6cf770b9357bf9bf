//! The daemon's side of a member: start its shim, find it again, hear from it, clean up after it.

mod adopt;
mod handle;
mod spawn;
mod spec;

pub use adopt::{AdoptError, Found, Inspected, ReapError, adopt, cpu_ms, inspect, reap, spec_of};
pub use handle::{BesideError, Events, Handle, HandleError, Orders};
pub use spawn::{SpawnError, spawn};
pub use spec::{IsolationChoice, MemberSpec, Secret, SpecError};
