//! Commands and webhooks of notices: they are their owner's and nobody else's, and leave nothing behind.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use phalanx_api::protocol::{Answer, Verb};
use phalanx_model::JobId;

use crate::support::{Bench, NODE_OF_8, env, eventually, gang, is_root, shell, until};

/// A user without a process on any machine.
const OWNER: u32 = 64_983;

/// A job of [`OWNER`] that ends at once and has this notice.
fn submit(bench: &Bench, notify: &str) -> JobId {
    let mut job = shell(1, "exit 3");
    gang(&mut job).program.notify = Some(notify.to_owned());
    let verb = Verb::Submit { job: Box::new(job), secrets: env(&[]) };
    match bench.ask_as(OWNER, &verb).as_slice() {
        [Answer::Submitted { job, .. }] => *job,
        other => panic!("{other:?}"),
    }
}

/// Processes whose command line has this text.
fn named(text: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if line.windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// A folder that every user can write to.
fn shared(bench: &Bench) -> String {
    let dir = bench.path("shared");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
    dir.display().to_string()
}

/// It had the daemon's cgroup, the daemon's groups, and could become root by a setuid program.
#[test]
fn the_command_of_a_notice_has_its_owners_rights_and_a_cgroup_of_its_own() {
    if !is_root("the_command_of_a_notice_has_its_owners_rights_and_a_cgroup_of_its_own") {
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let dir = shared(&bench);
    // Put together here, so that this test's own command line does not hold it.
    let token = ["token", &std::process::id().to_string()].join("-of-");
    let line = format!(
        "[ $PHALANX_EVENT = end ] || exit 0; echo {token} >/dev/null; cd {dir}; echo $PHALANX_EXIT_CODE > code
         cat /proc/self/status > status; cat /proc/self/cgroup > cgroup; touch up; while [ ! -e go ]; do sleep 0.05; done"
    );
    let id = submit(&bench, &line);
    bench.ended(id);
    bench.await_file("shared/up");
    assert_eq!(named(&token), [0i32; 0], "every user can read a command line");
    fs::write(bench.path("shared/go"), "").unwrap();
    let status = bench.read("shared/status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let owner = OWNER.to_string();
    assert_eq!(field("Uid:"), vec![owner.clone(); 4], "{status}");
    assert_eq!(field("Gid:"), vec![owner.clone(); 4], "{status}");
    assert!(field("Groups:").iter().all(|group| *group == owner), "{status}");
    assert_eq!(field("NoNewPrivs:"), ["1"], "{status}");
    assert_eq!(bench.read("shared/code").trim(), "3");
    if !bench.daemon_log().contains("process groups") {
        assert!(bench.read("shared/cgroup").contains("-notice-"), "{}", bench.read("shared/cgroup"));
    }
}

/// A process that made its own session was in no group that the time-out ended.
#[test]
fn the_time_out_of_a_notice_ends_everything_it_started() {
    if !is_root("the_time_out_of_a_notice_ends_everything_it_started") {
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let long = format!("1000.{}", std::process::id());
    let id = submit(&bench, &format!("setsid -f sleep {long}; (setsid sleep {long} &); exec sleep {long}"));
    bench.ended(id);
    until("its processes", || named(&long).len() >= 3);
    until("its time-out", || bench.daemon_log().contains("it did not end within 10 s"));
    // The notice of the end comes after that of the start.
    until("the end of all", || {
        bench.daemon_log().matches("it did not end within 10 s").count() == 2 && named(&long).is_empty()
    });
}

/// The user whose socket this is, as the kernel says (proc_net_tcp(5)).
fn uid_of(client: SocketAddr) -> Option<u32> {
    let port = format!(":{:04X}", client.port());
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    row.into_iter().find(|row| row.get(1).is_some_and(|local| local.ends_with(&port)))?.get(7)?.parse().ok()
}

fn request_of(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut buffer = [0; 4096];
    // A request of two parts: the second is as long as the first says.
    while !String::from_utf8_lossy(&text).contains("\"exit_code\"") {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(text).unwrap()
}

/// The request was root's: services of this host trust it.
#[test]
fn a_webhook_is_called_by_its_owner() {
    if !is_root("a_webhook_is_called_by_its_owner") {
        return;
    }
    let bench = Bench::up_with(NODE_OF_8);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let token = ["secret", &std::process::id().to_string()].join("-of-");
    let id = submit(&bench, &format!("http://{}/{token}", server.local_addr().unwrap()));
    for (event, answer) in [("start", "200 OK"), ("end", "503 Busy")] {
        let (mut stream, client) = server.accept().unwrap();
        assert_eq!(eventually("the socket's owner", || uid_of(client)), OWNER);
        let request = request_of(&mut stream);
        assert!(request.starts_with(&format!("POST /{token} ")), "{request}");
        assert!(request.contains(&format!("\"event\":\"{event}\"")), "{request}");
        assert_eq!(named(&token), [0i32; 0], "every user can read a command line");
        write!(stream, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    }
    let told = format!("job {id}: the end notice was not delivered: the webhook answered 503");
    until("the answer", || bench.daemon_log().contains(&told));
    assert!(!bench.daemon_log().contains(&token), "{}", bench.daemon_log());
}
