//! The pod template of a job.

use serde_json::{Map, Value, json};

use super::{GPU, Work};

/// Where shared memory is seen.
const SHARED_MEMORY: &str = "/dev/shm";

/// What runs in the container of a pod.
pub(super) struct Container<'a> {
    pub(super) name: &'a str,
    pub(super) command: Option<Value>,
    pub(super) env: Vec<Value>,
    /// A launcher beside the workers has none.
    pub(super) has_gpus: bool,
    /// Beside those that the user asked for: volumes, and where each is seen.
    pub(super) volumes: Vec<(Value, Value)>,
}

/// The template of pods with one container.
pub(super) fn template(work: &Work, container: Container<'_>) -> Value {
    let Container { name, command, env, has_gpus, mut volumes } = container;
    volumes.extend(user_volumes(work));
    let (volumes, mounts): (Vec<Value>, Vec<Value>) = volumes.into_iter().unzip();
    let mut main = json!({
        "name": name,
        "image": work.image,
        "resources": { "limits": limits(work, has_gpus) },
    });
    set(&mut main, "env", (!env.is_empty()).then(|| json!(env)));
    set(&mut main, "command", command);
    set(&mut main, "workingDir", work.workdir.as_ref().map(|dir| json!(dir)));
    set(&mut main, "imagePullPolicy", work.pull_policy.as_ref().map(|policy| json!(policy)));
    set(&mut main, "volumeMounts", (!mounts.is_empty()).then(|| json!(mounts)));
    let mut spec = json!({
        "schedulerName": "phalanx",
        "restartPolicy": "Never",
        "containers": [main],
    });
    set(&mut spec, "volumes", (!volumes.is_empty()).then(|| json!(volumes)));
    set(&mut spec, "priorityClassName", work.priority_class.as_ref().map(|class| json!(class)));
    set(&mut spec, "terminationGracePeriodSeconds", work.grace_s.map(|grace| json!(grace)));
    set(&mut spec, "nodeSelector", (!work.node_selector.is_empty()).then(|| json!(work.node_selector)));
    set(&mut spec, "affinity", affinity(work));
    set(&mut spec, "tolerations", tolerations(work));
    let pull: Vec<Value> = work.pull_secrets.iter().map(|name| json!({ "name": name })).collect();
    set(&mut spec, "imagePullSecrets", (!pull.is_empty()).then(|| json!(pull)));
    set(&mut spec, "hostNetwork", work.host_network.then_some(Value::Bool(true)));
    // Names of the cluster are still to be found from the host's network.
    set(&mut spec, "dnsPolicy", work.host_network.then(|| json!("ClusterFirstWithHostNet")));
    let mut metadata = json!({ "labels": work.labels() });
    set(&mut metadata, "annotations", (!work.annotations.is_empty()).then(|| json!(work.annotations)));
    json!({ "metadata": metadata, "spec": spec })
}

fn set(object: &mut Value, field: &str, value: Option<Value>) {
    if let Some(value) = value {
        object[field] = value;
    }
}

/// Requests follow from limits.
fn limits(work: &Work, has_gpus: bool) -> Map<String, Value> {
    let gpus = (has_gpus && work.gpus > 0).then(|| work.gpus.to_string());
    let all = [(GPU, gpus), ("cpu", work.cpu.clone()), ("memory", work.memory.clone())];
    all.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), json!(amount?)))).collect()
}

fn user_volumes(work: &Work) -> Vec<(Value, Value)> {
    let claims = work.data.iter().enumerate().map(|(at, (claim, path))| {
        let name = format!("data-{at}");
        let volume = json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } });
        (volume, json!({ "name": name, "mountPath": path }))
    });
    let shared = work.shared_memory.as_ref().map(|size| {
        let volume =
            json!({ "name": "shared-memory", "emptyDir": { "medium": "Memory", "sizeLimit": size } });
        (volume, json!({ "name": "shared-memory", "mountPath": SHARED_MEMORY }))
    });
    claims.chain(shared).collect()
}

/// Nodes by name.
fn affinity(work: &Work) -> Option<Value> {
    let rule = |operator: &str, nodes: &[String]| json!({ "key": "kubernetes.io/hostname", "operator": operator, "values": nodes });
    let mut rules = Vec::new();
    if !work.nodes.is_empty() {
        rules.push(rule("In", &work.nodes));
    }
    if !work.avoid.is_empty() {
        rules.push(rule("NotIn", &work.avoid));
    }
    let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": rules }] });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } });
    (!rules.is_empty()).then_some(affinity)
}

fn tolerations(work: &Work) -> Option<Value> {
    let one = |key: &String| match key.as_str() {
        "all" => json!({ "operator": "Exists" }),
        key => json!({ "key": key, "operator": "Exists" }),
    };
    let all: Vec<Value> = work.tolerations.iter().map(one).collect();
    (!all.is_empty()).then(|| json!(all))
}

/// A variable with a value.
#[allow(clippy::needless_pass_by_value, reason = "numbers and texts alike, written where they are used")]
pub(super) fn variable(name: &str, value: impl ToString) -> Value {
    json!({ "name": name, "value": value.to_string() })
}

/// The user's own; they stand last, and the last of one name counts.
pub(super) fn user_variables(work: &Work) -> impl Iterator<Item = Value> + '_ {
    work.env.iter().map(|(name, value)| variable(name, value))
}
