//! Schedulers that are killed or stopped, and their successors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use phalanx_controlplane::Fleet;
use phalanx_kube::world::ANSWER;
use phalanx_sim::Rng;
use serde_json::json;

use crate::support::front::{Fault, Front, Write};
use crate::support::record::Record;
use crate::support::trap::Trap;
use crate::support::{Cluster, JOBS, PODS, Times, assert_disjoint, job, pod};

/// For how long a gang may be there in part: until a successor has begun, which is started at once, and until its own
/// deadline for what it found.
pub(crate) fn part(times: Times) -> Duration {
    const BEGINS: Duration = Duration::from_secs(5);
    BEGINS + times.part()
}

/// The same where it has to wait for the lease first, and for calls of the old leader.
fn part_with_lease() -> Duration {
    Duration::from_secs(LEASE_S) + ANSWER + part(Times::default())
}

/// When a scheduler is killed.
#[derive(Clone, Copy, Debug)]
enum Kill {
    /// With the binding that is so many from now, which is still made or not.
    AtBinding {
        after: u64,
        is_made: bool,
    },
    After(Duration),
}

impl Kill {
    fn draw(rng: &mut Rng) -> Self {
        match rng.below(4) {
            0 => Self::After(Duration::from_millis(rng.between(20, 1_500))),
            _ => Self::AtBinding { after: rng.below(4), is_made: rng.chance(50) },
        }
    }
}

/// Killed at many moments, most of them between two bindings of one gang: whoever comes next finishes what was begun, binds
/// nothing twice, and loses no gang.
fn gangs_are_whole_after_kills(seed: u64, kills: u32) {
    const PODS_OF_ONE: usize = 4;
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::of(6);
    let name = |gang: u32| format!("g{gang:02}");
    let record = Record::begin(cluster.api(), (0..kills).map(|gang| (name(gang), PODS_OF_ONE)));
    let trap = Arc::new(Trap::default());
    let front = {
        let trap = Arc::clone(&trap);
        Front::of(&cluster.plane, move |asked| if asked.is_binding() { trap.spring() } else { Fault::None })
    };
    let ends = json!({ "controlplane.phalanx.dev/succeed-after": "3s" });
    for gang in 0..kills {
        let how = Kill::draw(&mut rng);
        println!("seed {seed}, kill {gang}: {how:?}");
        let scheduler = cluster.schedule_through(&front, 0, Times::default());
        if let Kill::AtBinding { after, is_made } = how {
            trap.arm(cluster.pid(scheduler), after, is_made);
        }
        cluster.create(JOBS, &job(&name(gang), u32::try_from(PODS_OF_ONE).unwrap(), 2, &ends));
        match how {
            Kill::After(time) => std::thread::sleep(time),
            Kill::AtBinding { .. } => {
                cluster.until(&format!("{how:?} of seed {seed}"), |_| (!trap.is_armed()).then_some(()))
            }
        }
        cluster.kill(scheduler);
    }
    cluster.schedule_through(&front, 0, Times::default());
    let began = Instant::now();
    let what = format!("of seed {seed}, the end of all jobs");
    cluster.until_within(Duration::from_secs(240), &what, |cluster| {
        let jobs = cluster.api().get(JOBS).unwrap();
        let done = |job: &serde_json::Value| job["status"]["succeeded"] == job["spec"]["completions"];
        jobs["items"].as_array().unwrap().iter().all(done).then_some(())
    });
    let failures: u64 = (0..kills).map(|gang| cluster.failures(&name(gang))).sum();
    println!("all have ended {:?} after the last kill; {failures} pods failed", began.elapsed());
    record.judge(part(Times::default()));
}

#[test]
fn gangs_are_whole_whenever_the_scheduler_is_killed() {
    gangs_are_whole_after_kills(1, 8);
}

/// `make kube-kills`.
#[test]
#[ignore = "minutes: the long form of the one above"]
fn gangs_are_whole_at_fifty_kill_points() {
    gangs_are_whole_after_kills(20_261_122, 50);
}

