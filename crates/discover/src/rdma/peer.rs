//! The path between adapters and GPUs: whether one can read the memory of the other, and without a detour.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::{Check, Verdict, check};
use crate::sysfs::{entries, name_of, text};

/// The kernel whose drivers can share memory by dma-buf.
const DMA_BUF_KERNEL: (u32, u32) = (5, 12);
/// The configuration space of PCI Express.
const CONFIG_BYTES: u64 = 4_096;
/// Extended capabilities begin here, and access control services have this number (PCI Express base specification).
const EXTENDED: usize = 0x100;
const ACS: u16 = 0x000d;
/// Redirections of requests and of completions, and forwarding upstream, of the control register.
const REDIRECTS: u16 = 0b1_1100;
/// Bridges that are named.
const NAMED_MAX: usize = 4;

pub(super) fn examine(root: &Path) -> Vec<Check> {
    let nvidia = text(&root.join("proc/driver/nvidia/version"));
    let Some(version) = nvidia else { return Vec::new() };
    vec![direct(root, &version), iommu(root), acs(root)]
}

/// Whether NVIDIA's driver gives adapters its memory.
fn direct(root: &Path, version: &str) -> Check {
    let has = |module: &str| root.join("sys/module").join(module).exists();
    if let Some(module) = ["nvidia_peermem", "nv_peer_mem"].into_iter().find(|module| has(module)) {
        return check(Verdict::Good, "GPUDirect", format!("by {module}"), "");
    }
    let kernel = text(&root.join("proc/sys/kernel/osrelease")).and_then(|release| {
        let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().ok());
        Some((numbers.next()??, numbers.next()??))
    });
    if version.contains("Open Kernel Module") && kernel.is_some_and(|kernel| kernel >= DMA_BUF_KERNEL) {
        return check(Verdict::Good, "GPUDirect", "by dma-buf: open kernel modules", "");
    }
    let detail = "adapters cannot reach the memory of GPUs: data between nodes is copied through host memory";
    let hint = "modprobe nvidia_peermem, or install the open kernel modules on Linux 5.12 or later";
    check(Verdict::Weak, "GPUDirect", detail, hint)
}

fn iommu(root: &Path) -> Check {
    if entries(&root.join("sys/class/iommu")).is_empty() {
        return check(Verdict::Good, "IOMMU", "off", "");
    }
    let groups = entries(&root.join("sys/kernel/iommu_groups"));
    let kinds: Vec<String> = groups.iter().filter_map(|group| text(&group.join("type"))).collect();
    if kinds.is_empty() {
        let detail = "on, and it cannot be seen whether it translates addresses";
        return check(Verdict::Unknown, "IOMMU", detail, "on bare metal, boot with iommu=pt");
    }
    if kinds.iter().all(|kind| kind == "identity") {
        return check(Verdict::Good, "IOMMU", "passes addresses through", "");
    }
    let detail = "translates addresses: traffic between adapters and GPUs takes a detour, or hangs";
    check(Verdict::Weak, "IOMMU", detail, "on bare metal, boot with iommu=pt")
}

/// Whether PCI bridges send traffic between their devices upstream.
fn acs(root: &Path) -> Check {
    let (mut redirecting, mut seen, mut unread) = (Vec::new(), 0, 0);
    for device in entries(&root.join("sys/bus/pci/devices")) {
        // PCI-to-PCI bridges.
        if !text(&device.join("class")).is_some_and(|class| class.starts_with("0x0604")) {
            continue;
        }
        match redirects(&config(&device)) {
            Some(true) => redirecting.push(name_of(&device)),
            Some(false) => seen += 1,
            None => unread += 1,
        }
    }
    if !redirecting.is_empty() {
        let count = redirecting.len();
        let more = if count > NAMED_MAX { " and more" } else { "" };
        redirecting.truncate(NAMED_MAX);
        let detail = format!(
            "redirects traffic between devices through the CPU at {count} PCI bridge{} ({}{more})",
            if count == 1 { "" } else { "s" },
            redirecting.join(", ")
        );
        let hint = "on bare metal, turn ACS off in the firmware, or for each bridge with setpci ECAP_ACS+6.w=0000; \
                    virtual machines need it";
        return check(Verdict::Weak, "ACS", detail, hint);
    }
    if seen == 0 && unread > 0 {
        return check(Verdict::Unknown, "ACS", "PCI bridges can be read by root alone", "run this as root");
    }
    check(Verdict::Good, "ACS", "no PCI bridge redirects traffic between devices", "")
}

/// Users see 64 bytes of it, root all of it.
fn config(device: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(device.join("config")) {
        // What was read before an error stands.
        let _ = file.take(CONFIG_BYTES).read_to_end(&mut bytes);
    }
    bytes
}

/// Whether access control redirects, by the list of extended capabilities. `None` if it cannot be read.
fn redirects(config: &[u8]) -> Option<bool> {
    let word = |at: usize| Some(u16::from_le_bytes(config.get(at..at.checked_add(2)?)?.try_into().ok()?));
    let mut at = EXTENDED;
    config.get(at)?;
    // The list has no more entries than fit.
    for _ in 0..config.len() / 4 {
        let (id, next) = (word(at)?, word(at.checked_add(2)?)?);
        if id == ACS {
            return Some(word(at.checked_add(6)?)? & REDIRECTS != 0);
        }
        at = usize::from(next >> 4);
        if at < EXTENDED {
            break;
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A space with these capabilities, each with its number, where it is, the next, and its control register.
    fn space(capabilities: &[(u16, usize, u16, u16)]) -> Vec<u8> {
        let mut config = vec![0; 4_096];
        for (id, at, next, control) in capabilities {
            config[*at..at + 2].copy_from_slice(&id.to_le_bytes());
            config[at + 2..at + 4].copy_from_slice(&(next << 4 | 1).to_le_bytes());
            config[at + 6..at + 8].copy_from_slice(&control.to_le_bytes());
        }
        config
    }

    #[test]
    fn access_control_is_found_among_the_capabilities() {
        assert_eq!(redirects(&[0; 64]), None);
        assert_eq!(redirects(&space(&[])), Some(false));
        assert_eq!(redirects(&space(&[(1, 0x100, 0x148, 0), (ACS, 0x148, 0, 0x1d)])), Some(true));
        assert_eq!(redirects(&space(&[(1, 0x100, 0x148, 0xff), (ACS, 0x148, 0, 0)])), Some(false));
        // A list that leads back, or out of the space.
        assert_eq!(redirects(&space(&[(1, 0x100, 0x100, 0)])), Some(false));
        assert_eq!(redirects(&space(&[(1, 0x100, 0xfff, 0)])), None);
    }
}
