//! A small MQTT client for commands. The client waits for the answer to a packet before it sends
//! the next packet.
//!
//! Guarantee: every answer has a deadline, by default [`ANSWER_TIMEOUT`]. Only a CONNECT that a
//! busy broker refuses is repeated.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

use milepost_config::{Mqtt, Secret};
use milepost_core::Qos;
use milepost_core::session::ConnAck;
use milepost_mqtt as codec;
use milepost_mqtt::{CodecError, Connect, Grant, Input, Packet, Subscribing};
use milepost_tls as tls;
use milepost_tls::{Address, Server, Stream, Tls};

/// Timeout for connecting, and for each answer.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Keep-alive that CONNECT requests; longer than [`PING_AFTER`].
const KEEP_ALIVE_SECONDS: u16 = 60;
/// Time without a packet after which an idle client pings the broker.
const PING_AFTER: Duration = Duration::from_secs(20);
/// Time to wait for retained messages after a subscription. A broker delivers them sooner.
pub const RETAINED_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for which a CONNECT is repeated while the broker is busy.
const BUSY_RETRY_MAX: Duration = Duration::from_secs(10);
/// Pause between two attempts while the broker is busy.
const BUSY_RETRY_PAUSE: Duration = Duration::from_millis(250);
/// CONNACK reasons that are temporary (MQTT 5, 3.2.2.2): server unavailable, server busy,
/// connection rate exceeded. EMQX answers 0x89 if it has not yet cleaned up an earlier connection
/// of the same client id.
pub const BUSY: [u8; 3] = [0x88, 0x89, 0x9F];

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    NotReached(#[from] tls::Error),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("the connection broke{}", explanation_suffix(.0))]
    Broken(#[from] io::Error),
    #[error("the broker closed the connection")]
    Closed,
    #[error("no answer within {ANSWER_TIMEOUT:?}")]
    Unanswered,
}

/// Returns `: ` and the explanation of a TLS error; an empty string for any other error.
fn explanation_suffix(error: &io::Error) -> String {
    let explanation = tls::explain(Server::Broker, error);
    explanation.map_or(String::new(), |explanation| format!(": {explanation}"))
}

impl ClientError {
    /// Returns whether the broker refused the connection for a temporary reason.
    fn is_busy(&self) -> bool {
        matches!(self, Self::Codec(CodecError::Refused { reason, .. }) if BUSY.contains(reason))
    }

    /// Returns the reason code of the broker's DISCONNECT, if it sent one.
    pub fn disconnect_reason(&self) -> Option<u8> {
        if let Self::Codec(CodecError::Disconnected { reason, .. }) = self {
            Some(*reason)
        } else {
            None
        }
    }

    /// Returns whether the broker accepted the connection, and then closed it or stopped answering.
    /// Some brokers react like this to a subscription that their access rules forbid.
    pub fn is_hang_up(&self) -> bool {
        matches!(
            self,
            Self::Closed
                | Self::Broken(_)
                | Self::Unanswered
                | Self::Codec(CodecError::Disconnected { .. })
        )
    }
}

/// A node of the broker to connect to, with the login and the other MQTT settings.
#[derive(Clone, Copy)]
pub struct BrokerTarget<'a> {
    pub mqtt: &'a Mqtt,
    pub node: &'a Address,
    /// User name and password; `None` if no user name is configured.
    pub login: Option<&'a (String, String)>,
}

/// Returns the configured user name and password; `None` if no user name is configured.
pub fn login(mqtt: &Mqtt) -> io::Result<Option<(String, String)>> {
    let password = mqtt.password.as_ref().map(Secret::read).transpose()?;
    Ok(mqtt.username.clone().map(|username| (username, password.unwrap_or_default())))
}

/// Returns a topic filter with a share group that only this run uses. Two runs in one group would
/// each receive only a part of the messages.
pub fn filter_in_own_group(mqtt: &Mqtt, topic: &str) -> String {
    format!("$share/{}-check-{}/{topic}", mqtt.group, fastrand::u32(..))
}

/// A connection to a node of the broker.
pub struct Client {
    stream: Box<dyn Stream>,
    input: Input,
}

impl Client {
    /// Connects with a clean start. `expiry`: the session expiry interval. The client id is random,
    /// because EMQX refuses an id for a moment after the last connection with that id has ended.
    pub async fn open(
        target: BrokerTarget<'_>,
        expiry: Duration,
    ) -> Result<(Self, ConnAck), ClientError> {
        let client_id = format!("{}-check-{:016x}", target.mqtt.client_id, fastrand::u64(..));
        Self::open_as(client_id, target, expiry).await
    }

    /// Connects with a clean start under `client_id`. Repeats a CONNECT that the broker refuses for
    /// a temporary reason.
    pub async fn open_as(
        client_id: String,
        target: BrokerTarget<'_>,
        expiry: Duration,
    ) -> Result<(Self, ConnAck), ClientError> {
        let began = Instant::now();
        loop {
            match Self::connect(client_id.clone(), target, true, expiry).await {
                Err(error) if error.is_busy() && began.elapsed() < BUSY_RETRY_MAX => {
                    sleep(BUSY_RETRY_PAUSE).await
                }
                outcome => return outcome,
            }
        }
    }

