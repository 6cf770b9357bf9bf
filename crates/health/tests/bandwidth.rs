//! Measured bandwidth of a node's network: what counts, for how long, and what the engine hears of it.

#![allow(clippy::unwrap_used)]

mod site;

use phalanx_health::{Evidence, Next};
use phalanx_model::{Bandwidth, Grade, PortState, PortVitals, Timestamp};
use site::{MINUTE, Site};

const RATE: u64 = 400 * 125_000_000;

fn port(name: &str, sent: u64, waits: u64, notices: u64) -> PortVitals {
    PortVitals {
        name: name.to_owned(),
        state: PortState::Up,
        bytes_per_s: Some(RATE),
        sent_bytes: Some(sent),
        send_wait_ticks: Some(waits),
        congestion_notices: Some(notices),
        ..PortVitals::default()
    }
}

/// A sample of node 0, ten seconds after the one before.
fn sample(site: &mut Site, ports: &[PortVitals]) {
    site.pass_busy(10_000);
    site.observe(0, None, 1, Evidence::Ports(ports.to_vec()));
}

/// Samples in which the port sends, waits and is told to slow down by so much each second.
fn traffic(site: &mut Site, samples: u64, (sent, waits, notices): (u64, u64, u64)) -> Vec<u16> {
    let at = |second: u64| port("mlx5_0:1", sent * second, waits * second, notices * second);
    (0..samples).for_each(|number| sample(site, &[at(number * 10)]));
    heard(site)
}

fn heard(site: &mut Site) -> Vec<u16> {
    let facts = site.grader.take_bandwidths(Timestamp(site.now));
    facts.into_iter().map(|fact| fact.counts_permille).collect()
}

fn measured(site: &mut Site, permille: u16) {
    site.observe(0, None, 1, Evidence::Bandwidth { permille, by: "ana".into(), text: "perftest".into() });
}

#[test]
fn a_measurement_counts_for_less_in_steps_and_is_forgotten() {
    let mut site = Site::new(2, 8);
    measured(&mut site, 400);
    let first = site.grader.take_bandwidths(Timestamp(site.now));
    let Bandwidth { permille, counts_permille, detail, .. } = &first[0];
    assert_eq!((*permille, *counts_permille, detail.as_str()), (400, 375, "ana: perftest"));
    assert_eq!(
        site.line(0, None).map(|line| (line.grade, line.next)),
        Some((Grade::Ok, Next::OkAt(Timestamp(site.now + 3_222_001))))
    );
    assert!(heard(&mut site).is_empty(), "said once");
    let mut steps = Vec::new();
    for _ in 0..60 {
        site.pass(MINUTE);
        steps.append(&mut heard(&mut site));
    }
    assert_eq!(steps, [500, 625, 750, 875, 1_000]);
    assert_eq!(site.line(0, None).map(|line| line.next), Some(Next::Nothing), "only the evidence is kept");
    assert!(site.grader.bandwidths(Timestamp(site.now)).is_empty());
}

#[test]
fn an_operator_ends_a_measurement_and_a_restart_does_not() {
    let mut site = Site::new(2, 8);
    measured(&mut site, 400);
    assert_eq!(heard(&mut site), [375]);
    site.restart();
    assert_eq!(site.grader.bandwidths(Timestamp(site.now)).len(), 1);
    assert!(heard(&mut site).is_empty(), "the engine knows");
    site.clear(0, None).unwrap();
    assert_eq!(heard(&mut site), [1_000]);
    assert!(site.clear(0, None).is_err(), "nothing is left to clear");
    // A better measurement of a person counts, too.
    measured(&mut site, 400);
    measured(&mut site, 800);
    assert_eq!(heard(&mut site), [750]);
    measured(&mut site, 1_000);
    assert_eq!(heard(&mut site), [1_000]);
}

#[test]
fn a_port_that_is_congested_while_it_sends_little_has_half_of_its_rate() {
    let waits = RATE / 4 / 4;
    let mut site = Site::new(2, 8);
    assert!(
        traffic(&mut site, 3, (RATE / 10, waits, 0)).is_empty(),
        "the first sample is a base, and two are few"
    );
    let mut site = Site::new(2, 8);
    assert_eq!(traffic(&mut site, 4, (RATE / 10, waits, 0)), [500]);
    let line = site.line(0, None).unwrap();
    assert_eq!(
        (line.grade, line.evidence[0].what.as_str()),
        (Grade::Ok, "port mlx5_0:1 congested at low use")
    );
    let mut site = Site::new(2, 8);
    assert_eq!(traffic(&mut site, 4, (RATE / 10, 0, 5_000)), [500], "RoCE");
}

#[test]
fn the_load_of_its_own_jobs_makes_no_port_slow() {
    let busy = [
        ("much traffic, and waits", (RATE * 6 / 10, RATE, 0)),
        ("much traffic, and notices", (RATE * 6 / 10, 0, 5_000)),
        ("little traffic, and few waits", (RATE / 10, RATE / 100 / 4, 0)),
        ("idle, and hardly a wait", (0, 1_000, 0)),
        ("little traffic, and some notices", (RATE / 10, 0, 500)),
        ("much traffic", (RATE, 0, 0)),
    ];
    for (what, of) in busy {
        let mut site = Site::new(2, 8);
        assert!(traffic(&mut site, 20, of).is_empty(), "{what}");
    }
}

