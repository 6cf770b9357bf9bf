//! Quotas, turns, evictions and promises: kept, nothing is said; broken, it is seen.

#![allow(clippy::unwrap_used)]

use phalanx_checker::{Checker, Violation};
use phalanx_model::{
    Change, ClassName, DeviceMask, DevicePart, Effect, EffectId, EndOf, Ending, Epoch, Exit, FailureClass,
    GangId, GangRecord, Input, Job, JobId, Leave, LevelName, MemberId, MemberRecord, MemberState, NodeName,
    Order, Outcome, Phase, Placement, PreemptMode, Preemption, PreemptionRule, QueueName, Reserved, Served,
    Settings, Slot, Spares, StopCause, Timestamp,
};
use phalanx_testkit::{JobBuilder, QueueBuilder, gang, job, levels, node, queue};

const MINUTE: u64 = 60_000;

fn id(job: u64) -> GangId {
    JobId(job).gang(0)
}

fn place(devices: u64) -> Placement {
    let slot = Slot { rank: 0, node: NodeName::new("a").unwrap(), devices: DeviceMask(devices), part: None };
    Placement { slots: vec![slot], level: LevelName::new("node").unwrap() }
}

fn submitted(job: JobBuilder) -> Input {
    Input::JobSubmitted { job: Box::new(job.build()) }
}

/// One rank with so many devices.
fn one(number: u64, devices: u32) -> JobBuilder {
    job(number, gang(1).devices(devices))
}

/// A checker of one node of eight devices, and what a step does to it.
struct Watch {
    checker: Checker,
    now: u64,
    seq: u64,
}

impl Watch {
    fn new(queues: Vec<QueueBuilder>) -> Self {
        let mut watch = Self { checker: Checker::new(), now: 1, seq: 0 };
        let mut facts = vec![
            Input::LevelsConfigured { levels: levels(&["cluster"]) },
            Input::NodeObserved { node: Box::new(node("a").gpus(8).build()) },
        ];
        facts.extend(queues.into_iter().map(QueueBuilder::observed));
        watch.tell(&facts);
        watch
    }

    fn step(&mut self, facts: &[Input], out: &Outcome) -> Vec<Violation> {
        self.checker.observe(Timestamp(self.now), facts, out)
    }

    fn tell(&mut self, facts: &[Input]) {
        assert_eq!(self.step(facts, &Outcome::default()), []);
    }

    fn say(&mut self, changes: Vec<Change>) -> Vec<Violation> {
        self.step(&[], &Outcome { changes, ..Outcome::default() })
    }

    fn start_on(&mut self, gang: GangId, attempt: u32, placement: Placement) -> Vec<Violation> {
        self.seq += 1;
        let effect = EffectId { epoch: Epoch(1), seq: self.seq };
        let change = Change::GangPlaced { gang, attempt, placement: placement.clone() };
        let order = Order::StartMembers { gang, attempt, placement, deadline: Timestamp(9) };
        let effects = vec![Effect { id: effect, order }];
        self.step(&[], &Outcome { effects, changes: vec![change], ..Outcome::default() })
    }

    fn start(&mut self, job: u64, attempt: u32, devices: u64) -> Vec<Violation> {
        self.start_on(id(job), attempt, place(devices))
    }

    /// Started, and running from now on.
    fn run(&mut self, job: u64, attempt: u32, devices: u64) {
        assert_eq!(self.start(job, attempt, devices), []);
        assert_eq!(self.say(vec![Change::GangRunning { gang: id(job), attempt }]), []);
    }

    fn exit(&mut self, job: u64, attempt: u32) {
        let member = MemberId { gang: id(job), attempt, rank: 0 };
        self.tell(&[Input::MemberExited { member, exit: Exit::code(0) }]);
    }

