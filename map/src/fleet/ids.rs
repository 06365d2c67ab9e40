//! Stores the drivers' ids back to back. The index refers to these bytes instead of copies.

use std::hash::BuildHasher as _;
use std::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Maximum length of an id, in bytes; the minimum is 1.
pub const ID_BYTES_MAX: usize = 64;

/// Assigns a number to each id.
#[derive(Default)]
pub struct Ids {
    bytes: Vec<u8>,
    /// Offset and length of each id, by number; length 0: the number is free.
    spans: Vec<(u32, u8)>,
    /// Free numbers.
    free: Vec<u32>,
    /// Bytes that removed ids still occupy.
    wasted: usize,
    /// The numbers, by the hash of their ids.
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Ids {
    /// Returns the number of ids.
    #[must_use]
    pub fn count(&self) -> usize {
        self.index.len()
    }

    /// Returns the exclusive upper bound of the numbers.
    #[must_use]
    pub fn numbers(&self) -> usize {
        self.spans.len()
    }

    /// Returns the id with this number; empty: the number is free.
    #[must_use]
    pub fn id(&self, number: u32) -> &[u8] {
        &self.bytes[byte_range(self.spans[number as usize])]
    }

    /// Returns the number of an id; `None`: the id has none.
    #[must_use]
    pub fn find(&self, id: &[u8]) -> Option<u32> {
        self.index.find(self.hasher.hash_one(id), |number| self.id(*number) == id).copied()
    }

    /// Assigns a number to a new id.
    pub fn add(&mut self, id: &[u8]) -> u32 {
        let offset =
            u32::try_from(self.bytes.len()).expect("16 million ids of 64 bytes take 1 GiB");
        let length = u8::try_from(id.len()).unwrap_or(u8::MAX);
        self.bytes.extend_from_slice(&id[..usize::from(length)]);
        let number = if let Some(number) = self.free.pop() {
            self.spans[number as usize] = (offset, length);
            number
        } else {
            self.spans.push((offset, length));
            u32::try_from(self.spans.len() - 1).expect("at most DRIVERS_MAX numbers")
        };
        let Self { bytes, spans, index, hasher, .. } = self;
        let hash = |number: &u32| hasher.hash_one(&bytes[byte_range(spans[*number as usize])]);
        index.insert_unique(hasher.hash_one(id), number, hash);
        number
    }

    /// Removes an id and frees its number.
    pub fn remove(&mut self, number: u32) {
        let range = byte_range(self.spans[number as usize]);
        let hash = self.hasher.hash_one(&self.bytes[range.clone()]);
        if let Ok(entry) = self.index.find_entry(hash, |known| *known == number) {
            entry.remove();
        }
        self.wasted += range.len();
        self.spans[number as usize] = (0, 0);
        self.free.push(number);
        if self.wasted > self.bytes.len() / 2 {
            self.compact();
        }
    }

    /// Moves the ids together, without the bytes of removed ids. Each id keeps its number.
    fn compact(&mut self) {
        let mut bytes = Vec::with_capacity(self.bytes.len() - self.wasted);
        for entry in &mut self.spans {
            let range = byte_range(*entry);
            entry.0 = u32::try_from(bytes.len()).expect("compacting does not add bytes");
            bytes.extend_from_slice(&self.bytes[range]);
        }
        (self.bytes, self.wasted) = (bytes, 0);
    }

    /// Returns the memory in use, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.spans.capacity() * 8
            + self.free.capacity() * 4
            + self.index.capacity() * 8
    }
}

/// Returns the range of an id in `bytes`.
fn byte_range((offset, length): (u32, u8)) -> Range<usize> {
    offset as usize..offset as usize + usize::from(length)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(crate::cases::cases(256))]

        #[test]
        fn every_id_keeps_its_number_until_it_is_removed(
            steps in proptest::collection::vec((0_u8..30, any::<bool>()), 0..300),
        ) {
            let (mut ids, mut model) = (Ids::default(), BTreeMap::new());
            for (driver, is_wanted) in steps {
                let id = format!("driver-{driver}").into_bytes();
                match (ids.find(&id), is_wanted) {
                    (None, true) => { model.insert(id.clone(), ids.add(&id)); }
                    (Some(number), false) => { ids.remove(number); model.remove(&id); }
                    (Some(_), true) | (None, false) => {}
                }
                prop_assert_eq!(ids.count(), model.len());
                for (id, number) in &model {
                    prop_assert_eq!(ids.find(id), Some(*number));
                    prop_assert_eq!(ids.id(*number), &id[..]);
                }
            }
            prop_assert!(ids.numbers() <= 30);
        }
    }
}
