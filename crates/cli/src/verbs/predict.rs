//! `predict`: how long a collective takes on named GPUs, on some number of them, or for a job; without a daemon.

mod given;
mod map;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use phalanx_api::protocol::DryRunView;
use phalanx_cost::{Collective, Ground, Network, Point, sweep};
use phalanx_discover::describe;
use phalanx_model::product::Product;
use phalanx_model::{DeviceMask, Gang, Job, Node, NodeName, Pattern, Placement, Timestamp, Transport};
use phalanx_spec::pattern::NamePattern;
use serde::Serialize;

use super::Session;
use crate::args::{JobArgs, Predict, SIZES_MAX, Sizes, word};
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::show;
use crate::submission::{Origin, Submission};
use map::Map;

/// Sizes and GPUs of one prediction, multiplied: a second of work.
const WORK_MAX: u64 = 20_000_000;
/// What is predicted for a job that declares no traffic, as in a dry run.
const STANDARD_BYTES: u64 = 1 << 30;

/// All that was predicted.
#[derive(Debug, Serialize)]
pub(crate) struct Forecast {
    /// Where the machines come from.
    pub(crate) map: String,
    /// No figure here was measured.
    pub(crate) is_measured: bool,
    pub(crate) placements: Vec<Section>,
}

/// One collective on one placement.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    pub(crate) collective: &'static str,
    pub(crate) chosen_by: ChosenBy,
    /// Index of the gang, for a job of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) gang: Option<u32>,
    /// As `--on` reads them, in the order of the ranks.
    pub(crate) devices: String,
    /// The same for people: equal nodes are put together.
    #[serde(skip)]
    pub(crate) shown: String,
    pub(crate) gpus: u32,
    pub(crate) nodes: u32,
    /// What no source gives, and what is taken in its place.
    pub(crate) assumed: Vec<String>,
    /// What a step computes, where the job declares it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compute_us: Option<f64>,
    pub(crate) points: Vec<Row>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChosenBy {
    Given,
    Scheduler,
    FirstFit,
}

impl ChosenBy {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Scheduler => "scheduler",
            Self::FirstFit => "first_fit",
        }
    }
}

/// One size. Bandwidths in 10^9 bytes/s, as nccl-tests counts them.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) bytes: u64,
    pub(crate) time_us: f64,
    pub(crate) latency_us: f64,
    pub(crate) algbw_gb_per_s: f64,
    pub(crate) busbw_gb_per_s: f64,
    pub(crate) algorithm: &'static str,
    pub(crate) protocol: &'static str,
    pub(crate) bottleneck: String,
    /// Whether latency is most of the time.
    pub(crate) is_latency: bool,
}

/// A placement and what is asked of it.
struct Asked {
    chosen_by: ChosenBy,
    gang: Option<u32>,
    placement: Placement,
    collective: Collective,
    sizes: Vec<u64>,
    compute_ns: Option<u64>,
}

pub(super) fn predict(session: &Session, asked: &Predict) -> Result<ExitCode, Failure> {
    let sizes = sizes(asked)?;
    let map = map::read(session, asked)?;
    let placements = match &asked.on {
        Some(on) => vec![Asked {
            chosen_by: ChosenBy::Given,
            gang: None,
            placement: given::placement(&map, on)?,
            collective: asked.collective.unwrap_or(Collective::AllReduce),
            sizes: sizes.unwrap_or_else(|| Sizes::USUAL.each(asked.factor).collect()),
            compute_ns: None,
        }],
        None => placed(session, &map, asked, sizes.as_deref())?,
    };
    let sections = placements.into_iter().map(|asked| section(&map, asked)).collect::<Result<_, _>>()?;
    let forecast = Forecast { map: map.name, is_measured: false, placements: sections };
    if asked.format == Format::Csv {
        output::print(&show::predict::csv(&forecast))?;
        return Ok(ExitCode::SUCCESS);
    }
    let names = || forecast.placements.iter().map(|section| section.devices.clone()).collect();
    session.out.show("Forecast", &forecast, |page| show::predict::page(page, &forecast), names)?;
    Ok(ExitCode::SUCCESS)
}

