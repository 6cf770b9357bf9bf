//! What the engine says: changes after each step, and on demand why a gang waits.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::queue::Resource;
use crate::{
    DomainName, Ending, GangId, JobId, Leave, LevelName, NodeName, NodeSet, Placement, QueueName, Reserved,
    Resize, ResourceName, RoleName, Segment, Spread, StopCause, Timestamp,
};

/// One thing that changed in a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    JobAccepted {
        job: JobId,
    },
    JobRejected {
        job: JobId,
        why: Rejection,
    },
    /// A fact that could not be used: what and why.
    InputRejected {
        what: String,
        why: String,
    },
    GangPlaced {
        gang: GangId,
        attempt: u32,
        placement: Placement,
    },
    GangRunning {
        gang: GangId,
        attempt: u32,
    },
    GangStopping {
        gang: GangId,
        attempt: u32,
        cause: StopCause,
    },
    /// All of an attempt's processes are gone and it will be tried again.
    GangRetrying {
        gang: GangId,
        failures: u32,
        not_before: Timestamp,
    },
    /// Capacity is held for a gang that waits.
    GangReserved {
        gang: GangId,
        reserved: Reserved,
    },
    /// An elastic gang is to have another size: from its next boundary on, or at once where it has to make way.
    ResizeAsked {
        gang: GangId,
        resize: Resize,
    },
    /// It is no longer held, and the gang has not started: why.
    ReservationDropped {
        gang: GangId,
        why: String,
    },
    GangFinished {
        gang: GangId,
        ending: Ending,
    },
    JobFinished {
        job: JobId,
        ending: Ending,
    },
    /// More or fewer replicas of a service are wanted than before.
    ServiceScaled {
        job: JobId,
        before: u32,
        replicas: u32,
        /// What its replicas said of its metric, together, where it was that: in thousandths of the unit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        load_milli: Option<u64>,
    },
    /// A replica is to leave its nodes once another runs in its stead.
    ReplicaLeaves {
        gang: GangId,
        leave: Leave,
    },
    /// It need not.
    ReplicaStays {
        gang: GangId,
    },
    /// One that runs took over the number of one that leaves.
    ReplicaReplaced {
        gang: GangId,
        by: GangId,
    },
    /// A pending gang waits for another reason than before.
    ReasonChanged {
        gang: GangId,
        reason: Reason,
    },
}

/// Why a submission was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// Not an error for the user: the job exists already.
    #[error("this owner submitted job {existing} with this key already")]
    DuplicateKey { existing: JobId },
    #[error("job {existing} already has this number")]
    DuplicateId { existing: JobId },
    #[error(
        "a gang of {} can never fit: the empty cluster has room for {largest} {where_}",
        members(*asked)
    )]
    LargerThanCluster { asked: u32, largest: u32, where_: String },
    #[error("no queue is named {queue}; this cluster has {known}")]
    UnknownQueue { queue: QueueName, known: String },
    #[error("no level is named {level}; this cluster has {known}")]
    UnknownLevel { level: LevelName, known: String },
    #[error("{field}: {why}")]
    BadField { field: String, why: String },
}

