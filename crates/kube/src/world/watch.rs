//! Lists and watches, as events. A watch that breaks is begun again, and what went meanwhile is told as gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch as channel};

use super::desk::Message;
use super::trouble::Trouble;
use crate::messages::{Event, Found, Stored};
use crate::{api, crd};

/// Objects of one page of a list. A list of pods as a whole would be the most memory that is ever used.
const PAGE: u32 = 500;

/// The longest pause before a list or a watch is tried again.
const RETRY_MAX: Duration = Duration::from_secs(3);

/// How long one watch lasts, in seconds. One whose connection died without a word is noticed 5 s after that.
const WATCH_S: u32 = 60;

/// For so long a kind that is not needed is waited for whose list or watch is refused.
const GIVE_UP: Duration = Duration::from_secs(10);
/// A watch that had no error for so long goes well: one that is refused has the next after its longest pause.
const GOES_WELL: Duration = Duration::from_secs(15);

/// How a kind is served.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Serving {
    /// In a version, where it is read in any.
    As(Option<ApiResource>),
    Not,
}

/// What a watch needs besides what it watches.
pub(super) struct Watching {
    pub(super) list: &'static str,
    pub(super) desk: Sender<Message>,
    pub(super) serving: channel::Receiver<Serving>,
    /// Told where the API server does not know the kind.
    pub(super) look: Arc<Notify>,
    /// Nothing is decided without it.
    pub(super) is_needed: bool,
    /// Told when the first list is complete.
    pub(super) opens: Option<Arc<channel::Sender<bool>>>,
    /// Begins when that is so.
    pub(super) after: Option<channel::Receiver<bool>>,
}

/// By namespace and name, with what tells two of one name apart.
type Known = HashMap<Key, String>;

/// What the desk was told, whatever the version in which it was read.
#[derive(Default)]
struct Told {
    known: Known,
    /// Of the list that is being read.
    seen: Option<Known>,
    is_listed: bool,
    /// Since when it is refused.
    refused: Option<Instant>,
    is_given_up: bool,
}

/// The desk is gone.
struct Gone;

