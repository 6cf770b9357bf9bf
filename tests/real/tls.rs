//! The API over TLS: who gets through, what is refused, and a certificate that is renewed.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use phalanx_api::protocol::{Answer, NewTokenView, TokenAsk, Verb};
use serde_json::json;

use crate::support::{Authority, Bench, Https, TWO_NODES_OF_8, until};

const NAMES: [&str; 2] = ["127.0.0.1", "gpu1.example.com"];

/// Starts a daemon with TLS on any port.
fn script(bench: &Bench, at: &str) -> String {
    let folder = bench.path("tls");
    format!("export PHALANX_TEST_API={at} PHALANX_TEST_API_TLS={}; exec \"$0\" \"$@\"", folder.display())
}

fn up(bench: &mut Bench, authority: &Authority) -> (Https, String) {
    authority.write(&bench.path("tls"), &NAMES);
    bench.up_by(Some(&script(bench, "127.0.0.1:0")));
    let made = token(bench);
    (authority.client(&made.address), made.text)
}

fn token(bench: &Bench) -> NewTokenView {
    let ask = TokenAsk { name: "tls".to_owned(), read_only: false, for_ms: 3_600_000 };
    match bench.ask(Verb::NewToken(ask)) {
        Ok(Answer::Token(made)) => made,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_api_is_served_over_tls_and_hostile_clients_end_in_refusals() {
    let mut bench = Bench::new(TWO_NODES_OF_8);
    let (client, token) = up(&mut bench, &Authority::new());
    assert!(client.base.starts_with("https://127.0.0.1:"), "{}", client.base);
    let host = client.host().to_owned();
    let port = host.rsplit(':').next().unwrap();
    let (status, user) = client.get("/v1/whoami", &token);
    assert_eq!((status, &user["role"]), (200, &json!("operator")));
    let bearer = format!("Bearer {token}");
    let named = format!("gpu1.example.com:{port}");
    assert_eq!(client.ask("GET", "/v1/whoami", &[("authorization", &bearer), ("host", &named)], "").0, 200);

    assert_eq!(client.ask("GET", "/v1/jobs", &[], "").0, 401);
    assert_eq!(client.ask("GET", "/v1/jobs", &[("authorization", "Bearer phx_0")], "").0, 401);
    for other in ["gpu1.example.com", "gpu2.example.com:443", "localhost:1"] {
        let (status, said) =
            client.ask("GET", "/v1/whoami", &[("authorization", &bearer), ("host", other)], "");
        assert_eq!(status, 421, "{other}: {said}");
    }
    let cordon = |origin: &str| {
        let headers =
            [("authorization", bearer.as_str()), ("origin", origin), ("content-type", "application/json")];
        client.ask("POST", "/v1/nodes/n1/cordon", &headers, "{}").0
    };
    for other in
        [format!("http://{host}"), "https://evil.example".to_owned(), "null".to_owned(), host.clone()]
    {
        assert_eq!(cordon(&other), 403, "{other}");
    }
    assert_eq!(cordon(&client.base), 200);

    // Plain HTTP, and what is no protocol at all.
    let plain = |sent: &[u8]| {
        let mut stream = TcpStream::connect(&host).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(sent).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = plain(
        format!("GET /v1/whoami HTTP/1.1\r\nhost: {host}\r\nauthorization: {bearer}\r\n\r\n").as_bytes(),
    );
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("https://"), "{answer}");
    assert!(!plain(b"\x00\x01 nonsense").contains("HTTP"));

    let head = format!(
        "host: {host}\r\nauthorization: {bearer}\r\ncontent-type: application/json\r\nconnection: close"
    );
    let answer = client.raw(&format!("GET /v1/whoami HTTP/1.1\r\n{head}\r\n\r\n"));
    assert!(answer.to_lowercase().contains("strict-transport-security: max-age="), "{answer}");
    let long = "x".repeat((4 << 20) + 1);
    for (request, begins) in [
        (format!("GET /../../etc/passwd HTTP/1.1\r\n{head}\r\n\r\n"), "HTTP/1.1 404"),
        // The dashboard, which has no such page.
        (format!("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n{head}\r\n\r\n"), "HTTP/1.1 200"),
        (
            format!("POST /v1/jobs HTTP/1.1\r\n{head}\r\ncontent-length: 99999999\r\n\r\n{long}"),
            "HTTP/1.1 413",
        ),
        ("nonsense\r\n\r\n".to_owned(), "HTTP/1.1 400"),
    ] {
        let answer = client.raw(&request);
        assert!(answer.starts_with(begins), "{:?}", answer.lines().next());
        assert!(!answer.contains("root:"), "{answer}");
    }
}

/// Clients that do not finish the handshake lose their connection, and others are served meanwhile.
#[test]
fn slow_handshakes_are_cut() {
    let mut bench = Bench::new(TWO_NODES_OF_8);
    let (client, token) = up(&mut bench, &Authority::new());
    let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(client.host()).unwrap()).collect();
    let mut slow = TcpStream::connect(client.host()).unwrap();
    // The head of a record whose rest does not come.
    slow.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    if nix::unistd::geteuid().is_root() {
        assert_eq!(client.get("/v1/whoami", &token).0, 200);
    }
    let begun = Instant::now();
    for mut stream in silent.into_iter().take(1).chain([slow]) {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert!(matches!(stream.read(&mut [0; 64]), Ok(0) | Err(_)), "closed without a word");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(client.get("/v1/whoami", &token).0, 200);
}

#[test]
fn a_renewed_certificate_is_taken_up_and_a_broken_one_is_not() {
    let mut bench = Bench::new(TWO_NODES_OF_8);
    let authority = Authority::new();
    let (client, token) = up(&mut bench, &authority);
    let old = client.shown();
    authority.write(&bench.path("tls"), &NAMES);
    until("the new certificate is shown", || client.shown() != old);
    let new = client.shown();
    fs::write(bench.path("tls/key.pem"), "no key any more").unwrap();
    let warning = "the new certificate of the API is not used";
    until("a warning", || bench.daemon_log().contains(warning));
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(bench.daemon_log().matches(warning).count(), 1, "said once");
    assert!(client.shown() == new && client.get("/v1/whoami", &token).0 == 200);
    authority.write(&bench.path("tls"), &NAMES);
    until("the third certificate is shown", || client.shown() != new);
}

#[test]
fn a_daemon_whose_api_would_not_be_safe_does_not_start() {
    let bench = Bench::new(TWO_NODES_OF_8);
    let says = bench.refuses_to_start_by(Some("export PHALANX_TEST_API=0.0.0.0:0; exec \"$0\" \"$@\""));
    assert!(
        says.contains("only a loopback address") && says.contains("--api-cert FILE --api-key FILE"),
        "{says}"
    );
    let refused = |at: &str| bench.refuses_to_start_by(Some(&script(&bench, at)));
    assert!(refused("127.0.0.1:0").contains("cannot read "));
    let authority = Authority::new();
    authority.write(&bench.path("tls"), &["192.0.2.7"]);
    let says = refused("0.0.0.0:0");
    assert!(
        says.contains("names neither a host nor this address") && says.contains("--api-name HOST"),
        "{says}"
    );
    fs::set_permissions(bench.path("tls/key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    let says = refused("127.0.0.1:0");
    assert!(
        says.contains("other users can read or change the private key") && says.contains("chmod 600"),
        "{says}"
    );
    let key = fs::read(bench.path("tls/key.pem")).unwrap();
    authority.write(&bench.path("tls"), &NAMES);
    fs::write(bench.path("tls/key.pem"), key).unwrap();
    assert!(refused("127.0.0.1:0").contains("does not belong to the certificate"));
}

#[test]
fn the_python_client_trusts_the_authorities_of_a_file() {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/src");
    if Command::new("python3").arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "missing: python3");
        eprintln!("passed over, missing: python3");
        return;
    }
    let mut bench = Bench::new(TWO_NODES_OF_8);
    let authority = Authority::new();
    let (client, token) = up(&mut bench, &authority);
    fs::write(bench.path("ca.pem"), &authority.pem).unwrap();
    let script = "import os, phalanx
url, token, ca = (os.environ[name] for name in ('URL', 'TOKEN', 'CA'))
with phalanx.Cluster.connect(url, token, ca_file=ca) as cluster:
    print(len(cluster.nodes()))
os.environ['PHALANX_CA_FILE'] = ca
phalanx.Cluster.connect(url, token).close()
del os.environ['PHALANX_CA_FILE']
try:
    phalanx.Cluster.connect(url, token, retries=0)
except phalanx.Unavailable as error:
    print('CERTIFICATE_VERIFY_FAILED' in str(error))
";
    let mut command = Command::new("python3");
    command.args(["-B", "-c", script]).env("PYTHONPATH", python).env("URL", &client.base).env("TOKEN", token);
    let output = command.env("CA", bench.path("ca.pem")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\nTrue\n", "{said}");
}
