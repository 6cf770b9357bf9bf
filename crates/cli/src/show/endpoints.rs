//! `endpoints`: the replicas of a service, for people and for routers of requests.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use phalanx_api::protocol::{EndpointState, EndpointView, EndpointsView};
use serde_json::{Value, json};

use super::table::{Grid, cell};
use super::{Page, clean, nothing};

pub(crate) fn page(page: &Page, view: &EndpointsView) -> String {
    if view.endpoints.is_empty() {
        return nothing(page, "no replica runs");
    }
    let mut grid = Grid::new(
        page,
        &[">REPLICA", "STATE", "ADDRESS", "NODE", "DOMAIN", ">DISTANCE", ">LOAD", ">CAPACITY"],
    );
    let number = |number: Option<u32>| cell(number.map_or_else(|| "-".to_owned(), |n| n.to_string()));
    for one in &view.endpoints {
        grid.row(vec![
            cell(one.replica.to_string()),
            cell(one.state.word()),
            cell(target(one).unwrap_or_else(|| "-".to_owned())),
            cell(one.node.to_string()),
            cell(domain(one)),
            number(one.distance),
            number(one.load),
            number(one.capacity),
        ]);
    }
    let mut text = grid.render();
    if page.quiet {
        return text;
    }
    for one in &view.endpoints {
        if let Some(why) = &one.unread {
            let _ = writeln!(text, "{} replica {}: {}", "warning:".yellow(), one.replica, clean(why));
        }
    }
    if view.endpoints.iter().all(|one| one.port.is_none()) {
        let hint =
            "no replica reported a port: rank 0 writes `port=8080` to the file that PHALANX_ENDPOINT names";
        let _ = writeln!(text, "{}", hint.dimmed());
    }
    text
}

/// The names of endpoints that are ready.
pub(crate) fn names(view: &EndpointsView) -> Vec<String> {
    ready(view).filter_map(target).collect()
}

fn ready(view: &EndpointsView) -> impl Iterator<Item = &EndpointView> {
    view.endpoints.iter().filter(|one| one.state == EndpointState::Ready)
}

/// `10.0.0.1:8080`, `[::1]:8080`.
fn target(one: &EndpointView) -> Option<String> {
    let port = one.port?;
    let is_v6 = one.address.contains(':');
    Some(if is_v6 { format!("[{}]:{port}", one.address) } else { format!("{}:{port}", one.address) })
}

fn domain(one: &EndpointView) -> String {
    one.path.iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
}

/// A name without characters that are special in the file of a router.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect()
}

/// A backend of HAProxy. If all endpoints report a capacity, requests go to the nearest one that has room (`balance first`);
/// otherwise to the one with the fewest, and to farther ones only if no nearer one is up.
pub(crate) fn haproxy(view: &EndpointsView) -> String {
    let name = plain(&view.name);
    let by_room = ready(view).all(|one| one.capacity.is_some());
    let balance = if by_room { "first" } else { "leastconn" };
    let mut text = format!(
        "# Replicas of service {name} (job {}), written by phalanx endpoints.\nbackend {name}\n    balance {balance}\n    \
         option redispatch 1\n    default-server check inter 1s fall 2 rise 1 observe layer4 error-limit 1 on-error mark-down\n",
        view.job
    );
    let nearest = ready(view).filter_map(|one| one.distance).min();
    if !by_room && view.from.is_some() {
        text += "    option allbackups\n";
    }
    for (id, one) in (1..).zip(ready(view)) {
        let Some(target) = target(one) else { continue };
        let _ = write!(text, "    server {name}-{} {target} id {id} weight {}", one.replica, one.weight);
        match one.capacity.filter(|_| by_room) {
            Some(capacity) => {
                let _ = write!(text, " maxconn {capacity}");
            }
            None if one.distance > nearest => text += " backup",
            None => {}
        }
        text.push('\n');
    }
    text
}

/// One `ClusterLoadAssignment`: a locality for each domain, and a priority for each distance.
pub(crate) fn envoy(view: &EndpointsView) -> Value {
    let mut distances: Vec<Option<u32>> = ready(view).map(|one| one.distance).collect();
    distances.sort_unstable();
    distances.dedup();
    let mut localities: Vec<(String, usize, Vec<Value>)> = Vec::new();
    for one in ready(view) {
        let Some(port) = one.port else { continue };
        let priority = distances.iter().position(|distance| *distance == one.distance).unwrap_or(0);
        let address = json!({"socket_address": {"address": one.address, "port_value": port}});
        let endpoint = json!({"endpoint": {"address": address}, "load_balancing_weight": one.weight});
        let zone = domain(one);
        match localities.iter_mut().find(|(of, at, _)| *of == zone && *at == priority) {
            Some((.., endpoints)) => endpoints.push(endpoint),
            None => localities.push((zone, priority, vec![endpoint])),
        }
    }
    let localities: Vec<Value> = localities
        .into_iter()
        .map(|(zone, priority, endpoints)| {
            json!({"locality": {"zone": zone}, "priority": priority, "lb_endpoints": endpoints})
        })
        .collect();
    json!({"resources": [{
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": view.name,
        "endpoints": localities,
    }]})
}

/// Targets for `file_sd_configs` of Prometheus.
pub(crate) fn prometheus_sd(view: &EndpointsView) -> Value {
    let group = |one: &EndpointView| {
        let labels = json!({
            "phalanx_job": view.name,
            "phalanx_replica": one.replica.to_string(),
            "phalanx_node": one.node,
            "phalanx_domain": domain(one),
        });
        Some(json!({"targets": [target(one)?], "labels": labels}))
    };
    ready(view).filter_map(group).collect()
}
