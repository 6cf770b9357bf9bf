//! Properties derived from a machine's links: its inner domains and the name of its shape.

use crate::{DeviceGroup, DeviceMask, LevelName, Link, LinkKind, Machine, Port, ShapeName};

/// NVLink or xGMI islands: sets of devices that are all linked with each other.
pub const NVLINK: &str = "nvlink";
/// Devices below one PCIe root port, joined without a host bridge.
pub const PCIE: &str = "pcie";
/// Devices of one NUMA node.
pub const SOCKET: &str = "socket";

/// Orders the links, then computes [`Machine::groups`] and [`Machine::shape`]. Every reader ends with it, and code
/// that changes devices or links calls it again. Calling it twice has the same effect as once. It keeps the uplinks
/// of groups that remain, and known groups of [`PCIE`] if NVLink or xGMI hides the switch from the links.
pub fn finish(machine: &mut Machine) {
    order_links(machine);
    let known = std::mem::take(&mut machine.groups);
    for (level, sets) in
        [(NVLINK, islands(machine)), (PCIE, switches(machine, &known)), (SOCKET, sockets(machine))]
    {
        let Ok(level) = LevelName::new(level) else { continue };
        let sets = sets.into_iter().filter(|set| set.count() >= 2);
        machine.groups.extend(sets.map(|devices| {
            let same = known.iter().find(|group| group.level == level && group.devices == devices);
            same.cloned().unwrap_or_else(|| DeviceGroup::new(level.clone(), devices))
        }));
    }
    rename(machine);
}

/// Recomputes [`Machine::shape`] if links and groups stayed and other hardware changed. A reader that knows a
/// machine's tree finds groups that do not follow from its links; they stay.
pub fn rename(machine: &mut Machine) {
    machine.shape = name(machine);
}

/// The groups of one level, ascending by their first device.
pub fn groups<'a>(machine: &'a Machine, level: &'a str) -> impl Iterator<Item = DeviceMask> + 'a {
    machine.groups.iter().filter(move |g| g.level.as_str() == level).map(|g| g.devices)
}

/// Whether a link is NVLink or xGMI, which do not touch PCIe.
#[must_use]
pub const fn is_fabric(kind: LinkKind) -> bool {
    matches!(kind, LinkKind::Nvlink(_) | LinkKind::Xgmi)
}

/// `a < b`, both ends known, one link per pair (the nearest), sorted.
fn order_links(machine: &mut Machine) {
    let (devices, nics) = (machine.devices.len(), machine.nics.len());
    let known = |port: Port| match port {
        Port::Device(i) => (i as usize) < devices.min(64),
        Port::Nic(i) => (i as usize) < nics,
    };
    machine.links.retain(|l| l.a != l.b && known(l.a) && known(l.b));
    for link in &mut machine.links {
        if link.a > link.b {
            std::mem::swap(&mut link.a, &mut link.b);
        }
    }
    machine.links.sort_unstable_by_key(|l| (l.a, l.b, l.kind));
    machine.links.dedup_by_key(|l| (l.a, l.b));
}

/// Disjoint sets in which every pair has NVLink or xGMI, largest first by construction, sorted by first device.
///
/// A switched fabric is one set. A hybrid cube mesh is no clique: it falls apart into its quads, because the
/// largest clique is taken first, then the one with more links, then the one with lower devices.
fn islands(machine: &Machine) -> Vec<DeviceMask> {
    let mut peers = vec![DeviceMask::EMPTY; machine.devices.len().min(64)];
    for (a, b, _) in fabric_links(machine) {
        if let Some(p) = peers.get_mut(a as usize) {
            *p = p.union(DeviceMask::one(b));
        }
        if let Some(p) = peers.get_mut(b as usize) {
            *p = p.union(DeviceMask::one(a));
        }
    }
    let peers_of = |device: u32| peers.get(device as usize).copied().unwrap_or_default();
    let links: Vec<(u32, u32, LinkKind)> = fabric_links(machine).collect();
    let mut rest = machine.device_mask();
    let mut found = Vec::new();
    loop {
        let mut best = (0, 0, DeviceMask::EMPTY);
        for seed in rest.iter() {
            let set = grow(seed, rest, peers_of);
            let score = (set.count(), strength(&links, set), set);
            if (score.0, score.1) > (best.0, best.1) {
                best = score;
            }
        }
        if best.0 < 2 {
            break;
        }
        rest = rest.minus(best.2);
        found.push(best.2);
    }
    found.sort_unstable_by_key(|set| set.0.trailing_zeros());
    found
}

