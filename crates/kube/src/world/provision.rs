//! What gangs need of Cluster Autoscaler, as `ProvisioningRequest`s: all nodes of a gang at once or none.
//!
//! One after another: what is asked for and what is taken back keep their order. What a former leader asked for is listed
//! first, so that it can be taken back.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::Sender;
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::call::{CallError, path_of, repeat};
use super::desk::Message;
use crate::books::{PodRef, Provision, hex};

const API: &str = "autoscaling.x-k8s.io/v1";
/// On a pod, for the autoscaler: which request it is part of, so that no node is bought for it alone; and of which class.
const CONSUMES: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
const CLASS: &str = "autoscaling.x-k8s.io/provisioning-class-name";
/// On a request: whose it is.
const GANG: &str = "phalanx.dev/gang";
const MANAGED: &str = "app.kubernetes.io/managed-by";
const MANAGER: &str = "phalanx-scheduler";

/// Between two tries, where requests are not served or a call came to nothing.
const PAUSE: Duration = Duration::from_secs(20);
/// Gangs that wait to be asked for.
const ASKED_MAX: usize = 10_000;
/// Of a gang's name in that of its request.
const STEM_MAX: usize = 200;

/// The gang, and what it needs now.
pub(super) type Asked = (String, Option<Provision>);

/// A request that was made.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    namespace: String,
    name: String,
    templates: Vec<String>,
}

struct Provisioner {
    client: Client,
    class: String,
    /// By gang; nothing until they were listed.
    standing: Option<HashMap<String, Standing>>,
}

/// Asks for nodes of this class until nobody sends any more.
pub(super) fn provisioner(client: Client, class: String, desk: Sender<Message>) -> UnboundedSender<Asked> {
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(run(Provisioner { client, class, standing: None }, receiver, desk));
    sender
}

async fn run(mut provisioner: Provisioner, mut asked: UnboundedReceiver<Asked>, desk: Sender<Message>) {
    let mut open: BTreeMap<String, Option<Provision>> = BTreeMap::new();
    loop {
        let next = if open.is_empty() {
            asked.recv().await.map(Some)
        } else {
            tokio::time::timeout(PAUSE, asked.recv()).await.map_or(Some(None), |next| next.map(Some))
        };
        let Some(first) = next else { return };
        for (gang, wanted) in first.into_iter().chain(std::iter::from_fn(|| asked.try_recv().ok())) {
            // What is over is always taken back.
            if wanted.is_none() || open.len() < ASKED_MAX {
                open.insert(gang, wanted);
            }
        }
        while let Some((gang, wanted)) = open.pop_first() {
            if let Err(error) = provisioner.settle(&gang, wanted.as_ref()).await {
                let what = format!("nodes for {gang}, as {API} ProvisioningRequest: {error}");
                let _ = desk.send(Message::Trouble(what));
                open.insert(gang, wanted);
                break;
            }
        }
    }
}

impl Provisioner {
    async fn settle(&mut self, gang: &str, wanted: Option<&Provision>) -> Result<(), CallError> {
        if self.standing.is_none() {
            self.standing = Some(self.list().await?);
        }
        let Some(wanted) = wanted else { return self.withdraw(gang).await };
        let Some(templates) = self.templates(wanted).await? else { return Ok(()) };
        let name = name_of(&wanted.about.name, &templates);
        let standing = self.standing.iter().flatten().find(|(of, _)| *of == gang).map(|(_, it)| &it.name);
        if standing != Some(&name) {
            self.withdraw(gang).await?;
            self.create(gang, wanted, &name, templates).await?;
        }
        let annotations = json!({ CONSUMES: name, CLASS: self.class });
        for pod in wanted.sets.iter().flatten() {
            let patch = json!({ "metadata": { "uid": &*pod.uid, "annotations": annotations } });
            let path = format!("{}/status", path_of(pod));
            self.unless_gone("PATCH", &path, "application/merge-patch+json", &patch).await?;
        }
        Ok(())
    }

    /// What a former leader asked for.
    async fn list(&self) -> Result<HashMap<String, Standing>, CallError> {
        let path = format!("/apis/{API}/provisioningrequests?labelSelector={MANAGED}%3D{MANAGER}");
        let text = repeat(&self.client, "GET", &path, "application/json", &Value::Null).await?;
        let list: Value = serde_json::from_str(&text).unwrap_or_default();
        let standing = |item: &Value| {
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let sets = item["spec"]["podSets"].as_array().into_iter().flatten();
            let standing = Standing {
                namespace: text(&item["metadata"]["namespace"])?,
                name: text(&item["metadata"]["name"])?,
                templates: sets.filter_map(|set| text(&set["podTemplateRef"]["name"])).collect(),
            };
            Some((text(&item["metadata"]["annotations"][GANG])?, standing))
        };
        Ok(list["items"].as_array().into_iter().flatten().filter_map(standing).collect())
    }

