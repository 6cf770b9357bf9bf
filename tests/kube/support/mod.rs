//! A real control plane with fake nodes, and the scheduler as a process of its own.

pub(crate) mod audit;
pub(crate) mod front;
pub(crate) mod groups;
pub(crate) mod kinds;
pub(crate) mod kubectl;
pub(crate) mod record;
pub(crate) mod role;
pub(crate) mod trap;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::Pid;
use phalanx_controlplane::{Api, ControlPlane, Error, Fleet, GPU, Options};
use phalanx_kube::world::ANSWER;
use serde_json::{Value, json};

use audit::Audit;
use front::Front;

pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// Far beyond what any of this takes; only what hangs gets there.
const PATIENCE: Duration = Duration::from_secs(120);

/// Deadlines of a scheduler, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) binding_s: u64,
    pub(crate) ready_s: u64,
    pub(crate) vacant_s: u64,
    /// Of a gang, before it may be preempted. 0, unlike the default of the program: most tests are about what follows.
    pub(crate) min_run_s: u64,
}

impl Times {
    /// For how long a gang may be there in part where no answer of the API server is lost: bindings are tried until the
    /// deadline. What was on its way then, the word to whoever takes the pods away, and their going are no more than what
    /// one answer may take.
    pub(crate) fn part(self) -> Duration {
        Duration::from_secs(self.binding_s) + ANSWER
    }
}

impl Default for Times {
    fn default() -> Self {
        Self { binding_s: 10, ready_s: 60, vacant_s: 20, min_run_s: 0 }
    }
}

/// A scheduler, and how it is started again.
struct Scheduler {
    child: Child,
    arguments: Vec<String>,
}

/// A cluster whose pods run and end as their annotations say.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    schedulers: RefCell<Vec<Scheduler>>,
    log: PathBuf,
    /// With which schedulers ask for the nodes of gangs.
    pub(crate) provisioning_class: Option<&'static str>,
    /// Schedulers use the nodes alone that were given to them.
    pub(crate) takes_labelled_nodes: bool,
    /// Of processes that are started from now on.
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// Where a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) name: String,
    pub(crate) node: Option<String>,
    pub(crate) devices: Option<String>,
    pub(crate) rank: Option<u32>,
    pub(crate) gang: String,
    pub(crate) phase: String,
}

/// The real controllers of Kubernetes, and pods that run.
pub(crate) fn options() -> Options {
    Options { controller_manager: true, kwok: true, ..Options::default() }
}

impl Cluster {
    /// So many nodes of 8 GPUs.
    pub(crate) fn of(nodes: usize) -> Self {
        Self::with(&options(), nodes)
    }

    /// The same of a control plane of one's choice.
    pub(crate) fn with(options: &Options, nodes: usize) -> Self {
        Self::of_fleet(options, &Fleet::new(nodes))
    }

    /// The same with nodes of one's choice. What its scheduler asks for is audited.
    pub(crate) fn of_fleet(options: &Options, fleet: &Fleet) -> Self {
        let plane = ControlPlane::start(&Options { audit: true, ..options.clone() }).unwrap();
        fleet.create(plane.api()).unwrap();
        let log = plane.folder().join("phalanx.log");
        let cluster = Self {
            plane,
            schedulers: RefCell::default(),
            log,
            provisioning_class: None,
            takes_labelled_nodes: false,
            environment: Vec::new(),
        };
        // New nodes have a taint until their controller has seen that they are ready, which may come after the first pods.
        cluster.until("nodes without taints", |cluster| {
            let nodes = cluster.api().get("/api/v1/nodes").unwrap();
            let mut nodes = nodes["items"].as_array().unwrap().iter();
            nodes.all(|node| node["spec"]["taints"].is_null()).then_some(())
        });
        cluster
    }

    pub(crate) fn api(&self) -> &Api {
        self.plane.api()
    }

    /// Starts a scheduler with the rights that are shipped, and no other; a lease of 0 seconds is none.
    pub(crate) fn schedule(&mut self, lease_s: u64) -> usize {
        self.schedule_within(lease_s, Times::default())
    }

