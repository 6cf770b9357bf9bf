//! `replay`: what happened to a live system, decision by decision, out of its journal; and whether it would be decided so
//! again.

mod facts;
mod state;
mod walk;

use std::collections::{BTreeMap, BTreeSet};

use clap::{Args, ValueHint};
use phalanx_engine::{Engine, VERSION};
use phalanx_journal::Header;
use phalanx_model::{Change, Epoch, Input, JobId, Snapshot, Timestamp};
use phalanx_sentences as sentences;
use serde::Serialize;

use super::paper::{Moment, Paper};
use super::{CommandError, Document, Format, Host};
use state::State;
use walk::{Reading, Step, Verdict, walk};

#[derive(Debug, Args)]
pub struct Replay {
    /// Folder of a journal [default: `phalanx` takes the journal of its state folder]
    #[arg(value_hint = ValueHint::DirPath)]
    dir: Option<String>,
    /// Show what happened since this time: 2026-11-20T14:03, as clocks here show it, or 2026-11-20T14:03Z
    #[arg(long, value_name = "TIME")]
    from: Option<Moment>,
    /// Show what happened until this time, and the state then [default: all]
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// Show only this job: number or name
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Show only the jobs of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    /// Check that the engine decides every recorded step again as recorded; exit code 2 if it does not
    #[arg(long)]
    check: bool,
    /// Write the state at that time to a file, for `sim whatif`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    snapshot: Option<String>,
}

/// What is asked, with the times of this zone.
struct Asked<'a> {
    dir: &'a str,
    from: Timestamp,
    until: Option<Timestamp>,
    job: Option<&'a str>,
    queue: Option<&'a str>,
}

impl Replay {
    fn times(&self, paper: &Paper) -> Result<(Timestamp, Option<Timestamp>), CommandError> {
        let time = |option: &str, moment: Option<Moment>| {
            let wrong = |error| CommandError::Usage(format!("{option}: {error}"));
            moment.map(|moment| paper.time(moment).map_err(wrong)).transpose()
        };
        let (from, until) = (time("--from", self.from)?.unwrap_or_default(), time("--until", self.until)?);
        if until.is_some_and(|until| until < from) {
            return Err(CommandError::Usage("--until is before --from".to_owned()));
        }
        Ok((from, until))
    }

    pub(super) fn run(&self, format: Format, host: &mut dyn Host) -> Result<(), CommandError> {
        let paper = host.paper();
        let (from, until) = self.times(&paper)?;
        let dir = match &self.dir {
            Some(dir) => dir.clone(),
            None => host.journal().map_err(CommandError::Usage)?,
        };
        let (job, queue) = (self.job.as_deref(), self.queue.as_deref());
        let asked = Asked { dir: &dir, from, until, job, queue };
        let segments = host.segments(asked.dir).map_err(CommandError::Input)?;
        if segments.is_empty() {
            let error = format!("{} holds no journal: there is no file such as 000001.journal", asked.dir);
            return Err(CommandError::Input(error));
        }
        let (mut story, mut verdict, mut engine) = (Story::new(&asked), Verdict::default(), None);
        for segment in segments {
            let bytes = host.read(&segment, u64::MAX).map_err(CommandError::Input)?;
            engine =
                walk(&segment, &bytes, &mut verdict, &mut story).filter(Story::knows_the_time).or(engine);
        }
        let Some(engine) = engine else {
            let why = match (asked.until, story.first_at) {
                (Some(_), Some(first)) => format!("it begins {}", paper.date(first)),
                _ => format!("it holds no step\n{}", story.remarks.join("\n")),
            };
            return Err(CommandError::Input(format!("{} tells nothing of that time: {why}", asked.dir)));
        };
        if self.check {
            return check(&asked, &story, verdict, host);
        }
        story.check_names()?;
        let at = asked.until.unwrap_or_default().max(engine.now());
        if let Some(file) = &self.snapshot {
            let snapshot = Snapshot { taken_at: at, ..engine.snapshot() };
            host.write(file, Document::new("Snapshot", &snapshot).line().as_bytes())
                .map_err(CommandError::Input)?;
        }
        let state = State::of(&engine, at, &|job| story.is_asked(job));
        let text = match format {
            Format::Table => story.text(&state, verdict, &paper),
            format => story.document(&state, verdict, format),
        };
        host.print(text.as_bytes()).map_err(CommandError::Input)
    }
}

