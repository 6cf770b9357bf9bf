//! What stands below `deploy/`: that a real API server takes it, and that the scheduler needs no right beyond it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use phalanx_controlplane::{Api, ControlPlane, Error, Fleet, Options};
use phalanx_kube::books::CLUSTER_KINDS;
use phalanx_kube::gang::{KINDS, suspendable};
use phalanx_kube::rights::{Right, of_cluster, of_lease};
use serde_json::{Value, json};

use crate::autoscalers;
use crate::dra_gangs;
use crate::fabric::{create_members, group};
use crate::support::{Cluster, JOBS, POD_GROUPS, PODS, job, pod};
use crate::volcano::{VolcanoJob, until_phase};
use crate::volumes::{CLAIMS, CLASSES, VOLUMES, claim, class, mounts, volume};

const NAMESPACE: &str = "phalanx-system";
const SCHEDULER: &str = "phalanx-scheduler";

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path)
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Objects as they are written, each with itself read.
fn documents(text: &str) -> Vec<(String, Value)> {
    let parts = text.split("\n---\n").map(|part| part.trim_start_matches("---\n").trim());
    let parts = parts.filter(|part| part.lines().any(|line| !line.is_empty() && !line.starts_with('#')));
    parts.map(|part| (part.to_owned(), serde_saphyr::from_str(part).unwrap())).collect()
}

/// The objects of a kustomization, in its order.
fn objects(folder: &str) -> Vec<(String, Value)> {
    let kustomization: Value =
        serde_saphyr::from_str(&read(&deploy(folder).join("kustomization.yaml"))).unwrap();
    let files = kustomization["resources"].as_array().unwrap();
    files.iter().flat_map(|file| documents(&read(&deploy(folder).join(file.as_str().unwrap())))).collect()
}

/// Where an object is created.
fn collection(object: &Value) -> String {
    let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let singular = kind.to_lowercase();
    let plural = match singular.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{singular}s"),
    };
    let root = if version.contains('/') { "apis" } else { "api" };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/{root}/{version}/{plural}"),
    }
}

fn try_out(api: &Api, object: &Value, text: &str) -> Result<Value, Error> {
    api.post_yaml(&format!("{}?dryRun=All&fieldValidation=Strict", collection(object)), text)
}

/// Creates those objects of a kustomization that are of these kinds.
pub(crate) fn create(api: &Api, folder: &str, kinds: &[&str]) {
    for (text, object) in objects(folder) {
        if kinds.contains(&object["kind"].as_str().unwrap()) {
            api.post_yaml(&collection(&object), &text).unwrap();
        }
    }
}

#[test]
fn a_real_api_server_takes_every_manifest_and_the_pod_is_as_restricted_as_its_namespace_demands() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let api = plane.api();
    let mut tried = BTreeSet::new();
    for folder in ["base", "device-plugin"] {
        create(api, folder, &["Namespace", "ServiceAccount"]);
    }
    for (text, object) in ["base", "device-plugin", "admission", "exclusive"].into_iter().flat_map(objects) {
        let kind = object["kind"].as_str().unwrap().to_owned();
        if !matches!(&*kind, "Namespace" | "ServiceAccount") {
            try_out(api, &object, &text).unwrap();
        }
        if kind == "Deployment" {
            let misspelled = text.replace("replicas:", "replica:");
            assert_ne!(misspelled, text);
            try_out(api, &object, &misspelled).unwrap_err();
        }
        if object["spec"]["template"].is_object() {
            try_pod(api, &object);
        }
        tried.insert(kind);
    }
    let expected = [
        "ClusterRole",
        "ClusterRoleBinding",
        "DaemonSet",
        "Deployment",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "Namespace",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    ];
    assert_eq!(tried, expected.into_iter().map(str::to_owned).collect());
    for (text, object) in rendered_chart() {
        try_out(api, &object, &text).unwrap();
    }
}

/// The pod of a template in its namespace: as it stands it is taken, and in the restricted one only because it is restricted.
fn try_pod(api: &Api, object: &Value) {
    let template = &object["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = json!("one");
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    api.post(&path, &pod).unwrap();
    if namespace == NAMESPACE {
        pod["spec"]["containers"][0]["securityContext"] = json!({});
        let refused = api.post(&path, &pod).unwrap_err().to_string();
        assert!(refused.contains("PodSecurity"), "{refused}");
    }
}

/// Nothing where there is no `helm`.
fn rendered_chart() -> Vec<(String, Value)> {
    let helm = Command::new("helm")
        .args(["template", "phalanx", "--namespace", NAMESPACE, "--set", "admissionPolicy.enabled=true"])
        .args(["--set", "exclusiveNodes.enabled=true"])
        .arg(deploy("chart/phalanx"))
        .output();
    let Ok(helm) = helm else { return Vec::new() };
    assert!(helm.status.success(), "{}", String::from_utf8_lossy(&helm.stderr));
    documents(&String::from_utf8(helm.stdout).unwrap())
}

/// Without `helm`: templates use what the values have, the values have nothing that no template uses, and the schema
/// knows them all.
#[test]
fn the_chart_uses_all_of_its_values_and_no_others() {
    let chart = deploy("chart/phalanx");
    let values: Value = serde_saphyr::from_str(&read(&chart.join("values.yaml"))).unwrap();
    let schema: Value = serde_json::from_str(&read(&chart.join("values.schema.json"))).unwrap();
    let about: Value = serde_saphyr::from_str(&read(&chart.join("Chart.yaml"))).unwrap();
    assert_eq!(about["appVersion"], env!("CARGO_PKG_VERSION"));
    let mut used = BTreeSet::new();
    for file in std::fs::read_dir(chart.join("templates")).unwrap() {
        let text = read(&file.unwrap().path());
        for after in text.split(".Values.").skip(1) {
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '.').unwrap_or(after.len());
            used.insert(after[..end].to_owned());
        }
    }
    for path in &used {
        let pointer = format!("/{}", path.replace('.', "/"));
        assert!(values.pointer(&pointer).is_some(), "no value is called {path}");
    }
    let is_used =
        |path: &str| used.contains(path) || used.iter().any(|used| path.starts_with(&format!("{used}.")));
    for (name, value) in values.as_object().unwrap() {
        let known = &schema["properties"][name];
        assert!(known.is_object(), "the schema does not know {name}");
        if is_used(name) {
            continue;
        }
        for inner in value.as_object().unwrap().keys() {
            assert!(is_used(&format!("{name}.{inner}")), "nothing uses {name}.{inner}");
            assert!(known["properties"][inner].is_object(), "the schema does not know {name}.{inner}");
        }
    }
}

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

