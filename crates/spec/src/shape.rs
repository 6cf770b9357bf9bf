//! How a job divides into members: over nodes, ranks and GPUs.

use phalanx_model::{DEVICES_PER_NODE_MAX, LaunchKind, MEMBERS_PER_GANG_MAX};

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::place::At;
use crate::scalar::Count;

/// How a job divides into members.
pub(crate) struct Shape {
    pub(crate) size: u32,
    pub(crate) members_per_node: Option<u32>,
    pub(crate) devices: u32,
    /// Members that share what `resources` says.
    pub(crate) sharers: u32,
    /// Processes that a launcher starts on each node, if the job says.
    pub(crate) ranks_per_node: Option<u32>,
}

impl JobFile {
    pub(crate) fn shape(&self) -> Result<Shape, SpecError> {
        let shape = match self.launch_kind() {
            LaunchKind::Ranks => match &self.node_count() {
                Some(nodes) => self.ranks_on_nodes(nodes)?,
                None => self.ranks_anywhere()?,
            },
            LaunchKind::Torchrun | LaunchKind::Jax | LaunchKind::Mpi | LaunchKind::None => {
                self.one_per_node()?
            }
        };
        let on_node = shape.devices.saturating_mul(shape.members_per_node.unwrap_or(1));
        if on_node > DEVICES_PER_NODE_MAX {
            let gpus = self.gpus().map_or(Place::Nowhere, |gpus| gpus.place);
            let what = format!("{on_node} GPUs on one node, and a node has at most {DEVICES_PER_NODE_MAX}");
            return Err(self.source.error(gpus, what, "say `nodes`, or give fewer GPUs"));
        }
        Ok(shape)
    }

    /// `ranks` with `nodes`: `resources` is per node, and every node runs as many ranks.
    fn ranks_on_nodes(&self, nodes: &At<Count>) -> Result<Shape, SpecError> {
        let count = nodes.value.0;
        let gpus = self.gpus().map_or(0, |gpus| gpus.value);
        let (per_node, said) = match (&self.ranks(), &self.ranks_per_node) {
            (Some(ranks), Some(per_node)) => {
                self.check_product(ranks, per_node, count)?;
                (per_node.value.0, per_node.place)
            }
            (Some(ranks), None) => (self.divide(ranks, count, "ranks", "nodes")?, ranks.place),
            (None, Some(per_node)) => (per_node.value.0, per_node.place),
            (None, None) => (gpus.max(1), nodes.place),
        };
        let size = u64::from(count) * u64::from(per_node);
        let size =
            u32::try_from(size).ok().filter(|size| *size <= MEMBERS_PER_GANG_MAX).ok_or_else(|| {
                let what = format!("{count} nodes with {per_node} ranks each are {size} ranks");
                self.source.error(said, what, format!("at most {MEMBERS_PER_GANG_MAX} ranks"))
            })?;
        let devices = self.devices_each(gpus, per_node, said, "ranks on a node")?;
        Ok(Shape { size, members_per_node: Some(per_node), devices, sharers: per_node, ranks_per_node: None })
    }

    /// `ranks` without `nodes`: `resources` is the total, and the ranks go where they fit.
    fn ranks_anywhere(&self) -> Result<Shape, SpecError> {
        let gpus = self.gpus().map_or(0, |gpus| gpus.value);
        let (size, said) = match (&self.ranks(), &self.ranks_per_node, self.gpus()) {
            (Some(ranks), _, _) => (ranks.value.0, ranks.place),
            (None, _, Some(gpus)) => (gpus.value, gpus.place),
            (None, Some(per_node), None) => (per_node.value.0, per_node.place),
            (None, None, None) => (1, Place::Nowhere),
        };
        if let Some(per_node) = &self.ranks_per_node {
            self.divide(&At::new(Count(size), said), per_node.value.0, "ranks", "to a node")?;
        }
        let devices = self.devices_each(gpus, size, said, "ranks")?;
        let members_per_node = self.ranks_per_node.map(|per_node| per_node.value.0);
        Ok(Shape { size, members_per_node, devices, sharers: size, ranks_per_node: None })
    }

