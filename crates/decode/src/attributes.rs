//! Stores the further fields of a point that its source keeps: names and values as strings.

use super::row_binary::{count_at, put_text};

/// Maximum number of names per point.
pub const ATTRIBUTES_MAX: usize = 64;
/// Maximum bytes of names and values per point.
pub const ATTRIBUTE_BYTES_MAX: usize = 4_096;
/// Maximum bytes of the two length prefixes of a name and its value.
const LENGTHS_BYTES: usize = 4;

/// Maximum bytes of encoded pairs that fit into the 24 bytes of [`Attributes`], without an
/// allocation. For example, `batt` and `80` take eight bytes, with their lengths.
const SHORT_BYTES: usize = 21;

/// Names with their values, each name once, in the order sent. Most points have a few short pairs,
/// which need no allocation.
#[derive(Debug, Clone)]
pub struct Attributes(Pairs);

/// Names and values in turn, encoded in RowBinary as an INSERT needs them.
#[derive(Debug, Clone)]
enum Pairs {
    Short { count: u8, length: u8, encoded: [u8; SHORT_BYTES] },
    Long(Box<LongPairs>),
}

#[derive(Debug, Clone)]
struct LongPairs {
    count: usize,
    /// Bytes of names and values, without their lengths.
    bytes: usize,
    encoded: Vec<u8>,
}

impl Default for Attributes {
    fn default() -> Self {
        Self(Pairs::Short { count: 0, length: 0, encoded: [0; SHORT_BYTES] })
    }
}

impl PartialEq for Attributes {
    fn eq(&self, other: &Self) -> bool {
        self.encoded() == other.encoded()
    }
}

impl Eq for Attributes {}

impl Attributes {
    /// Adds a value, or replaces the earlier value of this name. Returns `false`, and changes
    /// nothing, if a limit would be exceeded.
    pub fn put(&mut self, name: &str, value: &str) -> bool {
        self.put_bytes(name, value.as_bytes())
    }

    /// Adds a value as [`put`](Self::put) does; the value must be UTF-8.
    pub(super) fn put_bytes(&mut self, name: &str, value: &[u8]) -> bool {
        if self.is_empty() && self.push_short(name.as_bytes(), value) {
            return true;
        }
        let earlier = pairs(self.encoded())
            .find(|(present, _)| *present == name.as_bytes())
            .map(|(_, earlier)| earlier.len());
        let more = if earlier.is_some() { value.len() } else { name.len() + value.len() };
        let bytes = self.bytes() - earlier.unwrap_or(0) + more;
        if bytes > ATTRIBUTE_BYTES_MAX || earlier.is_none() && self.len() == ATTRIBUTES_MAX {
            return false;
        }
        if earlier.is_some() {
            self.replace(name, value);
        } else if !self.push_short(name.as_bytes(), value) {
            let pairs = self.long();
            pairs.encoded.reserve(name.len() + value.len() + LENGTHS_BYTES);
            put_text(name.as_bytes(), &mut pairs.encoded);
            put_text(value, &mut pairs.encoded);
            pairs.count += 1;
            pairs.bytes = bytes;
        }
        true
    }

    /// Appends a pair without an allocation. Returns `false` if it does not fit.
    fn push_short(&mut self, name: &[u8], value: &[u8]) -> bool {
        let Pairs::Short { count, length, encoded } = &mut self.0 else { return false };
        let free = &mut encoded[usize::from(*length)..];
        let needed = name.len() + value.len() + 2;
        if needed > free.len() {
            return false;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most SHORT_BYTES")]
        let [name_length, value_length, pair_length] =
            [name.len(), value.len(), needed].map(|len| len as u8);
        free[0] = name_length;
        free[1..=name.len()].copy_from_slice(name);
        free[1 + name.len()] = value_length;
        free[2 + name.len()..needed].copy_from_slice(value);
        *count += 1;
        *length += pair_length;
        true
    }

    /// Returns the pairs in their long form. Moves short pairs to the heap first.
    fn long(&mut self) -> &mut LongPairs {
        if matches!(self.0, Pairs::Short { .. }) {
            let (count, bytes) = (self.len(), self.bytes());
            let encoded = self.encoded().to_vec();
            self.0 = Pairs::Long(Box::new(LongPairs { count, bytes, encoded }));
        }
        match &mut self.0 {
            Pairs::Long(pairs) => pairs,
            Pairs::Short { .. } => unreachable!("converted to long above"),
        }
    }

    /// Returns the bytes of names and values, without their lengths.
    fn bytes(&self) -> usize {
        match &self.0 {
            Pairs::Short { count, length, .. } => usize::from(*length) - 2 * usize::from(*count),
            Pairs::Long(pairs) => pairs.bytes,
        }
    }

    /// Replaces an earlier value. This is rare: it happens only if the payload repeats a key.
    #[cold]
    fn replace(&mut self, name: &str, value: &[u8]) {
        let mut replaced = Self::default();
        for (present, earlier) in self.iter() {
            replaced.put_bytes(present, if present == name { value } else { earlier.as_bytes() });
        }
        *self = replaced;
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(self.encoded()).filter_map(|(name, value)| {
            Some((std::str::from_utf8(name).ok()?, std::str::from_utf8(value).ok()?))
        })
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Pairs::Short { count, .. } => usize::from(*count),
            Pairs::Long(pairs) => pairs.count,
        }
    }

    /// Returns the pairs in RowBinary, without the number of pairs that precedes them.
    pub(super) fn encoded(&self) -> &[u8] {
        match &self.0 {
            Pairs::Short { length, encoded, .. } => &encoded[..usize::from(*length)],
            Pairs::Long(pairs) => &pairs.encoded,
        }
    }

    /// Returns an upper bound for both the allocated and the encoded bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Pairs::Short { length, .. } => usize::from(*length),
            Pairs::Long(pairs) => {
                size_of::<LongPairs>() + 2 * (pairs.bytes + LENGTHS_BYTES * (pairs.count + 1))
            }
        }
    }
}

/// Returns the names and values that `rest` holds in RowBinary.
fn pairs(mut rest: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::from_fn(move || Some((text(&mut rest)?, text(&mut rest)?)))
}

/// Reads the next RowBinary string from `rest`.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (prefix, length) = count_at(rest)?;
    let (text, after) = rest.get(prefix..)?.split_at_checked(length)?;
    *rest = after;
    Some(text)
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
            let held = match &kept.0 {
                Pairs::Short { .. } => kept.encoded().len(),
                Pairs::Long(pairs) => size_of::<LongPairs>() + pairs.encoded.capacity(),
            };
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

    #[test]
    fn short_pairs_need_no_allocation_and_equal_long_ones() {
        assert_eq!(size_of::<Attributes>(), 24);
        let mut short = Attributes::default();
        assert!(short.put("batt", "80") && short.put("", "") && short.put("abc", "123456"));
        let Pairs::Short { count: 3, length: 21, .. } = short.0 else { panic!("{short:?}") };
        let mut long = Attributes::default();
        for (name, value) in [("batt", "a long value, 80"), ("", ""), ("abc", "123456")] {
            assert!(long.put(name, value));
        }
        assert!(matches!(long.0, Pairs::Long(_)));
        assert_ne!(long, short);
        assert!(long.put("batt", "80"));
        assert_eq!((&long, long.encoded()), (&short, short.encoded()));
        assert!(short.put("x", ""));
        let pairs: Vec<_> = short.iter().collect();
        assert_eq!(pairs, [("batt", "80"), ("", ""), ("abc", "123456"), ("x", "")]);
    }
}
