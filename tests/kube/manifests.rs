//! What stands below `deploy/`, written out as people would have it: that a real API server takes it, that both ways to install
//! say the same, and that what runs is as unprivileged as it can be.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use phalanx_controlplane::{Api, ControlPlane, Error, Image, Options, RELEASE, chart, kustomization};
use serde_json::{Value, json};

use crate::support::role::{NAMESPACE, collection, deploy, read};

/// Of the chart, apart from that of the kustomize base.
const OF_CHART: &str = "phalanx-chart";
/// The value for what the chart has of `deploy/monitoring`: objects that the Prometheus Operator defines.
const WITH_MONITORING: &str = "monitoring.enabled=true";
/// Values for what the chart has of `deploy/admission` and `deploy/exclusive`.
const WITH_POLICIES: [&str; 2] = ["admissionPolicy.enabled=true", "exclusiveNodes.enabled=true"];

/// The value for what the chart has of `deploy/server`.
const WITH_SERVER: &str = "server.enabled=true";

/// The objects of a kustomization, in its order.
fn objects(folder: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&kustomization(&deploy(folder)).unwrap()).unwrap()
}

fn charted(namespace: &str, values: &[&str]) -> Vec<Value> {
    serde_saphyr::from_multiple(&chart(&deploy("chart/phalanx"), "phalanx", namespace, values).unwrap())
        .unwrap()
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap()
}

fn try_out(api: &Api, object: &Value) -> Result<Value, Error> {
    api.post(&format!("{}?dryRun=All&fieldValidation=Strict", collection(object)), object)
}

/// Creates those objects of a kustomization that are of these kinds.
pub(crate) fn create(api: &Api, folder: &str, kinds: &[&str]) {
    for object in objects(folder).iter().filter(|object| kinds.contains(&kind(object))) {
        api.post(&collection(object), object).unwrap();
    }
}

/// Creates all objects of a kustomization but the definitions of resources.
pub(crate) fn create_all(api: &Api, folder: &str) {
    for object in objects(folder).iter().filter(|object| kind(object) != "CustomResourceDefinition") {
        api.post(&collection(object), object).unwrap();
    }
}

