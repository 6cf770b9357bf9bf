//! Xid errors of NVIDIA's driver, from the kernel log.
//!
//! The driver reports faults of a device as lines such as `NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU
//! has fallen off the bus.` Anyone may write lines that look like these to most logs, so that [`parse`] accepts a line
//! only where the kernel itself begins its message: see there.

mod follow;
mod line;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use thiserror::Error;

use crate::processes;
use crate::telemetry::Slots;
use follow::Follower;
pub use line::parse;

/// Records of `/dev/kmsg` that one call of [`KernelLog::read`] takes.
const RECORDS_MAX: usize = 1000;
/// Larger than any record of `/dev/kmsg`: the kernel's `CONSOLE_EXT_LOG_MAX` is 8,192 bytes.
const RECORD_BYTES: usize = 16 << 10;

/// One Xid error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xid {
    /// As in NVIDIA's catalogue of Xid errors: 79 is a GPU that fell off the bus.
    pub number: u32,
    /// The PCI address of the device as the kernel writes it: `0000:3b:00.0`.
    pub address: String,
    /// The rest of the message, with the process if the driver names one; at most 512 bytes, without control
    /// characters. A process chooses its own name, so that this text is for people to read and not for programs to
    /// judge by.
    pub text: String,
}

/// The kernel log from the moment of its opening on.
#[derive(Debug)]
pub struct KernelLog {
    source: Source,
    lost: u64,
}

#[derive(Debug)]
enum Source {
    Device(File),
    File(Follower),
}

impl KernelLog {
    /// Opens `/dev/kmsg` at its end, or a plain file that another program writes the kernel's messages to, such as
    /// `/var/log/kern.log`. The file is followed from its end on, and opened again when it is replaced. It must be a
    /// file that only messages of the kernel reach: users can write any line to a log of all facilities.
    ///
    /// # Errors
    /// When the path cannot be opened for reading (`/dev/kmsg` takes `CAP_SYSLOG` on most hosts), or is neither a
    /// plain file nor a character device.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = open(path)?;
        let kind = file.metadata()?.file_type();
        let source = if kind.is_char_device() {
            file.seek(SeekFrom::End(0))?;
            Source::Device(file)
        } else if kind.is_file() {
            Source::File(Follower::at_end(path, file)?)
        } else {
            let what = "a kernel log is a character device such as /dev/kmsg, or a plain file";
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        };
        Ok(Self { source, lost: 0 })
    }

    /// Xid errors since the last call, oldest first. Never waits for more, and reads at most 1,000 records of
    /// `/dev/kmsg` or 1 MiB of a file; the next call reads on from there.
    ///
    /// # Errors
    /// When the log cannot be read and this call found no Xid error before that. The next call may succeed.
    pub fn read(&mut self) -> io::Result<Vec<Xid>> {
        match &mut self.source {
            Source::Device(file) => read_records(file, &mut self.lost),
            Source::File(follower) => follower.read(),
        }
    }

    /// How often records were lost before a call could read them, because the kernel needed their room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// The kernel log, read again and again for the errors of a machine's devices.
#[derive(Debug)]
pub struct DeviceLog {
    log: KernelLog,
    slots: Slots,
    is_readable: bool,
}

impl DeviceLog {
    /// See [`KernelLog::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(path: &Path, slots: Slots) -> io::Result<Self> {
        Ok(Self { log: KernelLog::open(path)?, slots, is_readable: true })
    }

    /// Xid errors since the last call, with the numbers of their devices; `None` while the log cannot be read.
    /// `unusable` is called with each Xid of a device that is not known, and once when the log becomes unreadable.
    pub fn read(&mut self, mut unusable: impl FnMut(Unusable)) -> Option<Vec<(u32, Xid)>> {
        let was_readable = self.is_readable;
        let read = self.log.read();
        self.is_readable = read.is_ok();
        let found = match read {
            Ok(found) => found,
            Err(error) => {
                if was_readable {
                    unusable(Unusable::Log(error));
                }
                return None;
            }
        };
        let mut of_devices = Vec::with_capacity(found.len());
        for xid in found {
            match self.slots.device(&xid.address) {
                Some(device) => of_devices.push((device, xid)),
                None => unusable(Unusable::Device(xid)),
            }
        }
        Some(of_devices)
    }
}

/// What a [`DeviceLog`] cannot use.
#[derive(Debug, Error)]
pub enum Unusable {
    #[error("the kernel log cannot be read: {0}")]
    Log(io::Error),
    #[error("Xid {} of the device at {}, which is not known here: {}", .0.number, .0.address, .0.text)]
    Device(Xid),
}

