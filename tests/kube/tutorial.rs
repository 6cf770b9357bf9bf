//! The tutorial of Kubernetes: its commands print what the page shows, see [`crate::page`].
//!
//! | of the page | here |
//! |---|---|
//! | `cargo build`, `make kube-up` | the program beside the test daemon, and the control plane of the test: 64 nodes as well |
//! | `phalanx scheduler --no-lease` in a second terminal | a process of the test |
//! | Ctrl-C in the second terminal, and another start | the same process is killed and started again |
//! | Ctrl-C in the first terminal | the end of the test |

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use phalanx_controlplane::{Kubectl, binary};

use crate::page::{Block, Shell, Step, blocks};
use crate::support::Cluster;

const SCHEDULER: &str = "phalanx scheduler --no-lease";
/// Commands that change nothing.
const ASKS: [&str; 2] = ["kubectl get ", "phalanx ps "];
const PATIENCE: Duration = Duration::from_secs(120);
/// Letters of the random ends of names.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";

struct Scheduler<'a> {
    phalanx: &'a Path,
    cluster: &'a Cluster,
    process: Option<Child>,
}

impl Scheduler<'_> {
    fn start(&mut self) {
        let log =
            File::options().create(true).append(true).open(self.cluster.plane.folder().join("tutorial.log"));
        let mut words = SCHEDULER.split(' ').skip(1);
        let process = Command::new(self.phalanx)
            .args(words.by_ref())
            .env("KUBECONFIG", self.cluster.plane.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .spawn();
        self.process = Some(process.unwrap());
    }

    fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Scheduler<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// A line without the random ends of names of pods.
fn as_shown(line: &str) -> String {
    let word = |word: &str| match word.rsplit_once('-') {
        Some((name, end)) if end.len() == 5 && end.chars().all(|letter| RANDOM.contains(letter)) => {
            format!("{name}-…")
        }
        _ => word.to_owned(),
    };
    line.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_tutorial_of_kubernetes_does_what_it_shows() {
    let phalanx = Path::new(env!("CARGO_BIN_EXE_phalanx-test-daemon")).with_file_name("phalanx");
    if !phalanx.exists() {
        let what = "the program beside the test daemon: cargo build -p phalanx-cli";
        assert!(std::env::var_os("CI").is_none(), "missing: {what}");
        eprintln!("passed over, missing: {what}");
        return;
    }
    let kubectl = binary(Kubectl).unwrap();
    let cluster = Cluster::of(64);
    let kubeconfig = cluster.plane.kubeconfig();
    let programs = [phalanx.parent().unwrap(), kubectl.parent().unwrap()];
    let mut shell = Shell::new(&programs, &[("KUBECONFIG", kubeconfig.as_os_str())], PATIENCE, "true");
    let mut scheduler = Scheduler { phalanx: &phalanx, cluster: &cluster, process: None };
    let mut looked: Option<Step> = None;
    let mut commands = 0;
    for block in blocks("kubernetes.md") {
        match block {
            Block::File { name, text } => std::fs::write(shell.folder().join(name), text).unwrap(),
            Block::Steps(steps) => {
                for step in steps {
                    commands += 1;
                    if step.command == SCHEDULER {
                        scheduler.start();
                        continue;
                    }
                    let only_asks = ASKS.iter().any(|asks| step.command.starts_with(asks));
                    shell.step(&step, only_asks, as_shown);
                    if step.command.starts_with("phalanx ps") {
                        looked = Some(step);
                    }
                }
            }
        }
    }
    assert!(commands >= 15, "{commands} commands");
    // It reads gangs, devices and queues back from the objects of the cluster.
    scheduler.end();
    scheduler.start();
    shell.step(&looked.unwrap(), true, as_shown);
}

#[test]
fn random_ends_of_names_may_differ_and_names_of_nodes_may_not() {
    assert_eq!(as_shown("train-0-k9rpm   node-00000   0-3"), "train-0-…   node-00000   0-3");
    assert_eq!(as_shown("job.batch/big-2 created"), "job.batch/big-2 created");
}