/// It waited for ranks that nobody makes again, or for as long as it may take to become ready.
#[test]
fn the_rest_of_a_gang_ends_when_what_was_bound_of_it_has_ended_before_a_successor_began() {
    let mut cluster = Cluster::of(1);
    let is_broken = Arc::new(AtomicBool::new(true));
    let front = {
        let is_broken = Arc::clone(&is_broken);
        let is_second_half =
            |path: &str| ["/pods/rest-2-", "/pods/rest-3-"].iter().any(|of| path.contains(of));
        Front::of(&cluster.plane, move |asked| {
            match asked.is_binding() && is_second_half(&asked.path) && is_broken.load(Ordering::Acquire) {
                true => Fault::Refuse(500, None),
                false => Fault::None,
            }
        })
    };
    let scheduler = cluster.schedule_through(&front, 0, Times::default());
    let ends = json!({ "controlplane.phalanx.dev/succeed-after": "1s" });
    cluster.create(JOBS, &job("rest", 4, 1, &ends));
    cluster.until("one half", |cluster| {
        (cluster.seats().iter().filter(|seat| seat.node.is_some()).count() == 2).then_some(())
    });
    cluster.kill(scheduler);
    is_broken.store(false, Ordering::Release);
    cluster.until("the end of what was bound", |cluster| {
        let seats = cluster.seats();
        let bound = seats.iter().filter(|seat| seat.node.is_some()).count();
        let ended = seats.iter().filter(|seat| seat.phase == "Succeeded").count();
        (bound == 2 && bound == ended).then_some(())
    });
    cluster.schedule_through(&front, 0, Times::default());
    cluster.until("the end of all", |cluster| {
        let job = cluster.api().get(&format!("{JOBS}/rest")).unwrap();
        (job["status"]["succeeded"] == 4).then_some(())
    });
    assert_eq!(cluster.failures("rest"), 0);
}

/// Killed with the suspension of an owner whose gang could not start whole, once that is made, or before it lets the owner go
/// on: what the owner says is all that its successor needs.
#[test]
fn an_owner_is_let_go_on_by_the_successor_of_who_suspended_it() {
    let mut cluster = Cluster::of(1);
    let times = Times { binding_s: 3, ..Times::default() };
    for (name, at, is_made) in [("first", 0, true), ("second", 1, false)] {
        let trap = Arc::new(Trap::default());
        let record = Record::begin(cluster.api(), [(name.to_owned(), 4)]);
        let front = {
            let trap = Arc::clone(&trap);
            let job = format!("{JOBS}/{name}");
            let torn = format!("/pods/{name}-2-");
            Front::of(&cluster.plane, move |asked| match trap.is_armed() {
                true if asked.method == "PATCH" && asked.path == job => trap.spring(),
                true if asked.is_binding() && asked.path.contains(&torn) => Fault::Refuse(500, None),
                _ => Fault::None,
            })
        };
        let scheduler = cluster.schedule_through(&front, 0, times);
        trap.arm(cluster.pid(scheduler), at, is_made);
        cluster.create(JOBS, &job(name, 4, 1, &json!({})));
        cluster.until("a kill", |_| (!trap.is_armed()).then_some(()));
        cluster.kill(scheduler);
        let successor = cluster.schedule_through(&front, 0, times);
        cluster.until_runs(name, 4);
        cluster.kill(successor);
        let job = cluster.api().get(&format!("{JOBS}/{name}")).unwrap();
        assert!(job["metadata"]["annotations"]["phalanx.dev/suspended"].is_null(), "{job:#}");
        assert_eq!((&job["spec"]["suspend"], cluster.failures(name)), (&json!(false), 0));
        record.judge(part(times));
    }
}

/// Of two schedulers one leads; when it is killed the other goes on.
#[test]
fn a_standby_takes_over() {
    let mut cluster = Cluster::of(2);
    let leader = cluster.schedule(3);
    cluster.create(JOBS, &job("before", 2, 4, &json!({})));
    cluster.until_runs("before", 2);
    cluster.schedule(3);
    cluster.kill(leader);
    cluster.create(JOBS, &job("after", 2, 4, &json!({})));
    cluster.until_runs("after", 2);
    assert_disjoint(&cluster.seats());
}

/// A leader that is stopped in the middle of a gang, for longer than its lease, with a standby beside it.
struct TwoLeaders {
    cluster: Cluster,
    record: Record,
    old: usize,
    of_old: Front,
    of_new: Front,
    /// What the old one asked for last is done once this is set, and what the new one asks for once that is.
    old_may: Arc<AtomicBool>,
    new_may: Arc<AtomicBool>,
}