#[test]
fn a_real_api_server_takes_every_manifest_and_the_pod_is_as_restricted_as_its_namespace_demands() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let api = plane.api();
    let mut tried = BTreeSet::new();
    for folder in ["base", "device-plugin", "server"] {
        create(api, folder, &["Namespace", "ServiceAccount"]);
    }
    for object in ["base", "device-plugin", "server", "admission", "exclusive"].into_iter().flat_map(objects)
    {
        if !matches!(kind(&object), "Namespace" | "ServiceAccount") {
            try_out(api, &object).unwrap();
        }
        if kind(&object) == "Deployment" {
            let mut misspelled = object.clone();
            misspelled["spec"]["replica"] = misspelled["spec"]["replicas"].take();
            try_out(api, &misspelled).unwrap_err();
        }
        if object["spec"]["template"].is_object() {
            try_pod(api, &object);
        }
        tried.insert(kind(&object).to_owned());
    }
    let expected = [
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "DaemonSet",
        "Deployment",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "Namespace",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    assert_eq!(tried, expected.map(str::to_owned).into());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": OF_CHART, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    api.post("/api/v1/namespaces", &namespace).unwrap();
    let by_chart = charted(OF_CHART, &WITH_POLICIES);
    for object in by_chart.iter().filter(|object| kind(object) == "ServiceAccount") {
        api.post(&collection(object), object).unwrap();
    }
    for object in by_chart.iter().filter(|object| kind(object) != "ServiceAccount") {
        try_out(api, object).unwrap();
        if object["spec"]["template"].is_object() {
            try_pod(api, object);
        }
    }
    // It hands devices out: the restricted namespace is the wrong one, and otherwise the API server takes it.
    for object in charted("default", &["nodeAgent.devicePlugin=true"]) {
        try_out(api, &object).unwrap();
    }
    for values in
        [&["nodeAgent.kernelLog=true"][..], &["nodeAgent.kernelLog=true", "nodeAgent.devicePlugin=true"]]
    {
        let agents = charted("default", values);
        let agent = agents.iter().find(|object| kind(object) == "DaemonSet").unwrap();
        try_out(api, agent).unwrap();
        try_pod(api, agent);
        let mounts = agent["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
        assert_eq!(mounts.len(), 2 * values.len() - 1, "{mounts:?}");
        assert_eq!(mounts[0]["mountPath"], "/dev/kmsg", "{mounts:?}");
    }
}

/// The pod of a template in its namespace: as it stands it is taken, and in a restricted one only because it is restricted.
fn try_pod(api: &Api, object: &Value) {
    let template = &object["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = json!("one");
    let namespace = object["metadata"]["namespace"].as_str().unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    api.post(&path, &pod).unwrap();
    if matches!(namespace, NAMESPACE | OF_CHART) {
        pod["spec"]["containers"][0]["securityContext"] = json!({});
        let refused = api.post(&path, &pod).unwrap_err().to_string();
        assert!(refused.contains("PodSecurity"), "{refused}");
    }
}

/// What only a chart says of its objects, and what is said otherwise in it, taken away.
fn plain(mut object: Value) -> Value {
    let of_helm = [
        "app.kubernetes.io/instance",
        "app.kubernetes.io/version",
        "app.kubernetes.io/managed-by",
        "helm.sh/chart",
    ];
    let places = [
        "/metadata/labels",
        "/spec/selector",
        "/spec/selector/matchLabels",
        "/spec/podSelector/matchLabels",
        "/spec/template/metadata/labels",
        "/spec/template/spec/topologySpreadConstraints/0/labelSelector/matchLabels",
    ];
    for place in places {
        if let Some(labels) = object.pointer_mut(place).and_then(Value::as_object_mut) {
            labels.retain(|key, _| !of_helm.contains(&key.as_str()));
        }
    }
    // Helm keeps the definitions when a release is uninstalled; kubectl deletes what it is given.
    if kind(&object) == "CustomResourceDefinition" {
        object["metadata"].as_object_mut().unwrap().remove("annotations");
    }
    if let Some(pods) = object.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) {
        // The base keeps the agents off nodes where those of `deploy/device-plugin` are. A chart has one sort of agent.
        if pods["containers"][0]["name"] == "node" {
            pods.remove("affinity");
            pods.remove("nodeSelector");
        }
        let container = pods["containers"][0].as_object_mut().unwrap();
        // What Kubernetes takes where nothing is said.
        if container.get("imagePullPolicy") == Some(&json!("IfNotPresent")) {
            container.remove("imagePullPolicy");
        }
        // What the scheduler takes where nothing is said.
        let arguments = container["args"].as_array_mut().unwrap();
        arguments.retain(|argument| argument != "--lease-duration=15");
    }
    whole(&mut object);
    object
}

/// Writes numbers as one does without a fraction: Helm reads those of a schema as floating ones.
fn whole(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0);
            if let Some(float) = float {
                #[expect(clippy::cast_possible_truncation, reason = "bounds of resource definitions")]
                let integer = float as i64;
                *number = integer.into();
            }
        }
        Value::Array(all) => all.iter_mut().for_each(whole),
        Value::Object(all) => all.values_mut().for_each(whole),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn by_name(objects: Vec<Value>) -> BTreeMap<(String, String), Value> {
    let named = objects.into_iter().map(|object| {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        ((kind(&object).to_owned(), name), plain(object))
    });
    named.collect()
}

#[test]
fn chart_and_kustomize_base_say_the_same() {
    let folders = ["base", "admission", "exclusive", "monitoring", "server"];
    let mut base = by_name(folders.into_iter().flat_map(objects).collect());
    // Helm makes the namespace by itself, where it is told to.
    assert!(base.remove(&("Namespace".to_owned(), NAMESPACE.to_owned())).is_some());
    let values: Vec<&str> = WITH_POLICIES.into_iter().chain([WITH_MONITORING, WITH_SERVER]).collect();
    let chart = by_name(charted(NAMESPACE, &values));
    assert_eq!(base.keys().collect::<Vec<_>>(), chart.keys().collect::<Vec<_>>());
    for (name, object) in &base {
        assert_eq!(*object, chart[name], "{name:?}: the base, and the chart");
    }
    assert!(base.len() > 15, "{:?}", base.keys());
}

