//! TCP and TLS connections to the broker and to ClickHouse: certificates and keys from files, the
//! handshake, and the cause of a failed handshake.
//!
//! ```text
//! address ─▶ TCP ─▶ TLS (certificate files are read for each connection) ─▶ Stream
//!                    └─▶ an error that names the setting to change
//! ```
//!
//! Guarantee: the server's certificate and name are always verified; no setting disables this. The
//! configured files are read again for every connection, so an operator can replace them without a
//! restart. If a file cannot be used, milepost logs the fault, and keeps the last usable files.
//! Uses rustls with ring, which needs no C library.

mod address;
mod explain;
pub mod nodes;
mod one_reader;
mod server;

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, Error as RustlsError, InconsistentKeys, RootCertStore};
use tracing::warn;

use milepost_core::throttle::Throttle;

pub use self::address::Address;
pub use self::explain::{explain, port_hint};
use self::explain::{not_a_tls_port, without_time};
pub use self::one_reader::OneReader;
pub use self::server::{Server, is_this_machine};

/// Maximum age of the system's list of public CAs. A new connection reads an older list again.
const SYSTEM_CAS_AGE_MAX: Duration = Duration::from_secs(600);
/// Interval between log lines about an unusable file.
const UNUSABLE_LOGGED_EVERY: Duration = Duration::from_secs(60);
/// Maximum size of a file in bytes: four times the size of a system's list of public CAs.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// A connection over TCP, or over TLS.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot be reached")]
    Unreachable(#[source] io::Error),
    /// A configured file cannot be used.
    #[error("{0}")]
    File(String),
    #[error("no TLS: {explanation}")]
    Handshake {
        /// The cause and the setting to change.
        explanation: String,
        #[source]
        source: io::Error,
    },
}

/// The files of one server's section in the configuration.
#[derive(Debug, Clone)]
pub struct Files {
    pub server: Server,
    /// PEM: the CAs that may sign the server's certificate. `None`: the system's list, to which
    /// companies add their own CA.
    pub ca: Option<PathBuf>,
    /// PEM: the client certificate and its intermediates.
    pub cert: Option<PathBuf>,
    /// PEM: the key of the client certificate, without a passphrase.
    pub key: Option<PathBuf>,
}

/// The content of the files.
#[derive(PartialEq, Eq)]
struct Contents {
    ca: Option<Pem>,
    cert: Option<Pem>,
    key: Option<Pem>,
}

impl Files {
    /// Returns the faults of the files, one line per key.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let mut violations = Vec::new();
        for (name, path) in
            [("ca_file", &self.ca), ("cert_file", &self.cert), ("key_file", &self.key)]
        {
            violations.extend(self.read_one(name, path).err().map(|error| error.to_string()));
        }
        if self.cert.is_some() != self.key.is_some() {
            let (given, missing) = if self.cert.is_some() {
                ("cert_file", "key_file")
            } else {
                ("key_file", "cert_file")
            };
            let section = self.server.section();
            violations.push(format!(
                "{section}.{missing}: missing, but {section}.{given} is set; set both or neither"
            ));
        }
        if violations.is_empty()
            && let Err(error) = self.read().and_then(|contents| self.build(&contents))
        {
            violations.push(error.to_string());
        }
        violations
    }

    /// Reads the files. Fails if a file cannot be read.
    fn read(&self) -> Result<Contents, Error> {
        Ok(Contents {
            ca: self.read_one("ca_file", &self.ca)?,
            cert: self.read_one("cert_file", &self.cert)?,
            key: self.read_one("key_file", &self.key)?,
        })
    }

    /// Reads one file, if it is configured. `name`: the setting's key in the section.
    fn read_one(&self, name: &str, path: &Option<PathBuf>) -> Result<Option<Pem>, Error> {
        let read = |path| Pem::read(format!("{}.{name}", self.server.section()), path);
        path.as_deref().map(read).transpose()
    }

    /// Builds the TLS configuration. Fails if a file does not contain the certificates or the key
    /// that its setting requires. Also fails if `ca_file` is not set and the system has no list of
    /// CAs.
    fn build(&self, contents: &Contents) -> Result<ClientConfig, Error> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring supports TLS 1.2 and 1.3")
            .with_root_certificates(self.roots(contents.ca.as_ref())?);
        let mut config = if let (Some(cert), Some(key)) = (&contents.cert, &contents.key) {
            builder.with_client_auth_cert(cert.certificates()?, key.private_key()?).map_err(
                |error| {
                    if matches!(error, RustlsError::InconsistentKeys(InconsistentKeys::KeyMismatch))
                    {
                        key.unusable(format!("is not the key of {}", cert.path.display()))
                    } else {
                        cert.unusable(error)
                    }
                },
            )?
        } else {
            builder.with_no_client_auth()
        };
        // Do not resume TLS sessions: a resumed session does not verify the certificate again.
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    /// Returns the CAs that may sign the server's certificate: those in `ca`, or the system's.
    fn roots(&self, ca: Option<&Pem>) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        if let Some(ca) = ca {
            for certificate in ca.certificates()? {
                roots.add(certificate).map_err(|error| ca.unusable(error))?;
            }
            return Ok(roots);
        }
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            let section = self.server.section();
            return Err(Error::File(format!(
                "{section}.ca_file: this system has no list of public CAs; install \
                 ca-certificates, or set {section}.ca_file to the CA of the server"
            )));
        }
        Ok(roots)
    }
}

