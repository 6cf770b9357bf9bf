//! The HTTP API of a cluster: what it shows is what was bound, each user sees what `kubectl` would show, and nothing is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use phalanx_controlplane::{Api, Fleet, Program};
use phalanx_kube::rights::of_server;
use phalanx_model::DeviceMask;
use serde_json::{Value, json};

use crate::queues::{QUEUES, define};
use crate::support::audit::{Audit, needs};
use crate::support::role::{self, until_may};
use crate::support::{Cluster, JOBS, PODS, job, pod};

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// A user with a token.
struct Client<'a> {
    url: &'a str,
    token: String,
}

impl Client<'_> {
    fn ask(&self, method: &str, path: &str) -> (u16, Value) {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {}", self.token))
            .body(())
            .unwrap();
        let mut answer = agent.run(request).unwrap();
        let text = answer.body_mut().read_to_string().unwrap();
        (answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path)
    }

    /// A document that has to be there.
    fn document(&self, path: &str) -> Value {
        let (status, document) = self.get(path);
        assert_eq!(status, 200, "{path}: {document:#}");
        document
    }

    /// States of jobs by their names.
    fn states(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let jobs = self.document("/v1/jobs");
        let jobs = jobs["items"].as_array().unwrap().iter();
        jobs.map(|job| (text(&job["name"]), text(&job["state"]))).collect()
    }
}

fn states<const N: usize>(of: [(&str, &str); N]) -> BTreeMap<String, String> {
    of.map(|(name, state)| (name.to_owned(), state.to_owned())).into()
}

/// A token of a service account, which is made if it is not there.
fn token(cluster: &Cluster, namespace: &str, account: &str) -> String {
    let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
    let object = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": account } });
    let _ = cluster.api().post(&accounts, &object);
    let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                          "spec": { "expirationSeconds": 600 } });
    let made = cluster.api().post(&format!("{accounts}/{account}/token"), &request).unwrap();
    made["status"]["token"].as_str().unwrap().to_owned()
}

fn user(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// Gives a service account a role in the whole cluster, or in its namespace.
fn bind(cluster: &Cluster, (namespace, account): (&str, &str), role: &str, is_everywhere: bool) {
    let kind = if is_everywhere { "ClusterRoleBinding" } else { "RoleBinding" };
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
        "metadata": { "name": format!("{namespace}-{account}") },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
    });
    let of_namespace = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
    cluster.create(if is_everywhere { BINDINGS } else { &of_namespace }, &binding);
    let asked = if is_everywhere { "" } else { namespace };
    until_may(cluster.api(), &user(namespace, account), asked, "", "pods", "list");
}

fn jobs_of(namespace: &str) -> String {
    format!("/apis/batch/v1/namespaces/{namespace}/jobs")
}

/// A document that fits, as soon as there is one.
fn until(
    cluster: &Cluster,
    what: &str,
    client: &Client<'_>,
    path: &str,
    fits: impl Fn(&Value) -> bool,
) -> Value {
    cluster.until(what, |_| Some(client.document(path)).filter(|document| fits(document)))
}

/// Where the members of a job are, by rank, with their devices.
fn placed(job: &Value) -> BTreeSet<(u64, String, u64)> {
    let members =
        job["gangs"].as_array().unwrap().iter().flat_map(|gang| gang["members"].as_array().unwrap());
    let number = |value: &Value| value.as_u64().unwrap();
    let of =
        |of: &Value| (number(&of["rank"]), of["node"].as_str().unwrap().to_owned(), number(&of["devices"]));
    members.map(of).collect()
}

/// The same as annotations of pods say it.
fn devices(text: &str) -> u64 {
    let mask: DeviceMask = text.parse().unwrap();
    mask.iter().fold(0, |all, device| all | 1 << device)
}

