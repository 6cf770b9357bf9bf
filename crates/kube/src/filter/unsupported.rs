//! What a pod asks for that nobody judges, and what is only a wish.

use std::fmt;

use k8s_openapi::api::core::v1::Volume;

use super::{Requirements, SHARED_GPU};
use crate::api::{Container, Pod};
use crate::recognise::names::GPU_FRACTIONS;

/// Which rules the caller judges beside those of the node alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Also {
    /// Affinity and spread between pods.
    pub between_pods: bool,
    /// Where volumes can be.
    pub volumes: bool,
}

/// A field that says where a pod may run and that is not judged: the pod stays pending, and its condition names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unsupported {
    /// As a path: `spec.affinity.podAffinity`.
    pub field: String,
    pub why: &'static str,
}

/// A preference: it keeps no pod from running anywhere, and nobody weighs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SoftRule {
    pub field: String,
}

/// The first of those who still hold it back.
#[must_use]
pub fn gate(pod: &Pod) -> Option<&str> {
    pod.spec.scheduling_gates.first().map(|gate| gate.name.as_str())
}

/// Everything on the pod that is not judged, in the order of its fields.
#[must_use]
pub fn unsupported(pod: &Pod, also: Also) -> Vec<Unsupported> {
    let mut found = Vec::new();
    let mut report = |field: String, why| found.push(Unsupported { field, why });
    if !also.between_pods {
        for field in rules_between_pods(pod) {
            report(field, "rules between pods are not judged");
        }
    }
    for (index, volume) in pod.spec.volumes.iter().enumerate() {
        if let Some((kind, why)) = bound_to_nodes(volume, also) {
            report(format!("spec.volumes[{index}].{kind}"), why);
        }
    }
    found
}

/// Parts of a GPU, which other schedulers give out, by annotation or as a resource that no node offers: whole devices
/// would be too much, and none too few.
#[must_use]
pub fn fractions(pod: &Pod) -> Vec<Unsupported> {
    const WHY: &str = "parts of a GPU are not given out; ask for whole ones, or leave the pod to the scheduler that shares them";
    let annotations = pod.metadata.annotations.iter().flatten().map(|(key, _)| key.as_str());
    let annotations = annotations
        .filter(|key| GPU_FRACTIONS.contains(key))
        .map(|key| format!("metadata.annotations[{key}]"));
    let containers = pod.spec.containers.iter().enumerate().flat_map(|(index, container)| {
        let resources = container.resources.as_ref();
        let limits = resources.and_then(|resources| resources.limits.as_ref()).into_iter().flatten();
        let parts = limits.map(|(key, _)| key.as_str()).filter(|key| GPU_FRACTIONS.contains(key));
        parts.map(move |key| format!("spec.containers[{index}].resources.limits[{key}]"))
    });
    let parts = annotations.chain(containers).map(|field| Unsupported { field, why: WHY });
    parts.chain(several_replicas(pod)).collect()
}

/// Several replicas of GPUs in one pod: NVIDIA's plugin does not say on how many GPUs they would be.
fn several_replicas(pod: &Pod) -> Option<Unsupported> {
    const WHY: &str = "a pod gets at most 1 replica of a GPU, and its containers request more; request 1, or whole GPUs (nvidia.com/gpu)";
    let asked = Requirements::of(pod).ok()?.amounts.extended.get(SHARED_GPU).copied()?;
    let asks = |container: &Container| {
        let resources = container.resources.as_ref();
        resources
            .is_some_and(|all| all.limits.iter().chain(&all.requests).any(|of| of.contains_key(SHARED_GPU)))
    };
    let all = [("containers", &pod.spec.containers), ("initContainers", &pod.spec.init_containers)];
    let mut found = all.into_iter().filter_map(|(list, of)| Some((list, of.iter().position(asks)?)));
    let (list, index) = found.next().filter(|_| asked > 1)?;
    Some(Unsupported { field: format!("spec.{list}[{index}].resources.limits[{SHARED_GPU}]"), why: WHY })
}

/// Preferences that are passed over.
#[must_use]
pub fn soft(pod: &Pod) -> Vec<SoftRule> {
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    let affinity = pod.spec.affinity.as_ref();
    let node = affinity.and_then(|all| all.node_affinity.as_ref());
    let node = node.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref());
    let weights = || node.into_iter().flatten().map(|term| term.weight);
    let is_lighter = weights().min() != weights().max();
    let lighter = format!("spec.affinity.nodeAffinity.{PREFERRED} of other weights than the largest");
    let lighter = is_lighter.then_some(lighter);
    let with = affinity.and_then(|all| all.pod_affinity.as_ref());
    let apart = affinity.and_then(|all| all.pod_anti_affinity.as_ref());
    let preferred = [
        (
            "podAffinity",
            with.and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref())
                .map(Vec::len),
        ),
        (
            "podAntiAffinity",
            apart
                .and_then(|it| it.preferred_during_scheduling_ignored_during_execution.as_ref())
                .map(Vec::len),
        ),
    ];
    let preferred = preferred.into_iter().filter(|(_, count)| count.is_some_and(|count| count > 0));
    let preferred = preferred.map(|(kind, _)| format!("spec.affinity.{kind}.{PREFERRED}"));
    let preferred = lighter.into_iter().chain(preferred);
    let spread = pod.spec.topology_spread_constraints.iter().enumerate();
    let spread = spread.filter(|(_, constraint)| constraint.when_unsatisfiable != "DoNotSchedule");
    let spread = spread.map(|(index, _)| format!("spec.topologySpreadConstraints[{index}]"));
    preferred.chain(spread).map(|field| SoftRule { field }).collect()
}

