//! What the claims of a pod ask for, in a form that is equal for pods that ask for the same.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodResourceClaimStatus;
use k8s_openapi::api::resource::v1::{
    DeviceRequest, DeviceToleration, ExactDeviceRequest, ResourceClaim, ResourceClaimConsumerReference,
    ResourceClaimSpec, ResourceClaimStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::{Node, Pod, PodSpec};
use crate::cluster::node_sets::Condition;
use crate::digest::hex;
use crate::dra::{ExtendedAsk, Inventory};

/// A claim of a pod, as its specification and its status say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// What the pod calls it.
    pub(crate) name: Box<str>,
    pub(crate) of: Source,
    /// The `PodGroup` of the pod, which may have the same claim.
    pub(crate) group: Option<Arc<str>>,
}

/// Which object the claim is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Named(Arc<str>),
    /// Made for the pod alone from a template, or to be made.
    Made {
        template: Arc<str>,
        claim: Option<Arc<str>>,
    },
    /// Extended resources, for which one is made where the node serves them by claims.
    Extended {
        ask: Arc<ExtendedAsk>,
        /// The status of the pod names one.
        is_told: bool,
    },
    /// A kind that is not known here.
    Unknown,
}

impl Used {
    /// The claims of a pod; without those of which its status says that it needs none.
    pub(crate) fn of(pod: &Pod) -> Box<[Self]> {
        Self::read(&pod.spec, &pod.status.resource_claim_statuses)
    }

    /// What a pod asks for as extended resources.
    pub(crate) fn extended(ask: &Arc<ExtendedAsk>, is_told: bool) -> Self {
        let of = Source::Extended { ask: Arc::clone(ask), is_told };
        Self { name: "extended-resources".into(), of, group: None }
    }

    /// The claims of pods that will be made from a template.
    pub(crate) fn of_template(spec: &PodSpec) -> Box<[Self]> {
        Self::read(spec, &[])
    }

    fn read(spec: &PodSpec, statuses: &[PodResourceClaimStatus]) -> Box<[Self]> {
        let group = spec.scheduling_group.as_ref().and_then(|group| group.pod_group_name.as_deref());
        let group: Option<Arc<str>> = group.map(Into::into);
        let made = |name: &str| statuses.iter().find(|made| made.name == name);
        let claims = spec.resource_claims.iter().filter_map(|claim| {
            let of = match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
                (Some(name), _) => Source::Named(name.as_str().into()),
                (None, Some(template)) => {
                    let claim = match made(&claim.name) {
                        Some(made) => Some(made.resource_claim_name.as_deref()?.into()),
                        None => None,
                    };
                    Source::Made { template: template.as_str().into(), claim }
                }
                (None, None) => Source::Unknown,
            };
            Some(Self { name: claim.name.as_str().into(), of, group: group.clone() })
        });
        claims.collect()
    }

    /// The name of the object, where there is one.
    pub(crate) const fn object(&self) -> Option<&Arc<str>> {
        match &self.of {
            Source::Named(name) | Source::Made { claim: Some(name), .. } => Some(name),
            Source::Made { claim: None, .. } | Source::Extended { .. } | Source::Unknown => None,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) condition: Condition,
    /// Claims that are to be allocated, called as the pod calls them.
    pub(crate) asks: Vec<ResourceClaim>,
    /// Claims that are allocated: the pod goes where their devices are reached.
    pub(crate) pins: Vec<Arc<ResourceClaim>>,
    /// What no claim asks for that is there: device plugins serve it, or one claim more.
    pub(crate) extended: Option<Arc<ExtendedAsk>>,
    /// Claims that are not allocated and that others may share.
    pub(crate) shared: Vec<Sharing>,
    namespace: Box<str>,
}

/// A claim that several pods may have.
#[derive(Clone, Debug)]
pub(crate) struct Sharing {
    /// What the pod calls it.
    pub(crate) name: Box<str>,
    pub(crate) claim: Arc<str>,
    /// It is reserved for their group, and not for each of them.
    pub(crate) is_for_group: bool,
}

impl Asked {
    /// Claims by the pod's names for them.
    pub(crate) fn of(
        namespace: &str,
        asks: &[(&str, &ResourceClaimSpec)],
        pins: Vec<Arc<ResourceClaim>>,
        extended: Option<Arc<ExtendedAsk>>,
    ) -> Self {
        let asks: Vec<ResourceClaim> = asks
            .iter()
            .map(|(name, spec)| {
                let (name, namespace) = (Some((*name).to_owned()), Some(namespace.to_owned()));
                let metadata = ObjectMeta { name, namespace, ..ObjectMeta::default() };
                ResourceClaim { metadata, spec: (*spec).clone(), status: None }
            })
            .collect();
        let condition = condition(&asks, &pins, extended.as_deref());
        Self { condition, asks, pins, extended, shared: Vec::new(), namespace: namespace.into() }
    }

    /// Whether any node will do.
    pub(crate) fn is_empty(&self) -> bool {
        self.asks.is_empty() && self.pins.is_empty() && self.extended.is_none()
    }

    /// The claims that are to be allocated on a node.
    ///
    /// # Errors
    /// Why the node cannot serve it, whatever is free.
    pub(crate) fn on(&self, inventory: &Inventory, node: &Node) -> Result<Vec<ResourceClaim>, String> {
        let more = self.extended.as_ref().map(|ask| ask.claim(inventory, node)).transpose()?.flatten();
        let more = more.map(|claim| claim.made_for(&self.namespace, "", "", "extended-resources"));
        Ok(self.asks.iter().cloned().chain(more).collect())
    }

