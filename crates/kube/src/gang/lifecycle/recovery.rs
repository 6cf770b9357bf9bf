//! Gangs that were started before this process began: where they are, as their bound pods say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::{
    Exit, GangRecord, Input, Job, LevelName, MemberId, MemberRecord, MemberState, Phase, Placement, Slot,
    Timestamp,
};

use super::completed;
use super::submit::gang_of;
use crate::cluster::node_sets::More;
use crate::filter::Requirements;
use crate::gang::Lifecycle;
use crate::gang::pods::{Known, Note, State, Whole};
use crate::gang::state::{Gang, Member, Pod, Run, Seat, Stage};
use crate::recognise::{Coming, GangSpec};

/// One start of a gang, as it stands on its pods.
pub(in crate::gang) struct Before {
    attempt: u32,
    placement: Placement,
    ready_by: Timestamp,
    /// Whose decision it was, as its pods say.
    epochs: BTreeSet<Arc<str>>,
    /// A pod says where all are.
    is_told: bool,
}

impl Before {
    pub(in crate::gang) fn run(self) -> Run {
        Run {
            attempt: self.attempt,
            members: vec![Member::Placed; self.placement.slots.len()],
            placement: self.placement,
            ready_by: self.ready_by,
            epochs: self.epochs,
            preparation: None,
            stage: Stage::Released,
            staying: 0,
            is_leaving: false,
            freed: BTreeSet::new(),
        }
    }

    /// Whether a pod is where this start put it.
    fn has(&self, note: &Note, pod: &Known) -> bool {
        let slot = self.placement.slots.get(note.rank as usize);
        note.attempt == self.attempt && slot.is_some_and(|slot| pod.is_at(slot))
    }
}

/// What the pods of a gang's last start say, where any of them still holds its place. Two leaders may have decided for one
/// gang: of two placements that one counts which more pods have.
pub(in crate::gang) fn before(gang: &Gang) -> Option<Before> {
    let bound = || gang.pods.values().filter(|pod| pod.known.node.is_some() && !pod.known.is_going);
    if !bound().any(|pod| !pod.known.is_over()) {
        return None;
    }
    let notes = || bound().filter_map(|pod| Some((pod.known.noted.as_ref()?, &pod.known)));
    // What has ended may be of an earlier start.
    let live = || notes().filter(|(_, pod)| !pod.is_over());
    let attempt = live().map(|(note, _)| note.attempt).max()?;
    let newest = || notes().filter(|(note, _)| note.attempt == attempt);
    let mut told: BTreeMap<Decision<'_>, u32> = BTreeMap::new();
    let of_live = live().filter(|(note, _)| note.attempt == attempt);
    of_live.for_each(|(note, _)| *told.entry(decision(note)).or_default() += 1);
    let (chosen, _) = told.into_iter().max_by_key(|(_, pods)| *pods)?;
    let of_it = || newest().filter(|(note, _)| decision(note) == chosen);
    // Not every pod has it.
    let told = of_it().find_map(|(note, _)| note.slots());
    let is_told = told.is_some();
    let slots = match told {
        Some(slots) => with_moves(slots, of_it().map(|(note, _)| note)),
        None => one_by_one(of_it())?,
    };
    let level = LevelName::new("cluster").ok()?;
    let ready_by = of_it().filter_map(|(note, _)| note.ready_by).max().unwrap_or(Timestamp(0));
    let epochs = of_it().filter_map(|(note, _)| note.epoch.clone()).collect();
    Some(Before { attempt, placement: Placement { slots, level }, ready_by, epochs, is_told })
}

/// A placement, and who decided it.
type Decision<'a> = (Option<Arc<str>>, Option<&'a Arc<str>>);

/// What tells the decisions of two leaders apart: a successor finishes what it finds written, and where nothing is written
/// all is of one leader.
fn decision(note: &Note) -> Decision<'_> {
    let digest = note.placement.as_ref().map(Whole::digest);
    let is_told = digest.is_some();
    (digest, note.epoch.as_ref().filter(|_| !is_told))
}

