use super::*;

/// A small cluster: two blocks, one seed, the two smallest sizes.
#[test]
fn every_peer_is_measured_on_the_same_state() {
    let plan = Plan {
        blocks: 2,
        fills: vec![60],
        oversubscriptions: vec![2],
        seeds: vec![42],
        sizes: vec![64, 128],
    };
    let report = measure(plan.clone()).unwrap();
    assert_eq!(report.cases, 6);
    assert_eq!(report.by_size.len(), 16);
    for figures in &report.by_size {
        let Figures { own, mapped, cases, .. } = figures;
        assert_eq!(*cases, 3);
        for gain in [own, mapped] {
            assert!(gain.min <= gain.mean && gain.mean <= gain.max && gain.max < 100.0);
        }
        // A peer is not slower with our order of ranks than with its own.
        assert!(
            mapped.mean <= own.mean + 1e-6,
            "{} {}: {} {}",
            figures.ranks,
            figures.peer,
            own.mean,
            mapped.mean
        );
        if figures.peer == "random" {
            assert!(own.min > 0.0, "{}", own.min);
        }
    }
    let again = measure(plan).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), serde_json::to_string(&report).unwrap());
}

#[test]
fn a_ring_over_two_leaves_takes_what_is_left_of_their_uplinks() {
    let scene = scene::Scene::draw(1, 0, 4, 1);
    // An empty leaf of 256 GPUs: a fourth of what its nodes send.
    assert_eq!(scene.uplinks[scene::LEAF][0], 256 * 50_000 / 4);
    let job = job::jobs(64)[0];
    // Four nodes in each of two leaves; eight rings, one for each place in a tensor group, cross once each.
    let nodes: Vec<usize> =
        (0..64).map(|rank| if rank < 32 { rank / 8 } else { 32 + (rank - 32) / 8 }).collect();
    let times = evaluate::step(&scene, &job, &nodes, 370_800.0);
    // Data groups are 4 ranks on 4 nodes, inside a leaf: 2 * 3/4 * 14 GB / 16 through a NIC of 50 GB/s.
    let data_ms = 1.5 * 14e9 / 16.0 / 50e9 * 1e3;
    assert!(times.data > data_ms && times.data < data_ms * 1.1, "{} {data_ms}", times.data);
    // One leaf holds every second node of each data group: they cross, and share 3.2 TB/s, which is enough.
    let mixed: Vec<usize> = (0..64).map(|rank| rank / 8 / 2 + 32 * (rank / 8 % 2)).collect();
    let far = evaluate::step(&scene, &job, &mixed, 370_800.0);
    assert!(far.data > times.data && far.data < times.data * 1.1);
    assert_eq!(far.tensor, times.tensor);
    // With a hundredth of the uplink it is what counts.
    let mut narrow = scene;
    narrow.uplinks[scene::LEAF].fill(32_000);
    let slow = evaluate::step(&narrow, &job, &mixed, 370_800.0);
    let exits = 8.0 * 2.0 * 2.0;
    let slow_ms = 1.5 * 14e9 / 16.0 / (32e9 / exits) * 1e3;
    assert!(slow.data > slow_ms && slow.data < slow_ms * 1.1, "{} {slow_ms}", slow.data);
}

#[test]
fn the_engine_predicts_what_the_evaluator_takes() {
    use phalanx_engine::grid::{Grid, Scratch, Seat, predict};

    use crate::peers::{Ask, Peer, Rng};

    let inside = 370_800;
    for (seed, job) in (1..).zip(job::jobs(256)) {
        let scene = scene::Scene::draw(2, 60, 4, seed);
        let pods = job.data * job.pipeline;
        let ask = Ask { pods, gpus: job.tensor, required: None, preferred: None, slice: None };
        let placed = Peer::Random.place(&scene.cluster, &ask, &mut Rng(seed)).unwrap();
        let times = evaluate::step(&scene, &job, &compare::in_order(&job, &placed), f64::from(inside));
        let sites = compare::sites(&scene, &placed, job.tensor, inside).unwrap();
        let seat = |(site, (_, pods)): (u32, &(usize, u32))| {
            (0..pods * job.tensor).map(move |index| Seat { site, index })
        };
        let seats: Vec<Seat> = (0..).zip(&placed).flat_map(seat).collect();
        let predicted = predict(&Grid::new(&job.axes).unwrap(), &sites, &seats, &mut Scratch::default());
        let outside: u64 = predicted.unwrap().axes_ns[1..].iter().sum();
        // Integers, and what is the same wherever the ranks are.
        let ratio = outside as f64 / 1e6 / times.outside();
        assert!((ratio - 1.0).abs() < 1e-4, "{ratio}");
    }
}
