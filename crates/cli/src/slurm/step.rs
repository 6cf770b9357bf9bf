//! `srun` in a job: starts a program on the nodes of the job, as so many tasks, and waits for all of them.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::channel;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use super::allocation::Allocation;
use super::options::{self, After, Given, Where};
use super::tasks::{self, Step};
use super::{batch, flags, layout, note, size};
use crate::failure::Failure;

/// Tasks of one step.
const TASKS_MAX: u32 = 65_536;
const FROM: Where<'static> = Where { command: "srun", place: None };

/// The nodes of a step, by their numbers in the job, and how many tasks each has.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    nodes: Vec<(usize, u32)>,
}

/// Starts a step, and ends with the highest code of its tasks.
pub(super) fn run(allocation: &Allocation, words: &[String]) -> Result<ExitCode, Failure> {
    let given = options::read(flags::SRUN_STEP, FROM, words, After::Program)?;
    note(&FROM, &given);
    if given.words.is_empty() {
        return Err(FROM.refuse("the program is missing", "srun [OPTIONS] PROGRAM [ARGUMENTS]"));
    }
    check(allocation, &given)?;
    let shape = Shape::read(allocation, &given)?;
    let gpus_per_task = match given.get("gpus-per-task") {
        Some(text) => {
            let count = text.rsplit(':').next().unwrap_or(text);
            Some(size::count(count).map_err(|e| FROM.refuse(&format!("--gpus-per-task: {e}"), ""))?)
        }
        None => allocation.facts.gpus_per_task,
    };
    let most = shape.nodes.iter().map(|(_, count)| *count).max().unwrap_or(0);
    if gpus_per_task.is_some_and(|each| each.saturating_mul(most) > allocation.facts.gpus_per_node) {
        let what = format!(
            "{most} tasks on a node need more GPUs than the {} that the job has there",
            allocation.facts.gpus_per_node
        );
        return Err(FROM.refuse(&what, "leave --gpus-per-task out: each task then sees all GPUs of its node"));
    }
    if given.has("pty") {
        return at_terminal(allocation, &given, &shape);
    }
    let step = Step {
        argv: given.words.clone(),
        dir: dir(&given)?,
        environment: environment(&given, &shape),
        gpus_per_task,
        is_labelled: given.has("label"),
        kills: given.get("kill-on-bad-exit").is_some_and(|text| text != "0"),
        output: given.get("output").map(str::to_owned),
        error: given.get("error").map(str::to_owned),
        input: given.get("input").map(str::to_owned),
        ..Step::default()
    };
    if given.get("open-mode").is_none_or(|mode| !mode.starts_with('a')) {
        empty(allocation, &step, &shape)?;
    }
    start(allocation, &step, &shape)
}

/// What a step cannot have.
fn check(allocation: &Allocation, given: &Given) -> Result<(), Failure> {
    let job = given.get("jobid").unwrap_or(&allocation.job);
    let own = [allocation.job.clone(), allocation.reference(), allocation.id()];
    if !own.iter().any(|name| name == job) {
        let hint = format!("`phalanx exec {job} -- PROGRAM` runs a program beside a rank of another job");
        return Err(FROM.refuse(&format!("--jobid={job} is not supported in job {}", allocation.job), &hint));
    }
    if let Some(mpi) = given.get("mpi").filter(|mpi| *mpi != "none") {
        let what =
            format!("--mpi={mpi} is not supported: srun starts processes, and has no PMI server for them");
        let hint = "start MPI programs with `mpirun`, which finds the nodes of the job by itself; --mpi=none is for others";
        return Err(FROM.refuse(&what, hint));
    }
    let has = allocation.facts.gpus_per_node;
    let nodes = u32::try_from(allocation.nodes.len()).unwrap_or(u32::MAX);
    for (flag, all) in [("gpus", has.saturating_mul(nodes)), ("gpus-per-node", has), ("gres", has)] {
        let Some(text) = given.get(flag) else { continue };
        let count = text.rsplit(':').next().and_then(|count| count.parse::<u32>().ok());
        let is_all = count == Some(all) || (flag == "gpus" && count == Some(has));
        if !is_all && text != "none" {
            let what =
                format!("--{flag}={text} is not supported: a step sees all GPUs of its nodes, {has} on each");
            let hint = "--gpus-per-task divides them among the tasks of one step; set CUDA_VISIBLE_DEVICES for steps at once";
            return Err(FROM.refuse(&what, hint));
        }
    }
    Ok(())
}

