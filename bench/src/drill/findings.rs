//! What a drill does and finds out about one fault.

use super::record::{Check, Note, Quote, Record};

/// Expectations, and what was found of them; notes of the drill, and words of Phalanx. Times are milliseconds since 1970.
pub(super) struct Findings {
    expects: Vec<&'static str>,
    checks: Vec<Option<Check>>,
    notes: Vec<(u64, String)>,
    quotes: Vec<(String, Option<u64>, String)>,
    injected: String,
    pub(super) fault_ms: Option<u64>,
    /// The last step that was completed when the fault was injected.
    pub(super) at_fault: u64,
    pub(super) noticed_ms: Option<u64>,
}

impl Findings {
    /// Those of a fault, and then those of every fault.
    pub(super) fn new(expects: &[&'static str], always: &[&'static str]) -> Self {
        let expects: Vec<&str> = expects.iter().chain(always).copied().collect();
        Self {
            checks: vec![None; expects.len()],
            expects,
            notes: Vec::new(),
            quotes: Vec::new(),
            injected: String::new(),
            fault_ms: None,
            at_fault: 0,
            noticed_ms: None,
        }
    }

    /// The number of an expectation.
    pub(super) fn number(&self, expected: &str) -> Option<usize> {
        self.expects.iter().position(|one| *one == expected)
    }

    /// The fault itself comes now, after this step.
    pub(super) fn inject(&mut self, now_ms: u64, step: u64, what: String) {
        (self.fault_ms, self.at_fault) = (Some(now_ms), step);
        self.injected.clone_from(&what);
        self.note(now_ms, what);
    }

    /// The drill did something.
    pub(super) fn note(&mut self, now_ms: u64, what: impl Into<String>) {
        self.notes.push((now_ms, what.into()));
    }

    /// Phalanx noticed the fault at this time; the first time counts.
    pub(super) fn noticed(&mut self, at_ms: u64) {
        self.noticed_ms.get_or_insert(at_ms);
    }

    pub(super) fn quote(&mut self, from: impl Into<String>, at_ms: Option<u64>, text: impl Into<String>) {
        self.quotes.push((from.into(), at_ms, text.into()));
    }

    /// What was found of an expectation, by its number.
    pub(super) fn check(&mut self, number: usize, holds: bool, found: impl Into<String>) {
        let (Some(slot), Some(expected)) = (self.checks.get_mut(number), self.expects.get(number)) else {
            return;
        };
        *slot = Some(Check { expected: (*expected).to_owned(), holds, found: found.into() });
    }

    /// Whether something was found of the last expectation.
    pub(super) fn are_finished(&self) -> bool {
        self.checks.last().is_some_and(Option::is_some)
    }

    /// A time after the fault.
    pub(super) fn after(&self, at: u64) -> Option<i64> {
        let ms = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        self.fault_ms.map(|fault| ms(at) - ms(fault))
    }

    /// Puts all of it into the record of the fault.
    pub(super) fn fill(&self, record: &mut Record) {
        let checks = self.checks.iter().zip(&self.expects).map(|(check, expected)| {
            let missing =
                || Check { expected: (*expected).to_owned(), holds: false, found: "not reached".to_owned() };
            check.clone().unwrap_or_else(missing)
        });
        record.checks = checks.collect();
        let notes = self.notes.iter();
        record.done = notes.map(|(at, what)| Note { at_ms: self.after(*at), what: what.clone() }).collect();
        let quotes = self.quotes.iter().map(|(from, at, text)| Quote {
            from: from.clone(),
            at_ms: at.and_then(|at| self.after(at)),
            text: text.clone(),
        });
        record.noticed = quotes.collect();
        record.noticed.sort_by_key(|quote| quote.at_ms);
        record.injected.clone_from(&self.injected);
        record.fault_ms = self.fault_ms;
    }
}
