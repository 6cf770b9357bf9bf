//! When a job goes: its class, what it waits for, how many times it runs, and how small it may become.

mod file;

use std::collections::BTreeMap;

use phalanx_model::{After, Array, EndOf, Gang, JobId, Timestamp, Turn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::moment::Moment;
use crate::place::{At, Scalar, wrong};
use crate::scalar::Count;
use crate::shape::Shape;
use crate::submit::SubmitContext;

/// Number of a task of an array, from 0.
pub const ARRAY_INDEX_ENV: &str = "PHALANX_ARRAY_INDEX";
/// Tasks of the array.
pub const ARRAY_SIZE_ENV: &str = "PHALANX_ARRAY_SIZE";

/// Tasks of one array, as many gangs as the engine takes of a job.
const ARRAY_MAX: u32 = 10_000;
/// What all tasks say together, written as JSON.
const ARRAY_BYTES_MAX: usize = 16 << 20;
/// Jobs that one job waits for.
const AFTER_MAX: usize = 1_000;

/// The end of another job that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct AfterFile {
    pub job: At<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<At<EndOf>>,
}

/// Ends of other jobs, all of which are waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct AftersFile(pub Vec<AfterFile>);

/// The same job many times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ArrayFile {
    pub size: At<Count>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_running: Option<At<Count>>,
}

/// How few and how many ranks will do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ElasticFile {
    /// Ranks that the job may shrink to, at an epoch or to make way. Default: as many as it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<At<Count>>,
    /// Ranks that it may grow to, while nobody else is owed them. Default: as many as it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<At<Count>>,
}

impl AfterFile {
    const SHORT: &'static str = "JOB or JOB:END, where END is success, failure or any, such as 12 or 12:any";

    /// Reads the short form `JOB[:END]`.
    ///
    /// # Errors
    /// What is wrong, and on the second line what is accepted.
    pub fn from_short(text: &str, place: Place) -> Result<Self, String> {
        let (job, end) = match text.split_once(':') {
            Some((job, end)) => (job, Some(EndOf::read_at(end.trim(), place)?)),
            None => (text, None),
        };
        let job = JobId::read(job.trim()).map_err(|what| format!("{what}\n{}", Self::SHORT))?;
        Ok(Self { job: At::new(job, place), end })
    }
}

impl AftersFile {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ArrayFile {
    const SHORT: &'static str = "a number of tasks, or with %N so many at once, such as 10 or 10%2";

    /// Reads the short form `SIZE[%MAX_RUNNING]`, as Slurm has it.
    ///
    /// # Errors
    /// What is wrong, and on the second line what is accepted.
    pub fn from_short(text: &str, place: Place) -> Result<Self, String> {
        let count = |part: &str| {
            let count = Count::read(part.trim()).map_err(|what| match part.contains(['-', ',']) {
                true => format!("{}\n{}", wrong(text, "is no number; tasks count from 0"), Self::SHORT),
                false => format!("{what}\n{}", Self::SHORT),
            });
            count.map(|count| At::new(count, place))
        };
        let (size, running) = match text.split_once('%') {
            Some((size, running)) => (size, Some(count(running)?)),
            None => (text, None),
        };
        Ok(Self { size: count(size)?, max_running: running })
    }
}

impl JobFile {
    /// What decides when the job goes.
    pub(crate) fn turn(&self, context: &SubmitContext) -> Result<Turn, SpecError> {
        let (begins_at, deadline) = self.window(context.submitted_at)?;
        Ok(Turn {
            class: self.class.as_ref().map(|class| class.value.clone()),
            held_by: self.hold.filter(|hold| hold.value).map(|_| context.owner.name.clone()),
            boost: None,
            after: self.after()?,
            begins_at,
            deadline,
            array: self
                .array
                .map(|array| Array { running_max: array.max_running.map(|running| running.value.0) }),
            takes_spot: self.spot.is_some_and(|spot| spot.value),
            service: self.service()?,
        })
    }

    /// The first moment that it may start at, and the last.
    fn window(&self, submitted_at: Timestamp) -> Result<(Option<Timestamp>, Option<Timestamp>), SpecError> {
        let of = |said: Option<At<Moment>>| said.map(|said| (said.value.from(submitted_at), said.place));
        let (begin, deadline) = (of(self.begin), of(self.deadline));
        if let Some((_, place)) = deadline.filter(|(at, _)| *at <= submitted_at) {
            return Err(self.source.error(place, "is past already", "expected a time to come, such as +8h"));
        }
        if let (Some((begin, first)), Some((last, place))) = (begin, deadline)
            && last <= begin
        {
            let what = "the job must start before it may begin";
            let error = self.source.error(place, what, "expected a deadline later than `begin`");
            return Err(self.also(error, Some(first), "it begins"));
        }
        Ok((begin.map(|(at, _)| at), deadline.map(|(at, _)| at)))
    }

