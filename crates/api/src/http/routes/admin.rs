//! What operators change, and tokens. A token is only made over the control socket, where the kernel says who asks: one that
//! leaked does not beget others. The world refuses it elsewhere.

use phalanx_model::{Queue, Settings, Timestamp};
use phalanx_spec::QueueFile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Body, File, Gives, Method, Query, Route, act, number, object, read, shape, text};
use crate::http::document::{Document, Done, List};
use crate::http::problem::Problem;
use crate::protocol::{
    Answer, DefragView, HealthReport, JobRef, NewTokenView, TokenAsk, TokenView, Verb, WhatIfAsk, WhatIfView,
    WindowAsk,
};

pub(crate) const ROUTES: &[Route] = &[
    act(
        "/v1/nodes/{node}/cordon",
        "cordonNode",
        "Closes a node for new work. For operators.",
        Body::Json(shape::<Close>),
        |asked| {
            let Close { reason } = asked.body()?;
            Ok(Verb::Cordon { node: asked.node()?, reason })
        },
    ),
    act(
        "/v1/nodes/{node}/drain",
        "drainNode",
        "Moves the gangs on a node away, now or by a time, and closes it for new work. For operators.",
        Body::Json(shape::<Drain>),
        |asked| {
            let Drain { reason, by } = asked.body()?;
            Ok(Verb::Drain { node: asked.node()?, by, reason })
        },
    ),
    act(
        "/v1/nodes/{node}/uncordon",
        "uncordonNode",
        "Opens a node for new work. For operators.",
        Body::Nothing,
        |asked| Ok(Verb::Uncordon { node: asked.node()? }),
    ),
    act(
        "/v1/health/reports",
        "reportHealth",
        "Adds evidence about the health of a node or a device. For operators.",
        Body::Json(shape::<HealthReport>),
        |asked| Ok(Verb::ReportHealth(asked.body()?)),
    ),
    Route {
        query: &[number("device", "The index of a device; without it, the node itself.")],
        method: Method::Delete,
        ..act(
            "/v1/nodes/{node}/health",
            "clearHealth",
            "Clears the evidence about a node or a device after its repair. For operators.",
            Body::Nothing,
            |asked| Ok(Verb::ClearHealth { node: asked.node()?, device: asked.number("device")? }),
        )
    },
    act(
        "/v1/calendar",
        "addWindow",
        "Adds a window of maintenance, or a block of nodes for a queue. For operators.",
        Body::Json(shape::<WindowAsk>),
        |asked| Ok(Verb::AddWindow(asked.body()?)),
    ),
    Route {
        method: Method::Delete,
        query: &[
            text(
                "nodes",
                "The nodes, divided by commas: names, patterns such as `gpu-[1-4]`, or domains such as `rack=r1`.",
            ),
            number(
                "begins_at",
                "The window that begins in the second of this time; without it, all of these nodes.",
            ),
        ],
        ..act(
            "/v1/calendar",
            "removeWindow",
            "Removes windows of these nodes. For operators.",
            Body::Nothing,
            |asked| {
                Ok(Verb::RemoveWindow { nodes: asked.patterns("nodes"), begins_at: asked.time("begins_at")? })
            },
        )
    },
    act(
        "/v1/nodes/{node}/notice",
        "noticeSpot",
        "Announces that a spot node is taken back so soon; without a time, after the notice of the cluster file. For operators.",
        Body::Json(shape::<Notice>),
        |asked| {
            let Notice { in_ms } = asked.body()?;
            Ok(Verb::NoticeSpot { node: asked.node()?, in_ms })
        },
    ),
    Route {
        method: Method::Get,
        ..moves(
            "planMoves",
            "Plans moves of running jobs that open a place for a pending one: what they save and cost.",
            |asked| Ok(Verb::Defrag { job: asked.text("job").map(JobRef::parse), apply: false }),
        )
    },
    moves("makeMoves", "Makes these moves. For operators.", |asked| {
        Ok(Verb::Defrag { job: asked.text("job").map(JobRef::parse), apply: true })
    }),
    Route {
        method: Method::Put,
        ..act(
            "/v1/queues",
            "applyQueues",
            "Puts a queue file in force: the whole tree of queues, and the settings. For operators.",
            Body::File(File::Queues),
            |asked| {
                let text = asked.body_text()?;
                let file = QueueFile::from_yaml(&text, "body").and_then(QueueFile::into_policy);
                let policy = file.map_err(|e| {
                    Problem::field("body", e.to_string(), "GET /v1/schemas/queues has the schema")
                })?;
                Ok(Verb::ApplyQueues { settings: Box::new(policy.settings), queues: policy.queues })
            },
        )
    },
    Route {
        method: Method::Put,
        ..act(
            "/v1/policy",
            "applyPolicy",
            "Puts a share policy in force that the `phalanx` command has read from a queue file. The shape is that of the \
             scheduler's own record and changes with its version: programs send queue files to PUT /v1/queues. For operators.",
            Body::Json(object),
            |asked| {
                let Policy { settings, queues } = asked.body()?;
                Ok(Verb::ApplyQueues { settings, queues })
            },
        )
    },
    read(
        "/v1/snapshot",
        "getSnapshot",
        "All that rebuilds the scheduler as it is now, elsewhere, without the programs of jobs: `phalanx sim whatif` reads it.",
        Gives::Json(object),
        |_| Ok(Verb::Snapshot),
        document!(Snapshot),
    ),
    Route {
        method: Method::Post,
        body: Body::Json(shape::<WhatIfAsk>),
        ..read(
            "/v1/what-if",
            "whatIf",
            "Says what would change: the simulator continues from a snapshot of now twice, as it is and with these changes. All \
             of the answer is predicted, and nothing is changed. For operators.",
            Gives::Json(shape::<WhatIfView>),
            |asked| Ok(Verb::WhatIf(asked.body()?)),
            document!(WhatIf),
        )
    },
    act(
        "/v1/stop",
        "stopDaemon",
        "Ends the daemon. Jobs continue, and the next daemon takes them over. For operators, over the control socket alone.",
        Body::Nothing,
        |_| Ok(Verb::Stop),
    ),
    Route {
        method: Method::Post,
        body: Body::Json(shape::<TokenAsk>),
        gives: Gives::Created(shape::<NewTokenView>),
        tell: |_, answer| match answer {
            Answer::Token(view) => Ok(Document::of(&view)?.created()),
            _ => Err(Problem::unexpected()),
        },
        ..read(
            "/v1/tokens",
            "createToken",
            "Makes a token for the caller, and says it this once. Over the control socket alone.",
            Gives::Json(shape::<NewTokenView>),
            |asked| Ok(Verb::NewToken(asked.body()?)),
            document!(Token),
        )
    },
    read(
        "/v1/tokens",
        "listTokens",
        "Lists the tokens of the caller; for operators, of all users.",
        Gives::Json(shape::<List<TokenView>>),
        |_| Ok(Verb::Tokens),
        list!(Tokens),
    ),
    Route {
        method: Method::Delete,
        path: "/v1/tokens/{name}",
        name: "revokeToken",
        summary: "Revokes a token.",
        query: &[number("uid", "Of this user, for operators.")],
        body: Body::Nothing,
        gives: Gives::Json(shape::<Done>),
        ask: |asked| Ok(Verb::RevokeToken { name: asked.name(), uid: asked.number("uid")? }),
        tell: super::done,
    },
];

const FOR_A_JOB: &[Query] =
    &[text("job", "The job that waits; without it, the first for which moves open a place.")];

const fn moves(name: &'static str, summary: &'static str, ask: super::Ask) -> Route {
    Route {
        method: Method::Post,
        path: "/v1/moves",
        name,
        summary,
        query: FOR_A_JOB,
        body: Body::Nothing,
        gives: Gives::Json(shape::<DefragView>),
        ask,
        tell: document!(Defrag),
    }
}

/// The whole tree of queues, and the settings.
#[derive(Serialize, Deserialize)]
pub(crate) struct Policy {
    pub(crate) settings: Box<Settings>,
    pub(crate) queues: Vec<Queue>,
}

/// When a node is taken back.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Notice {
    pub(crate) in_ms: Option<u64>,
}

/// Why a node is closed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Close {
    /// At most 200 characters.
    pub(crate) reason: Option<String>,
}

/// Why a node is drained, and by when.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Drain {
    /// At most 200 characters.
    pub(crate) reason: Option<String>,
    /// Without it, now.
    pub(crate) by: Option<Timestamp>,
}
