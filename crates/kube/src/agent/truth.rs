//! Pods of the node: which devices they are expected to get, and which they have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use phalanx_model::DeviceMask;
use serde_json::json;

use super::Metrics;
use super::publish::within;
use crate::api::Pod;
use crate::gang::pods::DEVICES;
use crate::plugin::{Expectations, Expected, Held, expected_of, held};
use crate::world::Trouble;

/// What is known of the node's pods.
pub(super) struct Truth {
    /// The vendor's names of the devices, by their numbers.
    names: Vec<String>,
    /// Pods that the scheduler bound here, by `namespace/name`.
    pods: Mutex<BTreeMap<String, Pod>>,
    is_listed: AtomicBool,
}

/// A pod that has other devices than its annotation says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Correction {
    namespace: String,
    name: String,
    uid: String,
    devices: DeviceMask,
}

impl Expectations for Truth {
    fn expected(&self) -> Vec<Expected> {
        expected_of(self.pods().values(), &self.names)
    }
}

impl Truth {
    pub(super) const fn new(names: Vec<String>) -> Self {
        Self { names, pods: Mutex::new(BTreeMap::new()), is_listed: AtomicBool::new(false) }
    }

    fn pods(&self) -> MutexGuard<'_, BTreeMap<String, Pod>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Devices that were chosen for pods of the node that have not ended.
    /// All, as long as pods are not listed.
    pub(super) fn held(&self) -> DeviceMask {
        if !self.is_listed.load(Ordering::Acquire) {
            return DeviceMask(u64::MAX);
        }
        let pods = self.pods();
        let held = pods.values().filter(|pod| !pod.is_over()).filter_map(|pod| pod.annotation(DEVICES));
        held.filter_map(|text| text.parse().ok()).fold(DeviceMask::EMPTY, DeviceMask::union)
    }

