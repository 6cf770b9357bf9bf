//! `why`: the word, the sentence, the counts, what would unblock it, its place in the order, and when.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_local::protocol::{JobView, WhyView};
use phalanx_model::{
    Confidence, Estimate, GangId, JobId, LikelyStart, Reason, Report, Rule, Timestamp, Unblock,
};

use super::placed::{self, Fleet};
use super::table::{Grid, cell};
use super::{Page, clean, count, field, jobs, turn};

/// Names of jobs that stand in the way.
pub(crate) type Names = BTreeMap<JobId, String>;

pub(crate) fn page(page: &Page, view: &WhyView, names: &Names, fleet: &Fleet) -> String {
    let mut text = jobs::title(&view.job);
    let waiting: Vec<&Report> = view.reports.iter().filter(|r| r.position > 0).collect();
    if waiting.is_empty() {
        let sentence = not_waiting(page, &view.job);
        text += &format!("  {sentence}\n");
        view.job.gangs.iter().for_each(|gang| turn::of_gang(&mut text, page, gang, names));
        return text;
    }
    let several = view.job.gangs.len() > 1 || view.job.array.is_some();
    for report in waiting {
        if several {
            let _ = writeln!(text, "\n{}", heading(&view.job, report.gang).bold());
        }
        if let Some(gang) = view.job.gangs.iter().find(|gang| gang.id == report.gang) {
            turn::of_gang(&mut text, page, gang, names);
        }
        text += &report_text(page, report, names, fleet);
    }
    text
}

fn not_waiting(page: &Page, job: &JobView) -> String {
    match (job.started_at, job.finished_at) {
        (_, Some(at)) => format!("it does not wait: it ended {}", page.ago(at)),
        (Some(at), None) => format!("it does not wait: it started {}", page.ago(at)),
        (None, None) => format!("it does not wait: it is {}", job.state),
    }
}

/// What a report is about: a gang of its job, or a task of an array by its number.
fn heading(job: &JobView, id: GangId) -> String {
    let task = job.gangs.iter().find(|gang| gang.id == id).and_then(|gang| gang.task);
    match (task, &job.array) {
        (Some(number), _) => format!("task {}.{number}", id.job),
        (None, Some(array)) => {
            format!("task {}.{}", id.job, array.numbers.number(id.index).unwrap_or(id.index))
        }
        _ => format!("gang {id}"),
    }
}

/// One waiting gang.
pub(super) fn report_text(page: &Page, report: &Report, names: &Names, fleet: &Fleet) -> String {
    let mut text = String::new();
    field(&mut text, page, "waits for", &report.reason.word().yellow().bold().to_string());
    field(&mut text, page, "because it", &sentence(page, &report.reason, names));
    if report.position > 0 {
        let by_service = report.by_service().map_or_else(String::new, |why| format!("; {why}"));
        let place = format!("place {} of {}{by_service}", report.position, report.of);
        field(&mut text, page, "in the order", &place);
    }
    let endless = |u: &Unblock| matches!(u, Unblock::GangsEnd { at: None, .. });
    let short = matches!(
        report.reason,
        Reason::Resources { .. } | Reason::Topology { .. } | Reason::Nodes { .. } | Reason::Shape { .. }
    );
    let because = match report.estimated_start {
        None if report.unblock.iter().any(endless) => ": a job in its way has no time limit",
        // No job of ours is in the way.
        None if short && report.unblock.is_empty() => ": others hold what it needs",
        _ => "",
    };
    let likely = report.likely_start.map_or_else(String::new, |start| likely(page, start));
    let start = format!("{likely}{}{because}", estimate(page, report.estimated_start));
    field(&mut text, page, "would start", &start);
    for (i, unblock) in report.unblock.iter().enumerate() {
        let key = if i == 0 { "unblocked if" } else { "or if" };
        let way = way_out(page, report.gang.job, unblock, names) + &ahead_of(report, unblock);
        field(&mut text, page, key, &clean(&way));
    }
    text += &levels(page, report);
    if let Some(placement) = &report.nearest {
        let when = if is_now(report.estimated_start) { "fits now" } else { "would then run" };
        let _ = writeln!(text, "\n  {} {}", when.dimmed(), placed::summary(placement));
        text += &placed::table(page, placement, fleet);
    }
    text
}

