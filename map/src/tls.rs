//! Reads the server's certificate, and requests `/readyz` over TLS for `milepost-map health`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use milepost_observe::http::ask_ready_over;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    StreamOwned,
};

/// Loads certificate and key. Blocks while it reads the disk.
///
/// # Errors
/// The setting, and what is wrong with its file.
pub fn read(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, String> {
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect);
    let certificates =
        certificates.map_err(|error| format!("http.cert_file: {}: {error}", cert.display()))?;
    if certificates.is_empty() {
        return Err(format!(
            "http.cert_file: {}: holds no certificate; give a PEM file",
            cert.display()
        ));
    }
    let key_unusable =
        |why: &dyn std::fmt::Display| format!("http.key_file: {}: {why}", key.display());
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| key_unusable(&error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports TLS 1.2 and 1.3");
    let config = builder.with_no_client_auth().with_single_cert(certificates, private);
    config.map(Arc::new).map_err(|error| key_unusable(&error))
}

/// Requests `/readyz` of a running milepost-map over TLS.
///
/// # Errors
/// The server is not ready (the error is the body of its response), or it did not answer (the error
/// says why).
pub fn ask_ready(listen: SocketAddr) -> Result<(), String> {
    ask_ready_over(listen, |address, stream| {
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(std::io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        let connection = ClientConnection::new(Arc::new(config), ServerName::from(address.ip()));
        Ok(StreamOwned::new(connection.map_err(std::io::Error::other)?, stream))
    })
}

/// Accepts any certificate: `health` asks its own address, sends no secret, and the certificate
/// names the public host.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
