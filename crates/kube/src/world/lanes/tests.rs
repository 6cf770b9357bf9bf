use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::mpsc::{Receiver, channel};

use kube::client::Body;
use phalanx_model::{GangId, JobId, MemberId, NodeName};
use serde_json::Value;

use super::*;
use crate::messages::{DeviceEvent, Event, PodRef, Reservation, Step, Unbound};
use crate::recognise::{ObjectRef, Suspend};

/// A request, as it came.
#[derive(Clone, Debug)]
struct Asked {
    what: String,
    body: Value,
}

/// What an API server answers, and after how long.
type Answer = (Duration, u16, Value);

/// All requests that came, and how many were at work at once at most.
#[derive(Default)]
struct Seen {
    asked: Mutex<Vec<Asked>>,
    at_work: Mutex<(usize, usize)>,
}

impl Seen {
    fn count(&self, words: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| asked.what.contains(words)).count()
    }

    fn bodies(&self, words: &str) -> Vec<Value> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| asked.what.contains(words)).map(|asked| asked.body.clone()).collect()
    }

    fn most_at_once(&self) -> usize {
        self.at_work.lock().unwrap().1
    }
}

fn server(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> (Client, Arc<Seen>) {
    let (seen, answer) = (Arc::new(Seen::default()), Arc::new(answer));
    let shared = Arc::clone(&seen);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (seen, answer) = (Arc::clone(&shared), Arc::clone(&answer));
        async move {
            let what = format!("{} {}", request.method(), request.uri().path());
            let bytes = request.into_body().collect_bytes().await.unwrap();
            let asked = Asked { what, body: serde_json::from_slice(&bytes).unwrap_or_default() };
            seen.asked.lock().unwrap().push(asked.clone());
            {
                let mut at_work = seen.at_work.lock().unwrap();
                at_work.0 += 1;
                at_work.1 = at_work.1.max(at_work.0);
            }
            let (wait, code, body) = answer(&asked);
            tokio::time::sleep(wait).await;
            seen.at_work.lock().unwrap().0 -= 1;
            let mut answer = http::Response::new(Body::from(body.to_string().into_bytes()));
            *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok::<_, Infallible>(answer)
        }
    });
    (Client::new(service, "default"), seen)
}

const AT_ONCE: Duration = Duration::ZERO;
/// Longer than any test looks on.
const NEVER: Duration = Duration::from_secs(3_600);

fn lanes(client: Client) -> (Lanes, Receiver<Message>) {
    let (desk, messages) = channel();
    let deadlines = Deadlines { binding: Duration::from_secs(30), ready: Duration::from_secs(900) };
    (Lanes::new(client, Term::endless(), desk, deadlines, Metrics::default(), None), messages)
}

fn pod(name: &str) -> PodRef {
    PodRef { namespace: "x".into(), name: name.into(), uid: format!("uid-{name}").into() }
}

fn member(rank: u32) -> MemberId {
    MemberId { gang: GangId { job: JobId(1), index: 0 }, attempt: 1, rank }
}

fn bind_of(pod: PodRef, rank: u32, before: Vec<Step>) -> Call {
    let node = NodeName::new("n").unwrap();
    Call::Bind { pod, node, member: member(rank), before, annotations: BTreeMap::new() }
}

fn stop_of(pods: Vec<PodRef>, evict: bool) -> Call {
    Call::Stop { pods, suspend: None, grace_s: None, evict, note: String::new() }
}

/// What became of a binding, if it is known within this time.
async fn bound(messages: &Receiver<Message>, rank: u32, within: Duration) -> Option<Result<(), Unbound>> {
    until(within, || {
        messages.try_iter().find_map(|message| match message {
            Message::Event(Event::Bound { member, result }) if member.rank == rank => Some(result),
            _ => None,
        })
    })
    .await
}

