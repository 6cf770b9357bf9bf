//! How long the head of a queue waits while smaller jobs keep arriving. Each story is a scenario in which the head must
//! start within a bound; a test prints the wait that it measured.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use phalanx_model::{Change, DeviceMask, Input, JobId, JobName, Node, NodeName, Timestamp};
use phalanx_scenario::{Event, Line, Verb, parse};
use phalanx_sim::{Faults, World};

/// A line of a story at which the test itself acts.
const PAUSE: &str = "# pause";

/// A scenario that runs on a world, in which the test can do more than a scenario can express.
struct Story {
    world: World,
    lines: std::vec::IntoIter<Line>,
    pauses: Vec<usize>,
    jobs: BTreeMap<JobName, (JobId, Timestamp)>,
    events: Vec<(Timestamp, Event)>,
}

impl Story {
    fn new(text: &str) -> Self {
        let pauses = (1..).zip(text.lines()).filter(|(_, line)| *line == PAUSE);
        let world = World::new(phalanx_engine::Config::default(), Faults::none(), 0);
        Self {
            world: world.keeping_events(),
            pauses: pauses.map(|(number, _)| number).collect(),
            lines: parse(text).unwrap().into_iter(),
            jobs: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// Plays the lines up to the next pause, or to the end.
    fn play(&mut self) {
        let until = if self.pauses.is_empty() { usize::MAX } else { self.pauses.remove(0) };
        while let Some(line) = self.lines.as_slice().first().filter(|line| line.number < until).cloned() {
            self.lines.next();
            self.line(line.verb);
            self.events.extend(self.world.take_events());
        }
    }

    fn line(&mut self, verb: Verb) {
        let world = &mut self.world;
        let done = match verb {
            Verb::Levels(levels) => world.configure(levels),
            Verb::Nodes(nodes) => nodes.into_iter().try_for_each(|node| world.add_node(node)),
            Verb::Submit(submission) => {
                let now = world.now();
                let id = world.submit(&submission.job, &submission.script).unwrap();
                self.jobs.insert(submission.job.name.clone(), (id, now));
                Ok(())
            }
            Verb::Advance { ms } => world.advance_to(world.now().plus(ms)),
            Verb::Cordon(node) => world.tell([Input::NodeCordoned { node }]),
            Verb::NodeLost(node) => world.lose_node(&node),
            Verb::Queue(queue) => world.tell([Input::QueueObserved { queue }]),
            Verb::Settings(settings) => world.tell([Input::SettingsConfigured { settings }]),
            other => panic!("no story has {other:?}"),
        };
        done.unwrap();
    }

    fn node(&self, name: &str) -> Node {
        let name = NodeName::new(name).unwrap();
        self.world.declared().find(|(node, _)| node.name == name).unwrap().0.clone()
    }

    /// Seconds from a job's submission to its first start.
    fn wait_s(&self, job: &str) -> Option<u64> {
        let (id, submitted_at) = self.jobs[&JobName::new(job).unwrap()];
        let is_start = |event: &Event| matches!(event, Event::Changed(Change::GangPlaced { gang, .. }) if gang.job == id);
        let started = self.events.iter().find(|(_, event)| is_start(event));
        started.map(|(at, _)| at.since(submitted_at) / 1_000)
    }

    fn assert_starts_within(&self, job: &str, seconds: u64) {
        let wait = self.wait_s(job);
        println!("{job} starts after {wait:?} s, at most {seconds} are right");
        let is_right = wait.is_some_and(|wait| wait <= seconds);
        assert!(is_right, "{job} starts after {wait:?} s and should within {seconds} s");
    }
}

/// Sixty jobs of four GPUs, one each second, of two seconds each.
fn stream(options: &str) -> String {
    let submit = |at: u32| format!("submit small-{at} ranks=4 gpus=1 runs=1s {options}\nadvance 1s\n");
    (1..=60).map(submit).collect()
}

/// A story whose beginning ends with the submission of `head`, and then the stream follows.
fn waits_behind_the_stream(beginning: &str, options: &str, seconds: u64) {
    let mut story = Story::new(&format!("{beginning}\n{}advance 30s\n", stream(options)));
    story.play();
    story.assert_starts_within("head", seconds);
}

/// Sixteen starts may bypass the head, one each second; then the running gangs end.
const BYPASS_S: u64 = 19;
/// A job with a known end is over at most 6 s after its start.
const KNOWN_S: u64 = 8;
const KNOWN: &str = "time=2s start-deadline=3s grace=1s";
const TWO_RUN: &str = "submit one ranks=4 gpus=1 runs=1s\nadvance 500ms\nsubmit two ranks=4 gpus=1 runs=1s";

#[test]
fn a_head_without_known_ends_is_bypassed_sixteen_times() {
    let head = "submit head ranks=8 gpus=1 runs=5s";
    waits_behind_the_stream(&format!("node a gpus=8\n{TWO_RUN}\n{head}"), "", BYPASS_S);
}

#[test]
fn a_head_with_known_ends_has_a_reservation() {
    let head = "submit head ranks=8 gpus=1 runs=5s";
    let beginning = format!(
        "node a gpus=8\nsubmit one ranks=4 gpus=1 runs=1s {KNOWN}\nadvance 500ms\n\
         submit two ranks=4 gpus=1 runs=1s {KNOWN}\n{head}"
    );
    waits_behind_the_stream(&beginning, KNOWN, KNOWN_S);
}

/// The reason of the head says that a node is cordoned; the head waits for running gangs all the same.
#[test]
fn a_cordoned_node_that_would_hold_the_head_takes_no_protection_from_it() {
    let head = "submit head ranks=8 gpus=1 runs=5s";
    waits_behind_the_stream(
        &format!("node a gpus=8\nnode b gpus=8\ncordon b\n{TWO_RUN}\n{head}"),
        "",
        BYPASS_S,
    );
}

#[test]
fn a_cordoned_node_takes_no_reservation_from_the_head() {
    let head = "submit head ranks=8 gpus=1 runs=5s";
    let beginning = format!(
        "node a gpus=8\nnode b gpus=8\ncordon b\nsubmit one ranks=4 gpus=1 runs=1s {KNOWN}\nadvance 500ms\n\
         submit two ranks=4 gpus=1 runs=1s {KNOWN}\n{head}"
    );
    waits_behind_the_stream(&beginning, KNOWN, KNOWN_S);
}

/// A gang that no present node can hold is before the head.
#[test]
fn a_gang_pinned_to_an_absent_node_takes_no_protection_from_the_head() {
    let head = "submit pinned ranks=8 gpus=1 on=b\nsubmit head ranks=8 gpus=1 runs=5s";
    waits_behind_the_stream(
        &format!("node a gpus=8\nnode b gpus=8\nnode-lost b\n{TWO_RUN}\n{head}"),
        "",
        BYPASS_S,
    );
}

#[test]
fn a_gang_pinned_to_an_absent_node_takes_no_reservation_from_the_head() {
    let head = "submit pinned ranks=8 gpus=1 on=b\nsubmit head ranks=8 gpus=1 runs=5s";
    let beginning = format!(
        "node a gpus=8\nnode b gpus=8\nnode-lost b\nsubmit one ranks=4 gpus=1 runs=1s {KNOWN}\nadvance 500ms\n\
         submit two ranks=4 gpus=1 runs=1s {KNOWN}\n{head}"
    );
    waits_behind_the_stream(&beginning, KNOWN, KNOWN_S);
}

/// Each of these gangs is a request class of its own, by its time limit.
#[test]
fn many_gangs_pinned_to_an_absent_node_take_no_protection_from_the_head() {
    let pinned = |at: u32| format!("submit pinned-{at} ranks=8 gpus=1 on=b time={}s\n", 60 + at);
    let pinned: String = (1..=70).map(pinned).collect();
    let head = "submit head ranks=8 gpus=1 runs=5s";
    waits_behind_the_stream(
        &format!("node a gpus=8\nnode b gpus=8\nnode-lost b\n{TWO_RUN}\n{pinned}{head}"),
        "",
        BYPASS_S,
    );
}

/// Of a gang of one member with all devices, as many members fit before a small job starts as after: none.
#[test]
fn a_head_of_one_member_with_all_devices_is_bypassed_sixteen_times() {
    let head = "submit head ranks=1 gpus=8 runs=5s";
    waits_behind_the_stream(&format!("node a gpus=8\n{TWO_RUN}\n{head}"), "", BYPASS_S);
}

/// A second head does not take the place of the first one.
#[test]
fn of_two_heads_the_first_is_bypassed_sixteen_times() {
    let heads = "submit head ranks=8 gpus=1 runs=5s\nsubmit second ranks=8 gpus=1 runs=5s on=a";
    let beginning = format!("settings reservations=2\nnode a gpus=8\n{TWO_RUN}\n{heads}");
    waits_behind_the_stream(&beginning, "", BYPASS_S);
}

/// The second head waits for another node, for which no small job competes.
#[test]
fn of_two_heads_on_two_nodes_the_first_is_bypassed_sixteen_times() {
    let heads = "submit head ranks=8 gpus=1 runs=5s on=a\nsubmit second ranks=8 gpus=1 runs=5s on=b";
    let beginning = format!(
        "settings reservations=2\nnode a gpus=8\nnode b gpus=8\nsubmit other gpus=4 on=b\n\
         submit one ranks=4 gpus=1 runs=1s on=a\nadvance 500ms\nsubmit two ranks=4 gpus=1 runs=1s on=a\n{heads}"
    );
    waits_behind_the_stream(&beginning, "on=a", BYPASS_S);
}

/// A gang with a reservation uses up the reservation depth, and the head behind it is still bypassed up to the limit.
#[test]
fn a_head_behind_a_reservation_is_bypassed_sixteen_times() {
    let heads = "submit reserved ranks=8 gpus=1 runs=5s on=b\nsubmit head ranks=8 gpus=1 runs=5s on=a";
    let beginning = format!(
        "node a gpus=8\nnode b gpus=8\nsubmit long gpus=8 on=b time=10m\n\
         submit one ranks=4 gpus=1 runs=1s on=a\nadvance 500ms\nsubmit two ranks=4 gpus=1 runs=1s on=a\n{heads}"
    );
    waits_behind_the_stream(&beginning, "on=a", BYPASS_S);
}

/// Requests that cannot start are retried after each end, and say nothing about the head.
#[test]
fn a_failing_request_between_heads_does_not_forget_them() {
    let heads = "submit head ranks=8 gpus=1 runs=5s\nsubmit failing ranks=2 gpus=4 runs=5s per-node=1\n\
                 submit second ranks=8 gpus=1 runs=5s cpus=2";
    let beginning = format!(
        "settings reservations=2\nnode a gpus=8\nnode b gpus=4\nsubmit beside gpus=4 on=b\n{TWO_RUN}\n{heads}"
    );
    waits_behind_the_stream(&beginning, "", BYPASS_S);
}

/// An endless job fits beside the reserved head by devices, and not by the power of their rack.
#[test]
fn a_reservation_withholds_named_resources() {
    let mut story = Story::new(
        "levels cluster rack\nlimit rack power=8\nnode a rack=r1 gpus=8\nnode b rack=r1 gpus=8\n\
         submit runs ranks=6 gpus=1 named=power:1 on=a time=2s start-deadline=3s grace=3s runs=2s\nadvance 1s\n\
         submit head ranks=8 gpus=1 named=power:1 on=a runs=5s\n\
         submit endless ranks=2 gpus=1 named=power:1 on=b runs=60s\nadvance 90s\n",
    );
    story.play();
    story.assert_starts_within("head", 8);
}

/// The cheapest victims run in some racks of another model: none of them helps.
fn victims_beside_other_racks(racks: u32) {
    let old: String = (1..=racks)
        .map(|at| format!("submit old-{at} queue=red ranks=2 gpus=8 on=old{at}-1,old{at}-2 runs=2h\n"))
        .collect();
    let racks: String =
        (1..=racks).map(|at| format!("node old{at}-[1-2] rack=a{at} gpus=8 model=A100\n")).collect();
    let mut story = Story::new(&format!(
        "levels cluster rack\n{racks}node new-[1-2] rack=h1 gpus=8 model=H100\n\
         class training min-run=0s grace-max=none\nqueue red\nqueue blue guaranteed=gpus:16\n\
         submit new-1 queue=red gpus=8 on=new-1 runs=2h\nsubmit new-2 queue=red gpus=8 on=new-2 runs=2h\n\
         advance 10m\n{old}advance 15m\n\
         submit head queue=blue ranks=16 gpus=1 model=H100 required=rack\nadvance 5m\n"
    ));
    story.play();
    story.assert_starts_within("head", 5);
}

#[test]
fn victims_are_found_beside_one_rack_of_another_model() {
    victims_beside_other_racks(1);
}

#[test]
fn victims_are_found_beside_five_racks_of_another_model() {
    victims_beside_other_racks(5);
}

/// Others use a device that a gang holds; that concerns only one node.
fn disputed(foreign: DeviceMask, [beginning, options]: [&str; 2], seconds: u64, rest: &str) {
    let mut story = Story::new(&format!(
        "node a gpus=8\nnode bad gpus=8\n{beginning}\nsubmit on-bad gpus=8 on=bad {options}\nadvance 2s\n{PAUSE}\n{rest}"
    ));
    story.play();
    let bad = story.node("bad");
    story.world.add_node(Node { foreign, ..bad }).unwrap();
    story.play();
    story.assert_starts_within("head", seconds);
}

const DEVICE_0: DeviceMask = DeviceMask(1);

fn preempts_beside(foreign: DeviceMask) {
    let classes = "class training min-run=0s grace-max=none\nqueue red\nqueue blue guaranteed=gpus:8";
    let rest =
        "submit victim queue=red gpus=8 on=a\nadvance 15m\nsubmit head queue=blue gpus=8 on=a\nadvance 5m\n";
    disputed(foreign, [classes, "queue=red"], 5, rest);
}

fn reserves_beside(foreign: DeviceMask) {
    let rest = format!(
        "submit one ranks=4 gpus=1 runs=1s on=a {KNOWN}\nadvance 500ms\n\
         submit two ranks=4 gpus=1 runs=1s on=a {KNOWN}\nsubmit head ranks=8 gpus=1 runs=5s on=a\n{}advance 30s\n",
        stream(&format!("on=a {KNOWN}"))
    );
    disputed(foreign, ["", ""], KNOWN_S, &rest);
}

#[test]
fn without_a_disputed_device_a_gang_preempts_and_reserves() {
    preempts_beside(DeviceMask::EMPTY);
    reserves_beside(DeviceMask::EMPTY);
}

#[test]
fn one_disputed_device_leaves_preemption_elsewhere() {
    preempts_beside(DEVICE_0);
}

#[test]
fn one_disputed_device_leaves_reservations_elsewhere() {
    reserves_beside(DEVICE_0);
}
