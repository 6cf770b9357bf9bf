//! A release of the chart over its life: installed by an older chart, upgraded, uninstalled. The resource definitions follow the
//! release and outlive it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use phalanx_controlplane::{Api, ControlPlane, Options, Renderer, binary};
use serde_json::{Value, json};

use crate::support::role::{NAMESPACE, deploy, read};

const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/queues.phalanx.dev";
const QUEUES: &str = "/apis/phalanx.dev/v1alpha1/queues";
const RELEASE: &str = "phalanx";
/// A field of a `Queue` that the older charts of these tests do not know.
const FIELD: &str = "maxTime";
/// Far beyond what it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A copy of the chart whose definition of queues lacks [`FIELD`].
fn older_chart(to: &Path) -> PathBuf {
    copy(&deploy("chart/phalanx"), to);
    let file = to.join("definitions/queues.phalanx.dev.yaml");
    let mut definition: Value = serde_saphyr::from_str(&read(&file)).unwrap();
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let fields = schema["properties"]["spec"]["properties"].as_object_mut().unwrap();
    assert!(fields.remove(FIELD).is_some());
    // JSON is YAML.
    fs::write(&file, definition.to_string()).unwrap();
    to.to_path_buf()
}

/// The same as charts were at first: Helm creates what is in `crds/`, without noting a release on it.
fn first_chart(to: &Path) -> PathBuf {
    let chart = older_chart(to);
    fs::rename(chart.join("definitions"), chart.join("crds")).unwrap();
    fs::remove_file(chart.join("templates/crds.yaml")).unwrap();
    for file in fs::read_dir(chart.join("crds")).unwrap() {
        let path = file.unwrap().path();
        let mut definition: Value = serde_saphyr::from_str(&read(&path)).unwrap();
        definition["metadata"].as_object_mut().unwrap().remove("annotations").unwrap();
        fs::write(&path, definition.to_string()).unwrap();
    }
    chart
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

/// Runs Helm against a control plane; the error is what Helm said.
fn helm(plane: &ControlPlane, arguments: &[&str]) -> Result<(), String> {
    let mut helm = Command::new(binary(Renderer::Helm).unwrap());
    helm.args(arguments).args(["--namespace", NAMESPACE]).env("KUBECONFIG", plane.kubeconfig());
    for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        helm.env(home, plane.folder().join("helm"));
    }
    let done = helm.output().unwrap();
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned()) }
}

fn upgrade(plane: &ControlPlane, chart: &Path, flags: &[&str]) -> Result<(), String> {
    let chart = chart.display().to_string();
    helm(plane, &[&["upgrade", RELEASE, &chart], flags].concat())
}

fn knows_field(api: &Api) -> bool {
    let definition = api.get(DEFINITION).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema["properties"]["spec"]["properties"][FIELD].is_object()
}

fn queue(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}, "spec": spec})
}

/// Tries until the API server serves the definition that it was given a moment before.
fn until_created(api: &Api, queue: &Value) -> Value {
    let (began, path) = (Instant::now(), format!("{QUEUES}?fieldValidation=Strict"));
    loop {
        match api.post(&path, queue) {
            Ok(made) => return made,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What must survive: the object itself, and what its owner wrote.
fn kept(api: &Api, name: &str) -> (Value, Value) {
    let queue = api.get(&format!("{QUEUES}/{name}")).unwrap();
    (queue["metadata"]["uid"].clone(), queue["spec"].clone())
}

/// Helm creates what a chart has in `crds/`, and never changes it: after an upgrade new fields were dropped in silence.
#[test]
fn an_upgrade_of_the_release_updates_the_definitions_and_uninstalling_keeps_them() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let api = plane.api();
    let charts = plane.folder().join("charts");
    let first = first_chart(&charts.join("first"));
    helm(&plane, &["install", RELEASE, &first.display().to_string(), "--create-namespace"]).unwrap();
    assert!(!knows_field(api));
    until_created(api, &queue("vision", &json!({"guaranteed": {"gpus": 8}})));
    let vision = kept(api, "vision");

    // Helm takes objects over that it did not note a release on only if it is told to.
    let chart = deploy("chart/phalanx");
    let refused = upgrade(&plane, &chart, &[]).unwrap_err();
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    assert!(!knows_field(api));
    upgrade(&plane, &chart, &["--reset-then-reuse-values", "--take-ownership"]).unwrap();
    assert!(knows_field(api));
    let owner = &api.get(DEFINITION).unwrap()["metadata"]["annotations"]["meta.helm.sh/release-name"];
    assert_eq!(owner, RELEASE);
    assert_eq!(kept(api, "vision"), vision);
    let made = until_created(api, &queue("speech", &json!({FIELD: "4h"})));
    assert_eq!(made["spec"][FIELD], "4h");

    // From then on an upgrade needs no flag, and another value takes nothing away.
    upgrade(&plane, &chart, &["--set", "crds.install=false"]).unwrap();
    assert!(knows_field(api));
    helm(&plane, &["uninstall", RELEASE]).unwrap();
    let gone = api.get(&format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/phalanx-scheduler"));
    assert_eq!(gone.unwrap_err().status(), Some(404));
    assert!(knows_field(api));
    assert_eq!(kept(api, "vision"), vision);
}

#[test]
fn definitions_of_a_release_are_updated_kept_and_found_again_by_the_next_release_of_that_name() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let api = plane.api();
    let older = older_chart(&plane.folder().join("older"));
    let older = older.display().to_string();
    helm(&plane, &["install", RELEASE, &older, "--create-namespace"]).unwrap();
    assert!(!knows_field(api));
    until_created(api, &queue("vision", &json!({"guaranteed": {"gpus": 8}})));
    let vision = kept(api, "vision");
    let chart = deploy("chart/phalanx");
    upgrade(&plane, &chart, &[]).unwrap();
    assert!(knows_field(api));
    helm(&plane, &["rollback", RELEASE]).unwrap();
    assert!(!knows_field(api));
    assert_eq!(kept(api, "vision"), vision);
    upgrade(&plane, &chart, &[]).unwrap();
    assert!(knows_field(api));
    helm(&plane, &["uninstall", RELEASE]).unwrap();
    assert_eq!(kept(api, "vision"), vision);

    let chart = chart.display().to_string();
    let refused = helm(&plane, &["install", "other", &chart]).unwrap_err();
    assert!(refused.contains("invalid ownership metadata"), "{refused}");
    helm(&plane, &["install", "other", &chart, "--set", "crds.install=false"]).unwrap();
    helm(&plane, &["uninstall", "other"]).unwrap();
    helm(&plane, &["install", RELEASE, &chart]).unwrap();
    assert!(knows_field(api));
    assert_eq!(kept(api, "vision"), vision);
}
