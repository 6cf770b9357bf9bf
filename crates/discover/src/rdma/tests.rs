use std::collections::BTreeMap;
use std::fs::Permissions;

use super::*;

/// A host as files.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new(files: &[(&str, &str)]) -> Self {
        let host = Self { folder: tempfile::tempdir().unwrap() };
        files.iter().for_each(|(path, text)| host.write(path, text));
        host
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    }

    fn remove(&self, path: &str) {
        let path = self.folder.path().join(path);
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
    }

    /// By subject the verdicts and details.
    fn checks(&self) -> BTreeMap<String, Vec<(Verdict, String)>> {
        let mut found: BTreeMap<String, Vec<(Verdict, String)>> = BTreeMap::new();
        for check in examine(self.folder.path()) {
            assert_eq!(
                check.verdict == Verdict::Good,
                check.hint.is_empty(),
                "what to do is said: {check:?}"
            );
            found.entry(check.subject).or_default().push((check.verdict, check.detail));
        }
        found
    }

    fn worst(&self, subject: &str) -> (Verdict, String) {
        let checks = self.checks();
        let of = checks.get(subject).unwrap_or_else(|| panic!("{subject}: {checks:?}"));
        of.iter().max().cloned().unwrap()
    }
}

const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

/// A host with one adapter of InfiniBand on which all is well.
fn good() -> Host {
    let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                  Max locked memory         unlimited            unlimited            bytes     \n";
    let host = Host::new(&[
        ("sys/module/ib_uverbs/refcnt", "1"),
        ("sys/module/rdma_ucm/refcnt", "1"),
        ("sys/class/infiniband_verbs/uverbs0/dev", "231:192"),
        ("sys/class/infiniband_verbs/abi_version", "6"),
        ("dev/infiniband/uverbs0", ""),
        ("dev/infiniband/rdma_cm", ""),
        ("proc/self/limits", limits),
    ]);
    for (name, text) in [
        ("state", "4: ACTIVE\n"),
        ("phys_state", "5: LinkUp\n"),
        ("rate", "400 Gb/sec (4X NDR)\n"),
        ("link_layer", "InfiniBand\n"),
        ("counters/link_downed", "0\n"),
        ("counters/symbol_error", "0\n"),
    ] {
        host.write(&format!("{PORT}/{name}"), text);
    }
    host
}

#[test]
fn a_host_without_adapters_says_so_and_no_more() {
    let checks = Host::new(&[]).checks();
    assert_eq!(checks.len(), 1);
    assert_eq!(checks["adapters"][0].0, Verdict::Good);
}

#[test]
fn all_is_well_on_a_good_host() {
    let checks = good().checks();
    assert!(checks.values().flatten().all(|(verdict, _)| *verdict == Verdict::Good), "{checks:#?}");
    assert_eq!(checks["mlx5_0:1"][0].1, "active, 400 Gb/sec (4X NDR), InfiniBand");
    assert!(!checks.contains_key("GPUDirect"), "there is no GPU");
}

#[test]
fn modules_files_and_rights_that_are_missing_are_named() {
    let host = good();
    host.remove("sys/module/rdma_ucm");
    assert_eq!(host.worst("modules").0, Verdict::Weak);
    host.remove("sys/module/ib_uverbs");
    assert_eq!(host.worst("modules").0, Verdict::Broken);
    let file = host.folder.path().join("dev/infiniband/uverbs0");
    fs::set_permissions(&file, Permissions::from_mode(0o660)).unwrap();
    assert_eq!(
        host.worst("files"),
        (Verdict::Weak, "not all users may open uverbs0 in /dev/infiniband".into())
    );
    host.remove("dev/infiniband/uverbs0");
    assert_eq!(host.worst("files"), (Verdict::Broken, "/dev/infiniband has no uverbs0".into()));
}

#[test]
fn little_lockable_memory_is_weak() {
    let host = good();
    let limit =
        |hard: &str| format!("Max locked memory         65536                {hard}           bytes\n");
    for (hard, verdict) in
        [("8388608", Verdict::Weak), ("68719476736", Verdict::Good), ("unlimited", Verdict::Good)]
    {
        host.write("proc/self/limits", &limit(hard));
        assert_eq!(host.worst("memory").0, verdict, "{hard}");
    }
    host.write("proc/self/limits", "nothing of that\n");
    let unknown = examine(host.folder.path()).into_iter().find(|check| check.subject == "memory").unwrap();
    assert_eq!(unknown.verdict, Verdict::Unknown);
}

