//! Defines the kinds of valid messages without a fix, which are counted and not rejected.

/// The kind of an ignored message. A closed list, because it is a metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// OwnTracks: a beacon in range.
    Beacon,
    /// OwnTracks: a person's name and picture.
    Card,
    /// A remote command, or its answer.
    Command,
    /// OwnTracks: settings, or a dump of them.
    Configuration,
    /// OwnTracks: an encrypted message, for which milepost has no key.
    Encrypted,
    /// Traccar: an event of a device. Its position is forwarded in a message of its own.
    Event,
    /// OwnTracks: the last will of the app.
    Lwt,
    /// The receiver reports no fix.
    NoFix,
    /// A message such as `online`, from a device or a broker.
    Presence,
    /// OwnTracks: a request of the app.
    Request,
    /// NMEA: a sentence other than RMC and GGA, or a GGA whose RMC is in another message.
    Sentence,
    /// OwnTracks: the state of the app.
    Status,
    /// OwnTracks: steps that a phone counted.
    Steps,
    /// Measurements without a position.
    Telemetry,
    /// OwnTracks: a region was entered or left.
    Transition,
    /// OwnTracks: a region, or a list of them.
    Waypoint,
}

impl Ignored {
    pub const ALL: [Self; 16] = [
        Self::Beacon,
        Self::Card,
        Self::Command,
        Self::Configuration,
        Self::Encrypted,
        Self::Event,
        Self::Lwt,
        Self::NoFix,
        Self::Presence,
        Self::Request,
        Self::Sentence,
        Self::Status,
        Self::Steps,
        Self::Telemetry,
        Self::Transition,
        Self::Waypoint,
    ];

    /// Returns the value of the metric's label `kind`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Beacon => "beacon",
            Self::Card => "card",
            Self::Command => "command",
            Self::Configuration => "configuration",
            Self::Encrypted => "encrypted",
            Self::Event => "event",
            Self::Lwt => "lwt",
            Self::NoFix => "no_fix",
            Self::Presence => "presence",
            Self::Request => "request",
            Self::Sentence => "sentence",
            Self::Status => "status",
            Self::Steps => "steps",
            Self::Telemetry => "telemetry",
            Self::Transition => "transition",
            Self::Waypoint => "waypoint",
        }
    }
}
