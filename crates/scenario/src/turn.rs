//! The options of `submit` for the order in which jobs start.

use phalanx_model::later::{Calendar, SpotNotice};
use phalanx_model::{
    Array, Bandwidth, DeviceMask, EndOf, Grade, Health, JobName, Preempt, PreemptMode, QueueName, TASKS_MAX,
    Tasks, Timestamp, Turn, Uplink,
};

use crate::gang::items;
use crate::parse::Parser;
use crate::words::{Options, Word, Words};
use crate::{ScenarioError, Verb, service};

/// The user who holds, releases and boosts jobs in a scenario.
pub(crate) const USER: &str = "user";

/// The terms of the order, the names of dependencies, and the number of descriptions of equal gangs.
pub(crate) struct Waits {
    pub(crate) turn: Turn,
    pub(crate) after: Vec<(JobName, EndOf)>,
    pub(crate) replicas: usize,
}

impl Parser {
    pub(crate) fn waits(&self, options: &mut Options<'_>, words: &Words<'_>) -> Result<Waits, ScenarioError> {
        let array = options.take("array").map(|word| array(word, words)).transpose()?;
        let service = service::service(options, words)?;
        let replicas = service.as_ref().map_or(1, |(_, replicas)| *replicas);
        let turn = Turn {
            class: options.take("class").map(|w| words.name(w)).transpose()?,
            held_by: options.take("hold").map(|_| USER.to_owned()),
            begins_at: options.take("begin").map(|w| instant(w, words)).transpose()?,
            deadline: options.take("deadline").map(|w| instant(w, words)).transpose()?,
            array,
            takes_spot: options.take("takes-spot").is_some(),
            service: service.map(|(service, _)| service),
            ..Turn::default()
        };
        let after = options.take("after").into_iter().flat_map(|word| items(word, ','));
        let after: Result<_, _> = after.map(|item| self.after(item, words)).collect();
        Ok(Waits { turn, after: after?, replicas })
    }

    /// `first`, `first:any`, `first:failure`
    fn after(&self, word: Word<'_>, words: &Words<'_>) -> Result<(JobName, EndOf), ScenarioError> {
        let (job, end) = word.text.split_once(':').unwrap_or((word.text, "success"));
        let job = self.known_job(Word { text: job, ..word }, words)?;
        let end = match end {
            "success" => EndOf::Success,
            "failure" => EndOf::Failure,
            "any" => EndOf::Any,
            other => {
                let what = format!("unknown end {other:?}; known are success, failure, any");
                return Err(words.error(word, what));
            }
        };
        Ok((job, end))
    }

    /// `boost bert priority=10 until=2h`
    pub(crate) fn boost(&self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let word = words.expect("a job")?;
        let job = self.known_job(word, words)?;
        let mut options = words.options()?;
        let needs = |what: &str| words.error(word, format!("a boost needs {what}"));
        let priority = options.take("priority").ok_or_else(|| needs("priority="))?;
        let until = options.take("until").ok_or_else(|| needs("until="))?;
        options.end(words)?;
        Ok(Verb::Boost { job, priority: words.number(priority)?, until: instant(until, words)? })
    }
}

impl Parser {
    /// `window a from=2h to=4h for=team`
    pub(crate) fn window(&self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let node = self.known_node(words)?;
        let mut options = words.options()?;
        let begins_at = options.take("from").map_or(Ok(Timestamp(0)), |w| instant(w, words))?;
        let ends_at = options.take("to").map_or(Ok(Timestamp::MAX), |w| instant(w, words))?;
        let held_for = options.take("for").map(|w| self.queue_named(w, words)).transpose()?;
        options.end(words)?;
        Ok(Verb::Window(Calendar { node, begins_at, ends_at, held_for, is_declared: false }))
    }

