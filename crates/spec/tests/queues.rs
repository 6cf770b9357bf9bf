//! Queue files, checked, and written from what is in force.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use phalanx_model::{
    Budget, Caps, ClassName, IdlePolicy, IdleThen, Migration, Period, Queue, QueueName, Reclaim, Resource,
    Settings, ShapeQuota, Spares,
};
use phalanx_spec::queues::{DEPTH_MAX, QUEUES_MAX};
use phalanx_spec::{QueueFile, SharePolicy, SpecError};
use proptest::prelude::*;

fn read(yaml: &str) -> Result<SharePolicy, SpecError> {
    QueueFile::from_yaml(yaml, "queues.yaml").and_then(QueueFile::into_policy)
}

fn policy(yaml: &str) -> SharePolicy {
    read(yaml).unwrap_or_else(|error| panic!("{error}"))
}

fn queue(policy: &SharePolicy, name: &str) -> Queue {
    policy.queues.iter().find(|queue| queue.name.as_str() == name).unwrap().clone()
}

const FULL: &str = "
queues:
  - name: vision
    guaranteed: {gpus: 8, gpus/H100: 4, cpus: 64, memory: 512GB, nic: 2}
    limit: {gpus: 16}
    lend: {gpus: 4, nic: 0}
    weight: 2
    shapes: [{level: leaf, count: 2, nodes: 32}, {level: block, nodes: 4}]
    max_pending: 1000
    max_running: 50
    max_gang_gpus: 64
    max_time: 24h
    wait: priced:2
    budget: {amount: 5000, per: week, warn: 75%, then: hold}
    idle: {after: 20m, notice: 0, then: end, when: always, except_users: [ada], except_classes: [batch]}
    queues:
      - {name: vision-train, guaranteed: {gpus: 0.5, memory: 100GB}, weight: 0}
  - {name: vision-eval, parent: vision, guaranteed: {gpus: 7.5}}
  - {name: asr, parent: speech, guaranteed: {gpus: 2}}
  - {name: speech, limit: {gpus: 3}, lend: {gpus: 0}, queues: [{name: tts, guaranteed: {gpus: 1}}]}
classes:
  - {name: serving, rank: 300, preemptible: false, preempts: true, min_run: 0, grace_max: 30s}
  - {name: batch, rank: -5}
default_class: batch
half_life: 3d
ageing: 0
reservations: all
hold_idle: 12.5%
reclaim: guarantee
worth: {H100: 1, A100: 0.4}
boost: {max: 10, longest: 1d}
spares: {level: rack, nodes: 2, fill: true}
migration: {when: always, restart: 30s}
";

