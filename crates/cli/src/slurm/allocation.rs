//! The nodes of the job that this process belongs to, and the environment that programs for Slurm read.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::hostlist;
use super::job::{FACTS, Facts};
use crate::failure::Failure;

/// Looks up a variable.
pub(super) type Look<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The job around this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Allocation {
    pub(super) job: String,
    pub(super) name: String,
    pub(super) user: String,
    /// The number of the task of an array.
    pub(super) task: Option<u32>,
    pub(super) attempt: u32,
    /// Names of the nodes; the index is the rank that stands for the node.
    pub(super) nodes: Vec<String>,
    pub(super) facts: Facts,
}

#[derive(Deserialize)]
struct Topology {
    ranks: Vec<Rank>,
}

#[derive(Deserialize)]
struct Rank {
    node: String,
}

impl Allocation {
    /// `None` outside of jobs that `sbatch`, `srun` or `salloc` made.
    ///
    /// # Errors
    /// If the job has no readable description.
    pub(super) fn of_this_process(look: Look<'_>) -> Result<Option<Self>, Failure> {
        let (Some(job), Some(facts)) = (look("PHALANX_JOB_ID"), look(FACTS)) else { return Ok(None) };
        let broken =
            |what: String| Failure::internal(format!("the description of job {job} cannot be read: {what}"));
        let facts: Facts = serde_json::from_str(&facts).map_err(|e| broken(e.to_string()))?;
        let file = look("PHALANX_TOPOLOGY").unwrap_or_default();
        let text = std::fs::read_to_string(Path::new(&file)).map_err(|e| broken(format!("{file}: {e}")))?;
        let topology: Topology = serde_json::from_str(&text).map_err(|e| broken(format!("{file}: {e}")))?;
        Ok(Some(Self {
            name: look("PHALANX_JOB_NAME").unwrap_or_default(),
            user: look("USER").unwrap_or_default(),
            task: look("PHALANX_ARRAY_INDEX").and_then(|text| text.parse().ok()),
            attempt: look("PHALANX_ATTEMPT").and_then(|text| text.parse().ok()).unwrap_or(1),
            nodes: topology.ranks.into_iter().map(|rank| rank.node).collect(),
            facts,
            job,
        }))
    }

    /// `7`, or `7.3` for a task of an array, as Phalanx names it.
    pub(super) fn reference(&self) -> String {
        self.task.map_or_else(|| self.job.clone(), |task| format!("{}.{task}", self.job))
    }

    /// `7`, or `7_3` for a task of an array, as Slurm names it.
    pub(super) fn id(&self) -> String {
        self.task.map_or_else(|| self.job.clone(), |task| format!("{}_{task}", self.job))
    }

