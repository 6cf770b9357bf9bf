//! InfiniBand devices and Ethernet interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use phalanx_model::{Nic, Port, ids::natural_cmp};

use super::pci::{class_is, function_of, is_virtual, path_of, weakness};
use super::{Place, Sysfs, entries, name_of, numa, text};
use crate::pcie::functions_left_out;
use crate::topo_m::NICS_MAX;

/// What the kernel tells of a NIC beside its speed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicState {
    /// An interface that is up, or an InfiniBand port that is active.
    pub is_up: bool,
    /// `InfiniBand` or `Ethernet` (RoCE), of the first port; `None` for an interface that is neither.
    pub link_layer: Option<String>,
    /// 16 hex digits, as `ibnetdiscover` writes it without `0x`; `None` when it has none.
    pub node_guid: Option<String>,
}

/// A NIC with all that is to be told of it.
struct Seen {
    place: Place,
    nic: Nic,
    state: NicState,
    weakness: Option<String>,
}

/// A network adapter.
pub(super) struct Adapter {
    /// In `class/infiniband` or `class/net`.
    pub(super) folder: PathBuf,
    /// Its PCI function.
    pub(super) function: PathBuf,
    pub(super) is_infiniband: bool,
}

/// What an adapter is not.
#[derive(Default)]
struct Left {
    /// PCI addresses of virtual functions.
    virtuals: BTreeSet<String>,
    notes: Vec<String>,
}

/// InfiniBand devices, then Ethernet interfaces of PCI functions that have no InfiniBand device: the first of each function.
pub(super) fn adapters(root: &Path) -> Vec<Adapter> {
    list(root).0
}

fn list(root: &Path) -> (Vec<Adapter>, Left) {
    let mut found: BTreeMap<PathBuf, Adapter> = BTreeMap::new();
    let mut left = Left::default();
    for folder in entries(&root.join("class/infiniband")) {
        if let Some(function) = function_of(&folder.join("device")) {
            add(&mut found, &mut left, Adapter { folder, function, is_infiniband: true });
        }
    }
    for folder in entries(&root.join("class/net")) {
        // Network controllers: Ethernet 02 00, InfiniBand 02 07 and older 0c 06, other fabrics 02 08. Radio is 02 80,
        // and a fabric of that class has verbs.
        let Some(function) = function_of(&folder.join("device")) else { continue };
        if class_is(&function, &["0x0200", "0x0207", "0x0208", "0x0c06"]) {
            add(&mut found, &mut left, Adapter { folder, function, is_infiniband: false });
            continue;
        }
        let is_radio = folder.join("wireless").exists() || folder.join("phy80211").exists();
        if class_is(&function, &["0x0280"]) && !is_radio && !found.contains_key(&function) {
            let name = name_of(&folder);
            left.notes
                .push(format!("{name} is a network controller of PCI class 0280 without verbs: left out"));
        }
    }
    (found.into_values().collect(), left)
}

fn add(found: &mut BTreeMap<PathBuf, Adapter>, left: &mut Left, adapter: Adapter) {
    if is_virtual(&adapter.function) {
        left.virtuals.insert(name_of(&adapter.function));
    } else {
        found.entry(adapter.function.clone()).or_insert(adapter);
    }
}

/// Adapters, as the machine has them.
pub(super) fn read(root: &Path, only_node: Option<u32>, found: &mut Sysfs, places: &mut Vec<Place>) {
    let (adapters, mut left) = list(root);
    let mut seen: Vec<Seen> = adapters.iter().filter_map(|adapter| Seen::of(adapter, only_node)).collect();
    found.notes.append(&mut left.notes);
    if !left.virtuals.is_empty() {
        found.notes.push(functions_left_out(left.virtuals.len()));
    }
    seen.sort_by(|a, b| natural_cmp(&a.nic.name, &b.nic.name));
    if seen.len() > NICS_MAX {
        found.notes.push(format!("{} NICs, of which the first {NICS_MAX} are read", seen.len()));
        seen.truncate(NICS_MAX);
    }
    for (index, Seen { place, nic, state, weakness }) in (0..).zip(seen) {
        if let Some(weakness) = weakness {
            found.notes.push(format!("{} {weakness}", nic.name));
        }
        if !state.is_up && state.link_layer.is_some() {
            found.notes.push(format!("{} has no active port", nic.name));
        }
        if let Some(address) = &nic.pci_address {
            found.pci.add(address.clone(), place.path.clone());
        }
        places.push(Place { port: Port::Nic(index), ..place });
        found.machine.nics.push(nic);
        found.nics.push(state);
    }
}

