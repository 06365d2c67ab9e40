//! The MQTT codec: the same packets however the bytes are split, and no panic or memory growth on
//! any input.
#![expect(clippy::unwrap_used, reason = "a helper may panic, which fails its test")]

#[path = "../../../tests/pure/cases.rs"]
mod cases;

use bytes::{BufMut as _, BytesMut};
use milepost_core::Qos;
use milepost_core::session::ConnAck;
use milepost_mqtt as codec;
use milepost_mqtt::{CodecError, Connect, Grant, Input, Packet, Subscribing};
use proptest::prelude::*;
use rumqttc::v5::mqttbytes::v5::{self as library, PublishProperties};
use rumqttc::v5::mqttbytes::{Error as LibraryError, QoS};

/// CONNACK: session present, success, no properties.
const CONNACK: [u8; 5] = [0x20, 3, 1, 0, 0];
const PACKET_BYTES_MAX: usize = 1_024;
/// Maximum size of the buffer: one read, and a PUBLISH up to its properties with the longest topic.
const INPUT_BYTES_MAX: usize = 5 + 2 + 65_535 + 2 + 4 + 16 * 1024;
/// Maximum length of a truncated payload, in bytes.
const TRUNCATED_BYTES_MAX: usize = 64 * 1024;

/// Owned copy of [`milepost_decode::Message`].
#[derive(Debug, Clone, PartialEq, Eq)]
struct Message {
    topic: Vec<u8>,
    payload: Vec<u8>,
    payload_bytes: usize,
    packet_id: Option<u16>,
    redelivered: bool,
}

impl Message {
    fn from_borrowed(message: milepost_decode::Message<'_>) -> Self {
        let milepost_decode::Message { topic, payload, payload_bytes, packet_id, redelivered } =
            message;
        Self {
            topic: topic.to_vec(),
            payload: payload.to_vec(),
            payload_bytes,
            packet_id,
            redelivered,
        }
    }
}

/// Reads a CONNACK and then these chunks. Returns the messages, and the error that ended the
/// connection, if any.
fn read<'a>(
    chunks: impl Iterator<Item = &'a [u8]>,
    bytes_max: usize,
) -> (Vec<Message>, Option<CodecError>) {
    let mut input = Input::new(bytes_max);
    let mut messages = Vec::new();
    for mut chunk in std::iter::once(&CONNACK[..]).chain(chunks) {
        while !chunk.is_empty() {
            let space = input.space();
            assert!(!space.is_empty() && space.len() <= bytes_max.max(INPUT_BYTES_MAX));
            let bytes = chunk.len().min(space.len());
            space[..bytes].copy_from_slice(&chunk[..bytes]);
            input.advance(bytes);
            chunk = &chunk[bytes..];
            loop {
                match input.packet() {
                    Ok(Some(Packet::Published(publish))) => {
                        messages.push(Message::from_borrowed(publish))
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(error) => return (messages, Some(error)),
                }
            }
        }
    }
    (messages, None)
}

/// Passes bytes to the input, and takes all packets.
fn feed(input: &mut Input, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let space = input.space();
        let length = bytes.len().min(space.len());
        space[..length].copy_from_slice(&bytes[..length]);
        input.advance(length);
        bytes = &bytes[length..];
        while input.packet().unwrap().is_some() {}
    }
}

/// Reads these bytes as one chunk (see [`read`]).
fn read_whole(bytes: &[u8]) -> (Vec<Message>, Option<CodecError>) {
    read(std::iter::once(bytes), PACKET_BYTES_MAX)
}

/// Encodes a PUBLISH. `properties`: arbitrary bytes in place of the properties and their length.
fn publish(message: &Message, properties: &[u8]) -> Vec<u8> {
    let mut body = BytesMut::new();
    body.put_u16(u16::try_from(message.topic.len()).unwrap());
    body.put_slice(&message.topic);
    message.packet_id.iter().for_each(|packet_id| body.put_u16(*packet_id));
    let qos = u8::from(message.packet_id.is_some());
    body.put_slice(properties);
    body.put_slice(&message.payload);
    framed(0x30 | qos << 1 | u8::from(message.redelivered) << 3, &body)
}

