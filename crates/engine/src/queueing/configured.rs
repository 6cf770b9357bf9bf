//! The queues that an operator configured, and the position in the tree that each of them may have.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_model::{Queue, QueueName};

/// Levels of queues; a deeper tree is refused.
pub(super) const DEPTH_MAX: usize = 8;

/// The configured queues, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Configured {
    queues: BTreeMap<QueueName, Queue>,
    /// Configured queues by the parent that they name, whether the parent is configured or not.
    children: BTreeMap<QueueName, BTreeSet<QueueName>>,
}

impl Configured {
    pub(super) const fn queues(&self) -> &BTreeMap<QueueName, Queue> {
        &self.queues
    }

    /// Adds a queue, or replaces the queue of its name. Returns whether anything changed.
    pub(super) fn insert(&mut self, queue: &Queue) -> bool {
        let before = self.queues.insert(queue.name.clone(), queue.clone());
        let is_new = before.as_ref() != Some(queue);
        self.leave_parent(before);
        if let Some(parent) = &queue.parent {
            self.children.entry(parent.clone()).or_default().insert(queue.name.clone());
        }
        is_new
    }

    /// Removes a queue. Returns whether it was configured.
    pub(super) fn remove(&mut self, queue: &QueueName) -> bool {
        let before = self.queues.remove(queue);
        let was_configured = before.is_some();
        self.leave_parent(before);
        was_configured
    }

    fn leave_parent(&mut self, queue: Option<Queue>) {
        if let Some(Queue { name, parent: Some(parent), .. }) = queue
            && let Some(children) = self.children.get_mut(&parent)
        {
            children.remove(&name);
            if children.is_empty() {
                self.children.remove(&parent);
            }
        }
    }

    /// Why a queue cannot be below the parent that it names: it would be below itself, or the tree would be too deep
    /// with all queues that are configured below it, in whichever order they were configured.
    pub(super) fn misplaced(&self, queue: &Queue) -> Option<String> {
        let (mut above, mut at) = (0, queue.parent.as_ref());
        while let Some(name) = at.filter(|_| above < DEPTH_MAX) {
            if *name == queue.name {
                return Some("the queue would be its own ancestor: name another parent".to_owned());
            }
            let parent = self.queues.get(name);
            above += usize::from(parent.is_some());
            at = parent.and_then(|parent| parent.parent.as_ref());
        }
        (above + self.height(&queue.name, DEPTH_MAX) > DEPTH_MAX).then(|| {
            format!(
                "the tree of queues would be deeper than {DEPTH_MAX} levels: name a parent nearer to the root"
            )
        })
    }

    /// The levels of queues from this queue down, up to a maximum.
    fn height(&self, queue: &QueueName, most: usize) -> usize {
        if most == 0 {
            return 1;
        }
        let children = self.children.get(queue).into_iter().flatten();
        1 + children.map(|child| self.height(child, most - 1)).max().unwrap_or(0)
    }

    /// Every queue after its parent, each with the name of its parent; a queue whose parent is not configured is at the
    /// top.
    pub(super) fn parents_first(&self) -> Vec<(Option<&QueueName>, &Queue)> {
        let parent_of =
            |queue: &&Queue| queue.parent.as_ref().is_none_or(|parent| !self.queues.contains_key(parent));
        let mut queues: Vec<(Option<&QueueName>, &Queue)> = Vec::with_capacity(self.queues.len());
        queues.extend(self.queues.values().filter(parent_of).map(|queue| (None, queue)));
        let mut next = 0;
        while let Some((_, queue)) = queues.get(next).copied() {
            let children = self.children.get(&queue.name).into_iter().flatten();
            queues.extend(children.filter_map(|name| Some((Some(&queue.name), self.queues.get(name)?))));
            next += 1;
        }
        queues
    }
}
