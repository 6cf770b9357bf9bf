//! What the scheduler knows of the cluster, between the API and the engine.
//!
//! Pure: events of watches come in and become facts; orders of the engine come in and become calls. No clock, no
//! network. Nothing here has to survive a restart, see `docs/states.md`: the pods and their owners tell it again.
//!
//! | module | what lives there |
//! |---|---|
//! | `messages` | what comes in and what goes out |
//! | `nodes`, `machines` | nodes as the engine knows them |
//! | `pods` | pods, small, and what travels with a binding |
//! | `beside` | what pods ask beside what nodes are |
//! | `around` | rules between pods |
//! | `divide` | gangs whose own pods have to be in different domains |
//! | `volumes` | claims and their volumes |
//! | `crowd` | pods that hold nodes |
//! | `lines` | pods that are decided one after another |
//! | `fabric` | where the levels of the network come from |
//! | `classes`, `priorities` | priorities, as classes of the engine; what names of them mean |
//! | `cluster` | objects of the cluster as a whole that others define |
//! | `claims`, `devices` | claims for devices: which nodes can serve them, and which devices they get |
//! | `gang` | one gang: its pods, its ranks, how far its start has come |
//! | `objects` | owners and groups, and what they say of gangs |
//! | `sets` | sets of nodes that pods may use |
//! | `sharing` | queues, policy, namespaces |
//! | `submit`, `again` | a gang as a job of the engine; one that was started before |
//! | `alone` | pods that start by themselves |
//! | `joiners` | pods that come to a gang that runs already |
//! | `spare` | ranks without which a gang goes on |
//! | `strays` | bound pods that have no place in their gang |
//! | `suspended` | owners that make no pods for now |
//! | `volcano` | the status of Volcano's groups |
//! | `provision` | what autoscalers are asked for |
//! | `waits` | what gangs wait for, in pods' conditions and queues' statuses |
//! | `orders` | starts and stops, and what became of them |
//! | `moved` | devices that the kubelet gave instead of the chosen ones |
//! | `needs` | what pods need, in the engine's words |

mod again;
mod alone;
mod around;
mod beside;
mod claims;
mod classes;
mod cluster;
mod crowd;
mod devices;
mod divide;
mod fabric;
mod gang;
mod joiners;
mod lines;
mod machines;
mod messages;
mod moved;
mod needs;
mod nodes;
mod objects;
mod orders;
mod pods;
mod priorities;
mod provision;
mod sets;
mod sharing;
mod spare;
mod strays;
mod submit;
mod suspended;
mod volcano;
mod volumes;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_model::{
    DeviceMask, Exit, FadedUse, FailureClass, Input, JobId, MemberId, NodeName, QueueName, QueueReport,
    SyncKind, Timestamp,
};

use crate::api;
use crate::dra::ExtendedAsk;
use crate::gang::{self as recognise, GangKey, Membership, Source};
use crate::judge::{self, Requirements};

use alone::Kin;
use beside::Beside;
use claims::{ClaimBook, Used};
use crowd::Face;
use gang::{Gang, Member, Pod};
use nodes::NodeBook;
use objects::{Above, Owner, Told};
use pods::{Known, Note, State};
use priorities::Priorities;
use sharing::Sharing;

pub use claims::DeviceEvent;
pub(crate) use claims::{consumer, hex};
pub use cluster::{CLUSTER_KINDS, is_of_cluster};
pub use joiners::JOINED;
pub use machines::Found;
pub use messages::{Call, Event, Reservation, Step, Tidings, Unbound};
pub(crate) use objects::INITIALLY_SCHEDULED;
pub use pods::{ATTEMPT, DEVICES, GANG_SIZE, PLACEMENT, PodRef, RANK, READY_BY};
pub use provision::Provision;
pub use volcano::VolcanoStatus;
pub use volumes::Stored;
pub use waits::{NAMED_MAX, WaitsFor};

/// On an owner: it was suspended so that this scheduler starts it, by who submitted it, by an eviction, or because its gang
/// could not start whole.
pub const SUSPENDED: &str = "phalanx.dev/suspended";

