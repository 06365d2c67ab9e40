//! Tests that no fix gets the time of receipt, or another wrong time, while its payload states the
//! right one.

use std::sync::Arc;

use milepost_decode::formats::{Fields, Format, Mapping, More, shipped};
use milepost_decode::position::Timestamp;
use milepost_decode::{
    Decoded, Decoder, Driver, Keep, Limits, Local, Message, Pointer, Source, SpeedUnit, Template,
    TimeUnit, Zone,
};

/// 2026-11-27T09:00:10Z.
const NOW_MS: i64 = 1_795_770_010_000;

fn source(format: Format) -> Source {
    Source::new("in/+", Driver::Topic(Template::first()), format, Keep::Nothing)
}

fn format_called(name: &str) -> Source {
    source(match name {
        "milepost" => Format::Milepost,
        "geojson" => Format::GeoJson(SpeedUnit::MetresPerSecond),
        _ => {
            let mapping = shipped(name, Some(SpeedUnit::MetresPerSecond)).expect("a known name");
            Format::Mapped(Arc::new(mapping))
        }
    })
}

fn pointer(text: &str) -> Pointer {
    Pointer::new(text).expect("well formed")
}

/// Returns a mapping of `/lat`, `/lng` and `/ts`.
fn fields(unit: TimeUnit) -> Fields {
    Fields {
        points: None,
        lat: pointer("/lat"),
        lng: pointer("/lng"),
        ts: Some((pointer("/ts"), unit)),
        speed: None,
        heading: None,
        alt: None,
        acc: None,
        seq: None,
        driver: None,
        more: None,
    }
}

fn mapped(fields: Fields) -> Source {
    source(Format::Mapped(Arc::new(Mapping::new(fields))))
}

fn decode(source: &Source, payload: impl AsRef<[u8]>) -> Decoded {
    let mut decoded = Decoded::default();
    let decoder = Decoder::new(std::slice::from_ref(source), Limits::default()).listing_unread();
    let message = Message::new(b"in/d7", payload.as_ref());
    decoder.decode(message, Timestamp::from_unix_ms(NOW_MS), &mut decoded);
    decoded
}

/// Asserts that every point is rejected as `bad_ts`, with `said` in the detail.
#[track_caller]
fn refuses(source: &Source, payload: &str, said: &str) {
    let decoded = decode(source, payload);
    assert!(decoded.positions.is_empty() && !decoded.rejects.is_empty(), "{payload}: {decoded:?}");
    for reject in &decoded.rejects {
        assert_eq!(reject.reason.name(), "bad_ts", "{payload}: {}", reject.detail);
        assert!(reject.detail.contains(said), "{payload}: {}", reject.detail);
    }
}

/// Asserts that the payload is one fix without a time.
#[track_caller]
fn stores_undated(source: &Source, payload: &str) {
    let decoded = decode(source, payload);
    let found = (decoded.positions.len(), decoded.rejects.len(), decoded.lacking.undated);
    assert_eq!(found, (1, 0, 1), "{payload}: {decoded:?}");
}

fn feature(members: &str) -> String {
    format!(
        r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[13.4,52.5]}},{members}}}"#
    )
}

/// Decodes a time by a pattern, in a zone if it is not empty. Returns its distance from 09:00Z in
/// seconds.
fn by_pattern(pattern: &str, zone: &str, text: &str) -> Result<i64, String> {
    let pattern = Some(Local::check_pattern(pattern)?);
    let zone = if zone.is_empty() { None } else { Some(Zone::new(zone)?) };
    let more = More { local: Some(Arc::new(Local { zone, pattern })), ..More::default() };
    let source = mapped(Fields { more: Some(Box::new(more)), ..fields(TimeUnit::Pattern) });
    let decoded = decode(&source, format!(r#"{{"lat":52.5,"lng":13.4,"ts":"{text}"}}"#));
    match decoded.rejects.first() {
        Some(reject) => Err(reject.detail.clone()),
        None => Ok(decoded.positions[0].ts.unix_ms() / 1_000 - 1_795_770_000),
    }
}

#[test]
fn zone_in_a_pattern_is_that_of_the_time() {
    let us = "%m/%d/%Y %I:%M:%S %p";
    for (end, zone, text) in [
        (" EST", "America/New_York", "11/27/2026 04:00:00 AM EST"),
        (" MEZ", "Europe/Berlin", "11/27/2026 10:00:00 AM MEZ"),
        (" GMT", "Europe/Berlin", "11/27/2026 09:00:00 AM GMT"),
        (" GMT", "", "11/27/2026 09:00:00 AM GMT"),
        (" (UTC)", "Asia/Tokyo", "11/27/2026 09:00:00 AM (UTC)"),
        (" GMT+1", "", "11/27/2026 10:00:00 AM GMT+1"),
        ("-05:00", "Europe/Berlin", "11/27/2026 04:00:00 AM-05:00"),
        ("Z", "Asia/Tokyo", "11/27/2026 09:00:00 AMZ"),
        (" Uhr", "Europe/Berlin", "11/27/2026 10:00:00 AM Uhr"),
    ] {
        assert_eq!(by_pattern(&format!("{us}{end}"), zone, text), Ok(0), "{end} {zone}");
    }
    let with_name = "27.11.2026 10:00:00 Europe/Berlin";
    assert_eq!(by_pattern("%d.%m.%Y %H:%M:%S %Q", "Asia/Tokyo", with_name), Ok(0));
    let date = "%a %b %d %H:%M:%S EST %Y";
    assert_eq!(by_pattern(date, "America/New_York", "Fri Nov 27 04:00:00 EST 2026"), Ok(0));
    for (end, zone, cause) in [
        ("EST", "", "more than one zone is called EST"),
        ("EST", "Z", "such as America/New_York"),
        ("EST", "Europe/Berlin", "Europe/Berlin is not called EST"),
        ("CET", "Z", "such as Europe/Berlin"),
    ] {
        let why =
            by_pattern(&format!("{us} {end}"), zone, &format!("11/27/2026 04:00:00 AM {end}"))
                .unwrap_err();
        assert!(why.contains(cause), "{end} {zone}: {why}");
    }
    let own = format_called("milepost").in_zone(Zone::new("America/New_York").unwrap());
    refuses(
        &own,
        r#"{"lat":52.5,"lng":13.4,"ts":"11/27/2026 04:00:00 AM EST"}"#,
        "such as \"%m/%d/%Y %I:%M:%S %p EST\"",
    );
}
