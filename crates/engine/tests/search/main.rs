//! The search for placements against the definition of a placement: valid, found whenever there is one, and of the
//! least time.
//!
//! Every case is one gang in one cluster, drawn from a seed; a failure names the seed and the turn.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

mod brute;
mod draw;
mod judge;
mod measured;
mod named;

use draw::{Cluster, Rng, Scale};
use judge::Books;
use phalanx_engine::{Found, Placer, Share};
use phalanx_model::{Admin, DeviceMask, Gang, Node, NodeName};

/// A placer, an independent state of the cluster beside it, and the gangs that hold something.
struct Bench {
    placer: Placer,
    books: Books,
    held: Vec<(Gang, Vec<Share>)>,
}

fn placer(cluster: &Cluster) -> Placer {
    Placer::new(&cluster.levels, cluster.nodes.clone(), &cluster.table)
}

impl Bench {
    fn new(cluster: Cluster) -> Self {
        Self { placer: placer(&cluster), books: Books::new(cluster), held: Vec::new() }
    }

    /// Places a gang, and checks the placement.
    fn place(&mut self, gang: &Gang) -> Result<Option<Found>, String> {
        let Some(found) = self.placer.place(gang) else { return Ok(None) };
        let placement = self.placer.placement(gang).ok_or("no placement of what was found")?;
        let used = self.books.judge(gang, &placement)?;
        let ns = self.books.time_ns(gang, &used);
        if ns != found.time_ns || found.least_ns > found.time_ns {
            return Err(format!("takes {ns} ns, said is {found:?}: {used:?}"));
        }
        Ok(Some(found))
    }

    fn take(&mut self, gang: &Gang) {
        let shares: Vec<Share> = self.placer.shares().collect();
        self.placer.take(gang);
        self.books.book(gang, &shares, true);
        self.held.push((gang.clone(), shares));
    }

    fn give_back(&mut self, at: usize) {
        let (gang, shares) = self.held.swap_remove(at);
        self.placer.give_back(&gang, &shares);
        self.books.book(&gang, &shares, false);
    }

    /// Takes the found placement now and then, and releases a gang now and then.
    fn go_on(&mut self, rng: &mut Rng, gang: &Gang, is_found: bool, percent: u64) {
        if is_found && rng.chance(percent) {
            self.take(gang);
        }
        if !self.held.is_empty() && rng.chance(percent * 3 / 4) {
            let at = rng.between(0, self.held.len() as u32 - 1) as usize;
            self.give_back(at);
        }
    }

    /// Whether the counts say that the whole gang fits; `None` if the gang must be on one node, of which the counts say
    /// nothing.
    fn counts_say_it_fits(&mut self, gang: &Gang) -> Option<bool> {
        let above = &self.books.cluster.levels.above;
        let level = match &gang.topology.required {
            Some(required) => above.iter().position(|level| level == required)?,
            None => 0,
        };
        Some(self.placer.most_that_fits(gang, level) >= gang.size)
    }
}

/// Equal numbers per node, parts, and amounts of domains are counted apart: the counts may promise what does not fit in
/// combination, and in a large cluster the search may miss a placement. Both are reported as an exhausted budget.
fn is_counted_apart(gang: &Gang) -> bool {
    let rules = [
        gang.members_per_node.is_some(),
        !gang.topology.segments.is_empty(),
        !gang.topology.spread.is_empty() || !gang.needs.named.is_empty(),
    ];
    rules.into_iter().filter(|rule| *rule).count() > 1
}

/// The smaller last part is left out if a domain's limit ends the others, see `named`.
fn is_counted_short(gang: &Gang) -> bool {
    let has_rule = !gang.topology.spread.is_empty() || !gang.needs.named.is_empty();
    has_rule && has_rest(gang)
}

fn has_rest(gang: &Gang) -> bool {
    gang.topology.segments.iter().any(|segment| !gang.size.is_multiple_of(segment.size))
}

/// In a tiny cluster the search finds a placement exactly if there is one, and no placement takes less time, also if
/// others hold devices and load uplinks.
#[test]
fn the_best_of_all_placements_is_found() {
    let (mut multi, mut none) = (0, 0);
    for seed in 0..6_000 {
        let mut rng = Rng::new(seed);
        let mut bench = Bench::new(draw::cluster(&mut rng, Scale::Tiny));
        for turn in 0..20 {
            let most = bench.placer.free_devices().clamp(1, 10);
            let gang = draw::gang(&mut rng, &bench.books.cluster, most);
            let expected = brute::best_ns(&bench.books, &gang);
            let found = bench.place(&gang).unwrap_or_else(|why| panic!("{seed}/{turn}: {why}; {gang:?}"));
            let ns = found.map(|found| found.time_ns);
            assert_eq!(ns, expected, "{seed}/{turn}: {gang:?}");
            multi += u32::from(found.is_some() && bench.placer.shares().count() > 1);
            none += u32::from(found.is_none());
            if let Some(says) = bench.counts_say_it_fits(&gang) {
                let is_denied = !says && found.is_some() && !is_counted_short(&gang);
                assert!(!is_denied, "{seed}/{turn}: the counts deny what fits: {gang:?}");
                let is_wrong = says && found.is_none() && !is_counted_apart(&gang);
                assert!(!is_wrong, "{seed}/{turn}: the counts promise what is not there: {gang:?}");
            }
            assert_eq!(bench.place(&gang).unwrap(), found, "{seed}/{turn}");
            bench.go_on(&mut rng, &gang, found.is_some(), 30);
        }
    }
    // The draw has to cover both.
    assert!(multi > 15_000 && none > 15_000, "{multi} on several nodes, {none} nowhere");
}

