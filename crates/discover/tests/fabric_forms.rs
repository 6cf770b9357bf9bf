//! Forms of each kind of text that are in the field, over fixtures of our own.

use phalanx_discover::fabric::{
    FabricError, Reading, clos_csv, gres, ibnetdiscover, lldp, slurm_conf, slurm_yaml, topograph,
};
use phalanx_model::{End, Graph, LinkKind};

macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!("../../../fixtures/fabric/", $name))
    };
}

/// The graph as lines, one for each switch, host and link; the last count cables and their speed.
fn drawn(graph: &Graph) -> String {
    let mut text = String::new();
    let name = |end: End| match end {
        End::Host(i) => graph.hosts[i as usize].name.to_string(),
        End::Switch(i) => graph.switches[i as usize].name.to_string(),
    };
    for switch in &graph.switches {
        let tier = switch.tier.map_or("-".to_owned(), |t| t.to_string());
        let rail = switch.rail.map_or(String::new(), |r| format!(" rail {r}"));
        text += &format!("switch {} tier {tier}{rail}\n", switch.name);
    }
    for host in &graph.hosts {
        let domains: String = host.domains.iter().map(|m| format!(" {}={}", m.level, m.domain)).collect();
        let place = host.torus.map_or(String::new(), |p| format!(" torus {} at {:?}", p.torus, p.at));
        text += &format!("host {}{domains}{place}\n", host.name);
    }
    for link in &graph.links {
        text += &format!("{} {} x{} {}\n", name(link.a), name(link.b), link.cables, link.mb_per_s);
    }
    text
}

fn gaps(reading: &Reading) -> Vec<String> {
    reading.gaps.iter().map(ToString::to_string).collect()
}

fn assert_drawn(reading: &Reading, lines: &[&str]) {
    let drawn = drawn(&reading.graph);
    assert_eq!(drawn.lines().collect::<Vec<_>>(), lines, "{drawn}");
}

/// Holds when every word is in the gap of its place, and there is no gap more.
fn assert_gaps(reading: &Reading, words: &[&str]) {
    let gaps = gaps(reading);
    assert_eq!(gaps.len(), words.len(), "{gaps:#?}");
    for (gap, word) in gaps.iter().zip(words) {
        assert!(gap.contains(word), "{word:?} is not in {gap:?}");
    }
}

#[test]
fn an_infiniband_fabric_of_all_ages() {
    let reading = ibnetdiscover::parse(fixture!("ib-mixed.txt")).unwrap();
    assert_drawn(
        &reading,
        &[
            "switch 0002c90300000b00 tier 2",
            "switch border-router tier -",
            "switch leaf-a/U1 tier 1",
            "switch leaf-a/U1/0002c90300000d00 tier 1",
            "host 0002c90300000301",
            "host n1",
            "host n1_0002c90300000401",
            "host n2",
            "0002c90300000301 leaf-a/U1 x2 2125",
            "n1 leaf-a/U1 x1 6816",
            "n1_0002c90300000401 leaf-a/U1/0002c90300000d00 x1 12500",
            "n2 leaf-a/U1 x1 6816",
            "0002c90300000b00 leaf-a/U1 x2 4500",
            "0002c90300000b00 leaf-a/U1/0002c90300000d00 x1 0",
            "border-router leaf-a/U1 x1 12500",
        ],
    );
    assert_gaps(
        &reading,
        &[
            "line 1, column 1: parts may be missing",
            "line 15, column 1: 1 adapters",
            "line 28, column 1: 1 ends of cables",
            "line 35, column 1: a second mlx4_0 says that its host is n1",
        ],
    );
}

#[test]
fn a_report_of_ports() {
    let reading = ibnetdiscover::parse(fixture!("ib-ports.txt")).unwrap();
    assert_drawn(
        &reading,
        &[
            "switch leaf-1 tier 1",
            "switch spine_-_1 tier 2",
            "host n1",
            "n1 leaf-1 x2 25000",
            "leaf-1 spine_-_1 x1 25000",
        ],
    );
    assert_gaps(&reading, &["the switch \"spine - 1\" is called spine_-_1 here"]);
}

