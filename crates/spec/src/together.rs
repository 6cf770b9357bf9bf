//! What makes no sense together.

use phalanx_model::{Gang, LaunchKind};

use crate::error::{Place, SpecError};
use crate::job::JobFile;
use crate::shape::Shape;

impl JobFile {
    /// Fields that are fine by themselves and contradict each other.
    pub(crate) fn check_together(&self, gang: &Gang) -> Result<(), SpecError> {
        let topology = self.topology.as_ref();
        let slice = self.slice().map(|slice| slice.place);
        let part = self.resources.as_ref().and_then(|resources| resources.gpus.as_ref());
        let part = part.filter(|gpus| gpus.is_part()).map(|gpus| gpus.place());
        let grid = self.parallelism.as_ref().map(|parallelism| parallelism.place());
        let segments = topology.and_then(|topology| topology.segments.first()).map(|s| s.size.place);
        let spread = topology.and_then(|topology| topology.spread.first()).map(|s| s.max.place);
        let role = self.roles.keys().next().map(|name| name.place);
        let elastic = self.elastic_place();
        let pairs = [
            ((slice, "a slice has whole devices"), (part, "a part of a GPU")),
            ((slice, "a slice orders its ranks along the torus"), (grid, "another order")),
            ((slice, "a slice is one box of chips"), (segments, "parts of the job")),
            ((slice, "a slice is one box of chips"), (spread, "members that are kept apart")),
            ((slice, "a slice is one box of chips"), (role, "members beside it")),
            ((segments, "segments have whole devices"), (part, "a part of a GPU")),
            ((grid, "parallel training has whole devices"), (part, "a part of a GPU")),
            (
                (elastic, "an elastic job changes its number of ranks"),
                (slice, "a slice has as many as it has"),
            ),
            ((elastic, "an elastic job changes its number of ranks"), (grid, "degrees that multiply to it")),
            ((elastic, "an elastic job has equal ranks"), (role, "members beside them")),
        ];
        for ((one, what), (other, label)) in pairs {
            if let (Some(one), Some(other)) = (one, other) {
                let error = self.source.error(one, what, "leave one of the two out");
                return Err(self.also(error, Some(other), label));
            }
        }
        self.check_slice(gang)
    }

    fn check_slice(&self, gang: &Gang) -> Result<(), SpecError> {
        let Some(slice) = self.slice() else { return Ok(()) };
        let chips = u64::from(slice.value.chips());
        let has = u64::from(gang.size) * u64::from(gang.needs.devices);
        if chips == has {
            return Ok(());
        }
        let what = format!("a slice of {chips} chips, and the job has {has}");
        let accepted = "expected as many GPUs as the slice has chips; leave `gpus` out";
        let error = self.source.error(slice.place, what, accepted);
        Err(self.also(
            error,
            self.gpus().map(|gpus| gpus.place).filter(|at| *at != slice.place),
            "says otherwise",
        ))
    }

    /// A part of a GPU is one process's.
    pub(crate) fn check_part(&self, shape: &Shape) -> Result<(), SpecError> {
        let is_agent = matches!(self.launch_kind(), LaunchKind::Torchrun | LaunchKind::Mpi);
        let Some(ranks) = shape.ranks_per_node.filter(|ranks| is_agent && *ranks > 1) else { return Ok(()) };
        let place = self.resources.as_ref().and_then(|resources| resources.gpus.as_ref());
        let place = place.map_or(Place::Nowhere, |gpus| gpus.place());
        let what = format!("one part of a GPU for the {ranks} ranks that a launcher starts on a node");
        let error = self.source.error(place, what, "expected `launch: ranks`, where each rank has a part");
        Err(self.also(error, self.launch.as_ref().map(|launch| launch.place), "one launcher for each node"))
    }
}
