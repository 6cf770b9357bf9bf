//! What a pod needs and which nodes may have it, as kube-scheduler would judge.
//!
//! Everything here is pure: objects in, verdicts out. No clock, no calls, no cache. What is judged, in the order in
//! which kube-scheduler asks:
//!
//! | module | question |
//! |---|---|
//! | `terms` | may a pod be on this node, by its labels, fields, taints and features? |
//! | `ports` | are its host ports free there? |
//! | `requirements`, `capacity` | how much does it need, how much has the node, what is lacking? |
//! | `divided` | does the node offer whole GPUs, or replicas of them? |
//! | `between` | do the pods around let it be there: affinity, anti-affinity, spread? |
//! | `volumes` | can its volumes be there? |
//! | `unsupported` | what does it ask for that nobody judges yet, and what is only a wish? |
//!
//! `labels` matches expressions; the others rest on it.

mod between;
mod capacity;
mod divided;
mod labels;
mod ports;
mod refusal;
mod requirements;
mod terms;
mod unsupported;
mod volumes;

pub use between::{BadSelector, Namespaces, PodRules, PodTerm, Surroundings};
pub use capacity::{Capacity, Held, Lack};
pub use divided::{DividedBy, DividedGpus};
pub(crate) use divided::{GPU, SHARED_GPU};
pub(crate) use labels::Selector;
pub use ports::{HostPort, Protocol};
pub use refusal::Refusal;
pub use requirements::{Amounts, BadAmount, Requirements};
pub(crate) use terms::means;
pub use terms::{NodeTerms, TermsPool};
pub use unsupported::{Also, SoftRule, Unsupported, fractions, gate, soft, unsupported};
pub use volumes::{Storage, VolumePlan, VolumeRules, VolumeWait};

/// Objects for the tests of this room.
#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "JSON is written where it is used")]
mod objects {
    use serde_json::{Value, json};

    use crate::api::{Node, Pod};

    /// One container, and what else the specification says.
    pub(super) fn pod(spec: Value) -> Pod {
        let mut whole = json!({"containers": [{"name": "main"}]});
        merge(&mut whole, spec);
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "default"}, "spec": whole}))
            .unwrap()
    }

    /// Called `n`, with these labels and this specification.
    pub(super) fn node(labels: Value, spec: Value) -> Node {
        let whole = json!({"metadata": {"name": "n", "labels": labels}, "spec": spec});
        serde_json::from_value(whole).unwrap()
    }

    fn merge(whole: &mut Value, more: Value) {
        if let (Some(whole), Value::Object(more)) = (whole.as_object_mut(), more) {
            whole.extend(more);
        }
    }
}
