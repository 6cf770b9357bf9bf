//! Stands in for the `phalanx` executable in the tests of real processes.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use jiff::tz::TimeZone;
use nix::sys::signal::{SigSet, Signal};
use phalanx_api::client::{ClientError, ask};
use phalanx_api::http::CertificateFiles;
use phalanx_api::protocol::Answer;
use phalanx_kube::agent::{self, Hardware, PluginSettings};
use phalanx_kube::gang;
use phalanx_kube::plugin::Injection;
use phalanx_kube::recognise::NodesUsed;
use phalanx_kube::server;
use phalanx_kube::world::{self, LeaseSettings, Settings};
use phalanx_local::Paths;
use phalanx_local::daemon::{ApiAt, ApiTls, UpOptions, up};
use phalanx_local::preflight::PreflightOptions;
use phalanx_model::QueueName;
use phalanx_node::terminal::keeper;
use phalanx_node::{confined, shim};
use phalanx_shell::log;
use phalanx_sim::command::{Command, Host};
use phalanx_sim::report::Progress;
use std::time::Duration;

fn main() -> ExitCode {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let words: Vec<&Path> = args.iter().map(PathBuf::as_path).collect();
    match words.as_slice() {
        [verb, dir] if verb.as_os_str() == "__shim" => {
            wait_while_held(dir);
            shim::main(dir)
        }
        [verb] if verb.as_os_str() == "__hold" => hold(),
        [verb, words @ ..] if verb.as_os_str() == keeper::SUBCOMMAND => keep(words),
        [verb] if verb.as_os_str() == "__confine" => confined::main(),
        [verb] if verb.as_os_str() == "__post" => phalanx_local::post(),
        [verb, state, files @ ..] if verb.as_os_str() == "up" => told(run(state, files)),
        [verb, kubeconfig, lease_s, namespace, times @ ..] if verb.as_os_str() == "scheduler" => {
            logged(schedule(kubeconfig, lease_s, namespace, times))
        }
        [verb, kubeconfig] if verb.as_os_str() == "server" => logged(serve_cluster(kubeconfig)),
        [verb, kubeconfig, node, machine, kubelet @ ..] if verb.as_os_str() == "node" => {
            logged(serve_node(kubeconfig, node, machine, kubelet.first().copied()))
        }
        [verb, socket] if verb.as_os_str() == "ask" => told(relay(socket)),
        [verb, words @ ..] if verb.as_os_str() == "sim" => simulate(words),
        _ => {
            eprintln!(
                "usage: phalanx-test-daemon up STATE [CLUSTER [QUEUES]] | scheduler KUBECONFIG LEASE-SECONDS LEASE-NAMESPACE [BINDING-SECONDS READY-SECONDS VACANT-SECONDS [all | labelled [PROVISIONING-CLASS]]] | node KUBECONFIG NODE MACHINE-FILE [KUBELET-FOLDER] | server KUBECONFIG | ask SOCKET | sim … | __shim DIR | __hold | __terminal … | __confine | __post"
            );
            ExitCode::from(2)
        }
    }
}

/// The simulator, as the executable runs it for the daemon.
fn simulate(words: &[&Path]) -> ExitCode {
    struct Terminal;

    impl Host for Terminal {
        fn words(&mut self) -> Vec<String> {
            std::env::args().skip(1).collect()
        }

        fn zone(&mut self) -> TimeZone {
            TimeZone::UTC
        }

        fn seconds(&mut self) -> f64 {
            0.0
        }

        fn note(&mut self, text: &str) {
            eprintln!("note: {text}");
        }

        fn progress(&mut self, _: Option<Progress<'_>>) {}
    }

    // A file `held/simulator` beside the state folder holds each simulator that has a folder: STATE/what-if/NUMBER.
    let beside =
        std::env::current_dir().ok().and_then(|dir| Some(dir.ancestors().nth(3)?.join("held/simulator")));
    while beside.as_ref().is_some_and(|file| file.exists()) {
        std::thread::sleep(Duration::from_millis(20));
    }
    let words: Vec<String> = words.iter().map(|word| word.display().to_string()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = Command::read(&words)
        .map_err(|error| error.to_string())
        .and_then(|command| command.run(&mut Terminal).map_err(|error| format!("error: {error}\n")));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("{error}");
            ExitCode::from(64)
        }
    }
}

