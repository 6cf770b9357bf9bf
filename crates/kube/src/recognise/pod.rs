//! Where a pod belongs, from the pod alone.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::asks::{Signs, shown};
use super::key::{GangKey, Membership, ObjectRef, Refused, Source, controller};
use super::names::{
    batch, coscheduling, jobset, kai, koordinator, kubeflow, kueue, lws, ray, volcano, yunikorn,
};
use super::owner::{self, LEADER, WORKER};
use crate::api::Pod;

/// The most gangs that Koordinator's annotation joins.
const JOINED_MAX: usize = 256;

/// Where a pod belongs: owner references, labels and annotations, in the order of [the module](super).
///
/// What a `JobSet` or a Job says later may still divide the gang, see [`settle`](super::settle).
///
/// # Errors
/// When what the pod says of its gang cannot be read, or two schedulers' signs contradict each other in size.
pub fn membership(pod: &Pod) -> Result<Membership, Refused> {
    let object = ObjectRef::of_pod(pod);
    let reader = Reader { pod, signs: Signs::of_pod(pod, &object) };
    reader.check_claims()?;
    if let Some(of_group) = reader.of_group()? {
        return Ok(of_group);
    }
    Ok(reader.of_owner()?.unwrap_or_else(|| Membership::alone(pod)))
}

/// Where a pod belongs by who made it alone. A group that its owner made says no more of it than its owner does, and
/// comes and goes with every suspension; the owner stays.
///
/// # Errors
/// When what the pod says of its place cannot be read.
pub fn membership_by_owner(pod: &Pod) -> Result<Option<Membership>, Refused> {
    let object = ObjectRef::of_pod(pod);
    Reader { pod, signs: Signs::of_pod(pod, &object) }.of_owner()
}

/// Which objects must be known to complete the gang: its group object, its owner. None for pods that say all.
///
/// # Errors
/// As [`membership`].
pub fn owners_wanted(pod: &Pod) -> Result<Vec<ObjectRef>, Refused> {
    let member = membership(pod)?;
    let named = |api_version: &str, kind: &str| {
        ObjectRef::named(api_version, kind, pod.namespace(), &member.gang.name)
    };
    let above = controller(&pod.metadata);
    let is_above = |object: &ObjectRef| {
        above
            .as_ref()
            .is_some_and(|above| above.is(object.group(), &object.kind) && above.name == object.name)
    };
    let object = match member.gang.source {
        Source::PodGroup => named("scheduling.k8s.io/v1alpha2", "PodGroup"),
        Source::Workload => named("scheduling.k8s.io/v1alpha1", "Workload"),
        Source::JobSet => named("jobset.x-k8s.io/v1alpha2", "JobSet"),
        Source::LeaderWorkerSet => named("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
        Source::VolcanoPodGroup => named("scheduling.volcano.sh/v1beta1", "PodGroup"),
        Source::KaiPodGroup => named("scheduling.run.ai/v2alpha2", "PodGroup"),
        Source::Coscheduling if pod.label(coscheduling::LABEL).is_some() => {
            named("scheduling.x-k8s.io/v1alpha1", "PodGroup")
        }
        Source::Coscheduling => named("scheduling.sigs.k8s.io/v1alpha1", "PodGroup"),
        Source::MpiJob => named("kubeflow.org/v2beta1", "MPIJob"),
        Source::Pod | Source::KueuePodGroup | Source::Koordinator | Source::YuniKorn => return Ok(Vec::new()),
        // Of these the pod's controller is the object.
        Source::Job
        | Source::PyTorchJob
        | Source::TfJob
        | Source::XgBoostJob
        | Source::PaddleJob
        | Source::JaxJob
        | Source::RayCluster
        | Source::RayJob => return Ok(above.into_iter().collect()),
    };
    // The owner reference knows version and UID.
    if is_above(&object) { Ok(above.into_iter().collect()) } else { Ok(vec![object]) }
}

/// A pod while it is read.
struct Reader<'a> {
    pod: &'a Pod,
    signs: Signs<'a>,
}