impl Shape {
    fn read(allocation: &Allocation, given: &Given) -> Result<Self, Failure> {
        let number = |flag: &str| layout::number(given, flag, FROM);
        let wanted = layout::names(given, "nodelist", FROM)?;
        let avoided = layout::names(given, "exclude", FROM)?;
        if let Some(name) = wanted.iter().find(|name| !allocation.nodes.contains(name)) {
            let hint = "`scontrol show hostnames` lists the nodes of the job";
            return Err(FROM.refuse(&format!("node {name} is not part of job {}", allocation.job), hint));
        }
        let named = |name: &String| (wanted.is_empty() || wanted.contains(name)) && !avoided.contains(name);
        let mut nodes: Vec<usize> =
            (0..).zip(&allocation.nodes).filter(|(_, name)| named(name)).map(|(at, _)| at).collect();
        let room = nodes.len();
        let tasks = number("ntasks")?;
        let per_node = number("ntasks-per-node")?;
        let count = match given.get("nodes") {
            Some(text) => {
                let most = text.rsplit('-').next().unwrap_or(text);
                let count = size::count(most).map_err(|e| FROM.refuse(&format!("--nodes: {e}"), ""))?;
                usize::try_from(count).unwrap_or(usize::MAX)
            }
            None => match (tasks, per_node) {
                (Some(tasks), Some(each)) => usize::try_from(tasks.div_ceil(each)).unwrap_or(usize::MAX),
                _ => room,
            },
        };
        if count > room || room == 0 {
            let what = format!("{count} nodes are more than the {room} that the job has for this step");
            return Err(FROM.refuse(&what, "leave --nodes out, or submit the job with more"));
        }
        nodes.truncate(count);
        let each = per_node.unwrap_or(allocation.facts.tasks_per_node.max(1));
        let parts = u32::try_from(nodes.len()).unwrap_or(u32::MAX).max(1);
        let total = tasks.unwrap_or_else(|| each.saturating_mul(parts));
        if total > TASKS_MAX {
            return Err(FROM.refuse(&format!("a step of {total} tasks"), &format!("at most {TASKS_MAX}")));
        }
        if per_node.is_some_and(|each| u64::from(each) * u64::from(parts) < u64::from(total)) {
            let what = format!("{total} tasks on {parts} nodes are more than --ntasks-per-node={each}");
            return Err(FROM.refuse(&what, ""));
        }
        for flag in ["exact", "exclusive"] {
            if given.has(flag) && total < allocation.tasks() {
                let what = format!(
                    "--{flag} is not supported for a part of the job: steps do not wait for each other"
                );
                let hint = "run them one after the other, with `xargs -P N`, or as an array (--array)";
                return Err(FROM.refuse(&what, hint));
            }
        }
        // Blocks of tasks; the first nodes have one more where they do not divide.
        let (least, more) = (total / parts, total % parts);
        let shares = (0..parts).map(|at| least + u32::from(at < more));
        Ok(Self { nodes: nodes.into_iter().zip(shares).filter(|(_, count)| *count > 0).collect() })
    }

    fn tasks(&self) -> u32 {
        self.nodes.iter().map(|(_, count)| count).sum()
    }
}

