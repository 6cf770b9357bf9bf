//! What would change, over HTTP: the simulator runs beside a real daemon.

use std::net::Shutdown;

use super::*;
use crate::support::until;

const ONE_LEAF: &str = "levels: [cluster, leaf]
nodes:
- {name: 'n[1-2]', devices: {count: 8, model: Test GPU}, path: {leaf: leaf-1}}
";
const TWO_QUEUES: &str = "queues: [{name: vision, weight: 1}, {name: speech, weight: 1}]\n";

fn gang(answer: &Value, job: JobId) -> &Value {
    let rows = answer["gangs"].as_array().unwrap();
    rows.iter().find(|row| row["gang"]["job"] == job.0).unwrap_or_else(|| panic!("{answer:#}"))
}

#[test]
fn a_node_that_would_be_drained_moves_its_job_and_nothing_is_done() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let client = Client::new(&bench, "planner");
    let runs = submit(&client, &file("runs", 8, "exec sleep 1000"));
    bench.await_state(runs, "running");
    let (_, job) = client.get(&format!("/v1/jobs/{runs}"));
    let node = job["gangs"][0]["placement"]["slots"][0]["node"].as_str().unwrap().to_owned();
    let other = if node == "n1" { "n2" } else { "n1" };
    let wanted = "{name: more, ranks: 8, resources: {gpus: 8}, run: 'true', time_limit: 1h}";
    let ask = json!({ "drain": [node], "job": wanted, "horizon": "2h" });
    let (status, answer) = client.post("/v1/what-if", &ask);
    assert_eq!(status, 200, "{answer}");
    assert_eq!((&answer["is_predicted"], &answer["horizon_ms"]), (&json!(true), &json!(7_200_000)));
    let moved = gang(&answer, runs);
    assert_eq!(moved["as_is"]["stops"], json!([]), "{answer:#}");
    assert_eq!((&moved["then"]["stops"][0]["at"], &moved["change"]), (&answer["from"], &json!("moved")));
    assert_eq!(moved["then"]["starts"][0]["nodes"], json!([other]), "{answer:#}");
    let fresh = answer["gangs"].as_array().unwrap().iter().find(|row| row["change"] == "new").unwrap();
    assert!(fresh.get("as_is").is_none() && fresh["then"]["job"] == "more", "{answer:#}");
    let told = answer["changes"].as_array().unwrap();
    assert_eq!((told.len(), &told[0]), (2, &json!(format!("{node} is drained"))), "{answer:#}");
    assert!(
        told[1].as_str().unwrap().starts_with("job.yaml is submitted as job 2 (more, 8 GPUs"),
        "{told:?}"
    );
    assert!(answer["assumptions"].as_array().is_some_and(|all| !all.is_empty()));

    // It is as the document says, and nothing was done.
    let (_, document) = client.get("/v1/openapi.json");
    let mut schema =
        document["paths"]["/v1/what-if"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
            .clone();
    schema["components"] = document["components"].clone();
    let errors: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&answer)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert_eq!(errors, [""; 0], "{answer:#}");
    let (_, nodes) = client.get("/v1/nodes");
    assert!(nodes["nodes"].as_array().unwrap().iter().all(|node| node["admin"] == "open"), "{nodes:#}");
    assert_eq!(client.get("/v1/jobs").1["items"].as_array().unwrap().len(), 1);
    assert_eq!(bench.get(runs).gangs[0].attempt, 1);
    assert_eq!(std::fs::read_dir(bench.paths.root().join("what-if")).unwrap().count(), 0);
    bench.cancel(runs);
}

