//! Classes of priority by name: upstream's, and those that Kueue has for workloads.

use std::collections::BTreeMap;

use kube::api::DynamicObject;

/// What an admission plugin of the API server wrote from the priority class of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Priority {
    pub(crate) value: i32,
    /// It evicts nobody: `preemptionPolicy: Never`.
    pub(crate) is_patient: bool,
}

/// The highest priority that users may define, upstream's `HighestUserDefinablePriority`: what is above it is the system's.
const USERS_MAX: i32 = 1_000_000_000;

/// What names of classes mean here.
#[derive(Default)]
pub(crate) struct Priorities {
    of_pods: BTreeMap<String, Priority>,
    of_workloads: BTreeMap<String, Priority>,
    is_new: bool,
}

impl Priorities {
    /// A class as it is now. Both kinds have their fields beside `metadata`.
    pub(crate) fn see(&mut self, kind: &str, object: &DynamicObject, is_gone: bool) {
        let classes = if kind == "PriorityClass" { &mut self.of_pods } else { &mut self.of_workloads };
        let name = object.metadata.name.clone().unwrap_or_default();
        let value = object.data.get("value").and_then(serde_json::Value::as_i64).unwrap_or(0);
        let policy = object.data.get("preemptionPolicy").and_then(serde_json::Value::as_str);
        // The API server keeps them within what fits.
        let value = i32::try_from(value).unwrap_or(if value < 0 { i32::MIN } else { i32::MAX });
        let priority = Priority { value, is_patient: policy == Some("Never") };
        self.is_new = true;
        if is_gone {
            classes.remove(&name);
        } else {
            classes.insert(name, priority);
        }
    }

    /// Whether classes came since this was asked last.
    pub(crate) const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.is_new, false)
    }

    /// What a name in a label or a group means: a class of pods, and otherwise one of Kueue's. Quotas do not see such names, so
    /// none gives a priority of the system that is above the pods' own.
    pub(crate) fn of(&self, name: &str, own: Priority) -> Result<Priority, String> {
        let known = self.of_pods.get(name).or_else(|| self.of_workloads.get(name));
        match known {
            Some(priority) if priority.value > USERS_MAX.max(own.value) => Err(format!(
                "the class {name} is the system's; name it in `spec.priorityClassName` of the pods, where the API server \
                 judges who may"
            )),
            Some(priority) => Ok(*priority),
            None => Err(format!(
                "there is no PriorityClass or WorkloadPriorityClass {name}; create it, or leave out the name"
            )),
        }
    }
}
