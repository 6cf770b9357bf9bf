//! Rejects submissions that could never run, with the field and the reason.

use std::borrow::Cow;
use std::collections::BTreeSet;

use phalanx_model::{
    DEVICES_PER_NODE_MAX, Gang, Job, LevelName, MEMBERS_PER_GANG_MAX, Needs, Rejection, Replicas, Resource,
    Role, Segment, TASKS_MAX,
};

use super::Ledger;
use crate::cluster::{LevelAt, Tree};
use crate::placement::{best_fit, check_grid, refused_part, refused_slice, with_spares};

/// Longest lead, grace and start deadline: every gang that holds devices must be stoppable. One day.
const STOP_MS_MAX: u64 = 24 * 3600 * 1000;
/// Gangs of a job that each have a description of their own, as elastic tasks of an array do.
const GANGS_PER_JOB_MAX: u32 = 10_000;
/// Nodes that a gang may name: all of the largest cluster.
const NODES_NAMED_MAX: usize = 100_000;
/// Nested segments: more than there are levels.
const SEGMENTS_MAX: usize = 8;
/// Roles of one gang beside its own members. A search reads every node once for each of them.
const ROLES_MAX: usize = 127;
/// Device models of which any is accepted.
const MODELS_MAX: usize = 64;
/// Jobs that one job waits for.
const AFTER_MAX: usize = 1_000;
/// Replicas of one service.
const REPLICAS_MAX: usize = 1_000;
const METRIC_BYTES_MAX: usize = 256;
/// Queues named in an error.
const QUEUES_SHOWN: usize = 20;
/// Jobs in the ledger, including finished jobs until the world forgets them.
const JOBS_MAX: usize = 100_000;

/// The job with the settings of the whole job, and the pools of its queue, copied to each of its members.
pub(crate) fn with_job_settings<'a>(ledger: &Ledger, job: &'a Job) -> Cow<'a, Job> {
    let mut with_settings = Cow::Borrowed(job);
    if job.turn.takes_spot {
        let gangs = with_settings.to_mut().gangs.iter_mut();
        gangs.flat_map(Gang::all_needs_mut).for_each(|needs| needs.takes_spot = true);
    }
    if let Some(allowed) = ledger.pools_lacking(job) {
        allowed.set(with_settings.to_mut());
    }
    with_settings
}

pub(crate) fn admit(ledger: &Ledger, job: &Job) -> Result<(), Rejection> {
    if ledger.job(job.id).is_some() {
        return Err(Rejection::DuplicateId { existing: job.id });
    }
    if let Some(existing) = job.key.as_ref().and_then(|key| ledger.key(job.owner.uid, key)) {
        return Err(Rejection::DuplicateKey { existing });
    }
    if ledger.job_count() >= JOBS_MAX {
        return Err(bad(
            "queue",
            format!(
                "the scheduler has {JOBS_MAX} jobs already, its limit; submit again when some have ended"
            ),
        ));
    }
    admit_count(job)?;
    admit_turn(ledger, job)?;
    admit_to_queue(ledger, job)?;
    let policy = &job.policy;
    let lead_ms = policy.stop.advisory.map_or(0, |a| a.lead_ms);
    let spans = [
        ("checkpoint.grace", lead_ms),
        ("grace", policy.stop.grace_ms),
        ("start_deadline", policy.start_deadline_ms),
    ];
    if let Some((field, _)) = spans.into_iter().find(|(_, ms)| *ms > STOP_MS_MAX) {
        return Err(bad(field, "is longer than a day"));
    }
    let mut unknown = job.gangs.iter().filter(|gang| !ledger.is_known_to_fit(gang));
    unknown.try_for_each(|gang| admit_gang(ledger, gang))
}

/// Checks the number of gangs, and of descriptions of gangs.
fn admit_count(job: &Job) -> Result<(), Rejection> {
    let is_elastic = job.gangs.first().is_some_and(Gang::is_elastic);
    let is_shared = job.turn.array.is_some() && job.gangs.len() == 1 && !is_elastic;
    let most = if is_shared { TASKS_MAX } else { GANGS_PER_JOB_MAX };
    let gangs = job.gang_count();
    if gangs == 0 || gangs > most {
        let why = format!("a job has 1 to {most} gangs, and this job has {gangs}");
        return Err(bad("gangs", why));
    }
    let tasks = job.turn.array.as_ref().map(|array| &array.tasks).filter(|tasks| !tasks.is_empty());
    match tasks.filter(|tasks| tasks.count() != gangs) {
        Some(tasks) => {
            Err(bad("array", format!("{} tasks do not match {gangs} descriptions", tasks.count())))
        }
        None => Ok(()),
    }
}

