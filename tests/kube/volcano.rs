//! Volcano's groups: the phase that its job controller waits for, and what people see.

use serde_json::{Value, json};

use crate::support::kinds::define;
use crate::support::{Cluster, PODS, pod};

/// A Volcano Job, whose pods are for us unless it says otherwise.
pub(crate) struct VolcanoJob<'a> {
    pub(crate) name: &'a str,
    pub(crate) tasks: u32,
    pub(crate) gpus: u32,
    pub(crate) scheduler: &'a str,
    /// Versions of jobs and of groups, as the cluster serves them.
    pub(crate) versions: [&'a str; 2],
}

impl<'a> VolcanoJob<'a> {
    pub(crate) const fn of(name: &'a str, tasks: u32, gpus: u32) -> Self {
        Self { name, tasks, gpus, scheduler: "phalanx", versions: ["v1alpha1", "v1beta1"] }
    }

    /// Creates it, and the group that Volcano's controller makes of it; the path of the group.
    pub(crate) fn create(&self, cluster: &Cluster) -> String {
        let Self { name, tasks, gpus, scheduler, versions: [of_jobs, of_groups] } = *self;
        let mut template = pod("", gpus);
        template["spec"].as_object_mut().unwrap().remove("schedulerName");
        let job = json!({
            "apiVersion": format!("batch.volcano.sh/{of_jobs}"), "kind": "Job", "metadata": { "name": name },
            "spec": { "schedulerName": scheduler, "minAvailable": tasks,
                "tasks": [{ "name": "worker", "replicas": tasks, "template": { "spec": template["spec"] } }] },
        });
        let made = cluster.create(&format!("/apis/batch.volcano.sh/{of_jobs}/namespaces/default/jobs"), &job);
        let groups = format!("/apis/scheduling.volcano.sh/{of_groups}/namespaces/default/podgroups");
        let group = json!({
            "apiVersion": format!("scheduling.volcano.sh/{of_groups}"), "kind": "PodGroup",
            "metadata": { "name": format!("{name}-group"), "ownerReferences": [{
                "apiVersion": made["apiVersion"], "kind": "Job", "name": name, "uid": made["metadata"]["uid"],
                "controller": true,
            }] },
            "spec": { "minMember": tasks },
        });
        cluster.create(&groups, &group);
        format!("{groups}/{name}-group")
    }
}

pub(crate) fn until_phase(cluster: &Cluster, group: &str, phase: &str) -> Value {
    cluster.until(&format!("{phase} of {group}"), |cluster| {
        let status = cluster.api().get(group).ok()?["status"].clone();
        (status["phase"] == phase).then_some(status)
    })
}

/// What its controller does once the phase lets it.
fn create_members(cluster: &Cluster, name: &str, count: u32, gpus: u32) {
    for at in 0..count {
        let mut member = pod(&format!("{name}-{at}"), gpus);
        member["metadata"]["labels"] = json!({ "gang": name });
        member["metadata"]["annotations"] =
            json!({ "scheduling.k8s.io/group-name": format!("{name}-group") });
        cluster.create(PODS, &member);
    }
}

#[test]
fn a_volcano_job_gets_its_pods_and_its_group_says_how_it_stands() {
    let mut cluster = Cluster::of(1);
    define(&cluster, "scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups");
    define(&cluster, "batch.volcano.sh", "v1alpha1", "Job", "jobs");
    let early = VolcanoJob::of("early", 2, 4).create(&cluster);
    cluster.schedule(0);
    until_phase(&cluster, &early, "Inqueue");
    let foreign = VolcanoJob { scheduler: "volcano", ..VolcanoJob::of("foreign", 1, 1) }.create(&cluster);
    let late = VolcanoJob::of("late", 2, 4).create(&cluster);
    until_phase(&cluster, &late, "Inqueue");
    create_members(&cluster, "early", 2, 4);
    cluster.until_runs("early", 2);
    let status = cluster.until("two that run", |cluster| {
        let status = cluster.api().get(&early).unwrap()["status"].clone();
        (status["running"] == 2).then_some(status)
    });
    assert_eq!(
        (&status["phase"], &status["conditions"][0]["type"]),
        (&json!("Running"), &json!("Scheduled"))
    );
    create_members(&cluster, "late", 2, 4);
    let condition = cluster.until("a condition of late", |cluster| {
        let status = cluster.api().get(&late).unwrap()["status"].clone();
        let condition = status["conditions"][0].clone();
        (condition["reason"] == "NotEnoughResources").then_some((status["phase"].clone(), condition))
    });
    assert_eq!((&condition.0, &condition.1["type"]), (&json!("Inqueue"), &json!("Unschedulable")));
    assert_eq!(cluster.api().get(&foreign).unwrap()["status"], json!(null), "its pods are another's");
}
