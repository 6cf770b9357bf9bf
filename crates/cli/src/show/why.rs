//! `why`: the word, the sentence, the counts, what would unblock it, its place in the order, and when.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_api::protocol::{JobView, WhyView};
use phalanx_model::{GangId, JobId, Report, Timestamp};
use phalanx_shell::sentences::waits::{self, Reader};

use super::placed::{self, Fleet};
use super::table::{Grid, cell};
use super::{Page, clean, field, jobs, turn};

/// Names of jobs that stand in the way.
pub(crate) type Names = BTreeMap<JobId, String>;

/// Somebody who reads a page.
pub(super) struct Told<'a> {
    pub(super) page: &'a Page,
    pub(super) names: &'a Names,
    /// The job of which it is told has a number.
    pub(super) is_submitted: bool,
}

impl Reader for Told<'_> {
    fn gang(&self, id: GangId) -> String {
        gang(id, self.names)
    }

    fn ahead(&self, at: Timestamp) -> String {
        self.page.ahead(at)
    }

    fn clock(&self, at: Timestamp) -> String {
        self.page.clock(at)
    }

    fn date(&self, at: Timestamp) -> String {
        self.page.date(at)
    }

    fn is_submitted(&self) -> bool {
        self.is_submitted
    }

    fn times(&self) -> &'static str {
        self.page.times()
    }
}

pub(crate) fn page(page: &Page, view: &WhyView, names: &Names, fleet: &Fleet) -> String {
    let mut text = jobs::title(&view.job);
    let waiting: Vec<&Report> = view.reports.iter().filter(|r| r.position > 0).collect();
    if waiting.is_empty() {
        let sentence = not_waiting(page, &view.job);
        text += &format!("  {sentence}\n");
        view.reports.iter().for_each(|report| weighed(&mut text, page, report));
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
        text += &report_text(&Told { page, names, is_submitted: true }, report, fleet);
    }
    text
}

/// The slow links that its placement uses or avoids.
fn weighed(text: &mut String, page: &Page, report: &Report) {
    for link in &report.weighed {
        field(text, page, "network", &clean(&link.sentence(page.now)));
    }
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
pub(super) fn report_text(reader: &Told<'_>, report: &Report, fleet: &Fleet) -> String {
    let (mut text, page) = (String::new(), reader.page);
    field(&mut text, page, "waits for", &report.reason.word().yellow().bold().to_string());
    field(&mut text, page, "because it", &waits::reason(reader, &report.reason));
    if report.position > 0 {
        let by_service = report.by_service().map_or_else(String::new, |why| format!("; {why}"));
        let place = format!("place {} of {}{by_service}", report.position, report.of);
        field(&mut text, page, "in the order", &place);
    }
    field(&mut text, page, "would start", &waits::start(reader, report));
    for (i, unblock) in report.unblock.iter().enumerate() {
        let key = if i == 0 { "unblocked if" } else { "or if" };
        let way = waits::way_out(reader, report.gang.job, unblock) + &waits::ahead_of(report, unblock);
        field(&mut text, page, key, &clean(&way));
    }
    weighed(&mut text, page, report);
    text += &levels(page, report);
    if let Some(placement) = &report.nearest {
        let when = if waits::is_now(report.estimated_start) { "fits now" } else { "would then run" };
        let _ = writeln!(text, "\n  {} {}", when.dimmed(), placed::summary(placement));
        text += &placed::table(page, placement, fleet);
    }
    text
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

/// `job 3 (eval)`.
pub(super) fn gang(id: GangId, names: &Names) -> String {
    let name = names.get(&id.job).map(|name| format!(" ({})", clean(name))).unwrap_or_default();
    if id.index == 0 { format!("job {}{name}", id.job) } else { format!("gang {id}{name}") }
}
