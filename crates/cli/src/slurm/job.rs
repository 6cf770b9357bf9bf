//! From the options of `sbatch`, `srun` and `salloc` to what `phalanx submit` reads, and to what the job's first process
//! has to know.

use std::collections::BTreeMap;

use jiff::Zoned;
use serde::{Deserialize, Serialize};

use super::layout::{Largest, Layout};
use super::options::{Given, Where};
use super::size;
use crate::args::JobArgs;
use crate::failure::Failure;

/// The variable of [`Facts`], in the environment of every rank.
pub(super) const FACTS: &str = "PHALANX_SLURM";
/// The secret that holds the script and the environment of the submission, so that neither is in the journal.
pub(super) const SECRET: &str = "SLURM_SUBMISSION";
/// A signal of `--signal` without a time comes so long before the limit.
const LEAD_S: u64 = 60;
/// Restarts of a job with `--requeue`.
const REQUEUES: &str = "16";

/// What the first process of a job has to know of its submission. Users see it in `phalanx get -o json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Facts {
    pub(super) nodes: u32,
    pub(super) tasks_per_node: u32,
    pub(super) gpus_per_node: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gpus_per_task: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpus_per_task: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpus_per_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory_mib: Option<u64>,
    /// The job says how many tasks a node has.
    pub(super) says_tasks_per_node: bool,
    pub(super) partition: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) qos: Option<String>,
    pub(super) submit_dir: String,
    pub(super) submit_host: String,
    /// The script as it was named.
    pub(super) command: String,
    /// Patterns of files. None: the output is in the log of the job alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<String>,
    pub(super) truncates: bool,
    /// The signal of `--signal`, and whether the script gets it rather than its steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<(i32, bool)>,
    /// The job runs in a terminal.
    pub(super) terminal: bool,
}

/// What the daemon keeps for the owner alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The script. None: the arguments are a program.
    pub(super) script: Option<String>,
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
}

/// A job as its options describe it.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) args: JobArgs,
    pub(super) facts: Facts,
}

/// Reads the options of a job. `levels` are the levels above the node, outermost first.
///
/// # Errors
/// If an option has a value that it does not take, or something that Phalanx does not have.
pub(super) fn read(
    given: &Given,
    largest: &Largest,
    levels: &[String],
    from: Where<'_>,
    now: &Zoned,
) -> Result<Wanted, Failure> {
    let layout = Layout::read(given, largest, from)?;
    let signal = given.get("signal").map(|text| signal(text, from)).transpose()?;
    let mut args = JobArgs {
        name: given.get("job-name").map(name),
        queue: queue(given, from)?,
        nodes: Some(layout.nodes.to_string()),
        named: layout.named.clone(),
        exclude: layout.excluded.clone(),
        ranks_per_node: Some(layout.tasks_per_node.to_string()),
        cpus: layout.cpus_per_node.map(|cpus| cpus.to_string()),
        memory: layout.memory_mib.map(|mib| format!("{mib}MiB")),
        resource: layout.resources.clone(),
        exclusive: exclusive(given, from)?,
        priority: priority(given, from)?,
        class: given.get("qos").filter(|qos| *qos != "normal").map(str::to_owned),
        hold: given.has("hold"),
        after: given.get("dependency").map(|text| dependencies(text, from)).transpose()?.unwrap_or_default(),
        begin: given.get("begin").map(|text| begin(text, from, now)).transpose()?,
        array: given.get("array").map(|text| array(text, from)).transpose()?,
        topology: topology(given, levels, from)?,
        workdir: given.get("chdir").map(str::to_owned),
        signal: signal.as_ref().map(|(_, _, text)| text.clone()),
        // One process has the job, and starts what runs on the other nodes.
        launch: Some("mpi".to_owned()),
        ..JobArgs::default()
    };
    if layout.gpus_per_node > 0 {
        let model = layout.model.as_ref().map(|model| format!("{model}:")).unwrap_or_default();
        args.gpus_per_node = Some(format!("{model}{}", layout.gpus_per_node));
    }
    if let Some(text) = given.get("time") {
        let limit = size::limit(text).map_err(|what| from.refuse(&format!("--time: {what}"), ""))?;
        args.time = limit.map(|seconds| format!("{seconds}s"));
    }
    match given.get("requeue") {
        Some("yes") => {
            args.retry = Some(REQUEUES.to_owned());
            args.retry_on = ["node", "preemption", "infrastructure"].map(str::to_owned).to_vec();
        }
        Some(_) => args.preempt = Some("cancel".to_owned()),
        None => {}
    }
    let facts = Facts {
        nodes: layout.nodes,
        tasks_per_node: layout.tasks_per_node,
        gpus_per_node: layout.gpus_per_node,
        gpus_per_task: layout.gpus_per_task,
        cpus_per_task: layout.cpus_per_task,
        cpus_per_node: layout.cpus_per_node,
        memory_mib: layout.memory_mib,
        says_tasks_per_node: given.has("ntasks-per-node"),
        partition: args.queue.clone().unwrap_or_else(|| "default".to_owned()),
        qos: given.get("qos").map(str::to_owned),
        output: given.get("output").map(str::to_owned),
        error: given.get("error").map(str::to_owned),
        input: given.get("input").map(str::to_owned),
        truncates: open_mode(given, from)?,
        signal: signal.map(|(number, to_script, _)| (number, to_script)),
        ..Facts::default()
    };
    Ok(Wanted { args, facts })
}

