//! The queue file of a policy that is in force.

use std::collections::BTreeMap;

use phalanx_model::{Class, Queue, QueueName, Settings, ShapeQuota};

use super::{
    Account, AmountsFile, BoostFile, BudgetFile, ClassFile, DefragmentationFile, Depth, GpuHours, IdleFile,
    MigrationFile, OrderWord, Percent, Preset, QueueEntry, QueueFile, QueueNodesFile, ShapeFile, SharePolicy,
    SpanFromZero, SparesFile, Weight, Worth,
};
use crate::gpus::ModelName;
use crate::place::At;
use crate::scalar::{Count, Span, TimeLimit, Wait};

impl QueueFile {
    /// The file that says this: children inside their parents, and every setting, whether or not it is the default.
    #[must_use]
    pub fn of_policy(policy: &SharePolicy) -> Self {
        let SharePolicy { settings, queues } = policy;
        let worth = |(model, worth): (&String, &u64)| (ModelName(model.clone()).into(), Worth(*worth).into());
        Self {
            queues: entries(queues),
            preset: Preset::of(settings).map(At::from),
            classes: Some(settings.classes.iter().map(class).collect()),
            default_class: Some(settings.default_class.clone().into()),
            half_life: Some(Span(ns(settings.half_life_ms)).into()),
            ageing: Some(SpanFromZero(ns(settings.ageing_ms)).into()),
            reservations: Some(Depth(settings.reservation_depth).into()),
            hold_idle: Some(Percent(settings.hold_idle_max_milli).into()),
            wait: Some(Wait::from(settings.wait).into()),
            reclaim: Some(settings.reclaim.into()),
            worth: settings.worth.iter().map(worth).collect(),
            boost: Some(boost(settings)),
            spares: settings.spares.as_ref().map(SparesFile::of),
            migration: Some(MigrationFile::of(settings.migration)),
            defragmentation: Some(DefragmentationFile::of(settings.defragmentation)),
            ..Self::default()
        }
    }
}

pub(super) const fn ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

fn boost(settings: &Settings) -> BoostFile {
    BoostFile {
        max: Some(u32::try_from(settings.boost_max).unwrap_or(0).into()),
        longest: Some(Span(ns(settings.boost_max_ms)).into()),
    }
}

fn class(class: &Class) -> ClassFile {
    ClassFile {
        name: class.name.clone().into(),
        rank: class.rank.into(),
        preemptible: Some(class.is_preemptible.into()),
        preempts: Some(class.may_preempt.into()),
        min_run: Some(SpanFromZero(ns(class.min_run_ms)).into()),
        grace_max: class.grace_max_ms.map(|ms| SpanFromZero(ns(ms)).into()),
        users: accounts(&class.access.users),
        groups: accounts(&class.access.groups),
        max_priority: class.access.priority_max.map(At::from),
    }
}

/// Each queue inside its parent; those whose parent is not among them stand at the top and name it.
fn entries(queues: &[Queue]) -> Vec<QueueEntry> {
    let known: BTreeMap<&QueueName, &Queue> = queues.iter().map(|queue| (&queue.name, queue)).collect();
    let mut children: BTreeMap<&QueueName, Vec<&Queue>> = BTreeMap::new();
    let mut top = Vec::new();
    for queue in known.values() {
        match queue.parent.as_ref().filter(|parent| known.contains_key(parent)) {
            Some(parent) => children.entry(parent).or_default().push(queue),
            None => top.push(*queue),
        }
    }
    let of_top =
        |queue: &&Queue| QueueEntry { parent: queue.parent.clone().map(At::from), ..entry(queue, &children) };
    top.iter().map(of_top).collect()
}

fn entry(queue: &Queue, children: &BTreeMap<&QueueName, Vec<&Queue>>) -> QueueEntry {
    let caps = queue.caps;
    let below = children.get(&queue.name).into_iter().flatten();
    QueueEntry {
        name: queue.name.clone().into(),
        parent: None,
        guaranteed: AmountsFile::of_amounts(&queue.guaranteed),
        limit: AmountsFile::of_amounts(&queue.limit),
        lend: AmountsFile::of_amounts(&queue.lend_max),
        weight: (queue.weight_milli != 1_000).then(|| Weight(queue.weight_milli).into()),
        shapes: queue.shapes.iter().map(shape).collect(),
        max_pending: caps.pending_max.map(At::from),
        max_running: caps.running_max.map(At::from),
        max_gang_gpus: caps.gang_devices_max.map(|max| Count(max).into()),
        max_time: caps.time_limit_max_ms.map(|ms| TimeLimit(ns(ms)).into()),
        wait: caps.delay.map(|delay| Wait::from(delay).into()),
        order: queue.order.as_ref().map(|order| {
            if order.is_priority() { OrderWord::Priority.into() } else { OrderWord::LeastServed.into() }
        }),
        levels: queue.order.as_ref().filter(|order| !order.is_priority()).map(|order| {
            let hours = |ms: &u64| GpuHours::of_device_ms(*ms).into();
            order.levels().iter().map(hours).collect()
        }),
        nodes: QueueNodesFile::of_queue(queue),
        budget: queue.budget.as_ref().map(BudgetFile::of),
        idle: queue.idle.as_ref().map(IdleFile::of),
        users: accounts(&queue.access.users),
        groups: accounts(&queue.access.groups),
        max_priority: queue.access.priority_max.map(At::from),
        queues: below.map(|queue| entry(queue, children)).collect(),
    }
}

fn accounts(names: &[String]) -> Vec<At<Account>> {
    names.iter().map(|name| Account(name.clone()).into()).collect()
}

fn shape(quota: &ShapeQuota) -> ShapeFile {
    ShapeFile {
        level: quota.level.clone().into(),
        count: Some(Count(quota.count).into()),
        nodes: Count(quota.nodes).into(),
    }
}
