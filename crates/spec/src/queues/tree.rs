//! The tree of queues: who stands below whom, and whether what is promised can be kept.

use std::collections::BTreeMap;

use phalanx_model::{Amounts, Caps, Queue, QueueName, Resource, ShapeQuota};

use super::amounts::shown;
use super::{
    AmountsFile, BudgetFile, DEPTH_MAX, IdleFile, QUEUES_MAX, QueueEntry, QueueFile, SHAPES_MAX, ShapeFile,
    access,
};
use crate::error::{Place, SpecError, listed, nearest};
use crate::place::At;

/// A queue of the file, and the queue that it stands below.
#[derive(Clone, Copy)]
struct Standing<'a> {
    entry: &'a QueueEntry,
    parent: Option<&'a At<QueueName>>,
}

type Tree<'a> = BTreeMap<&'a QueueName, Standing<'a>>;

/// What the children of a queue are guaranteed together, and the most that one of them is.
#[derive(Default)]
struct Sums(BTreeMap<Resource, Sum>);

#[derive(Default)]
struct Sum {
    together: u128,
    most: u64,
    place: Place,
}

impl Sums {
    fn add(&mut self, child: &QueueEntry, guaranteed: &Amounts) {
        for (resource, amount) in guaranteed {
            let sum = self.0.entry(resource.clone()).or_default();
            sum.together += u128::from(*amount);
            if *amount > sum.most {
                let said = child.guaranteed.get(resource).map(|said| said.place);
                (sum.most, sum.place) = (*amount, said.unwrap_or(child.name.place));
            }
        }
    }
}

impl QueueFile {
    /// Parents before their children, then by name.
    pub(super) fn tree(&self) -> Result<Vec<Queue>, SpecError> {
        let mut tree = Tree::new();
        self.collect(&self.queues, None, &mut tree)?;
        let mut by_depth = Vec::with_capacity(tree.len());
        for (name, standing) in &tree {
            by_depth.push((self.depth(*standing, &tree)?, *name, *standing));
        }
        by_depth.sort_by_key(|(depth, name, _)| (*depth, *name));
        let mut queues = Vec::with_capacity(by_depth.len());
        let mut of_children: BTreeMap<&QueueName, Sums> = BTreeMap::new();
        for (_, name, standing) in by_depth.into_iter().rev() {
            let sums = of_children.remove(name);
            let is_leaf = sums.is_none();
            let queue = self.queue(standing, &sums.unwrap_or_default(), is_leaf)?;
            if let Some(parent) = standing.parent {
                of_children.entry(&parent.value).or_default().add(standing.entry, &queue.guaranteed);
            }
            queues.push(queue);
        }
        queues.reverse();
        Ok(queues)
    }

