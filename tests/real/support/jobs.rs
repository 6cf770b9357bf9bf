//! Jobs as a client would submit them.

use std::collections::BTreeMap;

use phalanx_local::client::ClientError;
use phalanx_local::protocol::{Answer, ErrorView};
use phalanx_model::{
    FailureClass, Gang, Job, JobId, JobName, LaunchKind, Needs, Owner, Policy, Program, QueueName, Retry,
    Stop, Timestamp, Topology,
};

/// `size` ranks that run a shell script, with one second of grace and no retry.
pub(crate) fn shell(size: u32, script: &str) -> Job {
    let argv = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let program = Program { argv, workdir: "/".to_owned(), launch: LaunchKind::Ranks, ..Program::default() };
    Job {
        // Number, owner and time are the daemon's to set.
        id: JobId(0),
        name: JobName::new("test").unwrap(),
        key: None,
        owner: Owner { uid: 0, gid: 0, name: "client".to_owned() },
        queue: QueueName::new("default").unwrap(),
        priority: 0,
        submitted_at: Timestamp(0),
        gangs: vec![Gang {
            size,
            min: size,
            max: size,
            needs: Needs::default(),
            members_per_node: None,
            topology: Topology::default(),
            traffic: None,
            program,
            roles: Vec::new(),
            grid: Vec::new(),
        }],
        policy: Policy {
            start_deadline_ms: 60_000,
            stop: Stop { advisory: None, grace_ms: 1_000 },
            ..Policy::default()
        },
        turn: phalanx_model::Turn::default(),
    }
}

/// The only gang of a job.
pub(crate) fn gang(job: &mut Job) -> &mut Gang {
    job.gangs.first_mut().unwrap()
}

/// Restarts for these classes, with a back-off of a tenth of a second.
pub(crate) fn retry(max: u32, on: &[FailureClass]) -> Retry {
    Retry { max, on: on.to_vec(), backoff_ms: 100, backoff_max_ms: 1_000 }
}

/// What the daemon said when it refused.
pub(crate) fn refused(answer: Result<Answer, ClientError>) -> ErrorView {
    match answer {
        Err(ClientError::Refused(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

/// Variables as a job carries them.
pub(crate) fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
