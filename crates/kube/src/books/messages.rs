//! What the books are told, and what they ask for.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim, ResourceClaimConsumerReference};
use kube::api::DynamicObject;
use phalanx_model::{FailureClass, MemberId, NodeName};

use super::{DeviceEvent, Found, PodRef, Provision, Stored, VolcanoStatus};
use crate::gang::{ObjectRef, Suspend};
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
        /// Of the condition: `Unschedulable` where more nodes would help.
        reason: &'static str,
        message: Arc<str>,
    },
    QueueStatus {
        name: String,
        status: Box<crd::QueueStatus>,
    },
    FabricStatus {
        status: Box<crd::FabricStatus>,
    },
    /// Says on a group of upstream whether it is scheduled.
    Group {
        about: ObjectRef,
        is_scheduled: bool,
        /// Of the condition, while it is not.
        reason: &'static str,
        message: Arc<str>,
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
    Tell(Box<Tidings>),
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
/// Of one without pods, whose conditions would say it.
pub const WAITING: &str = "Waiting";

/// An event of a gang, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tidings {
    pub about: ObjectRef,
    /// In camel case, as reasons of events are.
    pub reason: &'static str,
    pub is_warning: bool,
    pub note: String,
}
