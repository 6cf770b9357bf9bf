//! Fits the few constants that differ from site to site to what was measured there.
//!
//! Every constant moves by itself, up or down by a factor that shrinks; no step is taken by chance, so the same
//! measurements give the same constants. A small price on every departure from the start keeps a constant where
//! the data does not speak of it.
//!
//! A constant moves by the measurements whose predicted time depends on it, and only if these have enough sizes. One
//! that several kinds of machines have in common moves only by several kinds; measurements of one kind alone give this
//! kind a constant of its own ([`crate::Kinds`]), so that what was measured on one machine changes no other.

use std::collections::BTreeSet;

use crate::collective;
use crate::constants::Constants;
use crate::measurements::Measurement;
use crate::{MachineKind, Network};

/// A constant that measurements may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parameter {
    /// Of all kinds of machines that have none of their own.
    Common(Own),
    /// Of one kind of machine.
    OfKind(MachineKind, Own),
    NetworkShare(Network),
    NetworkHopNs(Network),
}

/// A constant that describes the machines, and not what is between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Own {
    RingShare,
    NvlsShare,
    NvlsTreeShare,
    PipelineShare,
    PipelineBytes,
    LaunchNs,
}

/// What a fit found.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    pub constants: Constants,
    /// Mean of `max(predicted / measured, measured / predicted) - 1`, before and after.
    pub error_before: f64,
    pub error_after: f64,
    /// Those that the measurements determine, also where they confirm the value.
    pub moved: Vec<Moved>,
    /// Those that the measurements do not determine, which stay.
    pub kept: Vec<Kept>,
}

/// One constant and what it rests on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    pub parameter: Parameter,
    pub before: f64,
    pub after: f64,
    /// Measurements whose predicted time depends on it.
    pub measurements: usize,
}

/// A constant that stays, and what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    pub parameter: Parameter,
    /// Different sizes among the measurements that depend on it.
    pub sizes: usize,
    /// Sizes with which it would move.
    pub needs: usize,
}

/// Large messages tell bandwidths, which placement turns on; small ones tell latencies.
const LARGE_BYTES: u64 = 64 << 20;
const SMALL_WEIGHT: f64 = 0.4;
/// One measurement that is off by more than this counts as much as one that is off by this.
const ERROR_MAX: f64 = 2.0;
/// A constant that doubles costs as much as this error in all measurements.
const PRIOR_WEIGHT: f64 = 0.002;
const ROUNDS: u32 = 60;
const FACTOR: f64 = 1.3;
const FACTOR_MIN: f64 = 1.000_5;
/// A measurement depends on a share if a tenth less of it changes the time by this part, and on any other constant if
/// twice of it does.
const DEPENDS: f64 = 0.03;
/// What a step may take away from the measurements that depend on its constant, where all together gain.
const SLACK: f64 = 0.001;

/// The constants nearest to `start` under which the model comes closest to `measurements`.
#[must_use]
pub fn calibrate(measurements: &[Measurement], start: &Constants) -> Fit {
    let (free, kept) = free(measurements, start);
    let mut constants = *start;
    let mut factors = vec![FACTOR; free.len()];
    let error_before = error(measurements, start);
    let mut best = price(measurements, &free, &constants, start);
    for _ in 0..ROUNDS {
        for ((parameter, own), factor) in free.iter().zip(&mut factors) {
            let value = parameter.get(&constants);
            let own_best = error(own, &constants);
            let tries = [value * *factor, value / *factor].map(|tried| {
                let mut changed = constants;
                parameter.set(&mut changed, tried);
                (price(measurements, &free, &changed, start), changed)
            });
            let [up, down] = tries;
            let better = if down.0 < up.0 { down } else { up };
            // What depends on other constants alone must not be explained by this one.
            if better.0 < best && error(own, &better.1) < own_best + SLACK {
                (best, constants) = better;
            } else {
                *factor = 1.0 + (*factor - 1.0) * 0.6;
            }
        }
        if factors.iter().all(|factor| *factor < FACTOR_MIN) {
            break;
        }
    }
    let moved = free.into_iter().map(|(parameter, own)| Moved {
        parameter,
        before: parameter.get(start),
        after: parameter.get(&constants),
        measurements: own.len(),
    });
    Fit {
        error_after: error(measurements, &constants),
        moved: moved.collect(),
        kept,
        constants,
        error_before,
    }
}

