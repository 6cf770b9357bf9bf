//! The newest version of every object that is watched, as the events that a scheduler would observe if it began now.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::DynamicObject;

use crate::messages::{DeviceEvent, Event, Stored};

/// Which object: its sort, in the order in which sorts are observed, its namespace and its name.
type Key = (Sort, String, String);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    Node,
    Pod,
    Namespace,
    Budget,
    Volume,
    VolumeClaim,
    StorageClass,
    Driver,
    StorageNode,
    StorageCapacity,
    Attachment,
    Queue,
    Policy,
    Fabric,
    Found,
    DeviceClass,
    DeviceRule,
    DeviceTemplate,
    DeviceClaim,
    DeviceSlice,
    /// By API group and kind: the version may change while an object stays.
    Object(String, String),
    /// A kind that the API server refuses to list.
    Unreadable,
}

/// What an event says of an object.
enum Said {
    There(Key),
    Gone(Key),
    /// The object of this UID is gone; another may have its name.
    PodGone(Key, String),
    /// Nothing of an object.
    Nothing,
}

/// See the module.
#[derive(Default)]
pub(super) struct Objects(BTreeMap<Key, Event>);

impl Objects {
    /// Takes what a watch reported. Whether it is news.
    pub(super) fn observe(&mut self, event: Event) -> bool {
        match said(&event) {
            Said::There(key) => {
                self.0.insert(key, event);
                true
            }
            Said::Gone(key) => self.0.remove(&key).is_some(),
            Said::PodGone(key, uid) => {
                let is_it = matches!(self.0.get(&key), Some(Event::Pod(pod)) if uid_of(&pod.metadata) == uid);
                is_it && self.0.remove(&key).is_some()
            }
            Said::Nothing => false,
        }
    }

    /// In the order in which a scheduler lists them.
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.0.values()
    }
}

fn uid_of(metadata: &ObjectMeta) -> &str {
    metadata.uid.as_deref().unwrap_or_default()
}

fn said(event: &Event) -> Said {
    let of = |sort, name: &str, is_there| said_of(sort, "", name, is_there);
    match event {
        Event::Node(node) => of(Sort::Node, &node.name_any(), true),
        Event::NodeGone(name) => of(Sort::Node, name, false),
        Event::Pod(pod) => said_of(Sort::Pod, pod.namespace(), pod.name(), true),
        Event::PodGone { namespace, name, uid } => {
            Said::PodGone((Sort::Pod, namespace.clone(), name.clone()), uid.clone())
        }
        Event::Object(object) => said_of_object(object, true),
        Event::ObjectGone(object) => said_of_object(object, false),
        Event::Queue(queue) => of(Sort::Queue, &queue.name_any(), true),
        Event::QueueGone(name) => of(Sort::Queue, name, false),
        Event::Policy(policy) => of(Sort::Policy, "", policy.is_some()),
        Event::Fabric(fabric) => of(Sort::Fabric, "", fabric.is_some()),
        Event::Namespace { name, labels } => of(Sort::Namespace, name, labels.is_some()),
        Event::Budget { namespace, name, budget } => said_of(Sort::Budget, namespace, name, budget.is_some()),
        Event::Storage(stored) => said_of_storage(stored),
        Event::Found { node, found } => of(Sort::Found, node, found.is_some()),
        Event::Device(device) => said_of_device(device),
        Event::Unreadable { list, is_unreadable } => of(Sort::Unreadable, list, *is_unreadable),
        // Answers to calls, and this process makes none.
        Event::Bound { .. } | Event::Unprepared { .. } => Said::Nothing,
    }
}

fn said_of(sort: Sort, namespace: &str, name: &str, is_there: bool) -> Said {
    let key = (sort, namespace.to_owned(), name.to_owned());
    if is_there { Said::There(key) } else { Said::Gone(key) }
}

fn said_of_object(object: &DynamicObject, is_there: bool) -> Said {
    let (version, kind) = object.types.as_ref().map_or(("", ""), |of| (&*of.api_version, &*of.kind));
    let group = version.rsplit_once('/').map_or("", |(group, _)| group);
    let sort = Sort::Object(group.to_owned(), kind.to_owned());
    said_of(sort, &object.namespace().unwrap_or_default(), &object.name_any(), is_there)
}

