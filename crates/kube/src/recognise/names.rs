//! Labels and annotations, of upstream, of other schedulers and our own: every literal in one place.

/// Our own. On a pod, its template or its owner, as label or annotation.
pub mod phalanx {
    /// On a node, [`super::OURS`] or [`super::GIVEN_BACK`]; see [`crate::recognise::NodesUsed`].
    pub const NODE: &str = "phalanx.dev/schedule";
    pub const QUEUE: &str = "phalanx.dev/queue";
    /// A level, or the label key of one, inside one domain of which the whole gang must be.
    pub const REQUIRED: &str = "phalanx.dev/topology-required";
    /// The same, where it should be.
    pub const PREFERRED: &str = "phalanx.dev/topology-preferred";
    /// How long it waits for a nearer place than one where it could start; see [`crate::recognise::TopologyWait`].
    pub const WAIT: &str = "phalanx.dev/topology-wait";
    /// `size:level`, several with a comma between them, the widest first.
    pub const SEGMENTS: &str = "phalanx.dev/segments";
    /// Running time: `4h`, `90m`.
    pub const TIME_LIMIT: &str = "phalanx.dev/time-limit";
    /// How long before SIGTERM its pods are told that they have to make way: `2m`.
    pub const CHECKPOINT_GRACE: &str = "phalanx.dev/checkpoint-grace";
}

/// The label by which the nodes of Alibaba's ACK opt in to the scheduler that minds topology.
pub const ACK_NODE: &str = "ack.node.gpu.schedule";
/// The value of it, and of ours, that opts in.
pub const OURS: &str = "topology";
/// The value of it, and of ours, that gives a node back.
pub const GIVEN_BACK: &str = "default";

/// Labels that name the class of a pod's priority: Kueue's, and KAI's.
pub const PRIORITY_LABELS: [&str; 2] = [kueue::PRIORITY, kai::PRIORITY];

/// What asks other schedulers for a part of a GPU: KAI's annotations, and HAMi's, which are resources there.
pub const GPU_FRACTIONS: [&str; 6] = [
    "gpu-fraction",
    "gpu-fraction-num-devices",
    "gpu-memory",
    "nvidia.com/gpucores",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
];

pub(super) mod batch {
    pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";
}

pub(super) mod jobset {
    pub(crate) const GROUP: &str = "jobset.x-k8s.io";
    pub(crate) const NAME: &str = "jobset.sigs.k8s.io/jobset-name";
    pub(crate) const UID: &str = "jobset.sigs.k8s.io/jobset-uid";
    pub(crate) const ROLE: &str = "jobset.sigs.k8s.io/replicatedjob-name";
    pub(crate) const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
    pub(crate) const EXCLUSIVE: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
    /// Beside it: somebody has labelled nodes with the jobs that they are for, and every pod selects those of its job.
    pub(crate) const BY_NODE_LABEL: &str = "alpha.jobset.sigs.k8s.io/node-selector";
}

pub(super) mod lws {
    pub(crate) const GROUP: &str = "leaderworkerset.x-k8s.io";
    pub(crate) const NAME: &str = "leaderworkerset.sigs.k8s.io/name";
    pub(crate) const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
    pub(crate) const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
    pub(crate) const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
    pub(crate) const EXCLUSIVE: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";
    pub(crate) const SUBGROUP_EXCLUSIVE: &str = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology";
}

pub(super) mod kubeflow {
    pub(crate) const GROUP: &str = "kubeflow.org";
    pub(crate) const TRAINER_GROUP: &str = "trainer.kubeflow.org";
    pub(crate) const JOB_NAME: &str = "training.kubeflow.org/job-name";
    pub(crate) const OPERATOR: &str = "training.kubeflow.org/operator-name";
    /// The operator whose launchers are Jobs and not pods.
    pub(crate) const MPI_OPERATOR: &str = "mpi-operator";
    /// Best first: what the releases have written.
    pub(crate) const ROLES: [&str; 4] = [
        "training.kubeflow.org/replica-type",
        "training.kubeflow.org/job-role",
        "mpi-job-role",
        "replica-type",
    ];
    pub(crate) const INDICES: [&str; 2] = ["training.kubeflow.org/replica-index", "replica-index"];
}

pub(super) mod ray {
    pub(crate) const GROUP: &str = "ray.io";
    pub(crate) const CLUSTER: &str = "RayCluster";
    pub(crate) const JOB: &str = "RayJob";
    pub(crate) const WORKER_GROUP: &str = "ray.io/group";
    pub(crate) const HEAD: &str = "headgroup";
}

