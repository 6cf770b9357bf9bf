//! Telemetry of NVIDIA's library, as far as ours that answers from a description is it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "common/fake.rs"]
mod fake;

use fake::{Fake, MACHINES, description};
use phalanx_discover::nvml::vitals::Watch;
use phalanx_discover::nvml::{self, NvmlError};
use phalanx_model::{LinkVitals, RemappedRows, Throttle, Vitals};

const TWO: &str = "\
driver 580.65.06
gpu0 at 00000000:3B:00.0
gpu0 name NVIDIA H100 80GB HBM3
gpu0 memory 85520809984
gpu1 at 00010000:5E:00.0
gpu1 name NVIDIA H100 80GB HBM3
gpu1 memory 85520809984
";
const WORKING: &str =
    "gpu0 vitals busy=97 memory=80000000000 temperature=61 power=695000 energy=8589934592001 sm=1980
gpu0 vitals throttle=0x28 ecc=3,0 rows=1,2,1,0 retirement=0 replays=7
gpu0 link0 1 1 7 26562 !6
gpu0 errors0 4 5 6
gpu0 link1 0 1 7 26562 !6
gpu1 vitals busy=1
";

/// With these lines after those of [`TWO`].
fn with(lines: &str) -> String {
    format!("{TWO}{lines}")
}

fn lost() -> Vitals {
    Vitals { is_lost: true, ..Vitals::default() }
}

fn idle() -> Vitals {
    Vitals { memory_used_bytes: Some(0), ..Vitals::default() }
}

#[test]
fn is_send() {
    fn check<T: Send>() {}
    check::<Watch>();
}

#[test]
fn a_sample_has_every_value_that_the_library_gives() {
    let Some(fake) = Fake::new(&with(WORKING)) else { return };
    let mut watch = Watch::open(Some(&fake.library())).unwrap();
    assert_eq!(watch.addresses(), ["0000:3b:00.0", "10000:5e:00.0"]);
    let sample = watch.sample().unwrap();
    assert_eq!(
        sample[0],
        Vitals {
            is_lost: false,
            busy_percent: Some(97),
            memory_used_bytes: Some(80_000_000_000),
            temperature_c: Some(61),
            power_mw: Some(695_000),
            energy_mj: Some(8_589_934_592_001),
            sm_clock_mhz: Some(1980),
            throttle: Some(Throttle { is_hardware: true, is_warm: true, ..Throttle::default() }),
            ecc_corrected: Some(3),
            ecc_uncorrected: Some(0),
            rows: Some(RemappedRows {
                correctable: Some(1),
                uncorrectable: Some(2),
                is_pending: Some(true),
                has_failed: Some(false)
            }),
            is_retirement_pending: Some(false),
            pcie_replays: Some(7),
            links: vec![
                LinkVitals {
                    number: 0,
                    is_up: true,
                    replays: Some(4),
                    recoveries: Some(5),
                    crc_errors: Some(6)
                },
                LinkVitals { number: 1, ..LinkVitals::default() },
            ],
        }
    );
    assert_eq!(sample[1], Vitals { busy_percent: Some(1), ..idle() });
}

#[test]
fn an_open_library_gives_new_values() {
    let Some(fake) = Fake::new(&with("gpu0 vitals throttle=0 ecc=0,0\n")) else { return };
    let mut watch = Watch::open(Some(&fake.library())).unwrap();
    assert_eq!(
        watch.sample().unwrap()[0].throttle,
        Some(Throttle::default()),
        "none of the reasons is not an unknown one"
    );
    // Idle, a power limit and the other reasons that hint at no fault; and all those that do.
    for (mask, throttle) in [
        ("0x117", Throttle::default()),
        ("0xc0", Throttle { is_hot: true, is_power_brake: true, ..Throttle::default() }),
        ("0xe8", Throttle { is_hardware: true, is_hot: true, is_power_brake: true, is_warm: true }),
    ] {
        fake.describe(&with(&format!("gpu0 vitals throttle={mask} ecc=0,1\n")));
        let vitals = &watch.sample().unwrap()[0];
        assert_eq!((vitals.throttle, vitals.ecc_uncorrected), (Some(throttle), Some(1)), "{mask}");
    }
}