/// With measured links the search is as exact as in a cluster that has the measured bandwidths.
#[test]
fn measured_links_are_weighed_exactly() {
    let (mut slow, mut other) = (0, 0);
    for seed in 0..2_000 {
        let mut rng = Rng::new(4 << 32 | seed);
        let cluster = draw::cluster(&mut rng, Scale::Tiny);
        let (measured, really) = measured::draw(&mut rng, &cluster);
        let mut nominal = placer(&cluster);
        let placer = Placer::with_measured(&cluster.levels, cluster.nodes, &cluster.table, &measured);
        let mut bench = Bench { placer, books: Books::new(really), held: Vec::new() };
        for turn in 0..10 {
            let most = bench.placer.free_devices().clamp(1, 10);
            let gang = draw::gang(&mut rng, &bench.books.cluster, most);
            let expected = brute::best_ns(&bench.books, &gang);
            let found = bench.place(&gang).unwrap_or_else(|why| panic!("{seed}/{turn}: {why}; {gang:?}"));
            assert_eq!(found.map(|found| found.time_ns), expected, "{seed}/{turn}: {gang:?}");
            // A preference, and never an exclusion.
            let without = nominal.place(&gang);
            assert_eq!(found.is_some(), without.is_some(), "{seed}/{turn}: {gang:?}");
            slow += u32::from(found.map(|of| of.time_ns) > without.map(|of| of.time_ns));
            other += u32::from(!nominal.shares().eq(bench.placer.shares()));
            if found.is_some() && rng.chance(30) {
                let shares: Vec<Share> = bench.placer.shares().collect();
                bench.take(&gang);
                nominal.take_shares(&gang, &shares);
            }
        }
    }
    assert!(slow > 1_000 && other > 1_000, "{slow} are slower, and {other} are elsewhere");
}

/// Above the size that the exact recursion solves: every result is valid, and the search finds nothing only if the
/// counts say that the whole gang does not fit.
#[test]
fn large_clusters_are_searched_to_the_end() {
    let mut missed = 0;
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let mut bench = Bench::new(draw::cluster(&mut rng, Scale::Large));
        let free = bench.placer.free_devices();
        for turn in 0..60 {
            let most = if rng.chance(30) { free } else { 40 };
            let gang = draw::gang(&mut rng, &bench.books.cluster, most.max(1));
            let found = bench.place(&gang).unwrap_or_else(|why| panic!("{seed}/{turn}: {why}; {gang:?}"));
            let says = bench.counts_say_it_fits(&gang);
            let is_missed = found.is_none() && says == Some(true) && !is_counted_apart(&gang);
            assert!(!is_missed || has_rest(&gang), "{seed}/{turn}: missed: {gang:?}");
            missed += u32::from(is_missed);
            let is_denied = says == Some(false) && found.is_some() && !is_counted_short(&gang);
            assert!(!is_denied, "{seed}/{turn}: denied: {gang:?}");
            // The counts share the search's memory, so the search has to find the placement again.
            assert_eq!(bench.place(&gang).unwrap(), found, "{seed}/{turn}");
            bench.go_on(&mut rng, &gang, found.is_some(), 80);
        }
    }
    // Nested parts, the last of them smaller, are beyond the budget in a cluster of this size.
    assert!(missed <= 3, "{missed} of 6,000 were missed");
}

/// Names of nodes exchanged within each innermost domain, so that every machine stays in its place in the tree.
fn renamed(rng: &mut Rng, cluster: &Cluster) -> Cluster {
    let mut new = cluster.clone();
    for nodes in new.nodes.chunk_by_mut(|a, b| a.path == b.path) {
        let mut names: Vec<NodeName> = nodes.iter().map(|node| node.name.clone()).collect();
        rng.shuffle(&mut names);
        for (node, name) in nodes.iter_mut().zip(names) {
            node.name = name;
        }
    }
    new
}