/// Checks the settings of a job that order it.
fn admit_turn(ledger: &Ledger, job: &Job) -> Result<(), Rejection> {
    let settings = ledger.queues().settings();
    if let Some(class) = job.turn.class.as_ref().filter(|class| settings.class(Some(class)).is_none()) {
        let known: Vec<&str> = settings.classes.iter().map(|class| class.name.as_str()).collect();
        return Err(bad(
            "class",
            format!("no class is named {class}; this cluster has {}", known.join(", ")),
        ));
    }
    if job.turn.after.len() > AFTER_MAX {
        return Err(bad(
            "after",
            format!(
                "a job may wait for at most {AFTER_MAX} jobs, and this job names {}",
                job.turn.after.len()
            ),
        ));
    }
    if let Some(after) = job.turn.after.iter().find(|after| ledger.job(after.job).is_none()) {
        return Err(bad("after", format!("job {} does not exist, or its record has expired", after.job)));
    }
    if job.turn.deadline.is_some_and(|deadline| deadline <= ledger.now()) {
        return Err(bad("deadline", "has passed already"));
    }
    if job.turn.array.as_ref().is_some_and(|array| array.running_max == Some(0)) {
        return Err(bad("array", "at least one task must be allowed to run"));
    }
    job.turn.service.as_ref().map_or(Ok(()), |service| admit_service(ledger, job, service))
}

/// Checks the replicas of a service.
fn admit_service(ledger: &Ledger, job: &Job, service: &Replicas) -> Result<(), Rejection> {
    let (most, surge) = (service.most(job.gang_count()), service.surge);
    if service.min == 0 || service.min > most || job.gangs.len() > REPLICAS_MAX {
        let why =
            format!("1 ≤ min {} ≤ max {most} ≤ {REPLICAS_MAX} − surge {surge} does not hold", service.min);
        return Err(bad("service", why));
    }
    if !service.numbers.is_empty() {
        return Err(bad("service.numbers", "must not be set: the scheduler assigns them"));
    }
    let others = [
        ("array", job.turn.array.is_some()),
        ("session", job.policy.idle_limit_ms.is_some()),
        ("deadline", job.turn.deadline.is_some()),
    ];
    if let Some((field, _)) = others.into_iter().find(|(_, is_said)| *is_said) {
        return Err(bad(field, "does not apply to a service"));
    }
    if let Some(target) = &service.target {
        if target.value_milli == 0 {
            return Err(bad("service.target", "the target per replica must be above 0"));
        }
        if target.metric.len() > METRIC_BYTES_MAX {
            return Err(bad(
                "service.target",
                format!("the name of the metric is longer than {METRIC_BYTES_MAX} bytes"),
            ));
        }
    }
    service.spread.iter().try_for_each(|level| known_level(ledger.tree(), level).map(|_| ()))
}

/// Checks that the queue of a job, and the queues above it, accept the job.
pub(super) fn admit_to_queue(ledger: &Ledger, job: &Job) -> Result<(), Rejection> {
    let queues = ledger.queues();
    if queues.configured().is_empty() {
        return Ok(());
    }
    let found = queues.find(&job.queue).filter(|at| queues.at(*at).is_configured);
    let Some(at) = found else {
        let leaves = queues
            .configured()
            .values()
            .filter(|queue| queues.find(&queue.name).is_some_and(|at| queues.at(at).children.is_empty()));
        let known: Vec<&str> = leaves.map(|queue| queue.name.as_str()).take(QUEUES_SHOWN).collect();
        return Err(Rejection::UnknownQueue { queue: job.queue.clone(), known: known.join(", ") });
    };
    if !queues.at(at).children.is_empty() {
        return Err(bad("queue", format!("{} has child queues; submit to one of them", job.queue)));
    }
    for above in queues.path(at) {
        let node = queues.at(above);
        let Some(queue) = &node.queue else { continue };
        let caps = &queue.caps;
        // At first only the minimum of a service is pending.
        let own = job.turn.service.as_ref().map_or(job.gang_count(), |service| service.min);
        let waiting = u64::from(node.pending) + u64::from(own);
        if let Some(most) = caps.pending_max.filter(|most| waiting > u64::from(*most)) {
            return Err(bad(
                "queue",
                format!(
                    "queue {} accepts at most {most} pending gangs, and it has {}",
                    queue.name, node.pending
                ),
            ));
        }
        if let (Some(most), Some(asked)) = (caps.time_limit_max_ms, job.policy.time_limit_ms)
            && asked > most
        {
            let why = format!(
                "{} s is longer than queue {} allows ({} s)",
                asked / 1_000,
                queue.name,
                most / 1_000
            );
            return Err(bad("time_limit", why));
        }
        for gang in &job.gangs {
            let devices = gang.device_count();
            if let Some(most) = caps.gang_devices_max.filter(|most| devices > *most) {
                let why = format!(
                    "{devices} devices are more than queue {} allows for one gang ({most})",
                    queue.name
                );
                return Err(bad("gpus", why));
            }
        }
    }
    admit_to_limits(ledger, job, at)
}

