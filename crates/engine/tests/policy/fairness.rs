//! Every guarantee can be claimed, whatever other queues run.

use phalanx_model::{Input, PreemptMode};
use phalanx_testkit::proptest::collection::vec;
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::{gang, job, queue};

use crate::world::{MINUTE, SECOND, TERM_MS, World, octets, set_min_run, settings};

const MIN_RUN_MS: u64 = 3 * MINUTE;
const NODES: usize = 3;
/// The devices of all nodes.
const DEVICES: u32 = 24;

/// Guarantees of queues that add up to no more than the cluster has, and weights.
fn any_queues() -> impl Strategy<Value = Vec<(u32, u64)>> {
    vec((0..=DEVICES / 2, 0..4_000_u64), 2..5).prop_map(|mut queues| {
        let mut left = DEVICES;
        for (guaranteed, _) in &mut queues {
            *guaranteed = (*guaranteed).min(left);
            left -= *guaranteed;
        }
        queues
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every queue but one fills the cluster with preemptible jobs; the last queue requests its guarantee, in gangs of
    /// single devices, and gets it once the others ran their least time, were asked to stop, and ended.
    #[test]
    fn what_is_guaranteed_is_had_within_the_bound(
        queues in any_queues(),
        sizes in vec(1_u32..4, 1..12),
        classes in vec(0_usize..3, DEVICES as usize),
        wait_ms in 0..2 * MIN_RUN_MS,
    ) {
        let mut world = World::new(&octets(NODES));
        world.tell(&[settings(|settings| set_min_run(settings, MIN_RUN_MS))]);
        for (at, (guaranteed, weight)) in queues.iter().enumerate() {
            let told = queue(&format!("q{at}")).guaranteed("gpus", (*guaranteed).into()).weight_milli(*weight);
            world.tell(&[told.observed()]);
        }
        let others = queues.len() - 1;
        for (id, class) in classes.iter().enumerate() {
            let class = ["opportunistic", "research", "training"][*class];
            let owner = format!("q{}", 1 + id % others);
            // Of another shape than the later gangs, see `shared_asks`.
            let filler = job(1 + id as u64, gang(1).devices(1).cpu_milli(1 + id as u64));
            world.submit(filler.queue(&owner).class(class));
        }
        world.advance(wait_ms);
        let mut left = queues[0].0;
        let mut asked = Vec::new();
        for (at, size) in sizes.iter().enumerate() {
            let size = (*size).min(left);
            if size > 0 {
                asked.push(100 + at as u64);
                world.submit(job(100 + at as u64, gang(size).devices(1)).queue("q0").class("research"));
                left -= size;
            }
        }
        world.advance(MIN_RUN_MS + TERM_MS + SECOND);
        for id in asked {
            prop_assert!(world.is_running(id), "job {id} of {:?}: {:?}", queues, world.reason(id));
        }
    }

    /// Gangs that cannot be preempted never get so much that another queue's guarantee cannot be reached.
    #[test]
    fn what_does_not_make_way_leaves_every_guarantee(queues in any_queues(), asks in vec((0_usize..4, 1_u32..9, any::<bool>()), 1..16)) {
        let mut world = World::new(&octets(NODES));
        for (at, (guaranteed, _)) in queues.iter().enumerate() {
            world.tell(&[queue(&format!("q{at}")).guaranteed("gpus", (*guaranteed).into()).observed()]);
        }
        for (id, (at, devices, is_fixed)) in asks.iter().enumerate() {
            let mode = if *is_fixed { PreemptMode::Never } else { PreemptMode::Requeue };
            let owner = format!("q{}", at % queues.len());
            world.submit(job(1 + id as u64, gang(*devices).devices(1)).queue(&owner).preempt(mode));
        }
        let mut kept = vec![0; queues.len()];
        for (id, (at, devices, _)) in asks.iter().enumerate().filter(|(_, (_, _, is_fixed))| *is_fixed) {
            if world.is_running(1 + id as u64) {
                kept[at % queues.len()] += devices;
            }
        }
        let secured: u32 = kept.iter().zip(&queues).map(|(used, (guaranteed, _))| (*used).max(*guaranteed)).sum();
        prop_assert!(secured <= DEVICES, "{kept:?} of {queues:?}");
    }
}

/// Jobs of several queues with equal requests: a job that may preempt no gang does not block the others.
#[test]
fn shared_asks() {
    let mut world = World::new(&octets(1));
    world.tell(&[queue("own").guaranteed("gpus", 4).observed(), queue("hog").observed()]);
    for id in 1..=10 {
        world.submit(job(id, gang(1).devices(1)).queue("hog"));
    }
    world.advance(15 * MINUTE);
    world.submit(job(100, gang(1).devices(1)).queue("own"));
    world.advance(TERM_MS + SECOND);
    assert!(world.is_running(100), "{:?}", world.reason(100));
}

/// The order compared times of submission before priorities, and these times in outer queues before the shares of inner
/// queues.
#[test]
fn priority_goes_before_time_in_a_queue_and_share_between_the_teams_of_one_organisation() {
    let mut world = World::new(&octets(1));
    for name in ["org", "busy", "idle"] {
        let built = queue(name);
        let built = if name == "org" { built } else { built.parent("org") };
        world.tell(&[Input::QueueObserved { queue: Box::new(built.build()) }]);
    }
    world.submit(job(1, gang(1).devices(4)).queue("busy"));
    world.submit(job(2, gang(1).devices(4)).queue("idle"));
    world.submit(job(3, gang(1).devices(3)).queue("busy"));
    world.advance(MINUTE);
    world.submit(job(4, gang(1).devices(4)).queue("busy").priority(5));
    world.submit(job(5, gang(1).devices(2)).queue("idle"));
    // Both gangs are pending in one queue with different amounts: the gang of higher priority was submitted later.
    world.cancel(1);
    world.advance(MINUTE);
    assert_eq!((world.phase(3), world.phase(4)), ("pending", "running"));
    // One team has half of the cluster, the other nothing: the latter goes first, though it came later.
    world.cancel(2);
    world.advance(MINUTE);
    assert_eq!(world.phase(5), "running");
}

/// A reservation of a borrower yields to the owner of a guarantee, also if other gangs with an equal request were
/// considered before: the owner waited until capacity became free.
#[test]
fn an_owner_takes_what_is_held_for_others_though_others_ask_for_the_same() {
    let mut world = World::new(&octets(1));
    for built in [queue("owner").guaranteed("gpus", 4), queue("others")] {
        world.tell(&[Input::QueueObserved { queue: Box::new(built.build()) }]);
    }
    world.submit_for(job(1, gang(1).devices(4)).queue("others").time_limit(60 * MINUTE), 50 * MINUTE);
    world.submit(job(2, gang(1).devices(8)).queue("others").time_limit(60 * MINUTE));
    world.submit(job(3, gang(1).devices(2)).queue("others"));
    world.submit(job(4, gang(1).devices(2)).queue("owner"));
    world.advance(SECOND);
    assert_eq!((world.phase(3), world.phase(4)), ("pending", "running"));
}
