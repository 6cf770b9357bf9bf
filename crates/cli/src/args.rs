//! What can be typed.

mod advise;
mod api;
mod audit;
mod bill;
mod calendar;
mod cluster;
mod daemon;
mod defrag;
#[cfg(test)]
mod deployed;
mod endpoints;
mod health;
mod job;
mod log;
mod node;
mod predict;
mod scheduler;
mod server;
mod sim;
mod submit;
mod terminal;
mod token;
mod topo;
mod wait;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::engine::ArgValueCompleter;

use crate::complete;
use crate::measure::Measure;
use crate::output::{Color, Format};
pub(crate) use advise::Advise;
pub(crate) use audit::Audit;
pub(crate) use bill::Bill;
pub(crate) use calendar::{Calendar, CalendarVerb, Drain, Nodes, Notice};
pub(crate) use cluster::{Arena, Either, Kind, Reach, Top, TopOf, World};
pub(crate) use daemon::{Doctor, Up};
pub(crate) use defrag::Defrag;
pub(crate) use endpoints::Endpoints;
pub(crate) use health::{Hardware, Health, HealthAct, HealthReportOf};
pub(crate) use job::{Requeue, Resize, Scale, Update, Which};
pub(crate) use log::Log;
pub(crate) use node::{How, Node};
pub(crate) use predict::{Predict, SIZES_MAX, Sizes, word};
pub(crate) use scheduler::{ByDefault, Deciding, Scheduler, Used};
pub(crate) use server::Server;
pub(crate) use sim::{Replay, Sim, SimVerb};
pub(crate) use submit::{JobArgs, Run, Submit};
pub(crate) use terminal::{Alloc, Exec};
pub(crate) use token::{Dashboard, Life, Token};
pub(crate) use topo::{Calibrate, Export, ExportTo, Import, Probe, Reading, Topo, Transport};
pub(crate) use wait::Wait;

const EXIT_CODES: &str = "\
Exit codes:
  0    done; for `run`, `submit --wait` and `wait`: the job succeeded
  N    `run` and `submit --wait`: the job's own exit code; `wait`: the highest code of the jobs
  1    `topo check`, `doctor`: something severe was found; `topo probe`: a pair could not be measured
  2    `replay --check`: a step is decided otherwise than it was
  64   bad flags or files, or a job that can never run here
  66   no such job or node
  69   no daemon answers; `phalanx up --detach` starts one
  70   an error inside Phalanx
  75   not possible right now; try again; `wait --timeout`: a job has not ended in time
  77   not allowed for this user
  124  the job reached its time limit
  130  the job was cancelled, or the wait for it was interrupted";

