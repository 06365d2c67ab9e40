//! Matches topics against a filter with `+`, the wildcard for one level.

use arrayvec::ArrayVec;
use memchr::memchr;

use crate::position::DriverId;

/// Maximum number of `+` in a filter.
pub const PLUSES_MAX: usize = 8;

/// The levels that match `+`, in order.
pub(super) type Levels<'a> = ArrayVec<&'a str, PLUSES_MAX>;

/// A filter, split around its `+`.
#[derive(Debug, Clone)]
pub(super) struct Filter {
    /// The text before the first `+`.
    before: String,
    /// The text after each `+`, up to the next one.
    after: Vec<String>,
}

impl Filter {
    /// Creates a filter. The configuration guarantees at most [`PLUSES_MAX`] levels `+`, and no
    /// `#`.
    pub(super) fn new(filter: &str) -> Self {
        let mut parts = filter.split('+').map(str::to_owned);
        Self { before: parts.next().unwrap_or_default(), after: parts.collect() }
    }

    /// Returns the driver id that the filter's first `+` matches. `None`: the topic does not match,
    /// the level is not an id, or another level is not ASCII.
    #[inline]
    pub(super) fn id_at_first_level(&self, topic: &[u8]) -> Option<DriverId> {
        let (first, others) = self.after.split_first()?;
        let rest = topic.strip_prefix(self.before.as_bytes())?;
        // An id cannot contain a `/`, so a valid id is exactly one level.
        if others.is_empty() {
            return DriverId::new(rest.strip_suffix(first.as_bytes())?).ok();
        }
        let (id, rest) = DriverId::split_off(rest)?;
        let mut rest = rest.strip_prefix(first.as_bytes())?;
        for after in others {
            let ends_level = |byte: &u8| *byte == b'/' || !byte.is_ascii();
            let length = rest.iter().position(ends_level).unwrap_or(rest.len());
            rest = rest[length..].strip_prefix(after.as_bytes())?;
        }
        rest.is_empty().then_some(id)
    }

    /// Returns the levels that match `+`; `None` if the topic does not match.
    pub(super) fn levels<'a>(&self, topic: &'a str) -> Option<Levels<'a>> {
        let mut rest = topic.strip_prefix(&*self.before)?;
        let mut levels = Levels::new();
        for after in &self.after {
            let end = memchr(b'/', rest.as_bytes()).unwrap_or(rest.len());
            levels.try_push(&rest[..end]).ok()?;
            rest = rest[end..].strip_prefix(&**after)?;
        }
        rest.is_empty().then_some(levels)
    }
}

/// Returns whether some topic matches both filters.
pub fn overlap(a: &str, b: &str) -> bool {
    let overlaps = |(a, b): (&str, &str)| a == b || a == "+" || b == "+";
    a.split('/').count() == b.split('/').count() && a.split('/').zip(b.split('/')).all(overlaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(filter: &str, topic: &str) -> Option<Vec<String>> {
        Filter::new(filter)
            .levels(topic)
            .map(|levels| levels.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn each_plus_matches_one_topic_level() {
        assert_eq!(
            levels("owntracks/+/+", "owntracks/jo/phone"),
            Some(vec!["jo".into(), "phone".into()])
        );
        assert_eq!(levels("+", "x"), Some(vec!["x".into()]));
        assert_eq!(levels("a/+/b/+/c", "a/1/b/2/c"), Some(vec!["1".into(), "2".into()]));
        assert_eq!(levels("positions", "positions"), Some(vec![]));
        assert_eq!(levels("a/+/", "a/1/"), Some(vec!["1".into()]), "an empty level is a level");
        for (filter, topic) in [
            ("owntracks/+/+", "owntracks/jo"),
            ("owntracks/+/+", "owntracks/jo/phone/event"),
            ("a/+/b", "a/1/c"),
            ("a/+/b", "a/1/2/b"),
            ("positions", "positions/1"),
            ("+", "a/b"),
        ] {
            assert_eq!(levels(filter, topic), None, "{filter} {topic}");
        }
    }

    #[test]
    fn filters_overlap_if_one_topic_matches_both() {
        assert!(overlap("a/+/c", "a/b/+") && overlap("+/x", "a/+") && overlap("a", "a"));
        assert!(!overlap("a/+", "a/+/c") && !overlap("a/+/c", "a/+/d") && !overlap("a", "b"));
    }
}
