//! Tests what `milepost decode` prints.
#![expect(clippy::unwrap_used, reason = "a helper may panic, which fails its test")]

use milepost_config::Config;
use milepost_decode::position::Timestamp;
use milepost_operate::decode::{Origin, decode, decode_lines};

/// 2026-01-01.
const RECEIVED_AT_MS: i64 = 1_767_225_600_000;
const SOURCES: &str = "[[sources]]\ntopic = 'owntracks/+/+'\ndriver = '{1}:{2}'\n\
                       format = 'owntracks'\nkeep = ['batt']\n\
                       [[sources]]\ntopic = 'traccar'\nformat = 'traccar'\n\
                       driver = '/device/uniqueId'";

fn run(
    source: Option<usize>,
    topic: Option<&str>,
    payload: &str,
) -> Result<(Vec<String>, bool), String> {
    let received_at = Timestamp::from_unix_ms(RECEIVED_AT_MS);
    let origin = Origin { source, topic: topic.map(str::to_owned), received_at };
    let decoded = decode(&Config::parse(SOURCES).unwrap(), &origin, payload.as_bytes());
    let lines = |(text, good): (String, bool)| (text.lines().map(str::to_owned).collect(), good);
    decoded.map(lines).map_err(|error| error.to_string())
}

#[test]
fn payload_prints_one_line_per_outcome() {
    let payload = r#"[{"_type":"location","lat":25.76,"lon":-80.19,"tst":1767225599,"vel":54,"cog":400,"batt":80},
        {"_type":"lwt","tst":1},{"_type":"news"}]"#;
    let (lines, good) = run(None, Some("owntracks/jo/phone"), payload).unwrap();
    assert_eq!(
        lines,
        [
            r#"{"position":{"acc":null,"alt":null,"attributes":{"batt":"80"},"driver_id":"jo:phone","heading":null,"lat":25.76,"lng":-80.19,"seq":0,"speed":15.0,"ts":"2025-12-31T23:59:59.000Z"}}"#,
            r#"{"reject":{"detail":"_type is \"news\", not \"location\"","payload":"{\"_type\":\"news\"}","reason":"unknown_format_kind"}}"#,
            r#"{"ignored":"lwt"}"#,
            r#"{"unusable":{"field":"heading","times":1}}"#,
        ]
    );
    assert!(!good);
}

