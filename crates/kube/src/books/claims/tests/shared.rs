//! Claims that pods of one gang share.

use super::*;

/// One of a gang of so many, with these claims by name.
fn member(name: &str, size: u32, claims: &[&str]) -> Event {
    let claims: Vec<Value> =
        claims.iter().map(|claim| json!({ "name": claim, "resourceClaimName": claim })).collect();
    let Event::Pod(pod) = pod(name, json!({ "resourceClaims": claims })) else { unreachable!() };
    let mut pod = serde_json::to_value(*pod).unwrap();
    pod["metadata"]["labels"] = json!({
        "pod-group.scheduling.sigs.k8s.io/name": "g",
        "pod-group.scheduling.sigs.k8s.io/min-available": size.to_string(),
    });
    Event::Pod(Box::new(object(pod)))
}

/// Three pods that share a claim for two devices.
fn three(books: &mut Books) {
    for name in ["x", "y", "z"] {
        books.observe(NOW, member(name, 3, &["s"]));
    }
}

fn explained(calls: &[Call]) -> String {
    let message = |call: &Call| match call {
        Call::Explain { message, .. } => Some(message.to_string()),
        _ => None,
    };
    calls.iter().find_map(message).unwrap_or_default()
}

#[test]
fn a_gang_that_shares_a_claim_is_on_one_node_and_all_have_it() {
    let mut books = cluster(&["a", "b"]);
    tell(&mut books, claim("s", 2, None, None, json!({})));
    three(&mut books);
    let facts = books.begin(NOW);
    let jobs = jobs(&facts);
    let gang = &jobs[0].gangs[0];
    assert_eq!(gang.topology.required.as_ref().unwrap().as_str(), "node");
    assert_eq!((gang.needs.devices, gang.size), (2, 1), "its devices are counted once");
    assert_eq!((gang.roles[0].needs.devices, gang.roles[0].size), (0, 2));
    start(&mut books, jobs[0].id, 1, &[("b", "2-3"), ("b", "-"), ("b", "-")]);
    let calls = books.calls();
    let all = bound(&calls);
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|(_, _, claims)| devices(&claims[0]) == ["gpu-2", "gpu-3"]), "{all:?}");
    let users: Vec<&str> = all.iter().map(|(_, _, claims)| &*claims[0].pod.name).collect();
    assert_eq!(users, ["x", "y", "z"], "each is to be among those that it is reserved for");
    let annotated: Vec<&str> = all.iter().map(|(_, devices, _)| &**devices).collect();
    assert_eq!(annotated, ["2-3", "-", "-"]);
}

#[test]
fn a_claim_that_some_of_a_gang_share_keeps_it_pending_by_its_field() {
    let mut books = cluster(&["a"]);
    tell(&mut books, claim("s", 2, None, None, json!({})));
    for (name, claims) in [("x", ["s"].as_slice()), ("y", &["s"]), ("z", &[])] {
        books.observe(NOW, member(name, 3, claims));
    }
    assert_eq!(jobs(&books.begin(NOW)), []);
    let why = explained(&books.calls());
    assert!(
        why.contains("not supported: spec.resourceClaims[s]: 2 of 3 pods of the gang share ResourceClaim s"),
        "{why}"
    );
    // Once somebody has allocated it they go where it is.
    tell(&mut books, claim("s", 2, None, None, allocated("a", &[0, 1], &["foreign"])));
    assert_eq!(jobs(&books.settle(NOW)).len(), 1);
}

#[test]
fn what_a_gang_shares_goes_back_for_each_of_its_pods() {
    let mut books = cluster(&["a"]);
    tell(&mut books, claim("s", 2, None, None, json!({})));
    three(&mut books);
    let facts = books.begin(NOW);
    let job = jobs(&facts)[0].id;
    start(&mut books, job, 1, &[("a", "0-1"), ("a", "-"), ("a", "-")]);
    assert_eq!(bound(&books.calls()).len(), 3);
    tell(&mut books, claim("s", 2, None, None, allocated("a", &[0, 1], &["y", "x", "z"])));
    books.gang_waits(GangId { job, index: 0 });
    assert_eq!(released(&books.calls()), ["s"; 3]);
    start(&mut books, job, 2, &[("a", "4-5"), ("a", "-"), ("a", "-")]);
    for users in [["x", "z"].as_slice(), &["z"], &[]] {
        assert_eq!(bound(&books.calls()), [], "it has not gone back for all");
        let status = if users.is_empty() { json!({}) } else { allocated("a", &[0, 1], users) };
        let DeviceEvent::Claim(now) = claim("s", 2, None, None, status) else { unreachable!() };
        let (namespace, name) = ("default".to_owned(), "s".to_owned());
        tell(&mut books, DeviceEvent::Released { namespace, name, claim: Some(now), is_gone: false });
    }
    let calls = books.calls();
    assert_eq!(devices(&bound(&calls)[1].2[0]), ["gpu-4", "gpu-5"]);
}

/// A scheduler was killed after the claim was written and before any pod was bound.
#[test]
fn what_a_gang_that_waits_shares_since_before_goes_back_first() {
    let mut books = cluster(&["a", "b"]);
    tell(&mut books, claim("s", 2, None, None, allocated("a", &[0, 1], &["y", "x"])));
    three(&mut books);
    let facts = books.begin(NOW);
    assert_eq!(released(&books.calls()), ["s", "s"]);
    let gang = &jobs(&facts)[0].gangs[0];
    assert_eq!((gang.needs.devices, gang.topology.required.as_ref().unwrap().as_str()), (2, "node"));
}
