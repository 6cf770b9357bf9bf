//! How long the engine takes to answer: questions hold up decisions while they are answered.

use std::hint::black_box;

use phalanx_model::{GangId, Question};

use super::figures::Unit;
use super::fill;
use super::trials::Trial;
use super::world::cpu_ns;

impl Trial<'_> {
    /// Why gangs wait, from the first in order to the last; and what would become of one more job.
    pub(super) fn questions(&mut self, repeat: usize) -> Result<(), String> {
        let order = self.world.engine.in_order();
        let every = (order.len() / repeat.max(1)).max(1);
        let asked: Vec<GangId> = order.into_iter().step_by(every).take(repeat).collect();
        let mut times = Vec::with_capacity(asked.len());
        for gang in asked {
            let began = cpu_ns();
            black_box(self.world.engine.explain(black_box(gang)));
            times.push(cpu_ns() - began);
        }
        self.figures.times("why", Unit::Ms, &mut times);
        let mut times = Vec::with_capacity(repeat);
        for _ in 0..repeat {
            let at = self.world.now;
            let job = fill::waiting(&mut self.world, &self.load, at, &mut self.random)?;
            let question = Question::Submitted(Box::new(job));
            let began = cpu_ns();
            black_box(self.world.engine.what_if(black_box(&question)));
            times.push(cpu_ns() - began);
        }
        self.figures.times("dry_run", Unit::Ms, &mut times);
        Ok(())
    }
}