/// Checks that the pools of the queue of a job, which are set, can hold its gangs.
pub(super) fn admit_to_pools(ledger: &Ledger, job: &Job) -> Result<(), Rejection> {
    let mut pooled = job.gangs.iter().filter(|gang| gang.needs.is_pooled());
    pooled.try_for_each(|gang| admit_size(ledger, &gang.of_size(gang.min)))
}

/// Checks the limits of queues: a gang that the empty queue could not hold never starts.
fn admit_to_limits(ledger: &Ledger, job: &Job, at: crate::queueing::QueueAt) -> Result<(), Rejection> {
    let queues = ledger.queues();
    for gang in &job.gangs {
        let least = queues.resources.least(ledger.tree(), queues.settings(), gang);
        for above in queues.path(at) {
            let node = queues.at(above);
            let over = (0..least.len())
                .find(|resource| least[*resource] > 0 && least[*resource] > node.limit[*resource]);
            let Some((resource, queue)) = over.zip(node.queue.as_ref()) else { continue };
            let of = &queues.resources.all()[resource];
            let show = |amount: u128| of.show(u64::try_from(amount).unwrap_or(u64::MAX));
            let (asked, most) = (show(least[resource]), show(node.limit[resource]));
            let why = format!(
                "the limit of queue {} is {most} {of}, and a gang of this job needs {asked}",
                queue.name
            );
            return Err(bad("queue", why));
        }
    }
    Ok(())
}

fn bad(field: &str, why: impl Into<String>) -> Rejection {
    Rejection::BadField { field: field.to_owned(), why: why.into() }
}

fn admit_gang(ledger: &Ledger, gang: &Gang) -> Result<(), Rejection> {
    if gang.size == 0 || gang.size > MEMBERS_PER_GANG_MAX {
        return Err(bad("size", format!("must be 1 to {MEMBERS_PER_GANG_MAX}, and is {}", gang.size)));
    }
    if gang.min > gang.size || gang.size > gang.max {
        let why = format!("min {} ≤ size {} ≤ max {} does not hold", gang.min, gang.size, gang.max);
        return Err(bad("min", why));
    }
    admit_needs(ledger.tree(), &gang.needs)?;
    admit_roles(ledger.tree(), gang)?;
    if gang.members_per_node.is_some_and(|n| n == 0 || !gang.size.is_multiple_of(n)) {
        let why = format!("{} members cannot be divided into equal parts on nodes", gang.size);
        return Err(bad("members_per_node", why));
    }
    let tree = ledger.tree();
    for level in [&gang.topology.required, &gang.topology.preferred].into_iter().flatten() {
        known_level(tree, level)?;
    }
    check_segments(tree, &gang.topology.segments, gang.needs.devices, gang.members_per_node)?;
    admit_spread(tree, gang)?;
    admit_together(gang)?;
    if !gang.grid.is_empty() {
        check_grid(tree, gang).map_err(|why| bad("parallelism", why))?;
    }
    if let Some((field, why)) = refused_part(tree, gang).or_else(|| refused_slice(tree, gang)) {
        return Err(bad(field, why));
    }
    if !gang.is_elastic() {
        return admit_size(ledger, gang);
    }
    admit_elastic(gang)?;
    admit_size(ledger, &gang.of_size(gang.min))
}

