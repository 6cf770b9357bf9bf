//! How long a gang delays its start for a closer placement, if it says nothing: as its queue says, or the cluster.

use phalanx_model::{Delay, Gang, Job};

use super::Ledger;

impl Ledger {
    /// Sets for each gang that says nothing how long it waits for a closer placement, or at which price.
    pub(super) fn set_delays(&self, job: &mut Job) {
        let queue = self.queues.find(&job.queue);
        let above = queue.into_iter().flat_map(|at| self.queues.path(at));
        let mut caps = above.filter_map(|at| self.queues.at(at).queue.as_ref()).map(|queue| queue.caps);
        let delay = caps.find_map(|caps| caps.delay).unwrap_or(self.queues.settings().wait);
        let says_nothing =
            |gang: &&mut Gang| gang.topology.wait_ms == 0 && gang.topology.price_milli.is_none();
        for gang in job.gangs.iter_mut().filter(says_nothing) {
            match delay {
                Delay::For(ms) => gang.topology.wait_ms = ms,
                Delay::Priced(milli) => gang.topology.price_milli = Some(milli),
            }
        }
    }
}
