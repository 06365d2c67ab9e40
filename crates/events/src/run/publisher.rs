//! The MQTT connection that publishes events.
//!
//! Guarantee: when [`publish`](Publisher::publish) returns, the broker has answered the message.
//! The connection stays open between events and has a session. If the broker restarts and loses
//! its retained messages, [`is_resumed`](Publisher::is_resumed) is therefore false. The connection
//! subscribes to nothing.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use milepost_config::{Mqtt, Secret};
use milepost_core::session::ConnAck;
use milepost_mqtt as codec;
use milepost_mqtt::{CodecError, Connect, Input, Packet};
use milepost_tls as tls;
use milepost_tls::{Address, Server, Stream, Tls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// Timeout of connecting, and of each answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const KEEP_ALIVE_SECONDS: u16 = 60;
/// After this long without a packet the broker is pinged.
const PING_AFTER: Duration = Duration::from_secs(20);

#[derive(Debug, thiserror::Error)]
pub(super) enum PublishError {
    #[error(transparent)]
    NotReached(#[from] tls::Error),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("mqtt.password_file cannot be read")]
    Password(#[source] io::Error),
    #[error("the connection broke{}", tls::explain(Server::Broker, .0).map_or(String::new(), |words| format!(": {words}")))]
    Broken(#[from] io::Error),
    #[error("the broker closed the connection")]
    Closed,
    #[error("no answer within {ANSWER_WITHIN:?}")]
    Unanswered,
}

pub(super) struct Publisher {
    stream: Box<dyn Stream>,
    input: Input,
    is_resumed: bool,
}

impl Publisher {
    /// Connects as `CLIENT_ID-events`, with a session that lasts for `mqtt.session_expiry`.
    pub(super) async fn open(mqtt: &Mqtt, node: &Address) -> Result<Self, PublishError> {
        let login = login(mqtt).map_err(PublishError::Password)?;
        let tls = mqtt.tls.clone().map(|files| Arc::new(Tls::new(files)));
        let opened = timeout(ANSWER_WITHIN, tls::open(node, None, tls)).await;
        let stream = opened.map_err(|_| PublishError::Unanswered)??;
        let bytes_max = usize::try_from(mqtt.max_packet_bytes).unwrap_or(usize::MAX);
        let mut publisher = Self { stream, input: Input::new(bytes_max), is_resumed: false };
        let connect = Connect {
            client_id: format!("{}-events", mqtt.client_id),
            clean_start: false,
            login: login.as_ref(),
            keep_alive_seconds: KEEP_ALIVE_SECONDS,
            session_expiry_seconds: u32::try_from(mqtt.session_expiry.as_secs())
                .unwrap_or(u32::MAX),
            receive_maximum: mqtt.receive_maximum,
            packet_bytes_max: mqtt.max_packet_bytes,
        };
        let mut bytes = BytesMut::new();
        codec::put_connect(connect, &mut bytes)?;
        publisher.send(&bytes).await?;
        let connack: ConnAck = publisher
            .answer(
                |packet| if let Packet::Connected(connack) = packet { Some(connack) } else { None },
            )
            .await?;
        publisher.is_resumed = connack.session_present;
        Ok(publisher)
    }

    /// Returns whether the broker resumed the former session, so that it still has its retained
    /// messages.
    pub(super) fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// Publishes at QoS 1; returns the reason code of the broker's answer.
    pub(super) async fn publish(
        &mut self,
        topic: &str,
        payload: &[u8],
        retain: bool,
    ) -> Result<u8, PublishError> {
        let mut bytes = BytesMut::new();
        codec::put_publish(topic, payload, retain, &mut bytes)?;
        self.send(&bytes).await?;
        self.answer(|packet| if let Packet::Acked(reason) = packet { Some(reason) } else { None })
            .await
    }

    /// Keeps the connection alive while there is nothing to publish; returns why it ended. May be
    /// dropped at any time.
    pub(super) async fn idle(&mut self) -> PublishError {
        loop {
            let idle = timeout(PING_AFTER, self.read()).await;
            let came = match idle {
                Ok(came) => came,
                Err(_) => self.ping().await,
            };
            if let Err(error) = came {
                return error;
            }
        }
    }

    async fn ping(&mut self) -> Result<(), PublishError> {
        let mut bytes = BytesMut::new();
        codec::put_ping(&mut bytes)?;
        self.send(&bytes).await?;
        self.answer(|packet| matches!(packet, Packet::Pong).then_some(())).await
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), PublishError> {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        Ok(timeout(ANSWER_WITHIN, sent).await.map_err(|_| PublishError::Unanswered)??)
    }

    /// Waits for the first packet that `pick` accepts.
    async fn answer<T>(
        &mut self,
        mut pick: impl FnMut(Packet<'_>) -> Option<T>,
    ) -> Result<T, PublishError> {
        let heard = async {
            loop {
                while let Some(packet) = self.input.packet()? {
                    if let Some(picked) = pick(packet) {
                        return Ok(picked);
                    }
                }
                self.read().await?;
            }
        };
        timeout(ANSWER_WITHIN, heard).await.unwrap_or(Err(PublishError::Unanswered))
    }

    async fn read(&mut self) -> Result<(), PublishError> {
        match self.stream.read(self.input.space()).await {
            Ok(0) => Err(PublishError::Closed),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(PublishError::Closed),
            Err(error) => Err(error.into()),
            Ok(bytes) => {
                self.input.advance(bytes);
                Ok(())
            }
        }
    }
}

fn login(mqtt: &Mqtt) -> io::Result<Option<(String, String)>> {
    let password = mqtt.password.as_ref().map(Secret::read).transpose()?;
    Ok(mqtt.username.clone().map(|username| (username, password.unwrap_or_default())))
}
