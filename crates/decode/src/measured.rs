//! Defines a field of a format together with the unit in which the format reads it.

use super::refusal::{Refusal, refuse};
use super::unit::Quantity;
use crate::reject::Reason;

/// A field of a format, and the unit in which the format reads it.
pub(super) struct Measured {
    pub(super) field: &'static str,
    /// Path of the field's value, with `/` between names.
    pub(super) path: String,
    pub(super) quantity: Quantity,
    /// Size of the unit in milepost's own unit.
    pub(super) factor: f64,
    /// The configuration states the unit. A member that is only called `unit` is then about another
    /// field.
    pub(super) has_unit: bool,
}

impl Measured {
    pub(super) fn is_place(&self) -> bool {
        ["lat", "lng"].contains(&self.field)
    }

    /// Returns the name of the unit in which the format reads the field.
    pub(super) fn unit(&self) -> String {
        let own = self.quantity.own_unit();
        let known = self.quantity.unit_of(self.factor);
        known.map_or_else(|| format!("units of {} {own}", self.factor), str::to_owned)
    }

    /// Returns the option of `milepost import` that states the unit.
    pub(super) fn option(&self) -> String {
        let field = self.field;
        match field {
            "speed" | "alt" => format!("--{field}-unit"),
            _ => format!("--unit {field}="),
        }
    }

    /// Returns the end of an error: the ways to state the unit.
    pub(super) fn remedy(&self) -> String {
        let (field, option) = (self.field, self.option());
        format!("map it with {field}_unit in [formats.NAME], or give {option} to import")
    }
}

/// Returns the error for a heading from magnetic north, unless the configuration states its unit.
pub(super) fn refuse_magnetic(path: &str, text: &str, field: &Measured) -> Result<(), Refusal> {
    if field.has_unit {
        return Ok(());
    }
    let field = field.field;
    refuse(
        Reason::WrongType,
        format!(
            "{path:.40} says {text:.20}, but {field} is read from true north: send the true one \
             (the magnetic one plus the declination), rename it, or set {field}_unit (import: \
             --unit {field}=deg) if it is true"
        ),
    )
}