#[test]
fn queues_and_nodes_would_be_others_and_what_is_wrong_is_named() {
    let mut bench = Bench::new(ONE_LEAF);
    let queues = bench.path("queues.yaml");
    std::fs::write(&queues, TWO_QUEUES).unwrap();
    bench.up_with_queues(&queues);
    let client = Client::new(&bench, "planner");
    let ask =
        json!({ "set": { "queues.vision.weight": 3 }, "add_nodes": [{ "count": 2, "domain": "leaf-1" }] });
    let (status, answer) = client.post("/v1/what-if", &ask);
    assert_eq!(status, 200, "{answer}");
    assert!(
        answer["changes"][1].as_str().unwrap().contains("new-1 to new-2, each like n1 (8 GPUs)"),
        "{answer:#}"
    );
    let rows = answer["queues"].as_array().unwrap();
    let vision = rows.iter().find(|row| row["then"]["name"] == "vision").unwrap();
    assert_eq!([&vision["as_is"]["weight_milli"], &vision["then"]["weight_milli"]], [1_000, 3_000]);
    // Another queue file in place of the one in force.
    let (status, answer) = client.post("/v1/what-if", &json!({ "queues": "queues: [{name: audio}]" }));
    assert_eq!(status, 200, "{answer}");
    assert!(answer["queues"].as_array().unwrap().iter().any(|row| row["then"]["name"] == "audio"));

    for (ask, field, part) in [
        (json!({ "set": ["half_life=3d", "queues.nobody.weight=2"] }), "set[1]", "vision"),
        (json!({ "set": { "queues.vision.wait": "-1" } }), "set[0]", "-1"),
        (json!({ "set": ["-x=1"] }), "set[0]", "PATH=VALUE"),
        (json!({ "drain": ["n1", "n9"] }), "drain[1]", "there are n1, n2"),
        (json!({ "drain": vec!["n1"; 1_001] }), "drain", "at most 1000"),
        (json!({ "job": "gpu: 8" }), "job", "gpu"),
        (json!({ "queues": "queues: 8" }), "queues", ""),
        (json!({ "horizon": "1s" }), "horizon", "365d"),
        (json!({ "drained": ["n1"] }), "drained", "no such field"),
        (json!({ "add_nodes": [{ "count": 1, "domain": "nowhere" }] }), "add_nodes[0]", "nowhere"),
    ] {
        let (status, problem) = client.post("/v1/what-if", &ask);
        assert_eq!((status, &problem["errors"][0]["field"]), (400, &json!(field)), "{ask}: {problem}");
        let said = problem["errors"][0]["detail"].as_str().unwrap();
        assert!(said.contains(part) && !problem["hint"].as_str().unwrap().is_empty(), "{ask}: {problem}");
    }
}

#[test]
fn a_viewer_of_an_operator_may_ask_and_other_users_may_not() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let Ok(Answer::Token(made)) = bench.ask(Verb::NewToken(ask("wall", true))) else { panic!() };
    assert_eq!(Client::of(made).post("/v1/what-if", &Value::Null).0, 200);
    if !is_root("a_viewer_of_an_operator_may_ask_and_other_users_may_not") {
        return;
    }
    let (status, problem) = Client::as_nobody(&bench).post("/v1/what-if", &json!({ "horizon": "1h" }));
    assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{problem}");
    assert!(problem["hint"].as_str().unwrap().contains("/v1/jobs/dry-run"), "{problem}");
}

/// Simulators that take long are few, and end with the clients that asked.
#[test]
fn simulators_are_few_and_end_with_their_clients() {
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let client = Client::new(&bench, "planner");
    // Simulators with a job wait for this file to go.
    let held = bench.path("held");
    std::fs::create_dir(&held).unwrap();
    std::fs::write(held.join("simulator"), "").unwrap();
    let running = || {
        let runs = std::fs::read_dir(bench.paths.root().join("what-if"));
        runs.map_or(0, |runs| runs.count())
    };
    let body = json!({ "job": "run: 'true'" }).to_string();
    let host = client.base.trim_start_matches("http://").to_owned();
    let ask_and_wait = || {
        let mut stream = TcpStream::connect(&host).unwrap();
        let head = format!(
            "POST /v1/what-if HTTP/1.1\r\nhost: {host}\r\nauthorization: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            client.bearer(),
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    let (first, mut second) = (ask_and_wait(), ask_and_wait());
    until("two simulators", || running() == 2);
    let (status, problem) = client.post("/v1/what-if", &json!({}));
    assert_eq!((status, &problem["code"]), (503, &json!("unavailable")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().starts_with("2 simulations run already"), "{problem}");
    first.shutdown(Shutdown::Both).unwrap();
    drop(first);
    until("the end of the simulator whose client is gone", || running() == 1);
    assert_eq!(client.post("/v1/what-if", &json!({})).0, 200, "there is room again");
    std::fs::remove_file(held.join("simulator")).unwrap();
    second.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = [0; 15];
    second.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    until("no simulator", || running() == 0);
}
