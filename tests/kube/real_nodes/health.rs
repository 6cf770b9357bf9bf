//! Sick hardware under real kubelets: the kernel log of a node, what operators say, and where gangs run then.

use std::fs::OpenOptions;
use std::io::Write;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Site, real_job};
use crate::nodes::address;
use crate::support::{JOBS, Seat, assert_disjoint};

const TOPOLOGIES: &str = "/apis/phalanx.dev/v1alpha1/nodetopologies";

impl Site {
    /// The kernel of a node says that a device has an error.
    fn xid(&self, at: usize, number: u32, device: usize) {
        let mut log = OpenOptions::new().append(true).open(self.machine(at).with_extension("kmsg")).unwrap();
        let address = address(device);
        let address = address.strip_suffix(".0").unwrap();
        writeln!(log, "[  100.000001] NVRM: Xid (PCI:{address}): {number}, pid=1, name=x, the device")
            .unwrap();
    }

    fn topology(&self, at: usize) -> Value {
        self.cluster.api().get(&format!("{TOPOLOGIES}/{}", self.node(at).name())).unwrap()
    }

    /// Waits until an agent says this of a device.
    fn until_graded(&self, at: usize, device: usize, grade: Option<&str>) -> Value {
        self.cluster.until(&format!("{grade:?} of GPU {device} of node {at}"), |_| {
            let health = self.topology(at)["spec"]["devices"][device]["health"].take();
            (health["grade"].as_str() == grade).then_some(health)
        })
    }

    fn ask(&self, at: usize, annotation: &str, value: &str) {
        let path = format!("{TOPOLOGIES}/{}", self.node(at).name());
        let annotations = json!({ annotation: value });
        self.cluster.api().patch(&path, &json!({ "metadata": { "annotations": annotations } })).unwrap();
        self.cluster.until("an answer of the agent", |_| {
            self.topology(at)["metadata"]["annotations"][annotation].is_null().then_some(())
        });
    }

    /// All of a gang that does not use this device of this node.
    fn until_off(&self, at: usize, device: u32, pods: usize) -> Vec<Seat> {
        let node = self.node(at).name();
        let has = |seat: &Seat| {
            let devices: phalanx_model::DeviceMask = seat.devices.as_ref().unwrap().parse().unwrap();
            seat.node.as_deref() == Some(node) && devices.contains(device)
        };
        self.cluster.until(&format!("all of it off GPU {device} of {node}"), |cluster| {
            let mut seats = cluster.seats();
            seats.retain(|seat| seat.gang == "ring" && seat.phase == "Running");
            (seats.len() == pods && !seats.iter().any(has)).then_some(seats)
        })
    }
}

/// What ran on the device failed by itself sooner or later, and what came next was given it again.
#[test]
fn a_gang_leaves_a_gpu_that_the_kernel_reports_and_nothing_starts_there_until_it_is_repaired() {
    let Some(mut site) = Site::of(2) else { return };
    for at in 0..2 {
        std::fs::write(site.machine(at).with_extension("kmsg"), "").unwrap();
    }
    site.serve_all();
    site.cluster.schedule(0);
    site.cluster.create(JOBS, &real_job("ring", 2, 4, "sleep inf"));
    let before = site.cluster.until_runs("ring", 2);
    let at = site.place(before[0].node.as_deref().unwrap());
    assert_eq!(before[0].node, before[1].node, "near to each other");

    // The fault of a program closes nothing, and what the table does not know neither.
    site.xid(at, 31, 2);
    site.xid(at, 9_999, 2);
    site.until_graded(at, 2, Some("Suspect"));
    // The GPU has fallen off the bus.
    let began = Instant::now();
    site.xid(at, 79, 2);
    let after = site.until_off(at, 2, 2);
    println!("the whole gang runs elsewhere {:.1} s after the Xid", began.elapsed().as_secs_f64());
    assert_disjoint(&after);
    let health = site.until_graded(at, 2, Some("Broken"));
    assert!(health["reason"].as_str().unwrap().starts_with("Xid 79"), "{health}");
    assert_eq!((&health["repair"], &health["automatic"]), (&json!("Reboot"), &json!(true)), "{health}");
    // No pod of anybody gets it.
    site.until_offers(at, 7);
    let events = site.cluster.api().get("/api/v1/namespaces/default/events").unwrap().to_string();
    assert!(events.contains("is graded broken: Xid 79"), "{events}");

    // An agent that starts anew knows what the one before it knew.
    site.cluster.kill(at);
    site.serve(at);
    site.until_offers(at, 7);
    site.until_graded(at, 2, Some("Broken"));

    // Repaired: on probation.
    site.ask(at, "phalanx.dev/clear-gpu-2", "the board was changed");
    let health = site.until_graded(at, 2, Some("Suspect"));
    assert!(health["reason"].as_str().unwrap().contains("on probation"), "{health}");
    let said = site.cluster.log();
    let done = said.lines().filter(|line| line.contains("an operator asked, and it is done")).count();
    assert_eq!(done, 1, "what the agent writes shows it the request again: {said}");
    site.until_offers(at, 8);

    // What an operator closes stays so, over all: also the gang's new place.
    let at = site.place(after[0].node.as_deref().unwrap());
    site.ask(at, "phalanx.dev/report-node", "grade=broken the fans are to be changed");
    site.cluster.until("all of it on the other node", |cluster| {
        let mut seats = cluster.seats();
        let node = site.node(at).name();
        seats.retain(|seat| seat.phase == "Running" && seat.node.as_deref() != Some(node));
        (seats.len() == 2).then_some(())
    });
    site.ask(at, "phalanx.dev/report-node", "what?");
    assert!(site.cluster.log().contains("a request cannot be followed"));
    assert_eq!(site.topology(at)["spec"]["health"]["grade"], "Broken");
}
