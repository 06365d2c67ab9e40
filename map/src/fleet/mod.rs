//! Caches every driver's last position in memory, sorted along the Z-order curve of [`crate::geo`].
//! Each start of the process reads the positions from ClickHouse.
//!
//! Guarantee: the fix of a driver is the newest one by the order of [`Fix`], as in
//! `last_positions`, whatever the order of arrival. At most `drivers_max` drivers are in memory,
//! each in [`DRIVER_BYTES`] plus its id; rows of further drivers are only counted.

pub mod directory;
pub mod filter;
pub mod ids;
pub mod parts;

use std::ops::Range;
use std::sync::Arc;

use self::directory::{Directory, NO_GROUP};
use self::ids::Ids;
use crate::geo::{KEY_BITS, Tile, key};

/// Memory per driver in bytes, without the id. A growing vector can take twice as much for a while.
pub const DRIVER_BYTES: usize = 150;
/// Maximum number of drivers: a row's key has 24 bits for the driver's number.
pub const DRIVERS_MAX: usize = 1 << (u64::BITS - KEY_BITS);
/// An unknown speed or heading.
pub const UNKNOWN: u16 = u16::MAX;

/// A driver's fix, as `last_positions_state` stores it. The derived order compares the fields from
/// the first on, up to `received_ms` as the table's column `version` does (sql/020): the greater of
/// two fixes is the newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fix {
    pub ts_ms: i64,
    pub seq: u32,
    pub lat_e7: i32,
    pub lng_e7: i32,
    pub received_ms: i64,
    /// 65535: unknown.
    pub speed_cms: u16,
    /// 65535: unknown.
    pub heading_cdeg: u16,
    /// 2147483647: unknown.
    pub alt_dm: i32,
    /// 65535: unknown.
    pub acc_dm: u16,
}

/// A driver's entry in [`Fleet::rows`]: the place on the Z-order curve, and the fields that tiles
/// show.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Place on the Z-order curve (upper 40 bits), and the driver's number (lower 24 bits).
    key: u64,
    pub lat_e7: i32,
    pub lng_e7: i32,
    pub ts_s: u32,
    pub speed_cms: u16,
    pub heading_cdeg: u16,
}

impl Row {
    fn new(number: u32, fix: &Fix) -> Self {
        let ts_s = (fix.ts_ms / 1_000).clamp(0, i64::from(u32::MAX));
        Self {
            key: key(fix.lat_e7, fix.lng_e7) << (u64::BITS - KEY_BITS) | u64::from(number),
            lat_e7: fix.lat_e7,
            lng_e7: fix.lng_e7,
            ts_s: u32::try_from(ts_s).unwrap_or_default(),
            speed_cms: fix.speed_cms,
            heading_cdeg: fix.heading_cdeg,
        }
    }

    /// Returns the driver's number.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "24 bits")]
    pub fn number(&self) -> u32 {
        (self.key % DRIVERS_MAX as u64) as u32
    }

    /// Returns the place on the Z-order curve.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.key / DRIVERS_MAX as u64
    }
}

/// The fleet in memory; see the module.
pub struct Fleet {
    ids: Ids,
    /// Newest fix of each driver, by number.
    fixes: Vec<Fix>,
    /// For each driver, by number: the value of `full_read` when a read last contained the driver.
    seen_in_read: Vec<u8>,
    /// Counts the full reads; wraps. A full read returns the positions of all drivers.
    full_read: u8,
    rows: Vec<Row>,
    /// Buffer in which the next `rows` are built.
    spare: Vec<Row>,
    /// Numbers of the drivers whose row differs from their fix.
    changed: Vec<u32>,
    /// `changed` as a bitmap.
    is_changed: Vec<u64>,
    /// Group of each driver, by number; empty while the directory has no groups.
    groups: Vec<u16>,
    directory: Arc<Directory>,
    drivers_max: usize,
    /// Number of rows left out since [`Fleet::begin_full_read`].
    left_out: u64,
    /// Arrival of the newest message, in milliseconds since 1970.
    newest_ms: Option<i64>,
}

