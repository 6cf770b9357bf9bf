//! Sign-in with `OpenID` Connect at a real daemon, with an issuer that publishes its keys over TLS.

use std::fs;
use std::time::Duration;

use nix::unistd::{User, geteuid};
use ring::hmac;
use serde_json::{Value, json};

use crate::support::issuer::{b64, key_pair, sign};
use crate::support::{Authority, Bench, Https, Issuer, NOBODY, TWO_NODES_OF_8, is_root, shell, until};

/// A daemon over TLS that takes the tokens of `issuer`, with more lines in its file.
fn up(bench: &mut Bench, authority: &Authority, issuer: &Issuer, lines: &str) -> Https {
    authority.write(&bench.path("tls"), &["127.0.0.1"]);
    fs::write(bench.path("ca.pem"), &authority.pem).unwrap();
    let file = format!("issuer: {}\naudience: phalanx\nca_file: ca.pem\n{lines}", issuer.url);
    fs::write(bench.path("oidc.yaml"), file).unwrap();
    let folder = bench.path("");
    let script = format!(
        "export PHALANX_TEST_API=127.0.0.1:0 PHALANX_TEST_API_TLS={0}tls PHALANX_TEST_API_OIDC={0}oidc.yaml; umask 022; \
         exec \"$0\" \"$@\"",
        folder.display()
    );
    bench.up_by(Some(&script));
    let begin = "serves the API and the dashboard address=";
    let log = bench.daemon_log();
    let at = log.find("https://127.0.0.1:").unwrap_or_else(|| panic!("no {begin}: {log}"));
    let url: String = log[at..].chars().take_while(|c| !c.is_whitespace() && *c != '"').collect();
    until("the keys of the issuer are known", || {
        bench.daemon_log().contains("the keys of the issuer are known")
    });
    authority.client(&url)
}

fn with(claims: &Value, name: &str, value: &Value) -> Value {
    let mut claims = claims.clone();
    claims[name] = value.clone();
    claims
}

#[test]
fn forged_tokens_end_in_refusals_and_nothing_leaks() {
    let (mut bench, authority) = (Bench::new(TWO_NODES_OF_8), Authority::new());
    let issuer = Issuer::start(&authority);
    let own = User::from_uid(geteuid()).unwrap().unwrap().name;
    let client = up(&mut bench, &authority, &issuer, &format!("users: {{me: {own}}}\n"));
    let good = issuer.token_of("me");
    let (status, user) = client.get("/v1/whoami", &good);
    assert_eq!((status, &user["user"], &user["role"]), (200, &json!(own), &json!("operator")), "{user}");

    let (head, rest) = good.split_once('.').unwrap();
    let (payload, signature) = rest.split_once('.').unwrap();
    let claims = issuer.claims("me");
    let none = b64(json!({ "alg": "none" }).to_string());
    let by_secret = {
        let signed = format!("{}.{payload}", b64(json!({ "alg": "HS256", "kid": "k1" }).to_string()));
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &issuer.public_key());
        format!("{signed}.{}", b64(hmac::sign(&secret, signed.as_bytes())))
    };
    let stranger = key_pair();
    let header = |kid: &str| json!({ "alg": "ES256", "kid": kid });
    let tampered = b64(with(&claims, "preferred_username", &json!("root")).to_string());
    for (what, token) in [
        ("no algorithm", format!("{none}.{payload}.")),
        ("no algorithm, a signature", format!("{none}.{payload}.{signature}")),
        ("the public key as a secret", by_secret),
        ("another issuer", issuer.token(&with(&claims, "iss", &json!("https://id.example")))),
        ("another audience", issuer.token(&with(&claims, "aud", &json!("grafana")))),
        ("expired", issuer.token(&with(&claims, "exp", &json!(1_700_000_000)))),
        ("without an end", issuer.token(&with(&claims, "exp", &Value::Null))),
        ("not yet", issuer.token(&with(&claims, "nbf", &json!(9_000_000_000_u64)))),
        ("an unknown key", sign(&stranger, &header("k2"), &claims)),
        ("another key under the same name", sign(&stranger, &header("k1"), &claims)),
        ("a changed payload", format!("{head}.{tampered}.{signature}")),
        ("no signature", format!("{head}.{payload}.")),
        ("too long", format!("{good}{}", "A".repeat(20 << 10))),
        ("no JSON", "eyJ.eyJ.eyJ".to_owned()),
    ] {
        let (status, problem) = client.get("/v1/jobs", &token);
        assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")), "{what}: {problem}");
        let text = problem.to_string();
        for secret in [signature, payload, issuer.url.as_str(), "phalanx/", "preferred_username", "grafana"] {
            assert!(!text.contains(secret), "{what}: {text}");
        }
    }
    // Valid, and for nobody whom the file gives an account.
    for name in ["root", "nobody", "no-such-account-here"] {
        let (status, problem) = client.get("/v1/whoami", &issuer.token_of(name));
        assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{name}: {problem}");
    }
    // A burst of unknown keys asks the issuer at most once more.
    let before = issuer.asked();
    for at in 0..200 {
        assert_eq!(client.get("/v1/whoami", &sign(&stranger, &header(&format!("k{at}x")), &claims)).0, 401);
    }
    assert!(issuer.asked() - before <= 2, "{} requests", issuer.asked() - before);
    issuer.go_away();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(client.get("/v1/whoami", &good).0, 200, "its keys are known");
}

