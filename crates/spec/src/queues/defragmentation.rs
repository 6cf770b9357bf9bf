//! When jobs move to open places for others.

use phalanx_model::Defragmentation;
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::SpanFromZero;
use super::written::ns;
use crate::place::{At, Scalar};
use crate::scalar::{Count, define_words};

/// When jobs that say `may_move: true` move to other nodes, so that a job that waits has its nodes near each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DefragmentationFile {
    /// `asked`: when an operator runs `phalanx defrag --apply`; `pays`: also by themselves, if the wait that this saves costs
    /// more GPU time than the moves. Default: asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<At<WhenToMove>>,
    /// Running time after a start within which a job does not move by itself. Default: 1h.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stays: Option<At<SpanFromZero>>,
    /// The most jobs that move for one job. Default: 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<At<Count>>,
}

/// When jobs move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenToMove {
    Asked,
    Pays,
}

define_words!(WhenToMove, "one of asked, pays", "asked" => Self::Asked, "pays" => Self::Pays);

impl DefragmentationFile {
    pub(super) fn defragmentation(&self) -> Defragmentation {
        let default = Defragmentation::default();
        Defragmentation {
            is_automatic: self.when.is_some_and(|when| when.value == WhenToMove::Pays),
            stays_ms: self.stays.map_or(default.stays_ms, |stays| stays.value.millis()),
            gangs_max: self.jobs.map_or(default.gangs_max, |jobs| jobs.value.0),
        }
    }

    pub(super) fn of(said: Defragmentation) -> Self {
        let when = if said.is_automatic { WhenToMove::Pays } else { WhenToMove::Asked };
        Self {
            when: Some(when.into()),
            stays: Some(SpanFromZero(ns(said.stays_ms)).into()),
            jobs: Some(Count(said.gangs_max).into()),
        }
    }
}
