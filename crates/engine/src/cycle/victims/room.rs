//! Which of those who may have to make way do, and what place that leaves.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use phalanx_model::{Gang, GangId};

use super::Victim;
use crate::cluster::space::{Pick, Space};
use crate::cluster::tree::{LevelAt, Tree};
use crate::cycle::draft::Draft;
use crate::cycle::pass::Pass;
use crate::cycle::reserve::Place;
use crate::guard::Guard;
use crate::placement::Ceiling;

/// Domains that are tried for one gang.
const DOMAINS_MAX: usize = 4;

impl Pass<'_> {
    /// The place with the cheapest victims, of the domains that were tried.
    pub(super) fn make_room(&mut self, gang: &Gang, victims: &[Victim]) -> Option<(Place, Vec<Victim>)> {
        if victims.is_empty() {
            return None;
        }
        let tree = self.tree();
        let level = match tree.level_of_required(gang) {
            LevelAt::Above(level) => level,
            LevelAt::Node | LevelAt::Group(_) => tree.depth().saturating_sub(1),
        };
        let mut best: Option<(Place, Vec<Victim>)> = None;
        for domain in likely_domains(tree, &self.desk.space, gang, level, victims) {
            let is_full = self.desk.space.free_devices(level, domain) == 0;
            if is_full && !self.ledger.guards().stand(Guard::FullDomainsTried) {
                continue;
            }
            let inside = |victim: &&Victim| {
                victim.picks.iter().any(|pick| tree.domain_of(pick.node as usize, level) == domain)
            };
            let local: Vec<Victim> = victims.iter().filter(inside).cloned().collect();
            let Some(found) = self.make_room_with(gang, &local) else { continue };
            if best.as_ref().is_none_or(|(_, chosen)| Cost::of(&found.1) < Cost::of(chosen)) {
                best = Some(found);
            }
        }
        best
    }

    /// Takes victims in order until the gang fits, and spares whoever is not in the way of its place.
    fn make_room_with(&mut self, gang: &Gang, victims: &[Victim]) -> Option<(Place, Vec<Victim>)> {
        let ceiling = Ceiling(self.tree().level_of_required(gang));
        let mut gone = Gone { pass: self, victims, count: 0 };
        let mut enough = 1;
        while !{
            gone.move_to(enough.min(victims.len()));
            gone.fits(gang, ceiling)
        } {
            if enough >= victims.len() {
                gone.move_to(0);
                return None;
            }
            enough *= 2;
        }
        let (mut short, mut enough) = (enough / 2, enough.min(victims.len()));
        while enough - short > 1 {
            let middle = short.midpoint(enough);
            gone.move_to(middle);
            if gone.fits(gang, ceiling) { enough = middle } else { short = middle }
        }
        gone.move_to(enough);
        let fits = gone.fits(gang, ceiling);
        let (picks, order) = (gone.pass.desk.search.picks().to_vec(), gone.pass.desk.search.order().to_vec());
        let chosen = if fits { gone.spare(gang, &picks, enough) } else { Vec::new() };
        gone.move_to(0);
        let grace_ms = chosen.iter().map(|victim| self.grace_ms(victim.gang)).max()?;
        let at = Some(self.ledger.now().plus(grace_ms));
        Some((Place { picks, order, at, evicts: true }, chosen))
    }

    /// From the word to make way until the last process is gone, at the longest.
    fn grace_ms(&self, gang: GangId) -> u64 {
        let stop = self.ledger.job(gang.job).map(|job| job.policy.stop);
        stop.map_or(0, |stop| stop.grace_ms.saturating_add(stop.advisory.map_or(0, |advice| advice.lead_ms)))
    }
}

/// The space without the first of the victims.
struct Gone<'p, 'a, 'v> {
    pass: &'p mut Pass<'a>,
    victims: &'v [Victim],
    count: usize,
}

