//! When jobs move off degraded hardware.

use phalanx_model::Migration;
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::SpanFromZero;
use super::written::ns;
use crate::place::{At, Scalar};
use crate::scalar::{Span, define_words};

/// When jobs that save checkpoints move off nodes and GPUs that are graded `drain_after_job`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MigrationFile {
    /// `pays`: after a checkpoint, if that costs less than what the job loses on average by staying; `always`: after the
    /// next checkpoint; `never`: they stay until they end. Default: pays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<At<When>>,
    /// Mean time until degraded hardware fails. Default: 1d.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_within: Option<At<Span>>,
    /// Time from the stop of a job to the first step after its restart. Default: 2m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart: Option<At<SpanFromZero>>,
}

/// When jobs migrate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Pays,
    Always,
    Never,
}

define_words!(When, "one of pays, always, never", "pays" => Self::Pays, "always" => Self::Always, "never" => Self::Never);

impl MigrationFile {
    pub(super) fn migration(&self) -> Option<Migration> {
        let (when, default) = (self.when.map_or(When::Pays, |when| when.value), Migration::default());
        (when != When::Never).then(|| Migration {
            fails_within_ms: self.fails_within.map_or(default.fails_within_ms, |span| span.value.millis()),
            restart_ms: self.restart.map_or(default.restart_ms, |span| span.value.millis()),
            is_unconditional: when == When::Always,
        })
    }

    pub(super) fn of(migration: Option<Migration>) -> Self {
        let Some(migration) = migration else {
            return Self { when: Some(When::Never.into()), ..Self::default() };
        };
        Self {
            when: Some(if migration.is_unconditional { When::Always } else { When::Pays }.into()),
            fails_within: Some(Span(ns(migration.fails_within_ms)).into()),
            restart: Some(SpanFromZero(ns(migration.restart_ms)).into()),
        }
    }
}
