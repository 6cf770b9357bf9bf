//! What can be typed of a Kubernetes cluster, and Arena's way of saying it.

use clap::{ArgAction, Args, Subcommand, ValueEnum, ValueHint};

/// Whom a verb talks to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum World {
    /// The daemon of this machine.
    #[default]
    Machine,
    /// The cluster of the kubeconfig, with the rights of its user.
    Kubernetes,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Kubernetes")]
pub(crate) struct Reach {
    /// Whom to ask.
    #[arg(long, env = "PHALANX_TO", value_enum, default_value_t, value_name = "WORLD")]
    pub(crate) to: World,
    /// Context of the kubeconfig [default: its current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace [default: that of the context].
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
}

/// A verb that either world understands.
#[derive(Debug, Args)]
pub(crate) struct Either<T: Args> {
    #[command(flatten)]
    pub(crate) verb: T,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Kind {
    /// An MPI job on a cluster, as Arena says it: an `MPIJob` where one is served, else a launcher and workers of ours.
    #[command(visible_alias = "mpijob")]
    Mpi(Arena),
    /// A PyTorch job on a cluster, as Arena says it: a `PyTorchJob` where one is served, else an indexed Job.
    #[command(visible_alias = "pytorchjob")]
    Pytorch(Arena),
}

/// Flags of `arena submit`. Unlike elsewhere, `--gpus` is of each worker.
#[derive(Debug, Args)]
pub(crate) struct Arena {
    #[arg(long, help = "Name of the job")]
    pub(crate) name: String,
    #[arg(long, help = "Image that every pod runs")]
    pub(crate) image: String,
    /// GPUs of each worker.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) gpus: u32,
    #[arg(long, value_name = "N", default_value_t = 1, help = "Workers")]
    pub(crate) workers: u32,
    /// All workers start together or none does; it is always so.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value_t = false, action = ArgAction::Set)]
    pub(crate) gang: bool,
    /// Workers close together: on one node where they fit on one. Needs `--gang`.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
          default_value_t = false, action = ArgAction::Set)]
    pub(crate) gputopology: bool,
    /// CPUs of each worker.
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) cpu: Option<String>,
    /// Memory of each worker, as Kubernetes writes it: `64Gi`.
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) memory: Option<String>,
    /// Shared memory of each worker: `2Gi`.
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) share_memory: Option<String>,
    /// Ranks of each worker [default: one for each GPU with `mpi`, one with `pytorch`].
    #[arg(long, value_name = "N")]
    pub(crate) nproc_per_node: Option<u32>,
    /// Pods that may fail before the job does.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retry: u32,
    #[arg(long, value_name = "DIR", help = "Where the command starts [default: as the image says]")]
    pub(crate) working_dir: Option<String>,
    #[arg(short, long, value_name = "NAME=VALUE", help = "Variable for the command")]
    pub(crate) env: Vec<String>,
    /// Claim of a volume, and where it is seen.
    #[arg(short, long, value_name = "CLAIM:PATH")]
    pub(crate) data: Vec<String>,
    #[arg(short, long, value_name = "KEY=VALUE", help = "Label of the job and its pods")]
    pub(crate) label: Vec<String>,
    #[arg(short, long, value_name = "KEY=VALUE", help = "Annotation of the job and its pods")]
    pub(crate) annotation: Vec<String>,
    /// Only on nodes with this label.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) selector: Vec<String>,
    /// Also on nodes with this taint; `all` for every one.
    #[arg(long, value_name = "KEY")]
    pub(crate) toleration: Vec<String>,
    /// PriorityClass of the cluster.
    #[arg(short, long, value_name = "CLASS")]
    pub(crate) priority: Option<String>,
    #[arg(long, value_name = "NAME", help = "Secret with which the image is pulled")]
    pub(crate) image_pull_secret: Vec<String>,
    #[arg(long, value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"], help = "When the image is pulled")]
    pub(crate) image_pull_policy: Option<String>,
    #[arg(long = "hostNetwork", help = "Use the network of the host")]
    pub(crate) host_network: bool,
    #[arg(long, value_name = "TIME", help = "Longest running time: `90m`")]
    pub(crate) running_timeout: Option<String>,
    #[arg(long, value_name = "SHELL", default_value = "sh", help = "Shell that runs the command")]
    pub(crate) shell: String,
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// The command; a single word is given to a shell.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct TopOf {
    #[command(subcommand)]
    pub(crate) of: Option<Top>,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) interval: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Top {
    /// GPUs of all nodes of a cluster.
    Node(Reach),
    /// GPUs of all jobs of a cluster.
    Job(Reach),
}
