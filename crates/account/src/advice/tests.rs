use super::*;

const HOUR: u64 = 3_600_000;
const GB: u64 = 1_000_000_000;

/// The n-th run of a day: two hours on 4 GPUs, one for each rank, of which all were busy for 90 % of the time.
fn run(n: u64) -> Run {
    let used = Used {
        ranks: 4,
        devices: 4,
        is_whole: true,
        model: "H100".to_owned(),
        device_bytes: 80 * GB,
        sampled_ms: 2 * HOUR,
        busy_ms: 2 * HOUR / 10 * 9,
        busiest_ms: 2 * HOUR / 10 * 9,
        samples: 480,
        used_devices: 4,
        peak_bytes: Some(70 * GB),
        ..Used::default()
    };
    Run {
        began: Timestamp(n * 24 * HOUR),
        ran_ms: 2 * HOUR,
        attempt: 1,
        has_succeeded: true,
        limit_ms: Some(2 * HOUR),
        used: Some(used),
        ..Run::default()
    }
}

fn runs(count: u64, change: impl Fn(u64, &mut Run, &mut Used)) -> Vec<Run> {
    let mut runs: Vec<Run> = (0..count).map(run).collect();
    for (n, run) in (0..).zip(&mut runs) {
        let mut used = run.used.take().unwrap();
        change(n, run, &mut used);
        run.used = Some(used);
    }
    runs
}

fn kinds() -> Vec<Kind> {
    let kind = |model: &str, gb: u64, price_micro| Kind {
        model: model.to_owned(),
        memory_bytes: gb * GB,
        count: 8,
        has_shares: true,
        has_slices: false,
        price_micro,
    };
    vec![kind("H100", 80, 4_000_000), kind("A30", 24, 1_000_000), kind("L4", 20, 500_000)]
}

/// 240 GPU-hours for 960 in 30 days.
const CHARGED: Charged = Charged { device_us: 240 * 3_600_000_000, cost_micro: 960_000_000 };

fn advice(runs: &[Run]) -> Vec<Advice> {
    advise(runs, CHARGED, 30 * DAY_MS, &kinds())
}

fn words(runs: &[Run]) -> Vec<&'static str> {
    advice(runs).iter().map(|advice| advice.what.word()).collect()
}

fn hours(advice: &Advice) -> i64 {
    advice.saves.device_us / 3_600_000_000
}

#[test]
fn a_job_that_uses_what_it_has_gets_no_advice() {
    assert_eq!(advice(&runs(5, |_, _, _| {})), []);
    assert_eq!(advice(&[]), []);
}

#[test]
fn devices_on_which_no_kernel_ran_are_too_many() {
    let half = |_: u64, _: &mut Run, used: &mut Used| (used.ranks, used.used_devices) = (1, 2);
    assert_eq!(words(&runs(2, half)), [""; 0], "two runs are too few");
    let [advice] = &advice(&runs(3, half))[..] else { panic!() };
    assert_eq!(advice.what, What::Gpus { now: 4, next: 2, busy_gpus: 2, busy_percent: 90 });
    assert_eq!((advice.runs, advice.span_ms), (3, 50 * HOUR));
    assert_eq!((hours(advice), advice.saves.cost_micro), (120, 480_000_000));
    let once = |n: u64, _: &mut Run, used: &mut Used| {
        (used.ranks, used.used_devices) = (1, if n == 1 { 3 } else { 2 });
    };
    let [advice] = &super::advise(&runs(4, once), CHARGED, 30 * DAY_MS, &kinds())[..] else { panic!() };
    assert!(matches!(advice.what, What::Gpus { next: 3, .. }), "the run that used most counts: {advice:?}");
}

#[test]
fn fewer_devices_are_enough_for_the_ranks_and_the_memory() {
    let next = |ranks: u32, used_devices: u32, peak: u64| {
        let few = |_: u64, _: &mut Run, used: &mut Used| {
            (used.ranks, used.used_devices, used.peak_bytes) = (ranks, used_devices, Some(peak * GB));
        };
        advice(&runs(3, few)).into_iter().find_map(|advice| match advice.what {
            What::Gpus { next, .. } => Some(next),
            _ => None,
        })
    };
    assert_eq!(next(1, 1, 40), Some(1));
    assert_eq!(next(2, 1, 40), Some(2), "each rank has one");
    assert_eq!(next(4, 1, 40), None);
    assert_eq!(next(1, 2, 79), Some(3), "there is room above the memory");
    assert_eq!(next(4, 0, 0), Some(0), "neither kernels nor memory");
}

