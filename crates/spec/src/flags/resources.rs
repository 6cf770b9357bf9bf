//! Flags for nodes and what is taken of them.

use crate::error::{Place, SpecError};
use crate::gpus::{GpusFile, MigFile};
use crate::job::JobFile;
use crate::nodes::NodesFile;
use crate::place::{At, Scalar};
use crate::resources::ResourcesFile;
use crate::scalar::Count;

use super::{SubmitFlags, read, read_all, refuse, set};

impl SubmitFlags {
    pub(super) fn set_resources(&self, file: &mut JobFile) -> Result<(), SpecError> {
        let total_before = file.node_count().is_none();
        self.set_nodes(file)?;
        let mut resources = file.resources.clone().unwrap_or_default();
        set("--cpus", self.cpus.as_deref(), &mut resources.cpus)?;
        set("--memory", self.memory.as_deref(), &mut resources.memory)?;
        for text in &self.resources {
            let (name, amount) = text.split_once('=').ok_or_else(|| {
                refuse("--resource", &format!("{text:?} has no '='\nNAME=AMOUNT, such as nic=1"))
            })?;
            let name = ResourcesFile::name(name, Place::Flag("--resource"));
            let name = name.map_err(|message| refuse("--resource", &message))?;
            // A map keeps the old key, and with it the old place, when a value is replaced.
            resources.named.remove(&name);
            resources.named.insert(name, read("--resource", amount)?);
        }
        if let Some(gpus) = self.read_gpus(file)? {
            resources.gpus = Some(gpus);
        }
        if let Some(nodes) = &file.node_count()
            && total_before
            && nodes.value.0 > 1
        {
            self.refuse_new_meaning(nodes, file)?;
        }
        if resources != ResourcesFile::default() {
            file.resources = Some(resources);
        }
        Ok(())
    }

    fn set_nodes(&self, file: &mut JobFile) -> Result<(), SpecError> {
        let said = file.nodes.take().unwrap_or_default();
        let names = |flag, names| read_all(flag, names, Scalar::read_at);
        let mut nodes = match NodesFile::all(names("--node", &self.named)?) {
            Some(all) => NodesFile { except: said.except, prefer: said.prefer, ..all },
            None => said,
        };
        set("--nodes", self.nodes.as_deref(), &mut nodes.count)?;
        if !self.exclude.is_empty() {
            nodes.except = names("--exclude", &self.exclude)?;
        }
        if !self.prefer.is_empty() {
            nodes.prefer = names("--prefer", &self.prefer)?;
        }
        file.nodes = (nodes != NodesFile::default()).then_some(nodes);
        Ok(())
    }

