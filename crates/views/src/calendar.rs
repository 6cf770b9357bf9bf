//! The calendar, windows of the same time and purpose put together. The worlds know who added them.

use std::collections::BTreeMap;

use phalanx_api::protocol::{NodeWindowView, WindowKind, WindowView};
use phalanx_model::NodeName;
use phalanx_model::later::{Calendar, SpotNotice};

use crate::Books;

pub fn calendar(books: &Books<'_>) -> Vec<WindowView> {
    let mut all: BTreeMap<_, WindowView> = BTreeMap::new();
    for window in books.windows() {
        let NodeWindowView { kind, begins_at, ends_at, held_for, added_by } = of_node(window);
        let alike = (begins_at, ends_at, kind, held_for.clone(), window.is_declared);
        let is_declared = window.is_declared;
        let nodes = Vec::new();
        let fresh = || WindowView { kind, nodes, begins_at, ends_at, held_for, is_declared, added_by };
        all.entry(alike).or_insert_with(fresh).nodes.push(window.node.clone());
    }
    for notice in books.notices() {
        let NodeWindowView { kind, begins_at, ends_at, held_for, added_by } = of_notice(notice);
        let (alike, is_declared) = ((begins_at, ends_at, kind, held_for.clone(), false), false);
        let nodes = Vec::new();
        let fresh = || WindowView { kind, nodes, begins_at, ends_at, held_for, is_declared, added_by };
        all.entry(alike).or_insert_with(fresh).nodes.push(notice.node.clone());
    }
    all.into_values().collect()
}

fn of_node(window: &Calendar) -> NodeWindowView {
    let ends_at = Some(window.ends_at).filter(|_| !window.is_open_ended());
    let kind = match (ends_at, &window.held_for) {
        (None, None) => WindowKind::Drain,
        (_, None) => WindowKind::Maintenance,
        (_, Some(_)) => WindowKind::Block,
    };
    let (begins_at, held_for) = (window.begins_at, window.held_for.clone());
    NodeWindowView { kind, begins_at, ends_at, held_for, added_by: None }
}

fn of_notice(notice: &SpotNotice) -> NodeWindowView {
    let (kind, begins_at) = (WindowKind::SpotNotice, notice.ends_at);
    NodeWindowView { kind, begins_at, ends_at: None, held_for: None, added_by: None }
}

/// What the calendar says of each of these nodes: the window that begins first of those that are not over.
pub(crate) fn first_windows(
    books: &Books<'_>,
    is_wanted: impl Fn(&NodeName) -> bool,
) -> BTreeMap<NodeName, NodeWindowView> {
    let mut first: BTreeMap<NodeName, NodeWindowView> = BTreeMap::new();
    let mut note = |node: &NodeName, window: NodeWindowView| {
        let known = first.entry(node.clone()).or_insert_with(|| window.clone());
        if window.begins_at < known.begins_at {
            *known = window;
        }
    };
    for window in books.windows().filter(|window| is_wanted(&window.node)) {
        note(&window.node, of_node(window));
    }
    for notice in books.notices().filter(|notice| is_wanted(&notice.node)) {
        note(&notice.node, of_notice(notice));
    }
    first
}
