//! What changed, for those who watch: a bounded memory of the newest changes, each with a number to go on from.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use phalanx_api::protocol::{ChangeKind, ChangeView};
use phalanx_model::{Bandwidth, Change, Input, JobId, NodeName, Timestamp, Uplink};

/// Changes that are remembered; who missed more reads everything again.
const REMEMBERED: usize = 8_192;
/// Bits of a change's number below the epoch: four billion changes in the life of one daemon.
const SEQUENCE_BITS: u32 = 32;

/// Cheap to clone; all clones are one feed.
#[derive(Clone, Debug)]
pub(crate) struct Feed(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    changes: Mutex<Newest>,
    came: Condvar,
}

#[derive(Debug)]
struct Newest {
    /// The number of the last change.
    last: u64,
    changes: VecDeque<ChangeView>,
}

/// What came after a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Changes(Vec<ChangeView>),
    /// Some are forgotten, or the number is of an earlier daemon: all is to be read again, and this is the last change.
    Lost(u64),
}

impl Feed {
    /// Numbers go up across daemons, for each has a higher epoch.
    pub(crate) fn new(epoch: u64) -> Self {
        let changes = Mutex::new(Newest { last: epoch << SEQUENCE_BITS, changes: VecDeque::new() });
        Self(Arc::new(Shared { changes, came: Condvar::new() }))
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        // What a panicking thread left are still changes.
        self.0.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What one step of the engine took in and decided.
    pub(crate) fn stepped(&self, at: Timestamp, facts: &[Input], changes: &[Change]) {
        let mut seen = Seen::default();
        facts.iter().for_each(|fact| seen.fact(fact));
        changes.iter().for_each(|change| seen.change(change));
        if seen.is_nothing() {
            return;
        }
        let mut newest = self.newest();
        let view =
            |kind, what: &str| ChangeView { id: 0, at, kind, job: None, node: None, what: what.to_owned() };
        for (job, what) in seen.jobs {
            newest.push(ChangeView { job: Some(job), ..view(ChangeKind::Job, what) });
        }
        for (node, what) in seen.nodes {
            newest.push(ChangeView { node: Some(node), ..view(ChangeKind::Node, what) });
        }
        if seen.queues {
            newest.push(view(ChangeKind::Queues, "configured"));
        }
        if seen.calendar {
            newest.push(view(ChangeKind::Calendar, "changed"));
        }
        drop(newest);
        self.0.came.notify_all();
    }

    /// Something is known of a node that is in no fact.
    pub(crate) fn node(&self, at: Timestamp, node: &NodeName, what: &str) {
        let change = ChangeView {
            id: 0,
            at,
            kind: ChangeKind::Node,
            job: None,
            node: Some(node.clone()),
            what: what.to_owned(),
        };
        self.newest().push(change);
        self.0.came.notify_all();
    }

    /// The number of the last change.
    pub(crate) fn last(&self) -> u64 {
        self.newest().last
    }

    /// What came after a change; waits so long for the next if nothing did.
    pub(crate) fn after(&self, id: u64, patience: Duration) -> News {
        let has_none = |newest: &mut Newest| newest.last == id;
        let waited = self.0.came.wait_timeout_while(self.newest(), patience, has_none);
        let (newest, _) = waited.unwrap_or_else(PoisonError::into_inner);
        newest.after(id)
    }
}

impl Newest {
    fn push(&mut self, change: ChangeView) {
        if self.changes.len() >= REMEMBERED {
            self.changes.pop_front();
        }
        self.last += 1;
        self.changes.push_back(ChangeView { id: self.last, ..change });
    }

