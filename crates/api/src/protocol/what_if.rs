//! What would change: the simulator continues from a snapshot of now twice, as it is and with changes.

use std::collections::BTreeMap;
use std::fmt;

use phalanx_model::{GangId, NodeName, Preemption, QueueName, Timestamp};
use phalanx_spec::quantity::parse_duration_ns;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::{ErrorCode, ErrorView, WrongField};

/// Values of the queue file in one request.
const SET_MAX: usize = 100;
/// Bytes of one of them, and of the name of a domain.
const WORD_BYTES_MAX: usize = 1_024;
const DRAINED_MAX: usize = 1_000;
/// Groups of nodes to add, and nodes in one of them.
const GROUPS_MAX: usize = 16;
const ADDED_MAX: u32 = 10_000;
/// Bytes of a job file and of a queue file.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Bytes of a length of time.
const HORIZON_BYTES_MAX: usize = 32;
const HORIZON_MS: std::ops::RangeInclusive<u64> = 60_000..=365 * 86_400_000;

/// The changes, all at once. Without any, the answer is what to expect as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WhatIfAsk {
    /// Values of the queue file, `PATH=VALUE` each, or an object of values by path: `queues.research.weight=2`. At most 100.
    #[serde(deserialize_with = "settings")]
    #[schemars(schema_with = "settings_schema")]
    pub set: Vec<String>,
    /// Another queue file, as YAML or JSON.
    pub queues: Option<String>,
    /// Nodes to drain. At most 1,000.
    pub drain: Vec<String>,
    /// Nodes to add. At most 16 groups.
    pub add_nodes: Vec<AddedNodes>,
    /// A job file, as YAML or JSON: the job is submitted.
    pub job: Option<String>,
    /// How far to look ahead, from `1m` to `365d`; without it, `24h`.
    pub horizon: Option<String>,
}

/// Nodes like most of those in a domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AddedNodes {
    /// From 1 to 10,000.
    pub count: u32,
    /// The name of the domain, or its path if several domains have the name: `block-1/leaf-9`.
    pub domain: String,
}

/// Both courses side by side. All of it is predicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfView {
    pub is_predicted: bool,
    /// Of the engine that decided in the simulator.
    pub version: String,
    /// The time of the snapshot.
    pub from: Timestamp,
    pub horizon_ms: u64,
    /// The changes, in one sentence each.
    pub changes: Vec<String>,
    /// What the prediction rests on, in one sentence each.
    pub assumptions: Vec<String>,
    pub gangs: Vec<WhatIfGang>,
    /// Parents before their children.
    pub queues: Vec<WhatIfQueue>,
}

/// A gang without and with the changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfGang {
    pub gang: GangId,
    /// What changes for it, in words; empty if nothing does.
    pub change: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_is: Option<CourseView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<CourseView>,
}

/// What a gang does from the snapshot to the horizon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CourseView {
    pub job: String,
    pub queue: QueueName,
    pub devices: u32,
    /// What its end rests on: `past_runs`, `limit` or `nothing`.
    pub basis: String,
    /// It holds its devices from the beginning.
    pub is_running: bool,
    /// Why it is pending at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<CourseWait>,
    pub starts: Vec<CourseStart>,
    /// When it had to leave its nodes.
    pub stops: Vec<CourseStop>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<String>,
    /// Devices times milliseconds.
    pub held_device_ms: u64,
}

/// Why a gang is pending.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CourseWait {
    /// A stable word.
    pub reason: String,
    pub sentence: String,
}

/// A start of a gang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CourseStart {
    pub at: Timestamp,
    pub nodes: Vec<NodeName>,
}

/// A stop of a gang that is no end of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CourseStop {
    pub at: Timestamp,
    pub why: String,
    /// Which gang preempts it, and by which rule; absent if the gang moves to other nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<Preemption>,
}

/// A queue without and with the changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIfQueue {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_is: Option<QueueCourseView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<QueueCourseView>,
}