/// Whether it is decided again as it was.
fn check(
    asked: &Asked<'_>,
    story: &Story<'_>,
    verdict: Verdict,
    host: &mut dyn Host,
) -> Result<(), CommandError> {
    let dir = asked.dir;
    let mut text: String = story.remarks.iter().map(|remark| format!("{remark}\n")).collect();
    if verdict.differing == 0 && verdict.steps > 0 {
        text += &sentence(verdict, dir);
        text.push('\n');
    }
    host.print(text.as_bytes()).map_err(CommandError::Input)?;
    match verdict {
        Verdict { steps: 0, .. } => {
            Err(CommandError::Input(format!("{dir} holds no step of version {VERSION}")))
        }
        Verdict { differing: 0, damaged: 0, .. } => Ok(()),
        Verdict { differing: 0, damaged, .. } => {
            let segments = if damaged == 1 { "1 segment" } else { &format!("{damaged} segments") };
            Err(CommandError::Input(format!("{dir}: {segments} cannot be read to the end")))
        }
        _ => Err(CommandError::Correctness(sentence(verdict, dir))),
    }
}

fn sentence(Verdict { steps, differing, of_others, .. }: Verdict, dir: &str) -> String {
    let others = match of_others {
        0 => String::new(),
        n => format!("; {n} steps are of other versions, and as they were recorded"),
    };
    match (steps, differing) {
        (0, _) => format!("{dir}: no step is of version {VERSION}{others}"),
        (steps, 0) => format!("{dir}: all {steps} steps are decided as they were{others}"),
        (steps, n) => format!("{dir}: {n} of {steps} steps are decided otherwise{others}"),
    }
}

/// One thing that happened.
#[derive(Serialize)]
struct Line {
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobId>,
    name: String,
    what: &'static str,
    detail: String,
    /// All of a decision, as the journal has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Change>,
}

/// What happened, as far as it is asked.
struct Story<'a> {
    asked: &'a Asked<'a>,
    lines: Vec<Line>,
    /// Of each job the last that was said: after a restart the same is said anew.
    last: BTreeMap<Option<JobId>, (&'static str, String)>,
    /// Names and queues of all jobs, those that are forgotten too.
    jobs: BTreeMap<JobId, (String, String)>,
    queues: BTreeSet<String>,
    /// With the number of lines before each.
    remarks: Vec<String>,
    remarked_at: Vec<usize>,
    epoch: Option<Epoch>,
    first_at: Option<Timestamp>,
}

impl Reading for Story<'_> {
    fn begin(&mut self, header: &Header) {
        let at = header.created_at;
        self.first_at.get_or_insert(at);
        // A segment that is full is followed by one of the same leader, and nothing happened.
        if self.epoch.replace(header.epoch) != Some(header.epoch) && self.is_in_time(at) && self.is_of_all() {
            let detail = format!("epoch {}, version {}", header.epoch.0, header.engine);
            self.add(at, None, "daemon begins", detail, None);
        }
    }

    fn step(&mut self, step: &Step<'_>) {
        for input in step.inputs {
            self.learn(input);
        }
        if !self.is_in_time(step.now) {
            return;
        }
        if !step.is_listing {
            for input in step.inputs {
                if let Some((job, what, detail)) = facts::told(input, step.engine) {
                    self.add(step.now, job, what, detail, None);
                }
            }
        }
        for change in step.changes {
            let said = match change {
                Change::JobRejected { job, why } => Some((*job, "refused", why.to_string())),
                _ => sentences::change(step.now, change, step.engine),
            };
            if let Some((job, what, detail)) = said {
                self.add(step.now, Some(job), what, detail, Some(change.clone()));
            }
        }
    }

    fn remark(&mut self, text: String) {
        self.remarks.push(text);
        self.remarked_at.push(self.lines.len());
    }

    fn is_wanted(&self, now: Timestamp) -> bool {
        self.asked.until.is_none_or(|until| now <= until)
    }
}

impl<'a> Story<'a> {
    fn new(asked: &'a Asked<'a>) -> Self {
        Self {
            asked,
            lines: Vec::new(),
            last: BTreeMap::new(),
            jobs: BTreeMap::new(),
            queues: BTreeSet::new(),
            remarks: Vec::new(),
            remarked_at: Vec::new(),
            epoch: None,
            first_at: None,
        }
    }

    /// An engine that made no step knows nothing.
    fn knows_the_time(engine: &Engine) -> bool {
        engine.now() > Timestamp::default()
    }

    fn is_in_time(&self, at: Timestamp) -> bool {
        at >= self.asked.from && self.is_wanted(at)
    }

    const fn is_of_all(&self) -> bool {
        self.asked.job.is_none() && self.asked.queue.is_none()
    }

