//! Leadership: one of several schedulers decides, the others watch and wait.
//!
//! The lease is `coordination.k8s.io/v1`. A leader renews it; one that could not renew in time stops for good. A
//! successor takes it when it has not changed for its whole length *by its own clock*.
//!
//! Between the last call that a leader begins and the first decision of its successor lies as long as a call may be
//! without an answer ([`ANSWER`]). This time is a part of the lease: a leader that could not renew it begins no call any
//! more from then on, begins them again if it can renew it after all, and says on the lease that it does so. Where it does not
//! say so, or its lease is too short for that, its successor waits the rest of this time after it has the lease. A leader
//! that ends in order waits for its calls first, gives the lease back, and says so on it: then nobody has to wait.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Error};
use phalanx_model::Epoch;

use super::call::ANSWER;

/// Between two looks of one that waits for the lease: so much later than it could does it see a renewal, and begin.
const LOOK: Duration = Duration::from_millis(500);

/// On a lease that was given back when no call of its holder was on its way any more: the number of leaders before that one.
/// It says nothing of leaders that come later: each has another number.
const SETTLED: &str = "phalanx.dev/settled";

/// On a lease: for how many milliseconds after it has asked for it its holder begins calls.
const CALLS_FOR: &str = "phalanx.dev/calls-for-ms";

/// Between two looks of a call that may not begin yet.
const PAUSED: Duration = Duration::from_millis(50);

/// Whose lease, and for how long.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    pub namespace: String,
    pub name: String,
    /// Unique to this process.
    pub holder: String,
    pub length: Duration,
    /// Renewed so often; a third of the length or less.
    pub renew: Duration,
}

impl LeaseSettings {
    /// Between two tries to get it, or to keep it where one failed.
    fn look(&self) -> Duration {
        LOOK.min(self.pause() / 2)
    }

    /// For so long after it asked for the lease a leader begins calls: at least a third of it, so that a renewal that fails
    /// once can be tried again.
    fn calls(&self) -> Duration {
        self.length.saturating_sub(ANSWER).max(self.length / 3)
    }

    /// Between two renewals: two of them fit into the time of its calls.
    fn pause(&self) -> Duration {
        self.renew.min(self.calls() * 2 / 5)
    }
}

/// For how long a process may begin calls, and for how long it leads: as long as nobody else can have the lease, by its own
/// clock. A process that was stopped for a while, or was not told in time that the lease is lost, sees here that it is too
/// late.
#[derive(Clone)]
pub(super) struct Term {
    since: Instant,
    /// Milliseconds from `since`: until it begins no calls, and until it is over.
    calls_ms: Arc<AtomicU64>,
    until_ms: Arc<AtomicU64>,
    has_ended: Arc<AtomicBool>,
}

impl Term {
    pub(super) fn endless() -> Self {
        let endless = || Arc::new(AtomicU64::new(u64::MAX));
        let has_ended = Arc::new(AtomicBool::new(false));
        Self { since: Instant::now(), calls_ms: endless(), until_ms: endless(), has_ended }
    }

    /// Begins no more calls, whoever has the lease.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Acquire) || self.is_after(&self.until_ms)
    }

    /// Whether a call may begin: at once as a rule, or when the lease is renewed after all. It may not once the term is over.
    pub(super) async fn may_begin(&self) -> bool {
        loop {
            if self.is_over() {
                return false;
            }
            if !self.is_after(&self.calls_ms) {
                return true;
            }
            tokio::time::sleep(PAUSED).await;
        }
    }

    fn is_after(&self, end_ms: &AtomicU64) -> bool {
        self.since.elapsed().as_millis() >= u128::from(end_ms.load(Ordering::Acquire))
    }

    /// The lease was asked for then, and is there.
    fn renewed(&self, asked: Instant, settings: &LeaseSettings) {
        let ms = |end: Instant| {
            u64::try_from(end.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX)
        };
        self.until_ms.store(ms(asked + settings.length), Ordering::Release);
        self.calls_ms.store(ms(asked + settings.calls()), Ordering::Release);
    }
}

/// One request about the lease. It is asked again so often that nobody has to wait long for an answer.
async fn within<T>(patience: Duration, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let late = |_| Err(Error::Service("no answer in time".into()));
    tokio::time::timeout(patience, request).await.unwrap_or_else(late)
}

