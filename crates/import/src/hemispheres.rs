//! Finds the hemispheres that columns state: in their names, such as `Longitude (W)`, or in the
//! values of a column beside the coordinate.

use std::borrow::Cow;

use super::names::{Column, is_name_of, normalised};
use super::values::degrees;
use milepost_decode::hemisphere;

/// Characters between the name of a coordinate and its hemisphere.
const SEPARATORS: [char; 9] = ['(', '[', ')', ']', ' ', '_', '-', '.', '°'];

/// Splits the hemisphere off a column's name such as `Longitude (W)`, `LonW` or `West Longitude`.
/// Returns the name without its hemisphere, and the hemisphere.
pub(super) fn split_hemisphere(name: &str) -> Option<(&str, &'static str)> {
    const HEMISPHERES: [(&str, &str); 8] = [
        ("north", "north"),
        ("south", "south"),
        ("east", "east"),
        ("west", "west"),
        ("n", "north"),
        ("s", "south"),
        ("e", "east"),
        ("w", "west"),
    ];
    let inner = name.trim_end_matches([')', ']', ' ']);
    let at_end = HEMISPHERES.into_iter().find_map(|(word, hemisphere)| {
        let at = inner.len().checked_sub(word.len()).filter(|at| inner.is_char_boundary(*at))?;
        let (rest, end) = inner.split_at(at);
        let is_camel = rest.ends_with(char::is_lowercase) && end.starts_with(char::is_uppercase);
        // `LONW`, but not `LATS`, which may be a plural.
        let is_joined = word == "w" && is_name_of("lng", rest);
        let is_apart = rest.ends_with(SEPARATORS) || is_camel || is_joined;
        let rest = rest.trim_end_matches(SEPARATORS);
        (end.eq_ignore_ascii_case(word) && is_apart && !rest.is_empty())
            .then_some((rest, hemisphere))
    });
    at_end.or_else(|| {
        // One letter before the name may mean something else: `s_lat` is the latitude of a start.
        HEMISPHERES[..4].iter().find_map(|(word, hemisphere)| {
            let (begin, rest) = name.split_at_checked(word.len())?;
            let is_apart = rest.starts_with(SEPARATORS) || rest.starts_with(char::is_uppercase);
            let rest = rest.trim_start_matches(SEPARATORS);
            (begin.eq_ignore_ascii_case(word) && is_apart && !rest.is_empty())
                .then_some((rest, *hemisphere))
        })
    })
}

/// A column of a coordinate whose name, or whose row of units, says south or west. Its numbers need
/// a sign.
#[derive(Debug)]
pub(super) struct SignedColumn {
    at: usize,
    field: &'static str,
    name: String,
    side: &'static str,
    unit: Option<String>,
}

impl SignedColumn {
    /// Returns `None` if the column needs no check. `first_value`: the column's first value, which
    /// may be a unit. `given`, `stated`: the units of `--unit` and of the column's name; `given`
    /// may settle the sign.
    pub(super) fn new(
        (field, at): (&'static str, usize),
        (name, first_value): (&str, &str),
        (given, stated): (Option<&str>, Option<&str>),
    ) -> Option<Self> {
        if given.is_some_and(|unit| unit == "deg" || unit.starts_with(['-', '+'])) {
            return None;
        }
        let without_unit = milepost_decode::Quantity::Angle.split_unit(name);
        let from_name = split_hemisphere(name)
            .or_else(|| split_hemisphere(without_unit?.0))
            .map(|(_, side)| (name.to_owned(), side));
        let is_unit = !first_value.is_empty() && !first_value.contains(|c: char| c.is_numeric());
        let units = format!("x {first_value}");
        let from_units = || {
            let (_, side) = split_hemisphere(&units).filter(|_| is_unit)?;
            Some((format!("{name} ({first_value})"), side))
        };
        let (name, side) = from_name.or_else(from_units)?;
        let unit = given.or(stated).map(str::to_owned);
        matches!(side, "south" | "west").then_some(Self { at, field, name, side, unit })
    }

    /// Returns an error message if the number of a row has no sign, so that it would be stored in
    /// the other hemisphere.
    pub(super) fn fault<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>) -> Option<String> {
        let value = value(self.at);
        let value = value.trim();
        if !is_unsigned(value) {
            return None;
        }
        let Self { field, name, side, unit, .. } = self;
        let largest = if *field == "lat" { 90.0 } else { 180.0 };
        let has_minutes = degrees(value).is_some_and(|number| {
            number > largest && number <= largest * 100.0 && number % 100.0 < 60.0
        });
        let unit = unit.as_deref().or(has_minutes.then_some("ddmm.mmmm"));
        let (negative, positive) = match unit {
            None | Some("deg") => ("-1 deg".to_owned(), "deg".to_owned()),
            Some(unit) => (format!("-{unit}"), format!("'+{unit}'")),
        };
        Some(format!(
            "its column {name} says {side}, and {value} has no sign: give --unit \
             {field}='{negative}' to make its numbers negative, or --unit {field}={positive} to \
             take them as they are"
        ))
    }
}

