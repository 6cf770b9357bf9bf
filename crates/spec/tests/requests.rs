//! Every kind of request, from a file and from flags to the model and back to a file.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::context;
use phalanx_model::{
    Axis, AxisKind, Collective, DomainLimit, Gang, Job, LaunchKind, Needs, NodeName, PartNeed, ResourceName,
};
use phalanx_spec::{ClusterFile, JobFile, SubmitFlags};
use proptest::prelude::*;

fn file(yaml: &str) -> JobFile {
    JobFile::from_yaml(&format!("{yaml}\nrun: x\n"), "job.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn job_of(file: JobFile) -> Job {
    file.into_job(context()).unwrap_or_else(|error| panic!("{error}"))
}

/// The gang of a file, which reads back as it was written out.
fn gang(yaml: &str) -> Gang {
    let file = file(yaml);
    let written = file.to_yaml().unwrap();
    let again =
        JobFile::from_yaml(&written, "again.yaml").unwrap_or_else(|error| panic!("{written}\n{error}"));
    let job = job_of(file);
    assert_eq!(job, job_of(again), "{written}");
    job.gangs.into_iter().next().unwrap()
}

fn from_flags(set: impl FnOnce(&mut SubmitFlags)) -> Gang {
    let mut flags = SubmitFlags::default();
    set(&mut flags);
    job_of(flags.over(file("")).unwrap_or_else(|error| panic!("{error}"))).gangs.remove(0)
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn models(needs: &Needs) -> Vec<(&str, u32)> {
    needs.models.iter().map(|need| (need.model.as_str(), need.speed_milli)).collect()
}

fn share(compute_milli: u32, memory_bytes: u64, trust: &str) -> Option<PartNeed> {
    Some(PartNeed::Share { compute_milli, memory_bytes, trust: trust.to_owned() })
}

/// Size, members per node, devices of a member.
fn shape(gang: &Gang) -> (u32, Option<u32>, u32) {
    (gang.size, gang.members_per_node, gang.needs.devices)
}

#[test]
fn any_of_several_models_may_do_at_a_speed_of_its_own() {
    let any = gang("resources: {gpus: H100|A100:8}");
    assert_eq!((shape(&any), models(&any.needs)), ((8, None, 1), vec![("H100", 1_000), ("A100", 1_000)]));
    assert_eq!(any, gang("resources: {gpus: {count: 8, models: [H100, A100]}}"));
    assert_eq!(any, from_flags(|f| f.gpus = some("H100|A100:8")));
    let speeds = gang("resources:\n  gpus:\n    count: 8\n    models: {H100: 1.0, A100: 0.4}");
    assert_eq!(models(&speeds.needs), [("H100", 1_000), ("A100", 400)]);
    assert_eq!(
        models(&gang("resources: {gpus: {count: 8, models: {H200 NVL: 1.35}}}").needs),
        [("H200 NVL", 1_350)]
    );
}

#[test]
fn each_rank_may_have_a_share_of_a_gpu() {
    let quarter = gang("resources: {gpus: 0.25}");
    assert_eq!((shape(&quarter), &quarter.needs.part), ((1, None, 0), &share(250, 0, "ada")));
    assert_eq!(quarter, from_flags(|f| f.gpus = some("0.25")));
    let many = gang("nodes: 2\nranks_per_node: 4\nresources: {gpus: L40S:1/3, cpus: 8}");
    assert_eq!((shape(&many), models(&many.needs)), ((8, Some(4), 0), vec![("L40S", 1_000)]));
    assert_eq!((&many.needs.part, many.needs.cpu_milli), (&share(333, 0, "ada"), 2_000));
    let flags = from_flags(|f| (f.gpus, f.nodes, f.ranks_per_node) = (some("0.25"), some("2"), some("4")));
    assert_eq!((shape(&flags), flags.needs.part), ((8, Some(4), 0), share(250, 0, "ada")));
    let long = gang(
        "ranks: 3\nresources: {gpus: {share: {compute: 0.25, memory: 10GB, trust: lab}, models: [A100]}}",
    );
    assert_eq!((shape(&long), long.needs.part), ((3, None, 0), share(250, 10_000_000_000, "lab")));
    let memory = gang("resources: {gpus: {share: {memory: 4GiB}}}");
    assert_eq!(memory.needs.part, share(0, 4 << 30, "ada"));
    assert_eq!(gang("resources: {gpus: {share: 1}}").needs.part, share(1_000, 0, "ada"));
    assert_eq!(gang("resources: {gpus: {share: 0.5, models: {A100: 0.5}}}").needs.part, share(500, 0, "ada"));
}

#[test]
fn each_rank_may_have_a_mig_slice() {
    let named = gang("ranks: 2\nresources: {gpus: {mig: 1g.10gb}}");
    assert_eq!(
        (shape(&named), &named.needs.part),
        ((2, None, 0), &Some(PartNeed::Profile("1g.10gb".to_owned())))
    );
    assert_eq!(named, from_flags(|f| (f.mig, f.ranks) = (some("MIG 1g.10gb"), some("2"))));
    assert_eq!(
        gang("resources: {gpus: {mig: 1G.10GB+me}}").needs.part,
        Some(PartNeed::Profile("1g.10gb+me".to_owned()))
    );
    let least = |compute_milli, memory_bytes| Some(PartNeed::Slice { compute_milli, memory_bytes });
    let both = gang("resources: {gpus: {mig: {compute: 2/7, memory: 20GB}}}").needs.part;
    assert_eq!(both, least(285, 20_000_000_000), "rounded down: two of seven slices are enough");
    assert_eq!(gang("resources: {gpus: {mig: {memory: 20GB}}}").needs.part, least(0, 20_000_000_000));
}

fn named(needs: &Needs) -> Vec<(&str, u64)> {
    needs.named.iter().map(|(name, amount)| (name.as_str(), *amount)).collect()
}

#[test]
fn resources_go_by_name() {
    let total = gang("ranks: 4\nresources: {nic: 8, disk_gb: 100, power_w: 2800, cpus: 4}");
    assert_eq!(named(&total.needs), [("disk_gb", 25), ("nic", 2), ("power_w", 700)]);
    assert_eq!(total.needs.cpu_milli, 1_000);
    let per_node = gang("nodes: 2\nranks_per_node: 8\nresources: {gpus: 8, nic: 8}");
    assert_eq!(named(&per_node.needs), [("nic", 1)]);
    let flags = from_flags(|f| {
        (f.ranks, f.resources) = (some("2"), vec!["nic=2".to_owned(), "disk_gb=10".to_owned()])
    });
    assert_eq!(named(&flags.needs), [("disk_gb", 5), ("nic", 1)]);
    let over = SubmitFlags { resources: vec!["nic=4".to_owned()], ..SubmitFlags::default() };
    let over = job_of(over.over(file("ranks: 4\nresources: {nic: 8, disk_gb: 100}")).unwrap());
    assert_eq!(named(&over.gangs[0].needs), [("disk_gb", 25), ("nic", 1)]);
}

fn names(nodes: &[NodeName]) -> Vec<&str> {
    nodes.iter().map(NodeName::as_str).collect()
}

#[test]
fn nodes_are_left_out_preferred_and_had_alone() {
    let all = gang("nodes: {count: 2, of: [d, a, c], except: [b], prefer: [c, a]}\nexclusive: true");
    let needs = &all.needs;
    assert_eq!((shape(&all), needs.is_exclusive), ((2, Some(1), 0), true));
    assert_eq!(
        (names(&needs.nodes), names(&needs.avoid), names(&needs.prefer)),
        (vec!["a", "c", "d"], vec!["b"], vec!["a", "c"])
    );
    // Without a number, resources are the total of the job.
    let any = gang("nodes: {except: [n-10, n-2]}\nresources: {gpus: 8, cpus: 16}");
    assert_eq!(
        (shape(&any), any.needs.cpu_milli, names(&any.needs.avoid)),
        ((8, None, 1), 2_000, vec!["n-2", "n-10"])
    );
    let few = gang("nodes: {of: [a, b]}\nresources: {gpus: 4}\nlaunch: torchrun");
    assert_eq!((shape(&few), names(&few.needs.nodes)), ((1, Some(1), 4), vec!["a", "b"]));
    let flags = from_flags(|f| {
        (f.gpus, f.exclusive) = (some("4"), true);
        (f.exclude, f.prefer) = (vec!["x".to_owned()], vec!["y".to_owned()]);
    });
    assert_eq!((shape(&flags), flags.needs.is_exclusive), ((4, None, 1), true));
    assert_eq!((names(&flags.needs.avoid), names(&flags.needs.prefer)), (vec!["x"], vec!["y"]));
    let over = SubmitFlags { nodes: some("2"), ..SubmitFlags::default() };
    let over = job_of(over.over(file("nodes: {except: [x]}")).unwrap()).gangs.remove(0);
    assert_eq!((shape(&over), names(&over.needs.avoid)), ((2, Some(1), 0), vec!["x"]));
}

#[test]
fn ranks_are_kept_apart() {
    let spread = |gang: &Gang| -> Vec<String> {
        gang.topology.spread.iter().map(|spread| format!("{}@{}", spread.max, spread.level)).collect()
    };
    assert_eq!(spread(&gang("ranks: 3\ntopology: {spread: 1@rack}")), ["1@rack"]);
    assert_eq!(spread(&gang("ranks: 3\ntopology: {spread: {level: rack, max: 2}}")), ["2@rack"]);
    let both =
        gang("ranks: 3\ntopology: {level: block, mode: required, spread: [2@rack, {level: node, max: 1}]}");
    assert_eq!(
        (spread(&both), both.topology.required.is_some()),
        (vec!["2@rack".to_owned(), "1@node".to_owned()], true)
    );
    assert_eq!(
        spread(&gang("launch: torchrun\nnodes: 4\nranks_per_node: 8\ntopology: {spread: 16@rack}")),
        ["2@rack"]
    );
    assert_eq!(spread(&from_flags(|f| f.spread = vec!["1@rack".to_owned()])), ["1@rack"]);
    let over = SubmitFlags { topology: some("block"), ..SubmitFlags::default() };
    let over = job_of(over.over(file("topology: {spread: 1@rack}")).unwrap()).gangs.remove(0);
    assert_eq!((spread(&over), over.topology.preferred.is_some()), (vec!["1@rack".to_owned()], true));
}

#[test]
fn a_slice_brings_its_chips() {
    let slice = gang("topology: {slice: 4x4x8}");
    assert_eq!((slice.topology.slice, shape(&slice)), (Some([4, 4, 8]), (128, None, 1)));
    assert_eq!(slice, from_flags(|f| f.slice = some("4x4x8")));
    assert_eq!(slice, gang("topology: {slice: 4x4x8}\nresources: {gpus: 128}"));
    let hosts = gang("topology: {slice: 4x4}\nnodes: 4\nlaunch: jax");
    assert_eq!((hosts.topology.slice, shape(&hosts)), (Some([4, 4, 1]), (4, Some(1), 4)));
    assert_eq!(shape(&gang("topology: {slice: 4x4}\nranks: 4")), (4, None, 4));
}

fn grid(gang: &Gang) -> Vec<(AxisKind, u32)> {
    gang.grid.iter().map(|axis| (axis.kind, axis.degree)).collect()
}

#[test]
fn parallelism_is_a_grid_of_the_ranks() {
    let usual = gang("resources: {gpus: 64}\nparallelism: {pipeline: 2, data: 2, tensor: 8, expert: 2}");
    let order = [(AxisKind::Tensor, 8), (AxisKind::Expert, 2), (AxisKind::Data, 2), (AxisKind::Pipeline, 2)];
    assert_eq!((usual.size, grid(&usual)), (64, order.to_vec()));
    let sent: Vec<(Collective, u64, u32)> =
        usual.grid.iter().map(|axis| (axis.collective, axis.bytes, axis.calls)).collect();
    let activation = 4096 * 4096 * 2;
    assert_eq!(
        sent,
        [
            (Collective::AllReduce, activation, 512),
            (Collective::AllToAll, activation, 512),
            (Collective::AllReduce, 1_000_000_000, 1),
            (Collective::PointToPoint, activation / 8, 8),
        ]
    );
    let own =
        gang("parallelism: [tp: 4, pp: 2, dp: {degree: 4, collective: all_gather, bytes: 64MiB, calls: 2}]");
    assert_eq!(
        (own.size, grid(&own)[1]),
        (32, (AxisKind::Pipeline, 2)),
        "ordered by the file, which says the ranks"
    );
    let gathers = Axis {
        kind: AxisKind::Data,
        degree: 4,
        collective: Collective::AllGather,
        bytes: 64 << 20,
        calls: 2,
    };
    assert_eq!(own.grid[2], gathers);
    let flags = from_flags(|f| (f.gpus, f.parallel) = (some("32"), some("data=4,tensor=8")));
    assert_eq!(grid(&flags), [(AxisKind::Tensor, 8), (AxisKind::Data, 4)]);
    let gradients = gang("traffic: {bytes: 3GB}\nparallelism: {data: 4}").grid[0].bytes;
    assert_eq!(gradients, 3_000_000_000, "as the job says");
}

/// A member of the gang is what a launcher starts on one node: what stays inside of it is no axis of the gang's grid,
/// and as many rings leave it as it has ranks.
#[test]
fn launchers_hold_the_inner_axes() {
    let agents = |parallelism: &str, launch: &str| {
        let said = format!("nodes: 4\nresources: {{gpus: 8}}\nlaunch: {launch}\nparallelism: {parallelism}");
        let gang = gang(&said);
        let sent = gang.grid.iter().map(|axis| (axis.kind, axis.degree, axis.bytes)).collect::<Vec<_>>();
        (gang.size, gang.program.launch, sent)
    };
    let data = |degree, bytes| (AxisKind::Data, degree, bytes);
    let whole = agents("{tensor: 8, data: {degree: 4, bytes: 1MB}}", "torchrun");
    assert_eq!(
        whole,
        (4, LaunchKind::Torchrun, vec![data(4, 8_000_000)]),
        "one ring for each of eight ranks"
    );
    let cut = agents("{tensor: 2, data: {degree: 16, bytes: 1MB}}", "torchrun");
    assert_eq!(
        cut.2,
        [data(4, 2_000_000)],
        "of a ring that runs through the ranks of a node one link leaves it"
    );
    let experts = agents("{tensor: 2, expert: {degree: 16, bytes: 1MB}}", "mpi");
    assert_eq!(experts.2, [(AxisKind::Expert, 4, 8_000_000)], "every rank sends to all");
    let jax = agents("{tensor: 8, data: {degree: 4, bytes: 1MB}}", "jax");
    assert_eq!(jax.2, [data(4, 8_000_000)], "one process for all GPUs of a node");
}

#[test]
fn roles_stand_beside_the_ranks() {
    let gang = gang(
        "
nodes: {count: 2, except: [bad]}
resources: {gpus: 8, cpus: 16}
exclusive: true
setup: export A=1
env: {MODE: train, LEVEL: '1'}
secrets: [TOKEN]
workdir: src
notify: tell
roles:
  worker-10: {count: 2}
  worker-2: {env: {LEVEL: '2'}}
  launcher:
    resources: {cpus: 1, memory: 2GB, nic: 1}
    run: mpirun train
    env: {MODE: launch}
  ps: {count: 4, resources: {gpus: 'L40S:1', cpus: 8}, command: [serve, --ps]}
  web: {resources: {gpus: {mig: 1g.10gb}}, command: [web]}",
    );
    let names: Vec<(&str, u32)> = gang.roles.iter().map(|role| (role.name.as_str(), role.size)).collect();
    assert_eq!(names, [("launcher", 1), ("ps", 4), ("web", 1), ("worker-2", 1), ("worker-10", 2)]);
    assert_eq!((gang.size, gang.member_count()), (16, 25));
    let [launcher, ps, web, two, ten] = gang.roles.as_slice() else { panic!("five roles") };
    let needs = &launcher.needs;
    assert_eq!((needs.devices, needs.cpu_milli, needs.memory_bytes), (0, 1_000, 2_000_000_000));
    assert_eq!(
        (self::named(needs), self::names(&needs.avoid), needs.is_exclusive),
        (vec![("nic", 1)], vec!["bad"], true)
    );
    let program = launcher.program.as_ref().unwrap();
    assert_eq!((program.launch, program.workdir.as_str()), (LaunchKind::Ranks, "/home/ada/src"));
    assert_eq!(program.argv[2], "set -e\nexport A=1\nset +e\nmpirun train");
    assert_eq!((program.env["MODE"].as_str(), program.env["LEVEL"].as_str()), ("launch", "1"));
    assert!(program.secrets.contains_key("TOKEN") && program.notify.is_none());
    assert_eq!((ps.needs.devices, ps.needs.cpu_milli, models(&ps.needs)), (1, 8_000, vec![("L40S", 1_000)]));
    assert_eq!(web.needs.part, Some(PartNeed::Profile("1g.10gb".to_owned())));
    let two = two.program.as_ref().unwrap();
    assert_eq!((&two.argv, two.env["LEVEL"].as_str()), (&gang.program.argv, "2"));
    assert_eq!(ten.program, None, "runs what the job runs");
}

#[test]
fn the_launcher_of_an_mpi_job_may_be_a_role() {
    let launches = |yaml: &str| {
        let file = JobFile::from_yaml(&format!("launch: mpi\nnodes: 2\n{yaml}"), "job.yaml").unwrap();
        let gang = job_of(file).gangs.remove(0);
        let roles = gang.roles.iter().map(|role| role.program.as_ref().map(|program| program.launch));
        (gang.program.argv.last().cloned().unwrap_or_default(), roles.collect::<Vec<_>>())
    };
    let by_role = launches("roles: {a: {run: mpirun x}, b: {run: watch}}");
    assert_eq!(by_role, ("mpirun x".to_owned(), vec![Some(LaunchKind::Mpi), Some(LaunchKind::Ranks)]));
    let by_job = launches("run: mpirun x\nroles: {a: {run: watch}, b: {}}");
    assert_eq!(
        by_job,
        ("mpirun x".to_owned(), vec![Some(LaunchKind::Ranks), None]),
        "b runs what the job runs"
    );
}

#[test]
fn a_cluster_counts_resources_by_name() {
    let text = "
levels: [cluster, rack]
nodes:
  - {name: a, devices: {count: 8}, resources: {nic: 8, disk_gb: 7000}, gpu_sharing: {compute_limit: 2.0}, path: {rack: r1}}
  - {name: b, devices: {count: 8}, nic_bandwidth: 400Gb/s, path: {rack: r2}}
limits:
  - {level: rack, resource: power_w, amount: 40000}
  - {path: {rack: r2}, resource: power_w, amount: 20000}
";
    let cluster =
        ClusterFile::from_yaml(text, "c").unwrap().into_cluster().unwrap_or_else(|error| panic!("{error}"));
    let nodes = cluster.nodes(&mut Nothing).unwrap();
    let named = |node: usize| -> Vec<(&str, u64)> {
        nodes[node].machine.named.iter().map(|(name, amount)| (name.as_str(), *amount)).collect()
    };
    assert_eq!((named(0), nodes[0].machine.share_limit_milli), (vec![("disk_gb", 7_000), ("nic", 8)], 2_000));
    assert_eq!(
        (named(1), nodes[1].machine.share_limit_milli),
        (vec![("nic", 1)], 0),
        "as many as the machine has"
    );
    let limit = |path: Option<&[&str]>, amount| DomainLimit {
        level: "rack".to_owned().try_into().unwrap(),
        path: path.map(|path| path.iter().map(|name| (*name).to_owned().try_into().unwrap()).collect()),
        resource: ResourceName::new("power_w").unwrap(),
        amount,
    };
    assert_eq!(cluster.levels.limits, [limit(None, 40_000), limit(Some(&["cluster", "r2"]), 20_000)]);
}

#[test]
fn nodes_stand_in_a_torus() {
    let text = "
tori: [{name: pod, chips: 4x4x8, host: 2x2x1, wraps: xyz, cube: 4, link: 50GB/s}]
nodes:
  - {name: \"t[0-15]\", devices: {count: 4}, torus: {name: pod}}
  - {name: \"t[16-17]\", devices: {count: 4}, torus: {name: pod, at: \"2,0,7\"}}
  - {name: other, devices: {count: 4}}
";
    let cluster =
        ClusterFile::from_yaml(text, "c").unwrap().into_cluster().unwrap_or_else(|error| panic!("{error}"));
    let torus = &cluster.levels.tori[0];
    assert_eq!((torus.chips, torus.host_chips, torus.wraps), ([4, 4, 8], [2, 2, 1], [true; 3]));
    assert_eq!((torus.cube, torus.is_twisted, torus.link_mb_per_s), (4, false, 50_000));
    let nodes = cluster.nodes(&mut Nothing).unwrap();
    let at = |node: usize| nodes[node].torus.map(|place| place.at);
    assert_eq!(
        [at(0), at(1), at(2), at(4), at(15)],
        [Some([0, 0, 0]), Some([2, 0, 0]), Some([0, 2, 0]), Some([0, 0, 1]), Some([2, 2, 3])]
    );
    assert_eq!([at(16), at(17), at(18)], [Some([2, 0, 7]), Some([0, 2, 7]), None]);
}

/// No topology text, one CPU.
struct Nothing;

impl phalanx_spec::Hardware for Nothing {
    type Error = std::convert::Infallible;

    fn topology(&mut self, _: &str) -> Result<phalanx_model::Machine, Self::Error> {
        Ok(phalanx_model::Machine::bare(phalanx_model::Origin::Declared))
    }

    fn default_amounts(&mut self) -> (u64, u64) {
        (1_000, 1 << 30)
    }
}

proptest! {
    #[test]
    fn no_value_panics(
        field in prop::sample::select(vec!["resources: {gpus", "resources: {nic", "resources: {gpus: {share", "resources: {gpus: {mig",
            "resources: {gpus: {count: 1, models", "topology: {spread", "topology: {slice", "parallelism", "parallelism: {tensor",
            "roles", "roles: {a", "roles: {a: {resources", "nodes: {except", "exclusive"]),
        value in "[-\\[\\]{}:,@a-z0-9./|=\" \\n\\t&*!#'é]{0,30}",
    ) {
        let text = format!("{field}: {value}{}\nrun: x\n", "}".repeat(field.matches('{').count()));
        let _ = JobFile::from_yaml(&text, "f").map(|file| file.into_job(context())).map_err(|error| error.to_string());
    }

    /// The axes between members and those inside of one multiply to the ranks.
    #[test]
    fn grids_hold_all_ranks(tensor in 0_u32..4, data in 0_u32..4, pipeline in 0_u32..3, per_node in 0_u32..4) {
        let degrees = [1 << tensor, 1 << data, 1 << pipeline];
        let ranks: u32 = degrees.iter().product();
        let per_node = (1 << per_node).min(ranks);
        let text = format!("nodes: {}\nranks_per_node: {per_node}\nlaunch: torchrun\nparallelism: {{tensor: {}, data: {}, pipeline: {}}}",
            ranks / per_node, degrees[0], degrees[1], degrees[2]);
        if per_node >= degrees[0] {
            let gang = gang(&text);
            prop_assert_eq!(gang.grid.iter().map(|axis| axis.degree).product::<u32>(), gang.size);
        }
    }
}
