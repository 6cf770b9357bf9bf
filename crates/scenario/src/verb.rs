//! What a scenario says, one verb per line.

use phalanx_model::later::{Calendar, SpotNotice};
use phalanx_model::{
    Amounts, EndOf, Job, JobName, LevelName, Levels, Node, NodeName, Queue, QueueName, Settings, Target,
    Timestamp,
};
use serde::{Deserialize, Serialize};

/// One line, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Counts from 1.
    pub number: usize,
    pub text: String,
    pub verb: Verb,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// With all limits and tori that were declared so far.
    Levels(Levels),
    /// What one domain of the level has outwards, in MB/s (10^6 bytes, one way).
    Uplink {
        level: LevelName,
        mb_per_s: u32,
    },
    /// A pattern stands for several nodes.
    Nodes(Vec<Node>),
    Submit(Box<Submission>),
    Advance {
        ms: u64,
    },
    Exit {
        job: JobName,
        rank: u32,
        code: i32,
    },
    KillRank {
        job: JobName,
        rank: u32,
    },
    Cordon(NodeName),
    Uncordon(NodeName),
    Drain(NodeName),
    /// A node is not available for a while, or kept for a queue.
    Window(Calendar),
    /// It is taken back then.
    SpotNotice(SpotNotice),
    /// The machine is gone, with everything on it.
    NodeLost(NodeName),
    /// It is there again, as it was declared.
    NodeBack(NodeName),
    Cancel(JobName),
    /// A queue is there, or is another than before.
    Queue(Box<Queue>),
    QueueGone(QueueName),
    /// With all that was said of classes and settings so far.
    Settings(Box<Settings>),
    Hold(JobName),
    Release(JobName),
    Boost {
        job: JobName,
        priority: i32,
        until: Timestamp,
    },
    /// The ranks of a job save a checkpoint now.
    Saved(JobName),
    /// So many replicas are wanted.
    Scale {
        job: JobName,
        replicas: u32,
    },
    /// From now on its replicas have so much to do together.
    Load {
        job: JobName,
        of: Target,
    },
    /// Somebody uses a session.
    Use(JobName),
    /// The engine dies and is built again from what the world knows.
    Crash,
    Show,
    ShowQueues,
    Why(JobName),
    Expect(Expectation),
}

/// A job, and how its members behave once started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// Without its number and time, which the world gives.
    pub job: Job,
    /// Jobs whose ends it waits for: they have numbers once they are submitted.
    pub after: Vec<(JobName, EndOf)>,
    pub script: Script,
}

/// How every member of a job behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// From the order to start until it stands at the gate; never if `None`.
    pub starts_ms: Option<u64>,
    /// From the gate to the end of its program; without end if `None`.
    pub runs_ms: Option<u64>,
    /// What its program ends with.
    pub code: i32,
    /// From SIGTERM to its end; it ignores SIGTERM if `None`.
    pub term_ms: Option<u64>,
    /// This rank cannot be started.
    pub fail_start: Option<u32>,
    /// While it runs, its gang saves a checkpoint every so often; when it resumes, only the rest has to run.
    pub saves_ms: Option<u64>,
    /// From an advisory signal to its end, where it saves: it saves what it has done until then.
    pub save_takes_ms: u64,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            starts_ms: Some(1_000),
            runs_ms: None,
            code: 0,
            term_ms: Some(1_000),
            fail_start: None,
            saves_ms: None,
            save_takes_ms: 1_000,
        }
    }
}

/// What must be so; a scenario fails at the line where it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// No gang holds a device.
    NothingHeld,
    /// The job's word (`pending`, `running`, `failed`, …, or `rejected`), and a pending one's reason.
    Job { job: JobName, state: String, reason: Option<String> },
    /// The job holds devices on exactly these nodes.
    On { job: JobName, nodes: Vec<NodeName> },
    /// The job waits, and capacity is held for it on exactly these nodes.
    Held { job: JobName, nodes: Vec<NodeName> },
    /// The job had to make way so often.
    Evicted { job: JobName, times: u32 },
    /// So many of its gangs run.
    Runs { job: JobName, gangs: u32 },
    /// The gangs of a queue and of those below it use exactly so much of each.
    Uses { queue: QueueName, amounts: Amounts },
}
