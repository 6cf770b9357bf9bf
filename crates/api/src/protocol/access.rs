//! Who asks, and the tokens with which programs and browsers ask in a user's name.

use phalanx_model::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CallerRole")]
pub enum Role {
    /// Reads what its user may read, and changes nothing.
    Viewer,
    /// Changes jobs of its user.
    User,
    /// Changes everything.
    Operator,
}

/// Who the caller is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserView {
    pub user: String,
    pub uid: u32,
    pub role: Role,
    pub now: Timestamp,
}

/// A token that a user asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenAsk {
    /// What it is for, in the user's words: at most [`TOKEN_NAME_CHARS_MAX`] characters of `a-z`, `0-9`, `-`, `_` and `.`.
    pub name: String,
    /// It only reads.
    #[serde(default)]
    pub read_only: bool,
    /// How long it is valid, at most [`TOKEN_MS_MAX`].
    pub for_ms: u64,
}

/// Characters in the name of a token.
pub const TOKEN_NAME_CHARS_MAX: usize = 40;
/// The longest life of a token: a year.
pub const TOKEN_MS_MAX: u64 = 366 * 24 * 3_600_000;

/// A token as it is shown: never its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenView {
    pub name: String,
    pub user: String,
    pub uid: u32,
    pub read_only: bool,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// A token that was just made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NewTokenView {
    #[serde(flatten)]
    pub token: TokenView,
    /// Shown once: only its digest is kept.
    pub text: String,
    /// Where the API and the dashboard are served: `http://127.0.0.1:7077`.
    pub address: String,
}