    /// Whether it asks for whole devices by their class and number, and for nothing else but that all tolerate the same
    /// taints: a device that one of its requests may have is as good for every other.
    pub(crate) fn is_plain(&self) -> bool {
        let of_extended = self.extended.iter().map(|_| &[][..]);
        let mut all = self.asks.iter().flat_map(|claim| tolerations(&claim.spec)).chain(of_extended);
        let first = all.next();
        all.all(|other| Some(other) == first) && self.asks.iter().all(|claim| is_by_number(&claim.spec))
    }

    /// Whether some request tolerates taints.
    pub(crate) fn is_tolerant(&self) -> bool {
        self.asks.iter().any(|claim| is_tolerant(&claim.spec))
    }
}

fn requests(spec: &ResourceClaimSpec) -> &[DeviceRequest] {
    spec.devices.as_ref().and_then(|devices| devices.requests.as_deref()).unwrap_or_default()
}

/// What each request tolerates, and each alternative of one.
fn tolerations(spec: &ResourceClaimSpec) -> impl Iterator<Item = &[DeviceToleration]> {
    requests(spec).iter().flat_map(|request| {
        let exactly = request.exactly.iter().map(|exactly| &exactly.tolerations);
        let listed = request.first_available.iter().flatten().map(|sub| &sub.tolerations);
        exactly.chain(listed).map(|all| all.as_deref().unwrap_or_default())
    })
}

fn is_tolerant(spec: &ResourceClaimSpec) -> bool {
    tolerations(spec).any(|all| !all.is_empty())
}

fn is_by_number(spec: &ResourceClaimSpec) -> bool {
    let constraints =
        spec.devices.as_ref().and_then(|devices| devices.constraints.as_deref()).unwrap_or_default();
    let is_exact = |request: &DeviceRequest| {
        let Some(exactly) = &request.exactly else { return false };
        let ExactDeviceRequest { admin_access, allocation_mode, capacity, selectors, .. } = exactly;
        allocation_mode.as_deref().is_none_or(|mode| mode == "ExactCount")
            && !admin_access.unwrap_or(false)
            && capacity.is_none()
            && selectors.as_ref().is_none_or(Vec::is_empty)
    };
    constraints.is_empty() && requests(spec).iter().all(is_exact)
}

/// What people read, and what tells different asks apart.
fn condition(
    asks: &[ResourceClaim],
    pins: &[Arc<ResourceClaim>],
    extended: Option<&ExtendedAsk>,
) -> Condition {
    let name = |claim: &ResourceClaim| claim.metadata.name.clone().unwrap_or_default();
    let words =
        asks.iter().map(|claim| format!("devices for claim {}: {}", name(claim), summary(&claim.spec)));
    let there = pins.iter().map(|claim| format!("the devices of claim {}", name(claim)));
    let totals = extended.map(ExtendedAsk::totals).unwrap_or_default();
    let resources =
        totals.iter().map(|(resource, count)| format!("{count} of {resource} by a device plugin or a claim"));
    let text: Vec<String> = words.chain(there).chain(resources).collect();
    let text = text.join(", ");
    if pins.is_empty() && asks.iter().all(|claim| is_by_number(&claim.spec) && !is_tolerant(&claim.spec)) {
        return text.into();
    }
    // Specifications that read alike may differ, and namespaces have rights.
    let whole = serde_json::to_vec(&(asks, pins.iter().map(|claim| &claim.metadata.uid).collect::<Vec<_>>()));
    format!("{text} [{}]", hex(&whole.unwrap_or_default(), 4)).into()
}

fn summary(spec: &ResourceClaimSpec) -> String {
    let amount = |mode: Option<&str>, count: Option<i64>| match mode {
        Some("All") => "all".to_owned(),
        _ => count.unwrap_or(1).to_string(),
    };
    let one = |request: &DeviceRequest| match &request.exactly {
        Some(exactly) => {
            let all = amount(exactly.allocation_mode.as_deref(), exactly.count);
            let selected = exactly.selectors.as_ref().is_some_and(|selectors| !selectors.is_empty());
            let is_tolerant = exactly.tolerations.as_ref().is_some_and(|all| !all.is_empty());
            let more = [(selected, ", selected"), (is_tolerant, ", tolerating taints")];
            let more: String = more.iter().filter(|(is, _)| *is).map(|(_, more)| *more).collect();
            format!("{all} of {}{more}", exactly.device_class_name)
        }
        None => {
            let listed = request.first_available.iter().flatten();
            let each = listed.map(|sub| {
                format!("{} of {}", amount(sub.allocation_mode.as_deref(), sub.count), sub.device_class_name)
            });
            each.collect::<Vec<_>>().join(" or ")
        }
    };
    requests(spec).iter().map(one).collect::<Vec<_>>().join(" and ")
}

/// Whether a claim is allocated.
pub(crate) const fn is_allocated(claim: &ResourceClaim) -> bool {
    matches!(&claim.status, Some(ResourceClaimStatus { allocation: Some(_), .. }))
}

/// What a claim is reserved for, most often pods.
pub(crate) fn users(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
}

/// The same by UID.
pub(crate) fn reserved_for(claim: &ResourceClaim) -> impl Iterator<Item = &str> {
    users(claim).iter().map(|user| user.uid.as_str())
}

/// The pod that a claim was made for from a template, or the group.
pub(crate) fn made_for(claim: &ResourceClaim) -> Option<&str> {
    let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
    let pod = |owner: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
        matches!(&*owner.kind, "Pod" | "PodGroup") && owner.controller == Some(true)
    };
    owners.iter().find(pod).map(|owner| owner.uid.as_str())
}
