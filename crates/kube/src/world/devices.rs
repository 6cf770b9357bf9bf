//! Watches of what bears on claims for devices, where the API server serves it.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::resource::v1beta2::DeviceTaintRule;
use kube::discovery::ApiGroup;
use kube::{Api, Client, Resource, ResourceExt};

use super::watch::Convert;
use crate::messages::{DeviceEvent, Event};

pub(super) const GROUP: &str = "resource.k8s.io";

/// The kinds of the group that are watched, in the versions that are read here.
const KINDS: [(&str, &str); 5] = [
    ("v1", "ResourceSlice"),
    ("v1", "DeviceClass"),
    ("v1", "ResourceClaim"),
    ("v1", "ResourceClaimTemplate"),
    ("v1beta2", "DeviceTaintRule"),
];

/// Those of them that a group serves.
pub(super) fn served(group: &ApiGroup) -> BTreeSet<&'static str> {
    if group.name() != GROUP {
        return BTreeSet::new();
    }
    let is_there = |(version, kind): &&(&str, &str)| {
        group.versioned_resources(version).iter().any(|(resource, _)| resource.kind == *kind)
    };
    KINDS.iter().filter(is_there).map(|(_, kind)| *kind).collect()
}

pub(super) fn slices(client: &Client) -> (Api<ResourceSlice>, Convert<ResourceSlice>) {
    all(client, |slice| DeviceEvent::Slice(Arc::new(slice)), |_, name| DeviceEvent::SliceGone(name))
}

pub(super) fn classes(client: &Client) -> (Api<DeviceClass>, Convert<DeviceClass>) {
    all(client, |class| DeviceEvent::Class(Arc::new(class)), |_, name| DeviceEvent::ClassGone(name))
}

pub(super) fn rules(client: &Client) -> (Api<DeviceTaintRule>, Convert<DeviceTaintRule>) {
    all(client, |rule| DeviceEvent::Rule(Box::new(rule)), |_, name| DeviceEvent::RuleGone(name))
}

pub(super) fn claims(client: &Client) -> (Api<ResourceClaim>, Convert<ResourceClaim>) {
    all(
        client,
        |claim| DeviceEvent::Claim(Box::new(claim)),
        |namespace, name| DeviceEvent::ClaimGone { namespace, name },
    )
}

pub(super) fn templates(client: &Client) -> (Api<ResourceClaimTemplate>, Convert<ResourceClaimTemplate>) {
    all(
        client,
        |template| DeviceEvent::Template(Box::new(template)),
        |namespace, name| DeviceEvent::TemplateGone { namespace, name },
    )
}

/// All objects of a kind, without who wrote which field.
fn all<K>(
    client: &Client,
    there: impl Fn(K) -> DeviceEvent + Send + Sync + 'static,
    gone: impl Fn(String, String) -> DeviceEvent + Send + Sync + 'static,
) -> (Api<K>, Convert<K>)
where
    K: Resource<DynamicType = ()> + ResourceExt,
{
    let convert = Convert::new(
        move |mut object: K| {
            object.managed_fields_mut().clear();
            Event::Device(there(object))
        },
        move |(namespace, name)| Event::Device(gone(namespace.clone(), name.clone())),
    );
    (Api::all(client.clone()), convert)
}
