//! Threads of the daemon. One that the daemon cannot do without takes it along when it panics: a daemon that answers and
//! decides nothing would look healthy. What runs goes on, and the next daemon takes it over.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::abort;
use std::thread::{Builder, JoinHandle};

use tracing::error;

/// The stack of a listener: there is one for each rank.
const LISTENER_STACK_BYTES: usize = 256 << 10;

/// A thread that the daemon cannot do without. Its panic ends the process with SIGABRT.
///
/// # Errors
/// If the machine has no thread left.
pub(crate) fn vital<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    start(Builder::new(), name.to_owned(), work)
}

/// The same for one of many that listen, with a small stack.
///
/// # Errors
/// If the machine has no thread left.
pub(crate) fn listener(name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    start(Builder::new().stack_size(LISTENER_STACK_BYTES), name, work).map(drop)
}

fn start<T: Send + 'static>(
    builder: Builder,
    name: String,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    builder.name(name.clone()).spawn(move || {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            error!(
                thread = name,
                hint = "jobs go on, and the next `phalanx up` takes them over; please report the panic above",
                "the daemon ends, for a thread of it panicked"
            );
            abort()
        })
    })
}

/// A thread for one thing of many: its end is the end of that thing alone.
///
/// # Errors
/// If the machine has no thread left.
pub(crate) fn single(name: impl Into<String>, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Builder::new().name(name.into()).spawn(work).map(drop)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    const CHILD: &str = "PHALANX_TEST_VITAL_THREAD";

    /// The test runs itself again: the process that ends is that child.
    #[test]
    fn a_vital_thread_that_panics_ends_the_process() {
        if std::env::var_os(CHILD).is_some() {
            phalanx_shell::log::begin(phalanx_shell::log::Format::Text, phalanx_shell::log::Level::Error);
            vital("doomed", || panic!("on purpose")).unwrap().join().unwrap();
            return;
        }
        let name = "threads::tests::a_vital_thread_that_panics_ends_the_process";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        assert_eq!(child.status.signal(), Some(nix::libc::SIGABRT), "{said}");
        assert!(said.contains("the daemon ends, for a thread of it panicked thread=\"doomed\""), "{said}");
    }

    #[test]
    fn a_single_thread_that_panics_ends_alone() {
        let (gone, is_gone) = std::sync::mpsc::channel::<()>();
        single("one", move || {
            let _gone = gone;
            panic!("on purpose");
        })
        .unwrap();
        assert!(is_gone.recv().is_err());
    }
}
