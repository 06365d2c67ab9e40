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

/// A time as RFC 3339, where a database or a spreadsheet wrote it in a similar form: `2026-01-31 08:00:00`, `…08:00:00+00`. A time
/// without a zone gets `zone`. Everything else stays.
pub(super) fn time(text: &str, zone: &str) -> String {
    let text = text.trim();
    let is_time = text.len() >= 16 && text.as_bytes()[4] == b'-' && text.as_bytes()[13] == b':';
    let Some((date, clock)) = text.split_at_checked(10).filter(|_| is_time) else {
        return text.to_owned();
    };
    let clock = clock.trim_start_matches(['T', 't', ' ']).replace(" UTC", "Z");
    match clock.find(['Z', 'z', '+', '-']) {
        None => format!("{date}T{clock}{zone}"),
        // PostgreSQL writes an offset of whole hours without minutes.
        Some(at) if clock.len() - at == 3 => format!("{date}T{clock}:00"),
        Some(_) => format!("{date}T{clock}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_databases_become_rfc_3339_and_others_stay() {
        for (text, expected) in [
            ("2026-01-31T08:00:00Z", "2026-01-31T08:00:00Z"),
            ("2026-01-31 08:00:00", "2026-01-31T08:00:00+01:00"),
            ("2026-01-31T08:00:00.25", "2026-01-31T08:00:00.25+01:00"),
            ("2026-01-31 08:00:00.5+00", "2026-01-31T08:00:00.5+00:00"),
            ("2026-01-31 08:00:00-03:30", "2026-01-31T08:00:00-03:30"),
            ("2026-01-31 08:00:00 UTC", "2026-01-31T08:00:00Z"),
            ("1767225600", "1767225600"),
            ("31.01.2026 08:00", "31.01.2026 08:00"),
            ("2026-01-3ü:08:00:00", "2026-01-3ü:08:00:00"),
            ("", ""),
        ] {
            assert_eq!(time(text, "+01:00"), expected, "{text}");
        }
    }

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
