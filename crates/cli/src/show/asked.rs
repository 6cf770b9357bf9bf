//! What a gang asked for, in words.

use phalanx_model::{Gang, Needs, PartNeed, Segment, Topology};
use phalanx_spec::quantity::{format_memory, format_milli};

use super::time::span;
use super::{clean, count};

/// What all members have of GPUs: `16 GPUs`, `0.25 of a GPU each`.
pub(super) fn gpus(needs: &Needs, members: u64) -> String {
    match &needs.part {
        Some(part) if members == 1 => part_of_gpu(part),
        Some(part) => format!("{} each", part_of_gpu(part)),
        None if needs.devices == 0 => "no GPUs".to_owned(),
        None => count(members * u64::from(needs.devices), "GPU"),
    }
}

/// `0.25 of a GPU and 10GB of its memory`, `a MIG slice 1g.10gb`.
pub(super) fn part_of_gpu(part: &PartNeed) -> String {
    let amounts = |compute_milli: u32, memory_bytes: u64| {
        let compute = format_milli(u64::from(compute_milli));
        match (compute_milli, memory_bytes) {
            (0, memory) => format!("{} of the memory of a GPU", format_memory(memory)),
            (_, 0) => format!("{compute} of a GPU"),
            (_, memory) => format!("{compute} of a GPU and {} of its memory", format_memory(memory)),
        }
    };
    match part {
        PartNeed::Share { compute_milli, memory_bytes, .. } => amounts(*compute_milli, *memory_bytes),
        PartNeed::Slice { compute_milli, memory_bytes } => {
            format!("a MIG slice with {}", amounts(*compute_milli, *memory_bytes))
        }
        PartNeed::Profile(name) => format!("a MIG slice {}", clean(name)),
        PartNeed::Replica => "a GPU or a replica of one".to_owned(),
    }
}

/// `, 1 launcher without GPUs, 2 ps with 1 GPU each`; nothing for a gang without roles.
pub(super) fn roles(gang: &Gang) -> String {
    let role = |role: &phalanx_model::Role| {
        let gpus = match (&role.needs.part, role.needs.devices) {
            (Some(part), _) => format!("with {} each", part_of_gpu(part)),
            (None, 0) => "without GPUs".to_owned(),
            (None, each) => format!("with {} each", count(u64::from(each), "GPU")),
        };
        format!(", {} {} {gpus}", role.size, clean(role.name.as_str()))
    };
    gang.roles.iter().map(role).collect()
}

/// `every 32 members inside one leaf, every 8 members inside one node`.
pub(super) fn segments(gang: &Gang) -> String {
    let together = |Segment { size, level }: &Segment| match size {
        1 => format!("each member inside one {level}"),
        size => format!("every {size} members inside one {level}"),
    };
    gang.topology.segments.iter().map(together).collect::<Vec<_>>().join(", ")
}

/// How near its members are to be, and for how long the gang waits for that: `the nearest placement, if that comes free within
/// 10m 00s`. `None` where it has no wish, or one GPU.
pub(super) fn nearness(gang: &Gang) -> Option<String> {
    let Topology { preferred, wait_ms, price_milli, .. } = &gang.topology;
    let place =
        preferred.as_ref().map_or("the nearest placement".to_owned(), |level| format!("inside one {level}"));
    match (price_milli, *wait_ms) {
        _ if gang.device_count() < 2 && gang.size < 2 => None,
        (Some(Topology::ANYWHERE), _) => Some("any placement that is free".to_owned()),
        (Some(_), _) => Some(format!("{place}, as long as that is worth a wait")),
        (None, Topology::FOREVER_MS) => Some(format!("{place}, and no other")),
        (None, 0) if preferred.is_none() => None,
        (None, wait_ms) => Some(format!("{place}, if that comes free within {}", span(wait_ms))),
    }
}

