//! The `NodeTopology` of a node, written when it changed.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::Metrics;
use super::hardware::Inventory;
use super::health::{Health, Published, STATE};
use crate::crd::requests::Request;
use crate::crd::{GradeSpec, NodeTopology, NodeTopologySpec};
use crate::quantity::Amount;
use crate::world::{ANSWER, Trouble};

/// Who owns the fields, in server-side apply.
const FIELD_MANAGER: &str = "phalanx-node";
/// Looks after which the object is read again, although it did not change: somebody may have deleted it.
const CHECK_EVERY: u32 = 10;
/// Somebody else changed it meanwhile.
const CONFLICT: u16 = 409;
const NOT_FOUND: u16 = 404;

/// When the object may have to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// Something changed: a grade is written at once, and other words for it with the next look.
    Change,
    /// The machine was looked at. Evidence that changes no grade is written at every tenth look.
    Look,
    /// An operator asked for something.
    Request,
}

pub(super) struct Publisher {
    api: Api<NodeTopology>,
    nodes: Api<Node>,
    node: String,
    owner: Value,
    /// As the kubelet counts them: a container sees its own limits.
    cpu_milli: Option<u64>,
    memory_bytes: Option<u64>,
    /// As it was written or found last.
    written: Option<NodeTopologySpec>,
    /// The change of [`Health`] that was written last.
    version: u64,
    looks: u32,
    /// Requests that are followed, and not removed yet as far as is known: what is written for them is seen with them.
    followed: BTreeSet<(String, String)>,
    /// They could not be removed.
    is_removal_due: bool,
    metrics: Metrics,
}

impl Publisher {
    pub(super) fn new(client: Client, node: &Node, metrics: Metrics) -> Self {
        let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
        let amount = |name: &str| Amount::of(capacity?.get(name)?).ok();
        Self {
            api: Api::all(client.clone()),
            nodes: Api::all(client),
            node: node.name_any(),
            owner: owner(node),
            cpu_milli: amount("cpu").map(Amount::milli_up),
            memory_bytes: amount("memory").map(Amount::units_up),
            written: None,
            version: 0,
            followed: BTreeSet::new(),
            is_removal_due: false,
            looks: 0,
            metrics,
        }
    }

    /// The object of an earlier agent of this node; none either where the definitions are not there yet.
    pub(super) async fn found(&self) -> Result<Option<NodeTopology>, String> {
        let found = match tokio::time::timeout(ANSWER, self.api.get(&self.node)).await {
            Ok(Err(kube::Error::Api(status))) if status.code == NOT_FOUND => None,
            Ok(found) => Some(found.map_err(|error| error.to_string())?),
            Err(_) => return Err(format!("no answer within {ANSWER:?}")),
        };
        Ok(found.filter(|found| self.is_owned(found)))
    }

    /// A node that left and came back is another one, and what the old one owned goes with it.
    fn is_owned(&self, found: &NodeTopology) -> bool {
        let of = found.owner_references().iter().map(|owner| owner.uid.as_str());
        of.eq(self.owner[0]["uid"].as_str())
    }

    /// Writes what was found, if the object does not say so already. The version that was written, if it was.
    pub(super) async fn publish(
        &mut self,
        inventory: &Inventory,
        health: &Health,
        occasion: Occasion,
    ) -> Result<Option<String>, String> {
        let version = *health.changes().borrow();
        let published = health.published();
        let spec = self.spec(inventory, &published);
        let is_look = occasion == Occasion::Look;
        self.looks = self.looks.wrapping_add(u32::from(is_look));
        let is_check = is_look && self.looks.is_multiple_of(CHECK_EVERY);
        if self.written.is_none() || is_check {
            self.owner = owner(&within(self.nodes.get(&self.node)).await?);
            self.written = self.found().await?.map(|found| found.spec);
        }
        let is_known = self.written.as_ref() == Some(&spec);
        let is_graded_so = self.written.as_ref().is_some_and(|written| grades(written) == grades(&spec));
        let is_state_due = version != self.version && (is_check || occasion == Occasion::Request);
        let waits = occasion == Occasion::Change && is_graded_so;
        if waits || (is_known && !is_state_due) {
            return Ok(None);
        }
        let annotations: BTreeMap<&str, String> =
            published.state.into_iter().map(|state| (STATE, state)).collect();
        let body = json!({
            "apiVersion": "phalanx.dev/v1alpha1",
            "kind": "NodeTopology",
            "metadata": { "name": self.node, "ownerReferences": self.owner, "annotations": annotations },
            "spec": spec,
        });
        // Nobody else writes these fields; what an earlier version wrote is replaced.
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = within(self.api.patch(&self.node, &params, &Patch::Apply(body))).await?;
        self.metrics.writes.inc();
        let (devices, lost) = (spec.devices.len(), spec.lost());
        let graded = spec.grades().count();
        tracing::info!(node = self.node, shape = spec.shape, devices, unhealthy = %lost, graded, "the NodeTopology is written");
        self.written = Some(spec);
        self.version = version;
        Ok(written.resource_version())
    }

