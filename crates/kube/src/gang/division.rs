//! Gangs whose own pods have to be in different domains, see [`crate::constraint::division`].

use std::sync::Arc;

use phalanx_model::{NodeName, Spread, Topology};

use super::Lifecycle;
use super::state::{Gang, Run, Seat};
use crate::constraint::division::{Count, Division, Request, Room};
use crate::filter::Requirements;
use crate::recognise::{GangKey, GangSpec, LevelRef};

/// Searches for domains are bounded, see [`crate::constraint::division::searches`].
pub(in crate::gang) const SEARCHED_LATER: &str =
    "its domains are searched after those of other gangs whose pods have to be in different domains";

impl Lifecycle {
    /// Has members that must be in different domains placed so: by a bound in `topology`, or each in a domain that it is
    /// dealt to.
    ///
    /// # Errors
    /// Whose rules hold nowhere, wherever the others are.
    pub(in crate::gang) fn divide(
        &mut self,
        key: &GangKey,
        spec: Option<&GangSpec>,
        seats: &mut [Seat],
        topology: &mut Topology,
    ) -> Result<(), String> {
        // Those that are each alone in a domain already are apart.
        if spec.is_some_and(|spec| spec.roles.iter().any(|role| role.leads)) {
            return Ok(());
        }
        let Some(division) = self.division(key, spec, seats)? else { return Ok(()) };
        let label = division.keys.first().cloned().unwrap_or_default();
        if let Some(max) = division.most
            && let Ok(level) = self.cluster.nodes.level(&LevelRef::Label(label))
        {
            topology.spread.push(Spread { level, max });
            return Ok(());
        }
        // Labels beside the levels have given them their domains.
        if seats.iter().any(|seat| seat.more.domain.is_some()) {
            return Ok(());
        }
        // Parts that have to be together are of equal members.
        let is_bound = |seat: &Seat| spec.is_some_and(|spec| spec.role_bound(seat.role.as_deref()).is_some());
        if !topology.segments.is_empty() || seats.iter().any(is_bound) {
            return Ok(());
        }
        if !self.may_search(key) {
            return Err(SEARCHED_LATER.to_owned());
        }
        let requests: Vec<Request> = seats.iter().map(Seat::request).collect();
        let mut free = self.room();
        let mut trials = 0;
        let is_free = division.deal(&requests, &self.cluster.nodes, &mut free, Count::Free, &mut trials);
        self.constraints.room = Some(free);
        let domains = is_free
            .or_else(|_| division.deal_on_empty_nodes(&requests, &self.cluster.nodes, &mut trials))
            .inspect_err(|_| self.rechecks.look_again(key));
        self.constraints.searches.end(key, trials);
        let domains = domains?;
        for (seat, (domain, turn)) in seats.iter_mut().zip(domains) {
            (seat.more.domain, seat.turn) = (Some(domain), turn);
        }
        Ok(())
    }

    /// Whether a gang that waits has no room in the domains that it was dealt to, and has in others.
    pub(in crate::gang) fn is_better_divided(
        &mut self,
        key: &GangKey,
        spec: Option<&GangSpec>,
        seats: &[Seat],
    ) -> bool {
        if let Some(is_better) = self.is_better_by_labels(spec, seats) {
            return is_better;
        }
        let Ok(Some(division)) = self.division(key, spec, seats) else { return true };
        if !self.may_search(key) {
            return false;
        }
        let free = self.room();
        let mut trials = 0;
        let mut fits = |requests: &[Request]| {
            let nodes = &self.cluster.nodes;
            division.deal(requests, nodes, &mut free.clone(), Count::Free, &mut trials).is_ok()
        };
        let anywhere = |seat: &Seat| Request { domain: None, ..seat.request() };
        let as_dealt: Vec<Request> = seats.iter().map(Seat::request).collect();
        let is_better = !fits(&as_dealt) && fits(&seats.iter().map(anywhere).collect::<Vec<_>>());
        self.constraints.searches.end(key, trials);
        self.constraints.room = Some(free);
        is_better
    }

    /// Whether the domains of a gang may be searched now; otherwise it is looked at again.
    fn may_search(&mut self, key: &GangKey) -> bool {
        let may_begin = self.constraints.searches.may_begin(key);
        if let Err(at) = may_begin {
            self.rechecks.look_again_at(at, key);
        }
        may_begin.is_ok()
    }

    /// What is free now.
    pub(in crate::gang) fn room(&mut self) -> Room {
        self.constraints.room.take().unwrap_or_else(|| self.room_now())
    }

    /// The same, counted again.
    pub(in crate::gang) fn room_now(&self) -> Room {
        Room::of(&self.cluster.nodes, held_by(self.gangs.values()))
    }

    /// The pods of a gang, where rules of theirs divide it.
    fn division(
        &self,
        key: &GangKey,
        spec: Option<&GangSpec>,
        seats: &[Seat],
    ) -> Result<Option<Division>, String> {
        let faces: Option<Vec<_>> = seats.iter().map(|seat| self.face(key, spec, seat)).collect();
        let Some(faces) = faces
            .filter(|faces| faces.len() > 1 && faces.iter().any(|(_, face)| face.particular().is_some()))
        else {
            return Ok(None);
        };
        let pods: Vec<Arc<_>> = faces.iter().map(|(name, face)| face.pod(&key.namespace, name)).collect();
        Division::of(pods, &self.constraints.affinity, &self.cluster.nodes, &self.cluster.bound_pods)
    }
}

/// What members of these gangs hold of nodes.
fn held_by<'a>(
    gangs: impl Iterator<Item = &'a Gang>,
) -> impl Iterator<Item = (&'a NodeName, &'a Requirements)> {
    gangs.filter_map(|gang| gang.job.as_ref()).flat_map(|submitted| {
        let slots = submitted.run.iter().flat_map(Run::held);
        slots.filter_map(|(rank, slot)| Some((&slot.node, &*submitted.seats.get(rank)?.requirements)))
    })
}

impl Seat {
    fn request(&self) -> Request {
        Request { requirements: Arc::clone(&self.requirements), domain: self.more.domain.clone() }
    }
}
