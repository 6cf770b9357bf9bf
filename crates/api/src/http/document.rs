//! What answers carry.

use axum::http::StatusCode;
use phalanx_model::JobId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problem::Problem;

/// A JSON document, and the status that it comes with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Document {
    pub(crate) status: StatusCode,
    pub(crate) json: Vec<u8>,
}

impl Document {
    pub(crate) fn of<T: Serialize>(value: &T) -> Result<Self, Box<Problem>> {
        let json = serde_json::to_vec(value).map_err(|_| Problem::unexpected())?;
        Ok(Self { status: StatusCode::OK, json })
    }

    /// Something was made.
    pub(crate) fn created(self) -> Self {
        Self { status: StatusCode::CREATED, ..self }
    }
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub struct List<T> {
    pub items: Vec<T>,
    /// The value of `after` for the next part. `null`: this is the last.
    pub next: Option<String>,
}

impl<T: Serialize> List<T> {
    /// A list that has no further part.
    pub(crate) fn whole(items: Vec<T>) -> Result<Document, Box<Problem>> {
        Document::of(&Self { items, next: None })
    }
}

/// What came of an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    pub detail: String,
}

/// A job that was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Submitted {
    pub job: JobId,
    pub name: String,
    /// The key was used before, and this is that job.
    pub existing: bool,
}

/// Which scheduler answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Version {
    /// Of the scheduler.
    pub version: String,
    /// Of the API.
    pub api: String,
    pub pid: u32,
    /// Goes up with each start of the scheduler.
    pub epoch: u64,
}

/// A line of a rank's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogLine {
    /// Number of the task of an array.
    pub task: Option<u32>,
    pub rank: u32,
    pub attempt: u32,
    /// When it was written, to a second; only if it was asked for.
    pub at: Option<phalanx_model::Timestamp>,
    pub line: String,
}
