//! OTLP traces, where a collector is named: a span for each gang from when it is handed in until its pods are bound, and
//! one for each turn of the engine that was slow. Nobody waits for the collector; what it does not take in time is dropped
//! and counted.
//!
//! | module | what lives there |
//! |---|---|
//! | `target` | flag and environment variables: where spans go |
//! | `sender` | the bounded way there |
//! | `gangs` | the spans of gangs |

mod gangs;
mod sender;
mod target;

use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Span, Tracer, TracerProvider};
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use super::metrics::TraceCounts;

pub(super) use gangs::GangSpans;
use target::Target;

/// A turn of the engine that took longer has a span.
const SLOW: Duration = Duration::from_millis(100);

/// Traces of one process; what was not sent yet is sent when it is dropped, as far as that takes no longer than `farewell`.
pub(super) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    counts: TraceCounts,
    farewell: Duration,
}

impl Traces {
    /// Nothing where neither `endpoint`, the collector's base URL, nor the environment names a collector.
    ///
    /// # Errors
    /// When flag or environment say something that cannot be followed: which, and what to write.
    pub(super) fn begin(endpoint: Option<&str>, counts: TraceCounts) -> Result<Option<Self>, String> {
        let variable = |name: &str| std::env::var(name).ok();
        let Some(target) = Target::chosen(endpoint, variable)? else { return Ok(None) };
        let processor = sender::processor(&target, counts.clone())?;
        let provider =
            SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource()).build();
        let tracer = provider.tracer("phalanx");
        tracing::info!(endpoint = target.endpoint, "sends traces");
        Ok(Some(Self { provider, tracer, counts, farewell: target.farewell }))
    }

    pub(super) fn gangs(&self) -> GangSpans {
        GangSpans::new(self.tracer.clone(), self.counts.clone())
    }

    pub(super) fn turns(&self) -> TurnSpans {
        TurnSpans { tracer: self.tracer.clone() }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // What is lost by it is counted, and nobody reads that any more.
        let _ = self.provider.shutdown_with_timeout(self.farewell);
    }
}

/// What says so in the environment goes first.
fn resource() -> Resource {
    const NAME: Key = Key::from_static_str("service.name");
    let found = Resource::builder().build();
    let is_named = found.get(&NAME).is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let named =
        Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if is_named { named.build() } else { named.with_service_name("phalanx-scheduler").build() }
}

/// Spans of turns.
pub(super) struct TurnSpans {
    tracer: SdkTracer,
}

impl TurnSpans {
    /// The engine has just taken a step over so many facts, and gave so many orders.
    pub(super) fn stepped(&self, took: Duration, facts: usize, orders: usize) {
        if took < SLOW {
            return;
        }
        let now = SystemTime::now();
        let span = self
            .tracer
            .span_builder("engine turn")
            .with_start_time(now - took)
            .with_attributes([count("phalanx.facts", facts), count("phalanx.orders", orders)]);
        self.tracer.build_with_context(span, &Context::new()).end_with_timestamp(now);
    }
}

fn count(name: &'static str, of: usize) -> KeyValue {
    KeyValue::new(name, i64::try_from(of).unwrap_or(i64::MAX))
}