/// Where nothing else is chosen, see [`Options`].
const READY_MS: u64 = 900_000;
const VACANT_MS: u64 = 60_000;

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
    /// New gangs go to these; on all others what runs is counted and stays.
    pub nodes: recognise::NodesUsed,
}

impl Options {
    /// Pods of `phalanx` on all nodes, with this queue for gangs that name none.
    #[must_use]
    pub fn of_queue(queue: QueueName) -> Self {
        let (ready_ms, vacant_ms) = (READY_MS, VACANT_MS);
        let nodes = recognise::NodesUsed::All;
        Self { scheduler_name: "phalanx".to_owned(), queue, ready_ms, vacant_ms, nodes }
    }
}

/// See the module.
pub struct Books {
    options: Options,
    nodes: NodeBook,
    claims: ClaimBook,
    sharing: Sharing,
    priorities: Priorities,
    beside: Beside,
    gangs: BTreeMap<GangKey, Gang>,
    /// What objects say, by gang without its part.
    objects: BTreeMap<GangKey, Told>,
    /// Owners of owners by kind, namespace and name: what they add to the gangs of what they own.
    above: BTreeMap<Owner, Above>,
    /// Pods whose object has not been seen, by gang without its part, then by name.
    orphans: BTreeMap<GangKey, BTreeMap<Box<str>, api::Pod>>,
    /// Pods by `namespace/name`.
    pods: BTreeMap<Box<str>, Whose>,
    shared: BTreeSet<Arc<Requirements>>,
    extended: BTreeSet<Arc<ExtendedAsk>>,
    jobs: BTreeMap<JobId, GangKey>,
    next_job: u64,
    changed: BTreeSet<GangKey>,
    /// Gangs that cannot be handed in, or were refused, as nodes and objects are: looked at again when nodes change.
    refused: BTreeSet<GangKey>,
    /// Ranks that wait for another pod.
    vacant: BTreeSet<(Timestamp, MemberId)>,
    /// Ranks whose pods have other devices than those that were chosen, until the engine is told.
    moved: BTreeMap<MemberId, DeviceMask>,
    /// Autoscalers are told what gangs need.
    provisions: bool,
    /// The first lists are complete.
    has_begun: bool,
    facts: Vec<Input>,
    calls: Vec<Call>,
}

/// Where a pod belongs.
enum Place {
    In(Membership),
    /// That depends on an object that has not been seen.
    Waits(GangKey),
}

/// Whose a pod is.
enum Whose {
    Ours(GangKey),
    /// Bound by somebody else, or not ours to understand.
    Others {
        node: Option<Box<str>>,
        requirements: Arc<Requirements>,
    },
}

