//! A gang as a job of the engine: when it is handed in, what it asks for, and how it is told after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::ids::NAME_BYTES_MAX;
use phalanx_model::{
    Advisory, FailureClass, Gang as EngineGang, GangId, Input, Job, JobId, JobName, Owner, Policy, Preempt,
    PreemptMode, Program, QueueName, ResourceName, Retry, Role, RoleName, Segment, Stop, Timestamp, Topology,
    Turn,
};

use super::recovery::Before;
use super::{recovery, replicas};
use crate::cluster::needs;
use crate::cluster::node_sets::{Condition, More, Wanted};
use crate::cluster::nodes::NODE;
use crate::cluster::priorities::Priority;
use crate::digest::hex;
use crate::filter::Requirements;
use crate::gang::Lifecycle;
use crate::gang::division::SEARCHED_LATER;
use crate::gang::report::waits::Waiting;
use crate::gang::state::{Gang, Intent, Pod, Seat, Submitted};
use crate::messages::WaitsFor;
use crate::recognise::{GangKey, GangSpec, LevelRef, RoleSpec, Source};

/// Different requests among the members of one gang: what an engine takes as members of their own and roles.
const REQUESTS_MAX: usize = 128;

/// What tells names apart that were cut.
const DIGEST_BYTES: usize = 4;

/// By its user, or by us and not to be seen yet what for.
const OWNER_SUSPENDED: &str = "its owner is suspended";

/// The engine's gang of a job: here every job has one.
pub(in crate::gang) const fn gang_of(job: JobId) -> GangId {
    GangId { job, index: 0 }
}

impl Lifecycle {
    /// Looks at a gang again: hands it in where it has become whole, holds it where it no longer is, and lets it go where
    /// nothing of it is left.
    pub(in crate::gang) fn look_at(&mut self, now: Timestamp, key: &GangKey, facts: &mut Vec<Input>) {
        // Before it may be forgotten, and after it may have got its places back.
        self.count_strays(key);
        let had_job = self.gangs.get(key).is_some_and(|gang| gang.job.is_some());
        self.end_vacant(now, key);
        self.seat_waiting(now, key);
        self.hand_in(now, key, facts);
        for newcomer in self.let_join(key) {
            self.hand_in(now, &newcomer, facts);
        }
        if self.count_strays(key) && !had_job && self.gangs.get(key).is_some_and(|gang| gang.job.is_some()) {
            self.keep_up(key, facts);
        }
        self.tell_volcano(key);
        self.judge_budgets_of(key, facts);
    }

    fn hand_in(&mut self, now: Timestamp, key: &GangKey, facts: &mut Vec<Input>) {
        let Some(gang) = self.gangs.get(key) else { return };
        if gang.job.is_some() {
            return self.keep_up(key, facts);
        }
        if gang.pods.is_empty() && !self.is_resumable(key) {
            self.provision(key, None);
            self.forget_joiner(key);
            self.has_owner(key, None);
            self.constraints.searches.forget(key);
            self.gangs.remove(key);
            return;
        }
        let spec = match self.spec(key) {
            Ok(spec) => spec,
            Err(why) => return self.wait(key, WaitsFor::CHANGE, why.into()),
        };
        let is_over = |pod: &Pod| pod.known.is_over() || pod.known.is_going;
        if !gang.pods.is_empty() && gang.pods.values().all(is_over) && !self.is_resumable(key) {
            return;
        }
        let before = recovery::before(gang);
        let again = before.and_then(|before| Some((recovery::seats(gang, spec.as_ref(), &before)?, before)));
        let (seats, before) = match again {
            Some((seats, before)) => (Ok(seats), Some(before)),
            None => (gang.seats(spec.as_ref()), None),
        };
        let is_barred = gang.barred().is_some();
        let is_short = seats.is_err();
        if before.is_none() && self.is_suspended(key) && !self.is_resumable(key) {
            return self.wait(key, WaitsFor::PODS, OWNER_SUSPENDED.into());
        }
        if before.is_none()
            && let Some(why) = self.turned_down(now, key)
        {
            return self.wait(key, WaitsFor::Nodes, why);
        }
        let is_again = before.is_some();
        let job =
            seats.and_then(|seats| self.job(now, key, spec.as_ref(), seats, is_again).map_err(Into::into));
        match job {
            Ok((job, submitted)) => self.submit(now, key, job, submitted, before, facts),
            // Why it waits is known from the last search.
            Err(why) if *why == *SEARCHED_LATER => {
                self.refused.insert(key.clone());
                if self.gangs.get(key).is_some_and(|gang| gang.waits.is_none()) {
                    self.wait(key, WaitsFor::TURN, why);
                }
            }
            Err(why) => {
                let behind = self.constraints.serial.before(key).map(|first| self.waits_behind(first));
                let waits_for = match (is_barred, is_short, behind) {
                    (true, ..) => WaitsFor::CHANGE,
                    (_, true, _) => WaitsFor::PODS,
                    (.., Some(behind)) => behind,
                    _ if self.stands_nowhere(key, spec.as_ref()) => WaitsFor::CHANGE,
                    _ => WaitsFor::Nodes,
                };
                self.wait(key, waits_for, why);
                // Its turn comes, whatever becomes of nodes.
                if behind.is_some() {
                    self.refused.remove(key);
                }
            }
        }
    }

