//! The address of a server, and TCP connections to it.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// Timeout for connecting over TCP, for all addresses of a name together. Shorter than the callers'
/// timeout, so that an error distinguishes a silent network from a silent server.
const TCP_TIMEOUT: Duration = Duration::from_secs(3);

/// A host name or IP address, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub host: String,
    pub port: u16,
    /// The only address to connect to. `None`: any address of the host name.
    pub ip: Option<IpAddr>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, ip } = self;
        match ip {
            Some(ip) => SocketAddr::new(*ip, *port).fmt(f),
            None if host.contains(':') => write!(f, "[{host}]:{port}"),
            None => write!(f, "{host}:{port}"),
        }
    }
}

impl Address {
    /// Returns every address of the host name, or the name itself if it has one address. `None`:
    /// the name did not resolve.
    ///
    /// Only addresses of the same family (IPv4 or IPv6) as the first address are returned, because
    /// a host with both families is one server. The resolver first lists the family that this
    /// machine can reach.
    pub async fn all(&self) -> Option<Vec<Self>> {
        let addresses =
            timeout(TCP_TIMEOUT, lookup_host((self.host.as_str(), self.port))).await.ok()?.ok()?;
        let ips: Vec<IpAddr> = addresses.map(|address| address.ip()).collect();
        let is_v4 = ips.first().is_some_and(IpAddr::is_ipv4);
        let ips: BTreeSet<IpAddr> = ips.into_iter().filter(|ip| ip.is_ipv4() == is_v4).collect();
        if ips.len() < 2 {
            return Some(vec![self.clone()]);
        }
        Some(ips.into_iter().map(|ip| Self { ip: Some(ip), ..self.clone() }).collect())
    }

    /// Connects to the first address that answers. Each address gets an equal share of the time, so
    /// that a dead address does not use up all the time. `within`: time limit. The default and the
    /// maximum is [`TCP_TIMEOUT`].
    pub(super) async fn reach(&self, within: Option<Duration>) -> io::Result<TcpStream> {
        let within = within.map_or(TCP_TIMEOUT, |within| within.min(TCP_TIMEOUT));
        let reached = timeout(within, self.reach_any(within)).await;
        reached.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Like [`reach`](Self::reach), but without a time limit for the lookup. `within`: the time
    /// that all addresses together get.
    async fn reach_any(&self, within: Duration) -> io::Result<TcpStream> {
        let addresses: Vec<_> = match self.ip {
            Some(ip) => vec![SocketAddr::new(ip, self.port)],
            None => lookup_host((self.host.as_str(), self.port)).await?.collect(),
        };
        let share = within / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        let mut last_error =
            io::Error::new(io::ErrorKind::NotFound, "the host name resolves to no address");
        for address in addresses {
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return stream.set_nodelay(true).map(|()| stream),
                Ok(Err(error)) => last_error = error,
                Err(_) => last_error = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last_error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn host_with_two_address_families_is_one_server() {
        let address = |host: &str| Address { host: host.to_owned(), port: 1883, ip: None };
        for host in ["localhost", "127.0.0.1"] {
            assert_eq!(address(host).all().await, Some(vec![address(host)]));
        }
        assert_eq!(address("no such name").all().await, None);
    }
}
