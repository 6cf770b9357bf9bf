//! `defrag`: jobs that may move open a place for one that waits.

use std::process::ExitCode;

use phalanx_api::protocol::{Answer, JobRef, Verb as Ask};

use super::Session;
use crate::args::Defrag;
use crate::failure::Failure;
use crate::show;

pub(super) fn defrag(session: &Session, asked: &Defrag) -> Result<ExitCode, Failure> {
    let job = asked.job.as_deref().map(JobRef::parse);
    match session.ask(Ask::Defrag { job, apply: asked.apply })? {
        Answer::Defrag(view) => {
            let names = || view.moves.iter().map(|one| one.gang.job.to_string()).collect();
            session.out.show("Defrag", &*view, |page| show::defrag::page(page, &view), names)?;
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(Failure::unexpected()),
    }
}