    /// The GPUs that the flags say, as a file says them: of each node where it says nodes.
    fn read_gpus(&self, file: &mut JobFile) -> Result<Option<GpusFile>, SpecError> {
        let read = |flag: &'static str, text: &Option<String>| {
            let gpus = text.as_deref().map(|text| GpusFile::from_short(text, Place::Flag(flag)));
            gpus.transpose().map_err(|message| refuse(flag, &message))
        };
        let (total, per_node) = (read("--gpus", &self.gpus)?, read("--gpus-per-node", &self.gpus_per_node)?);
        if let Some(mig) = &self.mig {
            let mig = MigFile::from_short(mig, Place::Flag("--mig"));
            let mig = mig.map_err(|message| refuse("--mig", &message))?;
            if total.is_some() || per_node.is_some() {
                let what = "is a slice of a GPU for each rank, and whole GPUs or shares are asked for too";
                return Err(refuse("--mig", &format!("{what}\none of the two")));
            }
            return Ok(Some(GpusFile { mig: Some(mig), ..GpusFile::default() }));
        }
        if per_node.as_ref().is_some_and(GpusFile::is_part) {
            let what = "is a part of a GPU, and every rank has one of its own";
            return Err(refuse("--gpus-per-node", &format!("{what}\nwhole GPUs, or --gpus with the part")));
        }
        let Some(per_node) = per_node else {
            let Some(total) = total else { return Ok(None) };
            return Ok(Some(match (total.count, file.node_count()) {
                (Some(count), Some(nodes)) => GpusFile { count: Some(spread(count, nodes)?), ..total },
                _ => total,
            }));
        };
        let Some(each) = per_node.count else { return Ok(Some(per_node)) };
        let Some(total) = total else {
            // As in Slurm, a job of which only one node is described is one node.
            file.nodes.get_or_insert_default().count.get_or_insert(At::new(Count(1), each.place));
            return Ok(Some(per_node));
        };
        let count = nodes_for(&total, &per_node, each, file.node_count())?;
        file.nodes.get_or_insert_default().count = Some(count);
        let models = if per_node.models.is_empty() { total.models } else { per_node.models };
        Ok(Some(GpusFile { models, ..GpusFile::whole(each) }))
    }

    /// A file without `nodes` gives totals. Flags that say `nodes` would turn those into amounts per node.
    fn refuse_new_meaning(&self, nodes: &At<Count>, file: &JobFile) -> Result<(), SpecError> {
        let Some(total) = &file.resources else { return Ok(()) };
        let is_replaced = self.gpus.is_some() || self.gpus_per_node.is_some() || self.mig.is_some();
        let gpus = total.gpus.as_ref().filter(|_| !is_replaced).and_then(|gpus| gpus.count);
        let is_said = |name: &str| self.resources.iter().any(|said| said.split('=').next() == Some(name));
        let named = total.named.iter().find(|(name, _)| !is_said(name.as_str()));
        let kept = [
            (gpus.map(|at| at.place), "gpus", "--gpus or --gpus-per-node"),
            (total.cpus.filter(|_| self.cpus.is_none()).map(|at| at.place), "cpus", "--cpus"),
            (total.memory.filter(|_| self.memory.is_none()).map(|at| at.place), "memory", "--memory"),
            (named.map(|(_, at)| at.place), named.map_or("", |(name, _)| name.as_str()), "--resource"),
        ];
        let Some((place, field, flag)) =
            kept.into_iter().find_map(|(at, field, flag)| Some((at?, field, flag)))
        else {
            return Ok(());
        };
        let what =
            format!("would turn `{field}` of {} from a total into an amount per node", file.source.name());
        let error = file.source.error(nodes.place, what, format!("say `nodes` in the file, or {flag} too"));
        Err(error.also(&file.source, place, "a total, as the file says no `nodes`"))
    }
}

/// `--gpus` is a total, and a file says GPUs per node where it says nodes.
fn spread(total: At<Count>, nodes: At<Count>) -> Result<At<Count>, SpecError> {
    let (count, nodes) = (total.value.0, nodes.value.0);
    if !count.is_multiple_of(nodes) {
        let multiple = count.div_ceil(nodes).saturating_mul(nodes);
        let what = format!("{count} GPUs cannot be divided evenly among {nodes} nodes");
        let accepted =
            format!("a multiple of {nodes}, such as {multiple}; --gpus is the total, --gpus-per-node is not");
        return Err(refuse("--gpus", &format!("{what}\n{accepted}")));
    }
    Ok(At::new(Count(count / nodes), total.place))
}

/// The number of nodes that a total and a number per node mean.
fn nodes_for(
    total: &GpusFile,
    per_node: &GpusFile,
    each: At<Count>,
    said: Option<At<Count>>,
) -> Result<At<Count>, SpecError> {
    let Some(all) = total.count else {
        let what = "is a part of a GPU for each rank, and --gpus-per-node asks for whole ones";
        return Err(refuse("--gpus", &format!("{what}\none of the two")));
    };
    let (place, all, each) = (all.place, all.value.0, each.value.0);
    if !total.models.is_empty() && !per_node.models.is_empty() && total.models != per_node.models {
        let (a, b) = (total.models.joined(), per_node.models.joined());
        return Err(refuse(
            "--gpus",
            &format!("asks for {a}, and --gpus-per-node for {b}\none model for the whole job"),
        ));
    }
    if !all.is_multiple_of(each) {
        let what = format!("{all} GPUs in total are no whole number of nodes with {each} each");
        let multiple = all.div_ceil(each).saturating_mul(each);
        return Err(refuse("--gpus", &format!("{what}\na multiple of {each}, such as {multiple}")));
    }
    match said {
        Some(nodes) if nodes.value.0 != all / each => {
            let what = format!(
                "{all} GPUs in total, and {} nodes with {each} each are {}",
                nodes.value.0,
                u64::from(nodes.value.0) * u64::from(each)
            );
            Err(refuse(
                "--gpus",
                &format!("{what}\none of --gpus, --gpus-per-node and --nodes to be left out"),
            ))
        }
        Some(nodes) => Ok(nodes),
        None => Ok(At::new(Count(all / each), place)),
    }
}