fn framed(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    packet.extend(varint(body.len()));
    packet.extend(body);
    packet
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value % 128).unwrap();
        value /= 128;
        bytes.push(if value > 0 { low | 0x80 } else { low });
        if value == 0 {
            return bytes;
        }
    }
}

fn message(topic: &[u8], payload: &[u8], packet_id: u16) -> Message {
    let packet_id = (packet_id > 0).then_some(packet_id);
    let (topic, payload_bytes) = (topic.to_vec(), payload.len());
    Message { topic, payload: payload.to_vec(), payload_bytes, packet_id, redelivered: false }
}

#[test]
fn large_packet_releases_its_memory() {
    let mut input = Input::new(1 << 20);
    feed(&mut input, &CONNACK);
    feed(&mut input, &publish(&message(b"drivers/d/gps", &vec![b' '; 1_000_000], 7), b"\x00"));
    assert!(
        input.space().len() <= 64 * 1024,
        "{} bytes are kept for the next packet",
        input.space().len()
    );
}

#[test]
fn publish_properties_are_never_parsed() {
    let sent = message(b"drivers/d/gps", b"{}", 7);
    let sixty_user_properties = b"\x26\x00\x03key\x00\x05value".repeat(60);
    let sixty = [varint(sixty_user_properties.len()), sixty_user_properties].concat();
    let not_utf8 = b"\x07\x26\x00\x01\xFF\x00\x01\xFE";
    let unknown_property = b"\x02\x7F\x7F";
    for properties in [&sixty[..], not_utf8, unknown_property, b"\x00"] {
        let (messages, error) = read_whole(&publish(&sent, properties));
        assert!(error.is_none(), "{properties:?}: {error:?}");
        assert_eq!(messages, std::slice::from_ref(&sent), "{properties:?}");
    }
}

#[test]
fn property_length_past_the_end_is_read_as_payload() {
    for properties in [&b"\x7F"[..], b"\xFF\xFF\xFF\x7F", b"\xFF\xFF\xFF\xFF\xFF", b"\xFF"] {
        let (messages, error) = read_whole(&publish(&message(b"t", b"", 7), properties));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(messages, [message(b"t", properties, 7)]);
    }
    let (messages, _) = read_whole(&publish(&message(b"t", b"", 7), b""));
    assert_eq!(messages, [message(b"t", b"", 7)], "the property length may be missing");
}

#[test]
fn invalid_packet_ends_the_connection() {
    let topic_past_end = framed(0x32, b"\x00\x09topic");
    let half_a_packet_id = framed(0x32, b"\x00\x05topic\x00");
    let packet_id_0 = framed(0x32, b"\x00\x05topic\x00\x00\x00");
    let half_a_topic_length = framed(0x30, b"\x00");
    let qos_3 = framed(0x36, b"\x00\x01t\x00\x01\x00");
    for packet in [topic_past_end, half_a_packet_id, packet_id_0, half_a_topic_length, qos_3] {
        assert!(matches!(read_whole(&packet), (_, Some(CodecError::Publish))), "{packet:?}");
    }
    let length_of_five_bytes = [0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1];
    assert!(matches!(read_whole(&length_of_five_bytes), (_, Some(CodecError::RemainingLength))));
    assert!(
        matches!(read_whole(&CONNACK), (_, Some(CodecError::Unexpected(2)))),
        "a second CONNACK is invalid"
    );
    let large_suback = framed(0x90, &[0; 2_000]);
    assert!(matches!(read_whole(&large_suback), (_, Some(CodecError::TooLarge { kind: 9, .. }))));
    let before_connack = publish(&message(b"t", b"", 1), b"\x00");
    let mut input = Input::new(PACKET_BYTES_MAX);
    input.space()[..before_connack.len()].copy_from_slice(&before_connack);
    input.advance(before_connack.len());
    assert!(matches!(input.packet(), Err(CodecError::Unexpected(3))));
}

