//! A machine that is graded again after a restart: what was kept, and what the restart shows.

use phalanx_model::{DeviceMask, NodeName, Timestamp, Vitals};
use serde::{Deserialize, Serialize};

use crate::{Evidence, Grader, State};

/// What is kept over a restart, beside what the machine was then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// Another boot than the last one: devices were reset meanwhile.
    pub boot_id: Option<String>,
    /// By device: another device may be in a slot after a repair. Empty: unknown.
    pub uuids: Vec<String>,
    pub state: State,
}

/// A machine as a start finds it.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    pub node: &'a NodeName,
    pub boot_id: Option<&'a str>,
    /// By device.
    pub uuids: &'a [String],
    /// Devices that do not answer.
    pub absent: DeviceMask,
}

impl Grader {
    /// Takes what a start shows: a reboot, other devices in the slots, devices that do not answer. `last`: the boot and
    /// the devices of what was kept. Returns the devices that others replaced.
    pub fn started(
        &mut self,
        now: Timestamp,
        machine: &Machine<'_>,
        last: Option<(Option<&str>, &[String])>,
    ) -> Vec<u32> {
        let Machine { node, boot_id, uuids, absent } = machine;
        let (last_boot, last_uuids) = last.unwrap_or((*boot_id, &[]));
        if last_boot != *boot_id {
            self.rebooted(now, node);
        }
        let pairs = (0_u32..).zip(uuids.iter().zip(last_uuids));
        let other = pairs.filter(|(_, (uuid, last))| !uuid.is_empty() && !last.is_empty() && uuid != last);
        let other: Vec<u32> = other.map(|(index, _)| index).collect();
        for index in &other {
            // What was never graded needs no clearing.
            let _ = self.clear(now, node, Some(*index), "another device");
        }
        for index in absent.iter() {
            self.is_absent(now, node, index);
        }
        other
    }

    /// Discovery found that a device does not answer: no second sample is needed, and no gang may start there meanwhile.
    pub fn is_absent(&mut self, now: Timestamp, node: &NodeName, device: u32) {
        for sample in 0..u64::from(self.policy().lost_samples) {
            let lost = Box::new(Vitals { is_lost: true, ..Vitals::default() });
            self.observe(now.plus(sample), node, Some(device), &[], Evidence::Vitals(lost));
        }
    }
}
