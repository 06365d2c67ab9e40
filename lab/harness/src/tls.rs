//! Certificates made on the spot, and TLS before a plain server.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// For these host names and addresses.
    pub fn sign(&self, names: &[&str]) -> Result<Identity> {
        self.sign_until(names, 2099)
    }

    /// Not valid from that year on.
    pub fn sign_until(&self, names: &[&str], year: i32) -> Result<Identity> {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, names[0]);
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate()?;
        Ok(Identity { cert: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

/// A certificate and its key, as PEM.
pub struct Identity {
    pub cert: String,
    pub key: String,
}

/// TLS before a plain server of this machine.
pub struct TlsFront {
    pub port: u16,
    config: Arc<Mutex<Arc<ServerConfig>>>,
}

fn server_config(identity: &Identity) -> Result<Arc<ServerConfig>> {
    let certs = CertificateDer::pem_slice_iter(identity.cert.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(Arc::new(
        builder.with_safe_default_protocol_versions()?.with_no_client_auth().with_single_cert(certs, key)?,
    ))
}

impl TlsFront {
    pub fn start(identity: &Identity, target: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let config = Arc::new(Mutex::new(server_config(identity)?));
        let current = Arc::clone(&config);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                while let Ok((stream, _)) = listener.accept().await {
                    let config = Arc::clone(&current.lock().unwrap_or_else(PoisonError::into_inner));
                    tokio::spawn(async move {
                        let mut outside = TlsAcceptor::from(config).accept(stream).await?;
                        let mut inside =
                            tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
                        tokio::io::copy_bidirectional(&mut outside, &mut inside).await
                    });
                }
            });
        });
        Ok(Self { port, config })
    }

    /// For connections from now on.
    pub fn show(&self, identity: &Identity) -> Result<()> {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = server_config(identity)?;
        Ok(())
    }
}
