//! Parses CONNACK, SUBACK and UNSUBACK. A refusal becomes a sentence that names the setting to
//! change.

use rumqttc::v5::mqttbytes::Error as LibraryError;
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Packet as LibraryPacket, SubscribeReasonCode, UnsubAck, UnsubAckReason,
};

use super::header::Header;
use super::packet::{CONNACK, CodecError, Grant, Packet, UNSUBSCRIBE_PACKET_ID};
use milepost_core::Qos;
use milepost_core::session::ConnAck;

/// Maximum number of characters of the broker's own words that a refusal quotes.
const QUOTED_CHARS_MAX: usize = 400;

/// Parses CONNACK. A CONNACK that refuses the connection is an error.
pub(super) fn connack(body: &[u8]) -> Result<Packet<'static>, CodecError> {
    let reason = *body.get(1).ok_or(LibraryError::MalformedPacket)?;
    let answer = Header { kind: CONNACK, flags: 0, body_bytes: body.len() }.decode_by_library(body);
    if reason != 0 {
        let properties =
            if let Ok(LibraryPacket::ConnAck(answer)) = answer { answer.properties } else { None };
        let reason_string = properties.and_then(|properties| properties.reason_string);
        let quoted = reason_string.map_or(String::new(), |text| format!(" (\"{}\")", cut(&text)));
        return Err(CodecError::Refused {
            reason,
            explanation: format!("{}{quoted}", refusal(reason)),
        });
    }
    let LibraryPacket::ConnAck(answer) = answer? else {
        return Err(CodecError::Unexpected(CONNACK));
    };
    let terms = answer.properties.as_ref();
    Ok(Packet::Connected(ConnAck {
        session_present: answer.session_present,
        receive_maximum: terms.and_then(|terms| terms.receive_max),
        keep_alive_seconds: terms.and_then(|terms| terms.server_keep_alive),
        session_expiry_seconds: terms.and_then(|terms| terms.session_expiry_interval),
        packet_bytes_max: terms.and_then(|terms| terms.max_packet_size),
        no_shared_subscriptions: terms.and_then(|terms| terms.shared_subscription_available)
            == Some(0),
    }))
}

/// Returns the beginning of the broker's words.
fn cut(text: &str) -> String {
    let end = text.char_indices().nth(QUOTED_CHARS_MAX);
    end.map_or_else(|| text.to_owned(), |(end, _)| format!("{}…", &text[..end]))
}

/// Returns CONNACK's reason in words, and what to change (MQTT 5, 3.2.2.2; codes below 0x80 are
/// MQTT 3.1.1's).
fn refusal(reason: u8) -> String {
    let explanation = match reason {
        0x01 | 0x84 => "it does not speak MQTT 5",
        0x02 | 0x85 => "it does not accept this client id; change mqtt.client_id",
        0x04 | 0x86 => "bad user name or password; set mqtt.username and mqtt.password_file",
        0x05 | 0x87 => {
            "not authorized (a broker that is still starting may answer this too); if it lasts, \
             set mqtt.username and mqtt.password_file, or grant this user access on the broker"
        }
        0x03 | 0x88 => "the server is unavailable",
        0x89 => "the server is busy",
        0x8A => "the broker has banned this client",
        0x8C => "bad authentication method; milepost supports only user name and password",
        0x97 => "a quota on the broker is exceeded",
        0x9C | 0x9D => "use another server; change mqtt.url",
        0x9F => "too many connections per second",
        _ => return format!("reason {reason:#04x}"),
    };
    explanation.to_owned()
}

/// Converts a reason code of SUBACK.
pub(super) fn grant(code: SubscribeReasonCode) -> Grant {
    match code {
        SubscribeReasonCode::Success(QoS::AtMostOnce) => Grant::Granted(Qos::AtMostOnce),
        SubscribeReasonCode::Success(QoS::AtLeastOnce | QoS::ExactlyOnce) => {
            Grant::Granted(Qos::AtLeastOnce)
        }
        SubscribeReasonCode::NotAuthorized => Grant::NotAuthorized,
        SubscribeReasonCode::SharedSubscriptionsNotSupported => Grant::NoSharedSubscriptions,
        SubscribeReasonCode::Failure
        | SubscribeReasonCode::Unspecified
        | SubscribeReasonCode::ImplementationSpecific
        | SubscribeReasonCode::TopicFilterInvalid
        | SubscribeReasonCode::PkidInUse
        | SubscribeReasonCode::QuotaExceeded
        | SubscribeReasonCode::SubscriptionIdNotSupported
        | SubscribeReasonCode::WildcardSubscriptionsNotSupported => {
            Grant::Refused(format!("{code:?}"))
        }
    }
}

/// Parses UNSUBACK.
pub(super) fn unsuback(header: Header, body: &[u8]) -> Result<Packet<'static>, CodecError> {
    let LibraryPacket::UnsubAck(UnsubAck { pkid, reasons, .. }) = header.decode_by_library(body)?
    else {
        return Err(CodecError::Unexpected(header.kind));
    };
    if pkid != UNSUBSCRIBE_PACKET_ID {
        return Err(CodecError::UnknownPacketId(pkid));
    }
    let refusal = |reason| match reason {
        UnsubAckReason::Success | UnsubAckReason::NoSubscriptionExisted => None,
        UnsubAckReason::NotAuthorized => Some("not authorized".to_owned()),
        UnsubAckReason::UnspecifiedError
        | UnsubAckReason::ImplementationSpecificError
        | UnsubAckReason::TopicFilterInvalid
        | UnsubAckReason::PacketIdentifierInUse => Some(format!("{reason:?}")),
    };
    Ok(Packet::Unsubscribed(reasons.into_iter().filter_map(refusal).collect()))
}
