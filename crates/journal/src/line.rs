//! The framing: `crc32-hex SP json LF`.

use std::io::{self, BufRead, Read};

use serde::Serialize;

use crate::JournalError;

/// Longest line, in bytes: the sync of a large cluster fits, and a file without line ends cannot fill memory.
pub const LINE_BYTES_MAX: usize = 256 << 20;

/// Eight hex digits and a space.
const PREFIX: usize = 9;

/// Replaces `buffer` with one line that holds `value`.
pub(crate) fn encode(value: &impl Serialize, buffer: &mut Vec<u8>) -> Result<(), JournalError> {
    buffer.clear();
    buffer.extend_from_slice(&[b' '; PREFIX]);
    serde_json::to_writer(&mut *buffer, value)?;
    let (prefix, json) = buffer.split_at_mut(PREFIX);
    for (i, digit) in prefix.iter_mut().take(8).enumerate() {
        *digit = hex_digit(crc32fast::hash(json) >> (28 - 4 * i) & 15);
    }
    buffer.push(b'\n');
    if buffer.len() > LINE_BYTES_MAX {
        return Err(JournalError::TooLarge { bytes: buffer.len(), max: LINE_BYTES_MAX });
    }
    Ok(())
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
