//! Probes of the kernel, against trees that are written here.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;
#[path = "common/tree.rs"]
mod tree;

use common::groups;
use phalanx_discover::host::{self, merge};
use phalanx_discover::kfd::{self, Kfd};
use phalanx_discover::nvml::{self, NvmlError};
use phalanx_discover::sysfs::{self, Vendor};
use phalanx_discover::{Discovered, shape};
use phalanx_model::{LinkKind, Machine, Origin, Port};
use proptest::prelude::*;
use tempfile::TempDir;
use tree::Tree;

const GEN5: (&str, u32) = ("32.0 GT/s PCIe", 16);
const GEN4: (&str, u32) = ("16.0 GT/s PCIe", 16);

fn without_nvidia(found: sysfs::Sysfs, amd: &Kfd) -> Discovered {
    merge(found, amd, Err(NvmlError::Absent("no library".into())))
}

/// Two sockets. On the first, a switch with two GPUs and a NIC, and a GPU below a second switch behind it; on
/// the second, a GPU on a root port.
fn two_sockets() -> Tree {
    let tree = Tree::new(2);
    tree.write("devices/system/node/node0/distance", "10 21\n");
    tree.write("devices/system/node/node1/distance", "21 10\n");
    let switch = "pci0000:10/0000:10:01.0/0000:11:00.0";
    tree.pci(&format!("{switch}/0000:12:00.0/0000:13:00.0"), "0x10de", "0x030200", 0, "nvidia");
    tree.pci(&format!("{switch}/0000:12:01.0/0000:14:00.0"), "0x10de", "0x030200", 0, "nvidia");
    tree.pci(&format!("{switch}/0000:12:01.0/0000:14:00.1"), "0x10de", "0x040300", 0, "snd_hda_intel");
    let deep = format!("{switch}/0000:12:03.0/0000:16:00.0/0000:17:00.0/0000:18:00.0");
    tree.pci(&deep, "0x10de", "0x030200", 0, "nvidia");
    tree.pci("pci0000:80/0000:80:01.0/0000:81:00.0", "0x10de", "0x030200", 1, "nvidia");

    let nic = format!("{switch}/0000:12:02.0/0000:15:00.0");
    tree.pci(&nic, "0x15b3", "0x020700", 0, "mlx5_core");
    tree.link("class/infiniband/mlx5_0/device", &format!("devices/{nic}"));
    tree.write("class/infiniband/mlx5_0/node_guid", "0002:c903:00ab:cdef\n");
    tree.write("class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    tree.write("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    tree.write("class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
    tree.link("class/net/ib0/device", &format!("devices/{nic}"));
    tree.pci("pci0000:10/0000:10:02.0/0000:1a:00.0", "0x8086", "0x020000", 0, "virtio");
    tree.write("devices/pci0000:10/0000:10:02.0/0000:1a:00.0/virtio0/x", "");
    tree.link("class/net/eth0/device", "devices/pci0000:10/0000:10:02.0/0000:1a:00.0/virtio0");
    tree.write("class/net/eth0/speed", "25000\n");
    tree.write("class/net/eth0/operstate", "up\n");
    tree.write("class/net/lo/speed", "-1\n");
    tree.pci("pci0000:10/0000:10:03.0/0000:1b:00.0", "0x8086", "0x028000", 0, "iwlwifi");
    tree.write("class/net/wlan0/wireless/x", "");
    tree.link("class/net/wlan0/device", "devices/pci0000:10/0000:10:03.0/0000:1b:00.0");
    tree
}

/// The same with speeds: a gen 5 switch in a gen 4 slot, a GPU at rest, one with half its lanes, and a NIC that
/// trained low.
fn two_sockets_with_speeds() -> Tree {
    let tree = two_sockets();
    let root = "pci0000:10/0000:10:01.0";
    let switch = format!("{root}/0000:11:00.0");
    tree.speed(root, GEN4, GEN5);
    tree.speed(&switch, GEN4, GEN5);
    for (path, now, most) in [
        ("0000:12:00.0", ("2.5 GT/s PCIe", 16), GEN5),
        ("0000:12:00.0/0000:13:00.0", ("2.5 GT/s PCIe", 16), GEN5),
        ("0000:12:01.0", ("32.0 GT/s PCIe", 8), GEN5),
        ("0000:12:01.0/0000:14:00.0", ("32.0 GT/s PCIe", 8), GEN5),
        ("0000:12:02.0", ("8.0 GT/s PCIe", 16), GEN5),
        ("0000:12:02.0/0000:15:00.0", ("8.0 GT/s PCIe", 16), GEN4),
    ] {
        tree.speed(&format!("{switch}/{path}"), now, most);
    }
    // Old kernels write no fraction, and virtual ports no width.
    tree.speed("pci0000:80/0000:80:01.0", ("8 GT/s", 16), ("8 GT/s", 16));
    tree.speed("pci0000:80/0000:80:01.0/0000:81:00.0", ("Unknown speed", 63), ("Unknown", 255));
    tree
}

fn carries(machine: &Machine, a: Port, b: Port) -> u32 {
    machine.links.iter().find(|l| (l.a, l.b) == (a, b)).unwrap().nominal_mb_per_s
}

#[test]
fn the_kernel_tells_devices_nics_and_the_way_between_them() {
    let found = two_sockets().read();
    let machine = found.machine;
    assert_eq!((machine.origin, machine.cpu_milli), (Origin::Found, 32_000));
    assert_eq!(machine.memory_bytes, 263_856_328 * 1024);
    let addresses: Vec<_> = machine.devices.iter().map(|d| d.pci_address.clone().unwrap()).collect();
    assert_eq!(addresses, ["0000:13:00.0", "0000:14:00.0", "0000:18:00.0", "0000:81:00.0"]);
    assert_eq!(machine.devices[0].model, "NVIDIA H100 80GB HBM3", "by its PCI id");
    assert_eq!(machine.device_link(0, 1), Some(LinkKind::PcieSwitch));
    assert_eq!(machine.device_link(0, 2), Some(LinkKind::PcieBridges));
    assert_eq!(machine.device_link(0, 3), Some(LinkKind::Socket));
    let nics: Vec<_> =
        machine.nics.iter().map(|n| (n.name.as_str(), n.bytes_per_s.unwrap(), n.numa)).collect();
    assert_eq!(nics, [("eth0", 3_125_000_000, Some(0)), ("mlx5_0", 50_000_000_000, Some(0))]);
    assert_eq!(found.nics[1].node_guid.as_deref(), Some("0002c90300abcdef"));
    assert_eq!(found.nics[1].link_layer.as_deref(), Some("InfiniBand"));
    assert!(found.nics.iter().all(|nic| nic.is_up));
    assert_eq!(machine.link(Port::Device(1), Port::Nic(1)), Some(LinkKind::PcieSwitch));
    assert_eq!(machine.link(Port::Device(1), Port::Nic(0)), Some(LinkKind::HostBridge));
    assert_eq!(groups(&machine, shape::PCIE), "0-2");
    assert_eq!(groups(&machine, shape::SOCKET), "0-2");
    assert_eq!(found.vendors, [Vendor::Nvidia; 4]);
    assert_eq!(found.drivers[0].as_deref(), Some("nvidia"));
    assert_eq!(found.numa_distances.into_iter().collect::<Vec<_>>(), [(0, vec![10, 21]), (1, vec![21, 10])]);
    assert!(machine.links.iter().all(|l| l.nominal_mb_per_s == 0), "no speeds are told");
}

#[test]
fn a_path_over_pcie_carries_what_its_slowest_hop_does() {
    let found = two_sockets_with_speeds().read();
    let machine = found.machine;
    let device = Port::Device;
    // width · kv / 80 GB/s: the second GPU has 8 lanes of gen 5; the first one's slot is at rest.
    assert_eq!(carries(&machine, device(0), device(1)), 24_000);
    // The NIC trained to gen 3.
    assert_eq!(carries(&machine, device(0), Port::Nic(1)), 12_000);
    // The GPU behind the second switch tells no speeds, so that only the first one's slot counts.
    assert_eq!(carries(&machine, device(0), device(2)), 48_000);
    // Out of the switch it is gen 4; the far slot is gen 3.
    assert_eq!(carries(&machine, device(0), Port::Nic(0)), 24_000);
    assert_eq!(carries(&machine, device(0), device(3)), 12_000);
    let uplinks: Vec<_> =
        machine.groups.iter().map(|g| (g.level.as_str(), g.devices.to_string(), g.uplink_mb_per_s)).collect();
    assert_eq!(uplinks, [("pcie", "0-2".to_owned(), 24_000), ("socket", "0-2".to_owned(), 0)]);
    assert_eq!(found.notes, ["mlx5_0 runs PCIe at 8.0 GT/s PCIe, and 16.0 GT/s PCIe is possible"]);
}

#[test]
fn ports_that_are_down_and_virtual_functions_carry_nothing() {
    let tree = two_sockets();
    tree.write("class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    tree.write("class/net/eth0/operstate", "down\n");
    let parent = "pci0000:10/0000:10:02.0";
    tree.pci(&format!("{parent}/0000:1a:00.2"), "0x8086", "0x020000", 0, "iavf");
    tree.link(
        "devices/pci0000:10/0000:10:02.0/0000:1a:00.2/physfn",
        &format!("devices/{parent}/0000:1a:00.0"),
    );
    tree.link("class/net/eth0v0/device", &format!("devices/{parent}/0000:1a:00.2"));
    tree.pci(&format!("{parent}/0000:1c:00.4"), "0x10de", "0x030200", 0, "nvidia");
    tree.link(&format!("devices/{parent}/0000:1c:00.4/physfn"), &format!("devices/{parent}/0000:1a:00.0"));
    let found = tree.read();
    let nics: Vec<_> = found.machine.nics.iter().map(|n| (n.name.as_str(), n.bytes_per_s)).collect();
    assert_eq!(nics, [("eth0", None), ("mlx5_0", None)]);
    assert!(found.nics.iter().all(|nic| !nic.is_up));
    assert_eq!(found.machine.devices.len(), 4);
    let left = "1 virtual function of a network adapter is left out; its adapter is here";
    assert_eq!(found.notes, [left, "mlx5_0 has no active port"]);
}

#[test]
fn graphics_that_are_part_of_a_cpu_are_no_device_and_an_accelerator_is_one() {
    let tree = Tree::new(1);
    // A node of memory alone, as a GPU's own memory is on some hosts.
    tree.write("devices/system/node/node8/cpulist", "\n");
    tree.pci("pci0000:00/0000:00:08.1/0000:04:00.0", "0x1002", "0x030000", -1, "amdgpu");
    tree.pci("pci0000:20/0000:20:01.0/0000:21:00.0", "0x1002", "0x120000", -1, "amdgpu");
    tree.write("devices/pci0000:20/0000:20:01.0/0000:21:00.0/mem_info_vram_total", "206141652992\n");
    tree.pci("pci0000:00/0000:00:02.0", "0x1a03", "0x030000", -1, "ast");
    let found = tree.read();
    assert_eq!(found.machine.devices.len(), 1);
    let device = &found.machine.devices[0];
    assert_eq!(
        (device.memory_bytes, device.numa),
        (206_141_652_992, Some(0)),
        "there is one node of CPUs alone"
    );
    assert_eq!(
        found.notes,
        ["0000:04:00.0 is a display controller without much memory of its own: left out"]
    );
    assert_eq!(without_nvidia(found, &Kfd::default()).machine.devices.len(), 1);
}

#[test]
fn nothing_is_a_machine_without_anything() {
    let empty = TempDir::new().unwrap();
    let found = sysfs::read(empty.path(), &empty.path().join("meminfo"));
    assert!(found.machine.devices.is_empty() && found.machine.cpu_milli == 0);
    assert_eq!(kfd::read(empty.path()), Kfd::default());
    let merged = without_nvidia(found, &Kfd::default());
    assert!(merged.machine.shape.as_str().starts_with("cpu-"), "{}", merged.machine.shape);
}

#[test]
fn devices_that_no_job_could_use_are_left_out_with_a_reason() {
    let tree = Tree::new(1);
    tree.pci("pci0000:20/0000:20:01.0/0000:21:00.0", "0x10de", "0x030200", 0, "vfio-pci");
    tree.pci("pci0000:20/0000:20:02.0/0000:22:00.0", "0x10de", "0x030200", 0, "nvidia");
    let merged = without_nvidia(tree.read(), &Kfd::default());
    assert!(merged.machine.devices.is_empty());
    assert_eq!(
        merged.notes,
        [
            "NVIDIA H100 80GB HBM3 at 0000:21:00.0 is left out: it is passed through to a virtual machine",
            "NVIDIA H100 80GB HBM3 at 0000:22:00.0 is left out: libnvidia-ml.so.1 is not there; install it with the driver",
        ]
    );
}

/// What a node of AMD's driver says of a GPU at bus `bus`.
fn gpu_properties(bus: u32, unique_id: u64) -> String {
    format!(
        "cpu_cores_count 0\nsimd_count 1216\nmem_banks_count 1\ngfx_target_version 90402\nvendor_id 4098\n\
         device_id 29857\nlocation_id {}\ndomain 0\nhive_id 77\nunique_id {unique_id}\n",
        bus << 8
    )
}

const CPU: &str = "cpu_cores_count 96\nsimd_count 0\ngfx_target_version 0\n";

/// Eight GPUs on two sockets, every pair of them joined by xGMI.
fn xgmi_box() -> Tree {
    let tree = Tree::new(2);
    tree.kfd(0, CPU, 0, &[(1, 4, 32, 0, 0)]);
    tree.kfd(1, CPU, 0, &[(0, 4, 32, 0, 0)]);
    for gpu in 0..8_u32 {
        let (socket, bus) = (gpu / 4, 0x10 + gpu * 0x10);
        tree.pci(
            &format!("pci0000:{bus:02x}/0000:{bus:02x}:01.0/0000:{:02x}:00.0", bus + 1),
            "0x1002",
            "0x120000",
            i32::try_from(socket).unwrap(),
            "amdgpu",
        );
        let peers = (0..8).filter(|peer| *peer != gpu).map(|peer| (peer + 2, 11, 15, 64_000, 64_000));
        let links: Vec<_> = [(socket, 2, 20, 0, 0)].into_iter().chain(peers).collect();
        tree.kfd(gpu + 2, &gpu_properties(bus + 1, 0xab00 + u64::from(gpu)), 206_141_652_992, &links);
    }
    tree
}

#[test]
fn gpus_on_xgmi_are_an_island_with_what_the_driver_says_of_it() {
    let tree = xgmi_box();
    let amd = kfd::read(tree.root());
    assert_eq!(amd.gpus.len(), 8);
    assert_eq!((amd.gpus[5].target.as_str(), amd.gpus[5].numa), ("gfx942", Some(1)));
    let merged = without_nvidia(tree.read(), &amd);
    let machine = merged.machine;
    assert_eq!(machine.devices[0].memory_bytes, 206_141_652_992);
    assert_eq!(groups(&machine, shape::NVLINK), "0-7");
    assert_eq!(groups(&machine, shape::SOCKET), "0-3 4-7");
    assert_eq!(machine.links.len(), 28);
    assert!(machine.links.iter().all(|l| (l.kind, l.nominal_mb_per_s) == (LinkKind::Xgmi, 64_000)));
    assert_eq!(merged.uuids[7], "GPU-000000000000ab07");
    assert!(merged.notes.is_empty(), "{:?}", merged.notes);
}

#[test]
fn a_container_with_two_of_the_gpus_has_two() {
    let tree = xgmi_box();
    for hidden in 4..10 {
        // As the kernel has it: the file is there, and reads as nothing.
        tree.write(&format!("class/kfd/kfd/topology/nodes/{hidden}/properties"), "");
    }
    let amd = kfd::read(tree.root());
    let merged = without_nvidia(tree.read(), &amd);
    assert_eq!(merged.machine.devices.len(), 2);
    assert_eq!(merged.machine.device_link(0, 1), Some(LinkKind::Xgmi));
    assert!(merged.notes[0].starts_with("6 GPUs of AMD's driver may not be used here"), "{:?}", merged.notes);
    assert_eq!(merged.notes.len(), 7, "{:?}", merged.notes);

    // Without the PCI tree, the driver alone tells.
    std::fs::remove_dir_all(tree.path("bus")).unwrap();
    let merged = without_nvidia(tree.read(), &amd);
    let device = &merged.machine.devices[1];
    assert_eq!((device.model.as_str(), device.numa), ("AMD gfx942", Some(0)));
    assert_eq!((device.pci_address.as_deref(), device.memory_bytes), (Some("0000:21:00.0"), 206_141_652_992));
    assert_eq!(merged.machine.device_link(0, 1), Some(LinkKind::Xgmi));
}

#[test]
fn partitions_are_one_device_and_long_ways_are_narrow() {
    let tree = Tree::new(1);
    tree.kfd(0, CPU, 0, &[]);
    // Two parts of one GPU; the newer form counts them beyond the function.
    tree.kfd(1, &gpu_properties(0x11, 1), 100, &[(3, 11, 30, 32_000, 0), (2, 11, 15, 64_000, 64_000)]);
    let second = format!("{}\nlocation_id {}\n", gpu_properties(0x11, 2), 1_u64 << 28 | 0x1100);
    tree.kfd(2, &second, 100, &[]);
    tree.kfd(3, &gpu_properties(0x21, 3).replace("90402", "90010"), 100, &[]);
    // Over PCIe, and of a type that is none.
    tree.kfd(
        4,
        &gpu_properties(0x31, 0),
        100,
        &[(3, 2, 72, 0, 0), (1, 2, 40, 0, 0), (2, 99, 1, 0, 0), (9, 11, 15, 0, 0)],
    );
    let amd = kfd::read(tree.root());
    let told: Vec<_> =
        amd.gpus.iter().map(|g| (g.pci_address.as_str(), g.partitions, g.memory_bytes)).collect();
    assert_eq!(told, [("0000:11:00.0", 2, 200), ("0000:21:00.0", 1, 100), ("0000:31:00.0", 1, 100)]);
    assert_eq!(amd.gpus[1].target, "gfx90a");
    assert_eq!(amd.notes, ["0000:11:00.0 is cut into 2 parts, and taken for one device"]);
    let links: Vec<_> = amd.links.iter().map(|l| (l.a, l.b, l.kind, l.mb_per_s)).collect();
    assert_eq!(
        links,
        [(0, 1, LinkKind::Xgmi, 32_000), (0, 2, LinkKind::Numa, 0), (1, 2, LinkKind::Socket, 0)]
    );
}

#[test]
fn files_of_any_content_are_read() {
    let tree = xgmi_box();
    let gpu = "devices/pci0000:10/0000:10:01.0/0000:11:00.0";
    let node = "class/kfd/kfd/topology/nodes/3";
    let paths = [
        format!("{node}/properties"),
        format!("{node}/io_links/1/properties"),
        format!("{node}/mem_banks/0/properties"),
        "devices/system/node/node0/distance".to_owned(),
        "devices/system/node/node1/cpulist".to_owned(),
        "devices/system/cpu/online".to_owned(),
        format!("{gpu}/max_link_speed"),
        format!("{gpu}/current_link_width"),
        format!("{gpu}/class"),
        "meminfo".to_owned(),
    ];
    let before = paths.clone().map(|path| std::fs::read_to_string(tree.path(&path)).unwrap_or_default());
    let words = "[ -~\\n]{0,40}|-?[0-9]{1,20}|[0-9:.]{1,20} GT/s";
    let files = proptest::collection::vec((0..paths.len(), words), 1..6);
    proptest!(ProptestConfig::with_cases(64), |(files in files)| {
        paths.iter().zip(&before).for_each(|(path, text)| tree.write(path, text));
        for (which, text) in files {
            // A number in the place of any property.
            let numbers = format!("simd_count 1\nlocation_id {text}\nnode_to {text}\nsize_in_bytes {text}\n");
            tree.write(&paths[which], &if which < 3 { format!("{text}\n{numbers}") } else { text });
        }
        let machine = without_nvidia(tree.read(), &kfd::read(tree.root())).machine;
        let mut again = machine.clone();
        shape::finish(&mut again);
        prop_assert_eq!(again.shape, machine.shape);
    });
}

#[test]
fn this_host_is_read_whatever_it_is() {
    let found = host::discover();
    assert!(found.machine.cpu_milli >= 1000);
    assert!(found.machine.memory_bytes > 0);
    println!("{found:#?}");
    match nvml::dump(None) {
        Ok(description) => println!("{description}"),
        Err(error) => println!("{error}"),
    }
}
