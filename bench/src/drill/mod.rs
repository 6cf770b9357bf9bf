//! A fault drill: real daemons and gangs of real processes on one machine, one fault after another, and a report.
//!
//! | module | what lives there |
//! |---|---|
//! | `catalogue` | the faults, and what is expected of Phalanx |
//! | `scene` | one fault: its daemon, its gang, and what is seen of them |
//! | `ranks`, `hardware`, `host` | how faults are injected |
//! | `interrupt` | Ctrl-C |
//! | `watch` | steps of a gang over time |
//! | `record`, `phases` | what is recorded of a fault |
//! | `page`, `strip` | the report as a page, and its pictures |

mod catalogue;
mod hardware;
mod host;
mod interrupt;
mod page;
mod phases;
mod ranks;
mod record;
mod scene;
mod strip;
#[cfg(test)]
mod tests;
mod watch;

#[path = "../../../crates/discover/tests/common/fake.rs"]
mod fake;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use catalogue::{FAULTS, Fault};
use interrupt::is_over;
use phases::phases;
use record::{Notice, Phases, Record, Report, Steps, Verdict, time};
use scene::{Scene, Seen, Tools, Unplanned};
use watch::now_ms;

use crate::daemon::{beside, left};
use crate::tables::{Table, write};

/// Faults at once, each with a daemon of its own: most of the time a drill waits.
const LANES: usize = 3;
/// The fault that takes longest: a job is stalled after a minute.
const FIRST: &str = "rank-frozen";

#[derive(Default)]
struct Settings {
    page: Option<PathBuf>,
    json: Option<PathBuf>,
    only: Vec<String>,
    is_dev: bool,
}

impl Settings {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut settings = Self::default();
        let mut args = args.iter();
        while let Some(flag) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{flag} has no value"));
            match flag.as_str() {
                "--page" => settings.page = Some(value()?.into()),
                "--json" => settings.json = Some(value()?.into()),
                "--only" => settings.only.push(value()?.clone()),
                "--dev" => settings.is_dev = true,
                other => {
                    return Err(format!("{other}: drill [--page FILE] [--json FILE] [--only FAULT] [--dev]"));
                }
            }
        }
        let ids = || FAULTS.iter().map(|fault| fault.id);
        match settings.only.iter().find(|only| !ids().any(|id| id == only.as_str())) {
            Some(unknown) => Err(format!(
                "no fault is called {unknown:?}; faults are {}",
                ids().collect::<Vec<_>>().join(", ")
            )),
            None => Ok(settings),
        }
    }

    fn tools(&self) -> Result<Tools, String> {
        let find = |name: &str, package: &str| {
            if !self.is_dev {
                return beside(name, package);
            }
            let own = std::env::current_exe().map_err(|e| e.to_string())?;
            let target =
                own.parent().and_then(|folder| folder.parent()).ok_or("this executable has no folder")?;
            let path = target.join("debug").join(name);
            let missing = || format!("{} is missing: cargo build -p {package}", path.display());
            path.exists().then(|| path.clone()).ok_or_else(missing)
        };
        Ok(Tools {
            phalanx: find("phalanx", "phalanx-cli")?,
            ring: find("ring-allreduce", "phalanx-examples")?,
        })
    }
}

pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let settings = Settings::parse(args)?;
    let tools = settings.tools()?;
    let is_wanted =
        |fault: &&Fault| settings.only.is_empty() || settings.only.iter().any(|id| id == fault.id);
    let faults: Vec<&Fault> = FAULTS.iter().filter(is_wanted).collect();
    interrupt::watch()?;
    let (began_ms, began) = (now_ms(), Instant::now());
    let records = drill(&tools, &faults);
    let left = left();
    if is_over() {
        let jobs =
            if left.is_empty() { "all jobs of the drill were cancelled".to_owned() } else { left.join("; ") };
        return Err(format!("interrupted; {jobs}"));
    }
    let report = Report {
        began_ms,
        took_ms: millis(began),
        version: env!("CARGO_PKG_VERSION"),
        machine: machine(),
        faults: records,
    };
    show(&report);
    let mut written = Vec::new();
    if let Some(file) = &settings.json {
        write(file, &serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?)?;
        written.push(file.display().to_string());
    }
    if let Some(file) = &settings.page {
        write(file, &page::page(&report))?;
        written.push(file.display().to_string());
    }
    if !written.is_empty() {
        println!("wrote {}", written.join(" and "));
    }
    if !left.is_empty() {
        return Err(left.join("; "));
    }
    match report.count(Verdict::Failed) {
        0 if report.is_empty() => Err("no fault was injected: the machine lacks what they need".to_owned()),
        0 => Ok(()),
        failed => Err(format!("{failed} of {} faults failed", report.faults.len())),
    }
}

/// The table on the terminal, and what is wrong.
fn show(report: &Report) {
    println!("{}\n{}", table(report).text(), report.summary());
    for fault in &report.faults {
        if let Some(why) = &fault.why {
            println!("  {}: {}: {why}", fault.id, fault.verdict.word());
        }
        for check in fault.checks.iter().filter(|check| !check.holds) {
            println!("  {}: expected that {}; found: {}", fault.id, check.expected, check.found);
        }
    }
}

