//! What the books ask the API for. A call is repeated while that can help and its time is not over; what it means is
//! never decided here.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use kube::client::Body;
use phalanx_model::{MemberId, NodeName};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc};

use super::bind::{bind, prepare};
use super::desk::Message;
use super::explain::{Explainer, Stand};
use super::groups::{self, GroupStand};
use super::lease::Term;
use super::provision::{Asked, provisioner};
use super::serve::Metrics;
use super::suspend;
use super::trouble::Trouble;
use super::{checkpoint, claims};
use crate::gang::lifecycle::orphaned_bindings::REQUEST_MS;
use crate::messages::{Call, Event, PodRef, Step, Unbound};
use crate::recognise::{ObjectRef, Suspend};

/// How many bindings are on their way at once.
const BINDINGS: usize = 16;
/// The same for everything else.
const OTHERS: usize = 8;

/// Longer nobody waits for an answer.
pub const ANSWER: Duration = Duration::from_secs(10);

/// What requests and answers are written in.
pub(super) const JSON: &str = "application/json";

/// Between two tries.
pub(super) const PAUSE: Duration = Duration::from_millis(200);
/// The same, whatever a server asks for: what waits longer is decided anew.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Calls of which another that leads would have to know: bindings, and what takes pods away.
#[derive(Clone)]
pub(super) struct InFlight {
    bindings: Arc<Semaphore>,
    others: Arc<Semaphore>,
    /// Since when no binding can come any more that was given up without an answer.
    settles_at: Arc<Mutex<Option<Instant>>>,
}

impl InFlight {
    fn new() -> Self {
        let (bindings, others) = (Arc::new(Semaphore::new(BINDINGS)), Arc::new(Semaphore::new(OTHERS)));
        Self { bindings, others, settles_at: Arc::default() }
    }

    /// A binding may come although it was given up.
    fn may_come(&self) {
        let at = Instant::now() + Duration::from_millis(REQUEST_MS);
        *self.settles_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// Lets none of them begin any more, and waits until all have ended, for so long at most. Whether nothing can come of them.
    pub(super) async fn have_ended(&self, within: Duration) -> bool {
        let all = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        let ended = async {
            let bindings = self.bindings.acquire_many(all(BINDINGS)).await.map(SemaphorePermit::forget);
            let others = self.others.acquire_many(all(OTHERS)).await.map(SemaphorePermit::forget);
            bindings.is_ok() && others.is_ok()
        };
        let have_ended = tokio::time::timeout(within, ended).await.unwrap_or(false);
        // What waits for its turn never begins.
        self.bindings.close();
        self.others.close();
        let settles_at = *self.settles_at.lock().unwrap_or_else(PoisonError::into_inner);
        have_ended && settles_at.is_none_or(|at| at <= Instant::now())
    }
}

pub(super) struct Caller {
    client: Client,
    term: Term,
    desk: Sender<Message>,
    /// From the decision to the last try of a binding.
    binding: Duration,
    in_flight: InFlight,
    explainer: Explainer,
    /// Nothing where no autoscaler is asked.
    provisioner: Option<UnboundedSender<Asked>>,
    metrics: Metrics,
}

impl Caller {
    pub(super) fn new(
        client: Client,
        term: Term,
        desk: Sender<Message>,
        binding: Duration,
        metrics: Metrics,
        provisioning_class: Option<String>,
    ) -> Self {
        let provisioner = provisioning_class.map(|class| provisioner(client.clone(), class, desk.clone()));
        let in_flight = InFlight::new();
        Self {
            explainer: Explainer::new(client.clone(), Arc::clone(&in_flight.bindings)),
            provisioner,
            client,
            term,
            desk,
            binding,
            in_flight,
            metrics,
        }
    }

    pub(super) fn in_flight(&self) -> InFlight {
        self.in_flight.clone()
    }

