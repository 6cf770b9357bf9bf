//! Samples of network ports: `class/infiniband/*/ports/*` and `class/net/*` (kernel documentation,
//! `sysfs-class-infiniband`, `sysfs-class-net` and `sysfs-class-net-statistics`).
//!
//! A port is one of an adapter that discovery counts: no virtual function of an adapter that is here, no bridge and no bond. The
//! members of a bond are ports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use phalanx_model::{PortState, PortVitals};

use super::nic::{self, Adapter, adapters};
use super::{entries, name_of, text};

/// Ports of one machine that are sampled: some of the largest machines have 16 adapters of two ports.
pub const PORTS_MAX: usize = 64;
/// Notes of one sample.
const NOTES_MAX: usize = 16;
/// InfiniBand counts data in words of four bytes.
const WORD_BYTES: u64 = 4;

/// The ports of a machine.
#[derive(Debug)]
pub struct Ports {
    root: PathBuf,
    /// The PCI functions of the ports of the last sample.
    known: BTreeMap<String, PathBuf>,
}

/// One sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSample {
    /// By name.
    pub ports: Vec<PortVitals>,
    /// What could not be read, and why; sentences without a full stop.
    pub notes: BTreeSet<String>,
}

impl Ports {
    /// `root` has the form of `/sys`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), known: BTreeMap::new() }
    }

    /// A sample of each port that is there, and of those that left with their adapter since the first sample. A port that left
    /// while its adapter stayed has no sample: it has another name now, belongs to a container, or its driver was unloaded.
    pub fn sample(&mut self) -> PortSample {
        let mut found: BTreeMap<String, (PathBuf, PortVitals)> = BTreeMap::new();
        let mut notes = Notes::default();
        for adapter in adapters(&self.root) {
            for port in read(&adapter, &mut notes) {
                found.insert(port.name.clone(), (adapter.function.clone(), port));
            }
        }
        for (name, function) in std::mem::take(&mut self.known) {
            if !found.contains_key(&name) && !function.exists() {
                let port = PortVitals { name: name.clone(), state: PortState::Gone, ..PortVitals::default() };
                found.insert(name, (function, port));
            }
        }
        if found.len() > PORTS_MAX {
            notes.add(format!("{} network ports, of which {PORTS_MAX} are sampled", found.len()));
        }
        let mut ports = Vec::with_capacity(found.len().min(PORTS_MAX));
        for (name, (function, port)) in found.into_iter().take(PORTS_MAX) {
            self.known.insert(name, function);
            ports.push(port);
        }
        PortSample { ports, notes: notes.0 }
    }
}

#[derive(Default)]
struct Notes(BTreeSet<String>);

impl Notes {
    fn add(&mut self, note: String) {
        if self.0.len() < NOTES_MAX {
            self.0.insert(note);
        }
    }

    /// A counter. Files that are not there, refuse to be read or say `N/A` are of drivers without this counter.
    fn count(&mut self, port: &str, file: &Path) -> Option<u64> {
        let text = text(file).filter(|text| !text.is_empty() && !text.starts_with("N/A"))?;
        let count = text.parse().ok();
        if count.is_none() {
            self.add(format!("port {port}: {} is no number", name_of(file)));
        }
        count
    }
}

fn read(adapter: &Adapter, notes: &mut Notes) -> Vec<PortVitals> {
    let name = name_of(&adapter.folder);
    if !adapter.is_infiniband {
        return vec![ethernet(&adapter.folder, name, notes)];
    }
    let ports = entries(&adapter.folder.join("ports"));
    ports.iter().filter_map(|port| infiniband(port, format!("{name}:{}", name_of(port)), notes)).collect()
}

const fn state(is_up: bool) -> PortState {
    if is_up { PortState::Up } else { PortState::Down }
}

/// Nothing if the kernel does not say whether it is up, which reads `4: ACTIVE`.
fn infiniband(port: &Path, name: String, notes: &mut Notes) -> Option<PortVitals> {
    if !text(&port.join("state")).is_some_and(|state| state.contains(": ")) {
        notes.add(format!("port {name}: its state cannot be read"));
        return None;
    }
    let is_up = nic::is_active(port);
    let rate = nic::rate(port).filter(|_| is_up);
    if is_up && rate.is_none() {
        notes.add(format!("port {name}: its rate cannot be read"));
    }
    let mut count = |file: &str| notes.count(&name, &port.join(file));
    let bytes = |words: Option<u64>| words.and_then(|words| words.checked_mul(WORD_BYTES));
    Some(PortVitals {
        state: state(is_up),
        bytes_per_s: rate,
        received_bytes: bytes(count("counters/port_rcv_data")),
        sent_bytes: bytes(count("counters/port_xmit_data")),
        downed: count("counters/link_downed"),
        recoveries: count("counters/link_error_recovery"),
        symbol_errors: count("counters/symbol_error"),
        receive_errors: count("counters/port_rcv_errors"),
        send_discards: count("counters/port_xmit_discards"),
        send_wait_ticks: count("counters/port_xmit_wait"),
        congestion_notices: count("hw_counters/rp_cnp_handled"),
        name,
    })
}

fn ethernet(folder: &Path, name: String, notes: &mut Notes) -> PortVitals {
    let (bytes_per_s, found) = nic::interface(folder);
    let mut count = |file: &str| notes.count(&name, &folder.join(file));
    // Linux 4.16 counts both ways by themselves; before, a change is up or down.
    let downed = count("carrier_down_count").or_else(|| count("carrier_changes").map(|changes| changes / 2));
    PortVitals {
        state: state(found.is_up),
        bytes_per_s,
        received_bytes: count("statistics/rx_bytes"),
        sent_bytes: count("statistics/tx_bytes"),
        downed,
        receive_errors: count("statistics/rx_errors"),
        send_discards: count("statistics/tx_dropped"),
        name,
        ..PortVitals::default()
    }
}