    /// Nesting is bounded by what is read of YAML.
    fn collect<'a>(
        &self,
        entries: &'a [QueueEntry],
        inside: Option<&'a At<QueueName>>,
        tree: &mut Tree<'a>,
    ) -> Result<(), SpecError> {
        for entry in entries {
            if let (Some(outer), Some(said)) = (inside, &entry.parent)
                && outer.value != said.value
            {
                let what =
                    format!("{} stands inside {} and below {}", entry.name.value, outer.value, said.value);
                let error = self.source.error(said.place, what, "leave `parent` out, or move the queue");
                return Err(error.also(&self.source, outer.place, "stands inside this"));
            }
            if tree.len() >= QUEUES_MAX {
                let what = format!("more than {QUEUES_MAX} queues");
                return Err(self.source.error(entry.name.place, what, format!("at most {QUEUES_MAX}")));
            }
            let standing = Standing { entry, parent: inside.or(entry.parent.as_ref()) };
            if let Some(first) = tree.insert(&entry.name.value, standing) {
                let what = format!("the queue {} is given twice", entry.name.value);
                let error = self.source.error(entry.name.place, what, "give every queue a name of its own");
                return Err(error.also(&self.source, first.entry.name.place, "the first"));
            }
            self.collect(&entry.queues, Some(&entry.name), tree)?;
        }
        Ok(())
    }

    /// How many queues stand above it.
    fn depth<'a>(&self, standing: Standing<'a>, tree: &Tree<'a>) -> Result<usize, SpecError> {
        let name = &standing.entry.name;
        let mut chain = vec![&name.value];
        let mut at = standing;
        while let Some(parent) = at.parent {
            if let Some(first) = chain.iter().position(|below| **below == parent.value) {
                let ring: Vec<&str> = chain.iter().skip(first).map(|name| name.as_str()).collect();
                let what = match ring.as_slice() {
                    [one] => format!("the queue {one} stands below itself"),
                    _ => format!("the queues {} stand below each other in a ring", listed(&ring)),
                };
                return Err(self.source.error(parent.place, what, "leave one `parent` out"));
            }
            at = *tree.get(&parent.value).ok_or_else(|| self.unknown_parent(parent, tree))?;
            chain.push(&parent.value);
        }
        if chain.len() > DEPTH_MAX {
            let what = format!("{} queues stand above each other", chain.len());
            return Err(self.source.error(name.place, what, format!("at most {DEPTH_MAX}")));
        }
        Ok(chain.len() - 1)
    }

    fn unknown_parent(&self, parent: &At<QueueName>, tree: &Tree<'_>) -> SpecError {
        let known: Vec<&str> = tree.keys().map(|name| name.as_str()).collect();
        let meant = nearest(parent.value.as_str(), &known);
        let accepted = meant.map_or_else(String::new, |name| format!("did you mean {name:?}?"));
        let error = self.source.error(
            parent.place,
            format!("no queue is named {:?}", parent.value.as_str()),
            accepted,
        );
        error.note(format!("the queues are {}", listed(&known)))
    }

    /// A queue whose promises can be kept. What its children are guaranteed is guaranteed to it.
    fn queue(&self, standing: Standing<'_>, children: &Sums, is_leaf: bool) -> Result<Queue, SpecError> {
        let Standing { entry, parent } = standing;
        let mut guaranteed = entry.guaranteed.amounts();
        for (resource, sum) in &children.0 {
            match entry.guaranteed.get(resource) {
                Some(own) if sum.together > u128::from(own.value) => {
                    let (has, all) = (shown(resource, own.value.into()), shown(resource, sum.together));
                    let what = format!("{} is guaranteed {has}, and its queues {all}", entry.name.value);
                    let error = self.source.error(own.place, what, "give it as much, or its queues less");
                    return Err(error.also(&self.source, sum.place, "the largest of them"));
                }
                Some(_) => {}
                None => {
                    let all = u64::try_from(sum.together).unwrap_or(u64::MAX);
                    guaranteed.insert(resource.clone(), all);
                }
            }
        }
        self.check_limit(entry, &guaranteed)?;
        self.check_lend(entry, &guaranteed)?;
        Ok(Queue {
            name: entry.name.value.clone(),
            parent: parent.map(|parent| parent.value.clone()),
            guaranteed,
            limit: entry.limit.amounts(),
            lend_max: entry.lend.amounts(),
            weight_milli: entry.weight.map_or(1_000, |weight| weight.value.0),
            shapes: self.shapes(entry)?,
            caps: Caps {
                pending_max: entry.max_pending.map(|max| max.value),
                running_max: entry.max_running.map(|max| max.value),
                gang_devices_max: entry.max_gang_gpus.map(|max| max.value.0),
                time_limit_max_ms: entry.max_time.map(|max| max.value.0.div_ceil(1_000_000)),
                delay: entry.wait.map(|wait| wait.value.into()),
            },
            order: self.order(entry, is_leaf)?,
            nodes: self.pools(entry)?,
            budget: entry.budget.as_ref().map(BudgetFile::budget),
            idle: entry.idle.as_ref().map(IdleFile::policy),
            access: access(&entry.users, &entry.groups, entry.max_priority),
        })
    }

    fn check_limit(&self, entry: &QueueEntry, guaranteed: &Amounts) -> Result<(), SpecError> {
        let broken = |limit: u64, promised: u64| promised > limit;
        self.check_bound(entry, (&entry.limit, guaranteed), "may use", broken, "at least")
    }

    fn check_lend(&self, entry: &QueueEntry, guaranteed: &Amounts) -> Result<(), SpecError> {
        let broken = |lend: u64, promised: u64| lend > promised;
        self.check_bound(entry, (&entry.lend, guaranteed), "lends", broken, "at most")
    }

    /// Refuses the first amount that its guarantee breaks.
    fn check_bound(
        &self,
        entry: &QueueEntry,
        (amounts, guaranteed): (&AmountsFile, &Amounts),
        verb: &str,
        broken: fn(u64, u64) -> bool,
        accepted: &str,
    ) -> Result<(), SpecError> {
        for (At { value: resource, .. }, said) in &amounts.0 {
            let promised = guaranteed.get(resource).copied().unwrap_or(0);
            if !broken(said.value, promised) {
                continue;
            }
            let (bound, has) = (shown(resource, said.value.into()), shown(resource, promised.into()));
            let what = format!("{} {verb} {bound}, and is guaranteed {has}", entry.name.value);
            let error =
                self.source.error(said.place, what, format!("expected {accepted} what is guaranteed"));
            return Err(match entry.guaranteed.get(resource) {
                Some(own) => error.also(&self.source, own.place, "guaranteed"),
                None if promised > 0 => error.note("its queues are guaranteed that together"),
                None => error,
            });
        }
        Ok(())
    }

    fn shapes(&self, entry: &QueueEntry) -> Result<Vec<ShapeQuota>, SpecError> {
        if let Some(beyond) = entry.shapes.get(SHAPES_MAX) {
            let what = format!("{} shapes", entry.shapes.len());
            return Err(self.source.error(beyond.level.place, what, format!("at most {SHAPES_MAX}")));
        }
        Ok(entry.shapes.iter().map(ShapeFile::quota).collect())
    }
}