/// Returns whether a value is a positive number, in any notation, without a letter for the
/// hemisphere.
fn is_unsigned(value: &str) -> bool {
    if let Some(number) = degrees(value) {
        return number > 0.0;
    }
    const LETTERS: [&str; 9] = ["n", "s", "e", "w", "o", "north", "south", "east", "west"];
    let mut words = value.split(|c: char| !c.is_alphabetic());
    value.starts_with(|c: char| c.is_ascii_digit() || c == '+')
        && value.contains(|c: char| matches!(c, '1'..='9'))
        && !words.any(|word| LETTERS.contains(&&*word.to_lowercase()))
}

/// Each coordinate with the field of its hemisphere and that field's values, the positive side
/// first.
const COORDINATES: [(&str, &str, [&str; 4]); 2] = [
    ("lat", "lat_hemisphere", ["n", "north", "s", "south"]),
    ("lng", "lng_hemisphere", ["e", "east", "w", "west"]),
];

/// Finds the columns of hemispheres by their values, `N` or `S` and `E` or `W`. A column that is
/// named after its coordinate, such as `lat_ref`, is used on its own. A column of directions has
/// the same values, so columns with other names are used only if there is one for each coordinate:
/// the column next to the coordinate, or any column if each coordinate has only one candidate.
pub(super) fn add_hemispheres<'s>(
    columns: &[String],
    value: impl Fn(usize) -> &'s str,
    found: &mut Vec<(&'static str, Column)>,
) {
    let get = |field: &str| found.iter().find(|(known, _)| *known == field).map(|(_, of)| of.at);
    if get("lat").is_none() || get("lng").is_none() {
        return;
    }
    let is_named = |at: usize, n: usize| hemisphere(&columns[at]) == Some(n);
    let candidates = [0, 1].map(|n| {
        let (_, field, letters) = COORDINATES[n];
        let is_one = |at: &usize| {
            let is_used = found.iter().any(|(_, column)| column.at == *at);
            let has_letter = letters.contains(&&*value(*at).to_ascii_lowercase());
            !is_used && has_letter && (is_named(*at, n) || !is_direction(&columns[*at]))
        };
        get(field).map_or_else(|| (0..columns.len()).filter(is_one).collect(), |at| vec![at])
    });
    let are_both = candidates.iter().all(|columns| columns.len() == 1);
    let chosen = [0, 1].map(|n| {
        let beside = get(COORDINATES[n].0)
            .and_then(|of| candidates[n].iter().find(|at| at.abs_diff(of) == 1));
        beside.or(candidates[n].first().filter(|_| are_both)).copied()
    });
    let has_pair = chosen.iter().all(Option::is_some);
    let mut added = Vec::new();
    for (n, (_, field, _)) in COORDINATES.into_iter().enumerate() {
        if let (None, Some(at)) = (get(field), chosen[n])
            && (has_pair || is_named(at, n))
        {
            added.push((field, Column { at, unit: None }));
        }
    }
    found.extend(added);
}

/// Returns whether the name of a column is that of a direction, of travel or of the wind.
fn is_direction(name: &str) -> bool {
    let name = normalised(name);
    let is_part = |known: &&str| name.contains(*known);
    name.starts_with("wind") || ["direction", "heading", "course", "bearing"].iter().any(is_part)
}

/// Columns that may be hemispheres, but have no letter in the first rows, because the receiver had
/// no fix yet.
#[derive(Debug)]
pub(super) struct LateHemispheres {
    /// Columns of lat and lng; `None` if the column's hemisphere is read.
    places: [Option<usize>; 2],
    candidates: Vec<(usize, String)>,
}

