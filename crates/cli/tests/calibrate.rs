//! `topo calibrate`: what moved, what is not determined, and what got worse.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn run(folder: &Path, words: &str) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_phalanx"))
        .current_dir(folder)
        .env("COLUMNS", "80")
        .env("LC_ALL", "C.UTF-8")
        .env_remove("TERM")
        .args(["topo", "calibrate"])
        .args(words.split_whitespace())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

#[test]
fn a_site_of_one_kind_gets_its_own_constants_and_says_what_it_cannot_know() {
    let head = "collective,bytes,nodes,gpus_per_node,hardware,nic,busbw\n";
    let line = |size: &str, nodes: u32, nic: &str, busbw: u32| {
        format!("all_reduce,{size},{nodes},8,NVIDIA A100-SXM4-80GB,{nic},{busbw}\n")
    };
    let good = ["256MiB", "1GiB", "4GiB", "8GiB", "16GiB"].map(|size| line(size, 1, "-", 150)).concat();
    let odd =
        ["256MiB", "1GiB"].map(|size| line(size, 1, "-", 235)).concat() + &line("1GiB", 2, "8x200G", 170);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("good.csv"), format!("{head}{good}")).unwrap();
    std::fs::write(folder.path().join("odd.csv"), format!("{head}{odd}")).unwrap();

    let (code, out, err) = run(folder.path(), "good.csv odd.csv");
    assert_eq!(code, 0, "{err}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
    for expected in
        ["kinds.nvlink_ampere.ring_share", "NOT DETERMINED", "predicted worse than before", "odd.csv"]
    {
        assert!(out.contains(expected), "{expected}:\n{out}");
    }
    let (code, out, err) = run(folder.path(), "good.csv odd.csv -o site.toml");
    assert_eq!(code, 0, "{out}{err}");
    let site = std::fs::read_to_string(folder.path().join("site.toml")).unwrap();
    assert!(site.contains("[kinds.nvlink_ampere]") && site.contains("ring_share = 0.982"), "{site}");
    let (_, out, _) = run(folder.path(), "good.csv --start site.toml -o json");
    let document: Value = serde_json::from_str(&out).unwrap();
    assert!(document["not_determined"].is_array(), "{out}");
    // A cluster that names the constants is predicted with them.
    let cluster = |constants: &str| {
        format!(
            "{constants}nodes:\n  - {{name: a, devices: {{count: 8, link: nvlink, model: NVIDIA A100-SXM4-80GB}}}}\n"
        )
    };
    std::fs::write(folder.path().join("site.yaml"), cluster("constants: site.toml\n")).unwrap();
    std::fs::write(folder.path().join("plain.yaml"), cluster("")).unwrap();
    let time = |file: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_phalanx"))
            .current_dir(folder.path())
            .args(["predict", "all-reduce", "1GiB", "--on", "a", "--cluster", file, "-o", "json"])
            .output()
            .unwrap();
        let document: Value = serde_json::from_slice(&out.stdout).unwrap();
        document["placements"][0]["points"][0]["time_us"].as_f64().unwrap()
    };
    assert!(time("site.yaml") > time("plain.yaml") * 1.2, "the constants of the site count");
    std::fs::write(folder.path().join("site.toml"), site + "\n[kinds.a100]\nring_share = 1.0\n").unwrap();
    let (code, _, err) = run(folder.path(), "good.csv --start site.toml");
    assert!(code != 0 && err.contains("\"a100\"") && err.contains("nvlink_ampere"), "{err}");
}
