//! Job files and flags, turned into the model.

mod common;

use common::context;
use phalanx_model::{Advisory, FailureClass, Gang, Job, LaunchKind, Pattern, SecretSource};
use phalanx_spec::{JobFile, Place, RANKS_PER_NODE_ENV, SubmitFlags};
use proptest::prelude::*;

fn job(yaml: &str) -> Job {
    let file = JobFile::from_yaml(yaml, "job.yaml").unwrap_or_else(|error| panic!("{error}"));
    file.into_job(context()).unwrap_or_else(|error| panic!("{error}"))
}

fn gang(yaml: &str) -> Gang {
    job(&format!("{yaml}\nrun: x")).gangs.remove(0)
}

/// Size, members per node, devices per member.
fn shape(yaml: &str) -> (u32, Option<u32>, u32) {
    let gang = gang(yaml);
    assert_eq!((gang.min, gang.max), (gang.size, gang.size));
    (gang.size, gang.members_per_node, gang.needs.devices)
}

const FULL: &str = "\
# yaml-language-server: $schema=./job.schema.json
name: llama-8b
queue: research
priority: 100
nodes: 4
resources: {gpus: H100:8, cpus: 64, memory: 512GB}
topology: {level: rack, mode: required, segments: [16@leaf, {size: 8, level: node}]}
launch: torchrun
env: {NCCL_DEBUG: WARN, STEPS: 08, FAST: true}
secrets: {HF_TOKEN: , WANDB: {file: keys/wandb}}
workdir: src
setup: |
  uv sync
run: |
  python train.py --ckpt $PHALANX_CKPT_DIR
time_limit: 24h
start_deadline: 2m
checkpoint: {dir: /ckpt/llama, interval: 15m, signal: USR1, grace: 120s}
retry: {max: 3, on: [node_failure, preemption, error], backoff: 10s, backoff_max: 10m}
grace: 45s
traffic: {pattern: all_to_all, bytes: 512MB, compute: 80ms}
rdma: true
notify: https://example.org/hook
key: llama-1
";

/// Size, and the names.
fn named(gang: &Gang) -> (u32, Vec<&str>) {
    (gang.size, gang.needs.nodes.iter().map(phalanx_model::NodeName::as_str).collect())
}

#[test]
fn nodes_are_counted_or_named() {
    assert_eq!(named(&gang("nodes: 2")), (2, vec![]));
    assert_eq!(named(&gang("nodes: [n-10, n-2]")), (2, vec!["n-2", "n-10"]));
    assert_eq!(named(&gang("nodes: {count: 1, of: [b, a]}")), (1, vec!["a", "b"]));
    assert_eq!(shape("nodes: [a, b]\nresources: {gpus: 8}"), (16, Some(8), 1));
    for text in ["nodes: 2\n", "nodes:\n- a\n- b\n", "nodes:\n  count: 1\n  of:\n  - a\n  - b\n"] {
        assert_eq!(JobFile::from_yaml(text, "job.yaml").unwrap().to_yaml().unwrap().trim(), text.trim());
    }
    let over = |file: &str, nodes: Option<&str>, names: &[&str]| {
        let file = JobFile::from_yaml(&format!("{file}\nrun: x\n"), "job.yaml").unwrap();
        let flags = SubmitFlags {
            nodes: nodes.map(str::to_owned),
            named: names.iter().map(|n| (*n).to_owned()).collect(),
            ..SubmitFlags::default()
        };
        flags.over(file).unwrap().into_job(context()).unwrap().gangs.remove(0)
    };
    assert_eq!(named(&over("nodes: 4", None, &["a", "b"])), (2, vec!["a", "b"]));
    assert_eq!(named(&over("nodes: [a, b]", Some("1"), &[])), (1, vec!["a", "b"]));
    assert_eq!(named(&over("", Some("1"), &["a", "b"])), (1, vec!["a", "b"]));
}

