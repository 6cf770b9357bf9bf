//! Errors as `application/problem+json` (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::protocol::{ErrorCode, ErrorView, WrongField};

/// What went wrong, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// A stable word: `not_found`.
    pub code: String,
    /// What is wrong with this request.
    pub detail: String,
    /// What to do; may be empty.
    pub hint: String,
    /// The parts of the request that are wrong, where that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldProblem>,
}

/// What is wrong with one part of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldProblem {
    /// A parameter, or the path of a field of the body: `limit`, `resources.gpus`.
    pub field: String,
    pub detail: String,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: &str,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Box<Self> {
        Box::new(Self {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: detail.into(),
            hint: hint.into(),
            errors: Vec::new(),
        })
    }

    /// A part of the request is wrong.
    pub(crate) fn field(field: &str, detail: impl Into<String>, hint: impl Into<String>) -> Box<Self> {
        let detail = detail.into();
        let errors = vec![FieldProblem { field: field.to_owned(), detail: detail.clone() }];
        let detail = format!("{field}: {detail}");
        Box::new(Self { errors, ..*Self::new(StatusCode::BAD_REQUEST, "bad_request", detail, hint) })
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Box<Self> {
        let hint = "GET /v1/openapi.json lists what there is";
        Self::new(StatusCode::NOT_FOUND, "not_found", detail, hint)
    }

    /// The world gave an answer that the verb does not have.
    pub(crate) fn unexpected() -> Box<Self> {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "the scheduler gave an unexpected answer",
            "",
        )
    }
}

impl From<ErrorView> for Box<Problem> {
    fn from(error: ErrorView) -> Self {
        let (status, code) = match error.code {
            ErrorCode::BadRequest => (StatusCode::BAD_REQUEST, "bad_request"),
            ErrorCode::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            ErrorCode::Forbidden => (StatusCode::FORBIDDEN, "forbidden"),
            ErrorCode::Rejected => (StatusCode::UNPROCESSABLE_ENTITY, "rejected"),
            ErrorCode::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            ErrorCode::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let in_field = |field: WrongField| FieldProblem { field: field.path, detail: field.what };
        let errors = error.field.map(in_field).into_iter().collect();
        Self::new(Problem { errors, ..*Problem::new(status, code, error.message, error.hint) })
    }
}

impl IntoResponse for Box<Problem> {
    fn into_response(self) -> Response {
        const JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, JSON)], body).into_response();
        let extra = match status {
            StatusCode::UNAUTHORIZED => Some((header::WWW_AUTHENTICATE, "Bearer")),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Some((header::RETRY_AFTER, "1"))
            }
            _ => None,
        };
        if let Some((name, value)) = extra {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