impl Watching {
    /// Watches all objects of one kind until the desk is gone, in the version in which it is served.
    pub(super) async fn run<K>(mut self, open: impl Fn(Option<&ApiResource>) -> (Api<K>, Convert<K>))
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let mut told = Told::default();
        if self.wait(&mut told).await.is_err() {
            return;
        }
        let mut last = None;
        loop {
            let serving = self.serving.borrow_and_update().clone();
            let mut serves = self.serving.clone();
            let ended = match serving {
                Serving::As(version) => {
                    let (api, convert) = open(version.as_ref());
                    let convert = last.insert(convert);
                    // What was seen of a list in another version is no whole list.
                    told.seen = None;
                    tokio::select! {
                        ended = self.follow(&mut told, api, convert) => ended,
                        Ok(()) = serves.changed() => Ok(()),
                    }
                }
                Serving::Not => {
                    let ended = self.lose_all(&mut told, last.as_ref());
                    if ended.is_ok() && serves.changed().await.is_err() {
                        return;
                    }
                    ended
                }
            };
            if ended.is_err() {
                return;
            }
        }
    }

    /// Waits for another list that has to be complete first.
    async fn wait(&mut self, told: &mut Told) -> Result<(), Gone> {
        let Some(mut after) = self.after.take() else { return Ok(()) };
        let is_there = async |after: &mut channel::Receiver<bool>| {
            let _ = after.wait_for(|is_there| *is_there).await;
        };
        if tokio::time::timeout(GIVE_UP, is_there(&mut after)).await.is_err() {
            self.give_up(told, "another list, which has to be complete first, is not")?;
            is_there(&mut after).await;
        }
        Ok(())
    }

    /// Lists and watches in one version. It ends with the desk.
    async fn follow<K>(&self, told: &mut Told, api: Api<K>, convert: &Convert<K>) -> Result<(), Gone>
    where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let config = watcher::Config::default().page_size(PAGE).timeout(WATCH_S);
        let mut events = watcher(api, config).backoff(Retries::default()).boxed();
        loop {
            let next = match told.is_given_up && told.is_listed && told.seen.is_none() {
                false => events.next().await,
                true => match tokio::time::timeout(GOES_WELL, events.next()).await {
                    Ok(next) => next,
                    Err(_) => {
                        self.answers(told)?;
                        continue;
                    }
                },
            };
            let Some(event) = next else { return Ok(()) };
            // While nobody watched, another may have taken the name of one that went: that one goes first.
            if let Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) = &event {
                let (key, uid) = key_of(object);
                let before = told.known.insert(key.clone(), uid.clone()).filter(|before| *before != uid);
                if let Some(before) = before {
                    self.send(Message::Event((convert.lost)(&key, &before)))?;
                }
            }
            match event {
                Ok(watcher::Event::Init) => told.seen = Some(HashMap::new()),
                Ok(watcher::Event::InitApply(object)) => {
                    let (key, uid) = key_of(&object);
                    told.seen.get_or_insert_default().insert(key, uid);
                    self.send(Message::Event((convert.there)(object)))?;
                }
                Ok(watcher::Event::InitDone) => {
                    let now = told.seen.take().unwrap_or_default();
                    let known = std::mem::replace(&mut told.known, now);
                    for (key, uid) in known.iter().filter(|(key, _)| !told.known.contains_key(*key)) {
                        self.send(Message::Event((convert.lost)(key, uid)))?;
                    }
                    self.is_complete(told)?;
                }
                Ok(watcher::Event::Apply(object)) => {
                    self.answers(told)?;
                    self.send(Message::Event((convert.there)(object)))?;
                }
                Ok(watcher::Event::Delete(object)) => {
                    self.answers(told)?;
                    let (key, uid) = key_of(&object);
                    told.known.remove(&key);
                    self.send(Message::Event((convert.lost)(&key, &uid)))?;
                }
                Err(error) => self.fails(told, &error)?,
            }
        }
    }

    /// Nothing of the kind is there any more.
    fn lose_all<K>(&self, told: &mut Told, convert: Option<&Convert<K>>) -> Result<(), Gone> {
        for (key, uid) in std::mem::take(&mut told.known) {
            if let Some(convert) = convert {
                self.send(Message::Event((convert.lost)(&key, &uid)))?;
            }
        }
        self.is_complete(told)
    }

    fn is_complete(&self, told: &mut Told) -> Result<(), Gone> {
        if let Some(opens) = &self.opens {
            opens.send_replace(true);
        }
        if !std::mem::replace(&mut told.is_listed, true) {
            told.is_given_up = false;
            told.refused = None;
            return self.send(Message::Listed(self.list));
        }
        self.answers(told)
    }

    /// The API server answers as it should.
    fn answers(&self, told: &mut Told) -> Result<(), Gone> {
        told.refused = None;
        match std::mem::replace(&mut told.is_given_up, false) {
            true => self.send(Message::Listed(self.list)),
            false => Ok(()),
        }
    }

    fn fails(&self, told: &mut Told, error: &watcher::Error) -> Result<(), Gone> {
        let code = refusal(error);
        if code == Some(404) {
            self.look.notify_one();
        }
        let since = match code {
            Some(_) => Some(*told.refused.get_or_insert_with(Instant::now)),
            None => told.refused,
        };
        if told.is_given_up {
            return Ok(());
        }
        if !self.is_needed && since.is_some_and(|since| since.elapsed() >= GIVE_UP) {
            return self.give_up(told, &error.to_string());
        }
        self.send(Message::Trouble(Trouble::new("a watch failed", self.list, error)))
    }

    fn give_up(&self, told: &mut Told, error: &str) -> Result<(), Gone> {
        told.is_given_up = true;
        const WHAT: &str = "a kind cannot be watched: what depends on it waits, all else goes on without";
        self.send(Message::Unwatched(self.list, Trouble::new(WHAT, self.list, error)))
    }

    fn send(&self, message: Message) -> Result<(), Gone> {
        self.desk.send(message).map_err(|_| Gone)
    }
}

/// With which code the API server says that it will not: as long as it is asked the same it will say the same. What it
/// sends may also be none of what was asked for; then there is no code of it.
fn refusal(error: &watcher::Error) -> Option<u16> {
    const UNREADABLE: u16 = 0;
    let of_error = |error: &kube::Error| match error {
        kube::Error::Api(status) => Some(status.code),
        kube::Error::SerdeError(_) => Some(UNREADABLE),
        _ => None,
    };
    let code = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => of_error(error),
        watcher::Error::WatchError(status) => Some(status.code),
        watcher::Error::NoResourceVersion => Some(UNREADABLE),
    };
    code.filter(|code| matches!(code, &UNREADABLE | 401 | 403 | 404 | 500..=599))
}