/// The driver counts whoever has the library open as a client: no device could be reset, and no driver be replaced.
#[test]
fn the_library_is_closed_between_samples_where_the_driver_stays_loaded() {
    let persistent = |modes: [&str; 2]| {
        with(&format!(
            "{WORKING}gpu0 vitals persistence={}\ngpu1 vitals persistence={}\n",
            modes[0], modes[1]
        ))
    };
    let Some(fake) = Fake::new(&persistent(["1", "1"])) else { return };
    let library = fake.library().display().to_string();
    let is_open = || std::fs::read_to_string("/proc/self/maps").unwrap().contains(&library);
    let mut watch = Watch::open(Some(&fake.library())).unwrap();
    for (modes, stays_open) in
        [(["1", "1"], false), (["1", "0"], true), (["1", "!3"], false), (["!3", "!3"], true)]
    {
        fake.describe(&persistent(modes));
        assert_eq!(watch.sample().unwrap()[0].busy_percent, Some(97));
        assert_eq!(is_open(), stays_open, "{modes:?}");
    }
}

#[test]
fn values_that_are_not_supported_or_fail_are_none() {
    let Some(fake) = Fake::new(&with("")) else { return };
    let mut watch = Watch::open(Some(&fake.library())).unwrap();
    assert_eq!(watch.sample().unwrap(), [idle(), idle()]);
    // Unknown errors, time-outs and missing rights of single values are no loss of the device.
    fake.describe(&with(
        "gpu0 vitals busy=!999 temperature=!10 power=!4 energy=!6 sm=!2 throttle=!3 ecc=!3,2 rows=!16 retirement=!3 replays=!3
gpu0 link0 !999
gpu0 link2 1
gpu0 errors2 !4 !999 3
",
    ));
    assert_eq!(
        watch.sample().unwrap()[0],
        Vitals {
            ecc_uncorrected: Some(2),
            links: vec![LinkVitals { number: 2, is_up: true, crc_errors: Some(3), ..LinkVitals::default() }],
            ..idle()
        }
    );
}

#[test]
fn an_older_driver_gives_throttle_reasons_and_a_newer_one_link_errors_by_other_calls() {
    let lacks = "lacks nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetNvLinkErrorCounter\n";
    let Some(fake) = Fake::new(&with(&format!("{lacks}{WORKING}"))) else { return };
    let vitals = &Watch::open(Some(&fake.library())).unwrap().sample().unwrap()[0];
    assert_eq!(vitals.throttle, Some(Throttle { is_hardware: true, is_warm: true, ..Throttle::default() }));
    let errors = (vitals.links[0].replays, vitals.links[0].recoveries, vitals.links[0].crc_errors);
    assert_eq!(errors, (Some(4), Some(5), Some(6)));
}

#[test]
fn a_library_without_any_of_the_calls_gives_empty_samples() {
    let lacks = "lacks nvmlDeviceGetUtilizationRates nvmlDeviceGetTemperature nvmlDeviceGetPowerUsage \
        nvmlDeviceGetTotalEnergyConsumption nvmlDeviceGetClockInfo nvmlDeviceGetCurrentClocksEventReasons \
        nvmlDeviceGetCurrentClocksThrottleReasons nvmlDeviceGetTotalEccErrors nvmlDeviceGetRemappedRows \
        nvmlDeviceGetRetiredPagesPendingStatus nvmlDeviceGetPcieReplayCounter nvmlDeviceGetNvLinkState \
        nvmlDeviceGetMemoryInfo nvmlDeviceGetMemoryInfo_v2 nvmlDeviceGetMigMode\n";
    let Some(fake) = Fake::new(&with(&format!("{lacks}{WORKING}"))) else { return };
    let mut watch = Watch::open(Some(&fake.library())).unwrap();
    assert_eq!(watch.sample().unwrap(), [Vitals::default(), Vitals::default()]);
}

#[test]
fn a_lost_device_is_lost_until_it_is_back() {
    let Some(fake) = Fake::new(&with(WORKING)) else { return };
    let mut watch = Watch::open(Some(&fake.library())).unwrap();
    let before = watch.sample().unwrap();
    // By the search for the device, by its absence, and by a value alone.
    let searches = ["15", "999", "6", "2", "16"].map(|code| with(&format!("{WORKING}gpu0 lost {code}\n")));
    let absent = with(WORKING).replace("gpu0 at 00000000:3B", "gpu0 at 00000000:99");
    let by_value = with("gpu0 vitals temperature=!15 power=695000\ngpu1 vitals busy=1\n");
    for description in searches.into_iter().chain([with(&format!("{WORKING}gpu0 lost\n")), absent, by_value])
    {
        fake.describe(&description);
        assert_eq!(watch.sample().unwrap(), [lost(), before[1].clone()], "{description}");
        fake.describe(&with(WORKING));
        assert_eq!(watch.sample().unwrap(), before);
    }
    // The caller lacks a right, or the system lacks memory: the device is not lost.
    for code in [4, 20] {
        fake.describe(&with(&format!("{WORKING}gpu0 lost {code}\n")));
        assert_eq!(watch.sample().unwrap(), [Vitals::default(), before[1].clone()]);
    }
}

