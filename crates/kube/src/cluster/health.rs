//! The grades that agents of nodes published, as the engine is told them.
//!
//! An agent sees one node, and closes there what has to be closed. How much of that takes effect is decided here, for the
//! cluster: what the circuit breaker holds is suspect, and stays open.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_health::{Admission, Policy};
use phalanx_model::{DeviceMask, Grade, Graded, Health, Input, NodeName};

use crate::crd::HealthSpec;

/// Grades that are not ok; without a number that of the node itself.
type Grades<T> = BTreeMap<Option<u32>, T>;

#[derive(Default)]
pub(crate) struct HealthState {
    policy: Policy,
    said: BTreeMap<NodeName, Grades<HealthSpec>>,
    told: BTreeMap<NodeName, Grades<Graded>>,
    admission: Admission,
    is_stale: bool,
}

impl HealthState {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// What the agent of a node says; nothing is said of a node without one.
    pub(crate) fn see(&mut self, node: &NodeName, grades: Grades<HealthSpec>) {
        let before = self.said.get(node);
        if before.is_none_or(BTreeMap::is_empty) && grades.is_empty() || before == Some(&grades) {
            return;
        }
        self.is_stale = true;
        match grades.is_empty() {
            true => drop(self.said.remove(node)),
            false => drop(self.said.insert(node.clone(), grades)),
        }
    }

    /// The engine knows a node with these devices from now on; it keeps their grades, and forgets those of others.
    pub(crate) fn node_told(&mut self, node: &NodeName, devices: DeviceMask) {
        if let Some(told) = self.told.get_mut(node) {
            told.retain(|device, _| device.is_none_or(|device| devices.contains(device)));
        }
        self.is_stale |= self.said.contains_key(node);
    }

    /// The engine knows a node no longer.
    pub(crate) fn forget_told(&mut self, node: &NodeName) {
        self.told.remove(node);
        self.is_stale |= self.said.contains_key(node);
    }

    /// Closed devices of a node, as the engine knows it.
    pub(crate) fn closed(&self, node: &NodeName) -> DeviceMask {
        let grades = self.told.get(node).into_iter().flatten();
        grades.filter(|(_, of)| of.grade.is_closed()).filter_map(|(device, _)| *device).collect()
    }

    /// What changed since the last time, as facts, and the nodes that it is about. `devices`: those of each node that the
    /// engine knows.
    pub(crate) fn tell(
        &mut self,
        devices: impl FnOnce() -> BTreeMap<NodeName, DeviceMask>,
        facts: &mut Vec<Input>,
    ) -> Vec<NodeName> {
        let mut changed = Vec::new();
        if !std::mem::take(&mut self.is_stale) {
            return changed;
        }
        let devices = devices();
        // A node without devices is nothing that automation closes.
        let counts = devices.iter().filter(|(_, devices)| !devices.is_empty());
        let counts = counts.map(|(node, devices)| (node.clone(), devices.count())).collect();
        let said = || self.said.iter().filter(|(node, _)| devices.contains_key(*node));
        let closing = |(node, grades): (&NodeName, &Grades<HealthSpec>)| -> Vec<_> {
            let grades = of_devices(grades, devices.get(node).copied().unwrap_or_default());
            grades.filter_map(|(device, of)| of.closing(node, *device)).collect()
        };
        let closings = said().flat_map(closing).collect();
        self.admission.judge(&self.policy, &counts, closings);
        let told: BTreeSet<NodeName> =
            self.told.keys().chain(said().map(|(node, _)| node)).cloned().collect();
        for node in told {
            let Some(there) = devices.get(&node) else { continue };
            let wanted = self.wanted(&node, *there);
            let before = self.told.remove(&node).unwrap_or_default();
            news(&node, &before, &wanted, facts);
            if before != wanted {
                changed.push(node.clone());
            }
            if !wanted.is_empty() {
                self.told.insert(node, wanted);
            }
        }
        changed
    }

    /// The grades of a node that take effect.
    fn wanted(&self, node: &NodeName, there: DeviceMask) -> Grades<Graded> {
        let said = self.said.get(node).into_iter().flat_map(|grades| of_devices(grades, there));
        let effective = said.map(|(device, of)| {
            let graded = of.graded();
            let is_held = of.closing(node, *device).is_some() && !self.admission.admits(node, *device);
            let held = || Graded {
                grade: Grade::Suspect,
                detail: format!("{}; its {} is held by the circuit breaker", graded.detail, graded.grade),
            };
            (*device, if is_held { held() } else { graded })
        });
        effective.collect()
    }

    /// Devices and nodes by the grades that take effect, and why the circuit breaker holds grades, if it does.
    pub(crate) fn counts(&self) -> (BTreeMap<Grade, usize>, Option<&str>) {
        let mut counts: BTreeMap<Grade, usize> = BTreeMap::new();
        for graded in self.told.values().flat_map(BTreeMap::values) {
            *counts.entry(graded.grade).or_default() += 1;
        }
        (counts, self.admission.held())
    }
}

