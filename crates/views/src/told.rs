//! Reports as sentences, for people who ask over HTTP. Times of day are in UTC: nobody says where a reader is.

use std::collections::BTreeSet;

use phalanx_model::show::span;
use phalanx_model::{GangId, NodeName, Placement, Rejection, Report, Timestamp};
use phalanx_shell::sentences::{self, waits};

use crate::Books;

/// Gangs of one job that are told.
const GANGS_MAX: usize = 3;
/// Nodes that are named.
const NODES_MAX: usize = 6;

struct Reader<'a> {
    books: &'a Books<'a>,
    now: Timestamp,
    is_submitted: bool,
}

impl waits::Reader for Reader<'_> {
    fn gang(&self, id: GangId) -> String {
        sentences::gang(self.books, id)
    }

    fn ahead(&self, at: Timestamp) -> String {
        match at.since(self.now) {
            0 => "now".to_owned(),
            ms => format!("in {}", span(ms)),
        }
    }

    fn clock(&self, at: Timestamp) -> String {
        let minutes = at.0 / 60_000;
        format!("{:02}:{:02} UTC", minutes / 60 % 24, minutes % 60)
    }

    fn date(&self, at: Timestamp) -> String {
        self.ahead(at)
    }

    fn is_submitted(&self) -> bool {
        self.is_submitted
    }
}

/// Why gangs wait, what would change that, and which slow networks were weighed.
pub fn why(books: &Books<'_>, now: Timestamp, reports: &[Report]) -> Vec<String> {
    let waiting = reports.iter().filter(|report| report.position > 0).take(GANGS_MAX);
    let why = waiting.flat_map(|report| waits::report(&Reader { books, now, is_submitted: true }, report));
    let weighed = reports.iter().take(GANGS_MAX).flat_map(|report| networks(now, report));
    why.chain(weighed).collect()
}

/// What a submission would do.
pub(crate) fn dry_run(
    books: &Books<'_>,
    now: Timestamp,
    rejected: Option<&Rejection>,
    reports: &[Report],
) -> Vec<String> {
    if let Some(why) = rejected {
        return vec![format!("It would be refused: {why}.")];
    }
    let one = |report: &Report| -> Vec<String> {
        let weighed = networks(now, report);
        let place = report.nearest.as_ref().map(on);
        match place {
            Some(place) if waits::is_now(report.estimated_start) => {
                std::iter::once(format!("It would start now {place}.")).chain(weighed).collect()
            }
            place => {
                let then = place.map(|place| format!("It would then run {place}."));
                waits::report(&Reader { books, now, is_submitted: false }, report)
                    .into_iter()
                    .chain(then)
                    .chain(weighed)
                    .collect()
            }
        }
    };
    reports.iter().take(GANGS_MAX).flat_map(one).collect()
}

/// `gpu-3 was avoided: its network has 40% of its bandwidth`.
fn networks(now: Timestamp, report: &Report) -> impl Iterator<Item = String> {
    report.weighed.iter().map(move |link| link.sentence(now) + ".")
}

/// `on a1, a2 (inside one leaf)`.
fn on(placement: &Placement) -> String {
    let nodes: BTreeSet<&NodeName> = placement.slots.iter().map(|slot| &slot.node).collect();
    let named: Vec<&str> = nodes.iter().take(NODES_MAX).map(|node| node.as_str()).collect();
    let more = nodes.len().saturating_sub(NODES_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let inside = if nodes.len() > 1 { format!(" (inside one {})", placement.level) } else { String::new() };
    format!("on {}{more}{inside}", named.join(", "))
}
