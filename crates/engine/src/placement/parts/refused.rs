//! Requests for parts that no device could ever satisfy, whatever is free.

use phalanx_model::{Gang, Needs, PartNeed};

use crate::cluster::fractions::hardware::{board_names, profiles};
use crate::cluster::tree::Tree;
use crate::share::WHOLE_MILLI;

/// Why a gang with parts of devices is rejected at submission: the field, and the accepted values.
pub(crate) fn refused(tree: &Tree, gang: &Gang) -> Option<(&'static str, String)> {
    let all = std::iter::once(&gang.needs).chain(gang.roles.iter().map(|role| &role.needs));
    let of_needs = all.filter_map(|needs| refused_part(tree, needs)).next();
    let segments = &gang.topology.segments;
    let narrow = segments.iter().find(|segment| gang.needs.part.is_some() && segment.size < gang.size);
    let of_gang = narrow.map(|segment| {
        let why = format!(
            "{} members inside one {} would have parts of devices, and segments need whole devices",
            segment.size, segment.level
        );
        ("segments", why)
    });
    of_needs.or(of_gang).or_else(|| {
        let is_slice = gang.needs.part.is_some() && gang.topology.slice.is_some();
        is_slice
            .then(|| ("slice", "a slice of a torus needs whole chips, and the members have parts".to_owned()))
    })
}

fn refused_part(tree: &Tree, needs: &Needs) -> Option<(&'static str, String)> {
    let part = needs.part.as_ref()?;
    if needs.devices > 0 {
        let why = format!(
            "a member has whole devices or a part of one device, and this member has {} devices and a part",
            needs.devices
        );
        return Some(("devices", why));
    }
    let (compute_milli, memory_bytes) = match part {
        PartNeed::Share { compute_milli, memory_bytes, .. }
        | PartNeed::Slice { compute_milli, memory_bytes } => (*compute_milli, *memory_bytes),
        PartNeed::Profile(name) => return refused_profile(tree, name),
        PartNeed::Replica => return None,
    };
    if compute_milli == 0 && memory_bytes == 0 {
        return Some(("part", "the part is empty: give compute, memory or both".to_owned()));
    }
    (compute_milli > WHOLE_MILLI).then(|| {
        let why =
            format!("a part has at most {WHOLE_MILLI} thousandths of the compute of a device, and this part has {compute_milli}");
        ("part", why)
    })
}

/// A name that no board knows. One that only boards elsewhere know may yet come, and is then measured like any size.
fn refused_profile(tree: &Tree, name: &str) -> Option<(&'static str, String)> {
    let here = profiles(tree.kinds.iter().flat_map(|kind| &kind.hardware).map(|(hardware, _)| hardware));
    if here.contains(&name) || board_names(name).next().is_some() {
        return None;
    }
    let known = if here.is_empty() {
        "no device of this cluster supports MIG".to_owned()
    } else {
        format!("the devices of this cluster support {}", here.join(", "))
    };
    Some(("part", format!("{name} is not a known MIG profile; {known}")))
}
