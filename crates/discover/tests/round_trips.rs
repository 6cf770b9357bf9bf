//! Trees that are written for another tool and read again: the same domains.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use phalanx_discover::fabric::{Reading, slurm_conf, slurm_yaml};
use phalanx_discover::map::{as_tree, of_nodes, to_nodes};
use phalanx_discover::objects::{hyper_nodes, topologies};
use phalanx_model::domains::{self, Domains};
use phalanx_model::{CostTable, LevelName, Levels};

fn level(name: &str) -> LevelName {
    LevelName::new(name).unwrap()
}

fn derived(reading: &Reading) -> Domains {
    let rules = domains::rules(&reading.graph, &level("cluster"), &reading.levels);
    domains::derive(&reading.graph, &rules)
}

/// The domains of each host below the whole, outermost first; what only stands in for a level has its name in `of:`.
fn paths(reading: &Reading) -> Vec<String> {
    let domains = derived(reading);
    let path =
        |host: u32| domains.path(host).iter().skip(1).map(ToString::to_string).collect::<Vec<_>>().join(" ");
    (0..).zip(&reading.graph.hosts).map(|(index, host)| format!("{}: {}", host.name, path(index))).collect()
}

/// A core with racks of its own and a switch that has racks below it, as real clusters of mixed age have them.
const UNEQUAL: &str = "\
SwitchName=core0 Switches=im0,grp[0-2]
SwitchName=im0 Switches=grp[3-5]
SwitchName=grp0 Nodes=n[00-01]
SwitchName=grp1 Nodes=n[02-03]
SwitchName=grp2 Nodes=n[04-05]
SwitchName=grp3 Nodes=n[06-07]
SwitchName=grp4 Nodes=n[08-09]
SwitchName=grp5 Nodes=n[10-11]
";

/// Three levels on one side, two on the other, names that Kubernetes does not accept.
const DEEP: &str = "\
SwitchName=Top Switches=A_pod,B_pod,Edge_9
SwitchName=A_pod Switches=A_1,A_2
SwitchName=B_pod Switches=B_1,B_2
SwitchName=A_1 Switches=a[1-2]
SwitchName=A_2 Switches=a[3-4]
SwitchName=B_1 Switches=b[1-2]
SwitchName=B_2 Switches=b[3-4]
SwitchName=a1 Nodes=x[01-02]
SwitchName=a2 Nodes=x[03-04]
SwitchName=a3 Nodes=x[05-06]
SwitchName=a4 Nodes=x[07-08]
SwitchName=b1 Nodes=x[09-10]
SwitchName=b2 Nodes=x[11-12]
SwitchName=b3 Nodes=x[13-14]
SwitchName=b4 Nodes=x[15-16]
SwitchName=Edge_9 Nodes=x[17-18]
";

#[test]
fn a_slurm_tree_of_unequal_depth_keeps_every_switch() {
    let reading = slurm_conf::parse(UNEQUAL).unwrap();
    assert_eq!(reading.gaps, []);
    let paths = paths(&reading);
    assert_eq!(paths[0], "n00: of:grp0 grp0");
    assert_eq!(paths[5], "n05: of:grp2 grp2");
    assert_eq!(paths[6], "n06: im0 grp3");
    assert_eq!(paths[11], "n11: im0 grp5");
    let domains = derived(&reading);
    assert_eq!(domains.unplaced, []);
    assert_eq!(
        domains.levels.iter().map(LevelName::as_str).collect::<Vec<_>>(),
        ["cluster", "block", "leaf"]
    );
    // A cable from a rack to the core leaves the rack and what stands in for its block.
    let grp0 = domains.domains.iter().position(|d| d.name.as_str() == "grp0").unwrap();
    assert_eq!(domains.domains[grp0].uplink.cables, 1);
    assert!(domains.is_stand_in(domains.domains[grp0].parent.unwrap()));

    let deep = self::paths(&slurm_conf::parse(DEEP).unwrap());
    assert_eq!(deep[0], "x01: A_pod A_1 a1");
    assert_eq!(deep[16], "x17: of:Edge_9 of:Edge_9 Edge_9");
}

#[test]
fn slurm_is_read_as_it_was_written() {
    for text in [UNEQUAL, DEEP] {
        let reading = slurm_conf::parse(text).unwrap();
        let again = slurm_yaml::parse(&slurm_yaml::write(&reading.graph, &[]).unwrap()).unwrap();
        assert_eq!(again.graph, reading.graph, "the switches as they are");
        // From the domains alone, as of a running cluster.
        let tree = as_tree(&reading.graph, &derived(&reading));
        let again = slurm_yaml::parse(&slurm_yaml::write(&tree, &[]).unwrap()).unwrap();
        assert_eq!(paths(&again), paths(&reading));
        assert_eq!(again.graph.switches.len(), reading.graph.switches.len());
    }
}

#[test]
fn volcano_is_read_as_it_was_written() {
    for text in [UNEQUAL, DEEP] {
        let reading = slurm_conf::parse(text).unwrap();
        let domains = derived(&reading);
        let levels = Levels::new(domains.levels.clone(), level("node"));
        let (named, _) = of_nodes(&levels, &to_nodes(&reading.graph, &domains), &CostTable::default());
        let written = hyper_nodes::to_volcano(&named, &domains.levels);
        let again = topologies::parse(&written).unwrap();
        let again = hyper_nodes::place(&again.hyper_nodes, None);
        assert_eq!(again.gaps, [], "{written}");
        assert_eq!(paths(&again), paths(&reading), "{written}");
        assert!(!written.contains("name: block-") && !written.contains("of-"), "{written}");
    }
}

/// Objects of one name would replace each other.
#[test]
fn hyper_nodes_of_equal_domains_have_names_of_their_own() {
    let text = "SwitchName=top Switches=a,b\nSwitchName=a Switches=x,leaf-x\nSwitchName=b Switches=X,n1\n\
                SwitchName=x Nodes=n1\nSwitchName=leaf-x Nodes=n2\nSwitchName=X Nodes=n3\nSwitchName=n1 Nodes=n4\n\
                SwitchName=n1 Nodes=n5\n";
    let reading = slurm_conf::parse(text).unwrap();
    let domains = derived(&reading);
    let levels = Levels::new(domains.levels.clone(), level("node"));
    let (named, _) = of_nodes(&levels, &to_nodes(&reading.graph, &domains), &CostTable::default());
    let written = hyper_nodes::to_volcano(&named, &domains.levels);
    let again = topologies::parse(&written).unwrap();
    let mut names: Vec<&str> = again.hyper_nodes.iter().map(|h| h.name.as_str()).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "{written}");
    assert_eq!(paths(&hyper_nodes::place(&again.hyper_nodes, None)), paths(&reading), "{written}");
}

/// Some sites name switches of every tier although each has one below it.
#[test]
fn a_chain_of_switches_above_one_leaf_is_no_level() {
    let text = "SwitchName=root Switches=isl,none\nSwitchName=isl Switches=nb\nSwitchName=nb Switches=lb\n\
                SwitchName=lb Nodes=g[1-2]\nSwitchName=none Nodes=c[1-2]\n";
    let reading = slurm_conf::parse(text).unwrap();
    assert_eq!(paths(&reading), ["c1: none", "c2: none", "g1: lb", "g2: lb"]);
    let levels = derived(&reading).levels;
    assert_eq!(levels.iter().map(LevelName::as_str).collect::<Vec<_>>(), ["cluster", "leaf"]);
}
