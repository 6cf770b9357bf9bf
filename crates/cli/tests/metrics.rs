//! `/metrics` of a real daemon, as Prometheus reads it.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

const EXE: &str = env!("CARGO_BIN_EXE_phalanx");
const CLUSTER: &str = "nodes:\n- {name: n1, devices: {count: 8, model: Test GPU}}\n- {name: n2, devices: {count: 4, model: Test GPU}}\n";

/// A daemon that serves metrics, ended with the test.
struct World {
    dir: tempfile::TempDir,
    at: Option<SocketAddr>,
}

impl World {
    fn up() -> Self {
        let mut world = Self { dir: tempfile::tempdir().unwrap(), at: None };
        let cluster = world.dir.path().join("cluster.yaml");
        std::fs::write(&cluster, CLUSTER).unwrap();
        let cluster = cluster.display().to_string();
        let up = world.phalanx(&["up", "--detach", "--cluster", &cluster, "--metrics", "127.0.0.1:0"]);
        assert!(up.status.success(), "{up:?}");
        // The kernel chose the port, and the log says it.
        let log = std::fs::read_to_string(world.state().join("daemon.log")).unwrap();
        let said = log.split_once("address=").unwrap_or_else(|| panic!("{log}")).1;
        world.at = Some(said.split_whitespace().next().unwrap().parse().unwrap());
        world
    }

    fn state(&self) -> std::path::PathBuf {
        self.dir.path().join("state")
    }

    fn phalanx(&self, words: &[&str]) -> Output {
        Command::new(EXE)
            .args(words)
            .env("PHALANX_STATE", self.state())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.at.unwrap()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Asks until all lines are there: values are counted once a second at most.
    fn until(&self, lines: &[&str]) {
        for _ in 0..1_000 {
            let text = self.metrics();
            if lines.iter().all(|line| text.lines().any(|of| of == *line)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("never: {lines:?}: {}", self.metrics());
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.phalanx(&["cancel", "--name", "*"]);
        self.phalanx(&["down"]);
    }
}

#[test]
fn metrics_say_what_is_and_what_happened() {
    let world = World::up();
    world.until(&[
        "phalanx_scheduler_devices{state=\"free\"} 12",
        "phalanx_scheduler_devices{state=\"held\"} 0",
        "phalanx_scheduler_nodes{state=\"open\"} 2",
        "phalanx_scheduler_ports{state=\"up\"} 0",
    ]);
    let ran = world.phalanx(&["run", "-G", "2", "--", "true"]);
    assert!(ran.status.success(), "{ran:?}");
    let submitted = world.phalanx(&["submit", "-G", "8", "--", "sleep", "1000"]);
    assert!(submitted.status.success(), "{submitted:?}");
    let waits = world.phalanx(&["submit", "-G", "8", "--", "sleep", "1000"]);
    assert!(waits.status.success(), "{waits:?}");
    let cordoned = world.phalanx(&["cordon", "n2"]);
    assert!(cordoned.status.success(), "{cordoned:?}");
    world.until(&[
        "phalanx_scheduler_devices{state=\"free\"} 0",
        "phalanx_scheduler_devices{state=\"held\"} 8",
        "phalanx_scheduler_devices{state=\"closed\"} 4",
        "phalanx_scheduler_nodes{state=\"cordoned\"} 1",
        "phalanx_scheduler_pending_gangs{queue=\"default\"} 1",
        "phalanx_scheduler_running_gangs{queue=\"default\"} 1",
        "phalanx_scheduler_queue_devices_held{queue=\"default\"} 8",
        "phalanx_scheduler_queue_devices_wanted{queue=\"default\"} 8",
        "phalanx_scheduler_gang_starts_total 2",
        "phalanx_scheduler_jobs_ended_total{ending=\"succeeded\"} 1",
    ]);
    // What the page tells of is served, and nothing else.
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/one-machine.md");
    let page = std::fs::read_to_string(page).unwrap();
    let told: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `phalanx_scheduler_")?.split_once('`'))
        .map(|(name, _)| name.trim_end_matches("_total"))
        .collect();
    let text = world.metrics();
    let served: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE phalanx_scheduler_")?.split_once(' '))
        .map(|(name, _)| name)
        .collect();
    // Declared nodes have no telemetry.
    let (of_samples, told): (BTreeSet<&str>, BTreeSet<&str>) = told
        .into_iter()
        .partition(|name| ["device_", "port_", "pressure_"].iter().any(|of| name.starts_with(of)));
    assert_eq!((told, of_samples.len()), (served, 7 + 11 + 2));
}

#[test]
fn metrics_are_served_on_loopback_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(EXE);
    command.args(["up", "--metrics", "0.0.0.0:0", "--state"]).arg(dir.path().join("state"));
    let out = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("only a loopback address will do"), "{said}");
}
