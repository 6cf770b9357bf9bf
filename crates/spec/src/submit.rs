//! From a job file to the model: what each member needs and runs, and what happens when one fails.

use std::collections::BTreeMap;

use phalanx_model::{
    Advisory, FailureClass, Gang, Job, JobId, JobName, LaunchKind, Needs, NodeName, Owner, Policy, Program,
    QueueName, SecretSource, Timestamp, Traffic,
};

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::place::At;
use crate::quantity;
use crate::scalar::{ARGUMENT_BYTES_MAX, Count, RetryCause};
use crate::shape::Shape;

/// Tells a launcher (`torchrun`, `mpi`) how many processes to start on each node, when the job says so.
pub const RANKS_PER_NODE_ENV: &str = "PHALANX_RANKS_PER_NODE";
/// The same for `torchrun`, whose agents read it.
const NPROC_PER_NODE_ENV: &str = "NPROC_PER_NODE";
/// How often to save, in seconds.
const CHECKPOINT_INTERVAL_ENV: &str = "PHALANX_CKPT_INTERVAL";

/// Arguments and variables together; Linux takes a quarter of the stack limit, 2 MiB by default (execve(2)).
const PROGRAM_BYTES_MAX: usize = 1 << 20;
/// Less memory than this per job is a unit that was forgotten.
const MEMORY_BYTES_MIN: u64 = 1 << 20;
const ADVISORY_LEAD_MS: u64 = 30_000;
const KEY_BYTES_MAX: usize = 256;

/// What a submission knows beside the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitContext {
    pub id: JobId,
    pub owner: Owner,
    pub submitted_at: Timestamp,
    /// Absolute path: where the program starts unless the file says otherwise.
    pub default_workdir: String,
}

impl JobFile {
    /// Turns the file into a job of one gang.
    ///
    /// # Errors
    /// When fields contradict each other, or nothing is said to run.
    pub fn into_job(self, context: SubmitContext) -> Result<Job, SpecError> {
        let shape = self.shape()?;
        let size = shape.size;
        let gang = Gang {
            size,
            min: size,
            max: size,
            needs: self.needs(&shape)?,
            members_per_node: shape.members_per_node,
            topology: self.topology(&shape)?,
            traffic: self.traffic.as_ref().map(|traffic| Traffic {
                pattern: traffic.pattern.map(|p| p.value).unwrap_or_default(),
                bytes: traffic.bytes.value.0,
                compute_ns: traffic.compute.map_or(0, |compute| compute.value.0),
            }),
            program: self.program(&shape, &context.default_workdir)?,
            roles: Vec::new(),
            grid: Vec::new(),
        };
        let key = self.key.as_ref().map(|key| self.checked_key(key)).transpose()?;
        let policy = self.policy()?;
        Ok(Job {
            id: context.id,
            name: self.job_name(),
            key,
            owner: context.owner,
            queue: self.queue.as_ref().map_or_else(default_queue, |queue| queue.value.clone()),
            priority: self.priority.map_or(0, |priority| priority.value),
            submitted_at: context.submitted_at,
            gangs: vec![gang],
            policy,
        })
    }

    fn needs(&self, shape: &Shape) -> Result<Needs, SpecError> {
        let resources = self.resources.clone().unwrap_or_default();
        if let Some(memory) = &resources.memory
            && memory.value.0 < MEMORY_BYTES_MIN
        {
            let what = format!("{} bytes are less than 1MiB", memory.value.0);
            let accepted = format!("a plain number is bytes; did you mean {}GB?", memory.value.0);
            return Err(self.source.error(memory.place, what, accepted));
        }
        let share = |amount: u64| amount.div_ceil(u64::from(shape.sharers));
        Ok(Needs {
            devices: shape.devices,
            models: resources.gpus.and_then(|gpus| gpus.value.model).map_or(Vec::new(), Needs::of_model),
            cpu_milli: resources.cpus.map_or(0, |cpus| share(cpus.value.0)),
            memory_bytes: resources.memory.map_or(0, |memory| share(memory.value.0)),
            nodes: self.named_nodes()?,
            ..Needs::default()
        })
    }

    /// The nodes that the job names, in natural order.
    fn named_nodes(&self) -> Result<Vec<NodeName>, SpecError> {
        let Some(nodes) = &self.nodes else { return Ok(Vec::new()) };
        let mut named = BTreeMap::new();
        for name in &nodes.of {
            if let Some(first) = named.insert(&name.value, name.place) {
                let error =
                    self.source.error(name.place, format!("{} is named twice", name.value), "name it once");
                return Err(self.also(error, Some(first), "the first"));
            }
        }
        let (count, of) = (nodes.count, named.len());
        if of > 0 && usize::try_from(count.value.0).is_ok_and(|count| count > of) {
            let what = format!("{} nodes of {of} that are named", count.value.0);
            return Err(self.source.error(count.place, what, format!("at most {of}, or name more")));
        }
        Ok(named.into_keys().cloned().collect())
    }

