//! What would happen on a live system, and what happened to it: asked of a real daemon, held against what it does.

use jiff::tz::TimeZone;
use phalanx_api::protocol::{Answer, Verb};
use phalanx_model::{Amounts, Job, JobId, JobName, Queue, QueueName, Resource, Snapshot, Timestamp};
use phalanx_sim::command::{Command, Host};
use phalanx_sim::report::Progress;
use serde_json::Value;

use crate::story::settings;
use crate::support::{Bench, NODE_OF_8, gang, shell};

/// Prints into memory; files are those that there are.
#[derive(Default)]
struct Page(String);

impl Host for Page {
    fn words(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn print(&mut self, text: &[u8]) -> Result<(), String> {
        self.0.push_str(std::str::from_utf8(text).unwrap());
        Ok(())
    }

    fn zone(&mut self) -> TimeZone {
        TimeZone::UTC
    }

    fn seconds(&mut self) -> f64 {
        0.0
    }

    fn note(&mut self, text: &str) {
        panic!("{text}");
    }

    fn progress(&mut self, _: Option<Progress<'_>>) {}
}

fn told(words: &[&str]) -> String {
    let mut page = Page::default();
    Command::read(words).unwrap().run(&mut page).unwrap();
    page.0
}

fn document(words: &[&str]) -> Value {
    serde_json::from_str(&told(&[words, &["-o", "json"]].concat())).unwrap()
}

fn snapshot(bench: &Bench) -> Snapshot {
    match bench.ask(Verb::Snapshot) {
        Ok(Answer::Snapshot(snapshot)) => *snapshot,
        other => panic!("{other:?}"),
    }
}

fn name(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

/// Runs until it is told to stop, for at most an hour.
fn team_job(team: &str, devices: u32) -> Job {
    let mut job = shell(devices, "trap 'exit 0' TERM; while :; do sleep 0.05; done");
    job.name = JobName::new(team).unwrap();
    job.queue = name(team);
    gang(&mut job).needs.devices = 1;
    job.policy.time_limit_ms = Some(3_600_000);
    job
}

/// Four GPUs are each team's own, and vision has six.
fn two_teams(bench: &Bench) -> (JobId, JobId) {
    let queue =
        |text| Queue { guaranteed: Amounts::from([(Resource::Gpus, 4_000)]), ..Queue::named(name(text)) };
    let settings = Box::new(settings());
    bench.done(Verb::ApplyQueues { settings, queues: vec![queue("speech"), queue("vision")] });
    let own = bench.submit(team_job("vision", 4));
    bench.await_state(own, "running");
    let borrows = bench.submit(team_job("vision", 2));
    bench.await_state(borrows, "running");
    (own, borrows)
}

#[test]
fn what_was_foretold_of_a_live_system_is_what_it_does() {
    let bench = Bench::up_with(NODE_OF_8);
    let (own, borrows) = two_teams(&bench);
    let file = bench.path("now.json");
    std::fs::write(&file, serde_json::to_string(&snapshot(&bench)).unwrap()).unwrap();
    let wanted = bench.path("listen.yaml");
    std::fs::write(
        &wanted,
        "{name: listen, queue: speech, ranks: 4, resources: {gpus: 4}, run: 'true', time_limit: 1h}",
    )
    .unwrap();
    let foretold = document(&["whatif", file.to_str().unwrap(), "--job", wanted.to_str().unwrap()]);
    let gangs = foretold["gangs"].as_array().unwrap();
    let of = |job: JobId| &gangs.iter().find(|row| row["gang"]["job"] == job.0).unwrap()["then"];
    assert_eq!(of(own)["stops"], Value::Array(Vec::new()), "{foretold:#}");
    let stop = &of(borrows)["stops"][0];
    assert_eq!(stop["at"], foretold["from"], "{foretold:#}");

    let listen = bench.submit(team_job("speech", 4));
    bench.await_state(listen, "running");
    let evicted = bench.get(borrows).gangs[0].evicted.clone().unwrap();
    assert_eq!(stop["eviction"]["rule"], serde_json::to_value(&evicted.rule).unwrap());
    assert_eq!((stop["eviction"]["by"]["job"].as_u64(), evicted.by.job), (Some(listen.0), listen));
    assert_eq!(bench.get(own).gangs[0].evictions, 0);
}

#[test]
fn a_replay_tells_what_people_were_told() {
    let mut bench = Bench::up_with(NODE_OF_8);
    let (own, borrows) = two_teams(&bench);
    let listen = bench.submit(team_job("speech", 4));
    bench.await_state(listen, "running");
    bench.await_state(borrows, "pending");
    bench.kill();
    bench.up();
    bench.cancel(own);
    assert_eq!(bench.ended(own).state, "cancelled");
    bench.await_state(borrows, "running");
    let journal = bench.paths.journal();
    let replay = |options: &[&str]| document(&[&["replay", journal.to_str().unwrap()], options].concat());
    let all = replay(&[]);
    assert_eq!((&all["differing"], &all["remarks"]), (&Value::from(0), &Value::Array(Vec::new())), "{all:#}");
    for job in [own, borrows, listen] {
        let happened = all["happened"].as_array().unwrap();
        let replayed: Vec<(&str, &str)> = happened
            .iter()
            .filter(|line| line["job"] == job.0)
            .map(|line| (line["what"].as_str().unwrap(), line["detail"].as_str().unwrap()))
            .collect();
        let view = bench.get(job);
        let kept: Vec<(&str, &str)> =
            view.events.iter().map(|event| (event.what.as_str(), event.detail.as_str())).collect();
        assert_eq!(replayed, kept, "{job}");
    }
    // Before the crash it waited, and it is said why in the words of `why`.
    let gone =
        all["happened"].as_array().unwrap().iter().rfind(|line| line["what"] == "daemon begins").unwrap();
    let crash = Timestamp(gone["at"].as_u64().unwrap() - 1);
    let until = jiff::Timestamp::from_millisecond(i64::try_from(crash.0).unwrap()).unwrap().to_string();
    let then = replay(&["--until", &until, "--job", &borrows.to_string()]);
    let waits = &then["state"]["waits"][0];
    let last = then["happened"].as_array().unwrap().iter().rfind(|line| line["what"] == "pending").unwrap();
    let said = format!("{}: {}", waits["reason"].as_str().unwrap(), waits["sentence"].as_str().unwrap());
    assert_eq!(last["detail"], said.as_str(), "{then:#}");
}
