//! The spool's files: a stored batch is read back intact, or not at all.
#![expect(clippy::unwrap_used, reason = "a helper may panic, which fails its test")]
use std::fs;

use bytes::Bytes;
use milepost_core::batch::Batch;
use milepost_core::delivery::{File, SpoolInventory};
use milepost_core::encode::{self, Insert};
use milepost_decode::position::{Position, Timestamp};
use milepost_decode::reject::{Reason, Reject};
use milepost_decode::{Decoded, Decoder, Limits, Message, Source};
use milepost_spool::erase::{EraseCounts, count};
use milepost_spool::format::{self, Damaged};
use milepost_spool::{Kind, LoadError, OpenError, Spool, StoreError, list};
use tempfile::TempDir;

/// Returns a position of this driver with this sequence number.
fn position(driver: &str, seq: u32) -> Position {
    let (topic, payload) =
        (format!("drivers/{driver}/gps"), format!(r#"{{"lat":25.5,"lng":-80.25,"seq":{seq}}}"#));
    let message = Message::new(topic.as_bytes(), payload.as_bytes());
    let mut decoded = Decoded::default();
    let decoder = Decoder::new(&[Source::milepost("drivers/+/gps")], Limits::default());
    decoder.decode(message, Timestamp::from_unix_ms(1_767_225_600_000), &mut decoded);
    decoded.positions.remove(0)
}

fn reject(reason: Reason, payload_bytes: usize) -> Reject {
    Reject {
        received_at: Timestamp::from_unix_ms(1_767_225_600_000),
        topic: "drivers/d/gps".to_owned(),
        driver_id: "d".to_owned(),
        reason,
        detail: String::new(),
        payload: vec![b'x'; payload_bytes],
        payload_bytes: payload_bytes as u64,
        count: 1,
    }
}

/// Returns an insert of three positions and an insert of one reject. Their bodies are not rows.
fn inserts() -> Vec<Insert> {
    let body: Vec<u8> = (0..=255).collect();
    let insert = |table, body: Bytes, rows| Insert {
        statement: format!("INSERT INTO fleet.{table} (…) FORMAT RowBinary"),
        body,
        rows,
    };
    vec![insert("positions", body.into(), 3), insert("rejects", Bytes::new(), 1)]
}

/// Erasing removes all rows of a driver, keeps all others, and reports unreadable files.
#[test]
fn erase_removes_a_drivers_rows_from_every_file() {
    let folder = TempDir::new().unwrap();
    let encoded = |drivers: &[&str]| {
        let positions = drivers.iter().map(|driver| position(driver, 1)).collect();
        encode::encode(
            Batch { positions, rejects: vec![reject(Reason::Empty, 3)], ..Batch::default() },
            "fleet",
        )
    };
    let (spool, _) = open(&folder);
    for drivers in [&["a", "gone", "b", "gone"][..], &["gone"], &["a"]] {
        spool.store(&encoded(drivers), drivers.len() as u64).unwrap();
    }
    spool.quarantine_row(&encoded(&["gone"])[0]).unwrap();
    spool.quarantine_row(&encoded(&["a"])[0]).unwrap();
    let damaged = spool.store(&encoded(&["gone"]), 1).unwrap();
    fs::write(folder.path().join(damaged.to_string()), "truncated").unwrap();
    drop(spool);

    let is_erased = |driver: &[u8]| driver == b"gone";
    let (spool, inventory) = open(&folder);
    // The damaged file stays in the directory, so it is unreadable in each run.
    let counts = EraseCounts { rows: 4, unreadable: 1 };
    assert_eq!(count(folder.path(), is_erased).unwrap(), counts);
    assert_eq!(spool.erase(&inventory, is_erased).unwrap(), counts);
    drop(spool);
    let (spool, inventory) = open(&folder);
    assert_eq!(spool.erase(&inventory, is_erased).unwrap(), EraseCounts { rows: 0, unreadable: 1 });
    assert_eq!(
        inventory.files.iter().map(|file| file.positions).sum::<u64>(),
        3 + 1,
        "the name of the damaged file still counts its position"
    );
    let inserts = inventory.files.iter().filter_map(|file| spool.load(file).ok()).flatten();
    let rows: usize = inserts.map(|insert| insert.rows).sum();
    assert_eq!(rows, 3 + 3, "three positions, and one reject from each of three files");
    let quarantined_rows =
        list(folder.path()).unwrap().iter().filter(|file| file.kind == Kind::Row).count();
    assert_eq!(quarantined_rows, 1);
}

/// Returns the bytes of a spool file with these inserts.
fn file_bytes(inserts: &[Insert]) -> Vec<u8> {
    let mut file = Vec::new();
    format::write(inserts, &mut file).unwrap();
    assert_eq!(file.len() as u64, format::length(inserts));
    file
}

fn are_equal(a: &[Insert], b: &[Insert]) -> bool {
    let parts = |insert: &Insert| (insert.statement.clone(), insert.body.clone(), insert.rows);
    a.iter().map(parts).eq(b.iter().map(parts))
}

fn open(folder: &TempDir) -> (Spool, SpoolInventory) {
    Spool::open(folder.path(), 1 << 20).unwrap()
}

#[test]
fn stored_file_is_read_back_intact() {
    let file = Bytes::from(file_bytes(&inserts()));
    assert!(are_equal(&format::read(&file).unwrap(), &inserts()));
}

#[test]
fn damaged_file_is_never_read_back() {
    let file = file_bytes(&inserts());
    for length in 0..file.len() {
        assert_eq!(format::read(&file[..length].to_vec().into()).unwrap_err(), Damaged::Checksum);
    }
    for index in 0..file.len() {
        for bit in 0..8 {
            let mut flipped = file.clone();
            flipped[index] ^= 1 << bit;
            assert_eq!(
                format::read(&flipped.into()).unwrap_err(),
                Damaged::Checksum,
                "byte {index}, bit {bit}"
            );
        }
    }
    let longer = [file.as_slice(), &[0]].concat();
    assert!(format::read(&longer.into()).is_err());
}

#[test]
fn newer_format_is_distinguished_from_damage() {
    let with_checksum = |content: &[u8]| {
        let checksum = twox_hash::XxHash3_128::oneshot(content);
        Bytes::from([content, &checksum.to_le_bytes()].concat())
    };
    assert_eq!(
        format::read(&with_checksum(b"MILEPOST\x02\0\0\0\x01\0\0\0")).unwrap_err(),
        Damaged::Version(2)
    );
    assert_eq!(format::read(&with_checksum(b"something else")).unwrap_err(), Damaged::NotSpoolFile);
    let wrong_count = b"MILEPOST\x01\0\0\0\xff\xff\xff\xff";
    assert_eq!(
        format::read(&with_checksum(wrong_count)).unwrap_err(),
        Damaged::Content("an insert's head")
    );
}

#[test]
fn stored_batches_are_listed_in_order_by_the_next_process() {
    let folder = TempDir::new().unwrap();
    let (spool, inventory) = open(&folder);
    assert!(inventory.files.is_empty());
    let first = spool.store(&inserts(), 3).unwrap();
    let second = spool.store(&inserts(), 4).unwrap();
    drop(spool); // leaves the directory as a crash would

    let (spool, inventory) = open(&folder);
    assert_eq!(inventory.files, [first, second]);
    assert!(are_equal(&spool.load(&first).unwrap(), &inserts()));
    assert!(spool.store(&inserts(), 1).unwrap().sequence > second.sequence);
    spool.remove(&first).unwrap();
    assert_eq!(list(folder.path()).unwrap().len(), 2);
}

#[test]
fn merged_directories_keep_every_file() {
    let (target, source) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut stored = 0;
    for folder in [&target, &source] {
        let (spool, _) = open(folder);
        for _ in 0..5 {
            spool.store(&inserts(), 3).unwrap();
        }
        stored += 5;
        // Earlier versions ended a file name with a number of attempts instead of a random tag. The
        // two directories use different numbers here, so `mv -n` moves every file.
        let attempts = if folder.path() == target.path() { 0 } else { 1 };
        let old_file = folder.path().join(format!("00000000000000000000-3-{attempts}.batch"));
        fs::copy(folder.path().join(&list(folder.path()).unwrap()[0].name), old_file).unwrap();
        stored += 1;
    }
    for file in list(source.path()).unwrap() {
        let moved = target.path().join(&file.name);
        assert!(!moved.exists(), "{} already exists", file.name);
        fs::rename(source.path().join(&file.name), moved).unwrap();
    }
    let (spool, inventory) = open(&target);
    assert_eq!(inventory.files.len(), stored);
    let mut sorted = inventory.files.clone();
    sorted.sort_by_key(|file| file.sequence);
    assert_eq!(sorted, inventory.files, "the oldest file must be listed first");
    for file in &inventory.files {
        assert!(are_equal(&spool.load(file).unwrap(), &inserts()), "{file}");
        spool.remove(file).unwrap();
    }
    assert!(list(target.path()).unwrap().is_empty());
}

#[test]
fn second_process_is_refused() {
    let folder = TempDir::new().unwrap();
    let (spool, _) = open(&folder);
    assert!(matches!(Spool::open(folder.path(), 1 << 20), Err(OpenError::InUse(_))));
    drop(spool);
    open(&folder);
}

#[test]
fn store_above_the_size_limit_is_refused_and_leaves_no_file() {
    let folder = TempDir::new().unwrap();
    let bytes_max = 2 * format::length(&inserts());
    let (spool, _) = Spool::open(folder.path(), bytes_max).unwrap();
    let stored = spool.store(&inserts(), 3).unwrap();
    spool.store(&inserts(), 3).unwrap();
    assert!(matches!(spool.store(&inserts(), 3), Err(StoreError::Full { .. })));
    assert_eq!(list(folder.path()).unwrap().len(), 2);
    spool.remove(&stored).unwrap();
    spool.store(&inserts(), 3).unwrap();
}

#[test]
fn failed_write_releases_its_reserved_bytes() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("spool");
    let (spool, _) = Spool::open(&dir, format::length(&inserts())).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(&dir, &elsewhere).unwrap();
    assert!(matches!(spool.store(&inserts(), 3), Err(StoreError::Io(_))));
    fs::rename(&elsewhere, &dir).unwrap();
    let stored = spool.store(&inserts(), 3).expect("the failed write released its bytes");
    fs::rename(&dir, &elsewhere).unwrap();
    assert!(
        matches!(spool.load(&stored), Err(LoadError::Io(_))),
        "a missing directory may be a volume that is mounted again later"
    );
}

#[test]
fn quarantined_file_is_counted_but_not_replayed() {
    let folder = TempDir::new().unwrap();
    let (spool, _) = open(&folder);
    let file = spool.store(&inserts(), 3).unwrap();
    fs::write(folder.path().join(file.to_string()), b"half").unwrap();
    assert!(matches!(spool.load(&file), Err(LoadError::Damaged(_))));
    spool.quarantine(&file).unwrap();
    let row = spool.quarantine_row(&inserts()[0]).unwrap();
    assert_eq!(row.bytes, format::length(&inserts()[..1]));
    drop(spool);

    let (_spool, inventory) = open(&folder);
    assert!(inventory.files.is_empty());
    assert_eq!(inventory.quarantined_bytes, 4 + format::length(&inserts()[..1]));
    let kinds: Vec<Kind> = list(folder.path()).unwrap().iter().map(|file| file.kind).collect();
    assert_eq!(kinds, [Kind::Damaged, Kind::Row]);
}

#[test]
fn half_written_and_foreign_files_are_not_batches() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("00000000000000000007-5-0.unfinished"), b"half").unwrap();
    fs::write(folder.path().join("notes.txt"), b"mine").unwrap();
    fs::write(folder.path().join("not-of-milepost.batch"), b"?").unwrap();
    let (_spool, inventory) = open(&folder);
    assert!(inventory.files.is_empty());
    assert!(folder.path().join("notes.txt").exists());
    assert!(folder.path().join("not-of-milepost.batch").exists(), "a foreign file must stay");
    assert!(
        !folder.path().join("00000000000000000007-5-0.unfinished").exists(),
        "an unfinished file must be removed: its messages were never acknowledged"
    );
    let is_stem = |text| File::from_stem(text, 0).is_some();
    assert!(is_stem("00000000000000000007-5-0"));
    for foreign in ["7-5", "7-5-0-1", "00000000000000000007-5-0-1", "00000000000000000007-05-0"] {
        assert!(!is_stem(foreign), "{foreign}");
    }
}

