//! The circuit breaker: automation closes a share of the devices at most. More at once is rather an error of a driver, of
//! the network or of a rule than so many bad devices.

use phalanx_model::NodeName;

use crate::Policy;
use crate::state::State;

/// How many devices automation closes, and how many it may close. A node without devices counts as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) closed: u64,
    pub(crate) limit: u64,
    pub(crate) all: u64,
}

impl Room {
    /// Automation may close nothing more.
    pub(crate) fn is_full(self) -> bool {
        self.closed >= self.limit
    }
}

/// What automation closes now. What people close, and what is lost in fact, takes no room from it.
pub(crate) fn room(state: &State, policy: &Policy) -> Room {
    room_with(state, policy, None)
}

/// Whether automation may close a device, or a node.
pub(crate) fn has_room(state: &State, policy: &Policy, node: &NodeName, device: Option<u32>) -> bool {
    let with = room_with(state, policy, Some((node, device)));
    with.closed <= with.limit
}

/// Counts as if a device or a node were closed, too.
fn room_with(state: &State, policy: &Policy, also: Option<(&NodeName, Option<u32>)>) -> Room {
    let (mut closed, mut all) = (0, 0);
    for (name, node) in &state.nodes {
        let also = also.filter(|(of, _)| *of == name).map(|(_, device)| device);
        let weight = node.weight();
        all += weight;
        if node.node.is_admitted || also == Some(None) {
            closed += weight;
        } else {
            let is_closed = |index: u32, is: bool| is || also == Some(Some(index));
            let devices = (0_u32..).zip(&node.devices);
            let devices = devices.filter(|(index, of)| is_closed(*index, of.is_admitted));
            closed += devices.count() as u64;
        }
    }
    Room { closed, limit: limit(all, policy), all }
}

/// How many of all devices automation may close.
pub(crate) fn limit(all: u64, policy: &Policy) -> u64 {
    let share = all.saturating_mul(u64::from(policy.max_share_percent)) / 100;
    let is_off = policy.max_share_percent == 0 && policy.small_devices == 0;
    share.max(u64::from(policy.small_devices).min(all / 2)).max(u64::from(!is_off))
}
