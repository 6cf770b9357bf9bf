//! `queues`: the tree, and one queue with every term of the order and what waits in it.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_api::protocol::{BudgetView, QueueDetailView, QueueView, WaitingView};
use phalanx_model::{
    Access, Amounts, ClassName, IdlePolicy, IdleThen, PoolReport, Queue, QueueOrder, QueueReport, Resource,
    ResourceReport, ShapeReport,
};

use super::bill::money;
use super::table::{Color, Grid, cell, dim};
use super::time::span;
use super::{Page, clean, count, field, nothing};

/// The tree: a queue stands below the one that it is a part of.
pub(crate) fn list(page: &Page, queues: &[QueueView]) -> String {
    if queues.is_empty() {
        return nothing(page, "no queues");
    }
    let mut headings =
        vec!["QUEUE", ">GPUS", ">GUARANTEED", ">LIMIT", ">DUE", ">PENDING", ">RUNNING", ">SHARE", ">PAST"];
    if page.wide {
        headings.extend([">WEIGHT", ">GPUS WANTED", "OTHERS, USED OF GUARANTEED"]);
    }
    let has_pools =
        queues.iter().filter_map(|queue| queue.report.as_ref()).any(|report| !report.pools.is_empty());
    if has_pools {
        headings.push("NODES");
    }
    let has_budgets = queues.iter().any(|queue| queue.budget.is_some());
    if has_budgets {
        headings.push("BUDGET");
    }
    let mut grid = Grid::new(page, &headings);
    for queue in queues {
        let mut cells = row(page, queue);
        if has_pools {
            cells.push(dim(queue.report.as_ref().map(|report| Pools::of(report).line()).unwrap_or_default()));
        }
        if has_budgets {
            cells.push(dim(queue.budget.as_ref().map(budget).unwrap_or_default()));
        }
        grid.row(cells);
    }
    grid.render()
}

/// `4120.50 of 5000.00 a month (82 %)`.
fn budget(view: &BudgetView) -> String {
    let BudgetView { budget, spent_micro, .. } = view;
    let percent = u128::from(*spent_micro) * 100 / u128::from(budget.amount_micro.max(1));
    let money = |micro: u64| money(i64::try_from(micro).unwrap_or(i64::MAX));
    let (spent, amount) = (money(*spent_micro), money(budget.amount_micro));
    format!("{spent} of {amount} a {} ({percent} %)", budget.per.word())
}

fn row(page: &Page, queue: &QueueView) -> Vec<comfy_table::Cell> {
    let report = queue.report.as_ref();
    let gpus = report.and_then(gpus);
    let depth = report.map_or(0, |report| report.depth);
    let name = format!("{}{}", "  ".repeat(depth.min(32) as usize), clean(&queue.name));
    let used = gpus.map_or_else(|| queue.devices_held.to_string(), |gpus| gpu(gpus.used));
    let is_borrowing = gpus.is_some_and(|gpus| gpus.used > gpus.guaranteed && gpus.guaranteed > 0);
    let used = if is_borrowing { cell(used).fg(Color::Yellow) } else { cell(used) };
    let mut cells = vec![
        cell(name),
        used,
        cell(gpus.map_or_else(none, |gpus| gpu(gpus.guaranteed))),
        cell(gpus.and_then(|gpus| gpus.limit).map_or_else(none, gpu)),
        cell(gpus.and_then(|gpus| gpus.fair_share).map_or_else(none, gpu)),
        cell(queue.pending),
        cell(queue.running),
        cell(report.map_or_else(none, |report| millionths(report.share))),
        cell(report.map_or_else(none, |report| millionths(report.decayed_usage))),
    ];
    if page.wide {
        let weight = report.map_or_else(none, |report| gpu(report.queue.weight_milli));
        cells.extend([
            cell(weight),
            cell(queue.devices_wanted),
            dim(report.map_or_else(String::new, others)),
        ]);
    }
    cells
}

/// The pools of a queue, as one machine and Kubernetes show them.
pub(in crate::show) struct Pools {
    pub(super) pools: Vec<PoolLine>,
    /// Gangs for which no pool has room go to any node.
    pub(super) or_any: bool,
}

pub(in crate::show) struct PoolLine {
    pub(super) pool: String,
    pub(super) nodes: u64,
    pub(super) gpus: String,
    pub(super) used: String,
}

impl Pools {
    fn of(report: &QueueReport) -> Self {
        let line = |pool: &PoolReport| PoolLine {
            pool: pool.pool.to_string(),
            nodes: pool.nodes.into(),
            gpus: gpu(pool.capacity),
            used: gpu(pool.used),
        };
        Self { pools: report.pools.iter().map(line).collect(), or_any: report.queue.nodes.or_any }
    }

    /// `6 of 32 on model H100, 0 of 8 on rack r1, else any`.
    pub(super) fn line(&self) -> String {
        let of = |pool: &PoolLine| format!("{} of {} on {}", pool.used, pool.gpus, clean(&pool.pool));
        let all = self.pools.iter().map(of).chain(self.or_any.then(|| "else any".to_owned()));
        all.collect::<Vec<_>>().join(", ")
    }