async fn until<T>(within: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

const SOON: Duration = Duration::from_secs(2);

/// Eight of them were tried for four seconds each, and all bindings stood behind the ninth.
#[test]
fn evictions_that_budgets_refuse_keep_no_pod_from_being_bound_and_no_other_from_being_deleted() {
    run(async {
        let (client, seen) = server(|asked| match asked.what.contains("/eviction") {
            true => (AT_ONCE, 429, json!({ "message": "the budget says no" })),
            false => (AT_ONCE, 200, json!({})),
        });
        let (lanes, messages) = lanes(client);
        for at in 0..20 {
            lanes.hand_on(stop_of(vec![pod(&format!("evicted-{at}"))], true));
        }
        let began = Instant::now();
        lanes.hand_on(stop_of(vec![pod("deleted")], false));
        lanes.hand_on(bind_of(pod("a"), 0, Vec::new()));
        assert_eq!(bound(&messages, 0, SOON).await, Some(Ok(())));
        assert!(until(SOON, || (seen.count("DELETE") == 1).then_some(())).await.is_some());
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        assert!(seen.count("/eviction") >= 20, "all of them are tried");
    });
}

/// One after another a gang of 1,000 took as long as 1,000 answers.
#[test]
fn a_large_gang_is_deleted_several_pods_at_once_and_the_same_order_again_adds_nothing() {
    run(async {
        let (client, seen) = server(|_| (Duration::from_millis(50), 200, json!({})));
        let (lanes, _messages) = lanes(client);
        let pods: Vec<PodRef> = (0..80).map(|at| pod(&format!("p-{at}"))).collect();
        let began = Instant::now();
        lanes.hand_on(stop_of(pods.clone(), false));
        lanes.hand_on(stop_of(pods, false));
        lanes.hand_on(stop_of(vec![pod("small")], false));
        let small = until(SOON, || (seen.count("/small") == 1).then(|| began.elapsed())).await.unwrap();
        assert!(small < Duration::from_millis(300), "it is not behind all of the large one: {small:?}");
        assert!(until(SOON, || (seen.count("DELETE") == 81).then_some(())).await.is_some());
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((seen.count("DELETE"), seen.most_at_once()), (81, STOPS));
    });
}

/// Deleted first, such a pod was bound all the same, where its owner takes it away only later.
#[test]
fn a_binding_that_has_not_begun_never_begins_once_its_pod_is_to_go() {
    run(async {
        let (client, seen) = server(|asked| match asked.what.contains("/hangs-") {
            true => (Duration::from_millis(300), 200, json!({})),
            false => (AT_ONCE, 200, json!({})),
        });
        let (lanes, messages) = lanes(client);
        for at in 0..16 {
            lanes.hand_on(bind_of(pod(&format!("hangs-{at}")), 100 + at, Vec::new()));
        }
        lanes.hand_on(bind_of(pod("goes"), 0, Vec::new()));
        lanes.hand_on(bind_of(pod("stays"), 1, Vec::new()));
        lanes.hand_on(stop_of(vec![pod("goes")], false));
        let result = bound(&messages, 0, SOON).await.unwrap().unwrap_err();
        assert!(result.detail.contains("its gang is stopped") && !result.may_come, "{result:?}");
        assert!(until(SOON, || (seen.count("/stays/binding") == 1).then_some(())).await.is_some());
        assert_eq!((seen.count("/goes/binding"), seen.count("DELETE")), (0, 1));
    });
}

fn claim(name: &str, is_ready: bool) -> Value {
    let status = if is_ready { "True" } else { "False" };
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "x", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "finalizers": ["resource.kubernetes.io/delete-protection"] },
        "spec": {},
        "status": {
            "allocation": { "devices": { "results": [{ "request": "r", "driver": "d", "pool": "p",
                "device": "gpu-0", "bindingConditions": ["Attached"] }] } },
            "devices": [{ "driver": "d", "pool": "p", "device": "gpu-0",
                "conditions": [{ "type": "Attached", "status": status, "reason": "r", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z" }] }],
            "reservedFor": [{ "resource": "pods", "name": name, "uid": format!("uid-{name}") }],
        },
    })
}

fn claimed(name: &str) -> Step {
    let claim: k8s_openapi::api::resource::v1::ResourceClaim =
        serde_json::from_value(claim(name, false)).unwrap();
    let allocation = claim.status.as_ref().unwrap().allocation.clone().unwrap();
    let user = claim.status.as_ref().unwrap().reserved_for.as_ref().unwrap()[0].clone();
    Step::Claim(Box::new(Reservation { claim: Arc::new(claim), allocation, pod: pod(name), user }))
}

/// Sixteen of them kept every other pod from being bound for half a minute.
#[test]
fn pods_that_wait_for_devices_keep_no_other_from_being_bound_and_are_bound_when_they_are_ready() {
    run(async {
        let is_ready = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let now_ready = Arc::clone(&is_ready);
        let (client, seen) = server(move |asked| match asked.what.contains("/resourceclaims/") {
            true => {
                let name = asked.what.rsplit('/').next().unwrap();
                (AT_ONCE, 200, claim(name, now_ready.load(std::sync::atomic::Ordering::Acquire)))
            }
            false => (AT_ONCE, 200, json!({})),
        });
        let (lanes, messages) = lanes(client);
        for at in 0..40 {
            let name = format!("waits-{at}");
            lanes.hand_on(bind_of(pod(&name), 100 + at, vec![claimed(&name)]));
        }
        lanes.hand_on(bind_of(pod("a"), 0, Vec::new()));
        assert_eq!(bound(&messages, 0, SOON).await, Some(Ok(())));
        assert_eq!(seen.count("/binding"), 1, "the others wait");
        // One that is to go waits no longer, and its claim is given back only then.
        lanes.hand_on(stop_of(vec![pod("waits-3")], false));
        let result = bound(&messages, 103, SOON).await.unwrap().unwrap_err();
        assert!(result.detail.contains("its gang is stopped"), "{result:?}");
        is_ready.store(true, std::sync::atomic::Ordering::Release);
        let all = until(3 * SOON, || (seen.count("/binding") == 40).then_some(())).await;
        assert!(all.is_some(), "{} are bound", seen.count("/binding"));
        assert_eq!(seen.count("/waits-3/binding"), 0);
    });
}

#[test]
fn a_gang_waits_for_its_devices_until_it_has_to_run_and_no_longer() {
    run(async {
        let (client, _) = server(|asked| match asked.what.contains("/resourceclaims/") {
            true => (AT_ONCE, 200, claim("c", false)),
            false => (AT_ONCE, 200, json!({})),
        });
        let (lanes, messages) = lanes(client);
        let by = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(1_500);
        let node = NodeName::new("n").unwrap();
        let annotations = BTreeMap::from([(crate::gang::pods::READY_BY.to_owned(), by.to_string())]);
        let (pod, before) = (pod("c"), vec![claimed("c")]);
        lanes.hand_on(Call::Bind { pod, node, member: member(0), before, annotations });
        let result = bound(&messages, 0, 2 * SOON).await.unwrap().unwrap_err();
        assert!(result.detail.contains("not ready in time"), "{result:?}");
    });
}

/// It was allocated for a pod that was gone.
#[test]
fn what_a_pod_has_of_a_claim_is_given_back_after_its_binding_has_its_answer() {
    run(async {
        let (client, seen) = server(|asked| match asked.what.contains("/resourceclaims/") {
            true => (AT_ONCE, 404, json!({ "message": "no claim" })),
            false => (Duration::from_millis(300), 200, json!({})),
        });
        let (lanes, messages) = lanes(client);
        lanes.hand_on(bind_of(pod("a"), 0, Vec::new()));
        assert!(until(SOON, || (seen.count("/binding") == 1).then_some(())).await.is_some());
        lanes.hand_on(Call::Release { claim: pod("c"), pod: pod("a"), is_deleted: false });
        let mut order = Vec::new();
        let _ = until(SOON, || {
            order.extend(messages.try_iter().filter_map(|message| match message {
                Message::Event(Event::Bound { .. }) => Some("bound"),
                Message::Event(Event::Device(DeviceEvent::Released { .. })) => Some("released"),
                _ => None,
            }));
            (order.len() == 2).then_some(())
        })
        .await;
        assert_eq!(order, ["bound", "released"]);
    });
}

/// A suspension whose answer was lost was tried again after its owner had been let go on, and suspended it again.
#[test]
fn what_lets_an_owner_go_on_comes_after_what_suspends_it() {
    run(async {
        let tries = Mutex::new(0_usize);
        let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j", "namespace": "x",
            "resourceVersion": "1", "annotations": { crate::gang::SUSPENDED: "why" } }, "spec": {} });
        let (client, seen) = server(move |asked| {
            let mut tries = tries.lock().unwrap();
            *tries += usize::from(asked.what.starts_with("PATCH"));
            if asked.what.starts_with("PATCH") && *tries == 1 {
                (AT_ONCE, 500, json!({}))
            } else {
                (AT_ONCE, 200, owner.clone())
            }
        });
        let (lanes, _messages) = lanes(client);
        let object = ObjectRef {
            api_version: "batch/v1".to_owned(),
            kind: "Job".to_owned(),
            namespace: "x".to_owned(),
            name: "j".to_owned(),
            uid: None,
            any_version: false,
        };
        let suspend = Suspend { object, plural: "jobs", path: &["spec", "suspend"] };
        lanes.hand_on(Call::Stop {
            pods: vec![pod("a")],
            suspend: Some(suspend.clone()),
            grace_s: None,
            evict: true,
            note: "why".to_owned(),
        });
        lanes.hand_on(Call::Resume { suspend });
        assert!(until(SOON, || (seen.count("PATCH") == 3).then_some(())).await.is_some());
        let set: Vec<Value> =
            seen.bodies("PATCH").into_iter().map(|body| body["spec"]["suspend"].clone()).collect();
        assert_eq!(set, [json!(true), json!(true), json!(false)]);
    });
}

