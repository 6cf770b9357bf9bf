//! Services: how many replicas are wanted, which of them are scaled in, and the metric that decides. And sessions: when
//! they were last used.

use std::collections::BTreeMap;

use phalanx_model::later::Metric;
use phalanx_model::{
    Change, Ending, FailureClass, GangId, Input, Job, JobId, Look, Outcome, Phase, Reason, Replicas, Service,
    Session, StopCause, Target, Timestamp,
};

use super::Ledger;
use super::apply::refuse;

/// A metric older than this is unknown: a replica that reports every half minute may miss three reports.
const METRIC_MS_MAX: u64 = 2 * 60_000;
/// Within this tolerance of the target nothing changes. The tolerance of the Horizontal Pod Autoscaler.
const TOLERANCE_PERCENT: u128 = 10;

/// The reported state of services and sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct Serving {
    services: BTreeMap<JobId, Service>,
    sessions: BTreeMap<JobId, Timestamp>,
}

impl Serving {
    /// A submitted job begins with its minimum.
    pub(super) fn begin(&mut self, job: &Job, now: Timestamp) {
        if let Some(service) = &job.turn.service {
            let looks = first_look(service, service.min, now);
            self.services
                .insert(job.id, Service { job: job.id, replicas: service.min, looks, is_set: false });
        }
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.services.remove(&job);
        self.sessions.remove(&job);
    }

    /// The known state of a job that is listed again.
    pub(super) fn of(&self, job: JobId) -> Self {
        let services = self.services.get(&job).map(|service| (job, service.clone()));
        let sessions = self.sessions.get(&job).map(|used_at| (job, *used_at));
        Self { services: services.into_iter().collect(), sessions: sessions.into_iter().collect() }
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.services.extend(other.services);
        self.sessions.extend(other.sessions);
    }

    pub(super) fn facts(&self) -> impl Iterator<Item = Input> {
        let services = self.services.values();
        let services = services.map(|service| Input::ServiceObserved { service: service.clone() });
        let session = |(job, used_at): (&JobId, &Timestamp)| {
            let session = Session { job: *job, used_at: *used_at };
            Input::SessionObserved { session }
        };
        services.chain(self.sessions.iter().map(session))
    }
}

/// The values of a metric that running replicas reported, in thousandths of its unit.
struct Load {
    sum_milli: u128,
    /// The number of running replicas, and of those that reported nothing.
    running: u32,
    silent: u32,
}

impl Load {
    /// The number of replicas that have the target each, on average: `ceil(sum / target)`, the formula of the
    /// Horizontal Pod Autoscaler. As that does, running replicas without a report count as zero if more would be
    /// needed, and as the target if fewer would do; pending replicas count as zero. So a missing report changes
    /// nothing.
    fn replicas(&self, wanted: u32, target: &Target) -> u32 {
        let target_milli = u128::from(target.value_milli.max(1));
        let is_more = self.sum_milli * 100 > u128::from(wanted) * target_milli * (100 + TOLERANCE_PERCENT);
        let most_milli = self.sum_milli + u128::from(self.silent) * target_milli;
        let is_less = most_milli * 100 < u128::from(self.running) * target_milli * (100 - TOLERANCE_PERCENT);
        let of = |sum_milli: u128| u32::try_from(sum_milli.div_ceil(target_milli)).unwrap_or(u32::MAX);
        match (is_more, is_less) {
            (true, _) => of(self.sum_milli),
            (_, true) => of(most_milli),
            _ => wanted,
        }
    }
}

/// If a metric decides, the replicas that were wanted at first count as needed.
fn first_look(service: &Replicas, replicas: u32, at: Timestamp) -> Vec<Look> {
    service.target.iter().map(|_| Look { at, replicas }).collect()
}

/// Adds a look. The largest need within the settling time is first.
fn look(looks: &mut Vec<Look>, replicas: u32, now: Timestamp, settle_ms: u64) {
    looks.retain(|look| look.replicas > replicas && look.at.plus(settle_ms) > now);
    looks.push(Look { at: now, replicas });
}

