//! Shortens a failing case to one that fails in the same way.

use super::case::{Case, Operation};
use crate::Faults;

/// The most cases that are tried.
const TRIES_MAX: usize = 4_000;

/// Leaves out faults and operations for as long as the case `fails` without them: halves, quarters, and at last each
/// alone (Zeller, Hildebrandt: Simplifying and isolating failure-inducing input, 2002).
#[must_use]
pub fn shrink(case: &Case, fails: impl FnMut(&Case) -> bool) -> Case {
    let mut shrinking = Shrinking { best: case.clone(), fails, tries: 0 };
    shrinking.without_faults();
    shrinking.without_operations();
    shrinking.without_faults();
    shrinking.best
}

struct Shrinking<F> {
    best: Case,
    fails: F,
    tries: usize,
}

impl<F: FnMut(&Case) -> bool> Shrinking<F> {
    /// Whether a shorter case still fails; it is then the best case.
    fn accept(&mut self, case: Case) -> bool {
        self.tries += 1;
        let is_good = self.tries <= TRIES_MAX && (self.fails)(&case);
        if is_good {
            self.best = case;
        }
        is_good
    }

    fn without_faults(&mut self) {
        let with = |case: &Case, faults| {
            let mut case = case.clone();
            case.conditions.faults = faults;
            case
        };
        let faults = self.best.conditions.faults;
        if faults == Faults::none() || self.accept(with(&self.best, Faults::none())) {
            return;
        }
        while self.best.conditions.faults.fewer().any(|fewer| self.accept(with(&self.best, fewer))) {}
    }

    fn without_operations(&mut self) {
        let mut part = self.best.operations.len().div_ceil(2);
        while part > 0 && self.tries < TRIES_MAX {
            let mut at = 0;
            let mut is_shorter = false;
            while at < self.best.operations.len() {
                let left: Vec<Operation> = {
                    let all = self.best.operations.iter().enumerate();
                    all.filter(|(index, _)| !(at..at + part).contains(index))
                        .map(|(_, one)| one.clone())
                        .collect()
                };
                let conditions = self.best.conditions.clone();
                if self.accept(Case { conditions, operations: left }) {
                    is_shorter = true;
                } else {
                    at += part;
                }
            }
            // Each alone, as long as that helps: the remnant of one operation may be what kept another.
            part = if part > 1 { part.div_ceil(2) } else { usize::from(is_shorter) };
        }
    }
}
