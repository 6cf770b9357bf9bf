//! The calendar: windows in which nodes are not available or are kept for a queue, and nodes that will be taken back.
//!
//! A window bars a gang from its node from the beginning: whoever has ended when it begins may use the node, nobody else
//! may. Gangs of the queue that a node is kept for do not see its windows.

use std::collections::BTreeSet;

use phalanx_model::later::{Calendar, SpotNotice};
use phalanx_model::{Admin, GangId, Input, Job, Leave, NodeName, Outcome, Phase, Reason, Timestamp};

use super::apply::refuse;
use super::{Ledger, known_end};
use crate::cluster::Space;
use crate::cycle::{Closed, Stay};
use crate::queueing::longest_ms;

/// Guards the memory: more than this is refused.
const WINDOWS_MAX: usize = 100_000;

impl Ledger {
    pub(super) fn observe_window(&mut self, window: &Calendar, out: &mut Outcome) {
        let Calendar { node, begins_at, ends_at, .. } = window;
        let key = (node.clone(), *begins_at);
        if ends_at < begins_at {
            return refuse(out, format!("a window of node {node}"), "ends before it begins");
        }
        let is_over = ends_at == begins_at || *ends_at <= self.now;
        if !is_over && self.windows.told.len() >= WINDOWS_MAX && !self.windows.told.contains_key(&key) {
            let why = format!("more than {WINDOWS_MAX} windows");
            return refuse(out, format!("a window of node {node}"), &why);
        }
        let changes = if is_over { self.windows.forget(&key).is_some() } else { self.windows.tell(window) };
        self.replan |= changes;
    }

    /// A node takes work again: what closed it until somebody says so is over.
    pub(super) fn open_again(&mut self, node: &NodeName) {
        let open: Vec<Timestamp> =
            self.windows.of(node).filter(|w| w.is_open_ended()).map(|w| w.begins_at).collect();
        for begins_at in open {
            self.replan |= self.windows.forget(&(node.clone(), begins_at)).is_some();
        }
    }

    /// Windows or the tree changed: who is affected is told when it has to go.
    pub(super) fn freshen_windows(&mut self) {
        if !self.windows.is_stale {
            return;
        }
        // Gangs that windows tell apart wait in lines of their own.
        self.stale_queues |= self.windows.index(&self.tree);
        self.freed = super::Freed::All;
        let holding: Vec<GangId> = self
            .active()
            .filter(|(_, _, record)| record.holds_capacity())
            .map(|(_, _, record)| record.id)
            .collect();
        holding.into_iter().for_each(|gang| self.retime(gang));
    }

    /// Windows that are over bar nobody.
    pub(super) fn end_windows(&mut self) {
        let mut is_over = false;
        while let Some((_, node, begins_at)) = self.windows.ends.first().filter(|(at, _, _)| *at <= self.now)
        {
            let key = (node.clone(), *begins_at);
            self.windows.forget(&key);
            is_over = true;
        }
        if is_over {
            self.freshen_windows();
            self.freshen();
            self.replan = true;
        }
    }

    /// The first window that a gang is in the way of, and when it has to be told to go, so that it is gone when that
    /// begins.
    fn in_the_way(&self, gang: GangId) -> Option<(Timestamp, &Calendar)> {
        if self.windows.told.is_empty() {
            return None;
        }
        let (job, record) = (self.job(gang.job)?, self.record(gang)?);
        if !matches!(record.phase, Phase::Starting { .. } | Phase::Running { .. }) {
            return None;
        }
        let ends_at = known_end(job, record);
        let blocks = self.windows.blocks_of(&self.queues, &job.queue);
        let slots = record.placement.iter().flat_map(|placement| &placement.slots);
        let nodes: BTreeSet<&NodeName> = slots.map(|slot| &slot.node).collect();
        let is_met = |window: &&Calendar| {
            let is_ours = window.held_for.as_ref().is_some_and(|queue| blocks.contains(queue));
            window.ends_at > self.now && !is_ours && ends_at.is_none_or(|end| end > window.begins_at)
        };
        let met = nodes.into_iter().flat_map(|node| self.windows.of(node)).filter(is_met);
        let first = met.min_by_key(|window| window.begins_at)?;
        // Time for another to start in its stead.
        let is_early = record.leaves.is_none() && self.may_be_replaced(gang);
        let early_ms = if is_early { job.policy.start_deadline_ms } else { 0 };
        let at = self.stops_for(gang, first.begins_at).0.saturating_sub(early_ms);
        Some((Timestamp(at), first))
    }

