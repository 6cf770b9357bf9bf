//! The verbs of a scenario, one per line.

use phalanx_model::later::{Calendar, SpotNotice};
use phalanx_model::{
    Amounts, Bandwidth, EndOf, Health, Job, JobName, LevelName, Levels, Node, NodeName, Queue, QueueName,
    Settings, Target, Timestamp,
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
    /// The levels, with all limits and tori that were declared so far.
    Levels(Levels),
    /// The uplink of one domain of the level, in MB/s (10^6 bytes, one way).
    Uplink {
        level: LevelName,
        mb_per_s: u32,
    },
    /// The nodes of a name or a pattern.
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
    /// Jobs that may move open a place for this one.
    Defrag(JobName),
    /// Devices of a node, or the node itself, have another grade of health.
    Grade(Health),
    /// A link was measured. The world does not let the measurement decay: `100%` ends it.
    Measure(Bandwidth),
    /// A node is not available for a time, or is reserved for a queue.
    Window(Calendar),
    /// A spot node will be reclaimed at this time.
    SpotNotice(SpotNotice),
    /// The node is lost, with all processes on it.
    NodeLost(NodeName),
    /// The node is back, as it was declared.
    NodeBack(NodeName),
    Cancel(JobName),
    /// A queue is declared or changed.
    Queue(Box<Queue>),
    QueueGone(QueueName),
    /// The settings, with all declarations of classes and settings so far.
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
    /// The desired number of replicas of a service.
    Scale {
        job: JobName,
        replicas: u32,
    },
    /// The load that the replicas of a service share from now on.
    Load {
        job: JobName,
        of: Target,
    },
    /// A session is used.
    Use(JobName),
    /// The engine crashes, and is rebuilt from the facts that the world knows.
    Crash,
    Show,
    ShowQueues,
    Why(JobName),
    Expect(Expectation),
}

/// A job with the behaviour of its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The job without its number and time, which the world assigns.
    pub job: Job,
    /// The names of its dependencies, which have numbers once they are submitted.
    pub after: Vec<(JobName, EndOf)>,
    pub script: Script,
}

/// The behaviour of every member of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The time from the start order to the start barrier. `None`: it never gets there.
    pub starts_ms: Option<u64>,
    /// The running time of its program. `None`: without end.
    pub runs_ms: Option<u64>,
    /// The exit code of its program.
    pub code: i32,
    /// The time from SIGTERM to its exit. `None`: it ignores SIGTERM.
    pub term_ms: Option<u64>,
    /// This rank cannot be started.
    pub fail_start: Option<u32>,
    /// The interval of checkpoints while its gang runs. When the gang resumes, only the remaining work has to run.
    pub saves_ms: Option<u64>,
    /// The time from an advisory signal to its exit, if it saves checkpoints: it saves all work until the signal.
    pub save_takes_ms: u64,
    /// How fast it works with 1, 2, … ranks, in thousandths: `runs_ms` is its running time at 1000. With more ranks than are
    /// listed it works at 1000.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speeds_milli: Vec<u32>,
}

impl Script {
    /// How fast it works with this number of ranks, in thousandths and at least 1.
    #[must_use]
    pub fn speed_milli(&self, ranks: usize) -> u64 {
        let speed = ranks.checked_sub(1).and_then(|at| self.speeds_milli.get(at));
        speed.map_or(1_000, |speed| u64::from(*speed).max(1))
    }
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
            speeds_milli: Vec::new(),
        }
    }
}

/// An expectation. A scenario fails at the line of a wrong expectation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// No gang holds a device.
    NothingHeld,
    /// The state of the job (`pending`, `running`, `failed`, …, or `rejected`), and the reason if it is pending.
    Job { job: JobName, state: String, reason: Option<String> },
    /// The job holds devices on exactly these nodes.
    On { job: JobName, nodes: Vec<NodeName> },
    /// The job is pending, and has a reservation on exactly these nodes.
    Held { job: JobName, nodes: Vec<NodeName> },
    /// The job was preempted this many times.
    Evicted { job: JobName, times: u32 },
    /// This many gangs of the job run.
    Runs { job: JobName, gangs: u32 },
    /// The gangs of a queue and its descendants use exactly these amounts.
    Uses { queue: QueueName, amounts: Amounts },
}
