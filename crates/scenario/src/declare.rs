//! The verbs for declarations: `limit`, `torus`, `node` and `submit`.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{
    Advisory, DEVICES_PER_NODE_MAX, DeviceMask, DomainLimit, DomainName, FailureClass, ForeignUse, Job,
    JobId, JobName, LevelName, Node, NodeName, NodeSet, Owner, Policy, Retry, Spot, Stop, Timestamp, Torus,
    TorusPlace,
};
use phalanx_spec::quantity::{parse_cpu_milli, parse_memory, parse_milli};

use crate::parse::{NODES_MAX, Parser, devices};
use crate::shape::Shape;
use crate::turn::{self, Waits};
use crate::words::{Options, Word, Words};
use crate::{ScenarioError, Script, Submission, Verb, gang};

impl Parser {
    /// `uplink leaf 2500`: the uplink of every leaf, in MB/s; `uplink node 50000`: the NICs of every node.
    pub(crate) fn uplink(&self, verb: Word<'_>, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        self.before_nodes(verb, words)?;
        let level = words.expect("a level")?;
        let is_node = level.text == self.levels.node.as_ref();
        let level = if is_node { words.name(level)? } else { self.level_above(level, words)? };
        let mb_per_s = words.expect("a bandwidth in MB/s")?;
        Ok(Verb::Uplink { level, mb_per_s: words.number(mb_per_s)? })
    }

    /// A declared level.
    fn level_above(&self, word: Word<'_>, words: &Words<'_>) -> Result<LevelName, ScenarioError> {
        let level = words.name(word)?;
        if self.levels.above.contains(&level) {
            return Ok(level);
        }
        Err(words.error(word, format!("there is no level {level} above the node")))
    }

    /// `limit leaf power=40`, for every leaf; `limit leaf power=40 at=cluster/l1` for one.
    pub(crate) fn limit(&mut self, verb: Word<'_>, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        self.before_nodes(verb, words)?;
        let level = words.expect("a level")?;
        let level: LevelName = self.level_above(level, words)?;
        let mut options = words.options()?;
        let path = options.take("at").map(|w| gang::names(w, '/', words)).transpose()?;
        for (name, amount) in options.rest() {
            let (resource, amount) = (words.name(name)?, words.number(amount)?);
            self.levels.limits.push(DomainLimit {
                level: level.clone(),
                path: path.clone(),
                resource,
                amount,
            });
        }
        Ok(Verb::Levels(self.levels.clone()))
    }

    /// `torus pod 4x4x8 host=2x2x1 wraps=xz cube=4`
    pub(crate) fn torus(&mut self, verb: Word<'_>, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        self.before_nodes(verb, words)?;
        let word = words.expect("a name")?;
        let name: DomainName = words.name(word)?;
        let sides = words.expect("its chips along x, y and z")?;
        let mut torus = Torus::new(name, gang::sides(sides, words)?, false);
        let mut options = words.options()?;
        if let Some(word) = options.take("host") {
            torus.host_chips = gang::sides(word, words)?;
        }
        if let Some(word) = options.take("wraps") {
            torus.wraps = ['x', 'y', 'z'].map(|axis| word.text.contains(axis));
        }
        torus.cube = options.take("cube").map_or(Ok(0), |w| words.number(w))?;
        options.end(words)?;
        self.levels.tori.push(torus);
        Ok(Verb::Levels(self.levels.clone()))
    }

