//! The resources that queues share: those that some queue names, and the amounts of each that a gang has or requests.

use std::collections::BTreeSet;

use phalanx_model::machine::replica_milli;
use phalanx_model::queue::contains;
use phalanx_model::{
    Amounts, DeviceMask, Gang, Needs, PartNeed, Placement, Queue, Resource, ResourceName, Settings,
};

use crate::cluster::kind::Kind;
use crate::cluster::{Pick, Piece, Tree, milli_of_slice};

/// Amounts of all resources, in their order. Wide enough for sums of any amounts that a job can request: every added
/// amount is subtracted again to the last unit.
pub(crate) type ResourceList = Vec<u128>;

/// Devices of all models: always the first of the resources.
pub(crate) const GPUS: usize = 0;
pub(super) const WHOLE_MILLI: u128 = 1_000;
/// The bound if none is configured.
pub(crate) const UNBOUNDED: u128 = u128::MAX;

/// The resources that queues are charged for: devices, CPUs and memory, and any other resource that a queue names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceKinds(Vec<Resource>);

impl ResourceKinds {
    pub(crate) fn of<'a>(queues: impl Iterator<Item = &'a Queue>) -> Self {
        let mut spoken_of = BTreeSet::from([Resource::Gpus, Resource::Cpus, Resource::Memory]);
        for queue in queues {
            let all = [&queue.guaranteed, &queue.limit, &queue.lend_max];
            spoken_of.extend(all.into_iter().flat_map(|amounts| amounts.keys().cloned()));
        }
        // Devices sort first.
        Self(spoken_of.into_iter().collect())
    }

    pub(crate) fn all(&self) -> &[Resource] {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The amounts that a queue configures; `otherwise` for resources that it does not name.
    pub(crate) fn said(&self, amounts: &Amounts, otherwise: u128) -> ResourceList {
        self.0.iter().map(|of| amounts.get(of).map_or(otherwise, |amount| u128::from(*amount))).collect()
    }

    /// The amounts that a gang holds at these picks.
    pub(crate) fn held(&self, tree: &Tree, settings: &Settings, picks: &[Pick], gang: &Gang) -> ResourceList {
        let mut amounts = vec![0; self.len()];
        for pick in picks {
            let Some(node) = tree.nodes.get(pick.node as usize) else { continue };
            let kind = tree.kind(node);
            let needs = gang.needs_of(pick.role());
            self.add_hosted(&mut amounts, needs, u128::from(pick.members));
            for (model, devices) in kind.models() {
                let mine = pick.devices.and(*devices);
                let milli = match pick.piece {
                    Piece::Whole => u128::from(mine.count()) * WHOLE_MILLI,
                    _ if mine.is_empty() => 0,
                    Piece::Share => share_milli(needs, kind, mine),
                    Piece::Slice { profile, .. } => milli_of_slice(kind, mine, profile).into(),
                };
                self.add_devices(&mut amounts, milli, worth_of(settings, model), |text| {
                    contains(model, text)
                });
            }
        }
        amounts
    }

    /// Adds what members hold on nodes that are gone: they may still be there, and what they need of CPUs, memory and
    /// named resources is theirs until they are known to have ended. Of the devices nothing is known.
    pub(crate) fn add_lost(
        &self,
        amounts: &mut ResourceList,
        tree: &Tree,
        placement: &Placement,
        gang: &Gang,
    ) {
        for slot in placement.slots.iter().filter(|slot| tree.index_of(&slot.node).is_none()) {
            self.add_hosted(amounts, gang.needs_of(gang.role_of(slot.rank)), 1);
        }
    }

    /// The least amounts that a gang will hold, wherever it is placed.
    pub(crate) fn least(&self, tree: &Tree, settings: &Settings, gang: &Gang) -> ResourceList {
        let mut amounts = vec![0; self.len()];
        for (needs, size) in gang.all_members() {
            let members = u128::from(size);
            self.add_hosted(&mut amounts, needs, members);
            let each = match &needs.part {
                None => u128::from(needs.devices) * WHOLE_MILLI,
                Some(PartNeed::Share { compute_milli, .. } | PartNeed::Slice { compute_milli, .. }) => {
                    u128::from(*compute_milli)
                }
                Some(PartNeed::Profile(_)) => 1,
                Some(PartNeed::Replica) => {
                    let fitting = tree.kinds.iter().filter(|kind| !kind.eligible(needs).is_empty());
                    fitting.map(|kind| replica_milli(kind.replicas()).into()).min().unwrap_or(1)
                }
            };
            if each == 0 {
                continue;
            }
            let models: Vec<&str> = tree.models_for(needs);
            let worth = models.iter().map(|model| worth_of(settings, model)).min().unwrap_or(WHOLE_MILLI);
            let is_always = |text: &str| !models.is_empty() && models.iter().all(|m| contains(m, text));
            self.add_devices(&mut amounts, each * members, worth, is_always);
        }
        amounts
    }

    /// The capacity of the cluster.
    pub(crate) fn capacity(&self, tree: &Tree, settings: &Settings) -> ResourceList {
        let mut amounts = vec![0; self.len()];
        for node in 0..tree.nodes.len() {
            self.add_node(&mut amounts, tree, settings, node);
        }
        for (name, amount) in tree.resources.of_domains_alone() {
            self.add(&mut amounts, &Resource::Named(name.clone()), amount.into());
        }
        amounts
    }

    /// The amounts that one node adds to the capacity.
    pub(crate) fn of_node(&self, tree: &Tree, settings: &Settings, node: usize) -> ResourceList {
        let mut amounts = vec![0; self.len()];
        self.add_node(&mut amounts, tree, settings, node);
        amounts
    }

    fn add_node(&self, amounts: &mut ResourceList, tree: &Tree, settings: &Settings, at: usize) {
        let node = &tree.nodes[at];
        for (model, devices) in tree.kind(node).models() {
            let milli = u128::from(node.usable.devices.and(*devices).count()) * WHOLE_MILLI;
            self.add_devices(amounts, milli, worth_of(settings, model), |text| contains(model, text));
        }
        let hosted = [(Resource::Cpus, node.total.cpu_milli), (Resource::Memory, node.total.memory_bytes)];
        for (of, amount) in hosted {
            self.add(amounts, &of, u128::try_from(amount).unwrap_or(0));
        }
        for (name, amount) in tree.resources.of_node(at) {
            self.add_named(amounts, name, amount.into());
        }
    }

    fn add_named(&self, amounts: &mut ResourceList, name: &ResourceName, more: u128) {
        let is_named = |known: &Resource| matches!(known, Resource::Named(of) if of == name);
        if let Some(at) = self.0.iter().position(is_named) {
            amounts[at] += more;
        }
    }

    fn add_devices(
        &self,
        amounts: &mut ResourceList,
        milli: u128,
        worth: u128,
        is_of: impl Fn(&str) -> bool,
    ) {
        if milli == 0 {
            return;
        }
        amounts[GPUS] += milli * worth / WHOLE_MILLI;
        for (amount, of) in amounts.iter_mut().zip(&self.0) {
            if let Resource::Model(text) = of
                && is_of(text)
            {
                *amount += milli;
            }
        }
    }

    fn add_hosted(&self, amounts: &mut ResourceList, needs: &Needs, members: u128) {
        for (amount, of) in amounts.iter_mut().zip(&self.0) {
            let each = match of {
                Resource::Cpus => needs.cpu_milli,
                Resource::Memory => needs.memory_bytes,
                Resource::Named(name) => needs.named.get(name).copied().unwrap_or(0),
                Resource::Gpus | Resource::Model(_) => 0,
            };
            *amount += u128::from(each) * members;
        }
    }

    fn add(&self, amounts: &mut ResourceList, of: &Resource, more: u128) {
        if let Some(at) = self.0.iter().position(|known| known == of) {
            amounts[at] += more;
        }
    }
}