/// With the devices that pods have by now: the kubelet may have given them others than those that were chosen.
fn with_moves<'a>(mut slots: Vec<Slot>, notes: impl Iterator<Item = &'a Note>) -> Vec<Slot> {
    for note in notes {
        let Some(slot) = slots.get_mut(note.rank as usize) else { continue };
        if slot.devices.count() == note.devices.count() {
            slot.devices = note.devices;
        }
    }
    slots
}

/// Where every pod says only where itself is, all of them are needed.
fn one_by_one<'a>(notes: impl Iterator<Item = (&'a Note, &'a Known)>) -> Option<Vec<Slot>> {
    let mut slots = BTreeMap::new();
    for (note, pod) in notes {
        let node = pod.node.clone()?;
        slots.insert(note.rank, Slot { rank: note.rank, node, devices: note.devices, part: None });
    }
    let is_complete = (0..).zip(slots.keys()).all(|(at, rank)| at == *rank);
    is_complete.then(|| slots.into_values().collect())
}

/// The ranks of that start with the pods that have them, and with those that are to be bound to the rest. Nothing where
/// the pods that are there cannot be told apart from those that were there then.
pub(in crate::gang) fn seats(gang: &Gang, spec: Option<&GangSpec>, before: &Before) -> Option<Vec<Seat>> {
    let count = before.placement.slots.len();
    let mut holders: Vec<Option<(&Arc<str>, &Pod)>> = vec![None; count];
    for (name, pod) in gang.pods.iter().filter(|(_, pod)| !pod.known.is_going) {
        let Some(note) = pod.known.noted.as_ref().filter(|note| before.has(note, &pod.known)) else {
            continue;
        };
        let Some(holder) = holders.get_mut(note.rank as usize) else { continue };
        if holder.is_none_or(|(_, other)| worth(pod) > worth(other)) {
            *holder = Some((name, pod));
        }
    }
    let is_there = |(seat, holder): (&Seat, &Option<(&Arc<str>, &Pod)>)| match holder {
        Some((name, pod)) if !pod.known.has_failed() => seat.pod.as_ref() == Some(*name),
        // It is to be bound there.
        _ => seat.pod.as_ref().and_then(|name| gang.pods.get(name)).is_none_or(is_free),
    };
    let usual = gang.seats(spec).and_then(|mut seats| {
        as_asked(&mut seats, spec);
        super::submit::by_request(seats, spec).map_err(Into::into)
    });
    if let Ok(usual) = usual
        && usual.len() == count
        && usual.iter().zip(&holders).all(is_there)
    {
        return Some(usual);
    }
    if !before.is_told {
        return None;
    }
    let seat = |name: &Arc<str>, pod: &Pod| Seat {
        role: pod.role.clone(),
        index: pod.index,
        requirements: Arc::clone(&pod.known.requirements),
        more: More::default(),
        turn: 0,
        pod: Some(Arc::clone(name)),
        coming: spec.map_or(Coming::AtOnce, |spec| spec.coming(pod.role.as_deref(), pod.index)),
    };
    let known: Vec<Option<Seat>> =
        holders.iter().map(|holder| holder.map(|(name, pod)| seat(name, pod))).collect();
    let mut free: Vec<(&Arc<str>, &Pod)> = gang.pods.iter().filter(|(_, pod)| is_free(pod)).collect();
    let mut seats = Vec::with_capacity(count);
    for at in 0..count {
        if let Some(known) = &known[at] {
            // Another may have come in the stead of one that failed.
            let failed = holders[at].filter(|(_, pod)| pod.known.has_failed() && pod.index.is_some());
            let other = failed.and_then(|(_, pod)| {
                free.iter().position(|(_, other)| (&other.role, other.index) == (&pod.role, pod.index))
            });
            seats.push(
                other.map(|at| free.remove(at)).map_or_else(|| known.clone(), |(name, pod)| seat(name, pod)),
            );
            continue;
        }
        // Equal ranks stand together.
        let beside = known[..at].iter().rev().chain(&known[at..]).flatten().next()?;
        let suits = |(_, pod): &(&Arc<str>, &Pod)| {
            pod.role == beside.role && pod.known.requirements == beside.requirements
        };
        let found = free.iter().position(suits);
        seats.push(match found.map(|at| free.remove(at)) {
            Some((name, pod)) => seat(name, pod),
            None => Seat { index: None, pod: None, ..beside.clone() },
        });
    }
    completed::number(spec, &mut seats);
    as_asked(&mut seats, spec);
    Some(seats)
}