/// The order in which nodes are listed changes nothing, and their names change no time.
#[test]
fn neither_order_nor_names_count() {
    for (seed, scale) in (0..2_500).map(|seed| (seed, if seed < 20 { Scale::Large } else { Scale::Tiny })) {
        let mut rng = Rng::new(1 << 32 | seed);
        let mut cluster = draw::cluster(&mut rng, scale);
        // The measurements of a node's own cables are recorded by its name.
        let depth = cluster.levels.above.len();
        cluster.table.domains.retain(|domain| domain.path.len() <= depth);
        let new_names = renamed(&mut rng, &cluster);
        let mut shuffled = cluster.clone();
        rng.shuffle(&mut shuffled.nodes);
        let [mut as_listed, mut as_shuffled, mut as_renamed] = [&cluster, &shuffled, &new_names].map(placer);
        for turn in 0..8 {
            let mut gang = draw::gang(&mut rng, &cluster, if scale == Scale::Tiny { 12 } else { 300 });
            gang.needs.nodes.clear();
            gang.needs.avoid.clear();
            let found = as_listed.place(&gang);
            assert_eq!(found, as_shuffled.place(&gang), "{seed}/{turn}: {gang:?}");
            assert_eq!(as_listed.placement(&gang), as_shuffled.placement(&gang), "{seed}/{turn}");
            let of_renamed = as_renamed.place(&gang);
            let ns = |found: Option<Found>| found.map(|found| found.time_ns);
            assert_eq!(ns(found), ns(of_renamed), "{seed}/{turn}: {gang:?}");
            if found.is_some() && rng.chance(30) {
                as_listed.take(&gang);
                as_shuffled.take(&gang);
                // The chosen node of equal nodes differs, so the placement in the renamed cluster is not taken.
                let shares: Vec<Share> = as_listed.shares().collect();
                as_listed.give_back(&gang, &shares);
                as_shuffled.give_back(&gang, &shares);
            }
        }
    }
}

/// One more free node never takes a placement away, and in a cluster that is solved exactly never makes one slower.
#[test]
fn one_more_free_node_never_hurts() {
    for (seed, scale) in (0..3_000).map(|seed| (seed, if seed < 20 { Scale::Large } else { Scale::Tiny })) {
        let mut rng = Rng::new(2 << 32 | seed);
        let mut cluster = draw::cluster(&mut rng, scale);
        let like = rng.pick(&cluster.nodes);
        let path = rng.pick(&cluster.nodes).path;
        let mut before = placer(&cluster);
        let name = NodeName::new("one-more").unwrap();
        cluster.nodes.push(Node { name, path, admin: Admin::Open, foreign: DeviceMask::EMPTY, ..like });
        let mut after = placer(&cluster);
        for turn in 0..8 {
            let gang = draw::gang(&mut rng, &cluster, if scale == Scale::Tiny { 12 } else { 300 });
            if let Some(found) = before.place(&gang) {
                let more = after.place(&gang);
                let more = more.unwrap_or_else(|| panic!("{seed}/{turn}: nowhere any more: {gang:?}"));
                let is_proved = more.least_ns == more.time_ns;
                assert!(
                    !is_proved || more.time_ns <= found.time_ns,
                    "{seed}/{turn}: {found:?} {more:?} {gang:?}"
                );
                assert!(scale == Scale::Large || is_proved, "{seed}/{turn}: {more:?}");
            }
        }
    }
}

/// After a gang was taken and released the state is as before, and what a gang holds is as if others held it.
#[test]
fn the_books_end_where_they_began() {
    for (seed, scale) in (0..1_500).map(|seed| (seed, if seed < 20 { Scale::Large } else { Scale::Tiny })) {
        let mut rng = Rng::new(3 << 32 | seed);
        let mut bench = Bench::new(draw::cluster(&mut rng, scale));
        let most = if scale == Scale::Tiny { 8 } else { 100 };
        let mut fresh = bench.placer.clone();
        for _ in 0..40 {
            let gang = draw::gang(&mut rng, &bench.books.cluster, most);
            let found = bench.place(&gang).unwrap();
            bench.go_on(&mut rng, &gang, found.is_some(), 60);
        }
        let probes: Vec<Gang> = (0..8).map(|_| draw::gang(&mut rng, &bench.books.cluster, most)).collect();
        // With loads, CPUs and guests booked, only gangs that need neither are as in a newly built cluster.
        let holds = |gang: &Gang| {
            let needs = &gang.needs;
            let has_devices = needs.devices > 0 && !needs.is_exclusive;
            gang.traffic.is_some()
                || needs.cpu_milli + needs.memory_bytes > 0
                || !needs.named.is_empty()
                || !has_devices
        };
        for at in (0..bench.held.len()).rev() {
            if holds(&bench.held[at].0) {
                bench.give_back(at);
            }
        }
        let mut cluster = bench.books.cluster.clone();
        for (node, free) in cluster.nodes.iter_mut().zip(&bench.books.free) {
            node.foreign = node.machine.device_mask().minus(free.devices);
        }
        let mut anew = placer(&cluster);
        for gang in &probes {
            assert_eq!(bench.placer.place(gang), anew.place(gang), "{seed}: {gang:?}");
            assert_eq!(bench.placer.placement(gang), anew.placement(gang), "{seed}");
        }
        while !bench.held.is_empty() {
            bench.give_back(0);
        }
        assert_eq!(bench.placer.free_devices(), fresh.free_devices(), "{seed}");
        for gang in &probes {
            assert_eq!(bench.placer.place(gang), fresh.place(gang), "{seed}: {gang:?}");
            assert_eq!(bench.placer.placement(gang), fresh.placement(gang), "{seed}");
        }
    }
}
