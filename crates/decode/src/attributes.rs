//! Other fields of a point that its source keeps: names and values as strings.

/// Names per point.
pub const ATTRIBUTES_MAX: usize = 64;
/// Bytes of names and values per point.
pub const ATTRIBUTE_BYTES_MAX: usize = 4_096;

/// Each name once, in the order sent. An empty value costs one pointer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(Option<Box<Pairs>>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Pairs {
    pairs: Vec<(String, String)>,
    bytes: usize,
}

impl Attributes {
    /// Adds a value, or replaces the earlier one of this name; returns `false` if there is no room.
    pub fn put(&mut self, name: &str, value: &str) -> bool {
        let pairs = self.0.get_or_insert_default();
        let known = pairs.pairs.iter().position(|(known, _)| known == name);
        let gone = known.map_or(0, |at| pairs.pairs[at].1.len());
        let more = if known.is_some() { value.len() } else { name.len() + value.len() };
        if pairs.bytes - gone + more > ATTRIBUTE_BYTES_MAX {
            return false;
        }
        match known {
            Some(at) => value.clone_into(&mut pairs.pairs[at].1),
            None if pairs.pairs.len() == ATTRIBUTES_MAX => return false,
            None => pairs.pairs.push((name.to_owned(), value.to_owned())),
        }
        pairs.bytes = pairs.bytes - gone + more;
        true
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs().is_empty()
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs().len()
    }

    /// Bytes in memory, an upper bound of the encoded size.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let of_a_pair = size_of::<(String, String)>();
        self.0
            .as_ref()
            .map_or(0, |pairs| size_of::<Pairs>() + pairs.bytes + 2 * of_a_pair * pairs.pairs.len())
    }

    fn pairs(&self) -> &[(String, String)] {
        self.0.as_ref().map_or(&[], |pairs| &pairs.pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_once_and_bytes_and_names_are_bounded() {
        let mut kept = Attributes::default();
        assert!(kept.put("batt", "80") && kept.put("batt", "81"));
        assert_eq!(kept.iter().collect::<Vec<_>>(), [("batt", "81")]);
        assert!(!kept.put("long", &"x".repeat(ATTRIBUTE_BYTES_MAX)));
        for n in 1..ATTRIBUTES_MAX {
            assert!(kept.put(&n.to_string(), "x"));
            let Pairs { pairs, bytes } = &**kept.0.as_ref().unwrap();
            let held =
                size_of::<Pairs>() + size_of::<(String, String)>() * pairs.capacity() + bytes;
            assert!(held <= kept.memory_bytes(), "{held} bytes of {} pairs", kept.len());
        }
        assert!(!kept.put("one more", "x") && kept.put("batt", "82"));
        assert_eq!(kept.len(), ATTRIBUTES_MAX);
    }
}
