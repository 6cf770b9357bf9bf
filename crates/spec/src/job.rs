//! The job file: what a user submits, as flat YAML. Flags are turned into the same struct.

use std::collections::BTreeMap;
use std::fmt;

use phalanx_model::{ClassName, JobName, LaunchKind, Pattern, PreemptMode, QueueName, RoleName};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::error::Source;
use crate::moment::Moment;
use crate::nodes::NodesFile;
use crate::parallel::ParallelismFile;
use crate::place::{At, Scalar};
use crate::resources::ResourcesFile;
use crate::roles::RoleFile;
use crate::scalar::{Count, Memory, RetryCause, SignalNumber, Span, TimeLimit, VariableName};
use crate::service::{ServiceFile, SessionFile};
use crate::topology::TopologyFile;
use crate::turn::{AftersFile, ArrayFile, ElasticFile};
use crate::yaml;

/// A job: how many nodes and GPUs, what runs there, and what happens when it fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Phalanx job")]
pub struct JobFile {
    /// Name of the job; it need not be unique. Default: the program's name, or `job`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<At<JobName>>,
    /// Queue that the job waits in. Default: `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<At<QueueName>>,
    /// Jobs with a higher number go first. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<At<i32>>,
    /// Class of priority, e.g. `serving`: it goes before `priority`, and may take from lower classes what they hold.
    /// Default: the cluster's default class, `training` unless the queue file says another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<At<ClassName>>,
    /// Waits until somebody releases it. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<At<bool>>,
    /// Jobs whose ends are waited for, by number: `12`, `12:any`, or a list such as `[12, {job: 13, end: any}]`. Ends
    /// are `success` (the default), `failure` and `any`; when a job ends otherwise, this one ends too.
    #[serde(skip_serializing_if = "AftersFile::is_empty")]
    pub after: AftersFile,
    /// It starts no earlier: `2026-12-01T08:00Z`, or `+2h` from the submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begin: Option<At<Moment>>,
    /// It starts no later, and ends unstarted when it could not: `2026-12-01T08:00Z`, or `+8h` from the submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<At<Moment>>,
    /// The same job many times, each task by itself: `10`, `10%2` for two at once, `{size: 10, max_running: 2}`, or the
    /// numbers of the tasks, `1-10:3` or `1,4,7-9`. A task has its number in PHALANX_ARRAY_INDEX, and PHALANX_ARRAY_SIZE,
    /// _MIN, _MAX and _STEP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayFile>,
    /// It serves: equal replicas of what the file asks for, `{replicas: {min: 1, max: 4}, target: {metric: tokens, value:
    /// 1000}, spread: node}`. It runs until it is cancelled; a replica that ends is started again unless `retry` says
    /// otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceFile>,
    /// Somebody works in it, `{idle: 30m}`: it ends when nobody used it for so long. Default: it is no session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionFile>,
    /// Number of nodes, or their names: `2`, `[a, b]`, or `{count: 2, of: [a, b, c], except: [d], prefer: [a]}`. With
    /// a number, `resources` is what each NODE gives. Without one, `resources` is the total of the whole job, spread
    /// over as many nodes as are needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodesFile>,
    /// Number of processes in all. Default: one for each GPU; without whole GPUs what `parallelism` multiplies to, or
    /// one for each node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<At<Count>>,
    /// Number of processes on each node that is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_per_node: Option<At<Count>>,
    /// How few and how many ranks will do, `{min: 4, max: 16}`: the job shrinks before it is preempted, and grows into
    /// what nobody is owed. Default: always as many as it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elastic: Option<ElasticFile>,
    /// GPUs, CPUs, memory, and resources by name: per NODE when `nodes` has a number, otherwise in total.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesFile>,
    /// Nobody else on the nodes of the job, before and while it runs. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive: Option<At<bool>>,
    /// How close together the whole job must or should be, parts of it that must share a lower domain or be kept
    /// apart, and the slice of a torus that it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyFile>,
    /// How ranks are laid out for parallel training, `{tensor: 8, data: 4}`; lets the heaviest groups sit closest. The
    /// degrees multiply to the number of ranks. The innermost axis is tensor, then expert, data, pipeline; a list
    /// orders them itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<ParallelismFile>,
    /// Members beside the ranks that need something else, by name: `{launcher: {resources: {cpus: 1}, run: …}}`. They
    /// start with the job or not at all, and their ranks follow in the order of these names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<At<RoleName>, RoleFile>,
    /// How processes are started. `ranks`: one process per rank (the default). `torchrun`, `jax`, `none`: one
    /// process per node, which has all of the node's GPUs. `mpi`: every node is held, and one launcher runs, on
    /// the first of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub launch: Option<At<LaunchKind>>,
    /// Variables for the program. They win over everything that Phalanx sets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<At<VariableName>, At<String>>,
    /// Secret variables: names that are taken from the environment of `submit`, or `NAME: {file: PATH}` for a
    /// file that is read when the job starts. Values are never written into the job.
    #[serde(skip_serializing_if = "SecretsFile::is_empty")]
    pub secrets: SecretsFile,
    /// Directory that the program starts in; relative to where the job was submitted. Default: that directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<At<String>>,
    /// Shell lines that run before `run` or `command`, in the same shell. The first that fails ends the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<At<String>>,
    /// Shell text (bash) to run. Give this or `command`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<At<String>>,
    /// Program and arguments, run without a shell. Give this or `run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<At<String>>>,
    /// Longest running time of one attempt. A plain number is minutes, as in Slurm. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<At<TimeLimit>>,
    /// Longest time from the order to start until every process stands ready. Default: 1m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_deadline: Option<At<Span>>,
    /// What becomes of the job when it has to make way. `requeue`: it saves its work, ends, and waits again in its old
    /// place of the line (the default). `cancel`: it ends for good. `never`: it does not make way, and is given only
    /// what is guaranteed to its queue or to nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt: Option<At<PreemptMode>>,
    /// The job may be moved to other nodes, where it goes on from its checkpoint, so that another job has its nodes near each
    /// other. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub may_move: Option<At<bool>>,
    /// It also goes to nodes that may be taken back at short notice. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot: Option<At<bool>>,
    /// Where and how the program saves its work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointFile>,
    /// Which failures restart the job, and how often. Default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryFile>,
    /// Time between SIGTERM and SIGKILL when the job is stopped. Default: 30s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<At<Span>>,
    /// How the ranks talk in one step; lets the cost of a placement be predicted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traffic: Option<TrafficFile>,
    /// Raises the limits of locked memory and open files to what RDMA needs. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rdma: Option<At<bool>>,
    /// The first rank (of `launch: mpi` the launcher) runs in a terminal, to which `phalanx attach` connects; one machine
    /// only. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<At<bool>>,
    /// Command line or URL that is told when the job starts, ends or is preempted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<At<String>>,
    /// Idempotency key: a second submission of one user with this key is the same job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<At<String>>,
    /// The text that the places point into.
    #[serde(skip)]
    #[schemars(skip)]
    pub source: Source,
}