/// The sizes that were typed, each once, smallest first as typed; `None` if there are none.
fn sizes(asked: &Predict) -> Result<Option<Vec<u64>>, Failure> {
    if asked.sizes.is_empty() {
        return Ok(None);
    }
    let all: Vec<u64> =
        asked.sizes.iter().flat_map(|sizes| sizes.each(asked.factor)).take(SIZES_MAX + 1).collect();
    if all.len() > SIZES_MAX {
        let hint = "give fewer sizes, or a larger --factor";
        return Err(Failure::usage(format!("more than {SIZES_MAX} sizes"), hint));
    }
    Ok(Some(all))
}

/// The placements of a job, or of some number of GPUs, on the empty cluster.
fn placed(
    session: &Session,
    map: &Map,
    asked: &Predict,
    sizes: Option<&[u64]>,
) -> Result<Vec<Asked>, Failure> {
    let job = job(asked)?;
    let view = phalanx_local::preview(&map.nodes, &map.levels, &map.costs, &map.constants, &job);
    let DryRunView { rejected, reports, first_fit, .. } = view;
    if let Some(why) = rejected {
        let devices = map.nodes.iter().map(|node| node.machine.device_count()).sum();
        let (message, _) = phalanx_local::unfit(&job, &why, devices);
        return Err(Failure::usage(format!("{}: {message}", map.name), "`phalanx topo show` draws the map"));
    }
    let is_array = job.turn.has_lone_gangs();
    let is_one = is_array || reports.len() < 2;
    if is_array && reports.len() > 1 {
        session.out.note("the tasks of the job are alike; the first is predicted");
    }
    let mut all = Vec::new();
    for (at, report) in reports.iter().enumerate().take(if is_array { 1 } else { usize::MAX }) {
        let Some(gang) = job.gang_at(report.gang.index) else { continue };
        let Some(ours) = report.nearest.clone() else {
            let message = format!("{}: gang {} does not fit: {}", map.name, report.gang.index, report.reason);
            return Err(Failure::usage(message, "`phalanx topo show` draws the map"));
        };
        let other = first_fit.get(at).cloned().flatten();
        for (chosen_by, placement) in
            [(ChosenBy::Scheduler, Some(ours)), (ChosenBy::FirstFit, other.map(|o| o.placement))]
        {
            let Some(placement) = placement else { continue };
            all.push(of_gang(asked, gang, chosen_by, placement, sizes));
        }
        if !is_one {
            all.iter_mut().rev().take(2).for_each(|asked| {
                asked.gang.get_or_insert(report.gang.index);
            });
        }
    }
    Ok(all)
}

fn of_gang(
    asked: &Predict,
    gang: &Gang,
    chosen_by: ChosenBy,
    placement: Placement,
    sizes: Option<&[u64]>,
) -> Asked {
    // What members of other roles send is not declared.
    let own = placement.slots.into_iter().take(gang.size as usize).collect();
    let placement = Placement { slots: own, level: placement.level };
    let declared = gang.traffic.map(|traffic| match traffic.pattern {
        Pattern::AllReduce => Collective::AllReduce,
        Pattern::AllToAll => Collective::AllToAll,
    });
    let usual = || match (asked.file.is_some(), gang.traffic) {
        (true, Some(traffic)) => vec![traffic.bytes.max(1)],
        (true, None) => vec![STANDARD_BYTES],
        (false, _) => Sizes::USUAL.each(asked.factor).collect(),
    };
    let is_declared = sizes.is_none() && asked.collective.is_none();
    Asked {
        chosen_by,
        gang: None,
        placement,
        collective: asked.collective.or(declared).unwrap_or(Collective::AllReduce),
        sizes: sizes.map_or_else(usual, <[u64]>::to_vec),
        compute_ns: gang.traffic.filter(|t| is_declared && t.compute_ns > 0).map(|t| t.compute_ns),
    }
}

