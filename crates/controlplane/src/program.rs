//! The programs of a control plane, and where their source is.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::kubernetes::KubernetesVersion;

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

/// What people type their commands for a cluster with. It is no part of a control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kubectl;

impl From<Kubectl> for Source {
    fn from(Kubectl: Kubectl) -> Self {
        // Of the newest version: it speaks with the one before as well.
        let api_server = Program::ApiServer.source(KubernetesVersion::V1_37);
        let package = format!("{}/cmd/kubectl", api_server.module);
        Self { name: "kubectl", package, folder: go_folder("kubectl"), ..api_server }
    }
}

/// One program of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Program {
    Etcd,
    ApiServer,
    ControllerManager,
    KubeScheduler,
    /// Of a real node; of Kubernetes 1.37 whichever the control plane is.
    Kubelet,
    /// The DNS of a cluster of real nodes: names of services and of their pods.
    CoreDns,
    /// Plays the kubelets of fake nodes.
    Kwok,
    /// The job controllers of kubeflow: PyTorchJob, MPIJob, TFJob and others.
    TrainingOperator,
}

impl Program {
    pub const ALL: [Self; 8] = [
        Self::Etcd,
        Self::ApiServer,
        Self::ControllerManager,
        Self::KubeScheduler,
        Self::Kubelet,
        Self::CoreDns,
        Self::Kwok,
        Self::TrainingOperator,
    ];

    /// As its file is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::CoreDns => "coredns",
            Self::Kwok => "kwok",
            Self::TrainingOperator => "training-operator",
        }
    }

    /// What it is built from for a control plane of a version; programs that are no part of Kubernetes have one version.
    #[must_use]
    pub fn source(self, kubernetes: KubernetesVersion) -> Source {
        let version = self.version(kubernetes);
        Source {
            name: self.name(),
            version,
            module: self.module(),
            package: self.package(),
            folder: self.folder(kubernetes),
            linker_flags: self.linker_flags(version),
            crds: (self == Self::TrainingOperator).then_some("manifests/base/crds"),
        }
    }

    /// The version of its module; `go.mod` in its folder says the same, which a test holds.
    fn version(self, kubernetes: KubernetesVersion) -> &'static str {
        match self {
            Self::Etcd => "v3.6.6",
            Self::ApiServer | Self::ControllerManager | Self::KubeScheduler => kubernetes.release(),
            Self::Kubelet => KubernetesVersion::V1_37.release(),
            Self::CoreDns => "v1.14.7",
            Self::Kwok => "v0.8.0",
            Self::TrainingOperator => "v1.8.1",
        }
    }

    /// The module that it is a part of.
    fn module(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::ApiServer | Self::ControllerManager | Self::KubeScheduler | Self::Kubelet => {
                "k8s.io/kubernetes"
            }
            Self::CoreDns => "github.com/coredns/coredns",
            Self::Kwok => "sigs.k8s.io/kwok",
            Self::TrainingOperator => "github.com/kubeflow/training-operator",
        }
    }

    /// What `go build` is asked for.
    fn package(self) -> String {
        match self {
            Self::Etcd => self.module().to_owned(),
            Self::CoreDns | Self::TrainingOperator => ".".to_owned(),
            _ => format!("{}/cmd/{}", self.module(), self.name()),
        }
    }

    fn folder(self, kubernetes: KubernetesVersion) -> PathBuf {
        match self {
            Self::Etcd => go_folder("etcd"),
            Self::ApiServer | Self::ControllerManager | Self::KubeScheduler => {
                go_folder("kubernetes").join(kubernetes.name())
            }
            Self::Kubelet => go_folder("kubernetes").join(KubernetesVersion::V1_37.name()),
            Self::CoreDns => go_folder("coredns"),
            Self::Kwok => go_folder("kwok"),
            Self::TrainingOperator => go_folder("training-operator"),
        }
    }

    /// With the version that the program tells of itself.
    fn linker_flags(self, version: &str) -> String {
        match self {
            Self::ApiServer | Self::ControllerManager | Self::KubeScheduler | Self::Kubelet => {
                let mut numbers = version.trim_start_matches('v').split('.');
                let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
                let of = "k8s.io/component-base/version";
                format!(
                    "-X {of}.gitVersion={version} -X {of}.gitMajor={major} -X {of}.gitMinor={minor} \
                     -X {of}.gitTreeState=clean"
                )
            }
            Self::Kwok => format!("-X sigs.k8s.io/kwok/pkg/consts.Version={version}"),
            Self::Etcd | Self::CoreDns | Self::TrainingOperator => String::new(),
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
        let programs = KubernetesVersion::ALL
            .into_iter()
            .flat_map(|version| Program::ALL.map(|program| program.source(version)));
        let renderers = [Renderer::Helm, Renderer::Kustomize].map(Source::from);
        for source in programs.chain(renderers).chain([Kubectl.into()]) {
            let file = source.folder.join("go.mod");
            let text = std::fs::read_to_string(&file).unwrap();
            let line = format!("{} {}", source.module, source.version);
            assert!(text.contains(&line), "{} does not require {line}", file.display());
        }
    }
}
