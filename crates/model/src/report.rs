//! Reports for people on demand: why a gang is pending, and what would help.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::queue::Resource;
use crate::{
    DeviceMask, DomainName, GangId, JobId, LevelName, NodeName, NodeSet, Placement, QueueName, ResourceName,
    RoleName, Segment, Spread, Timestamp, WeighedLink,
};

/// Why a submission was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// Why a gang is pending: a stable word, and the data of its sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Not considered yet.
    None,
    /// Too few free devices in the whole cluster.
    Resources {
        asked: u32,
        fits: u32,
        /// The segments of the gang, widest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        segments: Vec<Segment>,
    },
    /// Enough devices are free in the cluster, but not inside one domain of the required level.
    Topology {
        level: LevelName,
        asked: u32,
        best: u32,
        best_domain: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        segments: Vec<Segment>,
    },
    /// Enough devices are free in the cluster, but not on enough nodes: the gang needs equal parts on each node.
    Nodes { asked: u32, each: u32, fits: u32, best: u32, best_node: String },
    /// No free box of chips has the shape.
    Shape {
        /// Sides, as `4x4x8`.
        asked: String,
        /// The number of chips of the shape.
        chips: u32,
        /// The free chips at the best position, which is in `torus`.
        best: u32,
        torus: String,
        /// The free chips of the torus.
        free: u32,
        /// The largest free box of the torus.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        largest: Option<String>,
    },
    /// The gang could start now, and waits until then for its preferred placement.
    PreferredWait { level: LevelName, until: Timestamp },
    /// The gang could start now across so many nodes, and waits for a nearer place inside one `level`, until then at the
    /// latest.
    NearerWait {
        level: LevelName,
        nodes: u32,
        /// How long its steps would take now, in thousandths of those at the nearer place; `None` if the bandwidth between
        /// the nodes is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slower_milli: Option<u64>,
        until: Timestamp,
    },
    /// Capacity is reserved for an earlier gang, which starts by `at` if that time is known.
    Priority {
        ahead: GangId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    /// The gang would fit if it ended before calendar windows begin, or if there were no windows.
    Window {
        /// The number of nodes that the windows exclude.
        nodes: u32,
        /// When the first window begins or began.
        begins_at: Timestamp,
        /// When the first window ends.
        ends_at: Timestamp,
    },
    /// The gang has a reservation, and gangs that run there were preempted.
    Preempting { victims: Vec<GangId> },
    /// Its queue or an ancestor of the queue has reached a limit.
    QueueLimit(QueueLimit),
    /// A user or an operator holds the job.
    Held { by: String },
    /// Dependencies have not ended.
    Dependency { jobs: Vec<JobId> },
    /// The array runs as many tasks as it may.
    ArrayLimit { running_max: u32 },
    /// The service has its desired replicas without this replica.
    #[serde(rename = "resting")]
    ScaledIn { replicas: u32 },
    /// The begin time has not come.
    BeginTime { at: Timestamp },
    /// A failed attempt is retried at `until`.
    BackOff { until: Timestamp },
    /// The gang would fit if these nodes were not cordoned or draining, or it requires nodes that do not exist.
    NodeNotAvailable { nodes: Vec<NodeName> },
    /// The gang does not fit the empty cluster.
    BadConstraints { asked: u32, largest: u32 },
    /// The search used up its budget without a result.
    BudgetExhausted { expanded: u64 },
}

impl Reason {
    /// Every word of [`Self::word`].
    pub const WORDS: [&str; 18] = [
        "None",
        "Resources",
        "Topology",
        "PreferredWait",
        "NearerWait",
        "Priority",
        "Maintenance",
        "Preempting",
        "QueueLimit",
        "Held",
        "Dependency",
        "ArrayLimit",
        "ScaledIn",
        "BeginTime",
        "BackOff",
        "ReqNodeNotAvail",
        "BadConstraints",
        "BudgetExhausted",
    ];

