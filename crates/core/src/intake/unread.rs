//! Finds the fields that no mapping reads: counts them by name, and logs the first unread fields of
//! each source.
//!
//! Listing the unread fields of a message means decoding it a second time. So this is done only for
//! a sample of each source: its first message, then one message in [`SAMPLE_EVERY`], and its first
//! message with an undated fix (a fix without a time). At most [`NAMES_MAX`] names are counted per
//! source. Further names count as `other`.

use std::sync::Arc;

use milepost_decode::position::Timestamp;
use milepost_decode::{Decoded, Decoder, Message, suggested_field};

/// One message in this many is sampled.
const SAMPLE_EVERY: u64 = 1_000;
/// Maximum number of names per source that have a counter of their own.
const NAMES_MAX: usize = 20;
/// Maximum number of names in a log line.
const LOGGED_MAX: usize = 8;
/// Maximum number of characters of a name in a log line and a label, before escaping. Longer names
/// are cut.
const NAME_CHARS_MAX: usize = 60;
/// The name under which further names are counted.
const OTHER: &str = "other";

/// An unread field of a source, with the number of sampled messages that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadField {
    /// Topic filter of the source.
    pub source: Arc<str>,
    pub field: Arc<str>,
    pub messages: u64,
}

/// The first unread fields of a source, or its first fix without a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadNotice {
    /// Topic filter of the source.
    pub source: Arc<str>,
    /// `true` for the first fix without a time.
    pub is_undated: bool,
    /// Names of the unread fields in the message that caused the notice.
    pub names: Vec<Arc<str>>,
}

/// A source, and which of its unread fields are known.
#[derive(Debug)]
struct SourceFields {
    /// Topic filter of the source.
    topic: Arc<str>,
    /// Number of messages so far.
    messages: u64,
    /// Unread fields that have a counter of their own.
    names: Vec<Arc<str>>,
    are_names_logged: bool,
    /// A fix without a time has been logged.
    is_undated_logged: bool,
}

/// The unread fields of all sources.
#[derive(Debug)]
pub(super) struct UnreadFields {
    /// A decoder that also lists the unread fields.
    decoder: Decoder,
    sources: Vec<SourceFields>,
    /// The counts of all unread fields, shared with the metrics. Each source has the field `other`
    /// from the start.
    counts: Arc<Vec<UnreadField>>,
    /// The result of the second decode; kept to reuse its memory.
    scratch: Decoded,
    pub(super) notices: Vec<UnreadNotice>,
}

impl UnreadFields {
    pub(super) fn new(decoder: &Decoder) -> Self {
        let source = |topic: &str| SourceFields {
            topic: topic.into(),
            messages: 0,
            names: Vec::new(),
            are_names_logged: false,
            is_undated_logged: false,
        };
        let sources: Vec<SourceFields> = decoder.topics().map(source).collect();
        let other_field = |source: &SourceFields| UnreadField {
            source: Arc::clone(&source.topic),
            field: OTHER.into(),
            messages: 0,
        };
        Self {
            decoder: decoder.clone().listing_unread(),
            counts: Arc::new(sources.iter().map(other_field).collect()),
            sources,
            scratch: Decoded::default(),
            notices: Vec::new(),
        }
    }

    pub(super) fn counts(&self) -> Arc<Vec<UnreadField>> {
        Arc::clone(&self.counts)
    }

    /// Counts a decoded message. Lists its unread fields if the message belongs to the sample, or
    /// if it is the first message of its source with an undated fix.
    #[inline]
    pub(super) fn record(
        &mut self,
        message: Message<'_>,
        received_at: Timestamp,
        decoded: &Decoded,
    ) {
        let Some(source) = decoded.source.and_then(|source| self.sources.get_mut(source)) else {
            return;
        };
        source.messages += 1;
        let is_sampled = source.messages % SAMPLE_EVERY == 1;
        let is_undated = decoded.omissions.undated > 0;
        let is_first_undated = is_undated && !source.is_undated_logged;
        if is_sampled || is_first_undated {
            self.sample(message, received_at, is_undated);
        }
    }

