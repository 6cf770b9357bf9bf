//! The checker's own plain books.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{
    Admin, DeviceMask, Effect, EffectId, Exit, Gang, GangId, GangRecord, Input, Job, JobId, LevelName,
    Levels, MemberId, MemberState, Node, NodeName, Order, Phase, Placement, Segment, Slot, SyncKind,
};

use crate::Violation;

/// One attempt that may hold devices.
#[derive(Clone, Debug)]
struct Attempt {
    placement: Placement,
    ready: BTreeSet<u32>,
    exited: BTreeSet<u32>,
    /// Not found after a restart: lost, or never begun and to be started again.
    missing: BTreeSet<u32>,
    released: bool,
}

impl Attempt {
    fn is_over(&self) -> bool {
        let gone = |rank| self.exited.contains(rank) || self.missing.contains(rank);
        self.placement.slots.iter().all(|s| gone(&s.rank))
    }

    fn all_exited(&self) -> bool {
        self.placement.slots.iter().all(|s| self.exited.contains(&s.rank))
    }

    /// Who ended well had been let through, whether or not that was heard of.
    fn end(&mut self, rank: u32, exit: &Exit) {
        self.exited.insert(rank);
        if exit.is_success() {
            self.ready.insert(rank);
        }
    }

    fn is_ready(&self) -> bool {
        self.placement.slots.iter().all(|s| self.ready.contains(&s.rank))
    }
}

/// Watches a stream of steps. A violation is reported once, when it happens.
#[derive(Clone, Debug, Default)]
pub struct Checker {
    levels: Option<Levels>,
    nodes: BTreeMap<NodeName, Node>,
    jobs: BTreeMap<JobId, Job>,
    cancelled: BTreeSet<JobId>,
    /// The current or last attempt of each gang.
    attempts: BTreeMap<GangId, (u32, Attempt)>,
    last_effect: Option<EffectId>,
    /// Orders to start that were not answered.
    starts: BTreeMap<EffectId, (GangId, u32)>,
    /// What a list in progress has not named yet.
    unlisted_nodes: BTreeSet<NodeName>,
    unlisted_jobs: BTreeSet<JobId>,
    unlisted_members: BTreeSet<MemberId>,
}

impl Checker {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One step: the facts that went in, the orders that came out.
    pub fn observe(&mut self, inputs: &[Input], effects: &[Effect]) -> Vec<Violation> {
        let mut found = Vec::new();
        for input in inputs {
            self.fact(input, &mut found);
        }
        for effect in effects {
            if self.last_effect.is_some_and(|last| effect.id <= last) {
                found.push(Violation::EffectOrder { id: effect.id.to_string() });
            }
            self.last_effect = Some(effect.id);
            if let Order::StartMembers { gang, attempt, .. } = &effect.order {
                // An order given again counts for the one before it.
                self.starts.retain(|_, start| *start != (*gang, *attempt));
                self.starts.insert(effect.id, (*gang, *attempt));
            }
            self.order(&effect.order, &mut found);
        }
        found
    }

    /// No gang holds anything: what must be true once all work is done.
    #[must_use]
    pub fn holds_nothing(&self) -> bool {
        self.attempts.values().all(|(_, a)| a.is_over())
    }

