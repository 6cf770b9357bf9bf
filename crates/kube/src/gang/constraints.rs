//! What pods ask beside what nodes are: volumes, and rules for the pods around them.
//!
//! Both are conditions of the sets that the engine knows ([`crate::cluster::node_sets`]), and both are judged once more for a placement as
//! a whole before anything is bound. Gangs whose places do not hold go back; where another search would find the same, they
//! wait until something has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use phalanx_model::{Exit, FailureClass, Input, MemberId, NodeName, ResourceName, Timestamp};

use super::Lifecycle;
use super::lifecycle::submit::gang_of;
use super::state::{Gang, Seat, Submitted};
use crate::api::Pod;
use crate::cluster::bound_pods::{Face, named};
use crate::cluster::node_sets::{Condition, More};
use crate::constraint::Constraints;
use crate::constraint::division::Room;
use crate::constraint::volumes::Broken;
use crate::filter::Requirements;
use crate::messages::Call;
use crate::recognise::{GangKey, GangSpec};

/// Gangs whose constraints are checked again, and when.
#[derive(Default)]
pub(crate) struct Rechecks {
    /// Gangs that the engine has, and that ask something.
    asking: BTreeSet<GangKey>,
    /// Gangs that have a place and wait for their volumes.
    awaits: BTreeSet<GangKey>,
    /// When gangs that were turned down are looked at again.
    again: BTreeSet<(Timestamp, GangKey)>,
    /// Gangs that are looked at again after the next change.
    waiting: BTreeSet<GangKey>,
    /// The last change after which they were.
    seen: u64,
    /// Gangs that go on without a pod that could not be where its place is, until a time is set for that.
    pub(in crate::gang) tries: BTreeSet<GangKey>,
}

/// A rank whose pod is to be bound: its number, the pod's `namespace/name`, and the node.
type Going = (usize, String, Face, NodeName);

/// A gang whose members cannot be where the engine would put them.
pub(crate) struct TurnedDown {
    why: Arc<str>,
    changes: u64,
    until: Option<Timestamp>,
}

/// A gang that was turned down is not looked at again before, whatever changes.
const PATIENCE_MS: u64 = 5_000;

impl Rechecks {
    /// After the next change.
    pub(in crate::gang) fn look_again(&mut self, key: &GangKey) {
        self.waiting.insert(key.clone());
    }

    /// At a time.
    pub(in crate::gang) fn look_again_at(&mut self, at: Timestamp, key: &GangKey) {
        self.again.insert((at, key.clone()));
    }
}

impl Lifecycle {
    /// A pod holds a node from now on.
    pub(in crate::gang) fn place_pod(&mut self, path: &str, node: &NodeName, face: &Face) {
        self.constraints.place_pod(&mut self.cluster, path, node, face);
    }

    /// A pod holds no node any more.
    pub(in crate::gang) fn unplace_pod(&mut self, path: &str) {
        self.constraints.unplace_pod(&mut self.cluster, path);
    }

    /// Counts again what depends on nodes and namespaces that changed.
    pub(in crate::gang) fn freshen(&mut self) {
        self.constraints.refresh(&mut self.cluster);
    }

    /// Judges what may have changed; whether something did.
    pub(in crate::gang) fn judge_conditions(&mut self, now: Timestamp) -> bool {
        self.freshen();
        self.follow_divided();
        self.constraints.room = None;
        self.constraints.searches.begin_turn(now);
        let rules = self.constraints.affinity.judge(&mut self.cluster.nodes);
        let volumes = self.constraints.volumes.take_news();
        if volumes {
            self.constraints.changes += 1;
            self.constraints.volumes.judge(&mut self.cluster.nodes, &self.cluster.bound_pods);
            self.changed.extend(self.rechecks.asking.iter().cloned());
            self.follow_volumes();
        }
        while let Some((_, key)) = self.rechecks.again.first().filter(|(at, _)| *at <= now).cloned() {
            self.rechecks.again.pop_first();
            if self.gangs.get(&key).and_then(Gang::run).is_some_and(|run| run.has_begun()) {
                self.bind_if_complete(&key);
            } else {
                self.changed.insert(key);
            }
        }
        let mut next = std::mem::take(&mut self.rechecks.tries);
        if std::mem::replace(&mut self.rechecks.seen, self.constraints.changes) != self.constraints.changes {
            next.append(&mut self.rechecks.waiting);
        }
        self.rechecks.again.extend(next.into_iter().map(|key| (now.plus(PATIENCE_MS), key)));
        rules || volumes
    }

