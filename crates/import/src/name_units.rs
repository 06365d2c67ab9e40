//! Checks the units that names of CSV columns state, such as `Altitude (yd)`, against the units in
//! which the columns are read.

use anyhow::{Result, bail, ensure};

use super::names::{is_name_of, words};
use milepost_decode::Quantity;

/// Words for units and notations of angles that are not read from a column's name.
const ANGLES: [&str; 23] = [
    "min",
    "minute",
    "minutes",
    "minuten",
    "minutos",
    "arcmin",
    "arcminutes",
    "sec",
    "second",
    "seconds",
    "sekunden",
    "segundos",
    "arcsec",
    "arcseconds",
    "mas",
    "gon",
    "mils",
    "dms",
    "dmm",
    "ddmm",
    "dddmm",
    "ddmmss",
    "dddmmss",
];
/// Words for units of length that are not read.
const LENGTHS: [&str; 10] =
    ["yd", "yard", "yards", "mi", "mile", "miles", "fathoms", "hm", "dam", "fl"];
/// Words for units of speed that are not read.
const SPEEDS: [&str; 4] = ["fps", "fpm", "mach", "pace"];
/// Words for a length before the slash of a unit of speed such as `ft/s`.
const LENGTHS_OF_SPEED: [&str; 13] =
    ["m", "km", "dm", "cm", "mm", "hm", "ft", "feet", "yd", "mi", "mile", "nm", "nmi"];
/// Words for a time after the slash of a unit of speed such as `ft/s`, or before the slash of a
/// pace such as `min/km`.
const TIMES_OF_SPEED: [&str; 19] = [
    "s", "sec", "secs", "second", "seconds", "sekunden", "segundos", "min", "mins", "minute",
    "minutes", "minuten", "minutos", "h", "hr", "hrs", "hour", "hours", "day",
];

/// Checks that the name of a column states no other unit than the one in which the column is read.
/// `value`: the first value of the column; `has_option`: the command line gives the field's unit;
/// `option_factor`: the factor of that unit, if it has one.
///
/// # Errors
/// The name states another unit than the option, or it states an unknown unit and there is no
/// option.
pub(super) fn check_name(
    (field, name, value): (&str, &str, &str),
    quantity: Quantity,
    has_option: bool,
    option_factor: Option<f64>,
) -> Result<()> {
    let (option, assignment) = match field {
        "speed" | "alt" => (format!("--{field}-unit"), format!("--{field}-unit ")),
        _ => (format!("--unit {field}"), format!("--unit {field}=")),
    };
    ensure!(
        field != "heading" || has_option || !is_magnetic(name),
        "the name of its column {name} says that it counts from magnetic north, and headings are \
         read from true north: use a column of true headings, or give --unit heading=deg if these \
         are true"
    );
    let stated = quantity.unit_in_name(name);
    let differs = |unit: &str| {
        let factors = quantity.factor(unit).ok().zip(option_factor);
        factors.is_some_and(|(stated, given)| (stated / given - 1.0).abs() > 1e-6)
    };
    if let Some(unit) = stated.filter(|unit| differs(unit) && !is_scaled(field, name)) {
        bail!(
            "the name of its column {name} states {unit}, and {option} another unit: leave out \
             {option}, or rename the column"
        );
    }
    let words_of_units = match quantity {
        Quantity::Angle => &ANGLES[..],
        Quantity::Length => &LENGTHS,
        Quantity::Speed => &SPEEDS,
    };
    // Whether the name states a rate, as in `Speed (min/km)`. If an option gives the unit, only a
    // known rate counts: `Speed (GPS/OBD)` has no rate.
    let is_rate = || {
        let inner = name.rsplit_once(['(', '[']).map_or("", |(_, inner)| inner.trim_start());
        let lower = inner.to_lowercase();
        // As in `Speed (km/h x10)`.
        let factor = lower.split(['x', '×', '*']).nth(1).unwrap_or_default();
        let has_factor = factor.starts_with(|c: char| c.is_ascii_digit());
        let unit = lower.trim_end_matches([')', ']']).split_once('/');
        // A time before the slash means a pace, whatever follows: `min/km avg`, `s/lap`.
        let is_known = has_factor
            || unit.is_some_and(|(before, after)| {
                let before = without_number(before);
                TIMES_OF_SPEED.contains(&before.trim_end_matches('.'))
                    || LENGTHS_OF_SPEED.contains(&before) && TIMES_OF_SPEED.contains(&after.trim())
            });
        quantity == Quantity::Speed
            && stated.is_none()
            && (is_known || !has_option && inner.contains('/'))
    };
    let is_unread = || {
        let is_word = words(name).iter().any(|word| words_of_units.contains(&&**word));
        is_word && !(quantity == Quantity::Angle && has_marks(value))
            || is_rate()
            || quantity.ends_in_unread_unit(name)
    };
    let states_unread = || is_scaled(field, name) || stated.is_none() && is_unread();
    let is_common_option = option_factor.is_some_and(|factor| is_common(quantity, factor));
    ensure!(
        !(is_common_option && states_unread()),
        "the name of its column {name} states another unit than {option}: give the size of that \
         unit, such as {assignment}'0.1 {}', or rename the column",
        if quantity == Quantity::Speed { "km/h" } else { "m" }
    );
    ensure!(
        has_option || !states_unread(),
        "the name of its column {name} states a unit that is not read: give {option}{}, or map the \
         column with {field}_unit in [formats.NAME]",
        match field {
            "speed" | "alt" => "",
            "acc" => "='0.1 m' or another size",
            _ => "=deg if its numbers are degrees",
        }
    );
    Ok(())
}

