//! Repairs what some programs write although JSON does not allow it: a byte order mark, control
//! characters around the JSON, and Python's `NaN` and `Infinity`.

/// Returns the repaired payload; `None` if there is nothing to repair. The result may still be
/// invalid JSON.
#[cold]
pub(super) fn repaired(payload: &[u8]) -> Option<Vec<u8>> {
    let text = payload.strip_prefix("\u{feff}".as_bytes()).unwrap_or(payload);
    let is_blank = |byte: &u8| *byte <= b' ';
    let begin = text.iter().position(|byte| !is_blank(byte))?;
    let end = text.iter().rposition(|byte| !is_blank(byte))? + 1;
    let mut json = Vec::with_capacity(end - begin);
    let mut rest = &text[begin..end];
    while let Some(first) = rest.first() {
        let length = match first {
            b'"' => string_length(rest),
            byte if byte.is_ascii_alphabetic() => word_length(rest),
            _ => 1,
        };
        let (token, after) = rest.split_at(length);
        if is_nan_or_infinity(token) {
            if json.last() == Some(&b'-') {
                json.pop();
            }
            json.extend_from_slice(b"null");
        } else {
            json.extend_from_slice(token);
        }
        rest = after;
    }
    (json != payload).then_some(json)
}

fn is_nan_or_infinity(token: &[u8]) -> bool {
    [&b"nan"[..], b"inf", b"infinity"].iter().any(|word| token.eq_ignore_ascii_case(word))
}

/// Returns the length of the word at the beginning of the text.
fn word_length(text: &[u8]) -> usize {
    text.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(text.len())
}

/// Returns the length of the string at the beginning of the text, with its quotes. If the string
/// has no end, returns the length of the whole text.
fn string_length(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let is_end = |byte: &u8| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    };
    text[1..].iter().position(is_end).map_or(text.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_json_does_not_allow_are_removed_or_become_null() {
        for (payload, expected) in [
            ("\u{feff}{}", Some("{}")),
            ("{}\r\n\0\r\n", Some("{}")),
            ("{}\x1a", Some("{}")),
            ("[NaN,-Infinity,nan,1]", Some("[null,null,null,1]")),
            (r#"{"NaN":"NaN","a\"":-inf}"#, Some(r#"{"NaN":"NaN","a\"":null}"#)),
            (r#"{"a":true,"b":1e5}"#, None),
            (r#"{"a":nano}"#, None),
            (r#"{"a":"NaN"#, None),
            ("", None),
            ("\0", None),
        ] {
            let read = repaired(payload.as_bytes()).map(|json| String::from_utf8(json).unwrap());
            assert_eq!(read.as_deref(), expected, "{payload:?}");
        }
    }
}
