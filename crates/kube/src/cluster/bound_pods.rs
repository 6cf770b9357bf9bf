//! The pods that hold a node, or are on their way there: what volumes and the rules between pods have to know of them.
//!
//! Of most pods that is their labels, packed. Those with claims or rules of their own are kept with these.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use phalanx_model::NodeName;

use crate::api::{Pod, PodSpec};
use crate::filter::{Also, unsupported};

/// What others may ask of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Face {
    /// Keys and values, each ended by a zero byte; and whether it is being deleted.
    Plain { labels: Arc<str>, is_going: bool },
    /// It has claims, or rules for the pods around it.
    Particular(Arc<Pod>),
}

/// Pods by `namespace/name`.
#[derive(Default)]
pub(crate) struct BoundPods {
    pods: BTreeMap<Arc<str>, (NodeName, Face)>,
    by_node: BTreeMap<NodeName, BTreeSet<Arc<str>>>,
    /// Those with claims, by node.
    with_claims: BTreeMap<NodeName, BTreeMap<Box<str>, Arc<Pod>>>,
}

impl Face {
    pub(crate) fn of(pod: &Pod) -> Self {
        if unsupported(pod, Also::default()).is_empty() {
            let pairs = pod.metadata.labels.iter().flatten();
            let labels: String = pairs.map(|(key, value)| format!("{key}\0{value}\0")).collect();
            return Self::Plain {
                labels: labels.into(),
                is_going: pod.metadata.deletion_timestamp.is_some(),
            };
        }
        let Pod { metadata, spec, .. } = pod;
        let metadata = ObjectMeta {
            name: metadata.name.clone(),
            namespace: metadata.namespace.clone(),
            uid: metadata.uid.clone(),
            labels: metadata.labels.clone(),
            deletion_timestamp: metadata.deletion_timestamp.clone(),
            ..ObjectMeta::default()
        };
        let claims = spec
            .volumes
            .iter()
            .filter(|volume| volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some());
        let spec = PodSpec {
            node_selector: spec.node_selector.clone(),
            affinity: spec.affinity.clone(),
            tolerations: spec.tolerations.clone(),
            topology_spread_constraints: spec.topology_spread_constraints.clone(),
            volumes: claims.cloned().collect(),
            ..PodSpec::default()
        };
        Self::Particular(Arc::new(Pod { metadata, spec, ..Pod::default() }))
    }

    /// As an object, as far as it is known.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Arc<Pod> {
        let (labels, is_going) = match self {
            Self::Particular(pod) => return Arc::clone(pod),
            Self::Plain { labels, is_going } => (labels, *is_going),
        };
        let mut words = labels.split_terminator('\0');
        let mut pairs = BTreeMap::new();
        while let (Some(key), Some(value)) = (words.next(), words.next()) {
            pairs.insert(key.to_owned(), value.to_owned());
        }
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: Some(pairs),
            deletion_timestamp: is_going.then_some(Time(jiff::Timestamp::UNIX_EPOCH)),
            ..ObjectMeta::default()
        };
        Arc::new(Pod { metadata, ..Pod::default() })
    }

    /// What it asks of volumes or of others, if anything.
    pub(crate) const fn particular(&self) -> Option<&Arc<Pod>> {
        match self {
            Self::Plain { .. } => None,
            Self::Particular(pod) => Some(pod),
        }
    }

    pub(crate) fn has_claims(&self) -> bool {
        self.particular().is_some_and(|pod| !pod.spec.volumes.is_empty())
    }
}

impl BoundPods {
    pub(crate) fn get(&self, path: &str) -> Option<&(NodeName, Face)> {
        self.pods.get(path)
    }

    pub(crate) fn insert(&mut self, path: &str, node: NodeName, face: Face) {
        if let Some(pod) = face.particular().filter(|_| face.has_claims()) {
            self.with_claims.entry(node.clone()).or_default().insert(path.into(), Arc::clone(pod));
        }
        self.remove_from_node(path);
        let path: Arc<str> = path.into();
        self.by_node.entry(node.clone()).or_default().insert(Arc::clone(&path));
        self.pods.insert(path, (node, face));
    }

    pub(crate) fn remove(&mut self, path: &str) -> Option<(NodeName, Face)> {
        self.remove_from_node(path);
        let (node, face) = self.pods.remove(path)?;
        if let Some(here) = self.with_claims.get_mut(&node) {
            here.remove(path);
            if here.is_empty() {
                self.with_claims.remove(&node);
            }
        }
        Some((node, face))
    }

    fn remove_from_node(&mut self, path: &str) {
        let Some((node, _)) = self.pods.get(path) else { return };
        let Some(here) = self.by_node.get_mut(node) else { return };
        here.remove(path);
        if here.is_empty() {
            self.by_node.remove(node);
        }
    }

    /// The pods of a node.
    pub(crate) fn on(&self, node: &NodeName) -> impl Iterator<Item = Arc<Pod>> {
        let paths = self.by_node.get(node).into_iter().flatten();
        paths.filter_map(|path| Some(named(path, &self.pods.get(path)?.1)))
    }

    /// Every pod with its node.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&NodeName, Arc<Pod>)> {
        self.pods.iter().map(|(path, (node, face))| (node, named(path, face)))
    }

    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    /// Pods of a node with claims.
    pub(crate) fn with_claims(&self, node: &NodeName) -> impl Iterator<Item = &Pod> {
        self.with_claims.get(node).into_iter().flat_map(BTreeMap::values).map(|pod| &**pod)
    }
}

/// A pod of the crowd as an object.
pub(crate) fn named(path: &str, face: &Face) -> Arc<Pod> {
    let (namespace, name) = path.split_once('/').unwrap_or(("", path));
    face.pod(namespace, name)
}
