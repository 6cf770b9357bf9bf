//! The candidates that hold capacity that a gang may use.

use phalanx_model::{DeviceMask, Gang};

use super::candidate::Candidate;
use crate::cluster::space::{Pick, Piece, Space};
use crate::cluster::tree::{LevelAt, Tree};
use crate::placement::Request;

/// The capacity that a candidate frees for a gang on one node that the gang may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    pub(super) candidate: usize,
    pub(super) node: u32,
    /// The devices that the gang may have.
    pub(super) devices: DeviceMask,
    pub(super) cpu_milli: u64,
    pub(super) memory_bytes: u64,
}

/// The capacity that candidates free on nodes that take work, node by node in the order of candidates.
#[derive(Debug)]
pub(super) struct Useful {
    freed: Vec<Freed>,
    is_whole: bool,
}

impl Useful {
    pub(super) fn of(
        tree: &Tree,
        space: &Space,
        request: &Request<'_>,
        gang: &Gang,
        candidates: &[Candidate<'_>],
    ) -> Self {
        let mut of_gang = Members::of(tree, request, gang);
        let mut is_whole = true;
        let mut freed = Vec::new();
        for (candidate, of) in candidates.iter().enumerate() {
            for pick in of.picks.iter() {
                let Some(devices) = of_gang.devices(tree, space, pick, of.gang) else { continue };
                is_whole &= pick.piece == Piece::Whole;
                let needs = of.gang.needs_of(pick.role());
                let of_members = |each: u64| each.saturating_mul(u64::from(pick.members));
                let (cpu_milli, memory_bytes) = (of_members(needs.cpu_milli), of_members(needs.memory_bytes));
                freed.push(Freed { candidate, node: pick.node, devices, cpu_milli, memory_bytes });
            }
        }
        freed.sort_by_key(|of| (of.node, of.candidate));
        Self { freed, is_whole }
    }

    /// Whether every device that would become free is free as soon as one candidate is gone.
    pub(super) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The freed capacity by node, and on a node in the order of candidates.
    pub(super) fn freed(&self) -> &[Freed] {
        &self.freed
    }
}

/// The capacity that the members of a gang may use.
struct Members<'a> {
    request: &'a Request<'a>,
    gang: &'a Gang,
    /// By kind of node, the devices that some member may have; `None` if no member may be there.
    eligible: Vec<Option<DeviceMask>>,
    /// The gang needs resources that victims on other nodes of the domain may hold.
    needs_named: bool,
}

impl<'a> Members<'a> {
    fn of(tree: &Tree, request: &'a Request<'a>, gang: &'a Gang) -> Self {
        let eligible = tree.kinds.iter().map(|kind| {
            let taking = gang.all_needs().filter(|needs| !kind.refuses(needs));
            taking
                .map(|needs| (kind.eligible(needs), needs.devices == 0 && needs.part.is_none()))
                .filter(|(devices, is_without)| !devices.is_empty() || *is_without)
                .map(|(devices, _)| devices)
                .reduce(DeviceMask::union)
        });
        let needs_named = gang.all_needs().any(|needs| !needs.named.is_empty());
        Self { request, gang, eligible: eligible.collect(), needs_named }
    }

    /// The devices that a pick of a candidate frees for the gang; `None` if the pick is of no use to the gang.
    fn devices(&mut self, tree: &Tree, space: &Space, pick: &Pick, holder: &Gang) -> Option<DeviceMask> {
        let (node, at) = (tree.nodes.get(pick.node as usize)?, pick.node as usize);
        let free = space.free(at);
        // A node that one gang has for itself becomes free again with that gang.
        let opens = free.is_held && holder.needs.is_exclusive;
        let is_open = free.open && (!free.is_held || opens);
        let holds_named = || self.needs_named && !holder.needs_of(pick.role()).named.is_empty();
        let eligible = self.eligible.get(usize::from(node.kind)).copied().flatten();
        let is_listed = !self.gang.roles.is_empty() || self.request.listed.has(at);
        let Some(eligible) = eligible.filter(|_| is_open && is_listed) else {
            return holds_named().then_some(DeviceMask::EMPTY);
        };
        let back = if opens { pick.devices.union(free.devices) } else { pick.devices };
        let devices = back.and(node.usable.devices).and(eligible);
        // A node that a gang is to have for itself must lose everything that runs on it; CPU and memory may be short.
        let is_short = free.cpu_milli <= 0 || free.memory_bytes <= 0;
        let frees_more = holder.needs_of(pick.role()).cpu_milli > 0 && (is_short || !free.devices.is_empty());
        let is_useful =
            !devices.is_empty() || eligible.is_empty() || self.gang.needs.is_exclusive || frees_more;
        (is_useful || holds_named()).then_some(devices)
    }
}

/// The domain of a node inside which the gang must be.
pub(super) fn domain_of(tree: &Tree, level: LevelAt, node: u32) -> usize {
    match level {
        LevelAt::Above(level) => tree.domain_of(node as usize, level),
        LevelAt::Node | LevelAt::Group(_) => node as usize,
    }
}
