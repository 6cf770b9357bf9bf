//! Leadership: one of several schedulers decides, the others watch and wait.
//!
//! The lease is `coordination.k8s.io/v1`. A leader renews it; one that could not renew in time stops for good. A
//! successor takes it when it has not changed for its whole length *by its own clock*, and then waits once more for as
//! long as a call of the old leader may still be on its way.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Error};

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

/// Waits until this process leads. What it returns has to be renewed.
///
/// `calls`: as long as a call of an old leader may still be on its way.
pub(super) async fn acquire(
    client: &Client,
    settings: &LeaseSettings,
    calls: Duration,
    say: impl Fn(&str),
) -> Held {
    let api: Api<Lease> = Api::namespaced(client.clone(), &settings.namespace);
    // The version of the lease when it last changed, and when that was seen.
    let mut seen: Option<(String, Instant)> = None;
    loop {
        match attempt(&api, settings, &mut seen).await {
            Ok(Some(held)) => {
                if held.follows_another {
                    tokio::time::sleep(calls).await;
                }
                return held;
            }
            Ok(None) => {}
            // Somebody was quicker.
            Err(Error::Api(status)) if status.code == 409 => {}
            Err(error) => say(&format!("lease {}/{}: {error}", settings.namespace, settings.name)),
        }
        tokio::time::sleep(settings.renew / 2).await;
    }
}

/// A lease that this process has.
pub(super) struct Held {
    lease: Lease,
    /// Leaders so far, this one included: what an order of an older one is known by.
    pub(super) transitions: u64,
    follows_another: bool,
}

impl Held {
    /// Renews it until that fails for so long that another may lead.
    pub(super) async fn keep(mut self, client: Client, settings: LeaseSettings) -> String {
        let api: Api<Lease> = Api::namespaced(client, &settings.namespace);
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(settings.renew).await;
            let mut next = self.lease.clone();
            spec(&mut next).renew_time = Some(MicroTime(jiff::Timestamp::now()));
            let asked = Instant::now();
            let parameters = PostParams::default();
            let answer = api.replace(&settings.name, &parameters, &next);
            let left = settings.length.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left, answer).await {
                Ok(Ok(lease)) => (self.lease, renewed) = (lease, asked),
                Ok(Err(Error::Api(status))) if status.code == 409 => match api.get(&settings.name).await {
                    Ok(lease) if holder(&lease) == Some(&*settings.holder) => self.lease = lease,
                    Ok(lease) => {
                        let other = holder(&lease).unwrap_or("nobody").to_owned();
                        return format!("{other} has the lease");
                    }
                    Err(_) => {}
                },
                Ok(Err(_)) => {}
                Err(_) => return "the lease could not be renewed in time".to_owned(),
            }
            if renewed.elapsed() >= settings.length {
                return "the lease could not be renewed in time".to_owned();
            }
        }
    }
}

async fn attempt(
    api: &Api<Lease>,
    settings: &LeaseSettings,
    seen: &mut Option<(String, Instant)>,
) -> Result<Option<Held>, Error> {
    let Some(lease) = api.get_opt(&settings.name).await? else {
        let metadata = ObjectMeta { name: Some(settings.name.clone()), ..ObjectMeta::default() };
        let mut lease = Lease { metadata, spec: None };
        claim(&mut lease, settings);
        let lease = api.create(&PostParams::default(), &lease).await?;
        return Ok(Some(Held { lease, transitions: 1, follows_another: false }));
    };
    let version = lease.metadata.resource_version.clone().unwrap_or_default();
    if seen.as_ref().is_none_or(|(known, _)| *known != version) {
        *seen = Some((version, Instant::now()));
    }
    let held =
        lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
    let length = held.map_or(settings.length, Duration::from_secs);
    let has_holder = holder(&lease).is_some_and(|holder| !holder.is_empty());
    let is_over = seen.as_ref().is_some_and(|(_, since)| since.elapsed() >= length);
    if has_holder && !is_over {
        return Ok(None);
    }
    let mut next = lease;
    claim(&mut next, settings);
    let lease = api.replace(&settings.name, &PostParams::default(), &next).await?;
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
    let transitions = u64::try_from(transitions).unwrap_or(0).saturating_add(1);
    Ok(Some(Held { lease, transitions, follows_another: has_holder }))
}

fn claim(lease: &mut Lease, settings: &LeaseSettings) {
    let now = MicroTime(jiff::Timestamp::now());
    let is_other = holder(lease) != Some(&*settings.holder);
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
