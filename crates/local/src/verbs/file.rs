//! A job file as it comes over the API.

use std::collections::BTreeMap;

use phalanx_api::Peer;
use phalanx_api::protocol::{Answer, ErrorCode, ErrorView, WrongField};
use phalanx_model::{Gang, JobId};
use phalanx_spec::{JobFile, SubmitContext};

use super::{Failure, dry_run, submit as submit_job, unknown};
use crate::daemon::Daemon;
use crate::user;

/// What the file is called in errors.
const NAME: &str = "job file";
const PATH: &str = "PATH";
/// Programs are found here if the file says nothing: nobody's shell is known.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Reads it as `phalanx submit FILE` does. Nothing is taken from the daemon's own environment.
pub(super) fn submit(
    daemon: &Daemon,
    peer: &Peer,
    text: &str,
    key: Option<String>,
    is_dry_run: bool,
) -> Result<Answer, Failure> {
    let hint = "`phalanx schema job` and GET /v1/schemas/job show the fields";
    let wrong = |e: phalanx_spec::SpecError| {
        let field = e.field().map(|path| WrongField { path: path.to_owned(), what: e.what().to_owned() });
        Failure::Told(ErrorView { field, ..ErrorView::new(ErrorCode::BadRequest, e.to_string(), hint) })
    };
    let file = JobFile::from_yaml(text, NAME).map_err(wrong)?;
    let context = SubmitContext {
        id: JobId(0),
        owner: peer.owner.clone(),
        submitted_at: daemon.clock.now(),
        default_workdir: home(peer)?,
    };
    let mut job = file.into_job(context).map_err(wrong)?;
    job.key = key.or(job.key);
    for program in job.gangs.iter_mut().flat_map(Gang::programs_mut) {
        if !program.secrets.contains_key(PATH) {
            program.env.entry(PATH.to_owned()).or_insert_with(|| USUAL_PATH.to_owned());
        }
    }
    if is_dry_run { dry_run(daemon, peer, job) } else { submit_job(daemon, peer, job, &BTreeMap::new()) }
}

fn home(peer: &Peer) -> Result<String, Failure> {
    let account = user::account(peer.owner.uid, peer.owner.gid);
    account.map(|account| account.home).map_err(|_| unknown(peer))
}