#[test]
fn documents_are_what_was_bound_a_gang_that_nobody_starts_waits_and_nothing_is_written() {
    let mut cluster = Cluster::of(3);
    define(&cluster);
    let queue = json!({ "apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": { "name": "default" },
                        "spec": { "guaranteed": { "gpus": 24 } } });
    cluster.create(QUEUES, &queue);
    let scheduler = cluster.schedule(0);
    cluster.create(JOBS, &job("train", 4, 4, &json!({})));
    cluster.until_runs("train", 4);
    let kubeconfig = role::server(&cluster.plane);
    let (server, url) = cluster.serve(&kubeconfig);
    let health = cluster.served_at();
    let secret = token(&cluster, "default", "admin");
    bind(&cluster, ("default", "admin"), "cluster-admin", true);
    let admin = Client { url: &url, token: secret };

    let ready = |path: &str| {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut answer = agent.get(format!("http://{health}{path}")).call().unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    };
    cluster.until("a server that is ready", |_| (ready("/readyz").0 == 200).then_some(()));
    assert_eq!(ready("/healthz").0, 200);
    let who = admin.document("/v1/whoami");
    assert_eq!((&who["user"], &who["role"]), (&json!(user("default", "admin")), &json!("viewer")));

    // What runs is where its pods are, with their devices.
    let path = "/v1/jobs/default%2Ftrain";
    let train = until(&cluster, "a job that runs", &admin, path, |job| job["state"] == "running");
    let seats: BTreeSet<(u64, String, u64)> = cluster
        .seats()
        .into_iter()
        .map(|seat| (seat.rank.unwrap().into(), seat.node.unwrap(), devices(&seat.devices.unwrap())))
        .collect();
    assert_eq!(placed(&train), seats);
    assert_eq!((&train["owner"], &train["queue"]), (&json!("default"), &json!("default")));
    assert_eq!(train["job"], Value::Null, "nothing of what its pods run");
    let id = train["id"].as_u64().unwrap();
    assert_eq!(admin.document(&format!("/v1/jobs/{id}"))["name"], "default/train");

    cluster.create(JOBS, &job("wide", 2, 8, &json!({})));
    let waits =
        |all: &BTreeMap<String, String>| all.get("default/wide").is_some_and(|state| state == "pending");
    cluster.until("a gang that waits", |_| waits(&admin.states()).then_some(()));
    let why = until(&cluster, "a reason", &admin, "/v1/jobs/default%2Fwide/why", |why| {
        why["sentences"].as_array().is_some_and(|all| !all.is_empty())
    });
    assert_eq!(why["job"]["state"], "pending", "{why:#}");
    in_a_browser(&admin);

    // Nobody decides any more. Room for another gang comes, and it is not shown as if it ran.
    cluster.kill(scheduler);
    cluster.api().delete(&format!("{JOBS}/train?propagationPolicy=Background")).unwrap();
    cluster.until("a job that is gone", |_| {
        (admin.states() == states([("default/wide", "pending")])).then_some(())
    });
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(admin.states(), states([("default/wide", "pending")]));
    let (status, gone) = admin.get(path);
    assert_eq!((status, &gone["code"]), (404, &json!("not_found")), "{gone}");

    agrees(&cluster, &admin);
    refuses(&admin);

    // It had the rights that it needs, asked for nothing else, and wrote nothing but reviews.
    let audit = Audit::of(&cluster.plane.audit_log(), role::SERVER);
    audit.assert_nothing_was_denied();
    let needed = needs(&of_server(), None);
    let reviews: BTreeSet<_> = needed.into_iter().filter(|need| need.verb == "create").collect();
    assert_eq!(reviews.len(), 2);
    assert!(audit.unmet(&reviews).is_empty(), "both reviews are made: {:?}", audit.unmet(&reviews));
    assert!(ready("/metrics").1.contains("phalanx_server_reviews_total{of=\"token\",result=\"yes\"}"));

    let own = Api::of_kubeconfig(&kubeconfig).unwrap();
    own.post(PODS, &pod("own", 1)).unwrap_err();
    own.delete(&format!("{JOBS}/wide")).unwrap_err();
    own.get("/api/v1/namespaces/default/secrets").unwrap_err();

    kill(cluster.pid(server), Signal::SIGTERM).unwrap();
    let status = cluster.until_ended();
    assert!(status.success(), "{status}: {}", cluster.log());
}

