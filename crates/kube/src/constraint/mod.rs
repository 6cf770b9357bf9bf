//! What pods request beside the resources of a node: volumes, claims for devices, and rules between pods.
//!
//! Each of them narrows the nodes of a gang by a condition before the engine decides ([`crate::cluster::node_sets`]), checks the
//! placement as a whole before anything is bound, prepares what a binding needs, and undoes that if the start comes to nothing.
//!
//! | module | narrows | checks | prepares and undoes |
//! |---|---|---|---|
//! | `pod_affinity` | affinity, anti-affinity and spread of pods | the same, with all members in place | – |
//! | `volumes` | nodes that reach or can make the volumes of a pod | the same | writes claims and volumes |
//! | `claims` | nodes whose devices can serve claims | – (they are allocated) | allocates and reserves claims |
//! | `serial` | gangs with equal rules are decided one after another | – | – |
//! | `division` | gangs whose own pods must be in different domains | – | – |

pub(crate) mod claims;
pub(crate) mod division;
pub(crate) mod pod_affinity;
pub(crate) mod serial;
pub(crate) mod volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::NodeName;

use crate::api::Pod;
use crate::cluster::Cluster;
use crate::cluster::bound_pods::{Face, named};
use crate::filter::Requirements;

use claims::ClaimState;
use division::Room;
use division::searches::Searches;
use pod_affinity::PodAffinity;
use serial::SerialQueues;
use volumes::{Broken, Preparation, VolumeState, claimant};

/// See the module.
#[derive(Default)]
pub(crate) struct Constraints {
    pub(crate) affinity: PodAffinity,
    pub(crate) volumes: VolumeState,
    pub(crate) claims: ClaimState,
    pub(crate) serial: SerialQueues,
    /// What is free by what is known now; nothing after a change.
    pub(crate) room: Option<Room>,
    pub(crate) searches: Searches,
    /// Labels of namespaces changed since the last [`Constraints::refresh`].
    pub(crate) has_namespaces: bool,
    /// Grows whenever a placement may hold that did not before.
    pub(crate) changes: u64,
    /// What pods hold beyond what was counted for their ranks, by `namespace/name`.
    beyond: BTreeMap<String, (NodeName, Requirements)>,
}

impl Constraints {
    /// A pod holds a node from now on.
    pub(crate) fn place_pod(&mut self, cluster: &mut Cluster, path: &str, node: &NodeName, face: &Face) {
        if let Some((there, known)) = cluster.bound_pods.get(path) {
            if there == node && known == face {
                return;
            }
            self.unplace_pod(cluster, path);
        }
        self.count_pod(cluster, path, (node, face), true);
        cluster.bound_pods.insert(path, node.clone(), face.clone());
    }

    /// A pod holds so much more of a node than was counted for its rank, until it holds no node.
    pub(crate) fn hold_beyond(
        &mut self,
        cluster: &mut Cluster,
        path: String,
        node: NodeName,
        more: Requirements,
    ) {
        cluster.nodes.other(node.as_str(), &more, true);
        self.beyond.insert(path, (node, more));
    }

    /// A pod holds no node any more.
    pub(crate) fn unplace_pod(&mut self, cluster: &mut Cluster, path: &str) {
        if let Some((node, more)) = self.beyond.remove(path) {
            cluster.nodes.other(node.as_str(), &more, false);
        }
        let Some((node, face)) = cluster.bound_pods.remove(path) else { return };
        self.count_pod(cluster, path, (&node, &face), false);
        self.changes += 1;
    }

    fn count_pod(&mut self, cluster: &Cluster, path: &str, (node, face): (&NodeName, &Face), is_there: bool) {
        if self.affinity.minds(face) {
            self.affinity.count(&named(path, face), cluster.nodes.as_counted(node), is_there);
        }
        if let Some(pod) = claimant(face) {
            self.volumes.occupy(pod, is_there);
        }
    }

    /// Counts again what depends on nodes and namespaces that changed.
    pub(crate) fn refresh(&mut self, cluster: &mut Cluster) {
        let moved = cluster.nodes.take_moved();
        let has_namespaces = std::mem::take(&mut self.has_namespaces);
        if !moved.is_empty() {
            self.changes += 1;
            self.volumes.nodes_have_moved();
            self.affinity.move_nodes(&moved, &cluster.nodes, &cluster.bound_pods);
        }
        if has_namespaces {
            self.changes += 1;
            self.affinity.relabel(cluster.queues.namespaces(), &cluster.nodes, &cluster.bound_pods);
        }
    }

    /// Whether pods can be on these nodes together; what their volumes need for that.
    ///
    /// # Errors
    /// Which rule or volume does not allow it.
    pub(crate) fn check(
        &mut self,
        cluster: &Cluster,
        pods: &[(Arc<Pod>, NodeName)],
    ) -> Result<Option<Preparation>, Broken> {
        self.affinity.check(pods, &cluster.nodes, &cluster.bound_pods)?;
        self.volumes.prepare(pods, &cluster.nodes, &cluster.bound_pods)
    }
}
