//! `history`: what happened, to one job or to all.

use phalanx_api::protocol::HistoryView;

use super::table::{Grid, cell, dim};
use super::why::Names;
use super::{Page, clean, nothing};

/// Oldest first. `is_one`: all of one job, which then is not named on every line.
pub(crate) fn list(page: &Page, events: &[HistoryView], is_one: bool, names: &Names) -> String {
    if events.is_empty() {
        return nothing(page, "nothing happened yet");
    }
    let headings: &[&str] =
        if is_one { &["WHEN", "WHAT", "DETAIL"] } else { &["WHEN", ">JOB", "NAME", "WHAT", "DETAIL"] };
    let mut grid = Grid::new(page, headings);
    for HistoryView { job, name, event } in events {
        let mut cells = vec![dim(page.date(event.at))];
        if !is_one {
            let name =
                if name.is_empty() { names.get(job).cloned().unwrap_or_default() } else { name.clone() };
            cells.extend([cell(job), cell(clean(&name))]);
        }
        cells.extend([cell(clean(&event.what)), cell(clean(&event.detail))]);
        grid.row(cells);
    }
    grid.render()
}
