//! The API server takes our definitions, and what they say of an object it holds it to.

use std::path::Path;
use std::time::{Duration, Instant};

use phalanx_controlplane::{Api, ControlPlane, Options};
use phalanx_kube::crd;
use serde_json::{Value, json};

use crate::support::DEFINITIONS;

const RESOURCES: &str = "/apis/phalanx.dev/v1alpha1";
/// Far beyond what it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Creates what is committed, and waits until it is served.
fn define(api: &Api) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    for definition in crd::all() {
        let name = definition.metadata.name.unwrap();
        let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
        api.post_yaml(DEFINITIONS, &text).unwrap();
        let plural = definition.spec.names.plural;
        let began = Instant::now();
        loop {
            let now = api.get(&format!("{DEFINITIONS}/{name}")).unwrap();
            let conditions = now["status"]["conditions"].as_array().cloned().unwrap_or_default();
            // What a schema may not say is told here, and the definition is served all the same.
            let bad = conditions.iter().find(|one| one["type"] == "NonStructuralSchema");
            assert!(bad.is_none(), "{name}: {bad:?}");
            let is_there =
                conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True");
            if is_there && api.get(&format!("{RESOURCES}/{plural}")).is_ok() {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{name} is not served: {conditions:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "phalanx.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn plural(kind: &str) -> &'static str {
    match kind {
        "Queue" => "queues",
        "SharePolicy" => "sharepolicies",
        "Fabric" => "fabrics",
        _ => "nodetopologies",
    }
}

#[test]
fn the_api_server_takes_our_definitions_and_refuses_what_they_rule_out() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let api = plane.api();
    define(api);
    let create = |kind: &str, name: &str, spec: &Value| {
        api.post(&format!("{RESOURCES}/{}", plural(kind)), &object(kind, name, spec))
    };
    for (kind, name, spec) in good() {
        let made = create(kind, name, &spec).unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
        // Nothing that was written is dropped, and nothing is added to it.
        let spec = if kind == "NodeTopology" { made["spec"].clone() } else { spec };
        assert_eq!(made["spec"], spec, "{kind} {name}");
    }
    for (kind, name, spec, why) in bad() {
        let refused = create(kind, name, &spec);
        let error = refused.map_err(|error| (error.status(), error.to_string())).unwrap_err();
        assert!(error.0 == Some(422) && error.1.contains(why), "{kind} {name} {spec}: {error:?}");
    }
    the_status_is_apart(api);
}

/// Whoever writes the status changes nothing else, and the other way round.
fn the_status_is_apart(api: &Api) {
    let path = format!("{RESOURCES}/queues/vision");
    let status = json!({"status": {"pending": 3, "usage": {"gpus": {"used": "4", "wanted": "0", "guaranteed": "8",
        "capacity": "64"}}}, "spec": {"maxPending": 9}});
    let written = api.patch(&format!("{path}/status"), &status).unwrap();
    assert_eq!(written["status"]["pending"], 3);
    assert_eq!(written["spec"]["maxPending"], 7);
    let written = api.patch(&path, &json!({"spec": {"maxPending": 8}, "status": {"pending": 9}})).unwrap();
    assert_eq!((&written["status"]["pending"], &written["spec"]["maxPending"]), (&json!(3), &json!(8)));
}

type Good = (&'static str, &'static str, Value);
type Bad = (&'static str, &'static str, Value, &'static str);

fn good() -> Vec<Good> {
    let vision = json!({"guaranteed": {"gpus": 8, "memory": "2Ti", "gpus/H100": "4.5"}, "limit": {"gpus": 16},
        "lend": {"gpus": 2}, "weight": "0.5", "shapes": [{"level": "leaf", "count": 2, "nodes": 32}], "maxPending": 7,
        "maxRunning": 5, "maxGangGpus": 64, "maxTime": "4h", "wait": "priced",
        "namespaces": {"matchLabels": {"team": "vision"},
            "matchExpressions": [{"key": "stage", "operator": "NotIn", "values": ["test"]}]}});
    let policy = json!({"classes": [{"name": "gold", "rank": 2, "preemptible": false}, {"name": "lead", "rank": 1}],
        "defaultClass": "lead", "halfLife": "1d", "reservations": "all", "holdIdle": "25%", "reclaim": "guarantee",
        "worth": {"A100": "0.4"}, "boost": {"max": 5, "longest": "2h"},
        "spares": {"nodes": 2, "level": "leaf"}});
    let machine = json!({"shape": "8-gpus", "origin": "Found", "cpuMilli": 96_000, "memoryBytes": 1_i64 << 40,
        "devices": [{"name": "GPU0", "model": "H100", "numa": 0}, {"name": "GPU1", "model": "H100", "numa": 1}],
        "nics": [{"name": "mlx5_0", "bytesPerS": 50_000_000_000_i64}],
        "links": [{"a": "device/0", "b": "device/1", "kind": "NV18"}, {"a": "device/0", "b": "nic/0", "kind": "PIX"}],
        "groups": [{"level": "nvlink", "devices": [0, 1]}], "resources": {"nic": 1}});
    vec![
        ("Queue", "vision", vision),
        ("Queue", "child", json!({"parent": "vision", "weight": 2})),
        ("Queue", "empty", json!({})),
        (
            "Queue",
            "pools",
            json!({"nodes": {"required": [{"labels": {"tier": "gold"}, "model": "H100"}, {"path": {"rack": "r1"}, "hosts": ["n[1-4]"]}]}}),
        ),
        ("SharePolicy", "default", policy),
        ("Fabric", "default", json!({"levels": [{"name": "leaf", "label": "example.com/leaf"}]})),
        ("NodeTopology", "n0", machine),
    ]
}

fn bad() -> Vec<Bad> {
    let link = |kind: &str| {
        json!({"shape": "s", "cpuMilli": 0, "memoryBytes": 0,
        "links": [{"a": "device/0", "b": "device/1", "kind": kind}]})
    };
    let class = |name: &str, rank: i32| json!({"name": name, "rank": rank});
    let level = |name: &str, label: &str| json!({"name": name, "label": label});
    let twice = json!([{"name": "GPU0"}, {"name": "GPU0"}]);
    vec![
        ("Queue", "self", json!({"parent": "self"}), "a queue cannot stand below itself"),
        (
            "Queue",
            "torn",
            json!({"nodes": {"required": [{"model": "a"}], "preferred": [{"model": "b"}]}}),
            "nodes are either required or preferred",
        ),
        ("Queue", "blank", json!({"nodes": {"required": [{}]}}), "should have at least 1 properties"),
        (
            "Queue",
            "limit",
            json!({"guaranteed": {"gpus": 8}, "limit": {"gpus": 4}}),
            "a limit cannot be less",
        ),
        ("Queue", "lend", json!({"guaranteed": {"gpus": 8}, "lend": {"gpus": 9}}), "cannot lend more"),
        ("Queue", "name", json!({"guaranteed": {"nvidia.com/gpu": 8}}), "resources are gpus"),
        ("Queue", "negative", json!({"limit": {"gpus": -1}}), "an amount is a number from 0"),
        ("Queue", "words", json!({"lend": {"gpus": "a few"}}), "an amount is a number from 0"),
        ("Queue", "weight", json!({"weight": 1_000_001}), "a weight is a number"),
        ("Queue", "heavy", json!({"weight": "much"}), "a weight is a number"),
        ("Queue", "shape", json!({"shapes": [{"level": "leaf", "nodes": 0}]}), "greater than or equal to 1"),
        ("Queue", "pending", json!({"maxPending": -1}), "greater than or equal to 0"),
        (
            "Queue",
            "selector",
            json!({"namespaces": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}}),
            "Exists and DoesNotExist take none",
        ),
        ("SharePolicy", "other", json!({}), "one SharePolicy, named default"),
        (
            "SharePolicy",
            "default",
            json!({"classes": [class("a", 1), class("a", 2)]}),
            "two classes have one name",
        ),
        (
            "SharePolicy",
            "default",
            json!({"classes": [class("a", 1), class("b", 1)]}),
            "two classes have one rank",
        ),
        (
            "SharePolicy",
            "default",
            json!({"classes": [class("a", 1)], "defaultClass": "b"}),
            "none of the classes",
        ),
        ("SharePolicy", "default", json!({"reservations": "some"}), "reservations are a number"),
        ("SharePolicy", "default", json!({"reclaim": "all"}), "should match"),
        ("SharePolicy", "default", json!({"spares": {"nodes": 0}}), "greater than or equal to 1"),
        ("Fabric", "other", json!({"preset": "auto"}), "one Fabric, named default"),
        ("Fabric", "default", json!({"preset": "moon"}), "supported values"),
        ("Fabric", "default", json!({}), "give one of preset"),
        ("Fabric", "default", json!({"preset": "aws", "hyperNodes": true}), "give one of preset"),
        (
            "Fabric",
            "default",
            json!({"levels": [level("a", "x/a"), level("a", "x/b")]}),
            "two levels have one name",
        ),
        (
            "Fabric",
            "default",
            json!({"levels": [level("a", "x/a"), level("b", "x/a")]}),
            "two levels have one label",
        ),
        ("Fabric", "default", json!({"levels": [level("node", "x/a")]}), "level of the machine itself"),
        ("Fabric", "default", json!({"levels": [level("a", "kubernetes.io/hostname")]}), "no level above it"),
        ("NodeTopology", "n1", json!({"cpuMilli": 0, "memoryBytes": 0}), "spec.shape"),
        ("NodeTopology", "n1", link("WIRE"), "should match"),
        (
            "NodeTopology",
            "n1",
            json!({"shape": "s", "cpuMilli": 0, "memoryBytes": 0, "devices": twice}),
            "two devices have one name",
        ),
    ]
}
