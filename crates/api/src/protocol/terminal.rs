//! Where a client finds the terminal of a rank, or that of a command beside one.

use std::path::PathBuf;

use phalanx_model::MemberId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A command that is to run beside a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExecAsk {
    /// None: the rank that has the terminal, or else the first.
    pub rank: Option<u32>,
    pub argv: Vec<String>,
    /// In a terminal, of this kind (as `TERM` names it); else between pipes.
    pub terminal: Option<String>,
}

/// The socket of a keeper ([`phalanx_node::terminal`]). It listens at once or very soon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminalView {
    pub member: MemberId,
    /// A folder of the job's owner.
    pub dir: PathBuf,
    pub name: String,
    /// The keeper runs as this user; a client must not talk to another.
    pub uid: u32,
}
