//! Reads the time of a point, and limits the age of the point. An error states the time that was
//! read, the limit, the limit's configuration key, and the usual cause.

use super::epoch::{epoch_ms_from_float, epoch_ms_from_integer, rounded};
use super::json::Scalar;
use super::notations::explain_days;
use super::refusal::{Refusal, refuse};
use super::schema::Schema;
use super::time::{Local, Zone, explain_date_digits, rfc3339};
use super::unit::TimeUnit;
use crate::position::Timestamp;
use crate::reject::Reason;

pub(super) const DAY_MS: i64 = 86_400_000;
/// Length of 1,024 weeks. GPS counts weeks modulo 1,024, so a receiver whose firmware predates the
/// current count reports times that are too early by this length.
const ROLLOVER_MS: i64 = 1_024 * 7 * DAY_MS;
/// 1981-01-01. If a time is earlier, the clock was never set: a receiver without a fix reports 1970
/// or 1980.
const CLOCK_UNSET_BEFORE_MS: i64 = 347_155_200_000;

/// Maximum distances of `ts` from the time of receipt, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgeLimits {
    pub(super) past_ms: i64,
    pub(super) future_ms: i64,
    /// The configuration key that sets `past_ms`, for errors.
    pub(super) past_key: &'static str,
}

impl AgeLimits {
    /// Returns the time of a point, checked against the limits; `None` if the point has no `ts`.
    pub(super) fn timestamp(
        &self,
        ts: &Scalar<'_>,
        schema: &Schema,
        received_at: Timestamp,
    ) -> Result<Option<Timestamp>, Refusal> {
        let ms = match (ts, schema.ts_unit) {
            (Scalar::Missing, _) => return Ok(None),
            (Scalar::Integer(number), TimeUnit::BySize) => epoch_ms_from_integer(*number),
            (Scalar::Number(number), TimeUnit::BySize) => epoch_ms_from_float(number.as_f64()),
            (Scalar::Integer(number), TimeUnit::Seconds) => number.saturating_mul(1_000),
            (Scalar::Number(number), TimeUnit::Seconds) => rounded(number.as_f64() * 1e3),
            (Scalar::Integer(number), TimeUnit::Milliseconds) => *number,
            (Scalar::Number(number), TimeUnit::Milliseconds) => rounded(number.as_f64()),
            (Scalar::Integer(number), TimeUnit::Microseconds) => number / 1_000,
            (Scalar::Number(number), TimeUnit::Microseconds) => rounded(number.as_f64() / 1e3),
            (Scalar::Integer(number), TimeUnit::Nanoseconds) => number / 1_000_000,
            (Scalar::Number(number), TimeUnit::Nanoseconds) => rounded(number.as_f64() / 1e6),
            (_, unit) => from_text(ts, unit, schema.local.as_deref())?,
        };
        let age_ms = received_at.unix_ms().saturating_sub(ms);
        if age_ms > self.past_ms {
            return refuse(Reason::TooOld, too_old(*self, ts, ms, schema.ts_unit, received_at));
        }
        if age_ms < -self.future_ms {
            return refuse(Reason::TooNew, too_new(*self, ts, ms, schema.ts_unit, received_at));
        }
        Ok(Some(Timestamp::from_unix_ms(ms)))
    }
}

