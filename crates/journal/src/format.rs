//! What the lines of a segment say, and how older formats are read.

use phalanx_model::{Change, Effect, Epoch, Input, Plan, SyncKind, Timestamp};
use serde::{Deserialize, Serialize};

use crate::format_1;

/// The format that is written. A change that makes older segments unreadable, or today's unreadable for the
/// last version, gets the next number; see `record_of`.
///
/// Format 2 records the plan of each step, which format 1 did not.
pub const FORMAT: u32 = 2;
/// The oldest format that is still read: the one before [`FORMAT`].
pub const FORMAT_OLDEST: u32 = 1;

/// The first line of a segment: who wrote it, and by which rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Always [`FORMAT`] when written.
    pub format: u32,
    /// Version of the engine: the same version replays a segment byte by byte.
    pub engine: String,
    pub epoch: Epoch,
    /// Digest of the configuration, as the caller computes it.
    pub configuration: String,
    /// Digest of the cost tables, as the caller computes it.
    pub costs: String,
    pub created_at: Timestamp,
}

impl Header {
    /// A header of today's format, without digests.
    #[must_use]
    pub fn new(engine: impl Into<String>, epoch: Epoch, created_at: Timestamp) -> Self {
        let (engine, configuration, costs) = (engine.into(), String::new(), String::new());
        Self { format: FORMAT, engine, epoch, configuration, costs, created_at }
    }
}

/// One half of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// What the engine was told. Written before the step.
    Facts { seq: u64, now: Timestamp, inputs: Vec<Input> },
    /// What it decided. Written after the step, and synced before any effect leaves.
    ///
    /// Another version of the engine commits the plan to know the same; the effects say which orders left under which
    /// numbers, and the changes are for people.
    Decisions {
        seq: u64,
        #[serde(default, skip_serializing_if = "Plan::is_empty")]
        plan: Plan,
        effects: Vec<Effect>,
        changes: Vec<Change>,
    },
}

/// [`Record`], borrowed; the same JSON.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordRef<'a> {
    Facts {
        seq: u64,
        now: Timestamp,
        inputs: &'a [Input],
    },
    Decisions {
        seq: u64,
        #[serde(skip_serializing_if = "Plan::is_empty")]
        plan: &'a Plan,
        effects: &'a [Effect],
        changes: &'a [Change],
    },
}

/// What every header of every format has.
#[derive(Deserialize)]
struct AnyHeader {
    format: u64,
}

/// Why a whole line is not understood.
pub(crate) enum Misread {
    Format(u64),
    Json(String),
}

/// Reads a header of any known format.
pub(crate) fn header_of(json: &[u8]) -> Result<Header, Misread> {
    let parse = |e: serde_json::Error| Misread::Json(e.to_string());
    let AnyHeader { format } = serde_json::from_slice(json).map_err(parse)?;
    match u32::try_from(format) {
        // The header of format 1 says the same.
        Ok(FORMAT_OLDEST..=FORMAT) => serde_json::from_slice(json).map_err(parse),
        _ => Err(Misread::Format(format)),
    }
}

/// Reads a record of any known format: the place for migrations. A segment keeps the format of its header.
pub(crate) fn record_of(format: u32, json: &[u8]) -> Result<Record, Misread> {
    let record = match format {
        FORMAT => serde_json::from_slice(json),
        FORMAT_OLDEST => serde_json::from_slice::<format_1::Record>(json).map(Record::from),
        other => return Err(Misread::Format(other.into())),
    };
    record.map_err(|e| Misread::Json(e.to_string()))
}

/// The first kind that these facts do not list from its begin to its end.
pub(crate) fn missing_sync(inputs: &[Input]) -> Option<SyncKind> {
    [SyncKind::Nodes, SyncKind::Jobs, SyncKind::Members].into_iter().find(|kind| {
        let begin = inputs.iter().position(|i| matches!(i, Input::SyncBegin { kind: k } if k == kind));
        let end = inputs.iter().rposition(|i| matches!(i, Input::SyncEnd { kind: k } if k == kind));
        !matches!((begin, end), (Some(begin), Some(end)) if begin < end)
    })
}
