//! A control plane that runs: started together, ended together.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::api::Api;
use crate::build::{binary, cache, crds};
use crate::command_lines::Layout;
use crate::error::Error;
use crate::image::Image;
use crate::kubernetes::KubernetesVersion;
use crate::node::{self, Node, Nodes, Surroundings};
use crate::ports::{self, Port};
use crate::process::{Keeper, Process};
use crate::program::Program;

/// The user who may do everything.
pub(crate) const ADMIN: &str = "admin";

/// How long one program may take from its start until it is ready: seconds, and a minute on a machine that does ten
/// other things.
const READY_WITHIN: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a control plane consists of beside etcd and kube-apiserver.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// By default the version that [`KubernetesVersion::chosen`] gives.
    pub kubernetes: Option<KubernetesVersion>,
    /// kube-controller-manager: jobs, service accounts, garbage collection, taints of nodes. Without it pods need no
    /// service account and new nodes get no taint.
    pub controller_manager: bool,
    pub kube_scheduler: bool,
    /// kwok, which makes pods on the nodes of a [`crate::Fleet`] run; `stages.yaml` says what their annotations can
    /// ask for. Where it runs, the controller manager watches over nodes too.
    pub kwok: bool,
    /// Nodes with a real kubelet, beside those of a [`crate::Fleet`], called as [`Node::name_of`] says. They need root and
    /// what [`crate::missing_for_nodes`] names. Where they run, a node whose kubelet is silent is not ready after seconds.
    pub real_nodes: usize,
    /// `CoreDNS` between the real nodes: pods find services, and pods behind services, by name.
    pub cluster_dns: bool,
    /// The job controllers of kubeflow, with their CRDs.
    pub training_operator: bool,
    /// Every request is written to [`ControlPlane::audit_log`], one JSON object in each line.
    pub audit: bool,
    /// Who else has a kubeconfig, with no rights but those that RBAC objects give.
    pub users: Vec<User>,
}

/// Somebody who can log in.
#[derive(Clone, Debug)]
pub struct User {
    /// As in RBAC: letters, digits, `-`, `.` and `:`.
    pub name: String,
    pub groups: Vec<String>,
}

/// A control plane on loopback, with its state in a temporary folder; both are gone when it is dropped, and when
/// the process ends without dropping it.
#[derive(Debug)]
pub struct ControlPlane {
    // Ended first, then the nodes, the processes and the folder: see `Drop`.
    keeper: Keeper,
    nodes: Option<Nodes>,
    processes: BTreeMap<Program, Process>,
    programs: BTreeMap<Program, PathBuf>,
    layout: Layout,
    api: Api,
    _ports: Vec<Port>,
    _folder: tempfile::TempDir,
}

