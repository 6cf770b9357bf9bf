//! The schemas that editors read stay as they are unless somebody means to change them.

mod common;

use common::golden;
use serde_json::Value;

fn pretty(schema: &Value) -> String {
    format!("{schema:#}\n")
}

#[test]
fn schemas_are_the_kept_ones() {
    golden("schema/job.schema.json", &pretty(&phalanx_spec::job_schema()));
    golden("schema/cluster.schema.json", &pretty(&phalanx_spec::cluster_schema()));
    golden("schema/queues.schema.json", &pretty(&phalanx_spec::queues_schema()));
}

/// An editor shows these: every field has a description.
#[test]
fn every_field_is_described() {
    for schema in [phalanx_spec::job_schema(), phalanx_spec::cluster_schema(), phalanx_spec::queues_schema()]
    {
        check(&schema, "");
    }
}

fn check(schema: &Value, path: &str) {
    for (name, field) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        assert!(field.get("description").is_some(), "{path}.{name} has no description");
    }
    match schema {
        Value::Object(map) => map.iter().for_each(|(key, value)| check(value, &format!("{path}.{key}"))),
        Value::Array(items) => items.iter().for_each(|item| check(item, path)),
        _ => {}
    }
}