/// Waits until this process has the lease. What it returns has to be renewed, and before anything is decided, calls of
/// another may have to run out.
pub(super) async fn acquire(client: &Client, settings: &LeaseSettings) -> Held {
    let api: Api<Lease> = Api::namespaced(client.clone(), &settings.namespace);
    // The version of the lease when it last changed, and when that was seen.
    let mut seen: Option<(String, Instant)> = None;
    loop {
        match within(settings.length, attempt(&api, settings, &mut seen)).await {
            Ok(Some(held)) => return held,
            Ok(None) => {}
            // Somebody was quicker.
            Err(Error::Api(status)) if status.code == 409 => {}
            Err(error) => {
                let LeaseSettings { namespace, name, .. } = settings;
                tracing::warn!(
                    namespace,
                    lease = name,
                    error = error.to_string(),
                    "cannot ask for the lease"
                );
            }
        }
        tokio::time::sleep(settings.look()).await;
    }
}

/// A lease that this process has.
pub(super) struct Held {
    lease: Lease,
    /// Leaders by this lease so far, this one included.
    transitions: u64,
    /// For so long another may still decide, or its calls be on their way.
    pub(super) patience: Duration,
    /// The lease is a new one: whether there was another before it, the bindings of its leaders say.
    pub(super) is_first: bool,
    /// When it was asked for: it ends so long after that.
    asked: Instant,
}

/// Whoever leads.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    /// Of its orders, inside its process.
    pub(super) epoch: Epoch,
    /// What its bindings are known by, see [`crate::gang::pods::EPOCH`]: a lease that was deleted counts from the beginning again,
    /// and two processes may take each other's place in one lease.
    pub(super) name: String,
    /// How long it has to wait where pods say that another led before it.
    pub(super) patience: Duration,
}

impl Leader {
    /// Nobody else decides.
    pub(super) fn alone() -> Self {
        Self { epoch: Epoch(1), name: format!("-/1/{}", unique_holder()), patience: Duration::ZERO }
    }
}

impl Held {
    pub(super) fn leader(&self, settings: &LeaseSettings) -> Leader {
        let uid = self.lease.metadata.uid.as_deref().unwrap_or("-");
        Leader {
            epoch: Epoch(self.transitions),
            name: format!("{uid}/{}/{}", self.transitions, settings.holder),
            patience: if self.is_first { settings.length + ANSWER } else { Duration::ZERO },
        }
    }

    /// Renews it until that fails for so long that another may lead.
    pub(super) async fn keep(mut self, client: Client, settings: LeaseSettings, term: Term) -> String {
        let api: Api<Lease> = Api::namespaced(client, &settings.namespace);
        let mut pause = settings.pause();
        loop {
            term.renewed(self.asked, &settings);
            tokio::time::sleep(pause).await;
            let left = settings.length.saturating_sub(self.asked.elapsed());
            // One answer that never comes leaves time to ask again, the first one before calls have to wait.
            let first = settings.calls().saturating_sub(self.asked.elapsed()) / 2;
            let patience = if first.is_zero() { settings.length / 3 } else { first };
            match within(left.min(patience), self.renew(&api, &settings)).await {
                Ok(None) => pause = settings.pause(),
                Ok(Some(why)) => return why,
                Err(_) if self.asked.elapsed() >= settings.length => {
                    return "the lease could not be renewed in time".to_owned();
                }
                // Asked again at once it would be refused again.
                Err(_) => pause = settings.look(),
            }
        }
    }

    /// Asks once; why it is lost, where it is.
    async fn renew(&mut self, api: &Api<Lease>, settings: &LeaseSettings) -> Result<Option<String>, Error> {
        let mut next = self.lease.clone();
        spec(&mut next).renew_time = Some(MicroTime(jiff::Timestamp::now()));
        let asked = Instant::now();
        match api.replace(&settings.name, &PostParams::default(), &next).await {
            // An update makes a lease where there is none.
            Ok(lease) if lease.metadata.uid != self.lease.metadata.uid => Ok(Some(deleted())),
            Ok(lease) => {
                (self.lease, self.asked) = (lease, asked);
                Ok(None)
            }
            Err(Error::Api(status)) if status.code == 409 => {
                let Some(lease) = api.get_opt(&settings.name).await? else { return Ok(Some(deleted())) };
                if holder(&lease) != Some(&*settings.holder) {
                    return Ok(Some(format!("{} has the lease", holder(&lease).unwrap_or("nobody"))));
                }
                if lease.metadata.uid != self.lease.metadata.uid {
                    return Ok(Some(deleted()));
                }
                // An answer was lost, or somebody else wrote onto it: it is not renewed yet.
                self.lease = lease;
                Err(Error::Api(status))
            }
            Err(Error::Api(status)) if status.code == 404 => Ok(Some(deleted())),
            Err(error) => Err(error),
        }
    }
}

