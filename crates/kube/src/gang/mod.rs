//! Gangs between the API and the engine: what watches report becomes facts, and what the engine orders becomes calls.
//!
//! Pure: no clock, no network. Nothing here has to survive a restart, see `docs/states.md`: pods and their owners are
//! observed again.
//!
//! | module | what lives there |
//! |---|---|
//! | `state` | one gang: its pods, its ranks, how far its start has come |
//! | `pods` | pods, small, and the annotations that a binding writes |
//! | `objects` | owners and groups, and what they say of gangs |
//! | `lifecycle` | from the first pod of a gang to the last |
//! | `constraints`, `division`, `claims` | what gangs request beside resources, see [`crate::constraint`] |
//! | `budgets` | which gangs disruption budgets protect now |
//! | `report` | why gangs wait, in conditions, events and statuses |

mod budgets;
mod claims;
mod constraints;
mod division;
mod interned;
pub(crate) mod lifecycle;
pub(crate) mod objects;
pub mod pods;
pub mod report;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_health::Policy;
use phalanx_model::{
    DecayedUsage, DeviceMask, Exit, FailureClass, Grade, Input, JobId, MemberId, QueueName, QueueReport,
    SyncKind, Timestamp,
};

use crate::cluster::Cluster;
use crate::constraint::Constraints;
use crate::dra::ExtendedAsk;
use crate::filter::Requirements;
use crate::messages::{Call, Event};
use crate::recognise::{self, GangKey};

use budgets::Protection;
use constraints::Rechecks;
use interned::Interned;
use lifecycle::collect::Whose;
use lifecycle::siblings::Siblings;
use lifecycle::unresolved::UnresolvedPods;
use objects::{Above, Owner, Told};
use report::promises::{Promise, Promised};
use report::shortage::Shortages;
use report::soft_constraints::SoftConstraints;
use state::{Gang, Member};

pub use lifecycle::outside::Outside;
pub use lifecycle::scale_up::JOINED;

/// On an owner: it was suspended so that this scheduler starts it, by who submitted it, by an eviction, or because its gang
/// could not start whole.
pub const SUSPENDED: &str = "phalanx.dev/suspended";

/// Where nothing else is chosen, see [`Options`].
const READY_MS: u64 = 900_000;
const VACANT_MS: u64 = 60_000;
/// That of a class of a queue file that names none.
const MIN_RUN_MS: u64 = 600_000;

/// What an operator may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Pods with this `schedulerName` are ours.
    pub scheduler_name: String,
    /// Of gangs that name none.
    pub queue: QueueName,
    /// By when all pods of a gang have to run, after the decision to start it.
    pub ready_ms: u64,
    /// How long a rank stays without a pod before its gang counts as broken.
    pub vacant_ms: u64,
    /// How long a gang runs before it may be preempted, if no class of the `SharePolicy` has its priority.
    pub min_run_ms: u64,
    /// New gangs go to these; on all others what runs is counted and stays.
    pub nodes: recognise::NodesUsed,
    /// What says of a node that it is broken, and gets no new pods.
    pub broken: recognise::BrokenSigns,
    /// How much automation closes in the cluster, of what agents grade.
    pub health: Policy,
}

impl Options {
    /// Pods of `phalanx` on all nodes, with this queue for gangs that name none.
    #[must_use]
    pub fn of_queue(queue: QueueName) -> Self {
        let (ready_ms, vacant_ms, min_run_ms) = (READY_MS, VACANT_MS, MIN_RUN_MS);
        let (nodes, broken) = (recognise::NodesUsed::All, recognise::BrokenSigns::default());
        let health = Policy::default();
        let scheduler_name = "phalanx".to_owned();
        Self { scheduler_name, queue, ready_ms, vacant_ms, min_run_ms, nodes, broken, health }
    }
}

/// Which gang has which number.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    known: BTreeMap<GangKey, JobId>,
    next: u64,
}

