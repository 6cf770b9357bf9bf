//! The verbs for sharing a cluster: `queue`, `queue-gone`, `settings`, `class`. A repeated verb changes an existing
//! object, and options that are absent keep their values.

use phalanx_model::{
    Access, Amounts, Class, ClassName, LevelName, Migration, NodeSet, Pool, Pools, Queue, QueueName,
    QueueOrder, Reclaim, Resource, SERVICE_LEVELS_MAX, ShapeQuota, Spares,
};
use phalanx_spec::quantity::parse_milli;

use crate::declare::{cpus, expand, memory};
use crate::gang::{items, pair};
use crate::parse::{Parser, list};
use crate::words::{Options, Word, Words};
use crate::{ScenarioError, Verb};

/// Removes a limit.
const NONE: &str = "none";

impl Parser {
    /// `queue research parent=lab guaranteed=gpus:8,cpus:64,gpus/H100:4 limit=gpus:16 lend=gpus:4 weight=2`
    pub(crate) fn queue(&mut self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let word = words.expect("a queue's name")?;
        let name: QueueName = words.name(word)?;
        let mut queue = self.queues.get(&name).cloned().unwrap_or_else(|| Queue::named(name.clone()));
        let mut options = words.options()?;
        if let Some(word) = options.take("parent") {
            queue.parent = (word.text != NONE).then(|| self.queue_named(word, words)).transpose()?;
        }
        let bounds = [
            ("guaranteed", &mut queue.guaranteed),
            ("limit", &mut queue.limit),
            ("lend", &mut queue.lend_max),
        ];
        for (key, amounts) in bounds {
            if let Some(word) = options.take(key) {
                *amounts = amounts_of(word, words)?;
            }
        }
        if let Some(word) = options.take("weight") {
            queue.weight_milli = thousandths(word, words)?;
        }
        if let Some(word) = options.take("shapes") {
            queue.shapes =
                bound(word, |w| items(w, ',').map(|item| shape(item, words)).collect())?.unwrap_or_default();
        }
        let caps = &mut queue.caps;
        for (key, cap) in [
            ("max-running", &mut caps.running_max),
            ("max-pending", &mut caps.pending_max),
            ("max-gang", &mut caps.gang_devices_max),
        ] {
            if let Some(word) = options.take(key) {
                *cap = bound(word, |w| words.number(w))?;
            }
        }
        if let Some(word) = options.take("max-time") {
            caps.time_limit_max_ms = bound(word, |w| words.duration_ms(w))?;
        }
        if let Some(word) = options.take("nodes") {
            queue.nodes = bound(word, |word| pools(word, words))?.unwrap_or_default();
        }
        if let Some(word) = options.take("least-served") {
            queue.order = Some(order(word, words)?);
        }
        options.end(words)?;
        self.queues.insert(name, queue.clone());
        Ok(Verb::Queue(Box::new(queue)))
    }

    pub(crate) fn queue_gone(&mut self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let word = words.expect("a queue")?;
        let name = self.queue_named(word, words)?;
        self.queues.remove(&name);
        Ok(Verb::QueueGone(name))
    }

    pub(crate) fn queue_named(&self, word: Word<'_>, words: &Words<'_>) -> Result<QueueName, ScenarioError> {
        let name: QueueName = words.name(word)?;
        if self.queues.contains_key(&name) {
            return Ok(name);
        }
        let what = format!("no queue {name} was declared before; declared are {}", list(self.queues.keys()));
        Err(words.error(word, what))
    }

