//! A training job of 16 GPUs and eight hours on two nodes of one leaf; four hours in, serving needs eight GPUs. A minute of
//! the story is one step here.

use phalanx_api::protocol::{Answer, NodeFilter, Verb};
use phalanx_model::{Advisory, Class, ClassName, LevelName, PreemptionRule, Settings};

use crate::support::{Bench, TRAINER_EVERY, gang, number, shell, trainer, until};

const ONE_LEAF: &str = "levels: [cluster, leaf]
nodes:
- {name: 'n[1-2]', path: {leaf: leaf-1}, devices: {count: 8, model: Test GPU}}
";

const MINUTES: u32 = 8 * 60;

#[test]
fn serving_takes_eight_gpus_and_training_loses_a_quarter_of_an_hour_at_most() {
    let bench = Bench::up_with(ONE_LEAF);
    let settings = Settings::default();
    // Ten minutes, in steps of this story.
    let classes = settings.classes.iter().map(|class| Class { min_run_ms: 500, ..class.clone() }).collect();
    bench
        .done(Verb::ApplyQueues { settings: Box::new(Settings { classes, ..settings }), queues: Vec::new() });
    let mut training = trainer(&bench.path("ckpt"), 16, MINUTES);
    gang(&mut training).needs.devices = 1;
    gang(&mut training).topology.required = Some(LevelName::new("leaf").unwrap());
    let signal = nix::sys::signal::Signal::SIGUSR1 as i32;
    training.policy.stop.advisory = Some(Advisory { signal, lead_ms: 300 });
    let training = bench.submit(training);
    let number = |file: &str| number(&bench, file);
    until("four hours", || number("ckpt/step") >= u64::from(MINUTES) / 2);

    let mut serving = shell(8, "exec sleep 1000");
    serving.turn.class = Some(ClassName::new("serving").unwrap());
    gang(&mut serving).needs.devices = 1;
    let serving = bench.submit(serving);
    let view = bench.await_state(serving, "running");
    let slots = &view.gangs[0].placement.as_ref().unwrap().slots;
    assert!(slots.iter().all(|slot| slot.node == slots[0].node), "{slots:?}");
    let waiting = bench.await_state(training, "pending");
    let evicted = waiting.gangs[0].evicted.clone().unwrap();
    assert_eq!(evicted.by, serving.gang(0));
    let PreemptionRule::Class { class, over } = &evicted.rule else { panic!("{evicted:?}") };
    assert_eq!((class.as_str(), over.as_str()), ("serving", "training"));

    let (saved, reached) = (number("ckpt/step"), number("ckpt/reached"));
    assert!(saved >= u64::from(MINUTES) / 2, "{saved}");
    assert!(reached.saturating_sub(saved) <= TRAINER_EVERY, "{reached} minutes were done and {saved} saved");
    bench.cancel(serving);
    let ended = bench.ended(training);
    assert_eq!((ended.state.as_str(), ended.gangs[0].attempt), ("succeeded", 2));
    assert_eq!(bench.said(training)["resumed"], saved.to_string());
    assert_eq!(number("ckpt/step"), u64::from(MINUTES));
    let Ok(Answer::Nodes(nodes)) = bench.ask(Verb::FindNodes(NodeFilter::default())) else { panic!() };
    assert!(nodes.nodes.iter().all(|node| node.held.is_empty()));
    bench.await_nobody();
}