    fn fact(&mut self, input: &Input, found: &mut Vec<Violation>) {
        match input {
            Input::LevelsConfigured { levels } => self.levels = Some(levels.clone()),
            Input::SyncBegin { kind } => self.list_begins(*kind),
            Input::SyncEnd { kind } => self.list_ends(*kind),
            Input::NodeObserved { node } => self.observe_node(node),
            Input::NodeRemoved { node } => self.remove_node(node),
            Input::NodeCordoned { node } => self.set_admin(node, Admin::Cordoned),
            Input::NodeUncordoned { node } => self.set_admin(node, Admin::Open),
            Input::DrainRequested { node } => self.set_admin(node, Admin::Draining),
            Input::JobSubmitted { job } => {
                self.jobs.entry(job.id).or_insert_with(|| (**job).clone());
            }
            Input::JobObserved { job, gangs } => {
                self.jobs.insert(job.id, (**job).clone());
                self.unlisted_jobs.remove(&job.id);
                for record in gangs {
                    self.observe_record(record);
                }
            }
            Input::CancelRequested { job, .. } if self.jobs.contains_key(job) => {
                self.cancelled.insert(*job);
            }
            Input::MemberReady { member } => {
                if let Some(attempt) = self.attempt(member.gang, member.attempt) {
                    attempt.ready.insert(member.rank);
                }
            }
            Input::MemberReleased { member } => {
                if let Some(attempt) = self.attempt(member.gang, member.attempt)
                    && !attempt.released
                {
                    found.push(Violation::RanBeforeGate { member: *member });
                }
            }
            Input::MemberExited { member, exit } => {
                if let Some(attempt) = self.attempt(member.gang, member.attempt) {
                    attempt.end(member.rank, exit);
                }
            }
            Input::MemberObserved { member, state } => {
                self.unlisted_members.remove(member);
                if let Some(attempt) = self.attempt(member.gang, member.attempt) {
                    match state {
                        MemberState::Ready | MemberState::Running => {
                            attempt.ready.insert(member.rank);
                        }
                        MemberState::Exited(exit) => attempt.end(member.rank, exit),
                        MemberState::Requested => {}
                    }
                }
            }
            Input::EffectDone { effect } | Input::EffectUnknown { effect } => {
                self.starts.remove(effect);
            }
            Input::EffectFailed { effect, .. } => self.start_failed(*effect),
            _ => {}
        }
    }

    /// Nothing of the order happened: whoever is not at the gate was never started.
    fn start_failed(&mut self, effect: EffectId) {
        let Some((gang, number)) = self.starts.remove(&effect) else { return };
        if let Some(attempt) = self.attempt(gang, number) {
            let ranks = attempt.placement.slots.iter().map(|s| s.rank);
            attempt.exited.extend(ranks.filter(|r| !attempt.ready.contains(r)));
        }
    }

    /// A node whose path does not have one domain per level is no node of this cluster.
    fn observe_node(&mut self, node: &Node) {
        if self.levels.as_ref().is_some_and(|l| l.above.len() != node.path.len())
            || node.machine.devices.len() > phalanx_model::DEVICES_PER_NODE_MAX as usize
        {
            return;
        }
        self.unlisted_nodes.remove(&node.name);
        self.nodes.insert(node.name.clone(), node.clone());
    }

    fn list_begins(&mut self, kind: SyncKind) {
        match kind {
            SyncKind::Nodes => self.unlisted_nodes = self.nodes.keys().cloned().collect(),
            SyncKind::Jobs => self.unlisted_jobs = self.jobs.keys().copied().collect(),
            SyncKind::Members => self.unlisted_members = self.living().collect(),
        }
    }

    fn living(&self) -> impl Iterator<Item = MemberId> {
        self.attempts.iter().flat_map(|(gang, (number, attempt))| {
            let ranks = attempt.placement.slots.iter().map(|s| s.rank);
            let living = ranks.filter(|r| !attempt.exited.contains(r));
            living.map(|rank| MemberId { gang: *gang, attempt: *number, rank })
        })
    }

    /// What was not listed is gone.
    fn list_ends(&mut self, kind: SyncKind) {
        match kind {
            SyncKind::Nodes => {
                for node in std::mem::take(&mut self.unlisted_nodes) {
                    self.remove_node(&node);
                }
            }
            SyncKind::Jobs => {
                for job in std::mem::take(&mut self.unlisted_jobs) {
                    self.jobs.remove(&job);
                    self.attempts.retain(|gang, _| gang.job != job);
                }
            }
            SyncKind::Members => {
                for member in std::mem::take(&mut self.unlisted_members) {
                    if let Some(attempt) = self.attempt(member.gang, member.attempt) {
                        attempt.missing.insert(member.rank);
                    }
                }
            }
        }
    }

