//! How long a gang waits for its preferred level if there is a price for that: until the wait has cost as much as the
//! farther placement would. In every case, that costs at most twice what the better of the two would have cost (rent or
//! buy: Karlin, Manasse, Rudolph and Sleator, Algorithmica 3, 1988).

use phalanx_model::{Delay, Gang, Job, Spread};

use super::Ledger;
use crate::placement::{Ceiling, Search};

/// The longest wait, however slow the farther placement is.
const WORTH_MAX_MS: u64 = 7 * 24 * 3_600_000;

impl Ledger {
    /// Sets for each gang that prefers a level how long it waits for that level, if the job or its queue has a price
    /// for that.
    pub(super) fn price_waits(&self, job: &mut Job) {
        let queue = self.queues.find(&job.queue);
        let above = queue.into_iter().flat_map(|at| self.queues.path(at));
        let mut caps = above.filter_map(|at| self.queues.at(at).queue.as_ref()).map(|queue| queue.caps);
        let of_queue = caps.find_map(|caps| caps.delay);
        let limit_ms = job.policy.time_limit_ms;
        for gang in job.gangs.iter_mut().filter(|gang| gang.topology.preferred.is_some()) {
            let says_nothing = gang.topology.wait_ms == 0 && gang.topology.price_milli.is_none();
            match of_queue.filter(|_| says_nothing) {
                Some(Delay::For(ms)) => gang.topology.wait_ms = ms,
                Some(Delay::Priced(milli)) => gang.topology.price_milli = Some(milli),
                None => {}
            }
            // A gang without a time limit has no price.
            if let Some(worth_ms) = limit_ms.and_then(|limit_ms| self.worth_waiting_ms(gang, limit_ms)) {
                gang.topology.wait_ms = worth_ms;
            }
        }
    }

    /// The most that a run of this length loses outside of the preferred level, at the price of a wait; predicted on
    /// empty nodes. `None` if no price is set, or the level makes no difference to the gang.
    fn worth_waiting_ms(&self, gang: &Gang, limit_ms: u64) -> Option<u64> {
        let price_milli = gang.topology.price_milli?.max(1);
        let level = gang.topology.preferred.as_ref()?;
        let (preferred, required) = (self.tree.level_at(level)?, self.tree.level_of_required(gang));
        let mut search = Search::default();
        let near = search.place(&self.tree, &self.empty_opened, gang, Ceiling(preferred))?.cost.time_ns;
        let mut apart = gang.clone();
        // A placement that is not inside one domain of the level.
        apart.topology.spread.push(Spread { level: level.clone(), max: gang.size.saturating_sub(1).max(1) });
        let far = search.place(&self.tree, &self.empty_opened, &apart, Ceiling(required))?.cost.time_ns;
        let compute_ns = gang.traffic.map_or(0, |traffic| traffic.compute_ns);
        let step_ns = u128::from(near.saturating_add(compute_ns)).max(1);
        let lost_ms = u128::from(limit_ms) * u128::from(far.saturating_sub(near)) / step_ns;
        let worth_ms = lost_ms * 1_000 / u128::from(price_milli);
        Some(u64::try_from(worth_ms).unwrap_or(u64::MAX).min(WORTH_MAX_MS))
    }
}
