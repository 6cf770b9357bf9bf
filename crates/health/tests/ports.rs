//! Network ports of a node: which evidence closes the node, and how it comes back.

#![allow(clippy::unwrap_used)]

mod site;

use phalanx_health::{Evidence, Next, Repair};
use phalanx_model::{Grade, PortState, PortVitals};
use proptest::prelude::*;
use site::{DAY, HOUR, MINUTE, Site};

const GBIT: u64 = 125_000_000;

/// A port that is up, with this rate.
fn up(name: &str, gbit: u64) -> PortVitals {
    PortVitals {
        name: name.to_owned(),
        state: PortState::Up,
        bytes_per_s: Some(gbit * GBIT),
        downed: Some(0),
        recoveries: Some(0),
        symbol_errors: Some(0),
        receive_errors: Some(0),
        ..PortVitals::default()
    }
}

fn down(name: &str) -> PortVitals {
    PortVitals { name: name.to_owned(), ..PortVitals::default() }
}

/// A sample of node 0, ten seconds after the one before, while gangs run there.
fn sample(site: &mut Site, ports: &[PortVitals]) {
    site.pass_busy(10_000);
    site.observe(0, None, 1, Evidence::Ports(ports.to_vec()));
}

fn times(site: &mut Site, count: u32, ports: &[PortVitals]) {
    (0..count).for_each(|_| sample(site, ports));
}

fn grade(site: &Site) -> Grade {
    site.line(0, None).map_or(Grade::Ok, |line| line.grade)
}

fn detail(site: &Site) -> String {
    site.line(0, None).map_or(String::new(), |line| line.detail)
}

#[test]
fn a_port_that_stays_down_closes_its_node_until_it_was_up_for_a_while() {
    let mut site = Site::new(8, 8);
    let (one, two) = (up("mlx5_0:1", 400), up("mlx5_1:1", 400));
    times(&mut site, 3, &[one.clone(), two.clone()]);
    times(&mut site, 2, &[one.clone(), down("mlx5_1:1")]);
    assert_eq!(grade(&site), Grade::Ok);
    sample(&mut site, &[one.clone(), down("mlx5_1:1")]);
    let line = site.line(0, None).unwrap();
    assert_eq!((line.grade, line.repair, line.next), (Grade::DrainAfterJob, Repair::None, Next::WhenQuiet));
    assert_eq!((line.detail.as_str(), line.evidence.len()), ("port mlx5_1:1 down", 1));
    // For as long as it is down, and also over a restart of the daemon and where no sample has it.
    times(&mut site, 100, &[one.clone(), down("mlx5_1:1")]);
    site.restart();
    times(&mut site, 100, std::slice::from_ref(&one));
    let line = site.line(0, None).unwrap();
    assert_eq!((line.grade, line.evidence.len(), line.evidence[0].times), (Grade::DrainAfterJob, 1, 1));

    // Ten minutes of samples with the port up.
    times(&mut site, 59, &[one.clone(), two.clone()]);
    assert_eq!(grade(&site), Grade::DrainAfterJob);
    sample(&mut site, &[one.clone(), two]);
    assert_eq!(
        (grade(&site), detail(&site)),
        (Grade::Suspect, "on probation after: port mlx5_1:1 down".into())
    );
    assert_eq!(site.line(0, None).unwrap().evidence[0].what, "port mlx5_1:1 as before");
    site.pass(DAY);
    assert_eq!(grade(&site), Grade::Ok);
}

#[test]
fn a_port_that_goes_down_again_meanwhile_keeps_its_node_closed() {
    let mut site = Site::new(8, 8);
    let port = up("mlx5_0:1", 400);
    sample(&mut site, std::slice::from_ref(&port));
    for _ in 0..5 {
        times(&mut site, 3, &[down("mlx5_0:1")]);
        times(&mut site, 50, std::slice::from_ref(&port));
        assert_eq!(grade(&site), Grade::DrainAfterJob);
    }
    times(&mut site, 10, std::slice::from_ref(&port));
    assert_eq!(grade(&site), Grade::Suspect);
}

