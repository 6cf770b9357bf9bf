//! Verbs of the API, and who may ask them.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use phalanx_api::http::{Backend, NoPeer};
use phalanx_api::protocol::{Answer, ErrorCode, ErrorView, JobFilter, JobRef, Role, UserView, Verb};
use phalanx_api::{ClusterUser, Peer, Reply};
use phalanx_model::{JobId, Owner, QueueName};
use phalanx_shell::unix_now;
use tokio::runtime::Handle;

use super::access::{Access, LIST_HEALTH, LIST_NODES, LIST_PODS, LIST_QUEUES, Right, Sight};
use super::documents::{self, Reader};
use super::keeper::Shown;
use super::metrics::Metrics;
use super::picture::Picture;
use super::refused::refused;
use super::sign_in::SignIn;

/// Jobs in one list, and one more that says whether there are others.
const LIST_MAX: u32 = 10_001;
/// Nodes in one list.
const NODES_MAX: u32 = 10_000;
/// A text, a pattern for names, and states, in a filter: each job or node is compared with them.
const TEXT_BYTES_MAX: usize = 256;
const STATES_MAX: usize = 16;
/// Bytes of the name of a namespace.
const NAMESPACE_BYTES_MAX: usize = 63;
/// How often a watcher that hears nothing is looked at.
const PATIENCE: Duration = Duration::from_millis(500);

/// The cluster as HTTP sees it.
pub(super) struct OfCluster {
    sign_in: SignIn,
    access: Access,
    shown: Arc<Shown>,
    runtime: Handle,
}

impl OfCluster {
    pub(super) fn new(client: Client, shown: Arc<Shown>, metrics: Metrics, runtime: Handle) -> Self {
        let sign_in = SignIn::new(client.clone(), metrics.clone());
        Self { sign_in, access: Access::new(client, metrics), shown, runtime }
    }
}

impl Backend for OfCluster {
    fn peer(&self, token: &str) -> Result<Peer, NoPeer> {
        let user = self.runtime.block_on(self.sign_in.user(token))?;
        // Users of a cluster have no numbers, and so the same as the jobs there.
        let owner = Owner { uid: 0, gid: 0, name: user.name.clone() };
        let cluster_user = Some(user);
        Ok(Peer { owner, is_operator: false, is_known: true, is_reader: false, login: None, cluster_user })
    }

    fn sign_in(&self) -> &'static str {
        "send a token that the API server of the cluster takes: Authorization: Bearer TOKEN; `kubectl create token \
         SERVICEACCOUNT` makes one"
    }

    fn answer(&self, peer: &Peer, verb: Verb, reply: &mut dyn Reply) -> Result<(), ErrorView> {
        if let Some(why) = refused(&verb) {
            return Err(why);
        }
        if let Verb::Watch { after } = verb {
            self.watch(after, reply);
            return Ok(());
        }
        let answer = self.one(peer, verb)?;
        // A client that is gone is no error.
        let _ = reply.send(&answer);
        Ok(())
    }
}

impl OfCluster {
    fn one(&self, peer: &Peer, verb: Verb) -> Result<Answer, ErrorView> {
        if matches!(verb, Verb::Ping) {
            let (version, pid) = (phalanx_shell::VERSION.to_owned(), std::process::id());
            return Ok(Answer::Pong { version, pid, epoch: 0 });
        }
        let Some(user) = peer.cluster_user.as_deref() else {
            return Err(ErrorView::new(ErrorCode::Forbidden, "the request has no user", ""));
        };
        if matches!(verb, Verb::Whoami) {
            let (name, now) = (user.name.clone(), unix_now());
            return Ok(Answer::User(UserView { user: name, uid: 0, role: Role::Viewer, now }));
        }
        let picture = self.shown.get().ok_or_else(|| {
            let message = "the first lists of the cluster are not complete";
            ErrorView::new(ErrorCode::Unavailable, message, "try again in a moment")
        })?;
        match verb {
            Verb::List { finished, filter, limit } => self.list(user, &picture, finished, &filter, limit),
            Verb::Get { job } => self.job(user, &picture, &job, false),
            Verb::Why { job } => self.job(user, &picture, &job, true),
            Verb::Queues => {
                self.needs(user, LIST_QUEUES)?;
                Ok(documents::queues(&self.reader(user, &picture)?))
            }
            Verb::Queue { queue } => self.queue(user, &picture, &queue),
            Verb::Health { .. } => {
                self.needs(user, LIST_NODES)?;
                self.needs(user, LIST_HEALTH)?;
                Ok(Answer::Health(documents::health(&picture, None)))
            }
            other => {
                self.needs(user, LIST_NODES)?;
                self.of_nodes(user, &picture, other)
            }
        }
    }

