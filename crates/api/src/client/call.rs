//! Which request a verb is: the route, its parameters, and how its document is heard.

use std::collections::BTreeMap;

use axum::http::request::Builder;
use axum::http::{HeaderName, HeaderValue, Method, Request, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use phalanx_model::{Job, NodeName};
use serde::Serialize;

use super::ClientError;
use crate::http::routes::admin::{Close, Drain, Notice, Policy};
use crate::http::routes::jobs::{Awaited, NewSize, RankNews, Requeue, Scale, Submission};
use crate::http::routes::{self, Body, Route};
use crate::http::{Done, List, Submitted, Version};
use crate::protocol::{Answer, AuditFilter, BillAsk, JobFilter, JobRef, LogAsk, NodeFilter, NodeState, Verb};

/// What is written as it is in a part of a path and in a value of the query.
const WRITTEN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How an answer is read from a document.
type Hear = fn(&[u8]) -> serde_json::Result<Answer>;

#[derive(Clone, Copy)]
pub(super) enum Hears {
    Document(Hear),
    Events,
}

/// A request that is to be sent.
pub(super) struct Call {
    route: &'static Route,
    /// What stands for the one name in braces.
    name: String,
    query: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) hears: Hears,
}

/// An answer that carries its document.
macro_rules! one {
    ($kind:ident) => {
        Hears::Document(|json| Ok(Answer::$kind(serde_json::from_slice(json)?)))
    };
}

/// An answer that carries the items of a list.
macro_rules! list {
    ($kind:ident) => {
        Hears::Document(|json| Ok(Answer::$kind(serde_json::from_slice::<List<_>>(json)?.items)))
    };
}

const DONE: Hears = Hears::Document(|json| {
    let Done { detail } = serde_json::from_slice(json)?;
    Ok(Answer::Done { detail })
});
const SUBMITTED: Hears = Hears::Document(|json| {
    let Submitted { job, name, existing } = serde_json::from_slice(json)?;
    Ok(Answer::Submitted { job, name, existing })
});
const PONG: Hears = Hears::Document(|json| {
    let Version { version, pid, epoch, .. } = serde_json::from_slice(json)?;
    Ok(Answer::Pong { version, pid, epoch })
});
const JOBS: Hears = Hears::Document(|json| {
    let List { mut items, .. } = serde_json::from_slice(json)?;
    items.reverse();
    Ok(Answer::Jobs(items))
});

