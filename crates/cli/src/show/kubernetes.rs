//! Jobs, instances and nodes of a cluster.

pub(crate) mod queues;

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_kube::user::{EventView, InstanceView, JobView, NodeView};

use super::table::{self, Grid, cell, dim};
use super::time::span;
use super::{Page, clean, count, field, nothing};

/// Events that `why` lists, the newest.
const EVENTS_SHOWN: usize = 20;
/// Jobs on a node that are named before the rest is only counted.
const HOLDERS_SHOWN: usize = 4;

/// One line for each job, in the columns that one machine has.
pub(crate) fn list(page: &Page, jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return nothing(page, "no jobs wait or run; `phalanx ps -a` shows finished ones");
    }
    let headings = ["NAME", "TRAINER", "STATE", ">RANKS", ">GPUS", "SUBMITTED", ">RAN", "WHERE OR WHY"];
    let mut grid = Grid::new(page, &headings).one_line();
    for job in jobs {
        grid.row(vec![
            cell(clean(&job.name)),
            cell(job.trainer),
            table::state(job.state),
            cell(job.size),
            cell(job.gpus),
            dim(page.ago(job.created_at)),
            cell(ran(page, job)),
            cell(clean(&where_or_why(job))),
        ]);
    }
    grid.render()
}

fn ran(page: &Page, job: &JobView) -> String {
    let end = job.finished_at.unwrap_or(page.now);
    job.started_at.map_or_else(|| "-".to_owned(), |at| span(end.since(at)))
}

