//! What happens to a control plane when the process that holds it is killed, and what is said when Go is missing.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn nothing_is_left_when_its_process_is_killed() {
    let mut up = Command::new(env!("CARGO_BIN_EXE_phalanx-controlplane"))
        .args(["up", "--nodes", "1"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines();
    let kubeconfig = lines
        .by_ref()
        .map_while(Result::ok)
        .find_map(|line| line.trim().strip_prefix("export KUBECONFIG=").map(PathBuf::from));
    let folder = kubeconfig.expect("no kubeconfig was printed").parent().unwrap().to_path_buf();
    let before = running_in(&folder);
    assert!(
        before >= 4,
        "etcd, kube-apiserver, kube-controller-manager and kwok run, and {before} were seen"
    );
    up.kill().unwrap();
    up.wait().unwrap();
    let began = Instant::now();
    while running_in(&folder) > 0 || folder.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "{} processes are left", running_in(&folder));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Processes that were started in a folder.
fn running_in(folder: &Path) -> usize {
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    // The folder of a process whose folder was removed reads `FOLDER (deleted)`.
    let folder = folder.display().to_string();
    processes
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok())
        .filter(|cwd| cwd.to_string_lossy().starts_with(&folder))
        .count()
}

#[test]
fn where_go_is_missing_the_error_says_how_to_install_it() {
    let cache = tempfile::tempdir().unwrap();
    let built = Command::new(env!("CARGO_BIN_EXE_phalanx-controlplane"))
        .arg("build")
        .env("PATH", cache.path())
        .env("XDG_CACHE_HOME", cache.path())
        .output()
        .unwrap();
    assert!(!built.status.success());
    let said = String::from_utf8(built.stderr).unwrap();
    assert!(said.contains("install Go 1.26 or newer from https://go.dev/dl"), "{said}");
}
