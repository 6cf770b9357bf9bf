//! Measured bandwidth: how much of its nominal bandwidth a link of the map has. The world measures, decides how long a
//! measurement counts, and reports each change of what it counts as. The engine only weighs.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::report::show_path;
use crate::show::span;
use crate::{DomainName, NodeName, Timestamp};

/// A link of the map that can be measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Uplink {
    /// The network of a node: its NICs and their cables.
    Node(NodeName),
    /// The uplink of a domain above the node, by the path of the domain, outermost first.
    Domain(Vec<DomainName>),
}

impl fmt::Display for Uplink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "{node}"),
            Self::Domain(path) => f.write_str(&show_path(path)),
        }
    }
}

/// A link was measured, or its measurement counts for less than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bandwidth {
    pub uplink: Uplink,
    /// The measured share of the nominal bandwidth, in thousandths.
    pub permille: u16,
    /// What the share counts as by now: it goes back to 1000 with time. At 1000 the link is nominal.
    pub counts_permille: u16,
    /// When it was measured.
    pub at: Timestamp,
    /// The evidence, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// The measured links that are not nominal.
pub type Bandwidths = BTreeMap<Uplink, Bandwidth>;

impl Bandwidth {
    /// A nominal link.
    pub const NOMINAL: u16 = 1_000;
    /// No link counts for less: a measurement may be wrong, and nominal links may be far away.
    pub const LEAST: u16 = 250;
    /// Shares count in such steps, so that noise changes no placement.
    pub const STEP: u16 = 125;

    /// A link that is as it should be.
    #[must_use]
    pub const fn nominal(uplink: Uplink, at: Timestamp) -> Self {
        let (permille, counts_permille) = (Self::NOMINAL, Self::NOMINAL);
        Self { uplink, permille, counts_permille, at, detail: String::new() }
    }

    /// What a share counts as: the next step, and no less than [`Self::LEAST`].
    #[must_use]
    pub const fn in_steps(permille: u16) -> u16 {
        let steps = (permille.saturating_add(Self::STEP / 2)) / Self::STEP;
        let rounded = steps.saturating_mul(Self::STEP);
        match rounded {
            ..Self::LEAST => Self::LEAST,
            Self::NOMINAL.. => Self::NOMINAL,
            rounded => rounded,
        }
    }

    /// What a share that was measured so long ago counts as: it goes back to nominal in a straight line.
    #[must_use]
    pub fn decayed(permille: u16, age_ms: u64, decay_ms: u64) -> u16 {
        let missing = u128::from(Self::NOMINAL.saturating_sub(permille));
        let left_ms = u128::from(decay_ms.saturating_sub(age_ms));
        let missing = missing * left_ms / u128::from(decay_ms.max(1));
        Self::in_steps(Self::NOMINAL - u16::try_from(missing).unwrap_or(Self::NOMINAL))
    }

    /// What it counts as, in steps.
    #[must_use]
    pub const fn share(&self) -> u16 {
        Self::in_steps(self.counts_permille)
    }
}

/// A measured link and a gang that was placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WeighedLink {
    pub bandwidth: Bandwidth,
    /// The gang does not send over the link, although it would have fitted there. `false`: it sends over the link.
    pub is_avoided: bool,
}

impl Uplink {
    /// What of it is measured.
    const fn part(&self) -> &'static str {
        match self {
            Self::Node(_) => "network",
            Self::Domain(_) => "uplink",
        }
    }
}

impl Bandwidth {
    /// `its network has 40% of its bandwidth, measured 4m ago: gpu_bench`.
    #[must_use]
    pub fn sentence(&self, now: Timestamp) -> String {
        let ago = match now.since(self.at) {
            ..1_000 => "just now".to_owned(),
            ms => format!("{} ago", span(ms)),
        };
        let detail = if self.detail.is_empty() { String::new() } else { format!(" ({})", self.detail) };
        format!(
            "its {} has {} of its bandwidth, measured {ago}{detail}",
            self.uplink.part(),
            percent(self.permille)
        )
    }
}

