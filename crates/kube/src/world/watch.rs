//! Lists and watches, as events. A watch that breaks is begun again, and what went meanwhile is told as gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::utils::Backoff;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

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

/// Watches all objects of one kind until the desk is gone. `list` is told once the first list is complete.
pub(super) async fn watch<K>(api: Api<K>, list: &'static str, desk: Sender<Message>, convert: Convert<K>)
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let config = watcher::Config::default().page_size(PAGE).timeout(WATCH_S);
    let mut events = watcher(api, config).backoff(Retries::default()).boxed();
    // By namespace and name, with what tells two of one name apart.
    let mut known: HashMap<Key, String> = HashMap::new();
    let mut seen: Option<HashMap<Key, String>> = None;
    let mut is_listed = false;
    while let Some(event) = events.next().await {
        // While nobody watched, another may have taken the name of one that went: that one goes first.
        if let Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) = &event {
            let (key, uid) = key_of(object);
            let before = known.insert(key.clone(), uid.clone()).filter(|before| *before != uid);
            let lost = before.map(|before| Message::Event((convert.lost)(&key, &before)));
            if lost.is_some_and(|lost| desk.send(lost).is_err()) {
                return;
            }
        }
        let message = match event {
            Ok(watcher::Event::Init) => {
                seen = Some(HashMap::new());
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                let (key, uid) = key_of(&object);
                seen.get_or_insert_default().insert(key, uid);
                Message::Event((convert.there)(object))
            }
            Ok(watcher::Event::InitDone) => {
                let now = seen.take().unwrap_or_default();
                let gone = known.iter().filter(|(key, _)| !now.contains_key(*key));
                let gone: Vec<Message> =
                    gone.map(|(key, uid)| Message::Event((convert.lost)(key, uid))).collect();
                known = now;
                if gone.into_iter().any(|message| desk.send(message).is_err()) {
                    return;
                }
                if std::mem::replace(&mut is_listed, true) {
                    continue;
                }
                Message::Listed(list)
            }
            Ok(watcher::Event::Apply(object)) => Message::Event((convert.there)(object)),
            Ok(watcher::Event::Delete(object)) => {
                let (key, uid) = key_of(&object);
                known.remove(&key);
                Message::Event((convert.lost)(&key, &uid))
            }
            Err(error) => Message::Trouble(Trouble::new("a watch failed", list, error)),
        };
        if desk.send(message).is_err() {
            return;
        }
    }
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
            found: found
                .spec
                .machine()
                .ok()
                .map(|machine| Found { machine: Arc::new(machine), lost: found.spec.lost() }),
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

    /// The old one was told as gone after the new one was there, by its name: then there was none.
    /// After an outage of 12 s the leader was blind for 30 s more.
    #[test]
    fn a_watch_is_tried_again_soon_however_long_the_server_was_away() {
        assert!(Retries::default().take(50).all(|pause| pause <= RETRY_MAX));
        assert_eq!(Retries::default().take(50).count(), 50, "it never gives up");
    }

    #[test]
    fn what_came_by_the_same_name_while_nobody_watched_is_there() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (sender, messages) = std::sync::mpsc::channel();
        let (api, convert) = nodes(&runtime.block_on(async { client() }));
        let watching = runtime.spawn(watch(api, "nodes", sender, convert));
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
}
