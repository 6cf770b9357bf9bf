//! The binary against a real control plane: the verbs of people, each with a kubeconfig of few rights.
#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use phalanx_controlplane::{ControlPlane, Fleet, Options, User, kustomization};
use serde_json::{Value, json};

/// Submits and looks, in one namespace.
const ADA: &str = "ada";
/// Minds nodes, and may not touch jobs.
const OSCAR: &str = "oscar";

/// Far beyond what any of this takes; only what hangs gets there.
const PATIENCE: Duration = Duration::from_secs(120);

const FORBIDDEN: i32 = 77;
const NOT_FOUND: i32 = 66;

struct Cluster {
    plane: ControlPlane,
    scheduler: Child,
}

struct Run {
    code: i32,
    out: String,
    err: String,
}

impl Cluster {
    fn start() -> Self {
        let user = |name: &str| User { name: name.to_owned(), groups: Vec::new() };
        let options = Options {
            controller_manager: true,
            kwok: true,
            users: vec![user(ADA), user(OSCAR)],
            ..Options::default()
        };
        let plane = ControlPlane::start(&options).unwrap();
        let fleet = Fleet { kubelet_port: plane.kubelet_port(), ..Fleet::new(2) };
        fleet.create(plane.api()).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        let definitions: Vec<Value> = serde_saphyr::from_multiple(&kustomization(&folder).unwrap()).unwrap();
        for definition in definitions {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            plane.api().post(path, &definition).unwrap();
        }
        let log = || {
            Stdio::from(
                File::options().create(true).append(true).open(plane.folder().join("phalanx.log")).unwrap(),
            )
        };
        let scheduler = Command::new(env!("CARGO_BIN_EXE_phalanx"))
            .args(["scheduler", "--no-lease", "--kubeconfig"])
            .arg(plane.kubeconfig())
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log())
            .spawn()
            .unwrap();
        let cluster = Self { plane, scheduler };
        cluster.allow();
        until("queues that are served", || cluster.plane.api().get(QUEUES).ok());
        cluster
    }

    /// What each of the users may do.
    fn allow(&self) {
        let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        let role = |kind: &str, name: &str, rules: Value| self.role(kind, name, name, &rules);
        let of_jobs = json!([
            rule("batch", &["jobs"], &["get", "list", "create", "delete"]),
            rule("", &["pods", "events"], &["list"]),
            rule("", &["pods/log"], &["get"]),
            rule("", &["services"], &["create"]),
        ]);
        role("Role", ADA, of_jobs);
        role("ClusterRole", ADA, json!([rule("phalanx.dev", &["queues"], &["list"])]));
        let of_nodes = json!([rule("", &["nodes"], &["list", "patch"]), rule("", &["pods"], &["list"])]);
        role("ClusterRole", OSCAR, of_nodes);
        // The API server learns of roles a moment after they are there.
        until("the roles", || (self.run(ADA, "queues").code != FORBIDDEN).then_some(()));
        until("the roles", || (self.run(ADA, "ps").code != FORBIDDEN).then_some(()));
        until("the roles", || (self.run(OSCAR, "nodes").code != FORBIDDEN).then_some(()));
    }

    fn role(&self, kind: &str, name: &str, user: &str, rules: &Value) {
        let object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
        let within = if kind == "Role" { "namespaces/default/" } else { "" };
        let path = |plural: &str| format!("/apis/rbac.authorization.k8s.io/v1/{within}{plural}");
        let plural = format!("{}s", kind.to_lowercase());
        self.plane.api().post(&path(&plural), &object).unwrap();
        self.plane.api().post(&path(&format!("{}bindings", kind.to_lowercase())), &binding).unwrap();
    }

    fn command(&self, user: &str, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
        command.args(words.split_whitespace());
        command.env_clear().env("PHALANX_TO", "kubernetes").env("TZ", "UTC");
        command.env("KUBECONFIG", self.plane.kubeconfig_of(user)).stdin(Stdio::null());
        command
    }

    fn run(&self, user: &str, words: &str) -> Run {
        let output = self.command(user, words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Run { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What it prints where it succeeds.
    fn done(&self, user: &str, words: &str) -> String {
        let Run { code, out, err } = self.run(user, words);
        assert_eq!(code, 0, "{words}: {err}\n{out}");
        out
    }

    /// The same as a document.
    fn document(&self, user: &str, words: &str) -> Value {
        serde_json::from_str(&self.done(user, &format!("{words} -o json"))).unwrap()
    }

    fn says(&self) -> String {
        std::fs::read_to_string(self.plane.folder().join("phalanx.log")).unwrap_or_default()
    }

    /// Appends a line to what all containers print.
    fn print(&self, line: &str) {
        let path = self.plane.container_log();
        let mut file = File::options().create(true).append(true).open(path).unwrap();
        writeln!(file, "2026-01-01T00:00:00.000000000Z stdout F {line}").unwrap();
    }

    fn until_running(&self, job: &str) -> Value {
        until(&format!("{job} that runs; the scheduler said {}", self.says()), || {
            let job = self.document(ADA, &format!("get {job}"));
            (job["state"] == "running").then_some(job)
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.scheduler.kill();
        let _ = self.scheduler.wait();
    }
}

const QUEUES: &str = "/apis/phalanx.dev/v1alpha1/queues";

fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    phalanx_controlplane::until(PATIENCE, what, look)
}

fn submit(name: &str, workers: u32) -> String {
    format!(
        "submit pytorch --name={name} --gpus=8 --workers={workers} --gang --gputopology=true --image=none python train.py"
    )
}

#[test]
fn people_work_with_a_cluster_by_the_verbs_of_one_machine_as_far_as_their_rights_go() {
    let cluster = Cluster::start();
    let queue = json!({"apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "default"}, "spec": {"limit": {"gpus": 16}}});
    cluster.plane.api().post(QUEUES, &queue).unwrap();

    let said = cluster.done(ADA, &submit("train", 2));
    assert!(said.contains("Job train is submitted in namespace default"), "{said}");
    let train = cluster.until_running("train");
    assert_eq!(train["instances"].as_array().unwrap().len(), 2, "{train:#}");
    cluster.done(ADA, &submit("waits", 1));
    let why = until(&format!("a reason; the scheduler said {}", cluster.says()), || {
        let why = cluster.done(ADA, "why waits");
        let line = why.lines().find(|line| line.trim_start().starts_with("why"))?;
        line.contains("16 of its limit of 16 gpus, and the gang needs 8").then(|| why.clone())
    });
    assert!(why.starts_with("waits  pending"), "{why}");
    the_jobs_are_listed(&cluster);
    the_output_is_followed(&cluster);
    nodes_are_minded_by_whom_may(&cluster);
    what_would_happen_is_told(&cluster);

    // What others do is not hers, and she is told so.
    let refused = cluster.run(ADA, "ps --namespace=kube-system");
    assert_eq!(refused.code, FORBIDDEN, "{}", refused.err);
    assert_eq!(cluster.run(OSCAR, "delete train").code, FORBIDDEN);
    assert_eq!(cluster.run(ADA, "delete nothing").code, NOT_FOUND);
    let said = cluster.done(ADA, "delete train");
    assert!(said.contains("job train is deleted"), "{said}");
    cluster.until_running("waits");
    assert!(cluster.done(ADA, "why waits").contains("it does not wait"));
    until("the end of train", || (cluster.run(ADA, "get train").code == NOT_FOUND).then_some(()));
    the_hardware_is_minded_by_whom_may(&cluster);
}

/// What the agent of a node says of its hardware, and what it is asked.
fn the_hardware_is_minded_by_whom_may(cluster: &Cluster) {
    assert_eq!(cluster.run(OSCAR, "health").code, FORBIDDEN);
    let topologies = json!([{"apiGroups": ["phalanx.dev"], "resources": ["nodetopologies"], "verbs": ["get", "list", "patch"]}]);
    cluster.role("ClusterRole", "minds-hardware", OSCAR, &topologies);
    let none = until("the role", || {
        let said = cluster.run(OSCAR, "health");
        (said.code == 0).then_some(said.out)
    });
    assert!(none.contains("no agent has said what stands in a node"), "{none}");

    let machine = cluster.plane.folder().join("machine.json");
    let devices: Vec<Value> = (0..8).map(|device| json!({"index": device})).collect();
    let profile = json!({"system": {"nvml_version": "12.560.35"}, "device_defaults": {"name": "NVIDIA H100 80GB HBM3"}, "devices": devices});
    std::fs::write(&machine, profile.to_string()).unwrap();
    let mut agent = Command::new(env!("CARGO_BIN_EXE_phalanx"))
        .args(["node", "--node-name", "node-00001", "--kernel-log", "/nowhere", "--machine"])
        .arg(&machine)
        .arg("--kubeconfig")
        .arg(cluster.plane.kubeconfig())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("what the agent says", || {
        let said = cluster.done(OSCAR, "health");
        let all_is_well = "none of 8 GPUs is closed; watched: what the agent of 1 node published";
        said.contains(all_is_well).then_some(())
    });
    let said = cluster.done(OSCAR, "health report node-00001:3 --grade broken --reason fan");
    assert_eq!(said, "GPU node-00001:3 is graded broken\n");
    let health = cluster.done(OSCAR, "health node-00001");
    assert!(health.contains("node-00001:3  broken") && health.contains("an operator: fan"), "{health}");
    assert!(health.contains("1 of 8 GPUs closed"), "{health}");
    let nodes = cluster.done(OSCAR, "nodes");
    assert!(nodes.contains("Closed by health: node-00001 (GPU 3)"), "{nodes}");
    let line = &cluster.document(OSCAR, "health")["lines"][0];
    assert_eq!((&line["grade"], &line["next"]), (&json!("broken"), &json!("when_cleared")), "{line}");

    let refusals = [
        ("report node-00001:8 --xid 79", "node node-00001 has 8 GPUs, numbered from 0"),
        ("report node-00001 --xid 79", "an Xid is of a GPU"),
        ("report node-00001:1 --grade ok", "phalanx health clear"),
        ("clear node-00001:4", "it is ok already"),
        ("clear node-00000:4", "no agent has said what stands in node node-00000"),
    ];
    for (words, why) in refusals {
        let refused = cluster.run(OSCAR, &format!("health {words}"));
        assert!(refused.code != 0 && refused.err.contains(why), "{words}: {}", refused.err);
    }
    assert_eq!(cluster.run(ADA, "health clear node-00001:3").code, FORBIDDEN);
    let said = cluster.done(OSCAR, "health clear node-00001:3");
    assert_eq!(said, "GPU node-00001:3 is graded suspect\n");
    let _ = agent.kill();
    let _ = agent.wait();
}

fn the_jobs_are_listed(cluster: &Cluster) {
    let list = cluster.document(ADA, "ps");
    let jobs: Vec<(&str, &str)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| (job["name"].as_str().unwrap(), job["state"].as_str().unwrap()))
        .collect();
    assert_eq!(jobs, [("train", "running"), ("waits", "pending")]);
    let page = cluster.done(ADA, "ps");
    assert!(page.contains("NAME") && page.contains("train") && page.contains("node-0000"), "{page}");
    let top = cluster.done(ADA, "top job");
    let line = |of: &str| {
        top.lines().find(|line| line.starts_with(of)).unwrap_or_else(|| panic!("{top}")).to_owned()
    };
    let words = |line: String| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(line("train"))[4..6], ["16", "16"], "{top}");
    assert_eq!(words(line("waits"))[4..6], ["8", "0"], "{top}");
    let queues = until("a queue that counts", || {
        let queues = cluster.document(ADA, "queues");
        (queues["items"][0]["usage"]["gpus"]["used"] == "16").then_some(queues)
    });
    assert_eq!(queues["items"][0]["name"], "default", "{queues:#}");
    assert!(cluster.done(ADA, "queues default").contains("default"));
}

/// kwok prints for all containers what stands in one file, by way of the API server, as a kubelet does.
fn the_output_is_followed(cluster: &Cluster) {
    for line in ["epoch 1", "epoch 2"] {
        cluster.print(line);
    }
    assert_eq!(cluster.done(ADA, "logs train"), "epoch 1\nepoch 2\n");
    assert_eq!(cluster.done(ADA, "logs train --tail=1 --rank=1"), "epoch 2\n");
    // kwok knows no times of lines; what is older than it says is not printed.
    assert_eq!(cluster.done(ADA, "logs train --since 1s"), "");
    let none = cluster.run(ADA, "logs waits");
    assert_eq!(none.code, NOT_FOUND, "{}", none.err);
    assert!(none.err.contains("no such instance"), "{}", none.err);
    let mut follow = cluster.command(ADA, "logs -f train").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!([next(), next()], ["epoch 1", "epoch 2"]);
    cluster.print("epoch 3");
    assert_eq!(next(), "epoch 3");
    assert!(follow.try_wait().unwrap().is_none(), "it goes on as long as the container runs");
    follow.kill().unwrap();
    follow.wait().unwrap();
    let refused = cluster.run(OSCAR, "logs train");
    assert_eq!(refused.code, FORBIDDEN, "{}", refused.err);
}

fn nodes_are_minded_by_whom_may(cluster: &Cluster) {
    let is_cordoned =
        || cluster.plane.api().get("/api/v1/nodes/node-00001").unwrap()["spec"]["unschedulable"] == true;
    let refused = cluster.run(ADA, "cordon node-00001");
    assert!(refused.code == FORBIDDEN && refused.err.contains("nodes"), "{}", refused.err);
    assert!(!is_cordoned());
    assert_eq!(cluster.done(OSCAR, "cordon node-00001"), "node-00001 takes no new work\n");
    assert!(is_cordoned());
    let state = |nodes: &Value| nodes["items"][1]["state"].clone();
    assert_eq!(state(&cluster.document(OSCAR, "nodes")), "cordoned");
    assert_eq!(cluster.done(OSCAR, "uncordon node-00001"), "node-00001 takes work again\n");
    assert!(!is_cordoned());
    assert_eq!(state(&cluster.document(OSCAR, "nodes")), "open");
    assert_eq!(cluster.run(OSCAR, "cordon nothing").code, NOT_FOUND);
    let top = cluster.done(OSCAR, "top node");
    assert!(top.contains("Allocated/Total GPUs In Cluster: 16/16 (100.0%)"), "{top}");
}

/// By somebody who may read nodes and pods, and nothing else.
fn what_would_happen_is_told(cluster: &Cluster) {
    let file: PathBuf = cluster.plane.folder().join("snapshot.json");
    let written = cluster.run(OSCAR, &format!("snapshot {}", file.display()));
    assert_eq!(written.code, 0, "{}", written.err);
    assert!(written.out.contains("2 nodes and"), "{}", written.out);
    assert!(written.err.contains("taken as empty, because this user may not list them"), "{}", written.err);
    let snapshot: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(snapshot["kind"], "Snapshot");
    let from_file = cluster.done(OSCAR, &format!("sim whatif {} --drain node-00000", file.display()));
    let live = cluster.run(OSCAR, "sim whatif --live --to kubernetes --drain node-00000");
    assert_eq!(live.code, 0, "{}", live.err);
    for told in [&from_file, &live.out] {
        assert!(told.contains("node-00000"), "{told}");
    }
    // Nothing was done to the cluster.
    assert_eq!(
        cluster.plane.api().get("/api/v1/nodes/node-00000").unwrap()["spec"]["unschedulable"],
        Value::Null
    );
    let refused = cluster.run(ADA, "snapshot");
    assert!(refused.code == FORBIDDEN && refused.err.contains("nodes"), "{}", refused.err);
}
