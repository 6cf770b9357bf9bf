//! The scenario language: text in, golden output out, over any world.
//!
//! One verb per line, `#` begins a comment:
//!
//! ```text
//! levels cluster leaf
//! node a leaf=l1 gpus=8 shape=hybrid_cube_mesh busy=0-1 cpus=96 memory=768GB
//! node b-[1-4] leaf=l2 gpus=8 shape=nvswitch
//! submit bert ranks=4 gpus=2 time=10m required=nvlink retry=2:user_code priority=5 runs=60s
//! advance 10s
//! exit bert rank=3 code=1     # or: kill-rank bert 3
//! cordon a                    # drain, uncordon, node-lost, node-back
//! cancel bert
//! crash                       # the engine dies and is built again
//! show                        # a row of devices per node, then the jobs
//! why bert
//! expect bert pending Resources
//! expect bert on b-1 b-2
//! expect nothing-held
//! ```
//!
//! Options of `node`: one per level (the outermost may be left out), `gpus shape model cpus memory busy`.
//! Of `submit`, what each rank needs: `gpus cpus memory model`; the gang: `ranks per-node on=NODE,… required=LEVEL
//! preferred=LEVEL@WAIT segments=RANKS@LEVEL,…`, widest first; the policy: `time start-deadline grace
//! advisory=SIGNAL@LEAD retry=MAX:CLASS,… backoff priority key`; and how its members behave: `starts=TIME|never runs=TIME|forever code
//! term=TIME|ignore fail-start=RANK`.

#![forbid(unsafe_code)]

mod declare;
mod error;
mod parse;
mod run;
pub mod shape;
mod show;
mod verb;
mod words;
mod world;

pub use error::ScenarioError;
pub use parse::parse;
pub use run::run;
pub use shape::Shape;
pub use verb::{Expectation, Line, Script, Submission, Verb};
pub use world::{Event, World};