/// Starts distributed jobs whole, puts their ranks close together, and keeps them running.
#[derive(Debug, Parser)]
#[command(name = "phalanx", version, after_help = EXIT_CODES, max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// State folder of the daemon [default: /var/lib/phalanx for root, else ~/.local/state/phalanx].
    #[arg(long, global = true, env = "PHALANX_STATE", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) state: Option<PathBuf>,
    /// Shape of what is printed.
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "table",
          value_parser = PossibleValuesParser::new(Format::WORDS).map(|word| Format::of(&word)))]
    pub(crate) output: Format,
    /// When to use colours; `NO_COLOR` is honoured.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Color,
    /// Only what was asked for: no headings, notes or progress.
    #[arg(long, global = true)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Start the daemon on this machine.
    Up(Box<Up>),
    /// Stop the daemon; jobs go on and are adopted by the next one.
    Down,
    /// Check the state folder of the daemon on this machine, and cut off what is damaged.
    Doctor(Doctor),
    /// Submit a job; flags win over the file.
    #[command(args_conflicts_with_subcommands = true)]
    Submit(Box<Submit>),
    /// Submit a job, show its output, and exit with its code.
    Run(Box<Run>),
    /// Hold what a job would have, and work in a shell there: the job ends with the shell.
    ///
    /// The shell (`$SHELL`, or the command after `--`) runs once, on the first node of the job, and the other nodes are
    /// held for it, as with `--launch mpi`.
    Alloc(Box<Alloc>),
    /// Connect this terminal to that of a job: Ctrl-] d leaves it running.
    Attach(OneJob),
    /// Run a command beside a rank of a running job, with its GPUs and limits.
    Exec(Exec),
    /// List jobs.
    #[command(visible_aliases = ["list", "queue"])]
    Ps(Either<Ps>),
    /// Show one job in full.
    Get(Either<Get>),
    /// Say why a job waits, what would unblock it, and when it would start.
    Why(Either<OneJob>),
    /// Print the output of a job.
    Logs(Either<Logs>),
    /// Wait until jobs have ended, and exit with the highest of their codes.
    Wait(Wait),
    /// Cancel jobs: by number or name, or all that are meant by the flags.
    #[command(visible_aliases = ["stop", "delete"])]
    Cancel(Either<Cancel>),
    /// List nodes and what is free on them.
    Nodes(Reach),
    /// Draw the cluster: a cell for each GPU, with the job that holds it, below the domains of the topology.
    Map(MapOf),
    /// Watch jobs, nodes and queues of this machine; or show how many GPUs nodes and jobs of a cluster have and hold.
    Top(TopOf),
    /// Print the address of the dashboard, with a token that is yours.
    Dashboard(Dashboard),
    /// Make, list and revoke tokens with which programs ask the API in your name.
    #[command(subcommand)]
    Token(Token),
    /// Show, check, import and measure topologies.
    #[command(subcommand)]
    Topo(Topo),
    /// Predict how long a collective takes: on named GPUs, on so many, or for a job; without a daemon.
    Predict(Box<Predict>),
    /// List queues, show one with every term of the order, or put a queue file in force.
    #[command(args_conflicts_with_subcommands = true)]
    Queues(Queues),
    /// Show what happened: to one job, or the newest of all jobs.
    History(History),
    /// Show who changed what: your own acts, and as an operator those of all users.
    Audit(Audit),
    /// Show what GPUs were for and what it cost, by queue, user, job, model, or time.
    Bill(Bill),
    /// Show what jobs should ask for next time, from what their runs used.
    Advise(Advise),
    /// Show where the replicas of a service are reached, also as the file of a router.
    Endpoints(Endpoints),
    /// Let a job wait until it is released; what runs goes on.
    Hold(OneJob),
    /// Let a held job go.
    Release(OneJob),
    /// Give a job more priority for a while.
    Boost(Boost),
    /// Change the time limit, the priority or the queue of a job that has not ended.
    Update(Update),
    /// Stop what runs of a job and start it again; no retry counts.
    Requeue(Requeue),
    /// Say how many replicas of a service are to run.
    Scale(Scale),
    /// Give an elastic job another size, from its next boundary on.
    Resize(Resize),
    /// Tell the scheduler how a job goes; for its ranks.
    Tell(Tell),
    /// Show or do the moves of running jobs that open a place for one that waits.
    Defrag(Defrag),
    /// Place nothing new on a node; what runs there goes on.
    Cordon(Either<CordonNode>),
    /// Place nothing new on a node, and move away what runs there: now, or by a time.
    Drain(Drain),
    /// Let a node take work again.
    Uncordon(Either<OneNode>),
    /// Show what is wrong with nodes and GPUs, report evidence, or clear it after a repair.
    #[command(args_conflicts_with_subcommands = true)]
    Health(Health),
    /// List windows of maintenance, blocks for queues and what else is to come, or tell of one.
    Calendar(Calendar),
    /// Tell that a node will be taken back: nothing new goes there, and what runs saves its work and moves.
    Notice(Notice),
    /// Write down all that rebuilds the scheduler as it is now, for `sim whatif`; without the programs of jobs.
    Snapshot(Either<SnapshotTo>),
    /// Show what happened, decision by decision with reasons, and how things were then: out of the journal.
    Replay(Replay),
    /// Schedule the pods of a Kubernetes cluster.
    Scheduler(Scheduler),
    /// Serve the API and the dashboard of a Kubernetes cluster; it only reads.
    Server(Server),
    /// Say what stands in a node of a Kubernetes cluster, and hand out its devices; runs on each of them.
    Node(Node),
    /// Replay recorded jobs on a modelled cluster, compare policies, look for faults.
    Sim(Box<Sim>),
    /// Commands for users of Slurm: `sbatch`, `srun`, `salloc`, `squeue`, `sinfo`, `scancel`, `sacct`, `scontrol`.
    #[command(disable_help_flag = true)]
    Slurm {
        /// The command and its options, as in Slurm.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        words: Vec<String>,
    },
    /// Print the completion script of a shell: `source <(phalanx completion bash)`.
    Completion {
        #[arg(value_parser = ["bash", "zsh", "fish", "elvish", "powershell"])]
        shell: String,
    },
    /// Write the manual pages, one for each command.
    Man {
        /// Folder for the pages.
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        into: PathBuf,
    },
    /// Print the JSON Schema of a file.
    Schema { file: SchemaOf },
    /// Print the definitions of our resources on a Kubernetes cluster: `phalanx crds | kubectl apply -f -`.
    Crds,
    /// Holds a rank; started by the daemon.
    #[command(name = "__shim", hide = true)]
    Shim { dir: PathBuf },
    /// Holds a slot for a launcher that runs elsewhere: sleeps until SIGTERM.
    #[command(name = "__hold", hide = true)]
    HoldSlot,
    /// Keeps the terminal of a rank, or runs a command beside one; started by the daemon.
    #[command(name = "__terminal", hide = true)]
    Keep {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Runs the command of a notice as its owner; started by the daemon.
    #[command(name = "__confine", hide = true)]
    Confine,
    /// Sends a notice to a webhook as its owner; started by the daemon.
    #[command(name = "__post", hide = true)]
    Post,
    /// Measures between two ranks; submitted by `topo probe`.
    #[command(name = "__measure", hide = true)]
    Measure(Measure),
}