    fn attempt(&mut self, gang: GangId, number: u32) -> Option<&mut Attempt> {
        self.attempts.get_mut(&gang).filter(|(n, _)| *n == number).map(|(_, a)| a)
    }

    fn observe_record(&mut self, record: &GangRecord) {
        if matches!(record.phase, Phase::Finished { .. }) {
            self.attempts.remove(&record.id);
            return;
        }
        let Some(placement) = record.placement.clone() else {
            let ended = Attempt {
                placement: Placement { slots: Vec::new(), level: fallback_level(self.levels.as_ref()) },
                ready: BTreeSet::new(),
                exited: BTreeSet::new(),
                missing: BTreeSet::new(),
                // Over; its late answers are history.
                released: true,
            };
            self.attempts.insert(record.id, (record.attempt, ended));
            return;
        };
        let ranks = |wanted: fn(&MemberState) -> bool| -> BTreeSet<u32> {
            (0..).zip(&record.members).filter(|(_, m)| wanted(&m.state)).map(|(r, _)| r).collect()
        };
        let attempt = Attempt {
            placement,
            ready: ranks(|s| !matches!(s, MemberState::Requested)),
            exited: ranks(|s| matches!(s, MemberState::Exited(_))),
            missing: BTreeSet::new(),
            released: self.attempt(record.id, record.attempt).is_some_and(|a| a.released)
                || ranks(|s| matches!(s, MemberState::Running)).iter().next().is_some()
                || matches!(record.phase, Phase::Running { .. } | Phase::Stopping { .. }),
        };
        self.attempts.insert(record.id, (record.attempt, attempt));
    }

    fn remove_node(&mut self, node: &NodeName) {
        self.nodes.remove(node);
        for (_, attempt) in self.attempts.values_mut() {
            let gone = attempt.placement.slots.iter().filter(|s| s.node == *node).map(|s| s.rank);
            attempt.exited.extend(gone);
        }
    }

