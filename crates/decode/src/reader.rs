//! Reads JSON in one pass over its bytes, without building a tree: a format receives each key, and
//! takes or skips its value. Reading a point of milepost's own format takes a third of the
//! instructions that serde_json needs.
//!
//! Guarantee: the reader accepts the texts that serde_json accepts, and reads the same values, with
//! two exceptions. A number beyond the range of a double becomes infinite. A string with half of a
//! surrogate pair becomes a value that no field can use.
//!
//! A method returns `None` if the text is invalid; [`invalid`](crate::refusal::invalid) says why.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use super::json::{FALSE, Scalar, TRUE};
use crate::number::{DIGITS_MAX, Number, digits};

/// Maximum depth of the reader's recursion. serde_json skips deeper values, without recursion.
const DEPTH_MAX: usize = 127;
/// The byte that [`Reader::peek`] returns at the end. No token begins with it.
const END: u8 = 0;

/// A cursor over JSON.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    /// The unread bytes.
    rest: &'a [u8],
    depth: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(json: &'a [u8]) -> Self {
        Self { rest: json, depth: 0 }
    }

    /// Returns `Some` if only white space is left.
    pub(super) fn end(&mut self) -> Option<()> {
        self.peek();
        self.rest.is_empty().then_some(())
    }

    /// Returns the first byte of the next token, without reading it.
    #[inline]
    pub(super) fn peek(&mut self) -> u8 {
        match self.rest {
            [first @ b'!'..=u8::MAX, ..] => *first,
            _ => {
                self.rest = after_space(self.rest);
                self.rest.first().copied().unwrap_or(END)
            }
        }
    }

    /// Returns the unread bytes, from the next token on.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        self.peek();
        self.rest
    }

    /// Returns the bytes that were read since [`rest`](Self::rest) returned `rest`.
    pub(super) fn read_since(&self, rest: &'a [u8]) -> &'a [u8] {
        &rest[..rest.len() - self.rest.len()]
    }

    /// Calls `member` with each key; `member` must read the value.
    #[inline(always)]
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, &[u8]) -> Option<()>,
    ) -> Option<()> {
        self.members(|reader| {
            let key = reader.key()?;
            member(reader, &key)
        })
    }

    /// Calls `member` at the start of each member; `member` must read the key and the value.
    #[inline(always)]
    pub(super) fn members(&mut self, member: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.list([b'{', b'}'], member)
    }

    /// Reads a key and its colon. The key is UTF-8.
    #[inline(always)]
    pub(super) fn key(&mut self) -> Option<Cow<'a, [u8]>> {
        let (key, has_escapes) = self.string()?;
        self.token(b':')?;
        Some(if has_escapes { unescaped_key(key) } else { Cow::Borrowed(key) })
    }

    /// Reads a key in one step if `recognise` knows it. `recognise` receives the eight bytes from
    /// the opening quote on as a little-endian integer, and the bytes after them. It returns the
    /// meaning of the key, and the key's length with quotes and colon. `None`: no byte of the key
    /// was read.
    #[inline(always)]
    pub(super) fn known_key<T>(
        &mut self,
        recognise: impl FnOnce(u64, &[u8]) -> Option<(T, usize)>,
    ) -> Option<T> {
        if !self.rest.starts_with(b"\"") {
            self.rest = after_space(self.rest);
        }
        let (word, after) = self.rest.split_first_chunk()?;
        let (meaning, length) = recognise(u64::from_le_bytes(*word), after)?;
        self.rest = self.rest.get(length..)?;
        Some(meaning)
    }

    /// Calls `element` at the start of each element; `element` must read it.
    pub(super) fn array(&mut self, element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.list([b'[', b']'], element)
    }

    /// Reads a value of any kind, and returns its JSON.
    pub(super) fn raw(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest();
        self.value()?;
        Some(self.read_since(rest))
    }

    /// Skips a string. `None`: the value is invalid, or not a string.
    pub(super) fn skip_text(&mut self) -> Option<()> {
        self.string().map(drop)
    }

    /// Skips a string if it equals `text`. No character of `text` may need an escape. Returns
    /// whether the string was skipped.
    pub(super) fn skip_known_text(&mut self, text: &str) -> bool {
        let after_quote = self.rest.strip_prefix(b"\"");
        let after_text = after_quote.and_then(|rest| rest.strip_prefix(text.as_bytes()));
        let after = after_text.and_then(|rest| rest.strip_prefix(b"\""));
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// Reads a value of any kind.
    #[inline(always)]
    pub(super) fn value(&mut self) -> Option<Scalar<'a>> {
        match self.rest {
            [b'-' | b'0'..=b'9', ..] => self.number(),
            _ => self.other_value(),
        }
    }

    /// Reads a value of any kind, like [`value`](Self::value). Faster if the value is rarely a
    /// number, because it does not check for a number first.
    #[inline(always)]
    pub(super) fn other_value(&mut self) -> Option<Scalar<'a>> {
        let (value, after) = self.value_and_rest()?;
        *self = after;
        Some(value)
    }

    /// Like [`other_value`](Self::other_value), but advances a copy of the cursor, and returns that
    /// copy with the value.
    #[inline(never)]
    fn value_and_rest(mut self) -> Option<(Scalar<'a>, Self)> {
        let value = match self.peek() {
            b'-' | b'0'..=b'9' => self.number()?,
            b'"' => match self.string()? {
                (text, false) => Scalar::Text(std::str::from_utf8(text).ok()?.into()),
                (text, true) => unescaped(text)
                    .map_or(Scalar::Other("a string with half a surrogate pair"), |text| {
                        Scalar::Text(text.into())
                    }),
            },
            b'{' | b'[' if self.depth == DEPTH_MAX => {
                self.rest = after_deep_value(self.rest)?;
                Scalar::Other("a deeply nested value")
            }
            b'{' => self
                .object(|reader, _| reader.value().map(drop))
                .map(|()| Scalar::Other("an object"))?,
            b'[' => {
                self.array(|reader| reader.value().map(drop)).map(|()| Scalar::Other("an array"))?
            }
            b'n' => self.word(b"null").map(|()| Scalar::Missing)?,
            b't' => self.word(b"true").map(|()| TRUE)?,
            b'f' => self.word(b"false").map(|()| FALSE)?,
            _ => return None,
        };
        Some((value, self))
    }

    /// Reads an object or an array. Calls `item` at the start of each member or element.
    #[inline(always)]
    fn list(
        &mut self,
        [begin, end]: [u8; 2],
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        // Advance a local copy, which the compiler need not reload after each item.
        let mut reader = *self;
        reader.token(begin)?;
        reader.depth += 1;
        if reader.depth > DEPTH_MAX {
            return None;
        }
        if reader.peek() != end {
            loop {
                item(&mut reader)?;
                if reader.peek() != b',' {
                    break;
                }
                reader.rest = &reader.rest[1..];
            }
        }
        reader.depth -= 1;
        reader.token(end)?;
        *self = reader;
        Some(())
    }

    /// Returns the bytes between the quotes of a string, which are UTF-8, and whether some of them
    /// are escapes.
    #[inline(always)]
    fn string(&mut self) -> Option<(&'a [u8], bool)> {
        self.token(b'"')?;
        let length = ascii_length(self.rest)?;
        if self.rest[length] != b'"' {
            let (string, has_escapes, rest) = unusual_string(self.rest)?;
            self.rest = rest;
            return Some((string, has_escapes));
        }
        let string = &self.rest[..length];
        self.rest = &self.rest[length + 1..];
        Some((string, false))
    }

    /// Reads a number. `None`: the value is invalid, or not a number.
    #[inline(always)]
    pub(super) fn number(&mut self) -> Option<Scalar<'a>> {
        let (is_negative, text) = match self.rest {
            [b'-', text @ ..] => (true, text),
            text => (false, text),
        };
        let (whole, whole_digits) = digits(0, text);
        if whole_digits == 0 || (whole_digits > 1 && text[0] == b'0') {
            return None;
        }
        let after = text.get(whole_digits..)?;
        let [b'.', fraction @ ..] = after else {
            if whole_digits > DIGITS_MAX || begins_exponent(after) {
                let (number, rest) = unusual_number(self.rest)?;
                self.rest = rest;
                return Some(number);
            }
            self.rest = after;
            if is_negative && whole == 0 {
                return Some(Scalar::Number((-0.0).into()));
            }
            return Some(Scalar::Integer(if is_negative { -whole } else { whole }));
        };
        let (digits, decimals) = digits(whole, fraction);
        let after = fraction.get(decimals..)?;
        if decimals == 0 {
            return None;
        }
        if whole_digits + decimals > DIGITS_MAX || begins_exponent(after) {
            let (number, rest) = unusual_number(self.rest)?;
            self.rest = rest;
            return Some(number);
        }
        self.rest = after;
        if is_negative && digits == 0 {
            return Some(Scalar::Number((-0.0).into()));
        }
        let digits = if is_negative { -digits } else { digits };
        Some(Scalar::Number(Number::Decimal { digits, decimals }))
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    #[inline(always)]
    fn token(&mut self, token: u8) -> Option<()> {
        match self.rest {
            [first, rest @ ..] if *first == token => self.rest = rest,
            _ => self.rest = after_space(self.rest).strip_prefix(&[token])?,
        }
        Some(())
    }
}