/// The dashboard, where there is a browser and the dashboard is built; `ui/tests/cluster.mjs` has the checks.
fn in_a_browser(admin: &Client<'_>) {
    let ui = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui");
    let needed = [ui.join("dist/index.html"), ui.join("node_modules"), "/usr/bin/chromium".into()];
    if let Some(missing) = needed.iter().find(|path| !path.exists()) {
        assert!(std::env::var_os("CI").is_none(), "{} is missing", missing.display());
        eprintln!("passed over in a browser: {} is missing", missing.display());
        return;
    }
    let mut checks = Command::new("node");
    checks.arg(ui.join("tests/cluster.mjs")).args([admin.url, &admin.token]);
    let output = checks.args(["default/train", "default/wide", &Fleet::name(0)]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Nodes, map, queues and overview say the same of a cluster of three nodes in which one gang waits.
fn agrees(cluster: &Cluster, admin: &Client<'_>) {
    let mut foreign = pod("foreign", 6);
    foreign["spec"]["schedulerName"] = json!("somebody-else");
    foreign["spec"]["nodeName"] = json!(Fleet::name(2));
    cluster.create(PODS, &foreign);
    let overview =
        until(cluster, "devices of others", admin, "/v1/overview", |all| all["devices"]["foreign"] == 6);
    assert_eq!(
        (&overview["nodes"]["open"], &overview["devices"]["total"]),
        (&json!(3), &json!(24)),
        "{overview:#}"
    );
    assert_eq!((&overview["jobs"]["pending"], &overview["jobs"]["running"]), (&json!(1), &json!(0)));
    assert_eq!(overview["queues"][0]["name"], "default");
    assert_eq!(overview["waiting"][0]["name"], "default/wide");
    let nodes = admin.document("/v1/nodes?limit=2");
    assert_eq!(
        (nodes["nodes"].as_array().unwrap().len(), &nodes["next"]),
        (2, &json!(Fleet::name(1))),
        "{nodes:#}"
    );
    let node = admin.document(&format!("/v1/nodes/{}", Fleet::name(2)));
    assert_eq!(node["node"]["devices"], json!(8), "{node:#}");
    assert_eq!(node["node"]["foreign"].as_u64().map(u64::count_ones), Some(6), "{node:#}");
    let map = admin.document("/v1/map");
    let held = map["nodes"].as_array().unwrap().iter().flat_map(|node| node["devices"].as_array().unwrap());
    assert_eq!(held.filter(|device| **device == -1).count(), 6);
    let queue = admin.document("/v1/queues/default");
    assert_eq!(queue["waiting"][0]["name"], "default/wide", "{queue:#}");
    assert_eq!(admin.document("/v1/health")["lines"], json!([]));
    for path in ["/v1/topology", "/v1/calendar", "/v1/queues", "/v1/version"] {
        admin.document(path);
    }
}

/// What would change something, or is not known here, is refused with the command that does it.
fn refuses(admin: &Client<'_>) {
    for (method, path, hint) in [
        ("DELETE", "/v1/jobs/default%2Fwide", "kubectl delete -n default KIND/wide"),
        ("POST", "/v1/jobs/default%2Fwide/hold", "kubectl patch -n default KIND/wide"),
        ("GET", "/v1/jobs/default%2Fwide/logs", "kubectl logs -n default POD"),
        ("GET", "/v1/jobs/default%2Fwide/events", "kubectl events -n default"),
        ("POST", "/v1/nodes/node-00000/cordon", "kubectl cordon node-00000"),
        ("GET", "/v1/audit", "audit log of the API server"),
        ("GET", "/v1/bill", "metrics of the scheduler"),
        ("GET", "/v1/tokens", "API server"),
        ("POST", "/v1/what-if", "phalanx sim whatif --live --to kubernetes"),
    ] {
        let (status, problem) = admin.ask(method, path);
        assert_eq!((status, &problem["code"]), (422, &json!("rejected")), "{method} {path}: {problem}");
        assert!(problem["hint"].as_str().unwrap().contains(hint), "{problem}");
    }
}

/// Users of a cluster with two teams.
struct Users<'a> {
    /// No rights.
    nobody: Client<'a>,
    /// Views all of the first team.
    member: Client<'a>,
    /// The same, and lists nodes, queues and their health.
    looker: Client<'a>,
    /// Views all namespaces, and lists nodes.
    reader: Client<'a>,
}

/// Gangs of two teams: one of each that runs and one that waits.
fn teams(cluster: &mut Cluster) {
    for namespace in ["team-a", "team-b"] {
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        cluster.create("/api/v1/namespaces", &object);
    }
    let queue = json!({ "apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": { "name": "default" },
                        "spec": { "guaranteed": { "gpus": 16 } } });
    cluster.create(QUEUES, &queue);
    cluster.schedule(0);
    cluster.create(&jobs_of("team-b"), &job("hush", 2, 6, &json!({})));
    cluster.until_runs("hush", 2);
    cluster.create(&jobs_of("team-b"), &job("hushed", 2, 8, &json!({})));
    cluster.create(&jobs_of("team-a"), &job("mine", 1, 2, &json!({})));
    cluster.until_runs("mine", 1);
    cluster.create(&jobs_of("team-a"), &job("later", 2, 8, &json!({})));
}

/// Makes the users and gives them their rights.
fn users<'a>(cluster: &Cluster, url: &'a str) -> Users<'a> {
    let client = |token: String| Client { url, token };
    // Users with rights to nodes and queues, and to the pods of one namespace alone.
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "looks" },
        "rules": [
            { "apiGroups": [""], "resources": ["nodes"], "verbs": ["list"] },
            { "apiGroups": ["phalanx.dev"], "resources": ["queues", "nodetopologies"], "verbs": ["list"] },
        ],
    });
    cluster.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &role);
    let nobody = client(token(cluster, "team-a", "nobody"));
    let member = client(token(cluster, "team-a", "member"));
    bind(cluster, ("team-a", "member"), "view", false);
    let looker = client(token(cluster, "team-a", "looker"));
    bind(cluster, ("team-a", "looker"), "view", false);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": "looks" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks" },
        "subjects": [
            { "kind": "ServiceAccount", "name": "looker", "namespace": "team-a" },
            { "kind": "ServiceAccount", "name": "reader", "namespace": "team-b" },
        ],
    });
    cluster.create(BINDINGS, &binding);
    until_may(cluster.api(), &user("team-a", "looker"), "", "phalanx.dev", "queues", "list");
    let reader = client(token(cluster, "team-b", "reader"));
    bind(cluster, ("team-b", "reader"), "view", true);

    Users { nobody, member, looker, reader }
}

