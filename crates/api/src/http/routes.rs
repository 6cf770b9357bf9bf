//! Every route: its method and path, what it takes and gives, and the verb that it stands for. The router and the OpenAPI
//! document are both made from this table.

/// Gives the document that an answer of this kind carries.
macro_rules! document {
    ($kind:ident) => {
        |_, answer| match answer {
            $crate::protocol::Answer::$kind(view) => $crate::http::document::Document::of(&view),
            _ => Err($crate::http::problem::Problem::unexpected()),
        }
    };
}

/// Gives the items that an answer of this kind carries, as a list without a further part.
macro_rules! list {
    ($kind:ident) => {
        |_, answer| match answer {
            $crate::protocol::Answer::$kind(items) => $crate::http::document::List::whole(items),
            _ => Err($crate::http::problem::Problem::unexpected()),
        }
    };
}

pub(crate) mod admin;
pub(crate) mod cluster;
pub(crate) mod jobs;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::asked::Asked;
use super::document::Document;
use super::problem::Problem;
use crate::protocol::{Answer, Verb};

/// One method of one path.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// As in OpenAPI: `/v1/jobs/{job}`.
    pub(crate) path: &'static str,
    /// The name of the operation: `getJob`.
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [Query],
    pub(crate) body: Body,
    pub(crate) gives: Gives,
    pub(crate) ask: fn(&Asked) -> Result<Verb, Box<Problem>>,
    pub(crate) tell: fn(&Asked, Answer) -> Result<Document, Box<Problem>>,
}

impl Route {
    /// Whether a caller must have a token.
    pub(crate) fn needs_token(&self) -> bool {
        self.path != "/v1/version"
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

/// A parameter of the query.
pub(crate) struct Query {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) about: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Number,
    Flag,
}

/// What a request carries.
pub(crate) enum Body {
    Nothing,
    /// A document; without one the defaults count.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// A file that users write, as JSON or YAML.
    File(File),
}

impl Body {
    /// The content types that it may come as.
    pub(crate) const fn content_types(&self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &[],
            Self::Json(_) => &["application/json"],
            Self::File(_) => &["application/json", "application/yaml", "text/yaml", "application/x-yaml"],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    Job,
    Queues,
}

/// What an answer is.
pub(crate) enum Gives {
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// The same with the status 201, for something was made.
    Created(fn(&mut SchemaGenerator) -> Schema),
    /// Server-sent events whose data is such a document.
    Events(fn(&mut SchemaGenerator) -> Schema),
}

const fn text(name: &'static str, about: &'static str) -> Query {
    Query { name, kind: Kind::Text, about }
}

const fn number(name: &'static str, about: &'static str) -> Query {
    Query { name, kind: Kind::Number, about }
}

const fn flag(name: &'static str, about: &'static str) -> Query {
    Query { name, kind: Kind::Flag, about }
}

const LIMIT: Query = number("limit", "Items at most; 200 if it is not given, and no more than 10,000.");

fn shape<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// An object whose fields are not part of the API.
fn object(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "object" })
}

/// A read without parameters.
const fn read(
    path: &'static str,
    name: &'static str,
    summary: &'static str,
    gives: Gives,
    ask: Ask,
    tell: Tell,
) -> Route {
    Route { method: Method::Get, path, name, summary, query: &[], body: Body::Nothing, gives, ask, tell }
}

/// An act that is answered with what came of it.
const fn act(path: &'static str, name: &'static str, summary: &'static str, body: Body, ask: Ask) -> Route {
    let gives = Gives::Json(shape::<super::document::Done>);
    Route { method: Method::Post, path, name, summary, query: &[], body, gives, ask, tell: done }
}

type Ask = fn(&Asked) -> Result<Verb, Box<Problem>>;
type Tell = fn(&Asked, Answer) -> Result<Document, Box<Problem>>;

fn done(_: &Asked, answer: Answer) -> Result<Document, Box<Problem>> {
    match answer {
        Answer::Done { detail } => Document::of(&super::document::Done { detail }),
        _ => Err(Problem::unexpected()),
    }
}

/// All routes, in the order of the document.
pub(crate) fn all() -> impl Iterator<Item = &'static Route> {
    cluster::ROUTES.iter().chain(jobs::ROUTES).chain(admin::ROUTES)
}
