//! Claims of upstream's groups.

use super::*;

/// A group that has one claim, made from a template; and so many of its pods, which name it as the group does.
fn group_of(lifecycle: &mut Lifecycle, pods: u32) {
    let spec = json!({ "schedulingPolicy": { "gang": { "minCount": pods } },
        "resourceClaims": [{ "name": "gpus", "resourceClaimTemplateName": "t" }] });
    let group = json!({ "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
        "metadata": { "name": "g", "namespace": "default", "uid": "uid-g" }, "spec": spec });
    lifecycle.observe(NOW, Event::Object(Box::new(object(group))));
    for at in 0..pods {
        lifecycle.observe(NOW, member(at, json!({})));
    }
}

fn member(at: u32, more: Value) -> Event {
    let statuses = json!([{ "name": "gpus", "resourceClaimName": "g-c" }]);
    let mut pod = json!({
        "metadata": { "name": format!("p{at}"), "namespace": "default", "uid": format!("uid-p{at}") },
        "spec": { "schedulerName": "phalanx", "containers": [{ "name": "main" }],
            "schedulingGroup": { "podGroupName": "g" },
            "resourceClaims": [{ "name": "gpus", "resourceClaimTemplateName": "t" }] },
        "status": { "resourceClaimStatuses": statuses },
    });
    for (key, value) in more.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    Event::Pod(Box::new(object(pod)))
}

/// The claim that was made for the group.
fn of_group(status: Value) -> DeviceEvent {
    let DeviceEvent::Claim(mut claim) = claim("g-c", 2, None, Some("g"), status) else { unreachable!() };
    claim.metadata.owner_references.as_mut().unwrap()[0].kind = "PodGroup".to_owned();
    DeviceEvent::Claim(claim)
}

fn held(node: &str, devices: &[u32]) -> Value {
    let mut status = allocated(node, devices, &[]);
    status["reservedFor"] =
        json!([{ "apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g" }]);
    status
}

#[test]
fn a_claim_of_a_group_is_given_once_and_reserved_for_the_group() {
    let mut lifecycle = cluster(&["a", "b"]);
    tell(&mut lifecycle, of_group(json!({})));
    group_of(&mut lifecycle, 3);
    let facts = lifecycle.begin(NOW);
    let jobs = jobs(&facts);
    let gang = &jobs[0].gangs[0];
    assert_eq!((gang.needs.devices, gang.size, gang.roles[0].needs.devices), (2, 1, 0));
    assert_eq!(gang.topology.required.as_ref().unwrap().as_str(), "node");
    start(&mut lifecycle, jobs[0].id, 1, &[("b", "2-3"), ("b", "-"), ("b", "-")]);
    let all = bound(&lifecycle.calls());
    assert_eq!(all.len(), 3);
    for (pod, _, claims) in &all {
        assert_eq!(devices(&claims[0]), ["gpu-2", "gpu-3"], "{pod}");
        let user = &claims[0].user;
        assert_eq!((&*user.resource, &*user.name, &*user.uid), ("podgroups", "g", "uid-g"), "{pod}");
        assert_eq!(user.api_group.as_deref(), Some("scheduling.k8s.io"));
    }
    assert_eq!(all.iter().map(|(_, devices, _)| &**devices).collect::<Vec<_>>(), ["2-3", "-", "-"]);
}

#[test]
fn what_a_group_has_goes_back_once_and_not_while_a_pod_of_it_is_there() {
    for is_bound in [false, true] {
        let mut lifecycle = cluster(&["a"]);
        tell(&mut lifecycle, of_group(json!({})));
        group_of(&mut lifecycle, 3);
        let facts = lifecycle.begin(NOW);
        let job = jobs(&facts)[0].id;
        start(&mut lifecycle, job, 1, &[("a", "0-1"), ("a", "-"), ("a", "-")]);
        let calls = lifecycle.calls();
        assert_eq!(bound(&calls).len(), 3);
        tell(&mut lifecycle, of_group(held("a", &[0, 1])));
        let annotations = calls.iter().find_map(|call| match call {
            Call::Bind { pod, annotations, .. } if &*pod.name == "p1" => Some(annotations.clone()),
            _ => None,
        });
        if is_bound {
            let Event::Pod(mut pod) = member(1, json!({ "nodeName": "a" })) else { unreachable!() };
            pod.metadata.annotations = annotations;
            lifecycle.observe(NOW, Event::Pod(pod));
        }
        lifecycle.gang_waits(GangId { job, index: 0 });
        let expected: &[&str] = if is_bound { &[] } else { &["g-c"] };
        assert_eq!(released(&lifecycle.calls()), expected);
    }
}

/// A scheduler was killed after the claim was written and before any pod was bound.
#[test]
fn what_a_group_that_waits_has_since_before_goes_back_first() {
    let mut lifecycle = cluster(&["a", "b"]);
    tell(&mut lifecycle, of_group(held("a", &[0, 1])));
    group_of(&mut lifecycle, 3);
    let facts = lifecycle.begin(NOW);
    assert_eq!(released(&lifecycle.calls()), ["g-c"]);
    assert_eq!(jobs(&facts)[0].gangs[0].needs.devices, 2);
}

/// What a pod calls otherwise than its group is its own.
#[test]
fn a_claim_that_the_group_does_not_name_alike_is_reserved_for_the_pod() {
    let mut lifecycle = cluster(&["a"]);
    tell(&mut lifecycle, of_group(json!({})));
    tell(&mut lifecycle, claim("own", 1, None, None, json!({})));
    group_of(&mut lifecycle, 1);
    let claims = json!([{ "name": "gpus", "resourceClaimTemplateName": "t" }, { "name": "own", "resourceClaimName": "own" }]);
    lifecycle.observe(NOW, member(0, json!({ "resourceClaims": claims })));
    let facts = lifecycle.begin(NOW);
    start(&mut lifecycle, jobs(&facts)[0].id, 1, &[("a", "0-2")]);
    let all = bound(&lifecycle.calls());
    let users: Vec<&str> = all[0].2.iter().map(|claim| &*claim.user.resource).collect();
    assert_eq!(users, ["podgroups", "pods"]);
}

/// Nobody else would: the group is there when its pods are gone.
#[test]
fn what_a_group_has_goes_back_when_its_pods_are_gone() {
    let mut lifecycle = cluster(&["a"]);
    tell(&mut lifecycle, of_group(json!({})));
    group_of(&mut lifecycle, 2);
    let facts = lifecycle.begin(NOW);
    let job = jobs(&facts)[0].id;
    start(&mut lifecycle, job, 1, &[("a", "0-1"), ("a", "-")]);
    assert_eq!(bound(&lifecycle.calls()).len(), 2);
    tell(&mut lifecycle, of_group(held("a", &[0, 1])));
    for at in 0..2 {
        let (namespace, name, uid) = ("default".to_owned(), format!("p{at}"), format!("uid-p{at}"));
        lifecycle.observe(NOW, Event::PodGone { namespace, name, uid });
    }
    lifecycle.gang_waits(GangId { job, index: 0 });
    assert_eq!(released(&lifecycle.calls()), ["g-c"]);
}