#[test]
fn every_field_reaches_the_policy() {
    let policy = policy(FULL);
    let names: Vec<&str> = policy.queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(names, ["speech", "vision", "asr", "tts", "vision-eval", "vision-train"], "parents first");
    let vision = queue(&policy, "vision");
    let amounts = |of: &[(&str, u64)]| {
        of.iter().map(|(name, n)| (name.parse().unwrap(), *n)).collect::<BTreeMap<Resource, u64>>()
    };
    let guaranteed =
        [("gpus", 8_000), ("gpus/H100", 4_000), ("cpus", 64_000), ("memory", 512_000_000_000), ("nic", 2)];
    assert_eq!(vision.guaranteed, amounts(&guaranteed));
    assert_eq!(vision.limit, amounts(&[("gpus", 16_000)]));
    assert_eq!(vision.lend_max, amounts(&[("gpus", 4_000), ("nic", 0)]));
    assert_eq!(vision.weight_milli, 2_000);
    let shape =
        |level: &str, count, nodes| ShapeQuota { level: level.to_owned().try_into().unwrap(), count, nodes };
    assert_eq!(vision.shapes, [shape("leaf", 2, 32), shape("block", 1, 4)]);
    let caps = Caps {
        pending_max: Some(1_000),
        running_max: Some(50),
        gang_devices_max: Some(64),
        time_limit_max_ms: Some(86_400_000),
        delay: Some(phalanx_model::Delay::Priced(2_000)),
    };
    assert_eq!(vision.caps, caps);
    let budget = Budget { amount_micro: 5_000_000_000, per: Period::Week, warn_milli: 750, holds: true };
    assert_eq!(vision.budget, Some(budget));
    let idle = IdlePolicy {
        after_ms: 1_200_000,
        notice_ms: 0,
        then: IdleThen::End,
        is_on_demand: false,
        spared_users: vec!["ada".to_owned()],
        spared_classes: vec![ClassName::new("batch").unwrap()],
    };
    assert_eq!(vision.idle, Some(idle));
    let train = queue(&policy, "vision-train");
    assert_eq!((train.parent.as_ref(), train.weight_milli), (Some(&vision.name), 0));
    assert_eq!(train.guaranteed, amounts(&[("gpus", 500), ("memory", 100_000_000_000)]));
    assert_eq!(queue(&policy, "vision-eval").parent, Some(vision.name));
    assert_eq!(
        queue(&policy, "speech").guaranteed,
        amounts(&[("gpus", 3_000)]),
        "that of its queues together"
    );

    let settings = policy.settings;
    let [serving, batch] = settings.classes.as_slice() else { panic!("{:?}", settings.classes) };
    assert_eq!((serving.rank, serving.is_preemptible, serving.may_preempt), (300, false, true));
    assert_eq!((serving.min_run_ms, serving.grace_max_ms), (0, Some(30_000)));
    assert_eq!((batch.rank, batch.is_preemptible, batch.may_preempt), (-5, true, true));
    assert_eq!((batch.min_run_ms, batch.grace_max_ms), (600_000, None));
    assert_eq!(settings.default_class, ClassName::new("batch").unwrap());
    assert_eq!((settings.half_life_ms, settings.ageing_ms), (3 * 86_400_000, 0));
    assert_eq!((settings.reservation_depth, settings.hold_idle_max_milli), (u32::MAX, 125));
    assert_eq!(settings.reclaim, Reclaim::Guarantee);
    assert_eq!((settings.worth_of("NVIDIA A100-SXM4-80GB"), settings.worth_of("NVIDIA H100")), (400, 1_000));
    assert_eq!((settings.boost_max, settings.boost_max_ms), (10, 86_400_000));
    let level = Some("rack".to_owned().try_into().unwrap());
    assert_eq!(settings.spares, Some(Spares { level, nodes: 2, is_filled: true }));
    let migration = Migration { is_unconditional: true, restart_ms: 30_000, ..Migration::default() };
    assert_eq!(settings.migration, Some(migration));
}

#[test]
fn what_is_not_said_has_its_default() {
    assert_eq!(policy(""), SharePolicy::default());
    let one = policy("queues: [{name: a}]");
    assert_eq!(one.queues, [Queue::named(QueueName::new("a").unwrap())]);
    assert_eq!(one.settings, SharePolicy::default().settings);
    // A class that says nothing is left alone as long as those that are built in.
    let class = policy("classes: [{name: training, rank: 1}]").settings.classes.remove(0);
    let training = Settings::default().class(None).unwrap().clone();
    assert_eq!(class, phalanx_model::Class { rank: 1, ..training });
}

#[test]
fn queues_nest_as_deep_as_the_limit_says() {
    let nested = |depth: usize| {
        let mut text = "queues: [".to_owned();
        (0..depth).for_each(|at| {
            write!(text, "{{name: q{at}, shapes: [{{level: leaf, nodes: 1}}], queues: [").unwrap()
        });
        text + &"]}".repeat(depth) + "]"
    };
    assert_eq!(policy(&nested(DEPTH_MAX)).queues.len(), DEPTH_MAX);
    assert!(read(&nested(DEPTH_MAX + 1)).unwrap_err().what().contains("above each other"));
    read(&nested(50)).unwrap_err();
}

