//! The two servers that we speak to over TLS, and how their settings are called.

use std::net::IpAddr;

/// Whom we speak to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// The MQTT broker.
    Broker,
    /// ClickHouse.
    ClickHouse,
}

impl Server {
    /// Its section in the configuration.
    #[must_use]
    pub(crate) const fn section(self) -> &'static str {
        match self {
            Self::Broker => "mqtt",
            Self::ClickHouse => "clickhouse",
        }
    }

    /// Of URLs with TLS, and without.
    pub(super) const fn schemes(self) -> (&'static str, &'static str) {
        match self {
            Self::Broker => ("mqtts", "mqtt"),
            Self::ClickHouse => ("https", "http"),
        }
    }
}

/// A password may go there in plain text: it does not leave this machine.
#[must_use]
pub(crate) fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