    /// Makes calls in the order in which they come, many at once, until nobody sends any more, or another may lead.
    pub(super) async fn run(self, mut calls: mpsc::UnboundedReceiver<Call>) {
        while let Some(call) = calls.recv().await {
            if self.term.is_over() {
                return;
            }
            match call {
                Call::Bind { pod, node, member, before, annotations } => {
                    // Waiting here keeps the pods of one gang together.
                    let bindings = Arc::clone(&self.in_flight.bindings);
                    let Ok(permit) = bindings.acquire_owned().await else { return };
                    self.bind(pod, node, member, (before, annotations), permit);
                }
                Call::Prepare { member, steps } => {
                    let Ok(permit) = Arc::clone(&self.in_flight.others).acquire_owned().await else { return };
                    let (client, desk) = (self.client.clone(), self.desk.clone());
                    let until = Instant::now() + self.binding;
                    tokio::spawn(async move {
                        if let Err(detail) = prepare(&client, &steps, until).await {
                            let _ = desk.send(Message::Event(Event::Unprepared { member, detail }));
                        }
                        drop(permit);
                    });
                }
                Call::Advise { pods, within_ms } => {
                    let Ok(permit) = Arc::clone(&self.in_flight.others).acquire_owned().await else { return };
                    let (client, desk) = (self.client.clone(), self.desk.clone());
                    tokio::spawn(async move {
                        if let Err(trouble) = checkpoint::advise(&client, &pods, within_ms).await {
                            let _ = desk.send(Message::Trouble(trouble));
                        }
                        drop(permit);
                    });
                }
                Call::Stop { pods, suspend, grace_s, evict, note } => {
                    let Ok(permit) = Arc::clone(&self.in_flight.others).acquire_owned().await else { return };
                    let (client, term) = (self.client.clone(), self.term.clone());
                    let desk = self.desk.clone();
                    tokio::spawn(async move {
                        if let Err(trouble) =
                            stop(&client, &term, &pods, suspend.as_ref(), (evict, grace_s), &note).await
                        {
                            let _ = desk.send(Message::Trouble(trouble));
                        }
                        drop(permit);
                    });
                }
                Call::Release { claim, pod, is_deleted } => {
                    let Ok(permit) = Arc::clone(&self.in_flight.others).acquire_owned().await else { return };
                    let (client, desk) = (self.client.clone(), self.desk.clone());
                    tokio::spawn(async move {
                        let result = claims::release(&client, &claim, &pod, is_deleted).await;
                        drop(permit);
                        let (released, trouble) = claims::answer(&claim, result);
                        let _ = desk.send(Message::Event(released));
                        if let Some(trouble) = trouble {
                            let _ = desk.send(Message::Trouble(trouble));
                        }
                    });
                }
                Call::Resume { suspend } => self.resume(suspend),
                Call::TakeSign { owner, version } => self.take_sign(owner, version),
                Call::Explain { pods, reason, message } => {
                    self.explainer.explain(pods, &Stand { reason, message });
                }
                Call::QueueStatus { name, status } => self.write_status("queues", name, json!(*status)),
                Call::FabricStatus { status } => {
                    self.write_status("fabrics", crate::crd::SINGLETON.to_owned(), json!(*status));
                }
                Call::Group { about, is_scheduled, reason, message } => {
                    let stand = GroupStand::Upstream(is_scheduled, Stand { reason, message });
                    self.explainer.group(about, stand);
                }
                Call::VolcanoStatus { about, status } => {
                    self.explainer.group(about, GroupStand::Volcano(status));
                }
                Call::Admit { group, job, scheduler } => self.admit(group, job, scheduler),
                Call::Provision { gang, wanted } => {
                    if let Some(provisioner) = &self.provisioner {
                        let _ = provisioner.send((gang, wanted));
                    }
                }
                Call::Tell(event) => self.explainer.tell(*event),
            }
        }
    }

    /// Binds a pod to a node, and tells the desk what became of it.
    fn bind(
        &self,
        pod: PodRef,
        node: NodeName,
        member: MemberId,
        (before, annotations): (Vec<Step>, BTreeMap<String, String>),
        permit: OwnedSemaphorePermit,
    ) {
        self.explainer.forget(&pod);
        let (client, term, desk) = (self.client.clone(), self.term.clone(), self.desk.clone());
        let (begun, metrics) = (Instant::now(), self.metrics.clone());
        let (in_flight, until) = (self.in_flight.clone(), begun + self.binding);
        tokio::spawn(async move {
            let result = bind(&client, &term, &pod, &node, &before, annotations, until).await;
            if result.as_ref().is_err_and(|unbound| unbound.may_come) {
                in_flight.may_come();
            }
            drop(permit);
            let took = begun.elapsed();
            metrics.bound(if result.is_ok() { "bound" } else { "failed" }, took);
            let error = result.as_ref().err().map(|unbound| unbound.detail.as_str());
            let seconds = took.as_secs_f64();
            tracing::debug!(%pod, node = node.as_str(), seconds, error, "a binding has its answer");
            answer(&desk, member, result);
        });
    }

