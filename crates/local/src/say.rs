//! What an operator should read, on stderr (with `--detach`: in the daemon's log).

use std::io::{self, Write};

use phalanx_shell::unix_now;

/// One line, with the time in seconds since 1970.
pub(crate) fn say(message: &str) {
    let now = unix_now().0;
    // Nobody may be listening.
    let _ = writeln!(io::stderr(), "[{}.{:03}] {message}", now / 1000, now % 1000);
}