fn rules_between_pods(pod: &Pod) -> Vec<String> {
    let affinity = pod.spec.affinity.as_ref();
    let with = affinity.and_then(|all| all.pod_affinity.as_ref());
    let with = with.and_then(|rules| rules.required_during_scheduling_ignored_during_execution.as_ref());
    let apart = affinity.and_then(|all| all.pod_anti_affinity.as_ref());
    let apart = apart.and_then(|rules| rules.required_during_scheduling_ignored_during_execution.as_ref());
    let affinity = [("podAffinity", with), ("podAntiAffinity", apart)].into_iter();
    let affinity = affinity.filter(|(_, rules)| rules.is_some_and(|rules| !rules.is_empty()));
    let affinity = affinity
        .map(|(kind, _)| format!("spec.affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution"));
    let spread = pod.spec.topology_spread_constraints.iter().enumerate();
    let spread = spread.filter(|(_, constraint)| constraint.when_unsatisfiable == "DoNotSchedule");
    affinity.chain(spread.map(|(index, _)| format!("spec.topologySpreadConstraints[{index}]"))).collect()
}

/// Volumes that are not on every node alike. All others are made by the kubelet, or reached over the network by it.
fn bound_to_nodes(volume: &Volume, also: Also) -> Option<(&'static str, &'static str)> {
    const CLAIMS: &str = "where its volume can be is not judged";
    const DISKS: &str = "disks that pods name directly are not judged; use a claim (persistentVolumeClaim)";
    let claims = [
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
    ];
    let disks = [
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("rbd", volume.rbd.is_some()),
    ];
    let claims = claims.into_iter().filter(|_| !also.volumes).map(|(kind, is_used)| (kind, is_used, CLAIMS));
    let disks = disks.into_iter().map(|(kind, is_used)| (kind, is_used, DISKS));
    claims.chain(disks).find(|(_, is_used, _)| *is_used).map(|(kind, _, why)| (kind, why))
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::objects::pod;
    use super::*;

    fn fields(also: Also) -> Vec<String> {
        let term = json!([{"topologyKey": "zone"}]);
        let pod = pod(json!({
            "affinity": {
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term},
            },
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
            ],
            "volumes": [
                {"name": "a", "emptyDir": {}},
                {"name": "b", "persistentVolumeClaim": {"claimName": "b"}},
                {"name": "c", "gcePersistentDisk": {"pdName": "c"}},
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
        }));
        unsupported(&pod, also).into_iter().map(|one| one.field).collect()
    }

    #[test]
    fn what_is_not_judged_is_named_by_its_field_and_nothing_else_is() {
        let between = [
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
            "spec.topologySpreadConstraints[1]",
        ];
        let (claim, disk) = ("spec.volumes[1].persistentVolumeClaim", "spec.volumes[2].gcePersistentDisk");
        assert_eq!(fields(Also::default()), [between[0], between[1], claim, disk]);
        assert_eq!(fields(Also { between_pods: true, volumes: false }), [claim, disk]);
        assert_eq!(fields(Also { between_pods: true, volumes: true }), [disk]);
    }

    #[test]
    fn wishes_keep_nobody_waiting_and_are_told() {
        let wish = pod(json!({
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {}}, {"weight": 2, "preference": {}}]}},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        }));
        assert_eq!(unsupported(&wish, Also::default()), []);
        let fields: Vec<String> = soft(&wish).into_iter().map(|rule| rule.field).collect();
        assert_eq!(
            fields,
            [
                "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution of other weights than the largest",
                "spec.topologySpreadConstraints[0]"
            ]
        );
    }

    /// Such a pod was counted as one without devices, and started.
    #[test]
    fn parts_of_a_gpu_are_named_by_annotation_and_by_resource() {
        let mut shares = pod(json!({}));
        let told = [("gpu-fraction", "0.5"), ("team", "a")];
        let told = told.map(|(key, value)| (key.to_owned(), value.to_owned()));
        shares.metadata.annotations = Some(told.into());
        let fields = |pod: &Pod| fractions(pod).into_iter().map(|one| one.field).collect::<Vec<_>>();
        assert_eq!(fields(&shares), ["metadata.annotations[gpu-fraction]"]);
        let limits = json!({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"});
        let limited = pod(json!({"containers": [{"name": "main", "resources": {"limits": limits}}]}));
        assert_eq!(fields(&limited), ["spec.containers[0].resources.limits[nvidia.com/gpumem]"]);
        assert_eq!(fractions(&pod(json!({}))), []);
        let replicas = |count: &str| {
            let limits = json!({"nvidia.com/gpu.shared": count});
            pod(json!({"containers": [{"name": "main", "resources": {"limits": limits}}]}))
        };
        assert_eq!(fractions(&replicas("1")), []);
        assert_eq!(fields(&replicas("2")), ["spec.containers[0].resources.limits[nvidia.com/gpu.shared]"]);
    }

    #[test]
    fn a_gate_holds_a_pod_back() {
        assert_eq!(gate(&pod(json!({"schedulingGates": [{"name": "quota"}]}))), Some("quota"));
        assert_eq!(gate(&pod(json!({}))), None);
    }
}
