//! What a job that can never run here is refused with.

use phalanx_model::{Gang, Job, Needs, Rejection};

/// The message and what to do. `devices`: of all nodes.
#[must_use]
pub fn unfit(job: &Job, why: &Rejection, devices: u32) -> (String, &'static str) {
    if matches!(why, Rejection::LargerThanCluster { .. }) && devices == 0 && wants_devices(job) {
        return (
            "the job needs GPUs, and this machine has none".to_owned(),
            "leave out GPUs and request `--cpus`, or restart the daemon with declared nodes: \
             `phalanx down`, then `phalanx up --detach --cluster FILE`",
        );
    }
    let hint = match why {
        Rejection::UnknownQueue { .. } => "`phalanx queues` lists them; `-q QUEUE` names one",
        _ => "`phalanx nodes` and `phalanx topo show` say what there is",
    };
    (why.to_string(), hint)
}

fn wants_devices(job: &Job) -> bool {
    let wants = |needs: &Needs| needs.devices > 0 || needs.part.is_some();
    let any = |gang: &Gang| wants(&gang.needs) || gang.roles.iter().any(|role| wants(&role.needs));
    job.gangs.iter().any(any)
}