#[test]
fn packet_id_and_dup_survive_truncation() {
    for payload in [&b"{}"[..], &[b'x'; 2_000]] {
        for redelivered in [false, true] {
            let sent = Message { redelivered, ..message(b"t", payload, 7) };
            assert_eq!(read_whole(&publish(&sent, b"\x00")).0, [sent]);
        }
    }
}

/// The broker discards a QoS 2 message only if PUBREC refuses it; otherwise it would redeliver the
/// message on every connection.
#[test]
fn qos_2_is_refused_step_by_step() {
    let refusal = |bytes: &[u8]| {
        let mut input = Input::new(PACKET_BYTES_MAX);
        let bytes = [&CONNACK[..], bytes].concat();
        let mut space = input.space();
        assert!(space.len() >= bytes.len());
        space = &mut space[..bytes.len()];
        space.copy_from_slice(&bytes);
        input.advance(bytes.len());
        assert!(matches!(input.packet(), Ok(Some(Packet::Connected(_)))));
        let Ok(Some(Packet::ExactlyOnce { reply })) = input.packet() else { panic!("{bytes:?}") };
        by_library(BytesMut::from(&reply[..]))
    };
    for payload in [&b"{}"[..], &[b'x'; 2_000]] {
        let mut sent = publish(&message(b"t", payload, 0x0107), b"\x00");
        sent[0] = 0x34; // PUBLISH at QoS 2
        let library::Packet::PubRec(refused) = refusal(&sent) else { panic!() };
        assert_eq!(
            (refused.pkid, refused.reason),
            (0x0107, library::PubRecReason::ImplementationSpecificError)
        );
    }
    let library::Packet::PubComp(refused) = refusal(b"\x62\x02\x01\x08") else { panic!() };
    assert_eq!(
        (refused.pkid, refused.reason),
        (0x0108, library::PubCompReason::PacketIdentifierNotFound)
    );
}

/// A broker refuses an unsupported version with one of two CONNACKs: that of MQTT 3.1.1, as NATS
/// and Aedes send, or that of MQTT 5.
#[test]
fn unsupported_mqtt_version_is_reported() {
    for connack in [&[0x20, 2, 0, 0x01][..], &[0x20, 3, 0, 0x84, 0]] {
        let mut input = Input::new(PACKET_BYTES_MAX);
        input.space()[..connack.len()].copy_from_slice(connack);
        input.advance(connack.len());
        let error = input.packet().unwrap_err().to_string();
        assert!(error.contains("it does not speak MQTT 5"), "{connack:?}: {error}");
    }
}

#[test]
fn long_reason_of_a_refusal_is_cut() {
    for (chars, quoted) in [(400, "é".repeat(400)), (401, "é".repeat(400) + "…")] {
        let reason = "é".repeat(chars);
        let length = u16::try_from(reason.len()).unwrap().to_be_bytes();
        let properties = [&[0x1F][..], &length, reason.as_bytes()].concat();
        let body = [&[0, 0x87][..], &varint(properties.len()), &properties].concat();
        let connack = framed(0x20, &body);
        let mut input = Input::new(PACKET_BYTES_MAX);
        input.space()[..connack.len()].copy_from_slice(&connack);
        input.advance(connack.len());
        let error = input.packet().unwrap_err().to_string();
        assert!(error.ends_with(&format!("on the broker (\"{quoted}\")")), "{chars}: {error}");
    }
}

#[test]
fn unsolicited_answer_ends_the_connection() {
    let (suback, unsuback) = (0x90, 0xB0);
    for (first, sent_id, unknown_id) in [(suback, 1, 2_u8), (suback, 4, 3), (unsuback, 3, 1)] {
        let (_, error) = read_whole(&framed(first, &[0, sent_id, 0, 0]));
        assert!(error.is_none(), "{first:#x} {sent_id}: {error:?}");
        let (_, error) = read_whole(&framed(first, &[0, unknown_id, 0, 0]));
        assert!(
            matches!(error, Some(CodecError::UnknownPacketId(id)) if id == u16::from(unknown_id)),
            "{first:#x}: {error:?}"
        );
    }
}

