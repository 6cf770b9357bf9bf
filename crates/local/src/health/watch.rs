//! Threads that look at the hardware. Each can be held up by a driver in trouble, so that one looks at the kernel log
//! and another at the devices.

use std::io;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use phalanx_health::Evidence;
use phalanx_model::NodeName;
use phalanx_model::show::span;
use phalanx_node::kernel_log::{DeviceLog, Xid};
use phalanx_node::telemetry::Telemetry;
use phalanx_node::telemetry::ports::{Noted, Ports};
use phalanx_node::telemetry::pressure;
use tracing::{info, warn};

use super::{Health, Host, NodeSample, tenants};
use crate::daemon::{Daemon, UpOptions, millis};
use crate::outsiders::Outsiders;
use crate::usage;
use phalanx_views::{self as views, Books};

/// How often the kernel log is read.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Looks at the hardware from now on.
pub(crate) fn start(daemon: &Arc<Daemon>, options: &UpOptions) -> io::Result<()> {
    let every = options.sample_every;
    let host = daemon.health.host.clone();
    let mut telemetry = host.as_ref().and_then(|host| telemetry(&daemon.health, host, options));
    let mut outsiders = Outsiders::default();
    Daemon::watch(daemon, "telemetry", every, move |daemon| {
        look(daemon, telemetry.as_mut(), &mut outsiders)
    })?;
    let Some(host) = host else { return Ok(()) };
    ports(daemon, options, &host)?;
    let Some(mut log) = opened(&daemon.health, &options.kernel_log, &host) else { return Ok(()) };
    Daemon::watch(daemon, "kernel-log", READ_EVERY, move |daemon| {
        let found = log.read(|unusable| warn!("{unusable}")).unwrap_or_default();
        found.into_iter().all(|(device, Xid { number, text, .. })| {
            let evidence = Evidence::Xid { number, text };
            daemon.health.report(daemon, &host.node, Some(device), evidence).unwrap_or(false)
        })
    })
}

/// Samples the network ports, and the pressure on the machine, from now on.
fn ports(daemon: &Arc<Daemon>, options: &UpOptions, host: &Host) -> io::Result<()> {
    let mut ports = Ports::new(&options.sysfs);
    let (node, every) = (host.node.clone(), options.sample_every);
    let (mut noted, mut is_named) = (Noted::default(), false);
    Daemon::watch(daemon, "ports", every, move |daemon| {
        let (health, now, mut sample) = (&daemon.health, daemon.clock.now(), ports.sample());
        let (pressure, mut notes) = pressure::read(Path::new(pressure::FOLDER));
        sample.notes.append(&mut notes);
        noted.fresh(&sample.notes).iter().for_each(|note| warn!(note, "the node is not sampled as a whole"));
        if !is_named && !sample.ports.is_empty() {
            is_named = true;
            let mut sources = health.sources.lock().unwrap_or_else(PoisonError::into_inner);
            sources.open.push(format!("network ports every {}", span(millis(every))));
        }
        let evidence = Evidence::Ports(sample.ports.clone());
        *health.node.lock().unwrap_or_else(PoisonError::into_inner) =
            NodeSample { at: now, ports: sample, pressure };
        let change = |grader: &mut phalanx_health::Grader| grader.observe(now, &node, None, &[], evidence);
        health.change(daemon, false, change).1 && daemon.engine.look(|_| ()).is_ok()
    })
}

fn opened(health: &Health, path: &Path, host: &Host) -> Option<DeviceLog> {
    let mut sources = health.sources.lock().unwrap_or_else(PoisonError::into_inner);
    match DeviceLog::open(path, host.slots.clone()) {
        Ok(log) => {
            sources.open.push(format!("Xids in {}", path.display()));
            Some(log)
        }
        Err(e) => {
            sources.missing.push(format!("Xids: {} cannot be opened: {e}", path.display()));
            None
        }
    }
}

fn telemetry(health: &Health, host: &Host, options: &UpOptions) -> Option<Telemetry> {
    let (every, slots) = (options.sample_every, host.slots.clone());
    let opened = match &options.dcgm {
        Some(url) => Telemetry::scrape(slots, url, host.uuids.clone()).map(Some).map_err(|e| e.to_string()),
        None => Telemetry::open(slots).map_err(|e| e.to_string()),
    };
    let mut sources = health.sources.lock().unwrap_or_else(PoisonError::into_inner);
    let opened = opened.unwrap_or_else(|why| {
        warn!(why, "devices are not sampled");
        sources.missing.push(format!("telemetry: {why}"));
        None
    });
    if let Some(telemetry) = &opened {
        sources.open.push(format!("{} every {}", telemetry.sources(), span(millis(every))));
    }
    opened
}

/// Samples all devices, and tells the grader what time it is.
fn look(daemon: &Daemon, mut telemetry: Option<&mut Telemetry>, outsiders: &mut Outsiders) -> bool {
    let health = &daemon.health;
    let sampled = telemetry.as_mut().and_then(|telemetry| telemetry.sample()).unwrap_or_default();
    health.telemetry_works(telemetry.as_ref().and_then(|telemetry| telemetry.trouble()));
    let now = daemon.clock.now();
    *health.samples.lock().unwrap_or_else(PoisonError::into_inner) =
        sampled.iter().map(|(device, vitals)| (*device, (now, vitals.clone()))).collect();
    if sampled.is_empty() && health.view(|grader| grader.report().is_empty()) {
        return daemon.engine.look(|_| ()).is_ok();
    }
    let node = health.host.as_ref().map(|host| host.node.clone());
    let asked = daemon.engine.look(move |engine| {
        let holds = node.map_or_else(Vec::new, |node| usage::holds_on(engine, &node));
        (views::held(&Books::all(engine)), holds)
    });
    let Ok((held, holds)) = asked else { return false };
    daemon.used.sampled(now, &holds, &sampled);
    if !sampled.is_empty() && !daemon.usage.sampled(daemon, now, &holds, &sampled) {
        return false;
    }
    if let Some(host) = &health.host {
        let used = outsiders.sampled(usage::devices(&holds).union(daemon.unknown.held(&host.node)), &sampled);
        if daemon.unknown.set_outsiders(&host.node, used) {
            info!(node = %host.node, devices = %used, "processes outside of jobs use devices");
            if daemon.engine.report(daemon.unknown.facts()).is_err() {
                return false;
            }
        }
    }
    let is_free = |node: &NodeName, device: Option<u32>| tenants(&held, node, device).is_empty();
    let change = |grader: &mut phalanx_health::Grader| {
        for (device, vitals) in sampled {
            let Some(host) = &health.host else { break };
            let jobs = tenants(&held, &host.node, Some(device));
            grader.observe(now, &host.node, Some(device), &jobs, Evidence::Vitals(Box::new(vitals)));
        }
        grader.tick(now, &is_free);
    };
    // What samples are compared with is taken anew after a restart.
    health.change(daemon, false, change).1
}