/// A clique around `seed`, grown by the device that leaves the most to grow with. Exact cliques are a hard
/// problem; real fabrics are switched, meshes of quads or bridged pairs, and on these this finds the largest.
fn grow(seed: u32, rest: DeviceMask, peers_of: impl Fn(u32) -> DeviceMask) -> DeviceMask {
    let mut set = DeviceMask::one(seed);
    let mut open = peers_of(seed).and(rest);
    while !open.is_empty() {
        let mut best: Option<(u32, u32)> = None;
        for device in open.iter() {
            let left = peers_of(device).and(open).count();
            if best.is_none_or(|(most, _)| left > most) {
                best = Some((left, device));
            }
        }
        let Some((_, device)) = best else { break };
        set = set.union(DeviceMask::one(device));
        open = open.and(peers_of(device)).minus(DeviceMask::one(device));
    }
    set
}

/// NVLinks inside a set; an xGMI link counts as one.
fn strength(links: &[(u32, u32, LinkKind)], set: DeviceMask) -> u32 {
    let inside = links.iter().filter(|(a, b, _)| set.contains(*a) && set.contains(*b));
    inside.map(|(_, _, kind)| if let LinkKind::Nvlink(n) = kind { u32::from(*n) } else { 1 }).sum()
}

/// NVLink and xGMI links between devices.
pub fn fabric_links(machine: &Machine) -> impl Iterator<Item = (u32, u32, LinkKind)> + '_ {
    machine.links.iter().filter(|l| is_fabric(l.kind)).filter_map(|l| match (l.a, l.b) {
        (Port::Device(a), Port::Device(b)) => Some((a, b, l.kind)),
        _ => None,
    })
}

/// Sets joined by `PIX` or `PXB`. NICs join sets as well: if NVLink hides how two devices are connected by PCIe, a
/// NIC near both of them, or a known group, still shows it.
fn switches(machine: &Machine, known: &[DeviceGroup]) -> Vec<DeviceMask> {
    let near = |l: &Link| matches!(l.kind, LinkKind::PcieSwitch | LinkKind::PcieBridges);
    let mut sets = Sets::new(machine);
    machine.links.iter().filter(|l| near(l)).for_each(|l| sets.join(l.a, l.b));
    for group in known.iter().filter(|group| group.level.as_str() == PCIE) {
        let inside =
            |(a, b, _): &(u32, u32, LinkKind)| group.devices.contains(*a) && group.devices.contains(*b);
        fabric_links(machine)
            .filter(inside)
            .for_each(|(a, b, _)| sets.join(Port::Device(a), Port::Device(b)));
    }
    sets.devices()
}

/// Sets of one NUMA node. A device with an unknown NUMA node belongs to the devices that it reaches over PCIe without
/// crossing sockets. NVLink shows nothing about sockets.
fn sockets(machine: &Machine) -> Vec<DeviceMask> {
    let mut sets = Sets::new(machine);
    let numa = |port: Port| match port {
        Port::Device(i) => machine.devices.get(i as usize).and_then(|d| d.numa),
        Port::Nic(i) => machine.nics.get(i as usize).and_then(|n| n.numa),
    };
    for port in sets.ports.clone() {
        let same = sets.ports.iter().copied().find(|p| numa(*p).is_some() && numa(*p) == numa(port));
        if let Some(first) = same {
            sets.join(first, port);
        }
    }
    for link in &machine.links {
        let beside = !is_fabric(link.kind) && link.kind != LinkKind::Socket;
        if beside && (numa(link.a).is_none() || numa(link.b).is_none()) {
            sets.join(link.a, link.b);
        }
    }
    sets.devices()
}

/// Sets of ports that only ever grow together; small enough to keep a label per port.
struct Sets {
    ports: Vec<Port>,
    labels: Vec<usize>,
}

impl Sets {
    fn new(machine: &Machine) -> Self {
        let devices = (0..machine.device_count().min(64)).map(Port::Device);
        let nics = (0..u32::try_from(machine.nics.len()).unwrap_or(u32::MAX)).map(Port::Nic);
        let ports: Vec<Port> = devices.chain(nics).collect();
        Self { labels: (0..ports.len()).collect(), ports }
    }

    /// Devices come before NICs in the order of [`Port`], so `ports` is sorted.
    fn label(&self, port: Port) -> Option<usize> {
        let at = self.ports.binary_search(&port).ok()?;
        self.labels.get(at).copied()
    }

    fn join(&mut self, a: Port, b: Port) {
        if let (Some(a), Some(b)) = (self.label(a), self.label(b))
            && a != b
        {
            let (keep, gone) = (a.min(b), a.max(b));
            self.labels.iter_mut().filter(|l| **l == gone).for_each(|l| *l = keep);
        }
    }

    /// The devices of each set, ascending by first device; sets of NICs alone are left out.
    fn devices(&self) -> Vec<DeviceMask> {
        let mut found: Vec<(usize, DeviceMask)> = Vec::new();
        for (port, label) in self.ports.iter().zip(&self.labels) {
            let Port::Device(device) = port else { break };
            match found.iter_mut().find(|(l, _)| l == label) {
                Some((_, set)) => *set = set.union(DeviceMask::one(*device)),
                None => found.push((*label, DeviceMask::one(*device))),
            }
        }
        found.into_iter().map(|(_, set)| set).collect()
    }
}

