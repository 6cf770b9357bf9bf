//! One line of a kernel log.

use super::Xid;

/// How the driver begins each report.
const REPORT: &str = "NVRM: Xid (";
/// Bytes of a text that are kept.
const TEXT_MAX: usize = 512;
/// Bytes of the rest of a line that are looked at: `\xNN` writes one byte in four.
const REST_MAX: usize = 4 * TEXT_MAX;

/// The Xid error that a line reports. A line is a record of `/dev/kmsg`, or a line as dmesg, journalctl or a syslog
/// daemon writes it, or the message alone.
///
/// Only a message that begins with the report counts: messages quote what processes choose, such as their names. For
/// the same reason the facility must be the kernel's, if the line gives it, for root may write to `/dev/kmsg`; and the
/// tag must be `kernel`, if the line has one.
#[must_use]
pub fn parse(line: &str) -> Option<Xid> {
    // Later lines of a record are its properties.
    let line = line.lines().next()?;
    let report = message(line)?.strip_prefix(REPORT)?;
    let (place, rest) = report.split_once("): ")?;
    let address = address(place)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(digits);
    let text = match rest.strip_prefix(',') {
        Some(text) => text,
        None if rest.trim().is_empty() => "",
        None => return None,
    };
    Some(Xid { number: number.parse().ok()?, address, text: clean(text) })
}

/// The message behind the prefix that a log adds. `None` if the prefix says that the message is not the kernel's.
fn message(line: &str) -> Option<&str> {
    if line.starts_with(REPORT) {
        return Some(line);
    }
    if let Some(message) = record(line) {
        return message;
    }
    let line = match line.strip_prefix('<') {
        // As `dmesg --raw` writes it.
        Some(rest) => {
            let (priority, rest) = rest.split_once('>')?;
            is_kernel(priority).then_some(rest)?
        }
        // As `dmesg --decode` writes it: `kern  :warn  : `.
        None => match line.strip_prefix("kern").and_then(|rest| rest.trim_start().strip_prefix(':')) {
            Some(rest) => rest.split_once(": ")?.1,
            None => line,
        },
    };
    Some(after_brackets(after_syslog(line)))
}

/// The message of a record of `/dev/kmsg`: `4,1234,5678,-;message`, with more fields before the semicolon in later
/// kernels. `None` if the line is no record, and `Some(None)` for a record that is not the kernel's.
fn record(line: &str) -> Option<Option<&str>> {
    let (prefix, message) = line.split_once(';')?;
    let mut fields = prefix.split(',');
    let (priority, sequence, time) = (fields.next()?, fields.next()?, fields.next()?);
    fields.next()?;
    let is_record = [priority, sequence, time].iter().all(|field| is_number(field));
    is_record.then(|| is_kernel(priority).then_some(message))
}

/// The facility of a priority is what the lowest three bits leave; the kernel's is 0.
fn is_kernel(priority: &str) -> bool {
    is_number(priority) && priority.parse::<u32>().is_ok_and(|priority| priority >> 3 == 0)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// After `Nov 20 12:03:04 host kernel: `, `2026-11-20T12:03:04.123456+00:00 host kernel: ` or such a time alone, as
/// `dmesg --time-format iso` writes it; the line itself if it begins with neither.
fn after_syslog(line: &str) -> &str {
    let mut words = Words { rest: line };
    let is_iso = |word: &str| word.len() >= 19 && word.as_bytes().get(10) == Some(&b'T') && is_time(word);
    let Some(first) = words.next() else { return line };
    if is_iso(first) {
        let after_time = words.rest;
        words.next();
        return if words.next() == Some("kernel:") { words.rest } else { after_time };
    }
    let is_month = first.len() == 3 && first.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_date = is_month && words.next().is_some_and(is_number) && words.next().is_some_and(is_time);
    words.next();
    if is_date && words.next() == Some("kernel:") { words.rest } else { line }
}

fn is_time(word: &str) -> bool {
    word.contains(':') && word.bytes().all(|byte| byte.is_ascii_digit() || b":.,+-TZ".contains(&byte))
}

/// Words and the blanks between them.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let (word, rest) = self.rest.split_once(' ')?;
        self.rest = rest.trim_start_matches(' ');
        Some(word)
    }
}

/// After the times of dmesg, `[  888.328147] ` or `[Wed Jul 30 14:23:50 2026] `, and the task that printed, `[ T1234]`.
fn after_brackets(line: &str) -> &str {
    let mut rest = line;
    for _ in 0..2 {
        let inner = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let Some((inner, after)) = inner else { break };
        let is_time = inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" .:+-".contains(&byte));
        if !is_time || inner.len() > 40 {
            break;
        }
        rest = after.trim_start_matches(' ');
    }
    rest
}

/// `PCI:0000:3b:00`, with a function or without, with the instances of MIG after it or not, as the kernel writes it:
/// `0000:3b:00.0`. Old drivers leave out `PCI:`.
fn address(place: &str) -> Option<String> {
    let place = place.strip_prefix("PCI:").unwrap_or(place);
    let (place, instance) = place.split_once(' ').unwrap_or((place, ""));
    if !(instance.is_empty() || instance.starts_with("GPU-I:")) {
        return None;
    }
    let (place, function) = place.split_once('.').unwrap_or((place, "0"));
    let mut parts = place.split(':');
    let domain = hex(parts.next()?, 8)?;
    let bus = hex(parts.next()?, 2)?;
    let device = hex(parts.next()?, 2)?;
    let function = hex(function, 1)?;
    let is_address = parts.next().is_none() && device < 32 && function < 8;
    is_address.then(|| format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

fn hex(text: &str, digits_max: usize) -> Option<u32> {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex && text.len() <= digits_max).then(|| u32::from_str_radix(text, 16).ok())?
}

/// A text of at most [`TEXT_MAX`] bytes that is safe to print.
fn clean(text: &str) -> String {
    let text = text.trim_start();
    let rest = text.get(..text.floor_char_boundary(REST_MAX)).unwrap_or(text);
    let mut cleaned: String = decode(rest).chars().map(|c| if is_printable(c) { c } else { ' ' }).collect();
    cleaned.truncate(cleaned.floor_char_boundary(TEXT_MAX));
    cleaned.trim().to_owned()
}

/// No control character, and none that changes the direction of the text or breaks lines.
fn is_printable(c: char) -> bool {
    let is_format = matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !is_format
}

/// The kernel writes control characters, backslashes and all that is not ASCII as `\xNN`.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        let code = after.get(..2).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                rest = after;
            }
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
