//! No space left: nothing new is taken, what runs goes on, and nothing that happens meanwhile is lost.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use phalanx_local::protocol::{ErrorCode, Verb};
use phalanx_model::{FailureClass, Job};

use crate::support::{Bench, NODE_OF_8, env, gang, is_root, refused, retry, shell, until};

/// A small filesystem, while it lives.
struct Mount(PathBuf);

impl Mount {
    fn new(at: &Path) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(at).output();
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

#[test]
fn a_full_disk_refuses_new_work_and_loses_nothing() {
    if !is_root("a_full_disk_refuses_new_work_and_loses_nothing") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let Some(mount) = Mount::new(&disk) else { return };
    let mut bench = Bench::in_state(dir, &disk.join("state"), NODE_OF_8);
    bench.up();
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
