//! Which kinds this cluster serves, in which versions, and the watches of them: what is served later is watched from then
//! on, what is served in another version is watched in that one, and what is served no longer counts as gone.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use kube::api::ApiResource;
use kube::discovery::{Discovery, verbs};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, watch as channel};

use super::desk::Message;
use super::trouble::Trouble;
use super::watch::{Convert, Serving, Watching};
use super::{devices, watch};
use crate::cluster::kinds::{CLUSTER_KINDS, is_of_cluster};
use crate::crd;
use crate::messages::Stored;
use crate::recognise::{KINDS, Source, is_owner_of_owners, suspendable};

/// Between two looks at what is served.
const LOOK_AGAIN: Duration = Duration::from_secs(20);
/// The same where a look or a watch said that something is not as before: it counts if the next look says the same. One
/// of several API servers may be of another version, for the time of an upgrade.
const LOOK_SOON: Duration = Duration::from_secs(5);

/// Without these there is nothing to decide about, or nobody's share is known. All other kinds can be done without for a
/// while: what depends on them waits.
const NEEDED: [&str; 3] = ["nodes", "pods", QUEUES];
const QUEUES: &str = "queues";
const CLAIMS: &str = "resourceclaims";
const SLICES: &str = "resourceslices";

/// What this cluster serves of what is watched.
pub(crate) struct Kinds {
    /// They say which pods are gangs, and what such objects name, each in the version that is the most stable.
    gangs: Vec<ApiResource>,
    /// Our own, by kind.
    own: Vec<String>,
    /// Of devices and claims for them.
    devices: BTreeSet<&'static str>,
}

pub(crate) async fn kinds(client: &Client) -> Result<Kinds, kube::Error> {
    // Not all groups: of those that others serve by servers of their own some are always down.
    let groups: BTreeSet<&str> = KINDS
        .iter()
        .map(|kind| kind.group)
        .chain(suspendable().map(|(group, _)| group))
        .chain(CLUSTER_KINDS.iter().map(|(group, ..)| *group))
        .chain([crd::GROUP, devices::GROUP])
        .collect();
    let groups: Vec<&str> = groups.into_iter().collect();
    let discovery = || Discovery::new(client.clone()).filter(&groups);
    // In one call, where the server can answer so.
    let discovery = match discovery().run_aggregated().await {
        Ok(discovery) => discovery,
        Err(_) => discovery().run().await?,
    };
    let mut kinds = Kinds { gangs: Vec::new(), own: Vec::new(), devices: BTreeSet::new() };
    for group in discovery.groups() {
        kinds.devices.extend(devices::served(group));
        for (kind, can) in group.resources_by_stability() {
            let says =
                Source::of_kind(&kind.group, &kind.kind).is_some() || is_of_cluster(&kind.group, &kind.kind);
            if (says || is_owner_of_owners(&kind.group, &kind.kind)) && can.supports_operation(verbs::WATCH) {
                kinds.gangs.push(kind);
            } else if kind.group == crd::GROUP {
                kinds.own.push(kind.kind);
            }
        }
    }
    kinds.gangs.sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural)));
    Ok(kinds)
}

/// Where lists go that are to be read.
pub(crate) trait Sink {
    /// Its name, for as long as the process lives.
    fn name(&self, list: String) -> &'static str;
    /// Reads a list. `version` is how the kind is served, where it is read in any version.
    fn read<K>(
        &mut self,
        list: &'static str,
        version: Option<&ApiResource>,
        open: impl Fn(Option<&ApiResource>) -> (Api<K>, Convert<K>) + Send + Sync + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static;
}

/// Reads a list of a kind that is known in one version alone.
fn read<K>(
    sink: &mut impl Sink,
    client: &Client,
    list: &'static str,
    open: impl Fn(&Client) -> (Api<K>, Convert<K>) + Send + Sync + 'static,
) where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let client = client.clone();
    sink.read(list, None, move |_| open(&client));
}

