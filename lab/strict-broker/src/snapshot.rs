//! All sessions as a file, so that a broker can come back with an old state, as Mosquitto does after kill -9.
//!
//! A line of JSON a session. A restored one waits for its client, from then on as long as its expiry says; its
//! unacknowledged messages go out again under their packet ids. Their properties are not in it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use rumqttc::v5::mqttbytes::QoS;
use serde::{Deserialize, Serialize};

use crate::broker::Broker;
use crate::options::Options;
use crate::packet::{Message, Share};
use crate::router::ClientId;
use crate::session::{Expiry, Life, Session};

#[derive(Serialize, Deserialize)]
struct SavedSession {
    client: String,
    expiry_s: u32,
    /// Filters, and the QoS of each.
    subscriptions: Vec<(String, u8)>,
    /// The number of the first message in `sent`.
    first: u64,
    sent: Vec<Option<SavedMessage>>,
    queue: Vec<SavedMessage>,
}

#[derive(Serialize, Deserialize)]
struct SavedMessage {
    topic: String,
    payload: Vec<u8>,
    qos: u8,
    share: Option<(String, String)>,
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
        for (path, qos) in &session.subscriptions {
            broker.router.subscribe(&client, path, *qos);
        }
        broker.sessions.insert(client, session);
    }
    Ok(())
}

impl SavedSession {
    fn of(client: &str, session: &Session) -> Self {
        let (first, sent, queue) = session.outbox.parts();
        Self {
            client: client.to_owned(),
            expiry_s: session.expiry.seconds(),
            subscriptions: session
                .subscriptions
                .iter()
                .map(|(path, qos)| (path.clone(), *qos as u8))
                .collect(),
            first,
            sent: sent.iter().map(|slot| slot.as_ref().map(SavedMessage::of)).collect(),
            queue: queue.iter().chain(session.mailbox.iter()).map(SavedMessage::of).collect(),
        }
    }

    fn into_session(self, options: &Options, now: Instant) -> Session {
        let expiry = Expiry::from_seconds(self.expiry_s);
        let mut session = Session::new(options, expiry, now);
        session.life = Life::Away(match expiry {
            Expiry::Never => None,
            Expiry::After(time) => Some(now + time),
        });
        session.subscriptions =
            self.subscriptions.into_iter().map(|(path, qos)| (path, qos_of(qos))).collect();
        let sent = self.sent.into_iter().map(|slot| slot.map(SavedMessage::restored)).collect();
        let queue = self.queue.into_iter().map(SavedMessage::restored).collect();
        session.outbox.restore(self.first, sent, queue);
        session
    }
}

impl SavedMessage {
    fn of(message: &Message) -> Self {
        Self {
            topic: String::from_utf8_lossy(&message.topic).into_owned(),
            payload: message.payload.to_vec(),
            qos: message.qos as u8,
            share: message.share.as_deref().map(|share| (share.group.clone(), share.filter.clone())),
        }
    }

    fn restored(self) -> Message {
        Message {
            topic: self.topic.into(),
            payload: self.payload.into(),
            qos: qos_of(self.qos),
            properties: None,
            share: self.share.map(|(group, filter)| Rc::new(Share { group, filter })),
        }
    }
}

fn qos_of(number: u8) -> QoS {
    rumqttc::v5::mqttbytes::qos(number).unwrap_or_default()
}
