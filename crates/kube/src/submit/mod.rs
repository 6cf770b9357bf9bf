//! Jobs of people as manifests: an indexed Job and a Service, or the job of an operator where one serves it.
//!
//! Pure: a [`Work`] comes in, objects go out. Every job is created suspended, so that its pods come when the scheduler has
//! a place for all of them.
//!
//! | module | what lives there |
//! |---|---|
//! | `of_job` | a job file as [`Work`], and what of it Kubernetes cannot be told |
//! | `pod` | the pod template |
//! | `indexed` | the indexed Job and its Service |
//! | `kubeflow` | `MPIJob` and `PyTorchJob` |
//! | `mpi` | how a launcher of ours reaches its workers: host file, script and key |

mod indexed;
mod kubeflow;
mod mpi;
mod of_job;
mod pod;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

pub use indexed::indexed;
pub use kubeflow::{mpi_job, pytorch_job};
pub use of_job::of_job;

use crate::gang::SUSPENDED;
use crate::recognise::TopologyWait;
use crate::recognise::names::phalanx;

/// On all that is created for a job, and on its pods: the job's name.
pub const JOB: &str = "phalanx.dev/job";
/// Rechecks it: what the job was submitted as, a word of [`Trainer`].
pub const TRAINER: &str = "phalanx.dev/trainer";

/// What a GPU is called among the resources of pods and nodes.
pub const GPU: &str = "nvidia.com/gpu";
/// Most pods of one job.
pub const WORKERS_MAX: u32 = 10_000;
/// The port where ranks meet, that of PyTorch.
const PORT: u16 = 29_500;

/// What a job was submitted as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trainer {
    #[default]
    Job,
    Mpi,
    PyTorch,
}

impl Trainer {
    /// As Arena's users know it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Mpi => "mpijob",
            Self::PyTorch => "pytorchjob",
        }
    }

    /// Arena has two words for each.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        match word {
            "job" => Some(Self::Job),
            "mpijob" | "mpi" => Some(Self::Mpi),
            "pytorchjob" | "pytorch" => Some(Self::PyTorch),
            _ => None,
        }
    }
}

/// What a job runs, and what it needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Of all its objects.
    pub name: String,
    pub trainer: Trainer,
    /// Pods that start together.
    pub workers: u32,
    /// Of each pod.
    pub gpus: u32,
    /// Of each pod, as Kubernetes writes it.
    pub cpu: Option<String>,
    /// The same.
    pub memory: Option<String>,
    pub image: String,
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// That of the image where it is not said.
    pub workdir: Option<String>,
    pub launch: Launch,
    pub queue: Option<String>,
    pub priority_class: Option<String>,
    /// Level inside one domain of which all pods must be.
    pub required: Option<String>,
    /// The same, where they should be.
    pub preferred: Option<String>,
    /// How long they wait for that level, or for a nearer place than one where they could start.
    pub topology_wait: Option<TopologyWait>,
    /// `size:level`, the widest first.
    pub segments: Vec<String>,
    pub time_limit_s: Option<u64>,
    /// Pods that may fail before the job does.
    pub retry: u32,
    pub grace_s: Option<u64>,
    /// Beside ours, on the job and on its pods.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub node_selector: BTreeMap<String, String>,
    /// Only these nodes; empty: any.
    pub nodes: Vec<String>,
    /// None of these nodes.
    pub avoid: Vec<String>,
    /// Keys of taints that are tolerated; `all` tolerates every one.
    pub tolerations: Vec<String>,
    /// Claims of volumes, each with the path where it is seen.
    pub data: Vec<(String, String)>,
    pub pull_secrets: Vec<String>,
    pub pull_policy: Option<String>,
    pub host_network: bool,
    /// Of the shared memory of each pod, as Kubernetes writes it.
    pub shared_memory: Option<String>,
}

/// How the processes of a pod are started and told of each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Launch {
    /// One process for each pod, as torchrun would start it.
    #[default]
    Ranks,
    /// An agent for each pod, which starts so many ranks; 0: one for each GPU.
    Torchrun {
        per_pod: u32,
    },
    Jax,
    /// A launcher in the first pod, which starts so many ranks in every pod; 0: one for each GPU.
    Mpi {
        per_pod: u32,
    },
    None,
}

/// What of a job cannot be submitted to a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {problem}")]
pub struct Refused {
    /// The flag or the field.
    pub what: String,
    pub problem: String,
    pub remedy: String,
}

impl Refused {
    fn new(what: &str, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.to_owned(), problem: problem.into(), remedy: remedy.into() }
    }
}

/// One thing to create.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// As in the path of the API: `jobs`.
    pub plural: &'static str,
    pub object: Value,
}

impl Work {
    /// Whether a cluster would have it at all. What else is wrong, its API server says.
    ///
    /// # Errors
    /// When the name is none that pods and a Service can carry, or the size is out of bounds.
    pub fn check(&self) -> Result<(), Refused> {
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            let problem = format!("{} pods", self.workers);
            return Err(Refused::new("size", problem, format!("ask for 1 to {WORKERS_MAX}")));
        }
        if self.image.trim().is_empty() {
            return Err(Refused::new("--image", "is missing", "name the image in which the job runs"));
        }
        if self.argv.is_empty() {
            return Err(Refused::new("the command", "is missing", "write it behind all flags"));
        }
        // Its pods are called `NAME-9999-xxxxx`, and the name of a host has at most 63 characters.
        let longest = 63 - "-9999-launcher".len();
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let begins = self.name.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || self.name.ends_with('-') || self.name.len() > longest || !self.name.chars().all(is_word)
        {
            let problem = format!("{:?} cannot be the name of hosts", self.name);
            let remedy = format!(
                "use small letters, digits and `-`, begin with a letter, at most {longest} characters"
            );
            return Err(Refused::new("--name", problem, remedy));
        }
        Ok(())
    }

    /// Ranks of each pod: as they are said, otherwise one for each GPU.
    fn ranks(&self, said: u32) -> u32 {
        if said > 0 { said } else { self.gpus.max(1) }
    }

    /// What is said of the job as a whole.
    fn metadata(&self) -> Value {
        let mut annotations = self.topology();
        annotations.insert(SUSPENDED.to_owned(), json!("submitted: waits for places for all of its pods"));
        annotations.extend(self.annotations.iter().map(|(key, value)| (key.clone(), json!(value))));
        json!({ "name": self.name, "labels": self.labels(), "annotations": annotations })
    }

    fn labels(&self) -> Map<String, Value> {
        let mut labels: Map<String, Value> =
            self.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        labels.insert("app.kubernetes.io/managed-by".to_owned(), json!("phalanx"));
        labels.insert(JOB.to_owned(), json!(self.name));
        labels.insert(TRAINER.to_owned(), json!(self.trainer.word()));
        labels
    }

    fn topology(&self) -> Map<String, Value> {
        let segments = (!self.segments.is_empty()).then(|| self.segments.join(","));
        let rules = [
            (phalanx::QUEUE, self.queue.clone()),
            (phalanx::REQUIRED, self.required.clone()),
            (phalanx::PREFERRED, self.preferred.clone()),
            (phalanx::WAIT, self.topology_wait.map(|wait| wait.to_string())),
            (phalanx::SEGMENTS, segments),
        ];
        rules.into_iter().filter_map(|(key, value)| Some((key.to_owned(), json!(value?)))).collect()
    }
}

#[cfg(test)]
mod tests;