/// One object, with a version, that takes patches at the time when they are done and not when they come.
struct Kept {
    version: u64,
    status: Value,
}

/// What an API server makes of a patch of the status.
fn patched(kept: &Mutex<Kept>, body: &Value) -> (u16, Value) {
    let mut kept = kept.lock().unwrap();
    let operations = body.as_array().unwrap();
    let value = |path: &str| operations.iter().find(|one| one["path"] == path).map(|one| &one["value"]);
    let meant = value("/metadata/resourceVersion").and_then(Value::as_str);
    if meant.is_some_and(|meant| meant != kept.version.to_string()) {
        return (409, json!({ "message": "the object has been modified" }));
    }
    if let Some(status) = value("/status") {
        kept.status = status.clone();
        kept.version += 1;
    }
    (200, json!({ "metadata": { "resourceVersion": kept.version.to_string() } }))
}

/// Of two writes the older was done last, and the queue looked as it had been before.
#[test]
fn of_one_object_the_newest_status_wins_and_one_is_written_at_a_time() {
    run(async {
        let kept = Arc::new(Mutex::new(Kept { version: 7, status: Value::Null }));
        let shared = Arc::clone(&kept);
        let at_work: Arc<Mutex<(usize, usize)>> = Arc::default();
        let work = Arc::clone(&at_work);
        // The first is left without an answer, and done long after it was given up.
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (kept, work) = (Arc::clone(&shared), Arc::clone(&work));
            async move {
                let bytes = request.into_body().collect_bytes().await.unwrap();
                let body: Value = serde_json::from_slice(&bytes).unwrap();
                let is_late = body[1]["value"]["at"] == 0;
                if is_late {
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(900)).await;
                        patched(&kept, &body);
                    });
                    return Err(std::io::Error::other("the connection was lost"));
                }
                {
                    let mut work = work.lock().unwrap();
                    work.0 += 1;
                    work.1 = work.1.max(work.0);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                work.lock().unwrap().0 -= 1;
                let (code, text) = patched(&kept, &body);
                let mut answer = http::Response::new(Body::from(text.to_string().into_bytes()));
                *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
                Ok(answer)
            }
        });
        let (lanes, messages) = lanes(Client::new(service, "default"));
        for at in 0..50 {
            lanes.report.status("queues", "q".to_owned(), json!({ "at": at }));
            if at == 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        let newest = || (kept.lock().unwrap().status["at"] == 49).then_some(());
        assert!(until(SOON, newest).await.is_some(), "{:?}", kept.lock().unwrap().status);
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert!(newest().is_some(), "the oldest came last: {:?}", kept.lock().unwrap().status);
        assert_eq!(at_work.lock().unwrap().1, 1);
        assert!(kept.lock().unwrap().version < 12, "what is not the newest is not written");
        let troubles = messages.try_iter().filter(|message| matches!(message, Message::Trouble(_)));
        assert_eq!(troubles.count(), 0);
    });
}

