//! Checks the members of a payload that announce how its values are written, such as
//! `"speed_scale":0.1`, `"lat_format":"ddmm.mmmm"`, `"heading_reference":"magnetic"` or
//! `"altitude_ref":"AGL"`. No format reads them.

use super::announced::{Announcement, announcement, is_about, is_time_scale};
use super::field_names::normalised;
use super::json::{Scalar, number};
use super::keep::{Kept, Value, visit_values};
use super::measured::{Measured, refuse_magnetic};
use super::refusal::{Refusal, refuse};
use super::spelled_unit::{is_above_ground, is_magnetic};
use super::unit::{Quantity, number_and_unit};
use super::unit_words::is_unit;
use crate::reject::Reason;

/// Maximum number of announcements of a payload that are checked.
const ANNOUNCEMENTS_MAX: usize = 64;
/// Beginnings of notations of coordinates, as [`normalised`] returns them, in which a number is not
/// decimal degrees. Normalised, `1e-7` is `1e7`.
const NOTATIONS: [&str; 14] = [
    "ddmm",
    "dddmm",
    "dmm",
    "dms",
    "ddm",
    "degmin",
    "degreesminutes",
    "degreesanddecimalminutes",
    "degreesdecimalminutes",
    "degreesandminutes",
    "1e7",
    "1e6",
    "e7",
    "e6",
];
/// Notations that count even under a name without a coordinate, such as `format`. They can be
/// neither a pattern of a date nor the name of anything else.
const BARE_NOTATIONS: [&str; 8] = [
    "dms",
    "degreesminutes",
    "degrees,minutes",
    "degreesminutesseconds",
    "degrees,minutes,seconds",
    "degreesanddecimalminutes",
    "degreesdecimalminutes",
    "degreesandminutes",
];
/// Notations of coordinates that count only as the whole value: `rad` also begins other words.
const WHOLE_NOTATIONS: [&str; 3] = ["rad", "radians", "semicircles"];

/// The object whose members may be announcements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    /// The point, whose members have the paths of the fields.
    Point,
    /// The object around an array of points. Its own numbers are not numbers of the points.
    AroundPoints,
}

/// Checks the members beside the values of a point, or beside an array of points. `fields`: the
/// fields that are sent as numbers. `is_about_all`: returns whether the members of an object of
/// this name are about the values beside the object. `kept`: `None` for the frame of a file, whose
/// members `keep` cannot name.
///
/// # Errors
/// A member announces a scale, a notation, a reference for north or a level of altitudes other than
/// that of the format.
pub(super) fn check_announced<'f>(
    json: &[u8],
    fields: impl Iterator<Item = &'f Measured> + Clone,
    object: Object,
    is_about_all: impl Fn(&str) -> bool,
    kept: Option<Kept<'_>>,
) -> Result<(), Refusal> {
    let mut announced = Vec::new();
    visit_values(json, &[], &mut |path, value| {
        let Value::Scalar(text) = value else { return };
        let (_, name) = parent_and_name(path);
        if announced.len() < ANNOUNCEMENTS_MAX
            && is_unit(name.as_bytes())
            && let Some((kind, stem)) = announcement(name)
        {
            announced.push((path.to_owned(), text.to_owned(), kind, stem));
        }
    });
    if announced.is_empty() {
        return Ok(());
    }
    let numbers = numbers_of(json, &announced);
    announced.iter().try_for_each(|(path, text, kind, stem)| {
        let (parent, _) = parent_and_name(path);
        let is_beside = |field: &&Measured| {
            let (own_parent, own_name) = parent_and_name(&field.path);
            // If there is another number `velocity`, `velocity_scale` is not the field's scale.
            let is_of_other = numbers.iter().any(|number| {
                let (beside, name) = parent_and_name(number);
                let is_own = object == Object::Point && *number == field.path;
                beside == parent && normalised(name) == *stem && !is_own
            });
            (parent.is_empty() || parent == own_parent || parent.split('/').all(&is_about_all))
                && is_about(stem, field.field, &normalised(own_name))
                && !is_of_other
        };
        fields.clone().filter(is_beside).try_for_each(|field| match kind {
            Announcement::Scale => check_scale(path, text, field, kept),
            // Without `kept`, the object is the frame of a file, whose coordinates are in degrees.
            Announcement::Notation if stem.is_empty() && kept.is_none() => Ok(()),
            Announcement::Notation => {
                let is_other = if stem.is_empty() { is_bare_notation } else { is_notation };
                if is_other(text) { refuse_notation(path, text, field) } else { Ok(()) }
            }
            Announcement::Level if is_above_ground(text) => refuse_level(path, text, field, kept),
            Announcement::Level => Ok(()),
            Announcement::North => {
                let is_letter = text.trim().eq_ignore_ascii_case("m");
                if is_magnetic(text) || is_letter {
                    refuse_magnetic(path, text, field)
                } else {
                    Ok(())
                }
            }
            Announcement::NorthInWords if is_magnetic(text) => refuse_magnetic(path, text, field),
            Announcement::NorthInWords => Ok(()),
            Announcement::IsTrue => {
                let is_unset = ["false", "no"].iter().any(|word| text.eq_ignore_ascii_case(word));
                if is_unset { refuse_magnetic(path, text, field) } else { Ok(()) }
            }
            Announcement::IsMagnetic => {
                let is_set = ["true", "yes"].iter().any(|set| text.eq_ignore_ascii_case(set));
                if is_set { refuse_magnetic(path, text, field) } else { Ok(()) }
            }
        })
    })
}