fn dir(given: &Given) -> Result<String, Failure> {
    if let Some(dir) = given.get("chdir") {
        return Ok(dir.to_owned());
    }
    let here = std::env::current_dir()
        .map_err(|e| FROM.refuse(&format!("the current folder cannot be found: {e}"), ""))?;
    here.into_os_string()
        .into_string()
        .map_err(|_| FROM.refuse("the name of the current folder is not UTF-8", ""))
}

/// What tasks inherit of `srun`, and the size of the step.
fn environment(given: &Given, shape: &Shape) -> BTreeMap<String, String> {
    let own = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut all: BTreeMap<String, String> = own.collect();
    if let Some(export) = given.get("export") {
        super::submit::export(&mut all, export);
    }
    let nodes = shape.nodes.len().to_string();
    let tasks = shape.tasks().to_string();
    let mut set = |name: &str, value: &str| all.insert(name.to_owned(), value.to_owned());
    set("SLURM_NTASKS", &tasks);
    set("SLURM_NPROCS", &tasks);
    set("SLURM_STEP_NUM_TASKS", &tasks);
    set("SLURM_STEP_NUM_NODES", &nodes);
    set("SLURM_STEP_ID", "0");
    if let Some(cpus) = given.get("cpus-per-task") {
        set("SLURM_CPUS_PER_TASK", cpus);
    }
    all
}

/// Empties the files of the output, which tasks then append to.
fn empty(allocation: &Allocation, step: &Step, shape: &Shape) -> Result<(), Failure> {
    let mut first = 0;
    for (node, count) in &shape.nodes {
        for task in first..first + count {
            for pattern in step.output.iter().chain(&step.error) {
                batch::open(&allocation.file_name(pattern, task, *node), true)?;
            }
        }
        first += count;
    }
    Ok(())
}

/// Starts the tasks of each node: of the first as children, of the others beside their ranks.
fn start(allocation: &Allocation, step: &Step, shape: &Shape) -> Result<ExitCode, Failure> {
    let broken =
        |e: &dyn std::fmt::Display| Failure::internal(format!("srun: the step cannot be started: {e}"));
    let program = std::env::current_exe().map_err(|e| broken(&e))?;
    let program = program.to_str().ok_or_else(|| broken(&"the path of phalanx is not UTF-8"))?;
    let number = std::process::id().to_string();
    let job = tasks::mark(allocation);
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2]).map_err(|e| broken(&e))?;
    let (tell, ended) = channel();
    let mut first = 0;
    let mut pids = Vec::new();
    for (node, count) in &shape.nodes {
        let inner = [program, "slurm", tasks::WORD, &job, &number];
        let mut command = Command::new(program);
        if *node == 0 {
            command.args(inner.iter().skip(1));
        } else {
            let rank = node.to_string();
            command.args(["exec", &allocation.reference(), "--rank", &rank, "--no-pty", "--"]).args(inner);
        }
        let part = Step { node: *node, first, count: *count, ..step.clone() };
        first += count;
        let child = command.stdin(Stdio::piped()).spawn().map_err(|e| broken(&e))?;
        pids.push(i32::try_from(child.id()).unwrap_or(0));
        let tell = tell.clone();
        let text = serde_json::to_vec(&part).map_err(|e| broken(&e))?;
        std::thread::spawn(move || drop(tell.send(wait(child, &text))));
    }
    drop(tell);
    let passing = pids.clone();
    let (step_job, step_number) = (job.clone(), number.clone());
    std::thread::spawn(move || {
        for signal in signals.forever() {
            let Ok(signal) = Signal::try_from(signal) else { continue };
            tasks::signal_all(&step_job, Some(&step_number), signal);
            // Commands beside other ranks end with their clients.
            if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGHUP) {
                end(&passing);
            }
        }
    });
    let mut highest = 0;
    for code in ended {
        let code = code?;
        if code != 0 && step.kills {
            tasks::signal_all(&job, Some(&number), Signal::SIGTERM);
        }
        highest = highest.max(code);
    }
    Ok(ExitCode::from(highest))
}