    /// Hands in those whose turn has come.
    pub(in crate::gang) fn advance_lines(&mut self, now: Timestamp, facts: &mut Vec<Input>) {
        while let Some(key) = self.constraints.serial.next() {
            self.look_at(now, &key, facts);
        }
    }

    fn wait(&mut self, key: &GangKey, waits_for: WaitsFor, why: Arc<str>) {
        self.refused.insert(key.clone());
        let waits = Some(Waiting { what: waits_for, why: Arc::clone(&why) });
        let Some(gang) = self.gangs.get_mut(key).filter(|gang| gang.waits != waits) else { return };
        gang.waits = waits;
        let pods = gang.unbound();
        self.tell_groups(key, Some(waits_for), &why);
        self.say(key, &pods, waits_for, why);
        self.provision(key, Some(waits_for));
    }

    /// A gang that the engine has: its job is held while pods are missing, and cancelled where nothing is left of it.
    fn keep_up(&mut self, key: &GangKey, facts: &mut Vec<Input>) {
        let is_gone = self.is_gone(key);
        let Some(submitted) = self.gangs.get_mut(key).and_then(|gang| gang.job.as_mut()) else { return };
        let (job, has_run) = (submitted.id, submitted.run.is_some());
        if is_gone && submitted.cancel() {
            facts.push(Input::CancelRequested { job, by: "its pods are gone".to_owned() });
        }
        self.end_with_owner(key);
        let has_strays = self.take_back_strays(key);
        if is_gone || has_run {
            return;
        }
        let through = self.through(key);
        let Some(submitted) = self.gangs.get(key).and_then(|gang| gang.job.as_ref()) else { return };
        let is_paused = self.is_suspended(key);
        // The pods of a suspended owner are on their way out, or not there yet.
        let may_come = if is_paused { self.is_resumable(key) } else { submitted.is_complete_but(&through) };
        let can_start = !has_strays && may_come;
        let is_another = match can_start {
            true if self.has_ended_in_part(key) => Some("some of its pods have ended"),
            true if self.has_moved_away(key) => Some("the gang that it joined is elsewhere"),
            true if self.asks_otherwise(key)
                || self.asks_for_devices(key)
                || self.is_offered_otherwise(key) =>
            {
                Some("what its pods ask of nodes is another now")
            }
            _ => None,
        };
        if let Some(by) = is_another {
            let Some(submitted) = self.gangs.get_mut(key).and_then(|gang| gang.job.as_mut()) else { return };
            if submitted.cancel() {
                facts.push(Input::CancelRequested { job, by: by.to_owned() });
            }
            return;
        }
        let Some(submitted) = self.gangs.get_mut(key).and_then(|gang| gang.job.as_mut()) else { return };
        let by = || if is_paused { OWNER_SUSPENDED } else { "pods are missing" }.to_owned();
        match (submitted.intent, can_start) {
            (Intent::Hold, true) => {
                submitted.intent = Intent::Start;
                facts.push(Input::JobReleased { job, by: by() });
            }
            (Intent::Start, false) => {
                submitted.intent = Intent::Hold;
                facts.push(Input::JobHeld { job, by: by() });
            }
            _ => {}
        }
    }

