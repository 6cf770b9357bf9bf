//! Slips of users of Slurm at `submit`, `run` and `alloc`: options that have another name here, and a command without `--`.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::flags::{SALLOC, SBATCH, SRUN};
use super::options::{Fate, Flag};
use crate::failure::Failure;

/// What Slurm's options are here.
const OURS: &[(&str, &str)] = &[
    ("job-name", "--name NAME"),
    ("partition", "--queue QUEUE"),
    ("account", "--queue QUEUE"),
    ("gres", "--gpus-per-node N"),
    ("constraint", "--gpus MODEL:N"),
    ("nodelist", "--node NAME"),
    ("exclude", "--exclude NAME"),
    ("switches", "--topology LEVEL"),
    ("dependency", "--after JOB"),
    ("begin", "--begin TIME"),
    ("hold", "--hold"),
    ("chdir", "--workdir DIR"),
    ("export", "--env NAME"),
    ("nice", "--priority N"),
    ("wrap", "-- COMMAND"),
    ("requeue", "--retry N"),
];

/// An error of clap as a slip that we know.
pub(crate) fn slip(error: &clap::Error, words: &[OsString]) -> Option<Failure> {
    if !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand) {
        return None;
    }
    let words: Vec<&str> = words.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let (verb, after) = verb(&words)?;
    let like = match verb {
        "submit" => "sbatch",
        "run" => "srun",
        "alloc" => "salloc",
        _ => return None,
    };
    let wrong =
        [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].into_iter().find_map(|kind| match error
            .get(kind)?
        {
            ContextValue::String(word) => Some(word.as_str()),
            _ => None,
        })?;
    let wrong = wrong.split('=').next().unwrap_or_default();
    if wrong.starts_with('-') { option(wrong, like) } else { command(verb, after, wrong) }
}

