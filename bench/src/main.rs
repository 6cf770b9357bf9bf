//! Benchmarks that anyone can run.
//!
//! `cargo run --release -p phalanx-bench -- api [--json] [--nodes N] [--jobs N] [--requests N] [--only WORD]`
//! `cargo run --release -p phalanx-bench -- cost [--json] [--fit] [--plot FILE] [--data FOLDER]`
//! `cargo run --release -p phalanx-bench -- drill [--page FILE] [--json FILE] [--only FAULT] [--dev]`
//! `cargo run --release -p phalanx-bench -- kube-drill [--page FILE] [--json FILE] [--only FAULT] [--dev]`
//! `cargo run --release -p phalanx-bench -- map [--json]`
//! `cargo run --release -p phalanx-bench -- placement [--nodes N] [--growth] [--json]`
//! `cargo run --release -p phalanx-bench -- grid [--json] [--seeds FIRST-LAST]`
//! `cargo run --release -p phalanx-bench -- islands [--json] [--seed N] [--data FOLDER]`
//! `cargo run --release -p phalanx-bench -- kube [--json] [--nodes N] [--only SCENARIO] [--runner NAME] [--runs N]`
//! `cargo run --release -p phalanx-bench -- lingjun [--json] [--data FOLDER]`
//! `cargo run --release -p phalanx-bench [--features milp] -- optimality [--json] [--instances N] [--queues N]`
//! `cargo run --release -p phalanx-bench -- openb [--json] [--workload NAME] [--seeds FIRST-LAST] [--data FOLDER]`
//! `cargo run --release -p phalanx-bench -- ops [--json] [--nodes N] [--runs N]`
//! `cargo run --release -p phalanx-bench -- sim muri|shockwave|gavel|pollux|fgd|philly|compare|overload|all [--json] [--data FOLDER]`
//! `cargo run --release -p phalanx-bench -- step [--growth] [--json] [--only NAME] [--repeat N]`
//! `cargo run --release -p phalanx-bench -- victims [--instances N]`

mod api;
mod cost;
mod daemon;
mod drill;
mod grid;
mod islands;
mod kube;
mod lingjun;
mod map;
mod network;
mod openb;
mod ops;
mod optimality;
mod peers;
mod placement;
mod rng;
mod sim;
mod step;
mod tables;
mod victims;

use std::process::ExitCode;

const USAGE: &str = "\
usage: phalanx-bench api [--json] [--nodes N] [--jobs N] [--requests N] [--only WORD]

  api     time of the answers of a daemon's HTTP API with many nodes and jobs; fails when the 99th percentile of a list is above
          50 ms (needs `phalanx` beside this executable)
    --nodes N      declared nodes of 8 GPUs; without it 12,800
    --jobs N       jobs that have not ended; without it 10,000
    --requests N   requests of each kind; without it 200
    --only WORD    paths with this word; again for more; without it all

usage: phalanx-bench cost [--json] [--fit] [--plot FILE] [--data FOLDER]

  cost    the cost model against public measurements
    --json         one JSON object in place of text
    --fit          also the constants that fit all measurements, as constants.toml has them
    --plot FILE    write predicted against measured all-reduce times as SVG
    --data FOLDER  the measurements; without it ../shared/data/measured beside the project

usage: phalanx-bench drill [--page FILE] [--json FILE] [--only FAULT] [--dev]

  drill   real daemons and gangs of real processes, one fault after another; fails when Phalanx misses an expectation, or a
          job does not finish with the correct result (needs `phalanx` and `ring-allreduce` beside this executable)
    --page FILE    the report as one HTML page
    --json FILE    the report as JSON
    --only FAULT   one fault, such as rank-killed; again for more; without it all
    --dev          take both executables from the folder `debug` of the build

