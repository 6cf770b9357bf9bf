//! Every kind of error as a user reads it. `UPDATE=1` writes the golden text anew; read it before it is kept.

mod common;

use std::fmt::Write as _;

use common::{context, golden};
use phalanx_spec::{ClusterFile, JobFile, QueueFile, SubmitFlags};

const JOBS: &[&str] = &[
    "name: a\nresources: {gpu: 8}\nrun: x\n",
    "name: a\ngpus: 8\nrun: x\n",
    "name: a\nrank: 8\nrun: x\n",
    "name: a\nzebra: 8\n",
    "nodes: 0\nrun: x\n",
    "nodes: -4\nrun: x\n",
    "nodes: .nan\nrun: x\n",
    "nodes: 1.5\nrun: x\n",
    "nodes: 99999999999999999999999999999999999999999999\nrun: x\n",
    "nodes: []\nrun: x\n",
    "nodes: [a, b c]\nrun: x\n",
    "nodes: [a, b, a]\nrun: x\n",
    "nodes: {min: 1}\nrun: x\n",
    "nodes: {count: 3, of: [a, b]}\nrun: x\n",
    "name: a b\nrun: x\n",
    "name: \"\"\nrun: x\n",
    "resources:\n  gpus: H100:0\nrun: x\n",
    "resources: {gpus: 8:H100}\nrun: x\n",
    "resources: {gpus: H100}\nrun: x\n",
    "resources: {gpus: .inf}\nrun: x\n",
    "resources: {gpus: 4, memory: 512G}\nrun: x\n",
    "resources: {memory: -1GB}\nrun: x\n",
    "resources: {memory: .inf}\nrun: x\n",
    "resources: {memory: 512}\nrun: x\n",
    "resources: {memory: 99999999999PB}\nrun: x\n",
    "resources: {cpus: 0}\nrun: x\n",
    "resources: 8\nrun: x\n",
    "resources: {gpus: 1.5}\nrun: x\n",
    "resources: {gpus: 1.0}\nrun: x\n",
    "resources: {gpus: H100:2/3/4}\nrun: x\n",
    "resources: {gpus: [8]}\nrun: x\n",
    "resources: {gpus: {models: [H100]}}\nrun: x\n",
    "resources: {gpus: {count: 2, share: 0.5}}\nrun: x\n",
    "resources: {gpus: {count: 2, models: [H100, h100]}}\nrun: x\n",
    "resources: {gpus: {count: 2, models: {H100: 0}}}\nrun: x\n",
    "resources: {gpus: {share: {trust: lab}}}\nrun: x\n",
    "resources: {gpus: {share: {compute: 0.25, trust: \"\"}}}\nrun: x\n",
    "resources: {gpus: {share: 2}}\nrun: x\n",
    "resources: {gpus: {mig: 1g}}\nrun: x\n",
    "resources: {gpus: {mig: {slices: 2}}}\nrun: x\n",
    "resources: {gpus: {mig: {compute: 8/7}}}\nrun: x\n",
    "launch: torchrun\nnodes: 2\nranks_per_node: 4\nresources: {gpus: 0.25}\nrun: x\n",
    "resources: {nic: 0}\nrun: x\n",
    "resources: {nic: 1, cpu: 4}\nrun: x\n",
    "resources: {nvidia.com/gpu: 4}\nrun: x\n",
    "nodes: 2\nranks_per_node: 8\nresources: {power_w: 700}\nrun: x\n",
    "exclusive: 1\nrun: x\n",
    "nodes: {}\nrun: x\n",
    "nodes: {of: [a, b], except: [b]}\nrun: x\n",
    "nodes: {of: [a, b], prefer: [c]}\nrun: x\n",
    "nodes: {except: [a, a]}\nrun: x\n",
    "topology: {spread: 1}\nrun: x\n",
    "topology: {spread: {level: rack}}\nrun: x\n",
    "topology: {spread: [1@rack, 2@rack]}\nrun: x\n",
    "launch: torchrun\nnodes: 4\nranks_per_node: 8\ntopology: {spread: 1@rack}\nrun: x\n",
    "topology: {slice: 4}\nrun: x\n",
    "topology: {slice: 4x0x4}\nrun: x\n",
    "topology: {slice: 4x4x4}\nresources: {gpus: 32}\nrun: x\n",
    "topology: {slice: 4x4, segments: [4@node]}\nrun: x\n",
    "topology: {slice: 4x4}\nresources: {gpus: 0.5}\nrun: x\n",
    "topology: {slice: 4x4}\nparallelism: {data: 16}\nrun: x\n",
    "topology: {slice: 4x4}\nroles: {launcher: {}}\nrun: x\n",
    "resources: {gpus: 0.5}\nranks: 8\ntopology: {segments: [4@node]}\nrun: x\n",
    "parallelism: {tensr: 8}\nrun: x\n",
    "parallelism: 8\nrun: x\n",
    "parallelism: {tensor: 0}\nrun: x\n",
    "parallelism: {tensor: {bytes: 1MB}}\nrun: x\n",
    "parallelism: {tensor: 8, tp: 2}\nrun: x\n",
    "parallelism: [data: 2, tensor: 4]\nrun: x\n",
    "ranks: 16\nparallelism: {tensor: 4, data: 2}\nrun: x\n",
    "nodes: 2\nresources: {gpus: 8}\nlaunch: torchrun\nparallelism: {tensor: 16}\nrun: x\n",
    "nodes: 2\nresources: {gpus: 8}\nlaunch: torchrun\nparallelism: {tensor: 3, data: 8}\nrun: x\n",
    "nodes: 2\nresources: {gpus: 6}\nlaunch: torchrun\nparallelism: {tensor: 4, data: 3}\nrun: x\n",
    "parallelism: {tensor: 1000000, data: 1000000}\nrun: x\n",
    "resources: {gpus: 0.5}\nparallelism: {data: 4}\nrun: x\n",
    "roles: [launcher]\nrun: x\n",
    "roles: {main: {count: 1}}\nrun: x\n",
    "roles: {ps: {replicas: 4}}\nrun: x\n",
    "roles: {ps: {count: 0}}\nrun: x\n",
    "roles: {ps: {resources: {gpus: 128}}}\nrun: x\n",
    "roles: {ps: {run: x, command: [y]}}\nrun: x\n",
    "secrets: [A]\nroles: {ps: {env: {A: b}}}\nrun: x\n",
    "priority: high\nrun: x\n",
    "class: a b\nrun: x\n",
    "qos: high\nrun: x\n",
    "hold: soon\nrun: x\n",
    "after: train\nrun: x\n",
    "after: 0\nrun: x\n",
    "after: 12:ok\nrun: x\n",
    "after: [12, {job: 13, ends: any}]\nrun: x\n",
    "after: [12, \"13:any\", {job: 12, end: any}]\nrun: x\n",
    "after:\n  end: any\nrun: x\n",
    "begin: 2h\nrun: x\n",
    "begin: 2026-12-01T08:00\nrun: x\n",
    "begin: tomorrow\nrun: x\n",
    "deadline: 1970-01-01T00:00Z\nrun: x\n",
    "begin: +2h\ndeadline: +90m\nrun: x\n",
    "array: 9-3\nrun: x\n",
    "array: 1-5,4\nrun: x\n",
    "array: 0-9:0\nrun: x\n",
    "array: 0\nrun: x\n",
    "array: 10%0\nrun: x\n",
    "array: {size: 10, tasks: 1-3}\nrun: x\n",
    "array: {tasks: 1-3x}\nrun: x\n",
    "array: 100001\nrun: x\n",
    "array: 0-100000\nrun: x\n",
    "preempt: no\nrun: x\n",
    "preempt: pause\nrun: x\n",
    "spot: 1\nrun: x\n",
    "elastic: 4\nrun: x\n",
    "ranks: 8\nelastic: {min: 9}\nrun: x\n",
    "resources: {gpus: 8}\nelastic: {min: 2, max: 4}\nrun: x\n",
    "nodes: 4\nresources: {gpus: 8}\nelastic: {min: 12}\nrun: x\n",
    "launch: torchrun\nnodes: 4\nresources: {gpus: 8}\nelastic: {max: 60}\nrun: x\n",
    "ranks: 8\nelastic: {min: 4}\nroles: {ps: {}}\nrun: x\n",
    "ranks: 8\nelastic: {min: 4}\nparallelism: {data: 8}\nrun: x\n",
    "topology: {slice: 4x4}\nelastic: {max: 32}\nrun: x\n",
    "checkpoint: {shared: false}\nrun: x\n",
    "topology: 0.5\nrun: x\n",
    "topology: [leaf]\nrun: x\n",
    "topology: leaf:requird\nrun: x\n",
    "topology: leaf:required@10\nrun: x\n",
    "topology: \"@10m\"\nrun: x\n",
    "topology: {mode: required}\nrun: x\n",
    "topology:\n  mode: required\nrun: x\n",
    "topology: {level: leaf, segment: 2}\nrun: x\n",
    "topology: {mode: required, segments: [8@node]}\nrun: x\n",
    "topology: {segments: []}\nrun: x\n",
    "topology: {segments: 8@node}\nrun: x\n",
    "topology: {segments: [8]}\nrun: x\n",
    "topology: {segments: [0@node]}\nrun: x\n",
    "topology:\n  segments:\n    - {size: many, level: node}\nrun: x\n",
    "topology:\n  segments:\n    - {size: 8}\nrun: x\n",
    "topology: {segments: [32@leaf, 12@node]}\nrun: x\n",
    "topology:\n  segments:\n    - {size: 4, level: node}\n    - {size: 8, level: node}\nrun: x\n",
    "topology: {segments: [1@a, 1@b, 1@c, 1@d, 1@e, 1@f, 1@g, 1@h, 1@i]}\nrun: x\n",
    "launch: torchrun\nnodes: 4\nranks_per_node: 8\ntopology: {segments: [16@leaf, 4@nvlink]}\nrun: x\n",
    "launch: torchrum\nrun: x\n",
    "launch: slurm\nrun: x\n",
    "env: {1A: x}\nrun: x\n",
    "env: {A: [1]}\nrun: x\n",
    "env: {A: \"x\\0\"}\nrun: x\n",
    "env: {A: }\nrun: x\n",
    "secrets: 5\nrun: x\n",
    "secrets: {A: {path: x}}\nrun: x\n",
    "secrets: [A]\nenv: {A: b}\nrun: x\n",
    "time_limit: 90x\nrun: x\n",
    "time_limit: 00:75:00\nrun: x\n",
    "time_limit: -5\nrun: x\n",
    "time_limit: 0\nrun: x\n",
    "grace: 30\nrun: x\n",
    "checkpoint: {signal: KILL}\nrun: x\n",
    "checkpoint: {signal: USR3}\nrun: x\n",
    "checkpoint: {signal: 99}\nrun: x\n",
    "checkpoint: {grace: 10s}\nrun: x\n",
    "retry: {max: -1}\nrun: x\n",
    "retry: {max: 3, on: [oom]}\nrun: x\n",
    "retry: {max: 3, on: error}\nrun: x\n",
    "retry:\n  max: 3\n  backoff: 10m\n  backoff_max: 5m\nrun: x\n",
    "traffic: {pattern: all_reduce}\nrun: x\n",
    "traffic: {bytes: 0}\nrun: x\n",
    "rdma: yes\nrun: x\n",
    "run: x\ncommand: [a]\n",
    "name: a\n",
    "",
    "run: \"\"\n",
    "command: []\n",
    "command: a b\n",
    "workdir: ~/x\nrun: x\n",
    "nodes: 4\nranks: 10\nrun: x\n",
    "nodes: 2\nranks: 3\nranks_per_node: 2\nrun: x\n",
    "resources: {gpus: 10}\nranks: 4\nrun: x\n",
    "nodes: 2\nranks_per_node: 3\nresources: {gpus: 8}\nrun: x\n",
    "resources: {gpus: 4}\nranks: 8\nrun: x\n",
    "resources: {gpus: 10}\nranks_per_node: 4\nrun: x\n",
    "nodes: 2\nresources: {gpus: 128}\nrun: x\n",
    "launch: torchrun\nresources: {gpus: 128}\nrun: x\n",
    "launch: jax\nranks_per_node: 8\nrun: x\n",
    "nodes: 1000000\nresources: {gpus: 8}\nrun: x\n",
    "key: \"\"\nrun: x\n",
    "name: a\nname: b\n",
    "name: a\n---\nname: b\n",
    "name: !foo {a: b}\n",
    "name: !!int 5\nrun: x\n",
    "name: [a\nrun: x\n",
    "name: \"a\nrun: x\n",
    "name: a\n\trun: x\n",
    "name: a\n  run: x\n",
    "- a\n- b\n",
    "5\n",
    "run: *nothing\n",
    "nodes: &n 0\nrun: x\n",
    "env: &e {A: x}\nranks: *e\nrun: x\n",
    "a: &a [x,x]\nb: &b [*a,*a]\n",
    "name: [[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]\n",
];

