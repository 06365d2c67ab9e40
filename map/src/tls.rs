//! The certificate that viewers see. Its files are looked at again every minute, so that you can renew it without a restart.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

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
