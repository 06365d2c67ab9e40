//! Certificates generated for a test, and a TLS proxy in front of a plain server.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use lab_stack::lock;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::server::Server;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Certificate of the authority, as PEM.
    pub pem: String,
}

impl Authority {
    /// Creates an authority with a self-signed certificate of this common name.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Signs a certificate for these host names and addresses, valid from 2000 until 2099.
    pub fn sign(&self, names: &[&str]) -> Result<Identity> {
        self.sign_until(names, 2099)
    }

    /// Signs a certificate that is valid from 2000 and expires at the beginning of `year`.
    pub fn sign_until(&self, names: &[&str], year: i32) -> Result<Identity> {
        let mut params = CertificateParams::new(
            names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(),
        )?;
        params.distinguished_name.push(DnType::CommonName, names[0]);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate()?;
        Ok(Identity { cert: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

/// A certificate and its private key, as PEM.
pub struct Identity {
    pub cert: String,
    pub key: String,
}

/// A TLS proxy in front of a plain server on this machine.
pub struct TlsFront {
    /// Port of the listener on the loopback.
    pub port: u16,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    _server: Server,
}

fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>> {
    let certs =
        CertificateDer::pem_slice_iter(identity.cert.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(Arc::new(
        builder
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certs, key)?,
    ))
}

impl TlsFront {
    /// Listens on a free port of the loopback, and forwards to port `target`.
    pub fn start(identity: &Identity, target: u16) -> Result<Self> {
        let config = Arc::new(Mutex::new(server_config(identity)?));
        let current = Arc::clone(&config);
        let server = Server::start(None, move |stream| {
            let acceptor = TlsAcceptor::from(Arc::clone(&lock(&current)));
            async move { drop(forward(acceptor, stream, target).await) }
        })?;
        Ok(Self { port: server.port, config, _server: server })
    }

    /// Sets the certificate for new connections.
    pub fn set_certificate(&self, identity: &Identity) -> Result<()> {
        *lock(&self.config) = server_config(identity)?;
        Ok(())
    }
}

async fn forward(acceptor: TlsAcceptor, client: TcpStream, target: u16) -> io::Result<()> {
    let mut client = acceptor.accept(client).await?;
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}
