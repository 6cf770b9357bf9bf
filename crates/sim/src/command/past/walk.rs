//! A journal, step by step: an engine knows after each what the live one knew.

use std::path::Path;

use phalanx_engine::{Config, Engine, VERSION};
use phalanx_journal::{FORMAT_WITH_PLANS, Header, Next, Reader, Record};
use phalanx_model::{Change, Input, Outcome, Timestamp};

/// A recorded step, after it.
pub(super) struct Step<'a> {
    pub(super) now: Timestamp,
    pub(super) inputs: &'a [Input],
    pub(super) changes: &'a [Change],
    pub(super) engine: &'a Engine,
    /// The first of its segment lists the world, most of which was known before.
    pub(super) is_listing: bool,
}

/// What is met on the way.
pub(super) trait Reading {
    /// A segment begins.
    fn begin(&mut self, header: &Header);
    fn step(&mut self, step: &Step<'_>);
    /// Something is damaged, skipped, or decided otherwise.
    fn remark(&mut self, text: String);
    /// Whether the journal is of interest up to there.
    fn is_wanted(&self, now: Timestamp) -> bool;
}

/// Over all segments.
#[derive(Clone, Copy, Default)]
pub(super) struct Verdict {
    /// Steps that this version recorded.
    pub(super) steps: u64,
    /// Those of them that it decides otherwise now.
    pub(super) differing: u64,
    /// Steps of other versions: their decisions are followed and not judged.
    pub(super) of_others: u64,
    /// Segments that cannot be read to their end, which is more than a torn end.
    pub(super) damaged: u64,
}

/// One segment on its way through an engine.
struct Segment<'a> {
    path: &'a str,
    bytes: &'a [u8],
    header: Header,
    engine: Engine,
    /// Recorded decisions are taken over: another version made them, or this one would make others.
    is_followed: bool,
    steps: u64,
    out: Outcome,
}

/// Walks through a segment; `None` when it leads beyond what is wanted, else the engine as it was in the end.
pub(super) fn walk(
    path: &str,
    bytes: &[u8],
    verdict: &mut Verdict,
    reading: &mut dyn Reading,
) -> Option<Engine> {
    let mut reader = match Reader::new(bytes, Path::new(path)) {
        Ok(reader) => reader,
        Err(error) => {
            verdict.damaged += 1;
            reading.remark(error.to_string());
            return None;
        }
    };
    let mut segment = Segment::new(path, bytes, reader.header().clone());
    reading.begin(&segment.header);
    let mut open: Option<(Timestamp, Vec<Input>)> = None;
    loop {
        match reader.next_record() {
            Ok(Next::Record(Record::Facts { now, inputs, .. })) => {
                if !reading.is_wanted(now) {
                    return Some(segment.engine);
                }
                open = Some((now, inputs));
            }
            Ok(Next::Record(Record::Decisions { plan, effects, changes, .. })) => {
                let Some((now, inputs)) = open.take() else { continue };
                let recorded = Outcome { plan, effects, changes };
                segment.take(now, &inputs, &recorded, verdict, reading);
            }
            Ok(Next::End) => break,
            Ok(Next::Torn(torn)) => {
                reading.remark(format!("{path} ends in an incomplete step: {torn}"));
                break;
            }
            Err(error) => {
                verdict.damaged += 1;
                reading.remark(error.to_string());
                break;
            }
        }
    }
    if let Some((now, inputs)) = open {
        // Its orders never left, and deciding anew is as good.
        reading.remark(format!("{path} ends before the decisions of its last step: they are made anew here"));
        let _ = segment.engine.step(now, &inputs, &mut segment.out);
        segment.tell(now, &inputs, &segment.out.changes, reading);
    }
    Some(segment.engine)
}

impl<'a> Segment<'a> {
    fn new(path: &'a str, bytes: &'a [u8], header: Header) -> Self {
        let engine = Engine::new(header.epoch, Config::default());
        let is_followed = header.engine != VERSION;
        Self { path, bytes, header, engine, is_followed, steps: 0, out: Outcome::default() }
    }

    fn take(
        &mut self,
        now: Timestamp,
        inputs: &[Input],
        recorded: &Outcome,
        verdict: &mut Verdict,
        reading: &mut dyn Reading,
    ) {
        let Outcome { plan, effects, changes } = recorded;
        // Format 1 did not record everything that a plan has.
        let is_same = |out: &Outcome| {
            let is_planned_alike = out.plan == *plan || self.header.format < FORMAT_WITH_PLANS;
            is_planned_alike && out.effects == *effects && out.changes == *changes
        };
        let is_ours = self.header.engine == VERSION;
        let mut differs = false;
        if !self.is_followed {
            let _ = self.engine.step(now, inputs, &mut self.out);
            differs = !is_same(&self.out);
        } else if is_ours {
            let _ = self.engine.clone().step(now, inputs, &mut self.out);
            differs = !is_same(&self.out);
            self.engine.follow(now, inputs, plan, effects);
        } else {
            self.engine.follow(now, inputs, plan, effects);
        }
        self.steps += 1;
        verdict.steps += u64::from(is_ours);
        verdict.of_others += u64::from(!is_ours);
        if differs {
            verdict.differing += 1;
            let Outcome { effects: now_effects, changes: now_changes, .. } = &self.out;
            reading.remark(format!(
                "{}: step {} is decided otherwise\n  then {effects:?} {changes:?}\n  now  {now_effects:?} {now_changes:?}",
                self.path, self.steps
            ));
            self.follow_from_the_begin();
        }
        self.tell(now, inputs, changes, reading);
    }

    /// From here on it is as it was recorded, up to the present step and for all that come.
    fn follow_from_the_begin(&mut self) {
        if std::mem::replace(&mut self.is_followed, true) {
            return;
        }
        self.engine = Engine::new(self.header.epoch, Config::default());
        let Ok(mut reader) = Reader::new(self.bytes, Path::new(self.path)) else { return };
        let mut open = None;
        let mut left = self.steps;
        while left > 0 {
            match reader.next_record() {
                Ok(Next::Record(Record::Facts { now, inputs, .. })) => open = Some((now, inputs)),
                Ok(Next::Record(Record::Decisions { plan, effects, .. })) => {
                    if let Some((now, inputs)) = open.take() {
                        self.engine.follow(now, &inputs, &plan, &effects);
                    }
                    left -= 1;
                }
                _ => return,
            }
        }
    }

    fn tell(&self, now: Timestamp, inputs: &[Input], changes: &[Change], reading: &mut dyn Reading) {
        let is_listing = self.steps <= 1;
        reading.step(&Step { now, inputs, changes, engine: &self.engine, is_listing });
    }
}
