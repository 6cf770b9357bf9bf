//! Endpoints of a service, and a real HAProxy that is fed with them.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use phalanx_api::protocol::{Answer, EndpointState, EndpointsView, ErrorCode, JobRef, Verb};
use phalanx_model::{FailureClass, Job, JobId, NodeName, Replicas};

use crate::support::{Bench, env, eventually, exe, gang, refused, retry, shell, signal, until};

/// Three nodes in two racks.
const CLUSTER: &str = "\
levels: [rack]
nodes:
- {name: n1, path: {rack: a}, devices: {count: 8, model: Test GPU}}
- {name: 'n[2-3]', path: {rack: b}, devices: {count: 8, model: Test GPU}}
";

/// Answers with the name of its node, `/slow` once a file is there. It serves one request at once.
const SERVER: &str = r#"
import http.server, os, time

node, out = os.environ["PHALANX_NODE"], os.environ["OUT"]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/slow":
            open(f"{out}/busy-{node}", "w").close()
            while not os.path.exists(f"{out}/go"):
                time.sleep(0.02)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(node.encode())

    def log_message(self, *arguments):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
open(f"{out}/pid-{node}", "w").write(str(os.getpid()))
open(os.environ["PHALANX_ENDPOINT"], "w").write(f"port={server.server_port} load=0 capacity=1\n")
server.serve_forever()
"#;

/// A replica for each node.
fn service(bench: &Bench, out: &Path) -> Job {
    let script = bench.path("server.py");
    fs::write(&script, SERVER).unwrap();
    let mut job = shell(1, &format!("exec python3 {}", script.display()));
    gang(&mut job).needs.devices = 8;
    gang(&mut job).program.env = env(&[("OUT", out.to_str().unwrap())]);
    job.gangs = vec![job.gangs[0].clone(); 3];
    job.turn.service = Some(Replicas { min: 3, ..Replicas::default() });
    job.policy.retry = retry(u32::MAX, &FailureClass::ALL);
    job
}

fn endpoints(bench: &Bench, job: JobId, from: Option<&str>) -> EndpointsView {
    let from = from.map(|node| NodeName::new(node).unwrap());
    match bench.ask(Verb::Endpoints { job: JobRef::Id(job), from }) {
        Ok(Answer::Endpoints(view)) => view,
        other => panic!("{other:?}"),
    }
}

fn ready(bench: &Bench, job: JobId) -> usize {
    endpoints(bench, job, None).endpoints.iter().filter(|one| one.state == EndpointState::Ready).count()
}

/// Processes that end with the test.
struct Ended(Vec<Child>);

