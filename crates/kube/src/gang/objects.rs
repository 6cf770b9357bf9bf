//! Owners of pods, owners of those, and groups: what they say of gangs.

use std::collections::BTreeSet;

use kube::api::DynamicObject;
use phalanx_model::Timestamp;

use super::lifecycle::suspension::Overruled;
use super::report::volcano::Unadmitted;
use super::state::Gang;
use super::{Lifecycle, SUSPENDED};
use crate::api;
use crate::recognise::{self as recognise, Completed, GangKey, GangSpec, ObjectRef, Source, Suspend};

/// The condition of a group from Kubernetes 1.37 on.
pub(crate) const INITIALLY_SCHEDULED: &str = "PodGroupInitiallyScheduled";

/// The condition of a group, and of a pod, that is preempted or evicted.
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// What an object says of its gangs.
pub(in crate::gang) struct Told {
    pub(in crate::gang) specs: Result<Vec<GangSpec>, recognise::Refused>,
    /// Its own owner, where that one can be suspended.
    pub(in crate::gang) above: Option<Owner>,
    /// It was suspended so that we start it.
    pub(in crate::gang) is_resumable: bool,
    /// It makes no pods any more.
    pub(in crate::gang) is_over: bool,
    /// Members of the gang of it, or of its owner, that have done what they had to.
    pub(in crate::gang) completed: Option<Completed>,
    /// It is Volcano's, and its pods are made only once we say so.
    pub(in crate::gang) unadmitted: Option<Unadmitted>,
    /// It says for good that all of it was scheduled once.
    pub(in crate::gang) was_scheduled: bool,
    /// It says that it was preempted.
    pub(in crate::gang) is_disrupted: bool,
    uid: Option<Box<str>>,
}

/// Kind, namespace and name.
pub(in crate::gang) type Owner = (String, String, String);

/// What an owner says that can be suspended.
#[derive(Default)]
pub(in crate::gang) struct Above {
    pub(in crate::gang) object: Option<DynamicObject>,
    /// The field that suspends it with what it owns; nothing while it is not there.
    pub(in crate::gang) suspend: Option<Suspend>,
    pub(in crate::gang) is_suspended: bool,
    pub(in crate::gang) is_resumable: bool,
    pub(in crate::gang) overruled: Option<Overruled>,
    /// Objects that it owns, as gangs without a part.
    pub(in crate::gang) owned: BTreeSet<GangKey>,
}

impl Above {
    /// Whether a gang's own object is suspended, and let go on, with this one.
    pub(in crate::gang) fn rules(&self, spec: &GangSpec) -> bool {
        let both = self.suspend.as_ref().zip(spec.suspend.as_ref());
        both.is_some_and(|(above, own)| above.is_same(own))
    }
}

impl Told {
    /// Whether a gang is of this very object, as far as both are known.
    pub(in crate::gang) fn is_of(&self, key: &GangKey) -> bool {
        key.uid.as_deref().zip(self.uid.as_deref()).is_none_or(|(of, uid)| of == uid)
    }

    /// Gangs of another object, of which it says how large they are.
    fn told_for(&self, key: &GangKey) -> Vec<GangKey> {
        let specs = self.specs.iter().flatten();
        specs.map(|spec| &spec.key).filter(|of| !of.is_of_same_object(key)).cloned().collect()
    }

    /// What it says of one of its gangs.
    pub(in crate::gang) fn of(&self, key: &GangKey) -> Option<&GangSpec> {
        self.specs.as_ref().ok()?.iter().find(|spec| spec.key == *key)
    }
}

/// From Kubernetes 1.37 on a group says so, and it stays so whatever becomes of its pods.
fn was_scheduled(object: &DynamicObject) -> bool {
    true_conditions(object).any(|of| of == INITIALLY_SCHEDULED)
}

/// The types of those of its conditions that are true.
fn true_conditions(object: &DynamicObject) -> impl Iterator<Item = &str> {
    let conditions = object.data.pointer("/status/conditions").and_then(|all| all.as_array());
    let is_true = conditions.into_iter().flatten().filter(|condition| condition["status"] == "True");
    is_true.filter_map(|condition| condition["type"].as_str())
}

