//! What a user may see: the API server decides, by the rights that the user has with `kubectl`.
//!
//! A user sees a job if the user may read the pods of its namespace, and nodes, queues and the health of hardware if the user
//! may list these objects. Answers are kept for seconds, so that rights which are taken away end soon.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use phalanx_api::ClusterUser;
use phalanx_api::protocol::{ErrorCode, ErrorView};
use phalanx_model::Job;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::bounded::{Bounded, Key};
use super::metrics::Metrics;
use super::picture::{Picture, namespace};
use crate::crd;

/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(10);
/// Answers that are kept.
const KEPT_MAX: usize = 16_384;
/// Reviews on their way at a time, of all requests and of one.
const AT_ONCE: usize = 64;
const AT_ONCE_OF_ONE: usize = 16;
/// How long all reviews of one request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Namespaces with jobs that are asked about for one list. A user who may list pods in all namespaces needs one question.
pub(super) const NAMESPACES_MAX: usize = 500;

/// Something that a user may do or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
}

pub(super) const LIST_NODES: Right = Right { verb: "list", group: "", resource: "nodes" };
pub(super) const LIST_QUEUES: Right = Right { verb: "list", group: crd::GROUP, resource: "queues" };
pub(super) const LIST_HEALTH: Right = Right { verb: "list", group: crd::GROUP, resource: "nodetopologies" };
/// In one namespace, or in all.
pub(super) const LIST_PODS: Right = Right { verb: "list", group: "", resource: "pods" };
const GET_PODS: Right = Right { verb: "get", group: "", resource: "pods" };

impl Right {
    /// `list queues.phalanx.dev`.
    pub(super) fn shown(self) -> String {
        let Self { verb, group, resource } = self;
        let dot = if group.is_empty() { "" } else { "." };
        format!("{verb} {resource}{dot}{group}")
    }
}

/// Whose jobs a user sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    All,
    /// Those of these namespaces.
    Of(BTreeSet<String>),
}

impl Sight {
    pub(super) fn has(&self, job: &Job) -> bool {
        self.has_namespace(namespace(job))
    }

    pub(super) fn has_namespace(&self, of: &str) -> bool {
        match self {
            Self::All => true,
            Self::Of(namespaces) => namespaces.contains(of),
        }
    }
}

/// The API server does not say what a user may do.
#[derive(Debug)]
pub(super) struct Unknown;

impl From<Unknown> for ErrorView {
    fn from(_: Unknown) -> Self {
        let message = "the API server does not answer what this user may see";
        Self::new(ErrorCode::Unavailable, message, "try again in a moment")
    }
}

/// See the module.
pub(super) struct Access {
    reviews: Api<SubjectAccessReview>,
    kept: Bounded<bool>,
    turns: Semaphore,
    metrics: Metrics,
}

impl Access {
    pub(super) fn new(client: Client, metrics: Metrics) -> Self {
        let (kept, turns) = (Bounded::new(KEPT_MAX), Semaphore::new(AT_ONCE));
        Self { reviews: Api::all(client), kept, turns, metrics }
    }

    /// Whether a user may do something in the whole cluster.
    pub(super) async fn may(&self, user: &ClusterUser, right: Right) -> Result<bool, Unknown> {
        timeout(PATIENCE, self.ask(user, right, "")).await.unwrap_or(Err(Unknown))
    }

    /// Whose jobs a user sees in lists.
    pub(super) async fn sight(&self, user: &ClusterUser, picture: &Picture) -> Result<Sight, Unknown> {
        let asking = async {
            if self.ask(user, LIST_PODS, "").await? {
                return Ok(Sight::All);
            }
            let namespaces = picture.namespaces().into_iter().take(NAMESPACES_MAX);
            let each = stream::iter(namespaces).map(|of| async move {
                Ok::<_, Unknown>(self.ask(user, LIST_PODS, of).await?.then(|| of.to_owned()))
            });
            let seen: Vec<Option<String>> = each.buffer_unordered(AT_ONCE_OF_ONE).try_collect().await?;
            Ok(Sight::Of(seen.into_iter().flatten().collect()))
        };
        timeout(PATIENCE, asking).await.unwrap_or(Err(Unknown))
    }

