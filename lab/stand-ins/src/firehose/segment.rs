//! Messages that are encoded once; later ones only overwrite their digits, which takes a few
//! nanoseconds per message.

use lab_mqtt::{kind, put_packet, put_string};
use lab_stack::unix_ms;
use loadgen::fleet::{Fleet, LIVE_ACC_M};

/// The first `seq` of every driver. It has ten digits, as all later ones do, because a JSON number
/// has no leading zeros.
pub const FIRST_SEQ: u32 = 1_000_000_001;
/// Number of messages in a segment, which has about 64 KiB.
pub(super) const MESSAGES: u64 = 460;
/// Number of different segments. If all were equal, a batch would compress too well.
const SEGMENTS: usize = 16;

const DRIVER_DIGITS: usize = 7;
const SEQ_DIGITS: usize = 10;
const TS_DIGITS: usize = 13;

pub(super) struct Segments {
    encoded: Vec<Vec<u8>>,
    next: usize,
    places: Places,
}

/// Offsets of the digits in a message, and its length, in bytes.
#[derive(Default, Clone, Copy)]
struct Places {
    len: usize,
    driver: usize,
    ts: usize,
    seq: usize,
}

impl Segments {
    pub(super) fn new() -> Self {
        let mut fleet = Fleet::new("fh", 0..256, 1);
        let (mut now, mut places) = (unix_ms(), Places::default());
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
                places = put_message(&payload, segment);
            }
            assert_eq!(segment.len(), places.len * usize::try_from(MESSAGES).expect("small"));
        }
        Self { encoded, next: 0, places }
    }

    /// Returns the bytes of [`MESSAGES`] messages from number `first` on.
    pub(super) fn fill(&mut self, drivers: u32, first: u64) -> &[u8] {
        self.next = (self.next + 1) % SEGMENTS;
        let (segment, places) = (&mut self.encoded[self.next], self.places);
        let mut ts = [0; TS_DIGITS];
        put_digits(u64::try_from(unix_ms()).unwrap_or(0), &mut ts);
        let mut driver = first % u64::from(drivers);
        let mut seq = first / u64::from(drivers) + u64::from(FIRST_SEQ);
        for message in segment.chunks_exact_mut(places.len) {
            put_digits(driver, &mut message[places.driver..][..DRIVER_DIGITS]);
            put_digits(seq, &mut message[places.seq..][..SEQ_DIGITS]);
            message[places.ts..][..TS_DIGITS].copy_from_slice(&ts);
            driver += 1;
            if driver == u64::from(drivers) {
                driver = 0;
                seq += 1;
            }
        }
        segment
    }
}

fn put_message(payload: &str, out: &mut Vec<u8>) -> Places {
    let mut body = Vec::new();
    put_string("drivers/sim-fh-0000000/gps", &mut body);
    let driver = 2 + "drivers/sim-fh-".len();
    body.push(0); // no properties
    let start = body.len();
    body.extend_from_slice(payload.as_bytes());
    let behind = |key: &str| start + payload.find(key).expect("a fix has this field") + key.len();
    let (ts, seq) = (behind("\"ts\":"), behind("\"seq\":"));
    let before = out.len();
    put_packet(kind::PUBLISH, 0, &body, out);
    let len = out.len() - before;
    let head = len - body.len();
    Places { len, driver: head + driver, ts: head + ts, seq: head + seq }
}

fn put_digits(mut number: u64, out: &mut [u8]) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).expect("a digit");
        number /= 10;
    }
}