#[test]
fn a_device_keeps_its_number_when_the_library_numbers_differently() {
    let Some(fake) = Fake::new(&with("gpu0 vitals busy=10\ngpu1 vitals busy=11\n")) else { return };
    let mut watch = Watch::open(Some(&fake.library())).unwrap();
    fake.describe("gpu0 at 00010000:5e:00.0\ngpu0 name NVIDIA H100 80GB HBM3\ngpu0 vitals busy=12\n");
    let sample = watch.sample().unwrap();
    assert_eq!((sample[0].is_lost, sample[1].busy_percent), (true, Some(12)));
    assert_eq!(watch.addresses().len(), 2);
}

#[test]
fn nothing_is_known_of_devices_while_the_driver_is_unloaded() {
    let Some(fake) = Fake::new(&with(WORKING)) else { return };
    let mut watch = Watch::open(Some(&fake.library())).unwrap();
    let before = watch.sample().unwrap();
    for code in [1, 9, 18] {
        fake.describe(&with(&format!("{WORKING}init {code}\n")));
        assert_eq!(watch.sample(), None, "error {code}");
        assert_eq!(watch.sample(), None);
        fake.describe(&with(WORKING));
        assert_eq!(watch.sample().unwrap(), before);
    }
    // Unloaded and loaded again between two samples: the open library does not work any more.
    fake.describe("init 9\n");
    assert!(nvml::read(Some(&fake.library())).is_err());
    fake.describe(&with(""));
    assert_eq!(watch.sample(), None);
    assert_eq!(watch.sample().unwrap(), [idle(), idle()]);
    // The search for a device succeeds, and a value tells.
    fake.describe(&with("gpu0 vitals busy=!1\n"));
    assert_eq!(watch.sample(), None);
    fake.describe(&with(WORKING));
    assert_eq!(watch.sample().unwrap(), before);
    // Closed on purpose.
    watch.close();
    assert_eq!(watch.sample().unwrap(), before);
    std::fs::rename(fake.library(), fake.library().with_extension("gone")).unwrap();
    assert_eq!(watch.sample().unwrap(), before);
    watch.close();
    assert_eq!(watch.sample(), None);
}

#[test]
fn a_device_in_mig_mode_has_no_utilisation_and_no_links() {
    let Some(fake) = Fake::new(&with(&format!("{WORKING}gpu0 mig 1\ngpu1 mig 0\n"))) else { return };
    let sample = Watch::open(Some(&fake.library())).unwrap().sample().unwrap();
    assert_eq!((sample[0].busy_percent, sample[0].links.len()), (None, 0));
    assert_eq!((sample[0].power_mw, sample[0].memory_used_bytes), (Some(695_000), Some(80_000_000_000)));
    assert_eq!(sample[1].busy_percent, Some(1));
}

#[test]
fn samples_are_in_the_order_of_read() {
    for name in MACHINES {
        let Some(fake) = Fake::new(&description(name)) else { return };
        let found = nvml::read(Some(&fake.library())).unwrap();
        let read: Vec<String> = found.devices.into_iter().filter_map(|device| device.pci_address).collect();
        let mut watch = Watch::open(Some(&fake.library())).unwrap();
        assert_eq!(watch.addresses(), read, "{name}");
        assert!(watch.sample().unwrap().iter().all(|vitals| !vitals.is_lost), "{name}");
        assert_eq!(watch.sample().unwrap().len(), read.len(), "{name}");
    }
}

#[test]
fn a_driver_that_is_not_loaded_and_an_absent_library_are_told_apart() {
    let absent = Watch::open(Some(std::path::Path::new("/nonexistent/libnvidia-ml.so.1")));
    assert!(matches!(absent, Err(NvmlError::Absent(_))), "{absent:?}");
    let Some(fake) = Fake::new("init 9\n") else { return };
    assert!(matches!(Watch::open(Some(&fake.library())), Err(NvmlError::NoDriver)));
    fake.describe("driver 1\n");
    assert_eq!(Watch::open(Some(&fake.library())).unwrap().sample(), Some(Vec::new()));
}
