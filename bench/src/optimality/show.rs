//! One instance in full, for whoever has to find out why.

use phalanx_model::{Gang, Node, ShapeCost};

use super::draw::{self, Cluster};
use super::objective::{self, Used};
use super::queue;
use super::single::{self, Ours};

/// # Errors
/// When the exact methods disagree; what is known of the instance is printed before.
pub(super) fn instance(seed: u64) -> Result<(), String> {
    let drawn = draw::instance(seed);
    println!("seed {seed}: {}, {}", drawn.talk.word(), drawn.wish.word());
    print_cluster(&drawn.cluster);
    print_gang(&drawn.gang);
    let judged = single::judge(seed)?;
    match &judged.ours {
        Ours::Placed { ns, used } => {
            println!("ours {ns} ns");
            print_used(&drawn.cluster, used);
        }
        Ours::NoPlace => println!("ours: no place"),
        Ours::Wrong(why) => println!("ours is wrong: {why}"),
    }
    match &judged.exact.best {
        Some(best) => {
            println!("best {} ns", best.ns);
            print_used(&drawn.cluster, &best.used);
        }
        None => println!("best: there is no place"),
    }
    println!("{}", if judged.is_optimal() { "optimal" } else { "NOT optimal" });
    Ok(())
}

/// # Errors
/// When the exact methods disagree; what is known of the queue is printed before.
pub(super) fn queue(seed: u64) -> Result<(), String> {
    let (cluster, gangs) = draw::queue(seed);
    println!("queue {seed}");
    print_cluster(&cluster);
    gangs.iter().for_each(print_gang);
    let judged = queue::judge(seed)?;
    let text = |total: queue::Total| format!("{} devices at work, {} ns in sum", total.devices, total.ns);
    println!("ours: {}", judged.ours.map_or_else(|why| format!("wrong: {why}"), text));
    println!("one by one: {}", text(judged.one_by_one));
    println!("best: {}", judged.best.map_or_else(|| "too many ways to search".to_owned(), text));
    Ok(())
}

fn print_cluster(cluster: &Cluster) {
    let table = &cluster.table;
    for level in cluster.levels.above.iter().chain([&cluster.levels.node]) {
        match table.levels.get(level) {
            Some(cost) => println!("level {level}: {} MB/s, {} ns", cost.uplink_mb_per_s, cost.latency_ns),
            None => println!("level {level}: nothing known"),
        }
    }
    for domain in &table.domains {
        let path: Vec<&str> = domain.path.iter().map(AsRef::as_ref).collect();
        let cost = domain.cost;
        println!("domain {}: {} MB/s, {} ns", path.join("/"), cost.uplink_mb_per_s, cost.latency_ns);
    }
    for (name, shape) in &table.shapes {
        println!("shape {name}: {} devices, NICs {} MB/s", shape.devices, shape.nic_mb_per_s);
        print_shape(shape);
    }
    for node in &cluster.nodes {
        println!("node {}: {}, free {}", whole_name(node), node.machine.shape, draw::free(node));
    }
}

fn print_shape(shape: &ShapeCost) {
    for nic in &shape.nics {
        println!("  NIC of {} MB/s near {}", nic.mb_per_s, nic.near);
    }
    for a in 0..shape.devices {
        let row: Vec<String> = (0..shape.devices).map(|b| shape.pair(a, b).to_string()).collect();
        println!("  pairs of {a}: {}", row.join(" "));
    }
    if !shape.sets_mb_per_s.is_empty() {
        println!("  sets by mask: {:?}", shape.sets_mb_per_s);
    }
}

fn print_gang(gang: &Gang) {
    println!(
        "gang: {} members of {} devices; {} sends {} bytes",
        gang.size,
        gang.needs.devices,
        if objective::pattern_of(gang) == phalanx_model::Pattern::AllToAll {
            "all-to-all"
        } else {
            "all-reduce"
        },
        gang.traffic.map_or(0, |traffic| traffic.bytes),
    );
    if let Some(each) = gang.members_per_node {
        println!("  {each} on each node");
    }
    if let Some(level) = &gang.topology.required {
        println!("  inside one {level}");
    }
    for segment in &gang.topology.segments {
        println!("  segments of {} inside one {}", segment.size, segment.level);
    }
}

fn whole_name(node: &Node) -> String {
    let path: Vec<String> = objective::whole_path(node).iter().map(ToString::to_string).collect();
    path.join("/")
}

fn print_used(cluster: &Cluster, used: &[Used]) {
    for used in used {
        let name = whole_name(&cluster.nodes[used.node]);
        println!("  {name}: {} members on devices {}", used.members, used.devices);
    }
}
