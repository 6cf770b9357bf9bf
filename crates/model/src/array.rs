//! Arrays: one description of a gang, and the numbers of the tasks that run it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Ending, Gang, GangId, GangRecord, Job, Phase, Timestamp};

/// Tasks of one array.
pub const TASKS_MAX: u32 = 100_000;
/// Ranges in which the numbers of an array may be said.
pub const TASK_RANGES_MAX: usize = 10_000;

/// Tasks that run independently.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Array {
    /// The numbers of the tasks. Empty: they count from 0, one for each gang of the job.
    #[serde(default, skip_serializing_if = "Tasks::is_empty")]
    pub tasks: Tasks,
    /// The most tasks that run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
}

/// Different numbers of tasks in ascending order, as text `0-99999` or `1-10:3,15`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct Tasks(Vec<Range>);

/// Every `step`th number from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Range {
    first: u32,
    last: u32,
    step: u32,
    /// Numbers in the ranges before.
    before: u32,
}

/// The gangs of a job by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Progress {
    pub pending: u32,
    pub starting: u32,
    pub running: u32,
    pub stopping: u32,
    pub succeeded: u32,
    /// Ended in another way.
    pub failed: u32,
    /// When the first gang started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When the last gang ended, of those that have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

impl Progress {
    /// The progress of a job with these records.
    #[must_use]
    pub fn of<'a>(records: impl IntoIterator<Item = &'a GangRecord>) -> Self {
        let mut progress = Self::default();
        records.into_iter().for_each(|record| progress.count(record));
        progress
    }

    /// Counts a gang in its phase.
    pub fn count(&mut self, record: &GangRecord) {
        *self.of_phase(&record.phase) += 1;
        self.started_at = [self.started_at, record.first_started_at].into_iter().flatten().min();
        if let Phase::Finished { at, .. } = record.phase {
            self.ended_at = self.ended_at.max(Some(at));
        }
    }

    /// Counts a gang in this phase no longer.
    pub const fn uncount(&mut self, phase: &Phase) {
        let count = self.of_phase(phase);
        *count = count.saturating_sub(1);
    }

    const fn of_phase(&mut self, phase: &Phase) -> &mut u32 {
        match phase {
            Phase::Pending { .. } => &mut self.pending,
            Phase::Starting { .. } => &mut self.starting,
            Phase::Running { .. } => &mut self.running,
            Phase::Stopping { .. } => &mut self.stopping,
            Phase::Finished { ending: Ending::Succeeded, .. } => &mut self.succeeded,
            Phase::Finished { .. } => &mut self.failed,
        }
    }
}

/// Why a text does not say the numbers of tasks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TasksError {
    #[error("{0:?} is no number of a task")]
    NoNumber(String),
    #[error("the range {0} runs backwards")]
    Backwards(String),
    #[error("the range {0} has the step 0")]
    NoStep(String),
    #[error("task {0} is named twice")]
    Twice(u32),
    #[error("more than {TASKS_MAX} tasks")]
    TooMany,
    #[error("the numbers take more than {TASK_RANGES_MAX} ranges")]
    TooScattered,
}

impl Range {
    const fn count(&self) -> u32 {
        (self.last - self.first) / self.step + 1
    }
}

impl Tasks {
    /// Tasks that count from 0.
    #[must_use]
    pub fn first(count: u32) -> Self {
        match count.min(TASKS_MAX).checked_sub(1) {
            Some(last) => Self(vec![Range { first: 0, last, step: 1, before: 0 }]),
            None => Self::default(),
        }
    }

    /// One task.
    #[must_use]
    pub fn one(number: u32) -> Self {
        Self(vec![Range { first: number, last: number, step: 1, before: 0 }])
    }

