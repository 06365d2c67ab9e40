//! Tests compressed payloads and CBOR: they decode like the plain text, within size limits, and
//! without a panic.

use std::io::Write as _;
use std::sync::LazyLock;

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use milepost_config::Config;
use milepost_decode::Message;
use milepost_decode::position::Timestamp;
use milepost_decode::reject::Reason;
use milepost_decode::{Decoded, Decoder, Field};
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};

use crate::rows::{WALL_MS, limits};

const SOURCES: &str = "
[[sources]]
topic = 'drivers/+/gps'
keep = '*'
[[sources]]
topic = 'all/positions'
driver = '/id'
[[sources]]
topic = 'n/+'
format = 'nmea'
";
const TOPICS: [&str; 2] = ["drivers/d7/gps", "all/positions"];
const TRACK: &str = r#"[{"lat":25.7617,"lng":-80.1918,"ts":1767225597123},{"lat":25.7618,"lng":-80.1918,"ts":1767225598123},{"lat":25.7619,"lng":-80.1918,"ts":1767225599123}]"#;
/// `TRACK` as compressed by gzip 1.12 and by zstd 1.5.4.
const TRACK_COMPRESSED: [&str; 2] = [
    "1f8b08000000000002038bae56ca492c51b23232d533373334d751cac94b57b2d2b530d033b434b4d0512a2956b23234373337323235b534373432aed541d161815f8705a60e4bfc3a2c413a6201007ec95897000000",
    "28b52ffd04681d0200c2030d11b03b995b01986304130985a5eebfc94a05e78dd57ff77c63b59f79b7496b41d6305d5f837050302d85d94a3af0166c48a1330104004014e01d10d9d443ed010818b3c8",
];

fn decode_on(topic: &str, payload: &[u8]) -> Decoded {
    static DECODER: LazyLock<Decoder> = LazyLock::new(|| {
        Decoder::new(&Config::parse(SOURCES).expect("well formed").sources, limits())
    });
    let mut out = Decoded::default();
    DECODER.decode(
        Message::new(topic.as_bytes(), payload),
        Timestamp::from_unix_ms(WALL_MS),
        &mut out,
    );
    out
}

/// Returns the result without the payloads of rejects, which keep the message as it was sent.
fn without_payloads(mut decoded: Decoded) -> String {
    decoded.rejects.iter_mut().for_each(|reject| {
        reject.payload.clear();
        reject.payload_bytes = 0;
    });
    format!("{decoded:?}")
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("in memory");
    encoder.finish().expect("in memory")
}

fn zstd(text: &[u8]) -> Vec<u8> {
    compress_to_vec(text, CompressionLevel::Fastest)
}

fn cbor(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    ciborium::into_writer(value, &mut out).expect("in memory");
    out
}

