//! What can be typed after `submit` and `run`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use clap_complete::engine::ArgValueCompleter;

use super::{Kind, Reach};
use crate::complete;

#[derive(Debug, Args)]
pub(crate) struct Submit {
    #[command(subcommand)]
    pub(crate) kind: Option<Kind>,
    /// Image that every pod runs; with `--to kubernetes`.
    #[arg(long, value_name = "IMAGE", help_heading = "Environment")]
    pub(crate) image: Option<String>,
    #[command(flatten)]
    pub(crate) reach: Reach,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Say where and when it would start and how fast it would be; submit nothing.
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    /// Wait until the job has ended, and exit with its code.
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// On Ctrl-C leave the job running; without this it is cancelled (twice: leaves at once).
    #[arg(long)]
    pub(crate) detach_on_interrupt: bool,
    /// In a terminal, which is this one: its first rank, or the launcher of `--launch mpi`. Ctrl-] d leaves the job
    /// running, and `attach` comes back to it.
    #[arg(long, visible_alias = "tty")]
    pub(crate) pty: bool,
}

/// The names are those that `phalanx-spec` uses in its messages; aliases are Slurm's and torchrun's.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct JobArgs {
    /// Job file (YAML); `-` reads it from standard input.
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Name of the job.
    #[arg(short, long)]
    pub(crate) name: Option<String>,
    /// Number of nodes.
    #[arg(short = 'N', long, value_name = "N", help_heading = "Size")]
    pub(crate) nodes: Option<String>,
    /// Only on this node; given several times: on all of these, or on as many of them as `--nodes` says.
    #[arg(long = "node", value_name = "NAME", help_heading = "Size", add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) named: Vec<String>,
    /// Not on this node; given several times: on none of these.
    #[arg(long, value_name = "NAME", help_heading = "Size", add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) exclude: Vec<String>,
    /// On this node where the whole job fits there; given several times: on these.
    #[arg(long, value_name = "NAME", help_heading = "Size", add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) prefer: Vec<String>,
    /// Nobody else on the nodes of the job.
    #[arg(long, help_heading = "Size")]
    pub(crate) exclusive: bool,
    /// GPUs of the whole job, with or without `--nodes`: `8`, `H100:8`, `'H100|A100:8'`; or a part of one for each
    /// rank: `0.25`.
    #[arg(short = 'G', long, value_name = "[MODEL:]N", help_heading = "Size")]
    pub(crate) gpus: Option<String>,
    /// A MIG slice for each rank: `1g.10gb`.
    #[arg(long, value_name = "PROFILE", help_heading = "Size")]
    pub(crate) mig: Option<String>,
    /// GPUs of each node.
    #[arg(long, value_name = "[MODEL:]N", help_heading = "Size")]
    pub(crate) gpus_per_node: Option<String>,
    /// Processes of the whole job.
    #[arg(long, value_name = "N", visible_alias = "ntasks", help_heading = "Size")]
    pub(crate) ranks: Option<String>,
    /// Processes of each node.
    #[arg(long, value_name = "N", visible_aliases = ["ntasks-per-node", "nproc-per-node"], help_heading = "Size")]
    pub(crate) ranks_per_node: Option<String>,
    /// CPUs: of each node with `--nodes`, otherwise of the whole job.
    #[arg(long, value_name = "N", help_heading = "Size")]
    pub(crate) cpus: Option<String>,
    /// Memory, e.g. `64GB`: of each node with `--nodes`, otherwise of the whole job.
    #[arg(long, value_name = "SIZE", visible_alias = "mem", help_heading = "Size")]
    pub(crate) memory: Option<String>,
    /// Of a resource that the cluster counts, `nic=1`: of each node with `--nodes`, otherwise of the whole job.
    #[arg(long, value_name = "NAME=N", help_heading = "Size")]
    pub(crate) resource: Vec<String>,
    /// How close together: `leaf`, `leaf:required`, `leaf:preferred@10m`.
    #[arg(long, value_name = "LEVEL[:MODE][@WAIT]", help_heading = "Size")]
    pub(crate) topology: Option<String>,
    /// Ranks that must stay together, in one domain of a level: `8@node`; given several times: inside each other.
    #[arg(long = "segment", value_name = "RANKS@LEVEL", help_heading = "Size", add = ArgValueCompleter::new(complete::segments))]
    pub(crate) segments: Vec<String>,
    /// At most so many ranks in any one domain of a level: `1@rack`; given several times: of each of these levels.
    #[arg(long, value_name = "RANKS@LEVEL", help_heading = "Size", add = ArgValueCompleter::new(complete::segments))]
    pub(crate) spread: Vec<String>,
    /// A box of chips of a torus: `4x4x8`.
    #[arg(long, value_name = "XxYxZ", help_heading = "Size")]
    pub(crate) slice: Option<String>,
    /// How the ranks are laid out: `tensor=8,data=4`; also `expert` and `pipeline`.
    #[arg(long, value_name = "AXIS=N,…", help_heading = "Size", add = ArgValueCompleter::new(complete::axes))]
    pub(crate) parallel: Option<String>,
    /// Longest running time: `90m`, `2-00:00:00`; a plain number is minutes.
    #[arg(short, long, alias = "time-limit", help_heading = "Queueing")]
    pub(crate) time: Option<String>,
    #[arg(short, long, help_heading = "Queueing", help = "Queue that the job waits in")]
    pub(crate) queue: Option<String>,
    /// Higher goes first.
    #[arg(short, long, value_name = "N", allow_hyphen_values = true, help_heading = "Queueing")]
    pub(crate) priority: Option<String>,
    /// Class of priority, e.g. `serving`.
    #[arg(long, value_name = "NAME", visible_alias = "qos", help_heading = "Queueing")]
    pub(crate) class: Option<String>,
    /// Wait until somebody releases it.
    #[arg(long, help_heading = "Queueing")]
    pub(crate) hold: bool,
    /// Wait for the end of a job: `12`, `12:failure`, `12:any`, and on one machine `train` for the newest job of that name;
    /// given several times: for all of these.
    #[arg(long, value_name = "JOB[:END]", value_delimiter = ',', help_heading = "Queueing")]
    pub(crate) after: Vec<String>,
    /// Start no earlier: `2026-12-01T08:00Z`, or `+2h` from now.
    #[arg(long, value_name = "TIME", help_heading = "Queueing")]
    pub(crate) begin: Option<String>,
    /// Start no later, or not at all: `2026-12-01T08:00Z`, or `+8h` from now.
    #[arg(long, value_name = "TIME", help_heading = "Queueing")]
    pub(crate) deadline: Option<String>,
    /// Run it so many times, or as tasks with these numbers; with `%N` so many at once: `10`, `10%2`, `1-9:3,15`.
    #[arg(short, long, value_name = "TASKS[%N]", help_heading = "Queueing")]
    pub(crate) array: Option<String>,
    /// What becomes of it when it has to make way.
    #[arg(long, value_name = "MODE", value_parser = ["requeue", "cancel", "never"], help_heading = "Queueing")]
    pub(crate) preempt: Option<String>,
    /// It may be moved to other nodes, so that another job has its nodes near each other.
    #[arg(long, help_heading = "Queueing")]
    pub(crate) may_move: bool,
    /// Nodes that may be taken back at short notice will do.
    #[arg(long, help_heading = "Queueing")]
    pub(crate) spot: bool,
    /// Idempotency key: a second submission with it is the same job.
    #[arg(long, help_heading = "Queueing")]
    pub(crate) key: Option<String>,
    /// Variable for the program; a name alone is passed on from this environment.
    #[arg(short, long, value_name = "NAME[=VALUE]", help_heading = "Environment")]
    pub(crate) env: Vec<String>,
    /// Secret from this environment, or from a file; never written into the job.
    #[arg(long, value_name = "NAME[=FILE]", help_heading = "Environment")]
    pub(crate) secret: Vec<String>,
    /// Where the program starts [default: here].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Environment")]
    pub(crate) workdir: Option<String>,
    /// How processes are started.
    #[arg(long, value_name = "KIND", value_parser = ["ranks", "torchrun", "jax", "mpi", "none"], help_heading = "Environment")]
    pub(crate) launch: Option<String>,
    /// Restarts after failures.
    #[arg(long, value_name = "N", visible_alias = "max-restarts", help_heading = "Lifecycle")]
    pub(crate) retry: Option<String>,
    /// Failures that restart: `user_code`, `start_up`, `node`, `preemption`, `infrastructure`.
    #[arg(long, value_name = "CAUSE", value_delimiter = ',', help_heading = "Lifecycle")]
    pub(crate) retry_on: Vec<String>,
    /// Signal that asks ranks to save their work, and how long before SIGTERM: `USR1@120`.
    #[arg(long, value_name = "SIGNAL[@TIME]", help_heading = "Lifecycle")]
    pub(crate) signal: Option<String>,
    /// Time between SIGTERM and SIGKILL.
    #[arg(long, value_name = "TIME", help_heading = "Lifecycle")]
    pub(crate) grace: Option<String>,
    /// Where the program saves its work, told to it as `PHALANX_CKPT_DIR`.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Lifecycle")]
    pub(crate) checkpoint_dir: Option<String>,
    /// Command line or URL that is told when the job starts, ends or is preempted.
    #[arg(long, value_name = "COMMAND|URL", help_heading = "Lifecycle")]
    pub(crate) notify: Option<String>,
    /// Set by verbs that attach.
    #[arg(skip)]
    pub(crate) terminal: bool,
    /// Program and arguments, after `--`.
    #[arg(last = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<String>,
}
