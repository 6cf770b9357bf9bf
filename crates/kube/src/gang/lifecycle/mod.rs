//! The life of a gang, from the first of its pods to the last.
//!
//! | module | what lives there |
//! |---|---|
//! | `collect` | pods come and go: which gang each belongs to |
//! | `unresolved` | pods whose group or owner does not exist |
//! | `single_pods`, `siblings` | pods that start by themselves, and those of one owner in one domain |
//! | `scale_up`, `proximity` | pods that join a running gang, near to it |
//! | `submit`, `topology`, `label_domains` | a complete gang becomes a job of the engine, with its topology rules |
//! | `jobs` | what the engine says of the job: ended, refused, waits for another start |
//! | `nomination` | others are preempted for the gang: its nodes are nominated |
//! | `start` | the engine places a gang: its pods are bound |
//! | `ranks` | what the news of a pod mean for its rank |
//! | `repair`, `spare_ranks`, `completed` | a rank lost its pod: keep its place, go on without it, or count it as done |
//! | `replicas` | which pods may have a replica of a GPU where they request a GPU |
//! | `observed_devices` | the kubelet gave other devices than those chosen |
//! | `stop`, `grace`, `suspension`, `orphaned_bindings` | a start ends: its pods and their owner, and bindings that belong to no start |
//! | `outside` | gangs that wait and are not in the engine |
//! | `recovery` | after a restart of the scheduler, a start is read back from its pods |

pub(crate) mod collect;
pub(crate) mod completed;
pub(crate) mod grace;
pub(crate) mod jobs;
pub(crate) mod label_domains;
pub(crate) mod nomination;
pub(crate) mod observed_devices;
pub(crate) mod orphaned_bindings;
pub(crate) mod outside;
pub(crate) mod proximity;
pub(crate) mod ranks;
pub(crate) mod recovery;
pub(crate) mod repair;
pub(crate) mod replicas;
pub(crate) mod scale_up;
pub(crate) mod siblings;
pub(crate) mod single_pods;
pub(crate) mod spare_ranks;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod submit;
pub(crate) mod suspension;
pub(crate) mod topology;
pub(crate) mod unresolved;
