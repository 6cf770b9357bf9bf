//! The HTTP API and the dashboard of a cluster, as a process of its own. It only reads: what it answers is derived from the
//! objects that a scheduler watches, with the code that answers on one machine.
//!
//! | module | what lives there |
//! |---|---|
//! | `objects` | the newest version of every object that is watched |
//! | `picture` | the engine that is derived from these objects |
//! | `keeper` | the thread that keeps objects and picture up to date |
//! | `bounded` | answers that are kept for a while |
//! | `sign_in` | bearer tokens, as the API server reviews them |
//! | `access` | what a user may see, as the API server reviews it |
//! | `backend` | verbs of the API, and who may ask them |
//! | `documents` | the answers |
//! | `outside` | the gangs among them that the engine does not have |
//! | `refused` | verbs that are not answered, and the command that does it instead |
//! | `metrics` | what is counted |

mod access;
mod backend;
mod bounded;
mod documents;
mod keeper;
mod metrics;
mod objects;
mod outside;
mod picture;
mod refused;
mod sign_in;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use phalanx_api::http::{self, Certificate, CertificateError, CertificateFiles, Listening, Tls};
use tokio::sync::oneshot;

use crate::connect::{SILENCE, connect};
use crate::gang::Options;
use crate::world::{Observer, serve, told_to_end};

use backend::OfCluster;
use keeper::{Keeper, Shown};
use metrics::Metrics;

/// How a server is to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nothing: what the environment of a pod or of the user says.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
    /// Those of the scheduler whose decisions are shown.
    pub options: Options,
    /// Where the API is served.
    pub listen: SocketAddr,
    pub certificate: Option<CertificateFiles>,
    /// Hosts under which clients ask, beside those of the certificate.
    pub names: Vec<String>,
    /// Where health and metrics are served; nothing: nowhere.
    pub metrics: Option<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("no way to the cluster: {0}; give --kubeconfig, or set KUBECONFIG")]
    Config(String),
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("the API server does not answer: {0}")]
    Api(String),
    #[error("cannot begin: {0}")]
    Start(String),
    #[error("stopped: {0}")]
    Stopped(String),
}

/// Runs until it is told to stop (SIGTERM, SIGINT).
///
/// # Errors
/// When it cannot begin, or the watches or the API have ended, see [`ServerError`].
pub fn run(settings: &Settings) -> Result<(), ServerError> {
    // Refused before anything is asked of the cluster.
    let listening = open(settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(http::ANSWERING)
        .enable_all()
        .build()
        .map_err(|error| ServerError::Start(error.to_string()))?;
    let done = runtime.block_on(serve_cluster(settings, listening));
    // Streams of clients hold threads that look up now and then.
    runtime.shutdown_background();
    done
}

fn open(settings: &Settings) -> Result<Listening, ServerError> {
    let at = settings.listen;
    if settings.certificate.is_none() && !at.ip().is_loopback() {
        return Err(ServerError::Usage(format!(
            "without TLS only a loopback address will do, such as 127.0.0.1:7077, because tokens would cross the network in \
             the clear: give --cert FILE and --key FILE, or listen on loopback and use `kubectl port-forward`; got {at}"
        )));
    }
    let tls = match &settings.certificate {
        Some(files) => Some(Tls {
            certificate: Arc::new(Certificate::open(files.clone())?),
            names: settings.names.clone(),
        }),
        None => None,
    };
    http::listen(at, tls).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidInput => ServerError::Usage(
            "the certificate names neither a host nor this address: give --name HOST".to_owned(),
        ),
        _ => ServerError::Start(format!("cannot listen on {at}: {error}")),
    })
}

async fn serve_cluster(settings: &Settings, listening: Listening) -> Result<(), ServerError> {
    let (file, context) = (settings.kubeconfig.as_deref(), settings.context.as_deref());
    let (client, _) = connect(file, context, Some(SILENCE)).await.map_err(ServerError::Config)?;
    let (metrics, registry) = Metrics::registered();
    let is_ready = Arc::new(AtomicBool::new(false));
    let (failed, mut failure) = tokio::sync::mpsc::channel(1);
    if let Some(at) = settings.metrics {
        let (is_ready, failed) = (Arc::clone(&is_ready), failed.clone());
        tokio::spawn(async move {
            if let Err(error) = serve(at, registry, is_ready).await {
                let _ = failed.send(format!("cannot serve on {at}: {error}")).await;
            }
        });
    }
    let observer = Observer::begin(&client).await.map_err(|error| ServerError::Api(error.to_string()))?;
    let shown = Arc::new(Shown::default());
    let keeper =
        Keeper::new(settings.options.clone(), observer, Arc::clone(&shown), is_ready, metrics.clone());
    let ended = keep(keeper)?;
    let url = listening.url();
    let backend = Arc::new(OfCluster::new(client, shown, metrics, tokio::runtime::Handle::current()));
    let serving = http::serve(listening, backend);
    tracing::info!(address = url, "serves the API and the dashboard");
    let stopped = |why: String| Err(ServerError::Stopped(why));
    tokio::select! {
        told = told_to_end() => {
            told.map_err(|error| ServerError::Start(error.to_string()))?;
            tracing::info!("shutting down");
            Ok(())
        }
        served = serving => stopped(served.map_or_else(|error| error.to_string(), |()| "the API is no longer served".to_owned())),
        // A thread that panicked says nothing.
        why = ended => stopped(why.unwrap_or_else(|_| "the thread that reads the cluster has ended".to_owned())),
        Some(why) = failure.recv() => stopped(why),
    }
}

/// Keeps the picture on a thread of its own, which says why it ends.
fn keep(keeper: Keeper) -> Result<oneshot::Receiver<String>, ServerError> {
    let (ends, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name("cluster".to_owned())
        .spawn(move || drop(ends.send(keeper.run())))
        .map_err(|error| ServerError::Start(error.to_string()))?;
    Ok(ended)
}
