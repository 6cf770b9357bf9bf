//! What people see.

use std::fmt;

use phalanx_model::{Grade, NodeName, Timestamp};
use serde::{Deserialize, Serialize};

use crate::evidence::{Kind, Seen};
use crate::subject::Subject;
use crate::{Policy, Repair};

/// A device, or a node itself, that is not ok or has evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Line {
    pub node: NodeName,
    /// `None`: the node itself.
    pub device: Option<u32>,
    pub grade: Grade,
    /// The grade that it would have without the circuit breaker.
    pub held: Option<Grade>,
    /// Automation alone closes it, and neither people nor a loss do.
    #[serde(default)]
    pub is_automatic: bool,
    /// Since when it has the grade.
    pub since: Timestamp,
    pub detail: String,
    pub repair: Repair,
    pub next: Next,
    /// It is watched until then, because it was drained.
    pub probation_until: Option<Timestamp>,
    /// Different jobs with errors here and on no other device, lately.
    pub failed_jobs: u32,
    /// How often it was drained, lately.
    pub drains: u32,
    /// Newest first.
    pub evidence: Vec<Seen>,
}

/// What happens next. `Display` gives it in words, with times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Next {
    Nothing,
    OkAt(Timestamp),
    Held,
    WhenFree,
    /// Nothing has to be done here: the evidence has to end.
    WhenQuiet,
    WhenReset,
    WhenRebooted,
    /// The node booted again, and the device has to answer.
    WhenItAnswers,
    WhenCleared,
}

impl fmt::Display for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "-",
            Self::OkAt(at) => return write!(f, "ok again at {}", at.0),
            Self::Held => "held: the circuit breaker",
            Self::WhenFree => "back on probation when free and quiet",
            Self::WhenQuiet => "back on probation when the fault is gone for a while",
            Self::WhenReset => "back on probation when free and reset",
            Self::WhenRebooted => "back on probation when the node has booted again",
            Self::WhenItAnswers => "back on probation when the device answers",
            Self::WhenCleared => "closed until an operator clears it",
        })
    }
}

/// The line of a device or of a node itself.
pub(crate) fn line(node: &NodeName, device: Option<u32>, of: &Subject, policy: &Policy) -> Line {
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    Line {
        node: node.clone(),
        device,
        grade: of.grade(),
        held: of.held(),
        is_automatic: of.is_automatic(),
        since: of.since,
        detail: of.detail().to_owned(),
        repair: of.repair(policy),
        next: next(of, policy),
        probation_until: of.probation.as_ref().map(|probation| probation.until),
        failed_jobs: u32::try_from(of.failed_alone()).unwrap_or(u32::MAX),
        drains: count(of.drains.len()),
        evidence: of.seen.clone(),
    }
}

fn next(of: &Subject, policy: &Policy) -> Next {
    if of.held().is_some() {
        return Next::Held;
    }
    if of.grade().is_closed() {
        let mut closing = of.closing();
        let is_answer_left = closing.all(|finding| finding.kind == Kind::Lost && finding.is_rebooted);
        // The repair of the findings: what a third return leads to is decided then.
        let repair = of.closing().map(|finding| finding.repair).max().unwrap_or_default();
        return match repair {
            _ if is_answer_left => Next::WhenItAnswers,
            _ if of.repair(policy) == Repair::Service => Next::WhenCleared,
            Repair::None if of.closing().all(|finding| finding.kind.is_of_port()) => Next::WhenQuiet,
            Repair::None => Next::WhenFree,
            Repair::Reset => Next::WhenReset,
            Repair::Reboot => Next::WhenRebooted,
            Repair::Service => Next::WhenCleared,
        };
    }
    let expiries = of.findings.iter().map(|finding| finding.last_at.plus(policy.suspect_ms));
    let expiries = expiries.chain(of.probation.as_ref().map(|probation| probation.until));
    let expiries = expiries.chain(of.measured.ends_at(policy));
    expiries.max().map_or(Next::Nothing, Next::OkAt)
}
