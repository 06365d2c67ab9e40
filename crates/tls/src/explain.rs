//! Explains why TLS failed, and which setting to change.

use std::io;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as RustlsError};

use super::server::Server;

/// Returns the cause of a failed handshake with a server that does not speak TLS on this port.
pub(super) fn not_a_tls_port(server: Server) -> String {
    let (tls, plain) = server.schemes();
    let section = server.section();
    format!(
        "the server does not speak TLS on this port; set {section}.url to its TLS port, or use \
         {plain}:// instead of {tls}://"
    )
}

/// Returns a hint for a connection on which the server does not speak the expected protocol.
/// `with_tls`: whether milepost used TLS on this connection.
#[must_use]
pub fn port_hint(server: Server, with_tls: bool) -> String {
    let (tls, plain) = server.schemes();
    let section = server.section();
    if with_tls {
        format!(
            "does this port speak TLS, and {section}'s protocol over it? If not, set \
             {section}.url to the TLS port, or use {plain}://"
        )
    } else {
        format!("is this a TLS port? Then use {tls}:// in {section}.url")
    }
}

/// Returns the cause of a failed read, write or handshake, and the setting to change; `None` if the
/// cause is not TLS.
#[must_use]
#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is non-exhaustive")]
pub fn explain(server: Server, error: &io::Error) -> Option<String> {
    let error = rustls_error(error)?;
    let explanation = match error {
        RustlsError::InvalidCertificate(error) => explain_certificate(server.section(), error),
        RustlsError::InvalidMessage(_) => not_a_tls_port(server),
        RustlsError::AlertReceived(alert) => explain_alert(server.section(), *alert),
        RustlsError::PeerIncompatible(_) => {
            "the server offers neither TLS 1.2 nor 1.3 with a cipher that milepost supports; \
             enable one on the server"
                .to_owned()
        }
        _ => "TLS failed".to_owned(),
    };
    Some(explanation)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is non-exhaustive")]
fn explain_certificate(section: &str, error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "the server's certificate is not signed by a CA that milepost trusts; \
             set {section}.ca_file to the CA that signed it"
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired; renew it on the server".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate is not valid yet; are both clocks right?".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "the server's certificate is for another host name; \
                 set {section}.url to a host name that is in the certificate"
            )
        }
        _ => "the server's certificate cannot be used".to_owned(),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "an alert is one byte, and most values have no cause that an operator can fix"
)]
fn explain_alert(section: &str, alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            format!(
                "the server requires a client certificate; \
                 set {section}.cert_file and {section}.key_file"
            )
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied
        | AlertDescription::DecryptError => format!(
            "the server refuses the client certificate; \
             {section}.cert_file must be valid, and signed by a CA that the server trusts"
        ),
        AlertDescription::HandshakeFailure => format!(
            "the server refuses the handshake; \
             does it require a client certificate ({section}.cert_file, {section}.key_file)?"
        ),
        _ => "the server ended TLS".to_owned(),
    }
}

/// Removes the time of the attempt from the error. With the time, the error of each attempt would
/// count as a new reason and be logged.
#[expect(clippy::wildcard_enum_match_arm, reason = "the library's enum is non-exhaustive")]
pub(super) fn without_time(error: io::Error) -> io::Error {
    let Some(RustlsError::InvalidCertificate(certificate)) = rustls_error(&error) else {
        return error;
    };
    let timeless = match certificate {
        CertificateError::ExpiredContext { .. } => CertificateError::Expired,
        CertificateError::NotValidYetContext { .. } => CertificateError::NotValidYet,
        _ => return error,
    };
    io::Error::new(error.kind(), RustlsError::InvalidCertificate(timeless))
}

/// Returns the error of rustls in this error or in an error that it wraps; `None` if there is none.
fn rustls_error(error: &io::Error) -> Option<&RustlsError> {
    let inner = error.get_ref()?;
    inner.downcast_ref::<RustlsError>().or_else(|| rustls_error(inner.downcast_ref::<io::Error>()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_rustls::rustls::pki_types::UnixTime;

    use super::*;

    #[test]
    fn expired_certificate_has_the_same_reason_at_each_attempt() {
        let at = |seconds| {
            let (time, not_after) =
                (UnixTime::since_unix_epoch(Duration::from_secs(seconds)), UnixTime::now());
            let expired = CertificateError::ExpiredContext { time, not_after };
            without_time(io::Error::other(RustlsError::InvalidCertificate(expired)))
        };
        assert_eq!(at(1).to_string(), at(2).to_string());
        assert!(explain(Server::Broker, &at(1)).unwrap().contains("has expired"));
    }

    #[test]
    fn wrapped_tls_error_is_explained() {
        let alert = |alert| io::Error::other(io::Error::other(RustlsError::AlertReceived(alert)));
        for (error, expected) in [
            (alert(AlertDescription::CertificateRequired), "set mqtt.cert_file and mqtt.key_file"),
            (alert(AlertDescription::HandshakeFailure), "(mqtt.cert_file, mqtt.key_file)?"),
            (alert(AlertDescription::UnknownCA), "mqtt.cert_file must be valid"),
            (alert(AlertDescription::InternalError), "ended TLS"),
            (
                io::Error::other(RustlsError::InvalidCertificate(CertificateError::NotValidYet)),
                "are both clocks right?",
            ),
        ] {
            let advice = explain(Server::Broker, &error).unwrap();
            assert!(advice.contains(expected), "{expected} is not in {advice}");
        }
        assert_eq!(explain(Server::Broker, &io::Error::other("reset")), None);
        let plain = port_hint(Server::ClickHouse, false);
        assert_eq!(plain, "is this a TLS port? Then use https:// in clickhouse.url");
        assert!(
            port_hint(Server::Broker, true)
                .ends_with("set mqtt.url to the TLS port, or use mqtt://")
        );
    }
}