    /// Whether nothing is left that could make it run: no pod, and nobody who makes some.
    fn is_gone(&self, key: &GangKey) -> bool {
        let has_pods = self.gangs.get(key).is_some_and(|gang| !gang.pods.is_empty());
        !has_pods && !self.makes_pods(key)
    }

    fn submit(
        &mut self,
        now: Timestamp,
        key: &GangKey,
        job: Job,
        mut submitted: Submitted,
        before: Option<Before>,
        facts: &mut Vec<Input>,
    ) {
        self.asks(now, key, &submitted.seats);
        // What is written of a place does not say that it is a part of a device.
        let has_parts = job.gangs.iter().any(|gang| gang.all_needs().any(|needs| needs.part.is_some()));
        let promised = if before.is_none() && !has_parts { self.promised(key, &job) } else { None };
        let Some(gang) = self.gangs.get_mut(key) else { return };
        gang.waits = None;
        self.jobs.insert(job.id, key.clone());
        match before.map(Before::run) {
            Some(mut run) => {
                if let Some(of_engine) = job.gangs.first() {
                    replicas::with_parts(&mut run.placement, of_engine);
                }
                let record = recovery::record(now, &job, &run, gang, &submitted.seats);
                for slot in &run.placement.slots {
                    self.cluster.nodes.ours(&slot.node, slot.devices, true);
                }
                submitted.run = Some(run);
                facts.push(Input::JobObserved { job: Box::new(job), gangs: vec![record] });
            }
            None => facts.push(match promised {
                Some(record) => Input::JobObserved { job: Box::new(job), gangs: vec![record] },
                None => Input::JobSubmitted { job: Box::new(job) },
            }),
        }
        let is_restored = submitted.run.is_some();
        let is_unbound = |name: &Arc<str>| gang.pods.get(name).is_some_and(|pod| pod.known.node.is_none());
        let is_late = |seat: &Seat| seat.is_late() && seat.pod.as_ref().is_some_and(is_unbound);
        let has_late = submitted.run.is_some() && submitted.seats.iter().any(is_late);
        gang.job = Some(submitted);
        if is_restored {
            self.provision(key, None);
        } else {
            self.tell_wishes(key);
            self.look_again_for_siblings(key);
        }
        self.find_claims(key, is_restored);
        // The engine orders no start of what runs: who came late is bound where its place was kept.
        if has_late {
            self.bind_if_complete(key);
        }
    }

