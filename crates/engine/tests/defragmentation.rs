//! Running gangs that may move leave for other nodes, and so open a place for a gang that waits.

#![allow(clippy::unwrap_used)]

use phalanx_model::{
    Answer, Change, Defragmentation, GangId, Input, JobId, NodeName, Opening, Outcome, PreemptMode, Question,
    Settings, Spare, Spares, StopCause,
};
use phalanx_testkit::{JobBuilder, Watched, gang, job, levels, node, queue};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

fn id(job: u64) -> GangId {
    JobId(job).gang(0)
}

/// Racks with two nodes of four devices each.
fn racks(names: &[&str]) -> Watched {
    let nodes = names.iter().flat_map(|rack| (0..2).map(move |at| (rack, format!("{rack}-{at}"))));
    let nodes: Vec<_> =
        nodes.map(|(rack, name)| node(&name).path(["cluster", rack]).gpus(4).nvswitch().build()).collect();
    Watched::with_nodes(&levels(&["cluster", "rack"]), &nodes)
}

fn one_node(id: u64) -> JobBuilder {
    job(id, gang(1).devices(4)).may_move().time_limit(100 * HOUR_MS).grace(2 * MINUTE_MS)
}

fn whole_rack(id: u64) -> JobBuilder {
    job(id, gang(2).devices(4).required("rack")).time_limit(100 * HOUR_MS)
}

fn nodes(watched: &Watched, job: u64) -> Vec<String> {
    let record = watched.record(id(job));
    let placement =
        record.placement.as_ref().or(record.reserved.as_ref().map(|reserved| &reserved.placement));
    placement.unwrap().slots.iter().map(|slot| slot.node.to_string()).collect()
}

/// Two racks, half of each in use, for twenty minutes: job 1 and job 3, as `like` makes them.
fn halves_of(like: impl Fn(u64) -> JobBuilder) -> Watched {
    let mut watched = racks(&["a", "b"]);
    for number in 1..=4 {
        watched.submit(like(number));
        watched.run(number);
    }
    watched.exit(2, [0]);
    watched.exit(4, [0]);
    assert_eq!((nodes(&watched, 1), nodes(&watched, 3)), (vec!["a-0".into()], vec!["b-0".into()]));
    watched.advance(20 * MINUTE_MS);
    watched
}

fn halves() -> Watched {
    halves_of(one_node)
}

fn ask(watched: &mut Watched, job: u64) -> Outcome {
    watched.step(&[Input::DefragmentationRequested { gang: Some(id(job)) }])
}

/// Why nothing moves.
fn refusal(out: &Outcome) -> Option<&str> {
    out.changes.iter().find_map(|change| match change {
        Change::InputRejected { why, .. } => Some(why.as_str()),
        _ => None,
    })
}

fn moved(out: &Outcome) -> Vec<GangId> {
    let of = |change: &Change| match change {
        Change::GangStopping { gang, cause: StopCause::Moved { .. }, .. } => Some(*gang),
        _ => None,
    };
    out.changes.iter().filter_map(of).collect()
}

fn opening(watched: &Watched, job: Option<u64>) -> Result<Opening, String> {
    match watched.engine.what_if(&Question::Defragmented(job.map(id))) {
        Answer::WouldOpen(opening) => Ok(*opening),
        Answer::OpensNothing { why } => Err(why),
        other => unreachable!("{other:?}"),
    }
}

fn automatic(stays_ms: u64) -> Input {
    let defragmentation = Defragmentation { is_automatic: true, stays_ms, ..Defragmentation::default() };
    Input::SettingsConfigured { settings: Box::new(Settings { defragmentation, ..Settings::default() }) }
}

