//! Sign-in at the daemon of one machine with tokens of a real issuer: the API server signs those of service accounts.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::{User, geteuid};
use phalanx_controlplane::{ControlPlane, Options};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);

/// Ends with the test.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A token of a service account for somebody.
fn token(plane: &ControlPlane, account: &str, audience: &str) -> String {
    let path = format!("/api/v1/namespaces/default/serviceaccounts/{account}/token");
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                          "spec": { "expirationSeconds": 600, "audiences": [audience] } });
    let made = plane.api().post(&path, &request).unwrap();
    made["status"]["token"].as_str().unwrap().to_owned()
}

fn get(url: &str, token: &str) -> (u16, Value) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut answer = agent
        .get(format!("{url}/v1/whoami"))
        .header("authorization", format!("Bearer {token}"))
        .call()
        .unwrap();
    let text = answer.body_mut().read_to_string().unwrap();
    (answer.status().as_u16(), serde_json::from_str(&text).unwrap())
}

#[test]
fn tokens_of_service_accounts_sign_in_at_the_daemon() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    for name in ["ci", "other"] {
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } });
        plane.api().post("/api/v1/namespaces/default/serviceaccounts", &account).unwrap();
    }
    let everybody = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "issuer-discovery" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                     "name": "system:service-account-issuer-discovery" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated" }],
    });
    plane.api().post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &everybody).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let config: Value = serde_json::from_str(&fs::read_to_string(plane.kubeconfig()).unwrap()).unwrap();
    let authority = config["clusters"][0]["cluster"]["certificate-authority"].as_str().unwrap();
    let own = User::from_uid(geteuid()).unwrap().unwrap().name;
    let file = format!(
        "issuer: {}\naudience: phalanx\nusername_claim: sub\nca_file: {authority}\n\
         users: {{'system:serviceaccount:default:ci': {own}}}\n",
        plane.api().server()
    );
    fs::write(path("oidc.yaml"), file).unwrap();
    fs::write(path("cluster.yaml"), "nodes:\n- {name: n1, devices: {count: 8, model: Test GPU}}\n").unwrap();
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_phalanx-test-daemon"));
    daemon.arg("up").args([path("state"), path("cluster.yaml")]);
    daemon.env("PHALANX_TEST_API", "127.0.0.1:0").env("PHALANX_TEST_API_OIDC", path("oidc.yaml"));
    daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(path("log")).unwrap());
    let _daemon = Daemon(daemon.spawn().unwrap());
    let begun = Instant::now();
    let url = loop {
        let log = fs::read_to_string(path("log")).unwrap();
        assert!(begun.elapsed() < PATIENCE, "{log}");
        let at = log.find("http://127.0.0.1:").filter(|_| log.contains("the keys of the issuer are known"));
        if let Some(at) = at {
            break log[at..].chars().take_while(|c| !c.is_whitespace() && *c != '"').collect::<String>();
        }
        std::thread::sleep(Duration::from_millis(50));
    };

    let good = token(&plane, "ci", "phalanx");
    let (status, user) = get(&url, &good);
    assert_eq!((status, &user["user"]), (200, &json!(own)), "{user}");
    let (status, problem) = get(&url, &token(&plane, "other", "phalanx"));
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "no account: {problem}");
    let (status, problem) = get(&url, &token(&plane, "ci", "another-service"));
    assert_eq!((status, &problem["detail"]), (401, &json!("the token is for another audience")), "{problem}");
    let (signed, _) = good.rsplit_once('.').unwrap();
    let other = token(&plane, "other", "phalanx");
    let (_, signature) = other.rsplit_once('.').unwrap();
    assert_eq!(get(&url, &format!("{signed}.{signature}")).0, 401, "the signature of another token");
}
