//! The health of nodes and devices: evidence goes to the grader, and its grades to the engine.
//!
//! What the grader knows is on disk before the engine hears a grade, so a daemon that dies in between grades the same
//! again. The journal keeps grades too, for the case that the file is lost.

mod watch;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use phalanx_health::{Evidence, Grader, Kept, Machine, Policy};
use phalanx_model::{
    Bandwidth, DeviceMask, Health as Fact, Input, JobId, Node, NodeName, PortVitals, Pressure, Timestamp,
    Uplink, Vitals,
};
use phalanx_node::file;
use phalanx_node::kernel_log;
use phalanx_node::telemetry::Slots;
use phalanx_node::telemetry::ports::PortSample;
use tracing::{info, warn};

use crate::Paths;
use crate::cluster::Cluster;
use crate::daemon::{Daemon, bandwidths};
use crate::losses;
use phalanx_api::protocol::{HeldView, PortView, PressureView, SampleView};
use phalanx_views::{self as views, Books};

pub(crate) use watch::start;

#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct PolicyError {
    path: PathBuf,
    why: String,
}

/// What is known of the health of the cluster.
pub(crate) struct Health {
    grader: Mutex<Grader>,
    file: PathBuf,
    boot_id: Option<String>,
    /// The machine that is found; declared devices have neither telemetry nor a kernel log.
    host: Option<Host>,
    samples: Mutex<BTreeMap<u32, (Timestamp, Vitals)>>,
    /// The last sample of the node itself.
    node: Mutex<NodeSample>,
    /// What the daemon watches, and what it cannot watch.
    sources: Mutex<Sources>,
}

/// The machine that is found.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) node: NodeName,
    slots: Slots,
    /// By device.
    uuids: Vec<String>,
}

/// A sample of the machine without its devices.
#[derive(Clone, Debug, Default)]
struct NodeSample {
    at: Timestamp,
    ports: PortSample,
    pressure: Pressure,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    pub(crate) open: Vec<String>,
    pub(crate) missing: Vec<String>,
    /// Why devices are not sampled for now.
    telemetry: Option<String>,
}

/// Which jobs hold which devices.
type Held = BTreeMap<NodeName, Vec<HeldView>>;