const CLUSTERS: &[&str] = &[
    "nodes: []\n",
    "nodes:\n  - name: a\n  - name: b\n  - name: a\n",
    "nodes:\n  - {name: \"n[1-4]\"}\n  - {name: n3}\n",
    "nodes:\n  - path: {}\n",
    "nodes:\n  - {nme: a}\n",
    "nodes: [{name: \"n[4-1]\"}]\n",
    "nodes: [{name: \"n[1-9\"}]\n",
    "nodes: [{name: \"n[1-999999999]\"}]\n",
    "nodes: [{name: \"n[1-60000]\"}, {name: \"m[1-60000]\"}]\n",
    "nodes: [{name: a/b}]\n",
    "nodes: [{name: a, topo: x, devices: {count: 8}}]\n",
    "nodes: [{name: a, devices: {count: 65}}]\n",
    "nodes: [{name: a, devices: {count: 0}}]\n",
    "nodes: [{name: a, devices: {count: 8, link: nvlnk}}]\n",
    "nodes: [{name: a, devices: {count: 8, link: nvlink}}]\n",
    "nodes: [{name: a, devices: {count: 8, link: nvlink, model: L40S}}]\n",
    "nodes: [{name: a, devices: {count: 8, link: nvlink, model: H1000}}]\n",
    "nodes: [{name: a, devices: {model: x}}]\n",
    "nodes: [{name: a, model: x, devices: {count: 8, model: y}}]\n",
    "nodes: [{name: a, devices: {count: 8}, busy: [GPU8]}]\n",
    "nodes: [{name: a, devices: {count: 8}, busy: [\"7-4\"]}]\n",
    "nodes: [{name: a, busy: [0]}]\n",
    "nodes: [{name: a, nic_bandwidth: 100}]\n",
    "nodes: [{name: a, nic_bandwidth: 100G}]\n",
    "levels: [cluster, leaf]\nnodes: [{name: a}]\n",
    "levels: [cluster, leaf]\nnodes: [{name: a, path: {leef: x}}]\n",
    "levels: [cluster, node]\nnodes: [{name: a}]\n",
    "levels: [cluster, leaf, leaf]\nnodes: [{name: a}]\n",
    "levels: []\nnodes: [{name: a}]\n",
    "links: {spine: {bandwidth: 50GB/s}}\nnodes: [{name: a}]\n",
    "links: {node: {latency: 2us}}\nnodes: [{name: a}]\n",
    "links: {node: {bandwidth: 10000000000GB/s}}\nnodes: [{name: a}]\n",
    "links: {cluster: {inside: 10000000000GB/s}}\nnodes: [{name: a}]\n",
    "links: {node: {bandwidth: 50GB/s, inside: 900GB/s}}\nnodes: [{name: a}]\n",
    "constants: \"\"\nnodes: [{name: a}]\n",
    "nodes: [{name: \"n[1-4]\", address: 10.0.0.1}]\n",
    "nodes: [{name: a, address: \"a b\"}]\n",
    "nodes: [{name: a, resources: {gpus: 8}}]\n",
    "nodes: [{name: a, resources: {nic: none}}]\n",
    "nodes: [{name: a, gpu_sharing: {compute_limit: 0}}]\n",
    "nodes: [{name: a, gpu_sharing: 2}]\n",
    "limits: [{resource: power_w, amount: 1}]\nnodes: [{name: a}]\n",
    "limits: [{level: rack, resource: power_w, amount: 1}]\nnodes: [{name: a}]\n",
    "limits: [{level: node, resource: power_w, amount: 1}]\nnodes: [{name: a}]\n",
    "levels: [cluster, rack]\nlimits: [{path: {rack: r9}, resource: power_w, amount: 1}]\nnodes: [{name: a, path: {rack: r1}}]\n",
    "limits:\n  - {level: cluster, resource: power_w, amount: 1}\n  - {level: cluster, resource: power_w, amount: 2}\nnodes: [{name: a}]\n",
    "tori: [{name: pod, chips: 4x4x4, host: 3x1x1}]\nnodes: [{name: a}]\n",
    "tori: [{name: pod, chips: 4x6x4, host: 2x2x1, cube: 4}]\nnodes: [{name: a}]\n",
    "tori: [{name: pod, chips: 4x4x4, host: 2x2x1, wraps: xyw}]\nnodes: [{name: a}]\n",
    "tori: [{name: pod, chips: 4x4x4, host: 2x2x1}, {name: pod, chips: 4x4, host: 2x2}]\nnodes: [{name: a}]\n",
    "nodes: [{name: a, torus: {name: pod}}]\n",
    "tori: [{name: pod, chips: 4x4x4, host: 2x2x1}]\nnodes: [{name: a, torus: {name: pod, at: \"1,0,0\"}}]\n",
    "tori: [{name: pod, chips: 4x4x4, host: 2x2x1}]\nnodes: [{name: \"a[1-17]\", torus: {name: pod}}]\n",
    "tori: [{name: pod, chips: 4x4x4, host: 2x2x1}]\nnodes:\n  - {name: a, torus: {name: pod}}\n  - {name: b, torus: {name: pod, at: \"0,0,0\"}}\n",
    "nodes: [{name: a, spot: true}]\n",
    "nodes: [{name: a, price: 1 EUR}]\n",
    "nodes: [{name: a}]\ncalendar: [{nodes: [a], from: +2h, until: +4h}]\n",
    "nodes: [{name: a}]\ncalendar: [{nodes: [a], from: 2026-12-01T08:00Z, until: 2026-12-01T08:00Z}]\n",
    "nodes: [{name: a}]\ncalendar: [{nodes: [b], from: 2026-12-01T08:00Z, until: 2026-12-01T09:00Z}]\n",
    "nodes: [{name: a}]\ncalendar: [{nodes: [a, a], from: 2026-12-01T08:00Z, until: 2026-12-01T09:00Z}]\n",
    "nodes: [{name: a}]\ncalendar: [{from: 2026-12-01T08:00Z, until: 2026-12-01T09:00Z}]\n",
    "nodes: {name: a}\n",
];

