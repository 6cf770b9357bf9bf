//! Jobs: submit, list, ask, change.

use std::collections::BTreeMap;

use phalanx_model::{Job, JobId, JobUpdate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Body, File, Gives, LIMIT, Method, Query, Route, act, flag, number, object, read, shape, text};
use crate::http::asked::Asked;
use crate::http::document::{Document, Done, List, LogLine, Submitted};
use crate::http::problem::Problem;
use crate::protocol::{
    Answer, BoostAsk, DryRunView, EndpointsView, EventView, ExecAsk, HistoryView, JobFilter, JobView, LogAsk,
    News, TerminalView, Verb, WhyView,
};

pub(crate) const ROUTES: &[Route] = &[
    Route {
        method: Method::Get,
        path: "/v1/jobs",
        name: "listJobs",
        summary: "Jobs, the newest first: those that have not ended, or all.",
        query: &[
            flag("finished", "Also jobs that have ended."),
            text("owner", "Of this user, by name."),
            number("uid", "Of this user, by number."),
            text("queue", "In this queue."),
            text("name", "A name, in which `*` stands for any text and `?` for one letter."),
            text("text", "A text that is in the number, the name, the owner or the queue of a job."),
            text("state", "One of these states, divided by commas."),
            LIMIT,
            number("after", "From after this job on: `next` of the part before."),
        ],
        body: Body::Nothing,
        gives: Gives::Json(shape::<List<JobView>>),
        ask: |asked| {
            let filter = JobFilter {
                uid: asked.number("uid")?,
                user: asked.text("owner").map(str::to_owned),
                queue: asked.text("queue").map(queue_name).transpose()?,
                name: asked.text("name").map(str::to_owned),
                text: asked.text("text").map(str::to_owned),
                states: asked.words("state"),
                before: asked.after()?,
            };
            let finished = asked.flag("finished")? || filter.wants_ended();
            // One more than is wanted: whether there is a next part.
            Ok(Verb::List { finished, filter, limit: asked.limit()?.saturating_add(1) })
        },
        tell: |asked, answer| match answer {
            Answer::Jobs(mut items) => {
                let limit = asked.limit()? as usize;
                items.reverse();
                let has_more = items.len() > limit;
                items.truncate(limit);
                let next = items.last().filter(|_| has_more).map(|job| job.id.to_string());
                Document::of(&List { items, next })
            }
            _ => Err(Problem::unexpected()),
        },
    },
    Route {
        method: Method::Post,
        path: "/v1/jobs",
        name: "submitJob",
        summary: "Submits a job file. It starts in the home of the user unless the file names a folder.",
        query: &[],
        body: Body::File(File::Job),
        gives: Gives::Created(shape::<Submitted>),
        ask: |asked| {
            Ok(Verb::SubmitFile { text: asked.body_text()?, key: asked.key.clone(), dry_run: false })
        },
        tell: submitted,
    },
    Route {
        method: Method::Post,
        path: "/v1/jobs/dry-run",
        name: "dryRunJob",
        summary: "What the submission of a job file would do: when and where it would start. Nothing is submitted.",
        query: &[],
        body: Body::File(File::Job),
        gives: Gives::Json(shape::<DryRunView>),
        ask: |asked| Ok(Verb::SubmitFile { text: asked.body_text()?, key: None, dry_run: true }),
        tell: document!(DryRun),
    },
    Route {
        method: Method::Post,
        path: "/v1/submissions",
        name: "submitResolvedJob",
        summary: "Submits a job whose file, flags and environment the `phalanx` command has resolved, with the values of its \
                  secrets. The shape is that of the scheduler's own record and changes with its version: programs send job \
                  files to POST /v1/jobs.",
        query: &[],
        body: Body::Json(object),
        gives: Gives::Created(shape::<Submitted>),
        ask: |asked| {
            let Submission { job, secrets } = asked.body()?;
            Ok(Verb::Submit { job, secrets })
        },
        tell: submitted,
    },
    Route {
        method: Method::Post,
        path: "/v1/submissions/dry-run",
        name: "dryRunResolvedJob",
        summary: "What the submission of a resolved job would do. Nothing is submitted.",
        query: &[],
        body: Body::Json(object),
        gives: Gives::Json(shape::<DryRunView>),
        ask: |asked| {
            let Submission { job, .. } = asked.body()?;
            Ok(Verb::DryRun { job })
        },
        tell: document!(DryRun),
    },
    Route {
        method: Method::Post,
        path: "/v1/waits",
        name: "waitForJobs",
        summary: "Waits for the ends of jobs: an event `job` for each that has ended, then `end`.",
        query: &[],
        body: Body::Json(shape::<Awaited>),
        gives: Gives::Events(shape::<JobView>),
        ask: |asked| {
            let Awaited { jobs } = asked.body()?;
            Ok(Verb::Wait { jobs })
        },
        tell: document!(Job),
    },
    read(
        "/v1/jobs/{job}",
        "getJob",
        "One job, by its number or its name; `7.3` is task 3 of the array 7.",
        Gives::Json(shape::<JobView>),
        |asked| Ok(Verb::Get { job: asked.job() }),
        document!(Job),
    ),
    Route {
        method: Method::Delete,
        path: "/v1/jobs/{job}",
        name: "cancelJob",
        summary: "Cancels a job, or tasks of an array.",
        query: &[],
        body: Body::Nothing,
        gives: Gives::Json(shape::<Done>),
        ask: |asked| Ok(Verb::Cancel { job: asked.job() }),
        tell: super::done,
    },
    Route {
        method: Method::Patch,
        path: "/v1/jobs/{job}",
        name: "updateJob",
        summary: "Changes the time limit, the priority or the queue of a job that has not ended.",
        query: &[],
        body: Body::Json(shape::<JobUpdate>),
        gives: Gives::Json(shape::<Done>),
        ask: |asked| Ok(Verb::Update { job: asked.job(), update: asked.body()? }),
        tell: super::done,
    },
    read(
        "/v1/jobs/{job}/why",
        "explainJob",
        "Why a job waits, what would change that, and when it is expected to start.",
        Gives::Json(shape::<WhyView>),
        |asked| Ok(Verb::Why { job: asked.job() }),
        document!(Why),
    ),
    Route {
        method: Method::Get,
        path: "/v1/jobs/{job}/events",
        name: "listJobEvents",
        summary: "What happened to a job, the oldest first.",
        query: &[LIMIT],
        body: Body::Nothing,
        gives: Gives::Json(shape::<List<HistoryView>>),
        ask: |asked| Ok(Verb::History { job: Some(asked.job()), limit: asked.limit()? }),
        tell: list!(History),
    },
    read(
        "/v1/jobs/{job}/follow",
        "followJob",
        "What happens to a job, as it happens: events `event` until the job has ended, then `job`.",
        Gives::Events(shape::<EventView>),
        |asked| Ok(Verb::Follow { job: asked.job() }),
        |_, answer| match answer {
            Answer::Event { at, what, detail } => Document::of(&EventView { at, what, detail, record: None }),
            Answer::Job(view) => Document::of(&view),
            _ => Err(Problem::unexpected()),
        },
    ),
    Route {
        method: Method::Get,
        path: "/v1/jobs/{job}/logs",
        name: "followJobLogs",
        summary: "Lines of the output of a job's ranks: events `log`, then `end`.",
        query: LOG_QUERY,
        body: Body::Nothing,
        gives: Gives::Events(shape::<LogLine>),
        ask: |asked| {
            let ask = LogAsk {
                rank: asked.number("rank")?,
                attempt: asked.number("attempt")?,
                tail: asked.number("tail")?,
                since: asked.time("since")?,
                follow: asked.flag("follow")?,
                timestamps: asked.flag("timestamps")?,
            };
            Ok(Verb::Logs { job: asked.job(), ask })
        },
        tell: |_, answer| match answer {
            Answer::Log { task, rank, attempt, at, line } => {
                Document::of(&LogLine { task, rank, attempt, at, line })
            }
            _ => Err(Problem::unexpected()),
        },
    },
    Route {
        query: &[text("node", "With the distance of each replica from this node.")],
        ..read(
            "/v1/jobs/{job}/endpoints",
            "listEndpoints",
            "Where the replicas of a service are reached.",
            Gives::Json(shape::<EndpointsView>),
            |asked| Ok(Verb::Endpoints { job: asked.job(), from: asked.node_in("node")? }),
            document!(Endpoints),
        )
    },
    Route {
        method: Method::Post,
        ..read(
            "/v1/jobs/{job}/terminal",
            "openTerminal",
            "Where the terminal of a running job is. Over the control socket alone.",
            Gives::Json(shape::<TerminalView>),
            |asked| Ok(Verb::Terminal { job: asked.job() }),
            document!(Terminal),
        )
    },
    Route {
        method: Method::Post,
        body: Body::Json(shape::<ExecAsk>),
        ..read(
            "/v1/jobs/{job}/exec",
            "startCommand",
            "Starts a command beside a rank of a running job, and says where its terminal is. Over the control socket alone.",
            Gives::Json(shape::<TerminalView>),
            |asked| Ok(Verb::Exec { job: asked.job(), ask: asked.body()? }),
            document!(Terminal),
        )
    },
    act(
        "/v1/jobs/{job}/hold",
        "holdJob",
        "Holds a job until it is released. Gangs that run continue.",
        Body::Nothing,
        |asked| Ok(Verb::Hold { job: asked.job() }),
    ),
    act("/v1/jobs/{job}/release", "releaseJob", "Releases a held job.", Body::Nothing, |asked| {
        Ok(Verb::Release { job: asked.job() })
    }),
    act(
        "/v1/jobs/{job}/requeue",
        "requeueJob",
        "Stops the gangs of a job that run and starts them again; with `hold`, after its release.",
        Body::Json(shape::<Requeue>),
        |asked| {
            let Requeue { hold } = asked.body()?;
            Ok(Verb::Requeue { job: asked.job(), hold })
        },
    ),
    act(
        "/v1/jobs/{job}/boost",
        "boostJob",
        "Gives a job more priority for a while; without a body, ends that. For operators.",
        Body::Json(shape::<Option<BoostAsk>>),
        |asked| {
            let boost = if asked.body.is_empty() { None } else { asked.body()? };
            Ok(Verb::Boost { job: asked.job(), boost })
        },
    ),
    act(
        "/v1/jobs/{job}/scale",
        "scaleService",
        "Sets the number of replicas of a service; without a number, its metric decides.",
        Body::Json(shape::<Scale>),
        |asked| {
            let Scale { replicas } = asked.body()?;
            Ok(Verb::Scale { job: asked.job(), replicas })
        },
    ),
    act(
        "/v1/jobs/{job}/resize",
        "resizeJob",
        "Sets the size of the elastic gangs of a job, in members; without a number, they grow by themselves.",
        Body::Json(shape::<NewSize>),
        |asked| {
            let NewSize { size } = asked.body()?;
            Ok(Verb::Resize { job: asked.job(), size })
        },
    ),
    act(
        "/v1/jobs/{job}/news",
        "reportNews",
        "Reports news of a gang from one of its ranks: a checkpoint, a metric.",
        Body::Json(shape::<RankNews>),
        |asked| {
            let RankNews { gang, news } = asked.body()?;
            Ok(Verb::Tell { job: asked.job(), gang, news })
        },
    ),
];