fn unhex(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// Asserts that a payload gives one reject with this reason, and that the reject keeps the payload
/// as it was sent. Returns the reject's detail.
#[track_caller]
fn check_refused(payload: &[u8], reason: Reason) -> String {
    let mut decoded = decode_on(TOPICS[0], payload);
    assert!(decoded.positions.is_empty() && decoded.rejects.len() == 1, "{decoded:?}");
    let reject = decoded.rejects.remove(0);
    assert_eq!(reject.reason, reason, "{}", reject.detail);
    assert_eq!((reject.driver_id.as_str(), reject.payload_bytes), ("d7", payload.len() as u64));
    assert!(payload.starts_with(&reject.payload), "the payload is not kept as it was sent");
    reject.detail
}

#[test]
fn payloads_of_common_compressors_are_read() {
    for packed in TRACK_COMPRESSED.map(unhex) {
        let decoded = decode_on(TOPICS[0], &packed);
        assert_eq!((decoded.positions.len(), decoded.rejects.len()), (3, 0), "{decoded:?}");
        assert_eq!(
            without_payloads(decoded),
            without_payloads(decode_on(TOPICS[0], TRACK.as_bytes()))
        );
    }
}

#[test]
fn truncated_or_extended_payload_gives_no_position() {
    for packed in TRACK_COMPRESSED
        .map(unhex)
        .into_iter()
        .chain([cbor(&serde_json::from_str(TRACK).expect("JSON"))])
    {
        for end in 2..packed.len() {
            check_refused(&packed[..end], Reason::InvalidUtf8);
        }
        check_refused(&[&packed[..], b"x"].concat(), Reason::InvalidUtf8);
    }
}

#[test]
fn flipped_bit_is_detected() {
    for packed in TRACK_COMPRESSED.map(unhex) {
        for bit in 0..packed.len() * 8 {
            let mut flipped = packed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let decoded = decode_on(TOPICS[0], &flipped);
            // The gzip header's time, system and flags do not affect the text.
            assert!(
                decoded.positions.is_empty()
                    || without_payloads(decoded)
                        == without_payloads(decode_on(TOPICS[0], TRACK.as_bytes())),
                "bit {bit}"
            );
        }
    }
}

#[test]
fn concatenated_frames_and_members_are_one_payload() {
    let (begin, end) = TRACK.as_bytes().split_at(TRACK.len() / 2);
    for pack in [gzip as fn(&[u8]) -> Vec<u8>, zstd] {
        let both = [pack(begin), pack(end)].concat();
        assert_eq!(decode_on(TOPICS[0], &both).positions.len(), 3);
    }
    check_refused(&[zstd(TRACK.as_bytes()), zstd(b"").repeat(16)].concat(), Reason::InvalidUtf8);
}

#[test]
fn payload_above_the_limits_is_too_large() {
    let spaces = vec![b' '; 20_000_000];
    for bomb in [gzip(&spaces), zstd(&spaces), gzip(&spaces[..900_000]), zstd(&spaces[..900_000])] {
        let detail = check_refused(&bomb, Reason::TooLarge);
        assert!(detail.contains("compressed bytes hold more than"), "{detail}");
    }
    // In JSON, each byte of this string becomes six: `\u0001`.
    check_refused(&cbor(&json!([{ "x": "\u{1}".repeat(200_000) }, 1])), Reason::TooLarge);
    // The payload is read if its last item begins after exactly `payload_bytes_max` bytes of JSON.
    // With one byte more, the payload is too large.
    let long = |bytes: usize| json!([{ "lat": 1, "lng": 2, "x": "y".repeat(bytes) }, 1]);
    let bytes =
        limits().payload_bytes_max - json!([{ "lat": 1, "lng": 2, "x": "" }]).to_string().len();
    assert_eq!(decode_on(TOPICS[0], &cbor(&long(bytes))).positions.len(), 1);
    check_refused(&cbor(&long(bytes + 1)), Reason::TooLarge);
    let window_of_2_gib = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
    check_refused(&window_of_2_gib, Reason::InvalidUtf8);
}

#[test]
fn decompression_ratio_is_capped_at_100() {
    // The text is the track, padded with spaces. A file name in the gzip header pads the result to
    // `bytes` bytes.
    let gzip = |text: &[u8], bytes: usize| {
        let packed = |name: usize| {
            let mut encoder =
                GzBuilder::new().filename(vec![b'x'; name]).write(Vec::new(), Compression::best());
            encoder.write_all(text).expect("in memory");
            encoder.finish().expect("in memory")
        };
        packed(1 + bytes - packed(1).len())
    };
    // The frame has a raw block, a block of a repeated byte, and an empty block at the end.
    let zstd = |text: &[u8], _: usize| {
        let block = |kind: usize, length: usize, content: &[u8]| {
            [&(length << 3 | kind).to_le_bytes()[..3], content].concat()
        };
        let spaces = text.len() - TRACK.len();
        let blocks =
            [block(0, TRACK.len(), TRACK.as_bytes()), block(2, spaces, b" "), block(1, 0, b"")];
        [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0x38][..], &blocks.concat()].concat()
    };
    for pack in [gzip as fn(&[u8], usize) -> Vec<u8>, zstd] {
        let bytes = TRACK.len() + 16;
        let text = |more: usize| format!("{TRACK:0$}", 100 * bytes + more).into_bytes();
        assert_eq!(pack(&text(0), bytes).len(), bytes);
        assert_eq!(decode_on(TOPICS[0], &pack(&text(0), bytes)).positions.len(), 3);
        check_refused(&pack(&text(1), bytes), Reason::TooLarge);
    }
}

