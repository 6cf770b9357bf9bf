//! What the API server has to allow: every call that is made, why, and the RBAC objects that follow.
//!
//! A new call belongs into this table. The manifests below `deploy/` are written from it, and a test on a real control
//! plane runs the scheduler with these rights alone and looks into the audit log for what was denied and for what
//! nobody needed.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::cluster::kinds::CLUSTER_KINDS;
use crate::recognise::{KINDS, suspendable};

/// Verbs on resources of one API group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// Empty for the core.
    pub group: &'static str,
    /// With its subresource: `pods/binding`.
    pub resources: Vec<&'static str>,
    /// As in RBAC.
    pub verbs: &'static [&'static str],
    /// Only on objects of these names; on all where there is none.
    pub names: Vec<String>,
    pub why: &'static str,
}

const WATCH: &[&str] = &["list", "watch"];

fn right(
    group: &'static str,
    resources: impl Into<Vec<&'static str>>,
    verbs: &'static [&'static str],
    why: &'static str,
) -> Right {
    Right { group, resources: resources.into(), verbs, names: Vec::new(), why }
}

/// What is allowed in the whole cluster.
#[must_use]
pub fn of_cluster() -> Vec<Right> {
    let mut rights = vec![
        right("", ["namespaces", "nodes", "pods"], WATCH, "what there is, and who uses it"),
        right("policy", ["poddisruptionbudgets"], WATCH, "which gangs may be disrupted"),
        right("", ["persistentvolumeclaims", "persistentvolumes"], WATCH, "where the volumes of pods are"),
        right(
            "storage.k8s.io",
            ["csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments"],
            WATCH,
            "where volumes can be made, and how many a node can have",
        ),
        right(
            "",
            ["persistentvolumeclaims", "persistentvolumes"],
            &["patch"],
            "which volume a claim gets, and on which node one is made",
        ),
        right(
            crate::crd::GROUP,
            ["fabrics", "nodetopologies", "queues", "sharepolicies"],
            WATCH,
            "how the cluster is shared and laid out",
        ),
        right(crate::crd::GROUP, ["fabrics/status"], &["patch"], "what was made of the fabric"),
        right(crate::crd::GROUP, ["queues/status"], &["patch"], "how a queue stands"),
        right("events.k8s.io", ["events"], &["create"], "what happened to a gang"),
        right(
            "",
            ["pods"],
            &["get"],
            "whether a binding that got no clear answer was made; what pods are that need nodes",
        ),
        right("", ["pods"], &["delete"], "pods of a gang that could not start whole, or whose time is over"),
        right("", ["pods/binding"], &["create"], "where a pod runs, with its rank and devices"),
        right("", ["pods/eviction"], &["create"], "pods that make way, as disruption budgets allow"),
        right(
            "",
            ["pods/status"],
            &["patch"],
            "why a pod waits: the condition PodScheduled; which claim was made for it, which nodes were asked for, by when to save its work",
        ),
    ];
    rights.extend(of_devices());
    let named = "what objects name: classes of priority, domains of nodes";
    rights.extend(CLUSTER_KINDS.iter().map(|(group, _, plural)| right(group, [*plural], WATCH, named)));
    rights.extend(of_others());
    let by_group = |all: &mut dyn Iterator<Item = (&'static str, &'static str)>| {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (group, plural) in all {
            groups.entry(group).or_default().push(plural);
        }
        groups
    };
    let says = KINDS.iter().map(|kind| (kind.group, kind.plural));
    let owns = suspendable().filter(|of| !says.clone().any(|says| says == *of));
    let watched = by_group(&mut says.clone().chain(owns));
    rights.extend(
        watched.into_iter().map(|(group, plurals)| right(group, plurals, WATCH, "which pods start together")),
    );
    let suspended = by_group(&mut suspendable());
    rights.extend(suspended.into_iter().map(|(group, plurals)| {
        right(
            group,
            plurals,
            &["get", "patch"],
            "to suspend what makes way or could not start whole, and to let it go on unless its user wants otherwise",
        )
    }));
    rights
}

/// Devices, and claims for them.
fn of_devices() -> Vec<Right> {
    vec![
        right(
            "resource.k8s.io",
            [
                "deviceclasses",
                "devicetaintrules",
                "resourceclaims",
                "resourceclaimtemplates",
                "resourceslices",
            ],
            WATCH,
            "devices, and claims for them",
        ),
        right(
            "resource.k8s.io",
            ["resourceclaims"],
            &["get", "patch"],
            "claims that somebody else changed; their protection while they have devices",
        ),
        right(
            "resource.k8s.io",
            ["resourceclaims"],
            &["create", "delete"],
            "claims for pods that ask for devices as extended resources",
        ),
        right(
            "resource.k8s.io",
            ["resourceclaims/binding", "resourceclaims/status"],
            &["patch"],
            "the devices of a claim, and the pods that it is for",
        ),
    ]
}

