//! The health of the node and its devices: evidence goes to a grader, and its grades into the `NodeTopology`.
//!
//! What the grader has to know after a restart is an annotation of the same object, written with the grades. So nothing
//! on the node has to be writable, and an agent that starts anew grades as the one before it did.
//!
//! The grader closes whatever has to be closed here. How much of it takes effect the scheduler decides: one node cannot
//! know how many others are closed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use phalanx_health::{Evidence, Grader, Kept, Machine, Policy};
use phalanx_model::{DeviceMask, Grade, NodeName, Timestamp, Vitals};
use phalanx_node::kernel_log;
use tokio::sync::watch;
use tracing::{info, warn};

use super::hardware::Inventory;
use crate::crd::requests::Request;
use crate::crd::{HealthSpec, NodeTopologySpec};

/// The annotation of a `NodeTopology` that keeps what the grader has to know after a restart.
pub(super) const STATE: &str = "phalanx.dev/health-state";

/// An object's annotations may have 256 KiB together; evidence beyond this is not kept.
const STATE_BYTES_MAX: usize = 200 << 10;

/// See the module.
pub(super) struct Health {
    pub(super) node: NodeName,
    boot_id: Option<String>,
    uuids: Vec<String>,
    grader: Mutex<Grader>,
    /// Grows with each change that has to be written.
    changed: watch::Sender<u64>,
}

/// What is written into the `NodeTopology`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Published {
    /// Without a number that of the node itself.
    pub(super) grades: BTreeMap<Option<u32>, HealthSpec>,
    /// [`STATE`]; nothing where there is nothing to know.
    pub(super) state: Option<String>,
}

impl Health {
    /// `before`: what the object of an earlier agent says, with its annotation.
    pub(super) fn start(
        node: NodeName,
        inventory: &Inventory,
        before: Option<(&NodeTopologySpec, Option<&str>)>,
    ) -> Self {
        let now = now();
        // The scheduler holds what is too much in the cluster.
        let policy = Policy { max_share_percent: 100, ..Policy::default() };
        let kept = before.and_then(|(_, state)| read(state?));
        let mut grader = match &kept {
            Some(kept) => Grader::resume(policy, kept.state.clone()),
            None => Grader::new(policy),
        };
        let products = inventory.machine().devices.iter().map(|device| device.model.clone()).collect();
        grader.set_nodes([(node.clone(), products)]);
        if let (None, Some((spec, _))) = (&kept, before) {
            adopt(&mut grader, &node, spec, now);
        }
        let (boot_id, uuids) = (kernel_log::boot_id(), inventory.names());
        let machine =
            Machine { node: &node, boot_id: boot_id.as_deref(), uuids: &uuids, absent: inventory.absent() };
        let last = kept.as_ref().map(|kept| (kept.boot_id.as_deref(), &*kept.uuids));
        for device in grader.started(now, &machine, last) {
            info!(%node, device, "another device is in this place");
        }
        let _ = grader.take_changes();
        Self { node, boot_id, uuids, grader: Mutex::new(grader), changed: watch::Sender::new(0) }
    }

    fn grader(&self) -> MutexGuard<'_, Grader> {
        // What a panicking thread left still grades.
        self.grader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whenever something has to be written.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Changes what the grader knows. `is_kept`: it is written also if no grade changes.
    fn change<T>(&self, is_kept: bool, change: impl FnOnce(&mut Grader, Timestamp) -> T) -> T {
        let mut grader = self.grader();
        let done = change(&mut grader, now());
        let news = grader.take_changes();
        for health in &news {
            let devices = health.devices.to_string();
            warn!(node = %self.node, devices, grade = %health.grade, detail = health.detail, "health is graded");
        }
        if is_kept || !news.is_empty() {
            self.changed.send_modify(|changes| *changes += 1);
        }
        done
    }

    /// Evidence of a device, or of the node itself.
    pub(super) fn observe(&self, device: Option<u32>, evidence: Evidence) {
        let is_kept = !matches!(evidence, Evidence::Vitals(_) | Evidence::Ports(_));
        self.change(is_kept, |grader, now| grader.observe(now, &self.node, device, &[], evidence));
    }

