//! The health of nodes, as their agents publish it, and what operators ask of the agents.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use phalanx_health::Line;
use phalanx_model::{Grade, NodeName};
use serde_json::json;

use super::{Cluster, NodeView, UserError, list};
use crate::crd::NodeTopology;
use crate::crd::requests::Request;

/// How long an agent is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What agents published.
#[derive(Clone, Debug, Default)]
pub struct HealthSeen {
    /// What is not ok, worst first.
    pub lines: Vec<Line>,
    /// Nodes with agents, and their devices.
    pub nodes: usize,
    pub devices: usize,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is done, and this is the grade now.
    Done(Grade),
    /// The agent has not answered yet.
    Waits,
}

impl Cluster {
    /// Of all nodes, or of one.
    ///
    /// # Errors
    /// [`UserError::NoDefinitions`] where our resources are not served; otherwise when the API server does not answer, this
    /// user may not read them, or the node has no agent.
    pub fn health(&self, node: Option<&NodeName>) -> Result<HealthSeen, UserError> {
        let found = match node {
            Some(node) => vec![self.topology(node)?],
            None => match self.runtime.block_on(list(&self.topologies(), &ListParams::default())) {
                Err(UserError::Server { code: 404, .. }) => return Err(UserError::NoDefinitions),
                found => found?,
            },
        };
        let devices = found.iter().map(|found| found.spec.devices.len()).sum();
        let mut lines: Vec<Line> = found.iter().flat_map(lines).collect();
        // Stable: nodes and devices keep their order.
        lines.sort_by_key(|line| std::cmp::Reverse(line.grade));
        Ok(HealthSeen { lines, nodes: found.len(), devices })
    }

    /// Asks the agent of a node, and waits a while for its answer.
    ///
    /// # Errors
    /// When the API server does not answer, this user may not, the node has no agent or no such device, or there is nothing
    /// to clear.
    pub fn ask_agent(
        &self,
        node: &NodeName,
        device: Option<u32>,
        request: &Request,
    ) -> Result<Asked, UserError> {
        let found = self.topology(node)?;
        let there = found.spec.devices.len();
        if device.is_some_and(|device| device as usize >= there) {
            return Err(UserError::Unreadable(format!("node {node} has {there} GPUs, numbered from 0")));
        }
        let is_clear = matches!(request, Request::Clear { .. });
        if is_clear && grade(&found, device) == Grade::Ok {
            return Err(UserError::Unreadable("it is ok already".to_owned()));
        }
        let (key, value) = request.annotation(device);
        let patch = json!({ "metadata": { "annotations": { &key: value } } });
        let api = self.topologies();
        self.runtime.block_on(api.patch(node.as_str(), &PatchParams::default(), &Patch::Merge(patch)))?;
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            std::thread::sleep(LOOK_EVERY);
            let found = self.topology(node)?;
            if !found.annotations().contains_key(&key) {
                return Ok(Asked::Done(grade(&found, device)));
            }
        }
        Ok(Asked::Waits)
    }

    pub(super) fn topologies(&self) -> Api<NodeTopology> {
        Api::all(self.client.clone())
    }

    fn topology(&self, node: &NodeName) -> Result<NodeTopology, UserError> {
        let found = self.runtime.block_on(self.topologies().get_opt(node.as_str()))?;
        let none = || UserError::Unreadable(format!("no agent has said what stands in node {node}"));
        found.ok_or_else(none)
    }
}

/// Which nodes and GPUs are closed by their health.
pub(super) fn mark(views: &mut [NodeView], found: &[NodeTopology]) {
    let found: BTreeMap<String, &NodeTopology> =
        found.iter().map(|found| (found.name_any(), found)).collect();
    for view in views {
        let Some(found) = found.get(&view.name) else { continue };
        for (device, _) in found.spec.grades().filter(|(_, of)| of.grade().is_closed()) {
            match device {
                Some(device) => view.closed.push(device),
                None if view.state == "open" => view.state = "unhealthy",
                None => {}
            }
        }
    }
}

fn lines(found: &NodeTopology) -> Vec<Line> {
    let Ok(node) = NodeName::new(found.name_any()) else { return Vec::new() };
    found.spec.grades().map(|(device, of)| of.line(&node, device)).collect()
}

fn grade(found: &NodeTopology, device: Option<u32>) -> Grade {
    let of = found.spec.grades().find(|(of, _)| *of == device);
    of.map_or(Grade::Ok, |(_, of)| of.grade())
}
