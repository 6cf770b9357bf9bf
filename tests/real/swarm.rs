//! kill -9 at random moments, over and over, with a mixed workload; then every job must have ended as it
//! should, and every rank of every attempt must have run exactly once.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use phalanx_api::client::ask_once;
use phalanx_api::protocol::{Answer, BillBy, NodeFilter, NodesView, Verb};
use phalanx_model::{DeviceMask, Ending, FailureClass, Job, JobId, LaunchKind, NodeName};

use crate::account::{assert_balances, bill};
use crate::support::{Bench, TWO_NODES_OF_8, gang, retry, shell};

const ITERATIONS: u64 = 60;

/// xorshift64*: Vigna 2016, "An experimental exploration of Marsaglia's xorshift generators, scrambled".
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(usize::try_from(self.below(of.len().max(1) as u64)).unwrap())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Quick,
    /// The last rank ends with 7, the others would run on.
    Fails,
    /// Rank 0 fails once, and then does not.
    FailsOnce,
    /// Until its file is there.
    Waits,
}

struct Known {
    number: u64,
    kind: Kind,
    size: u32,
    cancelled: bool,
    /// Once it has ended, it ends so for ever.
    ending: Option<Ending>,
}

struct Swarm {
    bench: Bench,
    random: Random,
    jobs: BTreeMap<JobId, Known>,
    next: u64,
}

#[test]
fn killed_at_any_moment_nothing_is_lost_doubled_or_left() {
    let given = std::env::var("PHALANX_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let seed: u64 = given.unwrap_or(20_261);
    println!("PHALANX_TEST_SEED={seed}");
    let bench = Bench::up_with(TWO_NODES_OF_8);
    let mut swarm = Swarm { bench, random: Random(seed), jobs: BTreeMap::new(), next: 0 };
    let begun = bill(&swarm.bench, &[]);
    for _ in 0..ITERATIONS {
        if swarm.random.below(4) == 0 {
            swarm.submit_into_the_kill();
        } else {
            swarm.act();
            std::thread::sleep(Duration::from_millis(swarm.random.below(61)));
            swarm.bench.kill();
            swarm.bench.up();
        }
        swarm.check();
    }
    swarm.finish();
    assert_balances(&begun, &bill(&swarm.bench, &[BillBy::Job]), 16);
}

fn is_shim(pid: i32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|b| *b == 0).any(|word| word == b"__shim")
}

/// Field 4 of `/proc/PID/stat`, behind the name in parentheses; its own pid when it is gone meanwhile.
fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
    fields.unwrap_or(pid)
}

impl Swarm {
    /// Every rank writes one line first: job number, attempt, rank.
    fn job(&mut self) -> (Job, Known) {
        let (number, random) = (self.next, &mut self.random);
        self.next += 1;
        let size = u32::try_from(1 + random.below(4)).unwrap();
        let kind = *random.pick(&[Kind::Quick, Kind::Fails, Kind::FailsOnce, Kind::Waits]).unwrap();
        let dir = self.bench.path("");
        let dir = dir.display();
        let rest = match kind {
            Kind::Quick => "exit 0".to_owned(),
            Kind::Fails => format!("[ $PHALANX_RANK = {} ] && exit 7; exec sleep 1000", size - 1),
            Kind::FailsOnce => format!(
                "[ $PHALANX_RANK = 0 ] && [ ! -e {dir}/failed-{number} ] && {{ : > {dir}/failed-{number}; exit 3; }}; exit 0"
            ),
            Kind::Waits => format!("while [ ! -e {dir}/go-{number} ]; do sleep 0.05; done"),
        };
        let mark = format!("echo {number} $PHALANX_ATTEMPT $PHALANX_RANK >> {dir}/marks; echo out {number}");
        let mut job = shell(size, &format!("{mark}; {rest}"));
        job.key = Some(format!("key-{number}"));
        job.policy.retry = retry(5, &[FailureClass::UserCode]);
        if kind == Kind::Fails {
            job.policy.retry.max = 0;
        }
        gang(&mut job).needs.devices = u32::try_from(1 + self.random.below(4)).unwrap();
        gang(&mut job).program.launch = LaunchKind::None;
        (job, Known { number, kind, size, cancelled: false, ending: None })
    }

