//! The end of a drill: the table on the terminal, both files, and the exit code.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::page;
use super::record::{Notice, Phases, Record, Report, Verdict, time};
use super::settings::Settings;
use crate::tables::{Table, write};

/// Shows and writes what was found. `left` says what may still run.
pub(super) fn end(report: &Report, settings: &Settings, left: &[String]) -> Result<(), String> {
    show(report);
    let mut written = Vec::new();
    if let Some(file) = &settings.json {
        write(file, &serde_json::to_string_pretty(&report).map_err(|e| e.to_string())?)?;
        written.push(file.display().to_string());
    }
    if let Some(file) = &settings.page {
        write(file, &page::page(report))?;
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

/// One fault, and how long it took; a panic is a failure of this fault alone.
pub(super) fn guarded(blank: impl Fn() -> Record, one: impl FnOnce() -> Record) -> Record {
    let began = Instant::now();
    let mut record = catch_unwind(AssertUnwindSafe(one)).unwrap_or_else(|panic| {
        let why = Some(format!("the drill panicked: {}", message(&*panic)));
        Record { verdict: Verdict::Failed, why, ..blank() }
    });
    record.took_ms = millis(began);
    eprintln!("{:<24} {:<11} {}", record.id, record.verdict.word(), span(record.took_ms));
    record
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

pub(super) fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn span(ms: u64) -> String {
    time(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Cores and memory.
pub(super) fn machine() -> String {
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
            "{}: {} faults in {}; times from the fault",
            report.setting.title,
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