impl Call {
    /// The request for a verb. Each verb has one.
    pub(super) fn of(verb: Verb) -> Result<Self, ClientError> {
        Ok(match verb {
            Verb::Ping => Self::to("getVersion", PONG),
            Verb::Whoami => Self::to("getUser", one!(User)),
            Verb::Overview => Self::to("getOverview", one!(Overview)),
            Verb::Map => Self::to("getMap", one!(Map)),
            Verb::Topology => Self::to("getTopology", one!(Topology)),
            Verb::Snapshot => Self::to("getSnapshot", one!(Snapshot)),
            Verb::WhatIf(ask) => Self::to("whatIf", one!(WhatIf)).carrying(&ask)?,
            Verb::Stop => Self::to("stopDaemon", DONE),
            Verb::Watch { after } => Self::watch(after),

            Verb::NewToken(ask) => Self::to("createToken", one!(Token)).carrying(&ask)?,
            Verb::Tokens => Self::to("listTokens", list!(Tokens)),
            Verb::RevokeToken { name, uid } => Self::to("revokeToken", DONE).named(name).with("uid", uid),

            Verb::Submit { job, secrets } => {
                Self::to("submitResolvedJob", SUBMITTED).carrying(&Submission { job, secrets })?
            }
            Verb::DryRun { job } => Self::dry_run(job)?,
            Verb::SubmitFile { text, dry_run: true, .. } => Self::to("dryRunJob", one!(DryRun)).file(&text),
            Verb::SubmitFile { text, key, dry_run: false } => Self::submit_file(&text, key.as_deref())?,

            Verb::List { finished, filter, limit } => Self::list(finished, &filter, limit),
            Verb::Get { job } => Self::of_job("getJob", &job, one!(Job)),
            Verb::Why { job } => Self::of_job("explainJob", &job, one!(Why)),
            Verb::Logs { job, ask } => Self::of_job("followJobLogs", &job, Hears::Events).logs(&ask),
            Verb::Follow { job } => Self::of_job("followJob", &job, Hears::Events),
            Verb::Wait { jobs } => Self::to("waitForJobs", Hears::Events).carrying(&Awaited { jobs })?,
            Verb::Terminal { job } => Self::of_job("openTerminal", &job, one!(Terminal)),
            Verb::Exec { job, ask } => Self::of_job("startCommand", &job, one!(Terminal)).carrying(&ask)?,
            Verb::Cancel { job } => Self::of_job("cancelJob", &job, DONE),
            Verb::Hold { job } => Self::of_job("holdJob", &job, DONE),
            Verb::Release { job } => Self::of_job("releaseJob", &job, DONE),
            Verb::Boost { job, boost: None } => Self::of_job("boostJob", &job, DONE),
            Verb::Boost { job, boost: Some(boost) } => {
                Self::of_job("boostJob", &job, DONE).carrying(&boost)?
            }
            Verb::Update { job, update } => Self::of_job("updateJob", &job, DONE).carrying(&update)?,
            Verb::Requeue { job, hold } => {
                Self::of_job("requeueJob", &job, DONE).carrying(&Requeue { hold })?
            }
            Verb::Scale { job, replicas } => {
                Self::of_job("scaleService", &job, DONE).carrying(&Scale { replicas })?
            }
            Verb::Resize { job, size } => {
                Self::of_job("resizeJob", &job, DONE).carrying(&NewSize { size })?
            }
            Verb::Tell { job, gang, news } => {
                Self::of_job("reportNews", &job, DONE).carrying(&RankNews { gang, news })?
            }
            Verb::Endpoints { job, from } => {
                Self::of_job("listEndpoints", &job, one!(Endpoints)).with("node", from)
            }
            Verb::Defrag { job, apply } => {
                let call = Self::to(if apply { "makeMoves" } else { "planMoves" }, one!(Defrag));
                call.with("job", job)
            }
            Verb::History { job: Some(job), limit } => {
                Self::of_job("listJobEvents", &job, list!(History)).with("limit", Some(limit))
            }
            Verb::History { job: None, limit } => {
                Self::to("listEvents", list!(History)).with("limit", Some(limit))
            }

            Verb::FindNodes(filter) => Self::to("listNodes", one!(Nodes)).nodes(&filter),
            Verb::Node { node } => Self::of_node("getNode", &node, one!(Node)),
            Verb::Cordon { node, reason } => {
                Self::of_node("cordonNode", &node, DONE).carrying(&Close { reason })?
            }
            Verb::Drain { node, by, reason } => {
                Self::of_node("drainNode", &node, DONE).carrying(&Drain { reason, by })?
            }
            Verb::Uncordon { node } => Self::of_node("uncordonNode", &node, DONE),
            Verb::Health { node } => Self::to("getHealth", one!(Health)).with("node", node),
            Verb::ReportHealth(report) => Self::to("reportHealth", DONE).carrying(&report)?,
            Verb::ClearHealth { node, device } => {
                Self::of_node("clearHealth", &node, DONE).with("device", device)
            }
            Verb::NoticeSpot { node, in_ms } => {
                Self::of_node("noticeSpot", &node, DONE).carrying(&Notice { in_ms })?
            }
            Verb::Calendar => Self::to("listWindows", list!(Calendar)),
            Verb::AddWindow(window) => Self::to("addWindow", DONE).carrying(&window)?,
            Verb::RemoveWindow { nodes, begins_at } => {
                let call = Self::to("removeWindow", DONE).with("nodes", Some(nodes.join(",")));
                call.with("begins_at", begins_at.map(|at| at.0))
            }

            Verb::Queues => Self::to("listQueues", list!(Queues)),
            Verb::Queue { queue } => Self::to("getQueue", one!(Queue)).named(queue.to_string()),
            Verb::ApplyQueues { settings, queues } => {
                Self::to("applyPolicy", DONE).carrying(&Policy { settings, queues })?
            }
            Verb::Audit { filter, limit } => {
                Self::to("listAudit", list!(Audit)).with("limit", Some(limit)).audit(&filter)
            }
            Verb::Bill(ask) => Self::to("getBill", one!(Bill)).bill(&ask),
            Verb::Advise(ask) => {
                let call = Self::to("getAdvice", one!(Advice)).with("job", ask.job);
                call.with("user", ask.user).with("since", ask.since.map(|at| at.0))
            }
        })
    }

    fn watch(after: Option<u64>) -> Self {
        let mut call = Self::to("watchChanges", Hears::Events);
        call.headers.extend(after.map(|after| (LAST_EVENT, HeaderValue::from(after))));
        call
    }

    fn dry_run(job: Box<Job>) -> Result<Self, ClientError> {
        let submission = Submission { job, secrets: BTreeMap::new() };
        Self::to("dryRunResolvedJob", one!(DryRun)).carrying(&submission)
    }

    fn submit_file(text: &str, key: Option<&str>) -> Result<Self, ClientError> {
        let mut call = Self::to("submitJob", SUBMITTED).file(text);
        let key = key.map(HeaderValue::from_str).transpose().map_err(ClientError::broken)?;
        call.headers.extend(key.map(|key| (KEY, key)));
        Ok(call)
    }

