//! The snapshot of a live system, from which what-if questions are answered elsewhere.

use serde::{Deserialize, Serialize};

use crate::{Gang, Input, Job, Program, Role, Timestamp};

/// All facts that rebuild the state of an engine at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Always [`Snapshot::FORMAT`] when written.
    pub format: u32,
    /// The version of the source engine.
    pub engine: String,
    /// The engine's clock; Unix time of live worlds.
    pub taken_at: Timestamp,
    /// With these facts at `taken_at`, a new engine is equal to the source, except for the programs of jobs: no
    /// decision depends on them, and they are private to their owners.
    pub facts: Vec<Input>,
}

impl Snapshot {
    pub const FORMAT: u32 = 1;

    /// The snapshot of an engine with this version and these facts.
    #[must_use]
    pub fn of(engine: &str, taken_at: Timestamp, mut facts: Vec<Input>) -> Self {
        for fact in &mut facts {
            if let Input::JobObserved { job, .. } = fact {
                **job = without_programs(job);
            }
        }
        Self { format: Self::FORMAT, engine: engine.to_owned(), taken_at, facts }
    }
}

fn without_programs(job: &Job) -> Job {
    let bare_role = |role: &Role| Role { program: None, ..role.clone() };
    let bare = |gang: &Gang| Gang {
        program: Program::default(),
        roles: gang.roles.iter().map(bare_role).collect(),
        ..gang.clone()
    };
    Job { gangs: job.gangs.iter().map(bare).collect(), ..job.clone() }
}
