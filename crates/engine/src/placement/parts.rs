//! Gangs whose members need a part of a device: shares and MIG slices.
//!
//! A device with a part on it is open: it is not free for gangs that need whole devices, and has no NVLink for them.
//! [`crate::cluster::fractions`] has the state of open devices. Parts go on open devices first, which leaves whole
//! ones free; another device is opened in the place where the search for whole devices would take one ([`search`]).

mod fill;
mod look;
mod refused;
mod reshape;
mod search;
#[cfg(test)]
mod tests;

use phalanx_model::Gang;

use super::request::Request;
use super::search::{Ceiling, Fit, Found, Search};
use crate::cluster::space::Space;
use crate::cluster::tree::{LevelAt, Tree};
use look::{ALL, Asked, Look};

pub(crate) use refused::refused;
pub(crate) use reshape::reshapes;
pub use reshape::{Instance, Reshape};
pub(crate) use search::FractionalSearch;

/// Finds a place for the whole gang inside the ceiling, or nothing. The picks are those of the search.
pub(super) fn place(
    search: &mut Search,
    tree: &Tree,
    space: &Space,
    gang: &Gang,
    ceiling: Ceiling,
) -> Option<Found> {
    let mut fractional = std::mem::take(&mut search.fractional);
    let request = Request::within(tree, gang, ceiling.0, std::mem::take(&mut fractional.buffers));
    let asked = std::mem::take(&mut fractional.asked).of(tree, space, gang.needs.part.as_ref());
    let is_found = fractional.place(search, Look { tree, space, request: &request, asked: &asked });
    fractional.asked = asked;
    fractional.buffers = request.into_buffers();
    let mut found =
        if is_found { search.measured(tree, space, gang, fractional.picks_of_nodes()) } else { None };
    if let Some(found) = &mut found {
        search.set_picks(fractional.picks());
        // No traffic passes between members on one device, so that is proved to be best. Of other placements nothing
        // is proved.
        let is_best = fractional
            .picks()
            .windows(2)
            .all(|two| (two[0].node, two[0].devices) == (two[1].node, two[1].devices));
        found.least_ns = if is_best { found.cost.time_ns } else { 0 };
    }
    search.fractional = fractional;
    found
}

/// How many members of the gang the best domain of a level holds.
pub(super) fn best_fit(tree: &Tree, space: &Space, gang: &Gang, level: LevelAt) -> Fit {
    let request = Request::of(tree, gang, level);
    let asked = Asked::default().of(tree, space, gang.needs.part.as_ref());
    let look = Look { tree, space, request: &request, asked: &asked };
    let mut best = Fit { fits: 0, domain: String::new(), free_devices: 0, devices: 0 };
    let mut offer = |fits: u32, mut of: Fit| {
        of.fits = if request.parts.is_empty() { fits.min(gang.size) } else { 0 };
        if best.domain.is_empty() || of.fits > best.fits {
            best = of;
        }
    };
    match request.ceiling {
        LevelAt::Above(level) => {
            let mut fractional = FractionalSearch::default();
            fractional.count_rooms(look);
            for (domain, fits) in tree.domains[level].iter().zip(&fractional.rooms[level]) {
                let free = domain.nodes.clone().map(|node| request.devices(tree, space, node).count());
                let (domain_name, devices) = (tree.domain_name(level, domain), domain.devices);
                offer(*fits, Fit { fits: 0, domain: domain_name, free_devices: free.sum(), devices });
            }
        }
        LevelAt::Node | LevelAt::Group(_) => {
            for (at, node) in tree.nodes.iter().enumerate() {
                let portion = look.room_around(at) / look.portion() * look.portion();
                let free = request.devices(tree, space, at);
                let mut of = |mask: phalanx_model::DeviceMask, domain: String| {
                    let fit = Fit {
                        fits: 0,
                        domain,
                        free_devices: free.and(mask).count(),
                        devices: node.total.devices.and(mask).count(),
                    };
                    offer(look.room_on(at, mask).min(portion), fit);
                };
                match request.ceiling {
                    LevelAt::Group(group) => look
                        .sites(at, group)
                        .into_iter()
                        .for_each(|mask| of(mask, format!("{} devices {mask}", node.name))),
                    _ => of(ALL, node.name.to_string()),
                }
            }
        }
    }
    best
}
