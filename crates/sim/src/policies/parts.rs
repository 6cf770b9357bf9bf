//! Where the policies of other systems put shares of devices.
//!
//! Those that pack take the device with the least left that is enough, and open a whole one only where none is: on the node
//! that is fullest. Those that spread take whole ones first. First fit takes devices in the order of the nodes.

use std::cmp::Reverse;

use phalanx_model::DeviceMask;

use super::Packing;
use crate::replay::{Free, Part, Place, WHOLE_MILLI};

/// A device that some shares fit on.
#[derive(Clone, Copy, Debug)]
struct Device {
    node: usize,
    device: u32,
    left_milli: u32,
}

/// Places for so many shares of `milli` thousandths on these nodes, in their order.
pub(super) fn find(packing: Packing, free: &Free, nodes: &[usize], shares: u32, milli: u32) -> Option<Place> {
    let milli = milli.clamp(1, WHOLE_MILLI);
    let mut devices = devices(packing, free, nodes, shares, milli);
    let mut taken = vec![0; devices.len()];
    let mut left = shares;
    while left > 0 {
        let before = left;
        for (device, taken) in devices.iter_mut().zip(&mut taken) {
            let fit = device.left_milli / milli;
            // Whoever spreads puts one on each before it puts a second on any.
            let here = left.min(if is_spread(packing) { fit.min(1) } else { fit });
            *taken += here;
            device.left_milli -= here * milli;
            left -= here;
        }
        if left == before {
            return None;
        }
    }
    let parts = devices.iter().zip(&taken).filter(|(_, taken)| **taken > 0);
    Some(place(parts.map(|(device, taken)| (device.node, device.device, taken * milli))))
}

/// Thousandths of devices, each device once, as a place: equal ones of a node are one part.
pub(super) fn place(devices: impl Iterator<Item = (usize, u32, u32)>) -> Place {
    let mut place = Place::new();
    for (node, device, milli) in devices {
        let one = DeviceMask::one(device);
        match place.iter_mut().find(|part| part.node == node && part.milli == milli) {
            Some(part) => part.devices = part.devices.union(one),
            None => place.push(Part { node, devices: one, milli }),
        }
    }
    place
}

const fn is_spread(packing: Packing) -> bool {
    matches!(packing, Packing::Spread | Packing::Emptiest)
}

/// Devices that shares fit on, in the order in which they are taken, as many as are needed at most.
fn devices(packing: Packing, free: &Free, nodes: &[usize], shares: u32, milli: u32) -> Vec<Device> {
    let is_wanted = {
        let mut sorted = nodes.to_vec();
        sorted.sort_unstable();
        move |node: usize| sorted.binary_search(&node).is_ok()
    };
    let rests = free.rests().filter(|(node, _, left)| *left >= milli && is_wanted(*node));
    let mut begun: Vec<Device> =
        rests.map(|(node, device, left_milli)| Device { node, device, left_milli }).collect();
    let free_on = |node: usize| free.whole().get(node).map_or(0, |free| free.count());
    let whole = |nodes: Vec<usize>| -> Vec<Device> {
        let of = |node: usize| {
            let devices = free.whole().get(node).copied().unwrap_or_default();
            devices.iter().map(move |device| Device { node, device, left_milli: WHOLE_MILLI })
        };
        nodes.into_iter().flat_map(of).take(shares as usize).collect()
    };
    match packing {
        Packing::Spread | Packing::Emptiest => {
            let mut nodes = nodes.to_vec();
            nodes.sort_by_key(|node| (Reverse(free_on(*node)), *node));
            begun.sort_by_key(|of| (Reverse(of.left_milli), of.node, of.device));
            [whole(nodes), begun].concat()
        }
        Packing::FirstFit | Packing::WholeFirst | Packing::Random => {
            let mut all = [begun, whole(nodes.to_vec())].concat();
            let mut at = vec![usize::MAX; free.whole().len()];
            nodes.iter().enumerate().for_each(|(order, node)| at[*node] = order);
            all.sort_by_key(|of| (at[of.node], of.device));
            all
        }
        Packing::Consolidated
        | Packing::Kueue
        | Packing::SlurmTree
        | Packing::SlurmBlock
        | Packing::Topology => {
            let mut nodes = nodes.to_vec();
            nodes.sort_by_key(|node| (free_on(*node), *node));
            begun.sort_by_key(|of| (of.left_milli, of.node, of.device));
            [begun, whole(nodes)].concat()
        }
    }
}
