//! The server of a Kubernetes cluster, until it is told to stop.

use std::process::ExitCode;

use phalanx_api::http::{CertificateFiles, check_host_name};
use phalanx_kube::server::{self, ServerError, Settings};

use super::scheduler::options;
use crate::args::Server;
use crate::failure::Failure;

/// Why it ends is the last line of its log.
pub(super) fn server(asked: Server) -> ExitCode {
    asked.log.begin();
    serve(asked).map_or_else(|failure| failure.log(), |()| ExitCode::SUCCESS)
}

fn serve(asked: Server) -> Result<(), Failure> {
    for name in &asked.names {
        check_host_name(name).map_err(|why| Failure::usage(format!("--name {name:?}: {why}"), ""))?;
    }
    let files = asked.cert.zip(asked.key);
    let settings = Settings {
        kubeconfig: asked.kubeconfig,
        context: asked.context,
        options: options(asked.deciding)?,
        listen: asked.listen,
        certificate: files.map(|(certificate, key)| CertificateFiles { certificate, key }),
        names: asked.names,
        metrics: asked.metrics,
    };
    match server::run(&settings) {
        Ok(()) => Ok(()),
        Err(error @ (ServerError::Config(_) | ServerError::Usage(_) | ServerError::Certificate(_))) => {
            Err(Failure::usage(error.to_string(), ""))
        }
        Err(error) => Err(Failure::unavailable(error.to_string(), "start it again; it keeps nothing")),
    }
}
