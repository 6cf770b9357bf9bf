//! Our own resources: the committed definitions, what is said in them, and the way to the model and back.
#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    reason = "a test may panic, and hands over what it wrote"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use phalanx_discover::topo_m;
use phalanx_kube::crd::policy::{objects_of, put_together, queue_of};
use phalanx_kube::crd::{
    Fabric, FabricSource, FadedUseStatus, NodeTopologySpec, Queue, QueueStatus, SharePolicy, all, documents,
};
use phalanx_model::{DecayedUsage, Timestamp};
use serde_json::{Value, json};

fn deploy(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(folder)
}

/// Exactly these files are in a folder below `deploy`; `UPDATE=1` writes them.
fn compare(folder: &str, files: &[(String, String)]) {
    let folder = deploy(folder);
    for (name, text) in files {
        let path = folder.join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == *text, "{} is not what the types say; UPDATE=1 writes it anew", path.display());
    }
    let known: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&name.as_str()), "{name} in {} belongs to no resource", folder.display());
    }
}

/// The definitions as the chart has them: Helm keeps an object with this annotation when a release is uninstalled.
fn kept_by_helm() -> Vec<(String, String)> {
    let definitions = all().map(|mut definition| {
        let annotations = definition.metadata.annotations.get_or_insert_default();
        annotations.insert("helm.sh/resource-policy".to_owned(), "keep".to_owned());
        let name = format!("{}.yaml", definition.metadata.name.as_deref().unwrap());
        (name, serde_saphyr::to_string(&definition).unwrap())
    });
    definitions.into()
}

/// Both ways to install bring them: the kustomize base includes the first folder, and a template of the chart the second.
#[test]
fn committed_definitions_are_current() {
    let mut documents = documents().unwrap();
    compare("chart/phalanx/definitions", &kept_by_helm());
    let mut list =
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n".to_owned();
    for (name, _) in &documents {
        list.push_str(&format!("  - {name}\n"));
    }
    documents.push(("kustomization.yaml".to_owned(), list));
    compare("crds", &documents);
}

/// Calls `look` with every schema inside, and its path.
fn walk(schema: &Value, path: &str, look: &mut dyn FnMut(&str, &Value)) {
    look(path, schema);
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        walk(inner, &format!("{path}.{name}"), look);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            walk(&schema[key], &format!("{path}[]"), look);
        }
    }
}

fn schemas() -> Vec<(String, Value)> {
    let schema = |crd| {
        let crd = serde_json::to_value(crd).unwrap();
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        (kind, crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone())
    };
    all().map(schema).into()
}

