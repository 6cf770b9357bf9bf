//! Every page as it looks, from hand-made answers. `UPDATE=1 cargo test -p phalanx-cli` writes the pages anew;
//! read the difference before it is committed.

#![allow(unreachable_pub)]

#[path = "../../tests/views/mod.rs"]
pub(crate) mod views;

use std::path::Path;

use jiff::tz::TimeZone;
use phalanx_api::protocol::{DefragView, NodeWindowView, WhyView, WindowView};
use phalanx_discover::{check, topo_m};
use phalanx_model::{DeviceMask, Gang, Job, Needs, Report, WeighedLink};

use super::dry_run::DryRun;
use super::why::Names;
use super::*;

fn page() -> Page {
    Page { width: None, now: views::NOW, tz: TimeZone::UTC, wide: false, quiet: false, ascii: false }
}

fn narrow() -> Page {
    Page { width: Some(80), ..page() }
}

fn wide() -> Page {
    Page { wide: true, ..page() }
}

fn fleet() -> Fleet {
    Fleet::new(views::nodes().nodes)
}

fn names() -> Names {
    views::jobs().into_iter().map(|job| (job.id, job.name)).collect()
}

/// Compares without colours: what a pipe shows.
fn same(name: &str, shown: &str) {
    let shown = anstream::adapter::strip_str(shown).to_string();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &shown).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, known, "{name} differs; UPDATE=1 writes it anew\n{shown}");
    assert!(shown.lines().all(|line| line == line.trim_end()), "{name} has spaces at the end of a line");
}

#[test]
fn ps() {
    same("ps", &jobs::list(&page(), &views::jobs(), true));
    same("ps-wide", &jobs::list(&wide(), &views::jobs(), true));
    same("ps-80", &jobs::list(&narrow(), &views::jobs(), true));
    let mut idle = views::running();
    let since = phalanx_api::protocol::UsageView { busy_percent: 0, idle_since: Some(views::ago(1_320)) };
    idle.gangs[0].usage = Some(since);
    same("ps-idle", &jobs::list(&page(), &[idle], true));
    same("ps-stalled", &jobs::list(&page(), &[stalled()], true));
    same("ps-quiet", &jobs::list(&Page { quiet: true, ..page() }, &views::jobs(), true));
    let queue = |job: phalanx_api::protocol::JobView| phalanx_api::protocol::JobView {
        queue: if job.id.0 == 5 { "vision".to_owned() } else { job.queue },
        ..job
    };
    same("ps-queues", &jobs::list(&page(), &views::jobs().into_iter().map(queue).collect::<Vec<_>>(), true));
    same("ps-none", &jobs::list(&page(), &[], false));
}

/// A job that stands still.
fn stalled() -> phalanx_api::protocol::JobView {
    let mut job = views::running();
    if let Some(progress) = &mut job.gangs[0].progress {
        (progress.ends_at, progress.stalled_since, progress.behind) = (None, Some(views::ago(192)), vec![1]);
        progress.stragglers.clear();
        progress.step_us = Some(31_400_000);
        progress.unread = Some("rank 0: it has no step=NUMBER: \"epoch 7\"".to_owned());
    }
    job
}

#[test]
fn map() {
    let lit = phalanx_model::JobId(5);
    same("map", &map::page(&page(), &views::map(), None));
    same("map-80", &map::page(&narrow(), &views::map(), None));
    same("map-ascii", &map::page(&Page { ascii: true, ..narrow() }, &views::map(), Some(lit)));
    same("map-quiet", &map::page(&Page { quiet: true, ..narrow() }, &views::map(), None));
}

#[test]
fn get() {
    same("get", &jobs::one(&page(), &views::running(), &fleet()));
    same("get-80", &jobs::one(&narrow(), &views::running(), &fleet()));
    same("get-stalled", &jobs::one(&page(), &stalled(), &fleet()));
    same("get-pending", &jobs::one(&page(), &views::pending(), &fleet()));
    let mut array = views::running();
    array.gangs = (0..20)
        .map(|i| {
            let mut gang = array.gangs[0].clone();
            gang.id.index = i;
            let over =
                phalanx_model::Phase::Finished { ending: phalanx_model::Ending::Succeeded, at: views::NOW };
            gang.phase = if i < 17 { Some(over) } else { gang.phase };
            gang
        })
        .collect();
    same("get-array", &jobs::one(&page(), &array, &fleet()));
    same("get-failed", &jobs::one(&page(), &views::failed(), &fleet()));
    same("ended", &jobs::ended_line(&page(), &views::failed()));
}

/// The queues, one of which has a budget that is nearly spent.
fn queues_with_budget() -> Vec<phalanx_api::protocol::QueueView> {
    let budget = phalanx_model::Budget {
        amount_micro: 5_000_000_000,
        per: phalanx_model::Period::Month,
        warn_milli: 800,
        holds: true,
    };
    let (begins_at, renews_at) = budget.per.around(views::NOW);
    let mut queues = views::queues();
    let spent_micro = 4_120_503_000;
    queues[2].budget = Some(phalanx_api::protocol::BudgetView { budget, spent_micro, begins_at, renews_at });
    queues
}

