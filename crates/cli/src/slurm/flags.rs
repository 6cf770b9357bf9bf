//! The options of `sbatch`, `srun` and `salloc`: which are used, which change nothing here, and which are refused.

use super::options::{Flag, Tables, Takes, alias, ignored, means, refused, used};

use Takes::{Nothing, Optional, Value};

pub(super) const SBATCH: Tables = &[JOB, BATCH, NOT_HERE];
pub(super) const SALLOC: Tables = &[JOB, ALLOC, NOT_HERE];
/// `srun` where no job is: it makes one.
pub(super) const SRUN: Tables = &[JOB, STEP, OUTPUT, ALLOC, NOT_HERE];
/// `srun` in a job: it starts a step of the job.
pub(super) const SRUN_STEP: Tables = &[STEP, OUTPUT, STEP_SIZE, OF_THE_JOB];

const NO_MAIL: &str = "no mail is sent; `phalanx submit --notify` calls a command or a URL";
const BINDING: &str = "processes are not bound to CPUs";
const TREE: &str = "placement follows the topology by itself";

/// Size, order and surroundings of a job.
const JOB: &[Flag] = &[
    used("job-name", 'J', Value),
    used("partition", 'p', Value),
    ignored("account", 'A', Value, "the queue (--partition) is charged"),
    used("nodes", 'N', Value),
    used("ntasks", 'n', Value),
    used("ntasks-per-node", ' ', Value),
    alias("tasks-per-node", ' ', Value, "ntasks-per-node"),
    used("cpus-per-task", 'c', Value),
    used("cpus-per-gpu", ' ', Value),
    used("mincpus", ' ', Value),
    used("mem", ' ', Value),
    used("mem-per-cpu", ' ', Value),
    used("mem-per-gpu", ' ', Value),
    used("gpus", 'G', Value),
    used("gpus-per-node", ' ', Value),
    used("gpus-per-task", ' ', Value),
    used("gres", ' ', Value),
    used("constraint", 'C', Value),
    used("time", 't', Value),
    ignored("time-min", ' ', Value, "the limit of --time is not shortened"),
    used("dependency", 'd', Value),
    used("begin", 'b', Value),
    used("hold", 'H', Nothing),
    used("qos", 'q', Value),
    used("nice", ' ', Optional),
    used("priority", ' ', Value),
    used("exclusive", ' ', Optional),
    used("nodelist", 'w', Value),
    used("exclude", 'x', Value),
    used("chdir", 'D', Value),
    alias("workdir", ' ', Value, "chdir"),
    used("export", ' ', Value),
    used("signal", ' ', Value),
    used("switches", ' ', Value),
    used("quiet", 'Q', Nothing),
    ignored("verbose", 'v', Nothing, ""),
    ignored("comment", ' ', Value, ""),
    ignored("wckey", ' ', Value, ""),
    ignored("mail-type", ' ', Value, NO_MAIL),
    ignored("mail-user", ' ', Value, NO_MAIL),
    ignored("hint", ' ', Value, BINDING),
    ignored("threads-per-core", ' ', Value, BINDING),
    ignored("cores-per-socket", ' ', Value, BINDING),
    ignored("sockets-per-node", ' ', Value, BINDING),
    ignored("ntasks-per-core", ' ', Value, BINDING),
    ignored("ntasks-per-socket", ' ', Value, BINDING),
    ignored("extra-node-info", 'B', Value, BINDING),
    ignored("core-spec", 'S', Value, BINDING),
    ignored("cpu-bind", ' ', Value, BINDING),
    ignored("mem-bind", ' ', Value, BINDING),
    ignored(
        "gpu-bind",
        ' ',
        Value,
        "--gpus-per-task gives each task its own GPUs, and without it a task sees all of its node",
    ),
    ignored("gres-flags", ' ', Value, TREE),
    ignored("distribution", 'm', Value, "tasks are numbered node by node"),
    ignored("oversubscribe", 's', Nothing, "CPUs are shared unless a job asks for them"),
    ignored("overcommit", 'O', Nothing, "CPUs are shared unless a job asks for them"),
    ignored("delay-boot", ' ', Value, ""),
    ignored("propagate", ' ', Optional, "the daemon sets the limits of processes"),
    ignored("profile", ' ', Value, "the daemon samples GPUs by itself"),
    ignored("acctg-freq", ' ', Value, "the daemon samples GPUs by itself"),
    ignored("use-min-nodes", ' ', Nothing, TREE),
    ignored("nvmps", ' ', Nothing, "`phalanx submit -G 0.25` shares GPUs"),
];

/// Of `sbatch` alone.
const BATCH: &[Flag] = &[
    used("array", 'a', Value),
    used("output", 'o', Value),
    used("error", 'e', Value),
    used("input", 'i', Value),
    used("open-mode", ' ', Value),
    used("parsable", ' ', Nothing),
    means("requeue", "requeue", "yes"),
    means("no-requeue", "requeue", "no"),
    used("test-only", ' ', Nothing),
    used("wait", 'W', Nothing),
    used("wrap", ' ', Value),
    used("export-file", ' ', Value),
    ignored("get-user-env", ' ', Optional, "the script has the environment of its submission"),
    ignored("ignore-pbs", ' ', Nothing, ""),
    ignored("kill-on-invalid-dep", ' ', Value, "a job ends if its dependency can no longer be met"),
];

