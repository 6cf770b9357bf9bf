//! Queues that are restricted to pools of nodes.

use phalanx_model::{GangId, Input, JobId, JobUpdate, Node, Pool, QueueName, Resource};
use phalanx_testkit::proptest::collection::vec;
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::{gang, job, queue};

use crate::world::{SECOND, World, octets};

/// A pool of these nodes.
fn hosts(nodes: &[Node]) -> Pool {
    // In order: a, b, …
    Pool { nodes: nodes.iter().map(|node| node.name.clone()).collect(), ..Pool::default() }
}

/// In thousandths of a device.
fn fair_share(world: &World, name: &str) -> u64 {
    let reports = world.watched.engine.queues();
    let report = reports.into_iter().find(|report| report.queue.name.as_str() == name).unwrap();
    let gpus = report.resources.into_iter().find(|of| of.resource == Resource::Gpus).unwrap();
    gpus.fair_share.unwrap()
}

#[test]
fn a_pending_job_that_moves_to_another_queue_goes_to_the_nodes_of_that_queue() {
    let nodes = octets(2);
    let mut world = World::without_min_run(2);
    for (name, node) in [("left", &nodes[..1]), ("right", &nodes[1..])] {
        world.tell(&[queue(name).pools(vec![hosts(node)]).observed()]);
    }
    world.submit(job(1, gang(1).devices(8)).queue("left"));
    world.submit(job(2, gang(1).devices(8)).queue("left"));
    world.advance(SECOND);
    assert_eq!((world.phase(1), world.phase(2)), ("running", "pending"));
    world.watched.restart();
    world.advance(SECOND);
    assert_eq!((world.phase(1), world.phase(2)), ("running", "pending"), "a successor knows the pools too");
    let update = JobUpdate { queue: Some(QueueName::new("right").unwrap()), ..JobUpdate::default() };
    world.tell(&[Input::JobUpdated { job: JobId(2), update }]);
    world.advance(SECOND);
    assert_eq!(world.on(2), ["b"]);
}

#[test]
fn a_reservation_outside_of_the_new_pools_of_a_queue_is_given_up() {
    let nodes = octets(2);
    let mut world = World::without_min_run(2);
    world.tell(&[queue("own").observed()]);
    world.submit(job(1, gang(1).devices(8)).queue("own").time_limit(60 * SECOND));
    world.submit(job(2, gang(1).devices(8)).queue("own").time_limit(90 * SECOND));
    world.submit(job(3, gang(1).devices(8)).queue("own").time_limit(60 * SECOND));
    world.advance(SECOND);
    let reserved = |world: &World| {
        let record = world.watched.record(GangId { job: JobId(3), index: 0 });
        record.reserved.as_ref().map(|of| of.placement.slots[0].node.to_string())
    };
    let first = world.on(1);
    assert_eq!(reserved(&world), Some(first[0].clone()));
    let (same, other): (Vec<Node>, Vec<Node>) =
        nodes.into_iter().partition(|node| node.name.as_str() == first[0]);
    world.tell(&[queue("own").pools(vec![hosts(&same)]).observed()]);
    assert_eq!(reserved(&world), Some(first[0].clone()));
    world.tell(&[queue("own").pools(vec![hosts(&other)]).observed()]);
    world.advance(SECOND);
    assert_eq!(reserved(&world), Some(other[0].name.to_string()));
}

/// It waited for ever: its checkpoint is on a node that its queue may not use any more.
#[test]
fn a_gang_goes_on_where_its_checkpoint_is_though_its_queue_has_other_pools() {
    let nodes = octets(2);
    let mut world = World::without_min_run(2);
    world.tell(&[queue("own").pools(vec![hosts(&nodes[..1])]).observed()]);
    world.submit(job(1, gang(1).devices(8)).pinned().queue("own"));
    world.advance(SECOND);
    let (of_1, at) = (World::gang(1), world.now());
    world.tell(&[Input::GangCheckpointed { gang: of_1, at }]);
    world.tell(&[queue("own").pools(vec![hosts(&nodes[1..])]).observed()]);
    let node = nodes[0].name.clone();
    world.tell(&[Input::DrainRequested { node: node.clone() }]);
    world.advance(60 * SECOND);
    assert_eq!(world.phase(1), "pending");
    world.tell(&[Input::NodeUncordoned { node }]);
    world.advance(60 * SECOND);
    assert_eq!(world.on(1), ["a"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Queues of equal weight that ask for more than there is, each in one of three pools or anywhere: no queue can have
    /// more without one that has no more than it having less.
    #[test]
    fn fair_shares_are_max_min_fair_within_pools(
        queues in vec((0_usize..4, 1_u64..30), 1..7),
    ) {
        let nodes = octets(6);
        // 8, 16 and 24 devices.
        let pools = [&nodes[0..1], &nodes[1..3], &nodes[3..6]];
        let capacity = [8_000, 16_000, 24_000];
        let mut world = World::without_min_run(6);
        for (at, (pool, _)) in queues.iter().enumerate() {
            let mut told = queue(&format!("q{at}"));
            if let Some(nodes) = pools.get(*pool) {
                // The same nodes in another order are the same nodes.
                let mut halves: Vec<Pool> = nodes.chunks(2).map(hosts).collect();
                if at % 2 == 1 {
                    halves.reverse();
                }
                told = told.pools(halves);
            }
            world.tell(&[told.observed()]);
        }
        let of_queue = |(at, (_, asks)): (usize, &(usize, u64))| {
            let name = format!("q{at}");
            let job = move |number| job(1 + 100 * at as u64 + number, gang(1).devices(1)).queue(&name).build();
            (0..*asks).map(job).collect::<Vec<_>>()
        };
        let jobs = queues.iter().enumerate().flat_map(of_queue);
        let submitted = jobs.map(|job| Input::JobSubmitted { job: Box::new(job) });
        world.tell(&submitted.collect::<Vec<_>>());
        world.advance(SECOND);
        let shares: Vec<u64> = (0..queues.len()).map(|at| fair_share(&world, &format!("q{at}"))).collect();
        let of_pool = |pool: usize| -> u64 {
            shares.iter().zip(&queues).filter(|(_, (of, _))| *of == pool).map(|(share, _)| share).sum()
        };
        // Thousandths are divided down.
        let slack = 16;
        let total: u64 = shares.iter().sum();
        prop_assert!(total <= 48_000);
        for (pool, most) in capacity.iter().enumerate() {
            prop_assert!(of_pool(pool) <= *most, "pool {pool}: {shares:?}");
        }
        for (at, (pool, asks)) in queues.iter().enumerate() {
            let bound = capacity.get(*pool).copied().unwrap_or(48_000);
            prop_assert!(shares[at] <= asks * 1_000);
            if shares[at] + slack >= (asks * 1_000).min(bound) {
                continue;
            }
            let rivals = |of: &usize| of == pool;
            let largest_in_pool = shares.iter().zip(&queues).filter(|(_, (of, _))| rivals(of)).map(|(share, _)| *share).max();
            let largest = shares.iter().copied().max().unwrap();
            let pool_is_full = *pool < 3 && of_pool(*pool) + slack >= bound;
            let all_is_full = total + slack >= 48_000;
            let is_fair = pool_is_full && largest_in_pool <= Some(shares[at] + slack)
                || all_is_full && largest <= shares[at] + slack;
            prop_assert!(is_fair, "q{at} could have more: {queues:?} {shares:?}");
        }
    }
}
