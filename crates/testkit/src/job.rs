//! Builders of jobs. Names that are not names panic.

use phalanx_model::{
    Advisory, After, Array, ClassName, EndOf, FailureClass, Gang, Job, JobId, JobName, LevelName, Owner,
    Policy, PreemptMode, QueueName, Replicas, Retry, Target, Tasks, Timestamp, Turn,
};

/// A job of one gang, submitted at its number, without retries or time limit.
#[must_use]
pub fn job(id: u64, gang: impl Into<Gang>) -> JobBuilder {
    JobBuilder(Job {
        id: JobId(id),
        name: JobName::new(format!("job-{id}")).unwrap(),
        key: None,
        owner: Owner { uid: 1000, gid: 1000, name: "user".to_owned() },
        queue: QueueName::new("default").unwrap(),
        priority: 0,
        submitted_at: Timestamp(id),
        gangs: vec![gang.into()],
        policy: Policy::default(),
        turn: Turn::default(),
    })
}

#[derive(Clone, Debug)]
pub struct JobBuilder(Job);

impl JobBuilder {
    /// Adds a gang.
    #[must_use]
    pub fn and(mut self, gang: impl Into<Gang>) -> Self {
        self.0.gangs.push(gang.into());
        self
    }

    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.0.name = JobName::new(name).unwrap();
        self
    }

    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.0.priority = priority;
        self
    }

    #[must_use]
    pub fn submitted_at(mut self, ms: u64) -> Self {
        self.0.submitted_at = Timestamp(ms);
        self
    }

    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.0.key = Some(key.to_owned());
        self
    }

    #[must_use]
    pub fn time_limit(mut self, ms: u64) -> Self {
        self.0.policy.time_limit_ms = Some(ms);
        self
    }

    #[must_use]
    pub fn start_deadline(mut self, ms: u64) -> Self {
        self.0.policy.start_deadline_ms = ms;
        self
    }

    #[must_use]
    pub fn advisory(mut self, signal: i32, lead_ms: u64) -> Self {
        self.0.policy.stop.advisory = Some(Advisory { signal, lead_ms });
        self
    }

    #[must_use]
    pub fn grace(mut self, ms: u64) -> Self {
        self.0.policy.stop.grace_ms = ms;
        self
    }

    #[must_use]
    pub fn retry(mut self, max: u32, on: &[FailureClass]) -> Self {
        self.0.policy.retry.max = max;
        self.0.policy.retry.on = on.to_vec();
        self
    }

    #[must_use]
    pub fn backoff(mut self, ms: u64, max_ms: u64) -> Self {
        self.0.policy.retry.backoff_ms = ms;
        self.0.policy.retry.backoff_max_ms = max_ms;
        self
    }

    #[must_use]
    pub fn queue(mut self, name: &str) -> Self {
        self.0.queue = QueueName::new(name).unwrap();
        self
    }

    #[must_use]
    pub fn class(mut self, name: &str) -> Self {
        self.0.turn.class = Some(ClassName::new(name).unwrap());
        self
    }

    /// Holds the job until its release.
    #[must_use]
    pub fn held(mut self) -> Self {
        self.0.turn.held_by = Some("user".to_owned());
        self
    }

    /// Adds a dependency.
    #[must_use]
    pub fn after(mut self, job: u64, end: EndOf) -> Self {
        self.0.turn.after.push(After { job: JobId(job), end });
        self
    }

    #[must_use]
    pub fn begins_at(mut self, ms: u64) -> Self {
        self.0.turn.begins_at = Some(Timestamp(ms));
        self
    }

    #[must_use]
    pub fn deadline(mut self, ms: u64) -> Self {
        self.0.turn.deadline = Some(Timestamp(ms));
        self
    }

    /// An array of tasks like the job's first gang, with the most tasks that run at once.
    #[must_use]
    pub fn array(mut self, tasks: u32, running_max: Option<u32>) -> Self {
        self.0.gangs.truncate(1);
        self.0.turn.array = Some(Array { tasks: Tasks::first(tasks), running_max });
        self
    }

    /// The numbers of the tasks of an array.
    #[must_use]
    pub fn tasks(mut self, tasks: Tasks) -> Self {
        self.0.turn.array.get_or_insert_default().tasks = tasks;
        self
    }

    /// A service with replicas like the job's first gang.
    #[must_use]
    pub fn service(mut self, min: u32, max: usize) -> Self {
        self.0.gangs = vec![self.0.gangs[0].clone(); max];
        self.0.turn.service = Some(Replicas { min, ..Replicas::default() });
        self
    }

    /// After [`Self::service`]: the surge, extra replicas while others are replaced.
    #[must_use]
    pub fn surge(mut self, surge: u32) -> Self {
        let more = vec![self.0.gangs[0].clone(); surge as usize];
        self.0.gangs.extend(more);
        self.0.turn.service.as_mut().unwrap().surge = surge;
        self
    }

    /// The target of a metric for each replica of the service.
    #[must_use]
    pub fn target(mut self, metric: &str, value_milli: u64) -> Self {
        self.0.turn.service.as_mut().unwrap().target = Some(Target::new(metric, value_milli));
        self
    }

    /// Replicas of the service are spread at this level.
    #[must_use]
    pub fn apart(mut self, level: &str) -> Self {
        self.0.turn.service.as_mut().unwrap().spread = Some(LevelName::new(level).unwrap());
        self
    }

    /// Restarted without end, after a second.
    #[must_use]
    pub fn restarts(mut self) -> Self {
        let on = FailureClass::ALL.to_vec();
        self.0.policy.retry = Retry { max: u32::MAX, on, backoff_ms: 1_000, backoff_max_ms: 1_000 };
        self
    }

    #[must_use]
    pub fn idle_limit(mut self, ms: u64) -> Self {
        self.0.policy.idle_limit_ms = Some(ms);
        self
    }

    #[must_use]
    pub fn preempt(mut self, mode: PreemptMode) -> Self {
        self.0.policy.preempt.mode = mode;
        self
    }

    /// The job may be moved to open a place for another one.
    #[must_use]
    pub fn may_move(mut self) -> Self {
        self.0.policy.preempt.may_move = true;
        self
    }

    /// The job must resume on its earlier nodes.
    #[must_use]
    pub fn pinned(mut self) -> Self {
        self.0.policy.preempt.is_pinned = true;
        self
    }

    #[must_use]
    pub fn build(self) -> Job {
        self.0
    }
}
