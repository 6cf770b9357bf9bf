//! Nodes that offer replicas of their GPUs, and no whole ones.

use std::collections::BTreeMap;

use phalanx_model::{NodeName, ResourceName};

use super::{CLAIMABLE, NodeState};
use crate::api;
use crate::cluster::hardware;
use crate::filter::{Capacity, DividedGpus, GPU, Held, Requirements};
use crate::messages::{Call, GangEvent};
use crate::recognise::ObjectRef;

/// Replicas that pods request by the name of whole GPUs. Every node has some for as long as one node has: all that a node with
/// whole GPUs needs, and as many as the kubelet of a node with replicas counts.
const REPLICAS: &str = "nvidia.com/gpu/replicas";

/// See the module.
#[derive(Default)]
pub(super) struct Divided {
    nodes: BTreeMap<NodeName, DividedGpus>,
    /// Those whose replicas have the name of whole GPUs.
    plain: usize,
    has_changed: bool,
    /// Events about labels that do not agree.
    calls: Vec<Call>,
}

impl Divided {
    pub(super) fn of(&self, name: &NodeName) -> Option<&DividedGpus> {
        self.nodes.get(name)
    }
}

impl NodeState {
    /// How a node divides its GPUs; `None` if it offers whole ones.
    pub(crate) fn divided(&self, name: &NodeName) -> Option<&DividedGpus> {
        self.divided.of(name)
    }

    /// Whether pods may get a replica where they request one GPU.
    pub(crate) const fn has_plain_replicas(&self) -> bool {
        self.divided.plain > 0
    }

    /// A node that offers such replicas.
    pub(crate) fn plain_replicas(&self) -> Option<&NodeName> {
        let mut plain = self.divided.nodes.iter().filter(|(_, divided)| divided.is_plain());
        plain.next().map(|(name, _)| name).filter(|_| self.has_plain_replicas())
    }

    /// Whether nodes divide their GPUs otherwise than the last time, or other nodes do.
    pub(crate) fn take_divided(&mut self) -> bool {
        std::mem::take(&mut self.divided.has_changed)
    }

    /// What people are told about labels of nodes.
    pub(crate) fn divided_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.divided.calls)
    }

    /// Whether all nodes that may have this pod and offer GPUs offer replicas by that name, and there is one.
    pub(crate) fn offers_only_replicas(&self, pod: &Requirements) -> bool {
        let mut is_any = false;
        for (name, entry) in self.nodes.iter().filter(|(_, entry)| self.used.takes(&entry.node)) {
            let offers = entry.node.status.allocatable.contains_key(GPU) || self.published.contains_key(name);
            if !offers || pod.terms.admits(&entry.node).is_err() {
                continue;
            }
            match self.divided(name) {
                Some(divided) if divided.is_plain() => is_any = true,
                Some(_) => {}
                None => return false,
            }
        }
        is_any
    }

    /// A node is there, or is no more. What is counted of replicas is counted on all nodes or on none.
    pub(super) fn see_divided(&mut self, name: &NodeName, node: Option<&api::Node>) {
        let now = node.and_then(DividedGpus::of);
        let before = self.divided.nodes.get(name);
        // A node with whole GPUs counts too where others have replicas.
        self.divided.has_changed |= self.divided.plain > 0;
        if before == now.as_ref() {
            return;
        }
        let is_plain = |of: Option<&DividedGpus>| usize::from(of.is_some_and(DividedGpus::is_plain));
        let had_plain = self.divided.plain > 0;
        self.divided.plain = self.divided.plain + is_plain(now.as_ref()) - is_plain(before);
        let problem = now.as_ref().and_then(|now| now.problem.clone());
        let is_news = before.and_then(|before| before.problem.as_ref()) != problem.as_ref();
        if let Some((node, note)) = node.zip(problem).filter(|_| is_news) {
            self.divided.calls.push(Call::Tell(Box::new(warning(node, note))));
        }
        match now {
            Some(now) => drop(self.divided.nodes.insert(name.clone(), now)),
            None => drop(self.divided.nodes.remove(name)),
        }
        self.divided.has_changed = true;
        if had_plain != (self.divided.plain > 0) {
            self.changed.extend(self.nodes.keys().cloned());
        }
    }

    /// How many replicas a node has, if they are counted.
    pub(super) fn replicas_there(&self, name: &NodeName, capacity: &Capacity) -> Option<(ResourceName, u64)> {
        let offered = capacity.amounts.extended.get(GPU).copied().unwrap_or(0);
        let count = match self.divided(name) {
            Some(divided) if divided.is_plain() => offered,
            Some(_) => 0,
            None => CLAIMABLE,
        };
        replicas().filter(|_| self.has_plain_replicas() && count > 0).map(|resource| (resource, count))
    }

    /// How many of them others hold.
    pub(super) fn replicas_held(&self, name: &NodeName, others: &Held) -> Option<(ResourceName, u64)> {
        self.divided(name).filter(|divided| divided.is_plain())?;
        let held = *others.amounts.extended.get(GPU)?;
        replicas().map(|resource| (resource, held))
    }
}

fn warning(node: &api::Node, note: String) -> GangEvent {
    let about = ObjectRef {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        namespace: String::new(),
        name: node.name().to_owned(),
        uid: node.metadata.uid.clone(),
        any_version: false,
    };
    GangEvent { about, reason: "GpuLabelsInvalid", is_warning: true, note }
}

/// Replicas as the engine counts them.
pub(crate) fn replicas() -> Option<ResourceName> {
    hardware::resource(REPLICAS)
}
