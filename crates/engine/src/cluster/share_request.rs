//! What a member requests of one node: the class of a request in clusters of several models.

use phalanx_model::{Needs, PartNeed};

use super::kind::Kind;
use super::mix::Mix;
use super::space::Pick;
use super::tree::Tree;
use crate::share::{
    DEVICES_MAX, GEOMETRIES, Profile, Share, ShareRequest, SliceRequest, Trust, WHOLE_MILLI, Want,
};

/// In larger clusters the domains alone decide the placement: weighing the cost to others reads every state of a
/// node.
pub(crate) const NODES_MAX: usize = 2_048;

impl Mix<ShareRequest> {
    /// Adds the members of a pick to their class, or subtracts them. Only a mixed tree has classes.
    pub(crate) fn count_pick(&mut self, tree: &Tree, pick: &Pick, needs: &Needs, is_added: bool) {
        if !tree.is_mixed {
            return;
        }
        if let Some(request) = share_request_of(tree, needs, Trust::ANY) {
            self.forget_idle();
            self.count(request, pick.members, is_added);
        }
    }
}

/// What one member requests.
pub(crate) fn share_request_of(tree: &Tree, needs: &Needs, trust: Trust) -> Option<ShareRequest> {
    let want = match &needs.part {
        Some(PartNeed::Share { compute_milli, memory_bytes, .. }) => {
            Want::Share(Share { compute_milli: *compute_milli, memory_bytes: *memory_bytes })
        }
        // It is of another size on every hardware, and no class.
        Some(PartNeed::Replica) => return None,
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

/// What so many members with whole devices, or none, request of one node together.
pub(crate) fn members_request(tree: &Tree, needs: &Needs, members: u32) -> Option<ShareRequest> {
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
pub(crate) fn can_hold(kind: &Kind) -> bool {
    kind.all().count() as usize <= DEVICES_MAX
}
