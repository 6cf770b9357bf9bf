//! Ranks that touch the file named by `PHALANX_CHECKPOINTED` say that their gang saved its work. The files are looked at
//! once a second; what counts is when they were touched. The same thread reads the progress of ranks, and samples
//! how much output they have written.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use phalanx_model::{GangId, Input, Timestamp};
use phalanx_shell::unix_now;

use crate::Paths;
use crate::clock::written_at;
use crate::daemon::Daemon;
use crate::env::CHECKPOINTED;
use crate::logs::times::Sampler;
use crate::progress::Reader;

const EVERY: Duration = Duration::from_secs(1);

/// Attempts that are watched, and when their files were touched by the wall clock, as far as that was told.
type Watched = BTreeMap<(GangId, u32), Timestamp>;

pub(crate) fn start(daemon: &Arc<Daemon>) -> io::Result<()> {
    let (mut watched, mut output, mut progress) = (Watched::new(), Sampler::default(), Reader::default());
    Daemon::watch(daemon, "attempts", EVERY, move |daemon| {
        let goes_on = look(daemon, &mut watched) && progress.look(daemon);
        output.look(&daemon.paths, unix_now(), watched.keys().copied());
        goes_on
    })
}

/// Attempts that ended since the last look are looked at once more: a gang saves its work when it has to make way.
fn look(daemon: &Daemon, watched: &mut Watched) -> bool {
    let known: Vec<(GangId, u32)> = watched.keys().copied().collect();
    let asked = daemon.engine.look(move |engine| {
        let all = engine.jobs().flat_map(|(_, records)| records);
        let running: Vec<_> = all
            .filter(|r| r.holds_capacity())
            .map(|r| ((r.id, r.attempt), r.checkpointed_at.unwrap_or_default()))
            .collect();
        let is_in_books = |(gang, _): &(GangId, u32)| engine.gang(*gang).is_some();
        (running, known.into_iter().filter(is_in_books).collect::<Vec<_>>())
    });
    let Ok((running, known)) = asked else { return false };
    // A time of the wall clock is remembered as it is: where the clocks are apart, what it means to the daemon moves.
    let of_record = |at: Timestamp| if at == Timestamp(0) { at } else { daemon.clock.to_wall(at) };
    let told = |(attempt, at)| (attempt, watched.get(&attempt).copied().unwrap_or_else(|| of_record(at)));
    let mut next: Watched = running.into_iter().map(told).collect();
    let ended = known.into_iter().filter(|attempt| !next.contains_key(attempt)).collect::<Vec<_>>();
    let mut facts = Vec::new();
    for (gang, attempt) in next.keys().copied().chain(ended).collect::<Vec<_>>() {
        let told = next.get(&(gang, attempt)).or_else(|| watched.get(&(gang, attempt))).copied();
        let Some(at) = touched_at(&daemon.paths, gang, attempt).filter(|at| *at > told.unwrap_or_default())
        else {
            continue;
        };
        next.entry((gang, attempt)).and_modify(|told| *told = at);
        // Never in the future, whatever the file says.
        let at = daemon.clock.of_wall(at).min(daemon.clock.now());
        facts.push(Input::GangCheckpointed { gang, at });
    }
    *watched = next;
    facts.is_empty() || daemon.engine.report(facts).is_ok()
}

/// When it was touched, by the wall clock. It is made with the beginning of that clock.
fn touched_at(paths: &Paths, gang: GangId, attempt: u32) -> Option<Timestamp> {
    written_at(&paths.attempt(gang, attempt).join(CHECKPOINTED)).filter(|at| *at > Timestamp(0))
}