/// Paths are `namespace/name`.
fn said_of_storage(stored: &Stored) -> Said {
    let (sort, path, is_there) = match stored {
        Stored::Claim(path, of) => (Sort::VolumeClaim, path, of.is_some()),
        Stored::Volume(path, of) => (Sort::Volume, path, of.is_some()),
        Stored::Class(path, of) => (Sort::StorageClass, path, of.is_some()),
        Stored::Driver(path, of) => (Sort::Driver, path, of.is_some()),
        Stored::Node(path, of) => (Sort::StorageNode, path, of.is_some()),
        Stored::Capacity(path, of) => (Sort::StorageCapacity, path, of.is_some()),
        Stored::Attachment(path, of) => (Sort::Attachment, path, of.is_some()),
    };
    said_of(sort, "", path, is_there)
}

fn said_of_device(device: &DeviceEvent) -> Said {
    let of = |sort, metadata: &ObjectMeta| {
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        said_of(sort, namespace.unwrap_or_default(), name.unwrap_or_default(), true)
    };
    match device {
        DeviceEvent::Slice(slice) => of(Sort::DeviceSlice, &slice.metadata),
        DeviceEvent::SliceGone(name) => said_of(Sort::DeviceSlice, "", name, false),
        DeviceEvent::Class(class) => of(Sort::DeviceClass, &class.metadata),
        DeviceEvent::ClassGone(name) => said_of(Sort::DeviceClass, "", name, false),
        DeviceEvent::Rule(rule) => of(Sort::DeviceRule, &rule.metadata),
        DeviceEvent::RuleGone(name) => said_of(Sort::DeviceRule, "", name, false),
        DeviceEvent::Claim(claim) => of(Sort::DeviceClaim, &claim.metadata),
        DeviceEvent::ClaimGone { namespace, name } => said_of(Sort::DeviceClaim, namespace, name, false),
        DeviceEvent::Template(template) => of(Sort::DeviceTemplate, &template.metadata),
        // An answer to a call.
        DeviceEvent::Released { .. } => Said::Nothing,
        DeviceEvent::TemplateGone { namespace, name } => {
            said_of(Sort::DeviceTemplate, namespace, name, false)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, uid: &str) -> Event {
        let pod = json!({ "metadata": { "namespace": "n", "name": name, "uid": uid },
                          "spec": { "containers": [] }, "status": {} });
        Event::Pod(Box::new(serde_json::from_value(pod).unwrap()))
    }

    fn gone(name: &str, uid: &str) -> Event {
        Event::PodGone { namespace: "n".to_owned(), name: name.to_owned(), uid: uid.to_owned() }
    }

    #[test]
    fn an_object_is_there_once_and_one_that_took_its_name_stays() {
        let mut objects = Objects::default();
        assert!(objects.observe(pod("a", "1")) && objects.observe(pod("a", "1")));
        assert_eq!(objects.events().count(), 1);
        assert!(objects.observe(pod("a", "2")));
        assert!(!objects.observe(gone("a", "1")), "another has its name");
        assert!(objects.observe(gone("a", "2")) && !objects.observe(gone("a", "2")));
        assert_eq!(objects.events().count(), 0);
    }

    #[test]
    fn nodes_come_before_pods_and_the_version_of_a_kind_is_no_part_of_an_object() {
        let mut objects = Objects::default();
        let group = |version: &str| {
            let of = json!({ "apiVersion": format!("g/{version}"), "kind": "PodGroup", "metadata": { "name": "p" } });
            Box::new(serde_json::from_value::<DynamicObject>(of).unwrap())
        };
        let node = json!({ "metadata": { "name": "z" } });
        for event in
            [Event::Object(group("v1")), pod("a", "1"), Event::Node(serde_json::from_value(node).unwrap())]
        {
            assert!(objects.observe(event));
        }
        assert!(matches!(objects.events().next(), Some(Event::Node(_))));
        assert!(objects.observe(Event::ObjectGone(group("v2"))), "it is the same object");
        assert_eq!(objects.events().count(), 2);
    }
}
