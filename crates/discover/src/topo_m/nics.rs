//! Virtual functions among the NICs of a matrix.

use phalanx_model::{Link, LinkKind, Machine, Nic, Port};

use super::table::Name;
use crate::gap::Gap;
use crate::pcie::is_virtual_name;

/// From so many NICs on that a matrix cannot tell apart, they are functions of one adapter. Physical adapters behind one
/// bridge are at most four.
const FUNCTIONS_MIN: usize = 6;

/// Leaves out virtual functions: NICs that are named as such, and all but the first of many that are behind one bridge
/// and equally far from everything else.
pub(super) fn leave_out_virtual(machine: &mut Machine, names: &[Name], line: u32) -> Option<Gap> {
    let is_named =
        |nic: &Nic| [Some(&nic.name), nic.alias.as_ref()].into_iter().flatten().any(|n| is_virtual_name(n));
    let named: Vec<bool> = machine.nics.iter().map(is_named).collect();
    let mut is_left = if named.iter().all(|is| *is) { vec![false; named.len()] } else { named };
    for set in alike(machine, &is_left) {
        for nic in set.into_iter().skip(1) {
            if let Some(slot) = is_left.get_mut(nic) {
                *slot = true;
            }
        }
    }
    let left: Vec<&str> =
        machine.nics.iter().zip(&is_left).filter(|(_, is)| **is).map(|(nic, _)| nic.name.as_str()).collect();
    let (first, last) = (left.first()?, left.last()?);
    let what = match left.len() {
        1 => format!("{first} is a virtual function of an adapter that is here; it is left out"),
        many => format!(
            "{many} NICs ({first} to {last}) are functions of adapters that are here: behind the same bridge and equally \
             far from everything; they are left out"
        ),
    };
    let column =
        names.iter().position(|n| n.text == **first).map_or(1, |at| u32::try_from(at).unwrap_or(0) + 1);
    keep(machine, &is_left);
    Some(Gap::new((line, column), what))
}

/// Sets of NICs that are behind one bridge with each other and equally far from everything else.
fn alike(machine: &Machine, is_left: &[bool]) -> Vec<Vec<usize>> {
    let port = |nic: usize| Port::Nic(u32::try_from(nic).unwrap_or(u32::MAX));
    let count = machine.nics.len();
    let devices = (0..machine.device_count()).map(Port::Device);
    let ports: Vec<Port> = devices.chain((0..count).map(port)).collect();
    let is_alike = |a: usize, b: usize| {
        machine.link(port(a), port(b)) == Some(LinkKind::PcieSwitch)
            && ports
                .iter()
                .filter(|p| **p != port(a) && **p != port(b))
                .all(|p| machine.link(port(a), *p) == machine.link(port(b), *p))
    };
    let mut sets: Vec<Vec<usize>> = Vec::new();
    for nic in (0..count).filter(|nic| !is_left.get(*nic).copied().unwrap_or(true)) {
        match sets.iter_mut().find(|set| set.first().is_some_and(|first| is_alike(*first, nic))) {
            Some(set) => set.push(nic),
            None => sets.push(vec![nic]),
        }
    }
    sets.retain(|set| set.len() >= FUNCTIONS_MIN);
    sets
}

/// Takes NICs out, with their links.
fn keep(machine: &mut Machine, is_left: &[bool]) {
    let mut next = 0;
    let places: Vec<Option<u32>> = is_left
        .iter()
        .map(|is_left| {
            (!is_left).then(|| {
                next += 1;
                next - 1
            })
        })
        .collect();
    let moved = |port: Port| match port {
        Port::Nic(nic) => places.get(nic as usize).copied().flatten().map(Port::Nic),
        Port::Device(_) => Some(port),
    };
    let links = std::mem::take(&mut machine.links);
    machine.links =
        links.into_iter().filter_map(|l| Some(Link { a: moved(l.a)?, b: moved(l.b)?, ..l })).collect();
    let mut stays = is_left.iter().map(|is_left| !is_left);
    machine.nics.retain(|_| stays.next().unwrap_or(true));
}