    fn set_admin(&mut self, node: &NodeName, admin: Admin) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.admin = admin;
        }
    }

    fn order(&mut self, order: &Order, found: &mut Vec<Violation>) {
        match order {
            Order::StartMembers { gang, attempt, placement, .. } => {
                self.start(*gang, *attempt, placement, found);
            }
            Order::ReleaseMembers { gang, attempt: number } => {
                let whole = self.attempt(*gang, *number).map(|a| {
                    a.released = true;
                    a.is_ready()
                });
                if whole != Some(true) {
                    found.push(Violation::ReleasedInPart { gang: *gang, attempt: *number });
                }
            }
            Order::SignalMembers { gang, attempt, .. } | Order::KillMembers { gang, attempt } => {
                if self.attempt(*gang, *attempt).is_none_or(|a| a.all_exited()) {
                    found.push(Violation::OrderAfterEnd { gang: *gang, attempt: *attempt });
                }
            }
        }
    }

    fn start(&mut self, id: GangId, number: u32, placement: &Placement, found: &mut Vec<Violation>) {
        // After a restart an order may be given again: the same attempt in the same place, for members that
        // were not found.
        if let Some((n, a)) = self.attempts.get_mut(&id)
            && *n == number
            && a.placement == *placement
            && !a.released
        {
            a.missing.clear();
            return;
        }
        let Some(gang) = self.jobs.get(&id.job).and_then(|j| j.gangs.get(usize::from(id.index))).cloned()
        else {
            found.push(Violation::UnknownGang { gang: id });
            return;
        };
        if self.cancelled.contains(&id.job) {
            found.push(Violation::StartedAfterCancel { gang: id });
        }
        match self.attempts.get(&id) {
            Some((running, a)) if !a.is_over() => {
                found.push(Violation::StartedTwice { gang: id, running: *running });
            }
            _ => {}
        }
        let expected = self.attempts.get(&id).map_or(1, |(n, _)| n + 1);
        if number != expected {
            found.push(Violation::AttemptOutOfOrder { gang: id, attempt: number, expected });
        }
        self.check_whole(id, &gang, placement, found);
        self.check_devices(id, &gang, placement, found);
        self.check_level(id, &gang, placement, found);
        self.check_segments(id, &gang, placement, found);
        let attempt = Attempt {
            placement: placement.clone(),
            ready: BTreeSet::new(),
            exited: BTreeSet::new(),
            missing: BTreeSet::new(),
            released: false,
        };
        self.attempts.insert(id, (number, attempt));
        self.check_amounts(&gang, placement, found);
    }

    fn check_whole(&self, id: GangId, gang: &Gang, placement: &Placement, found: &mut Vec<Violation>) {
        if placement.slots.len() != gang.size as usize {
            found.push(Violation::NotWhole { gang: id, size: gang.size, placed: placement.slots.len() });
        }
        for (place, slot) in placement.slots.iter().enumerate() {
            if slot.rank as usize != place {
                found.push(Violation::RankOutOfOrder { gang: id, rank: slot.rank, place });
            }
        }
        let mut per_node: BTreeMap<&NodeName, u32> = BTreeMap::new();
        for slot in &placement.slots {
            *per_node.entry(&slot.node).or_default() += 1;
        }
        for (node, got) in per_node {
            if let Some(wanted) = gang.members_per_node.filter(|w| *w != got) {
                found.push(Violation::UnequalNodes { gang: id, node: node.clone(), wanted, got });
            }
        }
    }

    fn check_devices(&self, id: GangId, gang: &Gang, placement: &Placement, found: &mut Vec<Violation>) {
        let mut own: BTreeMap<&NodeName, DeviceMask> = BTreeMap::new();
        for slot in &placement.slots {
            let Some(node) = self.nodes.get(&slot.node).filter(|n| n.admin == Admin::Open) else {
                found.push(Violation::NodeNotOpen { gang: id, node: slot.node.clone() });
                continue;
            };
            if !gang.needs.nodes.is_empty() && !gang.needs.nodes.contains(&slot.node) {
                found.push(Violation::NodeNotNamed { gang: id, node: slot.node.clone() });
            }
            let got = slot.devices.count();
            if got != gang.needs.devices {
                let needs = gang.needs.devices;
                found.push(Violation::WrongDeviceCount { gang: id, rank: slot.rank, needs, got });
            }
            let wanted: Vec<String> = gang.needs.models.iter().map(|m| m.model.to_lowercase()).collect();
            let good = slot.devices.iter().all(|d| {
                !node.foreign.contains(d)
                    && node.machine.devices.get(d as usize).is_some_and(|device| {
                        let model = device.model.to_lowercase();
                        wanted.is_empty() || wanted.iter().any(|w| model.contains(w.as_str()))
                    })
            });
            if !good {
                let (node, devices) = (slot.node.clone(), slot.devices);
                found.push(Violation::NotItsDevices { gang: id, node, devices });
            }
            let mine = own.entry(&slot.node).or_default();
            self.check_unshared(id, &slot.node, slot.devices, *mine, found);
            *mine = mine.union(slot.devices);
        }
    }

    fn check_unshared(
        &self,
        id: GangId,
        node: &NodeName,
        devices: DeviceMask,
        own: DeviceMask,
        found: &mut Vec<Violation>,
    ) {
        let mut twice = |holder: GangId, shared: DeviceMask| {
            if !shared.is_empty() {
                found.push(Violation::DeviceTwice { gang: id, holder, node: node.clone(), devices: shared });
            }
        };
        twice(id, devices.and(own));
        for (other, (_, attempt)) in
            self.attempts.iter().filter(|(other, (_, a))| **other != id && !a.is_over())
        {
            for slot in attempt.placement.slots.iter().filter(|s| s.node == *node) {
                twice(*other, devices.and(slot.devices));
            }
        }
    }

    /// CPUs and memory of everything that lives, on the nodes of a start and of what it needs. Elsewhere the
    /// world may be worse than the books: a node that shrank is no fault of this start.
    fn check_amounts(&self, gang: &Gang, placement: &Placement, found: &mut Vec<Violation>) {
        let touched: BTreeSet<&NodeName> = placement.slots.iter().map(|s| &s.node).collect();
        let mut used: BTreeMap<&NodeName, (u64, u64)> = BTreeMap::new();
        for (id, (_, attempt)) in self.attempts.iter().filter(|(_, (_, a))| !a.is_over()) {
            let Some(gang) = self.jobs.get(&id.job).and_then(|j| j.gangs.get(usize::from(id.index))) else {
                continue;
            };
            for slot in &attempt.placement.slots {
                let (cpu, memory) = used.entry(&slot.node).or_default();
                *cpu = cpu.saturating_add(gang.needs.cpu_milli);
                *memory = memory.saturating_add(gang.needs.memory_bytes);
            }
        }
        for (name, (cpu, memory)) in used.into_iter().filter(|(name, _)| touched.contains(name)) {
            let Some(node) = self.nodes.get(name) else { continue };
            let amounts = [
                ("cpu_milli", gang.needs.cpu_milli, node.machine.cpu_milli, cpu),
                ("memory_bytes", gang.needs.memory_bytes, node.machine.memory_bytes, memory),
            ];
            let over = amounts.into_iter().filter(|(_, needs, has, wanted)| *needs > 0 && wanted > has);
            for (what, _, has, wanted) in over {
                found.push(Violation::OverCapacity { node: name.clone(), what, has, wanted });
            }
        }
    }

    fn check_level(&self, id: GangId, gang: &Gang, placement: &Placement, found: &mut Vec<Violation>) {
        if let Some(level) = &gang.topology.required
            && !self.is_together(&placement.slots, level)
        {
            found.push(Violation::OutsideRequiredLevel { gang: id, level: level.to_string() });
        }
    }

    /// Ranks 0..size, size..2×size and so on, each in one domain; the last are fewer where that does not come out.
    fn check_segments(&self, id: GangId, gang: &Gang, placement: &Placement, found: &mut Vec<Violation>) {
        for Segment { size, level } in &gang.topology.segments {
            let parts = placement.slots.chunks((*size).max(1) as usize);
            for part in parts.filter(|part| !self.is_together(part, level)) {
                let ranks = |slot: Option<&Slot>| slot.map_or(0, |slot| slot.rank);
                let (first, last) = (ranks(part.first()), ranks(part.last()));
                found.push(Violation::SegmentApart { gang: id, level: level.to_string(), first, last });
            }
        }
    }

    /// Whether these ranks are inside one domain of a level. Levels are not known before they are configured.
    fn is_together(&self, slots: &[Slot], level: &LevelName) -> bool {
        let Some(levels) = &self.levels else { return true };
        let domain_of = |slot: &Slot| -> Option<(Vec<String>, DeviceMask)> {
            let node = self.nodes.get(&slot.node)?;
            let mut path: Vec<String> = node.path.iter().map(ToString::to_string).collect();
            if let Some(depth) = levels.above.iter().position(|l| l == level) {
                path.truncate(depth + 1);
                return Some((path, DeviceMask::EMPTY));
            }
            path.push(slot.node.to_string());
            if *level == levels.node {
                return Some((path, DeviceMask::EMPTY));
            }
            let groups = node.machine.groups.iter().filter(|g| g.level == *level);
            let group = groups.map(|g| g.devices).find(|g| slot.devices.is_subset_of(*g))?;
            Some((path, group))
        };
        let mut domains = slots.iter().map(domain_of);
        let first = domains.next().flatten();
        first.is_some() && domains.all(|d| d == first)
    }
}

fn fallback_level(levels: Option<&Levels>) -> LevelName {
    levels.map_or_else(
        || LevelName::new("node").unwrap_or_else(|_| unreachable!("a constant name")),
        |l| l.node.clone(),
    )
}
