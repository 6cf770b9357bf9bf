//! Slurm's commands against a real daemon: scripts, their files, arrays, steps on several nodes, lists.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const EXE: &str = env!("CARGO_BIN_EXE_phalanx");

/// A daemon with two declared nodes of four GPUs, ended with the test.
struct World(tempfile::TempDir);

const CLUSTER: &str = "
levels: [leaf]
nodes:
- {name: 'gpu-[1-2]', path: {leaf: l1}, devices: {count: 4, model: Test H100}, cpus: 64, memory: 64GB}
";

impl World {
    fn up() -> Self {
        let world = Self(tempfile::tempdir().unwrap());
        fs::write(world.path("cluster.yaml"), CLUSTER).unwrap();
        world.start();
        world
    }

    fn start(&self) {
        let cluster = self.path("cluster.yaml").display().to_string();
        let up = self.phalanx(&["up", "--detach", "--cluster", &cluster]);
        assert!(up.status.success(), "{up:?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, program: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).current_dir(self.0.path()).env("PHALANX_STATE", self.path("state"));
        command.env_remove("SLURM_JOB_ID").env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        command
    }

    fn phalanx(&self, words: &[&str]) -> Output {
        self.command(EXE.as_ref(), words).output().unwrap()
    }

    /// A command of Slurm, with words that a space separates.
    fn slurm(&self, line: &str) -> Output {
        let words: Vec<&str> = ["slurm"].into_iter().chain(line.split(' ')).collect();
        self.phalanx(&words)
    }

    fn script(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        name.to_owned()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}; {:?}", self.files()))
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.phalanx(&["cancel", "--name", "*"]);
        self.phalanx(&["down"]);
    }
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_script_runs_once_with_its_environment_and_its_files() {
    let world = World::up();
    world.script(
        "train.sh",
        "#!/bin/bash\n\
         #SBATCH --job-name=train\n\
         #SBATCH --gres=gpu:2 --cpus-per-task=4 --mem=1G   # of one node\n\
         #SBATCH --time=10:00\n\
         #SBATCH -o out-%x-%j.txt\n\
         #SBATCH -e err-%j.txt\n\
         #SBATCH --mail-type=END\n\
         echo \"$SLURM_JOB_ID $SLURM_JOB_NAME $SLURM_NTASKS $SLURM_NNODES $SLURM_CPUS_PER_TASK $SLURM_GPUS_ON_NODE\"\n\
         echo \"devices=$CUDA_VISIBLE_DEVICES node=$SLURM_NODELIST proc=$SLURM_PROCID mem=$SLURM_MEM_PER_NODE\"\n\
         echo \"dir=$SLURM_SUBMIT_DIR given=$GIVEN args=$*\"\n\
         echo wrong >&2\n\
         exit 3\n",
    );
    let mut command = world.command(EXE.as_ref(), &["slurm", "sbatch", "--wait", "train.sh", "a", "b c"]);
    let output = command.env("GIVEN", "secret").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Submitted batch job 1\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--mail-type changes nothing: no mail is sent"));
    let lines = world.read("out-train-1.txt");
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines[0], "1 train 1 1 4 2");
    assert_eq!(lines[1], "devices=0,1 node=gpu-1 proc=0 mem=1024");
    let dir = fs::canonicalize(world.0.path()).unwrap();
    assert_eq!(lines[2], format!("dir={} given=secret args=a b c", dir.display()));
    assert_eq!(world.read("err-1.txt"), "wrong\n");
    // The output is in the log too, and the environment is in no document.
    assert!(out(&world.phalanx(&["logs", "1"])).contains("1 train 1 1 4 2"));
    assert!(!out(&world.phalanx(&["get", "1", "-o", "json"])).contains("GIVEN"));
    let account =
        out(&world.slurm("sacct -j 1 -n -P --format=JobID,JobName,State,ExitCode,NNodes,Timelimit"));
    assert_eq!(account, "1|train|FAILED|3:0|1|00:10:00\n");
    assert!(out(&world.slurm("scontrol show job 1")).contains("StdOut=out-train-1.txt\n"));
}

