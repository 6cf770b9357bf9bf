//! Each kind of evidence: the grade that follows, and the way back.

#![allow(clippy::unwrap_used)]

mod site;

use phalanx_health::{Evidence, Next, Repair};
use phalanx_model::{Grade, LinkVitals, RemappedRows, Throttle, Timestamp, Vitals};
use site::{DAY, HOUR, MINUTE, Site, healthy, node};

/// Probation, and ok after a day.
fn assert_comes_back(site: &mut Site, device: u32) {
    assert_eq!(site.grade(0, device), Grade::Suspect);
    assert!(site.detail(0, device).starts_with("on probation after: "), "{}", site.detail(0, device));
    site.pass(DAY - 1);
    assert_eq!(site.grade(0, device), Grade::Suspect);
    site.pass(1);
    assert_eq!(site.grade(0, device), Grade::Ok);
}

#[test]
fn an_error_of_the_job_changes_no_grade() {
    let mut site = Site::new(4, 8);
    for number in [13, 31, 43, 45, 94] {
        site.xid(0, 3, 7, number);
        site.xid(0, 3, 7, number);
    }
    assert_eq!(site.grade(0, 3), Grade::Ok);
    assert!(site.grader.facts().is_empty());
    let line = site.line(0, Some(3)).unwrap();
    assert_eq!((line.failed_jobs, line.evidence.len(), line.evidence[0].times), (1, 5, 2));
    assert_eq!(line.next, Next::Nothing);
}

#[test]
fn a_fault_that_a_reset_cures_waits_for_it() {
    let mut site = Site::new(4, 8);
    site.xid(0, 3, 7, 48);
    let line = site.line(0, Some(3)).unwrap();
    assert_eq!((line.grade, line.repair, line.next), (Grade::DrainNow, Repair::Reset, Next::WhenReset));
    assert_eq!(line.detail, "Xid 48: a double-bit ECC error");
    site.pass(3 * DAY);
    assert_eq!(site.grade(0, 3), Grade::DrainNow);
    site.reboot(0);
    assert_eq!(site.line(0, Some(3)).unwrap().probation_until, Some(Timestamp(site.now + DAY)));
    assert_comes_back(&mut site, 3);
}

#[test]
fn a_device_that_fell_off_the_bus_is_broken_until_a_reboot() {
    let mut site = Site::new(4, 8);
    site.xid(0, 0, 7, 79);
    let line = site.line(0, Some(0)).unwrap();
    assert_eq!((line.grade, line.repair, line.next), (Grade::Broken, Repair::Reboot, Next::WhenRebooted));
    site.reboot(1);
    assert_eq!(site.grade(0, 0), Grade::Broken);
    site.reboot(0);
    assert_comes_back(&mut site, 0);
}

#[test]
fn no_power_needs_people() {
    let mut site = Site::new(4, 8);
    site.xid(0, 0, 7, 54);
    site.reboot(0);
    site.pass(DAY);
    let line = site.line(0, Some(0)).unwrap();
    assert_eq!((line.grade, line.repair, line.next), (Grade::Broken, Repair::Service, Next::WhenCleared));
    assert_eq!(site.clear(0, Some(0)), Ok(()));
    assert_comes_back(&mut site, 0);
    assert_eq!(site.clear(0, Some(0)), Err("device 0 of n0 is ok already".to_owned()));
    assert_eq!(site.clear(0, Some(8)), Err("unknown device 8 of n0".to_owned()));
    assert_eq!(site.clear(9, None), Err("unknown node n9".to_owned()));
}

#[test]
fn link_errors_drain_if_they_repeat() {
    let mut site = Site::new(4, 8);
    // One incident on many links.
    (0..18).for_each(|_| site.xid(0, 2, 7, 74));
    assert_eq!(site.grade(0, 2), Grade::Suspect);
    site.pass(2 * HOUR);
    assert_eq!(site.grade(0, 2), Grade::Ok);
    site.xid(0, 2, 7, 74);
    site.pass(2 * HOUR);
    site.xid(0, 2, 7, 74);
    assert_eq!(site.grade(0, 2), Grade::DrainAfterJob);
    assert_eq!(site.detail(0, 2), "Xid 74: an NVLink error; 3 times in 24 h");
    site.reboot(0);
    assert_comes_back(&mut site, 2);

    // Too far apart.
    for _ in 0..5 {
        site.xid(0, 5, 7, 149);
        site.pass(13 * HOUR);
    }
    assert_eq!(site.grade(0, 5), Grade::Ok);
}