impl Drop for Ended {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The body of an answer of HAProxy; empty if it has none.
fn ask(socket: &Path, path: &str) -> String {
    let mut answer = String::new();
    let asked = UnixStream::connect(socket).and_then(|mut stream| {
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
        stream.read_to_string(&mut answer)
    });
    let is_ok = asked.is_ok() && answer.contains(" 200 ");
    answer.rsplit_once("\r\n\r\n").filter(|_| is_ok).map_or_else(String::new, |(_, body)| body.to_owned())
}

#[test]
fn haproxy_sends_requests_to_the_nearest_replica_with_room_and_follows_the_service() {
    if !["haproxy", "python3"].into_iter().all(is_here) {
        return;
    }
    let bench = Bench::up_with(CLUSTER);
    let out = bench.path("out");
    fs::create_dir(&out).unwrap();
    let job = bench.submit(service(&bench, &out));
    until("three endpoints", || ready(&bench, job) == 3);
    let order = |from| -> Vec<String> {
        endpoints(&bench, job, from).endpoints.iter().map(|one| one.node.to_string()).collect()
    };
    let (near, far) = (order(Some("n2")), order(Some("n1")));
    assert_eq!((near, far[0].as_str()), (vec!["n2".into(), "n3".into(), "n1".into()], "n1"));

    // The file of HAProxy is kept by the command line, which has it loaded again after each change.
    let (file, socket, pid) = (bench.path("backend.cfg"), bench.path("in.sock"), bench.path("haproxy.pid"));
    let reload = format!("[ ! -e {0} ] || kill -USR2 $(cat {0})", pid.display());
    let keeper = Command::new(phalanx())
        .args(["endpoints", &job.to_string(), "--from", "n2", "-o", "haproxy", "--into"])
        .arg(&file)
        .args(["--then", &reload, "--state"])
        .arg(bench.paths.root())
        .spawn()
        .unwrap();
    let mut ended = Ended(vec![keeper]);
    until("the file", || file.exists());
    let main = bench.path("main.cfg");
    let text = format!(
        "global\n  maxconn 100\ndefaults\n  mode http\n  retries 3\n  timeout connect 2s\n  timeout client 60s\n  timeout server \
         60s\n  timeout queue 60s\nfrontend in\n  bind unix@{}\n  default_backend test\n",
        socket.display()
    );
    fs::write(&main, text).unwrap();
    let haproxy = Command::new("haproxy")
        .arg("-W")
        .arg("-p")
        .arg(&pid)
        .args([Path::new("-f"), &main, Path::new("-f"), &file])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    ended.0.insert(0, haproxy);
    until("the nearest replica", || ask(&socket, "/") == "n2");

    // The nearest has no room: the next one is in its rack.
    let slow = {
        let socket = socket.clone();
        thread::spawn(move || ask(&socket, "/slow"))
    };
    until("a request that takes long", || out.join("busy-n2").exists());
    assert_eq!(ask(&socket, "/"), "n3");
    fs::write(out.join("go"), "").unwrap();
    assert_eq!(slow.join().unwrap(), "n2");
    until("the nearest again", || ask(&socket, "/") == "n2");

    // One that dies is left out at once, and found again where it comes back.
    let dies: i32 = fs::read_to_string(out.join("pid-n2")).unwrap().parse().unwrap();
    let before =
        endpoints(&bench, job, None).endpoints.iter().find(|one| one.node.as_str() == "n2").unwrap().port;
    signal(dies, Signal::SIGKILL);
    // None while HAProxy loads the file again.
    let answer = eventually("an answer", || Some(ask(&socket, "/")).filter(|answer| !answer.is_empty()));
    assert_eq!(answer, "n3");
    until("another port", || {
        let found = endpoints(&bench, job, Some("n2")).endpoints;
        found.first().is_some_and(|one| one.distance == Some(0) && one.port.is_some() && one.port != before)
    });
    until("the replica that came back", || ask(&socket, "/") == "n2");
    drop(ended);
    bench.cancel(job);
}

#[test]
fn endpoints_are_those_of_services_and_say_what_cannot_be_read() {
    let bench = Bench::up_with(CLUSTER);
    let mut job = shell(1, "echo 8080 > $PHALANX_ENDPOINT; exec sleep 1000");
    job.gangs = vec![job.gangs[0].clone(); 2];
    job.turn.service = Some(Replicas { min: 1, ..Replicas::default() });
    let job = bench.submit(job);
    let unread = eventually("a line that cannot be read", || {
        endpoints(&bench, job, None).endpoints.into_iter().next()?.unread
    });
    assert_eq!(unread, "it has no port=NUMBER: \"8080\"");
    assert_eq!(endpoints(&bench, job, None).endpoints.len(), 1, "the other replica is not needed");
    assert_eq!(endpoints(&bench, job, None).endpoints[0].state, EndpointState::NotReady);
    let nowhere = Verb::Endpoints { job: JobRef::Id(job), from: Some(NodeName::new("n9").unwrap()) };
    assert_eq!(refused(bench.ask(nowhere)).code, ErrorCode::NotFound);
    bench.cancel(job);
    let plain = bench.submit(shell(1, "exec sleep 1000"));
    let refusal = refused(bench.ask(Verb::Endpoints { job: JobRef::Id(plain), from: None }));
    assert_eq!(refusal.message, format!("job {plain} (test) is no service"));
    bench.cancel(plain);
}

/// Says what is missing; in CI everything is there.
fn is_here(program: &str) -> bool {
    let is_here =
        Command::new(program).arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    assert!(is_here || std::env::var_os("CI").is_none(), "{program} is missing");
    if !is_here {
        eprintln!("passed over: {program} is missing");
    }
    is_here
}

/// Tests of the whole workspace build it; this package alone does not.
fn phalanx() -> PathBuf {
    let phalanx = exe().with_file_name("phalanx");
    assert!(phalanx.exists(), "{} is missing: cargo build -p phalanx-cli", phalanx.display());
    phalanx
}