/// Parses a `ts` that is not a number, or that the format reads as a string.
#[inline(never)]
fn from_text(ts: &Scalar<'_>, unit: TimeUnit, local: Option<&Local>) -> Result<i64, Refusal> {
    // A number such as 251126101500, which a pattern parses as text.
    if let (Scalar::Integer(number), TimeUnit::Pattern) = (ts, unit) {
        return from_text(&Scalar::Text(number.to_string().into()), unit, local);
    }
    let problem = match (ts, unit, local) {
        (
            Scalar::Text(text),
            TimeUnit::BySize | TimeUnit::Rfc3339 | TimeUnit::Pattern,
            Some(local),
        ) => {
            let ms = local.unix_ms(text);
            return ms.map_err(|why| Refusal::new(Reason::BadTs, format!("ts is {ts}: {why}")));
        }
        (Scalar::Text(text), TimeUnit::BySize | TimeUnit::Rfc3339, None) => match rfc3339(text) {
            Some(time) => return Ok(time.unix_ms()),
            None => {
                // A string with an offset needs no zone.
                if let Ok(ms) = Local::default().unix_ms(text) {
                    return Ok(ms);
                }
                let negation =
                    if unit == TimeUnit::BySize { "neither a number nor" } else { "not" };
                match (Local { zone: Some(Zone::utc()), pattern: None }).unix_ms(text) {
                    Ok(_) => format!(
                        "{negation} RFC 3339 with an offset, such as 2026-01-31T08:00:00Z; name \
                         its zone with `zone` of the source or `ts_zone` of the format"
                    ),
                    // If the string does not look like a date, give no advice about dates.
                    Err(why) if !why.contains("not a time such as") => format!("but {why}"),
                    Err(_) => {
                        format!("{negation} RFC 3339 with an offset, such as 2026-01-31T08:00:00Z")
                    }
                }
            }
        },
        // RFC 3339 states one instant, whatever the unit of the format's numbers.
        (
            Scalar::Text(text),
            TimeUnit::Seconds
            | TimeUnit::Milliseconds
            | TimeUnit::Microseconds
            | TimeUnit::Nanoseconds,
            _,
        ) => match rfc3339(text) {
            Some(time) => return Ok(time.unix_ms()),
            None => "not a number".to_owned(),
        },
        (Scalar::Other(_), _, _) => "not a number or RFC 3339".to_owned(),
        (Scalar::Integer(_) | Scalar::Number(_), TimeUnit::Rfc3339, _) => {
            "not RFC 3339: set ts_unit = \"s\" or \"ms\" in [formats.NAME]".to_owned()
        }
        (Scalar::Number(_), TimeUnit::Pattern, _) => {
            "a number with a fraction or too many digits: send it as text, which the pattern of \
             ts_unit reads"
                .to_owned()
        }
        (_, TimeUnit::Rfc3339 | TimeUnit::Pattern, _) => "not RFC 3339".to_owned(),
        _ => "not a number".to_owned(),
    };
    refuse(Reason::BadTs, format!("ts is {ts}, {problem}"))
}

#[cold]
fn too_old(
    limits: AgeLimits,
    ts: &Scalar<'_>,
    ms: i64,
    unit: TimeUnit,
    received_at: Timestamp,
) -> String {
    let time = format_time(ms);
    let is_plausible = |ms: i64| limits.is_plausible(ms, received_at);
    let (days, key) = (limits.past_ms / DAY_MS, limits.past_key);
    let to_store = format!("is more than {days} days old; to store it, raise {key}");
    let is_number = matches!(ts, Scalar::Integer(_) | Scalar::Number(_));
    let epoch = EPOCHS.iter().find(|(seconds, _)| is_number && is_plausible(ms + seconds * 1_000));
    let epoch = epoch
        .map(|(seconds, name)| format!("adding {seconds} s corrects it: the device counts {name}"));
    if let Some((weeks, day)) = rollover(ms, 1, is_plausible) {
        let or_epoch = epoch.map_or(String::new(), |hint| format!("; or {hint}"));
        // The time may be right: an imported file can be years old.
        let or_old = if days > 100 { format!("; or it {to_store}") } else { String::new() };
        return format!(
            "{time} is {weeks} weeks before {day}: the receiver has the GPS week rollover; update \
             its firmware{or_epoch}{or_old}"
        );
    }
    if let Some(hint) = unit_hint(ts, unit, is_plausible) {
        return format!("{time} is too old; {hint}");
    }
    if let Some(why) = ts.as_f64().and_then(explain_days) {
        return format!("ts {ts} {why}");
    }
    if let (Scalar::Integer(number), TimeUnit::BySize) = (ts, unit)
        && let Some(hint) = explain_date_digits(*number, is_plausible)
    {
        return hint;
    }
    if let Some(hint) =
        other_count(ts, is_plausible).or_else(|| other_calendar(ts, ms, received_at))
    {
        return hint;
    }
    if unit == TimeUnit::Pattern && (YEAR_2_MS..YEAR_100_MS).contains(&ms) {
        return format!("{time}: the year has two digits; use %y instead of %Y in the pattern");
    }
    if ms < CLOCK_UNSET_BEFORE_MS {
        return format!("{time}: the device's clock was never set");
    }
    if let Some(hint) = epoch {
        return format!("{time} is too old; {hint}");
    }
    format!("{time} {to_store}")
}

