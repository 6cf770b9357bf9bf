//! One fault: a daemon of its own, a gang job that writes checkpoints, and what is seen of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_health::Line;
use phalanx_local::client::ask;
use phalanx_local::protocol::{Answer, EventView, GangView, HealthView, JobRef, JobView, LogAsk, Verb};
use phalanx_model::{Grade, JobId};

use super::fake::Fake;
use super::host::Disk;
use super::interrupt::is_over;
use super::record::{Check, Note, Quote, Steps};
use super::watch::{Watch, now_ms};
use crate::daemon::{Daemon, Nodes, Setup, job};
use crate::network::Network;

/// Ranks write a checkpoint every so many steps.
pub(super) const EVERY: u64 = 10;
/// Different steps that Phalanx has read before a fault whose detection compares the pace of the gang with the usual one.
const READS: usize = 4;
const POLL: Duration = Duration::from_millis(20);
/// Of one attempt: nothing that a drill started runs for longer.
const TIME_LIMIT_MS: u64 = 10 * 60_000;
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
    pub(super) steps: u64,
    /// What a rank computes in a step takes so long.
    pub(super) step_ms: u64,
    pub(super) kept: Kept,
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
    total: u64,
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
    /// Starts the daemon and the job, and waits for a checkpoint.
    pub(super) fn start(tools: &Tools, plan: Plan, expects: &[&'static str]) -> Result<Self, String> {
        let Plan { nodes, queues, ranks, devices, steps, step_ms, kept } = plan;
        let state = kept.disk.as_ref().map(|disk| disk.path().join("state"));
        let setup = Setup { phalanx: tools.phalanx.clone(), nodes, queues: queues.to_owned(), state };
        let daemon = Daemon::start_with(setup)?;
        let (folder, ring) = (daemon.folder(), tools.ring.display());
        let ring = format!(
            "{ring} --bytes 256KiB --warmup 0 --steps {steps} --step-sleep-ms {step_ms} --checkpoint-every {EVERY} \
             --timeout-s 300"
        );
        let script = kept
            .network
            .as_ref()
            .map_or_else(|| format!("exec {ring}"), |network| network.script(folder, &ring));
        let script = format!("echo $$ > {}/pid-$PHALANX_ATTEMPT-$PHALANX_RANK\n{script}", folder.display());
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
            total: steps,
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
        let gang = format!(
            "started a gang of {ranks} ranks that runs {steps} steps with a checkpoint every {EVERY}"
        );
        scene.notes.push((now_ms(), gang));
        scene.reach(2 * EVERY + EVERY / 2)?;
        scene.before = scene.placed()?;
        Ok(scene)
    }

    pub(super) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T, String> {
        let found =
            self.daemon.until_polled(what, POLL, || if is_over() { Some(None) } else { look().map(Some) })?;
        found.ok_or_else(|| "interrupted".to_owned())
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
    pub(super) fn inject(&mut self, what: impl Into<String>) {
        (self.fault_ms, self.at_fault) = (Some(now_ms()), self.step());
        self.injected = what.into();
        self.note(self.injected.clone());
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

    pub(super) fn signal(&self, rank: u32, signal: Signal) -> Result<(), String> {
        kill(self.pid(rank)?, signal).map_err(|e| format!("{signal} to rank {rank}: {e}"))
    }

    /// Waits for an event of the job; fails as soon as the job has ended without it.
    pub(super) fn event(&self, what: &str) -> Result<EventView, String> {
        let found = self.until(&format!("the event {what:?}"), || {
            let view = self.view().ok()?;
            let has_ended = view.ending.is_some();
            let event = view.events.into_iter().find(|event| event.what == what);
            if has_ended || event.is_some() { Some(event) } else { None }
        })?;
        found.ok_or_else(|| format!("the job ended without the event {what:?}"))
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

    /// Waits until a GPU, or a node itself, has evidence and at least this grade, and quotes it.
    pub(super) fn graded(&mut self, device: Option<u32>, least: Grade) -> Result<Line, String> {
        let line = self.until(&format!("the grade {least}"), || {
            let lines = self.health().ok()?.lines;
            lines.into_iter().find(|line| line.device == device && line.grade >= least)
        })?;
        let at = line.evidence.first().map_or(line.since, |seen| seen.at);
        self.noticed(at.0);
        let hardware = phalanx_local::protocol::hardware(&line.node, line.device);
        let detail = line.evidence.first().map_or(line.detail.as_str(), |seen| seen.what.as_str());
        self.quote(
            "phalanx health -o json",
            Some(at.0),
            format!("{hardware} is graded {}: {detail}", line.grade),
        );
        Ok(line)
    }

    /// Waits for the end of the job, and checks its result; once.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        if self.checks.last().is_some_and(Option::is_some) {
            return Ok(());
        }
        self.after = self.placed()?;
        let view =
            self.until("the end of the job", || self.view().ok().filter(|view| view.ending.is_some()))?;
        let number = self.expects.len() - 1;
        let how = if view.detail.is_empty() {
            view.state.clone()
        } else {
            format!("{}: {}", view.state, view.detail)
        };
        match self.verified(&view) {
            Ok(result) => {
                self.check(number, true, format!("the job {how}; {result}"));
                self.result = Some(result);
            }
            Err(why) => self.check(number, false, format!("the job {how}; {why}")),
        }
        Ok(())
    }

    /// What the job printed and saved, if that is the correct result.
    fn verified(&self, view: &JobView) -> Result<String, String> {
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
        let is_whole =
            world_size == self.ranks && steps == self.total && resumed_from + steps_measured == steps;
        if !is_whole || wrong != 0 || stopped {
            return Err(format!("its result is not that of {} steps: {text}", self.total));
        }
        for rank in 0..self.ranks {
            let file = self.daemon.folder().join(format!("checkpoint/rank-{rank}.ckpt"));
            let saved = fs::read_to_string(&file).unwrap_or_default();
            if saved.trim() != steps.to_string() {
                return Err(format!("the checkpoint of rank {rank} is {saved:?}, and not step {steps}"));
            }
        }
        let ranks = self.ranks;
        Ok(format!(
            "{steps} of {steps} steps, {wrong} wrong sums, the checkpoints of all {ranks} ranks are at step {steps}"
        ))
    }

    /// Where the steps of the gang began again, and how many were lost.
    fn steps(&self) -> Steps {
        let samples = self.watch.samples();
        let mut steps = Steps { total: self.total, at_fault: self.at_fault, ..Steps::default() };
        for pair in samples.windows(2) {
            if let [before, after] = pair
                && after.attempt > before.attempt
            {
                // The first step of an attempt is the one after its checkpoint.
                let from = after.step.saturating_sub(1);
                steps.resumed_from = Some(from);
                steps.again += before.step.saturating_sub(from);
            }
        }
        let Some(fault) = self.fault_ms else { return steps };
        let gaps = samples.windows(2).filter(|pair| pair[1].at_ms >= fault);
        steps.pause_ms = gaps.map(|pair| pair[1].at_ms.saturating_sub(pair[0].at_ms)).max();
        steps
    }

    /// Completed steps that were lost so far.
    pub(super) fn steps_again(&self) -> u64 {
        self.steps().again
    }

    /// All that was seen.
    pub(super) fn seen(&self) -> Seen {
        let view = self.view().ok();
        let fault = self.fault_ms.unwrap_or_default();
        let after =
            |at: u64| i64::try_from(at).unwrap_or(i64::MAX) - i64::try_from(fault).unwrap_or(i64::MAX);
        let events: Vec<EventView> = view.map(|view| view.events).unwrap_or_default();
        let from_get =
            events.iter().filter(|event| self.fault_ms.is_some() && event.at.0 + 5 >= fault).map(|event| {
                let text = format!("{} {}", event.what, event.detail).trim().to_owned();
                let from = format!("phalanx get {} -o json", self.job);
                Quote { from, at_ms: Some(after(event.at.0)), text }
            });
        let given = self.quotes.iter().map(|(from, at, text)| Quote {
            from: from.clone(),
            at_ms: at.map(after),
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

/// What a scene leaves for its record.
pub(super) struct Seen {
    pub(super) fault_ms: Option<u64>,
    pub(super) injected: String,
    pub(super) noticed_ms: Option<u64>,
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
#[derive(serde::Deserialize)]
struct RingResult {
    world_size: u32,
    steps: u64,
    resumed_from: u64,
    steps_measured: u64,
    wrong: u64,
    stopped: bool,
}
