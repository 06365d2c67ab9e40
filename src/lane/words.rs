//! What the lane is told, what it says, and what it counts.

use std::fmt;
use std::time::{Duration, Instant};

use crate::batch::{self, Batch};
use crate::decode::{Field, Reason};
use crate::position::Timestamp;

/// The two clocks, read once by the shell.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// For deadlines.
    pub instant: Instant,
    /// For rows.
    pub wall: Timestamp,
}

/// What the lane is told.
#[derive(Debug)]
pub enum Event<'a> {
    /// CONNACK.
    Connected {
        /// The broker still holds our session, and sends again what was not acknowledged.
        session_present: bool,
        /// CONNACK's Receive Maximum, if it gave one.
        receive_maximum: Option<u16>,
    },
    /// SUBACK; what was refused, in words. Empty: everything was granted.
    Subscribed {
        /// One entry a refused filter.
        refusals: Vec<String>,
    },
    /// PUBLISH.
    Published {
        /// Topic as sent.
        topic: &'a [u8],
        /// Payload as sent, or its beginning.
        payload: &'a [u8],
        /// How long it was as sent.
        payload_bytes: usize,
        /// Its packet id; `None` at QoS 0.
        packet_id: Option<u16>,
    },
    /// UNSUBACK.
    Unsubscribed,
    /// Our DISCONNECT, and every acknowledgement before it, has been written.
    DisconnectSent,
    /// The connection is gone.
    Disconnected {
        /// The broker said that another client came with our client id (reason 0x8E).
        taken_over: bool,
    },
    /// A batch is durable.
    Settled {
        /// [`Batch::id`].
        batch: u64,
        /// Where its rows are.
        fate: Fate,
    },
    /// Shut down: lose nothing, leave the session to the next process.
    Leave,
    /// [`Lane::deadline`] has come.
    Tick,
}

/// Where a durable batch's rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// In ClickHouse; its slot is free.
    Inserted,
    /// In a file of the spool, and still being inserted: its slot is not free.
    Saved,
    /// In the spool, which goes on with them; the slot is free.
    Spooled,
}

/// What the shell is to do.
#[derive(Debug)]
pub enum Command {
    /// Send SUBSCRIBE for every configured topic.
    Subscribe,
    /// Send UNSUBSCRIBE for every configured topic.
    Unsubscribe,
    /// Hand the batch to the inserter, which has a free slot.
    Insert(Batch),
    /// Hand the batch over to be put into the spool, or inserted if the spool refuses.
    Spool(Batch),
    /// Have what is being inserted put into the spool, too.
    SaveUnderWay,
    /// Send DISCONNECT, after the acknowledgements already handed over.
    Disconnect,
    /// Drop the connection without DISCONNECT.
    HangUp,
    /// Log this.
    Log(Notice),
}

/// What is worth a log line.
#[derive(Debug, PartialEq, Eq)]
pub enum Notice {
    /// A session is there.
    Connected {
        /// The broker had kept it.
        session_present: bool,
        /// [`Window::messages`].
        window: usize,
    },
    /// The broker's window caps every batch below `rows_max`.
    WindowSmall {
        /// [`Window::messages`].
        window: usize,
        /// Enough for every slot and the open batch.
        wanted: usize,
    },
    /// The broker had kept nothing of us.
    SessionLost {
        /// Positions inserted without an acknowledgement.
        kept: u64,
    },
    /// The broker sends these again.
    Abandoned {
        /// Positions dropped from unsent batches.
        positions: u64,
    },
    /// A SUBSCRIBE was not granted.
    SubscriptionRefused(String),
    /// Another client uses our id.
    TakenOver,
    /// The buffer is full: reading stops.
    BufferFull,
    /// It stayed full: the connection is closed until there is room.
    BufferStayedFull,
    /// Half the window is unacknowledged, and no insert ends.
    Spooling {
        /// How long the oldest has been under way.
        under_way: Duration,
    },
    /// QoS 0 input met a full buffer for the first time since it last had room.
    Shedding,
    /// QoS 0 input came after the last flush began.
    SheddingWhileLeaving,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { session_present: true, window } => {
                write!(f, "connected; the broker kept our session; window {window}")
            }
            Self::Connected { session_present: false, window } => {
                write!(f, "connected; new session; window {window}")
            }
            Self::WindowSmall { window, wanted } => write!(
                f,
                "the broker gives {window} messages in flight, so a batch cannot hold more; \
                 raise it to {wanted} or more (EMQX: mqtt.max_inflight, Mosquitto: max_inflight_messages, \
                 here: mqtt.receive_maximum)"
            ),
            Self::SessionLost { kept } => write!(
                f,
                "the broker lost our session: what it had queued for us is gone; \
                 {kept} positions already here are kept (is mqtt.session_expiry long enough?)"
            ),
            Self::Abandoned { positions } => {
                write!(f, "{positions} unsent positions dropped: the broker sends them again")
            }
            Self::SubscriptionRefused(why) => write!(f, "subscription refused: {why}"),
            Self::TakenOver => f.write_str(
                "another client connected with our client id: give every process its own mqtt.client_id \
                 (next try in 30 s)",
            ),
            Self::BufferFull => {
                f.write_str("mqtt.buffer_bytes_max is full: reading stops until ClickHouse or the spool takes rows")
            }
            Self::BufferStayedFull => f.write_str(
                "mqtt.buffer_bytes_max stayed full: connection closed until ClickHouse or the spool takes rows",
            ),
            Self::Spooling { under_way } => write!(
                f,
                "ClickHouse is slow: no insert has ended for {} ms and half the window is unacknowledged; \
                 batches go to the spool",
                under_way.as_millis()
            ),
            Self::SheddingWhileLeaving => {
                f.write_str("leaving: QoS 0 messages that still come are dropped and counted as shed")
            }
            Self::Shedding => {
                f.write_str("mqtt.buffer_bytes_max is full: QoS 0 messages are dropped and counted as shed")
            }
        }
    }
}

