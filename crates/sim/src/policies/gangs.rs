//! Jobs of a replay as gangs of the model: one rank for each device, or share of one.

use phalanx_model::{Gang, ModelNeed, Needs, PartNeed, Pattern, Program, Topology, Traffic};

use crate::replay::Job;

/// What a job sends in one collective where nothing is known: the gradients of 32 million parameters.
pub(crate) const BYTES: u64 = 128 << 20;

/// A share, and the same part of the memory. Traces do not say whom jobs trust: all shares may be on one device.
fn share(milli: u32) -> PartNeed {
    PartNeed::Share { compute_milli: milli, memory_bytes: 0, trust: "trace".to_owned() }
}

/// The gang of a job with so many of its devices.
pub(crate) fn gang(of: &Job, gpus: u32) -> Gang {
    let need = |model: &String| ModelNeed { model: model.clone(), speed_milli: ModelNeed::AS_SAID };
    Gang {
        size: gpus,
        min: gpus,
        max: gpus,
        needs: Needs {
            devices: u32::from(of.share_milli.is_none()),
            part: of.share_milli.map(share),
            models: of.models.iter().map(need).collect(),
            ..Needs::default()
        },
        roles: Vec::new(),
        members_per_node: None,
        topology: Topology::default(),
        traffic: Some(Traffic { pattern: Pattern::AllReduce, bytes: BYTES, compute_ns: 0 }),
        grid: Vec::new(),
        program: Program::default(),
    }
}
