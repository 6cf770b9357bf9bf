//! What is said of queues, classes and turns is read as it is meant, and run in the order of the lines.

#![allow(clippy::unwrap_used)]

use phalanx_model::{
    Amounts, Array, EndOf, LevelName, PreemptMode, Queue, QueueName, Reclaim, Resource, Settings, ShapeQuota,
    Timestamp,
};
use phalanx_scenario::{Expectation, Submission, Verb, parse};

fn last(text: &str) -> Verb {
    parse(text).unwrap_or_else(|error| panic!("{error}")).pop().unwrap().verb
}

fn queue(text: &str) -> Queue {
    match last(text) {
        Verb::Queue(queue) => *queue,
        other => panic!("{other:?}"),
    }
}

fn settings(text: &str) -> Settings {
    match last(text) {
        Verb::Settings(settings) => *settings,
        other => panic!("{other:?}"),
    }
}

fn submission(text: &str) -> Submission {
    match last(text) {
        Verb::Submit(submission) => *submission,
        other => panic!("{other:?}"),
    }
}

fn amounts<const N: usize>(all: [(&str, u64); N]) -> Amounts {
    all.into_iter().map(|(name, amount)| (name.parse::<Resource>().unwrap(), amount)).collect()
}

#[test]
fn a_queue_says_all_there_is_and_changes_what_it_says_again() {
    let lab = "queue lab guaranteed=gpus:8\n";
    let whole = format!(
        "{lab}queue x parent=lab guaranteed=gpus:7.5,cpus:64,gpus/H100:4,memory:1GB,nic:2 limit=gpus:16 lend=gpus:1 \
         weight=2 shapes=leaf:2x32 max-running=3 max-pending=9 max-gang=4 max-time=1h\n"
    );
    let found = queue(&whole);
    assert_eq!(found.parent, Some(QueueName::new("lab").unwrap()));
    let guaranteed = amounts([
        ("gpus", 7_500),
        ("gpus/H100", 4_000),
        ("cpus", 64_000),
        ("memory", 1_000_000_000),
        ("nic", 2),
    ]);
    assert_eq!(found.guaranteed, guaranteed);
    assert_eq!((&found.limit, &found.lend_max), (&amounts([("gpus", 16_000)]), &amounts([("gpus", 1_000)])));
    assert_eq!(found.weight_milli, 2_000);
    assert_eq!(found.shapes, [ShapeQuota { level: LevelName::new("leaf").unwrap(), count: 2, nodes: 32 }]);
    let caps = found.caps;
    assert_eq!((caps.running_max, caps.pending_max), (Some(3), Some(9)));
    assert_eq!((caps.gang_devices_max, caps.time_limit_max_ms), (Some(4), Some(3_600_000)));

    let changed =
        queue(&format!("{whole}queue x limit=none max-running=none weight=1 parent=none shapes=none"));
    let kept = Queue { guaranteed, lend_max: found.lend_max, ..Queue::named(found.name) };
    assert_eq!(changed, Queue { caps: phalanx_model::Caps { running_max: None, ..caps }, ..kept });
    assert!(matches!(last(&format!("{lab}queue-gone lab")), Verb::QueueGone(name) if name.as_str() == "lab"));
}

#[test]
fn settings_and_classes_add_up() {
    let found = settings(
        "settings half-life=1d ageing=2h reservations=all hold-idle=100 reclaim=guarantee min-run=training:0s\n\
         class batch rank=50 preempts=no min-run=5m grace-max=30s\n\
         class serving preemptible=yes grace-max=none\n\
         settings worth=H100:1000,A100:400 default-class=batch",
    );
    assert_eq!((found.half_life_ms, found.ageing_ms), (86_400_000, 7_200_000));
    assert_eq!((found.reservation_depth, found.hold_idle_max_milli), (u32::MAX, 100));
    assert_eq!(found.reclaim, Reclaim::Guarantee);
    assert_eq!((found.worth_of("NVIDIA A100"), found.default_class.as_str()), (400, "batch"));
    let of = |name: &str| found.classes.iter().find(|class| class.name.as_str() == name).unwrap();
    let batch = of("batch");
    assert_eq!((batch.rank, batch.is_preemptible, batch.may_preempt), (50, true, false));
    assert_eq!((batch.min_run_ms, batch.grace_max_ms), (300_000, Some(30_000)));
    assert_eq!((of("training").min_run_ms, of("training").rank), (0, 200));
    assert_eq!((of("serving").is_preemptible, of("serving").grace_max_ms), (true, None));
}

#[test]
fn a_submission_says_when_it_goes() {
    let found = submission(
        "submit i\nsubmit j queue=x class=research hold after=i,i:any begin=1h deadline=2h array=3%1 preempt=never \
         pinned saves=15m save-takes=5s",
    );
    let (job, turn) = (&found.job, &found.job.turn);
    assert_eq!((job.queue.as_str(), job.gang_count()), ("x", 3));
    assert_eq!(turn.class.as_ref().unwrap().as_str(), "research");
    assert_eq!(turn.held_by.as_deref(), Some("user"));
    assert_eq!((turn.begins_at, turn.deadline), (Some(Timestamp(3_600_000)), Some(Timestamp(7_200_000))));
    assert_eq!(turn.array, Some(Array { tasks: phalanx_model::Tasks::first(3), running_max: Some(1) }));
    assert_eq!((job.policy.preempt.mode, job.policy.preempt.is_pinned), (PreemptMode::Never, true));
    let after: Vec<_> = found.after.iter().map(|(job, end)| (job.as_str(), *end)).collect();
    assert_eq!(after, [("i", EndOf::Success), ("i", EndOf::Any)]);
    assert_eq!((found.script.saves_ms, found.script.save_takes_ms), (Some(900_000), 5_000));
    // Of a plain one, nothing.
    let plain = submission("submit j");
    assert_eq!((plain.job.turn, plain.job.queue.as_str()), (phalanx_model::Turn::default(), "default"));
}

#[test]
fn what_is_expected_of_queues_and_places_is_read() {
    let expectation = |text: &str| match last(&format!("queue x\nnode a\nnode b\nsubmit j\nexpect {text}")) {
        Verb::Expect(expectation) => expectation,
        other => panic!("{other:?}"),
    };
    let uses = expectation("x uses gpus:8,cpus:2");
    assert!(
        matches!(uses, Expectation::Uses { amounts: of, .. } if of == amounts([("gpus", 8_000), ("cpus", 2_000)]))
    );
    assert!(matches!(expectation("j held on b a"), Expectation::Held { nodes, .. } if nodes.len() == 2));
    assert!(matches!(expectation("j evicted 2"), Expectation::Evicted { times: 2, .. }));
    assert!(matches!(expectation("j deadline_missed"), Expectation::Job { .. }));
    assert_eq!(last("show queues"), Verb::ShowQueues);
}
