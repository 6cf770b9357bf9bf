//! A job as job files and flags say it, as work of a cluster. What Kubernetes cannot be told is refused by its name.

use phalanx_model::{Gang, Job, LaunchKind, Needs, Policy, PreemptMode, Program, Topology, Turn};
use phalanx_spec::RANKS_PER_NODE_ENV;

use super::{Launch, Refused, Trainer, Work};
use crate::recognise::TopologyWait;

/// The queue that a job is in which names none.
const DEFAULT_QUEUE: &str = "default";

/// The work of a job in an image. A job without a folder of its own runs in that of the image.
///
/// # Errors
/// When the job says something that a cluster cannot be told.
pub fn of_job(job: &Job, image: &str) -> Result<Work, Refused> {
    let ([gang], None) = (job.gangs.as_slice(), &job.turn.array) else {
        return Err(missing("array", "submit the tasks one by one"));
    };
    refuse_turn(&job.turn)?;
    refuse_policy(&job.policy)?;
    refuse_gang(gang)?;
    refuse_needs(&gang.needs)?;
    refuse_program(&gang.program)?;
    if job.priority != 0 {
        return Err(missing("priority", "name a PriorityClass of the cluster with --class"));
    }
    if job.key.is_some() {
        return Err(missing("key", "the name is the key: a second job of one name is refused"));
    }
    let Program { argv, env, workdir, checkpoint_dir, .. } = gang.program.clone();
    let mut work = Work {
        name: job.name.to_string(),
        trainer: Trainer::Job,
        workers: gang.size,
        gpus: gang.needs.devices,
        cpu: (gang.needs.cpu_milli > 0).then(|| format!("{}m", gang.needs.cpu_milli)),
        memory: (gang.needs.memory_bytes > 0).then(|| gang.needs.memory_bytes.to_string()),
        image: image.to_owned(),
        argv,
        launch: launch(&gang.program)?,
        env,
        workdir: (!workdir.is_empty()).then_some(workdir),
        queue: (job.queue.as_str() != DEFAULT_QUEUE).then(|| job.queue.to_string()),
        priority_class: job.turn.class.as_ref().map(ToString::to_string),
        required: gang.topology.required.as_ref().map(ToString::to_string),
        preferred: gang.topology.preferred.as_ref().map(ToString::to_string),
        topology_wait: TopologyWait::of(&gang.topology),
        segments: segments(gang),
        time_limit_s: job.policy.time_limit_ms.map(|ms| ms.div_ceil(1_000)),
        retry: job.policy.retry.max,
        grace_s: Some(job.policy.stop.grace_ms.div_ceil(1_000)),
        nodes: gang.needs.nodes.iter().map(ToString::to_string).collect(),
        avoid: gang.needs.avoid.iter().map(ToString::to_string).collect(),
        ..Work::default()
    };
    if let Some(dir) = checkpoint_dir {
        work.env.entry("PHALANX_CKPT_DIR".to_owned()).or_insert(dir);
    }
    Ok(work)
}

fn missing(what: &str, remedy: &str) -> Refused {
    Refused::new(what, "is not for jobs on Kubernetes", remedy)
}

fn launch(program: &Program) -> Result<Launch, Refused> {
    let per_pod = match program.env.get(RANKS_PER_NODE_ENV) {
        Some(text) => {
            text.parse().map_err(|_| Refused::new("ranks_per_node", format!("{text:?} is no count"), ""))?
        }
        None => 0,
    };
    Ok(match program.launch {
        LaunchKind::Ranks => Launch::Ranks,
        LaunchKind::Torchrun => Launch::Torchrun { per_pod },
        LaunchKind::Jax => Launch::Jax,
        LaunchKind::Mpi => Launch::Mpi { per_pod },
        LaunchKind::None => Launch::None,
    })
}

/// Members that share a node are a part of their own; one on each node is what GPUs of whole nodes give.
fn segments(gang: &Gang) -> Vec<String> {
    let said = gang.topology.segments.iter().map(|segment| format!("{}:{}", segment.size, segment.level));
    let said: Vec<String> = said.collect();
    match gang.members_per_node {
        Some(count) if count > 1 && said.is_empty() => vec![format!("{count}:node")],
        _ => said,
    }
}

fn refuse_turn(turn: &Turn) -> Result<(), Refused> {
    let Turn { class: _, held_by, boost: _, after, begins_at, deadline, array, takes_spot, service } = turn;
    let said = [
        ("hold", held_by.is_some()),
        ("after", !after.is_empty()),
        ("begin", begins_at.is_some()),
        ("deadline", deadline.is_some()),
        ("array", array.is_some()),
        ("spot", *takes_spot),
        ("service", service.is_some()),
    ];
    refuse(&said)
}

fn refuse_policy(policy: &Policy) -> Result<(), Refused> {
    let said = [
        ("signal", policy.stop.advisory.is_some()),
        ("preempt", policy.preempt.mode != PreemptMode::Requeue || policy.preempt.is_pinned),
        ("idle_limit", policy.idle_limit_ms.is_some()),
    ];
    refuse(&said)
}

fn refuse_gang(gang: &Gang) -> Result<(), Refused> {
    let Topology { spread, slice, .. } = &gang.topology;
    let said = [
        ("roles", !gang.roles.is_empty()),
        ("parallel", !gang.grid.is_empty()),
        ("nodes: MIN-MAX", gang.is_elastic()),
        ("spread", !spread.is_empty()),
        ("slice", slice.is_some()),
    ];
    refuse(&said)
}

fn refuse_needs(needs: &Needs) -> Result<(), Refused> {
    if !needs.models.is_empty() {
        return Err(missing("gpus: the model", "say --selector LABEL=VALUE with the label of such nodes"));
    }
    let said = [
        ("gpus: a part of a GPU", needs.part.is_some()),
        ("resource", !needs.named.is_empty()),
        ("prefer", !needs.prefer.is_empty()),
        ("exclusive", needs.is_exclusive),
        ("spot", needs.takes_spot),
    ];
    refuse(&said)
}

fn refuse_program(program: &Program) -> Result<(), Refused> {
    if !program.secrets.is_empty() {
        return Err(missing("secret", "keep it in a Secret of the cluster"));
    }
    refuse(&[("rdma", program.rdma), ("notify", program.notify.is_some()), ("terminal", program.terminal)])
}

fn refuse(said: &[(&str, bool)]) -> Result<(), Refused> {
    match said.iter().find(|(_, is_said)| *is_said) {
        Some((what, _)) => Err(missing(what, "leave it out, or submit the job to one machine")),
        None => Ok(()),
    }
}
