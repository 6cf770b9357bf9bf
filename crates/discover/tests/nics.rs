//! Which interfaces are network adapters, in every form that lists them.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use phalanx_discover::{hwloc, nccl, topo_m};
use phalanx_model::{LinkKind, Machine, Port};

fn names(machine: &Machine) -> Vec<&str> {
    machine.nics.iter().map(|n| n.name.as_str()).collect()
}

/// A socket with a GPU and NICs: address, ids and name of each.
fn nccl_with(nics: &[(&str, &str, &str)], bare: &[&str]) -> (Machine, Vec<String>) {
    let mut text = "<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\">
      <pci busid=\"0000:10:00.0\" class=\"0x030200\" vendor=\"0x10de\" device=\"0x20b0\"><gpu dev=\"0\" sm=\"80\"/></pci>"
        .to_owned();
    for (address, device, name) in nics {
        text.push_str(&format!(
            "<pci busid=\"{address}\" class=\"0x020000\" vendor=\"0x15b3\" device=\"{device}\"><nic><net name=\"{name}\" \
             speed=\"100000\"/></nic></pci>"
        ));
    }
    for name in bare {
        text.push_str(&format!("<nic><net name=\"{name}\" speed=\"10000\"/></nic>"));
    }
    text.push_str("</cpu></system>");
    let found = nccl::topo::parse(&text).unwrap();
    let gaps = found.gaps.iter().map(|g| g.what.clone()).collect();
    (found.tree().machine().0, gaps)
}

#[test]
fn virtual_functions_beside_their_adapter_are_no_adapters() {
    let physical = ("0000:20:00.0", "0x1017", "mlx5_0");
    let (one, two) = (("0000:20:00.2", "0x1018", "mlx5_1"), ("0000:20:00.3", "0x1018", "mlx5_2"));
    let (machine, gaps) = nccl_with(&[physical, one, two], &[]);
    assert_eq!(names(&machine), ["mlx5_0"]);
    assert_eq!(gaps, ["2 virtual functions of network adapters are left out; their adapters are here"]);
    // By their names, if the file has no ids.
    let (machine, gaps) =
        nccl_with(&[("0000:20:00.0", "0x1017", "ens1f0"), ("0000:20:00.2", "0x1017", "ens1f0v0")], &[]);
    assert_eq!(names(&machine), ["ens1f0"]);
    assert_eq!(gaps, ["1 virtual function of a network adapter is left out; its adapter is here"]);
    // In a guest they are the adapters.
    let (machine, gaps) = nccl_with(&[one, two], &[]);
    assert_eq!((names(&machine), gaps), (vec!["mlx5_1", "mlx5_2"], Vec::new()));
}

#[test]
fn bridges_and_other_interfaces_of_software_are_no_adapters() {
    let (machine, gaps) =
        nccl_with(&[], &["eth0", "docker0", "br-1f2e3d4c5b6a", "virbr0", "veth12ab", "bond0"]);
    assert_eq!(names(&machine), ["bond0", "eth0"]);
    let left = "docker0, br-1f2e3d4c5b6a, virbr0, veth12ab";
    assert_eq!(gaps, [format!("{left}: made by software and no network adapter; left out")]);
}

#[test]
fn hwloc_keeps_older_infiniband_and_names_other_controllers() {
    let function = |address: &str, class: &str, inner: &str| {
        format!(
            "<object type='PCIDev' pci_busid='{address}' pci_type='{class} [1077:7322] [0000:0000] 01'>{inner}</object>"
        )
    };
    let verbs = |name: &str| format!("<object type='OSDev' name='{name}' osdev_type='3'/>");
    let net = |name: &str| format!("<object type='OSDev' name='{name}' osdev_type='2'/>");
    let text = format!(
        "<topology version='2.0'><object type='Machine' cpuset='0xf'><object type='NUMANode' os_index='0'/>\
         <object type='Bridge' bridge_type='0-1' bridge_pci='0000:[00-10]'>{}{}{}</object></object></topology>",
        function("0000:01:00.0", "0c06", &verbs("qib0")),
        function("0000:02:00.0", "0280", &verbs("bxi0")),
        function("0000:03:00.0", "0280", &net("wlan0")),
    );
    let (machine, gaps) = hwloc::parse(&text).unwrap().machine();
    assert_eq!(names(&machine), ["bxi0", "qib0"]);
    let gaps: Vec<&str> = gaps.iter().map(|g| g.what.as_str()).collect();
    assert_eq!(gaps, ["wlan0 is a network controller of PCI class 0280 without InfiniBand verbs; left out"]);
}