#[test]
fn oversized_packet_is_truncated_and_its_neighbours_are_not() {
    let (before, after) = (message(b"a", b"1", 1), message(b"c", b"3", 3));
    let long_topic = vec![b'x'; 65_535];
    for payload_bytes in [0, 1, 900, 65_535, 65_536, 65_537, 200_000] {
        for property_bytes in [0, 3_000, 100_000] {
            let large = message(&long_topic, &vec![b'y'; payload_bytes], 2);
            let properties = [varint(property_bytes), vec![0xFF; property_bytes]].concat();
            let bytes =
                [publish(&before, b"\x00"), publish(&large, &properties), publish(&after, b"\x00")]
                    .concat();
            let payload = vec![b'y'; payload_bytes.min(TRUNCATED_BYTES_MAX)];
            let truncated = Message { payload, ..large };
            for chunk in [1_000, 7_919, 2_000_000] {
                let (messages, error) = read(bytes.chunks(chunk), PACKET_BYTES_MAX);
                assert!(error.is_none(), "{error:?}");
                assert_eq!(messages.len(), 3);
                assert_eq!(messages[0], before);
                assert!(messages[1] == truncated, "{payload_bytes} + {property_bytes} in {chunk}");
                assert_eq!(messages[2], after);
            }
        }
    }
}

/// Decodes a packet with rumqttc's codec.
fn by_library(mut bytes: BytesMut) -> library::Packet {
    let packet = library::Packet::read(&mut bytes, None).unwrap();
    assert!(bytes.is_empty());
    packet
}

#[test]
fn library_decodes_every_packet_of_the_codec() {
    let mut out = BytesMut::new();
    let login = ("user".to_owned(), "secret".to_owned());
    let connect = Connect {
        client_id: "pod-0".to_owned(),
        clean_start: false,
        login: Some(&login),
        keep_alive_seconds: 10,
        session_expiry_seconds: 60,
        receive_maximum: 32_000,
        packet_bytes_max: 4_096,
    };
    codec::put_connect(connect, &mut out).unwrap();
    let library::Packet::Connect(connect, None, Some(login)) = by_library(out.split()) else {
        panic!()
    };
    let requested = connect.properties.unwrap();
    assert!(!connect.clean_start, "Clean Start would discard the session");
    assert_eq!((connect.keep_alive, &*connect.client_id), (10, "pod-0"));
    assert_eq!(
        (requested.session_expiry_interval, requested.receive_maximum),
        (Some(60), Some(32_000))
    );
    assert_eq!((requested.max_packet_size, requested.topic_alias_max), (Some(4_096), None));
    assert_eq!((&*login.username, &*login.password), ("user", "secret"));

    let filters = ["$share/g/drivers/+/gps".to_owned(), "$share/g/x/+".to_owned()];
    let mut packet_ids = Vec::new();
    let mut subscribe = |kind| {
        codec::put_subscribe(kind, &filters, Qos::AtLeastOnce, &mut out).unwrap();
        let library::Packet::Subscribe(subscribe) = by_library(out.split()) else { panic!() };
        packet_ids.push(subscribe.pkid);
        subscribe
    };
    subscribe(Subscribing::BrokerMetrics);
    let subscribe = subscribe(Subscribing::Group);
    let never =
        |filter: &library::Filter| filter.retain_forward_rule == library::RetainForwardRule::Never;
    assert!(
        subscribe.filters.iter().all(never),
        "otherwise the broker sends old fixes at every reconnect"
    );
    let requested: Vec<_> =
        subscribe.filters.iter().map(|filter| (filter.path.clone(), filter.qos)).collect();
    assert_eq!(requested, filters.clone().map(|filter| (filter, QoS::AtLeastOnce)));

    codec::put_unsubscribe(&filters, &mut out).unwrap();
    let library::Packet::Unsubscribe(unsubscribe) = by_library(out.split()) else { panic!() };
    assert_eq!(unsubscribe.filters, filters);
    packet_ids.push(unsubscribe.pkid);
    packet_ids.sort_unstable();
    packet_ids.dedup();
    assert_eq!(
        packet_ids.len(),
        3,
        "each request must have its own packet id, which identifies its answer"
    );

    codec::put_ack(0x1234, &mut out);
    let library::Packet::PubAck(ack) = by_library(out.split()) else { panic!() };
    assert_eq!((ack.pkid, ack.reason), (0x1234, library::PubAckReason::Success));
    codec::put_ping(&mut out).unwrap();
    assert!(matches!(by_library(out.split()), library::Packet::PingReq(_)));
    codec::put_disconnect(false, &mut out);
    assert_eq!(&out.split()[..], [0xE0, 0], "without an expiry interval, the session stays");
    codec::put_disconnect(true, &mut out);
    let library::Packet::Disconnect(disconnect) = by_library(out.split()) else { panic!() };
    let properties = disconnect.properties.unwrap();
    assert_eq!(properties.session_expiry_interval, Some(0), "the session ends");
}

