//! GPUs that a node does not offer whole: NVIDIA's device plugin advertises each several times (time-slicing, MPS), or
//! advertises the slices of GPUs that MIG divides into equal ones (`mig.strategy=single`).
//!
//! Labels of GPU feature discovery say so. One unit of the resource is a replica then, and not a GPU; which GPU it is of, the
//! plugin decides when the container starts. Labels that do not agree are a problem to report, and never make more of a node
//! than its kubelet counts.

use std::fmt;

use super::{Refusal, Requirements};
use crate::api::Node;
use crate::quantity::Amount;

/// What a unit is called where the plugin keeps the name of whole GPUs, ...
pub(crate) const GPU: &str = "nvidia.com/gpu";
/// ... and where it renames replicas (`renameByDefault`).
pub(crate) const SHARED_GPU: &str = "nvidia.com/gpu.shared";

const COUNT: &str = "nvidia.com/gpu.count";
const REPLICAS: &str = "nvidia.com/gpu.replicas";
const STRATEGY: &str = "nvidia.com/gpu.sharing-strategy";
const PRODUCT: &str = "nvidia.com/gpu.product";
const MIG_STRATEGY: &str = "nvidia.com/mig.strategy";
/// Between the product and the profile of its slices, ...
const MIG: &str = "-MIG-";
/// ... and behind both where replicas keep the name of whole GPUs.
const SHARED: &str = "-SHARED";

/// The most text of a label that a message repeats.
const SHOWN_MAX: usize = 64;

/// How a node divides its GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DividedGpus {
    /// Real GPUs. Of MIG slices it is known how many there are, and these are the fewest GPUs that have so many.
    pub gpus: u32,
    /// Replicas of each: at least 1.
    pub replicas: u32,
    /// Replicas that the kubelet counts, those that do not work among them.
    pub total: u64,
    pub by: DividedBy,
    /// What pods request one as: `nvidia.com/gpu` or `nvidia.com/gpu.shared`.
    pub resource: &'static str,
    /// The label, or the resource, that says so, and its value.
    pub sign: (&'static str, Box<str>),
    /// What is wrong with the labels, in one clause.
    pub problem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DividedBy {
    /// As the label says it: `time-slicing`, `mps`.
    Sharing(Box<str>),
    /// The profile of the slices: `1g.10gb`.
    Mig(Box<str>),
}

impl DividedGpus {
    /// `None` if the node offers whole GPUs, or none.
    #[must_use]
    pub fn of(node: &Node) -> Option<Self> {
        let (plain, renamed) = (amount(node, GPU), amount(node, SHARED_GPU));
        let product = node.label(PRODUCT).unwrap_or_default();
        let profile = (node.label(MIG_STRATEGY) == Some("single"))
            .then(|| Some(product.split_once(MIG)?.1.trim_end_matches(SHARED)))
            .flatten();
        let replicas = node.label(REPLICAS);
        let several = number(replicas).filter(|count| *count > 1);
        let strategy = node.label(STRATEGY).filter(|strategy| *strategy != "none");
        let (resource, total) = if renamed > 0 { (SHARED_GPU, renamed) } else { (GPU, plain) };
        let sign = match (several, strategy) {
            (Some(_), _) => (REPLICAS, replicas.unwrap_or_default().into()),
            (None, Some(strategy)) => (STRATEGY, shown(strategy)),
            (None, None) if product.ends_with(SHARED) || profile.is_some() => (PRODUCT, shown(product)),
            (None, None) if renamed > 0 => (SHARED_GPU, renamed.to_string().into()),
            (None, None) => return None,
        };
        if total == 0 {
            return None;
        }
        let both = (plain > 0 && renamed > 0).then(|| {
            format!("the node offers {GPU} and {SHARED_GPU} at once; pods get only {SHARED_GPU} there")
        });
        let of = |(gpus, replicas): (u64, u64), by, problem: Option<String>| Self {
            gpus: u32::try_from(gpus).unwrap_or(u32::MAX),
            replicas: u32::try_from(replicas).unwrap_or(u32::MAX),
            total,
            by,
            resource,
            sign,
            problem: both.or(problem),
        };
        if let Some(profile) = profile {
            let Some(slices) = slices_of(product, profile) else {
                let problem = format!(
                    "{PRODUCT}={}: MIG profile {} is unknown; its slices count as one GPU",
                    shown(product),
                    shown(profile)
                );
                return Some(of(shape(total, Some(1), None), DividedBy::Mig(shown(profile)), Some(problem)));
            };
            let size = shape(total, None, Some(slices.saturating_mul(several.unwrap_or(1))));
            return Some(of(size, DividedBy::Mig(shown(profile)), None));
        }
        let count = number(node.label(COUNT)).filter(|count| *count > 0);
        let said = |key: &str| match node.label(key) {
            Some(value) => format!("{key}={}", shown(value)),
            None => format!("no label {key}"),
        };
        let problem = match (count, several) {
            (Some(gpus), Some(each)) if gpus.saturating_mul(each) == total => None,
            (Some(_), Some(_)) => Some(format!(
                "{}, {} and {resource}={total} contradict each other",
                said(COUNT),
                said(REPLICAS)
            )),
            (Some(gpus), None) if total.is_multiple_of(gpus) && total > gpus => {
                Some(format!("{}: replicas of each GPU are {resource} divided by {COUNT}", said(REPLICAS)))
            }
            (Some(_), None) => {
                Some(format!("{}: {resource}={total} shared by {}", said(REPLICAS), said(COUNT)))
            }
            (None, Some(_)) => Some(format!("{}: GPUs are {resource} divided by {REPLICAS}", said(COUNT))),
            (None, None) => {
                Some(format!("{}, {}: all {resource} count as one GPU", said(COUNT), said(REPLICAS)))
            }
        };
        let by = DividedBy::Sharing(strategy.map_or_else(|| "shared".into(), shown));
        Some(of(shape(total, count.or(several.is_none().then_some(1)), several), by, problem))
    }

    /// Whether pods request its replicas by the name of whole GPUs.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.resource == GPU
    }

    /// Whether MIG divides the GPUs: traffic between slices does not use NVLink.
    #[must_use]
    pub const fn is_mig(&self) -> bool {
        matches!(self.by, DividedBy::Mig(_))
    }

    /// # Errors
    /// If the pod requests several units: the plugin does not say on how many GPUs they would be.
    pub fn admits(&self, pod: &Requirements) -> Result<(), Refusal> {
        let asked = pod.amounts.extended.get(self.resource).copied().unwrap_or(0);
        if asked < 2 {
            return Ok(());
        }
        let (key, value) = &self.sign;
        Err(Refusal::Divided { resource: self.resource, key, value: value.to_string() })
    }
}

