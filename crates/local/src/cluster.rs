//! The cluster this daemon runs: declared in a file, or the one machine it is on.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use phalanx_model::later::Calendar;
use phalanx_model::{
    Admin, Device, DeviceMask, DomainName, LevelName, Levels, Machine, Node, NodeName, Tariff,
};
use phalanx_node::discover;
use phalanx_shell::cost::{self, Constants};
use phalanx_spec::ClusterFile;

use crate::spot::Prices;
use phalanx_views::Map;

/// Bytes of a file of constants: a hundred times what they take.
const CONSTANTS_BYTES_MAX: u64 = 1 << 20;

/// Nodes, levels and costs, and what could not be found out.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) map: Map,
    pub(crate) nodes: Vec<Node>,
    /// Those of the file.
    pub(crate) windows: Vec<Calendar>,
    /// Of spot nodes whose prices are known.
    pub(crate) prices: BTreeMap<NodeName, Prices>,
    /// Of one device for an hour, in millionths, where it is known and the node is no spot node.
    pub(crate) list_prices: BTreeMap<NodeName, u64>,
    /// What prices are multiplied by.
    pub(crate) tariff: Tariff,
    pub(crate) notes: Vec<String>,
    /// It is the one machine as it is found, and not declared.
    pub(crate) is_found: bool,
    /// Devices of it that did not answer.
    pub(crate) absent: DeviceMask,
}

#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    Spec(String),
    #[error("{}: {why}", path.display())]
    Topo { path: PathBuf, why: String },
    #[error("{}{at}: {why}; `phalanx topo calibrate -o` writes a file of constants", path.display())]
    Constants {
        path: PathBuf,
        /// `:3:1` where the text has the fault, and nothing where there is no such place.
        at: String,
        why: String,
    },
    #[error("this host has no usable name: {0}")]
    HostName(String),
}

/// The machine we are on, as it is found.
pub(crate) fn found() -> Result<Cluster, ClusterError> {
    let host = nix::unistd::gethostname().map_err(|e| ClusterError::HostName(e.to_string()))?;
    let host = host.to_string_lossy().into_owned();
    let name = NodeName::new(host).map_err(|e| ClusterError::HostName(e.to_string()))?;
    let mut discovered = discover::host::discover();
    phalanx_spec::cluster::count_nics(&mut discovered.machine);
    let levels = default_levels()?;
    let node = Node {
        address: "127.0.0.1".to_owned(),
        uuids: discovered.uuids,
        ..Node::new(name, vec![root()?], Arc::new(discovered.machine))
    };
    let nodes = vec![node];
    let costs = cost::compile(&nodes, &BTreeMap::new());
    let map = Map { levels, costs, constants: Constants::DEFAULT };
    Ok(Cluster {
        map,
        nodes,
        windows: Vec::new(),
        prices: BTreeMap::new(),
        list_prices: BTreeMap::new(),
        tariff: Tariff::default(),
        notes: discovered.notes,
        is_found: true,
        absent: DeviceMask::EMPTY,
    })
}

fn bad_name(e: &phalanx_model::NameError) -> ClusterError {
    ClusterError::Spec(e.to_string())
}

fn default_levels() -> Result<Levels, ClusterError> {
    let level = |text: &str| LevelName::new(text).map_err(|e| bad_name(&e));
    Ok(Levels::new(vec![level("cluster")?], level("node")?))
}

fn root() -> Result<DomainName, ClusterError> {
    DomainName::new("local").map_err(|e| bad_name(&e))
}

/// Nodes that no longer stand in the configuration but are named by recovered facts keep their cordon.
pub(crate) fn keep_admin(cluster: &mut Cluster, known: &BTreeMap<NodeName, Admin>) {
    for node in &mut cluster.nodes {
        if let Some(admin) = known.get(&node.name) {
            node.admin = *admin;
        }
    }
}

