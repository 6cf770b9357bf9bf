//! A report as JSON that a person can read: lists of numbers stand in one line.

use serde_json::Value;

use super::Report;

/// Thousandths.
const ROUNDED: f64 = 1_000.0;

/// Rounded, in the order of the fields.
pub(super) fn value(report: &Report) -> Value {
    let mut value = serde_json::to_value(report).unwrap_or_default();
    round(&mut value);
    value
}

pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    write(&value(report), 0, &mut out);
    out.push('\n');
    out
}

fn round(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().map(|number| (number * ROUNDED).round() / ROUNDED);
            if let Some(rounded) = rounded.and_then(serde_json::Number::from_f64) {
                *number = rounded;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Object(fields) => fields.values_mut().for_each(round),
        _ => {}
    }
}

fn write(value: &Value, depth: usize, out: &mut String) {
    let indent = |depth: usize, out: &mut String| {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    };
    let has_parts = |value: &Value| value.is_array() || value.is_object();
    match value {
        Value::Array(items) if items.iter().any(has_parts) => {
            for (at, item) in items.iter().enumerate() {
                out.push(if at == 0 { '[' } else { ',' });
                indent(depth + 1, out);
                write(item, depth + 1, out);
            }
            indent(depth, out);
            out.push(']');
        }
        Value::Object(fields) if fields.values().any(has_parts) => {
            for (at, (name, field)) in fields.iter().enumerate() {
                out.push(if at == 0 { '{' } else { ',' });
                indent(depth + 1, out);
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push_str(": ");
                write(field, depth + 1, out);
            }
            indent(depth, out);
            out.push('}');
        }
        flat => out.push_str(&flat.to_string()),
    }
}