#[test]
fn one_host_tells_of_its_neighbours() {
    for text in [fixture!("lldp-host.json"), fixture!("lldp-host.json0")] {
        let reading = lldp::parse(text, Some("n1")).unwrap();
        let lines = drawn(&reading.graph);
        assert!(lines.contains("switch leaf-1 tier 1") && lines.contains("n1 leaf-1 x1 50000"), "{lines}");
        assert!(!lines.contains("mgmt"), "{lines}");
        assert!(matches!(lldp::parse(text, None), Err(FabricError::Nothing { .. })));
        let many = format!("{{\"n7\": {text}, \"n8\": {text}}}");
        let reading = lldp::parse(&many, None).unwrap();
        assert_eq!(reading.graph.hosts.len(), 2);
    }
    let reading = lldp::parse(fixture!("lldp-host.json"), Some("n1")).unwrap();
    assert_gaps(&reading, &["eth0 of n1 is slow"]);
    assert!(drawn(&reading.graph).contains("switch 02:00:00:00:00:22 tier 1"));
}

#[test]
fn many_hosts_tell_of_their_neighbours() {
    let reading = lldp::parse(fixture!("lldp-many.keyvalue"), None).unwrap();
    assert_drawn(
        &reading,
        &[
            "switch leaf/02:00:00:00:00:11 tier 1 rail 0",
            "switch leaf/02:00:00:00:00:22 tier 1 rail 1",
            "host n1",
            "host n2",
            "n1 leaf/02:00:00:00:00:11 x1 0",
            "n1 leaf/02:00:00:00:00:22 x1 0",
            "n2 leaf/02:00:00:00:00:11 x1 0",
            "n2 leaf/02:00:00:00:00:22 x1 0",
        ],
    );
    let reading = lldp::parse(fixture!("lldp-plain.txt"), None).unwrap();
    assert_drawn(
        &reading,
        &[
            "switch leaf-1 tier 1",
            "switch spine-1 tier 2",
            "host n1",
            "n1 leaf-1 x1 12500",
            "leaf-1 spine-1 x2 0",
        ],
    );
    assert_gaps(&reading, &[]);
}

#[test]
fn tables_of_hosts() {
    let dual = "# two leaves\nnode\ttor1\ttor2\tspine\track_note\nn1\ta\tb\ts1;s2\tx\nn2\ta\tb\ts1;s2\tx\nn3\tc\t\ts1;s2\tx\n";
    let reading = clos_csv::parse(dual).unwrap();
    assert_eq!(reading.graph.switches.len(), 5);
    let lines = drawn(&reading.graph);
    assert!(lines.contains("n1 a x1 0\nn1 b x1 0\n"), "{lines}");
    assert!(lines.contains("a s1 x1 0\na s2 x1 0\n"), "{lines}");
    assert_gaps(&reading, &["\"rack_note\" is not used"]);

    let pods = "Pod,Leaf,\"Host Name\",ip\np1,l1,\"n 1\",10.0.0.1\np2,l1,n2,10.0.0.2\np2,,n3,\np2,l1,n2,10.0.0.2\nshort\n";
    let reading = clos_csv::parse(pods).unwrap();
    assert_drawn(
        &reading,
        &[
            "switch p1 tier 2",
            "switch p1/l1 tier 1",
            "switch p2 tier 2",
            "switch p2/l1 tier 1",
            "host n2",
            "host n3",
            "host n_1",
            "n2 p2/l1 x1 0",
            "n_1 p1/l1 x1 0",
            "p1 p1/l1 x1 0",
            "p2 p2/l1 x1 0",
        ],
    );
    assert_eq!(reading.graph.hosts[0].address.as_deref(), Some("10.0.0.2"));
    assert_gaps(
        &reading,
        &[
            "the host \"n 1\" is called n_1 here",
            "line 4, column 1: n3 has no switch of tier 1",
            "line 5, column 1: n2 stands in an earlier row",
            "line 6, column 1: this row has 1 cells",
            "line 6, column 1: this row names no host",
        ],
    );
    // Only what stands for several has its path before it, and a rack may be called as a pod.
    let one = "pod,rack,host\n1,1,a\n1,r,b\n2,s,c\n2,t,d\n3,t,e\n";
    let lines = drawn(&clos_csv::parse(one).unwrap().graph);
    let names: Vec<&str> = lines
        .lines()
        .filter_map(|l| l.strip_prefix("switch "))
        .map(|l| l.split(' ').next().unwrap())
        .collect();
    assert_eq!(names, ["1", "1/1", "2", "2/t", "3", "3/t", "r", "s"]);

    let error = clos_csv::parse("a,b\n1,2\n").unwrap_err().to_string();
    assert!(error.starts_with("line 1, column 1: the header names no column of hosts"), "{error}");
}

