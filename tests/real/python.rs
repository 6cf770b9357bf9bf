//! The Python client on real daemons: its own tests, with the standard library alone.

use std::path::PathBuf;
use std::process::Command;

use crate::support::exe;

#[test]
fn the_python_client_s_own_tests_pass() {
    let phalanx = exe().with_file_name("phalanx");
    let python = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../python");
    if !phalanx.exists() || Command::new("python3").arg("--version").output().is_err() {
        let what = "python3, or the program beside the test daemon: cargo build -p phalanx-cli";
        assert!(std::env::var_os("CI").is_none(), "missing: {what}");
        eprintln!("passed over, missing: {what}");
        return;
    }
    // Nothing is written beside the sources.
    let mut tests = Command::new("python3");
    tests.args(["-B", "-m", "unittest", "discover", "-s"]).arg(python.join("tests"));
    let output = tests.env("PHALANX_BIN", phalanx).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("OK"), "{said}");
}