/// When a list or a watch that failed is tried again: as by default, which grows to 30 s, but for the longest pause. After an
/// outage of the API server the leader is blind until then, and two dozen watches ask the server for little.
#[derive(Default)]
struct Retries(watcher::DefaultBackoff);

impl Iterator for Retries {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0.next().map(|pause| pause.min(RETRY_MAX))
    }
}

impl Backoff for Retries {
    fn reset(&mut self) {
        self.0.reset();
    }
}

/// Namespace and name.
pub(super) type Key = (String, String);

/// By its key, and by what tells it from another of that name.
type Lost = Box<dyn Fn(&Key, &str) -> Event + Send + Sync>;

/// How objects of one kind become events.
pub(crate) struct Convert<K> {
    pub(crate) there: Box<dyn Fn(K) -> Event + Send + Sync>,
    lost: Lost,
}

impl<K> Convert<K> {
    /// For objects of which one is told from another by its name alone.
    pub(super) fn new(
        there: impl Fn(K) -> Event + Send + Sync + 'static,
        lost: impl Fn(&Key) -> Event + Send + Sync + 'static,
    ) -> Self {
        Self { there: Box::new(there), lost: Box::new(move |key, _| lost(key)) }
    }
}

fn key_of<K: Resource>(object: &K) -> (Key, String) {
    let uid = object.meta().uid.clone().unwrap_or_default();
    ((object.namespace().unwrap_or_default(), object.name_any()), uid)
}

pub(super) fn nodes(client: &Client) -> (Api<api::Node>, Convert<api::Node>) {
    let convert = Convert {
        there: Box::new(|node| Event::Node(Box::new(node))),
        lost: Box::new(|(_, name), _| Event::NodeGone(name.clone())),
    };
    (Api::all(client.clone()), convert)
}

pub(super) fn pods(client: &Client) -> (Api<api::Pod>, Convert<api::Pod>) {
    let convert = Convert {
        there: Box::new(|pod| Event::Pod(Box::new(pod))),
        lost: Box::new(|(namespace, name), uid| Event::PodGone {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.to_owned(),
        }),
    };
    (Api::all(client.clone()), convert)
}

/// The labels of namespaces, which say whose queue their gangs are in.
pub(super) fn namespaces(client: &Client) -> (Api<Namespace>, Convert<Namespace>) {
    let convert = Convert {
        there: Box::new(|namespace: Namespace| Event::Namespace {
            name: namespace.name_any(),
            labels: Some(namespace.metadata.labels.unwrap_or_default()),
        }),
        lost: Box::new(|(_, name), _| Event::Namespace { name: name.clone(), labels: None }),
    };
    (Api::all(client.clone()), convert)
}

/// What is known of storage, without who wrote which field.
pub(super) fn stored<K>(client: &Client, make: fn(String, Option<Box<K>>) -> Stored) -> (Api<K>, Convert<K>)
where
    K: Resource<DynamicType = ()> + 'static,
{
    let path = |namespace: &str, name: &str| match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}/{name}"),
    };
    let convert = Convert {
        there: Box::new(move |mut object: K| {
            object.meta_mut().managed_fields = None;
            let path = path(&object.namespace().unwrap_or_default(), &object.name_any());
            Event::Storage(make(path, Some(Box::new(object))))
        }),
        lost: Box::new(move |(namespace, name), _| Event::Storage(make(path(namespace, name), None))),
    };
    (Api::all(client.clone()), convert)
}

/// Without who wrote which field.
pub(super) fn budgets(client: &Client) -> (Api<PodDisruptionBudget>, Convert<PodDisruptionBudget>) {
    let event = |namespace: &str, name: &str, budget| Event::Budget {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        budget,
    };
    let convert = Convert::new(
        move |mut budget: PodDisruptionBudget| {
            budget.metadata.managed_fields = None;
            let (namespace, name) = (budget.namespace().unwrap_or_default(), budget.name_any());
            event(&namespace, &name, Some(Box::new(budget)))
        },
        move |(namespace, name)| event(namespace, name, None),
    );
    (Api::all(client.clone()), convert)
}