    fn job(
        &mut self,
        now: Timestamp,
        key: &GangKey,
        spec: Option<&GangSpec>,
        seats: Vec<Seat>,
        is_again: bool,
    ) -> Result<(Job, Submitted), String> {
        let Some(gang) = self.gangs.get(key) else { return Err("it is gone".to_owned()) };
        let first = gang.pods.values().next();
        let priority = self.priority(gang, spec)?;
        let created = if first.is_some() { gang.created() } else { now };
        let is_alone = key.source == Source::Pod;
        let grace_ms = gang.grace_ms();
        let queue = self.queue(key, spec)?;
        let class = self.cluster.queues.classes.of(priority)?;
        let mut topology = match spec {
            Some(spec) => self.topology(spec)?,
            None => Topology::default(),
        };
        let (seats, line) = self.asked(key, spec, seats, is_again, &mut topology)?;
        // Where their own rules want them together, the engine looks for such a place.
        let is_open = topology.required.is_none() && seats.iter().all(|seat| seat.more.domain.is_none());
        if let Some(label) = self.shared_domain(key, &seats).filter(|_| is_open) {
            topology.required = self.cluster.nodes.level(&LevelRef::Label(label)).ok();
        }
        topology.near = if is_again { Vec::new() } else { self.near(key) };
        let near = topology.near.clone();
        let name = name_of(key)?;
        let bound = |seat: &Seat| spec.and_then(|spec| spec.role_bound(seat.role.as_deref()));
        let roles: Vec<Option<&RoleSpec>> = first_of_groups(&seats, spec).map(bound).collect();
        let groups = groups(&seats, spec);
        topology.together = together(&groups);
        let mut groups = groups.into_iter();
        let Some((main, size)) = groups.next() else { return Err("it has no pods".to_owned()) };
        if let Some(first) = line.as_ref().and_then(|line| self.constraints.serial.stand(line, created, key))
        {
            return Err(format!("{first} has the same rules between pods, and is placed before it"));
        }
        let asks = || std::iter::once(&main).chain(groups.as_slice().iter().map(|(ask, _)| ask));
        let mut sets: Vec<Wanted> = asks().map(|(pod, more)| needs::wanted(pod, more)).collect();
        let ports: BTreeSet<ResourceName> = asks().flat_map(|(pod, more)| needs::ports(pod, more)).collect();
        let mut segments = Vec::with_capacity(roles.len());
        let sizes = std::iter::once(size).chain(groups.as_slice().iter().map(|(_, size)| *size));
        for (size, role) in sizes.zip(&roles) {
            segments.push(match role.map(|role| self.segments_of(role, &seats, size)) {
                // What runs is counted, whatever became of its pods.
                Some(Err(_)) if is_again => Some(Vec::new()),
                segments => segments.transpose()?,
            });
        }
        let mut segments = segments.into_iter();
        if let Some(Some(of_main)) = segments.next() {
            topology.segments = of_main;
        }
        let mut others = Vec::with_capacity(roles.len());
        for ((at, (ask, size)), segments) in (1..).zip(groups).zip(segments) {
            others.push(self.role(at, &ask, size, segments.unwrap_or_default())?);
        }
        let mut engine_gang = EngineGang {
            size,
            min: size,
            max: size,
            needs: needs::needs(&main.0, &main.1, &mut self.cluster.nodes),
            roles: others,
            members_per_node: None,
            topology,
            traffic: None,
            grid: Vec::new(),
            program: Program::default(),
        };
        if near.is_empty() {
            let asked = || first_of_groups(&seats, spec).map(|seat| (&*seat.requirements, &seat.more));
            let nodes = &mut self.cluster.nodes;
            let plain = needs::prefer_plain(&mut engine_gang, asked(), nodes);
            sets.extend(needs::favour(&mut engine_gang, asked(), &plain, nodes));
            sets.extend(plain);
        }
        let policy = self.policy(spec, is_alone, grace_ms);
        let stop = policy.stop;
        ports.iter().for_each(|port| self.cluster.nodes.want_port(port));
        let id = self.number(key);
        let job = Job {
            id,
            name,
            key: None,
            owner: Owner { uid: 0, gid: 0, name: key.namespace.to_string() },
            queue,
            priority: 0,
            submitted_at: Timestamp(created.0.min(now.0)),
            gangs: vec![engine_gang],
            policy,
            turn: Turn { class: Some(class), ..Turn::default() },
        };
        let submitted = Submitted {
            id,
            seats,
            sets,
            ports,
            line,
            stop,
            near,
            is_protected: false,
            intent: Intent::Start,
            run: None,
        };
        Ok((job, submitted))
    }

    pub(super) fn number(&mut self, key: &GangKey) -> JobId {
        self.known_numbers.remove(key).unwrap_or_else(|| {
            let id = JobId(self.next_job);
            self.next_job += 1;
            id
        })
    }

    /// What the group says, or a label of its pods; otherwise the highest of its pods.
    pub(in crate::gang) fn priority(&self, gang: &Gang, spec: Option<&GangSpec>) -> Result<Priority, String> {
        let labelled = || gang.pods.values().find_map(|pod| pod.known.class.as_deref());
        let named = spec.and_then(|spec| spec.priority_class.as_deref()).or_else(labelled);
        let of_pods = || gang.pods.values().map(|pod| pod.known.priority).max().unwrap_or_default();
        let priority = match named.map(|name| self.cluster.priorities.of(name, of_pods())) {
            None => of_pods(),
            Some(Ok(priority)) => priority,
            // What runs is counted, whatever became of its class.
            Some(Err(_)) if gang.pods.values().any(|pod| pod.known.node.is_some()) => of_pods(),
            Some(Err(why)) => return Err(why),
        };
        let is_patient = priority.is_patient || spec.is_some_and(|spec| spec.is_patient);
        Ok(Priority { is_patient, ..priority })
    }

