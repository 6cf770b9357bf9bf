//! The clerk: tells the book of the account what the engine knows, in every world the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use phalanx_account::{Book, Class, Entry, Gone, Held, Holding, Host, Loss, Payer, State};
use phalanx_engine::Engine;
use phalanx_model::{
    Admin, Change, DeviceMask, DevicePart, Ending, FailureClass, Gang, GangId, GangRecord, Input, Job, Needs,
    Node, NodeName, Phase, Placement, Slot, StopCause, Timestamp, profile_milli,
};

/// A whole device in thousandths.
const WHOLE_MILLI: u32 = 1_000;

/// Keeps the account of a cluster.
#[derive(Debug)]
pub struct Clerk {
    book: Book,
    /// Of one device for an hour, in millionths.
    list_prices: BTreeMap<NodeName, u64>,
    /// Equal classes are one in memory.
    classes: BTreeSet<Arc<Class>>,
    /// Until when the history has entries of an earlier run.
    charged_until: Option<Timestamp>,
    has_begun: bool,
    /// Gangs that run and do not use their devices, as the world last said.
    idle: BTreeSet<GangId>,
}

impl Clerk {
    /// `list_prices` are those of one device for an hour, in millionths; until `charged_until` an earlier run has charged.
    #[must_use]
    pub fn new(list_prices: BTreeMap<NodeName, u64>, charged_until: Option<Timestamp>) -> Self {
        Self {
            book: Book::new(),
            list_prices,
            classes: BTreeSet::new(),
            charged_until,
            has_begun: false,
            idle: BTreeSet::new(),
        }
    }

    /// What was charged since the last time.
    pub fn take_entries(&mut self, now: Timestamp) -> Vec<Entry> {
        self.book.take_entries(now)
    }

    /// From now on these gangs, as long as they run, do not use their devices, and others do.
    pub fn set_idle(&mut self, now: Timestamp, idle: BTreeSet<GangId>, engine: &Engine) {
        let before = std::mem::replace(&mut self.idle, idle);
        let changed: Vec<GangId> = before.symmetric_difference(&self.idle).copied().collect();
        for gang in changed {
            self.look_at(now, gang, engine);
        }
    }

    /// After a step: what it may have changed.
    pub fn stepped(&mut self, now: Timestamp, facts: &[Input], changes: &[Change], engine: &Engine) {
        if !self.has_begun {
            self.has_begun = true;
            return self.begin(now, engine);
        }
        // In their order: a gang that stops, waits and starts again in one step lost its work by the cause of the stop.
        for change in changes {
            match change {
                Change::GangStopping { gang, cause, .. } => self.book.note_stop(*gang, loss_of(cause)),
                Change::GangRetrying { gang, .. } => self.book.remove_gang(now, *gang, Gone::Waits),
                _ => {}
            }
        }
        for gang in changes.iter().filter_map(Change::gang) {
            self.look_at(now, gang, engine);
        }
        for fact in facts {
            match fact {
                Input::MemberExited { member, .. } => self.look_at(now, member.gang, engine),
                Input::GangCheckpointed { gang, .. } => self.look_at(now, *gang, engine),
                Input::NodeObserved { node } => self.look_at_node(now, &node.name, engine),
                Input::HealthGraded { health } => self.look_at_node(now, &health.node, engine),
                Input::NodeUseObserved { node, .. }
                | Input::NodeRemoved { node }
                | Input::NodeCordoned { node }
                | Input::NodeUncordoned { node }
                | Input::DrainRequested { node } => self.look_at_node(now, node, engine),
                _ => {}
            }
        }
    }

