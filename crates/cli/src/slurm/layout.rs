//! How many nodes, tasks, GPUs, CPUs and how much memory the options of a job mean.

use super::hostlist;
use super::options::{Given, Where};
use super::size;
use crate::failure::Failure;

/// The most that one node of the cluster has, and the models of all GPUs. Nothing is known of a cluster that is not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Largest {
    pub(super) gpus: u32,
    pub(super) cpus: u32,
    pub(super) models: Vec<String>,
}

/// What each node of a job gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) nodes: u32,
    pub(super) tasks_per_node: u32,
    pub(super) gpus_per_node: u32,
    /// Text that the model of a GPU contains; several are separated by `|`.
    pub(super) model: Option<String>,
    pub(super) gpus_per_task: Option<u32>,
    pub(super) cpus_per_task: Option<u32>,
    pub(super) cpus_per_node: Option<u32>,
    pub(super) memory_mib: Option<u64>,
    /// `NAME=N` of each node.
    pub(super) resources: Vec<String>,
    pub(super) named: Vec<String>,
    pub(super) excluded: Vec<String>,
}

/// GPUs as one option says them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gpus {
    count: u32,
    model: Option<String>,
}

/// The GPUs that the options say, as they say them.
#[derive(Default)]
struct Asked {
    total: Option<u32>,
    per_node: Option<u32>,
    per_task: Option<u32>,
    model: Option<String>,
    resources: Vec<String>,
}

impl Layout {
    /// # Errors
    /// If an option has a value that it does not take, or two options contradict each other.
    pub(super) fn read(given: &Given, largest: &Largest, from: Where<'_>) -> Result<Self, Failure> {
        let asked = Asked::read(given, from)?;
        let number = |flag: &str| number(given, flag, from);
        let per_node = number("ntasks-per-node")?;
        let tasks = number("ntasks")?;
        let (named, excluded) = (names(given, "nodelist", from)?, names(given, "exclude", from)?);
        let cpus_per_task = number("cpus-per-task")?;
        let nodes = match nodes(given, from)? {
            Some(nodes) => nodes,
            None if !named.is_empty() => u32::try_from(named.len()).unwrap_or(u32::MAX),
            None => fewest(tasks, per_node, &asked, cpus_per_task, largest),
        };
        let gpus_per_node = asked.on_each_node(nodes, from)?;
        let tasks_per_node = tasks_on_node(nodes, tasks, per_node, from)?.unwrap_or_else(|| {
            asked.per_task.and_then(|each| gpus_per_node?.checked_div(each)).unwrap_or(1).max(1)
        });
        let gpus_per_node = match (gpus_per_node, asked.per_task) {
            (Some(gpus), Some(each)) if each.saturating_mul(tasks_per_node) != gpus => {
                let what = format!(
                    "--gpus-per-task={each} for {tasks_per_node} tasks on a node contradicts {gpus} GPUs on a node"
                );
                return Err(from.refuse(&what, "leave one of the two out"));
            }
            (Some(gpus), _) => gpus,
            (None, Some(each)) => each.saturating_mul(tasks_per_node),
            (None, None) => 0,
        };
        let mut layout = Self {
            nodes,
            tasks_per_node,
            gpus_per_node,
            model: asked.model.clone(),
            gpus_per_task: asked.per_task,
            cpus_per_task,
            cpus_per_node: None,
            memory_mib: None,
            resources: asked.resources,
            named,
            excluded,
        };
        layout.set_constraint(given, largest, from)?;
        layout.set_cpus(given, from)?;
        layout.set_memory(given, from)?;
        Ok(layout)
    }

    /// Features of nodes are models of GPUs here.
    fn set_constraint(&mut self, given: &Given, largest: &Largest, from: Where<'_>) -> Result<(), Failure> {
        let Some(text) = given.get("constraint") else { return Ok(()) };
        let hint = "nodes have no features: name a model of GPUs, nodes (--nodelist) or a queue with nodes of its own (--partition)";
        let plain = text.trim_matches(['[', ']', '(', ')']);
        let refuse = |why: &str| from.refuse(&format!("--constraint={text} is not supported: {why}"), hint);
        if self.gpus_per_node == 0 {
            return Err(refuse("the job has no GPUs whose model it could name"));
        }
        if plain.contains(['&', '*', '[', '!', '(', ',']) {
            return Err(refuse("models of GPUs are separated by `|`"));
        }
        let known = |word: &str| {
            largest.models.is_empty()
                || largest.models.iter().any(|model| model.to_lowercase().contains(&word.to_lowercase()))
        };
        if let Some(word) = plain.split('|').find(|word| !known(word)) {
            return Err(refuse(&format!("no GPU's model contains {word:?}")));
        }
        match &self.model {
            Some(model) if !model.eq_ignore_ascii_case(plain) => {
                Err(refuse(&format!("the GPUs are of type {model} already, by --gres or --gpus")))
            }
            Some(_) => Ok(()),
            None => {
                self.model = Some(plain.to_owned());
                Ok(())
            }
        }
    }

