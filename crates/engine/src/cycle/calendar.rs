//! Windows of the calendar, in which nodes are not available or are kept for a queue, and the nodes that they close to
//! a gang.
//!
//! A window bars a gang from its node even before the window begins: a gang that ends before the window begins may use
//! the node, any other gang may not. Windows that keep a node for a queue do not bar the gangs of that queue.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::later::Calendar;
use phalanx_model::{Input, NodeName, QueueBound, QueueLimit, QueueName, Reason, Timestamp};

use crate::cluster::{Free, Space, Tree};
use crate::queueing::Queues;

/// A window of a node that is in the tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Window {
    begins_at: Timestamp,
    ends_at: Timestamp,
    /// The index of the node in the tree.
    node: u32,
    kept_for: Option<QueueName>,
}

impl Window {
    fn bars(&self, stay: &Stay<'_>) -> bool {
        let is_inside = self.ends_at > stay.from && stay.until.is_none_or(|until| self.begins_at < until);
        is_inside && !self.kept_for.as_ref().is_some_and(|queue| stay.blocks.contains(queue))
    }
}

/// The time for which a gang would hold capacity, and the queues that the gang belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay<'a> {
    pub(crate) from: Timestamp,
    /// `None` if the end of the gang is not known.
    pub(crate) until: Option<Timestamp>,
    /// The queues, from the queue of the gang up, that nodes are kept for, see [`Windows::blocks_of`].
    pub(crate) blocks: &'a [QueueName],
    /// The gang cannot be preempted.
    pub(crate) is_fixed: bool,
}

/// The windows that were reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows {
    pub(crate) reported: BTreeMap<(NodeName, Timestamp), Calendar>,
    /// The same windows, by end.
    pub(crate) ends: BTreeSet<(Timestamp, NodeName, Timestamp)>,
    /// Queues that nodes are kept for.
    kept_for: BTreeSet<QueueName>,
    /// Windows of nodes that are in the tree, by begin.
    known: Vec<Window>,
    /// Nodes that are the place of a queue: gangs of other queues that cannot be preempted stay out of them.
    places: BTreeMap<u32, QueueName>,
    pub(crate) is_stale: bool,
}

impl Windows {
    /// Records a reported window. Returns whether it changes anything.
    pub(crate) fn insert(&mut self, window: &Calendar) -> bool {
        let key = (window.node.clone(), window.begins_at);
        if self.reported.get(&key) == Some(window) {
            return false;
        }
        self.forget(&key);
        self.ends.insert((window.ends_at, key.0.clone(), key.1));
        self.reported.insert(key, window.clone());
        self.is_stale = true;
        true
    }

    pub(crate) fn forget(&mut self, key: &(NodeName, Timestamp)) -> Option<Calendar> {
        let window = self.reported.remove(key)?;
        self.ends.remove(&(window.ends_at, key.0.clone(), key.1));
        self.is_stale = true;
        Some(window)
    }

    /// Finds the nodes of windows in a rebuilt tree. Returns whether the queues that nodes are kept for changed.
    pub(crate) fn index(&mut self, tree: &Tree) -> bool {
        let known = self.reported.values().filter_map(|window| {
            let node = u32::try_from(tree.index_of(&window.node)?).ok()?;
            let Calendar { begins_at, ends_at, held_for, .. } = window;
            Some(Window { begins_at: *begins_at, ends_at: *ends_at, node, kept_for: held_for.clone() })
        });
        self.known = known.collect();
        self.known.sort_unstable();
        let held_for = self.reported.values().filter_map(|window| window.held_for.clone());
        let kept_for = held_for.chain(self.places.values().cloned()).collect();
        self.is_stale = false;
        std::mem::replace(&mut self.kept_for, kept_for) != self.kept_for
    }

    pub(crate) fn keep_places(&mut self, places: BTreeMap<u32, QueueName>) {
        self.places = places;
        self.is_stale = true;
    }

