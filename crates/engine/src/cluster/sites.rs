//! The tori of a cluster, and the position of each node in them.

use phalanx_model::{DeviceMask, Levels, Node, Torus};

use crate::torus::{Form, host_of, volume};

/// The position has no node.
const NO_NODE: u32 = u32::MAX;

/// A torus in which slices are placed, and its nodes.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) torus: Torus,
    pub(crate) form: Form,
    /// Chips of a host along x, y, z.
    pub(crate) host: [u16; 3],
    /// Nodes and the positions of their first chips, in the order of the tree.
    pub(crate) nodes: Vec<(u32, [u16; 3])>,
    /// The position of the chip of each device in its host: x runs fastest, then y.
    offsets: Vec<[u16; 3]>,
    /// Nodes by the position of their hosts, the last side running fastest.
    owners: Vec<u32>,
}

impl Site {
    /// The tori in which slices can be placed. A node is part of a torus if it has one device for each chip of a
    /// host, and its position is that of a host. If two nodes have one position, the first node counts.
    pub(crate) fn all(levels: &Levels, nodes: &[&Node]) -> Vec<Self> {
        let site = |torus: &Torus| {
            let (form, host) = (Form::of(torus).ok()?, host_of(torus));
            let hosts = volume([0, 1, 2].map(|axis| torus.chips[axis] / host[axis]));
            let owners = vec![NO_NODE; usize::try_from(hosts).ok()?];
            let [x, y, z] = host;
            let offsets =
                (0..z).flat_map(|z| (0..y).flat_map(move |y| (0..x).map(move |x| [x, y, z]))).collect();
            Some(Self { torus: torus.clone(), form, host, nodes: Vec::new(), offsets, owners })
        };
        let mut sites: Vec<Option<Self>> = levels.tori.iter().map(site).collect();
        for (index, node) in (0..).zip(nodes) {
            let Some(place) = node.torus else { continue };
            let site = usize::try_from(place.torus).ok().and_then(|at| sites.get_mut(at)?.as_mut());
            if let Some(site) =
                site.filter(|site| volume(site.host) == u64::from(node.machine.device_count()))
            {
                site.add(index, place.at);
            }
        }
        sites.into_iter().flatten().collect()
    }

    fn add(&mut self, node: u32, at: [u16; 3]) {
        let stands = at.iter().zip(self.host).zip(self.torus.chips);
        let is_host = stands.clone().all(|((at, host), side)| *at < side && at.is_multiple_of(host));
        let Some(owner) = is_host.then(|| self.host_at(at)).and_then(|host| self.owners.get_mut(host)) else {
            return;
        };
        if *owner == NO_NODE {
            *owner = node;
            self.nodes.push((node, at));
        }
    }

    /// Index of the host that has a chip.
    fn host_at(&self, at: [u16; 3]) -> usize {
        let side = |axis: usize| usize::from(self.torus.chips[axis] / self.host[axis]);
        let [x, y, z] = [0, 1, 2].map(|axis| usize::from(at[axis] / self.host[axis]));
        (x * side(1) + y) * side(2) + z
    }

    /// The chips of a node that are these devices.
    pub(crate) fn chips(&self, first: [u16; 3], devices: DeviceMask) -> impl Iterator<Item = [u16; 3]> {
        devices.iter().filter_map(move |device| {
            let by = self.offsets.get(device as usize)?;
            Some([0, 1, 2].map(|axis| first[axis] + by[axis]))
        })
    }

    /// The node that has a box of chips inside of one host, and which of its devices they are.
    pub(crate) fn devices(&self, corner: [u16; 3], block: [u16; 3]) -> Option<(u32, DeviceMask)> {
        let node = self.owners.get(self.host_at(corner)).copied().filter(|node| *node != NO_NODE)?;
        let [width, depth, _] = self.host.map(u32::from);
        let along = |axis: usize| {
            let first = u32::from(corner[axis] % self.host[axis]);
            first..first + u32::from(block[axis])
        };
        let mut devices = DeviceMask::EMPTY;
        for (z, y) in along(2).flat_map(|z| along(1).map(move |y| (z, y))) {
            for x in along(0) {
                devices = devices.union(DeviceMask::one((z * depth + y) * width + x));
            }
        }
        Some((node, devices))
    }
}