fn end(pids: &[i32]) {
    for pid in pids.iter().filter(|pid| **pid > 0) {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGTERM);
    }
}

/// Says what to run, and waits for the end.
fn wait(mut child: Child, step: &[u8]) -> Result<u8, Failure> {
    let lost = |e: std::io::Error| Failure::internal(format!("srun: a part of the step was lost: {e}"));
    if let Some(mut input) = child.stdin.take() {
        // One that ended already says so by its code.
        let _ = input.write_all(step);
    }
    child.wait().map(tasks::code).map_err(lost)
}

/// One task in this terminal.
fn at_terminal(allocation: &Allocation, given: &Given, shape: &Shape) -> Result<ExitCode, Failure> {
    let [(0, 1)] = shape.nodes.as_slice() else {
        let what = "--pty is supported for one task on the first node of the job";
        let hint = format!(
            "`phalanx exec {} --rank N -t -- PROGRAM` runs one on another node",
            allocation.reference()
        );
        return Err(FROM.refuse(what, &hint));
    };
    let mut words = given.words.iter();
    let mut command = Command::new(words.next().map(String::as_str).unwrap_or_default());
    command.args(words).current_dir(dir(given)?).envs(environment(given, shape));
    let status =
        command.status().map_err(|e| FROM.refuse(&format!("the program cannot be started: {e}"), ""))?;
    Ok(tasks::exit_code(status))
}

#[cfg(test)]
mod tests {
    use super::super::job::Facts;
    use super::*;

    fn shape(line: &str) -> Result<Vec<(usize, u32)>, String> {
        let allocation = Allocation {
            job: "7".to_owned(),
            nodes: ["a", "b", "c"].map(str::to_owned).to_vec(),
            facts: Facts { nodes: 3, tasks_per_node: 2, gpus_per_node: 8, ..Facts::default() },
            ..Allocation::default()
        };
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let given = options::read(flags::SRUN_STEP, FROM, &words, After::Program).map_err(|e| e.message)?;
        check(&allocation, &given).map_err(|e| e.message)?;
        Shape::read(&allocation, &given).map(|shape| shape.nodes).map_err(|e| e.message)
    }

    #[test]
    fn tasks_are_numbered_node_by_node() {
        for (line, nodes) in [
            ("x", vec![(0, 2), (1, 2), (2, 2)]),
            ("-N1 x", vec![(0, 2)]),
            ("-n 4 x", vec![(0, 2), (1, 1), (2, 1)]),
            ("-n 2 x", vec![(0, 1), (1, 1)]),
            ("-N 1 -n 1 -w b x", vec![(1, 1)]),
            ("--ntasks-per-node=1 x", vec![(0, 1), (1, 1), (2, 1)]),
            ("-x a x", vec![(1, 2), (2, 2)]),
            ("-N3 --exact --gres=gpu:8 x", vec![(0, 2), (1, 2), (2, 2)]),
        ] {
            assert_eq!(shape(line), Ok(nodes), "{line}");
        }
    }

    #[test]
    fn what_a_step_cannot_have_is_refused() {
        for (line, message) in [
            ("-w z x", "srun: node z is not part of job 7"),
            ("-N 4 x", "srun: 4 nodes are more than the 3 that the job has for this step"),
            (
                "--mpi=pmix x",
                "srun: --mpi=pmix is not supported: srun starts processes, and has no PMI server for them",
            ),
            (
                "--gres=gpu:1 x",
                "srun: --gres=gpu:1 is not supported: a step sees all GPUs of its nodes, 8 on each",
            ),
            (
                "-n1 --exclusive x",
                "srun: --exclusive is not supported for a part of the job: steps do not wait for each other",
            ),
            ("--jobid=9 x", "srun: --jobid=9 is not supported in job 7"),
            (
                "--container-image=a x",
                "srun: --container-image is not supported: jobs run as processes of this machine",
            ),
        ] {
            assert_eq!(shape(line), Err(message.to_owned()), "{line}");
        }
    }
}