/// A key with its quotes and colon, as in `"name":`. Its first eight bytes are compared at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownKey {
    /// The first eight bytes as a little-endian integer; 0 beyond the end of a shorter key.
    word: u64,
    /// The bits of `word` that belong to the key.
    mask: u64,
    /// The bytes after the first eight.
    after: Box<[u8]>,
    /// Number of bytes, with quotes and colon.
    pub(super) bytes: usize,
}

impl KnownKey {
    /// Creates the key of a name. If a character of the name must be escaped in JSON, the key
    /// matches no text.
    pub(super) fn new(name: &str) -> Self {
        let key = format!("\"{name}\":").into_bytes();
        let (first, after) = key.split_at(key.len().min(8));
        let (mut word, mut mask) = ([0; 8], [0; 8]);
        word[..first.len()].copy_from_slice(first);
        mask[..first.len()].fill(u8::MAX);
        let [mut word, mut mask] = [word, mask].map(u64::from_le_bytes);
        if name.bytes().any(|byte| matches!(byte, ..b' ' | b'"' | b'\\')) {
            (word, mask) = (1, 0); // matches no text, because no integer AND 0 is 1
        }
        Self { word, mask, after: after.into(), bytes: key.len() }
    }

    /// Returns whether a text begins with this key. `word` and `after`: see [`Reader::known_key`].
    #[inline(always)]
    pub(super) fn begins(&self, word: u64, after: &[u8]) -> bool {
        word & self.mask == self.word && (self.after.is_empty() || after.starts_with(&self.after))
    }
}