/// Whoever makes another one leads.
fn deleted() -> String {
    "the lease was deleted".to_owned()
}

/// Gives the lease back, so that another need not wait for its end; nor for calls, where they are settled. Where that is not
/// possible soon the lease ends by itself.
pub(super) async fn release(client: &Client, settings: &LeaseSettings, are_settled: bool) {
    let api: Api<Lease> = Api::namespaced(client.clone(), &settings.namespace);
    let until = Instant::now() + settings.length / 3;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let given = within(left, give_back(&api, settings, are_settled)).await;
        if given.is_ok() || Instant::now() + settings.look() >= until {
            return;
        }
        tokio::time::sleep(settings.look()).await;
    }
}

/// One try. A renewal may have been on its way, so that it has to be read once more.
async fn give_back(api: &Api<Lease>, settings: &LeaseSettings, are_settled: bool) -> Result<(), Error> {
    let mut lease = api.get(&settings.name).await?;
    if holder(&lease) == Some(&*settings.holder) {
        spec(&mut lease).holder_identity = Some(String::new());
        if are_settled {
            let leaders = leaders(&lease).to_string();
            lease.metadata.annotations.get_or_insert_default().insert(SETTLED.to_owned(), leaders);
        }
        api.replace(&settings.name, &PostParams::default(), &lease).await?;
    }
    Ok(())
}

async fn attempt(
    api: &Api<Lease>,
    settings: &LeaseSettings,
    seen: &mut Option<(String, Instant)>,
) -> Result<Option<Held>, Error> {
    let asked = Instant::now();
    let Some(lease) = api.get_opt(&settings.name).await? else {
        let metadata = ObjectMeta { name: Some(settings.name.clone()), ..ObjectMeta::default() };
        let mut lease = Lease { metadata, spec: None };
        claim(&mut lease, settings);
        let lease = api.create(&PostParams::default(), &lease).await?;
        // It was there a moment ago: its holder learns that it is gone when it renews it, or stops when it cannot.
        let patience = if seen.is_some() { settings.length + ANSWER } else { Duration::ZERO };
        return Ok(Some(Held { lease, transitions: 1, patience, is_first: seen.is_none(), asked }));
    };
    let version = lease.metadata.resource_version.clone().unwrap_or_default();
    if seen.as_ref().is_none_or(|(known, _)| *known != version) {
        *seen = Some((version, Instant::now()));
    }
    let held =
        lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
    let length = held.map_or(settings.length, Duration::from_secs);
    // Of the time in which nothing was seen of it this much is one in which it began no calls.
    let calls = lease.metadata.annotations.as_ref().and_then(|all| all.get(CALLS_FOR)?.parse().ok());
    let silence = calls.map_or(Duration::ZERO, |ms| length.saturating_sub(Duration::from_millis(ms)));
    let has_holder = holder(&lease).is_some_and(|holder| !holder.is_empty());
    let is_over = seen.as_ref().is_some_and(|(_, since)| since.elapsed() >= length);
    // An earlier claim may have been the one that succeeded, without an answer.
    let is_own = holder(&lease) == Some(&*settings.holder);
    if has_holder && !is_over && !is_own {
        return Ok(None);
    }
    let settled = lease.metadata.annotations.as_ref().and_then(|all| all.get(SETTLED));
    // With a claim of its own that succeeded without an answer it is the next after the one that gave it back.
    let last = leaders(&lease).checked_sub(u64::from(is_own));
    let may_be_settled = !has_holder || is_own;
    let is_settled =
        may_be_settled && settled.zip(last).is_some_and(|(text, last)| *text == last.to_string());
    let mut next = lease;
    claim(&mut next, settings);
    let lease = api.replace(&settings.name, &PostParams::default(), &next).await?;
    let transitions = leaders(&lease).saturating_add(1);
    // One that gave it back in a hurry may have had calls on their way until then; and what an earlier claim of its own took
    // the place of is not known any more.
    let patience = match is_settled {
        true => Duration::ZERO,
        false if has_holder && !is_own => ANSWER.saturating_sub(silence),
        false => ANSWER,
    };
    Ok(Some(Held { lease, transitions, patience, is_first: false, asked }))
}

/// Leaders by a lease before that of now, or the last.
fn leaders(lease: &Lease) -> u64 {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
    u64::try_from(transitions).unwrap_or(0)
}

