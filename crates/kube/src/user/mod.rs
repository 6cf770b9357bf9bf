//! What people ask of a cluster, with the rights of their own kubeconfig: plain reads and writes, no watches.
//!
//! | module | what lives there |
//! |---|---|
//! | `seen` | the cluster as a scheduler sees it that begins now |
//! | `queues` | queues and their statuses |
//! | `view` | jobs, their instances and nodes, as the objects say |

mod health;
mod queues;
mod seen;
mod view;

use std::path::Path;

use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, LogParams, Patch, PatchParams, PostParams,
    PropagationPolicy,
};
use kube::core::gvk::ParseGroupVersionError;
use kube::{Api, Client};
use serde_json::{Value, json};

pub use health::{Asked, HealthSeen};
pub use queues::QueueView;
pub use seen::Seen;
pub use view::{EventView, InstanceView, JobView, LogAsk, NodeView, SharesView};

use seen::see;

use crate::connect::connect;
use crate::crd;
use crate::gang::Options;
use crate::submit::{Manifest, Refused, Trainer, Work, indexed, mpi_job, pytorch_job};

/// Objects of one page of a list.
const PAGE: u32 = 500;
/// Most objects of a list.
const OBJECTS_MAX: usize = 50_000;

/// A cluster, and a namespace of it.
pub struct Cluster {
    runtime: tokio::runtime::Runtime,
    client: Client,
    namespace: String,
}

/// Why a cluster did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error("no way to the cluster: {0}")]
    Config(String),
    /// As the API server says it.
    #[error("{message}")]
    Server { code: u16, message: String },
    #[error("the API server does not answer: {0}")]
    Transport(String),
    #[error("no job {name} in namespace {namespace}")]
    NoJob { name: String, namespace: String },
    #[error("the cluster serves no queues")]
    NoDefinitions,
    #[error("no queue {0}")]
    NoQueue(String),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("what the cluster has cannot be read: {0}")]
    Unreadable(String),
}

impl From<kube::Error> for UserError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::Server { code: status.code, message: status.message },
            other => Self::Transport(other.to_string()),
        }
    }
}

impl From<ParseGroupVersionError> for UserError {
    fn from(error: ParseGroupVersionError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// A kind of job that this cluster serves.
struct Kind {
    trainer: Trainer,
    resource: ApiResource,
}

impl Cluster {
    /// The cluster that a file names, `$KUBECONFIG` or the one that a pod finds; the context's namespace if none is named.
    ///
    /// # Errors
    /// When there is no way to a cluster.
    pub fn connect(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
        namespace: Option<&str>,
    ) -> Result<Self, UserError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| UserError::Config(error.to_string()))?;
        let (client, of_context) =
            runtime.block_on(connect(kubeconfig, context, None)).map_err(UserError::Config)?;
        Ok(Self { runtime, client, namespace: namespace.map_or(of_context, str::to_owned) })
    }

    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Creates what a job needs: the operator's object where one serves it, and otherwise an indexed Job and what belongs to
    /// it. Returns what kind of object it became.
    ///
    /// # Errors
    /// When the job cannot be on a cluster, or the API server does not take it. Then nothing of it is left.
    pub fn submit(&self, work: &Work) -> Result<String, UserError> {
        self.runtime.block_on(async {
            let kinds = self.kinds().await?;
            let of_trainer =
                kinds.iter().find(|kind| kind.trainer == work.trainer).map(|kind| &kind.resource);
            let manifests = match (work.trainer, of_trainer) {
                (Trainer::Mpi, Some(kind)) => mpi_job(work, &kind.api_version)?,
                (Trainer::PyTorch, Some(kind)) => pytorch_job(work, &kind.api_version)?,
                _ => indexed(work)?,
            };
            self.create(&manifests).await
        })
    }

    /// The first belongs to nobody, the others to it: they go when it goes.
    async fn create(&self, manifests: &[Manifest]) -> Result<String, UserError> {
        let [first, rest @ ..] = manifests else { return Ok(String::new()) };
        let job = self.post(first, None).await?;
        for manifest in rest {
            if let Err(error) = self.post(manifest, Some(&job)).await {
                let _ = self.api_of(first)?.delete(&name_of(&first.object), &in_background()).await;
                return Err(error);
            }
        }
        Ok(first.object["kind"].as_str().unwrap_or_default().to_owned())
    }