/// Why a gang waits: a stable word, and what the sentence needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Not looked at yet.
    None,
    /// Not enough is free anywhere.
    Resources {
        asked: u32,
        fits: u32,
        /// The segments that it comes in, widest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        segments: Vec<Segment>,
    },
    /// Enough is free in all, but not inside one domain of the level it must have.
    Topology {
        level: LevelName,
        asked: u32,
        best: u32,
        best_domain: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        segments: Vec<Segment>,
    },
    /// Enough is free in all, but not on enough nodes: the gang needs equal parts on each.
    Nodes { asked: u32, each: u32, fits: u32, best: u32, best_node: String },
    /// No box of chips of that shape is free.
    Shape {
        /// Sides, as `4x4x8`.
        asked: String,
        /// Its chips.
        chips: u32,
        /// How many of them are free in the best place, which is in this torus.
        best: u32,
        torus: String,
        /// Free chips of that torus.
        free: u32,
        /// The largest shape that is free there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        largest: Option<String>,
    },
    /// Enough is free, and it waits for a closer place until then.
    PreferredWait { level: LevelName, until: Timestamp },
    /// Capacity is held for an earlier gang, which starts at that time at the latest where that is known.
    Priority {
        ahead: GangId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// It would fit, if it ended before windows of the calendar begin, or they were not.
    Window {
        /// Nodes that it may not use for them.
        nodes: u32,
        /// When the first of the windows begins, or began.
        begins_at: Timestamp,
        /// When the first of them ends.
        ends_at: Timestamp,
    },
    /// Its place is held, and gangs that run there were told to make way.
    Preempting { victims: Vec<GangId> },
    /// Its queue, or one above it, may not use more.
    QueueLimit(QueueLimit),
    /// Somebody holds it back.
    Held { by: String },
    /// Others have to end first.
    Dependency { jobs: Vec<JobId> },
    /// So many tasks of its array run already.
    ArrayLimit { running_max: u32 },
    /// So many replicas of its service are wanted, and it is one more.
    Resting { replicas: u32 },
    /// It was asked not to start before.
    BeginTime { at: Timestamp },
    /// A failed start or run is tried again then.
    BackOff { until: Timestamp },
    /// It would fit, were nodes not cordoned or draining; or it names nodes that are not there.
    NodeNotAvailable { nodes: Vec<NodeName> },
    /// It fits nowhere, even on an empty cluster.
    BadConstraints { asked: u32, largest: u32 },
    /// The search ended at its budget without an answer.
    BudgetExhausted { expanded: u64 },
}

impl Reason {
    /// The stable word, as Slurm users know them.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Resources { .. } => "Resources",
            Self::Topology { .. } | Self::Nodes { .. } | Self::Shape { .. } => "Topology",
            Self::PreferredWait { .. } => "PreferredWait",
            Self::Priority { .. } => "Priority",
            Self::Window { .. } => "Maintenance",
            Self::Preempting { .. } => "Preempting",
            Self::QueueLimit(_) => "QueueLimit",
            Self::Held { .. } => "Held",
            Self::Dependency { .. } => "Dependency",
            Self::ArrayLimit { .. } => "ArrayLimit",
            Self::Resting { .. } => "ScaledIn",
            Self::BeginTime { .. } => "BeginTime",
            Self::BackOff { .. } => "BackOff",
            Self::NodeNotAvailable { .. } => "ReqNodeNotAvail",
            Self::BadConstraints { .. } => "BadConstraints",
            Self::BudgetExhausted { .. } => "BudgetExhausted",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(f, "not considered yet"),
            Self::Resources { asked, fits, segments } => {
                write!(f, "needs {} at once{}, and {fits} fit now", members(*asked), In(segments))
            }
            Self::Topology { level, asked, best, best_domain, segments } => write!(
                f,
                "needs {} inside one {level}{}, and the best, {best_domain}, has room for {best} now",
                members(*asked),
                In(segments)
            ),
            Self::Nodes { asked: 1, each, best, best_node, .. } => write!(
                f,
                "needs a node with room for {each} members, and the best, {best_node}, has room for {best} now"
            ),
            Self::Nodes { asked, each, fits, best, best_node } => write!(
                f,
                "needs {asked} nodes with room for {each} members each, and {fits} have that now (the best, {best_node}, has room for {best})"
            ),
            Self::Shape { asked, best: 0, torus, .. } if torus.is_empty() => {
                write!(f, "needs a free box of {asked} chips, and no node is part of a torus")
            }
            Self::Shape { asked, chips, best, torus, free, largest } => {
                write!(
                    f,
                    "needs a free box of {asked} chips; at the best position, in {torus}, {best} of {chips} chips are free"
                )?;
                match largest {
                    Some(largest) => {
                        write!(f, "; the largest free box there is {largest}, and {free} chips are free")
                    }
                    None => Ok(()),
                }
            }
            Self::PreferredWait { level, .. } => {
                write!(
                    f,
                    "could start now farther apart; waiting for its preferred placement inside one {level}"
                )
            }
            Self::Priority { ahead, at: None } => {
                write!(f, "gang {ahead} has reached its bypass limit and must start first")
            }
            Self::Priority { ahead, at: Some(_) } => {
                write!(f, "cannot backfill: would still be running when gang {ahead} is due to start")
            }
            Self::Window { nodes: 1, .. } => {
                f.write_str("would still be running when a calendar window of a node that it needs begins")
            }
            Self::Window { nodes, .. } => {
                write!(f, "would still be running when calendar windows of {nodes} nodes begin")
            }
            Self::Preempting { victims } => {
                f.write_str("reserved; waiting for preempted jobs to exit: ")?;
                join(f, victims)
            }
            Self::QueueLimit(limit) => write!(f, "{limit}"),
            Self::Held { by } => write!(f, "held by {by} until it is released"),
            Self::Dependency { jobs } => {
                f.write_str("waiting for these jobs to end: ")?;
                join(f, jobs)
            }
            Self::ArrayLimit { running_max } => {
                write!(f, "array limit reached: at most {running_max} tasks run at once")
            }
            Self::Resting { replicas: 1 } => {
                f.write_str("not needed: the service already has its desired replica (1)")
            }
            Self::Resting { replicas } => {
                write!(f, "not needed: the service already has its desired replicas ({replicas})")
            }
            Self::BeginTime { .. } => f.write_str("its begin time has not come"),
            Self::BackOff { .. } => f.write_str("the last attempt failed, and its back-off has not ended"),
            Self::NodeNotAvailable { nodes } => {
                write!(f, "would fit if these nodes were present and schedulable: ")?;
                join(f, nodes)
            }
            Self::BadConstraints { asked, largest } => {
                write!(f, "needs {}, and even the empty cluster has room for only {largest}", members(*asked))
            }
            Self::BudgetExhausted { expanded } => {
                write!(f, "the search used up its budget of {expanded} candidates without a result")
            }
        }
    }
}

