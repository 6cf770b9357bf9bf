//! Who gets which devices.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use phalanx_model::DeviceMask;

use super::{Site, real_job, real_pod};
use crate::nodes::{describe, uuid};
use crate::support::{JOBS, PODS, Seat, assert_disjoint};

/// What containers see, and what else the script is to do.
const SEES: &str = "echo GPUS=$NVIDIA_VISIBLE_DEVICES; sleep inf";

/// The containers of these pods see the devices that were chosen for them, and no other.
fn assert_sees_its_own(site: &Site, seats: &[Seat]) {
    for seat in seats {
        let chosen: DeviceMask = seat.devices.as_ref().unwrap().parse().unwrap();
        let mut chosen: Vec<String> = chosen.iter().map(|device| uuid(device as usize)).collect();
        let seen = site.until_printed(seat, "GPUS=");
        let mut seen: Vec<String> = seen.split(',').map(str::to_owned).collect();
        chosen.sort();
        seen.sort();
        assert_eq!(seen, chosen, "{seat:?}");
    }
}

#[test]
fn containers_see_the_chosen_devices_over_restarts_and_a_device_that_is_lost() {
    let Some(mut site) = Site::of(2) else { return };
    site.serve_all();
    site.cluster.schedule(0);
    site.cluster.create(JOBS, &real_job("ring", 4, 4, SEES));
    let ring = site.cluster.until_runs("ring", 4);
    assert_disjoint(&ring);
    assert_sees_its_own(&site, &ring);

    // The kubelet removes the sockets of all plugins when it starts, and what runs goes on.
    let started = |site: &Site| {
        let pods = site.cluster.api().get(PODS).unwrap();
        let pods = pods["items"].as_array().unwrap().iter();
        pods.map(|pod| pod["status"]["containerStatuses"][0]["containerID"].to_string()).collect::<Vec<_>>()
    };
    let before = started(&site);
    site.cluster.plane.start_kubelet(0).unwrap();
    site.until_offers(0, 8);
    assert_eq!(started(&site), before, "containers that ran go on");
    site.cluster.api().delete(&format!("{JOBS}/ring?propagationPolicy=Background")).unwrap();
    site.cluster.create(JOBS, &real_job("again", 2, 8, SEES));
    let again = site.cluster.until_runs("again", 2);
    assert_sees_its_own(&site, &again);
    site.cluster.api().delete(&format!("{JOBS}/again?propagationPolicy=Background")).unwrap();

    // A device that is lost: the kubelet offers seven, and eight go elsewhere.
    describe(&site.machine(0), (0..8).filter(|device| *device != 3));
    site.until_offers(0, 7);
    site.cluster.create(PODS, &real_pod("eight", 8, SEES));
    let eight = site.cluster.until_runs("eight", 1);
    assert_eq!(eight[0].node.as_deref(), Some(site.node(1).name()));
    site.cluster.create(PODS, &real_pod("more", 8, SEES));
    site.cluster.until_explained("more", "needs");
    site.cluster.api().delete(&format!("{PODS}/more")).unwrap();
    site.cluster.create(PODS, &real_pod("seven", 7, SEES));
    let seven = site.cluster.until_runs("seven", 1);
    assert_eq!(seven[0].devices.as_deref(), Some("0-2,4-7"));
    assert_sees_its_own(&site, &seven);
}

/// The socket of the plugin is gone with the kubelet that removed it, and the node offers devices of nobody for a while.
#[test]
fn an_agent_that_starts_after_its_kubelet_did_hands_out_devices_again() {
    let Some(mut site) = Site::of(1) else { return };
    let agent = site.serve(0);
    site.until_offers(0, 8);
    kill(Pid::from_raw(i32::try_from(agent).unwrap()), Signal::SIGKILL).unwrap();
    site.cluster.until_ended();
    site.cluster.plane.start_kubelet(0).unwrap();
    site.serve(0);
    site.until_offers(0, 8);
    site.cluster.schedule(0);
    site.cluster.create(PODS, &real_pod("one", 2, SEES));
    let one = site.cluster.until_runs("one", 1);
    assert_sees_its_own(&site, &one);
}
