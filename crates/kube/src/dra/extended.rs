//! Pods that ask for an extended resource and are served by a claim.
//!
//! A DeviceClass can stand for an extended resource: by `spec.extendedResourceName`, and always by
//! `deviceclass.resource.kubernetes.io/<class>`. Where a node has the resource from a device plugin, the plugin
//! serves it; where it has not, the scheduler makes one claim for the pod, and the kubelet gives each container the
//! devices of its requests. Names of requests and the order of the rules are those of kube-scheduler, since the
//! kubelet reads them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{ContainerExtendedResourceRequest, PodExtendedResourceClaimStatus};
use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::inventory::Inventory;
use crate::api::{Container, Node, PodSpec};
use crate::quantity::Amount;

const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";
const CLAIM_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// How much of what a claim is named after is in its name: with a number of 10 digits it stays a label.
const PREFIX_BYTES_MAX: usize = 52;

/// What the containers of a pod ask for as extended resources. Equal for pods whose containers are called and ask alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtendedAsk {
    /// All of them, in the order of the pod, those that go first before the others.
    containers: Box<[Asking]>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Asking {
    name: Box<str>,
    /// It has ended before the containers start.
    is_short: bool,
    wants: Box<[Want]>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Want {
    resource: Box<str>,
    /// Its number among all that the container asks for, which the name of a request is made of.
    place: usize,
    count: i64,
}

/// What a node has to give by a claim, and which container has which of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtendedClaim {
    pub spec: ResourceClaimSpec,
    pub mappings: Vec<ContainerExtendedResourceRequest>,
}

impl ExtendedClaim {
    /// For `status.extendedResourceClaimStatus` of the pod.
    #[must_use]
    pub fn status(&self, claim: &str) -> PodExtendedResourceClaimStatus {
        PodExtendedResourceClaimStatus {
            request_mappings: self.mappings.clone(),
            resource_claim_name: claim.to_owned(),
        }
    }

    /// The claim as it is created for a pod. Kube-scheduler leaves its name to the API server; with one of ours it is
    /// not made twice where the answer to a creation was lost.
    #[must_use]
    pub fn made_for(&self, namespace: &str, pod: &str, uid: &str, name: &str) -> ResourceClaim {
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: pod.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        let metadata = ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            generate_name: Some(generate_name(pod)),
            owner_references: Some(vec![owner]),
            annotations: Some(BTreeMap::from([(CLAIM_ANNOTATION.to_owned(), "true".to_owned())])),
            ..Default::default()
        };
        ResourceClaim { metadata, spec: self.spec.clone(), status: None }
    }
}

fn generate_name(pod: &str) -> String {
    format!("{pod}-extended-resources-")
}

/// What the names of the claims begin with that are made for a pod of this name.
#[must_use]
pub fn extended_prefix(pod: &str) -> String {
    generate_name(pod).chars().take(PREFIX_BYTES_MAX).collect()
}

/// Whether a scheduler made the claim for the extended resources of a pod.
#[must_use]
pub fn is_extended(claim: &ResourceClaim) -> bool {
    let annotations = claim.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(CLAIM_ANNOTATION)).is_some_and(|value| value == "true")
}

/// Whether a device plugin, or a device class, may stand behind this name of a resource.
fn is_extended_resource(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    name.starts_with(CLASS_PREFIX) || !(is_native || name.starts_with("requests."))
}

impl Inventory {
    /// The class that stands for a resource: of several the newest, then the first by name.
    #[must_use]
    pub fn class_of_resource(&self, resource: &str) -> Option<&str> {
        if let Some(class) = resource.strip_prefix(CLASS_PREFIX) {
            return self.classes.get_key_value(class).map(|(name, _)| name.as_str());
        }
        let named = self
            .classes
            .iter()
            .filter(|(_, class)| class.spec.extended_resource_name.as_deref() == Some(resource));
        let newest = |class: &k8s_openapi::api::resource::v1::DeviceClass| {
            class.metadata.creation_timestamp.as_ref().map(|time| time.0)
        };
        named
            .max_by(|(a_name, a), (b_name, b)| newest(a).cmp(&newest(b)).then_with(|| b_name.cmp(a_name)))
            .map(|(name, _)| name.as_str())
    }
}

impl ExtendedAsk {
    /// Nothing where the containers ask for no extended resource.
    #[must_use]
    pub fn of(spec: &PodSpec) -> Option<Self> {
        let init = spec.init_containers.iter().map(|container| (container, !container.is_sidecar()));
        let all = init.chain(spec.containers.iter().map(|container| (container, false)));
        let containers: Box<[Asking]> =
            all.map(|(container, is_short)| asking(container, is_short)).collect();
        containers.iter().any(|container| !container.wants.is_empty()).then_some(Self { containers })
    }

