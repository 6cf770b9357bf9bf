//! Upstream's PodGroups, in the newest version that the API server serves.

use serde_json::{Value, json};

use super::{Cluster, PODS, pod};

/// A gang of at least so many pods.
pub(crate) fn pod_group(name: &str, min: u32) -> Value {
    json!({
        "kind": "PodGroup",
        "metadata": { "name": name },
        "spec": { "schedulingPolicy": { "gang": { "minCount": min } } },
    })
}

/// A pod of a group with so many GPUs.
pub(crate) fn member(group: &str, at: u32, gpus: u32) -> Value {
    let mut member = pod(&format!("{group}-{at}"), gpus);
    member["metadata"]["labels"] = json!({ "gang": group });
    member["spec"]["schedulingGroup"] = json!({ "podGroupName": group });
    member
}

impl Cluster {
    fn pod_groups(&self) -> String {
        let version = self.plane.kubernetes().pod_group_version();
        format!("/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups")
    }

    /// The object does not name its version.
    pub(crate) fn create_group(&self, group: &Value) -> Value {
        let version = self.plane.kubernetes().pod_group_version();
        let mut group = group.clone();
        group["apiVersion"] = json!(format!("scheduling.k8s.io/{version}"));
        self.create(&self.pod_groups(), &group)
    }

    pub(crate) fn create_members(&self, group: &str, pods: u32, gpus: u32) {
        (0..pods).for_each(|at| drop(self.create(PODS, &member(group, at, gpus))));
    }

    /// A condition of a group, once it has this status.
    pub(crate) fn until_group(&self, name: &str, condition: &str, status: &str) -> Value {
        self.until(&format!("{condition} {status} of {name}"), |cluster| {
            let found = cluster.group_condition(name, condition)?;
            (found["status"] == status).then_some(found)
        })
    }

    /// A condition of a group, if the group has it.
    pub(crate) fn group_condition(&self, name: &str, condition: &str) -> Option<Value> {
        let group = self.api().get(&format!("{}/{name}", self.pod_groups())).ok()?;
        let conditions = group["status"]["conditions"].as_array()?.clone();
        conditions.into_iter().find(|one| one["type"] == condition)
    }

    /// The conditions of all groups, and every request that wrote one.
    pub(crate) fn told_on_groups(&self) -> String {
        let groups = self.api().get(&self.pod_groups()).unwrap_or_default();
        let groups = groups["items"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let groups = groups.map(|group| format!("{} {}", group["metadata"]["name"], group["status"]));
        let log = std::fs::read_to_string(self.plane.audit_log()).unwrap_or_default();
        let is_write = |line: &&str| line.contains("\"podgroups\"") && line.contains("\"verb\":\"patch\"");
        groups.chain(log.lines().filter(is_write).map(str::to_owned)).collect::<Vec<_>>().join("\n")
    }

    /// The condition that says whether a group is scheduled. In 1.36 it says so of now, from 1.37 on of the first time.
    pub(crate) fn scheduled_condition(&self) -> &'static str {
        match self.plane.kubernetes().pod_group_version() {
            "v1alpha2" => "PodGroupScheduled",
            _ => "PodGroupInitiallyScheduled",
        }
    }
}