/// The grades of these devices, and of the node itself.
fn of_devices(
    grades: &Grades<HealthSpec>,
    there: DeviceMask,
) -> impl Iterator<Item = (&Option<u32>, &HealthSpec)> {
    grades.iter().filter(move |(device, _)| device.is_none_or(|device| there.contains(device)))
}

/// What changed on a node; equal grades are one fact.
fn news(node: &NodeName, before: &Grades<Graded>, now: &Grades<Graded>, facts: &mut Vec<Input>) {
    let ok = || Graded { grade: Grade::Ok, detail: String::new() };
    let gone = before.keys().filter(|device| !now.contains_key(*device)).map(|device| (*device, ok()));
    let changed = now.iter().filter(|(device, graded)| before.get(*device) != Some(graded));
    let mut devices: BTreeMap<(Grade, String), DeviceMask> = BTreeMap::new();
    for (device, graded) in gone.chain(changed.map(|(device, graded)| (*device, graded.clone()))) {
        let Graded { grade, detail } = graded;
        match device {
            Some(device) => {
                let mask = devices.entry((grade, detail)).or_default();
                *mask = mask.union(DeviceMask::one(device));
            }
            None => facts.push(fact(node, DeviceMask::EMPTY, grade, detail)),
        }
    }
    facts.extend(devices.into_iter().map(|((grade, detail), mask)| fact(node, mask, grade, detail)));
}

fn fact(node: &NodeName, devices: DeviceMask, grade: Grade, detail: String) -> Input {
    Input::HealthGraded { health: Health { node: node.clone(), devices, grade, detail } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(node: &str) -> NodeName {
        NodeName::new(node).unwrap()
    }

    fn said(grade: &str, since: u32, automatic: bool) -> HealthSpec {
        let since = format!("2026-11-28T20:00:{since:02}Z");
        let said = json!({ "grade": grade, "reason": "Xid 79", "since": since, "automatic": automatic });
        serde_json::from_value(said).unwrap()
    }

    fn tell(state: &mut HealthState, nodes: &[&str]) -> Vec<String> {
        let mut facts = Vec::new();
        let devices = || nodes.iter().map(|node| (name(node), DeviceMask::first(8))).collect();
        state.tell(devices, &mut facts);
        let text = |fact: Input| match fact {
            Input::HealthGraded { health: Health { node, devices, grade, .. } } => {
                format!("{node} {devices} {grade}")
            }
            other => panic!("{other:?}"),
        };
        facts.into_iter().map(text).collect()
    }

    #[test]
    fn equal_grades_of_a_node_are_one_fact_and_told_once() {
        let mut state = HealthState::default();
        let grades = [(Some(1), "DrainNow"), (Some(2), "DrainNow"), (Some(9), "Broken"), (None, "Suspect")];
        let grades = grades.into_iter().map(|(device, grade)| (device, said(grade, 1, false)));
        state.see(&name("a"), grades.collect());
        // The node is not known yet; the tenth device never is.
        assert!(tell(&mut state, &["b"]).is_empty());
        state.node_told(&name("a"), DeviceMask::first(8));
        assert_eq!(tell(&mut state, &["a", "b"]), ["a - suspect", "a 1-2 drain_now"]);
        assert!(tell(&mut state, &["a", "b"]).is_empty());
        state.see(&name("a"), [(Some(2), said("DrainNow", 1, false))].into());
        assert_eq!(tell(&mut state, &["a"]), ["a - ok", "a 1 ok"]);
        // It left and came back.
        state.forget_told(&name("a"));
        assert_eq!(tell(&mut state, &["a"]), ["a 2 drain_now"]);
        state.see(&name("a"), BTreeMap::new());
        assert_eq!(tell(&mut state, &["a"]), ["a 2 ok"]);
    }

    #[test]
    fn the_circuit_breaker_holds_what_automation_closes_beyond_a_share() {
        let mut state = HealthState::default();
        let nodes = ["a", "b"];
        // 8 of 16: half of a small cluster.
        let all = |grade: &str, since, automatic| -> Grades<HealthSpec> {
            (0..8).map(|device| (Some(device), said(grade, since, automatic))).collect()
        };
        state.see(&name("a"), all("DrainNow", 1, true));
        state.see(&name("b"), all("DrainNow", 2, true));
        assert_eq!(tell(&mut state, &nodes), ["a 0-7 drain_now", "b 0-7 suspect"]);
        let (counts, held) = state.counts();
        assert_eq!(counts, [(Grade::Suspect, 8), (Grade::DrainNow, 8)].into());
        assert!(held.unwrap().starts_with("8 grades are held"));
        // People close what they like, and a repair makes room.
        state.see(&name("b"), all("Broken", 2, false));
        assert_eq!(tell(&mut state, &nodes), ["b 0-7 broken"]);
        state.see(&name("b"), all("DrainNow", 2, true));
        assert_eq!(tell(&mut state, &nodes), ["b 0-7 suspect"]);
        state.see(&name("a"), BTreeMap::new());
        assert_eq!(tell(&mut state, &nodes), ["a 0-7 ok", "b 0-7 drain_now"]);
    }
}
