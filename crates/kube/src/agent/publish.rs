//! The `NodeTopology` of a node, written when it changed.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::Metrics;
use super::hardware::Inventory;
use crate::crd::{NodeTopology, NodeTopologySpec};
use crate::quantity::Amount;
use crate::world::ANSWER;

/// Who owns the fields, in server-side apply.
const FIELD_MANAGER: &str = "phalanx-node";
/// Looks after which the object is read again, although it did not change: somebody may have deleted it.
const CHECK_EVERY: u32 = 10;

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
    looks: u32,
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
            looks: 0,
            metrics,
        }
    }

    /// Writes what was found, if the object does not say so already.
    pub(super) async fn publish(&mut self, inventory: &Inventory) -> Result<(), String> {
        let spec = self.spec(inventory);
        self.looks = self.looks.wrapping_add(1);
        if self.written.is_none() || self.looks.is_multiple_of(CHECK_EVERY) {
            // A node that left and came back is another one, and what the old one owned goes with it.
            self.owner = owner(&within(self.nodes.get(&self.node)).await?);
            let found = within(self.api.get_opt(&self.node)).await?;
            let is_owned = found.as_ref().is_some_and(|found| {
                let of = found.owner_references().iter().map(|owner| owner.uid.as_str());
                of.eq(self.owner[0]["uid"].as_str())
            });
            self.written = found.map(|found| found.spec).filter(|_| is_owned);
        }
        if self.written.as_ref() == Some(&spec) {
            return Ok(());
        }
        let body = json!({
            "apiVersion": "phalanx.dev/v1alpha1",
            "kind": "NodeTopology",
            "metadata": { "name": self.node, "ownerReferences": self.owner },
            "spec": spec,
        });
        // Nobody else writes these fields; what an earlier version wrote is replaced.
        let params = PatchParams::apply(FIELD_MANAGER).force();
        within(self.api.patch(&self.node, &params, &Patch::Apply(body))).await?;
        self.metrics.writes.inc();
        let (devices, lost) = (spec.devices.len(), spec.lost());
        tracing::info!(node = self.node, shape = spec.shape, devices, unhealthy = %lost, "the NodeTopology is written");
        self.written = Some(spec);
        Ok(())
    }

    fn spec(&self, inventory: &Inventory) -> NodeTopologySpec {
        let mut spec = NodeTopologySpec::of_machine(inventory.machine());
        for (index, device) in (0..).zip(&mut spec.devices) {
            device.unhealthy = inventory.lost().contains(index);
        }
        let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        spec.cpu_milli = self.cpu_milli.map_or(spec.cpu_milli, signed);
        spec.memory_bytes = self.memory_bytes.map_or(spec.memory_bytes, signed);
        spec
    }
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
