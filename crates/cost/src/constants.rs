//! The constants of the model as data: `constants.toml` beside this crate has every value with its source.

use phalanx_model::{CollectiveCost, Transport};
use serde::{Deserialize, Serialize};

use crate::Kinds;

/// One value per protocol: LL, LL128, Simple.
pub type PerProtocol = [f64; 3];

/// What the model knows of hardware and of the collective library. Times in ns, bandwidths in MB/s, shares as
/// fractions of what is nominal. The fields are described in `constants.toml`, which a caller can edit and
/// parse; [`Constants::DEFAULT`] is the same file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constants {
    pub ring_share: f64,
    pub nvls_share: f64,
    pub nvls_tree_share: f64,
    pub pipeline_share: f64,
    pub pipeline_bytes: f64,
    pub launch_ns: f64,
    pub socket_pair_share: f64,
    pub all_to_all_share: f64,
    pub base_tree_ns: PerProtocol,
    pub base_ring_ns: PerProtocol,
    pub nvlink_tree_ns: PerProtocol,
    pub nvlink_ring_ns: PerProtocol,
    pub pcie_tree_ns: PerProtocol,
    pub pcie_ring_ns: PerProtocol,
    pub net_tree_ns: PerProtocol,
    pub net_ring_ns: PerProtocol,
    pub nvls_ns: f64,
    pub nvls_net_ns: f64,
    pub ring_protocols: PerProtocol,
    pub tree_protocols: PerProtocol,
    pub tree_net_protocols: PerProtocol,
    pub ll_volta_mb: [f64; 3],
    pub ll_ampere_mb: [f64; 3],
    pub ll_hopper_mb: [f64; 3],
    pub ll_blackwell_mb: [f64; 3],
    pub nvls_hopper: f64,
    pub nvls_blackwell: f64,
    pub networks: Networks,
    /// Of kinds of machines that were measured alone, in the place of those above.
    #[serde(default, skip_serializing_if = "Kinds::is_empty")]
    pub kinds: Kinds,
}

/// How nodes talk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// `InfiniBand`, and NICs that do not say.
    #[default]
    Verbs,
    Roce,
    /// AWS EFA with 100G devices.
    Efa100,
    /// AWS EFA with 200G and 400G rails.
    Efa,
    /// GPUDirect-TCPX.
    Tcpx,
    /// GPUDirect-TCPXO.
    Tcpxo,
    /// TCP through the kernel.
    Sockets,
}

/// What a network gives of its line rate, and what a hop costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkClass {
    pub share: f64,
    pub hop_ns: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Networks {
    pub verbs: NetworkClass,
    /// Files of constants that were written before it was told apart have none.
    #[serde(default = "roce")]
    pub roce: NetworkClass,
    pub efa100: NetworkClass,
    pub efa: NetworkClass,
    pub tcpx: NetworkClass,
    pub tcpxo: NetworkClass,
    pub sockets: NetworkClass,
}

impl Network {
    pub const ALL: [Self; 7] =
        [Self::Verbs, Self::Roce, Self::Efa100, Self::Efa, Self::Tcpx, Self::Tcpxo, Self::Sockets];

    /// As `constants.toml` and measurement files spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Roce => "roce",
            Self::Efa100 => "efa100",
            Self::Efa => "efa",
            Self::Tcpx => "tcpx",
            Self::Tcpxo => "tcpxo",
            Self::Sockets => "sockets",
        }
    }

    /// The network of a declared transport; `mb_per_s` is one NIC. Slow EFA devices are those of p4.
    #[must_use]
    pub const fn of_transport(transport: Transport, mb_per_s: f64) -> Self {
        match transport {
            Transport::Verbs => Self::Verbs,
            Transport::Roce => Self::Roce,
            Transport::Efa if mb_per_s <= 12_500.0 => Self::Efa100,
            Transport::Efa => Self::Efa,
            Transport::Tcpx => Self::Tcpx,
            Transport::Tcpxo => Self::Tcpxo,
            Transport::Sockets => Self::Sockets,
        }
    }

    /// Whether a NIC of this name tells its network: EFA devices and those of RDMA do, `NIC0` and `eth0` do not.
    #[must_use]
    pub fn is_told_by(name: &str) -> bool {
        ["rdmap", "efa", "mlx", "ib", "roce", "hfi", "bnxt_re", "irdma"]
            .iter()
            .any(|known| name.starts_with(known))
    }

    /// The network behind a NIC of this name: EFA devices are called `rdmap*` or `efa*`, all others of
    /// the collective are verbs devices.
    #[must_use]
    pub fn of_nic(name: &str, mb_per_s: u64) -> Self {
        match name.starts_with("rdmap") || name.starts_with("efa") {
            true if mb_per_s <= 12_500 => Self::Efa100,
            true => Self::Efa,
            false => Self::Verbs,
        }
    }
}

