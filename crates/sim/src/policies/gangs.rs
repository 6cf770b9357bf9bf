//! Jobs of a replay as gangs of the model: one rank for each device.

use phalanx_model::{Gang, ModelNeed, Needs, Pattern, Program, Topology, Traffic};

use crate::replay::Job;

/// What a job sends in one collective where nothing is known: the gradients of 32 million parameters.
pub(crate) const BYTES: u64 = 128 << 20;

/// The gang of a job with so many of its devices.
pub(crate) fn gang(of: &Job, gpus: u32) -> Gang {
    let need = |model: &String| ModelNeed { model: model.clone(), speed_milli: ModelNeed::AS_SAID };
    Gang {
        size: gpus,
        min: gpus,
        max: gpus,
        needs: Needs { devices: 1, models: of.models.iter().map(need).collect(), ..Needs::default() },
        roles: Vec::new(),
        members_per_node: None,
        topology: Topology::default(),
        traffic: Some(Traffic { pattern: Pattern::AllReduce, bytes: BYTES, compute_ns: 0 }),
        grid: Vec::new(),
        program: Program::default(),
    }
}
