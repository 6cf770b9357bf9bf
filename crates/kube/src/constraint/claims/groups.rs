//! Claims of upstream's groups (`PodGroup.spec.resourceClaims`, Kubernetes 1.36): what a pod calls as its group does is one
//! claim for all pods of the group, and is reserved for the group.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaimConsumerReference;
use kube::api::DynamicObject;
use serde::Deserialize;

use super::{ClaimState, Path, Source, Used};
use crate::messages::PodRef;
use crate::recognise::group_of;

/// The group of APIs that upstream's `PodGroup` is of, and its resource.
const API_GROUP: &str = "scheduling.k8s.io";
const RESOURCE: &str = "podgroups";

/// The groups that have claims.
#[derive(Default)]
pub(super) struct Groups(BTreeMap<Path, Group>);

struct Group {
    user: PodRef,
    claims: Vec<GroupClaim>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupClaim {
    name: String,
    resource_claim_name: Option<String>,
    resource_claim_template_name: Option<String>,
}

impl ClaimState {
    /// A group as it is now. What its claims are does not change.
    pub(crate) fn see_group(&mut self, object: &DynamicObject, is_gone: bool) {
        let is_upstream = |types: &kube::api::TypeMeta| {
            types.kind == "PodGroup" && group_of(&types.api_version) == API_GROUP
        };
        if !object.types.as_ref().is_some_and(is_upstream) {
            return;
        }
        let text = |text: &Option<String>| -> Arc<str> { text.as_deref().unwrap_or_default().into() };
        let metadata = &object.metadata;
        let (namespace, name, uid) = (text(&metadata.namespace), text(&metadata.name), text(&metadata.uid));
        let path = (Arc::clone(&namespace), Arc::clone(&name));
        let claims = object.data.get("spec").and_then(|spec| spec.get("resourceClaims"));
        let claims: Option<Vec<GroupClaim>> = claims.and_then(|claims| Vec::deserialize(claims).ok());
        match claims.filter(|claims| !claims.is_empty() && !is_gone) {
            Some(claims) => {
                let user = PodRef { namespace, name, uid };
                self.groups.0.insert(path, Group { user, claims });
            }
            None => drop(self.groups.0.remove(&path)),
        }
    }

    /// The group that a claim of a pod is for: the one that the pod is in, where that has a claim just as this one.
    pub(super) fn group_of(&self, namespace: &Arc<str>, used: &Used) -> Option<PodRef> {
        let name = used.group.as_ref()?;
        let group = self.groups.0.get(&(Arc::clone(namespace), Arc::clone(name)))?;
        let is_it = |claim: &GroupClaim| {
            let (named, template) =
                (claim.resource_claim_name.as_deref(), claim.resource_claim_template_name.as_deref());
            claim.name == *used.name
                && match &used.of {
                    Source::Named(object) => (named, template) == (Some(&**object), None),
                    Source::Made { template: of, .. } => (named, template) == (None, Some(&**of)),
                    Source::Extended { .. } | Source::Unknown => false,
                }
        };
        group.claims.iter().any(is_it).then(|| group.user.clone())
    }

    /// Whether some pod was given a claim.
    pub(super) fn is_given(&self, path: &Path) -> bool {
        self.given.values().flat_map(BTreeMap::values).any(|given| given.has(path))
    }
}

/// A group as a user of a claim.
pub(super) fn user(group: &PodRef) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: Some(API_GROUP.to_owned()),
        name: group.name.to_string(),
        resource: RESOURCE.to_owned(),
        uid: group.uid.to_string(),
    }
}

/// Whether a user of a claim is a group.
pub(crate) fn is_group(user: &ResourceClaimConsumerReference) -> bool {
    user.resource == RESOURCE && user.api_group.as_deref() == Some(API_GROUP)
}
