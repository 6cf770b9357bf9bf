//! `submit --dry-run`: the page a researcher decides by.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_api::protocol::{DryRunView, FirstFitView, PredictedView};
use phalanx_model::{Confidence, Job, Report};

use super::asked;
use super::placed::{self, Fleet};
use super::table::{Grid, cell, dim};
use super::time::micros;
use super::why::{self, Names, Told};
use super::{Page, clean, count, field};

/// Columns of the longest bar, and of what stands before it.
const BAR: u16 = 32;
const BAR_MIN: u16 = 8;
const BEFORE_BAR: u16 = 56;

/// Everything that the page needs beside the daemon's answer.
pub(crate) struct DryRun<'a> {
    pub(crate) job: &'a Job,
    pub(crate) view: &'a DryRunView,
    pub(crate) fleet: &'a Fleet,
    pub(crate) names: &'a Names,
}

pub(crate) fn page(page: &Page, dry_run: &DryRun<'_>) -> String {
    let DryRun { job, view, .. } = dry_run;
    let mut text = String::new();
    for (i, report) in view.reports.iter().enumerate() {
        let predicted = view.predicted.get(i).and_then(Option::as_ref);
        let first_fit = view.first_fit.get(i).and_then(Option::as_ref);
        text += &heading(job, report);
        text += &body(page, dry_run, report, predicted, first_fit);
    }
    if !page.quiet {
        let _ = writeln!(text, "\n{}", "Nothing was submitted. Times are predicted, not measured.".dimmed());
    }
    text
}

fn heading(job: &Job, report: &Report) -> String {
    let gang = job.gang_at(report.gang.index);
    let size = gang.map_or(0, |g| u64::from(g.size));
    let devices = gang.map_or_else(String::new, |g| asked::gpus(&g.needs, size) + &asked::roles(g));
    let together = gang.filter(|g| !g.topology.segments.is_empty());
    let together = together.map_or_else(String::new, |g| format!(", {}", asked::segments(g)));
    format!("{}  {}, {devices}{together}\n", clean(job.name.as_str()).bold(), count(size, "member"))
}

fn body(
    page: &Page,
    DryRun { view, fleet, names, .. }: &DryRun<'_>,
    report: &Report,
    predicted: Option<&PredictedView>,
    first_fit: Option<&FirstFitView>,
) -> String {
    let starts_now = report.estimated_start.is_some_and(|e| e.confidence == Confidence::Now);
    let mut text = String::new();
    if !starts_now {
        let reader = Told { page, names, is_submitted: false };
        let report = Report { nearest: None, ..report.clone() };
        let _ = write!(text, "\n{}", why::report_text(&reader, &report, fleet));
    }
    let Some(placement) = &report.nearest else { return text };
    let when = if starts_now {
        "would start now".green().bold().to_string()
    } else {
        "would then run".bold().to_string()
    };
    let _ = writeln!(text, "\n  {when} {}\n", placed::summary(placement));
    text += &placed::table(page, placement, fleet);
    if !page.quiet {
        let _ = writeln!(text, "  {}", placed::legend(page).dimmed());
    }
    if let Some(predicted) = predicted {
        let other = first_fit.filter(|_| starts_now);
        text += &format!("\n{}", comparison(page, predicted, other.map(|f| &f.predicted)));
        text.push('\n');
        field(&mut text, page, "predicted", &clean(&predicted.sentence));
        if let Some(other) = other {
            text += &first_fit_text(page, view, placement, other, predicted, fleet);
        }
    }
    text
}

/// Predicted step times as bars: communication full, computation hollow.
fn comparison(page: &Page, ours: &PredictedView, first_fit: Option<&PredictedView>) -> String {
    let longest = first_fit.map_or(0, |f| f.step_us).max(ours.step_us);
    let mut grid = Grid::new(page, &["", ">PER STEP", ">COMMUNICATION", ">BANDWIDTH", ""]).indented(2);
    let mut row = |name: &str, p: &PredictedView| {
        grid.row(vec![
            cell(name),
            cell(micros(p.step_us)),
            cell(micros(p.communication_us)),
            cell(bandwidth(p.bandwidth_bytes_per_s)),
            dim(bar(page, p, longest)),
        ]);
    };
    row("this placement", ours);
    if let Some(first_fit) = first_fit {
        row("first fit", first_fit);
    }
    grid.render()
}

fn first_fit_text(
    page: &Page,
    view: &DryRunView,
    placement: &phalanx_model::Placement,
    other: &FirstFitView,
    ours: &PredictedView,
    fleet: &Fleet,
) -> String {
    let mut text = String::new();
    if other.placement.slots == placement.slots {
        field(&mut text, page, "first fit", "counting devices alone would choose the same");
        return text;
    }
    let levels = view.levels.above.len();
    let inside = if levels > 1 { format!(" (inside one {})", other.placement.level) } else { String::new() };
    let place = placed::short(&other.placement, fleet);
    field(&mut text, page, "first fit", &format!("counting devices alone would take {place}{inside}"));
    field(&mut text, page, "", &verdict(page, ours.step_us, other.predicted.step_us));
    text
}

/// How the two step times compare, in tenths.
fn verdict(page: &Page, ours_us: u64, other_us: u64) -> String {
    let tenths = |a: u64, b: u64| (u128::from(a) * 10 + u128::from(b) / 2) / u128::from(b.max(1));
    let times = page.times();
    let (slower, faster) = (tenths(other_us, ours_us), tenths(ours_us, other_us));
    if slower > 10 {
        return format!("{}.{}{times} slower than this placement", slower / 10, slower % 10)
            .yellow()
            .to_string();
    }
    if faster > 10 {
        return format!("{}.{}{times} faster than this placement", faster / 10, faster % 10)
            .yellow()
            .to_string();
    }
    "as fast as this placement".to_owned()
}

fn bar(page: &Page, predicted: &PredictedView, longest: u64) -> String {
    let (full, hollow) = if page.ascii { ("#", "-") } else { ("█", "░") };
    let columns = page.width.map_or(BAR, |width| width.saturating_sub(BEFORE_BAR).clamp(BAR_MIN, BAR));
    let scaled = |us: u64| (u128::from(us) * u128::from(columns)).div_ceil(u128::from(longest.max(1)));
    let cells = |us: u64| usize::try_from(scaled(us)).unwrap_or(0);
    let communication = cells(predicted.communication_us);
    let all = cells(predicted.step_us).max(communication);
    full.repeat(communication) + &hollow.repeat(all - communication)
}

/// `45.0 GB/s`, one way.
pub(super) fn bandwidth(bytes_per_s: u64) -> String {
    match bytes_per_s {
        0 => "-".to_owned(),
        1..1_000_000_000 => format!("{} MB/s", bytes_per_s / 1_000_000),
        _ => format!("{}.{} GB/s", bytes_per_s / 1_000_000_000, bytes_per_s / 100_000_000 % 10),
    }
}
