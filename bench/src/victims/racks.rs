//! Clusters of racks of several models, with cordoned nodes and victims of several nodes, and the least lost work there:
//! every set of the victims of several nodes is tried, and for each an exact table over nodes prices the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_model::{
    Admin, DeviceMask, DomainName, Gang, Input, LevelName, Levels, ModelNeed, Needs, Node, NodeName, Slot,
};

use super::{Cost, observed};
use crate::placement::mix::{Random, of_size};

pub(super) const RACKS_MAX: u64 = 12;
pub(super) const MODELS: [&str; 3] = ["H100", "A100", "B200"];
/// Of one model: every set of them is tried.
const SPANNING_MAX: usize = 7;
const ALL: u64 = 0xff;

/// A gang that runs: devices by node, and the work that is lost with it.
struct Runs {
    held: BTreeMap<usize, u64>,
    lost: u64,
}

struct Host {
    rack: u64,
    model: usize,
    is_open: bool,
    free: u64,
}

pub(super) struct Racks {
    pub(super) facts: Vec<Input>,
    pub(super) wants: Gang,
    hosts: Vec<Host>,
    runs: Vec<Runs>,
    model: usize,
    /// The gang must be inside a rack, or a node.
    inside: Option<&'static str>,
}

impl Racks {
    pub(super) fn draw(seed: u64) -> Result<Self, String> {
        let mut random = Random(seed.wrapping_add(1 << 32));
        let name = |e: phalanx_model::NameError| e.to_string();
        let level = |text: &str| LevelName::new(text).map_err(name);
        let levels = Levels::new(vec![level("cluster")?, level("leaf")?], level("node")?);
        let (mut hosts, mut nodes) = (Vec::new(), Vec::new());
        for rack in 0..5 + random.below(RACKS_MAX - 4) {
            let model = below(&mut random, MODELS.len());
            let mut machine = crate::peers::ours::machine()?;
            machine.devices.iter_mut().for_each(|device| device.model = MODELS[model].into());
            let machine = Arc::new(machine);
            for at in 0..2 + random.below(3) {
                let is_open = random.below(8) > 0;
                hosts.push(Host { rack, model, is_open, free: ALL });
                let path = ["c".to_owned(), format!("r{rack:02}")].map(DomainName::new);
                let path = path.into_iter().collect::<Result<Vec<_>, _>>().map_err(name)?;
                let node_name = NodeName::new(format!("r{rack:02}n{at}")).map_err(name)?;
                let admin = if is_open { Admin::Open } else { Admin::Cordoned };
                nodes.push(Node { admin, ..Node::new(node_name, path, Arc::clone(&machine)) });
            }
        }
        let costs = phalanx_cost::compile(&nodes, &BTreeMap::new());
        let mut facts = vec![Input::LevelsConfigured { levels }, Input::CostsCompiled { table: costs }];
        facts.extend(nodes.iter().map(|node| Input::NodeObserved { node: Box::new(node.clone()) }));
        let mut runs = Vec::new();
        let mut spanning = [0; MODELS.len()];
        let mut id = 0;
        for first in 0..hosts.len() {
            while hosts[first].free != 0 && random.below(12) > 0 {
                let model = hosts[first].model;
                let is_wide = random.below(4) == 0 && spanning[model] < SPANNING_MAX;
                let members = if is_wide { 2 + below(&mut random, 2) } else { 1 };
                let devices = if is_wide { 4 << random.below(2) } else { 1_u32 << random.below(4) };
                let (slots, held) = slots(&mut hosts, &nodes, first, members, devices);
                if slots.is_empty() {
                    break;
                }
                spanning[model] += usize::from(held.len() > 1);
                id += 1;
                let (fact, lost) = observed(id, slots, devices, &mut random)?;
                facts.push(fact);
                runs.push(Runs { held, lost });
            }
        }
        let model = below(&mut random, MODELS.len());
        let devices = 4 << random.below(2);
        let mut wants = of_size(1 + u32::try_from(random.below(4)).unwrap_or(0));
        let models = vec![ModelNeed { model: MODELS[model].into(), speed_milli: ModelNeed::AS_SAID }];
        wants.needs = Needs { devices, models, ..Needs::default() };
        let mut inside = [Some("leaf"), Some("leaf"), Some("node"), None][below(&mut random, 4)];
        if wants.size * devices > 8 && inside == Some("node") {
            inside = Some("leaf");
        }
        wants.topology.required = inside.map(level).transpose()?;
        Ok(Self { facts, wants, hosts, runs, model, inside })
    }

