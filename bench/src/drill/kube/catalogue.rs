//! The faults of a drill on Kubernetes: what each does, what is expected of Phalanx, and on what it rests.

use super::scene::Scene;
use super::{control, hardware, nodes, pods};
use crate::drill::record::{Basis, Notice};
use crate::drill::ring::FEW_AGAIN;

pub(super) struct Fault {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) basis: Basis,
    pub(super) notice: Notice,
    pub(super) begins: Begins,
    /// Stated before the fault. What is expected of each fault besides is in [`super::scene`].
    pub(super) expects: &'static [&'static str],
    pub(super) inject: fn(&mut Scene<'_>) -> Result<(), String>,
}

/// When a fault is injected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Begins {
    /// After two checkpoints.
    Running,
    /// While the gang starts for the first time.
    Starting,
}

const REAL: &str = "API server, etcd, controllers, kubelets, containerd, runc, scheduler, agents; the ranks in containers, their \
                    sockets and checkpoints";
const DECLARED: &str = "3 nodes are namespaces of this machine and share its disk; pods leave a silent node after 2 s in place of 5 min";
const EMULATED: &str =
    "8 GPUs of each node: the agent's device plugin hands out GPUs of a file that describes them";
const BASIS: Basis = Basis { real: REAL, declared: DECLARED, emulated: EMULATED };
const KERNEL_LOG: Basis = Basis {
    real: REAL,
    declared: DECLARED,
    emulated: "8 GPUs of each node: the agent's device plugin hands out GPUs of a file that describes them; the line of the kernel log is \
               written by the drill",
};
const LOST: Basis = Basis {
    real: REAL,
    declared: DECLARED,
    emulated: "8 GPUs of each node: the agent's device plugin hands out GPUs of a file that describes them; the drill takes one out of \
               the file",
};

/// Judged at the end of the job.
const STAYS: &str = "Phalanx neither stops nor moves the gang until the end of the job";
const SAME_PLACE: &str = "the pod that replaces the lost one starts on its node and its GPUs";
const OTHERS_STAY: &str = "the pods of the other ranks stay";
const LEAVES: &str = "Phalanx stops the gang and starts it again without this GPU";
const OFFERS_SEVEN: &str = "the kubelet offers 7 GPUs, so that no pod of any scheduler gets this one";
const CLOSED: &str = "a job that needs all 8 GPUs of the node waits until an operator clears the GPU";
const ELSEWHERE: &str = "Phalanx starts the whole gang again, on other nodes than this one";

const PLAIN: Fault = Fault {
    id: "",
    title: "",
    basis: BASIS,
    notice: Notice::Shown,
    begins: Begins::Running,
    expects: &[],
    inject: |_| Ok(()),
};

/// In the order of the report.
pub(super) const FAULTS: [Fault; 11] = [
    Fault {
        id: "rank-killed",
        title: "A rank is killed",
        expects: &[SAME_PLACE, OTHERS_STAY, FEW_AGAIN],
        inject: pods::rank_is_killed,
        ..PLAIN
    },
    Fault {
        id: "pod-deleted",
        title: "A pod is deleted",
        expects: &[SAME_PLACE, OTHERS_STAY, FEW_AGAIN],
        inject: pods::is_deleted,
        ..PLAIN
    },
    Fault {
        id: "gpu-lost",
        title: "A GPU is removed, and comes back",
        basis: LOST,
        expects: &[
            "the kubelet offers 7 GPUs",
            LEAVES,
            FEW_AGAIN,
            "the kubelet offers 8 GPUs once the GPU is back and an operator has cleared it",
        ],
        inject: hardware::gpu_is_lost,
        ..PLAIN
    },
    Fault {
        id: "xid-watch",
        title: "Xid 63: the GPU is watched",
        basis: KERNEL_LOG,
        expects: &["the agent grades the GPU suspect, and the kubelet offers it as before", STAYS],
        inject: hardware::gpu_is_watched,
        ..PLAIN
    },
    Fault {
        id: "xid-broken",
        title: "Xid 79: the GPU has fallen off the bus",
        basis: KERNEL_LOG,
        expects: &["the agent grades the GPU broken", LEAVES, FEW_AGAIN, OFFERS_SEVEN, CLOSED],
        inject: hardware::gpu_breaks,
        ..PLAIN
    },
    Fault {
        id: "kubelet-stopped",
        title: "The kubelet of a node stops",
        expects: &[
            "Kubernetes reports the node as not ready",
            ELSEWHERE,
            FEW_AGAIN,
            "the lost pods end, and the node offers its GPUs again once the kubelet is back",
        ],
        inject: nodes::kubelet_stops,
        ..PLAIN
    },
    Fault {
        id: "node-drained",
        title: "A node is drained",
        expects: &[ELSEWHERE, FEW_AGAIN, "only the evicted pods count as failures of the Job"],
        inject: nodes::is_drained,
        ..PLAIN
    },
    Fault {
        id: "node-tainted",
        title: "A node gets a NoExecute taint",
        expects: &[ELSEWHERE, FEW_AGAIN],
        inject: nodes::is_tainted,
        ..PLAIN
    },
    Fault {
        id: "scheduler-killed",
        title: "The scheduler is killed, and started again",
        notice: Notice::Leads,
        expects: &[
            "all ranks complete steps without a scheduler",
            STAYS,
            "no step is done again",
            "the new scheduler counts the gang, and starts another job on free GPUs only",
        ],
        inject: control::scheduler_is_killed,
        ..PLAIN
    },
    Fault {
        id: "scheduler-killed-binding",
        title: "The scheduler is killed while it binds a gang",
        notice: Notice::Leads,
        begins: Begins::Starting,
        expects: &["the new scheduler starts the gang whole"],
        inject: control::scheduler_is_killed_while_it_binds,
        ..PLAIN
    },
    Fault {
        id: "agent-killed",
        title: "The agent of a node is killed, and started again",
        notice: Notice::Serves,
        expects: &[
            "all ranks complete steps without the agent",
            STAYS,
            "no step is done again",
            "the agent hands out the GPUs of the node again",
        ],
        inject: control::agent_is_killed,
        ..PLAIN
    },
];