    /// Without GPUs a task has one CPU, as in Slurm; with GPUs, CPUs are limited only if the job says so.
    fn set_cpus(&mut self, given: &Given, from: Where<'_>) -> Result<(), Failure> {
        let of_tasks = self.cpus_per_task.map(|each| each.saturating_mul(self.tasks_per_node));
        let of_gpus =
            number(given, "cpus-per-gpu", from)?.map(|each| each.saturating_mul(self.gpus_per_node));
        let least = number(given, "mincpus", from)?;
        let said = [of_tasks, of_gpus, least].into_iter().flatten().max();
        let is_whole = given.has("exclusive");
        let default = (self.gpus_per_node == 0 && !is_whole).then_some(self.tasks_per_node);
        self.cpus_per_node = said.or(default);
        Ok(())
    }

    fn set_memory(&mut self, given: &Given, from: Where<'_>) -> Result<(), Failure> {
        let read = |flag: &str| {
            let text = given.get(flag);
            let mib = text
                .map(|text| size::mebibytes(text).map_err(|e| from.refuse(&format!("--{flag}: {e}"), "")));
            mib.transpose()
        };
        let cpus = self.cpus_per_node.unwrap_or(self.tasks_per_node);
        let said = match (read("mem")?, read("mem-per-cpu")?, read("mem-per-gpu")?) {
            (Some(node), None, None) => Some(node),
            (None, Some(each), None) => Some(each.saturating_mul(u64::from(cpus))),
            (None, None, Some(each)) => Some(each.saturating_mul(u64::from(self.gpus_per_node))),
            (None, None, None) => None,
            _ => {
                let hint = "give one of --mem, --mem-per-cpu and --mem-per-gpu";
                return Err(from.refuse("memory is said in two ways", hint));
            }
        };
        // 0 means all that a job may have, which is what it has without the option.
        self.memory_mib = said.filter(|mib| *mib > 0);
        Ok(())
    }
}

impl Asked {
    fn read(given: &Given, from: Where<'_>) -> Result<Self, Failure> {
        let mut asked = Self::default();
        let wrong =
            |flag: &str, what: &str| from.refuse(&format!("--{flag}: {what}"), "expected [MODEL:]NUMBER");
        for flag in ["gpus", "gpus-per-node", "gpus-per-task"] {
            let Some(text) = given.get(flag) else { continue };
            let gpus = gpus(text).map_err(|what| wrong(flag, &what))?;
            asked.set_model(gpus.model, from)?;
            match flag {
                "gpus" => asked.total = Some(gpus.count),
                "gpus-per-node" => asked.per_node = Some(gpus.count),
                _ => asked.per_task = Some(gpus.count),
            }
        }
        for one in given.list("gres").into_iter().filter(|one| !one.eq_ignore_ascii_case("none")) {
            let plain = one.strip_prefix("gres/").unwrap_or(one).replace('=', ":");
            let (name, rest) = plain.split_once(':').unwrap_or((&plain, "1"));
            match name {
                "gpu" => {
                    let gpus = gpus(rest).map_err(|what| wrong("gres", &what))?;
                    if asked.per_node.is_some_and(|before| before != gpus.count) {
                        let what = "--gres and --gpus-per-node say different numbers of GPUs";
                        return Err(from.refuse(what, "leave one of the two out"));
                    }
                    asked.set_model(gpus.model, from)?;
                    asked.per_node = Some(gpus.count);
                }
                "mps" | "shard" => {
                    let what = format!("--gres={one} is not supported: parts of GPUs are said otherwise");
                    return Err(
                        from.refuse(&what, "`phalanx submit -G 0.25` gives each rank a quarter of a GPU")
                    );
                }
                other => {
                    let count = rest.rsplit(':').next().unwrap_or(rest);
                    let count = size::count(count).map_err(|what| wrong("gres", &what))?;
                    asked.resources.push(format!("{other}={count}"));
                }
            }
        }
        Ok(asked)
    }

    fn set_model(&mut self, model: Option<String>, from: Where<'_>) -> Result<(), Failure> {
        let Some(model) = model else { return Ok(()) };
        if model.contains("g.") && model.ends_with("gb") {
            let what = format!("the GPU type {model} is not supported: a MIG slice belongs to one rank");
            return Err(from.refuse(&what, &format!("`phalanx submit --mig {model}`")));
        }
        if self.model.as_ref().is_some_and(|before| *before != model) {
            return Err(from.refuse("two options name different models of GPUs", "name one"));
        }
        self.model = Some(model);
        Ok(())
    }

