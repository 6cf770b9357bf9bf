//! The allocation as the API stores it: devices, configuration of class and claim, and the nodes that reach it.

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
    ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::nodes::reaches;
use super::pools::Reach;
use super::request::{Choice, ClaimAsk};
use super::search::Pick;
use crate::api::Node;

/// Whether a node reaches the devices of a claim that is allocated; a claim that is not excludes no node.
#[must_use]
pub fn is_reached_by(claim: &ResourceClaim, node: &Node) -> bool {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let selector = allocation.and_then(|allocation| allocation.node_selector.as_ref());
    selector.is_none_or(|selector| reaches(node, None, None, Some(selector)))
}

pub(super) fn allocation(
    ask: &ClaimAsk<'_>,
    picks: &[&Pick],
    reach: &Reach<'_>,
    node: &Node,
    share_id: &mut dyn FnMut() -> String,
) -> AllocationResult {
    let results: Vec<_> = picks.iter().map(|pick| device(ask, pick, reach, share_id)).collect();
    let config = configuration(ask, picks);
    AllocationResult {
        allocation_timestamp: None,
        devices: Some(DeviceAllocationResult {
            config: (!config.is_empty()).then_some(config),
            results: (!results.is_empty()).then_some(results),
        }),
        node_selector: node_selector(picks, reach, node),
    }
}

fn device(
    ask: &ClaimAsk<'_>,
    pick: &Pick,
    reach: &Reach<'_>,
    share_id: &mut dyn FnMut() -> String,
) -> DeviceRequestAllocationResult {
    let choice = &ask.requests[pick.request].choices[pick.choice];
    let slot = &reach.slots[pick.slot];
    let consumed = pick.share.as_ref().filter(|share| !share.is_empty());
    DeviceRequestAllocationResult {
        admin_access: pick.is_admin.then_some(true),
        binding_conditions: slot.device.binding_conditions.clone(),
        binding_failure_conditions: slot.device.binding_failure_conditions.clone(),
        consumed_capacity: consumed.map(|share| {
            share.iter().map(|(name, amount)| (name.clone(), Quantity::from(*amount))).collect()
        }),
        device: slot.id.device.clone(),
        driver: slot.id.driver.clone(),
        pool: slot.id.pool.clone(),
        request: choice.name.clone(),
        share_id: pick.share.is_some().then(share_id),
        tolerations: (!choice.tolerations.is_empty()).then(|| choice.tolerations.to_vec()),
    }
}

/// Of classes first, each once for all requests that it serves, then of the claim: what comes later wins.
fn configuration(ask: &ClaimAsk<'_>, picks: &[&Pick]) -> Vec<DeviceAllocationConfiguration> {
    let served: Vec<&Choice<'_>> = ask
        .requests
        .iter()
        .enumerate()
        .filter_map(|(at, request)| {
            let pick = picks.iter().find(|pick| pick.request == at)?;
            Some(&request.choices[pick.choice])
        })
        .collect();
    let mut classes: Vec<(&str, Vec<DeviceAllocationConfiguration>)> = Vec::new();
    for choice in &served {
        if let Some((_, configs)) = classes.iter_mut().find(|(name, _)| *name == choice.class_name) {
            for config in configs {
                config.requests.get_or_insert_default().push(choice.name.clone());
            }
            continue;
        }
        let configs = choice.class.spec.config.iter().flatten().map(|config| DeviceAllocationConfiguration {
            opaque: config.opaque.clone(),
            requests: Some(vec![choice.name.clone()]),
            source: "FromClass".to_owned(),
        });
        classes.push((choice.class_name, configs.collect()));
    }
    let devices = ask.claim.spec.devices.as_ref();
    let own =
        devices.and_then(|devices| devices.config.as_deref()).unwrap_or_default().iter().filter(|config| {
            let wanted = config.requests.as_deref().unwrap_or_default();
            let is_meant = |choice: &&Choice<'_>| {
                let request =
                    choice.name.split_once('/').map_or(choice.name.as_str(), |(request, _)| request);
                wanted.iter().any(|name| *name == choice.name || name == request)
            };
            wanted.is_empty() || served.iter().any(is_meant)
        });
    let own = own.map(|config| DeviceAllocationConfiguration {
        opaque: config.opaque.clone(),
        requests: config.requests.clone(),
        source: "FromClaim".to_owned(),
    });
    classes.into_iter().flat_map(|(_, configs)| configs).chain(own).collect()
}

/// This node, where a device is of one node or binds to it; else what all of the devices require; else any.
fn node_selector(picks: &[&Pick], reach: &Reach<'_>, node: &Node) -> Option<NodeSelector> {
    let mut term = NodeSelectorTerm::default();
    for pick in picks {
        let slot = &reach.slots[pick.slot];
        let (name, selector) = if slot.slice.per_device_node_selection.unwrap_or(false) {
            (&slot.device.node_name, &slot.device.node_selector)
        } else {
            (&slot.slice.node_name, &slot.slice.node_selector)
        };
        if name.is_some() || slot.device.binds_to_node.unwrap_or(false) {
            return Some(only(node));
        }
        // The API allows one term.
        if let Some(of_device) = selector.as_ref().and_then(|selector| selector.node_selector_terms.first()) {
            join(&mut term.match_fields, &of_device.match_fields);
            join(&mut term.match_expressions, &of_device.match_expressions);
        }
    }
    let is_free = term.match_fields.is_none() && term.match_expressions.is_none();
    (!is_free).then(|| NodeSelector { node_selector_terms: vec![term] })
}

fn only(node: &Node) -> NodeSelector {
    let name = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.name().to_owned()]),
    };
    NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_fields: Some(vec![name]),
            match_expressions: None,
        }],
    }
}

fn join(to: &mut Option<Vec<NodeSelectorRequirement>>, from: &Option<Vec<NodeSelectorRequirement>>) {
    for requirement in from.iter().flatten() {
        let to = to.get_or_insert_default();
        if !to.contains(requirement) {
            to.push(requirement.clone());
        }
    }
}
