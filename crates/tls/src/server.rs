//! The servers that milepost connects to, and the names of their settings.

use std::net::IpAddr;

/// A server that milepost connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Broker,
    ClickHouse,
    /// The HTTP server to which `milepost events` posts events.
    Webhook,
}

impl Server {
    /// Returns the server's section in the configuration.
    #[must_use]
    pub const fn section(self) -> &'static str {
        match self {
            Self::Broker => "mqtt",
            Self::ClickHouse => "clickhouse",
            Self::Webhook => "webhook",
        }
    }

    /// Returns the URL schemes with TLS and without.
    pub(super) const fn schemes(self) -> (&'static str, &'static str) {
        match self {
            Self::Broker => ("mqtts", "mqtt"),
            Self::ClickHouse | Self::Webhook => ("https", "http"),
        }
    }
}

/// Returns whether the host is this machine, to which a password may be sent in plain text.
#[must_use]
pub fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
