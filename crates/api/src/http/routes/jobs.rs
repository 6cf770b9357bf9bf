//! Jobs: submit, list, ask, change.

use phalanx_model::{JobUpdate, NodeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Body, File, Gives, LIMIT, Method, Query, Route, act, flag, number, read, shape, text};
use crate::http::document::{Document, Done, List, LogLine, Submitted};
use crate::http::problem::Problem;
use crate::protocol::{
    Answer, BoostAsk, DryRunView, EndpointsView, EventView, JobFilter, JobView, LogAsk, News, Verb, WhyView,
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
                user: asked.text("owner").map(str::to_owned),
                queue: asked.text("queue").map(queue_name).transpose()?,
                name: asked.text("name").map(str::to_owned),
                text: asked.text("text").map(str::to_owned),
                states: asked.words("state"),
                before: asked.after()?,
                ..JobFilter::default()
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
        tell: |_, answer| match answer {
            Answer::Submitted { job, name, existing } => {
                let document = Document::of(&Submitted { job, name, existing })?;
                Ok(if existing { document } else { document.created() })
            }
            _ => Err(Problem::unexpected()),
        },
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
        gives: Gives::Json(shape::<List<EventView>>),
        ask: |asked| Ok(Verb::History { job: Some(asked.job()), limit: asked.limit()? }),
        tell: |_, answer| match answer {
            Answer::History(events) => List::whole(events.into_iter().map(|of_job| of_job.event).collect()),
            _ => Err(Problem::unexpected()),
        },
    },
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
    read(
        "/v1/jobs/{job}/endpoints",
        "listEndpoints",
        "Where the replicas of a service are reached.",
        Gives::Json(shape::<EndpointsView>),
        |asked| Ok(Verb::Endpoints { job: asked.job(), from: None::<NodeName> }),
        document!(Endpoints),
    ),
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

/// How a job is requeued.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Requeue {
    /// It is held, too.
    hold: bool,
}

/// How many replicas are wanted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct Scale {
    replicas: Option<u32>,
}

/// Which size is wanted.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct NewSize {
    size: Option<u32>,
}

/// What a rank reports.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct RankNews {
    /// Index of the gang in its job.
    #[serde(default)]
    gang: u32,
    news: News,
}

fn queue_name(text: &str) -> Result<phalanx_model::QueueName, Box<Problem>> {
    phalanx_model::QueueName::new(text).map_err(|e| Problem::field("queue", e.to_string(), ""))
}
