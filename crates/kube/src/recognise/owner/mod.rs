//! Objects whose controllers create the pods of a gang: what they say without any annotation.

mod job;
mod jobset;
mod kubeflow;
mod lws;
mod ray;

use std::sync::Arc;

use kube::api::DynamicObject;
use serde::Deserialize;

use super::asks::{Asks, Signs, shown};
use super::key::{GangKey, ObjectRef, Refused, Source, controller};
use super::names::kueue::PODSET_GROUP;
use super::names::{jobset as jobset_names, kubeflow as kubeflow_names, lws as lws_names, ray as ray_names};
use super::spec::{GangSpec, MEMBERS_MAX, PodTemplate, Suspend};

pub(crate) use job::Completed;
pub(super) use kubeflow::kind_of as kubeflow_kind;
pub(super) use lws::{LEADER, WORKER};
pub(crate) use ray::has_ended as ray_job_has_ended;

/// The gangs of an owner; `None` where it is of a kind that owns no pods or says nothing of gangs.
pub(super) fn spec_of(object: &DynamicObject) -> Result<Option<Vec<GangSpec>>, Refused> {
    let owner = Owner::new(object);
    let reference = &owner.object;
    let specs = match (reference.group(), reference.kind.as_str()) {
        ("batch", "Job") => job::spec_of(&owner)?,
        (jobset_names::GROUP, "JobSet") => jobset::spec_of(&owner)?,
        (lws_names::GROUP, "LeaderWorkerSet") => lws::spec_of(&owner)?,
        (kubeflow_names::GROUP, kind) if kubeflow_kind(kind).is_some() => kubeflow::spec_of(&owner)?,
        (ray_names::GROUP, ray_names::CLUSTER) => ray::spec_of(&owner)?,
        (ray_names::GROUP, ray_names::JOB) => ray::spec_of_job(&owner)?,
        _ => return Ok(None),
    };
    Ok(Some(specs))
}

/// An owner while it is read.
struct Owner<'a> {
    object: ObjectRef,
    raw: &'a DynamicObject,
}

impl<'a> Owner<'a> {
    fn new(raw: &'a DynamicObject) -> Self {
        Self { object: ObjectRef::of(raw), raw }
    }

    fn key(&self, source: Source) -> GangKey {
        GangKey::new(source, &self.object.namespace, &self.object.name).of_uid(self.object.uid.as_deref())
    }

    /// Who controls it in turn.
    fn controller(&self) -> Option<ObjectRef> {
        controller(&self.raw.metadata)
    }

    /// Its `spec`.
    fn spec<T: Deserialize<'a>>(&self) -> Result<T, Refused> {
        read_spec(&self.object, self.raw)
    }

    fn asks(&self) -> Result<Asks, Refused> {
        self.signs().asks()
    }

    fn signs(&self) -> Signs<'_> {
        let metadata = &self.raw.metadata;
        Signs {
            object: &self.object,
            labels: metadata.labels.as_ref(),
            annotations: metadata.annotations.as_ref(),
        }
    }

    /// What a template of its pods asks for.
    fn asks_of(&self, template: Option<&Arc<PodTemplate>>) -> Result<Asks, Refused> {
        let Some(template) = template else { return Ok(Asks::default()) };
        let metadata = &template.metadata;
        let signs = Signs {
            object: &self.object,
            labels: Some(&metadata.labels),
            annotations: Some(&metadata.annotations),
        };
        let mut asks = signs.asks()?;
        asks.priority_class = asks.priority_class.or_else(|| template.spec.priority_class_name.clone());
        asks.time_limit_s = asks.time_limit_s.or(template.spec.active_deadline_seconds);
        Ok(asks)
    }

    /// A count of pods or copies in one of its fields.
    fn count(&self, field: &str, count: Option<i64>, default: u32) -> Result<u32, Refused> {
        let Some(count) = count else { return Ok(default) };
        u32::try_from(count).ok().filter(|n| *n <= MEMBERS_MAX).ok_or_else(|| {
            let problem = format!("is {count}");
            self.refused(field, problem, format!("write a whole number from 0 to {MEMBERS_MAX}"))
        })
    }

    /// Pods that start one by one cannot be divided into parts.
    fn refuse_segments(&self, spec: &GangSpec, remedy: &str) -> Result<(), Refused> {
        let template = spec.roles.first().and_then(|role| role.template.as_ref());
        let of_template = template.map(|template| Signs {
            object: &self.object,
            labels: Some(&template.metadata.labels),
            annotations: Some(&template.metadata.annotations),
        });
        self.signs().refuse_segments(&spec.topology, remedy)?;
        of_template.map_or(Ok(()), |signs| signs.refuse_segments(&spec.topology, remedy))
    }

    fn refused(&self, field: &str, problem: impl Into<String>, remedy: impl Into<String>) -> Refused {
        Refused::new(self.object.clone(), field, problem, remedy)
    }

    /// What suspends it: a controller that sets its field again goes first.
    fn suspend(&self, plural: &'static str, path: &'static [&'static str]) -> Suspend {
        self.controller().and_then(|above| suspend_of(&above)).unwrap_or_else(|| Suspend {
            object: self.object.clone(),
            plural,
            path,
        })
    }

    /// A gang's queue, priority and time from the owner and then from its templates, and each role's topology.
    ///
    /// The owner's topology is that of the gang. A role's own is lifted to the gang where it is the only one, or where
    /// all roles are to be together.
    fn fill(&self, spec: &mut GangSpec) -> Result<Asks, Refused> {
        let own = self.asks()?;
        let mut asks = own.clone();
        let mut together = Vec::with_capacity(spec.roles.len());
        for role in &mut spec.roles {
            let of_role = self.asks_of(role.template.as_ref())?;
            role.topology = std::mem::take(&mut role.topology).or(of_role.topology.clone());
            together.push(of_role.together.clone());
            asks = asks.or(of_role);
        }
        spec.topology = std::mem::take(&mut spec.topology).or(own.topology);
        let mut named: Vec<&String> = together.iter().flatten().collect();
        named.sort_unstable();
        let is_of_all = named.len() == together.len() && named.first() == named.last();
        if let Some(twice) = named.windows(2).find(|two| two[0] == two[1]).filter(|_| !is_of_all) {
            let problem = format!("is {:?} for some of several roles", shown(twice[0]));
            return Err(self.refused(PODSET_GROUP, problem, "write it on all of them, or on none"));
        }
        if together.len() > 1 && is_of_all {
            let first = spec.roles.iter().find(|role| role.topology.required.is_some());
            spec.topology.required =
                spec.topology.required.take().or_else(|| first?.topology.required.clone());
        }
        spec.lift_topology();
        asks.clone().apply(spec);
        Ok(asks)
    }
}