#[test]
fn values_of_the_chart_leave_out_and_change_what_they_say() {
    let kinds = |values: &[&str]| {
        let kinds =
            charted(NAMESPACE, values).iter().map(|object| kind(object).to_owned()).collect::<Vec<_>>();
        move |of: &str| kinds.iter().filter(|kind| *kind == of).count()
    };
    let all = kinds(&[]);
    assert_eq!([all("DaemonSet"), all("Service"), all("NetworkPolicy"), all("PodDisruptionBudget")], [1; 4]);
    assert_eq!(all("MutatingAdmissionPolicy"), 0);
    let definitions = "CustomResourceDefinition";
    assert_eq!([all(definitions), kinds(&["crds.install=false"])(definitions)], [4, 0]);
    assert_eq!([all("ServiceMonitor"), all("PrometheusRule"), all("ConfigMap")], [0; 3]);
    let monitored = kinds(&[WITH_MONITORING, "monitoring.labels.release=prometheus"]);
    assert_eq!(["ServiceMonitor", "PrometheusRule", "ConfigMap"].map(monitored), [1; 3]);
    assert_eq!(all("ValidatingAdmissionPolicy"), 3);
    assert_eq!(kinds(&["reservedAnnotations.enabled=false"])("ValidatingAdmissionPolicy"), 2);
    assert_eq!(kinds(&["leastPrivilege.enabled=false"])("ValidatingAdmissionPolicy"), 1);
    assert_eq!(kinds(&["nodeAgent.enabled=false"])("DaemonSet"), 0);
    assert_eq!(kinds(&["service.enabled=false"])("Service"), 0);
    assert_eq!(kinds(&["networkPolicy.enabled=false"])("NetworkPolicy"), 0);
    assert_eq!(kinds(&["replicas=1"])("PodDisruptionBudget"), 0);
    assert_eq!(kinds(&["serviceAccount.create=false"])("ServiceAccount"), 1, "the agent's");
    // The names that others refer to go together.
    let other = charted(NAMESPACE, &["lease.name=other", "schedulerName=other", "serviceAccount.name=other"]);
    let of = |wanted: &str| {
        let found = other
            .iter()
            .find(|object| kind(object) == wanted && object["metadata"]["name"] != "phalanx-node");
        found.unwrap().clone()
    };
    assert_eq!(of("Role")["rules"][1]["resourceNames"], json!(["other"]));
    assert_eq!(of("RoleBinding")["subjects"][0]["name"], "other");
    let pods = &of("Deployment")["spec"]["template"]["spec"];
    assert_eq!(pods["serviceAccountName"], "other");
    let arguments = pods["containers"][0]["args"].as_array().unwrap();
    for argument in ["--lease-name=other", "--scheduler-name=other"] {
        assert!(arguments.contains(&json!(argument)), "{arguments:?}");
    }
    let unknown = chart(&deploy("chart/phalanx"), "phalanx", NAMESPACE, &["replica=3"]).unwrap_err();
    assert!(unknown.to_string().contains("replica"), "{unknown}");
}

