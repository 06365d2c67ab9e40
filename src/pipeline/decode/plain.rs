//! Reads plain JSON in one pass over its bytes: less than a third of what serde_json takes, and most messages are plain.
//!
//! Guarantee: a method returns what serde_json would, or `None`: the text is not plain. It may be valid all the same, so the caller
//! reads it again with serde_json, which also has the words for what is wrong with it. Not plain: what is not UTF-8, strings with escapes,
//! numbers with an exponent or more than 18 digits, values nested deeper than 16.
//!
//! `decode_agrees.rs` and the fuzz target `decode` compare the two on every message.

use super::json::Scalar;
use crate::pipeline::number::{DIGITS_MAX, Number};

const DEPTH_MAX: u8 = 16;
/// The quote, and what a string of plain ASCII does not contain.
static ENDS_ASCII: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        table[byte] = byte < 0x20 || byte >= 0x80 || byte == b'"' as usize || byte == b'\\' as usize;
        byte += 1;
    }
    table
};
/// What [`Plain::peek`] returns at the end: no plain JSON contains it.
const END: u8 = 0;

pub(super) struct Plain<'a> {
    /// What was not read yet.
    rest: &'a [u8],
    depth: u8,
}

impl<'a> Plain<'a> {
    pub(super) fn new(json: &'a [u8]) -> Self {
        Self { rest: json, depth: 0 }
    }

    /// Whether nothing follows.
    pub(super) fn end(&mut self) -> Option<()> {
        self.peek();
        self.rest.is_empty().then_some(())
    }

    /// The first byte of the next token.
    #[inline]
    pub(super) fn peek(&mut self) -> u8 {
        match self.rest {
            [first @ b'!'..=u8::MAX, ..] => *first,
            _ => self.peek_behind_space(), // or the end
        }
    }

    #[inline(never)]
    fn peek_behind_space(&mut self) -> u8 {
        while let [b' ' | b'\n' | b'\t' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied().unwrap_or(END)
    }

    /// Everything from the next token on.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        self.peek();
        self.rest
    }

    /// What was read of a former [`rest`](Self::rest).
    pub(super) fn read_of(&self, rest: &'a [u8]) -> &'a [u8] {
        &rest[..rest.len() - self.rest.len()]
    }

    /// Calls `member` with each key; it reads the value.
    pub(super) fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.members(|plain| {
            let key = plain.key()?;
            member(plain, key)
        })
    }

    /// Calls `member` where each begins; it reads the key and the value.
    pub(super) fn members(&mut self, member: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.list([b'{', b'}'], member)
    }