    fn after(&self) -> Result<Vec<After>, SpecError> {
        if let Some(beyond) = self.after.0.get(AFTER_MAX) {
            let what = format!("{} jobs to wait for", self.after.0.len());
            return Err(self.source.error(beyond.job.place, what, format!("at most {AFTER_MAX}")));
        }
        let mut seen = BTreeMap::new();
        let mut all = Vec::with_capacity(self.after.0.len());
        for AfterFile { job, end } in &self.after.0 {
            if let Some(first) = seen.insert(job.value, job.place) {
                let error =
                    self.source.error(job.place, format!("job {} is named twice", job.value), "name it once");
                return Err(self.also(error, Some(first), "the first"));
            }
            all.push(After { job: job.value, end: end.map_or(EndOf::Success, |end| end.value) });
        }
        Ok(all)
    }

    /// A gang that may shrink and grow: by whole nodes, where the job has as many ranks on each.
    pub(crate) fn elastic(&self, gang: Gang, shape: &Shape) -> Result<Gang, SpecError> {
        let Some(ElasticFile { min, max }) = self.elastic else { return Ok(gang) };
        if min.is_none() && max.is_none() {
            let what = "`elastic` says nothing";
            return Err(self.source.error(Place::Nowhere, what, "expected `min`, `max` or both, in ranks"));
        }
        let each = self.ranks_per_member(shape);
        let step = each.saturating_mul(gang.members_per_node.unwrap_or(1));
        let ranks = gang.size.saturating_mul(each);
        if let Some(said) = [min, max].into_iter().flatten().find(|said| !said.value.0.is_multiple_of(step)) {
            let what = format!("{} ranks are no whole number of nodes, {step} ranks each", said.value.0);
            let multiple = said.value.0.div_ceil(step).saturating_mul(step);
            let accepted = format!("expected a multiple of {step}, such as {multiple}");
            return Err(self.source.error(said.place, what, accepted));
        }
        let too_many = min.filter(|min| min.value.0 > ranks).map(|min| (min, "at least", "at most"));
        let too_few = max.filter(|max| max.value.0 < ranks).map(|max| (max, "at most", "at least"));
        if let Some((said, bound, accepted)) = too_many.or(too_few) {
            let what = format!("{bound} {} ranks, and the job has {ranks}", said.value.0);
            let error = self.source.error(said.place, what, format!("expected {accepted} {ranks}"));
            return Err(self.also(error, self.size_place(), "its size"));
        }
        let members = |said: Option<At<Count>>| said.map_or(gang.size, |said| said.value.0 / each);
        Ok(Gang { min: members(min), max: members(max), ..gang })
    }

    /// Where a job that changes its size says so.
    pub(crate) fn elastic_place(&self) -> Option<Place> {
        let ElasticFile { min, max } = self.elastic?;
        Some(min.or(max).map_or(Place::Nowhere, |said| said.place))
    }

    /// Where the number of ranks is said.
    fn size_place(&self) -> Option<Place> {
        let said = [
            self.ranks.map(|ranks| ranks.place),
            self.node_count().map(|nodes| nodes.place),
            self.gpus().map(|gpus| gpus.place),
        ];
        said.into_iter().flatten().next()
    }

    /// The gangs of the job: one, as many as a service has replicas, or as many as the array has tasks, each told which
    /// it is.
    pub(crate) fn tasks(&self, gang: Gang) -> Result<Vec<Gang>, SpecError> {
        let Some(array) = self.array else { return Ok(self.replicas(gang)) };
        let (size, place) = (array.size.value.0, array.size.place);
        if size > ARRAY_MAX {
            let accepted = format!("at most {ARRAY_MAX}; submit several arrays");
            return Err(self.source.error(place, format!("{size} tasks"), accepted));
        }
        let each = serde_json::to_vec(&gang).map_or(usize::MAX, |json| json.len());
        let together = each.saturating_mul(size as usize);
        if together > ARRAY_BYTES_MAX {
            let what = format!("{size} tasks take {together} bytes together");
            let accepted = format!("at most {ARRAY_BYTES_MAX}; keep large values in a file");
            return Err(self.source.error(place, what, accepted));
        }
        let task = |index: u32| {
            let mut task = gang.clone();
            let roles = task.roles.iter_mut().filter_map(|role| role.program.as_mut());
            for program in std::iter::once(&mut task.program).chain(roles) {
                // The user's own variables win.
                for (name, number) in [(ARRAY_INDEX_ENV, index), (ARRAY_SIZE_ENV, size)] {
                    program.env.entry(name.to_owned()).or_insert_with(|| number.to_string());
                }
            }
            task
        };
        Ok((0..size).map(task).collect())
    }
}
