//! Pods that wait to be told why they wait, in the order in which they are told.
//!
//! Namespaces take turns, gang by gang: however much one of them submits, the first gang of another is not behind it. A
//! gang is told as a whole; where it is larger than its share, its namespace pays for it with its next turns.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use tokio::time::Instant;

use super::{BATCH, PATIENCE, Stand};
use crate::messages::PodRef;

/// Pods that wait.
const WAITING_MAX: usize = 100_000;
/// What one namespace may have of a turn before the next has something.
const SHARE: usize = BATCH / 4;

/// When something is told, and in which order what is due at once.
type At = (Instant, u64);

#[derive(Default)]
pub(super) struct Waiting {
    /// The newest that is to be said of each.
    pods: HashMap<PodRef, (Stand, At)>,
    namespaces: BTreeMap<Arc<str>, Namespace>,
    /// Whose turn was the last.
    last: Option<Arc<str>>,
    next: u64,
}

#[derive(Default)]
struct Namespace {
    /// Pods that are told together, by when.
    gangs: BTreeMap<At, Vec<PodRef>>,
    pods: usize,
    /// Pods that were told beyond its share.
    debt: usize,
}

impl Namespace {
    fn is_active(&self, now: Instant) -> bool {
        self.debt > 0 || self.gangs.first_key_value().is_some_and(|((due, _), _)| *due <= now)
    }
}

impl Waiting {
    /// What is to be said of a pod.
    pub(super) fn get(&self, pod: &PodRef) -> Option<&Stand> {
        self.pods.get(pod).map(|(stand, _)| stand)
    }

    /// These pods, all of one gang, are told that when their time comes, and nothing of what was to be said before.
    pub(super) fn insert(&mut self, now: Instant, pods: Vec<PodRef>, stand: &Stand) {
        let Some(name) = pods.first().map(|pod| Arc::clone(&pod.namespace)) else { return };
        // A reason that changes all the time does not put off that any is told.
        let since = pods.iter().filter_map(|pod| Some(self.pods.get(pod)?.1.0)).min();
        let at = (since.unwrap_or(now + PATIENCE), self.next);
        self.take_out(&name, &pods);
        if !self.make_room(&name, pods.len()) {
            return;
        }
        self.next += 1;
        for pod in &pods {
            self.pods.insert(pod.clone(), (stand.clone(), at));
        }
        let namespace = self.namespaces.entry(name).or_default();
        namespace.pods += pods.len();
        namespace.gangs.insert(at, pods);
    }

    /// It waits no longer.
    pub(super) fn remove(&mut self, pod: &PodRef) {
        self.take_out(&pod.namespace, std::slice::from_ref(pod));
    }

    /// Pods that are to be told now: whole gangs, of each namespace in turn.
    pub(super) fn due(&mut self, now: Instant) -> Vec<(PodRef, Stand)> {
        let (mut due, mut left) = (Vec::new(), BATCH);
        while left > 0
            && due.len() < BATCH
            && let Some(name) = self.next_namespace(now)
            && let Some(namespace) = self.namespaces.get_mut(&name)
        {
            if namespace.debt == 0
                && let Some((_, gang)) = namespace.gangs.pop_first()
            {
                namespace.debt = gang.len();
                namespace.pods = namespace.pods.saturating_sub(gang.len());
                let told = gang.into_iter().filter_map(|pod| Some((self.pods.remove(&pod)?.0, pod)));
                due.extend(told.map(|(stand, pod)| (pod, stand)));
            }
            let paid = namespace.debt.min(SHARE).min(left);
            namespace.debt -= paid;
            left -= paid;
            if namespace.debt == 0 && namespace.gangs.is_empty() {
                self.namespaces.remove(&name);
            }
            self.last = Some(name);
        }
        due
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.namespaces.values().all(|namespace| namespace.gangs.is_empty())
    }

    /// The one after the last, around and around.
    fn next_namespace(&self, now: Instant) -> Option<Arc<str>> {
        let after = self.last.as_ref().map_or(Bound::Unbounded, |last| Bound::Excluded(Arc::clone(last)));
        let rest = self.namespaces.range((after, Bound::Unbounded));
        let mut all = rest.chain(&self.namespaces);
        all.find(|(_, namespace)| namespace.is_active(now)).map(|(name, _)| Arc::clone(name))
    }

    fn take_out(&mut self, name: &Arc<str>, pods: &[PodRef]) {
        let mut out: HashMap<At, HashSet<&PodRef>> = HashMap::new();
        for pod in pods {
            if let Some((_, at)) = self.pods.remove(pod) {
                out.entry(at).or_default().insert(pod);
            }
        }
        let Some(namespace) = self.namespaces.get_mut(name) else { return };
        for (at, gone) in out {
            let Some(gang) = namespace.gangs.get_mut(&at) else { continue };
            gang.retain(|pod| !gone.contains(pod));
            namespace.pods = namespace.pods.saturating_sub(gone.len());
            if gang.is_empty() {
                namespace.gangs.remove(&at);
            }
        }
        if namespace.gangs.is_empty() && namespace.debt == 0 {
            self.namespaces.remove(name);
        }
    }

