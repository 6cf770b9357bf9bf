//! The `PodGroup` of the coscheduling plugin, and Koordinator's copy of it.

use serde::Deserialize;

use super::Group;
use crate::recognise::key::{Refused, Source};
use crate::recognise::spec::GangSpec;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodGroupSpec {
    min_member: Option<i64>,
}

pub(super) fn spec_of(group: &Group<'_>) -> Result<Vec<GangSpec>, Refused> {
    let pod_group: PodGroupSpec = group.spec()?;
    let min = group.count("spec.minMember", pod_group.min_member)?;
    Ok(vec![group.at_least(group.key(Source::Coscheduling), min)?])
}
