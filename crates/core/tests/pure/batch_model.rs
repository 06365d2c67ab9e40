//! Tests the batcher: concatenated batches equal the input, no batch is late, no limit is
//! exceeded.

use std::time::{Duration, Instant};

use milepost_core::batch::{
    Batch, Batcher, Limits, POSITION_BYTES_MAX, REJECT_BYTES_PER_SECOND_MAX,
    REJECT_ROWS_PER_SECOND_MAX,
};
use milepost_core::encode::encode;
use milepost_decode::reject::{Reason, Reject};
use proptest::prelude::*;

use crate::rows::{batch_limits, position, reject};

#[derive(Debug, Clone)]
enum Step {
    Position,
    /// A reject with a payload of this many bytes.
    Reject(usize),
    /// A time in milliseconds.
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Position),
        1 => (0_usize..20_000).prop_map(Step::Reject),
        2 => (0_u64..800).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(crate::cases::cases(256))]

    #[test]
    fn concatenated_batches_equal_the_input(
        steps in prop::collection::vec(step(), 0..300),
        rows_max in 1_usize..40,
    ) {
        let limits = Limits { rows_max, age_max: Duration::from_secs(1), bytes_max: 1 << 20 };
        let mut batcher = Batcher::new(limits.clone());
        let mut now = Instant::now();
        let mut closed: Vec<Batch> = Vec::new();
        let (mut positions_in, mut rejects_in) = (0_u32, 0_u64);

        for step in steps {
            match step {
                Step::Position => {
                    if !batcher.fits_position(&position("d", positions_in)) {
                        closed.push(batcher.close());
                    }
                    batcher.push_position(position("d", positions_in), true, now);
                    positions_in += 1;
                }
                Step::Reject(payload_bytes) => {
                    let reject = reject(Reason::InvalidJson, payload_bytes);
                    if !batcher.fits_reject(&reject) {
                        closed.push(batcher.close());
                    }
                    batcher.push_reject(reject, true, now);
                    rejects_in += 1;
                }
                Step::Wait(ms) => now += Duration::from_millis(ms),
            }
            // A batch that is not due must have its deadline in the future, or it closes late.
            if batcher.is_due(now) {
                let (rows, opened_at) = (batcher.open().rows(), batcher.open().opened_at.unwrap());
                prop_assert!(rows >= rows_max || now - opened_at >= limits.age_max);
                closed.push(batcher.close());
            } else {
                prop_assert!(batcher.deadline().is_none_or(|deadline| deadline > now));
            }
        }
        closed.push(batcher.close());

        for batch in &closed {
            prop_assert!(batch.rows() <= rows_max && batch.bytes <= limits.bytes_max);
            prop_assert!(batch.rows() == 0 || batch.at_least_once);
        }
        let positions = closed.iter().flat_map(|batch| &batch.positions);
        let seqs: Vec<u32> = positions.map(|position| position.seq).collect();
        prop_assert_eq!(seqs, (0..positions_in).collect::<Vec<_>>());
        let rejects = closed.iter().flat_map(|batch| &batch.rejects);
        prop_assert_eq!(rejects.map(|row| row.count).sum::<u64>(), rejects_in);
        prop_assert!(closed.windows(2).all(|pair| pair[0].id < pair[1].id));
    }
}

#[test]
fn bytes_max_bounds_a_batch_with_few_rows() {
    let limits = Limits {
        rows_max: usize::MAX,
        age_max: Duration::from_secs(1),
        bytes_max: 10 * POSITION_BYTES_MAX,
    };
    let mut batcher = Batcher::new(limits);
    for seq in 0..10 {
        assert!(batcher.fits_position(&position("d", seq)));
        batcher.push_position(position("d", seq), false, Instant::now());
    }
    assert!(!batcher.fits_position(&position("d", 10)));

    let reject = reject(Reason::InvalidJson, 500);
    let mut batcher = Batcher::new(batch_limits(100));
    batcher.push_reject(reject.clone(), false, Instant::now());
    let bytes_max = 10 * batcher.close().bytes;
    let mut batcher = Batcher::new(Limits { bytes_max, ..batch_limits(100) });
    for _ in 0..10 {
        assert!(batcher.fits_reject(&reject));
        batcher.push_reject(reject.clone(), false, Instant::now());
    }
    assert!(!batcher.fits_reject(&reject));
}

#[test]
fn batch_is_at_least_once_if_one_of_its_messages_is() {
    for messages in [[false, false, false], [true, false, false], [false, false, true]] {
        let mut batchers = [(); 2].map(|()| Batcher::new(batch_limits(100)));
        for at_least_once in messages {
            batchers[0].push_position(position("d", 1), at_least_once, Instant::now());
            batchers[1].push_reject(reject(Reason::BadTs, 5), at_least_once, Instant::now());
        }
        let any_at_least_once = messages.contains(&true);
        assert_eq!(
            batchers.map(|mut batcher| batcher.close().at_least_once),
            [any_at_least_once; 2],
            "{messages:?}"
        );
    }
}

