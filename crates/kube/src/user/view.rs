//! Jobs, their instances and nodes as people see them: what the objects say, and nothing that they do not.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::DynamicObject;
use phalanx_model::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::api::closing;
use crate::filter::{Capacity, DividedGpus, Held, Requirements};
use crate::gang::SUSPENDED;
use crate::gang::pods::{DEVICES, RANK};
use crate::messages::{EVICTED, STARTING, STOPPING, WAITING};
use crate::quantity::Amount;
use crate::recognise::names::phalanx::{self, QUEUE};
use crate::recognise::names::{ACK_NODE, GIVEN_BACK};
use crate::submit::{GPU, JOB, TRAINER, Trainer};

/// The labels by which controllers mark the pods of a job.
const POD_LABELS: [&str; 3] = ["batch.kubernetes.io/job-name", "training.kubeflow.org/job-name", JOB];

/// One job of a cluster.
#[derive(Clone, Debug, Serialize)]
pub struct JobView {
    pub name: String,
    pub namespace: String,
    /// `mpijob`, `pytorchjob` or `job`: what it was submitted as.
    pub trainer: &'static str,
    /// Of its object: `Job`, `MPIJob`. A document's own `kind` says what the document is.
    #[serde(rename = "object")]
    pub kind: String,
    /// `pending`, `held`, `starting`, `running`, `succeeded`, `failed`, `stopping`.
    pub state: &'static str,
    pub queue: String,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// Pods that it is to have.
    pub size: u64,
    /// Of all pods that it is to have.
    pub gpus: u64,
    /// Why it waits, or how it ended; may be empty.
    pub detail: String,
    pub instances: Vec<InstanceView>,
}

/// One pod of a job.
#[derive(Clone, Debug, Serialize)]
pub struct InstanceView {
    pub name: String,
    /// As Kubernetes calls its phase: `Running`.
    pub status: String,
    /// The first of them, or the launcher.
    pub is_chief: bool,
    pub created_at: Timestamp,
    pub gpus: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Devices of the node that the scheduler chose: `0-3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<String>,
    /// Why it has no node; may be empty.
    pub why: String,
}

/// Something that was told.
#[derive(Clone, Debug, Serialize)]
pub struct EventView {
    pub at: Timestamp,
    pub about: String,
    pub reason: String,
    pub message: String,
}

/// One node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeView {
    pub name: String,
    pub address: String,
    /// `open`, `cordoned`, `given_back`, `not_ready`, `unhealthy`.
    pub state: &'static str,
    /// Words of the labels `node-role.kubernetes.io/…`.
    pub roles: Vec<String>,
    /// What the label says by which nodes are given to the scheduler, `topology`, and taken back, `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// What its GPUs are called, where a label says so.
    pub model: String,
    /// Real GPUs, whole or not.
    pub gpus: u64,
    pub gpus_held: u64,
    /// If the node offers replicas of its GPUs, or MIG slices, and no whole ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<SharesView>,
    /// GPUs, or shares of GPUs, by job or pod, as `namespace/name`.
    pub held: BTreeMap<String, u64>,
    /// Of what its pods hold more than there is, as Kubernetes calls it: `nvidia.com/gpu`, `cpu`, `pods`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overcommitted: Vec<String>,
    /// GPUs that their health closes to new gangs, where this user may read it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub closed: Vec<u32>,
}

/// Shares of GPUs: replicas that NVIDIA's device plugin advertises, or MIG slices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharesView {
    /// In words: `8 GPUs, 4 replicas each (time-slicing)`.
    pub of: String,
    /// The resource that pods request.
    pub resource: String,
    /// Shares that pods can have.
    pub total: u64,
    pub held: u64,
    /// Labels that do not agree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What an object was submitted as; foreign ones are what their kind says.