/// What stands in a rule and on a dashboard is an expression of PromQL: parentheses and braces are closed, and every metric is
/// one of the scheduler's. (That each is served a unit test of the scheduler sees.)
#[test]
fn monitoring_selects_the_service_and_asks_for_metrics_of_the_scheduler() {
    let monitoring = objects("monitoring");
    let of = |wanted: &str| monitoring.iter().find(|object| kind(object) == wanted).unwrap();
    let service = objects("base").into_iter().find(|object| kind(object) == "Service").unwrap();
    let selected = of("ServiceMonitor")["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert!(selected.iter().all(|(key, value)| service["metadata"]["labels"][key] == *value), "{selected:?}");
    let endpoint = &of("ServiceMonitor")["spec"]["endpoints"][0];
    assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"]);
    let dashboard = of("ConfigMap")["data"]["phalanx-dashboard.json"].as_str().unwrap();
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let of_panels = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let rules = of("PrometheusRule")["spec"]["groups"][0]["rules"].as_array().unwrap();
    let all: Vec<&str> = of_panels.chain(rules).map(|one| one["expr"].as_str().unwrap()).collect();
    assert!(all.len() > 25, "{}", all.len());
    for expression in all {
        let count = |c: char| expression.matches(c).count();
        assert_eq!((count('('), count('{')), (count(')'), count('}')), "{expression}");
        assert!(expression.contains("phalanx_scheduler_"), "{expression}");
    }
    for rule in rules {
        assert!(rule["annotations"]["summary"].is_string() && rule["for"].is_string(), "{rule}");
    }
}

/// What makes pods, of every way to install.
fn workloads() -> Vec<Value> {
    let charts = [charted(NAMESPACE, &[]), charted(NAMESPACE, &["nodeAgent.devicePlugin=true"])];
    let all = objects("base").into_iter().chain(objects("device-plugin")).chain(charts.into_iter().flatten());
    let workloads: Vec<Value> = all.filter(|object| object["spec"]["template"].is_object()).collect();
    assert_eq!(workloads.len(), 2 + 1 + 2 * 2);
    workloads
}

#[test]
fn containers_are_as_unprivileged_as_they_can_be() {
    for object in workloads() {
        let pods = &object["spec"]["template"]["spec"];
        let who = format!("{} {}", kind(&object), object["metadata"]["name"]);
        if kind(&object) == "Deployment" {
            assert_eq!(object["spec"]["replicas"], 2, "{who}");
        }
        let hands_out = pods["volumes"].is_array();
        let of_pod = &pods["securityContext"];
        assert_eq!(of_pod["seccompProfile"]["type"], "RuntimeDefault", "{who}");
        if hands_out {
            assert_eq!(of_pod["runAsUser"], 0, "{who}: the kubelet's folders are root's");
        } else {
            assert_eq!(
                *of_pod,
                json!({"runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"}}),
                "{who}"
            );
        }
        for field in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
            assert_eq!(pods[field], Value::Null, "{who}: {field}");
        }
        let containers = pods["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1, "{who}");
        let of_container = &containers[0]["securityContext"];
        assert_eq!(
            *of_container,
            json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]}}),
            "{who}"
        );
        assert!(containers[0]["resources"]["limits"]["memory"].is_string(), "{who}");
        let mounts = pods["volumes"].as_array().into_iter().flatten();
        let mounts: Vec<&str> = mounts.map(|volume| volume["hostPath"]["path"].as_str().unwrap()).collect();
        let kubelet = ["/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources"];
        assert_eq!(mounts, if hands_out { &kubelet[..] } else { &[] }, "{who}");
    }
}

/// Paths that probes ask, with the name of the workload.
pub(crate) fn probed() -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for object in workloads() {
        let container = &object["spec"]["template"]["spec"]["containers"][0];
        let probes = [&container["livenessProbe"], &container["readinessProbe"]];
        for probe in probes.into_iter().filter(|probe| !probe.is_null()) {
            assert_eq!(probe["httpGet"]["port"], "http", "{probe}");
            let of_liveness = probe == &container["livenessProbe"] && object["kind"] == "Deployment";
            let fails_s = probe["periodSeconds"].as_u64().zip(probe["failureThreshold"].as_u64());
            assert!(
                !of_liveness || fails_s.is_some_and(|(every, times)| (20..=40).contains(&(every * times))),
                "a scheduler that hangs is ended soon, and not for one probe: {probe}"
            );
            paths.insert(probe["httpGet"]["path"].as_str().unwrap().to_owned());
        }
    }
    assert!(paths.contains("/healthz") && paths.contains("/readyz"), "{paths:?}");
    paths
}

