//! Daemons and shims that die, and what is found afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Bench, LONG, eventually, exe, exit_of, found, kill, timeless, until};
use nix::sys::signal::Signal;
use phalanx_model::Exit;
use phalanx_node::protocol::Record;
use phalanx_node::{
    AdoptError, Found, HandleError, IsolationChoice, ShimEvent, SpawnError, adopt, reap, spawn,
};

fn alive(found: Found) -> phalanx_node::Handle {
    match found {
        Found::Alive(handle) => handle,
        other => panic!("{other:?}"),
    }
}

fn edit_record(bench: &Bench, edit: impl FnOnce(&mut Record)) {
    let path = bench.dir().join("shim.json");
    let mut record: Record = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut record);
    fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
}

#[test]
fn a_shim_survives_its_killed_daemon_and_is_adopted() {
    let bench = Bench::new("echo up; while [ ! -e \"$0\" ]; do sleep 0.02; done; exit 9");
    let mut bench = bench;
    let go = bench.root.path().join("go");
    bench.spec.argv.push(go.to_str().unwrap().to_owned());
    let spec = bench.root.path().join("spec.json");
    fs::write(&spec, serde_json::to_vec(&bench.spec).unwrap()).unwrap();
    let mut daemon =
        Command::new(exe()).arg("daemon").args([&bench.dir(), &spec]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    let running = lines.find(|line| line.as_ref().unwrap().contains("running"));
    assert!(running.is_some());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    bench.await_log("up");

    let mut handle = alive(found(&bench));
    let running = until(&mut handle, |e| matches!(e, ShimEvent::Running { .. }));
    fs::write(&go, "").unwrap();
    assert_eq!(exit_of(&mut handle), Exit::code(9), "{running:?}");
}

#[test]
fn a_member_at_the_gate_is_adopted_and_released_by_the_next_daemon() {
    let bench = Bench::new("exit 4");
    drop(bench.spawn());
    let mut handle = alive(found(&bench));
    until(&mut handle, |e| matches!(e, ShimEvent::Ready { .. }));
    handle.release().unwrap();
    assert_eq!(exit_of(&mut handle), Exit::code(4));
}

#[test]
fn an_exit_is_kept_while_nobody_listens() {
    let bench = Bench::new("exit 42");
    let mut handle = bench.spawn();
    handle.release().unwrap();
    drop(handle);
    eventually(|| bench.dir().join("exit.json").exists(), || "exit.json".into());
    assert!(matches!(found(&bench), Found::Ended(exit) if timeless(exit.clone()) == Exit::code(42)));
    eventually(|| bench.alive().is_empty(), || "the shim's end".into());
    assert_eq!(reap(&bench.dir()).unwrap(), 0);
}

#[test]
fn every_listener_hears_the_end_and_a_late_one_is_told_the_state() {
    let bench = Bench::new("while [ ! -e \"$0\" ]; do sleep 0.02; done; exit 6");
    let mut bench = bench;
    let go = bench.root.path().join("go");
    bench.spec.argv.push(go.to_str().unwrap().to_owned());
    let (first, _) = bench.run();
    let (mut orders, mut events) = first.split();
    let mut second = alive(found(&bench));
    let waiter = std::thread::spawn(move || {
        loop {
            match events.next_event(LONG).unwrap().unwrap() {
                ShimEvent::Exited { exit } => return exit,
                event => assert!(!event.is_last(), "{event:?}"),
            }
        }
    });
    until(&mut second, |e| matches!(e, ShimEvent::Running { .. }));
    orders.release().unwrap();
    fs::write(&go, "").unwrap();
    assert_eq!(exit_of(&mut second), Exit::code(6));
    let heard = waiter.join().unwrap();
    assert!(heard.ended_ns.is_some(), "its shim saw when it ended");
    assert_eq!(timeless(heard), Exit::code(6));
}

#[test]
fn a_killed_shim_is_lost_and_reaping_leaves_nobody() {
    for isolation in [IsolationChoice::Best, IsolationChoice::ProcessGroups] {
        let mut bench = Bench::new(
            "trap '' TERM; setsid sh -c 'trap \"\" TERM; while :; do sleep 1000; done' & (setsid sleep 1000 &); echo up; wait",
        );
        bench.spec.isolation = isolation;
        let (mut handle, _) = bench.run();
        bench.await_log("up");
        eventually(|| bench.alive().len() >= 5, || format!("{:?}", bench.alive()));
        kill(bench.shim_pid(), Signal::SIGKILL);
        assert!(matches!(handle.next_event(LONG), Err(HandleError::Closed { .. })));
        assert!(matches!(found(&bench), Found::Lost(_)));
        assert!(reap(&bench.dir()).unwrap() >= 3);
        assert_eq!(bench.alive(), [0i32; 0], "{:?}", bench.spec.isolation);
        assert_eq!(bench.cgroups(), Vec::<std::path::PathBuf>::new());
        assert_eq!(reap(&bench.dir()).unwrap(), 0);
    }
}

#[test]
fn a_shim_killed_at_the_gate_never_started() {
    let bench = Bench::new("echo ran");
    let mut handle = bench.spawn();
    until(&mut handle, |e| matches!(e, ShimEvent::Ready { .. }));
    kill(bench.shim_pid(), Signal::SIGKILL);
    assert!(matches!(handle.next_event(LONG), Err(HandleError::Closed { .. })));
    assert!(matches!(found(&bench), Found::NeverStarted));
    assert_eq!(reap(&bench.dir()).unwrap(), 0);
    assert_eq!(bench.cgroups(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_shim_that_does_not_answer_is_silent_and_can_be_reaped() {
    let bench = Bench::new("sleep 1000");
    let (_handle, _) = bench.run();
    kill(bench.shim_pid(), Signal::SIGSTOP);
    assert!(matches!(adopt(&bench.dir()), Err(AdoptError::Silent { .. })));
    assert!(reap(&bench.dir()).unwrap() >= 2);
    assert_eq!(bench.alive(), [0i32; 0]);
}

/// The pid in `shim.json` belongs to somebody else by now: neither adopted nor killed.
#[test]
fn a_pid_that_was_used_again_is_nobody_of_ours() {
    let bench = Bench::new("sleep 1000");
    let (mut handle, _) = bench.run();
    let mut stranger = Command::new("sleep").arg("1000").spawn().unwrap();
    let stranger_pid = i32::try_from(stranger.id()).unwrap();
    // The true shim answers, and is not the process of the record.
    let start_time = phalanx_node::Process::find(bench.shim_pid()).unwrap().start_time - 1;
    edit_record(&bench, |record| record.start_time += 1);
    assert!(matches!(found(&bench), Found::Lost(_)));
    edit_record(&bench, |record| (record.pid, record.start_time) = (stranger_pid, start_time));
    assert!(matches!(found(&bench), Found::Lost(_)));
    handle.kill().unwrap();
    exit_of(&mut handle);
    fs::remove_file(bench.dir().join("exit.json")).unwrap();
    edit_record(&bench, |record| (record.pid, record.start_time) = (stranger_pid, 1));
    assert!(matches!(found(&bench), Found::Lost(_)));
    assert_eq!(reap(&bench.dir()).unwrap(), 0);
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger lives");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn another_boot_is_known_by_its_id() {
    let bench = Bench::new("sleep 1000");
    let (mut handle, _) = bench.run();
    let mut boot = String::new();
    edit_record(&bench, |record| boot = std::mem::replace(&mut record.boot_id, "former".into()));
    assert!(matches!(found(&bench), Found::Rebooted));
    assert_eq!(reap(&bench.dir()).unwrap(), 0);
    edit_record(&bench, |record| record.boot_id = boot);
    handle.kill().unwrap();
    exit_of(&mut handle);
}

#[test]
fn a_folder_is_used_once_and_may_have_a_long_name() {
    let bench = Bench::new("exit 1");
    let dir = bench.root.path().join("x".repeat(200)).join("member");
    let mut handle = spawn(&dir, &bench.spec, exe(), &["__shim".as_ref()]).unwrap();
    handle.release().unwrap();
    assert_eq!(exit_of(&mut handle), Exit::code(1));
    let again = spawn(&dir, &bench.spec, exe(), &["__shim".as_ref()]);
    assert!(matches!(again, Err(SpawnError::Used { .. })));
}

#[test]
fn an_impossible_spec_starts_nothing() {
    let edits: [fn(&mut phalanx_node::MemberSpec); 8] = [
        |s| s.argv.clear(),
        |s| s.argv[0] = "a\0b".into(),
        |s| s.token = "../x".into(),
        |s| s.token = String::new(),
        |s| s.workdir = "relative".into(),
        |s| drop(s.env.insert("A=B".into(), String::new())),
        |s| s.ports = vec![0],
        |s| s.secrets = vec![phalanx_node::Secret { name: "a-b".into(), path: "/x".into() }],
    ];
    for edit in edits {
        let mut bench = Bench::new("");
        edit(&mut bench.spec);
        let spawned = spawn(&bench.dir(), &bench.spec, exe(), &["__shim".as_ref()]);
        assert!(matches!(spawned, Err(SpawnError::Spec(_))), "{spawned:?}");
        assert!(!bench.dir().exists());
    }
}

#[test]
fn a_shim_that_is_none_is_told() {
    let bench = Bench::new("");
    let spawned = spawn(&bench.dir(), &bench.spec, "/no/such/exe".as_ref(), &[]);
    assert!(matches!(spawned, Err(SpawnError::Io { .. })), "{spawned:?}");
    assert!(matches!(found(&bench), Found::NeverStarted));
    let other = Bench::new("");
    let mut handle = spawn(&other.dir(), &other.spec, "/bin/true".as_ref(), &[]).unwrap();
    assert!(matches!(handle.next_event(LONG), Err(HandleError::Closed { .. })));
    assert!(matches!(adopt(bench.root.path()), Err(AdoptError::NoMember { .. })));
}

/// Lines that are no commands, without end, or cut off do no harm.
#[test]
fn nonsense_on_the_socket_is_survived() {
    let bench = Bench::new("exit 8");
    let mut handle = bench.spawn();
    until(&mut handle, |e| matches!(e, ShimEvent::Ready { .. }));
    let connect = || UnixStream::connect(bench.dir().join("ctl.sock")).unwrap();
    connect().write_all(b"{}\n\n{\"command\":\"signal\"}\nx\xff\n{\"command\":\"rel").unwrap();
    let mut endless = connect();
    endless.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let _ = endless.write_all(&vec![b'x'; 1 << 20]);
    // More than are taken at once. A shim that has no room is not a lost one.
    let crowd: Vec<UnixStream> = (0..20).map(|_| connect()).collect();
    assert!(matches!(adopt(&bench.dir()), Err(AdoptError::Silent { .. })));
    assert_eq!(handle.next_event(Duration::from_millis(50)).unwrap(), None);
    drop(crowd);
    handle.release().unwrap();
    assert_eq!(exit_of(&mut handle), Exit::code(8));
}
