//! How groups stand, on the group objects of others. Where it cannot be written, their pods say the same.

use kube::Client;
use serde_json::{Value, json};

use super::call::{CallError, Requests, repeat};
use crate::gang::objects::{DISRUPTION_TARGET, INITIALLY_SCHEDULED};
use crate::messages::{ConditionOf, GroupCondition, VolcanoStatus};
use crate::recognise::ObjectRef;

/// What is said on a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GroupStand {
    /// One condition of upstream's.
    Upstream(GroupCondition),
    Volcano(VolcanoStatus),
}

impl GroupStand {
    /// What is said; of Volcano's groups it is one thing.
    pub(super) fn of(&self) -> ConditionOf {
        match self {
            Self::Upstream(condition) => condition.of,
            Self::Volcano(_) => ConditionOf::Scheduled,
        }
    }

    /// Whether both conditions say yes, or both say no.
    pub(super) fn is_as(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::Upstream(one), Self::Upstream(other)) => one.is_true == other.is_true,
            _ => false,
        }
    }

    /// Whether it says why the group waits.
    pub(super) fn waits(&self) -> bool {
        match self {
            Self::Upstream(condition) => condition.of == ConditionOf::Scheduled && !condition.is_true,
            Self::Volcano(status) => status.condition.as_ref().is_some_and(|(of, ..)| *of == "Unschedulable"),
        }
    }

    /// Whether it stays as it is, whatever comes: from 1.37 on the condition is about the first time.
    pub(super) fn is_final_before(&self, next: &Self, group: &ObjectRef) -> bool {
        let (Self::Upstream(is), Self::Upstream(next)) = (self, next) else { return false };
        is.of == ConditionOf::Scheduled && is.is_true && !next.is_true && !can_fall_back(group)
    }
}

/// Whether the condition of a group may become false again: it is about now, and not about the first time.
fn can_fall_back(group: &ObjectRef) -> bool {
    group.api_version.ends_with("/v1alpha2")
}

/// `since` is when the condition became true or false.
pub(super) async fn write(
    client: &Client,
    about: &ObjectRef,
    stand: &GroupStand,
    since: jiff::Timestamp,
) -> Result<(), CallError> {
    let since = since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    match stand {
        GroupStand::Upstream(GroupCondition { of, is_true, reason, message }) => {
            let kind = match of {
                ConditionOf::Scheduled if can_fall_back(about) => "PodGroupScheduled",
                ConditionOf::Scheduled => INITIALLY_SCHEDULED,
                ConditionOf::Disruption => DISRUPTION_TARGET,
            };
            let condition = json!({
                "type": kind,
                "status": if *is_true { "True" } else { "False" },
                "reason": reason,
                "message": &**message,
                "lastTransitionTime": since,
            });
            let patch = json!({ "metadata": { "uid": about.uid }, "status": { "conditions": [condition] } });
            let path = format!("{}/status", path_of(about));
            let content = "application/strategic-merge-patch+json";
            repeat(client, "PATCH", &path, content, &patch).await.map(drop)
        }
        GroupStand::Volcano(VolcanoStatus { phase, running, succeeded, failed, condition }) => {
            let condition = condition.as_ref().map(|(of, reason, message)| {
                json!({
                    "type": of, "status": "True", "reason": reason, "message": &**message,
                    "lastTransitionTime": since,
                })
            });
            // Its controller tells of a condition `Unschedulable` whatever its status: of two the false one goes.
            let conditions: Vec<Value> = condition.into_iter().collect();
            let status = json!({
                "phase": phase, "running": running, "succeeded": succeeded, "failed": failed,
                "conditions": conditions,
            });
            patch_volcano(client, about, status).await
        }
    }
}

/// Lets a Volcano Job make its pods where all of them are to be of this scheduler.
pub(super) async fn admit(
    client: &impl Requests,
    group: &ObjectRef,
    job: &ObjectRef,
    scheduler: &str,
) -> Result<(), CallError> {
    let path = format!("/apis/{}/namespaces/{}/jobs/{}", job.api_version, job.namespace, job.name);
    let text = match repeat(client, "GET", &path, "application/json", &Value::Null).await {
        Err(error) if error.code() == Some(404) => return Ok(()),
        other => other?,
    };
    let job: Value = serde_json::from_str(&text).unwrap_or_default();
    if !is_for(&job, scheduler) {
        return Ok(());
    }
    match patch_volcano(client, group, json!({ "phase": "Inqueue" })).await {
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
        other => other,
    }
}

/// Whether the pods of all tasks are for a scheduler: a template's own goes before that of the Job.
fn is_for(job: &Value, scheduler: &str) -> bool {
    let of_job = &job["spec"]["schedulerName"];
    let tasks = job["spec"]["tasks"].as_array().map_or(&[][..], Vec::as_slice);
    let is_ours = |task: &Value| match &task["template"]["spec"]["schedulerName"] {
        Value::String(name) if !name.is_empty() => name == scheduler,
        _ => of_job == scheduler,
    };
    !tasks.is_empty() && tasks.iter().all(is_ours)
}

