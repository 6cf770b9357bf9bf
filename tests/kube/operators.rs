//! Jobs of the real training operator, as users write them.

use std::collections::BTreeSet;

use phalanx_controlplane::{Fleet, Options};
use phalanx_kube::submit::{Trainer, Work};
use phalanx_kube::user::Cluster as UserCluster;
use serde_json::{Value, json};

use crate::support::record::Record;
use crate::support::{self, Cluster, JOBS, PODS, Seat, Times, assert_disjoint, pod};

const MPI_JOBS: &str = "/apis/kubeflow.org/v1/namespaces/default/mpijobs";
const TF_JOBS: &str = "/apis/kubeflow.org/v1/namespaces/default/tfjobs";
const PYTORCH_JOBS: &str = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs";
const SUCCEEDS: &str = "controlplane.phalanx.dev/succeed-after";

/// Two workers of a whole node each, and a launcher that the operator makes when they run.
const MPI_JOB: &str = "
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata:
  name: tensorflow-benchmarks
spec:
  slotsPerWorker: 8
  runPolicy:
    cleanPodPolicy: Running
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          schedulerName: phalanx
          priorityClassName: low
          containers:
          - name: mpi
            image: mpioperator/tensorflow-benchmarks:latest
            command: [mpirun, python, scripts/tf_cnn_benchmarks/tf_cnn_benchmarks.py, --model=resnet101]
            resources: {limits: {cpu: 1, memory: 2Gi}}
    Worker:
      replicas: 2
      template:
        spec:
          schedulerName: phalanx
          priorityClassName: low
          containers:
          - name: mpi
            image: mpioperator/tensorflow-benchmarks:latest
            resources: {limits: {cpu: 16, memory: 64Gi, nvidia.com/gpu: 8}}
";

const PYTORCH_JOB: &str = "
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: pytorch-simple
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: OnFailure
      template: &template
        spec:
          schedulerName: phalanx
          priorityClassName: high
          containers:
          - name: pytorch
            image: docker.io/kubeflowkatib/pytorch-mnist:v1beta1-45c5727
            command: [python3, /opt/pytorch-mnist/mnist.py, --epochs=1]
            resources: {limits: {cpu: 16, memory: 64Gi, nvidia.com/gpu: 8}}
    Worker:
      replicas: 1
      restartPolicy: OnFailure
      template: *template
";

/// All nodes, and a server of parameters beside them.
const TF_JOB: &str = "
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: multi-worker
spec:
  tfReplicaSpecs:
    PS:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          schedulerName: phalanx
          containers:
          - name: tensorflow
            image: kubeflow/tf-dist-mnist-test:latest
            resources: {limits: {cpu: 2, memory: 4Gi}}
    Chief:
      replicas: 1
      restartPolicy: Never
      template: &template
        spec:
          schedulerName: phalanx
          containers:
          - name: tensorflow
            image: kubeflow/tf-dist-mnist-test:latest
            resources: {limits: {cpu: 16, memory: 64Gi, nvidia.com/gpu: 8}}
    Worker:
      replicas: 3
      restartPolicy: Never
      template: *template
";

fn create(cluster: &Cluster, path: &str, document: &str) {
    let object: Value = serde_saphyr::from_str(document).unwrap();
    cluster.until("the kind", |cluster| cluster.api().post(path, &object).ok());
}

/// The racks, of two nodes each, on which pods with devices are.
fn racks(seats: &[Seat]) -> BTreeSet<u32> {
    let with_devices = seats.iter().filter(|seat| seat.devices.as_deref() != Some("-"));
    let node = |seat: &Seat| seat.node.as_ref()?.rsplit('-').next()?.parse::<u32>().ok();
    with_devices.map(|seat| node(seat).unwrap() / 2).collect()
}

/// Its containers end well.
fn end(cluster: &Cluster, pods: &[&str]) {
    let patch = json!({ "metadata": { "annotations": { SUCCEEDS: "1s" } } });
    for name in pods {
        cluster.api().patch(&format!("{PODS}/{name}"), &patch).unwrap();
    }
}

fn until_succeeded(cluster: &Cluster, path: &str, name: &str) {
    cluster.until(&format!("the end of {name}"), |cluster| {
        let job = cluster.api().get(&format!("{path}/{name}")).unwrap();
        let conditions = job["status"]["conditions"].as_array()?.clone();
        let is_it = |one: &Value| one["type"] == "Succeeded" && one["status"] == "True";
        conditions.iter().any(is_it).then_some(())
    });
}

