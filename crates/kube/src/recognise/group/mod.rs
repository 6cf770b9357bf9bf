//! Objects that say that pods are a group, and own none of them.

mod coscheduling;
mod kai;
mod upstream;
mod volcano;

use kube::api::DynamicObject;

pub use volcano::volcano_job;

use super::asks::Signs;
use super::key::{GangKey, ObjectRef, Refused, Source};
use super::names::{self, SCHEDULING};
use super::owner::read_spec;
use super::spec::{GangSpec, MEMBERS_MAX, RoleSpec};

/// The gangs of a group object; `None` where it is of another kind.
pub(super) fn spec_of(object: &DynamicObject) -> Result<Option<Vec<GangSpec>>, Refused> {
    let group = Group { object: ObjectRef::of(object), raw: object };
    let specs = match (group.object.group(), group.object.kind.as_str()) {
        (SCHEDULING, "PodGroup") => upstream::pod_group(&group)?,
        (SCHEDULING, "Workload") => upstream::workload(&group)?,
        (names::volcano::GROUP, "PodGroup") => volcano::spec_of(&group)?,
        (names::kai::GROUP, "PodGroup") => kai::spec_of(&group)?,
        (api, "PodGroup") if names::coscheduling::GROUPS.contains(&api) => coscheduling::spec_of(&group)?,
        _ => return Ok(None),
    };
    Ok(Some(specs))
}

/// A group object while it is read.
struct Group<'a> {
    object: ObjectRef,
    raw: &'a DynamicObject,
}

impl<'a> Group<'a> {
    fn key(&self, source: Source) -> GangKey {
        GangKey::new(source, &self.object.namespace, &self.object.name)
    }

    fn spec<T: serde::Deserialize<'a>>(&self) -> Result<T, Refused> {
        read_spec(&self.object, self.raw)
    }

    fn count(&self, field: &str, count: Option<i64>) -> Result<u32, Refused> {
        let count = count.unwrap_or(1);
        u32::try_from(count).ok().filter(|n| *n <= MEMBERS_MAX).ok_or_else(|| {
            let problem = format!("is {count}");
            self.refused(field, problem, format!("write a whole number from 0 to {MEMBERS_MAX}"))
        })
    }

    fn refused(&self, field: &str, problem: impl Into<String>, remedy: impl Into<String>) -> Refused {
        Refused::new(self.object.clone(), field, problem, remedy)
    }

    /// A gang of at least so many pods, and whatever its labels and annotations add.
    fn at_least(&self, key: GangKey, min: u32) -> Result<GangSpec, Refused> {
        // A group of none asks for nothing to start together.
        let mut spec =
            GangSpec::new(key, Some(self.object.clone()), vec![RoleSpec::new("", min.max(1), None)]);
        spec.is_open = true;
        spec.is_lone = min == 0;
        let metadata = &self.raw.metadata;
        let signs = Signs {
            object: &self.object,
            labels: metadata.labels.as_ref(),
            annotations: metadata.annotations.as_ref(),
        };
        let asks = signs.asks()?;
        spec.topology = asks.topology.clone();
        if spec.is_lone {
            signs.refuse_segments(&spec.topology, "give the group a minimum of members")?;
        }
        asks.apply(&mut spec);
        Ok(spec)
    }
}