/// All faults, some at once; their records in the order of the faults.
fn drill(tools: &Tools, faults: &[&Fault]) -> Vec<Record> {
    let mut order: Vec<usize> = (0..faults.len()).collect();
    order.sort_by_key(|at| faults[*at].id != FIRST);
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Record)>> = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for _ in 0..LANES.min(faults.len()) {
            threads.spawn(|| {
                while let Some(at) = order.get(next.fetch_add(1, Ordering::SeqCst)).filter(|_| !is_over()) {
                    let record = one_or_panic(tools, faults[*at]);
                    eprintln!("{:<20} {:<11} {}", record.id, record.verdict.word(), span(record.took_ms));
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((*at, record));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, record)| record).collect()
}

/// One fault; a panic is a failure of this fault alone.
fn one_or_panic(tools: &Tools, fault: &Fault) -> Record {
    let began = Instant::now();
    let has_job = Cell::new(false);
    let record = catch_unwind(AssertUnwindSafe(|| one(tools, fault, &has_job))).unwrap_or_else(|panic| {
        let why = Some(format!("the drill panicked: {}", message(&*panic)));
        Record { verdict: Verdict::Failed, why, took_ms: millis(began), ..blank(fault) }
    });
    Record { has_job: has_job.get(), ..record }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Of a fault that was not tried.
fn blank(fault: &Fault) -> Record {
    Record {
        id: fault.id,
        title: fault.title,
        basis: fault.basis,
        notice: fault.notice,
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

/// One fault, from the start of its daemon to the end of its job.
fn one(tools: &Tools, fault: &Fault, has_job: &Cell<bool>) -> Record {
    let began = Instant::now();
    let mut record = Record { verdict: Verdict::Failed, ..blank(fault) };
    let plan = match (fault.plan)() {
        Ok(plan) => plan,
        Err(Unplanned::Missing(why)) => {
            return Record { verdict: Verdict::PassedOver, why: Some(why), ..record };
        }
        Err(Unplanned::Failed(why)) => return Record { why: Some(why), ..record },
    };
    let mut scene = match Scene::start(tools, plan, fault.expects) {
        Ok(scene) => scene,
        Err(why) => return Record { why: Some(why), took_ms: millis(began), ..record },
    };
    has_job.set(true);
    let injected = scene.begin().and_then(|()| (fault.inject)(&mut scene));
    // Whatever became of the fault, the job is to finish.
    let ended = scene.finish();
    let ended = injected.and(ended);
    let seen = scene.seen();
    record.phases = phases(&seen);
    let Seen { checks, notes, quotes, steps, samples, placed, result, fault_ms, injected, .. } = seen;
    record = Record {
        checks,
        done: notes,
        noticed: quotes,
        injected,
        fault_ms,
        steps,
        result,
        placed,
        samples,
        ..record
    };
    match ended {
        Ok(()) if record.checks.iter().all(|check| check.holds) => record.verdict = Verdict::Passed,
        Ok(()) => {}
        Err(why) => {
            record.why = Some(format!("{why}; the daemon logged last: {}", scene.daemon.last_lines()));
        }
    }
    drop(scene);
    record.took_ms = millis(began);
    record
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn span(ms: u64) -> String {
    time(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Cores and memory.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let memory = kib.map(|kib| format!(", {} GiB of memory", kib >> 20)).unwrap_or_default();
    format!("one machine with {cores} cores{memory}")
}

fn table(report: &Report) -> Table {
    let of = |ms: Option<i64>| ms.map_or_else(String::new, time);
    let rows = report.faults.iter().map(|fault| {
        let Phases { noticed_ms, stopped_ms, running_ms, first_step_ms, .. } = fault.phases;
        let skipped = fault.verdict == Verdict::PassedOver;
        vec![
            fault.id.to_owned(),
            fault.verdict.word().to_owned(),
            if fault.notice == Notice::Drill && noticed_ms.is_some() {
                "by the drill".to_owned()
            } else {
                of(noticed_ms)
            },
            of(stopped_ms),
            of(running_ms),
            of(first_step_ms),
            if fault.fault_ms.is_none() { String::new() } else { fault.steps.again.to_string() },
            fault.steps.pause_ms.map_or_else(String::new, span),
            if skipped {
                "not started"
            } else if !fault.has_job {
                "not run"
            } else if fault.result.is_some() {
                "correct"
            } else {
                "NOT CORRECT"
            }
            .to_owned(),
        ]
    });
    Table {
        title: format!(
            "Fault drill: {} faults in {}; times from the fault",
            report.faults.len(),
            span(report.took_ms)
        ),
        columns: vec![
            "fault",
            "verdict",
            "noticed",
            "stopped",
            "running",
            "first step",
            "again",
            "pause",
            "job",
        ],
        rows: rows.collect(),
    }
}
