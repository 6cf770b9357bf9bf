//! Queues and their policy put together, as the engine takes them, and back.
//!
//! Both are read by the reader of queue files, so that a field means the same in both and is judged alike.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::QueueName;
use phalanx_spec::queues::SharePolicy as Policy;
use phalanx_spec::{QueueFile, SpecError};
use serde_json::{Map, Value, json};

use super::queue::{Queue, QueueSpec};
use super::share_policy::{SharePolicy, SharePolicySpec};

/// The queue of namespaces that none selects, where it is there and open to all.
pub const DEFAULT_QUEUE: &str = "default";

/// What the objects say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub policy: Policy,
    /// Objects that are not in force, and why: `Queue team-a`.
    pub refused: BTreeMap<String, String>,
}

/// Puts queues and the policy together. What cannot be kept is left out with its reason, so that one mistake stops nothing
/// else: of queues that contradict each other, the older stay.
#[must_use]
pub fn put_together(queues: &[Queue], policy: Option<&SharePolicy>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut settings = Map::new();
    if let Some(policy) = policy {
        let written = settings_file(&policy.spec);
        match read(&written, &[]) {
            Ok(_) => settings = written,
            Err(error) => {
                outcome.refused.insert(format!("SharePolicy {}", name_of(policy)), sentence(&error));
            }
        }
    }
    let mut entries: Vec<(&Queue, Value)> = queues.iter().map(|queue| (queue, queue_file(queue))).collect();
    entries.sort_by_key(|(queue, _)| (queue.metadata.creation_timestamp.clone(), name_of(*queue)));
    let all: Vec<&Value> = entries.iter().map(|(_, entry)| entry).collect();
    if let Ok(policy) = read(&settings, &all) {
        outcome.policy = policy;
        return outcome;
    }
    outcome.refused.extend(refuse_newer(&mut entries, &settings));
    let kept: Vec<&Value> = entries.iter().map(|(_, entry)| entry).collect();
    // All of them were read together just now.
    outcome.policy = read(&settings, &kept).unwrap_or_default();
    outcome
}

/// Takes out the first queue with which those before it cannot be kept, and what stands below it, until all others can.
/// Before it stand the older ones and the queue above it.
fn refuse_newer(
    entries: &mut Vec<(&Queue, Value)>,
    settings: &Map<String, Value>,
) -> BTreeMap<String, String> {
    let mut refused = BTreeMap::new();
    let above_first = std::mem::take(entries);
    let (ordered, lost) = parents_first(above_first);
    *entries = ordered;
    refused.extend(lost.iter().map(|queue| (format!("Queue {}", name_of(*queue)), no_parent(queue))));
    loop {
        let can_keep = |count: usize| {
            let first: Vec<&Value> = entries.iter().take(count).map(|(_, entry)| entry).collect();
            read(settings, &first)
        };
        let Err(error) = can_keep(entries.len()) else { return refused };
        // With more queues it does not become better, so halving finds the first that is one too many.
        let (mut good, mut bad, mut why) = (0, entries.len(), error);
        while bad - good > 1 {
            let middle = usize::midpoint(good, bad);
            match can_keep(middle) {
                Ok(_) => good = middle,
                Err(error) => (bad, why) = (middle, error),
            }
        }
        let Some(first) = (good < entries.len()).then(|| entries.remove(good)) else { return refused };
        refused.insert(format!("Queue {}", name_of(first.0)), sentence(&why));
        let mut gone = BTreeSet::from([name_of(first.0)]);
        entries.retain(|(queue, _)| {
            let is_below = queue.spec.parent.as_ref().is_some_and(|parent| gone.contains(parent));
            if is_below {
                gone.insert(name_of(*queue));
                refused.insert(format!("Queue {}", name_of(*queue)), no_parent(queue));
            }
            !is_below
        });
    }
}

/// Every queue behind the one above it, and otherwise as they stand; and those above which there is none.
fn parents_first(entries: Vec<(&Queue, Value)>) -> (Vec<(&Queue, Value)>, Vec<&Queue>) {
    let mut below: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (at, (queue, _)) in entries.iter().enumerate() {
        below.entry(queue.spec.parent.as_deref()).or_default().push(at);
    }
    let mut ready: BTreeSet<usize> = below.remove(&None).into_iter().flatten().collect();
    let mut open: Vec<Option<(&Queue, Value)>> = entries.into_iter().map(Some).collect();
    let mut ordered = Vec::with_capacity(open.len());
    while let Some(at) = ready.pop_first() {
        let Some(entry) = open.get_mut(at).and_then(Option::take) else { continue };
        ready.extend(below.remove(&entry.0.metadata.name.as_deref()).into_iter().flatten());
        ordered.push(entry);
    }
    (ordered, open.into_iter().flatten().map(|(queue, _)| queue).collect())
}

