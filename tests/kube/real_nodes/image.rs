//! The image that `make image` writes, in the pods that `deploy/base` makes.

use std::path::{Path, PathBuf};

use phalanx_controlplane::{Fleet, Options, RELEASE};
use serde_json::{Value, json};

use super::{can_run, real_job};
use crate::manifests::create_all;
use crate::queues;
use crate::support::role::NAMESPACE;
use crate::support::{Cluster, JOBS, PODS};

/// `make test-kubelet` names the archive that it has just written.
fn archive() -> PathBuf {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/phalanx-image.tar");
    let archive = std::env::var_os("PHALANX_IMAGE").map_or_else(usual, PathBuf::from);
    assert!(archive.exists(), "{} is not there: make image", archive.display());
    archive
}

/// What the pods of a workload printed, for a test that fails.
fn printed(cluster: &Cluster) -> String {
    let pods = cluster.api().get(&format!("/api/v1/namespaces/{NAMESPACE}/pods")).unwrap();
    let each = pods["items"].as_array().unwrap().iter().map(|pod| {
        let name = pod["metadata"]["name"].as_str().unwrap();
        format!("{name}: {}\n{}", pod["status"], cluster.plane.nodes()[0].printed(NAMESPACE, name))
    });
    each.collect::<Vec<_>>().join("\n")
}

/// Says of a test that fails why the pods did not come up.
struct Told<'a>(&'a Cluster);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", printed(self.0));
        }
    }
}

#[test]
#[ignore = "needs the archive of make image"]
fn scheduler_and_agent_run_from_the_image_as_they_are_shipped() {
    if !can_run() {
        return;
    }
    // kube-scheduler places the pods of the Deployment and of the DaemonSet.
    let options =
        Options { controller_manager: true, kube_scheduler: true, real_nodes: 1, ..Options::default() };
    let cluster = Cluster::of_fleet(&options, &Fleet::new(0));
    cluster.plane.import_archive(&archive()).unwrap();
    queues::define(&cluster);
    create_all(cluster.api(), "base");
    let _told = Told(&cluster);

    let deployment = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments/phalanx-scheduler");
    cluster.until("two schedulers that are ready", |cluster| {
        (cluster.api().get(&deployment).unwrap()["status"]["readyReplicas"] == 2).then_some(())
    });
    let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/phalanx-scheduler");
    cluster.until("a leader", |cluster| {
        let lease = cluster.api().get(&lease).ok()?;
        lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty()).then_some(())
    });
    let node = cluster.plane.nodes()[0].name();
    let machine = format!("/apis/phalanx.dev/v1alpha1/nodetopologies/{node}");
    cluster.until("what the agent found", |cluster| cluster.api().get(&machine).ok());
    let mut gang = real_job("train", 2, 0, "sleep inf");
    let limits = &mut gang["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
    limits.as_object_mut().unwrap().remove(phalanx_controlplane::GPU);
    cluster.create(JOBS, &gang);
    let ranks: Vec<Option<u32>> = cluster.until_runs("train", 2).iter().map(|seat| seat.rank).collect();
    assert!(ranks.contains(&Some(0)) && ranks.contains(&Some(1)), "{ranks:?}");

    // The kubelet reads from the image that it does not run as root.
    let version = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "version"}, "spec": {
        "nodeName": node, "restartPolicy": "Never", "securityContext": {"runAsNonRoot": true},
        "containers": [{"name": "main", "image": RELEASE, "imagePullPolicy": "Never", "args": ["--version"]}]}});
    cluster.create(PODS, &version);
    let phase = cluster.until("the end of a pod", |cluster| {
        let pod = cluster.api().get(&format!("{PODS}/version")).unwrap();
        let phase = pod["status"]["phase"].clone();
        matches!(phase.as_str(), Some("Succeeded" | "Failed")).then_some(phase)
    });
    let said = cluster.plane.nodes()[0].printed("default", "version");
    assert_eq!(phase, Value::from("Succeeded"), "{said}");
    assert!(said.starts_with(concat!("phalanx ", env!("CARGO_PKG_VERSION"))), "{said}");
}
