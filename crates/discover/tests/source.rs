//! Every text is recognised for what it is, and read.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use phalanx_discover::source::{self, Found, Kind};

/// Folder, part of the file name, kind.
const REAL: &[(&str, &str, Kind)] = &[
    ("topology/topo_m", "p2p-", Kind::PeerAccess),
    ("topology/topo_m", "", Kind::TopoM),
    ("topology/nccl_topo_xml", "-graph", Kind::NcclGraph),
    ("topology/nccl_topo_xml", "", Kind::NcclTopo),
    ("topology/rccl_topo_xml", "", Kind::NcclTopo),
    ("topology/hwloc", "", Kind::Hwloc),
    ("topology/rocm_topo", "", Kind::Rocm),
    ("topology/ibnetdiscover", "example.out", Kind::Ibnetdiscover),
    ("topology/lspci_nvlink", "nvlink.status.a100", Kind::Nvlink),
    ("topology/slurm", ".conf", Kind::SlurmConf),
    ("topology/slurm", "oke-", Kind::SlurmYaml),
    ("topology/slurm", "slurm-man", Kind::SlurmYaml),
    // A list of blocks in the form of topology.conf.
    ("topology/slurm", "topograph-dra", Kind::SlurmConf),
    ("topology/topograph", "", Kind::Topograph),
    ("mig", "lgi", Kind::Mig),
    ("k8s", "nvml-mock-profile", Kind::NvmlProfile),
    ("k8s", "resourceslice", Kind::ResourceSlices),
    ("k8s", "volcano-hypernodes", Kind::Topologies),
    ("k8s", "kueue-topology", Kind::Topologies),
    ("k8s", "kueue-tas", Kind::Topologies),
    ("k8s", "kai-", Kind::Topologies),
    ("traces/lingjun", "topo.csv", Kind::ClosCsv),
];

fn data() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3)?.join("shared/data");
    root.is_dir().then_some(root)
}

#[test]
fn real_texts_are_recognised_and_read() {
    let Some(root) = data() else {
        println!("skipped: ../shared/data is not there");
        return;
    };
    let mut wrong = Vec::new();
    let mut seen = 0;
    let mut folders: Vec<&str> = REAL.iter().map(|(folder, ..)| *folder).collect();
    folders.dedup();
    for folder in folders {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for path in files {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let Some((_, _, kind)) = REAL.iter().find(|(f, part, _)| *f == folder && name.contains(part))
            else {
                continue;
            };
            seen += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            let found = Kind::detect(&text);
            if found != Some(*kind) {
                wrong.push(format!("{folder}/{name}: {found:?} and not {kind:?}"));
            } else if let Err(error) = source::read(&text, None, Some("host")) {
                wrong.push(format!("{folder}/{name}: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 80, "only {seen} files were there");
}

#[test]
fn a_text_that_is_nothing_says_what_could_be_given() {
    for text in ["", "hello", "{}", "a: 1", "nodes: []", "1,2,3\n4,5,6"] {
        let error = source::read(text, None, None).unwrap_err().to_string();
        assert!(error.contains("topo-m, p2p, nvlink"), "{text:?}: {error}");
    }
}

#[test]
fn words_are_unique_and_read_back() {
    for kind in Kind::ALL {
        assert_eq!(Kind::named(kind.word()), Some(kind));
    }
}

#[test]
fn a_kind_can_be_forced() {
    let text = "host,leaf\nn1,l1\n";
    assert!(matches!(source::read(text, None, None), Ok(Found::Fabric(_))));
    assert!(source::read(text, Some(Kind::Hwloc), None).is_err());
}

/// A limit is named by the reader, and not taken for an unknown kind.
#[test]
fn limits_are_named_when_they_refuse() {
    let names: String = (0..65).map(|i| format!("\tGPU{i}")).collect();
    let row: String = (0..65).map(|i| if i == 0 { "\t X " } else { "\tNV18" }).collect();
    let many = format!("{names}\nGPU0{row}\n");
    let told = |text: &str| source::read(text, None, None).unwrap_err().to_string();
    assert!(told(&many).contains("more than 64 GPUs in one machine are not supported"), "{}", told(&many));
    let long = format!("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n\n{}", "x\n".repeat(600_000));
    assert!(told(&long).contains("and at most 1048576 are read"), "{}", told(&long));
}