#[test]
fn nothing_of_any_lane_begins_after_the_end_and_what_waits_between_two_tries_does_not_delay_it() {
    run(async {
        let (client, seen) = server(|asked| match &*asked.what {
            what if what.contains("/eviction") => (AT_ONCE, 429, json!({})),
            what if what.contains("/slow/") => (Duration::from_millis(300), 200, json!({})),
            _ => (AT_ONCE, 200, json!({})),
        });
        let (lanes, messages) = lanes(client);
        let in_flight = lanes.in_flight();
        lanes.hand_on(stop_of(vec![pod("refused")], true));
        lanes.hand_on(bind_of(pod("slow"), 0, Vec::new()));
        assert!(until(SOON, || (seen.count("/slow/") == 1).then_some(())).await.is_some());
        let began = Instant::now();
        assert!(in_flight.have_ended(SOON).await, "the binding has its answer");
        assert!(began.elapsed() >= Duration::from_millis(200), "it was waited for");
        assert_eq!(bound(&messages, 0, SOON).await, Some(Ok(())));
        let so_far = seen.asked.lock().unwrap().len();
        lanes.hand_on(bind_of(pod("late"), 1, Vec::new()));
        lanes.hand_on(stop_of(vec![pod("later")], false));
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(seen.asked.lock().unwrap().len(), so_far);
    });
}

#[test]
fn a_request_that_hangs_is_not_settled() {
    run(async {
        let (client, seen) = server(|_| (NEVER, 200, json!({})));
        let (lanes, _messages) = lanes(client);
        let in_flight = lanes.in_flight();
        lanes.hand_on(stop_of(vec![pod("a")], false));
        assert!(until(SOON, || (seen.count("DELETE") == 1).then_some(())).await.is_some());
        assert!(!in_flight.have_ended(Duration::from_millis(100)).await);
    });
}
