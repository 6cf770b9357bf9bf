//! Gangs that have no object: what their pods say, put together. And where a pod stands once its object is known.

use std::collections::BTreeMap;

use super::asks::{Asks, Signs};
use super::key::{GangKey, Membership, ObjectRef, Refused, Source, controller};
use super::names::{koordinator, kueue, lws, yunikorn};
use super::owner::{LEADER, WORKER};
use super::pod::{joined, koordinator_name, koordinator_sizes, membership, task_groups};
use super::spec::{GangSpec, RoleSpec};
use crate::api::Pod;

/// What the pods of one gang say together: Kueue's groups, Koordinator's gangs, YuniKorn's applications, single pods, and
/// the groups of a `LeaderWorkerSet` that its object does not count (while it rolls out).
///
/// # Errors
/// When there is no pod, they say different things, or the gang is one that only its object can tell of.
pub fn spec_of_pods(members: &[&Pod]) -> Result<GangSpec, Refused> {
    let mut pods = members.to_vec();
    // Whatever comes first in the list may not matter.
    pods.sort_by_key(|pod| (pod.namespace(), pod.name()));
    let Some(first) = pods.first() else {
        let nobody = ObjectRef::named("v1", "Pod", "", "");
        return Err(Refused::new(nobody, "the list of members", "is empty", "give at least one pod"));
    };
    let key = membership(first)?.gang;
    let roles = match key.source {
        Source::Pod => Sizes { roles: vec![RoleSpec::new("", 1, None)], is_open: false },
        Source::KueuePodGroup => kueue_sizes(&pods)?,
        Source::Koordinator => joined_sizes(&pods)?,
        Source::YuniKorn => yunikorn_sizes(&pods)?,
        Source::LeaderWorkerSet => lws_sizes(&pods)?,
        _ => return Err(absent(first, &key)),
    };
    let mut spec = GangSpec::new(key, None, roles.roles);
    spec.is_open = roles.is_open;
    let mut asks = Asks::default();
    for pod in &pods {
        asks = asks.or(asks_of(pod)?);
    }
    spec.topology = asks.topology.clone();
    if spec.key.source == Source::Pod {
        let object = ObjectRef::of_pod(first);
        Signs::of_pod(first, &object).refuse_segments(&spec.topology, "make the pods a gang")?;
    }
    asks.apply(&mut spec);
    Ok(spec)
}

/// What a pod asks for as a whole.
fn asks_of(pod: &Pod) -> Result<Asks, Refused> {
    let object = ObjectRef::of_pod(pod);
    let mut asks = Signs::of_pod(pod, &object).asks()?;
    asks.priority_class = asks.priority_class.or_else(|| pod.spec.priority_class_name.clone());
    asks.time_limit_s = asks.time_limit_s.or(pod.spec.active_deadline_seconds);
    Ok(asks)
}

/// Whether a pod by itself says anything that [`GangSpec::alone`] takes from it.
///
/// # Errors
/// When what it says cannot be read.
pub fn says_alone(pod: &Pod) -> Result<bool, Refused> {
    let says = |asks: Asks| {
        asks.queue.is_some()
            || asks.time_limit_s.is_some()
            || asks.checkpoint_grace_s.is_some()
            || asks.topology.binds()
    };
    asks_of(pod).map(says)
}

/// The owner of a pod that starts by itself and requires a topology: all its pods that do are in one domain.
#[must_use]
pub fn owner_in_one_domain(pod: &Pod) -> Option<ObjectRef> {
    let requires = asks_of(pod).is_ok_and(|asks| asks.topology.required.is_some());
    controller(&pod.metadata).filter(|_| requires)
}

