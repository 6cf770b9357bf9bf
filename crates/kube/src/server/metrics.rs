//! What the server counts, and serves at `/metrics`.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReview {
    of: &'static str,
    result: &'static str,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Metrics {
    nodes: Gauge,
    jobs: Gauge,
    derive_time: Histogram,
    reviews: Family<OfReview, Counter>,
    pub(super) errors: Counter,
}

impl Metrics {
    pub(super) fn registered() -> (Self, Registry) {
        let metrics = Self {
            nodes: Gauge::default(),
            jobs: Gauge::default(),
            derive_time: Histogram::new(exponential_buckets(0.001, 4.0, 8)),
            reviews: Family::default(),
            errors: Counter::default(),
        };
        let mut registry = Registry::with_prefix("phalanx_server");
        let Self { nodes, jobs, derive_time, reviews, errors } = &metrics;
        registry.register("nodes", "Nodes that are shown", nodes.clone());
        registry.register("jobs", "Jobs that are shown", jobs.clone());
        let help = "Time to derive the state of the cluster after a change";
        registry.register_with_unit("derive_time", help, Unit::Seconds, derive_time.clone());
        let help = "Reviews of tokens and of access by the API server, by result";
        registry.register("reviews", help, reviews.clone());
        registry.register("errors", "Watches that failed or were refused", errors.clone());
        (metrics, registry)
    }

    pub(super) fn derived(&self, took: Duration, nodes: usize, jobs: usize) {
        self.derive_time.observe(took.as_secs_f64());
        self.nodes.set(i64::try_from(nodes).unwrap_or(i64::MAX));
        self.jobs.set(i64::try_from(jobs).unwrap_or(i64::MAX));
    }

    /// What a review said; nothing if it had no answer.
    pub(super) fn reviewed(&self, of: &'static str, is_good: Option<bool>) {
        let result = match is_good {
            Some(true) => "yes",
            Some(false) => "no",
            None => "no answer",
        };
        self.reviews.get_or_create(&OfReview { of, result }).inc();
    }
}
