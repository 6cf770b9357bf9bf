//! One story, for all worlds: what happens, and what the simulator decides on it. Two nodes of 8 GPUs, two teams.

use std::collections::BTreeMap;

use phalanx_engine::Config;
use phalanx_model::{
    Amounts, Change, Class, Exit, Gang, Input, Job, JobId, JobName, Needs, NodeName, Owner, Policy, Program,
    Queue, QueueName, Resource, Settings, Timestamp, Topology, Turn,
};
use phalanx_scenario::{Event, Script};
use phalanx_sim::{Faults, World};

/// What happens, each after everything before it has come to rest.
pub(crate) enum Do {
    /// So many ranks of one GPU each, in a queue; they run until they are told to end.
    Submit(&'static str, &'static str, u32),
    End(&'static str),
    Cancel(&'static str),
    /// A node, by its place among those of the cluster.
    Cordon(usize),
    Uncordon(usize),
}

/// One team borrows nearly all, the other takes back its own, a node is closed and opened, and everybody gets their turn.
pub(crate) const STORY: [Do; 14] = [
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

pub(crate) const TEAMS: [&str; 2] = ["speech", "vision"];

/// Each team has a half of its own.
pub(crate) fn queues() -> [Queue; 2] {
    TEAMS.map(|name| {
        let guaranteed = Amounts::from([(Resource::Gpus, 8_000)]);
        Queue { guaranteed, ..Queue::named(QueueName::new(name).unwrap()) }
    })
}

/// Young jobs make way too.
pub(crate) fn settings() -> Settings {
    let settings = Settings::default();
    let classes = settings.classes.iter().map(|class| Class { min_run_ms: 0, ..class.clone() });
    Settings { classes: classes.collect(), ..settings }
}

/// The name of a job: they are numbered in the order in which they are submitted.
pub(crate) fn job_name(job: JobId) -> &'static str {
    let names =
        STORY.iter().filter_map(|act| if let Do::Submit(name, ..) = act { Some(*name) } else { None });
    (1..).zip(names).find(|(number, _)| JobId(*number) == job).unwrap().1
}

/// Decisions, act by act, on the nodes that these facts tell of, and how many ranks of each job run then.
pub(crate) fn simulated(
    cluster: &[Input],
    node: impl Fn(usize) -> NodeName,
) -> Vec<(Vec<Change>, BTreeMap<String, usize>)> {
    let mut world = World::new(Config::default(), Faults::none(), 0).keeping_events().keeping_promises();
    for fact in cluster {
        match fact {
            Input::LevelsConfigured { levels } => world.configure(levels.clone()).unwrap(),
            Input::NodeObserved { node } if !world.declared().any(|(known, _)| known.name == node.name) => {
                world.add_node((**node).clone()).unwrap();
            }
            _ => {}
        }
    }
    world.tell([Input::SettingsConfigured { settings: Box::new(settings()) }]).unwrap();
    world.tell(queues().map(|queue| Input::QueueObserved { queue: Box::new(queue) })).unwrap();
    let mut ids: BTreeMap<&str, JobId> = BTreeMap::new();
    let acts = STORY.iter().map(|act| {
        match act {
            Do::Submit(name, queue, ranks) => {
                let id = world.submit(&job(name, queue, *ranks), &Script::default()).unwrap();
                assert_eq!(job_name(id), *name);
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
        let changed = |(_, event)| if let Event::Changed(change) = event { Some(change) } else { None };
        let changes = world.take_events().into_iter().filter_map(changed).collect();
        let mut running: BTreeMap<String, usize> = BTreeMap::new();
        for member in world.living() {
            *running.entry(job_name(member.gang.job).to_owned()).or_default() += 1;
        }
        (changes, running)
    });
    acts.collect()
}

/// So many ranks of one GPU each.
fn job(name: &str, queue: &str, ranks: u32) -> Job {
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