impl Gone<'_, '_, '_> {
    fn move_to(&mut self, wanted: usize) {
        while self.count != wanted {
            let gives_back = self.count < wanted;
            let at = if gives_back { self.count } else { self.count - 1 };
            self.count = if gives_back { self.count + 1 } else { self.count - 1 };
            self.book(at, gives_back);
        }
    }

    fn book(&mut self, at: usize, gives_back: bool) {
        let tree = self.pass.tree();
        let Some(victim) = self.victims.get(at) else { return };
        let Some(gang) = self.pass.ledger.gang(victim.gang) else { return };
        let space = &mut self.pass.desk.space;
        if gives_back {
            space.give_back(tree, &victim.picks, gang);
        } else {
            space.take(tree, &victim.picks, gang);
        }
    }

    fn fits(&mut self, gang: &Gang, ceiling: Ceiling) -> bool {
        let tree = self.pass.tree();
        let Draft { search, space, .. } = &mut self.pass.desk;
        search.place(tree, space, gang, ceiling).is_some()
    }

    /// Those of the first `enough` without whom the place is not free; the dearest are spared first.
    fn spare(&mut self, gang: &Gang, picks: &[Pick], enough: usize) -> Vec<Victim> {
        let mut kept = Vec::new();
        for at in (0..enough).rev() {
            self.book(at, false);
            let spares = self.pass.ledger.guards().stand(Guard::BystandersSpared);
            let tree = self.pass.tree();
            if spares && self.pass.desk.space.has_room(tree, gang, picks) {
                continue;
            }
            self.book(at, true);
            kept.push(at);
        }
        // As `move_to` expects them: the first `enough` are gone.
        for at in (0..enough).filter(|at| !kept.contains(at)) {
            self.book(at, true);
        }
        kept.into_iter().rev().filter_map(|at| self.victims.get(at).cloned()).collect()
    }
}

/// Domains of a level in which the gang could fit once victims are gone, those whose cheapest victims would be enough for
/// the least first. By devices alone: the search says whether it is so.
fn likely_domains(tree: &Tree, space: &Space, gang: &Gang, level: usize, victims: &[Victim]) -> Vec<usize> {
    let needed = gang.device_count();
    let mut domains: BTreeMap<usize, (u32, Cost)> = BTreeMap::new();
    for victim in victims {
        for pick in &victim.picks {
            let domain = tree.domain_of(pick.node as usize, level);
            let (free, cost) =
                domains.entry(domain).or_insert_with(|| (space.free_devices(level, domain), Cost::default()));
            if *free < needed {
                *free += pick.devices.count();
                cost.add(victim);
            }
        }
    }
    let mut likely: Vec<(Cost, usize)> = domains
        .into_iter()
        .filter(|(_, (free, _))| *free >= needed)
        .map(|(domain, (_, cost))| (cost, domain))
        .collect();
    likely.sort_unstable();
    likely.truncate(DOMAINS_MAX);
    likely.into_iter().map(|(_, domain)| domain).collect()
}

/// What victims cost together: the highest class first, then who had least service, then lost work, then how many they are
/// and who.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    rank: Option<i32>,
    level: Option<Reverse<u32>>,
    lost_device_ms: u64,
    gangs: usize,
    /// What each costs: victims of several nodes, and the parts of an elastic gang, come again.
    of: BTreeMap<GangId, u64>,
}

impl Cost {
    /// Of an elastic gang the dearest part counts: with it the whole gang goes.
    fn add(&mut self, victim: &Victim) {
        let before = self.of.get(&victim.gang).copied();
        let more = victim.costs_device_ms.saturating_sub(before.unwrap_or(0));
        if before.is_none() || more > 0 {
            self.of.insert(victim.gang, victim.costs_device_ms);
        }
        self.rank = self.rank.max(Some(victim.rank));
        self.level = self.level.max(Some(victim.level));
        self.lost_device_ms = self.lost_device_ms.saturating_add(more);
        self.gangs = self.of.len();
    }

    fn of(victims: &[Victim]) -> Self {
        let mut cost = Self::default();
        victims.iter().for_each(|victim| cost.add(victim));
        cost
    }
}