/// See the module.
pub struct Lifecycle {
    options: Options,
    cluster: Cluster,
    constraints: Constraints,
    rechecks: Rechecks,
    protection: Protection,
    gangs: BTreeMap<GangKey, Gang>,
    /// What objects say, by gang without its part.
    objects: BTreeMap<GangKey, Told>,
    /// Owners of owners by kind, namespace and name: what they add to the gangs of what they own.
    above: BTreeMap<Owner, Above>,
    orphans: UnresolvedPods,
    /// Lists that the API server refuses for now.
    unreadable: BTreeSet<&'static str>,
    /// Pods by `namespace/name`.
    pods: BTreeMap<Box<str>, Whose>,
    shared: Interned<Requirements>,
    extended: Interned<ExtendedAsk>,
    wishes: SoftConstraints,
    shortages: Shortages,
    jobs: BTreeMap<JobId, GangKey>,
    next_job: u64,
    /// The numbers that gangs had for another that read the same cluster.
    known_numbers: BTreeMap<GangKey, JobId>,
    /// Who leads, see [`EPOCH`].
    epoch: Option<Arc<str>>,
    changed: BTreeSet<GangKey>,
    /// Pods that came to a gang when that ran, and waited then.
    joining: BTreeMap<GangKey, BTreeSet<GangKey>>,
    /// Pods that start one by one, by their owners.
    siblings: Siblings,
    /// Gangs that cannot be handed in, or were refused, as nodes and objects are: looked at again when nodes change.
    refused: BTreeSet<GangKey>,
    /// Ranks that wait for another pod.
    vacant: BTreeSet<(Timestamp, MemberId)>,
    /// Gangs with bindings that may still come until then.
    unsettled: BTreeSet<(Timestamp, GangKey)>,
    /// Ranks whose pods have other devices than those that were chosen, until the engine is told.
    moved: BTreeMap<MemberId, DeviceMask>,
    /// Autoscalers are told what gangs need.
    provisions: bool,
    /// What an earlier leader promised to gangs that wait.
    promised: Promised,
    /// The first lists are complete.
    has_begun: bool,
    facts: Vec<Input>,
    calls: Vec<Call>,
}

impl Lifecycle {
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            cluster: Cluster::new(
                options.nodes,
                options.broken.clone(),
                options.health.clone(),
                options.min_run_ms,
            ),
            options,
            constraints: Constraints::default(),
            rechecks: Rechecks::default(),
            protection: Protection::default(),
            gangs: BTreeMap::new(),
            objects: BTreeMap::new(),
            above: BTreeMap::new(),
            orphans: UnresolvedPods::default(),
            unreadable: BTreeSet::new(),
            pods: BTreeMap::new(),
            shared: Interned::default(),
            extended: Interned::default(),
            wishes: SoftConstraints::default(),
            shortages: Shortages::default(),
            jobs: BTreeMap::new(),
            next_job: 1,
            known_numbers: BTreeMap::new(),
            epoch: None,
            changed: BTreeSet::new(),
            joining: BTreeMap::new(),
            siblings: Siblings::default(),
            refused: BTreeSet::new(),
            vacant: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            moved: BTreeMap::new(),
            provisions: false,
            promised: Promised::default(),
            has_begun: false,
            facts: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// Gangs that are known get the numbers that they had, and others get higher ones.
    #[must_use]
    pub fn numbered(self, numbers: Numbers) -> Self {
        let Numbers { known, next } = numbers;
        Self { known_numbers: known, next_job: next.max(1), ..self }
    }

