//! Queues of a cluster, in the columns that one machine has.

use owo_colors::OwoColorize as _;
use phalanx_kube::crd::{PoolStatus, UsageStatus};
use phalanx_kube::user::QueueView;

use crate::show::queues::{PoolLine, Pools};
use crate::show::table::{Color, Grid, cell, dim};
use crate::show::{Page, clean, count, field, nothing};

const GPUS: &str = "gpus";

/// The tree: a queue stands below the one that it is a part of.
pub(crate) fn list(page: &Page, queues: &[QueueView]) -> String {
    if queues.is_empty() {
        return nothing(page, "no queues: all gangs are in one");
    }
    let mut headings =
        vec!["QUEUE", ">GPUS", ">GUARANTEED", ">LIMIT", ">DUE", ">PENDING", ">RUNNING", ">SHARE", ">PAST"];
    if page.wide {
        headings.extend([">WEIGHT", ">GPUS WANTED", "OTHERS, USED OF GUARANTEED"]);
    }
    let has_pools = queues.iter().any(|queue| !queue.pools.is_empty());
    if has_pools {
        headings.push("NODES");
    }
    headings.push("");
    let mut grid = Grid::new(page, &headings);
    for queue in queues {
        let mut cells = row(page, queue);
        if has_pools {
            cells.push(dim(pools(queue).line()));
        }
        cells.push(dim(clean(&queue.why)));
        grid.row(cells);
    }
    grid.render()
}

fn row(page: &Page, queue: &QueueView) -> Vec<comfy_table::Cell> {
    let gpus = queue.usage.get(GPUS);
    let said = |text: Option<&String>| cell(or_none(text.map_or("", String::as_str)));
    let used = said(gpus.map(|gpus| &gpus.used));
    let is_borrowing = gpus.is_some_and(is_borrowing);
    let mut cells = vec![
        cell(format!("{}{}", "  ".repeat(queue.depth.min(32) as usize), clean(&queue.name))),
        if is_borrowing { used.fg(Color::Yellow) } else { used },
        said(gpus.map(|gpus| &gpus.guaranteed)),
        said(gpus.and_then(|gpus| gpus.limit.as_ref())),
        said(gpus.and_then(|gpus| gpus.due.as_ref())),
        cell(queue.pending),
        cell(queue.running),
        cell(or_none(&queue.share)),
        cell(or_none(&queue.past)),
    ];
    if page.wide {
        cells.extend([cell(clean(&queue.weight)), said(gpus.map(|gpus| &gpus.wanted)), dim(others(queue))]);
    }
    cells
}

fn pools(queue: &QueueView) -> Pools {
    let line = |pool: &PoolStatus| PoolLine {
        pool: pool.pool.clone(),
        nodes: u64::try_from(pool.nodes).unwrap_or_default(),
        gpus: pool.gpus.clone(),
        used: pool.used.clone(),
    };
    Pools { pools: queue.pools.iter().map(line).collect(), or_any: queue.goes_anywhere }
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { clean(text) }
}

/// It uses more than its guarantee; what is shown are numbers, as the scheduler writes them.
fn is_borrowing(gpus: &UsageStatus) -> bool {
    let milli = |text: &str| phalanx_spec::quantity::parse_milli(text).unwrap_or(0);
    milli(&gpus.guaranteed) > 0 && milli(&gpus.used) > milli(&gpus.guaranteed)
}

/// `cpus 12 of 64, gpus/H100 2 of 4`.
fn others(queue: &QueueView) -> String {
    let others = queue.usage.iter().filter(|(of, _)| *of != GPUS);
    let others = others.filter(|(_, usage)| usage.used != "0" || usage.guaranteed != "0");
    let one = |(of, usage): (&String, &UsageStatus)| {
        let own = if usage.guaranteed == "0" { String::new() } else { format!(" of {}", usage.guaranteed) };
        clean(&format!("{of} {}{own}", usage.used))
    };
    others.map(one).collect::<Vec<_>>().join(", ")
}

/// One queue: what is its own, and how it stands in the order.
pub(crate) fn one(page: &Page, queue: &QueueView) -> String {
    let mut text = format!("{} {}\n", "queue".bold(), clean(&queue.name).bold());
    let gangs = u64::try_from(queue.running).unwrap_or_default();
    field(&mut text, page, "has", &format!("{} running, {} pending", count(gangs, "gang"), queue.pending));
    if let Some(parent) = &queue.parent {
        field(&mut text, page, "part of", &clean(parent));
    }
    if !queue.why.is_empty() {
        field(&mut text, page, "not in force", &clean(&queue.why));
    }
    pools(queue).fields(&mut text, page);
    for place in &queue.places {
        let domains: Vec<String> = place.domains.iter().map(|domain| clean(domain)).collect();
        let domains = or_none(&domains.join(", "));
        let nodes = count(u64::try_from(place.nodes).unwrap_or_default(), "whole node");
        field(&mut text, page, "bound to", &format!("{domains}: {} of {nodes} each", clean(&place.level)));
    }
    if !queue.share.is_empty() {
        let share = format!(
            "{} = what it has of {} above its guarantee, as a part of the cluster, by its weight of {}",
            queue.share, queue.dominant, queue.weight
        );
        field(&mut text, page, "share", &clean(&share));
        let past = format!("{} = what it used before, faded, likewise", queue.past);
        field(&mut text, page, "past", &clean(&past));
    }
    text + &resources(page, queue) + &waiting(page, queue)
}

