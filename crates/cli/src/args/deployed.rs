//! What the manifests below `deploy/` and the install page say of our flags is what can be typed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, Parser as _};
use phalanx_controlplane::{chart, kustomization};
use serde_json::Value;

use super::log::LogFormat;
use super::{Cli, Verb};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every way to install, written out.
fn renderings() -> Vec<(&'static str, String)> {
    let deploy = root().join("deploy");
    let chart =
        |values: &[&str]| chart(&deploy.join("chart/phalanx"), "phalanx", "phalanx-system", values).unwrap();
    vec![
        ("base", kustomization(&deploy.join("base")).unwrap()),
        ("device-plugin", kustomization(&deploy.join("device-plugin")).unwrap()),
        ("server", kustomization(&deploy.join("server")).unwrap()),
        ("chart", chart(&[])),
        ("chart with a device plugin", chart(&["nodeAgent.devicePlugin=true"])),
        ("chart with the kernel log", chart(&["nodeAgent.kernelLog=true"])),
        // As the comments beside these values say.
        ("chart with a server", chart(&["server.enabled=true", "server.extraArgs={--queue=research}"])),
        (
            "chart with a server and TLS",
            chart(&["server.enabled=true", "server.tlsSecret=tls", "server.names={localhost:8443}"]),
        ),
        (
            "chart with arguments",
            chart(&["extraArgs={--ready-deadline=900}", "nodeAgent.extraArgs={--every=300}"]),
        ),
    ]
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn arguments_of_all_containers_are_flags_that_there_are() {
    for (of, text) in renderings() {
        let mut verbs = Vec::new();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            let pods = &object["spec"]["template"]["spec"];
            for container in pods["containers"].as_array().into_iter().flatten() {
                assert_eq!(container["command"], Value::Null, "{of}: the image says which program");
                let mut words = vec!["phalanx".to_owned()];
                words.extend(texts(&container["args"]));
                // What the environment gives it, which a flag would give as well.
                let named = container["env"].as_array().into_iter().flatten();
                if named.into_iter().any(|variable| variable["name"] == "NODE_NAME") {
                    words.push("--node-name=node-1".to_owned());
                }
                let parsed = Cli::try_parse_from(&words);
                let verb = parsed.unwrap_or_else(|error| panic!("{of}: {words:?}: {error}")).verb;
                let (listen, log) = match verb {
                    Verb::Scheduler(scheduler) => {
                        verbs.push("scheduler");
                        (scheduler.listen, scheduler.log)
                    }
                    Verb::Node(node) => {
                        verbs.push("node");
                        (node.listen, node.log)
                    }
                    Verb::Server(server) => {
                        verbs.push("server");
                        assert_eq!(
                            server.cert.is_some(),
                            !server.listen.ip().is_loopback(),
                            "{of}: {words:?}"
                        );
                        (server.metrics, server.log)
                    }
                    other => panic!("{of}: {words:?} is {other:?}"),
                };
                let declared = container["ports"][0]["containerPort"].as_u64();
                assert_eq!(listen.map(|at| u64::from(at.port())), declared, "{of}: {words:?}");
                assert_eq!(log.log_format, Some(LogFormat::Json), "{of}: what collects logs reads objects");
            }
        }
        verbs.sort_unstable();
        let expected: &[&str] = match of {
            "device-plugin" => &["node"],
            "server" => &["server"],
            of if of.contains("server") => &["node", "scheduler", "server"],
            _ => &["node", "scheduler"],
        };
        assert_eq!(verbs, expected, "{of}");
    }
}

/// Flags in the first column of the table after a line that contains this.
fn documented(page: &str, after: &str) -> BTreeSet<String> {
    let page = std::fs::read_to_string(root().join("docs/kubernetes").join(page)).unwrap();
    let table = page.split_once(after).unwrap().1;
    let rows =
        table.lines().skip_while(|line| !line.starts_with("| flag")).take_while(|line| line.starts_with('|'));
    let first = rows.filter_map(|row| row.split('|').nth(1));
    let flags =
        first.flat_map(|cell| cell.split('`').skip(1).step_by(2)).filter_map(|word| word.strip_prefix("--"));
    flags.map(str::to_owned).collect()
}

#[test]
fn the_pages_tell_of_every_flag_of_scheduler_agent_and_server_and_of_no_other() {
    let command = Cli::command();
    let scheduler = documented("install.md", "## Flags of the scheduler");
    for (verb, page, after) in [
        ("scheduler", "install.md", "## Flags of the scheduler"),
        ("node", "install.md", "## On the nodes"),
        ("server", "server.md", "## Install"),
    ] {
        let found = command.get_subcommands().find(|one| one.get_name() == verb).unwrap();
        let own =
            found.get_arguments().filter(|flag| !flag.is_global_set()).filter_map(|flag| flag.get_long());
        // How to reach a cluster is said of all verbs.
        let own = own.filter(|flag| !matches!(*flag, "kubeconfig" | "context" | "help" | "version"));
        let own: BTreeSet<String> = own.map(str::to_owned).collect();
        let mut said = documented(page, after);
        if verb == "server" {
            // Those of the scheduler that it takes too are said there.
            said.extend(own.intersection(&scheduler).cloned());
        }
        assert_eq!(own, said, "{verb}");
    }
}
