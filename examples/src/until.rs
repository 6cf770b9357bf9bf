//! Waiting for what another process brings about.

use std::time::{Duration, Instant};

/// Far beyond what anything of a demo takes.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What `look` gives as soon as it gives something.
///
/// # Errors
/// The first of `look`, or that it gave nothing for minutes.
pub fn until<T>(what: &str, look: impl FnMut() -> Result<Option<T>, String>) -> Result<T, String> {
    within(PATIENCE, what, look)
}

/// The same with a patience of one's own.
///
/// # Errors
/// The first of `look`, or that it gave nothing in that time.
pub fn within<T>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, String>,
) -> Result<T, String> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if began.elapsed() > patience {
            return Err(format!("{what}: not within {} s", patience.as_secs()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
