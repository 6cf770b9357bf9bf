//! The operations of a simulation test, written down: a case can be kept in a file, run again, and made shorter.

use phalanx_engine::Config;
use phalanx_model::{Exit, Input, Job, JobId, MemberId, Node, NodeName};
use phalanx_scenario::Script;
use serde::{Deserialize, Serialize};

use crate::{Failure, Faults, World};

/// The most bytes of a file: a run of the swarm has less than one tenth.
pub const CASE_BYTES_MAX: u64 = 64 << 20;
const FORMAT: u32 = 1;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A machine exists.
    Node(Box<Node>),
    /// The engine receives an input.
    Tell(Box<Input>),
    /// The engine receives many inputs at once.
    TellAll(Vec<Input>),
    /// The engine receives a job; the job has its number.
    Submit {
        job: Box<Job>,
        script: Script,
    },
    /// A member ends by itself, if it lives.
    End {
        member: MemberId,
        exit: Exit,
    },
    Lose(NodeName),
    Return(NodeName),
    Crash,
    /// Time passes, in milliseconds.
    Pass(u64),
    /// Time passes until the next event.
    Next,
    /// The clock jumps, and everything that was due meanwhile comes late, all at once.
    Jump(u64),
    /// The clock shows an earlier time for one step.
    StepBack(u64),
    /// The ranks of a job save their work.
    Save(JobId),
    /// The journal's disk is full for some milliseconds.
    FillDisk(u64),
}

/// The conditions in which operations happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    format: u32,
    /// The seed from which faults are drawn.
    pub seed: u64,
    pub bypass_max: u32,
    pub faults: Faults,
    /// Promised starts have to come in time.
    pub is_strict: bool,
    /// The facts that remove the limits of queues when all is healed; and at the end, the facts that remove their
    /// guarantees.
    pub unlimited: Vec<Input>,
    pub owed_nothing: Vec<Input>,
}

impl Conditions {
    #[must_use]
    pub fn new(seed: u64, bypass_max: u32, faults: Faults, is_strict: bool) -> Self {
        Self { format: FORMAT, seed, bypass_max, faults, is_strict, ..Self::default() }
    }

    /// A world in these conditions, before any operation.
    #[must_use]
    pub fn world(&self) -> World {
        let config = Config { bypass_max: self.bypass_max };
        let world = World::new(config, self.faults, self.seed);
        if self.is_strict { world.keeping_promises() } else { world }
    }
}

/// A whole run: its conditions and its operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    pub conditions: Conditions,
    pub operations: Vec<Operation>,
}

impl Case {
    /// Runs the case: its operations, then all is healed, and all work must end.
    ///
    /// # Errors
    /// The property that breaks.
    ///
    /// # Panics
    /// If the engine panics: a broken invariant.
    pub fn run(&self) -> Result<(), Failure> {
        let mut world = self.conditions.world().keeping_log();
        self.operations.iter().try_for_each(|operation| world.carry(operation))?;
        world.heal(&self.conditions.unlimited)?;
        world.finish(&self.conditions.owed_nothing)
    }

    /// The case as a file: the conditions, then an operation on each line, as JSON.
    ///
    /// # Errors
    /// If something cannot be written as JSON.
    pub fn to_text(&self) -> Result<String, CaseError> {
        let mut text = serde_json::to_string(&self.conditions).map_err(CaseError::Unwritable)?;
        for operation in &self.operations {
            text.push('\n');
            text += &serde_json::to_string(operation).map_err(CaseError::Unwritable)?;
        }
        text.push('\n');
        Ok(text)
    }

    /// # Errors
    /// The line that cannot be read.
    pub fn from_text(text: &str) -> Result<Self, CaseError> {
        let mut lines = (1..).zip(text.lines());
        let (_, first) = lines.next().ok_or(CaseError::Empty)?;
        let bad = |line| move |why| CaseError::Line { line, why };
        let conditions: Conditions = serde_json::from_str(first).map_err(bad(1))?;
        if conditions.format != FORMAT {
            return Err(CaseError::Format(conditions.format));
        }
        let operation = |(line, text): (u64, &str)| serde_json::from_str(text).map_err(bad(line));
        let operations = lines.map(operation).collect::<Result<_, _>>()?;
        Ok(Self { conditions, operations })
    }
}

/// Why a case cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    #[error("the file is empty; `phalanx-sim swarm --seed N --shrink FILE` writes one")]
    Empty,
    #[error("line {line}: {why}")]
    Line { line: u64, why: serde_json::Error },
    #[error("it is written in format {0}, and {FORMAT} is what is read here")]
    Format(u32),
    #[error("it cannot be written: {0}")]
    Unwritable(serde_json::Error),
}

impl World {
    /// Carries out an operation.
    ///
    /// # Errors
    /// If the operation breaks a property.
    pub fn carry(&mut self, operation: &Operation) -> Result<(), Failure> {
        match operation {
            Operation::Node(node) => self.add_node((**node).clone()),
            Operation::Tell(fact) => self.tell([(**fact).clone()]),
            Operation::TellAll(facts) => self.tell(facts.iter().cloned()),
            Operation::Submit { job, script } => self.submit_as(job, script),
            Operation::End { member, exit } => self.end_member(*member, exit.clone()),
            Operation::Lose(node) => self.lose_node(node),
            Operation::Return(node) => self.return_node(node),
            Operation::Crash => self.crash(),
            Operation::Pass(ms) => self.advance_to(self.now().plus(*ms)),
            Operation::Next => self.next_at().map_or(Ok(()), |at| self.advance_to(at)),
            Operation::Jump(ms) => self.jump(*ms),
            Operation::StepBack(ms) => self.step_back(*ms),
            Operation::Save(job) => self.save(*job),
            Operation::FillDisk(ms) => self.fill_disk(*ms),
        }
    }
}
