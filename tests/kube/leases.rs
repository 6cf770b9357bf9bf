//! The lease by which one of several schedulers leads, where calls about it go wrong.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use phalanx_controlplane::Api;
use phalanx_kube::world::ANSWER;
use serde_json::{Value, json};

use crate::support::front::{Asked, Fault, Front};
use crate::support::{Cluster, JOBS, PODS, Times, job, pod};

/// As it is by default: of the time that is left when one call has hung, a busy machine needs some.
const LEASE_S: u64 = 15;
/// It is done long after nobody waits for it any more.
const HELD: Duration = Duration::from_secs(60);

/// Who had the lease, one after another, and since when: as a watch at the API server saw it.
struct Holders(Arc<Mutex<Vec<(String, Instant)>>>);

impl Holders {
    fn begin(api: &Api) -> Self {
        let holders: Arc<Mutex<Vec<(String, Instant)>>> = Arc::default();
        let watch =
            api.watch("/apis/coordination.k8s.io/v1/namespaces/phalanx-system/leases?watch=true").unwrap();
        let shared = Arc::clone(&holders);
        std::thread::spawn(move || {
            for event in watch.map_while(Result::ok) {
                let lease = &event["object"];
                let Some(holder) = lease["spec"]["holderIdentity"].as_str() else { continue };
                let mut holders = shared.lock().unwrap();
                let is_new = holders.last().is_none_or(|(last, _)| last != holder);
                if lease["metadata"]["name"] == "phalanx-scheduler" && is_new {
                    holders.push((holder.to_owned(), Instant::now()));
                }
            }
        });
        Self(holders)
    }

    fn all(&self) -> Vec<(String, Instant)> {
        self.0.lock().unwrap().clone()
    }
}

/// Whatever becomes of the first of these requests, in their order; the others go well.
fn each(asked: &Asked, faults: &[Fault]) -> Fault {
    let at = usize::try_from(asked.before).unwrap();
    faults.get(at).cloned().unwrap_or(Fault::None)
}

/// Answers to the leader about its lease: of how it is made, read and renewed.
fn of_leader(asked: &Asked) -> Fault {
    use Fault::{Drop, Forget, Hold, None, Refuse};
    match &*asked.method {
        "POST" => each(
            asked,
            &[Refuse(429, Some(1)), Refuse(409, Option::None), Refuse(503, Option::None), Drop, Forget],
        ),
        "PUT" => each(
            asked,
            &[
                Refuse(500, Option::None),
                None,
                Refuse(409, Option::None),
                None,
                Refuse(429, Some(1)),
                Refuse(503, Option::None),
                None,
                Drop,
                Forget,
                // Refused as well: the one before was done.
                None,
                None,
                Hold(HELD),
            ],
        ),
        _ => each(asked, &[None, Refuse(500, Option::None)]),
    }
}

/// What has to have become of calls of the leader.
const FAULTS: &[&str] = &[
    "Refuse 429 POST leases",
    "Refuse 409 POST leases",
    "Refuse 503 POST leases",
    "Drop POST leases",
    "Forget POST leases",
    "Refuse 500 GET leases",
    "Refuse 409 PUT leases",
    "Refuse 429 PUT leases",
    "Refuse 500 PUT leases",
    "Refuse 503 PUT leases",
    "Drop PUT leases",
    "Forget PUT leases",
    "Hold PUT leases",
];

/// A single answer that did not come cost it the lease, and one conflict with its own renewal kept it from giving it back.
#[test]
fn a_leader_leads_on_when_calls_about_its_lease_fail_and_its_successor_need_not_wait_for_its_end() {
    let mut cluster = Cluster::of(1);
    let holders = Holders::begin(cluster.api());
    let ends = Arc::new(AtomicBool::new(false));
    let of_old = {
        let (ends, refused) = (Arc::clone(&ends), AtomicU32::new(0));
        Front::of(&cluster.plane, move |asked| match asked.is_of_lease() {
            // As if it had been renewed meanwhile. One of the two may be the last renewal itself.
            true if ends.load(Ordering::Acquire) && asked.method == "PUT" => {
                match refused.fetch_add(1, Ordering::AcqRel) {
                    0 | 1 => Fault::Refuse(409, None),
                    _ => Fault::None,
                }
            }
            true => of_leader(asked),
            false => Fault::None,
        })
    };
    let old = cluster.schedule_through(&of_old, LEASE_S, Times::default());
    cluster.until("a holder", |_| (!holders.all().is_empty()).then_some(()));
    let of_new = Front::of(&cluster.plane, |asked| match asked.is_of_lease() && asked.method == "PUT" {
        true => each(asked, &[Fault::Refuse(409, None), Fault::Refuse(429, Some(1)), Fault::Forget]),
        false => Fault::None,
    });
    cluster.schedule_through(&of_new, LEASE_S, Times::default());
    cluster.create(JOBS, &job("before", 2, 2, &json!({})));
    cluster.until_runs("before", 2);
    let done = |front: &Front, fault: &str| front.faults().contains_key(fault);
    cluster.until("all faults", |_| FAULTS.iter().all(|fault| done(&of_old, fault)).then_some(()));
    let renewed = || of_old.writes().iter().filter(|write| write.method == "PUT").count();
    let so_far = renewed();
    cluster.until("renewals after them", |_| (renewed() >= so_far + 2).then_some(()));
    assert!(!cluster.has_ended(old), "{}", cluster.log());
    assert_eq!(holders.all().len(), 1, "it was never without the lease: {:?}", holders.all());

    ends.store(true, Ordering::Release);
    let told = Instant::now();
    kill(cluster.pid(old), Signal::SIGTERM).unwrap();
    cluster.until("its end", |cluster| cluster.has_ended(old).then_some(()));
    cluster.create(JOBS, &job("after", 2, 2, &json!({})));
    cluster.until_runs("after", 2);
    let all = holders.all();
    assert!(all.len() == 3 && all[1].0.is_empty(), "it gave it back, and another took it: {all:?}");
    let waited = all[2].1 - all[1].1;
    assert!(waited < Duration::from_secs(LEASE_S), "nobody had it, and it waited for {waited:?}");
    for fault in ["Refuse 409 PUT leases", "Refuse 429 PUT leases", "Forget PUT leases"] {
        assert!(done(&of_new, fault), "{fault}: {:?}", of_new.faults());
    }
    // No call of the one before was on its way when it gave the lease back.
    let writes = of_new.writes();
    let of_lease = |path: &str| path.contains("/leases");
    let taken =
        writes.iter().find_map(|write| write.done.filter(|(_, code)| *code == 200 && of_lease(&write.path)));
    let first = writes.iter().find(|write| !of_lease(&write.path)).unwrap();
    let waited = first.asked - taken.unwrap().0;
    assert!(waited < ANSWER, "{first:?}: {waited:?} after it has the lease");
    println!("the successor decides {:.1?} after SIGTERM, faults included", first.asked - told);
    let leases: Value = cluster
        .api()
        .get("/apis/coordination.k8s.io/v1/namespaces/phalanx-system/leases/phalanx-scheduler")
        .unwrap();
    assert_eq!(leases["spec"]["holderIdentity"], *all[2].0, "{leases:#}");
}

