//! Network ports in a tree that a test writes.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "common/tree.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod tree;

use std::fs;

use phalanx_discover::sysfs::ports::{PORTS_MAX, PortSample, Ports};
use phalanx_model::{PortState, PortVitals};
use tree::Tree;

const GBIT: u64 = 125_000_000;
const PORT: &str = "class/infiniband/mlx5_0/ports/1";

/// An InfiniBand adapter, an Ethernet adapter with a virtual function, a bridge and a bond.
fn host() -> Tree {
    let tree = Tree::new(1);
    let (infiniband, ethernet) =
        ("pci0000:10/0000:10:01.0/0000:1a:00.0", "pci0000:10/0000:10:02.0/0000:1b:00.0");
    tree.pci(infiniband, "0x15b3", "0x020700", 0, "mlx5_core");
    tree.link("class/infiniband/mlx5_0/device", &format!("devices/{infiniband}"));
    // Its interface is the same port.
    tree.link("class/net/ib0/device", &format!("devices/{infiniband}"));
    for (file, text) in [
        ("state", "4: ACTIVE\n"),
        ("rate", "400 Gb/sec (4X NDR)\n"),
        ("counters/port_rcv_data", "1000\n"),
        ("counters/port_xmit_data", "2000\n"),
        ("counters/link_downed", "1\n"),
        ("counters/link_error_recovery", "2\n"),
        ("counters/symbol_error", "3\n"),
        ("counters/port_rcv_errors", "4\n"),
        ("counters/port_xmit_discards", "5\n"),
        ("counters/port_xmit_wait", "6\n"),
        ("hw_counters/rp_cnp_handled", "7\n"),
    ] {
        tree.write(&format!("{PORT}/{file}"), text);
    }
    tree.pci(ethernet, "0x8086", "0x020000", 0, "ice");
    tree.link("class/net/ens1f0/device", &format!("devices/{ethernet}"));
    for (file, text) in [
        ("operstate", "up\n"),
        ("speed", "25000\n"),
        ("carrier_changes", "5\n"),
        ("statistics/rx_bytes", "100\n"),
        ("statistics/tx_bytes", "200\n"),
        ("statistics/rx_errors", "8\n"),
        ("statistics/tx_dropped", "9\n"),
    ] {
        tree.write(&format!("class/net/ens1f0/{file}"), text);
    }
    let virtual_function = "pci0000:10/0000:10:02.0/0000:1b:00.1";
    tree.pci(virtual_function, "0x8086", "0x020000", 0, "iavf");
    tree.link(&format!("devices/{virtual_function}/physfn"), &format!("devices/{ethernet}"));
    tree.link("class/net/ens1f0v0/device", &format!("devices/{virtual_function}"));
    for software in ["lo", "docker0", "bond0", "veth12"] {
        tree.write(&format!("class/net/{software}/operstate"), "up\n");
        tree.write(&format!("class/net/{software}/speed"), "10000\n");
    }
    tree
}

fn states(sample: &PortSample) -> Vec<(&str, PortState)> {
    sample.ports.iter().map(|port| (port.name.as_str(), port.state)).collect()
}

fn port<'a>(sample: &'a PortSample, name: &str) -> &'a PortVitals {
    sample.ports.iter().find(|port| port.name == name).unwrap()
}

#[test]
fn a_sample_has_every_value_of_the_ports_of_adapters() {
    let tree = host();
    let sample = Ports::new(tree.root()).sample();
    let ethernet = PortVitals {
        name: "ens1f0".to_owned(),
        state: PortState::Up,
        bytes_per_s: Some(25 * GBIT),
        received_bytes: Some(100),
        sent_bytes: Some(200),
        downed: Some(2),
        receive_errors: Some(8),
        send_discards: Some(9),
        ..PortVitals::default()
    };
    let infiniband = PortVitals {
        name: "mlx5_0:1".to_owned(),
        state: PortState::Up,
        bytes_per_s: Some(400 * GBIT),
        received_bytes: Some(4_000),
        sent_bytes: Some(8_000),
        downed: Some(1),
        recoveries: Some(2),
        symbol_errors: Some(3),
        receive_errors: Some(4),
        send_discards: Some(5),
        send_wait_ticks: Some(6),
        congestion_notices: Some(7),
    };
    assert_eq!(sample.ports, [ethernet, infiniband]);
    assert_eq!(sample.notes.len(), 0, "{:?}", sample.notes);
    // Newer kernels count by themselves how often it went down.
    tree.write("class/net/ens1f0/carrier_down_count", "1\n");
    assert_eq!(port(&Ports::new(tree.root()).sample(), "ens1f0").downed, Some(1));
}

