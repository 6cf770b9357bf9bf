//! What a drill records of each fault.

use serde::Serialize;

/// A drill: all faults, in the order of the catalogue.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) setting: Setting,
    /// When the drill began, in milliseconds since 1970.
    pub(super) began_ms: u64,
    pub(super) took_ms: u64,
    /// The version of Phalanx.
    pub(super) version: &'static str,
    /// What the machine is: cores and memory.
    pub(super) machine: String,
    pub(super) faults: Vec<Record>,
}

impl Report {
    pub(super) fn count(&self, verdict: Verdict) -> usize {
        self.faults.iter().filter(|fault| fault.verdict == verdict).count()
    }

    /// One sentence for a person who was not there.
    pub(super) fn summary(&self) -> String {
        let (failed, skipped) = (self.count(Verdict::Failed), self.count(Verdict::PassedOver));
        let tried = self.faults.len() - skipped;
        let jobs = match self.jobs() {
            (_, 0) => "No gang job ran".to_owned(),
            (done, all) if done == all => {
                format!("{} finished with the correct result", all_of(all, "gang job"))
            }
            (done, all) => format!("{done} of {all} gang jobs finished with the correct result"),
        };
        let faults = match failed {
            0 => format!("and Phalanx met every expectation in {}", all_of(tried, "fault").to_lowercase()),
            failed => format!("and {failed} of {tried} faults failed"),
        };
        let skipped = match skipped {
            0 => String::new(),
            1 => " One fault was passed over.".to_owned(),
            n => format!(" {n} faults were passed over."),
        };
        match tried {
            0 => format!("No fault was injected.{skipped}"),
            _ => format!("{jobs}, {faults}.{skipped}"),
        }
    }

    /// Jobs that finished correctly, and all jobs.
    fn jobs(&self) -> (usize, usize) {
        let ran = || self.faults.iter().filter(|fault| fault.has_job);
        let done = ran().filter(|fault| fault.result.is_some());
        (done.count(), ran().count())
    }

    /// Whether the machine lacks what every fault needs.
    pub(super) fn is_empty(&self) -> bool {
        self.count(Verdict::PassedOver) == self.faults.len()
    }
}

/// `All 13 faults`, `The fault`.
fn all_of(count: usize, noun: &str) -> String {
    if count == 1 { format!("The {noun}") } else { format!("All {count} {noun}s") }
}

/// Where a drill takes place, in the words of its report.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Setting {
    pub(super) title: &'static str,
    pub(super) command: &'static str,
    /// What each fault met.
    #[serde(skip)]
    pub(super) about: &'static str,
    /// Where the times come from.
    #[serde(skip)]
    pub(super) times: &'static str,
    /// What the phases of the page mean here; may be empty.
    #[serde(skip)]
    pub(super) phases: &'static str,
    /// The heading of the quotes.
    #[serde(skip)]
    pub(super) quotes: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Passed,
    Failed,
    /// The machine lacks what the fault needs.
    PassedOver,
}

impl Verdict {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "FAILED",
            Self::PassedOver => "passed over",
        }
    }
}

/// One fault.
#[derive(Debug, Serialize)]
pub(super) struct Record {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// What is real, declared and emulated.
    pub(super) basis: Basis,
    /// How Phalanx shows that it knows of the fault.
    pub(super) notice: Notice,
    pub(super) verdict: Verdict,
    /// Why the fault was passed over, or what broke off the drill of it.
    pub(super) why: Option<String>,
    /// The expectations, in the order in which they were stated before the fault.
    pub(super) checks: Vec<Check>,
    /// What the drill did, with the fault itself at 0.
    pub(super) done: Vec<Note>,
    /// What Phalanx noticed and decided, as its commands print it.
    pub(super) noticed: Vec<Quote>,
    /// The fault itself, as in "the drill sent SIGKILL to rank 2".
    pub(super) injected: String,
    /// When the fault was injected, in milliseconds since 1970.
    pub(super) fault_ms: Option<u64>,
    pub(super) phases: Phases,
    pub(super) steps: Steps,
    /// Whether a job was submitted.
    pub(super) has_job: bool,
    /// The result that the job printed, if it is correct.
    pub(super) result: Option<String>,
    /// Nodes and GPUs of the ranks before the fault and at the end.
    pub(super) placed: [Vec<String>; 2],
    /// Completed steps over time, from the file in which rank 0 reports its progress.
    pub(super) samples: Vec<Sample>,
    pub(super) took_ms: u64,
}