impl ControlPlane {
    /// Builds what is missing, starts all that `options` ask for, and waits until it is ready.
    ///
    /// # Errors
    /// When a program cannot be built, ends, or is not ready in time; what was started is ended then.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let kubernetes = options.kubernetes.map_or_else(KubernetesVersion::chosen, Ok)?;
        let mut programs = BTreeMap::new();
        for program in asked(options) {
            programs.insert(program, binary(program.source(kubernetes))?);
        }
        let folder = tempfile::Builder::new().prefix(node::PREFIX).tempdir();
        let folder = folder.map_err(Error::io("create a folder in", std::env::temp_dir()))?;
        let (layout, ports) = lay_out(folder.path(), kubernetes, options)?;
        let mut users = options.users.clone();
        users.extend((0..options.real_nodes).map(|at| node::user_of(&Node::name_of(at))));
        write_users(&layout, &users)?;
        let mut keeper = Keeper::start(folder.path())?;
        let mut processes = BTreeMap::new();
        for program in [Program::Etcd, Program::ApiServer] {
            let process = start(program, &programs, &layout, &mut keeper)?;
            processes.insert(program, process);
            let process = processes.get_mut(&program).ok_or(Error::NotThere { program })?;
            wait(program, &layout, process)?;
        }
        let api = Api::of_kubeconfig(&layout.kubeconfig(ADMIN))?;
        let nodes = None;
        let mut plane =
            Self { keeper, nodes, processes, programs, layout, api, _ports: ports, _folder: folder };
        plane.start_others()?;
        if options.real_nodes > 0 {
            plane.start_nodes(options)?;
        }
        Ok(plane)
    }

    fn start_others(&mut self) -> Result<(), Error> {
        let others: Vec<Program> = self.programs.keys().copied().collect();
        for program in others {
            if program == Program::TrainingOperator {
                self.create_crds()?;
            }
            if !self.processes.contains_key(&program) {
                self.run(program)?;
            }
        }
        if self.layout.has_controllers {
            self.wait_for_service_account()?;
        }
        Ok(())
    }

    fn start_nodes(&mut self, options: &Options) -> Result<(), Error> {
        let dns = options.cluster_dns.then(|| binary(Program::CoreDns.source(self.layout.kubernetes)));
        let (dns, admin) = (dns.transpose()?, self.kubeconfig());
        let kubelet = binary(Program::Kubelet.source(self.layout.kubernetes))?;
        let around = Surroundings {
            folder: &self.layout.folder,
            api: &self.api,
            api_server: self.layout.api_server,
            kubelet: &kubelet,
            dns: dns.as_deref().map(|program| (program, &*admin)),
        };
        let kubeconfig = |name: &str| self.layout.kubeconfig(&node::user_of(name).name);
        self.nodes = Some(Nodes::start(options.real_nodes, &around, kubeconfig, &mut self.keeper)?);
        Ok(())
    }

    /// The real nodes of [`Options::real_nodes`].
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        self.nodes.as_ref().map_or(&[], |nodes| &nodes.all)
    }

    /// Makes an image known to all real nodes, under its name; pods need no registry for it.
    ///
    /// # Errors
    /// When it cannot be put together, or a node does not take it.
    pub fn import(&self, image: &Image) -> Result<(), Error> {
        self.nodes().iter().try_for_each(|node| node.import(image))
    }

    /// The same of an archive that somebody wrote, such as [`Image::write`]. Its name is in it.
    ///
    /// # Errors
    /// When a node does not take it.
    pub fn import_archive(&self, archive: &Path) -> Result<(), Error> {
        self.nodes().iter().try_for_each(|node| node.import_archive(archive))
    }

    /// Bounds what a real node sends to the others and takes from them, in bytes/s of Ethernet frames, until it is bounded
    /// anew; without a number nothing bounds it. Pods of one node talk past that.
    ///
    /// # Errors
    /// When there is no such node, or the kernel has no token bucket (`sch_tbf`).
    pub fn shape(&self, at: usize, bytes_per_s: Option<u64>) -> Result<(), Error> {
        let nodes = self.nodes.as_ref().ok_or(Error::NotThere { program: Program::Kubelet })?;
        nodes.shape(at, bytes_per_s)
    }

    /// Kills the kubelet of a real node; its containers go on, as on a node that is cut off.
    pub fn stop_kubelet(&mut self, at: usize) {
        if let Some(node) = self.nodes.as_mut().and_then(|nodes| nodes.all.get_mut(at)) {
            node.stop_kubelet();
        }
    }

    /// Starts the kubelet of a real node again, and waits until the node is ready.
    ///
    /// # Errors
    /// When there is no such node, or it is not ready in time.
    pub fn start_kubelet(&mut self, at: usize) -> Result<(), Error> {
        let node = self.nodes.as_mut().and_then(|nodes| nodes.all.get_mut(at));
        let node = node.ok_or(Error::NotThere { program: Program::Kubelet })?;
        node.restart_kubelet(&self.api, &mut self.keeper)
    }

    /// Starts a program of the options again that was stopped, or one beyond them, and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot be built, ends, or is not ready in time; or when it is a program of nodes.
    pub fn run(&mut self, program: Program) -> Result<(), Error> {
        self.stop(program);
        self.programs.insert(program, binary(program.source(self.layout.kubernetes))?);
        let mut process = start(program, &self.programs, &self.layout, &mut self.keeper)?;
        wait(program, &self.layout, &mut process)?;
        self.processes.insert(program, process);
        Ok(())
    }

    /// Kills the programs of Kubernetes and starts those of another version in their stead, on the same state.
    ///
    /// # Errors
    /// When one cannot be built, ends, or is not ready in time.
    pub fn upgrade(&mut self, to: KubernetesVersion) -> Result<(), Error> {
        let of_kubernetes = [Program::ApiServer, Program::ControllerManager, Program::KubeScheduler];
        let programs = of_kubernetes.into_iter().filter(|program| self.programs.contains_key(program));
        let programs: Vec<Program> = programs.collect();
        programs.iter().rev().for_each(|program| self.stop(*program));
        self.layout.kubernetes = to;
        programs.into_iter().try_for_each(|program| self.run(program))
    }

    /// Kills a program, if it runs.
    pub fn stop(&mut self, program: Program) {
        self.processes.remove(&program);
    }

    /// Also kills `pid`, which runs `executable`, when this process ends without dropping this: for clients under
    /// test, which their owner ends otherwise.
    ///
    /// # Errors
    /// When there is no such executable.
    pub fn keep(&mut self, pid: u32, executable: &Path) -> Result<(), Error> {
        self.keeper.keep(pid, executable)
    }

    /// The process of a program that runs.
    #[must_use]
    pub fn pid(&self, program: Program) -> Option<u32> {
        self.processes.get(&program).map(Process::pid)
    }

    /// The version of its API server, controllers and scheduler.
    #[must_use]
    pub fn kubernetes(&self) -> KubernetesVersion {
        self.layout.kubernetes
    }

    /// The API, as somebody who may do everything.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// The kubeconfig of somebody who may do everything.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig(ADMIN)
    }

    /// The kubeconfig of one of [`Options::users`].
    #[must_use]
    pub fn kubeconfig_of(&self, user: &str) -> PathBuf {
        self.layout.kubeconfig(user)
    }

    /// Writes a kubeconfig for a service account that exists, and says where; its token holds for an hour.
    ///
    /// # Errors
    /// When there is no such service account, or the file cannot be written.
    pub fn kubeconfig_of_service_account(&self, namespace: &str, name: &str) -> Result<PathBuf, Error> {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 3_600}});
        let answer = self.api.post(&path, &request)?;
        let token = answer["status"]["token"].as_str().unwrap_or_default();
        write_kubeconfig(&self.layout, &format!("{namespace}.{name}"), token)
    }

    /// The file that [`Options::audit`] asks for.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.layout.audit_log()
    }

    /// Where kwok serves as the kubelet of all nodes whose [`crate::Fleet::kubelet_port`] says so.
    #[must_use]
    pub fn kubelet_port(&self) -> u16 {
        self.layout.kwok
    }

    /// What every container on such a node is said to have printed: lines of `TIME stdout F TEXT`, in a file that is not
    /// there at first.
    #[must_use]
    pub fn container_log(&self) -> PathBuf {
        self.layout.container_log()
    }

    /// The folder with the state and a log of each program, `NAME.log`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.layout.folder
    }

    fn create_crds(&self) -> Result<(), Error> {
        for file in crds(Program::TrainingOperator.source(self.layout.kubernetes))? {
            let text = fs::read_to_string(&file).map_err(Error::io("read", &file))?;
            self.api.post_yaml("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &text)?;
        }
        Ok(())
    }

    /// Pods are refused until a controller has made the account that they use.
    fn wait_for_service_account(&mut self) -> Result<(), Error> {
        let (api, program) = (self.api.clone(), Program::ControllerManager);
        let process = self.processes.get_mut(&program).ok_or(Error::NotThere { program })?;
        until(program, process, || {
            let asked = api.get("/api/v1/namespaces/default/serviceaccounts/default");
            asked.map(|_| ()).map_err(|e| e.to_string())
        })
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // Before the processes: the numbers that it knows are theirs only as long as they are not waited for.
        self.keeper.end();
        self.nodes = None;
        self.processes.clear();
    }
}

