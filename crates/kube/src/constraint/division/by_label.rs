//! Members that share a domain of a label which is no level of the network: a pool of nodes, a room. The engine knows no
//! such domains, so each part of a gang is dealt to one here, and its members are requested inside it.
//!
//! Domains are tried in order: the one with the fewest nodes that have room comes first, so that larger ones stay whole.

use std::collections::{BTreeMap, BTreeSet};

use super::{Count, Room, TRIALS_MAX};
use crate::api::Node;
use crate::cluster::node_sets::{Condition, Domain};
use crate::cluster::nodes::NodeState;
use crate::filter::Requirements;

/// Members that share a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) key: Box<str>,
    /// By their ranks.
    pub(crate) members: Vec<usize>,
    /// Otherwise the members are anywhere if no domain has room for them now.
    pub(crate) is_required: bool,
    /// No other exclusive part has the same domain.
    pub(crate) is_exclusive: bool,
}

/// A member while the parts are dealt.
pub(crate) struct Member<'a> {
    pub(crate) requirements: &'a Requirements,
    pub(crate) conditions: &'a BTreeSet<Condition>,
    /// No node has two such members.
    pub(crate) is_apart: bool,
    /// The domain that it may not leave.
    pub(crate) domain: Option<&'a Domain>,
}

/// The domain of each member, if a part of it has one.
pub(crate) type Dealt = Vec<Option<Domain>>;

/// A domain for each part such that all members have room; what they get is taken from `room`.
///
/// # Errors
/// Which part has none.
pub(crate) fn deal(
    parts: &[Part],
    members: &[Member<'_>],
    nodes: &NodeState,
    room: &mut Room,
    count: Count,
) -> Result<Dealt, String> {
    room.0.retain(|spot| nodes.get(&spot.name).is_some());
    let mut deal = Deal::of(parts, members, nodes, room, count);
    // Parts inside a part of all may fit into another domain of that.
    let is_nested = |first: &Part| first.is_required && first.members.len() == members.len();
    let Some(first) = parts.first().filter(|first| parts.len() > 1 && is_nested(first)) else {
        return deal.rest(0).map(|()| deal.domains());
    };
    let mut why = None;
    for site in deal.order(0) {
        deal.begin();
        if !deal.fit(0, site) {
            continue;
        }
        match deal.rest(1) {
            Ok(()) => return Ok(deal.domains()),
            Err(refusal) => why = Some(refusal),
        }
    }
    Err(why.unwrap_or_else(|| deal.refusal(first, 0)))
}

/// Nodes with the same value of a label.
struct Site<'a> {
    key: &'a str,
    value: &'a str,
    spots: Vec<usize>,
}

struct Deal<'a, 'r> {
    parts: &'a [Part],
    members: &'a [Member<'a>],
    state: &'a NodeState,
    room: &'r mut Room,
    count: Count,
    /// By spot.
    nodes: Vec<&'a Node>,
    sites: Vec<Site<'a>>,
    /// The sites of a key in the order in which such members try them.
    orders: BTreeMap<(&'a str, &'a Requirements), Vec<usize>>,
    /// The last part of each member: it holds its room from then on.
    last: Vec<usize>,
    /// The sites of each member so far.
    dealt: Vec<Vec<usize>>,
    /// Spots of members so far, to be given back if another domain is tried.
    taken: Vec<(usize, usize)>,
    exclusive: BTreeSet<usize>,
    trials: u32,
}

