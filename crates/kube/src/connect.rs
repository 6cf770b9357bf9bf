//! The way to the API server, for people and for the scheduler.

use std::path::Path;
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use self::observed::Observed;
pub(crate) use self::observed::{Answered, Observer};

mod observed;

/// A connection on which nothing comes for so long is dead: lists are in pages, and watches end before.
pub(crate) const SILENCE: Duration = Duration::from_secs(75);

/// A client, and the namespace of its context. Without a file: what `$KUBECONFIG` or the user's folder has, or what a pod
/// finds inside. A connection on which nothing comes for as long as `silence` is given up.
pub(crate) async fn connect(
    file: Option<&Path>,
    context: Option<&str>,
    silence: Option<Duration>,
) -> Result<(Client, String), String> {
    let (config, namespace) = config(file, context, silence).await?;
    Ok((Client::try_from(config).map_err(|error| error.to_string())?, namespace))
}

/// The same. The observer is called with every request.
pub(crate) async fn connect_observed(
    file: Option<&Path>,
    context: Option<&str>,
    silence: Option<Duration>,
    observer: Observer,
) -> Result<(Client, String), String> {
    let (config, namespace) = config(file, context, silence).await?;
    let builder = ClientBuilder::try_from(config).map_err(|error| error.to_string())?;
    Ok((builder.with_layer(&Observed(observer)).build(), namespace))
}

async fn config(
    file: Option<&Path>,
    context: Option<&str>,
    silence: Option<Duration>,
) -> Result<(Config, String), String> {
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
    Ok((config, namespace))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};

    use futures::StreamExt;
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;
    use kube::runtime::{WatchStreamExt, watcher};
    use serde_json::json;

    use super::*;

    /// The first line of a request; nothing where the connection has ended.
    fn asked(stream: &TcpStream) -> Option<String> {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let first = lines.next()?;
        lines.find(String::is_empty)?;
        Some(first)
    }

    fn list(name: &str) -> String {
        let node = json!({ "metadata": { "name": name, "resourceVersion": "1" } });
        let list = json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [node] });
        let text = list.to_string();
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        )
    }

    const WATCHED: &str =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

    /// One watch begins and then says nothing, as where a firewall forgot the connection; the next one says something.
    fn serve(listener: &TcpListener) {
        // It stays open.
        let mut died: Option<TcpStream> = None;
        for stream in listener.incoming().map_while(Result::ok) {
            let mut says = &stream;
            while let Some(asked) = asked(&stream) {
                if !asked.contains("watch=true") {
                    says.write_all(list("a").as_bytes()).unwrap();
                    continue;
                }
                says.write_all(WATCHED.as_bytes()).unwrap();
                if died.is_none() {
                    died = stream.try_clone().ok();
                    break;
                }
                let event = json!({ "type": "ADDED", "object": {
                    "kind": "Node", "apiVersion": "v1", "metadata": { "name": "b", "resourceVersion": "2" },
                } });
                let line = format!("{event}\n");
                says.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).unwrap();
                return;
            }
        }
    }

    #[test]
    fn a_watch_whose_connection_died_in_silence_is_begun_again() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let at = listener.local_addr().unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{ "name": "k", "cluster": { "server": format!("http://{at}") } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "c", "context": { "cluster": "k", "user": "u" } }],
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, config.to_string()).unwrap();
        let server = std::thread::spawn(move || serve(&listener));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let silence = Some(Duration::from_millis(300));
            let (client, _) = connect(Some(&file), None, silence).await.unwrap();
            let nodes: Api<Node> = Api::all(client);
            let mut events = watcher(nodes, watcher::Config::default()).default_backoff().boxed();
            let comes = async {
                while let Some(event) = events.next().await {
                    if let Ok(watcher::Event::Apply(node)) = event
                        && node.metadata.name.as_deref() == Some("b")
                    {
                        return;
                    }
                }
            };
            // Far longer than the silence and the pause after it.
            let came = tokio::time::timeout(Duration::from_secs(60), comes).await;
            assert!(came.is_ok(), "it waited for what never came");
        });
        server.join().unwrap();
    }
}
