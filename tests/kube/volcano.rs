//! Volcano's groups: the phase that its job controller waits for, and what people see.

use serde_json::{Value, json};

use crate::support::kinds::define;
use crate::support::{Cluster, PODS, pod};

/// A Volcano Job whose pods are for us, and the group that Volcano's controller makes of it; the paths of both.
pub(crate) fn create_job(
    cluster: &Cluster,
    of_jobs: &str,
    of_groups: &str,
    name: &str,
    tasks: u32,
    gpus: u32,
) -> (String, String) {
    create_job_of(cluster, of_jobs, of_groups, name, tasks, gpus, "phalanx")
}

fn create_job_of(
    cluster: &Cluster,
    of_jobs: &str,
    of_groups: &str,
    name: &str,
    tasks: u32,
    gpus: u32,
    scheduler: &str,
) -> (String, String) {
    let mut template = pod("", gpus);
    template["spec"].as_object_mut().unwrap().remove("schedulerName");
    let jobs = format!("/apis/batch.volcano.sh/{of_jobs}/namespaces/default/jobs");
    let job = json!({
        "apiVersion": format!("batch.volcano.sh/{of_jobs}"), "kind": "Job", "metadata": { "name": name },
        "spec": { "schedulerName": scheduler, "minAvailable": tasks,
            "tasks": [{ "name": "worker", "replicas": tasks, "template": { "spec": template["spec"] } }] },
    });
    let made = cluster.create(&jobs, &job);
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
    (format!("{jobs}/{name}"), format!("{groups}/{name}-group"))
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
    let (_, early) = create_job(&cluster, "v1alpha1", "v1beta1", "early", 2, 4);
    cluster.schedule(0);
    until_phase(&cluster, &early, "Inqueue");
    let (_, foreign) = create_job_of(&cluster, "v1alpha1", "v1beta1", "foreign", 1, 1, "volcano");
    let (_, late) = create_job(&cluster, "v1alpha1", "v1beta1", "late", 2, 4);
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
