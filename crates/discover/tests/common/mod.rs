//! Where the texts are, and machines by the dozen.

use std::path::{Path, PathBuf};

use phalanx_discover::shape;
use phalanx_discover::topo_m::{TopoM, parse};
use phalanx_model::{Device, Link, LinkKind, Machine, Nic, Origin, Port, ShapeName};
use proptest::prelude::*;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn fixture(name: &str) -> String {
    let path = root().join("fixtures/topo_m").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[allow(dead_code)]
pub(crate) fn read(name: &str) -> TopoM {
    parse(&fixture(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The groups of a level as people write them: `0-3 4-7`.
#[allow(dead_code)]
pub(crate) fn groups(machine: &Machine, level: &str) -> String {
    let masks: Vec<String> = shape::groups(machine, level).map(|g| g.to_string()).collect();
    masks.join(" ")
}

#[allow(dead_code)]
fn kinds() -> impl Strategy<Value = Option<LinkKind>> {
    prop_oneof![
        (1..=36_u8).prop_map(|n| Some(LinkKind::Nvlink(n))),
        Just(Some(LinkKind::Xgmi)),
        Just(Some(LinkKind::PcieSwitch)),
        Just(Some(LinkKind::PcieBridges)),
        Just(Some(LinkKind::HostBridge)),
        Just(Some(LinkKind::Numa)),
        Just(Some(LinkKind::Socket)),
        Just(None),
    ]
}

/// Machines of all kinds, as [`shape::finish`] leaves them; most of them no one would build.
#[allow(dead_code)]
pub(crate) fn machines() -> impl Strategy<Value = Machine> {
    (1..=16_u32, 0..=6_u32, 0..=300_u64)
        .prop_flat_map(|(devices, nics, cpus)| {
            let pairs = ((devices + nics) * (devices + nics - 1) / 2) as usize;
            let numas = proptest::collection::vec(proptest::option::of(0..8_u32), devices as usize);
            let aliases = proptest::collection::vec(proptest::option::of("mlx5_[0-9]{1,2}"), nics as usize);
            (Just(cpus), numas, aliases, proptest::collection::vec(kinds(), pairs))
        })
        .prop_map(|(cpus, numas, aliases, kinds)| machine(cpus, numas, aliases, kinds))
}

#[allow(dead_code)]
fn machine(
    cpus: u64,
    numas: Vec<Option<u32>>,
    aliases: Vec<Option<String>>,
    kinds: Vec<Option<LinkKind>>,
) -> Machine {
    let name = |i: usize, word: &str| format!("{word}{i}");
    let ports: Vec<Port> =
        (0..count(numas.len())).map(Port::Device).chain((0..count(aliases.len())).map(Port::Nic)).collect();
    let pairs = ports.iter().enumerate().flat_map(|(i, a)| ports[i + 1..].iter().map(move |b| (*a, *b)));
    let links = pairs.zip(kinds).filter_map(|((a, b), kind)| Some(Link::new(a, b, kind?))).collect();
    let devices = numas.into_iter().enumerate();
    let nics = aliases.into_iter().enumerate();
    let mut machine = Machine {
        shape: ShapeName::new("none").unwrap(),
        origin: Origin::Declared,
        devices: devices
            .map(|(i, numa)| Device { name: name(i, "GPU"), numa, ..Device::default() })
            .collect(),
        nics: nics.map(|(i, alias)| Nic { name: name(i, "NIC"), alias, ..Nic::default() }).collect(),
        links,
        groups: Vec::new(),
        cpu_milli: cpus * 1000,
        memory_bytes: 0,
        named: std::collections::BTreeMap::new(),
        share_limit_milli: 0,
        replicas: 0,
    };
    shape::finish(&mut machine);
    machine
}

#[allow(dead_code)]
fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap()
}