impl Fleet {
    #[must_use]
    pub fn new(drivers_max: usize) -> Self {
        Self {
            ids: Ids::default(),
            fixes: Vec::new(),
            seen_in_read: Vec::new(),
            full_read: 0,
            rows: Vec::new(),
            spare: Vec::new(),
            changed: Vec::new(),
            is_changed: Vec::new(),
            groups: Vec::new(),
            directory: Arc::default(),
            drivers_max: drivers_max.min(DRIVERS_MAX),
            left_out: 0,
            newest_ms: None,
        }
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.count()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of rows left out since [`Fleet::begin_full_read`], because `drivers_max`
    /// was reached or the id is invalid.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns when milepost received the newest message, in milliseconds since 1970.
    #[must_use]
    pub fn newest_ms(&self) -> Option<i64> {
        self.newest_ms
    }

    /// Returns every driver's number and fix, ordered by number.
    pub fn fixes(&self) -> impl Iterator<Item = (u32, &Fix)> {
        // `end_full_read` marks the fixes of removed drivers with `i64::MIN`.
        (0..u32::MAX).zip(&self.fixes).filter(|(_, fix)| fix.received_ms != i64::MIN)
    }

    /// Returns the names and groups of drivers.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Replaces the names and groups of drivers.
    pub fn set_directory(&mut self, directory: Arc<Directory>) {
        self.directory = directory;
        self.groups.clear();
        if self.directory.has_groups() {
            let all = 0..u32::try_from(self.ids.numbers()).unwrap_or(u32::MAX);
            self.groups.extend(all.map(|number| self.directory.group(self.ids.id(number))));
        }
    }

    /// Returns a driver's group, by number.
    #[must_use]
    pub fn group(&self, number: u32) -> u16 {
        self.groups.get(number as usize).copied().unwrap_or(NO_GROUP)
    }

    /// Starts a full read; [`Fleet::end_full_read`] removes the drivers that it did not contain.
    pub fn begin_full_read(&mut self) {
        self.full_read = self.full_read.wrapping_add(1);
        self.left_out = 0;
    }

    /// Stores a driver's fix if it is newer than the known one. [`Fleet::commit`] makes it visible.
    pub fn update(&mut self, id: &[u8], fix: Fix) {
        let number = match self.ids.find(id) {
            Some(number) => {
                self.seen_in_read[number as usize] = self.full_read;
                if fix <= self.fixes[number as usize] {
                    return;
                }
                self.fixes[number as usize] = fix;
                number
            }
            None if self.ids.count() >= self.drivers_max
                || id.is_empty()
                || id.len() > ids::ID_BYTES_MAX =>
            {
                self.left_out += 1;
                return;
            }
            None => self.add(id, fix),
        };
        self.newest_ms = self.newest_ms.max(Some(fix.received_ms));
        self.mark_changed(number);
    }

    /// Adds a new driver, and returns its number.
    fn add(&mut self, id: &[u8], fix: Fix) -> u32 {
        let number = self.ids.add(id);
        let index = number as usize;
        if index == self.fixes.len() {
            self.fixes.push(fix);
            self.seen_in_read.push(self.full_read);
            self.is_changed.resize(self.fixes.len().div_ceil(64), 0);
        } else {
            (self.fixes[index], self.seen_in_read[index]) = (fix, self.full_read);
        }
        // The directory may have arrived before the first driver, while `groups` was empty.
        if self.directory.has_groups() {
            self.groups.resize(self.fixes.len(), NO_GROUP);
            self.groups[index] = self.directory.group(id);
        }
        number
    }

    fn mark_changed(&mut self, number: u32) {
        let (word, bit) = (number as usize / 64, 1 << (number % 64));
        if self.is_changed[word] & bit == 0 {
            self.is_changed[word] |= bit;
            self.changed.push(number);
        }
    }

    /// Ends a full read and removes the drivers that it did not contain. [`Fleet::commit`] makes
    /// the removals visible.
    pub fn end_full_read(&mut self) {
        for number in 0..u32::try_from(self.seen_in_read.len()).unwrap_or(u32::MAX) {
            if self.seen_in_read[number as usize] != self.full_read
                && !self.ids.id(number).is_empty()
            {
                self.ids.remove(number);
                self.fixes[number as usize].received_ms = i64::MIN; // no longer visible
                self.mark_changed(number);
            }
        }
    }

    /// Merges the changed drivers into the sorted rows, and returns how many changed.
    pub fn commit(&mut self) -> usize {
        let changed = self.changed.len();
        if changed == 0 {
            return 0;
        }
        let present = self.changed.iter().filter(|number| !self.ids.id(**number).is_empty());
        let mut changed_rows: Vec<Row> =
            present.map(|number| Row::new(*number, &self.fixes[*number as usize])).collect();
        changed_rows.sort_unstable_by_key(|row| row.key);
        let is_unchanged = |row: &&Row| {
            let number = row.number() as usize;
            self.is_changed[number / 64] & 1 << (number % 64) == 0
        };
        self.spare.clear();
        self.spare.reserve_exact(self.ids.count());
        let mut changed_rows = changed_rows.into_iter().peekable();
        for row in self.rows.iter().filter(is_unchanged) {
            while let Some(changed_row) =
                changed_rows.next_if(|changed_row| changed_row.key < row.key)
            {
                self.spare.push(changed_row);
            }
            self.spare.push(*row);
        }
        self.spare.extend(changed_rows);
        std::mem::swap(&mut self.rows, &mut self.spare);
        for number in self.changed.drain(..) {
            self.is_changed[number as usize / 64] = 0;
        }
        changed
    }

    /// Returns the drivers in a tile, sorted along the Z-order curve.
    #[must_use]
    pub fn in_tile(&self, tile: Tile) -> &[Row] {
        let (from, to) = tile.keys();
        let first_row = |key: u64| self.rows.partition_point(|row| row.place() < key);
        &self.rows[Range { start: first_row(from), end: first_row(to) }]
    }

    /// Returns all drivers, sorted along the Z-order curve.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns a driver's id, by number.
    #[must_use]
    pub fn id(&self, number: u32) -> &[u8] {
        self.ids.id(number)
    }

    /// Returns a driver's fix, by number.
    #[must_use]
    pub fn fix(&self, number: u32) -> &Fix {
        &self.fixes[number as usize]
    }

    /// Returns a driver's number, by id.
    #[must_use]
    pub fn number(&self, id: &str) -> Option<u32> {
        self.ids.find(id.as_bytes())
    }

    /// Returns a driver's fix, by id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&Fix> {
        self.number(id).map(|number| self.fix(number))
    }