#[test]
fn counted_bytes_are_at_most_twice_the_real_bytes() {
    let limits = Limits { rows_max: 10_000, age_max: Duration::from_secs(1), bytes_max: 8 << 20 };
    for are_rejects in [false, true] {
        let mut batcher = Batcher::new(limits.clone());
        for seq in 0..100 {
            if are_rejects {
                let (topic, driver_id) = ("t".repeat(400), "d".repeat(64));
                let reject = Reject { topic, driver_id, ..reject(Reason::InvalidJson, 500) };
                batcher.push_reject(reject, false, Instant::now());
            } else {
                batcher.push_position(position(&"d".repeat(64), seq), false, Instant::now());
            }
        }
        let batch = batcher.close();
        let counted = batch.bytes;
        let strings = |row: &Reject| {
            row.payload.len() + row.topic.len() + row.driver_id.len() + row.detail.len()
        };
        let held = size_of_val(&*batch.positions)
            + size_of_val(&*batch.rejects)
            + batch.rejects.iter().map(strings).sum::<usize>();
        let inserts = encode(batch, "fleet");
        assert_eq!(inserts.len(), 1, "the other table has no rows, and so no insert");
        let sent = inserts[0].body.len();
        assert!(
            held + sent <= counted && counted < 2 * (held + sent),
            "{counted} bytes counted, {held} in memory, {sent} in the body"
        );
    }
}

#[test]
fn flood_limit_merges_reject_rows_and_keeps_counts_exact() {
    let limits = Limits { rows_max: 100_000, age_max: Duration::from_secs(1), bytes_max: 8 << 20 };
    let mut batcher = Batcher::new(limits);
    let now = Instant::now();
    for index in 0..5_000 {
        let reason = if index % 10 == 0 { Reason::BadTs } else { Reason::InvalidJson };
        batcher.push_reject(reject(reason, 50), false, now);
    }
    let batch = batcher.close();
    assert_eq!(batch.rejects.len(), REJECT_ROWS_PER_SECOND_MAX as usize);
    let count = |reason| {
        batch.rejects.iter().filter(|row| row.reason == reason).map(|row| row.count).sum::<u64>()
    };
    assert_eq!((count(Reason::BadTs), count(Reason::InvalidJson)), (500, 4_500));

    batcher.push_reject(reject(Reason::BadTs, 50), false, now + Duration::from_secs(1));
    batcher.push_reject(reject(Reason::BadTs, 50), false, now + Duration::from_secs(1));
    assert_eq!(
        batcher.close().rejects.len(),
        2,
        "in the next second, each reject has its own row again"
    );

    // The limit counts rejects per second. A second begins with a reject, and the first reject at
    // least 1,000 ms later begins the next one: here at 0, 1,000 and 2,000 ms.
    let at = |ms| now + Duration::from_secs(10) + Duration::from_millis(ms);
    for ms in [0, 1_000, 1_900].into_iter().chain([1_900; 98]).chain([2_000]) {
        batcher.push_reject(reject(Reason::BadTs, 50), false, at(ms));
    }
    assert_eq!(batcher.close().rejects.len(), 102);
}

#[test]
fn flood_of_large_rejects_is_limited_by_bytes() {
    let limits = Limits { rows_max: 100_000, age_max: Duration::from_secs(1), bytes_max: 32 << 20 };
    let mut batcher = Batcher::new(limits);
    let now = Instant::now();
    (0..90).for_each(|_| batcher.push_reject(reject(Reason::InvalidJson, 64 << 10), false, now));
    let batch = batcher.close();
    assert!(
        batch.bytes < REJECT_BYTES_PER_SECOND_MAX + (1 << 20),
        "{} bytes in a second",
        batch.bytes
    );
    assert_eq!(batch.rejects.iter().map(|row| row.count).sum::<u64>(), 90);

    // Sixteen rejects of this size reach the limit exactly; the seventeenth is merged.
    let now = now + Duration::from_secs(1);
    batcher.push_reject(reject(Reason::InvalidJson, 0), false, now);
    let bytes_without_payload = batcher.close().bytes;
    // The bytes of a payload count twice.
    let payload_bytes = (REJECT_BYTES_PER_SECOND_MAX / 16 - bytes_without_payload) / 2;
    let now = now + Duration::from_secs(1);
    (0..17)
        .for_each(|_| batcher.push_reject(reject(Reason::InvalidJson, payload_bytes), false, now));
    let batch = batcher.close();
    assert_eq!((batch.bytes, batch.rejects.len()), (REJECT_BYTES_PER_SECOND_MAX, 16));
}

#[test]
fn bound_applies_from_the_next_batch_and_never_exceeds_the_configured_size() {
    let mut batcher = Batcher::new(Limits {
        rows_max: 100_000,
        age_max: Duration::from_secs(1),
        bytes_max: 8 << 20,
    });
    for (bound, bytes_max) in [
        (Some(1 << 20), 1 << 20),
        (Some(2 << 20), 2 << 20),
        (Some(16 << 20), 8 << 20),
        (None, 8 << 20),
    ] {
        batcher.set_bytes_max(bound);
        let mut seq = 0;
        while batcher.fits_position(&position("d", seq)) {
            batcher.push_position(position("d", seq), true, Instant::now());
            seq += 1;
        }
        let bytes = batcher.close().bytes;
        assert!(
            (bytes_max - POSITION_BYTES_MAX..=bytes_max).contains(&bytes),
            "{bound:?}: {bytes}"
        );
    }
    batcher.set_bytes_max(Some(0));
    assert!(
        batcher.fits_reject(&reject(Reason::BadTs, 64 << 10)),
        "the lowest bound has room for any single row"
    );
}
