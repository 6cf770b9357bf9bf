//! Kinds of others, served as their releases do and without their controllers: those are played.

use serde_json::json;

use super::{Cluster, DEFINITIONS};

/// Has a kind served whose objects are in namespaces.
pub(crate) fn define(cluster: &Cluster, group: &str, version: &str, kind: &str, plural: &str) {
    define_in(cluster, "Namespaced", [group, version, kind, plural]);
}

/// The same of the cluster as a whole.
pub(crate) fn define_of_cluster(cluster: &Cluster, group: &str, version: &str, kind: &str, plural: &str) {
    define_in(cluster, "Cluster", [group, version, kind, plural]);
}

/// The status is a part of its own.
fn define_in(cluster: &Cluster, scope: &str, [group, version, kind, plural]: [&str; 4]) {
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let approved = json!({ "api-approved.kubernetes.io": "unapproved, for a test" });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}"), "annotations": approved },
        "spec": {
            "group": group, "scope": scope,
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
            "versions": [{ "name": version, "served": true, "storage": true, "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": schema } }],
        },
    });
    cluster.create(DEFINITIONS, &definition);
    cluster.until(plural, |cluster| cluster.api().get(&format!("/apis/{group}/{version}/{plural}")).ok());
}