/// What one sign says of the size of a pod's group.
#[derive(Clone, Copy)]
struct Claim {
    field: &'static str,
    pods: u32,
    /// All of them, and not just the fewest.
    is_total: bool,
}

impl Reader<'_> {
    fn key(&self, source: Source, name: &str) -> GangKey {
        GangKey::new(source, self.pod.namespace(), name)
    }

    /// By a field or sign that is there only to make a group.
    fn of_group(&self) -> Result<Option<Membership>, Refused> {
        let spec = &self.pod.spec;
        let signs = &self.signs;
        if let Some(name) = spec.scheduling_group.as_ref().and_then(|group| group.pod_group_name.as_ref()) {
            let index = signs.index(batch::INDEX)?;
            return Ok(Some(Membership { index, ..Membership::of(self.key(Source::PodGroup, name)) }));
        }
        if let Some(workload) = &spec.workload_ref {
            let part = workload.pod_group_replica_key.as_ref().filter(|key| !key.is_empty()).map_or_else(
                || workload.pod_group.clone(),
                |replica| format!("{}/{replica}", workload.pod_group),
            );
            let index = signs.index(batch::INDEX)?;
            let key = self.key(Source::Workload, &workload.name).part(&part);
            return Ok(Some(Membership { index, ..Membership::of(key) }));
        }
        if let Some(name) = volcano::GROUP_NAMES.iter().find_map(|key| signs.annotation(key)) {
            return Ok(Some(Membership {
                role: signs.either(volcano::TASK).map(Into::into),
                index: signs.index(volcano::TASK_INDEX)?,
                ..Membership::of(self.key(Source::VolcanoPodGroup, name))
            }));
        }
        if let Some(name) = signs.annotation(kai::POD_GROUP) {
            return Ok(Some(Membership {
                role: signs.label(kai::SUBGROUP).map(Into::into),
                index: signs.index(batch::INDEX)?,
                ..Membership::of(self.key(Source::KaiPodGroup, name))
            }));
        }
        if let Some(name) = signs.first_label(&[coscheduling::LABEL, coscheduling::OLD_LABEL]) {
            let index = signs.index(batch::INDEX)?;
            return Ok(Some(Membership { index, ..Membership::of(self.key(Source::Coscheduling, name)) }));
        }
        if let Some(name) = koordinator_name(signs) {
            return self.of_koordinator(name).map(Some);
        }
        if let (Some(app), Some(task)) =
            (signs.first_label(&yunikorn::APPS), signs.annotation(yunikorn::TASK_GROUP))
        {
            let key = self.key(Source::YuniKorn, app);
            return Ok(Some(Membership { role: Some(task.into()), ..Membership::of(key) }));
        }
        if let Some(name) = signs.label(kueue::POD_GROUP) {
            // Any other label of the pod may have the index.
            let key = signs.annotation(kueue::INDEX_LABEL).unwrap_or(kueue::INDEX);
            let index = signs.index(key)?;
            return Ok(Some(Membership { index, ..Membership::of(self.key(Source::KueuePodGroup, name)) }));
        }
        Ok(None)
    }

    /// Gangs that Koordinator joins are one gang with a role for each.
    fn of_koordinator(&self, name: &str) -> Result<Membership, Refused> {
        let index = self.signs.index(koordinator::INDEX)?;
        let joined = joined(&self.signs, self.pod.namespace(), name)?;
        if joined.len() < 2 {
            return Ok(Membership { index, ..Membership::of(self.key(Source::Koordinator, name)) });
        }
        let all: Vec<String> = joined.into_iter().collect();
        let key = self.key(Source::Koordinator, &all.join("+"));
        Ok(Membership { role: Some(name.into()), index, ..Membership::of(key) })
    }

    /// By who made it.
    fn of_owner(&self) -> Result<Option<Membership>, Refused> {
        let signs = &self.signs;
        if let (Some(name), Some(group)) = (signs.label(lws::NAME), signs.label(lws::GROUP_INDEX)) {
            let index = signs.index(lws::WORKER_INDEX)?.unwrap_or(0);
            let role = if index == 0 { LEADER } else { WORKER };
            let key = self.key(Source::LeaderWorkerSet, name).part(group);
            return Ok(Some(Membership {
                role: Some(role.into()),
                index: Some(index),
                ..Membership::of(key)
            }));
        }
        if let (Some(name), Some(role)) = (signs.either(jobset::NAME), signs.either(jobset::ROLE)) {
            return Ok(Some(Membership {
                role: Some(role.into()),
                copy: signs.index(jobset::JOB_INDEX)?.unwrap_or(0),
                index: signs.index(batch::INDEX)?,
                ..Membership::of(self.key(Source::JobSet, name).of_uid(signs.either(jobset::UID)))
            }));
        }
        let Some(above) = controller(&self.pod.metadata) else { return Ok(None) };
        match (above.group(), above.kind.as_str()) {
            (kubeflow::GROUP, kind) => owner::kubeflow_kind(kind)
                .map(|kind| self.of_kubeflow(kind.source, &above.name, above.uid.as_deref()))
                .transpose(),
            // The launcher of the MPI operator is the pod of a Job.
            ("batch", "Job") if signs.label(kubeflow::OPERATOR) == Some(kubeflow::MPI_OPERATOR) => {
                let name = signs.label(kubeflow::JOB_NAME);
                name.map(|name| self.of_kubeflow(Source::MpiJob, name, None)).transpose()
            }
            ("batch", "Job") => {
                let index = signs.index(batch::INDEX)?;
                Ok(Some(Membership {
                    index,
                    ..Membership::of(self.key(Source::Job, &above.name).of_uid(above.uid.as_deref()))
                }))
            }
            (ray::GROUP, ray::CLUSTER) => Ok(Some(Membership {
                role: signs.label(ray::WORKER_GROUP).map(Into::into),
                ..Membership::of(self.key(Source::RayCluster, &above.name).of_uid(above.uid.as_deref()))
            })),
            _ => Ok(None),
        }
    }

    fn of_kubeflow(&self, source: Source, name: &str, uid: Option<&str>) -> Result<Membership, Refused> {
        let mut index = None;
        for key in kubeflow::INDICES {
            index = if index.is_some() { index } else { self.signs.index(key)? };
        }
        let role = self.signs.first_label(&kubeflow::ROLES).map(|role| role.to_lowercase().into());
        Ok(Membership { role, index, ..Membership::of(self.key(source, name).of_uid(uid)) })
    }

    /// Of two schedulers' signs the first wins, as long as they can both be true.
    fn check_claims(&self) -> Result<(), Refused> {
        let claims = claims(&self.signs)?;
        for (at, claim) in claims.iter().enumerate() {
            for other in claims.iter().skip(at + 1) {
                let agree = match (claim.is_total, other.is_total) {
                    (false, true) => claim.pods <= other.pods,
                    (true, false) => claim.pods >= other.pods,
                    (true, true) | (false, false) => claim.pods == other.pods,
                };
                if !agree {
                    let problem =
                        format!("says {} pods, and {} says {}", claim.pods, other.field, other.pods);
                    let remedy = "leave one of them out, or make them agree";
                    return Err(self.signs.refused(claim.field, problem, remedy));
                }
            }
        }
        Ok(())
    }
}