#[test]
fn a_file_holds_as_many_queues_as_the_limit_says() {
    let flat = |count: usize| {
        let queues = (1..count).map(|at| format!("  - {{name: q{at}, parent: all}}\n"));
        format!("queues:\n  - name: all\n{}", queues.collect::<String>())
    };
    assert_eq!(policy(&flat(QUEUES_MAX)).queues.len(), QUEUES_MAX);
    assert!(read(&flat(QUEUES_MAX + 1)).unwrap_err().what().contains("10000 queues"));
}

/// However long it is, and wherever one looks from.
#[test]
fn rings_are_found() {
    for length in [1, 2, 8, 9, 300] {
        let ring = (0..length).map(|at| format!("{{name: r{at}, parent: r{}}}", (at + 1) % length));
        let tail = "{name: a, parent: b}, {name: b, parent: r0}";
        let error = read(&format!("queues: [{tail}, {}]", ring.collect::<Vec<_>>().join(", "))).unwrap_err();
        let named = error.what().split([' ', ',']).filter(|word| word.starts_with('r') && word.len() < 5);
        let named: Vec<&str> = named.filter(|word| *word != "ring").collect();
        assert_eq!((named[0], named.len()), ("r0", length.min(30)), "{error}");
    }
}

/// So that it can be shown, edited and applied again.
#[test]
fn a_policy_written_out_reads_back() {
    for text in [FULL, "", "queues: [{name: a, queues: [{name: b}]}, {name: c}]\nworth: {L4: 0.125}\n"] {
        let policy = policy(text);
        let yaml = QueueFile::of_policy(&policy).to_yaml().unwrap();
        assert_eq!(read(&yaml).unwrap_or_else(|error| panic!("{yaml}\n{error}")), policy, "{yaml}");
    }
    let file = QueueFile::from_yaml(FULL, "f").unwrap();
    let again = QueueFile::from_yaml(&file.to_yaml().unwrap(), "again").unwrap();
    assert_eq!(file.into_policy(), again.into_policy());
}

#[test]
fn a_file_is_read_from_json_too() {
    let text =
        r#"{"queues": [{"name": "a", "guaranteed": {"gpus": 2.5, "memory": "1GB"}}], "hold_idle": "5%"}"#;
    let file: QueueFile = serde_json::from_str(text).unwrap();
    let policy = file.into_policy().unwrap();
    assert_eq!(policy.queues[0].guaranteed[&Resource::Gpus], 2_500);
    assert_eq!(policy.settings.hold_idle_max_milli, 50);
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = read(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn no_value_panics(
        field in prop::sample::select(vec!["name", "parent", "guaranteed", "limit", "lend", "weight", "shapes", "max_pending",
            "max_gang_gpus", "max_time", "wait", "queues"]),
        value in "[-\\[\\]{}:,@%a-z0-9.\" \\n\\t&*!|>#'é]{0,40}",
    ) {
        let _ = read(&format!("queues:\n  - {{name: a}}\n  - name: b\n    {field}: {value}\n")).map_err(|error| error.to_string());
    }

    #[test]
    fn no_setting_panics(
        field in prop::sample::select(vec!["classes", "default_class", "half_life", "ageing", "reservations", "hold_idle", "reclaim",
            "worth", "boost", "wait", "preset", "spares", "migration"]),
        value in "[-\\[\\]{}:,@%a-z0-9.\" \\n\\t&*!|>#'é]{0,40}",
    ) {
        let _ = read(&format!("{field}: {value}\n")).map_err(|error| error.to_string());
    }

    /// Whatever forest of queues is written, nested or by `parent`, in any order: it is the same tree, parents come
    /// first, and every promise holds.
    #[test]
    fn a_tree_is_the_same_however_it_is_written(
        parents in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), 0_u64..9), 1..30),
        order in any::<prop::sample::Index>(),
    ) {
        let mut parent_of: Vec<Option<usize>> = Vec::new();
        let mut depth_of: Vec<usize> = Vec::new();
        for (at, (parent, is_top, _)) in parents.iter().enumerate() {
            let parent = (at > 0 && !is_top).then(|| parent.index(at)).filter(|parent| depth_of[*parent] < DEPTH_MAX);
            depth_of.push(parent.map_or(1, |parent| depth_of[parent] + 1));
            parent_of.push(parent);
        }
        let guaranteed = |at: usize| format!("guaranteed: {{gpus: {}}}", parents[at].2);
        let is_leaf = |at: usize| !parent_of.contains(&Some(at));
        let own = |at: usize| if is_leaf(at) { format!("name: q{at}, {}", guaranteed(at)) } else { format!("name: q{at}") };
        let mut lines: Vec<String> = (0..parents.len()).map(|at| match parent_of[at] {
            Some(parent) => format!("{{{}, parent: q{parent}}}", own(at)),
            None => format!("{{{}}}", own(at)),
        }).collect();
        lines.rotate_left(order.index(parents.len()));
        let flat = policy(&format!("queues: [{}]", lines.join(", ")));
        fn nested(at: usize, parent_of: &[Option<usize>], own: &dyn Fn(usize) -> String) -> String {
            let below: Vec<String> = (0..parent_of.len()).filter(|child| parent_of[*child] == Some(at))
                .map(|child| nested(child, parent_of, own)).collect();
            format!("{{{}, queues: [{}]}}", own(at), below.join(", "))
        }
        let tops: Vec<String> = (0..parents.len()).filter(|at| parent_of[*at].is_none())
            .map(|at| nested(at, &parent_of, &own)).collect();
        let inside = policy(&format!("queues: [{}]", tops.join(", ")));
        prop_assert_eq!(&flat, &inside);
        let yaml = QueueFile::of_policy(&flat).to_yaml().unwrap();
        prop_assert_eq!(&read(&yaml).unwrap(), &flat);
        let mut seen: Vec<&QueueName> = Vec::new();
        for queue in &flat.queues {
            prop_assert!(queue.parent.as_ref().is_none_or(|parent| seen.contains(&parent)));
            let below: u64 = flat.queues.iter().filter(|child| child.parent.as_ref() == Some(&queue.name))
                .map(|child| child.guaranteed[&Resource::Gpus]).sum();
            prop_assert!(queue.guaranteed[&Resource::Gpus] >= below);
            seen.push(&queue.name);
        }
    }
}

