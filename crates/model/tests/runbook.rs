//! The run-book has a section for every word that a job, a node or an alert can show, and for no other.

use std::collections::BTreeSet;

use phalanx_model::{Ending, FailureClass, Grade, Reason};

const RUNBOOK: &str = include_str!("../../../docs/operate/runbook.md");
const ALERTS: &str = include_str!("../../../deploy/monitoring/alerts.yaml");
const REPORT: &str = include_str!("../src/report.rs");

#[test]
fn every_word_has_a_section() {
    let heading = |line: &'static str| line.strip_prefix("### `")?.strip_suffix('`');
    let sections: BTreeSet<&str> = RUNBOOK.lines().filter_map(heading).collect();
    let alerts = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let grades = Grade::ALL.into_iter().filter(|grade| *grade != Grade::Ok).map(Grade::word);
    let words: BTreeSet<&str> = Reason::WORDS
        .into_iter()
        .chain(Ending::WORDS)
        .chain(FailureClass::ALL.map(FailureClass::word))
        .chain(grades)
        .chain(["held"])
        .chain(alerts)
        .collect();
    let missing: Vec<&&str> = words.difference(&sections).collect();
    let unknown: Vec<&&str> = sections.difference(&words).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "without a section: {missing:?}; of nothing: {unknown:?}"
    );
}

/// What `Reason::word` gives, in its source: a word that is not listed would have no section.
#[test]
fn every_word_of_a_reason_is_listed() {
    let body = REPORT.split("pub const fn word").nth(1).unwrap().split("impl fmt::Display").next().unwrap();
    let words: BTreeSet<&str> =
        body.lines().filter_map(|line| line.split("=> \"").nth(1)?.split('"').next()).collect();
    assert_eq!(words, BTreeSet::from(Reason::WORDS));
}