    /// What each rank asks, with ranks in the order of their requests; and the line in which a single pod stands. What all
    /// of them ask together is added to `topology`.
    fn asked(
        &mut self,
        key: &GangKey,
        spec: Option<&GangSpec>,
        mut seats: Vec<Seat>,
        is_again: bool,
        topology: &mut Topology,
    ) -> Result<(Vec<Seat>, Option<Condition>), String> {
        let is_alone = seats.len() == 1;
        let mut line = None;
        // What was started is not judged again, and keeps its ranks.
        if !is_again {
            line = self.ask_more(key, spec, &mut seats)?;
            self.deal_to_labels(key, spec, &mut seats)?;
            self.divide(key, spec, &mut seats, topology)?;
            for seat in seats.iter_mut().filter(|seat| seat.more.domain.is_some()) {
                (seat.more, _) = self.more(key, spec, seat)?;
            }
        }
        if self.add_claims(key, spec, &mut seats)? {
            topology.required = Some(self.cluster.nodes.level(&LevelRef::Name(NODE.to_owned()))?);
        }
        let is_of_role =
            |seat: &Seat| spec.is_some_and(|spec| spec.role_bound(seat.role.as_deref()).is_some());
        let is_divided = !topology.segments.is_empty()
            || seats.iter().any(|seat| seat.more.domain.is_some() || is_of_role(seat));
        if is_divided && seats.iter().any(|seat| seat.more.together.is_some()) {
            return Err(
                "not supported: some of its pods share a ResourceClaim that is not allocated, and it has required \
                 segments, roles with rules of their own, or pods that have to be in different domains"
                    .to_owned(),
            );
        }
        let mut seats = if is_again { seats } else { by_request(seats, spec)? };
        self.take_replicas(key, &mut seats);
        Ok((seats, line.filter(|_| is_alone)))
    }

    fn role(
        &mut self,
        at: u32,
        (pod, more): &Ask,
        size: u32,
        segments: Vec<Segment>,
    ) -> Result<Role, String> {
        let name = RoleName::new(format!("role-{at}")).map_err(|bad| bad.to_string())?;
        Ok(Role {
            name,
            size,
            needs: needs::needs(pod, more, &mut self.cluster.nodes),
            segments,
            program: None,
        })
    }

    /// Whether its queue or its class of priority is not there: whatever nodes come, it does not start.
    fn stands_nowhere(&self, key: &GangKey, spec: Option<&GangSpec>) -> bool {
        let Some(gang) = self.gangs.get(key) else { return false };
        self.queue(key, spec).is_err() || self.priority(gang, spec).is_err()
    }

    /// The queue that it names, or that of its namespace.
    fn queue(&self, key: &GangKey, spec: Option<&GangSpec>) -> Result<QueueName, String> {
        let asked = spec.and_then(|spec| spec.queue.as_ref());
        self.cluster.queues.queue_of(asked, &key.namespace, &self.options.queue)
    }

    fn policy(&self, spec: Option<&GangSpec>, is_alone: bool, grace_ms: u64) -> Policy {
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
        let usual = Policy::default().stop;
        let lead_ms = spec.and_then(|spec| u64::try_from(spec.checkpoint_grace_s?).ok());
        let stop = Stop {
            // The kubelet knows no signal but SIGTERM: pods are told by an annotation.
            advisory: lead_ms.map(|s| Advisory { signal: 0, lead_ms: s.saturating_mul(1_000) }),
            // Controllers have as long as usual, whatever pods say.
            grace_ms: grace_ms.max(usual.grace_ms),
        };
        Policy {
            time_limit_ms: time_limit_s.and_then(|s| u64::try_from(s).ok()).map(|s| s.saturating_mul(1_000)),
            start_deadline_ms: self.options.ready_ms,
            stop,
            retry,
            preempt: Preempt { mode, is_pinned: false, may_move: false },
            ..Policy::default()
        }
    }
}

