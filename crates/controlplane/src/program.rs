//! The programs of a control plane, and where their source is.

use std::fmt;
use std::path::{Path, PathBuf};

/// The oldest Go that builds all of them.
pub(crate) const GO: &str = "1.26";

/// One program of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Program {
    Etcd,
    ApiServer,
    ControllerManager,
    KubeScheduler,
    /// Plays the kubelets of fake nodes.
    Kwok,
    /// The job controllers of kubeflow: PyTorchJob, MPIJob, TFJob and others.
    TrainingOperator,
}

impl Program {
    /// As its file is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kwok => "kwok",
            Self::TrainingOperator => "training-operator",
        }
    }

    /// The version of its module; `go.mod` in [`Self::folder`] says the same, which a test holds.
    #[must_use]
    pub fn version(self) -> &'static str {
        match self {
            Self::Etcd => "v3.6.6",
            Self::ApiServer | Self::ControllerManager | Self::KubeScheduler => "v1.36.3",
            Self::Kwok => "v0.8.0",
            Self::TrainingOperator => "v1.8.1",
        }
    }

    /// The module that it is a part of.
    pub(crate) fn module(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer | Self::ControllerManager | Self::KubeScheduler => "k8s.io/kubernetes",
            Self::Kwok => "sigs.k8s.io/kwok",
            Self::TrainingOperator => "github.com/kubeflow/training-operator",
        }
    }

    /// What `go build` is asked for.
    pub(crate) fn package(self) -> String {
        match self {
            Self::Etcd => self.module().to_owned(),
            Self::TrainingOperator => ".".to_owned(),
            _ => format!("{}/cmd/{}", self.module(), self.name()),
        }
    }

    /// The folder of the `go.mod` that it is built with. Their dependencies do not resolve in one.
    pub(crate) fn folder(self) -> PathBuf {
        let group = match self {
            Self::Etcd => "etcd",
            Self::ApiServer | Self::ControllerManager | Self::KubeScheduler => "kubernetes",
            Self::Kwok => "kwok",
            Self::TrainingOperator => "training-operator",
        };
        Path::new(env!("CARGO_MANIFEST_DIR")).join("go").join(group)
    }

    /// Without symbols, and with the version that the program tells of itself.
    pub(crate) fn linker_flags(self) -> String {
        let version = self.version();
        let told = match self {
            Self::ApiServer | Self::ControllerManager | Self::KubeScheduler => {
                let mut numbers = version.trim_start_matches('v').split('.');
                let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
                let of = "k8s.io/component-base/version";
                format!(
                    " -X {of}.gitVersion={version} -X {of}.gitMajor={major} -X {of}.gitMinor={minor} \
                     -X {of}.gitTreeState=clean"
                )
            }
            Self::Kwok => format!(" -X sigs.k8s.io/kwok/pkg/consts.Version={version}"),
            Self::Etcd | Self::TrainingOperator => String::new(),
        };
        format!("-s -w{told}")
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_are_those_of_the_go_modules() {
        for program in [
            Program::Etcd,
            Program::ApiServer,
            Program::ControllerManager,
            Program::KubeScheduler,
            Program::Kwok,
            Program::TrainingOperator,
        ] {
            let file = program.folder().join("go.mod");
            let text = std::fs::read_to_string(&file).unwrap();
            let line = format!("{} {}", program.module(), program.version());
            assert!(text.contains(&line), "{} does not require {line}", file.display());
        }
    }
}
