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
use super::quantity::Amount;
use crate::api::{Container, Node, Pod};

const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";
const CLAIM_ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// A claim that the scheduler has to create, and which container has which of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtendedClaim {
    /// Without a name: the API server makes one.
    pub claim: ResourceClaim,
    pub mappings: Vec<ContainerExtendedResourceRequest>,
}

impl ExtendedClaim {
    /// For `status.extendedResourceClaimStatus` of the pod, once the claim has a name.
    #[must_use]
    pub fn status(&self, name: &str) -> PodExtendedResourceClaimStatus {
        PodExtendedResourceClaimStatus {
            request_mappings: self.mappings.clone(),
            resource_claim_name: name.to_owned(),
        }
    }
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

/// The claim that serves a pod on a node, for the resources that the node has from no device plugin. None where
/// there are none.
#[must_use]
pub fn extended_claim(inventory: &Inventory, pod: &Pod, node: &Node) -> Option<ExtendedClaim> {
    let spec = &pod.spec;
    let containers: Vec<&Container> = spec.init_containers.iter().chain(&spec.containers).collect();
    let resources: BTreeSet<&String> =
        containers.iter().flat_map(|container| requests(container).keys()).collect();
    let mut served = Served::default();
    for resource in resources {
        let from_plugin = node.status.allocatable.get(resource).and_then(|amount| Amount::of(amount).ok());
        if from_plugin.is_some_and(|amount| amount > Amount::ZERO) {
            continue;
        }
        if let Some(class) = inventory.class_of_resource(resource) {
            served.serve(&containers, spec.init_containers.len(), resource, class);
        }
    }
    if served.requests.is_empty() {
        return None;
    }
    served.requests.sort_by(|a, b| a.name.cmp(&b.name));
    let devices = DeviceClaim { requests: Some(served.requests), ..Default::default() };
    let claim = ResourceClaim {
        metadata: metadata(pod),
        spec: ResourceClaimSpec { devices: Some(devices) },
        status: None,
    };
    Some(ExtendedClaim { claim, mappings: served.mappings })
}

fn metadata(pod: &Pod) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name().to_owned(),
        uid: pod.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    ObjectMeta {
        namespace: Some(pod.namespace().to_owned()),
        generate_name: Some(format!("{}-extended-resources-", pod.name())),
        owner_references: Some(vec![owner]),
        annotations: Some(BTreeMap::from([(CLAIM_ANNOTATION.to_owned(), "true".to_owned())])),
        ..Default::default()
    }
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
    fn serve(&mut self, containers: &[&Container], init_count: usize, resource: &str, class: &str) {
        let is_short =
            |at: usize| at < init_count && containers[at].restart_policy.as_deref() != Some("Always");
        let mut long: Vec<Option<Own>> = Vec::new();
        let mut late = Vec::new();
        for (at, container) in containers.iter().enumerate() {
            let (own, _) = if is_short(at) { (None, vec![]) } else { ask(at, container, resource, &[]) };
            if let Some(own) = &own {
                self.mappings.push(mapping(container, resource, &own.name));
            }
            long.push(own);
        }
        let mut largest: Option<Own> = None;
        let mut beyond = BTreeSet::new();
        for (at, container) in containers.iter().enumerate().filter(|(at, _)| is_short(*at)) {
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
fn ask(
    at: usize,
    container: &Container,
    resource: &str,
    usable: &[Option<Own>],
) -> (Option<Own>, Vec<String>) {
    let wanted = requests(container).get(resource).and_then(|amount| Amount::of(amount).ok()?.exactly());
    let Some(wanted) = wanted.filter(|wanted| *wanted > 0) else { return (None, Vec::new()) };
    let (mut sum, mut used) = (0, Vec::new());
    for usable in usable.iter().flatten() {
        sum += usable.count;
        used.push(usable.name.clone());
        if sum >= wanted {
            return (None, used);
        }
    }
    let place = requests(container).keys().position(|key| key == resource).unwrap_or_default();
    (Some(Own { name: format!("container-{at}-request-{place}"), count: wanted - sum }), used)
}

fn mapping(container: &Container, resource: &str, request: &str) -> ContainerExtendedResourceRequest {
    ContainerExtendedResourceRequest {
        container_name: container.name.clone(),
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