/// What ranks are one request by.
type Ask = (Arc<Requirements>, More);

/// The role of a rank, where that is a request of its own.
fn role_of<'a>(seat: &Seat, spec: Option<&'a GangSpec>) -> Option<&'a str> {
    Some(&*spec?.role_bound(seat.role.as_deref())?.name)
}

/// Ranks that need the same stand together, in the order in which the first of them stood. Those of a role with rules of its own
/// are not taken together with others.
pub(in crate::gang) fn by_request(seats: Vec<Seat>, spec: Option<&GangSpec>) -> Result<Vec<Seat>, String> {
    let mut order: BTreeMap<(&Requirements, &More, Option<&str>), usize> = BTreeMap::new();
    for seat in &seats {
        let next = order.len();
        order.entry((&seat.requirements, &seat.more, role_of(seat, spec))).or_insert(next);
    }
    if order.len() > REQUESTS_MAX {
        return Err(format!(
            "its pods ask for {} different things, at most {REQUESTS_MAX} are possible",
            order.len()
        ));
    }
    let place = |seat: &Seat| order.get(&(&*seat.requirements, &seat.more, role_of(seat, spec))).copied();
    let places: Vec<Option<usize>> = seats.iter().map(place).collect();
    let mut placed: Vec<(Option<usize>, Seat)> = places.into_iter().zip(seats).collect();
    placed.sort_by_key(|(place, _)| *place);
    Ok(placed.into_iter().map(|(_, seat)| seat).collect())
}

fn is_one_request(a: &Seat, b: &Seat, spec: Option<&GangSpec>) -> bool {
    a.requirements == b.requirements && a.more == b.more && role_of(a, spec) == role_of(b, spec)
}

/// The requests in the order of ranks, with how many ranks each has.
fn groups(seats: &[Seat], spec: Option<&GangSpec>) -> Vec<(Ask, u32)> {
    let groups = seats.chunk_by(|a, b| is_one_request(a, b, spec));
    let group = |seats: &[Seat]| {
        let first = seats.first()?;
        let size = u32::try_from(seats.len()).unwrap_or(u32::MAX);
        Some(((Arc::clone(&first.requirements), first.more.clone()), size))
    };
    groups.filter_map(group).collect()
}

/// The first rank of each.
fn first_of_groups<'a>(
    seats: &'a [Seat],
    spec: Option<&'a GangSpec>,
) -> impl Iterator<Item = &'a Seat> + use<'a> {
    seats.chunk_by(move |a, b| is_one_request(a, b, spec)).filter_map(<[Seat]>::first)
}

/// Which of these have to be on one node, by their places.
fn together(groups: &[(Ask, u32)]) -> Vec<Vec<u32>> {
    let mut sets: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (at, ((_, more), _)) in (0..).zip(groups) {
        if let Some(set) = more.together {
            sets.entry(set).or_default().push(at);
        }
    }
    sets.into_values().collect()
}

/// As the engine takes names: those of gangs that were joined and of stages have other characters, and with its namespace a
/// name may be longer.
pub(super) fn name_of(key: &GangKey) -> Result<JobName, String> {
    let part = key.part.as_ref().map_or(String::new(), |part| format!("/{part}"));
    let named = format!("{}/{}{part}", key.namespace, key.name);
    let is_taken = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    let mut name: String = named.chars().map(|c| if is_taken(c) { c } else { '-' }).collect();
    if name.len() > NAME_BYTES_MAX {
        name.truncate(NAME_BYTES_MAX - 1 - 2 * DIGEST_BYTES);
        name = format!("{name}-{}", hex(named.as_bytes(), DIGEST_BYTES));
    }
    JobName::new(name).map_err(|bad| format!("{key}: {bad}"))
}

#[cfg(test)]
mod tests;