    /// Reads numbers and ranges, such as `1,4,7-9` or `0-100:5`, in any order.
    ///
    /// # Errors
    /// If a part is no number and no range, a number is named twice, or there are too many.
    pub fn read(text: &str) -> Result<Self, TasksError> {
        let mut numbers = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (first, last, step) = read_range(part)?;
            let steps = (last - first) / step;
            if numbers.len() + steps as usize >= TASKS_MAX as usize {
                return Err(TasksError::TooMany);
            }
            numbers.extend((0..=steps).map(|at| first + at * step));
        }
        numbers.sort_unstable();
        Self::of(&numbers)
    }

    /// Tasks with these numbers, in ascending order.
    fn of(numbers: &[u32]) -> Result<Self, TasksError> {
        if let Some(pair) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TasksError::Twice(pair[0]));
        }
        let mut ranges = Vec::new();
        let mut rest = numbers;
        let mut before = 0;
        while let Some(first) = rest.first().copied() {
            let step = rest.get(1).map_or(1, |second| second - first);
            let steps = rest.windows(2).take_while(|pair| pair[1] - pair[0] == step).count();
            // Two numbers far apart are no range.
            let (count, step) = if step > 1 && steps == 1 { (1, 1) } else { (steps + 1, step) };
            let last = rest.get(count - 1).copied().unwrap_or(first);
            let range = Range { first, last, step: if count == 1 { 1 } else { step }, before };
            before += range.count();
            ranges.push(range);
            rest = rest.get(count..).unwrap_or_default();
        }
        if ranges.len() > TASK_RANGES_MAX {
            return Err(TasksError::TooScattered);
        }
        Ok(Self(ranges))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.last().map_or(0, |range| range.before + range.count())
    }

    /// The number of the task with an index.
    #[must_use]
    pub fn number(&self, index: u32) -> Option<u32> {
        let after = self.0.partition_point(|range| range.before <= index);
        let range = self.0.get(after.checked_sub(1)?)?;
        let at = index - range.before;
        (at < range.count()).then(|| range.first + at * range.step)
    }

    /// The index of the task with a number.
    #[must_use]
    pub fn index(&self, number: u32) -> Option<u32> {
        let after = self.0.partition_point(|range| range.first <= number);
        let range = self.0.get(after.checked_sub(1)?)?;
        let is_in = number <= range.last && (number - range.first).is_multiple_of(range.step);
        is_in.then(|| range.before + (number - range.first) / range.step)
    }

    /// The lowest number.
    #[must_use]
    pub fn min(&self) -> Option<u32> {
        self.0.first().map(|range| range.first)
    }

    /// The highest number.
    #[must_use]
    pub fn max(&self) -> Option<u32> {
        self.0.last().map(|range| range.last)
    }

    /// The distance of the numbers, if all have the same.
    #[must_use]
    pub fn step(&self) -> Option<u32> {
        match self.0.as_slice() {
            [one] => Some(one.step),
            _ => None,
        }
    }

    /// All numbers, in ascending order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().flat_map(|range| (0..range.count()).map(|at| range.first + at * range.step))
    }
}

/// Reads `N`, `N-M` or `N-M:STEP`. The last number is one of the range.
fn read_range(part: &str) -> Result<(u32, u32, u32), TasksError> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let parsed = text.parse::<u32>().ok().filter(|_| is_number);
        parsed.ok_or_else(|| TasksError::NoNumber(text.to_owned()))
    };
    let Some((first, rest)) = part.split_once('-') else {
        let one = number(part)?;
        return Ok((one, one, 1));
    };
    let (last, step) = rest.split_once(':').map_or((rest, "1"), |(last, step)| (last, step));
    let (first, last, step) = (number(first.trim())?, number(last.trim())?, number(step.trim())?);
    if first > last {
        return Err(TasksError::Backwards(part.to_owned()));
    }
    if step == 0 {
        return Err(TasksError::NoStep(part.to_owned()));
    }
    Ok((first, last - (last - first) % step, step))
}

impl fmt::Display for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Range { first, last, step, .. }) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match (first == last, step) {
                (true, _) => write!(f, "{comma}{first}")?,
                (false, 1) => write!(f, "{comma}{first}-{last}")?,
                (false, step) => write!(f, "{comma}{first}-{last}:{step}")?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Tasks {
    type Error = TasksError;
    fn try_from(text: String) -> Result<Self, TasksError> {
        Self::read(&text)
    }
}

impl From<Tasks> for String {
    fn from(tasks: Tasks) -> Self {
        tasks.to_string()
    }
}

impl Job {
    /// The number of gangs: of an array, of its tasks.
    #[must_use]
    pub fn gang_count(&self) -> u32 {
        self.shared().unwrap_or_else(|| u32::try_from(self.gangs.len()).unwrap_or(u32::MAX))
    }