    /// A launcher or agent on each node, which has all that the job takes there.
    fn one_per_node(&self) -> Result<Shape, SpecError> {
        let gpus = self.gpus().map_or(0, |gpus| gpus.value);
        let nodes = match (&self.node_count(), &self.ranks(), &self.ranks_per_node) {
            (Some(nodes), _, _) => nodes.value.0,
            (None, Some(ranks), Some(per_node)) => {
                self.divide(ranks, per_node.value.0, "ranks", "to a node")?
            }
            (None, _, _) => 1,
        };
        let ranks_per_node = match (&self.ranks(), &self.ranks_per_node) {
            (Some(ranks), Some(per_node)) => {
                self.check_product(ranks, per_node, nodes)?;
                Some(*per_node)
            }
            (Some(ranks), None) => {
                Some(At::new(Count(self.divide(ranks, nodes, "ranks", "nodes")?), ranks.place))
            }
            (None, per_node) => *per_node,
        };
        if let Some(per_node) = ranks_per_node
            && per_node.value.0 != 1
            && matches!(self.launch_kind(), LaunchKind::Jax | LaunchKind::None)
        {
            let what = format!("{} processes on a node, and this launch starts one", per_node.value.0);
            let error =
                self.source.error(per_node.place, what, "leave the field out, or use `launch: ranks`");
            return Err(self.also(
                error,
                self.launch.as_ref().map(|launch| launch.place),
                "starts one per node",
            ));
        }
        let (devices, sharers) = match self.node_count() {
            Some(_) => (gpus, 1),
            None => (self.devices_each(gpus, nodes, Place::Nowhere, "nodes")?, nodes),
        };
        let ranks_per_node = ranks_per_node.map(|per_node| per_node.value.0);
        Ok(Shape { size: nodes, members_per_node: Some(1), devices, sharers, ranks_per_node })
    }

    /// The GPUs of one member, where all get as many.
    fn devices_each(&self, gpus: u32, members: u32, said: Place, of: &str) -> Result<u32, SpecError> {
        if gpus.is_multiple_of(members) {
            return Ok(gpus / members);
        }
        let place = self.gpus().map_or(Place::Nowhere, |at| at.place);
        let what = format!("{gpus} GPUs cannot be divided evenly among {members} {of}");
        let accepted = match gpus {
            n if n < members => {
                "every rank that gets GPUs gets whole ones; ask for more GPUs or fewer ranks".to_owned()
            }
            n => format!(
                "expected a multiple of {members}, such as {}",
                n.div_ceil(members).saturating_mul(members)
            ),
        };
        let error = self.source.error(place, what, accepted);
        Err(self.also(error, Some(said).filter(|said| *said != place), "divided by this"))
    }

    fn divide(&self, total: &At<Count>, by: u32, what: &str, among: &str) -> Result<u32, SpecError> {
        let count = total.value.0;
        if count.is_multiple_of(by) {
            return Ok(count / by);
        }
        let sentence = if among == "nodes" {
            format!("{count} {what} cannot be divided evenly among {by} nodes")
        } else {
            format!("{count} {what} do not fill nodes with {by} each")
        };
        let multiple = count.div_ceil(by).saturating_mul(by);
        let error = self.source.error(
            total.place,
            sentence,
            format!("expected a multiple of {by}, such as {multiple}"),
        );
        let divisor = if among == "nodes" { self.node_count() } else { self.ranks_per_node };
        Err(self.also(error, divisor.map(|at| at.place), "divided by this"))
    }

    fn check_product(&self, ranks: &At<Count>, per_node: &At<Count>, nodes: u32) -> Result<(), SpecError> {
        let (total, each) = (ranks.value.0, per_node.value.0);
        let product = u64::from(each) * u64::from(nodes);
        if product == u64::from(total) {
            return Ok(());
        }
        let what = format!("{total} ranks, and {nodes} nodes with {each} ranks each are {product}");
        let error = self.source.error(ranks.place, what, "leave one of the two out, or make them agree");
        Err(self.also(error, Some(per_node.place), "says otherwise"))
    }
}