fn no_parent(queue: &Queue) -> String {
    let parent = queue.spec.parent.as_deref().unwrap_or_default();
    format!("the queue {parent:?} above it is not there or not in force; create it, or name another")
}

/// The objects that say this policy, by name; for whoever moves from one machine to a cluster.
///
/// # Errors
/// When the policy is one that no queue file can say.
pub fn objects_of(policy: &Policy) -> Result<(SharePolicy, Vec<Queue>), serde_json::Error> {
    let Value::Object(mut file) = serde_json::to_value(QueueFile::of_policy(policy))? else {
        return Ok((SharePolicy::new(super::SINGLETON, SharePolicySpec::default()), Vec::new()));
    };
    let entries = file.remove("queues").unwrap_or_default();
    let spec: SharePolicySpec = serde_json::from_value(camel_fields(Value::Object(file), &["worth"]))?;
    let mut queues = Vec::new();
    flatten(entries, None, &mut queues)?;
    Ok((SharePolicy::new(super::SINGLETON, spec), queues))
}

/// Children stand inside their parents in a file, and beside them here.
fn flatten(entries: Value, parent: Option<&str>, queues: &mut Vec<Queue>) -> Result<(), serde_json::Error> {
    let Value::Array(entries) = entries else { return Ok(()) };
    for entry in entries {
        let Value::Object(mut entry) = entry else { continue };
        let Some(Value::String(name)) = entry.remove("name") else { continue };
        let below = entry.remove("queues").unwrap_or_default();
        let mut spec: QueueSpec = serde_json::from_value(camel_fields(
            Value::Object(entry),
            &["guaranteed", "limit", "lend", "labels", "path"],
        ))?;
        spec.parent = spec.parent.or_else(|| parent.map(str::to_owned));
        queues.push(Queue::new(&name, spec));
        flatten(below, Some(&name), queues)?;
    }
    Ok(())
}

/// Fields as Kubernetes writes them, at every depth but inside `maps`, whose keys are names. Numbers with a fraction become
/// text, which is how an [`Amount`](super::Amount) has them.
fn camel_fields(value: Value, maps: &[&str]) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(key, value)| {
                let value =
                    if maps.contains(&key.as_str()) { amounts(value) } else { camel_fields(value, maps) };
                (camel(&key), value)
            })
            .collect(),
        Value::Array(items) => items.into_iter().map(|item| camel_fields(item, maps)).collect(),
        other => amounts(other),
    }
}

fn amounts(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, amounts(value))).collect(),
        Value::Number(number) if !number.is_i64() => Value::String(number.to_string()),
        other => other,
    }
}

fn camel(key: &str) -> String {
    let mut words = key.split('_');
    let mut text = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        text.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        text.push_str(letters.as_str());
    }
    text
}

/// A queue as an entry of a queue file.
fn queue_file(queue: &Queue) -> Value {
    let spec = &queue.spec;
    let shapes = spec.shapes.iter();
    let shapes: Vec<Value> = shapes
        .map(|shape| without_nulls(json!({"level": shape.level, "count": shape.count, "nodes": shape.nodes})))
        .collect();
    without_nulls(json!({
        "name": name_of(queue),
        "parent": spec.parent,
        "guaranteed": spec.guaranteed,
        "limit": spec.limit,
        "lend": spec.lend,
        "weight": spec.weight,
        "shapes": shapes,
        "max_pending": spec.max_pending,
        "max_running": spec.max_running,
        "max_gang_gpus": spec.max_gang_gpus,
        "max_time": spec.max_time,
        "wait": spec.wait,
        "nodes": spec.nodes,
    }))
}

/// The policy as the rest of a queue file.
fn settings_file(spec: &SharePolicySpec) -> Map<String, Value> {
    let classes = spec.classes.as_ref().map(|classes| {
        let class = |class: &super::ClassSpec| {
            without_nulls(json!({
                "name": class.name,
                "rank": class.rank,
                "preemptible": class.preemptible,
                "preempts": class.preempts,
                "min_run": class.min_run,
                "grace_max": class.grace_max,
            }))
        };
        classes.iter().map(class).collect::<Vec<Value>>()
    });
    let boost =
        spec.boost.as_ref().map(|boost| without_nulls(json!({"max": boost.max, "longest": boost.longest})));
    let spares = spec
        .spares
        .as_ref()
        .map(|spares| without_nulls(json!({"nodes": spares.nodes, "level": spares.level})));
    let file = without_nulls(json!({
        "preset": spec.preset,
        "wait": spec.wait,
        "classes": classes,
        "default_class": spec.default_class,
        "half_life": spec.half_life,
        "ageing": spec.ageing,
        "reservations": spec.reservations,
        "hold_idle": spec.hold_idle,
        "reclaim": spec.reclaim,
        "worth": spec.worth,
        "boost": boost,
        "spares": spares,
    }));
    if let Value::Object(file) = file { file } else { Map::new() }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}

