//! What a text is, by marks that no other kind has.

use super::Kind;
use crate::fabric::clos_csv;
use crate::nic_text;
use crate::topo_m::{self, TopoError};

/// How much of a text is looked at; every kind shows what it is well before.
const HEAD_BYTES: usize = 256 << 10;

pub(super) fn kind(text: &str) -> Option<Kind> {
    let head = head(text);
    let start = head.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    if start.starts_with('<') || start.contains("<system") || start.contains("<topology") {
        return xml(head);
    }
    if let Some(kind) = lines(head) {
        return Some(kind);
    }
    if let Some(kind) = objects(head) {
        return Some(kind);
    }
    match topo_m::parse(text) {
        Ok(_) | Err(TopoError::NoLinks { .. } | TopoError::NoRows { .. }) => return Some(Kind::TopoM),
        Err(TopoError::PeerMatrix { .. }) => return Some(Kind::PeerAccess),
        // Its reader names the limit.
        Err(TopoError::TooManyDevices { .. } | TopoError::TooManyNics { .. }) => return Some(Kind::TopoM),
        Err(TopoError::TooLarge { .. }) if topo_m::parse(head).is_ok() => return Some(Kind::TopoM),
        Err(_) => {}
    }
    is_table(start).then_some(Kind::ClosCsv)
}

fn head(text: &str) -> &str {
    let end = (0..=HEAD_BYTES.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or(text)
}

fn xml(head: &str) -> Option<Kind> {
    let marks = [
        ("<nvidia_smi_log", Kind::Query),
        ("<graphs", Kind::NcclGraph),
        ("<system", Kind::NcclTopo),
        ("<topology", Kind::Hwloc),
        ("<cpu", Kind::NcclTopo),
    ];
    marks.into_iter().find(|(mark, _)| head.contains(mark)).map(|(_, kind)| kind)
}

/// Texts that commands print and files of `Key=value`.
fn lines(head: &str) -> Option<Kind> {
    let has = |mark: &str| head.contains(mark);
    let any_line = |test: fn(&str) -> bool| head.lines().any(|line| test(line.trim()));
    let key = |line: &str, keys: &[&str]| {
        let line = line.to_ascii_lowercase();
        keys.iter().any(|key| line.starts_with(key))
    };
    if any_line(|l| nic_text::nic_of(l).is_some()) {
        return Some(Kind::Nics);
    }
    if has("switchguid=") || has("caguid=") || (has("vendid=") && has("devid=")) {
        return Some(Kind::Ibnetdiscover);
    }
    if any_line(|l| (l.starts_with("SW ") || l.starts_with("CA ")) && l.contains(" 0x")) {
        return Some(Kind::Ibnetdiscover);
    }
    if has("MIG-Instance") || has("GPU instance profiles") || (has("Profile ID") && has("Placements:")) {
        return Some(Kind::Mig);
    }
    if any_line(|l| l.starts_with("GPU ") && l.contains("Profile ID") && l.contains("lacement")) {
        return Some(Kind::Mig);
    }
    if has("NVSMI LOG") || (has("Product Name") && has(" : ")) || has("ClusterUUID") && !has("kind:") {
        return Some(Kind::Query);
    }
    if any_line(|l| l.starts_with("Link 0:") || l.starts_with("Link 0 ")) || (has("GPU 0:") && has("Link 1:"))
    {
        return Some(Kind::Nvlink);
    }
    if has("Weight between two GPUs")
        || has("ROCm System Management")
        || has("WEIGHT TABLE:")
        || has("ACCESS TABLE:")
        || has("between DRM devices")
        || (has("\"bdf\"") && has("\"link_type\""))
        || any_line(|l| l.starts_with("gpu,") && (l.contains("link_type") || l.contains("weight")))
    {
        return Some(Kind::Rocm);
    }
    if has("LLDP neighbors") || any_line(|l| l.starts_with("lldp.")) || has("\"lldp\"") || has("\"lldp\":") {
        return Some(Kind::Lldp);
    }
    if head.lines().any(|l| key(l.trim(), &["switchname=", "blockname=", "blocksizes="])) {
        return Some(Kind::SlurmConf);
    }
    if head.lines().any(|l| key(l.trim(), &["autodetect=", "name=gpu", "nodename="]) && !l.contains("lldp")) {
        return Some(Kind::Gres);
    }
    None
}

/// YAML and JSON.
fn objects(head: &str) -> Option<Kind> {
    let kinds: [(&str, Kind); 6] = [
        ("ResourceSlice", Kind::ResourceSlices),
        ("HyperNode", Kind::Topologies),
        ("Topology", Kind::Topologies),
        ("ClusterTopology", Kind::Topologies),
        ("Node", Kind::Nodes),
        ("NodeList", Kind::Nodes),
    ];
    for line in head.lines() {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '{' | '"'));
        let Some(rest) = line.strip_prefix("kind") else { continue };
        let value = rest.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | ':' | ',' | '\''));
        let value = value.strip_suffix("List").unwrap_or(value);
        if let Some((_, kind)) = kinds.iter().find(|(name, _)| *name == value) {
            return Some(*kind);
        }
    }
    // JSON on one line.
    for (name, kind) in kinds {
        if head.contains(&format!("\"kind\":\"{name}\"")) || head.contains(&format!("\"kind\": \"{name}\"")) {
            return Some(kind);
        }
    }
    let starts = |mark: &str| head.lines().any(|line| line.trim_start_matches(['-', ' ']).starts_with(mark));
    let top = |mark: &str| head.lines().any(|line| line.starts_with(mark));
    if starts("topology:") && ["tree:", "block:", "flat:", "ring:", "torus3d:"].into_iter().any(starts) {
        return Some(Kind::SlurmYaml);
    }
    if head.contains("nvml_version") || (top("devices:") && head.contains("device_defaults")) {
        return Some(Kind::NvmlProfile);
    }
    let is_model = top("switches:") && ["blocks:", "nodes:", "capacity_blocks:"].into_iter().any(top);
    let key = |name: &str| head.contains(&format!("\"{name}\":")) || head.contains(&format!("\"{name}\" :"));
    let is_json_model = key("switches") && ["blocks", "nodes", "capacity_blocks"].into_iter().any(key);
    let is_netq = ["compounded_links", "compounded_nodes", "GpuIDList", "DomainUUID"].into_iter().any(key);
    if is_model || is_json_model || is_netq {
        return Some(Kind::Topograph);
    }
    (head.contains("attributes:") && head.contains("pcieRoot") || head.contains("pciBusID"))
        .then_some(Kind::ResourceSlices)
}

/// A first line of several columns that names hosts.
fn is_table(start: &str) -> bool {
    let first = start.lines().find(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty());
    first.is_some_and(clos_csv::is_header)
}