fn read_connack(bytes: &[u8]) -> Result<ConnAck, String> {
    let mut input = Input::new(PACKET_BYTES_MAX);
    input.space()[..bytes.len()].copy_from_slice(bytes);
    input.advance(bytes.len());
    match input.packet() {
        Ok(Some(Packet::Connected(connack))) => Ok(connack),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn answers_of_the_broker_are_decoded() {
    let terms =
        read_connack(b"\x20\x0E\x01\x00\x0B\x11\x00\x00\x00\x1E\x21\x00\x20\x13\x00\x00").unwrap();
    let expected = ConnAck {
        session_present: true,
        receive_maximum: Some(32),
        keep_alive_seconds: Some(0),
        session_expiry_seconds: Some(30),
        packet_bytes_max: None,
        no_shared_subscriptions: false,
    };
    assert_eq!(terms, expected);
    for (answer, words) in [
        (&b"\x20\x03\x00\x86\x00"[..], "mqtt.username"),
        (b"\x20\x03\x00\x87\x00", "not authorized"),
        (b"\x20\x02\x00\x01", "MQTT 5"),
        (b"\x20\x08\x00\x97\x05\x1F\x00\x02no", "(\"no\")"),
        (b"\x20\x03\x00\xEE\x00", "0xee"),
        (b"\x20\x00", "malformed packet"),
        (b"HTTP/1.1 400 Bad Request", "does it speak MQTT"),
    ] {
        let error = read_connack(answer).unwrap_err();
        assert!(error.contains(words), "{error}");
    }

    let mut input = Input::new(PACKET_BYTES_MAX);
    let bytes = [
        &CONNACK[..],
        b"\x90\x07\x00\x01\x00\x01\x00\x87\x9E",
        b"\x90\x04\x00\x04\x00\x87",
        b"\xB0\x05\x00\x03\x00\x11\x87",
        b"\xD0\x00",
    ]
    .concat();
    input.space()[..bytes.len()].copy_from_slice(&bytes);
    input.advance(bytes.len());
    assert!(matches!(input.packet(), Ok(Some(Packet::Connected(_)))));
    let grants = vec![
        Grant::Granted(Qos::AtLeastOnce),
        Grant::Granted(Qos::AtMostOnce),
        Grant::NotAuthorized,
        Grant::NoSharedSubscriptions,
    ];
    assert_eq!(input.packet().unwrap(), Some(Packet::Subscribed(Subscribing::Group, grants)));
    let counters = Packet::Subscribed(Subscribing::BrokerMetrics, vec![Grant::NotAuthorized]);
    assert_eq!(input.packet().unwrap(), Some(counters));
    let unsubscribed = Packet::Unsubscribed(vec!["not authorized".to_owned()]);
    assert_eq!(input.packet().unwrap(), Some(unsubscribed));
    assert_eq!(input.packet().unwrap(), Some(Packet::Pong));
    assert_eq!(input.packet().unwrap(), None);

    // DISCONNECT with reason 0x8E, session taken over, or with another reason.
    for (bytes, is_taken_over) in [
        (&b"\xE0\x01\x8E"[..], true),
        (b"\xE0\x02\x8E\x00", true),
        (b"\xE0\x00", false),
        (b"\xE0\x01\x8B", false),
    ] {
        let (_, error) = read_whole(bytes);
        let Some(CodecError::Disconnected { taken_over, .. }) = error else { panic!("{error:?}") };
        assert_eq!(taken_over, is_taken_over, "{bytes:?}");
    }
}

fn publishes() -> impl Strategy<Value = library::Publish> {
    let topic = prop_oneof!["[a-z/]{0,40}", "[a-z]{300}", Just("x".repeat(65_535))];
    let properties = prop::option::of((
        any::<Option<u32>>(),
        prop::collection::vec(("[a-z]{0,9}", "[a-z]{0,200}"), 0..9),
    ));
    let payload = prop::collection::vec(any::<u8>(), 0..600);
    (topic, properties, payload, 0..=u16::MAX, any::<bool>()).prop_map(
        |(topic, properties, payload, id, dup)| {
            let qos = if id == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
            let properties = properties.map(|(expiry, user_properties)| PublishProperties {
                message_expiry_interval: expiry,
                user_properties,
                ..PublishProperties::default()
            });
            let mut publish = library::Publish::new(topic, qos, payload, properties);
            (publish.pkid, publish.dup) = (id, dup && id > 0);
            publish
        },
    )
}

/// Returns the messages that a connection should read from these packets.
fn expected_messages(publishes: &[library::Publish]) -> Vec<Message> {
    let expected = |publish: &library::Publish| Message {
        redelivered: publish.dup,
        ..message(&publish.topic, &publish.payload, publish.pkid)
    };
    publishes.iter().map(expected).collect()
}

fn encode(publishes: &[library::Publish]) -> Result<BytesMut, LibraryError> {
    let mut bytes = BytesMut::new();
    for publish in publishes {
        publish.write(&mut bytes)?;
    }
    Ok(bytes)
}

/// Splits the stream into pieces, by a repeating list of lengths.
fn pieces<'a>(mut bytes: &'a [u8], lengths: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    lengths.iter().cycle().map_while(move |length| {
        let (piece, remaining) = bytes.split_at((*length).min(bytes.len()));
        bytes = remaining;
        (!piece.is_empty()).then_some(piece)
    })
}

proptest! {
    #![proptest_config(crate::cases::cases(200))]

    #[test]
    fn encoded_packets_are_decoded_at_any_split(
        sent in prop::collection::vec(publishes(), 1..12),
        lengths in prop::collection::vec(prop_oneof![1_usize..9, 1_usize..5_000], 1..9),
        bytes_max in prop_oneof![Just(PACKET_BYTES_MAX), Just(1 << 20)],
    ) {
        let bytes = encode(&sent).unwrap();
        let (messages, error) = read(pieces(&bytes, &lengths), bytes_max);
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert!(messages == expected_messages(&sent));
    }

    #[test]
    fn truncated_stream_yields_its_complete_packets(
        sent in prop::collection::vec(publishes(), 1..4),
        end in any::<prop::sample::Index>(),
    ) {
        let bytes = encode(&sent).unwrap();
        let (messages, error) = read_whole(&bytes[..end.index(bytes.len())]);
        prop_assert!(error.is_none(), "{:?}", error);
        prop_assert!(messages.len() < sent.len());
        prop_assert!(expected_messages(&sent).starts_with(&messages));
    }

    #[test]
    fn garbage_neither_panics_nor_exceeds_the_buffer_limit(
        bytes in prop::collection::vec(any::<u8>(), 0..3_000),
        lengths in prop::collection::vec(1_usize..500, 1..9),
    ) {
        read(pieces(&bytes, &lengths), PACKET_BYTES_MAX);
    }

    #[test]
    fn malformed_answer_does_not_panic(
        first in prop::sample::select(vec![0x20_u8, 0x90, 0xB0, 0xD0, 0xE0, 0x32]),
        body in prop::collection::vec(prop_oneof![any::<u8>(), 0_u8..40], 0..60),
    ) {
        let packet = framed(first, &body);
        read_whole(&packet);
        let mut input = Input::new(PACKET_BYTES_MAX);
        input.space()[..packet.len()].copy_from_slice(&packet);
        input.advance(packet.len());
        while let Ok(Some(_)) = input.packet() {}
    }
}