/// Of `salloc` and of an `srun` that makes a job.
const ALLOC: &[Flag] = &[
    ignored("bell", ' ', Nothing, ""),
    ignored("no-bell", ' ', Nothing, ""),
    ignored("immediate", 'I', Optional, "the command waits until the job starts"),
    ignored("kill-command", 'K', Optional, ""),
    ignored("no-shell", ' ', Nothing, "the job ends with its shell"),
    ignored("disable-status", 'X', Nothing, ""),
];

/// What runs in a step.
const STEP: &[Flag] = &[
    used("label", 'l', Nothing),
    used("pty", ' ', Optional),
    used("kill-on-bad-exit", 'K', Optional),
    used("mpi", ' ', Value),
    used("jobid", ' ', Value),
    used("input", 'i', Value),
    used("overlap", ' ', Nothing),
    used("exact", ' ', Nothing),
    ignored("unbuffered", 'u', Nothing, ""),
    ignored("wait", 'W', Value, "a step lasts until its last task has ended"),
    ignored("preserve-env", 'E', Nothing, ""),
    ignored("task-prolog", ' ', Value, "set up the environment in the script"),
    ignored("slurmd-debug", ' ', Value, ""),
    ignored("interactive", ' ', Nothing, ""),
    refused(
        "multi-prog",
        ' ',
        Nothing,
        "all tasks of a step run one program",
        "branch on $SLURM_PROCID in a script",
    ),
    refused("het-group", ' ', Value, "a job has equal nodes", "a job file has `roles` (docs/job-file.md)"),
    refused("bcast", ' ', Optional, "all nodes see the files of the script", "leave the option out"),
    refused("attach", 'a', Value, "a step cannot be joined", "`phalanx logs -f JOB` shows its output"),
    refused("prolog", ' ', Value, "steps have no prolog", "run it in the script, before srun"),
    refused("epilog", ' ', Value, "steps have no epilog", "run it in the script, after srun"),
    refused(
        "relative",
        'r',
        Value,
        "nodes of a step are chosen by name",
        "`-w NODE`, with names of `scontrol show hostnames`",
    ),
];

const OUTPUT: &[Flag] =
    &[used("output", 'o', Value), used("error", 'e', Value), used("open-mode", ' ', Value)];

/// What may be said of a step.
const STEP_SIZE: &[Flag] = &[
    used("nodes", 'N', Value),
    used("ntasks", 'n', Value),
    used("ntasks-per-node", ' ', Value),
    alias("tasks-per-node", ' ', Value, "ntasks-per-node"),
    used("cpus-per-task", 'c', Value),
    used("nodelist", 'w', Value),
    used("exclude", 'x', Value),
    used("gpus-per-task", ' ', Value),
    used("gpus", 'G', Value),
    used("gpus-per-node", ' ', Value),
    used("gres", ' ', Value),
    used("chdir", 'D', Value),
    used("export", ' ', Value),
    used("exclusive", ' ', Optional),
    used("job-name", 'J', Value),
    used("quiet", 'Q', Nothing),
];

/// Of a whole job: a step changes nothing of it.
const OF_THE_JOB: &[Flag] = &[
    ignored("partition", 'p', Value, ""),
    ignored("account", 'A', Value, ""),
    ignored("mem", ' ', Value, "a step shares the memory of its job"),
    ignored("mem-per-cpu", ' ', Value, "a step shares the memory of its job"),
    ignored("mem-per-gpu", ' ', Value, "a step shares the memory of its job"),
    ignored("cpus-per-gpu", ' ', Value, ""),
    ignored("time", 't', Value, "a step has the time of its job"),
    ignored("verbose", 'v', Nothing, ""),
    ignored("comment", ' ', Value, ""),
    ignored("qos", 'q', Value, ""),
    ignored("constraint", 'C', Value, ""),
    ignored("hint", ' ', Value, BINDING),
    ignored("threads-per-core", ' ', Value, BINDING),
    ignored("ntasks-per-core", ' ', Value, BINDING),
    ignored("ntasks-per-socket", ' ', Value, BINDING),
    ignored("cpu-bind", ' ', Value, BINDING),
    ignored("mem-bind", ' ', Value, BINDING),
    ignored("gpu-bind", ' ', Value, "--gpus-per-task gives each task its own GPUs"),
    ignored("gres-flags", ' ', Value, ""),
    ignored("distribution", 'm', Value, "tasks are numbered node by node"),
    ignored("oversubscribe", 's', Nothing, ""),
    ignored("overcommit", 'O', Nothing, ""),
    ignored("signal", ' ', Value, "say --signal to sbatch"),
    ignored("propagate", ' ', Optional, ""),
    ignored("profile", ' ', Value, ""),
    ignored("acctg-freq", ' ', Value, ""),
    ignored("immediate", 'I', Optional, ""),
    ignored("disable-status", 'X', Nothing, ""),
    refused("container", ' ', Value, NO_CONTAINER.0, NO_CONTAINER.1),
    refused("container-image", ' ', Value, NO_CONTAINER.0, NO_CONTAINER.1),
    refused("container-mounts", ' ', Value, NO_CONTAINER.0, NO_CONTAINER.1),
    refused("container-name", ' ', Value, NO_CONTAINER.0, NO_CONTAINER.1),
    refused("dependency", 'd', Value, "a step has no dependencies", "say --dependency to sbatch"),
];