    /// When the next gang that was turned down is looked at again.
    pub(in crate::gang) fn again(&self) -> Option<Timestamp> {
        self.rechecks.again.first().map(|(at, _)| *at)
    }

    /// What each rank asks beside its requirements; and the line in which the last stands. Of a role whose pods follow the
    /// first of their copy all ask what the very first does: each wants nobody in its domain but those of its own copy, which
    /// the parts of the gang see to, and outside of the gang that is the same for all.
    ///
    /// # Errors
    /// What one waits for, wherever it is.
    pub(in crate::gang) fn ask_more(
        &mut self,
        key: &GangKey,
        spec: Option<&GangSpec>,
        seats: &mut [Seat],
    ) -> Result<Option<Condition>, String> {
        let leads = |seat: &Seat| {
            let role = spec.and_then(|spec| spec.role(seat.role.as_deref().unwrap_or_default()));
            role.is_some_and(|role| role.leads)
        };
        let mut line = None;
        let mut of_first: BTreeMap<Option<Arc<str>>, More> = BTreeMap::new();
        for seat in seats {
            let known = of_first.get(&seat.role).filter(|_| leads(seat));
            seat.more = if let Some(known) = known {
                known.clone()
            } else {
                let (more, its) = self.more(key, spec, seat)?;
                line = its;
                if leads(seat) {
                    of_first.insert(seat.role.clone(), more.clone());
                }
                more
            };
        }
        Ok(line)
    }

    /// What the pod of a rank asks beside its requirements, and the line in which it stands.
    ///
    /// # Errors
    /// What it waits for, wherever it is.
    pub(in crate::gang) fn more(
        &mut self,
        key: &GangKey,
        spec: Option<&GangSpec>,
        seat: &Seat,
    ) -> Result<(More, Option<Condition>), String> {
        let mut more = More { domain: seat.more.domain.clone(), ..More::default() };
        more.conditions.extend(self.domain_of_gang(key)?);
        let (domain, turn) = self.domain_of_siblings(key, spec, &seat.requirements)?.unzip();
        more.conditions.extend(domain.flatten());
        let Some(pod) = self.asker(key, spec, seat) else { return Ok((more, turn)) };
        let gang_apart = self.gangs.get(key).is_some_and(|gang| gang.apart.is_some());
        let Constraints { volumes, affinity, .. } = &mut self.constraints;
        let (nodes, bound) = (&mut self.cluster.nodes, &self.cluster.bound_pods);
        let of = |why: String| format!("pod {}: {why}", pod.name());
        if gang_apart {
            more.apart.extend(one_per_node(key));
        }
        let line = affinity.ask(&pod, &mut more, nodes, bound).map_err(of)?;
        more.conditions.extend(volumes.condition(&pod, nodes, bound).map_err(of)?);
        // Pods of one owner have the same rules, so that they stand in one line either way.
        Ok((more, line.or(turn)))
    }

    /// The pod of a rank, or what its owner will make it of, where it may ask something.
    fn asker(&self, key: &GangKey, spec: Option<&GangSpec>, seat: &Seat) -> Option<Arc<Pod>> {
        let (name, face) = self.face(key, spec, seat)?;
        let is_asking = self.constraints.affinity.concerns_all() || face.particular().is_some();
        is_asking.then(|| face.pod(&key.namespace, &name))
    }

    /// The pod of a rank, or what its owner will make it of.
    pub(in crate::gang) fn face(
        &self,
        key: &GangKey,
        spec: Option<&GangSpec>,
        seat: &Seat,
    ) -> Option<(Arc<str>, Face)> {
        let gang = self.gangs.get(key)?;
        if let Some((name, pod)) = seat.pod.as_ref().and_then(|name| gang.pods.get_key_value(name)) {
            return Some((Arc::clone(name), pod.known.face.clone()));
        }
        let is_of = |name: &Arc<str>| seat.role.as_ref().is_none_or(|role| role == name);
        let template = spec?.roles.iter().find(|role| is_of(&role.name))?.template.as_ref()?;
        let metadata = ObjectMeta {
            name: Some(format!("of {}", key.name)),
            namespace: Some(key.namespace.to_string()),
            labels: Some(template.metadata.labels.clone()),
            ..ObjectMeta::default()
        };
        let mut spec = template.spec.clone();
        // Their claims are made with the pods.
        spec.volumes.retain(|volume| volume.ephemeral.is_none());
        Some(("template".into(), Face::of(&Pod { metadata, spec, ..Pod::default() })))
    }