/// The engine's sentence, with the job's name where it speaks of another gang.
fn sentence(page: &Page, reason: &Reason, names: &Names) -> String {
    match reason {
        Reason::Priority { ahead, at: None } => {
            format!("{} has reached its bypass limit and must start first", gang(*ahead, names))
        }
        Reason::Priority { ahead, at: Some(at) } => format!(
            "cannot backfill: would still be running when {} is due to start ({})",
            gang(*ahead, names),
            page.clock(*at)
        ),
        Reason::Preempting { victims } => {
            let victims = list(victims.iter().map(|id| gang(*id, names)));
            format!("reserved; waiting for these jobs to leave: {victims}")
        }
        Reason::Dependency { jobs } => {
            format!("waits for the end of {}", list(jobs.iter().map(|job| gang(job.gang(0), names))))
        }
        Reason::BeginTime { at } => {
            format!("not to start before {} ({})", page.date(*at), page.ahead(*at))
        }
        Reason::BackOff { until } => format!("failed before, and is tried again {}", page.ahead(*until)),
        Reason::Window { ends_at: Timestamp::MAX, .. } => {
            format!("{reason}; nobody said when that is over")
        }
        Reason::Window { ends_at, .. } => format!("{reason}; the first is over {}", page.clock(*ends_at)),
        Reason::PreferredWait { until: Timestamp::MAX, .. }
        | Reason::NearerWait { until: Timestamp::MAX, .. } => format!("{reason}, however long that takes"),
        Reason::PreferredWait { until, .. } | Reason::NearerWait { until, .. } => {
            format!("{reason}, until {}", page.clock(*until))
        }
        Reason::None => "was not considered yet".to_owned(),
        _ => reason.to_string(),
    }
}

fn levels(page: &Page, report: &Report) -> String {
    if report.levels.is_empty() {
        return String::new();
    }
    let mut grid =
        Grid::new(page, &["LEVEL", "BEST DOMAIN", ">MEMBERS THAT FIT", ">FREE GPUS FOR IT", ""]).indented(2);
    for level in &report.levels {
        let enough = level.fits >= level.asked;
        let fits = cell(format!("{} of {}", level.fits, level.asked));
        let color = if enough { super::table::Color::Green } else { super::table::Color::Yellow };
        let missing = if enough { String::new() } else { format!("{} too few", level.asked - level.fits) };
        grid.row(vec![
            cell(&level.level),
            cell(clean(&level.domain)),
            fits.fg(color),
            cell(format!("{} of {}", level.free_devices, level.devices)),
            super::table::dim(missing),
        ]);
    }
    format!("\n{}", grid.render())
}

const fn is_now(estimate: Option<Estimate>) -> bool {
    matches!(estimate, Some(Estimate { confidence: Confidence::Now, .. }))
}

/// When it would start, and how sure that is.
pub(super) fn estimate(page: &Page, estimate: Option<Estimate>) -> String {
    match estimate {
        Some(Estimate { confidence: Confidence::Now, .. }) => "now".to_owned(),
        Some(Estimate { at, confidence: Confidence::AtLatest }) => {
            format!("{} at the latest ({}), if nothing goes ahead of it", page.ahead(at), page.clock(at))
        }
        None => "unknown".to_owned(),
    }
}

/// `in about 20m 00s (14:20:00) by the last 6 runs of what is in its way; `
pub(super) fn likely(page: &Page, LikelyStart { at, runs }: LikelyStart) -> String {
    let (ahead, clock) = (page.ahead(at).replacen("in ", "in about ", 1), page.clock(at));
    format!("{ahead} ({clock}) by the last {runs} runs of what is in its way; ")
}