/// Returns the length of the run of unescaped ASCII at the start of a string. `None`: the string
/// does not end.
#[inline(always)]
fn ascii_length(text: &[u8]) -> Option<usize> {
    let mut length = 0;
    let mut rest = text;
    while let Some((eight, after)) = rest.split_first_chunk() {
        let ends = ends_of_ascii(u64::from_le_bytes(*eight));
        if ends != 0 {
            return Some(length + (ends.trailing_zeros() / u8::BITS) as usize);
        }
        (length, rest) = (length + eight.len(), after);
    }
    rest.iter().position(|byte| ends_ascii(*byte)).map(|last| length + last)
}

/// Returns whether a byte is a quote, an escape, a control character, or above ASCII.
const fn ends_ascii(byte: u8) -> bool {
    matches!(byte, ..b' ' | b'"' | b'\\' | 0x80..)
}

/// Searches eight bytes at once for those that satisfy [`ends_ascii`]. The lowest set bit of the
/// result lies in the first such byte; higher bits have no meaning. 0: there is no such byte.
#[inline(always)]
const fn ends_of_ascii(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH_BITS: u64 = ONES * 0x80;
    // A subtraction sets the high bit of a byte that is too small. Its borrow may change the bytes
    // above.
    let control = word.wrapping_sub(ONES * 0x20);
    let quote = (word ^ (ONES * b'"' as u64)).wrapping_sub(ONES);
    let backslash = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    (word | control | quote | backslash) & HIGH_BITS
}

