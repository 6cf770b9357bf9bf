//! Queues and the use of their gangs, counted from the placements. If a part of a device can be counted in several
//! ways, the smallest count is used.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::queue::contains;
use phalanx_model::{
    Class, Device, DevicePart, GangId, Input, Job, Needs, PartNeed, Queue, QueueName, QueueOrder, Reclaim,
    Resource, Settings,
};

use crate::mig::Board;
use crate::start::{Member, Start};
use crate::{Checker, Violation};

/// As they were observed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    pub(crate) settings: Settings,
    queues: BTreeMap<QueueName, Queue>,
    unlisted: BTreeSet<QueueName>,
}

impl Queues {
    /// A rejected fact changes nothing. `refused` are the subjects that were rejected in this step.
    pub(crate) fn fact(&mut self, input: &Input, refused: &[&str]) {
        let is_refused =
            |name: &str| refused.iter().any(|what| what.split([' ', ',', ':']).any(|word| word == name));
        match input {
            Input::SettingsConfigured { settings } if !is_refused("settings") => {
                self.settings = (**settings).clone();
            }
            Input::QueueObserved { queue } => {
                self.unlisted.remove(&queue.name);
                if !is_refused(queue.name.as_str()) {
                    self.queues.insert(queue.name.clone(), (**queue).clone());
                }
            }
            Input::QueueRemoved { queue } if !is_refused(queue.as_str()) => {
                self.queues.remove(queue);
            }
            _ => {}
        }
    }

    pub(crate) fn list_begins(&mut self) {
        self.unlisted = self.queues.keys().cloned().collect();
    }