pub(super) fn trainer(kind: &str, object: &DynamicObject) -> Trainer {
    let said = object.labels().get(TRAINER).and_then(|word| Trainer::of(word));
    said.unwrap_or(match kind {
        "MPIJob" => Trainer::Mpi,
        "PyTorchJob" => Trainer::PyTorch,
        _ => Trainer::Job,
    })
}

impl JobView {
    /// A suspended owner has no pods that could say what it waits for: what was told last of it does.
    pub fn learn(&mut self, events: &[EventView]) {
        let is_ours = |event: &&EventView| {
            event.about == self.name && [WAITING, STARTING, EVICTED, STOPPING].contains(&&*event.reason)
        };
        let last = events.iter().rfind(is_ours).filter(|event| event.reason == WAITING);
        if let Some(last) = last.filter(|_| self.state == "pending" && self.instances.is_empty()) {
            let before = std::mem::take(&mut self.detail);
            let parts = [before, last.message.clone()].into_iter().filter(|part| !part.is_empty());
            self.detail = parts.collect::<Vec<_>>().join("; ");
        }
    }

    /// Nothing for jobs of other schedulers.
    pub(super) fn of(kind: &str, object: &DynamicObject, pods: &[Pod]) -> Option<Self> {
        let templates = templates(object);
        let is_ours = templates.iter().any(|(_, _, template)| template["spec"]["schedulerName"] == "phalanx");
        if !is_ours && !object.labels().contains_key(JOB) {
            return None;
        }
        let name = object.name_any();
        let is_of = |pod: &&Pod| {
            let labels = pod.labels();
            POD_LABELS.iter().any(|label| labels.get(*label) == Some(&name))
        };
        let mut instances: Vec<InstanceView> = pods.iter().filter(is_of).map(InstanceView::of).collect();
        instances.sort_by(|a, b| phalanx_model::ids::natural_cmp(&a.name, &b.name));
        let status = &object.data["status"];
        let (state, detail) = state(object, &instances);
        let time = |field: &str| Some(Time(status[field].as_str()?.parse().ok()?));
        Some(Self {
            trainer: trainer(kind, object).word(),
            kind: kind.to_owned(),
            namespace: object.namespace().unwrap_or_default(),
            queue: object
                .annotations()
                .get(QUEUE)
                .or(object.labels().get(QUEUE))
                .cloned()
                .unwrap_or_default(),
            created_at: stamp(object.metadata.creation_timestamp.as_ref()),
            // The controller of Jobs starts the time when it creates the pods, and these may wait.
            started_at: time("startTime").filter(|_| state != "pending").map(|time| stamp(Some(&time))),
            finished_at: time("completionTime").map(|time| stamp(Some(&time))),
            size: templates.iter().map(|(_, count, _)| count).sum(),
            gpus: templates.iter().map(|(_, count, template)| count * gpus(&template["spec"])).sum(),
            name,
            state,
            detail,
            instances,
        })
    }
}

/// Pods of a job: role, how many, and their template.
fn templates(object: &DynamicObject) -> Vec<(String, u64, Value)> {
    let spec = &object.data["spec"];
    if spec["template"].is_object() {
        let count = spec["parallelism"].as_u64().unwrap_or(1);
        return vec![(String::new(), count, spec["template"].clone())];
    }
    let roles =
        ["mpiReplicaSpecs", "pytorchReplicaSpecs"].iter().filter_map(|field| spec[*field].as_object());
    roles
        .flatten()
        .map(|(role, of)| (role.clone(), of["replicas"].as_u64().unwrap_or(1), of["template"].clone()))
        .collect()
}

/// GPUs that a pod asks for. Amounts that are no numbers the API server does not take.
fn gpus(spec: &Value) -> u64 {
    amount_in(spec, GPU)
}

fn amount_in(spec: &Value, resource: &str) -> u64 {
    let containers = spec["containers"].as_array();
    let amount = |container: &Value| {
        let resources = &container["resources"];
        let text = resources["limits"][resource].as_str().or(resources["requests"][resource].as_str())?;
        Some(Amount::parse(text).ok()?.units_up())
    };
    containers.into_iter().flatten().filter_map(amount).sum()
}