#[test]
fn services_and_policies_name_ports_that_containers_have() {
    for all in [objects("base"), charted(NAMESPACE, &[])] {
        let find = |wanted: &str| all.iter().find(|object| kind(object) == wanted).unwrap();
        let (deployment, service) = (find("Deployment"), find("Service"));
        let ports = deployment["spec"]["template"]["spec"]["containers"][0]["ports"].as_array().unwrap();
        assert_eq!(ports.len(), 1);
        let (name, number) = (&ports[0]["name"], &ports[0]["containerPort"]);
        let served = &service["spec"]["ports"][0];
        assert_eq!((&served["targetPort"], &served["port"]), (name, number));
        let told = &service["metadata"]["annotations"];
        assert_eq!(told["prometheus.io/port"], json!(number.to_string()));
        assert!(crate::health::PATHS.contains(&told["prometheus.io/path"].as_str().unwrap()), "{told}");
        let policy = &find("NetworkPolicy")["spec"];
        assert_eq!(policy["ingress"], json!([{"ports": [{"protocol": "TCP", "port": name}]}]));
        assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
        let out = [443, 6443].map(|port| json!({"protocol": "TCP", "port": port}));
        assert_eq!(policy["egress"], json!([{"ports": out}]), "the API server alone");
        // All of them mean the same pods.
        let pods = &deployment["spec"]["template"]["metadata"]["labels"];
        for selector in [
            &service["spec"]["selector"],
            &policy["podSelector"]["matchLabels"],
            &deployment["spec"]["selector"]["matchLabels"],
            &find("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        ] {
            let selector = selector.as_object().unwrap();
            assert!(
                selector.len() > 1 && selector.iter().all(|(key, value)| pods[key] == *value),
                "{selector:?}"
            );
        }
    }
}

/// With a certificate it listens for everybody and has a Service; without one only its own pod reaches it.
#[test]
fn the_server_is_as_unprivileged_as_the_scheduler_and_only_with_a_certificate_there_is_a_service() {
    let tls = [WITH_SERVER, "server.tlsSecret=tls", "server.names={localhost:8443}"];
    for (all, has_tls) in [
        (objects("server"), false),
        (charted(NAMESPACE, &[WITH_SERVER]), false),
        (charted(NAMESPACE, &tls), true),
    ] {
        let is_of_server =
            |object: &&Value| object["metadata"]["labels"]["app.kubernetes.io/component"] == "server";
        let of = |wanted: &str| all.iter().filter(is_of_server).find(|object| kind(object) == wanted);
        let pods = &of("Deployment").unwrap()["spec"]["template"];
        let container = &pods["spec"]["containers"][0];
        let base = objects("base");
        let scheduler = base.iter().find(|object| kind(object) == "Deployment").unwrap();
        let scheduler = &scheduler["spec"]["template"]["spec"];
        assert_eq!(container["securityContext"], scheduler["containers"][0]["securityContext"]);
        let mut expected = scheduler["securityContext"].clone();
        if has_tls {
            expected["fsGroup"] = json!(65532);
            assert_eq!(
                pods["spec"]["volumes"][0]["secret"],
                json!({"secretName": "tls", "defaultMode": 288})
            );
            assert!(container["args"].as_array().unwrap().contains(&json!("--name=localhost:8443")));
        } else {
            assert_eq!(pods["spec"]["volumes"], Value::Null);
            assert!(container["args"].as_array().unwrap().contains(&json!("--listen=127.0.0.1:7077")));
        }
        assert_eq!(pods["spec"]["securityContext"], expected);
        let ports: Vec<&Value> =
            container["ports"].as_array().unwrap().iter().map(|port| &port["name"]).collect();
        let policy = &of("NetworkPolicy").unwrap()["spec"];
        let open = policy["ingress"][0]["ports"].as_array().unwrap().iter().map(|port| &port["port"]);
        assert_eq!(open.collect::<Vec<_>>(), ports);
        assert_eq!(of("Service").is_some(), has_tls);
        if let Some(service) = of("Service") {
            assert_eq!(service["spec"]["ports"][0]["port"], container["ports"][1]["containerPort"]);
            assert_eq!(service["spec"]["ports"][0]["targetPort"], "https");
        }
    }
}

#[test]
fn the_image_runs_as_who_manifests_say_and_has_the_name_and_the_program_that_they_start() {
    let image = Image::of_release(RELEASE, Path::new("phalanx")).unwrap();
    let (program, arguments) = image.starts();
    assert_eq!(
        (program, arguments),
        (&["/usr/local/bin/phalanx".to_owned()][..], &["scheduler".to_owned()][..])
    );
    for object in workloads() {
        let pods = &object["spec"]["template"]["spec"];
        let of_pod = &pods["securityContext"];
        if of_pod["runAsNonRoot"] == true {
            let user = format!("{}:{}", of_pod["runAsUser"], of_pod["runAsGroup"]);
            assert_eq!(image.user(), Some(&*user));
        }
        let container = &pods["containers"][0];
        assert_eq!(container["command"], Value::Null, "the image says which program");
        // Without a registry Kubernetes takes this one.
        let named = format!("docker.io/library/{}", container["image"].as_str().unwrap());
        assert_eq!(named, image.name());
    }
}

/// Templates use what the values have, the values have nothing that no template uses, and the schema knows them all.
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
