//! The cluster file of a map that was read elsewhere.

mod tori;

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::domains::{Domains, Uplink};
use phalanx_model::{DomainName, Graph, Host, LevelName};

use super::build::nvlink_domain_mb_per_s;
use super::nodes::is_address;
use super::{
    ClusterFile, LEVELS_MAX, LinkFile, NODE_LEVEL, NodeFile, UplinkFile, default_cluster, node_level,
};
use crate::pattern::NamePattern;
use crate::place::{At, Scalar};
use crate::scalar::{Bandwidth, Cpus, Memory};

/// The level that readers give to hosts whose devices NVLink joins: the clique that the fabric manager tells.
const NVLINK_DOMAIN: &str = "nvlink-domain";

use tori::Places;

/// A file, and what has no place in one.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    pub file: ClusterFile,
    /// Sentences without a full stop.
    pub left_out: Vec<String>,
}

/// Nodes that differ in their name alone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    path: Vec<DomainName>,
    topo: Option<String>,
    model: Option<String>,
    gpu_memory: Option<u64>,
    cpus: Option<u64>,
    memory: Option<u64>,
    torus: Option<u32>,
    /// A host with an address of its own stands by itself.
    address: Option<(String, String)>,
}

impl ClusterFile {
    /// Hosts that stand together and are alike become one entry. `topo_of` names the topology text of a host.
    /// The uplink of most domains becomes that of their level; what differs is listed by itself.
    #[must_use]
    pub fn of_map(
        name: Option<DomainName>,
        graph: &Graph,
        domains: &Domains,
        topo_of: &dyn Fn(&Host) -> Option<String>,
    ) -> Written {
        let root = name.clone().unwrap_or_else(default_cluster);
        let mut left_out = Vec::new();
        let levels = levels_of(domains, &mut left_out);
        let mut kept = vec![false; graph.hosts.len()];
        for (index, host) in (0_u32..).zip(&graph.hosts) {
            if let Err(why) = NamePattern::read(host.name.as_str()) {
                left_out.push(format!("a host has no place in a cluster file: its name {why}"));
                continue;
            }
            if let Some(kept) = kept.get_mut(index as usize) {
                *kept = true;
            }
        }
        let places = Places::of(graph, &kept, &mut left_out);
        let mut alike: BTreeMap<Alike, Vec<(&str, [u16; 3])>> = BTreeMap::new();
        let stands = (0_u32..).zip(&graph.hosts).zip(&places.of_hosts);
        for ((index, host), place) in stands.zip(&kept).filter_map(|(host, kept)| kept.then_some(host)) {
            let key = Alike {
                torus: place.map(|place| place.torus),
                ..describe(host, domains.path(index), topo_of(host))
            };
            alike.entry(key).or_default().push((host.name.as_str(), place.map_or([0; 3], |place| place.at)));
        }
        let mut nodes = Vec::new();
        for (key, hosts) in alike {
            let path = named(levels, &key.path, &root);
            let entries = match key.torus {
                Some(torus) => places.entries(torus, hosts),
                None => NamePattern::compress(hosts.into_iter().map(|(name, _)| name))
                    .into_iter()
                    .map(|name| (name, None))
                    .collect(),
            };
            for (name, torus) in entries {
                nodes.push(NodeFile {
                    name: At::from(name),
                    topo: key.topo.clone().map(At::from),
                    devices: None,
                    model: key.model.clone().map(At::from),
                    gpu_memory: key.gpu_memory.map(|bytes| At::from(Memory(bytes))),
                    cpus: key.cpus.map(|milli| At::from(Cpus(milli))),
                    memory: key.memory.map(|bytes| At::from(Memory(bytes))),
                    path: path.clone(),
                    address: key.address.clone().map(|(_, address)| At::from(address)),
                    nic_bandwidth: None,
                    transport: None,
                    busy: Vec::new(),
                    labels: BTreeMap::new(),
                    resources: BTreeMap::new(),
                    gpu_sharing: None,
                    torus,
                    price: None,
                    spot: None,
                });
            }
        }
        let mut file = Self {
            name: name.map(At::from),
            levels: (!levels.is_empty()).then(|| levels.iter().cloned().map(At::from).collect()),
            nodes,
            tori: places.files(),
            ..Self::default()
        };
        file.write_uplinks(graph, (domains, levels), &root, &kept);
        Written { file, left_out }
    }

