//! Measured links of a cluster, and the cluster that has these bandwidths.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{
    Bandwidth, Bandwidths, DomainCost, DomainName, Machine, Node, ShapeCost, ShapeName, Timestamp, Uplink,
};

use crate::draw::{Cluster, Rng, whole_path};

/// What the engine assumes of a network of which nothing is known.
const ASSUMED_MB_PER_S: u32 = 50_000;

/// Draws shares of half of the nodes and of some domains with a known uplink.
pub(crate) fn draw(rng: &mut Rng, cluster: &Cluster) -> (Bandwidths, Cluster) {
    let mut really = cluster.clone();
    let mut odd: BTreeMap<Vec<DomainName>, DomainCost> =
        really.table.domains.drain(..).map(|domain| (domain.path.clone(), domain)).collect();
    let mut measured = Bandwidths::new();
    let mut note = |uplink: Uplink, permille: u16| {
        let (at, detail) = (Timestamp(0), String::new());
        let bandwidth = Bandwidth { uplink: uplink.clone(), permille, counts_permille: permille, at, detail };
        measured.insert(uplink, bandwidth);
    };
    let mut cut = |path: Vec<DomainName>, cost: phalanx_model::LevelCost| {
        odd.insert(path.clone(), DomainCost { path, cost });
    };
    for node in &mut really.nodes {
        if rng.chance(50) {
            let permille = rng.pick(&[250, 375, 500, 625, 750, 875]);
            note(Uplink::Node(node.name.clone()), permille);
            let (path, level) = (whole_path(node), &cluster.levels.node);
            let mut cost = cluster.table.uplink(level, &path).unwrap_or_default();
            let shape = &cluster.table.shapes[&node.machine.shape];
            if cost.uplink_mb_per_s == 0 && slowest_way_out(shape) == 0 {
                cost.uplink_mb_per_s = ASSUMED_MB_PER_S;
            }
            cost.uplink_mb_per_s = share(cost.uplink_mb_per_s, permille);
            cut(path, cost);
            let slower = slower(shape, permille);
            *node = with_shape(node, permille);
            really.table.shapes.insert(node.machine.shape.clone(), slower);
        }
    }
    let mut done: Vec<Vec<DomainName>> = Vec::new();
    for node in &cluster.nodes {
        for (end, level) in (1..).zip(&cluster.levels.above) {
            let path = node.path[..end].to_vec();
            let cost = cluster.table.uplink(level, &path).unwrap_or_default();
            if done.contains(&path) || cost.uplink_mb_per_s == 0 || !rng.chance(20) {
                done.push(path);
                continue;
            }
            let permille = rng.pick(&[250, 500, 875]);
            note(Uplink::Domain(path.clone()), permille);
            let uplink_mb_per_s = share(cost.uplink_mb_per_s, permille);
            cut(path.clone(), phalanx_model::LevelCost { uplink_mb_per_s, ..cost });
            done.push(path);
        }
    }
    really.table.domains = odd.into_values().collect();
    (measured, really)
}

fn share(mb_per_s: u32, permille: u16) -> u32 {
    u32::try_from(u64::from(mb_per_s) * u64::from(permille) / 1_000).unwrap()
}

/// The NICs together, or what stands for them: the slowest path inside.
fn slowest_way_out(shape: &ShapeCost) -> u32 {
    let nics = shape.nics.iter().map(|nic| nic.mb_per_s).sum::<u32>().max(shape.nic_mb_per_s);
    let slowest = shape.pair_mb_per_s.iter().copied().filter(|pair| *pair > 0).min();
    if nics > 0 { nics } else { slowest.unwrap_or(0) }
}

fn slower(shape: &ShapeCost, permille: u16) -> ShapeCost {
    let mut slower = shape.clone();
    if slower.nics.iter().all(|nic| nic.mb_per_s == 0) {
        slower.nics.clear();
        slower.nic_mb_per_s = slowest_way_out(shape);
    }
    slower.nic_mb_per_s = share(slower.nic_mb_per_s, permille);
    slower.far_mb_per_s = share(slower.far_mb_per_s, permille);
    slower.nics.iter_mut().for_each(|nic| nic.mb_per_s = share(nic.mb_per_s, permille));
    slower
}

fn with_shape(node: &Node, permille: u16) -> Node {
    let shape = ShapeName::new(format!("{}-{permille}", node.machine.shape)).unwrap();
    Node { machine: Arc::new(Machine { shape, ..(*node.machine).clone() }), ..node.clone() }
}
