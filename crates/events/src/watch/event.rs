//! A fix, and what it shows.

/// Longest gap between two fixes that are judged as one movement.
pub(super) const GAP_MS: i64 = 3_600_000;

/// A row of `positions`, in plain units.
#[derive(Debug, Clone, PartialEq)]
pub struct Fix {
    pub driver_id: String,
    /// Milliseconds since 1970, like all times here.
    pub ts: i64,
    pub seq: u32,
    pub lat: f64,
    pub lng: f64,
    /// m/s
    pub speed: Option<f64>,
    /// Metres.
    pub acc: Option<f64>,
    /// Time of the insert, by the server's clock.
    pub inserted_at: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Entered,
    /// Inside for longer than the fence allows.
    Overstayed,
    Left,
    /// Entered or left outside the fence's opening hours.
    OffHours,
    Silent,
    Heard,
    Fast,
    Slow,
    Jump,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::Entered,
        Self::Overstayed,
        Self::Left,
        Self::OffHours,
        Self::Silent,
        Self::Heard,
        Self::Fast,
        Self::Slow,
        Self::Jump,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Entered => "entered",
            Self::Overstayed => "overstayed",
            Self::Left => "left",
            Self::OffHours => "off_hours",
            Self::Silent => "silent",
            Self::Heard => "heard",
            Self::Fast => "fast",
            Self::Slow => "slow",
            Self::Jump => "jump",
        }
    }

    /// Returns whether the kind begins or ends a state.
    #[must_use]
    pub fn is_of_state(self) -> bool {
        !matches!(self, Self::Jump | Self::OffHours)
    }

    /// Returns the state before this one: of a state's begin its end, and the reverse. A kind that
    /// is of no state is its own.
    pub(super) fn opposite(self) -> Self {
        match self {
            Self::Entered => Self::Left,
            Self::Left | Self::Overstayed => Self::Entered,
            Self::OffHours => Self::OffHours,
            Self::Silent => Self::Heard,
            Self::Heard => Self::Silent,
            Self::Fast => Self::Slow,
            Self::Slow => Self::Fast,
            Self::Jump => Self::Jump,
        }
    }

    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A state of a driver. Each kind of event begins or ends one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum State {
    Fence(String),
    Contact,
    /// By the limit of a fence; with an empty name by `events.faster_than`.
    Speed(String),
}

/// An event of a driver at a fix.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub driver_id: String,
    pub kind: Kind,
    /// Name of the fence that was entered, left, overstayed or crossed outside its hours; of speed,
    /// of the fence whose limit it is. Empty for other events.
    pub fence: String,
    /// Time of the fix: the first one inside or outside, the first that is fast or slow, the last
    /// before a silence, or the one that jumped. An overstay has the first fix inside.
    pub ts: i64,
    /// Sequence number of the same fix: a device may send several in one millisecond, or have a
    /// clock of seconds.
    pub seq: u32,
    pub lat: f64,
    pub lng: f64,
    pub speed: Option<f64>,
    /// Server time at which the event was known: the fix was inserted, or the silence was long
    /// enough.
    pub known_at: i64,
}

impl Event {
    /// Returns the event's id, which depends on its content alone: every process gives the same
    /// event the same id.
    #[must_use]
    pub fn id(&self) -> String {
        let Self { driver_id, kind, fence, ts, seq, .. } = self;
        let of_fence = if fence.is_empty() { "" } else { "/" };
        format!("{driver_id}/{}/{ts}/{seq}{of_fence}{fence}", kind.name())
    }

    /// Returns the driver and the state that the event changes; `None` for a kind of no state.
    pub(crate) fn state(&self) -> Option<(String, State)> {
        let state = match self.kind {
            Kind::Entered | Kind::Overstayed | Kind::Left => State::Fence(self.fence.clone()),
            Kind::Silent | Kind::Heard => State::Contact,
            Kind::Fast | Kind::Slow => State::Speed(self.fence.clone()),
            Kind::Jump | Kind::OffHours => return None,
        };
        Some((self.driver_id.clone(), state))
    }
}

/// Returns an event of this kind at a fix.
pub(super) fn event(fix: &Fix, kind: Kind, fence: &str) -> Event {
    Event {
        driver_id: fix.driver_id.clone(),
        kind,
        fence: fence.to_owned(),
        ts: fix.ts,
        seq: fix.seq,
        lat: fix.lat,
        lng: fix.lng,
        speed: fix.speed,
        known_at: fix.inserted_at,
    }
}