/// A user tries all documents for names of other namespaces.
#[test]
fn a_user_sees_the_jobs_of_its_namespaces_and_no_name_of_any_other() {
    let mut cluster = Cluster::of(2);
    define(&cluster);
    teams(&mut cluster);
    let kubeconfig = role::server(&cluster.plane);
    let (_, url) = cluster.serve(&kubeconfig);
    let users = users(&cluster, &url);
    let Users { nobody, member, looker, reader } = &users;
    let all = [
        ("team-a/later", "pending"),
        ("team-a/mine", "running"),
        ("team-b/hush", "running"),
        ("team-b/hushed", "pending"),
    ];
    cluster.until("all jobs", |_| {
        // The first lists may not be complete yet.
        (reader.get("/v1/jobs").0 == 200 && reader.states() == states(all)).then_some(())
    });
    let own = [("team-a/later", "pending"), ("team-a/mine", "running")];
    assert_eq!(member.states(), states(own));
    assert_eq!(looker.states(), states(own));
    assert_eq!(nobody.states(), states([]));

    hides_jobs(&users);
    by_the_command_line(&users);
    hides_in_documents(&users);
    counts_what_is_hidden(&users);
    turns_down_tokens(&cluster, &users);

    // Rights that are taken away end within seconds.
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings/team-a-member";
    cluster.api().delete(path).unwrap();
    cluster.until("a user who sees nothing any more", |_| member.states().is_empty().then_some(()));

    // An API server that does not answer says nothing of a token.
    let unknown = Client { url: &url, token: token(&cluster, "team-a", "late") };
    cluster.plane.stop(Program::ApiServer);
    let (status, problem) = unknown.get("/v1/jobs");
    assert_eq!((status, &problem["code"]), (503, &json!("unavailable")), "{problem}");
}

/// Jobs of others are as jobs that are not there.
fn hides_jobs(Users { nobody, member, looker, reader }: &Users<'_>) {
    // One that may not be seen is as one that is not there, by name and by number.
    let id = |client: &Client<'_>, name: &str| client.document(&format!("/v1/jobs/{name}"))["id"].clone();
    let hushed = id(reader, "team-b%2Fhushed");
    for path in ["team-b%2Fhush", "team-b%2Fhushed", "team-b%2Fnone", &hushed.to_string(), "999999"] {
        for part in ["", "/why"] {
            for client in [member, looker, nobody] {
                let (status, problem) = client.get(&format!("/v1/jobs/{path}{part}"));
                assert_eq!((status, &problem["code"]), (404, &json!("not_found")), "{path}{part}: {problem}");
            }
        }
    }
    assert_eq!(nobody.get("/v1/jobs/team-a%2Fmine").0, 404);
    // Nor by a filter that would find it.
    for filter in ["text=hush", "name=*hush*", "owner=team-b", "queue=default&text=team-b"] {
        assert_eq!(member.document(&format!("/v1/jobs?{filter}"))["items"], json!([]), "{filter}");
    }
    assert_eq!(
        looker.document("/v1/nodes?text=hush")["nodes"],
        json!([]),
        "a search for jobs that run there"
    );
}

