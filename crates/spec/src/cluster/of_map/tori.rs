//! Tori of a map, and which of its hosts have a place that a cluster file can tell.

use std::collections::BTreeSet;

use phalanx_model::{DomainName, Graph, Host, Torus, TorusPlace};

use super::super::torus::{Spot, TORI_MAX, TorusFile, TorusPlaceFile, Wraps};
use crate::pattern::NamePattern;
use crate::place::At;
use crate::scalar::{COUNT_MAX, Count, Sides};

/// By host its place, where it has one; tori without any are not told.
pub(super) struct Places<'a> {
    tori: &'a [Torus],
    pub(super) of_hosts: Vec<Option<TorusPlace>>,
}

impl<'a> Places<'a> {
    pub(super) fn of(graph: &'a Graph, kept: &[bool], left_out: &mut Vec<String>) -> Self {
        let mut names: BTreeSet<&DomainName> = BTreeSet::new();
        let mut tell =
            |torus: &'a Torus| is_whole(torus) && names.len() < TORI_MAX && names.insert(&torus.name);
        let told: Vec<bool> = graph.tori.iter().map(&mut tell).collect();
        let mut taken: BTreeSet<(u32, [u16; 3])> = BTreeSet::new();
        let mut lost = 0_usize;
        let place = |(host, kept): (&Host, &bool)| {
            let place = host.torus.filter(|_| *kept)?;
            let torus = graph.tori.get(place.torus as usize);
            let is_told = told.get(place.torus as usize).copied().unwrap_or(false);
            let stands = torus.is_some_and(|torus| is_host(torus, place.at)) && is_told;
            let found = (stands && taken.insert((place.torus, place.at))).then_some(place);
            lost += usize::from(found.is_none());
            found
        };
        let of_hosts = graph.hosts.iter().zip(kept).map(place).collect();
        if lost > 0 {
            left_out.push(format!("{lost} hosts have no place in a torus that a cluster file could tell"));
        }
        Self { tori: &graph.tori, of_hosts }
    }

    /// The tori in which some host has a place.
    pub(super) fn files(&self) -> Vec<TorusFile> {
        let used: BTreeSet<u32> = self.of_hosts.iter().flatten().map(|place| place.torus).collect();
        let torus = |index: u32| self.tori.get(index as usize);
        used.into_iter().filter_map(torus).map(file).collect()
    }

    /// Hosts of one torus in entries: names that follow each other where their hosts do, along x, then y, then z.
    pub(super) fn entries(
        &self,
        torus: u32,
        mut hosts: Vec<(&str, [u16; 3])>,
    ) -> Vec<(NamePattern, Option<TorusPlaceFile>)> {
        let Some(of) = self.tori.get(torus as usize) else { return Vec::new() };
        hosts.sort_by_key(|(_, [x, y, z])| [*z, *y, *x]);
        let mut entries = Vec::new();
        let mut rest = hosts.as_slice();
        while let Some((_, at)) = rest.first() {
            let (run, after) = rest.split_at(run(of, rest));
            let name = At::from(of.name.clone());
            let place = TorusPlaceFile { name, at: (*at != [0; 3]).then(|| At::from(Spot(*at))) };
            let names = NamePattern::compress(run.iter().map(|(name, _)| *name));
            entries.extend(names.into_iter().map(|name| (name, Some(place.clone()))));
            rest = after;
        }
        entries
    }
}

/// Hosts at the beginning that one entry can stand for.
fn run(torus: &Torus, hosts: &[(&str, [u16; 3])]) -> usize {
    let follows = |pair: &[(&str, [u16; 3])]| matches!(pair, [a, b] if next(torus, a.1) == Some(b.1));
    let apart = hosts.windows(2).position(|pair| !follows(pair));
    let most = apart.map_or(hosts.len(), |before| before + 1);
    let is_one = |count: &usize| {
        let names = || hosts.iter().take(*count).map(|(name, _)| *name);
        matches!(NamePattern::compress(names()).as_slice(), [one] if one.names().eq(names()))
    };
    // What one pattern stands for, it does for fewer names as well.
    let (mut good, mut bad) = (1, most + 1);
    while bad - good > 1 {
        let middle = if good * 4 < bad { good * 2 } else { good.midpoint(bad) };
        if is_one(&middle) { good = middle } else { bad = middle }
    }
    good
}

/// Where the host stands that follows the one at a place, along x, then y, then z.
fn next(torus: &Torus, at: [u16; 3]) -> Option<[u16; 3]> {
    let mut next = at;
    for ((at, host), side) in next.iter_mut().zip(torus.host_chips).zip(torus.chips) {
        *at = at.saturating_add(host);
        if *at < side {
            return Some(next);
        }
        *at = 0;
    }
    None
}

/// Whether a file can say it: hosts fill it.
fn is_whole(torus: &Torus) -> bool {
    let fills = |unit: u16, side: u16| unit > 0 && side > 0 && side.is_multiple_of(unit);
    torus.chip_count() <= u64::from(COUNT_MAX)
        && torus.chips.into_iter().zip(torus.host_chips).all(|(side, host)| fills(host, side))
}

fn is_host(torus: &Torus, at: [u16; 3]) -> bool {
    let on = |((at, side), host): ((u16, u16), u16)| at < side && at.is_multiple_of(host);
    at.into_iter().zip(torus.chips).zip(torus.host_chips).all(on)
}

fn file(torus: &Torus) -> TorusFile {
    // A slice of less than a cube is behind no switches.
    let is_of_cubes = torus.cube > 0 && torus.chips.iter().all(|side| side.is_multiple_of(torus.cube));
    TorusFile {
        name: At::from(torus.name.clone()),
        chips: At::from(Sides(torus.chips)),
        wraps: (torus.wraps != [false; 3]).then(|| At::from(Wraps(torus.wraps))),
        twisted: torus.is_twisted.then(|| At::from(true)),
        cube: is_of_cubes.then(|| At::from(Count(u32::from(torus.cube)))),
        host: At::from(Sides(torus.host_chips)),
        link: (torus.link_mb_per_s > 0).then(|| At::from(super::bandwidth(u64::from(torus.link_mb_per_s)))),
    }
}
