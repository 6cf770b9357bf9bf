//! Constants of one kind of machine, where a site has measured that kind alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::span::{Era, Inner};
use crate::{Constants, Span};

/// A kind of machine, for constants of what is inside: what joins its devices, and their generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineKind {
    NvlinkVolta,
    NvlinkAmpere,
    NvlinkHopper,
    NvlinkBlackwell,
    PcieVolta,
    PcieAmpere,
    PcieHopper,
    PcieBlackwell,
    Xgmi,
    /// Ranks without devices, which talk through the memory of their host.
    Host,
}

/// What a kind of machine has of its own; the others are those of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OfKind {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvls_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvls_tree_share: Option<f64>,
    /// On one node; what passes through a network as well has that of all kinds, and likewise for `pipeline_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch_ns: Option<f64>,
}

/// The constants of kinds of machines that have their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, OfKind>", into = "BTreeMap<String, OfKind>")]
pub struct Kinds([OfKind; MachineKind::ALL.len()]);

impl MachineKind {
    pub const ALL: [Self; 10] = [
        Self::NvlinkVolta,
        Self::NvlinkAmpere,
        Self::NvlinkHopper,
        Self::NvlinkBlackwell,
        Self::PcieVolta,
        Self::PcieAmpere,
        Self::PcieHopper,
        Self::PcieBlackwell,
        Self::Xgmi,
        Self::Host,
    ];

    /// As a file of constants spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NvlinkVolta => "nvlink_volta",
            Self::NvlinkAmpere => "nvlink_ampere",
            Self::NvlinkHopper => "nvlink_hopper",
            Self::NvlinkBlackwell => "nvlink_blackwell",
            Self::PcieVolta => "pcie_volta",
            Self::PcieAmpere => "pcie_ampere",
            Self::PcieHopper => "pcie_hopper",
            Self::PcieBlackwell => "pcie_blackwell",
            Self::Xgmi => "xgmi",
            Self::Host => "host",
        }
    }

    /// The kind of the machines that ranks talk inside of.
    #[must_use]
    pub const fn of(span: &Span) -> Self {
        match (span.inner, span.era) {
            (Inner::Xgmi, _) => Self::Xgmi,
            (Inner::Host, _) => Self::Host,
            (Inner::Nvlink, Era::Volta) => Self::NvlinkVolta,
            (Inner::Nvlink, Era::Ampere) => Self::NvlinkAmpere,
            (Inner::Nvlink, Era::Hopper) => Self::NvlinkHopper,
            (Inner::Nvlink, Era::Blackwell) => Self::NvlinkBlackwell,
            (Inner::Pcie, Era::Volta) => Self::PcieVolta,
            (Inner::Pcie, Era::Ampere) => Self::PcieAmpere,
            (Inner::Pcie, Era::Hopper) => Self::PcieHopper,
            (Inner::Pcie, Era::Blackwell) => Self::PcieBlackwell,
        }
    }
}

impl Kinds {
    pub const NONE: Self = Self([OfKind::NONE; MachineKind::ALL.len()]);

    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    #[must_use]
    pub fn get(&self, kind: MachineKind) -> OfKind {
        self.0.get(kind as usize).copied().unwrap_or_default()
    }

    pub(crate) fn get_mut(&mut self, kind: MachineKind) -> Option<&mut OfKind> {
        self.0.get_mut(kind as usize)
    }
}

impl OfKind {
    const NONE: Self = Self {
        ring_share: None,
        nvls_share: None,
        nvls_tree_share: None,
        pipeline_share: None,
        pipeline_bytes: None,
        launch_ns: None,
    };
}

impl Constants {
    /// The constants for machines of this kind: those of all kinds, and its own in their place.
    #[must_use]
    pub fn of_kind(&self, kind: MachineKind) -> Self {
        let own = self.kinds.get(kind);
        Self {
            ring_share: own.ring_share.unwrap_or(self.ring_share),
            nvls_share: own.nvls_share.unwrap_or(self.nvls_share),
            nvls_tree_share: own.nvls_tree_share.unwrap_or(self.nvls_tree_share),
            pipeline_share: own.pipeline_share.unwrap_or(self.pipeline_share),
            pipeline_bytes: own.pipeline_bytes.unwrap_or(self.pipeline_bytes),
            launch_ns: own.launch_ns.unwrap_or(self.launch_ns),
            ..*self
        }
    }

    /// The constants that the equations use between these ranks.
    #[must_use]
    pub(crate) fn between(&self, span: &Span) -> Self {
        let own = self.of_kind(MachineKind::of(span));
        if span.nodes < 2 {
            return own;
        }
        // How a network is filled is no matter of the machine.
        Self { pipeline_share: self.pipeline_share, pipeline_bytes: self.pipeline_bytes, ..own }
    }
}

impl TryFrom<BTreeMap<String, OfKind>> for Kinds {
    type Error = String;

    fn try_from(named: BTreeMap<String, OfKind>) -> Result<Self, String> {
        let mut kinds = Self::NONE;
        for (name, own) in named {
            let known = MachineKind::ALL.into_iter().find(|kind| kind.name() == name);
            let Some(slot) = known.and_then(|kind| kinds.get_mut(kind)) else {
                let known = MachineKind::ALL.map(MachineKind::name).join(", ");
                let name: String = name.chars().take(40).collect();
                return Err(format!("no kind of machine is called {name:?}; expected one of {known}"));
            };
            *slot = own;
        }
        Ok(kinds)
    }
}

impl From<Kinds> for BTreeMap<String, OfKind> {
    fn from(kinds: Kinds) -> Self {
        let own = MachineKind::ALL.into_iter().map(|kind| (kind.name().to_owned(), kinds.get(kind)));
        own.filter(|(_, own)| *own != OfKind::NONE).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_place_and_a_name() {
        for (at, kind) in MachineKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{}", kind.name());
        }
    }

    #[test]
    fn a_kind_has_its_own_constants_and_the_others_those_of_all() {
        let text = format!("{}\n[kinds.nvlink_hopper]\nring_share = 0.5\n", Constants::TOML);
        let read: Constants = toml::from_str(&text).expect("well formed");
        assert!((read.of_kind(MachineKind::NvlinkHopper).ring_share - 0.5).abs() < 1e-12);
        assert_eq!(read.of_kind(MachineKind::NvlinkAmpere).ring_share, Constants::DEFAULT.ring_share);
        let written = toml::to_string_pretty(&read).expect("is written");
        assert!(written.contains("[kinds.nvlink_hopper]\nring_share = 0.5"), "{written}");
        assert_eq!(toml::from_str::<Constants>(&written).expect("is read again"), read);
        assert!(!toml::to_string_pretty(&Constants::DEFAULT).expect("is written").contains("kinds"));
    }

    #[test]
    fn an_unknown_kind_is_refused_with_those_that_there_are() {
        let with = |more: &str| toml::from_str::<Constants>(&format!("{}\n{more}", Constants::TOML));
        let error = with("[kinds.h100]\nring_share = 0.5\n").expect_err("no such kind").to_string();
        assert!(error.contains("\"h100\"") && error.contains("nvlink_hopper"), "{error}");
        assert!(with("[kinds.xgmi]\nshare = 0.5\n").is_err(), "no such constant");
    }
}