    /// The least lost work that makes the gang fit; nothing if it fits already or never.
    pub(super) fn cheapest(&self) -> Option<Cost> {
        let mut domains: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, host) in self.hosts.iter().enumerate() {
            if host.is_open && host.model == self.model {
                let domain = match self.inside {
                    Some("node") => at as u64,
                    Some(_) => host.rack,
                    None => 0,
                };
                domains.entry(domain).or_default().push(at);
            }
        }
        let prices = domains.values().filter_map(|nodes| self.cheapest_in(nodes));
        prices.min().filter(|(lost, _)| *lost > 0).map(|(lost, gangs)| Cost { lost, gangs })
    }

    fn cheapest_in(&self, nodes: &[usize]) -> Option<(u64, u32)> {
        let on = |runs: &&Runs| nodes.iter().filter(|at| runs.held.contains_key(at)).count();
        let (spanning, local): (Vec<&Runs>, Vec<&Runs>) =
            self.runs.iter().filter(|runs| on(runs) > 0).partition(|runs| on(runs) > 1);
        let sets = 0_u32..1 << spanning.len();
        sets.filter_map(|set| {
            let gone: Vec<&Runs> = (0..)
                .zip(&spanning)
                .filter(|(bit, _)| set & (1 << bit) != 0)
                .map(|(_, runs)| *runs)
                .collect();
            let lost = gone.iter().map(|runs| runs.lost).sum::<u64>();
            let rest = self.table(nodes, &gone, &local)?;
            Some((lost + rest.0, set.count_ones() + rest.1))
        })
        .min()
    }

    /// The least that victims of single nodes cost beside these.
    fn table(&self, nodes: &[usize], gone: &[&Runs], local: &[&Runs]) -> Option<(u64, u32)> {
        let need = self.wants.size as usize;
        let mut least: Vec<Option<(u64, u32)>> = vec![None; need + 1];
        least[0] = Some((0, 0));
        for at in nodes {
            let freed = gone.iter().filter_map(|runs| runs.held.get(at));
            let free = freed.fold(self.hosts[*at].free, |free, mask| free | mask);
            let here: Vec<(u64, u64)> =
                local.iter().filter_map(|runs| Some((*runs.held.get(at)?, runs.lost))).collect();
            let before = least.clone();
            for set in 0_u32..1 << here.len() {
                let of_set = (0..).zip(&here).filter(|(bit, _)| set & (1 << bit) != 0);
                let (mask, lost) = of_set.fold((free, 0), |sum, (_, of)| (sum.0 | of.0, sum.1 + of.1));
                let members = (mask.count_ones() / self.wants.needs.devices) as usize;
                for (had, price) in
                    before.iter().enumerate().filter_map(|(had, price)| Some((had, (*price)?)))
                {
                    let (to, sum) = ((had + members).min(need), (price.0 + lost, price.1 + set.count_ones()));
                    if least[to].is_none_or(|other| sum < other) {
                        least[to] = Some(sum);
                    }
                }
            }
        }
        least[need]
    }
}

fn below(random: &mut Random, end: usize) -> usize {
    usize::try_from(random.below(end as u64)).unwrap_or(0)
}

/// Members on the first node and on others of its model behind it, as long as devices are free.
fn slots(
    hosts: &mut [Host],
    nodes: &[Node],
    first: usize,
    members: usize,
    devices: u32,
) -> (Vec<Slot>, BTreeMap<usize, u64>) {
    let (mut slots, mut held) = (Vec::new(), BTreeMap::new());
    let model = hosts[first].model;
    for at in (first..hosts.len()).filter(|at| *at == first || members > 1) {
        if slots.len() == members || hosts[at].model != model || hosts[at].free.count_ones() < devices {
            continue;
        }
        let mut mask = 0_u64;
        for _ in 0..devices {
            let lowest = hosts[at].free & hosts[at].free.wrapping_neg();
            (mask, hosts[at].free) = (mask | lowest, hosts[at].free & !lowest);
        }
        held.insert(at, mask);
        let rank = u32::try_from(slots.len()).unwrap_or(0);
        slots.push(Slot { rank, node: nodes[at].name.clone(), devices: DeviceMask(mask), part: None });
    }
    (slots, held)
}