/// What every cluster has.
pub(crate) fn read_core(client: &Client, sink: &mut impl Sink) {
    read(sink, client, "nodes", watch::nodes);
    read(sink, client, "pods", watch::pods);
    read(sink, client, "namespaces", watch::namespaces);
    read(sink, client, "poddisruptionbudgets", watch::budgets);
    read(sink, client, "persistentvolumeclaims", |client| watch::stored(client, Stored::Claim));
    read(sink, client, "persistentvolumes", |client| watch::stored(client, Stored::Volume));
    read(sink, client, "storageclasses", |client| watch::stored(client, Stored::Class));
    read(sink, client, "csidrivers", |client| watch::stored(client, Stored::Driver));
    read(sink, client, "csinodes", |client| watch::stored(client, Stored::Node));
    read(sink, client, "csistoragecapacities", |client| watch::stored(client, Stored::Capacity));
    read(sink, client, "volumeattachments", |client| watch::stored(client, Stored::Attachment));
}

/// What this one serves.
pub(crate) fn read_found(client: &Client, kinds: Kinds, sink: &mut impl Sink) {
    for kind in &kinds.own {
        match kind.as_str() {
            "Queue" => read(sink, client, QUEUES, watch::queues),
            "SharePolicy" => read(sink, client, "sharepolicies", watch::policies),
            "Fabric" => read(sink, client, "fabrics", watch::fabrics),
            "NodeTopology" => read(sink, client, "nodetopologies", watch::topologies),
            _ => {}
        }
    }
    for kind in &kinds.devices {
        match *kind {
            "ResourceSlice" => read(sink, client, SLICES, devices::slices),
            "DeviceClass" => read(sink, client, "deviceclasses", devices::classes),
            "ResourceClaim" => read(sink, client, CLAIMS, devices::claims),
            "ResourceClaimTemplate" => read(sink, client, "resourceclaimtemplates", devices::templates),
            _ => read(sink, client, "devicetaintrules", devices::rules),
        }
    }
    for kind in kinds.gangs {
        let list = sink.name(format!("{}.{}", kind.plural, kind.group));
        let (client, first) = (client.clone(), kind.clone());
        sink.read(list, Some(&kind), move |kind| watch::objects(&client, kind.unwrap_or(&first)));
    }
}

/// A kind that is watched, and how.
struct List {
    serving: channel::Sender<Serving>,
    /// What the last look said of it, where that is not how it is watched.
    other: Option<Serving>,
    /// What this look says.
    seen: Serving,
    /// It is always served.
    is_core: bool,
}

/// Lists that are watched, by name, from when they are read on.
pub(super) struct Watches {
    desk: mpsc::Sender<Message>,
    lists: HashMap<&'static str, List>,
    /// Something is not served as it was.
    look: Arc<Notify>,
    /// Whether claims are known. Until then no devices are: those that have a user would look free.
    are_claims_known: Arc<channel::Sender<bool>>,
    is_core: bool,
}

impl Sink for Watches {
    fn name(&self, list: String) -> &'static str {
        // As many as there are kinds, for as long as the process lives.
        self.lists.keys().find(|known| **known == list).copied().unwrap_or_else(|| list.leak())
    }

    fn read<K>(
        &mut self,
        list: &'static str,
        version: Option<&ApiResource>,
        open: impl Fn(Option<&ApiResource>) -> (Api<K>, Convert<K>) + Send + Sync + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let seen = Serving::As(version.cloned());
        if let Some(list) = self.lists.get_mut(list) {
            list.seen = seen;
            return;
        }
        let (serving, serves) = channel::channel(seen.clone());
        let watching = Watching {
            list,
            desk: self.desk.clone(),
            serving: serves,
            look: Arc::clone(&self.look),
            is_needed: NEEDED.contains(&list),
            opens: (list == CLAIMS).then(|| Arc::clone(&self.are_claims_known)),
            after: (list == SLICES).then(|| self.are_claims_known.subscribe()),
        };
        tokio::spawn(watching.run(open));
        self.lists.insert(list, List { serving, other: None, seen, is_core: self.is_core });
    }
}

impl Watches {
    pub(super) fn new(desk: mpsc::Sender<Message>) -> Self {
        let are_claims_known = Arc::new(channel::channel(false).0);
        Self { desk, lists: HashMap::new(), look: Arc::default(), are_claims_known, is_core: true }
    }