    /// Where there are too many the namespace with the most has the fewer: the gangs that it would be told last. Whether
    /// there is room.
    fn make_room(&mut self, name: &Arc<str>, pods: usize) -> bool {
        while self.pods.len() + pods > WAITING_MAX {
            let most = self.namespaces.iter_mut().max_by_key(|(_, namespace)| namespace.pods);
            let Some((_, namespace)) = most.filter(|(most, _)| *most != name) else { return false };
            let Some((_, gang)) = namespace.gangs.pop_last() else { return false };
            namespace.pods = namespace.pods.saturating_sub(gang.len());
            for pod in &gang {
                self.pods.remove(pod);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn gang(namespace: &str, name: &str, pods: usize) -> Vec<PodRef> {
        let pod = |at| PodRef {
            namespace: namespace.into(),
            name: format!("{name}-{at}").into(),
            uid: format!("{namespace}-{name}-{at}").into(),
        };
        (0..pods).map(pod).collect()
    }

    fn stand(message: &str) -> Stand {
        Stand { reason: "Unschedulable", message: message.into() }
    }

    fn told(due: &[(PodRef, Stand)], namespace: &str) -> usize {
        due.iter().filter(|(pod, _)| &*pod.namespace == namespace).count()
    }

    /// It was told after 28 s: autoscalers wait for that.
    #[test]
    fn a_gang_is_told_in_its_first_turn_however_many_pods_another_namespace_has() {
        let (mut waiting, begun) = (Waiting::default(), Instant::now());
        for at in 0..1_000 {
            waiting.insert(begun, gang("greedy", &format!("g{at}"), 1), &stand("never"));
        }
        waiting.insert(begun, gang("small", "s", 8), &stand("full"));
        let mut now = begun + PATIENCE;
        let first = waiting.due(now);
        assert_eq!((told(&first, "small"), first.len()), (8, BATCH), "{first:?}");
        // What comes later goes before most of the others, too.
        waiting.insert(now, gang("small", "t", 8), &stand("full"));
        now += PATIENCE;
        assert_eq!(told(&waiting.due(now), "small"), 8);
        let turns = (0..).take_while(|_| !waiting.due(now).is_empty()).count();
        assert!((45..60).contains(&turns), "the others as fast as before: {turns} turns");
    }

    #[test]
    fn a_gang_of_a_thousand_is_told_whole_and_only_its_own_namespace_waits_for_that() {
        let (mut waiting, begun) = (Waiting::default(), Instant::now());
        waiting.insert(begun, gang("large", "a", 1_000), &stand("full"));
        waiting.insert(begun, gang("large", "b", 2), &stand("full"));
        waiting.insert(begun, gang("small", "c", 2), &stand("full"));
        let now = begun + PATIENCE;
        assert_eq!(told(&waiting.due(now), "large"), 1_000);
        assert_eq!(told(&waiting.due(now), "small"), 2);
        let turns = (0..).take_while(|_| waiting.due(now).is_empty()).count();
        assert!((40..60).contains(&turns), "the rate of a namespace is as it was: {turns} turns");
        assert!(waiting.is_empty());
    }

    /// Each change was kept until its turn came.
    #[test]
    fn of_a_pod_only_the_newest_is_kept_and_it_keeps_its_time() {
        let (mut waiting, begun) = (Waiting::default(), Instant::now());
        for at in 0..1_000_u64 {
            let pods = gang("x", "g", if at % 2 == 0 { 4 } else { 3 });
            waiting.insert(begun + Duration::from_millis(at), pods, &stand(&format!("reason {at}")));
        }
        let gangs: Vec<usize> =
            waiting.namespaces.values().flat_map(|of| of.gangs.values()).map(Vec::len).collect();
        assert_eq!((gangs.iter().sum::<usize>(), waiting.pods.len()), (4, 4), "{gangs:?}");
        let due = waiting.due(begun + PATIENCE);
        let words: HashSet<&str> = due.iter().map(|(_, stand)| &*stand.message).collect();
        assert_eq!((due.len(), words), (4, HashSet::from(["reason 998", "reason 999"])));
        // One that is bound meanwhile is told nothing.
        waiting.insert(begun, gang("x", "g", 2), &stand("again"));
        waiting.remove(&gang("x", "g", 1)[0]);
        assert_eq!(waiting.due(begun + PATIENCE).len(), 1);
        assert!(waiting.is_empty());
    }

    #[test]
    fn where_too_many_wait_the_namespace_with_the_most_loses_what_it_would_be_told_last() {
        let (mut waiting, begun) = (Waiting::default(), Instant::now());
        for at in 0..100 {
            waiting.insert(begun, gang("greedy", &format!("g{at}"), 1_000), &stand("never"));
        }
        waiting.insert(begun, gang("greedy", "more", 1), &stand("never"));
        assert_eq!(waiting.pods.len(), WAITING_MAX);
        waiting.insert(begun, gang("small", "s", 8), &stand("full"));
        assert_eq!(waiting.pods.len(), WAITING_MAX - 1_000 + 8);
        let of_small = (0..2).map(|_| told(&waiting.due(begun + PATIENCE), "small")).max();
        assert_eq!(of_small, Some(8));
    }
}
