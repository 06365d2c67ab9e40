//! Messages that are in order and hold no fix: counted by kind, not refused.

/// What kind of message it was. The list is closed: it is a metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// OwnTracks: a beacon was near.
    Beacon,
    /// OwnTracks: a person's name and face.
    Card,
    /// A remote command, or its answer.
    Command,
    /// OwnTracks: settings, or a dump of them.
    Configuration,
    /// OwnTracks: encrypted, so nobody without the key can say what it was.
    Encrypted,
    /// Traccar: something happened to a device; its position comes by itself.
    Event,
    /// A last will.
    Lwt,
    /// The receiver says that it has no fix.
    NoFix,
    /// "online" or "offline".
    Presence,
    /// OwnTracks: somebody asks for something.
    Request,
    /// NMEA: a sentence other than RMC and GGA.
    Sentence,
    /// OwnTracks: how the app is.
    Status,
    /// OwnTracks: a step counter.
    Steps,
    /// Measurements without a position.
    Telemetry,
    /// OwnTracks: a region was entered or left.
    Transition,
    /// OwnTracks: a region, or a list of them.
    Waypoint,
}

impl Ignored {
    /// Every kind.
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

    /// The name in metrics.
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
