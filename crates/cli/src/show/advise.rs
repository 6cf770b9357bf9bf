//! `advise`: what jobs should ask for next time, and why.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_account::advice::{Advice, Charged, EFFICIENCY_MIN_PERCENT, Pace, RUNS_MIN, What};
use phalanx_api::protocol::{AdviceView, JobAdvice};
use phalanx_model::show::milli;
use phalanx_spec::quantity::format_memory;

use super::bill::{decimal, exact, hours, money, write};
use super::table::{Grid, cell, dim};
use super::time::span;
use super::{Page, clean, count, nothing};
use crate::failure::Failure;

/// A block for each name of jobs; with `has_all` also for those without advice.
pub(crate) fn page(page: &Page, view: &AdviceView, has_all: bool) -> String {
    if view.jobs.is_empty() {
        return nothing(page, "no job ran in this time");
    }
    let mut text = String::new();
    let mut silent = 0;
    for job in &view.jobs {
        if job.advice.is_empty() && !has_all {
            silent += 1;
            continue;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "{} {}", clean(&job.name).bold(), title(job).dimmed());
        text += &block(page, job);
    }
    if page.quiet {
        return text;
    }
    if text.is_empty() {
        text = nothing(page, "no advice");
    }
    let _ = writeln!(text, "\n{}", footer(page, view, silent).dimmed());
    text
}

/// `of alice: 12 runs in 9d 2h, 240.000 GPU-hours`.
fn title(job: &JobAdvice) -> String {
    let runs = count(job.runs.into(), "run");
    let mut text = format!("of {}: {runs} in {}", clean(&job.user), span(job.span_ms));
    if job.charged.device_us > 0 {
        let _ = write!(text, ", {} GPU-hours", hours(job.charged.device_us));
    }
    text
}

fn block(page: &Page, job: &JobAdvice) -> String {
    let mut grid = Grid::new(page, &["", ""]).indented(2);
    for (at, advice) in job.advice.iter().enumerate() {
        if at > 0 {
            grid.row(vec![cell(" "), cell("")]);
        }
        let ask = match instead_of(&advice.what) {
            Some(now) => format!("{}, instead of {now}", ask_for(&advice.what)),
            None => ask_for(&advice.what),
        };
        grid.row(vec![dim("ask for"), cell(ask)]);
        grid.row(vec![dim("why"), cell(why(advice))]);
        grid.row(vec![dim("saves"), cell(saves(advice))]);
    }
    if job.advice.is_empty() {
        grid.row(vec![dim("no advice"), cell(no_advice(job))]);
    }
    grid.render()
}

fn no_advice(job: &JobAdvice) -> String {
    if (job.runs as usize) < RUNS_MIN {
        return format!("advice takes at least {RUNS_MIN} runs");
    }
    match job.sampled_runs {
        0 => "the use of GPUs is unknown in all of its runs; its other requests match its runs".to_owned(),
        known => format!("its requests match its runs, or too few tell; the use of GPUs is known in {known}"),
    }
}

/// As it is written in a job file.
fn ask_for(what: &What) -> String {
    match what {
        What::Gpus { next, .. } => format!("gpus: {next}"),
        What::Share { next_milli, next_bytes, .. } => {
            let (compute, memory) = (milli((*next_milli).into()), format_memory(*next_bytes));
            format!("gpus: {{share: {{compute: {compute}, memory: {memory}}}}}")
        }
        What::Mig { next_sevenths, next_bytes, .. } => {
            format!("gpus: {{mig: {{compute: {next_sevenths}/7, memory: {}}}}}", format_memory(*next_bytes))
        }
        What::Model { next, .. } => format!("model {}", clean(next)),
        What::Width { next, is_of_ranks: true, .. } => format!("ranks: {next}"),
        What::Width { next, .. } => format!("gpus: {next} in all"),
        What::TimeLimit { next_ms, .. } => format!("time_limit: {}", phalanx_model::show::span(*next_ms)),
        What::Checkpoint { next_ms, .. } => format!("a checkpoint every {}", span(*next_ms)),
    }
}

fn instead_of(what: &What) -> Option<String> {
    Some(match what {
        What::Gpus { now, .. } | What::Width { now, .. } => now.to_string(),
        What::Share { .. } | What::Mig { .. } => "a whole GPU for each rank".to_owned(),
        What::Model { now, .. } => clean(now),
        What::TimeLimit { now_ms, .. } => now_ms.map(phalanx_model::show::span)?,
        What::Checkpoint { now_ms, .. } => span(*now_ms),
    })
}

