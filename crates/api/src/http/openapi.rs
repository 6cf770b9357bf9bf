//! The OpenAPI 3.1 document, made from the table of routes and the types of the documents.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::problem::Problem;
use super::routes::{self, Body, File, Gives, Kind, Method, Route};

/// All routes with what they take and give.
#[must_use]
pub fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let problem = generator.subschema_for::<Problem>();
    let mut paths: Map<String, Value> = Map::new();
    for route in routes::all() {
        let operation = operation(route, &mut generator, problem.as_value());
        let path = paths.entry(route.path).or_insert_with(|| Value::Object(Map::new()));
        if let Some(path) = path.as_object_mut() {
            path.insert(word(route.method).to_owned(), operation);
        }
    }
    let mut schemas = generator.take_definitions(true);
    schemas.insert("JobFile".to_owned(), nested(phalanx_spec::job_schema(), "JobFile"));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Phalanx",
            "version": phalanx_shell::VERSION,
            "description": "Gang scheduling and GPU orchestration. Times are Unix milliseconds, amounts of money millionths of the \
                            unit of the site, sets of devices numbers whose bit i is device i.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "token": [] }],
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator, problem: &Value) -> Value {
    let in_path = route.path.split('{').skip(1).filter_map(|part| part.split('}').next());
    let in_path = in_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let in_query = route.query.iter().map(|query| {
        let kind = match query.kind {
            Kind::Text => "string",
            Kind::Number => "integer",
            Kind::Flag => "boolean",
        };
        json!({ "name": query.name, "in": "query", "description": query.about, "schema": { "type": kind } })
    });
    let mut parameters: Vec<Value> = in_path.chain(in_query).collect();
    if let Gives::Events(_) = route.gives
        && route.path == "/v1/stream"
    {
        let about = "Go on after this event.";
        parameters.push(json!({ "name": "Last-Event-ID", "in": "header", "description": about, "schema": { "type": "string" } }));
    }
    if let (Body::File(File::Job), Gives::Created(_)) = (&route.body, &route.gives) {
        let about = "The same key again is the same job, with status 200.";
        parameters.push(json!({ "name": "Idempotency-Key", "in": "header", "description": about, "schema": { "type": "string" } }));
    }
    let (status, kind, schema) = match route.gives {
        Gives::Json(shape) => ("200", "application/json", shape(generator)),
        Gives::Created(shape) => ("201", "application/json", shape(generator)),
        Gives::Events(shape) => ("200", "text/event-stream", shape(generator)),
    };
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "responses": {
            status: { "description": "Done.", "content": { kind: { "schema": schema } } },
            "default": {
                "description": "What went wrong, and what to do.",
                "content": { "application/problem+json": { "schema": problem } },
            },
        },
    });
    if let Gives::Created(_) = route.gives {
        operation["responses"]["200"] = operation["responses"]["201"].clone();
    }
    if let Some(fields) = operation.as_object_mut() {
        if !parameters.is_empty() {
            fields.insert("parameters".to_owned(), Value::Array(parameters));
        }
        if let Some(body) = body(&route.body, generator) {
            fields.insert("requestBody".to_owned(), body);
        }
        if !route.needs_token() {
            fields.insert("security".to_owned(), json!([]));
        }
    }
    operation
}

fn body(body: &Body, generator: &mut SchemaGenerator) -> Option<Value> {
    match body {
        Body::Nothing => None,
        Body::Json(shape) => {
            let schema = shape(generator);
            Some(json!({ "content": { "application/json": { "schema": schema } } }))
        }
        Body::File(file) => {
            let schema = match file {
                File::Job => json!({ "$ref": "#/components/schemas/JobFile" }),
                File::Queues => {
                    json!({ "type": "object", "description": "A queue file: GET /v1/schemas/queues." })
                }
            };
            Some(json!({ "required": true, "content": {
                "application/json": { "schema": schema },
                "application/yaml": { "schema": schema },
            } }))
        }
    }
}

/// A schema with definitions of its own, under a name: what it refers to is found from the root of the document.
fn nested(mut schema: Value, name: &str) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("$schema");
    }
    refer(&mut schema, &format!("#/components/schemas/{name}/$defs/"));
    schema
}

fn refer(value: &mut Value, to: &str) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if let (true, Value::String(text)) = (key == "$ref", &mut *value) {
                    if let Some(name) = text.strip_prefix("#/$defs/") {
                        *text = format!("{to}{name}");
                    }
                } else {
                    refer(value, to);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| refer(item, to)),
        _ => {}
    }
}

const fn word(method: Method) -> &'static str {
    match method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Put => "put",
        Method::Patch => "patch",
        Method::Delete => "delete",
    }
}
