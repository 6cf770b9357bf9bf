//! A way to the API server that goes wrong: every request passes through here, and what becomes of it is said by the test.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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

    /// What it does to what, without names.
    fn sort(&self) -> String {
        let parts: Vec<&str> = self.path.split('/').filter(|part| !part.is_empty()).collect();
        let of = parts.iter().position(|part| *part == "namespaces").map_or(0, |at| at + 2);
        let named = parts.get(of..).unwrap_or_default();
        let kind = named.iter().step_by(2).copied().collect::<Vec<_>>().join("/");
        format!("{} {kind}{}", self.method, if self.is_watch() { " watch" } else { "" })
    }
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
        let core = Arc::new(Core { upstream, plan, counts: Mutex::default(), done: Mutex::default() });
        runtime.spawn(serve(listener, Arc::clone(&core)));
        Self { kubeconfig, core, runtime: Some(runtime) }
    }

    /// Bindings that were asked for.
    pub(crate) fn bindings(&self) -> u64 {
        self.core.counts.lock().unwrap().get("POST pods/binding").copied().unwrap_or(0)
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
    let fault = (core.plan)(&asked);
    if !matches!(fault, Fault::None) {
        let name = format!("{fault:?}");
        let name = name.split('(').next().unwrap_or_default();
        *core.done.lock().unwrap().entry(format!("{name} {sort}")).or_default() += 1;
    }
    // What is done is done even if nobody waits for the answer any more.
    let upstream = core.upstream.clone();
    let forward = |wait: Duration, gate: Option<Arc<AtomicBool>>| {
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            while gate.as_ref().is_some_and(|gate| !gate.load(Ordering::Acquire)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let mut request = Request::builder().method(parts.method).uri(parts.uri);
            for name in ["content-type", "accept"] {
                if let Some(value) = parts.headers.get(name) {
                    request = request.header(name, value);
                }
            }
            upstream.send(request.body(client::Body::from(body))?).await.map_err(Broken::from)
        })
    };
    let now = Duration::ZERO;
    match fault {
        Fault::None => Ok(passed(forward(now, None).await??, usize::MAX, None)),
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
        let mut hash = DefaultHasher::new();
        (seed, asked.sort(), asked.before).hash(&mut hash);
        let mut rng = Rng::new(hash.finish());
        draw(asked, &mut rng)
    }
}

/// Longer than anybody waits for an answer.
const TOO_LATE: Duration = Duration::from_secs(11);

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
