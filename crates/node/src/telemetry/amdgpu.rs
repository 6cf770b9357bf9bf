//! Samples of AMD's GPUs, from the files that the amdgpu driver has in `/sys` (kernel documentation, gpu/amdgpu).

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use phalanx_model::Vitals;

use super::Slots;

/// The largest file that is read of a device.
const BYTES_MAX: usize = 4_096;

/// The GPUs of a machine whose driver was amdgpu at the start.
#[derive(Clone, Debug, Default)]
pub(super) struct AmdGpus {
    /// Number and folder.
    devices: Vec<(u32, PathBuf)>,
}

impl AmdGpus {
    /// `root` has the form of `/sys`.
    pub(super) fn open(root: &Path, slots: &Slots) -> Self {
        let known = (0..).zip(&slots.addresses);
        let folder = |(device, address): (u32, &Option<String>)| {
            let folder = root.join("bus/pci/devices").join(address.as_ref()?);
            is_driven(&folder).then_some((device, folder))
        };
        Self { devices: known.filter_map(folder).collect() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    /// One sample of each. A GPU that left the bus, or that the driver let go, is lost. If that is so of all, the driver was
    /// unloaded, which tells nothing of a GPU: there are no samples.
    pub(super) fn sample(&self) -> Vec<(u32, Vitals)> {
        let sample = |(device, folder): &(u32, PathBuf)| {
            let lost = || Vitals { is_lost: true, ..Vitals::default() };
            (*device, if is_driven(folder) { vitals(folder) } else { lost() })
        };
        let sampled: Vec<(u32, Vitals)> = self.devices.iter().map(sample).collect();
        if sampled.iter().all(|(_, vitals)| vitals.is_lost) { Vec::new() } else { sampled }
    }
}

fn is_driven(folder: &Path) -> bool {
    fs::read_link(folder.join("driver")).is_ok_and(|driver| driver.ends_with("amdgpu"))
}

/// What a GPU does not have is not known.
fn vitals(folder: &Path) -> Vitals {
    let sensors = fs::read_dir(folder.join("hwmon")).ok().and_then(|all| Some(all.flatten().next()?.path()));
    let sensor = |name: &str| number::<u64>(&sensors.as_ref()?.join(name));
    let errors = read(&folder.join("ras/umc_err_count"));
    let count =
        |word: &str| errors.as_ref()?.lines().find_map(|line| line.strip_prefix(word)?.trim().parse().ok());
    Vitals {
        busy_percent: number::<u32>(&folder.join("gpu_busy_percent")).filter(|percent| *percent <= 100),
        memory_used_bytes: number(&folder.join("mem_info_vram_used")),
        // The hottest place of the chip; older chips have one sensor at its edge.
        temperature_c: small(
            sensor("temp2_input").or_else(|| sensor("temp1_input")).map(|milli| milli / 1_000),
        ),
        power_mw: small(
            sensor("power1_average").or_else(|| sensor("power1_input")).map(|micro| micro / 1_000),
        ),
        sm_clock_mhz: small(sensor("freq1_input").map(|hertz| hertz / 1_000_000)),
        ecc_corrected: count("ce:"),
        ecc_uncorrected: count("ue:"),
        pcie_replays: number(&folder.join("pcie_replay_count")),
        ..Vitals::default()
    }
}

fn small(value: Option<u64>) -> Option<u32> {
    value.and_then(|value| u32::try_from(value).ok())
}

fn number<T: FromStr>(path: &Path) -> Option<T> {
    read(path)?.trim().parse().ok()
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().filter(|text| text.len() <= BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const FIRST: &str = "0000:c1:00.0";
    const SECOND: &str = "0000:c6:00.0";

    /// A tree with GPUs at these addresses, of which the first tells everything.
    fn tree() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join("bus/pci/devices").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (file, text) in [
            ("gpu_busy_percent", "97\n"),
            ("mem_info_vram_used", "68719476736\n"),
            ("pcie_replay_count", "3\n"),
            ("ras/umc_err_count", "ue: 1\nce: 12\n"),
            ("hwmon/hwmon4/temp1_input", "51000\n"),
            ("hwmon/hwmon4/temp2_input", "64000\n"),
            ("hwmon/hwmon4/power1_average", "512000000\n"),
            ("hwmon/hwmon4/freq1_input", "2100000000\n"),
        ] {
            write(&format!("{FIRST}/{file}"), text);
        }
        // An older one, whose files are odd.
        for (file, text) in [
            ("gpu_busy_percent", "255\n"),
            ("mem_info_vram_used", "many\n"),
            ("hwmon/hwmon5/temp1_input", "47500\n"),
            ("hwmon/hwmon5/power1_input", "99999999999999999\n"),
        ] {
            write(&format!("{SECOND}/{file}"), text);
        }
        for address in [FIRST, SECOND] {
            drive(root.path(), address);
        }
        root
    }

    fn drive(root: &Path, address: &str) {
        symlink("../../../bus/pci/drivers/amdgpu", root.join("bus/pci/devices").join(address).join("driver"))
            .unwrap();
    }

    fn let_go(root: &Path, address: &str) {
        fs::remove_file(root.join("bus/pci/devices").join(address).join("driver")).unwrap();
    }

    fn slots() -> Slots {
        let addresses = [Some(FIRST), None, Some(SECOND), Some("0000:3b:00.0")];
        Slots { addresses: addresses.map(|address| address.map(str::to_owned)).to_vec(), ..Slots::default() }
    }

    #[test]
    fn a_sample_has_every_value_that_the_driver_gives() {
        let root = tree();
        let gpus = AmdGpus::open(root.path(), &slots());
        let first = Vitals {
            busy_percent: Some(97),
            memory_used_bytes: Some(64 << 30),
            temperature_c: Some(64),
            power_mw: Some(512_000),
            sm_clock_mhz: Some(2_100),
            ecc_corrected: Some(12),
            ecc_uncorrected: Some(1),
            pcie_replays: Some(3),
            ..Vitals::default()
        };
        let second = Vitals { temperature_c: Some(47), ..Vitals::default() };
        assert_eq!(gpus.sample(), [(0, first), (2, second)]);
        assert!(AmdGpus::open(Path::new("/nonexistent"), &slots()).is_empty());
    }

    #[test]
    fn a_gpu_that_the_driver_let_go_is_lost_and_a_driver_that_is_unloaded_tells_nothing() {
        let root = tree();
        let gpus = AmdGpus::open(root.path(), &slots());
        let lost = || -> Vec<(u32, bool)> {
            gpus.sample().into_iter().map(|(device, vitals)| (device, vitals.is_lost)).collect()
        };
        let_go(root.path(), SECOND);
        assert_eq!(lost(), [(0, false), (2, true)]);
        let_go(root.path(), FIRST);
        assert_eq!(lost(), []);
        drive(root.path(), FIRST);
        drive(root.path(), SECOND);
        assert_eq!(lost(), [(0, false), (2, false)]);
        // Off the bus.
        fs::remove_dir_all(root.path().join("bus/pci/devices").join(FIRST)).unwrap();
        assert_eq!(lost(), [(0, true), (2, false)]);
    }
}
