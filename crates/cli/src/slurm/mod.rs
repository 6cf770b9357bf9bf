//! Slurm's commands, for users and scripts that know them: they become jobs and questions of Phalanx.

mod allocation;
mod batch;
mod flags;
mod hostlist;
mod job;
mod layout;
mod list;
mod options;
mod rows;
mod sacct;
mod scancel;
mod scontrol;
mod script;
mod sinfo;
mod size;
mod slips;
mod squeue;
mod step;
mod submit;
mod tasks;

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod golden;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::failure::Failure;
use crate::output;
use crate::verbs::Session;
use allocation::Allocation;
use options::{Given, Where};
pub(crate) use slips::slip;

const USAGE: &str = "\
usage: phalanx slurm COMMAND [options], or COMMAND [options] where a link of that name points to phalanx

  sbatch    submit a script; its `#SBATCH` lines are read
  srun      run a program: in a job on its nodes, elsewhere as a job of its own
  salloc    work in a shell on the first node of a job
  squeue    list jobs that wait and run
  sinfo     list partitions and nodes
  scancel   cancel jobs
  sacct     list jobs that have run
  scontrol  show jobs, nodes and partitions; hold, release, requeue and update jobs

docs/slurm.md lists the options of each that are supported, and what is different.
";

/// A command of Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Sbatch,
    Srun,
    Salloc,
    Squeue,
    Sinfo,
    Scancel,
    Sacct,
    Scontrol,
}

impl Tool {
    const ALL: [Self; 8] = [
        Self::Sbatch,
        Self::Srun,
        Self::Salloc,
        Self::Squeue,
        Self::Sinfo,
        Self::Scancel,
        Self::Sacct,
        Self::Scontrol,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Sbatch => "sbatch",
            Self::Srun => "srun",
            Self::Salloc => "salloc",
            Self::Squeue => "squeue",
            Self::Sinfo => "sinfo",
            Self::Scancel => "scancel",
            Self::Sacct => "sacct",
            Self::Scontrol => "scontrol",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.word() == word)
    }
}

/// The words of the command line; a program that is called as `sbatch` and the like is that command.
pub(crate) fn by_own_name(words: Vec<OsString>) -> Vec<OsString> {
    let own = words.first().and_then(|word| Path::new(word).file_name()?.to_str()?.to_owned().into());
    let Some(tool) = own.and_then(|own: String| Tool::of(&own)) else { return words };
    let own = ["phalanx", "slurm", tool.word()].map(OsString::from);
    own.into_iter().chain(words.into_iter().skip(1)).collect()
}

/// Runs a command.
pub(crate) fn main(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let Some((first, words)) = words.split_first() else { return help() };
    match first.as_str() {
        "-h" | "--help" | "help" => return help(),
        "__batch" => return batch::main(),
        tasks::WORD => return tasks::main(),
        _ => {}
    }
    let tool = Tool::of(first).ok_or_else(|| {
        let all: Vec<&str> = Tool::ALL.iter().map(|tool| tool.word()).collect();
        Failure::usage(
            format!("{first:?} is no command of `phalanx slurm`"),
            format!("it has {}", all.join(", ")),
        )
    })?;
    let is_asked = |word: &&String| matches!(word.as_str(), "--help" | "--usage");
    if words.first().as_ref().is_some_and(is_asked) {
        return help();
    }
    if words.first().is_some_and(|word| matches!(word.as_str(), "-V" | "--version")) {
        output::print(&format!("phalanx {}\n", env!("CARGO_PKG_VERSION")))?;
        return Ok(ExitCode::SUCCESS);
    }
    match tool {
        Tool::Sbatch => submit::sbatch(session, words),
        Tool::Srun => srun(session, words),
        Tool::Salloc => submit::salloc(session, words),
        Tool::Squeue => squeue::squeue(session, words),
        Tool::Sinfo => sinfo::sinfo(session, words),
        Tool::Scancel => scancel::scancel(session, words),
        Tool::Sacct => sacct::sacct(session, words),
        Tool::Scontrol => scontrol::scontrol(session, words),
    }
}

