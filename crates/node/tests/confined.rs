//! One command as a user, with every isolation that can be had here.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::time::{Duration, Instant};

use phalanx_node::IsolationChoice;
use phalanx_node::confined::{Confined, Leash, Outcome, run, run_on};

fn shell(isolation: IsolationChoice, script: &str) -> Confined {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    Confined {
        token: format!("test-confined-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)),
        isolation,
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        groups: Vec::new(),
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        stdin: String::new(),
        changes_user_itself: false,
        pids_max: 64,
        pids_of_user: None,
        memory_bytes: 256 << 20,
        timeout_ms: 10_000,
    }
}

fn outcome(spec: &Confined) -> Outcome {
    run(common::exe(), OsStr::new("__confine"), spec).unwrap()
}

fn ended(code: i32) -> Outcome {
    Outcome::Ended { code: Some(code), signal: None, said: String::new() }
}

const KINDS: [IsolationChoice; 2] = [IsolationChoice::Best, IsolationChoice::ProcessGroups];

#[test]
fn an_end_is_told_and_stdin_is_read() {
    for kind in KINDS {
        let mut spec = shell(kind, "read word; [ $word = go ] && exit 7");
        // More than a pipe holds.
        spec.stdin = format!("go\n{}", "x".repeat(200_000));
        assert_eq!(outcome(&spec), ended(7));
        let spec = Confined { argv: vec!["/no/such/program".to_owned()], ..spec };
        assert!(matches!(outcome(&spec), Outcome::Failed { why } if why.contains("cannot start it")));
        let spec = Confined { argv: Vec::new(), ..spec };
        assert!(matches!(outcome(&spec), Outcome::Failed { .. }));
    }
}

#[test]
fn a_time_out_ends_processes_of_other_sessions_too() {
    for (at, kind) in (0..).zip(KINDS) {
        let long = format!("1000.{}{at}", std::process::id());
        let script =
            format!("trap '' TERM HUP; setsid -f sleep {long}; (setsid sleep {long} &) ; sleep {long}");
        let begin = Instant::now();
        let spec = Confined { timeout_ms: 500, ..shell(kind.clone(), &script) };
        assert_eq!(outcome(&spec), Outcome::TimedOut, "{kind:?}");
        assert!(begin.elapsed() < Duration::from_secs(5));
        // What goes on in the background after a good end has the same time, and no more.
        let script = format!("setsid -f sleep {long}; exit 0");
        assert_eq!(outcome(&Confined { timeout_ms: 500, ..shell(kind, &script) }), ended(0));
        let lines = fs::read_dir("/proc").unwrap().flatten().map(|e| fs::read(e.path().join("cmdline")));
        let text = long.as_bytes();
        assert!(!lines.flatten().any(|line| line.windows(text.len()).any(|window| window == text)));
    }
}

#[test]
fn its_processes_are_limited() {
    let root = nix::unistd::geteuid().is_root();
    for kind in KINDS {
        let limits_bind = kind.detect().to_string().contains("pids");
        if !limits_bind && !root {
            continue;
        }
        let spec = shell(kind, "for i in $(seq 40); do sleep 0.2 & done; wait");
        assert_eq!(outcome(&spec), ended(0));
        let spec = Confined { pids_max: 10, pids_of_user: Some(10), ..spec };
        // Root has no limit of its own.
        let spec = if root { Confined { uid: 64_972, gid: 64_972, ..spec } } else { spec };
        assert_ne!(outcome(&spec), ended(0));
    }
}

/// A check of GPUs went on after its gang was cancelled, on GPUs that others had by then.
#[test]
fn a_command_that_is_let_go_ends_with_all_that_it_started() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let at = pids.display();
        let script =
            format!("setsid sleep 1000 & echo $! > {at}.next; echo $$ >> {at}.next; mv {at}.next {at}; wait");
        let spec = Confined { timeout_ms: 600_000, ..shell(kind, &script) };
        let leash = Leash::default();
        std::thread::scope(|scope| {
            let run = scope.spawn(|| run_on(common::exe(), OsStr::new("__confine"), &spec, &leash).unwrap());
            while !pids.exists() {
                std::thread::sleep(Duration::from_millis(10));
            }
            leash.let_go();
            assert_eq!(run.join().unwrap(), Outcome::TimedOut);
        });
        for pid in fs::read_to_string(&pids).unwrap().lines() {
            assert!(!std::path::Path::new("/proc").join(pid).exists(), "{pid} lives");
        }
        // One that is let go before it begins ends at once.
        assert_eq!(run_on(common::exe(), OsStr::new("__confine"), &spec, &leash).unwrap(), Outcome::TimedOut);
    }
}
