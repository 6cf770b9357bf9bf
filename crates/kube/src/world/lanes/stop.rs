//! The lane of what takes pods and claims away, and of what their owners and pods are told about it.
//!
//! A call that waits between two tries has no request on its way, and keeps no other from it. The same call again, which the
//! engine orders until the pods are gone, adds nothing while the first is at work.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use tokio::sync::oneshot;

use super::super::call::{CallError, JSON, Limited, path_of, repeat};
use super::super::desk::Message;
use super::super::trouble::Trouble;
use super::super::{checkpoint, claims, suspend};
use super::open::Open;
use super::{LANE_MAX, STOPS, TOO_MANY, trouble};
use crate::messages::PodRef;
use crate::recognise::Suspend;

const STAYS: &str = "a pod stays that has to go";

/// How pods go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct How {
    /// As disruption budgets allow.
    evict: bool,
    grace_s: Option<i64>,
}

/// What tells one stop from another.
type Same = (Vec<PodRef>, Option<String>, How);

/// What is at work.
#[derive(Default)]
struct InHand {
    calls: usize,
    stops: HashSet<Same>,
    /// By owner: the end of the last call about it.
    owners: HashMap<String, oneshot::Receiver<()>>,
}

#[derive(Clone)]
pub(super) struct StopLane {
    requests: Limited,
    desk: Sender<Message>,
    /// Bindings of pods that are to go.
    open: Open,
    in_hand: Arc<Mutex<InHand>>,
}

/// A call that is at work, until it is dropped.
struct Begun {
    lane: StopLane,
    same: Option<Same>,
    /// An owner, and the end of the call before.
    owner: Option<(String, Option<oneshot::Receiver<()>>)>,
    end: Option<oneshot::Sender<()>>,
}

impl StopLane {
    pub(super) fn new(requests: Limited, desk: Sender<Message>, open: Open) -> Self {
        Self { requests, desk, open, in_hand: Arc::default() }
    }

    /// Takes pods away, or has their owner do it.
    pub(super) fn stop(
        &self,
        pods: Vec<PodRef>,
        owner: Option<Suspend>,
        evict: bool,
        grace_s: Option<i64>,
        note: String,
    ) {
        self.open.call_off(&pods);
        let how = How { evict, grace_s };
        let path = owner.as_ref().map(suspend::path_of);
        let same = (pods.clone(), path.clone(), how);
        if self.lock().stops.contains(&same) {
            return;
        }
        let about = pods.first().map_or_else(String::new, ToString::to_string);
        let Some(mut begun) = self.begin(Some(same), path) else { return self.refuse(STAYS, about) };
        tokio::spawn(async move {
            begun.is_next().await;
            let lane = &begun.lane;
            if let Err(failed) = stop(&lane.requests, pods, owner.as_ref(), how, &note).await {
                trouble(&lane.desk, failed);
            }
        });
    }

    /// Tells pods that they have to make way.
    pub(super) fn advise(&self, pods: Vec<PodRef>, within_ms: u64) {
        let about = pods.first().map_or_else(String::new, ToString::to_string);
        let Some(begun) = self.begin(None, None) else { return self.refuse(checkpoint::UNTOLD, about) };
        tokio::spawn(async move {
            let lane = &begun.lane;
            if let Err(failed) = checkpoint::advise(&lane.requests, &pods, within_ms).await {
                trouble(&lane.desk, failed);
            }
        });
    }

    /// Gives back what a pod was reserved of a claim.
    pub(super) fn release(&self, claim: PodRef, pod: PodRef, is_deleted: bool) {
        let begun = self.begin(None, None);
        let (lane, open) = (self.clone(), self.open.clone());
        tokio::spawn(async move {
            let result = match &begun {
                None => Err(CallError::Transport(TOO_MANY.to_owned())),
                Some(_) => {
                    open.has_ended(&pod).await;
                    claims::release(&lane.requests, &claim, &pod, is_deleted).await
                }
            };
            drop(begun);
            let (released, failed) = claims::answer(&claim, result);
            let _ = lane.desk.send(Message::Event(released));
            if let Some(failed) = failed {
                trouble(&lane.desk, failed);
            }
        });
    }

    /// Lets an owner go on.
    pub(super) fn resume(&self, owner: Suspend) {
        self.of_owner("an owner does not go on", owner, |requests, owner| async move {
            suspend::resume(&requests, &owner).await
        });
    }

    /// Takes from an owner what it says of its suspension.
    pub(super) fn take_sign(&self, owner: Suspend, version: String) {
        self.of_owner("an owner keeps the sign that it is suspended", owner, |requests, owner| async move {
            suspend::take_sign(&requests, &owner, &version).await
        });
    }

