//! Windows of the calendar, nodes that are kept for a team, and nodes that are reclaimed.
#![allow(clippy::unwrap_used)]

use phalanx_model::later::{Calendar, SpotNotice};
use phalanx_model::{
    Answer, Change, Exit, GangId, Input, Job, JobId, MemberId, MemberState, Node, NodeName, Phase,
    PreemptMode, Question, Queue, QueueName, Reason, Signal, Spot, Timestamp, Unblock,
};
use phalanx_testkit::{Watched, gang, job, levels, node};

const HOUR: u64 = 3_600_000;

fn name(text: &str) -> NodeName {
    NodeName::new(text).unwrap()
}

fn queue(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

fn nodes(names: &[&str]) -> Vec<Node> {
    names.iter().map(|name| node(name).gpus(8).build()).collect()
}

fn world(names: &[&str]) -> Watched {
    Watched::with_nodes(&levels(&["cluster"]), &nodes(names))
}

fn window(of: &str, begins_at: u64, ends_at: u64) -> Input {
    let (begins_at, ends_at) = (Timestamp(begins_at), Timestamp(ends_at));
    Input::CalendarObserved {
        calendar: Calendar { node: name(of), begins_at, ends_at, held_for: None, is_declared: false },
    }
}

fn kept(of: &str, begins_at: u64, ends_at: u64, team: &str) -> Input {
    let (begins_at, ends_at) = (Timestamp(begins_at), Timestamp(ends_at));
    let held_for = Some(queue(team));
    Input::CalendarObserved {
        calendar: Calendar { node: name(of), begins_at, ends_at, held_for, is_declared: false },
    }
}

fn submit(job: Job) -> Input {
    Input::JobSubmitted { job: Box::new(job) }
}

/// A job that takes a whole node, with an optional time limit.
fn whole(id: u64, hours: Option<u64>) -> phalanx_testkit::JobBuilder {
    let whole = job(id, gang(8).devices(1).build());
    match hours {
        Some(hours) => whole.time_limit(hours * HOUR),
        None => whole,
    }
}

fn of(id: u64) -> GangId {
    JobId(id).gang(0)
}

fn node_of(world: &Watched, id: u64) -> Option<String> {
    let record = world.record(of(id));
    let slot = record.placement.as_ref().filter(|_| record.holds_capacity())?.slots.first()?;
    Some(slot.node.to_string())
}

fn reason(world: &Watched, id: u64) -> Reason {
    world.engine.reason(of(id)).unwrap()
}

#[test]
fn nothing_long_is_started_across_a_window_and_short_work_is() {
    let mut world = world(&["a"]);
    world.step(&[window("a", 4 * HOUR, 6 * HOUR)]);
    world.step(&[submit(whole(1, Some(5)).build()), submit(whole(2, None).build())]);
    for id in [1, 2] {
        let window =
            Reason::Window { nodes: 1, begins_at: Timestamp(4 * HOUR), ends_at: Timestamp(6 * HOUR) };
        assert_eq!(reason(&world, id), window);
        let report = world.engine.explain(of(id)).unwrap();
        assert!(report.unblock.contains(&Unblock::At { at: Timestamp(6 * HOUR) }), "{report:?}");
    }
    // Job 1 is promised the node when the window is over, and the short job bypasses it.
    assert_eq!(world.record(of(1)).reserved.as_ref().unwrap().at, Some(Timestamp(6 * HOUR)));
    world.step(&[submit(whole(3, Some(2)).build())]);
    assert_eq!(node_of(&world, 3).unwrap(), "a");
    world.run(3);
    world.end(3, &Exit::code(1));
    world.advance(6 * HOUR - world.now.0 - 1);
    assert_eq!(node_of(&world, 1), None);
    world.advance(1);
    assert_eq!(node_of(&world, 1).unwrap(), "a", "the window is over");
}

/// A drain by a time is a window without a known end.
#[test]
fn a_window_without_an_end_lasts_until_the_node_is_uncordoned() {
    let mut world = world(&["a"]);
    world.step(&[window("a", HOUR, u64::MAX), submit(whole(1, None).build())]);
    let waits = Reason::Window { nodes: 1, begins_at: Timestamp(HOUR), ends_at: Timestamp::MAX };
    assert_eq!(reason(&world, 1), waits);
    let report = world.engine.explain(of(1)).unwrap();
    assert_eq!(report.estimated_start, None);
    let [Unblock::Uncordon { nodes }, Unblock::ShorterLimit { limit_ms }] = report.unblock.as_slice() else {
        panic!("{report:?}")
    };
    assert_eq!(nodes, &[name("a")]);
    assert!((HOUR / 2..HOUR).contains(limit_ms), "{limit_ms}");
    assert!(world.wake.0.is_none_or(|at| at < Timestamp::MAX), "{:?}", world.wake);
    // A job that ends before goes there; a job that runs without an end is asked to leave in time.
    let short = whole(2, Some(0)).time_limit(HOUR / 4).build();
    world.step(&[submit(short)]);
    assert_eq!(node_of(&world, 2).unwrap(), "a");
    world.run(2);
    world.end(2, &Exit::code(1));
    world.advance(2 * HOUR);
    world.restart();
    assert_eq!(reason(&world, 1), waits);
    assert_eq!(world.engine.windows().count(), 1);
    world.step(&[Input::NodeUncordoned { node: name("a") }]);
    assert_eq!(node_of(&world, 1).unwrap(), "a");
    assert_eq!(world.engine.windows().count(), 0);
}

#[test]
fn a_restart_in_the_middle_changes_nothing() {
    let mut world = world(&["a", "b"]);
    world.step(&[
        window("a", HOUR, 2 * HOUR),
        kept("b", HOUR, 3 * HOUR, "team"),
        submit(whole(1, None).build()),
    ]);
    world.restart();
    assert!(matches!(reason(&world, 1), Reason::Window { nodes: 2, .. }));
    world.advance(HOUR + HOUR / 2);
    world.restart();
    assert_eq!(node_of(&world, 1), None);
    world.advance(HOUR / 2);
    assert_eq!(node_of(&world, 1).unwrap(), "a");
    world.run(1);
    world.restart();
    assert_eq!(node_of(&world, 1).unwrap(), "a");
}

#[test]
fn who_runs_is_moved_in_time_and_resumes_elsewhere() {
    let mut world = world(&["a", "b"]);
    let runs = whole(1, None).advisory(10, 60_000).grace(30_000).build();
    world.step(&[submit(runs)]);
    assert_eq!(node_of(&world, 1).unwrap(), "a");
    world.run(1);
    world.step(&[window("a", HOUR, 2 * HOUR)]);
    // 90 seconds before the window, and not sooner.
    world.advance(HOUR - 90_000 - world.now.0 - 1);
    assert!(matches!(world.record(of(1)).phase, Phase::Running { .. }));
    world.restart();
    let out = world.advance(1);
    let advised = |effect: &phalanx_model::Effect| {
        matches!(effect.order, phalanx_model::Order::SignalMembers { signal: Signal::Advisory(10), .. })
    };
    assert!(out.effects.iter().any(advised), "{out:?}");
    assert!(out.changes.iter().any(|change| matches!(change, Change::GangStopping { .. })));
    world.advance(60_000);
    let out = world.advance(29_999);
    let kills =
        |effect: &phalanx_model::Effect| matches!(effect.order, phalanx_model::Order::KillMembers { .. });
    assert!(!out.effects.iter().any(kills), "it has its grace");
    world.end(1, &Exit::code(1));
    assert_eq!(node_of(&world, 1).unwrap(), "b");
    assert_eq!(world.record(of(1)).failures, 0);
}

#[test]
fn who_ends_before_a_window_is_left_alone() {
    let mut world = world(&["a", "b"]);
    world.step(&[submit(whole(1, Some(1)).build())]);
    world.run(1);
    world.step(&[window("a", 2 * HOUR, 3 * HOUR)]);
    let out = world.advance(HOUR - 1);
    assert!(!out.changes.iter().any(|change| matches!(change, Change::GangStopping { .. })), "{out:?}");
}

#[test]
fn a_block_is_for_its_team_alone() {
    let mut world = world(&["a", "b"]);
    let below = Queue { parent: Some(queue("team")), ..Queue::named(queue("below")) };
    let told = [Queue::named(queue("team")), below, Queue::named(queue("other"))];
    let told: Vec<Input> =
        told.into_iter().map(|queue| Input::QueueObserved { queue: Box::new(queue) }).collect();
    world.step(&told);
    world.step(&[submit(whole(1, None).queue("other").build())]);
    world.run(1);
    world.step(&[kept("a", HOUR, 9 * HOUR, "team"), kept("b", HOUR, 9 * HOUR, "team")]);
    world.step(&[submit(whole(2, None).queue("other").build())]);
    assert!(matches!(reason(&world, 2), Reason::Window { .. }));
    world.step(&[
        submit(whole(3, Some(7)).queue("below").build()),
        submit(whole(4, Some(7)).queue("below").build()),
    ]);
    assert_eq!(node_of(&world, 3).unwrap(), "b", "its own block is no window for it");
    world.run(3);
    // Other gangs there make room for the team.
    world.advance(HOUR - world.now.0);
    assert!(matches!(world.record(of(1)).phase, Phase::Stopping { .. }));
    assert!(matches!(world.record(of(3)).phase, Phase::Running { .. }));
    world.end(1, &Exit::code(1));
    assert_eq!(node_of(&world, 4).unwrap(), "a");
    assert_eq!(node_of(&world, 1), None);
    world.restart();
    assert_eq!(node_of(&world, 2), None);
}

#[test]
fn windows_are_moved_called_off_and_bounded() {
    let mut world = world(&["a"]);
    world.step(&[window("a", HOUR, 9 * HOUR), submit(whole(1, None).build())]);
    assert_eq!(node_of(&world, 1), None);
    world.step(&[window("a", HOUR, 2 * HOUR)]);
    assert!(matches!(reason(&world, 1), Reason::Window { ends_at: Timestamp(at), .. } if at == 2 * HOUR));
    let out = world.step(&[window("a", 5 * HOUR, 4 * HOUR)]);
    assert!(matches!(out.changes.as_slice(), [Change::InputRejected { .. }]), "{out:?}");
    world.step(&[window("a", HOUR, HOUR)]);
    assert_eq!(node_of(&world, 1).unwrap(), "a", "it was called off");
}

#[test]
fn a_window_that_is_replaced_by_a_longer_one_moves_a_reservation() {
    let mut world = world(&["a"]);
    world.step(&[window("a", HOUR, 2 * HOUR), submit(whole(1, None).build())]);
    assert_eq!(world.record(of(1)).reserved.as_ref().unwrap().at, Some(Timestamp(2 * HOUR)));
    world.step(&[window("a", HOUR, 3 * HOUR)]);
    assert_eq!(world.record(of(1)).reserved.as_ref().unwrap().at, Some(Timestamp(3 * HOUR)));
}

#[test]
fn only_takers_go_to_spot_nodes() {
    let spot = Some(Spot { price_micro_per_device_hour: 2_000_000, notice_ms: 30_000 });
    let mut all = nodes(&["a", "b"]);
    all[0].spot = spot;
    let mut world = Watched::with_nodes(&levels(&["cluster"]), &all);
    let mut taker = whole(3, None).build();
    taker.turn.takes_spot = true;
    let helpers = |id| job(id, gang(4).cpu_milli(1_000).build());
    world.step(&[submit(whole(1, None).build()), submit(whole(2, None).build()), submit(helpers(4).build())]);
    assert_eq!(node_of(&world, 1).unwrap(), "b");
    assert_eq!(node_of(&world, 2), None);
    assert_eq!(node_of(&world, 4).unwrap(), "b", "nor does what needs no device");
    world.step(&[submit(taker)]);
    assert_eq!(node_of(&world, 3).unwrap(), "a");
    world.restart();
    let out = world.step(&[submit(job(5, gang(16).devices(1).build()).build())]);
    assert!(
        matches!(out.changes.as_slice(), [Change::JobRejected { .. }]),
        "it never fits without them: {out:?}"
    );
    let mut both = job(6, gang(16).devices(1).build()).build();
    both.turn.takes_spot = true;
    let asked = world.engine.what_if(&Question::Submitted(Box::new(both)));
    assert!(matches!(asked, Answer::WouldBe(_)), "a dry run says what a submission would: {asked:?}");
}

#[test]
fn a_notice_moves_who_runs_with_what_is_left_of_the_grace() {
    let mut world = world(&["a", "b", "c"]);
    world.step(&[submit(whole(1, None).advisory(10, 60_000).grace(30_000).build())]);
    world.run(1);
    let ends_at = world.now.plus(20_000);
    world.step(&[Input::SpotNoticed { notice: SpotNotice { node: name("a"), ends_at } }]);
    assert!(matches!(world.record(of(1)).phase, Phase::Stopping { .. }));
    // No other gang goes there, not even after an observer that knows nothing of the notice listed the node again. One node is
    // kept for the gang that moves.
    world.step(&[Input::NodeObserved { node: Box::new(nodes(&["a"]).remove(0)) }]);
    world.step(&[submit(whole(2, None).build()), submit(whole(3, None).build())]);
    assert_eq!((node_of(&world, 2).unwrap(), node_of(&world, 3)), ("c".into(), None));
    world.restart();
    let out = world.advance(20_000);
    let kills =
        |effect: &phalanx_model::Effect| matches!(effect.order, phalanx_model::Order::KillMembers { .. });
    assert!(out.effects.iter().any(kills), "{out:?}");
    world.end(1, &Exit::code(1));
    assert_eq!((node_of(&world, 1).unwrap(), node_of(&world, 3)), ("b".into(), None));
    world.step(&[Input::NodeRemoved { node: name("a") }]);
    world.step(&[Input::NodeObserved { node: Box::new(nodes(&["a"]).remove(0)) }]);
    assert_eq!(node_of(&world, 3).unwrap(), "a", "it is there again");
}

/// The reported windows, and whether a start now respects them.
#[derive(Default)]
struct Told(Vec<Calendar>);

impl Told {
    /// The window that a gang on these nodes collides with.
    fn broken<'a>(
        &self,
        world: &Watched,
        id: GangId,
        now: Timestamp,
        until: Option<u64>,
        nodes: impl Iterator<Item = &'a NodeName>,
    ) {
        let (job, _) = world.engine.jobs().find(|(job, _)| job.id == id.job).unwrap();
        let nodes: Vec<&NodeName> = nodes.collect();
        for window in &self.0 {
            let is_ours = window.held_for.as_ref() == Some(&job.queue);
            let is_met = window.ends_at > now && until.is_none_or(|until| window.begins_at.0 < until);
            let is_there = nodes.contains(&&window.node);
            assert!(
                is_ours || !is_met || !is_there,
                "{id} is in the way of {window:?} at {now:?}\n{}",
                world.log()
            );
        }
    }
}

