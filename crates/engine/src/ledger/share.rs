//! Facts about how the cluster is shared: settings, queues, and changes of the order that users made by hand.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Boost, GangId, Job, JobId, Outcome, Queue, QueueName, Resource, Settings};

use super::Ledger;
use super::apply::refuse;
use crate::queueing::{QueueAt, ROOT, RequestClassId};

/// The most queues; as many as a cluster of the largest size has teams.
const QUEUES_MAX: usize = 10_000;
/// Classes of priority.
const CLASSES_MAX: usize = 64;

impl Ledger {
    pub(super) fn configure(&mut self, settings: &Settings, out: &mut Outcome) {
        let what = || "the settings".to_owned();
        if settings.classes.is_empty() || settings.classes.len() > CLASSES_MAX {
            let why =
                format!("1 to {CLASSES_MAX} classes are possible, and there are {}", settings.classes.len());
            return refuse(out, what(), &why);
        }
        if settings.class(None).is_none() {
            let why = format!("the default class {} is not defined", settings.default_class);
            return refuse(out, what(), &why);
        }
        if self.queues.settings().spares != settings.spares {
            self.note_all_spares();
        }
        if self.queues.configure(settings) {
            self.redraw_queues();
        }
    }

    pub(super) fn observe_queue(&mut self, queue: &Queue, out: &mut Outcome) {
        let what = || format!("queue {}", queue.name);
        self.sync.saw_queue(&queue.name);
        if let Some(why) = self.queues.misplaced(queue) {
            return refuse(out, what(), &why);
        }
        if self.queues.configured().len() >= QUEUES_MAX && !self.queues.configured().contains_key(&queue.name)
        {
            return refuse(out, what(), &format!("more than {QUEUES_MAX} queues"));
        }
        if self.queues.configured().get(&queue.name) == Some(queue) {
            return;
        }
        let before = self.queues.configured().get(&queue.name).map(limits_of);
        let has_moved = before.is_some_and(|before| before != limits_of(queue));
        self.note_pools(&queue.name, Some(queue));
        if !self.stale && !self.stale_queues && self.queues.amend(queue) {
            self.pending.bounds_changed();
            if has_moved {
                self.limits_moved(&queue.name);
            }
            self.preempted.clear();
            self.replan = true;
        } else if self.queues.insert(queue) {
            self.redraw_queues();
        }
    }

    pub(super) fn remove_queue(&mut self, queue: &QueueName) {
        self.note_pools(queue, None);
        if self.queues.remove(queue) {
            self.redraw_queues();
        }
    }

    /// Refreshes the reasons of gangs that are pending in a queue or below it: other changes may help them now than
    /// before.
    fn limits_moved(&mut self, queue: &QueueName) {
        let mut below: Vec<QueueAt> = self.queues.find(queue).into_iter().collect();
        while let Some(at) = below.pop() {
            below.extend(&self.queues.at(at).children);
            let (gangs, requests): (Vec<GangId>, BTreeSet<RequestClassId>) =
                self.pending.in_queue(at).unzip();
            for id in requests {
                let request = self.pending.request(id);
                // A gang that fits nowhere would not be considered, and so not be found to have no room in its queue.
                if let Err(full) = self.queues.room(at, &request.least, request.key.is_fixed)
                    && full.at != ROOT
                {
                    self.pending.stick(id, at, full);
                }
            }
            self.refresh.extend(gangs);
        }
    }

    fn redraw_queues(&mut self) {
        self.preempted.clear();
        self.stale_queues = true;
        self.replan = true;
    }

    /// Holds a job back for a user, or releases it. Running gangs go on.
    pub(super) fn hold(&mut self, job: JobId, by: Option<&String>, out: &mut Outcome) {
        let Some(entry) = self.jobs.get_mut(&job) else {
            return refuse(out, format!("hold or release of job {job}"), "no such job");
        };
        entry.job.turn.held_by = by.cloned();
        self.order_key_changed(job, by.is_some());
        // Nobody knows when a gang of it starts again that is being stopped.
        self.to_keep.extend(self.gangs_of(job));
    }

    pub(super) fn boost(&mut self, job: JobId, boost: Option<&Boost>, out: &mut Outcome) {
        let (longest_ms, most) = (self.queues.settings().boost_max_ms, self.queues.settings().boost_max);
        let now = self.now;
        let Some(entry) = self.jobs.get_mut(&job) else {
            return refuse(out, format!("boost of job {job}"), "no such job");
        };
        if let Some(boost) = boost
            && (boost.until > now.plus(longest_ms) || boost.priority.saturating_abs() > most)
        {
            let why = format!("a boost is at most {most} and lasts at most {longest_ms} ms");
            return refuse(out, format!("boost of job {job}"), &why);
        }
        entry.job.turn.boost = boost.cloned();
        self.order_key_changed(job, false);
    }

    pub(super) fn order_key_changed(&mut self, job: JobId, gives_up_hold: bool) {
        self.preempted.clear();
        for gang in self.gangs_of(job) {
            if self.record(gang).is_some_and(|r| r.is_pending()) {
                if gives_up_hold {
                    self.drop_reservation(gang);
                }
                self.retime(gang);
                self.relist(gang);
            }
        }
    }

    /// Gives a job without a time limit the limit of its queue, which may bound how long its jobs run.
    pub(super) fn cap_time_limit(&self, job: &mut Job) {
        if job.policy.time_limit_ms.is_none() {
            job.policy.time_limit_ms = self.longest_limit_ms(&job.queue);
        }
    }

    /// The longest time limit that a queue and those above it allow.
    pub(super) fn longest_limit_ms(&self, queue: &QueueName) -> Option<u64> {
        let caps =
            self.queues.path(self.queues.find(queue)?).filter_map(|at| self.queues.at(at).queue.as_ref());
        caps.filter_map(|queue| queue.caps.time_limit_max_ms).min()
    }
}

/// The most that gangs of a queue may have at once: amounts, and the number of running gangs.
const fn limits_of(queue: &Queue) -> (&BTreeMap<Resource, u64>, Option<u32>) {
    (&queue.limit, queue.caps.running_max)
}
