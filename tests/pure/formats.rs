//! Tests every format with the examples of its own documentation and the habits of its devices.

use std::time::Duration;

use milepost_config::Config;
use milepost_decode::Message;
use milepost_decode::position::{DriverId, Position, Timestamp};
use milepost_decode::reject::Reason;
use milepost_decode::{Decoded, Decoder, Ignored, Limits};
use proptest::prelude::*;

const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// Decodes messages on one topic of one source, all received at the same time.
struct Source {
    decoder: Decoder,
    topic: &'static str,
    received_at: Timestamp,
}

impl Source {
    fn new(toml: &str, topic: &'static str, received_at_s: i64) -> Self {
        let sources = Config::parse(toml).unwrap_or_else(|error| panic!("{toml}: {error}")).sources;
        let limits = Limits {
            payload_bytes_max: 1_000_000,
            points_max: 100,
            fix_age_max: YEAR,
            fix_future_max: YEAR,
        };
        let received_at = Timestamp::from_unix_ms(received_at_s * 1_000);
        Self { decoder: Decoder::new(&sources, limits), topic, received_at }
    }

    fn with_format(format: &str, received_at_s: i64) -> Self {
        let toml = format!("[[sources]]\ntopic = 'in/+'\nkeep = '*'\n{format}");
        // A source of NMEA must not set `keep`.
        Self::new(
            &toml.replace("keep = '*'\nformat = 'nmea'", "format = 'nmea'"),
            "in/d7",
            received_at_s,
        )
    }

    fn decode(&self, payload: &str) -> Decoded {
        let mut decoded = Decoded::default();
        let message = Message::new(self.topic.as_bytes(), payload.as_bytes());
        self.decoder.decode(message, self.received_at, &mut decoded);
        decoded
    }

    /// Returns the fix of a payload. Asserts that the payload gives nothing else, and that every
    /// field of the fix is usable.
    #[track_caller]
    fn good(&self, payload: &str) -> Position {
        let mut decoded = self.decode(payload);
        assert!(decoded.rejects.is_empty() && decoded.ignored.is_empty(), "{payload}: {decoded:?}");
        assert_eq!(decoded.positions.len(), 1, "{payload}: {decoded:?}");
        assert_eq!(decoded.omissions.fields.iter().sum::<u64>(), 0, "{payload}");
        decoded.positions.remove(0)
    }

    /// Asserts that a payload gives only one reject, with this reason. Returns the reject's detail.
    #[track_caller]
    fn refused(&self, payload: &str, reason: Reason) -> String {
        let mut decoded = self.decode(payload);
        let reasons: Vec<Reason> = decoded.rejects.iter().map(|reject| reject.reason).collect();
        assert_eq!(reasons, [reason], "{payload}: {decoded:?}");
        assert!(
            decoded.positions.is_empty() && decoded.ignored.is_empty(),
            "{payload}: {decoded:?}"
        );
        decoded.rejects.remove(0).detail
    }

    /// Asserts that a payload is ignored as this kind, and gives nothing else.
    #[track_caller]
    fn ignored(&self, payload: &str, kind: Ignored) {
        let decoded = self.decode(payload);
        assert_eq!(decoded.ignored, [kind], "{payload}: {decoded:?}");
        assert!(
            decoded.positions.is_empty() && decoded.rejects.is_empty(),
            "{payload}: {decoded:?}"
        );
    }
}

/// Asserts the values of a fix in the units of the table: place in 1e-7 degrees, speed in cm/s,
/// heading in hundredths of a degree, altitude and accuracy in dm, time in milliseconds.
#[track_caller]
fn check(
    fix: &Position,
    (lat, lng): (i32, i32),
    motion: (u16, u16),
    (alt, acc): (i32, u16),
    ts: i64,
) {
    assert_eq!((fix.lat.e7(), fix.lng.e7()), (lat, lng), "{fix:?}");
    assert_eq!((fix.speed.cms(), fix.heading.cdeg()), motion, "{fix:?}");
    assert_eq!((fix.alt.dm(), fix.acc.dm()), (alt, acc), "{fix:?}");
    assert_eq!(fix.ts.unix_ms(), ts, "{fix:?}");
}

