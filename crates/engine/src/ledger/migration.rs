//! Gangs leave hardware with their places made ready: the nodes on which a gang starts again are kept free from the moment
//! at which it is told to stop. And proactive migration: a gang on hardware that is closed to new gangs, but would let it stay,
//! moves right after a checkpoint, if that costs less than what it is likely to lose by staying.

use phalanx_model::{
    DeviceMask, FailureClass, GangId, MemberRecord, MemberState, Migration, NodeName, Outcome, Phase,
    PreemptMode, StopCause, StopStage, show,
};

use super::Ledger;
use super::health::graded_in_words;

impl Ledger {
    /// Moves gangs that saved their work in this step off degraded hardware.
    pub(crate) fn migrate_all(&mut self, out: &mut Outcome) {
        let saved = std::mem::take(&mut self.saved);
        let migration = self.queues.settings().migration.filter(|_| !self.sync.any());
        for (gang, migration) in saved.into_iter().filter_map(|gang| Some((gang, migration?))) {
            if let Some(detail) = self.why_migrate(gang, migration) {
                let cause = StopCause::Displaced { class: FailureClass::Node, detail, until: None };
                self.stop_saved(gang, cause, out);
                // Before the next one looks for nodes.
                self.keep_nodes_for_stops();
            }
        }
    }

    /// Keeps nodes for all gangs that were told to stop for their hardware since the last call. No gang is left over for the
    /// next step, in which an engine that was rebuilt meanwhile would not know of it.
    pub(super) fn keep_nodes_for_stops(&mut self) {
        let stopped = std::mem::take(&mut self.to_keep);
        if self.sync.any() {
            return;
        }
        let mut vacant = None;
        for gang in stopped {
            if self.restarts(gang) {
                let vacant = vacant.get_or_insert_with(|| self.vacant_nodes());
                self.keep_nodes_for_restart(gang, vacant);
            } else {
                self.release_nodes(gang);
            }
        }
    }

    /// Why a gang that has just saved its work moves now; `None` if it stays.
    fn why_migrate(&self, id: GangId, migration: Migration) -> Option<String> {
        let (job, record) = (self.job(id.job)?, self.record(id)?);
        let Phase::Running { since } = record.phase else { return None };
        let is_exited = |member: &MemberRecord| matches!(member.state, MemberState::Exited(_));
        let may_move = job.policy.preempt.mode == PreemptMode::Requeue
            && !record.is_protected
            && !record.members.iter().any(is_exited)
            && record.resize.is_none()
            && record.leaves.is_none();
        let placement = record.placement.as_ref().filter(|_| may_move)?;
        let what = placement.slots.iter().find_map(|slot| {
            let (device, graded) = self.nodes.get(&slot.node)?.health.closing(slot.devices)?;
            let devices = device.map_or(DeviceMask::EMPTY, DeviceMask::one);
            Some(graded_in_words(&slot.node, devices, graded.grade, &graded.detail))
        })?;
        let ran_ms = self.now.since(since);
        let likely_ms = self.likely_ms(job).map(|(ms, _)| ms).filter(|ms| *ms > ran_ms);
        let left_ms = match likely_ms.or(job.policy.time_limit_ms) {
            Some(whole_ms) => whole_ms.saturating_sub(ran_ms),
            None => self.expected_ms(id),
        };
        let unsaved_ms = self.now.since(record.checkpointed_at.unwrap_or(since));
        let cost_ms = migration.cost_ms(unsaved_ms);
        let loss_ms = migration.loss_by_staying_ms(left_ms, record.saves_every_ms?);
        let to = || self.repaired(id, placement, &self.vacant_nodes());
        let is_made_ready = || to().is_some_and(|to| to.victims.is_empty());
        if !(migration.is_unconditional || loss_ms > cost_ms) || !is_made_ready() {
            return None;
        }
        let (cost, loss) = (show::span(cost_ms), show::span(loss_ms));
        Some(match migration.is_unconditional {
            true => format!("{what}; moves after a checkpoint"),
            false => format!(
                "{what}; moves after a checkpoint: a restart costs {cost}, and staying {loss} on average"
            ),
        })
    }

    /// Whether a gang is being stopped for its hardware, and starts again as soon as it has stopped.
    fn restarts(&self, id: GangId) -> bool {
        let Some((job, record)) = self.job(id.job).zip(self.record(id)) else { return false };
        job.turn.held_by.is_none()
            && match &record.phase {
                Phase::Stopping { stage: StopStage::Lingering, .. } => false,
                Phase::Stopping { cause: StopCause::Failure { class: FailureClass::Node, .. }, .. } => {
                    self.retries(record, FailureClass::Node)
                }
                Phase::Stopping { cause, .. } => cause.is_of_hardware(),
                _ => false,
            }
    }

    /// Keeps the nodes that a gang is to have in place of those that it leaves, while it is being stopped.
    fn keep_nodes_for_restart(&mut self, id: GangId, vacant: &[u32]) {
        let before = self.record(id).and_then(|record| record.placement.as_ref());
        // Nodes that others have to leave first are spare nodes already.
        let to =
            before.and_then(|before| self.repaired(id, before, vacant)).filter(|to| to.victims.is_empty());
        self.keep_nodes(id, to.map_or_else(Vec::new, |to| to.moved_to));
    }

    /// Lets other gangs have the nodes that are kept for a gang.
    pub(super) fn release_nodes(&mut self, id: GangId) {
        self.keep_nodes(id, Vec::new());
    }

    /// Keeps these nodes for a gang, and no others.
    fn keep_nodes(&mut self, id: GangId, nodes: Vec<NodeName>) {
        let Some(record) = self.record_mut(id) else { return };
        let before = std::mem::replace(&mut record.moves_to, nodes);
        let now = record.moves_to.clone();
        if before == now {
            return;
        }
        for node in &before {
            if self.kept_nodes.get(node) == Some(&id) {
                self.kept_nodes.remove(node);
            }
        }
        self.kept_nodes.extend(now.iter().map(|node| (node.clone(), id)));
        self.note_kept(before.iter().chain(&now));
        // A gang that starts again at once ends no sooner than the next attempt does.
        self.note_end(id);
    }

    /// Notes the nodes that are kept for a gang that was observed, unless it does not stop, or another gang has one of them.
    pub(super) fn note_kept_nodes(&mut self, id: GangId) {
        let Some(record) = self.record_mut(id).filter(|record| !record.moves_to.is_empty()) else { return };
        let moves = matches!(record.phase, Phase::Stopping { .. }) || record.was_on.is_some();
        let nodes = std::mem::take(&mut record.moves_to);
        if moves && !nodes.iter().any(|node| self.kept_nodes.contains_key(node)) {
            self.keep_nodes(id, nodes);
        }
    }

    /// A node changed: if it is kept for a gang, the gang may need another one.
    pub(super) fn check_kept(&mut self, node: &NodeName) {
        self.to_keep.extend(self.kept_nodes.get(node));
    }

    /// Whether a node is kept for a gang that is about to start there again.
    pub(super) fn is_kept_for_another(&self, node: &NodeName, id: GangId) -> bool {
        self.kept_nodes.get(node).is_some_and(|gang| *gang != id)
    }
}
