//! Segments of messages that are encoded once and sent many times. Each time only the digits of
//! driver, time and `seq` are overwritten, which takes a few nanoseconds per message.

use lab_mqtt::{kind, put_packet, put_string};
use lab_stack::unix_ms;
use loadgen::fleet::{Fleet, LIVE_ACC_M};

/// The first `seq` of every driver. This number has ten digits, so all later numbers have ten
/// digits as well: a JSON number cannot be padded with zeros.
pub const FIRST_SEQ: u32 = 1_000_000_001;
/// Number of messages in a segment, which has about 64 KiB.
pub(super) const MESSAGES: u64 = 460;
/// Number of different segments. Equal segments would make a batch compress too well.
const SEGMENTS: usize = 16;

const DRIVER_DIGITS: usize = 7;
const SEQ_DIGITS: usize = 10;
const TS_DIGITS: usize = 13;

pub(super) struct Segments {
    encoded: Vec<Vec<u8>>,
    next: usize,
    offsets: Offsets,
}

/// Length of a message, and the offsets of its digits, in bytes.
#[derive(Default, Clone, Copy)]
struct Offsets {
    len: usize,
    driver: usize,
    ts: usize,
    seq: usize,
}

impl Segments {
    pub(super) fn new() -> Self {
        let mut fleet = Fleet::new("fh", 0..256, 1);
        let (mut now, mut offsets) = (unix_ms(), Offsets::default());
        let mut encoded = vec![Vec::new(); SEGMENTS];
        for segment in &mut encoded {
            for n in 0..MESSAGES {
                now += 10;
                let mut fix =
                    fleet.fix(u32::try_from(n % 256).expect("below 256"), now, LIVE_ACC_M);
                // All messages must have the same length.
                fix.speed_mps = fix.speed_mps.clamp(10.0, 99.0);
                fix.heading_deg = fix.heading_deg.clamp(100.0, 359.0);
                fix.seq = FIRST_SEQ;
                let mut payload = String::new();
                fix.write_json(&mut payload);
                offsets = put_message(&payload, segment);
            }
            assert_eq!(segment.len(), offsets.len * usize::try_from(MESSAGES).expect("small"));
        }
        Self { encoded, next: 0, offsets }
    }

    /// Returns the bytes of [`MESSAGES`] messages from number `first` on.
    pub(super) fn fill(&mut self, drivers: u32, first: u64) -> &[u8] {
        self.next = (self.next + 1) % SEGMENTS;
        let (segment, offsets) = (&mut self.encoded[self.next], self.offsets);
        let mut ts = [0; TS_DIGITS];
        put_digits(u64::try_from(unix_ms()).unwrap_or(0), &mut ts);
        let mut driver = first % u64::from(drivers);
        let mut seq = first / u64::from(drivers) + u64::from(FIRST_SEQ);
        for message in segment.chunks_exact_mut(offsets.len) {
            put_digits(driver, &mut message[offsets.driver..][..DRIVER_DIGITS]);
            put_digits(seq, &mut message[offsets.seq..][..SEQ_DIGITS]);
            message[offsets.ts..][..TS_DIGITS].copy_from_slice(&ts);
            driver += 1;
            if driver == u64::from(drivers) {
                driver = 0;
                seq += 1;
            }
        }
        segment
    }
}

/// Appends a PUBLISH with the payload, and returns the offsets of its digits.
fn put_message(payload: &str, out: &mut Vec<u8>) -> Offsets {
    let mut body = Vec::new();
    put_string("drivers/sim-fh-0000000/gps", &mut body);
    let driver = 2 + "drivers/sim-fh-".len();
    body.push(0); // no properties
    let start = body.len();
    body.extend_from_slice(payload.as_bytes());
    let after_key =
        |key: &str| start + payload.find(key).expect("a fix has this field") + key.len();
    let (ts, seq) = (after_key("\"ts\":"), after_key("\"seq\":"));
    let before = out.len();
    put_packet(kind::PUBLISH, 0, &body, out);
    let len = out.len() - before;
    let head = len - body.len();
    Offsets { len, driver: head + driver, ts: head + ts, seq: head + seq }
}

/// Writes a number in decimal digits, with zeros in front.
fn put_digits(mut number: u64, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
}
