//! What the engine says, in words for people: jobs by their names.

use phalanx_model::{Eviction, GangId, Reason, StopCause};
use phalanx_shell::Engine;
use phalanx_spec::quantity::format_duration_ns;

/// `job 13 (whole)`; of a job with several gangs `gang 13.2 (whole)`.
pub(crate) fn gang(engine: &Engine, id: GangId) -> String {
    match engine.job(id.job) {
        Some(job) if job.gangs.len() > 1 => format!("gang {id} ({})", job.name),
        Some(job) => format!("job {} ({})", id.job, job.name),
        None if id.index == 0 => format!("job {}", id.job),
        None => format!("gang {id}"),
    }
}

/// Why a gang waits: the engine's own sentence where it speaks of nobody else.
pub(crate) fn reason(engine: &Engine, reason: &Reason) -> String {
    match reason {
        Reason::Priority { ahead, at: None } => {
            format!("{} was passed over as often as is fair and starts first", gang(engine, *ahead))
        }
        Reason::Priority { ahead, at: Some(_) } => {
            format!("would still run when {} is to start on what is free now", gang(engine, *ahead))
        }
        Reason::Preempting { victims } => {
            let victims: Vec<String> = victims.iter().map(|victim| gang(engine, *victim)).collect();
            format!("its place is held, and these make way: {}", victims.join(", "))
        }
        Reason::Dependency { jobs } => {
            let jobs: Vec<String> = jobs.iter().map(|job| gang(engine, job.gang(0))).collect();
            format!("waits for the end of {}", jobs.join(", "))
        }
        _ => reason.to_string(),
    }
}

/// Why a gang is being stopped.
pub(crate) fn stop(engine: &Engine, cause: &StopCause) -> String {
    match cause {
        StopCause::Failure { class, detail, .. } => format!("{class}: {detail}"),
        StopCause::Displaced { detail, .. } => detail.clone(),
        StopCause::Preempted(eviction) => evicted(engine, eviction),
        StopCause::Cancelled { by } => format!("cancelled by {by}"),
        StopCause::TimeLimit => "its time limit is reached".to_owned(),
        StopCause::Resized { size } => format!("starts again with {size} members"),
        StopCause::ScaledIn { replicas } => format!("{replicas} replicas are enough"),
        StopCause::IdleLimit => "nobody used it".to_owned(),
    }
}

/// For whom a gang makes way, by which rule, and what it costs.
fn evicted(engine: &Engine, eviction: &Eviction) -> String {
    let Eviction { by, rule, lost_device_ms, .. } = eviction;
    let (by, lost) = (gang(engine, *by), span(*lost_device_ms));
    format!("makes way for {by}: {rule}; at most {lost} of GPU time are lost")
}

/// `1h30m`, to the second; short ones to a tenth of it.
pub(crate) fn span(ms: u64) -> String {
    let grain = if ms < 10_000 { 100 } else { 1_000 };
    format_duration_ns((ms / grain * grain).saturating_mul(1_000_000))
}
