//! Victims for gangs that are more than equal members: candidates are taken in the order of their cost until the gang
//! fits.

use std::collections::BTreeMap;

use super::select::{Budget, Overlay, Selected};
use super::sum::Sum;
use super::useful::{Useful, domain_of};
use crate::cluster::tree::LevelAt;

/// Tries domain by domain, those first whose cheapest candidates free enough devices at the least cost, and selects the
/// cheapest victims of all domains that the budget allows. The first domain is always tried.
pub(super) fn until_it_fits(
    overlay: &mut Overlay<'_, '_>,
    useful: &Useful,
    budget: &mut Budget,
) -> Option<Selected> {
    let mut best: Option<(Sum, Selected)> = None;
    for (at, (least, local)) in domains(overlay, useful).into_iter().enumerate() {
        if at > 0 && budget.is_spent() {
            break;
        }
        // The first candidates cost no more than any candidates that are taken.
        if best.as_ref().is_some_and(|(cost, _)| cost.is_below_class_of(&least)) {
            continue;
        }
        let Some(found) = in_domain(overlay, &local, budget) else { continue };
        let cost = Sum::of(overlay.candidates, &found.victims);
        if best.as_ref().is_none_or(|(before, _)| cost < *before) {
            best = Some((cost, found));
        }
    }
    best.map(|(_, selected)| selected)
}

/// The candidates of each domain that could hold the gang by number of devices, the cheapest domain first. If the
/// search places a gang outside of the level that it requires, the gang is not placed at all.
fn domains(overlay: &Overlay<'_, '_>, useful: &Useful) -> Vec<(Sum, Vec<usize>)> {
    let (tree, gang) = (overlay.tree, overlay.gang);
    let level = match tree.level_of_required(gang) {
        LevelAt::Above(level) => level,
        LevelAt::Node | LevelAt::Group(_) => tree.depth().saturating_sub(1),
    };
    let mut locals: BTreeMap<usize, (u32, Vec<(usize, u32)>)> = BTreeMap::new();
    for of in useful.freed() {
        let domain = domain_of(tree, LevelAt::Above(level), of.node);
        let free = || overlay.space.free_devices(level, domain);
        let (_, local) = locals.entry(domain).or_insert_with(|| (free(), Vec::new()));
        local.push((of.candidate, of.devices.count()));
    }
    let needed = gang.device_count();
    let mut domains = Vec::new();
    for (mut free, mut local) in locals.into_values() {
        local.sort_unstable();
        let mut least = Sum::default();
        for (candidate, devices) in &local {
            if free < needed {
                free = free.saturating_add(*devices);
                overlay.candidates.get(*candidate).into_iter().for_each(|of| least.add(of));
            }
        }
        if free >= needed {
            let mut local: Vec<usize> = local.into_iter().map(|(candidate, _)| candidate).collect();
            local.dedup();
            domains.push((least, local));
        }
    }
    domains.sort();
    domains
}

/// Frees candidates of one domain in order until the gang fits.
fn in_domain(overlay: &mut Overlay<'_, '_>, local: &[usize], budget: &mut Budget) -> Option<Selected> {
    let mut freed = Prefix { overlay, local, count: 0 };
    freed.move_to(local.len());
    if !freed.fits(budget) {
        freed.move_to(0);
        return None;
    }
    let (mut short, mut enough) = (0, local.len());
    // A few candidates are enough more often than many.
    let mut step = 1;
    while enough - short > 1 {
        let middle = (short + step).min(short.midpoint(enough));
        step *= 2;
        freed.move_to(middle);
        if freed.fits(budget) {
            (enough, step) = (middle, 1);
        } else {
            short = middle;
        }
    }
    freed.move_to(enough);
    if !freed.fits(budget) {
        freed.move_to(0);
        return None;
    }
    Some(freed.overlay.without_bystanders(&local[..enough]))
}

/// A domain whose first candidates are free.
struct Prefix<'o, 'a, 'c, 'l> {
    overlay: &'o mut Overlay<'a, 'c>,
    local: &'l [usize],
    count: usize,
}

impl Prefix<'_, '_, '_, '_> {
    fn move_to(&mut self, wanted: usize) {
        for at in self.count..wanted {
            self.overlay.free(self.local[at]);
        }
        for at in (wanted..self.count).rev() {
            self.overlay.book(self.local[at]);
        }
        self.count = wanted;
    }

    fn fits(&mut self, budget: &mut Budget) -> bool {
        budget.spend(self.local.len() as u64);
        self.overlay.fits(budget)
    }
}
