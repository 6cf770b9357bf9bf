//! Bearer tokens: the API server reviews them, so a user signs in with the identity that the user has in the cluster.
//!
//! The server keeps the answer that a token is valid for a minute at most, and never beyond the expiry of the token; the answer
//! that it is not, for seconds. The two are kept apart, so that invented tokens displace no valid one.

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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A token of an issuer without a signature that anybody could check. It says that it ends then, in Unix seconds.
    fn token(ends_s: u64) -> String {
        let [head, claims] = [json!({ "alg": "RS256" }), json!({ "exp": ends_s })]
            .map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        format!("{head}.{claims}.c2ln")
    }

    /// An API server that takes `good` alone, and counts what it is asked. `broken` has no answer.
    fn sign_in(asked: &Arc<AtomicUsize>) -> SignIn {
        let asked = Arc::clone(asked);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let asked = Arc::clone(&asked);
            async move {
                asked.fetch_add(1, Ordering::Relaxed);
                let body = request.into_body().collect_bytes().await.unwrap();
                let review: TokenReview = serde_json::from_slice(&body).unwrap();
                let mut answer = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                    "metadata": {}, "spec": { "token": "" }, "status": { "authenticated": false } });
                let mut code = 201;
                match &*review.spec.token {
                    "good" => {
                        answer["status"] = json!({ "authenticated": true,
                            "user": { "username": "ada", "uid": "1", "groups": ["g"], "extra": { "k": ["v"] } } });
                    }
                    "nameless" => answer["status"] = json!({ "authenticated": true, "user": {} }),
                    "broken" => code = 500,
                    _ => {}
                }
                let answer =
                    http::Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        SignIn::new(Client::new(service, "default"), Metrics::registered().0)
    }

    #[test]
    fn answers_are_kept_apart_and_no_answer_is_kept_not_at_all() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let asked = Arc::default();
            let sign_in = sign_in(&asked);
            for _ in 0..3 {
                let user = sign_in.user("good").await.unwrap();
                assert_eq!(
                    (&*user.name, &*user.groups, user.extra["k"].len()),
                    ("ada", &["g".to_owned()][..], 1)
                );
            }
            assert_eq!(asked.load(Ordering::Relaxed), 1);
            for _ in 0..3 {
                assert_eq!(sign_in.user("bad").await, Err(NOT_VALID));
            }
            assert_eq!(asked.load(Ordering::Relaxed), 2);
            for _ in 0..3 {
                assert_eq!(
                    sign_in.user("broken").await,
                    Err(NO_ANSWER),
                    "it is not known whether it is valid"
                );
            }
            assert_eq!(asked.load(Ordering::Relaxed), 5);
            assert_eq!(sign_in.user("nameless").await, Err(NOT_VALID));
            let (none, long) = (String::new(), "a".repeat(TOKEN_BYTES_MAX + 1));
            for text in [none, long] {
                assert_eq!(sign_in.user(&text).await, Err(NOT_VALID));
            }
            assert_eq!(asked.load(Ordering::Relaxed), 6, "the API server is not asked");
        });
    }

    #[test]
    fn a_token_is_good_for_a_minute_and_not_beyond_its_end() {
        let now = unix_now().0 / 1_000;
        assert_eq!(valid_for(&token(now + 3_600)), VALID);
        assert_eq!(valid_for("opaque"), VALID);
        assert!(valid_for(&token(now + 10)) <= Duration::from_secs(10));
        assert!(valid_for(&token(now + 10)) > Duration::from_secs(5));
        assert_eq!(valid_for(&token(now - 10)), Duration::ZERO);
    }
}