impl Ledger {
    /// The number of replicas of a job that are wanted; `None` if the job is no service.
    pub(crate) fn replicas_of(&self, job: &Job) -> Option<u32> {
        let service = job.turn.service.as_ref()?;
        Some(self.serving.services.get(&job.id).map_or(service.min, |observed| observed.replicas))
    }

    pub(crate) fn service(&self, job: JobId) -> Option<&Service> {
        self.serving.services.get(&job)
    }

    /// Whether as many replicas as may run come before this replica. Replicas that have ended do not count.
    pub(super) fn rests(&self, job: &Job, gang: GangId) -> Option<Reason> {
        let (service, replicas) = (job.turn.service.as_ref()?, self.replicas_of(job)?);
        let all = self.active.range(job.id.gang(0)..=job.id.gang(u32::MAX));
        let before = all.filter(|other| service.number(**other) < service.number(gang)).count();
        (before >= self.allowed(job, replicas)).then_some(Reason::ScaledIn { replicas })
    }

    /// A replica has ended: another may take its place.
    pub(super) fn relist_replicas(&mut self, job: JobId) {
        if self.job(job).is_some_and(|job| job.turn.service.is_some()) {
            for gang in self.gangs_of(job) {
                if self.record(gang).is_some_and(|r| r.is_pending()) && self.pending.place_of(gang).is_none()
                {
                    self.relist(gang);
                }
            }
        }
    }

    /// Applies an observed number of wanted replicas.
    pub(super) fn observe_service(&mut self, observed: &Service, out: &mut Outcome) {
        let what = || format!("replicas of job {}", observed.job);
        let Some(job) = self.job(observed.job) else { return refuse(out, what(), "no such job") };
        let gangs = job.gang_count();
        match &job.turn.service {
            None => refuse(out, what(), "the job is not a service"),
            Some(service) if !(service.min..=service.most(gangs)).contains(&observed.replicas) => {
                let (min, most) = (service.min, service.most(gangs));
                let why = format!(
                    "the service has {min} to {most} replicas, and {} were requested",
                    observed.replicas
                );
                refuse(out, what(), &why);
            }
            Some(service) => {
                let begun = || first_look(service, observed.replicas, self.now);
                let looks = if observed.looks.is_empty() { begun() } else { observed.looks.clone() };
                self.scale(Service { looks, ..observed.clone() }, None, out);
            }
        }
    }

    /// Scales a service: surplus replicas, those with the highest numbers, stop and are scaled in.
    fn scale(&mut self, to: Service, load_milli: Option<u64>, out: &mut Outcome) {
        let (job, replicas) = (to.job, to.replicas);
        let before = self.serving.services.insert(job, to).map(|service| service.replicas);
        if before == Some(replicas) {
            return;
        }
        // A service that is listed again is not reported as a change.
        let change = before.map(|before| Change::ServiceScaled { job, before, replicas, load_milli });
        out.changes.extend(change);
        self.preempted.clear();
        self.rest_beyond(job, out);
    }

    /// Records a measured value. If it is of the metric that a service is scaled by, it decides how many replicas are
    /// needed: more are wanted at once, fewer after they were enough for a while.
    pub(super) fn observe_metric(&mut self, metric: &Metric, out: &mut Outcome) {
        let subject = || format!("metric {} of gang {}", metric.name, metric.gang);
        // If it is reported too late, it would be kept for ever.
        if self.record(metric.gang).is_none() {
            return refuse(out, subject(), "no such gang");
        }
        if let Err(why) = self.noted.note(&Input::MetricObserved { metric: metric.clone() }) {
            return refuse(out, subject(), &why);
        }
        let Some(job) = self.job(metric.gang.job) else { return };
        // A job that is listed again is reported later.
        let known = self.serving.services.get(&job.id).cloned();
        let Some((service, mut observed)) = job.turn.service.as_ref().zip(known) else { return };
        let target = service.target.as_ref().filter(|target| target.metric == metric.name);
        let Some(target) = target.filter(|_| !observed.is_set) else {
            return;
        };
        let load = self.load(job.id, observed.replicas, &target.metric);
        let gangs = u32::try_from(self.gangs_of(job.id).len()).unwrap_or(u32::MAX);
        let most = service.most(gangs).max(service.min);
        let needed = load.replicas(observed.replicas, target).clamp(service.min, most);
        look(&mut observed.looks, needed, self.now, target.settle_ms);
        observed.replicas = observed.looks.first().map_or(needed, |look| look.replicas);
        let load_milli = u64::try_from(load.sum_milli).unwrap_or(u64::MAX);
        self.scale(observed, Some(load_milli), out);
    }

