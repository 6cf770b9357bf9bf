//! That the scheduler needs all of the rights that `deploy/` gives it, and that namespaces opt in by the policy there.

use std::collections::BTreeMap;

use phalanx_controlplane::{Api, Fleet};
use phalanx_kube::cluster::kinds::CLUSTER_KINDS;
use phalanx_kube::recognise::{KINDS, suspendable};
use phalanx_kube::rights::{of_cluster, of_lease};
use serde_json::{Value, json};

use crate::autoscalers;
use crate::dra_gangs;
use crate::manifests::create;
use crate::support::audit::{Audit, Need, needs};
use crate::support::groups::pod_group;
use crate::support::role::{NAMESPACE, SCHEDULER, USER, read, until_may};
use crate::support::{Cluster, DEFINITIONS, JOBS, PODS, job, pod};
use crate::volcano::{VolcanoJob, until_phase};
use crate::volumes::{CLAIMS, CLASSES, VOLUMES, claim, class, mounts, volume};

#[test]
fn a_namespace_that_opts_in_has_its_pods_scheduled_by_us_and_no_other_has() {
    let mut cluster = Cluster::of(1);
    create(cluster.api(), "admission", &["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]);
    let inside = "/api/v1/namespaces/inside/pods";
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "inside", "labels": {"phalanx.dev/schedule": "all"}}});
    cluster.create("/api/v1/namespaces", &namespace);
    cluster.until("service account of the namespace", |cluster| {
        cluster.api().get("/api/v1/namespaces/inside/serviceaccounts/default").ok()
    });
    let scheduler_of = |cluster: &Cluster, path: &str, change: &dyn Fn(&mut Value)| {
        let mut plain = pod("plain", 1);
        plain["spec"].as_object_mut().unwrap().remove("schedulerName");
        change(&mut plain);
        let made = cluster.api().post(&format!("{path}?dryRun=All"), &plain).unwrap();
        made["spec"]["schedulerName"].as_str().unwrap().to_owned()
    };
    // The API server learns of policies a moment after they are there.
    cluster
        .until("the policy", |cluster| (scheduler_of(cluster, inside, &|_| {}) == "phalanx").then_some(()));
    assert_eq!(scheduler_of(&cluster, PODS, &|_| {}), "default-scheduler", "its namespace did not opt in");
    let named = |pod: &mut Value| pod["spec"]["schedulerName"] = json!("mine");
    assert_eq!(scheduler_of(&cluster, inside, &named), "mine");
    let placed = |pod: &mut Value| pod["spec"]["nodeName"] = json!("node-00000");
    assert_eq!(scheduler_of(&cluster, inside, &placed), "default-scheduler");
    let daemon = |pod: &mut Value| {
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": true}]);
    };
    assert_eq!(scheduler_of(&cluster, inside, &daemon), "default-scheduler");
    cluster.schedule(0);
    let mut plain = job("plain", 2, 2, &json!({}));
    plain["spec"]["template"]["spec"].as_object_mut().unwrap().remove("schedulerName");
    cluster.create("/apis/batch/v1/namespaces/inside/jobs", &plain);
    cluster.until_runs("plain", 2);
}

