//! The gangs of the placement benchmarks, from a seed.

use phalanx_model::{Gang, LevelName, Needs, PartNeed, Pattern, Program, Segment, Topology, Traffic};

/// A small generator of numbers: splitmix64, as published by Steele, Lea and Flood (OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        crate::rng::split_mix(&mut self.0)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn up_to(&mut self, end: u32) -> u32 {
        u32::try_from(self.below(u64::from(end))).unwrap_or(0)
    }
}

/// The sizes in GPUs of gangs that have whole ones, log-uniform: each power of two of this table is equally likely, and one in five gangs has a
/// size between two of them.
pub(crate) const SIZES: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024];

/// What a gang asks of the levels, in percent: the rest asks nothing.
pub(crate) const REQUIRED_LEAF: u64 = 15;
pub(crate) const REQUIRED_BLOCK: u64 = 15;
pub(crate) const PREFERRED_LEAF: u64 = 20;
pub(crate) const SEGMENTS: u64 = 20;

/// Of all gangs so many percent are services: 1 to 8 members with a part of a device each, a quarter or half of one
/// beside others or a MIG slice. They answer requests and send each other nothing.
pub(crate) const FRACTIONS: u64 = 10;
const SERVICES: [u32; 4] = [1, 2, 4, 8];

pub(crate) fn gangs(seed: u64, count: usize) -> Vec<Gang> {
    let mut random = Random(seed);
    (0..count).map(|_| gang(&mut random)).collect()
}

/// A gang of so many single-GPU members, with its part of CPUs and memory.
pub(crate) fn of_size(size: u32) -> Gang {
    let needs = Needs { devices: 1, cpu_milli: 20_000, memory_bytes: 200 << 30, ..Needs::default() };
    Gang {
        size,
        min: size,
        max: size,
        needs,
        members_per_node: None,
        topology: Topology::default(),
        traffic: None,
        program: Program::default(),
        roles: Vec::new(),
        grid: Vec::new(),
    }
}

pub(crate) fn level(name: &str) -> Option<LevelName> {
    LevelName::new(name).ok()
}

/// A service: what its members have, with their part of CPUs and memory.
fn fraction(random: &mut Random) -> Gang {
    let size = SERVICES[usize::try_from(random.below(SERVICES.len() as u64)).unwrap_or(0)];
    let share = |compute_milli: u32, gib: u64| PartNeed::Share {
        compute_milli,
        memory_bytes: gib << 30,
        trust: "services".to_owned(),
    };
    let (part, eighths) = match random.below(5) {
        0 | 1 => (share(250, 20), 2),
        2 => (share(500, 40), 4),
        3 => (PartNeed::Profile("1g.10gb".to_owned()), 1),
        // Two of seven compute slices.
        _ => (PartNeed::Slice { compute_milli: 285, memory_bytes: 18 << 30 }, 2),
    };
    let whole = of_size(size);
    let needs = Needs {
        devices: 0,
        part: Some(part),
        cpu_milli: whole.needs.cpu_milli * eighths / 8,
        memory_bytes: whole.needs.memory_bytes * eighths / 8,
        ..Needs::default()
    };
    let silent = Traffic { pattern: Pattern::AllReduce, bytes: 0, compute_ns: 0 };
    Gang { needs, traffic: Some(silent), ..whole }
}

fn gang(random: &mut Random) -> Gang {
    if random.below(100) < FRACTIONS {
        return fraction(random);
    }
    let at = usize::try_from(random.below(SIZES.len() as u64)).unwrap_or(0);
    let mut size = SIZES[at];
    if at > 1 && at + 1 < SIZES.len() && random.below(5) == 0 {
        size += random.up_to(size);
    }
    let mut gang = of_size(size);
    let asks = random.below(100);
    let topology = &mut gang.topology;
    if asks < REQUIRED_LEAF && size <= 128 {
        topology.required = level("leaf");
    } else if asks < REQUIRED_LEAF + REQUIRED_BLOCK && size <= 1_024 {
        topology.required = level("block");
    } else if asks < REQUIRED_LEAF + REQUIRED_BLOCK + PREFERRED_LEAF {
        topology.preferred = level("leaf");
    } else if asks < REQUIRED_LEAF + REQUIRED_BLOCK + PREFERRED_LEAF + SEGMENTS && size >= 16 {
        // A tensor-parallel set of 8 on a node, and for larger ones a pipeline stage inside a leaf.
        topology.segments = level("node").map(|level| Segment { size: 8, level }).into_iter().collect();
        if size >= 64 {
            topology.segments.splice(0..0, level("leaf").map(|level| Segment { size: 32, level }));
        }
    }
    gang
}
