//! Rules of topology that name a label of nodes which is no level: a pool of nodes, a room. What they ask is dealt out by
//! [`crate::constraint::division::by_label`].

use super::topology::{preferred_of, rule_of};
use crate::cluster::nodes::DomainOf;
use crate::constraint::division::by_label::{self, Dealt, Member, Part};
use crate::constraint::division::{Count, Room};
use crate::gang::Lifecycle;
use crate::gang::state::Seat;
use crate::recognise::{GangKey, GangSpec, LevelRef, SegmentRule};

impl Lifecycle {
    /// Gives members that share a domain of a label one, if a rule of the gang or of a role says so.
    ///
    /// # Errors
    /// Which of them have none, wherever the others are.
    pub(in crate::gang) fn deal_to_labels(
        &mut self,
        key: &GangKey,
        spec: Option<&GangSpec>,
        seats: &mut [Seat],
    ) -> Result<(), String> {
        let parts = self.label_parts(spec, seats)?;
        if parts.is_empty() {
            return Ok(());
        }
        let free = self.room();
        let dealt = self.dealt_by_label(&parts, seats, &free);
        self.constraints.room = Some(free);
        let dealt = dealt.inspect_err(|_| self.rechecks.look_again(key))?;
        for (seat, domain) in seats.iter_mut().zip(dealt) {
            seat.more.domain = domain;
        }
        Ok(())
    }

    /// On what is free; otherwise where they would have room on empty nodes, and at last whatever nodes have: the engine says
    /// what is short there.
    fn dealt_by_label(&self, parts: &[Part], seats: &[Seat], free: &Room) -> Result<Dealt, String> {
        let nodes = &self.cluster.nodes;
        let members: Vec<Member<'_>> = seats.iter().map(|seat| seat.member(true)).collect();
        let required: Vec<Part> = parts.iter().filter(|part| part.is_required).cloned().collect();
        let deal = |room: &Room, count| by_label::deal(&required, &members, nodes, &mut room.clone(), count);
        if let Ok(dealt) = by_label::deal(parts, &members, nodes, &mut free.clone(), Count::Free) {
            return Ok(dealt);
        }
        let empty = Room::of(nodes, []);
        let why = match deal(&empty, Count::Free) {
            Ok(dealt) => return Ok(dealt),
            Err(why) => why,
        };
        deal(&empty, Count::Nothing).map_err(|_| why)
    }

    /// Whether a gang that waits has no room in the domains of labels that it was dealt to, and has in others; nothing if no
    /// rule of it is about such domains.
    pub(in crate::gang) fn is_better_by_labels(
        &mut self,
        spec: Option<&GangSpec>,
        seats: &[Seat],
    ) -> Option<bool> {
        let parts = self.label_parts(spec, seats).ok().filter(|parts| !parts.is_empty())?;
        let free = self.room();
        let fits = |is_kept: bool| {
            let members: Vec<Member<'_>> = seats.iter().map(|seat| seat.member(!is_kept)).collect();
            by_label::deal(&parts, &members, &self.cluster.nodes, &mut free.clone(), Count::Free).is_ok()
        };
        let is_better = !fits(true) && fits(false);
        self.constraints.room = Some(free);
        Some(is_better)
    }

    /// The members that share a domain of a label, the widest parts first.
    fn label_parts(&self, spec: Option<&GangSpec>, seats: &[Seat]) -> Result<Vec<Part>, String> {
        let Some(spec) = spec else { return Ok(Vec::new()) };
        let mut parts = Vec::new();
        let all: Vec<usize> = (0..seats.len()).collect();
        let rule = rule_of(spec);
        // A single pod is in one domain wherever it is, if its node carries the label.
        self.add_whole(rule.required.as_ref(), &all, true, &mut parts)?;
        let is_of_first = |at: &usize| seats[*at].role == seats.first().and_then(|seat| seat.role.clone());
        let first: Vec<usize> = all.iter().copied().filter(is_of_first).collect();
        self.add_segments(&rule.segments, &first, seats, &mut parts)?;
        for role in spec.roles.iter().filter(|role| !std::ptr::eq(&role.topology, rule)) {
            let is_of = |at: &usize| seats[*at].role.as_deref() == Some(&*role.name);
            let of_role: Vec<usize> = all.iter().copied().filter(is_of).collect();
            self.add_whole(role.topology.required.as_ref(), &of_role, true, &mut parts)?;
            self.add_segments(&role.topology.segments, &of_role, seats, &mut parts)?;
        }
        self.add_whole(preferred_of(spec), &all, false, &mut parts)?;
        Ok(parts)
    }

    fn add_whole(
        &self,
        asked: Option<&LevelRef>,
        members: &[usize],
        is_required: bool,
        parts: &mut Vec<Part>,
    ) -> Result<(), String> {
        let Some(key) = asked.map(|asked| self.label(asked)).transpose()?.flatten() else { return Ok(()) };
        if !members.is_empty() {
            parts.push(Part { key, members: members.to_vec(), is_required, is_exclusive: false });
        }
        Ok(())
    }

    fn add_segments(
        &self,
        rules: &[SegmentRule],
        members: &[usize],
        seats: &[Seat],
        parts: &mut Vec<Part>,
    ) -> Result<(), String> {
        for rule in rules.iter().filter(|rule| rule.is_required) {
            let Some(key) = self.label(&rule.level)? else { continue };
            let size = rule.size.max(1) as usize;
            // Ranks that are through leave their parts to the others.
            let has_numbers = members.iter().all(|at| seats[*at].index.is_some());
            let nth = |(position, at): &(usize, usize)| match seats[*at].index.filter(|_| has_numbers) {
                Some(index) => index as usize / size,
                None => position / size,
            };
            let numbered: Vec<(usize, usize)> = members.iter().copied().enumerate().collect();
            for part in numbered.chunk_by(|a, b| nth(a) == nth(b)) {
                let members = part.iter().map(|(_, at)| *at).collect();
                let is_exclusive = rule.is_exclusive;
                parts.push(Part { key: key.clone(), members, is_required: true, is_exclusive });
            }
        }
        Ok(())
    }

    /// The label, if it is no level.
    fn label(&self, asked: &LevelRef) -> Result<Option<Box<str>>, String> {
        Ok(match self.cluster.nodes.domain_of(asked)? {
            DomainOf::Level(_) => None,
            DomainOf::Label(key) => Some(key),
        })
    }
}

impl Seat {
    fn member(&self, is_free: bool) -> Member<'_> {
        Member {
            requirements: &self.requirements,
            conditions: &self.more.conditions,
            is_apart: !self.more.apart.is_empty(),
            domain: self.more.domain.as_ref().filter(|_| !is_free),
        }
    }
}

#[cfg(test)]
mod tests;