/// `8 GPUs, 4 replicas each (time-slicing)`.
impl fmt::Display for DividedGpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpus = if self.gpus == 1 { "GPU" } else { "GPUs" };
        write!(f, "{} {gpus}, {} ", self.gpus, self.replicas)?;
        let s = if self.replicas == 1 { "" } else { "s" };
        match &self.by {
            DividedBy::Sharing(strategy) => write!(f, "replica{s} each ({strategy})"),
            DividedBy::Mig(profile) => write!(f, "slice{s} each (MIG {profile})"),
        }
    }
}

/// How many GPUs, and how many replicas of each, hold so many replicas; where labels say fewer, more replicas.
fn shape(total: u64, gpus: Option<u64>, replicas: Option<u64>) -> (u64, u64) {
    let most = u64::from(phalanx_model::DEVICES_PER_NODE_MAX);
    let gpus = gpus.unwrap_or_else(|| total.div_ceil(replicas.unwrap_or(1).max(1))).clamp(1, most);
    (gpus, replicas.unwrap_or(1).max(total.div_ceil(gpus)).max(1))
}

/// Slices of one profile that a GPU has at most, as `nvidia-smi mig -lgip` lists them.
fn slices_of(product: &str, profile: &str) -> Option<u64> {
    let (compute, memory) = profile.split_once("g.")?;
    let is_extended = memory.contains('+');
    let is_a30 = product.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "A30");
    // One compute slice with the memory of two.
    let is_wide = matches!(profile, "1g.20gb" | "1g.24gb" | "1g.35gb" | "1g.45gb")
        || profile == "1g.10gb" && product.contains("40GB");
    Some(match (compute, is_a30) {
        _ if is_extended => 1,
        ("1", true) => 4,
        ("2", true) => 2,
        ("1", false) if is_wide => 4,
        ("1", false) => 7,
        ("2", false) => 3,
        ("3", false) => 2,
        ("4", _) | ("7", false) => 1,
        _ => return None,
    })
}

/// Of what there was before some of it broke.
fn amount(node: &Node, resource: &str) -> u64 {
    let status = &node.status;
    let of = |amounts: &std::collections::BTreeMap<String, _>| {
        amounts.get(resource).and_then(|amount| Amount::of(amount).ok()).map_or(0, Amount::units_up)
    };
    of(&status.capacity).max(of(&status.allocatable))
}