/// The constants that these measurements determine, each with those that depend on it, and those that they do not.
fn free(measurements: &[Measurement], start: &Constants) -> (Vec<(Parameter, Vec<Measurement>)>, Vec<Kept>) {
    let (mut free, mut kept) = (Vec::new(), Vec::new());
    let kinds: BTreeSet<MachineKind> = measurements.iter().map(|m| MachineKind::of(&m.span)).collect();
    for own in Own::ALL {
        let common = Parameter::Common(own);
        let speak = |parameter: Parameter| -> Vec<Measurement> {
            measurements.iter().filter(|m| parameter.moves(m, start)).cloned().collect()
        };
        let of_kind: Vec<(MachineKind, Vec<Measurement>)> =
            kinds.iter().map(|kind| (*kind, speak(Parameter::OfKind(*kind, own)))).collect();
        let needs = own.needs();
        // A kind that has its own constant says nothing of that of all kinds.
        let has_own = |kind: MachineKind| own.of(&start.kinds.get(kind)).is_some();
        let enough: Vec<&(MachineKind, Vec<Measurement>)> =
            of_kind.iter().filter(|(_, speak)| sizes(speak) >= needs).collect();
        let in_common = enough.iter().filter(|(kind, _)| !has_own(*kind)).count();
        if in_common > 1 {
            free.push((common, speak(common)));
        } else {
            let most =
                of_kind.iter().filter(|(kind, _)| !has_own(*kind)).map(|(_, speak)| sizes(speak)).max();
            if in_common == 0 {
                kept.push(Kept { parameter: common, sizes: most.unwrap_or(0), needs });
            }
        }
        for (kind, speak) in enough {
            if has_own(*kind) || in_common == 1 {
                free.push((Parameter::OfKind(*kind, own), speak.clone()));
            }
        }
    }
    for network in Network::ALL {
        for parameter in [Parameter::NetworkShare(network), Parameter::NetworkHopNs(network)] {
            let speak: Vec<Measurement> =
                measurements.iter().filter(|m| parameter.moves(m, start)).cloned().collect();
            let (sizes, needs) = (sizes(&speak), parameter.needs());
            if sizes >= needs {
                free.push((parameter, speak));
            } else {
                kept.push(Kept { parameter, sizes, needs });
            }
        }
    }
    (free, kept)
}

/// How many sizes there are: repeats of one size say no more than one of them.
fn sizes(measurements: &[Measurement]) -> usize {
    measurements.iter().map(|m| m.bytes).collect::<BTreeSet<u64>>().len()
}

/// The time that the model expects of a measurement.
#[must_use]
pub fn predicted_ns(measurement: &Measurement, constants: &Constants) -> f64 {
    let time =
        collective::time(&measurement.span, measurement.collective, measurement.bytes, None, constants);
    let launch_ns = || constants.between(&measurement.span).launch_ns;
    time.ns + if measurement.is_framework { launch_ns() } else { 0.0 }
}

fn price(
    measurements: &[Measurement],
    free: &[(Parameter, Vec<Measurement>)],
    constants: &Constants,
    start: &Constants,
) -> f64 {
    let departed: f64 = free.iter().map(|(p, _)| ratio(p.get(constants), p.get(start))).sum();
    error(measurements, constants) + PRIOR_WEIGHT * departed
}

/// Mean of `max(predicted / measured, measured / predicted) - 1`, in which large messages count more.
#[must_use]
pub fn error(measurements: &[Measurement], constants: &Constants) -> f64 {
    let (mut sum, mut weights) = (0.0, 0.0);
    for measurement in measurements {
        let weight = if measurement.bytes >= LARGE_BYTES { 1.0 } else { SMALL_WEIGHT };
        sum += weight * ratio(predicted_ns(measurement, constants), measurement.ns).min(ERROR_MAX);
        weights += weight;
    }
    if weights > 0.0 { sum / weights } else { 0.0 }
}

/// How far apart two positive numbers are: 0 when equal, 1 when one is twice the other.
fn ratio(a: f64, b: f64) -> f64 {
    if a <= 0.0 || b <= 0.0 {
        return ERROR_MAX;
    }
    (a / b).max(b / a) - 1.0
}