/// Pods that follow the first of their copy were asked for as that one; since they came they select its domain too.
fn as_asked(seats: &mut [Seat], spec: Option<&GangSpec>) {
    let leads = |role: &Option<Arc<str>>| {
        spec.zip(role.as_ref()).and_then(|(spec, name)| spec.role(name)).is_some_and(|role| role.leads)
    };
    let mut first: BTreeMap<Option<Arc<str>>, Arc<Requirements>> = BTreeMap::new();
    for seat in seats.iter().filter(|seat| leads(&seat.role) && !seat.is_late()) {
        first.entry(seat.role.clone()).or_insert_with(|| Arc::clone(&seat.requirements));
    }
    for seat in seats.iter_mut().filter(|seat| leads(&seat.role)) {
        if let Some(first) = first.get(&seat.role) {
            seat.requirements = Arc::clone(first);
        }
    }
}

/// A pod that lives goes before one that did what it had to, and that before one that failed.
fn worth(pod: &Pod) -> (u8, Timestamp) {
    let by_state = match &pod.known.state {
        State::Over(exit) => u8::from(exit.is_success()),
        State::Waiting | State::Running => 2,
    };
    (by_state, pod.known.created)
}

fn is_free(pod: &Pod) -> bool {
    let Known { node, is_going, barred, .. } = &pod.known;
    node.is_none() && !is_going && barred.is_none() && !pod.known.is_over()
}

/// The same as the engine keeps it. A gang that had to run by now and has a rank that does not has lost that pod since.
pub(in crate::gang) fn record(
    now: Timestamp,
    job: &Job,
    run: &Run,
    gang: &Gang,
    seats: &[Seat],
) -> GangRecord {
    let id = gang_of(job.id);
    // Pods that were replaced since then started later than their gang.
    let pods = seats.iter().filter_map(|seat| gang.pods.get(seat.pod.as_ref()?));
    let started = pods.filter_map(|pod| pod.known.ran_from).min();
    let since = started.map_or(job.submitted_at, |started| started.max(job.submitted_at).min(now));
    let phase = match runs(now, run, gang, seats) {
        true => Phase::Running { since },
        false => Phase::Starting { deadline: run.ready_by },
    };
    GangRecord {
        phase,
        attempt: run.attempt,
        first_started_at: Some(since),
        placement: Some(run.placement.clone()),
        members: seats.iter().map(|_| MemberRecord { state: MemberState::Requested }).collect(),
        ..GangRecord::pending(id, job.submitted_at)
    }
}

fn runs(now: Timestamp, run: &Run, gang: &Gang, seats: &[Seat]) -> bool {
    let is_due = run.ready_by <= now;
    seats.iter().all(|seat| {
        let pod = seat.pod.as_ref().and_then(|name| gang.pods.get(name));
        match pod.filter(|pod| pod.known.node.is_some()) {
            Some(pod) => seats.len() == 1 || pod.known.state != State::Waiting,
            None => !seat.is_awaited() || is_due,
        }
    })
}

