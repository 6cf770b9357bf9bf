//! `predict`: from the text of a dump to the time of a collective, without a daemon.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Exit status, standard output, standard error.
type Ran = (i32, String, String);

fn run(folder: &Path, columns: u16, words: &str) -> Ran {
    let out = Command::new(env!("CARGO_BIN_EXE_phalanx"))
        .current_dir(folder)
        .env("COLUMNS", columns.to_string())
        .env("PHALANX_STATE", folder.join("state"))
        .env("LC_ALL", "C.UTF-8")
        .env_remove("TERM")
        .arg("predict")
        .args(words.split_whitespace().map(|word| word.replace('_', " ")))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

/// Compares a page; `UPDATE=1` writes it anew.
fn same(name: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, shown).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(shown, known, "{name} differs; UPDATE=1 writes it anew");
}

/// Eight GPUs of NVLink, each with a NIC on its switch, as `topo -m` prints it: no speed is in it.
fn matrix() -> String {
    let names: Vec<String> =
        (0..8).map(|i| format!("GPU{i}")).chain((0..8).map(|i| format!("mlx5_{i}"))).collect();
    let mut text = format!("\t{}\n", names.join("\t"));
    for (i, name) in names.iter().enumerate() {
        let cell = |j: usize| match (i, j) {
            _ if i == j => " X ",
            (0..8, 0..8) => "NV18",
            _ if i % 8 == j % 8 => "PIX",
            _ => "NODE",
        };
        writeln!(text, "{name}\t{}", (0..16).map(cell).collect::<Vec<_>>().join("\t")).unwrap();
    }
    text
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn pages() {
    let box_ = matrix();
    let cluster = "nodes:\n  - {name: 'b[1-2]', topo: box.txt, model: NVIDIA B200}\n";
    let job = "command: [train]\nresources: {gpus: 12}\ntraffic: {pattern: all_reduce, bytes: 1GiB, compute: 20ms}\n";
    let folder = folder(&[("box.txt", &box_), ("b.yaml", cluster), ("job.yaml", job)]);
    let page = |columns, words: &str| {
        let (code, out, err) = run(folder.path(), columns, words);
        assert_eq!(code, 0, "{words}: {err}");
        assert!(out.lines().all(|line| line.chars().count() <= usize::from(columns)), "{out}");
        out
    };
    let named = "all-reduce 1KiB..8GiB --factor 128 --on b1:0-3,b2:0-3 --cluster b.yaml";
    same("predict.txt", &page(140, named));
    same("predict-80.txt", &page(80, named));
    same("predict-gpus.txt", &page(140, "all-reduce 8KiB,1GiB -G 12 --cluster 2x4x8"));
    same("predict-same.txt", &page(140, "all-to-all 1GiB -G 16 --cluster 2x4x8"));
    same("predict-job.txt", &page(80, "-f job.yaml --cluster 2x4x8"));
    same("predict.csv", &page(140, "all-gather 1GiB --on b1,b2 --cluster b.yaml -o csv"));
    same("predict.json", &page(140, "reduce-scatter 1GiB --on b1:0,b2:0 --cluster b.yaml -o json"));
    let quiet = page(140, "broadcast 1MiB --on b1 --cluster b.yaml --quiet");
    assert_eq!(quiet.lines().count(), 1, "{quiet}");
    assert_eq!(page(140, "send-recv 1MiB --on b1:0,b2:7 --cluster b.yaml -o name"), "b1:0,b2:7\n");
}

#[test]
fn bad_input_says_what_and_what_to_do() {
    let folder =
        folder(&[("job.yaml", "command: [train]\nresources: {gpus: 4096}\n"), ("nothing.txt", "x\n")]);
    for (words, expected) in [
        ("all-reduce 1GiB --on l9-n0", "there is no node l9-n0 in 2x4x8"),
        ("all-reduce 1GiB --on l0-n0:8", "l0-n0 has no GPU 8"),
        ("all-reduce 1GiB --on l0-n0:0-64", "expected device numbers from 0 to 63"),
        ("all-reduce 1GiB --on l0-n0:0,0-1", "GPU 0 of l0-n0 is named twice"),
        ("all-reduce 1GiB --on l0-n0:0-3,l0-n[0-1]:3", "GPU 3 of l0-n0 is named twice"),
        ("all-reduce 1GiB --on l0-n[0", "opens a bracket that is not closed"),
        ("all-reduce 1GiB --on l0-n0:3", "a collective needs two GPUs, and l0-n0:3 is one"),
        ("all-reduce 1GiB --on ,", "--on names no GPU"),
        ("all-reduce 1GiB -G 1", "a collective needs two GPUs"),
        ("all-reduce 1GiB -G 65", "never fit"),
        ("all-reduce 1GiB -f job.yaml", "never fit"),
        ("all-reduce 0 -G 8", "a message of 0 bytes"),
        ("all-reduce 8GiB..8MiB -G 8", "the sweep ends before it begins"),
        ("all-reduce 9999TiB -G 8", "expected at most 1PiB"),
        ("send-recv 1GiB -G 8", "send-recv is between two GPUs, and these are 8"),
        ("all-reduce 1GiB", "--on"),
        ("all-reduce 1GiB -G 8 --on l0-n0", "cannot be used with"),
        ("ring 1GiB -G 8", "invalid value 'ring'"),
        ("all-reduce 1GiB -G 8 --model B200", "--model goes with files"),
    ] {
        let (code, out, err) = run(folder.path(), 140, &format!("{words} --cluster 2x4x8"));
        assert!(code != 0 && out.is_empty() && err.contains(expected), "{words}: {code} {err}");
    }
    for (cluster, expected) in [
        ("2x4", "2x4"),
        ("2x4x99", "2x4x99"),
        ("gone.yaml", "cannot read gone.yaml"),
        ("nothing.txt", "nothing.txt"),
    ] {
        let (code, _, err) = run(folder.path(), 140, &format!("all-reduce 1GiB -G 8 --cluster {cluster}"));
        assert!(code != 0 && err.contains(expected), "{cluster}: {code} {err}");
    }
    let many: Vec<String> = (1..=300).map(|i| format!("{i}MiB")).collect();
    let (_, _, err) = run(folder.path(), 140, &format!("all-reduce {} -G 8 --cluster 2x4x8", many.join(",")));
    assert!(err.contains("more than 256 sizes"), "{err}");
}