    /// The label whose domain all ranks must share by the rules of their pods.
    pub(in crate::gang) fn shared_domain(&self, key: &GangKey, seats: &[Seat]) -> Option<String> {
        let gang = self.gangs.get(key).filter(|_| seats.len() > 1)?;
        let pod = |seat: &Seat| gang.pods.get(seat.pod.as_ref()?)?.known.face.particular().cloned();
        let pods: Vec<Arc<Pod>> = seats.iter().map(pod).collect::<Option<_>>()?;
        self.constraints.affinity.shared_domain(&pods)
    }

    /// The engine has it from now on, with what it asks.
    pub(in crate::gang) fn asks(&mut self, now: Timestamp, key: &GangKey, seats: &[Seat]) {
        if seats.iter().any(|seat| !seat.more.conditions.is_empty() || seat.more.domain.is_some()) {
            self.rechecks.asking.insert(key.clone());
        }
        if seats.iter().any(|seat| seat.more.domain.is_some()) {
            self.rechecks.again.insert((now.plus(PATIENCE_MS), key.clone()));
        }
    }

    /// The engine has it no longer.
    pub(in crate::gang) fn asks_no_more(&mut self, key: &GangKey) {
        self.rechecks.asking.remove(key);
    }

    /// Whether a gang that waits asks something else than the engine knows.
    pub(in crate::gang) fn asks_otherwise(&mut self, key: &GangKey) -> bool {
        if !self.rechecks.asking.contains(key) {
            return false;
        }
        let spec = self.spec(key).ok().flatten();
        let Some(submitted) = self.gangs.get(key).and_then(|gang| gang.job.as_ref()) else { return false };
        let seats = submitted.seats.clone();
        let mut anew = seats.clone();
        let can_ask = self.ask_more(key, spec.as_ref(), &mut anew).is_ok();
        let is_other = |(new, seat): (&Seat, &Seat)| {
            (&new.more.conditions, &new.more.apart) != (&seat.more.conditions, &seat.more.apart)
        };
        let asks_otherwise = !can_ask || anew.iter().zip(&seats).any(is_other);
        if seats.iter().any(|seat| seat.more.domain.is_some()) {
            self.rechecks.look_again(key);
            return asks_otherwise || self.is_better_divided(key, spec.as_ref(), &seats);
        }
        self.look_again_for_siblings(key);
        asks_otherwise
    }

    /// Why a gang is not handed in again yet, if it was turned down.
    pub(in crate::gang) fn turned_down(&mut self, now: Timestamp, key: &GangKey) -> Option<Arc<str>> {
        let changes = self.constraints.changes;
        let gang = self.gangs.get_mut(key)?;
        let turned = gang.turned_down.as_mut()?;
        let until = *turned.until.get_or_insert_with(|| now.plus(PATIENCE_MS));
        if now >= until && turned.changes != changes {
            gang.turned_down = None;
            return None;
        }
        if now < until {
            self.rechecks.again.insert((until, key.clone()));
        } else {
            self.rechecks.look_again(key);
        }
        Some(Arc::clone(&turned.why))
    }

    /// Whether the pods of a gang that has its places can be bound there now. If they never can, the gang goes back.
    pub(in crate::gang) fn may_bind(&mut self, key: &GangKey) -> bool {
        if self.lose_places(key) {
            return false;
        }
        let Some(gang) = self.gangs.get(key) else { return false };
        let Some((submitted, run)) = gang.job.as_ref().and_then(|job| Some((job, job.run.as_ref()?))) else {
            return false;
        };
        if let Some(preparation) = &run.preparation
            && !self.constraints.volumes.is_ready(preparation)
        {
            return false;
        }
        let mut going: Vec<Going> = Vec::new();
        let places = submitted.seats.iter().zip(&run.placement.slots).zip(&run.members);
        for (rank, ((seat, slot), member)) in places.enumerate() {
            let Some(pod) = gang.pod_to_bind(seat, *member) else { continue };
            let path = format!("{}/{}", key.namespace, pod.known.name);
            if self.cluster.bound_pods.get(&path).is_none() {
                going.push((rank, path, pod.known.face.clone(), slot.node.clone()));
            }
        }
        going.sort_by_key(|(rank, ..)| submitted.seats[*rank].turn);
        let beyond = match beyond(gang, submitted, &going, || self.room_now()) {
            Ok(beyond) => beyond,
            Err(why) => {
                let ranks: Vec<usize> = going.iter().map(|(rank, ..)| *rank).collect();
                self.turn_down(key, &ranks, Broken { why, is_among_themselves: false });
                return false;
            }
        };
        let is_particular = |(_, _, face, _): &Going| face.particular().is_some();
        let mut preparation = None;
        if self.constraints.affinity.concerns_all() || going.iter().any(is_particular) {
            self.freshen();
            let pods = going.iter().map(|(_, path, face, node)| (named(path, face), node.clone()));
            let pods: Vec<(Arc<Pod>, NodeName)> = pods.collect();
            match self.constraints.check(&self.cluster, &pods) {
                Ok(prepared) => preparation = prepared,
                Err(broken) => {
                    let ranks: Vec<usize> = going.iter().map(|(rank, ..)| *rank).collect();
                    self.turn_down(key, &ranks, broken);
                    return false;
                }
            }
        }
        for (_, path, face, node) in &going {
            self.place_pod(path, node, face);
        }
        for (path, node, more) in beyond {
            self.constraints.hold_beyond(&mut self.cluster, path, node, more);
        }
        self.leave_line(key);
        preparation.is_none_or(|preparation| self.begin_volumes(key, preparation))
    }

