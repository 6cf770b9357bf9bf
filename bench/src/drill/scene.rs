//! One fault: a daemon of its own, a gang job that writes checkpoints, and what is seen of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_health::{Line, Seen as Evidence};
use phalanx_local::client::ask;
use phalanx_local::protocol::{Answer, EventView, GangView, HealthView, JobRef, JobView, LogAsk, Verb};
use phalanx_model::{Grade, JobId};

use super::fake::Fake;
use super::host::Disk;
use super::interrupt::is_over;
use super::record::{Check, Note, Quote, Steps};
use super::watch::{Watch, now_ms};
use crate::daemon::{Daemon, Nodes, Setup, job, word};
use crate::network::Network;

/// Ranks write a checkpoint every so many steps.
pub(super) const EVERY: u64 = 10;
/// Different steps that Phalanx has read before a fault whose detection compares the pace of the gang with the usual one.
const READS: usize = 4;
const POLL: Duration = Duration::from_millis(20);
/// Of one attempt: nothing that a drill started runs for longer. The drill itself ends a job as soon as its fault is judged.
const TIME_LIMIT_MS: u64 = 60 * 60_000;
/// Events of a gang that is stopped or moved.
const STOPS: [&str; 3] = ["stopping", "preempted", "requeued"];
/// The expectation of every fault.
pub(super) const FINISHES: &str = "the job finishes with the correct result";

/// Executables of the drill.
pub(super) struct Tools {
    pub(super) phalanx: PathBuf,
    pub(super) ring: PathBuf,
}

/// What a fault needs.
pub(super) struct Plan {
    pub(super) nodes: Nodes,
    /// The text of the queue file.
    pub(super) queues: &'static str,
    pub(super) ranks: u32,
    /// GPUs of each rank.
    pub(super) devices: u32,
    /// What a rank computes in a step takes so long.
    pub(super) step_ms: u64,
    pub(super) kept: Kept,
}

/// Why there is no plan.
pub(super) enum Unplanned {
    /// The machine lacks something that the fault needs.
    Missing(String),
    Failed(String),
}

impl From<String> for Unplanned {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// An expectation that is judged once the job has ended.
#[derive(Clone, Copy)]
pub(super) enum Late {
    /// The gang kept its first attempt, its nodes and its GPUs, and was never stopped.
    Stays,
    /// The gang ended in this attempt.
    InAttempt(u32),
    /// No more steps were lost than lie between two checkpoints.
    FewAgain,
    NoneAgain,
}

/// What has to last as long as the daemon.
#[derive(Default)]
pub(super) struct Kept {
    pub(super) disk: Option<Disk>,
    pub(super) network: Option<Network>,
    pub(super) fake: Option<Fake>,
}

pub(super) struct Scene {
    watch: Watch,
    pub(super) daemon: Daemon,
    pub(super) kept: Kept,
    pub(super) job: JobId,
    pub(super) ranks: u32,
    phalanx: PathBuf,
    /// The ranks go on until this file exists.
    finish: PathBuf,
    /// Events of the job that are older than the fault.
    old_events: usize,
    late: Vec<(usize, Late)>,
    printed: Option<RingResult>,
    fault_ms: Option<u64>,
    injected: String,
    at_fault: u64,
    noticed_ms: Option<u64>,
    notes: Vec<(u64, String)>,
    quotes: Vec<(String, Option<u64>, String)>,
    checks: Vec<Option<Check>>,
    expects: Vec<&'static str>,
    /// Of rank after rank.
    before: Vec<String>,
    after: Vec<String>,
    result: Option<String>,
}

impl Scene {
    /// Starts the daemon, and submits the job.
    pub(super) fn start(tools: &Tools, plan: Plan, expects: &[&'static str]) -> Result<Self, String> {
        let Plan { nodes, queues, ranks, devices, step_ms, kept } = plan;
        let state = kept.disk.as_ref().map(|disk| disk.path().join("state"));
        let setup = Setup { phalanx: tools.phalanx.clone(), nodes, queues: queues.to_owned(), state };
        let daemon = Daemon::start_with(setup)?;
        let folder = daemon.folder();
        let finish = folder.join("finish");
        let ring = format!(
            "{} --bytes 256KiB --warmup 0 --until {} --step-sleep-ms {step_ms} --checkpoint-every {EVERY} \
             --timeout-s 300",
            word(&tools.ring),
            word(&finish)
        );
        let script = kept
            .network
            .as_ref()
            .map_or_else(|| format!("exec {ring}"), |network| network.script(folder, &ring));
        let script = format!("echo $$ > {}/pid-$PHALANX_ATTEMPT-$PHALANX_RANK\n{script}", word(folder));
        let mut job = job(ranks, &script)?;
        job.policy.time_limit_ms = Some(TIME_LIMIT_MS);
        job.policy.stop.grace_ms = 10_000;
        for gang in &mut job.gangs {
            gang.needs.devices = devices;
            gang.program.checkpoint_dir = Some(folder.join("checkpoint").display().to_string());
        }
        let job = daemon.submit(job)?;
        let watch = Watch::start(daemon.paths(), job);
        let expects: Vec<&str> = expects.iter().copied().chain([FINISHES]).collect();
        let mut scene = Self {
            watch,
            daemon,
            kept,
            job,
            ranks,
            phalanx: tools.phalanx.clone(),
            finish,
            old_events: 0,
            late: Vec::new(),
            printed: None,
            injected: String::new(),
            fault_ms: None,
            at_fault: 0,
            noticed_ms: None,
            notes: Vec::new(),
            quotes: Vec::new(),
            checks: vec![None; expects.len()],
            expects,
            before: Vec::new(),
            after: Vec::new(),
            result: None,
        };
        scene.note(format!("started a gang of {ranks} ranks that writes a checkpoint every {EVERY} steps"));
        Ok(scene)
    }

    /// Waits for two checkpoints.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        self.reach(2 * EVERY + EVERY / 2)?;
        self.before = self.placed()?;
        Ok(())
    }

