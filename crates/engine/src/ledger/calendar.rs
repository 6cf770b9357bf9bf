//! The calendar: windows in which nodes are not available or are kept for a queue, and nodes that will be reclaimed.
//!
//! A window bars a gang from its node even before the window begins: a gang that ends before the window begins may use
//! the node, any other gang may not. Windows that keep a node for a queue do not bar the gangs of that queue.

use std::collections::BTreeSet;

use phalanx_model::later::{Calendar, SpotNotice};
use phalanx_model::{Admin, GangId, Input, Job, Leave, NodeName, Outcome, Phase, Reason, Timestamp};

use super::apply::refuse;
use super::{Ledger, known_end};
use crate::cluster::Space;
use crate::cycle::{Closed, Stay};
use crate::queueing::longest_ms;

/// Guards the memory: more windows than this are refused.
const WINDOWS_MAX: usize = 100_000;

impl Ledger {
    pub(super) fn observe_window(&mut self, window: &Calendar, out: &mut Outcome) {
        let Calendar { node, begins_at, ends_at, .. } = window;
        let key = (node.clone(), *begins_at);
        if ends_at < begins_at {
            return refuse(out, format!("a window of node {node}"), "ends before it begins");
        }
        let is_over = ends_at == begins_at || *ends_at <= self.now;
        if !is_over && self.windows.reported.len() >= WINDOWS_MAX && !self.windows.reported.contains_key(&key)
        {
            let why = format!("more than {WINDOWS_MAX} windows");
            return refuse(out, format!("a window of node {node}"), &why);
        }
        let changes = if is_over { self.windows.forget(&key).is_some() } else { self.windows.insert(window) };
        self.replan |= changes;
    }

    /// A node takes work again: an open-ended closure is over.
    pub(super) fn open_again(&mut self, node: &NodeName) {
        let open: Vec<Timestamp> =
            self.windows.of(node).filter(|w| w.is_open_ended()).map(|w| w.begins_at).collect();
        for begins_at in open {
            self.replan |= self.windows.forget(&(node.clone(), begins_at)).is_some();
        }
    }

    /// Brings windows up to date after they or the tree changed: sets the times at which affected gangs have to leave.
    pub(super) fn freshen_windows(&mut self) {
        if !self.windows.is_stale {
            return;
        }
        // Gangs that windows distinguish are in different request classes.
        self.stale_queues |= self.windows.index(&self.tree);
        self.freed = super::Freed::All;
        let holding: Vec<GangId> = self
            .active()
            .filter(|(_, _, record)| record.holds_capacity())
            .map(|(_, _, record)| record.id)
            .collect();
        holding.into_iter().for_each(|gang| self.retime(gang));
    }

    /// Forgets windows that are over: they bar no gang.
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

    /// The first window that a gang collides with, and when the gang must be asked to leave, so that it is gone when
    /// the window begins.
    fn in_the_way(&self, gang: GangId) -> Option<(Timestamp, &Calendar)> {
        if self.windows.reported.is_empty() {
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
        // Leaves time for another replica to start in place of this one.
        let is_early = record.leaves.is_none() && self.may_be_replaced(gang);
        let early_ms = if is_early { job.policy.start_deadline_ms } else { 0 };
        let at = self.stops_for(gang, first.begins_at).0.saturating_sub(early_ms);
        Some((Timestamp(at), first))
    }

    /// When a gang must be asked to leave: for a window, or because it leaves whether or not another replica runs in
    /// its place.
    pub(super) fn leaves_at(&self, gang: GangId) -> Option<Timestamp> {
        let goes_at = self.goes_at(gang);
        self.in_the_way(gang).map(|(at, _)| at).into_iter().chain(goes_at).min()
    }

    fn goes_at(&self, gang: GangId) -> Option<Timestamp> {
        let until = self.record(gang)?.leaves.as_ref()?.until?;
        Some(self.stops_for(gang, until))
    }

    /// Tells a gang to leave if it is time. Returns whether it was.
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
        // If the window began before it was reported, the gang gets no more than its grace.
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

    /// The free capacity for a gang that starts now, including what is reserved for pending gangs.
    pub(crate) fn space_for(&self, gang: GangId) -> Space {
        let mut space = self.open_space();
        self.if_started_now(gang, |stay| {
            Closed::default().lay(&self.windows, &self.tree, &mut space, stay);
        });
        space
    }

    /// The windows that bar a gang from some nodes if it starts now.
    pub(crate) fn window_of(&self, gang: GangId) -> Option<Reason> {
        self.if_started_now(gang, |stay| self.windows.reason(stay))?
    }

    /// Whether windows bar a gang from a node if it starts now.
    pub(super) fn is_barred_by_window(&self, gang: GangId, node: u32) -> bool {
        !self.windows.is_clear(None)
            && self.if_started_now(gang, |stay| self.windows.bars(stay, &[node])) == Some(true)
    }

    fn if_started_now<T>(&self, gang: GangId, then: impl FnOnce(&Stay<'_>) -> T) -> Option<T> {
        let job = self.job(gang.job)?;
        let blocks = self.windows.blocks_of(&self.queues, &job.queue);
        let until = longest_ms(&job.policy).map(|span| self.now.plus(span));
        let is_fixed = self.queues.is_fixed(job, gang);
        Some(then(&Stay { from: self.now, until, blocks: &blocks, is_fixed }))
    }

    /// Records that a node will be reclaimed.
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
            None,
            &format!("node {node} is being reclaimed by its provider"),
            Some(*ends_at),
            out,
        );
    }
}

/// The longest time from telling a gang to leave until the last process is gone.
pub(super) fn stop_ms(job: &Job) -> u64 {
    let stop = job.policy.stop;
    stop.grace_ms.saturating_add(stop.advisory.map_or(0, |advice| advice.lead_ms))
}