/// A device that does not answer at a start is still there: running gangs and grades know devices by their numbers.
/// The machine stays as it was `known` if all that is found now was there before; what does not answer is absent.
pub(crate) fn keep_absent(cluster: &mut Cluster, known: &[Node]) {
    let Some(node) = cluster.nodes.first_mut().filter(|_| cluster.is_found) else { return };
    let Some(known) = known.iter().find(|known| known.name == node.name) else { return };
    let is_here = |device: &Device| {
        let address = device.pci_address.as_ref();
        address.is_some() && node.machine.devices.iter().any(|found| found.pci_address.as_ref() == address)
    };
    let found: Vec<u32> =
        (0..).zip(&known.machine.devices).filter(|(_, device)| is_here(device)).map(|(at, _)| at).collect();
    let absent = found.iter().fold(known.machine.device_mask(), |all, at| all.minus(DeviceMask::one(*at)));
    if found.len() != node.machine.devices.len() || absent.is_empty() {
        return;
    }
    let machine = Machine {
        cpu_milli: node.machine.cpu_milli,
        memory_bytes: node.machine.memory_bytes,
        ..(*known.machine).clone()
    };
    let names = absent.iter().filter_map(|at| machine.devices.get(at as usize)).map(|device| {
        format!("{} at {}", device.name, device.pci_address.as_deref().unwrap_or("an unknown address"))
    });
    let names: Vec<String> = names.collect();
    cluster.notes.push(format!(
        "does not answer and is closed: {}; `phalanx up --found` takes the machine as it is now",
        names.join(", ")
    ));
    node.machine = Arc::new(machine);
    node.uuids.clone_from(&known.uuids);
    cluster.absent = absent;
    cluster.map.costs = cost::compile(&cluster.nodes, &BTreeMap::new());
}

/// The cluster of a file; topology texts are read relative to it.
pub(crate) fn declared(path: &Path) -> Result<Cluster, ClusterError> {
    let text = read(path)?;
    let spec = |e: phalanx_spec::SpecError| ClusterError::Spec(e.to_string());
    let file = ClusterFile::from_yaml(&text, &path.display().to_string()).map_err(spec)?;
    let file = file.into_cluster().map_err(spec)?;
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let constants = match &file.constants {
        Some(said) => constants(&folder.join(said))?,
        None => Constants::DEFAULT,
    };
    let mut hardware = Hardware { folder, host: None, notes: Vec::new() };
    let nodes =
        file.nodes(&mut hardware).map_err(|e| ClusterError::Spec(format!("{}: {e}", path.display())))?;
    let mut costs = cost::compile(&nodes, &file.level_costs());
    costs.domains = file.domain_costs();
    costs.transports = file.transports();
    costs.collectives = constants.collectives();
    let prices = file.nodes.iter().zip(&nodes).filter_map(|(said, node)| {
        Some((node.name.clone(), Prices::of(node, said.price_micro_per_device_hour)?))
    });
    let prices = prices.collect();
    let list_prices = file
        .nodes
        .iter()
        .zip(&nodes)
        .filter_map(|(said, node)| Some((node.name.clone(), said.price_micro_per_device_hour?)));
    let list_prices = list_prices.collect();
    let map = Map { levels: file.levels, costs, constants };
    Ok(Cluster {
        map,
        nodes,
        windows: file.windows,
        prices,
        list_prices,
        tariff: file.tariff,
        notes: hardware.notes,
        is_found: false,
        absent: DeviceMask::EMPTY,
    })
}

/// The constants of a site. The model counts on numbers above 0; only a time may be 0.
///
/// # Errors
/// When the file cannot be read or has an unknown or missing constant, or one that is not above 0.
pub fn constants(path: &Path) -> Result<Constants, ClusterError> {
    let bad = |at: String, why: String| ClusterError::Constants { path: path.to_owned(), at, why };
    let size = fs::metadata(path).map_or(0, |file| file.len());
    if size > CONSTANTS_BYTES_MAX {
        return Err(bad(
            String::new(),
            format!("has {size} bytes, and at most {CONSTANTS_BYTES_MAX} are read"),
        ));
    }
    let text = read(path)?;
    let misread = |error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let at = before.map(|before| {
            let line = before.rsplit('\n').next().unwrap_or_default();
            format!(":{}:{}", before.matches('\n').count() + 1, line.chars().count() + 1)
        });
        bad(at.unwrap_or_default(), error.message().to_owned())
    };
    let numbers: toml::Table = toml::from_str(&text).map_err(misread)?;
    if let Some(name) = not_positive(&numbers) {
        return Err(bad(String::new(), format!("{name} is not a number above 0")));
    }
    toml::from_str(&text).map_err(misread)
}