    pub(super) fn names(&self) -> Vec<&'static str> {
        self.lists.keys().copied().collect()
    }

    /// Takes what a look says. What is new is watched at once; anything else changes if the look before said the same.
    /// Whether that is to be seen yet.
    pub(super) fn take(&mut self, client: &Client, kinds: Kinds) -> bool {
        self.is_core = false;
        for list in self.lists.values_mut().filter(|list| !list.is_core) {
            list.seen = Serving::Not;
        }
        read_found(client, kinds, self);
        if !self.lists.contains_key(CLAIMS) {
            self.are_claims_known.send_replace(true);
        }
        let mut is_open = false;
        for (name, list) in &mut self.lists {
            if *list.serving.borrow() == list.seen {
                list.other = None;
            } else if list.other.as_ref() == Some(&list.seen) {
                list.other = None;
                if list.seen == Serving::Not {
                    let error = "its objects count as deleted until it is served again";
                    let trouble = Trouble::new("a kind is not served any more", *name, error);
                    let _ = self.desk.send(Message::Trouble(trouble));
                } else {
                    tracing::info!(kind = *name, version = ?list.seen, "watches a kind in another version");
                }
                list.serving.send_replace(list.seen.clone());
            } else {
                list.other = Some(list.seen.clone());
                is_open = true;
            }
        }
        is_open
    }

    /// Looks now and then what is served, and sooner where something is not as it was.
    pub(super) async fn keep(mut self, client: Client) {
        let look = Arc::clone(&self.look);
        let mut is_open = false;
        loop {
            tokio::time::sleep(LOOK_SOON).await;
            if !is_open {
                let _ = tokio::time::timeout(LOOK_AGAIN - LOOK_SOON, look.notified()).await;
            }
            match kinds(&client).await {
                Ok(kinds) => is_open = self.take(&client, kinds),
                Err(error) => {
                    let trouble = Trouble::new("cannot ask which kinds are served", "API groups", error);
                    let _ = self.desk.send(Message::Trouble(trouble));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing answers it.
    fn client() -> Client {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            std::future::pending::<()>().await;
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        });
        Client::new(service, "default")
    }

    fn served(version: Option<&str>) -> Kinds {
        let group = |version: &str| ApiResource {
            group: "scheduling.k8s.io".to_owned(),
            version: version.to_owned(),
            api_version: format!("scheduling.k8s.io/{version}"),
            kind: "PodGroup".to_owned(),
            plural: "podgroups".to_owned(),
        };
        Kinds { gangs: version.map(group).into_iter().collect(), own: Vec::new(), devices: BTreeSet::new() }
    }

    /// Of several API servers one is upgraded after the other: each says what it serves itself.
    #[test]
    fn a_version_changes_and_a_kind_is_gone_only_when_two_looks_in_a_row_say_so() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (desk, messages) = mpsc::channel();
            let mut watches = Watches::new(desk);
            let client = client();
            let now =
                |watches: &Watches| match &*watches.lists["podgroups.scheduling.k8s.io"].serving.borrow() {
                    Serving::As(kind) => kind.as_ref().map(|kind| kind.version.clone()),
                    Serving::Not => None,
                };
            let mut look = |served| (watches.take(&client, served), now(&watches));
            let (old, new) = (Some("v1alpha2".to_owned()), Some("v1beta1".to_owned()));
            assert_eq!(
                look(served(Some("v1alpha2"))),
                (false, old.clone()),
                "what is new is watched at once"
            );
            assert_eq!(look(served(Some("v1beta1"))), (true, old.clone()));
            assert_eq!(look(served(Some("v1alpha2"))), (false, old.clone()), "that was another API server");
            assert_eq!(look(served(Some("v1beta1"))), (true, old));
            assert_eq!(look(served(Some("v1beta1"))), (false, new.clone()));
            assert_eq!(look(served(None)), (true, new));
            assert_eq!(look(served(None)), (false, None));
            assert_eq!(look(served(None)), (false, None));
            let said = messages.try_iter().filter(|message| matches!(message, Message::Trouble(_))).count();
            assert_eq!(said, 1, "it is said once");
        });
    }
}
