//! What lies between some ranks: the way inside each island, its NICs, and the uplinks that the ring leaves by.

use phalanx_model::{DeviceMask, Transport};

use super::{At, Compiled, Rank};
use crate::link::{HOST_MEMORY_MB_PER_S, INSIDE_SHARE, NIC_MB_PER_S, SOCKET_MB_PER_S};
use crate::shape::{Shape, Within};
use crate::{Fabric, Inner, Network, Span};

/// Memory for one question at a time, so that asking allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Place in `parts` of each node plus one; 0 for nodes that do not take part.
    part_of: Vec<u32>,
    parts: Vec<Part>,
    /// Place in `islands` of each domain that joins its devices plus one; 0 for others.
    island_of: Vec<u32>,
    /// In the order of their lowest ranks, as NCCL visits them.
    islands: Vec<Island>,
    /// Ranks inside each domain, and how often the ring leaves it.
    inside: Vec<u32>,
    exits: Vec<f64>,
}

/// What a communicator has of one node; in the order of the lowest ranks.
#[derive(Clone, Copy, Debug)]
struct Part {
    node: u32,
    devices: DeviceMask,
    /// Devices, and ranks without one.
    ends: u32,
    island: u32,
    /// Groups that talk at the same time and have ranks here, this one among them, and the devices of all.
    groups: u32,
    beside: DeviceMask,
}

/// What groups that talk at the same time have of one node together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beside {
    pub(crate) node: u32,
    pub(crate) groups: u32,
    pub(crate) devices: DeviceMask,
}

impl Beside {
    /// Of ranks without devices, and of groups whose devices nobody named.
    pub(crate) const ALL: DeviceMask = DeviceMask(u64::MAX);
}

/// What talks without a NIC: the part of one node, or the parts of all nodes in one domain that joins their
/// devices.
#[derive(Clone, Copy, Debug)]
struct Island {
    /// The first part.
    part: u32,
    /// The lowest node: of equals, the one that is named.
    node: u32,
    /// The domain that joins its devices.
    joint: Option<u32>,
    ends: u32,
    nic: Option<Nic>,
    latency_ns: f64,
}

/// NICs together, nominal.
#[derive(Clone, Copy, Debug)]
struct Nic {
    mb: f64,
    network: Network,
    is_declared: bool,
}

impl Compiled {
    /// What a collective gets of the NICs of a node for these devices, or for all where there are none, in MB/s.
    /// At least a thousandth.
    #[must_use]
    pub fn nic_mb(&self, node: u32, devices: DeviceMask) -> f64 {
        let part = Part { node, devices, ends: 1, island: 0, groups: 1, beside: devices };
        let Some(nic) = self.shape(node).map(|shape| self.nic(shape, &part)) else { return 1e12 };
        let (nic_mb, network, is_declared) = (nic.mb, nic.network, nic.is_declared);
        let span = Span { ranks: 2, nodes: 2, nic_mb, network, is_declared, ..Span::ALONE };
        (span.nic_mb * span.nic_share(&self.constants)).clamp(1e-3, 1e12)
    }

    /// The way between ranks that `scratch` has gathered. `is_joined` says whether domains that join their devices
    /// are used as such, or everything between nodes goes through NICs.
    pub(super) fn span(&self, scratch: &mut Scratch, is_joined: bool) -> (Span, At) {
        scratch.join(self, is_joined);
        let ends: u32 = scratch.islands.iter().map(|island| island.ends).fold(0, u32::saturating_add);
        let nodes = u32::try_from(scratch.islands.len()).unwrap_or(u32::MAX);
        let mut span = Span { ranks: ends, nodes, is_direct: true, ..Span::ALONE };
        let mut at = At::default();
        // Like NCCL, by the oldest of all devices.
        let eras = scratch.parts.iter().filter_map(|part| self.shape(part.node)).map(Shape::era);
        span.era = eras.min().unwrap_or_default();
        let mut is_switched = true;
        for island in &scratch.islands {
            span.per_node = span.per_node.max(island.ends);
            is_switched &= island.ends > 1 && self.inside(scratch, island, &mut span, &mut at);
        }
        span.is_direct &= span.pair_mb.is_finite();
        let fits = is_switched && span.inner == Inner::Nvlink && span.per_node > 2;
        let port_mb = if span.pair_mb.is_finite() { span.pair_mb } else { 0.0 };
        span.nvls_mb = if fits && span.era.nvls(&self.constants) > 0.0 { port_mb } else { 0.0 };
        if nodes > 1 {
            self.outside(scratch, &mut span, &mut at);
            self.leave(scratch, &mut span);
            self.uplinks(scratch, &mut span, &mut at);
        }
        scratch.forget_domains(self);
        (span, at)
    }

