//! `advise`: what jobs should ask for next time.

use std::process::ExitCode;

use phalanx_api::protocol::{AdviseAsk, Answer, Verb as Ask};

use super::Session;
use super::calendar::past;
use crate::args::Advise;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::show;

pub(super) fn advise(session: &Session, asked: &Advise) -> Result<ExitCode, Failure> {
    let since = past("--since", &asked.since, output::now())?;
    let ask = AdviseAsk { job: asked.job.clone(), user: asked.user.clone(), since: Some(since) };
    let Answer::Advice(view) = session.ask(Ask::Advise(ask))? else { return Err(Failure::unexpected()) };
    if view.is_cut {
        session.out.note("there are more runs than were looked at; a shorter time or one job has fewer");
    }
    if asked.format == Format::Csv {
        output::print(&show::advise::csv(&view)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let names =
        || view.jobs.iter().filter(|job| !job.advice.is_empty()).map(|job| job.name.clone()).collect();
    let has_all = asked.job.is_some();
    session.out.show("Advice", &view, |page| show::advise::page(page, &view, has_all), names)?;
    Ok(ExitCode::SUCCESS)
}
