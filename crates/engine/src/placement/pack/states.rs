//! Node states: nodes with an equal state share its counts.

use std::collections::BTreeMap;

use crate::cluster::mix::Class;
use crate::share::{Device, Kind, NodeState, ShareRequest};

/// Device rows that are kept; beyond that all are forgotten and counted again.
const ROWS_MAX: usize = 8_192;

/// One state, its nodes, and the requests that fit there. The vectors of a state without nodes are kept for reuse.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub key: NodeState,
    /// Node indices, ascending.
    pub members: Vec<u32>,
    /// CPU per free device, which decides between equal costs.
    pub plenty: i64,
    /// By class: requests that the devices could hold (see [`crate::share::ShareRequest::room_on`]), summed over devices.
    pub room: Vec<u16>,
    /// By class: requests that fit.
    pub fits: Vec<u16>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct States {
    pub slots: Vec<State>,
    /// Slots with members, by key.
    pub live: Vec<u32>,
    free: Vec<u32>,
    /// By kind and device state: how many requests of each class it could hold.
    row_of: BTreeMap<(u16, Device), u32>,
    rows: Vec<Vec<u16>>,
}

fn small(count: u32) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

impl States {
    pub(super) fn state(&self, slot: u32) -> Option<&State> {
        self.slots.get(slot as usize)
    }

    /// The slot of a state; a new one is counted for all classes.
    pub(super) fn intern(&mut self, key: NodeState, kind: &Kind, classes: &[Class<ShareRequest>]) -> u32 {
        let at = self.live.binary_search_by(|slot| self.state(*slot).map(|state| state.key).cmp(&Some(key)));
        let at = match at {
            Ok(at) => return self.live.get(at).copied().unwrap_or(0),
            Err(at) => at,
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            let (members, room, fits) = (Vec::new(), Vec::new(), Vec::new());
            self.slots.push(State { key, members, plenty: 0, room, fits });
            u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
        });
        self.live.insert(at, slot);
        let free_milli = i64::try_from(key.free_milli(kind)).unwrap_or(i64::MAX);
        if let Some(state) = self.slots.get_mut(slot as usize) {
            state.key = key;
            state.plenty = key.cpu_milli.saturating_mul(1_000) / free_milli.saturating_add(1);
            state.room.clear();
            state.fits.clear();
        }
        self.count(slot, kind, classes);
        slot
    }

    /// Counts the classes that a state does not know yet.
    pub(super) fn count(&mut self, slot: u32, kind: &Kind, classes: &[Class<ShareRequest>]) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        for class in classes.iter().skip(state.fits.len()) {
            let admits = class.request.admits(kind);
            let devices = state.key.devices().iter().filter(|_| admits);
            let rooms = devices.map(|device| class.request.room_on(kind, device));
            let room = rooms.fold(0, u32::saturating_add);
            let fits = class.request.fitting(room, state.key.cpu_milli, state.key.memory_bytes);
            state.room.push(small(room));
            state.fits.push(if admits { small(fits) } else { 0 });
        }
    }

    pub(super) fn enter(&mut self, slot: u32, node: u32) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        if let Err(at) = state.members.binary_search(&node) {
            state.members.insert(at, node);
        }
    }

    pub(super) fn leave(&mut self, slot: u32, node: u32) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        if let Ok(at) = state.members.binary_search(&node) {
            state.members.remove(at);
        }
        if state.members.is_empty() {
            let key = state.key;
            let at =
                self.live.binary_search_by(|other| self.state(*other).map(|state| state.key).cmp(&Some(key)));
            if let Ok(at) = at {
                self.live.remove(at);
                self.free.push(slot);
            }
        }
    }

    /// The row of a device state, counted for all classes.
    pub(super) fn row(
        &mut self,
        kind_index: u16,
        kind: &Kind,
        device: Device,
        classes: &[Class<ShareRequest>],
    ) -> u32 {
        let next = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        let row = *self.row_of.entry((kind_index, device)).or_insert(next);
        if row == next {
            self.rows.push(Vec::new());
        }
        if let Some(counts) = self.rows.get_mut(row as usize) {
            let missing = classes.iter().skip(counts.len());
            counts.extend(missing.map(|class| small(class.request.room_on(kind, &device))));
        }
        row
    }

    pub(super) fn counts(&self, row: u32) -> &[u16] {
        self.rows.get(row as usize).map_or(&[], Vec::as_slice)
    }

    /// Forgets all rows when there are many. Row numbers do not outlive this call.
    pub(super) fn bound_rows(&mut self) {
        if self.rows.len() > ROWS_MAX {
            self.forget_rows();
        }
    }

    fn forget_rows(&mut self) {
        self.row_of.clear();
        self.rows.clear();
    }
}
