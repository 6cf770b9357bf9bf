//! Gangs that move to open a place for a gang that waits: what was asked for, and the places that are kept for the gangs that
//! move until they start there.

use phalanx_model::{DeviceMask, GangId, Outcome, Phase, Placement, StopCause, StopStage, Timestamp};

use super::Ledger;
use super::apply::refuse;
use crate::cluster::Pick;
use crate::cycle::{Config, Reservation, Rules, defragment};

/// How often the ledger looks whether moves pay. A look belongs to a minute and not to the time of the last one: so an engine
/// that was rebuilt looks at the same times.
const LOOK_MS: u64 = 60_000;

impl Ledger {
    /// Opens a place for each gang for which that was asked in this step, and, if settings say so, for a head. Whether any gang
    /// moves.
    pub(crate) fn defragment(&mut self, config: Config, out: &mut Outcome) -> bool {
        let mut moves = false;
        let asked = std::mem::take(&mut self.to_open);
        let is_due = std::mem::take(&mut self.looks_for_moves);
        let is_listed = !self.sync.any();
        for gang in asked {
            let opened = match is_listed {
                true => self.open_for(gang, false, config, out),
                false => Err("jobs and nodes are still being listed; ask again".to_owned()),
            };
            moves |= opened.is_ok();
            if let Err(why) = opened {
                let what = gang.map_or_else(
                    || "defragmentation".to_owned(),
                    |gang| format!("defragmentation for gang {gang}"),
                );
                refuse(out, what, &why);
            }
        }
        if is_due && is_listed && self.queues.settings().defragmentation.is_automatic {
            // Why nothing moves is of interest to those only who ask.
            moves |= self.open_for(None, true, config, out).is_ok();
        }
        moves
    }

    fn open_for(
        &mut self,
        gang: Option<GangId>,
        has_to_pay: bool,
        config: Config,
        out: &mut Outcome,
    ) -> Result<(), String> {
        let settings = self.queues.settings();
        let restart_ms = settings.migration.unwrap_or_default().restart_ms;
        let rules = Rules { settings: settings.defragmentation, restart_ms, has_to_pay };
        let mut draft = self.lend();
        let planned = defragment(self, &mut draft, gang, rules, config);
        self.take_back(draft);
        let decisions = planned?;
        self.replan = true;
        let plan = phalanx_model::Plan { decisions };
        self.commit(&plan, out);
        out.plan.decisions.extend(plan.decisions);
        self.free_exited();
        self.say_reasons(out);
        Ok(())
    }

    /// What was asked for in this step was decided by another engine.
    pub(crate) fn forget_asked_moves(&mut self) {
        self.to_open.clear();
        self.looks_for_moves = false;
    }

    /// Notes whether a time to look for moves is between these two times.
    pub(super) fn note_look_for_moves(&mut self, before: Timestamp, now: Timestamp) {
        self.looks_for_moves |= before.0 / LOOK_MS != now.0 / LOOK_MS;
    }

    /// When to look for moves next, if gangs wait.
    pub(super) fn looks_for_moves_at(&self) -> Option<Timestamp> {
        let is_automatic = self.queues.settings().defragmentation.is_automatic;
        let waits = !self.reservations.is_empty() || self.pending.len() > 0;
        (is_automatic && waits).then(|| Timestamp((self.now.0 / LOOK_MS + 1).saturating_mul(LOOK_MS)))
    }

    /// Stops a running gang that moves.
    pub(super) fn move_to(
        &mut self,
        gang: GangId,
        by: GangId,
        (to, lost_device_ms): (Placement, u64),
        out: &mut Outcome,
    ) {
        self.keep_size(gang);
        self.begin_stop(gang, StopCause::Moved { by, to, lost_device_ms }, out);
    }

    /// Keeps the place that a gang moves to while the gang is stopped, and no longer.
    pub(super) fn note_moving(&mut self, id: GangId) {
        let is_kept = self.moving.contains_key(&id);
        let to = self.record(id).and_then(|record| match &record.phase {
            // Nobody knows when a gang that hangs starts again.
            Phase::Stopping { stage: StopStage::Lingering, .. } => None,
            Phase::Stopping { cause: StopCause::Moved { to, .. }, .. } => Some(to),
            _ => None,
        });
        match (to.cloned().zip(self.gang(id)), is_kept) {
            (Some((to, gang)), false) => {
                let picks = self.tree.picks_of(&to, gang);
                let mut place = Reservation::new(picks, gang, None, 0, self.now);
                place.book(&self.tree, &mut self.space);
                self.moving.insert(id, place);
            }
            (None, true) => self.forget_move(id),
            _ => {}
        }
    }

    /// Lets others have the place that is kept for a gang.
    pub(super) fn forget_move(&mut self, id: GangId) {
        if let Some(mut place) = self.moving.remove(&id) {
            place.unbook(&self.tree, &mut self.space);
            self.freed.add(place.nodes());
            self.note_spare(place.nodes());
            self.replan = true;
        }
    }

    /// Whether some of these devices are kept for a gang that moves there.
    pub(super) fn is_kept_for_a_move(&self, node: u32, devices: DeviceMask) -> bool {
        let there = [Pick::new(node, 0, devices)];
        self.moving.values().any(|place| place.overlaps(&there))
    }

    /// Keeps the places of all gangs that move in free capacity that is counted again.
    pub(super) fn recount_moving(&mut self) {
        let moving: Vec<GangId> = std::mem::take(&mut self.moving).into_keys().collect();
        moving.into_iter().for_each(|gang| self.note_moving(gang));
    }

    /// Reserves the place that a gang moves to, once it has stopped, until it starts there.
    pub(super) fn reserve_move(&mut self, gang: GangId, to: Placement, out: &mut Outcome) {
        if self.is_held(gang.job) || !self.moving.contains_key(&gang) {
            return;
        }
        self.reserve_again(gang, to, out);
    }
}