    /// The same with deadlines of one's choice.
    pub(crate) fn schedule_within(&mut self, lease_s: u64, times: Times) -> usize {
        let kubeconfig = role::scheduler(&self.plane);
        self.schedule_with(&kubeconfig, lease_s, times)
    }

    /// The same by way of a front.
    pub(crate) fn schedule_through(&mut self, front: &Front, lease_s: u64, times: Times) -> usize {
        self.schedule_with(&front.kubeconfig, lease_s, times)
    }

    fn schedule_with(&mut self, kubeconfig: &Path, lease_s: u64, times: Times) -> usize {
        let Times { binding_s, ready_s, vacant_s, min_run_s } = times;
        let mut arguments = vec!["scheduler".to_owned(), kubeconfig.display().to_string()];
        arguments.extend([lease_s.to_string(), role::NAMESPACE.to_owned()]);
        arguments.extend([binding_s, ready_s, vacant_s, min_run_s].map(|seconds| seconds.to_string()));
        arguments.push(if self.takes_labelled_nodes { "labelled" } else { "all" }.to_owned());
        arguments.extend(self.provisioning_class.map(str::to_owned));
        let child = self.spawn(&arguments);
        let mut schedulers = self.schedulers.borrow_mut();
        schedulers.push(Scheduler { child, arguments });
        schedulers.len() - 1
    }