    /// Nodes that are the places of other queues, if the gang cannot be preempted.
    fn places_barring<'a>(&'a self, stay: &'a Stay<'_>) -> impl Iterator<Item = (u32, &'a QueueName)> {
        let is_others = |(_, owner): &(&u32, &QueueName)| stay.is_fixed && !stay.blocks.contains(owner);
        self.places.iter().filter(is_others).map(|(node, owner)| (*node, owner))
    }

    /// The queues, from this queue up, that nodes are kept for: they make its gangs differ from the gangs of other
    /// queues.
    pub(crate) fn blocks_of(&self, queues: &Queues, queue: &QueueName) -> Vec<QueueName> {
        if self.kept_for.is_empty() {
            return Vec::new();
        }
        // A queue that is not configured is at the top of the tree.
        let mut blocks: Vec<QueueName> = self.kept_for.get(queue).into_iter().cloned().collect();
        let above = queues.find(queue).into_iter().flat_map(|at| queues.path(at).skip(1));
        let named = above.filter_map(|at| queues.at(at).queue.as_ref().map(|queue| &queue.name));
        blocks.extend(named.filter(|name| self.kept_for.contains(*name)).cloned());
        blocks
    }

    /// Windows that begin before a stay ends, found by their order and not one by one.
    fn begun_by(&self, until: Option<Timestamp>) -> &[Window] {
        let count =
            until.map_or(self.known.len(), |until| self.known.partition_point(|w| w.begins_at < until));
        self.known.get(..count).unwrap_or_default()
    }

    /// Whether no window begins before a time.
    pub(crate) fn is_clear(&self, until: Option<Timestamp>) -> bool {
        self.places.is_empty() && self.begun_by(until).is_empty()
    }

    /// Whether a window bars a stay from one of these nodes, given in order.
    pub(crate) fn bars(&self, stay: &Stay<'_>, nodes: &[u32]) -> bool {
        let is_there = |window: &&Window| nodes.binary_search(&window.node).is_ok();
        self.begun_by(stay.until).iter().filter(is_there).any(|window| window.bars(stay))
            || self.places_barring(stay).any(|(node, _)| nodes.binary_search(&node).is_ok())
    }

    /// The windows that bar a stay.
    pub(crate) fn reason(&self, stay: &Stay<'_>) -> Option<Reason> {
        let barring = || self.begun_by(stay.until).iter().filter(|window| window.bars(stay));
        if barring().next().is_none() {
            let (_, queue) = self.places_barring(stay).next()?;
            let nodes = self.places_barring(stay).filter(|(_, owner)| *owner == queue).count() as u64;
            let bound = QueueBound::Place;
            return Some(Reason::QueueLimit(QueueLimit {
                queue: queue.clone(),
                bound,
                used: 0,
                asked: 0,
                most: nodes,
            }));
        }
        let (begins_at, ends_at) =
            (barring().map(|w| w.begins_at).min()?, barring().map(|w| w.ends_at).min()?);
        let nodes: BTreeSet<u32> = barring().map(|window| window.node).collect();
        Some(Reason::Window { nodes: u32::try_from(nodes.len()).unwrap_or(u32::MAX), begins_at, ends_at })
    }

    /// The ends of windows that are not over and have an end.
    pub(crate) fn ends(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> + '_ {
        let ends = self.known.iter().map(|window| window.ends_at);
        ends.filter(move |at| *at > now && *at < Timestamp::MAX)
    }

    pub(crate) fn first_end(&self) -> Option<Timestamp> {
        self.ends.first().map(|(at, _, _)| *at).filter(|at| *at < Timestamp::MAX)
    }

    /// The reported windows, by node and begin.
    pub(crate) fn reported(&self) -> impl Iterator<Item = &Calendar> {
        self.reported.values()
    }

    /// Marks the indices as stale after the tree was rebuilt.
    pub(crate) fn mark_stale_if_any(&mut self) {
        self.is_stale |= !self.reported.is_empty() || !self.places.is_empty();
    }

    pub(crate) fn facts(&self) -> impl Iterator<Item = Input> {
        self.reported().map(|window| Input::CalendarObserved { calendar: window.clone() })
    }

    /// The windows of a node.
    pub(crate) fn of(&self, node: &NodeName) -> impl Iterator<Item = &Calendar> {
        let all = (node.clone(), Timestamp(0))..=(node.clone(), Timestamp::MAX);
        self.reported.range(all).map(|(_, window)| window)
    }
}

/// Nodes that windows close to the gang that is being placed. Between scheduling cycles no node is closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closed {
    nodes: Vec<u32>,
    /// The windows and the stay that the nodes are closed for, so that a next gang with an equal stay costs nothing.
    of: Option<(usize, Timestamp, Vec<QueueName>, bool)>,
    wanted: Vec<u32>,
}

impl Closed {
    pub(crate) const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Closes the nodes from which windows bar a stay, and opens the others.
    pub(crate) fn lay(&mut self, windows: &Windows, tree: &Tree, space: &mut Space, stay: &Stay<'_>) {
        let before_end = windows.begun_by(stay.until);
        let is_same = |(count, from, blocks, is_fixed): &(usize, Timestamp, Vec<QueueName>, bool)| {
            (*count, *from, blocks.as_slice(), *is_fixed)
                == (before_end.len(), stay.from, stay.blocks, stay.is_fixed)
        };
        let is_clear = before_end.is_empty() && windows.places.is_empty();
        if is_clear && self.nodes.is_empty() || self.of.as_ref().is_some_and(is_same) {
            return;
        }
        self.of = Some((before_end.len(), stay.from, stay.blocks.to_vec(), stay.is_fixed));
        let mut wanted = std::mem::take(&mut self.wanted);
        wanted.clear();
        wanted.extend(before_end.iter().filter(|window| window.bars(stay)).map(|window| window.node));
        wanted.extend(windows.places_barring(stay).map(|(node, _)| node));
        wanted.sort_unstable();
        wanted.dedup();
        let again = self.nodes.iter().filter(|node| wanted.binary_search(node).is_err());
        open(tree, space, again.copied());
        let closing = wanted.iter().filter(|node| self.nodes.binary_search(node).is_err());
        space.put(tree, closing.copied(), |_, free| Free { open: false, ..free });
        self.wanted = std::mem::replace(&mut self.nodes, wanted);
    }

    /// Opens all closed nodes.
    pub(crate) fn lift(&mut self, tree: &Tree, space: &mut Space) {
        self.of = None;
        open(tree, space, self.nodes.drain(..));
    }
}

fn open(tree: &Tree, space: &mut Space, nodes: impl Iterator<Item = u32>) {
    let was = |node: u32| tree.nodes.get(node as usize).is_some_and(|node| node.total.open);
    space.put(tree, nodes, |node, free| Free { open: was(node), ..free });
}