#[test]
fn unknown_use_is_not_idle() {
    let unknown = |_: u64, _: &mut Run, used: &mut Used| {
        (used.sampled_ms, used.busy_ms, used.used_devices, used.peak_bytes) = (0, 0, 0, None);
    };
    assert_eq!(words(&runs(9, unknown)), [""; 0]);
    let seldom = |_: u64, _: &mut Run, used: &mut Used| {
        (used.sampled_ms, used.busy_ms, used.used_devices) = (HOUR - 1, 0, 0);
    };
    assert_eq!(words(&runs(9, seldom)), [""; 0], "less than half of the time was seen");
    let few = |_: u64, _: &mut Run, used: &mut Used| (used.samples, used.used_devices) = (19, 0);
    assert_eq!(words(&runs(9, few)), [""; 0], "too few samples");
    let mut unwatched = runs(9, |_, _, _| {});
    unwatched.iter_mut().for_each(|run| run.used = None);
    assert_eq!(words(&unwatched), [""; 0]);
    let part = |_: u64, _: &mut Run, used: &mut Used| (used.is_whole, used.busy_ms) = (false, 0);
    assert_eq!(words(&runs(9, part)), [""; 0], "parts of devices are shared with others");
}

#[test]
fn attempts_that_failed_soon_tell_nothing() {
    let failed = |_: u64, run: &mut Run, used: &mut Used| {
        (run.has_succeeded, run.ran_ms, used.used_devices, used.sampled_ms) = (false, HOUR / 2, 0, HOUR / 2);
    };
    assert_eq!(words(&runs(9, failed)), [""; 0]);
}

#[test]
fn a_share_or_a_slice_holds_both_compute_and_memory() {
    let low = |_: u64, _: &mut Run, used: &mut Used| {
        (used.busy_ms, used.busiest_ms) = (used.sampled_ms / 40, used.sampled_ms / 10);
        used.peak_bytes = Some(17 * GB);
    };
    let [share] = &advice(&runs(3, low))[..] else { panic!() };
    let (peak_bytes, device_bytes, busy_percent) = (17 * GB, 80 * GB, 10);
    // 17 GB and a tenth more are 19 of 80 GB.
    let (next_milli, next_bytes) = (250, 19 * GB);
    assert_eq!(share.what, What::Share { next_milli, next_bytes, busy_percent, peak_bytes, device_bytes });
    assert_eq!(hours(share), 180);
    let mut sliced = kinds();
    sliced[0].has_slices = true;
    let [slice] = &advise(&runs(3, low), CHARGED, 30 * DAY_MS, &sliced)[..] else { panic!() };
    let next_sevenths = 2;
    assert_eq!(slice.what, What::Mig { next_sevenths, next_bytes, busy_percent, peak_bytes, device_bytes });
    sliced.iter_mut().for_each(|kind| (kind.has_shares, kind.has_slices) = (false, false));
    let model = advise(&runs(3, low), CHARGED, 30 * DAY_MS, &sliced);
    assert_eq!(
        model.iter().map(|advice| advice.what.word()).collect::<Vec<_>>(),
        ["model"],
        "no kind has shares"
    );
    let uneven = |n: u64, run: &mut Run, used: &mut Used| {
        low(n, run, used);
        used.busiest_ms = used.sampled_ms / 10 * 9;
    };
    assert!(!words(&runs(3, uneven)).contains(&"share"), "one rank keeps its device busy");
    let unknown = |_: u64, _: &mut Run, used: &mut Used| {
        (used.busy_ms, used.busiest_ms, used.peak_bytes) = (0, 0, None);
    };
    assert_eq!(words(&runs(3, unknown)), [""; 0], "the memory is unknown");
}

#[test]
fn ranks_with_several_devices_need_fewer_of_them_for_their_use_and_memory() {
    let low = |_: u64, _: &mut Run, used: &mut Used| {
        (used.ranks, used.busy_ms, used.peak_bytes) = (1, used.sampled_ms / 5, Some(10 * GB));
    };
    let [advice] = &advice(&runs(3, low))[..1] else { panic!() };
    // 4 × 20 % at 70 %, and 4 × 11 GB on devices of 80 GB.
    assert_eq!(advice.what, What::Gpus { now: 4, next: 2, busy_gpus: 4, busy_percent: 20 });
}