#[test]
fn srun_starts_tasks_on_every_node_of_a_job() {
    let world = World::up();
    world.script(
        "multi.sh",
        "#!/bin/bash\n\
         #SBATCH -N 2 --ntasks-per-node=2 --gpus-per-task=2 --switches=1\n\
         export COLOUR=blue\n\
         head=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n\
         echo \"head=$head ntasks=$SLURM_NTASKS\"\n\
         srun -l bash -c 'echo $SLURM_PROCID/$SLURM_NTASKS local=$SLURM_LOCALID node=$SLURMD_NODENAME gpus=$CUDA_VISIBLE_DEVICES $COLOUR'\n\
         srun -N1 -n1 -w gpu-2 bash -c 'echo alone on $SLURMD_NODENAME of $SLURM_STEP_NUM_TASKS'\n\
         srun --ntasks-per-node=1 bash -c 'exit $((SLURM_NODEID * 7))'\n\
         echo \"code=$?\"\n\
         srun --mpi=pmix hostname\n\
         echo \"refused=$?\"\n",
    );
    assert_eq!(out(&world.slurm("sbatch --wait --parsable multi.sh")), "1\n");
    let text = world.read("slurm-1.out");
    let mut labelled: Vec<&str> = text.lines().filter(|line| line.contains("local=")).collect();
    labelled.sort_unstable();
    assert_eq!(
        labelled,
        [
            "0: 0/4 local=0 node=gpu-1 gpus=0,1 blue",
            "1: 1/4 local=1 node=gpu-1 gpus=2,3 blue",
            "2: 2/4 local=0 node=gpu-2 gpus=0,1 blue",
            "3: 3/4 local=1 node=gpu-2 gpus=2,3 blue",
        ],
        "{text}"
    );
    for line in ["head=gpu-1 ntasks=4", "alone on gpu-2 of 1", "code=7", "refused=64"] {
        assert!(text.lines().any(|of| of == line), "{line}: {text}");
    }
    assert!(text.contains("srun: error: gpu-2: task 1: Exited with exit code 7"), "{text}");
    assert!(text.contains("--mpi=pmix is not supported"), "{text}");
}

#[test]
fn arrays_dependencies_lists_and_cancels() {
    let world = World::up();
    world.script(
        "array.sh",
        "#!/bin/bash\n\
         #SBATCH -a 1-3%2 -J sweep --output=%x-%A_%a.log\n\
         echo task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_JOB_ID count $SLURM_ARRAY_TASK_COUNT\n",
    );
    out(&world.slurm("sbatch --wait array.sh"));
    for task in 1..=3 {
        assert_eq!(world.read(&format!("sweep-1_{task}.log")), format!("task {task} of 1 count 3\n"));
    }
    let account = out(&world.slurm("sacct -j 1 -n -P -o jobid,state"));
    assert_eq!(account, "1_1|COMPLETED\n1_2|COMPLETED\n1_3|COMPLETED\n");

    let more = "sbatch -a 1-6%1 -H -J tasks --parsable --wrap true";
    let id = out(&world.slurm(more));
    let id = id.trim();
    out(&world.slurm(&format!("scancel {id}_[4-5]")));
    assert_eq!(out(&world.slurm(&format!("squeue -h -j {id} -o %i"))), format!("{id}_[1-3,6%1]\n"));
    out(&world.slurm(&format!("scancel {id}")));

    out(&world.slurm("sbatch -J long -t 1-0 --gres=gpu:4 -p lab --wrap sleep${IFS}1000"));
    out(&world.slurm("sbatch -J next -d afterok:3 --wrap true"));
    out(&world.slurm("sbatch -J held -H --nice=5 --wrap true"));
    let running = || out(&world.slurm("squeue -h -j 3 -o %T"));
    while running() != "RUNNING\n" {}
    let list = out(&world.slurm("squeue -h -o %i|%P|%j|%t|%D|%l|%b|%R"));
    assert_eq!(
        list,
        "4|default|next|PD|1|UNLIMITED|N/A|(Dependency)\n\
         5|default|held|PD|1|UNLIMITED|N/A|(JobHeldUser)\n\
         3|lab|long|R|1|1-00:00:00|gres/gpu:4|gpu-1\n"
    );
    let nodes = out(&world.slurm("sinfo -h -N -p lab -o %N|%t|%G"));
    assert_eq!(nodes, "gpu-1|alloc|gpu:4\ngpu-2|idle|gpu:4\n");
    out(&world.slurm("scontrol update JobId=5 Priority=9"));
    assert_eq!(out(&world.slurm("squeue -h -j 5 -o %Q")), "9\n");
    out(&world.slurm("scontrol release 5"));
    out(&world.phalanx(&["wait", "5"]));
    assert_eq!(out(&world.slurm("scancel -n long --state=RUNNING")), "");
    let wait = world.phalanx(&["wait", "3", "4"]);
    assert!(!wait.status.success());
    let account = out(&world.slurm("sacct -a -n -P -o jobid,state%9 -s CA,CD -j 3,5"));
    assert!(account.starts_with("3|CANCELLED by "), "{account}");
    assert!(account.ends_with("\n5|COMPLETED\n"), "{account}");
}

