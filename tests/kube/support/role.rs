//! The scheduler of every test has the roles of the kustomize base, and no other right.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use phalanx_controlplane::{Api, ControlPlane};
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "phalanx-system";
pub(crate) const SCHEDULER: &str = "phalanx-scheduler";
pub(crate) const USER: &str = "system:serviceaccount:phalanx-system:phalanx-scheduler";

/// Far beyond what it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file below `deploy`.
pub(crate) fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path)
}

pub(crate) fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Where an object is created.
pub(crate) fn collection(object: &Value) -> String {
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

/// The kubeconfig of the scheduler's service account, which is made with its roles where it is not there yet.
pub(crate) fn scheduler(plane: &ControlPlane) -> PathBuf {
    let file = plane.folder().join(format!("{NAMESPACE}.{SCHEDULER}.kubeconfig"));
    if file.exists() {
        return file;
    }
    let api = plane.api();
    for name in ["namespace", "service_account", "rbac"] {
        let text = read(&deploy(&format!("base/{name}.yaml")));
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            api.post(&collection(&object), &object).unwrap();
        }
    }
    until_may(api, USER, "", "", "nodes", "list");
    until_may(api, USER, NAMESPACE, "coordination.k8s.io", "leases", "create");
    let made = plane.kubeconfig_of_service_account(NAMESPACE, SCHEDULER).unwrap();
    assert_eq!(made, file);
    file
}

pub(crate) const SERVER: &str = "system:serviceaccount:phalanx-system:phalanx-server";

/// The kubeconfig of the server's service account, which is made with its role. The namespace is there.
pub(crate) fn server(plane: &ControlPlane) -> PathBuf {
    let api = plane.api();
    for name in ["service_account", "rbac"] {
        let text = read(&deploy(&format!("server/{name}.yaml")));
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            api.post(&collection(&object), &object).unwrap();
        }
    }
    until_may(api, SERVER, "", "authentication.k8s.io", "tokenreviews", "create");
    until_may(api, SERVER, "", "", "nodes", "list");
    plane.kubeconfig_of_service_account(NAMESPACE, "phalanx-server").unwrap()
}

/// Waits until somebody may do something. Asked as somebody else: what was denied is looked for later.
pub(crate) fn until_may(api: &Api, user: &str, namespace: &str, group: &str, resource: &str, verb: &str) {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {
        "user": user,
        "resourceAttributes": {"namespace": namespace, "group": group, "resource": resource, "verb": verb}}});
    let began = Instant::now();
    loop {
        let answer = api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).unwrap();
        if answer["status"]["allowed"] == true {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{user} may not {verb} {resource}: {answer:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