#[test]
fn trees_and_blocks_of_slurm() {
    let reading = slurm_conf::parse(fixture!("topology.conf")).unwrap();
    assert_eq!(reading.graph.hosts.len(), 9);
    let lines = drawn(&reading.graph);
    for line in [
        "switch Top tier 3\n",
        "host box11 block=b2 block-8=b1/block-8\n",
        "r1n02 leaf1 x1 0\n",
        "gpu7 leaf3 x1 0\n",
        "leaf3 mid2 x1 0\n",
        "mid2 Top x1 0\n",
    ] {
        let ends: Vec<&str> = line.trim().split(' ').collect();
        let turned = format!("{} {} {}\n", ends[1], ends[0], ends[2..].join(" "));
        assert!(lines.contains(line) || lines.contains(&turned), "{line} is not in {lines}");
    }
    assert_gaps(
        &reading,
        &[
            "line 2, column 44: the unit of LinkSpeed",
            "line 8, column 24: \"3-1\" is no range",
            "line 9, column 9: the included file",
            "line 12, column 12: block size 12 is no power of two",
        ],
    );

    let circle = "SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n1\nSwitchName=c Nodes=n2\nSwitchName=d Switches=c,e\nSwitchName=f Switches=c Nodes=n1\nSwitchName=g Nodes=n1\n";
    let reading = slurm_conf::parse(circle).unwrap();
    assert_gaps(
        &reading,
        &[
            "above itself",
            "above itself",
            "a second time",
            "described nowhere",
            "second parent",
            "n1 hangs on g and on another switch",
        ],
    );
}

#[test]
fn topologies_of_slurm() {
    let reading = slurm_yaml::parse(fixture!("topology.yaml")).unwrap();
    assert_drawn(
        &reading,
        &[
            "switch far tier 1",
            "switch left tier 1",
            "switch right tier 2",
            "switch root tier 3",
            "host n001",
            "host n002",
            "host n003",
            "host n004",
            "host n005",
            "host t0 torus 0 at [2, 0, 0]",
            "host t1 torus 0 at [3, 0, 0]",
            "host t2 torus 0 at [2, 1, 0]",
            "host t3 torus 0 at [3, 1, 0]",
            "n001 left x1 0",
            "n002 left x1 0",
            "n003 far x1 0",
            "n004 far x1 0",
            "n005 far x1 0",
            "far right x1 0",
            "left root x1 0",
            "right root x1 0",
        ],
    );
    assert_eq!((reading.graph.tori[0].chips, reading.graph.tori[0].wraps), ([4, 2, 1], [true, true, false]));
    assert_gaps(
        &reading,
        &[
            "line 14, column 3: topology \"other view\" is another view of n001",
            "this region does not fit",
            "this placement does not fit",
            "topology \"odd\" is of no kind that is known",
        ],
    );
    let each = slurm_yaml::each(fixture!("topology.yaml")).unwrap();
    assert_eq!(each[2].placements[0].anchor_seed, [1, 0, 0]);
}

#[test]
fn models_of_every_form() {
    let lines = [
        "switch one tier 1",
        "switch top tier 2",
        "switch two tier 1",
        "host a1 nvlink=nv-1",
        "host a2 nvlink=nv-1",
        "host a3 nvlink=nv-1",
        "host b1",
        "host c1",
        "a1 one x1 0",
        "a2 one x1 0",
        "a3 one x1 0",
        "b1 two x1 0",
        "one top x1 0",
        "top two x1 0",
    ];
    assert_drawn(&topograph::parse(fixture!("model-capacity-blocks.yaml")).unwrap(), &lines);
    let newer = "switches:\n  top: {switches: [one, two]}\n  one: {nodes: ['a[1-3]']}\nblocks:\n- {switch: one, nodes: ['a[1-3]'], labels: {network.topology.nvidia.com/accelerator: nv-1}}\n- {switch: two, nodes: b1}\n- nodes: [c1]\n";
    assert_drawn(&topograph::parse(newer).unwrap(), &lines);
    let json = r#"{"switches": {"top": {"switches": ["one", "two"]}, "one": {"capacity_blocks": ["x"]}, "two": {"nodes": ["b1"]}},
        "capacity_blocks": ["x"], "nodes": {"a[1-3]": {"capacity_block_id": "x", "attributes": {"nvlink": "nv-1"}}, "c1": {}}}"#;
    assert_drawn(&topograph::parse(json).unwrap(), &lines);
}