/// `8x-nvlink18-1a2b3c4d`: how many devices, their best link, and a hash over what makes machines alike.
fn name(machine: &Machine) -> ShapeName {
    let mut hash = Fnv::new();
    hash.number(machine.devices.len() as u64);
    hash.number(machine.nics.len() as u64);
    for device in &machine.devices {
        hash.text(&device.model);
        hash.number(device.memory_bytes);
        hash.number(device.numa.map_or(u64::MAX, u64::from));
    }
    for nic in &machine.nics {
        hash.number(nic.bytes_per_s.unwrap_or(u64::MAX));
        hash.number(nic.numa.map_or(u64::MAX, u64::from));
    }
    for link in &machine.links {
        for port in [link.a, link.b] {
            let (kind, index) = match port {
                Port::Device(i) => (0, i),
                Port::Nic(i) => (1, i),
            };
            hash.number(kind << 32 | u64::from(index));
        }
        hash.number(code(link.kind));
    }
    hash_optional(machine, &mut hash);
    let text = match machine.devices.len() {
        0 => format!("cpu-{:08x}", hash.fold()),
        count => format!("{count}x-{}-{:08x}", best_link(machine), hash.fold()),
    };
    ShapeName::new(text).expect("digits, lower-case letters and '-' are a name")
}

/// Properties that only some sources give are part of the hash if they are given, so that a name from a source
/// without them stays.
fn hash_optional(machine: &Machine, hash: &mut Fnv) {
    for link in machine.links.iter().filter(|link| link.nominal_mb_per_s > 0) {
        hash.number(0x200 | u64::from(link.nominal_mb_per_s) << 32);
    }
    for (index, _) in (0_u64..).zip(&machine.devices).filter(|(_, device)| device.is_sliced) {
        hash.number(0x300 | index << 32);
    }
    for group in machine.groups.iter().filter(|group| group.uplink_mb_per_s > 0) {
        hash.number(group.devices.0);
        hash.number(0x400 | u64::from(group.uplink_mb_per_s) << 32);
    }
}

/// Never changes between versions: it is part of a name that others keep.
const fn code(kind: LinkKind) -> u64 {
    match kind {
        LinkKind::Nvlink(count) => 0x100 | count as u64,
        LinkKind::Xgmi => 1,
        LinkKind::PcieSwitch => 2,
        LinkKind::PcieBridges => 3,
        LinkKind::HostBridge => 4,
        LinkKind::Numa => 5,
        LinkKind::Socket => 6,
    }
}

fn best_link(machine: &Machine) -> String {
    let nvlinks = fabric_links(machine).filter_map(|(_, _, kind)| match kind {
        LinkKind::Nvlink(count) => Some(count),
        _ => None,
    });
    if let Some(most) = nvlinks.max() {
        return format!("nvlink{most}");
    }
    if fabric_links(machine).next().is_some() {
        return "xgmi".into();
    }
    // A source that lists devices and no links gives no PCIe topology either.
    if machine.devices.len() > 1 && machine.links.is_empty() { "unlinked".into() } else { "pcie".into() }
}

/// FNV-1a, 64 bit, folded to 32 by exclusive or (Fowler, Noll, Vo; draft-eastlake-fnv, sections 2 and 3).
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// With its length before it, so that two texts in a row cannot be cut elsewhere.
    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    const fn fold(&self) -> u64 {
        (self.0 >> 32) ^ (self.0 & 0xffff_ffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_switch_outlasts_the_links_that_hide_it() {
        let mut machine = Machine::bare(crate::Origin::Declared);
        machine.devices = vec![crate::Device::default(); 3];
        let link = |a, b, kind| Link::new(Port::Device(a), Port::Device(b), kind);
        machine.links = vec![link(0, 1, LinkKind::Nvlink(4)), link(1, 2, LinkKind::Socket)];
        let level = LevelName::new(PCIE).unwrap();
        let known = DeviceGroup { uplink_mb_per_s: 7, ..DeviceGroup::new(level, DeviceMask::first(2)) };
        machine.groups = vec![known.clone()];
        finish(&mut machine);
        assert!(machine.groups.contains(&known));
        // A link that contradicts it counts more.
        machine.links[0].kind = LinkKind::Socket;
        finish(&mut machine);
        assert!(!machine.groups.contains(&known));
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        // From the test vectors of draft-eastlake-fnv.
        for (text, hash) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            let mut fnv = Fnv::new();
            fnv.bytes(text.as_bytes());
            assert_eq!(fnv.0, hash, "{text}");
        }
    }
}
