//! How long one collective takes, and by which algorithm: the fastest, as the library's tuner would choose.
//!
//! A transfer that alone takes x is cut into parts that pass through a pipeline of latency L. With the best
//! number of parts this takes `(sqrt L + sqrt x)^2 = L + x + 2 sqrt(L x)`; buffers bound the parts, so the last
//! term stops growing. Latencies and the bandwidth of each algorithm and protocol are NCCL's.

use crate::span::Inner;
use crate::{Constants, Network, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collective {
    AllReduce,
    /// Bytes are what every rank has in the end.
    AllGather,
    /// Bytes are what every rank has in the beginning.
    ReduceScatter,
    /// Bytes are what one rank sends to all ranks together, itself among them.
    AllToAll,
    Broadcast,
    /// From one rank to another.
    PointToPoint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    Ring,
    /// Double binary trees over the nodes, chains inside them.
    Tree,
    /// Reduction inside the switch of one node.
    Nvls,
    /// Reduction inside each node's switch, trees over the nodes.
    NvlsTree,
    /// Reduce-scatter inside the nodes, all-reduce of the parts over them, all-gather. NCCL has no such
    /// algorithm: it is chosen only when asked for.
    Hierarchical,
    /// Every pair on its own.
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    LowLatency,
    LowLatency128,
    Simple,
}

impl Collective {
    /// In the order of the help.
    pub const ALL: [Self; 6] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Broadcast,
        Self::PointToPoint,
    ];

    /// As measurement files spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Broadcast => "broadcast",
            Self::PointToPoint => "send_recv",
        }
    }
}

impl Algorithm {
    /// As NCCL writes it (`NCCL_ALGO`); `P2P` is the way of its sends and receives.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ring => "Ring",
            Self::Tree => "Tree",
            Self::Nvls => "NVLS",
            Self::NvlsTree => "NVLSTree",
            Self::Hierarchical => "Hierarchical",
            Self::Direct => "P2P",
        }
    }
}

impl Protocol {
    /// As NCCL writes it (`NCCL_PROTO`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LowLatency => "LL",
            Self::LowLatency128 => "LL128",
            Self::Simple => "Simple",
        }
    }
}

/// Which part of the way holds a collective back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Nothing is sent.
    None,
    /// Latency is most of it.
    Latency,
    Inside,
    Nic,
    Uplink,
}

/// What one collective takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Time {
    pub ns: f64,
    /// However small the message is.
    pub latency_ns: f64,
    /// What the slowest part gives, one way; 0 when nothing is sent.
    pub mb_per_s: f64,
    pub algorithm: Algorithm,
    pub protocol: Protocol,
    pub limit: Limit,
}

/// Up to so many ports of a switch, in-switch reduction gets faster with each.
const NVLS_PORTS: u32 = 8;

const PROTOCOLS: [Protocol; 3] = [Protocol::LowLatency, Protocol::LowLatency128, Protocol::Simple];

/// A way to do it, before the message is known.
#[derive(Clone, Copy)]
struct Candidate {
    algorithm: Algorithm,
    protocol: usize,
    latency_ns: f64,
    /// Bytes through the slowest part, for each byte of the message.
    factor: f64,
    /// The slowest part and what it gives.
    limit: Limit,
    mb_per_s: f64,
}

/// The time of a collective of `bytes` over `span`, by the fastest algorithm, or the fastest protocol of
/// `forced`. An algorithm that the span or the collective does not allow falls back to the ring.
#[must_use]
pub fn time(
    span: &Span,
    collective: Collective,
    bytes: u64,
    forced: Option<Algorithm>,
    constants: &Constants,
) -> Time {
    let nothing = Time {
        ns: 0.0,
        latency_ns: 0.0,
        mb_per_s: 0.0,
        algorithm: Algorithm::Ring,
        protocol: Protocol::Simple,
        limit: Limit::None,
    };
    if span.ranks < 2 {
        return nothing;
    }
    let scoped;
    let constants = if constants.kinds.is_empty() {
        constants
    } else {
        scoped = constants.between(span);
        &scoped
    };
    let model = Model { span, constants, nic_mb: span.nic_mb * span.nic_share(constants) };
    let mut best: Option<Time> = None;
    let mut fallback: Option<Time> = None;
    model.each(collective, |candidate| {
        let time = model.take(candidate, bytes);
        let slot = match forced {
            Some(wanted) if wanted != candidate.algorithm => {
                if candidate.algorithm == Algorithm::Hierarchical {
                    return;
                }
                &mut fallback
            }
            None if candidate.algorithm == Algorithm::Hierarchical => return,
            _ => &mut best,
        };
        if slot.is_none_or(|best| time.ns < best.ns) {
            *slot = Some(time);
        }
    });
    let mut time = best.or(fallback).unwrap_or(nothing);
    if bytes == 0 {
        (time.mb_per_s, time.limit) = (0.0, Limit::None);
    }
    time
}