#[test]
fn ports_that_never_were_up_and_short_outages_are_nothing() {
    let mut site = Site::new(8, 8);
    times(&mut site, 50, &[down("mlx5_3:1"), up("mlx5_0:1", 200)]);
    for _ in 0..20 {
        times(&mut site, 2, &[down("mlx5_0:1")]);
        times(&mut site, 2, &[up("mlx5_0:1", 200)]);
    }
    assert_eq!(site.line(0, None), None);
    // A reboot does not make a port that was up forgotten, and an operator does.
    site.reboot(0);
    times(&mut site, 3, &[down("mlx5_0:1")]);
    assert_eq!(grade(&site), Grade::DrainAfterJob);
    site.clear(0, None).unwrap();
    times(&mut site, 50, &[down("mlx5_0:1")]);
    assert_eq!(grade(&site), Grade::Suspect);
    site.pass(DAY);
    assert_eq!(grade(&site), Grade::Ok);
}

#[test]
fn a_port_that_trains_to_a_lower_rate_closes_its_node() {
    let mut site = Site::new(8, 8);
    sample(&mut site, &[up("mlx5_0:1", 400)]);
    times(&mut site, 3, &[up("mlx5_0:1", 100)]);
    assert_eq!(
        (grade(&site), detail(&site)),
        (Grade::DrainAfterJob, "port mlx5_0:1 at a lower rate than before".into())
    );
    times(&mut site, 61, &[up("mlx5_0:1", 400)]);
    assert_eq!(grade(&site), Grade::Suspect);
    // A rate that is not known is no lower rate.
    let unknown = PortVitals { bytes_per_s: None, ..up("mlx5_0:1", 0) };
    times(&mut site, 20, &[unknown]);
    assert_eq!(grade(&site), Grade::Suspect);
}

#[test]
fn a_port_for_management_makes_its_node_suspect_alone() {
    let mut site = Site::new(8, 8);
    let unknown = PortVitals { bytes_per_s: None, ..up("ens5", 0) };
    sample(&mut site, &[up("eno1", 1), unknown]);
    times(&mut site, 3, &[down("eno1"), down("ens5")]);
    assert_eq!((grade(&site), detail(&site)), (Grade::Suspect, "ports eno1, ens5 down".into()));
    // Beside one that closes, until that is up again.
    let mut site = Site::new(8, 8);
    sample(&mut site, &[up("eno1", 1), up("mlx5_0:1", 400)]);
    times(&mut site, 3, &[down("eno1"), down("mlx5_0:1")]);
    assert_eq!((grade(&site), detail(&site)), (Grade::DrainAfterJob, "port mlx5_0:1 down".into()));
    times(&mut site, 61, &[down("eno1"), up("mlx5_0:1", 400)]);
    assert_eq!((grade(&site), detail(&site)), (Grade::Suspect, "port eno1 down".into()));
}

#[test]
fn errors_and_flaps_are_suspect_and_load_is_nothing() {
    let mut site = Site::new(8, 8);
    let mut port = up("mlx5_0:1", 400);
    let mut grow = |site: &mut Site, errors: u64, flaps: u64| {
        port.symbol_errors = port.symbol_errors.map(|value| value + errors);
        port.downed = port.downed.map(|value| value + flaps);
        // Whatever the job does while it sends much.
        for busy in [&mut port.send_wait_ticks, &mut port.send_discards, &mut port.congestion_notices] {
            *busy = Some(busy.unwrap_or(0) + 1_000_000_000);
        }
        port.sent_bytes = Some(port.sent_bytes.unwrap_or(0) + 300 * GBIT * 10);
        sample(site, std::slice::from_ref(&port));
    };
    for _ in 0..60 {
        grow(&mut site, 10, 0);
    }
    assert_eq!(site.line(0, None), None, "60 per minute");
    grow(&mut site, 61, 0);
    assert_eq!(
        (grade(&site), detail(&site)),
        (Grade::Suspect, "port mlx5_0:1 had more than 60 errors per minute".into())
    );
    site.pass_busy(HOUR);
    assert_eq!(grade(&site), Grade::Ok);
    grow(&mut site, 0, 2);
    assert_eq!(grade(&site), Grade::Ok);
    grow(&mut site, 0, 3);
    assert_eq!(
        (grade(&site), detail(&site)),
        (Grade::Suspect, "port mlx5_0:1 went down more than 2 times per hour".into())
    );
}

