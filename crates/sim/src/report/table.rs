//! A comparison for a terminal: figures, then how many times the best each is.

use std::fmt::Write;

use super::{PolicyReport, Report};

/// One column.
struct Column {
    /// Stands over several columns.
    group: &'static str,
    name: &'static str,
    kind: Kind,
    of: fn(&PolicyReport) -> f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Seconds; less is better.
    Time,
    /// More is better.
    Percent,
    /// Less is better.
    Ratio,
    /// Less is better, and 0 is common, so there is no ratio to the best.
    Share,
    Count,
    /// The same two, left out where all are 0.
    RareShare,
    RareCount,
}

/// When jobs end, and how evenly.
const ENDS: [Column; 15] = [
    column("completion", "mean", Kind::Time, |p| p.metrics.completion_s.mean),
    column("completion", "p50", Kind::Time, |p| p.metrics.completion_s.p50),
    column("completion", "p99", Kind::Time, |p| p.metrics.completion_s.p99),
    column("waited", "mean", Kind::Time, |p| p.metrics.waited_s.mean),
    column("waited", "p99", Kind::Time, |p| p.metrics.waited_s.p99),
    column("makespan", "", Kind::Time, |p| p.metrics.makespan_s),
    column("GPUs %", "held", Kind::Percent, |p| p.metrics.allocated_percent),
    column("GPUs %", "useful", Kind::Percent, |p| p.metrics.useful_percent),
    column("fairness rho", "mean", Kind::Ratio, |p| p.metrics.fairness.mean),
    column("fairness rho", "worst", Kind::Ratio, |p| p.metrics.fairness.worst),
    column("fairness rho", "% >1.05", Kind::Share, |p| p.metrics.fairness.unfair_percent),
    column("killed", "jobs", Kind::RareCount, |p| p.metrics.killed as f64),
    column("stopped", "times", Kind::Count, |p| p.metrics.preemptions as f64),
    column("lost", "GPU-h", Kind::Count, |p| p.metrics.lost_gpu_hours),
    column("leaves", "/least", Kind::Ratio, |p| p.metrics.leaves_over_least),
];

/// Where the device time that jobs held went, in percent of it, and what that came to.
const TIME: [Column; 12] = [
    column("of the GPU time held, %", "useful", Kind::Share, |p| part(p, p.metrics.gpu_hours.useful)),
    column("of the GPU time held, %", "starts", Kind::Share, |p| part(p, p.metrics.gpu_hours.starting)),
    column("of the GPU time held, %", "saving", Kind::Share, |p| part(p, p.metrics.gpu_hours.saving)),
    column("of the GPU time held, %", "lost nodes", Kind::Share, |p| part(p, p.metrics.gpu_hours.lost_nodes)),
    column("of the GPU time held, %", "stops", Kind::Share, |p| part(p, p.metrics.gpu_hours.stops)),
    column("of the GPU time held, %", "killed", Kind::RareShare, |p| part(p, p.metrics.gpu_hours.limits)),
    column("of the GPU time held, %", "slow nodes", Kind::Share, |p| part(p, p.metrics.gpu_hours.slow_nodes)),
    column("of the GPU time held, %", "far places", Kind::Share, |p| part(p, p.metrics.gpu_hours.places)),
    column("ETTR", "%", Kind::Percent, |p| p.metrics.ettr_percent),
    column("slower", "by place", Kind::Ratio, |p| p.metrics.place_slowdown),
    column("cost", "cluster", Kind::Count, |p| p.cost.cluster),
    column("cost", "/useful GPU-h", Kind::Ratio, |p| p.cost.per_useful_gpu_hour),
];

/// Percent of the device time that jobs held.
fn part(policy: &PolicyReport, gpu_hours: f64) -> f64 {
    let held = policy.metrics.gpu_hours.held;
    if held > 0.0 { gpu_hours / held * 100.0 } else { 0.0 }
}

const fn column(group: &'static str, name: &'static str, kind: Kind, of: fn(&PolicyReport) -> f64) -> Column {
    Column { group, name, kind, of }
}

/// Columns of the names of policies, and between columns.
const NAME: usize = 13;
const GAP: usize = 2;

pub(super) fn table(report: &Report) -> String {
    let mut out = String::new();
    let cluster = &report.cluster;
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{} of {} jobs on {} GPUs of {} ({} nodes, {} leaves), seed {}",
        report.trace.replayed,
        report.trace.summary.jobs,
        cluster.gpus,
        cluster.name,
        cluster.nodes,
        cluster.leaves,
        report.seed
    );
    let _ = writeln!(out, "  {}", report.command);
    for line in &report.world {
        let _ = writeln!(out, "  {line}");
    }
    out.push('\n');
    write_rows(&mut out, report, &ENDS, figures);
    if report.policies.len() > 1 {
        let best = if has_both(report) { "the best that is no oracle" } else { "the best" };
        let _ = writeln!(out, "\nthe same over {best}");
        write_rows(&mut out, report, &ENDS, ratios);
    }
    out.push('\n');
    write_rows(&mut out, report, &TIME, figures);
    if let Some(compared) = fewer(report) {
        let _ = writeln!(
            out,
            "note: not the same jobs ended under all policies; completion, waits and fairness are of the {compared} that did"
        );
    }
    let left = |policy: &PolicyReport| policy.metrics.jobs - policy.metrics.ended - policy.metrics.killed;
    for alike in report.policies.chunk_by(|a, b| left(a) == left(b)) {
        let Some(count) = alike.first().map(left).filter(|count| *count > 0) else { continue };
        let names: Vec<&str> = alike.iter().map(|policy| policy.name.as_str()).collect();
        let _ = writeln!(
            out,
            "note: {count} jobs did not end under {}: they are larger than the cluster, or never got room",
            names.join(", ")
        );
    }
    out
}

