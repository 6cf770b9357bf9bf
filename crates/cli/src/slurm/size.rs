//! Numbers, sizes and times as Slurm writes them.

use jiff::civil;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Zoned};

/// Seconds of a time limit; `None` for one without end.
///
/// # Errors
/// If the text is none of `MINUTES`, `MINUTES:SECONDS`, `HOURS:MINUTES:SECONDS`, `DAYS-HOURS[:MINUTES[:SECONDS]]`, or
/// UNLIMITED.
pub(super) fn limit(text: &str) -> Result<Option<u64>, String> {
    let wrong = || {
        format!(
            "{text:?} is no time: expected MINUTES, MINUTES:SECONDS, HOURS:MINUTES:SECONDS or DAYS-HOURS[:MINUTES[:SECONDS]]"
        )
    };
    if ["unlimited", "infinite"].iter().any(|word| text.eq_ignore_ascii_case(word)) || text == "0" {
        return Ok(None);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u64>().map_err(|_| wrong())?), rest),
        None => (None, text),
    };
    let parts: Vec<u64> =
        rest.split(':').map(|part| part.parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, [minutes]) => (0, *minutes, 0),
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (Some(_), [hours]) => (*hours, 0, 0),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        (_, [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        _ => return Err(wrong()),
    };
    let sum = [(days.unwrap_or(0), 86_400), (hours, 3_600), (minutes, 60), (seconds, 1)]
        .into_iter()
        .try_fold(0_u64, |sum, (count, each)| sum.checked_add(count.checked_mul(each)?));
    match sum {
        Some(0) => Ok(None),
        Some(sum) => Ok(Some(sum)),
        None => Err(wrong()),
    }
}

/// MiB of an amount of memory: a plain number is MiB, and units are powers of 1024.
///
/// # Errors
/// If the text is no number with a unit of K, M, G or T.
pub(super) fn mebibytes(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("{text:?} is no amount of memory: expected a number with K, M, G or T, such as 64G");
    let lower = text.trim().to_ascii_lowercase();
    let plain = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let (digits, unit) = match plain.char_indices().find(|(_, letter)| !letter.is_ascii_digit()) {
        Some((at, _)) => plain.split_at(at),
        None => (plain, "m"),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    match unit {
        "k" => Some(count.div_ceil(1024)),
        "m" => Some(count),
        "g" => count.checked_mul(1 << 10),
        "t" => count.checked_mul(1 << 20),
        _ => None,
    }
    .ok_or_else(wrong)
}

/// A positive number.
///
/// # Errors
/// If the text is none.
pub(super) fn count(text: &str) -> Result<u32, String> {
    match text.trim().parse::<u32>() {
        Ok(0) | Err(_) => Err(format!("{text:?} is no number above 0")),
        Ok(count) => Ok(count),
    }
}

/// Which day a time of day without a date is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Day {
    /// Today, as `sacct` reads it.
    Today,
    /// The next time that the clock shows it, as `--begin` reads it.
    Next,
}

/// The point in time that `--begin`, `-S` or `-E` names, in this time zone.
///
/// # Errors
/// If the text is none of Slurm's forms.
pub(super) fn moment(text: &str, now: &Zoned, on: Day) -> Result<Zoned, String> {
    let wrong =
        || format!("{text:?} is no time: expected now+2hours, 16:30, 2026-12-01T08:00, tomorrow or midnight");
    let lower = text.trim().to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("now") {
        return after_now(rest, now).ok_or_else(wrong);
    }
    let at = |hour: i8, day: civil::Date| day.at(hour, 0, 0, 0);
    let today = now.date();
    let next = |time: civil::DateTime| {
        if on == Day::Next && time < now.datetime() { time.saturating_add(Span::new().days(1)) } else { time }
    };
    let civil = match lower.as_str() {
        "midnight" => next(at(0, today)),
        "noon" => next(at(12, today)),
        "fika" => next(at(15, today)),
        "teatime" => next(at(16, today)),
        "today" => at(0, today),
        "tomorrow" => at(0, today.tomorrow().map_err(|_| wrong())?),
        "yesterday" => at(0, today.yesterday().map_err(|_| wrong())?),
        _ => dated(text.trim(), today)
            .map(|(time, has_date)| if has_date { time } else { next(time) })
            .ok_or_else(wrong)?,
    };
    civil.to_zoned(now.time_zone().clone()).map_err(|_| wrong())
}

/// `+2hours` or `-1days` after `now`.
fn after_now(rest: &str, now: &Zoned) -> Option<Zoned> {
    if rest.is_empty() {
        return Some(now.clone());
    }
    let (is_before, rest) = match rest.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, rest.strip_prefix('+')?),
    };
    let digits = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (count, unit) = rest.split_at(digits);
    let count: i64 = count.parse().ok()?;
    let each = match unit {
        "" | "second" | "seconds" => 1,
        "minute" | "minutes" => 60,
        "hour" | "hours" => 3_600,
        "day" | "days" => 86_400,
        "week" | "weeks" => 604_800,
        _ => return None,
    };
    let span = SignedDuration::from_secs(count.checked_mul(each)?);
    now.checked_add(if is_before { -span } else { span }).ok()
}