const QUEUES: &[&str] = &[
    "queue: []\n",
    "queues: {name: a}\n",
    "queues: [{nme: a}]\n",
    "queues: [{name: a b}]\n",
    "queues:\n  - name: a\n  - name: b\n    queues: [{name: a}]\n",
    "queues:\n  - name: vision\n  - {name: eval, parent: visoin}\n",
    "queues: [{name: a, parent: a}]\n",
    "queues:\n  - {name: a, parent: c}\n  - {name: b, parent: a}\n  - {name: c, parent: b}\n",
    "queues: [{name: a}, {name: b, queues: [{name: c, parent: a}]}]\n",
    "queues: [{name: a, queues: [{name: b, queues: [{name: c, queues: [{name: d, queues: [{name: e}]}]}]}]}, {name: f, parent: e}, {name: g, parent: f}, {name: h, parent: g}, {name: i, parent: h}]\n",
    "queues: [{name: a, guaranteed: 8}]\n",
    "queues: [{name: a, guaranteed: {gpu: 8}}]\n",
    "queues: [{name: a, guaranteed: {gpu/H100: 8}}]\n",
    "queues: [{name: a, guaranteed: {gpus/: 8}}]\n",
    "queues: [{name: a, guaranteed: {gpus: H100:8}}]\n",
    "queues: [{name: a, guaranteed: {gpus: 0.0001}}]\n",
    "queues: [{name: a, guaranteed: {memory: 512G}}]\n",
    "queues: [{name: a, guaranteed: {nic: 0.5}}]\n",
    "queues: [{name: a, guaranteed: {cpus: -1}}]\n",
    "queues:\n  - name: a\n    guaranteed: {gpus: 8}\n    queues:\n      - {name: b, guaranteed: {gpus: 6}}\n      - {name: c, guaranteed: {gpus: 2.5}}\n",
    "queues:\n  - name: a\n    guaranteed: {memory: 1TB}\n    limit: {memory: 512GB}\n",
    "queues:\n  - name: a\n    limit: {gpus/H100: 2}\n    queues: [{name: b, guaranteed: {gpus/H100: 4}}]\n",
    "queues:\n  - name: a\n    guaranteed: {gpus: 2}\n    lend: {gpus: 4}\n",
    "queues: [{name: a, lend: {nic: 1}}]\n",
    "queues: [{name: a, weight: -1}]\n",
    "queues: [{name: a, weight: 1000001}]\n",
    "queues: [{name: a, shapes: [{level: leaf}]}]\n",
    "queues: [{name: a, shapes: [{level: leaf, nodes: 0}]}]\n",
    "queues: [{name: a, max_time: 1y}]\n",
    "queues: [{name: a, max_gang_gpus: 0}]\n",
    "classes: []\n",
    "classes: [{name: a}]\n",
    "classes: [{name: serving, rank: 1}]\n",
    "classes: [{name: training, rank: 1}, {name: training, rank: 2}]\n",
    "classes: [{name: training, rank: 1}, {name: b, rank: 1}]\n",
    "classes: [{name: training, rank: 1, min_run: 10}]\n",
    "queues: [{name: a, idle: {then: shrink}}]\n",
    "queues: [{name: a, idle: {except_classes: [trainning]}}]\n",
    "default_class: trainning\n",
    "half_life: 0s\n",
    "ageing: never\n",
    "reservations: 0\n",
    "reservations: none\n",
    "hold_idle: 25\n",
    "hold_idle: 101%\n",
    "reclaim: fair\n",
    "worth: {H100: 0}\n",
    "worth: {A100: 0.4, A100-SXM4-80GB: 0.5}\n",
    "boost: 1000\n",
    "boost: {max: -1}\n",
    "spares: 2\n",
    "spares: {nodes: 0}\n",
    "spares: {level: rack}\n",
    "spares: {nodes: 2, level: \"a rack\", fill: often}\n",
    "migration: never\n",
    "migration: {when: sometimes}\n",
    "migration: {restart: 2, fails_within: 0s}\n",
];