usage: phalanx-bench kube-drill [--page FILE] [--json FILE] [--only FAULT] [--dev]

  kube-drill  the same on Kubernetes: a real control plane, three real kubelets, gangs in containers (needs Go, root, containerd
          and runc; the first run builds for minutes)
    the flags are those of drill

usage: phalanx-bench map [--json]

  map     load time and memory of maps with 1,600, 12,800 and 102,400 GPUs, and time of one change and one estimate

usage: phalanx-bench placement [--nodes N] [--seconds N] [--growth] [--json]

  placement  time to place or refuse one gang in a cluster of which 90 % is used
    --nodes N      machines of 8 GPUs; without it 12,800
    --seconds N    how long decisions are timed; without it 10
    --growth       clusters of 1,600, 12,800 and 102,400 GPUs, and the ratio
    --json         one JSON object in one line for each cluster

usage: phalanx-bench grid [--json] [--seeds FIRST-LAST]

  grid    communication time of tensor x data x pipeline parallel jobs on partly filled Clos clusters, against the
          placements of other schedulers
    --seeds FIRST-LAST  the states that are drawn; without it 42-44

usage: phalanx-bench islands [--json] [--seed N] [--data FOLDER]

  islands  jobs of 1, 2, 4 and 8 GPUs that come and go on one machine: predicted times where the engine puts them, beside
           first fit, best fit, the fastest set, and every set with one job of foresight
    --seed N       what is drawn; without it 42
    --data FOLDER  dumps of real machines; without it ../shared/data/topology beside the project

usage: phalanx-bench kube [--json] [--nodes N] [--only SCENARIO] [--runner NAME] [--runs N] [--phalanx FILE]

  kube    schedulers on a real API server with fake nodes of 8 GPUs (needs Go; the first run builds for minutes)
    --json          one JSON object in one line for each run in place of text
    --nodes N       nodes; without it 1,000 and then 5,000
    --only SCENARIO one of single, gangs, twice, fragmented, service, memory; again for more; without it all
    --runner NAME   one of bare, kube-scheduler, phalanx; again for more; without it bare and kube-scheduler
    --runs N        runs of each, of which the median is shown; without it 3
    --seed N        what is drawn; without it 42
    --limit N       seconds after which a run is cut off; without it 600
    --phalanx FILE  the executable of the runner phalanx; without it `phalanx` beside this one
    --into FILE     the tables as Markdown between two marks of a file, such as bench/results/kubernetes.md

usage: phalanx-bench lingjun [--json] [--data FOLDER]

  lingjun  leaves crossed by gangs on a real Clos of 847 hosts, against the fewest possible, by policy
    --data FOLDER  the folder of topo.csv; without it ../shared/data/traces/lingjun beside the project

usage: phalanx-bench optimality [--json] [--instances N] [--queues N] [--seed N] [--queue N]

  optimality  the engine's places against the best there are, on seeded instances; fails when one is not the best
    --json         one JSON object in one line in place of text
    --instances N  clusters with one gang; without it 1,800
    --queues N     clusters with several gangs at once; without it 200
    --seed N       one instance in full: cluster, gang, our place, best place
    --queue N      one queue in full
  Built with `--features milp` every best is checked by HiGHS too (needs cmake, a C++ compiler and libclang).

usage: phalanx-bench openb [--json] [--workload NAME] [--seeds FIRST-LAST] [--data FOLDER]

  openb   unallocated GPUs of a 6,212-GPU cluster under a real mix of requests, against seven other policies
    --json         one JSON object in one line in place of text
    --workload NAME     one of the ten pod lists; without it all of them
    --seeds FIRST-LAST  orders of arrival; without it 42-51, the published ones
    --data FOLDER  the traces; without it ../shared/data/traces beside the project

usage: phalanx-bench ops [--json] [--nodes N] [--runs N]

  ops     telemetry of a large cluster in one grader, and recovery of a gang of real processes from lost nodes (needs
          `phalanx` beside this executable)
    --json         one JSON object in place of text
    --nodes N      nodes of 8 GPUs whose telemetry is graded; without it 12,800
    --runs N       recoveries, with one and with three of four nodes lost; without it 7

