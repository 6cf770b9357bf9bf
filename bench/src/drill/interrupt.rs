//! Ctrl-C, SIGTERM and the end of the terminal end a drill in order: jobs are cancelled, and what was frozen or mounted is undone.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{SigSet, Signal};

static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Takes SIGINT, SIGTERM and SIGHUP from now on, in this thread and those that it starts. A second signal ends the process.
pub(super) fn watch() -> Result<(), String> {
    let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    signals.thread_block().map_err(|e| format!("signals cannot be blocked: {e}"))?;
    std::thread::spawn(move || {
        if signals.wait().is_ok() {
            IS_OVER.store(true, Ordering::SeqCst);
            let _ = signals.thread_unblock();
        }
        loop {
            std::thread::park();
        }
    });
    Ok(())
}

pub(super) fn is_over() -> bool {
    IS_OVER.load(Ordering::SeqCst)
}