    fn program(&self, shape: &Shape, default_workdir: &str) -> Result<Program, SpecError> {
        let checkpoint = self.checkpoint.clone().unwrap_or_default();
        let mut env: BTreeMap<String, String> = BTreeMap::new();
        if let Some(interval) = checkpoint.interval {
            env.insert(
                CHECKPOINT_INTERVAL_ENV.to_owned(),
                interval.value.millis().div_ceil(1_000).to_string(),
            );
        }
        if let Some(ranks) = shape.ranks_per_node {
            env.insert(RANKS_PER_NODE_ENV.to_owned(), ranks.to_string());
            if self.launch_kind() == LaunchKind::Torchrun {
                env.insert(NPROC_PER_NODE_ENV.to_owned(), ranks.to_string());
            }
        }
        env.extend(self.env.iter().map(|(name, value)| (name.value.0.clone(), value.value.clone())));
        let argv = self.argv()?;
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
        })
    }

    /// `setup` runs under `set -e`; what follows runs as the user's shell would run it.
    fn argv(&self) -> Result<Vec<String>, SpecError> {
        let setup = self.setup.as_ref().map(|setup| format!("set -e\n{}\nset +e\n", setup.value.trim_end()));
        let shell = |script: String| ["/bin/bash".to_owned(), "-c".to_owned(), script];
        let argv = match (&self.run, &self.command) {
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
            let place = self.run.as_ref().or(self.setup.as_ref()).map_or(Place::Nowhere, |text| text.place);
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

    fn policy(&self) -> Result<Policy, SpecError> {
        let mut policy = Policy {
            time_limit_ms: self.time_limit.map(|at| at.value.0.div_ceil(1_000_000)),
            ..Policy::default()
        };
        if let Some(deadline) = self.start_deadline {
            policy.start_deadline_ms = deadline.value.millis();
        }
        if let Some(grace) = self.grace {
            policy.stop.grace_ms = grace.value.millis();
        }
        if let Some(checkpoint) = &self.checkpoint {
            policy.stop.advisory = match (checkpoint.signal, checkpoint.grace) {
                (Some(signal), grace) => Some(Advisory {
                    signal: signal.value.0,
                    lead_ms: grace.map_or(ADVISORY_LEAD_MS, |grace| grace.value.millis()),
                }),
                (None, Some(grace)) => {
                    let accepted = "add `signal: USR1`, or use the job's own `grace` for SIGTERM to SIGKILL";
                    return Err(self.source.error(
                        grace.place,
                        "has no effect without checkpoint.signal",
                        accepted,
                    ));
                }
                (None, None) => None,
            };
        }
        self.fill_retry(&mut policy)?;
        Ok(policy)
    }

    fn fill_retry(&self, policy: &mut Policy) -> Result<(), SpecError> {
        let Some(retry) = &self.retry else { return Ok(()) };
        policy.retry.max = retry.max.map_or(u32::from(retry.on.is_some()), |max| max.value);
        if policy.retry.max > 0 {
            policy.retry.on = match &retry.on {
                None => FailureClass::ALL.to_vec(),
                Some(causes) => causes.iter().map(|cause| failure_class(cause.value)).collect(),
            };
            policy.retry.on.sort_unstable();
            policy.retry.on.dedup();
        }
        if let Some(backoff) = retry.backoff {
            policy.retry.backoff_ms = backoff.value.millis();
        }
        match (retry.backoff_max, retry.backoff) {
            (Some(max), _) if max.value.millis() < policy.retry.backoff_ms => {
                let what = format!(
                    "the longest pause is shorter than the first, {}",
                    quantity::format_duration_ns(policy.retry.backoff_ms.saturating_mul(1_000_000))
                );
                let error = self.source.error(max.place, what, "expected backoff_max to be at least backoff");
                return Err(self.also(error, retry.backoff.map(|backoff| backoff.place), "the first pause"));
            }
            (Some(max), _) => policy.retry.backoff_max_ms = max.value.millis(),
            (None, _) => {
                policy.retry.backoff_max_ms = policy.retry.backoff_max_ms.max(policy.retry.backoff_ms)
            }
        }
        Ok(())
    }

    fn checked_key(&self, key: &At<String>) -> Result<String, SpecError> {
        if key.value.is_empty() || key.value.len() > KEY_BYTES_MAX {
            let accepted = format!("expected 1 to {KEY_BYTES_MAX} bytes");
            return Err(self.source.error(key.place, format!("has {} bytes", key.value.len()), accepted));
        }
        Ok(key.value.clone())
    }

    /// The given name, or the program's.
    fn job_name(&self) -> JobName {
        if let Some(name) = &self.name {
            return name.value.clone();
        }
        let program =
            self.command.as_ref().and_then(|command| command.first()).map(|word| word.value.as_str());
        let base = program.and_then(|program| program.rsplit('/').next()).unwrap_or_default();
        JobName::new(base).or_else(|_| JobName::new("job")).expect("`job` is a name")
    }

    pub(crate) fn launch_kind(&self) -> LaunchKind {
        self.launch.map_or(LaunchKind::Ranks, |launch| launch.value)
    }

    /// How many nodes, and where that is said.
    pub(crate) fn node_count(&self) -> Option<At<Count>> {
        self.nodes.as_ref().map(|nodes| nodes.count)
    }

    /// How many GPUs, and where that is said.
    pub(crate) fn gpus(&self) -> Option<At<u32>> {
        let gpus = self.resources.as_ref()?.gpus.as_ref()?;
        Some(At::new(gpus.value.count, gpus.place))
    }

    pub(crate) fn also(&self, error: SpecError, place: Option<Place>, label: &str) -> SpecError {
        match place {
            Some(place) => error.also(&self.source, place, label),
            None => error,
        }
    }
}

fn default_queue() -> QueueName {
    QueueName::new("default").expect("`default` is a name")
}

const fn failure_class(cause: RetryCause) -> FailureClass {
    match cause {
        RetryCause::UserCode => FailureClass::UserCode,
        RetryCause::StartUp => FailureClass::StartUp,
        RetryCause::Node => FailureClass::Node,
        RetryCause::Preemption => FailureClass::Preemption,
        RetryCause::Infrastructure => FailureClass::Infrastructure,
    }
}
