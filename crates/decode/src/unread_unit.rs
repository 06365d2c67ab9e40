//! Checks the units that a payload states beside its numbers, such as
//! `"speed":43,"speed_unit":"mph"`. The format does not read these members, so a unit other than
//! the format's is an error.

use std::f64::consts::{FRAC_PI_2, PI};

use memchr::memmem;

use super::announced::speed_of_type;
use super::field_names::{is_name_of, normalised};
use super::hemisphere::is_parent;
use super::json::number;
use super::keep::{Keep, Kept, Value, visit_values};
use super::measured::{Measured, refuse_magnetic};
use super::reader::{Reader, as_text, elements};
use super::refusal::{Refusal, refuse};
use super::spelled_unit::is_magnetic;
use super::translations::field_in_other_language;
use super::unit::Quantity;
use super::unit_words::{is_unit, is_unread_unit, says_imperial, without_unit};
use super::unread_announced::{Object, check_announced};
use crate::reject::Reason;

/// Maximum number of units, and of numbers, that are collected from a payload.
const UNITS_MAX: usize = 256;

/// Names of systems of units: first those with miles and feet, then those with knots.
const SYSTEMS: [&[&str]; 2] = [
    &["imperial", "us", "usa", "english", "uscustomary", "statute", "british"],
    &["nautical", "marine", "aviation"],
];
/// Names of the coordinates together, as in `coord_unit`.
const NAMES_OF_PLACE: [&str; 7] =
    ["coord", "coords", "coordinate", "coordinates", "position", "latlng", "latlon"];
/// Names of objects that may describe the points of an array beside them.
const DESCRIPTIONS: [&str; 5] = ["metadata", "meta", "header", "info", "attributes"];