    /// Has the volumes of a gang got ready; whether they are.
    fn begin_volumes(
        &mut self,
        key: &GangKey,
        mut preparation: crate::constraint::volumes::Preparation,
    ) -> bool {
        let is_ready = self.constraints.volumes.is_ready(&preparation);
        let steps = std::mem::take(&mut preparation.steps);
        let Some(submitted) = self.gangs.get_mut(key).and_then(|gang| gang.job.as_mut()) else {
            return false;
        };
        let Some(run) = submitted.run.as_mut() else { return false };
        let member = MemberId { gang: gang_of(submitted.id), attempt: run.attempt, rank: 0 };
        if !steps.is_empty() {
            self.calls.push(Call::Prepare { member, steps });
        }
        if !is_ready {
            run.preparation = Some(preparation);
            self.rechecks.awaits.insert(key.clone());
        }
        is_ready
    }

    /// Looks at the gangs that wait for volumes.
    fn follow_volumes(&mut self) {
        for key in self.rechecks.awaits.clone() {
            let submitted = self.gangs.get(&key).and_then(|gang| gang.job.as_ref());
            let run = submitted.and_then(|job| Some((job.id, job.run.as_ref()?)));
            let Some((job, attempt, preparation)) =
                run.and_then(|(job, run)| Some((job, run.attempt, run.preparation.as_ref()?)))
            else {
                self.rechecks.awaits.remove(&key);
                continue;
            };
            if let Some(claim) = self.constraints.volumes.given_up(preparation) {
                self.rechecks.awaits.remove(&key);
                let detail = format!("no volume could be made for claim {claim} on the node that was chosen");
                let member = MemberId { gang: gang_of(job), attempt, rank: 0 };
                self.exit(member, Exit::failed(FailureClass::StartUp, detail));
            } else if self.constraints.volumes.is_ready(preparation) {
                self.rechecks.awaits.remove(&key);
                self.bind_if_complete(&key);
            }
        }
        self.constraints.volumes.forget_given_up();
    }

    /// A placement that does not hold: before anything is bound the gang goes back, afterwards the ranks are lost.
    fn turn_down(&mut self, key: &GangKey, ranks: &[usize], broken: Broken) {
        let changes = self.constraints.changes;
        let Some(gang) = self.gangs.get_mut(key) else { return };
        let Some(submitted) = gang.job.as_mut() else { return };
        let Some(run) = submitted.run.as_ref() else { return };
        let (job, attempt, count) = (submitted.id, run.attempt, run.members.len());
        // Those that are dealt to domains may be where none of them could be alone.
        let is_dealt = submitted.seats.iter().any(|seat| seat.more.domain.is_some());
        let is_among_themselves = broken.is_among_themselves || is_dealt;
        let why: Arc<str> = match is_among_themselves {
            true => format!("not supported: its pods cannot be together where they fit best: {}", broken.why),
            false => broken.why,
        }
        .into();
        let has_begun = run.has_begun();
        let lost: Vec<usize> = if has_begun { ranks.to_vec() } else { (0..count).collect() };
        if !has_begun && submitted.cancel() {
            // First they are looked for one per node: most that cannot be together can be so.
            if is_among_themselves && gang.apart.is_none() {
                gang.apart = Some(Arc::clone(&why));
            } else if is_among_themselves {
                gang.apart = None;
                gang.turned_down = Some(TurnedDown { why: Arc::clone(&why), changes, until: None });
            }
            self.facts.push(Input::CancelRequested { job, by: why.to_string() });
        }
        for rank in lost {
            let rank = u32::try_from(rank).unwrap_or(u32::MAX);
            let member = MemberId { gang: gang_of(job), attempt, rank };
            // Where the others are enough they go on, and it is tried again.
            if has_begun && self.spare(member) {
                self.explain_spared(member, &why);
                self.rechecks.tries.insert(key.clone());
            } else {
                self.exit(member, Exit::failed(FailureClass::StartUp, why.to_string()));
            }
        }
    }