/// What a queue has no room for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueLimit {
    /// The queue whose bound it is: that of the job, or one above it.
    pub queue: QueueName,
    pub bound: QueueBound,
    /// In the unit of the resource; of gangs where the bound counts gangs.
    pub used: u64,
    pub asked: u64,
    pub most: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueBound {
    /// The limit of the queue.
    Limit(Resource),
    /// What is left when every queue keeps what it does not lend, or, for what may not be evicted, all that it is
    /// guaranteed.
    Kept(Resource),
    /// Nodes that are the guaranteed place of the queue: what may not be evicted stays out of them.
    Place,
    /// Gangs that may hold capacity at once.
    Running,
    /// The queue is gone.
    Gone,
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, bound, used, asked, most } = self;
        let show = |resource: &Resource, amount: u64| resource.show(amount);
        match bound {
            QueueBound::Limit(of) => write!(
                f,
                "queue {queue} uses {} of its limit of {} {of}, and the gang needs {}",
                show(of, *used),
                show(of, *most),
                show(of, *asked)
            ),
            QueueBound::Kept(of) => write!(
                f,
                "{} of {} {of} are in use or kept for the guarantees of other queues, and the gang needs {}",
                show(of, *used),
                show(of, *most),
                show(of, *asked)
            ),
            QueueBound::Place => write!(
                f,
                "{most} nodes are guaranteed to queue {queue}, and gangs that cannot be preempted may not use them"
            ),
            QueueBound::Running => write!(f, "queue {queue} runs {used} gangs, and its limit is {most}"),
            QueueBound::Gone => write!(f, "queue {queue} no longer exists"),
        }
    }
}

/// `, in segments of 16 inside one leaf and of 8 inside one node`; nothing without segments.
struct In<'a>(&'a [Segment]);

impl fmt::Display for In<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Segment { size, level }) in self.0.iter().enumerate() {
            write!(f, "{} of {size} inside one {level}", if i == 0 { ", in segments" } else { " and" })?;
        }
        Ok(())
    }
}

fn join<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
    }
    Ok(())
}

