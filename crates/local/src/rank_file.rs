//! Small files that ranks write and the daemon reads: the last whole line of `key=value` words counts.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// Only this much of the end of a file is read.
const TAIL_BYTES: u64 = 4_096;
/// Characters shown of a line that cannot be parsed.
const SHOWN_MAX: usize = 80;

/// The end of a file. If the rank runs as the daemon's user, it can replace the file by a FIFO or a link: the daemon neither waits
/// for it nor follows it.
pub(crate) fn tail(path: &Path) -> io::Result<String> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let mut file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last whole line that is not blank. `None` if there is none, for example while the rank writes the file.
pub(crate) fn last_line(text: &str) -> Option<&str> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.rsplit('\n').map(str::trim).find(|line| !line.is_empty())
}

/// The words `key=value` of a line; others are left out.
pub(crate) fn words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split_whitespace().filter_map(|word| word.split_once('='))
}

/// An error with the beginning of the line.
pub(crate) fn unread(why: &str, line: &str) -> String {
    format!("{why}: {:?}", line.chars().take(SHOWN_MAX).collect::<String>())
}
