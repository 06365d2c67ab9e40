//! The time of a point, and how old it may be. A refusal says the time that was read, the limit,
//! its key, and the usual cause.

use super::json::Scalar;
use super::reading::Reading;
use super::refusal::{Refusal, refuse};
use super::time::{Local, Zone, epoch_ms_from_float, epoch_ms_from_integer, rfc3339, rounded};
use super::unit::TimeUnit;
use crate::position::Timestamp;
use crate::reject::Reason;

const DAY_MS: i64 = 86_400_000;
/// GPS counts weeks modulo 1,024: a receiver that is older than its epoch is that much behind.
const ROLLOVER_MS: i64 = 1_024 * 7 * DAY_MS;
/// 1981: a receiver before its first fix says 1970 or 1980.
const CLOCKS_SET_MS: i64 = 347_155_200_000;

/// How far `ts` may be from the time of receipt, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct AgeLimits {
    pub(super) past_ms: i64,
    pub(super) future_ms: i64,
    /// The configuration key that sets `past_ms`, for errors.
    pub(super) past_key: &'static str,
}

impl AgeLimits {
    /// `None`: there is no `ts`.
    pub(super) fn timestamp(
        self,
        ts: &Scalar<'_>,
        reading: &Reading,
        received_at: Timestamp,
    ) -> Result<Option<Timestamp>, Refusal> {
        let ms = match (ts, reading.ts_unit) {
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
            (_, unit) => from_text(ts, unit, reading.local.as_deref())?,
        };
        let age_ms = received_at.unix_ms().saturating_sub(ms);
        if age_ms > self.past_ms {
            return refuse(Reason::TooOld, too_old(self, ts, ms, reading.ts_unit, received_at));
        }
        if age_ms < -self.future_ms {
            return refuse(Reason::TooNew, too_new(self, ts, ms, reading.ts_unit, received_at));
        }
        Ok(Some(Timestamp::from_unix_ms(ms)))
    }
}

/// The time of a `ts` that is no number.
fn from_text(ts: &Scalar<'_>, unit: TimeUnit, local: Option<&Local>) -> Result<i64, Refusal> {
    let wanted = match (ts, unit, local) {
        (
            Scalar::Text(text),
            TimeUnit::BySize | TimeUnit::Rfc3339 | TimeUnit::Pattern,
            Some(local),
        ) => {
            let read = local.unix_ms(text);
            return read.map_err(|why| Refusal::new(Reason::BadTs, format!("ts is {ts}: {why}")));
        }
        (Scalar::Text(text), TimeUnit::BySize | TimeUnit::Rfc3339, None) => match rfc3339(text) {
            Some(time) => return Ok(time.unix_ms()),
            None => {
                let number = if unit == TimeUnit::BySize { "neither a number nor" } else { "not" };
                let zone = match (Local { zone: Some(Zone::utc()), pattern: None }).unix_ms(text) {
                    Ok(_) => "; name its zone with `zone` of the source or `ts_zone` of the format",
                    Err(_) => "",
                };
                format!("{number} RFC 3339 with an offset, such as 2026-01-31T08:00:00Z{zone}")
            }
        },
        (Scalar::Other(_), _, _) => "not a number or RFC 3339".to_owned(),
        (_, TimeUnit::Rfc3339 | TimeUnit::Pattern, _) => "not RFC 3339".to_owned(),
        _ => "not a number".to_owned(),
    };
    refuse(Reason::BadTs, format!("ts is {ts}, {wanted}"))
}

fn too_old(
    limits: AgeLimits,
    ts: &Scalar<'_>,
    ms: i64,
    unit: TimeUnit,
    received_at: Timestamp,
) -> String {
    let time = shown(ms);
    let is_good = |ms: i64| limits.is_good(ms, received_at);
    if let Some(weeks) =
        [1_i64, 2].into_iter().find(|n| is_good(ms.saturating_add(n * ROLLOVER_MS)))
    {
        let meant = shown(ms + weeks * ROLLOVER_MS);
        let day = meant.get(..10).unwrap_or_default();
        return format!(
            "{time} is {} weeks before {day}: the receiver has the GPS week rollover; update its firmware",
            weeks * 1_024
        );
    }
    if let Some(hint) = factor(ms, unit, is_good) {
        return format!("{time} is too old; {hint}");
    }
    // Days since 1899-12-30, as spreadsheets count them, until 2064.
    if ts.as_f64().is_some_and(|number| (20_000.0..60_000.0).contains(&number)) {
        return format!(
            "ts {ts} is a spreadsheet's number of days: save the file with this column as text"
        );
    }
    if ms < CLOCKS_SET_MS {
        return format!("{time}: the device's clock was never set");
    }
    let (days, key) = (limits.past_ms / DAY_MS, limits.past_key);
    format!("{time} is more than {days} days old; to store it, raise {key}")
}

fn too_new(
    limits: AgeLimits,
    ts: &Scalar<'_>,
    ms: i64,
    unit: TimeUnit,
    received_at: Timestamp,
) -> String {
    let _ = ts;
    let time = shown(ms);
    if let Some(hint) = factor(ms, unit, |ms| limits.is_good(ms, received_at)) {
        return format!("{time} is in the future; {hint}");
    }
    let (ahead, limit) =
        (ms.saturating_sub(received_at.unix_ms()) / 1_000, limits.future_ms / 1_000);
    format!("{time} is {ahead} s ahead of the clock here; decode.fix_future_max allows {limit} s")
}

impl AgeLimits {
    fn is_good(self, ms: i64, received_at: Timestamp) -> bool {
        let age_ms = received_at.unix_ms().saturating_sub(ms);
        (-self.future_ms..=self.past_ms).contains(&age_ms)
    }
}

/// Seconds taken for milliseconds, or the reverse.
fn factor(ms: i64, unit: TimeUnit, is_good: impl Fn(i64) -> bool) -> Option<&'static str> {
    match unit {
        TimeUnit::Seconds if is_good(ms / 1_000) => {
            Some("a factor of 1,000 makes it right: set ts_unit = \"ms\"")
        }
        TimeUnit::Milliseconds if is_good(ms.saturating_mul(1_000)) => {
            Some("a factor of 1,000 makes it right: set ts_unit = \"s\"")
        }
        TimeUnit::BySize
        | TimeUnit::Seconds
        | TimeUnit::Milliseconds
        | TimeUnit::Microseconds
        | TimeUnit::Nanoseconds
        | TimeUnit::Rfc3339
        | TimeUnit::Pattern => None,
    }
}

/// RFC 3339; the milliseconds, if the year has more than four digits.
fn shown(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms)
        .map_or_else(|_| format!("{ms} ms"), |time| time.to_string())
}
