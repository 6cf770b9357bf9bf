//! What a demo on Kubernetes needs of Phalanx: the program, and its resource definitions.

use std::path::PathBuf;

use phalanx_controlplane::Api;
use phalanx_kube::crd;

use crate::until::until;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The objects of one of them.
pub const TOPOLOGIES: &str = "/apis/phalanx.dev/v1alpha1/nodetopologies";

/// The program that was built beside the demo; `target` of the Makefile builds both.
///
/// # Errors
/// When it is not there.
pub fn program(target: &str) -> Result<PathBuf, String> {
    let phalanx = std::env::current_exe().map_err(|e| e.to_string())?.with_file_name("phalanx");
    if phalanx.exists() {
        return Ok(phalanx);
    }
    Err(format!("{} is not built; `make {target}` builds all that it needs", phalanx.display()))
}

/// Creates the resource definitions, and waits until they are served.
///
/// # Errors
/// When the API server does not take one, or does not serve them in time.
pub fn define(api: &Api) -> Result<(), String> {
    for (_, document) in crd::documents().map_err(|e| e.to_string())? {
        api.post_yaml(DEFINITIONS, &document).map_err(|e| e.to_string())?;
    }
    until("the definitions to be served", || Ok(api.get(TOPOLOGIES).is_ok().then_some(())))
}