/// One sentence without a full stop: what was measured, in how many runs, over which time.
fn why(advice: &Advice) -> String {
    let measured = match &advice.what {
        What::Gpus { now, busy_gpus: 0, .. } => {
            format!("no kernel ran on its {}, and no memory was in use", count((*now).into(), "GPU"))
        }
        What::Gpus { now, busy_gpus, .. } if busy_gpus < now => {
            format!("kernels ran or memory was in use on {busy_gpus} of its {now} GPUs")
        }
        What::Gpus { busy_percent, .. } => {
            format!("its GPUs were busy for at most {busy_percent} % of the time")
        }
        What::Share { busy_percent, peak_bytes, device_bytes, .. }
        | What::Mig { busy_percent, peak_bytes, device_bytes, .. } => format!(
            "its busiest GPU was busy for at most {busy_percent} % of the time, and {}",
            memory(*peak_bytes, *device_bytes)
        ),
        What::Model { next_device_bytes, peak_bytes, device_bytes, .. } => format!(
            "{}, and the smaller model has {}; how fast the job is there is not measured",
            memory(*peak_bytes, *device_bytes),
            format_memory(*next_device_bytes)
        ),
        What::Width { measured, .. } => widths(measured),
        What::TimeLimit { now_ms, longest_ms, median_ms, .. } => {
            let (longest, median) = (span(*longest_ms), span(*median_ms));
            let without = if now_ms.is_none() { "it has no limit; " } else { "" };
            format!("{without}the longest run took {longest}, the median {median}")
        }
        What::Checkpoint { takes_ms, loss_every_ms, .. } => format!(
            "a checkpoint takes {}, and its nodes are expected to be lost every {} (Young's formula)",
            phalanx_model::show::span(*takes_ms),
            span(*loss_every_ms)
        ),
    };
    format!("{measured}; {} in {}", count(advice.runs.into(), "run"), span(advice.span_ms))
}

fn memory(peak_bytes: u64, device_bytes: u64) -> String {
    format!("at most {} of {} of memory were in use", format_memory(peak_bytes), format_memory(device_bytes))
}

/// `2: 2.5 steps/s, 4: 4.545 steps/s (90 % efficient)`.
fn widths(measured: &[Pace]) -> String {
    let one = |pace: &Pace| {
        let Pace { width, runs, milli_steps_per_s, efficiency_percent } = pace;
        let runs = count((*runs).into(), "run");
        format!("{width}: {} steps/s, {efficiency_percent} % efficient ({runs})", milli(*milli_steps_per_s))
    };
    let pairs: Vec<String> = measured.iter().map(one).collect();
    format!("the widest with at least {EFFICIENCY_MIN_PERCENT} % is advised; measured {}", pairs.join(", "))
}

fn saves(advice: &Advice) -> String {
    let Charged { device_us, cost_micro } = advice.saves;
    let time = (device_us > 0).then(|| format!("{} GPU-hours", hours(device_us)));
    let cost = (cost_micro > 0).then(|| format!("{} by declared prices", money(cost_micro)));
    let amounts: Vec<String> = time.into_iter().chain(cost).collect();
    if !amounts.is_empty() {
        return format!("{} a month", amounts.join(", "));
    }
    match &advice.what {
        What::TimeLimit { next_ms, .. } => {
            format!("no GPU time; the job can start in gaps of {}", span(*next_ms))
        }
        What::Width { now, next, .. } if next > now => "no GPU time; the job ends sooner".to_owned(),
        What::Model { .. } => "no GPU time; larger GPUs stay free for jobs that need them".to_owned(),
        _ => "nothing was charged yet".to_owned(),
    }
}

fn footer(page: &Page, view: &AdviceView, silent: u64) -> String {
    let mut text =
        format!("runs since {}; savings continue their rate, and do not add up", page.date(view.since));
    if silent > 0 {
        let names = count(silent, "job name");
        let _ = write!(text, "\nno advice for {names}; phalanx advise --job NAME says why");
    }
    text
}

/// One row for each piece of advice.
pub(crate) fn csv(view: &AdviceView) -> Result<String, Failure> {
    let headings = [
        "job",
        "user",
        "advice",
        "ask_for",
        "instead_of",
        "runs",
        "span_s",
        "gpu_hours_saved_per_month",
        "cost_saved_per_month",
        "why",
    ];
    let of_job = |job: &JobAdvice| {
        let row = |advice: &Advice| {
            vec![
                clean(&job.name),
                clean(&job.user),
                advice.what.word().to_owned(),
                ask_for(&advice.what),
                instead_of(&advice.what).unwrap_or_default(),
                advice.runs.to_string(),
                (advice.span_ms / 1_000).to_string(),
                exact(advice.saves.device_us),
                decimal(advice.saves.cost_micro.into()),
                why(advice),
            ]
        };
        job.advice.iter().map(row).collect::<Vec<_>>()
    };
    write(&headings, view.jobs.iter().flat_map(of_job))
}
