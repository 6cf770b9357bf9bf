//! What is counted, and served at `/metrics`. Labels are few and bounded: never the name of a pod, a gang or a user.
//! `docs/kubernetes/monitoring.md` says what each means.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use phalanx_model::QueueName;
use phalanx_shell::GradeGauge;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::connect::{Answered, Observer};

/// Queues with a label of their own; the gangs of all others count together.
const QUEUES_MAX: usize = 200;
/// The queues beyond [`QUEUES_MAX`].
const OTHER_QUEUES: &str = "_other";

/// Metrics of the scheduler.
#[derive(Clone, Default)]
pub(super) struct Metrics {
    pub(super) is_leader: Gauge,
    pub(super) nodes: Gauge,
    /// Nodes whose pods hold more than they have.
    pub(super) nodes_overcommitted: Gauge,
    pub(super) gangs: Gauge,
    pub(super) graded: GradeGauge,
    /// 1 while the circuit breaker holds grades.
    pub(super) are_grades_held: Gauge,
    pending: Family<OfQueue, Gauge>,
    /// The labels that `pending` has now.
    pending_now: Arc<Mutex<BTreeSet<OfQueue>>>,
    /// Bindings by how they ended.
    pub(super) bindings: Family<Ended, Counter>,
    pub(super) binding_time: Seconds<1>,
    pub(super) starts: Counter,
    /// From a complete gang to its last binding.
    pub(super) start_time: Seconds<10>,
    pub(super) evictions: Counter,
    pub(super) refusals: Counter,
    pub(super) troubles: Counter,
    pub(super) step_time: Seconds<0>,
    /// Messages that had come in when the event loop last took some.
    pub(super) backlog: Gauge,
    pub(super) loop_lag: Seconds<0>,
    pub(super) requests: RequestTimes,
    /// 1 for each that cannot be watched now.
    kinds_unwatched: Family<OfKind, Gauge>,
    pub(super) traces: TraceCounts,
}

/// A histogram of times; its first bucket ends after so many milliseconds, or after a tenth of one.
#[derive(Clone, Debug)]
pub(super) struct Seconds<const FIRST_MS: u32>(Histogram);

impl<const FIRST_MS: u32> Default for Seconds<FIRST_MS> {
    fn default() -> Self {
        let first = if FIRST_MS == 0 { 0.000_1 } else { f64::from(FIRST_MS) / 1_000.0 };
        // Each is twice as long as the one before: up to 13 s, 32 s and 22 min.
        let count = if FIRST_MS == 1 { 16 } else { 18 };
        Self(Histogram::new(exponential_buckets(first, 2.0, count)))
    }
}

impl<const FIRST_MS: u32> Seconds<FIRST_MS> {
    pub(super) fn observe(&self, took: Duration) {
        self.0.observe(took.as_secs_f64());
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Ended {
    pub(super) result: &'static str,
}

/// As many as there are kinds that are watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfKind {
    kind: &'static str,
}

/// As many as there are queues and reasons.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct OfQueue {
    queue: String,
    reason: &'static str,
}

/// As many as there are sorts of calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCall {
    call: &'static str,
    result: &'static str,
}

/// Times of requests to the API server, by what was asked for and how it ended.
#[derive(Clone, Debug)]
pub(super) struct RequestTimes(Family<OfCall, Histogram, fn() -> Histogram>);

impl Default for RequestTimes {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Seconds::<1>::default().0))
    }
}

impl RequestTimes {
    fn observe(&self, call: &'static str, result: &'static str, took: Duration) {
        self.0.get_or_create(&OfCall { call, result }).observe(took.as_secs_f64());
    }

    /// Counts the requests of a client.
    pub(super) fn observer(&self) -> Observer {
        let times = self.clone();
        Arc::new(move |request: &Answered<'_>| {
            let call = call_of(request.method, request.path, request.query);
            let result = match request.code {
                Some(code) if code < 400 => "ok",
                Some(code) if code < 500 && code != 429 => "refused",
                Some(_) => "overloaded",
                None => "no answer",
            };
            times.observe(call, result, request.took);
        })
    }
}

/// The sort of a request: few, whatever its path names.
fn call_of(method: &str, path: &str, query: &str) -> &'static str {
    let mut parts = path.rsplit('/');
    let (last, before) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
    let is_of = |kind: &str| path.contains(&format!("/{kind}/")) || last == kind;
    match method {
        "GET" if query.split('&').any(|part| part == "watch=true" || part == "watch=1") => "watch",
        "GET" if query.contains("limit=") || query.contains("resourceVersion=") => "list",
        "GET" => "get",
        _ if is_of("leases") => "lease",
        "POST" if last == "binding" => "bind",
        "POST" if last == "eviction" => "evict",
        "POST" if last == "events" => "event",
        "PATCH" | "PUT" if last == "status" && before == "pods" => "pod status",
        "PATCH" | "PUT" if last == "status" => "status",
        "PATCH" | "PUT" => "update",
        "POST" => "create",
        "DELETE" => "delete",
        _ => "other",
    }
}

