//! What scheduler and agent say of themselves on the address that they listen on: whether they live, whether they are ready,
//! and how it goes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::manifests;
use crate::queues;
use crate::support::front::{Fault, Front};
use crate::support::record::Record;
use crate::support::{Cluster, JOBS, PODS, Times, job, pod};

pub(crate) const PATHS: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// Status, headers in small letters, and body.
fn get(at: SocketAddr, path: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, head.to_lowercase(), body.to_owned())
}

fn code(at: SocketAddr, path: &str) -> u16 {
    get(at, path).0
}

/// Figures by name, each by its labels as they are written.
#[derive(Debug)]
struct Metrics {
    samples: BTreeMap<String, BTreeMap<String, f64>>,
    /// `counter`, `gauge` or `histogram`, by the name of the family.
    types: BTreeMap<String, String>,
}

impl Metrics {
    /// Fails on whatever is not as the text format says: each figure after the type of its family, and nothing twice.
    fn at(at: SocketAddr) -> Self {
        let (code, head, text) = get(at, "/metrics");
        assert_eq!(code, 200);
        assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
        let (mut samples, mut types): (BTreeMap<_, BTreeMap<_, _>>, BTreeMap<_, _>) = Default::default();
        let mut lines = text.lines();
        assert_eq!(lines.next_back(), Some("# EOF"));
        for line in lines {
            if let Some(told) = line.strip_prefix("# ") {
                let words: Vec<&str> = told.splitn(3, ' ').collect();
                let [what, family, said] = words.as_slice() else { panic!("{line}") };
                assert!(matches!(*what, "HELP" | "TYPE" | "UNIT") && !said.is_empty(), "{line}");
                if *what == "TYPE" {
                    assert!(
                        types.insert((*family).to_owned(), (*said).to_owned()).is_none(),
                        "twice: {line}"
                    );
                }
                if *what == "UNIT" {
                    assert!(family.ends_with(&format!("_{said}")), "{line}");
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels.strip_suffix('}').unwrap().to_owned();
            let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.starts_with("phalanx_") && name.chars().all(is_word), "{line}");
            let family = types.keys().find(|family| is_of(name, family, &types[*family]));
            assert!(family.is_some(), "no type is told of {line}");
            let before = samples.entry(name.to_owned()).or_default().insert(labels, value.parse().unwrap());
            assert!(before.is_none(), "twice: {line}");
        }
        Self { samples, types }
    }

    /// Without labels.
    fn one(&self, name: &str) -> f64 {
        self.of(name, "")
    }

    fn of(&self, name: &str, labels: &str) -> f64 {
        let of_name = self.samples.get(name).unwrap_or_else(|| panic!("{name} is not there: {self:#?}"));
        of_name.get(labels).copied().unwrap_or(0.0)
    }

    /// Names and labels, without figures.
    fn series(&self) -> BTreeSet<(String, String)> {
        let each = self.samples.iter();
        each.flat_map(|(name, by)| by.keys().map(|labels| (name.clone(), labels.clone()))).collect()
    }
}

/// Whether a figure is of a family of this type: a histogram has three sorts.
fn is_of(name: &str, family: &str, kind: &str) -> bool {
    let endings: &[&str] = match kind {
        "counter" => &["_total"],
        "histogram" => &["_bucket", "_count", "_sum"],
        "gauge" => &[""],
        _ => panic!("{family} is a {kind}"),
    };
    name.strip_prefix(family).is_some_and(|ending| endings.contains(&ending))
}

/// Kinds that a scheduler cannot watch now.
pub(crate) fn unwatched(at: SocketAddr) -> BTreeSet<String> {
    let metrics = Metrics::at(at);
    let kinds = metrics.samples.get("phalanx_scheduler_kinds_unwatched").into_iter().flatten();
    let kind = |labels: &str| labels.trim_start_matches("kind=\"").trim_end_matches('"').to_owned();
    kinds.filter(|(_, value)| **value == 1.0).map(|(labels, _)| kind(labels)).collect()
}

#[test]
fn the_scheduler_is_ready_when_it_has_listed_all_and_not_before() {
    let mut cluster = Cluster::of(1);
    let may = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&may);
    // The list of pods is held back.
    let front = Front::of(&cluster.plane, move |asked| match asked.path == "/api/v1/pods" {
        true => Fault::Gate(Arc::clone(&gate)),
        false => Fault::None,
    });
    cluster.schedule_through(&front, 0, Times::default());
    let at = cluster.served_at();
    cluster.until("a list that is asked for", |_| {
        front.faults().keys().any(|fault| fault.starts_with("Gate GET")).then_some(())
    });
    let (code_before, _, why) = get(at, "/readyz");
    assert_eq!((code_before, code(at, "/healthz")), (503, 200), "{why}");
    assert!(why.contains("lists are not complete"), "{why}");
    assert_eq!(Metrics::at(at).one("phalanx_scheduler_leader"), 0.0);
    may.store(true, Ordering::Release);
    cluster.until("the scheduler to be ready", |_| (code(at, "/readyz") == 200).then_some(()));
    cluster.until("a leader", |_| (Metrics::at(at).one("phalanx_scheduler_leader") == 1.0).then_some(()));
    // Whatever a probe asks is served.
    for path in manifests::probed() {
        assert_eq!(code(at, &path), 200, "{path}");
    }
    assert_eq!(code(at, "/other"), 404);
}

