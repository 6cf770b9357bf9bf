//! GPUs of this machine that processes outside of jobs use: no new job gets them.

use std::collections::BTreeMap;

use phalanx_model::{DeviceMask, Vitals};

/// Memory in use above which a GPU without a job is in use by others: more than a driver, a display or an idle context takes,
/// and less than work does.
const USED_BYTES: u64 = 1 << 30;
/// In this many samples one after the other, so that the memory of a job that has just ended is not taken for it.
const SAMPLES: u32 = 2;

/// Counts samples of each GPU.
#[derive(Debug, Default)]
pub(crate) struct Outsiders(BTreeMap<u32, u32>);

impl Outsiders {
    /// The GPUs that outsiders use. `held` are those that jobs hold, or may hold: their memory tells nothing of outsiders. A
    /// GPU without a sample, or whose memory cannot be read, counts as before.
    pub(crate) fn sampled(&mut self, held: DeviceMask, samples: &[(u32, Vitals)]) -> DeviceMask {
        for (device, vitals) in samples {
            let count = self.0.entry(*device).or_default();
            match vitals.memory_used_bytes {
                _ if held.contains(*device) => *count = 0,
                Some(bytes) if bytes > USED_BYTES => *count = count.saturating_add(1),
                Some(_) => *count = 0,
                None => {}
            }
        }
        let used = self.0.iter().filter(|(_, count)| **count >= SAMPLES);
        used.fold(DeviceMask::EMPTY, |all, (device, _)| all.union(DeviceMask::one(*device)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(devices: &str) -> DeviceMask {
        devices.parse().unwrap()
    }

    fn used(gib: u64) -> Vitals {
        Vitals { memory_used_bytes: Some(gib << 30), ..Vitals::default() }
    }

    #[test]
    fn a_gpu_that_no_job_holds_and_that_is_full_twice_is_in_use_by_others() {
        let mut outsiders = Outsiders::default();
        let none = DeviceMask::EMPTY;
        assert_eq!(outsiders.sampled(none, &[(0, used(40)), (1, used(1))]), none);
        assert_eq!(outsiders.sampled(none, &[(0, used(40)), (1, used(1))]), mask("0"));
        // No sample, and none of the memory.
        assert_eq!(outsiders.sampled(none, &[]), mask("0"));
        assert_eq!(outsiders.sampled(none, &[(0, Vitals::default())]), mask("0"));
        assert_eq!(outsiders.sampled(none, &[(0, used(0)), (1, used(9))]), none);
    }

    #[test]
    fn the_memory_of_jobs_is_their_own() {
        let mut outsiders = Outsiders::default();
        for _ in 0..3 {
            assert_eq!(outsiders.sampled(mask("2"), &[(2, used(70))]), DeviceMask::EMPTY);
        }
        // The job has just ended.
        assert_eq!(outsiders.sampled(DeviceMask::EMPTY, &[(2, used(70))]), DeviceMask::EMPTY);
        assert_eq!(outsiders.sampled(DeviceMask::EMPTY, &[(2, used(0))]), DeviceMask::EMPTY);
    }
}