    /// Returns the first `limit` ids, in alphabetical order, that begin with the prefix.
    #[must_use]
    pub fn search(&self, prefix: &str, allows: impl Fn(u32) -> bool, limit: usize) -> Vec<String> {
        let mut found: Vec<&[u8]> = Vec::new();
        for number in 0..u32::try_from(self.ids.numbers()).unwrap_or(u32::MAX) {
            let id = self.ids.id(number);
            if id.is_empty() || !id.starts_with(prefix.as_bytes()) || !allows(number) {
                continue;
            }
            keep_first(&mut found, id, limit);
        }
        found.into_iter().map(|id| String::from_utf8_lossy(id).into_owned()).collect()
    }

    /// Returns the first `limit` ids of drivers whose id or name contains `text`, ignoring case and
    /// accents. Ids that begin with `text` come first; both parts are in alphabetical order. An
    /// empty string matches every driver.
    #[must_use]
    pub fn find_anywhere(
        &self,
        text: &str,
        allows: impl Fn(u32) -> bool,
        limit: usize,
    ) -> Vec<String> {
        let folded = directory::fold(text);
        let mut found: Vec<(bool, &str)> = Vec::new();
        for number in 0..u32::try_from(self.ids.numbers()).unwrap_or(u32::MAX) {
            let Ok(id) = str::from_utf8(self.ids.id(number)) else { continue };
            let offset = position(id.as_bytes(), folded.as_bytes());
            if id.is_empty()
                || offset.is_none() && !self.directory.name_contains(id, &folded)
                || !allows(number)
            {
                continue;
            }
            let rank = (offset != Some(0), id);
            keep_first(&mut found, rank, limit);
        }
        found.into_iter().map(|(_, id)| id.to_owned()).collect()
    }

    /// Returns the first `limit` ids, in alphabetical order, of drivers whose name contains the
    /// search text but whose id does not. `folded`: the search text after [`directory::fold`].
    #[must_use]
    pub fn find_by_name(
        &self,
        folded: &str,
        allows: impl Fn(u32) -> bool,
        limit: usize,
    ) -> Vec<String> {
        let mut found: Vec<&str> = Vec::new();
        for number in 0..u32::try_from(self.ids.numbers()).unwrap_or(u32::MAX) {
            let Ok(id) = str::from_utf8(self.ids.id(number)) else { continue };
            if id.is_empty()
                || position(id.as_bytes(), folded.as_bytes()).is_some()
                || !self.directory.name_contains(id, folded)
                || !allows(number)
            {
                continue;
            }
            keep_first(&mut found, id, limit);
        }
        found.into_iter().map(str::to_owned).collect()
    }

    /// Returns the memory in use, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.ids.memory_bytes()
            + self.fixes.capacity() * size_of::<Fix>()
            + self.seen_in_read.capacity()
            + (self.rows.capacity() + self.spare.capacity()) * size_of::<Row>()
            + self.changed.capacity() * size_of::<u32>()
            + self.is_changed.capacity() * size_of::<u64>()
            + self.groups.capacity() * size_of::<u16>()
    }
}

/// Returns the offset of `folded` (in lower case) in `id` (ASCII, in any case). `None` if `id` does
/// not contain `folded`.
fn position(id: &[u8], folded: &[u8]) -> Option<usize> {
    if folded.is_empty() {
        return Some(0);
    }
    id.windows(folded.len()).position(|window| window.eq_ignore_ascii_case(folded))
}

/// Inserts `item` into the sorted list `found`, and drops all but the first `limit` items.
fn keep_first<T: Ord>(found: &mut Vec<T>, item: T, limit: usize) {
    let place = found.partition_point(|known| *known < item);
    if place < limit {
        found.insert(place, item);
        found.truncate(limit);
    }
}