    /// A field for each.
    pub(super) fn fields(&self, text: &mut String, page: &Page) {
        for (number, pool) in (1_u32..).zip(&self.pools) {
            let nodes = count(pool.nodes, "node");
            let what = format!("{}: {} of {} GPUs used on {nodes}", pool.pool, pool.used, pool.gpus);
            field(text, page, &format!("pool {number}"), &clean(&what));
        }
        if self.or_any {
            field(text, page, "", "any node, where no pool has room");
        }
    }
}

fn none() -> String {
    "-".to_owned()
}

/// Thousandths as people write them.
fn gpu(milli: u64) -> String {
    Resource::Gpus.show(milli)
}

/// `0.125`.
fn millionths(part: u64) -> String {
    format!("{}.{:03}", part / 1_000_000, part % 1_000_000 / 1_000)
}

fn gpus(report: &QueueReport) -> Option<&ResourceReport> {
    report.resources.iter().find(|good| good.resource == Resource::Gpus)
}

/// `cpus 12 of 64, gpus/H100 2 of 4`.
fn others(report: &QueueReport) -> String {
    let others = report.resources.iter().filter(|good| good.resource != Resource::Gpus);
    let others = others.filter(|good| good.used > 0 || good.guaranteed > 0);
    let one = |good: &ResourceReport| {
        let show = |amount| good.resource.show(amount);
        let own = if good.guaranteed > 0 { format!(" of {}", show(good.guaranteed)) } else { String::new() };
        format!("{} {}{own}", clean(&good.resource.to_string()), show(good.used))
    };
    others.map(one).collect::<Vec<_>>().join(", ")
}

/// One queue: what is its own, how it stands in the order, and what waits in it.
pub(crate) fn one(page: &Page, view: &QueueDetailView) -> String {
    let mut text = format!("{} {}\n", "queue".bold(), clean(&view.queue.name).bold());
    let queue = &view.queue;
    let holds = format!(
        "{} running on {}, {} pending for {}",
        count(u64::from(queue.running), "gang"),
        count(u64::from(queue.devices_held), "GPU"),
        queue.pending,
        queue.devices_wanted
    );
    field(&mut text, page, "has", &holds);
    match &queue.report {
        Some(report) => {
            if let Some(view) = &queue.budget {
                let then = if view.budget.holds { "holds further jobs" } else { "warns" };
                let renews = page.date(view.renews_at);
                let what = format!("{}; it renews at {renews}, and {then} once it is spent", budget(view));
                field(&mut text, page, "budget", &what);
            }
            text += &terms(page, report);
        }
        None => field(&mut text, page, "is", "named by jobs, and not in the queue file"),
    }
    text + &waiting(page, view)
}

/// Every term of the order.
fn terms(page: &Page, report: &QueueReport) -> String {
    let mut text = String::new();
    let QueueReport { queue, share, decayed_usage: past, dominant, .. } = report;
    if let Some(parent) = &queue.parent {
        field(&mut text, page, "part of", &clean(parent.as_str()));
    }
    for (word, what) in bounds(page, queue) {
        field(&mut text, page, word, &what);
    }
    Pools::of(report).fields(&mut text, page);
    for place in &report.places {
        field(&mut text, page, "bound to", &bound(place));
    }
    let share_of = format!(
        "{} = what it has of {dominant} above its guarantee, as a part of the cluster, by its weight of {}",
        millionths(*share),
        gpu(queue.weight_milli)
    );
    field(&mut text, page, "share", &share_of);
    let past_of = format!("{} = what it used before, faded, likewise", millionths(*past));
    field(&mut text, page, "past", &past_of);
    let sum = millionths(share.saturating_add(*past));
    field(&mut text, page, "order", &format!("{sum} = share + past; of its siblings the least goes first"));
    if report.resources.is_empty() {
        return text;
    }
    let headings = ["RESOURCE", ">USED", ">WANTED", ">GUARANTEED", ">LIMIT", ">DUE", ">IN ALL"];
    let mut grid = Grid::new(page, &headings).indented(2);
    for good in &report.resources {
        let show = |amount| good.resource.show(amount);
        let maybe = |amount: Option<u64>| amount.map_or_else(none, show);
        grid.row(vec![
            cell(clean(&good.resource.to_string())),
            cell(show(good.used)),
            cell(show(good.wanted)),
            cell(show(good.guaranteed)),
            cell(maybe(good.limit)),
            cell(maybe(good.fair_share)),
            cell(show(good.capacity)),
        ]);
    }
    text + "\n" + &grid.render()
}

/// Where places are that a queue is guaranteed.
fn bound(place: &ShapeReport) -> String {
    let (bound, all) = (place.domains.len(), place.shape.count as usize);
    let short = if bound < all { "; whole nodes are short for the others" } else { "" };
    let domains: Vec<String> = place.domains.iter().map(|domain| clean(domain)).collect();
    let domains = if domains.is_empty() { none() } else { domains.join(", ") };
    format!("{domains} ({bound} of {all}){short}")
}