impl LateHemispheres {
    pub(super) fn new(
        columns: &[String],
        rows: &[Vec<String>],
        found: &[(&'static str, Column)],
    ) -> Option<Self> {
        let get =
            |field: &str| found.iter().find(|(known, _)| *known == field).map(|(_, of)| of.at);
        let places =
            COORDINATES.map(|(place, field, _)| get(place).filter(|_| get(field).is_none()));
        let is_used = |at: &usize| found.iter().any(|(_, column)| column.at == *at);
        let is_empty = |at: usize| {
            let mut values = rows.iter().filter_map(|row| row.get(at));
            values.all(|value| !value.contains(char::is_alphanumeric))
        };
        let is_candidate = |at: &usize| {
            let name = &columns[*at];
            let may_be = hemisphere(name).is_some() || !is_direction(name) && is_empty(*at);
            may_be && !is_used(at)
        };
        let candidates: Vec<_> =
            (0..columns.len()).filter(is_candidate).map(|at| (at, columns[at].clone())).collect();
        let is_needed = !candidates.is_empty() && places.iter().any(Option::is_some);
        is_needed.then_some(Self { places, candidates })
    }

    /// Returns an error message if a candidate of a row says south or west, and the number has no
    /// sign. A candidate without the name of a hemisphere counts only if another candidate has a
    /// letter of the other coordinate.
    pub(super) fn fault<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>) -> Option<String> {
        let has = |at: usize, letters: &[&str]| {
            let value = value(at);
            let value = value.trim();
            !value.is_empty() && letters.iter().any(|letter| value.eq_ignore_ascii_case(letter))
        };
        (0..2).find_map(|n| {
            let place = self.places[n]?;
            let (_, field, letters) = COORDINATES[n];
            let (_, _, other_letters) = COORDINATES[1 - n];
            let has_other = || self.candidates.iter().any(|(at, _)| has(*at, &other_letters));
            let is_meant = |name: &str| hemisphere(name) == Some(n) || has_other();
            let is_fault =
                |(at, name): &&(usize, String)| has(*at, &letters[2..]) && is_meant(name);
            let (at, name) = self.candidates.iter().find(is_fault)?;
            let (letter, number) = (value(*at), value(place));
            is_unsigned(number.trim()).then(|| format!(
                "its column {name}, which is not read, says {}, and {} has no sign: give --field \
                 {field}='{name}'",
                letter.trim(),
                number.trim()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_fault(name: &str, units: (Option<&str>, Option<&str>), values: &[&str]) -> String {
        let column = SignedColumn::new(("lng", 0), (name, values[0]), units);
        let fault = |value: &&str| column.as_ref()?.fault(|_| (*value).into());
        values.iter().find_map(fault).unwrap_or_default()
    }

    #[test]
    fn hemisphere_in_a_name_needs_signed_numbers() {
        for (name, value, message) in [
            ("Longitude (W)", "70.5", "says west, and 70.5 has no sign: give --unit lng='-1 deg'"),
            ("lon_w", "70,5", "says west"),
            ("Latitude South", "33.5", "says south"),
            ("Lat (°S)", "33.5", "says south"),
            ("Longitude (W)", "-70.5", ""),
            ("Longitude (E)", "70.5", ""),
            ("lats", "33.5", ""),
            ("lon", "70.5", ""),
            ("w", "70.5", ""),
            ("cow", "70.5", ""),
            ("s_lat", "70.5", ""),
            ("lonW", "70.5", "says west"),
            ("South_Latitude", "70.5", "says south"),
        ] {
            let values = ["deg", "-1", "", value];
            let why = first_fault(name, (None, None), &values);
            assert!(why.contains(message) && why.is_empty() == message.is_empty(), "{name}: {why}");
        }
    }

    #[test]
    fn unit_deg_or_a_signed_unit_settles_the_hemisphere() {
        for (given, stated, message) in [
            (None, Some("deg"), "give --unit lng='-1 deg' to make"),
            (None, Some("1e-7 deg"), "give --unit lng='-1e-7 deg' to make"),
            (Some("ddmm.mmmm"), None, "or --unit lng='+ddmm.mmmm' to take"),
            (Some("deg"), None, ""),
            (Some("-ddmm.mmmm"), None, ""),
            (Some("+1e-7 deg"), Some("deg"), ""),
        ] {
            let why = first_fault("Longitude (W)", (given, stated), &["7015.0"]);
            assert!(
                why.contains(message) && why.is_empty() == message.is_empty(),
                "{given:?}: {why}"
            );
        }
    }
}
