//! Queues whose gangs go to some nodes only.

use super::*;

fn queue(name: &str, nodes: &Value) -> Event {
    let queue = json!({ "apiVersion": "phalanx.dev/v1alpha1", "kind": "Queue", "metadata": { "name": name },
        "spec": { "namespaces": {}, "nodes": nodes } });
    Event::Queue(Box::new(serde_json::from_value(queue).unwrap()))
}

fn labelled(at: usize, room: &str) -> Value {
    let mut node = node_object(at);
    node["metadata"]["labels"][ROOM] = json!(room);
    node
}

#[test]
fn gangs_of_a_queue_go_to_nodes_with_its_labels() {
    let mut play = Play::of(6);
    let of_room = |room: &str| json!({ "required": [{ "labels": { ROOM: room } }] });
    play.lifecycle.observe(NOW, queue("default", &of_room("r1")));
    // Rooms go round: a node in each zone is in room r1.
    play.member("ring-0", "ring", Some(("ring", 2)), &json!({}));
    play.member("ring-1", "ring", Some(("ring", 2)), &json!({}));
    play.turn();
    let in_room = |play: &Play| {
        let nodes: BTreeSet<String> = play.places("ring").into_iter().map(str::to_owned).collect();
        nodes
    };
    let room: BTreeSet<String> = [1, 4].map(node_name).into();
    assert!(in_room(&play).is_subset(&room) && play.places("ring").len() == 2, "{:?}", play.bound);

    // Another room: what waits goes there, also to a node that gets the label later.
    play.lifecycle.observe(NOW, queue("default", &of_room("attic")));
    play.member("late-0", "late", Some(("late", 1)), &json!({}));
    play.turn();
    assert_eq!(play.places("late"), Vec::<&str>::new(), "{:?}", play.reasons);
    play.node(labelled(3, "attic"));
    play.turn();
    assert_eq!(play.places("late"), [node_name(3).as_str()]);

    // Preferred nodes are left where they are full.
    play.fill(&node_name(3), "7");
    play.lifecycle.observe(NOW, queue("default", &json!({ "preferred": [{ "labels": { ROOM: "attic" } }] })));
    play.member("more-0", "more", Some(("more", 1)), &json!({}));
    play.turn();
    assert_eq!(play.places("more").len(), 1, "{:?}", play.reasons);
    assert_ne!(play.places("more"), [node_name(3).as_str()]);
}
