//! A way to the API server that goes wrong: every request passes through here, and what becomes of it is said by the test.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use phalanx_controlplane::ControlPlane;
use phalanx_kube::kube::config::{KubeConfigOptions, Kubeconfig};
use phalanx_kube::kube::{Client, Config, client};
use phalanx_sim::Rng;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::role;

type Broken = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, Broken>;

/// What becomes of one request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    None,
    /// Nothing is done, and this is the answer, to be asked again after so many seconds.
    Refuse(u16, Option<u32>),
    /// The connection ends without an answer, and nothing is done.
    Drop,
    /// It is done, and the connection ends without an answer.
    Forget,
    /// It is done at once, and answered that late.
    Late(Duration),
    /// It is done that late, whether anybody still waits for it or not.
    Hold(Duration),
    /// It is done once this is set, whether anybody still waits for it or not.
    Gate(Arc<AtomicBool>),
    /// The answer breaks off after so many bytes: a watch in the middle of a line.
    Cut(usize),
    /// Of the answer nothing comes for so long, then it breaks off.
    Silent(Duration),
    /// A watch that is told that its version is too old.
    Expired,
    /// A list that is answered in pages of so many objects.
    Page(u32),
}

impl Fault {
    /// What it is called in counts: its sort, and the code of an answer.
    fn name(&self) -> String {
        if let Self::Refuse(code, _) = self {
            return format!("Refuse {code}");
        }
        let name = format!("{self:?}");
        name.split('(').next().unwrap_or_default().to_owned()
    }
}

/// A request, as the test decides by it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Without its query.
    pub(crate) path: String,
    pub(crate) query: String,
    /// Requests of this sort before it.
    pub(crate) before: u64,
}

impl Asked {
    pub(crate) fn is_watch(&self) -> bool {
        self.query.contains("watch=")
    }

    pub(crate) fn is_binding(&self) -> bool {
        self.method == "POST" && self.path.ends_with("/binding")
    }

    /// Of devices.
    pub(crate) fn writes_claim(&self) -> bool {
        self.method != "GET" && self.path.contains("/resourceclaims")
    }

    pub(crate) fn is_of_lease(&self) -> bool {
        self.path.contains("/leases")
    }

    /// Of all pods, as the first page of them or another.
    fn is_list_of_pods(&self) -> bool {
        self.method == "GET" && self.path == "/api/v1/pods" && !self.is_watch()
    }

    fn goes_on(&self) -> bool {
        self.query.contains("continue=")
    }

    /// What it does to what, without names.
    fn sort(&self) -> String {
        let parts: Vec<&str> = self.path.split('/').filter(|part| !part.is_empty()).collect();
        let of = parts.iter().position(|part| *part == "namespaces").map_or(0, |at| at + 2);
        let named = parts.get(of..).unwrap_or_default();
        let kind = named.iter().step_by(2).copied().collect::<Vec<_>>().join("/");
        let how = match () {
            () if self.is_watch() => " watch",
            () if self.goes_on() => " continue",
            () => "",
        };
        format!("{} {kind}{how}", self.method)
    }
}

/// A request that writes, and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) asked: Instant,
    /// When the API server answered, and with which code; nothing as long as it was not asked, or did not.
    pub(crate) done: Option<(Instant, u16)>,
}

/// What becomes of each request, and what has become of them.
type Plan = Box<dyn Fn(&Asked) -> Fault + Send + Sync>;

/// It serves until it is dropped.
pub(crate) struct Front {
    pub(crate) kubeconfig: PathBuf,
    core: Arc<Core>,
    // Everything that is under way ends with it.
    runtime: Option<Runtime>,
}

struct Core {
    upstream: Client,
    plan: Plan,
    counts: Mutex<BTreeMap<String, u64>>,
    done: Mutex<BTreeMap<String, u64>>,
    writes: Mutex<Vec<Write>>,
}

impl Front {
    /// Before a control plane, as the scheduler.
    pub(crate) fn of(plane: &ControlPlane, plan: impl Fn(&Asked) -> Fault + Send + Sync + 'static) -> Self {
        let own = role::scheduler(plane);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (upstream, listener) = runtime.block_on(async {
            let file = Kubeconfig::read_from(&own).unwrap();
            let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
            (Client::try_from(config).unwrap(), TcpListener::bind(("127.0.0.1", 0)).await.unwrap())
        });
        let port = listener.local_addr().unwrap().port();
        let mut config: Value = serde_json::from_slice(&std::fs::read(&own).unwrap()).unwrap();
        config["clusters"][0]["cluster"] = json!({ "server": format!("http://127.0.0.1:{port}") });
        let kubeconfig = plane.folder().join(format!("front-{port}.kubeconfig"));
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let plan: Plan = Box::new(plan);
        let (counts, done, writes) = Default::default();
        let core = Arc::new(Core { upstream, plan, counts, done, writes });
        runtime.spawn(serve(listener, Arc::clone(&core)));
        Self { kubeconfig, core, runtime: Some(runtime) }
    }

    /// Bindings that were asked for.
    pub(crate) fn bindings(&self) -> u64 {
        self.core.counts.lock().unwrap().get("POST pods/binding").copied().unwrap_or(0)
    }