/// When something was asked for by way of a front: the first and the last time.
fn bindings(front: &Front) -> Option<(Instant, Instant)> {
    let writes = front.writes();
    let asked = || writes.iter().filter(|write| write.path.ends_with("/binding")).map(|write| write.asked);
    asked().min().zip(asked().max())
}

/// It took 25 s: once its lease was over, its successor waited for calls that had had their time by then.
#[test]
fn a_successor_decides_soon_after_the_lease_of_a_leader_that_was_killed() {
    let mut cluster = Cluster::of(1);
    let old = cluster.schedule(LEASE_S);
    cluster.create(JOBS, &job("before", 2, 2, &json!({})));
    cluster.until_runs("before", 2);
    let of_new = Front::of(&cluster.plane, |_| Fault::None);
    cluster.schedule_through(&of_new, LEASE_S, Times::default());
    cluster.until("a second address", |cluster| {
        (cluster.log().matches("serves /healthz").count() == 2).then_some(())
    });
    // Its first lists.
    std::thread::sleep(Duration::from_secs(3));
    cluster.kill(old);
    let killed = Instant::now();
    cluster.create(JOBS, &job("after", 2, 2, &json!({})));
    cluster.until_runs("after", 2);
    let waited = bindings(&of_new).unwrap().0 - killed;
    println!("the successor decides {waited:.1?} after SIGKILL");
    assert!(waited < Duration::from_secs(LEASE_S) + Duration::from_millis(1_500), "{waited:?}");
}

/// Only that makes it safe that a successor waits no longer.
#[test]
fn a_leader_that_cannot_renew_its_lease_begins_its_last_call_an_answer_before_its_successor_begins() {
    let mut cluster = Cluster::of(12);
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut = Arc::clone(&is_cut);
    // Of all it asks for only its lease is lost.
    let of_old = Front::of(&cluster.plane, move |asked| {
        match asked.is_of_lease() && asked.method == "PUT" && cut.load(Ordering::Acquire) {
            true => Fault::Drop,
            false => Fault::None,
        }
    });
    let old = cluster.schedule_through(&of_old, LEASE_S, Times::default());
    cluster.create(JOBS, &job("before", 2, 2, &json!({})));
    cluster.until_runs("before", 2);
    let of_new = Front::of(&cluster.plane, |_| Fault::None);
    cluster.schedule_through(&of_new, LEASE_S, Times::default());
    std::thread::sleep(Duration::from_secs(3));
    is_cut.store(true, Ordering::Release);
    let begun = Instant::now();
    let mut pods = 0;
    while bindings(&of_new).is_none() && begun.elapsed() < Duration::from_secs(40) {
        cluster.create(PODS, &pod(&format!("p-{pods}"), 1));
        pods += 1;
        std::thread::sleep(Duration::from_millis(250));
    }
    let (last, first) = (bindings(&of_old).unwrap().1, bindings(&of_new).unwrap().0);
    println!("the last call {:.1?} after the cut, the next {:.1?}", last - begun, first - begun);
    assert!(last > begun, "it led on for a while");
    assert!(first > last && first - last >= ANSWER, "{:?}", first.saturating_duration_since(last));
    assert!(first - begun < Duration::from_secs(LEASE_S) + Duration::from_millis(1_500));
    cluster.until("its end", |cluster| cluster.has_ended(old).then_some(()));
    assert!(cluster.log().contains("could not be renewed in time"), "{}", cluster.log());
    for at in 0..pods {
        cluster.until_runs(&format!("p-{at}"), 1);
    }
}