fn number(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

fn shown(text: &str) -> Box<str> {
    text.chars().take(SHOWN_MAX).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::objects::{node, pod};
    use super::*;

    fn of(labels: &[(&str, &str)], resource: &str, total: &str) -> Option<DividedGpus> {
        let labels: std::collections::BTreeMap<_, _> =
            labels.iter().map(|(key, value)| (format!("nvidia.com/{key}"), *value)).collect();
        let mut node = node(json!(labels), json!({}));
        node.status.capacity = serde_json::from_value(json!({ resource: total })).unwrap();
        node.status.allocatable = node.status.capacity.clone();
        DividedGpus::of(&node)
    }

    fn size(labels: &[(&str, &str)], total: &str) -> (u32, u32, bool) {
        let found = of(labels, GPU, total).unwrap();
        (found.gpus, found.replicas, found.problem.is_some())
    }

    #[test]
    fn replicas_are_read_by_both_names_and_both_strategies() {
        let labels = [("gpu.count", "8"), ("gpu.replicas", "4"), ("gpu.product", "Tesla-T4-SHARED")];
        for strategy in ["time-slicing", "mps"] {
            let labels = [&labels[..], &[("gpu.sharing-strategy", strategy)]].concat();
            for resource in [GPU, SHARED_GPU] {
                let found = of(&labels, resource, "32").unwrap();
                assert_eq!((found.gpus, found.replicas, found.total), (8, 4, 32));
                assert_eq!((found.resource, &found.problem), (resource, &None));
                assert_eq!(found.to_string(), format!("8 GPUs, 4 replicas each ({strategy})"));
            }
        }
    }

    #[test]
    fn slices_of_one_size_are_parts_of_as_few_gpus_as_have_them() {
        let found = |product: &str, total: &str| {
            let labels = [
                ("mig.strategy", "single"),
                ("gpu.count", total),
                ("gpu.replicas", "1"),
                ("gpu.product", product),
            ];
            of(&labels, GPU, total).unwrap()
        };
        for (product, total, gpus, slices) in [
            ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "56", 8, 7),
            ("NVIDIA-A100-SXM4-40GB-MIG-1g.10gb", "8", 2, 4),
            ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", "16", 8, 2),
            ("NVIDIA-A100-SXM4-40GB-MIG-7g.40gb", "8", 8, 1),
            ("NVIDIA-A30-MIG-1g.6gb", "8", 2, 4),
            // Not all of the last one is cut.
            ("NVIDIA-H200-MIG-2g.35gb", "10", 4, 3),
        ] {
            let found = found(product, total);
            assert_eq!((found.gpus, found.replicas, found.is_mig()), (gpus, slices, true), "{product}");
            assert_eq!(found.problem, None);
        }
        assert_eq!(
            found("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "56").to_string(),
            "8 GPUs, 7 slices each (MIG 1g.10gb)"
        );
        let unknown = found("NVIDIA-X1-MIG-5g.1gb", "6");
        assert_eq!((unknown.gpus, unknown.replicas), (1, 6));
        assert!(unknown.problem.unwrap().contains("MIG profile 5g.1gb is unknown"));
    }

    #[test]
    fn whole_gpus_are_whole() {
        for labels in [
            &[][..],
            &[("gpu.count", "8"), ("gpu.replicas", "1"), ("gpu.sharing-strategy", "none")],
            &[("mig.strategy", "single"), ("gpu.product", "NVIDIA-A100-SXM4-40GB")],
            &[("gpu.replicas", "many")],
        ] {
            assert_eq!(of(labels, GPU, "8"), None, "{labels:?}");
        }
        assert_eq!(of(&[("gpu.replicas", "4")], "cpu", "8"), None, "nothing is offered");
    }

    /// There are never fewer replicas in GPUs than the kubelet counts, and a pod gets one of those that it counts.
    #[test]
    fn labels_that_do_not_agree_are_a_problem_and_lose_nothing() {
        let shared = ("gpu.sharing-strategy", "time-slicing");
        assert_eq!(size(&[shared, ("gpu.count", "8"), ("gpu.replicas", "4")], "30"), (8, 4, true));
        assert_eq!(size(&[shared, ("gpu.count", "2"), ("gpu.replicas", "4")], "30"), (2, 15, true));
        assert_eq!(size(&[shared, ("gpu.count", "8"), ("gpu.replicas", "0")], "32"), (8, 4, true));
        assert_eq!(size(&[shared, ("gpu.count", "8"), ("gpu.replicas", "four")], "30"), (8, 4, true));
        assert_eq!(size(&[shared, ("gpu.replicas", "4")], "32"), (8, 4, true));
        assert_eq!(size(&[shared, ("gpu.count", "-1")], "32"), (1, 32, true));
        assert_eq!(size(&[("gpu.product", "Tesla-T4-SHARED")], "3"), (1, 3, true));
        assert_eq!(size(&[shared, ("gpu.replicas", "2")], "1000"), (64, 16, true));
        let text = of(&[shared, ("gpu.count", "8"), ("gpu.replicas", "4")], GPU, "30").unwrap().problem;
        assert_eq!(
            text.unwrap(),
            "nvidia.com/gpu.count=8, nvidia.com/gpu.replicas=4 and nvidia.com/gpu=30 contradict each other"
        );
        let renamed = of(&[], SHARED_GPU, "6").unwrap();
        assert_eq!((renamed.gpus, renamed.replicas, renamed.problem.is_some()), (1, 6, true));
    }

    #[test]
    fn several_replicas_are_refused_with_the_label_that_says_so() {
        let divided = of(&[("gpu.count", "8"), ("gpu.replicas", "4")], GPU, "32").unwrap();
        let asks = |gpus: &str| {
            let container = json!({"name": "a", "resources": {"limits": {GPU: gpus}}});
            Requirements::of(&pod(json!({"containers": [container]}))).unwrap()
        };
        assert_eq!(divided.admits(&asks("1")), Ok(()));
        assert_eq!(
            divided.admits(&asks("2")).unwrap_err().to_string(),
            "node(s) divide their GPUs (nvidia.com/gpu.replicas=4) and give a pod at most 1 nvidia.com/gpu"
        );
    }
}