    async fn post(
        &self,
        manifest: &Manifest,
        owner: Option<&DynamicObject>,
    ) -> Result<DynamicObject, UserError> {
        let mut object = manifest.object.clone();
        if let Some((owner, types)) = owner.and_then(|owner| Some((owner, owner.types.as_ref()?))) {
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": types.api_version, "kind": types.kind, "controller": false,
                "name": owner.metadata.name, "uid": owner.metadata.uid,
            }]);
        }
        let object: DynamicObject =
            serde_json::from_value(object).map_err(|error| UserError::Unreadable(error.to_string()))?;
        let mut made = self.api_of(manifest)?.create(&PostParams::default(), &object).await?;
        made.types = made.types.or(object.types);
        Ok(made)
    }

    fn api_of(&self, manifest: &Manifest) -> Result<Api<DynamicObject>, UserError> {
        let text = |field: &str| manifest.object[field].as_str().unwrap_or_default().to_owned();
        let version: kube::core::GroupVersion = text("apiVersion").parse()?;
        let resource = ApiResource::from_gvk_with_plural(&version.with_kind(&text("kind")), manifest.plural);
        Ok(self.api(&resource))
    }

    fn api(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, resource)
    }

    /// Jobs, and those of operators as far as the cluster serves them.
    async fn kinds(&self) -> Result<Vec<Kind>, UserError> {
        let mut kinds = vec![Kind { trainer: Trainer::Job, resource: ApiResource::erase::<Job>(&()) }];
        match kube::discovery::group(&self.client, "kubeflow.org").await {
            Ok(group) => {
                for (trainer, kind) in [(Trainer::Mpi, "MPIJob"), (Trainer::PyTorch, "PyTorchJob")] {
                    let served = group.recommended_kind(kind);
                    kinds.extend(served.map(|(resource, _)| Kind { trainer, resource }));
                }
            }
            Err(kube::Error::Discovery(_)) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
        Ok(kinds)
    }

    /// All jobs that this scheduler has to do with, the oldest first.
    ///
    /// # Errors
    /// When the API server does not answer, or this user may not read them.
    pub fn jobs(&self) -> Result<Vec<JobView>, UserError> {
        self.runtime.block_on(async {
            let pods = list(&self.pods_api(), &ListParams::default()).await?;
            let mut jobs = Vec::new();
            for kind in self.kinds().await? {
                for object in list(&self.api(&kind.resource), &ListParams::default()).await? {
                    jobs.extend(JobView::of(&kind.resource.kind, &object, &pods));
                }
            }
            jobs.sort_by(|a, b| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)));
            Ok(jobs)
        })
    }

    /// One job; of several kinds of one name the one that is asked for, or the first.
    ///
    /// # Errors
    /// When there is none, or the API server says no.
    pub fn job(&self, name: &str, trainer: Option<Trainer>) -> Result<JobView, UserError> {
        let pods = self.runtime.block_on(list(&self.pods_api(), &ListParams::default()))?;
        let found =
            self.find(name, trainer, |kind, object| JobView::of(&kind.resource.kind, object, &pods))?;
        Ok(found)
    }

    /// Looks for a job among the kinds, and makes something of it.
    fn find<T>(
        &self,
        name: &str,
        trainer: Option<Trainer>,
        make: impl Fn(&Kind, &DynamicObject) -> Option<T>,
    ) -> Result<T, UserError> {
        self.runtime.block_on(async {
            for kind in self.kinds().await? {
                let Some(object) = self.api(&kind.resource).get_opt(name).await? else { continue };
                let is_it = trainer.is_none_or(|asked| asked == view::trainer(&kind.resource.kind, &object));
                if let Some(made) = is_it.then(|| make(&kind, &object)).flatten() {
                    return Ok(made);
                }
            }
            Err(UserError::NoJob { name: name.to_owned(), namespace: self.namespace.clone() })
        })
    }

    /// Takes a job away, with all that was created for it.
    ///
    /// # Errors
    /// When there is none, or the API server says no.
    pub fn delete(&self, name: &str, trainer: Option<Trainer>) -> Result<(), UserError> {
        let resource = self.find(name, trainer, |kind, _| Some(kind.resource.clone()))?;
        self.runtime.block_on(async {
            self.api(&resource).delete(name, &in_background()).await?;
            Ok(())
        })
    }

    /// What was told of a job and of its pods, the oldest first.
    ///
    /// # Errors
    /// When the API server does not answer, or this user may not read them.
    pub fn events(&self, job: &JobView) -> Result<Vec<EventView>, UserError> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let events = self.runtime.block_on(list(&api, &ListParams::default()))?;
        let is_of = |event: &Event| {
            let about = event.involved_object.name.as_deref().unwrap_or_default();
            about == job.name || job.instances.iter().any(|instance| instance.name == about)
        };
        let mut events: Vec<EventView> =
            events.iter().filter(|event| is_of(event)).map(EventView::of).collect();
        events.sort_by_key(|event| event.at);
        Ok(events)
    }

    /// All nodes, and what their pods hold as far as this user may read pods of all namespaces.
    ///
    /// # Errors
    /// When the API server does not answer, or this user may not read them.
    pub fn nodes(&self) -> Result<Vec<NodeView>, UserError> {
        self.runtime.block_on(async {
            let nodes: Vec<Node> = list(&Api::all(self.client.clone()), &ListParams::default()).await?;
            let unfinished = ListParams::default().fields("status.phase!=Succeeded,status.phase!=Failed");
            let pods: Vec<Pod> = list(&Api::all(self.client.clone()), &unfinished).await?;
            // Health is shown to whoever may read it.
            let found = list(&self.topologies(), &ListParams::default()).await.unwrap_or_default();
            let mut views = view::nodes(&nodes, &pods);
            health::mark(&mut views, &found);
            Ok(views)
        })
    }

    /// All queues, each after the one that it is a part of.
    ///
    /// # Errors
    /// [`UserError::NoDefinitions`] where our resources are not served; otherwise when the API server does not answer, or
    /// this user may not read them.
    pub fn queues(&self) -> Result<Vec<QueueView>, UserError> {
        let api: Api<crd::Queue> = Api::all(self.client.clone());
        match self.runtime.block_on(list(&api, &ListParams::default())) {
            Ok(queues) => Ok(QueueView::tree(&queues)),
            Err(UserError::Server { code: 404, .. }) => Err(UserError::NoDefinitions),
            Err(error) => Err(error),
        }
    }

    /// One queue.
    ///
    /// # Errors
    /// As [`Self::queues`], and when there is none of this name.
    pub fn queue(&self, name: &str) -> Result<QueueView, UserError> {
        let found = self.queues()?.into_iter().find(|queue| queue.name == name);
        found.ok_or_else(|| UserError::NoQueue(name.to_owned()))
    }

    /// The whole cluster as a scheduler with these options sees it that begins now, as far as this user may read it.
    ///
    /// # Errors
    /// When the API server does not answer, or this user may not read nodes and the pods of all namespaces.
    pub fn snapshot(&self, options: Options) -> Result<Seen, UserError> {
        self.runtime.block_on(see(&self.client, options))
    }

    /// The lines of one instance, one after the other; `say` says whether it wants more.
    ///
    /// # Errors
    /// When the API server or the node does not give them.
    pub fn logs(
        &self,
        instance: &str,
        ask: &LogAsk,
        mut say: impl FnMut(&str) -> bool,
    ) -> Result<(), UserError> {
        let LogAsk { follow, tail, since_s, timestamps } = *ask;
        let params = LogParams {
            follow,
            tail_lines: tail.map(i64::from),
            since_seconds: since_s.map(|s| i64::try_from(s).unwrap_or(i64::MAX)),
            timestamps,
            ..LogParams::default()
        };
        let lost = |error: std::io::Error| UserError::Transport(error.to_string());
        self.runtime.block_on(async {
            let mut lines = std::pin::pin!(self.pods_api().log_stream(instance, &params).await?.lines());
            while let Some(line) = lines.try_next().await.map_err(lost)? {
                if !say(&line) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Lets nothing new onto a node, or lets it again.
    ///
    /// # Errors
    /// When there is no such node, or this user may not.
    pub fn cordon(&self, node: &str, is: bool) -> Result<(), UserError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let patch: Value = json!({ "spec": { "unschedulable": is } });
        self.runtime.block_on(api.patch(node, &PatchParams::default(), &Patch::Merge(patch)))?;
        Ok(())
    }

    fn pods_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// A whole list, page by page.
pub(crate) async fn list<K>(api: &Api<K>, params: &ListParams) -> Result<Vec<K>, UserError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let mut all = Vec::new();
    let mut params = params.clone().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) if all.len() < OBJECTS_MAX => params = params.continue_token(&token),
            Some(_) => {
                return Err(UserError::Unreadable(format!("there are more than {OBJECTS_MAX} objects")));
            }
            None => return Ok(all),
        }
    }
}

/// What belongs to it goes after it.
fn in_background() -> DeleteParams {
    DeleteParams { propagation_policy: Some(PropagationPolicy::Background), ..DeleteParams::default() }
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
