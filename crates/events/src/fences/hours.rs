//! Opening hours of a fence, such as `Mo-Fr 06:00-18:00, Sa 08:00-12:00`: a subset of the syntax of
//! OpenStreetMap's `opening_hours`, without holidays and seasons.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Names of the weekdays, Monday first.
const DAYS: [&str; 7] = ["mo", "tu", "we", "th", "fr", "sa", "su"];
const MINUTES_PER_DAY: u16 = 1_440;

/// Times of the week at which a fence is open, in a time zone.
#[derive(Debug, Clone, PartialEq)]
pub struct Hours {
    zone: TimeZone,
    spans: Vec<Span>,
}

/// A span of time on some days of the week. The span ends on the next day if `until` is not after
/// `from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    /// By weekday, Monday first.
    days: [bool; 7],
    /// Minute of the day at which the span begins.
    from: u16,
    /// Minute of the day at which the span ends, exclusive.
    until: u16,
}

impl Hours {
    /// Parses opening hours. `zone` is a name of the IANA database, or `None` for UTC.
    ///
    /// # Errors
    /// The text is not opening hours, it has a day on both sides of a semicolon, or the zone is
    /// unknown.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Self, String> {
        let zone = zone.map_or(Ok(TimeZone::UTC), |name| {
            TimeZone::get(name)
                .map_err(|_| format!("\"{name}\" is not a time zone such as Europe/Berlin"))
        })?;
        let fault = || {
            format!(
                "\"{text}\" is not a list of opening hours such as \
                 \"Mo-Fr 06:00-18:00, Sa 08:00-12:00\""
            )
        };
        let (mut spans, mut earlier_days) = (Vec::new(), [false; 7]);
        for rule in text.split(';') {
            let rule_spans = parse_rule(rule).ok_or_else(fault)?;
            let days = rule_spans.iter().fold([false; 7], |days, span| union(days, span.days));
            if (0..7).any(|day| earlier_days[day] && days[day]) {
                return Err(format!(
                    "\"{text}\" has a day on both sides of a semicolon, and OpenStreetMap keeps \
                     only its later times: separate the times of one day with a comma"
                ));
            }
            earlier_days = union(earlier_days, days);
            spans.extend(rule_spans);
        }
        Ok(Self { zone, spans })
    }

    /// Returns whether the fence is open at this time, in milliseconds since 1970.
    #[must_use]
    pub fn is_open(&self, ms: i64) -> bool {
        // A time beyond the calendar counts as open, so that it causes no event.
        let Ok(timestamp) = Timestamp::from_millisecond(ms) else { return true };
        let local = self.zone.to_datetime(timestamp);
        let day = usize::from(local.weekday().to_monday_zero_offset().unsigned_abs());
        let minute =
            u16::from(local.hour().unsigned_abs()) * 60 + u16::from(local.minute().unsigned_abs());
        self.spans.iter().any(|span| {
            let ends_next_day = span.until <= span.from;
            let is_in_todays =
                span.days[day] && minute >= span.from && (ends_next_day || minute < span.until);
            let is_in_yesterdays = span.days[(day + 6) % 7] && ends_next_day && minute < span.until;
            is_in_todays || is_in_yesterdays
        })
    }
}

/// Parses one rule: the part of the opening hours between two semicolons. Returns `None` if it is
/// invalid.
fn parse_rule(rule: &str) -> Option<Vec<Span>> {
    let mut spans = Vec::new();
    // `pending_days`: days whose times follow in a later part, such as "Mo" in "Mo,We 06:00-18:00".
    // `last_days`: the days of the previous span, which also apply to a span without days, such as
    // the second one of "Mo 06:00-12:00, 13:00-18:00".
    let (mut pending_days, mut last_days) = (None, [true; 7]);
    for part in rule.split(',') {
        let words: Vec<&str> = part.split_whitespace().collect();
        let (days, times) = match words[..] {
            [times] if times.contains(':') => (None, Some(times)),
            [days] => (Some(days), None),
            [days, times] => (Some(days), Some(times)),
            _ => return None,
        };
        if let Some(days) = days {
            pending_days = Some(union(pending_days.unwrap_or([false; 7]), parse_days(days)?));
        }
        if let Some(times) = times {
            let days = pending_days.take().unwrap_or(last_days);
            let (from, until) = times.split_once('-')?;
            let (from, until) = minute(from).zip(minute(until))?;
            last_days = days;
            spans.push(Span { days, from, until });
        }
    }
    (!spans.is_empty() && pending_days.is_none()).then_some(spans)
}

fn union(a: [bool; 7], b: [bool; 7]) -> [bool; 7] {
    std::array::from_fn(|day| a[day] || b[day])
}

/// Parses a day or a range of days, such as `Mo` or `Mo-Fr`. A range may continue after Sunday,
/// such as `Sa-Mo`.
fn parse_days(text: &str) -> Option<[bool; 7]> {
    let text = text.to_lowercase();
    let index = |day: &str| DAYS.iter().position(|name| *name == day);
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let (first, last) = index(first).zip(index(last))?;
    Some(std::array::from_fn(|day| (day + 7 - first) % 7 <= (last + 7 - first) % 7))
}