/// A queue after the first scheduling cycle, and what it holds until the horizon. Amounts are thousandths of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueCourseView {
    pub name: QueueName,
    pub depth: u32,
    pub weight_milli: u64,
    pub guaranteed: u64,
    /// The fair share.
    pub due: Option<u64>,
    pub used: u64,
    pub capacity: u64,
    /// Devices times milliseconds, those of queues below it included.
    pub held_device_ms: u64,
}

impl WhatIfAsk {
    /// Whether the simulator takes this at all: sizes, and the shape of each value.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self) -> Result<(), ErrorView> {
        self.check_set()?;
        at_most("drain", self.drain.len(), DRAINED_MAX, "nodes")?;
        for (index, name) in self.drain.iter().enumerate() {
            let field = format!("drain[{index}]");
            check_word(&field, name, "name a node")?;
            // The simulator takes a list that is divided by commas.
            if name.contains(',') {
                return Err(wrong(&field, "name one node"));
            }
        }
        at_most("add_nodes", self.add_nodes.len(), GROUPS_MAX, "groups of nodes")?;
        for (index, AddedNodes { count, domain }) in self.add_nodes.iter().enumerate() {
            if !(1..=ADDED_MAX).contains(count) {
                let what = format!("{count} is not between 1 and {ADDED_MAX}");
                return Err(wrong(&format!("add_nodes[{index}].count"), &what));
            }
            let field = format!("add_nodes[{index}].domain");
            check_word(&field, domain, "name a domain, such as leaf-9")?;
        }
        for (field, text) in [("job", &self.job), ("queues", &self.queues)] {
            at_most(field, text.as_ref().map_or(0, String::len), FILE_BYTES_MAX, "bytes")?;
        }
        self.check_horizon()
    }

    fn check_set(&self) -> Result<(), ErrorView> {
        at_most("set", self.set.len(), SET_MAX, "values")?;
        for (index, typed) in self.set.iter().enumerate() {
            let field = format!("set[{index}]");
            check_word(&field, typed, "give PATH=VALUE, such as queues.research.weight=2")?;
            if typed.split_once('=').is_none_or(|(path, _)| path.trim().is_empty()) {
                return Err(wrong(&field, "give PATH=VALUE, such as queues.research.weight=2"));
            }
        }
        Ok(())
    }

    fn check_horizon(&self) -> Result<(), ErrorView> {
        let Some(text) = &self.horizon else { return Ok(()) };
        at_most("horizon", text.len(), HORIZON_BYTES_MAX, "bytes")?;
        let ms = parse_duration_ns(text).map(|ns| ns / 1_000_000);
        let ms = ms.map_err(|e| wrong("horizon", &format!("{text:?} {e}")))?;
        if HORIZON_MS.contains(&ms) { Ok(()) } else { Err(wrong("horizon", "give a time from 1m to 365d")) }
    }
}

/// A word that goes to the simulator as an argument.
fn check_word(field: &str, word: &str, how: &str) -> Result<(), ErrorView> {
    at_most(field, word.len(), WORD_BYTES_MAX, "bytes")?;
    let is_plain = !word.starts_with('-') && !word.chars().any(char::is_control);
    if is_plain && !word.trim().is_empty() { Ok(()) } else { Err(wrong(field, how)) }
}

fn at_most(field: &str, count: usize, max: usize, what: &str) -> Result<(), ErrorView> {
    if count <= max {
        Ok(())
    } else {
        Err(wrong(field, &format!("{count} {what}, and at most {max} are taken")))
    }
}

fn wrong(field: &str, what: &str) -> ErrorView {
    let hint = "GET /v1/openapi.json has the schema of the body";
    let view = ErrorView::new(ErrorCode::BadRequest, format!("{field}: {what}"), hint);
    ErrorView { field: Some(WrongField { path: field.to_owned(), what: what.to_owned() }), ..view }
}

