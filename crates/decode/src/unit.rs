//! Defines units, and converts numbers to milepost's own units. The format, the configuration or
//! the text after a number states the unit. Only an epoch number may state its unit by its size.
//! `unit_names.rs` has the spellings of units.

/// A unit of speed that a source can state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeedUnit {
    MetresPerSecond,
    KilometresPerHour,
    MilesPerHour,
    Knots,
}

impl SpeedUnit {
    pub const NAMES: [(&'static str, Self); 4] = [
        ("m/s", Self::MetresPerSecond),
        ("km/h", Self::KilometresPerHour),
        ("mph", Self::MilesPerHour),
        ("knots", Self::Knots),
    ];

    /// Returns the factor to m/s. A mile is 1,609.344 m, a nautical mile 1,852 m.
    pub const fn metres_per_second(self) -> f64 {
        match self {
            Self::MetresPerSecond => 1.0,
            Self::KilometresPerHour => 1.0 / 3.6,
            Self::MilesPerHour => 0.447_04,
            Self::Knots => 1_852.0 / 3_600.0,
        }
    }
}

/// A physical quantity. Its values are converted to m/s, metres or degrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    Speed,
    Length,
    Angle,
}

impl Quantity {
    /// Returns the names of the units with their factors; the first is milepost's own unit.
    pub(super) const fn names(self) -> &'static [(&'static str, f64)] {
        const KMH: f64 = SpeedUnit::KilometresPerHour.metres_per_second();
        const MPH: f64 = SpeedUnit::MilesPerHour.metres_per_second();
        const KNOTS: f64 = SpeedUnit::Knots.metres_per_second();
        match self {
            Self::Speed => &[
                ("m/s", 1.0),
                ("km/h", KMH),
                ("mph", MPH),
                ("knots", KNOTS),
                ("cm/s", 0.01),
                ("mm/s", 0.001),
            ],
            Self::Length => &[
                ("m", 1.0),
                ("ft", 0.304_8),
                ("km", 1_000.0),
                ("dm", 0.1),
                ("cm", 0.01),
                ("mm", 0.001),
            ],
            // Garmin's devices divide half a circle into 2^31 semicircles.
            Self::Angle => &[
                ("deg", 1.0),
                ("rad", 180.0 / std::f64::consts::PI),
                ("semicircles", 180.0 / 2_147_483_648.0),
            ],
        }
    }

    /// Returns the name of milepost's own unit.
    pub(super) const fn own_unit(self) -> &'static str {
        self.names()[0].0
    }

    /// Returns the name of the unit with this factor; `None` if no unit with a name has it.
    pub(super) fn unit_of(self, factor: f64) -> Option<&'static str> {
        let is_same = |size: f64| (size / factor - 1.0).abs() < 1e-6;
        self.names().iter().find(|(_, size)| is_same(*size)).map(|(name, _)| *name)
    }

    /// Returns the factor for values of this unit. A unit is a name, or a number and a name:
    /// `km/h`, `1e-7 deg`, `0.1 knots`.
    ///
    /// # Errors
    /// The unit is unknown; the error lists the known ones.
    pub fn factor(self, unit: &str) -> Result<f64, String> {
        let (scale, name) = unit.split_once(' ').unwrap_or(("1", unit));
        let scale = scale.parse::<f64>().ok().filter(|scale| scale.is_finite() && *scale > 0.0);
        let known = self.names().iter().find(|(known, _)| *known == name);
        scale.zip(known).map(|(scale, (_, factor))| scale * factor).ok_or_else(|| {
            let names: Vec<String> =
                self.names().iter().map(|(name, _)| format!("\"{name}\"")).collect();
            let own = self.own_unit();
            format!(
                "\"{unit}\": must be one of {}, or a number and one of them, such as \
                 \"1e-3 {own}\"",
                names.join(", ")
            )
        })
    }
}

/// Splits a string into its number and the unit after it, without the spaces between. `None` if
/// there is no number, if nothing follows the number, or if its comma may separate thousands.
pub(super) fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let is_part = |c: char| c.is_ascii_digit() || "+-.,".contains(c);
    let (number, unit) = text.split_at(text.find(|c| !is_part(c))?);
    let number = match number.split_once(',') {
        None => number.parse().ok(),
        Some((whole, decimals)) if decimals.len() != 3 && !whole.contains('.') => {
            format!("{whole}.{decimals}").parse().ok()
        }
        Some(_) => None,
    };
    Some((number?, unit.trim()))
}

/// The unit or notation of a time. Renaming a variant changes
/// [`Source::stable_description`](crate::Source::stable_description), which prints its name.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// milepost's own rule: RFC 3339, or an epoch number whose size gives its unit.
    #[default]
    BySize,
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
    Rfc3339,
    /// A string in the pattern of the schema's [`Local`](super::time::Local).
    Pattern,
}

