//! Finds the hemispheres that columns state: in their names, such as `Longitude (W)`, or in the
//! values of a column beside the coordinate.

use std::borrow::Cow;

use super::names::{Column, is_name_of, normalised, placeholder_name, words};
use super::values::degrees;
use milepost_decode::{SIDE_WORDS, hemisphere};

/// A side of a coordinate that a name or a value states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    North,
    South,
    East,
    West,
    /// `O` stands for east in German, and for west in French, Italian, Portuguese and Spanish.
    EastOrWest,
}

impl Side {
    const ALL: [Self; 5] = [Self::North, Self::South, Self::East, Self::West, Self::EastOrWest];

    /// Returns the letters and words of the side, in lower case.
    const fn words(self) -> &'static [&'static str] {
        let [[north, south], [east, west]] = SIDE_WORDS;
        match self {
            Self::North => north,
            Self::South => south,
            Self::East => east,
            Self::West => west,
            Self::EastOrWest => &["o"],
        }
    }

    /// Parses the value of a column of hemispheres, such as `S`, `s.` or `South`. Returns `None`
    /// for any other value.
    fn of_value(value: &str) -> Option<Self> {
        let word = value.trim_matches(|c: char| !c.is_alphanumeric());
        // Skip most values early: they are longer, or are numbers.
        let bytes_max = if word.is_ascii() { ASCII_WORD_BYTES_MAX } else { WORD_BYTES_MAX };
        if word.len() > bytes_max || !word.starts_with(char::is_alphabetic) {
            return None;
        }
        if let [letter] = word.as_bytes() {
            return match letter.to_ascii_lowercase() {
                b'n' => Some(Self::North),
                b's' => Some(Self::South),
                b'e' => Some(Self::East),
                b'w' => Some(Self::West),
                b'o' => Some(Self::EastOrWest),
                _ => None,
            };
        }
        // Russian has `ю.ш.`, with a full stop after each letter.
        let word = word.to_lowercase().replace('.', "");
        Self::ALL.into_iter().find(|side| side.words().contains(&&*word))
    }

    /// Returns 0 for a side of the latitude, 1 for one of the longitude.
    const fn coordinate(self) -> usize {
        match self {
            Self::North | Self::South => 0,
            Self::East | Self::West | Self::EastOrWest => 1,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::North => "north",
            Self::South => "south",
            Self::East => "east",
            Self::West => "west",
            Self::EastOrWest => "O (east or west)",
        }
    }

    /// Returns whether the side may need a negative number.
    const fn may_be_negative(self) -> bool {
        match self {
            Self::North | Self::East => false,
            Self::South | Self::West | Self::EastOrWest => true,
        }
    }
}

/// Maximum length of an ASCII word for a side in bytes.
const ASCII_WORD_BYTES_MAX: usize = 8;
/// Maximum length of a word for a side in bytes.
const WORD_BYTES_MAX: usize = 18;
/// Words such as `south latitude`, which state a coordinate and its hemisphere. Such a word may be
/// the whole name of a column.
const SIDES_OF_COORDINATES: [&str; 8] =
    ["南纬", "南緯", "西经", "西經", "西経", "юш", "зд", "남위"];
/// Characters between the name of a coordinate and its hemisphere.
const SEPARATORS: [char; 11] = ['(', '[', ')', ']', '（', '）', ' ', '_', '-', '.', '°'];

/// Splits the hemisphere off a column's name such as `Longitude (W)`, `LonW`, `West Longitude` or
/// `Longitude Ouest`. Returns the name without its hemisphere.
pub(super) fn split_hemisphere(name: &str) -> Option<&str> {
    split_side(name).map(|(bare, _)| bare)
}

