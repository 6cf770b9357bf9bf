//! What gangs would rather have, and nobody weighs: it is said, and never passed over in silence.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::gang::Lifecycle;
use crate::gang::state::Gang;
use crate::messages::{Call, GangEvent};
use crate::recognise::{GangKey, GangSpec, Source, TopologyRule};
use crate::{api, filter};

/// Fields that an event names.
const FIELDS_MAX: usize = 8;
/// Whom it was said to; then all of them are forgotten, and it may be said twice.
const TOLD_MAX: usize = 10_000;

/// The preferences of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SoftConstraint {
    fields: BTreeSet<String>,
    /// Who made the pod, or the pod itself, by its UID: all pods of one owner have the same to say.
    of: Arc<str>,
}

/// Who was told of what.
#[derive(Default)]
pub(in crate::gang) struct SoftConstraints {
    told: BTreeSet<(Arc<str>, String)>,
}

impl SoftConstraint {
    pub(in crate::gang) fn of(pod: &api::Pod) -> Option<Box<Self>> {
        let fields: BTreeSet<String> = filter::soft(pod).into_iter().map(|rule| rule.field).collect();
        let mut owners = pod.metadata.owner_references.iter().flatten();
        let owner = owners.find(|owner| owner.controller == Some(true)).map(|owner| &*owner.uid);
        let of = owner.unwrap_or_else(|| pod.uid()).into();
        (!fields.is_empty()).then(|| Box::new(Self { fields, of }))
    }
}

impl Lifecycle {
    /// Says which wishes of a gang are passed over: once, on its object or its first pod. Of pods that start by themselves
    /// the first of each owner is told.
    pub(in crate::gang) fn tell_wishes(&mut self, key: &GangKey) {
        let spec = self.spec(key).ok().flatten();
        let Some(gang) = self.gangs.get(key) else { return };
        let fields = fields(gang, spec.as_ref());
        if fields.is_empty() {
            return;
        }
        let Some(about) = self.about(gang) else { return };
        let owner = gang.pods.values().find_map(|pod| pod.known.wish.as_ref());
        let owner = owner.filter(|_| key.source == Source::Pod).map(|wish| Arc::clone(&wish.of));
        let whom = owner.unwrap_or_else(|| about.uid.as_deref().unwrap_or_default().into());
        let note = format!("passed over, as wishes that are not weighed here: {}", listed(&fields));
        if self.wishes.told.len() >= TOLD_MAX {
            self.wishes.told.clear();
        }
        if self.wishes.told.insert((whom, note.clone())) {
            self.calls.push(Call::Tell(Box::new(GangEvent {
                about,
                reason: "Ignored",
                is_warning: true,
                note,
            })));
        }
    }
}

/// Of its pods, and of the rules of its owner.
fn fields(gang: &Gang, spec: Option<&GangSpec>) -> BTreeSet<String> {
    let of_pods = gang.pods.values().filter_map(|pod| pod.known.wish.as_ref());
    let of_pods = of_pods.flat_map(|wish| wish.fields.iter().cloned());
    let of_roles = spec.into_iter().flat_map(|spec| spec.roles.iter().map(|role| &role.topology));
    let rules = spec.into_iter().map(|spec| &spec.topology).chain(of_roles);
    of_pods.chain(rules.flat_map(segments)).collect()
}

fn segments(rule: &TopologyRule) -> impl Iterator<Item = String> {
    let preferred = rule.segments.iter().filter(|segment| !segment.is_required);
    preferred.map(|segment| format!("segments of {} inside one {}", segment.size, segment.level))
}

