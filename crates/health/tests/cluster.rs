//! Many nodes: the circuit breaker, facts, and nodes that come and go.

#![allow(clippy::unwrap_used)]

mod site;

use phalanx_health::{Evidence, Next, State};
use phalanx_model::Grade;
use site::{DAY, HOUR, Site, node};

#[test]
fn the_circuit_breaker_closes_a_share_and_goes_on_when_there_is_room() {
    let mut site = Site::new(10, 8);
    for n in 0..10 {
        (0..8).for_each(|device| site.xid(n, device, 1, 79));
    }
    assert_eq!(site.closed().len(), 16);
    let text = "64 grades are held: automation closed 16 of 80 devices, and closes up to 16";
    assert_eq!(site.grader.is_breaker_open().as_deref(), Some(text));
    let line = site.line(9, Some(7)).unwrap();
    assert_eq!((line.grade, line.held, line.next), (Grade::Suspect, Some(Grade::Broken), Next::Held));
    site.pass(40 * DAY);
    assert_eq!((site.closed().len(), site.grade(2, 0)), (16, Grade::Suspect));
    // People are not held, and take no room from automation.
    site.report(9, Some(7), Grade::DrainNow);
    assert_eq!((site.grade(9, 7), site.closed().len()), (Grade::DrainNow, 17));
    site.reboot(0);
    assert_eq!(site.closed().len(), 9);
    site.pass(1);
    assert_eq!(site.closed().len(), 17);
    assert_eq!(site.grade(2, 0), Grade::Broken, "the first in order");
    // All devices of a node.
    let mut site = Site::new(9, 8);
    let xid = |number| Evidence::Xid { number, text: String::new() };
    site.observe(0, None, 1, xid(62));
    site.observe(1, None, 1, xid(62));
    assert_eq!(site.closed(), [(node(0), None)]);
    site.restart();
    site.reboot(0);
    site.pass(1);
    assert_eq!(site.closed(), [(node(1), None)]);
}

#[test]
fn nodes_and_devices_come_and_go() {
    let mut site = Site::new(2, 8);
    let products = |count: usize| vec!["NVIDIA H100 80GB HBM3".to_owned(); count];
    site.xid(0, 7, 1, 79);
    site.xid(1, 7, 1, 79);
    assert_eq!(site.grader.take_changes().len(), 2);
    site.grader.set_nodes([(node(0), products(4))]);
    let facts: Vec<String> = site
        .grader
        .take_changes()
        .iter()
        .map(|of| format!("{} {} {}", of.node, of.devices, of.grade))
        .collect();
    assert_eq!(facts, ["n0 7 ok"]);
    site.grader.set_nodes([(node(0), products(100)), (node(1), products(8))]);
    assert!(site.grader.report().is_empty() && site.grader.take_changes().is_empty());
    site.xid(0, 64, 1, 79);
    assert!(site.grader.report().is_empty(), "the 65th device");
}

#[test]
fn equal_grades_are_one_fact() {
    let mut site = Site::new(10, 8);
    for device in [1, 2, 5] {
        site.xid(0, device, 1, 48);
    }
    site.xid(0, 4, 1, 79);
    let shown = |site: &mut Site| -> Vec<String> {
        let facts = site.grader.take_changes();
        facts.iter().map(|of| format!("{} {}: {}", of.devices, of.grade, of.detail)).collect()
    };
    let expected = [
        "4 broken: Xid 79: the GPU has fallen off the bus",
        "1-2,5 drain_now: Xid 48: a double-bit ECC error",
    ];
    assert_eq!(shown(&mut site), expected);
    assert!(shown(&mut site).is_empty());
    // A change that was undone before it was taken is none.
    site.xid(0, 7, 1, 63);
    site.restart();
    site.pass(HOUR);
    assert!(shown(&mut site).is_empty());
}

#[test]
fn a_state_of_another_version_is_refused() {
    let error = serde_json::from_str::<State>(r#"{"version": 2, "pods": {}}"#).unwrap_err().to_string();
    assert!(error.starts_with("the health state has version 2, and this program reads version 1"), "{error}");
}

/// A fifth of eight devices is one; on one machine several may be sick at once.
#[test]
fn in_a_small_cluster_up_to_half_may_be_closed() {
    let mut site = Site::new(1, 8);
    (0..8).for_each(|device| site.xid(0, device, 1, 48));
    let closed = (0..8).filter(|device| site.line(0, Some(*device)).is_some_and(|l| l.grade.is_closed()));
    assert_eq!(closed.count(), 4);
    assert!(site.grader.is_breaker_open().is_some());
}

/// An operator who drains half of the cluster does not keep automation from a GPU that fell off the bus.
#[test]
fn what_people_close_takes_no_room_from_automation() {
    let mut site = Site::new(4, 8);
    (0..2).for_each(|node| site.report(node, None, Grade::DrainAfterJob));
    site.xid(2, 3, 1, 79);
    assert_eq!(site.grade(2, 3), Grade::Broken);
    assert_eq!(site.grader.is_breaker_open(), None);
}