    /// What an operator asks for.
    ///
    /// # Errors
    /// When there is no such device, or nothing to clear.
    pub(super) fn obey(&self, device: Option<u32>, request: Request) -> Result<(), String> {
        let there = self.grader().state().devices(&self.node);
        if let Some(device) = device.filter(|device| *device >= there) {
            return Err(format!("there is no GPU {device}: the node has {there}"));
        }
        match request {
            Request::Clear { reason } => {
                let by = if reason.is_empty() {
                    "an operator".to_owned()
                } else {
                    format!("an operator: {reason}")
                };
                self.change(true, |grader, now| grader.clear(now, &self.node, device, &by))
            }
            Request::Report { finding, reason } => {
                self.observe(device, finding.evidence(reason));
                Ok(())
            }
        }
    }

    /// A sample of each device. `held`: devices that pods have; nothing where that is not known.
    pub(super) fn sampled(&self, samples: Vec<(u32, Vitals)>, held: Option<DeviceMask>) {
        let idle = |vitals: &Vitals| vitals.busy_percent == Some(0);
        let busy: DeviceMask =
            samples.iter().filter(|(_, vitals)| !idle(vitals)).map(|(device, _)| *device).collect();
        let held = held.unwrap_or(busy);
        self.change(false, |grader, now| {
            for (device, vitals) in samples {
                let vitals = Evidence::Vitals(Box::new(vitals));
                grader.observe(now, &self.node, Some(device), &[], vitals);
            }
            tick(grader, now, held);
        });
    }

    /// A look at a machine whose devices cannot be sampled: which of them answer, and which do not.
    pub(super) fn looked(&self, inventory: &Inventory, held: Option<DeviceMask>) {
        let lost = inventory.absent();
        let answers = inventory.machine().device_mask().minus(inventory.lost());
        self.change(false, |grader, now| {
            for device in lost.iter() {
                grader.is_absent(now, &self.node, device);
            }
            for device in answers.iter() {
                let vitals = Evidence::Vitals(Box::default());
                grader.observe(now, &self.node, Some(device), &[], vitals);
            }
            // Whether somebody uses it is not known: then it is in use.
            let held = held.unwrap_or_else(|| inventory.machine().device_mask());
            tick(grader, now, held);
        });
    }

    /// Devices that get no new pods.
    pub(super) fn closed(&self) -> DeviceMask {
        let report = self.grader().report();
        report.iter().filter(|line| line.grade.is_closed()).filter_map(|line| line.device).collect()
    }

    /// Devices, and the node, by grade.
    pub(super) fn counts(&self) -> BTreeMap<Grade, usize> {
        self.grader().counts()
    }

    pub(super) fn published(&self) -> Published {
        let grader = self.grader();
        let report = grader.report();
        let grades = report.iter().filter_map(|line| Some((line.device, HealthSpec::of(line)?))).collect();
        let kept = || Kept {
            boot_id: self.boot_id.clone(),
            uuids: self.uuids.clone(),
            state: grader.state().clone(),
        };
        let state = (!report.is_empty()).then(kept).and_then(|kept| serde_json::to_string(&kept).ok());
        let is_small = |state: &String| {
            let is_small = state.len() <= STATE_BYTES_MAX;
            if !is_small {
                warn!(
                    bytes = state.len(),
                    "what a restart has to know of the hardware is too much, and is not kept"
                );
            }
            is_small
        };
        Published { grades, state: state.filter(is_small) }
    }
}

/// Tells a grader what time it is, and which devices nobody uses: all but `held`; the node itself where none is held.
fn tick(grader: &mut Grader, now: Timestamp, held: DeviceMask) {
    grader.tick(now, &|_, device| device.map_or(held.is_empty(), |device| !held.contains(device)));
}

/// The grades of an agent whose state cannot be read: they stay until a person clears them.
fn adopt(grader: &mut Grader, node: &NodeName, spec: &NodeTopologySpec, now: Timestamp) {
    for (device, of) in spec.grades() {
        let (by, text) = ("an earlier agent".to_owned(), of.reason.clone());
        grader.observe(now, node, device, &[], Evidence::Report { grade: of.grade(), by, text });
    }
}

fn read(state: &str) -> Option<Kept> {
    let read = serde_json::from_str(state);
    let said = |error: &serde_json::Error| {
        warn!(error = error.to_string(), "what an earlier agent knew of the hardware cannot be read");
    };
    read.inspect_err(said).ok()
}

pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
