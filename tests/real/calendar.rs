//! Windows of the calendar, drains by a time, and spot nodes that are taken back: what is told of nodes before it happens.

use std::fs;

use phalanx_api::protocol::{
    Answer, AuditFilter, ErrorCode, HistoryView, JobRef, NodeFilter, Verb, WhyView, WindowAsk, WindowKind,
    WindowView,
};
use phalanx_model::{Advisory, Job, JobId, NodeName, QueueName, Reason, Timestamp};

use crate::support::{Bench, TWO_NODES_OF_8, eventually, gang, number, refused, shell, trainer, until};

const HOUR: u64 = 3_600_000;

/// A spot node, which comes first by its name, and one that is not taken back.
const SPOT: &str = "nodes:
- {name: a1, devices: {count: 8, model: Test GPU}, price: 3600, spot: {price: 1200, notice: 20s}}
- {name: b1, devices: {count: 8, model: Test GPU}, price: 3600}
";

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp(u64::try_from(since.as_millis()).unwrap())
}

/// A window of these nodes from so long to so long from now.
fn window(nodes: &str, from_ms: u64, until_ms: u64) -> Verb {
    let (begins_at, ends_at) = (now().plus(from_ms), now().plus(until_ms));
    let reason = Some("new NICs".to_owned());
    Verb::AddWindow(WindowAsk { nodes: vec![nodes.to_owned()], begins_at, ends_at, held_for: None, reason })
}

fn calendar(bench: &Bench) -> Vec<WindowView> {
    match bench.ask(Verb::Calendar) {
        Ok(Answer::Calendar(windows)) => windows,
        other => panic!("{other:?}"),
    }
}

fn why(bench: &Bench, id: JobId) -> WhyView {
    match bench.ask(Verb::Why { job: JobRef::Id(id) }) {
        Ok(Answer::Why(view)) => view,
        other => panic!("{other:?}"),
    }
}

fn history(bench: &Bench, id: JobId) -> Vec<HistoryView> {
    match bench.ask(Verb::History { job: Some(JobRef::Id(id)), limit: 1_000 }) {
        Ok(Answer::History(events)) => events,
        other => panic!("{other:?}"),
    }
}

/// All of a node's devices, until it is cancelled.
fn whole_node(limit_ms: Option<u64>) -> Job {
    let mut job = shell(1, "exec sleep 1000");
    gang(&mut job).needs.devices = 8;
    job.policy.time_limit_ms = limit_ms;
    job
}

#[test]
fn a_notice_on_a_spot_node_makes_a_job_save_and_move() {
    let mut bench = Bench::up_with(SPOT);
    let mut job = trainer(&bench.path("ckpt"), 1, 100);
    gang(&mut job).needs.devices = 8;
    let signal = nix::sys::signal::Signal::SIGUSR1 as i32;
    job.policy.stop.advisory = Some(Advisory { signal, lead_ms: 300 });
    let id = {
        // Until it says that spot nodes will do, it does not go there.
        bench.done(Verb::Cordon { node: node("b1"), reason: None });
        let other = bench.submit(job.clone());
        assert_eq!(bench.get(other).state, "pending");
        bench.cancel(other);
        job.turn.takes_spot = true;
        bench.submit(job)
    };
    bench.await_state(id, "running");
    assert_eq!(bench.node_of(id), "a1");
    bench.done(Verb::Uncordon { node: node("b1") });
    until("some steps", || number(&bench, "ckpt/reached") >= 5);

    // As soon as the cluster file says.
    let said = bench.done(Verb::NoticeSpot { node: node("a1"), in_ms: None });
    assert!(said.starts_with("a1 is taken back in 20s"), "{said}");
    let error = refused(bench.ask(Verb::NoticeSpot { node: node("b1"), in_ms: None }));
    assert_eq!((error.code, error.hint.as_str()), (ErrorCode::BadRequest, "say it with `--in 2m`"));
    until("the second attempt", || bench.get(id).gangs[0].attempt == 2);
    bench.await_state(id, "running");
    assert_eq!(bench.node_of(id), "b1");
    until("its word", || bench.said(id).contains_key("resumed"));
    let resumed: u64 = bench.said(id)["resumed"].parse().unwrap();
    assert!(resumed >= 5, "it saved when it was told, and not only at step 15: {resumed}");

    // The node takes nothing, also after a restart, until somebody says so.
    bench.kill();
    bench.up();
    let told = calendar(&bench);
    assert_eq!((told.len(), told[0].kind, &told[0].nodes), (1, WindowKind::SpotNotice, &vec![node("a1")]));
    let ended = bench.ended(id);
    assert_eq!((ended.state.as_str(), ended.gangs[0].failures), ("succeeded", 0));
    bench.done(Verb::Uncordon { node: node("a1") });
    assert_eq!(calendar(&bench), []);

    // One attempt of two was on a spot node: a unit for each GPU and second there, and two saved.
    let spot = ended.spot.unwrap();
    assert!(spot.device_ms >= 8 * 250, "{spot:?}");
    assert_eq!(spot.list_micro, spot.device_ms * 1_000);
    assert_eq!(spot.spot_micro, spot.list_micro / 3);
    let events = history(&bench, id);
    let words: Vec<&str> = events.iter().map(|event| event.event.what.as_str()).collect();
    let saved = words.iter().position(|word| *word == "spot").unwrap();
    assert_eq!(words[saved - 1..=saved + 1], ["stopping", "spot", "requeued"]);
    let detail = &events[saved].event.detail;
    assert!(detail.contains("of GPU time on spot nodes for") && detail.ends_with(" saved"), "{detail}");
    bench.await_nobody();
}