    /// What it asks for, by name, as a pod is counted: containers that run together together.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<&str, u64> {
        let total = |resource: &str| {
            let mut served = Served::default();
            served.serve(&self.containers, resource, "");
            let counts = served.requests.iter().filter_map(|request| request.exactly.as_ref()?.count);
            counts.filter_map(|count| u64::try_from(count).ok()).sum()
        };
        self.resources().into_iter().map(|resource| (resource, total(resource))).collect()
    }

    fn resources(&self) -> BTreeSet<&str> {
        self.containers.iter().flat_map(|container| &container.wants).map(|want| &*want.resource).collect()
    }

    /// The claim for the resources that a node has from no device plugin. None where it has all of them.
    ///
    /// # Errors
    /// The first resource that it has not, and that no device class stands for.
    pub fn claim(&self, inventory: &Inventory, node: &Node) -> Result<Option<ExtendedClaim>, String> {
        let mut served = Served::default();
        for resource in self.resources() {
            if is_offered(node, resource) {
                continue;
            }
            let class = inventory.class_of_resource(resource);
            let class = class.ok_or_else(|| {
                format!("no device plugin offers {resource}, and no device class stands for it")
            })?;
            served.serve(&self.containers, resource, class);
        }
        if served.requests.is_empty() {
            return Ok(None);
        }
        served.requests.sort_by(|a, b| a.name.cmp(&b.name));
        let devices = DeviceClaim { requests: Some(served.requests), ..Default::default() };
        let spec = ResourceClaimSpec { devices: Some(devices) };
        Ok(Some(ExtendedClaim { spec, mappings: served.mappings }))
    }
}

/// Whether a device plugin of a node has any of a resource.
#[must_use]
pub fn is_offered(node: &Node, resource: &str) -> bool {
    let amount = node.status.allocatable.get(resource).and_then(|amount| Amount::of(amount).ok());
    amount.is_some_and(|amount| amount > Amount::ZERO)
}

fn asking(container: &Container, is_short: bool) -> Asking {
    let wants = requests(container).iter().enumerate().filter_map(|(place, (resource, amount))| {
        let count = Amount::of(amount).ok()?.exactly().filter(|count| *count > 0)?;
        is_extended_resource(resource).then(|| Want { resource: resource.as_str().into(), place, count })
    });
    Asking { name: container.name.as_str().into(), is_short, wants: wants.collect() }
}

/// The API server writes limits of extended resources as requests too.
fn requests(
    container: &Container,
) -> &BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity> {
    static NONE: BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity> = BTreeMap::new();
    container.resources.as_ref().and_then(|resources| resources.requests.as_ref()).unwrap_or(&NONE)
}

#[derive(Default)]
struct Served {
    requests: Vec<DeviceRequest>,
    mappings: Vec<ContainerExtendedResourceRequest>,
}

/// What one container asks for beyond what it can use of others.
struct Own {
    name: String,
    count: i64,
}

impl Served {
    /// Containers that run together have devices of their own. Init containers run before, one after the other: they
    /// use those of the containers behind them, and share what they need beyond.
    fn serve(&mut self, containers: &[Asking], resource: &str, class: &str) {
        let mut long: Vec<Option<Own>> = Vec::new();
        let mut late = Vec::new();
        for (at, container) in containers.iter().enumerate() {
            let (own, _) =
                if container.is_short { (None, vec![]) } else { ask(at, container, resource, &[]) };
            if let Some(own) = &own {
                self.mappings.push(mapping(container, resource, &own.name));
            }
            long.push(own);
        }
        let mut largest: Option<Own> = None;
        let mut beyond = BTreeSet::new();
        for (at, container) in containers.iter().enumerate().filter(|(_, container)| container.is_short) {
            let (own, used) = ask(at, container, resource, &long[at..]);
            late.extend(used.into_iter().map(|name| mapping(container, resource, &name)));
            if let Some(own) = own {
                late.push(mapping(container, resource, &own.name));
                beyond.insert(own.name.clone());
                if largest.as_ref().is_none_or(|largest| largest.count < own.count) {
                    largest = Some(own);
                }
            }
        }
        if let Some(largest) = &largest {
            for mapping in late.iter_mut().filter(|mapping| beyond.contains(&mapping.request_name)) {
                mapping.request_name.clone_from(&largest.name);
            }
        }
        self.mappings.append(&mut late);
        self.requests
            .extend(largest.into_iter().chain(long.into_iter().flatten()).map(|own| request(own, class)));
    }
}

/// What a container asks for beyond the requests that it can use, and the names of those.
fn ask(at: usize, container: &Asking, resource: &str, usable: &[Option<Own>]) -> (Option<Own>, Vec<String>) {
    let want = container.wants.iter().find(|want| &*want.resource == resource);
    let Some(Want { place, count, .. }) = want else { return (None, Vec::new()) };
    let (mut sum, mut used) = (0_i64, Vec::new());
    for usable in usable.iter().flatten() {
        sum = sum.saturating_add(usable.count);
        used.push(usable.name.clone());
        if sum >= *count {
            return (None, used);
        }
    }
    (Some(Own { name: format!("container-{at}-request-{place}"), count: count - sum }), used)
}

fn mapping(container: &Asking, resource: &str, request: &str) -> ContainerExtendedResourceRequest {
    ContainerExtendedResourceRequest {
        container_name: container.name.to_string(),
        request_name: request.to_owned(),
        resource_name: resource.to_owned(),
    }
}

fn request(own: Own, class: &str) -> DeviceRequest {
    let exactly = ExactDeviceRequest {
        device_class_name: class.to_owned(),
        allocation_mode: Some("ExactCount".to_owned()),
        count: Some(own.count),
        ..Default::default()
    };
    DeviceRequest { name: own.name, exactly: Some(exactly), first_available: None }
}