/// Where it stands, and why it waits or how it ended.
fn state(object: &DynamicObject, instances: &[InstanceView]) -> (&'static str, String) {
    let status = &object.data["status"];
    let conditions = status["conditions"].as_array();
    let holds = |kind: &str| {
        let is_it = |condition: &&Value| condition["type"] == kind && condition["status"] == "True";
        let condition = conditions.into_iter().flatten().find(is_it)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        Some([text("reason"), text("message")].map(str::to_owned).into_iter().filter(|t| !t.is_empty()))
    };
    let said = |parts: Vec<String>| parts.join(": ");
    if let Some(how) = holds("Failed") {
        return ("failed", said(how.collect()));
    }
    if ["Complete", "Succeeded"].into_iter().any(|kind| holds(kind).is_some()) {
        return ("succeeded", String::new());
    }
    if object.metadata.deletion_timestamp.is_some() {
        return ("stopping", String::new());
    }
    let spec = &object.data["spec"];
    let is_suspended = spec["suspend"] == true || spec["runPolicy"]["suspend"] == true;
    if is_suspended {
        return match object.annotations().get(SUSPENDED) {
            Some(why) => ("pending", why.clone()),
            None => ("held", "somebody suspended it".to_owned()),
        };
    }
    let is_running = |instance: &InstanceView| matches!(instance.status.as_str(), "Running" | "Succeeded");
    if !instances.is_empty() && instances.iter().all(is_running) {
        return ("running", String::new());
    }
    if instances.iter().any(|instance| instance.node.is_some()) {
        return ("starting", String::new());
    }
    let why = instances.iter().map(|instance| &instance.why).find(|why| !why.is_empty());
    ("pending", why.cloned().unwrap_or_default())
}

impl InstanceView {
    fn of(pod: &Pod) -> Self {
        let (labels, annotations) = (pod.labels(), pod.annotations());
        let role = labels.get("training.kubeflow.org/replica-type").map(String::as_str);
        let index = labels.get("batch.kubernetes.io/job-completion-index").map(String::as_str);
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.clone()).unwrap_or_default();
        let is_going = pod.metadata.deletion_timestamp.is_some();
        let spec = serde_json::to_value(&pod.spec).unwrap_or_default();
        Self {
            name: pod.name_any(),
            status: if is_going { "Terminating".to_owned() } else { phase },
            is_chief: matches!(role, Some("launcher" | "master")) || (role.is_none() && index == Some("0")),
            created_at: stamp(pod.metadata.creation_timestamp.as_ref()),
            gpus: gpus(&spec),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            rank: annotations.get(RANK).and_then(|rank| rank.parse().ok()),
            devices: annotations.get(DEVICES).cloned(),
            why: unscheduled(pod).unwrap_or_default(),
        }
    }
}

/// What the scheduler wrote onto a pod that waits.
fn unscheduled(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let waits = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    if waits.status == "True" { None } else { waits.message.clone() }
}

impl EventView {
    pub(super) fn of(event: &Event) -> Self {
        let at = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref());
        let at = at.or(event.metadata.creation_timestamp.as_ref());
        Self {
            at: stamp(at),
            about: event.involved_object.name.clone().unwrap_or_default(),
            reason: event.reason.clone().unwrap_or_default(),
            message: event.message.clone().unwrap_or_default(),
        }
    }
}