impl Own {
    pub const ALL: [Self; 6] = [
        Self::RingShare,
        Self::NvlsShare,
        Self::NvlsTreeShare,
        Self::PipelineShare,
        Self::PipelineBytes,
        Self::LaunchNs,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::RingShare => "ring_share",
            Self::NvlsShare => "nvls_share",
            Self::NvlsTreeShare => "nvls_tree_share",
            Self::PipelineShare => "pipeline_share",
            Self::PipelineBytes => "pipeline_bytes",
            Self::LaunchNs => "launch_ns",
        }
    }

    /// Sizes that determine it. How parts of a message pass through a pipeline shows only over many.
    const fn needs(self) -> usize {
        match self {
            Self::RingShare | Self::NvlsShare | Self::NvlsTreeShare | Self::LaunchNs => 3,
            Self::PipelineShare | Self::PipelineBytes => 8,
        }
    }

    const fn of(self, kind: &crate::OfKind) -> Option<f64> {
        match self {
            Self::RingShare => kind.ring_share,
            Self::NvlsShare => kind.nvls_share,
            Self::NvlsTreeShare => kind.nvls_tree_share,
            Self::PipelineShare => kind.pipeline_share,
            Self::PipelineBytes => kind.pipeline_bytes,
            Self::LaunchNs => kind.launch_ns,
        }
    }

    const fn get(self, constants: &Constants) -> f64 {
        match self {
            Self::RingShare => constants.ring_share,
            Self::NvlsShare => constants.nvls_share,
            Self::NvlsTreeShare => constants.nvls_tree_share,
            Self::PipelineShare => constants.pipeline_share,
            Self::PipelineBytes => constants.pipeline_bytes,
            Self::LaunchNs => constants.launch_ns,
        }
    }

    /// Shares stay within what is physical: NCCL's numbers for NVLink are rounded, so a little more than all
    /// of them is possible.
    fn clamped(self, value: f64) -> f64 {
        match self {
            Self::RingShare => value.clamp(0.2, 1.1),
            Self::NvlsShare => value.clamp(0.2, 1.2),
            Self::NvlsTreeShare => value.clamp(0.2, 1.0),
            Self::PipelineShare => value.clamp(0.01, 1.0),
            Self::PipelineBytes => value.clamp(1e5, 1e10),
            Self::LaunchNs => value.clamp(100.0, 1e7),
        }
    }
}

impl Parameter {
    /// Those of all kinds of machines, and those of networks.
    pub fn all() -> impl Iterator<Item = Self> {
        let networks = Network::ALL.into_iter().flat_map(|n| [Self::NetworkShare(n), Self::NetworkHopNs(n)]);
        Own::ALL.into_iter().map(Self::Common).chain(networks)
    }

    /// As a person reads it, and where a file of constants has it: `networks.verbs.share`.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Common(own) => own.name().to_owned(),
            Self::OfKind(kind, own) => format!("kinds.{}.{}", kind.name(), own.name()),
            Self::NetworkShare(network) => format!("networks.{}.share", network.name()),
            Self::NetworkHopNs(network) => format!("networks.{}.hop_ns", network.name()),
        }
    }

    /// Its value; of a kind without its own, that of all kinds.
    #[must_use]
    pub fn get(self, constants: &Constants) -> f64 {
        match self {
            Self::Common(own) => own.get(constants),
            Self::OfKind(kind, own) => own.get(&constants.of_kind(kind)),
            Self::NetworkShare(network) => constants.networks.get(network).share,
            Self::NetworkHopNs(network) => constants.networks.get(network).hop_ns,
        }
    }

    /// Of a network nobody gets more than its line rate.
    fn set(self, constants: &mut Constants, value: f64) {
        match self {
            Self::Common(own) => {
                let value = own.clamped(value);
                match own {
                    Own::RingShare => constants.ring_share = value,
                    Own::NvlsShare => constants.nvls_share = value,
                    Own::NvlsTreeShare => constants.nvls_tree_share = value,
                    Own::PipelineShare => constants.pipeline_share = value,
                    Own::PipelineBytes => constants.pipeline_bytes = value,
                    Own::LaunchNs => constants.launch_ns = value,
                }
            }
            Self::OfKind(kind, own) => {
                let value = Some(own.clamped(value));
                let Some(kind) = constants.kinds.get_mut(kind) else { return };
                match own {
                    Own::RingShare => kind.ring_share = value,
                    Own::NvlsShare => kind.nvls_share = value,
                    Own::NvlsTreeShare => kind.nvls_tree_share = value,
                    Own::PipelineShare => kind.pipeline_share = value,
                    Own::PipelineBytes => kind.pipeline_bytes = value,
                    Own::LaunchNs => kind.launch_ns = value,
                }
            }
            Self::NetworkShare(network) => constants.networks.get_mut(network).share = value.clamp(0.01, 1.0),
            Self::NetworkHopNs(network) => {
                constants.networks.get_mut(network).hop_ns = value.clamp(10.0, 1e7);
            }
        }
    }

    /// Different sizes that determine it.
    #[must_use]
    pub const fn needs(self) -> usize {
        match self {
            Self::Common(own) | Self::OfKind(_, own) => own.needs(),
            Self::NetworkShare(_) | Self::NetworkHopNs(_) => 3,
        }
    }

    /// Whether the predicted time of this measurement depends on it.
    #[must_use]
    pub fn moves(self, measurement: &Measurement, constants: &Constants) -> bool {
        let factor = match self {
            Self::Common(Own::RingShare | Own::NvlsShare | Own::NvlsTreeShare)
            | Self::OfKind(_, Own::RingShare | Own::NvlsShare | Own::NvlsTreeShare)
            | Self::NetworkShare(_) => 0.9,
            _ => 2.0,
        };
        let mut changed = *constants;
        self.set(&mut changed, self.get(constants) * factor);
        ratio(predicted_ns(measurement, &changed), predicted_ns(measurement, constants)) > DEPENDS
    }
}