/// In the order in which they start.
fn asked(options: &Options) -> Vec<Program> {
    let others = [
        (options.controller_manager, Program::ControllerManager),
        (options.kube_scheduler, Program::KubeScheduler),
        (options.kwok, Program::Kwok),
        (options.training_operator, Program::TrainingOperator),
    ];
    let others = others.into_iter().filter_map(|(is_asked, program)| is_asked.then_some(program));
    [Program::Etcd, Program::ApiServer].into_iter().chain(others).collect()
}

fn lay_out(
    folder: &Path,
    kubernetes: KubernetesVersion,
    options: &Options,
) -> Result<(Layout, Vec<Port>), Error> {
    let locks = cache()?.join("ports");
    let mut ports = Vec::new();
    let mut next = || -> Result<u16, Error> {
        let port = ports::free(&locks)?;
        let number = port.number;
        ports.push(port);
        Ok(number)
    };
    let layout = Layout {
        kubernetes,
        folder: folder.to_path_buf(),
        etcd: next()?,
        etcd_peers: next()?,
        api_server: next()?,
        controller_manager: next()?,
        kube_scheduler: next()?,
        kwok: next()?,
        training_operator: next()?,
        has_controllers: options.controller_manager,
        has_kubelets: options.kwok || options.real_nodes > 0,
        has_real_kubelets: options.real_nodes > 0,
        has_audit: options.audit,
    };
    Ok((layout, ports))
}