impl Measured {
    /// Returns whether the member at `path` with the value `text` states the unit of this field.
    /// For example, these members state the unit of a speed: `speed_unit` beside `speed` or around
    /// the object of `speed`, `unit` beside `value`, and `units/speed`.
    ///
    /// A member that is only called `unit` states the unit of
    ///
    /// - a speed, unless the value may mean something else: `ms` may be milliseconds, and `US` a
    ///   department of the fleet;
    /// - an altitude, if the value is feet, or a system of units with feet, such as `imperial`;
    /// - an angle, if the value is a unit of angles, such as `rad`. For a coordinate, `rad` counts
    ///   only if both coordinates may be in radians.
    fn has_unit_at(&self, path: &str, text: &str, members: &Units) -> bool {
        let split = |path: &'_ str| {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            (parent.to_owned(), normalised(name))
        };
        let ((parent, name), (own_parent, own_name)) = (split(path), split(&self.path));
        // Returns whether the field is in the object at this path, or in an object within it.
        let holds_field = |parent: &str| {
            let rest = own_parent.strip_prefix(parent);
            rest.is_some_and(|rest| rest.is_empty() || parent.is_empty() || rest.starts_with('/'))
        };
        // If the payload has a number `velocity`, `velocity_unit` is the unit of this number, and
        // not of `speed`.
        let names_field = |name: &str| {
            let is_other_number = || members.numbers.iter().any(|number| number == name);
            // German joins words with an `s` or `n`: `Geschwindigkeitseinheit`.
            let joined = || name.strip_suffix(['s', 'n']).unwrap_or(name);
            let is_alias = || {
                is_name_of(self.field, name)
                    || [name, joined()].map(field_in_other_language).contains(&Some(self.field))
            };
            let is_place = self.is_place() && NAMES_OF_PLACE.contains(&name);
            name == own_name || name == self.field || is_place || is_alias() && !is_other_number()
        };
        let (grandparent, units) = split(&parent);
        let is_in_units = without_unit(&units) == Some("");
        let of_type = || speed_of_type(&name).filter(|_| self.can_only_be_unit(text));
        // The stem of `speed_unit` is `speed`; that of `unit` is empty.
        if let Some(stem) = without_unit(&name).or_else(of_type) {
            // `"unit":"US"` and `"Einheit":"Marine"` may also state a department of the fleet.
            let may_be_department = stem.is_empty()
                && !["units", "uom", "uoms"].contains(&&*name)
                && self.quantity.unit_named(text).is_none()
                && !(["/", " per "].iter().any(|per| text.contains(per))
                    && is_unread_unit(self.quantity, text))
                && !["imperial", "nautical"].contains(&&*normalised(text));
            let is_system = stem == "system" || stem == "systemof";
            let is_bare = !may_be_department && (stem.is_empty() || is_system);
            let states_speed = self.quantity == Quantity::Speed && !text.eq_ignore_ascii_case("ms");
            let is_beside_value = own_name.starts_with("val") && parent == own_parent;
            // Only an angle has these units.
            let states_angle = || match self.stated(text) {
                Some("rad") if self.is_place() => members.may_be_radians && !self.has_unit,
                stated => matches!(stated, Some("rad" | "semicircles")),
            };
            let states_alt = || self.field == "alt" && self.stated(text) == Some("ft");
            let is_angle = self.quantity == Quantity::Angle && ["angle", "angles"].contains(&stem);
            let is_unread =
                || is_angle && !self.is_place() && is_unread_unit(Quantity::Angle, text);
            let takes_bare_unit =
                states_speed || is_beside_value || states_alt() || states_angle() || is_unread();
            let is_bare = is_bare || is_angle;
            // In `"units":{"isMetric":false}`, the member describes the object around `units`.
            let described = if is_in_units && is_system { &grandparent } else { &parent };
            return holds_field(described) && (names_field(stem) || is_bare && takes_bare_unit);
        }
        is_in_units && holds_field(&grandparent) && names_field(&name)
    }

    /// Returns whether `text` can only be a unit of this quantity. `ms` is excluded, because it may
    /// also be a word, or milliseconds.
    fn can_only_be_unit(&self, text: &str) -> bool {
        let is_named = || self.quantity.unit_named(text).is_some();
        !text.eq_ignore_ascii_case("ms") && (is_named() || is_unread_unit(self.quantity, text))
    }

    /// Returns whether `number` may be in radians. Returns `false` if, in radians, it would be a
    /// latitude beyond a pole, or a longitude beyond 180 degrees.
    fn may_be_radians(&self, number: f64) -> bool {
        let max = if self.field == "lat" { FRAC_PI_2 } else { PI };
        !self.is_place() || number.abs() <= max
    }

    /// Returns the unit of this quantity that `text` names. For a system of units such as
    /// `imperial`, returns the system's unit of this quantity. `None` if `text` names neither.
    fn stated(&self, text: &str) -> Option<&'static str> {
        let of_system = || {
            let system = normalised(text);
            let system = system.strip_suffix("units").unwrap_or(&system);
            let at = SYSTEMS.iter().position(|names| names.contains(&system));
            match (at?, self.quantity) {
                (0, Quantity::Speed) => Some("mph"),
                (0, Quantity::Length) => Some("ft"),
                (_, Quantity::Speed) => Some("knots"),
                (_, Quantity::Length | Quantity::Angle) => None,
            }
        };
        self.quantity.unit_named(text).or_else(of_system)
    }

    /// Checks the unit that a payload states for this field.
    ///
    /// # Errors
    /// The stated unit differs from the unit in which the format reads the field.
    fn check(&self, path: &str, text: &str) -> Result<(), Refusal> {
        let Some(stated) = self.stated(text) else { return self.check_unread(path, text) };
        let ratio = self.quantity.factor(stated).map(|factor| factor / self.factor.abs());
        if ratio.is_ok_and(|ratio| (ratio - 1.0).abs() > 1e-6) {
            let (field, unit, remedy) = (self.field, self.unit(), self.remedy());
            let is_system = self.quantity.unit_named(text).is_none();
            let stated =
                if is_system { format!("{text:.20} ({stated})") } else { stated.to_owned() };
            return refuse(
                Reason::WrongType,
                format!(
                    "{path:.40} says {stated}, but {field} is read in {unit}: convert it, or \
                     {remedy}"
                ),
            );
        }
        Ok(())
    }

    /// Checks a `text` that is none of the units that milepost converts. If the configuration
    /// states a custom unit such as `0.37 m/s`, `text` may be the name of that unit, and is
    /// accepted.
    ///
    /// # Errors
    /// The text names a unit other than the unit in which the format reads the field.
    fn check_unread(&self, path: &str, text: &str) -> Result<(), Refusal> {
        let is_custom = self.quantity.unit_of(self.factor.abs()).is_none();
        if is_custom || !is_unread_unit(self.quantity, text) {
            return Ok(());
        }
        let (field, unit, own) = (self.field, self.unit(), self.quantity.own_unit());
        if self.quantity == Quantity::Angle && is_magnetic(text) {
            return refuse_magnetic(path, text, self);
        }
        refuse(
            Reason::WrongType,
            format!(
                "{path:.40} says {text:.20}, which is not read, but {field} is read in {unit}: \
                 convert it, or state the size of its unit, such as \"0.1 {own}\", with \
                 {field}_unit in [formats.NAME]"
            ),
        )
    }

    /// Returns whether the value is an element of a GeoJSON point's coordinates. The units of these
    /// are fixed, except that of the height, which [`check_unit_of_element`] checks.
    fn is_in_feature(&self) -> bool {
        self.path.starts_with("geometry/coordinates/")
    }

    /// Reduces the path to its last name, as seen from the object around the points.
    fn reduce_path_to_name(&mut self) {
        self.path = self.path.rsplit('/').next().unwrap_or_default().to_owned();
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
        has_unit: false,
    });
    all.into()
}