    /// When a gang has to be told to go: for a window, or because it leaves whether or not another runs in its stead.
    pub(super) fn leaves_at(&self, gang: GangId) -> Option<Timestamp> {
        let goes_at = self.goes_at(gang);
        self.in_the_way(gang).map(|(at, _)| at).into_iter().chain(goes_at).min()
    }

    fn goes_at(&self, gang: GangId) -> Option<Timestamp> {
        let until = self.record(gang)?.leaves.as_ref()?.until?;
        Some(self.stops_for(gang, until))
    }

    /// Tells a gang to go if it is time. Whether it was.
    pub(super) fn leave(&mut self, gang: GangId, out: &mut Outcome) -> bool {
        let leaves = self.record(gang).and_then(|record| record.leaves.clone());
        if let Some(leave) = leaves.clone().filter(|_| self.goes_at(gang).is_some_and(|at| at <= self.now)) {
            self.leave_now(gang, leave, out);
            return true;
        }
        let Some((_, window)) = self.in_the_way(gang).filter(|(at, _)| *at <= self.now) else { return false };
        let detail = match &window.held_for {
            None => format!("a maintenance window of node {} begins", window.node),
            Some(queue) => format!("node {} is reserved for queue {queue}", window.node),
        };
        // One that began before it was told of is not worth more than the grace.
        let until = Some(window.begins_at).filter(|at| *at > self.now);
        let is_time = leaves.is_some() || self.stops_for(gang, window.begins_at) <= self.now;
        let leave = Leave { detail, until };
        if is_time {
            self.leave_now(gang, leave, out)
        } else {
            self.displace(gang, leave, out)
        }
        true
    }

    /// What is free for a gang that starts now, what is held for gangs that wait included.
    pub(crate) fn space_for(&self, gang: GangId) -> Space {
        let mut space = self.open_space();
        self.if_started_now(gang, |stay| {
            Closed::default().lay(&self.windows, &self.tree, &mut space, stay);
        });
        space
    }

    /// The windows that bar a gang which starts now from some nodes.
    pub(crate) fn window_of(&self, gang: GangId) -> Option<Reason> {
        self.if_started_now(gang, |stay| self.windows.reason(stay))?
    }

    fn if_started_now<T>(&self, gang: GangId, then: impl FnOnce(&Stay<'_>) -> T) -> Option<T> {
        let job = self.job(gang.job)?;
        let blocks = self.windows.blocks_of(&self.queues, &job.queue);
        let until = longest_ms(&job.policy).map(|span| self.now.plus(span));
        let is_fixed = self.queues.is_fixed(job, gang);
        Some(then(&Stay { from: self.now, until, blocks: &blocks, is_fixed }))
    }

    /// A node will be taken back.
    pub(super) fn notice_spot(&mut self, notice: &SpotNotice, out: &mut Outcome) {
        let SpotNotice { node, ends_at } = notice;
        if !self.nodes.contains_key(node) {
            return refuse(out, format!("node {node}"), "no such node");
        }
        if let Err(why) = self.noted.note(&Input::SpotNoticed { notice: notice.clone() }) {
            return refuse(out, format!("node {node}"), &why);
        }
        self.set_admin(node, Admin::Draining, out);
        self.displace_from(
            node,
            &format!("node {node} is being reclaimed by its provider"),
            Some(*ends_at),
            out,
        );
    }
}

/// From the word to go until the last process is gone, at the longest.
pub(super) fn stop_ms(job: &Job) -> u64 {
    let stop = job.policy.stop;
    stop.grace_ms.saturating_add(stop.advisory.map_or(0, |advice| advice.lead_ms))
}