impl WeighedLink {
    /// `gpu-3 was avoided: its network has 40% of its bandwidth, measured 4m ago`.
    #[must_use]
    pub fn sentence(&self, now: Timestamp) -> String {
        let Self { bandwidth, is_avoided } = self;
        let is = if *is_avoided { "was avoided" } else { "is used" };
        format!("{} {is}: {}", bandwidth.uplink, bandwidth.sentence(now))
    }
}

/// Thousandths as `40%`, or `37.5%`.
#[must_use]
pub fn percent(permille: u16) -> String {
    match permille % 10 {
        0 => format!("{}%", permille / 10),
        tenths => format!("{}.{tenths}%", permille / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_count_in_steps_and_no_link_counts_for_nothing() {
        let steps = [0, 250, 312, 313, 400, 437, 438, 900, 937, 938, 1_000, 65_535].map(Bandwidth::in_steps);
        assert_eq!(steps, [250, 250, 250, 375, 375, 375, 500, 875, 875, 1_000, 1_000, 1_000]);
    }

    #[test]
    fn a_measurement_goes_back_to_nominal_in_a_straight_line() {
        let hour = 3_600_000;
        let at = |minutes: u64| Bandwidth::decayed(500, minutes * 60_000, hour);
        assert_eq!([0, 10, 15, 30, 45, 60, 600].map(at), [500, 625, 625, 750, 875, 1_000, 1_000]);
        assert_eq!(Bandwidth::decayed(100, 0, hour), 250, "the floor");
        assert_eq!(Bandwidth::decayed(100, 0, 0), 1_000, "a site that does not weigh measurements");
        let minutes = (0..60).map(at).collect::<Vec<_>>();
        assert!(minutes.is_sorted(), "it never counts for more than before");
    }

    #[test]
    fn a_link_is_a_name_or_a_path_in_journals() {
        let of = |uplink| Bandwidth {
            uplink,
            permille: 400,
            counts_permille: 375,
            at: Timestamp(7),
            detail: String::new(),
        };
        let node = of(Uplink::Node(NodeName::new("gpu-3").unwrap()));
        let text = r#"{"uplink":{"node":"gpu-3"},"permille":400,"counts_permille":375,"at":7}"#;
        assert_eq!(serde_json::to_string(&node).unwrap(), text);
        let names = ["pod-1", "leaf-2"].map(|name| DomainName::new(name).unwrap());
        let domain = of(Uplink::Domain(names.to_vec()));
        let text = r#"{"uplink":{"domain":["pod-1","leaf-2"]},"permille":400,"counts_permille":375,"at":7}"#;
        assert_eq!(serde_json::from_str::<Bandwidth>(text).unwrap(), domain);
        assert_eq!(domain.uplink.to_string(), "pod-1/leaf-2");
    }

    #[test]
    fn people_read_which_link_and_when() {
        let names = ["pod-1", "leaf-2"].map(|name| DomainName::new(name).unwrap());
        let bandwidth = Bandwidth {
            uplink: Uplink::Domain(names.to_vec()),
            permille: 375,
            counts_permille: 875,
            at: Timestamp(60_000),
            detail: "perftest".to_owned(),
        };
        let link = WeighedLink { bandwidth, is_avoided: true };
        assert_eq!(
            link.sentence(Timestamp(300_000)),
            "pod-1/leaf-2 was avoided: its uplink has 37.5% of its bandwidth, measured 4m ago (perftest)"
        );
        let bandwidth = Bandwidth {
            uplink: Uplink::Node(NodeName::new("gpu-3").unwrap()),
            permille: 400,
            detail: String::new(),
            ..link.bandwidth
        };
        let link = WeighedLink { bandwidth, is_avoided: false };
        assert_eq!(
            link.sentence(Timestamp(60_001)),
            "gpu-3 is used: its network has 40% of its bandwidth, measured just now"
        );
    }
}
