//! The changes of devices that are necessary before the members of a gang can start on them.

use phalanx_model::{DevicePart, NodeName, Placement};

use crate::cluster::fractions::hardware_at;
use crate::cluster::space::Space;
use crate::cluster::tree::Tree;
use crate::share::Device;

/// The necessary state of a device before members start on it. All other instances may be destroyed: no gang of ours
/// uses them. To apply it twice is the same as once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape {
    pub node: NodeName,
    /// Index of the device.
    pub device: u32,
    /// Switch MIG mode on or off, if it is not known to be so already; nothing runs on the device then.
    pub mig: Option<bool>,
    /// Instances for members of this gang.
    pub create: Vec<Instance>,
    /// Instances that others use, which stay.
    pub keep: Vec<Instance>,
}

/// A MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// As NVIDIA's tools write it: `1g.10gb`.
    pub profile: String,
    /// The memory slice that it begins at.
    pub start: u8,
}

/// The necessary changes for a booked placement, in the order of nodes and devices. Devices that need no change are
/// left out.
pub(crate) fn reshapes(tree: &Tree, space: &Space, placement: &Placement) -> Vec<Reshape> {
    let mut all: Vec<Reshape> = Vec::new();
    for slot in &placement.slots {
        let Some(node) = tree.index_of(&slot.node) else { continue };
        for device in slot.devices.iter() {
            let is_sliced = tree.nodes[node].sliced.contains(device);
            let wants_slice = matches!(slot.part, Some(DevicePart::Slice { .. }));
            if !wants_slice && !is_sliced {
                continue;
            }
            let is_it = |known: &Reshape| known.node == slot.node && known.device == device;
            let at = all.iter().position(is_it).unwrap_or_else(|| {
                let mig = (is_sliced != wants_slice).then_some(wants_slice);
                let keep = in_use(tree, space, node, device);
                all.push(Reshape { node: slot.node.clone(), device, mig, create: Vec::new(), keep });
                all.len() - 1
            });
            if let Some(DevicePart::Slice { profile, start }) = &slot.part {
                let own = Instance { profile: profile.clone(), start: *start };
                all[at].keep.retain(|other| *other != own);
                all[at].create.push(own);
            }
        }
    }
    all.sort_by_key(|reshape| (tree.index_of(&reshape.node), reshape.device));
    all
}

/// The instances of a device that members have, by their start.
fn in_use(tree: &Tree, space: &Space, node: usize, device: u32) -> Vec<Instance> {
    let index = u8::try_from(device).unwrap_or(u8::MAX);
    let open = space.parts().on(node).iter().find(|open| open.index == index);
    let (Some(Device::Sliced(slices)), Some((_, hardware))) =
        (open.map(|open| open.device), hardware_at(tree, node, index))
    else {
        return Vec::new();
    };
    let name = |(profile, start): (u8, u8)| {
        let profile = hardware.geometry?.profile(profile)?.name.to_owned();
        Some(Instance { profile, start })
    };
    slices.in_use().filter_map(name).collect()
}
