//! The lane of what is only reported, and of what others are asked for.

use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use phalanx_model::NodeName;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

use super::super::call::{CallError, Limited, once, patch_status};
use super::super::desk::Message;
use super::super::explain::Explainer;
use super::super::groups;
use super::super::lease::Term;
use super::super::provision::{Asked, provisioner};
use super::super::trouble::Trouble;
use super::{LANE_MAX, TOO_MANY, trouble};
use crate::crd;
use crate::messages::{PodRef, Provision};
use crate::recognise::ObjectRef;

/// How many requests of this lane are on their way at once, beside those of the explainer.
const REPORTS: usize = 4;
/// Objects whose statuses are written.
const OBJECTS_MAX: usize = 10_000;
/// How often one status is tried, before an operator is told.
const TRIES: u32 = 20;

/// The status code of a patch that is not valid for the object as it is.
const UNPROCESSABLE: u16 = 422;

const PATCH: &str = "application/json-patch+json";
const UNWRITTEN: &str = "a status is not written";

pub(super) struct ReportLane {
    pub(super) explainer: Explainer,
    requests: Limited,
    desk: Sender<Message>,
    statuses: Statuses,
    /// Each call of this lane that is at work holds a permit.
    room: Arc<Semaphore>,
    /// Nothing where no autoscaler is asked.
    provisioner: Option<UnboundedSender<Asked>>,
}

impl ReportLane {
    /// `busy` has a permit for whatever may be bound now.
    pub(super) fn new(
        client: Client,
        term: Term,
        desk: Sender<Message>,
        busy: Arc<Semaphore>,
        provisioning_class: Option<String>,
    ) -> Self {
        let requests = Limited::new(client.clone(), term, Arc::new(Semaphore::new(REPORTS)));
        Self {
            explainer: Explainer::new(client.clone(), busy),
            statuses: Statuses::new(requests.clone(), desk.clone()),
            requests,
            room: Arc::new(Semaphore::new(LANE_MAX)),
            provisioner: provisioning_class.map(|class| provisioner(client, class, desk.clone())),
            desk,
        }
    }

    /// The status of an object of ours, as a whole: merged, what it does not say any more would stay.
    pub(super) fn status(&self, plural: &'static str, name: String, status: Value) {
        self.statuses.write((plural, name), status);
    }

    /// Lets a Volcano Job make its pods.
    pub(super) fn admit(&self, group: ObjectRef, job: ObjectRef, scheduler: String) {
        const WHAT: &str = "the phase of a group is not written";
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            return trouble(&self.desk, Trouble::new(WHAT, group.to_string(), TOO_MANY));
        };
        let (requests, desk) = (self.requests.clone(), self.desk.clone());
        tokio::spawn(async move {
            if let Err(error) = groups::admit(&requests, &group, &job, &scheduler).await {
                trouble(&desk, Trouble::new(WHAT, group.to_string(), error));
            }
            drop(room);
        });
    }

    /// Writes which nodes other schedulers are to keep for pods. A pod that is gone or bound needs none.
    pub(super) fn nominate(&self, pods: Vec<(PodRef, Option<NodeName>)>) {
        const WHAT: &str = "a nominated node is not written";
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            return trouble(&self.desk, Trouble::new(WHAT, "pods of a gang", TOO_MANY));
        };
        let (requests, desk) = (self.requests.clone(), self.desk.clone());
        tokio::spawn(async move {
            for (pod, node) in pods {
                let node = node.as_ref().map(NodeName::as_str);
                let patch = json!({ "status": { "nominatedNodeName": node } });
                match patch_status(&requests, &pod, patch).await {
                    // The API server refuses a nomination of a pod that is bound by now.
                    Ok(_) => {}
                    Err(error) if error.code() == Some(UNPROCESSABLE) => {}
                    Err(error) => trouble(&desk, Trouble::new(WHAT, pod.to_string(), error)),
                }
            }
            drop(room);
        });
    }

    /// Asks an autoscaler for the nodes of a gang.
    pub(super) fn provision(&self, gang: String, wanted: Option<Provision>) {
        if let Some(provisioner) = &self.provisioner {
            let _ = provisioner.send((gang, wanted));
        }
    }
}