fn resources(page: &Page, queue: &QueueView) -> String {
    if queue.usage.is_empty() {
        return String::new();
    }
    let headings = ["RESOURCE", ">USED", ">WANTED", ">GUARANTEED", ">LIMIT", ">DUE", ">IN ALL"];
    let mut grid = Grid::new(page, &headings).indented(2);
    for (of, usage) in &queue.usage {
        let maybe = |text: &Option<String>| cell(or_none(text.as_deref().unwrap_or_default()));
        grid.row(vec![
            cell(clean(of)),
            cell(clean(&usage.used)),
            cell(clean(&usage.wanted)),
            cell(clean(&usage.guaranteed)),
            maybe(&usage.limit),
            maybe(&usage.due),
            cell(clean(&usage.capacity)),
        ]);
    }
    format!("\n{}", grid.render())
}

fn waiting(page: &Page, queue: &QueueView) -> String {
    if queue.waiting.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(page, &["GANG", "SINCE", "WHY"]).indented(2).one_line();
    for gang in &queue.waiting {
        grid.row([&gang.gang, &gang.since, &gang.reason].map(|text| cell(clean(text))).into());
    }
    format!("\n{}", grid.render())
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use phalanx_model::Timestamp;

    use super::*;

    fn page(wide: bool) -> Page {
        Page { width: None, now: Timestamp(0), tz: TimeZone::UTC, wide, quiet: false, ascii: false }
    }

    fn queue(name: &str, depth: u32) -> QueueView {
        let usage = UsageStatus {
            used: "12".to_owned(),
            wanted: "4".to_owned(),
            guaranteed: "8".to_owned(),
            limit: None,
            due: Some("10".to_owned()),
            capacity: "16".to_owned(),
        };
        QueueView {
            name: name.to_owned(),
            parent: None,
            depth,
            weight: "2".to_owned(),
            pending: 1,
            running: 3,
            usage: [(GPUS.to_owned(), usage)].into(),
            share: "0.25".to_owned(),
            dominant: GPUS.to_owned(),
            past: "0.5".to_owned(),
            places: Vec::new(),
            pools: Vec::new(),
            goes_anywhere: false,
            waiting: Vec::new(),
            why: String::new(),
        }
    }

    fn words(text: &str) -> Vec<Vec<String>> {
        let plain = anstream::adapter::strip_str(text).to_string();
        plain.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn queues_stand_in_the_columns_of_one_machine() {
        let unseen = QueueView {
            usage: Default::default(),
            share: String::new(),
            past: String::new(),
            why: "no scheduler has reported on it yet".to_owned(),
            ..queue("new", 1)
        };
        let shown = words(&list(&page(false), &[queue("team", 0), unseen]));
        assert_eq!(shown[1], ["team", "12", "8", "-", "10", "1", "3", "0.25", "0.5"]);
        assert_eq!(shown[2][..9], ["new", "-", "-", "-", "-", "1", "3", "-", "-"]);
        assert_eq!(shown[2][9..].join(" "), "no scheduler has reported on it yet");
        let pool = |pool: &str, used: &str| PoolStatus {
            pool: pool.to_owned(),
            nodes: 4,
            gpus: "32".to_owned(),
            used: used.to_owned(),
        };
        let pools = vec![pool("model H100", "8"), pool("rack r1", "0")];
        let pooled = QueueView { pools, goes_anywhere: true, ..queue("vision", 0) };
        let shown = words(&list(&page(false), &[queue("team", 0), pooled]));
        assert_eq!(shown[2][9..].join(" "), "8 of 32 on model H100, 0 of 32 on rack r1, else any");
        let wide = words(&list(&page(true), &[queue("team", 0)]));
        assert_eq!(wide[1][9..], ["2", "4"]);
    }

    #[test]
    fn only_what_is_above_a_guarantee_is_borrowed() {
        let usage = |used: &str, guaranteed: &str| UsageStatus {
            used: used.to_owned(),
            guaranteed: guaranteed.to_owned(),
            ..UsageStatus::default()
        };
        assert!(is_borrowing(&usage("10", "9.5")));
        assert!(!is_borrowing(&usage("9", "10")));
        assert!(!is_borrowing(&usage("9", "0")));
    }

    #[test]
    fn one_queue_says_why_it_is_not_in_force_and_what_it_has() {
        let refused = QueueView { why: "no parent above".to_owned(), ..queue("team", 0) };
        let shown = words(&one(&page(false), &refused)).into_iter().flatten().collect::<Vec<_>>().join(" ");
        for expected in ["not in force no parent above", "3 gangs running, 1 pending", "gpus 12 4 8 - 10 16"]
        {
            assert!(shown.contains(expected), "{expected:?} in {shown}");
        }
    }
}
