//! `defrag`: what moves, for whom, what it saves and what it costs.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_api::protocol::DefragView;
use phalanx_model::show::{count, gpu_time, span};
use phalanx_model::{NodeName, Placement};

use super::placed::{shares, summary};
use super::table::{Grid, cell};
use super::{Page, clean};

pub(crate) fn page(page: &Page, view: &DefragView) -> String {
    let mut grid = Grid::new(page, &[">JOB", "NAME", ">GPUS", "MOVES FROM", "TO", "COSTS"]);
    for one in &view.moves {
        grid.row(vec![
            cell(one.gang.job.to_string()),
            cell(clean(&one.name)),
            cell(one.devices.to_string()),
            cell(list(&one.from)),
            cell(list(&one.to)),
            cell(gpu_time(one.lost_device_ms)),
        ]);
    }
    let table = grid.render();
    if page.quiet {
        return table;
    }
    let (job, name) = (view.gang.job, clean(&view.name));
    let gpus = count(u64::from(view.devices), "GPU");
    let would = if view.is_applied { "starts" } else { "would start" };
    let in_ms = view.at.map_or(0, |at| at.since(page.now));
    let when = match in_ms {
        0 => "at once".to_owned(),
        ms => format!("in {} at the latest", span(ms)),
    };
    let place = summary(&view.placement);
    let mut text = format!("job {job} ({name}, {gpus}) {would} {when} {place}\n");
    let _ = writeln!(text, "place    {}\n", list(&nodes_of(&view.placement)));
    text += &table;
    text.push('\n');
    let cost = gpu_time(view.lost_device_ms());
    let restart = span(view.restart_ms);
    let waited = span(page.now.since(view.pending_since));
    let _ = match view.saved_ms() {
        Some(saved_ms) => writeln!(
            text,
            "saves    {} of its wait: {}",
            span(saved_ms),
            gpu_time(saved_ms.saturating_mul(u64::from(view.devices)))
        ),
        None => {
            writeln!(text, "saves    a wait of which nobody knows how long it is; it has waited {waited}")
        }
    };
    let _ =
        writeln!(text, "costs    {cost}: restarts of {restart} each (assumed), and work that is not saved");
    if !view.is_applied {
        let hint = format!("nothing was done; `phalanx defrag {job} --apply` moves them");
        let _ = writeln!(text, "{}", hint.dimmed());
    }
    text
}

/// `a-0 a-1`, and how many more.
fn list(nodes: &[NodeName]) -> String {
    const SHOWN: usize = 6;
    let mut text = nodes.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join(" ");
    if nodes.len() > SHOWN {
        let _ = write!(text, " and {} more", nodes.len() - SHOWN);
    }
    text
}

fn nodes_of(placement: &Placement) -> Vec<NodeName> {
    shares(placement).into_iter().map(|share| share.node).collect()
}