    /// What was asked for so far that writes, in the order in which it came.
    pub(crate) fn writes(&self) -> Vec<Write> {
        self.core.writes.lock().unwrap().clone()
    }

    /// How often what happened to which sort of request.
    pub(crate) fn faults(&self) -> BTreeMap<String, u64> {
        self.core.done.lock().unwrap().clone()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: TcpListener, core: Arc<Core>) {
    while let Ok((stream, _)) = listener.accept().await {
        let core = Arc::clone(&core);
        let service = hyper::service::service_fn(move |request| answer(Arc::clone(&core), request));
        tokio::spawn(async move {
            let mut http = hyper::server::conn::http1::Builder::new();
            // It fails with every connection that a fault ends.
            let _ = http.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// An error ends the connection without an answer.
async fn answer(core: Arc<Core>, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let (path, query) = (parts.uri.path().to_owned(), parts.uri.query().unwrap_or_default().to_owned());
    let mut asked = Asked { method: parts.method.to_string(), path, query, before: 0 };
    let sort = asked.sort();
    {
        let mut counts = core.counts.lock().unwrap();
        let count = counts.entry(sort.clone()).or_default();
        asked.before = *count;
        *count += 1;
    }
    let written = (asked.method != "GET").then(|| {
        let mut writes = core.writes.lock().unwrap();
        let (method, path) = (asked.method.clone(), asked.path.clone());
        writes.push(Write { method, path, asked: Instant::now(), done: None });
        writes.len() - 1
    });
    let fault = (core.plan)(&asked);
    if !matches!(fault, Fault::None) {
        *core.done.lock().unwrap().entry(format!("{} {sort}", fault.name())).or_default() += 1;
    }
    let uri = match fault {
        Fault::Page(objects) => paged(&parts.uri, objects),
        _ => parts.uri.clone(),
    };
    // What is done is done even if nobody waits for the answer any more.
    let forward = |wait: Duration, gate: Option<Arc<AtomicBool>>| {
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            while gate.as_ref().is_some_and(|gate| !gate.load(Ordering::Acquire)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let mut request = Request::builder().method(parts.method).uri(uri);
            for name in ["content-type", "accept"] {
                if let Some(value) = parts.headers.get(name) {
                    request = request.header(name, value);
                }
            }
            let sent = core.upstream.send(request.body(client::Body::from(body))?).await;
            if let (Some(at), Ok(answer)) = (written, &sent) {
                core.writes.lock().unwrap()[at].done = Some((Instant::now(), answer.status().as_u16()));
            }
            sent.map_err(Broken::from)
        })
    };
    let now = Duration::ZERO;
    match fault {
        Fault::None | Fault::Page(_) => Ok(passed(forward(now, None).await??, usize::MAX, None)),
        Fault::Refuse(code, after) => refused(code, after),
        Fault::Drop => Err("dropped".into()),
        Fault::Forget => {
            let _ = forward(now, None).await??.into_body().collect_bytes().await;
            Err("forgotten".into())
        }
        Fault::Late(wait) => {
            let response = forward(now, None).await??;
            tokio::time::sleep(wait).await;
            Ok(passed(response, usize::MAX, None))
        }
        Fault::Hold(wait) => Ok(passed(forward(wait, None).await??, usize::MAX, None)),
        Fault::Gate(gate) => Ok(passed(forward(now, Some(gate)).await??, usize::MAX, None)),
        Fault::Cut(bytes) => Ok(passed(forward(now, None).await??, bytes, None)),
        Fault::Silent(wait) => Ok(passed(forward(now, None).await??, 0, Some(wait))),
        Fault::Expired => {
            let status = status(410);
            let line = format!("{}\n", json!({ "type": "ERROR", "object": status }));
            Ok(Response::new(whole(line)))
        }
    }
}

/// The same with pages of so many objects.
fn paged(uri: &hyper::Uri, objects: u32) -> hyper::Uri {
    let query = uri.query().unwrap_or_default().split('&').filter(|part| !part.starts_with("limit="));
    let query: Vec<&str> = query.collect();
    format!("{}?limit={objects}&{}", uri.path(), query.join("&")).parse().unwrap()
}

/// An answer of the API server, of which so many bytes get through, or none for so long.
fn passed(response: Response<client::Body>, bytes: usize, silence: Option<Duration>) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let mut answer = Response::builder().status(parts.status);
    for name in ["content-type", "retry-after", "warning"] {
        if let Some(value) = parts.headers.get(name) {
            answer = answer.header(name, value);
        }
    }
    let body = if bytes == usize::MAX {
        body.map_err(Broken::from).boxed_unsync()
    } else {
        let frames = futures::stream::unfold(Some((body, bytes)), move |state| async move {
            let (mut body, left) = state?;
            if let Some(wait) = silence {
                tokio::time::sleep(wait).await;
            }
            if left == 0 {
                return Some((Err("cut".into()), None));
            }
            let frame = body.frame().await?;
            let data = frame.ok().and_then(|frame| frame.into_data().ok()).unwrap_or_default();
            let data = data.slice(..data.len().min(left));
            let left = left - data.len();
            Some((Ok::<_, Broken>(Frame::data(data)), Some((body, left))))
        });
        BodyExt::boxed_unsync(StreamBody::new(frames))
    };
    answer.body(body).unwrap()
}

fn whole(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn status(code: u16) -> Value {
    let reason = match code {
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": format!("the front says {code}"),
    })
}

fn refused(code: u16, after: Option<u32>) -> Result<Response<Body>, Broken> {
    let mut answer = Response::builder().status(code).header("content-type", "application/json");
    if let Some(seconds) = after {
        answer = answer.header("retry-after", seconds);
    }
    Ok(answer.body(whole(status(code).to_string()))?)
}

/// Faults of all sorts, drawn from a seed: the same for the same request in the order of its sort.
pub(crate) fn drawn(seed: u64) -> impl Fn(&Asked) -> Fault + Send + Sync + 'static {
    move |asked| {
        if let Some(fault) = certain(seed, asked) {
            return fault;
        }
        let mut hash = DefaultHasher::new();
        (seed, asked.sort(), asked.before).hash(&mut hash);
        let mut rng = Rng::new(hash.finish());
        draw(asked, &mut rng)
    }
}

/// Longer than anybody waits for an answer.
const TOO_LATE: Duration = Duration::from_secs(11);

/// Every so many bindings another fault, so that each of them has become of some.
const BINDINGS_BETWEEN: u64 = 4;

/// What may become of a binding, in any order.
fn of_binding(at: u64) -> Fault {
    match at % 9 {
        0 => Fault::Refuse(409, None),
        1 => Fault::Late(TOO_LATE),
        2 => Fault::Refuse(429, Some(1)),
        3 => Fault::Forget,
        4 => Fault::Refuse(500, None),
        5 => Fault::Drop,
        6 => Fault::Hold(TOO_LATE),
        7 => Fault::Refuse(503, None),
        _ => Fault::Cut(40),
    }
}

/// What [`drawn`] has to have led to once a hundred pods are bound, by its name and the sort of request.
pub(crate) const FAULTS: &[&str] = &[
    "Refuse 409 POST pods/binding",
    "Refuse 429 POST pods/binding",
    "Refuse 500 POST pods/binding",
    "Refuse 503 POST pods/binding",
    "Drop POST pods/binding",
    "Forget POST pods/binding",
    "Late POST pods/binding",
    "Hold POST pods/binding",
    "Cut POST pods/binding",
    "Refuse 410 GET api/pods",
    "Refuse 410 GET api/pods continue",
    "Expired GET api/pods watch",
    "Cut GET api/pods watch",
    "Silent GET api/pods watch",
];

/// What is not left to chance: every fault of a binding, and a version that is too old in every place where one is named.
fn certain(seed: u64, asked: &Asked) -> Option<Fault> {
    if asked.is_binding() {
        let (at, left) = (asked.before / BINDINGS_BETWEEN, asked.before % BINDINGS_BETWEEN);
        return Some(if left == 2 { of_binding(seed.wrapping_add(at)) } else { Fault::None });
    }
    let is_watch = asked.is_watch() && asked.path == "/api/v1/pods";
    match asked.before {
        // The lists below follow from it.
        2 if is_watch => Some(Fault::Expired),
        3 if is_watch => Some(Fault::Silent(Duration::from_secs(2))),
        0 | 3 if asked.is_list_of_pods() && asked.goes_on() => Some(Fault::Refuse(410, None)),
        1 if asked.is_list_of_pods() && !asked.goes_on() => Some(Fault::Refuse(410, None)),
        _ if asked.is_list_of_pods() && !asked.goes_on() => Some(Fault::Page(40)),
        _ => None,
    }
}

fn draw(asked: &Asked, rng: &mut Rng) -> Fault {
    if asked.is_watch() {
        let silence = Duration::from_secs(rng.between(1, 8));
        let bytes = usize::try_from(rng.between(1, 30_000)).unwrap();
        return match rng.below(100) {
            0..15 => Fault::Expired,
            15..55 => Fault::Cut(bytes),
            55..70 => Fault::Silent(silence),
            70..74 => Fault::Drop,
            74..78 => Fault::Refuse(500, None),
            78..82 => Fault::Refuse(429, Some(1)),
            // In full it would be the last one.
            _ => Fault::Cut(bytes * 8),
        };
    }
    let is_write = asked.method != "GET";
    let is_late = rng.chance(if is_write { 3 } else { 1 });
    if is_late {
        return match rng.below(3) {
            0 => Fault::Hold(TOO_LATE),
            _ => Fault::Late(TOO_LATE),
        };
    }
    match rng.below(100) {
        0..4 => Fault::Drop,
        4..8 if is_write => Fault::Forget,
        8..11 => Fault::Refuse(500, None),
        11..14 => Fault::Refuse(503, None),
        14..17 => Fault::Refuse(429, Some(1)),
        17..19 if is_write => Fault::Refuse(409, None),
        19..20 => Fault::Cut(usize::try_from(rng.between(1, 200)).unwrap()),
        _ => Fault::None,
    }
}
