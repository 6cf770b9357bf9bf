//! What the members of a job run.

use std::collections::BTreeMap;

use phalanx_model::{LaunchKind, Program, SecretSource};

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::place::At;
use crate::scalar::{ARGUMENT_BYTES_MAX, VariableName};
use crate::shape::Shape;

/// Tells a launcher (`torchrun`, `mpi`) how many processes to start on each node, when the job says so.
pub const RANKS_PER_NODE_ENV: &str = "PHALANX_RANKS_PER_NODE";
/// The same for `torchrun`, whose agents read it.
const NPROC_PER_NODE_ENV: &str = "NPROC_PER_NODE";
/// How often to save, in seconds.
const CHECKPOINT_INTERVAL_ENV: &str = "PHALANX_CKPT_INTERVAL";

/// Arguments and variables together; Linux takes a quarter of the stack limit, 2 MiB by default (execve(2)).
const PROGRAM_BYTES_MAX: usize = 1 << 20;

impl JobFile {
    pub(crate) fn program(&self, shape: &Shape, default_workdir: &str) -> Result<Program, SpecError> {
        let mut env: BTreeMap<String, String> = BTreeMap::new();
        if let Some(ranks) = shape.ranks_per_node {
            env.insert(RANKS_PER_NODE_ENV.to_owned(), ranks.to_string());
            if self.launch_kind() == LaunchKind::Torchrun {
                env.insert(NPROC_PER_NODE_ENV.to_owned(), ranks.to_string());
            }
        }
        let argv = match self.mpi_launcher() {
            Some(launcher) => self.argv(launcher.run.as_ref(), launcher.command.as_deref())?,
            None => self.argv(self.run.as_ref(), self.command.as_deref())?,
        };
        self.program_of(argv, env, &BTreeMap::new(), default_workdir)
    }

    /// A program in the surroundings of the job. Its own variables win over those of the job, and these over what
    /// Phalanx sets.
    pub(crate) fn program_of(
        &self,
        argv: Vec<String>,
        mut env: BTreeMap<String, String>,
        own: &BTreeMap<At<VariableName>, At<String>>,
        default_workdir: &str,
    ) -> Result<Program, SpecError> {
        let checkpoint = self.checkpoint.clone().unwrap_or_default();
        if let Some(interval) = checkpoint.interval {
            env.insert(
                CHECKPOINT_INTERVAL_ENV.to_owned(),
                interval.value.millis().div_ceil(1_000).to_string(),
            );
        }
        let said = self.env.iter().chain(own);
        env.extend(said.map(|(name, value)| (name.value.0.clone(), value.value.clone())));
        let sizes =
            argv.iter().map(String::len).chain(env.iter().map(|(name, value)| name.len() + value.len()));
        let bytes: usize = sizes.map(|length| length + 2).sum();
        if bytes > PROGRAM_BYTES_MAX {
            let what = format!("arguments and variables have {bytes} bytes together");
            return Err(self.source.error(
                Place::Nowhere,
                what,
                format!("at most {PROGRAM_BYTES_MAX}; keep them in a file"),
            ));
        }
        Ok(Program {
            launch: self.launch_kind(),
            argv,
            env,
            workdir: self.directory(self.workdir.as_ref(), default_workdir)?,
            secrets: self.secrets(default_workdir)?,
            checkpoint_dir: match &checkpoint.dir {
                Some(dir) => Some(self.directory(Some(dir), default_workdir)?),
                None => None,
            },
            rdma: self.rdma.is_some_and(|rdma| rdma.value),
            notify: self.notify.as_ref().map(|notify| notify.value.clone()),
            umask: None,
            terminal: self.terminal.is_some_and(|terminal| terminal.value),
        })
    }

    /// `setup` runs under `set -e`; what follows runs as the user's shell would run it.
    pub(crate) fn argv(
        &self,
        run: Option<&At<String>>,
        command: Option<&[At<String>]>,
    ) -> Result<Vec<String>, SpecError> {
        let setup = self.setup.as_ref().map(|setup| format!("set -e\n{}\nset +e\n", setup.value.trim_end()));
        let shell = |script: String| ["/bin/bash".to_owned(), "-c".to_owned(), script];
        let argv = match (run, command) {
            (Some(run), Some(command)) => {
                let error =
                    self.source.error(run.place, "`run` and `command` are both given", "give one of them");
                return Err(self.also(error, command.first().map(|first| first.place), "the other one"));
            }
            (None, None) => {
                let accepted = "give `run: SHELL TEXT` or `command: [PROGRAM, ARGUMENT]` in a file, or the program after `--`";
                return Err(self.source.error(Place::Nowhere, "the job says nothing to run", accepted));
            }
            (Some(run), None) if run.value.trim().is_empty() => {
                return Err(self.source.error(
                    run.place,
                    "is empty",
                    "expected shell text, such as python train.py",
                ));
            }
            (None, Some(command)) if command.first().is_none_or(|program| program.value.is_empty()) => {
                let place = command.first().map_or(Place::Nowhere, |program| program.place);
                return Err(self.source.error(
                    place,
                    "`command` names no program",
                    "expected [PROGRAM, ARGUMENT]",
                ));
            }
            (Some(run), None) => shell(setup.unwrap_or_default() + &run.value).to_vec(),
            (None, Some(command)) => {
                let words = command.iter().map(|word| word.value.clone());
                match setup {
                    // The words become "$@", so that no shell reads them a second time; "bash" is "$0".
                    Some(setup) => {
                        let script = shell(setup + "exec \"$@\"");
                        script.into_iter().chain(["bash".to_owned()]).chain(words).collect()
                    }
                    None => words.collect(),
                }
            }
        };
        if let Some(script) = argv.iter().find(|argument| argument.len() > ARGUMENT_BYTES_MAX) {
            let place = run.or(self.setup.as_ref()).map_or(Place::Nowhere, |text| text.place);
            let what = format!("`setup` and `run` have {} bytes together", script.len());
            return Err(self.source.error(
                place,
                what,
                format!("at most {ARGUMENT_BYTES_MAX}; keep a long script in a file"),
            ));
        }
        Ok(argv)
    }

    fn secrets(&self, default_workdir: &str) -> Result<BTreeMap<String, SecretSource>, SpecError> {
        let mut secrets = BTreeMap::new();
        for (name, secret) in &self.secrets.0 {
            if let Some((variable, _)) = self.env.get_key_value(name) {
                let what = format!("{} is both a secret and a plain variable", name.value.0);
                let error = self.source.error(name.place, what, "give it under `secrets` or under `env`");
                return Err(self.also(error, Some(variable.place), "the plain variable"));
            }
            let from = match &secret.file {
                Some(file) => SecretSource::File(self.directory(Some(file), default_workdir)?),
                None => SecretSource::Submitted,
            };
            secrets.insert(name.value.0.clone(), from);
        }
        Ok(secrets)
    }

    /// A path as it is, or below `base` when it is relative.
    fn directory(&self, path: Option<&At<String>>, base: &str) -> Result<String, SpecError> {
        match path {
            None => Ok(base.to_owned()),
            Some(path) if path.value.is_empty() => {
                Err(self.source.error(path.place, "is empty", "expected a path"))
            }
            Some(path) if path.value.starts_with('~') => {
                let accepted = "`~` is not replaced here; write the path from / on";
                Err(self.source.error(path.place, "begins with `~`", accepted))
            }
            Some(path) if path.value.starts_with('/') => Ok(path.value.clone()),
            Some(path) => Ok(format!("{}/{}", base.trim_end_matches('/'), path.value)),
        }
    }
}