    /// A place is held for one, and another makes way for it.
    fn evict(&mut self, gang: u64, by: u64, rule: PreemptionRule) -> Vec<Violation> {
        let at = Timestamp(self.now);
        let reserved = Reserved { placement: place(0xff), at: None, evicts: true, made_at: at };
        let eviction = Preemption { by: id(by), rule, at, lost_device_ms: 0, grace_max_ms: None };
        let (gang, cause) = (id(gang), StopCause::Preempted(eviction));
        self.say(vec![
            Change::GangReserved { gang: id(by), reserved },
            Change::GangStopping { gang, attempt: 1, cause },
        ])
    }
}

fn of_class(class: &str, over: &str) -> PreemptionRule {
    PreemptionRule::Class { class: ClassName::new(class).unwrap(), over: ClassName::new(over).unwrap() }
}

fn of_guarantee(queue: &str, borrower: &str) -> PreemptionRule {
    let name = |text: &str| QueueName::new(text).unwrap();
    PreemptionRule::Guarantee { queue: name(queue), borrower: name(borrower) }
}

fn why(found: &[Violation]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn no_start_exceeds_a_limit_of_its_queue_or_of_one_above() {
    let tree = || {
        vec![
            queue("lab").limit("gpus", 6),
            queue("x").parent("lab").limit("cpus", 1),
            queue("y").parent("lab"),
        ]
    };
    let mut watch = Watch::new(tree());
    watch.tell(&[
        submitted(one(1, 4).queue("x")),
        submitted(one(2, 2).queue("y")),
        submitted(one(3, 1).queue("y")),
    ]);
    assert_eq!(watch.start(1, 1, 0x0f), []);
    assert_eq!(watch.start(2, 1, 0x30), []);
    assert_eq!(
        why(&watch.start(3, 1, 0x40)),
        "gang 3.0 was started, and queue lab uses 7 gpus of its limit of 6"
    );
    // CPUs are another thing, and a limit that is lowered is no fault of what needs none of it.
    watch.tell(&[
        submitted(job(4, gang(1).cpu_milli(1_500)).queue("x")),
        submitted(job(5, gang(1)).queue("x")),
    ]);
    assert_eq!(watch.start(5, 1, 0), []);
    assert!(why(&watch.start(4, 1, 0)).contains("queue x uses 1.5 cpus of its limit of 1"));
    // What ended is not counted, nor what a queue refused.
    let mut watch = Watch::new(tree());
    watch.tell(&[submitted(one(1, 6).queue("x")), submitted(one(2, 6).queue("y"))]);
    watch.run(1, 1, 0x3f);
    watch.exit(1, 1);
    let refused = Change::InputRejected { what: "queue lab".into(), why: "is a circle".into() };
    let less = queue("lab").limit("gpus", 1).observed();
    assert_eq!(watch.step(&[less], &Outcome { changes: vec![refused], ..Outcome::default() }), []);
    assert_eq!(watch.start(2, 1, 0x3f), []);
}

#[test]
fn devices_count_by_their_worth_and_parts_by_their_size() {
    let worth = Settings { worth: [("V100".to_owned(), 500)].into(), ..Settings::default() };
    let mut watch = Watch::new(vec![queue("x").limit("gpus", 2).limit("gpus/v100", 4)]);
    watch.tell(&[Input::SettingsConfigured { settings: Box::new(worth) }]);
    let half = || job(2, gang(1).share(500, 0, "user")).queue("x");
    watch.tell(&[submitted(one(1, 3).queue("x")), submitted(half()), submitted(one(3, 1).queue("x"))]);
    assert_eq!(watch.start(1, 1, 0b111), []);
    let mut shared = place(0b1000);
    shared.slots[0].part = Some(DevicePart::Share);
    assert_eq!(watch.start_on(id(2), 1, shared), []);
    // 3 + ½ + 1 devices, each worth half of one.
    let found = why(&watch.start(3, 1, 0b1_0000));
    assert!(found.contains("uses 2.25 gpus of its limit of 2"), "{found}");
    assert!(found.contains("uses 4.5 gpus/v100 of its limit of 4"), "{found}");
}

#[test]
fn counts_of_gangs_are_kept() {
    let mut watch = Watch::new(vec![queue("x").running_max(1)]);
    watch.tell(&[submitted(one(1, 1).queue("x")), submitted(one(2, 1).queue("x"))]);
    assert_eq!(watch.start(1, 1, 1), []);
    assert!(why(&watch.start(2, 1, 2)).contains("queue x runs more than its 1 gangs"));

    let mut watch = Watch::new(Vec::new());
    watch.tell(&[submitted(one(1, 1).array(3, Some(2)))]);
    let mut start = |index| watch.start_on(JobId(1).gang(index), 1, place(1 << index));
    assert_eq!([start(0), start(1)].concat(), []);
    assert!(why(&start(2)).contains("job 1 runs more than its 2 gangs"));
}

#[test]
fn nothing_starts_out_of_its_turn() {
    type Build = fn(JobBuilder) -> JobBuilder;
    let cases: [(Build, &str); 5] = [
        (JobBuilder::held, "its job is held"),
        (|job| job.begins_at(100), "its begin time is 100"),
        (|job| job.deadline(10), "its deadline is 10"),
        (|job| job.after(2, EndOf::Any), "job 2 has not ended"),
        (|job| job.queue("gone"), "its queue gone no longer exists"),
    ];
    for (build, seen) in cases {
        let mut watch = Watch::new(vec![queue("default")]);
        watch.now = 50;
        watch.tell(&[submitted(one(2, 1)), submitted(build(one(1, 1)))]);
        assert!(why(&watch.start(1, 1, 1)).contains(seen), "{seen}");
    }
    let mut watch = Watch::new(Vec::new());
    watch.tell(&[
        submitted(one(2, 1)),
        submitted(one(1, 1).held().after(2, EndOf::Any).begins_at(100).deadline(200)),
    ]);
    watch.tell(&[Input::JobReleased { job: JobId(1), by: "user".into() }]);
    let ended = Change::JobFinished { job: JobId(2), ending: Ending::Succeeded };
    assert_eq!(watch.say(vec![ended]), []);
    watch.now = 100;
    assert_eq!(watch.start(1, 1, 1), []);
    watch.exit(1, 1);
    // A deadline is for the first start; and what is held again waits again.
    watch.now = 300;
    let mut held = Watch { checker: watch.checker.clone(), ..watch };
    assert_eq!(watch.start(1, 2, 1), []);
    held.tell(&[Input::JobHeld { job: JobId(1), by: "user".into() }]);
    assert!(why(&held.start(1, 2, 1)).contains("its job is held"));
}

/// Job 1 runs with all devices for an hour; job 2 waits.
fn hour(first: JobBuilder, second: JobBuilder) -> Watch {
    let tree = [
        queue("lab").guaranteed("gpus", 4),
        queue("x").parent("lab"),
        queue("y").parent("lab").guaranteed("gpus", 4),
        queue("default"),
    ];
    let mut watch = Watch::new(tree.into());
    watch.tell(&[submitted(first), submitted(second)]);
    watch.run(1, 1, 0xff);
    watch.now += 60 * MINUTE;
    watch
}

#[test]
fn an_eviction_goes_upwards_only() {
    let research = || one(1, 8).class("research");
    let serving = || one(2, 8).class("serving");
    let up = || of_class("serving", "research");
    assert_eq!(hour(research(), serving()).evict(1, 2, up()), []);

    let cases: Vec<(Job, Job, PreemptionRule, &str)> = vec![
        (
            research().build(),
            one(2, 8).class("research").build(),
            of_class("research", "research"),
            "is not above class",
        ),
        (research().build(), serving().build(), of_class("serving", "training"), "is not above class"),
        (research().build(), one(2, 8).class("opportunistic").build(), up(), "may not preempt"),
        (one(1, 8).class("serving").build(), serving().build(), up(), "class serving cannot be preempted"),
        (
            research().preempt(PreemptMode::Never).build(),
            serving().build(),
            up(),
            "its policy forbids preemption",
        ),
    ];
    for (first, second, rule, seen) in cases {
        let mut watch = Watch::new(vec![queue("default")]);
        watch.tell(&[first, second].map(|job| Input::JobSubmitted { job: Box::new(job) }));
        watch.run(1, 1, 0xff);
        watch.now += 60 * MINUTE;
        assert!(why(&watch.evict(1, 2, rule)).contains(seen), "{seen}");
    }
    let mut watch = hour(research(), serving());
    watch.now -= 51 * MINUTE;
    assert!(why(&watch.evict(1, 2, up())).contains("540000 ms, and its minimum is 600000"));
    assert!(why(&hour(research(), serving()).evict(1, 3, up())).contains("no such job was submitted"));

    let mut watch = hour(research(), serving());
    let at = Timestamp(watch.now);
    let eviction = Preemption { by: id(2), rule: up(), at, lost_device_ms: 0, grace_max_ms: None };
    let cause = StopCause::Preempted(eviction);
    let found = watch.say(vec![Change::GangStopping { gang: id(1), attempt: 1, cause }]);
    assert!(why(&found).contains("no capacity is reserved for it"));
}

#[test]
fn a_guarantee_is_taken_back_from_who_borrowed_it_and_no_further() {
    let rule = || of_guarantee("y", "x");
    assert_eq!(hour(one(1, 8).queue("x"), one(2, 4).queue("y")).evict(1, 2, rule()), []);
    // What is guaranteed to a queue above it is its own as well, against those that stand outside of that.
    assert_eq!(hour(one(1, 8), one(2, 4).queue("x")).evict(1, 2, of_guarantee("x", "default")), []);
    let cases = [
        (
            one(1, 8).queue("x"),
            one(2, 5).queue("y"),
            rule(),
            "queue y would use 5 gpus, and its guarantee is 4",
        ),
        (one(1, 8).queue("x"), one(2, 4).queue("x"), rule(), "is not between queues"),
        (one(1, 8).queue("x"), one(2, 4).queue("y"), of_guarantee("y", "lab"), "is not between queues"),
        (one(1, 8).queue("x"), one(2, 4).queue("z"), of_guarantee("z", "x"), "queue z has no guarantee"),
        // It has three of the four that are its own.
        (
            one(1, 3).queue("y"),
            one(2, 8).queue("x"),
            of_guarantee("x", "y"),
            "queue y is within its guarantee",
        ),
    ];
    for (first, second, rule, seen) in cases {
        let mut watch = Watch::new(vec![
            queue("lab"),
            queue("x").parent("lab"),
            queue("y").parent("lab").guaranteed("gpus", 4),
            queue("z").parent("lab"),
        ]);
        let devices = first.clone().build().gangs[0].needs.devices;
        watch.tell(&[submitted(first), submitted(second)]);
        watch.run(1, 1, (1 << devices) - 1);
        watch.now += 60 * MINUTE;
        let found = why(&watch.evict(1, 2, rule));
        assert!(found.contains(seen), "{seen}: {found}");
    }
}

#[test]
fn nobody_makes_way_in_turn() {
    let back_and_forth = |between: &[Input]| {
        let mut watch = hour(one(1, 8).class("research"), one(2, 8).class("serving"));
        assert_eq!(watch.evict(1, 2, of_class("serving", "research")), []);
        watch.exit(1, 1);
        watch.run(2, 1, 0xff);
        watch.now += 60 * MINUTE;
        watch.tell(between);
        let found = watch.evict(2, 1, of_class("research", "serving"));
        found.iter().any(|v| matches!(v, Violation::EvictedInTurn { .. }))
    };
    assert!(back_and_forth(&[]));
    assert!(back_and_forth(&[Input::GangCheckpointed { gang: id(2), at: Timestamp(3) }]));
    assert!(!back_and_forth(&[submitted(one(3, 1))]));
    assert!(!back_and_forth(&[Input::SettingsConfigured { settings: Box::default() }]));
}

#[test]
fn what_is_saved_on_a_node_resumes_there() {
    let resumed = |first: JobBuilder, saves: bool| {
        let mut watch = hour(first.class("research"), one(2, 8).class("serving"));
        watch.tell(&[Input::NodeObserved { node: Box::new(node("b").gpus(8).build()) }]);
        assert_eq!(watch.evict(1, 2, of_class("serving", "research")), []);
        let saved = Input::GangCheckpointed { gang: id(1), at: Timestamp(watch.now) };
        watch.tell(if saves { std::slice::from_ref(&saved) } else { &[] });
        watch.exit(1, 1);
        let again = Change::GangRetrying { gang: id(1), failures: 0, not_before: Timestamp(watch.now) };
        assert_eq!(watch.say(vec![again]), []);
        let mut elsewhere = place(0xff);
        elsewhere.slots[0].node = NodeName::new("b").unwrap();
        watch.start_on(id(1), 2, elsewhere)
    };
    assert!(
        why(&resumed(one(1, 8).pinned(), true)).contains("resumes on b, which cannot read its checkpoint")
    );
    assert_eq!(resumed(one(1, 8), true), []);
    assert_eq!(resumed(one(1, 8).pinned(), false), []);
}

#[test]
fn a_start_that_was_promised_comes_in_time() {
    let promised = |strict: bool, between: &[Input], then: Vec<Change>| {
        let mut watch = hour(one(1, 8), one(2, 8));
        watch.checker.is_strict = strict;
        let at = Some(Timestamp(watch.now + MINUTE));
        let reserved = Reserved { placement: place(0xff), at, evicts: false, made_at: Timestamp(watch.now) };
        assert_eq!(watch.say(vec![Change::GangReserved { gang: id(2), reserved }]), []);
        watch.now += MINUTE;
        watch.tell(between);
        assert_eq!(watch.say(then), []);
        watch.now += 1;
        watch.say(Vec::new())
    };
    let late = promised(true, &[], Vec::new());
    assert!(matches!(late[..], [Violation::StartedLate { .. }]), "{late:?}");
    assert_eq!(promised(true, &[submitted(one(3, 1).class("research"))], Vec::new()), late);
    assert_eq!(promised(false, &[], Vec::new()), []);
    let dropped = Change::ReservationDropped { gang: id(2), why: String::new() };
    assert_eq!(promised(true, &[], vec![dropped]), []);
    // What may come between.
    for fact in [
        Input::NodeRemoved { node: NodeName::new("a").unwrap() },
        submitted(one(3, 8).class("serving")),
        submitted(one(3, 4).queue("y")),
        Input::SettingsConfigured { settings: Box::default() },
    ] {
        assert_eq!(promised(true, &[fact], Vec::new()), []);
    }
}

#[test]
fn a_replica_beyond_those_that_are_wanted_starts_only_while_one_leaves() {
    let second = JobId(1).gang(1);
    let service = || submitted(one(1, 2).class("serving").service(1, 1).surge(1));
    let leaves =
        || Change::ReplicaLeaves { gang: id(1), leave: Leave { detail: String::new(), until: None } };
    let replaced = || Change::ReplicaReplaced { gang: id(1), by: second };
    let watch = |changes: Vec<Change>| {
        let mut watch = Watch::new(vec![queue("default")]);
        watch.tell(&[service()]);
        watch.run(1, 1, 0x3);
        assert_eq!(watch.say(changes), []);
        watch
    };
    let beyond = "the service needs 1 replicas, and 1 come before it";
    assert!(why(&watch(vec![]).start_on(second, 1, place(0xc))).contains(beyond));
    assert_eq!(watch(vec![leaves()]).start_on(second, 1, place(0xc)), []);
    let stays = Change::ReplicaStays { gang: id(1) };
    assert!(why(&watch(vec![leaves(), stays]).start_on(second, 1, place(0xc))).contains(beyond));
    // From then on the first is the one too many.
    let mut watch = watch(vec![leaves()]);
    assert_eq!(watch.start_on(second, 1, place(0xc)), []);
    assert_eq!(watch.say(vec![replaced()]), []);
    watch.exit(1, 1);
    assert!(why(&watch.start(1, 2, 0x30)).contains(beyond));
}

fn by_service(level: u32, over: u32) -> PreemptionRule {
    PreemptionRule::LessServed { queue: QueueName::new("lab").unwrap(), level, over }
}

/// The first has run for an hour on eight devices, and the second waits; the threshold of their queue is in hours of one.
fn served(first: JobBuilder, second: JobBuilder, hours: u64) -> Watch {
    let lab = queue("lab").least_served(&[hours * 60 * MINUTE]);
    let mut watch = Watch::new(vec![lab, queue("default")]);
    watch.tell(&[submitted(first), submitted(second)]);
    watch.run(1, 1, 0xff);
    watch.now += 60 * MINUTE;
    watch
}

#[test]
fn less_service_evicts_more_in_one_queue_and_class() {
    let of_lab = |number| one(number, 8).queue("lab");
    assert_eq!(served(of_lab(1), of_lab(2), 1).evict(1, 2, by_service(0, 1)), []);
    let cases = [
        (of_lab(1), of_lab(2), by_service(1, 1), "level 1 is not below level 1"),
        (of_lab(1), of_lab(2), by_service(0, 2), "is on level 1, and the rule says 2"),
        (of_lab(1), one(2, 8), by_service(0, 1), "both must belong to queue lab"),
        (of_lab(1), of_lab(2).class("research"), by_service(0, 1), "class research is not class training"),
    ];
    for (first, second, rule, seen) in cases {
        let found = why(&served(first, second, 1).evict(1, 2, rule));
        assert!(found.contains(seen), "{seen}: {found}");
    }
}

#[test]
fn a_level_is_counted_and_not_believed() {
    let of_lab = |number| one(number, 8).queue("lab");
    let mut watch = served(of_lab(1), of_lab(2), 9);
    assert!(why(&watch.evict(1, 2, by_service(0, 1))).contains("is on level 0, and the rule says 1"));
}

#[test]
fn what_a_gang_had_before_a_restart_it_had() {
    let told = |device_us: u64| {
        let first = one(1, 8).queue("lab");
        let mut watch = served(first.clone(), one(2, 8).queue("lab"), 1);
        let record = GangRecord {
            phase: Phase::Running { since: Timestamp(1) },
            attempt: 1,
            placement: Some(place(0xff)),
            members: vec![MemberRecord { state: MemberState::Running }],
            served: Served { device_us, until: Timestamp(1 + 30 * MINUTE) },
            ..GangRecord::pending(id(1), Timestamp(0))
        };
        let observed = Input::JobObserved { job: Box::new(first.build()), gangs: vec![record] };
        watch.step(&[observed], &Outcome::default())
    };
    let half_an_hour_us = 30 * MINUTE * 8 * 1_000;
    assert_eq!(told(half_an_hour_us), []);
    assert!(matches!(told(half_an_hour_us - 1)[..], [Violation::ServiceForgotten { .. }]));
}

/// One node, which is spare, and a job that ran there and lost hardware.
fn with_spare(is_filled: bool) -> Watch {
    let mut watch = Watch::new(vec![queue("default")]);
    watch.tell(&[submitted(one(2, 8).retry(9, &[FailureClass::Node]))]);
    watch.run(2, 1, 0xff);
    let spares = Some(Spares { level: None, nodes: 1, is_filled });
    watch.tell(&[Input::SettingsConfigured {
        settings: Box::new(Settings { spares, ..Settings::default() }),
    }]);
    let cause =
        StopCause::Failure { class: FailureClass::Node, rank: None, code: None, detail: String::new() };
    assert_eq!(watch.say(vec![Change::GangStopping { gang: id(2), attempt: 1, cause }]), []);
    watch.exit(2, 1);
    watch
}

/// Jobs that take spot nodes, or do not.
fn filler(number: u64, takes_spot: bool) -> Input {
    let mut job = one(number, 8).build();
    job.turn.takes_spot = takes_spot;
    Input::JobSubmitted { job: Box::new(job) }
}

#[test]
fn spare_nodes_are_for_who_lost_hardware() {
    for (is_filled, takes_spot, is_right) in
        [(false, false, false), (false, true, false), (true, false, false), (true, true, true)]
    {
        let mut watch = with_spare(is_filled);
        watch.tell(&[filler(3, takes_spot)]);
        let found = watch.start(3, 1, 0xff);
        let is_taken = matches!(found[..], [Violation::SpareTaken { gang, .. }] if gang == id(3));
        assert_eq!((found.is_empty(), is_taken), (is_right, !is_right), "{found:?}");
    }
    let mut watch = with_spare(false);
    assert_eq!(watch.start(2, 2, 0xff), []);
}

#[test]
fn only_who_fills_a_spare_node_leaves_it_for_who_lost_hardware() {
    let filled = || {
        let mut watch = with_spare(true);
        watch.tell(&[filler(3, true), filler(4, true)]);
        watch.run(3, 1, 0xff);
        watch
    };
    assert_eq!(filled().evict(3, 2, PreemptionRule::Spare), []);
    assert!(why(&filled().evict(3, 4, PreemptionRule::Spare)).contains("gang 4.0 lost no hardware"));
    let mut watch = filled();
    let mut settings = Settings::default();
    watch.tell(&[Input::SettingsConfigured { settings: Box::new(settings.clone()) }]);
    assert!(why(&watch.evict(3, 2, PreemptionRule::Spare)).contains("spare nodes are not filled"));
    // It came when no nodes were kept.
    let mut watch = with_spare(true);
    watch.tell(&[Input::SettingsConfigured { settings: Box::new(settings.clone()) }, filler(3, false)]);
    watch.run(3, 1, 0xff);
    settings.spares = Some(Spares { level: None, nodes: 1, is_filled: true });
    watch.tell(&[Input::SettingsConfigured { settings: Box::new(settings) }]);
    assert!(why(&watch.evict(3, 2, PreemptionRule::Spare)).contains("it does not take spot nodes"));
}

/// A gang that lost hardware keeps the places of members that exited, until others of it are killed for the second time.
#[test]
fn what_a_gang_keeps_for_itself_nobody_takes_before_its_members_are_known_to_hang() {
    let mut watch = Watch::new(vec![queue("default")]);
    let two = job(1, gang(2).devices(4)).retry(9, &[FailureClass::Node]);
    watch.tell(&[submitted(two), submitted(one(2, 4))]);
    let slot = |rank, devices| Slot { rank, ..place(devices).slots[0].clone() };
    let both = Placement { slots: vec![slot(0, 0x0f), slot(1, 0xf0)], level: place(1).level };
    assert_eq!(watch.start_on(id(1), 1, both), []);
    let cause =
        StopCause::Failure { class: FailureClass::Node, rank: None, code: None, detail: String::new() };
    assert_eq!(watch.say(vec![Change::GangStopping { gang: id(1), attempt: 1, cause }]), []);
    watch.exit(1, 1);
    let kill = |watch: &mut Watch| {
        watch.seq += 1;
        let effect = EffectId { epoch: Epoch(1), seq: watch.seq };
        let effects = vec![Effect { id: effect, order: Order::KillMembers { gang: id(1), attempt: 1 } }];
        assert_eq!(watch.step(&[], &Outcome { effects, ..Outcome::default() }), []);
    };
    kill(&mut watch);
    watch.now += 9_999;
    // A successor repeats it.
    kill(&mut watch);
    let before = watch.checker.clone();
    assert!(!watch.start(2, 1, 0x0f).is_empty(), "its devices are kept");
    watch.checker = before;
    watch.now += 1;
    kill(&mut watch);
    assert_eq!(watch.start(2, 1, 0x0f), []);
}