/// What `docs/kubernetes/versions.md` promises of a version. New fields come to the end of the list with `UPDATE=1`, and stay.
#[test]
fn no_field_of_v1alpha1_goes_or_changes_its_type() {
    let mut fields = BTreeSet::new();
    for (kind, schema) in schemas() {
        walk(&schema, &kind, &mut |path, schema| {
            let of_amounts = schema["x-kubernetes-int-or-string"].as_bool().map(|_| "int-or-string");
            let sort = schema["type"].as_str().or(of_amounts).unwrap_or_else(|| panic!("{path}: {schema}"));
            fields.insert(format!("{path} {sort}"));
        });
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fields.v1alpha1");
    let mut kept = std::fs::read_to_string(&file).unwrap_or_default();
    let gone: Vec<&str> = kept.lines().filter(|line| !fields.contains(*line)).collect();
    assert!(gone.is_empty(), "v1alpha1 promises that these stay: {gone:?}");
    let new: Vec<&String> = fields.iter().filter(|field| !kept.lines().any(|line| line == *field)).collect();
    if std::env::var_os("UPDATE").is_some() {
        new.iter().for_each(|field| kept.push_str(&format!("{field}\n")));
        std::fs::write(&file, kept).unwrap();
    } else {
        assert!(new.is_empty(), "{} lacks {new:?}; UPDATE=1 adds them", file.display());
    }
}

/// Kubernetes knows int32 and int64 alone, and takes others for nothing.
#[test]
fn no_number_is_unsigned_or_a_float() {
    let mut numbers = 0;
    for (kind, schema) in schemas() {
        walk(&schema, &kind, &mut |path, schema| {
            assert_ne!(schema["type"], "number", "{path}");
            if schema["type"] == "integer" {
                numbers += 1;
                assert!(
                    ["int32", "int64"].iter().any(|format| schema["format"] == **format),
                    "{path}: {schema}"
                );
            }
        });
    }
    assert!(numbers > 10, "the walk found {numbers} numbers");
}

#[test]
fn everything_that_people_write_is_bounded_and_described() {
    for (kind, schema) in schemas() {
        walk(&schema["properties"]["spec"], &format!("{kind}.spec"), &mut |path, schema| {
            let text = schema["type"] == "string" && schema["enum"].is_null();
            // Names inside maps and lists are bounded by the number of entries and by the size of an object.
            let is_inner = path.ends_with("[]");
            assert!(
                !text || is_inner || has(schema, &["maxLength", "pattern"]),
                "{path} has no longest text"
            );
            assert!(schema["type"] != "array" || has(schema, &["maxItems"]), "{path} has no longest list");
            let is_map = schema["additionalProperties"].is_object();
            assert!(!is_map || has(schema, &["maxProperties"]), "{path} has no largest map");
        });
        let spec = schema["properties"]["spec"]["properties"].as_object().unwrap();
        for (field, schema) in spec.iter().filter(|(_, schema)| schema["type"] != "integer") {
            let is_said =
                schema["description"].is_string() || ["devices", "nics", "links"].contains(&field.as_str());
            assert!(is_said, "{kind}.spec.{field} says nothing of itself");
        }
    }
}

fn has(schema: &Value, keys: &[&str]) -> bool {
    keys.iter().any(|key| !schema[*key].is_null())
}

fn queue(name: &str, created: &str, spec: Value) -> Queue {
    let metadata = json!({"name": name, "creationTimestamp": created});
    let object =
        json!({"apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": metadata, "spec": spec});
    serde_json::from_value(object).unwrap()
}

const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-02-01T00:00:00Z";

#[test]
fn queues_become_the_tree_of_the_engine() {
    let queues = [
        queue(
            "child",
            EARLY,
            json!({"parent": "top", "guaranteed": {"gpus": 6}, "maxTime": "4h", "weight": "0.5"}),
        ),
        queue(
            "top",
            LATE,
            json!({"guaranteed": {"gpus": 8, "memory": "2Ti", "gpus/H100": "4.5"}, "limit": {"gpus": 16},
                "lend": {"gpus": 2}, "shapes": [{"level": "leaf", "nodes": 4}], "maxPending": 7,
                "maxRunning": 5, "maxGangGpus": 64, "wait": "10m"}),
        ),
    ];
    let policy: SharePolicy = serde_json::from_value(json!({
        "apiVersion": "phalanx.dev/v1alpha1", "kind": "SharePolicy", "metadata": {"name": "default"},
        "spec": {
            "classes": [{"name": "gold", "rank": 2, "preemptible": false}, {"name": "lead", "rank": 1, "minRun": "5m"}],
            "defaultClass": "lead", "halfLife": "1d", "ageing": "30m", "reservations": "all", "holdIdle": "25%",
            "reclaim": "guarantee", "worth": {"A100": "0.4"}, "boost": {"max": 5, "longest": "2h"},
            "spares": {"nodes": 2, "level": "leaf"},
        },
    }))
    .unwrap();
    let outcome = put_together(&queues, Some(&policy));
    assert_eq!(outcome.refused, BTreeMap::new());
    let text = "
queues:
  - name: top
    guaranteed: {gpus: 8, memory: 2TiB, gpus/H100: 4.5}
    limit: {gpus: 16}
    lend: {gpus: 2}
    shapes: [{level: leaf, nodes: 4}]
    max_pending: 7
    max_running: 5
    max_gang_gpus: 64
    wait: 10m
    queues: [{name: child, guaranteed: {gpus: 6}, max_time: 4h, weight: 0.5}]
classes: [{name: gold, rank: 2, preemptible: false}, {name: lead, rank: 1, min_run: 5m}]
default_class: lead
half_life: 1d
ageing: 30m
reservations: all
hold_idle: 25%
reclaim: guarantee
worth: {A100: 0.4}
boost: {max: 5, longest: 2h}
spares: {nodes: 2, level: leaf}
";
    let file = phalanx_spec::QueueFile::from_yaml(text, "queues.yaml").unwrap().into_policy().unwrap();
    assert_eq!(outcome.policy, file);
    let (policy, queues) = objects_of(&file).unwrap();
    let again = put_together(&queues, Some(&policy));
    assert_eq!((again.policy, again.refused), (file, BTreeMap::new()));
}

#[test]
fn of_queues_that_contradict_each_other_the_older_stay_and_the_others_say_why() {
    let queues = [
        queue("top", EARLY, json!({"guaranteed": {"gpus": 8}})),
        queue("old", EARLY, json!({"parent": "top", "guaranteed": {"gpus": 6}})),
        queue("new", LATE, json!({"parent": "top", "guaranteed": {"gpus": 4}})),
        queue("below-new", EARLY, json!({"parent": "new"})),
        queue("typo", EARLY, json!({"guaranteed": {"gpus": "many"}})),
        queue("lost", EARLY, json!({"parent": "nowhere"})),
    ];
    let outcome = put_together(&queues, None);
    let kept: Vec<&str> = outcome.policy.queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(kept, ["top", "old"]);
    let why = |name: &str| outcome.refused[&format!("Queue {name}")].as_str();
    assert!(why("new").contains("top is guaranteed 8 gpus"), "{}", why("new"));
    assert!(why("typo").starts_with("guaranteed.gpus: "), "{}", why("typo"));
    let absent = "the queue \"new\" above it is not there or not in force; create it, or name another";
    assert_eq!(why("below-new"), absent);
    assert!(why("lost").contains("\"nowhere\""));
    assert_eq!(outcome.refused.len(), 4);
    let ring = [queue("a", EARLY, json!({"parent": "b"})), queue("b", EARLY, json!({"parent": "a"}))];
    assert_eq!(put_together(&ring, None).refused.len(), 2);
}

#[test]
fn a_policy_that_cannot_be_read_leaves_the_queues_in_force() {
    let policy: SharePolicy = serde_json::from_value(json!({
        "apiVersion": "phalanx.dev/v1alpha1", "kind": "SharePolicy", "metadata": {"name": "default"},
        "spec": {"halfLife": "soon"},
    }))
    .unwrap();
    let outcome = put_together(&[queue("a", EARLY, json!({}))], Some(&policy));
    assert_eq!(outcome.policy.queues.len(), 1);
    assert!(outcome.refused["SharePolicy default"].starts_with("half_life: "));
}

#[test]
fn a_namespace_finds_its_queue() {
    let team = |name: &str| json!({"namespaces": {"matchLabels": {"team": name}}});
    let either = json!({"namespaces": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["b", "c"]}]}});
    let queues = [
        queue("top", EARLY, json!({"namespaces": {}})),
        queue("a", EARLY, json!({"parent": "top", "namespaces": team("a")["namespaces"]})),
        queue("b", EARLY, team("b")),
        queue("bc", EARLY, either),
        queue("default", EARLY, json!({})),
    ];
    let labels = |team: &str| BTreeMap::from([("team".to_owned(), team.to_owned())]);
    let found = |asked: Option<&str>, team: &str| {
        queue_of(&queues, asked, "ns", &labels(team))
            .map(|queue| queue.to_string())
            .map_err(|error| error.to_string())
    };
    assert_eq!(found(None, "a").unwrap(), "a");
    assert_eq!(found(None, "c").unwrap(), "bc");
    assert_eq!(found(None, "z").unwrap(), "default");
    assert_eq!(
        found(Some("default"), "a").unwrap(),
        "default",
        "a queue without namespaces takes all that name it"
    );
    assert_eq!(
        found(None, "b").unwrap_err(),
        "the namespace ns is selected by the queues b, bc; name one of them"
    );
    let closed =
        "the queue a takes no pods of the namespace ns; name another, or extend spec.namespaces of the queue";
    assert_eq!(found(Some("a"), "b").unwrap_err(), closed);
    let parent = "jobs wait in queues without children, and below top are a; name one of these";
    assert_eq!(found(Some("top"), "a").unwrap_err(), parent);
    assert!(found(Some("nowhere"), "a").unwrap_err().starts_with("there is no queue \"nowhere\""));
    let none = queue_of(&queues[1..2], None, "ns", &labels("z")).unwrap_err().to_string();
    assert!(none.starts_with("no queue selects the namespace ns"), "{none}");
}