/// Checks an elastic gang: it changes its size by whole nodes and segments, and nothing else depends on its size.
fn admit_elastic(gang: &Gang) -> Result<(), Rejection> {
    if !gang.roles.is_empty() || !gang.grid.is_empty() || gang.topology.slice.is_some() {
        let why = "a gang with roles, a parallelism grid or a slice must have a fixed size";
        return Err(bad("elastic", why));
    }
    let step = gang.size_step();
    let sizes = [gang.min, gang.size, gang.max];
    match sizes.into_iter().find(|size| !size.is_multiple_of(step)) {
        Some(size) => Err(bad("elastic", format!("{size} members are not a multiple of {step}"))),
        None if gang.min == 0 => Err(bad("elastic", "the minimum must be at least 1 member")),
        None => Ok(()),
    }
}

/// Checks the needs of one member.
fn admit_needs(tree: &Tree, needs: &Needs) -> Result<(), Rejection> {
    if needs.devices > DEVICES_PER_NODE_MAX {
        let why = format!(
            "a member has at most {DEVICES_PER_NODE_MAX} devices, and this member requests {}",
            needs.devices
        );
        return Err(bad("devices", why));
    }
    for (field, nodes) in [("nodes", &needs.nodes), ("avoid", &needs.avoid), ("prefer", &needs.prefer)] {
        if nodes.len() > NODES_NAMED_MAX {
            let why =
                format!("at most {NODES_NAMED_MAX} nodes may be named, and this list has {}", nodes.len());
            return Err(bad(field, why));
        }
    }
    if needs.models.len() > MODELS_MAX {
        let why =
            format!("at most {MODELS_MAX} models may be named, and this list has {}", needs.models.len());
        return Err(bad("models", why));
    }
    if let Some(need) = needs.models.iter().find(|need| need.speed_milli == 0) {
        return Err(bad(
            "models",
            format!("{} has a speed of 0; leave the model out if the job cannot use it", need.model),
        ));
    }
    let known = tree.resources.names();
    match needs.named.iter().find(|(name, need)| **need > 0 && !known.contains(name)) {
        Some((name, _)) if known.is_empty() => Err(bad(name.as_str(), "this cluster has no named resources")),
        Some((name, _)) => {
            let known: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
            Err(bad(name.as_str(), format!("this cluster has the named resources {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

/// Checks the members of roles.
fn admit_roles(tree: &Tree, gang: &Gang) -> Result<(), Rejection> {
    if gang.roles.len() > ROLES_MAX {
        return Err(bad(
            "roles",
            format!("a gang has at most {ROLES_MAX} roles, and this gang has {}", gang.roles.len()),
        ));
    }
    for (at, role) in gang.roles.iter().enumerate() {
        let field = format!("roles.{}", role.name);
        if gang.roles[..at].iter().any(|before| before.name == role.name) {
            return Err(bad(&field, "two roles of a gang have this name"));
        }
        if role.size == 0 {
            return Err(bad(&format!("{field}.size"), "must be at least 1, and is 0"));
        }
        if role.needs.is_exclusive && !gang.needs.is_exclusive {
            let why = "belongs to the whole gang, not to one of its roles";
            return Err(bad(&format!("{field}.exclusive"), why));
        }
        let of_role = admit_needs(tree, &role.needs).and_then(|()| admit_role_segments(tree, role));
        of_role.map_err(|why| match why {
            Rejection::BadField { field: of, why } => bad(&format!("{field}.{of}"), why),
            other => other,
        })?;
    }
    if gang.member_count() > MEMBERS_PER_GANG_MAX {
        let why = format!(
            "a gang has at most {MEMBERS_PER_GANG_MAX} members with all of its roles, and this gang has {}",
            gang.member_count()
        );
        return Err(bad("roles", why));
    }
    Ok(())
}

/// Checks roles that are on one node.
fn admit_together(gang: &Gang) -> Result<(), Rejection> {
    let topology = &gang.topology;
    let mut seen = BTreeSet::new();
    for contender in topology.together.iter().flatten().copied() {
        if contender as usize > gang.roles.len() {
            return Err(bad(
                "together",
                format!("there is no role {contender}; the gang has {} roles", gang.roles.len()),
            ));
        }
        if !seen.insert(contender) {
            return Err(bad("together", format!("role {contender} is named twice")));
        }
    }
    let has_parts = gang.all_needs().any(|needs| needs.part.is_some());
    if !seen.is_empty() && (has_parts || !gang.grid.is_empty() || topology.slice.is_some()) {
        return Err(bad(
            "together",
            "cannot be combined with parts of devices, a parallelism grid or a slice",
        ));
    }
    let roles = gang.roles.iter().zip(1..).filter(|(_, contender)| seen.contains(contender));
    if let Some((role, _)) = roles.into_iter().find(|(role, _)| !role.segments.is_empty()) {
        let why = "cannot be combined with roles that must share a node";
        return Err(bad(&format!("roles.{}.segments", role.name), why));
    }
    if topology.near.len() > NODES_NAMED_MAX {
        let why = format!(
            "at most {NODES_NAMED_MAX} nodes may be named, and this list has {}",
            topology.near.len()
        );
        return Err(bad("near", why));
    }
    Ok(())
}

/// Checks segments of a role: all are whole; a smaller last segment is possible for the gang's own members alone.
fn admit_role_segments(tree: &Tree, role: &Role) -> Result<(), Rejection> {
    if let Some(segment) = role.segments.iter().find(|segment| !role.size.is_multiple_of(segment.size.max(1)))
    {
        let why = format!("{} members do not divide into parts of {}", role.size, segment.size);
        return Err(bad("segments", why));
    }
    if role.needs.part.is_some() && !role.segments.is_empty() {
        return Err(bad("segments", "need whole devices, and the members have parts of devices"));
    }
    check_segments(tree, &role.segments, role.needs.devices, None)
}

/// Checks the rules that keep members apart.
fn admit_spread(tree: &Tree, gang: &Gang) -> Result<(), Rejection> {
    let rules = &gang.topology.spread;
    if rules.len() > SEGMENTS_MAX {
        return Err(bad(
            "spread",
            format!("at most {SEGMENTS_MAX} rules are possible, and this gang has {}", rules.len()),
        ));
    }
    for rule in rules {
        if rule.max == 0 {
            return Err(bad(
                "spread",
                format!("a maximum of 0 members per {} leaves no placement; the minimum is 1", rule.level),
            ));
        }
        if let LevelAt::Group(_) = known_level(tree, &rule.level)? {
            let why = format!(
                "level {} is inside the node; members can be spread over nodes or the levels above them",
                rule.level
            );
            return Err(bad("spread", why));
        }
    }
    Ok(())
}

fn known_level(tree: &Tree, level: &LevelName) -> Result<LevelAt, Rejection> {
    tree.level_at(level).ok_or_else(|| {
        let known: Vec<String> = tree.level_names().iter().map(ToString::to_string).collect();
        Rejection::UnknownLevel { level: level.clone(), known: known.join(", ") }
    })
}

/// Checks that segments nest: each is a whole part of the segment before, at a level inside of its level.
fn check_segments(
    tree: &Tree,
    segments: &[Segment],
    devices: u32,
    members_per_node: Option<u32>,
) -> Result<(), Rejection> {
    if segments.len() > SEGMENTS_MAX {
        return Err(bad(
            "segments",
            format!("at most {SEGMENTS_MAX} segments may nest, and this gang has {}", segments.len()),
        ));
    }
    let mut outer: Option<(&Segment, LevelAt)> = None;
    for segment in segments {
        let level = known_level(tree, &segment.level)?;
        if segment.size == 0 {
            return Err(bad("segments", format!("a segment inside one {} has no members", segment.level)));
        }
        if matches!(level, LevelAt::Group(_)) && devices == 0 {
            let why = format!("level {} is inside the node and needs members with devices", segment.level);
            return Err(bad("segments", why));
        }
        if let Some((wide, wide_level)) = outer {
            if !wide.size.is_multiple_of(segment.size) {
                let why = format!("{} members do not divide into parts of {}", wide.size, segment.size);
                return Err(bad("segments", why));
            }
            if level <= wide_level {
                let why = format!("{} is not inside {}; name the widest first", segment.level, wide.level);
                return Err(bad("segments", why));
            }
        }
        if level >= LevelAt::Node && members_per_node.is_some_and(|n| !n.is_multiple_of(segment.size)) {
            let why = format!("segments of {} do not divide the members of a node", segment.size);
            return Err(bad("segments", why));
        }
        outer = Some((segment, level));
    }
    Ok(())
}

/// Rejects a gang that even the empty cluster could not hold, with the largest size that the cluster could.
fn admit_size(ledger: &Ledger, gang: &Gang) -> Result<(), Rejection> {
    let tree = ledger.tree();
    // Which nodes are spare, and how many are kept, changes: a gang that needs some of them waits.
    let gang = if ledger.keeps_nodes_free() { &with_spares(gang) } else { gang };
    let required = tree.level_of_required(gang);
    let empty = ledger.hardware().empty_opened;
    // Measured without the gang's own size as a cap, so that "the largest" is the largest of the cluster.
    let unbounded = Gang { size: MEMBERS_PER_GANG_MAX, ..gang.clone() };
    if best_fit(tree, empty, gang, required).fits >= gang.size {
        return Ok(());
    }
    let best = best_fit(tree, empty, &unbounded, required);
    // A node that does not exist may come, and its capacity is not known: the gang waits for the node.
    if !tree.unknown_to(gang).is_empty() {
        return Ok(());
    }
    let fits_without = |spare: fn(&mut Gang)| {
        let mut easier = unbounded.clone();
        spare(&mut easier);
        best_fit(tree, empty, &easier, required).fits >= gang.size
    };
    let short: Cow<'_, str> = match &gang.needs {
        n if n.is_pooled() && fits_without(|g| g.all_needs_mut().for_each(Needs::forget_pools)) => {
            if !n.nodes.is_empty() && fits_without(|g| g.needs.nodes.clear()) {
                "; too few of its required nodes are in one pool of its queue".into()
            } else {
                "; no pool of its queue is large enough".into()
            }
        }
        n if !n.nodes.is_empty() && fits_without(|g| g.needs.nodes.clear()) => {
            "; too few of its required nodes have room".into()
        }
        n if n.memory_bytes > 0 && fits_without(|g| g.needs.memory_bytes = 0) => {
            let most = ledger.nodes().map(|node| node.machine.memory_bytes).max().unwrap_or(0);
            short_of("too little memory", &Resource::Memory, n.memory_bytes, most)
        }
        n if n.cpu_milli > 0 && fits_without(|g| g.needs.cpu_milli = 0) => {
            let most = ledger.nodes().map(|node| node.machine.cpu_milli).max().unwrap_or(0);
            short_of("too few CPUs", &Resource::Cpus, n.cpu_milli, most)
        }
        n if !n.avoid.is_empty() && fits_without(|g| g.needs.avoid.clear()) => {
            "; too few nodes remain without those that it avoids".into()
        }
        n if n.within.is_some() && fits_without(|g| g.needs.within = None) => {
            "; too few nodes are in the set that it may use".into()
        }
        n if !n.named.is_empty() && fits_without(|g| g.needs.named.clear()) => {
            "; too little of its named resources".into()
        }
        n if !n.models.is_empty() && fits_without(|g| g.needs.models.clear()) => {
            "; too few devices of that model".into()
        }
        _ if !gang.topology.together.is_empty() && fits_without(|g| g.topology.together.clear()) => {
            "; too few single nodes have room for the roles that must share a node".into()
        }
        _ if !gang.roles.is_empty() && fits_without(|g| g.roles.clear()) => {
            "; too little room for its roles".into()
        }
        _ if !gang.topology.spread.is_empty() && fits_without(|g| g.topology.spread.clear()) => {
            "; too few domains for its spread rule".into()
        }
        _ => Cow::Borrowed(""),
    };
    let where_ = match required {
        LevelAt::Above(0) => "in the whole cluster".to_owned(),
        level if best.domain.is_empty() => format!("inside one {}", tree.level_name(level)),
        level => format!("inside one {} ({})", tree.level_name(level), best.domain),
    };
    let where_ = format!("{where_}{short}");
    Err(Rejection::LargerThanCluster { asked: gang.size, largest: best.fits, where_ })
}

/// `; too few CPUs: a member needs 600, and the largest node has 64`.
fn short_of(what: &str, resource: &Resource, each: u64, most: u64) -> Cow<'static, str> {
    let (each, most) = (resource.show(each), resource.show(most));
    Cow::Owned(format!("; {what}: a member needs {each}, and the largest node has {most}"))
}
