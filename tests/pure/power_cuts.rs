//! Tests the spool after a power cut: runs the spool in a process whose file operations are logged
//! (`power_cuts.c`), and then opens the spool in every state that a file system may have kept.
//!
//! A file system may keep any subset of the directory changes (mkdir, create, rename, unlink) since
//! the directory's last fsync. It may keep nothing, parts, zeros or everything of a file that was
//! not fsynced. An fsync of a file preserves the file's content, and an fsync of a directory
//! preserves the changes in that directory so far. A rename is atomic.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use milepost_core::batch::Batch;
use milepost_core::encode::{self, Insert};
use milepost_spool::{Kind, Listed, LoadError, Spool, format, list};
use tempfile::TempDir;

use crate::real::seqs;
use crate::rows::position;

/// Spool directory that does not exist yet. Its two parents do not exist either.
const NEW: &str = "deep/er/spool";
/// Spool directory with a damaged file.
const OLD: &str = "old";
/// Spool directory whose creator was killed before it fsynced the parent.
const HALF_MADE: &str = "half";
const DAMAGED: &str = "00000000000000000000-1-1.batch";
/// The driver whose rows are erased.
const ERASED: &str = "g";

/// Uses the spool: stores, removes, quarantines and erases rows. Runs in the process whose file
/// operations are logged.
fn store_remove_quarantine_and_erase(root: &Path) {
    let open = |dir: &str| Spool::open(&root.join(dir), 1 << 20).unwrap();
    let insert = |rows: &[(&str, u32)]| -> Vec<Insert> {
        let positions = rows.iter().map(|(driver, seq)| position(driver, *seq)).collect();
        encode::encode(Batch { positions, ..Batch::default() }, "fleet")
    };
    let (spool, _) = open(NEW);
    let store = |rows: &[(&str, u32)]| {
        let file = spool.store(&insert(rows), rows.len() as u64).unwrap();
        promise("kept", rows.iter().map(|(_, seq)| *seq));
        file
    };
    let first = store(&[("a", 1), (ERASED, 2)]);
    let second = store(&[("a", 3)]);
    promise("free", [1, 2]);
    spool.remove(&first).unwrap();
    store(&[(ERASED, 4)]);
    store(&[("a", 5), (ERASED, 6)]);
    for (driver, seq) in [(ERASED, 7), ("a", 8)] {
        spool.quarantine_row(&insert(&[(driver, seq)])[0]).unwrap();
        promise("kept", [seq]);
    }
    promise("free", [3]);
    spool.remove(&second).unwrap();
    drop(spool);

    let (spool, inventory) = open(NEW);
    promise("free", [4, 6, 7]);
    spool.erase(&inventory, |driver| driver == ERASED.as_bytes()).unwrap();
    promise("gone", [2, 4, 6, 7]);

    let (spool, inventory) = open(OLD);
    spool.quarantine(&inventory.files[0]).unwrap();
    spool.store(&insert(&[("a", 9)]), 1).unwrap();
    promise("kept", [9]);

    fs::create_dir(root.join(HALF_MADE)).unwrap();
    let (spool, _) = open(HALF_MADE);
    spool.store(&insert(&[("a", 10)]), 1).unwrap();
    promise("kept", [10]);
}

/// Appends a promise to the log: from now on these rows must be present (`kept`), may be missing
/// (`free`), or must be absent (`gone`).
fn promise(kind: &str, rows: impl IntoIterator<Item = u32>) {
    let mut log =
        fs::OpenOptions::new().append(true).open(std::env::var_os("DISK_LOG").unwrap()).unwrap();
    let rows: Vec<String> = rows.into_iter().map(|row| row.to_string()).collect();
    writeln!(log, "{kind} {} ", rows.join(",")).unwrap();
}

type Bytes = Vec<u8>;

#[derive(Debug, Clone, PartialEq)]
enum Operation {
    Mkdir(PathBuf),
    Create(PathBuf),
    Write(PathBuf, Bytes),
    Fsync(PathBuf),
    Rename(PathBuf, PathBuf),
    Unlink(PathBuf),
    Promise(String, Vec<u32>),
}
use Operation::{Create, Fsync, Mkdir, Promise, Rename, Unlink, Write};

