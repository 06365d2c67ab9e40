//! A client for programs that read milepost's tables. It has the TLS, login and error messages of
//! milepost's own client.

use std::sync::Arc;

use clickhouse::Client;
use clickhouse::error::Error as ClientError;

use super::connector::Connector;
use super::errors::{UNKNOWN_FUNCTION, UNKNOWN_IDENTIFIER, UNKNOWN_TABLE, advice, code};
use super::login::Login;
use milepost_config::Server;
use milepost_tls::Tls;

/// A reading client of one database. Connects with the first query.
pub struct Reader {
    client: Client,
    login: Arc<Login>,
}

impl Reader {
    /// Creates a client, and reads the password file. A query whose answer is longer than
    /// `answer_bytes_max` fails.
    ///
    /// # Errors
    /// The password file cannot be read.
    pub fn new(server: &Server, answer_bytes_max: u64) -> std::io::Result<Self> {
        let login = Login::new(&server.user, server.password.as_ref())?;
        let tls = server.tls.clone().map(|files| Arc::new(Tls::new(files)));
        let http = Connector::new(tls).bounded(answer_bytes_max).client();
        Ok(Self { client: Client::with_http_client(http).with_url(&server.url), login })
    }

    /// Returns the client with the login that was last read. Clones are cheap, because they share
    /// the connections.
    #[must_use]
    pub fn client(&self) -> Client {
        self.login.log_in(self.client.clone())
    }

    /// Returns ClickHouse's error code, if it answered with one, and advice, if there is some for
    /// this code. If the login failed, reads the password file again.
    pub fn code_and_advice(&self, error: &ClientError) -> (Option<u32>, Option<String>) {
        let code = code(error);
        if let Some(code) = code {
            self.login.reread_if_login_failed(code);
        }
        let advice = match code {
            Some(UNKNOWN_TABLE) => Some("a table is missing: run milepost migrate"),
            Some(UNKNOWN_IDENTIFIER) => Some("a column is missing: run milepost migrate"),
            Some(UNKNOWN_FUNCTION) => Some("a view is missing: run milepost migrate"),
            code => code.and_then(advice),
        };
        (code, advice.map(str::to_owned))
    }

    /// Returns ClickHouse's message if a query failed because a table does not exist: an older
    /// `milepost migrate` did not create it.
    #[must_use]
    pub fn unknown_table<'a>(&self, error: &'a ClientError) -> Option<&'a str> {
        let ClientError::BadResponse(message) = error else { return None };
        (self.code_and_advice(error).0 == Some(UNKNOWN_TABLE)).then_some(message)
    }

    /// Returns whether a query failed because an older `milepost migrate` did not add a column.
    #[must_use]
    pub fn lacks_column(&self, error: &ClientError) -> bool {
        self.code_and_advice(error).0 == Some(UNKNOWN_IDENTIFIER)
    }
}