fn claim(lease: &mut Lease, settings: &LeaseSettings) {
    let now = MicroTime(jiff::Timestamp::now());
    let is_other = holder(lease) != Some(&*settings.holder);
    let calls_ms = settings.calls().as_millis().to_string();
    lease.metadata.annotations.get_or_insert_default().insert(CALLS_FOR.to_owned(), calls_ms);
    let spec = spec(lease);
    if spec.holder_identity.is_some() && is_other {
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
    }
    spec.holder_identity = Some(settings.holder.clone());
    spec.lease_duration_seconds = i32::try_from(settings.length.as_secs()).ok();
    spec.acquire_time = Some(now.clone());
    spec.renew_time = Some(now);
}

fn spec(lease: &mut Lease) -> &mut LeaseSpec {
    lease.spec.get_or_insert_default()
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

/// A name that no other process has: the host, the process, and when it was asked for.
#[must_use]
pub fn unique_holder() -> String {
    let host = std::env::var("HOSTNAME")
        .or_else(|_| std::env::var("POD_NAME"))
        .unwrap_or_else(|_| "host".to_owned());
    let now = jiff::Timestamp::now().as_nanosecond();
    format!("{host}_{}_{now:x}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> LeaseSettings {
        LeaseSettings {
            namespace: "n".to_owned(),
            name: "l".to_owned(),
            holder: "us".to_owned(),
            length: Duration::from_secs(15),
            renew: Duration::from_secs(5),
        }
    }

    /// There is no lease; whoever makes one gets it with this number. To an update the API server says that this is another
    /// one than was meant.
    fn without_lease(uid: &'static str) -> Api<Lease> {
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| async move {
            let is_creation = request.method() == http::Method::POST;
            let code = if request.method() == http::Method::PUT { 409 } else { 404 };
            let text = match is_creation {
                true => {
                    let bytes = request.into_body().collect_bytes().await.unwrap();
                    let mut lease: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                    lease["metadata"]["uid"] = uid.into();
                    lease
                }
                false => serde_json::json!({ "kind": "Status", "apiVersion": "v1", "metadata": {},
                    "status": "Failure", "code": code, "reason": if code == 404 { "NotFound" } else { "Conflict" }, "message": "no lease" }),
            };
            let mut answer = http::Response::new(kube::client::Body::from(text.to_string().into_bytes()));
            let code = if is_creation { 201 } else { code };
            *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok::<_, std::convert::Infallible>(answer)
        });
        Api::namespaced(Client::new(service, "n"), "n")
    }

    /// Both would have led: the new one began at once, and the old one until its time was over.
    #[test]
    fn when_a_lease_is_deleted_its_holder_stops_and_the_next_one_waits_for_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let settings = settings();
            let (first, second) = (without_lease("one"), without_lease("two"));
            let mut seen = None;
            let mut held = attempt(&first, &settings, &mut seen).await.unwrap().unwrap();
            assert!(held.is_first && held.patience.is_zero(), "nobody was seen to have one");
            assert_eq!(held.leader(&settings).patience, settings.length + ANSWER, "where pods say so");
            let lost = held.renew(&first, &settings).await.unwrap();
            assert_eq!(lost.as_deref(), Some("the lease was deleted"));
            let mut seen = Some(("5".to_owned(), Instant::now()));
            let next = attempt(&second, &settings, &mut seen).await.unwrap().unwrap();
            assert_eq!((next.is_first, next.patience), (false, settings.length + ANSWER));
            // Both are the first of their lease.
            let (old, new) = (held.leader(&settings), next.leader(&settings));
            assert_eq!(
                (old.epoch, old.name, new.name),
                (new.epoch, "one/1/us".to_owned(), "two/1/us".to_owned())
            );
        });
    }

    /// An API server that has one lease.
    fn with_lease(lease: Lease) -> Api<Lease> {
        let there = Arc::new(std::sync::Mutex::new(serde_json::to_value(lease).unwrap()));
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let there = Arc::clone(&there);
            async move {
                if request.method() == http::Method::PUT {
                    let bytes = request.into_body().collect_bytes().await.unwrap();
                    *there.lock().unwrap() = serde_json::from_slice(&bytes).unwrap();
                }
                let text = there.lock().unwrap().to_string();
                let answer = http::Response::new(kube::client::Body::from(text.into_bytes()));
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        Api::namespaced(Client::new(service, "n"), "n")
    }

    /// It waited ten seconds for calls of which it could have known that there were none.
    #[test]
    fn a_successor_waits_for_calls_unless_the_lease_says_that_there_are_none() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (old, new) = (settings(), LeaseSettings { holder: "next".to_owned(), ..settings() });
            let metadata = ObjectMeta { name: Some("l".to_owned()), ..ObjectMeta::default() };
            let mut lease = Lease { metadata, spec: None };
            claim(&mut lease, &old);
            let api = with_lease(lease);
            let patience = async |of: &LeaseSettings| {
                attempt(&api, of, &mut None).await.unwrap().map(|held| held.patience)
            };
            assert_eq!(patience(&new).await, None, "the other has it");
            give_back(&api, &old, false).await.unwrap();
            assert_eq!(patience(&new).await, Some(ANSWER), "its calls may be on their way");
            give_back(&api, &new, true).await.unwrap();
            assert_eq!(patience(&old).await, Some(Duration::ZERO));
            assert_eq!(patience(&old).await, Some(Duration::ZERO), "the first claim had no answer");
            give_back(&api, &old, false).await.unwrap();
            assert_eq!(patience(&new).await, Some(ANSWER), "what the one before said holds no longer");
        });
    }

    #[test]
    fn calls_begin_only_as_long_as_nobody_else_can_lead() {
        let term = Term::endless();
        assert!(!term.is_over());
        let (now, settings) = (Instant::now(), settings());
        term.renewed(now, &settings);
        assert!(!term.is_over());
        term.renewed(now.checked_sub(settings.length).unwrap(), &settings);
        assert!(term.is_over());
    }

    /// Whether calls begin now, or wait.
    async fn begins(term: &Term) -> Option<bool> {
        tokio::time::timeout(2 * PAUSED, term.may_begin()).await.ok()
    }

    #[test]
    fn a_leader_that_could_not_renew_its_lease_begins_no_calls_before_it_is_renewed() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (term, settings) = (Term::endless(), settings());
            let ago = |s| Instant::now().checked_sub(Duration::from_secs(s)).unwrap();
            term.renewed(ago(4), &settings);
            assert_eq!(begins(&term).await, Some(true));
            term.renewed(ago(5), &settings);
            assert_eq!((begins(&term).await, term.is_over()), (None, false), "it may be renewed yet");
            let waits = tokio::spawn({
                let term = term.clone();
                async move { term.may_begin().await }
            });
            term.renewed(ago(1), &settings);
            assert!(waits.await.unwrap(), "what waited begins");
            term.renewed(ago(15), &settings);
            assert_eq!(begins(&term).await, Some(false));
        });
    }

    /// It waited 10 s after a lease of 15 s, though the old leader had begun its last call 10 s before the end of that.
    #[test]
    fn between_the_last_call_of_a_leader_and_the_first_of_the_next_lies_an_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for (length_s, says_so, patience_s) in
                [(15, true, 0), (30, true, 0), (6, true, 6), (15, false, 10)]
            {
                let length = Duration::from_secs(length_s);
                let (old, new) = (
                    LeaseSettings { length, ..settings() },
                    LeaseSettings { holder: "next".to_owned(), ..settings() },
                );
                let metadata = ObjectMeta {
                    name: Some("l".to_owned()),
                    resource_version: Some("7".to_owned()),
                    ..ObjectMeta::default()
                };
                let mut lease = Lease { metadata, spec: None };
                claim(&mut lease, &old);
                if !says_so {
                    lease.metadata.annotations = None;
                }
                let api = with_lease(lease);
                // It was seen so long ago.
                let mut seen = Some(("7".to_owned(), Instant::now().checked_sub(length).unwrap()));
                let held = attempt(&api, &new, &mut seen).await.unwrap().unwrap();
                assert_eq!(held.patience, Duration::from_secs(patience_s), "{length_s} s, {says_so}");
                let silence = if says_so { length.saturating_sub(old.calls()) } else { Duration::ZERO };
                assert!(silence + held.patience >= ANSWER);
            }
        });
    }

    #[test]
    fn a_renewal_that_fails_once_is_tried_again_before_calls_have_to_wait() {
        for length_s in [3, 6, 15, 30, 60] {
            let length = Duration::from_secs(length_s);
            let of = LeaseSettings { length, renew: length / 5, ..settings() };
            let left = of.calls().saturating_sub(of.pause());
            assert!(of.pause() + left / 2 + of.look() < of.calls(), "{of:?}");
        }
    }
}