/// A pod that said of itself that it has all devices of a node, for ever, kept them from everybody.
#[test]
fn nobody_but_the_scheduler_writes_where_pods_are_and_which_devices_they_have() {
    let mut cluster = Cluster::of(1);
    create(cluster.api(), "base", &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]);
    let forged = |scheduler: &str| {
        let mut forged = pod("forged", 1);
        forged["spec"]["schedulerName"] = json!(scheduler);
        forged["spec"]["nodeName"] = json!(Fleet::name(0));
        forged["metadata"]["annotations"] = json!({"phalanx.dev/placement": "node-00000:0-7", "phalanx.dev/ready-by": "2099-01-01T00:00:00Z"});
        forged
    };
    let made = |cluster: &Cluster, pod: &Value| cluster.api().post(&format!("{PODS}?dryRun=All"), pod);
    // The API server learns of policies a moment after they are there.
    let refused = cluster.until("the policy", |cluster| made(cluster, &forged("phalanx")).err()).to_string();
    let said = "only the scheduler writes phalanx.dev/ready-by, phalanx.dev/placement: leave it out";
    assert!(refused.contains(said), "{refused}");
    made(&cluster, &forged("mine")).expect("the scheduler believes nothing of pods of others");
    // It writes them itself, and nobody changes them afterwards, whatever else of a pod he may change.
    cluster.schedule(0);
    cluster.create(JOBS, &job("pair", 2, 2, &json!({})));
    cluster.until_runs("pair", 2);
    let pods = cluster.api().get(PODS).unwrap();
    let path = format!("{PODS}/{}", pods["items"][0]["metadata"]["name"].as_str().unwrap());
    assert!(pods["items"][0]["metadata"]["annotations"]["phalanx.dev/devices"].is_string(), "{pods:#}");
    let devices = json!({"metadata": {"annotations": {"phalanx.dev/devices": "4-5"}}});
    for path in [path.clone(), format!("{path}/status")] {
        let refused = cluster.api().patch(&path, &devices).unwrap_err().to_string();
        assert!(refused.contains("only the scheduler writes phalanx.dev/devices"), "{refused}");
    }
    cluster.api().patch(&path, &json!({"metadata": {"annotations": {"mine": "yes"}}})).unwrap();
    let agent = |node: &str| agent_of(&cluster, node).patch(&format!("{path}/status"), &devices);
    let refused = agent("another").unwrap_err().to_string();
    assert!(refused.contains("only the scheduler"), "{refused}");
    agent(&Fleet::name(0)).expect("the kubelet of its node gave other devices");
}

/// With its rights alone it could have had the pods of any Job run anything, and a stolen token of one agent could have said of
/// every node that its devices are gone.
#[test]
fn the_scheduler_changes_nothing_of_owners_but_whether_they_are_suspended_and_agents_write_their_own_node() {
    let cluster = Cluster::of(1);
    let file = crate::support::role::scheduler(&cluster.plane);
    crate::queues::define(&cluster);
    create(cluster.api(), "base", &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]);
    let mut plain = job("mine", 1, 0, &json!({}));
    plain["spec"]["suspend"] = json!(true);
    cluster.create(JOBS, &plain);
    let scheduler = Api::of_kubeconfig(&file).unwrap();
    let path = format!("{JOBS}/mine");
    let forged = json!({"spec": {"backoffLimit": 77}});
    // The API server learns of policies a moment after they are there.
    let tried = format!("{path}?dryRun=All");
    let refused = cluster.until("the policy", |_| scheduler.patch(&tried, &forged).err()).to_string();
    assert!(refused.contains("the scheduler suspends owners of pods and lets them go on"), "{refused}");
    let template = json!({"spec": {"template": {"metadata": {"labels": {"mine": "no"}}}}});
    let annotation = json!({"metadata": {"annotations": {"other": "no"}}});
    let label = json!({"metadata": {"labels": {"other": "no"}}});
    for (patch, said) in [
        (template, "it changes nothing else"),
        (annotation, "no other metadata"),
        (label, "no other metadata"),
    ] {
        let refused = scheduler.patch(&path, &patch).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
    let signed =
        json!({"spec": {"suspend": true}, "metadata": {"annotations": {"phalanx.dev/suspended": "evicted"}}});
    scheduler.patch(&path, &signed).unwrap();
    scheduler.patch(&path, &json!({"spec": {"suspend": false}})).unwrap();
    let topologies = "/apis/phalanx.dev/v1alpha1/nodetopologies";
    let machine = json!({"shape": "none", "origin": "Found", "cpuMilli": 1_000, "memoryBytes": 1_i64 << 30});
    let of = |node: &str| json!({"apiVersion": "phalanx.dev/v1alpha1", "kind": "NodeTopology", "metadata": {"name": node}, "spec": machine});
    let agent = agent_of(&cluster, &Fleet::name(0));
    let refused = agent.post(topologies, &of("another")).unwrap_err().to_string();
    assert!(refused.contains("writes the topology of that node, not of another"), "{refused}");
    agent.post(topologies, &of(&Fleet::name(0))).unwrap();
}

