//! What gangs that wait were promised: it stands on their queues, for the next leader to keep.

use std::collections::BTreeMap;

use phalanx_model::{GangRecord, Job, JobId, LevelName, Placement, QueueName, Reserved};

use crate::crd::{PROMISES_MAX, PromiseStatus, ReservedStatus};
use crate::gang::Lifecycle;
use crate::gang::lifecycle::submit::gang_of;
use crate::gang::pods::{PLACEMENT_BYTES_MAX, placement_text, read_slots, rfc3339, timestamp};
use crate::recognise::GangKey;

/// Of all places that are written on one queue: a status is refused as a whole if it is larger than an object may be.
const PLACES_BYTES_MAX: usize = 512 << 10;

/// What an engine keeps of a gang that waits and no object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promise {
    pub job: JobId,
    pub queue: QueueName,
    /// How often gangs behind it started before it.
    pub bypassed: u32,
    pub reserved: Option<Reserved>,
}

impl Promise {
    /// What a gang of a job was promised, if it waits and was promised anything.
    #[must_use]
    pub fn of(job: &Job, gang: &GangRecord) -> Option<Self> {
        let is_one = gang.is_pending() && (gang.bypassed > 0 || gang.reserved.is_some());
        is_one.then(|| Self {
            job: job.id,
            queue: job.queue.clone(),
            bypassed: gang.bypassed,
            reserved: gang.reserved.clone(),
        })
    }
}

/// What an earlier leader wrote, by gang, until the first lists are told.
#[derive(Default)]
pub(in crate::gang) struct Promised {
    of_gangs: BTreeMap<String, PromiseStatus>,
}

impl Promised {
    pub(in crate::gang) fn read<'a>(promises: impl Iterator<Item = &'a PromiseStatus>) -> Self {
        Self { of_gangs: promises.map(|promise| (promise.gang.clone(), promise.clone())).collect() }
    }
}

impl PromiseStatus {
    /// Nothing where there is nothing to keep.
    fn of(key: &GangKey, promise: &Promise) -> Option<Self> {
        let reserved = promise.reserved.as_ref().and_then(ReservedStatus::of);
        let is_one = promise.bypassed > 0 || reserved.is_some();
        is_one.then(|| Self {
            gang: key.to_string(),
            uid: key.uid.as_deref().map(str::to_owned),
            passed_over: i64::from(promise.bypassed),
            reserved,
        })
    }

    /// What it says of a gang; nothing where that is another one by now.
    fn read(&self, key: &GangKey, job: &Job) -> Option<GangRecord> {
        if self.uid.as_deref() != key.uid.as_deref() {
            return None;
        }
        let reserved = self.reserved.as_ref().and_then(ReservedStatus::read);
        let bypassed = u32::try_from(self.passed_over).unwrap_or(0);
        Some(GangRecord { bypassed, reserved, ..GangRecord::pending(gang_of(job.id), job.submitted_at) })
    }
}

impl ReservedStatus {
    /// Nothing where it has no words: parts of devices have none, and one that is too long for an object.
    fn of(reserved: &Reserved) -> Option<Self> {
        let Placement { slots, level } = &reserved.placement;
        let placement = placement_text(slots);
        let has_parts = slots.iter().any(|slot| slot.part.is_some());
        (!has_parts && placement.len() <= PLACEMENT_BYTES_MAX).then_some(())?;
        let starts_at = match reserved.at {
            Some(at) => Some(rfc3339(at)?),
            None => None,
        };
        Some(Self {
            starts_at,
            made_at: rfc3339(reserved.made_at)?,
            is_cleared: reserved.evicts,
            level: level.to_string(),
            placement,
        })
    }

    fn read(&self) -> Option<Reserved> {
        let at = match &self.starts_at {
            Some(text) => Some(timestamp(text)?),
            None => None,
        };
        let placement = Placement {
            slots: read_slots(&self.placement)?,
            level: LevelName::new(self.level.as_str()).ok()?,
        };
        Some(Reserved { placement, at, evicts: self.is_cleared, made_at: timestamp(&self.made_at)? })
    }
}

impl Lifecycle {
    /// As they are written on queues. A place beyond [`PLACES_BYTES_MAX`] is not: how often its gang was passed over is.
    pub(in crate::gang) fn promises(&self, promises: &[Promise]) -> BTreeMap<QueueName, Vec<PromiseStatus>> {
        let mut of_queues: BTreeMap<QueueName, (usize, Vec<PromiseStatus>)> = BTreeMap::new();
        for promise in promises {
            let status = self.jobs.get(&promise.job).and_then(|key| PromiseStatus::of(key, promise));
            let Some(mut status) = status else { continue };
            let (bytes, of_queue) = of_queues.entry(promise.queue.clone()).or_default();
            let place_bytes = status.reserved.as_ref().map_or(0, |reserved| reserved.placement.len());
            if *bytes + place_bytes > PLACES_BYTES_MAX {
                status.reserved = None;
            } else {
                *bytes += place_bytes;
            }
            if of_queue.len() < PROMISES_MAX {
                of_queue.push(status);
            }
        }
        of_queues.into_iter().map(|(queue, (_, of_queue))| (queue, of_queue)).collect()
    }

    /// What an earlier leader promised to a gang that waits. A place that is no longer there is no promise.
    pub(in crate::gang) fn promised(&mut self, key: &GangKey, job: &Job) -> Option<GangRecord> {
        let promise = self.promised.of_gangs.remove(&key.to_string())?;
        let mut record = promise.read(key, job)?;
        let members = job.gangs.first()?.member_count();
        let is_there = |reserved: &Reserved| {
            let slots = &reserved.placement.slots;
            let has = |slot: &phalanx_model::Slot| {
                let devices = self.cluster.nodes.devices(&slot.node);
                self.cluster.nodes.get(&slot.node).is_some() && slot.devices.minus(devices).is_empty()
            };
            u32::try_from(slots.len()).is_ok_and(|slots| slots == members) && slots.iter().all(has)
        };
        record.reserved = record.reserved.filter(is_there);
        Some(record)
    }
}

#[cfg(test)]
mod tests;