const TORN: &str = "torn";
/// Long enough for a busy machine to renew it.
const LEASE_S: u64 = 8;

impl TwoLeaders {
    /// So many bindings of the old one are done at once.
    fn with(at_once: u64) -> Self {
        let mut cluster = Cluster::of(6);
        let record = Record::begin(cluster.api(), [(TORN.to_owned(), 4)]);
        let gates = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let [old_may, new_may] = gates.clone();
        let [of_old, of_new] = [(at_once, 0), (0, 1)].map(|(free, gate)| {
            let gate = Arc::clone(&gates[gate]);
            Front::of(&cluster.plane, move |asked| match asked.is_binding() && asked.before >= free {
                true => Fault::Gate(Arc::clone(&gate)),
                false => Fault::None,
            })
        });
        let old = cluster.schedule_through(&of_old, LEASE_S, Times::default());
        cluster.until("a leader", |cluster| cluster.log().contains("leads").then_some(()));
        cluster.schedule_through(&of_new, LEASE_S, Times::default());
        cluster.create(JOBS, &job(TORN, 4, 4, &json!({})));
        cluster.until("bindings on their way", |_| {
            (of_old.bindings() == 4 && record.bindings() as u64 == at_once).then_some(())
        });
        kill(cluster.pid(old), Signal::SIGSTOP).unwrap();
        Self { cluster, record, old, of_old, of_new, old_may, new_may }
    }

    /// The old one goes on: it has to end, and may ask for nothing any more.
    fn wake_the_old(&self) {
        let asked = self.of_old.bindings();
        kill(self.cluster.pid(self.old), Signal::SIGCONT).unwrap();
        self.cluster.until("the end of the old leader", |cluster| cluster.has_ended(self.old).then_some(()));
        assert_eq!(self.of_old.bindings(), asked, "it bound without a lease");
    }
}

/// The new leader finishes the gang where the old one began it; what is still on its way comes too late, or does the same.
#[test]
fn a_new_leader_finishes_what_an_old_one_began_before_it_was_stopped() {
    let two = TwoLeaders::with(2);
    two.new_may.store(true, Ordering::Release);
    let seats = two.cluster.until_runs(TORN, 4);
    two.old_may.store(true, Ordering::Release);
    two.wake_the_old();
    assert_eq!(two.cluster.until_runs(TORN, 4), seats, "the decisions of the new leader hold");
    two.record.judge(part_with_lease());
}

/// The new leader knew nothing of it and decided otherwise: what the old one still binds breaks the gang, and is undone.
#[test]
fn what_an_old_leader_still_bound_is_undone_where_it_breaks_a_gang() {
    let two = TwoLeaders::with(0);
    // The places that the old one chose are taken meanwhile.
    for at in 0..4 {
        let mut taken = pod(&format!("taken-{at}"), 8);
        taken["spec"]["schedulerName"] = json!("somebody-else");
        taken["spec"]["nodeName"] = json!(Fleet::name(at));
        two.cluster.create(PODS, &taken);
    }
    two.cluster.until("bindings of the new leader", |_| (two.of_new.bindings() == 4).then_some(()));
    two.old_may.store(true, Ordering::Release);
    // The new one takes the gang back as soon as it sees the first of them: the others may find their pods gone.
    let answered = || {
        two.of_old
            .writes()
            .into_iter()
            .filter(|write| write.path.ends_with("/binding") && write.done.is_some())
    };
    two.cluster.until("answers to the old leader", |_| (answered().count() >= 4).then_some(()));
    two.new_may.store(true, Ordering::Release);
    let began = Instant::now();
    let seats = two.cluster.until("the gang where the new leader wants it", |cluster| {
        let seats: Vec<_> = cluster.seats().into_iter().filter(|seat| seat.gang == TORN).collect();
        let is_right = |seat: &&crate::support::Seat| {
            seat.phase == "Running" && seat.node.as_deref() >= Some(&*Fleet::name(4))
        };
        (seats.len() == 4 && seats.iter().filter(is_right).count() == 4).then_some(seats)
    });
    println!("whole again after {:?}", began.elapsed());
    two.wake_the_old();
    assert_disjoint(&seats);
    two.record.judge(part_with_lease());
}