/// The job of the file, or one of so many GPUs; when it may start, and in which queue, does not count.
fn job(asked: &Predict) -> Result<Job, Failure> {
    let args = JobArgs {
        file: asked.file.clone(),
        gpus: asked.gpus.clone(),
        command: asked.gpus.iter().map(|_| "true".to_owned()).collect(),
        ..JobArgs::default()
    };
    // Secrets have no part in this, so they need no value.
    let variable = |_: &str| Some(String::new());
    let origin = Origin { variable: &variable, workdir: "/".to_owned(), now: Timestamp(0) };
    let Submission { mut job, .. } = Submission::from_args(args, &origin)?;
    let array = job.turn.array.take();
    let service = job.turn.service.take();
    job.turn = phalanx_model::Turn { array, service, takes_spot: true, ..phalanx_model::Turn::default() };
    if let Ok(queue) = phalanx_model::QueueName::new("default") {
        job.queue = queue;
    }
    Ok(job)
}

fn section(map: &Map, asked: Asked) -> Result<Section, Failure> {
    let Asked { chosen_by, gang, placement, collective, sizes, compute_ns } = asked;
    let shares = shares(&placement);
    let gpus: u32 = placement.slots.iter().map(|slot| slot.devices.count()).sum();
    let ends: u32 = placement.slots.iter().map(|slot| slot.devices.count().max(1)).sum();
    if ends < 2 {
        let message = format!("a collective needs two GPUs, and {} is one", devices(&shares));
        return Err(Failure::usage(message, "name more GPUs"));
    }
    if collective == Collective::PointToPoint && ends > 2 {
        let message = format!("send-recv is between two GPUs, and these are {ends}");
        return Err(Failure::usage(message, "name two GPUs: `--on n1:0,n2:0`"));
    }
    if u64::from(ends).saturating_mul(sizes.len() as u64) > WORK_MAX {
        let message = format!("{} sizes among {ends} GPUs are too many to predict at once", sizes.len());
        return Err(Failure::usage(message, "give fewer sizes"));
    }
    let ground = Ground {
        table: &map.costs,
        levels: &map.levels,
        nodes: &map.nodes,
        placement: &placement,
        constants: &map.constants,
    };
    let points = sweep(&ground, collective, &sizes).map_err(|e| Failure::usage(e.to_string(), ""))?;
    #[expect(clippy::cast_precision_loss, reason = "a step of 2^53 ns is a hundred days")]
    let compute_us = compute_ns.map(|ns| rounded(ns as f64 / 1e3));
    Ok(Section {
        collective: word(collective),
        chosen_by,
        gang,
        devices: devices(&shares),
        shown: shown(&shares),
        gpus,
        nodes: u32::try_from(shares.len()).unwrap_or(u32::MAX),
        assumed: assumed(map, &shares),
        compute_us,
        points: points.iter().map(row).collect(),
    })
}

fn row(point: &Point) -> Row {
    Row {
        bytes: point.bytes,
        time_us: rounded(point.time.ns / 1e3),
        latency_us: rounded(point.time.latency_ns / 1e3),
        algbw_gb_per_s: rounded(point.algorithm_bytes_per_s() / 1e9),
        busbw_gb_per_s: rounded(point.bus_bytes_per_s() / 1e9),
        algorithm: point.time.algorithm.name(),
        protocol: point.time.protocol.name(),
        bottleneck: show::predict::bottleneck(point),
        is_latency: show::predict::is_latency(point),
    }
}