#[test]
fn devices_of_nodes() {
    let reading = gres::parse(fixture!("gres.conf"), None).unwrap();
    let machine = |name: &str| {
        let host = reading.graph.hosts.iter().find(|h| h.name.as_str() == name).unwrap();
        host.machine.clone().unwrap()
    };
    let big = machine("big1");
    assert_eq!((big.device_count(), big.devices[0].model.as_str(), big.cpu_milli), (4, "h100", 16_000));
    assert_eq!(big.device_link(0, 2), Some(LinkKind::Nvlink(18)));
    assert_eq!(big.device_link(0, 3), None);
    assert!(std::sync::Arc::ptr_eq(&big, &machine("big2")));
    assert_eq!(machine("old").device_count(), 4);
    assert_eq!(machine("amd").device_link(0, 1), Some(LinkKind::Xgmi));
    assert!(machine("cut").devices[0].is_sliced && machine("cut").device_count() == 1);
    assert_eq!(machine("far").device_count(), 2);
    assert_gaps(&reading, &["line 13, column 38: \"weight\" is not used"]);

    let one = "Name=gpu Type=a100 File=/dev/nvidia[0-7]\nAutoDetect=nvml\n";
    let reading = gres::parse(one, Some("here")).unwrap();
    assert_eq!(reading.graph.hosts[0].machine.as_ref().unwrap().device_count(), 8);
    assert_gaps(&reading, &["AutoDetect=nvml"]);
    assert!(gres::parse(one, None).is_err());
}

#[test]
fn what_is_no_fabric_says_what_to_give() {
    type Read = fn(&str) -> Result<Reading, FabricError>;
    let readers: [Read; 7] = [
        ibnetdiscover::parse,
        |text| lldp::parse(text, Some("n1")),
        clos_csv::parse,
        slurm_conf::parse,
        slurm_yaml::parse,
        topograph::parse,
        |text| gres::parse(text, Some("n1")),
    ];
    for read in readers {
        for text in
            ["", " \n\t", "#", "command not found", "{}", "[]", "[[[", "a: [b", "\u{0}\u{1}", "<xml/>"]
        {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("give ") || error.contains("error message"), "{text:?}: {error}");
        }
    }
    let failed =
        "ibwarn: [7] mad_rpc_open_port: can't open UMAD port ((null):0)\nFailed to open (null) port 0\n";
    assert!(matches!(ibnetdiscover::parse(failed), Err(FabricError::Trouble { line: 1, .. })));
}

/// `scontrol show topology` repeats what follows from the tree in every line.
#[test]
fn the_tree_that_scontrol_prints_has_one_note_for_each_key() {
    let mut text = String::from("SwitchName=top Level=1 LinkSpeed=1 Nodes=n[00-77] Switches=s[00-38]\n");
    for leaf in 0..39 {
        text.push_str(&format!(
            "SwitchName=s{leaf:02} Level=0 LinkSpeed=1 Nodes=n[{:02}-{:02}]\n",
            leaf * 2,
            leaf * 2 + 1
        ));
    }
    let reading = phalanx_discover::fabric::slurm_conf::parse(&text).unwrap();
    let told: Vec<&str> = reading.gaps.iter().map(|gap| gap.what.as_str()).collect();
    assert_eq!(told, ["the unit of LinkSpeed is not defined; it is not used (in 40 lines)"]);
    assert_eq!((reading.graph.hosts.len(), reading.graph.switches.len()), (78, 40));
    // The top lists the nodes below its switches, which do not hang on it.
    assert_eq!(reading.graph.links.len(), 78 + 39);
}
