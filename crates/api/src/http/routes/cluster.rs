//! The cluster: what is there, who holds it, what it is for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Body, Gives, LIMIT, Method, Route, number, read, shape, text};
use crate::http::document::{Document, List, Version};
use crate::http::problem::Problem;
use crate::protocol::{
    AdviceView, AdviseAsk, Answer, AuditFilter, AuditView, BillAsk, BillBy, BillView, ChangeView, HealthView,
    HistoryView, MapView, NodeDetailView, NodeFilter, NodeState, NodesView, OverviewView, QueueDetailView,
    QueueView, TopologyView, UserView, Verb, WindowView,
};

pub(crate) const ROUTES: &[Route] = &[
    read(
        "/v1/version",
        "getVersion",
        "Which scheduler answers. Needs no token.",
        Gives::Json(shape::<Version>),
        |_| Ok(Verb::Ping),
        |_, answer| match answer {
            Answer::Pong { version, pid, epoch } => {
                Document::of(&Version { version, api: "v1".to_owned(), pid, epoch })
            }
            _ => Err(Problem::unexpected()),
        },
    ),
    read(
        "/v1/whoami",
        "getUser",
        "Whom the token belongs to, and what it may do.",
        Gives::Json(shape::<UserView>),
        |_| Ok(Verb::Whoami),
        document!(User),
    ),
    read(
        "/v1/overview",
        "getOverview",
        "The cluster in numbers: nodes, devices, jobs, why jobs wait, queues.",
        Gives::Json(shape::<OverviewView>),
        |_| Ok(Verb::Overview),
        document!(Overview),
    ),
    read(
        "/v1/map",
        "getMap",
        "Every device of every node, with the job that holds it.",
        Gives::Json(shape::<MapView>),
        |_| Ok(Verb::Map),
        document!(Map),
    ),
    Route {
        method: Method::Get,
        path: "/v1/stream",
        name: "watchChanges",
        summary: "What changes, as it changes: events `change`, and `reset` where changes were missed and all is to be read again. \
                  The header Last-Event-ID goes on after a change.",
        query: &[],
        body: Body::Nothing,
        gives: Gives::Events(shape::<ChangeView>),
        ask: |asked| Ok(Verb::Watch { after: asked.last_event }),
        tell: |_, answer| match answer {
            Answer::Change(view) => Document::of(&view),
            Answer::Reset { id } => Document::of(&Reset { id }),
            _ => Err(Problem::unexpected()),
        },
    },
    Route {
        method: Method::Get,
        path: "/v1/nodes",
        name: "listNodes",
        summary: "Nodes in the order of their names, with what is free and who holds the rest.",
        query: &[
            text(
                "text",
                "A text that is in the name of a node, in its domains, in its model or in a job that runs there.",
            ),
            text("state", "One of open, cordoned, draining, unhealthy."),
            LIMIT,
            text("after", "From after this node on: `next` of the part before."),
        ],
        body: Body::Nothing,
        gives: Gives::Json(shape::<NodesView>),
        ask: |asked| {
            Ok(Verb::FindNodes(NodeFilter {
                text: asked.text("text").map(str::to_owned),
                state: asked.text("state").map(node_state).transpose()?,
                after: asked.node_in("after")?,
                limit: asked.limit()?,
            }))
        },
        tell: document!(Nodes),
    },
    read(
        "/v1/nodes/{node}",
        "getNode",
        "One node with its devices, links and health.",
        Gives::Json(shape::<NodeDetailView>),
        |asked| Ok(Verb::Node { node: asked.node()? }),
        document!(Node),
    ),
    read(
        "/v1/topology",
        "getTopology",
        "Everything about the machines: the domain tree, links, and predicted costs.",
        Gives::Json(shape::<TopologyView>),
        |_| Ok(Verb::Topology),
        document!(Topology),
    ),
    read(
        "/v1/queues",
        "listQueues",
        "The tree of queues, parents before their children.",
        Gives::Json(shape::<List<QueueView>>),
        |_| Ok(Verb::Queues),
        list!(Queues),
    ),
    read(
        "/v1/queues/{queue}",
        "getQueue",
        "One queue with every term of the order, and the gangs that wait in it.",
        Gives::Json(shape::<QueueDetailView>),
        |asked| Ok(Verb::Queue { queue: asked.queue()? }),
        document!(Queue),
    ),
    Route {
        query: &[text("node", "Of this node alone.")],
        ..read(
            "/v1/health",
            "getHealth",
            "What is not ok of nodes and devices, with its evidence, and the last samples.",
            Gives::Json(shape::<HealthView>),
            |asked| Ok(Verb::Health { node: asked.node_in("node")? }),
            document!(Health),
        )
    },
    read(
        "/v1/calendar",
        "listWindows",
        "Windows of maintenance, blocks for queues, drains by a time, and nodes that are taken back.",
        Gives::Json(shape::<List<WindowView>>),
        |_| Ok(Verb::Calendar),
        list!(Calendar),
    ),
    Route {
        method: Method::Get,
        path: "/v1/events",
        name: "listEvents",
        summary: "The newest events of all jobs, the oldest first.",
        query: &[LIMIT],
        body: Body::Nothing,
        gives: Gives::Json(shape::<List<HistoryView>>),
        ask: |asked| Ok(Verb::History { job: None, limit: asked.limit()? }),
        tell: list!(History),
    },
    Route {
        method: Method::Get,
        path: "/v1/audit",
        name: "listAudit",
        summary: "Who changed what, the oldest first. Users see what they did, operators all of it.",
        query: &[
            text("user", "What this user did."),
            text("node", "What was done to this node."),
            number("since", "At this time or later, in Unix milliseconds."),
            LIMIT,
        ],
        body: Body::Nothing,
        gives: Gives::Json(shape::<List<AuditView>>),
        ask: |asked| {
            let filter = AuditFilter {
                user: asked.text("user").map(str::to_owned),
                node: asked.node_in("node")?,
                since: asked.time("since")?,
            };
            Ok(Verb::Audit { filter, limit: asked.limit()? })
        },
        tell: list!(Audit),
    },
    Route {
        method: Method::Get,
        path: "/v1/bill",
        name: "getBill",
        summary: "What devices were for, and what it cost. Users see what their jobs held, operators all of it.",
        query: &[
            text(
                "by",
                "What lines are by, divided by commas: queue, user, job, model, state, month, day, hour, spot, price, list_price, rate.",
            ),
            text("user", "Of this user."),
            text("queue", "Of this queue."),
            number("since", "From the beginning of the hour of this time on, in Unix milliseconds."),
            number("until", "Until the end of the hour before this time, in Unix milliseconds."),
        ],
        body: Body::Nothing,
        gives: Gives::Json(shape::<BillView>),
        ask: |asked| {
            let by = |word: String| {
                let known = BillBy::ALL.into_iter().find(|by| by.word() == word);
                known
                    .ok_or_else(|| Problem::field("by", format!("{word:?} is none of what lines are by"), ""))
            };
            Ok(Verb::Bill(BillAsk {
                by: asked.words("by").into_iter().map(by).collect::<Result<_, _>>()?,
                user: asked.text("user").map(str::to_owned),
                queue: asked.text("queue").map(str::to_owned),
                since: asked.time("since")?,
                until: asked.time("until")?,
            }))
        },
        tell: document!(Bill),
    },
    Route {
        method: Method::Get,
        path: "/v1/advice",
        name: "getAdvice",
        summary: "What to ask for next time, by the runs of the past.",
        query: &[
            text("job", "A name of jobs, in which `*` stands for any text and `?` for one letter."),
            text("user", "Of this user."),
            number("since", "Runs that began at this time or later, in Unix milliseconds."),
        ],
        body: Body::Nothing,
        gives: Gives::Json(shape::<AdviceView>),
        ask: |asked| {
            Ok(Verb::Advise(AdviseAsk {
                job: asked.text("job").map(str::to_owned),
                user: asked.text("user").map(str::to_owned),
                since: asked.time("since")?,
            }))
        },
        tell: document!(Advice),
    },
];

fn node_state(word: &str) -> Result<NodeState, Box<Problem>> {
    let found = NodeState::WORDS.into_iter().find(|(known, _)| *known == word);
    found.map(|(_, state)| state).ok_or_else(|| {
        let known = NodeState::WORDS.map(|(word, _)| word).join(", ");
        Problem::field("state", format!("{word:?} is no state of nodes"), format!("say one of {known}"))
    })
}

/// Changes were missed: all is to be read again, and the stream goes on after this one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Reset {
    pub(crate) id: u64,
}