    /// The status of an object of ours, as a whole: merged, what it does not say any more would stay.
    fn write_status(&self, plural: &'static str, name: String, status: Value) {
        let (client, desk) = (self.client.clone(), self.desk.clone());
        tokio::spawn(async move {
            let path = format!("/apis/{}/v1alpha1/{plural}/{name}/status", crate::crd::GROUP);
            let patch = json!([{ "op": "add", "path": "/status", "value": status }]);
            if let Err(error) = repeat(&client, "PATCH", &path, "application/json-patch+json", &patch).await {
                let about = format!("{plural}/{name}");
                let _ = desk.send(Message::Trouble(Trouble::new("a status is not written", about, error)));
            }
        });
    }

    fn resume(&self, suspend: Suspend) {
        let (client, desk) = (self.client.clone(), self.desk.clone());
        tokio::spawn(async move {
            if let Err(error) = suspend::resume(&client, &suspend).await {
                let about = suspend.object.to_string();
                let _ = desk.send(Message::Trouble(Trouble::new("an owner does not go on", about, error)));
            }
        });
    }

    fn take_sign(&self, owner: Suspend, version: String) {
        let (client, desk) = (self.client.clone(), self.desk.clone());
        tokio::spawn(async move {
            if let Err(error) = suspend::take_sign(&client, &owner, &version).await {
                let about = owner.object.to_string();
                let trouble = Trouble::new("an owner keeps the sign that it is suspended", about, error);
                let _ = desk.send(Message::Trouble(trouble));
            }
        });
    }

    fn admit(&self, group: ObjectRef, job: ObjectRef, scheduler: String) {
        let (client, desk, others) =
            (self.client.clone(), self.desk.clone(), Arc::clone(&self.in_flight.others));
        tokio::spawn(async move {
            let Ok(_permit) = others.acquire().await else { return };
            if let Err(error) = groups::admit(&client, &group, &job, &scheduler).await {
                let about = group.to_string();
                let trouble = Trouble::new("the phase of a group is not written", about, error);
                let _ = desk.send(Message::Trouble(trouble));
            }
        });
    }
}

/// The desk lives as long as the process.
fn answer(desk: &Sender<Message>, member: MemberId, result: Result<(), Unbound>) {
    let _ = desk.send(Message::Event(Event::Bound { member, result }));
}

/// Takes the pods of a gang away: by their owner where that costs it nothing, and otherwise one by one.
async fn stop(
    client: &Client,
    term: &Term,
    pods: &[PodRef],
    owner: Option<&Suspend>,
    (evict, grace_s): (bool, Option<i64>),
    note: &str,
) -> Result<(), Trouble> {
    let Some(owner) = owner else { return take_all(client, term, pods, evict, grace_s).await };
    let Err(error) = suspend::suspend(client, owner, note).await else { return Ok(()) };
    // An eviction may wait; what cannot start whole may not stay.
    if !evict {
        take_all(client, term, pods, evict, grace_s).await?;
    }
    Err(Trouble::new("an owner is not suspended", owner.object.to_string(), error))
}

async fn take_all(
    client: &Client,
    term: &Term,
    pods: &[PodRef],
    evict: bool,
    grace_s: Option<i64>,
) -> Result<(), Trouble> {
    const STAYS: &str = "a pod stays that has to go";
    if evict {
        // All or none: a budget that forbids one of them forbids the gang.
        for pod in pods {
            take_away(client, pod, true, grace_s, true)
                .await
                .map_err(|error| Trouble::new(STAYS, pod.to_string(), error))?;
        }
    }
    for pod in pods {
        if term.is_over() {
            return Err(Trouble::new(STAYS, pod.to_string(), "another leads"));
        }
        take_away(client, pod, evict, grace_s, false)
            .await
            .map_err(|error| Trouble::new(STAYS, pod.to_string(), error))?;
    }
    Ok(())
}

async fn take_away(
    client: &Client,
    pod: &PodRef,
    evict: bool,
    grace_s: Option<i64>,
    dry_run: bool,
) -> Result<(), CallError> {
    let mut options = json!({ "preconditions": { "uid": &*pod.uid } });
    if let Some(grace_s) = grace_s {
        options["gracePeriodSeconds"] = json!(grace_s);
    }
    if dry_run {
        options["dryRun"] = json!(["All"]);
    }
    let result = if evict {
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": &*pod.name, "namespace": &*pod.namespace },
            "deleteOptions": options,
        });
        repeat(client, "POST", &format!("{}/eviction", path_of(pod)), JSON, &eviction).await
    } else {
        repeat(client, "DELETE", &path_of(pod), JSON, &options).await
    };
    match result {
        // It went before, or another took its name.
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
        other => other.map(drop),
    }
}