/// Nobody can know of a call of the old leader that is on its way. While it may still be done the new one decides nothing.
#[test]
fn a_successor_waits_for_the_end_of_the_lease_and_then_for_calls_of_the_old_leader() {
    let two = TwoLeaders::with(0);
    two.cluster.create(JOBS, &job("next", 2, 4, &json!({})));
    let of_lease = |write: &Write| write.path.contains("/leases");
    let done = |front: &Front| {
        let all = front.writes().into_iter().filter(of_lease);
        all.filter(|write| matches!(write.done, Some((_, 200 | 201)))).collect::<Vec<_>>()
    };
    let taken = two.cluster.until("another's lease", |_| done(&two.of_new).into_iter().next());
    let renewed = done(&two.of_old).pop().unwrap();
    let waited = taken.asked - renewed.asked;
    assert!(waited >= Duration::from_secs(LEASE_S), "the lease was taken {waited:?} after it was renewed");
    // Without a wait it would long have decided by then.
    std::thread::sleep(ANSWER / 4);
    assert_eq!(two.of_new.bindings(), 0, "calls of the old leader are on their way");
    two.old_may.store(true, Ordering::Release);
    two.cluster.until("the bindings of the old leader", |_| (two.record.bindings() >= 4).then_some(()));
    two.new_may.store(true, Ordering::Release);
    two.cluster.until_runs(TORN, 4);
    two.cluster.until_runs("next", 2);
    let writes = two.of_new.writes();
    let bound: Vec<&Write> = writes.iter().filter(|write| write.path.ends_with("/binding")).collect();
    assert!(bound.iter().all(|write| write.path.contains("/pods/next-")), "the others were bound: {bound:?}");
    let first = writes.iter().find(|write| !of_lease(write)).unwrap();
    let old = two.of_old.writes().into_iter().filter(|write| write.path.ends_with("/binding"));
    let waited = first.asked - old.map(|write| write.asked).max().unwrap();
    assert!(waited >= ANSWER, "{first:?}: only {waited:?} after the last call of the old leader");
    // Of so short a lease only two thirds are without calls.
    let waited = first.asked - taken.done.unwrap().0;
    let silence = Duration::from_secs(LEASE_S) * 2 / 3;
    assert!(waited >= ANSWER - silence, "{first:?}: only {waited:?} after it has the lease");
    two.wake_the_old();
    two.record.judge(part(Times::default()));
}

/// It went on until its time was over, and the next one, which had made another lease, did not wait for that.
#[test]
fn a_leader_whose_lease_is_deleted_ends_and_what_the_next_one_binds_is_told_apart() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/phalanx-system/leases";
    let mut cluster = Cluster::of(1);
    let first = cluster.schedule(4);
    let epoch = |cluster: &Cluster, name: &str| {
        cluster.create(PODS, &pod(name, 1));
        cluster.until_runs(name, 1);
        let pod = cluster.api().get(&format!("{PODS}/{name}")).unwrap();
        pod["metadata"]["annotations"]["phalanx.dev/epoch"].as_str().unwrap().to_owned()
    };
    let before = epoch(&cluster, "before");
    cluster.schedule(4);
    let leases = cluster.api().get(LEASES).unwrap();
    let ours = leases["items"].as_array().unwrap().iter().map(|lease| lease["metadata"].clone());
    let ours = ours.into_iter().find(|lease| before.starts_with(lease["uid"].as_str().unwrap())).unwrap();
    cluster.api().delete(&format!("{LEASES}/{}", ours["name"].as_str().unwrap())).unwrap();
    cluster.until("the end of the leader", |cluster| cluster.has_ended(first).then_some(()));
    // Whatever it sees first: that its lease is gone, or that another has made one.
    let ends = ["stopped: the lease was deleted", "has the lease"];
    assert!(ends.iter().any(|end| cluster.log().contains(end)), "{}", cluster.log());
    let after = epoch(&cluster, "after");
    let lease = |epoch: &str| epoch.split('/').next().map(str::to_owned);
    assert_ne!(lease(&before), lease(&after), "{before} and {after}");
}
