//! The resources of clusters and the requests of gangs in simulation testing, beside devices, CPUs and memory.

use phalanx_model::{
    Axis, AxisKind, Collective, DomainLimit, Gang, Levels, Machine, ModelNeed, Needs, Node, NodeName,
    NodeSet, PartNeed, Role, Spread,
};

use super::named;
use crate::Rng;

/// Sets that nodes may be in, in order.
pub(super) const SETS: [&str; 2] = ["big", "new"];

const GB: u64 = 1_000_000_000;

/// Domains that share a resource.
pub(super) fn limit(levels: &mut Levels, rng: &mut Rng) {
    if rng.chance(40) {
        let level = rng.pick(&levels.above).cloned().unwrap_or_else(|| named("cluster"));
        let amount = rng.between(2, 12);
        levels.limits.push(DomainLimit { level, path: None, resource: named("power"), amount });
    }
}

/// The equipment of a machine.
pub(super) fn equip(machine: &mut Machine, rng: &mut Rng) {
    if rng.chance(70) {
        machine.named.insert(named("nic"), rng.below(9));
    }
    if rng.chance(30) {
        machine.share_limit_milli = 2_000;
    }
    let is_new = rng.chance(50);
    for device in &mut machine.devices {
        device.memory_bytes = if is_new { 80 * GB } else { 16 * GB };
        if is_new {
            "NVIDIA H100 80GB HBM3".clone_into(&mut device.model);
        }
    }
}

/// The other users of a node, and the sets that the node is in.
pub(super) fn surround(node: &mut Node, rng: &mut Rng) {
    if rng.chance(20) {
        node.foreign_use.cpu_milli = rng.below(9) * 1_000;
        node.foreign_use.memory_bytes = rng.below(33) << 30;
        node.foreign_use.named.insert(named("nic"), rng.below(5));
    }
    node.sets = SETS.into_iter().filter(|_| rng.chance(60)).map(NodeSet::new).collect();
}

/// Half of the gangs request something more. Senseless combinations are refused, which is tested as well.
pub(super) fn vary(gang: &mut Gang, there: &[NodeName], rng: &mut Rng) {
    if rng.chance(50) {
        return;
    }
    let count = |rng: &mut Rng, most: u64| u32::try_from(rng.between(1, most)).unwrap_or(1);
    for resource in ["nic", "power"] {
        if rng.chance(15) {
            gang.needs.named.insert(named(resource), rng.below(3));
        }
    }
    gang.needs.is_exclusive = rng.chance(10);
    gang.needs.avoid = there.iter().filter(|_| rng.chance(4)).cloned().collect();
    gang.needs.prefer = there.iter().filter(|_| rng.chance(6)).cloned().collect();
    if rng.chance(15) {
        gang.needs.within = rng.pick(&SETS).map(|set| NodeSet::new(set));
    }
    if rng.chance(15) {
        let speed_milli = if rng.chance(50) { 400 } else { ModelNeed::AS_SAID };
        let mut models = Needs::of_model("h100");
        models.push(ModelNeed { model: "v100".to_owned(), speed_milli });
        gang.needs.models = models;
    }
    if rng.chance(15) {
        let level =
            rng.pick(&["cluster", "block", "leaf", "node"]).map_or_else(|| named("node"), |l| named(l));
        gang.topology.spread.push(Spread { level, max: count(rng, 4) });
    }
    match rng.below(100) {
        // For more roles, and for roles beside segments, the search may report that it gave up: such a gang waits for
        // ever.
        0..25 => {
            gang.topology.segments.clear();
            gang.roles = vec![role(rng)];
        }
        25..55 => {
            gang.needs.devices = 0;
            gang.needs.part = Some(part(rng));
            gang.needs.models.clear();
            gang.topology.segments.clear();
        }
        55..65 => {
            let (inner, outer) = (count(rng, 3), count(rng, 3));
            gang.grid = vec![axis(AxisKind::Tensor, inner, rng), axis(AxisKind::Data, outer, rng)];
            gang.size = inner.saturating_mul(outer);
            (gang.min, gang.max) = (gang.size, gang.size);
        }
        _ => {}
    }
}

fn role(rng: &mut Rng) -> Role {
    let devices = if rng.chance(60) { 0 } else { 1 };
    let mut needs = Needs { devices, cpu_milli: rng.below(4) * 500, ..Needs::default() };
    if rng.chance(20) {
        needs.named.insert(named("nic"), 1);
    }
    let size = u32::try_from(rng.between(1, 3)).unwrap_or(1);
    Role { name: named("other"), size, needs, segments: Vec::new(), program: None }
}

fn part(rng: &mut Rng) -> PartNeed {
    let quarters = u32::try_from(rng.between(1, 4)).unwrap_or(1);
    match rng.below(4) {
        0 => PartNeed::Slice { compute_milli: quarters * 142, memory_bytes: rng.below(4) * 8 * GB },
        1 => {
            let name = rng.pick(&["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]);
            PartNeed::Profile((*name.unwrap_or(&"1g.10gb")).to_owned())
        }
        _ => {
            let trust = if rng.chance(70) { "user" } else { "other" };
            let memory_bytes = rng.below(3) * 4 * GB;
            PartNeed::Share { compute_milli: quarters * 250, memory_bytes, trust: trust.to_owned() }
        }
    }
}

fn axis(kind: AxisKind, degree: u32, rng: &mut Rng) -> Axis {
    Axis { kind, degree, collective: Collective::AllReduce, bytes: rng.below(3) << 20, calls: 1 }
}