    /// `node a leaf=l1 gpus=8 shape=hybrid_cube_mesh model=V100 busy=0-1 cpus=96 memory=768GB`; `n-[1-4]`
    /// means four nodes.
    pub(crate) fn node(&mut self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let name = words.expect("a node's name")?;
        let mut options = words.options()?;
        let mut path = Vec::new();
        for (depth, level) in self.levels.above.iter().enumerate() {
            path.push(match options.take(level.as_str()) {
                Some(word) => words.name::<DomainName>(word)?,
                None if depth == 0 => words.name(Word { text: level.as_str(), column: name.column })?,
                None => {
                    return Err(
                        words.error(name, format!("needs {level}=, the domain that contains the node"))
                    );
                }
            });
        }
        let count = options.take("gpus").map_or(Ok(0), |w| words.number(w))?;
        if count > DEVICES_PER_NODE_MAX {
            return Err(words.error(name, format!("a node has at most {DEVICES_PER_NODE_MAX} devices")));
        }
        let shape = options.take("shape").map_or(Ok(Shape::default()), |w| shape(w, words))?;
        if shape == Shape::HybridCubeMesh && count != 8 {
            return Err(words.error(name, "a hybrid cube mesh has gpus=8".into()));
        }
        let model = options.take("model").map_or("", |w| w.text);
        let mut machine = shape.machine(count, model).map_err(|e| words.error(name, e.to_string()))?;
        machine.cpu_milli = options.take("cpus").map_or(Ok(96_000), |w| cpus(w, words))?;
        machine.memory_bytes = options.take("memory").map_or(Ok(1 << 40), |w| memory(w, words))?;
        if let Some(word) = options.take("gpu-memory") {
            let bytes = memory(word, words)?;
            machine.devices.iter_mut().for_each(|device| device.memory_bytes = bytes);
        }
        machine.share_limit_milli = options.take("share-limit").map_or(Ok(0), |w| milli(w, words))?;
        machine.named = options.take("named").map_or(Ok(BTreeMap::new()), |w| gang::amounts(w, words))?;
        let spot = options.take("spot").map(|_| Spot::default());
        let place = options.take("torus").map(|w| self.torus_place(w, words)).transpose()?;
        let machine = Arc::new(machine);
        let foreign = options.take("busy").map_or(Ok(DeviceMask::EMPTY), |w| devices(w, words))?;
        let foreign_use = ForeignUse {
            cpu_milli: options.take("others-cpus").map_or(Ok(0), |w| cpus(w, words))?,
            memory_bytes: options.take("others-memory").map_or(Ok(0), |w| memory(w, words))?,
            named: options.take("others-named").map_or(Ok(BTreeMap::new()), |w| gang::amounts(w, words))?,
        };
        let mut sets: Vec<NodeSet> = options
            .take("sets")
            .map_or_else(Vec::new, |word| word.text.split(',').map(NodeSet::new).collect());
        sets.sort();
        sets.dedup();
        options.end(words)?;

        let mut nodes = Vec::new();
        for (at, text) in expand(name, words)?.iter().enumerate() {
            let node_name: NodeName = words.name(Word { text, column: name.column })?;
            if self.nodes.len() >= NODES_MAX {
                return Err(words.error(name, format!("more than {NODES_MAX} nodes")));
            }
            if !self.nodes.insert(node_name.clone()) {
                return Err(words.error(name, format!("there is a node {node_name} already")));
            }
            nodes.push(Node {
                address: node_name.to_string(),
                foreign,
                foreign_use: foreign_use.clone(),
                sets: sets.clone(),
                spot,
                torus: place.and_then(|place| self.nth_host(place, at)),
                ..Node::new(node_name, path.clone(), Arc::clone(&machine))
            });
        }
        Ok(Verb::Nodes(nodes))
    }

    /// `pod@0,0,0`
    fn torus_place(&self, word: Word<'_>, words: &Words<'_>) -> Result<TorusPlace, ScenarioError> {
        let bad = || {
            words.error(
                word,
                format!(
                    "expected a position such as pod@0,0,0 in a declared torus, and found {:?}",
                    word.text
                ),
            )
        };
        let (name, at) = word.text.split_once('@').ok_or_else(bad)?;
        let torus = self.levels.tori.iter().position(|torus| torus.name.as_str() == name).ok_or_else(bad)?;
        let at: Option<Vec<u16>> = at.split(',').map(|number| number.parse().ok()).collect();
        let at: [u16; 3] = at.and_then(|at| at.try_into().ok()).ok_or_else(bad)?;
        Ok(TorusPlace { torus: u32::try_from(torus).map_err(|_| bad())?, at })
    }

    /// The hosts of a pattern follow each other along x, then y, then z.
    fn nth_host(&self, first: TorusPlace, nth: usize) -> Option<TorusPlace> {
        let torus = self.levels.tori.get(usize::try_from(first.torus).ok()?)?;
        let mut nth = u32::try_from(nth).ok()?;
        let mut at = first.at;
        for ((at, side), host) in at.iter_mut().zip(torus.chips).zip(torus.host_chips) {
            let host = host.max(1);
            let hosts = u32::from(side / host).max(1);
            let place = u32::from(*at / host) + nth;
            *at = u16::try_from(place % hosts).ok()?.checked_mul(host)?;
            nth = place / hosts;
        }
        Some(TorusPlace { at, ..first })
    }

    /// `submit bert ranks=4 gpus=4 time=10m required=nvlink retry=2:user_code priority=5 runs=60s`
    pub(crate) fn submit(&mut self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let word = words.expect("a job's name")?;
        let name: JobName = words.name(word)?;
        if self.jobs.contains(&name) {
            return Err(words.error(word, format!("there is a job {name} already")));
        }
        let mut options = words.options()?;
        let gang = gang::gang(&mut options, words)?;
        let policy = policy(&mut options, words)?;
        let queue = turn::queue(&mut options, words)?;
        let Waits { turn, after, replicas } = self.waits(&mut options, words)?;
        let script = script(&mut options, words)?;
        let priority = options.take("priority").map_or(Ok(0), |w| words.number(w))?;
        let key = options.take("key").map(|w| w.text.to_owned());
        options.end(words)?;
        self.jobs.insert(name.clone());
        let job = Job {
            id: JobId(0),
            name,
            key,
            owner: Owner { uid: 1000, gid: 1000, name: "user".into() },
            queue,
            priority,
            submitted_at: Timestamp(0),
            gangs: vec![gang; replicas],
            policy,
            turn,
        };
        Ok(Verb::Submit(Box::new(Submission { job, after, script })))
    }
}

