//! How far hardware can be trusted, as a node's agent graded it: a part of `NodeTopology`.

use phalanx_health::{Closing, Line, Next, Repair};
use phalanx_model::{Grade, Graded, NodeName, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How far a device or a node can be trusted. What is not graded is ok.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthSpec {
    pub grade: GradeSpec,
    /// The evidence, in words: Xid 79, the GPU has fallen off the bus.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub reason: String,
    /// Since when, as RFC 3339.
    #[schemars(length(max = 64))]
    pub since: String,
    /// What brings it back.
    #[serde(default)]
    pub repair: RepairSpec,
    /// What happens next.
    #[serde(default)]
    pub next: NextSpec,
    /// Closed by automation alone: the circuit breaker of the scheduler counts it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub automatic: bool,
}

/// A grade that is not ok, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GradeSpec {
    /// Takes work as before, and is watched.
    Suspect,
    /// No new gangs are placed there. Running gangs go on.
    DrainAfterJob,
    /// No new gangs are placed there, and running gangs are stopped and placed elsewhere.
    DrainNow,
    /// As DrainNow, and only a repair brings it back.
    Broken,
}

/// What brings hardware back, from the cheapest to the dearest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RepairSpec {
    #[default]
    None,
    /// A reset of the device.
    Reset,
    /// A reboot of the node.
    Reboot,
    /// Work by people.
    Service,
}

/// What happens next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NextSpec {
    /// It is ok again after a time without evidence.
    #[default]
    WhenQuiet,
    WhenFree,
    WhenReset,
    WhenRebooted,
    /// The node booted again, and the device has to answer.
    WhenItAnswers,
    /// Closed until an operator clears it.
    WhenCleared,
}

const GRADES: [(Grade, GradeSpec); 4] = [
    (Grade::Suspect, GradeSpec::Suspect),
    (Grade::DrainAfterJob, GradeSpec::DrainAfterJob),
    (Grade::DrainNow, GradeSpec::DrainNow),
    (Grade::Broken, GradeSpec::Broken),
];

const REPAIRS: [(Repair, RepairSpec); 4] = [
    (Repair::None, RepairSpec::None),
    (Repair::Reset, RepairSpec::Reset),
    (Repair::Reboot, RepairSpec::Reboot),
    (Repair::Service, RepairSpec::Service),
];

const NEXTS: [(Next, NextSpec); 5] = [
    (Next::WhenFree, NextSpec::WhenFree),
    (Next::WhenReset, NextSpec::WhenReset),
    (Next::WhenRebooted, NextSpec::WhenRebooted),
    (Next::WhenItAnswers, NextSpec::WhenItAnswers),
    (Next::WhenCleared, NextSpec::WhenCleared),
];

impl HealthSpec {
    /// Of what a grader reports; nothing where it is ok.
    #[must_use]
    pub fn of(line: &Line) -> Option<Self> {
        let (_, grade) = GRADES.into_iter().find(|(grade, _)| *grade == line.grade)?;
        let repair = REPAIRS.into_iter().find(|(repair, _)| *repair == line.repair);
        let next = NEXTS.into_iter().find(|(next, _)| *next == line.next);
        let ms = i64::try_from(line.since.0).unwrap_or(i64::MAX);
        Some(Self {
            grade,
            reason: line.detail.clone(),
            since: jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_string(),
            repair: repair.map(|(_, repair)| repair).unwrap_or_default(),
            next: next.map(|(_, next)| next).unwrap_or_default(),
            automatic: line.is_automatic,
        })
    }

    #[must_use]
    pub fn grade(&self) -> Grade {
        GRADES.iter().find(|(_, of)| *of == self.grade).map_or(Grade::Suspect, |(grade, _)| *grade)
    }

    #[must_use]
    pub fn graded(&self) -> Graded {
        Graded { grade: self.grade(), detail: self.reason.clone() }
    }

    /// What somebody else wrote and is no date is the oldest.
    #[must_use]
    pub fn since(&self) -> Timestamp {
        let at = self.since.parse::<jiff::Timestamp>().unwrap_or_default();
        Timestamp(u64::try_from(at.as_millisecond()).unwrap_or_default())
    }

    /// What the circuit breaker judges; nothing where automation closes nothing.
    #[must_use]
    pub fn closing(&self, node: &NodeName, device: Option<u32>) -> Option<Closing> {
        let is_counted = self.automatic && self.grade().is_closed();
        is_counted.then(|| Closing { since: self.since(), node: node.clone(), device })
    }

    /// As a grader reports it, without its evidence.
    #[must_use]
    pub fn line(&self, node: &NodeName, device: Option<u32>) -> Line {
        let repair = REPAIRS.iter().find(|(_, of)| *of == self.repair).map(|(repair, _)| *repair);
        let next = NEXTS.iter().find(|(_, of)| *of == self.next).map(|(next, _)| *next);
        // Suspects say so too, and when they are ok again is not written.
        let is_quiet_due = self.next == NextSpec::WhenQuiet && self.grade().is_closed();
        let otherwise = if is_quiet_due { Next::WhenQuiet } else { Next::Nothing };
        Line {
            node: node.clone(),
            device,
            grade: self.grade(),
            held: None,
            is_automatic: self.automatic,
            since: self.since(),
            detail: self.reason.clone(),
            repair: repair.unwrap_or_default(),
            next: next.unwrap_or(otherwise),
            probation_until: None,
            failed_jobs: 0,
            drains: 0,
            evidence: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grade_is_read_as_it_was_written() {
        let node = NodeName::new("a").unwrap();
        for (grade, _) in GRADES {
            for ((repair, _), (next, _)) in REPAIRS.into_iter().cycle().zip(NEXTS) {
                let written = HealthSpec {
                    grade: GradeSpec::Broken,
                    reason: "Xid 79".to_owned(),
                    since: "2026-11-28T20:00:00.5Z".to_owned(),
                    repair: RepairSpec::None,
                    next: NextSpec::WhenQuiet,
                    automatic: true,
                };
                let line = Line { grade, repair, next, ..written.line(&node, Some(3)) };
                assert_eq!(HealthSpec::of(&line).unwrap().line(&node, Some(3)), line);
                assert_eq!(HealthSpec::of(&line).unwrap().closing(&node, None).is_some(), grade.is_closed());
            }
        }
        let ok = Line { grade: Grade::Ok, ..HealthSpec::line(&odd(), &node, None) };
        assert_eq!(HealthSpec::of(&ok), None);
        // Whatever somebody wrote is read.
        assert_eq!(odd().since(), Timestamp(0));
    }

    fn odd() -> HealthSpec {
        serde_json::from_value(serde_json::json!({ "grade": "Suspect", "since": "yesterday" })).unwrap()
    }
}
