//! A leader that is killed in the middle of its work, with a standby beside it.

use std::time::Duration;

use phalanx_controlplane::Api;

use super::runner::Running;
use super::trace::{Trace, What};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/phalanx-scheduler";

/// For so long a successor lets the calls of the old leader run out, see `ANSWER` of the scheduler.
const CALLS_RUN_OUT: Duration = Duration::from_secs(10);

/// By then a leader has bound what is waited for.
const WITHIN: Duration = Duration::from_secs(300);

/// When the lease and the calls of the leader that was killed allow another to bind, in the time of the trace.
pub(super) struct Takeover {
    allowed: Duration,
}

/// Waits until so many pods are bound.
pub(super) fn until(pods: usize, trace: &Trace) -> Result<(), String> {
    let began = trace.began.elapsed();
    while trace.progress()?.0 < pods {
        if trace.began.elapsed().saturating_sub(began) > WITHIN {
            return Err(format!("{pods} pods were not bound in {} s", WITHIN.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

impl Takeover {
    /// Kills the leader.
    pub(super) fn begin(trace: &Trace, api: &Api, leader: Running) -> Result<Self, String> {
        drop(leader);
        let (now, since) = (jiff::Timestamp::now(), trace.began.elapsed());
        let lease = api.get(LEASE).map_err(|e| e.to_string())?;
        let renewed: Option<jiff::Timestamp> =
            lease["spec"]["renewTime"].as_str().and_then(|at| at.parse().ok());
        let length = lease["spec"]["leaseDurationSeconds"].as_u64();
        let (Some(renewed), Some(length)) = (renewed, length) else {
            return Err(format!("a lease that nobody holds: {}", lease["spec"]));
        };
        let age = Duration::try_from(now.duration_since(renewed)).unwrap_or_default();
        let left = Duration::from_secs(length).saturating_sub(age);
        Ok(Self { allowed: since + left + CALLS_RUN_OUT })
    }

    /// From when it may bind to its first bind, in seconds; nothing where it bound nothing.
    pub(super) fn late_s(&self, trace: &Trace) -> Option<f64> {
        let events = trace.events();
        let binds =
            events.iter().filter(|event| matches!(event.what, What::Bound { .. })).map(|event| event.at);
        let first = binds.filter(|at| *at >= self.allowed).min()?;
        Some((first - self.allowed).as_secs_f64())
    }
}