/// A list of `PATH=VALUE`, or an object of values by path.
fn settings<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    struct Settings;

    impl<'de> Visitor<'de> for Settings {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of PATH=VALUE, or an object of values by path")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut all = Vec::new();
            while let Some(typed) = list.next_element()? {
                all.push(typed);
            }
            Ok(all)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all: BTreeMap<String, Scalar> = BTreeMap::new();
            while let Some((path, value)) = map.next_entry()? {
                all.insert(path, value);
            }
            Ok(all.into_iter().map(|(path, value)| format!("{path}={value}")).collect())
        }
    }

    from.deserialize_any(Settings)
}

/// A value of a queue file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Flag(bool),
    Number(serde_json::Number),
    Text(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(is_set) => is_set.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

fn settings_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "anyOf": [
            { "type": "array", "items": { "type": "string" } },
            { "type": "object", "additionalProperties": { "type": ["string", "number", "boolean"] } },
        ],
        "default": [],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: serde_json::Value) -> WhatIfAsk {
        serde_json::from_value(body).unwrap()
    }

    /// The field that is wrong, and why.
    fn refused(body: serde_json::Value) -> (String, String) {
        let error = read(body).check().unwrap_err();
        let field = error.field.unwrap();
        assert_eq!(error.message, format!("{}: {}", field.path, field.what));
        (field.path, field.what)
    }

    #[test]
    fn settings_are_a_list_or_an_object() {
        let list = read(json!({ "set": ["queues.a.weight=2", "half_life=3d"] }));
        assert_eq!(list.set, ["queues.a.weight=2", "half_life=3d"]);
        let object = json!({ "set": { "queues.a.weight": 2, "queues.a.borrow": true, "half_life": "3d" } });
        assert_eq!(read(object).set, ["half_life=3d", "queues.a.borrow=true", "queues.a.weight=2"]);
        assert_eq!(read(json!({})).check(), Ok(()));
        for wrong in [json!({ "set": "a=b" }), json!({ "set": { "a": [1] } }), json!({ "set": [1] })] {
            assert!(serde_json::from_value::<WhatIfAsk>(wrong).is_err());
        }
    }

    #[test]
    fn what_is_too_long_or_no_plain_word_is_refused_with_its_field() {
        let long = "x".repeat(WORD_BYTES_MAX + 1);
        for (body, field) in [
            (json!({ "set": ["--job=/etc/shadow"] }), "set[0]"),
            (json!({ "set": ["half_life=3d", "weight"] }), "set[1]"),
            (json!({ "set": [long] }), "set[0]"),
            (json!({ "set": vec!["a=b"; SET_MAX + 1] }), "set"),
            (json!({ "drain": ["n1", "--horizon"] }), "drain[1]"),
            (json!({ "drain": ["n1,n2"] }), "drain[0]"),
            (json!({ "drain": vec!["n1"; DRAINED_MAX + 1] }), "drain"),
            (json!({ "add_nodes": [{ "count": 0, "domain": "a" }] }), "add_nodes[0].count"),
            (json!({ "add_nodes": [{ "count": 1, "domain": "-a" }] }), "add_nodes[0].domain"),
            (json!({ "add_nodes": [{ "count": 1, "domain": "a\nb" }] }), "add_nodes[0].domain"),
            (json!({ "job": "x".repeat(FILE_BYTES_MAX + 1) }), "job"),
            (json!({ "horizon": "soon" }), "horizon"),
            (json!({ "horizon": "400d" }), "horizon"),
            (json!({ "horizon": "1s" }), "horizon"),
        ] {
            assert_eq!(refused(body).0, field);
        }
        let all = json!({
            "set": ["half_life=3d"], "drain": ["n1"], "add_nodes": [{ "count": 16, "domain": "b-1/leaf-9" }],
            "job": "run: 'true'", "queues": "", "horizon": "24h",
        });
        assert_eq!(read(all).check(), Ok(()));
    }
}