impl Seen {
    fn of(adapter: &Adapter, only_node: Option<u32>) -> Option<Self> {
        let Adapter { folder, function, is_infiniband } = adapter;
        let path = path_of(&folder.join("device"));
        if path.is_empty() {
            return None;
        }
        let (bytes_per_s, state) = if *is_infiniband { infiniband(folder) } else { interface(folder) };
        let numa = numa(function, only_node);
        let nic = Nic {
            name: name_of(folder),
            pci_address: Some(name_of(function)),
            numa,
            bytes_per_s,
            ..Nic::default()
        };
        let place = Place { port: Port::Nic(0), path, numa };
        Some(Self { place, nic, state, weakness: weakness(function, false) })
    }
}

/// All active ports together. `rate` reads `400 Gb/sec (4X NDR)`; a port that is down shows a rate as well.
fn infiniband(folder: &Path) -> (Option<u64>, NicState) {
    let mut sum = 0_u64;
    let mut state = NicState { node_guid: guid(folder), ..NicState::default() };
    for port in entries(&folder.join("ports")) {
        let is_active = is_active(&port);
        state.is_up |= is_active;
        state.link_layer =
            state.link_layer.or_else(|| text(&port.join("link_layer")).filter(|t| !t.is_empty()));
        if let Some(rate) = rate(&port).filter(|_| is_active) {
            sum = sum.saturating_add(rate);
        }
    }
    (Some(sum).filter(|bytes| *bytes > 0), state)
}

pub(super) fn is_active(port: &Path) -> bool {
    text(&port.join("state")).is_some_and(|state| state.contains("ACTIVE"))
}

/// In bytes per second.
pub(super) fn rate(port: &Path) -> Option<u64> {
    let tenths = tenths(text(&port.join("rate"))?.split_whitespace().next()?)?;
    Some(tenths.saturating_mul(100_000_000 / 8))
}

/// `0002:c903:00ab:cdef`, where zeros alone are none.
fn guid(folder: &Path) -> Option<String> {
    let digits = text(&folder.join("node_guid"))?.replace(':', "").to_ascii_lowercase();
    let is_guid = digits.len() == 16 && digits.bytes().all(|c| c.is_ascii_hexdigit());
    (is_guid && digits.bytes().any(|c| c != b'0')).then_some(digits)
}

/// `speed` is in megabits per second, cannot be read while the interface is down, and is -1 or 4294967295
/// where the driver does not know.
pub(super) fn interface(folder: &Path) -> (Option<u64>, NicState) {
    let mb = text(&folder.join("speed")).and_then(|t| t.parse::<u64>().ok());
    let mb = mb.filter(|mb| (1..u64::from(u32::MAX)).contains(mb));
    // Some drivers do not know whether they are up, and work.
    let operstate = text(&folder.join("operstate")).unwrap_or_default();
    let is_up = matches!(operstate.as_str(), "up" | "unknown" | "");
    let bytes_per_s = mb.filter(|_| is_up).map(|mb| mb.saturating_mul(1_000_000 / 8));
    (bytes_per_s, NicState { is_up, ..NicState::default() })
}

/// Tenths of a number such as `2.5` or `400`.
fn tenths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let whole: u64 = whole.parse().ok()?;
    let part = u64::from(part.chars().next()?.to_digit(10)?);
    whole.checked_mul(10)?.checked_add(part)
}
