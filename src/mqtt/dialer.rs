//! Opens connections: reads the password file, connects over TCP and TLS, and puts CONNECT into the
//! write buffer.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;
use tracing::warn;

use super::connection::{Connection, ConnectionError};
use milepost_config as config;
use milepost_core::consumer::nodes::NODE_ANSWER_TIMEOUT;
use milepost_core::intake::SessionIndex;
use milepost_core::throttle::Throttle;
use milepost_mqtt as codec;
use milepost_mqtt::Connect;
use milepost_tls as tls;
use milepost_tls::{Address, OneReader, Tls};

/// User name and password.
type Login = (String, String);

/// Interval between log lines about an unreadable password file.
const UNREADABLE_LOGGED_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(super) struct Dialer {
    mqtt: Arc<config::Mqtt>,
    tls: Option<Arc<Tls>>,
    /// Reads the password file. At most one read runs at a time, so a hanging disk blocks only one
    /// thread.
    reader: Arc<OneReader<std::io::Result<String>>>,
    login_cache: Arc<Mutex<LoginCache>>,
}

#[derive(Debug)]
struct LoginCache {
    /// The login of the last successful read.
    login: Option<Login>,
    unreadable_log: Throttle,
}

impl Dialer {
    pub(super) fn new(mqtt: &config::Mqtt) -> Self {
        let tls = mqtt.tls.clone().map(|files| Arc::new(Tls::new(files)));
        let login_cache =
            LoginCache { login: None, unreadable_log: Throttle::every(UNREADABLE_LOGGED_EVERY) };
        Self {
            mqtt: Arc::new(mqtt.clone()),
            tls,
            reader: Arc::default(),
            login_cache: Arc::new(Mutex::new(login_cache)),
        }
    }

    /// Opens a session's connection and queues its CONNECT. `ends_session`: whether the broker is
    /// to discard the session. `tcp_timeout`: timeout of the TCP connect only.
    pub(super) fn dial(
        &self,
        index: SessionIndex,
        ends_session: bool,
        address: Address,
        tcp_timeout: Option<Duration>,
    ) -> impl Future<Output = Result<Connection, ConnectionError>> + Send + use<> {
        let this = self.clone();
        async move {
            let login = this.login().await?;
            let stream = tls::open(&address, tcp_timeout, this.tls.clone()).await?;
            let connect = this.session_connect(index, ends_session, login.as_ref())?;
            Ok(Connection::new(stream, connect, this.mqtt.max_packet_bytes, Instant::now()))
        }
    }

    /// Returns whether the node answers a client that has no session, within
    /// [`NODE_ANSWER_TIMEOUT`]. While a node resumes a large session, it answers the client of that
    /// session late, but it answers other clients at once.
    pub(super) fn probe(
        &self,
        index: SessionIndex,
        address: Address,
    ) -> impl Future<Output = bool> + Send + use<> {
        let this = self.clone();
        let exchange = async move {
            let login = this.login().await?;
            let mut stream = tls::open(&address, None, this.tls.clone()).await?;
            let mut packet = this.encode_connect(
                format!("{}-probe-{index}", this.mqtt.client_id),
                true,
                login.as_ref(),
            )?;
            stream.write_all(&packet).await.map_err(ConnectionError::Broken)?;
            let read = stream.read(&mut [0; 64]).await.map_err(ConnectionError::Broken)?;
            packet.clear();
            codec::put_disconnect(true, &mut packet);
            let _ = stream.write_all(&packet).await; // the node has answered: ignore a failure
            Ok::<_, ConnectionError>(read > 0)
        };
        async move {
            timeout(NODE_ANSWER_TIMEOUT, exchange)
                .await
                .is_ok_and(|result| result.is_ok_and(|is_answered| is_answered))
        }
    }

    /// Reads the login; `None` if `mqtt.username` is not set. While the password file cannot be
    /// read, the last password stays in force, because an operator may be replacing the file. Fails
    /// if the file could not be read even once.
    async fn login(&self) -> Result<Option<Login>, ConnectionError> {
        let Some(username) = self.mqtt.username.clone() else { return Ok(None) };
        let Some(secret) = self.mqtt.password.clone() else {
            return Ok(Some((username, String::new())));
        };
        let read = self.reader.read(move || secret.read()).await;
        let mut cache = self.login_cache.lock().unwrap_or_else(PoisonError::into_inner);
        match (read, &cache.login) {
            (Ok(password), _) => cache.login = Some((username, password)),
            (Err(error), Some(_)) => {
                if cache.unreadable_log.allow(Instant::now()) {
                    warn!(%error, "mqtt.password_file cannot be read; keeping the last password");
                }
            }
            (Err(error), None) => {
                return Err(ConnectionError::Login(format!(
                    "mqtt.password_file cannot be read: {error}"
                )));
            }
        }
        Ok(cache.login.clone())
    }

    /// Encodes the CONNECT of a session. The session's index is a part of its client id.
    fn session_connect(
        &self,
        index: SessionIndex,
        ends_session: bool,
        login: Option<&Login>,
    ) -> Result<BytesMut, ConnectionError> {
        self.encode_connect(format!("{}-{index}", self.mqtt.client_id), ends_session, login)
    }

    /// Encodes a CONNECT. Fails if a field is longer than MQTT allows.
    fn encode_connect(
        &self,
        client_id: String,
        ends_session: bool,
        login: Option<&Login>,
    ) -> Result<BytesMut, ConnectionError> {
        let mqtt = &self.mqtt;
        let expiry = if ends_session { 0 } else { mqtt.session_expiry.as_secs() };
        let connect = Connect {
            client_id,
            clean_start: ends_session, // a clean start discards the session with its queue
            login,
            keep_alive_seconds: u16::try_from(mqtt.keep_alive.as_secs()).unwrap_or(u16::MAX),
            session_expiry_seconds: u32::try_from(expiry).unwrap_or(u32::MAX),
            receive_maximum: mqtt.receive_maximum,
            packet_bytes_max: mqtt.max_packet_bytes,
        };
        let mut bytes = BytesMut::new();
        codec::put_connect(connect, &mut bytes)?;
        Ok(bytes)
    }
}