    /// The stable word, as in Slurm.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Resources { .. } => "Resources",
            Self::Topology { .. } | Self::Nodes { .. } | Self::Shape { .. } => "Topology",
            Self::PreferredWait { .. } => "PreferredWait",
            Self::NearerWait { .. } => "NearerWait",
            Self::Priority { .. } => "Priority",
            Self::Window { .. } => "Maintenance",
            Self::Preempting { .. } => "Preempting",
            Self::QueueLimit(_) => "QueueLimit",
            Self::Held { .. } => "Held",
            Self::Dependency { .. } => "Dependency",
            Self::ArrayLimit { .. } => "ArrayLimit",
            Self::ScaledIn { .. } => "ScaledIn",
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
            Self::NearerWait { level, nodes, slower_milli, .. } => nearer(f, level, *nodes, *slower_milli),
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
                f.write_str("reserved; waiting for these jobs to leave: ")?;
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
            Self::ScaledIn { replicas: 1 } => {
                f.write_str("not needed: the service already has its desired replica (1)")
            }
            Self::ScaledIn { replicas } => {
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

/// Why a gang waits for a place inside one `level` that could start now across so many nodes.
fn nearer(
    f: &mut fmt::Formatter<'_>,
    level: &LevelName,
    nodes: u32,
    slower_milli: Option<u64>,
) -> fmt::Result {
    let nodes = if nodes == 1 { "one node".to_owned() } else { format!("{nodes} nodes") };
    let slower = match slower_milli.map(|milli| milli.div_ceil(10)) {
        None => "it is not known how much longer its steps would take".to_owned(),
        Some(..=101) => {
            return write!(
                f,
                "waits for jobs that are being stopped to leave a place inside one {level}; it could start now across {nodes}"
            );
        }
        Some(hundredths) => {
            let (whole, part) = (hundredths / 100, hundredths % 100);
            format!("its steps would take {whole}.{part:02} times as long")
        }
    };
    write!(f, "waits for a place inside one {level}: {slower} across {nodes}, where it could start now")
}

/// The limit of a queue that a gang would exceed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueLimit {
    /// The queue with the limit: the queue of the job or an ancestor.
    pub queue: QueueName,
    pub bound: QueueBound,
    /// In the unit of the resource, or in gangs if the bound counts gangs.
    pub used: u64,
    pub asked: u64,
    pub most: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueueBound {
    /// The limit of the queue.
    Limit(Resource),
    /// The capacity without the guarantees that queues do not lend. For gangs that cannot be preempted: the capacity
    /// without all guarantees.
    Kept(Resource),
    /// Nodes that are guaranteed to the queue. Gangs that cannot be preempted may not use them.
    Place,
    /// Gangs that may hold capacity at once.
    Running,
    /// The queue no longer exists.
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

/// `, in segments of 16 inside one leaf and of 8 inside one node`. Empty without segments.
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

/// The full report of why a gang is pending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    pub gang: GangId,
    pub reason: Reason,
    /// For each level, outermost first: how many members fit in its best domain now.
    pub levels: Vec<LevelCount>,
    /// Queue position, from 1, of `of` pending gangs. 0 if the gang is not pending.
    pub position: u32,
    pub of: u32,
    pub unblock: Vec<Unblock>,
    pub estimated_start: Option<Estimate>,
    /// The placement with which the gang would start: now if it fits, and otherwise at the estimated start.
    pub nearest: Option<Placement>,
    /// The start time if the running gangs in its way take as long as such jobs took before, if that is sooner than
    /// the estimated start. No decision depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely_start: Option<LikelyStart>,
    /// Pending gangs of its queue and class that go before it because they attained less service.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub less_served: u32,
    /// The slow links that its placement uses or avoids, see [`crate::GangRecord::weighed`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weighed: Vec<WeighedLink>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Report {
    /// The effect of a queue that orders by attained service, if there is any.
    #[must_use]
    pub fn by_service(&self) -> Option<String> {
        match self.less_served {
            0 => None,
            1 => Some("ordered after 1 gang of its queue that has attained less service".to_owned()),
            n => Some(format!("ordered after {n} gangs of its queue that have attained less service")),
        }
    }
}

/// An estimate from past run times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LikelyStart {
    pub at: Timestamp,
    /// The number of past runs: the smallest number known for a job in the gang's way.
    pub runs: u32,
}

/// The best domain of one level.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LevelCount {
    pub level: LevelName,
    pub domain: String,
    /// Members that fit in it now.
    pub fits: u32,
    pub asked: u32,
    pub free_devices: u32,
    pub devices: u32,
}

/// A condition under which the gang would start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Unblock {
    /// These running gangs end.
    GangsEnd { gangs: Vec<GangId>, at: Option<Timestamp> },
    /// The gang fits now inside one domain of this level.
    RelaxTo {
        level: LevelName,
        /// The domain of that placement.
        domain: String,
        /// The time of its collective there, in thousandths of the time at the requested level.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        times_milli: Option<u64>,
    },
    /// The gang fits now without one of its rules.
    Without { rule: Rule },
    /// The gang starts now across so many nodes if it does not wait for a nearer place.
    StartFarther { nodes: u32 },
    /// These nodes become schedulable again.
    Uncordon { nodes: Vec<NodeName> },
    /// These devices, or nodes where no device is named, are repaired.
    Repair { closed: Vec<(NodeName, DeviceMask)> },
    /// The gang becomes eligible at a time.
    At { at: Timestamp },
    /// A gang that may be preempted for it has run for the least time of its class by then. Whether that is enough, or
    /// others have to be preempted as well, is decided then.
    Preempt { at: Timestamp },
    /// With a time limit of at most so much it ends before what is reserved for others, or a window of the calendar, begins, and
    /// starts now.
    ShorterLimit { limit_ms: u64 },
}

/// A placement rule of a gang that may prevent its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    Segment(Segment),
    Spread(Spread),
    /// Equal numbers of members on each node.
    MembersPerNode(u32),
    Exclusive,
    Models(Vec<String>),
    Named(ResourceName),
    /// The required nodes.
    Nodes,
    /// The avoided nodes.
    Avoid,
    /// The set of nodes that the gang may use.
    Within(NodeSet),
    /// The pools of its queue.
    Pools,
    /// Spare nodes are kept for gangs that lose hardware.
    Spares,
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
            Self::Pools => f.write_str("the pools of its queue"),
            Self::Spares => f.write_str("the spare nodes that are kept"),
            Self::Role(name) => write!(f, "its role {name}"),
        }
    }
}

/// The estimated start of a gang, with its confidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Estimate {
    pub at: Timestamp,
    pub confidence: Confidence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The gang can start now.
    Now,
    /// The gang starts by this time unless a later job goes ahead: every job in its way has a time limit.
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
    /// The job that exists already, if the submission repeats its key.
    #[must_use]
    pub const fn existing(&self) -> Option<JobId> {
        match self {
            Self::DuplicateKey { existing } => Some(*existing),
            _ => None,
        }
    }
}