    /// Whose jobs a user sees in the document of one job of a namespace; nothing if the user may not read its pods.
    pub(super) async fn sight_of(&self, user: &ClusterUser, of: &str) -> Result<Option<Sight>, Unknown> {
        let asking = async {
            if !self.ask(user, GET_PODS, of).await? {
                return Ok(None);
            }
            let sees_all = self.ask(user, LIST_PODS, "").await?;
            Ok(Some(if sees_all { Sight::All } else { Sight::Of([of.to_owned()].into()) }))
        };
        timeout(PATIENCE, asking).await.unwrap_or(Err(Unknown))
    }

    /// In a namespace, or in all of them where it is empty.
    async fn ask(&self, user: &ClusterUser, right: Right, namespace: &str) -> Result<bool, Unknown> {
        let key = key_of(user, right, namespace);
        if let Some(may) = self.kept.get(key, Instant::now()) {
            return Ok(may);
        }
        let may = self.review(user, right, namespace).await;
        self.metrics.reviewed("access", may.as_ref().ok().copied());
        let (may, now) = (may?, Instant::now());
        self.kept.keep(key, now + KEPT, may, now);
        Ok(may)
    }

    async fn review(&self, user: &ClusterUser, right: Right, namespace: &str) -> Result<bool, Unknown> {
        let _turn = self.turns.acquire().await.map_err(|_| Unknown)?;
        let some = |text: &str| Some(text.to_owned());
        let attributes = ResourceAttributes {
            verb: some(right.verb),
            group: some(right.group),
            resource: some(right.resource),
            namespace: some(namespace),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = self.reviews.create(&PostParams::default(), &review).await.map_err(|error| {
            tracing::warn!(error = error.to_string(), "the rights of a user cannot be reviewed");
            Unknown
        })?;
        let status = answer.status.unwrap_or_default();
        Ok(status.allowed && status.denied != Some(true))
    }
}

/// All that an answer depends on. Counts divide lists, so that no user can look like another.
fn key_of(user: &ClusterUser, right: Right, namespace: &str) -> Key {
    let count = |n: usize| n.to_string();
    let mut texts = vec![user.name.clone(), user.uid.clone(), count(user.groups.len())];
    texts.extend(user.groups.iter().cloned());
    for (name, values) in &user.extra {
        texts.extend([name.clone(), count(values.len())]);
        texts.extend(values.iter().cloned());
    }
    let Right { verb, group, resource } = right;
    Key::of(texts.iter().map(String::as_str).chain([verb, group, resource, namespace]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_with_other_groups_or_extra_are_others() {
        let user = |groups: &[&str], extra: &[(&str, &[&str])]| ClusterUser {
            name: "u".to_owned(),
            uid: "1".to_owned(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            extra: extra
                .iter()
                .map(|(name, values)| ((*name).to_owned(), values.iter().map(|&v| v.to_owned()).collect()))
                .collect(),
        };
        let users = [
            user(&[], &[]),
            user(&["a"], &[]),
            user(&["a", "b"], &[]),
            user(&["ab"], &[]),
            user(&["b", "a"], &[]),
            user(&["a"], &[("b", &[])]),
            user(&["a"], &[("b", &["c"])]),
            user(&[], &[("a", &["b", "c"])]),
            user(&[], &[("a", &["b"]), ("c", &[])]),
        ];
        let keys: BTreeSet<Key> = users.iter().map(|user| key_of(user, LIST_NODES, "")).collect();
        assert_eq!(keys.len(), users.len());
        assert_ne!(key_of(&users[0], LIST_PODS, "a"), key_of(&users[0], LIST_PODS, ""));
        assert_ne!(key_of(&users[0], LIST_PODS, "a"), key_of(&users[0], GET_PODS, "a"));
    }
}
