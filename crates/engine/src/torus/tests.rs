//! Against brute force on small tori, rows and pods, and named cases.

use std::collections::BTreeSet;

use phalanx_model::{DomainName, Torus};
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::proptest::{collection::vec, sample::select};

use super::*;

mod boxes;
mod pods;
mod rows;

fn torus(chips: [u16; 3], wraps: [bool; 3], host_chips: [u16; 3]) -> Torus {
    Torus { wraps, host_chips, ..Torus::new(DomainName::new("pod").unwrap(), chips, false) }
}

/// A pod of 8,960 chips in hosts of 2x2x1.
fn pod() -> Torus {
    torus([16, 20, 28], [true; 3], [2, 2, 1])
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

fn ask(sides: [u16; 3]) -> BoxAsk {
    BoxAsk { sides, rotate: true, hosts: Hosts::Any }
}

fn every(sides: [u16; 3]) -> impl Iterator<Item = [u16; 3]> {
    let order = RankOrder::rows(sides);
    (0..order.len()).filter_map(move |rank| order.coordinates(rank))
}