    /// Follows the pods that are bound to the node, for as long as the process lives.
    pub(super) async fn watch(self: Arc<Self>, client: Client, node: String, metrics: Metrics) {
        let of_node = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
        let mut events = watcher(Api::<Pod>::all(client), of_node).default_backoff().boxed();
        let mut listed = BTreeMap::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => listed.clear(),
                Ok(watcher::Event::InitApply(pod)) => drop(listed.insert(pod.path(), pod)),
                Ok(watcher::Event::InitDone) => {
                    *self.pods() = std::mem::take(&mut listed);
                    self.is_listed.store(true, Ordering::Release);
                }
                Ok(watcher::Event::Apply(pod)) => drop(self.pods().insert(pod.path(), pod)),
                Ok(watcher::Event::Delete(pod)) => drop(self.pods().remove(&pod.path())),
                Err(error) => metrics.trouble(&Trouble::new("a watch failed", "pods", error)),
            }
        }
    }

    /// Asks the kubelet again and again who has what, and corrects what pods say.
    pub(super) async fn keep_reading(
        self: Arc<Self>,
        client: Client,
        socket: PathBuf,
        every: Duration,
        metrics: Metrics,
    ) {
        let mut told = BTreeSet::new();
        loop {
            tokio::time::sleep(every).await;
            let held = match held(&socket).await {
                Ok(held) => held,
                Err(error) => {
                    // A kubelet that is away is away for a while: that is said once.
                    if told.insert(error.to_string()) {
                        metrics.trouble(&Trouble::new(
                            "who has which devices is not known",
                            "kubelet",
                            error,
                        ));
                    }
                    continue;
                }
            };
            told.clear();
            let corrections = self.corrections(&held);
            for correction in corrections {
                self.correct(&client, &correction, &metrics).await;
            }
        }
    }

    /// Pods whose annotations say something else than the kubelet. Those that are exchanged come together.
    fn corrections(&self, held: &[Held]) -> Vec<Correction> {
        let mut by_pod: BTreeMap<&str, DeviceMask> = BTreeMap::new();
        for one in held {
            let number = |name: &String| self.names.iter().position(|known| known == name);
            let numbers = one.devices.iter().filter_map(number);
            let devices = numbers.filter_map(|number| u32::try_from(number).ok()).collect();
            let of_pod = by_pod.entry(one.pod.as_str()).or_default();
            *of_pod = of_pod.union(devices);
        }
        let pods = self.pods();
        let wrong = by_pod.into_iter().filter_map(|(path, devices)| {
            let pod = pods.get(path).filter(|pod| !pod.is_over())?;
            let chosen: DeviceMask = pod.annotation(DEVICES)?.parse().ok()?;
            // Where not as many are had, containers have not all started.
            (chosen != devices && chosen.count() == devices.count()).then(|| Correction {
                namespace: pod.namespace().to_owned(),
                name: pod.name().to_owned(),
                uid: pod.uid().to_owned(),
                devices,
            })
        });
        wrong.collect()
    }

    async fn correct(&self, client: &Client, correction: &Correction, metrics: &Metrics) {
        let Correction { namespace, name, uid, devices } = correction;
        let text = devices.to_string();
        let patch = json!({ "metadata": { "uid": uid, "annotations": { DEVICES: text } } });
        let api: Api<ApiPod> = Api::namespaced(client.clone(), namespace);
        // The status, because whoever may write it cannot change what a pod runs.
        match within(api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(_) => {
                metrics.corrections.inc();
                tracing::info!(
                    namespace,
                    pod = name,
                    devices = text,
                    "a pod has other devices than were chosen"
                );
                // The watch says it a moment later.
                if let Some(pod) = self.pods().get_mut(&format!("{namespace}/{name}")) {
                    pod.metadata.annotations.get_or_insert_default().insert(DEVICES.to_owned(), text);
                }
            }
            Err(why) => {
                let about = format!("Pod {namespace}/{name}");
                metrics.trouble(&Trouble::new("the devices of a pod are not corrected", about, why));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn truth(pods: &[(&str, &str, &str)]) -> Truth {
        let truth = Truth::new(["a", "b", "c", "d"].map(str::to_owned).to_vec());
        for (name, devices, phase) in pods {
            let pod = json!({
                "metadata": { "name": name, "namespace": "n", "uid": name, "annotations": { DEVICES: devices } },
                "spec": { "containers": [] }, "status": { "phase": phase },
            });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            truth.pods().insert(pod.path(), pod);
        }
        truth
    }

    fn has(pod: &str, devices: &[&str]) -> Held {
        let devices = devices.iter().map(ToString::to_string).collect();
        Held { pod: format!("n/{pod}"), container: "main".to_owned(), devices }
    }

    fn wrong(truth: &Truth, held: &[Held]) -> Vec<(String, String)> {
        let all = truth.corrections(held).into_iter();
        all.map(|correction| (correction.name, correction.devices.to_string())).collect()
    }

    #[test]
    fn two_that_were_exchanged_are_both_corrected() {
        let truth = truth(&[("x", "0", "Running"), ("y", "1", "Pending"), ("z", "2", "Running")]);
        let held = [has("x", &["b"]), has("y", &["a"]), has("z", &["c"])];
        let pair = |name: &str, devices: &str| (name.to_owned(), devices.to_owned());
        assert_eq!(wrong(&truth, &held), [pair("x", "1"), pair("y", "0")]);
    }

    #[test]
    fn containers_of_a_pod_count_together_and_the_unknown_not_at_all() {
        let truth = truth(&[("x", "0-1", "Running"), ("over", "2", "Succeeded")]);
        // The second container has not started; then it has.
        assert!(wrong(&truth, &[has("x", &["a"])]).is_empty());
        assert!(wrong(&truth, &[has("x", &["a"]), has("x", &["b"])]).is_empty());
        assert_eq!(wrong(&truth, &[has("x", &["a"]), has("x", &["d"])])[0].1, "0,3");
        assert!(wrong(&truth, &[has("over", &["d"]), has("stranger", &["d"]), has("x", &["?"])]).is_empty());
    }
}
