//! What can be typed of a node's agent.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::Log;

#[derive(Debug, Args)]
pub(crate) struct Node {
    /// How to reach the cluster [default: what a pod finds inside, or $KUBECONFIG].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Which context of that file.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The node that this machine is.
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub(crate) node_name: String,
    /// What stands in the machine: a file that describes one, such as of `nvidia-smi topo -m` [default: this machine as found].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) machine: Option<PathBuf>,
    /// Seconds between two looks at the machine.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) every: u64,
    /// Where the kernel's messages are, for Xids of GPUs: /dev/kmsg, or a file that has the kernel's messages alone.
    #[arg(long, value_name = "FILE", default_value = "/dev/kmsg", value_hint = ValueHint::FilePath)]
    pub(crate) kernel_log: PathBuf,
    /// Sample GPUs by this DCGM exporter, which has those of this node: `http://127.0.0.1:9400/metrics` [default: by NVML].
    #[arg(long, value_name = "URL", value_parser = phalanx_node::telemetry::check_url, value_hint = ValueHint::Url)]
    pub(crate) dcgm: Option<String>,
    /// Seconds between two samples of the GPUs and network ports.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) sample_every: u64,
    /// Hand out nvidia.com/gpu to the kubelet, as the scheduler chose; in place of NVIDIA's device plugin.
    #[arg(long)]
    pub(crate) device_plugin: bool,
    /// The kubelet's folder.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet", value_hint = ValueHint::DirPath)]
    pub(crate) kubelet: PathBuf,
    /// How containers get their devices.
    #[arg(long, value_enum, default_value = "environment")]
    pub(crate) injection: How,
    /// Where /healthz, /readyz and /metrics are served [default: nowhere].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub(crate) log: Log,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum How {
    /// `NVIDIA_VISIBLE_DEVICES`, for NVIDIA's container runtime.
    Environment,
    /// Names of the Container Device Interface.
    Cdi,
}
