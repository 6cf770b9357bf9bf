//! Finds what is weak or lopsided in a machine, from its links alone.

use std::collections::BTreeSet;
use std::fmt;

use phalanx_model::{DeviceMask, LinkKind, Machine, Port};

use crate::shape;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// How the machine is built; good to know.
    Note,
    /// Slower than its peers.
    Warning,
    /// Something fell off.
    Severe,
}

impl Severity {
    /// The word users read.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Severe => "severe",
        }
    }
}

/// What is left of what there should be: 16 of 18 links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    pub have: u32,
    pub of: u32,
    pub unit: Unit,
}

/// What a [`Cost`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// NVLinks.
    Links,
    /// Lanes of PCIe.
    Lanes,
    /// One way, by the constants of this module where nothing was measured.
    GbPerS,
}

impl Unit {
    const fn word(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::Lanes => "lanes",
            Self::GbPerS => "GB/s",
        }
    }
}

/// One NVLink in MB/s, and on Blackwell. NVIDIA/nccl, `src/graph/topo.h`: `SM90_NVLINK_BW`, `SM100_NVLINK_BW`.
const NVLINK_MB_PER_S: u32 = 20_600;
const NVLINK_MB_PER_S_BLACKWELL: u32 = 40_100;
/// PCIe between GPUs and NICs on one switch and across sockets. Measured on PCIe 5: 53.5 to 56.3 GB/s below
/// a switch, 39 between the sockets of an EPYC Genoa (51 on its successor).
const SWITCH_GB_PER_S: u32 = 55;
const SOCKET_GB_PER_S: u32 = 39;

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// The devices it is about; empty when it is about a NIC alone.
    pub devices: DeviceMask,
    /// A sentence without a full stop.
    pub what: String,
    /// Share of the bandwidth that is left, where links can be counted.
    pub cost: Option<Cost>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity.word(), self.what)?;
        match self.cost {
            Some(Cost { have, of, unit }) if of > 0 => {
                let percent = u64::from(have) * 100 / u64::from(of);
                write!(f, " ({have} of {of} {}, {percent} % of the bandwidth)", unit.word())
            }
            _ => Ok(()),
        }
    }
}

/// Everything that was found, most severe first, then by device. Pairs whose link is unknown say nothing.
#[must_use]
pub fn check(machine: &Machine) -> Vec<Finding> {
    let mut found = Vec::new();
    dropped(machine, &mut found);
    weak_links(machine, &mut found);
    mixed(machine, &mut found);
    unequal_nics(machine, &mut found);
    far_nics(machine, &mut found);
    hidden_sockets(machine, &mut found);
    if let Some(what) = crate::describe::assumed_nics(machine) {
        found.push(Finding { severity: Severity::Note, devices: DeviceMask::EMPTY, what, cost: None });
    }
    // Stable: within a severity and a device, the order above.
    found.sort_by_key(|f| (std::cmp::Reverse(f.severity), f.devices.0.trailing_zeros()));
    found
}

/// Devices without NVLink where most others have it.
fn dropped(machine: &Machine, found: &mut Vec<Finding>) {
    let linked: DeviceMask = shape::fabric_links(machine).flat_map(|(a, b, _)| [a, b]).collect();
    let alone = machine.device_mask().minus(linked);
    if linked.count() <= alone.count() {
        return;
    }
    let sliced: DeviceMask =
        alone.iter().filter(|d| machine.devices.get(*d as usize).is_some_and(|d| d.is_sliced)).collect();
    if !sliced.is_empty() {
        found.push(Finding {
            severity: Severity::Note,
            devices: sliced,
            what: format!("devices {sliced} are cut into slices, and have no NVLink as long as they are"),
            cost: None,
        });
    }
    let alone = alone.minus(sliced);
    for device in alone.iter() {
        // If a link of it could not be read, it may be NVLink.
        let known = linked.iter().all(|peer| machine.device_link(device, peer).is_some());
        if known {
            let what = format!(
                "{} is off NVLink, which {} other devices have: to them it has PCIe alone",
                name(machine, device),
                linked.count()
            );
            found.push(Finding {
                severity: Severity::Severe,
                devices: DeviceMask::one(device),
                what,
                cost: pcie_instead(machine),
            });
        }
    }
}

