//! Devices that pods have instead of those that were chosen for them.
//!
//! The kubelet hands devices out without naming the pod, so two that ask for as many may get each other's. The node's agent
//! reads back who has what and corrects the annotation of the pod; what was decided follows it here.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{DeviceMask, Input, MemberId, NodeName};

use super::submit::gang_of;
use crate::gang::Lifecycle;

/// A rank, and the devices that it has now.
type Move = (MemberId, DeviceMask);

impl Lifecycle {
    /// Tells the engine of ranks that have other devices. Of an exchange one half comes first, and would make free what the
    /// other still has: what contradicts the rest waits for the rest of the truth.
    pub(in crate::gang) fn settle_moved(&mut self) {
        let mut by_node: BTreeMap<NodeName, Vec<Move>> = BTreeMap::new();
        for (id, devices) in std::mem::take(&mut self.moved) {
            let Some(run) = self.run_mut(id).filter(|run| !run.is_stopping()) else { continue };
            let Some(slot) = run.placement.slots.get(id.rank as usize) else { continue };
            // Replicas of a device are counted, and not chosen.
            if slot.part.is_none() && slot.devices.count() == devices.count() && slot.devices != devices {
                by_node.entry(slot.node.clone()).or_default().push((id, devices));
            }
        }
        let mut told = Vec::new();
        for (node, moves) in by_node {
            let moving: BTreeSet<MemberId> = moves.iter().map(|(id, _)| *id).collect();
            let mut held = self.held_on(&node, &moving);
            let is_clear = moves.iter().all(|(_, devices)| {
                let is_free = held.and(*devices).is_empty();
                held = held.union(*devices);
                is_free
            });
            if is_clear && held.is_subset_of(self.cluster.nodes.devices(&node)) {
                for (id, devices) in &moves {
                    let slots = self.run_mut(*id).map(|run| &mut run.placement.slots);
                    let slot = slots.and_then(|slots| slots.get_mut(id.rank as usize));
                    slot.into_iter().for_each(|slot| slot.devices = *devices);
                }
                self.cluster.nodes.ours_are(&node, held);
                told.extend(moves);
            } else {
                self.moved.extend(moves);
            }
        }
        if !told.is_empty() {
            self.facts.push(Input::DevicesObserved { members: told });
        }
    }

    /// What our gangs hold on a node, some ranks apart. Nothing is kept for this: it is asked when a kubelet did otherwise.
    fn held_on(&self, node: &NodeName, without: &BTreeSet<MemberId>) -> DeviceMask {
        let submitted = self.gangs.values().filter_map(|gang| gang.job.as_ref());
        let runs = submitted.filter_map(|submitted| Some((submitted.id, submitted.run.as_ref()?)));
        let slots = runs.flat_map(|(job, run)| {
            let here = run.held().filter(|(_, slot)| slot.node == *node);
            here.map(move |(_, slot)| {
                (MemberId { gang: gang_of(job), attempt: run.attempt, rank: slot.rank }, slot.devices)
            })
        });
        slots
            .filter(|(id, _)| !without.contains(id))
            .fold(DeviceMask::EMPTY, |held, (_, devices)| held.union(devices))
    }
}
