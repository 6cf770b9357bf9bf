//! The way to the API server, for people and for the scheduler.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A client, and the namespace of its context. Without a file: what `$KUBECONFIG` or the user's folder has, or what a pod
/// finds inside. A connection on which nothing comes for as long as `silence` is given up.
pub(crate) async fn connect(
    file: Option<&Path>,
    context: Option<&str>,
    silence: Option<Duration>,
) -> Result<(Client, String), String> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let mut config = match (file, context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path).map_err(|error| error.to_string())?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(|error| error.to_string())?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(|error| error.to_string())?,
        (None, None) => Config::infer().await.map_err(|error| error.to_string())?,
    };
    let namespace = config.default_namespace.clone();
    // From when a request is sent, and not from when its connection had nothing to do.
    (config.read_timeout, config.reset_reader_on_write) = (silence, silence.is_some());
    Ok((Client::try_from(config).map_err(|error| error.to_string())?, namespace))
}