/// Like [`split_hemisphere`], but returns the hemisphere, too.
fn split_side(name: &str) -> Option<(&str, Side)> {
    // In a name, only the English word counts for the east: `lon_est` may be an estimate.
    let words = || {
        let of_side = |side: Side| side.words().iter().map(move |word| (*word, side));
        let all = Side::ALL.into_iter().flat_map(of_side);
        all.filter(|(word, side)| *side != Side::East || ["e", "east"].contains(word))
    };
    let inner = name.trim_end_matches([')', ']', '）', ' ']);
    let may_end = inner.ends_with(char::is_alphabetic);
    let at_end = words().filter(|_| may_end).find_map(|(word, side)| {
        let at = inner.len().checked_sub(word.len()).filter(|at| inner.is_char_boundary(*at))?;
        let (bare, end) = inner.split_at(at);
        let is_camel = bare.ends_with(char::is_lowercase) && end.starts_with(char::is_uppercase);
        // Accept `LONW`. Reject `LATS`, which may be a plural.
        let is_joined = word == "w" && is_name_of("lng", bare);
        let is_apart = bare.ends_with(SEPARATORS) || is_camel || is_joined;
        let bare = bare.trim_end_matches(SEPARATORS);
        (is_apart && !bare.is_empty() && end.to_lowercase() == word).then_some((bare, side))
    });
    at_end.or_else(|| {
        // A single letter before the name may mean something else: `s_lat` may be the latitude of a
        // start.
        let is_mark = |c: char| SEPARATORS.contains(&c) || c.is_uppercase();
        let may_begin = name.starts_with(['w', 'W']) || name.chars().skip(1).any(is_mark);
        words().filter(|_| may_begin).find_map(|(word, side)| {
            let (begin, bare) = name.split_at_checked(word.len())?;
            let is_apart = bare.starts_with(SEPARATORS) || bare.starts_with(char::is_uppercase);
            let is_apart = is_apart && word.len() > 2 || word == "w" && is_name_of("lng", bare);
            let bare = bare.trim_start_matches(SEPARATORS);
            (is_apart && !bare.is_empty() && begin.to_lowercase() == word).then_some((bare, side))
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
    side: Side,
    unit: Option<String>,
}

impl SignedColumn {
    /// Returns the check of a column; `None` if the column needs none. `first_value`: the column's
    /// first value, which may be a unit. `given`: the unit of `--unit`, which may also state the
    /// sign. `stated`: the unit in the column's name.
    pub(super) fn new(
        (field, at): (&'static str, usize),
        (name, first_value): (&str, &str),
        (given, stated): (Option<&str>, Option<&str>),
    ) -> Option<Self> {
        if given.is_some_and(settles_sign) {
            return None;
        }
        let without_unit = milepost_decode::Quantity::Angle.split_unit(name);
        let as_whole = || {
            let inner = name.rsplit_once(['(', '[', '（']).map_or(name, |(_, inner)| inner);
            let is_side = SIDES_OF_COORDINATES.contains(&normalised(inner).trim_end_matches('）'));
            Some((name, Side::of_value(inner).filter(|_| is_side)?))
        };
        let from_name = split_side(name)
            .or_else(as_whole)
            .or_else(|| split_side(without_unit?.0))
            .map(|(_, side)| (name.to_owned(), side));
        let is_unit = !first_value.is_empty() && !first_value.contains(|c: char| c.is_numeric());
        // `split_side` expects a name before the hemisphere.
        let name_and_unit = format!("x {first_value}");
        let from_units = || {
            let (_, side) = split_side(&name_and_unit).filter(|_| is_unit)?;
            Some((format!("{name} ({first_value})"), side))
        };
        let (name, side) = from_name.or_else(from_units)?;
        let unit = given.or(stated).map(str::to_owned);
        side.may_be_negative().then_some(Self { at, field, name, side, unit })
    }

    /// Returns an error message if the number of a row has no sign: the fix would be stored in the
    /// wrong hemisphere. `value`: returns the row's value in a column.
    pub(super) fn fault<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>) -> Option<String> {
        let value = value(self.at);
        let value = value.trim();
        if !is_unsigned(value) {
            return None;
        }
        let Self { field, name, side, unit, .. } = self;
        let side = side.name();
        let degrees_max = if *field == "lat" { 90.0 } else { 180.0 };
        let has_minutes = degrees(value).is_some_and(|number| {
            number > degrees_max && number <= degrees_max * 100.0 && number % 100.0 < 60.0
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

/// Returns whether a unit of `--unit` states that the numbers are signed, or which sign they need.
fn settles_sign(unit: &str) -> bool {
    unit == "deg" || unit.starts_with(['-', '+'])
}

/// Returns whether a value is a positive number, in any notation, without a letter for the
/// hemisphere.
fn is_unsigned(value: &str) -> bool {
    if let Some(number) = degrees(value) {
        return number > 0.0;
    }
    let mut words = value.split(|c: char| !c.is_alphabetic());
    value.starts_with(|c: char| c.is_ascii_digit() || c == '+')
        && value.contains(|c: char| matches!(c, '1'..='9'))
        && !words.any(|word| Side::of_value(word).is_some())
}

/// Each coordinate with the field of its hemisphere.
const COORDINATES: [(&str, &str); 2] = [("lat", "lat_hemisphere"), ("lng", "lng_hemisphere")];

/// Returns the index of a field's column.
fn column_of(found: &[(&'static str, Column)], field: &str) -> Option<usize> {
    found.iter().find(|(name, _)| *name == field).map(|(_, column)| column.at)
}

/// Returns whether a column has only letters or words of one coordinate's hemispheres. Returns
/// `true` for a column without values, too.
fn has_only_sides(at: usize, rows: &[Vec<String>]) -> bool {
    let values = rows.iter().filter_map(|row| row.get(at));
    let mut values = values.filter(|value| value.contains(char::is_alphanumeric));
    let mut first_coordinate = None;
    values.all(|value| {
        let coordinate = Side::of_value(value).map(Side::coordinate);
        coordinate.is_some() && *first_coordinate.get_or_insert(coordinate) == coordinate
    })
}

/// Finds the columns of hemispheres by their values, `N` or `S` and `E` or `W`.
///
/// A column that is named after its coordinate, such as `lat_ref`, needs no other evidence. Any
/// other column may hold directions, states or categories with the same letters. It is used only if
/// all of these hold:
/// - It has no name, or its name is the letter of a hemisphere.
/// - It is next to its coordinate.
/// - It has no other values.
/// - The other coordinate has a hemisphere, too.
pub(super) fn add_hemispheres(
    columns: &[String],
    rows: &[Vec<String>],
    found: &mut Vec<(&'static str, Column)>,
) {
    let coordinates = COORDINATES.map(|(field, _)| column_of(found, field));
    let [Some(_), Some(_)] = coordinates else { return };
    let first_side = |at: usize| {
        let mut values = rows.iter().filter_map(|row| row.get(at));
        Side::of_value(values.find(|value| !value.is_empty())?)
    };
    let is_named = |at: usize, n: usize| hemisphere(&columns[at]) == Some(n);
    let is_nameless = |at: usize| {
        let name = columns[at].as_str();
        name == placeholder_name(at) || name.len() == 1 && Side::of_value(name).is_some()
    };
    let chosen = [0, 1].map(|n| {
        let (_, field) = COORDINATES[n];
        column_of(found, field).or_else(|| {
            let is_beside =
                |at: usize| coordinates[n].is_some_and(|column| column.abs_diff(at) == 1);
            let is_candidate = |at: &usize| {
                let has_side = first_side(*at).is_some_and(|side| side.coordinate() == n);
                let is_used = found.iter().any(|(_, column)| column.at == *at);
                let is_likely = || is_beside(*at) && is_nameless(*at) && has_only_sides(*at, rows);
                has_side && !is_used && (is_named(*at, n) || is_likely())
            };
            let candidates = || (0..columns.len()).filter(is_candidate);
            candidates().find(|at| is_beside(*at)).or_else(|| candidates().next())
        })
    });
    let has_pair = chosen.iter().all(Option::is_some);
    for (n, (_, field)) in COORDINATES.into_iter().enumerate() {
        if let (None, Some(at)) = (column_of(found, field), chosen[n])
            && (has_pair || is_named(at, n))
        {
            found.push((field, Column { at, unit: None }));
        }
    }
}

/// Returns whether the name of a column is that of a direction, of travel or of the wind.
fn is_direction(name: &str) -> bool {
    let name = normalised(name);
    let is_part = |word: &&str| name.contains(*word);
    name.starts_with("wind") || ["direction", "heading", "course", "bearing"].iter().any(is_part)
}

/// Columns that may hold hemispheres, but are not read. Either the name of such a column does not
/// say that it holds hemispheres, or the first rows have no letter, because the receiver had no fix
/// yet.
#[derive(Debug)]
pub(super) struct UnreadHemispheres {
    /// Columns of lat and lng; `None` for a coordinate whose hemisphere is read.
    coordinates: [Option<usize>; 2],
    /// `--unit` says that the numbers of lat and lng are signed.
    are_signed: [bool; 2],
    candidates: Vec<Candidate>,
}

/// A column that may be a hemisphere.
#[derive(Debug)]
struct Candidate {
    at: usize,
    name: String,
    /// The coordinate whose hemisphere the name states: 0 for lat, 1 for lng.
    named: Option<usize>,
    notation: Notation,
}

impl Candidate {
    /// Returns whether the name can only mean a hemisphere of the coordinate. The name `quadrant`
    /// is not certain: a quadrant may be a part of a town.
    fn is_certain(&self, coordinate: usize) -> bool {
        let name = normalised(&self.name);
        let is_clear = match self.notation {
            Notation::Both => name != "quadrant",
            Notation::Flag(_) => name.starts_with("is"),
            Notation::Side | Notation::Sign(_) => false,
        };
        is_clear || self.named == Some(coordinate)
    }
}

/// How the values of a column state hemispheres.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    /// `S`, `West`.
    Side,
    /// The column is called `south` or `is_west`: the value is a flag, which is set for this side.
    /// An unset flag states the opposite side if this side is north or east.
    Flag(Side),
    /// The column is called `lat_sign`: the value is a sign, or a flag for negative numbers.
    Sign(usize),
    /// The column is called `hemisphere` or `quadrant`: the value may state both sides, as `SW`.
    Both,
}

impl Notation {
    /// Returns the notation of a column by its name.
    fn of_name(name: &str) -> Self {
        let words = words(name);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let bare = match &words[..] {
            ["is", side @ ..] | [side @ .., "flag"] => side,
            all => all,
        };
        let coordinate = |word| (0..2).find(|n| is_name_of(COORDINATES[*n].0, word));
        match *bare {
            ["hemisphere" | "hemi" | "quadrant" | "半球" | "полушарие"] => Self::Both,
            ["north"] => Self::Flag(Side::North),
            ["south"] => Self::Flag(Side::South),
            ["east"] => Self::Flag(Side::East),
            ["west"] => Self::Flag(Side::West),
            [name, "sign" | "negative"] => coordinate(name).map_or(Self::Side, Self::Sign),
            _ => Self::Side,
        }
    }

    /// Returns the sides that a value states.
    fn sides(self, value: &str) -> Vec<Side> {
        let value = value.trim();
        let is_one_of = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
        let negative = |n: usize| [Side::South, Side::West][n];
        let side = match self {
            Self::Side => Side::of_value(value),
            Self::Both => {
                let words = value.split(|c: char| !c.is_alphabetic());
                return words.flat_map(sides_of_word).collect();
            }
            Self::Flag(side) if is_one_of(&["1", "true", "yes", "y", "t"]) => Some(side),
            Self::Flag(side) => {
                let is_unset = is_one_of(&["0", "false", "no", "n", "f"]);
                (is_unset && !side.may_be_negative()).then(|| negative(side.coordinate()))
            }
            Self::Sign(n) => {
                let is_negative = is_one_of(&["-", "−", "-1", "-1.0", "negative", "true"]);
                is_negative.then(|| negative(n))
            }
        };
        side.into_iter().collect()
    }
}

/// Returns the sides in a word such as `south` or `SW`.
fn sides_of_word(word: &str) -> Vec<Side> {
    if let Some(side) = Side::of_value(word) {
        return vec![side];
    }
    let letters = word.chars().map(|c| Side::of_value(c.encode_utf8(&mut [0; 4])));
    let sides: Option<Vec<Side>> = letters.collect();
    sides.filter(|sides| sides.len() == 2).unwrap_or_default()
}

impl UnreadHemispheres {
    /// Returns the check of a file; `None` if the file needs none. `lat_unit`, `lng_unit`: the
    /// values of `--unit`.
    pub(super) fn new(
        columns: &[String],
        rows: &[Vec<String>],
        found: &[(&'static str, Column)],
        [lat_unit, lng_unit]: [Option<&str>; 2],
    ) -> Option<Self> {
        let coordinates = COORDINATES.map(|(field, hemisphere_field)| {
            column_of(found, field).filter(|_| column_of(found, hemisphere_field).is_none())
        });
        // Without a unit of its own, lng has the unit of lat, but not its sign.
        let are_signed = [
            lat_unit.is_some_and(settles_sign),
            lng_unit.map_or(lat_unit == Some("deg"), settles_sign),
        ];
        let candidates = columns.iter().enumerate().filter_map(|(at, name)| {
            let (named, notation) = (hemisphere(name), Notation::of_name(name));
            let may_be_hemisphere = named.is_some()
                || notation != Notation::Side
                || !is_direction(name) && has_only_sides(at, rows);
            let is_used = found.iter().any(|(_, column)| column.at == at);
            (may_be_hemisphere && !is_used).then(|| Candidate {
                at,
                name: name.clone(),
                named,
                notation,
            })
        });
        let candidates: Vec<_> = candidates.collect();
        let is_needed = !candidates.is_empty() && coordinates.iter().any(Option::is_some);
        is_needed.then_some(Self { coordinates, are_signed, candidates })
    }

    /// Returns an error message if a candidate column says south or west in a row whose coordinate
    /// has no sign. A candidate without the name of a hemisphere counts only if the other
    /// coordinate has a hemisphere, too. `value`: returns the row's value in a column.
    pub(super) fn fault<'v>(&self, value: impl Fn(usize) -> Cow<'v, str>) -> Option<String> {
        let sides = self.candidates.iter().flat_map(|candidate| {
            let sides = candidate.notation.sides(&value(candidate.at));
            sides.into_iter().map(move |side| (candidate, side))
        });
        let sides: Vec<(&Candidate, Side)> = sides.collect();
        (0..2).find_map(|n| {
            let coordinate = self.coordinates[n]?;
            let (field, hemisphere_field) = COORDINATES[n];
            let other_has_hemisphere = self.coordinates[1 - n].is_none()
                || sides.iter().any(|(_, side)| side.coordinate() != n);
            // A certain candidate counts even if `--unit` says that the numbers are signed.
            let is_meant = |candidate: &Candidate| {
                let is_likely = other_has_hemisphere || candidate.notation == Notation::Sign(n);
                candidate.is_certain(n) || is_likely && !self.are_signed[n]
            };
            let (candidate, _) = sides.iter().find(|(candidate, side)| {
                side.coordinate() == n && side.may_be_negative() && is_meant(candidate)
            })?;
            let (letter, number) = (value(candidate.at), value(coordinate));
            let (letter, number, name) = (letter.trim(), number.trim(), &candidate.name);
            is_unsigned(number).then(|| {
                let given = format!("give --field {hemisphere_field}='{name}'");
                let remedy = match candidate.notation {
                    Notation::Side if candidate.named == Some(n) => given,
                    Notation::Side => {
                        format!("{given} if it is a hemisphere, or --unit {field}=deg if it is not")
                    }
                    Notation::Flag(_) | Notation::Sign(_) | Notation::Both => {
                        let minus = "write a minus before the number";
                        let otherwise = || {
                            format!(", or give --unit {field}=deg to take the numbers as they are")
                        };
                        minus.to_owned()
                            + &if candidate.is_certain(n) { String::new() } else { otherwise() }
                    }
                };
                format!(
                    "its column {name}, which is not read, says {letter}, and {number} has no \
                     sign: {remedy}"
                )
            })
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
            ("Longitude Ouest", "70.5", "says west"),
            ("Longitud Oeste", "70.5", "says west"),
            ("Latitude Sud", "70.5", "says south"),
            ("Latitud Sur", "70.5", "says south"),
            ("Breite (Süd)", "70.5", "says south"),
            ("WLON", "70.5", "says west"),
            ("Longitude (O)", "70.5", "says O (east or west)"),
            ("lon_est", "70.5", ""),
            ("lon_obs", "70.5", ""),
            ("西经", "70.5", "says west"),
            ("з.д.", "70.5", "says west"),
            ("东经", "70.5", ""),
            ("西", "70.5", ""),
            ("Долгота (з.д.)", "70.5", "says west"),
            ("经度（西经）", "70.5", "says west"),
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
