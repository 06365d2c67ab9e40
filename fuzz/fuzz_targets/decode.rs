//! A message is a line with flags and topic, then the payload: `1drivers/7/gps\n{"lat":…}`.
//! Flags, the bits of the first byte (so `0` to `7` are fine): 2 cut on the way, 4 tight limits.

#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use milepost::pipeline::batch::Batch;
use milepost::pipeline::decode::{Decoded, Decoder, Limits, Message};
use milepost::pipeline::encode::encode;
use milepost::pipeline::position::{Accuracy, Altitude, Heading, Position, Speed, Timestamp};
use milepost::pipeline::reject::PAYLOAD_BYTES_MAX;

/// 2026-09-21: fixed, so that an input means the same tomorrow.
const RECEIVED_AT_MS: i64 = 1_790_000_000_000;
/// RowBinary after the driver's id: ts, seq, lat, lng, speed, heading, alt, acc, `received_at`.
const ROW_BYTES_AFTER_ID: usize = 8 + 4 + 4 + 4 + 2 + 2 + 4 + 2 + 8;

static WIDE: LazyLock<(Decoder, Limits)> = LazyLock::new(|| decoder(1_000_000, 10_000, 30 * 86_400, 300));
/// Small enough to be reached by small inputs.
static TIGHT: LazyLock<(Decoder, Limits)> = LazyLock::new(|| decoder(200, 3, 1, 0));

fn decoder(payload_bytes_max: usize, points_max: usize, age_s: u64, future_s: u64) -> (Decoder, Limits) {
    let limits = Limits {
        payload_bytes_max,
        points_max,
        fix_age_max: Duration::from_secs(age_s),
        fix_future_max: Duration::from_secs(future_s),
    };
    let topics = ["drivers/+/gps".to_owned(), "+".to_owned()];
    (Decoder::new(&topics, limits.clone()), limits)
}

fuzz_target!(|data: &[u8]| {
    let Some((&flags, data)) = data.split_first() else { return };
    let mut lines = data.splitn(2, |byte| *byte == b'\n');
    let (topic, payload) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let (decoder, limits) = if flags & 4 == 0 { &*WIDE } else { &*TIGHT };
    let payload_bytes = payload.len() + if flags & 2 == 0 { 0 } else { 1_000 };
    let received_at = Timestamp::from_unix_ms(RECEIVED_AT_MS);
    let message = Message { topic, payload, payload_bytes, received_at };

    let mut decoded = Decoded::default();
    decoder.decode(message, &mut decoded);

    let (positions, rejects) = (decoded.positions.len(), decoded.rejects.len());
    assert!((1..=limits.points_max).contains(&(positions + rejects)), "{decoded:?}");
    for position in &decoded.positions {
        check(position, message, limits);
    }
    for reject in &decoded.rejects {
        assert!(reject.payload.len() <= PAYLOAD_BYTES_MAX && reject.detail.chars().count() <= 200);
        assert!(reject.payload.len() as u64 <= reject.payload_bytes);
        assert_eq!((reject.count, reject.received_at), (1, received_at));
    }
    assert!(decoded.lacking.undated <= positions as u64);
    assert!(decoded.lacking.fields.iter().all(|unknown| *unknown <= positions as u64));

    let Decoded { positions: rows, rejects: refused, .. } = decoded;
    let inserts = encode(Batch { positions: rows, rejects: refused, ..Batch::default() }, "fleet");
    let rows_of = |table: &str| {
        let of_table = inserts.iter().filter(|insert| insert.statement.contains(table));
        of_table.map(|insert| insert.rows).sum::<usize>()
    };
    assert_eq!((rows_of("fleet.positions "), rows_of("fleet.rejects ")), (positions, rejects));
    for insert in &inserts {
        let middle = insert.rows / 2;
        let halves = [0..middle, middle..insert.rows].map(|rows| insert.part(rows).expect("our own columns"));
        assert_eq!(halves.map(|half| half.body).concat(), insert.body);
    }
    if positions > 0 {
        assert_eq!(rows_in(&inserts[0].body), positions);
    }
});

fn check(position: &Position, message: Message<'_>, limits: &Limits) {
    let within = |value: i64, min: i64, max: i64| assert!((min..=max).contains(&value), "{position:?}");
    within(position.lat.e7().into(), -900_000_000, 900_000_000);
    within(position.lng.e7().into(), -1_800_000_000, 1_800_000_000);
    if position.speed != Speed::UNKNOWN {
        within(position.speed.cms().into(), 0, 20_000);
    }
    if position.heading != Heading::UNKNOWN {
        within(position.heading.cdeg().into(), 0, 35_999);
    }
    if position.alt != Altitude::UNKNOWN {
        within(position.alt.dm().into(), -10_000, 1_000_000);
    }
    if position.acc != Accuracy::UNKNOWN {
        within(position.acc.dm().into(), 0, 65_534);
    }
    let ms = |duration: Duration| i64::try_from(duration.as_millis()).expect("short");
    let (oldest, newest) =
        (RECEIVED_AT_MS - ms(limits.fix_age_max), RECEIVED_AT_MS + ms(limits.fix_future_max));
    within(position.ts.unix_ms(), oldest, newest);
    let id = position.driver_id.as_str();
    assert!((1..=64).contains(&id.len()) && std::str::from_utf8(message.topic).expect("read").contains(id));
    assert_eq!(position.received_at, message.received_at);
}

/// As the server would count them.
fn rows_in(mut body: &[u8]) -> usize {
    let mut rows = 0;
    while let Some(id_bytes) = body.first() {
        // An id is at most 64 bytes long, so its length is one byte.
        body = &body[1 + usize::from(*id_bytes) + ROW_BYTES_AFTER_ID..];
        rows += 1;
    }
    rows
}
