//! Messages encoded once, and made new by writing digits over digits: a few nanoseconds each.

use std::ops::Range;

use lab_mqtt::{kind, put_packet, put_string};
use lab_stack::unix_ms;
use loadgen::fleet::{Fleet, LIVE_ACC_M};

/// The first `seq` of every driver: a JSON number has no leading zeros, so all of them have ten digits.
pub const FIRST_SEQ: u32 = 1_000_000_001;
pub(super) const DRIVERS_MAX: u32 = 10_000_000;
/// Messages of a full segment: 64 KiB.
pub(super) const MESSAGES: u64 = 460;
/// Different segments: so that a batch is not the same rows again, which would compress too well.
const SEGMENTS: usize = 16;

const DRIVER_DIGITS: usize = 7;
const SEQ_DIGITS: usize = 10;
const TS_DIGITS: usize = 13;

#[derive(Default)]
pub(super) struct Segments {
    with_ids: bool,
    encoded: Vec<Vec<u8>>,
    next: usize,
    places: Places,
}

/// Where in a message the digits are.
#[derive(Default, Clone, Copy)]
struct Places {
    len: usize,
    driver: usize,
    packet_id: usize,
    ts: usize,
    seq: usize,
}

impl Segments {
    /// The messages of these numbers, as bytes; with packet ids, one for each.
    pub(super) fn fill(&mut self, drivers: u32, messages: Range<u64>, packet_ids: &[u16]) -> &[u8] {
        if self.encoded.is_empty() || self.with_ids == packet_ids.is_empty() {
            self.encode(!packet_ids.is_empty());
        }
        self.next = (self.next + 1) % SEGMENTS;
        let (segment, places) = (&mut self.encoded[self.next], self.places);
        let mut ts = [0; TS_DIGITS];
        put_digits(u64::try_from(unix_ms()).unwrap_or(0), &mut ts);
        let mut driver = messages.start % u64::from(drivers);
        let mut seq = messages.start / u64::from(drivers) + u64::from(FIRST_SEQ);
        let mut filled = 0;
        for (_, message) in messages.zip(segment.chunks_exact_mut(places.len)) {
            put_digits(driver, &mut message[places.driver..][..DRIVER_DIGITS]);
            put_digits(seq, &mut message[places.seq..][..SEQ_DIGITS]);
            message[places.ts..][..TS_DIGITS].copy_from_slice(&ts);
            if let Some(packet_id) = packet_ids.get(filled) {
                message[places.packet_id..][..2].copy_from_slice(&packet_id.to_be_bytes());
            }
            driver += 1;
            if driver == u64::from(drivers) {
                driver = 0;
                seq += 1;
            }
            filled += 1;
        }
        &segment[..filled * places.len]
    }

    fn encode(&mut self, with_ids: bool) {
        let mut fleet = Fleet::new("fh", 0..256, 1);
        let mut now = unix_ms();
        self.encoded = vec![Vec::new(); SEGMENTS];
        for segment in &mut self.encoded {
            for n in 0..MESSAGES {
                now += 10;
                let mut fix = fleet.fix(u32::try_from(n % 256).expect("below 256"), now, LIVE_ACC_M);
                // Every message is as long as every other.
                fix.speed_mps = fix.speed_mps.clamp(10.0, 99.0);
                fix.heading_deg = fix.heading_deg.clamp(100.0, 359.0);
                fix.seq = FIRST_SEQ;
                let mut payload = String::new();
                fix.write_json(&mut payload);
                self.places = put_message(with_ids, &payload, segment);
            }
            assert_eq!(segment.len(), self.places.len * usize::try_from(MESSAGES).expect("small"));
        }
        self.with_ids = with_ids;
    }
}

fn put_message(with_id: bool, payload: &str, out: &mut Vec<u8>) -> Places {
    let mut body = Vec::new();
    put_string("drivers/sim-fh-0000000/gps", &mut body);
    let driver = 2 + "drivers/sim-fh-".len();
    let packet_id = body.len();
    if with_id {
        body.extend([0, 0]);
    }
    body.push(0); // no properties
    let start = body.len();
    body.extend_from_slice(payload.as_bytes());
    let behind = |key: &str| start + payload.find(key).expect("a fix has this field") + key.len();
    let (ts, seq) = (behind("\"ts\":"), behind("\"seq\":"));
    let before = out.len();
    put_packet(kind::PUBLISH, if with_id { 0b10 } else { 0 }, &body, out);
    let len = out.len() - before;
    let head = len - body.len();
    Places { len, driver: head + driver, packet_id: head + packet_id, ts: head + ts, seq: head + seq }
}

fn put_digits(mut number: u64, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_mqtt::{Publish, first_packet};

    #[test]
    fn every_message_is_a_fix_of_its_own() {
        let ids: Vec<u16> = (5..465).collect();
        let mut segments = Segments::default();
        let bytes = segments.fill(100, 250..710, &ids).to_vec();
        let (mut at, mut count) = (0, 0_u32);
        while let Some(packet) = first_packet(&bytes[at..]).unwrap() {
            let publish = Publish::read(packet).unwrap();
            let k = 250 + count;
            let topic = format!("drivers/sim-fh-{:07}/gps", k % 100);
            assert_eq!(std::str::from_utf8(publish.topic).unwrap(), topic);
            assert_eq!(publish.packet_id, Some(u16::try_from(5 + count).unwrap()));
            let fix: serde_json::Value = serde_json::from_slice(publish.payload).unwrap();
            assert_eq!(fix["seq"], u64::from(FIRST_SEQ + k / 100));
            at += packet.len;
            count += 1;
        }
        assert_eq!((at, u64::from(count)), (bytes.len(), MESSAGES));
        assert!((60_000..=65_536).contains(&bytes.len()), "{} bytes", bytes.len());
    }
}