impl Health {
    /// `known`: the nodes of the journal, with the grades that the engine knew. `journal`: all facts that it has.
    pub(crate) fn open<'a>(
        paths: &Paths,
        cluster: &Cluster,
        known: impl Iterator<Item = &'a Node>,
        journal: &[Input],
        now: Timestamp,
    ) -> Result<Self, PolicyError> {
        let policy = policy(&paths.health_policy())?;
        let (file, boot_id) = (paths.health(), kernel_log::boot_id());
        let host = cluster.nodes.first().filter(|_| cluster.is_found).map(|node| Host::of(node, cluster));
        let kept = read(&file).unwrap_or_else(|why| {
            losses::add(
                paths,
                &format!("{} cannot be read, and its evidence is lost: {why}", file.display()),
            );
            None
        });
        let mut grader = match &kept {
            Some(kept) => Grader::resume(policy, kept.state.clone()),
            None => Grader::new(policy),
        };
        grader.set_nodes(cluster.nodes.iter().map(|node| {
            (node.name.clone(), node.machine.devices.iter().map(|device| device.model.clone()).collect())
        }));
        if kept.is_none() {
            known.for_each(|node| adopt(&mut grader, node, now));
            bandwidths(journal).for_each(|of| adopt_bandwidth(&mut grader, of));
        }
        if let Some(host) = &host {
            let last = kept.as_ref().map(|kept| (kept.boot_id.as_deref(), &*kept.uuids));
            host.begin(&mut grader, now, boot_id.as_deref(), last);
        }
        let health = Self {
            grader: Mutex::new(grader),
            file,
            boot_id,
            host,
            samples: Mutex::default(),
            node: Mutex::default(),
            sources: Mutex::default(),
        };
        health.keep(&health.grader());
        Ok(health)
    }

    fn grader(&self) -> MutexGuard<'_, Grader> {
        // What a panicking thread left still grades.
        self.grader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All grades and bandwidths, for an engine that begins. Later changes follow by themselves.
    pub(crate) fn facts(&self, now: Timestamp) -> Vec<Input> {
        let mut grader = self.grader();
        let _ = (grader.take_changes(), grader.take_bandwidths(now));
        let grades = grader.facts().into_iter().map(|health| Input::HealthGraded { health });
        let bandwidths = grader.bandwidths(now).into_iter();
        grades.chain(bandwidths.map(|bandwidth| Input::BandwidthMeasured { bandwidth })).collect()
    }

    /// Changes what the grader knows, and tells the engine. `is_kept`: also if no grade changes, a restart must know it.
    /// Returns whether the engine still answers.
    fn change<T>(&self, daemon: &Daemon, is_kept: bool, change: impl FnOnce(&mut Grader) -> T) -> (T, bool) {
        let mut grader = self.grader();
        let done = change(&mut grader);
        let (grades, measured) = (grader.take_changes(), grader.take_bandwidths(daemon.clock.now()));
        if is_kept || !grades.is_empty() || !measured.is_empty() {
            self.keep(&grader);
        }
        grades.iter().for_each(log);
        measured.iter().for_each(log_bandwidth);
        let grades = grades.into_iter().map(|health| Input::HealthGraded { health });
        let measured = measured.into_iter().map(|bandwidth| Input::BandwidthMeasured { bandwidth });
        let facts: Vec<Input> = grades.chain(measured).collect();
        // Under the lock, so that grades arrive in their order.
        let is_heard = facts.is_empty() || daemon.engine.report(facts).is_ok();
        (done, is_heard)
    }

    fn keep(&self, grader: &Grader) {
        let uuids = self.host.as_ref().map_or_else(Vec::new, |host| host.uuids.clone());
        let kept = Kept { boot_id: self.boot_id.clone(), uuids, state: grader.state().clone() };
        let written = serde_json::to_string(&kept).map_err(io::Error::from);
        if let Err(e) = written.and_then(|text| file::replace(&self.file, &text)) {
            warn!(file = %self.file.display(), error = %e, "the health of devices cannot be kept");
        }
    }

    /// An operator, or a tool with an operator's rights, has evidence.
    pub(crate) fn report(
        &self,
        daemon: &Daemon,
        node: &NodeName,
        device: Option<u32>,
        evidence: Evidence,
    ) -> Result<bool, phalanx_shell::PumpError> {
        let held = daemon.engine.look(|engine| views::held(&Books::all(engine)))?;
        let tenants = tenants(&held, node, device);
        let now = daemon.clock.now();
        let ((), is_heard) =
            self.change(daemon, true, |grader| grader.observe(now, node, device, &tenants, evidence));
        Ok(is_heard)
    }

    /// Devices did not pass a check before a start. They are graded together, so that no gang is placed on some of them meanwhile.
    pub(crate) fn failed_preflight(
        &self,
        daemon: &Daemon,
        node: &NodeName,
        devices: DeviceMask,
        why: &str,
    ) -> Result<bool, phalanx_shell::PumpError> {
        let held = daemon.engine.look(|engine| views::held(&Books::all(engine)))?;
        let now = daemon.clock.now();
        let observe = |grader: &mut Grader| {
            for device in devices.iter() {
                let tenants = tenants(&held, node, Some(device));
                let evidence = Evidence::Preflight { failure: Some(why.to_owned()) };
                grader.observe(now, node, Some(device), &tenants, evidence);
            }
        };
        Ok(self.change(daemon, true, observe).1)
    }

    /// Devices passed a check before a start: an earlier failure that the circuit breaker holds counts no longer.
    pub(crate) fn passed_preflight(&self, daemon: &Daemon, node: &NodeName, devices: DeviceMask) {
        let is_it = |line: &phalanx_health::Line| {
            line.node == *node && line.held.is_some() && line.device.is_some_and(|at| devices.contains(at))
        };
        if self.view(|grader| !grader.report().iter().any(is_it)) {
            return;
        }
        let now = daemon.clock.now();
        self.change(daemon, true, |grader| {
            for device in devices.iter() {
                grader.observe(now, node, Some(device), &[], Evidence::Preflight { failure: None });
            }
        });
    }

    pub(crate) fn clear(
        &self,
        daemon: &Daemon,
        node: &NodeName,
        device: Option<u32>,
        by: &str,
    ) -> Result<(), String> {
        let now = daemon.clock.now();
        self.change(daemon, true, |grader| grader.clear(now, node, device, by)).0
    }

    pub(crate) fn view<T>(&self, look: impl FnOnce(&Grader) -> T) -> T {
        look(&self.grader())
    }

    /// The machine that is found, and the number of each of its devices for the driver, which counts those that answered
    /// at the start.
    pub(crate) fn machine(&self) -> Option<(NodeName, Vec<Option<u32>>)> {
        let host = self.host.as_ref()?;
        let mut next = 0..;
        let devices = (0..).take(host.slots.addresses.len());
        let number = |device| if host.slots.absent.contains(device) { None } else { next.next() };
        Some((host.node.clone(), devices.map(number).collect()))
    }

    pub(crate) fn samples(&self) -> Vec<SampleView> {
        let Some(host) = &self.host else { return Vec::new() };
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let view = |(device, (at, vitals)): (&u32, &(Timestamp, Vitals))| SampleView {
            node: host.node.clone(),
            device: *device,
            at: *at,
            vitals: vitals.clone(),
        };
        samples.iter().map(view).collect()
    }

    /// The last sample of each network port.
    pub(crate) fn ports(&self) -> Vec<PortView> {
        let Some(host) = &self.host else { return Vec::new() };
        let sample = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let view =
            |port: &PortVitals| PortView { node: host.node.clone(), at: sample.at, port: port.clone() };
        sample.ports.ports.iter().map(view).collect()
    }

    /// The last pressure on the machine that is found, where its kernel counts any.
    pub(crate) fn pressure(&self) -> Option<PressureView> {
        let node = self.host.as_ref()?.node.clone();
        let sample = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = sample.pressure != Pressure::default();
        is_known.then(|| PressureView { node, at: sample.at, pressure: sample.pressure })
    }

    /// Says once that the devices cannot be sampled for now, and once that they can be again.
    fn telemetry_works(&self, trouble: Option<&str>) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        match (sources.telemetry.is_some(), trouble) {
            (true, None) => info!("devices are sampled again"),
            (false, Some(why)) => warn!(why, "devices are not sampled"),
            _ => {}
        }
        sources.telemetry = trouble.map(str::to_owned);
    }

    pub(crate) fn sources(&self) -> Sources {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let sample = self.node.lock().unwrap_or_else(PoisonError::into_inner);
        sources.missing.extend(sources.telemetry.take().map(|why| format!("telemetry: {why}")));
        sources.missing.extend(sample.ports.notes.iter().cloned());
        sources
    }
}

