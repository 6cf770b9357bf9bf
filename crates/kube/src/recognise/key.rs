//! Who a gang is, where a pod belongs, and why an object is refused.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::DynamicObject;

use crate::api::Pod;

/// The identity of a gang: stable over restarts, and the same whichever of its pods is looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GangKey {
    pub source: Source,
    pub namespace: Arc<str>,
    /// The name of the object that [`Source`] means.
    pub name: Arc<str>,
    /// Where one object has several gangs, which of them: the group of a `LeaderWorkerSet`, the pod group of a
    /// `Workload`, the stage of a `JobSet`.
    pub part: Option<Arc<str>>,
    /// The UID of that object, if it is an owner of pods. An owner that is deleted and created again under its name is
    /// another object: the pods of the first one belong to gangs of their own until they are gone.
    pub uid: Option<Arc<str>>,
}

/// A kind of object that says which pods are a gang.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub group: &'static str,
    pub kind: &'static str,
    /// The resource in URLs: `mpijobs`.
    pub plural: &'static str,
    pub source: Source,
}

const fn kind(group: &'static str, kind: &'static str, plural: &'static str, source: Source) -> Kind {
    Kind { group, kind, plural, source }
}

/// All of them; each is watched where a cluster serves it.
pub const KINDS: [Kind; 17] = [
    kind("scheduling.k8s.io", "PodGroup", "podgroups", Source::PodGroup),
    kind("scheduling.k8s.io", "Workload", "workloads", Source::Workload),
    kind("batch", "Job", "jobs", Source::Job),
    kind("jobset.x-k8s.io", "JobSet", "jobsets", Source::JobSet),
    kind("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets", Source::LeaderWorkerSet),
    kind("kubeflow.org", "PyTorchJob", "pytorchjobs", Source::PyTorchJob),
    kind("kubeflow.org", "MPIJob", "mpijobs", Source::MpiJob),
    kind("kubeflow.org", "TFJob", "tfjobs", Source::TfJob),
    kind("kubeflow.org", "XGBoostJob", "xgboostjobs", Source::XgBoostJob),
    kind("kubeflow.org", "PaddleJob", "paddlejobs", Source::PaddleJob),
    kind("kubeflow.org", "JAXJob", "jaxjobs", Source::JaxJob),
    kind("ray.io", "RayCluster", "rayclusters", Source::RayCluster),
    kind("ray.io", "RayJob", "rayjobs", Source::RayJob),
    kind("scheduling.volcano.sh", "PodGroup", "podgroups", Source::VolcanoPodGroup),
    kind("scheduling.run.ai", "PodGroup", "podgroups", Source::KaiPodGroup),
    kind("scheduling.x-k8s.io", "PodGroup", "podgroups", Source::Coscheduling),
    kind("scheduling.sigs.k8s.io", "PodGroup", "podgroups", Source::Coscheduling),
];

/// Which API says that these pods are a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A pod by itself.
    Pod,
    /// Upstream's `PodGroup`, from Kubernetes 1.36 on.
    PodGroup,
    /// Upstream's `Workload` of Kubernetes 1.35.
    Workload,
    Job,
    /// Also those of a `TrainJob`, which makes a `JobSet` of the same name.
    JobSet,
    LeaderWorkerSet,
    PyTorchJob,
    MpiJob,
    TfJob,
    XgBoostJob,
    PaddleJob,
    JaxJob,
    /// Also those of a `RayService`, which makes one.
    RayCluster,
    /// The pods of the cluster that it makes: a suspended one deletes that, and makes another when it goes on.
    RayJob,
    /// Pods with Kueue's label of a group.
    KueuePodGroup,
    VolcanoPodGroup,
    KaiPodGroup,
    /// Pods with Koordinator's annotation of a gang.
    Koordinator,
    /// Pods of a YuniKorn application that name a task group.
    YuniKorn,
    /// A `PodGroup` of the coscheduling plugin, or Koordinator's copy of it.
    Coscheduling,
}

impl Source {
    /// What people call the object.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::PodGroup => "PodGroup",
            Self::Workload => "Workload",
            Self::Job => "Job",
            Self::JobSet => "JobSet",
            Self::LeaderWorkerSet => "LeaderWorkerSet",
            Self::PyTorchJob => "PyTorchJob",
            Self::MpiJob => "MPIJob",
            Self::TfJob => "TFJob",
            Self::XgBoostJob => "XGBoostJob",
            Self::PaddleJob => "PaddleJob",
            Self::JaxJob => "JAXJob",
            Self::RayCluster => "RayCluster",
            Self::RayJob => "RayJob",
            Self::KueuePodGroup => "Kueue pod group",
            Self::VolcanoPodGroup => "Volcano PodGroup",
            Self::KaiPodGroup => "KAI PodGroup",
            Self::Koordinator => "Koordinator gang",
            Self::YuniKorn => "YuniKorn application",
            Self::Coscheduling => "coscheduling PodGroup",
        }
    }

    /// What says so where an object of this kind does; nothing for kinds that say nothing of gangs.
    #[must_use]
    pub fn of_kind(group: &str, kind: &str) -> Option<Self> {
        KINDS.iter().find(|of| (of.group, of.kind) == (group, kind)).map(|of| of.source)
    }

    /// Whether an object stands behind it, without which the gang is not known.
    #[must_use]
    pub const fn has_object(self) -> bool {
        !matches!(self, Self::Pod | Self::KueuePodGroup | Self::Koordinator | Self::YuniKorn)
    }

    /// Whether its pods can say themselves how large the gang is. Groups of a `LeaderWorkerSet` that rolls out are not
    /// what their object says any more.
    #[must_use]
    pub const fn is_sized_by_pods(self) -> bool {
        matches!(self, Self::KueuePodGroup | Self::Koordinator | Self::YuniKorn | Self::LeaderWorkerSet)
    }
}

