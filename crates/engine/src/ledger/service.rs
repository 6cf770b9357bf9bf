//! Services: how many replicas are wanted, which of them rest, and what their metric says of that. And sessions: when
//! somebody used them last.

use std::collections::BTreeMap;

use phalanx_model::later::Metric;
use phalanx_model::{
    Change, Ending, FailureClass, GangId, Input, Job, JobId, Look, Outcome, Phase, Reason, Replicas, Service,
    Session, StopCause, Target, Timestamp,
};

use super::Ledger;
use super::apply::refuse;

/// A metric that is older than this is not known any more: a replica that tells every half minute may miss three times.
const METRIC_MS_MAX: u64 = 2 * 60_000;
/// So much above or below the target nothing changes. The tolerance of the Horizontal Pod Autoscaler.
const TOLERANCE_PERCENT: u128 = 10;

/// What was told of services and sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct Serving {
    services: BTreeMap<JobId, Service>,
    sessions: BTreeMap<JobId, Timestamp>,
}

impl Serving {
    /// A job that was submitted begins with its minimum.
    pub(super) fn begin(&mut self, job: &Job, now: Timestamp) {
        if let Some(service) = &job.turn.service {
            let looks = first_look(service, service.min, now);
            self.services.insert(job.id, Service { job: job.id, replicas: service.min, looks });
        }
    }

    pub(super) fn forget(&mut self, job: JobId) {
        self.services.remove(&job);
        self.sessions.remove(&job);
    }

    /// What is known of a job, which is listed anew.
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

/// What the replicas that run said of a metric, in thousandths of its unit.
struct Load {
    sum_milli: u128,
    /// Replicas that run, and those of them that said nothing.
    running: u32,
    silent: u32,
}

impl Load {
    /// So many replicas have the target each, on average: `ceil(sum / target)`, the formula of the Horizontal Pod
    /// Autoscaler. As it does, those that run and say nothing are taken to have nothing where more would be needed, and
    /// their target where fewer would do; those that wait have nothing. So nobody's silence changes anything.
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

/// Where a metric decides, what was wanted at first counts as what was needed.
fn first_look(service: &Replicas, replicas: u32, at: Timestamp) -> Vec<Look> {
    service.target.iter().map(|_| Look { at, replicas }).collect()
}

/// Adds a look. What was needed at most while things settle stands first.
fn look(looks: &mut Vec<Look>, replicas: u32, now: Timestamp, settle_ms: u64) {
    looks.retain(|look| look.replicas > replicas && look.at.plus(settle_ms) > now);
    looks.push(Look { at: now, replicas });
}

impl Ledger {
    /// How many replicas of a job are wanted; none of one that is no service.
    pub(crate) fn replicas_of(&self, job: &Job) -> Option<u32> {
        let service = job.turn.service.as_ref()?;
        Some(self.serving.services.get(&job.id).map_or(service.min, |told| told.replicas))
    }

    /// Whether as many as may run stand before this replica. Those that have ended do not count.
    pub(super) fn rests(&self, job: &Job, gang: GangId) -> Option<Reason> {
        let (service, replicas) = (job.turn.service.as_ref()?, self.replicas_of(job)?);
        let all = self.active.range(job.id.gang(0)..=job.id.gang(u16::MAX));
        let before = all.filter(|other| service.number(**other) < service.number(gang)).count();
        (before >= self.allowed(job, replicas)).then_some(Reason::ScaledIn { replicas })
    }

    /// One has ended: another may stand in.
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

    /// Somebody says how many are wanted.
    pub(super) fn observe_service(&mut self, told: &Service, out: &mut Outcome) {
        let what = || format!("replicas of job {}", told.job);
        let Some(job) = self.job(told.job) else { return refuse(out, what(), "no such job") };
        let gangs = job.gangs.len();
        match &job.turn.service {
            None => refuse(out, what(), "the job is not a service"),
            Some(service) if !(service.min..=service.most(gangs)).contains(&told.replicas) => {
                let (min, most) = (service.min, service.most(gangs));
                let why =
                    format!("the service has {min} to {most} replicas, and {} were requested", told.replicas);
                refuse(out, what(), &why);
            }
            Some(service) => {
                let begun = || first_look(service, told.replicas, self.now);
                let looks = if told.looks.is_empty() { begun() } else { told.looks.clone() };
                self.scale(Service { looks, ..told.clone() }, None, out);
            }
        }
    }