/// An object as it is now.
pub(super) async fn read(client: &Client, path: &str) -> Result<String, CallError> {
    repeat(client, "GET", path, "application/json", &Value::Null).await
}

/// One request, until it is no use any more; nothing is sent along where there is no body.
pub(super) async fn repeat(
    client: &Client,
    method: &str,
    path: &str,
    content: &str,
    body: &Value,
) -> Result<String, CallError> {
    const TRIES: u32 = 20;
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request { method, path, content, body: &bytes };
    let mut tries = 0;
    loop {
        tries += 1;
        match send(client, request, ANSWER).await {
            Err(error) if may_pass(error.code()) && tries < TRIES => tokio::time::sleep(error.pause()).await,
            other => return other,
        }
    }
}

/// Too many requests, trouble of the server, or no answer at all.
pub(super) const fn may_pass(code: Option<u16>) -> bool {
    matches!(code, None | Some(429 | 500..=599))
}

pub(super) fn path_of(pod: &PodRef) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name)
}

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("{message} (HTTP {code})")]
    Refused { code: u16, message: String, after: Option<Duration> },
    #[error("{0}")]
    Transport(String),
    #[error("no answer within {0:?}")]
    Late(Duration),
}

impl CallError {
    pub(super) const fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Transport(_) | Self::Late(_) => None,
        }
    }

    pub(super) fn pause(&self) -> Duration {
        match self {
            Self::Refused { after: Some(after), .. } => (*after).min(PAUSE_MAX),
            _ => PAUSE,
        }
    }
}

/// A request as it is sent.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) content: &'a str,
    pub(super) body: &'a [u8],
}

impl<'a> Request<'a> {
    pub(super) const fn get(path: &'a str) -> Self {
        Self { method: "GET", path, content: JSON, body: &[] }
    }
}

/// Sends it once; longer than `patience` nobody waits for the answer.
pub(super) async fn send(
    client: &Client,
    request: Request<'_>,
    patience: Duration,
) -> Result<String, CallError> {
    let Request { method, path, content, body } = request;
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    let request =
        request.body(Body::from(body.to_vec())).map_err(|error| CallError::Transport(error.to_string()))?;
    let answer = async {
        let response = client.send(request).await.map_err(|error| CallError::Transport(error.to_string()))?;
        let (code, after) = (response.status().as_u16(), retry_after(response.headers()));
        let bytes = response
            .into_body()
            .collect_bytes()
            .await
            .map_err(|error| CallError::Transport(error.to_string()))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if code < 300 { Ok(text) } else { Err(CallError::Refused { code, message: said(&text), after }) }
    };
    tokio::time::timeout(patience, answer).await.unwrap_or(Err(CallError::Late(patience)))
}

fn retry_after(headers: &http::HeaderMap) -> Option<Duration> {
    headers.get("retry-after")?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// What a status object says.
fn said(text: &str) -> String {
    let status: Value = serde_json::from_str(text).unwrap_or_default();
    status["message"].as_str().map_or_else(|| text.chars().take(200).collect(), str::to_owned)
}
