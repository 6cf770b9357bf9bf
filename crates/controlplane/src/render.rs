//! Manifests as people would have them: kustomizations and charts written out by the programs that are made for it.

use std::path::Path;
use std::process::Command;

use crate::build::{binary, last_lines};
use crate::error::Error;
use crate::kubernetes::KubernetesVersion;
use crate::program::{Source, go_folder};

/// The end of what a program said, in lines, that an error shows.
const OUTPUT_LINES: usize = 30;

/// A program that writes manifests out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renderer {
    Helm,
    Kustomize,
}

impl From<Renderer> for Source {
    fn from(renderer: Renderer) -> Self {
        match renderer {
            Renderer::Helm => Self {
                // A program called `helm` of the same version may be in the cache: it could only render charts.
                name: "helm-cli",
                version: "v3.22.0",
                module: "helm.sh/helm/v3",
                package: "helm.sh/helm/v3/cmd/helm".to_owned(),
                folder: go_folder("helm"),
                linker_flags: String::new(),
                crds: None,
            },
            Renderer::Kustomize => Self {
                name: "kustomize",
                version: "v5.8.2",
                module: "sigs.k8s.io/kustomize/kustomize/v5",
                package: "sigs.k8s.io/kustomize/kustomize/v5".to_owned(),
                folder: go_folder("kustomize"),
                linker_flags: String::new(),
                crds: None,
            },
        }
    }
}

/// What `kubectl apply -k` would send of a folder, as YAML documents.
///
/// # Errors
/// When kustomize cannot be built, or does not take the folder.
pub fn kustomization(folder: &Path) -> Result<String, Error> {
    render(Renderer::Kustomize, folder, |kustomize| kustomize.arg("build").arg(folder))
}

/// What `helm install RELEASE` would send of a chart, its CRDs among it, as YAML documents. `values` are those of `--set`.
///
/// # Errors
/// When Helm cannot be built, or does not take the chart or the values.
pub fn chart(folder: &Path, release: &str, namespace: &str, values: &[&str]) -> Result<String, Error> {
    let kubernetes = KubernetesVersion::chosen()?;
    render(Renderer::Helm, folder, |helm| {
        helm.args(["template", release]).arg(folder);
        helm.args(["--namespace", namespace, "--kube-version", kubernetes.release(), "--include-crds"]);
        helm.args(values.iter().flat_map(|value| ["--set", value]))
    })
}

fn render(
    renderer: Renderer,
    folder: &Path,
    arguments: impl FnOnce(&mut Command) -> &mut Command,
) -> Result<String, Error> {
    let executable = binary(renderer)?;
    let mut command = Command::new(&executable);
    let answer = arguments(&mut command).output().map_err(Error::io("run", &executable))?;
    if answer.status.success() {
        return Ok(String::from_utf8_lossy(&answer.stdout).into_owned());
    }
    let output = last_lines(&String::from_utf8_lossy(&answer.stderr), OUTPUT_LINES);
    Err(Error::Render { program: Source::from(renderer).name, folder: folder.to_path_buf(), output })
}
