//! The states of queues as text.

use std::fmt::Write;

use phalanx_model::{QueueReport, Resource, ResourceReport, ShapeReport};

/// One line for each queue: for each resource its use, guarantee, limit and fair share; then its gangs, and the terms
/// of its order.
pub(crate) fn queues(reports: &[QueueReport]) -> String {
    let name = |report: &QueueReport| format!("{}{}", "  ".repeat(report.depth as usize), report.queue.name);
    let width = reports.iter().map(|report| name(report).len()).max().unwrap_or(0);
    let mut text = String::new();
    for report in reports {
        let QueueReport { pending, running, dominant, .. } = report;
        write!(text, "  {:width$}", name(report)).unwrap_or_default();
        for good in report.resources.iter().filter(|good| is_spoken_of(good)) {
            write!(text, "  {}", amounts(good)).unwrap_or_default();
        }
        let (share, past) = (percent(report.share), percent(report.decayed_usage));
        write!(
            text,
            "  {pending} pending, {running} running; share {share} of {dominant}, decayed usage {past}"
        )
        .unwrap_or_default();
        if report.queue.order.as_ref().is_some_and(|order| !order.is_priority()) {
            write!(text, "; ordered by attained service").unwrap_or_default();
        }
        let place = |place: &ShapeReport| format!("; {}", places(place));
        writeln!(text, "{}", report.places.iter().map(place).collect::<String>()).unwrap_or_default();
    }
    if text.is_empty() { "  no queues\n".to_owned() } else { text }
}

/// `guaranteed domains 1 of 2 leaf:4 in cluster/l1`
fn places(place: &ShapeReport) -> String {
    let ShapeReport { shape, domains } = place;
    let (bound, all) = (domains.len(), shape.count);
    format!("guaranteed domains {bound} of {all} {}:{} in {}", shape.level, shape.nodes, domains.join(" "))
}

/// Whether a resource is shown. Devices are always shown.
fn is_spoken_of(good: &ResourceReport) -> bool {
    good.resource == Resource::Gpus || good.used > 0 || good.guaranteed > 0 || good.limit.is_some()
}

/// `gpus 8/16/32/24`: used, guaranteed, limit, fair share; `-` where there is none.
fn amounts(good: &ResourceReport) -> String {
    let of = |amount: Option<u64>| amount.map_or_else(|| "-".to_owned(), |amount| good.resource.show(amount));
    let shown = [Some(good.used), Some(good.guaranteed), good.limit, good.fair_share].map(of);
    format!("{} {}", good.resource, shown.join("/"))
}

/// Millionths as a percentage: `12.5%`.
fn percent(millionths: u64) -> String {
    format!("{}.{}%", millionths / 10_000, millionths / 1_000 % 10)
}