impl Networks {
    #[must_use]
    pub const fn get(&self, network: Network) -> NetworkClass {
        match network {
            Network::Verbs => self.verbs,
            Network::Roce => self.roce,
            Network::Efa100 => self.efa100,
            Network::Efa => self.efa,
            Network::Tcpx => self.tcpx,
            Network::Tcpxo => self.tcpxo,
            Network::Sockets => self.sockets,
        }
    }

    pub(crate) const fn get_mut(&mut self, network: Network) -> &mut NetworkClass {
        match network {
            Network::Verbs => &mut self.verbs,
            Network::Roce => &mut self.roce,
            Network::Efa100 => &mut self.efa100,
            Network::Efa => &mut self.efa,
            Network::Tcpx => &mut self.tcpx,
            Network::Tcpxo => &mut self.tcpxo,
            Network::Sockets => &mut self.sockets,
        }
    }
}

impl Default for Constants {
    fn default() -> Self {
        Self::DEFAULT
    }
}

const fn roce() -> NetworkClass {
    Constants::DEFAULT.networks.roce
}

const fn class(share: f64, hop_ns: f64) -> NetworkClass {
    NetworkClass { share, hop_ns }
}

impl Constants {
    /// The text that [`Constants::DEFAULT`] is the same as.
    pub const TOML: &'static str = include_str!("../constants.toml");

    /// `constants.toml`; a test holds both together.
    pub const DEFAULT: Self = Self {
        ring_share: 0.982,
        nvls_share: 0.979,
        nvls_tree_share: 0.923,
        pipeline_share: 0.566,
        pipeline_bytes: 1e8,
        launch_ns: 22_900.0,
        socket_pair_share: 0.62,
        all_to_all_share: 0.78,
        base_tree_ns: [6_800.0, 14_000.0, 8_400.0],
        base_ring_ns: [6_600.0, 14_000.0, 8_400.0],
        nvlink_tree_ns: [600.0, 1_250.0, 4_000.0],
        nvlink_ring_ns: [600.0, 1_900.0, 3_400.0],
        pcie_tree_ns: [1_000.0, 1_900.0, 4_000.0],
        pcie_ring_ns: [1_000.0, 2_500.0, 5_700.0],
        net_tree_ns: [5_000.0, 8_500.0, 14_000.0],
        net_ring_ns: [2_700.0, 4_000.0, 14_000.0],
        nvls_ns: 25_000.0,
        nvls_net_ns: 20_900.0,
        ring_protocols: [0.5, 0.92, 1.0],
        tree_protocols: [0.263, 0.8625, 0.92],
        tree_net_protocols: [0.5, 0.92, 1.0],
        ll_volta_mb: [39_000.0, 39_000.0, 20_400.0],
        ll_ampere_mb: [87_700.0, 22_500.0, 19_000.0],
        ll_hopper_mb: [141_000.0, 45_000.0, 35_000.0],
        ll_blackwell_mb: [282_000.0, 90_000.0, 70_000.0],
        nvls_hopper: 0.85,
        nvls_blackwell: 0.74,
        networks: Networks {
            verbs: class(1.0, 2_060.0),
            roce: class(1.0, 2_060.0),
            efa100: class(0.853, 69_400.0),
            efa: class(0.974, 31_000.0),
            tcpx: class(0.507, 15_000.0),
            tcpxo: class(0.963, 15_000.0),
            sockets: class(0.95, 15_000.0),
        },
        kinds: Kinds::NONE,
    };