    /// Those of hosts that are `kept`, and of the domains around them.
    fn write_uplinks(
        &mut self,
        graph: &Graph,
        (domains, levels): (&Domains, &[LevelName]),
        root: &DomainName,
        kept: &[bool],
    ) {
        let hosts = (0_u32..).zip(kept).filter(|(_, kept)| **kept).map(|(host, _)| host);
        let around: BTreeSet<u32> = hosts.flat_map(|host| domains.around(host)).collect();
        let inside = inside(graph, levels);
        for (depth, level) in (0_u32..).zip(levels) {
            let of_level: Vec<(u32, Uplink)> = domains.level(depth).map(|(id, d)| (id, d.uplink)).collect();
            let usual = usual(of_level.iter().map(|(_, uplink)| *uplink));
            let inside = inside.filter(|(joined, _)| *joined == level).map(|(_, mb_per_s)| mb_per_s);
            if usual.is_some() || inside.is_some() {
                self.links.insert(At::from(level.clone()), link(usual, inside));
            }
            let Some(usual) = usual else { continue };
            let differing =
                of_level.iter().filter(|(id, uplink)| around.contains(id) && differs(*uplink, usual));
            for (id, uplink) in differing {
                self.uplinks.push(UplinkFile {
                    node: None,
                    path: named(levels, &domains.path_of(*id), root),
                    bandwidth: At::from(bandwidth(uplink.mb_per_s)),
                    latency: None,
                });
            }
        }
        let Some(usual) = usual(domains.host_uplinks.iter().copied()) else { return };
        self.links.insert(At::from(node_level()), link(Some(usual), None));
        for ((host, uplink), kept) in graph.hosts.iter().zip(&domains.host_uplinks).zip(kept) {
            if *kept && differs(*uplink, usual) {
                self.uplinks.push(UplinkFile {
                    node: Some(At::from(host.name.to_string())),
                    path: BTreeMap::new(),
                    bandwidth: At::from(bandwidth(uplink.mb_per_s)),
                    latency: None,
                });
            }
        }
        debug_assert!(self.links.contains_key(&At::from(node_level())), "{NODE_LEVEL} was written");
    }
}

/// The outer levels, up to the first that a cluster file cannot have.
fn levels_of<'a>(domains: &'a Domains, left_out: &mut Vec<String>) -> &'a [LevelName] {
    let good = domains.levels.iter().take(LEVELS_MAX).take_while(|level| level.as_str() != NODE_LEVEL);
    let (kept, rest) = domains.levels.split_at(good.count());
    left_out.extend(rest.first().map(|level| {
        format!("the level {level} and those inside it have no place in a cluster file: it has {LEVELS_MAX} at most, and none is named {NODE_LEVEL}")
    }));
    kept
}

fn describe(host: &Host, path: Vec<DomainName>, topo: Option<String>) -> Alike {
    let machine = host.machine.as_deref();
    let first = machine.and_then(|machine| machine.devices.first());
    // One product name stands for all devices of a node.
    let same = |machine: &phalanx_model::Machine| {
        machine
            .devices
            .iter()
            .all(|d| Some((&d.model, d.memory_bytes)) == first.map(|f| (&f.model, f.memory_bytes)))
    };
    let first = first.filter(|_| machine.is_some_and(same));
    let address = host.address.as_ref().filter(|address| is_address(address));
    Alike {
        path,
        topo,
        model: first.map(|device| printable(&device.model)).filter(|model| !model.is_empty()),
        gpu_memory: first.map(|device| device.memory_bytes).filter(|bytes| *bytes > 0),
        cpus: machine.map(|machine| machine.cpu_milli).filter(|milli| *milli > 0),
        memory: machine.map(|machine| machine.memory_bytes).filter(|bytes| *bytes > 0),
        torus: None,
        address: address.map(|address| (host.name.to_string(), address.clone())),
    }
}

/// A damaged source may hold anything, and a file no control characters.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// The domains of a path by level; the outermost is left out where it is the cluster itself, under its own name
/// or under that of its level.
fn named(
    levels: &[LevelName],
    path: &[DomainName],
    root: &DomainName,
) -> BTreeMap<At<LevelName>, At<DomainName>> {
    let pairs = levels.iter().zip(path).enumerate();
    let kept = pairs.filter(|(depth, (level, domain))| {
        *depth > 0 || (*domain != root && domain.as_str() != level.as_str())
    });
    kept.map(|(_, (level, domain))| (At::from(level.clone()), At::from(domain.clone()))).collect()
}

