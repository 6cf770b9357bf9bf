//! Changes as they come.

use std::time::Duration;

use phalanx_api::Reply;
use phalanx_api::protocol::Answer;

use super::Failure;
use crate::daemon::Daemon;
use crate::feed::News;

/// How often a watcher that hears nothing is looked at.
const PATIENCE: Duration = Duration::from_millis(500);
/// Changes that come at once are told together: a page reads everything again for each.
const GATHER: Duration = Duration::from_millis(100);

/// Until the client goes. Who says where it was goes on there. Others begin now, and hear where that is: what they read from
/// then on misses nothing.
pub(super) fn watch(daemon: &Daemon, after: Option<u64>, reply: &mut dyn Reply) -> Result<(), Failure> {
    let mut last = after.unwrap_or_else(|| daemon.feed.last());
    if after.is_none() {
        reply.send(&Answer::Reset { id: last })?;
    }
    loop {
        match daemon.feed.after(last, PATIENCE) {
            News::Lost(id) => {
                reply.send(&Answer::Reset { id })?;
                last = id;
            }
            News::Changes(changes) => {
                for change in changes {
                    last = change.id;
                    reply.send(&Answer::Change(change))?;
                }
            }
        }
        reply.flush()?;
        // An engine that stopped changes nothing more.
        if reply.is_gone() || daemon.engine.look(|_| ()).is_err() {
            return Ok(());
        }
        std::thread::sleep(GATHER);
    }
}