/// A call as RBAC sees it: group, resource, verb.
pub(crate) type Use = (String, String, String);

pub(crate) fn uses(rights: &[Right]) -> BTreeSet<Use> {
    let each = |right: &Right| {
        let Right { group, resources, verbs, .. } = right.clone();
        resources.into_iter().flat_map(move |resource| {
            verbs.iter().map(move |verb| (group.to_owned(), resource.to_owned(), (*verb).to_owned()))
        })
    };
    rights.iter().flat_map(each).collect()
}

/// What the scheduler did, and what it was not allowed to do.
pub(crate) fn audited(log: &Path, user: &str) -> (BTreeSet<Use>, Vec<String>) {
    let mut done = BTreeSet::new();
    let mut denied = Vec::new();
    for line in read(log).lines() {
        // The last line may be on its way.
        let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
        if event["user"]["username"] != user {
            continue;
        }
        if event["annotations"]["authorization.k8s.io/decision"] == "forbid" {
            denied.push(line.to_owned());
        }
        let of = &event["objectRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = match of["subresource"].as_str() {
            Some(part) => format!("{}/{part}", text(&of["resource"])),
            None => text(&of["resource"]),
        };
        done.insert((text(&of["apiGroup"]), resource, text(&event["verb"])));
    }
    (done, denied)
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
        cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd);
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

/// Waits until somebody may do something. Asked as somebody else: what was denied is looked for later.
pub(crate) fn until_may(
    cluster: &Cluster,
    user: &str,
    namespace: &str,
    group: &str,
    resource: &str,
    verb: &str,
) {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": user,
        "resourceAttributes": {"namespace": namespace, "group": group, "resource": resource, "verb": verb}}});
    cluster.until("the roles", |cluster| {
        let answer =
            cluster.api().post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).unwrap();
        (answer["status"]["allowed"] == true).then_some(())
    });
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
    let mut cluster = Cluster::with(
        &Options { controller_manager: true, kwok: true, audit: true, ..Options::default() },
        1,
    );
    let roles = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
    create(cluster.api(), "base", &roles);
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
    let user = format!("system:serviceaccount:{NAMESPACE}:{SCHEDULER}");
    until_may(&cluster, &user, "", "", "nodes", "list");
    until_may(&cluster, &user, NAMESPACE, "coordination.k8s.io", "leases", "create");
    let kubeconfig = cluster.plane.kubeconfig_of_service_account(NAMESPACE, SCHEDULER).unwrap();
    // Longer than a busy machine may take to renew it.
    cluster.schedule_as(&kubeconfig, 30, NAMESPACE);

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
    cluster.create(POD_GROUPS, &group("group", 1, Some("low")));
    create_members(&cluster, "group", 1, 8);
    tell_others(&cluster, &of_class(job("wide", 2, 8, &json!({})), "high"), "top");
    // What waits is told why; what has had its time is taken away.
    cluster.create(PODS, &of_class(pod("waits", 8), "low"));
    cluster.until_explained("waits", "");
    let mut brief = of_class(job("brief", 1, 0, &json!({})), "low");
    brief["metadata"]["annotations"] = json!({"phalanx.dev/time-limit": "2s"});
    cluster.create(JOBS, &brief);

    let mut rights = of_cluster();
    rights.extend(of_lease(SCHEDULER));
    // Asked only when somebody else wrote to a claim at the same time, which no story can order; or by the API server itself, when the devices of a claim are written; or when a start came to nothing for
    // which a claim had been made.
    let unseen = [
        ("resource.k8s.io", "resourceclaims", "get"),
        ("resource.k8s.io", "resourceclaims", "delete"),
        ("resource.k8s.io", "resourceclaims/binding", "patch"),
    ];
    let mut needed = uses(&rights);
    for (group, resource, verb) in unseen {
        assert!(needed.remove(&(group.to_owned(), resource.to_owned(), verb.to_owned())), "{resource}");
    }
    for (group, plural) in suspendable() {
        for verb in ["get", "patch"] {
            assert!(
                needed.contains(&(group.to_owned(), plural.to_owned(), verb.to_owned())),
                "{verb} {plural}"
            );
        }
    }
    let log = cluster.plane.audit_log();
    let mut told = 0;
    cluster.until("every right in use", |_| {
        let (done, _) = audited(&log, &user);
        let idle: Vec<_> = needed.difference(&done).collect();
        if idle.len() != told {
            told = idle.len();
            eprintln!("not used yet: {idle:?}");
        }
        idle.is_empty().then_some(())
    });
    let (_, denied) = audited(&log, &user);
    assert!(denied.is_empty(), "denied:\n{}", denied.join("\n"));
}
