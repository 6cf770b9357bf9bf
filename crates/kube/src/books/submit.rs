//! A gang as a job of the engine: when it is handed in, what it asks for, and how it is told after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{
    FailureClass, Gang as EngineGang, GangId, GangRecord, Input, Job, JobId, JobName, LevelName, MemberId,
    MemberRecord, MemberState, Owner, Phase, Placement, Policy, Preempt, PreemptMode, Program, QueueName,
    Retry, Role, RoleName, Segment, Slot, Stop, Timestamp, Topology, Turn,
};

use super::gang::{Gang, Member, Run, Seat, Submitted};
use super::pods::{Note, State};
use super::sets::More;
use super::{Books, needs};
use crate::gang::{GangKey, GangSpec, LevelRef, Source};
use crate::judge::Requirements;

/// Different requests among the members of one gang: what an engine takes as roles.
const REQUESTS_MAX: usize = 16;

/// The engine's gang of a job: here every job has one.
pub(super) const fn gang_of(job: JobId) -> GangId {
    GangId { job, index: 0 }
}

impl Books {
    /// Looks at a gang again: hands it in where it has become whole, holds it where it no longer is, and lets it go where
    /// nothing of it is left.
    pub(super) fn hand_in(&mut self, now: Timestamp, key: &GangKey, facts: &mut Vec<Input>) {
        let Some(gang) = self.gangs.get(key) else { return };
        if gang.job.is_some() {
            return self.keep_up(key, facts);
        }
        if gang.pods.is_empty() && !self.is_resumable(key) {
            self.gangs.remove(key);
            return;
        }
        let spec = match self.spec(key) {
            Ok(spec) => spec,
            Err(why) => return self.wait(key, why.into()),
        };
        let is_over = |pod: &super::Pod| pod.known.is_over() || pod.known.is_going;
        if !gang.pods.is_empty() && gang.pods.values().all(is_over) {
            return;
        }
        let seats = match gang.seats(spec.as_ref()) {
            Ok(seats) => seats,
            Err(why) => return self.wait(key, why),
        };
        match self.job(now, key, spec.as_ref(), seats) {
            Ok((job, submitted)) => self.submit(key, job, submitted, facts),
            Err(why) => self.wait(key, why.into()),
        }
    }

    fn wait(&mut self, key: &GangKey, why: Arc<str>) {
        self.refused.insert(key.clone());
        let Some(gang) = self.gangs.get_mut(key).filter(|gang| gang.waits.as_ref() != Some(&why)) else {
            return;
        };
        gang.waits = Some(Arc::clone(&why));
        let pods: Vec<_> = gang.pods.keys().filter_map(|name| gang.pod_ref(name)).collect();
        if !pods.is_empty() {
            self.calls.push(super::Call::Explain { pods, message: why });
        }
    }

    /// A gang that the engine has: its job is held while pods are missing, and cancelled where nothing is left of it.
    fn keep_up(&mut self, key: &GangKey, facts: &mut Vec<Input>) {
        let is_gone = self.is_gone(key);
        let Some(submitted) = self.gangs.get_mut(key).and_then(|gang| gang.job.as_mut()) else { return };
        let job = submitted.id;
        if is_gone && !std::mem::replace(&mut submitted.is_cancelled, true) {
            facts.push(Input::CancelRequested { job, by: "its pods are gone".to_owned() });
        }
        if is_gone || submitted.run.is_some() {
            return;
        }
        let can_start = submitted.is_complete() || self.is_resumable(key);
        let Some(submitted) = self.gangs.get_mut(key).and_then(|gang| gang.job.as_mut()) else { return };
        if can_start == submitted.is_held {
            submitted.is_held = !can_start;
            let by = "pods are missing".to_owned();
            facts.push(if can_start { Input::JobReleased { job, by } } else { Input::JobHeld { job, by } });
        }
    }

    /// Whether nothing is left that could make it run: no pod, and nobody who makes some.
    fn is_gone(&self, key: &GangKey) -> bool {
        let has_pods = self.gangs.get(key).is_some_and(|gang| !gang.pods.is_empty());
        !has_pods && !self.makes_pods(key)
    }

