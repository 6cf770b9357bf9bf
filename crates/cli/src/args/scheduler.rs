//! What can be typed of the scheduler of a Kubernetes cluster.

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum, ValueHint};

use super::Log;

#[derive(Debug, Args)]
pub(crate) struct Scheduler {
    /// How to reach the cluster [default: what a pod finds inside, or $KUBECONFIG].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Which context of that file.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    #[command(flatten)]
    pub(crate) deciding: Deciding,
    /// How long a pod is tried to be bound, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) binding_deadline: u64,
    /// Namespace of the lease by which one of several schedulers leads.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub(crate) lease_namespace: String,
    #[arg(long, value_name = "NAME", default_value = "phalanx-scheduler")]
    pub(crate) lease_name: String,
    /// How long the lease lasts without being renewed, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    pub(crate) lease_duration: u64,
    /// Where /healthz, /readyz and /metrics are served [default: nowhere].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub(crate) log: Log,
    /// Ask Cluster Autoscaler for all nodes of a gang at once, by ProvisioningRequests of this class, such as
    /// best-effort-atomic-scale-up.autoscaling.x-k8s.io [default: it sees pods alone].
    #[arg(long, value_name = "CLASS")]
    pub(crate) provisioning_class: Option<String>,
    /// Send traces by OTLP over HTTP to the collector at this base URL, such as http://collector:4318 [default: what
    /// OTEL_EXPORTER_OTLP_ENDPOINT says, and otherwise nowhere].
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub(crate) otlp_endpoint: Option<String>,
    /// Lead without asking: for a cluster that surely has no other.
    #[arg(long)]
    pub(crate) no_lease: bool,
}

/// What its decisions rest on, beside the cluster.
#[derive(Debug, Args)]
pub(crate) struct Deciding {
    /// Pods with this `schedulerName` are scheduled.
    #[arg(long, value_name = "NAME", default_value = "phalanx")]
    pub(crate) scheduler_name: String,
    /// Which nodes new gangs go to.
    #[arg(long, value_enum, default_value = "all")]
    pub(crate) nodes: Used,
    /// What says that a node is broken and gets no new pods: conditions as NAME=STATUS, labels as label:KEY=VALUE, or
    /// none [default: the conditions of node-problem-detector and of the agents of AKS and EKS].
    #[arg(long, value_name = "SIGN", value_delimiter = ',')]
    pub(crate) broken_if: Option<Vec<String>>,
    /// How much of all GPUs may be closed because agents found faults, in percent; in a small cluster 8 GPUs and at most
    /// half. 0: none. What people close, and GPUs that are lost, are not counted.
    #[arg(long, value_name = "PERCENT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) close_at_most: u32,
    /// Queue of gangs that name none.
    #[arg(long, value_name = "QUEUE", default_value = "default")]
    pub(crate) queue: String,
    /// By when all pods of a gang have to run, in seconds after the decision to start it.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub(crate) ready_deadline: u64,
    /// How long the place of a pod that ended is kept for the one that its owner makes in its stead, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) replacement_deadline: u64,
    /// Seconds that a gang runs before it may be preempted, if no class of the SharePolicy has its priority as its rank.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) min_run: u64,
}

/// A scheduler that was started without a flag, for whoever looks at a cluster as it does.
#[derive(Debug, Parser)]
pub(crate) struct ByDefault {
    #[command(flatten)]
    pub(crate) deciding: Deciding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Used {
    /// All but those with the label `phalanx.dev/schedule` or `ack.node.gpu.schedule` of value `default`.
    All,
    /// Those alone on which one of these labels is `topology`.
    Labelled,
}