#[test]
fn no_long_job_starts_across_a_window_and_why_says_so() {
    let mut bench = Bench::up_with(TWO_NODES_OF_8);
    let said = bench.done(window("n[1-2]", HOUR, 2 * HOUR));
    assert!(
        said.starts_with("maintenance on n[1-2]: begins in ") && said.ends_with(" and lasts 1h"),
        "{said}"
    );
    let long = bench.submit(whole_node(Some(2 * HOUR)));
    let short = bench.submit(whole_node(Some(HOUR / 2)));
    bench.await_state(short, "running");
    for restart in [false, true] {
        if restart {
            bench.kill();
            bench.up();
        }
        let view = why(&bench, long);
        assert_eq!(
            (view.job.state.as_str(), view.job.reason.as_str()),
            ("pending", "Maintenance"),
            "{view:#?}"
        );
        let report = &view.reports[0];
        let Reason::Window { begins_at, ends_at, .. } = report.reason else { panic!("{report:#?}") };
        let told = calendar(&bench);
        let of_both = vec![node("n1"), node("n2")];
        assert_eq!((told.len(), told[0].kind, &told[0].nodes), (1, WindowKind::Maintenance, &of_both));
        assert_eq!((told[0].begins_at, told[0].ends_at), (begins_at, Some(ends_at)));
        let by = told[0].added_by.clone().unwrap();
        assert_eq!(by.reason.as_deref(), Some("new NICs"));
        let Ok(Answer::Nodes(nodes)) = bench.ask(Verb::FindNodes(NodeFilter::default())) else { panic!() };
        assert!(nodes.nodes.iter().all(|of| of.window.as_ref().unwrap().added_by.as_ref() == Some(&by)));
        // The answer does not wait for the history, and a list of the audit log does.
        bench.ask(Verb::Audit { filter: AuditFilter::default(), limit: 1 }).unwrap();
    }
    // A window that is on closes a node that is not cordoned.
    bench.done(Verb::Cordon { node: node("n1"), reason: None });
    assert_eq!(bench.done(Verb::Uncordon { node: node("n1") }), "n1 takes work");
    bench.done(window("n1", 0, HOUR / 4));
    let said = bench.done(Verb::Uncordon { node: node("n1") });
    assert!(said.starts_with("n1 is no longer cordoned, but maintenance closes it for "), "{said}");
    assert!(said.ends_with(" more: `phalanx calendar remove n1` removes that window"), "{said}");
    let now_on = calendar(&bench)[0].begins_at;
    bench.done(Verb::RemoveWindow { nodes: vec!["n1".to_owned()], begins_at: Some(now_on) });
    let off = Verb::RemoveWindow { nodes: vec!["cluster=cluster".to_owned()], begins_at: None };
    assert_eq!(bench.done(off), "2 windows are called off on n[1-2]");
    bench.await_state(long, "running");

    let whatever = Verb::RemoveWindow { nodes: vec!["n1".to_owned()], begins_at: None };
    assert_eq!(refused(bench.ask(whatever)).code, ErrorCode::NotFound);
    for (verb, message) in [
        (window("n3", 0, HOUR), "no node n3"),
        (window("rack=r1", 0, HOUR), "no level is named \"rack\""),
        (window("n1", HOUR, HOUR / 2), "the window ends before it begins"),
    ] {
        assert_eq!(refused(bench.ask(verb)).message, message);
    }
}

