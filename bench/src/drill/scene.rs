//! One fault: a daemon of its own, a gang job that writes checkpoints, and what is seen of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_api::client::ask;
use phalanx_api::protocol::{Answer, EventView, GangView, HealthView, JobRef, JobView, LogAsk, Verb};
use phalanx_health::{Line, Seen as Evidence};
use phalanx_model::{Grade, JobId};

use super::fake::Fake;
use super::findings::Findings;
use super::host::Disk;
use super::interrupt::is_over;
use super::phases::phases;
use super::record::{Record, Steps};
use super::ring::{EVERY, FINISHES, Printed, now_ms, steps};
use super::settings::Tools;
use super::watch::Watch;
use crate::daemon::{Daemon, Nodes, Setup, job, word};
use crate::network::Network;

/// Different steps that Phalanx has read before a fault whose detection compares the pace of the gang with the usual one.
const READS: usize = 4;
const POLL: Duration = Duration::from_millis(20);
/// Of one attempt: nothing that a drill started runs for longer. The drill itself ends a job as soon as its fault is judged.
const TIME_LIMIT_MS: u64 = 60 * 60_000;
/// Events of a gang that is stopped or moved.
const STOPS: [&str; 3] = ["stopping", "preempted", "requeued"];

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
    printed: Option<Printed>,
    pub(super) found: Findings,
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
            found: Findings::new(expects, &[FINISHES]),
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
        let step = self.step();
        self.found.inject(now_ms(), step, what.into());
        Ok(())
    }

    /// Judges an expectation, by its number, once the job has ended.
    pub(super) fn at_end(&mut self, number: usize, late: Late) {
        self.late.push((number, late));
    }

    /// The drill did something.
    pub(super) fn note(&mut self, what: impl Into<String>) {
        self.found.note(now_ms(), what);
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
        self.found.noticed(at.0);
        let hardware = phalanx_api::protocol::hardware(&line.node, line.device);
        self.found.quote(
            "phalanx health -o json",
            Some(at.0),
            format!("{hardware} is graded {}: {detail}", line.grade),
        );
        Ok(line)
    }

    /// Lets the job end some steps after the fault, and checks its result and what is judged at the end; once.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        if self.found.are_finished() {
            return Ok(());
        }
        let goes_on = match self.found.fault_ms {
            Some(_) => self.reach(self.found.at_fault + EVERY),
            None => Ok(()),
        };
        self.after = self.placed()?;
        let alive = self.alive();
        fs::write(&self.finish, "").map_err(|e| format!("{}: {e}", self.finish.display()))?;
        let view =
            self.wait("the end of the job", || self.view().ok().filter(|view| view.ending.is_some()))?;
        let (number, how) = (self.found.number(FINISHES).unwrap_or_default(), how(&view));
        match self.verified(&view) {
            Ok(result) => {
                self.found.check(number, true, format!("the job {how}; {result}"));
                self.result = Some(result);
            }
            Err(why) => self.found.check(number, false, format!("the job {how}; {why}")),
        }
        for (number, late) in std::mem::take(&mut self.late) {
            let (holds, found) = self.judge(late, &view, alive);
            self.found.check(number, holds, found);
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
        let lines = lines.filter_map(|answer| match answer {
            Ok(Answer::Log { line, .. }) => Some(line),
            _ => None,
        });
        let printed = Printed::of_lines(lines)?;
        self.printed = Some(printed);
        printed.verified(self.ranks, self.step(), &self.daemon.folder().join("checkpoint"))
    }

    /// Where the steps of the gang began again, and how many were lost.
    fn steps(&self) -> Steps {
        let Findings { at_fault, fault_ms, .. } = self.found;
        steps(&self.watch.samples(), self.printed.as_ref(), at_fault, fault_ms)
    }

    /// Puts all that was seen into the record of the fault.
    pub(super) fn record(&mut self, record: &mut Record) {
        let events =
            if self.found.fault_ms.is_some() { self.events().unwrap_or_default() } else { Vec::new() };
        for event in &events {
            let text = format!("{} {}", event.what, event.detail).trim().to_owned();
            self.found.quote(format!("phalanx get {} -o json", self.job), Some(event.at.0), text);
        }
        self.found.fill(record);
        record.samples = self.watch.samples();
        record.phases = phases(&self.found, &events, &record.samples);
        record.steps = self.steps();
        record.placed = [self.before.clone(), self.after.clone()];
        record.result.clone_from(&self.result);
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