    fn after(&self, id: u64) -> News {
        let oldest = self.changes.front().map_or(self.last + 1, |change| change.id);
        if id > self.last || id.saturating_add(1) < oldest {
            return News::Lost(self.last);
        }
        let skipped = usize::try_from(id + 1 - oldest).unwrap_or(usize::MAX);
        News::Changes(self.changes.iter().skip(skipped).cloned().collect())
    }
}

/// What one step touched, each once: the last word counts.
#[derive(Default)]
struct Seen {
    jobs: Vec<(JobId, &'static str)>,
    known: BTreeSet<JobId>,
    nodes: Vec<(NodeName, &'static str)>,
    queues: bool,
    calendar: bool,
}

impl Seen {
    fn is_nothing(&self) -> bool {
        self.jobs.is_empty() && self.nodes.is_empty() && !self.queues && !self.calendar
    }

    fn job(&mut self, job: JobId, what: &'static str) {
        if self.known.insert(job) {
            self.jobs.push((job, what));
        } else if let Some(known) = self.jobs.iter_mut().find(|(known, _)| *known == job) {
            known.1 = what;
        }
    }

    fn node(&mut self, node: &NodeName, what: &'static str) {
        self.nodes.push((node.clone(), what));
    }

    fn fact(&mut self, fact: &Input) {
        match fact {
            Input::JobSubmitted { job } => self.job(job.id, "submitted"),
            Input::JobHeld { job, .. } => self.job(*job, "held"),
            Input::JobReleased { job, .. } => self.job(*job, "released"),
            Input::JobUpdated { job, .. } | Input::JobBoosted { job, .. } => self.job(*job, "updated"),
            Input::JobForgotten { job } => self.job(*job, "forgotten"),
            Input::MemberReady { member, .. } | Input::MemberExited { member, .. } => {
                self.job(member.gang.job, "members");
            }
            Input::GangCheckpointed { gang, .. } => self.job(gang.job, "checkpointed"),
            Input::NodeObserved { node } => self.node(&node.name, "observed"),
            Input::NodeUseObserved { node, .. } => self.node(node, "use"),
            Input::NodeRemoved { node } => self.node(node, "removed"),
            Input::NodeCordoned { node } => self.node(node, "cordoned"),
            Input::NodeUncordoned { node } => self.node(node, "uncordoned"),
            Input::DrainRequested { node } => self.node(node, "draining"),
            Input::BandwidthMeasured { bandwidth: Bandwidth { uplink: Uplink::Node(node), .. } } => {
                self.node(node, "measured");
            }
            Input::HealthGraded { health } => self.node(&health.node, "graded"),
            Input::JobRequeued { job, .. } => self.job(*job, "requeued"),
            Input::ServiceObserved { service } => self.job(service.job, "updated"),
            Input::SessionObserved { session } => self.job(session.job, "used"),
            Input::SpotNoticed { notice } => {
                self.node(&notice.node, "noticed");
                self.calendar = true;
            }
            Input::CalendarObserved { .. } => self.calendar = true,
            Input::SettingsConfigured { .. } | Input::QueueObserved { .. } | Input::QueueRemoved { .. } => {
                self.queues = true;
            }
            _ => {}
        }
    }

    fn change(&mut self, change: &Change) {
        let (job, what) = match change {
            Change::JobAccepted { job } => (*job, "accepted"),
            Change::JobFinished { job, ending } => (*job, ending.word()),
            Change::ServiceScaled { job, .. } => (*job, "scaled"),
            Change::GangPlaced { gang, .. } => (gang.job, "placed"),
            Change::GangRunning { gang, .. } => (gang.job, "running"),
            Change::GangStopping { gang, .. } => (gang.job, "stopping"),
            Change::GangRetrying { gang, .. } => (gang.job, "retrying"),
            Change::GangFinished { gang, .. } => (gang.job, "finished"),
            Change::ReasonChanged { gang, .. } => (gang.job, "reason"),
            Change::GangReserved { gang, .. } | Change::ReservationDropped { gang, .. } => {
                (gang.job, "reserved")
            }
            Change::ResizeAsked { gang, .. } => (gang.job, "resized"),
            Change::ReplicaLeaves { gang, .. } | Change::ReplicaStays { gang } => (gang.job, "replica"),
            Change::ReplicaReplaced { gang, .. } => (gang.job, "replica"),
            // It is in no list.
            Change::JobRejected { .. } | Change::InputRejected { .. } => return,
        };
        self.job(job, what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(feed: &Feed, ids: impl Iterator<Item = u64>) {
        for id in ids {
            feed.stepped(Timestamp(id), &[], &[Change::JobAccepted { job: JobId(id) }]);
        }
    }

    fn jobs(news: &News) -> Vec<u64> {
        let News::Changes(changes) = news else { panic!("{news:?}") };
        changes.iter().filter_map(|change| change.job).map(|job| job.0).collect()
    }

    #[test]
    fn a_watcher_goes_on_where_it_was_or_hears_that_it_cannot() {
        let feed = Feed::new(3);
        let begin = feed.last();
        accepted(&feed, 1..=3);
        let no_time = Duration::ZERO;
        assert_eq!(jobs(&feed.after(begin, no_time)), [1, 2, 3]);
        assert_eq!(jobs(&feed.after(begin + 2, no_time)), [3]);
        assert_eq!(jobs(&feed.after(feed.last(), no_time)), [0; 0]);
        assert_eq!(feed.after(Feed::new(2).last(), no_time), News::Lost(feed.last()), "of an earlier daemon");
        assert_eq!(feed.after(u64::MAX, no_time), News::Lost(feed.last()));
        accepted(&feed, 4..=REMEMBERED as u64 + 4);
        assert_eq!(feed.after(begin, no_time), News::Lost(feed.last()));
        assert_eq!(jobs(&feed.after(begin + 4, no_time)).len(), REMEMBERED);
    }

    #[test]
    fn a_step_names_each_job_once_with_its_last_word() {
        let feed = Feed::new(1);
        let begin = feed.last();
        let gang = JobId(7).gang(0);
        let changes = [
            Change::JobAccepted { job: JobId(7) },
            Change::GangRunning { gang, attempt: 1 },
            Change::InputRejected { what: String::new(), why: String::new() },
        ];
        feed.stepped(Timestamp(1), &[], &changes);
        feed.stepped(Timestamp(2), &[], &[]);
        let News::Changes(seen) = feed.after(begin, Duration::ZERO) else { panic!() };
        let said: Vec<_> = seen.iter().map(|change| (change.job, change.what.as_str())).collect();
        assert_eq!(said, [(Some(JobId(7)), "running")]);
    }
}
