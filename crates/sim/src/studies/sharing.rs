//! Tenants that use parts of GPUs, on whole GPUs and on parts.

use phalanx_model::{Needs, PartNeed, Queue, QueueName, Settings};
use serde::Deserialize;

use super::input::{Count, Milli};
use super::page::{Cell, Page, Table};
use super::{Around, Source, StudyError, one_leaf, percent};
use crate::Rng;
use crate::fleet::{Fleet, Load, Service};

/// Memory of the GPU that the simulated nodes have, an H100: what a tenant may ask for in proportion.
const GPU_BYTES: u64 = 80_000_000_000;
/// All tenants have started long before.
const END_MS: u64 = 300_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sharing {
    nodes: Count<1, 1_000>,
    tenants: Count<1, 4_000>,
    uses: Span,
    requests: Milli<1_000, 2_000>,
    memory: Milli<0, 1_000>,
    seed: Count<0, { u32::MAX }>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Span {
    from: Milli<1, 1_000>,
    to: Milli<1, 1_000>,
}

/// How GPUs are given to tenants.
#[derive(Clone, Copy)]
enum Unit {
    Gpu,
    Slice,
    Share,
}

impl Unit {
    const ALL: [Self; 3] = [Self::Gpu, Self::Slice, Self::Share];

    const fn name(self) -> &'static str {
        match self {
            Self::Gpu => "whole GPUs",
            Self::Slice => "MIG slices",
            Self::Share => "shares",
        }
    }

    fn needs(self, compute_milli: u32, memory: Milli<0, 1_000>) -> Needs {
        let memory_bytes = GPU_BYTES / 1_000_000 * u64::from(compute_milli) * u64::from(memory.0);
        let part = match self {
            Self::Gpu => return Needs { devices: 1, ..Needs::default() },
            Self::Slice => PartNeed::Slice { compute_milli, memory_bytes },
            Self::Share => PartNeed::Share { compute_milli, memory_bytes, trust: "all".to_owned() },
        };
        Needs { part: Some(part), ..Needs::default() }
    }
}

pub(super) fn page(source: &Source<'_>, around: &mut dyn Around) -> Result<Page, StudyError> {
    let input: Sharing = source.read()?;
    let (from, to) = (input.uses.from.0, input.uses.to.0);
    if from > to {
        return Err(source.wrong("uses: `from` is more than `to`; exchange them"));
    }
    if u64::from(to) * u64::from(input.requests.0) > 1_000_000 {
        return Err(source.wrong("uses.to: with `requests` a tenant asks for more than a GPU; lower either"));
    }
    if input.tenants.0 > input.nodes.0 * 8 {
        let what = format!(
            "tenants: {} do not fit {} nodes of 8 GPUs on whole GPUs",
            input.tenants.0, input.nodes.0
        );
        return Err(source.wrong(what + "; raise `nodes`"));
    }
    let mut rng = Rng::new(u64::from(input.seed.0));
    let span = u64::from(to - from) + 1;
    let uses: Vec<u32> =
        (0..input.tenants.0).map(|_| from + u32::try_from(rng.below(span)).unwrap_or(0)).collect();
    let sum: f64 = uses.iter().map(|milli| f64::from(*milli) / 1_000.0).sum();
    let mut table = Table::new("", &["tenants have", "GPUs in use", "used, %"]);
    for (at, unit) in (1..).zip(Unit::ALL) {
        around.begin(unit.name(), at, Unit::ALL.len() as u64);
        let open = input.open_gpus(source, unit, &uses)?;
        let used = percent(sum, open as f64);
        table.rows.push(vec![Cell::word(unit.name()), Cell::Number(open as f64, 0), Cell::Number(used, 1)]);
    }
    let used: Vec<String> = table
        .rows
        .iter()
        .filter_map(|row| match row.as_slice() {
            [Cell::Word(unit), _, Cell::Number(used, _)] => Some(format!("{used:.1} % on {unit}")),
            _ => None,
        })
        .collect();
    Ok(Page {
        study: "sharing",
        title: "Parts of GPUs (modelled)",
        question: "How many GPUs do tenants need that use a part of one each? Claimed: sharing raises the use of GPUs from \
                   20-30 % to 60-80 %."
            .to_owned(),
        basis: format!(
            "{} tenants use {sum:.1} GPUs in all. Used is that, over the GPUs on which any tenant runs. The engine places all \
             tenants on H100 with MIG in sevenths.",
            input.tenants.0
        ),
        tables: vec![table],
        findings: vec![format!(
            "GPUs are used to {}. MIG slices keep tenants apart; tenants with shares slow each other down, which is not modelled.",
            used.join(", ")
        )],
        input: source.input(),
        declared: source.text.to_owned(),
    })
}

impl Sharing {
    /// The most GPUs that the tenants have in use at a time.
    fn open_gpus(&self, source: &Source<'_>, unit: Unit, uses: &[u32]) -> Result<usize, StudyError> {
        let queue = QueueName::new("tenants").map_err(|error| source.wrong(error))?;
        let service = |uses_milli: &u32| Service {
            queue: queue.clone(),
            needs: unit.needs((uses_milli * self.requests.0).div_ceil(1_000), self.memory),
            min: 1,
            max: 1,
            workers: 1,
            rate_milli: 1_000,
            gpu_milli: *uses_milli,
            target_milli: 1_000,
            starts_ms: 1_000,
            load: Load { peak_milli: 1_000, later_ms: 0, noise_milli: 0, seed: 1 },
        };
        let cluster = one_leaf(self.nodes.0)?;
        let fleet = Fleet {
            levels: cluster.levels,
            nodes: cluster.nodes,
            settings: Settings::default(),
            queues: vec![Queue::named(queue.clone())],
            services: uses.iter().map(service).collect(),
            training: Vec::new(),
            reclaims: None,
            end_ms: END_MS,
            seed: u64::from(self.seed.0),
        };
        Ok(fleet.run()?.open_most)
    }
}