/// milepost would look for such a file under the name that it would give it, and not find it.
#[test]
fn batch_that_was_renamed_without_its_zeros_is_foreign() {
    let folder = TempDir::new().unwrap();
    let (spool, _) = open(&folder);
    let stored = spool.store(&inserts(), 3).unwrap();
    drop(spool);
    let renamed = folder.path().join(format!("7-{}-{}.batch", stored.positions, stored.tag));
    fs::rename(folder.path().join(stored.to_string()), &renamed).unwrap();
    let (spool, inventory) = open(&folder);
    assert!(inventory.files.is_empty(), "{:?}", inventory.files);
    assert_eq!(inventory.files_quarantined, 1);
    let counts = spool.erase(&inventory, |_| false).unwrap();
    assert_eq!(counts, EraseCounts { rows: 0, unreadable: 1 }, "its rows must not be overlooked");
    assert!(renamed.exists(), "a foreign file must stay");
}

#[test]
fn undeletable_file_still_counts_towards_the_size() {
    let folder = TempDir::new().unwrap();
    let bytes = format::length(&inserts());
    let (spool, _) = Spool::open(folder.path(), bytes).unwrap();
    let file = spool.store(&inserts(), 3).unwrap();
    let path = folder.path().join(file.to_string());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap(); // a directory cannot be removed as a file
    spool.remove(&file).unwrap_err();
    assert!(matches!(spool.store(&inserts(), 3), Err(StoreError::Full { .. })));
    fs::remove_dir(&path).unwrap();
    assert!(matches!(spool.load(&file), Err(LoadError::Gone)));
    spool.remove(&file).unwrap();
    spool.store(&inserts(), 3).expect("the removed file no longer counts");
}
