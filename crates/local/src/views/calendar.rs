//! The calendar, windows of the same time and purpose put together.

use std::collections::BTreeMap;

use phalanx_model::QueueName;
use phalanx_shell::Engine;

use phalanx_api::protocol::{WindowKind, WindowView};

pub(crate) fn calendar(engine: &Engine) -> Vec<WindowView> {
    let mut all: BTreeMap<_, WindowView> = BTreeMap::new();
    for window in engine.windows() {
        let (begins_at, ends_at) =
            (window.begins_at, Some(window.ends_at).filter(|_| !window.is_open_ended()));
        let held_for = window.held_for.clone();
        let kind = match (ends_at, &held_for) {
            (None, None) => WindowKind::Drain,
            (_, None) => WindowKind::Maintenance,
            (_, Some(_)) => WindowKind::Block,
        };
        let alike = (begins_at, ends_at, kind, held_for.clone(), window.is_declared);
        let is_declared = window.is_declared;
        let fresh = || WindowView { kind, nodes: Vec::new(), begins_at, ends_at, held_for, is_declared };
        all.entry(alike).or_insert_with(fresh).nodes.push(window.node.clone());
    }
    for notice in engine.notices() {
        let (begins_at, ends_at, kind, held_for) =
            (notice.ends_at, None, WindowKind::SpotNotice, None::<QueueName>);
        let alike = (begins_at, ends_at, kind, held_for.clone(), false);
        let fresh =
            || WindowView { kind, nodes: Vec::new(), begins_at, ends_at, held_for, is_declared: false };
        all.entry(alike).or_insert_with(fresh).nodes.push(notice.node.clone());
    }
    all.into_values().collect()
}