/// Returns the paths of numbers after which an announcement beside them is named, such as
/// `velocity` beside `velocity_scale`.
fn numbers_of<T, U>(json: &[u8], announced: &[(String, T, U, String)]) -> Vec<String> {
    let mut numbers = Vec::new();
    visit_values(json, &[], &mut |path, value| {
        let Value::Scalar(text) = value else { return };
        let (parent, name) = parent_and_name(path);
        let is_named = || {
            let name = normalised(name);
            let mut all = announced.iter();
            all.any(|(path, _, _, stem)| *stem == name && parent_and_name(path).0 == parent)
        };
        if number(text).is_some() && is_named() {
            numbers.push(path.to_owned());
        }
    });
    numbers
}

fn parent_and_name(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Checks a scale. A scale is accepted if the configured unit shows that the operator knows of the
/// scale:
///
/// - The size of the unit is that of no named unit.
/// - The unit is a named unit times or divided by the scale.
/// - The field is a coordinate or the heading, and the configuration states its unit.
///
/// Also accepted: 1, 0, a text that is no number, a size that equals the configured unit, and a
/// scale that `keep` names.
fn check_scale(
    path: &str,
    text: &str,
    field: &Measured,
    kept: Option<Kept<'_>>,
) -> Result<(), Refusal> {
    let own = field.factor.abs();
    let is_same = |size: f64| (size / own - 1.0).abs() < 1e-6;
    let is_custom = field.quantity.unit_of(own).is_none() || field.has_unit;
    let is_right = match size(text, field.quantity) {
        Some(size) => is_same(size),
        None => scale(text).is_none_or(|scale| {
            // milepost's own unit does not count: m/s equals mm/s times a scale of 1000, but does
            // not show that the operator knows of this scale.
            let is_scaled = |known: f64| is_same(known * scale) || is_same(known / scale);
            let mut known = field.quantity.names().iter();
            scale == 1.0 || scale == 0.0 || own != 1.0 && known.any(|(_, known)| is_scaled(*known))
        }),
    };
    if is_custom || is_right || kept.is_some_and(|kept| kept.has(path)) {
        return Ok(());
    }
    let (name, unit, own_unit) = (field.field, field.unit(), field.quantity.own_unit());
    let option = field.option();
    let keep = kept.map_or(String::new(), |kept| {
        format!(", or keep = [\"{:.40}\"] if already applied", kept.name(path))
    });
    refuse(
        Reason::WrongType,
        format!(
            "{path:.40} is {text:.20}, which is not read, but {name} is read in {unit}: convert \
             it, or set {name}_unit = \"0.1 {own_unit}\" (import: {option}){keep}"
        ),
    )
}

/// Parses the size of a unit, such as `0.1 m/s`.
fn size(text: &str, quantity: Quantity) -> Option<f64> {
    let (scale, unit) = number_and_unit(text)?;
    Some(scale * quantity.factor(quantity.unit_named(unit)?).ok()?)
}

/// Parses a scale such as `0.1`, `x10` or `1/10`.
fn scale(text: &str) -> Option<f64> {
    let text = text.trim().trim_start_matches(['x', '×', '*']);
    let plain = |text: &str| number(text).and_then(|number| number.as_f64());
    match text.split_once('/') {
        Some((above, below)) => Some(plain(above)? / plain(below)?),
        None => plain(text),
    }
}

fn is_notation(text: &str) -> bool {
    let notation = normalised(text);
    NOTATIONS.iter().any(|begin| notation.starts_with(begin))
        || WHOLE_NOTATIONS.contains(&&*notation)
}

/// Returns whether a text can only be a notation of coordinates, and neither a pattern of a date
/// nor any other word. `DDMM` and `DDMMM` may be days and months, but `ddmm.m` may not.
fn is_bare_notation(text: &str) -> bool {
    let lower = text.trim().to_lowercase();
    let minutes = ["ddmm.", "dddmm."].iter().find_map(|begin| lower.strip_prefix(begin));
    let are_minutes = |rest: &str| !rest.is_empty() && rest.chars().all(|c| c == 'm');
    minutes.is_some_and(are_minutes) || BARE_NOTATIONS.contains(&&*normalised(&lower))
}

/// Returns the error for an altitude above the ground, unless the operator keeps the member.
fn refuse_level(
    path: &str,
    text: &str,
    field: &Measured,
    kept: Option<Kept<'_>>,
) -> Result<(), Refusal> {
    if kept.is_some_and(|kept| kept.has(path)) {
        return Ok(());
    }
    let name = field.field;
    let remedy = match kept.map(|kept| kept.name(path)) {
        Some(member) => format!("keep = [\"{member:.40}\"] (import: --keep {member:.40})"),
        None => format!("{} of import", field.option()),
    };
    refuse(
        Reason::WrongType,
        format!(
            "{path:.40} says {text:.20}, but {name} is read from sea level: send that one, or \
             store it as it is with {remedy}"
        ),
    )
}

/// Returns the error for a coordinate in another notation, unless its unit is stated.
fn refuse_notation(path: &str, text: &str, field: &Measured) -> Result<(), Refusal> {
    if field.factor.abs().to_bits() != 1_f64.to_bits() || field.has_unit {
        return Ok(());
    }
    refuse(
        Reason::WrongType,
        format!(
            "{path:.40} says {text:.20}, which is not read, but {} is read in degrees: convert it, \
             or set lat_unit in [formats.NAME], or give --unit lat= to import",
            field.field
        ),
    )
}

/// Checks whether a member of a point with a time states a time scale that is ahead of UTC: that of
/// GPS, or TAI.
///
/// # Errors
/// The point has such a member, and its time is not a string that ends in `Z`.
#[cold]
pub(super) fn check_time_scale(
    json: &[u8],
    ts: &Scalar<'_>,
    is_about_point: impl Fn(&str) -> bool,
) -> Result<(), Refusal> {
    if ts.is_missing() || ts.as_text().is_some_and(|ts| ts.trim_end().ends_with(['Z', 'z'])) {
        return Ok(());
    }
    let mut found = None;
    visit_values(json, &[], &mut |path, value| {
        let Value::Scalar(text) = value else { return };
        let mut names = path.rsplit('/');
        let is_scale = is_time_scale(&normalised(names.next().unwrap_or_default()));
        let seconds = match &*normalised(text.trim()) {
            "gps" | "gpst" | "gpstime" => 18,
            "tai" => 37,
            _ => return,
        };
        if is_scale && names.all(&is_about_point) {
            found = Some((path.to_owned(), text.to_owned(), seconds));
        }
    });
    let Some((path, text, seconds)) = found else { return Ok(()) };
    refuse(
        Reason::BadTs,
        format!(
            "{path:.40} is {text:.20}, which is {seconds} s ahead of UTC, and times are read in \
             UTC: subtract {seconds} s, or leave {path:.40} out if they are in UTC"
        ),
    )
}
