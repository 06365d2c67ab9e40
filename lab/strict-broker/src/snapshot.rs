//! All sessions as a file, so that a broker can come back with an old state, as Mosquitto does after kill -9.
//!
//! A line of JSON a session. A restored one waits for its client, from then on as long as its expiry says; its
//! unacknowledged messages go out again under their packet ids. What is retained is not in it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::PublishProperties;
use serde::{Deserialize, Serialize};

use crate::broker::Broker;
use crate::options::Options;
use crate::outbox::Slot;
use crate::packet::{Message, Share};
use crate::router::{ClientId, Subscription};
use crate::session::{Expiry, Life, Session};

#[derive(Serialize, Deserialize)]
struct SavedSession {
    client: String,
    expiry_s: u32,
    subscriptions: Vec<SavedSubscription>,
    /// The number of the first message in `sent`.
    first: u64,
    sent: Vec<SavedSlot>,
    queue: Vec<SavedMessage>,
    received: Vec<u16>,
}

#[derive(Serialize, Deserialize)]
struct SavedSubscription {
    filter: String,
    qos: u8,
    no_local: bool,
    keep_retain: bool,
    identifier: Option<usize>,
}

#[derive(Serialize, Deserialize)]
enum SavedSlot {
    Unacked(SavedMessage),
    Released,
    Done,
}

#[derive(Serialize, Deserialize)]
struct SavedMessage {
    topic: String,
    payload: Vec<u8>,
    qos: u8,
    retain: bool,
    properties: SavedProperties,
    share: Option<(String, String)>,
}

/// Those of a PUBLISH that are kept: what a device sets. Others are rare, and lost.
#[derive(Default, Serialize, Deserialize)]
struct SavedProperties {
    content_type: Option<String>,
    user: Vec<(String, String)>,
}

/// Writes it beside the file, and then moves it there.
pub(crate) fn save(broker: &Broker, file: &Path) -> Result<()> {
    let beside = file.with_extension("new");
    let mut out = BufWriter::new(File::create(&beside).with_context(|| format!("{}", beside.display()))?);
    for (client, session) in &broker.sessions {
        if matches!(session.life, Life::Dying(_)) {
            continue;
        }
        serde_json::to_writer(&mut out, &SavedSession::of(client, session))?;
        out.write_all(b"\n")?;
    }
    out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    std::fs::rename(&beside, file).with_context(|| format!("{}", file.display()))
}

/// Reads it; without a file there are no sessions.
pub(crate) fn restore(broker: &mut Broker, file: &Path, options: &Options, now: Instant) -> Result<()> {
    if !file.exists() {
        return Ok(());
    }
    for line in BufReader::new(File::open(file)?).lines() {
        let saved: SavedSession =
            serde_json::from_str(&line?).with_context(|| format!("{} is damaged", file.display()))?;
        let client = ClientId::from(saved.client.as_str());
        let session = saved.into_session(options, now);
        for (path, subscription) in &session.subscriptions {
            broker.router.subscribe(&client, path, *subscription);
        }
        broker.sessions.insert(client, session);
    }
    Ok(())
}

impl SavedSession {
    fn of(client: &str, session: &Session) -> Self {
        let (first, sent, queue) = session.outbox.parts();
        let subscriptions = session.subscriptions.iter().map(|(filter, subscription)| SavedSubscription {
            filter: filter.clone(),
            qos: subscription.qos as u8,
            no_local: subscription.no_local,
            keep_retain: subscription.keep_retain,
            identifier: subscription.identifier,
        });
        let slot = |slot: &Slot| match slot {
            Slot::Unacked(message) => SavedSlot::Unacked(SavedMessage::of(message)),
            Slot::Released => SavedSlot::Released,
            Slot::Done => SavedSlot::Done,
        };
        Self {
            client: client.to_owned(),
            expiry_s: session.expiry.seconds(),
            subscriptions: subscriptions.collect(),
            first,
            sent: sent.iter().map(slot).collect(),
            queue: queue.iter().chain(session.mailbox.iter()).map(SavedMessage::of).collect(),
            received: session.received.iter().copied().collect(),
        }
    }

    fn into_session(self, options: &Options, now: Instant) -> Session {
        let expiry = Expiry::from_seconds(self.expiry_s);
        let mut session = Session::new(options, expiry, now);
        session.life = Life::Away(match expiry {
            Expiry::Never => None,
            Expiry::After(time) => Some(now + time),
        });
        session.subscriptions = self.subscriptions.into_iter().map(SavedSubscription::restored).collect();
        session.received = self.received.into_iter().collect();
        let slot = |slot| match slot {
            SavedSlot::Unacked(message) => Slot::Unacked(message.restored()),
            SavedSlot::Released => Slot::Released,
            SavedSlot::Done => Slot::Done,
        };
        let sent = self.sent.into_iter().map(slot).collect();
        let queue = self.queue.into_iter().map(SavedMessage::restored).collect();
        session.outbox.restore(self.first, sent, queue);
        session
    }
}

impl SavedSubscription {
    fn restored(self) -> (String, Subscription) {
        let Self { filter, qos, no_local, keep_retain, identifier } = self;
        (filter, Subscription { qos: qos_of(qos), no_local, keep_retain, identifier })
    }
}

impl SavedMessage {
    fn of(message: &Message) -> Self {
        let properties = message.properties.as_deref().map(|properties| SavedProperties {
            content_type: properties.content_type.clone(),
            user: properties.user_properties.clone(),
        });
        Self {
            topic: String::from_utf8_lossy(&message.topic).into_owned(),
            payload: message.payload.to_vec(),
            qos: message.qos as u8,
            retain: message.retain,
            properties: properties.unwrap_or_default(),
            share: message.share.as_deref().map(|share| (share.group.clone(), share.filter.clone())),
        }
    }

    fn restored(self) -> Message {
        let SavedProperties { content_type, user } = self.properties;
        let has_any = content_type.is_some() || !user.is_empty();
        let properties = PublishProperties { content_type, user_properties: user, ..Default::default() };
        Message {
            topic: self.topic.into(),
            payload: self.payload.into(),
            qos: qos_of(self.qos),
            retain: self.retain,
            properties: has_any.then(|| Rc::new(properties)),
            share: self.share.map(|(group, filter)| Rc::new(Share { group, filter })),
        }
    }
}

fn qos_of(number: u8) -> QoS {
    rumqttc::v5::mqttbytes::qos(number).unwrap_or_default()
}
