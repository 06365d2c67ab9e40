//! For programs that read what milepost stored: a client with our TLS, our login and our words for errors.

use std::sync::Arc;

use clickhouse::Client;
use clickhouse::error::Error as ClientError;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;

use super::connector::{Connector, POOL_IDLE_TIMEOUT};
use super::errors::{AUTHENTICATION_FAILED, advice, code};
use super::login::Login;
use crate::config::Server;
use crate::tls::Tls;

/// Asks one database. Connects with the first question.
pub struct Reader {
    client: Client,
    login: Login,
}

impl Reader {
    /// Reads the password's file. A connection ends when an answer has more than `answer_bytes_max`.
    ///
    /// # Errors
    /// The password file cannot be read.
    pub fn new(server: &Server, answer_bytes_max: u64) -> std::io::Result<Self> {
        let login = Login::new(&server.user, server.password.as_ref())?;
        let tls = server.tls.clone().map(|files| Arc::new(Tls::new(files)));
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .build(Connector::new(tls).bounded(answer_bytes_max));
        let client = Client::with_http_client(http).with_url(&server.url);
        Ok(Self { client, login })
    }

    /// With the login as it was last read. Clones are cheap: the connections are shared.
    #[must_use]
    pub fn client(&self) -> Client {
        self.login.log_in(self.client.clone())
    }

    /// ClickHouse's code, if it answered with one, and what to change. A refused login has the password's file read again.
    pub fn failed(&self, error: &ClientError) -> (Option<u32>, Option<String>) {
        let code = code(error);
        if code == Some(AUTHENTICATION_FAILED) {
            self.login.read_again();
        }
        (code, code.and_then(advice))
    }
}
