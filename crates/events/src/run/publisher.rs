//! The MQTT connection that publishes events.
//!
//! Guarantee: when [`publish`](Publisher::publish) returns, the broker has answered the message.
//! The connection stays open between events and has a session. If the broker restarts and loses
//! its retained messages, [`is_resumed`](Publisher::is_resumed) is therefore false. The connection
//! subscribes to nothing.

use std::io;

use milepost_command::client::{self, Client, ClientError, Door};
use milepost_config::Mqtt;
use milepost_tls::Address;

#[derive(Debug, thiserror::Error)]
pub(super) enum PublishError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("mqtt.password_file cannot be read")]
    Password(#[source] io::Error),
}

pub(super) struct Publisher {
    client: Client,
    is_resumed: bool,
}

impl Publisher {
    /// Connects as `CLIENT_ID-events`, with a session that lasts for `mqtt.session_expiry`.
    pub(super) async fn open(mqtt: &Mqtt, node: &Address) -> Result<Self, PublishError> {
        let login = client::login(mqtt).map_err(PublishError::Password)?;
        let door = Door { mqtt, node, login: login.as_ref() };
        let client_id = format!("{}-events", mqtt.client_id);
        let (client, connack) = Client::resume(client_id, door, mqtt.session_expiry).await?;
        Ok(Self { client, is_resumed: connack.session_present })
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
    ) -> Result<u8, ClientError> {
        self.client.publish(topic, payload, retain).await
    }

    /// Keeps the connection alive while there is nothing to publish; returns why it ended. May be
    /// dropped at any time.
    pub(super) async fn idle(&mut self) -> ClientError {
        self.client.idle().await
    }
}