#[test]
fn a_standby_is_ready_and_does_not_lead() {
    let mut cluster = Cluster::of(1);
    cluster.schedule(30);
    let leader = cluster.served_at();
    cluster.until("a leader", |_| (Metrics::at(leader).one("phalanx_scheduler_leader") == 1.0).then_some(()));
    cluster.schedule(30);
    let standby = cluster.until("another address", |cluster| {
        let at = cluster.served_at();
        (at != leader).then_some(at)
    });
    cluster.until("the standby to be ready", |_| (code(standby, "/readyz") == 200).then_some(()));
    assert_eq!(Metrics::at(standby).one("phalanx_scheduler_leader"), 0.0);
    assert_eq!(Metrics::at(leader).one("phalanx_scheduler_leader"), 1.0);
}

fn class(cluster: &Cluster, name: &str, value: u32) {
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
    });
    cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
}

fn of_class(mut pod: Value, class: &str) -> Value {
    pod["spec"]["priorityClassName"] = json!(class);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    pod
}

#[test]
fn metrics_count_what_happened_and_have_no_more_labels_after_many_gangs() {
    const GANGS: u32 = 50;
    const OF_ONE: u32 = 2;
    let mut cluster = Cluster::of(2);
    let record = Record::begin(cluster.api(), []);
    cluster.schedule(0);
    let at = cluster.served_at();
    let ends = json!({ "controlplane.phalanx.dev/succeed-after": "200ms" });
    cluster.create(JOBS, &job("first", OF_ONE, 1, &ends));
    let until_ended = |gangs: u32| {
        cluster.until(&format!("the end of {gangs} jobs"), |cluster| {
            let jobs = cluster.api().get(JOBS).unwrap();
            let ended = |job: &&Value| job["status"]["succeeded"] == job["spec"]["completions"];
            (jobs["items"].as_array().unwrap().iter().filter(ended).count() == gangs as usize).then_some(())
        });
    };
    until_ended(1);
    let begun = Metrics::at(at);
    for gang in 1..GANGS {
        cluster.create(JOBS, &job(&format!("g{gang}-{}", gang * 7919), OF_ONE, 1, &ends));
    }
    until_ended(GANGS);
    let bound = f64::from(GANGS * OF_ONE);
    let [starts, refusals, evictions] =
        ["starts", "refusals", "evictions"].map(|what| format!("phalanx_scheduler_gang_{what}_total"));
    // What one binding counts is not counted in one moment.
    let now = cluster.until("all bindings in the metrics", |_| {
        let now = Metrics::at(at);
        let bindings = now.of("phalanx_scheduler_bindings_total", "result=\"bound\"");
        let timed = now.one("phalanx_scheduler_binding_duration_seconds_count");
        let started = now.one(&starts);
        (bindings >= bound && timed >= bound && started >= f64::from(GANGS)).then_some(now)
    });
    cluster.until("all bindings", |_| (record.bindings() == (GANGS * OF_ONE) as usize).then_some(()));
    assert_eq!(now.of("phalanx_scheduler_bindings_total", "result=\"bound\""), bound);
    assert_eq!(now.one("phalanx_scheduler_binding_duration_seconds_count"), bound);
    assert_eq!([now.one(&starts), now.one(&refusals), now.one(&evictions)], [f64::from(GANGS), 0.0, 0.0]);
    assert_eq!(now.one("phalanx_scheduler_nodes"), 2.0);
    // Reasons and calls have labels as they first occur: a gang may be pending when gangs are counted, or not. No gang has.
    let by_chance = ["phalanx_scheduler_pending_gangs", "phalanx_scheduler_api_request_duration_seconds"];
    let is_new = |of: &&(String, String)| !begun.series().contains(*of);
    for (metric, labels) in now.series().iter().filter(is_new) {
        assert!(
            by_chance.iter().any(|name| metric.starts_with(name)),
            "{metric}{{{labels}}} came with a gang"
        );
        let names_a_gang = (1..GANGS).any(|gang| labels.contains(&format!("g{gang}-")));
        assert!(!names_a_gang, "{metric}{{{labels}}} names a gang");
    }
    let sorts: Vec<&str> = now.types.values().map(String::as_str).collect();
    assert!(["counter", "gauge", "histogram"].iter().all(|sort| sorts.contains(sort)), "{sorts:?}");
    // Every binding is in the last bucket.
    let buckets = &now.samples["phalanx_scheduler_binding_duration_seconds_bucket"];
    assert_eq!(buckets["le=\"+Inf\""], bound);

    // One that no set of the nodes could hold.
    cluster.create(PODS, &pod("huge", 16));
    cluster.until_explained("huge", "");
    let refused =
        cluster.until("a refusal", |_| Some(Metrics::at(at).one(&refusals)).filter(|count| *count > 0.0));
    assert_eq!(refused, 1.0);
    // One that makes way.
    class(&cluster, "low", 10);
    class(&cluster, "high", 1_000);
    for name in ["low-0", "low-1"] {
        cluster.create(PODS, &of_class(pod(name, 8), "low"));
        cluster.until_runs(name, 1);
    }
    cluster.create(PODS, &of_class(pod("high", 8), "high"));
    cluster.until_runs("high", 1);
    cluster.until("an eviction", |_| (Metrics::at(at).one(&evictions) == 1.0).then_some(()));
    assert_eq!(Metrics::at(at).one(&refusals), 1.0);
    assert_eq!(Metrics::at(at).one(&starts), f64::from(GANGS + 3));
}