/// Returns whether a factor is that of a common unit, and not the size of a special unit.
fn is_common(quantity: Quantity, factor: f64) -> bool {
    let units: &[&str] = match quantity {
        Quantity::Speed => &["m/s", "km/h", "mph", "knots"],
        Quantity::Length => &["m", "ft"],
        Quantity::Angle => &[],
    };
    let mut factors = units.iter().filter_map(|unit| quantity.factor(unit).ok());
    factors.any(|common| (common / factor - 1.0).abs() <= 1e-6)
}

/// Returns whether the name of a column says that its headings count from magnetic north, such as
/// `heading_magnetic`, `magneticCourse` or `Heading (°M)`.
pub(super) fn is_magnetic(name: &str) -> bool {
    let is_word = |word: &String| ["magnetic", "mag", "magn", "magnetisch"].contains(&&**word);
    words(name).iter().any(is_word) || Quantity::Angle.ends_in_unread_unit(name)
}

/// Checks the unit that the row of units below the names states for a column. `stated`: this unit,
/// or the unit in the column's name, which [`check_name`] checks. `option_factor`: the factor of
/// the unit that the command line gives. `value`: the first value of the column. `has_option`: the
/// command line gives the field's unit.
///
/// # Errors
/// The units differ, or the row states a unit that is not read.
pub(super) fn check_row_of_units(
    (field, name, value): (&str, &str, &str),
    quantity: Quantity,
    stated: Option<&str>,
    has_option: bool,
    option_factor: Option<f64>,
) -> Result<()> {
    // An option that states the size of a special unit, such as `--alt-unit '0.9144 m'`, may mean
    // the unread unit.
    let is_common_option = option_factor.is_some_and(|factor| is_common(quantity, factor));
    ensure!(
        has_option && !is_common_option || !quantity.is_unread_unit(value),
        "the row of units below the names states {value:.40} for {name}, which is not read: {}",
        match (field, quantity) {
            ("heading", _) =>
                "use a column of true headings, or give --unit heading=deg if they are true",
            ("speed", _) => "give the size of that unit, such as --speed-unit '0.3048 m/s'",
            ("alt", _) => "give the size of that unit, such as --alt-unit '0.9144 m'",
            (_, Quantity::Length) => "give the size of that unit, such as --unit acc='0.9144 m'",
            _ => "give --unit lat=deg if its numbers are degrees",
        }
    );
    let stated = stated.filter(|_| quantity.split_unit(name).is_none());
    if let (Some(stated), Some(given)) = (stated, option_factor)
        && let Ok(factor) = quantity.factor(stated)
    {
        ensure!(
            (factor / given - 1.0).abs() < 1e-6,
            "the row of units below the names states {stated} for {name}, and the option for \
             {field} another unit: leave out the option, or delete the row"
        );
    }
    Ok(())
}