    /// Whether what happens to a job is asked.
    fn is_asked(&self, id: JobId) -> bool {
        let known = self.jobs.get(&id);
        let is_named = self.asked.job.is_none_or(|job| {
            job.parse()
                .map_or_else(|_| known.is_some_and(|(name, _)| name == job), |number| JobId(number) == id)
        });
        let is_there = self.asked.queue.is_none_or(|queue| known.is_some_and(|(_, of)| of == queue));
        is_named && is_there
    }

    /// A name that nothing had is a mistake.
    fn check_names(&self) -> Result<(), CommandError> {
        let dir = self.asked.dir;
        if let Some(queue) = self.asked.queue.filter(|queue| !self.queues.contains(*queue)) {
            let known: Vec<&str> = self.queues.iter().map(String::as_str).collect();
            let error = format!("--queue: {dir} knows no queue {queue:?}; there are {}", known.join(", "));
            return Err(CommandError::Input(error));
        }
        match self.asked.job {
            Some(job) if !self.jobs.keys().any(|id| self.is_asked(*id)) => {
                let of = self.asked.queue.map_or_else(String::new, |queue| format!(" in queue {queue}"));
                let error =
                    format!("--job: {dir} knows no job {job}{of} in that time; without it all are told");
                Err(CommandError::Input(error))
            }
            _ => Ok(()),
        }
    }

    fn learn(&mut self, input: &Input) {
        match input {
            Input::JobSubmitted { job } | Input::JobObserved { job, .. } => {
                self.queues.insert(job.queue.to_string());
                self.jobs.entry(job.id).or_insert_with(|| (job.name.to_string(), job.queue.to_string()));
            }
            Input::QueueObserved { queue } => drop(self.queues.insert(queue.name.to_string())),
            _ => {}
        }
    }

    fn add(
        &mut self,
        at: Timestamp,
        job: Option<JobId>,
        what: &'static str,
        detail: String,
        decision: Option<Change>,
    ) {
        if !job.map_or_else(|| self.is_of_all(), |job| self.is_asked(job)) {
            return;
        }
        let said = (what, detail.clone());
        if self.last.insert(job, said.clone()) == Some(said) {
            return;
        }
        let name = job.and_then(|job| self.jobs.get(&job)).map_or_else(String::new, |(name, _)| name.clone());
        self.lines.push(Line { at, job, name, what, detail, decision });
    }

    fn document(&self, state: &State, verdict: Verdict, format: Format) -> String {
        #[derive(Serialize)]
        struct Body<'a> {
            version: &'static str,
            journal: &'a str,
            happened: &'a [Line],
            state: &'a State,
            remarks: &'a [String],
            steps: u64,
            differing: u64,
            steps_of_other_versions: u64,
        }
        let Verdict { steps, differing, of_others, .. } = verdict;
        let body = Body {
            version: VERSION,
            journal: self.asked.dir,
            happened: &self.lines,
            state,
            remarks: &self.remarks,
            steps,
            differing,
            steps_of_other_versions: of_others,
        };
        let document = Document::new("Replay", &body);
        if format == Format::Yaml { document.yaml() } else { document.pretty() }
    }

    /// Days below each other, remarks where they belong, and the state in the end.
    fn text(&self, state: &State, verdict: Verdict, paper: &Paper) -> String {
        let mut text = String::new();
        // What both decisions were, `--check` tells.
        let told = |remark: &str| format!("! {}\n", remark.lines().next().unwrap_or_default());
        let mut remarks = self.remarked_at.iter().zip(&self.remarks).peekable();
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut day = String::new();
        let flush = |rows: &mut Vec<Vec<String>>| {
            let table = paper.table(&["", ">", "", "", ""], rows);
            rows.clear();
            table
        };
        for (at, line) in self.lines.iter().enumerate() {
            while let Some((_, remark)) = remarks.next_if(|(before, _)| **before <= at) {
                text += &flush(&mut rows);
                text += &told(remark);
            }
            let today = paper.day(line.at);
            if today != day {
                text += &flush(&mut rows);
                text += &format!("{today}\n");
                day = today;
            }
            let job = line.job.map_or_else(String::new, |job| job.to_string());
            let cells =
                [paper.clock(line.at), job, line.name.clone(), line.what.to_owned(), line.detail.clone()];
            rows.push(cells.to_vec());
        }
        text += &flush(&mut rows);
        remarks.for_each(|(_, remark)| text += &told(remark));
        if self.lines.is_empty() {
            text += "nothing happened\n";
        }
        format!("{text}{}{}\n", state.text(paper), sentence(verdict, self.asked.dir))
    }
}