/// Returns whether an object of this name, beside an array of points, may describe the points.
pub(super) fn may_describe_points(name: &str) -> bool {
    is_parent(name) || DESCRIPTIONS.contains(&&*normalised(name))
}

/// The units that a payload may state.
struct Units {
    /// Path and value of each member that may state a unit.
    stated: Vec<(String, String)>,
    /// Normalised names of the members that are numbers.
    numbers: Vec<String>,
    /// The coordinates may be in radians.
    may_be_radians: bool,
}

impl Units {
    /// Collects the units in an object. Calls `number_at` with the path and value of each number.
    fn collect(json: &[u8], mut number_at: impl FnMut(&str, f64)) -> Self {
        let mut units = Self { stated: Vec::new(), numbers: Vec::new(), may_be_radians: true };
        visit_values(json, &[], &mut |path, value| {
            let Value::Scalar(text) = value else { return };
            let name = path.rsplit('/').next().unwrap_or(path);
            if says_imperial(name, text) && units.stated.len() < UNITS_MAX {
                units.stated.push((path.to_owned(), "imperial".to_owned()));
                return;
            }
            // `43 mph` does not count as a number: its own unit overrides all other units.
            if let Some(number) = number(text) {
                number_at(path, number.as_f64().unwrap_or(f64::INFINITY));
                if units.numbers.len() < UNITS_MAX {
                    units.numbers.push(normalised(name));
                }
            } else if units.stated.len() < UNITS_MAX
                && path.rsplit('/').take(2).any(|name| is_unit(name.as_bytes()))
            {
                units.stated.push((path.to_owned(), text.to_owned()));
            }
        });
        units
    }

    /// Removes the leading names of objects such as `properties` and `metadata` from the paths of
    /// the units.
    fn without_parents(mut self) -> Self {
        for (path, _) in &mut self.stated {
            while let Some((parent, rest)) = path.split_once('/')
                && may_describe_points(parent)
            {
                *path = rest.to_owned();
            }
        }
        self
    }

