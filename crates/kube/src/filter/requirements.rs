//! How much a pod needs of its node, as kube-scheduler counts it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerStatus, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use thiserror::Error;

use super::{HostPort, NodeTerms};
use crate::api::{Container, Pod};
use crate::quantity::{Amount, BadQuantity};

/// What a pod needs: equal for pods that need the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirements {
    pub amounts: Amounts,
    /// Sorted, each once.
    pub ports: Box<[HostPort]>,
    pub terms: NodeTerms,
    /// Where it would rather be, see [`NodeTerms::favoured`].
    pub favoured: Option<NodeTerms>,
}

/// What can be counted on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amounts {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub ephemeral_bytes: u64,
    /// By name: extended resources such as `nvidia.com/gpu`, huge pages in bytes, attachable volumes. Of a pod only
    /// those that it needs at least one of. A name that a device class stands behind is here too: where the node does
    /// not offer it, claims decide.
    pub extended: BTreeMap<Box<str>, u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {why}")]
pub struct BadAmount {
    /// As a path: `spec.containers[0].resources.requests[cpu]`.
    pub field: String,
    pub why: BadQuantity,
}

impl Requirements {
    /// Of a pod that waits for a node.
    ///
    /// # Errors
    /// Where an amount cannot be read; an API server lets none of these in.
    pub fn of(pod: &Pod) -> Result<Self, BadAmount> {
        Self::with(pod, Basis::Asked)
    }

    /// Of a pod that has a node: what it holds there. While it is resized that is the most of what it asks for, what
    /// was set aside, and what it has. Extended resources that a claim serves are held by the claim.
    ///
    /// # Errors
    /// As [`Requirements::of`].
    pub fn held(pod: &Pod) -> Result<Self, BadAmount> {
        Self::with(pod, Basis::Held)
    }

    /// What it needs of CPU, memory and storage beyond another; nothing where that is enough for it.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Option<Self> {
        let (own, has) = (&self.amounts, &other.amounts);
        let amounts = Amounts {
            cpu_milli: own.cpu_milli.saturating_sub(has.cpu_milli),
            memory_bytes: own.memory_bytes.saturating_sub(has.memory_bytes),
            ephemeral_bytes: own.ephemeral_bytes.saturating_sub(has.ephemeral_bytes),
            extended: BTreeMap::new(),
        };
        (amounts != Amounts::default()).then(|| Self { amounts, ..Self::default() })
    }

    fn with(pod: &Pod, basis: Basis) -> Result<Self, BadAmount> {
        let mut amounts = Amounts::read(&requests(pod, basis)?);
        let by_claim = pod.status.extended_resource_claim_status.iter().filter(|_| basis == Basis::Held);
        for mapping in by_claim.flat_map(|claim| &claim.request_mappings) {
            amounts.extended.remove(&*mapping.resource_name);
        }
        let favoured = if basis == Basis::Asked { NodeTerms::favoured(pod) } else { None };
        Ok(Self { amounts, ports: HostPort::of(pod), terms: NodeTerms::of(pod), favoured })
    }
}

impl Amounts {
    /// From amounts by name. What upstream knows no way to count, a bare name such as `bananas`, is left aside.
    pub(super) fn read(list: &List<'_>) -> Self {
        let mut amounts = Self::default();
        for (name, amount) in list {
            match *name {
                "cpu" => amounts.cpu_milli = amount.milli_up(),
                "memory" => amounts.memory_bytes = amount.units_up(),
                "ephemeral-storage" => amounts.ephemeral_bytes = amount.units_up(),
                name if is_countable(name) && amount.units_up() > 0 => {
                    amounts.extended.insert(name.into(), amount.units_up());
                }
                _ => {}
            }
        }
        amounts
    }
}

/// Which amounts count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Basis {
    /// The specification alone.
    Asked,
    /// The status as well.
    Held,
}

/// Amounts by the name of their resource.
pub(super) type List<'a> = BTreeMap<&'a str, Amount>;

type Quantities = BTreeMap<String, Quantity>;

/// Everything together: containers, init containers, what the pod says of itself as a whole, and overhead.
fn requests(pod: &Pod, basis: Basis) -> Result<List<'_>, BadAmount> {
    let mut total = of_containers(pod, basis)?;
    if let Some(own) = &pod.spec.resources {
        replace_by_own(&mut total, own, pod, basis)?;
    }
    add(&mut total, &read(&pod.spec.overhead, || "spec.overhead".to_owned())?);
    Ok(total)
}

