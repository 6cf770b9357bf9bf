//! `batch/v1` Jobs.

use std::sync::Arc;

use serde::Deserialize;

use super::Owner;
use crate::gang::key::{Refused, Source};
use crate::gang::spec::{GangSpec, PodTemplate, RoleSpec};

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
}

/// An indexed Job whose pods all run at once is a gang; of any other the pods start one by one.
///
/// KAI and Volcano let people say how many pods of a Job have to start together; then it is a gang too.
pub(super) fn spec_of(owner: &Owner<'_>) -> Result<Vec<GangSpec>, Refused> {
    // Its owner knows the whole gang, of which this Job may be a part.
    if owner.controller().is_some_and(|above| super::suspend_of(&above).is_some() && above.kind != "RayJob") {
        return Ok(Vec::new());
    }
    let job: JobSpec = owner.spec()?;
    let size = job.size(owner, "spec")?;
    let is_one_gang = job.is_one_gang();
    let (limit, is_suspended) = (job.active_deadline_seconds, job.suspend);
    let role = RoleSpec::new("", size, Some(Arc::new(job.template)));
    let mut spec = GangSpec::new(owner.key(Source::Job), Some(owner.object.clone()), vec![role]);
    spec.time_limit_s = limit;
    spec.is_suspended = is_suspended;
    spec.suspend = super::suspend_of(&owner.object);
    let asks = owner.fill(&mut spec)?;
    if let Some((field, min)) = asks.min {
        owner.set_min(&mut spec, min, field)?;
    } else if !is_one_gang {
        spec.is_lone = true;
        spec.min = 1.min(size);
    }
    Ok(vec![spec])
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