/// More digits than these say nothing.
fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Nodes with their devices, in the order of the lowest ranks.
fn shares(placement: &Placement) -> Vec<(NodeName, DeviceMask)> {
    let mut shares: Vec<(NodeName, DeviceMask)> = Vec::new();
    let mut index: BTreeMap<&NodeName, usize> = BTreeMap::new();
    for slot in &placement.slots {
        let at = *index.entry(&slot.node).or_insert_with(|| {
            shares.push((slot.node.clone(), DeviceMask::EMPTY));
            shares.len() - 1
        });
        if let Some((_, devices)) = shares.get_mut(at) {
            *devices = devices.union(slot.devices);
        }
    }
    shares
}

fn devices(shares: &[(NodeName, DeviceMask)]) -> String {
    let one = |(node, devices): &(NodeName, DeviceMask)| match devices.is_empty() {
        true => node.to_string(),
        false => format!("{node}:{devices}"),
    };
    shares.iter().map(one).collect::<Vec<_>>().join(",")
}

/// `n[1-4]:0-7, n7:0-3`.
fn shown(shares: &[(NodeName, DeviceMask)]) -> String {
    let mut alike: BTreeMap<DeviceMask, Vec<&str>> = BTreeMap::new();
    for (node, devices) in shares {
        alike.entry(*devices).or_default().push(node.as_str());
    }
    let of_mask = |(devices, names): (DeviceMask, Vec<&str>)| {
        let patterns = NamePattern::compress(names.iter().copied());
        patterns.into_iter().map(move |pattern| format!("{}:{devices}", pattern.text())).collect::<Vec<_>>()
    };
    alike.into_iter().rev().flat_map(of_mask).collect::<Vec<_>>().join(", ")
}

/// What no source gives of these nodes, and what is taken in its place. Inside of one node no NIC counts.
fn assumed(map: &Map, shares: &[(NodeName, DeviceMask)]) -> Vec<String> {
    let nodes: BTreeMap<&NodeName, &Node> = map.nodes.iter().map(|node| (&node.name, node)).collect();
    let mut told: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, _) in shares {
        let Some(node) = nodes.get(name) else { continue };
        let models = node.machine.devices.first().map(|device| device.model.as_str());
        if models.is_some_and(|model| Product::of(model).is_none()) {
            let what = "the product of the GPUs is not known; links as fast as those of A100 are assumed";
            told.entry(what.to_owned()).or_default().push(name.as_str());
        }
        let is_told = map.costs.transports.contains_key(name)
            || node.machine.nics.iter().any(|nic| {
                Network::is_told_by(&nic.name) || nic.alias.as_deref().is_some_and(Network::is_told_by)
            });
        let has_nics = !node.machine.nics.is_empty() || map.declares_nics(node);
        if shares.len() > 1 && has_nics && !is_told {
            let what = "the transport of the NICs is not stated; verbs is assumed (`transport:` of the cluster file)";
            told.entry(what.to_owned()).or_default().push(name.as_str());
        }
        let what = match node.machine.nics.is_empty() {
            _ if shares.len() < 2 => None,
            true if map.declares_nics(node) => None,
            true if map.costs.transports.get(name).is_some_and(|told| *told != Transport::Sockets) => {
                Some(format!(
                    "the speed of the NICs is not known; {} Gb/s is assumed",
                    u64::from(phalanx_cost::NIC_MB_PER_S) / 125
                ))
            }
            true => Some(format!(
                "no NIC is known; TCP sockets over {} Gb/s are assumed",
                u64::from(phalanx_cost::SOCKET_MB_PER_S) / 125
            )),
            false => describe::assumed_nics(&node.machine),
        };
        if let Some(what) = what {
            told.entry(what).or_default().push(name.as_str());
        }
    }
    let line = |(what, names): (String, Vec<&str>)| {
        let patterns = NamePattern::compress(names);
        let names: Vec<&str> = patterns.iter().map(NamePattern::text).collect();
        format!("{}: {what}", names.join(", "))
    };
    told.into_iter().map(line).collect()
}

/// Whether a word of `--cluster` is the shape of a fabric and no file.
fn is_shape(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.starts_with(|first: char| first.is_ascii_digit()) && !text.contains(['.', '/']) && !path.exists()
}
