//! Units. A unit comes from the format or the configuration, never from the value.

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

    /// Returns the factor to m/s. The international mile has 1,609.344 m, the nautical mile 1,852
    /// m.
    pub const fn metres_per_second(self) -> f64 {
        match self {
            Self::MetresPerSecond => 1.0,
            Self::KilometresPerHour => 1.0 / 3.6,
            Self::MilesPerHour => 0.447_04,
            Self::Knots => 1_852.0 / 3_600.0,
        }
    }
}

/// A physical quantity. Its values become m/s, metres or degrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    Speed,
    Length,
    Angle,
}

impl Quantity {
    /// Returns the names of the units with their factors; the first is milepost's own unit.
    const fn names(self) -> &'static [(&'static str, f64)] {
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
            Self::Angle => &[("deg", 1.0), ("rad", 180.0 / std::f64::consts::PI)],
        }
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
            let names: Vec<String> = self.names().iter().map(|(name, _)| format!("\"{name}\"")).collect();
            let own = self.names()[0].0;
            format!(
                "\"{unit}\": must be one of {}, or a number and one of them, such as \"1e-3 {own}\"",
                names.join(", ")
            )
        })
    }

    /// Returns the unit that a column's name states, such as `Speed (km/h)`, `alt_ft`,
    /// `heading_deg`: the rest of the name, and the unit.
    pub fn stated_in(self, name: &str) -> Option<(&str, &'static str)> {
        let others: &[(&str, &'static str)] = match self {
            Self::Speed => &[
                ("kmh", "km/h"),
                ("kph", "km/h"),
                ("km/hr", "km/h"),
                ("mps", "m/s"),
                ("ms", "m/s"),
                ("kn", "knots"),
                ("kt", "knots"),
                ("kts", "knots"),
                ("knot", "knots"),
                ("mi/h", "mph"),
                ("mi/hr", "mph"),
            ],
            Self::Length => &[
                ("feet", "ft"),
                ("foot", "ft"),
                ("meters", "m"),
                ("metres", "m"),
                ("meter", "m"),
                ("metre", "m"),
            ],
            Self::Angle => &[("degrees", "deg"), ("°", "deg"), ("degree", "deg")],
        };
        let own = self.names().iter().map(|(name, _)| (*name, *name));
        let lower = name.trim_end().to_lowercase();
        let inner = lower.trim_end_matches([')', ']']);
        own.chain(others.iter().copied()).find_map(|(word, unit)| {
            let before = inner.strip_suffix(word)?;
            let rest = before.trim_end_matches(['(', '[', ' ', '_', '.', '/', '-']);
            // A unit may follow in camel case: `altFt`, `speedKmh`.
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
    /// A string in the pattern of the reading's [`Local`](super::time::Local).
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
    fn column_name_may_state_its_unit() {
        for (quantity, name, expected) in [
            (Quantity::Speed, "Speed (km/h)", Some(("Speed", "km/h"))),
            (Quantity::Speed, "speed_kmh", Some(("speed", "km/h"))),
            (Quantity::Speed, "speed [kn]", Some(("speed", "knots"))),
            (Quantity::Speed, "speed", None),
            (Quantity::Speed, "km/h", None),
            (Quantity::Length, "Altitude (ft)", Some(("Altitude", "ft"))),
            (Quantity::Length, "alt ft", Some(("alt", "ft"))),
            (Quantity::Length, "alt_m", Some(("alt", "m"))),
            (Quantity::Length, "item", None),
            (Quantity::Length, "altFt", Some(("alt", "ft"))),
            (Quantity::Speed, "speedKmh", Some(("speed", "km/h"))),
            (Quantity::Length, "altM", Some(("alt", "m"))),
            (Quantity::Length, "HDOPm", None),
            (Quantity::Angle, "Latitude (deg)", Some(("Latitude", "deg"))),
            (Quantity::Angle, "Heading (°)", Some(("Heading", "deg"))),
        ] {
            assert_eq!(quantity.stated_in(name), expected, "{name}");
        }
    }
}