/// A PEM file that was read.
#[derive(PartialEq, Eq)]
struct Pem {
    /// The full name of the setting, such as `mqtt.ca_file`.
    setting: String,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl Pem {
    fn read(setting: String, path: &Path) -> Result<Self, Error> {
        let mut pem = Self { setting, path: path.to_owned(), bytes: Vec::new() };
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut pem.bytes))
            .map_err(|error| pem.unusable(error))?;
        if pem.bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(pem.unusable("is larger than any list of certificates"));
        }
        Ok(pem)
    }

    fn unusable(&self, why: impl fmt::Display) -> Error {
        Error::File(format!("{}: {}: {why}", self.setting, self.path.display()))
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, Error> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let certificates = certificates.map_err(|error| self.unusable(error))?;
        if certificates.is_empty() {
            return Err(self.unusable("holds no certificate; give a PEM file"));
        }
        Ok(certificates)
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, Error> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|_| {
            self.unusable("holds no private key that can be read without a passphrase (PEM)")
        })
    }
}

/// Connects, over TLS if `tls` is given. `within`: time limit for connecting over TCP, at most 3 s;
/// `None` stands for 3 s. The TLS handshake has no time limit.
pub async fn open(
    address: &Address,
    within: Option<Duration>,
    tls: Option<Arc<Tls>>,
) -> Result<Box<dyn Stream>, Error> {
    let stream = address.reach(within).await.map_err(Error::Unreachable)?;
    match tls {
        None => Ok(Box::new(stream)),
        Some(tls) => tls.handshake(&address.host, stream).await,
    }
}

/// TLS for the connections to one server.
pub struct Tls {
    files: Files,
    reader: OneReader<Result<Arc<ClientConfig>, Error>>,
    /// The last usable files, and the throttle of log lines about unusable files.
    last: Mutex<(Option<LastUsable>, Throttle)>,
}

/// The last usable files, and the TLS configuration that was built from them.
struct LastUsable {
    contents: Contents,
    read_at: Instant,
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Tls {
    /// Hides the private key, which a derived implementation would show.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Creates the TLS settings of a server. Reads no file: each connection reads the files.
    #[must_use]
    pub fn new(files: Files) -> Self {
        let last = (None, Throttle::every(UNUSABLE_LOGGED_EVERY));
        Self { files, reader: OneReader::default(), last: Mutex::new(last) }
    }

    /// Performs the TLS handshake with `host`, without a time limit. Fails with [`Error::File`] if
    /// the files are unusable and were unusable for every earlier connection.
    pub async fn handshake(
        self: Arc<Self>,
        host: &str,
        stream: TcpStream,
    ) -> Result<Box<dyn Stream>, Error> {
        let this = Arc::clone(&self);
        // `reader` waits for the disk on a thread of its own, so a hung disk blocks only the
        // connections to this server.
        let config = self.reader.read(move || this.config()).await?;
        let failed = |source: io::Error| {
            let source = without_time(source);
            let explanation =
                explain(self.files.server, &source).unwrap_or_else(|| self.explain_io(&source));
            Error::Handshake { explanation, source }
        };
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| failed(io::Error::other(error)))?;
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(failed)?;
        Ok(Box::new(stream))
    }

    /// Reads the files, and returns the TLS configuration. Blocks for as long as the disk takes.
    fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let mut guard = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, unusable_log) = &mut *guard;
        let read = self.files.read();
        // Build the configuration again only if a file has changed. Without `ca_file`, build it
        // again also after a while, because the system's list of CAs may have changed.
        if let (Ok(contents), Some(used)) = (&read, &*last)
            && *contents == used.contents
            && (self.files.ca.is_some() || used.read_at.elapsed() < SYSTEM_CAS_AGE_MAX)
        {
            return Ok(Arc::clone(&used.config));
        }
        let built = read.and_then(|contents| {
            self.files.build(&contents).map(|config| (contents, Arc::new(config)))
        });
        match (built, &*last) {
            (Ok((contents, config)), _) => {
                let read_at = Instant::now();
                *last = Some(LastUsable { contents, read_at, config: Arc::clone(&config) });
                Ok(config)
            }
            (Err(error), Some(used)) => {
                if unusable_log.allow(Instant::now()) {
                    warn!(%error, "keeping the certificates that were read before");
                }
                Ok(Arc::clone(&used.config))
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Returns the cause of a handshake that failed with an error of the connection, not of TLS.
    fn explain_io(&self, error: &io::Error) -> String {
        let hung_up = [
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
        ];
        if hung_up.contains(&error.kind()) {
            return not_a_tls_port(self.files.server);
        }
        "the connection failed during the handshake".to_owned()
    }
}
