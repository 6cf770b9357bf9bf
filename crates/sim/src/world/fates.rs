//! What befalls leaders, disks and news.

use std::collections::BTreeSet;

use phalanx_engine::Engine;
use phalanx_model::{Effect, FailureClass, Input, NodeName, Outcome, Timestamp};

use super::{Due, World};
use crate::{Failure, Rng};

/// For how many steps a leader goes on that has a successor.
const RIVAL_STEPS_MAX: u64 = 20;

#[derive(Debug)]
pub(super) struct Fates {
    /// Draws apart from everything else.
    pub(super) rng: Rng,
    /// Nodes that are gone, and nobody was told.
    pub(super) unheard: BTreeSet<NodeName>,
    /// The leader before, and for how many steps it does not know that it is that.
    pub(super) rival: Option<(Engine, u64)>,
    /// Orders of leaders that have a successor.
    refused: u64,
    /// Until then the journal's disk is full.
    full_until: Timestamp,
    /// The step that the full disk finds has not happened yet.
    is_filling: bool,
    /// Decided while the disk was full, and when: they have not left.
    kept_back: Vec<(Effect, u64)>,
    /// Facts had to wait for the disk.
    pub(super) has_waited: bool,
}

impl Fates {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::new(!seed),
            unheard: BTreeSet::new(),
            rival: None,
            refused: 0,
            full_until: Timestamp(0),
            is_filling: false,
            kept_back: Vec::new(),
            has_waited: false,
        }
    }
}

impl World {
    /// Orders that the world refused because their leader has a successor.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.fates.refused
    }

    /// From now on the journal's disk is full for so long, as the pump has it then: one step may be under way, and its
    /// orders do not leave before it is recorded; after it no fact is taken.
    ///
    /// # Errors
    /// When the checker finds something broken.
    pub fn fill_disk(&mut self, ms: u64) -> Result<(), Failure> {
        self.fates.full_until = self.now.plus(ms);
        self.fates.is_filling = true;
        self.settle()
    }

    /// Nothing can be recorded, so nothing is decided: facts wait. What was kept back leaves as soon as there is room.
    pub(super) fn waits_for_disk(&mut self) -> bool {
        if self.room_at().is_some() {
            self.fates.has_waited |= !self.facts.is_empty();
            return true;
        }
        if self.now >= self.fates.full_until && !self.fates.kept_back.is_empty() {
            self.send_kept_back();
        }
        false
    }

    /// When the disk has room again that stops everything now.
    pub(super) fn room_at(&self) -> Option<Timestamp> {
        let stops = self.now < self.fates.full_until && !self.fates.is_filling;
        stops.then_some(self.fates.full_until)
    }

    /// The disk has room; a successor begins with that, and knows nothing of orders that have not left.
    pub(super) fn make_room(&mut self) {
        self.fates.full_until = Timestamp(0);
        self.fates.is_filling = false;
        self.send_kept_back();
    }

    fn send_kept_back(&mut self) {
        for (effect, made) in std::mem::take(&mut self.fates.kept_back) {
            let at = self.later();
            self.plan(at, Due::Order { effect, made });
        }
    }

    /// Orders leave once they are recorded.
    pub(super) fn send(&mut self, effects: Vec<Effect>) {
        if self.now < self.fates.full_until {
            self.fates.is_filling = false;
            let made = self.made;
            self.fates.kept_back.extend(effects.into_iter().map(|effect| (effect, made)));
            return;
        }
        for effect in effects {
            let at = self.later();
            self.plan(at, Due::Order { effect, made: self.made });
        }
    }

    /// The leader's orders on the way arrive now or never. It may go on deciding for a while, and not know.
    pub(super) fn depose(&mut self) -> Result<Option<(Engine, u64)>, Failure> {
        if !self.fates.rng.chance(self.faults.two_leaders) {
            return Ok(None);
        }
        let is_order = |due: &Due| matches!(due, Due::Order { .. });
        let on_the_way: Vec<_> =
            self.due.iter().filter(|(_, due)| is_order(due)).map(|(key, _)| *key).collect();
        for key in on_the_way {
            if self.fates.rng.chance(50)
                && let Some(Due::Order { effect, made }) = self.due.remove(&key)
            {
                self.carry_out(&effect, made)?;
            }
        }
        let steps = self.fates.rng.between(1, RIVAL_STEPS_MAX);
        Ok(Some((self.engine.clone(), steps)))
    }

    /// The leader before hears what happens, and decides as well.
    pub(super) fn step_rival(&mut self, now: Timestamp, facts: &[Input]) {
        let Some((mut rival, steps)) = self.fates.rival.take() else { return };
        let mut out = Outcome::default();
        let _ = rival.step(now, facts, &mut out);
        for effect in out.effects {
            let at = self.later();
            self.plan(at, Due::Order { effect, made: self.made });
        }
        self.fates.rival = (steps > 1).then(|| (rival, steps - 1));
    }

    /// An order of a leader that has a successor does nothing. Where that leader lives on, the answer may reach its
    /// successor.
    pub(super) fn refuse(&mut self, effect: &Effect) {
        self.fates.refused += 1;
        if self.faults.two_leaders > 0 {
            let detail = "the leader has a successor".to_owned();
            let class = FailureClass::Infrastructure;
            self.report(Input::EffectFailed { effect: effect.id, class, detail });
        }
    }

    /// What befell a node is told.
    pub(super) fn hear_of_loss(&mut self, name: &NodeName) {
        if self.fates.unheard.remove(name) {
            self.made += 1;
            self.lost_at.insert(name.clone(), self.made);
            self.facts.push(Input::NodeRemoved { node: name.clone() });
        }
    }
}