    /// Lists and counts the unread fields of a message. Logs the first unread fields, and the first
    /// undated fix, of its source.
    #[cold]
    fn sample(&mut self, message: Message<'_>, received_at: Timestamp, is_undated: bool) {
        self.scratch.clear();
        self.decoder.decode(message, received_at, &mut self.scratch);
        let Some(source) = self.scratch.source.and_then(|source| self.sources.get_mut(source))
        else {
            return;
        };
        let mut names = Vec::new();
        for name in &self.scratch.unread {
            // The device chose the name, so escape the name before it becomes a label or part of a
            // log line.
            let escaped: String =
                name.chars().take(NAME_CHARS_MAX).flat_map(char::escape_debug).collect();
            let name = match source.names.iter().find(|counted| ***counted == *escaped) {
                Some(counted) => Arc::clone(counted),
                None if source.names.len() < NAMES_MAX => {
                    let name: Arc<str> = escaped.into();
                    source.names.push(Arc::clone(&name));
                    name
                }
                None => OTHER.into(),
            };
            // Several fields of a message can count as `other`, but a message counts only once per
            // name.
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let counts = Arc::make_mut(&mut self.counts);
        for name in &names {
            let is_same_field =
                |count: &&mut UnreadField| count.source == source.topic && count.field == *name;
            match counts.iter_mut().find(is_same_field) {
                Some(count) => count.messages += 1,
                None => counts.push(UnreadField {
                    source: Arc::clone(&source.topic),
                    field: Arc::clone(name),
                    messages: 1,
                }),
            }
        }
        // Only the first undated fix of a source is logged.
        let logs_undated = is_undated && !source.is_undated_logged;
        if logs_undated || !names.is_empty() && !source.are_names_logged {
            source.are_names_logged |= !names.is_empty();
            source.is_undated_logged |= is_undated;
            let source = Arc::clone(&source.topic);
            self.notices.push(UnreadNotice { source, is_undated: logs_undated, names });
        }
    }
}

impl std::fmt::Display for UnreadNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { source, is_undated, names } = self;
        let shown = |name: &Arc<str>| match suggested_field(name) {
            Some(field) => format!("`{name}` (did you mean `{field}`?)"),
            None => format!("`{name}`"),
        };
        let mut list: Vec<String> = names.iter().take(LOGGED_MAX).map(shown).collect();
        if names.len() > LOGGED_MAX {
            list.push(format!("{} more", names.len() - LOGGED_MAX));
        }
        let list = list.join(", ");
        if *is_undated {
            write!(
                f,
                "source {source}: a fix has no time, and is stored with its time of receipt"
            )?;
            if list.is_empty() {
                return Ok(());
            }
            f.write_str("; ")?;
        } else {
            write!(f, "source {source}: ")?;
        }
        write!(
            f,
            "{list}: not read. Rename a field, map it with [formats.NAME], or store it with \
             `keep`. The metric milepost_fields_unread_total counts unread fields"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use milepost_decode::{Limits, Source};

    const NOW_MS: i64 = 1_795_521_600_000;

    fn record(unread: &mut UnreadFields, payload: &str) {
        let message = Message::new(b"drivers/d7/gps", payload.as_bytes());
        let (now, mut decoded) = (Timestamp::from_unix_ms(NOW_MS), Decoded::default());
        unread.decoder.decode(message, now, &mut decoded);
        unread.record(message, now, &decoded);
    }

    fn two_sources() -> UnreadFields {
        let sources = [Source::milepost("other/+"), Source::milepost("drivers/+/gps")];
        UnreadFields::new(&Decoder::new(&sources, Limits::default()))
    }

    /// Returns each field of the source `drivers/+/gps` with its number of messages.
    fn counts(unread: &UnreadFields) -> Vec<(String, u64)> {
        let of_source = unread.counts.iter().filter(|count| &*count.source == "drivers/+/gps");
        of_source.map(|count| (count.field.to_string(), count.messages)).collect()
    }

    /// Returns a fix with a time and these further fields.
    fn fix(fields: &str) -> String {
        format!(r#"{{"lat":1,"lng":2,"ts":{NOW_MS}{fields}}}"#)
    }

    #[test]
    fn unread_fields_are_logged_once_and_counted_in_a_sample() {
        let mut unread = two_sources();
        for _ in 0..2_001 {
            record(&mut unread, &fix(r#","hedding":4,"battery":70,"speed":1"#));
        }
        let line = unread.notices.remove(0).to_string();
        assert!(line.contains("`hedding` (did you mean `heading`?)"), "{line}");
        assert!(line.starts_with("source drivers/+/gps: `battery`, "), "{line}");
        assert!(unread.notices.is_empty(), "{:?}", unread.notices);
        let expected = [("other", 0), ("battery", 3), ("hedding", 3)];
        assert_eq!(counts(&unread), expected.map(|(name, count)| (name.to_owned(), count)));
    }

    #[test]
    fn message_counts_once_per_name() {
        let mut unread = two_sources();
        let point = fix(r#","battery":70"#);
        record(&mut unread, &format!("[{point},{point}]"));
        let thirty_fields: String = (0..30).map(|number| format!(r#","n{number}":1"#)).collect();
        for _ in 0..1_000 {
            record(&mut unread, &fix(&thirty_fields));
        }
        let counts = counts(&unread);
        assert_eq!(counts[0], ("other".to_owned(), 1), "{counts:?}");
        assert!(counts[1..].iter().all(|(_, messages)| *messages == 1), "{counts:?}");
    }

    #[test]
    fn first_undated_fix_is_reported_even_outside_the_sample() {
        let mut unread = two_sources();
        record(&mut unread, &fix(""));
        assert!(unread.notices.is_empty(), "{:?}", unread.notices);
        for _ in 0..3 {
            record(&mut unread, r#"{"lat":1,"lng":2,"uptime":5}"#);
        }
        let line = unread.notices.remove(0).to_string();
        assert!(line.contains("has no time") && line.contains("`uptime`"), "{line}");
        assert!(unread.notices.is_empty(), "{:?}", unread.notices);
    }

    #[test]
    fn unread_names_are_bounded_and_escaped() {
        let mut unread = two_sources();
        for number in 0..50_000 {
            record(&mut unread, &fix(&format!(r#","n{number}":1"#)));
        }
        let counts = counts(&unread);
        // Of the 50 sampled messages, the first 20 have a name with a counter of its own.
        assert_eq!(counts.len(), NAMES_MAX + 1, "{counts:?}");
        assert_eq!(counts[0], ("other".to_owned(), 30), "{counts:?}");
        let mut unread = two_sources();
        record(&mut unread, &fix(&format!(r#","a\n{}":1"#, "x".repeat(100))));
        let line = unread.notices.remove(0).to_string();
        assert!(line.contains("`a\\nxxx") && line.len() < 400, "{line}");
    }
}
