//! Clusters to hang a trace on.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use phalanx_model::{LevelName, Node};
use phalanx_sim::cluster::{Beside, Clos, Cluster, NodeShape};
use phalanx_sim::policies::{Packing, Room};
use phalanx_sim::replay::{Free, Job, Machines};

fn uplink(cluster: &Cluster, level: &str) -> u32 {
    cluster.costs.levels[&LevelName::new(level).unwrap()].uplink_mb_per_s
}

fn path(node: &Node) -> String {
    node.path.iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
}

#[test]
fn a_clos_of_two_tiers_is_a_cluster_file() {
    let clos = Clos::read("2x4x8:2").unwrap();
    let expected = "\
levels: [cluster, leaf]
nodes:
  - {name: \"l0-n[0-3]\", devices: {count: 8, link: nvlink, model: \"NVIDIA H100 80GB HBM3\"}, nic_bandwidth: 400000MB/s, path: {leaf: l0}}
  - {name: \"l1-n[0-3]\", devices: {count: 8, link: nvlink, model: \"NVIDIA H100 80GB HBM3\"}, nic_bandwidth: 400000MB/s, path: {leaf: l1}}
links:
  leaf: {bandwidth: 800000MB/s, latency: 1us}
";
    assert_eq!(clos.file().unwrap(), expected);
    let cluster = Cluster::of_clos(&clos).unwrap();
    assert_eq!((cluster.nodes.len(), cluster.gpus(), uplink(&cluster, "leaf")), (8, 64, 800_000));
    assert_eq!(path(&cluster.nodes[5]), "cluster/l1");
}

/// The bandwidth of all NICs of a machine is no reason to have a device on each of many.
#[test]
fn what_a_node_holds_stays_on_one_where_nics_are_declared() {
    let cluster = Cluster::of_clos(&Clos::read("4x2x8:2").unwrap()).unwrap();
    let machines = Machines::from(cluster);
    let mut room = Room::new(Packing::Topology);
    room.become_free(&machines, &Free::all(&machines));
    for gpus in [2, 4, 8] {
        let place = room.find(&machines, &Job::default(), gpus).unwrap();
        assert_eq!(place.len(), 1, "{gpus} GPUs on {place:?}");
    }
}

#[test]
fn a_clos_of_three_tiers_narrows_above_its_blocks() {
    let cluster = Cluster::of_clos(&Clos::read("3x2x4x4:1.5").unwrap()).unwrap();
    assert_eq!((cluster.nodes.len(), cluster.gpus()), (24, 96));
    assert_eq!((uplink(&cluster, "leaf"), uplink(&cluster, "block")), (800_000, 1_066_666));
    assert_eq!(path(&cluster.nodes[23]), "cluster/b2/b2-l1");
    let large = Cluster::of_clos(&Clos::read("25x16x32x8").unwrap()).unwrap();
    assert_eq!(large.gpus(), 102_400);
}

#[test]
fn what_is_no_fabric_is_refused() {
    for text in ["", "8", "8x8", "0x8x8", "2x2x2x2x2", "2x2x2:0", "2x2xa", "2x2x-1", "2x2x2:"] {
        let error = Clos::read(text).unwrap_err().to_string();
        assert!(error.contains("is no fabric such as 16x32x8"), "{text}: {error}");
    }
    let error = Cluster::of_clos(&Clos::read("1000x1000x8").unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("the fabric has 1000000 nodes"), "{error}");
    let error = Cluster::of_clos(&Clos::read("1x1x65").unwrap()).unwrap_err().to_string();
    assert!(error.contains("64"), "{error}");
}

#[test]
fn a_cluster_file_may_name_topology_texts() {
    let text = "nodes:\n  - {name: \"a[1-2]\", topo: h.txt, nic_bandwidth: 50GB/s}\n";
    let topo = "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n";
    let read = |file: &str| if file == "h.txt" { Ok(topo.to_owned()) } else { Err("no".to_owned()) };
    let cluster = Cluster::of_file(text, "c.yaml", read).unwrap();
    assert_eq!((cluster.nodes.len(), cluster.gpus()), (2, 4));
    assert!(cluster.nodes[0].machine.cpu_milli >= 1_000_000, "what is not told is plenty");
    let error = Cluster::of_file(text, "c.yaml", |file| Err(format!("{file} is not there"))).unwrap_err();
    assert!(error.to_string().contains("h.txt is not there"), "{error}");
    let error = Cluster::of_file("nodes: 5\n", "c.yaml", read).unwrap_err();
    assert!(error.to_string().contains("c.yaml"), "{error}");
}

#[test]
fn a_table_of_switches_has_the_machines_that_it_is_given() {
    let text = "host,leaf,spine\na,l1,s1\nb,l1,s1\nc,l1,s1\nd,l2,s1\ne,l2,s1\nf,l1,s2\ng,l1,s2\n";
    let shape = NodeShape { gpus: 4, nic_mb_per_s: 1_000, ..NodeShape::default() };
    let cluster = Cluster::of_table(text, &shape, 2_000).unwrap();
    assert_eq!((cluster.nodes.len(), cluster.gpus()), (7, 28));
    let levels: Vec<&str> = cluster.levels.above.iter().map(LevelName::as_str).collect();
    assert_eq!(levels, ["cluster", "spine", "leaf"]);
    assert_eq!((uplink(&cluster, "leaf"), uplink(&cluster, "spine")), (1_500, 2_500));
    assert!(Cluster::of_table("nothing here", &shape, 1_000).is_err());
}

#[test]
fn shapes_and_lists_of_nodes_are_told_apart() {
    let open = Beside::default();
    let shape = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n2,3,8,92,520\n";
    let cluster = Cluster::of_published(shape.as_bytes(), &open).unwrap();
    assert_eq!((cluster.nodes.len(), cluster.gpus()), (6, 48));
    let machine = &cluster.nodes[0].machine;
    assert_eq!((machine.cpu_milli, machine.memory_bytes), (92_000, 520 << 30));
    let list = "sn,cpu_milli,memory_mib,gpu,model\nn-0,32500,1024,0,\nn-1,96000,2048,2,P100\n";
    let cluster = Cluster::of_published(list.as_bytes(), &open).unwrap();
    assert_eq!((cluster.nodes.len(), cluster.gpus()), (2, 2));
    assert_eq!(
        (cluster.nodes[0].machine.cpu_milli, cluster.nodes[1].machine.memory_bytes),
        (32_500, 2 << 30)
    );
    for (text, error) in [
        (
            "sn,cpu_milli,memory_mib,gpu,model\nn-0,many,1024,0,\n",
            "row 2: cpu_milli: \"many\" is no whole number",
        ),
        ("sn,cpu_milli,memory_mib,gpu,model\nn-0,1\n", "row 2: is no row"),
        ("a,b\n1,2\n", "the header \"a,b\" is neither"),
        (
            "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n0,3,8,92,520\n",
            "the fabric has 0 nodes",
        ),
    ] {
        let found = Cluster::of_published(text.as_bytes(), &open).unwrap_err().to_string();
        assert!(found.starts_with(error), "{found}");
    }
}

#[test]
fn published_clusters_as_their_readme_counts_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap().join("shared/data/traces");
    if !root.is_dir() {
        println!("skipped: ../shared/data is not there");
        return;
    }
    let read = |file: &str| std::fs::read(root.join(file)).unwrap();
    let published = |file: &str| {
        let cluster = Cluster::of_published(&read(file), &Beside::default()).unwrap();
        (cluster.nodes.len(), cluster.gpus())
    };
    assert_eq!(published("muri/n8g8.csv"), (8, 64));
    assert_eq!(published("tiresias/n32g4.csv"), (32, 128));
    assert_eq!(published("tiresias/n160g8.csv"), (160, 1_280));
    assert_eq!(published("tiresias/n256g8.csv"), (256, 2_048));
    assert_eq!(published("openb/openb_node_list_all_node.csv"), (1_523, 6_212));
    assert_eq!(published("openb/openb_node_list_gpu_node.csv"), (1_213, 6_212));
    let topo = String::from_utf8(read("lingjun/topo.csv")).unwrap();
    let lingjun = Cluster::of_table(&topo, &NodeShape::default(), 1_000).unwrap();
    assert_eq!((lingjun.nodes.len(), lingjun.gpus()), (847, 6_776));
    let leaves: std::collections::BTreeSet<String> = lingjun.nodes.iter().map(path).collect();
    assert_eq!(leaves.len(), 119);
}