    /// GPUs of each node, if they are said by node or in total.
    fn on_each_node(&self, nodes: u32, from: Where<'_>) -> Result<Option<u32>, Failure> {
        let Some(total) = self.total else { return Ok(self.per_node) };
        if let Some(each) = self.per_node {
            if each.saturating_mul(nodes) != total {
                let what = format!("--gpus={total} contradicts {each} GPUs on each of {nodes} nodes");
                return Err(from.refuse(&what, "leave one of the two out"));
            }
            return Ok(Some(each));
        }
        if !total.is_multiple_of(nodes) {
            let what = format!("--gpus={total} cannot be divided evenly among {nodes} nodes");
            return Err(from.refuse(&what, "every node of a job gives as many GPUs"));
        }
        Ok(Some(total / nodes))
    }
}

/// `2`, `a100:2` or `a100`.
fn gpus(text: &str) -> Result<Gpus, String> {
    if text.contains(',') {
        return Err(format!("{text:?} names several models of GPUs"));
    }
    match text.rsplit_once(':') {
        Some((model, count)) => Ok(Gpus { count: size::count(count)?, model: Some(model.to_owned()) }),
        None if text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic()) => {
            Ok(Gpus { count: 1, model: Some(text.to_owned()) })
        }
        None => Ok(Gpus {
            count: text.parse().map_err(|_| format!("{text:?} is no number of GPUs"))?,
            model: None,
        }),
    }
}

/// The number that an option says.
pub(super) fn number(given: &Given, flag: &str, from: Where<'_>) -> Result<Option<u32>, Failure> {
    let Some(text) = given.get(flag) else { return Ok(None) };
    size::count(text).map(Some).map_err(|what| from.refuse(&format!("--{flag}: {what}"), ""))
}

/// The names of a list of nodes.
pub(super) fn names(given: &Given, flag: &str, from: Where<'_>) -> Result<Vec<String>, Failure> {
    let Some(text) = given.get(flag) else { return Ok(Vec::new()) };
    if text.contains('/') {
        let what = format!("--{flag}: a file of names is not supported");
        return Err(from.refuse(&what, "write the names: NAME,NAME or gpu-[1-4]"));
    }
    hostlist::expand(text).map_err(|what| from.refuse(&format!("--{flag}: {what}"), ""))
}

/// `4` or `4-4`.
fn nodes(given: &Given, from: Where<'_>) -> Result<Option<u32>, Failure> {
    let Some(text) = given.get("nodes") else { return Ok(None) };
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    if least != most {
        let what = format!("--nodes={text} is not supported: a job has a fixed number of nodes");
        return Err(from.refuse(&what, "say one number; `elastic` of a job file changes a job while it runs"));
    }
    size::count(least).map(Some).map_err(|what| from.refuse(&format!("--nodes: {what}"), ""))
}

/// Tasks on each node, if the options say so.
fn tasks_on_node(
    nodes: u32,
    tasks: Option<u32>,
    per_node: Option<u32>,
    from: Where<'_>,
) -> Result<Option<u32>, Failure> {
    let Some(tasks) = tasks else { return Ok(per_node) };
    if !tasks.is_multiple_of(nodes) {
        let what = format!("--ntasks={tasks} cannot be divided evenly among {nodes} nodes");
        return Err(from.refuse(&what, "every node of a job runs as many tasks"));
    }
    let each = tasks / nodes;
    if let Some(most) = per_node.filter(|most| each > *most) {
        let what = format!("--ntasks={tasks} on {nodes} nodes are more than --ntasks-per-node={most}");
        return Err(from.refuse(&what, "leave one of the options out"));
    }
    Ok(Some(each))
}

/// The fewest nodes on which a job that does not say how many has room, by what the largest node has.
fn fewest(
    tasks: Option<u32>,
    per_node: Option<u32>,
    asked: &Asked,
    cpus_per_task: Option<u32>,
    largest: &Largest,
) -> u32 {
    if let (Some(tasks), Some(each)) = (tasks, per_node) {
        return tasks.div_ceil(each);
    }
    if let (Some(total), Some(each)) = (asked.total, asked.per_node) {
        return total.div_ceil(each.max(1));
    }
    let total = asked.total.unwrap_or(0).max(asked.per_task.unwrap_or(0).saturating_mul(tasks.unwrap_or(1)));
    let parts = tasks.unwrap_or(total).max(1);
    let is_room = |nodes: &u32| {
        let cpus = cpus_per_task.unwrap_or(1).saturating_mul(tasks.unwrap_or(1) / nodes);
        parts.is_multiple_of(*nodes)
            && total.is_multiple_of(*nodes)
            && (largest.gpus == 0 || total / nodes <= largest.gpus)
            && (largest.cpus == 0 || cpus <= largest.cpus)
    };
    (1..=parts.min(4_096)).find(is_room).unwrap_or(1)
}
