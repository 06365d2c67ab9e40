//! Units. A unit comes from the format or the configuration, never from the value.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeedUnit {
    MetresPerSecond,
    KilometresPerHour,
    MilesPerHour,
    Knots,
}

impl SpeedUnit {
    pub(crate) const NAMES: [(&'static str, Self); 4] = [
        ("m/s", Self::MetresPerSecond),
        ("km/h", Self::KilometresPerHour),
        ("mph", Self::MilesPerHour),
        ("knots", Self::Knots),
    ];

    /// The international mile has 1,609.344 m, the nautical mile 1,852 m.
    pub(super) const fn metres_per_second(self) -> f64 {
        match self {
            Self::MetresPerSecond => 1.0,
            Self::KilometresPerHour => 1.0 / 3.6,
            Self::MilesPerHour => 0.447_04,
            Self::Knots => 1_852.0 / 3_600.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LengthUnit {
    Metres,
    Feet,
}

impl LengthUnit {
    pub(crate) const NAMES: [(&'static str, Self); 2] = [("m", Self::Metres), ("ft", Self::Feet)];

    pub(super) const fn metres(self) -> f64 {
        match self {
            Self::Metres => 1.0,
            Self::Feet => 0.304_8,
        }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    /// milepost's own rule: RFC 3339, or an epoch number whose size gives its unit.
    #[default]
    BySize,
    Seconds,
    Milliseconds,
    Rfc3339,
}

impl TimeUnit {
    /// The units of a mapping, by their names in the configuration.
    pub(crate) const NAMES: [(&'static str, Self); 3] =
        [("s", Self::Seconds), ("ms", Self::Milliseconds), ("rfc3339", Self::Rfc3339)];
}