#[test]
fn a_port_is_down_and_gone_with_its_adapter_and_unknown_without_it() {
    let tree = host();
    let mut ports = Ports::new(tree.root());
    ports.sample();
    tree.write(&format!("{PORT}/state"), "1: DOWN\n");
    tree.write("class/net/ens1f0/operstate", "lowerlayerdown\n");
    let sample = ports.sample();
    assert_eq!(states(&sample), [("ens1f0", PortState::Down), ("mlx5_0:1", PortState::Down)]);
    // A port that is down shows a rate as well.
    assert_eq!(port(&sample, "mlx5_0:1").bytes_per_s, None);
    // A container took the interface; the adapter left the bus.
    fs::remove_dir_all(tree.path("class/net/ens1f0")).unwrap();
    fs::remove_dir_all(tree.path("class/infiniband/mlx5_0")).unwrap();
    fs::remove_dir_all(tree.path("class/net/ib0")).unwrap();
    fs::remove_dir_all(tree.path("devices/pci0000:10/0000:10:01.0/0000:1a:00.0")).unwrap();
    assert_eq!(states(&ports.sample()), [("mlx5_0:1", PortState::Gone)]);
    assert_eq!(states(&ports.sample()), [("mlx5_0:1", PortState::Gone)]);
}

#[test]
fn odd_files_are_notes_and_unknown_values() {
    let tree = host();
    tree.write(&format!("{PORT}/counters/symbol_error"), "N/A (no PMA)\n");
    tree.write(&format!("{PORT}/counters/link_downed"), "many\n");
    tree.write(&format!("{PORT}/counters/port_rcv_errors"), &"9".repeat(200_000));
    tree.write(&format!("{PORT}/counters/port_rcv_data"), &u64::MAX.to_string());
    tree.write(&format!("{PORT}/counters/port_xmit_data"), "-1\n");
    tree.write(&format!("{PORT}/rate"), "fast\n");
    tree.write("class/net/ens1f0/speed", "-1\n");
    fs::write(tree.path("class/net/ens1f0/statistics/rx_bytes"), [0xff, 0xfe]).unwrap();
    let sample = Ports::new(tree.root()).sample();
    let infiniband = port(&sample, "mlx5_0:1");
    let values =
        [infiniband.symbol_errors, infiniband.downed, infiniband.receive_errors, infiniband.received_bytes];
    assert_eq!((values, infiniband.sent_bytes, infiniband.bytes_per_s), ([None; 4], None, None));
    let ethernet = port(&sample, "ens1f0");
    assert_eq!((ethernet.bytes_per_s, ethernet.received_bytes, ethernet.state), (None, None, PortState::Up));
    let notes: Vec<&str> = sample.notes.iter().map(String::as_str).collect();
    assert_eq!(
        notes,
        [
            "port mlx5_0:1: its rate cannot be read",
            "port mlx5_0:1: link_downed is no number",
            "port mlx5_0:1: port_rcv_errors is no number",
            "port mlx5_0:1: port_xmit_data is no number",
        ]
    );
    // Whether it is up is not known: that is not down.
    tree.write(&format!("{PORT}/state"), "?\n");
    let sample = Ports::new(tree.root()).sample();
    assert_eq!(states(&sample), [("ens1f0", PortState::Up)]);
    assert!(sample.notes.contains("port mlx5_0:1: its state cannot be read"), "{:?}", sample.notes);
    // Nothing is there.
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(Ports::new(empty.path()).sample(), PortSample::default());
}

#[test]
fn a_machine_has_a_bounded_number_of_ports() {
    let tree = host();
    for port in 2..100 {
        tree.write(&format!("class/infiniband/mlx5_0/ports/{port}/state"), "1: DOWN\n");
    }
    let sample = Ports::new(tree.root()).sample();
    assert_eq!(sample.ports.len(), PORTS_MAX);
    assert!(sample.notes.contains("100 network ports, of which 64 are sampled"), "{:?}", sample.notes);
}