/// What a pod's annotations and labels say of the size of its group.
fn claims(signs: &Signs<'_>) -> Result<Vec<Claim>, Refused> {
    let mut claims = Vec::new();
    let mut claim = |field, pods: Option<u32>, is_total| {
        claims.extend(pods.map(|pods| Claim { field, pods, is_total }));
    };
    // Of gangs that are joined each says its own size.
    if koordinator_name(signs).is_some() && signs.annotation(koordinator::GROUPS).is_none() {
        let sizes = koordinator_sizes(signs)?;
        claim(koordinator::TOTAL, sizes.total, true);
        claim(sizes.min_field, sizes.min, false);
    }
    if signs.annotation(yunikorn::TASK_GROUP).is_some() {
        let groups = task_groups(signs)?;
        let sum =
            |groups: Vec<TaskGroup>| groups.iter().fold(0_u32, |n, group| n.saturating_add(group.min_member));
        claim(yunikorn::TASK_GROUPS, groups.map(sum), false);
    }
    if signs.label(kueue::POD_GROUP).is_some() {
        claim(kueue::TOTAL, signs.count(kueue::TOTAL)?, true);
    }
    Ok(claims)
}

/// What a pod says of its gang in Koordinator's words.
pub(super) struct KoordinatorSizes {
    pub(super) total: Option<u32>,
    pub(super) min: Option<u32>,
    pub(super) min_field: &'static str,
}