#[test]
fn a_port_that_is_down_or_has_errors_is_weak() {
    let host = good();
    host.write(&format!("{PORT}/counters/link_downed"), "3");
    host.write(&format!("{PORT}/counters/symbol_error"), "17");
    let said = "3 times down, 17 symbol errors since its counters were cleared";
    assert_eq!(host.worst("mlx5_0:1"), (Verdict::Weak, said.into()));
    host.write(&format!("{PORT}/state"), "1: DOWN");
    host.write(&format!("{PORT}/phys_state"), "2: Polling");
    assert_eq!(host.worst("mlx5_0:1"), (Verdict::Weak, "the port is down, its link polling".into()));
}

#[test]
fn roce_needs_an_address_and_large_frames() {
    let host = good();
    host.write(&format!("{PORT}/link_layer"), "Ethernet");
    assert_eq!(host.worst("mlx5_0:1").0, Verdict::Broken, "no address");
    let zero = "0000:0000:0000:0000:0000:0000:0000:0000";
    for (index, gid, kind) in [
        (0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "IB/RoCE v1"),
        (1, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "RoCE v2"),
        (2, "0000:0000:0000:0000:0000:ffff:0a00:0001", "IB/RoCE v1"),
        (3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2"),
        (10, zero, "RoCE v2"),
    ] {
        host.write(&format!("{PORT}/gids/{index}"), gid);
        host.write(&format!("{PORT}/gid_attrs/types/{index}"), kind);
        host.write(&format!("{PORT}/gid_attrs/ndevs/{index}"), "ens1f0");
    }
    host.write("sys/class/net/ens1f0/mtu", "9000");
    let said = "active, 400 Gb/sec (4X NDR), RoCE v2 with 10.0.0.1 (GID index 3)";
    assert_eq!(host.worst("mlx5_0:1"), (Verdict::Good, said.into()));
    host.write("sys/class/net/ens1f0/mtu", "1500");
    assert_eq!(host.worst("mlx5_0:1").0, Verdict::Weak);
    host.write("sys/class/net/ens1f0/mtu", "4200");
    for side in ["roce_np", "roce_rp"] {
        (0..8).for_each(|priority| {
            host.write(&format!("sys/class/net/ens1f0/ecn/{side}/enable/{priority}"), "0")
        });
    }
    assert!(host.worst("mlx5_0:1").1.contains("ECN"));
    for side in ["roce_np", "roce_rp"] {
        host.write(&format!("sys/class/net/ens1f0/ecn/{side}/enable/3"), "1");
    }
    assert_eq!(host.worst("mlx5_0:1").0, Verdict::Good);
}

#[test]
fn gpus_and_adapters_reach_each_other_without_a_detour_or_it_is_said() {
    let host = good();
    let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build";
    host.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104");
    host.write("proc/sys/kernel/osrelease", "6.8.0-45-generic");
    assert_eq!(host.worst("GPUDirect").0, Verdict::Weak);
    host.write("proc/driver/nvidia/version", open);
    assert_eq!(host.worst("GPUDirect"), (Verdict::Good, "by dma-buf: open kernel modules".into()));
    host.write("proc/sys/kernel/osrelease", "5.4.0-150-generic");
    assert_eq!(host.worst("GPUDirect").0, Verdict::Weak);
    host.write("sys/module/nvidia_peermem/refcnt", "0");
    assert_eq!(host.worst("GPUDirect"), (Verdict::Good, "by nvidia_peermem".into()));

    assert_eq!(host.worst("IOMMU"), (Verdict::Good, "off".into()));
    host.write("sys/class/iommu/dmar0/name", "");
    assert_eq!(host.worst("IOMMU").0, Verdict::Unknown);
    host.write("sys/kernel/iommu_groups/0/type", "identity");
    assert_eq!(host.worst("IOMMU").0, Verdict::Good);
    host.write("sys/kernel/iommu_groups/1/type", "DMA-FQ");
    assert_eq!(host.worst("IOMMU").0, Verdict::Weak);

    assert_eq!(host.worst("ACS").0, Verdict::Good, "no bridge");
    host.write("sys/bus/pci/devices/0000:15:00.0/class", "0x060400");
    host.write(
        "sys/bus/pci/devices/0000:15:00.0/config",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    );
    assert_eq!(host.worst("ACS").0, Verdict::Unknown, "64 bytes");
    let mut config = vec![0_u8; 4_096];
    config[0x100..0x108].copy_from_slice(&[0x0d, 0, 1, 0, 0, 0, 0x1d, 0]);
    let path = host.folder.path().join("sys/bus/pci/devices/0000:15:00.0/config");
    fs::write(path, config).unwrap();
    let said = "redirects traffic between devices through the CPU at 1 PCI bridge (0000:15:00.0)";
    assert_eq!(host.worst("ACS"), (Verdict::Weak, said.into()));
}
