//! A world that goes on from a snapshot.

use phalanx_engine::{Config, Engine};
use phalanx_model::{Exit, GangRecord, Input, Job, MemberId, MemberState, Phase, Snapshot, SyncKind};
use phalanx_scenario::Script;

use super::{Due, World};
use crate::members::Member;
use crate::{Failure, Faults};

const SIGTERM: i32 = 15;

impl World {
    /// The world of a snapshot: what ran runs, what was being stopped ends, and nothing goes wrong from now on. `script`
    /// says what the members of a job do, by the engine that knows it; its `runs_ms` counts from their start.
    ///
    /// Nobody watched how it came to be, and so the checker does not judge how it goes on. Its events are kept.
    ///
    /// # Errors
    /// When the engine goes on and on without time passing.
    pub fn resume(
        snapshot: &Snapshot,
        config: Config,
        script: impl Fn(&Engine, &Job) -> Script,
    ) -> Result<Self, Failure> {
        let mut world = Self::new(config, Faults::none(), 0).keeping_events();
        world.is_watched = false;
        world.now = snapshot.taken_at;
        // While it is being listed, nothing is decided: it is asked what it knows before it goes on.
        let members = Input::SyncBegin { kind: SyncKind::Members };
        world.step(world.now, snapshot.facts.iter().cloned().chain([members]).collect())?;
        for fact in &snapshot.facts {
            match fact {
                Input::NodeObserved { node } => {
                    world.nodes.insert(node.name.clone(), (**node).clone());
                }
                Input::JobObserved { job, gangs } => {
                    let script = script(&world.engine, job);
                    gangs.iter().for_each(|record| world.take_over(record, &script));
                    world.scripts.insert(job.id, script);
                    world.next_job = world.next_job.max(job.id.0.saturating_add(1));
                }
                _ => {}
            }
        }
        let observed = |(member, m): (&MemberId, &Member)| Input::MemberObserved {
            member: *member,
            state: m.state.clone(),
        };
        let found: Vec<Input> = world.members.0.iter().map(observed).collect();
        world.tell(found.into_iter().chain([Input::SyncEnd { kind: SyncKind::Members }]))?;
        Ok(world)
    }

    /// The members of a gang, each where it stood, and what each of them does next.
    fn take_over(&mut self, record: &GangRecord, script: &Script) {
        let Some(placement) = record.placement.as_ref().filter(|_| record.holds_capacity()) else { return };
        let runs_since = match record.phase {
            Phase::Running { since } => Some(since),
            _ => None,
        };
        if let Some(saved) = runs_since.zip(record.checkpointed_at).filter(|(since, at)| at > since) {
            self.saved.insert(record.id, saved.1.since(saved.0));
        }
        for (slot, known) in placement.slots.iter().zip(&record.members) {
            let id = MemberId { gang: record.id, attempt: record.attempt, rank: slot.rank };
            let member = Member {
                node: slot.node.clone(),
                devices: slot.devices,
                is_part: slot.part.is_some(),
                script: script.clone(),
                done_ms: 0,
                speed_milli: script.speed_milli(placement.slots.len()),
                runs_since,
                state: known.state.clone(),
                version: 0,
            };
            let lives = member.lives();
            self.members.0.insert(id, member);
            let next = match (&known.state, &record.phase) {
                _ if !lives => None,
                (_, Phase::Stopping { .. }) => {
                    script.term_ms.map(|ms| (ms, MemberState::Exited(Exit::by_signal(SIGTERM))))
                }
                // When it was ordered is not known, and that it comes too late is not to be expected.
                (MemberState::Requested, Phase::Starting { deadline }) => {
                    let left_ms = deadline.since(self.now) / 2;
                    script.starts_ms.map(|ms| (ms.min(left_ms), MemberState::Ready))
                }
                (MemberState::Running, Phase::Running { since }) => {
                    let left_ms = |ms| since.plus(ms).since(self.now);
                    script.runs_ms.map(|ms| (left_ms(ms), MemberState::Exited(Exit::code(script.code))))
                }
                _ => None,
            };
            if let Some((ms, next)) = next {
                self.change_after(id, ms, next);
            }
            let saves = script.saves_ms.filter(|_| slot.rank == 0 && runs_since.is_some());
            if let Some(ms) = saves {
                self.plan(self.now.plus(ms), Due::Save { gang: record.id, attempt: record.attempt });
            }
        }
    }

    /// What people do, all in one step; `script` says what the members of jobs do that are submitted with it.
    ///
    /// # Errors
    /// As [`Self::resume`].
    pub fn told(
        &mut self,
        facts: Vec<Input>,
        script: impl Fn(&Engine, &Job) -> Script,
    ) -> Result<(), Failure> {
        for fact in &facts {
            match fact {
                Input::NodeObserved { node } => {
                    self.nodes.insert(node.name.clone(), (**node).clone());
                }
                Input::NodeUseObserved { node, foreign, foreign_use } => {
                    if let Some(node) = self.nodes.get_mut(node) {
                        (node.foreign, node.foreign_use) = (*foreign, foreign_use.clone());
                    }
                }
                Input::JobSubmitted { job } => {
                    let script = script(&self.engine, job);
                    self.scripts.insert(job.id, script);
                }
                _ => {}
            }
        }
        self.tell(facts)
    }
}
