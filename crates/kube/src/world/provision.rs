//! What gangs need of Cluster Autoscaler, as `ProvisioningRequest`s: all nodes of a gang at once or none.
//!
//! A request that came to nothing is looked for now and then, and made anew while its gang waits for nodes.
//!
//! One after another: what is asked for and what is taken back keep their order. What a former leader asked for is listed
//! first, so that it can be taken back.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::Sender;
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::call::{CallError, path_of, repeat};
use super::desk::Message;
use super::trouble::Trouble;
use crate::digest::hex;
use crate::gang::pods::ATTEMPT;
use crate::messages::{PodRef, Provision};

mod lapse;

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
/// Between two looks at what became of requests.
const LOOK: Duration = Duration::from_secs(20);
/// Gangs that wait to be asked for, and those that were.
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
    /// Which one for the gang as it is, from 1.
    attempt: u32,
    has_lapsed: bool,
}

struct Provisioner {
    client: Client,
    class: String,
    /// By gang; nothing until they were listed.
    standing: Option<HashMap<String, Standing>>,
    /// What gangs need whose requests stand.
    wanted: HashMap<String, Provision>,
    /// When a request that came to nothing is made anew, by gang.
    again: HashMap<String, Instant>,
}

/// Asks for nodes of this class until nobody sends any more.
pub(super) fn provisioner(client: Client, class: String, desk: Sender<Message>) -> UnboundedSender<Asked> {
    let (sender, receiver) = unbounded_channel();
    let (wanted, again) = (HashMap::new(), HashMap::new());
    tokio::spawn(run(Provisioner { client, class, standing: None, wanted, again }, receiver, desk));
    sender
}

async fn run(mut provisioner: Provisioner, mut asked: UnboundedReceiver<Asked>, desk: Sender<Message>) {
    let mut open: BTreeMap<String, Option<Provision>> = BTreeMap::new();
    let mut look = Instant::now();
    loop {
        let wake = match (open.is_empty(), provisioner.wanted.is_empty()) {
            (false, _) => Some(Instant::now() + PAUSE),
            (true, false) => Some(look),
            (true, true) => None,
        };
        let next = match wake {
            None => asked.recv().await.map(Some),
            Some(at) => {
                tokio::time::timeout_at(at, asked.recv()).await.map_or(Some(None), |next| next.map(Some))
            }
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
                let trouble = Trouble::new("a ProvisioningRequest of a gang is not written", &gang, error);
                let _ = desk.send(Message::Trouble(trouble));
                open.insert(gang, wanted);
                break;
            }
        }
        if open.is_empty() && Instant::now() >= look {
            if let Err(error) = provisioner.look().await {
                let trouble = Trouble::new("ProvisioningRequests cannot be read", API, error);
                let _ = desk.send(Message::Trouble(trouble));
            }
            look = Instant::now() + LOOK;
        }
    }
}

impl Provisioner {
    async fn settle(&mut self, gang: &str, wanted: Option<&Provision>) -> Result<(), CallError> {
        if self.standing.is_none() {
            self.standing = Some(self.list().await?);
        }
        self.again.remove(gang);
        let Some(wanted) = wanted else {
            self.wanted.remove(gang);
            return self.withdraw(gang).await;
        };
        if self.wanted.len() < ASKED_MAX || self.wanted.contains_key(gang) {
            self.wanted.insert(gang.to_owned(), wanted.clone());
        }
        self.ask(gang, wanted, false).await
    }