/// What the queue file bounds, beside amounts of resources.
fn bounds(page: &Page, queue: &Queue) -> Vec<(&'static str, String)> {
    let mut all = Vec::new();
    let amounts = |amounts: &Amounts| {
        let one = |(of, n): (&Resource, &u64)| format!("{} {}", of.show(*n), clean(&of.to_string()));
        amounts.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    if !queue.lend_max.is_empty() {
        all.push(("lends", format!("at most {}", amounts(&queue.lend_max))));
    }
    if !queue.shapes.is_empty() {
        let shape = |s: &phalanx_model::ShapeQuota| {
            format!("{} {} {} of {}", s.count, page.times(), s.level, count(u64::from(s.nodes), "whole node"))
        };
        all.push(("places", queue.shapes.iter().map(shape).collect::<Vec<_>>().join(", ")));
    }
    let levels = queue.order.as_ref().map_or(&[][..], QueueOrder::levels);
    if !levels.is_empty() {
        let hours = |ms: &u64| phalanx_model::show::milli(ms / 3_600);
        let levels: Vec<String> = levels.iter().map(hours).collect();
        all.push(("order", format!("least served first; levels at {} GPU-hours", levels.join(", "))));
    }
    if let Some(idle) = &queue.idle {
        all.push(("idle GPUs", idle_rule(idle)));
    }
    let access = access(&queue.access);
    if !access.is_empty() {
        all.push(("open to", access));
    }
    let caps = queue.caps;
    let gangs = |n: u32, what: &str| format!("{} {what}", count(u64::from(n), "gang"));
    let caps: Vec<String> = [
        caps.pending_max.map(|n| gangs(n, "that wait")),
        caps.running_max.map(|n| gangs(n, "that run")),
        caps.gang_devices_max.map(|n| format!("{} for one gang", count(u64::from(n), "GPU"))),
        caps.time_limit_max_ms.map(|ms| format!("a time limit of {}", span(ms))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !caps.is_empty() {
        all.push(("at most", caps.join(", ")));
    }
    all
}

/// `jobs are stopped and held after 30m without a kernel, if another job can start then; not those of ada, serving`.
fn idle_rule(rule: &IdlePolicy) -> String {
    let does = match rule.then {
        IdleThen::Warn => return "owners of idle jobs are notified".to_owned(),
        IdleThen::Hold => "stopped and held",
        IdleThen::End => "cancelled",
    };
    let when = if rule.is_on_demand { ", if another job can start then" } else { "" };
    let users = rule.spared_users.iter().map(String::as_str);
    let spared: Vec<&str> = users.chain(rule.spared_classes.iter().map(ClassName::as_str)).collect();
    let but = if spared.is_empty() {
        String::new()
    } else {
        format!("; not those of {}", clean(&spared.join(", ")))
    };
    format!("jobs are {does} after {} without a kernel{when}{but}", span(rule.after_ms))
}

/// `users ada, bob; groups vision; priority at most 10`.
fn access(access: &Access) -> String {
    let list = |word: &str, names: &[String]| {
        (!names.is_empty()).then(|| format!("{word} {}", clean(&names.join(", "))))
    };
    let priority = access.priority_max.map(|max| format!("priority at most {max}"));
    let said = [list("users", &access.users), list("groups", &access.groups), priority];
    said.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn waiting(page: &Page, view: &QueueDetailView) -> String {
    if view.waiting.is_empty() {
        return String::new();
    }
    let headings: &[&str] = if page.wide {
        &[">PLACE", ">JOB", "NAME", "OWNER", "QUEUE", "CLASS", ">PRIORITY", ">GPUS", "WAITS", "STARTS", "WHY"]
    } else {
        &[">PLACE", ">JOB", "NAME", "CLASS", ">GPUS", "STARTS", "WHY"]
    };
    let mut grid = Grid::new(page, headings).indented(2).one_line();
    for gang in &view.waiting {
        grid.row(waits(page, gang));
    }
    let mut text = format!("\n{}", grid.render());
    if view.more > 0 {
        let _ = writeln!(text, "  and {} more", view.more);
    }
    text
}

fn waits(page: &Page, gang: &WaitingView) -> Vec<comfy_table::Cell> {
    let job = if gang.gang.index == 0 { gang.gang.job.to_string() } else { gang.gang.to_string() };
    let class = if gang.class.is_empty() { none() } else { clean(&gang.class) };
    let times = super::turn::times_preempted(page, gang.evictions);
    let why = format!("{times}{}: {}", gang.reason, gang.detail);
    let mut cells = vec![cell(gang.position), cell(job), cell(clean(&gang.name))];
    if page.wide {
        cells.extend([cell(clean(&gang.owner)), cell(clean(&gang.queue))]);
    }
    cells.push(cell(class));
    if page.wide {
        cells.push(cell(gang.priority));
    }
    cells.push(cell(gang.devices));
    if page.wide {
        cells.push(dim(span(page.now.since(gang.waits_since))));
    }
    cells.extend([cell(gang.estimated_start.map_or_else(none, |at| page.ahead(at))), cell(clean(&why))]);
    cells
}
