//! One fix of a file as a JSON object of strings, as the decoder reads it.

/// Reused from fix to fix.
#[derive(Default)]
pub(super) struct Record(Vec<u8>);

impl Record {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a member; an empty value is none.
    pub(super) fn put(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.0.push(if self.0.is_empty() { b'{' } else { b',' });
            put_string(name, &mut self.0);
            self.0.push(b':');
            put_string(value, &mut self.0);
        }
    }

    /// Whether there is a member of this name, which a JSON string can hold as it is. A quote in a value is escaped, so no value
    /// looks like one.
    pub(super) fn has(&self, name: &str) -> bool {
        [b'{', b','].iter().any(|before| {
            let member = [&[*before, b'"'], name.as_bytes(), b"\":"].concat();
            self.0.windows(member.len()).any(|bytes| bytes == member)
        })
    }

    /// The whole object.
    pub(super) fn finish(&mut self) -> &[u8] {
        self.0.extend_from_slice(if self.0.is_empty() { b"{}" } else { b"}" });
        &self.0
    }
}

fn put_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("a Vec takes every string");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_an_object_of_strings() {
        let mut record = Record::default();
        assert_eq!(record.finish(), b"{}");
        record.clear();
        record.put("lat", "1");
        record.put("none", "");
        record.put("a \"b\"", "x\\y");
        assert!(record.has("lat") && !record.has("la") && !record.has("none") && !record.has("x"));
        assert_eq!(record.finish(), br#"{"lat":"1","a \"b\"":"x\\y"}"#);
    }
}