/// Nodes in natural order, with what stands on each.
pub(super) fn nodes(nodes: &[Node], pods: &[Pod]) -> Vec<NodeView> {
    let mut views: Vec<NodeView> = nodes.iter().map(NodeView::of).collect();
    views.sort_by(|a, b| phalanx_model::ids::natural_cmp(&a.name, &b.name));
    let at: BTreeMap<String, usize> =
        views.iter().enumerate().map(|(at, node)| (node.name.clone(), at)).collect();
    let mut all: Vec<Held> = views.iter().map(|_| Held::default()).collect();
    for pod in pods {
        let Some(node) = pod.spec.as_ref().and_then(|spec| at.get(spec.node_name.as_ref()?)) else {
            continue;
        };
        if let (Some(all), Some(needs)) = (all.get_mut(*node), requirements(pod)) {
            all.add(&needs);
        }
        let Some(view) = views.get_mut(*node) else { continue };
        let resource = view.shares.as_ref().map_or(GPU, |shares| &shares.resource);
        let held = amount_in(&serde_json::to_value(&pod.spec).unwrap_or_default(), resource);
        if held == 0 {
            continue;
        }
        let job = POD_LABELS.iter().find_map(|label| pod.labels().get(*label)).cloned();
        let name = job.unwrap_or_else(|| pod.name_any());
        *view.held.entry(format!("{}/{name}", pod.namespace().unwrap_or_default())).or_default() += held;
        match &mut view.shares {
            Some(shares) => shares.held += held,
            None => view.gpus_held += held,
        }
    }
    for node in nodes {
        let Some(at) = at.get(&node.name_any()) else { continue };
        if let (Some(view), Some(held), Some(capacity)) = (views.get_mut(*at), all.get(*at), capacity(node)) {
            view.overcommitted = capacity.exceeded(held).iter().map(|lack| lack.name().to_owned()).collect();
        }
    }
    views
}

/// As the scheduler counts it; nothing where it cannot be read.
fn requirements(pod: &Pod) -> Option<Requirements> {
    let pod: crate::api::Pod = serde_json::from_value(serde_json::to_value(pod).ok()?).ok()?;
    Requirements::held(&pod).ok().filter(|_| !pod.is_over())
}

fn capacity(node: &Node) -> Option<Capacity> {
    Capacity::of(&seen(node)?).ok()
}

fn seen(node: &Node) -> Option<crate::api::Node> {
    serde_json::from_value(serde_json::to_value(node).ok()?).ok()
}

impl NodeView {
    fn of(node: &Node) -> Self {
        let status = node.status.as_ref();
        let addresses = status.and_then(|status| status.addresses.as_ref());
        let address = addresses.into_iter().flatten().find(|address| address.type_ == "InternalIP");
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let ready = conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready");
        let is_closed = conditions.is_some_and(|all| closing(all).is_some());
        let is_cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        let amount = |resource: &str| {
            let amount = status.and_then(|status| status.allocatable.as_ref()?.get(resource));
            amount.and_then(|amount| Amount::of(amount).ok()).map_or(0, Amount::units_up)
        };
        let divided = seen(node).as_ref().and_then(DividedGpus::of);
        let schedule = node.labels().get(phalanx::NODE).or_else(|| node.labels().get(ACK_NODE));
        let role = |key: &String| key.strip_prefix("node-role.kubernetes.io/").map(str::to_owned);
        Self {
            name: node.name_any(),
            address: address.map(|address| address.address.clone()).unwrap_or_default(),
            state: match (ready.is_some_and(|ready| ready.status == "True"), is_cordoned) {
                (_, true) => "cordoned",
                (false, false) => "not_ready",
                (true, false) if is_closed => "maintenance",
                (true, false) if schedule.is_some_and(|said| said == GIVEN_BACK) => "given_back",
                (true, false) => "open",
            },
            schedule: schedule.cloned(),
            roles: node.labels().keys().filter_map(role).collect(),
            model: node.labels().get("nvidia.com/gpu.product").cloned().unwrap_or_default(),
            gpus: divided.as_ref().map_or_else(|| amount(GPU), |divided| divided.gpus.into()),
            gpus_held: 0,
            shares: divided.map(|divided| SharesView {
                of: divided.to_string(),
                resource: divided.resource.to_owned(),
                total: amount(divided.resource),
                held: 0,
                problem: divided.problem,
            }),
            held: BTreeMap::new(),
            overcommitted: Vec::new(),
            closed: Vec::new(),
        }
    }
}

