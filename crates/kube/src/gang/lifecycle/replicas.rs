//! Which pods may have a replica of a GPU where they request a GPU by its plain name.
//!
//! NVIDIA's device plugin gives no guarantee for more than one replica, so pods that request several GPUs get whole ones. A pod
//! that starts alone and requests one takes what its node offers, as with kube-scheduler. Pods of one gang talk to each other,
//! and two of them on one GPU cannot (NCCL refuses): they get replicas only if their nodes offer nothing else.

use phalanx_model::{DevicePart, Gang as EngineGang, Placement};

use crate::cluster::needs;
use crate::filter::GPU;
use crate::gang::Lifecycle;
use crate::gang::state::{Gang, Seat};
use crate::recognise::GangKey;

impl Lifecycle {
    /// Settles which ranks may have replicas.
    pub(in crate::gang) fn take_replicas(&self, key: &GangKey, seats: &mut [Seat]) {
        let takes = self.takes_replicas(key, seats);
        for seat in seats {
            seat.more.takes_replica = takes && gpus_of(seat) == 1;
        }
    }

    /// Whether that is otherwise by now than when the gang was handed in.
    pub(in crate::gang) fn is_offered_otherwise(&self, key: &GangKey) -> bool {
        let Some(submitted) = self.gangs.get(key).and_then(|gang| gang.job.as_ref()) else { return false };
        let seats = &submitted.seats;
        if !seats.iter().any(|seat| gpus_of(seat) == 1) {
            return false;
        }
        seats.iter().any(|seat| seat.more.takes_replica) != self.takes_replicas(key, seats)
    }

    /// Looks again at pending gangs that request GPUs, if nodes divide theirs otherwise.
    pub(in crate::gang) fn follow_divided(&mut self) {
        if !self.cluster.nodes.take_divided() {
            return;
        }
        let is_pending = |gang: &Gang| {
            let submitted = gang.job.as_ref().filter(|submitted| submitted.run.is_none());
            submitted.is_some_and(|submitted| submitted.seats.iter().any(|seat| gpus_of(seat) == 1))
        };
        self.changed
            .extend(self.gangs.iter().filter(|(_, gang)| is_pending(gang)).map(|(key, _)| key.clone()));
    }

    /// Why a gang of several pods does not use replicas that nodes offer by the name of whole GPUs.
    pub(in crate::gang) fn unused_shares(&self, seats: &[Seat]) -> Option<String> {
        let is_of_whole = |seat: &Seat| gpus_of(seat) == 1 && !seat.more.takes_replica;
        let (nodes, name) = (&self.cluster.nodes, self.cluster.nodes.plain_replicas()?);
        if seats.len() < 2 || !seats.iter().any(is_of_whole) {
            return None;
        }
        let (key, value) = &nodes.divided(name)?.sign;
        Some(format!(
            "nodes that divide their GPUs, such as {name} ({key}={value}), are not used: pods of a gang get shares only if \
             their nodes offer no whole {GPU}"
        ))
    }

    fn takes_replicas(&self, key: &GangKey, seats: &[Seat]) -> bool {
        let nodes = &self.cluster.nodes;
        let asking = || seats.iter().filter(|seat| needs::devices(&seat.requirements) > 0);
        let is_of_one = |seat: &Seat| seat.more.claims.is_none() && gpus_of(seat) == 1;
        if !nodes.has_plain_replicas() || !asking().all(is_of_one) || asking().next().is_none() {
            return false;
        }
        let pods = self.gangs.get(key).map(|gang| &gang.pods);
        let node = |seat: &Seat| pods?.get(seat.pod.as_ref()?)?.known.node.as_ref();
        let mut bound = asking().filter_map(node).peekable();
        if bound.peek().is_some() {
            return bound.any(|name| nodes.divided(name).is_some_and(|divided| divided.is_plain()));
        }
        if seats.len() == 1 && self.near(key).is_empty() {
            return true;
        }
        let mut asked: Vec<_> = asking().map(|seat| &seat.requirements).collect();
        asked.dedup();
        asked.into_iter().all(|pod| nodes.offers_only_replicas(pod))
    }
}

/// A placement that was read back says which device each rank has, and not that it is a part of it.
pub(in crate::gang) fn with_parts(placement: &mut Placement, gang: &EngineGang) {
    for slot in &mut placement.slots {
        let has_part = gang.needs_of(gang.role_of(slot.rank)).part.is_some();
        slot.part = has_part.then_some(DevicePart::Share);
    }
}

/// GPUs that it requests by their plain name; 0 if it requests other devices too.
fn gpus_of(seat: &Seat) -> u64 {
    let pod = &seat.requirements;
    let gpus = pod.amounts.extended.get(GPU).copied().unwrap_or(0);
    if gpus == u64::from(needs::devices(pod)) { gpus } else { 0 }
}