fn way_out(page: &Page, job: JobId, unblock: &Unblock, names: &Names) -> String {
    match unblock {
        Unblock::GangsEnd { gangs, at } => {
            let listed = list(gangs.iter().map(|id| gang(*id, names)));
            let verb = if gangs.len() == 1 { "ends" } else { "end" };
            format!("{listed} {verb}{}", by(page, *at))
        }
        Unblock::RelaxTo { level, domain, times_milli } => {
            let times = times_milli.map(|milli| {
                let tenths = (milli + 50) / 100;
                format!(
                    ", where its collective takes {}.{}{} the time (predicted)",
                    tenths / 10,
                    tenths % 10,
                    page.times()
                )
            });
            format!(
                "it may spread over one {level}: it starts now in {domain}{} (`--topology {level}`)",
                times.unwrap_or_default()
            )
        }
        Unblock::Without { rule: Rule::Spares } => {
            "it may use spare nodes, which are kept for jobs whose hardware fails (`phalanx nodes` marks them): it fits there now"
                .to_owned()
        }
        Unblock::Without { rule } => format!("it does without {rule}: it fits now"),
        Unblock::StartFarther { nodes } => format!(
            "it does not wait for a nearer place: it starts now on {} (`--topology anywhere`)",
            count(u64::from(*nodes), "node")
        ),
        Unblock::Uncordon { nodes } => {
            let each = list(nodes.iter().map(|node| format!("`phalanx uncordon {node}`")));
            format!("nodes take work again: {each}")
        }
        Unblock::Repair { closed } => {
            let each = closed.iter().map(|(node, devices)| {
                if devices.is_empty() { node.to_string() } else { format!("{node}:{devices}") }
            });
            format!("hardware is repaired: {} (`phalanx health` says what is wrong)", list(each))
        }
        Unblock::At { at } => format!("time passes: {} ({})", page.ahead(*at), page.clock(*at)),
        Unblock::ShorterLimit { limit_ms } => {
            let minutes = limit_ms / 60_000;
            format!(
                "its time limit is at most {minutes} minutes: it starts now (`phalanx update {job} --time {minutes}m`)"
            )
        }
    }
}

/// The end of jobs makes room at a time at which the gang does not start yet, for gangs go before it.
fn ahead_of(report: &Report, unblock: &Unblock) -> String {
    let ahead = report.position.saturating_sub(1);
    let starts_at = report.estimated_start.map_or(Timestamp::MAX, |start| start.at);
    match unblock {
        Unblock::GangsEnd { at, .. } if ahead > 0 && at.is_none_or(|at| at < starts_at) => {
            let (who, leave) = if ahead == 1 { ("the gang", "leaves") } else { ("the gangs", "leave") };
            format!(", and {who} ahead of it {leave} it that room")
        }
        _ => String::new(),
    }
}

fn by(page: &Page, at: Option<Timestamp>) -> String {
    at.map_or_else(
        || " (no time limit says when)".to_owned(),
        |at| format!(", {} at the latest ({})", page.ahead(at), page.clock(at)),
    )
}

/// `job 3 (eval)`.
pub(super) fn gang(id: GangId, names: &Names) -> String {
    let name = names.get(&id.job).map(|name| format!(" ({})", clean(name))).unwrap_or_default();
    if id.index == 0 { format!("job {}{name}", id.job) } else { format!("gang {id}{name}") }
}

/// `a, b and c`, and how many more.
fn list(items: impl Iterator<Item = String>) -> String {
    const SHOWN: usize = 6;
    let mut items: Vec<String> = items.collect();
    if items.len() > SHOWN {
        let more = items.len() - SHOWN;
        items.truncate(SHOWN);
        items.push(format!("{more} more"));
    }
    match items.split_last() {
        Some((last, front)) if !front.is_empty() => format!("{} and {last}", front.join(", ")),
        _ => items.concat(),
    }
}
