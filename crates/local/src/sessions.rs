//! Sessions: whether somebody works in them. Who uses CPU time uses the session, and so does who says so.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_model::{GangRecord, Input, JobId, MemberId, Session, Timestamp};

use crate::daemon::Daemon;

/// How often is looked whether a session has to be looked at.
const EVERY: Duration = Duration::from_secs(1);
/// A session is looked at, and told of, so often at most.
pub(crate) const LOOK_MS: u64 = 10_000;
/// In thousandths of a CPU: less is what an idle shell or notebook server uses by itself.
const USED_CPU_MILLI: u128 = 20;

/// When a session was looked at last, and the CPU time that it had used by then.
type Watched = BTreeMap<JobId, (Instant, u64)>;

pub(crate) fn start(daemon: &Arc<Daemon>) -> io::Result<()> {
    let mut watched = Watched::new();
    Daemon::watch(daemon, "sessions", EVERY, move |daemon| look(daemon, &mut watched))
}

fn look(daemon: &Daemon, watched: &mut Watched) -> bool {
    let asked = daemon.engine.look(|engine| {
        let session = |(job, records): (&phalanx_model::Job, &[GangRecord])| {
            let limit_ms = job.policy.idle_limit_ms?;
            let holding = records.iter().filter(|record| record.holds_capacity());
            let members = holding.flat_map(|record| {
                let member = |rank| MemberId { gang: record.id, attempt: record.attempt, rank };
                (0..).take(record.members.len()).map(member)
            });
            let members: Vec<MemberId> = members.collect();
            (!members.is_empty()).then_some((job.id, limit_ms, members))
        };
        engine.jobs().filter_map(session).collect::<Vec<_>>()
    });
    let Ok(sessions) = asked else { return false };
    watched.retain(|job, _| sessions.iter().any(|(of, _, _)| of == job));
    let now = Instant::now();
    let mut facts = Vec::new();
    for (job, limit_ms, members) in sessions {
        let before = watched.get(&job).copied();
        // Of a short limit, several times within it.
        let every = Duration::from_millis(LOOK_MS.min(limit_ms / 4));
        if before.is_some_and(|(at, _)| now.duration_since(at) < every) {
            continue;
        }
        let of_member = |member: &MemberId| phalanx_node::cpu_ms(&daemon.paths.member(*member));
        let used_ms = members.iter().filter_map(of_member).fold(0, u64::saturating_add);
        watched.insert(job, (now, used_ms));
        // The first look says nothing of what was used since the one before it.
        let Some((at, before_ms)) = before else { continue };
        let worked_ms = u128::from(used_ms.saturating_sub(before_ms));
        if worked_ms * 1_000 > now.duration_since(at).as_millis() * USED_CPU_MILLI {
            facts.push(used(job, daemon.clock.now()));
        }
    }
    facts.is_empty() || daemon.engine.report(facts).is_ok()
}

pub(crate) const fn used(job: JobId, used_at: Timestamp) -> Input {
    Input::SessionObserved { session: Session { job, used_at } }
}