    pub(crate) fn list_ends(&mut self) {
        for queue in std::mem::take(&mut self.unlisted) {
            self.queues.remove(&queue);
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Queue> {
        self.queues.values()
    }

    /// A queue and its ancestors. An unknown queue has no limits to check.
    pub(crate) fn path(&self, name: &QueueName) -> Vec<&Queue> {
        let mut path: Vec<&Queue> = Vec::new();
        let mut next = self.queues.get(name);
        while let Some(queue) = next.filter(|_| path.len() < self.queues.len()) {
            path.push(queue);
            next = queue.parent.as_ref().and_then(|parent| self.queues.get(parent));
        }
        path
    }

    pub(crate) fn is_on_path(&self, name: &QueueName, of: &QueueName) -> bool {
        name == of || self.path(of).iter().any(|queue| queue.name == *name)
    }

    /// The guarantee of a queue for a resource: its own, and at least the sum of the guarantees of its children.
    pub(crate) fn guaranteed(&self, name: &QueueName, resource: &Resource) -> u64 {
        let said = self.queues.get(name).and_then(|queue| queue.guaranteed.get(resource)).copied();
        let is_below = |queue: &&Queue| {
            queue.parent.as_ref() == Some(name)
                && !self.path(name).iter().any(|above| above.name == queue.name)
        };
        let below = self.queues.values().filter(is_below).map(|queue| self.guaranteed(&queue.name, resource));
        below.fold(0, u64::saturating_add).max(said.unwrap_or(0))
    }

    /// Resources with a guarantee of any queue, and devices.
    pub(crate) fn guaranteed_resources(&self) -> BTreeSet<&Resource> {
        let said = self.queues.values().flat_map(|queue| queue.guaranteed.keys());
        said.chain([&Resource::Gpus]).collect()
    }

    /// The order of a queue, as far as it concerns a job.
    pub(crate) fn order(&self, job: &Job) -> Option<&QueueOrder> {
        let said = self.queues.get(&job.queue).and_then(|queue| queue.order.as_ref());
        said.or_else(|| job.saves_work().then_some(&self.settings.order))
    }

    /// Whether a queue does not exist although other queues do.
    pub(crate) fn is_gone(&self, name: &QueueName) -> bool {
        !self.queues.is_empty() && !self.queues.contains_key(name)
    }

    /// Whether a queue or one of its ancestors has a guarantee. (If reclaim goes up to the fair share, every queue
    /// has a fair share.)
    pub(crate) fn is_owed(&self, name: &QueueName) -> bool {
        let has_own = |queue: &&Queue| !queue.guaranteed.is_empty() || !queue.shapes.is_empty();
        self.settings.reclaim == Reclaim::FairShare || self.path(name).iter().any(has_own)
    }

    pub(crate) fn class(&self, job: &Job) -> Option<&Class> {
        self.settings.class(job.turn.class.as_ref())
    }

    /// Of one device.
    fn unit(&self, device: &Device, resource: &Resource) -> u64 {
        match resource {
            Resource::Gpus => self.settings.worth_of(&device.model),
            Resource::Model(text) if contains(&device.model, text) => 1_000,
            _ => 0,
        }
    }
}

/// In addition to its devices.
fn plain(needs: &Needs, resource: &Resource) -> u64 {
    match resource {
        Resource::Cpus => needs.cpu_milli,
        Resource::Memory => needs.memory_bytes,
        Resource::Named(name) => needs.named.get(name).copied().unwrap_or(0),
        Resource::Gpus | Resource::Model(_) => 0,
    }
}

impl Checker {
    /// Checks the limits of the queue and its ancestors for the resources that the start needs. A limit may be
    /// lowered below current use: a start that needs none of the resource is not at fault.
    pub(crate) fn check_quota(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        let Some(job) = self.jobs.get(&start.id.job) else { return };
        for queue in self.queues.path(&job.queue) {
            for (resource, limit) in &queue.limit {
                let own = start.placement.slots.iter().map(|slot| Member { of: *start, slot });
                let own = own.map(|member| self.amount(member, resource)).fold(0, u64::saturating_add);
                let used = self.used(&queue.name, resource, &BTreeSet::new());
                if own > 0 && used > *limit {
                    let (queue, resource) = (queue.name.clone(), resource.clone());
                    found.push(Violation::OverQuota { gang: start.id, queue, resource, limit: *limit, used });
                }
            }
            let of_queue = |id: &GangId| self.is_in(*id, &queue.name);
            let running = self.living_gangs().filter(of_queue).count();
            if let Some(most) = queue.caps.running_max.filter(|most| running > *most as usize) {
                let queue = queue.name.clone();
                found.push(Violation::TooManyRunning { gang: start.id, of: format!("queue {queue}"), most });
            }
        }
    }

    /// The use of the gangs of a queue and its descendants, without some gangs.
    pub(crate) fn used(&self, queue: &QueueName, resource: &Resource, without: &BTreeSet<GangId>) -> u64 {
        let members = self.living_members().filter(|member| !without.contains(&member.of.id));
        let members = members.filter(|member| self.is_in(member.of.id, queue));
        members.map(|member| self.amount(member, resource)).fold(0, u64::saturating_add)
    }

    /// The use of a gang at its placement, or at its reservation.
    pub(crate) fn amount_of(&self, of: Start<'_>, resource: &Resource) -> u64 {
        let members = of.placement.slots.iter().map(|slot| Member { of, slot });
        members.map(|member| self.amount(member, resource)).fold(0, u64::saturating_add)
    }

    pub(crate) fn is_in(&self, gang: GangId, queue: &QueueName) -> bool {
        self.jobs.get(&gang.job).is_some_and(|job| self.queues.is_on_path(queue, &job.queue))
    }

    /// The use of a member at its slot.
    fn amount(&self, member: Member<'_>, resource: &Resource) -> u64 {
        let machine = self.nodes.get(&member.slot.node).map(|node| &node.machine);
        let devices = member.slot.devices.iter().filter_map(|d| machine?.devices.get(d as usize));
        let of_devices = devices.map(|device| {
            let part_milli = match (&member.slot.part, &member.needs().part) {
                (None, _) => 1_000,
                (Some(DevicePart::Slice { profile, .. }), _) => {
                    let milli = |board: Board| Some(board.counted_milli(&board.instance(profile)?));
                    Board::of(device).and_then(milli).unwrap_or(0)
                }
                (Some(DevicePart::Share), Some(PartNeed::Share { compute_milli, memory_bytes, .. })) => {
                    // The larger part of the device counts.
                    let of_memory = u128::from(*memory_bytes) * 1_000;
                    let of_memory = of_memory.checked_div(device.memory_bytes.into()).unwrap_or(0);
                    u32::try_from(of_memory).unwrap_or(u32::MAX).max(*compute_milli).min(1_000)
                }
                (Some(DevicePart::Share), Some(PartNeed::Replica)) => {
                    machine.map_or(0, |machine| machine.replica_milli())
                }
                (Some(DevicePart::Share), _) => 0,
            };
            self.queues.unit(device, resource).saturating_mul(part_milli.into()) / 1_000
        });
        of_devices.fold(plain(member.needs(), resource), u64::saturating_add)
    }

    /// The least use of a gang in any placement.
    pub(crate) fn demand(&self, id: GangId, resource: &Resource) -> u64 {
        let Some(gang) = self.gang(id) else { return 0 };
        let sizes = [gang.min.min(gang.size)].into_iter().chain(gang.roles.iter().map(|role| role.size));
        let each = gang.all_needs().map(|needs| {
            let milli = match &needs.part {
                None => u64::from(needs.devices) * 1_000,
                Some(PartNeed::Share { compute_milli, .. }) => u64::from(*compute_milli),
                Some(PartNeed::Slice { .. } | PartNeed::Profile(_) | PartNeed::Replica) => 0,
            };
            let suits = |device: &&Device| {
                needs.models.is_empty() || needs.models.iter().any(|of| contains(&device.model, &of.model))
            };
            let devices = self.nodes.values().flat_map(|node| &node.machine.devices).filter(suits);
            let least = devices.map(|device| self.queues.unit(device, resource)).min().unwrap_or(0);
            plain(needs, resource).saturating_add(least.saturating_mul(milli) / 1_000)
        });
        let all = sizes.zip(each).map(|(size, each)| each.saturating_mul(size.into()));
        all.fold(0, u64::saturating_add)
    }
}
