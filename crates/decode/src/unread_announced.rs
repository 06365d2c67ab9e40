//! Checks announcements: members of a payload that announce how its values are written, such as
//! `"speed_scale":0.1`, `"lat_format":"ddmm.mmmm"`, `"heading_reference":"magnetic"` or
//! `"altitude_ref":"AGL"`. No format applies an announcement, so a value that needs one is
//! rejected.

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

/// Maximum number of announcements that are checked in a payload.
const ANNOUNCEMENTS_MAX: usize = 64;
/// Beginnings of the notations in which a coordinate is not in decimal degrees. The strings are
/// [`normalised`], which turns `1e-7` into `1e7`.
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
/// Notations that are recognised even if the member's name states no coordinate, as in
/// `"format":"dms"`. Such a string cannot be a date pattern or anything else.
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
/// Notations that must be the whole string: other words also begin with `rad`.
const WHOLE_NOTATIONS: [&str; 3] = ["rad", "radians", "semicircles"];

/// The object whose members may be announcements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    /// The point itself.
    Point,
    /// The object around an array of points. The numbers in this object do not belong to a point.
    AroundPoints,
}

/// Checks the announcements in a point, or in the object around an array of points.
///
/// - `fields`: the fields that are sent as numbers.
/// - `describes_fields`: takes the name of a nested object, and returns whether an announcement in
///   this object may be about fields outside the object.
/// - `kept`: the source's `keep`; `None` for the object around the array of a file, because `keep`
///   cannot name members of this object.
///
/// # Errors
/// The format reads a field in another way than the announcement states: with another scale, in
/// another notation, from another north, or above another level.
pub(super) fn check_announced<'f>(
    json: &[u8],
    fields: impl Iterator<Item = &'f Measured> + Clone,
    object: Object,
    describes_fields: impl Fn(&str) -> bool,
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
    let numbers = announced_numbers(json, &announced);
    announced.iter().try_for_each(|(path, text, kind, stem)| {
        let (parent, _) = parent_and_name(path);
        let is_beside = |field: &&Measured| {
            let (own_parent, own_name) = parent_and_name(&field.path);
            // If the payload has a number `velocity` that is not this field, `velocity_scale` is
            // the scale of that number.
            let is_about_other_number = numbers.iter().any(|number| {
                let (number_parent, name) = parent_and_name(number);
                let is_own = object == Object::Point && *number == field.path;
                number_parent == parent && normalised(name) == *stem && !is_own
            });
            (parent.is_empty() || parent == own_parent || parent.split('/').all(&describes_fields))
                && is_about(stem, field.field, &normalised(own_name))
                && !is_about_other_number
        };
        fields.clone().filter(is_beside).try_for_each(|field| match kind {
            Announcement::Scale => check_scale(path, text, field, kept),
            // Without `kept`, `json` is from a file, and the coordinates of a file are in degrees.
            Announcement::Notation if stem.is_empty() && kept.is_none() => Ok(()),
            Announcement::Notation => {
                let is_unread = if stem.is_empty() { is_bare_notation } else { is_notation };
                if is_unread(text) { refuse_notation(path, text, field) } else { Ok(()) }
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

/// Returns the paths of the numbers that an announcement names. For example, `velocity_scale` names
/// the number `velocity` in the same object.
fn announced_numbers<T, U>(json: &[u8], announced: &[(String, T, U, String)]) -> Vec<String> {
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

/// Checks the scale that a member states for `field`. The scale is accepted if the configuration
/// shows that the operator has taken it into account:
///
/// - The configured unit is custom, such as `0.37 m/s`: no named unit has this size.
/// - The configured unit is a named unit, multiplied or divided by the scale.
/// - The field is a coordinate or the heading, and the configuration states its unit.
/// - The scale is a size such as `0.1 m/s`, and the configured unit has this size.
/// - `keep` names the member.
///
/// A scale of 1 or 0 is accepted too, and so is a string that is not a number.
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
            // milepost's own unit proves nothing: it is also the default. For example, m/s is mm/s
            // times 1000, but the operator need not have thought of a scale of 1000.
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
        format!(", or keep = [\"{:.40}\"] if {name} is already scaled", kept.name(path))
    });
    refuse(
        Reason::WrongType,
        format!(
            "{path:.40} is {text:.20}, but {name} is read in {unit}, unscaled: convert {name}, \
             or set {name}_unit = \"0.1 {own_unit}\" (import: {option}){keep}"
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

/// Returns whether a string can only be a notation of coordinates. `DDMM` may also be a date
/// pattern of days and months; `ddmm.m` may not.
fn is_bare_notation(text: &str) -> bool {
    let lower = text.trim().to_lowercase();
    let minutes = ["ddmm.", "dddmm."].iter().find_map(|begin| lower.strip_prefix(begin));
    let are_minutes = |rest: &str| !rest.is_empty() && rest.chars().all(|c| c == 'm');
    minutes.is_some_and(are_minutes) || BARE_NOTATIONS.contains(&&*normalised(&lower))
}

/// Returns the error for an altitude above the ground, unless `keep` names the member.
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
            "{path:.40} says {text:.20}, but {name} is the height above sea level: send that \
             height, or store this one with {remedy}"
        ),
    )
}

/// Returns the error for a coordinate in a notation that is not read, unless the configuration
/// states the coordinate's unit.
fn refuse_notation(path: &str, text: &str, field: &Measured) -> Result<(), Refusal> {
    if field.factor.abs().to_bits() != 1_f64.to_bits() || field.has_unit {
        return Ok(());
    }
    refuse(
        Reason::WrongType,
        format!(
            "{path:.40} says {text:.20}, but {} is read in degrees: send decimal degrees, or set \
             lat_unit in [formats.NAME] (import: --unit lat=)",
            field.field
        ),
    )
}

/// Checks the time scale that a member of a point states. GPS time and TAI are ahead of UTC.
///
/// # Errors
/// The member states GPS time or TAI, and the point has a `ts` that is not a string ending in `Z`.
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