#[test]
fn fix_without_a_time_is_undated() {
    let is_undated = |tst: &str| {
        let payload = format!(r#"{{"_type":"location","lat":1,"lon":2{tst}}}"#);
        let (lines, good) = run(Some(1), None, &payload).unwrap();
        assert!(good && lines[0].contains(r#""ts":"2026-01-01T00:00:00.000Z""#), "{lines:?}");
        lines[0].contains(r#""undated":true"#)
    };
    assert!(is_undated(""));
    assert!(!is_undated(r#","tst":1767225600"#));
}

/// The column of a field is NULL if the value does not fit its type, so `decode` lists the value.
#[test]
fn value_that_does_not_fit_its_field_is_listed() {
    let toml = "[[sources]]\ntopic = 'in/+'\n\
                [fields.battery]\nfrom = 'batt'\ntype = 'UInt8'\nmax = 100\nunknown = [255]\n\
                [fields.mode]\nfrom = ['m', 'mode']\n\
                type = \"Enum8('off' = 0, 'on' = 1, 'none' = 2)\"\nunknown = ['none', 'n/a']\n\
                [fields.seen]\nfrom = 'seen'\ntype = 'DateTime64(3)'\n\
                [fields.metres]\nfrom = 'm64'\ntype = 'Int64'";
    let listed = |members: &str| {
        let config = Config::parse(toml).unwrap();
        let received_at = Timestamp::from_unix_ms(RECEIVED_AT_MS);
        let origin = Origin { source: None, topic: None, received_at };
        let payload = format!(r#"[{{"lat":1,"lng":2,"ts":1767225600,{members}}}]"#);
        let (text, _) = decode(&config, &origin, payload.as_bytes()).unwrap();
        let lines = text.lines().filter(|line| line.starts_with(r#"{"unusable":"#));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        listed(r#""batt":"full","mode":"auto"},{"lat":1,"lng":2,"batt":"low""#),
        [
            r#"{"unusable":{"field":"battery","hint":"batt is \"full\", not UInt8: stored as NULL; attributes keep the text","times":2}}"#,
            r#"{"unusable":{"field":"mode","hint":"mode is \"auto\", not Enum8('off' = 0, 'on' = 1, 'none' = 2): stored as NULL; attributes keep the text","times":1}}"#,
        ]
    );
    for (members, message) in [
        (r#""batt":101"#, "batt is \\\"101\\\", outside min and max"),
        (r#""batt":300"#, "not UInt8"),
        (r#""batt":80.5"#, "not UInt8"),
        (r#""seen":"soon""#, "not RFC 3339: ClickHouse reads more forms"),
        (r#""m":"","mode":7"#, "mode is"),
        (r#""m64":9223372036854775808"#, "not Int64"),
        (r#""m64":"9223372036854775808.0""#, "not Int64"),
    ] {
        let lines = listed(members);
        assert!(lines.len() == 1 && lines[0].contains(message), "{members}: {lines:?}");
    }
    for members in [
        r#""batt":80,"mode":"on","seen":1767225600"#,
        r#""batt":255,"mode":"n/a""#,
        r#""batt":"255.0","mode":"none""#,
        r#""batt":null,"mode":2,"seen":"2026-01-01T00:00:00Z""#,
        r#""other":"full""#,
        r#""m64":9223372036854775807"#,
    ] {
        assert_eq!(listed(members), Vec::<String>::new(), "{members}");
    }
}

#[test]
fn whole_number_above_64_bits_is_null() {
    let toml = "[[sources]]\ntopic = 'in/+'\n\
                [fields.signed]\nfrom = 'n1'\ntype = 'Int64'\n\
                [fields.unsigned]\nfrom = 'n2'\ntype = 'UInt64'";
    let config = Config::parse(toml).unwrap();
    for (signed, unsigned, expected) in [
        (
            "9223372036854775807",
            "18446744073709551615",
            ["9223372036854775807", "18446744073709551615"],
        ),
        ("9223372036854775808", "18446744073709551616", ["null", "null"]),
        ("9223372036854775808.0", "18446744073709551616.0", ["null", "null"]),
        ("-9223372036854775808", "-1", ["-9223372036854775808", "null"]),
        ("-5.0", "80.0", ["-5", "80"]),
    ] {
        let received_at = Timestamp::from_unix_ms(RECEIVED_AT_MS);
        let origin = Origin { source: None, topic: None, received_at };
        let payload =
            format!(r#"{{"lat":1,"lng":2,"ts":1767225600,"n1":"{signed}","n2":"{unsigned}"}}"#);
        let (text, _) = decode(&config, &origin, payload.as_bytes()).unwrap();
        let line: serde_json::Value =
            serde_json::from_str(text.lines().next().unwrap_or_default()).unwrap();
        let shown = ["signed", "unsigned"].map(|name| line["position"][name].to_string());
        assert_eq!(shown, expected, "{text}");
    }
}

#[test]
fn unread_field_prints_both_ways_to_store_it() {
    let payload = r#"{"_type":"location","lat":1,"lon":2,"tst":1767225600,"conn":"w"}"#;
    let (lines, _) = run(Some(1), None, payload).unwrap();
    assert_eq!(
        lines[1],
        r#"{"unread":{"field":"conn","hint":"keep = [\"conn\"] stores it as a string, [fields.NAME] with from = \"conn\" as a typed column"}}"#
    );
}

#[test]
fn ambiguous_or_unknown_source_is_refused() {
    let payload = r#"{"position":{"latitude":1,"longitude":2},"device":{"uniqueId":"d7"}}"#;
    assert!(run(Some(2), None, payload).unwrap().0[0].contains(r#""driver_id":"d7""#));
    for (source, topic, expected) in [
        (None, None, "--source or --topic"),
        (Some(3), None, "no source 3"),
        (Some(0), None, "no source 0"),
        (None, Some("other"), "no source takes the topic other"),
        (Some(1), Some("traccar"), "does not match traccar"),
    ] {
        let error = run(source, topic, payload).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// Decodes lines until `prints_max` of them are printed. Returns what is printed for each, and
/// whether nothing was rejected.
fn stream(
    topic: Option<&str>,
    lines: &[u8],
    prints_max: usize,
) -> Result<(Vec<String>, bool), String> {
    let config = Config::parse(SOURCES).unwrap();
    let clock = || Timestamp::from_unix_ms(RECEIVED_AT_MS);
    let origin = Origin { source: None, topic: topic.map(str::to_owned), received_at: clock() };
    let mut printed = Vec::new();
    let is_good = decode_lines(&config, origin, lines, clock, |rows| {
        printed.push(rows.to_owned());
        Ok(printed.len() < prints_max)
    });
    is_good.map(|is_good| (printed, is_good)).map_err(|error| error.to_string())
}

/// A line that `mosquitto_sub -F %j` prints. `payload`: the JSON of the payload.
fn captured(topic: &str, retain: &str, bytes: usize, payload: &[u8]) -> Vec<u8> {
    let head = format!(
        r#"{{"tst":"2026-01-01T00:00:00.000000Z+0000","topic":"{topic}","qos":1,"retain":{retain}"#
    );
    let head = format!(r#"{head},"payloadlen":{bytes},"payload":"#);
    [head.as_bytes(), payload, b"}\n"].concat()
}

/// Like [`captured`], for a retained payload that is text.
fn captured_text(topic: &str, payload: &str) -> Vec<u8> {
    captured(topic, "1", payload.len(), serde_json::json!(payload).to_string().as_bytes())
}

/// A position as OwnTracks sends it.
const FIX: &str = r#"{"_type":"location","lat":1,"lon":2,"tst":1767225599}"#;

#[test]
fn each_line_of_a_stream_is_decoded_by_its_own_topic() {
    let lines = [
        captured_text("owntracks/jo/phone", &FIX.replace(',', ",\n")),
        captured_text("nobody", "{}"),
        captured_text("traccar", ""),
    ];
    let (printed, is_good) = stream(None, &lines.concat(), 9).unwrap();
    let [position, other, empty] = &printed[..] else { panic!("{printed:#?}") };
    assert!(
        position.starts_with(
            r#"{"message":{"bytes":56,"retained":true,"topic":"owntracks/jo/phone"}}"#
        ) && position.contains(r#""driver_id":"jo:phone""#),
        "{position}"
    );
    assert!(
        other.contains("bad_topic") && empty.contains(r#""reason":"empty""#) && !is_good,
        "{printed:#?}"
    );

    // The lines are payloads only, and the reader closes early.
    let payloads = format!("{FIX}\n{FIX}\n{FIX}");
    let (printed, is_good) = stream(Some("owntracks/jo/phone"), payloads.as_bytes(), 2).unwrap();
    assert!(
        printed.len() == 2 && is_good && printed[0].starts_with(r#"{"position""#),
        "{printed:#?}"
    );
    assert!(stream(None, payloads.as_bytes(), 9).unwrap_err().contains("--source or --topic"));
    let (printed, _) =
        stream(Some("owntracks/jo/phone"), "x".repeat(2 << 20).as_bytes(), 9).unwrap();
    assert!(printed[0].contains("too_large"), "{printed:#?}");
}

/// A newer Mosquitto prints `retain` as a boolean, and an empty payload as null. Of a payload that
/// is not text, it prints the bytes before the first NUL, even if they are not UTF-8.
#[test]
fn line_of_mosquitto_is_read_in_every_form() {
    let topic = "owntracks/jo/phone";
    let quoted = serde_json::json!(FIX).to_string();
    // FIX with a further member, which is in Latin-1.
    let quoted_start = quoted.strip_suffix("}\"").unwrap();
    let latin_1 = [quoted_start.as_bytes(), b",\\\"tid\\\":\\\"\xdf\\\"}\""].concat();
    let lines = [
        captured(topic, "true", FIX.len(), quoted.as_bytes()),
        captured(topic, "false", 0, b"null"),
        captured(topic, "0", FIX.len() + 1, quoted.as_bytes()),
        captured(topic, "false", 40, b"\"\\u001f\x8b\\b\""),
        captured(topic, "false", FIX.len() + 10, &latin_1),
        captured("nobody", "false", 40, b"\"\\u001f\x8b\\b\""),
    ];
    let (printed, is_good) = stream(None, &lines.concat(), 9).unwrap();
    let [retained, empty, padded, gzip, latin_1, other] = &printed[..] else {
        panic!("{printed:#?}")
    };
    assert!(retained.contains(r#""retained":true"#) && retained.contains(r#"{"position""#));
    assert!(
        empty.contains(r#""bytes":0,"retained":false"#) && empty.contains(r#""reason":"empty""#)
    );
    assert!(padded.contains(r#"{"position""#), "{padded}");
    assert!(gzip.contains(r#"{"unreadable""#) && !gzip.contains("reject") && !is_good, "{gzip}");
    assert!(
        latin_1.contains(r#"{"unreadable""#) && !latin_1.contains(r#"{"position""#),
        "{latin_1}"
    );
    assert!(other.contains(r#""reason":"bad_topic""#), "{other}");
}

/// Escaped once more, a payload below the limit makes a line above it.
#[test]
fn line_may_be_longer_than_the_largest_payload() {
    let text = "\\\"".repeat(300_000);
    let long =
        format!(r#"{{"_type":"location","lat":1,"lon":2,"tst":1767225599,"text":"{text}"}}"#);
    let line = captured_text("owntracks/jo/phone", &long);
    assert!(long.len() < 1 << 20 && line.len() > 1 << 20, "{} {}", long.len(), line.len());
    let (printed, is_good) = stream(None, &line, 9).unwrap();
    assert!(is_good && printed[0].contains(r#""driver_id":"jo:phone""#), "{is_good}");
}
