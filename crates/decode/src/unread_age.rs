//! Finds members such as `"fix_age":3600` or `"buffered":true`: they state that a fix is older than
//! its message. If such a fix has no time, the time of receipt would be wrong for it.

use super::field_names::{normalised, words};
use super::hemisphere::is_parent;
use super::json::number;
use super::keep::{Keep, Origin, Value, visit_values};

/// Names of the age of a fix, without the unit.
const AGES: [&str; 15] = [
    "age",
    "fixage",
    "lastfixage",
    "ageoffix",
    "gpsage",
    "gnssage",
    "gpsfixage",
    "locationage",
    "locage",
    "positionage",
    "posage",
    "timesincefix",
    "timesincelastfix",
    "sincefix",
    "ago",
];
/// Units of an age, each with its size in seconds. The unit is at the end of the name, or at the
/// beginning, as in `minutes_ago`. The first match counts, so `hours` comes before `s`.
const UNITS: [(&str, f64); 16] = [
    ("milliseconds", 1e-3),
    ("millis", 1e-3),
    ("ms", 1e-3),
    ("seconds", 1.0),
    ("secs", 1.0),
    ("sec", 1.0),
    ("minutes", 60.0),
    ("mins", 60.0),
    ("min", 60.0),
    ("hours", 3_600.0),
    ("hrs", 3_600.0),
    ("hour", 3_600.0),
    ("days", 86_400.0),
    ("s", 1.0),
    ("h", 3_600.0),
    ("d", 86_400.0),
];
/// Largest accepted age in seconds. The time of receipt is near enough for a younger fix.
const AGE_S_MAX: f64 = 60.0;
/// Largest accepted age without a unit. If it is in milliseconds, as libraries for microcontrollers
/// return it, this is 3 s.
const AGE_WITHOUT_UNIT_MAX: f64 = 3_000.0;
/// Names of flags that are true if the fix is old.
const OLD: [&str; 14] = [
    "lastknown",
    "islastknown",
    "stale",
    "isstale",
    "cached",
    "iscached",
    "fromcache",
    "buffered",
    "isbuffered",
    "frombuffer",
    "historical",
    "ishistorical",
    "outdated",
    "isoutdated",
];
/// Names of flags that are false if the fix is old.
const NEW: [&str; 5] = ["live", "islive", "realtime", "isrealtime", "iscurrent"];

/// Returns the path and value of the first member that states that the fix is older than the
/// message. Searches the point and its objects such as `gps`. Ignores a member that `keep` names.
#[cold]
pub(super) fn stated_age(origin: &Origin<'_>, keep: &Keep) -> Option<(String, String)> {
    let root: String = origin.root.iter().map(|name| format!("{name}/")).collect();
    let mut found = None;
    visit_values(origin.raw, &[], &mut |path, value| {
        let Value::Scalar(text) = value else { return };
        let mut names = path.rsplit('/');
        let name = names.next().unwrap_or_default();
        if found.is_none()
            && names.all(is_parent)
            && (is_large_age(name, text) || is_flag_of_old_fix(name, text))
        {
            let path = path.strip_prefix(&root).unwrap_or(path);
            found = Some((path.to_owned(), text.to_owned())).filter(|_| !keep.has(path));
        }
    });
    found
}

/// Returns whether a flag states that the fix is old. A number is not a flag: `"buffered":1` may be
/// the number of buffered messages.
fn is_flag_of_old_fix(name: &str, value: &str) -> bool {
    let is_in = |names: &[&str]| names.contains(&&*normalised(name));
    value.eq_ignore_ascii_case("true") && is_in(&OLD)
        || value.eq_ignore_ascii_case("false") && is_in(&NEW)
}

/// Returns whether the member `name` is the age of a fix, and `value` is too large an age.
fn is_large_age(name: &str, value: &str) -> bool {
    let words = words(name);
    let name = &*words.concat();
    let stem_and_unit = || {
        UNITS.iter().find_map(|(unit, seconds)| {
            // `ages` has no unit, and `min_age` is a limit.
            let is_at_end = unit.len() > 1 || words.last().is_some_and(|last| last == unit);
            let end = name.strip_suffix(unit).filter(|_| is_at_end);
            let begin = name.strip_prefix(unit).filter(|stem| unit.len() > 3 || *stem == "ago");
            end.or(begin).filter(|stem| AGES.contains(stem)).map(|_| *seconds)
        })
    };
    let max = if name != "ago" && AGES.contains(&name) {
        AGE_WITHOUT_UNIT_MAX
    } else if let Some(seconds) = stem_and_unit() {
        AGE_S_MAX / seconds
    } else {
        return false;
    };
    number(value).and_then(|number| number.as_f64()).is_some_and(|age| age > max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_stated(members: &str) -> bool {
        let json = format!("{{{members}}}");
        stated_age(&Origin::whole(json.as_bytes()), &Keep::Nothing).is_some()
    }

    #[test]
    fn age_is_seen_in_each_unit() {
        for (member, expected) in [
            (r#""age":3600"#, true),
            (r#""fix_age":3600000"#, true),
            (r#""gps_age_s":1800"#, true),
            (r#""age_ms":3600000"#, true),
            (r#""ageMs":900"#, false),
            (r#""age":523"#, false),
            (r#""fixAge":"7200""#, true),
            (r#""fix_age_s":59"#, false),
            (r#""seconds_ago":3600"#, true),
            (r#""minutes_ago":2"#, true),
            (r#""timeSinceFix":3600"#, true),
            (r#""seconds_since_fix":3600"#, true),
            (r#""gps":{"age":3600}"#, true),
            (r#""driver":{"age":3600},"battery":{"fix_age_s":3600}"#, false),
            (r#""message":3600,"voltage":3600,"mileage":36000,"average":3600"#, false),
            (r#""age":null,"age_s":"new","ago":3600,"images":36000"#, false),
            (r#""fix_age_days":2"#, true),
            (r#""ageHours":1"#, true),
            (r#""age(s)":3600"#, true),
            (r#""min_age":3600,"ages":3600,"sage":3600,"hage":9000,"s_age":3600"#, false),
        ] {
            assert_eq!(is_stated(member), expected, "{member}");
        }
    }

    #[test]
    fn flag_of_an_old_fix_is_seen() {
        for member in [
            r#""buffered":true"#,
            r#""last_known":true"#,
            r#""isStale":"true""#,
            r#""live":false"#,
            r#""realtime":"False""#,
            r#""outdated":true"#,
        ] {
            assert!(is_stated(member), "{member}");
        }
        for member in [
            r#""buffered":false,"cached":0,"live":true,"stale":null"#,
            r#""buffered":17,"live":"https://example.org","cached":"no""#,
            r#""buffered":1,"cached":"1","live":0"#,
        ] {
            assert!(!is_stated(member), "{member}");
        }
    }
}
