//! What is created in the cluster before the scheduler starts.

use phalanx_controlplane::{Api, Error, Fleet, GPU, KubernetesVersion, in_parallel};
use serde_json::{Value, json};

use super::draw::Gang;

pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
const PRIORITIES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";

/// The annotation with the node that the bare binder binds to; every runner's pods have it.
pub(super) const NODE: &str = "bench.phalanx.dev/node";

/// Preempts what has none.
pub(super) const SERVING: &str = "serving";

/// A pod that belongs to a gang, or to none when it fills.
#[derive(Clone, Debug, Default)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) gpus: usize,
    pub(super) scheduler: &'static str,
    /// The `PodGroup` that it belongs to.
    pub(super) group: Option<String>,
    /// Where the bare binder puts it.
    pub(super) place: Option<usize>,
    /// Where it is bound from the beginning.
    pub(super) bound: Option<usize>,
    pub(super) priority: Option<&'static str>,
}

impl Pod {
    pub(super) fn object(&self) -> Value {
        let mut pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name},
            "spec": {
                "schedulerName": self.scheduler,
                "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "none", "resources": {
                    "requests": {"cpu": "1", "memory": "1Gi"},
                    "limits": {GPU: self.gpus.to_string()},
                }}],
            },
        });
        if let Some(node) = self.place {
            pod["metadata"]["annotations"] = json!({NODE: Fleet::name(node)});
        }
        if let Some(group) = &self.group {
            pod["spec"]["schedulingGroup"] = json!({"podGroupName": group});
        }
        if let Some(node) = self.bound {
            pod["spec"]["nodeName"] = json!(Fleet::name(node));
        }
        if let Some(priority) = self.priority {
            pod["spec"]["priorityClassName"] = json!(priority);
        }
        pod
    }
}

/// The name of a gang's `PodGroup`, and of a pod of it: [`member`] reads it.
pub(super) fn group_name(gang: usize) -> String {
    format!("g{gang:05}")
}

pub(super) fn pod_name(gang: usize, member: usize) -> String {
    format!("{}-{member:02}", group_name(gang))
}

/// Gang and member of a pod that has such a name.
pub(super) fn member(name: &str) -> Option<(usize, usize)> {
    let (gang, member) = name.strip_prefix('g')?.split_once('-')?;
    Some((gang.parse().ok()?, member.parse().ok()?))
}

pub(super) fn create_pods(api: &Api, pods: &[Pod]) -> Result<(), Error> {
    in_parallel(pods.len(), |at| api.post(PODS, &pods[at].object()).map(|_| ()))
}

/// Pods without a node.
pub(super) fn unbound(api: &Api) -> Result<usize, Error> {
    let pods = api.get(&format!("{PODS}?fieldSelector=spec.nodeName%3D"))?;
    Ok(pods["items"].as_array().map_or(0, Vec::len))
}

/// Deletes them without waiting for a kubelet.
pub(super) fn delete_pods(api: &Api, names: &[String]) -> Result<(), Error> {
    in_parallel(names.len(), |at| api.delete_now(&format!("{PODS}/{}", names[at])).map(|_| ()))
}

/// A `PodGroup` of each name, all of its gang or nothing, in one rack.
pub(super) fn create_groups(api: &Api, gangs: impl Iterator<Item = (String, Gang)>) -> Result<(), Error> {
    let gangs: Vec<(String, Gang)> = gangs.collect();
    let version = KubernetesVersion::chosen()?.pod_group_version();
    let groups = format!("/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups");
    in_parallel(gangs.len(), |at| {
        let (name, gang) = &gangs[at];
        let group = json!({
            "apiVersion": format!("scheduling.k8s.io/{version}"),
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {
                "schedulingPolicy": {"gang": {"minCount": gang.pods}},
                "schedulingConstraints": {"topology": [{"key": Fleet::RACK}]},
            },
        });
        api.post(&groups, &group).map(|_| ())
    })
}

pub(super) fn create_priority(api: &Api) -> Result<(), Error> {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": SERVING}, "value": 1_000});
    api.post(PRIORITIES, &class).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_name_says_its_gang_and_its_number_in_it() {
        assert_eq!(member(&pod_name(12, 31)), Some((12, 31)));
        assert_eq!(member(&pod_name(123_456, 0)), Some((123_456, 0)));
        assert_eq!(member("fill-3"), None);
    }
}