/// A name without the characters that no job's name can have.
fn name(text: &str) -> String {
    let plain: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let plain = plain.trim_matches(['-', '.']).to_owned();
    if plain.is_empty() { "job".to_owned() } else { plain }
}

fn queue(given: &Given, from: Where<'_>) -> Result<Option<String>, Failure> {
    let Some(text) = given.get("partition") else { return Ok(None) };
    if text.contains(',') {
        let what = format!("--partition={text} is not supported: a job waits in one queue");
        return Err(from.refuse(&what, "name one partition; `phalanx queues` lists them"));
    }
    Ok(Some(text.to_owned()))
}

fn exclusive(given: &Given, from: Where<'_>) -> Result<bool, Failure> {
    match given.get("exclusive") {
        None => Ok(false),
        Some("") => Ok(true),
        Some(who) => {
            let what =
                format!("--exclusive={who} is not supported: nodes are shared with all jobs or with none");
            Err(from.refuse(&what, "--exclusive without a value"))
        }
    }
}

fn priority(given: &Given, from: Where<'_>) -> Result<Option<String>, Failure> {
    let wrong = |flag: &str, text: &str| {
        let hint = "a higher --priority goes first, and a higher --nice later; --hold keeps a job back";
        from.refuse(&format!("--{flag}={text} is no number"), hint)
    };
    if let Some(text) = given.get("priority") {
        let number: i32 = text.parse().map_err(|_| wrong("priority", text))?;
        return Ok(Some(number.to_string()));
    }
    let Some(text) = given.get("nice") else { return Ok(None) };
    let nice: i32 = if text.is_empty() { 100 } else { text.parse().map_err(|_| wrong("nice", text))? };
    Ok(Some(nice.saturating_neg().to_string()))
}

/// Dependencies as `phalanx submit --after` says them.
fn dependencies(text: &str, from: Where<'_>) -> Result<Vec<String>, Failure> {
    let refuse = |why: &str| {
        let hint = "afterok, afternotok and afterany are supported: afterok:12:13,afterany:14";
        from.refuse(&format!("--dependency={text} is not supported: {why}"), hint)
    };
    if text.contains('?') {
        return Err(refuse("a job waits for all of its dependencies, not for one of them"));
    }
    let mut after = Vec::new();
    for one in text.split(',').filter(|one| !one.is_empty()) {
        let (kind, jobs) = one.split_once(':').unwrap_or((one, ""));
        let end = match kind {
            "afterok" => "",
            "afternotok" => ":failure",
            "afterany" => ":any",
            "singleton" => return Err(refuse("jobs of one name may run at once")),
            "after" => return Err(refuse("a job waits for ends of jobs, not for their starts")),
            "aftercorr" => return Err(refuse("a task of an array waits for whole jobs")),
            _ if !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err(refuse("it does not say how the jobs must end"));
            }
            _ => return Err(refuse(&format!("{kind:?} is unknown"))),
        };
        for job in jobs.split(':') {
            if job.is_empty() || !job.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(refuse(&format!(
                    "{job:?} is no number of a job; of an array all tasks are waited for"
                )));
            }
            after.push(format!("{job}{end}"));
        }
    }
    if after.is_empty() { Err(refuse("it names no job")) } else { Ok(after) }
}