    fn act(&mut self) {
        let unfinished: Vec<JobId> =
            self.jobs.iter().filter(|(_, k)| k.ending.is_none()).map(|(id, _)| *id).collect();
        let some = |random: &mut Random| random.pick(&unfinished).copied();
        match self.random.below(8) {
            0 => {
                if let Some(id) = some(&mut self.random) {
                    self.bench.cancel(id);
                    self.jobs.get_mut(&id).unwrap().cancelled = true;
                }
            }
            1 | 2 => {
                if let Some(id) = some(&mut self.random) {
                    let number = self.jobs[&id].number;
                    fs::write(self.bench.path(&format!("go-{number}")), "").unwrap();
                }
            }
            3 => {
                self.bench.done(Verb::Drain { node: NodeName::new("n2").unwrap(), by: None, reason: None });
            }
            4 => self.uncordon(),
            _ => {
                let (job, known) = self.job();
                let id = self.bench.submit(job);
                self.jobs.insert(id, known);
            }
        }
    }

    fn uncordon(&self) {
        self.bench.done(Verb::Uncordon { node: NodeName::new("n2").unwrap() });
    }

    /// Nobody knows whether the job was taken: the same key says it, or submits it.
    fn submit_into_the_kill(&mut self) {
        let (job, known) = self.job();
        let (socket, racing) = (self.bench.paths.socket(), job.clone());
        let submitting = std::thread::spawn(move || {
            ask_once(&socket, Verb::Submit { job: Box::new(racing), secrets: BTreeMap::new() })
        });
        std::thread::sleep(Duration::from_millis(self.random.below(8)));
        self.bench.kill();
        let acknowledged = match submitting.join().unwrap() {
            Ok(Answer::Submitted { job, .. }) => Some(job),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        };
        self.bench.up();
        let id = self.bench.submit(job);
        assert!(acknowledged.is_none_or(|a| a == id), "{acknowledged:?} became {id}");
        self.jobs.insert(id, known);
    }

    /// No device is held twice, every job is known, no end changes, no member has two shims.
    fn check(&mut self) {
        for node in self.nodes().nodes {
            let mut seen = node.free;
            for held in &node.held {
                assert!(seen.and(held.devices).is_empty(), "held twice: {node:?}");
                seen = seen.union(held.devices);
            }
            assert_eq!(seen, DeviceMask::first(8), "{node:?}");
        }
        for (id, known) in &mut self.jobs {
            let ending = self.bench.get(*id).ending;
            assert!(known.ending.is_none() || known.ending == ending, "job {id}: {ending:?}");
            known.ending = ending;
        }
        let mut shims: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for (token, pid) in self.bench.alive().into_iter().filter(|(_, pid)| is_shim(*pid)) {
            shims.entry(token).or_default().push(pid);
        }
        for (token, pids) in shims {
            // A shim's child is a copy of it until it becomes the rank.
            let shims = pids.iter().filter(|pid| !pids.contains(&parent(**pid))).count();
            assert!(shims <= 1, "{token} has {pids:?}");
        }
    }

    fn nodes(&self) -> NodesView {
        match self.bench.ask(Verb::FindNodes(NodeFilter::default())) {
            Ok(Answer::Nodes(nodes)) => nodes,
            other => panic!("{other:?}"),
        }
    }

    fn finish(&mut self) {
        self.uncordon();
        for known in self.jobs.values() {
            fs::write(self.bench.path(&format!("go-{}", known.number)), "").unwrap();
        }
        let mut marks: BTreeMap<(u64, u32, u32), u32> = BTreeMap::new();
        let views: Vec<_> = self.jobs.keys().map(|id| self.bench.ended(*id)).collect();
        for line in self.bench.lines("marks") {
            let words: Vec<u64> = line.split(' ').map(|w| w.parse().unwrap()).collect();
            let key = (words[0], u32::try_from(words[1]).unwrap(), u32::try_from(words[2]).unwrap());
            *marks.entry(key).or_default() += 1;
        }
        let doubled: Vec<_> = marks.iter().filter(|(_, n)| **n > 1).collect();
        assert!(doubled.is_empty(), "ran twice (job, attempt, rank): {doubled:?}");
        for view in views {
            let known = &self.jobs[&view.id];
            let cancelled = known.cancelled && matches!(view.ending, Some(Ending::Cancelled { .. }));
            let code = if known.kind == Kind::Fails { 7 } else { 0 };
            assert!(cancelled || view.exit_code == Some(code), "{:?}: {view:#?}", known.kind);
            if view.exit_code == Some(0) {
                let attempt = view.gangs[0].attempt;
                let ran = (0..known.size).all(|rank| marks.contains_key(&(known.number, attempt, rank)));
                assert!(ran, "a rank of attempt {attempt} of {} did not run: {marks:?}", view.id);
                let out = format!("out {}", known.number);
                let logs = self.bench.logs(view.id);
                assert_eq!(logs.len(), known.size as usize, "{logs:?}");
                assert!(logs.iter().all(|(_, line)| *line == out), "{logs:?}");
            }
        }
        self.check();
        assert!(self.nodes().nodes.iter().all(|n| n.held.is_empty()));
        self.bench.await_nobody();
    }
}