#[test]
fn a_disputed_xid_has_to_come_twice_within_an_hour() {
    let mut site = Site::new(4, 8);
    site.xid(0, 2, 7, 109);
    site.xid(0, 2, 7, 109);
    assert_eq!(site.grade(0, 2), Grade::Suspect);
    site.pass(2 * HOUR);
    site.xid(0, 2, 7, 109);
    assert_eq!(site.grade(0, 2), Grade::Suspect);
    site.pass(30 * MINUTE);
    site.xid(0, 2, 7, 109);
    assert_eq!(site.grade(0, 2), Grade::DrainNow);
}

#[test]
fn unknown_xids_are_watched() {
    let mut site = Site::new(4, 8);
    site.xid(0, 2, 7, 4_711);
    assert_eq!((site.grade(0, 2), site.detail(0, 2).as_str()), (Grade::Suspect, "unknown Xid 4711"));
    let next = site.line(0, Some(2)).unwrap().next;
    assert_eq!(next.to_string(), format!("ok again at {}", site.now + HOUR));
    site.pass(HOUR);
    assert_eq!(site.grade(0, 2), Grade::Ok);
}

#[test]
fn the_driver_asks_for_a_reboot() {
    let mut site = Site::new(4, 8);
    let text = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)".to_owned();
    site.observe(0, Some(1), 7, Evidence::Xid { number: 154, text });
    let text = "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)".to_owned();
    site.observe(0, Some(1), 7, Evidence::Xid { number: 154, text });
    assert_eq!(site.grade(0, 1), Grade::DrainNow);
    site.reboot(0);
    assert_comes_back(&mut site, 1);
}

#[test]
fn a_lost_device_has_to_answer_for_a_while_or_after_a_reboot() {
    let lost = || Vitals { is_lost: true, ..Vitals::default() };
    let mut site = Site::new(1, 8);
    site.sample(0, 1, lost());
    site.sample(0, 1, healthy());
    site.sample(0, 1, lost());
    assert_eq!(site.grade(0, 1), Grade::Ok);
    site.sample(0, 1, lost());
    assert_eq!(site.grade(0, 1), Grade::Broken);
    // It may answer by chance, until it has done so for a while.
    site.sample(0, 1, healthy());
    site.pass(5 * MINUTE);
    assert_eq!((site.grade(0, 1), site.line(0, Some(1)).unwrap().next), (Grade::Broken, Next::WhenFree));
    (0..2).for_each(|_| site.sample(0, 1, lost()));
    assert_eq!(site.line(0, Some(1)).unwrap().next, Next::WhenRebooted);
    // The driver was loaded again.
    site.sample(0, 1, healthy());
    site.pass(11 * MINUTE);
    assert_comes_back(&mut site, 1);
    site.sample(0, 1, lost());
    site.sample(0, 1, lost());
    assert_eq!(site.grade(0, 1), Grade::Broken);
    site.reboot(0);
    let line = site.line(0, Some(1)).unwrap();
    assert_eq!((line.grade, line.next), (Grade::Broken, Next::WhenItAnswers));
    site.sample(0, 1, lost());
    assert_eq!(site.grade(0, 1), Grade::Broken);
    site.sample(0, 1, healthy());
    assert_comes_back(&mut site, 1);
}

#[test]
fn memory_that_waits_for_a_reset_says_when_it_is_done() {
    let rows = |is_pending, has_failed| Vitals {
        rows: Some(RemappedRows {
            is_pending: Some(is_pending),
            has_failed: Some(has_failed),
            ..RemappedRows::default()
        }),
        ..healthy()
    };
    let mut site = Site::new(4, 8);
    site.sample(0, 1, rows(true, false));
    site.sample(0, 1, rows(true, false));
    site.xid(0, 1, 7, 64);
    assert_eq!(site.grade(0, 1), Grade::DrainNow);
    assert_eq!(site.line(0, Some(1)).unwrap().evidence[1].times, 1);
    site.sample(0, 1, healthy());
    assert_eq!(site.grade(0, 1), Grade::DrainNow, "nothing is said of rows");
    site.sample(0, 1, rows(false, false));
    assert_comes_back(&mut site, 1);

    site.sample(0, 2, rows(false, true));
    site.reboot(0);
    let line = site.line(0, Some(2)).unwrap();
    assert_eq!((line.grade, line.repair), (Grade::Broken, Repair::Service));
}