#[test]
fn the_agent_of_a_node_is_ready_when_it_has_said_what_stands_there() {
    let mut cluster = Cluster::of(1);
    let machine = cluster.plane.folder().join("machine.json");
    crate::nodes::describe(&machine, 0..8);
    let kubeconfig = cluster.plane.kubeconfig();
    cluster.serve_node(&kubeconfig, "node-00000", &machine, None);
    let at = cluster.served_at();
    // Nothing can be said where our definitions are not served.
    cluster.until("a try", |_| (Metrics::at(at).one("phalanx_node_troubles_total") >= 1.0).then_some(()));
    assert_eq!((code(at, "/readyz"), code(at, "/healthz")), (503, 200));
    assert_eq!(Metrics::at(at).one("phalanx_node_topology_writes_total"), 0.0);
    queues::define(&cluster);
    cluster.until("the agent to be ready", |_| (code(at, "/readyz") == 200).then_some(()));
    let metrics = Metrics::at(at);
    assert_eq!(metrics.one("phalanx_node_topology_writes_total"), 1.0);
    assert_eq!(
        [metrics.one("phalanx_node_devices"), metrics.one("phalanx_node_devices_unhealthy")],
        [8.0, 0.0]
    );
    crate::nodes::describe(&machine, 0..7);
    cluster.until("a device that is lost", |_| {
        (Metrics::at(at).one("phalanx_node_devices_unhealthy") == 1.0).then_some(())
    });
    for path in manifests::probed() {
        assert_eq!(code(at, &path), 200, "{path}");
    }
}
