//! Faults of the machine that runs Phalanx: its disk is full, its daemon is killed.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use phalanx_model::Job;

use super::ranks::check_stays;
use super::record::Basis;
use super::scene::{EVERY, Scene};
use super::watch::now_ms;
use crate::daemon::job;

pub(super) const FULL: Basis = Basis {
    real: "the daemon, the ranks, and a filesystem of 16 MiB (tmpfs) without space",
    declared: "5 nodes of 8 GPUs; all ranks run on this machine",
    emulated: "nothing",
};

/// A small filesystem, while it lives.
pub(super) struct Disk(tempfile::TempDir);

impl Disk {
    /// # Errors
    /// Why it cannot be mounted.
    pub(super) fn mount() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(folder.path());
        match mount.output() {
            Ok(output) if output.status.success() => Ok(Self(folder)),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.lines().next().unwrap_or_default();
                Err(format!("a small filesystem cannot be mounted, which takes root: {said}"))
            }
            Err(e) => Err(format!("`mount` cannot be started: {e}")),
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Takes every byte that is left.
    fn fill(&self) -> Result<(), String> {
        let file = OpenOptions::new().append(true).create(true).open(self.filler());
        let mut file = file.map_err(|e| e.to_string())?;
        for size in [1 << 16, 4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        Ok(())
    }

    fn free(&self) -> Result<(), String> {
        fs::remove_file(self.filler()).map_err(|e| e.to_string())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
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
    let pids = scene.pids()?;
    let disk = scene.kept.disk.take().ok_or("there is no small filesystem")?;
    scene.inject("filled the filesystem of the state folder to the last byte");
    let met = meet_full(scene, &disk);
    scene.kept.disk = Some(disk);
    met?;
    check_stays(scene, 2, &pids)
}

fn meet_full(scene: &mut Scene, disk: &Disk) -> Result<(), String> {
    disk.fill()?;
    match scene.daemon.submit(large()?) {
        Ok(job) => scene.check(0, false, format!("job {job} was accepted")),
        Err(why) => {
            let at = now_ms();
            scene.noticed(at);
            scene.quote("phalanx submit", Some(at), why.clone());
            scene.check(0, why.contains("free space") || why.contains("room"), format!("refused: {why}"));
        }
    }
    let before = scene.step();
    scene.go_on(2 * EVERY)?;
    let (after, state) = (scene.step(), scene.view()?.state);
    scene.check(1, state == "running", format!("steps {before} to {after} were completed on the full disk"));
    disk.free()?;
    scene.note("freed the space");
    let next = scene.until("a new job is accepted", || scene.daemon.submit(large().ok()?).ok())?;
    let ended = scene.until("the end of the new job", || {
        scene.daemon.job(next).filter(|view| view.ending.is_some()).map(|view| view.state)
    })?;
    scene.check(3, ended == "succeeded", format!("job {next} was accepted, and {ended}"));
    Ok(())
}

pub(super) fn daemon_is_killed(scene: &mut Scene) -> Result<(), String> {
    let pids = scene.pids()?;
    scene.inject("sent SIGKILL to the daemon");
    scene.daemon.kill()?;
    let before = scene.step();
    scene.go_on(2 * EVERY)?;
    let (after, alive) =
        (scene.step(), pids.iter().filter(|pid| Path::new(&format!("/proc/{pid}")).exists()).count());
    let found = format!(
        "{alive} of {} ranks live; steps {before} to {after} were completed without a daemon",
        pids.len()
    );
    scene.check(0, alive == pids.len(), found);
    scene.note("started the daemon again on the same state folder");
    scene.daemon.up()?;
    let at = now_ms();
    scene.noticed(at);
    let view = scene.view()?;
    scene.quote(format!("phalanx get {} -o json", scene.job), Some(at), format!("state {}", view.state));
    check_stays(scene, 1, &pids)?;
    scene.go_on(EVERY)?;
    let again = scene.steps_again();
    scene.check(2, again == 0, format!("{again} steps were done again"));
    Ok(())
}
