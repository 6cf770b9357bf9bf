//! The bench's own parts.
#![allow(clippy::unwrap_used)]

use super::play::{Drawn, draw, play};
use super::rules::Rule;
use super::*;

#[test]
fn the_same_seed_draws_the_same_jobs_and_never_too_many() {
    let events = draw(8, 70, 7, 500);
    assert_eq!(events, draw(8, 70, 7, 500));
    let mut running = Vec::new();
    for event in &events {
        match event {
            Drawn::Comes(size) => running.push(*size),
            Drawn::Ends(at) => drop(running.remove(*at)),
        }
        assert!(running.iter().sum::<u32>() <= 8);
    }
    assert!(events.iter().filter_map(|event| event.size()).any(|size| size == 8));
}

/// On our own machines: jobs take at most 2 % longer than with foresight, and no longer than by first fit.
#[test]
fn the_engine_keeps_islands_whole() {
    let machines = read_all(Some(std::path::Path::new("/nowhere"))).unwrap();
    assert!(machines.len() >= 6, "{}", machines.len());
    for machine in machines.iter().filter(|machine| machine.devices <= 8) {
        let events = draw(machine.devices, 70, 3, 400);
        let play = |rule| play(machine, rule, &events).unwrap();
        let sum = |rule| play(rule).times_ns.iter().sum::<u64>();
        let (ours, best, first) = (sum(Rule::Phalanx), sum(Rule::Foresight), sum(Rule::FirstFit));
        assert!(ours <= best + best / 50 && ours <= first, "{}: {ours} {best} {first}", machine.name);
        let played = play(Rule::Phalanx);
        assert!(played.fastest * 100 >= played.times_ns.len() * 99, "{}", machine.name);
    }
}
