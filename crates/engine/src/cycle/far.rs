//! The price of a far place: whether a gang starts at the best place that is free now, or waits for a nearer one.
//!
//! A gang that waits for a closer placement pays with its time, and one that starts farther apart pays with slower steps,
//! which keeps its devices from others for longer. It waits until both have cost the same: that costs at most twice what
//! the better of the two would have cost (rent or buy: Karlin, Manasse, Rudolph and Sleator, Algorithmica 3, 1988).
//!
//! A price needs a speed. A gang that waits for the nearest place at no price goes by levels where the speed of the way
//! between nodes is not known.
//!
//! All of it goes by nominal bandwidths: a measured link is weighed by the search that finds the place, and keeps no gang
//! waiting.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use phalanx_model::{DeviceMask, Gang, GangId, LevelName, Reason, Timestamp, Topology};

use super::draft::{Draft, Trial};
use super::earliest_start::Soonest;
use super::reservation::Reservation;
use super::run::Cycle;
use crate::cluster::{LevelAt, Pick, Space, Tree};
use crate::placement::{Ceiling, Search, Sort, level_of};
use crate::queueing::{Near, RequestClassId};

/// The longest wait, however slow the farther placement is.
const WAIT_MAX_MS: u128 = 7 * 24 * 3_600_000;
/// Steps that take so much longer are as good as at the nearest place, in thousandths.
const AS_NEAR_MILLI: u64 = 1_010;
/// How many times as long as it communicates at the nearest place a step computes, where a job does not say: then
/// communication is a fifth of a step.
const COMPUTE_PER_COMMUNICATION: u64 = 4;

