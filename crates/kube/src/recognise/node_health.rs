//! Which conditions and labels say that a node is broken: whoever watches over the hardware writes them, and new pods
//! stay away, as from a cordoned node.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::api::Node;

/// Conditions that last, by those who write them, with the status that means trouble. Those that come and go by
/// themselves, such as `FrequentKubeletRestart`, are not among them.
const CONDITIONS: [(&str, &str); 17] = [
    // node-problem-detector (kubernetes/node-problem-detector, `config/`), as also GKE and OpenShift run it.
    ("KernelDeadlock", "True"),
    ("ReadonlyFilesystem", "True"),
    ("CorruptDockerOverlay2", "True"),
    ("KubeletUnhealthy", "True"),
    ("ContainerRuntimeUnhealthy", "True"),
    // The same in AKS ("Node Problem Detector in AKS nodes").
    ("FilesystemCorruptionProblem", "True"),
    ("KubeletProblem", "True"),
    ("ContainerRuntimeProblem", "True"),
    ("GPUMissing", "True"),
    ("NVLinkStatusInactive", "True"),
    ("XIDErrors", "True"),
    ("IBLinkFlapping", "True"),
    // EKS node monitoring agent ("Detect node health issues").
    ("AcceleratedHardwareReady", "False"),
    ("ContainerRuntimeReady", "False"),
    ("KernelReady", "False"),
    ("NetworkingReady", "False"),
    ("StorageReady", "False"),
];

/// What says of a node that it is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenSigns {
    signs: BTreeSet<BrokenSign>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BrokenSign {
    Condition { name: String, status: String },
    Label { key: String, value: String },
}

impl Default for BrokenSigns {
    /// The conditions of node-problem-detector and of the agents of AKS and EKS.
    fn default() -> Self {
        let sign = |(name, status): (&str, &str)| BrokenSign::Condition {
            name: name.to_owned(),
            status: status.to_owned(),
        };
        Self { signs: CONDITIONS.into_iter().map(sign).collect() }
    }
}

impl FromIterator<BrokenSign> for BrokenSigns {
    fn from_iter<T: IntoIterator<Item = BrokenSign>>(signs: T) -> Self {
        Self { signs: signs.into_iter().collect() }
    }
}

impl FromStr for BrokenSign {
    type Err = String;

    /// `GPUMissing=True` is a condition with its status, `label:example.com/gpu-health=bad` a label with its value.
    fn from_str(text: &str) -> Result<Self, String> {
        let wanted =
            "write a condition as NAME=STATUS, such as GPUMissing=True, or a label as label:KEY=VALUE";
        let (is_label, rest) = text.strip_prefix("label:").map_or((false, text), |rest| (true, rest));
        let (name, value) = rest.split_once('=').ok_or_else(|| format!("{text:?} has no '=': {wanted}"))?;
        if name.is_empty() || (value.is_empty() && !is_label) {
            return Err(format!("{text:?} lacks a part: {wanted}"));
        }
        let (name, value) = (name.to_owned(), value.to_owned());
        Ok(if is_label { Self::Label { key: name, value } } else { Self::Condition { name, status: value } })
    }
}

impl BrokenSigns {
    /// The first sign that a node shows, in words.
    #[must_use]
    pub fn of(&self, node: &Node) -> Option<Arc<str>> {
        let sign = self.signs.iter().find(|sign| sign.is_shown_by(node))?;
        Some(sign.to_string().into())
    }
}

impl BrokenSign {
    fn is_shown_by(&self, node: &Node) -> bool {
        match self {
            Self::Condition { name, status } => {
                node.status.conditions.iter().any(|one| one.type_ == *name && one.status == *status)
            }
            Self::Label { key, value } => node.label(key) == Some(value),
        }
    }
}

impl fmt::Display for BrokenSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Condition { name, status } => write!(f, "condition {name}={status}"),
            Self::Label { key, value } => write!(f, "label {key}={value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(labels: &Value, condition: &str, status: &str) -> Node {
        let conditions =
            json!([{ "type": "Ready", "status": "True" }, { "type": condition, "status": status }]);
        serde_json::from_value(json!({ "metadata": { "name": "a", "labels": labels },
            "status": { "conditions": conditions } }))
        .unwrap()
    }

    #[test]
    fn conditions_of_detectors_are_signs_with_the_status_that_means_trouble() {
        let signs = BrokenSigns::default();
        for (condition, status, is_broken) in [
            ("KernelDeadlock", "True", true),
            ("KernelDeadlock", "False", false),
            ("GPUMissing", "True", true),
            ("AcceleratedHardwareReady", "False", true),
            ("AcceleratedHardwareReady", "True", false),
            ("AcceleratedHardwareReady", "Unknown", false),
            ("FrequentKubeletRestart", "True", false),
        ] {
            let sign = signs.of(&node(&json!({}), condition, status));
            assert_eq!(sign.is_some(), is_broken, "{condition}={status}: {sign:?}");
        }
    }

    #[test]
    fn an_operator_names_conditions_and_labels_of_their_own() {
        let signs: BrokenSigns = ["Melting=True", "label:nvidia.com/gpu.health=bad"]
            .iter()
            .map(|sign| sign.parse().unwrap())
            .collect();
        let sign = |node: &Node| signs.of(node).map(|sign| sign.to_string());
        assert_eq!(sign(&node(&json!({}), "Melting", "True")).as_deref(), Some("condition Melting=True"));
        let labels = json!({ "nvidia.com/gpu.health": "bad" });
        assert_eq!(sign(&node(&labels, "X", "True")).as_deref(), Some("label nvidia.com/gpu.health=bad"));
        // Theirs are all.
        assert_eq!(sign(&node(&json!({}), "KernelDeadlock", "True")), None);
        for bad in ["Melting", "=True", "Melting=", "label:key"] {
            let why = bad.parse::<BrokenSign>().unwrap_err();
            assert!(why.contains(bad) && why.contains("GPUMissing=True"), "{why}");
        }
    }
}