pub(super) fn queues(client: &Client) -> (Api<crd::Queue>, Convert<crd::Queue>) {
    let convert = Convert {
        there: Box::new(|queue| Event::Queue(Box::new(queue))),
        lost: Box::new(|(_, name), _| Event::QueueGone(name.clone())),
    };
    (Api::all(client.clone()), convert)
}

pub(super) fn policies(client: &Client) -> (Api<crd::SharePolicy>, Convert<crd::SharePolicy>) {
    let convert = Convert {
        there: Box::new(|policy| Event::Policy(Some(Box::new(policy)))),
        lost: Box::new(|_, _| Event::Policy(None)),
    };
    (Api::all(client.clone()), convert)
}

pub(super) fn fabrics(client: &Client) -> (Api<crd::Fabric>, Convert<crd::Fabric>) {
    let convert = Convert {
        there: Box::new(|fabric| Event::Fabric(Some(Box::new(fabric)))),
        lost: Box::new(|_, _| Event::Fabric(None)),
    };
    (Api::all(client.clone()), convert)
}

/// A topology that contradicts itself is none: the node is then as its labels say.
pub(super) fn topologies(client: &Client) -> (Api<crd::NodeTopology>, Convert<crd::NodeTopology>) {
    let convert = Convert {
        there: Box::new(|found: crd::NodeTopology| Event::Found {
            node: found.name_any(),
            found: found.spec.machine().ok().map(|machine| Found {
                machine: Arc::new(machine),
                lost: found.spec.lost(),
                grades: found.spec.grades().map(|(device, of)| (device, of.clone())).collect(),
            }),
        }),
        lost: Box::new(|(_, name), _| Event::Found { node: name.clone(), found: None }),
    };
    (Api::all(client.clone()), convert)
}

/// Owners and groups. Lists do not say what kind their objects are of, so it is said here.
pub(super) fn objects(client: &Client, kind: &ApiResource) -> (Api<Typed>, Convert<Typed>) {
    let of = kind.clone();
    let named = move |(namespace, name): &Key| {
        let object = DynamicObject::new(name, &of);
        if namespace.is_empty() { object } else { object.within(namespace) }
    };
    let of = kind.clone();
    let typed = move |mut object: DynamicObject| {
        let (api_version, kind) = (of.api_version.clone(), of.kind.clone());
        object.types = Some(kube::api::TypeMeta { api_version, kind });
        object
    };
    let convert = Convert {
        there: Box::new(move |object| Event::Object(Box::new(typed(object)))),
        lost: Box::new(move |key, _| Event::ObjectGone(Box::new(named(key)))),
    };
    (Api::all_with(client.clone(), kind), convert)
}

