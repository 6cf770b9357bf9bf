//! Gangs leave hardware with their places made ready: the nodes on which a gang starts again are kept free from the moment
//! at which it is told to stop. And proactive migration: a gang on hardware that is closed to new gangs, but would let it stay,
//! moves right after a checkpoint, if that costs less than what it is likely to lose by staying.

use phalanx_model::{GangId, GangRecord, Leave, Migration, NodeName, Outcome, Phase, PreemptMode, show};

use super::Ledger;

impl Ledger {
    /// Moves gangs that saved their work in this step off degraded hardware, and keeps nodes for all gangs that this step
    /// stops for their hardware.
    pub(crate) fn migrate_all(&mut self, out: &mut Outcome) {
        let saved = std::mem::take(&mut self.saved);
        if self.sync.any() {
            return;
        }
        if let Some(migration) = self.queues.settings().migration {
            for gang in saved {
                if let Some(detail) = self.why_migrate(gang, migration) {
                    self.leave_now(gang, Leave { detail, until: None }, out);
                    // Before the next one looks for nodes.
                    self.keep_nodes_for_restart(gang);
                }
            }
        }
        for gang in std::mem::take(&mut self.to_keep) {
            self.keep_nodes_for_restart(gang);
        }
    }

    /// Why a gang that has just saved its work moves now; `None` if it stays.
    fn why_migrate(&self, id: GangId, migration: Migration) -> Option<String> {
        let (job, record) = (self.job(id.job)?, self.record(id)?);
        let Phase::Running { since } = record.phase else { return None };
        let may_move = job.policy.preempt.mode == PreemptMode::Requeue
            && !record.is_protected
            && record.resize.is_none()
            && record.leaves.is_none();
        let placement = record.placement.as_ref().filter(|_| may_move)?;
        let what = placement.slots.iter().find_map(|slot| {
            let (device, graded) = self.nodes.get(&slot.node)?.health.closing(slot.devices)?;
            let of = device.map_or_else(String::new, |device| format!("device {device} of "));
            Some(format!("{of}node {} is graded {}: {}", slot.node, graded.grade, graded.detail))
        })?;
        let left_ms = match self.likely_ms(job).map(|(ms, _)| ms).or(job.policy.time_limit_ms) {
            Some(whole_ms) => whole_ms.saturating_sub(self.now.since(since)),
            None => self.expected_ms(id),
        };
        let unsaved_ms = self.now.since(record.checkpointed_at.unwrap_or(since));
        let cost_ms = migration.cost_ms(unsaved_ms);
        let loss_ms = migration.loss_by_staying_ms(left_ms, record.saves_every_ms?);
        let is_made_ready = || self.repaired(id, placement).is_some_and(|to| to.victims.is_empty());
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

    /// Keeps the nodes that a gang is to have in place of those that it leaves, while it is being stopped.
    fn keep_nodes_for_restart(&mut self, id: GangId) {
        let stops = |record: &&GangRecord| matches!(&record.phase, Phase::Stopping { cause, .. } if cause.is_of_hardware());
        let before = self.record(id).filter(stops).and_then(|record| record.placement.as_ref());
        // Nodes that others have to leave first are spare nodes already.
        let to = before.and_then(|before| self.repaired(id, before)).filter(|to| to.victims.is_empty());
        self.keep_nodes(id, to.map_or_else(Vec::new, |to| to.moved_to));
    }

    /// Keeps these nodes for a gang, and no others.
    pub(super) fn keep_nodes(&mut self, id: GangId, nodes: Vec<NodeName>) {
        let Some(record) = self.record_mut(id) else { return };
        let before = std::mem::replace(&mut record.moves_to, nodes);
        let now = record.moves_to.clone();
        if before == now {
            return;
        }
        for node in &before {
            self.kept_nodes.remove(node);
        }
        self.kept_nodes.extend(now.iter().map(|node| (node.clone(), id)));
        self.note_kept(before.iter().chain(&now));
        // A gang that starts again at once ends no sooner than the next attempt does.
        self.note_end(id);
    }

    /// Notes the nodes that are kept for a gang that was observed.
    pub(super) fn note_kept_nodes(&mut self, id: GangId) {
        let nodes = self.record(id).map_or_else(Vec::new, |record| record.moves_to.clone());
        self.kept_nodes.extend(nodes.iter().map(|node| (node.clone(), id)));
        self.note_kept(nodes.iter());
    }

    /// Whether a node is kept for a gang that is about to start there again.
    pub(super) fn is_kept_for_another(&self, node: &NodeName, id: GangId) -> bool {
        self.kept_nodes.get(node).is_some_and(|gang| *gang != id)
    }
}
