//! Pods whose rules look at each other are decided one after another: those that ask alike stand in a line.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::Timestamp;

use crate::cluster::node_sets::Condition;
use crate::recognise::GangKey;

/// By what they ask.
#[derive(Default)]
pub(crate) struct SerialQueues(BTreeMap<Condition, Line>);

#[derive(Default)]
struct Line {
    /// The engine has it, and has not placed it.
    first: Option<GangKey>,
    /// The oldest goes first.
    waiting: BTreeSet<(Timestamp, GangKey)>,
}

impl SerialQueues {
    /// Whose turn it is, where it is not this one's; then it waits.
    pub(crate) fn stand(&mut self, line: &Condition, created: Timestamp, key: &GangKey) -> Option<GangKey> {
        let line = self.0.entry(line.clone()).or_default();
        match &line.first {
            Some(first) if first != key => {
                line.waiting.insert((created, key.clone()));
                Some(first.clone())
            }
            _ => {
                line.waiting.remove(&(created, key.clone()));
                line.first = Some(key.clone());
                None
            }
        }
    }

    /// It has a place, or wants none any more.
    pub(crate) fn leave(&mut self, line: &Condition, key: &GangKey) {
        let Some(of) = self.0.get_mut(line) else { return };
        if of.first.as_ref() == Some(key) {
            of.first = None;
        }
        if of.first.is_none() && of.waiting.is_empty() {
            self.0.remove(line);
        }
    }

    /// Somebody whose turn has come.
    pub(crate) fn next(&mut self) -> Option<GangKey> {
        let (condition, line) =
            self.0.iter_mut().find(|(_, line)| line.first.is_none() && !line.waiting.is_empty())?;
        let (_, key) = line.waiting.pop_first()?;
        let condition = condition.clone();
        if line.waiting.is_empty() {
            self.0.remove(&condition);
        }
        Some(key)
    }

    /// Who goes before one that stands in a line.
    pub(crate) fn before(&self, key: &GangKey) -> Option<&GangKey> {
        let stands = |line: &&Line| line.waiting.iter().any(|(_, waiting)| waiting == key);
        self.0.values().find(stands)?.first.as_ref()
    }

    /// Those that stand in a line behind its first.
    pub(crate) fn behind(&self, line: &Condition) -> impl Iterator<Item = &GangKey> {
        self.0.get(line).into_iter().flat_map(|line| line.waiting.iter().map(|(_, key)| key))
    }
}
