//! The grader: evidence and time in, facts out.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use phalanx_model::{Bandwidth, DeviceMask, Grade, Health, JobId, NodeName, Timestamp};

use crate::evidence::{Finding, Kind, note, span};
use crate::state::{DEVICES_MAX, Node, State};
use crate::subject::{Counts, Subject};
use crate::{Evidence, Line, Policy, Repair, breaker, lemon, report};

/// Grades the devices of nodes, and the nodes.
#[derive(Clone, Debug, Default)]
pub struct Grader {
    policy: Policy,
    state: State,
}

impl Grader {
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, state: State::default() }
    }

    /// Goes on from a state that was kept over a restart.
    #[must_use]
    pub fn resume(policy: Policy, mut state: State) -> Self {
        for node in state.nodes.values_mut() {
            node.devices.truncate(DEVICES_MAX);
        }
        Self { policy, state }
    }

    pub(crate) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What to keep over a restart.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// All nodes, with the product names of their devices (64 at most). Nodes that are not named any more are forgotten,
    /// and so is what was found there: a node that is only silent has to be named.
    pub fn set_nodes(&mut self, nodes: impl IntoIterator<Item = (NodeName, Vec<String>)>) {
        let mut before = std::mem::take(&mut self.state.nodes);
        for (name, products) in nodes {
            let mut node = before.remove(&name).unwrap_or_default();
            node.set_products(products);
            self.state.nodes.insert(name, node);
        }
    }

    /// Evidence of a device, or of a node itself. Evidence of unknown ones is dropped.
    ///
    /// `tenants`: the jobs that hold it at the time. One error counts for one job, the first submitted: the errors of one
    /// bad job on a shared device are not those of its neighbours.
    pub fn observe(
        &mut self,
        now: Timestamp,
        node: &NodeName,
        device: Option<u32>,
        tenants: &[JobId],
        evidence: Evidence,
    ) {
        let policy = &self.policy;
        let Some(on) = self.state.nodes.get_mut(node) else { return };
        let generation = on.generation(device);
        let Some(subject) = on.subject_mut(device) else { return };
        let counts = match evidence {
            Evidence::Xid { number, text } => subject.xid(now, number, generation, &text, policy),
            Evidence::Vitals(vitals) if device.is_some() => subject.vitals(now, &vitals, policy),
            Evidence::Preflight { failure } => {
                subject.preflight(now, failure.as_deref());
                Counts::No
            }
            Evidence::Ports(ports) if device.is_none() => {
                subject.ports(now, &ports, policy);
                Counts::No
            }
            Evidence::Bandwidth { permille, by, text } if device.is_none() => {
                subject.bandwidth(now, permille, &by, &text);
                Counts::No
            }
            Evidence::Vitals(_) | Evidence::Ports(_) | Evidence::Bandwidth { .. } => Counts::No,
            Evidence::Report { grade, by, text } => {
                subject.report(now, grade, &by, &text);
                Counts::No
            }
        };
        if let (Counts::Yes, Some(index), Some(job)) = (counts, device, tenants.iter().min()) {
            lemon::count(&mut self.state, now, node, index, *job);
            self.compare(now, node, index);
        }
        self.regrade(now, node, device);
    }

    /// Compares the jobs that failed on a device with those that failed elsewhere.
    fn compare(&mut self, now: Timestamp, node: &NodeName, device: u32) {
        let wants = lemon::grade(&self.state, &self.policy, node, device);
        let window = span(self.policy.lemon_window_ms);
        let subject = self.subject_mut(node, Some(device));
        let Some(subject) = subject.filter(|_| wants > Grade::Ok) else { return };
        let detail = format!("{} jobs failed here in {window}", subject.failed_alone());
        note(&mut subject.seen, now, "more jobs fail here than on other devices");
        subject.find(Finding::new(Kind::Lemon, wants, Repair::None, &detail, now));
    }

    /// Time passed. `is_free`: whether no gang holds a device, or a node.
    ///
    /// Suspects without evidence are ok again, drained devices that need no repair come back on probation, and what the
    /// circuit breaker held is closed if there is room.
    pub fn tick(&mut self, now: Timestamp, is_free: &dyn Fn(&NodeName, Option<u32>) -> bool) {
        let mut held = Vec::new();
        for (name, node) in &mut self.state.nodes {
            for (device, subject) in node.subjects_mut() {
                subject.tick(now, &self.policy, || is_free(name, device));
                subject.regrade(now);
                if let Some(grade) = subject.held() {
                    held.push((Reverse(grade), subject.since, name.clone(), device));
                }
            }
        }
        let window_ms = self.policy.lemon_window_ms;
        self.state.failed.retain(|_, place| now.since(place.at) < window_ms);
        held.sort_unstable();
        for (_, _, name, device) in held {
            if breaker::room(&self.state, &self.policy).is_full() {
                break;
            }
            self.regrade(now, &name, device);
        }
    }

    /// The node booted again: its devices were reset.
    pub fn rebooted(&mut self, now: Timestamp, node: &NodeName) {
        let Some(on) = self.state.nodes.get_mut(node) else { return };
        let mut devices = Vec::new();
        for (device, subject) in on.subjects_mut() {
            subject.reboot(now, &self.policy);
            devices.push(device);
        }
        for device in devices {
            self.regrade(now, node, device);
        }
    }

    /// An operator says that a device, or a node itself, is repaired. If it was closed, it is on probation; if it was
    /// suspect, it is ok. What was remembered against it is forgotten.
    ///
    /// # Errors
    /// The node or the device is unknown, or is ok already.
    pub fn clear(
        &mut self,
        now: Timestamp,
        node: &NodeName,
        device: Option<u32>,
        by: &str,
    ) -> Result<(), String> {
        let on = self.state.nodes.get_mut(node).ok_or_else(|| format!("unknown node {node}"))?;
        let name = device.map_or_else(|| format!("node {node}"), |index| format!("device {index} of {node}"));
        let subject = on.subject_mut(device).ok_or_else(|| format!("unknown {name}"))?;
        if subject.is_clean() {
            return Err(format!("{name} is ok already"));
        }
        subject.clear(now, by, &self.policy);
        self.regrade(now, node, device);
        Ok(())
    }

    fn subject_mut(&mut self, node: &NodeName, device: Option<u32>) -> Option<&mut Subject> {
        self.state.nodes.get_mut(node)?.subject_mut(device)
    }

    /// Asks the circuit breaker, and derives the grade.
    fn regrade(&mut self, now: Timestamp, node: &NodeName, device: Option<u32>) {
        let Some(subject) = self.subject_mut(node, device) else { return };
        let is_admitted = !subject.automatic().is_closed()
            || subject.is_admitted
            || breaker::has_room(&self.state, &self.policy, node, device);
        if let Some(subject) = self.subject_mut(node, device) {
            subject.is_admitted = is_admitted;
            subject.regrade(now);
        }
    }

    /// The facts since the last call: one for each set of devices of a node with equal grade and detail.
    #[must_use]
    pub fn take_changes(&mut self) -> Vec<Health> {
        let mut facts = Vec::new();
        for (name, node) in &mut self.state.nodes {
            let gone = std::mem::take(&mut node.gone);
            if !gone.is_empty() {
                facts.push(Health {
                    node: name.clone(),
                    devices: gone,
                    grade: Grade::Ok,
                    detail: String::new(),
                });
            }
            facts.extend(grouped(name, node, |subject| subject.graded != subject.told));
            for (_, subject) in node.subjects_mut().filter(|(_, subject)| subject.graded != subject.told) {
                subject.told.clone_from(&subject.graded);
            }
        }
        facts
    }

    /// All grades that are not ok.
    #[must_use]
    pub fn facts(&self) -> Vec<Health> {
        let nodes = self.state.nodes.iter();
        nodes.flat_map(|(name, node)| grouped(name, node, |subject| subject.graded.is_some())).collect()
    }

    /// What is known of the bandwidth of nodes and has changed since the last call, or counts for less by now.
    #[must_use]
    pub fn take_bandwidths(&mut self, now: Timestamp) -> Vec<Bandwidth> {
        let (nodes, policy) = (self.state.nodes.iter_mut(), &self.policy);
        nodes.filter_map(|(name, node)| node.node.measured.news(name, now, policy)).collect()
    }

    /// All that is measured of the bandwidth of nodes, as it counts now.
    #[must_use]
    pub fn bandwidths(&self, now: Timestamp) -> Vec<Bandwidth> {
        let nodes = self.state.nodes.iter();
        nodes.filter_map(|(name, node)| node.node.measured.fact(name, now, &self.policy)).collect()
    }

    /// For people: all that is not ok or has evidence, worst first.
    #[must_use]
    pub fn report(&self) -> Vec<Line> {
        let subjects = |(name, node): (&NodeName, &Node)| {
            let known = node.subjects().filter(|(_, of)| !of.is_clean() || !of.seen.is_empty());
            known.map(|(device, of)| report::line(name, device, of, &self.policy)).collect::<Vec<Line>>()
        };
        let mut lines: Vec<Line> = self.state.nodes.iter().flat_map(subjects).collect();
        // Stable: nodes and devices keep their order.
        lines.sort_by_key(|line| Reverse((line.grade.max(line.held.unwrap_or_default()), line.grade)));
        lines
    }

    /// How many devices and nodes of [`Grader::report`] have which grade.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Grade, usize> {
        let mut counts = BTreeMap::new();
        for line in self.report() {
            *counts.entry(line.grade).or_default() += 1;
        }
        counts
    }

    /// Why the circuit breaker holds grades, if it does.
    #[must_use]
    pub fn is_breaker_open(&self) -> Option<String> {
        let subjects = self.state.nodes.values().flat_map(Node::subjects);
        let held = subjects.filter(|(_, of)| of.held().is_some()).count();
        let breaker::Room { closed, limit, all } = breaker::room(&self.state, &self.policy);
        let held_are = if held == 1 { "1 grade is".to_owned() } else { format!("{held} grades are") };
        let text =
            format!("{held_are} held: automation closed {closed} of {all} devices, and closes up to {limit}");
        (held > 0).then_some(text)
    }
}

/// Facts of the node itself and of its devices that are wanted; equal ones are one fact.
fn grouped(name: &NodeName, node: &Node, is_wanted: impl Fn(&Subject) -> bool) -> Vec<Health> {
    let fact = |devices: DeviceMask, grade: Grade, detail: &str| Health {
        node: name.clone(),
        devices,
        grade,
        detail: detail.to_owned(),
    };
    let mut facts = Vec::new();
    if is_wanted(&node.node) {
        facts.push(fact(DeviceMask::EMPTY, node.node.grade(), node.node.detail()));
    }
    let mut devices: BTreeMap<(Reverse<Grade>, &str), DeviceMask> = BTreeMap::new();
    for (index, of) in (0_u32..).zip(&node.devices).filter(|(_, of)| is_wanted(of)) {
        let mask = devices.entry((Reverse(of.grade()), of.detail())).or_default();
        *mask = mask.union(DeviceMask::one(index));
    }
    facts.extend(devices.into_iter().map(|((Reverse(grade), detail), mask)| fact(mask, grade, detail)));
    facts
}
