//! The health of nodes and devices.

use phalanx_health::{Evidence, Grader};
use phalanx_model::{Bandwidth, NodeName, Uplink};

use super::{Failure, nodes, operator, refuse};
use crate::daemon::Daemon;
use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, ErrorCode, HealthFinding, HealthReport, HealthView, hardware};

pub(super) fn show(daemon: &Daemon, node: Option<&NodeName>) -> Result<Answer, Failure> {
    if let Some(node) = node {
        nodes::known(daemon, node)?;
    }
    let wanted = node.cloned();
    let (devices, bandwidths) = daemon.engine.look(move |engine| {
        let is_wanted = |name: &NodeName| wanted.as_ref().is_none_or(|wanted| name == wanted);
        let of = engine.nodes().filter(|node| is_wanted(&node.name));
        let is_shown = |of: &&Bandwidth| match &of.uplink {
            Uplink::Node(name) => is_wanted(name),
            Uplink::Domain(_) => wanted.is_none(),
        };
        let bandwidths: Vec<Bandwidth> = engine.bandwidths().filter(is_shown).cloned().collect();
        (of.map(|node| node.machine.device_count()).sum(), bandwidths)
    })?;
    let is_meant = |of: &NodeName| node.is_none_or(|node| node == of);
    let (mut lines, breaker) = daemon.health.view(|grader| (grader.report(), grader.is_breaker_open()));
    lines.retain(|line| is_meant(&line.node));
    let mut samples = daemon.health.samples();
    samples.retain(|sample| is_meant(&sample.node));
    let mut ports = daemon.health.ports();
    ports.retain(|port| is_meant(&port.node));
    let pressure = daemon.health.pressure().filter(|view| is_meant(&view.node)).into_iter().collect();
    let sources = daemon.health.sources();
    let (sources, missing) = (sources.open, sources.missing);
    Ok(Answer::Health(HealthView {
        lines,
        samples,
        ports,
        pressure,
        bandwidths,
        devices,
        sources,
        missing,
        breaker,
    }))
}

pub(super) fn report(daemon: &Daemon, peer: &Peer, report: HealthReport) -> Result<Answer, Failure> {
    let HealthReport { node, device, finding, reason } = report;
    operator(peer)?;
    nodes::check_reason(Some(&reason))?;
    known(daemon, &node, device)?;
    let evidence = match finding {
        HealthFinding::Grade(grade) => Evidence::Report { grade, by: peer.owner.name.clone(), text: reason },
        HealthFinding::Xid(number) => Evidence::Xid { number, text: reason },
        HealthFinding::Bandwidth(permille) => {
            return measured(daemon, &node, device, (permille, &peer.owner.name, reason));
        }
    };
    daemon.health.report(daemon, &node, device, evidence)?;
    let line = daemon
        .health
        .view(|grader| grader.report().into_iter().find(|line| line.node == node && line.device == device));
    let grade = line.as_ref().map(|line| line.grade).unwrap_or_default();
    let held = line.and_then(|line| line.held);
    let held = held.map_or_else(String::new, |held| format!(", and {held} is held by the circuit breaker"));
    Ok(Answer::Done { detail: format!("{} is graded {grade}{held}", hardware(&node, device)) })
}

/// A measurement grades nothing: new gangs of several nodes prefer other nodes, for a while.
fn measured(
    daemon: &Daemon,
    node: &NodeName,
    device: Option<u32>,
    (permille, by, text): (u16, &str, String),
) -> Result<Answer, Failure> {
    let expected = "expected a node and 1% to 100% of its bandwidth";
    let bad = |what: String| refuse(ErrorCode::BadRequest, what, expected);
    if let Some(device) = device {
        return Err(bad(format!("a bandwidth is of a node, and {node}:{device} is a GPU")));
    }
    if !(1..=Bandwidth::NOMINAL).contains(&permille) {
        return Err(bad(format!("{permille} ‰ is no share of a bandwidth")));
    }
    let evidence = Evidence::Bandwidth { permille, by: by.to_owned(), text };
    daemon.health.report(daemon, node, None, evidence)?;
    let now = daemon.clock.now();
    let uplink = Uplink::Node(node.clone());
    let of_node = |grader: &Grader| grader.bandwidths(now).into_iter().find(|of| of.uplink == uplink);
    let detail = match daemon.health.view(of_node) {
        Some(of) => format!("new gangs of several nodes avoid node {node} for a while: {}", of.sentence(now)),
        None => format!("the network of node {node} counts as nominal"),
    };
    Ok(Answer::Done { detail })
}

pub(super) fn clear(
    daemon: &Daemon,
    peer: &Peer,
    node: &NodeName,
    device: Option<u32>,
) -> Result<Answer, Failure> {
    operator(peer)?;
    known(daemon, node, device)?;
    let cleared = daemon.health.clear(daemon, node, device, &peer.owner.name);
    cleared.map_err(|why| refuse(ErrorCode::BadRequest, why, "`phalanx health` lists what is not ok"))?;
    Ok(Answer::Done { detail: format!("{} is no longer closed by its health", hardware(node, device)) })
}

fn known(daemon: &Daemon, node: &NodeName, device: Option<u32>) -> Result<(), Failure> {
    nodes::known(daemon, node)?;
    let Some(device) = device else { return Ok(()) };
    let wanted = node.clone();
    let count = daemon
        .engine
        .look(move |engine| engine.node(&wanted).map_or(0, |node| node.machine.device_count()))?;
    if device < count {
        return Ok(());
    }
    let hint = match count {
        0 => format!("node {node} has no GPUs; leave out `:{device}` to mean the node itself"),
        count => format!("its GPUs are 0 to {}", count - 1),
    };
    Err(refuse(ErrorCode::NotFound, format!("node {node} has no GPU {device}"), hint))
}
