//! Bearer tokens: the API server reviews them, so that whoever has an identity in the cluster has it here too.
//!
//! What it answers is kept for a while: that a token is valid for a minute at most and never beyond its own end, that it is
//! not for seconds. Both kinds are kept apart, so that tokens which somebody makes up displace none that is valid.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::api::PostParams;
use kube::{Api, Client};
use phalanx_api::http::NoPeer;
use phalanx_api::{ClusterUser, oidc};
use phalanx_shell::unix_now;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::bounded::{Bounded, Key};
use super::metrics::Metrics;

/// How long the answer is kept that a token is valid: so long one that was revoked is still good.
const VALID: Duration = Duration::from_secs(60);
/// The same that it is not.
const INVALID: Duration = Duration::from_secs(5);
/// Answers of each kind that are kept.
const KEPT_MAX: usize = 4_096;
/// Reviews on their way at a time.
const AT_ONCE: usize = 32;
/// How long a review may take, with the wait for its turn.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a token at most: those of service accounts have about a thousand.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Bytes of the name of a user, who is shown and counted by it.
const NAME_BYTES_MAX: usize = 512;

const NOT_VALID: NoPeer = NoPeer::Unauthorized("the API server does not take the token");
const NO_ANSWER: NoPeer = NoPeer::Unavailable("the API server does not answer whose token this is");

/// See the module.
pub(super) struct SignIn {
    reviews: Api<TokenReview>,
    valid: Bounded<Arc<ClusterUser>>,
    invalid: Bounded<()>,
    turns: Semaphore,
    metrics: Metrics,
}

impl SignIn {
    pub(super) fn new(client: Client, metrics: Metrics) -> Self {
        Self {
            reviews: Api::all(client),
            valid: Bounded::new(KEPT_MAX),
            invalid: Bounded::new(KEPT_MAX),
            turns: Semaphore::new(AT_ONCE),
            metrics,
        }
    }

    /// Whose token it is.
    pub(super) async fn user(&self, token: &str) -> Result<Arc<ClusterUser>, NoPeer> {
        if token.is_empty() || token.len() > TOKEN_BYTES_MAX {
            return Err(NOT_VALID);
        }
        let (key, now) = (Key::of([token]), Instant::now());
        if let Some(user) = self.valid.get(key, now) {
            return Ok(user);
        }
        if self.invalid.get(key, now).is_some() {
            return Err(NOT_VALID);
        }
        let reviewed = timeout(PATIENCE, self.review(token)).await.unwrap_or(Err(NO_ANSWER));
        self.metrics.reviewed("token", reviewed.as_ref().map(Option::is_some).ok());
        let now = Instant::now();
        let Some(user) = reviewed? else {
            self.invalid.keep(key, now + INVALID, (), now);
            return Err(NOT_VALID);
        };
        let user = Arc::new(user);
        self.valid.keep(key, now + valid_for(token), Arc::clone(&user), now);
        Ok(user)
    }

    async fn review(&self, token: &str) -> Result<Option<ClusterUser>, NoPeer> {
        let _turn = self.turns.acquire().await.map_err(|_| NO_ANSWER)?;
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = self.reviews.create(&PostParams::default(), &review).await.map_err(|error| {
            // What the API server says of the request holds no part of the token.
            tracing::warn!(error = error.to_string(), "a token cannot be reviewed");
            NO_ANSWER
        })?;
        let status = answer.status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)).and_then(user_of))
    }
}

/// How long a token that was just reviewed counts as valid: until it expires, if it says when.
fn valid_for(token: &str) -> Duration {
    let left = oidc::expiry(token).map(|at| Duration::from_millis(at.since(unix_now())));
    left.map_or(VALID, |left| left.min(VALID))
}

/// Nothing for one without a name.
fn user_of(user: UserInfo) -> Option<ClusterUser> {
    let name = user.username.filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX)?;
    let extra: BTreeMap<String, Vec<String>> = user.extra.unwrap_or_default();
    Some(ClusterUser {
        name,
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra,
    })
}