/// Where the connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// No connection, and none wanted before this instant.
    Resting {
        /// When to try again.
        until: Instant,
    },
    /// The shell connects, CONNACK is awaited.
    Connecting,
    /// CONNACK came, SUBACK is awaited.
    Subscribing,
    /// Granted.
    Live {
        /// Since when.
        since: Instant,
    },
    /// DISCONNECT is on its way.
    Closing {
        /// When not to wait longer.
        until: Instant,
    },
    /// Nothing left to do.
    Ended,
}

/// Counts since the lane began, and levels now. One value is one consistent snapshot:
/// `received = inserted + rejected + ignored + shed + abandoned + spooled + in_flight`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    /// PUBLISH packets taken.
    pub messages_received: u64,
    /// Points, good or broken, and one for each message rejected whole.
    pub received: u64,
    /// Positions durable in ClickHouse.
    pub inserted: u64,
    /// Points and messages refused, by [`Reason`].
    pub rejected: [u64; Reason::ALL.len()],
    /// Messages of kinds that carry no fix.
    pub ignored: u64,
    /// Positions handed to the spool, which counts them from then on.
    pub spooled: u64,
    /// Points of QoS 0 messages dropped on a full buffer or while leaving.
    pub shed: u64,
    /// Unsent positions of dead connections that the broker sends again.
    pub abandoned: u64,
    /// Positions without `ts`.
    pub undated: u64,
    /// Optional fields that were unusable, by [`Field`].
    pub fields_unknown: [u64; Field::ALL.len()],
    /// Acknowledgements handed to the connection.
    pub acks: u64,
    /// Connections after the first.
    pub reconnects: u64,
    /// Sessions the broker did not keep.
    pub sessions_lost: u64,
    /// Times a full buffer stopped the reading.
    pub stalls: u64,
    /// Batches durable in ClickHouse.
    pub batches_inserted: u64,
    /// Positions open, waiting, or being inserted.
    pub in_flight: u64,
    /// Messages taken and not acknowledged.
    pub unacked: u64,
    /// [`Window::messages`].
    pub window: u64,
    /// Granted subscriptions on a living connection.
    pub connected: bool,
    /// The broker will send again what was taken and not acknowledged, or may not have got an acknowledgement.
    pub broker_holds: bool,
}

/// What a lane needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// When batches close.
    pub batch: batch::Limits,
    /// Inserts that may be under way at once.
    pub inserts_in_flight: usize,
    /// Bytes of closed batches that may wait for a slot.
    pub buffer_bytes_max: usize,
    /// Receive Maximum asked for.
    pub receive_maximum: u16,
    /// There is a spool.
    pub spool: bool,
    /// With a spool: how long leaving waits for inserts before it saves what is left.
    pub spool_when_leaving_after: Duration,
    /// UNSUBSCRIBE when leaving.
    pub leave: bool,
    /// For the jitter.
    pub seed: u64,
}