    /// Connects under `client_id` and resumes its session, if the broker has one.
    pub async fn resume(
        client_id: String,
        target: BrokerTarget<'_>,
        expiry: Duration,
    ) -> Result<(Self, ConnAck), ClientError> {
        Self::connect(client_id, target, false, expiry).await
    }

    /// Sends one CONNECT and waits for its CONNACK.
    async fn connect(
        client_id: String,
        BrokerTarget { mqtt, node, login }: BrokerTarget<'_>,
        clean_start: bool,
        expiry: Duration,
    ) -> Result<(Self, ConnAck), ClientError> {
        let tls = mqtt.tls.clone().map(|files| Arc::new(Tls::new(files)));
        let opened = timeout(ANSWER_TIMEOUT, tls::open(node, None, tls)).await;
        let stream = opened.map_err(|_| ClientError::Unanswered)??;
        let bytes_max = usize::try_from(mqtt.max_packet_bytes).unwrap_or(usize::MAX);
        let mut client = Self { stream, input: Input::new(bytes_max) };
        let connect = Connect {
            client_id,
            clean_start,
            login,
            keep_alive_seconds: KEEP_ALIVE_SECONDS,
            session_expiry_seconds: u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX),
            receive_maximum: mqtt.receive_maximum,
            packet_bytes_max: mqtt.max_packet_bytes,
        };
        let mut bytes = BytesMut::new();
        codec::put_connect(connect, &mut bytes)?;
        client.send(&bytes).await?;
        let connack = client.wait_for(ANSWER_TIMEOUT, |packet| {
            if let Packet::Connected(connack) = packet { Some(connack) } else { None }
        });
        let connack = connack.await?;
        Ok((client, connack))
    }

    /// Writes and flushes whole packets. Fails after [`ANSWER_TIMEOUT`].
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        Ok(timeout(ANSWER_TIMEOUT, sent).await.map_err(|_| ClientError::Unanswered)??)
    }

    /// Waits for the first packet that `pick` accepts, and drops the packets before it. Returns the
    /// value that `pick` returned. Fails with [`ClientError::Unanswered`] after the time `within`.
    pub async fn wait_for<T>(
        &mut self,
        within: Duration,
        mut pick: impl FnMut(Packet<'_>) -> Option<T>,
    ) -> Result<T, ClientError> {
        let picked = async {
            loop {
                while let Some(packet) = self.input.packet()? {
                    if let Some(picked) = pick(packet) {
                        return Ok(picked);
                    }
                }
                self.read().await?;
            }
        };
        timeout(within, picked).await.unwrap_or(Err(ClientError::Unanswered))
    }

    /// Publishes at QoS 1. Returns the reason code of the broker's PUBACK.
    pub async fn publish(
        &mut self,
        topic: &str,
        payload: &[u8],
        retain: bool,
    ) -> Result<u8, ClientError> {
        let mut bytes = BytesMut::new();
        codec::put_publish(topic, payload, retain, &mut bytes)?;
        self.send(&bytes).await?;
        let acked = self.wait_for(ANSWER_TIMEOUT, |packet| {
            if let Packet::Acked(reason) = packet { Some(reason) } else { None }
        });
        acked.await
    }

    /// Keeps the connection alive while there is nothing to send. Returns why the connection ended.
    /// The future may be dropped at any time.
    pub async fn idle(&mut self) -> ClientError {
        loop {
            let outcome = match timeout(PING_AFTER, self.read()).await {
                Ok(read) => read,
                Err(_) => self.ping().await,
            };
            if let Err(error) = outcome {
                return error;
            }
        }
    }

    async fn ping(&mut self) -> Result<(), ClientError> {
        let mut bytes = BytesMut::new();
        codec::put_ping(&mut bytes)?;
        self.send(&bytes).await?;
        self.wait_for(ANSWER_TIMEOUT, |packet| matches!(packet, Packet::Pong).then_some(())).await
    }

    async fn read(&mut self) -> Result<(), ClientError> {
        match self.stream.read(self.input.space()).await {
            Ok(0) => Err(ClientError::Closed),
            // The broker closed the socket without a close_notify of TLS.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ClientError::Closed),
            Err(error) => Err(error.into()),
            Ok(bytes) => {
                self.input.advance(bytes);
                Ok(())
            }
        }
    }

    /// Subscribes, and returns the broker's grant for each filter.
    pub async fn subscribe(
        &mut self,
        filters: &[String],
        qos: Qos,
    ) -> Result<Vec<Grant>, ClientError> {
        let mut bytes = BytesMut::new();
        codec::put_subscribe(Subscribing::Group, filters, qos, &mut bytes)?;
        self.send(&bytes).await?;
        let grants = self.wait_for(ANSWER_TIMEOUT, |packet| {
            if let Packet::Subscribed(_, grants) = packet { Some(grants) } else { None }
        });
        grants.await
    }

    /// Ends the connection with a DISCONNECT.
    pub async fn leave(mut self) {
        let mut bytes = BytesMut::new();
        codec::put_disconnect(false, &mut bytes);
        let _ = self.send(&bytes).await; // the connection ends either way
    }
}
