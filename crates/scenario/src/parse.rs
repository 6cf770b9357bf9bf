//! Parses text into verbs. Checks that need no world are made here: names, amounts, levels, and nodes and jobs that
//! were never declared.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{
    DEVICES_PER_NODE_MAX, Ending, JobName, LevelName, Levels, NodeName, Phase, Queue, QueueName, Settings,
};

use crate::words::{Word, Words};
use crate::{Expectation, Line, ScenarioError, Verb, queues};

/// Guards against absurd input.
const TEXT_BYTES_MAX: usize = 4 << 20;
pub(crate) const NODES_MAX: usize = 100_000;

const VERBS: &str = "levels, limit, torus, node, settings, class, queue, queue-gone, submit, advance, exit, kill-rank, \
                     saved, hold, release, boost, scale, load, use, cancel, cordon, uncordon, drain, defrag, grade, measure, window, spot-notice, node-lost, node-back, crash, show, \
                     why, expect";

/// Reads a scenario.
///
/// # Errors
/// An invalid word, with its line and column.
pub fn parse(text: &str) -> Result<Vec<Line>, ScenarioError> {
    let mut parser = Parser::default();
    if text.len() > TEXT_BYTES_MAX {
        let what =
            format!("a scenario has at most {TEXT_BYTES_MAX} bytes, and this scenario has {}", text.len());
        return Err(Words::of(1, "").error(Word { text: "", column: 1 }, what));
    }
    let mut lines = Vec::new();
    for (i, text) in text.lines().enumerate() {
        let mut words = Words::of(i + 1, text);
        if let Some(verb) = words.next() {
            let verb = parser.verb(verb, &mut words)?;
            lines.push(Line { number: i + 1, text: text.trim().to_owned(), verb });
        }
    }
    Ok(lines)
}

/// The declarations so far.
#[derive(Debug)]
pub(crate) struct Parser {
    pub(crate) levels: Levels,
    pub(crate) nodes: BTreeSet<NodeName>,
    pub(crate) jobs: BTreeSet<JobName>,
    pub(crate) queues: BTreeMap<QueueName, Queue>,
    pub(crate) settings: Settings,
}

impl Default for Parser {
    fn default() -> Self {
        let level = |name| LevelName::new(name).unwrap_or_else(|_| unreachable!("a constant name"));
        let levels = Levels::new(vec![level("cluster")], level("node"));
        let (nodes, jobs, queues) = (BTreeSet::new(), BTreeSet::new(), BTreeMap::new());
        Self { levels, nodes, jobs, queues, settings: Settings::default() }
    }
}

