//! Checks the members of a payload that announce how its values are written, such as
//! `"speed_scale":0.1`, `"lat_format":"ddmm.mmmm"` or `"heading_reference":"magnetic"`. No format
//! reads them.

use super::announced::{Announcement, announcement, is_about, is_scale_of_time};
use super::field_names::normalised;
use super::json::{Scalar, number};
use super::keep::{Value, visit_values};
use super::measured::{Measured, refuse_magnetic};
use super::refusal::{Refusal, refuse};
use super::spelled_unit::is_magnetic;
use crate::reject::Reason;

/// Beginnings of notations of coordinates, as [`normalised`] returns them, in which a number is not
/// decimal degrees. `-` does not count: `1e7` is also `1e-7`.
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
/// Notations of coordinates that do not also begin other words.
const WHOLE_NOTATIONS: [&str; 4] = ["rad", "radians", "semicircles", "nmea"];

/// Checks the members beside the values of a point, or beside an array of points. `fields`: the
/// fields that are sent as numbers; `is_about_all`: returns whether the members of an object of
/// this name are about the values beside it.
///
/// # Errors
/// A member announces a scale, notation or north other than that of the format.
pub(super) fn check_announced<'f>(
    json: &[u8],
    fields: impl Iterator<Item = &'f Measured> + Clone,
    is_about_all: impl Fn(&str) -> bool,
) -> Result<(), Refusal> {
    let mut checked = Ok(());
    visit_values(json, &[], &mut |path, value| {
        let Value::Scalar(text) = value else { return };
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        if checked.is_err() {
            return;
        }
        let Some((kind, stem)) = announcement(name) else { return };
        let is_beside = |field: &&Measured| {
            let own = field.path.rsplit_once('/').map_or("", |(parent, _)| parent);
            (parent.is_empty() || parent == own || parent.split('/').all(&is_about_all))
                && is_about(&stem, field.field, field.is_place())
        };
        checked = fields.clone().filter(is_beside).try_for_each(|field| match kind {
            Announcement::Scale => check_scale(path, text, field),
            Announcement::Notation => check_notation(path, text, field),
            Announcement::North => {
                let is_letter = text.trim().eq_ignore_ascii_case("m");
                if is_magnetic(text) || is_letter {
                    refuse_magnetic(path, text, field.field)
                } else {
                    Ok(())
                }
            }
            Announcement::IsMagnetic => {
                let is_set = ["true", "yes"].iter().any(|set| text.eq_ignore_ascii_case(set));
                if is_set { refuse_magnetic(path, text, field.field) } else { Ok(()) }
            }
        });
    });
    checked
}

/// Checks a scale. A size that no unit has, or a unit of degrees in the configuration, is that of
/// the scaled value: the operator has converted it.
fn check_scale(path: &str, text: &str, field: &Measured) -> Result<(), Refusal> {
    let is_custom = field.quantity.unit_of(field.factor.abs()).is_none() || field.has_unit;
    match scale(text) {
        Some(scale) if !is_custom && scale != 1.0 && scale != 0.0 => {
            let (name, unit) = (field.field, field.unit());
            let remedy = field.remedy();
            refuse(
                Reason::WrongType,
                format!(
                    "{path:.40} is {text:.20}, which is not read, but {name} is read in {unit}: \
                     convert it, or {remedy} with its size, such as \"0.1 {}\"",
                    field.quantity.own_unit()
                ),
            )
        }
        Some(_) | None => Ok(()),
    }
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

fn check_notation(path: &str, text: &str, field: &Measured) -> Result<(), Refusal> {
    let notation = normalised(text);
    let is_other = NOTATIONS.iter().any(|begin| notation.starts_with(begin))
        || WHOLE_NOTATIONS.contains(&&*notation);
    if !is_other || field.factor.abs().to_bits() != 1_f64.to_bits() || field.has_unit {
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

/// Checks a point with a time for a member that states another scale of times than UTC.
///
/// # Errors
/// There is such a member, and the time is not text that ends in `Z`.
#[cold]
pub(super) fn check_scale_of_time(
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
        let is_scale = is_scale_of_time(&normalised(names.next().unwrap_or_default()));
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
            "{path:.40} is {text:.20}, which is {seconds} s ahead of UTC, and times are read in UTC: \
             subtract {seconds} s, or leave {path:.40} out if they are in UTC"
        ),
    )
}