#[test]
fn a_machine_comes_back_as_it_was() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/topo_m");
    let mut read = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(topo) =
            std::fs::read_to_string(&path).map_err(drop).and_then(|t| topo_m::parse(&t).map_err(drop))
        else {
            continue;
        };
        let machine = topo.machine;
        let spec = NodeTopologySpec::of_machine(&machine);
        let text = serde_json::to_string(&spec).unwrap();
        let again: NodeTopologySpec = serde_json::from_str(&text).unwrap();
        assert_eq!(again.machine().unwrap(), machine, "{}", path.display());
        read += 1;
    }
    assert!(read > 0, "no fixture was read");
}

#[test]
fn a_description_that_is_no_machine_says_where() {
    let of = |spec: Value| {
        serde_json::from_value::<NodeTopologySpec>(spec).unwrap().machine().unwrap_err().to_string()
    };
    let base = json!({"shape": "s", "cpuMilli": 0, "memoryBytes": 0, "devices": [{"name": "GPU0"}]});
    let with = |key: &str, value: Value| {
        let mut spec = base.clone();
        spec[key] = value;
        of(spec)
    };
    let link = |a: &str, kind: &str| json!([{"a": a, "b": "device/0", "kind": kind}]);
    assert_eq!(
        with("links", link("device/1", "PIX")),
        "spec.links: \"device/1\" is no device or network interface of this node"
    );
    assert!(with("links", link("device/0", "NV999")).contains("\"NV999\" is no kind of link"));
    assert!(with("memoryBytes", json!(-1)).starts_with("spec.memoryBytes: -1"));
    assert!(with("groups", json!([{"level": "pcie", "devices": [3]}])).starts_with("spec.groups.devices: 3"));
    assert!(with("shape", json!("")).starts_with("spec.shape: \"\" is no name"));
    let many: Vec<Value> = (0..65).map(|n| json!({"name": format!("GPU{n}")})).collect();
    assert!(with("devices", json!(many)).starts_with("spec.devices: there are 65"));
}