#[test]
fn counters_count_if_they_grow() {
    let with = |ecc, replays| Vitals { ecc_uncorrected: Some(ecc), pcie_replays: Some(replays), ..healthy() };
    let mut site = Site::new(4, 8);
    site.sample(0, 1, with(7, 900));
    assert_eq!(site.grade(0, 1), Grade::Ok, "nobody knows when these were");
    site.sample(0, 1, with(0, 0));
    assert_eq!(site.grade(0, 1), Grade::Ok, "the driver was loaded again");
    site.sample(0, 1, with(2, 8));
    assert_eq!((site.grade(0, 1), site.detail(0, 1).as_str()), (Grade::Suspect, "2 uncorrected ECC errors"));
    site.pass(HOUR);
    assert_eq!(site.grade(0, 1), Grade::Ok);
    site.sample(0, 1, with(2, 8 + 470));
    assert_eq!(site.grade(0, 1), Grade::Ok, "8 per minute in an hour");
    site.sample(0, 1, with(2, 8 + 470 + 9));
    assert_eq!(site.detail(0, 1), "more than 8 PCIe replays per minute");
    // A sample of the past.
    let old = Evidence::Vitals(Box::new(with(100, 5_000)));
    site.grader.observe(Timestamp(0), &node(0), Some(1), &[], old);
    assert_eq!(site.line(0, Some(1)).unwrap().evidence.len(), 2);
}

#[test]
fn links_that_were_up_have_to_stay_up() {
    let links = |is_up, crc| Vitals {
        links: (0..2)
            .map(|number| LinkVitals {
                number,
                is_up: is_up || number == 0,
                crc_errors: Some(crc),
                ..LinkVitals::default()
            })
            .collect(),
        ..healthy()
    };
    let mut site = Site::new(4, 8);
    (0..9).for_each(|_| site.sample(0, 1, links(false, 0)));
    assert_eq!(site.grade(0, 1), Grade::Ok, "it was never up");
    site.sample(0, 1, links(true, 0));
    (0..2).for_each(|_| site.sample(0, 1, links(false, 0)));
    assert_eq!(site.grade(0, 1), Grade::Ok);
    site.sample(0, 1, links(false, 0));
    assert_eq!((site.grade(0, 1), site.detail(0, 1).as_str()), (Grade::DrainAfterJob, "NVLink 1 down"));
    // The reset did not help.
    site.reboot(0);
    assert_eq!(site.grade(0, 1), Grade::Suspect);
    (0..3).for_each(|_| site.sample(0, 1, links(false, 0)));
    assert_eq!(site.grade(0, 1), Grade::DrainAfterJob);

    site.sample(0, 2, links(true, 0));
    site.sample(0, 2, links(true, 100));
    assert_eq!(site.grade(0, 2), Grade::Ok);
    site.sample(0, 2, links(true, 101));
    assert_eq!(site.grade(0, 2), Grade::Suspect);
    assert_eq!(site.detail(0, 2), "NVLinks 0,1: more than 100 errors per hour");
}

#[test]
fn slowness_never_drains() {
    let slow = |is_hardware, is_warm| Vitals {
        throttle: Some(Throttle { is_hardware, is_hot: is_hardware, is_warm, ..Throttle::default() }),
        ..healthy()
    };
    let mut site = Site::new(4, 8);
    for _ in 0..1_000 {
        site.sample(0, 1, slow(false, true));
        site.sample(0, 2, slow(true, false));
    }
    assert_eq!(site.grade(0, 1), Grade::Ok);
    assert_eq!(site.grade(0, 2), Grade::Suspect);
    assert_eq!(site.detail(0, 2), "the hardware lowers the clocks because of the temperature");
    site.pass(2 * HOUR);
    assert_eq!(site.grade(0, 2), Grade::Ok);
}

#[test]
fn a_device_on_which_many_jobs_fail_is_drained() {
    let mut site = Site::new(4, 8);
    for job in 0..5 {
        assert_eq!(site.grade(0, 6), Grade::Ok);
        // Repeated errors of one job count once.
        (0..20).for_each(|_| site.xid(0, 6, job, 31));
        site.pass_busy(6 * HOUR);
    }
    let line = site.line(0, Some(6)).unwrap();
    assert_eq!((line.grade, line.repair, line.next), (Grade::DrainAfterJob, Repair::None, Next::WhenFree));
    assert_eq!(line.detail, "5 jobs failed here in 7 days");
    site.pass_busy(DAY);
    assert_eq!(site.grade(0, 6), Grade::DrainAfterJob);
    site.pass(1);
    assert_comes_back(&mut site, 6);
}