impl Books {
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            nodes: NodeBook::new(options.nodes),
            options,
            claims: ClaimBook::default(),
            sharing: Sharing::default(),
            priorities: Priorities::default(),
            beside: Beside::default(),
            gangs: BTreeMap::new(),
            objects: BTreeMap::new(),
            above: BTreeMap::new(),
            orphans: BTreeMap::new(),
            pods: BTreeMap::new(),
            shared: BTreeSet::new(),
            extended: BTreeSet::new(),
            jobs: BTreeMap::new(),
            next_job: 1,
            changed: BTreeSet::new(),
            refused: BTreeSet::new(),
            vacant: BTreeSet::new(),
            moved: BTreeMap::new(),
            provisions: false,
            has_begun: false,
            facts: Vec::new(),
            calls: Vec::new(),
        }
    }

    /// Takes what a watch told. What follows from it comes with [`Books::settle`].
    pub fn observe(&mut self, now: Timestamp, event: Event) {
        match event {
            Event::Node(node) => {
                self.devices_moved(&node);
                self.nodes.observe(*node);
            }
            Event::NodeGone(name) => {
                self.nodes.remove(&name, &mut self.facts);
                self.devices_gone(&name);
            }
            Event::Pod(pod) => self.see_pod(now, &pod),
            Event::PodGone { namespace, name, uid } => self.lose_pod(now, &namespace, &name, &uid),
            Event::Object(object) => self.see_object(now, &object, false),
            Event::ObjectGone(object) => self.see_object(now, &object, true),
            Event::Queue(queue) => self.sharing.queue_seen(*queue),
            Event::QueueGone(name) => self.sharing.queue_gone(&name),
            Event::Policy(policy) => self.sharing.policy_seen(policy.map(|policy| *policy)),
            Event::Fabric(fabric) => self.nodes.see_fabric(|book| book.see(fabric.map(|fabric| *fabric))),
            Event::Namespace { name, labels } => {
                self.beside.has_namespaces = true;
                self.claims.namespace(&name, labels.as_ref());
                self.sharing.namespace(name, labels);
            }
            Event::Storage(stored) => self.beside.volumes.observe(stored),
            Event::Device(event) => self.see_device(event),
            Event::Found { node, found } => self.nodes.found(&node, found),
            Event::Bound { member, result } => self.bound(member, result),
            Event::Unprepared { member, detail } => {
                self.exit(member, Exit::failed(FailureClass::StartUp, detail));
            }
        }
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
        self.nodes.tell(&mut facts);
        self.freshen();
        let mut jobs = Vec::new();
        for key in &all {
            self.look_at(now, key, &mut jobs);
        }
        self.advance_lines(now, &mut jobs);
        // The sets that jobs ask for.
        self.refresh_devices(now);
        self.nodes.tell(&mut facts);
        facts.push(end(SyncKind::Nodes));
        self.sharing.tell(&mut facts);
        facts.push(begin(SyncKind::Jobs));
        facts.append(&mut jobs);
        facts.push(end(SyncKind::Jobs));
        facts.push(begin(SyncKind::Members));
        facts.extend(self.members(now));
        facts.push(end(SyncKind::Members));
        self.admit_all();
        facts
    }

    /// What follows from everything observed since the last time: facts for the engine.
    pub fn settle(&mut self, now: Timestamp) -> Vec<Input> {
        if !self.has_begun {
            return Vec::new();
        }
        self.end_vacancies(now);
        self.settle_moved();
        self.refresh_devices(now);
        let have_moved = self.judge_conditions(now);
        if have_moved | self.nodes.has_news() | self.sharing.has_news() | self.priorities.take_news() {
            self.reconsider();
        }
        let mut facts = std::mem::take(&mut self.facts);
        self.nodes.tell(&mut facts);
        let mut gangs = Vec::new();
        for key in std::mem::take(&mut self.changed) {
            self.look_at(now, &key, &mut gangs);
        }
        self.advance_lines(now, &mut gangs);
        self.refresh_devices(now);
        self.nodes.tell(&mut facts);
        self.sharing.tell(&mut facts);
        facts.append(&mut gangs);
        facts.append(&mut self.facts);
        facts
    }

    /// Calls that are to be made now.
    pub fn calls(&mut self) -> Vec<Call> {
        self.calls.extend(self.nodes.fabric_calls());
        std::mem::take(&mut self.calls)
    }

    /// When [`Books::settle`] has to be called at the latest.
    #[must_use]
    pub fn wake(&self) -> Option<Timestamp> {
        let vacant = self.vacant.first().map(|(at, _)| *at);
        [vacant, self.again(), self.claims.wake()].into_iter().flatten().min()
    }

    /// How the queues stand, and the first that wait in each, as they would go: for the statuses of the queues.
    pub fn report(&mut self, reports: &[(QueueReport, Option<FadedUse>)], line: &[(QueueName, JobId)]) {
        let waiting = self.waiting(line);
        self.sharing.report(reports, waiting, &mut self.calls);
    }

    /// Nodes and gangs that are known.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.nodes.len(), self.gangs.len())
    }

    fn see_pod(&mut self, now: Timestamp, pod: &api::Pod) {
        let path = pod.path();
        let is_ours = pod.spec.scheduler_name.as_deref() == Some(&*self.options.scheduler_name);
        let is_foreign = !is_ours || (pod.spec.node_name.is_some() && Note::of(pod).is_none());
        if is_foreign {
            return self.see_other(&path, pod);
        }
        let mut known = self.known(pod);
        let joins = self.joined(&path, pod);
        let member = match (self.place(pod), self.placed(&path, pod)) {
            _ if joins.is_some() => Membership::alone(pod),
            (Ok(Place::In(member)), _) => member,
            // What said so is gone by now; the pod is where it was.
            (_, Some(member)) => member,
            (Ok(Place::Waits(object)), None) => return self.see_orphan(&path, object, pod),
            // It stays pending by itself, with what is wrong as the reason.
            (Err(refused), None) => {
                known.barred.get_or_insert_with(|| refused.to_string().into());
                Membership::alone(pod)
            }
        };
        let before = self.pods.insert(path.as_str().into(), Whose::Ours(member.gang.clone()));
        match before {
            Some(Whose::Others { node, requirements }) => {
                self.count_other(node.as_deref(), &requirements, false)
            }
            Some(Whose::Ours(key)) if key != member.gang => self.forget_pod(now, &key, pod.name()),
            _ => {}
        }
        let key = member.gang.clone();
        let name = Arc::clone(&known.name);
        let gang = self.gangs.entry(key.clone()).or_insert_with(|| Gang::new(key.clone()));
        gang.kin = match joins {
            Some(of) => Some(Kin::joined(of)),
            None if key.source == Source::Pod => Kin::lone(pod),
            None => None,
        };
        let is_bare = key.source == Source::Pod && gang.kin.is_none();
        let came_again = gang.pods.get(&name).is_some_and(|before| before.known.uid != known.uid);
        if came_again {
            self.forget_pod(now, &key, &name);
        }
        self.claims.uses(&key, &known.claims);
        match known.node.as_ref().filter(|_| !known.is_over()) {
            Some(node) => self.place_pod(&path, node, &known.face),
            // What waits holds a place where it was given one.
            None if known.is_over() => self.unplace_pod(&path),
            None => {}
        }
        let Some(gang) = self.gangs.get_mut(&key) else { return };
        let has_signs = key.source.is_sized_by_pods() || (is_bare && alone::has_signs(pod, &known));
        let signs = has_signs.then(|| Arc::new(pod.clone()));
        gang.pods.insert(Arc::clone(&name), Pod { known, role: member.role, index: member.index, signs });
        self.follow(now, &key, &name);
        if self.claims.is_awaiting(&key) {
            self.bind_if_complete(&key);
        }
        self.changed.insert(key);
    }

    /// A pod of somebody else: what it holds where it is.
    fn see_other(&mut self, path: &str, pod: &api::Pod) {
        let node = pod.spec.node_name.as_deref().filter(|_| !pod.is_over());
        match node.and_then(|node| NodeName::new(node).ok()) {
            Some(node) => self.place_pod(path, &node, &Face::of(pod)),
            None => self.unplace_pod(path),
        }
        let Ok(requirements) = Requirements::held(pod) else { return };
        let requirements = share(&mut self.shared, requirements);
        let now = Whose::Others { node: node.map(Into::into), requirements: Arc::clone(&requirements) };
        if let Some(Whose::Others { node, requirements }) = self.pods.insert(path.into(), now) {
            self.count_other(node.as_deref(), &requirements, false);
        }
        self.count_other(node, &requirements, true);
    }

    fn count_other(&mut self, node: Option<&str>, requirements: &Requirements, is_there: bool) {
        if let Some(node) = node {
            self.nodes.other(node, requirements, is_there);
        }
    }

    fn lose_pod(&mut self, now: Timestamp, namespace: &str, name: &str, uid: &str) {
        let path = format!("{namespace}/{name}");
        match self.pods.get(&*path) {
            Some(Whose::Ours(key)) => {
                let key = key.clone();
                let is_it = |pod: &Pod| &*pod.known.uid == uid;
                if self.gangs.get(&key).and_then(|gang| gang.pods.get(name)).is_some_and(is_it) {
                    self.pods.remove(&*path);
                    self.forget_pod(now, &key, name);
                }
            }
            Some(Whose::Others { .. }) => {
                let here = self.orphans.iter_mut().filter(|(object, _)| &*object.namespace == namespace);
                here.for_each(|(_, pods)| drop(pods.remove(name)));
                self.unplace_pod(&path);
                if let Some(Whose::Others { node, requirements }) = self.pods.remove(&*path) {
                    self.count_other(node.as_deref(), &requirements, false);
                }
            }
            None => {}
        }
    }

    /// A pod whose object is not there waits for it; bound, it holds what it holds.
    fn see_orphan(&mut self, path: &str, object: GangKey, pod: &api::Pod) {
        self.see_other(path, pod);
        self.orphans.entry(object).or_default().insert(pod.name().into(), pod.clone());
    }

    /// What a pod is to us, with what keeps it from ever starting as it is.
    fn known(&mut self, pod: &api::Pod) -> Known {
        let (requirements, bad) = match Requirements::of(pod) {
            Ok(requirements) => (requirements, None),
            Err(bad) => (Requirements::default(), Some(bad.to_string())),
        };
        let gated = judge::gate(pod).map(|gate| format!("the scheduling gate {gate} holds it"));
        let unsupported = judge::unsupported(pod, judge::Also { between_pods: true, volumes: true });
        let unsupported = unsupported.first().map(|field| format!("not supported: {field}"));
        Known {
            name: pod.name().into(),
            uid: pod.uid().into(),
            requirements: share(&mut self.shared, requirements),
            claims: Used::of(pod),
            extended: ExtendedAsk::of(&pod.spec).map(|ask| share(&mut self.extended, ask)),
            has_extended_claim: pod.status.extended_resource_claim_status.is_some(),
            created: pods::created(pod),
            node: pod.spec.node_name.as_deref().and_then(|name| NodeName::new(name).ok()),
            state: State::of(pod),
            is_going: pod.metadata.deletion_timestamp.is_some(),
            has_owner: pod.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()),
            noted: Note::of(pod),
            face: Face::of(pod),
            priority: pods::Priority {
                value: pod.spec.priority.unwrap_or(0),
                is_patient: pod.spec.preemption_policy.as_deref() == Some("Never"),
            },
            class: recognise::names::PRIORITY_LABELS.iter().find_map(|key| pod.label(key)).map(Into::into),
            barred: bad.or(gated).or(unsupported).map(Into::into),
        }
    }

    /// Where this very pod was put before, in a gang of several.
    fn placed(&self, path: &str, pod: &api::Pod) -> Option<Membership> {
        let Some(Whose::Ours(key)) = self.pods.get(path) else { return None };
        let known = self.gangs.get(key)?.pods.get(pod.name())?;
        let is_same = &*known.known.uid == pod.uid() && key.source != Source::Pod;
        let (gang, role, index) = (key.clone(), known.role.clone(), known.index);
        is_same.then_some(Membership { gang, role, copy: 0, index })
    }

    /// Where a pod belongs. A group that the pod's own owner made is the owner's gang.
    fn place(&self, pod: &api::Pod) -> Result<Place, recognise::Refused> {
        let member = recognise::membership(pod)?;
        let told = self.told(&member.gang);
        let is_made = matches!(member.gang.source, Source::PodGroup | Source::Workload)
            && told.is_some_and(|told| told.above.is_some());
        if is_made && let Some(owned) = recognise::membership_by_owner(pod)? {
            match self.settled(pod, &owned)? {
                Place::In(settled) if settled.gang.source == Source::Pod => {}
                place => return Ok(place),
            }
        }
        self.settled(pod, &member)
    }

    fn settled(&self, pod: &api::Pod, member: &Membership) -> Result<Place, recognise::Refused> {
        match self.told(&member.gang) {
            Some(Told { specs: Ok(specs), .. }) => {
                recognise::settle(pod, member, specs).map(|(settled, _)| Place::In(settled))
            }
            Some(Told { specs: Err(refused), .. }) => Err(refused.clone()),
            None if member.gang.source.has_object() => {
                Ok(Place::Waits(GangKey { part: None, ..member.gang.clone() }))
            }
            None => Ok(Place::In(member.clone())),
        }
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

/// What many pods have alike is kept once.
fn share<T: Ord>(all: &mut BTreeSet<Arc<T>>, one: T) -> Arc<T> {
    if let Some(known) = all.get(&one) {
        return Arc::clone(known);
    }
    let new = Arc::new(one);
    all.insert(Arc::clone(&new));
    new
}

#[cfg(test)]
mod turn;

#[cfg(test)]
mod tests;