/// The agent with a device plugin of a node.
fn agent_of(cluster: &Cluster, node: &str) -> Api {
    let (namespace, name) = ("phalanx-device-plugin", "phalanx-node");
    if cluster.api().get(&format!("/api/v1/namespaces/{namespace}")).is_err() {
        let kinds = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"];
        create(cluster.api(), "device-plugin", &kinds);
        let user = format!("system:serviceaccount:{namespace}:{name}");
        until_may(cluster.api(), &user, "", "", "pods/status", "patch");
    }
    let mut pod = pod(&format!("agent-of-{node}"), 1);
    pod["spec"]["serviceAccountName"] = json!(name);
    pod["spec"]["nodeName"] = json!(node);
    let pod = cluster.create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod);
    let token = cluster.create(
        &format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"),
        &json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": {
            "apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}}}),
    );
    let file = cluster.plane.kubeconfig_of_service_account(namespace, name).unwrap();
    let mut config: Value = serde_json::from_str(&read(&file)).unwrap();
    config["users"][0]["user"]["token"] = token["status"]["token"].clone();
    let file = cluster.plane.folder().join(format!("agent-of-{node}.kubeconfig"));
    std::fs::write(&file, config.to_string()).unwrap();
    Api::of_kubeconfig(&file).unwrap()
}

/// Kinds of others, which take any object. Versions are those in use, as far as the scheduler minds them.
fn create_foreign_kinds(cluster: &Cluster) {
    let owners = [
        ("trainer.kubeflow.org", "TrainJob", "trainjobs"),
        ("batch.volcano.sh", "Job", "jobs"),
        ("autoscaling.x-k8s.io", "ProvisioningRequest", "provisioningrequests"),
    ];
    let kinds = KINDS.iter().map(|kind| (kind.group, kind.kind, kind.plural)).chain(owners);
    let scoped = kinds.map(|kind| (kind, true)).chain(CLUSTER_KINDS.into_iter().map(|kind| (kind, false)));
    let foreign = scoped.filter(|((group, ..), _)| !matches!(*group, "batch" | "scheduling.k8s.io"));
    for ((group, kind, plural), is_namespaced) in foreign {
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}"),
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
            "spec": {
                "group": group,
                "scope": if is_namespaced { "Namespaced" } else { "Cluster" },
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        });
        cluster.create(DEFINITIONS, &crd);
        cluster.until(plural, |cluster| cluster.api().get(&format!("/apis/{group}/v1/{plural}")).ok());
    }
}