    /// One for each set, as its first pod is; nothing where that is gone: what is needed is another by then.
    async fn templates(&self, wanted: &Provision) -> Result<Option<Vec<(Value, usize)>>, CallError> {
        let mut templates = Vec::with_capacity(wanted.sets.len());
        for set in &wanted.sets {
            let Some(first) = set.first() else { continue };
            let Some(template) = self.template(first).await? else { return Ok(None) };
            templates.push((template, set.len()));
        }
        Ok(Some(templates))
    }

    async fn template(&self, pod: &PodRef) -> Result<Option<Value>, CallError> {
        let path = path_of(pod);
        let Some(text) = self.unless_gone("GET", &path, "application/json", &Value::Null).await? else {
            return Ok(None);
        };
        let mut object: Value = serde_json::from_str(&text).unwrap_or_default();
        if object["metadata"]["uid"] != *pod.uid {
            return Ok(None);
        }
        if let Some(spec) = object["spec"].as_object_mut() {
            // Templates have none of these, or each pod has its own.
            for own in ["nodeName", "ephemeralContainers", "hostname", "schedulingGates"] {
                spec.remove(own);
            }
        }
        let labels = object["metadata"]["labels"].take();
        Ok(Some(json!({ "metadata": { "labels": labels }, "spec": object["spec"].take() })))
    }

    /// Templates first: a request whose templates are not there fails.
    async fn create(
        &mut self,
        gang: &str,
        wanted: &Provision,
        name: &str,
        templates: Vec<(Value, usize)>,
    ) -> Result<(), CallError> {
        let about = &wanted.about;
        let owner = json!([{
            "apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid,
        }]);
        let metadata = |name: &str| {
            json!({
                "name": name, "namespace": about.namespace, "ownerReferences": owner,
                "labels": { MANAGED: MANAGER }, "annotations": { GANG: gang },
            })
        };
        let mut standing =
            Standing { namespace: about.namespace.clone(), name: name.to_owned(), templates: Vec::new() };
        let mut sets = Vec::with_capacity(templates.len());
        for (at, (template, count)) in templates.into_iter().enumerate() {
            let name = format!("{name}-{at}");
            let object = json!({
                "apiVersion": "v1", "kind": "PodTemplate", "metadata": metadata(&name), "template": template,
            });
            self.unless_there(&templates_of(&about.namespace), &object).await?;
            sets.push(json!({ "podTemplateRef": { "name": name }, "count": count }));
            standing.templates.push(name);
        }
        let request = json!({
            "apiVersion": API, "kind": "ProvisioningRequest", "metadata": metadata(name),
            "spec": { "provisioningClassName": self.class, "podSets": sets },
        });
        self.unless_there(&requests_of(&about.namespace), &request).await?;
        self.standing.get_or_insert_default().insert(gang.to_owned(), standing);
        Ok(())
    }

    async fn withdraw(&mut self, gang: &str) -> Result<(), CallError> {
        let Some(Standing { namespace, name, templates }) =
            self.standing.as_ref().and_then(|standing| standing.get(gang))
        else {
            return Ok(());
        };
        let request = format!("{}/{name}", requests_of(namespace));
        let templates = templates.iter().map(|name| format!("{}/{name}", templates_of(namespace)));
        for path in std::iter::once(request).chain(templates) {
            self.unless_gone("DELETE", &path, "application/json", &json!({})).await?;
        }
        if let Some(standing) = &mut self.standing {
            standing.remove(gang);
        }
        Ok(())
    }

    /// Nothing where the object is gone, or another has its name.
    async fn unless_gone(
        &self,
        method: &str,
        path: &str,
        content: &str,
        body: &Value,
    ) -> Result<Option<String>, CallError> {
        match repeat(&self.client, method, path, content, body).await {
            Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Its name says what is in it, so one that is there is the same.
    async fn unless_there(&self, path: &str, object: &Value) -> Result<(), CallError> {
        match repeat(&self.client, "POST", path, "application/json", object).await {
            Err(error) if error.code() == Some(409) => Ok(()),
            other => other.map(drop),
        }
    }
}

fn requests_of(namespace: &str) -> String {
    format!("/apis/{API}/namespaces/{namespace}/provisioningrequests")
}

fn templates_of(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/podtemplates")
}

/// As objects may be called, and another for another content: a request cannot be changed.
fn name_of(gang: &str, templates: &[(Value, usize)]) -> String {
    let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let stem = gang.chars().take(STEM_MAX).map(|c| c.to_ascii_lowercase());
    let stem: String = stem.map(|c| if is_fine(c) { c } else { '-' }).collect();
    let content: String = templates.iter().map(|(template, count)| format!("{count} {template}\n")).collect();
    format!("phalanx-{}-{}", stem.trim_matches('-'), hex(content.as_bytes(), 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_name_that_the_api_takes_and_another_for_another_content() {
        let of = |count| vec![(json!({ "spec": {} }), count)];
        let name = name_of("Train_Me.now-", &of(2));
        let tail = name.strip_prefix("phalanx-train-me-now-").unwrap();
        assert!(tail.len() == 10 && tail.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
        assert_eq!(name, name_of("Train_Me.now-", &of(2)));
        assert_ne!(name, name_of("Train_Me.now-", &of(3)));
        assert!(name_of(&"x".repeat(500), &of(2)).len() < 250);
    }
}