fn help() -> Result<ExitCode, Failure> {
    output::print(USAGE)?;
    Ok(ExitCode::SUCCESS)
}

/// In a job it starts a step, elsewhere a job.
fn srun(session: &Session, words: &[String]) -> Result<ExitCode, Failure> {
    let look = |name: &str| std::env::var(name).ok();
    if let Some(allocation) = Allocation::of_this_process(&look)? {
        return step::run(&allocation, words);
    }
    if let Some(job) = look("PHALANX_JOB_ID") {
        let hint = "submit the script with `phalanx slurm sbatch`, or start ranks with `phalanx submit --launch ranks`";
        return Err(Failure::usage(
            format!("srun: job {job} was not submitted by sbatch, srun or salloc"),
            hint,
        ));
    }
    if let Some(job) = look("SLURM_JOB_ID") {
        let hint = "use Slurm's own srun there, or unset SLURM_JOB_ID";
        return Err(Failure::usage(format!("srun: job {job} is a job of Slurm itself"), hint));
    }
    submit::srun(session, words)
}

/// Says which options change nothing here.
fn note(from: &Where<'_>, given: &Given) {
    if given.has("quiet") {
        return;
    }
    let mut said: Vec<&str> = Vec::new();
    for (flag, why) in given.notes.iter().filter(|(_, why)| !why.is_empty()) {
        // Options for mail come in twos.
        if !said.contains(why) {
            output::print_error(&format!("{}: --{flag} changes nothing: {why}\n", from.command));
            said.push(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// What is between backticks in the messages of this module and begins with the name of the program.
    fn said_commands() -> Vec<(String, String)> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/slurm");
        let mut said = Vec::new();
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let file = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                let parts = line.split('`').skip(1).step_by(2).filter(|part| part.starts_with("phalanx "));
                said.extend(parts.map(|part| (file.clone(), part.to_owned())));
            }
        }
        said
    }

    #[test]
    fn hints_name_commands_and_flags_that_exist() {
        let mut program = crate::args::Cli::command();
        program.build();
        let said = said_commands();
        assert!(said.len() > 30, "{said:?}");
        for (file, line) in said {
            let (mut command, mut is_after_flags) = (&program, false);
            for word in line.split(' ').skip(1).take_while(|word| *word != "--" && !word.starts_with('{')) {
                is_after_flags |= word.starts_with('-');
                let is_word = word.chars().all(|c| c.is_ascii_lowercase() || c == '-');
                if let Some(long) = word.strip_prefix("--") {
                    let has = |arg: &&clap::Arg| {
                        let names = arg.get_long_and_visible_aliases().unwrap_or_default();
                        names.contains(&long.split('=').next().unwrap_or_default())
                    };
                    assert!(command.get_arguments().any(|arg| has(&arg)), "{file}: {line}: no {word}");
                } else if let Some(short) = word.strip_prefix('-') {
                    let is_known = short
                        .chars()
                        .all(|letter| command.get_arguments().any(|arg| arg.get_short() == Some(letter)));
                    assert!(is_known, "{file}: {line}: no {word}");
                } else if is_after_flags {
                    // A value, or what the flag does not take.
                } else if let Some(found) = command.find_subcommand(word) {
                    command = found;
                } else {
                    let takes_more =
                        command.get_name() != "phalanx" && !(is_word && command.has_subcommands());
                    assert!(takes_more, "{file}: {line}: {} has no {word}", command.get_name());
                }
            }
        }
    }

    #[test]
    fn a_link_to_the_program_is_a_command() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(by_own_name(words("/tmp/bin/squeue --me")), words("phalanx slurm squeue --me"));
        assert_eq!(by_own_name(words("phalanx ps")), words("phalanx ps"));
        assert_eq!(by_own_name(Vec::new()), Vec::<OsString>::new());
    }
}