struct Model<'a> {
    span: &'a Span,
    constants: &'a Constants,
    nic_mb: f64,
}

impl Model<'_> {
    fn take(&self, candidate: Candidate, bytes: u64) -> Time {
        let constants = self.constants;
        #[expect(clippy::cast_precision_loss, reason = "a message of 2^53 bytes is petabytes")]
        let bytes = bytes as f64;
        let transfer_ns = bytes * candidate.factor / candidate.mb_per_s.max(1e-3) * 1e3;
        let full = constants.pipeline_bytes / (bytes + constants.pipeline_bytes);
        let filling_ns = constants.pipeline_share * 2.0 * (candidate.latency_ns * transfer_ns * full).sqrt();
        let ns = candidate.latency_ns + transfer_ns + filling_ns;
        Time {
            ns,
            latency_ns: candidate.latency_ns,
            mb_per_s: candidate.mb_per_s,
            algorithm: candidate.algorithm,
            protocol: PROTOCOLS[candidate.protocol],
            limit: if transfer_ns < candidate.latency_ns { Limit::Latency } else { candidate.limit },
        }
    }

    fn each(&self, collective: Collective, mut candidate: impl FnMut(Candidate)) {
        let n = f64::from(self.span.ranks);
        match collective {
            Collective::AllReduce => {
                self.rings(2.0, 2.0 * (n - 1.0) / n, &mut candidate);
                if self.span.nodes > 1 {
                    // Over sockets times follow 2(n-1)/n as those of rings do (step times on g4dn, 1 to 16 GPUs).
                    if self.span.network != Network::Sockets {
                        self.trees(&mut candidate);
                    }
                    candidate(self.hierarchical());
                }
                if self.span.nvls_mb > 0.0 {
                    candidate(self.nvls());
                }
            }
            Collective::AllGather | Collective::ReduceScatter => {
                self.rings(1.0, (n - 1.0) / n, &mut candidate);
            }
            Collective::Broadcast => self.rings(1.0, 1.0, &mut candidate),
            Collective::PointToPoint => candidate(self.point_to_point()),
            Collective::AllToAll => candidate(self.all_to_all()),
        }
    }

    /// The protocols that the hardware has: LL128 needs stores of 128 bytes that arrive whole, which NVLink
    /// keeps and others do not.
    fn protocols(&self) -> impl Iterator<Item = usize> + use<> {
        let has_128 = self.span.inner == Inner::Nvlink;
        (0..3).filter(move |protocol| *protocol != 1 || has_128)
    }

    /// `rounds` times around: twice for an all-reduce.
    fn rings(&self, rounds: f64, factor: f64, candidate: &mut impl FnMut(Candidate)) {
        let (span, constants) = (self.span, self.constants);
        let (n, k) = (f64::from(span.ranks), f64::from(span.nodes));
        let outer_hops = if span.nodes > 1 { rounds * (k - 1.0) } else { 0.0 };
        let inner_hops = rounds * (n - 1.0) - outer_hops;
        let (limit, mb) = self.slowest(span.ring_mb * constants.ring_share, self.nic_mb, span.uplink_mb);
        for protocol in self.protocols() {
            let inner_ns = if span.inner == Inner::Nvlink || span.inner == Inner::Xgmi {
                constants.nvlink_ring_ns[protocol]
            } else {
                constants.pcie_ring_ns[protocol]
            };
            let most = if protocol == 0 { span.era.ll_mb(span.nodes, constants) } else { f64::INFINITY };
            candidate(Candidate {
                algorithm: Algorithm::Ring,
                protocol,
                latency_ns: constants.base_ring_ns[protocol]
                    + inner_hops * inner_ns
                    + outer_hops * self.outer_ns(constants.net_ring_ns[protocol]),
                factor,
                limit,
                mb_per_s: (mb * constants.ring_protocols[protocol]).min(most),
            });
        }
    }

    /// Inside a node a chain carries everything up and down again, so each device sends the message twice.
    fn trees(&self, candidate: &mut impl FnMut(Candidate)) {
        let (span, constants) = (self.span, self.constants);
        let inner_mb = span.ring_mb * constants.ring_share / 2.0;
        let (nic_mb, uplink_mb) = (self.nic_mb * self.tree_share(), span.uplink_mb * self.tree_share());
        for protocol in self.protocols() {
            let inner_ns = if span.inner == Inner::Nvlink || span.inner == Inner::Xgmi {
                constants.nvlink_tree_ns[protocol]
            } else {
                constants.pcie_tree_ns[protocol]
            };
            let inside = inner_mb * constants.tree_protocols[protocol];
            let net = constants.tree_net_protocols[protocol];
            let (limit, mb) = self.slowest(inside, nic_mb * net, uplink_mb * net);
            candidate(Candidate {
                algorithm: Algorithm::Tree,
                protocol,
                latency_ns: constants.base_tree_ns[protocol]
                    + 2.0 * (f64::from(span.per_node.saturating_sub(1)) * inner_ns)
                    + 2.0 * self.tree_depth() * self.outer_ns(constants.net_tree_ns[protocol]),
                factor: 1.0,
                limit,
                mb_per_s: mb,
            });
        }
    }

    /// A device reads its part of everybody's data through the switch, which adds it up, and writes the sum
    /// once: S + S/g through its port. More ports do not help: 72 GB300 reach 475 GB/s, 8 B200 479.
    fn nvls(&self) -> Candidate {
        let (span, constants) = (self.span, self.constants);
        let g = f64::from(span.per_node.min(NVLS_PORTS));
        let inside = span.nvls_mb * span.era.nvls(constants) * constants.nvls_share / (1.0 + 1.0 / g);
        if span.nodes == 1 {
            return Candidate {
                algorithm: Algorithm::Nvls,
                protocol: 2,
                latency_ns: constants.nvls_ns,
                factor: 1.0,
                limit: Limit::Inside,
                mb_per_s: inside,
            };
        }
        let (nic_mb, uplink_mb) = (self.nic_mb * self.tree_share(), span.uplink_mb * self.tree_share());
        let (limit, mb_per_s) = self.slowest(inside * constants.nvls_tree_share, nic_mb, uplink_mb);
        Candidate {
            algorithm: Algorithm::NvlsTree,
            protocol: 2,
            latency_ns: constants.base_tree_ns[2]
                + constants.nvls_ns
                + 2.0 * self.tree_depth() * self.outer_ns(constants.nvls_net_ns),
            factor: 1.0,
            limit,
            mb_per_s,
        }
    }

    /// Its three phases one after the other; `factor` and bandwidth are those of the whole.
    fn hierarchical(&self) -> Candidate {
        let (span, constants) = (self.span, self.constants);
        let (g, k) = (f64::from(span.per_node), f64::from(span.nodes));
        let (inner_factor, outer_factor) = (2.0 * (g - 1.0) / g, 2.0 * (k - 1.0) / k);
        let inside = (span.ring_mb * constants.ring_share).max(1e-3);
        let (limit, outside) = self.slowest(f64::INFINITY, self.nic_mb, span.uplink_mb);
        let us_per_byte = inner_factor / inside + outer_factor / outside.max(1e-3);
        let inner_ns = constants.nvlink_ring_ns[2];
        let outer_ns = self.outer_ns(constants.net_ring_ns[2]);
        Candidate {
            algorithm: Algorithm::Hierarchical,
            protocol: 2,
            latency_ns: constants.base_ring_ns[2] + 2.0 * ((g - 1.0) * inner_ns + (k - 1.0) * outer_ns),
            factor: outer_factor,
            limit: if inner_factor / inside > outer_factor / outside { Limit::Inside } else { limit },
            mb_per_s: outer_factor / us_per_byte,
        }
    }

    fn point_to_point(&self) -> Candidate {
        let (span, constants) = (self.span, self.constants);
        let hop = if span.nodes > 1 {
            self.outer_ns(constants.net_ring_ns[2])
        } else if span.inner == Inner::Nvlink || span.inner == Inner::Xgmi {
            constants.nvlink_ring_ns[2]
        } else {
            constants.pcie_ring_ns[2]
        };
        let inside = if span.nodes > 1 { f64::INFINITY } else { span.pair_mb * constants.ring_share };
        let (limit, mb_per_s) = self.slowest(inside, self.nic_mb, span.uplink_mb);
        let latency_ns = constants.base_ring_ns[2] + hop;
        Candidate { algorithm: Algorithm::Direct, protocol: 2, latency_ns, factor: 1.0, limit, mb_per_s }
    }

    /// Inside a node a port carries one peer after the other, and direct links all at once; out of a socket, a node or
    /// a domain goes what its ranks send to all the others.
    fn all_to_all(&self) -> Candidate {
        let (span, constants) = (self.span, self.constants);
        let n = f64::from(span.ranks);
        let peers = f64::from(span.per_node.saturating_sub(1));
        let through = if span.is_direct { peers.min(1.0) / n } else { peers / n };
        let share = constants.all_to_all_share;
        let inside =
            (through / (span.pair_mb * share).max(1e-3)).max(span.inner_cut_us / n / share.max(1e-3));
        let mut slowest = (Limit::Inside, inside);
        if span.nodes > 1 {
            let nic_cut = span.nic_cut_us / span.nic_share(constants).max(1e-3);
            for (limit, us) in [(Limit::Nic, nic_cut), (Limit::Uplink, span.uplink_cut_us)] {
                if us > slowest.1 {
                    slowest = (limit, us);
                }
            }
        }
        let (limit, us_per_byte) = slowest;
        let mb_per_s = match limit {
            Limit::Nic => self.nic_mb,
            Limit::Uplink => span.uplink_mb,
            _ => span.pair_mb * constants.all_to_all_share,
        };
        let inner_ns =
            if span.inner == Inner::Pcie { constants.pcie_ring_ns[0] } else { constants.nvlink_ring_ns[0] };
        let outer_hops = f64::from(span.ranks - span.per_node.min(span.ranks));
        Candidate {
            algorithm: Algorithm::Direct,
            protocol: 2,
            latency_ns: constants.base_ring_ns[2]
                + peers * inner_ns
                + outer_hops * (constants.net_ring_ns[0] / 2.0)
                + if span.nodes > 1 { self.outer_ns(0.0) } else { 0.0 },
            factor: us_per_byte * mb_per_s,
            limit,
            mb_per_s,
        }
    }

    fn outer_ns(&self, net_ns: f64) -> f64 {
        net_ns + self.constants.networks.get(self.span.network).hop_ns + self.span.hop_ns
    }

    /// The first of the slowest, from the inside outwards.
    fn slowest(&self, inside: f64, nic_mb: f64, uplink_mb: f64) -> (Limit, f64) {
        let (nic_mb, uplink_mb) =
            if self.span.nodes > 1 { (nic_mb, uplink_mb) } else { (f64::INFINITY, f64::INFINITY) };
        let mut slowest = (Limit::Inside, inside);
        for (limit, mb) in [(Limit::Nic, nic_mb), (Limit::Uplink, uplink_mb)] {
            if mb < slowest.1 {
                slowest = (limit, mb);
            }
        }
        slowest
    }

    /// Of the NICs of a node, what double trees give the message: a node has at most two children and a parent
    /// (measured, and said by NCCL's makers in nccl-tests#196).
    fn tree_share(&self) -> f64 {
        match self.span.nodes {
            0..=2 => 1.0,
            3 => 2.0 / 3.0,
            _ => 0.5,
        }
    }

    /// `ceil(log2(nodes))`.
    fn tree_depth(&self) -> f64 {
        f64::from(self.span.nodes.max(1).next_power_of_two().trailing_zeros())
    }
}
