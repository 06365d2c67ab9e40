//! The spool's files: what was stored comes back as it was, or not at all.

use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use milepost::encode::Insert;
use milepost::metrics::Metrics;
use milepost::spool::format::{self, Damaged};
use milepost::spool::{Entry, Kind, LoadError, OpenError, Spool, StoreError, list};
use tempfile::TempDir;

fn inserts() -> Vec<Insert> {
    let body: Vec<u8> = (0..=255).collect();
    vec![
        Insert::new("INSERT INTO fleet.positions (…) FORMAT RowBinary".to_owned(), body.into(), 3),
        Insert::new("INSERT INTO fleet.rejects (…) FORMAT RowBinary".to_owned(), Bytes::new(), 1),
    ]
}

fn written(inserts: &[Insert]) -> Vec<u8> {
    let mut file = Vec::new();
    format::write(inserts, &mut file).unwrap();
    assert_eq!(file.len() as u64, format::length(inserts));
    file
}

fn same(a: &[Insert], b: &[Insert]) -> bool {
    let parts =
        |insert: &Insert| (insert.statement.clone(), insert.body.clone(), insert.rows, insert.token(7));
    a.iter().map(parts).eq(b.iter().map(parts))
}

fn open(folder: &TempDir) -> (Spool, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new(1));
    (Spool::open(folder.path(), 1 << 20, Arc::clone(&metrics)).unwrap(), metrics)
}

#[test]
fn a_file_comes_back_as_it_was_with_its_tokens() {
    let file = Bytes::from(written(&inserts()));
    assert!(same(&format::read(&file).unwrap(), &inserts()));
}

#[test]
fn a_file_that_is_torn_flipped_or_longer_anywhere_does_not_come_back() {
    let file = written(&inserts());
    for length in 0..file.len() {
        assert_eq!(format::read(&file[..length].to_vec().into()).unwrap_err(), Damaged::Checksum);
    }
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut flipped = file.clone();
            flipped[at] ^= 1 << bit;
            assert_eq!(format::read(&flipped.into()).unwrap_err(), Damaged::Checksum, "byte {at}, bit {bit}");
        }
    }
    let longer = [file.as_slice(), &[0]].concat();
    assert!(format::read(&longer.into()).is_err());
}

#[test]
fn a_whole_file_of_another_version_or_kind_is_told_from_a_damaged_one() {
    let sealed = |content: &[u8]| {
        let checksum = twox_hash::XxHash3_128::oneshot(content);
        Bytes::from([content, &checksum.to_le_bytes()].concat())
    };
    assert_eq!(format::read(&sealed(b"MILEPOST\x02\0\0\0\x01\0\0\0")).unwrap_err(), Damaged::Version(2));
    assert_eq!(format::read(&sealed(b"something else")).unwrap_err(), Damaged::NotOne);
    let lies = b"MILEPOST\x01\0\0\0\xff\xff\xff\xff";
    assert_eq!(format::read(&sealed(lies)).unwrap_err(), Damaged::Content("an insert's head"));
}

#[test]
fn what_was_stored_is_found_by_the_next_process_in_order_with_one_more_ambiguous_end() {
    let folder = TempDir::new().unwrap();
    let (spool, _) = open(&folder);
    let first = spool.store(&inserts(), 3, 0).unwrap();
    let second = spool.store(&inserts(), 4, 2).unwrap();
    assert_eq!(spool.ended_ambiguously(&second), Entry { ambiguous_ends: 3, ..second });
    drop(spool); // a crash, as far as the directory can tell

    let (spool, metrics) = open(&folder);
    assert_eq!((spool.batches(), metrics.ledger().spool_at_start), (2, 7));
    let found: Vec<Entry> = list(folder.path()).unwrap().into_iter().filter_map(|file| file.entry).collect();
    assert_eq!(found, [Entry { ambiguous_ends: 1, ..first }, Entry { ambiguous_ends: 4, ..second }]);
    assert!(same(&spool.load(&found[0]).unwrap(), &inserts()));
    assert!(spool.store(&inserts(), 1, 0).unwrap().sequence > second.sequence);
    spool.remove(&found[0]);
    assert_eq!(spool.batches(), 2);
}

#[test]
fn a_second_process_is_refused() {
    let folder = TempDir::new().unwrap();
    let (spool, metrics) = open(&folder);
    let second = Spool::open(folder.path(), 1 << 20, metrics);
    assert!(matches!(second, Err(OpenError::InUse(_))));
    drop(spool);
    open(&folder);
}

#[test]
fn the_bound_holds_and_what_does_not_fit_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    let metrics = Arc::new(Metrics::new(1));
    let one = format::length(&inserts());
    let spool = Spool::open(folder.path(), 2 * one, metrics).unwrap();
    let stored = spool.store(&inserts(), 3, 0).unwrap();
    spool.store(&inserts(), 3, 0).unwrap();
    assert!(matches!(spool.store(&inserts(), 3, 0), Err(StoreError::Full { .. })));
    assert_eq!(list(folder.path()).unwrap().len(), 2);
    spool.remove(&stored);
    spool.store(&inserts(), 3, 0).unwrap();
}

#[test]
fn a_disk_that_refuses_leaves_nothing_and_is_tried_again() {
    let folder = TempDir::new().unwrap();
    let dir = folder.path().join("spool");
    let spool = Spool::open(&dir, 1 << 20, Arc::new(Metrics::new(1))).unwrap();
    let away = folder.path().join("away");
    fs::rename(&dir, &away).unwrap();
    assert!(matches!(spool.store(&inserts(), 3, 0), Err(StoreError::Io(_))));
    assert_eq!(spool.batches(), 0);
    fs::rename(&away, &dir).unwrap();
    let stored = spool.store(&inserts(), 3, 0).unwrap();
    fs::rename(&dir, &away).unwrap();
    assert!(matches!(spool.load(&stored), Err(LoadError::Io(_))), "a volume that is away may come back");
}

#[test]
fn a_damaged_file_is_set_aside_counted_by_its_name_and_not_found_again() {
    let folder = TempDir::new().unwrap();
    let (spool, metrics) = open(&folder);
    let entry = spool.store(&inserts(), 3, 0).unwrap();
    metrics.spool_opened(3);
    spool.release(entry);
    let path = folder.path().join(&list(folder.path()).unwrap()[0].name);
    fs::write(&path, b"torn").unwrap();
    let Err(LoadError::Damaged(why)) = spool.load(&entry) else { panic!("it was read") };
    spool.set_aside(&entry, &why);
    assert!(spool.oldest(|_| false).is_none());
    let ledger = metrics.ledger();
    assert_eq!((ledger.quarantined, ledger.in_spool), (3, 0));
    assert!(ledger.adds_up());
    drop(spool);

    let (spool, metrics) = open(&folder);
    assert_eq!((spool.batches(), metrics.ledger().spool_at_start), (0, 0));
    assert_eq!(list(folder.path()).unwrap()[0].kind, Kind::Damaged);
}

#[test]
fn a_half_written_file_and_strangers_are_not_batches() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("00000000000000000007-5-0.unfinished"), b"half").unwrap();
    fs::write(folder.path().join("notes.txt"), b"mine").unwrap();
    fs::write(folder.path().join("who-knows.batch"), b"?").unwrap();
    let (spool, _) = open(&folder);
    assert_eq!(spool.batches(), 0);
    assert!(folder.path().join("notes.txt").exists());
    assert!(folder.path().join("who-knows.batch").exists(), "not ours to touch");
    assert!(!folder.path().join("00000000000000000007-5-0.unfinished").exists(), "it was never acknowledged");
}