#[test]
fn a_gang_moves_and_a_whole_rack_opens() {
    let mut watched = halves();
    watched.submit(whole_rack(5));
    assert_eq!(watched.phase(5), "pending");
    let shown = opening(&watched, None).unwrap();
    assert_eq!((shown.gang, shown.moves.len()), (id(5), 1));
    assert_eq!(watched.phase(1), "running", "a question moves nobody");

    let out = ask(&mut watched, 5);
    assert_eq!(moved(&out), [shown.moves[0].gang]);
    let (mover, stayer) = if moved(&out) == [id(1)] { (1, 3) } else { (3, 1) };
    // Nobody else gets the places that are kept, neither who waits nor who comes, nor after a restart.
    watched.restart();
    watched.submit(one_node(6).priority(1_000));
    assert_eq!(
        (watched.phase(mover), watched.phase(5), watched.phase(6)),
        ("stopping", "pending", "pending")
    );
    watched.exit(mover, [0]);
    assert_eq!((watched.phase(mover), watched.phase(5)), ("starting", "starting"));
    let rack = nodes(&watched, 5)[0][..1].to_owned();
    assert!(nodes(&watched, 5).iter().all(|node| node.starts_with(&rack)));
    assert_eq!(nodes(&watched, mover), [shown.moves[0].to.slots[0].node.to_string()]);
    assert_eq!((watched.phase(stayer), watched.record(id(mover)).failures), ("running", 0));
    assert_eq!(watched.record(id(mover)).evictions, 0, "it was not preempted");
}

#[test]
fn the_cost_is_a_restart_and_the_work_that_is_not_saved() {
    let two_minutes_of_4 = 4 * 2 * MINUTE_MS;
    let told_ahead = |id| one_node(id).advisory(10, MINUTE_MS);
    let mut watched = halves_of(told_ahead);
    watched.submit(whole_rack(5));
    assert_eq!(opening(&watched, Some(5)).unwrap().moves[0].lost_device_ms, two_minutes_of_4);

    let mut watched = halves();
    watched.submit(whole_rack(5));
    let at = watched.now;
    watched.step(&[Input::GangCheckpointed { gang: id(3), at }]);
    watched.advance(MINUTE_MS);
    let shown = opening(&watched, Some(5)).unwrap();
    // Job 1 would lose more than twenty minutes of work.
    assert_eq!(
        (shown.moves[0].gang, shown.moves[0].lost_device_ms),
        (id(3), two_minutes_of_4 + 4 * MINUTE_MS)
    );
}