impl Parser {
    fn verb(&mut self, verb: Word<'_>, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let parsed = match verb.text {
            "levels" => self.levels(verb, words)?,
            "uplink" => self.uplink(verb, words)?,
            "limit" => return self.limit(verb, words),
            "torus" => return self.torus(verb, words),
            "node" => return self.node(words),
            "settings" => return self.settings(words),
            "class" => return self.class(words),
            "queue" => return self.queue(words),
            "queue-gone" => self.queue_gone(words)?,
            "submit" => return self.submit(words),
            "advance" => {
                let span = words.expect("a time")?;
                Verb::Advance { ms: words.duration_ms(span)? }
            }
            "exit" => self.exit(words)?,
            "kill-rank" => {
                let job = self.job(words)?;
                let rank = words.expect("a rank")?;
                Verb::KillRank { job, rank: words.number(rank)? }
            }
            "cordon" => Verb::Cordon(self.known_node(words)?),
            "uncordon" => Verb::Uncordon(self.known_node(words)?),
            "drain" => Verb::Drain(self.known_node(words)?),
            "defrag" => Verb::Defrag(self.job(words)?),
            "grade" => return self.grade(words),
            "measure" => return self.measure(words),
            "window" => return self.window(words),
            "spot-notice" => return self.spot_notice(words),
            "node-lost" => Verb::NodeLost(self.known_node(words)?),
            "node-back" => Verb::NodeBack(self.known_node(words)?),
            "saved" => Verb::Saved(self.job(words)?),
            "hold" => Verb::Hold(self.job(words)?),
            "release" => Verb::Release(self.job(words)?),
            "boost" => return self.boost(words),
            "cancel" => Verb::Cancel(self.job(words)?),
            "scale" => self.scale(words)?,
            "load" => self.load(words)?,
            "use" => Verb::Use(self.job(words)?),
            "crash" => Verb::Crash,
            "show" => match words.next() {
                None => Verb::Show,
                Some(word) if word.text == "queues" => Verb::ShowQueues,
                Some(word) => {
                    let what = format!("unknown view {:?}; known are queues, all", word.text);
                    return Err(words.error(word, what));
                }
            },
            "why" => Verb::Why(self.job(words)?),
            "expect" => self.expectation(words)?,
            other => {
                return Err(words.error(verb, format!("unknown verb {other:?}; known are {VERBS}")));
            }
        };
        words.end()?;
        Ok(parsed)
    }

    fn levels(&mut self, verb: Word<'_>, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        self.before_nodes(verb, words)?;
        let mut levels: Vec<LevelName> = Vec::new();
        let first = words.expect("a level, outermost first")?;
        let mut next = Some(first);
        while let Some(word) = next {
            let level: LevelName = words.name(word)?;
            if levels.contains(&level) || level.as_str() == "node" {
                return Err(words.error(word, format!("there is a level {level} already")));
            }
            levels.push(level);
            next = words.next();
        }
        self.levels = Levels::new(levels, self.levels.node.clone());
        Ok(Verb::Levels(self.levels.clone()))
    }

    /// Checks that a verb for the whole cluster comes before the first node.
    pub(crate) fn before_nodes(&self, verb: Word<'_>, words: &Words<'_>) -> Result<(), ScenarioError> {
        if self.nodes.is_empty() {
            return Ok(());
        }
        Err(words.error(verb, format!("{} must come before the first node", verb.text)))
    }

    fn exit(&self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let job = self.job(words)?;
        let mut options = words.options()?;
        let rank = options.take("rank").map_or(Ok(0), |w| words.number(w))?;
        let code = options.take("code").map_or(Ok(0), |w| words.number(w))?;
        options.end(words)?;
        Ok(Verb::Exit { job, rank, code })
    }

    fn expectation(&self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let states: Vec<&str> = Phase::LIVING.into_iter().chain(Ending::WORDS).chain(["rejected"]).collect();
        let first = words.expect("a job, a queue, or nothing-held")?;
        if first.text == "nothing-held" {
            return Ok(Verb::Expect(Expectation::NothingHeld));
        }
        let state = words.expect("a state")?;
        if state.text == "uses" {
            let queue = self.queue_named(first, words)?;
            let amounts = queues::amounts_of(words.expect("an amount such as gpus:8")?, words)?;
            return Ok(Verb::Expect(Expectation::Uses { queue, amounts }));
        }
        if state.text == "runs" {
            return self.runs(first, words);
        }
        let job = self.known_job(first, words)?;
        Ok(Verb::Expect(match state.text {
            "on" => Expectation::On { job, nodes: self.known_nodes(words)? },
            "held" => {
                let on = words.expect("on, and nodes")?;
                if on.text != "on" {
                    return Err(words.error(on, format!("expected on and nodes, and found {:?}", on.text)));
                }
                Expectation::Held { job, nodes: self.known_nodes(words)? }
            }
            "evicted" => {
                let times = words.expect("a number of times")?;
                Expectation::Evicted { job, times: words.number(times)? }
            }
            "pending" => {
                let reason = words.next().map(|w| w.text.to_owned());
                Expectation::Job { job, state: state.text.to_owned(), reason }
            }
            known if states.contains(&known) => {
                Expectation::Job { job, state: known.to_owned(), reason: None }
            }
            other => {
                let known = states.join(", ");
                let what = format!("unknown state {other:?}; known are on, held, evicted, runs, {known}");
                return Err(words.error(state, what));
            }
        }))
    }

    /// At least one node, in order.
    fn known_nodes(&self, words: &mut Words<'_>) -> Result<Vec<NodeName>, ScenarioError> {
        let mut nodes: Vec<NodeName> = vec![self.known_node(words)?];
        while let Some(word) = words.next() {
            nodes.push(self.node_named(word, words)?);
        }
        nodes.sort();
        Ok(nodes)
    }

    pub(crate) fn job(&self, words: &mut Words<'_>) -> Result<JobName, ScenarioError> {
        let word = words.expect("a job")?;
        self.known_job(word, words)
    }

    pub(crate) fn known_job(&self, word: Word<'_>, words: &Words<'_>) -> Result<JobName, ScenarioError> {
        let name: JobName = words.name(word)?;
        if self.jobs.contains(&name) {
            return Ok(name);
        }
        Err(words.error(
            word,
            format!("no job {name} was submitted before; submitted are {}", list(self.jobs.iter())),
        ))
    }

    pub(crate) fn known_node(&self, words: &mut Words<'_>) -> Result<NodeName, ScenarioError> {
        let word = words.expect("a node")?;
        self.node_named(word, words)
    }

    pub(crate) fn node_named(&self, word: Word<'_>, words: &Words<'_>) -> Result<NodeName, ScenarioError> {
        let name: NodeName = words.name(word)?;
        if self.nodes.contains(&name) {
            return Ok(name);
        }
        Err(words.error(
            word,
            format!("no node {name} was declared before; declared are {}", list(self.nodes.iter())),
        ))
    }
}

/// The first names of a list, for messages.
pub(crate) fn list<'a, T: ToString + 'a>(names: impl ExactSizeIterator<Item = &'a T>) -> String {
    const SHOWN: usize = 10;
    let count = names.len();
    let mut shown: Vec<String> = names.take(SHOWN).map(ToString::to_string).collect();
    match count {
        0 => shown.push("none".to_owned()),
        n if n > SHOWN => shown.push(format!("{} more", n - SHOWN)),
        _ => {}
    }
    shown.join(", ")
}

/// Device numbers: `0-3,6`.
pub(crate) fn devices(word: Word<'_>, words: &Words<'_>) -> Result<phalanx_model::DeviceMask, ScenarioError> {
    let mut mask = phalanx_model::DeviceMask::EMPTY;
    for part in word.text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text| words.number::<u32>(Word { text, column: word.column });
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last >= DEVICES_PER_NODE_MAX {
            let what = format!(
                "expected devices or ranges from 0 to {}, and found {part:?}",
                DEVICES_PER_NODE_MAX - 1
            );
            return Err(words.error(word, what));
        }
        mask = (first..=last).fold(mask, |m, i| m.union(phalanx_model::DeviceMask::one(i)));
    }
    Ok(mask)
}
