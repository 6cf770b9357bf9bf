//! Against brute force on small tori and pods, and named cases.

use std::collections::BTreeSet;

use phalanx_model::{DomainName, Torus};
use phalanx_testkit::proptest::prelude::*;
use phalanx_testkit::proptest::{collection::vec, sample::select};

use super::*;

mod boxes;
mod pods;

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

fn request(sides: [u16; 3], member: u32) -> BoxRequest {
    BoxRequest { sides, member, hosts: Hosts::Any }
}

fn every(sides: [u16; 3]) -> impl Iterator<Item = [u16; 3]> {
    let order = RankOrder::rows(sides);
    (0..order.len()).filter_map(move |rank| order.coordinates(rank))
}

fn is_link(torus: &Torus, a: [u16; 3], b: [u16; 3]) -> bool {
    (0..3).any(|axis| [true, false].iter().any(|way| torus.neighbour(a, axis, *way) == Some(b)))
}

/// A large message over links of 100 GB/s.
fn time(sides: [u16; 3], rings: [bool; 3]) -> u64 {
    all_reduce_ns(sides, rings, 1 << 30, 100_000)
}

#[test]
fn bad_tori_have_no_slices() {
    let why = |torus: Torus| Form::of(&torus).unwrap_err().to_string();
    let of = |chips, host| torus(chips, [true; 3], host);
    assert_eq!(
        why(of([0, 1, 1], [1; 3])),
        "a torus of 0x1x1: each side must be 1 to 64, with at most 65535 chips in total"
    );
    assert!(Form::of(&of([64, 64, 64], [1; 3])).is_err() && Form::of(&of([65, 1, 1], [1; 3])).is_err());
    assert_eq!(why(of([3, 2, 1], [2, 2, 1])), "hosts of 2x2x1 chips do not fill 3x2x1");
    assert!(Form::of(&of([16, 16, 1], [16, 16, 1])).is_err(), "a host of 256 devices");
    let cubes = Torus { cube: 4, ..of([4, 4, 8], [2, 2, 1]) };
    assert_eq!(Form::of(&cubes), Ok(Form::Cubes));
    assert_eq!(Form::of(&Torus { is_twisted: true, ..cubes.clone() }), Ok(Form::Cubes));
    assert_eq!(Form::of(&Torus { cube: 0, is_twisted: true, ..cubes.clone() }), Err(TorusError::Twisted));
    assert!(Form::of(&Torus { host_chips: [8, 1, 1], ..cubes.clone() }).is_err());
    assert_eq!(
        Form::of(&Torus { chips: [2, 2, 4], ..cubes }),
        Ok(Form::Box),
        "below a cube there are no switches"
    );
}

#[test]
fn what_never_fits_is_told_with_what_is_near() {
    let says = |torus: &Torus, request| refusal(torus, Form::of(torus).unwrap(), request);
    let (flat, cubes) = (torus([16, 16, 1], [true; 3], [2, 4, 1]), Torus { cube: 4, ..pod() });
    assert_eq!(says(&flat, request([4, 2, 1], 8)), None, "turned, it is one host");
    assert_eq!(
        says(&flat, request([6, 2, 2], 4)).unwrap(),
        "6x2x2 in members of 4 does not fit pod, which has 16x16x1 chips in hosts of 2x4x1: each member must be a box inside one host"
    );
    assert!(says(&flat, request([32, 4, 1], 8)).is_some() && says(&flat, request([4, 4, 1], 16)).is_some());
    let one = |sides| BoxRequest { hosts: Hosts::One, ..request(sides, 4) };
    assert_eq!(says(&flat, one([2, 2, 1])), None);
    assert!(says(&flat, one([4, 4, 1])).is_some() && says(&cubes, one([4, 4, 8])).is_some());
    assert_eq!(says(&cubes, request([16, 20, 28], 4)), None, "all of the pod");
    assert!(
        says(&cubes, request([6, 4, 8], 4))
            .unwrap()
            .ends_with("larger slice is 4x8x8; the next smaller slice is 4x4x8")
    );
}