    fn check<'f>(&self, mut fields: impl Iterator<Item = &'f Measured>) -> Result<(), Refusal> {
        fields.try_for_each(|field| {
            let all = self.stated.iter();
            let stated: Vec<_> =
                all.filter(|(path, text)| field.has_unit_at(path, text, self)).collect();
            let is_unit = |text: &str| field.quantity.unit_named(text).is_some();
            // If a member states the unit of this field, ignore the system of units.
            let has_own_unit =
                stated.iter().any(|(path, text)| is_unit(text) && field.check(path, text).is_ok());
            let mut checked = stated.iter().filter(|(_, text)| is_unit(text) || !has_own_unit);
            checked.try_for_each(|(path, text)| field.check(path, text))
        })
    }
}

/// Checks the units that a point states beside its numbers.
///
/// # Errors
/// A stated unit differs from the unit in which the format reads the number.
#[cold]
pub(super) fn check_units(json: &[u8], fields: &[Measured], kept: Kept<'_>) -> Result<(), Refusal> {
    let mut are_sent = vec![false; fields.len()];
    let mut may_be_radians = true;
    let mut set_sent = |at: usize, number: f64| {
        are_sent[at] = true;
        may_be_radians &= fields[at].may_be_radians(number);
    };
    let mut units = Units::collect(json, |path, number| {
        let at_path = fields.iter().enumerate().filter(|(_, field)| field.path == path);
        at_path.for_each(|(at, _)| set_sent(at, number));
    });
    // A format may read elements of an array, such as `pos/2`.
    visit_values(json, &[], &mut |path, value| {
        let Value::Array(array) = value else { return };
        for (at, field) in fields.iter().enumerate() {
            let inside = field.path.strip_prefix(path).filter(|_| !field.is_in_feature());
            if let Some(number) = inside.and_then(|inside| number_in(array, inside)) {
                set_sent(at, number);
            }
        }
    });
    units.may_be_radians = may_be_radians;
    let sent = fields.iter().zip(are_sent).filter_map(|(field, is_sent)| is_sent.then_some(field));
    let sent: Vec<&Measured> = sent.collect();
    check_announced(json, sent.iter().copied(), Object::Point, is_parent, Some(kept))?;
    units.check(sent.into_iter())
}

/// Like [`check_units`], for an element of an array, such as the height of a GeoJSON point. The
/// element has no name, so `field` has the path of a member with the same unit. A member that is
/// only called `unit` or `unit_system` is ignored.
///
/// # Errors
/// The stated unit differs from the unit in which the format reads the number.
#[cold]
pub(super) fn check_unit_of_element(
    json: &[u8],
    field: &Measured,
    kept: Kept<'_>,
) -> Result<(), Refusal> {
    check_announced(json, std::iter::once(field), Object::Point, is_parent, Some(kept))?;
    let mut units = Units::collect(json, |_, _| ());
    let is_bare = |path: &str| {
        let name = normalised(path.rsplit('/').next().unwrap_or(path));
        matches!(without_unit(&name), Some("" | "system" | "systemof"))
    };
    units.stated.retain(|(path, _)| !is_bare(path));
    units.check(std::iter::once(field))
}

/// Checks the units that the object around an array of points states for the points' numbers.
///
/// # Errors
/// A stated unit differs from the unit in which the format reads the numbers.
#[cold]
pub(super) fn check_units_around(
    json: &[u8],
    mut fields: Vec<Measured>,
    keep: &Keep,
) -> Result<(), Refusal> {
    let mut may_be_radians = true;
    fields.retain_mut(|field| {
        let (parent, name) = field.path.rsplit_once('/').unwrap_or(("", &field.path));
        let array = parent.rsplit('/').next().unwrap_or_default().to_owned();
        let is_index = name.bytes().all(|byte| byte.is_ascii_digit()) && !field.is_in_feature();
        field.reduce_path_to_name();
        let elements = is_index.then(|| numbers_in_arrays(as_text(json), &array, &field.path));
        let elements = elements.into_iter().flatten();
        let mut numbers = numbers_called(as_text(json), &field.path).chain(elements).peekable();
        let is_sent = numbers.peek().is_some();
        may_be_radians &= !field.is_place() || numbers.all(|number| field.may_be_radians(number));
        is_sent
    });
    let kept = Some(Kept { keep, root: &[] });
    check_announced(json, fields.iter(), Object::AroundPoints, may_describe_points, kept)?;
    let mut units = Units::collect(json, |_, _| ()).without_parents();
    units.may_be_radians = may_be_radians;
    units.check(fields.iter())
}