    /// Whether somebody makes pods of it, or makes them again.
    pub(super) fn makes_pods(&self, key: &GangKey) -> bool {
        self.told(key).is_some_and(|told| told.specs.is_ok() && !told.is_over)
    }

    /// Whether its pods come once its owner is let go on. One that its user suspended stays so.
    pub(super) fn is_resumable(&self, key: &GangKey) -> bool {
        let is_suspended =
            matches!(self.spec(key), Ok(Some(spec)) if spec.is_suspended && spec.suspend.is_some());
        let Some(told) = self.told(key).filter(|_| is_suspended) else { return false };
        let above = told.above.as_ref().and_then(|above| self.above.get(above));
        told.is_resumable || above.is_some_and(|above| above.is_resumable)
    }

    fn submit(&mut self, key: &GangKey, job: Job, mut submitted: Submitted, facts: &mut Vec<Input>) {
        let Some(gang) = self.gangs.get_mut(key) else { return };
        gang.waits = None;
        self.jobs.insert(job.id, key.clone());
        match restored(gang, &submitted.seats) {
            Some((attempt, placement, ready_by)) => {
                let run = Run {
                    attempt,
                    members: vec![Member::Placed; submitted.seats.len()],
                    placement,
                    ready_by,
                    stops: None,
                    has_begun: true,
                    is_released: true,
                };
                let record = record(&job, &run, gang, &submitted.seats);
                for slot in &run.placement.slots {
                    self.nodes.ours(&slot.node, slot.devices, true);
                }
                submitted.run = Some(run);
                facts.push(Input::JobObserved { job: Box::new(job), gangs: vec![record] });
            }
            None => facts.push(Input::JobSubmitted { job: Box::new(job) }),
        }
        let is_restored = submitted.run.is_some();
        gang.job = Some(submitted);
        self.find_claims(key, is_restored);
    }

    /// The pods that exist of gangs that hold places.
    pub(super) fn members(&mut self) -> Vec<Input> {
        let mut found = Vec::new();
        for gang in self.gangs.values_mut() {
            let Some(submitted) = &mut gang.job else { continue };
            let Some(run) = &mut submitted.run else { continue };
            for ((rank, seat), member) in (0..).zip(&submitted.seats).zip(&mut run.members) {
                let pod = seat.pod.as_ref().and_then(|name| gang.pods.get(name));
                let Some(pod) = pod.filter(|pod| pod.known.node.is_some()) else { continue };
                let id = MemberId { gang: gang_of(submitted.id), attempt: run.attempt, rank };
                let (now, state) = match &pod.known.state {
                    State::Over(exit) => (Member::Exited, MemberState::Exited(exit.clone())),
                    State::Running => (Member::Running, MemberState::Running),
                    State::Waiting if submitted.seats.len() == 1 => (Member::Running, MemberState::Running),
                    State::Waiting => (Member::Bound, MemberState::Ready),
                };
                *member = now;
                found.push(Input::MemberObserved { member: id, state });
            }
        }
        found
    }

    fn job(
        &mut self,
        now: Timestamp,
        key: &GangKey,
        spec: Option<&GangSpec>,
        seats: Vec<Seat>,
    ) -> Result<(Job, Submitted), String> {
        let Some(gang) = self.gangs.get(key) else { return Err("it is gone".to_owned()) };
        let first = gang.pods.values().next();
        let priority = gang.pods.values().map(|pod| pod.known.priority).max().unwrap_or_default();
        let created = if first.is_some() { gang.created() } else { now };
        let is_alone = key.source == Source::Pod;
        let queue = self.queue(key, spec)?;
        let class = self.sharing.classes.of(priority)?;
        let mut seats = seats;
        for seat in &mut seats {
            seat.more = self.more(key, seat)?;
        }
        self.add_claims(key, spec, &mut seats)?;
        let seats = by_request(seats)?;
        let topology = match spec {
            Some(spec) => self.topology(spec)?,
            None => Topology::default(),
        };
        let mut groups = groups(&seats).into_iter();
        let Some((main, size)) = groups.next() else { return Err("it has no pods".to_owned()) };
        let sets = std::iter::once(&main).chain(groups.as_slice().iter().map(|(ask, _)| ask));
        let sets = sets.map(|(pod, more)| needs::wanted(pod, more)).collect();
        let engine_gang = EngineGang {
            size,
            min: size,
            max: size,
            needs: needs::needs(&main.0, &main.1, &mut self.nodes),
            roles: groups
                .zip(1..)
                .map(|((ask, size), at)| self.role(at, &ask, size))
                .collect::<Result<_, _>>()?,
            members_per_node: None,
            topology,
            traffic: None,
            grid: Vec::new(),
            program: Program::default(),
        };
        let id = JobId(self.next_job);
        self.next_job += 1;
        let job = Job {
            id,
            name: name_of(key)?,
            key: None,
            owner: Owner { uid: 0, gid: 0, name: key.namespace.to_string() },
            queue,
            priority: 0,
            submitted_at: Timestamp(created.0.min(now.0)),
            gangs: vec![engine_gang],
            policy: self.policy(spec, is_alone),
            turn: Turn { class: Some(class), ..Turn::default() },
        };
        Ok((job, Submitted { id, seats, sets, is_held: false, is_cancelled: false, run: None }))
    }