/// Where and how the program saves its work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointFile {
    /// Directory, told to the program as PHALANX_CKPT_DIR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<At<String>>,
    /// Whether every node sees that directory. With `false` the job resumes on the nodes where it saved its work, or
    /// not at all. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared: Option<At<bool>>,
    /// How often to save, told to the program as PHALANX_CKPT_INTERVAL in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<At<Span>>,
    /// Signal that asks the ranks to save their work, ahead of SIGTERM: `USR1`. Default: none is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<At<SignalNumber>>,
    /// Time between that signal and SIGTERM. Default: 30s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<At<Span>>,
}

/// Which failures restart the job, and how often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetryFile {
    /// Restarts, not counting the first start. Default: 1 when `on` is given, otherwise 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<At<u32>>,
    /// Failures that restart the job. Default: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<At<RetryCause>>>,
    /// Pause before the first restart; it doubles with every failure. Default: 1s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff: Option<At<Span>>,
    /// Longest pause. Default: 5m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_max: Option<At<Span>>,
}

/// How the ranks talk in one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrafficFile {
    /// Collective that dominates. Default: all_reduce.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<At<Pattern>>,
    /// Message bytes per rank and step.
    pub bytes: At<Memory>,
    /// Time that a step computes. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute: Option<At<Span>>,
}

/// Secret variables: names, or names with files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct SecretsFile(pub BTreeMap<At<VariableName>, SecretFile>);

/// Where one secret's value comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SecretFile {
    /// File that holds the value, readable by the job's owner. Default: the environment of `submit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<At<String>>,
}

yaml::define_file!(JobFile);

impl SecretsFile {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for SecretsFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = SecretsFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of names, [HF_TOKEN], or NAME: {file: PATH}")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<SecretsFile, A::Error> {
                let mut secrets = BTreeMap::new();
                while let Some(name) = list.next_element::<At<VariableName>>()? {
                    secrets.insert(name, SecretFile::default());
                }
                Ok(SecretsFile(secrets))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<SecretsFile, A::Error> {
                let mut secrets = BTreeMap::new();
                while let Some((name, secret)) = map.next_entry::<At<VariableName>, Option<SecretFile>>()? {
                    secrets.insert(name, secret.unwrap_or_default());
                }
                Ok(SecretsFile(secrets))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for SecretsFile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SecretsFile".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let name = VariableName::schema();
        let secret = generator.subschema_for::<Option<SecretFile>>();
        json_schema!({ "anyOf": [
            { "type": "array", "items": name },
            { "type": "object", "propertyNames": name, "additionalProperties": secret },
        ]})
    }
}