    /// Documents for users with the right to list nodes.
    fn of_nodes(&self, user: &ClusterUser, picture: &Picture, verb: Verb) -> Result<Answer, ErrorView> {
        let reader = self.reader(user, picture)?;
        match verb {
            Verb::Overview => Ok(documents::overview(&reader, self.may(user, LIST_QUEUES)?)),
            Verb::Map => Ok(documents::map(&reader)),
            Verb::FindNodes(mut filter) => {
                filter.limit = filter.limit.min(NODES_MAX);
                check_text(filter.text.as_ref())?;
                Ok(documents::find_nodes(&reader, &filter))
            }
            Verb::Node { node } => {
                let sees_health = self.may(user, LIST_HEALTH)?;
                documents::node(&reader, &node, sees_health).ok_or_else(|| {
                    ErrorView::new(
                        ErrorCode::NotFound,
                        format!("no node {node}"),
                        "`kubectl get nodes` lists them",
                    )
                })
            }
            // Nodes as the engine has them name what pods of all namespaces ask of nodes.
            Verb::Topology => {
                self.needs(user, LIST_PODS)?;
                Ok(documents::topology(&reader))
            }
            Verb::Calendar => Ok(documents::calendar(&reader)),
            _ => {
                Err(ErrorView::new(ErrorCode::Rejected, "this server does not answer that", "use `kubectl`"))
            }
        }
    }

    fn may(&self, user: &ClusterUser, right: Right) -> Result<bool, ErrorView> {
        Ok(self.runtime.block_on(self.access.may(user, right))?)
    }

    fn needs(&self, user: &ClusterUser, right: Right) -> Result<(), ErrorView> {
        if self.may(user, right)? {
            return Ok(());
        }
        let message = format!("user {} may not {} in the cluster", user.name, right.shown());
        let hint = "ask an administrator of the cluster for a ClusterRole with this right; /v1/jobs needs only `list pods`";
        Err(ErrorView::new(ErrorCode::Forbidden, message, hint))
    }