/// What most of the uplinks would carry with every cable up; the larger of equals. None when no speed is known.
fn usual(uplinks: impl Iterator<Item = Uplink>) -> Option<u64> {
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    for uplink in uplinks.filter(|uplink| uplink.nominal_mb_per_s > 0) {
        *counts.entry(uplink.nominal_mb_per_s).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(mb_per_s, count)| (*count, *mb_per_s)).map(|(mb_per_s, _)| mb_per_s)
}

/// A domain of which no speed is known says nothing of itself.
const fn differs(uplink: Uplink, usual: u64) -> bool {
    uplink.nominal_mb_per_s > 0 && uplink.mb_per_s != usual
}

fn link(mb_per_s: Option<u64>, inside_mb_per_s: Option<u64>) -> LinkFile {
    let at = |mb_per_s| At::from(bandwidth(mb_per_s));
    LinkFile { bandwidth: mb_per_s.map(at), inside: inside_mb_per_s.map(at), latency: None }
}

/// The level whose domains NVLink joins, and what it carries from one device; of several generations the least.
/// None where a host of such a domain has devices of another kind, or none that are known.
fn inside<'a>(graph: &Graph, levels: &'a [LevelName]) -> Option<(&'a LevelName, u64)> {
    let domain_of = |host: &'_ Host| {
        let named = host.domains.iter().find(|membership| membership.level.as_str() == NVLINK_DOMAIN);
        named.map(|membership| membership.domain.clone())
    };
    // Where all hosts stand in one such domain, it is the outermost level.
    let first = graph.hosts.first().and_then(domain_of);
    let is_one = first.is_some() && graph.hosts.iter().all(|host| domain_of(host) == first);
    let level = levels.iter().find(|level| level.as_str() == NVLINK_DOMAIN);
    let level = level.or_else(|| levels.first().filter(|_| is_one))?;
    let mut least: Option<u64> = None;
    for host in graph.hosts.iter().filter(|host| domain_of(host).is_some()) {
        let devices = &host.machine.as_deref()?.devices;
        for device in devices {
            let mb_per_s = nvlink_domain_mb_per_s(&device.model)?;
            least = Some(least.map_or(mb_per_s, |known| known.min(mb_per_s)));
        }
    }
    least.map(|mb_per_s| (level, mb_per_s))
}

