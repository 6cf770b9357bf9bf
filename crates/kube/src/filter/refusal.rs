//! Why a node may not have a pod, in upstream's words.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// It is cordoned.
    Unschedulable,
    /// It has a condition or a label that closes it.
    Closed(String),
    Taint {
        key: String,
        value: String,
    },
    /// Node selector or required node affinity.
    Affinity,
    /// The kubelet there does not declare what the pod needs.
    Features,
    /// It offers parts of its GPUs and no whole ones, as this label says.
    Divided {
        resource: &'static str,
        key: &'static str,
        value: String,
    },
    /// Another pod there has one of its host ports.
    Ports,
    /// Too many of its kind in the node's domain already.
    Spread,
    /// The node has no label that says its domain.
    SpreadLabel,
    /// Those that it must be with are elsewhere.
    PodAffinity,
    /// One that it must not be with is there.
    PodAntiAffinity,
    /// One is there that must not be with it.
    ExistingAntiAffinity,
    /// The node can attach no more volumes of a driver.
    VolumeLimit,
    /// A volume of the pod cannot be reached from there.
    VolumeAffinity,
    /// No volume for a claim of the pod is there, and none can be made.
    VolumeBinding,
    /// A volume would be made there, and there is no room.
    VolumeSpace,
    /// A volume of the pod is in another zone or region.
    VolumeZone,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node(s) were unschedulable"),
            Self::Closed(sign) => write!(f, "node(s) had {sign}"),
            Self::Taint { key, value } => write!(f, "node(s) had untolerated taint {{{key}: {value}}}"),
            Self::Affinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::Features => f.write_str("node(s) didn't match Pod's required features"),
            Self::Divided { resource, key, value } => {
                write!(f, "node(s) divide their GPUs ({key}={value}) and give a pod at most 1 {resource}")
            }
            Self::Ports => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Self::Spread => f.write_str("node(s) didn't match pod topology spread constraints"),
            Self::SpreadLabel => {
                f.write_str("node(s) didn't match pod topology spread constraints (missing required label)")
            }
            Self::PodAffinity => f.write_str("node(s) didn't match pod affinity rules"),
            Self::PodAntiAffinity => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Self::ExistingAntiAffinity => {
                f.write_str("node(s) didn't satisfy existing pods anti-affinity rules")
            }
            Self::VolumeLimit => f.write_str("node(s) exceed max volume count"),
            Self::VolumeAffinity => f.write_str("node(s) didn't match PersistentVolume's node affinity"),
            Self::VolumeBinding => f.write_str("node(s) didn't find available persistent volumes to bind"),
            Self::VolumeSpace => f.write_str("node(s) did not have enough free storage"),
            Self::VolumeZone => f.write_str("node(s) had no available volume zone"),
        }
    }
}
