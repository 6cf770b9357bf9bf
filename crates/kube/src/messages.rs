//! What watches report, and what the API is asked for.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClass, ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate,
    ResourceSlice,
};
use k8s_openapi::api::resource::v1beta2::DeviceTaintRule;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use kube::api::DynamicObject;
use phalanx_model::{
    DeviceMask, FailureClass, GangRecord, Machine, MemberId, NodeName, Phase, Reason, Rejection, StopCause,
};

use crate::crd::HealthSpec;
use crate::recognise::{ObjectRef, Suspend};
use crate::{api, crd};

/// Something that a watch told.
#[derive(Clone, Debug)]
pub enum Event {
    Node(Box<api::Node>),
    NodeGone(String),
    Pod(Box<api::Pod>),
    PodGone {
        namespace: String,
        name: String,
        uid: String,
    },
    /// An owner of pods, or a group.
    Object(Box<DynamicObject>),
    ObjectGone(Box<DynamicObject>),
    Queue(Box<crd::Queue>),
    QueueGone(String),
    /// The policy of the cluster, or that there is none any more.
    Policy(Option<Box<crd::SharePolicy>>),
    /// How the network is laid out, or that nobody says so any more.
    Fabric(Option<Box<crd::Fabric>>),
    /// A namespace with its labels, or that it is gone.
    Namespace {
        name: String,
        labels: Option<BTreeMap<String, String>>,
    },
    /// A disruption budget, or that it is gone.
    Budget {
        namespace: String,
        name: String,
        budget: Option<Box<PodDisruptionBudget>>,
    },
    Storage(Stored),
    /// The machine that a node's agent found there, or none any more.
    Found {
        node: String,
        found: Option<Found>,
    },
    /// Something about devices and claims for them.
    Device(DeviceEvent),
    /// A list by the name of its resource and group, such as `podgroups.scheduling.k8s.io`: whether the API server refuses
    /// to list it for now.
    Unreadable {
        list: &'static str,
        is_unreadable: bool,
    },
    /// What became of a call.
    Bound {
        member: MemberId,
        result: Result<(), Unbound>,
    },
    /// What a gang needs before its pods are bound could not be had, in words.
    Unprepared {
        member: MemberId,
        detail: String,
    },
}

/// That the engine stops a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopping {
    pub cause: StopCause,
    /// Whether pods that have ended hold their places no longer.
    pub frees_exited: bool,
}

impl Stopping {
    #[must_use]
    pub fn of(record: &GangRecord) -> Option<Self> {
        match &record.phase {
            Phase::Stopping { cause, .. } => {
                Some(Self { cause: cause.clone(), frees_exited: record.frees_exited() })
            }
            _ => None,
        }
    }
}

/// Why a pod was not bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unbound {
    pub class: FailureClass,
    pub detail: String,
    /// A try of it had no answer, and may still be on its way to the API server.
    pub may_come: bool,
}

/// What the API is to be asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    Bind {
        pod: PodRef,
        node: NodeName,
        member: MemberId,
        /// What has to be ready first, in this order.
        before: Vec<Step>,
        annotations: BTreeMap<String, String>,
    },
    /// Gets ready what a gang needs before any of its pods is bound. What becomes of it is to be seen; where it fails, one
    /// of its members is lost.
    Prepare {
        member: MemberId,
        /// In this order.
        steps: Vec<Step>,
    },
    /// Takes pods away, or has their owner do it.
    Stop {
        pods: Vec<PodRef>,
        suspend: Option<Suspend>,
        /// They have no more than this from SIGTERM on, in seconds; nothing: as long as they say.
        grace_s: Option<i64>,
        /// As disruption budgets allow. Otherwise they are deleted, also where their owner cannot be suspended after all.
        evict: bool,
        note: String,
    },
    /// Tells pods that they have to make way, and in how many milliseconds they are told to end.
    Advise {
        pods: Vec<PodRef>,
        within_ms: u64,
    },
    /// Writes `nominatedNodeName` of pods: other schedulers keep that node's freed capacity for them. Nothing: takes it away.
    Nominate {
        pods: Vec<(PodRef, Option<NodeName>)>,
    },
    /// Gives back what a pod was reserved of a claim, and the devices of it where nobody else uses them.
    Release {
        /// Without a UID where it may have been made, and was not seen yet.
        claim: PodRef,
        pod: PodRef,
        /// It was made for the pod alone, and goes.
        is_deleted: bool,
    },
    /// Lets an owner make its pods, unless its user wants it suspended.
    Resume {
        suspend: Suspend,
    },
    /// Takes from an owner that it was suspended by this scheduler, unless it has changed since.
    TakeSign {
        owner: Suspend,
        /// Of the owner as it was seen.
        version: String,
    },
    /// Says why a gang waits, on all of its pods.
    Explain {
        pods: Vec<PodRef>,
        gang: WaitingGang,
        /// Of the condition: `Unschedulable` where more nodes would help.
        reason: &'static str,
        message: Arc<str>,
    },
    /// A pod that waited is gone: nothing is said of it any more.
    Forget {
        pod: PodRef,
    },
    QueueStatus {
        name: String,
        status: Box<crd::QueueStatus>,
    },
    FabricStatus {
        status: Box<crd::FabricStatus>,
    },
    /// Sets a condition of a group of upstream.
    Group {
        about: ObjectRef,
        condition: GroupCondition,
    },
    /// Says on a group of Volcano how it stands.
    VolcanoStatus {
        about: ObjectRef,
        status: VolcanoStatus,
    },
    /// Lets a Volcano Job make its pods, by the phase of its group, where they are to be of this scheduler.
    Admit {
        group: ObjectRef,
        job: ObjectRef,
        scheduler: String,
    },
    /// Asks an autoscaler for all nodes of a gang at once; for none any more where nothing is wanted.
    Provision {
        gang: String,
        wanted: Option<Provision>,
    },
    /// Says once what happened to a gang, on its object or its first pod.
    Tell(Box<GangEvent>),
}

