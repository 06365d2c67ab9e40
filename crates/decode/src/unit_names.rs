//! Parses the names of units in their usual spellings, such as `kmh`, after a number or in the name
//! of a column.

use super::spelled_unit::{Spelled, spelled, split_spelled, without_preposition};
use super::unit::{Quantity, number_and_unit};
use super::unit_words::is_unread_unit;

impl Quantity {
    /// Parses a number that is followed by its unit, such as `36 km/h`, `1000ft` or `36,5 kmh`, and
    /// converts it to milepost's own unit. `None`: there is no number, or no unit of this quantity.
    ///
    /// A comma counts as a decimal comma, unless three digits follow it: then it may separate
    /// thousands.
    pub fn parse(self, text: &str) -> Option<f64> {
        let (number, _) = number_and_unit(text)?;
        Some(number * self.factor(self.unit_after_number(text)?).ok()?)
    }

    /// Returns the unit after a number, such as `km/h` in `36 km/h`.
    pub fn unit_after_number(self, text: &str) -> Option<&'static str> {
        self.unit_named(number_and_unit(text)?.1)
    }

    /// Returns the unit of this name, in any usual spelling, such as `km/h` for `kmh`.
    pub fn unit_named(self, name: &str) -> Option<&'static str> {
        // Reuse the parser for names of columns: `x` stands for the column.
        let column = format!("x {name}");
        let known = self.split_known(&column).filter(|(rest, _)| *rest == "x");
        known.map(|(_, unit)| unit).or_else(|| match spelled(self, name)? {
            Spelled::Unit(unit) => Some(unit),
            Spelled::Unread => None,
        })
    }

    /// Splits the unit off a column's name such as `Speed (km/h)`, `alt_ft` or `heading_deg`.
    /// Returns the name without its unit, and the unit.
    pub fn split_unit(self, name: &str) -> Option<(&str, &'static str)> {
        let known = self.split_known(name).map(|(rest, unit)| (without_preposition(rest), unit));
        match split_spelled(self, name) {
            // The longer unit counts: `nautical miles per hour` ends in `miles per hour`.
            Some((rest, spelled))
                if known.is_none_or(|(known_rest, _)| rest.len() < known_rest.len()) =>
            {
                match spelled {
                    Spelled::Unit(unit) => Some((rest, unit)),
                    Spelled::Unread => None,
                }
            }
            Some(_) | None => known,
        }
    }

    /// Returns the unit that a column's name states, at its end or as the whole name, such as
    /// `feet`. Returns `None` for a column `ms`, which may hold milliseconds.
    pub fn unit_in_name(self, name: &str) -> Option<&'static str> {
        let whole = || self.unit_named(name).filter(|_| !name.eq_ignore_ascii_case("ms"));
        self.split_unit(name).map(|(_, unit)| unit).or_else(whole)
    }

    /// Returns whether a column's name ends in words for a unit that milepost does not read, such
    /// as `Speed (feet per second)` or `heading (deg magnetic)`.
    pub fn ends_in_unread_unit(self, name: &str) -> bool {
        self.split_unit(name).is_none()
            && matches!(split_spelled(self, name), Some((_, Spelled::Unread)))
    }

    /// Returns whether a text is a unit of this quantity that milepost does not read, such as
    /// `m/min` or `degrees magnetic`.
    pub fn is_unread_unit(self, text: &str) -> bool {
        is_unread_unit(self, text)
    }

    /// Like [`split_unit`](Self::split_unit), but only for symbols and the spellings in its list.
    /// The preposition of `Speed in km/h` stays in the name.
    pub fn split_known(self, name: &str) -> Option<(&str, &'static str)> {
        let spellings: &[(&str, &'static str)] = match self {
            Self::Speed => &[
                ("kmh", "km/h"),
                ("kph", "km/h"),
                ("kmph", "km/h"),
                ("km_h", "km/h"),
                ("km per hour", "km/h"),
                ("km/hr", "km/h"),
                // An hour in Danish, Norwegian, Dutch, Turkish, Polish, Czech and Slovak.
                ("km/t", "km/h"),
                ("km/u", "km/h"),
                ("km/sa", "km/h"),
                ("km/godz", "km/h"),
                ("km/hod", "km/h"),
                ("mps", "m/s"),
                ("ms", "m/s"),
                ("m_s", "m/s"),
                ("m/sec", "m/s"),
                ("m s-1", "m/s"),
                ("m.s-1", "m/s"),
                ("m·s-1", "m/s"),
                ("km h-1", "km/h"),
                ("km.h-1", "km/h"),
                ("km·h-1", "km/h"),
                ("nm/h", "knots"),
                ("nmi/h", "knots"),
                ("meters/second", "m/s"),
                ("metres/second", "m/s"),
                ("meters per second", "m/s"),
                ("metres per second", "m/s"),
                ("kn", "knots"),
                ("kt", "knots"),
                ("kts", "knots"),
                ("knot", "knots"),
                ("mi/h", "mph"),
                ("mi/hr", "mph"),
                ("miles per hour", "mph"),
                ("nudos", "knots"),
                ("nœuds", "knots"),
                ("noeuds", "knots"),
                ("knoten", "knots"),
                ("nodi", "knots"),
                ("nós", "knots"),
                ("узлы", "knots"),
                ("км/ч", "km/h"),
                ("км/час", "km/h"),
                ("м/с", "m/s"),
                ("миль/ч", "mph"),
                ("公里/小时", "km/h"),
                ("千米/小时", "km/h"),
                ("米/秒", "m/s"),
                ("英里/小时", "mph"),
                ("节", "knots"),
                ("millas/h", "mph"),
                ("millas por hora", "mph"),
                ("milhas/h", "mph"),
                ("miglia/h", "mph"),
                ("meilen/h", "mph"),
            ],
            Self::Length => &[
                ("feet", "ft"),
                ("foot", "ft"),
                ("meters", "m"),
                ("metres", "m"),
                ("meter", "m"),
                ("metre", "m"),
                ("ft msl", "ft"),
                ("m msl", "m"),
                ("pies", "ft"),
                ("pieds", "ft"),
                ("fuß", "ft"),
                ("fuss", "ft"),
                ("piedi", "ft"),
                ("pés", "ft"),
                ("voet", "ft"),
                ("fot", "ft"),
                ("фут", "ft"),
                ("футы", "ft"),
                ("英尺", "ft"),
                ("metros", "m"),
                ("mètres", "m"),
                ("metri", "m"),
            ],
            Self::Angle => &[
                ("degrees", "deg"),
                ("°", "deg"),
                ("degree", "deg"),
                ("radians", "rad"),
                ("radian", "rad"),
            ],
        };
        let own = self.names().iter().map(|(name, _)| (*name, *name));
        let lower = name.trim_end().to_lowercase();
        let inner = lower.trim_end_matches([')', ']', '}', '.']);
        own.chain(spellings.iter().copied()).find_map(|(word, unit)| {
            let before = inner.strip_suffix(word)?;
            let rest = before.trim_end_matches(['(', '[', '{', ' ', '_', '.', '/', '-', ',', ':']);
            // A unit may be joined in camel case: `altFt`, `speedKmh`.
            let is_camel = |at: usize| {
                let begins =
                    name.get(at..).is_some_and(|word| word.starts_with(char::is_uppercase));
                begins && name[..at].ends_with(char::is_lowercase)
            };
            let is_apart = rest.len() < before.len() || is_camel(before.len());
            let rest = name.get(..rest.len()).filter(|rest| is_apart && !rest.is_empty())?;
            Some((rest, unit))
        })
    }
}