    /// Makes the request that a gang needs: where there is one for something else, or `anew`, the next in its stead.
    async fn ask(&mut self, gang: &str, wanted: &Provision, anew: bool) -> Result<(), CallError> {
        let Some(templates) = self.templates(wanted).await? else { return Ok(()) };
        let name = |attempt| name_of(&wanted.about.name, &templates, attempt);
        let standing = self.standing.as_ref().and_then(|standing| standing.get(gang));
        let attempt = standing.filter(|it| it.name == name(it.attempt)).map(|it| it.attempt);
        let next = attempt.map_or(1, |attempt| attempt.saturating_add(u32::from(anew)));
        let name = name(next);
        if attempt != Some(next) {
            self.withdraw(gang).await?;
            self.create(gang, wanted, (&name, next), templates).await?;
        }
        let annotations = json!({ CONSUMES: name, CLASS: self.class });
        for pod in wanted.sets.iter().flatten() {
            let patch = json!({ "metadata": { "uid": &*pod.uid, "annotations": annotations } });
            let path = format!("{}/status", path_of(pod));
            self.unless_gone("PATCH", &path, "application/merge-patch+json", &patch).await?;
        }
        Ok(())
    }

    /// Looks what became of requests. Those that came to nothing are made anew when their time has come, and so are those that
    /// somebody took away.
    async fn look(&mut self) -> Result<(), CallError> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        let there = self.list().await?;
        let gangs: Vec<String> = self.wanted.keys().cloned().collect();
        for gang in gangs {
            let attempt = match there.get(&gang) {
                Some(it) if !it.has_lapsed => continue,
                Some(it) => it.attempt,
                None => self.standing.as_ref().and_then(|all| all.get(&gang)).map_or(1, |it| it.attempt),
            };
            let Some(pause) = lapse::pause(attempt) else { continue };
            let now = Instant::now();
            let is_due = *self.again.entry(gang.clone()).or_insert(now + pause) <= now;
            let Some(wanted) = self.wanted.get(&gang).filter(|_| is_due).cloned() else { continue };
            self.ask(&gang, &wanted, true).await?;
            self.again.remove(&gang);
        }
        Ok(())
    }

    /// What was asked for, by this leader or a former one.
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
                attempt: text(&item["metadata"]["annotations"][ATTEMPT])
                    .and_then(|attempt| attempt.parse().ok())
                    .unwrap_or(1),
                has_lapsed: lapse::has_lapsed(item),
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
        (name, attempt): (&str, u32),
        templates: Vec<(Value, usize)>,
    ) -> Result<(), CallError> {
        let about = &wanted.about;
        let owner = json!([{
            "apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid,
        }]);
        let metadata = |name: &str| {
            json!({
                "name": name, "namespace": about.namespace, "ownerReferences": owner,
                "labels": { MANAGED: MANAGER },
                "annotations": { GANG: gang, ATTEMPT: attempt.to_string() },
            })
        };
        let mut standing = Standing {
            namespace: about.namespace.clone(),
            name: name.to_owned(),
            templates: Vec::new(),
            attempt,
            has_lapsed: false,
        };
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
        let Some(Standing { namespace, name, templates, .. }) =
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

/// As objects may be called, and another for another content: a request cannot be changed. Each attempt has another name, so
/// that nobody takes the next for the one before.
fn name_of(gang: &str, templates: &[(Value, usize)], attempt: u32) -> String {
    let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let stem = gang.chars().take(STEM_MAX).map(|c| c.to_ascii_lowercase());
    let stem: String = stem.map(|c| if is_fine(c) { c } else { '-' }).collect();
    let mut content: String =
        templates.iter().map(|(template, count)| format!("{count} {template}\n")).collect();
    if attempt > 1 {
        content.push_str(&attempt.to_string());
    }
    format!("phalanx-{}-{}", stem.trim_matches('-'), hex(content.as_bytes(), 5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_name_that_the_api_takes_and_another_for_another_content() {
        let of = |count| vec![(json!({ "spec": {} }), count)];
        let name = name_of("Train_Me.now-", &of(2), 1);
        let tail = name.strip_prefix("phalanx-train-me-now-").unwrap();
        assert!(tail.len() == 10 && tail.chars().all(|c| c.is_ascii_hexdigit()), "{name}");
        assert_eq!(name, name_of("Train_Me.now-", &of(2), 1));
        assert_ne!(name, name_of("Train_Me.now-", &of(3), 1));
        assert_ne!(name, name_of("Train_Me.now-", &of(2), 2));
        assert!(name_of(&"x".repeat(500), &of(2), 1).len() < 250);
    }
}
