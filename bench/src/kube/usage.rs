//! What a process used, as the kernel counts it.

use std::fs;

use nix::unistd::{SysconfVar, sysconf};

/// Of one process since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) cpu_s: f64,
    /// The most memory that was resident at once.
    pub(super) peak_mib: f64,
}

impl Usage {
    pub(super) fn of(pid: u32) -> Result<Self, String> {
        let read = |name: &str| {
            let path = format!("/proc/{pid}/{name}");
            fs::read_to_string(&path).map_err(|e| format!("{path}: {e}; the process has ended"))
        };
        let ticks = cpu_ticks(&read("stat")?).ok_or_else(|| format!("/proc/{pid}/stat has no CPU times"))?;
        let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100);
        let peak_kib =
            peak_kib(&read("status")?).ok_or_else(|| format!("/proc/{pid}/status has no VmHWM"))?;
        Ok(Self { cpu_s: as_f64(ticks) / per_second as f64, peak_mib: as_f64(peak_kib) / 1_024.0 })
    }
}

/// User and system time. The name of the command may hold spaces, and ends with the last parenthesis.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, after) = stat.rsplit_once(") ")?;
    let mut fields = after.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

fn peak_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_a_name_with_spaces_and_parentheses() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194304 1 2 3 4 150 50 6 7 20 0 1 0 99";
        assert_eq!(cpu_ticks(stat), Some(200));
        assert_eq!(peak_kib("Name:\tx\nVmHWM:\t  2048 kB\n"), Some(2_048));
    }

    #[test]
    fn this_process_has_used_something() {
        let usage = Usage::of(std::process::id()).unwrap();
        assert!(usage.peak_mib > 0.5 && usage.cpu_s >= 0.0, "{usage:?}");
    }
}
