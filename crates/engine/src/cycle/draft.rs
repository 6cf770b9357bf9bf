//! The draft: the state on which one scheduling cycle works. It holds the free capacity, the queues, the pending gangs
//! and the reservations, and undoes each trial.

use std::borrow::Cow;

use phalanx_model::Gang;

use super::reservation::Reservations;
use crate::cluster::{Pick, Space, Tree};
use crate::placement::Search;
use crate::queueing::{PendingQueue, Queues};

/// Nodes where capacity became free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    Nodes(Vec<u32>),
    /// Any node.
    All,
}

impl Default for Freed {
    fn default() -> Self {
        Self::Nodes(Vec::new())
    }
}

impl Freed {
    /// Whether no capacity became free.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nodes(nodes) if nodes.is_empty())
    }

    pub(crate) fn add(&mut self, more: impl Iterator<Item = u32>) {
        if let Self::Nodes(nodes) = self {
            nodes.extend(more);
        }
    }
}

/// The state that a cycle reads and changes.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) search: Search,
    pub(crate) space: Space,
    pub(crate) queues: Queues,
    pub(crate) pending: PendingQueue,
    pub(crate) reservations: Reservations,
    pub(crate) freed: Freed,
}

/// A what-if on free capacity: gangs take or release capacity, and [`Trial::roll_back`] undoes all of it, or
/// [`Trial::back_to`] undoes it back to an earlier [`Trial::mark`]. The next question never sees what a trial changed.
#[derive(Debug)]
#[must_use = "a trial ends with a roll-back"]
pub(super) struct Trial<'g> {
    steps: Vec<Step<'g>>,
}

#[derive(Debug)]
struct Step<'g> {
    picks: Vec<Pick>,
    gang: Cow<'g, Gang>,
    is_taken: bool,
}

/// The number of changes of a trial that were done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(usize);

impl Mark {
    /// The mark before any change.
    pub(super) const START: Self = Self(0);
}

impl<'g> Trial<'g> {
    pub(super) const fn new() -> Self {
        Self { steps: Vec::new() }
    }

    pub(super) const fn mark(&self) -> Mark {
        Mark(self.steps.len())
    }

    /// Frees these devices, as if the gang had released them.
    pub(super) fn give_back(&mut self, tree: &Tree, space: &mut Space, picks: &[Pick], gang: Cow<'g, Gang>) {
        space.give_back(tree, picks, &gang);
        self.steps.push(Step { picks: picks.to_vec(), gang, is_taken: false });
    }

    pub(super) fn back_to(&mut self, tree: &Tree, space: &mut Space, mark: Mark) {
        while self.steps.len() > mark.0 {
            let Some(Step { picks, gang, is_taken }) = self.steps.pop() else { return };
            if is_taken {
                space.give_back(tree, &picks, &gang);
            } else {
                space.take(tree, &picks, &gang);
            }
        }
    }

    pub(super) fn roll_back(mut self, tree: &Tree, space: &mut Space) {
        self.back_to(tree, space, Mark::START);
    }
}