/// The resource, and the name.
type Object = (&'static str, String);

/// What there is to write onto an object.
#[derive(Default)]
struct Entry {
    /// Not written yet. One that is newer takes its place.
    newest: Option<Value>,
    /// Of the object, after the last write that was answered.
    version: Option<String>,
    is_at_work: bool,
}

/// Statuses of objects of ours. Each is written only onto the version that it was meant for: one that had no answer, and
/// that the API server still works at, is refused when it comes after a newer one.
#[derive(Clone)]
pub(super) struct Statuses {
    requests: Limited,
    desk: Sender<Message>,
    entries: Arc<Mutex<HashMap<Object, Entry>>>,
}

impl Statuses {
    pub(super) fn new(requests: Limited, desk: Sender<Message>) -> Self {
        Self { requests, desk, entries: Arc::default() }
    }

    pub(super) fn write(&self, object: Object, status: Value) {
        let mut entries = self.lock();
        if entries.len() >= OBJECTS_MAX && !entries.contains_key(&object) {
            entries.retain(|_, entry| entry.is_at_work);
        }
        if entries.len() >= OBJECTS_MAX && !entries.contains_key(&object) {
            return trouble(&self.desk, Trouble::new(UNWRITTEN, object.1, TOO_MANY));
        }
        let entry = entries.entry(object.clone()).or_default();
        entry.newest = Some(status);
        if !std::mem::replace(&mut entry.is_at_work, true) {
            tokio::spawn(self.clone().write_all(object));
        }
    }

    /// Writes the newest until there is none.
    async fn write_all(self, object: Object) {
        let mut version = self.lock().get(&object).and_then(|entry| entry.version.clone());
        let mut tries = 0;
        let mut status: Option<Value> = None;
        loop {
            {
                let mut entries = self.lock();
                let Some(entry) = entries.get_mut(&object) else { return };
                if let Some(newest) = entry.newest.take() {
                    (status, tries) = (Some(newest), 0);
                }
                if status.is_none() {
                    (entry.version, entry.is_at_work) = (version, false);
                    return;
                }
            }
            let Some(next) = &status else { return };
            match self.try_once(&object, next, &mut version).await {
                Ok(()) => status = None,
                // Its version is another by now.
                Err(error) if error.code() == Some(409) && tries < TRIES => tries += 1,
                Err(error) if error.may_pass() && tries < TRIES => {
                    tries += 1;
                    tokio::time::sleep(error.pause()).await;
                }
                Err(error) => {
                    let about = format!("{}/{}", object.0, object.1);
                    trouble(&self.desk, Trouble::new(UNWRITTEN, about, error));
                    status = None;
                }
            }
        }
    }

    /// Writes it once. The version is known again once there is an answer.
    async fn try_once(
        &self,
        (plural, name): &Object,
        status: &Value,
        version: &mut Option<String>,
    ) -> Result<(), CallError> {
        let path = format!("/apis/{}/v1alpha1/{plural}/{name}/status", crd::GROUP);
        let there = match version.take() {
            Some(version) => version,
            // A patch that changes nothing says how the object is, with no other right than the one to write it.
            None => version_in(&once(&self.requests, "PATCH", &path, PATCH, &json!([])).await?),
        };
        let patch = json!([
            { "op": "replace", "path": "/metadata/resourceVersion", "value": there },
            { "op": "add", "path": "/status", "value": status },
        ]);
        *version = Some(version_in(&once(&self.requests, "PATCH", &path, PATCH, &patch).await?));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Object, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn version_in(text: &str) -> String {
    let object: Value = serde_json::from_str(text).unwrap_or_default();
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}