/// Where a pod stands among what its object says, and what holds for it there. Nothing holds for pods whose gang has no
/// object: [`spec_of_pods`] tells of those.
///
/// The gangs are those of the object that [`owners_wanted`](super::owners_wanted) names.
///
/// # Errors
/// When the object is not among them, or knows no such role.
pub fn settle<'a>(
    pod: &Pod,
    member: &Membership,
    specs: &'a [GangSpec],
) -> Result<(Membership, Option<&'a GangSpec>), Refused> {
    let mut of_object = specs.iter().filter(|spec| is_of(spec, &member.gang)).peekable();
    if of_object.peek().is_none() {
        return if member.gang.source.has_object() {
            Err(absent(pod, &member.gang))
        } else {
            Ok((member.clone(), None))
        };
    }
    let mut settled = member.clone();
    // Not every pod says the UID of its owner.
    if let Some(of) = of_object.peek().filter(|of| of.key.is_of_same_object(&member.gang)) {
        settled.gang.uid.clone_from(&of.key.uid);
    }
    let Some(spec) = of_object.find(|spec| holds(spec, member)) else {
        let is_rolling = member.gang.source == Source::LeaderWorkerSet;
        return if is_rolling { Ok((settled, None)) } else { Err(no_role(pod, member)) };
    };
    if spec.is_lone {
        return Ok((Membership::alone(pod), Some(spec)));
    }
    if !spec.key.is_of_same_object(&member.gang) {
        settled.gang = spec.key.clone();
    } else if settled.gang.part.is_none() {
        settled.gang.part.clone_from(&spec.key.part);
    }
    if let Some(role) = member.role.as_deref().and_then(|name| spec.role(name)) {
        let within = member.index.map(|index| index.saturating_sub(role.first_index));
        settled.index = within.map(|index| member.copy.saturating_mul(role.per_copy).saturating_add(index));
    }
    Ok((settled, Some(spec)))
}

/// Whether the object that a pod names says this: of its own gang, or of the one of who made it.
fn is_of(spec: &GangSpec, named: &GangKey) -> bool {
    let is_it = |object: &ObjectRef| {
        Source::of_kind(object.group(), &object.kind) == Some(named.source)
            && (&*object.namespace, &*object.name) == (&*named.namespace, &*named.name)
    };
    spec.key.is_of_same_object(named) || spec.object.as_ref().is_some_and(is_it)
}

/// Whether the gang is the pod's.
fn holds(spec: &GangSpec, member: &Membership) -> bool {
    let is_part = match (&spec.key.part, &member.gang.part) {
        (_, None) | (None, _) => true,
        // Replicas of a pod group share what its Workload says.
        (Some(of), Some(part)) => {
            part == of || part.strip_prefix(&**of).is_some_and(|rest| rest.starts_with('/'))
        }
    };
    let has_role = spec.is_open || member.role.as_deref().is_none_or(|name| spec.role(name).is_some());
    // A role without a name is any role.
    is_part && (has_role || spec.role("").is_some())
}

fn absent(pod: &Pod, key: &GangKey) -> Refused {
    let problem = format!("is of the {key}, which is not there");
    let remedy = match key.source {
        Source::PodGroup
        | Source::Workload
        | Source::VolcanoPodGroup
        | Source::KaiPodGroup
        | Source::Coscheduling => "create it, or leave out the sign that names it",
        _ => "give it a moment; if its owner was deleted, delete the pod too",
    };
    Refused::new(ObjectRef::of_pod(pod), "the gang", problem, remedy)
}

fn no_role(pod: &Pod, member: &Membership) -> Refused {
    let role = member.role.as_deref().unwrap_or_default();
    let problem = format!("{role:?} is none of {}", member.gang);
    let remedy = "the object has changed since: its controller replaces the pod, or delete it";
    Refused::new(ObjectRef::of_pod(pod), "the role", problem, remedy)
}

struct Sizes {
    roles: Vec<RoleSpec>,
    is_open: bool,
}

