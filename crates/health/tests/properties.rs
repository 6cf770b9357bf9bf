//! What holds for any evidence in any order.

#![allow(clippy::unwrap_used)]

mod site;

use std::collections::BTreeMap;

use phalanx_health::{Evidence, Grader, Policy};
use phalanx_model::{
    Grade, Health, JobId, LinkVitals, NodeHealth, NodeName, PortState, PortVitals, RemappedRows, Throttle,
    Timestamp, Vitals,
};
use proptest::prelude::*;
use site::{HOUR, MINUTE, Site, node};

const NODES: u32 = 4;
const DEVICES: u32 = 4;
/// Half of 16: the cluster is small.
const LIMIT: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Observe { of: u32, device: Option<u32>, jobs: Vec<u64>, evidence: Evidence },
    Tick { ms: u64, free: u64 },
    Back { ms: u64 },
    Reboot(u32),
    Clear(u32, Option<u32>),
    SetNodes { devices: usize },
    Take,
}

fn device() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![1 => Just(None), 8 => (0..DEVICES + 1).prop_map(Some)]
}

fn xid() -> impl Strategy<Value = Evidence> {
    let number = prop_oneof![
        4 => proptest::sample::select(vec![13, 31, 48, 54, 63, 74, 79, 94, 95, 109, 145, 154]),
        1 => 0..200_u32,
        1 => any::<u32>(),
    ];
    let text = prop_oneof![
        2 => proptest::sample::select(vec![
            "changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            "changed from 0x0 (None) to 0x3 (Drain P2P)",
            "changed from 0x1 (GPU Reset Required) to 0x0 (None)",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    (number, text).prop_map(|(number, text)| Evidence::Xid { number, text })
}

fn link() -> impl Strategy<Value = LinkVitals> {
    (0..70_u32, any::<bool>(), proptest::option::of(0..300_u64)).prop_map(|(number, is_up, errors)| {
        LinkVitals {
            number,
            is_up,
            crc_errors: errors,
            replays: errors.map(|_| u64::MAX),
            ..LinkVitals::default()
        }
    })
}

fn vitals(may_be_lost: bool) -> impl Strategy<Value = Evidence> {
    let rows = proptest::option::of((any::<bool>(), proptest::bool::weighted(0.1)));
    let links = proptest::collection::vec(link(), 0..4);
    let counters = (proptest::option::of(any::<u32>()), proptest::option::of(0..4_u64));
    let throttle = proptest::option::of(any::<(bool, bool)>());
    (proptest::bool::weighted(0.5), rows, links, counters, throttle).prop_map(
        move |(is_lost, rows, links, (replays, ecc), throttle)| {
            let row = |(is_pending, has_failed)| RemappedRows {
                is_pending: Some(is_pending),
                has_failed: Some(has_failed),
                ..RemappedRows::default()
            };
            let slow = |(is_hardware, is_hot)| Throttle { is_hardware, is_hot, ..Throttle::default() };
            Evidence::Vitals(Box::new(Vitals {
                is_lost: is_lost && may_be_lost,
                rows: rows.map(row),
                links,
                pcie_replays: replays,
                ecc_uncorrected: ecc,
                throttle: throttle.map(slow),
                ..Vitals::default()
            }))
        },
    )
}

fn ports() -> impl Strategy<Value = Evidence> {
    let states =
        proptest::sample::select(vec![PortState::Up, PortState::Up, PortState::Down, PortState::Gone]);
    let port = (0..6_u32, states, proptest::option::of(0..4_u64), proptest::option::of(0..300_u64));
    let port = port.prop_map(|(number, state, rate, count)| PortVitals {
        name: format!("mlx5_{number}:1"),
        state,
        bytes_per_s: rate.map(|rate| rate * 12_500_000_000),
        symbol_errors: count,
        downed: count,
        sent_bytes: count,
        send_wait_ticks: count.map(|count| count << 40),
        ..PortVitals::default()
    });
    proptest::collection::vec(port, 0..4).prop_map(Evidence::Ports)
}

fn report() -> impl Strategy<Value = Evidence> {
    let grade = proptest::sample::select(Grade::ALL.to_vec());
    (grade, any::<String>(), any::<String>()).prop_map(|(grade, by, text)| Evidence::Report {
        grade,
        by,
        text,
    })
}

/// `is_exempt`: with what the circuit breaker lets pass, and with nodes that shrink.
fn step(is_exempt: bool) -> impl Strategy<Value = Step> {
    let weight = u32::from(is_exempt);
    let preflight = any::<Option<String>>().prop_map(|failure| Evidence::Preflight { failure });
    let evidence =
        prop_oneof![6 => xid(), 4 => vitals(is_exempt), 4 => ports(), 1 => preflight, weight => report()];
    let jobs = proptest::collection::vec(0..20_u64, 0..3);
    let observe = (0..NODES + 1, device(), jobs, evidence)
        .prop_map(|(of, device, jobs, evidence)| Step::Observe { of, device, jobs, evidence });
    let ms = prop_oneof![0..2 * MINUTE, 0..2 * HOUR, 0..100 * HOUR];
    prop_oneof![
        30 => observe,
        8 => (ms, any::<u64>()).prop_map(|(ms, free)| Step::Tick { ms, free }),
        weight => (0..100 * HOUR).prop_map(|ms| Step::Back { ms }),
        2 => (0..NODES).prop_map(Step::Reboot),
        2 => (0..NODES, device()).prop_map(|(of, device)| Step::Clear(of, device)),
        weight => (0..7_usize).prop_map(|devices| Step::SetNodes { devices }),
        4 => Just(Step::Take),
    ]
}

fn apply(grader: &mut Grader, now: &mut u64, step: &Step) -> Vec<Health> {
    match step {
        Step::Observe { of, device, jobs, evidence } => {
            let jobs: Vec<JobId> = jobs.iter().copied().map(JobId).collect();
            grader.observe(Timestamp(*now), &node(*of), *device, &jobs, evidence.clone());
        }
        Step::Tick { ms, free } => {
            *now += ms;
            grader.tick(Timestamp(*now), &|_, device| free >> device.unwrap_or(63) & 1 == 1);
        }
        Step::Back { ms } => *now = now.saturating_sub(*ms),
        Step::Reboot(of) => grader.rebooted(Timestamp(*now), &node(*of)),
        Step::Clear(of, device) => drop(grader.clear(Timestamp(*now), &node(*of), *device, "ana")),
        Step::SetNodes { devices } => {
            grader.set_nodes((0..NODES).map(|n| (node(n), vec!["NVIDIA B200".to_owned(); *devices])));
        }
        Step::Take => return grader.take_changes(),
    }
    Vec::new()
}

type Cluster = BTreeMap<NodeName, NodeHealth>;

fn accumulate(known: &mut Cluster, facts: &[Health]) {
    for fact in facts {
        known.entry(fact.node.clone()).or_default().set(fact);
        known.retain(|_, health| !health.is_ok());
    }
}

/// Devices that are closed, by themselves or with their node.
fn closed(grader: &Grader) -> usize {
    let mut known = Cluster::new();
    accumulate(&mut known, &grader.facts());
    let each = known.values().map(|node| match node.is_open() {
        true => node.closed_devices().count() as usize,
        false => DEVICES as usize,
    });
    each.sum()
}

fn steps(is_exempt: bool) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(is_exempt), 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changes_add_up_to_the_facts(steps in steps(true)) {
        let mut site = Site::new(NODES, DEVICES as usize);
        let mut known = Cluster::new();
        for step in &steps {
            accumulate(&mut known, &apply(&mut site.grader, &mut site.now, step));
        }
        accumulate(&mut known, &site.grader.take_changes());
        let mut expected = Cluster::new();
        accumulate(&mut expected, &site.grader.facts());
        prop_assert_eq!(&known, &expected);
        prop_assert!(site.grader.take_changes().is_empty());
        for line in site.grader.report() {
            prop_assert!(line.detail.chars().count() <= 200 && !line.detail.contains(char::is_control));
            prop_assert!(line.evidence.len() <= 16 && line.failed_jobs <= 64);
            prop_assert!(line.held.is_none_or(|held| held > line.grade));
        }
    }

    #[test]
    fn a_restart_changes_nothing(before in steps(true), after in steps(true)) {
        let mut site = Site::new(NODES, DEVICES as usize);
        before.iter().for_each(|step| drop(apply(&mut site.grader, &mut site.now, step)));
        let (mut other, mut now) = (site.grader.clone(), site.now);
        site.restart();
        for step in &after {
            prop_assert_eq!(apply(&mut site.grader, &mut site.now, step), apply(&mut other, &mut now, step));
            prop_assert_eq!(site.grader.report(), other.report());
        }
    }

    #[test]
    fn automation_closes_no_more_than_its_share(steps in steps(false)) {
        let mut site = Site::new(NODES, DEVICES as usize);
        for step in &steps {
            apply(&mut site.grader, &mut site.now, step);
            prop_assert!(closed(&site.grader) <= LIMIT, "{:?} after {step:?}", site.grader.facts());
        }
    }

    /// Whatever people do and whatever is lost: what the circuit breaker admitted stays within the share.
    #[test]
    fn people_do_not_widen_the_share(steps in steps(true)) {
        let mut site = Site::new(NODES, DEVICES as usize);
        for step in steps.iter().filter(|step| !matches!(step, Step::SetNodes { .. })) {
            apply(&mut site.grader, &mut site.now, step);
        }
        let state = serde_json::to_value(site.grader.state()).unwrap();
        let mut automatic = 0;
        for of in state["nodes"].as_object().unwrap().values() {
            let is_admitted = |of: &serde_json::Value| of["is_admitted"].as_bool().unwrap();
            let devices = of["devices"].as_array().unwrap();
            automatic += match is_admitted(&of["node"]) {
                true => devices.len(),
                false => devices.iter().filter(|of| is_admitted(of)).count(),
            };
        }
        prop_assert!(automatic <= LIMIT, "{automatic}");
    }

    /// Evidence raises grades and never lowers them, but for a sample which says that a repair is done.
    #[test]
    fn evidence_never_lowers_a_grade(before in steps(true), of in 0..NODES, device in device(), evidence in xid()) {
        let mut site = Site::new(NODES, DEVICES as usize);
        before.iter().for_each(|step| drop(apply(&mut site.grader, &mut site.now, step)));
        let grade = |site: &Site| site.line(of, device).map_or(Grade::Ok, |line| line.grade);
        let was = grade(&site);
        site.observe(of, device, 1, evidence);
        prop_assert!(grade(&site) >= was);
    }

    #[test]
    fn any_policy_is_harmless(numbers in proptest::collection::vec(any::<u32>(), 7), steps in steps(true)) {
        let [repeats, lemon_jobs, lemon_ratio, drains, share, lost, down] = numbers[..] else { unreachable!() };
        let policy = Policy {
            repeats, lemon_jobs, lemon_ratio, drains, max_share_percent: share, lost_samples: lost,
            link_down_samples: down, suspect_ms: u64::MAX, settle_ms: 0, probation_ms: u64::MAX, burst_ms: 0,
            throttle_window_ms: 0, pcie_replays_per_minute: u64::MAX, link_errors_per_hour: u64::MAX,
            ..Policy::default()
        };
        let mut grader = Grader::resume(policy, Site::new(NODES, DEVICES as usize).grader.state().clone());
        let mut now = u64::MAX - 400 * HOUR * 100;
        for step in &steps {
            apply(&mut grader, &mut now, step);
        }
        let _ = (grader.report(), grader.is_breaker_open());
    }
}