#[test]
fn a_sample_that_is_older_than_the_last_one_and_one_of_a_device_say_nothing() {
    let mut site = Site::new(8, 8);
    sample(&mut site, &[up("mlx5_0:1", 400)]);
    (0..10).for_each(|_| site.observe(0, None, 1, Evidence::Ports(vec![down("mlx5_0:1")])));
    site.now += MINUTE;
    (0..10).for_each(|_| site.observe(0, Some(1), 1, Evidence::Ports(vec![down("mlx5_0:1")])));
    assert!(site.grader.report().is_empty());
}

#[test]
fn what_is_remembered_of_ports_is_bounded() {
    let mut site = Site::new(8, 8);
    for round in 0..30 {
        let ports: Vec<PortVitals> = (0..64).map(|port| up(&format!("eth{round}x{port}"), 25)).collect();
        sample(&mut site, &ports);
    }
    let text = serde_json::to_string(site.grader.state()).unwrap();
    assert_eq!((text.matches("eth0x").count(), text.matches("eth29x").count()), (0, 64), "{text}");
    let many: Vec<PortVitals> = (0..64).map(|port| down(&format!("eth29x{port}"))).collect();
    times(&mut site, 3, &many);
    assert_eq!(detail(&site), "ports eth29x0, eth29x1, eth29x10, eth29x11 and 60 more down");
}

/// The value that a counter of so many bits shows.
fn wrapped(value: u64, bits: u32) -> u64 {
    if bits >= 64 { value } else { value % (1 << bits) }
}

proptest! {
    /// Counters have 8, 16, 32 or 64 bits, begin anywhere, wrap, and are cleared: a port with few errors is never suspect, and
    /// counters alone never close a node.
    #[test]
    fn counters_that_wrap_and_are_cleared_are_no_evidence(
        begin in any::<u64>(),
        bits in proptest::sample::select(vec![8_u32, 16, 32, 64]),
        steps in proptest::collection::vec((0..11_u64, proptest::bool::weighted(0.05), proptest::bool::weighted(0.1)), 1..200),
    ) {
        let mut site = Site::new(8, 8);
        let mut value = wrapped(begin, bits);
        for (more, is_cleared, is_hidden) in steps {
            value = if is_cleared { 0 } else { wrapped(value.wrapping_add(more), bits) };
            let seen = (!is_hidden).then_some(value);
            sample(&mut site, &[PortVitals { symbol_errors: seen, receive_errors: seen, ..up("p", 400) }]);
            // At most 10 in 10 s.
            prop_assert_eq!(site.line(0, None), None);
        }
    }

    #[test]
    fn any_counters_make_a_node_suspect_at_most(
        samples in proptest::collection::vec(proptest::collection::vec(proptest::option::of(any::<u64>()), 8), 1..50),
    ) {
        let mut site = Site::new(8, 8);
        for of in samples {
            sample(&mut site, &[PortVitals {
                received_bytes: of[0],
                sent_bytes: of[1],
                downed: of[2],
                recoveries: of[3],
                symbol_errors: of[4],
                receive_errors: of[5],
                send_discards: of[6],
                send_wait_ticks: of[7],
                ..up("p", 400)
            }]);
            prop_assert!(grade(&site) <= Grade::Suspect);
        }
    }
}
