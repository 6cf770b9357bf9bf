//! Commits decisions to the ledger. [`Ledger::commit`] is the only way from a plan to the records; a recorded plan of
//! another version takes the same way.

use phalanx_model::{Decision, Effect, GangRecord, Outcome, Phase, Plan};

use super::apply::refuse;
use super::{Ledger, Outstanding};
use crate::cycle::{Config, Hints, Planned, Spent, plan};

impl Ledger {
    /// One scheduling cycle: it plans on a draft, and the ledger commits the plan.
    pub(crate) fn run_cycle(&mut self, config: Config, spent: &mut Spent, out: &mut Outcome) {
        self.free_exited();
        let (mut draft, at_boundary) = (self.lend(), self.take_at_boundary());
        let planned = plan(self, &mut draft, at_boundary, config, *spent);
        let Planned { plan, hints, spent: spent_by_now } = planned;
        *spent = spent_by_now;
        self.take_back(draft);
        self.heed(hints);
        self.commit(&plan, out);
        out.plan.decisions.extend(plan.decisions);
        let departures = self.departures();
        self.commit(&departures, out);
        out.plan.decisions.extend(departures.decisions);
        // Members of gangs that are stopped now may have been gone before.
        self.free_exited();
        self.say_reasons(out);
    }

    /// Commits the plan of a cycle of this engine, which has booked free capacity, queues and reservations while it
    /// planned. The ledger refuses a decision that does not apply, and counts free capacity again.
    pub(crate) fn commit(&mut self, plan: &Plan, out: &mut Outcome) {
        for decision in &plan.decisions {
            match self.check(decision) {
                Ok(()) => self.decide(decision, out),
                Err(why) => {
                    refuse_decision(decision, why, out);
                    self.redraw();
                }
            }
        }
    }

    /// Commits a recorded plan: no cycle of this engine planned it, so each decision is booked as it is committed.
    pub(crate) fn follow(&mut self, plan: &Plan, out: &mut Outcome) {
        for decision in &plan.decisions {
            match self.check(decision) {
                Ok(()) => {
                    self.book(decision);
                    self.decide(decision, out);
                    self.lay(decision);
                }
                Err(why) => refuse_decision(decision, why, out),
            }
        }
    }

    /// Whether a decision applies to its gang as it is now.
    fn check(&self, decision: &Decision) -> Result<(), &'static str> {
        let Some(record) = self.record(decision.gang()) else { return Err("no such gang") };
        let (applies, why) = match decision {
            Decision::Start { placement, .. } if placement.slots.is_empty() => {
                (false, "its placement is empty")
            }
            Decision::Release { .. } | Decision::Reserve { .. } | Decision::Start { .. } => {
                (record.is_pending(), "it is not pending")
            }
            Decision::Preempt { .. } | Decision::Grow { .. } => {
                (record.holds_capacity(), "it holds no capacity")
            }
            Decision::Move { .. } => (matches!(record.phase, Phase::Running { .. }), "it does not run"),
            Decision::Leave { .. } => {
                (record.holds_capacity() && record.leaves.is_some(), "it is not being replaced")
            }
            Decision::Resize { .. } | Decision::Bypass { .. } => (!record.is_finished(), "it has ended"),
        };
        if applies { Ok(()) } else { Err(why) }
    }

    fn decide(&mut self, decision: &Decision, out: &mut Outcome) {
        match decision.clone() {
            Decision::Release { gang, why } => self.forget_reservation(gang, why, out),
            Decision::Reserve { gang, reserved, reason } => self.reserve(gang, reserved, reason, out),
            Decision::Preempt { gang, preemption } => self.preempt(gang, preemption, out),
            Decision::Resize { gang, resize } => self.ask_resize(gang, resize, out),
            Decision::Grow { gang, size } => self.grow(gang, size, out),
            Decision::Start { gang, placement, weighed } => self.start(gang, placement, weighed, out),
            Decision::Bypass { gang } => self.count_bypass(gang),
            Decision::Move { gang, by, to, lost_device_ms } => {
                self.move_to(gang, by, (to, lost_device_ms), out);
            }
            Decision::Leave { gang } => {
                let leave = self.record(gang).and_then(|record| record.leaves.clone());
                leave.into_iter().for_each(|leave| self.leave_now(gang, leave, out));
            }
        }
    }

    /// Books a decision as a cycle of this engine would have.
    fn book(&mut self, decision: &Decision) {
        match decision {
            Decision::Release { gang, .. } => self.drop_reservation(*gang),
            Decision::Reserve { gang, .. } => {
                self.pending.delist(&mut self.queues, *gang);
                self.drop_reservation(*gang);
            }
            Decision::Start { gang, placement, .. } => {
                self.pending.delist(&mut self.queues, *gang);
                self.drop_reservation(*gang);
                self.take(*gang, placement);
            }
            _ => {}
        }
    }

    /// Withholds the capacity of a committed reservation.
    fn lay(&mut self, decision: &Decision) {
        if let Decision::Reserve { gang, .. } = decision {
            self.book_reservation(*gang);
            self.claim_again(*gang);
        }
    }

    /// The number of the next order.
    pub(crate) const fn orders_given(&self) -> u64 {
        self.next_seq
    }

    /// Replaces the orders that this ledger gave in a step, after its first `given_before` orders, by the recorded
    /// orders of that step: answers name the numbers of the recorded orders.
    pub(crate) fn adopt_orders(&mut self, given_before: u64, recorded: &[Effect]) {
        let epoch = self.epoch;
        self.outstanding.retain(|id, _| id.epoch != epoch || id.seq < given_before);
        self.next_seq = given_before;
        for Effect { id, order } in recorded {
            self.next_seq = self.next_seq.max(id.seq.saturating_add(1));
            let (gang, attempt) = (order.gang(), order.attempt());
            let is_open = self.record(gang).filter(|record| record.attempt == attempt);
            if is_open.is_some_and(GangRecord::holds_capacity) {
                self.outstanding.insert(*id, Outstanding { gang, attempt, starts: order.starts_members() });
            }
        }
    }

    /// Records when to plan again.
    pub(crate) fn heed(&mut self, hints: Hints) {
        self.go_on(hints.goes_on);
        if hints.wakes {
            self.plan_again();
        }
        self.look_again(hints.again_at);
    }
}

fn refuse_decision(decision: &Decision, why: &str, out: &mut Outcome) {
    refuse(out, format!("decision to {} gang {}", decision.word(), decision.gang()), why);
}