/// JSON is YAML.
fn read(settings: &Map<String, Value>, queues: &[&Value]) -> Result<Policy, SpecError> {
    let mut file = settings.clone();
    file.insert("queues".to_owned(), queues.iter().map(|queue| (*queue).clone()).collect());
    QueueFile::from_yaml(&Value::Object(file).to_string(), "queues")?.into_policy()
}

/// Without the place, which is in no text that anybody wrote.
fn sentence(error: &SpecError) -> String {
    let field = error.field().map(|field| field.rsplit("].").next().unwrap_or(field));
    let mut text = field.map_or_else(String::new, |field| format!("{field}: "));
    text.push_str(error.what());
    for note in error.notes() {
        text.push_str("; ");
        text.push_str(note);
    }
    text
}

fn name_of<K: kube::Resource>(object: &K) -> String {
    object.meta().name.clone().unwrap_or_default()
}

/// Why a pod has no queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoQueue {
    #[error("there is no queue {0:?}; create it, or name one of {1}")]
    Unknown(String, String),
    #[error(
        "the queue {0} takes no pods of the namespace {1}; name another, or extend spec.namespaces of the queue"
    )]
    Closed(String, String),
    #[error("jobs wait in queues without children, and below {0} are {1}; name one of these")]
    HasChildren(String, String),
    #[error("the namespace {0} is selected by the queues {1}; name one of them")]
    Several(String, String),
    #[error(
        "no queue selects the namespace {0}; name one, extend spec.namespaces of one, or create a queue named default"
    )]
    None(String),
}

/// The queue of a gang: the one that it names, or else the only one without children that selects its namespace, or else
/// `default`.
///
/// # Errors
/// When there is no such queue, it does not take the namespace, or several would.
pub fn queue_of(
    queues: &[Queue],
    asked: Option<&str>,
    namespace: &str,
    labels: &BTreeMap<String, String>,
) -> Result<QueueName, NoQueue> {
    let listed = |names: Vec<String>| {
        let shown: Vec<String> = names.iter().take(5).cloned().collect();
        let more = names.len().saturating_sub(shown.len());
        if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
    };
    let children = |name: &str| -> Vec<String> {
        queues.iter().filter(|queue| queue.spec.parent.as_deref() == Some(name)).map(name_of).collect()
    };
    let selects = |queue: &Queue| queue.spec.namespaces.as_ref().map(|namespaces| namespaces.selects(labels));
    let valid = |name: String| {
        QueueName::new(name.clone())
            .map_err(|_| NoQueue::Unknown(name, listed(queues.iter().map(name_of).collect())))
    };
    if let Some(asked) = asked {
        let Some(queue) = queues.iter().find(|queue| queue.metadata.name.as_deref() == Some(asked)) else {
            return Err(NoQueue::Unknown(asked.to_owned(), listed(queues.iter().map(name_of).collect())));
        };
        if selects(queue) == Some(false) {
            return Err(NoQueue::Closed(asked.to_owned(), namespace.to_owned()));
        }
        let below = children(asked);
        if !below.is_empty() {
            return Err(NoQueue::HasChildren(asked.to_owned(), listed(below)));
        }
        return valid(asked.to_owned());
    }
    let mut found: Vec<String> = queues
        .iter()
        .filter(|queue| selects(queue) == Some(true))
        .map(name_of)
        .filter(|name| children(name).is_empty())
        .collect();
    found.sort_unstable();
    match found.as_slice() {
        [only] => valid(only.clone()),
        [] => {
            let open = queues.iter().any(|queue| {
                queue.metadata.name.as_deref() == Some(DEFAULT_QUEUE) && selects(queue) != Some(false)
            });
            if open && children(DEFAULT_QUEUE).is_empty() {
                valid(DEFAULT_QUEUE.to_owned())
            } else {
                Err(NoQueue::None(namespace.to_owned()))
            }
        }
        _ => Err(NoQueue::Several(namespace.to_owned(), listed(found))),
    }
}