fn where_or_why(job: &JobView) -> String {
    if !job.detail.is_empty() {
        return job.detail.clone();
    }
    let mut nodes: Vec<&str> = job.instances.iter().filter_map(|instance| instance.node.as_deref()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes.join(", ")
}

/// A job and its instances, in the columns that Arena's users know.
pub(crate) fn one(page: &Page, job: &JobView) -> String {
    let mut text = String::new();
    if !page.quiet {
        let _ = writeln!(text, "{}  {}  {}", clean(&job.name).bold(), job.trainer, job.state);
        field(&mut text, page, "namespace", &clean(&job.namespace));
        field(&mut text, page, "object", &clean(&job.kind));
        if !job.queue.is_empty() {
            field(&mut text, page, "queue", &clean(&job.queue));
        }
        field(&mut text, page, "submitted", &page.ago(job.created_at));
        field(&mut text, page, "ran", &ran(page, job));
        field(&mut text, page, "size", &format!("{}, {}", count(job.size, "pod"), count(job.gpus, "GPU")));
        if !job.detail.is_empty() {
            field(&mut text, page, "why", &clean(&job.detail));
        }
        text.push('\n');
    }
    if job.instances.is_empty() {
        return text + &nothing(page, "no instances: its pods are created when all of them have a place");
    }
    let headings = ["NAME", "STATUS", "AGE", "IS_CHIEF", ">GPU(Requested)", "NODE", ""];
    let mut grid = Grid::new(page, &headings);
    for instance in &job.instances {
        grid.row(vec![
            cell(clean(&instance.name)),
            cell(clean(&instance.status)),
            cell(span(page.now.since(instance.created_at))),
            cell(instance.is_chief),
            cell(instance.gpus),
            cell(place(instance)),
            dim(clean(&instance.why)),
        ]);
    }
    text + &grid.render()
}

/// `node-0:0-3`.
fn place(instance: &InstanceView) -> String {
    let node = instance.node.as_deref().unwrap_or("N/A");
    let devices = instance.devices.as_deref().filter(|devices| *devices != "-");
    clean(&devices.map_or_else(|| node.to_owned(), |devices| format!("{node}:{devices}")))
}

/// Why a job waits: what its pods say, and what was told of them.
pub(crate) fn why(page: &Page, job: &JobView, events: &[EventView]) -> String {
    let mut text = format!("{}  {}\n", clean(&job.name).bold(), job.state);
    let mut reasons: Vec<&str> = job.instances.iter().map(|i| i.why.as_str()).collect();
    reasons.push(&job.detail);
    reasons.retain(|reason| !reason.is_empty());
    reasons.sort_unstable();
    reasons.dedup();
    if reasons.is_empty() {
        field(&mut text, page, "why", "it does not wait");
    }
    for reason in reasons {
        field(&mut text, page, "why", &clean(reason));
    }
    if events.is_empty() || page.quiet {
        return text;
    }
    text.push('\n');
    let mut grid = Grid::new(page, &["WHEN", "ABOUT", "REASON", "MESSAGE"]);
    for event in events.iter().skip(events.len().saturating_sub(EVENTS_SHOWN)) {
        let cells = [&event.about, &event.reason, &event.message].map(|text| cell(clean(text)));
        grid.row(std::iter::once(dim(page.ago(event.at))).chain(cells).collect());
    }
    text + &grid.render()
}

/// One line for each node, and how much is held in all.
pub(crate) fn nodes(page: &Page, nodes: &[NodeView]) -> String {
    if nodes.is_empty() {
        return nothing(page, "no nodes");
    }
    let headings =
        ["NAME", "IPADDRESS", "ROLE", "STATUS", ">GPU(Total)", ">GPU(Allocated)", "HARDWARE", "JOBS"];
    let mut grid = Grid::new(page, &headings);
    for node in nodes {
        let roles = if node.roles.is_empty() { "<none>".to_owned() } else { node.roles.join(",") };
        grid.row(vec![
            cell(clean(&node.name)),
            cell(clean(&node.address)),
            cell(clean(&roles)),
            table::state(node.state),
            cell(node.gpus),
            match &node.shares {
                Some(shares) => cell(format!("{}/{} shares", shares.held, shares.total)),
                None => cell(node.gpus_held),
            },
            cell(clean(&node.model)),
            dim(clean(&holders(page, node))),
        ]);
    }
    let mut text = grid.render();
    if !page.quiet {
        let total: u64 = nodes.iter().filter(|node| node.shares.is_none()).map(|node| node.gpus).sum();
        let held: u64 = nodes.iter().map(|node| node.gpus_held).sum();
        let tenths = (held * 1_000).checked_div(total).unwrap_or(0);
        let share = format!("{}.{}%", tenths / 10, tenths % 10);
        let _ = writeln!(text, "\nAllocated/Total GPUs In Cluster: {held}/{total} ({share})");
        for (node, shares) in nodes.iter().filter_map(|node| Some((node, node.shares.as_ref()?))) {
            let problem = shares.problem.as_ref().map_or(String::new(), |problem| format!("; {problem}"));
            let said = clean(&format!("{}{problem}", shares.of));
            let _ = writeln!(text, "Shares of GPUs: {} ({said})", clean(&node.name));
        }
        for node in nodes.iter().filter(|node| !node.closed.is_empty()) {
            let closed: Vec<String> = node.closed.iter().map(u32::to_string).collect();
            let gpus = if closed.len() == 1 { "GPU" } else { "GPUs" };
            let _ = writeln!(text, "Closed by health: {} ({gpus} {})", clean(&node.name), closed.join(", "));
        }
        for node in nodes.iter().filter(|node| !node.overcommitted.is_empty()) {
            let what = clean(&node.overcommitted.join(", "));
            let _ = writeln!(text, "Over-committed by its pods: {} ({what})", clean(&node.name));
        }
    }
    text
}

fn holders(page: &Page, node: &NodeView) -> String {
    let limit = if page.wide { usize::MAX } else { HOLDERS_SHOWN };
    let mut parts: Vec<String> =
        node.held.iter().take(limit).map(|(job, gpus)| format!("{job}: {gpus}")).collect();
    if node.held.len() > limit {
        parts.push(format!("and {} more", node.held.len() - limit));
    }
    parts.join(", ")
}

/// GPUs by job: what each asked for and what it has.
pub(crate) fn top_job(page: &Page, jobs: &[JobView]) -> String {
    if jobs.is_empty() {
        return nothing(page, "no jobs wait or run");
    }
    let headings = ["NAME", "STATUS", "TRAINER", "AGE", ">GPU(Requested)", ">GPU(Allocated)", "NODE"];
    let mut grid = Grid::new(page, &headings);
    for job in jobs {
        let bound = job.instances.iter().filter(|instance| instance.node.is_some());
        let held: u64 = bound.map(|instance| instance.gpus).sum();
        let place = JobView { detail: String::new(), ..job.clone() };
        grid.row(vec![
            cell(clean(&job.name)),
            table::state(job.state),
            cell(job.trainer),
            cell(span(page.now.since(job.created_at))),
            cell(job.gpus),
            cell(held),
            cell(clean(&where_or_why(&place))),
        ]);
    }
    grid.render()
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use phalanx_kube::user::SharesView;
    use phalanx_model::Timestamp;

    use super::*;

    fn page() -> Page {
        let now = Timestamp(100_000);
        Page { width: None, now, tz: TimeZone::UTC, wide: false, quiet: false, ascii: false }
    }

    fn instance(name: &str, node: Option<&str>) -> InstanceView {
        InstanceView {
            name: name.to_owned(),
            status: if node.is_some() { "Running" } else { "Pending" }.to_owned(),
            is_chief: name.ends_with("-0"),
            created_at: Timestamp(40_000),
            gpus: 1,
            node: node.map(str::to_owned),
            rank: None,
            devices: node.map(|_| "0".to_owned()),
            why: String::new(),
        }
    }

    fn job(instances: Vec<InstanceView>) -> JobView {
        JobView {
            name: "vgg16".to_owned(),
            namespace: "default".to_owned(),
            trainer: "mpijob",
            kind: "Job".to_owned(),
            state: if instances.is_empty() { "pending" } else { "running" },
            queue: String::new(),
            created_at: Timestamp(0),
            started_at: None,
            finished_at: None,
            size: 2,
            gpus: 2,
            detail: String::new(),
            instances,
        }
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn instances_stand_in_the_columns_that_users_of_arena_know() {
        let job = job(vec![instance("vgg16-0", Some("node-1")), instance("vgg16-1", None)]);
        let shown = plain(&one(&Page { quiet: true, ..page() }, &job));
        let words: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = [
            vec!["vgg16-0", "Running", "1m", "00s", "true", "1", "node-1:0"],
            vec!["vgg16-1", "Pending", "1m", "00s", "false", "1", "N/A"],
        ];
        assert_eq!(words, expected);
        let headed = plain(&one(&page(), &job));
        let headings = headed.lines().find(|line| line.starts_with("NAME")).unwrap_or_default();
        let headings: Vec<&str> = headings.split_whitespace().collect();
        assert_eq!(headings, ["NAME", "STATUS", "AGE", "IS_CHIEF", "GPU(Requested)", "NODE"]);
    }

    #[test]
    fn a_job_that_waits_has_no_instances_and_says_so() {
        let shown = plain(&one(&page(), &job(Vec::new())));
        assert!(
            shown.contains("no instances: its pods are created when all of them have a place"),
            "{shown}"
        );
    }

    #[test]
    fn nodes_end_with_what_is_held_of_all() {
        let node = |name: &str, held: u64| NodeView {
            name: name.to_owned(),
            address: "10.0.0.1".to_owned(),
            state: "open",
            roles: Vec::new(),
            schedule: None,
            model: String::new(),
            gpus: 8,
            gpus_held: held,
            shares: None,
            overcommitted: Vec::new(),
            closed: Vec::new(),
            held: [("default/vgg16".to_owned(), held)].into(),
        };
        let shown = plain(&nodes(&page(), &[node("a", 1), node("b", 0)]));
        assert!(shown.ends_with("\nAllocated/Total GPUs In Cluster: 1/16 (6.2%)\n"), "{shown}");
        let shares = SharesView {
            of: "8 GPUs, 4 replicas each (mps)".to_owned(),
            resource: "nvidia.com/gpu".to_owned(),
            total: 32,
            held: 5,
            problem: Some("no label x".to_owned()),
        };
        let divided = NodeView { shares: Some(shares), ..node("b", 0) };
        let shown = plain(&nodes(&page(), &[node("a", 1), divided]));
        assert!(shown.contains("5/32 shares"), "{shown}");
        let end = "\nAllocated/Total GPUs In Cluster: 1/8 (12.5%)\nShares of GPUs: b (8 GPUs, 4 replicas each (mps); no label x)\n";
        assert!(shown.ends_with(end), "{shown}");
        let over = vec!["nvidia.com/gpu".to_owned(), "pods".to_owned()];
        let shown = plain(&nodes(&page(), &[node("a", 9), NodeView { overcommitted: over, ..node("b", 9) }]));
        assert!(shown.ends_with("\nOver-committed by its pods: b (nvidia.com/gpu, pods)\n"), "{shown}");
    }
}
