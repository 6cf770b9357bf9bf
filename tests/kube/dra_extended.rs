//! Pods that ask for extended resources, which claims serve where no device plugin has them.

use phalanx_controlplane::{Fleet, GPU, Options};
use serde_json::{Value, json};

use crate::dra_gangs::{CLAIMS, assert_exact, claims, define_as, held, of_products, started_by_many};
use crate::support::{Cluster, JOBS, PODS, job, pod};

/// Nodes without a device plugin; a driver publishes 8 GPUs on each, which a class offers under the plugin's name.
fn cluster(options: &Options, nodes: usize) -> Cluster {
    let cluster = of_products(Cluster::with(options, 0), &vec!["A100"; nodes]);
    define_as(&cluster, Some(GPU));
    cluster
}

fn options() -> Options {
    Options { controller_manager: true, kwok: true, ..Options::default() }
}

/// Pods that go at once when they are deleted.
fn job_of(name: &str, pods: u32, gpus: u32) -> Value {
    let mut job = job(name, pods, gpus, &json!({}));
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(0);
    job
}

fn delete(cluster: &Cluster, job: &str) {
    cluster.api().delete(&format!("{JOBS}/{job}?propagationPolicy=Background")).unwrap();
}

#[test]
fn pods_that_ask_for_an_extended_resource_are_served_by_claims() {
    let mut cluster = cluster(&options(), 2);
    cluster.schedule(0);
    cluster.create(JOBS, &job_of("train", 4, 4));
    let seats = cluster.until_runs("train", 4);
    assert_exact(&cluster, &seats);
    let made = claims(&cluster);
    assert_eq!(made.len(), 4, "one for each pod");
    // All devices are held; a node with a device plugin needs no claim.
    cluster.create(JOBS, &job_of("plain", 1, 8));
    let name = cluster.until("a pod of plain", |cluster| {
        cluster.seats().into_iter().find(|seat| seat.gang == "plain").map(|seat| seat.name)
    });
    cluster.until_explained(&name, "needs 1 member");
    cluster.create("/api/v1/nodes", &Fleet::new(3).node(2));
    let seats = cluster.until_runs("plain", 1);
    assert_eq!(seats[0].node, Some(Fleet::name(2)));
    let plain = cluster.api().get(&format!("{PODS}/{name}")).unwrap();
    assert_eq!((claims(&cluster).len(), &plain["status"]["extendedResourceClaimStatus"]), (4, &Value::Null));
    // What was given away is free again.
    delete(&cluster, "train");
    cluster.create(JOBS, &job_of("next", 2, 8));
    assert_exact(&cluster, &cluster.until_runs("next", 2));
    delete(&cluster, "next");
    cluster.until("all claims gone", |cluster| claims(cluster).is_empty().then_some(()));
}

/// Containers of pods, those that go first and the others.
fn shapes() -> Vec<(Value, Value)> {
    let container = |name: &str, gpus: u32| {
        let mut container = pod("", gpus)["spec"]["containers"][0].take();
        container["name"] = json!(name);
        container["resources"]["limits"]["cpu"] = json!("100m");
        container
    };
    let mut sidecar = container("sidecar", 1);
    sidecar["restartPolicy"] = json!("Always");
    let mut by_class = container("main", 0);
    by_class["resources"]["limits"]["deviceclass.resource.kubernetes.io/gpu"] = json!("2");
    let mut both = container("both", 2);
    both["resources"]["limits"]["deviceclass.resource.kubernetes.io/gpu"] = json!("1");
    vec![
        (json!([]), json!([container("main", 3)])),
        (json!([]), json!([container("a", 1), container("b", 0), container("c", 2)])),
        (json!([container("first", 3), sidecar, container("second", 4)]), json!([container("main", 1)])),
        (json!([container("first", 2)]), json!([container("a", 1), container("b", 2)])),
        (json!([]), json!([by_class])),
        (json!([]), json!([both])),
    ]
}

/// What a pod has by its claim, without names, devices and times.
fn served(cluster: &Cluster, name: &str) -> Value {
    let pod = cluster.api().get(&format!("{PODS}/{name}")).unwrap();
    let status = &pod["status"]["extendedResourceClaimStatus"];
    let claim =
        cluster.api().get(&format!("{CLAIMS}/{}", status["resourceClaimName"].as_str().unwrap())).unwrap();
    let metadata = &claim["metadata"];
    assert_eq!(metadata["ownerReferences"][0]["uid"], pod["metadata"]["uid"]);
    assert_eq!(metadata["generateName"], json!(format!("{name}-extended-resources-")));
    assert!(held(&claim).iter().all(|(node, _)| pod["spec"]["nodeName"] == json!(node)), "{claim:#}");
    let results = claim["status"]["allocation"]["devices"]["results"].as_array().unwrap().iter();
    let requests: Vec<&Value> = results.map(|result| &result["request"]).collect();
    let mut owner = metadata["ownerReferences"][0].clone();
    owner.as_object_mut().unwrap().retain(|key, _| !matches!(&**key, "name" | "uid"));
    json!({
        "spec": claim["spec"], "mappings": status["requestMappings"], "results": requests, "owner": owner,
        "annotations": metadata["annotations"], "finalizers": metadata["finalizers"],
        "users": claim["status"]["reservedFor"].as_array().unwrap().len(),
    })
}

#[test]
fn claims_for_extended_resources_are_those_that_kube_scheduler_makes() {
    let mut cluster = cluster(&Options { kube_scheduler: true, ..options() }, 8);
    let create = |cluster: &Cluster, who: &str, scheduler: &str| {
        for (at, (init, containers)) in shapes().into_iter().enumerate() {
            let mut pod = pod(&format!("{who}-{at}"), 0);
            pod["spec"]["schedulerName"] = json!(scheduler);
            pod["spec"]["initContainers"] = init;
            pod["spec"]["containers"] = containers;
            cluster.create(PODS, &pod);
        }
        for at in 0..shapes().len() {
            cluster.until_runs(&format!("{who}-{at}"), 1);
        }
    };
    create(&cluster, "theirs", "default-scheduler");
    cluster.schedule(0);
    create(&cluster, "ours", "phalanx");
    for at in 0..shapes().len() {
        let (ours, theirs) =
            (served(&cluster, &format!("ours-{at}")), served(&cluster, &format!("theirs-{at}")));
        assert_eq!(ours, theirs, "shape {at}: ours {ours:#}\ntheirs {theirs:#}");
    }
    // No device is held twice.
    let all: Vec<_> = claims(&cluster).iter().flat_map(held).collect();
    assert_eq!(all.len(), all.iter().collect::<std::collections::BTreeSet<_>>().len());
}

/// Some of the kills are between a claim and the binding that it is made for.
#[test]
fn a_pod_never_has_two_claims_whenever_the_scheduler_is_killed() {
    let mut cluster = cluster(&options(), 6);
    let all = started_by_many(&mut cluster, |name| job_of(name, 4, 2));
    assert_exact(&cluster, &all);
    assert_eq!(claims(&cluster).len(), all.len(), "one for each pod, and none that nobody has");
}
