//! Nodes and pods as they come, from a seed: valid for an API server, and otherwise as odd as it allows.

use phalanx_sim::Rng;
use serde_json::{Map, Value, json};

/// With the label `team` of each.
pub(super) const NAMESPACES: &[(&str, &str)] = &[("red", "one"), ("blue", "two")];

const RUNTIME_CLASS: &str = "heavy";
const FEATURE: &str = "RestartAllContainersOnContainerExits";

/// How a pod is bound to its one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pin {
    /// By the node's name in every term of its affinity: other nodes are not even asked, so the reasons of this one
    /// can be read.
    Field,
    /// By a label that only this node has, which leaves the affinity as it was drawn.
    Label,
}

impl Pin {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        if rng.chance(70) { Self::Field } else { Self::Label }
    }
}

pub(super) fn runtime_class() -> Value {
    json!({
        "metadata": {"name": RUNTIME_CLASS},
        "handler": "heavy",
        "overhead": {"podFixed": {"cpu": "1500m", "memory": "1Gi"}},
        "scheduling": {"tolerations": [{"key": "maintenance", "operator": "Exists"}]},
    })
}

pub(super) fn node(at: usize, rng: &mut Rng) -> Value {
    let name = format!("node-{at:03}");
    let mut labels = Map::from_iter([("pin".to_owned(), json!(name)), ("host".to_owned(), json!(name))]);
    for (key, values) in LABELS {
        if rng.chance(80) {
            labels.insert((*key).to_owned(), json!(one(values, rng)));
        }
    }
    let mut taints: Vec<Value> = Vec::new();
    for (key, values) in TAINTS {
        if rng.chance(18) {
            taints.push(json!({"key": key, "value": one(values, rng), "effect": one(EFFECTS, rng)}));
        }
    }
    let mut allocatable = json!({
        "cpu": one(&["2", "3500m", "8", "1e1", "7999m"], rng),
        "memory": one(&["4Gi", "8G", "16384Mi", "6e9", "5000000000"], rng),
        "pods": one(&["2", "4", "8", "12"], rng),
        "ephemeral-storage": one(&["2Gi", "10G"], rng),
    });
    if rng.chance(60) {
        allocatable["nvidia.com/gpu"] = json!(one(&["1", "2", "4", "8"], rng));
    }
    if rng.chance(40) {
        allocatable["hugepages-2Mi"] = json!(one(&["0", "64Mi", "1Gi"], rng));
    }
    let features: &[&str] = if rng.chance(50) { &[FEATURE] } else { &[] };
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": rng.chance(8)},
        "status": {"allocatable": allocatable, "capacity": allocatable, "declaredFeatures": features},
    })
}

