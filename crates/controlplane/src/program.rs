//! The programs of a control plane, and where their source is.

use std::fmt;
use std::path::{Path, PathBuf};

/// The oldest Go that builds all of them.
pub(crate) const GO: &str = "1.26";

/// What a program is built from: a package of a Go module.
#[derive(Clone, Debug)]
pub struct Source {
    /// As its file is called.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) module: &'static str,
    /// What `go build` is asked for.
    pub(crate) package: String,
    /// The folder of the `go.mod` that it is built with. Their dependencies do not resolve in one.
    pub(crate) folder: PathBuf,
    pub(crate) linker_flags: String,
    /// A folder of the module with CRDs that it needs beside itself.
    pub(crate) crds: Option<&'static str>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// The folder of a `go.mod` of ours.
pub(crate) fn go_folder(group: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("go").join(group)
}

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

    /// The version of its module; `go.mod` in its folder says the same, which a test holds.
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
    fn module(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer | Self::ControllerManager | Self::KubeScheduler => "k8s.io/kubernetes",
            Self::Kwok => "sigs.k8s.io/kwok",
            Self::TrainingOperator => "github.com/kubeflow/training-operator",
        }
    }

    /// What `go build` is asked for.
    fn package(self) -> String {
        match self {
            Self::Etcd => self.module().to_owned(),
            Self::TrainingOperator => ".".to_owned(),
            _ => format!("{}/cmd/{}", self.module(), self.name()),
        }
    }

    fn folder(self) -> PathBuf {
        go_folder(match self {
            Self::Etcd => "etcd",
            Self::ApiServer | Self::ControllerManager | Self::KubeScheduler => "kubernetes",
            Self::Kwok => "kwok",
            Self::TrainingOperator => "training-operator",
        })
    }

    /// With the version that the program tells of itself.
    fn linker_flags(self) -> String {
        let version = self.version();
        match self {
            Self::ApiServer | Self::ControllerManager | Self::KubeScheduler => {
                let mut numbers = version.trim_start_matches('v').split('.');
                let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
                let of = "k8s.io/component-base/version";
                format!(
                    "-X {of}.gitVersion={version} -X {of}.gitMajor={major} -X {of}.gitMinor={minor} \
                     -X {of}.gitTreeState=clean"
                )
            }
            Self::Kwok => format!("-X sigs.k8s.io/kwok/pkg/consts.Version={version}"),
            Self::Etcd | Self::TrainingOperator => String::new(),
        }
    }
}

impl From<Program> for Source {
    fn from(program: Program) -> Self {
        Self {
            name: program.name(),
            version: program.version(),
            module: program.module(),
            package: program.package(),
            folder: program.folder(),
            linker_flags: program.linker_flags(),
            crds: (program == Program::TrainingOperator).then_some("manifests/base/crds"),
        }
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
    use crate::render::Renderer;

    #[test]
    fn the_versions_are_those_of_the_go_modules() {
        let programs = [
            Program::Etcd,
            Program::ApiServer,
            Program::ControllerManager,
            Program::KubeScheduler,
            Program::Kwok,
            Program::TrainingOperator,
        ];
        let renderers = [Renderer::Helm, Renderer::Kustomize].map(Source::from);
        for source in programs.map(Source::from).into_iter().chain(renderers) {
            let file = source.folder.join("go.mod");
            let text = std::fs::read_to_string(&file).unwrap();
            let line = format!("{} {}", source.module, source.version);
            assert!(text.contains(&line), "{} does not require {line}", file.display());
        }
    }
}