impl fmt::Display for GangKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.source.word(), self.namespace, self.name)?;
        self.part.as_ref().map_or(Ok(()), |part| write!(f, ", {part}"))
    }
}

impl GangKey {
    pub(super) fn new(source: Source, namespace: &str, name: &str) -> Self {
        Self { source, namespace: namespace.into(), name: name.into(), part: None, uid: None }
    }

    /// The gang of this very object.
    pub(super) fn of_uid(self, uid: Option<&str>) -> Self {
        Self { uid: uid.map(Into::into), ..self }
    }

    /// All gangs of objects of this kind and name, as one key: without a part and without a UID.
    #[must_use]
    pub fn object(&self) -> Self {
        Self { part: None, uid: None, ..self.clone() }
    }

    /// A pod by itself.
    #[must_use]
    pub fn of_pod(pod: &Pod) -> Self {
        Self::new(Source::Pod, pod.namespace(), pod.name())
    }

    pub(super) fn part(self, part: &str) -> Self {
        Self { part: Some(part.into()), ..self }
    }

    /// Whether both are gangs of objects of one kind and name: of one object, or of two that follow each other.
    #[must_use]
    pub fn is_of_same_object(&self, other: &Self) -> bool {
        (self.source, &self.namespace, &self.name) == (other.source, &other.namespace, &other.name)
    }
}

/// Where a pod belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Membership {
    pub gang: GangKey,
    pub role: Option<Arc<str>>,
    /// Which copy of its role: the job of a replicated job in a `JobSet`.
    pub copy: u32,
    /// Its number: within its copy as the pod alone says, within its role once it is [settled](super::settle).
    pub index: Option<u32>,
}

impl Membership {
    pub(super) const fn of(gang: GangKey) -> Self {
        Self { gang, role: None, copy: 0, index: None }
    }

    /// A gang of one.
    #[must_use]
    pub fn alone(pod: &Pod) -> Self {
        Self::of(GangKey::of_pod(pod))
    }
}

/// An object of the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// `group/version`. Where [`Self::any_version`] says so, the version is one that may be there, and any other of
    /// its group serves as well.
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub uid: Option<String>,
    /// Whoever refers to it knows the kind and not the version that the cluster serves.
    pub any_version: bool,
}

impl ObjectRef {
    pub(crate) fn of(object: &DynamicObject) -> Self {
        let types = object.types.clone().unwrap_or_default();
        Self {
            api_version: types.api_version,
            kind: types.kind,
            namespace: object.metadata.namespace.clone().unwrap_or_default(),
            name: object.metadata.name.clone().unwrap_or_default(),
            uid: object.metadata.uid.clone(),
            any_version: false,
        }
    }

    pub(super) fn of_pod(pod: &Pod) -> Self {
        Self {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            uid: pod.metadata.uid.clone(),
            any_version: false,
        }
    }

    pub(super) fn of_owner(owner: &OwnerReference, namespace: &str) -> Self {
        Self {
            api_version: owner.api_version.clone(),
            kind: owner.kind.clone(),
            namespace: namespace.to_owned(),
            name: owner.name.clone(),
            uid: Some(owner.uid.clone()),
            any_version: false,
        }
    }

    pub(super) fn named(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: None,
            any_version: true,
        }
    }

    /// The API group; empty for the core.
    #[must_use]
    pub fn group(&self) -> &str {
        group_of(&self.api_version)
    }

    /// Whether this is of the kind in the group, whatever its version.
    #[must_use]
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.kind == kind && self.group() == group
    }
}

/// The API group of a version; empty for the core.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The owner that controls an object.
pub(super) fn controller(metadata: &ObjectMeta) -> Option<ObjectRef> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    Some(ObjectRef::of_owner(owner, metadata.namespace.as_deref().unwrap_or_default()))
}

/// Why an object cannot be understood as a gang. Its pods wait, with this as the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field} {problem}; {remedy}")]
pub struct Refused {
    pub object: Box<ObjectRef>,
    /// The field, label or annotation.
    pub field: String,
    /// What is wrong with it, to be read after its name.
    pub problem: String,
    pub remedy: String,
}

impl Refused {
    pub(super) fn new(
        object: ObjectRef,
        field: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { object: Box::new(object), field: field.into(), problem: problem.into(), remedy: remedy.into() }
    }
}