/// The command line shows each user the same, and passes on how to change something.
fn by_the_command_line(Users { nobody, member, reader, .. }: &Users<'_>) {
    let phalanx = Path::new(env!("CARGO_BIN_EXE_phalanx-test-daemon")).with_file_name("phalanx");
    if !phalanx.exists() {
        assert!(std::env::var_os("CI").is_none(), "missing: cargo build -p phalanx-cli");
        eprintln!("passed over, missing: cargo build -p phalanx-cli");
        return;
    }
    let run = |client: &Client<'_>, words: &str| {
        let mut command = Command::new(&phalanx);
        command.args(words.split(' ')).env("PHALANX_URL", client.url).env("PHALANX_TOKEN", &client.token);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), text)
    };
    let (code, own) = run(member, "ps");
    assert!(code == 0 && own.contains("team-a/mine") && !own.contains("hush"), "{own}");
    let (code, why) = run(member, "why team-a/later");
    assert!(code == 0 && why.contains("team-a/later") && !why.contains("hush"), "{why}");
    let (code, nodes) = run(reader, "nodes");
    assert!(code == 0 && nodes.contains("node-00001"), "{nodes}");
    let (code, denied) = run(nobody, "nodes");
    assert!(code == 77, "{denied}");
    let (code, refused) = run(reader, "cancel team-a/mine");
    assert!(code == 64 && refused.contains("kubectl delete -n team-a"), "{refused}");
}

/// No document has a name of others, for a user who may read it.
fn hides_in_documents(Users { nobody, member, looker, .. }: &Users<'_>) {
    let documents = [
        "/v1/overview",
        "/v1/map",
        "/v1/nodes",
        "/v1/nodes/node-00000",
        "/v1/calendar",
        "/v1/queues",
        "/v1/queues/default",
        "/v1/health",
    ];
    for path in documents {
        for client in [member, nobody] {
            let (status, problem) = client.get(path);
            assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{path}: {problem}");
        }
    }
    let of_jobs =
        ["/v1/jobs", "/v1/jobs/team-a%2Flater", "/v1/jobs/team-a%2Flater/why", "/v1/jobs/team-a%2Fmine"];
    for path in documents.into_iter().chain(of_jobs) {
        let document = looker.document(path).to_string();
        assert!(!document.contains("hush") && !document.contains("team-b"), "{path}: {document}");
    }
}

fn counts_what_is_hidden(Users { looker, reader, .. }: &Users<'_>) {
    // What others hold is shown as held, and is counted.
    let map = looker.document("/v1/map");
    let devices: Vec<&Value> = map["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|node| node["devices"].as_array().unwrap())
        .collect();
    assert_eq!(devices.iter().filter(|device| ***device == -1).count(), 12, "{map:#}");
    assert_eq!(map["jobs"].as_array().unwrap().len(), 1);
    let overview = looker.document("/v1/overview");
    assert_eq!(
        (&overview["devices"]["held"], &overview["devices"]["free"]),
        (&json!(14), &json!(2)),
        "{overview:#}"
    );
    assert_eq!((&overview["jobs"]["running"], &overview["jobs"]["pending"]), (&json!(1), &json!(1)));
    let queue = looker.document("/v1/queues/default");
    let waiting: Vec<&Value> = queue["waiting"].as_array().unwrap().iter().map(|of| &of["name"]).collect();
    assert_eq!((waiting, &queue["more"]), (vec![&json!("team-a/later")], &json!(1)), "{queue:#}");
    let why = looker.document("/v1/jobs/team-a%2Flater/why");
    assert_eq!(why["reports"], json!([]), "reports name what others hold");
    assert!(!why["sentences"].as_array().unwrap().is_empty());
    assert!(!reader.document("/v1/jobs/team-a%2Flater/why")["reports"].as_array().unwrap().is_empty());
}

fn turns_down_tokens(cluster: &Cluster, Users { member, reader, .. }: &Users<'_>) {
    let client = |token: String| Client { url: member.url, token };
    // A token that is none, one whose signature is another's, and one whose account is gone.
    let (signed, _) = member.token.rsplit_once('.').unwrap();
    let (_, signature) = reader.token.rsplit_once('.').unwrap();
    let ended = token(cluster, "team-b", "ended");
    cluster.api().delete("/api/v1/namespaces/team-b/serviceaccounts/ended").unwrap();
    cluster.until("an account that is gone", |_| {
        (client(ended.clone()).get("/v1/whoami").0 == 401).then_some(())
    });
    for bad in ["x".to_owned(), format!("{signed}.{signature}"), ended, "a".repeat(20_000)] {
        let (status, problem) = client(bad).get("/v1/jobs");
        assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")), "{problem}");
    }
}
