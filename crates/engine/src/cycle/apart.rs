//! Replicas of a service that are kept apart: each goes to a domain with the fewest of them, if it fits there.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Gang, GangId};

use super::run::Cycle;
use crate::cluster::Free;
use crate::cluster::tree::LevelAt;
use crate::placement::{Verdict, verdict};

impl Cycle<'_> {
    /// The level at which replicas are kept apart: each of its domains is to have few of them.
    fn level_apart(&self, id: GangId) -> Option<LevelAt> {
        let service = self.ledger.job(id.job)?.turn.service.as_ref()?;
        self.tree().level_at(service.spread.as_ref()?)
    }

    pub(super) fn is_kept_apart(&self, id: GangId) -> bool {
        self.level_apart(id).is_some()
    }

    /// The verdict on a gang. If the gang is kept apart, domains with more replicas of its service than others are
    /// closed: first all domains that have any, then all that have more than those with the fewest, and so on.
    pub(super) fn verdict_on(&mut self, id: GangId, gang: &Gang) -> Verdict {
        let now = self.ledger.now();
        let patience = self.ledger.preferred_until(id).filter(|until| now < *until);
        if let Some(level) = self.level_apart(id) {
            let counts = self.replicas_by_domain(id, level);
            let allowed: BTreeSet<u32> = [0].into_iter().chain(counts.values().copied()).collect();
            let most = counts.values().copied().max().unwrap_or(0);
            for allowed in allowed.into_iter().filter(|allowed| *allowed < most) {
                let crowded = |domain: usize| counts.get(&domain).is_some_and(|count| *count > allowed);
                let found = self.verdict_outside(level, crowded, gang);
                if matches!(found, Verdict::Go(..)) {
                    return found;
                }
            }
        }
        verdict(self.ledger.hardware(), &mut self.draft.search, &self.draft.space, gang, patience)
    }

    /// The number of replicas of the same service in each domain, including replicas that start in this cycle and those
    /// that have a reservation.
    fn replicas_by_domain(&self, id: GangId, level: LevelAt) -> BTreeMap<usize, u32> {
        let mut counts = BTreeMap::new();
        for gang in self.ledger.gangs_of(id.job).into_iter().filter(|gang| *gang != id) {
            let held = self.draft.reservations.get(&gang).map(|hold| hold.picks.clone());
            let picks = held.or_else(|| self.picks_of(gang)).unwrap_or_default();
            let domains: BTreeSet<usize> =
                picks.iter().map(|pick| self.domain_at(level, pick.node as usize)).collect();
            domains.into_iter().for_each(|domain| *counts.entry(domain).or_default() += 1);
        }
        counts
    }

    /// Domains inside a node count as the node, because a node fails whole.
    fn domain_at(&self, level: LevelAt, node: usize) -> usize {
        match level {
            LevelAt::Above(level) => self.tree().domain_of(node, level),
            LevelAt::Node | LevelAt::Group(_) => node,
        }
    }

    /// The verdict with some domains closed.
    fn verdict_outside(&mut self, level: LevelAt, is_closed: impl Fn(usize) -> bool, gang: &Gang) -> Verdict {
        let tree = self.tree();
        let is_open = |node: &usize| self.draft.space.free(*node).open;
        let nodes = (0..tree.nodes.len()).filter(|node| is_closed(self.domain_at(level, *node)));
        let nodes: Vec<u32> = nodes.filter(is_open).map(|node| node as u32).collect();
        let set_open = |open: bool| move |_: u32, free: Free| Free { open, ..free };
        self.draft.space.put(tree, nodes.iter().copied(), set_open(false));
        let found = verdict(self.ledger.hardware(), &mut self.draft.search, &self.draft.space, gang, None);
        self.draft.space.put(tree, nodes.iter().copied(), set_open(true));
        found
    }
}
