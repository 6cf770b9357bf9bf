//! Waiting for what another process brings about.

use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What `look` gives as soon as it gives something, for tests.
///
/// # Panics
/// When it gave nothing in that time.
pub fn until<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < patience, "{what} did not happen");
        std::thread::sleep(LOOK_EVERY);
    }
}