#[test]
fn every_field_reaches_the_model() {
    let job = job(FULL);
    assert_eq!((job.name.as_str(), job.queue.as_str(), job.priority), ("llama-8b", "research", 100));
    assert_eq!((job.key.as_deref(), job.owner.name.as_str()), (Some("llama-1"), "ada"));
    let [gang] = job.gangs.as_slice() else { panic!("one gang") };
    assert_eq!((gang.size, gang.members_per_node), (4, Some(1)));
    assert_eq!((gang.needs.devices, gang.needs.models.first().map(|m| m.model.as_str())), (8, Some("H100")));
    assert_eq!((gang.needs.cpu_milli, gang.needs.memory_bytes), (64_000, 512_000_000_000));
    assert_eq!(gang.topology.required.as_ref().map(|level| level.as_str()), Some("rack"));
    assert_eq!(segments(gang), ["2@leaf", "1@node"]);
    let traffic = gang.traffic.unwrap();
    assert_eq!(
        (traffic.pattern, traffic.bytes, traffic.compute_ns),
        (Pattern::AllToAll, 512_000_000, 80_000_000)
    );
    let program = &gang.program;
    assert_eq!(program.launch, LaunchKind::Torchrun);
    assert_eq!(program.argv[..2], ["/bin/bash", "-c"]);
    assert_eq!(program.argv[2], "set -e\nuv sync\nset +e\npython train.py --ckpt $PHALANX_CKPT_DIR\n");
    assert_eq!((program.env["STEPS"].as_str(), program.env["FAST"].as_str()), ("08", "true"));
    assert_eq!(program.env["PHALANX_CKPT_INTERVAL"], "900");
    assert_eq!(program.secrets["HF_TOKEN"], SecretSource::Submitted);
    assert_eq!(program.secrets["WANDB"], SecretSource::File("/home/ada/keys/wandb".to_owned()));
    assert_eq!(program.workdir, "/home/ada/src");
    assert_eq!(program.checkpoint_dir.as_deref(), Some("/ckpt/llama"));
    assert!(program.rdma);
    assert_eq!(program.notify.as_deref(), Some("https://example.org/hook"));
    assert_eq!((job.policy.time_limit_ms, job.policy.start_deadline_ms), (Some(86_400_000), 120_000));
    assert_eq!(job.policy.stop.advisory, Some(Advisory { signal: 10, lead_ms: 120_000 }));
    assert_eq!(job.policy.stop.grace_ms, 45_000);
    let retry = &job.policy.retry;
    assert_eq!((retry.max, retry.backoff_ms, retry.backoff_max_ms), (3, 10_000, 600_000));
    assert_eq!(retry.on, [FailureClass::UserCode, FailureClass::Node, FailureClass::Preemption]);
}

#[test]
fn a_job_that_says_little_has_the_defaults() {
    let job = job("command: [/usr/bin/python3, -c, pass]");
    assert_eq!(
        (job.name.as_str(), job.queue.as_str(), job.priority, job.key.as_deref()),
        ("python3", "default", 0, None)
    );
    assert_eq!(job.policy, phalanx_model::Policy::default());
    assert_eq!(job.gangs[0].program.argv, ["/usr/bin/python3", "-c", "pass"]);
    assert_eq!(job.gangs[0].program.workdir, "/home/ada");
    assert_eq!(shape(""), (1, None, 0));
    assert_eq!(self::job("run: x").name.as_str(), "job");
}

#[test]
fn ranks_divide_the_gpus() {
    assert_eq!(shape("resources: {gpus: 8}"), (8, None, 1));
    assert_eq!(shape("resources: {gpus: 8}\nranks: 2"), (2, None, 4));
    assert_eq!(shape("resources: {gpus: 8}\nranks_per_node: 4"), (8, Some(4), 1));
    assert_eq!(shape("resources: {gpus: 8}\nranks: 4\nranks_per_node: 2"), (4, Some(2), 2));
    assert_eq!(shape("ranks: 6"), (6, None, 0));
    assert_eq!(shape("ranks_per_node: 3"), (3, Some(3), 0));
    assert_eq!(shape("nodes: 2\nresources: {gpus: 8}"), (16, Some(8), 1));
    assert_eq!(shape("nodes: 2\nresources: {gpus: 8}\nranks_per_node: 2"), (4, Some(2), 4));
    assert_eq!(shape("nodes: 2\nresources: {gpus: 8}\nranks: 4"), (4, Some(2), 4));
    assert_eq!(shape("nodes: 3"), (3, Some(1), 0));
    assert_eq!(shape("nodes: 3\nranks_per_node: 5"), (15, Some(5), 0));
}