/// Of everything that one node decides.
pub(super) fn pod(name: &str, node: &str, pin: Pin, rng: &mut Rng) -> Value {
    let mut spec = json!({
        "containers": [],
        "initContainers": [],
        "tolerations": tolerations(rng),
        "nodeSelector": selector(rng),
    });
    containers(&mut spec, rng);
    if rng.chance(60) {
        spec["affinity"] = node_affinity(rng);
    }
    if rng.chance(10) {
        spec["runtimeClassName"] = json!(RUNTIME_CLASS);
    }
    if rng.chance(12) {
        spec["resources"] = whole_pod(rng);
    }
    if rng.chance(3) {
        spec["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    }
    pin_to(&mut spec, node, pin);
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// Of everything that other pods decide; small, so that little else stands against it.
pub(super) fn neighbour(name: &str, node: &str, rng: &mut Rng) -> Value {
    let mut spec = json!({
        "containers": [{"name": "main", "image": "none"}],
        "tolerations": [{"operator": "Exists"}],
    });
    if rng.chance(20) {
        let terms = terms_between_pods(rng);
        spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = terms;
    }
    if rng.chance(15) {
        let terms = terms_between_pods(rng);
        spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = terms;
    }
    if rng.chance(35) {
        spec["topologySpreadConstraints"] = spread(rng);
    }
    if rng.chance(20) {
        spec["nodeSelector"] = selector(rng);
    }
    pin_to(&mut spec, node, Pin::Field);
    let namespace = NAMESPACES[usize::from(rng.chance(40))].0;
    let labels = json!({"app": one(APPS, rng), "track": one(&["stable", "canary"], rng)});
    json!({"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec})
}

const APPS: &[&str] = &["web", "db", "job"];
const DOMAINS: &[&str] = &["zone", "rack", "host"];

fn terms_between_pods(rng: &mut Rng) -> Value {
    (0..rng.between(1, 2))
        .map(|_| {
            let mut term = json!({"topologyKey": one(DOMAINS, rng), "labelSelector": pods(rng)});
            match rng.below(6) {
                0 => term["namespaces"] = json!(["red", "blue"]),
                1 => term["namespaceSelector"] = json!({}),
                2 => {
                    term["namespaceSelector"] =
                        json!({"matchLabels": {"team": one(&["one", "two", "three"], rng)}})
                }
                _ => {}
            }
            if rng.chance(8) {
                term["labelSelector"] = Value::Null;
            }
            term
        })
        .collect()
}

fn spread(rng: &mut Rng) -> Value {
    let mut keys: Vec<&str> = DOMAINS.to_vec();
    rng.shuffle(&mut keys);
    let count = usize::try_from(rng.between(1, 2)).unwrap();
    keys.truncate(count);
    keys.into_iter()
        .map(|key| {
            let how = if rng.chance(85) { "DoNotSchedule" } else { "ScheduleAnyway" };
            let mut rule = json!({
                "maxSkew": rng.between(1, 2), "topologyKey": key, "whenUnsatisfiable": how, "labelSelector": pods(rng),
            });
            if how == "DoNotSchedule" && rng.chance(20) {
                rule["minDomains"] = json!(rng.between(1, 6));
            }
            if rng.chance(25) {
                rule["nodeAffinityPolicy"] = json!(one(&["Honor", "Ignore"], rng));
            }
            if rng.chance(25) {
                rule["nodeTaintsPolicy"] = json!(one(&["Honor", "Ignore"], rng));
            }
            if rng.chance(20) {
                rule["matchLabelKeys"] = json!(["track"]);
                rule["labelSelector"] = json!({"matchLabels": {"app": one(APPS, rng)}});
            }
            rule
        })
        .collect()
}

/// A selector of pods by their labels.
fn pods(rng: &mut Rng) -> Value {
    match rng.below(8) {
        0 => json!({}),
        1 => json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [one(APPS, rng)]}]}),
        2 => json!({"matchExpressions": [{"key": "track", "operator": "Exists"}]}),
        3 => {
            json!({"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}], "matchLabels": {"app": one(APPS, rng)}})
        }
        _ => json!({"matchLabels": {"app": one(APPS, rng)}}),
    }
}

/// Keys of nodes with the values that they may have.
const LABELS: &[(&str, &[&str])] = &[
    ("disk", &["ssd", "hdd"]),
    ("zone", &["a", "b", "c"]),
    ("rack", &["r1", "r2", "r3", "r4", "r5", "r6"]),
    ("example.com/cores", &["8", "16", "064", "many", ""]),
];

const TAINTS: &[(&str, &[&str])] =
    &[("team", &["a", "b", ""]), ("gpu", &["yes"]), ("maintenance", &["soon", "now"])];
const EFFECTS: &[&str] = &["NoSchedule", "NoExecute", "PreferNoSchedule"];

fn tolerations(rng: &mut Rng) -> Value {
    if rng.chance(20) {
        return json!([{"operator": "Exists"}]);
    }
    (0..rng.below(4))
        .map(|_| {
            let (key, values) = TAINTS[usize::try_from(rng.below(TAINTS.len() as u64)).unwrap()];
            let mut toleration = json!({"key": key});
            match rng.below(4) {
                0 => toleration["value"] = json!(one(values, rng)),
                1 => {
                    toleration["operator"] = json!("Equal");
                    toleration["value"] = json!(one(values, rng));
                }
                _ => toleration["operator"] = json!("Exists"),
            }
            match rng.below(3) {
                0 => {}
                1 => toleration["effect"] = json!(one(EFFECTS, rng)),
                _ => toleration["effect"] = json!("NoSchedule"),
            }
            if rng.chance(10) {
                toleration = json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": one(&["NoSchedule", "NoExecute"], rng)});
            }
            toleration
        })
        .collect()
}

fn selector(rng: &mut Rng) -> Value {
    let mut selector = Map::new();
    for (key, values) in LABELS {
        if rng.chance(7) {
            selector.insert((*key).to_owned(), json!(one(values, rng)));
        }
    }
    Value::Object(selector)
}

fn node_affinity(rng: &mut Rng) -> Value {
    let terms: Value = (0..rng.between(1, 3)).map(|_| term(rng)).collect();
    let mut affinity =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    if rng.chance(20) {
        let wish = json!([{"weight": 5, "preference": {"matchExpressions": [expression(rng)]}}]);
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = wish;
    }
    json!({"nodeAffinity": affinity})
}

fn term(rng: &mut Rng) -> Value {
    let mut term = json!({});
    if rng.chance(92) {
        term["matchExpressions"] = (0..rng.between(1, 2)).map(|_| expression(rng)).collect();
    }
    if rng.chance(8) {
        let name = format!("node-{:03}", rng.below(100));
        term["matchFields"] = json!([{"key": "metadata.name", "operator": "NotIn", "values": [name]}]);
    }
    term
}

fn expression(rng: &mut Rng) -> Value {
    let (key, values) = LABELS[usize::try_from(rng.below(LABELS.len() as u64)).unwrap()];
    let (operator, values) = match rng.below(10) {
        0..=3 => ("In", vec![one(values, rng), one(values, rng)]),
        4..=5 => ("NotIn", vec![one(values, rng)]),
        6 => ("Exists", vec![]),
        7 => ("DoesNotExist", vec![]),
        // Of a bound the API server only wants that there is one.
        8 => ("Gt", vec![one(&["7", "15", "many", "007", ""], rng)]),
        _ => ("Lt", vec![one(&["9", "65", "1.5", "9223372036854775808"], rng)]),
    };
    let key = if matches!(operator, "Gt" | "Lt") { "example.com/cores" } else { key };
    json!({"key": key, "operator": operator, "values": values})
}

pub(super) fn pin_to(spec: &mut Value, node: &str, pin: Pin) {
    if pin == Pin::Label {
        spec["nodeSelector"]["pin"] = json!(node);
        return;
    }
    let required = &mut spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if required.is_null() {
        *required = json!({"nodeSelectorTerms": [{}]});
    }
    let here = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    for term in required["nodeSelectorTerms"].as_array_mut().into_iter().flatten() {
        match term["matchFields"].as_array_mut() {
            Some(fields) => fields.push(here.clone()),
            None => term["matchFields"] = json!([here]),
        }
    }
}

fn containers(spec: &mut Value, rng: &mut Rng) {
    let mut next = 0..;
    let mut name = || format!("c{}", next.next().unwrap_or_default());
    let main: Vec<Value> = (0..rng.between(1, 3)).map(|_| container(&name(), rng)).collect();
    let count = if rng.chance(35) { rng.between(1, 3) } else { 0 };
    let init: Vec<Value> = (0..count)
        .map(|_| {
            let mut container = container(&name(), rng);
            if rng.chance(50) {
                container["restartPolicy"] = json!("Always");
            }
            container
        })
        .collect();
    spec["containers"] = json!(main);
    spec["initContainers"] = json!(init);
    if rng.chance(6) {
        spec["containers"][0]["restartPolicy"] = json!("Never");
        let rule = json!({"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}});
        spec["containers"][0]["restartPolicyRules"] = json!([rule]);
    }
    if rng.chance(12) {
        let port = json!({"containerPort": 80, "hostPort": one(&[8_080, 8_081], rng), "protocol": one(&["TCP", "UDP"], rng)});
        spec["containers"][0]["ports"] = json!([port]);
        if rng.chance(40) {
            spec["containers"][0]["ports"][0]["hostIP"] =
                json!(one(&["127.0.0.1", "10.0.0.1", "0.0.0.0"], rng));
        }
    }
}

fn container(name: &str, rng: &mut Rng) -> Value {
    let (mut requests, mut limits) = (json!({}), json!({}));
    for (resource, small, large) in [
        ("cpu", CPU, "4"),
        ("memory", MEMORY, "8Gi"),
        ("ephemeral-storage", &["1Mi", "300M", "1.5Gi", "1e9"][..], "4Gi"),
    ] {
        let chance = if resource == "ephemeral-storage" { 20 } else { 60 };
        if rng.chance(chance) {
            requests[resource] = json!(one(small, rng));
        }
        // A limit alone becomes the request too.
        if rng.chance(12) {
            let limit = if requests[resource].is_null() { one(small, rng) } else { large };
            limits[resource] = json!(limit);
        }
    }
    if rng.chance(22) {
        limits["nvidia.com/gpu"] = json!(one(&["0", "1", "2", "3"], rng));
    }
    if rng.chance(6) {
        requests["cpu"] = json!("100m");
        limits["hugepages-2Mi"] = json!(one(&["2Mi", "64Mi", "256Mi"], rng));
    }
    let prune = |list: Value| {
        let list = list.as_object().cloned().unwrap_or_default();
        list.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>()
    };
    json!({"name": name, "image": "none", "resources": {"requests": prune(requests), "limits": prune(limits)}})
}

const CPU: &[&str] = &["100m", "0.25", "0.1", "1", "1500m", "1e0", "250e-3", "333m", "2"];
const MEMORY: &[&str] = &["64Mi", "128M", "1Gi", "1.5Gi", "123456789", "129e6", "1e9", "128974848000m", "2G"];

/// Resources of the pod as a whole, above whatever its containers ask for.
fn whole_pod(rng: &mut Rng) -> Value {
    match rng.below(3) {
        0 => json!({"requests": {"cpu": "13"}, "limits": {"cpu": "20"}}),
        1 => json!({"requests": {"memory": "36Gi"}}),
        _ => json!({"limits": {"cpu": "30", "memory": "90Gi"}}),
    }
}

pub(super) fn one<T: Copy>(items: &[T], rng: &mut Rng) -> T {
    items[usize::try_from(rng.below(items.len() as u64)).unwrap()]
}
