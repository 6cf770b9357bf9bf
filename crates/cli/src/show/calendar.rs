//! `calendar`.

use phalanx_api::protocol::{WindowKind, WindowView};
use phalanx_model::NodeName;
use phalanx_spec::pattern::NamePattern;

use super::table::{Grid, cell, dim};
use super::time::span;
use super::{Page, clean, nothing};

/// One line for each window, those that begin first before the others.
pub(crate) fn list(page: &Page, windows: &[WindowView]) -> String {
    if windows.is_empty() {
        return nothing(page, "the calendar is empty; `phalanx calendar add` tells of a window");
    }
    let mut grid = Grid::new(page, &["NODES", "WHAT", "FROM", "UNTIL", "WHEN", "ADDED BY"]);
    for window in windows {
        let patterns = NamePattern::compress(window.nodes.iter().map(NodeName::as_str));
        let nodes: Vec<&str> = patterns.iter().map(NamePattern::text).collect();
        let until = window.ends_at.map_or_else(|| "uncordoned".to_owned(), |at| page.date(at));
        grid.row(vec![
            cell(nodes.join(",")),
            cell(what(window)),
            cell(page.date(window.begins_at)),
            cell(until),
            dim(when(page, window)),
            cell(added(page, window)),
        ]);
    }
    grid.render()
}

fn what(window: &WindowView) -> String {
    let declared = if window.is_declared { " (declared)" } else { "" };
    let what = match (window.kind, &window.held_for) {
        (WindowKind::Block, Some(queue)) => format!("for queue {queue}"),
        (WindowKind::Maintenance | WindowKind::Block, _) => "maintenance".to_owned(),
        (WindowKind::Drain, _) => "drained by then".to_owned(),
        (WindowKind::SpotNotice, _) => "taken back then".to_owned(),
    };
    what + declared
}

/// `bob 2h 00m ago: new NICs`.
fn added(page: &Page, window: &WindowView) -> String {
    let Some(by) = &window.added_by else { return String::new() };
    let reason = by.reason.as_ref().map_or_else(String::new, |reason| format!(": {}", clean(reason)));
    format!("{} {}{reason}", clean(&by.user), page.ago(by.at))
}

/// `in 2h 00m`, or `now, for 3m 12s more`.
fn when(page: &Page, window: &WindowView) -> String {
    match (window.begins_at.since(page.now), window.ends_at) {
        (0, Some(at)) => format!("now, for {} more", span(at.since(page.now))),
        (0, None) => "now".to_owned(),
        (_, _) => page.ahead(window.begins_at),
    }
}
