//! Waiting for descriptors and for time, in processes with one thread.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Longest sleep: what is missed by an event is seen then.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Sleeps until one of these is ready, a signal comes, or the time is over, [`SLEEP_MAX`] at most.
pub(crate) fn wait(fds: Vec<(BorrowedFd<'_>, PollFlags)>, left: Option<Duration>) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> = fds.into_iter().map(|(fd, flags)| PollFd::new(fd, flags)).collect();
    let left = left.unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
    // Rounded up, or the last millisecond before a deadline would be spun away.
    let timeout = PollTimeout::try_from(left + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
    match poll(&mut fds, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
