//! `sbatch`, and `srun` and `salloc` where no job is: a job is made of the options, and submitted as `phalanx submit` does.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use jiff::Zoned;
use phalanx_api::protocol::{Answer, Verb as Ask};
use phalanx_model::{Gang, SecretSource};
use phalanx_node::terminal::client::has_terminal;

use super::job::{FACTS, Kept, SECRET, Wanted};
use super::layout::Largest;
use super::options::{self, After, Given, Where};
use super::{batch, flags, job, note, script};
use crate::failure::Failure;
use crate::output;
use crate::submission::Submission;
use crate::verbs::{Session, follow, submit, terminal};

/// The most bytes of a script and the environment together, which the daemon keeps as one secret.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// How a shell is named that is not known.
const SHELL: &str = "/bin/bash";

/// `sbatch`: submits a script.
pub(super) fn sbatch(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let from = Where { command: "sbatch", place: None };
    let typed = options::read(flags::SBATCH, from, words, After::Program)?;
    let (name, text, arguments) = script_of(&typed, from)?;
    let given = match typed.has("wrap") {
        true => typed,
        false => typed.over(script::options(&name, &text)?),
    };
    note(&from, &given);
    let mut wanted = read(session, &given, from)?;
    let base = Path::new(&name).file_name().and_then(|name| name.to_str()).unwrap_or("sbatch");
    wanted.args.name.get_or_insert_with(|| base.to_owned());
    wanted.facts.command.clone_from(&name);
    let default = if given.has("array") { "slurm-%A_%a.out" } else { "slurm-%j.out" };
    wanted.facts.output.get_or_insert_with(|| default.to_owned());
    let kept = Kept { script: Some(text), arguments, environment: exported(&given, from)? };
    let submission = submission(wanted, &kept, from)?;
    if given.has("test-only") {
        return submit::preview(session, &submission.job);
    }
    let job = submit::hand_over(session, submission)?.job;
    if given.has("parsable") {
        output::print(&format!("{job}\n"))?;
    } else if !given.has("quiet") {
        output::print(&format!("Submitted batch job {job}\n"))?;
    }
    if given.has("wait") { follow::wait(session, job) } else { Ok(ExitCode::SUCCESS) }
}

/// The name of the script, its text, and its arguments.
fn script_of(given: &Given, from: Where<'_>) -> Result<(String, String, Vec<String>), Failure> {
    if let Some(command) = given.get("wrap") {
        if let Some(word) = given.words.first() {
            return Err(
                from.refuse(&format!("--wrap and the script {word} are both given"), "give one of them")
            );
        }
        return Ok(("wrap".to_owned(), format!("#!/bin/sh\n{command}\n"), Vec::new()));
    }
    let Some((name, arguments)) = given.words.split_first() else {
        let mut text = String::new();
        let most = script::SCRIPT_BYTES_MAX as u64 + 1;
        let read = std::io::stdin().lock().take(most).read_to_string(&mut text);
        read.map_err(|e| from.refuse(&format!("the script cannot be read from standard input: {e}"), ""))?;
        return Ok(("sbatch".to_owned(), text, Vec::new()));
    };
    let path = Path::new(name);
    let text = std::fs::read(path).map_err(|e| Failure::file("read", path, &e))?;
    let text = String::from_utf8(text)
        .map_err(|_| from.refuse(&format!("{name} is no text in UTF-8"), "sbatch submits a script"))?;
    Ok((name.clone(), text, arguments.to_vec()))
}

/// `srun` where no job is: one is made, and its only command is a step on all of it.
pub(super) fn srun(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let from = Where { command: "srun", place: None };
    let given = options::read(flags::SRUN, from, words, After::Program)?;
    note(&from, &given);
    if let Some(job) = given.get("jobid") {
        let what = format!("--jobid={job} is not supported outside of the job");
        let hint = format!(
            "`phalanx exec {job} -- PROGRAM` runs a program beside a rank of the job, `-t` in a terminal"
        );
        return Err(from.refuse(&what, &hint));
    }
    let Some(program) = given.words.first() else {
        return Err(from.refuse("the program is missing", "srun [OPTIONS] PROGRAM [ARGUMENTS]"));
    };
    let base = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or("srun").to_owned();
    let is_at_terminal = given.has("pty");
    let arguments = if is_at_terminal {
        given.words.clone()
    } else {
        let own = std::env::current_exe().ok().and_then(|path| path.into_os_string().into_string().ok());
        let mut step =
            vec![own.unwrap_or_else(|| "phalanx".to_owned()), "slurm".to_owned(), "srun".to_owned()];
        for flag in ["label", "kill-on-bad-exit", "mpi", "input", "output", "error", "open-mode"] {
            if let Some(value) = given.get(flag) {
                let is_plain = value.is_empty();
                step.push(if is_plain { format!("--{flag}") } else { format!("--{flag}={value}") });
            }
        }
        step.push("--".to_owned());
        step.extend(given.words.iter().cloned());
        step
    };
    let mut wanted = read(session, &given, from)?;
    // Files of output are of the step.
    (wanted.facts.output, wanted.facts.error, wanted.facts.input) = (None, None, None);
    wanted.args.name.get_or_insert(base);
    let kept = Kept { script: None, arguments, environment: exported(&given, from)? };
    interactive(session, wanted, &kept, is_at_terminal, from)
}

