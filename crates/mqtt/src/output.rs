//! Writes packets.

use bytes::{BufMut as _, BytesMut};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    Connect as ConnectPacket, ConnectProperties, Filter, Login, PingReq, Publish,
    RetainForwardRule, Subscribe, Unsubscribe,
};

use super::packet::{CodecError, Connect, Subscribing, UNSUBSCRIBE_PACKET_ID};
use milepost_core::Qos;

/// Writes CONNECT.
///
/// # Errors
/// A field is longer than MQTT allows.
pub fn put_connect(connect: Connect<'_>, out: &mut BytesMut) -> Result<(), CodecError> {
    let login = connect.login.map(|(username, password)| Login::new(username, password));
    let connect = ConnectPacket {
        keep_alive: connect.keep_alive_seconds,
        client_id: connect.client_id,
        clean_start: connect.clean_start,
        properties: Some(ConnectProperties {
            session_expiry_interval: Some(connect.session_expiry_seconds),
            receive_maximum: Some(connect.receive_maximum),
            max_packet_size: Some(connect.packet_bytes_max),
            topic_alias_max: None, // no aliases: a PUBLISH with an alias may have no topic
            ..ConnectProperties::new()
        }),
    };
    connect.write(&None, &login, out)?;
    Ok(())
}

/// Writes SUBSCRIBE. It requests no retained messages, except for the broker's own counters
/// (`$SYS/…`). A retained message is an old fix, and Mosquitto 2.0 would send it to every session
/// at each reconnect. milepost would store a retained fix without a time as a new fix.
///
/// # Errors
/// The filters are longer than MQTT allows.
pub fn put_subscribe(
    kind: Subscribing,
    filters: &[String],
    qos: Qos,
    out: &mut BytesMut,
) -> Result<(), CodecError> {
    let qos = match qos {
        Qos::AtMostOnce => QoS::AtMostOnce,
        Qos::AtLeastOnce => QoS::AtLeastOnce,
    };
    let filters = filters.iter().map(|path| {
        let mut filter = Filter::new(path, qos);
        if !path.starts_with("$SYS/") {
            filter.retain_forward_rule = RetainForwardRule::Never;
        }
        filter
    });
    let filters = filters.collect();
    Subscribe { pkid: kind.packet_id(), filters, properties: None }.write(out)?;
    Ok(())
}

/// Writes UNSUBSCRIBE.
///
/// # Errors
/// The filters are longer than MQTT allows.
pub fn put_unsubscribe(filters: &[String], out: &mut BytesMut) -> Result<(), CodecError> {
    Unsubscribe { pkid: UNSUBSCRIBE_PACKET_ID, filters: filters.to_vec(), properties: None }
        .write(out)?;
    Ok(())
}

/// Writes a PUBLISH at QoS 1. `retain`: whether the broker keeps the message for later subscribers.
///
/// # Errors
/// The topic is longer than MQTT allows.
pub fn put_publish(
    topic: &str,
    payload: &[u8],
    retain: bool,
    out: &mut BytesMut,
) -> Result<(), CodecError> {
    let mut publish = Publish::new(topic, QoS::AtLeastOnce, payload.to_vec(), None);
    publish.pkid = 1; // a caller waits for the PUBACK before it sends the next message
    publish.retain = retain;
    publish.write(out)?;
    Ok(())
}

/// Writes PINGREQ.
///
/// # Errors
/// None in practice: the packet has a constant length.
pub fn put_ping(out: &mut BytesMut) -> Result<(), CodecError> {
    PingReq::write(out)?;
    Ok(())
}

/// Writes a normal DISCONNECT. The broker keeps the session for as long as CONNECT requested. With
/// `end_session` the broker ends the session: DISCONNECT sets the Session Expiry Interval to 0
/// (MQTT 5, 3.14.2.2.2).
pub fn put_disconnect(end_session: bool, out: &mut BytesMut) {
    if end_session {
        out.put_slice(&[0xE0, 7, 0x00, 5, 0x11, 0, 0, 0, 0]);
    } else {
        out.put_slice(&[0xE0, 0]);
    }
}

/// Writes PUBACK with reason code 0, which MQTT 5 omits (3.4.2.1).
pub fn put_ack(packet_id: u16, out: &mut BytesMut) {
    let [high, low] = packet_id.to_be_bytes();
    out.put_slice(&[0x40, 2, high, low]);
}