#[test]
fn nodes_and_queues() {
    same("nodes", &nodes::list(&page(), &views::nodes()));
    same("nodes-wide", &nodes::list(&wide(), &views::nodes()));
    same("endpoints", &endpoints::page(&page(), &views::endpoints()));
    same("endpoints-80", &endpoints::page(&narrow(), &views::endpoints()));
}

#[test]
fn moves() {
    same("defrag", &defrag::page(&page(), &views::defrag()));
    same("defrag-80", &defrag::page(&narrow(), &views::defrag()));
    let unknown = DefragView { otherwise: None, is_applied: true, ..views::defrag() };
    same("defrag-applied", &defrag::page(&page(), &unknown));
    same("health", &health::page(&page(), &views::health(), false));
    same("health-80", &health::page(&narrow(), &views::health(), false));
    same("health-one", &health::page(&page(), &views::health_of_one(), true));
    same("audit", &audit::list(&page(), &views::audit()));
    same("tokens", &tokens::list(&page(), &views::tokens()));
    same("token-created", &tokens::created(&page(), &views::new_token()));
    let url = "http://127.0.0.1:7077/#token=phx_0123";
    same("dashboard", &tokens::dashboard(&page(), &views::new_token(), url));
    same("advise", &advise::page(&page(), &views::advice(), false));
    same("advise-80", &advise::page(&narrow(), &views::advice(), true));
    same("bill", &bill::page(&page(), &views::bill(), phalanx_model::Timestamp(1_793_491_200_000)));
    let seen = top::Seen { nodes: Some(views::nodes()), jobs: views::jobs(), queues: views::queues() };
    same("top", &top::all(&page(), &seen));
    let (lines, most) = top::screen(&narrow(), &seen, top::Tab::Jobs, 1, 8);
    assert_eq!((lines.len(), most), (8, 2));
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    same("top-80", &(lines.join("\n") + "\n"));
    let (mut kept, on) = (views::nodes(), views::calendar());
    for (node, window) in kept.nodes.iter_mut().zip([&on[0], &on[3]]) {
        let WindowView { kind, begins_at, ends_at, held_for, added_by, .. } = window.clone();
        let added_by = added_by.or_else(|| on[2].added_by.clone());
        node.window = Some(NodeWindowView { kind, begins_at, ends_at, held_for, added_by });
    }
    kept.nodes[1].closed_by = None;
    same("nodes-windows", &nodes::list(&page(), &kept));
    same("nodes-80", &nodes::list(&narrow(), &views::nodes()));
    same("queues", &queues::list(&page(), &views::queues()));
    same("queues-wide", &queues::list(&wide(), &views::queues()));
    same("queues-80", &queues::list(&narrow(), &views::queues()));
    same("queues-budget", &queues::list(&page(), &queues_with_budget()));
    let mut spent = views::queue();
    spent.queue.budget = queues_with_budget()[2].budget.clone();
    if let Some(report) = &mut spent.queue.report {
        let (then, spared_users) = (phalanx_model::IdleThen::Hold, vec!["ada".to_owned()]);
        report.queue.idle = Some(phalanx_model::IdlePolicy { then, spared_users, ..Default::default() });
    }
    same("queue-budget", &queues::one(&narrow(), &spent));
    same("queue", &queues::one(&page(), &views::queue()));
    same("queue-wide", &queues::one(&wide(), &views::queue()));
    same("queue-80", &queues::one(&narrow(), &views::queue()));
}

#[test]
fn calendar() {
    same("calendar", &super::calendar::list(&page(), &views::calendar()));
    same("calendar-none", &super::calendar::list(&page(), &[]));
}

#[test]
fn why() {
    same("why", &why::page(&page(), &views::why(), &names(), &fleet()));
    same("why-80", &why::page(&narrow(), &views::why(), &names(), &fleet()));
    // Two gangs go first, and keep it from what comes free at the first end.
    let mut behind = views::why();
    let report = &mut behind.reports[0];
    report.position = 3;
    report.estimated_start.as_mut().unwrap().at.0 += 60_000;
    same("why-behind", &why::page(&page(), &behind, &names(), &fleet()));
    // It runs elsewhere than on `gpu-2`, which others crowd.
    let weighed = vec![WeighedLink { bandwidth: views::slow(), is_avoided: true }];
    let started = Report { position: 0, weighed, ..views::report() };
    let running = WhyView { job: views::running(), reports: vec![started], ..views::why() };
    same("why-running", &why::page(&page(), &running, &names(), &fleet()));
}

