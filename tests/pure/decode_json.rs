//! Checks how the decoder reads JSON, for every format and every payload: it rejects exactly the
//! texts that serde_json rejects, and escapes in strings do not change the result.

use std::sync::LazyLock;

use loadgen::fleet::Fix;
use loadgen::format::Format;
use milepost_config::Config;
use milepost_decode::Message;
use milepost_decode::position::Timestamp;
use milepost_decode::reject::Reason;
use milepost_decode::{Decoded, Decoder, Ignored, Limits};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde::de::IgnoredAny;

use crate::rows::{WALL_MS, limits};

/// Fragments that a mutation inserts into a payload, in place of a token or before a token.
const FRAGMENTS: [&str; 50] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    " ",
    "\t\r\n",
    "\u{c}",
    "\0",
    "é",
    "0",
    "-0",
    "-",
    "1",
    "00",
    "01",
    "1.",
    ".5",
    "-0.0",
    "0.1e1",
    "1E5",
    "1e999",
    "25.123456789",
    "123456789012345678",
    "1234567890123456789",
    "9223372036854775808",
    "0.00000000000000001",
    "0.000000000000000001",
    "-180.00000005",
    "null",
    "nul",
    "true",
    "false",
    "falsee",
    "\"lat\":1",
    "\"lat\":91,",
    "\"ts\":1,",
    "\"x\":{\"lat\":[1,{\"a\":null}]},",
    "\"l\\u0061t\":2",
    "\"lon\":\"\\ud800\"",
    "NaN",
    "[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]",
    "{}",
    "[]",
    "\"\"",
    "\"\t\"",
    "\"a\n\":1,",
];