fn keep(words: &[&Path]) -> ExitCode {
    let words: Vec<String> = words.iter().map(|word| word.display().to_string()).collect();
    keeper::Ask::read(&words).map_or(ExitCode::from(2), |ask| keeper::main(&ask))
}

fn told(done: Result<(), Box<dyn Error>>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// As the executable says it: the last line of the log.
fn logged(done: Result<(), Box<dyn Error>>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::end(&error.to_string(), "");
            ExitCode::FAILURE
        }
    }
}

fn run(state: &Path, files: &[&Path]) -> Result<(), Box<dyn Error>> {
    log::begin(log::Format::Text, log::Level::Info);
    let file = |at: usize| files.get(at).map(|file| file.to_path_buf());
    let (cluster, queues) = (file(0), file(1));
    let mut options = UpOptions { cluster, queues, ..UpOptions::new(Paths::new(state)) };
    // The machine as it is found, with a kernel log of the test's.
    if let Some(kernel_log) = std::env::var_os("PHALANX_TEST_KERNEL_LOG") {
        options.cluster = None;
        options.kernel_log = kernel_log.into();
        options.sample_every = Duration::from_millis(100);
        options.idle_after = Duration::from_secs(2);
        options.dcgm_job_mapping = Some(state.join("dcgm"));
        options.dcgm = std::env::var("PHALANX_TEST_DCGM").ok();
        if let Some(sysfs) = std::env::var_os("PHALANX_TEST_SYSFS") {
            options.sysfs = sysfs.into();
        }
    }
    if let Ok(at) = std::env::var("PHALANX_TEST_API") {
        options.api = ApiAt::Address(at.parse()?);
    }
    if let Some(folder) = std::env::var_os("PHALANX_TEST_API_TLS").map(PathBuf::from) {
        let files = CertificateFiles { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
        options.api_tls = Some(ApiTls { files, names: Vec::new() });
    }
    options.api_oidc = std::env::var_os("PHALANX_TEST_API_OIDC").map(PathBuf::from);
    if let Ok(command) = std::env::var("PHALANX_TEST_PREFLIGHT") {
        let (every, timeout) = (Duration::from_secs(3_600), Duration::from_secs(10));
        options.preflight = Some(PreflightOptions { command, every, timeout });
    }
    Ok(up(&options)?)
}

/// The server of a Kubernetes cluster.
fn serve_cluster(kubeconfig: &Path) -> Result<(), Box<dyn Error>> {
    log::begin(log::Format::Json, log::Level::Info);
    let address =
        |variable: &str| std::env::var(variable).ok().map(|at| at.parse::<SocketAddr>()).transpose();
    server::run(&server::Settings {
        kubeconfig: Some(kubeconfig.to_path_buf()),
        context: None,
        options: gang::Options::of_queue(QueueName::new("default")?),
        listen: address("PHALANX_TEST_API")?.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0))),
        certificate: None,
        names: Vec::new(),
        metrics: address("LISTEN")?,
    })?;
    Ok(())
}

