//! What a binding is about: the pod that was decided for, and no other of its name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use phalanx_controlplane::Fleet;
use serde_json::{Value, json};

use crate::support::front::{Fault, Front};
use crate::support::{Cluster, PODS, Times, pod};

/// A pod that fits one node only.
fn pod_for(name: &str, node: usize) -> Value {
    let mut pod = pod(name, 1);
    pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": Fleet::name(node) });
    pod
}

/// Names come again, as those of workers do: a decision that is carried out late would put the new pod where it may not be.
#[test]
fn a_late_binding_does_not_bind_another_pod_of_that_name() {
    let mut cluster = Cluster::of(2);
    let gates = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let [first, others] = gates.clone();
    let front = Front::of(&cluster.plane, move |asked| match (asked.is_binding(), asked.before) {
        (true, 0) => Fault::Gate(Arc::clone(&first)),
        (true, _) => Fault::Gate(Arc::clone(&others)),
        _ => Fault::None,
    });
    cluster.schedule_through(&front, 0, Times::default());
    cluster.create(PODS, &pod_for("twice", 0));
    cluster.until("a binding on its way", |_| (front.bindings() == 1).then_some(()));
    let path = format!("{PODS}/twice");
    cluster.api().delete_now(&path).unwrap();
    cluster.until("no pod of that name", |cluster| cluster.api().get(&path).is_err().then_some(()));
    cluster.create(PODS, &pod_for("twice", 1));
    gates[0].store(true, Ordering::Release);
    let code = cluster.until("what became of the first binding", |_| {
        let mut bindings = front.writes().into_iter().filter(|write| write.path.ends_with("/binding"));
        bindings.find_map(|write| write.done).map(|(_, code)| code)
    });
    let twice = cluster.api().get(&path).unwrap();
    assert_eq!((code, &twice["spec"]["nodeName"]), (409, &Value::Null), "{twice:#}");
    gates[1].store(true, Ordering::Release);
    let seats = cluster.until_runs("twice", 1);
    assert_eq!(seats[0].node, Some(Fleet::name(1)));
}
