//! What the lines of a segment say, and how older formats are read.

use phalanx_model::{Change, Decision, Effect, Epoch, Input, Plan, SyncKind, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{format_1, line};

/// The format that is written. A change that makes older segments unreadable, or today's unreadable for the
/// last version, gets the next number; see `record_of`.
///
/// Format 2 records the plan of each step, which format 1 did not. Format 3 writes a long record in several lines.
pub const FORMAT: u32 = 3;
/// The oldest format that is still read.
pub const FORMAT_OLDEST: u32 = 1;
/// The first format that records plans.
pub const FORMAT_WITH_PLANS: u32 = 2;

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

impl Record {
    /// Takes in the next line of the same record, or gives it back if it is of another.
    pub(crate) fn join(&mut self, next: Self) -> Result<(), Self> {
        match (self, next) {
            (Self::Facts { seq, inputs, .. }, Self::Facts { seq: of, inputs: more, .. }) if *seq == of => {
                inputs.extend(more);
            }
            (
                Self::Decisions { seq, plan, effects, changes },
                Self::Decisions { seq: of, plan: and, effects: others, changes: more },
            ) if *seq == of => {
                plan.decisions.extend(and.decisions);
                effects.extend(others);
                changes.extend(more);
            }
            (_, next) => return Err(next),
        }
        Ok(())
    }
}

/// Which line of a record it is, from 1, and of how many.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part(pub(crate) u32, pub(crate) u32);

impl Default for Part {
    fn default() -> Self {
        Self(1, 1)
    }
}

impl Part {
    fn is_all(&self) -> bool {
        *self == Self::default()
    }
}

/// One line of a record.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordLine {
    Facts {
        seq: u64,
        now: Timestamp,
        inputs: Vec<Input>,
        #[serde(default)]
        part: Part,
    },
    Decisions {
        seq: u64,
        #[serde(default)]
        plan: Plan,
        effects: Vec<Effect>,
        changes: Vec<Change>,
        #[serde(default)]
        part: Part,
    },
}

impl From<RecordLine> for (Record, Part) {
    fn from(line: RecordLine) -> Self {
        match line {
            RecordLine::Facts { seq, now, inputs, part } => (Record::Facts { seq, now, inputs }, part),
            RecordLine::Decisions { seq, plan, effects, changes, part } => {
                (Record::Decisions { seq, plan, effects, changes }, part)
            }
        }
    }
}

/// [`RecordLine`], borrowed; the same JSON.
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordRef<'a> {
    Facts {
        seq: u64,
        now: Timestamp,
        inputs: &'a [Input],
        #[serde(skip_serializing_if = "Part::is_all")]
        part: Part,
    },
    Decisions {
        seq: u64,
        #[serde(skip_serializing_if = "<[Decision]>::is_empty")]
        plan: &'a [Decision],
        effects: &'a [Effect],
        changes: &'a [Change],
        #[serde(skip_serializing_if = "Part::is_all")]
        part: Part,
    },
}

impl<'a> RecordRef<'a> {
    /// The same record as several lines of about `bytes` each.
    pub(crate) fn lines(self, bytes: usize) -> serde_json::Result<Vec<Self>> {
        let mut lines = Vec::new();
        match self {
            Self::Facts { seq, now, inputs, .. } => {
                for inputs in chunks(inputs, bytes)? {
                    lines.push(Self::Facts { seq, now, inputs, part: Part::default() });
                }
            }
            Self::Decisions { seq, plan, effects, changes, .. } => {
                let nothing = Parts { seq, plan: &[], effects: &[], changes: &[] };
                for plan in chunks(plan, bytes)? {
                    lines.push(Parts { plan, ..nothing }.line());
                }
                for effects in chunks(effects, bytes)? {
                    lines.push(Parts { effects, ..nothing }.line());
                }
                for changes in chunks(changes, bytes)? {
                    lines.push(Parts { changes, ..nothing }.line());
                }
            }
        }
        let count = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        for (number, line) in (1..).zip(&mut lines) {
            let (Self::Facts { part, .. } | Self::Decisions { part, .. }) = line;
            *part = Part(number, count);
        }
        Ok(lines)
    }
}

/// A part of decisions.
#[derive(Clone, Copy)]
struct Parts<'a> {
    seq: u64,
    plan: &'a [Decision],
    effects: &'a [Effect],
    changes: &'a [Change],
}

impl<'a> Parts<'a> {
    fn line(self) -> RecordRef<'a> {
        let Self { seq, plan, effects, changes } = self;
        RecordRef::Decisions { seq, plan, effects, changes, part: Part::default() }
    }
}

/// Cuts a list so that each part takes about `bytes` as JSON, and holds one item at least.
fn chunks<T: Serialize>(items: &[T], bytes: usize) -> serde_json::Result<Vec<&[T]>> {
    let mut chunks = Vec::new();
    let (mut rest, mut taken, mut size) = (items, 0, 0);
    for item in items {
        let length = line::length(item)?;
        if taken > 0 && size + length > bytes {
            let (chunk, after) = rest.split_at(taken);
            chunks.push(chunk);
            (rest, taken, size) = (after, 0, 0);
        }
        (taken, size) = (taken + 1, size + length);
    }
    if !rest.is_empty() {
        chunks.push(rest);
    }
    Ok(chunks)
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
        // The headers of formats 1 and 2 say the same.
        Ok(FORMAT_OLDEST..=FORMAT) => serde_json::from_slice(json).map_err(parse),
        _ => Err(Misread::Format(format)),
    }
}

/// Reads a line of a record of any known format, and which line of it this is: the place for
/// migrations. A segment keeps the format of its header.
pub(crate) fn record_of(format: u32, json: &[u8]) -> Result<(Record, Part), Misread> {
    let record = match format {
        // Format 2 has whole records only.
        2..=FORMAT => serde_json::from_slice::<RecordLine>(json).map(<(Record, Part)>::from),
        FORMAT_OLDEST => {
            serde_json::from_slice::<format_1::Record>(json).map(|record| (record.into(), Part::default()))
        }
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