    /// Makes a call about an owner, after those about it that began before. `failure` is reported if it fails.
    fn of_owner<F>(
        &self,
        failure: &'static str,
        owner: Suspend,
        call: impl FnOnce(Limited, Suspend) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<(), CallError>> + Send,
    {
        let about = owner.object.to_string();
        let path = suspend::path_of(&owner);
        let Some(mut begun) = self.begin(None, Some(path)) else { return self.refuse(failure, about) };
        tokio::spawn(async move {
            begun.is_next().await;
            let lane = &begun.lane;
            if let Err(error) = call(lane.requests.clone(), owner).await {
                trouble(&lane.desk, Trouble::new(failure, about, error));
            }
        });
    }

    /// Nothing where too many are at work.
    fn begin(&self, same: Option<Same>, owner: Option<String>) -> Option<Begun> {
        let mut in_hand = self.lock();
        if in_hand.calls >= LANE_MAX {
            return None;
        }
        in_hand.calls += 1;
        in_hand.stops.extend(same.clone());
        let (owner, end) = match owner {
            None => (None, None),
            Some(owner) => {
                let (end, ended) = oneshot::channel();
                let before = in_hand.owners.insert(owner.clone(), ended);
                (Some((owner, before)), Some(end))
            }
        };
        Some(Begun { lane: self.clone(), same, owner, end })
    }

    fn refuse(&self, what: &'static str, about: String) {
        trouble(&self.desk, Trouble::new(what, about, TOO_MANY));
    }

    fn lock(&self) -> MutexGuard<'_, InHand> {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Begun {
    /// Waits until the call before it about the same owner has ended, however it did.
    async fn is_next(&mut self) {
        if let Some(before) = self.owner.as_mut().and_then(|(_, before)| before.take()) {
            let _ = before.await;
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let end = self.end.take();
        let mut in_hand = self.lane.lock();
        in_hand.calls = in_hand.calls.saturating_sub(1);
        if let Some(same) = &self.same {
            in_hand.stops.remove(same);
        }
        drop(end);
        if let Some((owner, _)) = &self.owner
            && in_hand
                .owners
                .get_mut(owner)
                .is_some_and(|last| last.try_recv().is_err_and(|error| is_ended(&error)))
        {
            in_hand.owners.remove(owner);
        }
    }
}

/// The last call about an owner is over, and no other came after it.
const fn is_ended(error: &oneshot::error::TryRecvError) -> bool {
    matches!(error, oneshot::error::TryRecvError::Closed)
}

/// Takes the pods of a gang away: by their owner where that costs it nothing, and otherwise each of them.
async fn stop(
    requests: &Limited,
    pods: Vec<PodRef>,
    owner: Option<&Suspend>,
    how: How,
    note: &str,
) -> Result<(), Trouble> {
    let Some(owner) = owner else { return take_all(requests, pods, how).await };
    let Err(error) = suspend::suspend(requests, owner, note).await else { return Ok(()) };
    // An eviction may wait; what cannot start whole may not stay.
    if !how.evict {
        take_all(requests, pods, how).await?;
    }
    Err(Trouble::new("an owner is not suspended", owner.object.to_string(), error))
}

/// Several at once. Each request waits for its turn with those of all other calls, so that a large gang does not keep a
/// small one waiting until all of it is gone.
async fn take_all(requests: &Limited, pods: Vec<PodRef>, how: How) -> Result<(), Trouble> {
    let take = |pod: PodRef, dry_run| async move {
        let result = take_away(requests, &pod, how, dry_run).await;
        result.map_err(|error| Trouble::new(STAYS, pod.to_string(), error))
    };
    if how.evict {
        // All or none: a budget that forbids one of them forbids the gang.
        let asked = stream::iter(pods.clone()).map(|pod| take(pod, true)).buffer_unordered(STOPS);
        asked.try_for_each(async |()| Ok(())).await?;
    }
    // One that stays does not keep the others.
    let taken = stream::iter(pods).map(|pod| take(pod, false)).buffer_unordered(STOPS);
    let taken: Vec<Result<(), Trouble>> = taken.collect().await;
    taken.into_iter().collect()
}

async fn take_away(requests: &Limited, pod: &PodRef, how: How, dry_run: bool) -> Result<(), CallError> {
    let mut options = json!({ "preconditions": { "uid": &*pod.uid } });
    if let Some(grace_s) = how.grace_s {
        options["gracePeriodSeconds"] = json!(grace_s);
    }
    if dry_run {
        options["dryRun"] = json!(["All"]);
    }
    let result = if how.evict {
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": &*pod.name, "namespace": &*pod.namespace },
            "deleteOptions": options,
        });
        repeat(requests, "POST", &format!("{}/eviction", path_of(pod)), JSON, &eviction).await
    } else {
        repeat(requests, "DELETE", &path_of(pod), JSON, &options).await
    };
    match result {
        // It went before, or another took its name.
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
        other => other.map(drop),
    }
}