#[test]
fn a_drain_by_a_time_moves_who_would_still_run() {
    let mut bench = Bench::up_with(TWO_NODES_OF_8);
    let id = bench.submit(whole_node(None));
    bench.await_state(id, "running");
    let from = bench.node_of(id);
    let reason = Some("broken fan".to_owned());
    let by = Some(now().plus(2_000));
    let said = bench.done(Verb::Drain { node: node(&from), by, reason: reason.clone() });
    let moved = format!("; 1 job that may run longer is moved away: {id} ({})", bench.get(id).name);
    assert!(said.ends_with(&moved), "{said}");
    // The answer does not wait for the audit log, and a list of it does.
    bench.ask(Verb::Audit { filter: AuditFilter::default(), limit: 1 }).unwrap();
    bench.kill();
    bench.up();
    until("the second attempt", || bench.get(id).gangs[0].attempt == 2);
    bench.await_state(id, "running");
    assert_ne!(bench.node_of(id), from);
    let told = calendar(&bench);
    assert_eq!((told.len(), told[0].kind, told[0].ends_at), (1, WindowKind::Drain, None));
    assert_eq!(told[0].added_by.as_ref().and_then(|by| by.reason.clone()), reason);
    // A list of nodes says so, and who said it why.
    let seen = |bench: &Bench| {
        let Ok(Answer::Nodes(view)) = bench.ask(Verb::FindNodes(NodeFilter::default())) else {
            panic!("no nodes")
        };
        let node = view.nodes.into_iter().find(|of| of.name == node(&from)).unwrap();
        (node.window.map(|window| window.kind), node.closed_by.and_then(|by| by.reason))
    };
    assert_eq!(seen(&bench), (Some(WindowKind::Drain), reason));
    // Nothing goes there before it is uncordoned.
    let next = bench.submit(whole_node(None));
    assert_eq!(
        eventually("a reason", || Some(bench.get(next).reason).filter(|r| !r.is_empty())),
        "Maintenance"
    );
    bench.done(Verb::Uncordon { node: node(&from) });
    bench.await_state(next, "running");
    assert_eq!(seen(&bench), (None, None));
    assert_eq!((bench.node_of(next), calendar(&bench)), (from, Vec::new()));
}

#[test]
fn windows_of_the_cluster_file_are_those_that_stand_in_it() {
    let file = |calendar: &str| format!("{TWO_NODES_OF_8}calendar:{calendar}\n");
    let at = |hour: u32| format!("2999-01-01T{hour:02}:00Z");
    let one = format!("{{nodes: [n1], from: {}, until: {}}}", at(8), at(9));
    let two = format!("{{nodes: [n2], from: {}, until: {}, for: vision}}", at(8), at(10));
    let over = "{nodes: [n1], from: 2020-01-01T00:00Z, until: 2020-01-02T00:00Z}";
    let mut bench = Bench::up_with(&file(&format!(" [{one}, {two}, {over}]")));
    bench.done(window("n1", HOUR, 2 * HOUR));
    let shown = |bench: &Bench| -> Vec<(String, Option<QueueName>, bool)> {
        let view = |w: WindowView| (w.nodes[0].to_string(), w.held_for, w.is_declared);
        calendar(bench).into_iter().map(view).collect()
    };
    let vision = QueueName::new("vision").ok();
    let told = ("n1".to_owned(), None, false);
    let first = ("n1".to_owned(), None, true);
    let second = ("n2".to_owned(), vision, true);
    assert_eq!(shown(&bench), [told.clone(), first.clone(), second.clone()]);
    // Called off, it is back with the next start; taken out of the file, it is gone.
    let off = bench.done(Verb::RemoveWindow { nodes: vec!["n2".to_owned()], begins_at: None });
    assert!(off.ends_with("what stands in the cluster file is back at the next start"), "{off}");
    assert_eq!(shown(&bench), [told.clone(), first]);
    bench.kill();
    fs::write(bench.path("cluster.yaml"), file(&format!(" [{two}]"))).unwrap();
    bench.up();
    assert_eq!(shown(&bench), [told, second]);
}