fn listed(fields: &BTreeSet<String>) -> String {
    let named: Vec<&str> = fields.iter().take(FIELDS_MAX).map(String::as_str).collect();
    let named = named.join(", ");
    match fields.len().saturating_sub(FIELDS_MAX) {
        0 => named,
        more => format!("{named}, and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use phalanx_model::{QueueName, Timestamp};
    use serde_json::{Value, json};

    use super::*;
    use crate::gang::Options;
    use crate::messages::Event;

    const NOW: Timestamp = Timestamp(1_000);

    fn lifecycle() -> Lifecycle {
        let mut lifecycle = Lifecycle::new(Options::of_queue(QueueName::new("default").unwrap()));
        let allocatable = json!({ "cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "4" });
        let node = json!({ "metadata": { "name": "a" }, "status": { "allocatable": allocatable } });
        lifecycle.observe(NOW, Event::Node(Box::new(serde_json::from_value(node).unwrap())));
        lifecycle.begin(NOW);
        lifecycle
    }

    fn pod(name: &str, metadata: &Value, spec: &Value) -> Event {
        let mut pod = json!({
            "metadata": { "namespace": "x", "name": name, "uid": name },
            "spec": { "schedulerName": "phalanx",
                "containers": [{ "name": "c", "resources": { "limits": { "nvidia.com/gpu": "1" } } }] },
        });
        for (part, more) in [("metadata", metadata), ("spec", spec)] {
            pod[part].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        Event::Pod(Box::new(serde_json::from_value(pod).unwrap()))
    }

    /// What is said as ignored, with whom it is said of.
    fn told(lifecycle: &mut Lifecycle) -> Vec<(String, String)> {
        lifecycle.settle(NOW);
        let calls = lifecycle.calls().into_iter();
        let said = |call| match call {
            Call::Tell(tidings) if tidings.reason == "Ignored" => Some((tidings.about.name, tidings.note)),
            _ => None,
        };
        calls.filter_map(said).collect()
    }

    fn spread(count: usize) -> Value {
        let one = json!({ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway" });
        json!({ "topologySpreadConstraints": vec![one; count] })
    }

    #[test]
    fn a_gang_is_told_once_what_of_its_wishes_is_passed_over() {
        let mut lifecycle = lifecycle();
        let of_gang = json!({ "labels": {
            "pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "2",
        } });
        let near = json!({ "affinity": { "podAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
            { "weight": 1, "podAffinityTerm": { "topologyKey": "zone" } },
        ] } } });
        lifecycle.observe(NOW, pod("g-0", &of_gang, &near));
        assert_eq!(told(&mut lifecycle), [], "it is not whole yet");
        lifecycle.observe(NOW, pod("g-1", &of_gang, &spread(1)));
        let affinity = "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution";
        let note = format!(
            "passed over, as wishes that are not weighed here: {affinity}, spec.topologySpreadConstraints[0]"
        );
        assert_eq!(told(&mut lifecycle), [("g-0".to_owned(), note)]);
        lifecycle.observe(NOW, pod("g-1", &of_gang, &spread(1)));
        assert_eq!(told(&mut lifecycle), [], "it was told");
    }

    #[test]
    fn of_pods_by_themselves_the_first_of_each_owner_is_told_of_a_few_fields() {
        let mut lifecycle = lifecycle();
        let of = |owner: &str| {
            json!({ "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": true,
            }] })
        };
        for (name, owner) in [("a-0", "a"), ("a-1", "a"), ("b-0", "b")] {
            lifecycle.observe(NOW, pod(name, &of(owner), &spread(10)));
        }
        let told = told(&mut lifecycle);
        assert_eq!(told.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["a-0", "b-0"]);
        assert!(told[0].1.ends_with("spec.topologySpreadConstraints[7], and 2 more"), "{}", told[0].1);
    }

    /// Nobody said so.
    #[test]
    fn segments_that_are_only_preferred_are_named() {
        let mut lifecycle = lifecycle();
        let annotations = json!({ "annotations": {
            "kai.scheduler/segment-size": "1", "kai.scheduler/segment-topology-preferred-placement": "rack",
        }, "labels": {
            "pod-group.scheduling.sigs.k8s.io/name": "g", "pod-group.scheduling.sigs.k8s.io/min-available": "1",
        } });
        lifecycle.observe(NOW, pod("g-0", &annotations, &json!({})));
        let told = told(&mut lifecycle);
        assert_eq!(told.len(), 1);
        assert!(told[0].1.contains("segments of 1 inside one"), "{}", told[0].1);
    }
}
