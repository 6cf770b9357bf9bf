//! A cluster as it is now, read once with the rights of whoever asks: what a scheduler knows that begins now. Nothing is
//! done to the cluster.

use futures::future::LocalBoxFuture;
use kube::api::{ApiResource, ListParams};
use kube::{Api, Client, Resource};
use phalanx_model::{Epoch, Outcome, Snapshot};
use phalanx_shell::{Config, Engine, unix_now};
use serde::de::DeserializeOwned;

use super::{UserError, list};

use crate::gang::{Lifecycle, Options};
use crate::messages::Event;
use crate::world::{Convert, Sink, kinds, read_core, read_found};

/// Without these there is nothing to decide about.
const NEEDED: [&str; 2] = ["nodes", "pods"];

/// What was seen of a cluster.
#[derive(Clone, Debug)]
pub struct Seen {
    /// After the first step of an engine that is told all of it: what fits now is on its way.
    pub snapshot: Snapshot,
    /// Lists that this user may not read. They count as empty.
    pub unread: Vec<&'static str>,
}

type Read = LocalBoxFuture<'static, Result<Vec<Event>, UserError>>;

/// What is to be listed, by name.
#[derive(Default)]
struct Lists(Vec<(&'static str, Read)>);

impl Sink for Lists {
    fn name(&self, list: String) -> &'static str {
        list.leak()
    }

    fn read<K>(
        &mut self,
        name: &'static str,
        version: Option<&ApiResource>,
        open: impl Fn(Option<&ApiResource>) -> (Api<K>, Convert<K>) + Send + Sync + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let (api, convert) = open(version);
        let read = async move {
            let objects = list(&api, &ListParams::default()).await?;
            Ok(objects.into_iter().map(|object| (convert.there)(object)).collect())
        };
        self.0.push((name, Box::pin(read)));
    }
}

/// Lists what a scheduler with these options would watch, and has an engine take its first step on it.
///
/// # Errors
/// When the API server does not answer, or nodes or pods may not be read.
pub(crate) async fn see(client: &Client, options: Options) -> Result<Seen, UserError> {
    let mut lists = Lists::default();
    read_core(client, &mut lists);
    read_found(client, kinds(client).await?, &mut lists);
    let mut lifecycle = Lifecycle::new(options);
    let mut unread = Vec::new();
    for (name, read) in lists.0 {
        match read.await {
            Ok(events) => events.into_iter().for_each(|event| lifecycle.observe(unix_now(), event)),
            Err(UserError::Server { code: 403, .. }) if !NEEDED.contains(&name) => unread.push(name),
            // It is not served here, or not any more.
            Err(UserError::Server { code: 404, .. }) if !NEEDED.contains(&name) => {}
            Err(error) => return Err(error),
        }
    }
    let now = unix_now();
    let mut engine = Engine::new(Epoch(1), Config::default());
    // Nobody waits for what comes next.
    let _ = engine.step(now, &lifecycle.begin(now), &mut Outcome::default());
    Ok(Seen { snapshot: engine.snapshot(), unread })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use phalanx_model::{Input, QueueName};
    use serde_json::{Value, json};

    use super::*;

    /// One node of 8 devices and two pods: one that runs on 4 of them, and one that wants all 8. Nothing else is there.
    fn client(forbidden: &'static [&'static str]) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let what = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            async move { Ok::<_, Infallible>(answer(&what, forbidden.contains(&what.as_str()))) }
        });
        Client::new(service, "default")
    }

    fn answer(what: &str, is_forbidden: bool) -> http::Response<Body> {
        let gpu = |n: &str| json!([{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": n } } }]);
        let items = match what {
            _ if is_forbidden => return status(403),
            "nodes" => json!([{
                "metadata": { "name": "a", "uid": "a" },
                "status": {
                    "allocatable": { "nvidia.com/gpu": "8", "cpu": "64", "memory": "64Gi", "pods": "110" },
                    "conditions": [{ "type": "Ready", "status": "True" }],
                },
            }]),
            "pods" => json!([
                { "metadata": { "namespace": "n", "name": "runs", "uid": "1" },
                  "spec": { "schedulerName": "other", "nodeName": "a", "containers": gpu("4") },
                  "status": { "phase": "Running" } },
                { "metadata": { "namespace": "n", "name": "waits", "uid": "2" },
                  "spec": { "schedulerName": "phalanx", "containers": gpu("8") },
                  "status": { "phase": "Pending" } },
            ]),
            _ => json!([]),
        };
        let of: Value = match what {
            // It serves no groups.
            "apis" => json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [] }),
            "api" => json!({ "kind": "APIVersions", "versions": [], "serverAddressByClientCIDRs": [] }),
            _ => json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items }),
        };
        http::Response::new(Body::from(of.to_string().into_bytes()))
    }

    fn status(code: u16) -> http::Response<Body> {
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": code, "reason": "No", "message": "no" });
        let mut answer = http::Response::new(Body::from(status.to_string().into_bytes()));
        *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
        answer
    }

    fn seen(forbidden: &'static [&'static str]) -> Result<Seen, UserError> {
        let options = Options::of_queue(QueueName::new("default").unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { see(&client(forbidden), options).await })
    }

    #[test]
    fn nodes_pods_and_gangs_are_in_the_snapshot_and_what_does_not_fit_waits() {
        let Seen { snapshot, unread } = seen(&["csidrivers", "namespaces"]).unwrap();
        assert_eq!(unread, ["namespaces", "csidrivers"]);
        let node = snapshot.facts.iter().find_map(|fact| match fact {
            Input::NodeObserved { node } => Some(node),
            _ => None,
        });
        assert_eq!(node.unwrap().machine.device_count(), 8);
        let jobs: Vec<_> = snapshot
            .facts
            .iter()
            .filter_map(|fact| match fact {
                Input::JobObserved { gangs, .. } => Some(gangs[0].holds_capacity()),
                _ => None,
            })
            .collect();
        assert_eq!(jobs, [false], "four of eight devices are another's");
    }

    #[test]
    fn a_user_who_may_not_read_nodes_or_pods_is_told_so() {
        for needed in [&["nodes"], &["pods"]] {
            assert!(matches!(seen(needed), Err(UserError::Server { code: 403, .. })), "{needed:?}");
        }
    }
}