/// Beginnings of the years 2 and 100. A pattern with `%Y` reads a year of two digits as a time
/// between these two. The year 1 is excluded: it is the zero time of Go and .NET, from a clock that
/// was never set.
const YEAR_2_MS: i64 = -62_104_060_800_000;
const YEAR_100_MS: i64 = -59_011_459_200_000;
/// Epochs of other clocks, in seconds after 1970. GPS time has no leap seconds, so it is 18 seconds
/// ahead of UTC.
pub(super) const EPOCHS: [(i64, &str); 4] = [
    (631_065_600, "from 1989-12-31, as Garmin's FIT does"),
    (978_307_200, "from 2001, as Apple's clocks do"),
    (315_964_800 - 18, "from 1980-01-06, as GPS does"),
    (946_684_800, "from 2000"),
];

/// Explains a number that counts days, seconds or 100 ns from a day other than 1970-01-01.
fn other_count(ts: &Scalar<'_>, is_plausible: impl Fn(i64) -> bool) -> Option<String> {
    /// Milliseconds of one unit, the number at 1970, and the name of the count.
    const COUNTS: [(f64, f64, &str); 5] = [
        (86_400_000.0, 2_440_587.5, "a Julian day"),
        (86_400_000.0, 40_587.0, "a modified Julian day"),
        (1e-4, 116_444_736_000_000_000.0, "a count of 100 ns since 1601, as Windows writes it"),
        (1e-4, 621_355_968_000_000_000.0, "a count of 100 ns since the year 1, as .NET writes it"),
        (1_000.0, 2_082_844_800.0, "a count of seconds since 1904"),
    ];
    let number = ts.as_f64()?;
    let is_near =
        |(unit, zero, _): &&(f64, f64, &str)| is_plausible(rounded((number - zero) * unit));
    let (.., name) = COUNTS.iter().find(is_near)?;
    Some(format!("ts {ts} is {name}: send Unix time, or RFC 3339"))
}

/// Explains a time string whose year is from another calendar, or whose date is day 0 of a
/// spreadsheet.
fn other_calendar(ts: &Scalar<'_>, ms: i64, received_at: Timestamp) -> Option<String> {
    const YEAR_MS: f64 = 365.2425 * 86_400_000.0;
    let text = ts.as_text()?;
    let years = |ms: i64| 1_970.0 + ms as f64 / YEAR_MS;
    let (year, now) = (years(ms), years(received_at.unix_ms()));
    if (1_899.9..1_900.1).contains(&year) {
        return Some(format!(
            "ts {text:.40} has the first day of Access or a spreadsheet, so it is a time of day: \
             join it with its date, as in --field ts=DATE+TIME"
        ));
    }
    // An Islamic year has 354.37 days on average.
    let calendars = [
        (year + 621.22, "Persian"),
        (year * 0.970_224 + 621.57, "Islamic"),
        (year - 543.0, "Buddhist"),
    ];
    let (_, name) = calendars.into_iter().find(|(gregorian, _)| (gregorian - now).abs() < 1.5)?;
    Some(format!("ts {text:.40} is a date of the {name} calendar: send the Gregorian date"))
}