/// What a device has that lost its NVLinks. Nothing tells the generation of PCIe for sure: devices with up to
/// 6 NVLinks have the third, with up to 12 the fourth, and with more the fifth. NVIDIA/nccl, `src/graph/topo.h`:
/// 12 GB/s for the third, and twice that for each after it.
fn pcie_instead(machine: &Machine) -> Option<Cost> {
    let of_links = machine.links.iter().filter_map(|l| match l.kind {
        LinkKind::Nvlink(count) => Some((u32::from(count), l.nominal_mb_per_s)),
        _ => None,
    });
    let (links, nominal) = of_links.max()?;
    let is_blackwell =
        machine.devices.iter().any(|d| ["B200", "B300", "B100"].iter().any(|w| d.model.contains(w)));
    let each = if is_blackwell { NVLINK_MB_PER_S_BLACKWELL } else { NVLINK_MB_PER_S };
    let of = if nominal > 0 { nominal } else { links.saturating_mul(each) } / 1000;
    let have = match links {
        0..=6 => 12,
        7..=12 => 24,
        _ => 48,
    };
    Some(Cost { have: have.min(of), of, unit: Unit::GbPerS })
}

/// NVLinks of each device. Behind switches, a pair shows what the weaker end has, so a device has as many
/// links as its best pair shows; in a mesh each pair has its own links, and they add up.
fn nvlinks(machine: &Machine, island: DeviceMask) -> Vec<(u32, u32)> {
    let mut pairs = Vec::new();
    for (a, b, kind) in shape::fabric_links(machine) {
        if let LinkKind::Nvlink(count) = kind {
            pairs.push((a, b, u32::from(count)));
        }
    }
    let of =
        |device: u32| pairs.iter().filter(move |(a, b, _)| *a == device || *b == device).map(|(.., n)| *n);
    let best = |device: u32| of(device).max().unwrap_or(0);
    let inside = |(a, b, _): &&(u32, u32, u32)| island.contains(*a) && island.contains(*b);
    let switched = pairs.iter().filter(inside).all(|(a, b, n)| *n == best(*a).min(best(*b)));
    island.iter().map(|d| (d, if switched { best(d) } else { of(d).sum() })).collect()
}

/// Devices with fewer NVLinks than most of the machine's others.
fn weak_links(machine: &Machine, found: &mut Vec<Finding>) {
    // A link that could not be read is not a link that is missing.
    let devices = || 0..machine.device_count();
    if devices().any(|a| (0..a).any(|b| machine.device_link(b, a).is_none())) {
        return;
    }
    let islands = shape::groups(machine, shape::NVLINK);
    let counts: Vec<(u32, u32)> = islands.flat_map(|island| nvlinks(machine, island)).collect();
    let most = counts.iter().map(|(_, n)| *n).max().unwrap_or(0);
    // Where few have the most, it is built so: a line of bridges, for one.
    let full = counts.iter().filter(|(_, n)| *n == most).count();
    if full * 2 <= counts.len() {
        return;
    }
    for &(device, count) in counts.iter().filter(|(_, n)| *n < most) {
        found.push(Finding {
            severity: Severity::Warning,
            devices: DeviceMask::one(device),
            what: format!(
                "{} has fewer NVLinks than its peers, and a ring through it is as slow as it is",
                name(machine, device)
            ),
            cost: Some(Cost { have: count, of: most, unit: Unit::Links }),
        });
    }
}

/// Different products in one machine.
fn mixed(machine: &Machine, found: &mut Vec<Finding>) {
    let models: BTreeSet<&str> =
        machine.devices.iter().map(|d| d.model.as_str()).filter(|m| !m.is_empty()).collect();
    if models.len() > 1 {
        let models: Vec<&str> = models.into_iter().collect();
        found.push(Finding {
            severity: Severity::Note,
            devices: machine.device_mask(),
            what: format!(
                "products are mixed: {}; a gang across them runs at the slowest",
                models.join(", ")
            ),
            cost: None,
        });
    }
}

/// Devices with a NIC below their PCIe root.
fn with_near_nic(machine: &Machine) -> DeviceMask {
    let is_near = |kind| matches!(kind, LinkKind::PcieSwitch | LinkKind::PcieBridges);
    let near = machine.links.iter().filter(|l| is_near(l.kind)).filter_map(|l| match (l.a, l.b) {
        (Port::Device(device), Port::Nic(_)) => Some(device),
        _ => None,
    });
    near.collect()
}