#[test]
fn a_cheaper_model_has_enough_memory() {
    let small = |_: u64, _: &mut Run, used: &mut Used| used.peak_bytes = Some(20 * GB);
    let [advice] = &advice(&runs(3, small))[..] else { panic!() };
    let What::Model { next, .. } = &advice.what else { panic!("{advice:?}") };
    assert_eq!((next.as_str(), hours(advice), advice.saves.cost_micro), ("A30", 0, 720_000_000));
    let mut unpriced = kinds();
    unpriced.iter_mut().for_each(|kind| kind.price_micro = 0);
    let found = advise(&runs(3, small), CHARGED, 30 * DAY_MS, &unpriced);
    assert_eq!((found.len(), found[0].saves), (1, Charged::default()));
}

/// Runs with so many GPUs each, and a time for 1,000 steps.
fn paced(of: &[(u32, u64)], steps_of: impl Fn(u32) -> Option<u64>) -> Vec<Run> {
    let change = |n: u64, _: &mut Run, used: &mut Used| {
        let (width, ms) = of[usize::try_from(n).unwrap()];
        (used.ranks, used.devices, used.used_devices) = (width, width, width);
        (used.steps, used.steps_ms, used.steps_of) = (1_000, ms, steps_of(width));
    };
    runs(of.len() as u64, change)
}

#[test]
fn the_widest_efficient_width_is_advised() {
    let measured = [(2, 400_000), (2, 400_000), (4, 220_000), (4, 220_000), (8, 200_000), (8, 200_000)];
    let [advice] = &advice(&paced(&measured, |_| None))[..] else { panic!() };
    let What::Width { now: 8, next: 4, is_of_ranks: false, measured } = &advice.what else {
        panic!("{advice:?}")
    };
    let pairs: Vec<_> =
        measured.iter().map(|pace| (pace.width, pace.efficiency_percent, pace.runs)).collect();
    assert_eq!(pairs, [(2, 100, 2), (4, 90, 2), (8, 50, 2)]);
    assert_eq!(measured[0].milli_steps_per_s, 2_500);
    // At the same work 4 take 50 of 90 of what 8 took, and 8 had 16 of 28 GPUs.
    assert_eq!(hours(advice), 60);
    let narrow = [(4, 220_000), (8, 112_000), (8, 112_000), (4, 220_000)];
    let [wider] = &super::advise(&paced(&narrow, |_| Some(90)), CHARGED, DAY_MS, &kinds())[..] else {
        panic!()
    };
    assert!(matches!(wider.what, What::Width { now: 4, next: 8, .. }), "{wider:?}");
    assert_eq!(wider.saves, Charged::default());
}

#[test]
fn widths_are_compared_on_equal_devices_and_by_more_than_one_run() {
    let once = [(4, 220_000), (4, 220_000), (8, 112_000), (4, 220_000)];
    assert_eq!(words(&paced(&once, |_| None)), [""; 0], "one run at the width");
    let base = [(4, 220_000), (8, 200_000), (8, 200_000), (8, 200_000)];
    assert_eq!(words(&paced(&base, |_| None)), [""; 0], "one run at the narrowest");
    let measured = [(4, 220_000), (4, 220_000), (8, 200_000), (8, 200_000)];
    assert_eq!(words(&paced(&measured, |_| None)), ["width"]);
    let changed = |change: fn(&mut Used)| {
        let mut runs = paced(&measured, |_| None);
        runs[..2].iter_mut().filter_map(|run| run.used.as_mut()).for_each(change);
        words(&runs)
    };
    assert_eq!(changed(|used| "A30".clone_into(&mut used.model)), [""; 0]);
    assert_eq!(changed(|used| used.is_whole = false), [""; 0]);
    assert_eq!(changed(|used| used.ranks = 1), [""; 0], "more devices for each rank");
    let slow = [(4, 220_000), (4, 9_000_000), (4, 220_000), (8, 200_000), (8, 200_000)];
    assert_eq!(words(&paced(&slow, |_| None)), ["width"], "the median counts");
    let super_linear = [(4, 260_000), (4, 260_000), (8, 100_000), (8, 100_000), (4, 260_000)];
    assert_eq!(words(&paced(&super_linear, |_| None)), [""; 0], "it is not the same work");
}

