//! Faults of the machine that runs Phalanx: its disk is full, its daemon is killed.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use phalanx_model::Job;

use super::record::Basis;
use super::ring::{EVERY, now_ms};
use super::scene::{Late, Scene, Unplanned};
use crate::daemon::job;

pub(super) const FULL: Basis = Basis {
    real: "the daemon, the ranks, and a filesystem of 16 MiB (tmpfs) without space",
    declared: "5 nodes of 8 GPUs; all ranks run on this machine",
    emulated: "nothing",
};

/// The bit of `CAP_SYS_ADMIN` in the capabilities of a process.
const MAY_MOUNT: u64 = 1 << 21;

/// A small filesystem, while it lives.
pub(super) struct Disk(tempfile::TempDir);

impl Disk {
    pub(super) fn mount() -> Result<Self, Unplanned> {
        if !may_mount() {
            let why = "a small filesystem cannot be mounted, which takes root (CAP_SYS_ADMIN)";
            return Err(Unplanned::Missing(why.to_owned()));
        }
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(folder.path());
        match mount.output() {
            Ok(output) if output.status.success() => Ok(Self(folder)),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.lines().next().unwrap_or_default();
                Err(Unplanned::Failed(format!("a small filesystem cannot be mounted: {said}")))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                Err(Unplanned::Missing(format!("`mount` cannot be started: {e}")))
            }
            Err(e) => Err(Unplanned::Failed(format!("`mount` cannot be started: {e}"))),
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes every byte that is left.
    fn fill(&self) -> Result<Filler, String> {
        let filler = Filler(self.path().join("filler"));
        let file = OpenOptions::new().append(true).create(true).open(&filler.0);
        let mut file = file.map_err(|e| e.to_string())?;
        for size in [1 << 16, 4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        Ok(filler)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

fn may_mount() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & MAY_MOUNT != 0)
}

/// The file that fills a disk; the space is free again without it.
struct Filler(PathBuf);

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A job of one rank without GPUs that is too large for what a page of the journal may still hold.
fn large() -> Result<Job, String> {
    let mut job = job(1, "true")?;
    for gang in &mut job.gangs {
        gang.needs.devices = 0;
        gang.program.env.insert("FILLER".to_owned(), "x".repeat(32 << 10));
    }
    Ok(job)
}

pub(super) fn is_full(scene: &mut Scene) -> Result<(), String> {
    scene.inject("filled the filesystem of the state folder to the last byte")?;
    scene.at_end(2, Late::Stays);
    let filler = scene.kept.disk.as_ref().ok_or("there is no small filesystem")?.fill()?;
    match scene.daemon.submit(large()?) {
        Ok(job) => scene.found.check(0, false, format!("job {job} was accepted")),
        Err(why) => {
            let at = now_ms();
            scene.found.noticed(at);
            scene.found.quote("phalanx submit", Some(at), why.clone());
            scene.found.check(
                0,
                why.contains("free space") || why.contains("room"),
                format!("refused: {why}"),
            );
        }
    }
    let before = scene.step();
    scene.go_on(2 * EVERY)?;
    let (after, state) = (scene.step(), scene.view()?.state);
    scene.found.check(
        1,
        state == "running",
        format!("steps {before} to {after} were completed on the full disk"),
    );
    drop(filler);
    scene.note("freed the space");
    let next = scene.until("a new job is accepted", || scene.daemon.submit(large().ok()?).ok())?;
    let ended = scene.wait("the end of the new job", || {
        scene.daemon.job(next).filter(|view| view.ending.is_some()).map(|view| view.state)
    })?;
    scene.found.check(3, ended == "succeeded", format!("job {next} was accepted, and {ended}"));
    Ok(())
}

pub(super) fn daemon_is_killed(scene: &mut Scene) -> Result<(), String> {
    scene.inject("sent SIGKILL to the daemon")?;
    scene.at_end(1, Late::Stays);
    scene.at_end(2, Late::NoneAgain);
    scene.daemon.kill()?;
    let before = scene.step();
    scene.go_on(2 * EVERY)?;
    let (after, alive, ranks) = (scene.step(), scene.alive(), scene.ranks);
    let found =
        format!("{alive} of {ranks} ranks live; steps {before} to {after} were completed without a daemon");
    scene.found.check(0, alive == ranks, found);
    scene.note("started the daemon again on the same state folder");
    scene.daemon.up()?;
    let at = now_ms();
    scene.found.noticed(at);
    let view = scene.view()?;
    scene.found.quote(
        format!("phalanx get {} -o json", scene.job),
        Some(at),
        format!("state {}", view.state),
    );
    scene.go_on(EVERY)
}