/// Containers run together, and beside them every sidecar. Init containers run one after another before them, beside
/// the sidecars that stand before them: what the largest of these moments needs is needed.
fn of_containers(pod: &Pod, basis: Basis) -> Result<List<'_>, BadAmount> {
    let mut running = List::new();
    for (index, container) in pod.spec.containers.iter().enumerate() {
        let status = status_of(&pod.status.container_statuses, container, basis);
        add(&mut running, &of_container(container, status, pod, || format!("spec.containers[{index}]"))?);
    }
    let mut sidecars = List::new();
    let mut starting = List::new();
    for (index, container) in pod.spec.init_containers.iter().enumerate() {
        let status = status_of(&pod.status.init_container_statuses, container, basis)
            .filter(|_| container.is_sidecar());
        let mut moment = of_container(container, status, pod, || format!("spec.initContainers[{index}]"))?;
        if container.is_sidecar() {
            add(&mut running, &moment);
            add(&mut sidecars, &moment);
            moment.clone_from(&sidecars);
        } else {
            add(&mut moment, &sidecars);
        }
        raise(&mut starting, &moment);
    }
    raise(&mut running, &starting);
    Ok(running)
}

fn status_of<'a>(
    statuses: &'a [ContainerStatus],
    container: &Container,
    basis: Basis,
) -> Option<&'a ContainerStatus> {
    statuses.iter().find(|status| status.name == container.name).filter(|_| basis == Basis::Held)
}

/// What one container needs. A request that is not there is its limit, as an API server would have written it.
fn of_container<'a>(
    container: &'a Container,
    status: Option<&'a ContainerStatus>,
    pod: &Pod,
    path: impl Fn() -> String,
) -> Result<List<'a>, BadAmount> {
    let mut asked = List::new();
    if let Some(resources) = &container.resources {
        asked = read_some(resources.limits.as_ref(), || format!("{}.resources.limits", path()))?;
        asked.extend(read_some(resources.requests.as_ref(), || format!("{}.resources.requests", path()))?);
    }
    let Some((resources, status)) = status.and_then(|status| Some((status.resources.as_ref()?, status)))
    else {
        return Ok(asked);
    };
    let path = |what: &str| format!("status.containerStatuses[{}].{what}", status.name);
    let has = read_some(resources.requests.as_ref(), || path("resources.requests"))?;
    let set_aside = read_some(status.allocated_resources.as_ref(), || path("allocatedResources"))?;
    Ok(most(asked, &has, &set_aside, pod))
}

/// What a pod says of itself as a whole stands instead of the sum of its containers: for CPU, memory and huge pages.
/// A limit is its request too, where neither the pod nor a container says another.
fn replace_by_own<'a>(
    total: &mut List<'a>,
    own: &'a ResourceRequirements,
    pod: &'a Pod,
    basis: Basis,
) -> Result<(), BadAmount> {
    let mut asked = read_some(own.requests.as_ref(), || "spec.resources.requests".to_owned())?;
    for (name, limit) in read_some(own.limits.as_ref(), || "spec.resources.limits".to_owned())? {
        let is_said = total.contains_key(name) && !name.starts_with(HUGE_PAGES);
        if !is_said {
            asked.entry(name).or_insert(limit);
        }
    }
    if asked.is_empty() {
        return Ok(());
    }
    let said: Vec<&str> = asked.keys().copied().collect();
    if let Some(resources) = pod.status.resources.as_ref().filter(|_| basis == Basis::Held) {
        let has = read_some(resources.requests.as_ref(), || "status.resources.requests".to_owned())?;
        let set_aside = read(&pod.status.allocated_resources, || "status.allocatedResources".to_owned())?;
        asked = most(asked, &has, &set_aside, pod);
    }
    let counts = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with(HUGE_PAGES);
    let counted = said.into_iter().filter(|name| counts(name));
    total.extend(counted.map(|name| (name, asked.get(name).copied().unwrap_or_default())));
    Ok(())
}