/// One suspended object for each field that suspends, Jobs apart: to let it go on is to write that field. No controller
/// runs that would make pods of them.
fn create_suspended(cluster: &Cluster) {
    let template = json!({"spec": {"schedulerName": "phalanx",
        "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]}});
    let replicas: BTreeMap<&str, &str> = [
        ("pytorchjobs", "pytorchReplicaSpecs"),
        ("mpijobs", "mpiReplicaSpecs"),
        ("tfjobs", "tfReplicaSpecs"),
        ("xgboostjobs", "xgbReplicaSpecs"),
        ("paddlejobs", "paddleReplicaSpecs"),
        ("jaxjobs", "jaxReplicaSpecs"),
    ]
    .into();
    let create = |group: &str, kind: &str, plural: &str, name: &str, owner: Option<&Value>, spec: Value| {
        let mut object = json!({"apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec,
            "metadata": {"name": name, "annotations": {"phalanx.dev/suspended": "for a test"}}});
        if let Some(owner) = owner {
            object["metadata"]["ownerReferences"] = json!([{"apiVersion": owner["apiVersion"],
                "kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
                "controller": true}]);
        }
        cluster.create(&format!("/apis/{group}/v1/namespaces/default/{plural}"), &object)
    };
    let set = || {
        json!({"suspend": true, "replicatedJobs": [{"name": "workers", "replicas": 1,
            "template": {"spec": {"parallelism": 1, "completions": 1, "template": template}}}]})
    };
    let ray = || json!({"suspend": true, "headGroupSpec": {"template": template}});
    for kind in KINDS {
        if let Some(field) = replicas.get(kind.plural) {
            let spec = json!({"runPolicy": {"suspend": true}, *field: {"Worker": {"replicas": 1, "template": template}}});
            create(kind.group, kind.kind, kind.plural, kind.plural, None, spec);
        }
    }
    create("jobset.x-k8s.io", "JobSet", "jobsets", "alone", None, set());
    let above =
        create("trainer.kubeflow.org", "TrainJob", "trainjobs", "above", None, json!({"suspend": true}));
    create("jobset.x-k8s.io", "JobSet", "jobsets", "owned", Some(&above), set());
    create("ray.io", "RayCluster", "rayclusters", "alone", None, ray());
    let job = json!({"suspend": true, "shutdownAfterJobFinishes": true, "rayClusterSpec": ray()});
    create("ray.io", "RayJob", "rayjobs", "alone", None, job);
}

/// What the controllers of others are told: Volcano's, and an autoscaler of a Job that needs two nodes, of which one is
/// held by `other`.
fn tell_others(cluster: &Cluster, wide: &Value, other: &str) {
    // A Volcano Job waits for the phase of its group.
    let theirs = VolcanoJob { versions: ["v1", "v1"], ..VolcanoJob::of("theirs", 1, 1) };
    until_phase(cluster, &theirs.create(cluster), "Inqueue");
    // Nodes are asked for, and not any more when it has got them.
    cluster.create(JOBS, wide);
    cluster.until("nodes that are asked for", |cluster| autoscalers::requests(cluster).pop());
    cluster.api().delete(&format!("{JOBS}/{other}?propagationPolicy=Background")).unwrap();
    cluster.create("/api/v1/nodes", &Fleet::new(2).node(1));
    cluster.until_runs("wide", 2);
}

/// Devices by a claim, on a node that offers them as a resource too; and by one that is made for a pod.
fn use_devices(cluster: &Cluster) {
    dra_gangs::define(cluster);
    dra_gangs::publish(cluster, 0, "A100", &json!({}));
    dra_gangs::template(cluster, "two", 2, None);
    cluster.create(JOBS, &dra_gangs::job_of("claims", 1, "two"));
    cluster.until_runs("claims", 1);
    let mut extended = pod("extended", 0);
    extended["spec"]["containers"][0]["resources"]["limits"]["deviceclass.resource.kubernetes.io/gpu"] =
        json!("1");
    cluster.create(PODS, &extended);
    cluster.until_runs("extended", 1);
    cluster.api().delete(&format!("{PODS}/extended?gracePeriodSeconds=0")).unwrap();
    cluster.api().delete(&format!("{JOBS}/claims?propagationPolicy=Background")).unwrap();
}

/// The scheduler as the service account of the base, with its roles and no other: all calls of a story are allowed,
/// and every right of the roles is used.
#[test]
fn the_scheduler_needs_all_of_its_rights_and_no_other() {
    let mut cluster = Cluster::of(1);
    create_foreign_kinds(&cluster);
    // Our own resources, and the queue of all namespaces.
    crate::queues::define(&cluster);
    let queue = json!({"apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "default"}, "spec": {}});
    cluster.create(crate::queues::QUEUES, &queue);
    cluster.create(crate::fabric::FABRICS, &crate::fabric::fabric(&json!({"preset": "auto"})));
    create_suspended(&cluster);
    for (name, value) in [("low", 10), ("high", 1_000)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        });
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
    cluster.provisioning_class = Some(autoscalers::CLASS);
    // Longer than a busy machine may take to renew it.
    cluster.schedule(30);
    create(cluster.api(), "base", &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]);

    use_devices(&cluster);
    let of_class = |mut object: Value, class: &str| {
        let spec = if object["kind"] == "Job" {
            &mut object["spec"]["template"]["spec"]
        } else {
            &mut object["spec"]
        };
        spec["priorityClassName"] = json!(class);
        spec["terminationGracePeriodSeconds"] = json!(1);
        object
    };
    // One claim is given a volume that is there, and for another one is to be made.
    cluster.create(CLASSES, &class("there", "kubernetes.io/no-provisioner"));
    cluster.create(CLASSES, &class("made", "disks.example.com"));
    cluster.create(VOLUMES, &volume("there", "there", "node-00000"));
    for name in ["there", "made"] {
        cluster.create(CLAIMS, &claim(name, name));
        let mut user = pod(name, 0);
        user["spec"]["volumes"] = mounts(name);
        cluster.create(PODS, &user);
    }
    cluster.until_runs("there", 1);
    // A Job makes way by being suspended, and goes on later.
    cluster.create(JOBS, &of_class(job("low", 2, 4, &json!({})), "low"));
    cluster.until_runs("low", 2);
    cluster.create(JOBS, &of_class(job("high", 1, 8, &json!({})), "high"));
    cluster.until_runs("high", 1);
    assert_eq!(cluster.api().get(&format!("{JOBS}/low")).unwrap()["spec"]["suspend"], true);
    cluster.api().delete(&format!("{JOBS}/high?propagationPolicy=Background")).unwrap();
    cluster.until_runs("low", 2);
    cluster.api().delete(&format!("{JOBS}/low?propagationPolicy=Background")).unwrap();
    // A pod by itself is evicted.
    cluster.create(PODS, &of_class(pod("alone", 8), "low"));
    cluster.until_runs("alone", 1);
    cluster.create(JOBS, &of_class(job("top", 1, 8, &json!({})), "high"));
    cluster.until_runs("top", 1);
    // A group of upstream that waits says so.
    let mut of_low = pod_group("group", 1);
    of_low["spec"]["priorityClassName"] = json!("low");
    cluster.create_group(&of_low);
    cluster.create_members("group", 1, 8);
    tell_others(&cluster, &of_class(job("wide", 2, 8, &json!({})), "high"), "top");
    // What waits is told why; what has had its time is taken away.
    cluster.create(PODS, &of_class(pod("waits", 8), "low"));
    cluster.until_explained("waits", "");
    let mut brief = of_class(job("brief", 1, 0, &json!({})), "low");
    brief["metadata"]["annotations"] = json!({"phalanx.dev/time-limit": "2s"});
    cluster.create(JOBS, &brief);

    // A start comes to nothing for which a claim was made: its devices are never attached.
    let attached = json!({"bindsToNode": true, "bindingConditions": ["example.com/attached"], "bindingFailureConditions": ["example.com/broken"]});
    dra_gangs::add_node(&cluster, 2, "A100", &attached);
    let mut never = pod("never", 0);
    never["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": Fleet::name(2)});
    never["spec"]["containers"][0]["resources"]["limits"]["deviceclass.resource.kubernetes.io/gpu"] =
        json!("1");
    cluster.create(PODS, &never);

    let mut needed = needs(&of_cluster(), None);
    needed.extend(needs(&of_lease(SCHEDULER), Some(NAMESPACE)));
    // Asked only when somebody else wrote to a claim at the same time, which no story can order; and by the API server
    // itself, when the devices of a claim are written.
    let unseen = [("resourceclaims", "get"), ("resourceclaims/binding", "patch")];
    for (resource, verb) in unseen {
        let is_it = |need: &Need| (&*need.resource, &*need.verb) == (resource, verb);
        let before = needed.len();
        needed.retain(|need| !is_it(need));
        assert_eq!(needed.len() + 1, before, "{verb} {resource}");
    }
    for (group, plural) in suspendable() {
        for verb in ["get", "patch"] {
            let is_it = |need: &Need| (&*need.group, &*need.resource, &*need.verb) == (group, plural, verb);
            assert!(needed.iter().any(is_it), "{verb} {plural}");
        }
    }
    let log = cluster.plane.audit_log();
    let mut told = 0;
    cluster.until("every right in use", |_| {
        let idle = Audit::of(&log, USER).unmet(&needed);
        if idle.len() != told {
            told = idle.len();
            eprintln!("not used yet: {idle:?}");
        }
        idle.is_empty().then_some(())
    });
}