usage: phalanx-bench sim muri|shockwave|gavel|pollux|fgd|philly|compare|overload|all [--json] [--data FOLDER]

  sim     published results of other schedulers' simulations, and what comes out of our world under their settings
    muri           SRTF and SRSF on Muri's four traces
    shockwave      max-min fairness and Themis on Shockwave's 120 jobs
    gavel          least attained service and max-min fairness on Gavel's continuous workloads
    pollux         Tiresias and Optimus on Pollux's workloads, by its measured step times
    fgd            FGD and others on openb
    philly         time to replay Philly's 82,247 jobs under each policy
    compare        all policies on real arrivals under a Clos
    overload       the presets on clusters that are full, and what a wait for near places is worth; five minutes
    all            all of them but philly; half an hour
    --only NAME    of compare, one trace: elasticflow-04, philly, lingjun, muri-1 to muri-4; again for more
    --load X       of compare, another load than its own: 2 divides the time between submissions by two
    --json         JSON in place of text
    --data FOLDER  the traces; without it ../shared/data/traces beside the project
    --into FILE    the tables as Markdown between two marks of a file, such as bench/results/simulator.md
    --page FILE    the tables as one HTML page
    --picture FILE of overload: mean completions as an SVG

usage: phalanx-bench step [--growth] [--json] [--gpus N] [--queues N] [--running N] [--pending N] [--seed N] [--only NAME]
                          [--repeat N]

  step    time of one step of the engine in a full cluster: after the end of a gang, a change of quota, a job that others
          are preempted for, many jobs at once, facts that change nothing, changes of nodes, and the cancel of an array
    --growth       clusters with 1/64, 1/8 and all of the GPUs, queues and gangs, and how p50 and p99 grow
    --json         one JSON object in one line for each cluster
    --gpus N       on machines of 8; without it 102,400
    --queues N     teams, 20 in each organisation; without it 1,000
    --running N    gangs that fill the cluster; without it 10,000
    --pending N    gangs that wait; a fifth as many are submitted at once; without it 50,000
    --seed N       what is drawn; without it 42
    --only NAME    one of completion, quota, preempt, burst, heartbeat, mix, foreign_use, cordon, remove, drain, notice,
                   array_cancel: for a profiler
    --repeat N     samples of each

usage: phalanx-bench victims [--instances N]

  victims  work lost by those whom the engine evicts, against the least that would have been enough, tried in full
    --instances N  small clusters that are drawn; without it 500
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((verb, rest)) if verb == "api" => api::run(rest),
        Some((verb, rest)) if verb == "cost" => cost::run(rest),
        Some((verb, rest)) if verb == "drill" => drill::run(rest),
        Some((verb, rest)) if verb == "kube-drill" => drill::run_on_kubernetes(rest),
        Some((verb, rest)) if verb == "map" => map::run(rest),
        Some((verb, rest)) if verb == "placement" => placement::run(rest),
        Some((verb, rest)) if verb == "optimality" => optimality::run(rest),
        Some((verb, rest)) if verb == "grid" => grid::run(rest),
        Some((verb, rest)) if verb == "openb" => openb::run(rest),
        Some((verb, rest)) if verb == "lingjun" => lingjun::run(rest),
        Some((verb, rest)) if verb == "sim" => sim::run(rest),
        Some((verb, rest)) if verb == "step" => step::run(rest),
        Some((verb, rest)) if verb == "islands" => islands::run(rest),
        Some((verb, rest)) if verb == "kube" => kube::run(rest),
        Some((verb, rest)) if verb == "ops" => ops::run(rest),
        Some((verb, rest)) if verb == "victims" => victims::run(rest),
        Some((verb, _)) if verb == "--help" || verb == "-h" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => Err(format!("say what to measure\n{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}