/// `salloc`: a shell, or a command, on the first node of a job.
pub(super) fn salloc(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let from = Where { command: "salloc", place: None };
    let given = options::read(flags::SALLOC, from, words, After::Program)?;
    note(&from, &given);
    let is_at_terminal = given.words.is_empty() || has_terminal();
    let arguments = if given.words.is_empty() {
        vec![
            std::env::var("SHELL").ok().filter(|shell| !shell.is_empty()).unwrap_or_else(|| SHELL.to_owned()),
        ]
    } else {
        given.words.clone()
    };
    let mut wanted = read(session, &given, from)?;
    wanted.args.name.get_or_insert_with(|| "interactive".to_owned());
    let kept = Kept { script: None, arguments, environment: exported(&given, from)? };
    interactive(session, wanted, &kept, is_at_terminal, from)
}

/// Submits a job that is followed to its end, or sat at.
fn interactive(
    session: &Session,
    mut wanted: Wanted,
    kept: &Kept,
    is_at_terminal: bool,
    from: Where<'_>,
) -> Result<ExitCode, Failure> {
    wanted.facts.terminal = is_at_terminal;
    wanted.args.terminal = is_at_terminal;
    if is_at_terminal {
        terminal::check()?;
        wanted.args.env.push(format!("TERM={}", terminal::kind()));
    }
    let submission = submission(wanted, kept, from)?;
    if is_at_terminal {
        return terminal::sit_at(session, submission);
    }
    // Before the job exists, so that no Ctrl-C can fall between the two.
    let interrupts = follow::block_interrupts();
    let job = submit::hand_over(session, submission)?.job;
    follow::run(session, job, Some(1), follow::Interrupt::Cancel, interrupts)
}

fn read(session: &Session, given: &Given, from: Where<'_>) -> Result<Wanted, Failure> {
    let (largest, levels) = cluster(session)?;
    job::read(given, &largest, &levels, from, &Zoned::now())
}

/// The largest node, the models of GPUs, and the levels above the nodes.
fn cluster(session: &Session) -> Result<(Largest, Vec<String>), Failure> {
    let view = session.nodes()?;
    let Answer::Map(map) = session.ask(Ask::Map)? else { return Err(Failure::unexpected()) };
    let nodes = || view.nodes.iter();
    let mut models: Vec<String> =
        nodes().map(|node| node.model.clone()).filter(|model| !model.is_empty()).collect();
    models.dedup();
    let largest = Largest {
        gpus: nodes().map(|node| node.devices).max().unwrap_or(0),
        cpus: nodes()
            .map(|node| u32::try_from(node.cpu_milli / 1_000).unwrap_or(u32::MAX))
            .max()
            .unwrap_or(0),
        models,
    };
    Ok((largest, map.levels.iter().map(ToString::to_string).collect()))
}

/// The environment that goes to the job.
fn exported(given: &Given, from: Where<'_>) -> Result<BTreeMap<String, String>, Failure> {
    if given.has("export-file") {
        let hint = "export the variables before, or set them in the script";
        return Err(from.refuse("--export-file is not supported: variables come from this environment", hint));
    }
    let own = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut all: BTreeMap<String, String> = own.filter(|(name, _)| batch::is_exported(name)).collect();
    if let Some(export) = given.get("export") {
        self::export(&mut all, export);
    }
    Ok(all)
}

/// Variables that programs need to be found at all: they stay with `--export=NONE`.
const ALWAYS: [&str; 8] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "TERM"];

/// `ALL`, `NONE`, or names with or without values.
pub(super) fn export(all: &mut BTreeMap<String, String>, list: &str) {
    let names: Vec<&str> = list.split(',').filter(|name| !name.is_empty()).collect();
    let is_all = names.iter().any(|name| name.eq_ignore_ascii_case("all"));
    if !is_all {
        let named = |name: &str| names.contains(&name);
        all.retain(|name, _| {
            ALWAYS.contains(&name.as_str())
                || name.starts_with("SLURM_")
                || name.starts_with("PHALANX_")
                || named(name)
        });
    }
    for (name, value) in names.iter().filter_map(|one| one.split_once('=')) {
        all.insert(name.to_owned(), value.to_owned());
    }
}

/// The job of the options, with what its first process needs.
fn submission(mut wanted: Wanted, kept: &Kept, from: Where<'_>) -> Result<Submission, Failure> {
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| path.into_os_string().into_string().ok())
        .ok_or_else(|| Failure::internal("the path of phalanx cannot be found"))?;
    let here = std::env::current_dir().ok().and_then(|dir| dir.into_os_string().into_string().ok());
    wanted.facts.submit_dir = here.unwrap_or_else(|| "/".to_owned());
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    wanted.facts.submit_host = host.unwrap_or_default();
    wanted.args.command = [&program, "slurm", "__batch"].map(str::to_owned).to_vec();
    let broken = |e: serde_json::Error| Failure::internal(format!("the submission cannot be written: {e}"));
    let facts = serde_json::to_string(&wanted.facts).map_err(broken)?;
    wanted.args.env.push(format!("{FACTS}={facts}"));
    // What runs is in a secret, which no file has.
    let mut submission = Submission { file: None, ..Submission::read(wanted.args)? };
    let text = serde_json::to_string(kept).map_err(broken)?;
    if text.len() > KEPT_BYTES_MAX {
        let what = format!("the script and the environment have {} bytes together", text.len());
        return Err(from
            .refuse(&what, &format!("at most {KEPT_BYTES_MAX}; --export=NONE leaves the environment out")));
    }
    for program in submission.job.gangs.iter_mut().flat_map(Gang::programs_mut) {
        program.secrets.insert(SECRET.to_owned(), SecretSource::Submitted);
    }
    submission.secrets.insert(SECRET.to_owned(), text);
    Ok(submission)
}
