//! `milepost decode`: what it prints.

use milepost::app::commands::decode::{Origin, decode};
use milepost::config::Config;
use milepost::pipeline::position::Timestamp;

/// 2026-01-01.
const RECEIVED_AT_MS: i64 = 1_767_225_600_000;
const SOURCES: &str = "[[sources]]\ntopic = 'owntracks/+/+'\ndriver = '{1}:{2}'\nformat = 'owntracks'\nkeep = ['batt']\n\
                       [[sources]]\ntopic = 'traccar'\nformat = 'traccar'\ndriver = '/device/uniqueId'";

fn run(source: Option<usize>, topic: Option<&str>, payload: &str) -> Result<(Vec<String>, bool), String> {
    let received_at = Timestamp::from_unix_ms(RECEIVED_AT_MS);
    let origin = Origin { source, topic: topic.map(str::to_owned), received_at };
    let decoded = decode(&Config::parse(SOURCES).unwrap(), &origin, payload.as_bytes());
    let lines = |(text, good): (String, bool)| (text.lines().map(str::to_owned).collect(), good);
    decoded.map(lines).map_err(|error| error.to_string())
}

#[test]
fn a_line_for_each_thing_that_a_payload_becomes() {
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
fn a_fix_is_undated_if_it_has_no_time_and_not_if_it_has_that_of_the_receipt() {
    let is_undated = |tst: &str| {
        let payload = format!(r#"{{"_type":"location","lat":1,"lon":2{tst}}}"#);
        let (lines, good) = run(Some(1), None, &payload).unwrap();
        assert!(good && lines[0].contains(r#""ts":"2026-01-01T00:00:00.000Z""#), "{lines:?}");
        lines[0].contains(r#""undated":true"#)
    };
    assert!(is_undated(""));
    assert!(!is_undated(r#","tst":1767225600"#));
}

#[test]
fn it_must_be_clear_which_source_is_meant() {
    let payload = r#"{"position":{"latitude":1,"longitude":2},"device":{"uniqueId":"d7"}}"#;
    assert!(run(Some(2), None, payload).unwrap().0[0].contains(r#""driver_id":"d7""#));
    for (source, topic, says) in [
        (None, None, "--source or --topic"),
        (Some(3), None, "no source 3"),
        (Some(0), None, "no source 0"),
        (None, Some("other"), "no source takes the topic other"),
        (Some(1), Some("traccar"), "does not match traccar"),
    ] {
        let error = run(source, topic, payload).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}