    /// `settings half-life=7d ageing=1h reservations=1 hold-idle=250 reclaim=fair_share min-run=training:0s,…
    /// worth=H100:1000,A100:400 spares=rack:2:filled migration=pays default-class=research`
    pub(crate) fn settings(&mut self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let mut options = words.options()?;
        let settings = &mut self.settings;
        for (key, span_ms) in [("half-life", &mut settings.half_life_ms), ("ageing", &mut settings.ageing_ms)]
        {
            if let Some(word) = options.take(key) {
                *span_ms = words.duration_ms(word)?;
            }
        }
        match options.take("reservations") {
            Some(word) if word.text == "all" => settings.reservation_depth = u32::MAX,
            Some(word) => settings.reservation_depth = words.number(word)?,
            None => {}
        }
        if let Some(word) = options.take("hold-idle") {
            settings.hold_idle_max_milli = words.number(word)?;
        }
        if let Some(word) = options.take("reclaim") {
            settings.reclaim = match word.text {
                "guarantee" => Reclaim::Guarantee,
                "fair_share" => Reclaim::FairShare,
                other => {
                    let what = format!("unknown reclaim {other:?}; known are guarantee, fair_share");
                    return Err(words.error(word, what));
                }
            };
        }
        for item in options.take("min-run").into_iter().flat_map(|word| items(word, ',')) {
            let (class, span) = pair(item, "a class and a time such as training:0s", words)?;
            let span_ms = words.duration_ms(span)?;
            class_of(&mut settings.classes, class, words)?.min_run_ms = span_ms;
        }
        if let Some(word) = options.take("worth") {
            let worth = |item| {
                let (model, milli) = pair(item, "a model and its worth such as A100:400", words)?;
                Ok((model.text.to_owned(), words.number(milli)?))
            };
            settings.worth = items(word, ',').map(worth).collect::<Result<_, ScenarioError>>()?;
        }
        if let Some(word) = options.take("spares") {
            settings.spares = bound(word, |word| spares(word, words))?;
        }
        if let Some(word) = options.take("defragmentation") {
            settings.defragmentation.is_automatic = match word.text {
                "asked" => false,
                "pays" => true,
                other => {
                    let what = format!("unknown defragmentation {other:?}; known are asked, pays");
                    return Err(words.error(word, what));
                }
            };
        }
        if let Some(word) = options.take("migration") {
            settings.migration = migration(word, words)?;
        }
        if let Some(word) = options.take("default-class") {
            settings.default_class = class_of(&mut settings.classes, word, words)?.name.clone();
        }
        options.end(words)?;
        Ok(Verb::Settings(Box::new(settings.clone())))
    }

    /// `class batch rank=50 preemptible=yes preempts=no min-run=5m grace-max=30s`
    pub(crate) fn class(&mut self, words: &mut Words<'_>) -> Result<Verb, ScenarioError> {
        let word = words.expect("a class's name")?;
        let name: ClassName = words.name(word)?;
        let mut options = words.options()?;
        let rank = options.take("rank");
        let classes = &mut self.settings.classes;
        if !classes.iter().any(|class| class.name == name) {
            if rank.is_none() {
                return Err(words.error(word, format!("class {name} is new and needs rank=")));
            }
            classes.push(Class {
                name,
                rank: 0,
                is_preemptible: true,
                may_preempt: true,
                min_run_ms: 0,
                grace_max_ms: None,
                access: Access::default(),
            });
        }
        let class = class_of(classes, word, words)?;
        if let Some(word) = rank {
            class.rank = words.number(word)?;
        }
        yes_or_no(&mut options, "preemptible", &mut class.is_preemptible, words)?;
        yes_or_no(&mut options, "preempts", &mut class.may_preempt, words)?;
        if let Some(word) = options.take("min-run") {
            class.min_run_ms = words.duration_ms(word)?;
        }
        if let Some(word) = options.take("grace-max") {
            class.grace_max_ms = bound(word, |w| words.duration_ms(w))?;
        }
        options.end(words)?;
        Ok(Verb::Settings(Box::new(self.settings.clone())))
    }
}

fn class_of<'a>(
    classes: &'a mut [Class],
    word: Word<'_>,
    words: &Words<'_>,
) -> Result<&'a mut Class, ScenarioError> {
    let known = list(classes.iter().map(|class| &class.name));
    let found = classes.iter_mut().find(|class| class.name.as_str() == word.text);
    found.ok_or_else(|| words.error(word, format!("unknown class {:?}; known are {known}", word.text)))
}

/// A limit, or `None` to remove it.
fn bound<T>(
    word: Word<'_>,
    read: impl FnOnce(Word<'_>) -> Result<T, ScenarioError>,
) -> Result<Option<T>, ScenarioError> {
    (word.text != NONE).then(|| read(word)).transpose()
}

fn yes_or_no(
    options: &mut Options<'_>,
    key: &str,
    is: &mut bool,
    words: &Words<'_>,
) -> Result<(), ScenarioError> {
    let Some(word) = options.take(key) else { return Ok(()) };
    *is = match word.text {
        "yes" => true,
        "no" => false,
        other => return Err(words.error(word, format!("expected yes or no, and found {other:?}"))),
    };
    Ok(())
}

/// `gpus:8,gpus/H100:4,cpus:64,memory:1TB,nic:2`
pub(crate) fn amounts_of(word: Word<'_>, words: &Words<'_>) -> Result<Amounts, ScenarioError> {
    let read = |item: Word<'_>| {
        let (name, amount) = pair(item, "an amount such as gpus:8", words)?;
        let resource: Resource = name.text.parse().map_err(|e| words.error(name, format!("{e}")))?;
        let amount = match &resource {
            Resource::Gpus | Resource::Model(_) => thousandths(amount, words)?,
            Resource::Cpus => cpus(amount, words)?,
            Resource::Memory => memory(amount, words)?,
            Resource::Named(_) => words.number(amount)?,
        };
        Ok((resource, amount))
    };
    Ok(bound(word, |w| items(w, ',').map(read).collect())?.unwrap_or_default())
}

