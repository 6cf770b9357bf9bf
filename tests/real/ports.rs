//! Network ports of a found machine, in a tree of the form of `/sys` that the test writes: a port that goes down closes the node
//! for new gangs, and its return opens the node.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use phalanx_api::protocol::{Answer, HealthView, Verb};
use phalanx_health::{Line, Next};
use phalanx_model::{Grade, PortState};

use crate::support::{Bench, until};

const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

/// Whole in one step: the daemon reads it all the time.
fn write(bench: &Bench, path: &str, text: &str) {
    let (path, next) = (bench.path(path), bench.path("next"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&next, text).unwrap();
    fs::rename(next, path).unwrap();
}

/// A daemon on this machine, whose only adapter is in the tree.
fn machine() -> Bench {
    let mut bench = Bench::new("nodes: []\n");
    let function = "sys/devices/pci0000:10/0000:10:01.0/0000:1a:00.0";
    for (path, text) in [
        (format!("{function}/class"), "0x020700\n"),
        (format!("{PORT}/state"), "4: ACTIVE\n"),
        (format!("{PORT}/rate"), "400 Gb/sec (4X NDR)\n"),
        (format!("{PORT}/counters/symbol_error"), "17\n"),
        (format!("{PORT}/counters/link_downed"), "?\n"),
        ("kernel.log".to_owned(), ""),
        // The node is the whole cluster: the circuit breaker would keep it open if it had several GPUs.
        ("state/health.toml".to_owned(), "max_share_percent = 100\nsettle_ms = 1000\n"),
    ] {
        write(&bench, &path, text);
    }
    symlink(bench.path(function), bench.path("sys/class/infiniband/mlx5_0/device")).unwrap();
    up(&mut bench);
    bench
}

fn up(bench: &mut Bench) {
    let in_test = |name: &str| -> PathBuf { bench.path(name) };
    let script = format!(
        "PHALANX_TEST_SYSFS={} PHALANX_TEST_KERNEL_LOG={} exec \"$0\" \"$1\" \"$2\" /dev/null",
        in_test("sys").display(),
        in_test("kernel.log").display()
    );
    bench.up_by(Some(&script));
}

fn health(bench: &Bench) -> HealthView {
    match bench.ask(Verb::Health { node: None }) {
        Ok(Answer::Health(view)) => view,
        other => panic!("{other:?}"),
    }
}

fn node(bench: &Bench) -> Option<Line> {
    health(bench).lines.into_iter().find(|line| line.device.is_none())
}

#[test]
fn a_port_that_goes_down_closes_its_node_until_it_is_up_again() {
    let mut bench = machine();
    until("a sample", || !health(&bench).ports.is_empty());
    let view = health(&bench);
    let port = &view.ports[0].port;
    assert_eq!((view.ports.len(), port.name.as_str(), port.state), (1, "mlx5_0:1", PortState::Up));
    assert_eq!((port.bytes_per_s, port.symbol_errors, port.downed), (Some(50_000_000_000), Some(17), None));
    assert!(view.sources.contains(&"network ports every 100ms".to_owned()), "{:?}", view.sources);
    let note = "port mlx5_0:1: link_downed is no number";
    assert!(view.missing.iter().any(|missing| missing == note), "{:?}", view.missing);
    if std::path::Path::new("/proc/pressure/cpu").exists() {
        assert!(view.pressure.iter().any(|of| of.pressure.cpu.is_some()), "{:?}", view.pressure);
    }
    assert_eq!(node(&bench), None);
    let stays = bench.submit(crate::support::shell(1, "exec sleep 1000"));
    bench.await_state(stays, "running");

    write(&bench, &format!("{PORT}/state"), "1: DOWN\n");
    until("the grade", || node(&bench).is_some_and(|line| line.grade == Grade::DrainAfterJob));
    let line = node(&bench).unwrap();
    assert_eq!((line.detail.as_str(), line.next), ("port mlx5_0:1 down", Next::WhenQuiet));
    let waits = bench.submit(crate::support::shell(1, "exec true"));
    // It is closed for as long as the port is down, whatever time that takes, and the next daemon knows.
    std::thread::sleep(std::time::Duration::from_secs(2));
    bench.kill();
    up(&mut bench);
    std::thread::sleep(std::time::Duration::from_secs(2));
    let states = || [stays, waits].map(|job| bench.get(job).state);
    assert_eq!(states(), ["running", "pending"]);
    assert_eq!(node(&bench).unwrap().grade, Grade::DrainAfterJob);

    write(&bench, &format!("{PORT}/state"), "4: ACTIVE\n");
    until("its end", || bench.get(waits).state == "succeeded");
    let line = node(&bench).unwrap();
    let detail = "on probation after: port mlx5_0:1 down";
    assert_eq!((line.grade, line.detail.as_str()), (Grade::Suspect, detail));
    assert_eq!(bench.get(stays).gangs[0].attempt, 1, "a running gang stays");
    bench.cancel(stays);
}