/// The jobs that ended under all policies, where other jobs ended under some.
fn fewer(report: &Report) -> Option<usize> {
    let is_fewer = |policy: &PolicyReport| policy.metrics.compared < policy.metrics.ended;
    report.policies.iter().find(|policy| is_fewer(policy)).map(|policy| policy.metrics.compared)
}

fn has_both(report: &Report) -> bool {
    let oracles = report.policies.iter().filter(|policy| policy.is_oracle).count();
    (1..report.policies.len()).contains(&oracles)
}

/// A heading and a cell for each policy.
fn figures(report: &Report, column: &Column) -> Vec<String> {
    let values = || report.policies.iter().map(|policy| (column.of)(policy));
    let (unit, seconds) = unit(values().fold(0.0, f64::max));
    let heading = match column.kind {
        Kind::Time => format!("{} {unit}", column.name).trim_start().to_owned(),
        _ => column.name.to_owned(),
    };
    let is_rare = matches!(column.kind, Kind::RareShare | Kind::RareCount);
    let is_left_out = is_rare && values().all(|value| value <= 0.0);
    let cell = |value: f64| match column.kind {
        _ if is_left_out => String::new(),
        Kind::Time => format!("{:.2}", value / seconds),
        Kind::Percent | Kind::Share | Kind::RareShare => format!("{value:.1}"),
        Kind::Ratio => format!("{value:.2}"),
        Kind::Count | Kind::RareCount => format!("{value:.0}"),
    };
    [heading].into_iter().chain(values().map(cell)).collect()
}

/// A heading, and how many times the best each policy is; more is worse in all columns.
fn ratios(report: &Report, column: &Column) -> Vec<String> {
    let value = |policy: &PolicyReport| (column.of)(policy);
    let of_same = report.policies.iter().filter(|policy| !has_both(report) || !policy.is_oracle).map(value);
    let is_more_better = column.kind == Kind::Percent;
    let best = if is_more_better { of_same.fold(0.0, f64::max) } else { of_same.fold(f64::MAX, f64::min) };
    let ratio = |policy| {
        let (above, below) = if is_more_better { (best, value(policy)) } else { (value(policy), best) };
        match column.kind {
            Kind::Share | Kind::Count | Kind::RareShare | Kind::RareCount => String::new(),
            _ if below > 0.0 => format!("{:.2}", above / below),
            _ if above > 0.0 => "-".to_owned(),
            _ => "1.00".to_owned(),
        }
    };
    [column.name.to_owned()].into_iter().chain(report.policies.iter().map(ratio)).collect()
}

/// In which the largest value of a column is read best, in seconds.
fn unit(longest_s: f64) -> (&'static str, f64) {
    match longest_s {
        s if s < 120.0 => ("s", 1.0),
        s if s < 7_200.0 => ("min", 60.0),
        s if s < 172_800.0 => ("h", 3_600.0),
        _ => ("d", 86_400.0),
    }
}

/// Policies below their headings, oracles after the others and under a line of their own. Columns without cells are left out.
fn write_rows(
    out: &mut String,
    report: &Report,
    columns: &[Column],
    cells: fn(&Report, &Column) -> Vec<String>,
) {
    let shown: Vec<(&Column, Vec<String>, usize)> = columns
        .iter()
        .map(|column| (column, cells(report, column)))
        .filter(|(_, cells)| cells.iter().skip(1).any(|cell| !cell.is_empty()))
        .map(|(column, cells)| {
            let least =
                column.group.len() / columns.iter().filter(|other| other.group == column.group).count();
            let width = cells.iter().map(String::len).chain([least]).max().unwrap_or(0);
            (column, cells, width)
        })
        .collect();
    let names = report.policies.iter().map(|policy| policy.name.len());
    let name_width = names.max().unwrap_or(0).max(NAME);
    let _ = write!(out, "{:name_width$}", "");
    for group in shown.chunk_by(|a, b| a.0.group == b.0.group) {
        let width = group.iter().map(|(.., width)| width + GAP).sum::<usize>() - GAP;
        let name = group.first().map_or("", |(column, ..)| column.group);
        // Over the right end, as the numbers below it.
        let _ = write!(out, "{:GAP$}{name:>width$}", "");
    }
    end_line(out);
    let row = |out: &mut String, name: &str, at: usize| {
        let _ = write!(out, "{name:name_width$}");
        for (_, cells, width) in &shown {
            let cell = cells.get(at).map_or("", String::as_str);
            let _ = write!(out, "{:GAP$}{cell:>width$}", "");
        }
        end_line(out);
    };
    row(out, "policy", 0);
    for is_oracle in [false, true] {
        let mut of =
            (1..).zip(&report.policies).filter(|(_, policy)| policy.is_oracle == is_oracle).peekable();
        if is_oracle && of.peek().is_some() {
            let _ = writeln!(out, "oracles, which know how long jobs take:");
        }
        of.for_each(|(at, policy)| row(out, &policy.name, at));
    }
}

fn end_line(out: &mut String) {
    out.truncate(out.trim_end_matches(' ').len());
    out.push('\n');
}