impl Operation {
    fn parse(line: &str, root: &Path) -> Self {
        let mut words = line.split(' ');
        let (name, path, data) =
            (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let hex = |at: usize| u8::from_str_radix(&data[at..at + 2], 16).unwrap();
        let bytes: Bytes = (0..data.len()).step_by(2).map(hex).collect();
        let relative = |path: &str| Path::new(path).strip_prefix(root).map(Path::to_owned);
        match name {
            "mkdir" => Mkdir(relative(path).unwrap()),
            "create" => Create(relative(path).unwrap()),
            "write" => Write(relative(path).unwrap(), bytes),
            "fsync" => Fsync(relative(path).unwrap()),
            "rename" => {
                Rename(relative(path).unwrap(), relative(str::from_utf8(&bytes).unwrap()).unwrap())
            }
            "unlink" => Unlink(relative(path).unwrap()),
            _ => {
                Promise(name.to_owned(), path.split(',').map(|row| row.parse().unwrap()).collect())
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Entry {
    Folder,
    File(usize),
}

/// One change of a directory: each changed path with its new entry, or `None` if it was removed.
type Change = Vec<(PathBuf, Option<Entry>)>;
/// A directory tree: each path with the content of its file, or `None` for a folder.
type Tree = BTreeMap<PathBuf, Option<Bytes>>;

/// Model of a disk: its durable entries, and the changes that a power cut may undo.
#[derive(Default)]
struct Disk {
    durable: BTreeMap<PathBuf, Entry>,
    pending: Vec<Change>,
    files: Vec<FileState>,
}

struct FileState {
    content: Bytes,
    /// Whether the file has been fsynced since the last write.
    is_synced: bool,
}

impl Disk {
    fn from_tree(tree: Tree) -> Self {
        let mut disk = Self::default();
        for (path, content) in tree {
            let synced = |content| FileState { content, is_synced: true };
            disk.files.extend(content.clone().map(synced));
            let entry = content.map_or(Entry::Folder, |_| Entry::File(disk.files.len() - 1));
            disk.durable.insert(path, entry);
        }
        disk
    }

    /// Returns the durable entries with these changes applied.
    fn entries_with(&self, changes: impl Iterator<Item = Change>) -> BTreeMap<PathBuf, Entry> {
        let mut entries = self.durable.clone();
        for (path, entry) in changes.flatten() {
            match entry {
                Some(entry) => drop(entries.insert(path, entry)),
                None => drop(entries.remove(&path)),
            }
        }
        entries
    }

    fn entry(&self, path: &Path) -> Entry {
        if path == Path::new("") {
            Entry::Folder
        } else {
            self.entries_with(self.pending.iter().cloned())[path]
        }
    }

    fn apply(&mut self, operation: &Operation) {
        match operation {
            Mkdir(path) => self.pending.push(vec![(path.clone(), Some(Entry::Folder))]),
            Create(path) => {
                self.files.push(FileState { content: Bytes::new(), is_synced: true });
                self.pending.push(vec![(path.clone(), Some(Entry::File(self.files.len() - 1)))]);
            }
            Rename(from, to) => {
                self.pending.push(vec![(from.clone(), None), (to.clone(), Some(self.entry(from)))]);
            }
            Unlink(path) => self.pending.push(vec![(path.clone(), None)]),
            Write(path, bytes) => {
                let Entry::File(file) = self.entry(path) else { panic!("{path:?} is a folder") };
                self.files[file].content.extend(bytes);
                self.files[file].is_synced = false;
            }
            Fsync(path) => match self.entry(path) {
                Entry::File(file) => self.files[file].is_synced = true,
                Entry::Folder => {
                    let is_in_folder = |change: &mut Change| change[0].0.parent() == Some(path);
                    let synced: Vec<Change> = self.pending.extract_if(.., is_in_folder).collect();
                    self.durable = self.entries_with(synced.into_iter());
                }
            },
            Promise(..) => {}
        }
    }

    /// Returns every tree that a power cut may leave now.
    fn trees(&self) -> BTreeSet<Tree> {
        let mut trees = BTreeSet::new();
        assert!(self.pending.len() < 16, "2^{} states: fsync more often", self.pending.len());
        for subset in 0_u32..1 << self.pending.len() {
            let is_kept = |(index, _): &(usize, &Change)| subset & 1 << index != 0;
            let kept =
                self.pending.iter().enumerate().filter(is_kept).map(|(_, change)| change.clone());
            let mut found = vec![Tree::new()];
            for (path, entry) in self.entries_with(kept) {
                let parent = path.parent().unwrap();
                let contents: Vec<Option<Bytes>> = match entry {
                    Entry::Folder => vec![None],
                    Entry::File(file) => self.contents(file).into_iter().map(Some).collect(),
                };
                // If a folder was lost, its content is lost too.
                if parent != Path::new("") && !found[0].contains_key(parent) {
                    continue;
                }
                let with_content = |tree: &Tree, content: &Option<Bytes>| {
                    let mut tree = tree.clone();
                    tree.insert(path.clone(), content.clone());
                    tree
                };
                found = found
                    .iter()
                    .flat_map(|tree| contents.iter().map(|content| with_content(tree, content)))
                    .collect();
            }
            trees.extend(found);
        }
        trees
    }

    /// Returns every content that a power cut may leave of a file.
    fn contents(&self, file: usize) -> BTreeSet<Bytes> {
        let FileState { content: bytes, is_synced } = &self.files[file];
        let (length, half) = (bytes.len(), bytes.len() / 2);
        if *is_synced {
            return [bytes.clone()].into();
        }
        let zeroed = |range: Range<usize>| {
            let mut bytes = bytes.clone();
            bytes[range].fill(0);
            bytes
        };
        [
            Bytes::new(),
            bytes[..half].to_vec(),
            bytes[..length - 1].to_vec(),
            zeroed(0..half),
            zeroed(half..length),
            zeroed(0..length),
            bytes.clone(),
        ]
        .into()
    }
}

/// Checks every state that a power cut may leave after each operation; returns the number of
/// states, or the first violation.
fn check_every_power_cut(initial: &Tree, operations: &[Operation]) -> Result<usize, String> {
    let mut disk = Disk::from_tree(initial.clone());
    let (mut kept, mut gone) = (BTreeSet::new(), BTreeSet::new());
    let mut checked = BTreeSet::new();
    for operation in operations {
        disk.apply(operation);
        if let Promise(kind, rows) = operation {
            kept.retain(|row| !rows.contains(row));
            match kind.as_str() {
                "kept" => kept.extend(rows),
                "gone" => gone.extend(rows),
                _ => {}
            }
        }
        for tree in disk.trees() {
            if checked.insert((tree.clone(), kept.clone(), gone.clone())) {
                check_tree(&tree, &kept, &gone)?;
            }
        }
    }
    Ok(checked.len())
}

/// Opens the spool on the remaining files, and checks the promises.
fn check_tree(tree: &Tree, kept: &BTreeSet<u32>, gone: &BTreeSet<u32>) -> Result<(), String> {
    let root = folder();
    for (path, content) in tree {
        let path = root.path().join(path);
        match content {
            None => fs::create_dir(path).unwrap(),
            Some(bytes) => fs::write(path, bytes).unwrap(),
        }
    }
    let (mut found, mut damaged) = (BTreeSet::new(), Vec::new());
    for dir in [NEW, OLD, HALF_MADE].map(|dir| root.path().join(dir)) {
        let open = || Spool::open(&dir, 1 << 20).map_err(|error| format!("{error:?}"));
        let (spool, inventory) = open()?;
        for file in &inventory.files {
            match spool.load(file) {
                Ok(inserts) => found.extend(inserts.iter().flat_map(seqs)),
                Err(LoadError::Damaged(_)) => {
                    damaged.push(file.to_string());
                    spool.quarantine(file).unwrap();
                }
                Err(error) => return Err(format!("{error:?}")),
            }
        }
        drop(spool);
        let quarantined = list(&dir).unwrap().into_iter().filter(|file| file.kind != Kind::Batch);
        let quarantined: Vec<_> = quarantined.collect();
        for row in quarantined.iter().filter(|file| file.kind == Kind::Row) {
            let row = format::read(&fs::read(dir.join(&row.name)).unwrap().into());
            found.extend(
                row.map_err(|error| format!("a quarantined row: {error:?}"))?.iter().flat_map(seqs),
            );
        }
        if open()?.1.files_quarantined != quarantined.len() as u64 {
            return Err("a file in quarantine is not counted".to_owned());
        }
        let is_damaged = |file: &&Listed| file.kind == Kind::Damaged;
        if dir.ends_with(OLD) && quarantined.iter().filter(is_damaged).count() != 1 {
            return Err("the damaged file is missing or duplicated".to_owned());
        }
    }
    damaged.retain(|name| name != DAMAGED);
    match (kept.difference(&found).next(), gone.intersection(&found).next(), damaged.first()) {
        (Some(_), _, _) => Err("a stored row is lost".to_owned()),
        (_, Some(_), _) => Err("an erased row is back".to_owned()),
        (_, _, Some(_)) => Err("a batch is torn".to_owned()),
        (None, None, None) => Ok(()),
    }
}

fn folder() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// Returns the initial tree, and the operations of [`store_remove_quarantine_and_erase`].
fn record() -> (Tree, Vec<Operation>) {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let (library, log, root) = (path("power_cuts.so"), path("log"), path("root"));
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
        .arg(&library)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pure/power_cuts.c"))
        .arg("-ldl")
        .status()
        .unwrap();
    assert!(compiled.success(), "cc failed");
    let initial = Tree::from([
        (OLD.into(), None),
        (Path::new(OLD).join(DAMAGED), Some(b"torn long ago".to_vec())),
        (Path::new(OLD).join("lock"), Some(Bytes::new())),
    ]);
    fs::create_dir_all(root.join(OLD)).unwrap();
    fs::write(root.join(OLD).join(DAMAGED), b"torn long ago").unwrap();
    fs::write(root.join(OLD).join("lock"), b"").unwrap();
    fs::write(&log, b"").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "power_cuts::batch_after_a_power_cut_is_whole_absent_or_quarantined"])
        .env("LD_PRELOAD", &library)
        .env("DISK_LOG", &log)
        .env("DISK_ROOT", &root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let log = fs::read_to_string(log).unwrap();
    (initial, log.lines().map(|line| Operation::parse(line, &root)).collect())
}

#[test]
fn batch_after_a_power_cut_is_whole_absent_or_quarantined() {
    if let Some(root) = std::env::var_os("DISK_ROOT") {
        return store_remove_quarantine_and_erase(Path::new(&root));
    }
    let (initial, operations) = record();
    let states = check_every_power_cut(&initial, &operations).unwrap();
    eprintln!("{states} states after a power cut within {} operations", operations.len());
    assert!(states > 100, "the log lacks operations: {operations:?}");

    let assert_found = |mistake: &str, planted: Vec<Operation>, expected: &str| {
        assert_ne!(planted, operations, "{mistake}: no operation was changed");
        assert_eq!(
            check_every_power_cut(&initial, &planted),
            Err(expected.to_owned()),
            "{mistake}"
        );
    };
    let without = |is_skipped: &dyn Fn(&Path) -> bool| -> Vec<Operation> {
        let is_kept =
            |operation: &&Operation| !matches!(operation, Fsync(path) if is_skipped(path));
        operations.iter().filter(is_kept).cloned().collect()
    };
    let is_file = |path: &Path| path.extension().is_some();
    assert_found("no fsync of the file", without(&is_file), "a batch is torn");
    assert_found(
        "no fsync of the directory",
        without(&|path| path.ends_with("spool")),
        "a stored row is lost",
    );
    assert_found(
        "no fsync of a parent",
        without(&|path| path == Path::new("")),
        "a stored row is lost",
    );
    let mut renamed_first = operations.clone();
    for at in 1..renamed_first.len() {
        if let (Fsync(_), Rename(_, to)) = (&renamed_first[at - 1], &renamed_first[at]) {
            let to = to.clone();
            renamed_first.swap(at - 1, at);
            renamed_first[at] = Fsync(to);
        }
    }
    assert_found("rename before fsync", renamed_first, "a batch is torn");
}