impl<'a, 'r> Deal<'a, 'r> {
    fn of(
        parts: &'a [Part],
        members: &'a [Member<'a>],
        state: &'a NodeState,
        room: &'r mut Room,
        count: Count,
    ) -> Self {
        let nodes: Vec<&Node> = room.0.iter().filter_map(|spot| state.get(&spot.name)).collect();
        let keys: BTreeSet<&str> = parts.iter().map(|part| &*part.key).collect();
        let mut sites = Vec::new();
        for key in keys {
            let mut by_value: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
            for (spot, node) in nodes.iter().enumerate() {
                if let Some(value) = node.label(key) {
                    by_value.entry(value).or_default().push(spot);
                }
            }
            sites.extend(by_value.into_iter().map(|(value, spots)| Site { key, value, spots }));
        }
        let mut last = vec![0; members.len()];
        for (at, part) in parts.iter().enumerate() {
            part.members.iter().for_each(|member| last[*member] = at);
        }
        let dealt = vec![Vec::new(); members.len()];
        Self {
            parts,
            members,
            state,
            room,
            count,
            nodes,
            sites,
            orders: BTreeMap::new(),
            last,
            dealt,
            taken: Vec::new(),
            exclusive: BTreeSet::new(),
            trials: 0,
        }
    }

    /// From the first part on again.
    fn begin(&mut self) {
        self.give_back(0);
        self.dealt.iter_mut().for_each(Vec::clear);
        self.exclusive.clear();
    }

    /// The parts from one on, each in the first domain that has room for it.
    fn rest(&mut self, from: usize) -> Result<(), String> {
        let mut before: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, part) in self.parts.iter().enumerate().skip(from) {
            let neighbour = before.get(&*part.key).copied().filter(|_| !part.is_exclusive);
            let order = self.order(at);
            let mut sites =
                neighbour.into_iter().chain(order.into_iter().filter(|site| Some(*site) != neighbour));
            match sites.find(|site| self.fit(at, *site)) {
                Some(site) => drop(before.insert(&part.key, site)),
                None if part.is_required => return Err(self.refusal(part, at)),
                None => {}
            }
        }
        Ok(())
    }

    fn order(&mut self, at: usize) -> Vec<usize> {
        let part = &self.parts[at];
        let Some(first) = part.members.first().map(|member| &self.members[*member]) else {
            return Vec::new();
        };
        let (sites, room, count) = (&self.sites, &self.room, self.count);
        let order = self.orders.entry((&*part.key, first.requirements)).or_insert_with(|| {
            let fits = |spot: &&usize| count == Count::Nothing || room.0[**spot].fits(first.requirements);
            let of_key = sites.iter().enumerate().filter(|(_, site)| *site.key == *part.key);
            let with_room = of_key.map(|(at, site)| (site.spots.iter().filter(fits).count(), at));
            let mut order: Vec<(usize, usize)> = with_room.filter(|(spots, _)| *spots > 0).collect();
            order.sort_unstable();
            order.into_iter().map(|(_, at)| at).collect()
        });
        order.clone()
    }

    /// Puts a part into a domain, if all of its members have room there.
    fn fit(&mut self, at: usize, site: usize) -> bool {
        let part = &self.parts[at];
        if part.is_exclusive && self.exclusive.contains(&site) {
            return false;
        }
        let before = self.taken.len();
        // Equal members follow each other: where the last one is there may be room for the next.
        let mut last = 0;
        for member in &part.members {
            let spots = &self.sites[site].spots;
            let found = (last..spots.len()).chain(0..last).find(|nth| {
                let spot = self.sites[site].spots[*nth];
                self.admits(*member, site, spot, before)
            });
            let Some(nth) = found else {
                self.give_back(before);
                return false;
            };
            last = nth;
            let spot = self.sites[site].spots[nth];
            self.room.0[spot].held.add(self.members[*member].requirements);
            self.taken.push((*member, spot));
        }
        // Members of a part inside this one hold their room there.
        let own: Vec<(usize, usize)> = self.taken.split_off(before);
        for (member, spot) in own {
            if self.last[member] == at {
                self.taken.push((member, spot));
            } else {
                self.room.0[spot].held.remove(self.members[member].requirements);
            }
            self.dealt[member].push(site);
        }
        if part.is_exclusive {
            self.exclusive.insert(site);
        }
        true
    }

    fn admits(&mut self, member: usize, site: usize, spot: usize, from: usize) -> bool {
        self.trials += 1;
        if self.trials > TRIALS_MAX {
            return false;
        }
        let (node, of) = (self.nodes[spot], &self.members[member]);
        let Site { key, value, .. } = &self.sites[site];
        let is_own = |domain: &Domain| {
            domain
                .iter()
                .find(|(own, _)| **own == **key)
                .is_none_or(|(_, own)| own.as_deref() == Some(*value))
        };
        let is_inside = |site: &usize| {
            let Site { key, value, .. } = &self.sites[*site];
            node.label(key) == Some(*value)
        };
        of.domain.is_none_or(is_own)
            && self.dealt[member].iter().all(is_inside)
            && !(of.is_apart && self.taken[from..].iter().any(|(_, taken)| *taken == spot))
            && (self.count == Count::Nothing || self.room.0[spot].fits(of.requirements))
            && of.requirements.terms.admits(node).is_ok()
            && self.state.meets(&self.room.0[spot].name, of.conditions)
    }

    fn give_back(&mut self, from: usize) {
        for (member, spot) in self.taken.split_off(from) {
            self.room.0[spot].held.remove(self.members[member].requirements);
        }
    }

    fn domains(&self) -> Dealt {
        let label = |site: &usize| {
            let Site { key, value, .. } = &self.sites[*site];
            ((*key).into(), Some((*value).into()))
        };
        let domain = |sites: &Vec<usize>| {
            let labels: BTreeMap<Box<str>, Option<Box<str>>> = sites.iter().map(label).collect();
            (!labels.is_empty()).then(|| labels.into_iter().collect())
        };
        self.dealt.iter().map(domain).collect()
    }

    fn refusal(&self, part: &Part, at: usize) -> String {
        let (key, size) = (&part.key, part.members.len());
        if self.trials > TRIALS_MAX {
            return format!("no domain of {key} with room for {size} of its pods was found soon enough");
        }
        let others =
            if at > 0 { format!(", {at} of {} parts have one", self.parts.len()) } else { String::new() };
        format!("no domain of {key} has room for {size} of its pods together{others}")
    }
}
