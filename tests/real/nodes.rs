//! Nodes that take no work, and notices of what happens.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};

use phalanx_api::protocol::{ErrorCode, Verb};
use phalanx_model::{Job, JobId, NodeName};

use crate::support::{Bench, LONG, TWO_NODES_OF_8, gang, refused, shell, until};

fn node(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

/// Eight devices on one node, until the file `go` is there.
fn whole_node(bench: &Bench) -> Job {
    let go = bench.path("go");
    let mut job = shell(2, &format!("while [ ! -e {} ]; do sleep 0.02; done", go.display()));
    gang(&mut job).needs.devices = 4;
    gang(&mut job).members_per_node = Some(2);
    job
}

#[test]
fn a_cordoned_node_takes_nothing_new_until_it_is_uncordoned_also_after_a_restart() {
    let mut bench = Bench::up_with(TWO_NODES_OF_8);
    let first = bench.submit(whole_node(&bench));
    bench.await_state(first, "running");
    let other = if bench.node_of(first) == "n1" { "n2" } else { "n1" };
    bench.done(Verb::Cordon { node: node(other), reason: None });
    let waiting = bench.submit(whole_node(&bench));
    let view = bench.get(waiting);
    assert_eq!((view.state.as_str(), view.reason.as_str()), ("pending", "ReqNodeNotAvail"), "{view:#?}");
    assert!(view.detail.contains(other), "{}", view.detail);
    bench.kill();
    bench.up();
    assert_eq!(bench.get(waiting).reason, "ReqNodeNotAvail");
    assert_eq!(bench.get(first).state, "running");
    bench.done(Verb::Uncordon { node: node(other) });
    bench.await_state(waiting, "running");
    assert_eq!(bench.node_of(waiting), other);
    let error = refused(bench.ask(Verb::Cordon { node: node("n9"), reason: None }));
    assert_eq!((error.code, error.hint.as_str()), (ErrorCode::NotFound, "nodes are n1, n2"));
}

#[test]
fn a_drained_nodes_gang_moves_and_that_counts_against_nothing() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let id = bench.submit(whole_node(&bench));
    bench.await_state(id, "running");
    let before = bench.node_of(id);
    let name = bench.get(id).name;
    let said = bench.done(Verb::Drain { node: node(&before), by: None, reason: None });
    let expected =
        format!("{before} takes no new work, and 1 job that runs there is moved away: {id} ({name})");
    assert_eq!(said, expected);
    until("the second attempt", || {
        let view = bench.get(id);
        view.state == "running" && view.gangs[0].attempt == 2
    });
    assert_ne!(bench.node_of(id), before);
    fs::write(bench.path("go"), "").unwrap();
    let view = bench.ended(id);
    assert_eq!((view.state.as_str(), view.gangs[0].failures), ("succeeded", 0));
    bench.await_nobody();
}

/// Runs, is displaced, runs, ends.
fn through_all_events(bench: &Bench, notify: &str) -> JobId {
    let mut job = whole_node(bench);
    gang(&mut job).program.notify = Some(notify.to_owned());
    let id = bench.submit(job);
    bench.await_state(id, "running");
    bench.done(Verb::Drain { node: node(&bench.node_of(id)), by: None, reason: None });
    until("the second attempt", || {
        let view = bench.get(id);
        view.state == "running" && view.gangs[0].attempt == 2
    });
    fs::write(bench.path("go"), "").unwrap();
    bench.ended(id);
    id
}

#[test]
fn a_command_is_told_of_start_displacement_and_end() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let said = bench.path("said");
    let id =
        through_all_events(&bench, &format!("echo $PHALANX_EVENT $PHALANX_JOB_ID >> {}", said.display()));
    until("the last notice", || bench.read("said").contains("end"));
    let events = ["start", "preemption", "start", "end"].map(|event| format!("{event} {id}"));
    assert_eq!(bench.read("said").lines().collect::<Vec<_>>(), events);
}

/// Takes each request's body, and answers 200.
fn serve(listener: &TcpListener, bodies: &Sender<serde_json::Value>) {
    for stream in listener.incoming() {
        let Some(body) = stream.ok().and_then(body) else { continue };
        if bodies.send(body).is_err() {
            return;
        }
    }
}

fn body(mut stream: TcpStream) -> Option<serde_json::Value> {
    stream.set_read_timeout(Some(LONG)).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").ok()?;
    serde_json::from_slice(&body).ok()
}

#[test]
fn a_webhook_is_told_of_start_displacement_and_end() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, bodies): (_, Receiver<serde_json::Value>) = channel();
    std::thread::spawn(move || serve(&listener, &sender));
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let id = through_all_events(&bench, &url);
    for event in ["start", "preemption", "start", "end"] {
        let body = bodies.recv_timeout(LONG).unwrap();
        assert_eq!((body["event"].as_str(), body["job"].as_u64()), (Some(event), Some(id.0)), "{body}");
    }
}