    /// The numbers of all gangs, for another that reads the same cluster later. A gang that is gone has none any more, and its
    /// number is not given again.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        let before = self.known_numbers.iter().map(|(key, job)| (key.clone(), *job));
        let now = self.jobs.iter().map(|(job, key)| (key.clone(), *job));
        let known = before.chain(now).filter(|(key, _)| self.gangs.contains_key(key)).collect();
        Numbers { known, next: self.next_job }
    }

    /// Takes what a watch told. What follows from it comes with [`Lifecycle::settle`].
    pub fn observe(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::Node(node) => {
                self.devices_moved(&node);
                self.cluster.nodes.observe(*node);
            }
            Event::NodeGone(name) => self.lose_node(&name),
            Event::Pod(pod) => self.see_pod(now, &pod),
            Event::PodGone { namespace, name, uid } => self.lose_pod(now, &namespace, &name, &uid),
            Event::Object(object) => self.see_object(now, &object, false),
            Event::ObjectGone(object) => self.see_object(now, &object, true),
            Event::Queue(queue) => self.cluster.queues.queue_seen(*queue),
            Event::QueueGone(name) => self.cluster.queues.queue_gone(&name),
            Event::Policy(policy) => self.cluster.queues.policy_seen(policy.map(|policy| *policy)),
            Event::Fabric(fabric) => {
                self.cluster.nodes.see_fabric(|book| book.see(fabric.map(|fabric| *fabric)))
            }
            Event::Namespace { name, labels } => {
                self.constraints.claims.namespace(&name, labels.as_ref());
                self.constraints.has_namespaces |= self.cluster.queues.namespace(name, labels);
            }
            Event::Budget { namespace, name, budget } => {
                self.cluster.budgets.see(&namespace, &name, budget.as_deref());
            }
            Event::Storage(stored) => self.constraints.volumes.observe(stored),
            Event::Device(event) => self.see_device(event),
            Event::Found { node, found } => self.cluster.nodes.found(&node, found),
            Event::Unreadable { list, is_unreadable: true } => drop(self.unreadable.insert(list)),
            Event::Unreadable { list, is_unreadable: false } => drop(self.unreadable.remove(list)),
            Event::Bound { member, result } => self.bound(now, member, result),
            Event::Unprepared { member, detail } => {
                self.exit(member, Exit::failed(FailureClass::StartUp, detail));
            }
        }
    }

    /// Whose decisions these are from now on, see [`EPOCH`].
    pub fn lead(&mut self, epoch: &str) {
        self.epoch = Some(epoch.into());
    }

    /// Whether a pod was bound by another leader than the one of now.
    #[must_use]
    pub fn was_led_before(&self) -> bool {
        let pods = self.gangs.values().flat_map(|gang| gang.pods.values());
        let mut epochs = pods.filter_map(|pod| pod.known.noted.as_ref()?.epoch.as_ref());
        epochs.any(|epoch| self.epoch.as_ref() != Some(epoch))
    }

    /// All first lists are complete: everything that is there, as an engine is told that knows nothing.
    pub fn begin(&mut self, now: Timestamp) -> Vec<Input> {
        self.has_begun = true;
        self.facts.clear();
        let begin = |kind| Input::SyncBegin { kind };
        let end = |kind| Input::SyncEnd { kind };
        let mut all = self.changed.iter().cloned().collect::<Vec<_>>();
        // Older gangs have smaller numbers, before and after a restart.
        all.sort_by_cached_key(|key| (self.gangs.get(key).map(Gang::created), key.clone()));
        self.changed.clear();
        let mut facts = vec![begin(SyncKind::Nodes)];
        self.refresh_devices(now);
        self.cluster.nodes.tell(&mut facts);
        self.freshen();
        let mut jobs = Vec::new();
        self.promised = Promised::read(self.cluster.queues.promises());
        for key in &all {
            self.look_at(now, key, &mut jobs);
        }
        self.advance_lines(now, &mut jobs);
        // Whoever is handed in later is behind all of these.
        self.promised = Promised::default();
        // The sets that jobs ask for.
        self.refresh_devices(now);
        self.cluster.nodes.tell(&mut facts);
        facts.push(end(SyncKind::Nodes));
        self.cluster.queues.tell(&mut facts);
        facts.push(begin(SyncKind::Jobs));
        facts.append(&mut jobs);
        facts.push(end(SyncKind::Jobs));
        facts.push(begin(SyncKind::Members));
        facts.extend(self.members(now));
        facts.push(end(SyncKind::Members));
        self.cluster.nodes.tell_health(&mut facts);
        self.admit_all();
        self.take_signs();
        facts
    }

    /// What follows from everything observed since the last time: facts for the engine.
    pub fn settle(&mut self, now: Timestamp) -> Vec<Input> {
        if !self.has_begun {
            return Vec::new();
        }
        self.lose_nodes(now);
        self.cluster.nodes.end_distrust(now);
        self.end_vacancies(now);
        self.end_unsettled(now);
        self.tell_orphans(now);
        self.settle_moved();
        self.refresh_devices(now);
        let have_moved = self.judge_conditions(now);
        let mut facts = std::mem::take(&mut self.facts);
        let are_other_nodes = self.cluster.nodes.tell(&mut facts);
        let has_news = self.cluster.queues.has_news() | self.cluster.priorities.take_news();
        if have_moved | are_other_nodes | has_news {
            self.reconsider();
        }
        let mut gangs = Vec::new();
        for key in std::mem::take(&mut self.changed) {
            self.look_at(now, &key, &mut gangs);
        }
        self.advance_lines(now, &mut gangs);
        self.judge_budgets(&mut gangs);
        self.refresh_devices(now);
        self.cluster.nodes.tell(&mut facts);
        self.cluster.queues.tell(&mut facts);
        facts.append(&mut gangs);
        facts.append(&mut self.facts);
        self.cluster.nodes.tell_health(&mut facts);
        facts
    }

    /// Calls that are to be made now.
    pub fn calls(&mut self) -> Vec<Call> {
        self.calls.extend(self.cluster.nodes.fabric_calls());
        self.calls.extend(self.cluster.nodes.divided_calls());
        std::mem::take(&mut self.calls)
    }

    /// When [`Lifecycle::settle`] has to be called at the latest.
    #[must_use]
    pub fn wake(&self) -> Option<Timestamp> {
        let vacant = self.vacant.first().map(|(at, _)| *at);
        let unsettled = self.unsettled.first().map(|(at, _)| *at);
        let others =
            [self.cluster.nodes.wake(), self.orphans.wake(), self.again(), self.constraints.claims.wake()];
        [vacant, unsettled].into_iter().chain(others).flatten().min()
    }

    /// How the queues stand, the first that wait in each, as they would go, and what they were promised: for the statuses
    /// of the queues.
    pub fn report(
        &mut self,
        reports: &[(QueueReport, Option<DecayedUsage>)],
        line: &[(QueueName, JobId)],
        promises: &[Promise],
    ) {
        let (waiting, promises) = (self.waiting(line), self.promises(promises));
        self.cluster.queues.report(reports, waiting, promises, &mut self.calls);
    }

    /// Nodes and gangs that are known.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.cluster.nodes.len(), self.gangs.len())
    }

    /// Devices and nodes by grade, and why the circuit breaker holds grades, if it does.
    #[must_use]
    pub fn health(&self) -> (BTreeMap<Grade, usize>, Option<&str>) {
        self.cluster.nodes.health_counts()
    }

    /// Ranks that stayed without a pod for too long are lost.
    fn end_vacancies(&mut self, now: Timestamp) {
        while let Some((until, id)) = self.vacant.first().copied().filter(|(until, _)| *until <= now) {
            self.vacant.pop_first();
            let Some(run) = self.run_mut(id) else { continue };
            if run.members.get(id.rank as usize) == Some(&Member::Vacant { until }) && !self.spare(id) {
                let why = "its pod is gone, and no other came in its stead";
                self.exit(id, Exit::failed(FailureClass::Infrastructure, why));
            }
        }
    }
}

#[cfg(test)]
mod turn;

#[cfg(test)]
mod measure;

#[cfg(test)]
mod tests;