    /// The calibratable constants before any measurement: what is documented, or all of what is nominal. A fit
    /// without one piece of hardware begins here, so that nothing of it is known.
    pub const PRIOR: Self = Self {
        ring_share: 1.0,
        nvls_share: 1.0,
        nvls_tree_share: 0.95,
        pipeline_share: 0.5,
        pipeline_bytes: 1e8,
        launch_ns: 25_000.0,
        networks: Networks {
            verbs: class(0.95, 1_000.0),
            roce: class(0.95, 1_000.0),
            efa100: class(0.95, 15_000.0),
            efa: class(0.95, 15_000.0),
            tcpx: class(0.95, 15_000.0),
            tcpxo: class(0.95, 15_000.0),
            sockets: class(0.95, 15_000.0),
        },
        ..Self::DEFAULT
    };

    /// What enters the engine of these constants: rings of large messages, over NVLink inside a node and over verbs
    /// between nodes.
    #[must_use]
    pub fn collectives(&self) -> CollectiveCost {
        // The last protocol is that of large messages.
        let [.., call_ns] = self.base_ring_ns;
        let [.., inside_hop_ns] = self.nvlink_ring_ns;
        let [.., net_hop_ns] = self.net_ring_ns;
        CollectiveCost {
            call_ps: nearest(call_ns * 1e3),
            inside_hop_ps: nearest(inside_hop_ns * 1e3),
            net_hop_ps: nearest((net_hop_ns + self.networks.verbs.hop_ns) * 1e3),
            ring_share_ppm: millionths(self.ring_share),
            pipeline_share_ppm: millionths(self.pipeline_share),
            pipeline_bytes: nearest(self.pipeline_bytes),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
const fn nearest(number: f64) -> u64 {
    (number + 0.5) as u64
}

fn millionths(share: f64) -> u32 {
    u32::try_from(nearest(share * 1e6)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_file() {
        let file: Constants = toml::from_str(Constants::TOML).expect("constants.toml is well formed");
        assert_eq!(file, Constants::DEFAULT);
    }

    #[test]
    fn the_engine_has_the_numbers_of_the_file() {
        assert_eq!(Constants::DEFAULT.collectives(), CollectiveCost::default());
        let text = Constants::TOML
            .replace("base_ring_ns = [6_600.0, 14_000.0, 8_400.0]", "base_ring_ns = [1.0, 2.0, 9_000.5]")
            .replace("nvlink_ring_ns = [600.0, 1_900.0, 3_400.0]", "nvlink_ring_ns = [1.0, 2.0, 0.25]")
            .replace("net_ring_ns = [2_700.0, 4_000.0, 14_000.0]", "net_ring_ns = [1.0, 2.0, 20_000.0]")
            .replace("hop_ns = 2_060.0", "hop_ns = 70_000.0")
            .replace("ring_share = 0.982", "ring_share = 0.912345")
            .replace("pipeline_share = 0.566", "pipeline_share = 1.2")
            .replace("pipeline_bytes = 1e8", "pipeline_bytes = 3e9");
        let file: Constants = toml::from_str(&text).expect("well formed");
        let compiled = CollectiveCost {
            call_ps: 9_000_500,
            inside_hop_ps: 250,
            net_hop_ps: 90_000_000,
            ring_share_ppm: 912_345,
            pipeline_share_ppm: 1_200_000,
            pipeline_bytes: 3_000_000_000,
        };
        assert_eq!(file.collectives(), compiled);
        let huge = Constants { ring_share: f64::INFINITY, pipeline_bytes: 1e300, ..Constants::DEFAULT };
        let most = huge.collectives();
        assert_eq!((most.ring_share_ppm, most.pipeline_bytes), (u32::MAX, u64::MAX));
    }
}