/// The `spec` of an object, in the shape that is looked for.
pub(super) fn read_spec<'a, T: Deserialize<'a>>(
    object: &ObjectRef,
    raw: &'a DynamicObject,
) -> Result<T, Refused> {
    let spec = raw.data.get("spec").ok_or_else(|| {
        Refused::new(object.clone(), "spec", "is missing", "give the object as the API server has it")
    })?;
    T::deserialize(spec).map_err(|error| {
        let problem = format!("cannot be read: {error}");
        Refused::new(object.clone(), "spec", problem, format!("write it as {} documents", object.api_version))
    })
}

const SUSPEND: &[&str] = &["spec", "suspend"];

/// Kinds that can be suspended, beside those of Kubeflow: group, kind, resource, field.
const SUSPENDABLE: [(&str, &str, &str, &[&str]); 5] = [
    ("batch", "Job", "jobs", SUSPEND),
    (jobset_names::GROUP, "JobSet", "jobsets", SUSPEND),
    (kubeflow_names::TRAINER_GROUP, "TrainJob", "trainjobs", SUSPEND),
    (ray_names::GROUP, ray_names::CLUSTER, "rayclusters", SUSPEND),
    (ray_names::GROUP, ray_names::JOB, "rayjobs", SUSPEND),
];

/// Everything that can be suspended: group and resource.
pub fn suspendable() -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_kubeflow = kubeflow::KINDS.iter().map(|kind| (kubeflow_names::GROUP, kind.plural));
    SUSPENDABLE.into_iter().map(|(group, _, plural, _)| (group, plural)).chain(of_kubeflow)
}

/// The field that suspends an object of a known kind.
pub fn suspend_of(object: &ObjectRef) -> Option<Suspend> {
    let known = (object.group(), object.kind.as_str());
    let (.., plural, path) =
        SUSPENDABLE.into_iter().find(|(group, kind, ..)| (*group, *kind) == known).or_else(|| {
            let kind = (known.0 == kubeflow_names::GROUP).then(|| kubeflow_kind(known.1)).flatten()?;
            Some((known.0, kind.kind, kind.plural, kubeflow::SUSPEND))
        })?;
    Some(Suspend { object: object.clone(), plural, path })
}

/// Whether objects of a kind can be suspended, and so matter to the gangs of what they own.
#[must_use]
pub fn is_owner_of_owners(group: &str, kind: &str) -> bool {
    let object = ObjectRef {
        api_version: format!("{group}/v1"),
        kind: kind.to_owned(),
        namespace: String::new(),
        name: String::new(),
        uid: None,
        any_version: true,
    };
    suspend_of(&object).is_some()
}

/// What the owner of an owner adds: the field that suspends both, and a queue, a priority and a limit of its own.
///
/// # Errors
/// When one of its labels or annotations cannot be read.
pub fn add_owner(spec: &mut GangSpec, above: &DynamicObject) -> Result<(), Refused> {
    let owner = Owner::new(above);
    if let Some(suspend) = suspend_of(&owner.object) {
        spec.is_suspended |= suspend.is_set_in(&above.data);
        spec.suspend = Some(suspend);
    }
    let asks = owner.asks()?;
    spec.queue = asks.queue.or(spec.queue.take());
    spec.priority_class = asks.priority_class.or(spec.priority_class.take());
    spec.time_limit_s = asks.time_limit_s.or(spec.time_limit_s);
    spec.checkpoint_grace_s = asks.checkpoint_grace_s.or(spec.checkpoint_grace_s);
    spec.topology = asks.topology.or(std::mem::take(&mut spec.topology));
    Ok(())
}

/// The owner above an object, where it says something of the object's gangs: see [`add_owner`].
#[must_use]
pub fn owner_wanted(object: &DynamicObject) -> Option<ObjectRef> {
    controller(&object.metadata).filter(|above| suspend_of(above).is_some())
}