pub(super) fn koordinator_sizes(signs: &Signs<'_>) -> Result<KoordinatorSizes, Refused> {
    let is_light = signs.annotation(koordinator::NAME).is_none();
    let min_field = if is_light { coscheduling::LIGHT_MIN } else { koordinator::MIN };
    let total = if is_light { None } else { signs.count(koordinator::TOTAL)? };
    Ok(KoordinatorSizes { total, min: signs.count(min_field)?, min_field })
}

/// A pod's gang in Koordinator's words, or in those of the plugin before it had objects.
pub(super) fn koordinator_name<'a>(signs: &Signs<'a>) -> Option<&'a str> {
    signs.annotation(koordinator::NAME).or_else(|| signs.label(coscheduling::LIGHT_NAME))
}

/// All gangs that start with this one, itself among them.
pub(super) fn joined(signs: &Signs<'_>, namespace: &str, name: &str) -> Result<BTreeSet<String>, Refused> {
    let shape = r#"["namespace/gang-a", "namespace/gang-b"]"#;
    let groups: Vec<String> = signs.json(koordinator::GROUPS, shape)?.unwrap_or_default();
    if groups.len() > JOINED_MAX {
        let problem = format!("names {} gangs", groups.len());
        return Err(signs.refused(koordinator::GROUPS, problem, format!("name at most {JOINED_MAX}")));
    }
    let mut joined = BTreeSet::new();
    for group in &groups {
        let (of, gang) = group.split_once('/').unwrap_or((namespace, group));
        if of != namespace {
            let problem = format!("names {:?}, which is in another namespace", shown(group));
            return Err(signs.refused(koordinator::GROUPS, problem, "join gangs of one namespace"));
        }
        joined.insert(gang.to_owned());
    }
    if !joined.is_empty() && !joined.contains(name) {
        let problem = format!("does not name the pod's own gang {:?}", shown(name));
        return Err(signs.refused(koordinator::GROUPS, problem, "name all gangs that start together"));
    }
    Ok(joined)
}

/// A task group of YuniKorn.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskGroup {
    pub(super) name: String,
    pub(super) min_member: u32,
}

pub(super) fn task_groups(signs: &Signs<'_>) -> Result<Option<Vec<TaskGroup>>, Refused> {
    let shape = r#"[{"name": "workers", "minMember": 4}]"#;
    let groups: Option<Vec<TaskGroup>> = signs.json(yunikorn::TASK_GROUPS, shape)?;
    let Some(mut groups) = groups else { return Ok(None) };
    groups.sort();
    if groups.is_empty() || groups.iter().any(|group| group.min_member > super::MEMBERS_MAX) {
        let problem = "has no group, or one with too many members";
        return Err(signs.refused(yunikorn::TASK_GROUPS, problem, format!("write JSON like {shape}")));
    }
    if groups.iter().zip(groups.iter().skip(1)).any(|(a, b)| a.name == b.name) {
        let problem = "names a group twice";
        return Err(signs.refused(yunikorn::TASK_GROUPS, problem, "give each group a name of its own"));
    }
    Ok(Some(groups))
}
