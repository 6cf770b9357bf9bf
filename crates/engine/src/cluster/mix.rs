//! The classes of requests that run.

use std::collections::BTreeMap;

use phalanx_model::{Needs, PartNeed};

use crate::cluster::space::Pick;
use crate::cluster::tree::Tree;
use crate::share::{GEOMETRIES, Profile, Share, ShareRequest, SliceRequest, Trust, WHOLE_MILLI, Want};

/// A class of requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Class {
    pub(crate) request: ShareRequest,
    /// Members of it that run.
    pub(crate) running: u32,
}

/// In larger clusters the place is chosen by domains alone: what it costs others is weighed for every state of a node.
pub(crate) const NODES_MAX: usize = 2_048;
/// Classes that nobody has any more are forgotten when there are so many more of them than others.
const IDLE_MAX: usize = 128;

/// How many members of each class run. Kept only where a cluster's devices are not all alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mix {
    classes: Vec<Class>,
    /// Indices of `classes`.
    known: BTreeMap<ShareRequest, u16>,
    idle: usize,
}

impl Mix {
    pub(crate) fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Counts the members of a pick, or takes them off.
    pub(crate) fn count(&mut self, tree: &Tree, pick: &Pick, needs: &Needs, is_added: bool) {
        let Some(request) = share_request_of(tree, needs, Trust::ANY) else { return };
        if self.idle > IDLE_MAX.max(self.classes.len() / 2) {
            self.forget();
        }
        let next = u16::try_from(self.classes.len()).unwrap_or(u16::MAX);
        let at = usize::from(*self.known.entry(request).or_insert(next));
        if at == self.classes.len() {
            self.classes.push(Class { request, running: 0 });
            self.idle += 1;
        }
        let Some(Class { running, .. }) = self.classes.get_mut(at) else { return };
        let before = *running;
        *running =
            if is_added { before.saturating_add(pick.members) } else { before.saturating_sub(pick.members) };
        self.idle -= usize::from(before == 0 && *running > 0);
        self.idle += usize::from(before > 0 && *running == 0);
    }

    fn forget(&mut self) {
        self.classes.retain(|class| class.running > 0);
        self.known = (0..).zip(&self.classes).map(|(at, class)| (class.request, at)).collect();
        self.idle = 0;
    }
}

/// What one member asks.
pub(crate) fn share_request_of(tree: &Tree, needs: &Needs, trust: Trust) -> Option<ShareRequest> {
    let want = match &needs.part {
        Some(PartNeed::Share { compute_milli, memory_bytes, .. }) => {
            Want::Share(Share { compute_milli: *compute_milli, memory_bytes: *memory_bytes })
        }
        Some(PartNeed::Slice { compute_milli, memory_bytes }) => {
            // Boards of seven compute slices are the rule; the measure alone rests on it.
            let slices = (u64::from(*compute_milli) * 7).div_ceil(u64::from(WHOLE_MILLI));
            let compute_slices = u8::try_from(slices).ok()?;
            Want::Slice(SliceRequest { compute_slices, memory_bytes: *memory_bytes, media: false })
        }
        Some(PartNeed::Profile(name)) => {
            let profiles = GEOMETRIES.into_iter().flat_map(|board| board.profiles);
            let Profile { compute_slices, memory_mib, has_media, .. } =
                profiles.into_iter().find(|profile| profile.name == *name).copied()?;
            let memory_bytes = u64::from(memory_mib) << 20;
            Want::Slice(SliceRequest { compute_slices, memory_bytes, media: has_media })
        }
        None if needs.devices == 0 => Want::Nothing,
        None => Want::Whole(u8::try_from(needs.devices).ok()?),
    };
    let fitting = tree.kinds.iter().filter(|kind| !kind.eligible(needs).is_empty());
    let models = if needs.models.is_empty() {
        u64::MAX
    } else {
        fitting.fold(0, |models, kind| models | 1 << (kind.model_bit & 63))
    };
    Some(ShareRequest { want, cpu_milli: needs.cpu_milli, memory_bytes: needs.memory_bytes, models, trust })
}

/// What so many members with whole devices, or none, ask of one node together.
pub(crate) fn members_ask(tree: &Tree, needs: &Needs, members: u32) -> Option<ShareRequest> {
    let one = share_request_of(tree, needs, Trust::ANY)?;
    let want = match one.want {
        Want::Nothing => Want::Nothing,
        Want::Whole(devices) => Want::Whole(u8::try_from(members.checked_mul(u32::from(devices))?).ok()?),
        Want::Share(_) | Want::Slice(_) => return None,
    };
    let all = |each: u64| each.saturating_mul(u64::from(members));
    Some(ShareRequest { want, cpu_milli: all(one.cpu_milli), memory_bytes: all(one.memory_bytes), ..one })
}

/// Whether the state of such a node can be noted.
pub(crate) fn can_hold(kind: &super::kind::Kind) -> bool {
    kind.all().count() as usize <= crate::share::DEVICES_MAX
}