    fn spawn(&self, arguments: &[String]) -> Child {
        let log = || Stdio::from(File::options().create(true).append(true).open(&self.log).unwrap());
        Command::new(env!("CARGO_BIN_EXE_phalanx-test-daemon"))
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("LISTEN", "127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log())
            .spawn()
            .unwrap()
    }

    /// Starts the agent of a node, as somebody, with a description of its machine; with the folder of its kubelet it is
    /// its device plugin too.
    pub(crate) fn serve_node(
        &mut self,
        kubeconfig: &Path,
        node: &str,
        machine: &Path,
        kubelet: Option<&Path>,
    ) -> u32 {
        let path = |path: &Path| path.display().to_string();
        let mut arguments = vec!["node".to_owned(), path(kubeconfig), node.to_owned(), path(machine)];
        arguments.extend(kubelet.map(path));
        let child = self.spawn(&arguments);
        let pid = child.id();
        self.schedulers.get_mut().push(Scheduler { child, arguments });
        pid
    }

    /// Starts a server of the API; its number, as of a scheduler, and its address.
    pub(crate) fn serve(&mut self, kubeconfig: &Path) -> (usize, String) {
        let arguments = vec!["server".to_owned(), kubeconfig.display().to_string()];
        let child = self.spawn(&arguments);
        self.schedulers.get_mut().push(Scheduler { child, arguments });
        let url = self.until("an API that is served", |cluster| {
            let lines = cluster.lines();
            let is_it = |line: &&Value| line["message"] == "serves the API and the dashboard";
            Some(lines.iter().rfind(is_it)?["address"].as_str()?.to_owned())
        });
        (self.schedulers.get_mut().len() - 1, url)
    }

    /// Waits for the process that was started last to end by itself.
    pub(crate) fn until_ended(&mut self) -> std::process::ExitStatus {
        let mut child = self.schedulers.get_mut().pop().unwrap().child;
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if began.elapsed() > PATIENCE {
                let _ = child.kill();
                child.wait().unwrap();
                panic!("it did not end:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends a scheduler at once, as a lost machine would.
    pub(crate) fn kill(&mut self, scheduler: usize) {
        let child = &mut self.schedulers.borrow_mut()[scheduler].child;
        let _ = child.kill();
        child.wait().unwrap();
    }

    /// The process of a scheduler.
    pub(crate) fn pid(&self, scheduler: usize) -> Pid {
        Pid::from_raw(i32::try_from(self.schedulers.borrow()[scheduler].child.id()).unwrap())
    }

    pub(crate) fn has_ended(&self, scheduler: usize) -> bool {
        self.schedulers.borrow_mut()[scheduler].child.try_wait().unwrap().is_some()
    }

    /// Where the process that was started last serves health and metrics.
    pub(crate) fn served_at(&self) -> SocketAddr {
        self.until("an address that is served", |cluster| {
            let lines = cluster.lines();
            let is_it = |line: &&Value| line["message"] == "serves /healthz, /readyz and /metrics";
            lines.iter().rfind(is_it)?["address"].as_str()?.parse().ok()
        })
    }

    /// What the processes said so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The same line by line: each is a JSON object. One that is being written is none yet.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let log = self.log();
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        let object =
            |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        whole.lines().map(object).collect()
    }

    /// Starts those again that have ended, as a kubelet does. None may have ended by a broken promise.
    pub(crate) fn keep_alive(&self) {
        for scheduler in self.schedulers.borrow_mut().iter_mut() {
            let Some(status) = scheduler.child.try_wait().unwrap() else { continue };
            // A panic of the main thread is 101, or an abort.
            assert!(status.signal() == Some(9) || status.code() == Some(1), "{status}:\n{}", self.log());
            scheduler.child = self.spawn(&scheduler.arguments);
        }
        assert!(!self.log().contains("panicked"), "{}", self.log());
    }

    pub(crate) fn create(&self, path: &str, object: &Value) -> Value {
        let create = |_: &Self| match self.api().post(path, object) {
            // The API server admits pods by a list of classes of its own, which may not have the newest yet.
            Err(Error::Refused { message, .. }) if message.contains("no PriorityClass with name") => None,
            answer => Some(answer),
        };
        self.until("an API server that knows the class", create).unwrap()
    }

    pub(crate) fn seats(&self) -> Vec<Seat> {
        let pods = self.api().get("/api/v1/pods").unwrap();
        pods["items"].as_array().unwrap().iter().map(seat).collect()
    }

    /// Pods by gang that have a node, and those that have none.
    pub(crate) fn bound(&self) -> BTreeMap<String, (usize, usize)> {
        let mut gangs: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for seat in self.seats().into_iter().filter(|seat| seat.phase != "Succeeded") {
            let of = gangs.entry(seat.gang).or_default();
            if seat.node.is_some() {
                of.0 += 1;
            } else {
                of.1 += 1;
            }
        }
        gangs
    }

    /// Pods that count against a Job.
    pub(crate) fn failures(&self, job: &str) -> u64 {
        self.api().get(&format!("{JOBS}/{job}")).unwrap()["status"]["failed"].as_u64().unwrap_or(0)
    }

    /// What `look` gives as soon as it gives something.
    pub(crate) fn until<T>(&self, what: &str, look: impl FnMut(&Self) -> Option<T>) -> T {
        self.until_within(PATIENCE, what, look)
    }

    /// The same for what takes longer.
    pub(crate) fn until_within<T>(
        &self,
        patience: Duration,
        what: &str,
        mut look: impl FnMut(&Self) -> Option<T>,
    ) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            if began.elapsed() > patience {
                let log = self.log();
                let pods = self.api().get("/api/v1/pods").unwrap();
                let told = pods["items"].as_array().unwrap().iter().map(|pod| {
                    let conditions = pod["status"]["conditions"].as_array();
                    let waits = conditions.into_iter().flatten().find(|one| one["type"] == "PodScheduled");
                    format!("{:?} {}", seat(pod), waits.map_or(&Value::Null, |one| &one["message"]))
                });
                let seats: Vec<String> = told.collect();
                let (seats, groups) = (seats.join("\n"), self.told_on_groups());
                panic!("{what} did not happen; the scheduler said:\n{log}\nand pods are\n{seats}\n{groups}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until all pods of a gang run.
    pub(crate) fn until_runs(&self, gang: &str, pods: usize) -> Vec<Seat> {
        self.until(&format!("{gang} with {pods} pods"), |cluster| {
            let of_it: Vec<Seat> = cluster.seats().into_iter().filter(|seat| seat.gang == gang).collect();
            let run =
                of_it.iter().filter(|seat| seat.phase == "Running" || seat.phase == "Succeeded").count();
            (run == pods).then_some(of_it)
        })
    }

    /// Why a pod waits, as its condition says.
    pub(crate) fn until_explained(&self, pod: &str, words: &str) -> String {
        self.until(&format!("{words:?} on {pod}"), |cluster| {
            let pod = cluster.api().get(&format!("{PODS}/{pod}")).ok()?;
            let conditions = pod["status"]["conditions"].as_array()?;
            let waits = conditions.iter().find(|condition| condition["type"] == "PodScheduled")?;
            let message = waits["message"].as_str()?.to_owned();
            message.contains(words).then_some(message)
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for scheduler in self.schedulers.get_mut() {
            let _ = scheduler.child.kill();
            let _ = scheduler.child.wait();
        }
        // Whatever the test was about, its scheduler has asked for nothing that the roles do not allow.
        if !std::thread::panicking() {
            Audit::of(&self.plane.audit_log(), role::USER).assert_nothing_was_denied();
        }
    }
}

fn seat(pod: &Value) -> Seat {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let annotations = &pod["metadata"]["annotations"];
    let labels = &pod["metadata"]["labels"];
    let owners = ["gang", "batch.kubernetes.io/job-name", "training.kubeflow.org/job-name"];
    let named = owners.iter().find_map(|owner| text(&labels[*owner]));
    let name = text(&pod["metadata"]["name"]).unwrap();
    Seat {
        node: text(&pod["spec"]["nodeName"]),
        devices: text(&annotations["phalanx.dev/devices"]),
        rank: text(&annotations["phalanx.dev/rank"]).and_then(|rank| rank.parse().ok()),
        gang: named.unwrap_or_else(|| name.clone()),
        phase: text(&pod["status"]["phase"]).unwrap_or_default(),
        name,
    }
}

/// A pod of this scheduler with so many GPUs.
pub(crate) fn pod(name: &str, gpus: u32) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "schedulerName": "phalanx",
            "restartPolicy": "Never",
            "containers": [{
                "name": "main",
                "image": "none",
                "resources": { "limits": { GPU: gpus.to_string(), "cpu": "4", "memory": "8Gi" } },
            }],
        },
    })
}

/// A pod of somebody else that has all GPUs of the node at a place.
pub(crate) fn taken(name: &str, node: usize) -> Value {
    let mut taken = pod(name, 8);
    taken["spec"]["schedulerName"] = json!("somebody-else");
    taken["spec"]["nodeName"] = json!(Fleet::name(node));
    taken["spec"]["terminationGracePeriodSeconds"] = json!(0);
    taken
}

/// An indexed Job of so many pods, each with so many GPUs. `annotations` are those of its pods.
pub(crate) fn job(name: &str, pods: u32, gpus: u32, annotations: &Value) -> Value {
    let template = pod("", gpus)["spec"].clone();
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": name },
        "spec": {
            "completions": pods,
            "parallelism": pods,
            "completionMode": "Indexed",
            "template": { "metadata": { "annotations": annotations }, "spec": template },
        },
    })
}

/// No two pods that live have a device in common, and no node more than it has.
pub(crate) fn assert_disjoint(seats: &[Seat]) {
    let mut taken: BTreeMap<(String, u32), String> = BTreeMap::new();
    for seat in seats.iter().filter(|seat| !matches!(&*seat.phase, "Succeeded" | "Failed")) {
        let (Some(node), Some(devices)) = (&seat.node, &seat.devices) else { continue };
        let devices: phalanx_model::DeviceMask = devices.parse().unwrap();
        for device in devices.iter() {
            assert!(device < 8, "{seat:?}");
            if let Some(other) = taken.insert((node.clone(), device), seat.name.clone()) {
                panic!("{} and {other} both have device {device} of {node}", seat.name);
            }
        }
    }
}