#[cold]
fn too_new(
    limits: AgeLimits,
    ts: &Scalar<'_>,
    ms: i64,
    unit: TimeUnit,
    received_at: Timestamp,
) -> String {
    let time = format_time(ms);
    let is_plausible = |ms: i64| limits.is_plausible(ms, received_at);
    if let Some(hint) = unit_hint(ts, unit, is_plausible) {
        return format!("{time} is in the future; {hint}");
    }
    if let (Scalar::Integer(number), TimeUnit::BySize) = (ts, unit)
        && let Some(hint) = explain_date_digits(*number, is_plausible)
    {
        return hint;
    }
    if let Some((weeks, day)) = rollover(ms, -1, is_plausible) {
        return format!(
            "{time} is {weeks} weeks after {day}: the receiver has the GPS week rollover; update \
             its firmware"
        );
    }
    if let Some(hint) =
        other_count(ts, is_plausible).or_else(|| other_calendar(ts, ms, received_at))
    {
        return hint;
    }
    let (ahead, limit) =
        (ms.saturating_sub(received_at.unix_ms()) / 1_000, limits.future_ms / 1_000);
    format!("{time} is {ahead} s ahead of milepost's clock; decode.fix_future_max allows {limit} s")
}

/// Returns the number of weeks by which GPS rollovers shifted the time, and the day without this
/// shift. `sign`: 1 if the time is too early, -1 if it is too late. `None` if no number of
/// rollovers explains the time.
fn rollover(ms: i64, sign: i64, is_plausible: impl Fn(i64) -> bool) -> Option<(i64, String)> {
    let shifted = |rollovers: i64| ms.saturating_add(sign * rollovers * ROLLOVER_MS);
    let rollovers = [1, 2].into_iter().find(|rollovers| is_plausible(shifted(*rollovers)))?;
    let day = format_time(shifted(rollovers)).get(..10).unwrap_or_default().to_owned();
    Some((rollovers * 1_024, day))
}

impl AgeLimits {
    /// Returns whether the limits accept this time, in Unix milliseconds.
    fn is_plausible(self, ms: i64, received_at: Timestamp) -> bool {
        let age_ms = received_at.unix_ms().saturating_sub(ms);
        (-self.future_ms..=self.past_ms).contains(&age_ms)
    }
}

/// Explains a number that was read in the wrong unit, such as seconds read as milliseconds.
fn unit_hint(
    ts: &Scalar<'_>,
    unit: TimeUnit,
    is_plausible: impl Fn(i64) -> bool,
) -> Option<String> {
    const UNITS: [(&str, f64); 4] = [("s", 1e3), ("ms", 1.0), ("us", 1e-3), ("ns", 1e-6)];
    let read_in = match unit {
        TimeUnit::Seconds => 0,
        TimeUnit::Milliseconds => 1,
        TimeUnit::Microseconds => 2,
        TimeUnit::Nanoseconds => 3,
        TimeUnit::BySize | TimeUnit::Rfc3339 | TimeUnit::Pattern => return None,
    };
    let number = ts.as_f64()?;
    let sent_in = UNITS.iter().position(|(_, ms)| is_plausible(rounded(number * ms)))?;
    let ratio =
        ["1,000", "1,000,000", "1,000,000,000"].get(sent_in.abs_diff(read_in).checked_sub(1)?)?;
    let (sent, read) = (UNITS[sent_in].0, UNITS[read_in].0);
    Some(format!(
        "it is off by a factor of {ratio}: the number is in {sent}, but is read in {read}; set \
         ts_unit = \"{sent}\""
    ))
}

/// Formats a time as RFC 3339, or as milliseconds if the year has more than four digits.
fn format_time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms)
        .map_or_else(|_| format!("{ms} ms"), |time| time.to_string())
}