/// Tells one boot of this host from another: what a kernel log says of a device is void after a reboot. `None` on
/// hosts that hide `/proc/sys/kernel/random/boot_id`.
#[must_use]
pub fn boot_id() -> Option<String> {
    processes::boot_id().ok().filter(|id| !id.is_empty())
}

/// Without waiting, also for a FIFO that nothing writes to.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

/// `/dev/kmsg` gives one record for each read. It answers EAGAIN at the end, EPIPE once after it overwrote the next
/// record, and EINVAL for a record that does not fit; after the last two, the next read gives the next record.
fn read_records(log: &mut impl io::Read, lost: &mut u64) -> io::Result<Vec<Xid>> {
    let mut record = vec![0; RECORD_BYTES];
    let mut found = Vec::new();
    for _ in 0..RECORDS_MAX {
        match log.read(&mut record) {
            Ok(0) => break,
            Ok(length) => {
                let record = String::from_utf8_lossy(record.get(..length).unwrap_or_default());
                found.extend(parse(&record));
            }
            Err(e) => match e.raw_os_error().map(Errno::from_raw) {
                Some(Errno::EAGAIN) => break,
                Some(Errno::EINTR) => {}
                Some(Errno::EPIPE | Errno::EINVAL) => *lost = lost.saturating_add(1),
                _ if found.is_empty() => return Err(e),
                _ => break,
            },
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Answers one read with one of these.
    struct Log(VecDeque<Result<String, Errno>>);

    impl io::Read for Log {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let record = self.0.pop_front().unwrap_or(Err(Errno::EAGAIN))?;
            into[..record.len()].copy_from_slice(record.as_bytes());
            Ok(record.len())
        }
    }

    fn record(number: u32) -> Result<String, Errno> {
        Ok(format!(
            "4,{number},5678,-;NVRM: Xid (PCI:0000:3b:00): {number}, pid=1, name=a\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n"
        ))
    }

    fn numbers(log: &mut Log, lost: &mut u64) -> io::Result<Vec<u32>> {
        Ok(read_records(log, lost)?.into_iter().map(|xid| xid.number).collect())
    }

    #[test]
    fn records_are_read_past_those_that_were_lost() {
        let other = Ok("6,1,5,-;usb 1-1: new device\n".to_owned());
        let mut log = Log(VecDeque::from([
            record(31),
            Err(Errno::EPIPE),
            other,
            Err(Errno::EINTR),
            record(79),
            Err(Errno::EINVAL),
            record(13),
            Err(Errno::EAGAIN),
            record(48),
        ]));
        let mut lost = 0;
        assert_eq!(numbers(&mut log, &mut lost).unwrap(), [31, 79, 13]);
        assert_eq!(lost, 2);
        assert_eq!(numbers(&mut log, &mut lost).unwrap(), [48]);
        assert_eq!(numbers(&mut log, &mut lost).unwrap(), [0; 0]);
    }

    #[test]
    fn an_error_is_told_after_the_records_before_it() {
        let mut log = Log(VecDeque::from([record(31), Err(Errno::EIO), Err(Errno::EIO), record(79)]));
        let mut lost = 0;
        assert_eq!(numbers(&mut log, &mut lost).unwrap(), [31]);
        assert_eq!(numbers(&mut log, &mut lost).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(numbers(&mut log, &mut lost).unwrap(), [79]);
        assert_eq!(lost, 0);
    }

    #[test]
    fn a_call_reads_a_bounded_number_of_records() {
        let mut log = Log((0..2500).map(record).collect());
        let mut lost = 0;
        let counts = [0; 4].map(|_| numbers(&mut log, &mut lost).unwrap().len());
        assert_eq!(counts, [1000, 1000, 500, 0]);
    }

    #[test]
    fn the_real_log_is_read_from_its_end() {
        let mut log = match KernelLog::open(Path::new("/dev/kmsg")) {
            Ok(log) => log,
            Err(e) => {
                println!("SKIPPED: /dev/kmsg cannot be read here: {e}");
                return;
            }
        };
        assert!(matches!(log.source, Source::Device(_)));
        assert_eq!(log.read().unwrap(), []);
    }

    #[test]
    fn what_is_no_log_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [fifo.as_path(), folder.path()] {
            assert_eq!(KernelLog::open(path).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let absent = KernelLog::open(&folder.path().join("absent")).unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn the_boot_has_an_id() {
        assert_eq!(boot_id().map(|id| id.len()), Some(36));
    }
}