    fn list(finished: bool, filter: &JobFilter, limit: u32) -> Self {
        Self::to("listJobs", JOBS).with("limit", Some(limit)).flag("finished", finished).jobs(filter)
    }

    /// A request to the route whose operation has this name.
    fn to(name: &'static str, hears: Hears) -> Self {
        let route = routes::all().find(|route| route.name == name);
        // The names above are those of the table: a test calls each verb.
        let route = route.unwrap_or_else(|| unreachable!("no route is named {name}"));
        let (query, body, headers) = (Vec::new(), Vec::new(), Vec::new());
        Self { route, name: String::new(), query, body, headers, hears }
    }

    fn of_job(name: &'static str, job: &JobRef, hears: Hears) -> Self {
        Self::to(name, hears).named(job.to_string())
    }

    fn of_node(name: &'static str, node: &NodeName, hears: Hears) -> Self {
        Self::to(name, hears).named(node.to_string())
    }

    fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// With a parameter, if there is something to say.
    fn with(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    fn flag(self, name: &'static str, is_set: bool) -> Self {
        self.with(name, is_set.then_some(true))
    }

    fn carrying(self, document: &impl Serialize) -> Result<Self, ClientError> {
        Ok(Self { body: serde_json::to_vec(document)?, ..self })
    }

    fn file(self, text: &str) -> Self {
        Self { body: text.as_bytes().to_vec(), ..self }
    }

    fn jobs(self, filter: &JobFilter) -> Self {
        let JobFilter { uid, user, queue, name, text, states, before } = filter;
        let states = (!states.is_empty()).then(|| states.join(","));
        self.with("uid", *uid)
            .with("owner", user.as_ref())
            .with("queue", queue.as_ref())
            .with("name", name.as_ref())
            .with("text", text.as_ref())
            .with("state", states)
            .with("after", *before)
    }

    fn nodes(self, filter: &NodeFilter) -> Self {
        let NodeFilter { text, state, after, limit } = filter;
        let word = |of: NodeState| {
            NodeState::WORDS.into_iter().find(|(_, state)| *state == of).map(|(word, _)| word)
        };
        self.with("text", text.as_ref())
            .with("state", state.and_then(word))
            .with("after", after.as_ref())
            .with("limit", Some(*limit))
    }

    fn logs(self, ask: &LogAsk) -> Self {
        let LogAsk { rank, attempt, tail, since, follow, timestamps } = ask;
        self.with("rank", *rank)
            .with("attempt", *attempt)
            .with("tail", *tail)
            .with("since", since.map(|at| at.0))
            .flag("follow", *follow)
            .flag("timestamps", *timestamps)
    }

    fn audit(self, filter: &AuditFilter) -> Self {
        let AuditFilter { user, node, since } = filter;
        self.with("user", user.as_ref()).with("node", node.as_ref()).with("since", since.map(|at| at.0))
    }

    fn bill(self, ask: &BillAsk) -> Self {
        let BillAsk { by, user, queue, since, until } = ask;
        let by: Vec<&str> = by.iter().map(|by| by.word()).collect();
        self.with("by", (!by.is_empty()).then(|| by.join(",")))
            .with("user", user.as_ref())
            .with("queue", queue.as_ref())
            .with("since", since.map(|at| at.0))
            .with("until", until.map(|at| at.0))
    }

    /// All of the request but its body, to the server at this address; empty for one that the connection leads to.
    pub(super) fn begun_at(&self, url: &str) -> Builder {
        let mut request = Request::builder().method(self.method()).uri(format!("{url}{}", self.uri()));
        if !self.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, self.content_type());
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
    }

    fn method(&self) -> Method {
        match self.route.method {
            routes::Method::Get => Method::GET,
            routes::Method::Post => Method::POST,
            routes::Method::Put => Method::PUT,
            routes::Method::Patch => Method::PATCH,
            routes::Method::Delete => Method::DELETE,
        }
    }

    /// `/v1/jobs/7/logs?tail=10`.
    fn uri(&self) -> String {
        let written = |text: &str| utf8_percent_encode(text, WRITTEN).to_string();
        let mut uri = match self.route.path.split_once('{') {
            None => self.route.path.to_owned(),
            Some((before, rest)) => {
                let after = rest.split_once('}').map_or("", |(_, after)| after);
                format!("{before}{}{after}", written(&self.name))
            }
        };
        for (index, (name, value)) in self.query.iter().enumerate() {
            let mark = if index == 0 { '?' } else { '&' };
            uri.push_str(&format!("{mark}{name}={}", written(value)));
        }
        uri
    }

    /// The kind of the body: files are JSON or YAML, and all JSON is YAML.
    fn content_type(&self) -> &'static str {
        match self.route.body {
            Body::File(_) => "application/yaml",
            Body::Nothing | Body::Json(_) => "application/json",
        }
    }
}
