//! How every run ends: all is healed, and then all work must end.

use phalanx_model::{
    Admin, Change, DeviceMask, ForeignUse, Grade, Health, Input, Job, Node, NodeSet, Outcome, QueueBound,
    QueueReport, Reason,
};

use crate::{Failure, FailureKind, Faults, World};

/// Long enough for every wait, limit and back-off of every job one after the other.
const LIVENESS_MS: u64 = 30 * 24 * 3_600_000;
const LIVENESS_TURNS: u64 = 200_000;

/// The facts by which a node and its devices are ok.
fn is_healthy(node: &Node) -> [Input; 2] {
    [DeviceMask::EMPTY, node.machine.device_mask()].map(|devices| {
        let (node, detail) = (node.name.clone(), String::new());
        Input::HealthGraded { health: Health { node, devices, grade: Grade::Ok, detail } }
    })
}

impl World {
    /// Ends all faults: every node exists, is open and healthy, has no other users, and is in every set; no job is held, and by
    /// these facts no queue is limited.
    pub(super) fn heal(&mut self, unlimited: &[Input]) -> Result<(), Failure> {
        self.set_faults(Faults::none());
        let nodes: Vec<Node> = self.declared().map(|(n, _)| n.clone()).collect();
        nodes.into_iter().try_for_each(|node| {
            let sets = super::kinds::SETS.into_iter().map(NodeSet::new).collect();
            let node = Node { admin: Admin::Open, foreign: DeviceMask::EMPTY, sets, ..node };
            self.add_node(Node { foreign_use: ForeignUse::default(), ..node })
        })?;
        let is_sick = |node: &&Node| !node.health.is_ok();
        let healed: Vec<Input> = self.engine().nodes().filter(is_sick).flat_map(is_healthy).collect();
        self.tell(healed)?;
        let held = self.engine().jobs().filter(|(job, _)| job.turn.held_by.is_some());
        let release = |job| Input::JobReleased { job, by: "operator".to_owned() };
        let released: Vec<Input> = held.map(|(job, _)| release(job.id)).collect();
        self.tell(unlimited.iter().cloned().chain(released))
    }

    /// Checks that all work ends, nothing is held, and nothing is left to decide. By these facts no queue has a
    /// guarantee.
    pub(super) fn finish(&mut self, owed_nothing: &[Input]) -> Result<(), Failure> {
        if !owed_nothing.is_empty() {
            // Only gangs that wait for the guarantees of others may stay pending.
            self.work_out(may_wait)?;
            self.tell(owed_nothing.iter().cloned())?;
        }
        self.work_out(|_| false)?;
        let broken = |world: &Self, what| Err(world.failure(FailureKind::Correctness, what));
        if !self.checker().holds_nothing() || !self.living().is_empty() {
            return broken(self, "all work ended, and something is still held".to_owned());
        }
        let in_use =
            |report: &QueueReport| report.running > 0 || report.resources.iter().any(|good| good.used > 0);
        if let Some(report) = self.engine().queues().into_iter().find(in_use) {
            return broken(self, format!("all work ended, and a queue still uses something: {report:?}"));
        }
        let mut copy = self.engine().clone();
        let mut out = Outcome::default();
        let _ = copy.step(self.now(), &[], &mut out);
        if out != Outcome::default() {
            return broken(self, format!("a settled engine still decides: {out:?}"));
        }
        Ok(())
    }

    /// A job that names an absent node is accepted, because that node may hold it. Now that all nodes are back, the
    /// engine may know better: a job that it reports as impossible to place it must also reject. Returns whether there
    /// was such a job.
    fn cancel_impossible(&mut self) -> Result<bool, Failure> {
        let engine = self.engine();
        let says_so = |job: &Job| {
            let mut gangs = job.gang_ids();
            gangs.any(|gang| matches!(engine.reason(gang), Some(Reason::BadConstraints { .. })))
        };
        let is_refused = |job: &Job| {
            let (mut copy, mut out) = (engine.clone(), Outcome::default());
            let again = Job { id: self.next_job(), key: None, ..job.clone() };
            let _ = copy.step(self.now(), &[Input::JobSubmitted { job: Box::new(again) }], &mut out);
            out.changes.iter().any(|change| matches!(change, Change::JobRejected { .. }))
        };
        let impossible = engine.jobs().map(|(job, _)| job).filter(|job| says_so(job) && is_refused(job));
        let cancel = |job: &Job| Input::CancelRequested { job: job.id, by: "operator".to_owned() };
        let cancelled: Vec<Input> = impossible.map(cancel).collect();
        let any = !cancelled.is_empty();
        self.tell(cancelled)?;
        Ok(any)
    }

    /// Lets time pass until nothing happens any more; gangs that have not ended then must have a valid reason.
    fn work_out(&mut self, is_good: impl Fn(&Reason) -> bool) -> Result<(), Failure> {
        loop {
            let stuck = self.pass_all(&is_good)?;
            if stuck.is_empty() {
                return Ok(());
            }
            if !self.cancel_impossible()? {
                return Err(self.failure(FailureKind::Liveness, format!("never ended: {}", stuck.join("; "))));
            }
        }
    }

    fn pass_all(&mut self, is_good: impl Fn(&Reason) -> bool) -> Result<Vec<String>, Failure> {
        let until = self.now().plus(LIVENESS_MS);
        for _ in 0..LIVENESS_TURNS {
            match self.next_at() {
                Some(at) if at <= until => self.advance_to(at)?,
                _ => break,
            }
        }
        let engine = self.engine();
        let records = engine.jobs().flat_map(|(_, records)| records).filter(|r| !r.is_finished());
        Ok(records
            .filter(|r| !(r.is_pending() && engine.reason(r.id).as_ref().is_some_and(&is_good)))
            .map(|r| {
                let gang = engine.job(r.id.job).and_then(|job| job.gang_at(r.id.index));
                format!("{r:?}, {:?}, {gang:?}", engine.reason(r.id))
            })
            .collect())
    }
}

fn may_wait(reason: &Reason) -> bool {
    match reason {
        Reason::QueueLimit(limit) => matches!(limit.bound, QueueBound::Kept(_)),
        Reason::Dependency { .. } | Reason::ArrayLimit { .. } | Reason::ScaledIn { .. } => true,
        _ => false,
    }
}