type Typed = DynamicObject;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn list(uid: &str) -> Value {
        let node = json!({ "metadata": { "name": "a", "uid": uid, "resourceVersion": "1" } });
        json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [node] })
    }

    /// Two lists of one node each, by the same name; the watch between them is told that it is too late.
    fn client() -> Client {
        let lists = Arc::new(AtomicUsize::new(0));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch"));
            let expired = json!({ "type": "ERROR", "object": {
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 410,
                "reason": "Expired", "message": "too old",
            } });
            let text = match is_watch {
                true => format!("{expired}\n"),
                false => {
                    list(if lists.fetch_add(1, Ordering::SeqCst) == 0 { "old" } else { "new" }).to_string()
                }
            };
            async move { Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(text.into_bytes()))) }
        });
        Client::new(service, "default")
    }

    /// After an outage of 12 s the leader was blind for 30 s more.
    #[test]
    fn a_watch_is_tried_again_soon_however_long_the_server_was_away() {
        assert!(Retries::default().take(50).all(|pause| pause <= RETRY_MAX));
        assert_eq!(Retries::default().take(50).count(), 50, "it never gives up");
    }

    fn watching(list: &'static str, desk: Sender<Message>, serving: channel::Receiver<Serving>) -> Watching {
        Watching { list, desk, serving, look: Arc::default(), is_needed: false, opens: None, after: None }
    }

    /// The old one was told as gone after the new one was there, by its name: then there was none.
    #[test]
    fn what_came_by_the_same_name_while_nobody_watched_is_there() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (sender, messages) = std::sync::mpsc::channel();
        let client = runtime.block_on(async { client() });
        let (_serving, serves) = channel::channel(Serving::As(None));
        let watching = runtime.spawn(watching("nodes", sender, serves).run(move |_| nodes(&client)));
        let mut told = Vec::new();
        runtime.block_on(async {
            // Far longer than two lists take.
            for _ in 0..1_000 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                told.extend(messages.try_iter().filter_map(|message| match message {
                    Message::Event(Event::Node(node)) => Some(node.metadata.uid.clone().unwrap_or_default()),
                    Message::Event(Event::NodeGone(name)) => Some(format!("no {name}")),
                    _ => None,
                }));
                if told.len() >= 3 {
                    break;
                }
            }
        });
        watching.abort();
        assert_eq!(told[..3], ["old", "no a", "new"], "{told:?}");
    }

    /// A group of one version, where it is served in that one; each with the objects of then.
    struct Server {
        version: &'static str,
        objects: Vec<(&'static str, &'static str)>,
        code: u16,
    }

    /// Answers as it is now; a watch is silent.
    fn server(of: Arc<std::sync::Mutex<Server>>) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let of = Arc::clone(&of);
            async move {
                let is_watch = request.uri().query().is_some_and(|query| query.contains("watch"));
                let version = of.lock().unwrap().version;
                if is_watch && request.uri().path().contains(version) {
                    // As long as its version is served.
                    while of.lock().unwrap().version == version {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    return Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty()));
                }
                let of = of.lock().unwrap();
                let code = match request.uri().path().contains(of.version) {
                    true => of.code,
                    false => 404,
                };
                let item = |(name, uid): &(&str, &str)| json!({ "metadata": { "namespace": "x", "name": name, "uid": uid, "resourceVersion": "1" } });
                let items: Vec<Value> = of.objects.iter().map(item).collect();
                let text = match code {
                    200 => json!({ "kind": "List", "apiVersion": "v1",
                        "metadata": { "resourceVersion": "1" }, "items": items }),
                    _ => json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "code": code, "reason": "No", "message": "no" }),
                };
                let mut answer = http::Response::new(Body::from(text.to_string().into_bytes()));
                *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
                Ok(answer)
            }
        });
        Client::new(service, "default")
    }

    fn group(version: &str) -> ApiResource {
        ApiResource {
            group: "g".to_owned(),
            version: version.to_owned(),
            api_version: format!("g/{version}"),
            kind: "PodGroup".to_owned(),
            plural: "podgroups".to_owned(),
        }
    }

    /// In words, until there are so many.
    async fn words(
        messages: &std::sync::mpsc::Receiver<Message>,
        most: usize,
        within: Duration,
    ) -> Vec<String> {
        let (mut told, end) = (Vec::new(), Instant::now() + within);
        while told.len() < most && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
            told.extend(messages.try_iter().filter_map(|message| match message {
                Message::Event(Event::Object(object)) => {
                    Some(format!("{} {}", object.types.as_ref()?.api_version, object.name_any()))
                }
                Message::Event(Event::ObjectGone(object)) => Some(format!("no {}", object.name_any())),
                Message::Listed(_) => Some("listed".to_owned()),
                Message::Unwatched(..) => Some("given up".to_owned()),
                _ => None,
            }));
        }
        told
    }

    /// After an upgrade of the API server it asked for the version of before for ever, and gangs stayed pending.
    #[test]
    fn a_kind_that_is_served_in_another_version_is_watched_in_that_and_what_went_meanwhile_is_gone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let objects = vec![("a", "1"), ("b", "2"), ("c", "3")];
            let of = Arc::new(std::sync::Mutex::new(Server { version: "v1alpha2", objects, code: 200 }));
            let client = server(Arc::clone(&of));
            let (sender, messages) = std::sync::mpsc::channel();
            let (serving, serves) = channel::channel(Serving::As(Some(group("v1alpha2"))));
            let watching = watching("podgroups", sender, serves);
            let look = Arc::clone(&watching.look);
            let open = move |kind: Option<&ApiResource>| objects_of(&client, kind);
            tokio::spawn(watching.run(open));
            let first = words(&messages, 4, Duration::from_secs(5)).await;
            assert_eq!(first, ["g/v1alpha2 a", "g/v1alpha2 b", "g/v1alpha2 c", "listed"]);
            // Of two one is gone, and one is another of the same name.
            *of.lock().unwrap() =
                Server { version: "v1beta1", objects: vec![("a", "1"), ("b", "4"), ("d", "5")], code: 200 };
            serving.send_replace(Serving::As(Some(group("v1beta1"))));
            let mut next = words(&messages, 5, Duration::from_secs(5)).await;
            assert_eq!(next[..3], ["g/v1beta1 a", "no b", "g/v1beta1 b"]);
            next.sort();
            assert_eq!(next, ["g/v1beta1 a", "g/v1beta1 b", "g/v1beta1 d", "no b", "no c"]);
            // Where the version goes first, whoever looks is told.
            of.lock().unwrap().version = "v2";
            tokio::time::timeout(Duration::from_secs(10), look.notified()).await.unwrap();
            serving.send_replace(Serving::Not);
            let mut gone = words(&messages, 3, Duration::from_secs(5)).await;
            gone.sort();
            assert_eq!(gone, ["no a", "no b", "no d"]);
            serving.send_replace(Serving::As(Some(group("v2"))));
            let again = words(&messages, 3, Duration::from_secs(5)).await;
            assert_eq!(again, ["g/v2 a", "g/v2 b", "g/v2 d"]);
        });
    }

    fn objects_of(client: &Client, kind: Option<&ApiResource>) -> (Api<Typed>, Convert<Typed>) {
        objects(client, kind.unwrap())
    }

    /// One broken kind kept everything from being scheduled.
    #[test]
    fn a_kind_that_is_refused_is_given_up_after_a_while_and_taken_up_when_it_answers() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let of = Server { version: "v1", objects: vec![("a", "1")], code: 403 };
            let of = Arc::new(std::sync::Mutex::new(of));
            let client = server(Arc::clone(&of));
            let (sender, messages) = std::sync::mpsc::channel();
            let (needs, needed) = std::sync::mpsc::channel();
            let (_serving, serves) = channel::channel(Serving::As(Some(group("v1"))));
            let must = Watching { is_needed: true, ..watching("pods", needs, serves.clone()) };
            let (one, other) = (client.clone(), client);
            tokio::spawn(must.run(move |kind| objects_of(&one, kind)));
            tokio::spawn(watching("podgroups", sender, serves).run(move |kind| objects_of(&other, kind)));
            let began = Instant::now();
            assert_eq!(words(&messages, 1, 2 * GIVE_UP).await, ["given up"]);
            assert!(began.elapsed() >= GIVE_UP, "{:?}", began.elapsed());
            assert_eq!(words(&needed, 1, Duration::from_millis(50)).await, [""; 0], "it is waited for");
            of.lock().unwrap().code = 200;
            assert_eq!(words(&messages, 2, Duration::from_secs(5)).await, ["g/v1 a", "listed"]);
            assert_eq!(words(&needed, 2, Duration::from_secs(5)).await, ["g/v1 a", "listed"]);
        });
    }

    /// Devices that have a user would look free as long as their claims are not known.
    #[test]
    fn a_list_that_needs_another_is_not_read_before_that_is_complete() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server_of = |code| {
                let of = Server { version: "v1", objects: vec![("a", "1")], code };
                Arc::new(std::sync::Mutex::new(of))
            };
            let (claims, slices) = (server_of(403), server_of(200));
            let (of_claims, of_slices) = (server(Arc::clone(&claims)), server(slices));
            let (sender, messages) = std::sync::mpsc::channel();
            let (other, _others) = std::sync::mpsc::channel();
            let (_serving, serves) = channel::channel(Serving::As(Some(group("v1"))));
            let (are_known, after) = channel::channel(false);
            let opens = Some(Arc::new(are_known));
            let first = Watching { opens, ..watching("resourceclaims", other, serves.clone()) };
            let second = Watching { after: Some(after), ..watching("resourceslices", sender, serves) };
            tokio::spawn(first.run(move |kind| objects_of(&of_claims, kind)));
            tokio::spawn(second.run(move |kind| objects_of(&of_slices, kind)));
            assert_eq!(words(&messages, 1, 2 * GIVE_UP).await, ["given up"]);
            claims.lock().unwrap().code = 200;
            assert_eq!(words(&messages, 2, Duration::from_secs(5)).await, ["g/v1 a", "listed"]);
        });
    }
}