// Functions for rare cases. They take the bytes instead of the reader, so that the compiler need
// not reload the reader after each call.

#[inline(never)]
fn after_space(mut rest: &[u8]) -> &[u8] {
    while let [b' ' | b'\n' | b'\t' | b'\r', after @ ..] = rest {
        rest = after;
    }
    rest
}

/// Reads a string whose opening quote was already read, if it has escapes or bytes above ASCII.
/// Returns its bytes, whether some are escapes, and the bytes after the closing quote.
#[inline(never)]
fn unusual_string(rest: &[u8]) -> Option<(&[u8], bool, &[u8])> {
    let mut length = 0;
    let mut has_escapes = false;
    loop {
        length += rest[length..].iter().position(|byte| matches!(byte, ..b' ' | b'"' | b'\\'))?;
        match &rest[length..] {
            [b'"', after @ ..] => {
                let string = &rest[..length];
                std::str::from_utf8(string).ok()?;
                return Some((string, has_escapes, after));
            }
            [b'\\', b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|x| x.is_ascii_hexdigit()) => {
                length += 6;
            }
            [b'\\', b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => length += 2,
            // Another escape, or a control character.
            _ => return None,
        }
        has_escapes = true;
    }
}

/// Skips a value of any depth. Returns the bytes after it.
#[cold]
fn after_deep_value(rest: &[u8]) -> Option<&[u8]> {
    let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    let (value, after) = rest.split_at(values.byte_offset());
    std::str::from_utf8(value).ok()?;
    Some(after)
}

#[inline(always)]
fn begins_exponent(text: &[u8]) -> bool {
    text.first().is_some_and(|byte| byte | 0x20 == b'e')
}

/// Reads a number with an exponent or with more than [`DIGITS_MAX`] digits. Returns it, and the
/// bytes after it.
#[cold]
fn unusual_number(rest: &[u8]) -> Option<(Scalar<'static>, &[u8])> {
    let is_end = |byte: &u8| !byte.is_ascii_digit() && !b"+-.eE".contains(byte);
    let length = rest.iter().position(is_end).unwrap_or(rest.len());
    let (text, rest) = rest.split_at(length);
    serde_json::from_slice::<IgnoredAny>(text).ok()?;
    let text = std::str::from_utf8(text).ok()?;
    let integer = text.parse().ok().map(Scalar::Integer);
    let float = || text.parse().ok().map(|number: f64| Scalar::Number(number.into()));
    Some((integer.or_else(float)?, rest))
}

/// Decodes the escapes of a string that [`Reader::string`] returned. `None`: the string has half of
/// a surrogate pair, so it is not Unicode.
#[cold]
fn unescaped(string: &[u8]) -> Option<String> {
    serde_json::from_slice(&[b"\"", string, b"\""].concat()).ok()
}

/// Decodes the escapes of a key. A key that is not Unicode stays as it was sent, because no field
/// has such a name.
#[cold]
fn unescaped_key(key: &[u8]) -> Cow<'_, [u8]> {
    unescaped(key).map_or(Cow::Borrowed(key), |key| Cow::Owned(key.into_bytes()))
}

/// Returns the first 256 members of an object with their names; repeated names are not merged. If
/// the object is invalid, returns the members before the error.
pub(super) fn members(json: &[u8]) -> Vec<(String, Scalar<'_>)> {
    let mut found = Vec::new();
    Reader::new(json).object(|reader, key| {
        let value = reader.value()?;
        if found.len() < 256 {
            found.push((String::from_utf8_lossy(key).into_owned(), value));
        }
        Some(())
    });
    found
}

/// Converts JSON to text. The JSON is UTF-8, because the reader has already accepted it.
pub(super) fn as_text(json: &[u8]) -> &str {
    std::str::from_utf8(json).unwrap_or_default()
}