#[test]
fn agents_take_whole_nodes() {
    for launch in ["torchrun", "jax", "mpi", "none"] {
        assert_eq!(shape(&format!("launch: {launch}\nnodes: 4\nresources: {{gpus: 8}}")), (4, Some(1), 8));
        assert_eq!(shape(&format!("launch: {launch}\nresources: {{gpus: 4}}")), (1, Some(1), 4));
        assert_eq!(shape(&format!("launch: {launch}")), (1, Some(1), 0));
    }
    let agents = gang("launch: torchrun\nresources: {gpus: 16, cpus: 32}\nranks: 16\nranks_per_node: 8");
    assert_eq!((agents.size, agents.needs.devices, agents.needs.cpu_milli), (2, 8, 16_000));
    assert_eq!(
        (agents.program.env["NPROC_PER_NODE"].as_str(), agents.program.env[RANKS_PER_NODE_ENV].as_str()),
        ("8", "8")
    );
    let mpi = gang("launch: mpi\nnodes: 2\nranks: 6");
    assert_eq!((mpi.size, mpi.program.env.get(RANKS_PER_NODE_ENV).map(String::as_str)), (2, Some("3")));
    assert_eq!(mpi.program.env.get("NPROC_PER_NODE"), None);
    let own = gang("launch: torchrun\nranks_per_node: 8\nenv: {NPROC_PER_NODE: 4}");
    assert_eq!(own.program.env["NPROC_PER_NODE"], "4", "the user's own variables win");
}

#[test]
fn resources_are_per_node_with_nodes_and_a_total_without() {
    let needs = gang("nodes: 2\nranks_per_node: 3\nresources: {cpus: 4, memory: 10MB}").needs;
    assert_eq!((needs.cpu_milli, needs.memory_bytes), (1_334, 3_333_334), "rounded up");
    let needs = gang("ranks: 4\nresources: {cpus: 4, memory: 10MB}").needs;
    assert_eq!((needs.cpu_milli, needs.memory_bytes), (1_000, 2_500_000));
    let needs = gang("launch: torchrun\nnodes: 2\nresources: {cpus: 4, memory: 10MB}").needs;
    assert_eq!((needs.cpu_milli, needs.memory_bytes), (4_000, 10_000_000));
}

#[test]
fn topology_is_short_or_long() {
    let topology = |text: &str| {
        let topology = gang(&format!("topology: {text}")).topology;
        let name = |level: Option<phalanx_model::LevelName>| level.map(|level| level.to_string());
        (name(topology.required), name(topology.preferred), topology.wait_ms)
    };
    let leaf = || Some("leaf".to_owned());
    assert_eq!(topology("leaf"), (None, leaf(), 0));
    assert_eq!(topology("leaf@10m"), (None, leaf(), 600_000));
    assert_eq!(topology("leaf:required"), (leaf(), None, 0));
    assert_eq!(topology("leaf:preferred@90s"), (None, leaf(), 90_000));
    assert_eq!(topology("leaf:required@10m"), (None, leaf(), 600_000), "held out for, then given up");
    assert_eq!(topology("{level: leaf, mode: required}"), (leaf(), None, 0));
    assert_eq!(topology("{level: leaf, wait: 10m}"), (None, leaf(), 600_000));
}

/// Of a gang, as `SIZE@LEVEL`, widest first.
fn segments(gang: &Gang) -> Vec<String> {
    gang.topology.segments.iter().map(|s| format!("{}@{}", s.size, s.level)).collect()
}

#[test]
fn segments_are_short_or_long_and_count_ranks() {
    let of = |text: &str| segments(&gang(text));
    let both = ["32@leaf", "8@node"];
    assert_eq!(of("topology: {segments: [{size: 32, level: leaf}, {size: 8, level: node}]}"), both);
    assert_eq!(of("topology: {segments: [8@node, 32@leaf]}"), both, "in any order");
    assert_eq!(
        of("topology: {level: block, mode: required, segments: [32@leaf, {size: 8, level: node}]}"),
        both
    );
    assert_eq!(of("topology: block"), [""; 0]);
    let required = gang("topology: {level: block, mode: required, segments: [8@node]}").topology.required;
    assert_eq!(required.as_ref().map(|level| level.as_str()), Some("block"));
    let whole = gang("topology: {segments: [8@node]}").topology;
    assert_eq!((whole.required, whole.preferred), (None, None));
    // A member is the eight ranks that a launcher starts on a node, or one for each of its GPUs.
    assert_eq!(
        of("launch: torchrun\nnodes: 4\nranks_per_node: 8\ntopology: {segments: [16@leaf]}"),
        ["2@leaf"]
    );
    assert_eq!(
        of("launch: mpi\nnodes: 4\nresources: {gpus: 4}\ntopology: {segments: [8@leaf, 4@nvlink]}"),
        ["2@leaf", "1@nvlink"]
    );
    assert_eq!(of("launch: jax\nnodes: 4\nresources: {gpus: 4}\ntopology: {segments: [2@leaf]}"), ["2@leaf"]);
}