impl Record {
    /// Of a fault that was not tried.
    pub(super) fn blank(id: &'static str, title: &'static str, basis: Basis, notice: Notice) -> Self {
        Self {
            id,
            title,
            basis,
            notice,
            verdict: Verdict::PassedOver,
            why: None,
            checks: Vec::new(),
            done: Vec::new(),
            noticed: Vec::new(),
            injected: String::new(),
            fault_ms: None,
            phases: Phases::default(),
            steps: Steps::default(),
            has_job: false,
            result: None,
            placed: Default::default(),
            samples: Vec::new(),
            took_ms: 0,
        }
    }

    /// By all expectations, and by what broke off the drill of the fault.
    pub(super) fn judge(&mut self, ended: Result<(), String>) {
        let holds = self.checks.iter().all(|check| check.holds);
        self.verdict = if ended.is_ok() && holds { Verdict::Passed } else { Verdict::Failed };
        self.why = ended.err();
    }
}

/// How a drill sees that a fault is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Notice {
    Reports,
    /// A daemon that was started again answers.
    Answers,
    /// Phalanx cannot notice the fault itself: the drill reports it.
    Drill,
    /// An object of the API server shows the fault: a pod, a node, or a grade of an agent.
    Shown,
    /// A scheduler that was started again leads.
    Leads,
    /// An agent that was started again hands out GPUs.
    Serves,
}

impl Notice {
    /// Of the time before.
    pub(super) const fn before(self) -> &'static str {
        match self {
            Self::Reports => "not noticed yet",
            Self::Answers => "no daemon",
            Self::Drill => "not reported yet",
            Self::Shown => "not shown yet",
            Self::Leads => "no scheduler",
            Self::Serves => "no agent",
        }
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Reports => "noticed",
            Self::Answers => "answered",
            Self::Drill => "reported by the drill",
            Self::Shown => "shown",
            Self::Leads => "leads",
            Self::Serves => "serves",
        }
    }

    pub(super) const fn sentence(self) -> &'static str {
        match self {
            Self::Reports => "Phalanx noticed after",
            Self::Answers => "The new daemon answered after",
            Self::Drill => "The drill reported it to Phalanx after",
            Self::Shown => "The API server showed it after",
            Self::Leads => "The new scheduler led after",
            Self::Serves => "The new agent handed out GPUs after",
        }
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Basis {
    pub(super) real: &'static str,
    pub(super) declared: &'static str,
    pub(super) emulated: &'static str,
}

/// An expectation, and what was found.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) expected: String,
    pub(super) holds: bool,
    pub(super) found: String,
}

/// Something that the drill did.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Note {
    /// Milliseconds after the fault; negative before it. `None` if no fault was injected.
    pub(super) at_ms: Option<i64>,
    pub(super) what: String,
}

/// Words of Phalanx.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Quote {
    /// The command that prints it.
    pub(super) from: String,
    /// Milliseconds after the fault, if one was injected and the command gives a time.
    pub(super) at_ms: Option<i64>,
    pub(super) text: String,
}

/// Milliseconds from the fault. `None` if the phase was not reached: a gang that goes on is not stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Phases {
    pub(super) noticed_ms: Option<i64>,
    /// Phalanx began to stop the gang.
    pub(super) stopping_ms: Option<i64>,
    /// The last rank has ended.
    pub(super) stopped_ms: Option<i64>,
    pub(super) placed_ms: Option<i64>,
    /// All ranks have passed the start barrier.
    pub(super) running_ms: Option<i64>,
    /// The first step that was completed after that.
    pub(super) first_step_ms: Option<i64>,
    /// The gang ended.
    pub(super) ended_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Steps {
    /// By the result that the job printed.
    pub(super) total: Option<u64>,
    /// The last step that was completed when the fault was injected.
    pub(super) at_fault: u64,
    /// The checkpoint from which a restarted gang went on, by the result that the job printed.
    pub(super) resumed_from: Option<u64>,
    /// Completed steps that were lost, and done again.
    pub(super) again: u64,
    /// The longest time without a completed step after the fault.
    pub(super) pause_ms: Option<u64>,
}

/// A step of rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Sample {
    /// Milliseconds since 1970.
    pub(super) at_ms: u64,
    pub(super) attempt: u32,
    pub(super) step: u64,
}

/// `420 ms`, `1.3 s`, `1 m 04 s`.
pub(super) fn time(ms: i64) -> String {
    let sign = if ms < 0 { "−" } else { "" };
    match ms.unsigned_abs() {
        ms @ 0..1_000 => format!("{sign}{ms} ms"),
        ms @ 1_000..60_000 => format!("{sign}{}.{} s", ms / 1_000, ms % 1_000 / 100),
        ms => format!("{sign}{} m {:02} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}
