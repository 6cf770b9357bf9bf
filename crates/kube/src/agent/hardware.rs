//! The machine, looked at again and again. Devices keep the numbers that they had at the first look: bindings name them.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use phalanx_discover::{host, source};
use phalanx_model::{DeviceMask, Machine};
use phalanx_node::telemetry::Slots;

use crate::crd::NodeTopologySpec;
use crate::plugin::PluginDevice;

/// The largest description of one machine.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// A driver that hangs answers never.
const LOOK_WITHIN: Duration = Duration::from_secs(60);

/// Where the machine is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// This host, as its drivers tell.
    Host,
    /// A description of any kind that tells of one machine, such as the output of `nvidia-smi topo -m`.
    File(PathBuf),
}

/// One look.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) machine: Machine,
    /// In the order of the devices, or none.
    pub(super) uuids: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Hardware {
    pub(super) async fn seen(&self) -> Result<Seen, String> {
        let hardware = self.clone();
        let look = tokio::task::spawn_blocking(move || hardware.look());
        match tokio::time::timeout(LOOK_WITHIN, look).await {
            Ok(done) => done.map_err(|error| error.to_string())?,
            Err(_) => Err(format!("it does not answer within {LOOK_WITHIN:?}")),
        }
    }

    fn look(&self) -> Result<Seen, String> {
        let path = match self {
            Self::Host => {
                let host::Discovered { machine, uuids, notes, .. } = host::discover();
                return Ok(Seen { machine, uuids, notes });
            }
            Self::File(path) => path,
        };
        let failed = |why: String| format!("{}: {why}", path.display());
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        let mut bytes = Vec::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| failed(error.to_string()))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(failed(format!("it has more than {FILE_BYTES_MAX} bytes")));
        }
        let text = String::from_utf8_lossy(&bytes);
        let reading = source::read_machine(&text).map_err(|error| failed(error.to_string()))?;
        let notes = reading.gaps.iter().map(ToString::to_string).collect();
        Ok(Seen { machine: reading.machine, uuids: reading.uuids, notes })
    }
}

/// What the node has, by the numbers of the first look.
pub(super) struct Inventory {
    seen: Seen,
    lost: DeviceMask,
}

impl Inventory {
    pub(super) const fn new(seen: Seen) -> Self {
        Self { seen, lost: DeviceMask::EMPTY }
    }

    /// Goes on with the numbers that an earlier agent gave, as far as its devices are there.
    pub(super) fn resume(seen: Seen, before: Option<&NodeTopologySpec>) -> Self {
        let known = before.and_then(|spec| {
            let uuids = spec.devices.iter().map(|device| device.uuid.clone()).collect();
            Some(Seen { machine: spec.machine().ok()?, uuids, notes: seen.notes.clone() })
        });
        let Some(known) = known else { return Self::new(seen) };
        let (before, after) = (names(&known), names(&seen));
        if after.iter().any(|name| !before.contains(name)) {
            return Self::new(seen);
        }
        let mut inventory = Self::new(known);
        inventory.look_again(seen);
        inventory
    }

    /// What tells devices apart, by number.
    pub(super) fn names(&self) -> Vec<String> {
        names(&self.seen)
    }

    /// Where devices are.
    pub(super) fn slots(&self) -> Slots {
        let addresses = self.seen.machine.devices.iter().map(|device| device.pci_address.clone()).collect();
        Slots { addresses, absent: self.absent() }
    }

    /// The vendor's name of a device, or nothing.
    pub(super) fn uuid(&self, device: u32) -> String {
        self.seen.uuids.get(device as usize).cloned().unwrap_or_default()
    }

    pub(super) const fn machine(&self) -> &Machine {
        &self.seen.machine
    }

    pub(super) const fn lost(&self) -> DeviceMask {
        self.lost
    }

    /// Lost devices that count as evidence. If none of them answers, what is wrong is rather the driver, or what a container
    /// may use of it, than every device: then they are lost and not graded.
    pub(super) fn absent(&self) -> DeviceMask {
        let is_all = self.lost == self.machine().device_mask();
        if is_all { DeviceMask::EMPTY } else { self.lost }
    }

    pub(super) fn notes(&self) -> &[String] {
        &self.seen.notes
    }

    /// The vendor's names of all devices.
    pub(super) fn uuids(&self) -> Result<Vec<String>, String> {
        let devices = self.seen.machine.devices.len();
        let is_whole =
            self.seen.uuids.len() == devices && self.seen.uuids.iter().all(|uuid| !uuid.is_empty());
        if is_whole && devices > 0 {
            return Ok(self.seen.uuids.clone());
        }
        let known = self.seen.uuids.iter().filter(|uuid| !uuid.is_empty()).count();
        Err(format!(
            "the device plugin needs the UUIDs of all devices, and of {devices} those of {known} are known; \
             run it where NVIDIA's library answers, or without --device-plugin"
        ))
    }

