//! The scheduler of a Kubernetes cluster, until it loses its lease.

use std::process::ExitCode;
use std::time::Duration;

use phalanx_health::Policy;
use phalanx_kube::gang::Options;
use phalanx_kube::recognise::{BrokenSigns, NodesUsed};
use phalanx_kube::world::{self, LeaseSettings, SchedulerError, Settings};
use phalanx_model::QueueName;

use crate::args::{Deciding, Scheduler, Used};
use crate::failure::Failure;

/// Why it ends is the last line of its log.
pub(super) fn scheduler(asked: Scheduler) -> ExitCode {
    asked.log.begin();
    schedule(asked).map_or_else(|failure| failure.log(), |()| ExitCode::SUCCESS)
}

fn schedule(asked: Scheduler) -> Result<(), Failure> {
    if asked.lease_duration == 0 || asked.deciding.ready_deadline == 0 || asked.binding_deadline == 0 {
        return Err(Failure::usage("a duration of 0 seconds", "give at least 1"));
    }
    let seconds = Duration::from_secs;
    let binding = seconds(asked.binding_deadline);
    let lease = (!asked.no_lease).then(|| LeaseSettings {
        namespace: asked.lease_namespace,
        name: asked.lease_name,
        holder: world::holder(),
        length: seconds(asked.lease_duration),
        renew: seconds(asked.lease_duration) / 5,
    });
    let settings = Settings {
        kubeconfig: asked.kubeconfig,
        context: asked.context,
        options: options(asked.deciding)?,
        binding,
        lease,
        listen: asked.listen,
        provisioning_class: asked.provisioning_class,
        otlp_endpoint: asked.otlp_endpoint,
    };
    match world::run(&settings) {
        Ok(()) => Ok(()),
        Err(error @ (SchedulerError::Config(_) | SchedulerError::Traces(_))) => {
            Err(Failure::usage(error.to_string(), ""))
        }
        Err(error) => Err(Failure::unavailable(error.to_string(), "start it again; what runs goes on")),
    }
}

/// How gangs are to be decided about.
pub(super) fn options(asked: Deciding) -> Result<Options, Failure> {
    let queue = QueueName::new(&asked.queue)
        .map_err(|bad| Failure::usage(format!("--queue {:?}: {bad}", asked.queue), "name a queue"))?;
    let broken = match asked.broken_if {
        None => BrokenSigns::default(),
        Some(signs) if signs == ["none"] => BrokenSigns::from_iter([]),
        Some(signs) => signs
            .iter()
            .map(|sign| sign.parse())
            .collect::<Result<_, String>>()
            .map_err(|why| Failure::usage(format!("--broken-if: {why}"), "or write none"))?,
    };
    let defaults = Policy::default();
    let small_devices = if asked.close_at_most == 0 { 0 } else { defaults.small_devices };
    Ok(Options {
        broken,
        health: Policy { max_share_percent: asked.close_at_most, small_devices, ..defaults },
        scheduler_name: asked.scheduler_name,
        queue,
        ready_ms: asked.ready_deadline.saturating_mul(1_000),
        vacant_ms: asked.replacement_deadline.saturating_mul(1_000),
        min_run_ms: asked.min_run.saturating_mul(1_000),
        nodes: match asked.nodes {
            Used::All => NodesUsed::All,
            Used::Labelled => NodesUsed::Labelled,
        },
    })
}