    /// From now on so many are wanted: the others stop, the highest numbers among them, and rest.
    fn scale(&mut self, to: Service, load_milli: Option<u64>, out: &mut Outcome) {
        let (job, replicas) = (to.job, to.replicas);
        let before = self.serving.services.insert(job, to).map(|service| service.replicas);
        if before == Some(replicas) {
            return;
        }
        // One that is listed anew is no news.
        let change = before.map(|before| Change::ServiceScaled { job, before, replicas, load_milli });
        out.changes.extend(change);
        self.evicted.clear();
        self.rest_beyond(job, out);
    }

    /// Somebody measured something. Of the metric that a service is scaled by, it says how many replicas are needed: more
    /// are wanted at once, fewer when that was so for a while.
    pub(super) fn observe_metric(&mut self, metric: &Metric, out: &mut Outcome) {
        let subject = || format!("metric {} of gang {}", metric.name, metric.gang);
        // Said too late, it would be kept for ever.
        if self.record(metric.gang).is_none() {
            return refuse(out, subject(), "no such gang");
        }
        if let Err(why) = self.noted.note(&Input::MetricObserved { metric: metric.clone() }) {
            return refuse(out, subject(), &why);
        }
        let Some(job) = self.job(metric.gang.job) else { return };
        // One that is listed anew is told of later.
        let known = self.serving.services.get(&job.id).cloned();
        let Some((service, mut told)) = job.turn.service.as_ref().zip(known) else { return };
        let Some(target) = service.target.as_ref().filter(|target| target.metric == metric.name) else {
            return;
        };
        let load = self.load(job.id, told.replicas, &target.metric);
        let most = service.most(self.gangs_of(job.id).len()).max(service.min);
        let needed = load.replicas(told.replicas, target).clamp(service.min, most);
        look(&mut told.looks, needed, self.now, target.settle_ms);
        told.replicas = told.looks.first().map_or(needed, |look| look.replicas);
        let load_milli = u64::try_from(load.sum_milli).unwrap_or(u64::MAX);
        self.scale(told, Some(load_milli), out);
    }

    /// What the replicas that are wanted and run said last, where that is not too old.
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
    /// Somebody used a session.
    pub(super) fn observe_session(&mut self, told: &Session, out: &mut Outcome) {
        if self.job(told.job).is_none_or(|job| job.policy.idle_limit_ms.is_none()) {
            return refuse(out, format!("use of job {}", told.job), "no such session");
        }
        let used_at = self.serving.sessions.entry(told.job).or_default();
        *used_at = told.used_at.min(self.now).max(*used_at);
        for gang in self.gangs_of(told.job) {
            self.retime(gang);
        }
    }

    /// When somebody used a session last, since it runs.
    pub(crate) fn used_at(&self, job: JobId) -> Option<Timestamp> {
        self.serving.sessions.get(&job).copied()
    }

    /// When a session that runs ends, if nobody uses it.
    pub(super) fn idle_at(&self, gang: GangId, since: Timestamp) -> Option<Timestamp> {
        let limit_ms = self.job(gang.job)?.policy.idle_limit_ms?;
        Some(self.used_at(gang.job).unwrap_or_default().max(since).plus(limit_ms))
    }

    /// Ends a session that nobody used for too long. Whether it was.
    pub(super) fn end_idle(&mut self, gang: GangId, since: Timestamp, out: &mut Outcome) -> bool {
        let is_idle = self.idle_at(gang, since).is_some_and(|at| at <= self.now);
        if is_idle {
            self.begin_stop(gang, StopCause::IdleLimit, out);
        }
        is_idle
    }
}