/// A point in time with its offset from UTC.
fn begin(text: &str, from: Where<'_>, now: &Zoned) -> Result<String, Failure> {
    let at = size::moment(text, now, size::Day::Next)
        .map_err(|what| from.refuse(&format!("--begin: {what}"), ""))?;
    Ok(at.timestamp().to_string())
}

/// The numbers of an array: a plain number is a task here, and a size for `phalanx submit`.
fn array(text: &str, from: Where<'_>) -> Result<String, Failure> {
    let (tasks, most) = text.split_once('%').map_or((text, None), |(tasks, most)| (tasks, Some(most)));
    let tasks = tasks.trim().trim_matches(['[', ']']);
    if tasks.is_empty() {
        return Err(from.refuse("--array names no task", "such as --array=0-9%2"));
    }
    let tasks = if tasks.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("{tasks}-{tasks}")
    } else {
        tasks.to_owned()
    };
    Ok(most.map_or_else(|| tasks.clone(), |most| format!("{tasks}%{most}")))
}

/// `[{R|B}:]SIGNAL[@SECONDS]`: its number, whether it is for the script, and the same for `phalanx submit --signal`.
fn signal(text: &str, from: Where<'_>) -> Result<(i32, bool, String), Failure> {
    let wrong = || from.refuse(&format!("--signal={text} is no signal"), "expected [B:]USR1[@SECONDS]");
    let (of, rest) = text.split_once(':').unwrap_or(("", text));
    if of.contains('R') {
        let what = format!("--signal={text} is not supported: R is for reservations, which there are not");
        return Err(from.refuse(&what, "leave R: out"));
    }
    let (word, lead) = rest.split_once('@').map_or((rest, None), |(word, lead)| (word, Some(lead)));
    let number = signal_number(word).ok_or_else(wrong)?;
    if signal_hook::consts::FORBIDDEN.contains(&number) {
        let what = format!("--signal={text} is not supported: a program cannot handle this signal");
        return Err(from.refuse(&what, "such as USR1, USR2 or TERM"));
    }
    let lead = lead.map_or(Ok(LEAD_S), |lead| lead.parse::<u64>().map_err(|_| wrong()))?;
    Ok((number, of.contains('B'), format!("{number}@{lead}s")))
}

/// `10`, `USR1` or `SIGUSR1`.
pub(super) fn signal_number(word: &str) -> Option<i32> {
    if let Ok(number) = word.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let upper = word.to_ascii_uppercase();
    let name = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    name.parse::<nix::sys::signal::Signal>().ok().map(|signal| signal as i32)
}

/// `1` or `1@MINUTES`: below one switch, that is in one domain of the lowest level above the node.
fn topology(given: &Given, levels: &[String], from: Where<'_>) -> Result<Option<String>, Failure> {
    let Some(text) = given.get("switches") else { return Ok(None) };
    let (count, wait) = text.split_once('@').map_or((text, None), |(count, wait)| (count, Some(wait)));
    if count != "1" {
        let what = format!("--switches={text} is not supported: a job is below one switch, or anywhere");
        return Err(
            from.refuse(&what, "--switches=1, or `phalanx submit --topology LEVEL` for a wider level")
        );
    }
    let Some(level) = levels.last() else { return Ok(None) };
    let Some(wait) = wait else { return Ok(Some(format!("{level}:required"))) };
    let seconds = size::limit(wait).map_err(|what| from.refuse(&format!("--switches: {what}"), ""))?;
    Ok(Some(seconds.map_or_else(|| format!("{level}:required"), |seconds| format!("{level}@{seconds}s"))))
}

/// Whether files of output are emptied first.
fn open_mode(given: &Given, from: Where<'_>) -> Result<bool, Failure> {
    match given.get("open-mode") {
        None | Some("truncate" | "t") => Ok(true),
        Some("append" | "a") => Ok(false),
        Some(other) => Err(from.refuse(&format!("--open-mode={other} is unknown"), "truncate or append")),
    }
}