/// Like [`check_units_around`], for a file. `frame`: the JSON of the object without the array;
/// `settled`: the fields whose unit is already known.
///
/// # Errors
/// A stated unit differs from the unit in which the format reads the numbers.
#[cold]
pub(super) fn check_units_of_frame(
    frame: &[u8],
    mut fields: Vec<Measured>,
    settled: &[&str],
) -> Result<(), Refusal> {
    let has_fixed_unit = |field: &Measured| field.is_place() && field.is_in_feature();
    fields.retain(|field| !settled.contains(&field.field) && !has_fixed_unit(field));
    fields.iter_mut().for_each(Measured::reduce_path_to_name);
    // The names in a file may contain bytes that are not UTF-8.
    let frame = String::from_utf8_lossy(frame);
    let object = Object::AroundPoints;
    check_announced(frame.as_bytes(), fields.iter(), object, may_describe_points, None)?;
    Units::collect(frame.as_bytes(), |_, _| ()).without_parents().check(fields.iter())
}

/// Returns the values of the members of this name that are numbers, or strings without a unit after
/// their number.
fn numbers_called(json: &str, name: &str) -> impl Iterator<Item = f64> {
    let key = format!("\"{name}\"");
    let mut rest = json;
    std::iter::from_fn(move || {
        loop {
            let at = memmem::find(rest.as_bytes(), key.as_bytes())?;
            rest = &rest[at + key.len()..];
            let value = rest.trim_start().strip_prefix(':').unwrap_or_default();
            let may_be =
                value.trim_start().starts_with(|c: char| "-\"".contains(c) || c.is_ascii_digit());
            let value = may_be.then(|| Reader::new(value.as_bytes()).value()).flatten();
            if let Some(number) = value.and_then(|value| value.or_number_in_text().as_f64()) {
                return Some(number);
            }
        }
    })
}

/// Returns the numbers at this index of each array of this name. If the name is empty, returns
/// those of each array that is an element of an array. Does not search such an array for others, so
/// that each byte is read at most twice.
fn numbers_in_arrays(json: &str, name: &str, index: &str) -> impl Iterator<Item = f64> {
    let (key, inside) = (format!("\"{name}\""), format!("/{index}"));
    let mut searched = 0;
    json.match_indices('[').filter_map(move |(at, _)| {
        let before = json[..at].trim_end();
        let is_found = if key == "\"\"" {
            before.ends_with(['[', ','])
        } else {
            before.strip_suffix(':').is_some_and(|before| before.trim_end().ends_with(&key))
        };
        if !is_found || at < searched {
            return None;
        }
        let array = Reader::new(&json.as_bytes()[at..]).raw();
        // A bracket in a string begins no array. Such a string ends the search.
        searched = array.map_or(json.len(), |array| at + array.len());
        number_in(as_text(array?), &inside)
    })
}

/// Returns the number at a path in an array, such as `/2`; `None` if there is none.
fn number_in(array: &str, path: &str) -> Option<f64> {
    let mut json = array.as_bytes();
    for step in path.strip_prefix('/')?.split('/') {
        let mut found = None;
        if json.starts_with(b"[") {
            let index: usize = step.parse().ok()?;
            let (elements, _) = elements(json, index.checked_add(1)?)?;
            found = elements.get(index).copied();
        } else {
            Reader::new(json).object(|reader, key| {
                let value = reader.raw()?;
                if key == step.as_bytes() {
                    found = Some(value);
                }
                Some(())
            })?;
        }
        json = found?;
    }
    Reader::new(json).value()?.or_number_in_text().as_f64()
}
