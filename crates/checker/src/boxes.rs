//! Slices of a torus: the devices of a gang form one box.

use std::collections::BTreeSet;

use phalanx_model::{Slot, Torus, TorusPlace};

use crate::start::Start;
use crate::{Checker, Violation};

type Chip = [u16; 3];

impl Checker {
    pub(crate) fn check_box(&self, start: &Start<'_>, found: &mut Vec<Violation>) {
        let Some(asked) = start.gang.topology.slice else { return };
        if !self.is_box(start.main(), asked) {
            let [x, y, z] = asked;
            found.push(Violation::NoBox { gang: start.id, asked: format!("{x}x{y}x{z}") });
        }
    }

    fn is_box(&self, slots: &[Slot], asked: [u16; 3]) -> bool {
        let Some(levels) = &self.levels else { return true };
        let mut chips: BTreeSet<Chip> = BTreeSet::new();
        let mut of_torus = None;
        for slot in slots {
            let Some(place) = self.nodes.get(&slot.node).and_then(|node| node.torus) else { return false };
            if *of_torus.get_or_insert(place.torus) != place.torus {
                return false;
            }
            let Some(torus) = levels.tori.get(place.torus as usize) else { return false };
            chips.extend(slot.devices.iter().filter_map(|device| chip_of(torus, place, device)));
        }
        let Some(torus) = of_torus.and_then(|at: u32| levels.tori.get(at as usize)) else { return false };
        let asked_chips: u64 = asked.iter().map(|side| u64::from(*side)).product();
        chips.len() as u64 == asked_chips && lies_in(torus, &chips, asked)
    }
}

/// The devices of a node are its chips, x fastest.
fn chip_of(torus: &Torus, place: TorusPlace, device: u32) -> Option<Chip> {
    let [x, y, _] = torus.host_chips.map(|side| u32::from(side.max(1)));
    let offset = [device % x, device / x % y, device / x / y];
    let mut chip = place.at;
    for (at, offset) in chip.iter_mut().zip(offset) {
        *at = at.checked_add(u16::try_from(offset).ok()?)?;
    }
    Some(chip)
}

fn lies_in(torus: &Torus, chips: &BTreeSet<Chip>, asked: [u16; 3]) -> bool {
    let edge = torus.cube;
    if edge == 0 {
        return is_box_in(chips, asked, torus.chips, torus.wraps);
    }
    let cube_of = |chip: &Chip| chip.map(|at| at / edge);
    let cubes: BTreeSet<Chip> = chips.iter().map(cube_of).collect();
    if asked.iter().all(|side| side.is_multiple_of(edge)) {
        // Optical switches join any cubes, so a slice needs whole cubes with enough chips.
        return cubes.len() as u64 * u64::from(edge).pow(3) == chips.len() as u64;
    }
    let inside = chips.iter().map(|chip| chip.map(|at| at % edge)).collect();
    cubes.len() == 1 && is_box_in(&inside, asked, [edge; 3], [false; 3])
}

/// Whether chips form a box with these sides in any rotation, also across closed dimensions: every corner is tried.
fn is_box_in(chips: &BTreeSet<Chip>, asked: [u16; 3], sides: [u16; 3], wraps: [bool; 3]) -> bool {
    let [a, b, c] = asked;
    let rotations = [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]];
    rotations.into_iter().any(|of| chips.iter().any(|corner| is_box_at(chips, *corner, of, sides, wraps)))
}

fn is_box_at(chips: &BTreeSet<Chip>, corner: Chip, of: [u16; 3], sides: [u16; 3], wraps: [bool; 3]) -> bool {
    let fits =
        |axis: usize| of[axis] <= sides[axis] && (wraps[axis] || corner[axis] + of[axis] <= sides[axis]);
    if !(0..3).all(fits) {
        return false;
    }
    let along = |axis: usize, step: u16| (corner[axis] + step) % sides[axis];
    (0..of[0]).all(|x| {
        (0..of[1]).all(|y| (0..of[2]).all(|z| chips.contains(&[along(0, x), along(1, y), along(2, z)])))
    })
}
