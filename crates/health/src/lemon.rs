//! Devices on which jobs fail more often than elsewhere.

use phalanx_model::{Grade, JobId, NodeName, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Policy;
use crate::state::State;

/// Jobs that are remembered. Beyond it, failures of further jobs are not counted.
const FAILED_MAX: usize = 65_536;

/// Where a job had errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) at: Timestamp,
    node: NodeName,
    device: u32,
    /// On no other device, until now.
    is_alone: bool,
}

/// A job had an error on a device. A job with errors on several devices speaks against none of them.
pub(crate) fn count(state: &mut State, now: Timestamp, node: &NodeName, device: u32, job: JobId) {
    let is_full = state.failed.len() >= FAILED_MAX;
    let mut first = None;
    let is_alone = match state.failed.get_mut(&job) {
        None if is_full => false,
        None => {
            state.failed.insert(job, Place { at: now, node: node.clone(), device, is_alone: true });
            true
        }
        Some(place) => {
            place.at = now;
            let is_elsewhere = (&place.node, place.device) != (node, device);
            if is_elsewhere && std::mem::take(&mut place.is_alone) {
                first = Some((place.node.clone(), place.device));
            }
            place.is_alone
        }
    };
    if let Some((node, device)) = first {
        let subject = state.nodes.get_mut(&node).and_then(|on| on.subject_mut(Some(device)));
        let failure = subject.and_then(|subject| subject.jobs.get_mut(&job));
        if let Some(failure) = failure {
            failure.is_alone = false;
        }
    }
    if let Some(subject) = state.nodes.get_mut(node).and_then(|on| on.subject_mut(Some(device))) {
        subject.count_job(now, job, is_alone);
    }
}

/// Different jobs that failed on some devices.
#[derive(Clone, Copy, Default)]
struct Failed {
    jobs: u64,
    devices: u64,
}

/// The grade that the jobs that failed on a device alone ask for, beyond what chance explains.
///
/// Jobs that fail independently of each other spread over devices as a Poisson distribution, with a deviation of the root of
/// the average. A device has to exceed several times the average, and three deviations, by several jobs: the average of the
/// other devices of its node, and that of all other devices. In 10,000 devices and a month, chance does so with a
/// probability of about 1 %, whatever the average is.
pub(crate) fn grade(state: &State, policy: &Policy, node: &NodeName, device: u32) -> Grade {
    let subject = state.nodes.get(node).and_then(|on| on.subject(Some(device)));
    let here = subject.map_or(0, |subject| subject.failed_alone());
    let least = u64::from(policy.lemon_jobs);
    if here < least {
        return Grade::Ok;
    }
    let (mut peers, mut all) = (Failed::default(), Failed::default());
    for (name, of) in &state.nodes {
        let others = (0_u32..).zip(&of.devices).filter(|(index, _)| name != node || *index != device);
        let (jobs, devices) =
            others.fold((0, 0), |(jobs, devices), (_, of)| (jobs + of.failed_alone(), devices + 1));
        if name == node {
            peers = Failed { jobs, devices };
        }
        all = Failed { jobs: all.jobs + jobs, devices: all.devices + devices };
    }
    let exceeds = |of: Failed| {
        let (jobs, devices) = (u128::from(of.jobs), u128::from(of.devices));
        let expected = u128::from(least) * devices + u128::from(policy.lemon_ratio) * jobs;
        let more = (u128::from(here) * devices).checked_sub(expected);
        more.is_some_and(|more| more * more >= 9 * jobs * devices)
    };
    match (exceeds(peers) && exceeds(all), all.devices) {
        (false, _) => Grade::Ok,
        // There is nothing to compare with.
        (true, 0) => Grade::Suspect,
        (true, _) => Grade::DrainAfterJob,
    }
}
