//! When a job goes: its class, what it waits for, how many times it runs, and how small it may become.

mod file;

use std::collections::BTreeMap;

use phalanx_model::{After, Array, EndOf, Gang, JobId, TASKS_MAX, Tasks, TasksError, Timestamp, Turn};
use schemars::{JsonSchema, Schema, json_schema};
use serde::{Deserialize, Serialize};

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::moment::Moment;
use crate::place::{At, Scalar, wrong};
use crate::scalar::Count;
use crate::shape::Shape;
use crate::submit::SubmitContext;

/// Elastic tasks of one array: each has a size of its own, and so the engine keeps a description of each.
const ELASTIC_TASKS_MAX: u32 = 10_000;
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

/// The same job many times: so many tasks that count from 0, or tasks with these numbers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArrayFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<At<Count>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<At<Tasks>>,
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
    const SHORT: &'static str = "a number of tasks such as 10, or their numbers such as 1-10:3 or 1,4,7-9; with %2 at \
                                 most 2 run at once";

    /// Reads the short form `SIZE[%MAX_RUNNING]` or, as Slurm has it, `NUMBERS[%MAX_RUNNING]`.
    ///
    /// # Errors
    /// What is wrong, and on the second line what is accepted.
    pub fn from_short(text: &str, place: Place) -> Result<Self, String> {
        let said = |what: String| format!("{what}\n{}", Self::SHORT);
        let count = |part: &str| {
            let count = Count::read(part.trim()).map_err(said)?;
            Ok::<_, String>(Some(At::new(count, place)))
        };
        let (tasks, max_running) = match text.split_once('%') {
            Some((tasks, running)) => (tasks, count(running)?),
            None => (text, None),
        };
        if tasks.trim().trim_start_matches('-').contains(['-', ',']) {
            let tasks = <Tasks as Scalar>::read(tasks).map_err(said)?;
            return Ok(Self { size: None, tasks: Some(At::new(tasks, place)), max_running });
        }
        Ok(Self { size: count(tasks)?, tasks: None, max_running })
    }

    /// Where the tasks are said.
    pub(crate) fn place(&self) -> Place {
        let size = self.size.as_ref().map(|size| size.place);
        size.or_else(|| self.tasks.as_ref().map(|tasks| tasks.place)).unwrap_or(Place::Nowhere)
    }
}

impl Scalar for Tasks {
    const ACCEPTED: &'static str = "numbers of tasks, such as 1-10:3 or 1,4,7-9";

    fn read(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|why| match why {
            TasksError::NoNumber(part) => wrong(&part, "is no number of a task"),
            why => why.to_string(),
        })
    }

    fn write(&self) -> String {
        self.to_string()
    }

    fn schema() -> Schema {
        json_schema!({ "type": ["string", "integer"], "pattern": TASKS_PATTERN, "examples": ["1-10:3", "1,4,7-9"] })
    }
}

/// Numbers and ranges of tasks.
const TASKS_PATTERN: &str = "^[0-9]+(-[0-9]+(:[0-9]+)?)?(,[0-9]+(-[0-9]+(:[0-9]+)?)?)*$";

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
            array: self.array.as_ref().map(|array| self.array(array)).transpose()?,
            takes_spot: self.spot.is_some_and(|spot| spot.value),
            service: self.service()?,
        })
    }

    /// The numbers of the tasks, and how many run at once.
    fn array(&self, array: &ArrayFile) -> Result<Array, SpecError> {
        let tasks = match (&array.size, &array.tasks) {
            (Some(size), None) if size.value.0 > TASKS_MAX => {
                let accepted = format!("at most {TASKS_MAX}; submit several arrays");
                return Err(self.source.error(size.place, format!("{} tasks", size.value.0), accepted));
            }
            (Some(size), None) => Tasks::first(size.value.0),
            (None, Some(tasks)) => tasks.value.clone(),
            _ => {
                let what = "an array needs either `size` or `tasks`";
                return Err(self.source.error(array.place(), what, ArrayFile::SHORT));
            }
        };
        if self.elastic.is_some() && tasks.count() > ELASTIC_TASKS_MAX {
            let what = format!("{} tasks that change their size", tasks.count());
            let accepted =
                format!("at most {ELASTIC_TASKS_MAX}; leave `elastic` out, or submit several arrays");
            return Err(self.source.error(array.place(), what, accepted));
        }
        Ok(Array { tasks, running_max: array.max_running.map(|running| running.value.0) })
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

    /// The descriptions of the gangs of the job: one that all tasks of an array share, or as many as a service has
    /// replicas.
    pub(crate) fn tasks(&self, gang: Gang) -> Vec<Gang> {
        if self.array.is_some() { vec![gang] } else { self.replicas(gang) }
    }
}