impl Cycle<'_> {
    /// Why a gang waits for a nearer place than these picks, where a step of communication takes so long; `None` if it
    /// starts there.
    pub(super) fn waits_for_nearer(
        &mut self,
        request: RequestClassId,
        id: GangId,
        picks: &[Pick],
        time_ns: u64,
    ) -> Option<Reason> {
        let gang = &self.draft.pending.request(request).key.gang;
        if !waits(gang) {
            return None;
        }
        // A copy only while somebody goes: this is asked of each gang that could start.
        let stopping = self.ledger.about_to_be_gone().next().map(|_| gang.clone());
        let nearer = stopping.and_then(|gang| self.waits_for_stopping(&gang, (picks, time_ns)));
        if let Some((level, slower_milli, until)) = nearer {
            self.draft.pending.look_again(request, until);
            return Some(Reason::NearerWait { level, nodes: count_nodes(picks), slower_milli, until });
        }
        let gang = &self.draft.pending.request(request).key.gang;
        if !may_be_far(self.tree(), gang, (picks, time_ns)) {
            return None;
        }
        let near = self.near(request)?;
        let nominal = self.has_measured().then(|| self.draft.pending.request(request).key.gang.clone());
        let nominal = nominal.and_then(|gang| self.unmeasured(&gang, near, (picks, time_ns)));
        let found = nominal.as_ref().map_or((picks, time_ns), |(picks, time_ns)| (picks, *time_ns));
        let gang = &self.draft.pending.request(request).key.gang;
        let (slower_milli, until) = self.waits_until(id, gang, near, found)?;
        if until < Timestamp::MAX {
            self.draft.pending.look_again(request, until);
        }
        let level = self.tree().level_name(near.level);
        Some(Reason::NearerWait { level, nodes: count_nodes(picks), slower_milli, until })
    }

    /// The level of a place that is nearer than these picks, and that the gang has as soon as gangs that were told to end are
    /// gone, how much longer a step takes in the picks, and until when that is waited for. Processes end one after the other:
    /// who took the first devices that come free would be scattered over what a whole gang leaves.
    fn waits_for_stopping(
        &mut self,
        gang: &Gang,
        (picks, time_ns): (&[Pick], u64),
    ) -> Option<(LevelName, Option<u64>, Timestamp)> {
        if count_nodes(picks) == 1 {
            return None;
        }
        let stopping: Vec<(GangId, Timestamp)> = self.ledger.about_to_be_gone().collect();
        let until = stopping.iter().map(|(_, until)| *until).max()?;
        let tree = self.tree();
        let mut trial = Trial::new();
        for (id, _) in stopping {
            if let Some((gang, picks)) = self.held_by(id) {
                trial.give_back(tree, &mut self.draft.space, &picks, gang);
            }
        }
        let Draft { search, space, .. } = &mut self.draft;
        let ceiling = Ceiling(tree.level_of_required(gang));
        let nearer = search.place(tree, space, gang, ceiling).and_then(|found| {
            let level = level_of(tree, search.picks())?;
            let extent = |level: LevelAt, picks: &[Pick]| (Reverse(level), count_nodes(picks));
            let is_nearer = extent(level, search.picks()) < extent(level_of(tree, picks)?, picks);
            is_nearer.then(|| (level, slower_milli(gang, found.cost.time_ns, time_ns).max(1_000)))
        });
        trial.roll_back(tree, space);
        nearer.map(|(level, slower_milli)| (tree.level_name(level), Some(slower_milli), until))
    }

    /// Why a gang that has a placement reserved waits for it, or for another that is nearer than these picks, where a step of
    /// communication takes so long; `None` if it starts there.
    pub(super) fn waits_for_reserved(
        &mut self,
        id: GangId,
        gang: &Gang,
        own: &Reservation,
        found: (&[Pick], u64),
    ) -> Option<Reason> {
        if !waits(gang) {
            return None;
        }
        let nodes = count_nodes(found.0);
        if !self.has_promised_place(gang, own)
            && let Some((level, slower_milli, until)) = self.waits_for_stopping(gang, found)
        {
            let promised_at = own.at.filter(|at| *at > self.ledger.now()).unwrap_or(Timestamp::MAX);
            let until = until.min(promised_at);
            self.again_at = self.again_at.min(until);
            return Some(Reason::NearerWait { level, nodes, slower_milli, until });
        }
        if !may_be_far(self.tree(), gang, found) {
            return None;
        }
        let level = level_of(self.tree(), &own.picks)?;
        let near = self.nearest(gang).filter(|near| level >= near.level)?;
        let nominal = self.unmeasured(gang, near, found);
        let found = nominal.as_ref().map_or(found, |(picks, time_ns)| (picks, *time_ns));
        let (slower_milli, until) = self.waits_until(id, gang, near, found)?;
        self.again_at = self.again_at.min(until);
        Some(Reason::NearerWait { level: self.tree().level_name(level), nodes, slower_milli, until })
    }

    /// Whether the reserved placement is free at the time that was promised: then its gang waits for no other.
    fn has_promised_place(&mut self, gang: &Gang, own: &Reservation) -> bool {
        let (tree, Reservation { at, picks, .. }) = (self.tree(), own);
        at.is_some_and(|at| at <= self.ledger.now()) && self.draft.space.has_room(tree, gang, picks)
    }

    /// Whether a link was measured to be slow.
    fn has_measured(&self) -> bool {
        self.ledger.hardware().nominal.is_some()
    }

    /// The place that a gang would have now if no link were measured, and the time of a step of communication there; `None`
    /// if it is the one that was found, or one that is no farther and no slower. If the place is not free yet, it is the
    /// one that was found.
    fn unmeasured(
        &mut self,
        gang: &Gang,
        near: Near,
        (picks, time_ns): (&[Pick], u64),
    ) -> Option<(Vec<Pick>, u64)> {
        let nominal = self.ledger.hardware().nominal?;
        let tree = &nominal.tree;
        // Without measured links everything is as fast or faster.
        let is_near = level_of(tree, picks).is_some_and(|level| level >= near.level);
        if is_near && slower_milli(gang, near.time_ns, time_ns) <= AS_NEAR_MILLI {
            return None;
        }
        let Draft { search, space, .. } = &mut self.draft;
        let space = space.moved_to(tree);
        if let Some(found) = search.place(tree, &space, gang, Ceiling(tree.level_of_required(gang))) {
            return Some((search.picks().to_vec(), found.cost.time_ns));
        }
        Some((picks.to_vec(), nominal_ns(search, (tree, &space), gang, picks).unwrap_or(time_ns)))
    }

    /// The time of a step of communication at a place if no link were measured.
    fn unmeasured_ns(&mut self, gang: &Gang, (picks, time_ns): (&[Pick], u64)) -> u64 {
        let Some(nominal) = self.ledger.hardware().nominal else { return time_ns };
        let Draft { search, space, .. } = &mut self.draft;
        let space = space.moved_to(&nominal.tree);
        nominal_ns(search, (&nominal.tree, &space), gang, picks).unwrap_or(time_ns)
    }

    /// How much longer a step takes in these picks, where its communication takes so long, and until when the gang waits for
    /// the nearest place instead; `None` if it does not. Inside, `None` if it is not known how much longer.
    fn waits_until(
        &self,
        id: GangId,
        gang: &Gang,
        near: Near,
        (picks, time_ns): (&[Pick], u64),
    ) -> Option<(Option<u64>, Timestamp)> {
        let slower_milli = match slower_milli(gang, near.time_ns, time_ns) {
            slower if slower > AS_NEAR_MILLI => Some(slower),
            _ if has_no_price(gang) && is_unknown_way(self.ledger.hardware().unmeasured().0, near, picks) => {
                None
            }
            _ => return None,
        };
        let since = self.ledger.record(id)?.pending_since;
        // Without a price it waits as long as it says.
        let until = since.plus(self.worth_ms(id, gang, slower_milli.unwrap_or(1_000)));
        (until > self.ledger.now()).then_some((slower_milli, until))
    }

    /// How long a wait for the nearest place is worth it to a gang whose steps take so much longer elsewhere.
    fn worth_ms(&self, id: GangId, gang: &Gang, slower_milli: u64) -> u64 {
        let Some(price_milli) = gang.topology.price_milli else { return gang.topology.wait_ms };
        let lost_ms = u128::from(self.ledger.expected_ms(id)) * u128::from(slower_milli - 1_000) / 1_000;
        // Everybody who waits, waits longer by the part of the cluster that is lost meanwhile.
        let others = self.draft.pending.len().saturating_sub(1) as u128;
        let crowd_milli =
            1_000 * others * u128::from(gang.device_count()) / u128::from(self.devices().max(1));
        let worth_ms = lost_ms * (1_000 + crowd_milli) / u128::from(price_milli.max(1));
        u64::try_from(worth_ms.min(WAIT_MAX_MS)).unwrap_or(u64::MAX)
    }

    /// Whether a gang waits for a start at the nearest place rather than to start sooner at a farther one.
    pub(super) fn prefers_near(
        &mut self,
        id: GangId,
        request: RequestClassId,
        near: &Soonest,
        far: &Soonest,
    ) -> bool {
        // Nobody knows which of the two comes sooner.
        let (Some(near_at), Some(far_at)) = (near.at, far.at) else {
            return near.at.is_some() || far.at.is_none();
        };
        let Some(nearest) = self.near(request) else { return false };
        let nominal = self.has_measured().then(|| self.draft.pending.request(request).key.gang.clone());
        let far_ns = nominal.map_or(far.time_ns, |gang| self.unmeasured_ns(&gang, (&far.picks, far.time_ns)));
        let gang = &self.draft.pending.request(request).key.gang;
        let slower_milli = slower_milli(gang, nearest.time_ns, far_ns).max(1_000);
        near_at <= far_at.plus(self.worth_ms(id, gang, slower_milli))
    }

    /// The gang if it has to be inside one domain of the level that the nearest place for it is inside of; `None` if it has
    /// to be anyway, or does not wait for nearer places.
    pub(super) fn nearest_of(&mut self, request: RequestClassId, gang: &Gang) -> Option<Gang> {
        let near = if waits(gang) { self.near(request)? } else { return None };
        inside(self.tree(), gang, near.level)
    }

    /// The best place for gangs of a request class if no gang ran; `None` if there is none.
    pub(super) fn near(&mut self, request: RequestClassId) -> Option<Near> {
        let version = self.ledger.hardware_version();
        if let Some((_, near)) = self.draft.pending.request(request).near.filter(|(of, _)| *of == version) {
            return near;
        }
        let gang = self.draft.pending.request(request).key.gang.clone();
        let near = self.nearest(&gang);
        self.draft.pending.request_mut(request).near = Some((version, near));
        near
    }

    /// The best place for a gang on open nodes if no gang ran and no link were measured. Devices that others use are theirs:
    /// nobody knows for how long.
    pub(super) fn nearest(&mut self, gang: &Gang) -> Option<Near> {
        let hardware = self.ledger.hardware();
        let (tree, usable) = hardware.unmeasured();
        let search = &mut self.draft.search;
        let found = search.place(tree, usable, gang, Ceiling(tree.level_of_required(gang)))?;
        Some(Near { time_ns: found.cost.time_ns, level: widest_as_near(tree, search.picks())? })
    }

    /// All devices of the cluster.
    fn devices(&self) -> u32 {
        let tree = self.tree();
        tree.roots().map(|root| tree.domains[0][root].devices).sum()
    }
}

