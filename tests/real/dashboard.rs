//! The dashboard in a real browser, on a real daemon.

use std::path::{Path, PathBuf};
use std::process::Command;

use phalanx_api::protocol::{Answer, TokenAsk, Verb};

use crate::support::{Bench, shell};

const CLUSTER: &str = "levels: [cluster, leaf]
nodes:
- {name: 'a[1-2]', devices: {count: 8, link: nvlink, model: NVIDIA H100}, path: {leaf: leaf-1}}
- {name: 'b[1-2]', devices: {count: 8, link: nvlink, model: NVIDIA H100}, path: {leaf: leaf-2}}
";

/// What is missing here for the test, if something is.
fn missing(ui: &Path) -> Option<&'static str> {
    let found = |path: &str| Path::new(path).exists();
    if !ui.join("dist/index.html").exists() || !ui.join("node_modules").exists() {
        return Some("the dashboard is not built: make ui");
    }
    (!found("/usr/bin/chromium")).then_some("there is no browser: apt-get install chromium")
}

/// Every page, with what a person would see there; `ui/tests/browser.mjs` has the checks.
#[test]
fn people_see_and_do_in_a_browser_what_there_is() {
    let ui = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../ui");
    if let Some(what) = missing(&ui) {
        assert!(std::env::var_os("CI").is_none(), "{what}");
        eprintln!("passed over: {what}");
        return;
    }
    let bench = Bench::up_with(CLUSTER);
    let ask = TokenAsk { name: "browser".to_owned(), read_only: false, for_ms: 3_600_000 };
    let Ok(Answer::Token(made)) = bench.ask(Verb::NewToken(ask)) else { panic!() };
    let mut job = shell(4, "for i in $(seq 1000); do echo step $i; sleep 1; done");
    job.name = phalanx_model::JobName::new("train").unwrap();
    let id = bench.submit(job);
    bench.await_state(id, "running");
    let checks =
        Command::new("node").arg(ui.join("tests/browser.mjs")).args([&made.address, &made.text]).output();
    let output = checks.expect("node");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}