    /// `measure a 40% why=perftest`, or `measure cluster/l1 50%` for the uplink of a domain; `100%` ends it.
    pub(crate) fn measure(&self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let word = words.expect("a node, or a domain by its path")?;
        let uplink = if word.text.contains('/') {
            let names = word.text.split('/').map(|text| words.name(Word { text, ..word }));
            Uplink::Domain(names.collect::<Result<_, _>>()?)
        } else {
            Uplink::Node(self.node_named(word, words)?)
        };
        let word = words.expect("a share of the bandwidth")?;
        let percent: Option<u16> = word.text.strip_suffix('%').and_then(|text| text.parse().ok());
        let permille = percent.filter(|percent| *percent <= 100).map(|percent| percent * 10);
        let what = || format!("expected a share such as 40%, and found {:?}", word.text);
        let permille = permille.ok_or_else(|| words.error(word, what()))?;
        let mut options = words.options()?;
        let detail = options.take("why").map_or_else(String::new, |word| word.text.replace('-', " "));
        options.end(words)?;
        let at = Timestamp::default();
        Ok(Verb::Measure(Bandwidth { uplink, permille, counts_permille: permille, at, detail }))
    }

    /// `spot-notice a at=2h`
    /// `grade a broken gpus=3 why=Xid-79`; without `gpus` the node itself.
    pub(crate) fn grade(&self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let node = self.known_node(words)?;
        let word = words.expect("a grade")?;
        let grade = Grade::of_word(word.text).ok_or_else(|| {
            let known = Grade::ALL.map(Grade::word).join(", ");
            words.error(word, format!("unknown grade {:?}; known are {known}", word.text))
        })?;
        let mut options = words.options()?;
        let devices = options.take("gpus").map(|word| {
            let what = || format!("expected devices such as 3 or 0-2,5, and found {:?}", word.text);
            word.text.parse().map_err(|_| words.error(word, what()))
        });
        let devices = devices.unwrap_or(Ok(DeviceMask::EMPTY))?;
        let detail = options.take("why").map_or_else(String::new, |word| word.text.replace('-', " "));
        options.end(words)?;
        Ok(Verb::Grade(Health { node, devices, grade, detail }))
    }

    pub(crate) fn spot_notice(&self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let node = self.known_node(words)?;
        let mut options = words.options()?;
        let ends_at = options.take("at").map_or(Ok(Timestamp::MAX), |w| instant(w, words))?;
        options.end(words)?;
        Ok(Verb::SpotNotice(SpotNotice { node, ends_at }))
    }
}

/// `3`: three tasks; `3%1`: one at a time.
fn array(word: Word<'_>, words: &Words<'_>) -> Result<Array, ScenarioError> {
    let (tasks, most) = match word.text.split_once('%') {
        None => (word.text, None),
        Some((tasks, most)) => {
            let column = word.column + tasks.chars().count() + 1;
            (tasks, Some(words.number(Word { text: most, column })?))
        }
    };
    let tasks: u32 = words.number(Word { text: tasks, ..word })?;
    if !(1..=TASKS_MAX).contains(&tasks) {
        return Err(words.error(word, format!("an array has 1 to {TASKS_MAX} tasks")));
    }
    Ok(Array { tasks: Tasks::first(tasks), running_max: most })
}

/// A time as scenarios print it: the span since the start of the scenario.
fn instant(word: Word<'_>, words: &Words<'_>) -> Result<Timestamp, ScenarioError> {
    words.duration_ms(word).map(Timestamp)
}

/// `preempt=never|cancel|requeue`, `pinned`, `may-move`
pub(crate) fn preempt(options: &mut Options<'_>, words: &Words<'_>) -> Result<Preempt, ScenarioError> {
    let mode = match options.take("preempt") {
        None => PreemptMode::default(),
        Some(word) => match word.text {
            "requeue" => PreemptMode::Requeue,
            "cancel" => PreemptMode::Cancel,
            "never" => PreemptMode::Never,
            other => {
                let what = format!("unknown preempt {other:?}; known are requeue, cancel, never");
                return Err(words.error(word, what));
            }
        },
    };
    let (is_pinned, may_move) = (options.take("pinned").is_some(), options.take("may-move").is_some());
    Ok(Preempt { mode, is_pinned, may_move })
}

pub(crate) fn queue(options: &mut Options<'_>, words: &Words<'_>) -> Result<QueueName, ScenarioError> {
    let default = || QueueName::new("default").unwrap_or_else(|_| unreachable!("a constant name"));
    options.take("queue").map_or_else(|| Ok(default()), |w| words.name(w))
}