/// Of a pod that is being resized: of what it asks for only where the node could ever give it.
fn most<'a>(asked: List<'a>, has: &List<'a>, set_aside: &List<'a>, pod: &Pod) -> List<'a> {
    let pending = pod.status.conditions.iter().find(|condition| condition.type_ == "PodResizePending");
    let is_infeasible = pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"));
    let mut most = if is_infeasible { List::new() } else { asked };
    raise(&mut most, has);
    raise(&mut most, set_aside);
    most
}

fn add<'a>(total: &mut List<'a>, more: &List<'a>) {
    for (name, amount) in more {
        let sum = total.entry(name).or_default();
        *sum = sum.plus(*amount);
    }
}

fn raise<'a>(total: &mut List<'a>, other: &List<'a>) {
    for (name, amount) in other {
        let most = total.entry(name).or_default();
        *most = (*most).max(*amount);
    }
}

fn read_some(quantities: Option<&Quantities>, path: impl Fn() -> String) -> Result<List<'_>, BadAmount> {
    quantities.map_or_else(|| Ok(List::new()), |quantities| read(quantities, path))
}

pub(super) fn read(quantities: &Quantities, path: impl Fn() -> String) -> Result<List<'_>, BadAmount> {
    let one = |(name, quantity)| match Amount::of(quantity) {
        Ok(amount) => Ok((String::as_str(name), amount)),
        Err(why) => Err(BadAmount { field: format!("{}[{name}]", path()), why }),
    };
    quantities.iter().map(one).collect()
}

const HUGE_PAGES: &str = "hugepages-";