/// `HH:MM[:SS]`, `YYYY-MM-DD[THH:MM[:SS]]`, `MM/DD[/YY]`, `MMDD[YY]`; whether it has a date.
fn dated(text: &str, today: civil::Date) -> Option<(civil::DateTime, bool)> {
    if let Some(time) = clock(text) {
        return Some((today.to_datetime(time), false));
    }
    let (day, time) = text
        .split_once(['T', 't', '-'])
        .filter(|_| text.contains('/'))
        .or_else(|| text.split_once(['T', 't']))
        .map_or((text, None), |(day, time)| (day, Some(time)));
    let time = match time {
        Some(time) => clock(time)?,
        None => civil::Time::midnight(),
    };
    let day = if day.contains('/') {
        let mut parts = day.split('/').map(str::parse::<i16>);
        let (month, of, year) = (parts.next()?.ok()?, parts.next()?.ok()?, parts.next());
        let year =
            year.transpose().ok()?.map_or(today.year(), |year| if year < 100 { 2000 + year } else { year });
        civil::Date::new(year, i8::try_from(month).ok()?, i8::try_from(of).ok()?).ok()?
    } else {
        day.parse().ok()?
    };
    Some((day.to_datetime(time), true))
}

/// `16:30` or `16:30:05`.
fn clock(text: &str) -> Option<civil::Time> {
    let parts: Vec<i8> = text.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match parts.as_slice() {
        [hour, minute] => civil::Time::new(*hour, *minute, 0, 0).ok(),
        [hour, minute, second] => civil::Time::new(*hour, *minute, *second, 0).ok(),
        _ => None,
    }
}

/// `1-02:03:04`, `02:03:04` or `3:04`, as `squeue` shows how long a job has run.
pub(super) fn elapsed(seconds: u64) -> String {
    let (days, hours, minutes, seconds) =
        (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}:{seconds:02}"),
        (0, _) => format!("{hours}:{minutes:02}:{seconds:02}"),
        _ => format!("{days}-{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

/// The same with all its digits, as `sacct` and `scontrol` show it.
pub(super) fn long(seconds: u64) -> String {
    let (days, hours, minutes, seconds) =
        (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let days = if days == 0 { String::new() } else { format!("{days}-") };
    format!("{days}{hours:02}:{minutes:02}:{seconds:02}")
}

/// `2026-11-21T12:00:00`, in this time zone.
pub(super) fn date(at: Option<phalanx_model::Timestamp>, tz: &TimeZone) -> String {
    let at = at.and_then(|at| jiff::Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok());
    at.map_or_else(
        || "Unknown".to_owned(),
        |at| at.to_zoned(tz.clone()).strftime("%Y-%m-%dT%H:%M:%S").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_all_forms() {
        for (text, seconds) in [
            ("30", Some(1_800)),
            ("90:30", Some(5_430)),
            ("00:90:00", Some(5_400)),
            ("48:00:00", Some(172_800)),
            ("2-12", Some(216_000)),
            ("0-48:00:00", Some(172_800)),
            ("1-02:03", Some(93_780)),
            ("1-02:03:04", Some(93_784)),
            ("UNLIMITED", None),
            ("infinite", None),
            ("0", None),
            ("00:00:00", None),
        ] {
            assert_eq!(limit(text), Ok(seconds), "{text}");
        }
        for wrong in ["", "1h", "1:2:3:4", "1-2:3:4:5", "-5", "99999999999999999999", "18446744073709551615"]
        {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn memory_is_in_powers_of_1024() {
        for (text, mib) in [
            ("4096", 4_096),
            ("64G", 65_536),
            ("64gb", 65_536),
            ("1T", 1 << 20),
            ("512M", 512),
            ("1500K", 2),
            ("0", 0),
            ("8GiB", 8_192),
        ] {
            assert_eq!(mebibytes(text), Ok(mib), "{text}");
        }
        for wrong in ["", "G", "1.5G", "4X", "-1"] {
            assert!(mebibytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn moments_are_in_the_time_zone_of_the_user() {
        let now = civil::date(2026, 11, 21).at(12, 30, 0, 0).to_zoned(TimeZone::UTC).unwrap();
        for (text, at) in [
            ("now", "2026-11-21T12:30:00"),
            ("now+1hour", "2026-11-21T13:30:00"),
            ("now+90", "2026-11-21T12:31:30"),
            ("now-2days", "2026-11-19T12:30:00"),
            ("16:00", "2026-11-21T16:00:00"),
            ("09:15:10", "2026-11-22T09:15:10"),
            ("tomorrow", "2026-11-22T00:00:00"),
            ("midnight", "2026-11-22T00:00:00"),
            ("teatime", "2026-11-21T16:00:00"),
            ("2026-12-01", "2026-12-01T00:00:00"),
            ("2026-12-01T08:00", "2026-12-01T08:00:00"),
            ("12/24", "2026-12-24T00:00:00"),
            ("01/02/27-08:30", "2027-01-02T08:30:00"),
        ] {
            let read = moment(text, &now, Day::Next).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(read.datetime().to_string(), at, "{text}");
        }
        for text in ["midnight", "00:00"] {
            let of_today = moment(text, &now, Day::Today).unwrap().datetime();
            assert_eq!(of_today, now.date().at(0, 0, 0, 0), "sacct asks for the past");
        }
        for wrong in ["soon", "now+", "now+1fortnight", "25:00", "13/40", ""] {
            assert!(moment(wrong, &now, Day::Next).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_shown_as_slurm_does() {
        assert_eq!(
            [elapsed(0), elapsed(65), elapsed(3_605), elapsed(90_061)],
            ["0:00", "1:05", "1:00:05", "1-01:01:01"]
        );
        assert_eq!([long(65), long(90_061)], ["00:01:05", "1-01:01:01"]);
    }
}
