//! Which Kubernetes a control plane is of.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Chooses the version of every control plane of a process that does not ask for one itself.
const VARIABLE: &str = "PHALANX_KUBERNETES";

/// A minor version of Kubernetes, with the patch release that is built of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KubernetesVersion {
    V1_36,
    #[default]
    V1_37,
}

impl KubernetesVersion {
    pub const ALL: [Self; 2] = [Self::V1_36, Self::V1_37];

    /// The version that `PHALANX_KUBERNETES` names; the newest if the variable is not set.
    ///
    /// # Errors
    /// When the variable names another version.
    pub fn chosen() -> Result<Self, Error> {
        match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
            None => Ok(Self::default()),
            Some(value) => value.to_string_lossy().parse(),
        }
    }

    /// As `PHALANX_KUBERNETES` names it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
        }
    }

    /// The version of the Go module; `go.mod` says the same, which a test holds.
    #[must_use]
    pub fn release(self) -> &'static str {
        match self {
            Self::V1_36 => "v1.36.3",
            Self::V1_37 => "v1.37.2",
        }
    }

    /// The newest version of `scheduling.k8s.io` with PodGroups that its API server serves.
    #[must_use]
    pub fn pod_group_version(self) -> &'static str {
        match self {
            Self::V1_36 => "v1alpha2",
            Self::V1_37 => "v1beta1",
        }
    }

    /// Off by default, and needed to work with gangs.
    pub(crate) fn features(self) -> &'static [&'static str] {
        match self {
            Self::V1_36 => &[
                "GenericWorkload",
                "GangScheduling",
                "TopologyAwareWorkloadScheduling",
                "WorkloadAwarePreemption",
                "WorkloadWithJob",
                "DRAWorkloadResourceClaims",
                "DRADeviceTaintRules",
            ],
            // Gangs and their preemption are part of GenericWorkload, and rules that taint devices are on.
            Self::V1_37 => &[
                "GenericWorkload",
                "TopologyAwareWorkloadScheduling",
                "CompositePodGroup",
                "WorkloadWithJob",
                "DRAWorkloadResourceClaims",
            ],
        }
    }
}

impl FromStr for KubernetesVersion {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let named = Self::ALL.into_iter().find(|version| version.name() == text);
        named.ok_or_else(|| Error::UnknownKubernetes(text.to_owned()))
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_known_by_their_names_and_others_are_refused() {
        for version in KubernetesVersion::ALL {
            assert_eq!(version.name().parse::<KubernetesVersion>().unwrap(), version);
        }
        let refused = "1.35".parse::<KubernetesVersion>().unwrap_err().to_string();
        assert_eq!(refused, "expected Kubernetes 1.36 or 1.37 in PHALANX_KUBERNETES, found \"1.35\"");
    }
}
