//! Jobs as a client would submit them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use phalanx_api::client::ClientError;
use phalanx_api::protocol::{Answer, ErrorView};
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

/// Steps between two checkpoints of [`trainer`].
pub(crate) const TRAINER_EVERY: u64 = 15;

/// Rank 0 counts steps of 50 ms for all; `step` in the folder is what it saved, `reached` how far it is, and its log says
/// where it `resumed`. It saves every [`TRAINER_EVERY`] steps, when it is done, and at once on SIGUSR1, when `told` is
/// the time at which it is to end.
pub(crate) fn trainer(folder: &Path, size: u32, steps: u32) -> Job {
    let script = format!(
        "cd $PHALANX_CKPT_DIR
         if [ $PHALANX_RANK != 0 ]; then until [ -e over ]; do sleep 0.2; done; exit; fi
         n=$(cat step 2>/dev/null || echo 0); echo resumed=$n; echo resume=$PHALANX_RESUME
         save() {{ echo $n > step.next && mv step.next step && touch $PHALANX_CHECKPOINTED; }}
         trap 'cat $PHALANX_PREEMPT_AT > told; save' USR1
         while [ $n -lt {steps} ]; do
           sleep 0.05; n=$((n + 1)); echo $n > reached; [ $((n % {TRAINER_EVERY})) = 0 ] && save
         done
         save; touch over"
    );
    fs::create_dir_all(folder).unwrap();
    let mut job = shell(size, &script);
    gang(&mut job).program.checkpoint_dir = Some(folder.display().to_string());
    job
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