/// Within what a cost table counts, where 0 stands for unknown: an uplink that is down has next to nothing.
fn bandwidth(mb_per_s: u64) -> Bandwidth {
    Bandwidth(mb_per_s.clamp(1, u64::from(u32::MAX)) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use phalanx_model::domains::{derive, rules};
    use phalanx_model::{
        Device, End, FabricLink, Machine, Membership, NodeName, Origin, Switch, Torus, TorusPlace,
    };

    use super::*;

    /// The file of hosts of one model, each in the NVLink domain that is given.
    fn of_cliques(hosts: &[(&str, &str)]) -> ClusterFile {
        let level = |text: &str| LevelName::new(text).unwrap();
        let mut graph = Graph::default();
        for (index, (model, clique)) in hosts.iter().enumerate() {
            let mut machine = Machine::bare(Origin::Declared);
            machine.devices.push(Device { model: (*model).to_owned(), ..Device::default() });
            let mut host = Host::new(NodeName::new(format!("n{index}")).unwrap());
            host.machine = Some(Arc::new(machine));
            let domain = DomainName::new(*clique).unwrap();
            host.domains = vec![Membership { level: level(NVLINK_DOMAIN), domain }];
            graph.hosts.push(host);
        }
        let domains = derive(&graph, &rules(&graph, &level("cluster"), &[]));
        ClusterFile::of_map(None, &graph, &domains, &|_| None).file
    }

    #[test]
    fn nvlink_domains_say_what_they_carry_inside() {
        let inside = |hosts: &[(&str, &str)]| {
            let file = of_cliques(hosts);
            let text = serde_saphyr::to_string(&file).unwrap();
            let links = ClusterFile::from_yaml(&text, "written.yaml").unwrap().into_cluster().unwrap().links;
            let said = links.into_iter().filter(|(_, link)| link.inside_bytes_per_s > 0);
            said.map(|(level, link)| format!("{level} {}", link.inside_bytes_per_s / 1_000_000_000)).collect()
        };
        let (gb200, gh200) = ("NVIDIA GB200", "NVIDIA-GH200-480GB");
        let none: [String; 0] = [];
        let two: Vec<String> = inside(&[(gb200, "a"), (gb200, "a"), (gb200, "b"), (gb200, "b")]);
        assert_eq!(two, ["nvlink-domain 900"]);
        let one: Vec<String> = inside(&[(gb200, "a"), (gb200, "a")]);
        assert_eq!(one, ["cluster 900"], "one domain is the cluster itself");
        let older: Vec<String> = inside(&[(gh200, "a"), (gh200, "a"), (gb200, "b"), (gb200, "b")]);
        assert_eq!(older, ["nvlink-domain 450"]);
        let unknown: Vec<String> = inside(&[("", "a"), ("", "a"), (gb200, "b"), (gb200, "b")]);
        assert_eq!(unknown, none);
    }

    /// What a damaged source may hold is left out, and the rest is a file that is read again.
    #[test]
    fn what_a_file_cannot_hold_is_left_out() {
        let level = |text: &str| LevelName::new(text).unwrap();
        let mut graph = Graph::default();
        let leaf = DomainName::new("leaf-1").unwrap();
        graph.switches.push(Switch { name: leaf, tier: None, rail: None });
        let mut machine = Machine::bare(Origin::Declared);
        machine.devices.push(Device { model: "odd\0model".to_owned(), ..Device::default() });
        for (index, (name, mb_per_s)) in
            (0_u32..).zip([("n1", 50_000), ("n2", 50_000), ("a/b", 25_000), ("n4", 9)])
        {
            let mut host = Host::new(NodeName::new(name).unwrap());
            host.machine = Some(Arc::new(machine.clone()));
            host.address = Some("10.0.0.1 or so".to_owned());
            let domain = DomainName::new(if index < 2 { "x" } else { "y" }).unwrap();
            host.domains = vec![Membership { level: level(NODE_LEVEL), domain }];
            graph.hosts.push(host);
            graph.links.push(FabricLink { mb_per_s, ..FabricLink::new(End::Host(index), End::Switch(0)) });
        }
        let domains = derive(&graph, &rules(&graph, &level("cluster"), &[]));
        assert_eq!(domains.levels, [level("cluster"), level(NODE_LEVEL)]);
        let Written { file, left_out } = ClusterFile::of_map(None, &graph, &domains, &|_| None);
        assert_eq!(left_out.len(), 2, "{left_out:?}");
        let text = serde_saphyr::to_string(&file).unwrap();
        let cluster = ClusterFile::from_yaml(&text, "written.yaml").unwrap().into_cluster().unwrap();
        assert_eq!(cluster.nodes.len(), 3);
        assert_eq!(cluster.nodes[0].hardware.model.as_deref(), Some("oddmodel"));
        assert_eq!(cluster.uplinks.len(), 1, "n4 alone differs and is there");
    }

    /// A torus of 4x4x4 chips in hosts of 2x2x1, numbered along x, y, z but for one; one place is said twice.
    #[test]
    fn places_in_a_torus_survive_the_file() {
        let name = DomainName::new("pod").unwrap();
        let torus = Torus {
            host_chips: [2, 2, 1],
            cube: 4,
            link_mb_per_s: 100_000,
            ..Torus::new(name, [4, 4, 4], true)
        };
        let mut graph = Graph { tori: vec![torus.clone()], ..Graph::default() };
        for number in 0..16_u16 {
            let at = [number % 2 * 2, number / 2 % 2 * 2, number / 4];
            let mut host =
                Host::new(NodeName::new(format!("t{}", if number == 9 { 99 } else { number })).unwrap());
            host.torus = Some(TorusPlace { torus: 0, at: if number == 5 { [0; 3] } else { at } });
            graph.hosts.push(host);
        }
        let domains = derive(&graph, &rules(&graph, &LevelName::new("cluster").unwrap(), &[]));
        let written = ClusterFile::of_map(None, &graph, &domains, &|_| None);
        assert_eq!(written.left_out, ["1 hosts have no place in a torus that a cluster file could tell"]);
        let text = serde_saphyr::to_string(&written.file).unwrap();
        let read = ClusterFile::from_yaml(&text, "written.yaml").unwrap().into_cluster().unwrap();
        assert_eq!(read.levels.tori, [torus]);
        let entries: Vec<&str> = written.file.nodes.iter().map(|node| node.name.value.text()).collect();
        assert_eq!(entries, ["t5", "t[0-4]", "t[6-8,99]", "t[10-15]"]);
        for host in graph.hosts.iter().filter(|host| host.name.as_str() != "t5") {
            let node = read.nodes.iter().find(|node| node.name == host.name).unwrap();
            assert_eq!(node.torus, host.torus, "{}", host.name);
        }
        assert_eq!(read.nodes.iter().filter(|node| node.torus.is_none()).count(), 1);
    }
}
