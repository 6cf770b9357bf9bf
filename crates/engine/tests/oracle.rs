//! The planner against brute force: it places a gang exactly when any placement exists, and as narrow as any.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use phalanx_model::{
    Change, DomainName, Gang, Input, JobId, LevelName, Levels, ModelNeed, Needs, Node, NodeName, Outcome,
    Placement, Rejection,
};
use phalanx_testkit::oracle::{Amounts, Cluster};
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::{Watched, any_cluster, any_gang_for, gang, job, levels, node, oracle};

fn submit(watched: &mut Watched, id: u64, gang: Gang) -> Outcome {
    let mut job = job(id, gang).build();
    job.submitted_at = watched.now;
    watched.step(&[Input::JobSubmitted { job: Box::new(job) }])
}

fn placed(out: &Outcome, id: u64) -> Option<Placement> {
    out.changes.iter().find_map(|c| match c {
        Change::GangPlaced { gang, placement, .. } if gang.job == JobId(id) => Some(placement.clone()),
        _ => None,
    })
}

/// The free capacity, given what the engine's records hold.
fn free_now(watched: &Watched) -> BTreeMap<NodeName, Amounts> {
    let held: Vec<_> = watched
        .engine
        .jobs()
        .flat_map(|(job, records)| job.each_gang().zip(records))
        .filter_map(|(gang, record)| Some((gang, record.placement.as_ref()?)))
        .collect();
    oracle::free(watched.engine.nodes(), &held)
}

/// The narrowest level, from the node outwards, of which one domain really holds a placement.
fn level_of(levels: &Levels, nodes: &[Node], placement: &Placement) -> LevelName {
    let path = |slot: &phalanx_model::Slot| -> Vec<DomainName> {
        nodes.iter().find(|n| n.name == slot.node).unwrap().path.clone()
    };
    let first = &placement.slots[0];
    if placement.slots.iter().all(|s| s.node == first.node) {
        return levels.node.clone();
    }
    let common = (0..levels.above.len())
        .rev()
        .find(|depth| placement.slots.iter().all(|s| path(s)[..=*depth] == path(first)[..=*depth]));
    levels.above[common.unwrap()].clone()
}

fn cluster_and_gangs() -> impl Strategy<Value = (Levels, Vec<Node>, Vec<Gang>)> {
    any_cluster().prop_flat_map(|(levels, nodes)| {
        let gangs = proptest::collection::vec(any_gang_for(&levels), 1..6);
        (Just(levels), Just(nodes), gangs)
    })
}

use phalanx_testkit::proptest;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Several gangs one after the other, so that the later gangs have to fit into the rest.
    #[test]
    fn placed_exactly_when_feasible_and_as_narrow_as_any((levels, nodes, gangs) in cluster_and_gangs()) {
        let mut watched = Watched::with_nodes(&levels, &nodes);
        for (id, mut gang) in (1..).zip(gangs) {
            (gang.topology.preferred, gang.topology.wait_ms) = (None, 0);
            let free = free_now(&watched);
            let cluster = Cluster { levels: &levels, nodes: &nodes, free: &free };
            let (possible, narrowest) = (cluster.fits(&gang), cluster.narrowest(&gang));
            let out = submit(&mut watched, id, gang.clone());
            let placement = placed(&out, id);
            let held_back = watched.engine.reason(JobId(id).gang(0)).map(|reason| reason.word());
            prop_assert_eq!(placement.is_some(), possible, "{:?} {:?}", gang, held_back);
            let Some(placement) = placement else { continue };
            prop_assert!(grants_wishes(&cluster, &gang, &placement), "{:?} {placement:?}", gang);
            let level = level_of(&levels, &nodes, &placement);
            // For other gangs there are terms that compare before the number of domains.
            let is_plain = gang.roles.is_empty()
                && gang.needs.part.is_none()
                && gang.grid.is_empty()
                && !has_wishes(&gang);
            if is_plain && !is_inside_node(&levels, &gang) {
                prop_assert_eq!(Some(&level), narrowest.as_ref(), "{:?}", gang);
            }
            prop_assert!(level == levels.node || level == placement.level, "{placement:?}");
        }
    }

    /// One more free node never takes a placement away. (Preferences are an exception: a preference that a new node
    /// could meet some day is worth a wait. So is the first node that says how much it has of a resource: until then
    /// only the limits of domains counted it, and from then on nodes that do not name it have none.)
    #[test]
    fn one_more_free_node_never_hurts((levels, nodes, gangs) in cluster_and_gangs()) {
        let mut nodes = nodes;
        if let [first, others @ ..] = nodes.as_mut_slice() {
            let machine = std::sync::Arc::make_mut(&mut first.machine);
            machine.named.retain(|of, _| others.iter().any(|other| other.machine.named.contains_key(of)));
        }
        let mut without = Watched::with_nodes(&levels, &nodes[1..]);
        let mut with = Watched::with_nodes(&levels, &nodes);
        let mut gang = gangs[0].clone();
        (gang.topology.preferred, gang.topology.wait_ms) = (None, 0);
        let fits = |watched: &mut Watched| placed(&submit(watched, 1, gang.clone()), 1).is_some();
        prop_assert!(!fits(&mut without) || fits(&mut with), "{:?}", &gang);
    }

    /// The order in which nodes are listed changes nothing.
    #[test]
    fn the_order_of_nodes_does_not_matter((levels, nodes, gangs) in cluster_and_gangs()) {
        let plan = |nodes: &[Node]| {
            let mut watched = Watched::with_nodes(&levels, nodes);
            let jobs: Vec<Input> = (1..)
                .zip(&gangs)
                .map(|(id, gang)| Input::JobSubmitted { job: Box::new(job(id, gang.clone()).build()) })
                .collect();
            watched.step(&jobs)
        };
        let forward = plan(&nodes);
        let mut reversed = nodes.clone();
        reversed.reverse();
        prop_assert_eq!(&forward, &plan(&reversed));
        reversed.rotate_left(nodes.len() / 2);
        prop_assert_eq!(&forward, &plan(&reversed));
    }

    /// Preferred levels: a free preferred level is used at once, a busy one is waited for and then given up.
    #[test]
    fn a_preference_waits_and_then_gives_way((levels, nodes, gangs) in cluster_and_gangs()) {
        let mut watched = Watched::with_nodes(&levels, &nodes);
        let gang = &gangs[0];
        let free = free_now(&watched);
        let possible = Cluster { levels: &levels, nodes: &nodes, free: &free }.fits(gang);
        let mut out = submit(&mut watched, 1, gang.clone());
        // No node here has a level of this name.
        let unknown = |c: &Change| {
            matches!(c, Change::JobRejected { why: Rejection::UnknownLevel { .. }, .. })
        };
        if out.changes.iter().any(unknown) {
            return Ok(());
        }
        if placed(&out, 1).is_none() {
            out = watched.advance(gang.topology.wait_ms);
        }
        prop_assert_eq!(placed(&out, 1).is_some(), possible);
    }
}