fn policy(options: &mut Options<'_>, words: &Words<'_>) -> Result<Policy, ScenarioError> {
    let default = Policy::default();
    let time_limit_ms = options.take("time").map(|w| words.duration_ms(w)).transpose()?;
    let start_deadline_ms =
        options.take("start-deadline").map_or(Ok(default.start_deadline_ms), |w| words.duration_ms(w))?;
    let advisory = match options.take("advisory") {
        None => None,
        Some(word) => {
            let (signal, lead) = word.text.split_once('@').unwrap_or((word.text, "30s"));
            let lead = Word { text: lead, column: word.column + signal.chars().count() + 1 };
            let signal = words.number(Word { text: signal, ..word })?;
            Some(Advisory { signal, lead_ms: words.duration_ms(lead)? })
        }
    };
    let grace_ms = options.take("grace").map_or(Ok(default.stop.grace_ms), |w| words.duration_ms(w))?;
    let mut retry = Retry { ..default.retry };
    if let Some(word) = options.take("retry") {
        let (max, on) = word.text.split_once(':').unwrap_or((word.text, "user_code"));
        retry.max = words.number(Word { text: max, ..word })?;
        for class in on.split(',') {
            retry.on.push(failure_class(class).ok_or_else(|| {
                let known: Vec<&str> = FailureClass::ALL.iter().map(|c| c.word()).collect();
                words.error(word, format!("unknown failure {class:?}; known are {}", known.join(", ")))
            })?);
        }
    }
    if let Some(word) = options.take("backoff") {
        retry.backoff_ms = words.duration_ms(word)?;
    }
    Ok(Policy {
        time_limit_ms,
        start_deadline_ms,
        stop: Stop { advisory, grace_ms },
        retry,
        preempt: turn::preempt(options, words)?,
        idle_limit_ms: options.take("idle").map(|w| words.duration_ms(w)).transpose()?,
    })
}

fn failure_class(text: &str) -> Option<FailureClass> {
    FailureClass::ALL.into_iter().find(|c| c.word() == text)
}

fn script(options: &mut Options<'_>, words: &Words<'_>) -> Result<Script, ScenarioError> {
    let default = Script::default();
    let or_never = |word: Option<Word<'_>>, never: &str, default| match word {
        None => Ok(default),
        Some(word) if word.text == never => Ok(None),
        Some(word) => words.duration_ms(word).map(Some),
    };
    let saves = options.take("saves").map(|w| Ok((w, words.duration_ms(w)?))).transpose()?;
    if let Some((word, 0)) = saves {
        return Err(words.error(word, "the time between two checkpoints must be above 0".to_owned()));
    }
    Ok(Script {
        starts_ms: or_never(options.take("starts"), "never", default.starts_ms)?,
        runs_ms: or_never(options.take("runs"), "forever", default.runs_ms)?,
        code: options.take("code").map_or(Ok(default.code), |w| words.number(w))?,
        term_ms: or_never(options.take("term"), "ignore", default.term_ms)?,
        fail_start: options.take("fail-start").map(|w| words.number(w)).transpose()?,
        saves_ms: saves.map(|(_, ms)| ms),
        save_takes_ms: options
            .take("save-takes")
            .map_or(Ok(default.save_takes_ms), |w| words.duration_ms(w))?,
        speeds_milli: default.speeds_milli,
    })
}

fn shape(word: Word<'_>, words: &Words<'_>) -> Result<Shape, ScenarioError> {
    let known: Vec<&str> = Shape::ALL.iter().map(|s| s.word()).collect();
    let what = || format!("unknown shape {:?}; known are {}", word.text, known.join(", "));
    Shape::ALL.into_iter().find(|s| s.word() == word.text).ok_or_else(|| words.error(word, what()))
}

/// A decimal number in thousandths: `2.5`.
pub(crate) fn milli(word: Word<'_>, words: &Words<'_>) -> Result<u32, ScenarioError> {
    let bad = || words.error(word, format!("expected a number such as 0.25, and found {:?}", word.text));
    parse_milli(word.text).ok().and_then(|milli| u32::try_from(milli).ok()).ok_or_else(bad)
}

pub(crate) fn cpus(word: Word<'_>, words: &Words<'_>) -> Result<u64, ScenarioError> {
    parse_cpu_milli(word.text).map_err(|e| words.error(word, format!("{:?} {e}", word.text)))
}

pub(crate) fn memory(word: Word<'_>, words: &Words<'_>) -> Result<u64, ScenarioError> {
    parse_memory(word.text).map_err(|e| words.error(word, format!("{:?} {e}", word.text)))
}

/// Expands `n-[1-4]` to `n-1` to `n-4`. Other names are returned as they are.
pub(crate) fn expand(word: Word<'_>, words: &Words<'_>) -> Result<Vec<String>, ScenarioError> {
    let Some((before, rest)) = word.text.split_once('[') else { return Ok(vec![word.text.to_owned()]) };
    let range = rest.split_once(']').and_then(|(range, after)| {
        let (first, last) = range.split_once('-')?;
        Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?, after))
    });
    match range {
        Some((first, last, after)) if first <= last && last - first < NODES_MAX => {
            Ok((first..=last).map(|i| format!("{before}{i}{after}")).collect())
        }
        _ => {
            Err(words
                .error(word, format!("expected a pattern such as n-[1-4], with at most {NODES_MAX} nodes")))
        }
    }
}
