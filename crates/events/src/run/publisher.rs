//! The MQTT connection that publishes events. It stays open between events and subscribes to
//! nothing.

use std::io;

use milepost_command::client::{self, BrokerTarget, Client, ClientError};
use milepost_config::Mqtt;
use milepost_tls::Address;

#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("mqtt.password_file cannot be read")]
    Password(#[source] io::Error),
}

/// Connects as `CLIENT_ID-events`, with a session that lasts for `mqtt.session_expiry`. The second
/// value is true if the broker resumed that session: the broker then probably has its retained
/// messages, too.
pub(super) async fn connect(mqtt: &Mqtt, node: &Address) -> Result<(Client, bool), ConnectError> {
    let login = client::login(mqtt).map_err(ConnectError::Password)?;
    let target = BrokerTarget { mqtt, node, login: login.as_ref() };
    let client_id = format!("{}-events", mqtt.client_id);
    let (client, connack) = Client::resume(client_id, target, mqtt.session_expiry).await?;
    Ok((client, connack.session_present))
}