    pub(super) fn tasks(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).saturating_mul(self.facts.tasks_per_node)
    }

    /// The variables of the whole job.
    pub(super) fn variables(&self, look: Look<'_>) -> BTreeMap<String, String> {
        let facts = &self.facts;
        let nodes = self.nodes.len();
        let list = hostlist::compress(&self.nodes);
        let mut all = BTreeMap::new();
        let mut set = |names: &[&str], value: String| {
            all.extend(names.iter().map(|name| ((*name).to_owned(), value.clone())));
        };
        set(&["SLURM_JOB_ID", "SLURM_JOBID"], self.job.clone());
        set(&["SLURM_JOB_NAME"], self.name.clone());
        set(&["SLURM_JOB_USER"], self.user.clone());
        set(&["SLURM_JOB_UID"], nix::unistd::getuid().to_string());
        set(&["SLURM_JOB_PARTITION"], facts.partition.clone());
        set(&["SLURM_JOB_QOS"], facts.qos.clone().unwrap_or_else(|| "normal".to_owned()));
        set(&["SLURM_JOB_ACCOUNT"], facts.partition.clone());
        set(&["SLURM_CLUSTER_NAME"], "phalanx".to_owned());
        set(&["SLURM_SUBMIT_DIR"], facts.submit_dir.clone());
        set(&["SLURM_SUBMIT_HOST"], facts.submit_host.clone());
        set(&["SLURM_NNODES", "SLURM_JOB_NUM_NODES"], nodes.to_string());
        set(&["SLURM_NODELIST", "SLURM_JOB_NODELIST"], list);
        set(&["SLURM_NTASKS", "SLURM_NPROCS"], self.tasks().to_string());
        set(&["SLURM_TASKS_PER_NODE"], on_nodes(u64::from(facts.tasks_per_node), nodes));
        if facts.says_tasks_per_node {
            set(&["SLURM_NTASKS_PER_NODE"], facts.tasks_per_node.to_string());
        }
        let cpus = facts.cpus_per_node.map_or_else(this_machine_cpus, u64::from);
        set(&["SLURM_CPUS_ON_NODE"], cpus.to_string());
        set(&["SLURM_JOB_CPUS_PER_NODE"], on_nodes(cpus, nodes));
        if let Some(cpus) = facts.cpus_per_task {
            set(&["SLURM_CPUS_PER_TASK"], cpus.to_string());
        }
        if let Some(mib) = facts.memory_mib {
            set(&["SLURM_MEM_PER_NODE"], mib.to_string());
        }
        if facts.gpus_per_node > 0 {
            let total = u64::from(facts.gpus_per_node) * nodes as u64;
            set(&["SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"], facts.gpus_per_node.to_string());
            set(&["SLURM_GPUS"], total.to_string());
            set(&["SLURM_JOB_GPUS"], look("PHALANX_DEVICES").unwrap_or_default());
        }
        if let Some(gpus) = facts.gpus_per_task {
            set(&["SLURM_GPUS_PER_TASK"], gpus.to_string());
        }
        if self.attempt > 1 {
            set(&["SLURM_RESTART_COUNT"], (self.attempt - 1).to_string());
        }
        if let Some(task) = self.task {
            set(&["SLURM_ARRAY_JOB_ID"], self.job.clone());
            set(&["SLURM_ARRAY_TASK_ID"], task.to_string());
            for (name, of) in [("COUNT", "SIZE"), ("MIN", "MIN"), ("MAX", "MAX"), ("STEP", "STEP")] {
                if let Some(value) = look(&format!("PHALANX_ARRAY_{of}")) {
                    set(&[&format!("SLURM_ARRAY_TASK_{name}")], value);
                }
            }
        }
        all
    }

    /// The variables of one task: its number, its number on its node, and the number of its node.
    pub(super) fn of_task(&self, task: u32, local: u32, node: usize) -> BTreeMap<String, String> {
        let name = self.nodes.get(node).cloned().unwrap_or_default();
        [
            ("SLURM_PROCID", task.to_string()),
            ("SLURM_LOCALID", local.to_string()),
            ("SLURM_NODEID", node.to_string()),
            ("SLURMD_NODENAME", name),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    /// A pattern of a file name, with what its letters stand for. `%j` of a task of an array is `7_3`, so that no two tasks
    /// write one file.
    pub(super) fn file_name(&self, pattern: &str, task: u32, node: usize) -> String {
        if let Some(plain) = pattern.strip_prefix('\\') {
            return plain.to_owned();
        }
        let mut name = String::new();
        let mut letters = pattern.chars();
        while let Some(letter) = letters.next() {
            if letter != '%' {
                name.push(letter);
                continue;
            }
            let rest = letters.as_str();
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let width: usize = rest.get(..digits).and_then(|text| text.parse().ok()).unwrap_or(0).min(10);
            letters = rest.get(digits..).unwrap_or_default().chars();
            let array_task = self.task.map_or_else(|| "4294967294".to_owned(), |task| task.to_string());
            let value = match letters.next() {
                Some('%') => "%".to_owned(),
                Some('j' | 'J') => self.id(),
                Some('A') => self.job.clone(),
                Some('a') => array_task,
                Some('x') => self.name.clone(),
                Some('u') => self.user.clone(),
                Some('t') => task.to_string(),
                Some('n') => node.to_string(),
                Some('N') => self.nodes.get(node).cloned().unwrap_or_default(),
                Some('s') => "0".to_owned(),
                Some(other) => format!("%{other}"),
                None => "%".to_owned(),
            };
            if value.bytes().all(|byte| byte.is_ascii_digit()) {
                name.push_str(&format!("{value:0>width$}"));
            } else {
                name.push_str(&value);
            }
        }
        name
    }
}

/// `8(x2)`, as Slurm says what each node has.
fn on_nodes(each: u64, nodes: usize) -> String {
    if nodes > 1 { format!("{each}(x{nodes})") } else { each.to_string() }
}

fn this_machine_cpus() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocation() -> Allocation {
        Allocation {
            job: "7".to_owned(),
            name: "train".to_owned(),
            user: "ada".to_owned(),
            task: None,
            attempt: 1,
            nodes: vec!["gpu-1".to_owned(), "gpu-2".to_owned()],
            facts: Facts {
                nodes: 2,
                tasks_per_node: 4,
                gpus_per_node: 8,
                partition: "lab".to_owned(),
                ..Facts::default()
            },
        }
    }

    #[test]
    fn patterns_of_files_have_slurms_letters() {
        let plain = allocation();
        let task = Allocation { task: Some(3), ..allocation() };
        for (pattern, of_job, of_task) in [
            ("slurm-%j.out", "slurm-7.out", "slurm-7_3.out"),
            ("%A_%a", "7_4294967294", "7_3"),
            ("%x-%5j-%3a", "train-00007-4294967294", "train-7_3-003"),
            ("%u/%N-%n-%t.log", "ada/gpu-2-1-5.log", "ada/gpu-2-1-5.log"),
            ("100%%", "100%", "100%"),
            ("\\%j", "%j", "%j"),
            ("%", "%", "%"),
            ("%y", "%y", "%y"),
        ] {
            assert_eq!(plain.file_name(pattern, 5, 1), of_job);
            assert_eq!(task.file_name(pattern, 5, 1), of_task);
        }
    }

    #[test]
    fn programs_for_slurm_find_their_variables() {
        let look = |name: &str| (name == "PHALANX_DEVICES").then(|| "0-7".to_owned());
        let all = allocation().variables(&look);
        for (name, value) in [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_JOB_NUM_NODES", "2"),
            ("SLURM_JOB_NODELIST", "gpu-[1-2]"),
            ("SLURM_TASKS_PER_NODE", "4(x2)"),
            ("SLURM_GPUS_ON_NODE", "8"),
            ("SLURM_JOB_GPUS", "0-7"),
        ] {
            assert_eq!(all.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!all.contains_key("SLURM_NTASKS_PER_NODE") && !all.contains_key("SLURM_ARRAY_TASK_ID"));
        let of_task = allocation().of_task(5, 1, 1);
        assert_eq!(of_task["SLURM_PROCID"], "5");
        assert_eq!(of_task["SLURMD_NODENAME"], "gpu-2");
    }
}