    /// What the pod of a rank asks beside its requirements; or what it waits for.
    fn more(&mut self, _key: &GangKey, _seat: &Seat) -> Result<More, String> {
        Ok(More::default())
    }

    fn role(&mut self, at: u32, (pod, more): &Ask, size: u32) -> Result<Role, String> {
        let name = RoleName::new(format!("role-{at}")).map_err(|bad| bad.to_string())?;
        Ok(Role { name, size, needs: needs::needs(pod, more, &mut self.nodes), program: None })
    }

    /// The queue that it names, or that of its namespace.
    fn queue(&self, key: &GangKey, spec: Option<&GangSpec>) -> Result<QueueName, String> {
        let asked = spec.and_then(|spec| spec.queue.as_deref());
        self.sharing.queue_of(asked, &key.namespace, &self.options.queue)
    }

    /// The levels that its rules mean.
    fn topology(&self, spec: &GangSpec) -> Result<Topology, String> {
        let level = |asked: &LevelRef| -> Result<LevelName, String> { self.nodes.level(asked) };
        let rule = match spec.roles.as_slice() {
            [only] if spec.topology.is_empty() => &only.topology,
            roles => {
                if let Some(role) = roles.iter().find(|role| !role.topology.is_empty() && roles.len() > 1) {
                    return Err(format!("not supported: rules of topology for {} alone", role.name));
                }
                &spec.topology
            }
        };
        if rule.segments.iter().any(|segment| segment.is_exclusive) {
            return Err("not supported: segments with a domain for themselves alone".to_owned());
        }
        if let Some(exclusive) = rule.exclusive.as_ref() {
            return Err(format!("not supported: a {exclusive} for itself alone"));
        }
        let mut segments = Vec::new();
        for segment in rule.segments.iter().filter(|segment| segment.is_required) {
            segments.push(Segment { size: segment.size, level: level(&segment.level)? });
        }
        Ok(Topology {
            required: rule.required.as_ref().map(level).transpose()?,
            preferred: rule.preferred.as_ref().map(level).transpose()?,
            segments,
            ..Topology::default()
        })
    }

    fn policy(&self, spec: Option<&GangSpec>, is_alone: bool) -> Policy {
        const FOR_EVER: u32 = u32::MAX;
        let time_limit_s = spec.and_then(|spec| spec.time_limit_s);
        // A pod by itself does not come again: whoever made it makes another, with another name.
        let mode = if is_alone { PreemptMode::Cancel } else { PreemptMode::Requeue };
        let retry_on = [
            FailureClass::StartUp,
            FailureClass::Node,
            FailureClass::Infrastructure,
            FailureClass::Preemption,
        ];
        let retry = Retry {
            max: if is_alone { 0 } else { FOR_EVER },
            on: retry_on.to_vec(),
            ..Policy::default().retry
        };
        Policy {
            time_limit_ms: time_limit_s.and_then(|s| u64::try_from(s).ok()).map(|s| s.saturating_mul(1_000)),
            start_deadline_ms: self.options.ready_ms,
            stop: Stop { advisory: None, ..Policy::default().stop },
            retry,
            preempt: Preempt { mode, is_pinned: false },
            ..Policy::default()
        }
    }
}

