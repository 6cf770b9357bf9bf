//! The traffic of a gang, and the bandwidth of an uplink that other gangs leave.

use phalanx_model::{Gang, Pattern};

use super::shape::NO_LIMIT;

/// Message bytes of a gang that declares none: large enough that bandwidth counts more than latency, as it does for
/// gradients, which frameworks send in buckets of tens of megabytes.
const BYTES_UNSAID: u64 = 64 << 20;

/// Shares of an uplink are rounded to this fraction of it, so that few distinct bottlenecks exist.
const SHARE_STEPS: u64 = 16;

/// The declared communication pattern of a gang, and the bytes of one message.
pub(crate) fn said(gang: &Gang) -> (Pattern, u64) {
    gang.traffic.map_or((Pattern::AllReduce, BYTES_UNSAID), |said| (said.pattern, said.bytes))
}

/// The traffic among the members of one gang in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) pattern: Pattern,
    /// The bytes that pass the slowest part. A ring carries `2(k-1)/k` of the message.
    pub(crate) bytes: u64,
    /// All-to-all: from every member to every other.
    pub(crate) pair_bytes: u64,
    compute_ns: u64,
    is_said: bool,
}

impl Traffic {
    pub(crate) fn of(gang: &Gang) -> Self {
        let members = u64::from(gang.size.max(1));
        let (pattern, bytes) = said(gang);
        let compute_ns = gang.traffic.map_or(0, |said| said.compute_ns);
        let (bytes, pair_bytes) = match pattern {
            Pattern::AllReduce => (part(bytes, 2 * (members - 1), members), 0),
            Pattern::AllToAll => (bytes, bytes / members),
        };
        Self { pattern, bytes, pair_bytes, compute_ns, is_said: gang.traffic.is_some() }
    }

    /// Whether the gang declares that it sends nothing. Then no placement is faster than another, and the number of
    /// domains decides.
    pub(crate) const fn is_silent(&self) -> bool {
        self.is_said && self.bytes == 0
    }

    /// Time for its bytes over a bottleneck.
    pub(crate) fn over(&self, mb_per_s: u32) -> u64 {
        transfer_ns(self.bytes, mb_per_s)
    }

    /// The average bandwidth that the gang uses while it runs, if the slowest part gives this much. A gang without
    /// declared traffic is assumed to use none.
    pub(crate) fn demand_mb_per_s(&self, bottleneck_mb_per_s: u32) -> u32 {
        if !self.is_said || bottleneck_mb_per_s == NO_LIMIT {
            return 0;
        }
        let step_ns = self.over(bottleneck_mb_per_s).saturating_add(self.compute_ns);
        u32::try_from(part(self.bytes, 1_000, step_ns.max(1))).unwrap_or(NO_LIMIT).min(bottleneck_mb_per_s)
    }
}

/// Nanoseconds for bytes at a rate; 0 if nothing limits it.
pub(crate) fn transfer_ns(bytes: u64, mb_per_s: u32) -> u64 {
    if mb_per_s == NO_LIMIT { 0 } else { part(bytes, 1_000, u64::from(mb_per_s.max(1))) }
}

/// `amount * times / of`, rounded down, at most what fits.
fn part(amount: u64, times: u64, of: u64) -> u64 {
    u64::try_from(u128::from(amount) * u128::from(times) / u128::from(of.max(1))).unwrap_or(u64::MAX)
}

/// The traffic of gangs over one uplink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    gangs: u32,
    mb_per_s: u64,
}

impl Load {
    pub(crate) fn change(&mut self, mb_per_s: u32, is_added: bool) {
        if mb_per_s == 0 {
            return;
        }
        if is_added {
            self.gangs += 1;
            self.mb_per_s += u64::from(mb_per_s);
        } else {
            self.gangs = self.gangs.saturating_sub(1);
            self.mb_per_s = self.mb_per_s.saturating_sub(u64::from(mb_per_s));
        }
    }

    /// The bandwidth that one more gang gets: the rest of the uplink, and at least its fair share.
    pub(crate) fn left_of(&self, uplink_mb_per_s: u32) -> u32 {
        if uplink_mb_per_s == NO_LIMIT || self.gangs == 0 {
            return uplink_mb_per_s;
        }
        let all = u64::from(uplink_mb_per_s);
        let left = all.saturating_sub(self.mb_per_s).max(all / u64::from(self.gangs + 1));
        let step = (all / SHARE_STEPS).max(1);
        u32::try_from(left / step * step).unwrap_or(NO_LIMIT).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uplink_is_shared_by_those_who_use_it() {
        let mut load = Load::default();
        assert_eq!(load.left_of(160_000), 160_000);
        load.change(40_000, true);
        assert_eq!(load.left_of(160_000), 120_000, "what the other leaves");
        load.change(120_000, true);
        assert_eq!(load.left_of(160_000), 50_000, "a third, in steps of a sixteenth");
        load.change(40_000, false);
        load.change(120_000, false);
        assert_eq!(load, Load::default());
    }
}