#[test]
fn steps_of_different_work_are_scaled_or_not_compared() {
    // Twice the ranks take twice the work in a step of the same time.
    let weak = [(4, 200_000), (4, 200_000), (8, 200_000), (8, 200_000)];
    assert_eq!(words(&paced(&weak, |width| Some(8_000 / u64::from(width)))), [""; 0]);
    assert_eq!(words(&paced(&weak, |_| Some(1_000))), ["width"]);
    assert_eq!(words(&paced(&weak, |width| Some(u64::from(width)))), [""; 0], "neither more nor the same");
    assert_eq!(words(&paced(&weak, |width| (width == 4).then_some(1_000))), [""; 0]);
}

#[test]
fn a_time_limit_has_room_above_the_longest_run() {
    let short = |n: u64, run: &mut Run, _: &mut Used| {
        (run.ran_ms, run.limit_ms) = ((20 + n) * 60_000, Some(24 * HOUR));
    };
    let [advice] = &advice(&runs(3, short))[..] else { panic!() };
    let (now_ms, longest_ms, median_ms) = (Some(24 * HOUR), 22 * 60_000, 21 * 60_000);
    // 27.5 minutes.
    assert_eq!(advice.what, What::TimeLimit { now_ms, next_ms: 28 * 60_000, longest_ms, median_ms });
    assert_eq!(advice.saves, Charged::default());
    let mut others = runs(4, short);
    others[3].reached_limit = true;
    assert_eq!(words(&others), [""; 0], "one run needed more");
    let resumed = |n: u64, run: &mut Run, used: &mut Used| {
        short(n, run, used);
        run.attempt = 2;
    };
    assert_eq!(words(&runs(4, resumed)), [""; 0], "later attempts are only the rest");
    let mut unlimited = runs(4, short);
    unlimited.iter_mut().for_each(|run| run.limit_ms = None);
    assert_eq!(words(&unlimited), ["time_limit"]);
    unlimited.iter_mut().for_each(|run| run.is_service = true);
    assert_eq!(words(&unlimited), [""; 0]);
}

#[test]
fn checkpoints_are_neither_too_rare_nor_too_frequent() {
    let every = |minutes: u64| {
        move |_: u64, _: &mut Run, used: &mut Used| {
            used.saves_every_ms = Some(minutes * 60_000);
            let (takes_ms, loss_every_ms) = (60_000, 100 * HOUR);
            used.interval = Some(Interval { takes_ms, loss_every_ms, every_ms: 6_572_671 });
        }
    };
    let [often] = &advice(&runs(3, every(10)))[..] else { panic!() };
    assert!(matches!(often.what, What::Checkpoint { now_ms: 600_000, next_ms: 6_572_671, .. }), "{often:?}");
    // A tenth of the time is saved on writing, and one hundredth is lost otherwise.
    assert_eq!(hours(often), 19);
    assert_eq!(words(&runs(3, every(60))), [""; 0]);
    assert_eq!(words(&runs(3, every(600))), ["checkpoint"]);
    assert_eq!(words(&runs(2, every(600))), [""; 0]);
}

#[test]
fn a_busy_afternoon_is_no_month() {
    let charged = Charged { device_us: 7_000, cost_micro: 70 };
    assert_eq!(charged.in_a_month(1), Charged { device_us: 30_000, cost_micro: 300 });
    assert_eq!(charged.in_a_month(60 * DAY_MS).device_us, 3_500);
    let most = Charged { device_us: i64::MAX, cost_micro: i64::MAX };
    assert_eq!(most.in_a_month(0), most);
}

#[test]
fn nothing_overflows() {
    let most = |_: u64, run: &mut Run, used: &mut Used| {
        (run.ran_ms, run.limit_ms) = (u64::MAX, Some(u64::MAX));
        (used.sampled_ms, used.busy_ms, used.peak_bytes) = (u64::MAX, u64::MAX, Some(u64::MAX));
        (used.ranks, used.devices) = (1, u32::MAX);
        (used.used_devices, used.device_bytes, used.samples) = (u32::MAX, u64::MAX, u64::MAX);
        (used.steps, used.steps_ms, used.saves_every_ms) = (u64::MAX, 1, Some(u64::MAX));
        used.interval = Some(Interval { takes_ms: u64::MAX, loss_every_ms: 1, every_ms: 1 });
    };
    let _ = advice(&runs(4, most));
}