/// A token and a kubeconfig for everybody.
fn write_users(layout: &Layout, users: &[User]) -> Result<(), Error> {
    let masters = User { name: ADMIN.to_owned(), groups: vec!["system:masters".to_owned()] };
    let programs = [Program::ControllerManager, Program::KubeScheduler];
    let programs =
        programs.map(|program| User { name: Layout::user(program).to_owned(), groups: Vec::new() });
    let mut lines = String::new();
    for user in [&masters].into_iter().chain(&programs).chain(users) {
        let token = random_token()?;
        let line = format!("{token},\"{0}\",\"{0}\",\"{1}\"\n", user.name, user.groups.join(","));
        lines.push_str(&line);
        write_kubeconfig(layout, &user.name, &token)?;
    }
    fs::write(layout.tokens(), lines).map_err(Error::io("write", layout.tokens()))
}

fn write_kubeconfig(layout: &Layout, user: &str, token: &str) -> Result<PathBuf, Error> {
    let path = layout.kubeconfig(user);
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "phalanx",
        "contexts": [{"name": "phalanx", "context": {"cluster": "phalanx", "user": user}}],
        "clusters": [{"name": "phalanx", "cluster": {
            "server": layout.server(), "certificate-authority": layout.authority()}}],
        "users": [{"name": user, "user": {"token": token}}],
    });
    fs::write(&path, format!("{text:#}\n")).map_err(Error::io("write", &path))?;
    Ok(path)
}

fn random_token() -> Result<String, Error> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0_u8; 16];
    let read = fs::File::open(source).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(Error::io("read", source))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn start(
    program: Program,
    programs: &BTreeMap<Program, PathBuf>,
    layout: &Layout,
    keeper: &mut Keeper,
) -> Result<Process, Error> {
    let executable = programs.get(&program).ok_or(Error::NotThere { program })?;
    for (path, text) in layout.files(program) {
        fs::write(&path, text).map_err(Error::io("write", &path))?;
    }
    let mut command = Command::new(executable);
    command.args(layout.arguments(program).ok_or(Error::NotThere { program })?);
    command.current_dir(&layout.folder);
    if program == Program::TrainingOperator {
        command.env("KUBECONFIG", layout.kubeconfig(Layout::user(program)));
    }
    let log = layout.folder.join(format!("{}.log", program.name()));
    Process::start(program.name(), command, log, keeper)
}

/// Until the program says that it is ready.
fn wait(program: Program, layout: &Layout, process: &mut Process) -> Result<(), Error> {
    let (server, path) = layout.health(program).ok_or(Error::NotThere { program })?;
    let api = Api::unverified(&server);
    until(program, process, || api.text(path).map(|_| ()).map_err(|e| e.to_string()))
}

fn until(
    program: Program,
    process: &mut Process,
    mut is_ready: impl FnMut() -> Result<(), String>,
) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        let last = match is_ready() {
            Ok(()) => return Ok(()),
            Err(why) => why,
        };
        process.check()?;
        if began.elapsed() > READY_WITHIN {
            let (seconds, log) = (READY_WITHIN.as_secs(), process.log_end());
            return Err(Error::NotReady { program, seconds, last, log });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
