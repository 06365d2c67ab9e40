//! Finds units that a payload states beside its numbers, such as `"speed":43,"speed_unit":"mph"`, and
//! that the format does not read.

use memchr::memmem;

use super::hemisphere::{is_unit, normalised};
use super::json::number;
use super::keep::{Value, visit_values};
use super::reader::Reader;
use super::refusal::{Refusal, refuse};
use super::unit::Quantity;
use crate::reject::Reason;

/// Maximum number of members of a payload that are compared with the fields.
const UNITS_MAX: usize = 256;

/// A field of a format, and the unit in which the format reads it.
pub(super) struct Measured {
    pub(super) field: &'static str,
    /// Path of the field's value, with `/` between names.
    pub(super) path: String,
    pub(super) quantity: Quantity,
    /// Size of the unit in milepost's own unit.
    pub(super) factor: f64,
}

impl Measured {
    /// Returns whether the member at a path states the unit of this field: `speed_unit` beside
    /// `speed`, `unit` beside `value`, or `units/speed`. A bare `unit` also states that of a speed,
    /// unless its value is `ms`, which is a unit of time, too.
    fn has_unit_at(&self, path: &str, text: &str) -> bool {
        let split = |path: &'_ str| {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            (parent.to_owned(), normalised(name))
        };
        let ((parent, name), (own_parent, own_name)) = (split(path), split(&self.path));
        let is_own = |name: &str| name == own_name || name == self.field;
        if let Some(stem) = without_unit(&name) {
            let is_of_speed = self.quantity == Quantity::Speed && !text.eq_ignore_ascii_case("ms");
            let may_be_bare = is_of_speed || own_name.starts_with("val");
            return parent == own_parent && (is_own(stem) || stem.is_empty() && may_be_bare);
        }
        let (grandparent, units) = split(&parent);
        without_unit(&units) == Some("") && grandparent == own_parent && is_own(&name)
    }

    /// Checks the unit that a payload states for this field.
    ///
    /// # Errors
    /// It is another than the one in which the format reads the field.
    fn check(&self, path: &str, text: &str) -> Result<(), Refusal> {
        let Some(stated) = self.quantity.unit_named(text) else { return Ok(()) };
        let ratio = self.quantity.factor(stated).map(|factor| factor / self.factor.abs());
        if ratio.is_ok_and(|ratio| (ratio - 1.0).abs() > 1e-6) {
            let (field, unit, remedy) = (self.field, self.unit(), self.remedy());
            return refuse(
                Reason::WrongType,
                format!(
                    "{path:.40} says {stated}, but {field} is read in {unit}: convert it, or {remedy}"
                ),
            );
        }
        Ok(())
    }

    /// Returns the name of the unit in which the format reads the field.
    fn unit(&self) -> String {
        let own = self.quantity.own_unit();
        let known = self.quantity.unit_of(self.factor);
        known.map_or_else(|| format!("units of {} {own}", self.factor), str::to_owned)
    }

    /// Returns how to state the unit.
    fn remedy(&self) -> String {
        let field = self.field;
        let option = match field {
            "speed" | "alt" => format!("--{field}-unit"),
            _ => format!("--unit {field}="),
        };
        format!("map it with {field}_unit in [formats.NAME], or give {option} to import")
    }
}

/// Returns the fields of milepost's own format that have a unit.
pub(super) fn own_fields() -> Vec<Measured> {
    let quantities = [
        ("lat", Quantity::Angle),
        ("lng", Quantity::Angle),
        ("speed", Quantity::Speed),
        ("heading", Quantity::Angle),
        ("alt", Quantity::Length),
        ("acc", Quantity::Length),
    ];
    let all = quantities.map(|(field, quantity)| Measured {
        field,
        path: field.to_owned(),
        quantity,
        factor: 1.0,
    });
    all.into()
}

/// Returns a normalised name without `unit` or `units` at its end; `None` if it has neither.
fn without_unit(name: &str) -> Option<&str> {
    name.strip_suffix("units").or_else(|| name.strip_suffix("unit"))
}

/// Returns the path and the value of each member that may state a unit. Calls `number_at` with the
/// path of each number.
fn units_in(json: &[u8], mut number_at: impl FnMut(&str)) -> Vec<(String, String)> {
    let mut units = Vec::new();
    visit_values(json, &[], &mut |path, value| {
        let Value::Scalar(text) = value else { return };
        // The unit in a string such as `43 mph` overrides all others.
        if number(text).is_some() {
            number_at(path);
        } else if units.len() < UNITS_MAX
            && path.rsplit('/').take(2).any(|name| is_unit(name.as_bytes()))
        {
            units.push((path.to_owned(), text.to_owned()));
        }
    });
    units
}

/// Checks a point for units beside its numbers.
///
/// # Errors
/// A unit is another than the one in which the format reads the number.
#[cold]
pub(super) fn check_units(json: &[u8], fields: &[Measured]) -> Result<(), Refusal> {
    let mut are_sent = vec![false; fields.len()];
    let units = units_in(json, |path| {
        are_sent.iter_mut().zip(fields).for_each(|(is_sent, field)| *is_sent |= field.path == path);
    });
    let sent = fields.iter().zip(are_sent).filter_map(|(field, is_sent)| is_sent.then_some(field));
    check_each(&units, sent)
}

/// Checks the object around an array of points for units of the numbers in the points.
///
/// # Errors
/// A unit is another than the one in which the format reads the numbers.
#[cold]
pub(super) fn check_units_around(json: &str, mut fields: Vec<Measured>) -> Result<(), Refusal> {
    fields.retain_mut(|field| {
        field.path = field.path.rsplit('/').next().unwrap_or_default().to_owned();
        has_number(json, &field.path)
    });
    check_each(&units_in(json.as_bytes(), |_| ()), fields.iter())
}

/// Returns whether a member of this name is a number, or a string without a unit after its number.
fn has_number(json: &str, name: &str) -> bool {
    let key = format!("\"{name}\"");
    let mut places = memmem::find_iter(json.as_bytes(), key.as_bytes());
    places.any(|at| {
        let rest = json[at + key.len()..].trim_start().strip_prefix(':').unwrap_or_default();
        let may_be =
            rest.trim_start().starts_with(|c: char| "-\"".contains(c) || c.is_ascii_digit());
        let value = may_be.then(|| Reader::new(rest.as_bytes()).value()).flatten();
        value.is_some_and(|value| value.or_number_in_text().as_number().is_some())
    })
}

fn check_each<'f>(
    units: &[(String, String)],
    mut fields: impl Iterator<Item = &'f Measured>,
) -> Result<(), Refusal> {
    fields.try_for_each(|field| {
        let mut own = units.iter().filter(|(path, text)| field.has_unit_at(path, text));
        own.try_for_each(|(path, text)| field.check(path, text))
    })
}