/// Returns the JSON of an array's elements, and their number. Elements beyond `count_max` are only
/// counted. `None`: the JSON is not an array.
pub(super) fn elements(json: &[u8], count_max: usize) -> Option<(Vec<&[u8]>, usize)> {
    let (mut elements, mut count) = (Vec::new(), 0);
    let mut reader = Reader::new(json);
    reader.array(|reader| {
        let element = reader.raw()?;
        if count < count_max {
            elements.push(element);
        }
        count += 1;
        Some(())
    })?;
    reader.end()?;
    Some((elements, count))
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;

    /// Reads a value as serde_json's tree. A value that no field can use becomes null.
    fn tree(reader: &mut Reader<'_>) -> Option<Value> {
        Some(match reader.peek() {
            b'{' => {
                let mut map = Map::new();
                reader.object(|reader, key| {
                    let key = std::str::from_utf8(key).ok()?.to_owned();
                    map.insert(key, tree(reader)?);
                    Some(())
                })?;
                map.into()
            }
            b'[' => {
                let mut values = Vec::new();
                reader.array(|reader| {
                    values.push(tree(reader)?);
                    Some(())
                })?;
                values.into()
            }
            _ => match reader.value()? {
                Scalar::Missing => Value::Null,
                Scalar::Integer(number) => number.into(),
                Scalar::Number(number) => number.as_f64().into(),
                Scalar::Text(text) => text.into(),
                Scalar::Other("true") => true.into(),
                Scalar::Other("false") => false.into(),
                Scalar::Other(_) => Value::Null,
            },
        })
    }

    fn is_same(read: &Value, expected: &Value) -> bool {
        match (read, expected) {
            (Value::Number(read), Value::Number(expected)) => {
                // serde_json rounds long numbers less exactly than the standard library.
                let [a, b] = [read, expected].map(|number| number.as_f64().unwrap());
                read == expected || (a - b).abs() <= a.abs() * 1e-15
            }
            (Value::Array(read), Value::Array(expected)) => {
                read.len() == expected.len()
                    && read.iter().zip(expected).all(|(a, b)| is_same(a, b))
            }
            (Value::Object(read), Value::Object(expected)) => {
                read.len() == expected.len()
                    && read.iter().all(|(key, a)| expected.get(key).is_some_and(|b| is_same(a, b)))
            }
            _ => read == expected,
        }
    }

    /// Asserts that the reader and serde_json both refuse a text, or both read the same value.
    #[track_caller]
    fn check(text: &[u8]) {
        let shown = String::from_utf8_lossy(text);
        let mut reader = Reader::new(text);
        let read = tree(&mut reader).filter(|_| reader.end().is_some());
        let is_valid = std::str::from_utf8(text)
            .is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
        assert_eq!(read.is_some(), is_valid, "{shown}");
        if let (Some(read), Ok(expected)) = (read, serde_json::from_slice(text)) {
            assert!(is_same(&read, &expected), "{shown}: {read} is not {expected}");
        }
        let mut reader = Reader::new(text);
        let raw = reader.raw().filter(|_| reader.end().is_some());
        let trimmed = raw.map(|raw| as_text(raw).trim());
        assert_eq!(trimmed, raw.is_some().then(|| shown.trim()), "{shown}");
        assert_eq!(raw.is_some(), is_valid, "{shown}");
    }

    /// Calls `call` with `text` followed by each sequence of up to `count` pieces.
    fn each(pieces: &[&[u8]], count: usize, text: &mut Vec<u8>, call: &mut impl FnMut(&[u8])) {
        call(text);
        for piece in pieces.iter().filter(|_| count > 0) {
            let length = text.len();
            text.extend_from_slice(piece);
            each(pieces, count - 1, text, call);
            text.truncate(length);
        }
    }

    #[test]
    fn run_of_ascii_ends_at_the_first_other_byte_at_any_offset() {
        for (length, at) in (0..20).flat_map(|length| (0..length).map(move |at| (length, at))) {
            for (byte, later) in (0..=u8::MAX).flat_map(|byte| [0, b'"', 0xff].map(|l| (byte, l))) {
                let mut text = vec![b'!'; length];
                text[length - 1] = later;
                text[at] = byte;
                let expected = text.iter().position(|byte| ends_ascii(*byte));
                assert_eq!(ascii_length(&text), expected, "{}", text.escape_ascii());
            }
        }
    }

    #[test]
    fn reader_and_serde_json_agree_on_each_text_of_few_pieces() {
        let pieces: [&[u8]; 17] = [
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b" ",
            b"\"a\"",
            b"1",
            b"null",
            b"true",
            b"false",
            b"\"",
            b"x",
            b"-",
            b"\"b\":",
            b"\"\\u0061\"",
        ];
        each(&pieces, 4, &mut Vec::new(), &mut check);
        each(&pieces, 3, &mut b"{\"b\":[1,".to_vec(), &mut check);
    }

    #[test]
    fn reader_and_serde_json_agree_on_each_number_of_few_pieces() {
        let pieces: [&[u8]; 10] =
            [b"0", b"7", b"-", b".", b"e", b"E", b"+", b"12345678", b"99", b"3000000000"];
        each(&pieces, 4, &mut Vec::new(), &mut check);
        each(&pieces, 3, &mut b"[-1.5,0.".to_vec(), &mut |text| check(&[text, b"]"].concat()));
    }

    #[test]
    fn reader_and_serde_json_agree_on_each_string_of_few_pieces() {
        let pieces: [&[u8]; 14] = [
            b"\\",
            b"u",
            b"\"",
            b"n",
            b"00e9",
            b"d83d",
            b"\\ude00",
            b"\xC3\xA9",
            b"\xC3",
            b"\xFF",
            b"\t",
            b"/",
            b"\x7F",
            b"abcdefgh",
        ];
        each(&pieces, 4, &mut b"\"".to_vec(), &mut |text| {
            check(&[text, b"\""].concat());
            check(&[b"{", text, b"\":1}"].concat());
        });
    }

    #[test]
    fn half_a_surrogate_pair_is_a_value_that_no_field_can_use() {
        for text in [r#""\ud800""#, r#""a\udc00b""#] {
            let mut reader = Reader::new(text.as_bytes());
            assert!(matches!(reader.value(), Some(Scalar::Other(_))), "{text}");
            assert_eq!(reader.end(), Some(()), "{text}");
        }
        let mut reader = Reader::new(br#"{"\ud800":1}"#);
        assert_eq!(tree(&mut reader), Some(serde_json::json!({ "\\ud800": 1 })));
    }

    #[test]
    fn known_key_matches_only_the_whole_key() {
        let is_known = |name: &str, text: &str| {
            let key = KnownKey::new(name);
            let known = |word, after: &[u8]| key.begins(word, after).then_some(((), key.bytes));
            Reader::new(text.as_bytes()).known_key(known).is_some()
        };
        for name in ["", "a", "lat", "speed", "seconds", "latitude", "a longer name", "é"] {
            assert!(is_known(name, &format!(r#" "{name}":1234567"#)), "{name}");
            for other in [format!(r#""{name}x":12345"#), format!(r#""x{name}":12345"#)] {
                assert!(!is_known(name, &other), "{name} {other}");
            }
            assert!(!is_known(name, &format!(r#""{name}" :1234567"#)), "{name}");
        }
        assert!(!is_known("a\"b", r#""a"b":1234567"#) && !is_known("a\\", r#""a\":1234567"#));
    }

    #[test]
    fn values_of_any_depth_are_skipped() {
        for depth in [16, 126, 127, 128, 129, 100_000] {
            let lists = ["[".repeat(depth), "]".repeat(depth)].concat();
            let objects = [r#"{"a":"#.repeat(depth), "1".into(), "}".repeat(depth)].concat();
            for text in [lists, objects] {
                let is_read = |text: &str| {
                    let mut reader = Reader::new(text.as_bytes());
                    reader.value().is_some() && reader.end().is_some()
                };
                assert!(is_read(&text) && is_read(&format!("[1,{text},2]")), "{depth}");
                assert!(!is_read(&text[1..]) && !is_read(&text[..text.len() - 1]), "{depth}");
            }
        }
        let invalid = [&[b'['; 200][..], b"\"\xff\"", &[b']'; 200]].concat();
        assert!(Reader::new(&invalid).value().is_none());
        let wide = format!("[{}]", ["[]"; 1_000].join(","));
        assert!(Reader::new(wide.as_bytes()).value().is_some());
    }
}
