//! Observation after a restart: mark and sweep, kind by kind. There is no other load path.

use std::collections::BTreeSet;

use phalanx_model::{
    Exit, FailureClass, GangId, JobId, MemberId, MemberState, NodeName, Order, Outcome, Phase, QueueName,
    SyncKind,
};

use super::Ledger;

/// The objects that the lists in progress have not named yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sync {
    nodes: Option<BTreeSet<NodeName>>,
    jobs: Option<BTreeSet<JobId>>,
    queues: Option<BTreeSet<QueueName>>,
    members: Option<BTreeSet<MemberId>>,
}

impl Sync {
    pub(super) const fn any(&self) -> bool {
        self.nodes.is_some() || self.jobs.is_some() || self.queues.is_some() || self.members.is_some()
    }

    pub(super) fn saw_node(&mut self, node: &NodeName) {
        self.nodes.iter_mut().for_each(|unseen| {
            unseen.remove(node);
        });
    }

    pub(super) fn saw_queue(&mut self, queue: &QueueName) {
        self.queues.iter_mut().for_each(|unseen| {
            unseen.remove(queue);
        });
    }

    pub(super) fn saw_job(&mut self, job: JobId) {
        self.jobs.iter_mut().for_each(|unseen| {
            unseen.remove(&job);
        });
    }

    pub(super) fn saw_member(&mut self, member: MemberId) {
        self.members.iter_mut().for_each(|unseen| {
            unseen.remove(&member);
        });
    }
}

impl Ledger {
    pub(super) fn sync_begin(&mut self, kind: SyncKind) {
        match kind {
            SyncKind::Nodes => self.sync.nodes = Some(self.nodes.keys().cloned().collect()),
            SyncKind::Jobs => self.sync.jobs = Some(self.jobs.keys().copied().collect()),
            SyncKind::Queues => self.sync.queues = Some(self.queues.configured().keys().cloned().collect()),
            SyncKind::Members => self.sync.members = Some(self.expected_members()),
        }
    }

    pub(super) fn sync_end(&mut self, kind: SyncKind, out: &mut Outcome) {
        match kind {
            SyncKind::Nodes => {
                for node in self.sync.nodes.take().unwrap_or_default() {
                    self.remove_node(&node, out);
                }
            }
            SyncKind::Jobs => {
                for job in self.sync.jobs.take().unwrap_or_default() {
                    self.forget_job(job);
                    self.tell_dependents(job, out);
                }
            }
            SyncKind::Queues => {
                for queue in self.sync.queues.take().unwrap_or_default() {
                    self.remove_queue(&queue);
                }
            }
            SyncKind::Members => {
                let unseen = self.sync.members.take().unwrap_or_default();
                self.resume(&unseen, out);
            }
        }
        self.replan = true;
    }

    /// Members of current attempts that are not known to have ended.
    fn expected_members(&self) -> BTreeSet<MemberId> {
        let mut expected = BTreeSet::new();
        for (_, _, record) in self.active().filter(|(_, _, r)| r.holds_capacity()) {
            for (rank, member) in record.members.iter().enumerate() {
                if let (false, Ok(rank)) =
                    (matches!(member.state, MemberState::Exited(_)), u32::try_from(rank))
                {
                    expected.insert(MemberId { gang: record.id, attempt: record.attempt, rank });
                }
            }
        }
        expected
    }

    /// Continues every gang from what really exists: orders that may have been lost are given again (they are
    /// idempotent), and a member that ran and is gone is lost.
    fn resume(&mut self, unseen: &BTreeSet<MemberId>, out: &mut Outcome) {
        let holding: Vec<GangId> =
            self.active().filter(|(_, _, r)| r.holds_capacity()).map(|(_, _, r)| r.id).collect();
        for gang in holding {
            let missing: Vec<u32> = {
                let first = MemberId { gang, attempt: 0, rank: 0 };
                let last = MemberId { gang, attempt: u32::MAX, rank: u32::MAX };
                unseen.range(first..=last).map(|member| member.rank).collect()
            };
            let Some(record) = self.record(gang) else { continue };
            let nothing_ran =
                record.members.iter().all(|m| matches!(m.state, MemberState::Requested | MemberState::Ready));
            match record.phase.clone() {
                Phase::Starting { deadline } if nothing_ran && !missing.is_empty() => {
                    self.start_missing(gang, &missing, deadline, out);
                }
                Phase::Starting { .. } if missing.is_empty() => self.release_again(gang, out),
                Phase::Stopping { stage, .. } => {
                    self.lose(gang, &missing, out);
                    if self.record(gang).is_some_and(|r| matches!(r.phase, Phase::Stopping { .. })) {
                        self.order_stage(gang, stage, out);
                    }
                }
                _ => self.lose(gang, &missing, out),
            }
        }
    }

    fn start_missing(
        &mut self,
        gang: GangId,
        missing: &[u32],
        deadline: phalanx_model::Timestamp,
        out: &mut Outcome,
    ) {
        for rank in missing {
            self.set_member(gang, *rank, MemberState::Requested);
        }
        let Some(record) = self.record(gang) else { return };
        let attempt = record.attempt;
        if let Some(placement) = record.placement.clone() {
            self.emit(Order::StartMembers { gang, attempt, placement, deadline }, out);
        }
    }

    fn release_again(&mut self, gang: GangId, out: &mut Outcome) {
        let Some(record) = self.record(gang) else { return };
        let waiting = record.members.iter().any(|m| m.state == MemberState::Ready);
        let none_missing = !record.members.iter().any(|m| m.state == MemberState::Requested);
        if waiting && none_missing {
            let attempt = record.attempt;
            self.emit(Order::ReleaseMembers { gang, attempt }, out);
        }
    }

    fn lose(&mut self, gang: GangId, missing: &[u32], out: &mut Outcome) {
        let exit =
            Exit::failed(FailureClass::Infrastructure, "was not found after a restart of the scheduler");
        for rank in missing {
            self.member_exited(gang, *rank, &exit, out);
        }
    }
}