/// The gang that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingGang {
    /// As text names it; no other gang is called so.
    pub name: Arc<str>,
    /// The object of a gang of several pods.
    pub about: Option<ObjectRef>,
}

/// What a pod needs before it is bound. If one fails the pod is not bound, and its gang is taken back.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A merge patch. With a `resourceVersion` in its metadata it fails where somebody else was faster.
    Patch { path: String, patch: serde_json::Value },
    /// Writes the devices of a claim, reserves it for the pod, and waits until the devices are ready.
    Claim(Box<Reservation>),
}

/// A claim that a pod is to have.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// As it was seen last; without a UID it is to be made first.
    pub claim: Arc<ResourceClaim>,
    /// What it has to hold; without the time, which is written with it.
    pub allocation: AllocationResult,
    pub pod: PodRef,
    /// Whom it is reserved for: the pod, or its group.
    pub user: ResourceClaimConsumerReference,
}

/// Reasons of the events that say how a gang stands.
pub const STARTING: &str = "Starting";
pub const EVICTED: &str = "Evicted";
pub const STOPPING: &str = "Stopping";
/// Of a pod that waits, as kube-scheduler calls it.
pub const FAILED_SCHEDULING: &str = "FailedScheduling";
/// Of one without pods, whose conditions would say it.
pub const WAITING: &str = "Waiting";

/// An event of a gang, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GangEvent {
    pub about: ObjectRef,
    /// In camel case, as reasons of events are.
    pub reason: &'static str,
    pub is_warning: bool,
    pub note: String,
}

/// Which pod is meant. Names come again, numbers of the API server do not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
}

impl PodRef {
    /// As events name it.
    pub(crate) fn object(&self) -> ObjectRef {
        ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: self.namespace.to_string(),
            name: self.name.to_string(),
            uid: Some(self.uid.to_string()),
            any_version: false,
        }
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pod {}/{}", self.namespace, self.name)
    }
}

/// What a node's agent found there.
#[derive(Clone, Debug)]
pub struct Found {
    pub machine: Arc<Machine>,
    /// Devices that were there and do not answer any more. They keep their numbers.
    pub lost: DeviceMask,
    /// Grades that are not ok; without a number that of the node itself.
    pub grades: BTreeMap<Option<u32>, HealthSpec>,
}

/// Something that a watch told of devices.
#[derive(Clone, Debug)]
pub enum DeviceEvent {
    Slice(Arc<ResourceSlice>),
    SliceGone(String),
    Class(Arc<DeviceClass>),
    ClassGone(String),
    Rule(Box<DeviceTaintRule>),
    RuleGone(String),
    Claim(Box<ResourceClaim>),
    ClaimGone {
        namespace: String,
        name: String,
    },
    Template(Box<ResourceClaimTemplate>),
    TemplateGone {
        namespace: String,
        name: String,
    },
    /// A claim was given back, and is so now or is no more; or that came to nothing.
    Released {
        namespace: String,
        name: String,
        claim: Option<Box<ResourceClaim>>,
        is_gone: bool,
    },
}