/// The first that no constant can be.
fn not_positive(numbers: &toml::Table) -> Option<String> {
    let is_bad = |name: &str, number: f64| {
        !number.is_finite() || number < 0.0 || (number <= 0.0 && !name.ends_with("_ns"))
    };
    numbers.iter().find_map(|(name, value)| {
        let all = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        if let toml::Value::Table(inner) = value {
            return not_positive(inner).map(|inner| format!("{name}.{inner}"));
        }
        let bad = all.iter().filter_map(toml::Value::as_float).any(|number| is_bad(name, number));
        let bad = bad || all.iter().filter_map(toml::Value::as_integer).any(|number| number < 1);
        bad.then(|| name.clone())
    })
}

fn read(path: &Path) -> Result<String, ClusterError> {
    fs::read_to_string(path).map_err(|source| ClusterError::Unreadable { path: path.to_owned(), source })
}

/// Topology texts beside the cluster file. Every node of this world runs on this host: what a file leaves out
/// is this host's.
struct Hardware<'a> {
    folder: &'a Path,
    host: Option<Machine>,
    notes: Vec<String>,
}

impl phalanx_spec::Hardware for Hardware<'_> {
    type Error = ClusterError;

    fn topology(&mut self, file: &str) -> Result<Machine, ClusterError> {
        let path = self.folder.join(file);
        let text = read(&path)?;
        if text.len() > discover::xml::XML_BYTES_MAX {
            let why =
                format!("has {} bytes, and at most {} are read", text.len(), discover::xml::XML_BYTES_MAX);
            return Err(ClusterError::Topo { path, why });
        }
        let read = discover::source::read_machine(&text)
            .map_err(|e| ClusterError::Topo { path: path.clone(), why: e.to_string() })?;
        self.notes.extend(read.gaps.iter().map(|gap| format!("{}: {gap}", path.display())));
        Ok(read.machine)
    }

    fn default_amounts(&mut self) -> (u64, u64) {
        let host = self.host.get_or_insert_with(|| discover::host::discover().machine);
        (host.cpu_milli, host.memory_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster file beside a file of constants, which is `text`.
    fn with(text: Option<&str>) -> Result<Cluster, String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("cluster.yaml");
        fs::write(&path, "constants: site.toml\nnodes: [{name: a, devices: {count: 2}}]\n").expect("writes");
        if let Some(text) = text {
            fs::write(folder.path().join("site.toml"), text).expect("writes");
        }
        let here = format!("{}/", folder.path().display());
        declared(&path).map_err(|error| error.to_string().replace(&here, ""))
    }

    #[test]
    fn constants_of_a_site_are_read() {
        let text = Constants::TOML.replace("ring_share = 0.982", "ring_share = 0.5");
        let read = with(Some(&text)).expect("good constants").map;
        assert_eq!(read.constants, Constants { ring_share: 0.5, ..Constants::DEFAULT });
        assert_eq!(read.costs.collectives.ring_share_ppm, 500_000, "the engine decides by them");
    }

    #[test]
    fn bad_constants_say_where_and_why() {
        let changed = |from: &str, to: &str| Constants::TOML.replace(from, to);
        let cases = [
            (None, "cannot read site.toml: "),
            (Some(String::new()), "site.toml:1:1: missing field `ring_share`"),
            (Some("ring_share = 1.0\nlaunch_ns = x".to_owned()), "site.toml:2:13: "),
            (
                Some(format!("rig_share = 1.0\n{}", Constants::TOML)),
                "site.toml:1:1: unknown field `rig_share`",
            ),
            (
                Some(changed("ring_share = 0.982", "ring_share = nan")),
                "site.toml: ring_share is not a number",
            ),
            (Some(changed("share = 0.507", "share = 0.0")), "site.toml: networks.tcpx.share is not a number"),
            (Some(changed("[0.5, 0.92, 1.0]", "[0.5, -0.92, 1.0]")), "site.toml: ring_protocols is not"),
            (Some(" ".repeat(2 << 20)), "site.toml: has 2097152 bytes, and at most 1048576 are read"),
        ];
        for (text, wanted) in cases {
            let error = with(text.as_deref()).expect_err("bad constants");
            assert!(error.starts_with(wanted), "{error}");
        }
    }
}