/// A share of a device counts as the larger of its parts of the compute and of the memory of the device.
fn share_milli(needs: &Needs, kind: &Kind, device: DeviceMask) -> u128 {
    let (compute_milli, memory_bytes) = match &needs.part {
        Some(PartNeed::Share { compute_milli, memory_bytes, .. }) => (compute_milli, memory_bytes),
        Some(PartNeed::Replica) => return replica_milli(kind.replicas()).into(),
        _ => return WHOLE_MILLI,
    };
    let of_memory = u128::from(*memory_bytes) * WHOLE_MILLI;
    let of_memory = of_memory.checked_div(u128::from(kind.memory_of(device))).unwrap_or(0);
    u128::from(*compute_milli).max(of_memory).min(WHOLE_MILLI)
}

fn worth_of(settings: &Settings, model: &str) -> u128 {
    settings.worth_of(model).into()
}

/// `a + b`, item by item.
pub(crate) fn add(sum: &mut [u128], more: &[u128]) {
    sum.iter_mut().zip(more).for_each(|(a, b)| *a += *b);
}

pub(crate) fn subtract(sum: &mut [u128], less: &[u128]) {
    sum.iter_mut().zip(less).for_each(|(a, b)| *a = a.saturating_sub(*b));
}

/// Whether the requested amounts fit beside the used amounts under a bound, for every resource that is requested.
pub(crate) fn fits(used: &[u128], asked: &[u128], bound: &[u128]) -> bool {
    used.iter().zip(asked).zip(bound).all(|((u, a), b)| *a == 0 || *u + *a <= *b)
}