/// Devices whose every NIC is across the sockets.
fn with_far_nics(machine: &Machine) -> DeviceMask {
    let is_far = |device: &u32| {
        let mut links = nics(machine).map(|n| machine.link(Port::Device(*device), Port::Nic(n)));
        !machine.nics.is_empty() && links.all(|kind| kind == Some(LinkKind::Socket))
    };
    machine.device_mask().iter().filter(is_far).collect()
}

fn nics(machine: &Machine) -> std::ops::Range<u32> {
    0..u32::try_from(machine.nics.len()).unwrap_or(u32::MAX)
}

/// What a way across the sockets costs.
const ACROSS_SOCKETS: Cost = Cost { have: SOCKET_GB_PER_S, of: SWITCH_GB_PER_S, unit: Unit::GbPerS };

/// Some devices have a NIC below their PCIe root, and others have not.
fn unequal_nics(machine: &Machine, found: &mut Vec<Finding>) {
    let with = with_near_nic(machine);
    if with.is_empty() {
        return;
    }
    let is_known =
        |device: &u32| nics(machine).all(|n| machine.link(Port::Device(*device), Port::Nic(n)).is_some());
    let without: DeviceMask = machine.device_mask().minus(with).iter().filter(is_known).collect();
    let far = without.and(with_far_nics(machine));
    if !far.is_empty() {
        found.push(Finding {
            severity: Severity::Warning,
            devices: far,
            what: format!(
                "devices {far} reach every NIC across the sockets, where devices {with} have one on their own PCIe switch"
            ),
            cost: Some(ACROSS_SOCKETS),
        });
    }
    let without = without.minus(far);
    if !without.is_empty() {
        found.push(Finding {
            severity: Severity::Note,
            devices: without,
            what: format!(
                "devices {without} reach every NIC through a host bridge, where devices {with} have one on their own PCIe switch"
            ),
            cost: None,
        });
    }
}

/// NICs that are across the sockets from every device, where others are not. Where every device has a NIC of its
/// own, such NICs are there for something else (storage); where most have one and some have not, they are
/// missed there.
fn far_nics(machine: &Machine, found: &mut Vec<Finding>) {
    let is_far = |nic: &u32| {
        let mut links = (0..machine.device_count()).map(|d| machine.link(Port::Device(d), Port::Nic(*nic)));
        machine.device_count() > 0 && links.all(|kind| kind == Some(LinkKind::Socket))
    };
    let far: Vec<u32> = nics(machine).filter(is_far).collect();
    if far.is_empty() {
        return;
    }
    let nic_name = |i: &u32| machine.nics.get(*i as usize).map_or("", |n| n.name.as_str());
    let names: Vec<&str> = far.iter().map(nic_name).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let what = format!("{} {verb} across the sockets from every device", names.join(", "));
    let with = with_near_nic(machine);
    let without = machine.device_mask().minus(with);
    let is_missed = !without.is_empty() && with.count() > without.count();
    found.push(if is_missed {
        let what = format!(
            "{what}, and devices {without} have no NIC on their own PCIe switch, as most others have"
        );
        Finding { severity: Severity::Warning, devices: without, what, cost: Some(ACROSS_SOCKETS) }
    } else {
        Finding { severity: Severity::Note, devices: DeviceMask::EMPTY, what, cost: None }
    });
}

/// `SYS` within one NUMA node: a virtual machine that hides its topology.
fn hidden_sockets(machine: &Machine, found: &mut Vec<Finding>) {
    let numa = |d: u32| machine.devices.get(d as usize).and_then(|d| d.numa);
    let mut hidden = DeviceMask::EMPTY;
    for link in machine.links.iter().filter(|l| l.kind == LinkKind::Socket) {
        if let (Port::Device(a), Port::Device(b)) = (link.a, link.b)
            && numa(a).is_some()
            && numa(a) == numa(b)
        {
            hidden = hidden.union(DeviceMask::one(a)).union(DeviceMask::one(b));
        }
    }
    if !hidden.is_empty() {
        found.push(Finding {
            severity: Severity::Note,
            devices: hidden,
            what: format!(
                "devices {hidden} are on one NUMA node and yet across sockets: a virtual machine seems to hide how they are connected"
            ),
            cost: None,
        });
    }
}

fn name(machine: &Machine, device: u32) -> String {
    let name = machine.devices.get(device as usize).map(|d| d.name.as_str()).filter(|n| !n.is_empty());
    name.map_or_else(|| format!("GPU{device}"), str::to_owned)
}
