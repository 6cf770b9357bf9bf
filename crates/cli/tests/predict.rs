//! `predict`: from the text of a dump to the time of a collective, without a daemon.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod page;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use page::same;
use serde_json::Value;
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

/// Time and bus bandwidth of each point, in ms and GB/s, and what is assumed.
fn times(folder: &Path, words: &str) -> (Vec<(f64, f64)>, String) {
    let (code, out, err) = run(folder, 140, &format!("{words} -o json"));
    assert_eq!(code, 0, "{words}: {err}");
    let document: Value = serde_json::from_str(&out).unwrap();
    let placement = &document["placements"][0];
    let points = placement["points"].as_array().unwrap().iter();
    let points = points
        .map(|p| (p["time_us"].as_f64().unwrap() / 1e3, p["busbw_gb_per_s"].as_f64().unwrap()))
        .collect();
    (points, placement["assumed"].to_string())
}

/// Eight GPUs of NVLink, each with a NIC on its switch, as `topo -m` prints it: no speed is in it.
const MATRIX: &str = include_str!("../../../fixtures/nics/nvlink-8-rails.txt");

/// Two hosts of eight ports on two leaves, as `ibnetdiscover` prints them.
fn fabric(width: &str) -> String {
    let mut text = String::new();
    let guid = |host: usize, nic: usize| format!("{:016x}", 0x2000 + host * 256 + nic);
    for leaf in 0..2 {
        let head =
            format!("vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x100{leaf}\nswitchguid=0x100{leaf}(100{leaf})");
        writeln!(text, "{head}").unwrap();
        let name = format!("\"leaf{leaf}\" enhanced port 0 lid {leaf} lmc 0");
        writeln!(text, "Switch\t64 \"S-000000000000100{leaf}\"\t\t# {name}").unwrap();
        for (at, (host, port)) in (0..2).flat_map(|host| (0..4).map(move |port| (host, port))).enumerate() {
            let nic = leaf * 4 + port;
            let guid = guid(host, nic);
            let end = format!("\"H-{guid}\"[1]({guid}) \t\t# \"node-{host} mlx5_{nic}\" lid 9 {width}");
            writeln!(text, "[{}]\t{end}", at + 1).unwrap();
        }
        text.push('\n');
    }
    for (host, nic) in (0..2).flat_map(|host| (0..8).map(move |nic| (host, nic))) {
        let guid = guid(host, nic);
        writeln!(text, "vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{guid}\ncaguid=0x{guid}").unwrap();
        writeln!(text, "Ca\t1 \"H-{guid}\"\t\t# \"node-{host} mlx5_{nic}\"").unwrap();
        let (leaf, port) = (nic / 4, host * 4 + nic % 4 + 1);
        let end =
            format!("\"S-000000000000100{leaf}\"[{port}]\t\t# lid 9 lmc 0 \"leaf{leaf}\" lid 1 {width}");
        writeln!(text, "[1]({guid}) \t{end}\n").unwrap();
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

/// Two machines of which `topo -m` and the product are all that is known took their 400 Gb/s NICs for 100 Gb/s, and from
/// 64 MiB on were predicted to take more than three times as long.
#[test]
fn a_b200_box_from_topo_m_and_its_model_is_as_fast_as_one_whose_nics_are_stated() {
    let cluster =
        |nics: &str| format!("nodes:\n  - {{name: 'b[1-2]', topo: box.txt, model: NVIDIA B200{nics}}}\n");
    let (unknown, stated) = (cluster(""), cluster(", nic_bandwidth: 400GB/s"));
    let slow = cluster(", nic_bandwidth: 100GB/s");
    let files = [
        ("box.txt", MATRIX.to_owned()),
        ("unknown.yaml", unknown),
        ("stated.yaml", stated),
        ("slow.yaml", slow),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let folder = folder(&files);
    let of =
        |file: &str| times(folder.path(), &format!("all-reduce 64MiB..8GiB --on b[1-2] --cluster {file}"));
    let ((unknown, assumed), (stated, known), (slow, _)) =
        (of("unknown.yaml"), of("stated.yaml"), of("slow.yaml"));
    assert_eq!(unknown.len(), 8);
    for (unknown, stated) in unknown.iter().zip(&stated) {
        assert!((unknown.0 / stated.0 - 1.0).abs() < 0.01, "{unknown:?} {stated:?}");
    }
    // Published are 683 to 696 GB/s for two such machines.
    let (_, busbw) = unknown[5];
    assert!((600.0..800.0).contains(&busbw), "{busbw} GB/s at 2 GiB");
    assert!(slow[5].0 / unknown[5].0 > 3.0, "as 100 Gb/s each would take: {slow:?}");
    assert!(assumed.contains("400 Gb/s each is assumed"), "{assumed}");
    assert_eq!(known, "[]");
}

/// The cables say 400 Gb/s each, and the machine's own text says nothing: 1 GiB was predicted to take 11.2 ms.
#[test]
fn a_fabric_of_eight_ndr_ports_per_host_and_topo_m_takes_its_speed_from_the_cables() {
    let (ndr, edr, host) = (fabric("4xNDR"), fabric("4xEDR"), MATRIX);
    let folder = folder(&[("ndr.txt", &ndr), ("edr.txt", &edr), ("node-0.txt", host)]);
    let of = |file: &str| {
        let words =
            format!("all-reduce 1GiB --on node-[0-1] --cluster {file},node-0.txt --model NVIDIA_B200");
        times(folder.path(), &words)
    };
    let (fast, assumed) = of("ndr.txt");
    assert!((2.7..3.1).contains(&fast[0].0), "{fast:?}");
    assert_eq!(assumed, "[]", "cables say it");
    let (slow, _) = of("edr.txt");
    assert!((10.6..11.7).contains(&slow[0].0), "eight ports of 100 Gb/s do take as long: {slow:?}");
}

/// A stated bandwidth tells no transport: over GPUDirect-TCPX half of the line rate is reached.
#[test]
fn a_declared_transport_counts_and_one_that_is_not_is_said() {
    let cluster = |more: &str| {
        let devices = "devices: {count: 8, link: nvlink, model: NVIDIA H100 80GB HBM3}";
        format!("nodes:\n  - {{name: 'a[1-2]', {devices}, nic_bandwidth: 800Gb/s{more}}}\n")
    };
    let kinds = ["", ", transport: verbs", ", transport: tcpx", ", transport: sockets", ", transport: roce"];
    let folder = tempfile::tempdir().unwrap();
    let predicted = kinds.map(|kind| {
        std::fs::write(folder.path().join("a.yaml"), cluster(kind)).unwrap();
        times(folder.path(), "all-gather 8KiB,1GiB --on a1,a2 --cluster a.yaml")
    });
    let [(unsaid, assumed), (verbs, none), (tcpx, _), (sockets, _), (roce, _)] = predicted;
    assert_eq!((&unsaid, &none[..]), (&verbs, "[]"));
    assert!(assumed.contains("transport of the NICs is not stated; verbs is assumed"), "{assumed}");
    assert!((1.8..2.2).contains(&(tcpx[1].0 / verbs[1].0)), "half of the line rate: {tcpx:?} {verbs:?}");
    assert!(tcpx[0].0 > verbs[0].0 && sockets[0].0 > verbs[0].0, "small messages take longer");
    assert_eq!(roce, verbs);

    std::fs::write(folder.path().join("a.yaml"), cluster(", transport: rdma")).unwrap();
    let (code, _, err) = run(folder.path(), 140, "all-gather 1GiB --on a1,a2 --cluster a.yaml");
    assert_eq!(code, 64, "{err}");
    assert!(err.contains("rdma") && err.contains("verbs, roce, efa, tcpx, tcpxo, sockets"), "{err}");
}

#[test]
fn pages() {
    let cluster = "nodes:\n  - {name: 'b[1-2]', topo: box.txt, model: NVIDIA B200}\n";
    let job = "command: [train]\nresources: {gpus: 12}\ntraffic: {pattern: all_reduce, bytes: 1GiB, compute: 20ms}\n";
    let folder = folder(&[("box.txt", MATRIX), ("b.yaml", cluster), ("job.yaml", job)]);
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
