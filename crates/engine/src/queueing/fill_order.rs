//! The order in which one cycle considers the open request classes: always the first gang of all.
//!
//! Positions compare outermost queues first, and a start moves only the outermost queue that it charges. So the order
//! is kept by outermost queue: a start costs what is pending below one of them, and not what is pending anywhere.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::order::{Next, Step};
use super::pending::PendingQueue;
use super::queues::{QueueAt, Queues};
use super::request_class::RequestClassId;

/// The open request classes of one cycle, by outermost queue.
pub(crate) struct FillOrder {
    /// By index of the outermost queue; empty for the other queues.
    classes: Vec<Vec<RequestClassId>>,
    /// For each outermost queue, a position that none of its gangs goes before. Positions move only backwards in a
    /// cycle, so a position that was true stays a bound.
    bounds: BinaryHeap<Reverse<Step>>,
}

impl FillOrder {
    pub(crate) fn new(pending: &PendingQueue, queues: &Queues) -> Self {
        let mut classes: Vec<Vec<RequestClassId>> = vec![Vec::new(); queues.nodes.len()];
        for id in pending.ready() {
            pending.request(id).roomy_tops().for_each(|top| classes[top as usize].push(id));
        }
        // A gang of the highest of these classes that needs the least of each resource goes before all of them.
        let bound = |(top, of_top): (QueueAt, &Vec<RequestClassId>)| {
            let asked = || of_top.iter().map(|id| pending.request(*id));
            let rank = asked().map(|asked| asked.key.rank).max()?;
            let mut least = asked().next()?.least.clone();
            for asked in asked() {
                least.iter_mut().zip(&asked.least).for_each(|(least, amount)| *least = (*least).min(*amount));
            }
            Some(Reverse(queues.step(top, &least, rank)))
        };
        let bounds = (0..).zip(&classes).filter_map(bound).collect();
        Self { classes, bounds }
    }

    /// The first gang whose request class is open and whose queue has room for the class, as far as is known.
    pub(crate) fn first(&mut self, pending: &PendingQueue, queues: &Queues) -> Option<Next> {
        while let Some(Reverse(bound)) = self.bounds.pop() {
            let of_top = self.classes.get_mut(bound.queue as usize)?;
            of_top.retain(|id| pending.request(*id).is_open);
            let Some(next) = first_below(pending, queues, bound.queue, of_top) else { continue };
            let step = next.rank.outermost();
            self.bounds.push(Reverse(step));
            if self.bounds.peek() == Some(&Reverse(step)) {
                return Some(next);
            }
        }
        None
    }
}

/// The first gang of these request classes below an outermost queue.
fn first_below(
    pending: &PendingQueue,
    queues: &Queues,
    top: QueueAt,
    classes: &[RequestClassId],
) -> Option<Next> {
    let mut first: Option<Next> = None;
    for id in classes {
        let asked = pending.request(*id);
        let step = queues.step(top, &asked.least, asked.key.rank);
        if first.as_ref().is_some_and(|first| first.rank.outermost() < step) {
            continue;
        }
        for next in asked.roomy_below(top).filter_map(|queue| pending.next_of(queues, *id, queue)) {
            if first.as_ref().is_none_or(|first| next < *first) {
                first = Some(next);
            }
        }
    }
    first
}
