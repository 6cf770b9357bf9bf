//! Slurm's `topology.conf`: a tree of switches, or blocks of nodes.

use std::collections::BTreeMap;

use super::blocks::{self, BlockLine};
use super::build::Builder;
use super::conf::{self, Pair};
use super::tree::{self, SwitchLine};
use super::{FabricError, Reading, check_size, shown};

const GIVE: &str = "Slurm's topology.conf, with lines of SwitchName= or BlockName=";

/// Reads the switches and blocks of a `topology.conf`.
///
/// Switches have the tier that follows from their children. A block is a domain of level `block`, and block
/// sizes make levels above it, named `block-SIZE`. An included file is not read, and a link speed is not used:
/// its unit is not defined.
///
/// # Errors
/// When there is neither a switch nor a block, or the fabric is beyond the limits.
pub fn parse(text: &str) -> Result<Reading, FabricError> {
    check_size(text, GIVE)?;
    let mut builder = Builder::default();
    let mut switches = Vec::new();
    let mut blocks = Vec::new();
    let mut sizes = (Vec::new(), (0, 0));
    let mut unused = Unused::default();
    for pairs in conf::lines(text, &mut builder.gaps) {
        let switch = conf::find(&pairs, "switchname");
        let block = conf::find(&pairs, "blockname");
        if let Some(name) = switch {
            let children = names(&pairs, "switches", &mut builder);
            let nodes = names(&pairs, "nodes", &mut builder);
            switches.push(SwitchLine { name: name.value.clone(), children, nodes, place: name.place });
        } else if let Some(name) = block {
            let nodes = names(&pairs, "nodes", &mut builder);
            blocks.push(BlockLine { name: name.value.clone(), nodes, place: name.place });
        }
        for pair in &pairs {
            read_other(pair, switch.is_some() || block.is_some(), &mut sizes, &mut builder, &mut unused);
        }
    }
    for (key, (place, count)) in unused {
        let what = match key.as_str() {
            "linkspeed" => "the unit of LinkSpeed is not defined; it is not used".to_owned(),
            key => format!("{:?} is not used", shown(key)),
        };
        let lines = if count > 1 { format!(" (in {count} lines)") } else { String::new() };
        builder.gap(place, format!("{what}{lines}"));
    }
    if switches.is_empty() && blocks.is_empty() {
        let what = "no line of the text names a switch or a block".to_owned();
        return Err(FabricError::Nothing { what, give: GIVE });
    }
    tree::add(&mut builder, &switches, "")?;
    let levels = blocks::add(&mut builder, &blocks, &sizes.0, sizes.1)?;
    Ok(builder.finish(levels))
}

fn names(pairs: &[Pair], key: &str, builder: &mut Builder) -> Vec<String> {
    let Some(pair) = conf::find(pairs, key) else { return Vec::new() };
    if key == "nodes" && pair.value.eq_ignore_ascii_case("all") {
        builder.gap(pair.place, "Nodes=ALL does not say which nodes there are");
        return Vec::new();
    }
    conf::names(pair, &mut builder.gaps)
}

/// Keys without a use: the place of the first, and in how many lines they are.
type Unused = BTreeMap<String, ((u32, u32), usize)>;

/// What a line says beside its name, nodes and switches.
fn read_other(
    pair: &Pair,
    has_name: bool,
    sizes: &mut (Vec<u64>, (u32, u32)),
    builder: &mut Builder,
    unused: &mut Unused,
) {
    match pair.key.as_str() {
        // `scontrol show topology` prints what follows from the tree and the blocks.
        "level" | "blockindex" | "blocksize" if has_name => {}
        "switchname" | "blockname" => {}
        "nodes" | "switches" if has_name => {}
        "blocksizes" => {
            sizes.1 = pair.place;
            for word in pair.value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
                match word.parse::<u64>() {
                    Ok(size) if size > 0 => sizes.0.push(size),
                    _ => builder.gap(pair.place, format!("{:?} is no block size", shown(word))),
                }
            }
        }
        "include" => {
            let what = format!("the included file {:?} is not read; put its lines here", shown(&pair.value));
            builder.gap(pair.place, what);
        }
        key => unused.entry(key.to_owned()).or_insert((pair.place, 0)).1 += 1,
    }
}