fn flag_cases() -> Vec<(&'static str, SubmitFlags)> {
    let some = |text: &str| Some(text.to_owned());
    let base = || SubmitFlags { argv: vec!["x".to_owned()], ..SubmitFlags::default() };
    vec![
        ("--nodes 0", SubmitFlags { nodes: some("0"), ..base() }),
        ("--node 'a b'", SubmitFlags { named: vec!["a b".to_owned()], ..base() }),
        ("--node a --nodes 2", SubmitFlags { named: vec!["a".to_owned()], nodes: some("2"), ..base() }),
        ("--gpus 10 --nodes 4", SubmitFlags { gpus: some("10"), nodes: some("4"), ..base() }),
        ("--gpus 10 --gpus-per-node 4", SubmitFlags { gpus: some("10"), gpus_per_node: some("4"), ..base() }),
        (
            "--gpus 8 --gpus-per-node 4 --nodes 3",
            SubmitFlags { gpus: some("8"), gpus_per_node: some("4"), nodes: some("3"), ..base() },
        ),
        (
            "--gpus A100:8 --gpus-per-node H100:4",
            SubmitFlags { gpus: some("A100:8"), gpus_per_node: some("H100:4"), ..base() },
        ),
        ("--env A", SubmitFlags { env: vec!["A".to_owned()], ..base() }),
        ("--secret 'A B'", SubmitFlags { secrets: vec!["A B".to_owned()], ..base() }),
        (
            "--secret A --env A=b",
            SubmitFlags { secrets: vec!["A".to_owned()], env: vec!["A=b".to_owned()], ..base() },
        ),
        ("--signal USR1@x", SubmitFlags { signal: some("USR1@x"), ..base() }),
        ("--signal FOO", SubmitFlags { signal: some("FOO"), ..base() }),
        ("--topology leaf:x", SubmitFlags { topology: some("leaf:x"), ..base() }),
        ("--segment 8", SubmitFlags { segments: vec!["8".to_owned()], ..base() }),
        (
            "--segment 16@leaf --segment 6@node",
            SubmitFlags { segments: vec!["16@leaf".to_owned(), "6@node".to_owned()], ..base() },
        ),
        ("--retry many", SubmitFlags { retry: some("many"), ..base() }),
        ("--time 1y", SubmitFlags { time_limit: some("1y"), ..base() }),
        (
            "--nodes 2 --ranks-per-node 3 --gpus 8",
            SubmitFlags { nodes: some("2"), ranks_per_node: some("3"), gpus: some("8"), ..base() },
        ),
        ("--gpus-per-node 0.5", SubmitFlags { gpus_per_node: some("0.5"), ..base() }),
        (
            "--gpus 0.5 --gpus-per-node 4",
            SubmitFlags { gpus: some("0.5"), gpus_per_node: some("4"), ..base() },
        ),
        ("--gpus 4 --mig 1g.10gb", SubmitFlags { gpus: some("4"), mig: some("1g.10gb"), ..base() }),
        ("--mig small", SubmitFlags { mig: some("small"), ..base() }),
        ("--resource nic", SubmitFlags { resources: vec!["nic".to_owned()], ..base() }),
        ("--resource cpus=4", SubmitFlags { resources: vec!["cpus=4".to_owned()], ..base() }),
        ("--resource nics=many", SubmitFlags { resources: vec!["nics=many".to_owned()], ..base() }),
        (
            "--node a --exclude a",
            SubmitFlags { named: vec!["a".to_owned()], exclude: vec!["a".to_owned()], ..base() },
        ),
        ("--spread rack", SubmitFlags { spread: vec!["rack".to_owned()], ..base() }),
        ("--slice 4x4x4x4", SubmitFlags { slice: some("4x4x4x4"), ..base() }),
        ("--parallel tensor:8", SubmitFlags { parallel: some("tensor:8"), ..base() }),
        ("--parallel tensor=8,sequence=2", SubmitFlags { parallel: some("tensor=8,sequence=2"), ..base() }),
        (
            "--gpus 4 --parallel tensor=8 --ranks 4",
            SubmitFlags { gpus: some("4"), parallel: some("tensor=8"), ranks: some("4"), ..base() },
        ),
        ("--class 'a b'", SubmitFlags { class: some("a b"), ..base() }),
        ("--after train", SubmitFlags { after: vec!["train".to_owned()], ..base() }),
        (
            "--after 12 --after 12:any",
            SubmitFlags { after: vec!["12".to_owned(), "12:any".to_owned()], ..base() },
        ),
        ("--begin 8:00", SubmitFlags { begin: some("8:00"), ..base() }),
        ("--begin +2h --deadline +1h", SubmitFlags { begin: some("+2h"), deadline: some("+1h"), ..base() }),
        ("--array 1-x", SubmitFlags { array: some("1-x"), ..base() }),
        ("--preempt pause", SubmitFlags { preempt: some("pause"), ..base() }),
        ("no command", SubmitFlags::default()),
    ]
}