/// What is told to the controllers of others: of groups, and of nodes.
fn of_others() -> Vec<Right> {
    let asks = "nodes for whole gangs, with --provisioning-class";
    vec![
        right("scheduling.k8s.io", ["podgroups/status"], &["patch"], "whether a group is scheduled"),
        right(
            "scheduling.volcano.sh",
            ["podgroups", "podgroups/status"],
            &["patch"],
            "the phase of a group, where status is a part of its own and where it is not",
        ),
        right("batch.volcano.sh", ["jobs"], &["get"], "whose the pods of a group will be"),
        right("autoscaling.x-k8s.io", ["provisioningrequests"], &["list", "create", "delete"], asks),
        right("", ["podtemplates"], &["create", "delete"], asks),
    ]
}

/// What is allowed in the namespace of the lease.
#[must_use]
pub fn of_lease(lease: &str) -> Vec<Right> {
    let leases = |verbs, why| right("coordination.k8s.io", ["leases"], verbs, why);
    vec![
        // RBAC cannot bind a creation to a name.
        leases(&["create"], "the first leader makes the lease"),
        Right { names: vec![lease.to_owned()], ..leases(&["get", "update"], "one of several decides") },
    ]
}

/// What a server may do, which only reads: all that a scheduler watches, and reviews of those who ask.
#[must_use]
pub fn of_server() -> Vec<Right> {
    let reads = of_cluster().into_iter().filter(|right| right.verbs == WATCH);
    let create: &[&str] = &["create"];
    let reviews = [
        right("authentication.k8s.io", ["tokenreviews"], create, "whose token a request has"),
        right("authorization.k8s.io", ["subjectaccessreviews"], create, "what its user may see"),
    ];
    reads.chain(reviews).collect()
}

/// What the agent of a node may do.
#[must_use]
pub fn of_node() -> Vec<Right> {
    vec![
        right("", ["nodes"], &["get"], "whose machine it is, and what the kubelet counts there"),
        right(crate::crd::GROUP, ["nodetopologies"], &["get", "create", "patch"], "what stands in the node"),
        right(crate::crd::GROUP, ["nodetopologies"], WATCH, "what operators ask of the agent of a node"),
    ]
}

/// What it may do beside, where it hands out devices. RBAC knows no "of this node".
#[must_use]
pub fn of_device_plugin() -> Vec<Right> {
    vec![
        right("", ["pods"], WATCH, "which devices were chosen for the pods of the node"),
        // Whoever writes the status may write annotations, and not what a pod runs.
        right("", ["pods/status"], &["patch"], "which devices a pod has, where the kubelet gave others"),
    ]
}

/// What the RBAC objects are called, and for whom they are.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    pub namespace: &'a str,
    /// Of the roles and their bindings.
    pub role: &'a str,
    pub service_account: &'a str,
    pub lease: &'a str,
    pub lease_namespace: &'a str,
    /// Lines below `labels`, each with its indent; may be empty.
    pub labels: &'a str,
}

/// The first line of files with these objects.
pub const HEADER: &str = "# Written from crates/kube/src/rights.rs; a test says when it is stale.\n";

/// The roles of the scheduler and their bindings, as YAML.
#[must_use]
pub fn manifest(names: &Names<'_>) -> String {
    let mut text = HEADER.to_owned() + &cluster_role(names, &of_cluster());
    text.push_str("---\n");
    object(&mut text, names, "Role", Some(names.lease_namespace));
    rules(&mut text, &of_lease(names.lease));
    text.push_str("---\n");
    object(&mut text, names, "RoleBinding", Some(names.lease_namespace));
    binding(&mut text, names, "Role");
    text
}

/// A role for the whole cluster and its binding, as YAML.
#[must_use]
pub fn cluster_role(names: &Names<'_>, rights: &[Right]) -> String {
    let mut text = String::new();
    object(&mut text, names, "ClusterRole", None);
    rules(&mut text, rights);
    text.push_str("---\n");
    object(&mut text, names, "ClusterRoleBinding", None);
    binding(&mut text, names, "ClusterRole");
    text
}

fn object(text: &mut String, names: &Names<'_>, kind: &str, namespace: Option<&str>) {
    let Names { role, labels, .. } = names;
    let _ =
        write!(text, "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {role}\n");
    if let Some(namespace) = namespace {
        let _ = writeln!(text, "  namespace: {namespace}");
    }
    let _ = writeln!(text, "  labels:\n{labels}");
}

fn binding(text: &mut String, names: &Names<'_>, kind: &str) {
    let Names { role, service_account, namespace, .. } = names;
    let _ = write!(
        text,
        "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {role}\n\
         subjects:\n  - kind: ServiceAccount\n    name: {service_account}\n    namespace: {namespace}\n"
    );
}