/// Spans by what became of them.
#[derive(Clone, Debug, Default)]
pub(super) struct TraceCounts {
    spans: Family<Ended, Counter>,
}

impl TraceCounts {
    /// The collector took them.
    pub(super) fn sent(&self, spans: usize) {
        self.count("sent", spans);
    }

    /// It did not, in time.
    pub(super) fn failed(&self, spans: usize) {
        self.count("failed", spans);
    }

    /// There was no room for them.
    pub(super) fn dropped(&self, spans: usize) {
        self.count("dropped", spans);
    }

    fn count(&self, result: &'static str, spans: usize) {
        self.spans.get_or_create(&Ended { result }).inc_by(spans as u64);
    }

    /// Sent, failed and dropped.
    #[cfg(test)]
    pub(super) fn each(&self) -> (u64, u64, u64) {
        let of = |result| self.spans.get_or_create(&Ended { result }).get();
        (of("sent"), of("failed"), of("dropped"))
    }
}

impl Metrics {
    pub(super) fn registered() -> (Self, Registry) {
        let metrics = Self::default();
        let mut registry = Registry::with_prefix("phalanx_scheduler");
        metrics.register_gauges(&mut registry);
        metrics.register_counters(&mut registry);
        metrics.register_times(&mut registry);
        (metrics, registry)
    }

    fn register_gauges(&self, registry: &mut Registry) {
        registry.register("leader", "1 while this process decides", self.is_leader.clone());
        registry.register("nodes", "Nodes that are known", self.nodes.clone());
        registry.register(
            "nodes_overcommitted",
            "Nodes whose pods hold more than there is, because others bind there as well",
            self.nodes_overcommitted.clone(),
        );
        registry.register("gangs", "Gangs with pods that have not ended", self.gangs.clone());
        self.graded.register(registry, "graded", "Devices and nodes that are not ok, by grade");
        registry.register(
            "grades_held",
            "1 while the circuit breaker keeps hardware open that agents closed",
            self.are_grades_held.clone(),
        );
        registry.register(
            "pending_gangs",
            "Gangs that wait to start, by queue and by the reason on their pods",
            self.pending.clone(),
        );
        registry.register(
            "event_loop_backlog",
            "Messages that had come in when the event loop last took some, 4097 at most",
            self.backlog.clone(),
        );
        registry.register(
            "kinds_unwatched",
            "1 for each kind that cannot be listed or watched: what depends on it waits",
            self.kinds_unwatched.clone(),
        );
    }

    fn register_counters(&self, registry: &mut Registry) {
        registry.register("bindings", "Bindings of pods, by how they ended", self.bindings.clone());
        registry.register("gang_starts", "Decisions to start a gang", self.starts.clone());
        registry.register("gang_evictions", "Decisions to evict a gang for another", self.evictions.clone());
        registry.register(
            "gang_refusals",
            "Gangs that no set of the nodes of then could hold",
            self.refusals.clone(),
        );
        registry.register(
            "troubles",
            "Calls and watches that went wrong and were said in the log",
            self.troubles.clone(),
        );
        let help = "Spans of traces, by what became of them";
        registry.register("trace_spans", help, self.traces.spans.clone());
    }

    fn register_times(&self, registry: &mut Registry) {
        let mut of = |name: &str, help: &str, times: &Histogram| {
            registry.register_with_unit(name, help, Unit::Seconds, times.clone());
        };
        of("binding_duration", "From the first try of a binding to its answer", &self.binding_time.0);
        let help = "From a complete gang, or one that waits again, to the binding of its last pod";
        of("gang_start_duration", help, &self.start_time.0);
        of("engine_step_duration", "Time that the engine took over one step", &self.step_time.0);
        let help = "From a question to the event loop to its answer, once in 5 seconds";
        of("event_loop_lag", help, &self.loop_lag.0);
        let help = "From a request to the API server to its first answer, by call and by how it ended";
        registry.register_with_unit("api_request_duration", help, Unit::Seconds, self.requests.0.clone());
    }