/// Checks the name of a column of times, its unit in the row of units below the names, and the
/// comments above the names.
///
/// # Errors
/// One of them states GPS time or atomic time (TAI). Both are many seconds ahead of UTC.
pub(super) fn check_time_scale(
    name: &str,
    row_of_units: Option<&str>,
    comments: &[String],
) -> Result<()> {
    let scale_in = |words: &[String]| {
        // Look at the first and the last word only: between other words, `tai` is Finnish for `or`.
        let outer = [words.first(), words.last()].into_iter().flatten();
        outer.filter_map(|word| seconds_ahead(word)).next()
    };
    let named = scale_in(&words(name)).map(|seconds| (format!("its column {name}"), seconds));
    let in_row = || {
        let unit = row_of_units?;
        let seconds = scale_in(&words(unit))?;
        Some((format!("the unit {unit} of its column {name}"), seconds))
    };
    let in_comment = || {
        comments.iter().find_map(|comment| {
            let seconds = scale_in_comment(comment)?;
            Some((format!("the comment \"{comment:.60}\""), seconds))
        })
    };
    if let Some((place, seconds)) = named.or_else(in_row).or_else(in_comment) {
        bail!(
            "{place} says that its times are not UTC, but {seconds} s ahead of it: export them in \
             UTC, or subtract {seconds} s; if they are in UTC, give --zone Z"
        );
    }
    Ok(())
}

/// Returns the seconds by which a scale of time is ahead of UTC; `None` for an unknown scale.
fn seconds_ahead(scale: &str) -> Option<u8> {
    match scale {
        "gpst" => Some(18),
        "tai" => Some(37),
        _ => None,
    }
}

/// Returns by how many seconds the scale of time that a comment states is ahead of UTC. A clause of
/// the comment states the scale, such as `time system: GPS` or `times in GPST`.
fn scale_in_comment(comment: &str) -> Option<u8> {
    if words(comment).iter().any(|word| word.starts_with("utc")) {
        return None;
    }
    comment.split([',', ';', '\n']).find_map(|clause| {
        let words = words(clause);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match &words[..] {
            ["time", "system" | "scale", .., "gps"] | ["timescale", .., "gps"] => Some(18),
            ["time" | "times" | "timestamps" | "timescale", .., scale] => seconds_ahead(scale),
            _ => None,
        }
    })
}

/// Returns a unit without the number before it: `m` for `100m`.
fn without_number(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').trim_end()
}

/// Returns whether an angle has the marks or spaces of its notation, such as `52°31'12"N`. The
/// decoder reads or rejects such a value by its marks, whatever the column's name is. A letter
/// alone is no mark: `5231.2N` would be read as degrees.
fn has_marks(value: &str) -> bool {
    let value = value.trim().trim_matches(|c: char| c.is_ascii_alphabetic()).trim();
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '+' | '-');
    value.starts_with(is_number) && !value.chars().all(is_number)
}

/// Returns whether a name states that its values are multiplied or divided by a power of ten. The
/// power is at the end of the name, as in `speed_x10` and `alt/10`, or before its unit, as in
/// `speed_x10_kmh`.
fn ends_in_factor(field: &str, name: &str) -> bool {
    let is_power = |digits: &str| {
        let zeros = digits.strip_prefix('1').unwrap_or_default();
        (1..=7).contains(&zeros.len()) && zeros.bytes().all(|byte| byte == b'0')
    };
    let is_factor = |word: &str| {
        let digits = word.strip_prefix("div").or_else(|| word.strip_prefix('x'));
        digits.or_else(|| word.strip_suffix('x')).is_some_and(is_power)
    };
    let words = words(name);
    let is_empty_or_unit = |words: &[String]| {
        let is_unit =
            |text: &str| QUANTITIES.iter().any(|quantity| quantity.unit_named(text).is_some());
        words.is_empty() || is_unit(&words.concat()) || is_unit(&words.join(" "))
    };
    let is_factor_at = |at: usize| match &words[at..] {
        [word, after @ ..] if is_factor(word) => is_empty_or_unit(after),
        [word, power, after @ ..] => {
            ["x", "div"].contains(&&**word) && is_power(power) && is_empty_or_unit(after)
        }
        _ => false,
    };
    // The name of the field must precede `x10`: in `max10`, `x10` is the end of another word.
    let joined = words.last().and_then(|last| last.rsplit_once('x'));
    let is_joined = joined.is_some_and(|(stem, end)| is_name_of(field, stem) && is_power(end));
    let after_sign = name.rsplit_once(['*', '×', '/']).map(|(_, end)| end.trim());
    is_joined || after_sign.is_some_and(is_power) || (1..words.len()).any(is_factor_at)
}