/// Parses a time of day from `00:00` to `24:00`. Returns the minute of the day; `None` if the text
/// is invalid.
fn minute(text: &str) -> Option<u16> {
    let (hour, minute) = text.split_once(':')?;
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if hour.len() > 2 || minute.len() != 2 || !is_number(hour) || !is_number(minute) {
        return None;
    }
    let (hour, minute) = (hour.parse::<u16>().ok()?, minute.parse::<u16>().ok()?);
    (minute < 60).then_some(hour * 60 + minute).filter(|minute| *minute <= MINUTES_PER_DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(hours: &str, zone: Option<&str>, time: &str) -> bool {
        let time: Timestamp = time.parse().expect("the test's time is valid");
        Hours::parse(hours, zone).expect(hours).is_open(time.as_millisecond())
    }

    #[test]
    fn fence_is_open_within_its_hours_of_the_local_week() {
        // 2026-11-23 is a Monday.
        for (hours, time, open) in [
            ("Mo-Fr 06:00-18:00", "2026-11-23T06:00:00Z", true),
            ("Mo-Fr 06:00-18:00", "2026-11-23T05:59:59.999Z", false),
            ("Mo-Fr 06:00-18:00", "2026-11-27T17:59:59Z", true),
            ("Mo-Fr 06:00-18:00", "2026-11-27T18:00:00Z", false),
            ("Mo-Fr 06:00-18:00", "2026-11-28T12:00:00Z", false),
            ("Mo-Fr 06:00-18:00, Sa 08:00-12:00", "2026-11-28T11:00:00Z", true),
            ("mo-fr 6:00-18:00; sa,su 08:00-12:00", "2026-11-29T11:00:00Z", true),
            ("Mo,We 06:00-18:00", "2026-11-24T11:00:00Z", false),
            ("Mo,We 06:00-18:00", "2026-11-25T11:00:00Z", true),
            ("06:00-12:00, 13:00-18:00", "2026-11-29T12:30:00Z", false),
            ("06:00-12:00, 13:00-18:00", "2026-11-29T13:30:00Z", true),
            ("Fr 06:00-12:00,13:00-18:00", "2026-11-26T13:30:00Z", false),
            ("Sa-Mo 00:00-24:00", "2026-11-23T23:59:00Z", true),
            ("Sa-Mo 00:00-24:00", "2026-11-24T00:00:00Z", false),
            ("Fr 22:00-06:00", "2026-11-28T05:59:00Z", true),
            ("Fr 22:00-06:00", "2026-11-27T05:59:00Z", false),
        ] {
            assert_eq!(is_open(hours, None, time), open, "{hours} at {time}");
        }
        // Berlin is an hour ahead of UTC in winter, and two in summer.
        let berlin = Some("Europe/Berlin");
        assert!(is_open("06:00-18:00", berlin, "2026-11-23T05:00:00Z"));
        assert!(is_open("06:00-18:00", berlin, "2026-07-20T04:00:00Z"));
        assert!(!is_open("06:00-18:00", berlin, "2026-11-23T04:59:00Z"));
    }

    #[test]
    fn text_that_is_not_opening_hours_is_refused() {
        for text in [
            "",
            "Mo-Fr",
            "always",
            "Mo-Fr 6-18",
            "Mo-Fr 06:00",
            "06:00-25:00",
            "06:60-07:00",
            "Xx 06:00-07:00",
            "Mo 06:00 07:00",
            "06:00-07:00,",
            "06:+1-07:00",
            "Mo 06:00-07:00, Tu",
        ] {
            assert!(Hours::parse(text, None).is_err(), "{text}");
        }
        assert!(Hours::parse("06:00-07:00", Some("Europe/Bonn")).is_err());
    }

    #[test]
    fn day_on_both_sides_of_a_semicolon_is_refused() {
        // In OpenStreetMap, the times after a semicolon replace the earlier ones of the same day.
        for text in [
            "Mo-Fr 06:00-18:00; We 08:00-12:00",
            "Mo-Fr 06:00-12:00; 13:00-18:00",
            "06:00-12:00; 13:00-18:00",
            "Sa-Mo 06:00-12:00; Tu-Su 08:00-09:00",
        ] {
            let fault = Hours::parse(text, None).expect_err(text);
            assert!(fault.contains("comma"), "{fault}");
        }
        let text = "Mo-Fr 06:00-12:00, 13:00-18:00; Sa,Su 08:00-12:00, Su 13:00-14:00";
        assert!(is_open(text, None, "2026-11-27T17:00:00Z"));
        assert!(is_open(text, None, "2026-11-29T13:30:00Z"));
        assert!(!is_open(text, None, "2026-11-28T13:30:00Z"));
    }
}