#[test]
fn errors_read_as_they_should() {
    let mut text = String::new();
    for yaml in JOBS {
        let job = JobFile::from_yaml(yaml, "job.yaml").and_then(|file| file.into_job(context()));
        let error = job.expect_err(yaml);
        writeln!(text, "{error}\n").unwrap();
    }
    for yaml in CLUSTERS {
        let cluster = ClusterFile::from_yaml(yaml, "cluster.yaml").and_then(ClusterFile::into_cluster);
        let error = cluster.expect_err(yaml);
        writeln!(text, "{error}\n").unwrap();
    }
    for yaml in QUEUES {
        let policy = QueueFile::from_yaml(yaml, "queues.yaml").and_then(QueueFile::into_policy);
        let error = policy.expect_err(yaml);
        writeln!(text, "{error}\n").unwrap();
    }
    for (shown, flags) in flag_cases() {
        let job = flags.into_job_file().and_then(|file| file.into_job(context()));
        let error = job.expect_err(shown);
        writeln!(text, "$ submit {shown}\n{error}\n").unwrap();
    }
    let over = SubmitFlags { gpus: Some("10".to_owned()), ..SubmitFlags::default() };
    let file = JobFile::from_yaml("nodes: 4\nrun: x\n", "job.yaml").unwrap();
    let error = over.over(file).expect_err("4 nodes cannot share 10 GPUs");
    writeln!(text, "$ submit -f job.yaml --gpus 10\n{error}\n").unwrap();
    let over = SubmitFlags { nodes: Some("2".to_owned()), ..SubmitFlags::default() };
    let file = JobFile::from_yaml("resources: {gpus: 8}\nrun: x\n", "job.yaml").unwrap();
    let error = over.over(file).expect_err("8 GPUs in total would become 8 on each of 2 nodes");
    writeln!(text, "$ submit -f job.yaml --nodes 2\n{error}\n").unwrap();
    let over = SubmitFlags { nodes: Some("2".to_owned()), ..SubmitFlags::default() };
    let file = JobFile::from_yaml("resources: {gpus: 0.5, nic: 8}\nrun: x\n", "job.yaml").unwrap();
    let error = over.over(file).expect_err("8 NICs in total would become 8 on each of 2 nodes");
    writeln!(text, "$ submit -f job.yaml --nodes 2\n{error}").unwrap();
    golden("tests/golden/errors.txt", &text);
}