    /// The way between the ends of one island; whether a switch that may add up carries it. Protocols, and whether
    /// links are direct, follow the worst island, as in NCCL; only bandwidth and name are those of the slowest.
    fn inside(&self, scratch: &Scratch, island: &Island, span: &mut Span, at: &mut At) -> bool {
        let Some(part) = scratch.parts.get(island.part as usize) else { return false };
        let Some(shape) = self.shape(part.node) else { return false };
        let joint = island.joint.and_then(|domain| self.domain_list.get(domain as usize));
        let Within { ring_mb, path_mb, pair_mb, fabric, cut_us } = shape.within(part.devices);
        let memory = f64::from(HOST_MEMORY_MB_PER_S);
        let mut way_mb = f64::from(if span.nodes > 1 { path_mb } else { ring_mb });
        let mut pair_mb = f64::from(pair_mb);
        let has_hosts = part.ends > part.devices.count();
        let is_memory = joint.is_none() && has_hosts && (part.devices.count() < 2 || way_mb > memory);
        if is_memory {
            (way_mb, pair_mb) = (memory, memory);
        }
        if let Some(domain) = joint {
            (way_mb, pair_mb) = (domain.inside_mb * INSIDE_SHARE, domain.inside_mb * INSIDE_SHARE);
        }
        let inner = match fabric {
            _ if joint.is_some() => Inner::Nvlink,
            _ if is_memory => Inner::Host,
            Fabric::NvLink => Inner::Nvlink,
            Fabric::Xgmi => Inner::Xgmi,
            Fabric::Pcie | Fabric::Socket => Inner::Pcie,
        };
        span.inner = span.inner.max(inner);
        span.is_direct &= joint.is_none() && !is_memory && shape.is_direct(part.devices);
        if way_mb < span.ring_mb || (way_mb <= span.ring_mb && island.node < at.inside) {
            span.ring_mb = way_mb;
            (at.inside, at.within, at.is_memory) = (island.node, fabric, is_memory);
            at.inside_joint = island.joint;
        }
        span.pair_mb = span.pair_mb.min(pair_mb);
        if joint.is_none() && !is_memory {
            span.inner_cut_us = span.inner_cut_us.max(cut_us);
        }
        joint.is_some() || shape.is_switched()
    }

    /// The NICs of every island: those near the devices that are used, of all its nodes together.
    fn outside(&self, scratch: &mut Scratch, span: &mut Span, at: &mut At) {
        let share = |nic: &Nic| {
            if nic.is_declared { 1.0 } else { self.constants.networks.get(nic.network).share }
        };
        for part in &scratch.parts {
            let Some(shape) = self.shape(part.node) else { continue };
            let nic = self.nic(shape, part);
            let Some(island) = scratch.islands.get_mut(part.island as usize) else { continue };
            // Further nodes count as if their NICs were of the first one's kind.
            island.nic = Some(match island.nic {
                None => nic,
                Some(all) => Nic { mb: all.mb + nic.mb * share(&nic) / share(&all).max(1e-9), ..all },
            });
        }
        let mut slowest = f64::INFINITY;
        for island in &scratch.islands {
            let Some(nic) = &island.nic else { continue };
            let reached = nic.mb * share(nic);
            if reached < slowest || (reached <= slowest && island.node < at.nic) {
                slowest = reached;
                (span.nic_mb, span.network, span.is_declared) = (nic.mb, nic.network, nic.is_declared);
                (at.nic, at.nic_joint) = (island.node, island.joint);
            }
            let (j, n) = (f64::from(island.ends), f64::from(span.ranks));
            span.nic_cut_us = span.nic_cut_us.max(j * (n - j) / n / nic.mb);
        }
    }

