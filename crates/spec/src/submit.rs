//! From a job file to the model: what each member needs and runs, and what happens when one fails.

use phalanx_model::{
    Advisory, FailureClass, Gang, Job, JobId, JobName, LaunchKind, Needs, Owner, Policy, Preempt,
    PreemptMode, QueueName, Timestamp, Traffic,
};

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::place::At;
use crate::quantity;
use crate::resources::ResourcesFile;
use crate::scalar::RetryCause;
use crate::service::restart_always;
use crate::shape::Shape;

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
    /// Turns the file into a job of one gang, or of one for each task of its array.
    ///
    /// # Errors
    /// When fields contradict each other, or nothing is said to run.
    pub fn into_job(self, context: SubmitContext) -> Result<Job, SpecError> {
        let shape = self.shape()?;
        let size = shape.size;
        let program = self.program(&shape, &context.default_workdir)?;
        let gang = Gang {
            size,
            min: size,
            max: size,
            needs: self.needs(&shape, &context.owner)?,
            members_per_node: shape.members_per_node,
            topology: self.topology(&shape)?,
            traffic: self.traffic.as_ref().map(|traffic| Traffic {
                pattern: traffic.pattern.map(|p| p.value).unwrap_or_default(),
                bytes: traffic.bytes.value.0,
                compute_ns: traffic.compute.map_or(0, |compute| compute.value.0),
            }),
            roles: self.roles(&program, &context)?,
            grid: self.grid(&shape)?,
            program,
        };
        self.check_together(&gang)?;
        let gang = self.elastic(gang, &shape)?;
        let turn = self.turn(&context)?;
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
            gangs: self.tasks(gang),
            policy,
            turn,
        })
    }

    fn needs(&self, shape: &Shape, owner: &Owner) -> Result<Needs, SpecError> {
        let resources = self.resources.clone().unwrap_or_default();
        let needs = Needs { devices: shape.devices, ..self.member_needs(&resources, shape.sharers, owner)? };
        if needs.part.is_some() {
            self.check_part(shape)?;
        }
        Ok(needs)
    }

    /// What one of so many `sharers` needs, but for whole devices.
    pub(crate) fn member_needs(
        &self,
        resources: &ResourcesFile,
        sharers: u32,
        owner: &Owner,
    ) -> Result<Needs, SpecError> {
        let gpus = resources.gpus.as_ref();
        let needs = Needs {
            part: gpus.map_or(Ok(None), |gpus| gpus.part(&self.source, &owner.name))?,
            models: gpus.map_or(Ok(Vec::new()), |gpus| gpus.model_needs(&self.source))?,
            is_exclusive: self.exclusive.is_some_and(|exclusive| exclusive.value),
            ..self.amounts(resources, sharers)?
        };
        self.which_nodes(needs)
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
            policy.preempt.is_pinned = checkpoint.shared.is_some_and(|shared| !shared.value);
            if let (Some(shared), None) = (checkpoint.shared, &checkpoint.dir) {
                let accepted = "add `dir: PATH`, or leave the field out";
                return Err(self.source.error(
                    shared.place,
                    "has no effect without checkpoint.dir",
                    accepted,
                ));
            }
        }
        policy.idle_limit_ms = self.session.as_ref().map(|session| session.idle.value.millis());
        policy.preempt.mode = self.preempt.map_or(PreemptMode::Requeue, |mode| mode.value);
        policy.preempt.may_move = self.may_move.is_some_and(|may| may.value);
        self.check_may_move(policy.preempt)?;
        self.fill_retry(&mut policy)?;
        Ok(policy)
    }

    /// A job that is moved starts again elsewhere.
    fn check_may_move(&self, preempt: Preempt) -> Result<(), SpecError> {
        let Some(said) = self.may_move.filter(|may| may.value) else { return Ok(()) };
        let (what, accepted) = if preempt.mode != PreemptMode::Requeue {
            ("is for jobs that are requeued", "say `preempt: requeue`, or leave `may_move` out")
        } else if preempt.is_pinned {
            (
                "needs a checkpoint that other nodes can read",
                "leave out `checkpoint.shared: false`, or `may_move`",
            )
        } else if self.service.is_some() {
            ("is not for services", "leave `may_move` out: replicas move one by one with `surge`")
        } else {
            return Ok(());
        };
        Err(self.source.error(said.place, what, accepted))
    }

    fn fill_retry(&self, policy: &mut Policy) -> Result<(), SpecError> {
        let Some(retry) = &self.retry else {
            if self.service.is_some() {
                restart_always(&mut policy.retry);
            }
            return Ok(());
        };
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

    /// How many whole GPUs, and where that is said. Those of a slice need not be said again.
    pub(crate) fn gpus(&self) -> Option<At<u32>> {
        let said = self.resources.as_ref().and_then(|resources| resources.gpus.as_ref());
        match (said, self.slice()) {
            (Some(gpus), _) => gpus.count.map(|count| At::new(count.value.0, count.place)),
            (None, Some(slice)) => {
                let nodes = self.node_count().map_or(1, |nodes| nodes.value.0);
                Some(At::new(slice.value.chips() / nodes, slice.place))
            }
            (None, None) => None,
        }
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