/// A mutation of a payload. Each `Index` selects one of the payload's tokens.
#[derive(Debug, Clone)]
enum Change {
    /// Inserts a fragment before the token, or at the end.
    Insert(Index, &'static str),
    Replace(Index, &'static str),
    Remove(Index),
    /// Inserts a copy of the tokens from one index to the other.
    Repeat(Index, Index),
    /// Removes the token and all that follow.
    Cut(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let fragment = || select(&FRAGMENTS[..]);
    prop_oneof![
        (any::<Index>(), fragment()).prop_map(|(at, fragment)| Change::Insert(at, fragment)),
        (any::<Index>(), fragment()).prop_map(|(at, fragment)| Change::Replace(at, fragment)),
        any::<Index>().prop_map(Change::Remove),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Change::Repeat(from, to)),
        any::<Index>().prop_map(Change::Cut),
    ]
}

/// Splits a payload into tokens: strings, numbers and words, and each other character.
fn tokens(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || "+-._\"".contains(c);
    let mut tokens: Vec<String> = Vec::new();
    for c in text.chars() {
        match tokens.last_mut() {
            Some(last) if is_word(c) && last.ends_with(is_word) => last.push(c),
            Some(_) | None => tokens.push(c.to_string()),
        }
    }
    tokens
}

fn mutate(payload: &str, changes: Vec<Change>) -> String {
    let mut tokens = tokens(payload);
    for change in changes {
        let Some(last) = tokens.len().checked_sub(1) else { break };
        match change {
            Change::Insert(at, fragment) => tokens.insert(at.index(last + 2), fragment.to_owned()),
            Change::Replace(at, fragment) => fragment.clone_into(&mut tokens[at.index(last + 1)]),
            Change::Remove(at) => drop(tokens.remove(at.index(last + 1))),
            Change::Repeat(from, to) => {
                let [from, to] = [from, to].map(|at| at.index(last + 1));
                let part = tokens[from.min(to)..=from.max(to)].to_vec();
                tokens.splice(to..to, part);
            }
            Change::Cut(at) => tokens.truncate(at.index(last + 1)),
        }
    }
    tokens.concat()
}

fn payload(format: Format, points: u32, is_spaced: bool) -> String {
    let fix = |seq| Fix {
        lat: 25.761_7 + f64::from(seq),
        lng: -80.191_8,
        speed_mps: 12.4,
        heading_deg: 271.5,
        acc_m: 4.5,
        ts_ms: WALL_MS + i64::from(seq),
        seq,
    };
    let fixes: Vec<_> = (0..points).map(fix).collect();
    let mut payload = String::new();
    format.write("d7", &fixes, &mut payload);
    if is_spaced { payload.replace(",\"", " ,\n\"").replace("\":", "\" : ") } else { payload }
}

/// Two decoders for each format: the first stores no extra fields, and the second stores all extra
/// fields.
static DECODERS: LazyLock<Vec<[Decoder; 2]>> = LazyLock::new(|| {
    let decoder = |source: String| {
        let config = Config::parse(&source).unwrap_or_else(|error| panic!("{source}: {error}"));
        Decoder::new(&config.sources, Limits { points_max: 4, ..limits() })
    };
    let for_format = |format: Format| {
        let keep = if format == Format::Nmea { "" } else { "keep = '*'\n" };
        ["", keep].map(|keep| decoder(format!("{}{keep}", format.source())))
    };
    Format::ALL.map(for_format).to_vec()
});

fn decode(format: Format, keeps_extra: bool, payload: &[u8]) -> Decoded {
    let topic = format.topic("d7");
    let mut decoded = Decoded::default();
    DECODERS[format as usize][usize::from(keeps_extra)].decode(
        Message::new(topic.as_bytes(), payload),
        Timestamp::from_unix_ms(WALL_MS),
        &mut decoded,
    );
    decoded
}

/// Replaces the first character of each string by an escape with the same meaning: `"lat"` becomes
/// `"\u006cat"`.
fn with_escapes(json: &str) -> String {
    let mut escaped = String::new();
    let (mut is_string, mut is_first, mut is_escape) = (false, false, false);
    for c in json.chars() {
        if is_first && !"\"\\".contains(c) && c >= ' ' {
            escaped += &format!("\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
        is_first = c == '"' && !is_string;
        is_string ^= c == '"' && !is_escape;
        is_escape = c == '\\' && is_string && !is_escape;
    }
    escaped
}

/// Returns the parts of a result that escapes must not change. The rejects' payloads and the
/// positions of errors are left out.
fn meaning(decoded: &Decoded) -> impl PartialEq + std::fmt::Debug {
    let rejects: Vec<_> = decoded.rejects.iter().map(|reject| reject.reason).collect();
    (decoded.positions.clone(), rejects, decoded.ignored.clone(), decoded.omissions)
}

/// Decodes a payload. Asserts that the decoder rejects it as invalid JSON exactly if serde_json
/// does, with two exceptions, and that escapes do not change the result.
#[track_caller]
fn check(format: Format, keeps_extra: bool, payload: impl AsRef<[u8]>) -> Decoded {
    let payload = payload.as_ref();
    let decoded = decode(format, keeps_extra, payload);
    let Ok(text) = std::str::from_utf8(payload) else { return decoded };
    if format == Format::Nmea || decoded.ignored.contains(&Ignored::Presence) {
        return decoded;
    }
    let is_invalid = decoded.rejects.iter().any(|reject| reject.reason == Reason::InvalidJson);
    let is_valid = serde_json::from_str::<IgnoredAny>(text).is_ok();
    // The decoder accepts two kinds of text that serde_json rejects: with control characters around
    // the JSON, and with Python's NaN.
    let is_nan = |word: &str| ["nan", "inf", "infinity"].contains(&&*word.to_ascii_lowercase());
    let has_nan = text.split(|c: char| !c.is_ascii_alphanumeric()).any(is_nan);
    let has_controls_around =
        text.trim_matches(|c| c <= ' ') != text.trim_matches([' ', '\t', '\r', '\n']);
    let is_tolerated = has_nan || has_controls_around;
    if !payload.is_empty() && !is_tolerated {
        assert_eq!(is_invalid, !is_valid, "{format:?}: {text}: {decoded:?}");
    }
    let escaped = decode(format, keeps_extra, with_escapes(text).as_bytes());
    assert_eq!(meaning(&decoded), meaning(&escaped), "{format:?}: {text}");
    decoded
}

/// Payloads that revealed planted mistakes in the reader.
const SAVED: [&[u8]; 13] = [
    // Unknown keys as long as the keys that the reader recognises by their first eight bytes.
    br#"{"ab":5,"lat":1,"lng":2}"#,
    br#"{"abc":5,"lat":1,"lng":2}"#,
    br#"{"abcde":5,"lat":1,"lng":2}"#,
    br#"{"abcdefg":5,"lat":1,"lng":2}"#,
    // A key without its closing quote or its colon.
    br#"{"lat":1,"lng":2,"headingab5}"#,
    br#"{"abcdef"}"#,
    br#"{"1}      "#,
    b"{\"lat\":1,\"lng\":2,\xdd\x8b\x8c\xdd\xc51}   ", // "ts": with every bit inverted
    // Negative zero is not an integer, and the reject's detail shows the sign.
    br#"{"lat":1,"lng":2,"driver_id":-0}"#,
    br#"{"lat":1,"lng":2,"driver_id":-0.0}"#,
    br#"{"lat":1,"lng":2,"seq":-0}"#,
    br#"{"lat":9.999999999999999999,"lng":1}"#,
    br#"{"lat":1,"lon":2,"speed":3,"heading":4,"alt":5,"acc":6,"seq":7}"#,
];

#[test]
fn saved_payloads_are_read_correctly() {
    for payload in SAVED {
        check(Format::Milepost, false, payload);
        check(Format::Milepost, true, payload);
    }
    let null = r#"{"coords":{"latitude":1,"longitude":2,"speed":3,"speed":null},"timestamp":1767225600000}"#;
    assert_eq!(check(Format::W3c, false, null).positions[0].speed.cms(), u16::MAX);
}

#[test]
fn invalid_utf8_byte_is_found_in_every_place() {
    let payload = payload(Format::Milepost, 2, false).replace("\"seq\"", "\"x\":\"é\",\"seq\"");
    for keeps_extra in [false, true] {
        for at in 0..=payload.len() {
            for byte in [0x80, 0xC3, 0xFF] {
                let (before, after) = payload.as_bytes().split_at(at);
                let decoded =
                    check(Format::Milepost, keeps_extra, [before, &[byte], after].concat());
                assert_eq!(
                    decoded.rejects.first().map(|reject| reject.reason),
                    Some(Reason::InvalidUtf8),
                    "{at} {byte}"
                );
            }
        }
    }
}

#[test]
fn every_fragment_is_read_correctly_in_every_place() {
    for format in Format::ALL {
        let tokens = tokens(&payload(format, 2, false));
        for at in 0..tokens.len() {
            let [before, token, after] =
                [&tokens[..at], &tokens[at..=at], &tokens[at + 1..]].map(|part| part.concat());
            for fragment in FRAGMENTS {
                check(format, false, [&before, fragment, &after].concat());
                check(format, false, [&before, fragment, &token, &after].concat());
            }
        }
    }
}

proptest! {
    #![proptest_config(crate::cases::cases(5_000))]

    #[test]
    fn mutated_payload_is_read_correctly(
        format in select(&Format::ALL[..]),
        points in 1_u32..6,
        is_spaced: bool,
        keeps_extra: bool,
        changes in prop::collection::vec(change(), 0..4),
    ) {
        let is_whole = changes.is_empty() && points <= 4;
        let mutated = mutate(&payload(format, points, is_spaced), changes);
        let decoded = check(format, keeps_extra, mutated);
        prop_assert!(!is_whole || decoded.positions.len() == points as usize, "{decoded:?}");
    }

    #[test]
    fn any_number_is_read_correctly(number in prop_oneof![
        r"-?[0-9]{0,20}(\.[0-9]{0,20})?([eE][+-]?[0-9]{1,3})?",
        r"-?[0-9]{1,4}\.[0-9]{1,9}",
        r"-?(90|180|200|360|1000|100000|6553\.4)(\.?0{0,9}[0-9])?",
    ]) {
        let field = |name| format!(r#","{name}":{number}"#);
        let other_fields = ["seq", "speed", "heading", "alt", "acc"].map(field).concat();
        let ts = format!(r#","ts":{number}"#);
        for ([lat, lng], ts) in [(["1", &number], ""), ([&number, "1"], ""), (["1", "1"], &ts)] {
            let fix = format!(r#"{{"lat":{lat},"lng":{lng}{ts}{other_fields}}}"#);
            check(Format::Milepost, true, fix);
        }
    }

    #[test]
    fn any_text_is_read_correctly(text in r#"[ \[\]{},:"\\a-u0-9.é-]{0,60}"#) {
        check(Format::Milepost, false, &text);
        check(Format::Geojson, false, &text);
    }
}