#[test]
fn a_port_at_a_lower_rate_takes_its_part_of_the_network() {
    let mut site = Site::new(8, 8);
    let two = |rate: u64| [port("a", 0, 0, 0), PortVitals { bytes_per_s: Some(rate), ..port("b", 0, 0, 0) }];
    sample(&mut site, &two(RATE));
    (0..3).for_each(|_| sample(&mut site, &two(RATE / 2)));
    assert_eq!(heard(&mut site), [750]);
    // It goes on: the engine hears of it now and then.
    (0..119).for_each(|_| sample(&mut site, &two(RATE / 2)));
    assert_eq!(heard(&mut site), [750]);
    // A slower network beside it, for management, is no part of it.
    let mut site = Site::new(8, 8);
    let slow =
        |rate: u64| [port("a", 0, 0, 0), PortVitals { bytes_per_s: Some(rate), ..port("eth0", 0, 0, 0) }];
    sample(&mut site, &slow(RATE / 40));
    (0..5).for_each(|_| sample(&mut site, &slow(RATE / 400)));
    assert!(heard(&mut site).is_empty());
}

#[test]
fn a_port_that_is_sampled_no_more_says_nothing() {
    let crowded = |name: &str, second: u64| port(name, RATE / 10 * second, RATE / 4 / 4 * second, 0);
    let mut site = Site::new(2, 8);
    (0..4).for_each(|number| sample(&mut site, &[port("a", 0, 0, 0), crowded("b", number * 10)]));
    assert_eq!(heard(&mut site), [750]);
    // It moved to a container: its measurement decays and does not come again.
    let mut steps = Vec::new();
    for _ in 0..7 * 60 {
        sample(&mut site, &[port("a", 0, 0, 0)]);
        steps.append(&mut heard(&mut site));
    }
    assert_eq!(steps, [875, 1_000]);
    // A port that is gone is no part of the network of those that are there.
    (0..4).for_each(|number| sample(&mut site, &[crowded("a", number * 10)]));
    assert_eq!(heard(&mut site), [500]);
}

#[test]
fn what_a_person_says_counts_whatever_ports_show_until_it_decays() {
    let mut site = Site::new(2, 8);
    let waits = RATE / 4 / 4;
    assert_eq!(traffic(&mut site, 4, (RATE / 10, waits, 0)), [500]);
    let mut second = 30;
    let mut go_on = |site: &mut Site, samples: u64| {
        let mut steps = Vec::new();
        for _ in 0..samples {
            second += 10;
            sample(site, &[port("mlx5_0:1", RATE / 10 * second, waits * second, 0)]);
            steps.append(&mut heard(site));
        }
        steps
    };
    measured(&mut site, 1_000);
    assert_eq!(heard(&mut site), [1_000]);
    assert!(go_on(&mut site, 6 * 59).is_empty(), "the port is still congested, and the person outranks it");
    assert_eq!(go_on(&mut site, 12), [500], "an hour later it does not");
    measured(&mut site, 800);
    assert_eq!(heard(&mut site), [750]);
    assert_eq!(go_on(&mut site, 6 * 30), [875], "it decays, and no sample is worse");
    site.restart();
    assert!(go_on(&mut site, 6).is_empty());
    site.clear(0, None).unwrap();
    assert_eq!(go_on(&mut site, 6), [1_000, 500], "a clear forgets what the person said");
}

#[test]
fn the_engine_hears_each_report_of_a_person() {
    let mut site = Site::new(2, 8);
    measured(&mut site, 400);
    assert_eq!(heard(&mut site), [375]);
    site.pass(MINUTE);
    site.observe(0, None, 1, Evidence::Bandwidth { permille: 390, by: "bob".into(), text: "nccl".into() });
    let facts = site.grader.take_bandwidths(Timestamp(site.now));
    let said: Vec<_> = facts.iter().map(|of| (of.permille, of.detail.as_str(), of.at.0)).collect();
    assert_eq!(said, [(390, "bob: nccl", site.now)]);
}

#[test]
fn a_share_that_counts_as_nominal_is_none() {
    let mut site = Site::new(8, 8);
    let names: Vec<String> = (0..10).map(|at| format!("p{at}")).collect();
    let all = |rate: u64| -> Vec<PortVitals> {
        let of = |(at, name): (usize, &String)| PortVitals {
            bytes_per_s: Some(if at == 0 { rate } else { RATE }),
            ..port(name, 0, 0, 0)
        };
        names.iter().enumerate().map(of).collect()
    };
    sample(&mut site, &all(RATE));
    (0..5).for_each(|_| sample(&mut site, &all(RATE / 2)));
    assert!(heard(&mut site).is_empty(), "95% is nominal");
    assert!(site.grader.bandwidths(Timestamp(site.now)).is_empty());
    // What it was reported with ends when it counts as nominal.
    let mut site = Site::new(2, 8);
    measured(&mut site, 400);
    let ends = site.line(0, None).map(|line| line.next);
    while !site.grader.bandwidths(Timestamp(site.now)).is_empty() {
        site.pass(MINUTE);
    }
    let Some(Next::OkAt(at)) = ends else { panic!("{ends:?}") };
    assert!((site.now - MINUTE + 1..=site.now).contains(&at.0), "{at:?} {}", site.now);
}