/// An object of storage as it is now, by its name; claims and capacities by `namespace/name`. Nothing: it is gone.
#[derive(Clone, Debug)]
pub enum Stored {
    Claim(String, Option<Box<PersistentVolumeClaim>>),
    Volume(String, Option<Box<PersistentVolume>>),
    Class(String, Option<Box<StorageClass>>),
    Driver(String, Option<Box<CSIDriver>>),
    Node(String, Option<Box<CSINode>>),
    Capacity(String, Option<Box<CSIStorageCapacity>>),
    Attachment(String, Option<Box<VolumeAttachment>>),
}

/// A condition of a group of upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCondition {
    pub of: ConditionOf,
    pub is_true: bool,
    pub reason: &'static str,
    pub message: Arc<str>,
}

/// What a condition of a group is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionOf {
    /// Whether its pods have nodes; from Kubernetes 1.37 on whether they ever had.
    Scheduled,
    /// Whether it is preempted, and was not started again since.
    Disruption,
}

/// What would let it start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// Room on nodes: more of them would help.
    Nodes,
    /// Something that no node brings, as one word in camel case.
    Other(&'static str),
}

impl WaitsFor {
    /// Pods are missing, or are not to run yet.
    pub(crate) const PODS: Self = Self::Other("GangNotReady");
    /// It cannot start as it is written.
    pub(crate) const CHANGE: Self = Self::Other("Refused");
    /// Another goes first, which asks for the same.
    pub(crate) const TURN: Self = Self::Other("InLine");
    /// A nearer place than one where it could start.
    pub(crate) const NEARER: Self = Self::Other("NearerWait");
    /// Its gang starts, or has started, without it.
    pub(crate) const GANG: Self = Self::Other("GangStarted");

    /// As conditions of upstream's groups have it, which know two reasons.
    #[must_use]
    pub fn group_reason(self) -> &'static str {
        if self == Self::CHANGE { "SchedulerError" } else { "Unschedulable" }
    }

    /// As conditions have it.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Nodes => "Unschedulable",
            Self::Other(word) => word,
        }
    }

    /// What a gang that the engine has waits for.
    #[must_use]
    pub const fn of(reason: &Reason) -> Self {
        match reason {
            Reason::Resources { .. }
            | Reason::Topology { .. }
            | Reason::Nodes { .. }
            | Reason::Shape { .. }
            | Reason::Priority { .. }
            | Reason::Window { .. }
            | Reason::NodeNotAvailable { .. }
            | Reason::BadConstraints { .. } => Self::Nodes,
            Reason::NearerWait { .. } => Self::NEARER,
            // It has a share, a time or a place that is to become free, or others decide; nodes do not change that.
            Reason::None
            | Reason::PreferredWait { .. }
            | Reason::Preempting { .. }
            | Reason::QueueLimit(_)
            | Reason::Held { .. }
            | Reason::Dependency { .. }
            | Reason::ArrayLimit { .. }
            | Reason::ScaledIn { .. }
            | Reason::BeginTime { .. }
            | Reason::BackOff { .. }
            | Reason::BudgetExhausted { .. } => Self::Other(reason.word()),
        }
    }

    /// What one that the engine refused waits for.
    #[must_use]
    pub const fn of_rejection(why: &Rejection) -> Self {
        match why {
            // Nodes of a level that nobody has yet may be bought.
            Rejection::LargerThanCluster { .. } | Rejection::UnknownLevel { .. } => Self::Nodes,
            Rejection::DuplicateKey { .. }
            | Rejection::DuplicateId { .. }
            | Rejection::UnknownQueue { .. }
            | Rejection::BadField { .. } => Self::CHANGE,
        }
    }
}

/// Nodes that are to be bought together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provision {
    /// The object of the gang, or its first pod: with that it goes.
    pub about: ObjectRef,
    /// Pods that ask for the same stand together. There are two at least in all.
    pub sets: Vec<Vec<PodRef>>,
}

/// How a group stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolcanoStatus {
    /// `Inqueue`, `Running`, `Unknown` or `Completed`.
    pub phase: &'static str,
    /// Pods.
    pub running: u32,
    pub succeeded: u32,
    pub failed: u32,
    /// Type, reason and message of what is true of it.
    pub condition: Option<(&'static str, &'static str, std::sync::Arc<str>)>,
}
