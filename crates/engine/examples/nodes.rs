//! What changes of nodes and the cancel of a large array cost in a cluster of 12,800: `cargo run --release -p phalanx-engine --example nodes`.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods)]
#![allow(clippy::disallowed_types, reason = "it measures; the engine itself knows no clock")]

use std::time::{Duration, Instant};

use phalanx_engine::{Config, Engine};
use phalanx_model::later::SpotNotice;
use phalanx_model::{Epoch, Input, Job, Node, Outcome, Timestamp};
use phalanx_testkit::{costs, gang, job, levels, node};

const NODES: usize = 12_800;
const PENDING: u64 = 50_000;
const QUEUES: u64 = 1_000;

struct Run {
    engine: Engine,
    now: u64,
    out: Outcome,
}

impl Run {
    fn new(nodes: &[Node]) -> Self {
        let mut facts = vec![
            Input::LevelsConfigured { levels: levels(&["cluster", "block", "leaf"]) },
            Input::CostsCompiled { table: costs(&nodes[..1]) },
        ];
        facts.extend(nodes.iter().map(|node| Input::NodeObserved { node: Box::new(node.clone()) }));
        let engine = Engine::new(Epoch(1), Config::default());
        let mut run = Self { engine, now: 1_000, out: Outcome::default() };
        run.step(&facts);
        assert_eq!(run.engine.nodes().count(), NODES, "no node is refused");
        run
    }

    fn step(&mut self, facts: &[Input]) -> Duration {
        self.now += 1;
        let begin = Instant::now();
        let _ = self.engine.step(Timestamp(self.now), facts, &mut self.out);
        begin.elapsed()
    }

    fn filled(nodes: &[Node]) -> Self {
        let mut run = Self::new(nodes);
        let submitted = |id: u64| -> Input {
            let is_running = id <= NODES as u64 / 4;
            let gang = if is_running {
                gang(4).devices(8)
            } else {
                gang(1 + (id % 16) as u32).devices(1 + (id % 8) as u32)
            };
            let queue = format!("q{}", id % QUEUES);
            let job: Job = job(id, gang).queue(&queue).time_limit(3_600_000 + id % 10 * 60_000).build();
            Input::JobSubmitted { job: Box::new(job) }
        };
        let facts: Vec<Input> = (1..=PENDING + NODES as u64 / 4).map(submitted).collect();
        for facts in facts.chunks(NODES / 4) {
            run.step(facts);
        }
        run
    }
}

fn all_nodes() -> Vec<Node> {
    let first = node("n").path(["cluster", "b", "l"]).gpus(8).nvswitch().build();
    (0..NODES)
        .map(|at| {
            let (block, leaf, name) =
                (format!("b{}", at / 512), format!("l{:04}", at / 16), format!("n{at:05}"));
            let built = node(&name).path(["cluster", &block, &leaf]).gpus(8).nvswitch().build();
            Node { machine: first.machine.clone(), ..built }
        })
        .collect()
}

fn show(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    println!("{what:<52} p50 {:>10.1?} p99 {:>10.1?}", at(50), at(99));
}

fn many(run: &Run, nodes: &[Node], what: &str, fact: impl Fn(&Node) -> Input) {
    let mut copy = Run { engine: run.engine.clone(), now: run.now, out: Outcome::default() };
    let facts: Vec<Input> = nodes.iter().step_by(11).take(1_000).map(fact).collect();
    let took = copy.step(&facts);
    show(what, vec![took]);
}

fn measure(run: &mut Run, nodes: &[Node], what: &str) {
    let times = |run: &mut Run, count: usize, fact: &dyn Fn(usize) -> Input| -> Vec<Duration> {
        (0..count).map(|at| run.step(&[fact(at)])).collect()
    };
    let name = |at: usize| nodes[at * 7 % NODES].name.clone();
    show(&format!("{what}: cordon"), times(run, 200, &|at| Input::NodeCordoned { node: name(at) }));
    show(&format!("{what}: uncordon"), times(run, 200, &|at| Input::NodeUncordoned { node: name(at) }));
    let used = |at: usize, is_device: bool| {
        let mut node = nodes[at / 2 * 13 % NODES].clone();
        if at.is_multiple_of(2) {
            node.foreign_use.cpu_milli = 1_000;
            node.foreign = phalanx_model::DeviceMask(u64::from(is_device));
        }
        Input::NodeObserved { node: Box::new(node) }
    };
    show(&format!("{what}: foreign CPU comes and goes"), times(run, 1_000, &|at| used(at, false)));
    show(&format!("{what}: foreign device comes and goes"), times(run, 1_000, &|at| used(at, true)));
    many(run, nodes, &format!("{what}: 1,000 removed"), |node| Input::NodeRemoved {
        node: node.name.clone(),
    });
    many(run, nodes, &format!("{what}: 1,000 drained"), |node| Input::DrainRequested {
        node: node.name.clone(),
    });
    let notice = |node: &Node| SpotNotice { node: node.name.clone(), ends_at: Timestamp(10_000_000) };
    many(run, nodes, &format!("{what}: 1,000 noticed"), |node| Input::SpotNoticed { notice: notice(node) });
    [None, Some(1), Some(5_000)].into_iter().for_each(|at_once| cancel(run, what, at_once));
}

/// An array of 10,000 tasks of which so many may run at once is cancelled: none of them, or all that may, run.
fn cancel(run: &Run, what: &str, running_max: Option<u32>) {
    let mut copy = Run { engine: run.engine.clone(), now: run.now, out: Outcome::default() };
    let id = 1_000_000;
    let tasks: Job = job(id, gang(1).devices(1)).array(10_000, running_max).build();
    copy.step(&[Input::JobSubmitted { job: Box::new(tasks) }]);
    let took = copy.step(&[Input::CancelRequested { job: phalanx_model::JobId(id), by: "bench".to_owned() }]);
    show(&format!("{what}: array of 10,000 cancelled, {running_max:?} at once"), vec![took]);
}

fn main() {
    let nodes = all_nodes();
    measure(&mut Run::new(&nodes), &nodes, "idle");
    measure(&mut Run::filled(&nodes), &nodes, "full, 50,000 pending");
}
