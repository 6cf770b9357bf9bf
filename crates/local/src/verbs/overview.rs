//! The cluster at a glance, its map, and one node with its hardware.

use std::sync::Arc;

use phalanx_api::protocol::{Answer, ErrorCode, MapView, NodeDetailView, OverviewView};
use phalanx_model::NodeName;

use super::{Failure, health, nodes, queues, refuse};
use crate::daemon::Daemon;
use phalanx_views::{self as views, Books};

pub(super) fn overview(daemon: &Arc<Daemon>) -> Result<Answer, Failure> {
    let view = daemon.shared.overviews.get(|| look(daemon))?;
    Ok(Answer::Overview(Box::new((*view).clone())))
}

fn look(daemon: &Arc<Daemon>) -> Result<OverviewView, Failure> {
    let reasons =
        daemon.shared.reasons.get(|| daemon.engine.look(|engine| views::reasons(&Books::all(engine))))?;
    let shared = Arc::clone(daemon);
    let ((nodes, mut devices), jobs, waiting, warnings) = daemon.engine.look(move |engine| {
        let books = Books::all(engine);
        let counts = views::counts(&books, &|node| shared.unknown.held(node));
        let waiting = views::waiting(&books, &reasons);
        let warnings = shared.off_cluster.warning(engine).into_iter().chain(views::unkept_spares(&books));
        (counts, views::job_counts(&books), waiting, warnings.collect::<Vec<String>>())
    })?;
    devices.busy_percent = daemon.usage.busy_percent();
    devices.idle_held = daemon.usage.idle_devices();
    Ok(OverviewView {
        now: daemon.clock.now(),
        version: phalanx_shell::VERSION.to_owned(),
        nodes,
        devices,
        jobs,
        waiting,
        queues: queues::all(daemon)?,
        warnings: daemon.warnings().into_iter().chain(warnings).collect(),
    })
}

pub(super) fn map(daemon: &Daemon) -> Result<Answer, Failure> {
    let map = daemon.shared.maps.get(|| {
        let levels = daemon.map.levels.clone();
        let mut map = daemon.engine.look(move |engine| views::map(&Books::all(engine), &levels))?;
        add_samples(daemon, &mut map);
        Ok::<_, Failure>(map)
    })?;
    Ok(Answer::Map((*map).clone()))
}

/// Only the machine of the daemon is sampled.
fn add_samples(daemon: &Daemon, map: &mut MapView) {
    let samples = daemon.health.samples();
    let Some(first) = samples.first() else { return };
    let Some(node) = map.nodes.iter_mut().find(|node| node.name == first.node) else { return };
    let mut busy = vec![None; node.devices.len()];
    for sample in &samples {
        let of_device = usize::try_from(sample.device).ok().and_then(|device| busy.get_mut(device));
        if let Some(of_device) = of_device {
            *of_device = sample.vitals.busy_percent;
        }
    }
    node.busy = Some(busy);
}

pub(super) fn node(daemon: &Arc<Daemon>, name: &NodeName) -> Result<Answer, Failure> {
    let (shared, wanted) = (Arc::clone(daemon), name.clone());
    let found = daemon.engine.look(move |engine| {
        let machine = engine.node(&wanted)?.machine.clone();
        let view = views::node(&Books::all(engine), &|node| shared.unknown.held(node), &wanted)?;
        Some((view, machine))
    })?;
    let Some((mut view, machine)) = found else {
        nodes::known(daemon, name)?;
        return Err(refuse(ErrorCode::NotFound, format!("no node {name}"), "it is gone since a moment ago"));
    };
    daemon.closed.say(std::slice::from_mut(&mut view));
    let Answer::Health(health) = health::show(daemon, Some(name))? else { unreachable!("its own answer") };
    let (link_names, links) = NodeDetailView::matrix(&machine);
    Ok(Answer::Node(Box::new(NodeDetailView {
        node: view,
        machine: (*machine).clone(),
        levels: daemon.map.levels.above.clone(),
        health,
        link_names,
        links,
    })))
}