/// Preferred nodes, and models of different speed.
fn has_wishes(gang: &Gang) -> bool {
    let speeds = || gang.needs.models.iter().map(|need| need.speed_milli);
    !gang.needs.prefer.is_empty() || speeds().min() != speeds().max()
}

/// Whether preferred nodes are used if they hold the gang, and the fastest models that hold it.
fn grants_wishes(cluster: &Cluster<'_>, gang: &Gang, placement: &Placement) -> bool {
    let mut gang = gang.clone();
    let preferred = std::mem::take(&mut gang.needs.prefer);
    let named = |name: &&NodeName| gang.needs.nodes.is_empty() || gang.needs.nodes.contains(name);
    let only: Vec<NodeName> = preferred.iter().filter(named).cloned().collect();
    let size = gang.size as usize;
    let main = || placement.slots.iter().take(size);
    let on_preferred = Gang { needs: Needs { nodes: only.clone(), ..gang.needs.clone() }, ..gang.clone() };
    if !only.is_empty() && cluster.fits(&on_preferred) {
        if !main().all(|slot| only.contains(&slot.node)) {
            return false;
        }
        gang = on_preferred;
    }
    let speed_of = |model: &str| {
        let suits = |need: &&ModelNeed| model.to_lowercase().contains(&need.model.to_lowercase());
        gang.needs.models.iter().filter(suits).map(|need| need.speed_milli).max()
    };
    let devices = main().flat_map(|slot| {
        let node = cluster.nodes.iter().find(|node| node.name == slot.node).unwrap();
        slot.devices.iter().map(|device| node.machine.devices[device as usize].model.as_str())
    });
    let Some(slowest) = devices.filter_map(speed_of).min() else { return true };
    let mut faster = gang.clone();
    faster.needs.models.retain(|need| need.speed_milli > slowest);
    faster.needs.models.is_empty() || !cluster.fits(&faster)
}

fn is_inside_node(levels: &Levels, gang: &Gang) -> bool {
    gang.topology.required.as_ref().is_some_and(|l| *l != levels.node && !levels.above.contains(l))
}

#[test]
fn the_oracle_itself_can_count() {
    let levels = levels(&["cluster", "leaf"]);
    let nodes = [
        node("a").path(["c", "l1"]).gpus(4).build(),
        node("b").path(["c", "l1"]).gpus(4).busy([0]).build(),
        node("d").path(["c", "l2"]).gpus(8).hybrid_cube_mesh().busy([0, 4]).build(),
    ];
    let free = oracle::free(&nodes, &[]);
    let cluster = Cluster { levels: &levels, nodes: &nodes, free: &free };
    let narrowest = |g: phalanx_testkit::GangBuilder| cluster.narrowest(&g.build()).map(|l| l.to_string());
    assert_eq!(narrowest(gang(6).devices(1)).as_deref(), Some("node"));
    assert_eq!(narrowest(gang(7).devices(1)).as_deref(), Some("leaf"));
    assert_eq!(narrowest(gang(8).devices(1)).as_deref(), Some("cluster"));
    assert_eq!(narrowest(gang(8).devices(1).required("leaf")), None);
    assert_eq!(narrowest(gang(14).devices(1)), None);
    let nvlink = LevelName::new("nvlink").unwrap();
    assert!(cluster.fits_in_group(&gang(3).devices(1).build(), &nvlink));
    assert!(!cluster.fits_in_group(&gang(4).devices(1).build(), &nvlink));
}