/// What all pods that say it say alike.
fn agreed<T: PartialEq + std::fmt::Debug>(
    pods: &[&Pod],
    field: &str,
    read: impl Fn(&Signs<'_>) -> Result<Option<T>, Refused>,
) -> Result<Option<T>, Refused> {
    let mut known: Option<(T, &str)> = None;
    for pod in pods {
        let object = ObjectRef::of_pod(pod);
        let Some(value) = read(&Signs::of_pod(pod, &object))? else { continue };
        match &known {
            Some((before, name)) if *before != value => {
                let problem = format!("is {value:?}, and {before:?} on the pod {name} of the same gang");
                return Err(Refused::new(object, field, problem, "write the same on all of them"));
            }
            Some(_) => {}
            None => known = Some((value, pod.name())),
        }
    }
    Ok(known.map(|(value, _)| value))
}

fn missing(pods: &[&Pod], field: &str, remedy: &str) -> Refused {
    let object =
        pods.first().map_or_else(|| ObjectRef::named("v1", "Pod", "", ""), |pod| ObjectRef::of_pod(pod));
    Refused::new(object, field, "is missing on all pods of the gang", remedy)
}

fn kueue_sizes(pods: &[&Pod]) -> Result<Sizes, Refused> {
    let total = agreed(pods, kueue::TOTAL, |signs| signs.count(kueue::TOTAL))?;
    let total = total.ok_or_else(|| missing(pods, kueue::TOTAL, "say how many pods the group has"))?;
    Ok(Sizes { roles: vec![RoleSpec::new("", total, None)], is_open: false })
}

/// A gang that was joined and has no pod yet counts as one that needs at least one.
fn joined_sizes(pods: &[&Pod]) -> Result<Sizes, Refused> {
    let mut by_gang: BTreeMap<String, Vec<&Pod>> = BTreeMap::new();
    let mut is_joined = false;
    for pod in pods {
        let object = ObjectRef::of_pod(pod);
        let signs = Signs::of_pod(pod, &object);
        let Some(name) = koordinator_name(&signs) else { continue };
        let joined = joined(&signs, pod.namespace(), name)?;
        is_joined |= joined.len() > 1;
        for gang in joined {
            by_gang.entry(gang).or_default();
        }
        by_gang.entry(name.to_owned()).or_default().push(pod);
    }
    let mut sizes = Sizes { roles: Vec::with_capacity(by_gang.len()), is_open: false };
    for (gang, pods) in by_gang {
        let name: &str = if is_joined { &gang } else { "" };
        if pods.is_empty() {
            sizes.is_open = true;
            sizes.roles.push(RoleSpec::new(name, 1, None));
            continue;
        }
        let field = agreed(&pods, koordinator::NAME, |signs| Ok(Some(koordinator_sizes(signs)?.min_field)))?;
        let field = field.unwrap_or(koordinator::MIN);
        let min = agreed(&pods, field, |signs| Ok(koordinator_sizes(signs)?.min))?;
        let min = min.ok_or_else(|| missing(&pods, field, "say how many pods start together"))?;
        let total = agreed(&pods, koordinator::TOTAL, |signs| Ok(koordinator_sizes(signs)?.total))?;
        sizes.is_open |= total.is_none();
        sizes.roles.push(RoleSpec { min, ..RoleSpec::new(name, total.unwrap_or(min).max(min), None) });
    }
    Ok(sizes)
}

fn yunikorn_sizes(pods: &[&Pod]) -> Result<Sizes, Refused> {
    let groups = agreed(pods, yunikorn::TASK_GROUPS, task_groups)?;
    let groups = groups.ok_or_else(|| {
        missing(pods, yunikorn::TASK_GROUPS, "define the task groups on the first pod of the application")
    })?;
    let roles = groups.iter().map(|group| RoleSpec::new(&group.name, group.min_member, None));
    Ok(Sizes { roles: roles.collect(), is_open: true })
}

fn lws_sizes(pods: &[&Pod]) -> Result<Sizes, Refused> {
    let size = agreed(pods, lws::SIZE, |signs| signs.count(lws::SIZE))?;
    let size =
        size.ok_or_else(|| missing(pods, lws::SIZE, "let the LeaderWorkerSet's controller write it"))?;
    let mut roles = vec![RoleSpec::new(LEADER, 1, None)];
    if size > 1 {
        roles.push(RoleSpec { first_index: 1, ..RoleSpec::new(WORKER, size - 1, None) });
    }
    Ok(Sizes { roles, is_open: false })
}
