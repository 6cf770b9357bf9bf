//! What a queue does with jobs that do not use their GPUs.

use phalanx_model::{ClassName, IdlePolicy, IdleThen, Settings};
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use super::written::ns;
use super::{Account, QueueEntry, QueueFile, SpanFromZero};
use crate::error::{SpecError, listed, nearest};
use crate::place::{At, Scalar};
use crate::scalar::{Span, define_words};

/// What happens to jobs of a queue, and of those below it, that hold GPUs and run no kernel on any of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdleFile {
    /// Time without a kernel after which the rule applies. Default: 30m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<At<Span>>,
    /// Least time between the notice to the owner and what happens then. Default: 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<At<SpanFromZero>>,
    /// What happens then: `warn`, nothing more; `hold`, the job is stopped, and waits until it is released; `end`, it is
    /// cancelled. Default: warn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub then: Option<At<IdleThenWord>>,
    /// `wanted`: only if another job would start then, and to the fewest jobs with which it would; `always`: in any case.
    /// Default: wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<At<WhenIdle>>,
    /// Users whose jobs are only reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except_users: Vec<At<Account>>,
    /// Classes whose jobs are only reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except_classes: Vec<At<ClassName>>,
}

/// What happens to a job that is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleThenWord {
    Warn,
    Hold,
    End,
}

define_words!(IdleThenWord, "one of warn, hold, end", "warn" => Self::Warn, "hold" => Self::Hold, "end" => Self::End);

/// When the rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenIdle {
    Wanted,
    Always,
}

define_words!(WhenIdle, "one of wanted, always", "wanted" => Self::Wanted, "always" => Self::Always);

impl IdleFile {
    pub(super) fn policy(&self) -> IdlePolicy {
        let default = IdlePolicy::default();
        IdlePolicy {
            after_ms: self.after.map_or(default.after_ms, |after| after.value.millis()),
            notice_ms: self.notice.map_or(default.notice_ms, |notice| notice.value.millis()),
            then: match self.then.map_or(IdleThenWord::Warn, |then| then.value) {
                IdleThenWord::Warn => IdleThen::Warn,
                IdleThenWord::Hold => IdleThen::Hold,
                IdleThenWord::End => IdleThen::End,
            },
            is_on_demand: self.when.is_none_or(|when| when.value == WhenIdle::Wanted),
            spared_users: self.except_users.iter().map(|user| user.value.0.clone()).collect(),
            spared_classes: self.except_classes.iter().map(|class| class.value.clone()).collect(),
        }
    }

    pub(super) fn of(policy: &IdlePolicy) -> Self {
        let then = match policy.then {
            IdleThen::Warn => IdleThenWord::Warn,
            IdleThen::Hold => IdleThenWord::Hold,
            IdleThen::End => IdleThenWord::End,
        };
        let when = if policy.is_on_demand { WhenIdle::Wanted } else { WhenIdle::Always };
        Self {
            after: Some(Span(ns(policy.after_ms)).into()),
            notice: Some(SpanFromZero(ns(policy.notice_ms)).into()),
            then: Some(then.into()),
            when: Some(when.into()),
            except_users: policy.spared_users.iter().map(|user| Account(user.clone()).into()).collect(),
            except_classes: policy.spared_classes.iter().cloned().map(At::from).collect(),
        }
    }
}

impl QueueFile {
    /// Refuses a class that no job can have.
    pub(super) fn check_spared_classes(
        &self,
        entries: &[QueueEntry],
        settings: &Settings,
    ) -> Result<(), SpecError> {
        for entry in entries {
            let spared = entry.idle.iter().flat_map(|idle| &idle.except_classes);
            let unknown =
                |class: &&At<ClassName>| settings.classes.iter().all(|known| known.name != class.value);
            if let Some(class) = spared.into_iter().find(unknown) {
                let known: Vec<&str> = settings.classes.iter().map(|class| class.name.as_str()).collect();
                let what = format!("no class is named {:?}", class.value.as_str());
                let meant = nearest(class.value.as_str(), &known);
                let accepted = meant.map_or(String::new(), |meant| format!("did you mean {meant:?}?"));
                let error = self.source.error(class.place, what, accepted);
                return Err(error.note(format!("the classes are {}", listed(&known))));
            }
            self.check_spared_classes(&entry.queues, settings)?;
        }
        Ok(())
    }
}
