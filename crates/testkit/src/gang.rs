//! Builders of gangs.

use phalanx_model::{
    Axis, AxisKind, Collective, Gang, ModelNeed, Needs, NodeName, PartNeed, Program, Role, RoleName, Segment,
    Spread, Topology,
};

use crate::build::{level, named};

/// A gang whose members have no needs yet.
#[must_use]
pub fn gang(size: u32) -> GangBuilder {
    GangBuilder(Gang {
        size,
        min: size,
        max: size,
        needs: Needs::default(),
        members_per_node: None,
        topology: Topology::default(),
        traffic: None,
        program: Program::default(),
        roles: Vec::new(),
        grid: Vec::new(),
    })
}

#[derive(Clone, Debug)]
pub struct GangBuilder(Gang);

impl GangBuilder {
    /// An elastic gang with this range of sizes.
    #[must_use]
    pub fn elastic(mut self, min: u32, max: u32) -> Self {
        (self.0.min, self.0.max) = (min, max);
        self
    }

    /// Per member.
    #[must_use]
    pub fn devices(mut self, devices: u32) -> Self {
        self.0.needs.devices = devices;
        self
    }

    #[must_use]
    pub fn model(mut self, model: &str) -> Self {
        self.0.needs.models = Needs::of_model(model);
        self
    }

    /// Per member, in thousandths.
    #[must_use]
    pub fn cpu_milli(mut self, cpu_milli: u64) -> Self {
        self.0.needs.cpu_milli = cpu_milli;
        self
    }

    /// Per member.
    #[must_use]
    pub fn memory(mut self, memory_bytes: u64) -> Self {
        self.0.needs.memory_bytes = memory_bytes;
        self
    }

    /// Accepts these models, each with its speed in thousandths.
    #[must_use]
    pub fn models<const N: usize>(mut self, models: [(&str, u32); N]) -> Self {
        let need = |(model, speed_milli): (&str, u32)| ModelNeed { model: model.to_owned(), speed_milli };
        self.0.needs.models = models.map(need).to_vec();
        self
    }

    /// An amount of a named resource, per member.
    #[must_use]
    pub fn uses(mut self, resource: &str, amount: u64) -> Self {
        self.0.needs.named.insert(named(resource), amount);
        self
    }

    /// A share of one device per member.
    #[must_use]
    pub fn share(mut self, compute_milli: u32, memory_bytes: u64, trust: &str) -> Self {
        self.0.needs.part = Some(PartNeed::Share { compute_milli, memory_bytes, trust: trust.to_owned() });
        self
    }

    /// A device as its node offers it, per member.
    #[must_use]
    pub fn replica(mut self) -> Self {
        self.0.needs.part = Some(PartNeed::Replica);
        self
    }

    /// The smallest MIG slice with this much, per member.
    #[must_use]
    pub fn slice(mut self, compute_milli: u32, memory_bytes: u64) -> Self {
        self.0.needs.part = Some(PartNeed::Slice { compute_milli, memory_bytes });
        self
    }

    /// A MIG slice by its name, per member.
    #[must_use]
    pub fn profile(mut self, name: &str) -> Self {
        self.0.needs.part = Some(PartNeed::Profile(name.to_owned()));
        self
    }

    /// The required nodes.
    #[must_use]
    pub fn on<const N: usize>(mut self, nodes: [&str; N]) -> Self {
        self.0.needs.nodes = nodes.map(|n| NodeName::new(n).unwrap()).to_vec();
        self
    }

    /// The avoided nodes.
    #[must_use]
    pub fn avoid<const N: usize>(mut self, nodes: [&str; N]) -> Self {
        self.0.needs.avoid = nodes.map(|n| NodeName::new(n).unwrap()).to_vec();
        self
    }

    /// The preferred nodes.
    #[must_use]
    pub fn prefer<const N: usize>(mut self, nodes: [&str; N]) -> Self {
        self.0.needs.prefer = nodes.map(|n| NodeName::new(n).unwrap()).to_vec();
        self
    }

    /// Exclusive nodes.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.0.needs.is_exclusive = true;
        self
    }

    /// A role with the needs and segments of another gang.
    #[must_use]
    pub fn role(mut self, name: &str, like: Self) -> Self {
        let Gang { size, needs, topology, .. } = like.0;
        let name = RoleName::new(name).unwrap();
        self.0.roles.push(Role { name, size, needs, segments: topology.segments, program: None });
        self
    }

    /// The most members in one domain.
    #[must_use]
    pub fn spread(mut self, max: u32, name: &str) -> Self {
        self.0.topology.spread.push(Spread { level: level(name), max });
        self
    }

    /// Adds an axis of its grid, the innermost first, with the bytes of one call per step.
    #[must_use]
    pub fn axis(mut self, kind: AxisKind, degree: u32, bytes: u64) -> Self {
        let collective = match kind {
            AxisKind::Tensor | AxisKind::Data => Collective::AllReduce,
            AxisKind::Expert => Collective::AllToAll,
            AxisKind::Pipeline => Collective::PointToPoint,
        };
        self.0.grid.push(Axis { kind, degree, collective, bytes, calls: 1 });
        self
    }

    /// A box of chips of a torus.
    #[must_use]
    pub fn chips(mut self, sides: [u16; 3]) -> Self {
        self.0.topology.slice = Some(sides);
        self
    }

    #[must_use]
    pub fn per_node(mut self, members: u32) -> Self {
        self.0.members_per_node = Some(members);
        self
    }

    #[must_use]
    pub fn required(mut self, name: &str) -> Self {
        self.0.topology.required = Some(level(name));
        self
    }

    /// Puts the members of the gang itself (0) and of these roles, counted from 1, on one node.
    #[must_use]
    pub fn together<const N: usize>(mut self, parties: [u32; N]) -> Self {
        self.0.topology.together.push(parties.to_vec());
        self
    }

    /// Places the gang as near to these nodes as it fits.
    #[must_use]
    pub fn near<const N: usize>(mut self, nodes: [&str; N]) -> Self {
        self.0.topology.near = nodes.map(|n| NodeName::new(n).unwrap()).to_vec();
        self
    }

    /// Consecutive members inside one domain, the widest segment first.
    #[must_use]
    pub fn segment(mut self, size: u32, name: &str) -> Self {
        self.0.topology.segments.push(Segment { size, level: level(name) });
        self
    }

    #[must_use]
    pub fn preferred(mut self, name: &str, wait_ms: u64) -> Self {
        self.0.topology.preferred = Some(level(name));
        self.0.topology.wait_ms = wait_ms;
        self
    }

    #[must_use]
    pub fn build(self) -> Gang {
        self.0
    }
}

impl From<GangBuilder> for Gang {
    fn from(builder: GangBuilder) -> Self {
        builder.0
    }
}