const QUANTITIES: [Quantity; 3] = [Quantity::Speed, Quantity::Length, Quantity::Angle];

/// Returns whether the name of a column states a multiple of a unit. The multiple is in brackets at
/// the end of the name, as in `(x100 ft)` and `(0.1 km/h)`, or [`ends_in_factor`] finds it.
fn is_scaled(field: &str, name: &str) -> bool {
    if ends_in_factor(field, name) {
        return true;
    }
    let inner = name.rsplit_once(['(', '[']).map_or("", |(_, inner)| inner);
    let unit = inner.trim_start_matches(|c: char| c.is_ascii_digit() || "x×*.,e- ".contains(c));
    let scale = inner[..inner.len() - unit.len()].trim().trim_start_matches(['x', '×', '*']);
    let scale: Option<f64> = scale.trim().replace(',', ".").parse().ok();
    scale.is_some_and(|scale| scale != 1.0)
        && QUANTITIES.iter().any(|quantity| quantity.unit_named(unit).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_a_different_or_unread_unit_is_refused() {
        use Quantity::{Angle, Length, Speed};
        for (field, name, quantity, has_option, option_factor) in [
            ("speed", "Speed (mph)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "speed_kn", Speed, true, Some(1.0)),
            ("speed", "mph", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Knots", Speed, true, Some(1.0)),
            ("alt", "feet", Length, true, Some(1.0)),
            ("speed", "speedMilesPerHour", Speed, true, Some(1.0 / 3.6)),
            ("speed", "gpsSpeedMetersPerSecond", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (0.1 km/h)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (km/h x10)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (min/km)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (sec/100m)", Speed, true, Some(1.0)),
            ("speed", "Velocity [min/mile]", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed [ft/s]", Speed, true, Some(1.0)),
            ("speed", "Speed (m/min)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (km/min)", Speed, true, Some(1.0)),
            ("speed", "Speed (min/miles)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (mins/miles)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (min/kilometer)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (min/meter)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (sec/yard)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (s/lap)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (min/km avg)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (minutes/km)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (seconds/km)", Speed, true, Some(1.0)),
            ("speed", "speed_fpm", Speed, false, None),
            ("alt", "alt (FL)", Length, false, None),
            ("alt", "altitude_yards", Length, true, Some(0.3048)),
            ("speed", "Speed (0.1 km/h)", Speed, false, None),
            ("alt", "Altitude (ft)", Length, true, Some(1.0)),
            ("alt", "Altitude (x100 ft)", Length, false, None),
            ("alt", "altitude_yards", Length, false, None),
            ("acc", "accuracy (mi)", Length, false, None),
            ("lat", "lat_ddmm", Angle, false, None),
            ("lat", "Latitude (DDMM.MMMM)", Angle, false, None),
            ("lng", "lonMin", Angle, false, None),
            ("heading", "course (0,01 deg)", Angle, false, None),
            ("speed", "speed_x10", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed*10", Speed, false, None),
            ("alt", "alt/10", Length, false, None),
            ("heading", "heading x100", Angle, false, None),
            ("speed", "Speed (feet per second)", Speed, true, Some(1.0)),
            ("speed", "speed_feet_per_second", Speed, false, None),
            ("alt", "altitude (ft AGL)", Length, true, Some(0.3048)),
            ("heading", "heading_magnetic", Angle, false, None),
            ("heading", "magneticCourse", Angle, false, None),
            ("heading", "Heading (°M)", Angle, false, None),
            ("heading", "heading (degrees magnetic)", Angle, false, None),
        ] {
            let checked = check_name((field, name, "5231.2N"), quantity, has_option, option_factor);
            assert!(checked.is_err(), "{name}");
        }
        for (field, name, quantity, has_option, option_factor) in [
            ("speed", "Speed (km/h)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "velocity", Speed, true, Some(1.0)),
            ("speed", "ms", Speed, true, Some(1.0 / 3.6)),
            ("speed", "speedMilesPerHour", Speed, true, Some(0.44704)),
            ("alt", "feet", Length, false, None),
            ("speed", "Speed (0.1 km/h)", Speed, true, Some(0.1 / 3.6)),
            ("speed", "Speed (ft/s)", Speed, true, Some(0.3048)),
            ("speed", "Speed (km h-1)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (kilometres per hour)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (feet per second)", Speed, true, Some(0.3048)),
            ("alt", "altitude (metres above sea level)", Length, true, Some(1.0)),
            ("heading", "heading_magnetic", Angle, true, None),
            ("heading", "heading (degrees true)", Angle, false, None),
            ("speed", "Speed (GPS/OBD)", Speed, true, Some(0.1)),
            ("speed", "Speed (GPS/OBD)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (km/h) OBD", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Hastighed (km/t)", Speed, false, None),
            ("speed", "Snelheid (km/u)", Speed, true, Some(1.0 / 3.6)),
            ("speed", "Speed (max)", Speed, true, Some(1.0)),
            ("alt", "Altitude (WGS84)", Length, false, None),
            ("alt", "Altitude (x100 ft)", Length, true, Some(30.48)),
            ("alt", "altitude_yards", Length, true, Some(0.9144)),
            ("alt", "Elevation (1 m)", Length, false, None),
            ("acc", "Accuracy (68%)", Length, false, None),
            ("lat", "Latitude (deg)", Angle, false, None),
            ("lat", "lat_ddmm", Angle, true, None),
            ("lng", "GPS Lon", Angle, false, None),
            ("heading", "Heading (0-360 deg)", Angle, false, None),
            ("heading", "kurs_grad", Angle, false, None),
            ("speed", "speed_x10", Speed, true, Some(0.1 / 3.6)),
            ("speed", "speed_max10", Speed, true, Some(1.0 / 3.6)),
            ("alt", "alt_10", Length, false, None),
            ("alt", "alt_x1", Length, false, None),
            ("heading", "heading x100", Angle, true, Some(0.01)),
        ] {
            let checked = check_name((field, name, ""), quantity, has_option, option_factor);
            assert!(checked.is_ok(), "{name}: {checked:?}");
        }
    }

    #[test]
    fn time_that_is_not_utc_is_refused() {
        let comment = |text: &str| [text.to_owned()];
        for name in ["GPST", "time (TAI)", "time_gpst"] {
            assert!(check_time_scale(name, None, &[]).is_err(), "{name}");
        }
        assert!(check_time_scale("time", Some("[GPST]"), &[]).is_err());
        for text in [" time system: GPS", "TIME SCALE = TAI", "speed in m/s; times are in GPST"] {
            assert!(check_time_scale("time", None, &comment(text)).is_err(), "{text}");
        }
        for (name, text) in [
            ("GPS Time", "times from GPS"),
            ("gps_time", "time system: UTC"),
            ("detail time", "GPS time system"),
            ("aika tai aikaleima", "one-time system: Taiwan"),
            ("time", "Real-time system: GPS"),
            ("time", "time system: GPS, offset to UTC removed"),
        ] {
            let unit = Some("hh:mm:ss");
            assert!(check_time_scale(name, unit, &comment(text)).is_ok(), "{name} {text}");
        }
    }

    #[test]
    fn notation_in_a_name_is_allowed_if_values_have_its_marks() {
        let check = |name, value| check_name(("lat", name, value), Quantity::Angle, false, None);
        for value in ["52°31'12\"N", "N 52 31.2", "-33°54'", "52:31:12 N", "52° 31′ 12″"] {
            for name in ["lat_dms", "Latitude (DMS)", "lat_ddmm", "DDMMSS"] {
                assert!(check(name, value).is_ok(), "{name} {value}");
            }
        }
        for value in ["", "N", "523112", "5231.2N", "S5231,2", "-5231.2"] {
            assert!(check("lat_dms", value).is_err(), "{value}");
        }
    }
}
