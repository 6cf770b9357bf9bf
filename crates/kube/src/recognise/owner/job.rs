//! `batch/v1` Jobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::api::DynamicObject;
use serde::Deserialize;

use super::Owner;
use crate::recognise::key::{Refused, Source};
use crate::recognise::names::{jobset, ray};
use crate::recognise::spec::{GangSpec, MEMBERS_MAX, PodTemplate, RoleSpec};

/// The fields of a Job that are used, here and inside a `JobSet`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JobSpec {
    parallelism: Option<i64>,
    completions: Option<i64>,
    completion_mode: Option<String>,
    #[serde(default)]
    pub(super) suspend: bool,
    pub(super) active_deadline_seconds: Option<i64>,
    #[serde(default)]
    pub(super) template: PodTemplate,
}

impl JobSpec {
    /// Pods at once. `field` is where the Job stands in its owner.
    pub(super) fn size(&self, owner: &Owner<'_>, field: &str) -> Result<u32, Refused> {
        let parallelism = owner.count(&format!("{field}.parallelism"), self.parallelism, 1)?;
        let completions = owner.count(&format!("{field}.completions"), self.completions, parallelism)?;
        Ok(parallelism.min(completions))
    }

    /// Whether all pods exist at once and each has a number.
    fn is_one_gang(&self) -> bool {
        self.completion_mode.as_deref() == Some("Indexed")
            && self.completions == Some(self.parallelism.unwrap_or(1))
    }

    /// Whether all pods exist at once: a Job without `completions` makes no pod after the first that succeeds.
    fn runs_all_at_once(&self) -> bool {
        self.completions.is_none_or(|completions| completions <= self.parallelism.unwrap_or(1))
    }
}

/// An indexed Job whose pods all run at once is a gang. So is one without indices if it requires a topology: its pods have
/// to find room in one domain together. The pods of any other Job start one by one.
///
/// KAI and Volcano let people say how many pods of a Job have to start together; then it is a gang too.
pub(super) fn spec_of(owner: &Owner<'_>) -> Result<Vec<GangSpec>, Refused> {
    // Its owner knows the whole gang, of which this Job may be a part.
    if owner.controller().is_some_and(|above| super::suspend_of(&above).is_some() && above.kind != ray::JOB) {
        return Ok(Vec::new());
    }
    let job: JobSpec = owner.spec()?;
    let size = job.size(owner, "spec")?;
    let (is_one_gang, is_at_once) = (job.is_one_gang(), job.runs_all_at_once());
    let (limit, is_suspended) = (job.active_deadline_seconds, job.suspend);
    let role = RoleSpec::new("", size, Some(Arc::new(job.template)));
    let mut spec = GangSpec::new(owner.key(Source::Job), Some(owner.object.clone()), vec![role]);
    spec.time_limit_s = limit;
    spec.is_suspended = is_suspended;
    spec.suspend = super::suspend_of(&owner.object);
    let asks = owner.fill(&mut spec)?;
    if let Some((field, min)) = asks.min {
        owner.set_min(&mut spec, min, field)?;
    } else if !(is_one_gang || is_at_once && spec.topology.binds()) {
        owner.refuse_segments(&spec, "set spec.completions to spec.parallelism")?;
        spec.is_lone = true;
        spec.min = 1.min(size);
    }
    Ok(vec![spec])
}

/// What a Job says of its members that have completed. Its pods may be gone by then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Completed {
    /// Of the `JobSet` that it is of: the replicated job, and which of its Jobs this is.
    pub(crate) role: Option<Arc<str>>,
    pub(crate) copy: u32,
    /// Completion indices.
    pub(crate) indices: BTreeSet<u32>,
}

impl Completed {
    /// Nothing for other kinds, and for Jobs of which none has completed.
    pub(crate) fn of(object: &DynamicObject) -> Option<Self> {
        let types = object.types.as_ref()?;
        if types.kind != "Job" || crate::recognise::group_of(&types.api_version) != "batch" {
            return None;
        }
        let indices = numbers(object.data.pointer("/status/completedIndexes")?.as_str()?);
        let label = |key: &str| object.metadata.labels.as_ref()?.get(key).map(String::as_str);
        let role = label(jobset::ROLE).map(Into::into);
        let copy = label(jobset::JOB_INDEX).and_then(|copy| copy.parse().ok()).unwrap_or(0);
        (!indices.is_empty()).then_some(Self { role, copy, indices })
    }
}

/// `1,3-5` as the Job controller writes it; what comes after something else is left out.
fn numbers(text: &str) -> BTreeSet<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
    };
    let numbers = text.split(',').map_while(range).flat_map(|range| range.take(MEMBERS_MAX as usize));
    numbers.take_while(|number| *number < MEMBERS_MAX).collect()
}

impl Owner<'_> {
    /// The fewest members, which cannot be more than there are.
    pub(super) fn set_min(&self, spec: &mut GangSpec, min: u32, field: &str) -> Result<(), Refused> {
        if min > spec.size() {
            let problem = format!("is {min}, and there are {} pods", spec.size());
            return Err(self.refused(field, problem, "ask for no more than there are"));
        }
        spec.min = min;
        if let [role] = spec.roles.as_mut_slice() {
            role.min = min;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_indices_are_read_as_the_controller_writes_them() {
        let read = |text: &str| numbers(text).into_iter().collect::<Vec<_>>();
        assert_eq!(read("1,3-5,7"), [1, 3, 4, 5, 7]);
        assert_eq!((read(""), read("2,x,3"), read("5-3")), (vec![], vec![2], vec![]));
        assert_eq!(read("0-4294967295").len(), MEMBERS_MAX as usize, "no more than there can be");
    }
}