/// Everything else that decides the place, each under a word of its own.
pub(super) fn rest(gang: &Gang) -> Vec<(&'static str, String)> {
    let needs = &gang.needs;
    let mut all = Vec::new();
    let mut say = |word: &'static str, items: Vec<String>| {
        if !items.is_empty() {
            all.push((word, items.join(", ")));
        }
    };
    let model = |need: &phalanx_model::ModelNeed| match need.speed_milli {
        phalanx_model::ModelNeed::AS_SAID => clean(&need.model),
        speed => format!("{} at {} of the speed", clean(&need.model), format_milli(u64::from(speed))),
    };
    say("models", needs.models.iter().map(model).collect());
    let named = needs.named.iter().map(|(name, amount)| format!("{amount} {name}"));
    say("each has", named.collect());
    let list = |what: &str, nodes: &[phalanx_model::NodeName]| {
        let names: Vec<&str> = nodes.iter().map(phalanx_model::NodeName::as_str).collect();
        (!names.is_empty()).then(|| format!("{what} {}", names.join(" ")))
    };
    let nodes = [list("only", &needs.nodes), list("not", &needs.avoid), list("rather", &needs.prefer)];
    let alone = needs.is_exclusive.then(|| "nobody else on them".to_owned());
    say("nodes", nodes.into_iter().flatten().chain(alone).collect());
    let apart = gang.topology.spread.iter();
    let apart =
        apart.map(|s| format!("at most {} inside any one {}", count(u64::from(s.max), "member"), s.level));
    say("spread", apart.collect());
    say(
        "slice",
        gang.topology.slice.iter().map(|[x, y, z]| format!("{x}x{y}x{z} chips of one torus")).collect(),
    );
    let axes =
        gang.grid.iter().map(|axis| format!("{} {}", axis.kind.word(), axis.degree)).collect::<Vec<_>>();
    say("grid", if axes.is_empty() { axes } else { vec![axes.join(" x ")] });
    all
}

#[cfg(test)]
mod tests {
    use phalanx_model::{JobId, Owner, Timestamp};
    use phalanx_spec::{JobFile, SubmitContext};

    use super::*;

    fn gang(yaml: &str) -> Gang {
        let owner = Owner { uid: 0, gid: 0, name: "ada".to_owned() };
        let (id, submitted_at, default_workdir) = (JobId(1), Timestamp(0), "/".to_owned());
        let file = JobFile::from_yaml(&format!("{yaml}\nrun: x\n"), "f").unwrap();
        file.into_job(SubmitContext { id, owner, submitted_at, default_workdir }).unwrap().gangs.remove(0)
    }

    #[test]
    fn requests_are_told_in_words() {
        let words = |yaml: &str| {
            let gang = gang(yaml);
            let rest: Vec<String> =
                rest(&gang).into_iter().map(|(word, what)| format!("{word}: {what}")).collect();
            format!("{}{}; {}", gpus(&gang.needs, u64::from(gang.size)), roles(&gang), rest.join("; "))
        };
        assert_eq!(words("ranks: 2\nresources: {gpus: 0.25}"), "0.25 of a GPU each; ");
        assert_eq!(
            words("resources: {gpus: {mig: {compute: 0.28, memory: 20GB}}}"),
            "a MIG slice with 0.28 of a GPU and 20GB of its memory; "
        );
        assert_eq!(
            words(
                "resources: {gpus: {count: 8, models: {H100: 1.0, A100: 0.4}}, nic: 8}\nexclusive: true\nnodes: {except: [b, c]}"
            ),
            "8 GPUs; models: H100, A100 at 0.4 of the speed; each has: 1 nic; nodes: not b c, nobody else on them"
        );
        assert_eq!(
            words(
                "resources: {gpus: 8}\nparallelism: {tensor: 4, data: 2}\ntopology: {spread: 4@rack}\nroles: {ps: {count: 2}, web: {resources: {gpus: 0.5}}}"
            ),
            "8 GPUs, 2 ps without GPUs, 1 web with 0.5 of a GPU each; spread: at most 4 members inside any one rack; grid: tensor 4 x data 2"
        );
        assert_eq!(words("topology: {slice: 4x4}"), "16 GPUs; slice: 4x4x1 chips of one torus");
    }

    #[test]
    fn it_is_told_how_long_a_gang_waits_for_a_nearer_placement() {
        let words = |topology: &str| nearness(&gang(&format!("ranks: 2\ntopology: {topology}")));
        assert_eq!(words("{spread: 4@rack}"), None);
        assert_eq!(words("anywhere").as_deref(), Some("any placement that is free"));
        assert_eq!(words("nearest").as_deref(), Some("the nearest placement, and no other"));
        assert_eq!(
            words("nearest@10m").as_deref(),
            Some("the nearest placement, if that comes free within 10m 00s")
        );
        assert_eq!(
            words("{level: leaf, mode: preferred, wait: priced}").as_deref(),
            Some("inside one leaf, as long as that is worth a wait")
        );
    }
}