#[test]
fn the_nodes_of_a_queue_are_pools_in_order() {
    let policy = policy(
        "queues:
  - name: batch
    nodes: {required: [{model: A100}, {hosts: ['h-[1-2]', x], path: {rack: r1}, labels: {tier: gold}}]}
  - {name: notebooks, nodes: {preferred: [{labels: {tier: small}}]}}
  - {name: rest}
",
    );
    let batch = queue(&policy, "batch").nodes;
    assert!(batch.are_required());
    let shown: Vec<String> = batch.pools.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["model A100", "h-1, h-2, x and rack r1 and label tier=gold"]);
    assert!(queue(&policy, "notebooks").nodes.or_any && queue(&policy, "rest").nodes.are_none());
    let written = QueueFile::of_policy(&policy).to_yaml().unwrap();
    assert_eq!(read(&written).unwrap(), policy, "{written}");
}

#[test]
fn nodes_of_a_queue_that_say_nothing_or_too_much_are_refused() {
    let refused = |nodes: &str| {
        let error =
            read(&format!("queues:\n  - name: a\n    nodes: {nodes}\n")).expect_err(nodes).to_string();
        assert!(error.contains('^'), "{error}");
        error
    };
    assert!(refused("{required: [{}]}").contains("a pool of a says nothing"));
    assert!(
        refused("{required: [{model: x}], preferred: [{model: y}]}").contains("both required and preferred")
    );
    let many = vec!["{model: x}"; 17].join(", ");
    assert!(refused(&format!("{{required: [{many}]}}")).contains("17 pools"));
    assert!(refused("{required: [{labels: {a b: c}}]}").contains("is no label"));
    assert!(refused("{required: [{hosts: ['n[1']}]}").contains("bracket"));
    for nothing in ["{required: []}", "{required: }", "{preferred: null}", "{}"] {
        assert!(refused(nothing).contains("in no pool"));
    }
    assert!(refused("{wanted: []}").contains("no such field"));
}