    /// Sets the numbers of all pending gangs, by queue and reason.
    pub(super) fn set_pending(&self, counts: &BTreeMap<(Option<QueueName>, &'static str), i64>) {
        let queues: BTreeSet<&QueueName> = counts.keys().filter_map(|(queue, _)| queue.as_ref()).collect();
        let named: BTreeSet<&QueueName> = queues.into_iter().take(QUEUES_MAX).collect();
        let mut now: BTreeMap<OfQueue, i64> = BTreeMap::new();
        for ((queue, reason), count) in counts {
            let queue = match queue {
                // The queue is known once all pods of the gang exist.
                None => String::new(),
                Some(queue) if named.contains(queue) => queue.to_string(),
                Some(_) => OTHER_QUEUES.to_owned(),
            };
            *now.entry(OfQueue { queue, reason }).or_default() += count;
        }
        let mut before = self.pending_now.lock().unwrap_or_else(PoisonError::into_inner);
        for (labels, count) in &now {
            self.pending.get_or_create(labels).set(*count);
        }
        let now: BTreeSet<OfQueue> = now.into_keys().collect();
        for gone in before.difference(&now) {
            self.pending.remove(gone);
        }
        *before = now;
    }

    pub(super) fn unwatched(&self, kind: &'static str) {
        self.kinds_unwatched.get_or_create(&OfKind { kind }).set(1);
    }

    /// Whether it was not.
    pub(super) fn watched(&self, kind: &'static str) -> bool {
        let of = OfKind { kind };
        self.kinds_unwatched.get(&of).is_some_and(|gauge| gauge.set(0) == 1)
    }

    pub(super) fn bound(&self, result: &'static str, took: Duration) {
        self.bindings.get_or_create(&Ended { result }).inc();
        self.binding_time.observe(took);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn a_request_is_of_one_of_few_sorts() {
        let pod = "/api/v1/namespaces/x/pods/p";
        for (method, path, query, call) in [
            ("POST", format!("{pod}/binding"), "", "bind"),
            ("POST", format!("{pod}/eviction"), "", "evict"),
            ("PATCH", format!("{pod}/status"), "", "pod status"),
            ("DELETE", pod.to_owned(), "", "delete"),
            ("PATCH", "/apis/batch/v1/namespaces/x/jobs/j".to_owned(), "", "update"),
            ("PATCH", "/apis/phalanx.dev/v1alpha1/queues/q/status".to_owned(), "", "status"),
            ("PUT", "/apis/coordination.k8s.io/v1/namespaces/x/leases/l".to_owned(), "", "lease"),
            ("POST", "/apis/events.k8s.io/v1/namespaces/x/events".to_owned(), "", "event"),
            ("GET", "/api/v1/pods".to_owned(), "watch=true&resourceVersion=1", "watch"),
            ("GET", "/api/v1/pods".to_owned(), "limit=500", "list"),
            ("GET", pod.to_owned(), "", "get"),
            ("BREW", pod.to_owned(), "", "other"),
        ] {
            assert_eq!(call_of(method, &path, query), call, "{method} {path}?{query}");
        }
    }

    #[test]
    fn queues_beyond_the_most_count_together_and_what_waits_no_longer_is_no_series() {
        let (metrics, registry) = Metrics::registered();
        let queue = |at: usize| Some(QueueName::new(format!("q{at:03}")).unwrap());
        let counts: BTreeMap<_, _> =
            (0..QUEUES_MAX + 5).map(|at| ((queue(at), "Unschedulable"), 2)).collect();
        metrics.set_pending(&counts);
        let all = text(&registry);
        let series = |all: &str| {
            all.lines().filter(|line| line.starts_with("phalanx_scheduler_pending_gangs{")).count()
        };
        assert_eq!(series(&all), QUEUES_MAX + 1);
        assert!(all.contains(r#"pending_gangs{queue="_other",reason="Unschedulable"} 10"#), "{all}");
        metrics.set_pending(&[((None, "WaitingForPods"), 1)].into());
        let all = text(&registry);
        assert_eq!(series(&all), 1, "{all}");
    }

    /// Names that stand in a text and are metrics of the scheduler.
    fn named(text: &str) -> BTreeSet<String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("phalanx_scheduler_"));
        words.map(str::to_owned).collect()
    }

    /// Dashboard and alerts query only metrics that are served, and every metric is documented.
    #[test]
    fn dashboard_alerts_and_documentation_name_metrics_that_are_served() {
        let (metrics, registry) = Metrics::registered();
        // A family without a series is not served.
        metrics.set_pending(&[((None, "Unschedulable"), 1)].into());
        metrics.unwatched("pods");
        metrics.bound("bound", Duration::from_millis(1));
        metrics.traces.sent(1);
        metrics.requests.observe("bind", "ok", Duration::from_millis(1));
        let served = named(&text(&registry));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
        let monitoring = "deploy/monitoring";
        for file in [format!("{monitoring}/phalanx-dashboard.json"), format!("{monitoring}/alerts.yaml")] {
            let names = named(&read(&file));
            assert!(names.len() > 5, "{file}: {names:?}");
            let missing: Vec<_> = names.difference(&served).collect();
            assert!(missing.is_empty(), "{file} asks for {missing:?}, and these are served: {served:?}");
        }
        let documented = named(&read("docs/kubernetes/monitoring.md"));
        let families: BTreeSet<String> = text(&registry)
            .lines()
            .filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned()))
            .collect();
        let is_known = |name: &String| {
            let of = ["", "_total", "_bucket", "_sum", "_count"];
            families.iter().any(|family| of.iter().any(|end| format!("{family}{end}") == *name))
        };
        let unknown: Vec<_> = documented.iter().filter(|name| !is_known(name)).collect();
        assert!(unknown.is_empty(), "documented, and not served: {unknown:?}");
        let says =
            |family: &String| documented.contains(family) || documented.contains(&format!("{family}_total"));
        let silent: Vec<_> = families.iter().filter(|family| !says(family)).collect();
        assert!(silent.is_empty(), "served, and not documented: {silent:?}");
    }
}