const LOG_QUERY: &[Query] = &[
    number("rank", "Of this rank alone."),
    number("attempt", "Of this attempt; without it, of the newest."),
    number("tail", "The last lines of each rank."),
    number("since", "Lines of this time or later, in Unix milliseconds."),
    flag("follow", "Also what is still to come, until the job has ended."),
    flag("timestamps", "Each line with its time."),
];

/// What was submitted: with 201, or with 200 if the key was used before.
fn submitted(_: &Asked, answer: Answer) -> Result<Document, Box<Problem>> {
    match answer {
        Answer::Submitted { job, name, existing } => {
            let document = Document::of(&Submitted { job, name, existing })?;
            Ok(if existing { document } else { document.created() })
        }
        _ => Err(Problem::unexpected()),
    }
}

/// A resolved job, and the values of the secrets that it names.
#[derive(Serialize, Deserialize)]
pub(crate) struct Submission {
    pub(crate) job: Box<Job>,
    #[serde(default)]
    pub(crate) secrets: BTreeMap<String, String>,
}

/// Whose ends are waited for.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Awaited {
    /// At most 10,000.
    pub(crate) jobs: Vec<JobId>,
}

/// How a job is requeued.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Requeue {
    /// It is held, too.
    pub(crate) hold: bool,
}

/// How many replicas are wanted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Scale {
    pub(crate) replicas: Option<u32>,
}

/// Which size is wanted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct NewSize {
    pub(crate) size: Option<u32>,
}

/// What a rank reports.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct RankNews {
    /// Index of the gang in its job.
    #[serde(default)]
    pub(crate) gang: u32,
    pub(crate) news: News,
}

fn queue_name(text: &str) -> Result<phalanx_model::QueueName, Box<Problem>> {
    phalanx_model::QueueName::new(text).map_err(|e| Problem::field("queue", e.to_string(), ""))
}