/// A message has what a user needs: every error of a file that stands somewhere shows its line and a caret.
#[test]
fn errors_show_the_line_and_a_caret() {
    for yaml in
        JOBS.iter().filter(|yaml| !yaml.is_empty() && **yaml != "name: a\n" && **yaml != "command: []\n")
    {
        let job = JobFile::from_yaml(yaml, "job.yaml").and_then(|file| file.into_job(context()));
        let error = job.expect_err(yaml);
        assert!(error.line().is_some() && error.to_string().contains('^'), "{yaml:?}: {error}");
    }
    for yaml in QUEUES.iter().filter(|yaml| **yaml != "classes: []\n") {
        let policy = QueueFile::from_yaml(yaml, "queues.yaml").and_then(QueueFile::into_policy);
        let error = policy.expect_err(yaml);
        assert!(error.line().is_some() && error.to_string().contains('^'), "{yaml:?}: {error}");
    }
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let text = format!("run: {}\n", "x".repeat(phalanx_spec::FILE_BYTES_MAX));
    let error = JobFile::from_yaml(&text, "job.yaml").expect_err("too large").to_string();
    assert!(error.contains("bytes"), "{error}");
    let text = format!("run: {}\n", "x".repeat(200_000));
    let error = JobFile::from_yaml(&text, "job.yaml").expect_err("too long for an argument").to_string();
    assert!(error.contains("131071") && error.len() < 1000, "{error}");
}

/// One long text, repeated by aliases where a list of texts is read.
#[test]
fn repeated_text_is_bounded() {
    let long = "x".repeat(100_000);
    let text = format!("setup: &x {long}\ncommand: [{}]\n", vec!["*x"; 10_000].join(", "));
    let error = JobFile::from_yaml(&text, "job.yaml").expect_err("a gigabyte").to_string();
    assert!(error.contains("limits"), "{error}");
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..12 {
        let previous = i - 1;
        writeln!(text, "a{i}: &a{i} [{}]", vec![format!("*a{previous}"); 10].join(", ")).unwrap();
    }
    // Whole, inside a value that is read: nothing may be expanded without limit.
    JobFile::from_yaml(&format!("env:\n  X: {text}"), "job.yaml").expect_err("bomb");
    let under = text.lines().map(|line| format!("  {line}\n")).collect::<String>();
    ClusterFile::from_yaml(&format!("path:\n{under}"), "cluster.yaml").expect_err("bomb");
    ClusterFile::from_yaml(
        &format!("nodes:\n{}", text.lines().map(|l| format!("- {l}\n")).collect::<String>()),
        "c",
    )
    .expect_err("bomb");
}