/// A decimal number in thousandths.
fn thousandths(word: Word<'_>, words: &Words<'_>) -> Result<u64, ScenarioError> {
    parse_milli(word.text)
        .map_err(|_| words.error(word, format!("expected a number such as 0.25, and found {:?}", word.text)))
}

/// `15m,1h`: thresholds of device time between levels; `none`: order by priority and age.
fn order(word: Word<'_>, words: &Words<'_>) -> Result<QueueOrder, ScenarioError> {
    let Some(levels) =
        bound(word, |w| items(w, ',').map(|item| words.duration_ms(item)).collect::<Result<Vec<u64>, _>>())?
    else {
        return Ok(QueueOrder::Priority);
    };
    if levels.len() > SERVICE_LEVELS_MAX || !levels.is_sorted_by(|one, next| one < next) {
        let what = format!("expected at most {SERVICE_LEVELS_MAX} levels, in increasing order");
        return Err(words.error(word, what));
    }
    Ok(QueueOrder::LeastServed { levels })
}

/// `model:H100+rack:r1,hosts:a[1-4],set:gold,any`: pools in order of preference. A condition with another key is a domain
/// of that level.
fn pools(word: Word<'_>, words: &Words<'_>) -> Result<Pools, ScenarioError> {
    let mut found = Pools::default();
    for item in items(word, ',') {
        if item.text == "any" {
            found.or_any = true;
            continue;
        }
        let mut pool = Pool::default();
        for condition in items(item, '+') {
            let (key, value) = pair(condition, "a condition such as model:H100", words)?;
            match key.text {
                "model" => pool.model = Some(value.text.to_owned()),
                "set" => pool.sets.push(NodeSet::new(value.text)),
                "hosts" => {
                    for text in &expand(value, words)? {
                        pool.nodes.push(words.name(Word { text, column: value.column })?);
                    }
                    pool.nodes.sort();
                    pool.nodes.dedup();
                }
                _ => drop(pool.path.insert(words.name(key)?, words.name(value)?)),
            }
        }
        found.pools.push(pool);
    }
    Ok(found)
}

/// `leaf:2x32`: two leaves with 32 nodes each.
fn shape(word: Word<'_>, words: &Words<'_>) -> Result<ShapeQuota, ScenarioError> {
    let (level, sides) = pair(word, "a shape such as leaf:2x32", words)?;
    let bad = || {
        words.error(
            sides,
            format!("expected a count of domains and nodes such as 2x32, and found {:?}", sides.text),
        )
    };
    let (count, nodes) = sides.text.split_once('x').ok_or_else(bad)?;
    let number = |text: &str| text.parse().map_err(|_| bad());
    Ok(ShapeQuota { level: words.name::<LevelName>(level)?, count: number(count)?, nodes: number(nodes)? })
}

fn migration(word: Word<'_>, words: &Words<'_>) -> Result<Option<Migration>, ScenarioError> {
    match word.text {
        "pays" => Ok(Some(Migration::default())),
        "always" => Ok(Some(Migration { is_unconditional: true, ..Migration::default() })),
        "never" => Ok(None),
        text => Err(words.error(word, format!("expected pays, always or never, and found {text:?}"))),
    }
}

/// `rack:2`, or `rack:2:filled`.
fn spares(word: Word<'_>, words: &Words<'_>) -> Result<Spares, ScenarioError> {
    let (level, nodes) = pair(word, "a level and its spare nodes such as rack:2", words)?;
    let (count, is_filled) = match nodes.text.strip_suffix(":filled") {
        Some(count) => (count, true),
        None => (nodes.text, false),
    };
    let bad =
        || words.error(nodes, format!("expected a number such as 2 or 2:filled, and found {:?}", nodes.text));
    let nodes = count.parse().ok().filter(|nodes| *nodes > 0).ok_or_else(bad)?;
    Ok(Spares { level: Some(words.name::<LevelName>(level)?), nodes, is_filled })
}