#[test]
fn flags_for_segments_stand_for_those_of_the_file() {
    let file = || JobFile::from_yaml("topology: {level: leaf, segments: [8@node]}\nrun: x\n", "f").unwrap();
    let over = |set: fn(&mut SubmitFlags)| {
        let mut flags = SubmitFlags::default();
        set(&mut flags);
        flags.over(file()).unwrap().into_job(context()).unwrap().gangs.remove(0)
    };
    let kept = over(|f| f.topology = Some("block:required".to_owned()));
    assert_eq!((segments(&kept), kept.topology.required.is_some()), (vec!["8@node".to_owned()], true));
    let replaced = over(|f| f.segments = vec!["4@nvlink".to_owned(), "16@leaf".to_owned()]);
    assert_eq!(segments(&replaced), ["16@leaf", "4@nvlink"]);
    assert!(replaced.topology.preferred.is_some());
}

#[test]
fn setup_runs_before_a_command_that_no_shell_reads_again() {
    let argv =
        job("setup: export A='1 2'\ncommand: [printf, '%s|', '$A', 'b c', '']").gangs.remove(0).program.argv;
    assert_eq!(argv[3..], ["bash", "printf", "%s|", "$A", "b c", ""]);
    let output = std::process::Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "$A|b c||");
    let failing = job("setup: |\n  false\n  echo no\nrun: echo never").gangs.remove(0).program.argv;
    let output = std::process::Command::new(&failing[0]).args(&failing[1..]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let run = job("setup: A=5\nrun: |\n  false\n  echo $A").gangs.remove(0).program.argv;
    let output = std::process::Command::new(&run[0]).args(&run[1..]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "5\n");
}

#[test]
fn retry_defaults() {
    let retry = job("retry: {max: 2}\nrun: x").policy.retry;
    assert_eq!((retry.max, retry.on.as_slice()), (2, FailureClass::ALL.as_slice()));
    let retry = job("retry: {on: [node]}\nrun: x").policy.retry;
    assert_eq!((retry.max, retry.on.as_slice()), (1, [FailureClass::Node].as_slice()));
    let retry = job("retry: {max: 1, backoff: 10m}\nrun: x").policy.retry;
    assert_eq!((retry.backoff_ms, retry.backoff_max_ms), (600_000, 600_000));
}

#[test]
fn signals_go_by_name_or_number() {
    for text in ["USR1", "SIGUSR1", "sigusr1", "10"] {
        let job = job(&format!("checkpoint: {{signal: {text}}}\nrun: x"));
        assert_eq!(job.policy.stop.advisory, Some(Advisory { signal: 10, lead_ms: 30_000 }));
    }
}

#[test]
fn a_file_written_out_reads_back() {
    let file = JobFile::from_yaml(FULL, "job.yaml").unwrap();
    let yaml = file.to_yaml().unwrap();
    let again = JobFile::from_yaml(&yaml, "again.yaml").unwrap_or_else(|error| panic!("{yaml}\n{error}"));
    assert_eq!(file.into_job(context()), again.into_job(context()), "{yaml}");
}

#[test]
fn a_file_is_read_from_json_too() {
    let file: JobFile = serde_json::from_str(
        r#"{"name": "a", "nodes": 2, "resources": {"gpus": "H100:8", "cpus": 1.5}, "rdma": true, "topology": "leaf", "secrets": ["A"], "run": "x"}"#,
    )
    .unwrap();
    let job = file.into_job(context()).unwrap();
    assert_eq!((job.gangs[0].size, job.gangs[0].needs.cpu_milli), (16, 188));
}

fn flags(set: impl FnOnce(&mut SubmitFlags)) -> SubmitFlags {
    let mut flags = SubmitFlags { argv: vec!["train".to_owned()], ..SubmitFlags::default() };
    set(&mut flags);
    flags
}