pub(super) mod kueue {
    pub(crate) const QUEUE: &str = "kueue.x-k8s.io/queue-name";
    pub(crate) const PRIORITY: &str = "kueue.x-k8s.io/priority-class";
    pub(crate) const TIME_LIMIT: &str = "kueue.x-k8s.io/max-exec-time-seconds";
    pub(crate) const POD_GROUP: &str = "kueue.x-k8s.io/pod-group-name";
    pub(crate) const TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";
    pub(crate) const INDEX: &str = "kueue.x-k8s.io/pod-group-pod-index";
    /// Names another label that has the index.
    pub(crate) const INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index-label";
    pub(crate) const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
    pub(crate) const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
    pub(crate) const SLICE: &str = "kueue.x-k8s.io/podset-slice-required-topology";
    pub(crate) const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
    pub(crate) const SLICES: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
    pub(crate) const PODSET_GROUP: &str = "kueue.x-k8s.io/podset-group-name";
}

pub(super) mod volcano {
    pub(crate) const GROUP: &str = "scheduling.volcano.sh";
    /// Of Volcano's own Jobs.
    pub(crate) const JOBS: &str = "batch.volcano.sh";
    /// Best first; the second is what kube-batch called it.
    pub(crate) const GROUP_NAMES: [&str; 2] =
        ["scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name"];
    pub(crate) const MIN_MEMBER: &str = "scheduling.volcano.sh/group-min-member";
    pub(crate) const QUEUE: &str = "scheduling.volcano.sh/queue-name";
    pub(crate) const TASK: &str = "volcano.sh/task-spec";
    pub(crate) const TASK_INDEX: &str = "volcano.sh/task-index";
}

pub(super) mod kai {
    pub(crate) const GROUP: &str = "scheduling.run.ai";
    pub(crate) const QUEUE: &str = "kai.scheduler/queue";
    pub(crate) const PRIORITY: &str = "priorityClassName";
    pub(crate) const POD_GROUP: &str = "pod-group-name";
    pub(crate) const SUBGROUP: &str = "kai.scheduler/subgroup-name";
    pub(crate) const MIN_MEMBER: &str = "kai.scheduler/batch-min-member";
    pub(crate) const REQUIRED: &str = "kai.scheduler/topology-required-placement";
    pub(crate) const PREFERRED: &str = "kai.scheduler/topology-preferred-placement";
    pub(crate) const SEGMENT_SIZE: &str = "kai.scheduler/segment-size";
    pub(crate) const SEGMENT_REQUIRED: &str = "kai.scheduler/segment-topology-required-placement";
    pub(crate) const SEGMENT_PREFERRED: &str = "kai.scheduler/segment-topology-preferred-placement";
}

pub(super) mod koordinator {
    pub(crate) const NAME: &str = "gang.scheduling.koordinator.sh/name";
    pub(crate) const MIN: &str = "gang.scheduling.koordinator.sh/min-available";
    pub(crate) const TOTAL: &str = "gang.scheduling.koordinator.sh/total-number";
    pub(crate) const GROUPS: &str = "gang.scheduling.koordinator.sh/groups";
    pub(crate) const TOPOLOGY: &str = "gang.scheduling.koordinator.sh/network-topology-spec";
    pub(crate) const INDEX: &str = "gang.scheduling.koordinator.sh/network-topology-index";
    pub(crate) const QUOTA: &str = "quota.scheduling.koordinator.sh/name";
}

pub(super) mod yunikorn {
    /// Best first.
    pub(crate) const APPS: [&str; 2] = ["yunikorn.apache.org/app-id", "applicationId"];
    pub(crate) const QUEUES: [&str; 2] = ["yunikorn.apache.org/queue", "queue"];
    pub(crate) const TASK_GROUP: &str = "yunikorn.apache.org/task-group-name";
    pub(crate) const TASK_GROUPS: &str = "yunikorn.apache.org/task-groups";
}

pub(super) mod coscheduling {
    /// The plugin's, and Koordinator's copy of it.
    pub(crate) const GROUPS: [&str; 2] = ["scheduling.x-k8s.io", "scheduling.sigs.k8s.io"];
    pub(crate) const LABEL: &str = "scheduling.x-k8s.io/pod-group";
    pub(crate) const OLD_LABEL: &str = "pod-group.scheduling.sigs.k8s.io";
    /// The plugin before it had objects: name and size on every pod.
    pub(crate) const LIGHT_NAME: &str = "pod-group.scheduling.sigs.k8s.io/name";
    pub(crate) const LIGHT_MIN: &str = "pod-group.scheduling.sigs.k8s.io/min-available";
}

/// Upstream's group of `Workload` and `PodGroup`.
pub(super) const SCHEDULING: &str = "scheduling.k8s.io";
