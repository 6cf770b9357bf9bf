//! What operators ask of an agent: annotations of the node's `NodeTopology`, each for one device or for the node itself.
//!
//! | annotation | value |
//! |---|---|
//! | `phalanx.dev/clear-gpu-3`, `phalanx.dev/clear-node` | why: it is repaired |
//! | `phalanx.dev/report-gpu-3`, `phalanx.dev/report-node` | `xid=79` or `grade=broken`, and then why |
//!
//! The agent does it and removes the annotation. An agent that is not running does it when it starts.

use phalanx_health::Evidence;
use phalanx_model::{DEVICES_PER_NODE_MAX, Grade};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Clear { reason: String },
    Report { finding: Finding, reason: String },
}

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The grade that it has until it is cleared.
    Grade(Grade),
    /// An Xid that was seen elsewhere; the table of Xids decides.
    Xid(u32),
}

const CLEAR: &str = "phalanx.dev/clear-";
const REPORT: &str = "phalanx.dev/report-";

/// Longer reasons are cut.
pub const REASON_CHARS_MAX: usize = 200;

impl Request {
    /// The annotation that makes this request of a device, or of the node itself.
    #[must_use]
    pub fn annotation(&self, device: Option<u32>) -> (String, String) {
        let of = device.map_or_else(|| "node".to_owned(), |device| format!("gpu-{device}"));
        match self {
            Self::Clear { reason } => (format!("{CLEAR}{of}"), reason.clone()),
            Self::Report { finding, reason } => {
                let finding = match finding {
                    Finding::Grade(grade) => format!("grade={grade}"),
                    Finding::Xid(number) => format!("xid={number}"),
                };
                (format!("{REPORT}{of}"), format!("{finding} {reason}").trim_end().to_owned())
            }
        }
    }

    /// The request of an annotation; nothing where it is none.
    ///
    /// # Errors
    /// What is wrong with it, and what to write instead.
    #[must_use]
    pub fn of(key: &str, value: &str) -> Option<Result<(Option<u32>, Self), String>> {
        let (is_clear, of) = match key.strip_prefix(CLEAR) {
            Some(of) => (true, of),
            None => (false, key.strip_prefix(REPORT)?),
        };
        Some(parse(is_clear, of, value).map_err(|why| format!("{key}: {why}")))
    }
}

fn parse(is_clear: bool, of: &str, value: &str) -> Result<(Option<u32>, Request), String> {
    let device = match of {
        "node" => None,
        of => {
            let number = of.strip_prefix("gpu-").and_then(|number| number.parse::<u32>().ok());
            let number = number.filter(|number| *number < DEVICES_PER_NODE_MAX);
            Some(number.ok_or("expected `node` or `gpu-` and a number at the end, such as gpu-3")?)
        }
    };
    let cut = |text: &str| text.trim().chars().take(REASON_CHARS_MAX).collect::<String>();
    if is_clear {
        return Ok((device, Request::Clear { reason: cut(value) }));
    }
    let bad = || format!("expected `xid=79` or `grade=broken`, and then a reason, and found {value:?}");
    let (finding, reason) = value.trim().split_once(' ').unwrap_or((value.trim(), ""));
    let (kind, what) = finding.split_once('=').ok_or_else(bad)?;
    let finding = match kind {
        "xid" if device.is_some() => Finding::Xid(what.parse().map_err(|_| bad())?),
        "xid" => return Err("an Xid is of a device, and this is of the node".to_owned()),
        "grade" => Finding::Grade(Grade::of_word(what).filter(|of| *of > Grade::Ok).ok_or_else(bad)?),
        _ => return Err(bad()),
    };
    Ok((device, Request::Report { finding, reason: cut(reason) }))
}

impl Finding {
    /// As a grader takes it.
    #[must_use]
    pub fn evidence(self, reason: String) -> Evidence {
        match self {
            Self::Grade(grade) => Evidence::Report { grade, by: "an operator".to_owned(), text: reason },
            Self::Xid(number) => Evidence::Xid { number, text: reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let reason = "the board was changed".to_owned();
        let report = |finding| Request::Report { finding, reason: reason.clone() };
        for (request, device, key, value) in [
            (Request::Clear { reason: reason.clone() }, Some(3), "phalanx.dev/clear-gpu-3", &*reason),
            (report(Finding::Xid(79)), Some(0), "phalanx.dev/report-gpu-0", "xid=79 the board was changed"),
            (
                report(Finding::Grade(Grade::Broken)),
                None,
                "phalanx.dev/report-node",
                "grade=broken the board was changed",
            ),
        ] {
            assert_eq!(request.annotation(device), (key.to_owned(), value.to_owned()));
            assert_eq!(Request::of(key, value), Some(Ok((device, request))));
        }
        assert_eq!(Request::of("phalanx.dev/health-state", ""), None);
        let (_, bare) = Request::of("phalanx.dev/report-gpu-1", "grade=suspect").unwrap().unwrap();
        assert_eq!(bare.annotation(Some(1)).1, "grade=suspect");
    }

    #[test]
    fn what_is_no_request_is_said_with_its_annotation() {
        for (key, value) in [
            ("phalanx.dev/clear-", "x"),
            ("phalanx.dev/clear-gpu-", "x"),
            ("phalanx.dev/clear-gpu-64", "x"),
            ("phalanx.dev/report-gpu-1", ""),
            ("phalanx.dev/report-gpu-1", "xid"),
            ("phalanx.dev/report-gpu-1", "xid=-1"),
            ("phalanx.dev/report-gpu-1", "grade=ok"),
            ("phalanx.dev/report-gpu-1", "grade=bad"),
            ("phalanx.dev/report-node", "xid=79"),
        ] {
            let why = Request::of(key, value).unwrap().unwrap_err();
            assert!(why.starts_with(&format!("{key}: ")), "{why}");
        }
    }
}
