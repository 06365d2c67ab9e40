//! Builds the payload of a fix: a JSON object of strings for the decoder.

use std::collections::HashSet;
use std::ops::Range;

/// Maximum number of names that are compared one by one.
const COMPARED_MAX: usize = 32;

/// A JSON object under construction. It is reused for every fix.
#[derive(Default)]
pub(super) struct Record {
    json: Vec<u8>,
    /// Places in `json` of the names of the first [`COMPARED_MAX`] members, with their quotes.
    names: Vec<Range<usize>>,
    /// Names of the members after these, as JSON. Most fixes have no such members.
    more_names: HashSet<Vec<u8>>,
}

impl Record {
    pub(super) fn clear(&mut self) {
        self.json.clear();
        self.names.clear();
        self.more_names.clear();
    }

    /// Adds a member, unless its value is empty.
    pub(super) fn put(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.json.push(if self.json.is_empty() { b'{' } else { b',' });
            let begin = self.json.len();
            put_string(name, &mut self.json);
            let place = begin..self.json.len();
            if self.names.len() < COMPARED_MAX {
                self.names.push(place);
            } else {
                self.more_names.insert(self.json[place].to_vec());
            }
            self.json.push(b':');
            put_string(value, &mut self.json);
        }
    }

    /// Returns whether there is a member of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        // The usual case, without an allocation: the quoted name is the JSON.
        if self.more_names.is_empty() && !has_escapes(name) {
            let inner = |place: &Range<usize>| &self.json[place.start + 1..place.end - 1];
            return self.names.iter().any(|place| inner(place) == name.as_bytes());
        }
        let mut json = Vec::new();
        put_string(name, &mut json);
        self.names.iter().any(|place| self.json[place.clone()] == *json)
            || self.more_names.contains(&json)
    }

    /// Returns whether there is a member of this name and value.
    pub(super) fn has_value(&self, name: &str, value: &str) -> bool {
        let mut member = Vec::new();
        put_string(name, &mut member);
        member.push(b':');
        put_string(value, &mut member);
        self.json.windows(member.len()).any(|part| part == member)
    }

    /// Closes the object, and returns it.
    pub(super) fn finish(&mut self) -> &[u8] {
        self.json.extend_from_slice(if self.json.is_empty() { b"{}" } else { b"}" });
        &self.json
    }
}

fn put_string(text: &str, out: &mut Vec<u8>) {
    if has_escapes(text) {
        serde_json::to_writer(out, text).expect("writing to a Vec cannot fail");
    } else {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    }
}

/// Returns whether JSON must escape a character of the text.
fn has_escapes(text: &str) -> bool {
    let is_escaped = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\\');
    // Without an early end, the compiler compares many bytes at once.
    text.bytes().fold(false, |found, byte| found | is_escaped(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A GPX point may have 30,000 extension elements, each of which looks up its name.
    #[test]
    fn many_members_take_linear_time() {
        let mut record = Record::default();
        for n in 0..200_000 {
            let name = format!("n{n}");
            assert!(!record.has(&name));
            record.put(&name, "x");
        }
        assert!(record.has("n0") && record.has("n199999") && !record.has("n200000"));
    }

    #[test]
    fn record_is_an_object_of_strings() {
        let mut record = Record::default();
        assert_eq!(record.finish(), b"{}");
        record.clear();
        record.put("lat", "1");
        record.put("none", "");
        record.put("a \"b\"", "x\\y");
        assert!(record.has("a \"b\"") && !record.has("a b"));
        assert!(record.has("lat") && !record.has("la") && !record.has("none") && !record.has("x"));
        assert_eq!(record.finish(), br#"{"lat":"1","a \"b\"":"x\\y"}"#);
    }
}
