//! Spare nodes: no start takes one that is kept for gangs that lose hardware.
//!
//! Which nodes are spare is the engine's choice. What must hold is that, of the nodes of a domain that could be spare before
//! the starts of a step, as many are left as are to be kept, or all of them if they are fewer.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Change, DomainName, GangId, Job, Node, NodeName, Placement, Preemption, Spares};

use crate::{Checker, Violation};

/// By domain, the nodes that could be spare.
pub(crate) type Able = BTreeMap<Vec<DomainName>, BTreeSet<NodeName>>;

impl Checker {
    /// The nodes that could be spare now. Nothing if none are kept.
    pub(crate) fn able_to_be_spare(&self) -> Able {
        let mut able = Able::new();
        let Some((spares, depth)) = self.kept_spares() else { return able };
        let mut stays: BTreeSet<&NodeName> = BTreeSet::new();
        for member in self.living_members() {
            if !self.fills(member.of.id, spares) {
                stays.insert(&member.slot.node);
            }
        }
        let is_whole = |node: &&Node| {
            node.is_open()
                && node.spot.is_none()
                && !node.machine.devices.is_empty()
                && node.barred_devices().is_empty()
                && !stays.contains(&node.name)
        };
        for node in self.nodes.values().filter(is_whole) {
            let domain = node.path.get(..depth).unwrap_or(&node.path).to_vec();
            able.entry(domain).or_default().insert(node.name.clone());
        }
        able
    }

    fn kept_spares(&self) -> Option<(&Spares, usize)> {
        let (spares, levels) = (self.queues.settings.spares.as_ref()?, self.levels.as_ref()?);
        let at = match &spares.level {
            Some(level) => levels.above.iter().position(|above| above == level)?,
            None => 0,
        };
        Some((spares, at + 1))
    }

    /// Whether the starts of a step left the spare nodes that there were, but for those that gangs took that lost hardware.
    /// Nodes that others leave for a gang are no spare nodes.
    pub(crate) fn check_spares(&self, able: &Able, changes: &[Change], found: &mut Vec<Violation>) {
        let Some((spares, _)) = self.kept_spares() else { return };
        let nodes = |place: &Placement| -> Vec<NodeName> {
            place.slots.iter().map(|slot| slot.node.clone()).collect()
        };
        let before: BTreeMap<GangId, &Placement> =
            self.preemptions.cleared().filter(|(gang, _)| !self.fills(*gang, spares)).collect();
        let left_for: BTreeSet<NodeName> = before.values().flat_map(|place| nodes(place)).collect();
        let mut cleared: BTreeSet<GangId> = self.preemptions.cleared().map(|(gang, _)| gang).collect();
        // What is taken by right in this step, and when of its cycles, shows in no order.
        let mut taken = BTreeSet::new();
        let mut started: Vec<(GangId, &Placement)> = Vec::new();
        for change in changes {
            match change {
                Change::GangReserved { gang, reserved } if reserved.evicts => {
                    cleared.insert(*gang);
                    if !self.fills(*gang, spares) {
                        taken.extend(nodes(&reserved.placement));
                    }
                }
                Change::GangPlaced { gang, placement, .. } if self.lost_hardware.contains(gang) => {
                    taken.extend(nodes(placement));
                }
                Change::GangPlaced { gang, placement, .. } => started.push((*gang, placement)),
                _ => {}
            }
        }
        for (domain, able) in able {
            let mut left: BTreeSet<&NodeName> = able.difference(&left_for).collect();
            let kept = left.len().min(spares.nodes as usize);
            let due = kept.saturating_sub(left.iter().filter(|node| taken.contains(**node)).count());
            left.retain(|node| !taken.contains(*node));
            for (gang, place) in &started {
                if cleared.contains(gang) || self.fills(*gang, spares) {
                    continue;
                }
                place.slots.iter().for_each(|slot| {
                    left.remove(&slot.node);
                });
                if left.len() < due {
                    let domain = domain.last().map_or_else(String::new, ToString::to_string);
                    found.push(Violation::SpareTaken { gang: *gang, domain });
                    break;
                }
            }
        }
    }

    /// Whether a gang uses spare nodes until they are needed.
    fn fills(&self, gang: GangId, spares: &Spares) -> bool {
        spares.is_filled
            && self.jobs.get(&gang.job).is_some_and(takes_spot)
            && !self.preemptions.is_protected(gang)
    }

    /// Whether a gang is stopped wrongly for another that needs its spare node.
    pub(crate) fn leaves_no_spare(&self, gang: GangId, preemption: &Preemption) -> Option<String> {
        let by = preemption.by;
        let nodes = self.attempts.get(&gang).map(|(_, attempt)| &attempt.placement.slots);
        let needs = |node: &NodeName| self.preemptions.is_cleared(by, node);
        if !self.lost_hardware.contains(&by) {
            return Some(format!("gang {by} lost no hardware"));
        }
        if !self.queues.settings.spares.as_ref().is_some_and(|spares| spares.is_filled) {
            return Some("spare nodes are not filled".to_owned());
        }
        if !self.jobs.get(&gang.job).is_some_and(takes_spot) {
            return Some("it does not take spot nodes".to_owned());
        }
        let is_in_the_way = nodes.is_some_and(|slots| slots.iter().any(|slot| needs(&slot.node)));
        (!is_in_the_way).then(|| format!("gang {by} has no place on its nodes"))
    }
}

const fn takes_spot(job: &Job) -> bool {
    job.turn.takes_spot
}
