//! `bill`: what devices were for, and what it cost.

use std::process::ExitCode;

use jiff::ToSpan as _;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use phalanx_account::HOUR_MS;
use phalanx_api::protocol::{Answer, BillAsk, BillBy, BillView, Verb as Ask};
use phalanx_model::Timestamp;

use super::Session;
use super::calendar::past;
use crate::args::Bill;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::show;
use crate::show::bill::Period;

/// What `-o focus` has a row for.
const OF_FOCUS: [BillBy; 9] = [
    BillBy::Day,
    BillBy::Queue,
    BillBy::User,
    BillBy::Job,
    BillBy::Model,
    BillBy::State,
    BillBy::Spot,
    BillBy::Price,
    BillBy::ListPrice,
];

pub(super) fn bill(session: &Session, asked: &Bill) -> Result<ExitCode, Failure> {
    let now = output::now();
    let time = |flag: &str, text: &Option<String>| text.as_deref().map(|t| past(flag, t, now)).transpose();
    let since = time("--since", &asked.since)?.unwrap_or_else(|| month_of(now));
    let since = Timestamp(since.0 / HOUR_MS * HOUR_MS);
    let is_focus = asked.format == Format::Focus;
    let ask = BillAsk {
        by: if is_focus { OF_FOCUS.to_vec() } else { asked.by.clone() },
        user: asked.user.clone(),
        queue: asked.queue.clone(),
        since: Some(since),
        until: time("--until", &asked.until)?,
    };
    let Answer::Bill(view) = session.ask(Ask::Bill(ask))? else { return Err(Failure::unexpected()) };
    if view.is_cut {
        session.out.note("there are more lines than are shown; a shorter time or fewer columns have fewer");
    }
    match asked.format {
        Format::Csv => output::print(&show::bill::csv(&view)?)?,
        Format::Focus => output::print(&show::bill::focus(&periods(&view), &view, &asked.currency)?)?,
        _ => {
            let names = || view.lines.iter().map(|line| line.of.join(" ")).collect();
            session.out.show("Bill", &view, |page| show::bill::page(page, &view, since), names)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The beginning of the month of a time, in UTC.
fn month_of(at: Timestamp) -> Timestamp {
    let at = i64::try_from(at.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let date = at.map(|at| at.to_zoned(TimeZone::UTC).date().first_of_month());
    let begin = date.and_then(|date| date.to_zoned(TimeZone::UTC).ok());
    let ms = begin.map_or(0, |begin| begin.timestamp().as_millisecond());
    Timestamp(u64::try_from(ms).unwrap_or_default())
}

/// The day of each line, and its month.
fn periods(view: &BillView) -> Vec<Period> {
    let period = |day: &str| {
        let day: Date = day.parse().ok()?;
        let month = day.first_of_month();
        let (next_day, next_month) = (day.checked_add(1.day()).ok()?, month.checked_add(1.month()).ok()?);
        let utc = |date: Date| format!("{date}T00:00:00Z");
        Some(Period { charge: (utc(day), utc(next_day)), billing: (utc(month), utc(next_month)) })
    };
    view.lines.iter().map(|line| line.of.first().and_then(|day| period(day)).unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_begins_with_the_month() {
        assert_eq!(month_of(Timestamp(1_796_169_600_000)), Timestamp(1_796_083_200_000));
        assert_eq!(month_of(Timestamp(0)), Timestamp(0));
        let _ = month_of(Timestamp(u64::MAX));
    }
}
