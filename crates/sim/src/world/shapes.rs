//! What machines offer, worked out once: the worlds of a swarm are made of the same few, over and over.

use std::cell::RefCell;
use std::collections::BTreeMap;

use phalanx_engine::{Engine, Shapes};
use phalanx_model::{CostTable, LevelCost, LevelName, Machine, Node, NodeName, ShapeCost, ShapeName};

/// Machines of one shape that are remembered; they differ in models.
const MACHINES_MAX: usize = 16;

#[derive(Default)]
struct Known {
    costs: BTreeMap<ShapeName, Vec<(Machine, ShapeCost)>>,
    shapes: Shapes,
}

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// As [`phalanx_cost::compile`].
pub(super) fn compile(
    nodes: &BTreeMap<NodeName, Node>,
    levels: &BTreeMap<LevelName, LevelCost>,
) -> CostTable {
    let mut shapes = BTreeMap::new();
    for node in nodes.values() {
        if !shapes.contains_key(&node.machine.shape) {
            shapes.insert(node.machine.shape.clone(), cost_of(&node.machine));
        }
    }
    CostTable { shapes, levels: levels.clone(), ..CostTable::default() }
}

fn cost_of(machine: &Machine) -> ShapeCost {
    // What a machine hosts beside its devices costs nothing.
    let is_alike = |known: &Machine| {
        known.devices == machine.devices
            && known.links == machine.links
            && known.nics == machine.nics
            && known.groups == machine.groups
    };
    KNOWN.with_borrow_mut(|known| {
        let alike = known.costs.entry(machine.shape.clone()).or_default();
        if let Some((_, cost)) = alike.iter().find(|(known, _)| is_alike(known)) {
            return cost.clone();
        }
        let cost = phalanx_cost::shape_cost(machine);
        alike.truncate(MACHINES_MAX - 1);
        alike.push((machine.clone(), cost.clone()));
        cost
    })
}

/// Lends an engine that is new what others worked out.
pub(super) fn lend(engine: Engine) -> Engine {
    KNOWN.with_borrow(|known| engine.with_shapes(&known.shapes))
}

/// Keeps what an engine worked out.
pub(super) fn learn(engine: &Engine) {
    KNOWN.with_borrow_mut(|known| known.shapes.learn(&engine.shapes()));
}