    /// What a user sees of jobs in documents of many.
    fn reader<'a>(&self, user: &ClusterUser, picture: &'a Picture) -> Result<Reader<'a>, ErrorView> {
        let sight = self.runtime.block_on(self.access.sight(user, picture))?;
        Ok(Reader { picture, sight })
    }

    fn list(
        &self,
        user: &ClusterUser,
        picture: &Picture,
        finished: bool,
        filter: &JobFilter,
        limit: u32,
    ) -> Result<Answer, ErrorView> {
        check_text(filter.name.as_ref())?;
        check_text(filter.text.as_ref())?;
        if filter.states.len() > STATES_MAX {
            let message = format!("a filter has at most {STATES_MAX} states");
            return Err(ErrorView::new(ErrorCode::BadRequest, message, "name fewer"));
        }
        let limit = limit.min(LIST_MAX) as usize;
        Ok(documents::jobs(&self.reader(user, picture)?, finished, filter, limit))
    }

    /// One job, or why it waits. One that the user may not see is as one that is not there.
    fn job(
        &self,
        user: &ClusterUser,
        picture: &Picture,
        wanted: &JobRef,
        why: bool,
    ) -> Result<Answer, ErrorView> {
        // Rights come first: whether a job is there must not show in how long the answer takes.
        let of = namespace_of(picture, wanted);
        let sight = match &of {
            Some(of) => self.runtime.block_on(self.access.sight_of(user, of))?,
            None => None,
        };
        let found = of.zip(sight).and_then(|(of, sight)| Some((find(picture, wanted, &of)?, sight)));
        let document = match found {
            Some((id, sight)) => {
                let is_whole = sight == Sight::All && self.may(user, LIST_NODES)?;
                let reader = Reader { picture, sight };
                if why { documents::why(&reader, id, is_whole) } else { documents::job(&reader, id) }
            }
            None => None,
        };
        document.ok_or_else(|| {
            let name = match wanted {
                JobRef::Id(id) | JobRef::Tasks(id, _) => id.to_string(),
                JobRef::Name(name) => name.clone(),
            };
            let hint = "names are NAMESPACE/NAME, with %2F for the slash in a path; jobs whose pods are gone are not known, \
                        and neither are those whose pods you may not read";
            ErrorView::new(ErrorCode::NotFound, format!("no job {name}"), hint)
        })
    }

    fn queue(&self, user: &ClusterUser, picture: &Picture, name: &QueueName) -> Result<Answer, ErrorView> {
        self.needs(user, LIST_QUEUES)?;
        let reader = self.reader(user, picture)?;
        documents::queue(&reader, name).ok_or_else(|| {
            ErrorView::new(
                ErrorCode::NotFound,
                format!("no queue {name}"),
                "`kubectl get queues.phalanx.dev` lists them",
            )
        })
    }

    /// Until the client goes. All that is shown is to be read again with each new picture, so nothing of it is told here.
    fn watch(&self, after: Option<u64>, reply: &mut dyn Reply) {
        let mut last = after;
        if after.is_none() {
            last = self.shown.get().map(|picture| picture.number);
            if reply.send(&Answer::Reset { id: last.unwrap_or_default() }).is_err() {
                return;
            }
        }
        while reply.flush().is_ok() && !reply.is_gone() {
            if let Some(id) = self.shown.after(last, PATIENCE) {
                last = Some(id);
                if reply.send(&Answer::Reset { id }).is_err() {
                    return;
                }
            }
        }
    }
}

/// The namespace of a job, as its name says it, or that of the job of a number.
fn namespace_of(picture: &Picture, wanted: &JobRef) -> Option<String> {
    match wanted {
        JobRef::Id(id) => {
            let found = picture.jobs().find(|(job, ..)| job == id);
            found.map(|(_, _, namespace)| namespace.to_owned())
        }
        // A gang of a cluster has no tasks.
        JobRef::Tasks(..) => None,
        JobRef::Name(name) => {
            let (of, _) = name.split_once('/')?;
            let is_label = |of: &str| of.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
            (!of.is_empty() && of.len() <= NAMESPACE_BYTES_MAX && is_label(of)).then(|| of.to_owned())
        }
    }
}

/// The newest job of a namespace that is meant.
fn find(picture: &Picture, wanted: &JobRef, of: &str) -> Option<JobId> {
    let is_it = |(id, name, namespace): &(JobId, &str, &str)| {
        let is_named = match wanted {
            JobRef::Id(job) => id == job,
            JobRef::Tasks(..) => false,
            JobRef::Name(job) => name == job,
        };
        is_named && *namespace == of
    };
    picture.jobs().filter(is_it).map(|(id, ..)| id).max()
}

fn check_text(text: Option<&String>) -> Result<(), ErrorView> {
    if text.is_none_or(|text| text.len() <= TEXT_BYTES_MAX) {
        return Ok(());
    }
    let message = format!("a name or a text of a filter has at most {TEXT_BYTES_MAX} bytes");
    Err(ErrorView::new(ErrorCode::BadRequest, message, "shorten it"))
}