#[test]
fn a_wait_for_a_near_place_may_have_no_end() {
    let mut waits = views::why();
    let level = phalanx_model::LevelName::new("node").unwrap();
    for report in &mut waits.reports {
        report.reason = phalanx_model::Reason::NearerWait {
            level: level.clone(),
            nodes: 2,
            slower_milli: Some(7_400),
            until: phalanx_model::Timestamp::MAX,
        };
    }
    let shown = why::page(&Page { width: None, ..page() }, &waits, &names(), &fleet());
    assert!(shown.contains(", however long that takes"), "{shown}");
}

/// One that made way, and for which a place is held.
#[test]
fn service() {
    let job = views::service();
    same("ps-service", &jobs::list(&page(), std::slice::from_ref(&job), false));
    same("get-service", &jobs::one(&page(), &job, &fleet()));
}

#[test]
fn preempted() {
    let job = views::preempted();
    same("ps-preempted", &jobs::list(&page(), std::slice::from_ref(&job), false));
    same("get-preempted", &jobs::one(&page(), &job, &fleet()));
    same("history", &history::list(&page(), &views::history(), false, &names()));
    same("history-one", &history::list(&narrow(), &views::history()[1..], true, &names()));
    same("why-preempted", &why::page(&page(), &views::why_preempted(), &names(), &fleet()));
}

/// A job that has to be inside one rack, and waits there for the nearest placement, had two lines named `topology`.
#[test]
fn no_two_lines_of_a_job_have_one_name() {
    let mut job = views::running();
    let topology = &mut job.job.as_mut().unwrap().gangs[0].topology;
    topology.required = Some(phalanx_model::LevelName::new("rack").unwrap());
    topology.price_milli = Some(1_000);
    let shown = anstream::adapter::strip_str(&jobs::one(&page(), &job, &fleet())).to_string();
    let lines = [
        "topology     all inside one rack",
        "prefers      the nearest placement, as long as that is worth a wait",
    ];
    for line in lines {
        assert_eq!(shown.matches(line).count(), 1, "{shown}");
    }
    assert_eq!(shown.matches("\n  topology ").count(), 1, "{shown}");
}

fn small_job() -> Job {
    let job = views::job();
    let needs = Needs { devices: 1, ..Needs::default() };
    Job { gangs: vec![Gang { needs, ..job.gangs[0].clone() }], ..job }
}

#[test]
fn dry_run() {
    let (job, fleet, names) = (small_job(), fleet(), names());
    let shown =
        |page: &Page, view| dry_run::page(page, &DryRun { job: &job, view, fleet: &fleet, names: &names });
    let view = views::dry_run();
    same("dry-run", &shown(&page(), &view));
    same("dry-run-ascii", &shown(&Page { ascii: true, ..narrow() }, &view));
    let mut later = views::dry_run();
    later.reports = vec![views::report()];
    same("dry-run-later", &shown(&page(), &later));
    let mut same_place = views::dry_run();
    if let (Some(Some(other)), Some(report)) = (same_place.first_fit.first_mut(), same_place.reports.first())
    {
        other.placement = report.nearest.clone().unwrap();
        other.predicted = views::predicted(12_400, 8_100, 12_500_000_000);
    }
    same("dry-run-same", &shown(&page(), &same_place));
}

#[test]
fn topo() {
    let view = views::topology();
    same("topo", &topo::cluster(&page(), &view, None));
    same("topo-60", &topo::cluster(&Page { width: Some(60), ascii: true, ..page() }, &view, None));
    same("topo-node", &topo::cluster(&page(), &view, Some(&views::node("gpu-3"))));
    let mut many = view;
    many.nodes = (0..200)
        .map(|i| phalanx_model::Node { name: views::node(&format!("n-{i}")), ..many.nodes[i % 3].clone() })
        .collect();
    let shown = topo::cluster(&page(), &many, None);
    assert!(shown.contains("and 188 more machines"), "{shown}");
    same("topo-many", &format!("{}\n", shown.split("\n\n").next().unwrap()));
}

#[test]
fn findings() {
    let text = include_str!("../../../../fixtures/topo_m/h100-degraded-8.txt");
    let machine = topo_m::parse(text).unwrap().machine;
    same("check", &topo::findings(&page(), &[("node-a".to_owned(), check::check(&machine))]));
    same("check-none", &topo::findings(&page(), &[("node-a".to_owned(), Vec::new())]));
    let drawn = topo::machine(&page(), &machine, DeviceMask::EMPTY, &|_| None);
    assert!(drawn.lines().count() > 5, "{drawn}");
}

/// Nothing that another user wrote reaches the terminal as a command to it.
#[test]
fn names_cannot_steer_the_terminal() {
    let shown = jobs::list(&page(), &views::jobs(), true);
    assert!(!shown.contains("\u{1b}[31m["), "{shown:?}");
    let shown = jobs::one(&page(), &views::failed(), &fleet());
    assert!(!shown.contains("eval\u{1b}"), "{shown:?}");
}