    /// Takes another look; what changed, in words. A machine that has lost devices is kept as it was, with these marked.
    pub(super) fn look_again(&mut self, now: Seen) -> Vec<String> {
        let before = names(&self.seen);
        let after = names(&now);
        let absent = (0..).zip(&before).filter(|(_, name)| !after.contains(name));
        let lost: DeviceMask = absent.map(|(index, _)| index).collect();
        let mut news = Vec::new();
        if after.iter().any(|name| !before.contains(name)) {
            news.push("has new devices; start the agent anew to count them".to_owned());
        } else if lost.is_empty() && before == after {
            if self.seen.machine != now.machine {
                news.push("links or devices changed".to_owned());
            }
            self.seen = now;
        }
        if lost != self.lost {
            news.push(format!("devices={lost} do not answer"));
            self.lost = lost;
        }
        news
    }

    /// As the kubelet is told of them: those that are closed go to no new pod.
    pub(super) fn plugin_devices(&self, closed: DeviceMask) -> Vec<PluginDevice> {
        let closed = closed.union(self.lost);
        let devices = (0..).zip(&self.seen.machine.devices).zip(&self.seen.uuids);
        let told = devices.map(|((index, device), uuid)| PluginDevice {
            uuid: uuid.clone(),
            is_healthy: !closed.contains(index),
            numa: device.numa,
        });
        told.collect()
    }
}

/// What tells devices apart, by number: the best that each has.
fn names(seen: &Seen) -> Vec<String> {
    let devices = seen.machine.devices.iter().enumerate();
    let name = devices.map(|(at, device)| {
        let uuid = seen.uuids.get(at).filter(|uuid| !uuid.is_empty());
        uuid.or(device.pci_address.as_ref()).unwrap_or(&device.name).clone()
    });
    name.collect()
}

#[cfg(test)]
mod tests {
    use phalanx_model::{Device, Origin};

    use super::*;

    fn seen(uuids: &[&str]) -> Seen {
        let mut machine = Machine::bare(Origin::Found);
        let device = |at: usize| Device { name: format!("GPU{at}"), ..Device::default() };
        machine.devices = (0..uuids.len()).map(device).collect();
        Seen { machine, uuids: uuids.iter().map(ToString::to_string).collect(), notes: Vec::new() }
    }

    #[test]
    fn devices_keep_their_numbers_when_one_of_them_is_lost() {
        let mut inventory = Inventory::new(seen(&["a", "b", "c"]));
        assert_eq!(inventory.look_again(seen(&["a", "c"])), ["devices=1 do not answer"]);
        assert_eq!((inventory.lost(), inventory.machine().device_count()), (DeviceMask::one(1), 3));
        let healthy = |inventory: &Inventory, closed| -> Vec<bool> {
            inventory.plugin_devices(closed).iter().map(|device| device.is_healthy).collect()
        };
        assert_eq!(healthy(&inventory, DeviceMask::EMPTY), [true, false, true]);
        assert_eq!(healthy(&inventory, DeviceMask::one(2)), [true, false, false]);
        // The same again is no news; it comes back.
        assert!(inventory.look_again(seen(&["a", "c"])).is_empty());
        assert_eq!(inventory.look_again(seen(&["a", "b", "c"])), ["devices=- do not answer"]);
        assert!(inventory.lost().is_empty());
    }

    #[test]
    fn a_new_device_or_another_order_does_not_change_numbers() {
        let mut inventory = Inventory::new(seen(&["a", "b"]));
        assert!(inventory.look_again(seen(&["a", "b", "x"]))[0].contains("new devices"));
        inventory.look_again(seen(&["b", "a"]));
        assert_eq!(inventory.uuids().unwrap(), ["a", "b"]);
    }

    /// The devices behind the one that was gone were numbered anew, and pods that run held others than was known.
    #[test]
    fn an_agent_that_starts_anew_keeps_the_numbers_of_the_one_before() {
        let before = |uuids: &[&str]| {
            let seen = seen(uuids);
            let mut spec = NodeTopologySpec::of_machine(&seen.machine);
            for (device, uuid) in spec.devices.iter_mut().zip(seen.uuids) {
                device.uuid = uuid;
            }
            spec
        };
        let resume = |now: &[&str], then: &[&str]| Inventory::resume(seen(now), Some(&before(then)));
        let inventory = resume(&["a", "c"], &["a", "b", "c"]);
        assert_eq!((inventory.lost(), inventory.uuids().unwrap().len()), (DeviceMask::one(1), 3));
        // The driver does not answer in the container, as after a change of its runtime: no device is graded for it.
        let inventory = resume(&[], &["a", "b"]);
        assert_eq!((inventory.lost(), inventory.absent()), (DeviceMask::first(2), DeviceMask::EMPTY));
        assert_eq!(resume(&["b", "a"], &["a", "b"]).uuids().unwrap(), ["a", "b"]);
        // Another device came: the machine is as it is now.
        let inventory = resume(&["a", "x"], &["a", "b", "c"]);
        assert_eq!(
            (inventory.lost(), inventory.uuids().unwrap()),
            (DeviceMask::EMPTY, vec!["a".to_owned(), "x".to_owned()])
        );
    }

    #[test]
    fn devices_without_names_cannot_be_handed_out() {
        let why = Inventory::new(Seen { uuids: Vec::new(), ..seen(&["a", "b"]) }).uuids().unwrap_err();
        assert!(why.contains("of 2 those of 0 are known"), "{why}");
        assert!(Inventory::new(seen(&["a", ""])).uuids().is_err());
    }
}