/// The verb, and what follows it.
fn verb<'a, 'b>(words: &'a [&'b str]) -> Option<(&'b str, &'a [&'b str])> {
    let mut at = 1;
    while let Some(word) = words.get(at) {
        match *word {
            "--state" | "--output" | "-o" | "--color" => at += 2,
            flag if flag.starts_with('-') => at += 1,
            verb => return Some((verb, words.get(at + 1..).unwrap_or_default())),
        }
    }
    None
}

fn option(word: &str, like: &str) -> Option<Failure> {
    let tables = [SBATCH, SRUN, SALLOC];
    let is_it = |flag: &&Flag| match word.strip_prefix("--") {
        Some(long) => flag.long == long,
        None => word.chars().nth(1).is_some_and(|letter| flag.short == Some(letter)),
    };
    let flag = tables.into_iter().flatten().copied().flatten().find(is_it)?;
    let long = match flag.fate {
        Fate::Means(of, _) => of,
        Fate::Used | Fate::Ignored(_) | Fate::Refused(..) => flag.long,
    };
    let ours = OURS.iter().find(|(theirs, _)| *theirs == long).map(|(_, ours)| *ours);
    let message = format!("{word} is an option of Slurm");
    Some(match (ours, flag.fate) {
        (Some(ours), _) => Failure::usage(
            message,
            format!("`{ours}` says it here; `phalanx slurm {like}` takes options of Slurm"),
        ),
        (None, Fate::Refused(why, instead)) => Failure::usage(format!("{message}: {why}"), instead),
        (None, Fate::Ignored(why)) => {
            let why = if why.is_empty() { String::new() } else { format!(": {why}") };
            Failure::usage(message, format!("leave it out{why}"))
        }
        (None, Fate::Used | Fate::Means(..)) => Failure::usage(
            message,
            format!("`phalanx slurm {like}` takes it; `phalanx help` lists verbs and flags"),
        ),
    })
}

fn command(verb: &str, after: &[&str], wrong: &str) -> Option<Failure> {
    if after.contains(&"--") {
        return None;
    }
    let message = format!("{wrong:?} is no option");
    let is_file = [".yaml", ".yml"].iter().any(|end| wrong.ends_with(end));
    if is_file {
        return Some(Failure::usage(message, format!("`phalanx {verb} --file {wrong}` reads a job file")));
    }
    // Which of several equal words is meant is not known.
    let line = match after.iter().filter(|word| **word == wrong).count() {
        1 => {
            let before = after.iter().take_while(|word| **word != wrong);
            let rest = after.iter().skip_while(|word| **word != wrong);
            before.chain([&"--"]).chain(rest).copied().collect::<Vec<_>>().join(" ")
        }
        _ => format!("… -- {wrong} …"),
    };
    Some(Failure::usage(message, format!("put `--` before the command: `phalanx {verb} {line}`")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    fn said(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Cli::try_parse_from(&words).unwrap_err();
        let failure = slip(&error, &words);
        failure.map_or_else(|| "clap".to_owned(), |failure| format!("{} | {}", failure.message, failure.hint))
    }

    #[test]
    fn options_of_slurm_are_told_by_our_names() {
        for (line, expected) in [
            (
                "phalanx submit -J train -- true",
                "-J is an option of Slurm | `--name NAME` says it here; `phalanx slurm sbatch` takes options of Slurm",
            ),
            (
                "phalanx --state /x run -o json --partition=lab -- true",
                "--partition is an option of Slurm | `--queue QUEUE` says it here; `phalanx slurm srun` takes options of Slurm",
            ),
            (
                "phalanx alloc --gres gpu:8",
                "--gres is an option of Slurm | `--gpus-per-node N` says it here; `phalanx slurm salloc` takes options of Slurm",
            ),
            (
                "phalanx submit --switches=1 -- true",
                "--switches is an option of Slurm | `--topology LEVEL` says it here; `phalanx slurm sbatch` takes options of Slurm",
            ),
            (
                "phalanx submit --open-mode append -- true",
                "--open-mode is an option of Slurm | `phalanx slurm sbatch` takes it; `phalanx help` lists verbs and flags",
            ),
            (
                "phalanx submit --mail-user ada -- true",
                "--mail-user is an option of Slurm | leave it out: no mail is sent; `phalanx submit --notify` calls a command or a URL",
            ),
            (
                "phalanx submit --contiguous -- true",
                "--contiguous is an option of Slurm: node numbers say nothing about distance | --switches=1 keeps a job below one switch",
            ),
            ("phalanx submit --nope -- true", "clap"),
            ("phalanx ps --partition lab", "clap"),
        ] {
            assert_eq!(said(line), expected, "{line}");
        }
    }

    #[test]
    fn a_command_without_dashes_is_shown_with_them() {
        for (line, expected) in [
            (
                "phalanx submit -G 8 sleep 600",
                "\"sleep\" is no option | put `--` before the command: `phalanx submit -G 8 -- sleep 600`",
            ),
            (
                "phalanx run -G 8 sleep 600",
                "\"sleep\" is no option | put `--` before the command: `phalanx run -G 8 -- sleep 600`",
            ),
            (
                "phalanx submit sleep 600",
                "\"sleep\" is no option | put `--` before the command: `phalanx submit -- sleep 600`",
            ),
            (
                "phalanx alloc -n bash bash",
                "\"bash\" is no option | put `--` before the command: `phalanx alloc … -- bash …`",
            ),
            (
                "phalanx submit job.yaml",
                "\"job.yaml\" is no option | `phalanx submit --file job.yaml` reads a job file",
            ),
            ("phalanx run a -- sleep 600", "clap"),
            ("phalanx cancel", "clap"),
        ] {
            assert_eq!(said(line), expected, "{line}");
        }
    }

    #[test]
    fn our_names_are_options_of_submit() {
        for (_, ours) in OURS.iter().filter(|(theirs, _)| *theirs != "wrap") {
            let flag = ours.split(' ').next().unwrap();
            let value = if ours.contains(' ') { vec!["1"] } else { Vec::new() };
            let words = ["phalanx", "submit", flag].into_iter().chain(value).chain(["--", "true"]);
            assert!(Cli::try_parse_from(words).is_ok(), "{ours}");
        }
    }
}
