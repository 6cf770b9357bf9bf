//! The Debian package under a real systemd: the unit files, the scripts of the package, and that no rank notices what
//! becomes of the daemon. Passed over where there is no root, no systemd and no `dpkg-deb`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

const PHALANX: &str = env!("CARGO_BIN_EXE_phalanx");

fn succeeds(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// The package of this program.
fn package(dir: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let stripped = dir.join("phalanx");
    succeeds(Command::new("strip").arg("-o").arg(&stripped).arg(PHALANX));
    let build = root.join("deploy/deb/build.sh");
    succeeds(Command::new(build).arg(&stripped).arg("0.0.1").arg(dir.join("phalanx.deb")));
}

#[test]
fn the_package_runs_the_daemon_and_no_rank_notices_what_becomes_of_it() {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root || !Path::new("/lib/systemd/systemd").exists() || !is_there("dpkg-deb") {
        eprintln!("passed over: it needs root, systemd and dpkg-deb");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    package(dir.path());
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/service");
    fs::copy(here.join("drive.sh"), dir.path().join("drive.sh")).unwrap();
    succeeds(Command::new("timeout").arg("300").arg(here.join("boot.sh")).arg(dir.path()));

    let said = fs::read_to_string(dir.path().join("said")).unwrap_or_default();
    let boot = fs::read_to_string(dir.path().join("boot")).unwrap_or_default();
    println!("{said}");
    let all_held = said.lines().all(|line| line.starts_with("ok ") || line == "done");
    assert!(all_held && said.ends_with("done\n"), "{said}\nboot: {boot}");
}