    /// It was deleted: it is written again.
    pub(super) fn forget(&mut self) {
        self.written = None;
    }

    /// What operators ask for in annotations of the object is done and written, and then they are removed.
    pub(super) async fn obey(
        &mut self,
        found: &NodeTopology,
        inventory: &Inventory,
        health: &Health,
    ) -> Result<(), String> {
        let before = std::mem::take(&mut self.followed);
        for (key, value) in found.annotations() {
            let Some(request) = Request::of(key, value) else { continue };
            let asked = (key.clone(), value.clone());
            if !before.contains(&asked) {
                self.follow(&asked, request, health);
            }
            self.followed.insert(asked);
        }
        if self.followed.is_empty() {
            self.is_removal_due = false;
            return Ok(());
        }
        self.is_removal_due = true;
        let written = self.publish(inventory, health, Occasion::Request).await?;
        // Where somebody changed it meanwhile, the next event says what is still asked.
        let version = written.or_else(|| found.resource_version());
        let gone: BTreeMap<&String, Value> =
            self.followed.iter().map(|(key, _)| (key, Value::Null)).collect();
        let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": version, "annotations": gone } }));
        let params = PatchParams::default();
        let removed = self.api.patch(&self.node, &params, &patch);
        match tokio::time::timeout(ANSWER, removed).await {
            Ok(Err(kube::Error::Api(status))) if status.code == CONFLICT => {}
            Ok(removed) => drop(removed.map_err(|error| error.to_string())?),
            Err(_) => return Err(format!("no answer within {ANSWER:?}")),
        }
        self.is_removal_due = false;
        Ok(())
    }

    /// Requests that were followed and could not be removed: an agent that starts later would follow them again.
    pub(super) async fn remove_again(
        &mut self,
        inventory: &Inventory,
        health: &Health,
    ) -> Result<(), String> {
        if !self.is_removal_due {
            return Ok(());
        }
        match self.found().await? {
            Some(found) => self.obey(&found, inventory, health).await,
            None => Ok(()),
        }
    }

    fn follow(
        &self,
        (key, value): &(String, String),
        request: Result<(Option<u32>, Request), String>,
        health: &Health,
    ) {
        match request.and_then(|(device, request)| health.obey(device, request)) {
            Ok(()) => {
                tracing::info!(node = self.node, request = key, value, "an operator asked, and it is done");
            }
            Err(why) => {
                let about = format!("NodeTopology {}", self.node);
                self.metrics.trouble(&Trouble::new("a request cannot be followed", about, why));
            }
        }
    }

    fn spec(&self, inventory: &Inventory, health: &Published) -> NodeTopologySpec {
        let mut spec = NodeTopologySpec::of_machine(inventory.machine());
        spec.health = health.grades.get(&None).cloned();
        for (index, device) in (0..).zip(&mut spec.devices) {
            device.unhealthy = inventory.lost().contains(index);
            device.uuid = inventory.uuid(index);
            device.health = health.grades.get(&Some(index)).cloned();
        }
        let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        spec.cpu_milli = self.cpu_milli.map_or(spec.cpu_milli, signed);
        spec.memory_bytes = self.memory_bytes.map_or(spec.memory_bytes, signed);
        spec
    }
}

/// What cannot wait.
fn grades(spec: &NodeTopologySpec) -> Vec<(Option<u32>, GradeSpec)> {
    spec.grades().map(|(device, of)| (device, of.grade)).collect()
}

fn owner(node: &Node) -> Value {
    json!([{ "apiVersion": "v1", "kind": "Node", "name": node.name_any(), "uid": node.uid() }])
}

/// One call; longer than [`ANSWER`] nobody waits.
pub(super) async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWER, call).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {ANSWER:?}")),
    }
}