    /// Goes on where an earlier run ended: what gangs held throughout was theirs meanwhile, and nobody saw the rest.
    fn begin(&mut self, now: Timestamp, engine: &Engine) {
        let since = self.charged_until.filter(|until| *until < now).unwrap_or(now);
        if since < now {
            for node in engine.nodes() {
                let devices = self.classes_of(node);
                let nothing = DeviceMask::EMPTY;
                let host = Host { devices, foreign: nothing, broken: nothing, unused: State::Unobserved };
                self.book.observe_node(since, &node.name, host);
            }
            for (job, records) in engine.jobs() {
                for record in records.iter().filter(|record| held_before(record, since)) {
                    self.observe(since, job, record, engine);
                }
            }
        }
        for (_, records) in engine.jobs() {
            for record in records {
                if let Phase::Running { since: began } = record.phase
                    && began < since
                {
                    let saved_at = record.checkpointed_at.unwrap_or_default();
                    self.book.recall(since, record.id, began.max(saved_at));
                }
            }
        }
        self.look_at_all(now, engine);
    }

    /// Everything anew: what no fact says, as a window that begins, is seen here.
    pub fn look_at_all(&mut self, now: Timestamp, engine: &Engine) {
        for name in self.book.nodes().cloned().collect::<Vec<_>>() {
            if engine.node(&name).is_none() {
                self.book.remove_node(now, &name);
            }
        }
        let windows = windows(now, engine);
        for node in engine.nodes() {
            let host = self.host(node, windows.get(&node.name).copied());
            self.book.observe_node(now, &node.name, host);
        }
        for gang in self.book.gangs().collect::<Vec<_>>() {
            self.look_at(now, gang, engine);
        }
        for (job, records) in engine.jobs() {
            for record in records.iter().filter(|record| !record.is_finished()) {
                self.observe(now, job, record, engine);
            }
        }
    }

    fn look_at_node(&mut self, now: Timestamp, name: &NodeName, engine: &Engine) {
        let Some(node) = engine.node(name) else { return self.book.remove_node(now, name) };
        let host = self.host(node, windows(now, engine).get(name).copied());
        self.book.observe_node(now, name, host);
    }

    fn look_at(&mut self, now: Timestamp, gang: GangId, engine: &Engine) {
        match engine.job(gang.job).zip(engine.gang(gang)) {
            Some((job, record)) => self.observe(now, job, record, engine),
            None => self.book.remove_gang(now, gang, Gone::Ended),
        }
    }

    fn observe(&mut self, now: Timestamp, job: &Job, record: &GangRecord, engine: &Engine) {
        if !record.holds_capacity() {
            self.book.remove_gang(now, record.id, gone(record));
        }
        let held = record.held();
        let reserved = record.reserved.as_ref().map(|reserved| &reserved.placement);
        let placement = held.as_deref().or(reserved);
        let Some((placement, gang)) = placement.zip(job.gang_at(record.id.index)) else { return };
        let (state, loss) = match &record.phase {
            Phase::Starting { .. } => (State::Starting, None),
            Phase::Running { .. } if self.idle.contains(&record.id) => (State::HeldIdle, None),
            Phase::Running { .. } => (State::Running, None),
            Phase::Stopping { cause, .. } => (State::Stopping, loss_of(cause)),
            Phase::Pending { .. } => (State::Reserved, None),
            Phase::Finished { .. } => return,
        };
        let payer = Arc::new(Payer {
            queue: job.queue.clone(),
            uid: job.owner.uid,
            user: job.owner.name.clone(),
            job: job.id,
            name: job.name.to_string(),
            class: job.turn.class.as_ref().map(ToString::to_string).unwrap_or_default(),
        });
        let holding = Holding { payer, state, slots: slots(gang, placement, engine), loss };
        self.book.observe_gang(now, record.id, holding, record.checkpointed_at);
    }

    fn host(&mut self, node: &Node, window: Option<State>) -> Host {
        let unused = match node.admin {
            _ if !node.health.is_open() => State::Broken,
            Admin::Draining => State::Draining,
            Admin::Cordoned => State::Closed,
            Admin::Open => window.unwrap_or(State::Idle),
        };
        let broken = node.health.closed_devices();
        Host { devices: self.classes_of(node), foreign: node.foreign, broken, unused }
    }

