//! A control plane as tests use it: built where it is missing, started, used, gone.

use std::time::Duration;

use phalanx_controlplane::{Api, ControlPlane, Error, Fleet, GPU, Options, Program, User};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
/// Far beyond what any of this takes; only what hangs gets there.
const PATIENCE: Duration = Duration::from_secs(300);

fn pod(name: &str, node: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none", "resources": {"limits": {GPU: "1"}}}],
        },
    })
}

fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    phalanx_controlplane::until(PATIENCE, what, look)
}

fn until_phase(api: &Api, name: &str, phase: &str) -> Value {
    until(&format!("{phase} of {name}"), || {
        let pod = api.get(&format!("{PODS}/{name}")).ok()?;
        (pod["status"]["phase"] == phase).then_some(pod)
    })
}

fn is_alive(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}

#[test]
fn pods_on_fake_nodes_run_and_nothing_is_left_when_it_is_dropped() {
    let options = Options { controller_manager: true, kwok: true, ..Options::default() };
    let plane = ControlPlane::start(&options).unwrap();
    let api = plane.api();
    let version = api.get("/version").unwrap();
    assert_eq!(version["gitVersion"], plane.kubernetes().release());
    Fleet::new(3).create(api).unwrap();
    assert_eq!(api.get("/api/v1/nodes").unwrap()["items"].as_array().unwrap().len(), 3);

    let waits = json!({"controlplane.phalanx.dev/never-ready": "yes"});
    api.post(PODS, &pod("waits", &Fleet::name(0), &waits)).unwrap();
    api.post(PODS, &pod("runs", &Fleet::name(0), &json!({}))).unwrap();
    let ends = json!({"controlplane.phalanx.dev/succeed-after": "100ms"});
    api.post(PODS, &pod("ends", &Fleet::name(1), &ends)).unwrap();
    let fails = json!({"controlplane.phalanx.dev/fail-after": "100ms"});
    api.post(PODS, &pod("fails", &Fleet::name(2), &fails)).unwrap();
    let runs = until_phase(api, "runs", "Running");
    assert!(runs["status"]["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.")), "{runs:#}");
    until_phase(api, "ends", "Succeeded");
    let failed = until_phase(api, "fails", "Failed");
    assert_eq!(failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 1);
    assert_eq!(api.get(&format!("{PODS}/waits")).unwrap()["status"]["phase"], "Pending");
    api.delete(&format!("{PODS}/runs")).unwrap();
    until("the end of a deleted pod", || match api.get(&format!("{PODS}/runs")) {
        Err(e) if e.status() == Some(404) => Some(()),
        _ => None,
    });

    let programs = [Program::Etcd, Program::ApiServer, Program::ControllerManager, Program::Kwok];
    let pids = programs.map(|program| plane.pid(program).unwrap());
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    let folder = plane.folder().to_path_buf();
    drop(plane);
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert!(!folder.exists());
}

#[test]
fn two_at_once_do_not_disturb_each_other() {
    let planes = [0, 1].map(|_| ControlPlane::start(&Options::default()).unwrap());
    let [first, second] = planes.each_ref().map(ControlPlane::api);
    assert_ne!(first.server(), second.server());
    Fleet::new(2).create(first).unwrap();
    let count = |api: &Api| api.get("/api/v1/nodes").unwrap()["items"].as_array().unwrap().len();
    assert_eq!((count(first), count(second)), (2, 0));
    // Without a controller manager pods need no service account, and new nodes get no taint.
    first.post(PODS, &pod("bound", &Fleet::name(0), &json!({}))).unwrap();
    assert!(first.get("/api/v1/nodes/node-00000").unwrap()["spec"]["taints"].is_null());
}