    /// The tasks that share one description; `None` if each gang has its own.
    fn shared(&self) -> Option<u32> {
        let tasks = self.turn.array.as_ref()?.tasks.count();
        (self.gangs.len() == 1 && tasks > 1).then_some(tasks)
    }

    /// The description of a gang.
    #[must_use]
    pub fn gang_at(&self, index: u32) -> Option<&Gang> {
        match self.shared() {
            Some(tasks) => self.gangs.first().filter(|_| index < tasks),
            None => self.gangs.get(index as usize),
        }
    }

    /// The description of a gang, to change it for this gang alone: from then on each task of an array has its own.
    pub fn gang_mut(&mut self, index: u32) -> Option<&mut Gang> {
        if let (Some(tasks), Some(one)) = (self.shared(), self.gangs.first().cloned()) {
            self.gangs.resize(tasks as usize, one);
        }
        self.gangs.get_mut(index as usize)
    }

    /// All gangs, in the order of their indices.
    pub fn gang_ids(&self) -> impl ExactSizeIterator<Item = GangId> + use<> {
        let id = self.id;
        (0..self.gang_count()).map(move |index| GangId { job: id, index })
    }

    /// The description of each gang, in the order of their indices.
    pub fn each_gang(&self) -> impl Iterator<Item = &Gang> {
        (0..self.gang_count()).filter_map(|index| self.gang_at(index))
    }

    /// The number of a task of an array.
    #[must_use]
    pub fn task_number(&self, index: u32) -> Option<u32> {
        let array = self.turn.array.as_ref().filter(|_| index < self.gang_count())?;
        if array.tasks.is_empty() { Some(index) } else { array.tasks.number(index) }
    }

    /// The index of a task of an array by its number.
    #[must_use]
    pub fn task_index(&self, number: u32) -> Option<u32> {
        let array = self.turn.array.as_ref()?;
        let index = if array.tasks.is_empty() { Some(number) } else { array.tasks.index(number) };
        index.filter(|index| *index < self.gang_count())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_read_and_written_as_ranges() {
        for (text, shown, count) in [
            ("7", "7", 1),
            ("0-99999", "0-99999", 100_000),
            ("1-10:3", "1-10:3", 4),
            ("1-9:3", "1-7:3", 3),
            ("9, 1 ,4,7-8", "1-7:3,8-9", 5),
            ("1-9:2,2-10:2", "1-10", 10),
            ("3,900", "3,900", 2),
        ] {
            let tasks = Tasks::read(text).unwrap();
            assert_eq!((tasks.to_string().as_str(), tasks.count()), (shown, count), "{text}");
            assert_eq!(Tasks::read(shown), Ok(tasks));
        }
    }

    #[test]
    fn numbers_that_cannot_be_read_say_why() {
        for (text, why) in [
            ("", "\"\" is no number of a task"),
            ("1,,2", "\"\" is no number of a task"),
            ("x-3", "\"x\" is no number of a task"),
            ("+3", "\"+3\" is no number of a task"),
            ("4294967296", "\"4294967296\" is no number of a task"),
            ("9-3", "the range 9-3 runs backwards"),
            ("1-3:0", "the range 1-3:0 has the step 0"),
            ("1-5,4", "task 4 is named twice"),
            ("0-100000", "more than 100000 tasks"),
            ("0-4294967295", "more than 100000 tasks"),
        ] {
            assert_eq!(Tasks::read(text).map_err(|why| why.to_string()), Err(why.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_number_has_its_index(numbers in prop::collection::btree_set(0_u32..300, 1..60)) {
            let numbers: Vec<u32> = numbers.into_iter().collect();
            let tasks = Tasks::of(&numbers).unwrap();
            prop_assert_eq!(tasks.numbers().collect::<Vec<_>>(), numbers.as_slice());
            prop_assert_eq!(tasks.count() as usize, numbers.len());
            for number in 0..301 {
                let index = numbers.iter().position(|known| *known == number);
                prop_assert_eq!(tasks.index(number).map(|at| at as usize), index);
            }
            for index in 0..=tasks.count() {
                prop_assert_eq!(tasks.number(index), numbers.get(index as usize).copied());
            }
            prop_assert_eq!(Tasks::read(&tasks.to_string()), Ok(tasks));
        }
    }
}