fn rules(text: &mut String, rights: &[Right]) {
    text.push_str("rules:\n");
    for right in rights {
        let Right { group, resources, verbs, names, why } = right;
        let _ = write!(
            text,
            "  # {why}\n  - apiGroups: [\"{group}\"]\n    resources: [{}]\n",
            resources.join(", ")
        );
        if !names.is_empty() {
            let _ = writeln!(text, "    resourceNames: [{}]", names.join(", "));
        }
        let _ = writeln!(text, "    verbs: [{}]", verbs.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::recognise::Source;

    const LABELS: &str = "    app.kubernetes.io/name: phalanx\n    app.kubernetes.io/component: scheduler";

    /// Compares with a file below `deploy`; `UPDATE=1` writes it.
    fn compare(file: &str, text: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == text, "{} is stale; UPDATE=1 writes it anew:\n{text}", path.display());
    }

    #[test]
    fn the_roles_below_deploy_are_those_of_the_table() {
        let base = Names {
            namespace: "phalanx-system",
            role: "phalanx-scheduler",
            service_account: "phalanx-scheduler",
            lease: "phalanx-scheduler",
            lease_namespace: "phalanx-system",
            labels: LABELS,
        };
        compare("base/rbac.yaml", &manifest(&base));
        let chart = Names {
            namespace: "{{ .Release.Namespace }}",
            role: "{{ include \"phalanx.scheduler\" . }}",
            service_account: "{{ include \"phalanx.serviceAccount\" . }}",
            lease: "{{ .Values.lease.name }}",
            lease_namespace: "{{ .Release.Namespace }}",
            labels: "    {{- include \"phalanx.labels\" . | nindent 4 }}",
        };
        compare("chart/phalanx/templates/rbac.yaml", &manifest(&chart));
    }

    #[test]
    fn the_roles_of_the_agent_are_those_of_the_table() {
        let labels = LABELS.replace("component: scheduler", "component: node");
        let base = Names {
            namespace: "phalanx-system",
            role: "phalanx-node",
            service_account: "phalanx-node",
            lease: "",
            lease_namespace: "",
            labels: &labels,
        };
        compare("base/node_rbac.yaml", &(HEADER.to_owned() + &cluster_role(&base, &of_node())));
        let labels = LABELS.replace("component: scheduler", "component: device-plugin");
        let (namespace, role) = ("phalanx-device-plugin", "phalanx-device-plugin");
        let plugin = Names { namespace, role, labels: &labels, ..base };
        let both: Vec<Right> = of_node().into_iter().chain(of_device_plugin()).collect();
        compare("device-plugin/rbac.yaml", &(HEADER.to_owned() + &cluster_role(&plugin, &both)));
        let chart = Names {
            namespace: "{{ .Release.Namespace }}",
            role: "{{ include \"phalanx.node\" . }}",
            service_account: "{{ include \"phalanx.node\" . }}",
            labels: "    {{- include \"phalanx.nodeLabels\" . | nindent 4 }}",
            ..base
        };
        let role = "{{ include \"phalanx.node\" . }}-devices";
        let text = format!(
            "{HEADER}{{{{- if .Values.nodeAgent.enabled }}}}\n{}{{{{- if .Values.nodeAgent.devicePlugin }}}}\n---\n{}{{{{- end }}}}\n{{{{- end }}}}\n",
            cluster_role(&chart, &of_node()),
            cluster_role(&Names { role, ..chart }, &of_device_plugin()),
        );
        compare("chart/phalanx/templates/node_rbac.yaml", &text);
    }

    #[test]
    fn the_role_of_the_server_is_that_of_the_table_and_changes_nothing() {
        let labels = LABELS.replace("component: scheduler", "component: server");
        let base = Names {
            namespace: "phalanx-system",
            role: "phalanx-server",
            service_account: "phalanx-server",
            lease: "",
            lease_namespace: "",
            labels: &labels,
        };
        compare("server/rbac.yaml", &(HEADER.to_owned() + &cluster_role(&base, &of_server())));
        let chart = Names {
            namespace: "{{ .Release.Namespace }}",
            role: "{{ include \"phalanx.server\" . }}",
            service_account: "{{ include \"phalanx.server\" . }}",
            labels: "    {{- include \"phalanx.serverLabels\" . | nindent 4 }}",
            ..base
        };
        let text = format!(
            "{HEADER}{{{{- if .Values.server.enabled }}}}\n{}{{{{- end }}}}\n",
            cluster_role(&chart, &of_server())
        );
        compare("chart/phalanx/templates/server_rbac.yaml", &text);
        for right in of_server() {
            let is_review = right.resources.iter().all(|of| of.ends_with("reviews"));
            let may = if is_review { &["create"][..] } else { WATCH };
            assert_eq!(right.verbs, may, "{right:?}");
        }
    }

    #[test]
    fn nobody_reads_secrets_and_nothing_is_allowed_wholesale() {
        for right in of_cluster()
            .into_iter()
            .chain(of_lease("lease"))
            .chain(of_node())
            .chain(of_device_plugin())
            .chain(of_server())
        {
            assert!(
                !right.resources.iter().any(|one| one.contains("secrets") || one.contains('*')),
                "{right:?}"
            );
            assert!(!right.verbs.contains(&"*") && !right.group.contains('*'), "{right:?}");
        }
    }

    #[test]
    fn each_kind_of_the_table_is_known_by_its_own_group() {
        for kind in KINDS {
            assert_eq!(Source::of_kind(kind.group, kind.kind), Some(kind.source));
        }
        assert_eq!(Source::of_kind("batch", "CronJob"), None);
    }
}