#[test]
fn a_user_who_signed_in_has_the_rights_of_the_account_and_its_groups() {
    if !is_root("a_user_who_signed_in_has_the_rights_of_the_account_and_its_groups") {
        return;
    }
    let (mut bench, authority) = (Bench::new(TWO_NODES_OF_8), Authority::new());
    let issuer = Issuer::start(&authority);
    let lines = "users: {nina@example.com: nobody}\noperators: [gpu-admins]\nviewers: [auditors]\n";
    let client = up(&mut bench, &authority, &issuer, lines);
    let private = bench.submit(shell(1, "echo private; exec sleep 1000"));
    bench.await_state(private, "running");
    let nina = issuer.claims("nina@example.com");
    let token = issuer.token(&nina);
    let (_, user) = client.get("/v1/whoami", &token);
    assert_eq!((&user["role"], &user["uid"]), (&json!("user"), &json!(NOBODY)), "{user}");
    let (status, problem) = client.get(&format!("/v1/jobs/{private}/logs"), &token);
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{problem}");
    assert!(!problem.to_string().contains("private"), "{problem}");
    let bearer = format!("Bearer {token}");
    let hold = format!("/v1/jobs/{private}/hold");
    assert_eq!(client.ask("POST", &hold, &[("authorization", bearer.as_str())], "").0, 403);
    assert_eq!(client.post("/v1/nodes/n2/cordon", &token, &json!({})).0, 403);
    let file = json!({ "name": "theirs", "ranks": 1, "resources": { "gpus": 1 }, "workdir": "/", "command": ["id", "-u"] });
    let (status, made) = client.post("/v1/jobs", &token, &file);
    assert_eq!(status, 201, "{made}");
    let id = phalanx_model::JobId(made["job"].as_u64().unwrap());
    assert_eq!((bench.ended(id).uid, bench.logs(id)), (NOBODY, vec![(0, NOBODY.to_string())]));

    let viewer = issuer.token(&with(&nina, "groups", &json!(["auditors"])));
    assert_eq!(client.get("/v1/whoami", &viewer).1["role"], "viewer");
    assert_eq!(client.post("/v1/jobs", &viewer, &file).0, 403);
    let operator = issuer.token(&with(&nina, "groups", &json!(["gpu-admins"])));
    assert_eq!(client.get("/v1/whoami", &operator).1["role"], "operator");
    assert_eq!(client.post("/v1/nodes/n2/cordon", &operator, &json!({ "reason": "fan" })).0, 200);
    let is_written = || {
        let (_, audit) = client.get("/v1/audit", &operator);
        audit["items"].as_array().unwrap().iter().any(|act| {
            act["verb"] == "cordon"
                && (&act["user"], &act["login"]) == (&json!("nobody"), &json!("nina@example.com"))
                && act["detail"] == "fan"
        })
    };
    until("the act is in the audit log", is_written);
    bench.cancel(private);
}