#[test]
fn past_use_comes_back_as_it_was() {
    let faded = DecayedUsage { device_ms: u128::MAX, at: Timestamp(1_760_000_000_123) };
    let status = FadedUseStatus::of(faded).unwrap();
    assert_eq!(status.at, "2025-10-09T08:53:20.123Z");
    assert_eq!(status.read(), Some(faded));
    let other = FadedUseStatus { device_ms: "much".to_owned(), ..status };
    assert_eq!(other.read(), None);
}

/// As the API server would hand out an object whose status somebody wrote in part.
#[test]
fn a_status_without_its_fields_is_read() {
    let status: QueueStatus = serde_json::from_value(json!({})).unwrap();
    assert_eq!(status, QueueStatus::default());
}

fn fabric(spec: Value) -> Fabric {
    let object = json!({"apiVersion": "phalanx.dev/v1alpha1", "kind": "Fabric", "metadata": {"name": "default"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_fabric_says_where_levels_come_from() {
    let source = |spec: Value| fabric(spec).spec.source();
    assert_eq!(source(json!({"preset": "auto"})).unwrap(), FabricSource::Detected);
    assert_eq!(source(json!({"hyperNodes": true})).unwrap(), FabricSource::HyperNodes);
    let FabricSource::Labels(preset) = source(json!({"preset": "aws"})).unwrap() else { panic!("labels") };
    assert_eq!(preset.name, "aws");
    let levels = json!({"levels": [{"name": "hall", "label": "example.com/hall"}]});
    let FabricSource::Labels(preset) = source(levels).unwrap() else { panic!("labels") };
    assert_eq!(preset.levels[0].keys, ["example.com/hall"]);
    let map = json!({"topology": "levels: [cluster, leaf]\nnodes: [{name: 'n[1-2]', path: {leaf: l1}}]"});
    let FabricSource::Map(cluster) = source(map).unwrap() else { panic!("a map") };
    assert_eq!(cluster.nodes.len(), 2);
    let wrong = |spec: Value| source(spec).unwrap_err().to_string();
    assert!(
        wrong(json!({"preset": "moon"})).starts_with("spec.preset: \"moon\" is not known; there are auto, ")
    );
    assert!(wrong(json!({"levels": [{"name": "hall", "label": "no label"}]})).starts_with("spec.levels: "));
    assert!(wrong(json!({"topology": "nodes: []"})).starts_with("spec.topology: "));
    assert!(wrong(json!({})).starts_with("spec: nothing says the levels"));
}
