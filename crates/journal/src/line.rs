//! The framing: `crc32-hex SP json LF`.

use std::io::{self, BufRead, Read, Write};

use serde::Serialize;

use crate::JournalError;

/// Longest line, in bytes: a file without line ends cannot fill memory. A line is longer than [`PART_BYTES`] only if one
/// fact or decision is, or if an earlier version wrote it.
pub const LINE_BYTES_MAX: usize = 256 << 20;
/// A record that takes more is written in several lines: how much a world may hold has no limit here.
pub const PART_BYTES: usize = 8 << 20;

/// Eight hex digits and a space.
const PREFIX: usize = 9;

/// Replaces `buffer` with one line that holds `value`.
pub(crate) fn encode(value: &impl Serialize, buffer: &mut Vec<u8>) -> Result<(), JournalError> {
    if encode_within(LINE_BYTES_MAX, value, buffer)? {
        return Ok(());
    }
    let bytes = PREFIX + length(value)? + 1;
    Err(JournalError::TooLarge { bytes, max: LINE_BYTES_MAX })
}

/// As [`encode`]; false, and no line, if that would take more than `max` bytes.
pub(crate) fn encode_within(
    max: usize,
    value: &impl Serialize,
    buffer: &mut Vec<u8>,
) -> Result<bool, JournalError> {
    buffer.clear();
    buffer.extend_from_slice(&[b' '; PREFIX]);
    let mut room = Room { buffer, left: max.saturating_sub(PREFIX + 1), is_full: false };
    let written = serde_json::to_writer(&mut room, value);
    if room.is_full {
        return Ok(false);
    }
    written?;
    let (prefix, json) = buffer.split_at_mut(PREFIX);
    for (i, digit) in prefix.iter_mut().take(8).enumerate() {
        *digit = hex_digit(crc32fast::hash(json) >> (28 - 4 * i) & 15);
    }
    buffer.push(b'\n');
    Ok(true)
}

/// A buffer that takes so many bytes more.
struct Room<'a> {
    buffer: &'a mut Vec<u8>,
    left: usize,
    is_full: bool,
}

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.left.checked_sub(bytes.len()) {
            Some(left) => {
                self.left = left;
                self.buffer.extend_from_slice(bytes);
                Ok(bytes.len())
            }
            None => {
                self.is_full = true;
                Err(io::ErrorKind::FileTooLarge.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that a value takes as JSON.
pub(crate) fn length(value: &impl Serialize) -> serde_json::Result<usize> {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value)?;
    Ok(count.0)
}

fn hex_digit(nibble: u32) -> u8 {
    b"0123456789abcdef".get(nibble as usize).copied().unwrap_or(b'?')
}

/// The JSON of a line (its LF included), or what is wrong with the line.
pub(crate) fn decode(line: &[u8]) -> Result<&[u8], &'static str> {
    let Some(text) = line.strip_suffix(b"\n") else {
        return Err(if line.len() >= LINE_BYTES_MAX {
            "the line is too long"
        } else {
            "the line has no end"
        });
    };
    let Some((prefix, json)) = text.split_at_checked(PREFIX) else {
        return Err("the line is too short");
    };
    let stated = prefix.iter().take(8).try_fold(0, |sum, c| Some(sum << 4 | hex_value(*c)?));
    match stated {
        Some(stated) if prefix.last() == Some(&b' ') => {
            if stated == crc32fast::hash(json) {
                Ok(json)
            } else {
                Err("the checksum does not match")
            }
        }
        _ => Err("the line does not begin with a checksum"),
    }
}

fn hex_value(digit: u8) -> Option<u32> {
    // Only what `encode` writes: one record has one spelling.
    matches!(digit, b'0'..=b'9' | b'a'..=b'f').then(|| char::from(digit).to_digit(16)).flatten()
}

/// Lines of a source, with their place.
pub(crate) struct Lines<R> {
    source: R,
    /// Number of the line in `buffer`, from 1; 0 before the first.
    pub(crate) line: u64,
    /// Where the line in `buffer` begins.
    pub(crate) offset: u64,
    /// Where the next line begins.
    pub(crate) end: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) const fn new(source: R) -> Self {
        Self { source, line: 0, offset: 0, end: 0, buffer: Vec::new() }
    }

    /// Reads the next line, its LF included where it has one. A line that is too long comes without its end.
    pub(crate) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.buffer.clear();
        let limit = LINE_BYTES_MAX as u64;
        let mut taken = (&mut self.source).take(limit).read_until(b'\n', &mut self.buffer)? as u64;
        if taken == 0 {
            return Ok(None);
        }
        if taken == limit && self.buffer.last() != Some(&b'\n') {
            taken += self.source.skip_until(b'\n')? as u64;
        }
        self.line += 1;
        self.offset = self.end;
        self.end += taken;
        Ok(Some(&self.buffer))
    }
}
