//! What pods need, in the engine's words.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use phalanx_model::{Gang, Needs, PartNeed, ResourceName};

use super::hardware;
use super::node_sets::{Condition, More, Wanted};
use super::nodes::{NodeState, divided};
use crate::api::Pod;
use crate::filter::{HostPort, NodeTerms, Requirements, SHARED_GPU};
use crate::recognise::PodTemplate;

/// Whole devices of one pod.
pub(crate) fn devices(pod: &Requirements) -> u32 {
    let asked = pod.amounts.extended.iter().filter(|(name, _)| hardware::is_device(name));
    asked.fold(0, |sum, (_, count)| sum.saturating_add(u32::try_from(*count).unwrap_or(u32::MAX)))
}

/// What pods of a template will need.
pub(crate) fn of_template(template: &PodTemplate) -> Result<Arc<Requirements>, Arc<str>> {
    let metadata = ObjectMeta {
        labels: Some(template.metadata.labels.clone()),
        annotations: Some(template.metadata.annotations.clone()),
        ..ObjectMeta::default()
    };
    let pod = Pod { metadata, spec: template.spec.clone(), ..Pod::default() };
    Requirements::of(&pod).map(Arc::new).map_err(|bad| bad.to_string().into())
}

/// What a member of a gang needs. From now on the nodes say whether they are in the set that it may use.
pub(crate) fn needs(pod: &Requirements, more: &More, nodes: &mut NodeState) -> Needs {
    let has_shared = pod.amounts.extended.contains_key(SHARED_GPU);
    let part = (more.takes_replica || has_shared).then_some(PartNeed::Replica);
    let devices = more.claims.as_ref().map_or_else(|| devices(pod), |claims| claims.devices);
    let devices = if part.is_some() { 0 } else { devices };
    let mut named: BTreeMap<ResourceName, u64> = BTreeMap::new();
    let extended = pod.amounts.extended.iter().filter(|(name, _)| !hardware::is_device(name));
    named.extend(extended.filter_map(|(name, count)| Some((hardware::resource(name)?, *count))));
    if pod.amounts.ephemeral_bytes > 0 {
        named.extend(hardware::storage().map(|disk| (disk, pod.amounts.ephemeral_bytes)));
    }
    // Where whole devices are asked for they run out long before places for pods do.
    if devices == 0 {
        named.extend(hardware::pods().map(|pods| (pods, 1)));
    }
    named.extend(divided::replicas().filter(|_| more.takes_replica).map(|replicas| (replicas, 1)));
    named.extend(ports(pod, more).map(|port| (port, 1)));
    if let Some(counted) = more.claims.as_ref().and_then(|claims| claims.counted.as_ref()) {
        nodes.want_counted(counted);
        named.insert(counted.clone(), 1);
    }
    // What no device plugin of a node has may be had there by a claim: whether it can is a condition.
    if more.claims.is_some() {
        let extended = pod.amounts.extended.keys().filter(|name| !hardware::is_device(name));
        extended
            .filter_map(|name| hardware::resource(name))
            .for_each(|resource| nodes.want_claimable(&resource));
    }
    let within = Some(nodes.want_set(&wanted(pod, more)));
    Needs {
        devices,
        part,
        cpu_milli: pod.amounts.cpu_milli,
        memory_bytes: pod.amounts.memory_bytes,
        named,
        within,
        ..Needs::default()
    }
}

/// Has a gang prefer nodes without devices that it does not request; the sets of nodes that it asks for with that. A gang of
/// which one member requests a rare resource stays together, wherever that is.
pub(crate) fn prefer_plain<'a>(
    gang: &mut Gang,
    asked: impl Iterator<Item = (&'a Requirements, &'a More)>,
    nodes: &mut NodeState,
) -> Vec<Wanted> {
    let plain = |(pod, more): (&Requirements, &More)| {
        if more.claims.is_some() { None } else { nodes.plain(pod, &wanted(pod, more)) }
    };
    let Some(sets) = asked.map(plain).collect::<Option<Vec<Wanted>>>() else { return Vec::new() };
    let roles = gang.roles.iter_mut().map(|role| &mut role.needs);
    for (needs, set) in std::iter::once(&mut gang.needs).chain(roles).zip(&sets) {
        needs.prefer_within = Some(nodes.want_set(set));
    }
    sets
}

/// Has a gang favour the nodes that its pods prefer, among places that are equally good; the sets of nodes that it asks for
/// with that. `plain` are those of [`prefer_plain`].
pub(crate) fn favour<'a>(
    gang: &mut Gang,
    asked: impl Iterator<Item = (&'a Requirements, &'a More)>,
    plain: &[Wanted],
    nodes: &mut NodeState,
) -> Vec<Wanted> {
    let roles = gang.roles.iter_mut().map(|role| &mut role.needs);
    let mut sets = Vec::new();
    for (at, (needs, (pod, more))) in std::iter::once(&mut gang.needs).chain(roles).zip(asked).enumerate() {
        let Some(terms) = &pod.favoured else { continue };
        let base = plain.get(at).cloned().unwrap_or_else(|| wanted(pod, more));
        let set = Wanted { terms: inside(terms, more), ..base };
        needs.favour_within = Some(nodes.want_set(&set));
        sets.push(set);
    }
    sets
}

/// What a node has one of, for one such member: host ports, and what keeps pods apart.
pub(crate) fn ports(pod: &Requirements, more: &More) -> impl Iterator<Item = ResourceName> {
    pod.ports.iter().filter_map(port).chain(more.apart.iter().cloned())
}

/// The nodes that a member may have.
pub(crate) fn wanted(pod: &Requirements, more: &More) -> Wanted {
    let of_claims = more.claims.as_ref().map(|claims| Condition::clone(&claims.condition));
    let conditions = more.conditions.iter().cloned().chain(of_claims).collect();
    Wanted { terms: inside(&pod.terms, more), conditions }
}

/// Where the gang of a pod has to be divided, in the domain of the pod.
fn inside(terms: &NodeTerms, more: &More) -> NodeTerms {
    more.domain.as_ref().map_or_else(|| terms.clone(), |domain| terms.within(domain))
}

/// A host port as a resource of which each node has one. Of one port on two addresses of a node only one is given away:
/// upstream would allow both.
pub(crate) fn port(port: &HostPort) -> Option<ResourceName> {
    ResourceName::new(format!("port/{:?}/{}", port.protocol, port.port).to_lowercase()).ok()
}
