//! Commands as people type them.

use std::path::PathBuf;
use std::process::Command;

use phalanx_controlplane::{Kubectl as Program, binary};

use super::Cluster;

/// kubectl with the kubeconfig of the administrator.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self { program: binary(Program).unwrap(), kubeconfig: cluster.plane.kubeconfig() }
    }

    /// What it printed.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new(&self.program).args(arguments).env("KUBECONFIG", &self.kubeconfig).output();
        let output = output.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "kubectl {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}