/// Random windows and work: no start crosses a window of another queue, and no other gang is there when a window
/// begins.
#[test]
fn no_start_crosses_a_window_and_nobody_is_there_when_it_begins() {
    for seed in 1..=16_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut below = |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % most
        };
        let names = ["a", "b", "c"];
        let mut world = world(&names);
        let queues = ["team", "other"].map(|name| Queue::named(queue(name)));
        let queues = queues.map(|queue| Input::QueueObserved { queue: Box::new(queue) });
        world.step(&queues);
        let mut told = Told::default();
        let mut next = 1;
        for _ in 0..60 {
            let now = world.now;
            let inputs = match below(11) {
                0..2 => {
                    let begins_at = now.plus(HOUR / 4 + below(4 * HOUR));
                    let is_open_ended = below(5) == 0;
                    let ends_at = begins_at.plus(1 + below(3 * HOUR));
                    let ends_at = if is_open_ended { Timestamp::MAX } else { ends_at };
                    let held_for = (below(2) == 0).then(|| queue("team"));
                    let at = usize::try_from(below(3)).unwrap();
                    let calendar =
                        Calendar { node: name(names[at]), begins_at, ends_at, held_for, is_declared: false };
                    told.0.push(calendar.clone());
                    vec![Input::CalendarObserved { calendar }]
                }
                2..6 => {
                    let size = u32::try_from(1 + below(16)).unwrap();
                    let mut drawn =
                        job(next, gang(size).devices(1).build()).grace(30_000).submitted_at(now.0);
                    // The engine evaluates victims again only from time to time; here windows alone move running gangs.
                    drawn = drawn.preempt(PreemptMode::Never);
                    next += 1;
                    if below(3) > 0 {
                        drawn = drawn.time_limit(1_000 + below(4 * HOUR));
                    }
                    vec![submit(drawn.queue(if below(3) == 0 { "team" } else { "other" }).build())]
                }
                6 => {
                    world.restart();
                    Vec::new()
                }
                10 => {
                    let node = name(names[usize::try_from(below(3)).unwrap()]);
                    told.0.retain(|window| window.node != node || !window.is_open_ended());
                    vec![Input::NodeUncordoned { node }]
                }
                7 => {
                    // A gang ends.
                    let held = world.records().into_iter().find(|record| record.holds_capacity());
                    let done = held.map(|record| members_of(&record)).into_iter().flatten();
                    done.map(|member| Input::MemberExited { member, exit: Exit::succeeded() }).collect()
                }
                _ => {
                    let until = now.plus(below(HOUR));
                    while let Some(at) = world.wake.0.filter(|at| *at <= until) {
                        world.now = at;
                        happen(&mut world, &told, &[]);
                    }
                    world.now = until;
                    Vec::new()
                }
            };
            happen(&mut world, &told, &inputs);
        }
    }
}

