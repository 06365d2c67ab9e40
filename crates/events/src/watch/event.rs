//! Fixes, and the events that they cause.

/// Maximum time between two fixes that count as one movement, in milliseconds: an hour.
pub(super) const GAP_MS_MAX: i64 = 3_600_000;

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
    /// Time of the insert, by ClickHouse's clock.
    pub inserted_at: i64,
}

/// The kind of an event, as in the column `kind` of `events`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Entered,
    /// The driver was inside for longer than the fence allows.
    Overstayed,
    Left,
    /// The driver entered or left the fence outside its opening hours.
    OffHours,
    Silent,
    /// Heard again after a silence.
    Heard,
    /// Above a speed limit.
    Fast,
    /// No longer fast.
    Slow,
    /// A single fix too far from both its neighbours for the time between them: an error of the
    /// device.
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

    /// Returns whether an event of this kind changes a state of the driver.
    #[must_use]
    pub fn changes_state(self) -> bool {
        !matches!(self, Self::Jump | Self::OffHours)
    }

    /// Returns the state that events of this kind and fence change; `None` for `jump` and
    /// `off_hours`, which change no state.
    pub(crate) fn state(self, fence: &str) -> Option<State> {
        match self {
            Self::Entered | Self::Overstayed | Self::Left => Some(State::Fence(fence.to_owned())),
            Self::Silent | Self::Heard => Some(State::Contact),
            Self::Fast | Self::Slow => Some(State::Speed(fence.to_owned())),
            Self::Jump | Self::OffHours => None,
        }
    }

    /// Returns the kind whose state is assumed before this event: "entered" before "left", and
    /// "left" before "entered", even before a driver's first event. A kind without a state returns
    /// itself.
    pub(super) fn predecessor(self) -> Self {
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
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A state of a driver. Every event changes one, except `jump` and `off_hours`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// The driver is inside or outside the named fence.
    Fence(String),
    /// The driver is silent or heard.
    Contact,
    /// The driver is fast or slow by a speed limit: that of the named fence, or
    /// `events.faster_than` if the name is empty.
    Speed(String),
}

/// An event of a driver at a fix.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub driver_id: String,
    pub kind: Kind,
    /// Name of the fence that was entered, left, overstayed or crossed outside its hours, or whose
    /// speed limit was exceeded. Empty for other events, and for the limit `events.faster_than`.
    pub fence: String,
    /// Time of the fix that the event is about. For `entered` and `overstayed`, this is the first
    /// fix inside; for `left`, the first one outside; for `off_hours`, that of the crossing; for
    /// `fast`, the first fast one; for `slow`, the first one that is no longer fast; for `silent`,
    /// the last one before the silence; for `heard`, the first one after it; for `jump`, the wrong
    /// one.
    pub ts: i64,
    /// Sequence number of the same fix. Several fixes of a device may have the same `ts`, because
    /// its clock may count whole seconds.
    pub seq: u32,
    pub lat: f64,
    pub lng: f64,
    pub speed: Option<f64>,
    /// Server time at which the event became known: a fix was inserted, or the silence or the stay
    /// had lasted long enough.
    pub known_at: i64,
}

impl Event {
    /// Returns the event's id. It depends only on the event's content, so every process gives the
    /// same event the same id.
    #[must_use]
    pub fn id(&self) -> String {
        let Self { driver_id, kind, fence, ts, seq, .. } = self;
        let separator = if fence.is_empty() { "" } else { "/" };
        format!("{driver_id}/{}/{ts}/{seq}{separator}{fence}", kind.name())
    }

    /// Returns the driver's id, and the state that the event changes; `None` for `jump` and
    /// `off_hours`, which change no state.
    pub(crate) fn state(&self) -> Option<(String, State)> {
        Some((self.driver_id.clone(), self.kind.state(&self.fence)?))
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
