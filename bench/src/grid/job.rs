//! Jobs: models as they are published, cut as Megatron-LM cuts them (Narayanan et al. 2021, section 3).

use phalanx_model::{Axis, AxisKind, Collective, Gang, Needs, Program, Topology};

pub(crate) const SIZES: [u32; 5] = [64, 128, 256, 512, 1_024];

/// A model, its sizes as published (Llama 2: Touvron et al. 2023; Code Llama: Rozière et al. 2023; GPT-3:
/// Brown et al. 2020).
struct Model {
    parameters: u64,
    hidden: u64,
    layers: u64,
    /// Tokens of a sequence.
    sequence: u64,
}

/// One training job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) ranks: u32,
    /// A pod is one tensor parallel group.
    pub(crate) tensor: u32,
    pub(crate) pipeline: u32,
    pub(crate) data: u32,
    /// In rank order: tensor, data, pipeline.
    pub(crate) axes: [Axis; 3],
}

impl Job {
    /// The gang as a user asks for it: one GPU for each rank, and how they talk.
    pub(crate) fn gang(&self) -> Gang {
        Gang {
            size: self.ranks,
            min: self.ranks,
            max: self.ranks,
            needs: Needs { devices: 1, ..Needs::default() },
            roles: Vec::new(),
            members_per_node: None,
            topology: Topology::default(),
            traffic: None,
            grid: self.axes.to_vec(),
            program: Program::default(),
        }
    }
}

/// Three ways to cut the model of a size: tensor and pipeline degrees.
pub(crate) fn jobs(ranks: u32) -> Vec<Job> {
    let cuts: [(u32, u32); 3] = match ranks {
        64 => [(8, 2), (4, 4), (2, 4)],
        128 => [(8, 4), (4, 4), (2, 4)],
        256 => [(8, 4), (4, 8), (2, 8)],
        512 => [(8, 4), (8, 8), (4, 8)],
        _ => [(8, 8), (8, 16), (4, 16)],
    };
    cuts.map(|(tensor, pipeline)| job(ranks, tensor, pipeline)).to_vec()
}

fn model(ranks: u32) -> Model {
    let (billions, hidden, layers, sequence) = match ranks {
        64 => (7, 4_096, 32, 4_096),
        128 => (13, 5_120, 40, 4_096),
        256 => (34, 8_192, 48, 4_096),
        512 => (70, 8_192, 80, 4_096),
        _ => (175, 12_288, 96, 2_048),
    };
    Model { parameters: billions * 1_000_000_000, hidden, layers, sequence }
}

/// Two bytes a number, micro-batches of one sequence, four of them for each stage of the pipeline.
fn job(ranks: u32, tensor: u32, pipeline: u32) -> Job {
    let model = model(ranks);
    let activations = model.sequence * model.hidden * 2;
    let micro_batches = 4 * pipeline;
    let layers = u32::try_from(model.layers).unwrap_or(u32::MAX).div_ceil(pipeline);
    let data = ranks / tensor / pipeline;
    let axis = |kind, degree, collective, bytes, calls| Axis { kind, degree, collective, bytes, calls };
    let axes = [
        // Two all-reduces a layer forwards, and two backwards.
        axis(AxisKind::Tensor, tensor, Collective::AllReduce, activations, 4 * layers * micro_batches),
        // The gradients, once a step.
        axis(
            AxisKind::Data,
            data,
            Collective::AllReduce,
            model.parameters * 2 / u64::from(tensor * pipeline),
            1,
        ),
        // Each rank sends its part of the activations; their gradients come back.
        axis(
            AxisKind::Pipeline,
            pipeline,
            Collective::PointToPoint,
            activations / u64::from(tensor),
            micro_batches,
        ),
    ];
    Job { ranks, tensor, pipeline, data, axes }
}