fn count_nodes(picks: &[Pick]) -> u32 {
    let nodes: BTreeSet<u32> = picks.iter().map(|pick| pick.node).collect();
    u32::try_from(nodes.len()).unwrap_or(u32::MAX)
}

/// The time of a step of communication at a place, as these bandwidths are; `None` for a place of which this is no measure.
fn nominal_ns(
    search: &mut Search,
    (tree, space): (&Tree, &Space),
    gang: &Gang,
    picks: &[Pick],
) -> Option<u64> {
    if !matches!(Sort::of(gang), Sort::Members) {
        return None;
    }
    let mut sorted = picks.to_vec();
    sorted.sort_by_key(|pick| pick.node);
    search.measured(tree, space, gang, &sorted).map(|found| found.cost.time_ns)
}

/// The gang if it has to be inside one domain of a level, or inside one node if the level is narrower; `None` if it has to be
/// anyway.
pub(super) fn inside(tree: &Tree, gang: &Gang, level: LevelAt) -> Option<Gang> {
    let level = level.min(LevelAt::Node);
    (level > tree.level_of_required(gang)).then(|| Gang {
        topology: Topology { required: Some(tree.level_name(level)), ..gang.topology.clone() },
        ..gang.clone()
    })
}

/// The level that a place is inside of: the node if its devices are as fast all together as these alone.
fn widest_as_near(tree: &Tree, picks: &[Pick]) -> Option<LevelAt> {
    let level = level_of(tree, picks)?;
    let (LevelAt::Group(_), Some(first)) = (level, picks.first()) else { return Some(level) };
    let kind = tree.kind(&tree.nodes[first.node as usize]);
    let used = picks.iter().fold(DeviceMask::EMPTY, |all, pick| all.union(pick.devices));
    Some(if kind.ring(kind.all()) >= kind.ring(used) { LevelAt::Node } else { level })
}

