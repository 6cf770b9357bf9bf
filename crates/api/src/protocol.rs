//! What worlds are asked and what they answer, whoever asks: verbs and their answers. [`crate::http`] has a route for each
//! verb. Who asks is not in them.
//!
//! Documents carry [`VERSION`] where people see them; fields are only ever added within one version.

mod access;
mod advise;
mod array;
mod asks;
mod audit;
mod bill;
mod cluster;
mod defrag;
mod endpoints;
mod filter;
mod health;
mod jobs;
mod overview;
mod progress;
mod terminal;
mod watch;
mod what_if;

use std::collections::BTreeMap;

use phalanx_model::{Job, JobId, JobUpdate, NodeName, Queue, QueueName, Settings, Snapshot, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use access::{NewTokenView, Role, TOKEN_MS_MAX, TOKEN_NAME_CHARS_MAX, TokenAsk, TokenView, UserView};
pub use advise::{AdviceView, AdviseAsk, JobAdvice};
pub use array::{ArrayView, JobRef};
pub use asks::{BoostAsk, LogAsk, News, WindowAsk};
pub use audit::{AuditFilter, AuditView, ClosedBy, REASON_CHARS_MAX};
pub use bill::{BillAsk, BillBy, BillLine, BillView};
pub use cluster::{
    BudgetView, HeldView, NodeView, NodeWindowView, NodesView, QueueDetailView, QueueView, TopologyView,
    WaitingView, WindowKind, WindowView,
};
pub use defrag::{DefragView, MoveView};
pub use endpoints::{EndpointState, EndpointView, EndpointsView};
pub use filter::{Filtered, JobFilter, NodeFilter, NodeState, PreparedFilter, Wanted};
pub use health::{HealthFinding, HealthReport, HealthView, PortView, PressureView, SampleView, hardware};
pub use jobs::{
    DryRunView, ElasticView, EventView, FirstFitView, GangView, HistoryView, JobView, MemberView,
    PredictedView, RoleView, ServiceView, SpotView, UsageView, WhyView,
};
pub use overview::{
    DeviceCounts, HELD_BY_OTHERS, JobCounts, MapJob, MapNode, MapView, NodeCounts, NodeDetailView,
    OverviewView, TAKES_NO_WORK, WaitingReason,
};
pub use progress::{CheckpointView, ProgressView, StragglerView};
pub use terminal::{ExecAsk, TerminalView};
pub use watch::{ChangeKind, ChangeView};
pub use what_if::{
    AddedNodes, CourseStart, CourseStop, CourseView, CourseWait, QueueCourseView, WhatIfAsk, WhatIfGang,
    WhatIfQueue, WhatIfView,
};

/// Version of every shape below; shown as `apiVersion` in `-o json`.
pub const VERSION: &str = "phalanx/v1";
/// What a request carries over the control socket is at most this long.
pub const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Items that one answer lists at most.
pub(crate) const LIMIT_MAX: u32 = 10_000;
/// Jobs that one request waits for.
pub const WAIT_JOBS_MAX: usize = 10_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Answers [`Answer::Pong`].
    Ping,
    /// Who the daemon takes the caller for.
    Whoami,
    /// The cluster in numbers.
    Overview,
    /// Every device with who holds it.
    Map,
    /// One node with its hardware and its health.
    Node {
        node: NodeName,
    },
    /// Streams [`Answer::Change`] as things change, after the change of this number; [`Answer::Reset`] where the changes since
    /// then are no longer known.
    Watch {
        #[serde(default)]
        after: Option<u64>,
    },
    /// A token with which programs ask in the name of the caller.
    NewToken(TokenAsk),
    /// The caller's tokens; of all users for operators.
    Tokens,
    /// A token is no longer valid.
    RevokeToken {
        name: String,
        /// Another user's, for operators.
        #[serde(default)]
        uid: Option<u32>,
    },
    /// `job.id`, `job.owner` and `job.submitted_at` are set by the daemon. Secret values go to files that
    /// only the owner reads, never to the journal.
    Submit {
        job: Box<Job>,
        secrets: BTreeMap<String, String>,
    },
    /// Submits what a job file says, as JSON or YAML. Its folder is the home of the caller unless the file names one.
    SubmitFile {
        text: String,
        /// In place of the file's `key`.
        #[serde(default)]
        key: Option<String>,
        /// Answers [`Answer::DryRun`], and nothing is submitted.
        #[serde(default)]
        dry_run: bool,
    },
    /// What [`Verb::Submit`] would do; nothing is submitted.
    DryRun {
        job: Box<Job>,
    },
    List {
        /// Also those that have ended.
        finished: bool,
        #[serde(default)]
        filter: JobFilter,
        /// At most so many, the newest.
        limit: u32,
    },
    Get {
        job: JobRef,
    },
    Why {
        job: JobRef,
    },
    /// Streams [`Answer::Log`] lines, then [`Answer::End`].
    Logs {
        job: JobRef,
        #[serde(flatten)]
        ask: LogAsk,
    },
    /// Streams [`Answer::Event`] lines until the job has finished, then [`Answer::Job`].
    Follow {
        job: JobRef,
    },
    /// Streams [`Answer::Job`] for each of these jobs when it has ended, then [`Answer::End`].
    Wait {
        /// At most [`WAIT_JOBS_MAX`].
        jobs: Vec<JobId>,
    },
    /// Where the terminal of a running job is; answers [`Answer::Terminal`].
    Terminal {
        job: JobRef,
    },
    /// Starts a command beside a rank of a running job; answers [`Answer::Terminal`]. The command begins when its client
    /// comes, and ends when that goes.
    Exec {
        job: JobRef,
        ask: ExecAsk,
    },
    Cancel {
        job: JobRef,
    },
    /// A part of the nodes; answers [`Answer::Nodes`].
    FindNodes(NodeFilter),
    /// Everything about the machines, for pictures and checks.
    Topology,
    Queues,
    /// One queue with every term of the order, and what waits in it.
    Queue {
        queue: QueueName,
    },
    /// The whole tree: queues that are not named are gone. For operators.
    ApplyQueues {
        settings: Box<Settings>,
        queues: Vec<Queue>,
    },
    /// It waits until it is released; what runs goes on.
    Hold {
        job: JobRef,
    },
    Release {
        job: JobRef,
    },
    /// More priority for a while, or no longer. For operators.
    Boost {
        job: JobRef,
        boost: Option<BoostAsk>,
    },
    /// Other values for what may change of a job that has not ended.
    Update {
        job: JobRef,
        update: JobUpdate,
    },
    /// What runs of a job is stopped and starts again; with `hold`, once it is released.
    Requeue {
        job: JobRef,
        #[serde(default)]
        hold: bool,
    },
    /// So many replicas of a service are wanted; `None`: as many as its metric needs.
    Scale {
        job: JobRef,
        replicas: Option<u32>,
    },
    /// Where the replicas of a service are reached; with the distances from a node if one is given.
    Endpoints {
        job: JobRef,
        #[serde(default)]
        from: Option<NodeName>,
    },
    /// Moves that open a place for a job that waits, or for the first for which they can; only operators may have them done.
    Defrag {
        #[serde(default)]
        job: Option<JobRef>,
        #[serde(default)]
        apply: bool,
    },
    /// Another size for a job's elastic gangs, in members, from their next boundary on; `None`: they grow by themselves.
    Resize {
        job: JobRef,
        size: Option<u32>,
    },
    /// What a rank has to say of its gang; its owner and operators may.
    Tell {
        job: JobRef,
        /// Index of the gang in its job.
        gang: u32,
        news: News,
    },
    /// What happened: to one job in order, or the newest of all.
    History {
        job: Option<JobRef>,
        limit: u32,
    },
    /// Who changed what, the newest. Users see what they did themselves, operators all of it.
    Audit {
        #[serde(default)]
        filter: AuditFilter,
        limit: u32,
    },
    /// What devices were for, and what it cost. Users see what their own jobs held, operators all of it.
    Bill(BillAsk),
    /// What to ask for next time. Users see it of their own jobs, operators of all.
    Advise(AdviseAsk),
    Cordon {
        node: NodeName,
        /// At most [`REASON_CHARS_MAX`] characters.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Now; or so that it is empty by a time, which leaves it to what ends before.
    Drain {
        node: NodeName,
        #[serde(default)]
        by: Option<Timestamp>,
        #[serde(default)]
        reason: Option<String>,
    },
    Uncordon {
        node: NodeName,
    },
    /// The health of a node and its devices, or of all.
    Health {
        #[serde(default)]
        node: Option<NodeName>,
    },
    /// Evidence about a node or a device. For operators.
    ReportHealth(HealthReport),
    /// A node or a device is repaired. For operators.
    ClearHealth {
        node: NodeName,
        /// `None`: the node itself.
        device: Option<u32>,
    },
    /// What is to come: windows, drains by a time, nodes that are taken back.
    Calendar,
    /// A window of maintenance, or a block for a queue. For operators.
    AddWindow(WindowAsk),
    /// Calls off windows of these nodes: all, or those that begin in the second of this time. For operators.
    RemoveWindow {
        nodes: Vec<String>,
        begins_at: Option<Timestamp>,
    },
    /// A node is taken back so soon; as soon as the cluster file says where nothing is said. For operators.
    NoticeSpot {
        node: NodeName,
        in_ms: Option<u64>,
    },
    /// All that rebuilds the scheduler as it is now, elsewhere.
    Snapshot,
    /// What would change: the simulator continues from a snapshot of now, as it is and with these changes. Nothing is changed.
    /// For operators.
    WhatIf(WhatIfAsk),
    /// Ends the daemon; jobs go on and are adopted by the next one.
    Stop,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Pong {
        version: String,
        pid: u32,
        epoch: u64,
    },
    /// `existing`: the key was used before, and this is that job.
    Submitted {
        job: JobId,
        name: String,
        existing: bool,
    },
    User(UserView),
    Overview(Box<OverviewView>),
    Map(MapView),
    Node(Box<NodeDetailView>),
    Change(ChangeView),
    /// What is known of the past begins here: all that is shown is to be read again.
    Reset {
        id: u64,
    },
    Token(NewTokenView),
    Tokens(Vec<TokenView>),
    DryRun(DryRunView),
    Jobs(Vec<JobView>),
    Job(Box<JobView>),
    Why(WhyView),
    Log {
        /// Number of the task of an array.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<u32>,
        rank: u32,
        attempt: u32,
        /// When it was written, to a second, by the wall clock; only if it was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
        line: String,
    },
    Event {
        at: Timestamp,
        what: String,
        detail: String,
    },
    Endpoints(EndpointsView),
    Defrag(Box<DefragView>),
    Nodes(NodesView),
    Topology(TopologyView),
    /// Parents before their children.
    Queues(Vec<QueueView>),
    Queue(Box<QueueDetailView>),
    History(Vec<HistoryView>),
    /// Oldest first.
    Audit(Vec<AuditView>),
    Bill(BillView),
    Advice(AdviceView),
    Health(HealthView),
    /// By when they begin.
    Calendar(Vec<WindowView>),
    Snapshot(Box<Snapshot>),
    WhatIf(Box<WhatIfView>),
    Terminal(TerminalView),
    Done {
        detail: String,
    },
    /// A stream is over.
    End,
    Error(ErrorView),
}

/// An error, as the user reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorView {
    pub code: ErrorCode,
    pub message: String,
    /// What to do; may be empty.
    pub hint: String,
    /// The field that is wrong, where one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<WrongField>,
}

