//! Writes a machine as `nvidia-smi topo -m` would.

use std::fmt::Write as _;

use phalanx_model::product::NIC_MB_PER_S;
use phalanx_model::{Machine, Port};

const LEGEND: &str = "
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
";

/// The matrix, the legend, and the NIC legend where a NIC has an alias. A pair whose link is unknown is `N/A`.
/// Every device is shown near all of the machine's CPUs, because a machine does not say which are near.
/// [`crate::topo_m::parse`] reads the same devices, NICs and links back.
#[must_use]
pub fn topo_m(machine: &Machine) -> String {
    let devices = (0..).zip(&machine.devices).map(|(i, d)| (Port::Device(i), device_name(i, &d.name)));
    let nics = (0..).zip(&machine.nics).map(|(i, n)| (Port::Nic(i), nic_name(i, &n.name)));
    let ports: Vec<(Port, String)> = devices.chain(nics).collect();
    let cpus = match machine.cpu_milli / 1000 {
        0 => "N/A".into(),
        count => format!("0-{}", count - 1),
    };
    let mut text = String::new();
    for (_, name) in &ports {
        let _ = write!(text, "\t{name}");
    }
    text += "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n";
    for (a, name) in &ports {
        text += name;
        for (b, _) in &ports {
            let word = machine.link(*a, *b).map_or_else(|| "N/A".into(), |kind| kind.to_string());
            let _ = if a == b { write!(text, "\t X ") } else { write!(text, "\t{word}") };
        }
        if let Port::Device(i) = a {
            let numa = machine.devices.get(*i as usize).and_then(|d| d.numa);
            let numa = numa.map_or_else(|| "N/A".into(), |n| n.to_string());
            let _ = write!(text, "\t{cpus}\t{numa}\t\tN/A");
        }
        text += "\n";
    }
    text += LEGEND;
    if machine.nics.iter().any(|n| n.alias.is_some()) {
        text += "\nNIC Legend:\n\n";
        for (i, nic) in (0..).zip(&machine.nics) {
            if let Some(alias) = &nic.alias {
                let _ = writeln!(text, "  {}: {alias}", nic_name(i, &nic.name));
            }
        }
    }
    text
}

/// The header knows devices by the word `GPU` and a number.
fn device_name(index: u32, name: &str) -> String {
    let digits = name.strip_prefix("GPU").unwrap_or_default();
    let good = !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
    if good { name.to_owned() } else { format!("GPU{index}") }
}

/// A name of one word that no one takes for something else in the matrix.
fn nic_name(index: u32, name: &str) -> String {
    let good = !name.is_empty()
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'))
        && name.bytes().any(|c| c.is_ascii_digit())
        && !name.starts_with("GPU")
        && !name.starts_with("NV");
    if good { name.to_owned() } else { format!("NIC{index}") }
}

/// What is assumed of NICs whose speed no source gives: `the speed of 8 NICs is unknown; 400 Gb/s each is assumed, as in
/// usual machines of NVIDIA B200`. `None` if every speed is known.
#[must_use]
pub fn assumed_nics(machine: &Machine) -> Option<String> {
    if machine.devices.is_empty() {
        return None;
    }
    let counting = machine.collective_nics();
    let nics = counting.iter().filter_map(|(nic, _)| machine.nics.get(*nic as usize));
    let unknown: Vec<_> = nics.filter(|nic| nic.bytes_per_s.is_none() || nic.is_assumed).collect();
    let first = unknown.first()?;
    let (count, each) = match unknown.len() {
        1 => ("1 NIC".to_owned(), ""),
        many => (format!("{many} NICs"), " each"),
    };
    let gb = first.bytes_per_s.map_or(u64::from(NIC_MB_PER_S) / 125, |bytes| bytes / 125_000_000);
    let model = machine.devices.first().map(|d| d.model.as_str()).filter(|m| !m.is_empty());
    let usual = match model.filter(|_| first.is_assumed) {
        Some(model) => format!(", as in usual machines of {model}"),
        None => String::new(),
    };
    Some(format!("the speed of {count} is unknown; {gb} Gb/s{each} is assumed{usual}"))
}