/// Whether picks in which a step of communication takes so long may be farther apart than the nearest place. Those of
/// which nobody knows a time are as near as any, for all that a price can tell.
fn may_be_far(tree: &Tree, gang: &Gang, (picks, time_ns): (&[Pick], u64)) -> bool {
    let is_across_nodes = || matches!(level_of(tree, picks), Some(LevelAt::Above(_)));
    time_ns > 0 || has_no_price(gang) && is_across_nodes()
}

const fn has_no_price(gang: &Gang) -> bool {
    gang.topology.price_milli.is_none()
}

/// Whether these picks are farther apart than the nearest place by a level of which no bandwidth is known.
fn is_unknown_way(tree: &Tree, near: Near, picks: &[Pick]) -> bool {
    let Some(level @ LevelAt::Above(outer)) = level_of(tree, picks) else { return false };
    let inner = match near.level {
        LevelAt::Above(inner) => inner,
        LevelAt::Node | LevelAt::Group(_) => tree.depth(),
    };
    let knows = |crossed: usize| picks.iter().all(|pick| tree.knows_uplink(pick.node as usize, crossed));
    level < near.level && !(outer + 1..=inner).all(knows)
}

/// Whether a gang waits for a nearer place than one that is free. (Until when it waits for a level that it prefers is
/// known without one.)
pub(super) const fn waits(gang: &Gang) -> bool {
    let Topology { preferred, wait_ms, price_milli, .. } = &gang.topology;
    matches!(price_milli, Some(price) if *price < Topology::ANYWHERE)
        || price_milli.is_none() && preferred.is_none() && *wait_ms > 0
}

/// How long a step takes with communication that takes so long, in thousandths of one at the nearest place.
fn slower_milli(gang: &Gang, near_ns: u64, far_ns: u64) -> u64 {
    let said_ns = gang.traffic.map(|traffic| traffic.compute_ns).filter(|ns| *ns > 0);
    let compute_ns = said_ns.unwrap_or_else(|| near_ns.saturating_mul(COMPUTE_PER_COMMUNICATION));
    let step_ns = |communication_ns: u64| u128::from(compute_ns) + u128::from(communication_ns);
    u64::try_from(step_ns(far_ns) * 1_000 / step_ns(near_ns).max(1)).unwrap_or(u64::MAX)
}