#[test]
fn what_is_not_supported_is_refused_by_name_and_nothing_is_submitted() {
    let world = World::up();
    world.script("a.sh", "#!/bin/bash\n#SBATCH -N 1\n#SBATCH --reservation=class\ntrue\n");
    let said = error(&world.slurm("sbatch a.sh"));
    assert!(said.contains("error: sbatch: a.sh:3: --reservation is not supported: "), "{said}");
    assert!(said.contains("hint: `phalanx calendar add NODES --for QUEUE "), "{said}");
    for (line, message) in [
        ("sbatch -N 2-4 --wrap true", "sbatch: --nodes=2-4 is not supported"),
        ("sbatch -C cascadelake -G1 --wrap true", "no GPU's model contains \"cascadelake\""),
        ("squeue --json", "squeue: --json is not supported"),
        ("squeue -o %z", "squeue: %z is not supported in a format"),
        ("sacct -o MaxRSS", "sacct: the field MaxRSS is not supported"),
        ("scancel -s USR1 1", "scancel: --signal=USR1 is not supported"),
        ("scancel", "scancel: no job is named"),
        ("scontrol suspend 1", "scontrol: suspend is not supported"),
        ("sstat", "\"sstat\" is no command of `phalanx slurm`"),
    ] {
        let said = error(&world.slurm(line));
        assert!(said.contains(message), "{line}: {said}");
    }
    assert_eq!(out(&world.phalanx(&["ps", "-a", "-o", "name"])), "");
}

#[test]
fn srun_outside_of_a_job_is_a_job_and_a_link_is_a_command() {
    let world = World::up();
    let run = world
        .slurm("srun -n 2 -c 1 --gpus-per-task=1 -l sh -c echo${IFS}$SLURM_PROCID-$CUDA_VISIBLE_DEVICES");
    let mut lines: Vec<String> = out(&run).lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["0: 0-0", "1: 1-1"]);
    let failed = world.slurm("srun sh -c exit${IFS}9");
    assert_eq!(failed.status.code(), Some(9), "{failed:?}");
    let link = world.path("squeue");
    symlink(EXE, &link).unwrap();
    let output = world.command(&link, &["-o", "%i"]).output().unwrap();
    assert_eq!(out(&output), "JOBID\n");
}

/// The signal before the limit goes to the steps, or with `B:` to the script.
#[test]
fn the_signal_before_the_limit_reaches_steps_or_the_script() {
    let world = World::up();
    let of_step = "#!/bin/bash\n\
         #SBATCH --time=0:04 --signal=USR1@2 -o step.txt\n\
         srun bash -c 'trap \"echo saved by $SLURM_PROCID; exit 0\" USR1; while :; do sleep 0.05; done'\n\
         echo \"code=$?\"\n";
    world.script("step.sh", of_step);
    out(&world.slurm("sbatch --wait step.sh"));
    assert_eq!(world.read("step.txt"), "saved by 0\ncode=0\n");
    let of_script = "#!/bin/bash\n\
         #SBATCH --time=0:04 --signal=B:USR1@2 -o script.txt\n\
         trap 'echo saved; exit 0' USR1\n\
         while :; do sleep 0.05; done\n";
    world.script("script.sh", of_script);
    out(&world.slurm("sbatch --wait script.sh"));
    assert_eq!(world.read("script.txt"), "saved\n");
}

#[test]
fn a_daemon_that_stops_speaks_of_jobs_only_if_there_are_some() {
    let world = World::up();
    assert_eq!(out(&world.slurm("sbatch --wrap true --parsable")), "1\n");
    out(&world.phalanx(&["wait", "1"]));
    assert_eq!(out(&world.phalanx(&["down"])), "the daemon stops\n");
    world.start();
    assert_eq!(
        out(&world.phalanx(&["submit", "-n", "long", "--", "sleep", "100"])),
        "job 2 (long) is submitted\n"
    );
    assert_eq!(out(&world.phalanx(&["down"])), "jobs go on and wait for the next daemon\n");
    world.start();
}