#[derive(Debug, Args)]
pub(crate) struct MapOf {
    /// Only this job with its letter; the others as one: number or name.
    #[arg(long, value_name = "JOB", add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SchemaOf {
    Job,
    Cluster,
    Queues,
}

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Finished jobs too.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Only jobs of this user.
    #[arg(long, conflicts_with = "user")]
    pub(crate) mine: bool,
    #[command(flatten)]
    pub(crate) which: Which,
    /// At most this many, the newest.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct OneJob {
    /// Number or name.
    #[arg(add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: String,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// Number or name.
    #[arg(add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: String,
    /// What it was submitted as to a cluster: `mpijob`, `pytorchjob`, `job`.
    #[arg(short = 'T', long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SnapshotTo {
    /// Where to [default: standard output].
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Queues {
    #[command(subcommand)]
    pub(crate) verb: Option<QueuesVerb>,
    /// Only this one, with every term of the order and what waits in it.
    #[arg(add = ArgValueCompleter::new(complete::queues))]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueuesVerb {
    /// Put a queue file in force; queues that it does not name are gone.
    Apply {
        /// Queue file (YAML); `-` reads it from standard input.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// Number or name [default: all jobs].
    #[arg(add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: Option<String>,
    /// At most this many, the newest.
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) limit: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Boost {
    /// Number or name.
    #[arg(add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: String,
    /// Added to its priority.
    #[arg(long, value_name = "N", allow_hyphen_values = true, required_unless_present = "clear")]
    pub(crate) priority: Option<i32>,
    /// How long, e.g. `2h`.
    #[arg(long = "for", value_name = "TIME", required_unless_present = "clear")]
    pub(crate) duration: Option<String>,
    /// No longer.
    #[arg(long, conflicts_with_all = ["priority", "duration"])]
    pub(crate) clear: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Tell {
    #[command(subcommand)]
    pub(crate) news: News,
    /// Number or name [default: the job that this runs in].
    #[arg(long, global = true, env = "PHALANX_JOB_ID")]
    pub(crate) job: Option<String>,
    /// Which gang of the job.
    #[arg(long, global = true, env = "PHALANX_GANG", value_name = "N", default_value_t = 0)]
    pub(crate) gang: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum News {
    /// The ranks saved their work, just now.
    Checkpoint,
    /// Somebody works in the session.
    Active,
    /// The ranks stand where the gang may change its size.
    Boundary,
    /// A value that the job measured: `queue_length=12`, `tokens_per_s=8000.5`.
    Metric {
        #[arg(value_name = "NAME=VALUE")]
        value: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    /// Numbers or names; a number with `.3` or `.3-9` means tasks of an array.
    #[arg(required_unless_present_any = Which::FLAGS, conflicts_with_all = Which::FLAGS, value_name = "JOB",
          add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) jobs: Vec<String>,
    #[command(flatten)]
    pub(crate) which: Which,
    /// With these words the jobs of all users, and not your own.
    #[arg(long, conflicts_with = "user", requires = "which")]
    pub(crate) all_users: bool,
    /// Say which jobs would be cancelled, and cancel none.
    #[arg(long, requires = "which")]
    pub(crate) dry_run: bool,
    /// What they were submitted as to a cluster: `mpijob`, `pytorchjob`, `job`.
    #[arg(short = 'T', long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Number or name.
    #[arg(add = ArgValueCompleter::new(complete::jobs))]
    pub(crate) job: String,
    /// Go on until the job has ended.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only this rank.
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u32>,
    /// This attempt [default: the newest].
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
    /// Only the last lines of each rank.
    #[arg(long, value_name = "N")]
    pub(crate) tail: Option<u32>,
    /// Only lines of this time or later: `10m` ago, or `2026-12-01T08:00Z`.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Print each line with the time when it was written, to a second.
    #[arg(short, long)]
    pub(crate) timestamps: bool,
}

#[derive(Debug, Args)]
pub(crate) struct OneNode {
    #[arg(add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct CordonNode {
    #[arg(add = ArgValueCompleter::new(complete::nodes))]
    pub(crate) node: String,
    /// Why, for all who list nodes.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn import_writes_a_file_and_the_others_choose_a_format() {
        let cli = Cli::try_parse_from(["phalanx", "topo", "import", "-", "-o", "c.yaml"]).unwrap();
        let Verb::Topo(Topo::Import(import)) = cli.verb else { panic!("not import") };
        assert_eq!(import.to, Some(Format::File("c.yaml".into())));
        let cli = Cli::try_parse_from(["phalanx", "-o", "json", "ps"]).unwrap();
        assert_eq!(cli.global.output, Format::Json);
        let cli = Cli::try_parse_from(["phalanx", "ps", "-o", "json"]).unwrap();
        assert_eq!(cli.global.output, Format::Json);
        assert!(Cli::try_parse_from(["phalanx", "ps", "-o", "c.yaml"]).is_err());
    }

    #[test]
    fn other_schedulers_names_are_understood() {
        for flag in ["--ntasks-per-node", "--nproc-per-node", "--ranks-per-node"] {
            let cli =
                Cli::try_parse_from(["phalanx", "submit", flag, "4", "--mem", "1GB", "--", "x"]).unwrap();
            let Verb::Submit(submit) = cli.verb else { panic!("not submit") };
            assert_eq!(submit.job.ranks_per_node.as_deref(), Some("4"));
            assert_eq!(submit.job.memory.as_deref(), Some("1GB"));
        }
        for alias in ["list", "queue", "ps"] {
            assert!(matches!(Cli::try_parse_from(["phalanx", alias]).unwrap().verb, Verb::Ps(_)));
        }
    }
}