/// What ranks are one request by.
type Ask = (Arc<Requirements>, More);

/// Ranks that need the same stand together, in the order in which the first of them stood.
fn by_request(seats: Vec<Seat>) -> Result<Vec<Seat>, String> {
    let mut order: BTreeMap<(&Requirements, &More), usize> = BTreeMap::new();
    for seat in &seats {
        let next = order.len();
        order.entry((&seat.requirements, &seat.more)).or_insert(next);
    }
    if order.len() > REQUESTS_MAX {
        return Err(format!(
            "its pods ask for {} different things, at most {REQUESTS_MAX} are possible",
            order.len()
        ));
    }
    let places: Vec<Option<usize>> =
        seats.iter().map(|seat| order.get(&(&*seat.requirements, &seat.more)).copied()).collect();
    let mut placed: Vec<(Option<usize>, Seat)> = places.into_iter().zip(seats).collect();
    placed.sort_by_key(|(place, _)| *place);
    Ok(placed.into_iter().map(|(_, seat)| seat).collect())
}

fn groups(seats: &[Seat]) -> Vec<(Ask, u32)> {
    let mut groups: Vec<(Ask, u32)> = Vec::new();
    for seat in seats {
        match groups.last_mut() {
            Some(((pod, more), count)) if *pod == seat.requirements && *more == seat.more => *count += 1,
            _ => groups.push(((Arc::clone(&seat.requirements), seat.more.clone()), 1)),
        }
    }
    groups
}

fn name_of(key: &GangKey) -> Result<JobName, String> {
    let part = key.part.as_ref().map_or(String::new(), |part| format!("/{part}"));
    JobName::new(format!("{}/{}{part}", key.namespace, key.name)).map_err(|bad| format!("{key}: {bad}"))
}

/// Where a gang is that was started before: what its bound pods say, if they agree.
fn restored(gang: &Gang, seats: &[Seat]) -> Option<(u32, Placement, Timestamp)> {
    let bound = seats.iter().filter_map(|seat| gang.pods.get(seat.pod.as_ref()?));
    let bound: Vec<_> = bound.filter(|pod| pod.known.node.is_some()).collect();
    let newest = bound.iter().filter_map(|pod| pod.known.noted.as_ref()).max_by_key(|note| note.attempt)?;
    let attempt = newest.attempt;
    let level = LevelName::new("cluster").ok()?;
    let told = bound.iter().filter_map(|pod| pod.known.noted.as_ref()).find_map(Note::slots);
    let mut slots: Vec<Option<Slot>> = vec![None; seats.len()];
    for slot in told.into_iter().flatten() {
        let free = slots.get_mut(slot.rank as usize)?;
        *free = Some(slot);
    }
    for pod in &bound {
        let (Some(note), Some(node)) = (&pod.known.noted, &pod.known.node) else { continue };
        if let Some(free) = slots.get_mut(note.rank as usize) {
            *free = Some(Slot { rank: note.rank, node: node.clone(), devices: note.devices, part: None });
        }
    }
    let slots: Vec<Slot> = slots.into_iter().collect::<Option<_>>()?;
    Some((attempt, Placement { slots, level }, newest.ready_by.unwrap_or(Timestamp(0))))
}

/// The same as the engine keeps it.
fn record(job: &Job, run: &Run, gang: &Gang, seats: &[Seat]) -> GangRecord {
    let id = gang_of(job.id);
    let is_up = |seat: &Seat| {
        let pod = seat.pod.as_ref().and_then(|name| gang.pods.get(name));
        pod.is_some_and(|pod| {
            let runs = matches!(pod.known.state, State::Running | State::Over(_));
            pod.known.node.is_some() && (runs || seats.len() == 1)
        })
    };
    let since = job.submitted_at;
    let phase = match seats.iter().all(|seat| is_up(seat) || seat.is_late) {
        true => Phase::Running { since },
        false => Phase::Starting { deadline: run.ready_by },
    };
    GangRecord {
        phase,
        attempt: run.attempt,
        first_started_at: Some(since),
        placement: Some(run.placement.clone()),
        members: seats.iter().map(|_| MemberRecord { state: MemberState::Requested }).collect(),
        ..GangRecord::pending(id, since)
    }
}
