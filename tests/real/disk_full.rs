//! No space left: nothing new is taken, what runs goes on, and nothing that happens meanwhile is lost.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use phalanx_api::protocol::{ErrorCode, Verb};
use phalanx_model::{FailureClass, Job};

use crate::support::{Bench, NODE_OF_8, env, gang, is_root, refused, retry, shell, until};

/// A small filesystem, while it lives.
struct Mount(PathBuf);

impl Mount {
    fn new(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(at).output();
        if mount.is_ok_and(|out| out.status.success()) {
            return Some(Self(at.to_owned()));
        }
        eprintln!("skipped the tests of a full disk: a tmpfs cannot be mounted here");
        None
    }

    /// Takes every byte that is left.
    fn fill(&self) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.filler()).unwrap();
        for size in [1 << 16, 4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// Too large for what a page of the journal may still hold.
fn large(script: &str) -> Job {
    let mut job = shell(1, script);
    gang(&mut job).program.env = env(&[("FILLER", &"x".repeat(32 << 10))]);
    job
}

/// A daemon whose state folder is on a small disk of its own; nothing where that cannot be mounted.
fn on_small_disk(test: &str) -> Option<(Bench, Mount)> {
    if !is_root(test) {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let mount = Mount::new(&disk)?;
    let mut bench = Bench::in_state(dir, &disk.join("state"), NODE_OF_8);
    bench.up();
    Some((bench, mount))
}

#[test]
fn a_full_disk_refuses_new_work_and_loses_nothing() {
    let Some((mut bench, mount)) = on_small_disk("a_full_disk_refuses_new_work_and_loses_nothing") else {
        return;
    };
    let go = bench.path("go");
    let mut running = shell(2, &format!("while [ ! -e {} ]; do sleep 0.02; done; exit 9", go.display()));
    gang(&mut running).needs.devices = 4;
    let mut next = shell(1, &format!("touch {}", bench.path("next-ran").display()));
    gang(&mut next).needs.devices = 8;
    // It is started while there is no room for its files.
    next.policy.retry = retry(1000, &[FailureClass::Infrastructure, FailureClass::StartUp]);
    let (running, next) = (bench.submit(running), bench.submit(next));
    bench.await_state(running, "running");
    mount.fill();

    let job = Box::new(large("true"));
    let error = refused(bench.ask(Verb::Submit { job, secrets: BTreeMap::new() }));
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.message.contains("the journal cannot be written"), "{}", error.message);
    assert!(error.message.contains("free space"), "{}", error.message);
    assert_eq!(bench.get(running).state, "running");

    fs::write(go, "").unwrap();
    until("the end of both ranks", || [0, 1].iter().all(|rank| bench.shim_ended_its_rank(running, *rank)));
    mount.free();
    // Nobody asks the daemon for anything: it goes on by itself.
    bench.await_file("next-ran");
    let view = bench.ended(running);
    assert_eq!(view.exit_code, Some(9), "{view:#?}");
    assert_eq!(bench.ended(next).state, "succeeded");
    assert_eq!(bench.ended(bench.submit(large("true"))).state, "succeeded");
    bench.await_nobody();
    bench.kill();
    bench.up();
    assert_eq!(bench.get(running).exit_code, Some(9));
    drop(bench);
    drop(mount);
}

/// A rank filled the disk of the journal: its job could not be cancelled, and the daemon did not stop.
#[test]
fn a_rank_that_fills_the_disk_is_cancelled_and_the_daemon_stops() {
    let Some((mut bench, mount)) =
        on_small_disk("a_rank_that_fills_the_disk_is_cancelled_and_the_daemon_stops")
    else {
        return;
    };
    // Not its output, which is bounded: any file.
    let file = mount.0.join("flood");
    let flood = bench.submit(shell(
        1,
        &format!("echo up; while :; do head -c 65536 /dev/zero; done >> {}", file.display()),
    ));
    bench.await_state(flood, "running");
    let full = || {
        let error = bench.ask(Verb::Submit { job: Box::new(large("true")), secrets: BTreeMap::new() });
        error.is_err_and(|e| e.to_string().contains("cannot keep room"))
    };
    until("a full disk", full);
    // Cancel and exit go into the reserve.
    bench.cancel(flood);
    assert_eq!(bench.ended(flood).state, "cancelled");
    assert!(bench.down().success());
    fs::remove_file(file).unwrap();
    // Its shim waited for room for the exit.
    bench.await_nobody();
    bench.up();
    assert_eq!(bench.ended(bench.submit(large("true"))).state, "succeeded");
    drop(bench);
    drop(mount);
}

/// Nothing bounded what a rank writes to its output.
#[test]
fn the_output_of_a_rank_is_bounded_and_the_cut_is_marked() {
    let mut bench = Bench::new(NODE_OF_8);
    fs::create_dir_all(bench.paths.root()).unwrap();
    fs::write(bench.paths.limits(), "{\"log_bytes_per_rank\": 1048576}").unwrap();
    bench.up();
    let done = bench.path("done");
    let script = format!(
        "seq 1 2000000; touch {}; while [ ! -e {0}.end ]; do sleep 0.02; done; echo last",
        done.display()
    );
    let id = bench.submit(shell(1, &script));
    bench.await_file("done");
    let log = bench.member(id, 1, 0).join("output.log");
    let on_disk = || phalanx_node::output::bytes_on_disk(&fs::metadata(&log).unwrap());
    until("the cut", || on_disk() <= 1 << 20);
    fs::write(bench.path("done.end"), "").unwrap();
    assert_eq!(bench.ended(id).state, "succeeded");
    let logs = bench.logs(id);
    assert!(
        logs[0].1.starts_with("[phalanx: ") && logs[0].1.ends_with(" bytes of output were cut here]"),
        "{:?}",
        logs[0]
    );
    let numbers: Vec<u32> = logs[1..logs.len() - 1].iter().map(|(_, line)| line.parse().unwrap()).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "nothing in between is lost");
    assert_eq!((numbers.last(), logs.last().unwrap().1.as_str()), (Some(&2_000_000), "last"));
}