/// Whether upstream counts it on nodes at all.
fn is_countable(name: &str) -> bool {
    name.contains("kubernetes.io/")
        || name.starts_with(HUGE_PAGES)
        || name.starts_with("attachable-volumes-")
        || (name.contains('/') && !name.starts_with("requests."))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::objects::pod;
    use super::*;

    fn amounts(spec: Value) -> Amounts {
        Requirements::of(&pod(spec)).unwrap().amounts
    }

    fn needs(cpu: &str, memory: &str) -> Value {
        json!({"name": format!("c{cpu}{memory}"), "resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    fn sidecar(cpu: &str, memory: &str) -> Value {
        let mut container = needs(cpu, memory);
        container["restartPolicy"] = json!("Always");
        container
    }

    #[test]
    fn containers_sidecars_and_init_containers_count_as_upstream_documents() {
        for (init, containers, cpu_milli, memory_bytes) in [
            (json!([]), json!([needs("1", "1G")]), 1_000, 1_000_000_000),
            (json!([]), json!([needs("2", "1G"), needs("1", "1G")]), 3_000, 2_000_000_000),
            // The largest of the init containers, where it is more than all containers.
            (
                json!([needs("2", "1G"), needs("2", "3G")]),
                json!([needs("2", "1G"), needs("1", "1G")]),
                3_000,
                3_000_000_000,
            ),
            // A sidecar runs beside the containers.
            (json!([sidecar("1", "1")]), json!([needs("1", "1")]), 2_000, 2),
            // An init container runs beside the sidecars before it, and not beside those behind it.
            (json!([sidecar("1", "0"), needs("4", "0")]), json!([needs("1", "0")]), 5_000, 0),
            (json!([needs("4", "0"), sidecar("1", "0")]), json!([needs("1", "0")]), 4_000, 0),
            (
                json!([sidecar("1", "0"), sidecar("2", "0"), needs("1", "0")]),
                json!([needs("0", "0")]),
                4_000,
                0,
            ),
        ] {
            let spec = json!({"initContainers": init, "containers": containers});
            let amounts = amounts(spec.clone());
            assert_eq!((amounts.cpu_milli, amounts.memory_bytes), (cpu_milli, memory_bytes), "{spec}");
        }
    }

    #[test]
    fn overhead_comes_on_top_also_of_what_the_pod_says_as_a_whole() {
        let spec = json!({
            "containers": [needs("1", "1Gi")],
            "overhead": {"cpu": "250m", "memory": "120Mi"},
        });
        let sum = amounts(spec.clone());
        assert_eq!((sum.cpu_milli, sum.memory_bytes), (1_250, (1_024 + 120) << 20));
        let mut whole = spec;
        whole["resources"] = json!({"requests": {"cpu": "3", "nvidia.com/gpu": "7"}});
        let sum = amounts(whole);
        assert_eq!((sum.cpu_milli, sum.memory_bytes), (3_250, (1_024 + 120) << 20));
        assert!(sum.extended.is_empty(), "a pod as a whole has CPU, memory and huge pages: {sum:?}");
    }

    #[test]
    fn a_limit_is_a_request_where_none_is_written() {
        let limits = json!({"cpu": "2", "nvidia.com/gpu": "4"});
        let sum = amounts(
            json!({"containers": [{"name": "a", "resources": {"limits": limits, "requests": {"cpu": "1"}}}]}),
        );
        assert_eq!((sum.cpu_milli, sum.extended), (1_000, BTreeMap::from([("nvidia.com/gpu".into(), 4)])));
        // Of the pod as a whole: only where no container says anything.
        let of_pod = |container: Value| {
            amounts(json!({
                "containers": [{"name": "a", "resources": {"requests": container}}],
                "resources": {"limits": {"cpu": "8", "memory": "8"}},
            }))
        };
        assert_eq!((of_pod(json!({})).cpu_milli, of_pod(json!({"cpu": "1"})).cpu_milli), (8_000, 1_000));
        assert_eq!(of_pod(json!({"cpu": "1"})).memory_bytes, 8);
    }

    #[test]
    fn small_amounts_are_added_before_they_are_rounded() {
        let two = amounts(json!({"containers": [needs("500u", "400m"), needs("500u", "400m")]}));
        assert_eq!((two.cpu_milli, two.memory_bytes), (1, 1));
    }

    #[test]
    fn only_what_nodes_are_counted_by_is_counted() {
        let requests = json!({"nvidia.com/gpu": "8", "hugepages-2Mi": "4Mi", "amd.com/gpu": "0", "ephemeral-storage": "1Gi", "bananas": "3", "requests.a/b": "1"});
        let sum = amounts(json!({"containers": [{"name": "a", "resources": {"requests": requests}}]}));
        assert_eq!(sum.ephemeral_bytes, 1 << 30);
        assert_eq!(
            sum.extended,
            BTreeMap::from([("hugepages-2Mi".into(), 4 << 20), ("nvidia.com/gpu".into(), 8)])
        );
    }

    #[test]
    fn an_amount_that_cannot_be_read_is_named_by_its_field() {
        let bad = Requirements::of(&pod(json!({"initContainers": [needs("1", "lots")]}))).unwrap_err();
        assert!(
            bad.to_string().starts_with("spec.initContainers[0].resources.requests[memory]: \"lots\""),
            "{bad}"
        );
    }

    #[test]
    fn a_pod_that_is_resized_holds_the_most_of_what_it_has_and_asks_for() {
        let mut resized = pod(json!({"containers": [needs("1", "1")]}));
        let status = json!({
            "containerStatuses": [{
                "name": "c11", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": "3", "memory": "2"}}, "allocatedResources": {"cpu": "2", "memory": "4"},
            }],
        });
        resized.status = serde_json::from_value(status).unwrap();
        let held = Requirements::held(&resized).unwrap().amounts;
        assert_eq!((held.cpu_milli, held.memory_bytes), (3_000, 4));
        assert_eq!(Requirements::of(&resized).unwrap().amounts.cpu_milli, 1_000);
        // What the node can never give does not count.
        resized.spec.containers[0] =
            serde_json::from_value(json!({"name": "c11", "resources": {"requests": {"cpu": "90"}}})).unwrap();
        assert_eq!(Requirements::held(&resized).unwrap().amounts.cpu_milli, 90_000);
        let condition = json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]);
        resized.status.conditions = serde_json::from_value(condition).unwrap();
        assert_eq!(Requirements::held(&resized).unwrap().amounts.cpu_milli, 3_000);
    }

    #[test]
    fn host_ports_are_those_of_containers_and_sidecars() {
        let ports = |port: u16| json!([{"containerPort": port, "hostPort": port}, {"containerPort": 1}]);
        let wanted = Requirements::of(&pod(json!({
            "containers": [{"name": "a", "ports": ports(80)}],
            "initContainers": [{"name": "b", "ports": ports(81)}, {"name": "c", "ports": ports(82), "restartPolicy": "Always"}],
        })));
        let ports: Vec<u16> = wanted.unwrap().ports.iter().map(|port| port.port).collect();
        assert_eq!(ports, [80, 82]);
    }
}