fn from_flags(set: impl FnOnce(&mut SubmitFlags)) -> Job {
    let file = flags(set).into_job_file().unwrap_or_else(|error| panic!("{error}"));
    file.into_job(context()).unwrap_or_else(|error| panic!("{error}"))
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn flags_and_files_meet() {
    let by_flags = from_flags(|f| {
        f.nodes = some("2");
        f.gpus = some("H100:16");
        f.cpus = some("64");
        f.memory = some("512GB");
        f.ranks_per_node = some("4");
        f.time_limit = some("1-00:00:00");
        f.queue = some("q");
        f.priority = some("-5");
        f.topology = some("leaf:required");
        f.env = vec!["A=b=c".to_owned()];
        f.secrets = vec!["TOKEN".to_owned(), "KEY=/k".to_owned()];
        f.key = some("k");
        f.retry = some("3");
        f.signal = some("USR1@120");
        f.grace = some("1m");
        f.workdir = some("/w");
        f.notify = some("true");
        f.checkpoint_dir = some("/c");
    });
    let by_file = job("
command: [train]
nodes: 2
resources: {gpus: H100:8, cpus: 64, memory: 512GB}
ranks_per_node: 4
time_limit: 24h
queue: q
priority: -5
topology: leaf:required
env: {A: b=c}
secrets: {TOKEN: {}, KEY: {file: /k}}
key: k
retry: {max: 3}
checkpoint: {dir: /c, signal: USR1, grace: 2m}
grace: 60s
workdir: /w
notify: 'true'
");
    assert_eq!(by_flags, by_file);
}

#[test]
fn gpus_of_flags_are_a_total() {
    let shape = |set: fn(&mut SubmitFlags)| {
        let gang = from_flags(set).gangs.remove(0);
        (gang.size, gang.members_per_node, gang.needs.devices)
    };
    assert_eq!(shape(|f| f.gpus = some("8")), (8, None, 1));
    assert_eq!(
        shape(|f| {
            f.gpus = some("16");
            f.nodes = some("2");
        }),
        (16, Some(8), 1)
    );
    assert_eq!(
        shape(|f| {
            f.gpus = some("16");
            f.gpus_per_node = some("8");
        }),
        (16, Some(8), 1)
    );
    assert_eq!(shape(|f| f.gpus_per_node = some("8")), (8, Some(8), 1));
    assert_eq!(
        shape(|f| {
            f.gpus_per_node = some("8");
            f.nodes = some("3");
            f.launch = some("torchrun");
        }),
        (3, Some(1), 8)
    );
}

#[test]
fn flags_win_over_the_file() {
    let file = JobFile::from_yaml(
        "name: a\nenv: {A: 1, B: 2}\nrun: x\nresources: {gpus: 4, memory: 1GB}",
        "job.yaml",
    )
    .unwrap();
    let flags = flags(|f| {
        f.name = some("b");
        f.env = vec!["B=3".to_owned()];
        f.gpus = some("2");
    });
    let job = flags.over(file).unwrap().into_job(context()).unwrap();
    let gang = &job.gangs[0];
    assert_eq!((job.name.as_str(), gang.size, gang.needs.memory_bytes), ("b", 2, 500_000_000));
    assert_eq!((gang.program.env["A"].as_str(), gang.program.env["B"].as_str()), ("1", "3"));
    assert_eq!(gang.program.argv, ["train"]);
}

#[test]
fn an_error_says_where() {
    let error = JobFile::from_yaml("name: a\nresources:\n  gpus: -1\n", "job.yaml").unwrap_err();
    assert_eq!((error.line(), error.column(), error.field()), (Some(3), Some(9), Some("resources.gpus")));
    let error = flags(|f| f.nodes = some("none")).into_job_file().unwrap_err();
    assert_eq!((error.place(), error.line()), (Place::Flag("--nodes"), None));
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = JobFile::from_yaml(&text, "f").map(|file| file.into_job(context())).map_err(|error| error.to_string());
    }

    #[test]
    fn no_value_panics(
        field in prop::sample::select(vec!["name", "nodes", "ranks", "ranks_per_node", "launch", "topology", "env", "secrets", "command",
            "time_limit", "grace", "retry", "checkpoint", "traffic", "resources", "key", "workdir", "priority", "class", "hold", "after", "begin",
            "deadline", "array", "preempt", "spot", "elastic"]),
        value in "[-+%\\[\\]{}:,@a-z0-9.\" \\n\\t&*!|>#'é]{0,40}",
    ) {
        let text = format!("run: x\n{field}: {value}\n");
        let _ = JobFile::from_yaml(&text, "f").map(|file| file.into_job(context())).map_err(|error| error.to_string());
    }

    /// Nothing is lost in the division: the members together have what was asked for, and a part of one member more.
    #[test]
    fn members_together_have_what_was_asked(nodes in 1_u32..50, per_node in 1_u32..9, each in 0_u32..8, cpus in 1_u64..500) {
        let gpus = if each > 0 { format!("gpus: {}, ", each * per_node) } else { String::new() };
        let gang = gang(&format!("nodes: {nodes}\nranks_per_node: {per_node}\nresources: {{{gpus}cpus: {cpus}}}"));
        prop_assert_eq!(gang.size, nodes * per_node);
        prop_assert_eq!(gang.needs.devices, each);
        let together = gang.needs.cpu_milli * u64::from(per_node);
        prop_assert!(together >= cpus * 1000 && together < cpus * 1000 + u64::from(per_node));
    }
}