#[test]
fn users_have_the_rights_that_they_were_given_and_the_audit_log_says_what_they_did() {
    let users = vec![User { name: "alice".to_owned(), groups: vec!["readers".to_owned()] }];
    let plane = ControlPlane::start(&Options { audit: true, users, ..Options::default() }).unwrap();
    let api = plane.api();
    let alice = Api::of_kubeconfig(&plane.kubeconfig_of("alice")).unwrap();
    assert_eq!(alice.get(PODS).unwrap_err().status(), Some(403));
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "read-pods"}, "rules": [rule]});
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).unwrap();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "read-pods"},
        "subjects": [
            {"kind": "Group", "name": "readers", "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}],
        "roleRef": {"kind": "ClusterRole", "name": "read-pods", "apiGroup": "rbac.authorization.k8s.io"}});
    api.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).unwrap();
    until("the right to list pods", || alice.get(PODS).ok());
    assert_eq!(alice.get("/api/v1/nodes").unwrap_err().status(), Some(403));

    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}});
    api.post("/api/v1/namespaces/default/serviceaccounts", &account).unwrap();
    let kubeconfig = plane.kubeconfig_of_service_account("default", "reader").unwrap();
    let reader = Api::of_kubeconfig(&kubeconfig).unwrap();
    reader.get(PODS).unwrap();
    assert_eq!(reader.get("/api/v1/nodes").unwrap_err().status(), Some(403));

    let log = std::fs::read_to_string(plane.audit_log()).unwrap();
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = |user: &str, code: u64| {
        events.iter().any(|event| {
            event["user"]["username"] == user
                && event["objectRef"]["resource"] == "pods"
                && event["responseStatus"]["code"] == code
        })
    };
    assert!(said("alice", 403) && said("alice", 200) && said("system:serviceaccount:default:reader", 200));
}

#[test]
fn kube_scheduler_places_a_gang_of_a_pod_group_in_one_rack() {
    let plane = ControlPlane::start(&Options { kube_scheduler: true, ..Options::default() }).unwrap();
    let api = plane.api();
    let fleet = Fleet { nodes_per_rack: 2, ..Fleet::new(4) };
    fleet.create(api).unwrap();
    let version = plane.kubernetes().pod_group_version();
    let group = json!({"apiVersion": format!("scheduling.k8s.io/{version}"), "kind": "PodGroup",
        "metadata": {"name": "gang"},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": {"topology": [{"key": Fleet::RACK}]}}});
    api.post(&format!("/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups"), &group).unwrap();
    for name in ["gang-0", "gang-1"] {
        let mut member = pod(name, "", &json!({}));
        member["spec"]["schedulingGroup"] = json!({"podGroupName": "gang"});
        member["spec"]["containers"][0]["resources"]["limits"][GPU] = json!("8");
        member["spec"].as_object_mut().unwrap().remove("nodeName");
        api.post(PODS, &member).unwrap();
    }
    let nodes = ["gang-0", "gang-1"].map(|name| {
        until("a place", || {
            let pod = api.get(&format!("{PODS}/{name}")).unwrap();
            pod["spec"]["nodeName"].as_str().map(str::to_owned)
        })
    });
    let racks = nodes.each_ref().map(|name| {
        let at: usize = name.trim_start_matches("node-").parse().unwrap();
        fleet.rack(at)
    });
    assert_ne!(nodes[0], nodes[1]);
    assert_eq!(racks[0], racks[1]);
}

#[test]
fn a_program_that_was_killed_comes_back_on_its_port_with_its_state() {
    let mut plane = ControlPlane::start(&Options::default()).unwrap();
    let api = plane.api().clone();
    Fleet::new(1).create(&api).unwrap();
    plane.stop(Program::ApiServer);
    assert!(matches!(api.get("/api/v1/nodes"), Err(Error::NoAnswer { .. })));
    plane.run(Program::ApiServer).unwrap();
    assert_eq!(api.get("/api/v1/nodes/node-00000").unwrap()["metadata"]["name"], "node-00000");
}

#[test]
fn the_controllers_of_the_training_operator_make_pods_of_a_job() {
    let options =
        Options { controller_manager: true, kwok: true, training_operator: true, ..Options::default() };
    let plane = ControlPlane::start(&options).unwrap();
    let api = plane.api();
    let replica = |count: u32| {
        json!({"replicas": count, "restartPolicy": "Never", "template": {"spec": {
            "containers": [{"name": "pytorch", "image": "none"}]}}})
    };
    let job = json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train"},
        "spec": {"pytorchReplicaSpecs": {"Master": replica(1), "Worker": replica(2)}}});
    let jobs = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs";
    until("the kind PyTorchJob", || api.post(jobs, &job).ok());
    let mut names: Vec<String> = until("three pods", || {
        let pods = api.get(PODS).unwrap();
        let pods = pods["items"].as_array().unwrap();
        let names = pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned());
        (pods.len() == 3).then(|| names.collect())
    });
    names.sort();
    assert_eq!(names, ["train-master-0", "train-worker-0", "train-worker-1"]);
}