    /// The NICs of one node near the devices that are used; of those near to all groups that talk at the same time
    /// each has an equal part.
    fn nic(&self, shape: &Shape, part: &Part) -> Nic {
        let among = f64::from(part.groups.max(1));
        let (own, network) = shape.nic_mb(part.devices);
        let found = own.min(shape.nic_mb(part.beside).0 / among);
        let declared = self.place(part.node).and_then(|place| place.declared_nic_mb);
        let transport = self.place(part.node).and_then(|place| place.transport);
        if let Some(transport) = transport.filter(|transport| *transport != Transport::Sockets) {
            // Said together with its transport, a bandwidth is the line rate, of which the transport has its share.
            let line = match declared {
                Some(declared) if !shape.has_nics() => {
                    let together = shape.part_of_nics(declared, part.beside) / among;
                    shape.part_of_nics(declared, part.devices).min(together)
                }
                _ if !shape.has_nics() => f64::from(NIC_MB_PER_S) / among,
                Some(declared) => found.min(declared / among),
                None => found,
            };
            let network = Network::of_transport(transport, shape.nic_each_mb());
            return Nic { mb: line.max(1e-3), network, is_declared: false };
        }
        let is_sockets = transport.is_some();
        let network = if is_sockets { Network::Sockets } else { network };
        let (mb, network, is_declared) = match declared {
            Some(declared) if !shape.has_nics() => {
                let together = shape.part_of_nics(declared, part.beside) / among;
                let network = if is_sockets { Network::Sockets } else { Network::Verbs };
                (shape.part_of_nics(declared, part.devices).min(together), network, true)
            }
            Some(declared) if declared / among < found * self.constants.networks.get(network).share => {
                (declared / among, network, true)
            }
            _ if !shape.has_nics() => (f64::from(SOCKET_MB_PER_S) / among, Network::Sockets, false),
            _ => (found, network, false),
        };
        Nic { mb: mb.max(1e-3), network, is_declared }
    }

    /// Marks the domains that the ring leaves. What leaves an island of several nodes uses all their NICs, so of
    /// the domains below the one that joins it, each carries its part.
    fn leave(&self, scratch: &mut Scratch, span: &mut Span) {
        let first = |island: &Island| scratch.parts.get(island.part as usize);
        for part in &scratch.parts {
            let index = part.island as usize;
            let Some(island) = scratch.islands.get(index) else { continue };
            let next = scratch.islands.get(index + 1).or(scratch.islands.first());
            let Some((next, other)) = next.and_then(|next| Some((next, first(next)?))) else { continue };
            let is_first = first(island).is_some_and(|first| first.node == part.node);
            let mut hop_ns = island.latency_ns.max(next.latency_ns);
            let mut is_below = false;
            for (here, there) in self.domains_of(part).iter().zip(self.domains_of(other)) {
                let (at, crosses) = (*here as usize, here != there);
                if crosses {
                    hop_ns += self.domain_list.get(at).map_or(0.0, |domain| domain.latency_ns);
                }
                if let Some(inside) = scratch.inside.get_mut(at) {
                    *inside += part.ends;
                }
                let share = match is_below {
                    true => f64::from(part.ends) / f64::from(island.ends),
                    false => f64::from(u8::from(is_first)),
                };
                if let Some(exits) = scratch.exits.get_mut(at).filter(|_| crosses) {
                    *exits += share;
                }
                is_below |= island.joint == Some(*here);
            }
            span.hop_ns = span.hop_ns.max(hop_ns);
        }
    }

    /// The narrowest uplink. Rings that leave a domain more than once share its uplink; of an all-to-all
    /// everything that goes out counts already.
    fn uplinks(&self, scratch: &Scratch, span: &mut Span, at: &mut At) {
        let n = f64::from(span.ranks);
        let groups = scratch.parts.iter().map(|part| part.groups).max().unwrap_or(1);
        for part in &scratch.parts {
            let island = scratch.islands.get(part.island as usize);
            for (here, depth) in self.domains_of(part).iter().zip(&self.above) {
                let Some(domain) = self.domain_list.get(*here as usize) else { continue };
                let exits = scratch.exits.get(*here as usize).copied().unwrap_or(0.0);
                let j = scratch.inside.get(*here as usize).copied().unwrap_or(0);
                if exits <= 0.0 || domain.uplink_mb.is_infinite() {
                    continue;
                }
                let mb = domain.uplink_mb / f64::from(groups);
                let share = mb / exits;
                let is_first = at.uplink.is_none_or(|known| (*depth, *here) < known);
                if share < span.uplink_mb || (share <= span.uplink_mb && is_first) {
                    (span.uplink_mb, at.uplink) = (share, Some((*depth, *here)));
                }
                // What stays in the island takes no uplink.
                let reached = island.filter(|island| island.joint.is_some()).map_or(0, |island| island.ends);
                let (out, j) = (n - f64::from(j.max(reached)), f64::from(j));
                span.uplink_cut_us = span.uplink_cut_us.max(j * out / n / mb);
            }
        }
    }