/// Volcano releases differ in whether the status is a part of its own.
async fn patch_volcano(client: &impl Requests, group: &ObjectRef, status: Value) -> Result<(), CallError> {
    const CONTENT: &str = "application/merge-patch+json";
    let patch = json!({ "metadata": { "uid": group.uid }, "status": status });
    let path = path_of(group);
    match repeat(client, "PATCH", &format!("{path}/status"), CONTENT, &patch).await {
        Err(error) if error.code() == Some(404) => {
            repeat(client, "PATCH", &path, CONTENT, &patch).await.map(drop)
        }
        other => other.map(drop),
    }
}

fn path_of(group: &ObjectRef) -> String {
    let ObjectRef { api_version, namespace, name, .. } = group;
    format!("/apis/{api_version}/namespaces/{namespace}/podgroups/{name}")
}

#[cfg(test)]
pub(super) mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use kube::client::Body;

    use super::*;

    /// One of upstream's, in a version of its API.
    pub(in crate::world) fn pod_group(version: &str) -> ObjectRef {
        ObjectRef {
            api_version: format!("scheduling.k8s.io/{version}"),
            kind: "PodGroup".to_owned(),
            namespace: "x".to_owned(),
            name: "g".to_owned(),
            uid: Some("1".to_owned()),
            any_version: false,
        }
    }

    /// That a group is scheduled, or waits.
    pub(in crate::world) fn scheduled(is_true: bool, message: &str) -> GroupStand {
        let (of, reason) = (ConditionOf::Scheduled, if is_true { "Scheduled" } else { "Unschedulable" });
        GroupStand::Upstream(GroupCondition { of, is_true, reason, message: message.into() })
    }

    /// What is written onto a group: the path, and the body.
    fn written(about: &ObjectRef, stand: &GroupStand) -> (String, Value) {
        let asked: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let path = format!("{} {}", request.method(), request.uri().path());
                let body = request.into_body().collect_bytes().await.unwrap();
                seen.lock().unwrap().push((path, serde_json::from_slice(&body).unwrap()));
                Ok::<_, Infallible>(http::Response::new(Body::from(b"{}".to_vec())))
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            write(&Client::new(service, "default"), about, stand, jiff::Timestamp::UNIX_EPOCH).await.unwrap();
        });
        let mut asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 1, "{asked:?}");
        asked.remove(0)
    }

    #[test]
    fn the_condition_of_a_group_has_the_name_that_its_version_of_the_api_gives_it() {
        for (version, name) in [
            ("v1alpha2", "PodGroupScheduled"),
            ("v1alpha3", "PodGroupInitiallyScheduled"),
            ("v1beta1", "PodGroupInitiallyScheduled"),
        ] {
            let (path, body) = written(&pod_group(version), &scheduled(true, "2 pods are bound"));
            let at = format!("PATCH /apis/scheduling.k8s.io/{version}/namespaces/x/podgroups/g/status");
            let condition = &body["status"]["conditions"][0];
            assert_eq!((path, &condition["type"], &condition["status"]), (at, &json!(name), &json!("True")));
            assert_eq!(body["metadata"]["uid"], "1", "another of that name is not meant");
            assert_eq!(condition["reason"], "Scheduled");
            assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:00Z");
        }
    }

    #[test]
    fn that_a_group_is_preempted_is_a_condition_of_its_own() {
        let condition = GroupCondition {
            of: ConditionOf::Disruption,
            is_true: true,
            reason: "PreemptionByScheduler",
            message: "preempted by job 2".into(),
        };
        let (_, body) = written(&pod_group("v1beta1"), &GroupStand::Upstream(condition));
        let condition = &body["status"]["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!("DisruptionTarget"), &json!("True")));
        assert_eq!(condition["reason"], "PreemptionByScheduler");
    }

    #[test]
    fn a_volcano_job_is_ours_where_all_of_its_tasks_are() {
        let job = |of_job: &str, of_tasks: &[&str]| {
            let task = |name: &&str| json!({ "template": { "spec": { "schedulerName": name } } });
            json!({ "spec": { "schedulerName": of_job, "tasks": of_tasks.iter().map(task).collect::<Vec<_>>() } })
        };
        assert!(is_for(&job("phalanx", &["", ""]), "phalanx"));
        assert!(is_for(&job("volcano", &["phalanx"]), "phalanx"));
        assert!(!is_for(&job("volcano", &["phalanx", ""]), "phalanx"));
        assert!(!is_for(&job("phalanx", &["volcano"]), "phalanx"));
        assert!(!is_for(&job("phalanx", &[]), "phalanx"));
        assert!(!is_for(&json!({}), "phalanx"));
    }
}
