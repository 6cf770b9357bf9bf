//! The way of spans to the collector: a queue of bounded length, and a thread of its own that sends. Whoever ends a span
//! never waits; where the queue is full the span is dropped. What became of spans is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use super::target::Target;
use crate::world::metrics::TraceCounts;

/// What a collector may answer.
const ANSWER_MAX: u64 = 64 * 1024;

/// The queue before a collector, with its thread.
pub(super) fn processor(target: &Target, counts: TraceCounts) -> Result<Bounded, String> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(Http { agent: agent(target)? })
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(&target.endpoint)
        .with_timeout(target.timeout)
        .build()
        .map_err(|error| error.to_string())?;
    Ok(bounded(exporter, target.queue, counts))
}

fn bounded<E: SpanExporter + 'static>(exporter: E, queue: usize, counts: TraceCounts) -> Bounded {
    let waiting = Arc::new(AtomicUsize::new(0));
    let exporter = Counted {
        exporter,
        waiting: Arc::clone(&waiting),
        counts: counts.clone(),
        is_down: AtomicBool::new(false),
    };
    // It drops nothing by itself: what is on its way counts as waiting.
    let config = BatchConfigBuilder::default().with_max_queue_size(queue).build();
    let batches = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
    Bounded { batches, waiting, queue, counts }
}

/// Takes as many spans as may wait.
#[derive(Debug)]
pub(super) struct Bounded {
    batches: BatchSpanProcessor,
    /// Spans that wait or are being sent.
    waiting: Arc<AtomicUsize>,
    queue: usize,
    counts: TraceCounts,
}

impl SpanProcessor for Bounded {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        let more = |waiting: usize| (waiting < self.queue).then_some(waiting + 1);
        match self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => self.batches.on_end(span),
            Err(_) => self.counts.dropped(1),
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Counts what became of spans, and says once when nothing gets through any more.
#[derive(Debug)]
struct Counted<E> {
    exporter: E,
    waiting: Arc<AtomicUsize>,
    counts: TraceCounts,
    is_down: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Counted<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        self.waiting.fetch_sub(spans, Ordering::AcqRel);
        let was_down = self.is_down.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Ok(()) => self.counts.sent(spans),
            Err(error) => {
                self.counts.failed(spans);
                if !was_down {
                    tracing::warn!(error = error.to_string(), "traces are not taken, and go on being tried");
                }
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.exporter.shutdown()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// It blocks, on the thread of the queue.
#[derive(Debug)]
struct Http {
    agent: ureq::Agent,
}

#[tonic::async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let response = self.agent.run(Request::from_parts(parts, &body[..]))?;
        let (parts, mut body) = response.into_parts();
        let body = body.with_config().limit(ANSWER_MAX).read_to_vec()?;
        Ok(Response::from_parts(parts, body.into()))
    }
}

fn agent(target: &Target) -> Result<ureq::Agent, String> {
    let config =
        ureq::Agent::config_builder().timeout_global(Some(target.timeout)).http_status_as_error(false);
    let Some(path) = &target.certificates else { return Ok(config.build().into()) };
    let bad = |why: String| format!("the collector's certificates, {}: {why}", path.display());
    let pem = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    let mut roots: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| bad(error.to_string()))? {
            roots.push(certificate);
        }
    }
    if roots.is_empty() {
        return Err(bad("there is none in PEM".to_owned()));
    }
    let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots)).build();
    Ok(config.tls_config(tls).build().into())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Mutex, PoisonError};

    use opentelemetry::trace::{Span as _, Tracer, TracerProvider};
    use opentelemetry_sdk::error::OTelSdkError;
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    /// A collector that says when a batch has come, and answers when it is let.
    #[derive(Debug)]
    struct Slow {
        came: Sender<usize>,
        let_go: Mutex<Receiver<bool>>,
    }

    impl SpanExporter for Slow {
        async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
            let _ = self.came.send(batch.len());
            match self.let_go.lock().unwrap_or_else(PoisonError::into_inner).recv() {
                Ok(true) => Ok(()),
                _ => Err(OTelSdkError::InternalFailure("no".to_owned())),
            }
        }
    }

    #[test]
    fn a_collector_that_does_not_answer_keeps_nobody_waiting_and_what_is_too_much_is_dropped_and_counted() {
        let (came, comes) = channel();
        let (lets, let_go) = channel();
        let counts = TraceCounts::default();
        let slow = Slow { came, let_go: Mutex::new(let_go) };
        let provider =
            SdkTracerProvider::builder().with_span_processor(bounded(slow, 4, counts.clone())).build();
        let tracer = provider.tracer("test");
        let end = |spans: usize| (0..spans).for_each(|_| tracer.start("one").end());
        // A full batch is sent at once: one of as many as fit.
        end(4);
        assert_eq!(comes.recv(), Ok(4), "the first batch is under way");
        end(100);
        assert_eq!(counts.each(), (0, 0, 100), "what is under way takes room: nothing else fits");
        lets.send(false).unwrap();
        drop(provider.force_flush());
        assert_eq!(counts.each(), (0, 4, 100), "what the collector refuses is lost");
        end(2);
        (0..2).for_each(|_| lets.send(true).unwrap());
        provider.force_flush().unwrap();
        assert_eq!(counts.each(), (2, 4, 100), "there is room again, and it is up again");
        assert_eq!(comes.try_iter().sum::<usize>(), 2);
    }
}