    fn classes_of(&mut self, node: &Node) -> Vec<Arc<Class>> {
        let spot_micro = node.spot.map(|spot| spot.price_micro_per_device_hour).filter(|price| *price > 0);
        let list_micro = self.list_prices.get(&node.name).copied();
        let class = |model: &str| Class {
            model: model.to_owned(),
            is_spot: node.spot.is_some(),
            has_spot_price: spot_micro.is_some(),
            price_micro: spot_micro.or(list_micro).unwrap_or_default(),
        };
        let mut of_node: Vec<Arc<Class>> = Vec::with_capacity(node.machine.devices.len());
        for device in &node.machine.devices {
            let same = of_node.last().filter(|class| class.model == device.model).cloned();
            let class = same.unwrap_or_else(|| {
                let class = Arc::new(class(&device.model));
                let known = self.classes.get(&class).cloned();
                known.unwrap_or_else(|| {
                    self.classes.insert(Arc::clone(&class));
                    class
                })
            });
            of_node.push(class);
        }
        of_node
    }
}

/// Whether a gang had what it holds at a time already.
fn held_before(record: &GangRecord, at: Timestamp) -> bool {
    match record.phase {
        Phase::Running { since } => since <= at,
        // Since when is not written down.
        Phase::Starting { .. } | Phase::Stopping { .. } => true,
        Phase::Pending { .. } | Phase::Finished { .. } => false,
    }
}

/// What windows that are open now make of free devices, by node.
fn windows(now: Timestamp, engine: &Engine) -> BTreeMap<NodeName, State> {
    let is_open = |begins_at: Timestamp, ends_at: Timestamp| begins_at <= now && now < ends_at;
    let open = engine.windows().filter(|window| is_open(window.begins_at, window.ends_at));
    open.map(|window| {
        let state = if window.held_for.is_some() { State::Reserved } else { State::Closed };
        (window.node.clone(), state)
    })
    .collect()
}

fn slots(gang: &Gang, placement: &Placement, engine: &Engine) -> Vec<Held> {
    let held = |slot: &Slot| {
        let needs = gang.needs_of(gang.role_of(slot.rank));
        let each_milli = each_milli(needs, slot, engine.node(&slot.node)).into();
        Held { node: slot.node.clone(), devices: slot.devices, each_milli }
    };
    placement.slots.iter().filter(|slot| !slot.devices.is_empty()).map(held).collect()
}

/// What a member has of each of its devices, in thousandths.
fn each_milli(needs: &Needs, slot: &Slot, node: Option<&Node>) -> u32 {
    match (&needs.part, &slot.part) {
        (None, _) => WHOLE_MILLI,
        // The slice that it was given may be larger than the one that it asked for.
        (_, Some(DevicePart::Slice { profile, .. })) => profile_milli(profile),
        (Some(part), _) => {
            let machine = node.map(|node| &node.machine);
            let replica_milli = machine.map_or(WHOLE_MILLI, |machine| machine.replica_milli());
            let device = slot.devices.iter().next().and_then(|index| machine?.devices.get(index as usize));
            part.device_milli(replica_milli, device.map_or(0, |device| device.memory_bytes))
        }
    }
}

/// Whether work is lost with a stop by this cause.
const fn loss_of(cause: &StopCause) -> Option<Loss> {
    match cause {
        StopCause::Preempted(_)
        | StopCause::Moved { .. }
        | StopCause::Displaced { class: FailureClass::Preemption, .. } => Some(Loss::Preemption),
        StopCause::Failure { .. } | StopCause::Displaced { .. } => Some(Loss::Failure),
        // As its owner wanted, or at a checkpoint.
        StopCause::Resized { .. }
        | StopCause::Cancelled { .. }
        | StopCause::TimeLimit
        | StopCause::IdleLimit
        | StopCause::ScaledIn { .. } => None,
    }
}

fn gone(record: &GangRecord) -> Gone {
    match &record.phase {
        Phase::Finished { ending: Ending::Failed { .. }, .. } => Gone::Lost(Loss::Failure),
        Phase::Finished { ending: Ending::Preempted { .. }, .. } => Gone::Lost(Loss::Preemption),
        Phase::Finished { .. } => Gone::Ended,
        _ => Gone::Waits,
    }
}
