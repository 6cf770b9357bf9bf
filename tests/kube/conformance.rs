//! One story, told to the simulator and to a cluster: the same jobs start at the same places, in the same order. The story is
//! the one that the simulator and a daemon with real processes decide alike.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_controlplane::{Api, Fleet};
use phalanx_engine::Config;
use phalanx_kube::books::{Books, Event, Options};
use phalanx_model::{
    Amounts, Change, Class, Exit, Gang, Input, Job, JobId, JobName, Needs, NodeName, Owner, Policy, Program,
    Queue, QueueName, Resource, Settings, Timestamp, Topology, Turn,
};
use phalanx_scenario::{Event as Told, Script};
use phalanx_sim::{Faults, World};
use serde_json::{Value, json};

use crate::queues::{QUEUES, define};
use crate::support::{Cluster, JOBS, PODS, job};

/// What happens, each after everything before it has come to rest.
enum Do {
    /// So many ranks of one GPU each, in a queue; they run until they are told to end.
    Submit(&'static str, &'static str, u32),
    End(&'static str),
    Cancel(&'static str),
    Cordon(usize),
    Uncordon(usize),
}

/// One team borrows nearly all, the other takes back its own, a node is closed and opened, and everybody gets their turn.
const STORY: [Do; 14] = [
    Do::Submit("wide", "speech", 12),
    Do::Submit("small", "speech", 2),
    Do::Submit("own", "vision", 8),
    Do::Submit("later", "vision", 4),
    Do::Cordon(1),
    Do::End("own"),
    Do::Submit("tiny", "speech", 1),
    Do::End("small"),
    Do::Cancel("later"),
    Do::Uncordon(1),
    Do::Submit("pair", "vision", 2),
    Do::End("tiny"),
    Do::End("wide"),
    Do::End("pair"),
];

const TEAMS: [&str; 2] = ["speech", "vision"];

/// Which attempt of which job, with the nodes and devices of its ranks.
type Start = (String, u32, Vec<String>);

/// Starts in their order, and how many ranks of each job run once all is at rest.
#[derive(Default)]
struct Rest {
    starts: Vec<Start>,
    running: BTreeMap<String, usize>,
}

fn queue(name: &str) -> Queue {
    let guaranteed = Amounts::from([(Resource::Gpus, 8_000)]);
    Queue { guaranteed, ..Queue::named(QueueName::new(name).unwrap()) }
}

fn model_job(name: &str, queue: &str, ranks: u32) -> Job {
    Job {
        id: JobId(0),
        name: JobName::new(name).unwrap(),
        key: None,
        owner: Owner { uid: 0, gid: 0, name: "client".to_owned() },
        queue: QueueName::new(queue).unwrap(),
        priority: 0,
        submitted_at: Timestamp(0),
        gangs: vec![Gang {
            size: ranks,
            min: ranks,
            max: ranks,
            needs: Needs { devices: 1, ..Needs::default() },
            members_per_node: None,
            topology: Topology::default(),
            traffic: None,
            program: Program::default(),
            roles: Vec::new(),
            grid: Vec::new(),
        }],
        policy: Policy::default(),
        turn: Turn::default(),
    }
}

/// Nodes of the same shape as those of the cluster: as the scheduler itself reads them.
fn facts(fleet: &Fleet) -> Vec<Input> {
    let options = Options::of_queue(QueueName::new("default").unwrap());
    let mut books = Books::new(options);
    for at in 0..fleet.nodes {
        let node = serde_json::from_value(fleet.node(at)).unwrap();
        books.observe(Timestamp(0), Event::Node(Box::new(node)));
    }
    books.begin(Timestamp(0))
}

/// What the simulator decides, act by act.
fn simulated(fleet: &Fleet) -> Vec<Rest> {
    let mut world = World::new(Config::default(), Faults::none(), 0).keeping_events().keeping_promises();
    for fact in facts(fleet) {
        match fact {
            Input::LevelsConfigured { levels } => world.configure(levels).unwrap(),
            Input::NodeObserved { node } => world.add_node(*node).unwrap(),
            _ => {}
        }
    }
    let settings = Settings::default();
    let classes = settings.classes.iter().map(|class| Class { min_run_ms: 0, ..class.clone() }).collect();
    let settings = Box::new(Settings { classes, ..settings });
    world.tell([Input::SettingsConfigured { settings }]).unwrap();
    world.tell(TEAMS.map(|name| Input::QueueObserved { queue: Box::new(queue(name)) })).unwrap();
    let node = |at: usize| NodeName::new(Fleet::name(at)).unwrap();
    let mut ids: BTreeMap<&str, JobId> = BTreeMap::new();
    let mut rests = Vec::new();
    for act in &STORY {
        match act {
            Do::Submit(name, queue, ranks) => {
                let id = world.submit(&model_job(name, queue, *ranks), &Script::default()).unwrap();
                ids.insert(*name, id);
            }
            Do::End(name) => {
                let of =
                    |world: &World| world.living().into_iter().find(|member| member.gang.job == ids[name]);
                while let Some(member) = of(&world) {
                    world.end_member(member, Exit::succeeded()).unwrap();
                }
            }
            Do::Cancel(name) => {
                world.tell([Input::CancelRequested { job: ids[name], by: "client".to_owned() }]).unwrap();
            }
            Do::Cordon(at) => world.tell([Input::NodeCordoned { node: node(*at) }]).unwrap(),
            Do::Uncordon(at) => world.tell([Input::NodeUncordoned { node: node(*at) }]).unwrap(),
        }
        world.advance_to(world.now().plus(20_000)).unwrap();
        let name = |job: JobId| ids.iter().find(|(_, id)| **id == job).unwrap().0.to_string();
        let placed = |(_, event)| match event {
            Told::Changed(Change::GangPlaced { gang, attempt, placement }) => {
                let slots = placement.slots.iter().map(|slot| format!("{}:{}", slot.node, slot.devices));
                Some((name(gang.job), attempt, slots.collect()))
            }
            _ => None,
        };
        let starts = world.take_events().into_iter().filter_map(placed).collect();
        let mut running: BTreeMap<String, usize> = BTreeMap::new();
        for member in world.living() {
            *running.entry(name(member.gang.job)).or_default() += 1;
        }
        rests.push(Rest { starts, running });
    }
    rests
}

/// Starts in the order in which they were seen, with what was seen of each rank.
type Seen = Vec<((String, u32), BTreeMap<u32, String>)>;

/// Bindings as the API server tells them.
fn watch(api: &Api) -> Arc<Mutex<Seen>> {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let version = api.get("/api/v1/pods?limit=1").unwrap()["metadata"]["resourceVersion"].clone();
    let path = format!("/api/v1/pods?watch=true&resourceVersion={}", version.as_str().unwrap());
    let (events, shared) = (api.watch(&path).unwrap(), Arc::clone(&seen));
    std::thread::spawn(move || {
        for event in events.map_while(Result::ok) {
            let pod = &event["object"];
            let said = |key: &str| pod["metadata"]["annotations"][format!("phalanx.dev/{key}")].as_str();
            let (Some(node), Some(rank)) = (pod["spec"]["nodeName"].as_str(), said("rank")) else { continue };
            let job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"].as_str().unwrap().to_owned();
            let start = (job, said("attempt").unwrap().parse::<u32>().unwrap());
            let place = format!("{node}:{}", said("devices").unwrap());
            let mut seen = shared.lock().unwrap();
            let at = seen.iter().position(|(known, _)| *known == start).unwrap_or_else(|| {
                seen.push((start, BTreeMap::new()));
                seen.len() - 1
            });
            seen[at].1.insert(rank.parse().unwrap(), place);
        }
    });
    seen
}

fn act(cluster: &Cluster, act: &Do, is_running: impl Fn(&str) -> bool) {
    let cordon = |at: usize, is: bool| {
        let path = format!("/api/v1/nodes/{}", Fleet::name(at));
        cluster.api().patch(&path, &json!({ "spec": { "unschedulable": is } })).unwrap();
        // Nothing tells that the scheduler has seen it.
        std::thread::sleep(Duration::from_secs(2));
    };
    match act {
        Do::Submit(name, queue, ranks) => {
            let mut job = job(name, *ranks, 1, &json!({}));
            job["metadata"]["labels"] = json!({ "phalanx.dev/queue": queue });
            job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
            cluster.create(JOBS, &job);
            let of_it = |cluster: &Cluster| {
                cluster.seats().into_iter().filter(|seat| seat.gang == *name).collect::<Vec<_>>()
            };
            let first = cluster.until("its pods", |cluster| {
                let seats = of_it(cluster);
                (seats.len() == *ranks as usize).then(|| seats[0].name.clone())
            });
            if !is_running(name) {
                cluster.until_explained(&first, "");
            }
        }
        Do::End(name) => {
            let end = json!({ "metadata": { "annotations": { "controlplane.phalanx.dev/succeed-after": "100ms" } } });
            for seat in cluster.seats().iter().filter(|seat| seat.gang == *name) {
                cluster.api().patch(&format!("{PODS}/{}", seat.name), &end).unwrap();
            }
        }
        Do::Cancel(name) => {
            cluster.api().delete(&format!("{JOBS}/{name}?propagationPolicy=Background")).unwrap();
            cluster.until("it is gone", |cluster| {
                (!cluster.seats().iter().any(|seat| seat.gang == *name)).then_some(())
            });
        }
        Do::Cordon(at) => cordon(*at, true),
        Do::Uncordon(at) => cordon(*at, false),
    }
}

#[test]
fn one_story_is_decided_alike_by_the_simulator_and_on_a_cluster() {
    let fleet = Fleet::new(2);
    let expected = simulated(&fleet);
    assert!(
        expected.iter().any(|rest| rest.starts.iter().any(|(_, attempt, _)| *attempt > 1)),
        "nobody made way"
    );
    let mut cluster = Cluster::of(2);
    define(&cluster);
    for name in TEAMS {
        let queue: Value = json!({
            "apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": { "name": name },
            "spec": { "guaranteed": { "gpus": 8 } },
        });
        cluster.create(QUEUES, &queue);
    }
    let seen = watch(cluster.api());
    cluster.schedule(0);
    let mut told = 0;
    for (at, (doing, rest)) in STORY.iter().zip(&expected).enumerate() {
        act(&cluster, doing, |name| rest.running.contains_key(name));
        told += rest.starts.len();
        cluster.until(&format!("act {at}, to run: {:?}", rest.running), |cluster| {
            let mut running: BTreeMap<String, usize> = BTreeMap::new();
            for seat in cluster.seats().iter().filter(|seat| seat.phase == "Running") {
                *running.entry(seat.gang.clone()).or_default() += 1;
            }
            (running == rest.running && seen.lock().unwrap().len() >= told).then_some(())
        });
    }
    let expected: Vec<Start> = expected.into_iter().flat_map(|rest| rest.starts).collect();
    let seen = seen.lock().unwrap().clone();
    let seen: Vec<Start> = seen
        .into_iter()
        .map(|((job, attempt), slots)| (job, attempt, slots.into_values().collect()))
        .collect();
    assert_eq!(seen, expected);
}