#[test]
fn hwloc_of_a_guest_has_the_virtual_functions_that_the_guest_has() {
    let function = |address: &str, device: &str, name: &str| {
        format!(
            "<object type='PCIDev' pci_busid='{address}' pci_type='0207 [15b3:{device}] [0000:0000] 01'>\
             <object type='OSDev' name='{name}' osdev_type='3'/></object>"
        )
    };
    let read = |functions: &str| {
        let text = format!(
            "<topology version='2.0'><object type='Machine' cpuset='0xf'><object type='NUMANode' os_index='0'/>\
             <object type='Bridge' bridge_type='0-1' bridge_pci='0000:[00-10]'>{functions}</object></object></topology>"
        );
        let (machine, gaps) = hwloc::parse(&text).unwrap().machine();
        (machine.nics.iter().map(|n| n.name.clone()).collect::<Vec<_>>().join(" "), gaps.len())
    };
    let virtuals = function("0000:01:00.1", "101e", "mlx5_1");
    assert_eq!(read(&virtuals), ("mlx5_1".to_owned(), 0));
    assert_eq!(read(&(function("0000:01:00.0", "1021", "mlx5_0") + &virtuals)), ("mlx5_0".to_owned(), 1));
}

/// Two GPUs on two sockets, and the functions of one adapter on the first.
fn matrix_with(functions: &[&str]) -> topo_m::TopoM {
    let ports: Vec<&str> =
        ["GPU0", "GPU1"].into_iter().chain(functions.iter().copied()).chain(["far"]).collect();
    let mut text = String::new();
    let named: Vec<String> =
        ports.iter().map(|p| if *p == "far" { "mlx5_99".to_owned() } else { (*p).to_owned() }).collect();
    text.push_str(&format!("\t{}\n", named.join("\t")));
    let class = |a: &str, b: &str| match (a, b) {
        _ if a == b => " X ",
        ("GPU1" | "far", "GPU1" | "far") => "PIX",
        ("GPU1" | "far", _) | (_, "GPU1" | "far") => "SYS",
        ("GPU0", _) | (_, "GPU0") => "PXB",
        _ => "PIX",
    };
    for (port, name) in ports.iter().zip(&named) {
        let cells: Vec<&str> = ports.iter().map(|other| class(port, other)).collect();
        text.push_str(&format!("{name}\t{}\n", cells.join("\t")));
    }
    topo_m::parse(&text).unwrap()
}

#[test]
fn many_nics_that_a_matrix_cannot_tell_apart_are_one_adapter() {
    let found =
        matrix_with(&["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"]);
    assert_eq!(names(&found.machine), ["mlx5_0", "mlx5_99"]);
    assert_eq!(found.machine.link(Port::Device(1), Port::Nic(1)), Some(LinkKind::PcieSwitch));
    assert_eq!(found.machine.link(Port::Device(0), Port::Nic(0)), Some(LinkKind::PcieBridges));
    assert!(
        found.gaps[0].what.starts_with("7 NICs (mlx5_1 to mlx5_7) are functions of adapters"),
        "{:?}",
        found.gaps
    );
    // Up to four adapters may be behind one bridge.
    let found = matrix_with(&["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]);
    assert_eq!((found.machine.nics.len(), found.gaps.len()), (5, 0));
    let found = matrix_with(&["ens1f0", "ens1f0v0"]);
    assert_eq!(names(&found.machine), ["ens1f0", "mlx5_99"]);
    assert_eq!(
        found.gaps[0].what,
        "ens1f0v0 is a virtual function of an adapter that is here; it is left out"
    );
}
