//! Runs the measuring jobs one after the other, through the daemon as any job: each waits its turn.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use phalanx_api::client::{self, ClientError, Server};
use phalanx_api::protocol::{Answer, JobRef, JobView, LogAsk, TopologyView, Verb as Ask};
use phalanx_model::{Ending, JobId};

use super::super::{Session, follow};
use super::judge::Row;
use super::task::Task;
use crate::args::Probe;
use crate::failure::Failure;
use crate::measure::Measurement;

/// How often and how many times a daemon that went away is looked for: for two minutes.
const RECONNECT: Duration = Duration::from_millis(500);
const RECONNECTS: u32 = 240;
/// What a rank says when it fails.
const ERROR: &str = "error: ";

pub(super) struct Runner<'a> {
    session: &'a Session,
    probe: &'a Probe,
    view: &'a TopologyView,
    exe: PathBuf,
    tell: Sender<Happening>,
    happenings: Receiver<Happening>,
    pub(super) is_interrupted: bool,
}

/// What the thread that measures hears of.
enum Happening {
    Interrupted,
    Ended(Result<Box<JobView>, ClientError>),
}

impl<'a> Runner<'a> {
    /// From here on Ctrl-C cancels the job that runs, and the second one leaves at once.
    pub(super) fn start(
        session: &'a Session,
        probe: &'a Probe,
        view: &'a TopologyView,
    ) -> Result<Self, Failure> {
        let exe = std::env::current_exe()
            .map_err(|e| Failure::internal(format!("cannot find this program's own file: {e}")))?;
        let (tell, happenings) = channel();
        let (signals, interrupted) = (follow::block_interrupts(), tell.clone());
        std::thread::spawn(move || {
            while signals.wait().is_ok() && interrupted.send(Happening::Interrupted).is_ok() {}
        });
        Ok(Self { session, probe, view, exe, tell, happenings, is_interrupted: false })
    }

    /// Measures what one task is about. A pair that could not be measured has the reason.
    pub(super) fn measure(&mut self, task: &Task<'_>) -> Result<Vec<Row>, Failure> {
        let job = Box::new(task.job(&self.exe, self.probe)?);
        let submitted = self.session.ask(Ask::Submit { job, secrets: [].into() });
        let id = match submitted {
            Ok(Answer::Submitted { job, .. }) => job,
            Ok(_) => return Err(Failure::unexpected()),
            Err(refused) if refused.code == "rejected" => {
                return Ok(self.rows(task, &[], None, &refused.message));
            }
            Err(failure) => return Err(failure),
        };
        let Some(view) = self.ended(id)? else { return Ok(Vec::new()) };
        let (found, said) = self.log(id)?;
        let why = match &view.ending {
            Some(Ending::Succeeded) => "the job printed no measurement".to_owned(),
            Some(ending) => said.unwrap_or_else(|| format!("the job ended as {}", ending.word())),
            None => "the job has not ended".to_owned(),
        };
        Ok(self.rows(task, &found, Some(id), &why))
    }

    fn rows(&self, task: &Task<'_>, found: &[Measurement], job: Option<JobId>, why: &str) -> Vec<Row> {
        let mut rows = task.rows(self.view, found);
        for row in &mut rows {
            row.job = job;
            row.error = row.bytes_per_s.is_none().then(|| why.to_owned());
        }
        rows
    }

    /// Waits for the end of a job; `None` when it was left before.
    fn ended(&mut self, id: JobId) -> Result<Option<Box<JobView>>, Failure> {
        let (tell, server) = (self.tell.clone(), self.session.server()?.clone());
        std::thread::spawn(move || drop(tell.send(Happening::Ended(follow_to_end(&server, id)))));
        while let Ok(happening) = self.happenings.recv() {
            match happening {
                Happening::Ended(view) => return Ok(Some(view?)),
                Happening::Interrupted if self.is_interrupted => return Ok(None),
                Happening::Interrupted => {
                    self.is_interrupted = true;
                    // One that has ended meanwhile needs no cancel.
                    let _ = self.session.ask(Ask::Cancel { job: JobRef::Id(id) });
                }
            }
        }
        Ok(None)
    }

    /// The measurements in the log of a job, and what went wrong by its own word.
    fn log(&self, id: JobId) -> Result<(Vec<Measurement>, Option<String>), Failure> {
        let ask = Ask::Logs { job: JobRef::Id(id), ask: LogAsk::default() };
        let (mut found, mut said) = (Vec::new(), None);
        for answer in client::ask(self.session.server()?, ask)? {
            let Answer::Log { rank, line, .. } = answer? else { continue };
            match line.strip_prefix(ERROR) {
                Some(error) => drop(said.get_or_insert_with(|| error.to_owned())),
                None if rank == 0 => found.extend(Measurement::of_line(&line)),
                None => {}
            }
        }
        Ok((found, said))
    }
}

/// How a job ended, also over a restart of the daemon.
fn follow_to_end(server: &Server, id: JobId) -> Result<Box<JobView>, ClientError> {
    let mut failures = 0;
    loop {
        match end_of(server, id) {
            Ok(Some(view)) => return Ok(view),
            Ok(None) => {}
            Err(ClientError::Broken(_) | ClientError::NoDaemon { .. } | ClientError::NoServer { .. })
                if failures < RECONNECTS =>
            {
                failures += 1;
            }
            Err(error) => return Err(error),
        }
        std::thread::sleep(RECONNECT);
    }
}

fn end_of(server: &Server, id: JobId) -> Result<Option<Box<JobView>>, ClientError> {
    for answer in client::ask(server, Ask::Follow { job: JobRef::Id(id) })? {
        if let Answer::Job(view) = answer? {
            return Ok(Some(view));
        }
    }
    Ok(None)
}