    /// The engine finds no place: where the pods of a gang were kept on different nodes, what was wrong without that is why
    /// it waits.
    pub(in crate::gang) fn beside_refused(&mut self, key: &GangKey, why: String) -> String {
        let changes = self.constraints.changes;
        let Some(gang) = self.gangs.get_mut(key) else { return why };
        let Some(first) = gang.apart.take() else { return why };
        gang.turned_down = Some(TurnedDown { why: Arc::clone(&first), changes, until: None });
        // It sets the time at which it is looked at again.
        self.changed.insert(key.clone());
        format!("{first}; on different nodes: {why}")
    }

    /// A start is over: pods that were not bound hold nothing, and volumes that were not given are free.
    pub(in crate::gang) fn end_start(
        &mut self,
        key: &GangKey,
        seats: &[Seat],
        run: Option<&super::state::Run>,
    ) {
        let Some(run) = run else { return };
        self.tell_joiners(key);
        if let Some(preparation) = &run.preparation {
            self.constraints.volumes.undo(preparation);
        }
        self.rechecks.awaits.remove(key);
        let Some(gang) = self.gangs.get(key) else { return };
        let unbound = seats.iter().filter_map(|seat| seat.pod.as_ref());
        let unbound = unbound.filter(|name| gang.pods.get(*name).is_none_or(|pod| pod.known.node.is_none()));
        let paths: Vec<String> = unbound.map(|name| format!("{}/{name}", key.namespace)).collect();
        paths.iter().for_each(|path| self.unplace_pod(path));
    }

    /// It has its place: the next of those that ask alike may be decided.
    pub(in crate::gang) fn leave_line(&mut self, key: &GangKey) {
        let submitted = self.gangs.get_mut(key).and_then(|gang| gang.job.as_mut());
        if let Some(line) = submitted.and_then(|submitted| submitted.line.take()) {
            self.constraints.serial.leave(&line, key);
        }
    }
}

/// What pods hold beyond what is counted for their ranks: a template says less than what admission makes of it.
///
/// # Errors
/// Who cannot have that where its place is.
fn beyond(
    gang: &Gang,
    submitted: &Submitted,
    going: &[Going],
    room: impl FnOnce() -> Room,
) -> Result<Vec<(String, NodeName, Requirements)>, String> {
    let pod = |rank: usize| gang.pods.get(submitted.seats[rank].pod.as_ref()?);
    let more = |(rank, path, _, node): &Going| {
        let more = pod(*rank)?.known.requirements.beyond(&submitted.seats[*rank].requirements)?;
        Some((path.clone(), node.clone(), more))
    };
    let all: Vec<(String, NodeName, Requirements)> = going.iter().filter_map(more).collect();
    if all.is_empty() {
        return Ok(all);
    }
    let mut room = room();
    for (path, node, more) in &all {
        room.add(node, more)
            .map_err(|why| format!("{path} asks for more than its template, and on {node}: {why}"))?;
    }
    Ok(all)
}

/// A resource of which every node has one, the same for all pods of a gang.
fn one_per_node(key: &GangKey) -> Option<ResourceName> {
    let mut hasher = DefaultHasher::new();
    key.to_string().hash(&mut hasher);
    ResourceName::new(format!("apart/gang-{:x}", hasher.finish())).ok()
}

/// What the nodes of a gang depend on beside themselves, as the end of a sentence.
pub(in crate::gang) fn dependent(submitted: &Submitted) -> String {
    let asked = submitted.seats.iter().flat_map(|seat| &seat.more.conditions);
    let asked: BTreeSet<&str> = asked.map(|condition| &**condition).collect();
    let also = if asked.is_empty() { "" } else { "; its nodes depend on " };
    format!("{also}{}", asked.into_iter().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
pub(in crate::gang) mod tests;