impl TimeUnit {
    /// The units of time of a mapping, with their names in the configuration.
    pub const NAMES: [(&'static str, Self); 6] = [
        ("s", Self::Seconds),
        ("ms", Self::Milliseconds),
        ("us", Self::Microseconds),
        ("ns", Self::Nanoseconds),
        ("rfc3339", Self::Rfc3339),
        ("auto", Self::BySize),
    ];

    pub(super) const fn is_text(self) -> bool {
        matches!(self, Self::Rfc3339 | Self::Pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_is_a_name_or_a_factor_and_a_name() {
        assert_eq!(Quantity::Angle.factor("1e-7 deg"), Ok(1e-7));
        assert_eq!(Quantity::Speed.factor("cm/s"), Ok(0.01));
        assert_eq!(Quantity::Length.factor("ft"), Ok(0.304_8));
        for unit in ["", "km", "-1 km/h", "0 km/h", "inf km/h", "x km/h", "km/h 2"] {
            assert!(Quantity::Speed.factor(unit).is_err(), "{unit}");
        }
    }

    #[test]
    fn value_may_be_followed_by_its_unit() {
        for (quantity, text, expected) in [
            (Quantity::Speed, "36 km/h", Some(10.0)),
            (Quantity::Speed, "36kmh", Some(10.0)),
            (Quantity::Speed, "36,0 KMH", Some(10.0)),
            (Quantity::Speed, " 10 m/s ", Some(10.0)),
            (Quantity::Speed, "10 knots", Some(10.0 * 1_852.0 / 3_600.0)),
            (Quantity::Speed, "10 kts", Some(10.0 * 1_852.0 / 3_600.0)),
            (Quantity::Speed, "-36 km/h", Some(-10.0)),
            (Quantity::Length, "1000ft", Some(304.8)),
            (Quantity::Length, "1000 feet", Some(304.8)),
            (Quantity::Length, "12.5 m", Some(12.5)),
            (Quantity::Length, "1.5 km", Some(1_500.0)),
            (Quantity::Angle, "270°", Some(270.0)),
            (Quantity::Angle, "270 deg", Some(270.0)),
            // Not parsed: thousands or decimals, another quantity, no number, no unit.
            (Quantity::Length, "1,000 ft", None),
            (Quantity::Length, "1.000,5 ft", None),
            (Quantity::Speed, "36 ft", None),
            (Quantity::Speed, "36 km/h per s", None),
            (Quantity::Speed, "fast", None),
            (Quantity::Speed, "36", None),
            (Quantity::Speed, "", None),
            (Quantity::Speed, "km/h", None),
            (Quantity::Length, "5-7 m", None),
            (Quantity::Length, "e5 m", None),
        ] {
            let parsed = quantity.parse(text);
            let is_equal = match (parsed, expected) {
                (Some(parsed), Some(expected)) => (parsed - expected).abs() < 1e-9,
                (parsed, expected) => parsed == expected,
            };
            assert!(is_equal, "{text}: {parsed:?}");
        }
    }

    #[test]
    fn column_name_may_state_its_unit() {
        for (quantity, name, expected) in [
            (Quantity::Speed, "Speed (km/h)", Some(("Speed", "km/h"))),
            (Quantity::Speed, "speed_kmh", Some(("speed", "km/h"))),
            (Quantity::Speed, "speed [kn]", Some(("speed", "knots"))),
            (Quantity::Speed, "speed", None),
            (Quantity::Speed, "Speed, km/h", Some(("Speed", "km/h"))),
            (Quantity::Speed, "Speed:km/h", Some(("Speed", "km/h"))),
            (Quantity::Speed, "Speed(Kmph)", Some(("Speed", "km/h"))),
            (Quantity::Speed, "speed_km_h", Some(("speed", "km/h"))),
            (Quantity::Speed, "GPS Speed (Meters/second)", Some(("GPS Speed", "m/s"))),
            (Quantity::Length, "Elevation (Ft.)", Some(("Elevation", "ft"))),
            (Quantity::Length, "Altitude (ft MSL)", Some(("Altitude", "ft"))),
            (Quantity::Speed, "km/h", None),
            (Quantity::Length, "Altitude (ft)", Some(("Altitude", "ft"))),
            (Quantity::Length, "alt ft", Some(("alt", "ft"))),
            (Quantity::Length, "alt_m", Some(("alt", "m"))),
            (Quantity::Length, "item", None),
            (Quantity::Length, "altFt", Some(("alt", "ft"))),
            (Quantity::Speed, "speedKmh", Some(("speed", "km/h"))),
            (Quantity::Length, "altM", Some(("alt", "m"))),
            (Quantity::Length, "HDOPm", None),
            (Quantity::Angle, "position_lat[semicircles]", Some(("position_lat", "semicircles"))),
            (Quantity::Angle, "Latitude (deg)", Some(("Latitude", "deg"))),
            (Quantity::Angle, "Heading (°)", Some(("Heading", "deg"))),
        ] {
            assert_eq!(quantity.split_unit(name), expected, "{name}");
        }
    }
}
