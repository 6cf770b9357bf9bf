//! The way to the API server, for people and for the scheduler.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A client, and the namespace of its context. Without a file: what `$KUBECONFIG` or the user's folder has, or what a pod
/// finds inside.
pub(crate) async fn connect(file: Option<&Path>, context: Option<&str>) -> Result<(Client, String), String> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = match (file, context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path).map_err(|error| error.to_string())?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(|error| error.to_string())?
        }
        (None, Some(_)) => Config::from_kubeconfig(&options).await.map_err(|error| error.to_string())?,
        (None, None) => Config::infer().await.map_err(|error| error.to_string())?,
    };
    let namespace = config.default_namespace.clone();
    Ok((Client::try_from(config).map_err(|error| error.to_string())?, namespace))
}
