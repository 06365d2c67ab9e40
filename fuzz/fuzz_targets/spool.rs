//! The input is a spool file, and then the content of one, with its checksum appended: mutations do
//! not find a valid checksum, behind which the parser begins.

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

/// Checks that a file that is read is the same when written again: nothing in it was ignored.
fn check(file: Vec<u8>) {
    let file = Bytes::from(file);
    let Ok(inserts) = format::read(&file) else { return };
    let mut again = Vec::new();
    format::write(&inserts, &mut again).expect("a Vec takes everything");
    assert_eq!(again, file);
    assert_eq!(format::length(&inserts), file.len() as u64);
}