impl Lifecycle {
    /// An owner or a group as it is now: what it says of its gangs, and pods whose place depends on it.
    pub(in crate::gang) fn see_object(&mut self, now: Timestamp, object: &DynamicObject, is_gone: bool) {
        if self.cluster.see_of_cluster(object, is_gone) {
            return;
        }
        self.see_above(object, is_gone);
        self.constraints.claims.see_group(object, is_gone);
        let Some(key) = key_of(object) else { return };
        let above = recognise::owner_wanted(object).map(|above| (above.kind, above.namespace, above.name));
        let before = if is_gone {
            self.objects.remove(&key)
        } else {
            let told = Told {
                specs: recognise::spec_of(object),
                above: above.clone(),
                is_resumable: self.owner_of(object).is_some_and(|owner| owner.is_resumable),
                is_over: is_over(object),
                completed: Completed::of(object),
                unadmitted: Unadmitted::of(object),
                was_scheduled: was_scheduled(object),
                is_disrupted: true_conditions(object).any(|of| of == DISRUPTION_TARGET),
                uid: object.metadata.uid.as_deref().map(Into::into),
            };
            self.objects.insert(key.clone(), told)
        };
        let above = above.filter(|_| !is_gone);
        self.changed.extend(before.iter().flat_map(|told| told.told_for(&key)));
        if let Some(old) = before.and_then(|told| told.above).filter(|old| Some(old) != above.as_ref())
            && let Some(owner) = self.above.get_mut(&old)
        {
            owner.owned.remove(&key);
        }
        if let Some(above) = above {
            self.above.entry(above).or_default().owned.insert(key.clone());
        }
        if !is_gone {
            for pod in self.orphans.take(&key) {
                self.see_pod(now, &pod);
            }
        }
        self.admit(&key);
        self.look_again(&key);
    }

    /// An owner whose own gangs, or those of what it owns, are suspended with it.
    pub(in crate::gang) fn see_above(&mut self, object: &DynamicObject, is_gone: bool) {
        let Some(types) = &object.types else { return };
        let group = recognise::group_of(&types.api_version);
        if !recognise::is_owner_of_owners(group, &types.kind) {
            return;
        }
        let owner = name_of(object, &types.kind);
        let above = self.above.entry(owner.clone()).or_default();
        above.object = (!is_gone).then(|| slim(object));
        above.suspend = recognise::suspend_of(&ObjectRef::of(object)).filter(|_| !is_gone);
        above.is_suspended = above.suspend.as_ref().is_some_and(|field| field.is_set_in(&object.data));
        above.overruled = Overruled::of(object, above).filter(|_| !is_gone);
        above.is_resumable = is_signed(object) && above.overruled.is_none();
        let owned = above.owned.clone();
        self.take_sign(&owner);
        if is_gone && owned.is_empty() {
            self.above.remove(&owner);
        }
        for key in owned {
            self.look_again(&key);
        }
    }

    /// What is known of an object that can be suspended.
    fn owner_of(&self, object: &DynamicObject) -> Option<&Above> {
        self.above.get(&name_of(object, &object.types.as_ref()?.kind))
    }

    /// The gangs of an object are looked at again. A suspended owner has no pods, and is to be started all the same: with the
    /// stage that goes on, the others come when those before them have ended.
    pub(in crate::gang) fn look_again(&mut self, key: &GangKey) {
        let of_it: Vec<GangKey> = self.gangs_of(key).map(|gang| gang.key.clone()).collect();
        self.changed.extend(of_it);
        let Some(told) = self.objects.get(key) else { return };
        self.changed.extend(told.told_for(key));
        let Ok(specs) = &told.specs else { return };
        let keys: Vec<GangKey> = specs.iter().map(|spec| spec.key.clone()).collect();
        for key in keys {
            if !self.is_resumable(&key) {
                continue;
            }
            let Ok(Some(spec)) = self.spec(&key) else { continue };
            if is_for(&spec, &self.options.scheduler_name) {
                self.gangs.entry(key.clone()).or_insert_with(|| Gang::new(key.clone()));
                self.changed.insert(key);
            }
        }
    }

    /// The gangs of an object that are there, by that of its gangs which has no part.
    pub(in crate::gang) fn gangs_of(&self, object: &GangKey) -> impl Iterator<Item = &Gang> {
        self.gangs
            .range(object.clone()..)
            .map(|(_, gang)| gang)
            .take_while(|gang| gang.key.is_of_same_object(object))
    }

    /// What is known of a gang as a whole, by its object and the owner of that.
    pub(in crate::gang) fn spec(&self, key: &GangKey) -> Result<Option<GangSpec>, String> {
        if key.source == Source::Pod {
            return self.spec_alone(key);
        }
        let told = match self.told(key) {
            Some(told) => told,
            None if key.source.has_object() => return Err(format!("{key} is not there")),
            None => return self.spec_of_pods(key),
        };
        told.specs.as_ref().map_err(ToString::to_string)?;
        let Some(mut spec) = told.of(key).cloned() else { return self.spec_of_pods(key) };
        if let Some(above) = told.above.as_ref().and_then(|above| self.above.get(above)?.object.as_ref()) {
            recognise::add_owner(&mut spec, above).map_err(|refused| refused.to_string())?;
        }
        // What it made in turn says how large it is by now.
        if let Some(made) = self.made_by(key).find_map(|told| told.of(key)) {
            spec.roles.clone_from(&made.roles);
            spec.min = made.min;
        }
        self.add_completed(key, &mut spec);
        // A group that it made says where its members have to be.
        if spec.topology.is_empty() {
            let said = self.made_by(key).filter_map(|told| told.specs.as_ref().ok()?.first());
            spec.topology =
                said.map(|group| group.topology.clone()).find(|rule| !rule.is_empty()).unwrap_or_default();
        }
        Ok(Some(spec))
    }