/// Why a gang waits, in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub gang: GangId,
    pub reason: Reason,
    /// Per level, outermost first: what its best domain could hold now.
    pub levels: Vec<LevelCount>,
    /// Place in the order, from 1, of `of` pending gangs; 0 when it does not wait.
    pub position: u32,
    pub of: u32,
    pub unblock: Vec<Unblock>,
    pub estimated_start: Option<Estimate>,
    /// Where it would start: now if it fits, else at the estimated start.
    pub nearest: Option<Placement>,
    /// When it would start if those in its way take as long as such jobs took before, where that is sooner than the
    /// estimated start. Nothing rests on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely_start: Option<LikelyStart>,
    /// Gangs of its queue and class that wait and go before it because they had less service.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub less_served: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Report {
    /// What a queue that goes by service does to it, if anything.
    #[must_use]
    pub fn by_service(&self) -> Option<String> {
        match self.less_served {
            0 => None,
            1 => Some("ordered after 1 gang of its queue that has attained less service".to_owned()),
            n => Some(format!("ordered after {n} gangs of its queue that have attained less service")),
        }
    }
}

/// A guess by what happened before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LikelyStart {
    pub at: Timestamp,
    /// Runs that it rests on: of the jobs in its way that history knows, the one of which it knows least.
    pub runs: u32,
}

/// The best domain of one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelCount {
    pub level: LevelName,
    pub domain: String,
    /// Members that fit in it now.
    pub fits: u32,
    pub asked: u32,
    pub free_devices: u32,
    pub devices: u32,
}

/// Something that would let the gang start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unblock {
    /// These running gangs end.
    GangsEnd { gangs: Vec<GangId>, at: Option<Timestamp> },
    /// It may spread over a domain of this level: then it starts now.
    RelaxTo {
        level: LevelName,
        /// Where it would be.
        domain: String,
        /// How long its collective takes there, in thousandths of what it takes where it asks to be.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        times_milli: Option<u64>,
    },
    /// It gives up one of its wishes: then it starts now.
    Without { rule: Rule },
    /// These nodes take work again.
    Uncordon { nodes: Vec<NodeName> },
    /// Time passes.
    At { at: Timestamp },
}

/// A wish of a gang that may stand in its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    Segment(Segment),
    Spread(Spread),
    /// Equal parts on each node.
    MembersPerNode(u32),
    Exclusive,
    Models(Vec<String>),
    Named(ResourceName),
    /// The nodes that it names.
    Nodes,
    /// Those that it avoids.
    Avoid,
    /// The set that its nodes are to be in.
    Within(NodeSet),
    Role(RoleName),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment(Segment { size, level }) => write!(f, "segments of {size} inside one {level}"),
            Self::Spread(Spread { level, max }) => write!(f, "at most {max} members inside one {level}"),
            Self::MembersPerNode(each) => write!(f, "exactly {each} members on each node"),
            Self::Exclusive => f.write_str("exclusive nodes"),
            Self::Models(models) => {
                f.write_str("devices of ")?;
                join(f, models)
            }
            Self::Named(resource) => write!(f, "{resource}"),
            Self::Nodes => f.write_str("its required nodes"),
            Self::Avoid => f.write_str("its avoided nodes"),
            Self::Within(set) => write!(f, "the node set {set}"),
            Self::Role(name) => write!(f, "its role {name}"),
        }
    }
}

/// When a gang would start, and how sure that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    pub at: Timestamp,
    pub confidence: Confidence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// It can start now.
    Now,
    /// No later than this, if nothing goes ahead: every job in its way has a time limit.
    AtLatest,
}

fn members(n: u32) -> String {
    crate::show::count(u64::from(n), "member")
}

/// A domain by its whole path, as shown to people: `leaf-1/node-a`.
#[must_use]
pub fn show_path(path: &[DomainName]) -> String {
    let names: Vec<&str> = path.iter().map(DomainName::as_str).collect();
    names.join("/")
}

impl Rejection {
    /// Whether the submission is, for its author, as good as accepted.
    #[must_use]
    pub const fn existing(&self) -> Option<JobId> {
        match self {
            Self::DuplicateKey { existing } => Some(*existing),
            _ => None,
        }
    }
}