#[test]
fn a_workload_that_fails_everywhere_drains_nothing() {
    let mut site = Site::new(2, 8);
    for job in 0..40 {
        (0..8).for_each(|device| site.xid(0, device, job, 31));
        site.pass(HOUR);
    }
    assert!(site.grader.facts().is_empty());
    // One that runs on a device at a time, but each time on more than one.
    let mut site = Site::new(2, 8);
    for job in 0..40 {
        site.xid(0, 0, job, 31);
        site.xid(1, u32::try_from(job % 8).unwrap(), job, 31);
    }
    assert!(site.grader.facts().is_empty());
    // With nothing to compare with, it is watched.
    let mut alone = Site::new(1, 1);
    (0..40).for_each(|job| alone.xid(0, 0, job, 31));
    assert_eq!(alone.grade(0, 0), Grade::Suspect);
    // Nodes of one device are compared with other nodes.
    let mut site = Site::new(10, 1);
    (0..5).for_each(|job| site.xid(0, 0, job, 31));
    assert_eq!(site.grade(0, 0), Grade::DrainAfterJob);
}

#[test]
fn what_comes_back_for_the_third_time_is_broken() {
    let mut site = Site::new(4, 8);
    for _ in 0..2 {
        site.xid(0, 3, 7, 95);
        assert_eq!(site.line(0, Some(3)).unwrap().repair, Repair::Reset);
        site.reboot(0);
        assert_eq!(site.grade(0, 3), Grade::Suspect);
        site.pass(5 * HOUR);
    }
    site.xid(0, 3, 7, 95);
    let line = site.line(0, Some(3)).unwrap();
    assert_eq!((line.repair, line.next, line.drains), (Repair::Service, Next::WhenCleared, 3));
    site.reboot(0);
    let line = site.line(0, Some(3)).unwrap();
    assert_eq!((line.grade, line.repair), (Grade::Broken, Repair::Service));
    assert_eq!(line.detail, "drained 3 times in 30 days; last: Xid 95: an uncontained memory error");
    site.reboot(0);
    assert_eq!(site.grade(0, 3), Grade::Broken);
    site.clear(0, Some(3)).unwrap();
    assert_comes_back(&mut site, 3);
    assert_eq!(site.line(0, Some(3)).unwrap().drains, 0);
}

#[test]
fn what_people_say_holds_until_they_clear_it() {
    let mut site = Site::new(1, 8);
    site.report(0, None, Grade::DrainAfterJob);
    site.report(0, Some(2), Grade::DrainNow);
    site.report(0, Some(2), Grade::Suspect);
    site.report(0, Some(2), Grade::Ok);
    site.pass(40 * DAY);
    site.reboot(0);
    assert_eq!(site.closed(), [(node(0), Some(2)), (node(0), None)]);
    assert_eq!(site.detail(0, 2), "ana: it smells");
    site.clear(0, Some(2)).unwrap();
    assert_comes_back(&mut site, 2);
    site.clear(0, None).unwrap();
    assert_eq!(site.line(0, None).unwrap().grade, Grade::Suspect);
    // A second time: no probation either.
    site.clear(0, None).unwrap();
    assert!(site.grader.facts().is_empty());
}

/// Nobody checks it again before it is open, so that only people know of its repair. The circuit breaker bounds it.
#[test]
fn what_does_not_pass_a_preflight_is_closed_until_it_is_cleared() {
    let mut site = Site::new(1, 8);
    site.preflight(0, 2, false);
    assert_eq!(site.line(0, Some(2)).unwrap().grade, Grade::DrainNow);
    assert_eq!(site.detail(0, 2), "preflight: exit code 1");
    site.pass(2 * DAY);
    site.reboot(0);
    assert_eq!(site.closed(), [(node(0), Some(2))]);
    site.clear(0, Some(2)).unwrap();
    assert_comes_back(&mut site, 2);
    (0..8).for_each(|device| site.preflight(0, device, false));
    assert_eq!(site.closed().len(), 4, "a broken check does not close the machine");
    // It is mended: what was only held is not closed later.
    (0..8).for_each(|device| site.preflight(0, device, true));
    for device in 0..4 {
        site.clear(0, Some(device)).unwrap();
    }
    site.pass(DAY);
    assert_eq!(site.closed(), []);
}