/// The scheduler of a Kubernetes cluster; a lease of 0 seconds is none.
fn schedule(
    kubeconfig: &Path,
    lease_s: &Path,
    namespace: &Path,
    times: &[&Path],
) -> Result<(), Box<dyn Error>> {
    let seconds = |text: &Path| -> Result<Duration, Box<dyn Error>> {
        Ok(Duration::from_secs(text.to_str().unwrap_or_default().parse()?))
    };
    log::begin(log::Format::Json, log::Level::Info);
    let length = seconds(lease_s)?;
    let time = |at: usize, otherwise: u64| {
        times.get(at).map_or(Ok(Duration::from_secs(otherwise)), |text| seconds(text))
    };
    let (binding, ready, vacant, min_run) = (time(0, 10)?, time(1, 60)?, time(2, 20)?, time(3, 0)?);
    let milliseconds = |time: Duration| u64::try_from(time.as_millis());
    let lease = (!length.is_zero()).then(|| LeaseSettings {
        namespace: namespace.display().to_string(),
        name: "phalanx-scheduler".to_owned(),
        holder: world::holder(),
        length,
        renew: length / 5,
    });
    let is_labelled = times.get(4).is_some_and(|nodes| nodes.as_os_str() == "labelled");
    let options = gang::Options {
        nodes: if is_labelled { NodesUsed::Labelled } else { NodesUsed::All },
        ready_ms: milliseconds(ready)?,
        vacant_ms: milliseconds(vacant)?,
        min_run_ms: milliseconds(min_run)?,
        ..gang::Options::of_queue(QueueName::new("default")?)
    };
    Ok(world::run(&Settings {
        kubeconfig: Some(kubeconfig.into()),
        context: None,
        options,
        binding,
        lease,
        listen: listen()?,
        otlp_endpoint: None,
        provisioning_class: times.get(5).map(|class| class.display().to_string()),
    })?)
}

/// Where health and metrics are to be served, as the environment says.
fn listen() -> Result<Option<SocketAddr>, Box<dyn Error>> {
    Ok(std::env::var("LISTEN").ok().map(|at| at.parse()).transpose()?)
}

/// The agent of a node; with its kubelet's folder it is the device plugin too.
fn serve_node(
    kubeconfig: &Path,
    node: &Path,
    machine: &Path,
    kubelet: Option<&Path>,
) -> Result<(), Box<dyn Error>> {
    log::begin(log::Format::Json, log::Level::Info);
    let plugin = kubelet.map(|kubelet| PluginSettings {
        kubelet: kubelet.into(),
        injection: Injection::Environment,
        look_every: Duration::from_millis(100),
    });
    Ok(agent::run(&agent::Settings {
        kubeconfig: Some(kubeconfig.into()),
        context: None,
        node: node.display().to_string(),
        hardware: Hardware::File(machine.into()),
        every: Duration::from_millis(200),
        sample_every: Duration::from_millis(200),
        dcgm: None,
        kernel_log: Some(machine.with_extension("kmsg")).filter(|log| log.exists()),
        plugin,
        listen: listen()?,
    })?)
}

/// Sends the verb on stdin as whoever this process is, and prints every answer as a line.
fn relay(socket: &Path) -> Result<(), Box<dyn Error>> {
    let verb = serde_json::from_reader(std::io::stdin())?;
    for answer in ask(socket, verb)? {
        let answer = match answer {
            Err(ClientError::Refused(error)) => Answer::Error(error),
            answer => answer?,
        };
        println!("{}", serde_json::to_string(&answer)?);
    }
    Ok(())
}

/// A file `held/attempt-A-rank-R` beside the state folder keeps this shim from saying a word.
fn wait_while_held(member: &Path) {
    let mut names = member.ancestors().filter_map(|dir| dir.file_name()?.to_str());
    let (Some(rank), Some(attempt)) = (names.next(), names.next()) else { return };
    // STATE/jobs/JOB/GANG/ATTEMPT/RANK
    let Some(beside) = member.ancestors().nth(6) else { return };
    let held = beside.join("held").join(format!("{attempt}-{rank}"));
    while held.exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Holds a slot until it is told to end.
fn hold() -> ExitCode {
    let mut end = SigSet::empty();
    end.add(Signal::SIGTERM);
    let waited = end.thread_block().and_then(|()| end.wait());
    if waited.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