#[test]
fn cbor_is_equivalent_to_json() {
    // This CBOR has the self-describing tag and half-precision floats: {_ "lat": 1.5, (_ "l",
    // "ng"): -2, "ts": 1(1767225600), "alt": NaN, "x": h'00', 7: 8, -3: 9}
    let encoded =
        "d9d9f7bf636c6174f93e007f616c626e67ff21627473c11a6955b90063616c74f97e006178410007082209ff";
    let decoded = decode_on(TOPICS[0], &unhex(encoded));
    assert_eq!(
        (decoded.positions.len(), decoded.omissions.fields),
        (1, [0; Field::ALL.len()]),
        "{decoded:?}"
    );
    let fix = &decoded.positions[0];
    assert_eq!((fix.lat.e7(), fix.lng.e7()), (15_000_000, -20_000_000));
    assert_eq!(fix.ts.unix_ms(), WALL_MS);
    let kept: Vec<_> = fix.attributes.iter().collect();
    assert_eq!(kept, [("7", "8"), ("-3", "9")], "a byte string must not be kept");
    for nested in [&b"\x81"[..], b"\xa1\x61x"] {
        check_refused(&[nested.repeat(200_000), vec![0x00]].concat(), Reason::InvalidUtf8);
    }
    check_refused(&[0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Reason::InvalidUtf8);
}

#[test]
fn nmea_may_be_compressed() {
    let sentence = b"$GPRMC,120000.00,A,2545.702,N,08011.508,W,0.0,0.0,311225,,,A*78";
    let plain = without_payloads(decode_on("n/d7", sentence));
    assert_eq!(without_payloads(decode_on("n/d7", &gzip(sentence))), plain);
    assert_eq!(decode_on("n/d7", &cbor(&json!([1]))).rejects[0].reason, Reason::InvalidUtf8);
}

/// Generates JSON documents with points, and with arbitrary values in place of points.
fn document() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-200.0..200.0).prop_map(|number: f64| Value::from(number)),
        (WALL_MS - 1_000..WALL_MS).prop_map(Value::from),
        "[a-z\"\\\\\u{e9}\u{1f}]{0,6}".prop_map(Value::from),
    ];
    scalar.prop_recursive(4, 40, 5, |inner| {
        let key = prop::sample::select(vec![
            "lat",
            "lng",
            "ts",
            "seq",
            "speed",
            "id",
            "driver_id",
            "a\"b",
        ]);
        let point = prop::collection::vec((key, inner.clone()), 0..6).prop_map(|fields| {
            fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
        });
        let good = (-90.0..90.0, -180.0..180.0, inner.clone()).prop_map(
            |(lat, lng, x): (f64, f64, _)| json!({ "lat": lat, "lng": lng, "id": "d", "x": x }),
        );
        prop_oneof![good, point, prop::collection::vec(inner, 0..5).prop_map(Value::from)]
    })
}

proptest! {
    #![proptest_config(crate::cases::cases(300))]

    #[test]
    fn compressed_payload_decodes_like_its_text(value in document(), cut in 0..400_usize) {
        let text = value.to_string().into_bytes();
        let truncated = &text[..cut.min(text.len())];
        for topic in TOPICS {
            for text in [&text[..], truncated] {
                let plain = without_payloads(decode_on(topic, text));
                prop_assert_eq!(&without_payloads(decode_on(topic, &gzip(text))), &plain);
                prop_assert_eq!(&without_payloads(decode_on(topic, &zstd(text))), &plain);
            }
            if value.is_array() || value.is_object() {
                let plain = without_payloads(decode_on(topic, &text));
                prop_assert_eq!(&without_payloads(decode_on(topic, &cbor(&value))), &plain);
                prop_assert_eq!(&without_payloads(decode_on(topic, &gzip(&cbor(&value)))), &plain);
            }
        }
    }

    #[test]
    fn any_bytes_after_a_magic_number_give_a_result_without_a_panic(
        magic in prop::sample::select(vec![&[0x1f, 0x8b, 8][..], &[0x28, 0xb5, 0x2f, 0xfd], &[0xd9, 0xd9, 0xf7], &[0xa1, 0x61], &[0x9f], &[]]),
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let decoded = decode_on(TOPICS[0], &[magic, &rest].concat());
        prop_assert!(decoded.positions.len() + decoded.rejects.len() + decoded.ignored.len() >= 1);
    }
}