fn members_of(record: &phalanx_model::GangRecord) -> Vec<MemberId> {
    let member = |rank| MemberId { gang: record.id, attempt: record.attempt, rank };
    (0..).take(record.members.len()).map(member).collect()
}

/// A step; gangs that are asked to leave do so at once, started gangs run.
fn happen(world: &mut Watched, told: &Told, inputs: &[Input]) {
    let mut inputs = inputs.to_vec();
    loop {
        let out = world.step(&inputs);
        let now = world.now;
        for change in &out.changes {
            if let Change::GangPlaced { gang, placement, .. } = change {
                let (job, _) = world.engine.jobs().find(|(job, _)| job.id == gang.job).unwrap();
                let policy = &job.policy;
                let longest = |limit: u64| policy.start_deadline_ms + limit + policy.stop.grace_ms;
                let until = policy.time_limit_ms.map(|limit| now.0 + longest(limit));
                told.broken(world, *gang, now, until, placement.slots.iter().map(|slot| &slot.node));
            }
        }
        inputs.clear();
        for record in world.records() {
            let members = members_of(&record);
            match record.phase {
                Phase::Starting { .. } => {
                    let at_gate = record.members.iter().all(|member| member.state == MemberState::Ready);
                    inputs.extend(members.into_iter().map(|member| match at_gate {
                        true => Input::MemberReleased { member },
                        false => Input::MemberReady { member },
                    }));
                }
                Phase::Stopping { .. } => inputs.extend(
                    members.into_iter().map(|member| Input::MemberExited { member, exit: Exit::code(1) }),
                ),
                Phase::Running { .. } => {
                    let nodes = record.placement.iter().flat_map(|p| &p.slots).map(|slot| &slot.node);
                    told.broken(world, record.id, now, Some(now.0 + 1), nodes);
                }
                _ => {}
            }
        }
        if inputs.is_empty() {
            return;
        }
    }
}