    pub(super) fn key(&mut self) -> Option<&'a [u8]> {
        let key = self.string()?;
        self.token(b':')?;
        Some(key)
    }

    /// Reads a key at once that `known` recognises by the eight bytes behind its first quote, the first byte lowest. `known` returns what
    /// the key is, and its length with the last quote. `None`: the key is still to be read.
    #[inline(always)]
    pub(super) fn known_key<T>(&mut self, known: impl FnOnce(u64) -> Option<(T, usize)>) -> Option<T> {
        if !self.rest.starts_with(b"\"") {
            self.peek_behind_space();
        }
        let [b'"', rest @ ..] = self.rest else { return None };
        let (key, bytes) = known(u64::from_le_bytes(*rest.first_chunk()?))?;
        let rest = rest.get(bytes..)?;
        if let [b':', rest @ ..] = rest {
            self.rest = rest;
            return Some(key);
        }
        None
    }

    /// Calls `element` where each begins; it reads it.
    pub(super) fn array(&mut self, element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.list([b'[', b']'], element)
    }

    /// A value of any kind.
    #[inline(always)]
    pub(super) fn value(&mut self) -> Option<Scalar<'a>> {
        match self.rest {
            [b'-' | b'0'..=b'9', ..] => self.number(),
            _ => self.other(),
        }
    }

    #[inline(never)]
    fn other(&mut self) -> Option<Scalar<'a>> {
        match self.peek() {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => std::str::from_utf8(self.string()?).ok().map(|text| Scalar::Text(text.into())),
            b'{' => self.object(|plain, _| plain.value().map(drop)).map(|()| Scalar::Other("an object")),
            b'[' => self.array(|plain| plain.value().map(drop)).map(|()| Scalar::Other("an array")),
            b'n' => self.word(b"null").map(|()| Scalar::Missing),
            b't' => self.word(b"true").map(|()| Scalar::Other("a boolean")),
            b'f' => self.word(b"false").map(|()| Scalar::Other("a boolean")),
            _ => None,
        }
    }

    #[inline(always)]
    fn list(&mut self, [begin, end]: [u8; 2], mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.token(begin)?;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        if self.peek() != end {
            loop {
                item(self)?;
                if self.token(b',').is_none() {
                    break;
                }
            }
        }
        self.depth -= 1;
        self.token(end)
    }

    /// Its bytes; they are UTF-8.
    #[inline(always)]
    fn string(&mut self) -> Option<&'a [u8]> {
        self.token(b'"')?;
        let length = self.rest.iter().position(|byte| ENDS_ASCII[usize::from(*byte)])?;
        if self.rest[length] != b'"' {
            return self.string_beyond_ascii();
        }
        let string = &self.rest[..length];
        self.rest = &self.rest[length + 1..];
        Some(string)
    }

    #[inline(never)]
    fn string_beyond_ascii(&mut self) -> Option<&'a [u8]> {
        let length = self.rest.iter().position(|byte| ENDS_ASCII[usize::from(*byte)] && *byte < 0x80)?;
        let (string, rest) = self.rest.split_at(length);
        self.rest = rest.strip_prefix(b"\"")?;
        std::str::from_utf8(string).ok().map(str::as_bytes)
    }

    #[inline(always)]
    fn number(&mut self) -> Option<Scalar<'a>> {
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
            self.rest = after;
            return match (is_negative, whole) {
                _ if whole_digits > DIGITS_MAX => None,
                (false, _) => Some(Scalar::Integer(whole)),
                (true, 0) => Some(Scalar::Number((-0.0).into())),
                (true, _) => Some(Scalar::Integer(-whole)),
            };
        };
        let (digits, decimals) = digits(whole, fraction);
        self.rest = fraction.get(decimals..)?;
        if decimals == 0 || whole_digits + decimals > DIGITS_MAX {
            return None;
        }
        Some(Scalar::Number(match (is_negative, digits) {
            (false, _) => Number::Decimal { digits, decimals },
            (true, 0) => (-0.0).into(),
            (true, _) => Number::Decimal { digits: -digits, decimals },
        }))
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    #[inline(always)]
    fn token(&mut self, token: u8) -> Option<()> {
        match self.rest {
            [first, rest @ ..] if *first == token => self.rest = rest,
            _ => self.token_behind_space(token)?,
        }
        Some(())
    }

    #[inline(never)]
    fn token_behind_space(&mut self, token: u8) -> Option<()> {
        self.peek_behind_space();
        self.word(&[token])
    }
}

/// `number`, continued by the digits that `text` begins with, and how many those are. Of too many digits the value is meaningless.
#[inline(always)]
fn digits(mut number: i64, text: &[u8]) -> (i64, usize) {
    let mut count = 0;
    // The first eight without a look at the text's end.
    if let Some(first) = text.first_chunk::<8>() {
        while count < first.len() {
            let digit = first[count] ^ b'0'; // more than 9: none
            if digit > 9 {
                return (number, count);
            }
            number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
            count += 1;
        }
    }
    while let Some(digit) = text.get(count).map(|byte| byte ^ b'0').filter(|digit| *digit <= 9) {
        number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
        count += 1;
    }
    (number, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_common_is_plain_and_what_is_not_is_left_to_serde_json() {
        let is_plain = |text: &str| {
            let mut plain = Plain::new(text.as_bytes());
            plain.value().is_some() && plain.end().is_some()
        };
        let common = [
            r#" {"lat": 25.7617, "lng":-80.1918,"ts":1767225599123,"x":{"é":[1,"ü",null,true]}} "#,
            "[ ]",
            "{}",
            "-0",
        ];
        for text in common {
            assert!(is_plain(text), "{text:?}");
        }
        let deep = ["[".repeat(17), "]".repeat(17)].concat();
        let others = [
            "1e5",
            "01",
            "1.",
            ".5",
            "1234567890123456789",
            r#""\n""#,
            "\"\t\"",
            "[1,]",
            "{} x",
            "nul",
            "",
            &deep,
        ];
        for text in others {
            assert!(!is_plain(text), "{text:?}");
        }
    }
}
