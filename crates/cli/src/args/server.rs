//! What can be typed of the server of a Kubernetes cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{Deciding, Log};

#[derive(Debug, Args)]
pub(crate) struct Server {
    /// How to reach the cluster [default: what a pod finds inside, or $KUBECONFIG].
    #[arg(long, value_name = "FILE", env = "KUBECONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Which context of that file.
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Where the API and the dashboard are served; without a certificate on loopback alone.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7077")]
    pub(crate) listen: SocketAddr,
    /// Certificate of the server with its chain, as PEM; a renewed one is used without a restart.
    #[arg(long, value_name = "FILE", requires = "key", value_hint = ValueHint::FilePath)]
    pub(crate) cert: Option<PathBuf>,
    /// Private key of the certificate, as PEM.
    #[arg(long, value_name = "FILE", requires = "cert", value_hint = ValueHint::FilePath)]
    pub(crate) key: Option<PathBuf>,
    /// Host under which clients ask, beside those of the certificate, with a port if that is another.
    #[arg(long = "name", value_name = "HOST", requires = "cert")]
    pub(crate) names: Vec<String>,
    /// Where /healthz, /readyz and /metrics are served [default: nowhere].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Give the flags of the scheduler here too, so that what is shown is derived as it decides.
    #[command(flatten)]
    pub(crate) deciding: Deciding,
    #[command(flatten)]
    pub(crate) log: Log,
}
