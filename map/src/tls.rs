//! The certificate that viewers see. Its files are looked at again every minute, so that you can renew it without a restart.
//! And `milepost-map health`, where there is one.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, SignatureScheme, StreamOwned,
};

/// As long as milepost's own waits.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(3);

/// Blocks for as long as the disk takes.
///
/// # Errors
/// In words, with the key.
pub fn read(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect);
    let certificates =
        certificates.map_err(|error| format!("http.cert_file: {}: {error}", cert.display()))?;
    if certificates.is_empty() {
        return Err(format!(
            "http.cert_file: {}: holds no certificate; a PEM file is wanted",
            cert.display()
        ));
    }
    let key_unusable = |why: &dyn std::fmt::Display| format!("http.key_file: {}: {why}", key.display());
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| key_unusable(&error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring knows TLS 1.2 and 1.3");
    let config = builder.with_no_client_auth().with_single_cert(certificates, private);
    config.map(Arc::new).map_err(|error| key_unusable(&error))
}

/// Asks a running milepost-map's `/readyz` over TLS, as milepost's `ask_ready` does without.
///
/// # Errors
/// What it said, or why it could not be asked.
pub fn ask_ready(listen: SocketAddr) -> Result<(), String> {
    let host = if listen.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { listen.ip() };
    let address = SocketAddr::new(host, listen.port());
    let answer = ask(address).map_err(|error| format!("no answer at {address}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    if head.starts_with("HTTP/1.1 200 ") { Ok(()) } else { Err(format!("not ready: {}", body.trim_end())) }
}

fn ask(address: SocketAddr) -> std::io::Result<String> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(std::io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), ServerName::from(address.ip()));
    let stream = TcpStream::connect_timeout(&address, HEALTH_TIMEOUT)?;
    stream.set_read_timeout(Some(HEALTH_TIMEOUT))?;
    let mut stream = StreamOwned::new(connection.map_err(std::io::Error::other)?, stream);
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        // Who closes without saying so has said all the same.
        Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

/// Whoever answers: we ask our own address, send nothing secret, and the certificate names the host that viewers know.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