impl Host {
    fn of(node: &Node, cluster: &Cluster) -> Self {
        Self {
            node: node.name.clone(),
            slots: Slots {
                addresses: node.machine.devices.iter().map(|device| device.pci_address.clone()).collect(),
                absent: cluster.absent,
            },
            uuids: node.uuids.clone(),
        }
    }

    fn begin(
        &self,
        grader: &mut Grader,
        now: Timestamp,
        boot_id: Option<&str>,
        last: Option<(Option<&str>, &[String])>,
    ) {
        let machine = Machine { node: &self.node, boot_id, uuids: &self.uuids, absent: self.slots.absent };
        for device in grader.started(now, &machine, last) {
            info!(node = %self.node, device, "another device is in this place");
        }
    }
}

/// The grades that only the journal still knows.
fn adopt(grader: &mut Grader, node: &Node, now: Timestamp) {
    let whole = node.health.node.iter().map(|graded| (None, graded));
    let devices = node.health.devices.iter().map(|(device, graded)| (Some(*device), graded));
    for (device, graded) in whole.chain(devices) {
        let (grade, text) = (graded.grade, graded.detail.clone());
        let evidence = Evidence::Report { grade, by: "the journal".to_owned(), text };
        grader.observe(now, &node.name, device, &[], evidence);
    }
}

/// A bandwidth that only the journal still knows.
fn adopt_bandwidth(grader: &mut Grader, of: &Bandwidth) {
    let Uplink::Node(node) = &of.uplink else { return };
    let (permille, text) = (of.permille, of.detail.clone());
    let evidence = Evidence::Bandwidth { permille, by: "the journal".to_owned(), text };
    grader.observe(of.at, node, None, &[], evidence);
}

/// The jobs that hold a device, or a node.
fn tenants(held: &Held, node: &NodeName, device: Option<u32>) -> Vec<JobId> {
    let there = held.get(node).into_iter().flatten();
    let is_on = |held: &&HeldView| device.is_none_or(|device| held.devices.contains(device));
    there.filter(is_on).map(|held| held.job).collect()
}

fn log(fact: &Fact) {
    let Fact { node, devices, grade, detail } = fact;
    let devices = if devices.is_empty() { "the node itself".to_owned() } else { devices.to_string() };
    info!(%node, devices, %grade, detail, "health is graded");
}

fn log_bandwidth(of: &Bandwidth) {
    let Bandwidth { uplink, permille, counts_permille, detail, .. } = of;
    info!(%uplink, permille, counts_permille, detail, "bandwidth is weighed");
}

fn policy(path: &Path) -> Result<Policy, PolicyError> {
    let bad = |why: String| PolicyError { path: path.to_owned(), why };
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Policy::default()),
        Err(e) => return Err(bad(e.to_string())),
    };
    let policy: Policy = toml::from_str(&text).map_err(|e| bad(e.to_string().trim_end().to_owned()))?;
    policy.validate().map_err(bad)?;
    Ok(policy)
}

fn read(path: &Path) -> Result<Option<Kept>, String> {
    match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).map(Some).map_err(|e| e.to_string()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.to_string()),
    }
}
