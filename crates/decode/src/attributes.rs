//! Other fields of a point that its source keeps: names and values as strings.

use super::row_binary::{count_at, put_text};

/// Maximum number of names per point.
pub const ATTRIBUTES_MAX: usize = 64;
/// Maximum bytes of names and values per point.
pub const ATTRIBUTE_BYTES_MAX: usize = 4_096;
/// Bytes of the two length prefixes of a name and its value.
const LENGTHS_BYTES: usize = 4;

/// Names with their values, each name once, in the order sent. An empty set costs one pointer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(Option<Box<Pairs>>);

/// The pairs as an INSERT has them: one allocation for all, and no later encoding.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Pairs {
    count: usize,
    /// Bytes of names and values, without their lengths.
    bytes: usize,
    /// Name and value in turn, in RowBinary.
    encoded: Vec<u8>,
}

impl Attributes {
    /// Adds a value, or replaces the earlier one of this name; returns `false` if there is no room.
    pub fn put(&mut self, name: &str, value: &str) -> bool {
        let earlier =
            self.iter().find(|(known, _)| *known == name).map(|(_, earlier)| earlier.len());
        let pairs = self.0.get_or_insert_default();
        let more = if earlier.is_some() { value.len() } else { name.len() + value.len() };
        let bytes = pairs.bytes - earlier.unwrap_or(0) + more;
        if bytes > ATTRIBUTE_BYTES_MAX || earlier.is_none() && pairs.count == ATTRIBUTES_MAX {
            return false;
        }
        if earlier.is_some() {
            self.replace(name, value);
            return true;
        }
        pairs.encoded.reserve(name.len() + value.len() + LENGTHS_BYTES);
        put_text(name.as_bytes(), &mut pairs.encoded);
        put_text(value.as_bytes(), &mut pairs.encoded);
        pairs.count += 1;
        pairs.bytes = bytes;
        true
    }

    /// Replaces an earlier value. This is rare: the payload repeats a key.
    #[cold]
    fn replace(&mut self, name: &str, value: &str) {
        let mut replaced = Self::default();
        for (known, earlier) in self.iter() {
            replaced.put(known, if known == name { value } else { earlier });
        }
        *self = replaced;
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = self.encoded();
        std::iter::from_fn(move || Some((text(&mut rest)?, text(&mut rest)?)))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |pairs| pairs.count)
    }

    /// Returns the pairs in RowBinary, without the count in front.
    pub(super) fn encoded(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |pairs| &pairs.encoded)
    }

    /// Returns the bytes in memory, an upper bound of the encoded size.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |pairs| {
            size_of::<Pairs>() + 2 * (pairs.bytes + LENGTHS_BYTES * (pairs.count + 1))
        })
    }
}

/// Reads the next RowBinary string from `rest`.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (prefix, length) = count_at(rest)?;
    let (text, after) = rest.get(prefix..)?.split_at_checked(length)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_names_are_unique_and_their_size_is_bounded() {
        let mut kept = Attributes::default();
        assert!(kept.put("batt", "80") && kept.put("batt", "81"));
        assert_eq!(kept.iter().collect::<Vec<_>>(), [("batt", "81")]);
        assert!(!kept.put("long", &"x".repeat(ATTRIBUTE_BYTES_MAX)));
        for n in 1..ATTRIBUTES_MAX {
            assert!(kept.put(&n.to_string(), "x"));
            let pairs = &**kept.0.as_ref().unwrap();
            let held = size_of::<Pairs>() + pairs.encoded.capacity();
            assert!(held <= kept.memory_bytes(), "{held} bytes of {} pairs", kept.len());
        }
        assert!(!kept.put("one more", "x") && kept.put("batt", "82"));
        assert_eq!(kept.len(), ATTRIBUTES_MAX);
        assert_eq!(kept.iter().next(), Some(("batt", "82")));
        let long = "é".repeat(500);
        let mut kept = Attributes::default();
        assert!(kept.put("ä", &long) && kept.put("empty", ""));
        assert_eq!(kept.iter().collect::<Vec<_>>(), [("ä", &*long), ("empty", "")]);
    }
}