/// A field of a file that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WrongField {
    /// `resources.gpus`.
    pub path: String,
    /// What is wrong with it, in one line.
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    BadRequest,
    NotFound,
    Forbidden,
    Rejected,
    /// The journal or the disk; try again later.
    Unavailable,
    Internal,
}

impl Verb {
    /// It changes nothing, so that a token that only reads will do.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Ping
                | Self::Whoami
                | Self::Overview
                | Self::Map
                | Self::Node { .. }
                | Self::Watch { .. }
                | Self::Tokens
                | Self::SubmitFile { dry_run: true, .. }
                | Self::DryRun { .. }
                | Self::List { .. }
                | Self::Get { .. }
                | Self::Why { .. }
                | Self::Logs { .. }
                | Self::Follow { .. }
                | Self::Wait { .. }
                | Self::FindNodes(_)
                | Self::Topology
                | Self::Queues
                | Self::Queue { .. }
                | Self::Endpoints { .. }
                | Self::Defrag { apply: false, .. }
                | Self::History { .. }
                | Self::Audit { .. }
                | Self::Bill(_)
                | Self::Advise(_)
                | Self::Health { .. }
                | Self::Calendar
                | Self::Snapshot
                | Self::WhatIf(_)
        )
    }
}

impl ErrorView {
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into(), field: None }
    }
}