    /// Waits for something, whatever the job of the scene does.
    pub(super) fn wait<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
        let found =
            self.daemon.until_polled(what, POLL, || if is_over() { Some(None) } else { look().map(Some) })?;
        found.ok_or_else(|| "interrupted".to_owned())
    }

    /// Waits for something that needs the job to run.
    pub(super) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
        self.wait(what, || {
            // Looked at first: what came just before the end is seen.
            let ended = self.daemon.job(self.job).filter(|view| view.ending.is_some());
            let early = |view: JobView| Err(format!("the job ended before {what}: {}", how(&view)));
            look().map(Ok).or_else(|| ended.map(early))
        })?
    }

    pub(super) fn view(&self) -> Result<JobView, String> {
        match self.daemon.ask(Verb::Get { job: JobRef::Id(self.job) })? {
            Answer::Job(view) => Ok(*view),
            _ => Err("the daemon did not answer with the job".to_owned()),
        }
    }

    pub(super) fn gang(&self) -> Result<GangView, String> {
        self.view()?.gangs.into_iter().next().ok_or_else(|| "the job has no gang".to_owned())
    }

    /// `gpu-1: GPU 0-3` of each rank.
    pub(super) fn placed(&self) -> Result<Vec<String>, String> {
        let slots = self.gang()?.placement.map(|placement| placement.slots).unwrap_or_default();
        Ok(slots.iter().map(|slot| format!("{}: GPU {}", slot.node, slot.devices)).collect())
    }

    /// The last step that rank 0 completed.
    pub(super) fn step(&self) -> u64 {
        self.watch.last().map(|sample| sample.step).unwrap_or_default()
    }

    /// Waits for a step, of whatever attempt.
    pub(super) fn reach(&self, step: u64) -> Result<(), String> {
        self.until(&format!("step {step}"), || (self.step() >= step).then_some(()))
    }

    /// Waits for more steps than those that are done.
    pub(super) fn go_on(&self, steps: u64) -> Result<(), String> {
        self.reach(self.step() + steps)
    }

    /// Waits until Phalanx knows the pace of the gang: it reads the files of its ranks once a second.
    pub(super) fn paced(&self) -> Result<(), String> {
        let mut read = BTreeSet::new();
        self.until("the pace of the gang", || {
            read.extend(self.gang().ok()?.progress?.step);
            (read.len() >= READS).then_some(())
        })
    }

    /// The fault itself comes now.
    pub(super) fn inject(&mut self, what: impl Into<String>) -> Result<(), String> {
        self.old_events = self.view()?.events.len();
        (self.fault_ms, self.at_fault) = (Some(now_ms()), self.step());
        self.injected = what.into();
        self.note(self.injected.clone());
        Ok(())
    }

    /// Judges an expectation, by its number, once the job has ended.
    pub(super) fn at_end(&mut self, number: usize, late: Late) {
        self.late.push((number, late));
    }

    /// The drill did something.
    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.notes.push((now_ms(), what.into()));
    }

    /// Phalanx noticed the fault at this time.
    pub(super) fn noticed(&mut self, at_ms: u64) {
        self.noticed_ms.get_or_insert(at_ms);
    }

    pub(super) fn quote(&mut self, from: impl Into<String>, at_ms: Option<u64>, text: impl Into<String>) {
        self.quotes.push((from.into(), at_ms, text.into()));
    }

    /// What was found of an expectation, by its number.
    pub(super) fn check(&mut self, number: usize, holds: bool, found: impl Into<String>) {
        let (Some(slot), Some(expected)) = (self.checks.get_mut(number), self.expects.get(number)) else {
            return;
        };
        *slot = Some(Check { expected: (*expected).to_owned(), holds, found: found.into() });
    }

    /// The process of a rank in the current attempt.
    pub(super) fn pid(&self, rank: u32) -> Result<Pid, String> {
        let attempt = self.watch.last().map_or(1, |sample| sample.attempt);
        let file = self.daemon.folder().join(format!("pid-{attempt}-{rank}"));
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        text.trim().parse().map(Pid::from_raw).map_err(|e| format!("{}: {e}", file.display()))
    }

    pub(super) fn pids(&self) -> Result<Vec<Pid>, String> {
        (0..self.ranks).map(|rank| self.pid(rank)).collect()
    }

    /// How many processes of the ranks live.
    pub(super) fn alive(&self) -> u32 {
        (0..self.ranks).map(|rank| u32::from(self.pid(rank).is_ok_and(|pid| kill(pid, None).is_ok()))).sum()
    }

    pub(super) fn signal(&self, rank: u32, signal: Signal) -> Result<(), String> {
        kill(self.pid(rank)?, signal).map_err(|e| format!("{signal} to rank {rank}: {e}"))
    }

    /// The events of the job since the fault.
    fn events(&self) -> Result<Vec<EventView>, String> {
        Ok(self.view()?.events.into_iter().skip(self.old_events).collect())
    }

    /// Waits for an event of the job since the fault, with such a detail.
    pub(super) fn event(&self, what: &str, is_it: impl Fn(&str) -> bool) -> Result<EventView, String> {
        self.until(&format!("the event {what:?}"), || {
            self.events().ok()?.into_iter().find(|event| event.what == what && is_it(&event.detail))
        })
    }

    pub(super) fn last_event(&self, what: &str) -> Result<EventView, String> {
        let last = self.events()?.into_iter().rfind(|event| event.what == what);
        last.ok_or_else(|| format!("there is no event {what:?}"))
    }

    /// Waits until the gang runs in an attempt.
    pub(super) fn runs_again(&self, attempt: u32) -> Result<(), String> {
        self.until(&format!("attempt {attempt} runs"), || {
            let view = self.view().ok().filter(|view| view.state == "running")?;
            view.gangs.first().is_some_and(|gang| gang.attempt >= attempt).then_some(())
        })?;
        self.until("a step of it", || self.watch.last().is_some_and(|of| of.attempt >= attempt).then_some(()))
    }

    pub(super) fn health(&self) -> Result<HealthView, String> {
        match self.daemon.ask(Verb::Health { node: None })? {
            Answer::Health(view) => Ok(view),
            _ => Err("the daemon did not answer with health".to_owned()),
        }
    }

    /// What `phalanx why` prints of a job, in one line.
    pub(super) fn why(&self, job: JobId) -> Result<String, String> {
        let mut why = Command::new(&self.phalanx);
        let output =
            why.env("PHALANX_STATE", self.daemon.paths().root()).args(["why", &job.to_string()]).output();
        let output = output.map_err(|e| format!("phalanx why: {e}"))?;
        let lines = String::from_utf8_lossy(&output.stdout);
        // A table of the nodes follows after an empty line.
        let lines = lines.lines().take_while(|line| !line.is_empty());
        let lines = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        Ok(lines.collect::<Vec<_>>().join("; "))
    }

    /// What Phalanx says of a GPU, or of a node itself, that has at least this grade and such evidence.
    pub(super) fn line(&self, device: Option<u32>, least: Grade, evidence: &str) -> Option<Line> {
        let mut lines = self.health().ok()?.lines.into_iter();
        lines.find(|line| line.device == device && line.grade >= least && found_in(line, evidence).is_some())
    }

    /// Waits until a GPU, or a node itself, has at least this grade and such evidence, and quotes it.
    pub(super) fn graded(
        &mut self,
        device: Option<u32>,
        least: Grade,
        evidence: &str,
    ) -> Result<Line, String> {
        let what = format!("the grade {least} or worse with the evidence {evidence:?}");
        let line = self.until(&what, || self.line(device, least, evidence))?;
        let (at, detail) =
            found_in(&line, evidence).map_or((line.since, ""), |seen| (seen.at, seen.what.as_str()));
        self.noticed(at.0);
        let hardware = phalanx_local::protocol::hardware(&line.node, line.device);
        self.quote(
            "phalanx health -o json",
            Some(at.0),
            format!("{hardware} is graded {}: {detail}", line.grade),
        );
        Ok(line)
    }

    /// Lets the job end some steps after the fault, and checks its result and what is judged at the end; once.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        if self.checks.last().is_some_and(Option::is_some) {
            return Ok(());
        }
        let goes_on = match self.fault_ms {
            Some(_) => self.reach(self.at_fault + EVERY),
            None => Ok(()),
        };
        self.after = self.placed()?;
        let alive = self.alive();
        fs::write(&self.finish, "").map_err(|e| format!("{}: {e}", self.finish.display()))?;
        let view =
            self.wait("the end of the job", || self.view().ok().filter(|view| view.ending.is_some()))?;
        let (number, how) = (self.expects.len() - 1, how(&view));
        match self.verified(&view) {
            Ok(result) => {
                self.check(number, true, format!("the job {how}; {result}"));
                self.result = Some(result);
            }
            Err(why) => self.check(number, false, format!("the job {how}; {why}")),
        }
        for (number, late) in std::mem::take(&mut self.late) {
            let (holds, found) = self.judge(late, &view, alive);
            self.check(number, holds, found);
        }
        goes_on
    }

    /// Whether an expectation held until the end of the job, and what was found.
    fn judge(&self, late: Late, view: &JobView, alive: u32) -> (bool, String) {
        let attempt = view.gangs.first().map_or(0, |gang| gang.attempt);
        let again = self.steps().again;
        match late {
            Late::Stays => {
                let stops = view.events.iter().filter(|event| STOPS.contains(&event.what.as_str()));
                let stops: Vec<String> =
                    stops.map(|event| format!("{} {}", event.what, event.detail)).collect();
                let is_there = !self.before.is_empty() && self.after == self.before;
                let place = if is_there { "the nodes and GPUs of before" } else { "other nodes or GPUs" };
                let events = if stops.is_empty() { "none".to_owned() } else { stops.join("; ") };
                let found = format!(
                    "at the end: attempt {attempt}, {alive} of {} processes, on {place}; events of a stop: {events}",
                    self.ranks
                );
                (attempt == 1 && is_there && stops.is_empty() && alive == self.ranks, found)
            }
            Late::InAttempt(expected) => (attempt == expected, format!("the job ended in attempt {attempt}")),
            Late::FewAgain | Late::NoneAgain => {
                let most = if matches!(late, Late::FewAgain) { EVERY } else { 0 };
                // The job itself says from where it went on.
                let is_known = self.printed.is_some();
                let found = if is_known { "" } else { "; the job printed no result" };
                (is_known && again <= most, format!("{again} steps were done again{found}"))
            }
        }
    }

    /// What the job printed and saved, if that is the correct result.
    fn verified(&mut self, view: &JobView) -> Result<String, String> {
        if view.state != "succeeded" {
            return Err(format!("its exit code is {:?}", view.exit_code));
        }
        let log = LogAsk { rank: Some(0), ..LogAsk::default() };
        let verb = Verb::Logs { job: JobRef::Id(self.job), ask: log };
        let lines = ask(&self.daemon.paths().socket(), verb).map_err(|e| e.to_string())?;
        let text = lines.filter_map(|answer| match answer {
            Ok(Answer::Log { line, .. }) => line.strip_prefix("RESULT ").map(str::to_owned),
            _ => None,
        });
        let text = text.last().ok_or("rank 0 printed no result")?;
        let printed: RingResult =
            serde_json::from_str(&text).map_err(|e| format!("its result {text:?}: {e}"))?;
        let RingResult { world_size, steps, resumed_from, steps_measured, wrong, stopped } = printed;
        self.printed = Some(printed);
        let (ranks, reached) = (self.ranks, self.step());
        let is_whole = world_size == ranks
            && steps >= reached
            && resumed_from.checked_add(steps_measured) == Some(steps);
        if !is_whole || wrong != 0 || stopped {
            return Err(format!("its result is not that of {ranks} ranks and {reached} steps: {text}"));
        }
        for rank in 0..ranks {
            let file = self.daemon.folder().join(format!("checkpoint/rank-{rank}.ckpt"));
            let saved = fs::read_to_string(&file).unwrap_or_default();
            if saved.trim() != steps.to_string() {
                return Err(format!("the checkpoint of rank {rank} is {saved:?}, and not step {steps}"));
            }
        }
        Ok(format!(
            "{steps} steps, {wrong} wrong sums, the checkpoints of all {ranks} ranks are at step {steps}"
        ))
    }

    /// Where the steps of the gang began again, and how many were lost.
    fn steps(&self) -> Steps {
        let samples = self.watch.samples();
        let restarts = samples.windows(2).filter_map(|pair| match pair {
            // The first step of an attempt is the one after its checkpoint.
            [before, after] if after.attempt > before.attempt => {
                Some((before.step, after.step.saturating_sub(1)))
            }
            _ => None,
        });
        let mut restarts: Vec<(u64, u64)> = restarts.collect();
        let mut steps = Steps { at_fault: self.at_fault, ..Steps::default() };
        if let Some(printed) = &self.printed {
            steps.total = Some(printed.steps);
            // A first step may go by between two looks at the file.
            if let Some((_, from)) = restarts.last_mut() {
                *from = printed.resumed_from;
                steps.resumed_from = Some(printed.resumed_from);
            }
        }
        steps.again = restarts.iter().map(|(reached, from)| reached.saturating_sub(*from)).sum();
        let Some(fault) = self.fault_ms else { return steps };
        let gaps = samples.windows(2).filter(|pair| pair[1].at_ms >= fault);
        steps.pause_ms = gaps.map(|pair| pair[1].at_ms.saturating_sub(pair[0].at_ms)).max();
        steps
    }

    /// All that was seen.
    pub(super) fn seen(&self) -> Seen {
        let after = |at: u64| {
            let ms = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
            self.fault_ms.map(|fault| ms(at) - ms(fault))
        };
        let events = if self.fault_ms.is_some() { self.events().unwrap_or_default() } else { Vec::new() };
        let from_get = events.iter().map(|event| {
            let text = format!("{} {}", event.what, event.detail).trim().to_owned();
            let from = format!("phalanx get {} -o json", self.job);
            Quote { from, at_ms: after(event.at.0), text }
        });
        let given = self.quotes.iter().map(|(from, at, text)| Quote {
            from: from.clone(),
            at_ms: at.and_then(after),
            text: text.clone(),
        });
        let mut quotes: Vec<Quote> = from_get.chain(given).collect();
        quotes.sort_by_key(|quote| quote.at_ms);
        let checks = self.checks.iter().zip(&self.expects).map(|(check, expected)| {
            let missing =
                || Check { expected: (*expected).to_owned(), holds: false, found: "not reached".to_owned() };
            check.clone().unwrap_or_else(missing)
        });
        Seen {
            fault_ms: self.fault_ms,
            injected: self.injected.clone(),
            noticed_ms: self.noticed_ms,
            events,
            checks: checks.collect(),
            notes: self
                .notes
                .iter()
                .map(|(at, what)| Note { at_ms: after(*at), what: what.clone() })
                .collect(),
            quotes,
            steps: self.steps(),
            samples: self.watch.samples(),
            placed: [self.before.clone(), self.after.clone()],
            result: self.result.clone(),
        }
    }
}

/// How a job ended.
fn how(view: &JobView) -> String {
    if view.detail.is_empty() { view.state.clone() } else { format!("{}: {}", view.state, view.detail) }
}

/// Evidence with such words.
fn found_in<'a>(line: &'a Line, evidence: &str) -> Option<&'a Evidence> {
    line.evidence.iter().find(|seen| seen.what.contains(evidence))
}

/// What a scene leaves for its record.
pub(super) struct Seen {
    pub(super) fault_ms: Option<u64>,
    pub(super) injected: String,
    pub(super) noticed_ms: Option<u64>,
    /// Since the fault.
    pub(super) events: Vec<EventView>,
    pub(super) checks: Vec<Check>,
    pub(super) notes: Vec<Note>,
    pub(super) quotes: Vec<Quote>,
    pub(super) steps: Steps,
    pub(super) samples: Vec<super::record::Sample>,
    pub(super) placed: [Vec<String>; 2],
    pub(super) result: Option<String>,
}

/// What rank 0 of the ring prints at the end.
#[derive(Clone, Copy, serde::Deserialize)]
struct RingResult {
    world_size: u32,
    steps: u64,
    resumed_from: u64,
    steps_measured: u64,
    wrong: u64,
    stopped: bool,
}