impl Lifecycle {
    /// The pods that exist of gangs that hold places, and what is left to do for those gangs.
    pub(in crate::gang) fn members(&mut self, now: Timestamp) -> Vec<Input> {
        let mut found = Vec::new();
        let keys: Vec<_> =
            self.gangs.values().filter(|gang| gang.run().is_some()).map(|gang| gang.key.clone()).collect();
        for key in keys {
            let makes_pods = self.makes_pods(&key);
            let until = now.plus(self.options.vacant_ms);
            let through = self.through(&key);
            let Some(gang) = self.gangs.get_mut(&key) else { continue };
            let Gang { pods, job: Some(submitted), .. } = gang else { continue };
            let (seats, size) = (&submitted.seats, submitted.seats.len());
            let Some(run) = &mut submitted.run else { continue };
            let pod_of = |seat: &Seat| pods.get(seat.pod.as_ref()?).filter(|pod| pod.known.node.is_some());
            let is_through = |rank: u32| through.contains(&(rank as usize));
            let is_there =
                |(rank, seat): (u32, &Seat)| seat.is_late() || pod_of(seat).is_some() || is_through(rank);
            let is_whole = (0..).zip(seats).all(is_there);
            let is_due = run.ready_by <= now && size > 1;
            for ((rank, seat), member) in (0..).zip(seats).zip(&mut run.members) {
                let id = MemberId { gang: gang_of(submitted.id), attempt: run.attempt, rank };
                let state = pod_of(seat).map(|pod| &pod.known.state);
                let (is, state) = match state {
                    Some(State::Over(exit)) if exit.is_success() || !makes_pods => {
                        (Member::Exited, MemberState::Exited(exit.clone()))
                    }
                    None if is_through(rank) => (Member::Exited, MemberState::Exited(Exit::succeeded())),
                    // Its pod comes when the others run.
                    None if !seat.is_awaited() && (is_whole || is_due) => {
                        (Member::Running, MemberState::Running)
                    }
                    None if seat.is_late() && !is_due => (Member::Bound, MemberState::Ready),
                    Some(State::Over(_)) | None if is_due || (is_whole && state.is_some()) => {
                        self.vacant.insert((until, id));
                        (Member::Vacant { until }, MemberState::Running)
                    }
                    Some(State::Over(_)) | None => continue,
                    Some(_) if size == 1 => (Member::Running, MemberState::Running),
                    // The others are bound first, and the gang goes on as if nothing had been.
                    Some(State::Running) if is_whole || is_due => (Member::Running, MemberState::Running),
                    Some(_) => (Member::Bound, MemberState::Ready),
                };
                *member = is;
                found.push(Input::MemberObserved { member: id, state });
            }
            // Otherwise the engine orders the start again.
            if is_due || is_whole {
                self.bind_if_complete(&key);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::gang::constraints::tests::Play;

    const SIZE: usize = 40;

    fn pod(name: &str) -> Value {
        json!({
            "metadata": { "namespace": "x", "name": name, "uid": name, "labels": {
                "pod-group.scheduling.sigs.k8s.io/name": "large",
                "pod-group.scheduling.sigs.k8s.io/min-available": SIZE.to_string() },
                "ownerReferences": [{ "apiVersion": "v1", "kind": "Other", "name": "o", "uid": "o", "controller": true }] },
            "spec": { "schedulerName": "phalanx",
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] },
        })
    }

    fn placement(pod: &Value) -> &str {
        pod["metadata"]["annotations"]["phalanx.dev/placement"].as_str().unwrap_or_default()
    }

    /// It stood on each of them: a megabyte for a gang of 1,000 became thirty.
    #[test]
    fn the_placement_of_a_large_gang_stands_on_some_of_its_pods_and_a_successor_finishes_it() {
        let mut play = Play::of(SIZE / 8);
        for at in 0..SIZE {
            let name = format!("p{at}");
            play.see(&name, pod(&name));
        }
        play.turn();
        assert_eq!(play.bound.len(), SIZE, "{:?}", play.reasons);
        let (told, others): (Vec<_>, Vec<_>) =
            play.pods.values().partition(|pod| !placement(pod).starts_with('#'));
        assert_eq!((told.len(), others.len()), (16, SIZE - 16));
        assert!(others.iter().all(|pod| placement(pod) == placement(others[0])), "one digest for all");
        // Half of them were bound when the scheduler ended, one with the text among them.
        let mut next = Play::listing(SIZE / 8);
        let bound_before = told.into_iter().take(1).chain(others.into_iter().take(SIZE / 2));
        let mut all: Vec<(String, Value)> =
            (0..SIZE).map(|at| (format!("p{at}"), pod(&format!("p{at}")))).collect();
        for pod in bound_before {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if let Some(of) = all.iter_mut().find(|(of, _)| of == name) {
                of.1 = pod.clone();
                next.bound.insert(name.to_owned(), play.bound[name].clone());
            }
        }
        all.into_iter().for_each(|(name, pod)| next.see(&name, pod));
        next.turn();
        assert_eq!(next.bound, play.bound, "{:?}", next.reasons);
        assert!(next.stops.is_empty(), "{:?}", next.stops);
    }
}
