//! Windows, drains by a time, and nodes that are taken back.

use std::process::ExitCode;

use phalanx_api::protocol::{Answer, Verb as Ask, WindowAsk};
use phalanx_model::{QueueName, Timestamp};
use phalanx_spec::Scalar;
use phalanx_spec::moment::Moment;
use phalanx_spec::quantity::parse_duration_ns;

use super::{Session, cluster};
use crate::args::{Calendar, CalendarVerb, Drain, Nodes, Notice};
use crate::failure::Failure;
use crate::output::{self, Items};
use crate::show;

pub(super) fn calendar(session: &Session, asked: Calendar) -> Result<ExitCode, Failure> {
    match asked.verb {
        None => list(session),
        Some(CalendarVerb::Add { nodes: Nodes { nodes }, from, until, queue, reason }) => {
            let now = output::now();
            let begins_at = from.map_or(Ok(now), |text| instant("--from", &text, now))?;
            let ends_at = instant("--until", &until, now)?;
            let held_for = queue.as_deref().map(QueueName::new).transpose();
            let held_for = held_for.map_err(|e| {
                Failure::usage(format!("--for is no queue: {e}"), "`phalanx queues` lists them")
            })?;
            session.done(Ask::AddWindow(WindowAsk { nodes, begins_at, ends_at, held_for, reason }))
        }
        Some(CalendarVerb::Remove { nodes: Nodes { nodes }, from }) => {
            let now = output::now();
            let begins_at = from.map(|text| instant("--from", &text, now)).transpose()?;
            session.done(Ask::RemoveWindow { nodes, begins_at })
        }
    }
}

fn list(session: &Session) -> Result<ExitCode, Failure> {
    let Answer::Calendar(windows) = session.ask(Ask::Calendar)? else { return Err(Failure::unexpected()) };
    let names = || windows.iter().flat_map(|window| &window.nodes).map(ToString::to_string).collect();
    let body = Items { items: &windows };
    session.out.show("Calendar", body, |page| show::calendar::list(page, &windows), names)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn drain(session: &Session, asked: &Drain) -> Result<ExitCode, Failure> {
    let by = asked.by.as_deref().map(|text| instant("--by", text, output::now())).transpose()?;
    session.done(Ask::Drain { node: cluster::node_name(&asked.node)?, by, reason: asked.reason.clone() })
}

pub(super) fn notice(session: &Session, asked: &Notice) -> Result<ExitCode, Failure> {
    let node = cluster::node_name(&asked.node)?;
    let read = |text: &str| parse_duration_ns(text).map(|ns| ns.div_ceil(1_000_000));
    let in_ms = asked.time.as_deref().map(read).transpose();
    let in_ms = in_ms.map_err(|e| Failure::usage(format!("--in: {e}"), "as in 2m"))?;
    session.done(Ask::NoticeSpot { node, in_ms })
}

/// A point in time that has been: so long ago, or as [`instant`] reads it.
pub(super) fn past(flag: &str, text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    match parse_duration_ns(text) {
        Ok(ns) => Ok(Timestamp(now.0.saturating_sub(ns / 1_000_000))),
        Err(_) => instant(flag, text, now),
    }
}

/// A point in time; from now on in whole seconds, so that people can name it again.
fn instant(flag: &str, text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    let now = Timestamp(now.0.div_ceil(1_000) * 1_000);
    match Moment::read(text) {
        Ok(moment) => Ok(moment.from(now)),
        Err(why) => Err(Failure::usage(format!("{flag}: {why}"), format!("expected {}", Moment::ACCEPTED))),
    }
}