fn stamp(time: Option<&Time>) -> Timestamp {
    time.and_then(|time| u64::try_from(time.0.as_millisecond()).ok()).map_or(Timestamp(0), Timestamp)
}

/// Which lines of the output of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogAsk {
    /// Also what is still to come.
    pub follow: bool,
    /// Only the last lines.
    pub tail: Option<u32>,
    /// Only of the last seconds, at least 1.
    pub since_s: Option<u64>,
    /// Each line after the time when it was written, as the kubelet prints it.
    pub timestamps: bool,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_with_replicas_has_its_real_gpus_and_shares_of_them() {
        let node = json!({
            "metadata": { "name": "a", "labels": {
                "nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "mps" } },
            "status": { "allocatable": { "nvidia.com/gpu": "7" }, "capacity": { "nvidia.com/gpu": "8" } },
        });
        let resources = json!({ "limits": { "nvidia.com/gpu": "1" } });
        let pod = json!({
            "metadata": { "namespace": "x", "name": "p" },
            "spec": { "nodeName": "a", "containers": [{ "name": "c", "resources": resources }] },
        });
        let (node, pod) = (serde_json::from_value(node).unwrap(), serde_json::from_value(pod).unwrap());
        let views = nodes(&[node], &[pod]);
        assert_eq!((views[0].gpus, views[0].gpus_held), (2, 0));
        let shares = views[0].shares.as_ref().unwrap();
        assert_eq!((&*shares.of, shares.total, shares.held), ("2 GPUs, 4 replicas each (mps)", 7, 1));
        assert_eq!(views[0].held, [("x/p".to_owned(), 1)].into());
    }

    /// `why` said that it waits for places, and the table below it which limit of its queue that was.
    #[test]
    fn what_a_suspended_job_waits_for_is_what_was_told_last_of_it() {
        let object = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "name": "a", "namespace": "x", "annotations": { SUSPENDED: "submitted" } },
            "spec": { "suspend": true, "template": { "spec": { "schedulerName": "phalanx", "containers": [] } } },
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let detail = |reasons: &[(&str, &str)]| {
            let told = |(at, (about, reason)): (u64, &(&str, &str))| EventView {
                at: Timestamp(at),
                about: (*about).to_owned(),
                reason: (*reason).to_owned(),
                message: "QueueLimit".to_owned(),
            };
            let mut job = JobView::of("Job", &object, &[]).unwrap();
            job.learn(&(0..).zip(reasons).map(told).collect::<Vec<_>>());
            job.detail
        };
        assert_eq!(detail(&[("a", WAITING), ("a", "Suspended")]), "submitted; QueueLimit");
        for other in [&[][..], &[("b", WAITING)], &[("a", WAITING), ("a", STARTING)]] {
            assert_eq!(detail(other), "submitted");
        }
    }

    /// The controller of Jobs starts the time of a Job when it creates the pods.
    #[test]
    fn a_job_whose_pods_wait_has_not_started() {
        let object = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "a", "namespace": "x" },
            "spec": { "template": { "spec": { "schedulerName": "phalanx", "containers": [] } } },
            "status": { "startTime": "2027-01-15T08:00:00Z" },
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let pod = |node: Option<&str>, phase: &str| {
            let labels = json!({ "batch.kubernetes.io/job-name": "a" });
            let pod = json!({ "metadata": { "name": "a-0", "namespace": "x", "labels": labels },
                "spec": { "nodeName": node, "containers": [] }, "status": { "phase": phase } });
            serde_json::from_value::<Pod>(pod).unwrap()
        };
        let started = |pod: Pod| JobView::of("Job", &object, &[pod]).unwrap().started_at;
        assert_eq!(started(pod(None, "Pending")), None);
        assert!(started(pod(Some("n"), "Running")).is_some());
    }
}
