//! Metadata without who wrote which field, which is the largest part of most objects and nothing to a scheduler.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Used {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// Reads what is used and passes over the rest without keeping it.
pub(super) fn used<'de, D: Deserializer<'de>>(reader: D) -> Result<ObjectMeta, D::Error> {
    let used = Used::deserialize(reader)?;
    Ok(ObjectMeta {
        name: used.name,
        namespace: used.namespace,
        uid: used.uid,
        resource_version: used.resource_version,
        generation: used.generation,
        creation_timestamp: used.creation_timestamp,
        deletion_timestamp: used.deletion_timestamp,
        labels: used.labels,
        annotations: used.annotations,
        owner_references: used.owner_references,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use crate::api::Pod;

    #[test]
    fn who_wrote_what_is_passed_over_and_the_rest_is_kept() {
        let pod: Pod = serde_json::from_str(
            r#"{"metadata": {"name": "a", "namespace": "b", "uid": "c", "resourceVersion": "7", "labels": {"k": "v"},
                "annotations": {"x": "y"}, "creationTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["f"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}],
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}]}, "spec": {"containers": []}}"#,
        )
        .unwrap();
        assert_eq!((pod.name(), pod.namespace(), pod.uid()), ("a", "b", "c"));
        assert_eq!((pod.label("k"), pod.annotation("x")), (Some("v"), Some("y")));
        let metadata = pod.metadata;
        assert_eq!(metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(metadata.owner_references.map(|owners| owners.len()), Some(1));
        assert!(metadata.creation_timestamp.is_some() && metadata.managed_fields.is_none());
    }
}
