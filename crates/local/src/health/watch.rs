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
use tracing::{info, warn};

use super::{Health, Host, tenants};
use crate::daemon::{Daemon, UpOptions, millis};
use crate::outsiders::Outsiders;
use crate::usage;
use crate::views;

/// How often the kernel log is read.
const READ_EVERY: Duration = Duration::from_secs(1);

/// Looks at the hardware from now on.
pub(crate) fn start(daemon: &Arc<Daemon>, options: &UpOptions) -> io::Result<()> {
    let every = options.sample_every;
    let host = daemon.health.host.clone();
    let mut telemetry = host.as_ref().and_then(|host| telemetry(&daemon.health, host, every));
    let mut outsiders = Outsiders::default();
    Daemon::watch(daemon, "telemetry", every, move |daemon| {
        look(daemon, telemetry.as_mut(), &mut outsiders)
    })?;
    let Some(host) = host else { return Ok(()) };
    let Some(mut log) = opened(&daemon.health, &options.kernel_log, &host) else { return Ok(()) };
    Daemon::watch(daemon, "kernel-log", READ_EVERY, move |daemon| {
        let found = log.read(|unusable| warn!("{unusable}")).unwrap_or_default();
        found.into_iter().all(|(device, Xid { number, text, .. })| {
            let evidence = Evidence::Xid { number, text };
            daemon.health.report(daemon, &host.node, Some(device), evidence).unwrap_or(false)
        })
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

fn telemetry(health: &Health, host: &Host, every: Duration) -> Option<Telemetry> {
    let mut sources = health.sources.lock().unwrap_or_else(PoisonError::into_inner);
    let opened = Telemetry::open(host.slots.clone()).unwrap_or_else(|e| {
        sources.missing.push(format!("telemetry: {e}"));
        None
    });
    if let Some(telemetry) = &opened {
        sources.open.push(format!("{} every {}", telemetry.sources(), span(millis(every))));
    }
    opened
}

/// Samples all devices, and tells the grader what time it is.
fn look(daemon: &Daemon, telemetry: Option<&mut Telemetry>, outsiders: &mut Outsiders) -> bool {
    let health = &daemon.health;
    let sampled = telemetry.map_or_else(|| Some(Vec::new()), Telemetry::sample);
    health.telemetry_works(sampled.is_some());
    let sampled = sampled.unwrap_or_default();
    let now = daemon.clock.now();
    *health.samples.lock().unwrap_or_else(PoisonError::into_inner) =
        sampled.iter().map(|(device, vitals)| (*device, (now, vitals.clone()))).collect();
    if sampled.is_empty() && health.view(|grader| grader.report().is_empty()) {
        return daemon.engine.look(|_| ()).is_ok();
    }
    let node = health.host.as_ref().map(|host| host.node.clone());
    let asked = daemon.engine.look(move |engine| {
        let holds = node.map_or_else(Vec::new, |node| usage::holds_on(engine, &node));
        (views::held(engine), holds)
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