    /// The last reports of replicas that are wanted and run, without reports that are too old.
    fn load(&self, job: JobId, wanted: u32, metric: &str) -> Load {
        let since = |gang: &GangId| match self.record(*gang)?.phase {
            Phase::Running { since } => Some((*gang, since)),
            _ => None,
        };
        let wanted = self.by_number(job).into_iter().take(wanted as usize);
        let mut load = Load { sum_milli: 0, running: 0, silent: 0 };
        for (gang, since) in wanted.filter_map(|gang| since(&gang)) {
            let is_known = |said: &&Metric| said.at >= since && said.at.plus(METRIC_MS_MAX) >= self.now;
            load.running += 1;
            match self.noted.metric(gang, metric).filter(is_known) {
                Some(said) => load.sum_milli += u128::from(u64::try_from(said.value_milli).unwrap_or(0)),
                None => load.silent += 1,
            }
        }
        load
    }

    /// All processes of a gang ended by themselves, with success. For a replica, which is to serve, that is a failure.
    pub(super) fn ended_well(&mut self, gang: GangId, out: &mut Outcome) {
        if self.job(gang.job).is_none_or(|job| job.turn.service.is_none()) {
            return self.finish(gang, Ending::Succeeded, out);
        }
        let (class, code) = (FailureClass::UserCode, Some(0));
        let detail = "a service replica must keep running, and all of its processes ended".to_owned();
        let cause = StopCause::Failure { class, rank: None, code, detail };
        let attempt = self.record(gang).map_or(0, |record| record.attempt);
        out.changes.push(Change::GangStopping { gang, attempt, cause: cause.clone() });
        self.close(gang, cause, out);
    }
}

impl Ledger {
    /// Records that a session was used.
    pub(super) fn observe_session(&mut self, observed: &Session, out: &mut Outcome) {
        if self.job(observed.job).is_none_or(|job| job.policy.idle_limit_ms.is_none()) {
            return refuse(out, format!("use of job {}", observed.job), "no such session");
        }
        let used_at = self.serving.sessions.entry(observed.job).or_default();
        *used_at = observed.used_at.min(self.now).max(*used_at);
        for gang in self.gangs_of(observed.job) {
            self.retime(gang);
        }
    }

    /// When a session was last used, since it runs.
    pub(crate) fn used_at(&self, job: JobId) -> Option<Timestamp> {
        self.serving.sessions.get(&job).copied()
    }

    /// When a running session ends, if it is not used.
    pub(super) fn idle_at(&self, gang: GangId, since: Timestamp) -> Option<Timestamp> {
        let limit_ms = self.job(gang.job)?.policy.idle_limit_ms?;
        Some(self.used_at(gang.job).unwrap_or_default().max(since).plus(limit_ms))
    }

    /// Ends a session that was not used for too long. Returns whether it did.
    pub(super) fn end_idle(&mut self, gang: GangId, since: Timestamp, out: &mut Outcome) -> bool {
        let is_idle = self.idle_at(gang, since).is_some_and(|at| at <= self.now);
        if is_idle {
            self.begin_stop(gang, StopCause::IdleLimit, out);
        }
        is_idle
    }
}
