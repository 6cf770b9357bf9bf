//! The scenario language: text in, golden output out, over any world.
//!
//! One verb per line, `#` begins a comment:
//!
//! ```text
//! levels cluster leaf
//! limit leaf power=40         # for all nodes of a leaf; at=cluster/l1 for one leaf
//! torus pod 4x4x8 host=2x2x1 wraps=xz
//! node a leaf=l1 gpus=8 shape=hybrid_cube_mesh busy=0-1 cpus=96 memory=768GB
//! node b-[1-4] leaf=l2 gpus=8 shape=nvswitch
//! settings half-life=7d reservations=1 reclaim=guarantee worth=A100:400
//! class batch rank=50 preempts=no min-run=5m grace-max=30s
//! queue lab guaranteed=gpus:16 limit=gpus:32
//! queue research parent=lab guaranteed=gpus:8,gpus/H100:4 lend=gpus:4 weight=2    # a repeated verb changes the queue
//! submit bert ranks=4 gpus=2 time=10m required=nvlink retry=2:user_code priority=5 runs=60s
//! advance 10s
//! exit bert rank=3 code=1     # or: kill-rank bert 3
//! saved bert                  # the ranks save a checkpoint now
//! hold bert                   # release
//! uplink leaf 2500            # the uplink of every leaf in MB/s; before the first node
//! boost bert priority=10 until=2h
//! cordon a                    # drain, uncordon, node-lost, node-back
//! grade a broken gpus=3 why=Xid-79      # health: ok, suspect, drain_after_job, drain_now, broken
//! measure a 40% why=perftest            # also the uplink of a domain: cluster/l1; 100% ends it
//! cancel bert
//! defrag bert                 # jobs that may move open a place for it
//! scale chat 3                # the desired replicas of a service
//! load chat tokens=2500       # the load that its replicas share from now on, and report every 30 s
//! use notebook                # a session is used
//! crash                       # the engine crashes and is rebuilt
//! queue-gone research
//! show                        # a row of devices for each node, then the jobs
//! show queues                 # a line for each queue
//! why bert
//! expect bert pending Resources
//! expect bert on b-1 b-2
//! expect bert held on b-1     # bert has a reservation there
//! expect bert evicted 1
//! expect chat runs 2          # running gangs
//! expect research uses gpus:8
//! expect nothing-held
//! ```
//!
//! Options of `node`: one per level (the outermost may be left out), `gpus shape model gpu-memory cpus memory busy
//! named=nic:8,… others-cpus others-memory others-named=nic:1,… sets=NAME,… share-limit=2.0 torus=pod@X,Y,Z`, in a pattern along x, y, z from there.
//!
//! Of `queue`: `parent guaranteed limit lend weight max-running max-pending max-gang max-time shapes=LEVEL:COUNTxNODES,…
//! nodes=model:TEXT+LEVEL:DOMAIN+hosts:NAME+set:NAME,…,any` (pools in order of preference);
//! `none` removes a limit. Of `settings`: `half-life ageing reservations=COUNT|all hold-idle=THOUSANDTHS
//! reclaim=guarantee|fair_share min-run=CLASS:TIME,… worth=MODEL:THOUSANDTHS,… spares=LEVEL:NODES[:filled]|none migration=pays|always|never defragmentation=asked|pays default-class`. Of `class`: `rank
//! preemptible=yes|no preempts=yes|no min-run grace-max`.
//!
//! Of `submit`, the needs of each rank: `gpus cpus memory model=H100,A100:0.4 named=nic:1,… share=0.25@10GB
//! trust=NAME mig=1g.10gb|COMPUTE@MEMORY on=NODE,… avoid=NODE,… within=SET prefer=NODE,… exclusive`; the gang: `ranks elastic=MIN-MAX
//! per-node required=LEVEL preferred=LEVEL@WAIT|priced nearest=WAIT|priced|required segments=RANKS@LEVEL,…` (widest first) `spread=RANKS@LEVEL,… slice=4x4x8
//! grid=tensor:2,data:4:64MiB,… roles=NAME:COUNT,NEED=…;…`; the policy: `time start-deadline grace
//! advisory=SIGNAL@LEAD retry=MAX:CLASS,… backoff priority key preempt=never|cancel|requeue pinned may-move`; the order:
//! `queue class hold after=JOB:success|failure|any,… begin=TIME deadline=TIME array=TASKS%AT-ONCE
//! service=MIN..MAX target=METRIC:VALUE apart=LEVEL idle=TIME`; and the behaviour of its members: `starts=TIME|never
//! runs=TIME|forever code term=TIME|ignore fail-start=RANK saves=TIME save-takes=TIME`. A job with `saves` saves a
//! checkpoint at this interval, and on an advisory signal, which ends it. When it resumes, only the remaining work
//! runs. Points in time (`begin deadline until`) are counted from the beginning of the scenario, as they are printed.

#![forbid(unsafe_code)]

mod declare;
mod error;
mod gang;
mod parse;
mod queues;
mod run;
mod service;
pub mod shape;
mod show;
mod show_queues;
mod turn;
mod verb;
mod words;
mod world;

pub use error::ScenarioError;
pub use parse::parse;
pub use run::run;
pub use shape::Shape;
pub use verb::{Expectation, Line, Script, Submission, Verb};
pub use world::{Event, World};