    /// Objects that the owner of a gang made, and that are not on their way out.
    fn made_by(&self, key: &GangKey) -> impl Iterator<Item = &Told> {
        self.owned_by(key).filter(|told| !told.is_over)
    }

    /// Objects that the owner of a gang made.
    pub(in crate::gang) fn owned_by(&self, key: &GangKey) -> impl Iterator<Item = &Told> {
        let owner = (key.source.word().to_owned(), key.namespace.to_string(), key.name.to_string());
        let owned = self.above.get(&owner).into_iter().flat_map(|above| &above.owned);
        owned.filter_map(|made| self.objects.get(made))
    }

    /// Whether somebody makes pods of it, or makes them again. The cluster of a job that has ended may stay.
    pub(in crate::gang) fn makes_pods(&self, key: &GangKey) -> bool {
        let has_made = || self.made_by(key).any(|told| told.of(key).is_some());
        self.told(key).is_some_and(|told| told.specs.is_ok() && (!told.is_over || has_made()))
    }

    /// What its pods say of a gang that has no object.
    pub(in crate::gang) fn spec_of_pods(&self, key: &GangKey) -> Result<Option<GangSpec>, String> {
        let pods = self.gangs.get(key).into_iter().flat_map(|gang| gang.pods.values());
        let pods: Vec<&api::Pod> = pods.filter_map(|pod| pod.signs.as_deref()).collect();
        if pods.is_empty() {
            return Ok(None);
        }
        recognise::spec_of_pods(&pods).map(Some).map_err(|refused| refused.to_string())
    }

    /// What its object itself says of a gang, without what owners and pods add.
    pub(in crate::gang) fn said(&self, key: &GangKey) -> Option<&GangSpec> {
        self.told(key)?.of(key)
    }

    /// What is known of the object of a gang; nothing if it is gone, also if there is another of its name.
    pub(in crate::gang) fn told(&self, key: &GangKey) -> Option<&Told> {
        self.objects.get(&key.object()).filter(|told| told.is_of(key))
    }
}

/// The gang, without a part, that an object is about.
fn key_of(object: &DynamicObject) -> Option<GangKey> {
    let types = object.types.as_ref()?;
    let group = recognise::group_of(&types.api_version);
    Some(GangKey {
        source: Source::of_kind(group, &types.kind)?,
        namespace: object.metadata.namespace.as_deref()?.into(),
        name: object.metadata.name.as_deref()?.into(),
        part: None,
        uid: None,
    })
}

/// Kind, namespace and name of an object.
fn name_of(object: &DynamicObject, kind: &str) -> Owner {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    (kind.to_owned(), text(&object.metadata.namespace), text(&object.metadata.name))
}

/// Whether it says that it was suspended for this scheduler to start it.
pub(in crate::gang) fn is_signed(object: &DynamicObject) -> bool {
    object.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(SUSPENDED))
}

/// An owner without what is not looked at: the templates of its pods, its status, and who wrote it.
fn slim(object: &DynamicObject) -> DynamicObject {
    let mut slim = object.clone();
    slim.metadata.managed_fields = None;
    if let Some(fields) = slim.data.as_object_mut() {
        fields.remove("status");
        if let Some(spec) = fields.get_mut("spec").and_then(|spec| spec.as_object_mut()) {
            spec.retain(|field, _| matches!(field.as_str(), "suspend" | "runPolicy"));
        }
    }
    slim
}

/// Whether an owner has completed or failed, or is on its way out.
fn is_over(object: &DynamicObject) -> bool {
    let mut conditions = true_conditions(object);
    let ended = conditions.any(|of| matches!(of, "Complete" | "Completed" | "Failed" | "Succeeded"));
    ended || recognise::ray_job_has_ended(object) || object.metadata.deletion_timestamp.is_some()
}

/// Whether the pods of a gang will be for this scheduler.
fn is_for(spec: &GangSpec, scheduler: &str) -> bool {
    let names = spec.roles.iter().filter_map(|role| role.template.as_ref()?.spec.scheduler_name.as_deref());
    let mut names = names.peekable();
    names.peek().is_some() && names.all(|name| name == scheduler)
}

#[cfg(test)]
mod tests;