#[test]
fn jobs_of_the_training_operator_start_whole_on_one_rack_make_way_by_suspension_and_succeed() {
    let options =
        Options { controller_manager: true, kwok: true, training_operator: true, ..Options::default() };
    let fleet = Fleet { nodes_per_rack: 2, ..Fleet::new(4) };
    let mut cluster = Cluster::of_fleet(&options, &fleet);
    for (name, value) in [("low", 10), ("high", 1_000), ("top", 10_000)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name }, "value": value,
        });
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class);
    }
    // Of the first rack one node is left.
    let mut taken = pod("taken", 8);
    taken["spec"]["schedulerName"] = json!("somebody-else");
    taken["spec"]["nodeName"] = json!(Fleet::name(0));
    cluster.create(PODS, &taken);
    let sizes = [("tensorflow-benchmarks", 3), ("pytorch-simple", 2)];
    let record = Record::begin(cluster.api(), sizes.map(|(name, size)| (name.to_owned(), size)));
    cluster.schedule(0);
    create(&cluster, MPI_JOBS, MPI_JOB);
    let seats = cluster.until_runs("tensorflow-benchmarks", 3);
    assert_eq!(racks(&seats), BTreeSet::from([1]), "{seats:?}");
    assert!(seats.iter().any(|seat| seat.name.ends_with("launcher")), "{seats:?}");

    create(&cluster, PYTORCH_JOBS, PYTORCH_JOB);
    let seats = cluster.until_runs("pytorch-simple", 2);
    assert_eq!(racks(&seats), BTreeSet::from([1]), "{seats:?}");
    assert_disjoint(&cluster.seats());
    let job = cluster.api().get(&format!("{MPI_JOBS}/tensorflow-benchmarks")).unwrap();
    assert_eq!(job["spec"]["runPolicy"]["suspend"], true, "{job:#}");

    // It makes way in its turn, and goes before the other when there is room.
    let mut top = support::job("top", 2, 8, &json!({}));
    top["spec"]["template"]["spec"]["priorityClassName"] = json!("top");
    cluster.create(JOBS, &top);
    cluster.until_runs("top", 2);
    let job = cluster.api().get(&format!("{PYTORCH_JOBS}/pytorch-simple")).unwrap();
    assert_eq!(job["spec"]["runPolicy"]["suspend"], true, "{job:#}");
    assert!(job["metadata"]["annotations"]["phalanx.dev/suspended"].is_string(), "{job:#}");
    cluster.api().delete(&format!("{JOBS}/top?propagationPolicy=Background")).unwrap();
    cluster.until_runs("pytorch-simple", 2);
    let job = cluster.api().get(&format!("{PYTORCH_JOBS}/pytorch-simple")).unwrap();
    assert_eq!(job["spec"]["runPolicy"]["suspend"], false, "{job:#}");
    assert!(job["metadata"]["annotations"]["phalanx.dev/suspended"].is_null(), "{job:#}");

    end(&cluster, &["pytorch-simple-master-0", "pytorch-simple-worker-0"]);
    until_succeeded(&cluster, PYTORCH_JOBS, "pytorch-simple");
    let seats = cluster.until_runs("tensorflow-benchmarks", 3);
    assert_eq!(racks(&seats), BTreeSet::from([1]), "{seats:?}");
    end(&cluster, &["tensorflow-benchmarks-launcher"]);
    until_succeeded(&cluster, MPI_JOBS, "tensorflow-benchmarks");
    cluster.until("room", |cluster| {
        let holds =
            cluster.seats().into_iter().filter(|seat| seat.gang != "taken" && seat.phase == "Running");
        (holds.count() == 0).then_some(())
    });
    // The launcher comes when the workers run: its operator has as long as a deadline.
    record.judge(Times::default().part());
    a_tf_job_starts_whole(&cluster);
    what_is_submitted_is_a_job_of_the_operator(&cluster);
}

/// One of its nodes is another's: not even the part without devices starts.
fn a_tf_job_starts_whole(cluster: &Cluster) {
    create(cluster, TF_JOBS, TF_JOB);
    let of_it = |cluster: &Cluster| {
        let seats = cluster.seats().into_iter();
        seats.filter(|seat| seat.gang == "multi-worker").collect::<Vec<_>>()
    };
    cluster.until("its five pods", |cluster| (of_it(cluster).len() == 5).then_some(()));
    cluster.until_explained("multi-worker-ps-0", "");
    assert!(of_it(cluster).iter().all(|seat| seat.node.is_none()), "{:?}", of_it(cluster));
    cluster.api().delete_now(&format!("{PODS}/taken")).unwrap();
    assert_disjoint(&cluster.until_runs("multi-worker", 5));
    end(cluster, &["multi-worker-chief-0"]);
    until_succeeded(cluster, TF_JOBS, "multi-worker");
    cluster.api().delete(&format!("{TF_JOBS}/multi-worker?propagationPolicy=Background")).unwrap();
    cluster.until("room", |cluster| of_it(cluster).is_empty().then_some(()));
}

fn what_is_submitted_is_a_job_of_the_operator(cluster: &Cluster) {
    let user = UserCluster::connect(Some(&cluster.plane.kubeconfig()), None, Some("default")).unwrap();
    let work = Work {
        name: "submitted".to_owned(),
        trainer: Trainer::PyTorch,
        workers: 2,
        gpus: 8,
        image: "none".to_owned(),
        argv: ["python", "train.py"].map(str::to_owned).to_vec(),
        ..Work::default()
    };
    assert_eq!(user.submit(&work).unwrap(), "PyTorchJob");
    let seats = cluster.until_runs("submitted", 2);
    assert_eq!(racks(&seats).len(), 1, "{seats:?}");
    let job = cluster.api().get(&format!("{PYTORCH_JOBS}/submitted")).unwrap();
    assert_eq!(job["spec"]["runPolicy"]["suspend"], false, "it was submitted as suspended");
    assert_eq!(user.job("submitted", Some(Trainer::PyTorch)).unwrap().state, "running");
}