    /// Its domains at the levels that cost something, outermost first.
    fn domains_of(&self, part: &Part) -> &[u32] {
        let (node, width) = (part.node as usize, self.above.len());
        self.domains.get(node * width..(node + 1) * width).unwrap_or(&[])
    }

    /// The domain that joins the devices of this part with those of other nodes: all of them must have NVLink, and
    /// ranks without a device have none.
    fn joint(&self, part: &Part) -> Option<u32> {
        let joint = self.place(part.node)?.joint?;
        let is_whole = self.shape(part.node)?.is_whole(part.devices);
        (is_whole && part.ends == part.devices.count()).then_some(joint)
    }
}

impl Scratch {
    pub(super) fn gather(&mut self, compiled: &Compiled, ranks: &[Rank]) {
        self.part_of.resize(compiled.nodes.len(), 0);
        self.island_of.resize(compiled.domain_list.len(), 0);
        self.inside.resize(compiled.domain_list.len(), 0);
        self.exits.resize(compiled.domain_list.len(), 0.0);
        self.parts.clear();
        for rank in ranks {
            let Some(place) = self.part_of.get_mut(rank.node as usize) else { continue };
            let ends = rank.devices.count().max(1);
            let known = (*place as usize).checked_sub(1).and_then(|at| self.parts.get_mut(at));
            if let Some(part) = known {
                part.devices = part.devices.union(rank.devices);
                part.ends = part.ends.saturating_add(ends);
            } else {
                let (node, devices) = (rank.node, rank.devices);
                self.parts.push(Part {
                    node,
                    devices,
                    ends,
                    island: 0,
                    groups: 1,
                    beside: DeviceMask::EMPTY,
                });
                *place = u32::try_from(self.parts.len()).unwrap_or(0);
            }
        }
        // What this question marked, and nothing else: its cost is that of the ranks.
        for part in &self.parts {
            if let Some(place) = self.part_of.get_mut(part.node as usize) {
                *place = 0;
            }
        }
    }

    /// Who shares the NICs: `on` says it of each node.
    pub(super) fn share(&mut self, on: impl Fn(u32) -> Option<(u32, DeviceMask)>) {
        for part in &mut self.parts {
            (part.groups, part.beside) = on(part.node).unwrap_or((1, part.devices));
        }
    }

    /// Puts the parts into islands.
    fn join(&mut self, compiled: &Compiled, is_joined: bool) {
        self.islands.clear();
        for (index, part) in (0..).zip(&mut self.parts) {
            let latency_ns = compiled.place(part.node).map_or(0.0, |place| place.latency_ns);
            let joint = if is_joined { compiled.joint(part) } else { None };
            let place = joint.and_then(|domain| self.island_of.get_mut(domain as usize));
            let known = place.as_ref().and_then(|place| place.checked_sub(1));
            if let Some((at, island)) = known.and_then(|at| Some((at, self.islands.get_mut(at as usize)?))) {
                island.ends = island.ends.saturating_add(part.ends);
                island.node = island.node.min(part.node);
                island.latency_ns = island.latency_ns.max(latency_ns);
                part.island = at;
                continue;
            }
            part.island = u32::try_from(self.islands.len()).unwrap_or(u32::MAX);
            if let Some(place) = place {
                *place = part.island.saturating_add(1);
            }
            let (node, ends) = (part.node, part.ends);
            self.islands.push(Island { part: index, node, joint, ends, nic: None, latency_ns });
        }
    }

    fn forget_domains(&mut self, compiled: &Compiled) {
        for part in &self.parts {
            for domain in compiled.domains_of(part) {
                let at = *domain as usize;
                for marks in [&mut self.inside, &mut self.island_of] {
                    if let Some(mark) = marks.get_mut(at) {
                        *mark = 0;
                    }
                }
                if let Some(exits) = self.exits.get_mut(at) {
                    *exits = 0.0;
                }
            }
        }
    }
}