fn attributes(fix: &Position) -> Vec<String> {
    fix.attributes.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

const UNKNOWN: u16 = u16::MAX;
const NO_ALT: i32 = i32::MAX;

#[test]
fn owntracks_messages_are_read_by_their_type() {
    let source = Source::with_format("format = 'owntracks'", 1_760_000_100);
    let fix = source.good(
        r#"{"_type":"location","lat":25.76,"lon":-80.19,"tst":1760000000,"vel":54,"cog":270,"acc":12,"batt":80,"tid":"d7"}"#,
    );
    check(&fix, (257_600_000, -801_900_000), (1_500, 27_000), (NO_ALT, 120), 1_760_000_000_000);
    assert_eq!(attributes(&fix), ["batt=80", "tid=d7"]);
    let fix = source.good(
        r#"{"_type":"loc\u0061tion","lat":1,"lon":2,"tst":1760000000.25,"vel":0,"cog":0,"acc":0}"#,
    );
    check(&fix, (10_000_000, 20_000_000), (0, 0), (NO_ALT, 0), 1_760_000_000_250);
    let fix = source.good(
        r#"{"_type":"location","lat":-1.5e1,"lon":2,"tst":1760000000,"vel":-1,"cog":-1,"alt":13,"p":99.1}"#,
    );
    check(&fix, (-150_000_000, 20_000_000), (UNKNOWN, UNKNOWN), (130, UNKNOWN), 1_760_000_000_000);
    for (kind, ignored) in [
        ("waypoint", Ignored::Waypoint),
        ("waypoints", Ignored::Waypoint),
        ("transition", Ignored::Transition),
        ("lwt", Ignored::Lwt),
        ("status", Ignored::Status),
        ("card", Ignored::Card),
        ("encrypted", Ignored::Encrypted),
        ("cmd", Ignored::Command),
        ("steps", Ignored::Steps),
        ("beacon", Ignored::Beacon),
        ("dump", Ignored::Configuration),
        ("request", Ignored::Request),
    ] {
        source
            .ignored(&format!(r#"{{"_type":"{kind}","tst":1760000000,"lat":1,"lon":2}}"#), ignored);
    }
    assert!(
        source
            .refused(r#"{"_type":"news","lat":1,"lon":2}"#, Reason::UnknownFormatKind)
            .contains("news")
    );
    source.refused(r#"{"lat":1,"lon":2}"#, Reason::UnknownFormatKind);
    source.refused(
        r#"{"_type":"location","lat":1,"lon":2,"tst":"2026-01-01T00:00:00"}"#,
        Reason::BadTs,
    );
    source
        .refused(r#"{"_type":"location","lat":0,"lon":0.0,"tst":1760000000}"#, Reason::NullIsland);
    assert!(
        source.refused(r#"{"_type":"location","lat":1}"#, Reason::MissingField).contains("lon")
    );
    // A clock in 1970 and in 2100.
    source.refused(r#"{"_type":"location","lat":1,"lon":2,"tst":12}"#, Reason::TooOld);
    source.refused(r#"{"_type":"location","lat":1,"lon":2,"tst":4102444800}"#, Reason::TooNew);
    source.refused(r#"{"_type":"location","lat":1,"lon":2,"tst":1760000000000}"#, Reason::TooNew);
    source.refused(
        r#"{"_type":"location","lat":1,"lon":2,"tst":9223372036854775807}"#,
        Reason::TooNew,
    );
}

#[test]
fn traccar_position_is_read_and_events_are_ignored() {
    let toml = "[[sources]]\ntopic = 'positions'\nformat = 'traccar'\ndriver = '/device/uniqueId'\n\
                keep = '*'";
    let source = Source::new(toml, "positions", 1_704_067_300);
    let fix = source.good(
        r#"{"position":{"id":1,"attributes":{"batteryLevel":80.5,"motion":true,"ip":null},"deviceId":3,"protocol":"osmand",
            "fixTime":"2024-01-01T00:00:00.000+00:00","latitude":-33.5,"longitude":151.25,"altitude":12.3,"speed":10.0,
            "course":90.0,"address":null,"accuracy":5.0,"network":null},
            "device":{"id":3,"name":"Van","uniqueId":"359710049095095"}}"#,
    );
    // 10 knots are 514 cm/s.
    check(&fix, (-335_000_000, 1_512_500_000), (514, 9_000), (123, 50), 1_704_067_200_000);
    assert_eq!(fix.driver_id.as_str(), "359710049095095");
    let kept = [
        "id=1",
        "attributes/batteryLevel=80.5",
        "attributes/motion=true",
        "deviceId=3",
        "protocol=osmand",
    ];
    assert_eq!(attributes(&fix), kept);
    let older = r#"{"position":{"fixTime":"2024-01-01T01:00:00.000+0100","latitude":1,"longitude":2},"device":{"uniqueId":7}}"#;
    let fix = source.good(older);
    assert_eq!((fix.ts.unix_ms(), fix.driver_id.as_str()), (1_704_067_200_000, "7"));
    source
        .ignored(r#"{"event":{"type":"deviceOnline"},"device":{"uniqueId":"7"}}"#, Ignored::Event);
    source.refused(r#"{"position":{"latitude":1,"longitude":2}}"#, Reason::BadDriver);
    source.refused(
        r#"{"position":{"latitude":1,"longitude":2},"device":{"uniqueId":"a b"}}"#,
        Reason::BadDriver,
    );
    source.refused(r#"{"position":null,"device":{"uniqueId":"7"}}"#, Reason::MissingField);
    source.refused(
        &older.replace("\"2024-01-01T01:00:00.000+0100\"", "1704067200000"),
        Reason::BadTs,
    );
}

#[test]
fn traccar_client_location_may_be_an_object_or_an_array() {
    let source = Source::with_format("format = 'traccar-client'", 1_767_225_700);
    let fix = source.good(
        r#"{"location":{"timestamp":"2026-01-01T00:00:00.000Z","coords":{"latitude":25.76,"longitude":-80.19,"speed":12.4,
            "heading":271,"accuracy":5,"altitude":-1.5},"is_moving":true,"battery":{"level":0.8,"is_charging":false},
            "activity":{"type":"in_vehicle"},"extras":{}},"device_id":"d7"}"#,
    );
    check(&fix, (257_600_000, -801_900_000), (1_240, 27_100), (-15, 50), 1_767_225_600_000);
    assert_eq!(
        attributes(&fix),
        [
            "is_moving=true",
            "battery/level=0.8",
            "battery/is_charging=false",
            "activity/type=in_vehicle"
        ]
    );
    // Apple's devices send -1 for unknown.
    let point = r#"{"timestamp":"2026-01-01T00:00:00Z","coords":{"latitude":1,"longitude":2,"speed":-1,"heading":-1}}"#;
    let unknown = |fix: &Position| {
        check(
            fix,
            (10_000_000, 20_000_000),
            (UNKNOWN, UNKNOWN),
            (NO_ALT, UNKNOWN),
            1_767_225_600_000,
        )
    };
    unknown(&source.good(&format!(r#"{{"location":{point}}}"#)));
    unknown(&source.good(point));
    let several = source
        .decode(&format!(r#"{{"location":[{point},{{"coords":{{}}}},{point}],"device_id":"x"}}"#));
    assert_eq!((several.positions.len(), several.rejects.len()), (2, 1));
    several.positions.iter().for_each(unknown);
    assert_eq!(several.rejects[0].payload, br#"{"coords":{}}"#);

    let toml = "[[sources]]\ntopic = 'in'\nformat = 'traccar-client'\ndriver = '/device_id'";
    let source = Source::new(toml, "in", 1_767_225_700);
    let several = source.decode(&format!(r#"{{"device_id":"x","location":[{point},{point}]}}"#));
    assert!(several.positions.iter().all(|fix| fix.driver_id.as_str() == "x"), "{several:?}");
    assert_eq!(several.positions.len(), 2);
}

#[test]
fn teltonika_report_is_read_and_telemetry_ignored() {
    let source = Source::with_format("format = 'teltonika'", 1_760_000_100);
    let fix = source.good(
        r#"{"state":{"reported":{"ts":1760000000123,"latlng":"25.76,-80.19","sp":54,"ang":270,"sat":9,"evt":0,"239":1}}}"#,
    );
    check(&fix, (257_600_000, -801_900_000), (1_500, 27_000), (NO_ALT, UNKNOWN), 1_760_000_000_123);
    assert_eq!(attributes(&fix), ["sat=9", "evt=0", "239=1"]);
    let strings = r#"{"state":{"reported":{"ts":"1760000000123","latlng":" -25.5 , 80 ","sp":"36","ang":"1e1","alt":"-4"}}}"#;
    check(
        &source.good(strings),
        (-255_000_000, 800_000_000),
        (1_000, 1_000),
        (-40, UNKNOWN),
        1_760_000_000_123,
    );
    source.ignored(r#"{"RSP":"OK"}"#, Ignored::Command);
    source.ignored(r#"{"state":{"reported":{"ts":1760000000123,"66":12000}}}"#, Ignored::Telemetry);
    source.refused(r#"{"state":{"reported":{"latlng":"0.000000,0.000000"}}}"#, Reason::NullIsland);
    source.refused(r#"{"state":{"reported":{"latlng":"25.76"}}}"#, Reason::MissingField);
    source.refused(r#"{"state":{"reported":{"latlng":"nan,inf"}}}"#, Reason::MissingField);
    source.refused(r#"{"state":{}}"#, Reason::MissingField);
}

#[test]
fn thingsboard_telemetry_is_read_in_the_configured_unit() {
    let source = Source::with_format("format = 'thingsboard'\nspeed_unit = 'km/h'", 1_760_000_100);
    let telemetry = r#"{"ts":1760000000123,"values":{"latitude":25.76,"longitude":-80.19,"speed":36,"temperature":21.5}}"#;
    let fix = source.good(telemetry);
    check(
        &fix,
        (257_600_000, -801_900_000),
        (1_000, UNKNOWN),
        (NO_ALT, UNKNOWN),
        1_760_000_000_123,
    );
    assert_eq!(attributes(&fix), ["temperature=21.5"]);
    let several =
        source.decode(&format!(r#"[{telemetry},{{"ts":1,"values":{{"rpm":3}}}},7,{telemetry}]"#));
    assert_eq!((several.positions.len(), several.rejects.len()), (2, 1), "{several:?}");
    assert_eq!(several.ignored, [Ignored::Telemetry]);
    let twice = source.good(&telemetry.replace("\"temperature\":21.5", "\"ts\":5"));
    assert_eq!(twice.ts.unix_ms(), 1_760_000_000_123, "`ts` next to `values` is the time");
    let undated = source.decode(r#"{"latitude":"1.5","longitude":"2","speed":"72"}"#);
    assert_eq!((undated.omissions.undated, undated.positions[0].speed.cms()), (1, 2_000));
    source.refused(r#"{"latitude":1}"#, Reason::MissingField);
    let knots = Source::with_format("format = 'thingsboard'\nspeed_unit = 'knots'", 1_760_000_100);
    assert_eq!(knots.good(telemetry).speed.cms(), 1_852);
}

#[test]
fn geojson_points_are_read_with_longitude_first() {
    let source = Source::with_format("format = 'geojson'\nspeed_unit = 'm/s'", 1_760_000_100);
    let fix = source.good(
        r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[-80.19,25.76]},"properties":{"ts":1760000000,"speed":3,"name":"x"}}"#,
    );
    check(&fix, (257_600_000, -801_900_000), (300, UNKNOWN), (NO_ALT, UNKNOWN), 1_760_000_000_000);
    assert_eq!(attributes(&fix), ["name=x"]);
    // RFC 7946's own example; longitude comes first.
    let rfc = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[125.6,10.1]},"properties":{"name":"Dinagat Islands"}}"#;
    let decoded = source.decode(rfc);
    assert_eq!((decoded.positions[0].lat.e7(), decoded.omissions.undated), (101_000_000, 1));
    source.refused(&rfc.replace("125.6,10.1", "10.1,125.6"), Reason::LatRange);
    let point = r#"{"type":"Feature","geometry":{"type":"Point","coordinates":[2,1,30.5]},"properties":{"time":"2025-10-09T08:53:20Z"}}"#;
    check(
        &source.good(point),
        (10_000_000, 20_000_000),
        (UNKNOWN, UNKNOWN),
        (305, UNKNOWN),
        1_760_000_000_000,
    );
    let line = r#"{"type":"Feature","geometry":{"type":"LineString","coordinates":[[2,1],[3,4]]},"properties":null}"#;
    assert!(source.refused(line, Reason::UnknownFormatKind).contains("LineString"));
    let collection =
        format!(r#"{{"type":"FeatureCollection","features":[{point},{line},{point}]}}"#);
    let decoded = source.decode(&collection);
    assert_eq!((decoded.positions.len(), decoded.rejects.len()), (2, 1));
    let nested =
        source.decode(&format!(r#"{{"type":"FeatureCollection","features":[{collection}]}}"#));
    assert!(nested.positions.is_empty(), "a collection in a collection is rejected: {nested:?}");
    assert_eq!(nested.rejects[0].reason, Reason::UnknownFormatKind);
    source.ignored(r#"{"type":"Feature","geometry":null,"properties":{}}"#, Ignored::NoFix);
    source.refused(r#"{"type":"Point","coordinates":[1,2]}"#, Reason::UnknownFormatKind);
    source.refused(r#"{"type":"FeatureCollection","features":[]}"#, Reason::WrongShape);
    let most =
        format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, vec![point; 100].join(","));
    assert_eq!(source.decode(&most).positions.len(), 100);
    let many = vec![point; 60].join(",");
    let of_60 = format!(r#"{{"type":"FeatureCollection","features":[{many}]}}"#);
    let decoded = source.decode(&format!("[{of_60},{of_60}]"));
    assert_eq!(decoded.positions.len(), 60);
    assert_eq!(
        decoded.rejects[0].reason,
        Reason::TooManyPoints,
        "the limit is for the whole message"
    );
}

#[test]
fn w3c_position_is_read_and_null_is_unknown() {
    let source = Source::with_format("format = 'w3c'", 1_760_000_100);
    let fix = source.good(
        r#"{"coords":{"latitude":25.76,"longitude":-80.19,"altitude":null,"accuracy":20.5,"altitudeAccuracy":null,"heading":null,"speed":null},"timestamp":1760000000123}"#,
    );
    check(&fix, (257_600_000, -801_900_000), (UNKNOWN, UNKNOWN), (NO_ALT, 205), 1_760_000_000_123);
    assert!(attributes(&fix).is_empty());
    source.refused(
        r#"{"coords":{"latitude":"25.76","longitude":2},"timestamp":1760000000123}"#,
        Reason::WrongType,
    );
}

/// Returns an NMEA sentence with its checksum.
fn nmea(body: &str) -> String {
    format!("${body}*{:02X}", body.bytes().fold(0, |sum, byte| sum ^ byte))
}

#[test]
fn nmea_sentences_of_one_second_become_one_fix() {
    // Received on 1994-03-23, the date of the widely used example sentences.
    let source = Source::with_format("format = 'nmea'", 764_426_200);
    let rmc = "$GPRMC,123519,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W*6A";
    let gga = "$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47";
    let place = (481_173_000, 115_166_667);
    check(&source.good(rmc), place, (1_152, 8_440), (NO_ALT, UNKNOWN), 764_426_119_000);
    for both in [format!("{rmc}\r\n{gga}\r\n"), format!("{gga}\n{rmc}")] {
        // 592.3 m: the fix is 545.4 m above sea level, and sea level is 46.9 m above the ellipsoid.
        check(&source.good(&both), place, (1_152, 8_440), (5_923, UNKNOWN), 764_426_119_000);
    }
    let alone = source.decode(gga);
    assert_eq!(
        (alone.positions.len(), alone.omissions.undated),
        (1, 0),
        "the GGA's date is the day of receipt"
    );
    assert_eq!(alone.positions[0].ts.unix_ms(), 764_426_119_000);
    let next_second = rmc.replace("123519", "123520").replace("*6A", "*60");
    let decoded = source.decode(&[gga, &next_second, "$GPGSV,1,1,00*79", "rubbish"].join("\n"));
    assert_eq!((decoded.positions.len(), decoded.omissions.undated), (2, 0), "{decoded:?}");
    assert_eq!(
        (&*decoded.ignored, decoded.rejects.len()),
        (&[Ignored::Sentence][..], 1),
        "{decoded:?}"
    );

    let rmc_at =
        |lat: &str, lng: &str| nmea(&format!("GNRMC,123519.50,A,{lat},{lng},,,230394,,,A"));
    let fix = source.good(&rmc_at("3351.0000,S", "07040.5000,W"));
    check(
        &fix,
        (-338_500_000, -706_750_000),
        (UNKNOWN, UNKNOWN),
        (NO_ALT, UNKNOWN),
        764_426_119_500,
    );
    check(
        &source.good(&rmc_at("9000.0000,N", "18000.0000,W")),
        (900_000_000, -1_800_000_000),
        (UNKNOWN, UNKNOWN),
        (NO_ALT, UNKNOWN),
        764_426_119_500,
    );
    check(
        &source.good(&rmc_at("0000.0000,N", "00000.0600,W")),
        (0, -10_000),
        (UNKNOWN, UNKNOWN),
        (NO_ALT, UNKNOWN),
        764_426_119_500,
    );
    assert_eq!(source.good(&rmc_at("4859.9999,N", "01159.99999,E")).lng.e7(), 119_999_998);
    source.refused(&rmc_at("9000.0001,N", "01131.0,E"), Reason::LatRange);
    source.refused(&rmc_at("0000.0000,N", "00000.0000,E"), Reason::NullIsland);
    for lat in
        ["4860.0000,N", "48.1,N", "4807.038,E", "-4807.038,N", "4807.038,", "x,N", "4807.0.1,N"]
    {
        source.refused(&rmc_at(lat, "01131.000,E"), Reason::InvalidSentence);
    }
    source.refused(&rmc.replace("*6A", "*6B"), Reason::BadChecksum);
    source.refused(&rmc.replace("*6A", ""), Reason::BadChecksum);
    source.refused(&rmc.replace("*6A", "*06A"), Reason::BadChecksum);
    // A tag block before the sentence does not change the fix.
    let tagged = format!(r"\g:1-2-73874,s:r003669945,c:764426119*4A\{rmc}");
    assert_eq!(source.good(&tagged), source.good(rmc));
    let prefixed = source.decode(&format!("2026-11-26 09:00:00 {rmc}"));
    assert!(prefixed.rejects[0].detail.contains("remove what stands before"), "{prefixed:?}");
    let long = source.decode(&format!("$GPTXT,{},*00", "x".repeat(300)));
    assert!(long.rejects[0].detail.contains("is not a sentence"), "{long:?}");
    let unended = source.decode(&rmc.replace("*6A", "*"));
    assert!(unended.rejects[0].detail.contains("has no checksum"), "{unended:?}");
    source.refused("{}", Reason::InvalidSentence);
    source.refused("\r\n", Reason::InvalidSentence);
    source.refused(&nmea("GPRMC,123519,A,4807.038,N,01131.000,E,,,320394,,"), Reason::BadTs);
    source.refused(&nmea("GPRMC,1235é9,A,4807.038,N,01131.000,E,,,230394,,"), Reason::BadTs);
    source.refused(&nmea("GPRMC,123519,A,4807.038,N,01131.000,E,,,2303940,,"), Reason::BadTs);
    source.refused(&nmea("GPRMC,123561,A,4807.038,N,01131.000,E,,,230394,,"), Reason::BadTs);
    source.refused(&nmea("GPRMC,123519,A,4807.038,N,01131.000,E,,,010100,,"), Reason::TooNew);
    source.ignored(&nmea("GPRMC,123519,V,,,,,,,230394,,,N"), Ignored::NoFix);
    source.ignored(&nmea("GPGGA,123519,,,,,0,00,,,M,,M,,"), Ignored::NoFix);
    let seconds = |n: u32| nmea(&format!("GPRMC,1235{n:02},A,4807.038,N,01131.000,E,,,230394,,"));
    let many: Vec<String> = (0..100).map(|n| seconds(n % 60)).collect();
    assert_eq!(source.decode(&many.join("\n")).positions.len(), 60, "one fix for each second");
    assert_eq!(source.decode(&vec!["x"; 101].join("\n")).rejects[0].reason, Reason::TooManyPoints);
}

#[test]
fn nmea_two_digit_year_is_read_in_its_century() {
    // The first day of GPS; a leap second, which is read as the second that follows; a recent
    // day.
    for (time, date, unix_s) in [
        ("000000", "060180", 315_964_800),
        ("235960", "311216", 1_483_228_800),
        ("000000", "010126", 1_767_225_600),
    ] {
        let source = Source::with_format("format = 'nmea'", unix_s + 100);
        let fix = source.good(&nmea(&format!("GPRMC,{time},A,4807.038,N,01131.000,E,,,{date},,")));
        assert_eq!(fix.ts.unix_ms(), unix_s * 1_000, "{date} {time}");
    }
}

/// Mapping for Particle's tracker (docs.particle.io, Tracker Edge's `loc` event).
const PARTICLE: &str = r#"
[formats.particle]
lat = "/loc/lat"
lng = "/loc/lon"
ts = "/loc/time"
ts_unit = "s"
heading = "/loc/hd"
alt = "/loc/alt"
alt_unit = "m"
acc = "/loc/h_acc"
[[sources]]
topic = "in/+"
format = "particle"
keep = ["loc/batt", "req_id"]
"#;

#[test]
fn mapped_format_reads_the_configured_paths() {
    let source = Source::new(PARTICLE, "in/d7", 1_592_486_600);
    let fix = source.good(
        r#"{"cmd":"loc","time":1592486562,"loc":{"lck":1,"time":1592486562,"lat":42.469732,"lon":-75.064801,"alt":324.16,
            "hd":122.29,"h_acc":6.0,"v_acc":14.0,"cell":37.1,"batt":98.8},"trig":["lock"],"req_id":2}"#,
    );
    check(&fix, (424_697_320, -750_648_010), (UNKNOWN, 12_229), (3_242, 60), 1_592_486_562_000);
    assert_eq!(attributes(&fix), ["loc/batt=98.8", "req_id=2"]);
    let detail =
        source.refused(r#"{"cmd":"loc","loc":{"lck":0,"time":1592486562}}"#, Reason::MissingField);
    assert!(detail.contains("/loc/lat"), "{detail}");

    let toml = "[formats.acme]\npoints = '/data/track'\nlat = '/0'\nlng = '/1'\nts = '/2'\n\
                ts_unit = 'rfc3339'\nspeed = '/3'\nspeed_unit = 'mph'\nalt = '/a~1b'\n\
                alt_unit = 'ft'\nseq = '/4'\ndriver = '/id'\n[[sources]]\ntopic = 'in'\n\
                format = 'acme'";
    let source = Source::new(toml, "in", 1_767_225_700);
    let decoded = source.decode(
        r#"{"id":42,"data":{"track":[["1.5","-2",null,"10",3],[1,2,"2026-01-01T00:00:00Z",10],{"0":1,"1":2,"a/b":100},[1],5]}}"#,
    );
    let [strings, dated, named] = &decoded.positions[..] else { panic!("{decoded:?}") };
    check(strings, (15_000_000, -20_000_000), (447, UNKNOWN), (NO_ALT, UNKNOWN), 1_767_225_700_000);
    assert_eq!((strings.driver_id.as_str(), strings.seq), ("42", 3));
    assert_eq!(dated.ts.unix_ms(), 1_767_225_600_000);
    assert_eq!(named.alt.dm(), 305);
    let reasons: Vec<Reason> = decoded.rejects.iter().map(|reject| reject.reason).collect();
    assert_eq!(reasons, [Reason::MissingField, Reason::WrongShape]);
    assert!(source.refused(r#"{"id":1}"#, Reason::MissingField).contains("/data/track"));
    let detail = source.refused(r#"{"id":1,"data":{"track":7}}"#, Reason::WrongShape);
    assert!(detail.contains("7 is not an array of points"), "{detail}");

    let toml = "[formats.acme]\npoints = '/data/1/track'\nlat = '/0'\nlng = '/1'\n\
                [[sources]]\ntopic = 'in/+'\nformat = 'acme'";
    let source = Source::new(toml, "in/d7", 1_767_225_700);
    let decoded = source.decode(r#"{"data":[{"track":[]},{"track":[[1,2],[3,4]]},5]}"#);
    assert_eq!((decoded.positions.len(), decoded.rejects.len()), (2, 0), "{decoded:?}");
}

#[test]
fn kept_fields_are_bounded_and_counted() {
    let source = Source::new("[[sources]]\ntopic = 'in/+'\nkeep = '*'", "in/d7", 1_767_225_600);
    let fields: Vec<String> = (0..70).map(|n| format!(r#""f{n}":{n}"#)).collect();
    let decoded = source.decode(&format!(r#"{{"lat":1,"lng":2,{}}}"#, fields.join(",")));
    assert_eq!(
        (decoded.positions[0].attributes.iter().count(), decoded.omissions.attributes_cut),
        (64, 6)
    );
    let long = "x".repeat(4_000);
    let decoded = source.decode(&format!(
        r#"{{"lat":1,"lng":2,"a":"{long}","b":"{long}","c":{{"d":[1],"e":null,"f":false}}}}"#
    ));
    assert_eq!(
        (decoded.positions[0].attributes.iter().count(), decoded.omissions.attributes_cut),
        (2, 1)
    );
    // Kept names and values may have 4,096 bytes together; a repeated name replaces its former
    // value. Here `e` would be one byte more, and is not kept.
    let [full, remainder] = [4_094, 4_091].map(|bytes| "x".repeat(bytes));
    let decoded = source.decode(&format!(
        r#"{{"lat":1,"lng":2,"ab":"{full}","ab":"{full}","ab":"x","cd":"{remainder}","e":""}}"#
    ));
    assert_eq!(
        (decoded.positions[0].attributes.iter().count(), decoded.omissions.attributes_cut),
        (2, 1)
    );
    let none = Source::new("[[sources]]\ntopic = 'in/+'", "in/d7", 1_767_225_600);
    assert!(
        none.decode(r#"{"lat":1,"lng":2,"a":1}"#).positions[0].attributes.iter().next().is_none()
    );
}

#[test]
fn kept_fields_match_the_payload() {
    let kept_fields = |keep: &str, payload: &str| {
        let source = Source::new(
            &format!("[[sources]]\ntopic = 'in/+'\nkeep = {keep}"),
            "in/d7",
            1_767_225_600,
        );
        let decoded = source.decode(payload);
        (attributes(&decoded.positions[0]), decoded.omissions.attributes_cut)
    };
    // Numbers are kept digit by digit: an ICCID must not become a float.
    let numbers = r#"{"lat":1,"lng":2,"iccid":8988280666000002864123,"v":1.50,"e":-1E2,"x":1e999,"ok":true,"t":"a\u00e9"}"#;
    let all =
        ["iccid=8988280666000002864123", "v=1.50", "e=-1E2", "x=1e999", "ok=true", "t=a\u{e9}"];
    assert_eq!(kept_fields("'*'", numbers), (all.map(str::to_owned).to_vec(), 0));
    // JSON's grammar allows a lone surrogate, which no UTF-8 string can hold.
    let lone_surrogate = r#"{"lat":1,"lng":2,"a":"\ud800","b":{"\ud800":1,"c":2},"batt":80}"#;
    assert_eq!(kept_fields("['batt']", lone_surrogate), (vec!["batt=80".to_owned()], 0));
    let readable = ["b/\\ud800=1", "b/c=2", "batt=80"].map(str::to_owned);
    assert_eq!(kept_fields("'*'", lone_surrogate), (readable.to_vec(), 1));
    let (deep, deeper) = (r#"{"":"#.repeat(16), r#"{"":"#.repeat(100_000));
    let nested = |open: &str| {
        format!(
            r#"{{"lat":1,"lng":2,"a":{open}{{"z":1}}{},"batt":80}}"#,
            "}".repeat(open.len() / 4)
        )
    };
    assert_eq!(kept_fields("'*'", &nested(&deep)), (vec!["batt=80".to_owned()], 1));
    assert_eq!(kept_fields("'*'", &nested(&deeper)), (vec!["batt=80".to_owned()], 1));
    assert_eq!(
        kept_fields("['a/b']", r#"{"lat":1,"lng":2,"a":{"b":1,"c":2},"a/b":{"b":3}}"#).0,
        ["a/b=1"]
    );
}

#[test]
fn last_duplicate_key_wins_even_if_null() {
    let source = Source::with_format("format = 'w3c'", 1_760_000_100);
    let fix = source.good(r#"{"coords":{"latitude":1,"longitude":2,"speed":3,"speed":null,"latitude":4},"timestamp":1760000000000}"#);
    assert_eq!((fix.lat.e7(), fix.speed.cms()), (40_000_000, UNKNOWN));
}

#[test]
fn driver_id_is_read_from_the_named_topic_levels() {
    let id = |driver: &str, topic: &'static str| {
        let toml = format!("[[sources]]\ntopic = 'owntracks/+/+'\ndriver = '{driver}'");
        let decoded = Source::new(&toml, topic, 1_767_225_600).decode(r#"{"lat":1,"lng":2}"#);
        decoded.positions.first().map(|fix| fix.driver_id.as_str().to_owned())
    };
    assert_eq!(id("{1}:{2}", "owntracks/jo/phone").as_deref(), Some("jo:phone"));
    assert_eq!(id("van-{2}", "owntracks/jo/phone").as_deref(), Some("van-phone"));
    assert_eq!(id("{2}.{1}", "owntracks/jo/phone").as_deref(), Some("phone.jo"));
    assert_eq!(id("{1}:{2}", "owntracks//phone"), None, "an empty level is not a driver id");
    assert_eq!(id("{1}", "owntracks/jo/phone/event"), None, "the source has another topic");
    let toml = "[[sources]]\ntopic = 'in/+'\ndriver = 'van-{1}'";
    assert_eq!(
        Source::new(toml, "in/d7", 0).good(r#"{"lat":1,"lng":2}"#).driver_id.as_str(),
        "van-d7"
    );
}

#[test]
fn presence_is_ignored_and_not_refused() {
    for format in ["milepost", "owntracks", "teltonika", "w3c", "nmea"] {
        let source = Source::with_format(&format!("format = '{format}'"), 1_767_225_600);
        for payload in ["offline", " ONLINE\n", "\"disconnected\"", r#"{"status":"offline"}"#] {
            source.ignored(payload, Ignored::Presence);
        }
        // Only the whole word counts.
        assert_eq!(source.decode("of").rejects.len(), 1);
    }
}

proptest! {
    #![proptest_config(crate::cases::cases(256))]

    /// Every payload gives 1 to `points_max` results: fixes, rejects and ignored parts.
    #[test]
    fn every_format_gives_a_result_for_any_payload(
        index in 0..9_usize,
        text in r#"[\[\]{},:"$*.0-9a-zA-Z_\- ]{1,80}"#,
    ) {
        let formats = [
            "milepost",
            "owntracks",
            "traccar",
            "traccar-client",
            "teltonika",
            "thingsboard'\nspeed_unit='mph",
            "geojson'\nspeed_unit='m/s",
            "nmea",
            "w3c",
        ];
        let source = Source::with_format(&format!("format = '{}'", formats[index]), 1_767_225_600);
        let decoded = source.decode(&text);
        let outcomes = decoded.positions.len() + decoded.rejects.len() + decoded.ignored.len();
        prop_assert!((1..=100).contains(&outcomes), "{text}: {decoded:?}");
    }
}

/// The driver id is outside the array. A rejected point is stored with the driver id, so that
/// milepost can replay the point alone.
#[test]
fn rejected_point_of_an_array_keeps_its_driver() {
    let mapped = "[[sources]]\ntopic = 'in'\nformat = 'acme'\ndriver = '/dev'\n[formats.acme]\n\
                  points = '/p'\nlat = '/a'\nlng = '/o'";
    for (toml, payload) in [
        (
            "[[sources]]\ntopic = 'in'\nformat = 'traccar-client'\ndriver = '/device_id'",
            r#"{"device_id":"d7","location":[{"coords":{"latitude":91,"longitude":2}}]}"#,
        ),
        (
            "[[sources]]\ntopic = 'in'\nformat = 'geojson'\nspeed_unit = 'm/s'\ndriver = '/id'",
            r#"{"type":"FeatureCollection","id":"d7","features":[{"type":"Feature","geometry":{"type":"Point","coordinates":[2,91]}}]}"#,
        ),
        (mapped, r#"{"dev":"d7","p":[{"a":91,"o":2}]}"#),
        (mapped, r#"[{"dev":"d7","p":[{"a":91,"o":2}]}]"#),
    ] {
        let source = Source::new(toml, "in", 0);
        let refused = source.decode(payload).rejects;
        assert_eq!(refused.len(), 1, "{payload}: {refused:?}");
        assert_eq!(
            (refused[0].reason, &*refused[0].driver_id),
            (Reason::LatRange, "d7"),
            "{payload}"
        );

        let stored = String::from_utf8(refused[0].payload.clone()).unwrap();
        let good = payload.replace("91", "9");
        let id = |name: &str| source.decode(&good.replace("d7", name)).positions[0].driver_id;
        let decode_for = |payload: &str, driver: Option<DriverId>| {
            let message = Message::new(source.topic.as_bytes(), payload.as_bytes());
            let mut decoded = Decoded::default();
            source.decoder.decode_part(message, source.received_at, driver, &mut decoded);
            decoded
        };
        let corrected = decode_for(&stored.replace("91", "9"), Some(id("d7")));
        assert_eq!(corrected.positions.len(), 1, "{stored}: {corrected:?}");
        assert_eq!(corrected.positions[0].driver_id.as_str(), "d7");
        let again = decode_for(&stored, Some(id("d7"))).rejects;
        assert_eq!((again[0].reason, &*again[0].driver_id), (Reason::LatRange, "d7"), "{stored}");
        assert_eq!(decode_for(&stored, None).rejects[0].reason, Reason::BadDriver, "{stored}");
        // A driver id in the payload overrides the stored driver id.
        let other = decode_for(&good, Some(id("d8")));
        assert_eq!(other.positions[0].driver_id.as_str(), "d7", "{payload}");
    }
}