/// Those who did not agree to it stay, whatever would be gained.
#[test]
fn only_gangs_that_may_move_do() {
    type Case = (&'static str, fn(u64) -> JobBuilder);
    let cases: [Case; 5] = [
        ("is to start by a time", |id| one_node(id).deadline(HOUR_MS)),
        ("is of an array with a limit", |id| one_node(id).array(1, Some(1))),
        ("did not say so", |id| job(id, gang(1).devices(4)).time_limit(100 * HOUR_MS)),
        ("is pinned", |id| one_node(id).pinned()),
        ("has just begun, by its class", |id| one_node(id).class("serving").preempt(PreemptMode::Requeue)),
    ];
    for (what, like) in cases {
        let mut watched = halves_of(like);
        if what.starts_with("has") {
            watched = racks(&["a", "b"]);
            (1..=4).for_each(|number| {
                watched.submit(like(number));
                watched.run(number);
            });
            watched.exit(2, [0]);
            watched.exit(4, [0]);
        }
        watched.submit(whole_rack(5));
        let out = ask(&mut watched, 5);
        let why = match what.starts_with("has") {
            true => "no job that may move has run for long enough; the first has in 10m",
            false => "no running job says that it may move",
        };
        assert_eq!(refusal(&out), Some(why), "{what}");
        assert_eq!(moved(&out), [], "{what}");
    }
    let mut watched = halves();
    watched.step(&[
        Input::GangProtected { gang: id(1), is_protected: true },
        Input::GangProtected { gang: id(3), is_protected: true },
    ]);
    watched.submit(whole_rack(5));
    assert!(refusal(&ask(&mut watched, 5)).is_some());
}

#[test]
fn nothing_moves_without_a_reason() {
    let mut watched = halves();
    assert_eq!(opening(&watched, None).unwrap_err(), "no job waits for room");
    assert_eq!(opening(&watched, Some(9)).unwrap_err(), "no such gang");
    assert_eq!(opening(&watched, Some(1)).unwrap_err(), "it is not pending");
    watched.submit(whole_rack(5).held());
    assert_eq!(opening(&watched, Some(5)).unwrap_err(), "it waits for something else than room");
    // More than the cluster has, and more than is free.
    watched.submit(job(6, gang(4).devices(4)));
    let why = opening(&watched, Some(6)).unwrap_err();
    assert_eq!(why, "jobs that may move leave no place that is large and near enough");
}

/// A gang of a rack moves as a whole to another rack, or stays.
#[test]
fn nobody_moves_farther_apart_or_to_slower_devices() {
    let mut watched = racks(&["a", "b", "c"]);
    watched.submit(job(1, gang(2).devices(2).per_node(1)).may_move().time_limit(100 * HOUR_MS));
    watched.run(1);
    assert_eq!(nodes(&watched, 1), ["a-0", "a-1"]);
    watched.submit(job(2, gang(1).devices(4)).time_limit(100 * HOUR_MS));
    watched.run(2);
    watched.submit(job(3, gang(1).devices(4)).time_limit(100 * HOUR_MS));
    watched.run(3);
    let others = [nodes(&watched, 2), nodes(&watched, 3)].concat();
    watched.advance(20 * MINUTE_MS);
    watched.submit(whole_rack(5));
    if others.iter().any(|node| node.starts_with('b')) && others.iter().any(|node| node.starts_with('c')) {
        let why = opening(&watched, Some(5)).unwrap_err();
        assert_eq!(why, "jobs that may move find no place that is as near and as fast");
    } else {
        // The last rack is free.
        assert_eq!(watched.phase(5), "starting");
    }
}

#[test]
fn a_gang_that_is_cancelled_while_it_moves_leaves_its_new_place() {
    let mut watched = halves();
    watched.submit(whole_rack(5));
    let mover = moved(&ask(&mut watched, 5))[0];
    watched.submit(one_node(6));
    watched.step(&[Input::CancelRequested { job: mover.job, by: "user".into() }]);
    assert_eq!(watched.phase(6), "starting", "what was kept for it is free");
    watched.exit(mover.job.0, [0]);
    assert_eq!(watched.phase(5), "starting");
}

/// The place that was kept is gone: the gang waits as any other, and the one for which it moved starts all the same.
#[test]
fn a_new_place_that_fails_is_given_up() {
    let mut watched = halves();
    watched.submit(whole_rack(5));
    let to = opening(&watched, Some(5)).unwrap().moves[0].to.slots[0].node.clone();
    let mover = moved(&ask(&mut watched, 5))[0];
    watched.step(&[Input::NodeCordoned { node: to }]);
    watched.exit(mover.job.0, [0]);
    assert_eq!((watched.phase(5), watched.phase(mover.job.0)), ("starting", "pending"));
    assert!(watched.record(mover).reserved.as_ref().is_none_or(|reserved| !reserved.evicts));
}

#[test]
fn a_job_that_is_held_while_it_moves_keeps_no_place() {
    let mut watched = halves();
    watched.submit(whole_rack(5));
    let mover = moved(&ask(&mut watched, 5))[0];
    watched.step(&[Input::JobHeld { job: mover.job, by: "user".into() }]);
    watched.exit(mover.job.0, [0]);
    assert_eq!((watched.phase(mover.job.0), watched.phase(5)), ("pending", "starting"));
    watched.submit(one_node(6));
    assert_eq!(watched.phase(6), "starting");
}

/// Without a request, gangs move if the wait costs more than they lose: 8 GPUs that wait, 4 that lose two minutes.
#[test]
fn moves_that_pay_happen_by_themselves() {
    let told_ahead = |id| one_node(id).advisory(10, MINUTE_MS).time_limit(HOUR_MS);
    let mut watched = halves_of(told_ahead);
    watched.submit(whole_rack(5));
    watched.advance(10 * MINUTE_MS);
    assert_eq!((watched.phase(1), watched.phase(3)), ("running", "running"), "on request only");
    watched.step(&[automatic(10 * MINUTE_MS)]);
    watched.advance(MINUTE_MS);
    let moving = [1, 3].into_iter().filter(|job| watched.phase(*job) == "stopping").count();
    assert_eq!(moving, 1);
}

#[test]
fn a_gang_that_began_a_while_ago_stays_without_a_request() {
    let mut watched = halves_of(|id| one_node(id).advisory(10, MINUTE_MS));
    watched.step(&[automatic(2 * HOUR_MS)]);
    watched.submit(whole_rack(5));
    watched.advance(HOUR_MS);
    assert_eq!((watched.phase(1), watched.phase(3)), ("running", "running"));
    watched.advance(HOUR_MS);
    assert!(watched.phase(1) == "stopping" || watched.phase(3) == "stopping");
}

/// As long as it has waited is how long it may wait, if nobody knows better.
#[test]
fn moves_that_cost_more_than_the_wait_do_not_happen() {
    let endless = |id| job(id, gang(1).devices(4)).may_move().advisory(10, MINUTE_MS);
    let mut watched = halves_of(endless);
    watched.step(&[automatic(0)]);
    watched.submit(whole_rack(5));
    watched.advance(MINUTE_MS);
    assert_eq!((watched.phase(1), watched.phase(3)), ("running", "running"), "8 x 1 min against 4 x 2 min");
    watched.advance(MINUTE_MS);
    assert!(watched.phase(1) == "stopping" || watched.phase(3) == "stopping");
}

#[test]
fn no_more_gangs_move_than_settings_allow() {
    let mut watched = halves();
    let defragmentation = Defragmentation { gangs_max: 0, ..Defragmentation::default() };
    let settings = Settings { defragmentation, ..Settings::default() };
    watched.step(&[Input::SettingsConfigured { settings: Box::new(settings) }]);
    watched.submit(whole_rack(5));
    assert_eq!(
        opening(&watched, Some(5)).unwrap_err(),
        "1 jobs would have to move, and the settings allow 0"
    );
}

/// A part of a node moves to what is free of another.
#[test]
fn parts_of_a_node_move_too() {
    let mut watched = racks(&["a", "b"]);
    let half = |id| job(id, gang(1).devices(2)).may_move().time_limit(100 * HOUR_MS);
    for number in 1..=8 {
        watched.submit(half(number));
        watched.run(number);
    }
    for gone in [2, 4, 6, 8] {
        watched.exit(gone, [0]);
    }
    watched.advance(20 * MINUTE_MS);
    watched.submit(job(9, gang(1).devices(4).required("node")).time_limit(HOUR_MS));
    let out = ask(&mut watched, 9);
    assert_eq!(moved(&out).len(), 1, "{:?}", refusal(&out));
    let mover = moved(&out)[0];
    watched.exit(mover.job.0, [0]);
    assert_eq!((watched.phase(9), watched.phase(mover.job.0)), ("starting", "starting"));
    let shared = nodes(&watched, mover.job.0)[0].clone();
    assert_ne!(nodes(&watched, 9)[0], shared);
    assert!([1, 3, 5, 7].iter().any(|job| id(*job) != mover && nodes(&watched, *job) == [shared.clone()]));
    let name = NodeName::new(&shared).unwrap();
    assert_eq!(watched.engine.free(&name).unwrap().devices.count(), 0);
}

/// A gang that moves comes back. Its queue had room for another gang while it stopped, and then none for it.
#[test]
fn the_queue_of_a_gang_that_moves_keeps_its_room() {
    let mut watched = racks(&["a", "b", "c"]);
    watched.step(&[queue("q").limit("gpus", 8).observed(), queue("r").observed()]);
    let on = |id, name, of: &str| job(id, gang(1).devices(4).on([name])).queue(of).time_limit(100 * HOUR_MS);
    watched.submit(one_node(1).queue("q"));
    watched.submit(on(2, "b-0", "r"));
    watched.submit(on(3, "c-0", "q").class("opportunistic"));
    (1..=3).for_each(|number| watched.run(number));
    watched.advance(20 * MINUTE_MS);
    watched.submit(whole_rack(5).queue("r").class("opportunistic"));
    let out = ask(&mut watched, 5);
    assert_eq!(moved(&out), [id(1)], "{:?}", refusal(&out));
    watched.submit(job(6, gang(2).devices(4)).queue("q").class("serving"));
    assert_eq!((watched.phase(3), watched.phase(6)), ("running", "pending"), "job 1 has half of the queue");
    watched.exit(1, [0]);
    assert_eq!((watched.phase(1), watched.phase(5)), ("starting", "starting"));
}

/// The gang that waits had a time promised, and others wait beside it: a rebuilt engine counts the same.
#[test]
fn a_gang_whose_place_opens_waits_in_its_queue_as_before() {
    let mut watched = halves();
    watched.step(&[queue("q").observed(), queue("r").observed()]);
    watched.submit(whole_rack(5).queue("q"));
    assert!(watched.record(id(5)).reserved.is_some(), "its start is promised");
    watched.submit(whole_rack(6).queue("r"));
    watched.submit(whole_rack(7).queue("r"));
    let out = ask(&mut watched, 5);
    assert_eq!(moved(&out).len(), 1, "{:?}", refusal(&out));
    let mover = moved(&out)[0];
    let before = watched.engine.queues();
    watched.restart();
    assert_eq!(watched.engine.queues(), before);
    watched.exit(mover.job.0, [0]);
    assert_eq!(watched.phase(5), "starting");
    let started = watched.engine.queues();
    watched.restart();
    assert_eq!(watched.engine.queues(), started);
}

/// What was promised to the gang whose place opens elsewhere is free for others.
#[test]
fn the_place_that_a_gang_had_reserved_before_is_free_again() {
    let mut watched = racks(&["a", "b", "c"]);
    let on = |id, name, hours| job(id, gang(1).devices(4).on([name])).time_limit(hours * HOUR_MS);
    for held in [on(1, "a-0", 10), on(2, "a-1", 10), on(3, "c-0", 95), on(4, "c-1", 95)] {
        watched.submit(held);
    }
    let elsewhere = job(7, gang(1).devices(4).avoid(["a-1"])).may_move().time_limit(100 * HOUR_MS);
    watched.submit(elsewhere);
    for number in [1, 2, 3, 4, 7] {
        watched.run(number);
    }
    watched.exit(2, [0]);
    watched.exit(4, [0]);
    watched.advance(20 * MINUTE_MS);
    watched.submit(whole_rack(5));
    assert_eq!(
        (nodes(&watched, 7), nodes(&watched, 5)),
        (vec!["b-0".into()], vec!["a-0".into(), "a-1".into()])
    );
    watched.submit(on(6, "a-1", 100));
    assert_eq!(watched.phase(6), "pending", "it would delay job 5");
    assert_eq!(moved(&ask(&mut watched, 5)), [id(7)]);
    assert_eq!(nodes(&watched, 5), ["b-0", "b-1"]);
    watched.advance(1);
    assert_eq!(watched.phase(6), "starting", "{:?}", watched.engine.explain(id(6)));
}

/// A gang that lost hardware, and spare nodes, are not put where another gang is about to go on.
#[test]
fn a_place_that_is_kept_is_no_spare_node() {
    let mut watched = halves();
    watched.submit(whole_rack(5));
    let to = opening(&watched, Some(5)).unwrap().moves[0].to.slots[0].node.clone();
    let mover = moved(&ask(&mut watched, 5))[0];
    let spares = Some(Spares { level: None, nodes: 4, is_filled: false });
    watched.step(&[Input::SettingsConfigured {
        settings: Box::new(Settings { spares, ..Settings::default() }),
    }]);
    assert_eq!(watched.engine.node(&to).unwrap().spare, Spare::No);
    watched.exit(mover.job.0, [0]);
    assert_eq!(
        (watched.phase(mover.job.0), nodes(&watched, mover.job.0)),
        ("starting", vec![to.to_string()])
    );
}

/// Members that are gone leave their part of the queue to nobody else.
#[test]
fn a_gang_that_ends_member_by_member_keeps_its_room() {
    let mut watched = racks(&["a", "b"]);
    watched.step(&[queue("q").limit("gpus", 4).observed(), queue("r").observed()]);
    let four = |id| {
        job(id, gang(4).devices(1)).may_move().queue("q").time_limit(100 * HOUR_MS).advisory(10, MINUTE_MS)
    };
    watched.submit(four(1));
    watched.submit(job(2, gang(1).devices(4).on(["b-0"])).queue("r").time_limit(100 * HOUR_MS));
    (1..=2).for_each(|number| watched.run(number));
    watched.advance(20 * MINUTE_MS);
    watched.submit(whole_rack(5).queue("r"));
    assert_eq!(moved(&ask(&mut watched, 5)), [id(1)]);
    watched.submit(job(6, gang(1).devices(1)).queue("q"));
    watched.exit(1, [0, 1, 2]);
    assert_eq!(watched.phase(6), "pending", "the queue has no room");
    watched.restart();
    watched.exit(1, [3]);
    assert_eq!((watched.phase(1), watched.phase(5), watched.phase(6)), ("starting", "starting", "pending"));
}

/// Nobody knows when it starts again, and others need not wait for that.
#[test]
fn a_gang_that_hangs_leaves_the_place_that_is_kept_for_it() {
    let mut watched = halves();
    watched.submit(whole_rack(5));
    let mover = moved(&ask(&mut watched, 5))[0];
    watched.submit(one_node(6));
    assert_eq!(watched.phase(6), "pending");
    // SIGTERM, SIGKILL, and SIGKILL again.
    watched.advance(2 * MINUTE_MS);
    watched.advance(20_000);
    assert_eq!(watched.phase(6), "starting");
    watched.exit(mover.job.0, [0]);
    assert_eq!((watched.phase(5), watched.phase(mover.job.0)), ("starting", "pending"));
}

/// A world that does not list a job any more: the engine keeps nothing for it.
#[test]
fn a_job_that_is_forgotten_while_it_moves_keeps_nothing() {
    let mut watched = halves();
    watched.submit(whole_rack(5));
    let mover = moved(&ask(&mut watched, 5))[0];
    watched.submit(one_node(6));
    watched.step(&[Input::CancelRequested { job: mover.job, by: "user".into() }]);
    watched.exit(mover.job.0, [0]);
    watched.step(&[Input::JobForgotten { job: mover.job }]);
    assert_eq!((watched.phase(5), watched.phase(6)), ("starting", "starting"));
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

impl Random {
    /// Something happens while gangs move: members end one by one, nodes close and open, jobs are cancelled or held, time passes,
    /// and the engine is built anew.
    fn trouble(&mut self, watched: &mut Watched, last: u64) {
        let job = JobId(1 + self.below(last));
        let by = || "user".to_owned();
        match self.below(8) {
            0 => drop(watched.restart()),
            1 => drop(watched.step(&[Input::CancelRequested { job, by: by() }])),
            2 => drop(watched.step(&[Input::JobHeld { job, by: by() }])),
            3 => drop(watched.step(&[Input::JobReleased { job, by: by() }])),
            4 => drop(watched.advance(self.below(10) * 15_000)),
            at @ 5..7 => {
                let node =
                    NodeName::new(["a-0", "a-1", "b-0", "c-1"][usize::try_from(self.below(4)).unwrap()]);
                let node = node.unwrap();
                drop(watched.step(&[if at == 5 {
                    Input::NodeCordoned { node }
                } else {
                    Input::NodeUncordoned { node }
                }]));
            }
            _ if watched.phase(job.0) == "stopping" => drop(watched.exit(job.0, [0])),
            _ => {}
        }
    }
}

/// What `halves` does by hand, at random. The checker looks at each step, as in all tests here.
#[test]
fn whatever_happens_meanwhile_moves_keep_their_promises() {
    let (mut opened, mut done) = (0, 0);
    for seed in 0..60 {
        let (mut random, mut watched, mut last) = (Random(seed), racks(&["a", "b", "c"]), 0);
        for _ in 0..4 {
            while (1..=last).all(|number| watched.phase(number) != "pending") && last < 60 {
                last += 1;
                watched.submit(match random.below(3) {
                    0 => job(last, gang(2).devices(2)).may_move().time_limit(100 * HOUR_MS),
                    1 => job(last, gang(2).devices(1)).time_limit(100 * HOUR_MS),
                    _ => one_node(last),
                });
                if watched.phase(last) == "starting" {
                    watched.run(last);
                }
            }
            let ends = |number: &u64| watched.phase(*number) == "running" && random.below(2) == 0;
            let ending: Vec<u64> = (1..=last).filter(ends).collect();
            for number in ending {
                let ranks = u32::try_from(watched.members(number).len()).unwrap();
                watched.exit(number, 0..ranks);
            }
            for number in 1..=last {
                match watched.phase(number) {
                    "starting" => watched.run(number),
                    "pending" => drop(
                        watched.step(&[Input::CancelRequested { job: JobId(number), by: "user".into() }]),
                    ),
                    _ => {}
                }
            }
            watched.advance(20 * MINUTE_MS);
            last += 1;
            watched.submit(whole_rack(last));
            if let Ok(opening) = opening(&watched, None) {
                opened += 1;
                let moves: Vec<GangId> = opening.moves.iter().map(|one| one.gang).collect();
                assert_eq!(moved(&ask(&mut watched, opening.gang.job.0)), moves, "as the question says");
                (0..random.below(6)).for_each(|_| random.trouble(&mut watched, last));
            }
            for number in 1..=last {
                if watched.phase(number) == "stopping" {
                    let ranks = u32::try_from(watched.members(number).len()).unwrap();
                    watched.exit(number, 0..ranks);
                }
            }
            for number in 1..=last {
                if watched.phase(number) == "starting" {
                    watched.run(number);
                    done += u32::from(watched.record(id(number)).attempt == 2);
                }
            }
        }
    }
    assert!(opened > 20 && done > 20, "{opened} places were opened, {done} gangs went on elsewhere");
}
