//! The input is parsed twice: as a whole spool file, and as the content of a spool file, to which
//! the target appends the right checksum. Mutation does not find a valid checksum, and without one
//! the parser rejects the file at once.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use milepost_spool::format;
use twox_hash::XxHash3_128;

fuzz_target!(|data: &[u8]| {
    check(data.to_vec());
    let checksum = XxHash3_128::oneshot(data).to_le_bytes();
    check([data, &checksum].concat());
});

/// Checks that a file that can be read is identical when written again: no part of it was ignored.
fn check(file: Vec<u8>) {
    let file = Bytes::from(file);
    let Ok(inserts) = format::read(&file) else { return };
    let mut again = Vec::new();
    format::write(&inserts, &mut again).expect("writing to a Vec");
    assert_eq!(again, file);
    assert_eq!(format::length(&inserts), file.len() as u64);
}
