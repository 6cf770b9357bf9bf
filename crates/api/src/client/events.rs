//! Server-sent events, as they come piece by piece.

use crate::client::ClientError;
use crate::http::routes::cluster::Reset;
use crate::http::{LogLine, Problem};
use crate::protocol::{Answer, EventView};

/// What came of a stream and was not looked at yet.
#[derive(Debug, Default)]
pub(super) struct Events {
    text: Vec<u8>,
    /// Bytes of `text` that were looked at.
    read: usize,
}

/// One event: its name, and its document.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    name: String,
    data: Vec<u8>,
}

impl Events {
    pub(super) fn add(&mut self, piece: &[u8]) {
        self.text.drain(..self.read);
        self.read = 0;
        self.text.extend_from_slice(piece);
    }

    /// The next event that came whole. Comments, which keep a stream alive, are none.
    pub(super) fn next(&mut self) -> Option<Event> {
        let mut event = Event::default();
        let mut at = self.read;
        loop {
            let rest = self.text.get(at..)?;
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            let line = &rest[..end];
            at += end + 1;
            if line.is_empty() {
                self.read = at;
                if event == Event::default() {
                    continue;
                }
                return Some(event);
            }
            let value = |field: &[u8]| {
                line.strip_prefix(field).map(|value| value.strip_prefix(b" ").unwrap_or(value))
            };
            if let Some(name) = value(b"event:") {
                event.name = String::from_utf8_lossy(name).into_owned();
            } else if let Some(data) = value(b"data:") {
                event.data.extend_from_slice(data);
            }
        }
    }
}

impl Event {
    /// The answer that it carries; `None` at the end of the stream.
    pub(super) fn hear(&self) -> Option<Result<Answer, ClientError>> {
        let answer = match self.name.as_str() {
            "end" => return None,
            "problem" => {
                let problem = serde_json::from_slice::<Problem>(&self.data);
                return Some(Err(
                    problem.map_or_else(ClientError::from, |of| ClientError::Refused(of.into()))
                ));
            }
            "log" => serde_json::from_slice(&self.data).map(|LogLine { task, rank, attempt, at, line }| {
                Answer::Log { task, rank, attempt, at, line }
            }),
            "change" => serde_json::from_slice(&self.data).map(Answer::Change),
            "reset" => serde_json::from_slice(&self.data).map(|Reset { id }| Answer::Reset { id }),
            "job" => serde_json::from_slice(&self.data).map(Answer::Job),
            _ => serde_json::from_slice(&self.data).map(|EventView { at, what, detail, .. }| Answer::Event {
                at,
                what,
                detail,
            }),
        };
        Some(answer.map_err(ClientError::from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_however_they_are_cut() {
        let text = b":\n\nevent: log\ndata: {\"line\":1}\n\nid: 3\nevent:end\ndata:{}\n\nevent: late\n";
        for cut in 0..text.len() {
            let (mut events, mut all) = (Events::default(), Vec::new());
            for part in [&text[..cut], &text[cut..]] {
                events.add(part);
                all.extend(std::iter::from_fn(|| events.next()));
            }
            let names: Vec<(&str, &[u8])> =
                all.iter().map(|of| (of.name.as_str(), of.data.as_slice())).collect();
            assert_eq!(names, [("log", &b"{\"line\":1}"[..]), ("end", b"{}")], "cut at {cut}");
        }
    }
}
