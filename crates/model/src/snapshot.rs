//! What a live system hands out, so that it can be asked elsewhere what would happen.

use serde::{Deserialize, Serialize};

use crate::{Gang, Input, Job, Program, Role, Timestamp};

/// All that rebuilds an engine as it was at a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Always [`Snapshot::FORMAT`] when written.
    pub format: u32,
    /// Version of the engine that it was taken from.
    pub engine: String,
    /// The engine's clock; Unix time of live worlds.
    pub taken_at: Timestamp,
    /// Told to a new engine at that time, they make it equal to the one that they come from, but for the programs of jobs:
    /// no decision rests on these, and they are nobody else's business.
    pub facts: Vec<Input>,
}

impl Snapshot {
    pub const FORMAT: u32 = 1;

    /// Of an engine of this version, by the facts that rebuild it.
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