const NO_CONTAINER: (&str, &str) = (
    "jobs run as processes of this machine",
    "start the program with `apptainer exec` or `podman run` in the script; clusters run images: `phalanx submit --to kubernetes`",
);

/// What no job here can have.
const NOT_HERE: &[Flag] = &[
    refused(
        "reservation",
        ' ',
        Value,
        "there are no named reservations",
        "`phalanx calendar add NODES --for QUEUE --from TIME --until TIME` keeps nodes for a queue, which --partition names",
    ),
    refused(
        "licenses",
        'L',
        Value,
        "licenses are not counted by this name",
        "a cluster file counts named resources; `phalanx submit --resource NAME=N` takes some",
    ),
    refused("clusters", 'M', Value, "there is one cluster", "leave the option out, or set PHALANX_STATE"),
    refused("cluster-constraint", ' ', Value, "there is one cluster", "leave the option out"),
    refused(
        "deadline",
        ' ',
        Value,
        "Slurm counts it to the end of a job, and Phalanx to its start",
        "`phalanx submit --deadline` says when a job must have started",
    ),
    refused("container", ' ', Value, NO_CONTAINER.0, NO_CONTAINER.1),
    refused("container-id", ' ', Value, NO_CONTAINER.0, NO_CONTAINER.1),
    refused("container-image", ' ', Value, NO_CONTAINER.0, NO_CONTAINER.1),
    refused("container-mounts", ' ', Value, NO_CONTAINER.0, NO_CONTAINER.1),
    refused("container-name", ' ', Value, NO_CONTAINER.0, NO_CONTAINER.1),
    refused(
        "contiguous",
        ' ',
        Nothing,
        "node numbers say nothing about distance",
        "--switches=1 keeps a job below one switch",
    ),
    refused(
        "spread-job",
        ' ',
        Nothing,
        "nodes are taken near each other",
        "`phalanx submit --spread 1@node`",
    ),
    refused(
        "gpus-per-socket",
        ' ',
        Value,
        "GPUs are counted for each node or task",
        "--gpus-per-node or --gpus-per-task",
    ),
    refused(
        "ntasks-per-gpu",
        ' ',
        Value,
        "several tasks on one GPU share it",
        "`phalanx submit --ranks N -G 0.25` gives each rank a part of a GPU",
    ),
    refused(
        "tres-per-task",
        ' ',
        Value,
        "it says the same as other options",
        "--cpus-per-task, --mem and --gpus-per-task",
    ),
    refused(
        "tmp",
        ' ',
        Value,
        "local disk is not counted by this name",
        "a cluster file counts named resources; `phalanx submit --resource disk_gb=N` takes some",
    ),
    refused("bb", ' ', Value, "there are no burst buffers", "copy files in the script"),
    refused("bbf", ' ', Value, "there are no burst buffers", "copy files in the script"),
    refused(
        "prefer",
        ' ',
        Value,
        "features are not wished for",
        "`phalanx submit --prefer NODE` names nodes",
    ),
    refused("nodefile", 'F', Value, "a list of nodes is given by --nodelist", "--nodelist=NAME,NAME"),
    refused("batch", ' ', Value, "a script runs on the first node of its job", "leave the option out"),
    refused("network", ' ', Value, "networks are not configured by jobs", "leave the option out"),
    refused("no-kill", 'k', Optional, "a job ends with its first lost node", "--requeue starts it again"),
    refused("reboot", ' ', Nothing, "nodes are not rebooted for jobs", "ask an operator"),
    refused("thread-spec", ' ', Value, "no CPUs are set aside", "leave the option out"),
    refused("uid", ' ', Value, "a job belongs to the user who submits it", "`sudo -u USER sbatch`"),
    refused("gid", ' ', Value, "a job has the groups of its user", "`sg GROUP sbatch`"),
    refused("mcs-label", ' ', Value, "there are no such labels", "leave the option out"),
    refused("gpu-freq", ' ', Value, "clocks of GPUs are left alone", "`nvidia-smi -lgc` as root"),
    refused("cpu-freq", ' ', Value, "clocks of CPUs are left alone", "`cpupower` as root"),
    refused("power", ' ', Value, "power is not managed by jobs", "leave the option out"),
    refused("burst-buffer", ' ', Value, "there are no burst buffers", "copy files in the script"),
    refused(
        "resv-ports",
        ' ',
        Optional,
        "ports are not reserved",
        "MASTER_PORT from $SLURM_JOB_ID, as most scripts do",
    ),
    refused("x11", ' ', Optional, "displays are not forwarded", "`ssh -X` to the node"),
];
