//! Reads plain JSON in one pass over its bytes, in less than a third of serde_json's time. Most
//! messages are plain.
//!
//! Guarantee: a method returns what serde_json would, or `None` if the text is not plain. Such text
//! may still be valid, so the caller reads it again with serde_json, which also produces the error
//! message. Not plain are invalid UTF-8, strings with escapes, numbers with an exponent or more
//! than 18 digits, and values nested deeper than 16.
//!
//! `decode_agrees.rs` and the fuzz target `decode` compare the two on every message.

use super::json::{FALSE, Scalar, TRUE};
use crate::number::{DIGITS_MAX, Number};

const DEPTH_MAX: u8 = 16;
/// Bytes that end a run of plain ASCII in a string: the quote, escapes, control characters, and
/// bytes above ASCII.
static ENDS_ASCII: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        table[byte] =
            byte < 0x20 || byte >= 0x80 || byte == b'"' as usize || byte == b'\\' as usize;
        byte += 1;
    }
    table
};
/// The byte that [`Plain::peek`] returns at the end. No plain JSON contains it.
const END: u8 = 0;

/// A cursor over plain JSON.
#[derive(Clone, Copy)]
pub(super) struct Plain<'a> {
    /// The unread bytes.
    rest: &'a [u8],
    depth: u8,
}

impl<'a> Plain<'a> {
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
        mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>,
    ) -> Option<()> {
        self.list([b'{', b'}'], |plain| {
            let key = plain.key()?;
            member(plain, key)
        })
    }

    /// Calls `member` at the start of each member; `member` must read the key and the value.
    pub(super) fn members(&mut self, member: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.list([b'{', b'}'], member)
    }

    pub(super) fn key(&mut self) -> Option<&'a [u8]> {
        let key = self.string()?;
        self.token(b':')?;
        Some(key)
    }

    /// Reads a key in one step if `known` recognises it. `known` receives the eight bytes from the
    /// opening quote on as a little-endian integer, and the bytes after them. It returns the
    /// meaning of the key, and the key's length with quotes and colon. `None`: no byte of the key
    /// was read.
    #[inline(always)]
    pub(super) fn known_key<T>(
        &mut self,
        known: impl FnOnce(u64, &[u8]) -> Option<(T, usize)>,
    ) -> Option<T> {
        if !self.rest.starts_with(b"\"") {
            self.rest = after_space(self.rest);
        }
        let (word, after) = self.rest.split_first_chunk()?;
        let (key, bytes) = known(u64::from_le_bytes(*word), after)?;
        self.rest = self.rest.get(bytes..)?;
        Some(key)
    }

    /// Calls `element` at the start of each element; `element` must read it.
    pub(super) fn array(&mut self, element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.list([b'[', b']'], element)
    }

    /// Reads a value of any kind.
    #[inline(always)]
    pub(super) fn value(&mut self) -> Option<Scalar<'a>> {
        match self.rest {
            [b'-' | b'0'..=b'9', ..] => self.number(),
            _ => {
                let (value, after) = self.non_number()?;
                *self = after;
                Some(value)
            }
        }
    }

    /// Reads a value that is rarely a number, from a copy of the cursor. Returns the value, and the
    /// copy after it.
    #[inline(never)]
    fn non_number(mut self) -> Option<(Scalar<'a>, Self)> {
        let value = match self.peek() {
            b'-' | b'0'..=b'9' => self.number()?,
            b'"' => Scalar::Text(std::str::from_utf8(self.string()?).ok()?.into()),
            b'{' => self
                .object(|plain, _| plain.value().map(drop))
                .map(|()| Scalar::Other("an object"))?,
            b'[' => {
                self.array(|plain| plain.value().map(drop)).map(|()| Scalar::Other("an array"))?
            }
            b'n' => self.word(b"null").map(|()| Scalar::Missing)?,
            b't' => self.word(b"true").map(|()| TRUE)?,
            b'f' => self.word(b"false").map(|()| FALSE)?,
            _ => return None,
        };
        Some((value, self))
    }

    #[inline(always)]
    fn list(
        &mut self,
        [begin, end]: [u8; 2],
        mut item: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        // The compiler need not reload a local copy after each item.
        let mut plain = *self;
        plain.token(begin)?;
        plain.depth += 1;
        if plain.depth > DEPTH_MAX {
            return None;
        }
        if plain.peek() != end {
            loop {
                item(&mut plain)?;
                if plain.peek() != b',' {
                    break;
                }
                plain.rest = &plain.rest[1..];
            }
        }
        plain.depth -= 1;
        plain.token(end)?;
        *self = plain;
        Some(())
    }

    /// Returns the bytes of a string; they are UTF-8.
    #[inline(always)]
    fn string(&mut self) -> Option<&'a [u8]> {
        self.token(b'"')?;
        let length = self.rest.iter().position(|byte| ENDS_ASCII[usize::from(*byte)])?;
        if self.rest[length] != b'"' {
            let (string, rest) = string_beyond_ascii(self.rest)?;
            self.rest = rest;
            return Some(string);
        }
        let string = &self.rest[..length];
        self.rest = &self.rest[length + 1..];
        Some(string)
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
            _ => self.rest = after_space(self.rest).strip_prefix(&[token])?,
        }
        Some(())
    }
}

// Rare cases are function calls. They take the bytes, not the reader, so that the compiler need not
// reload the reader after each call.

#[inline(never)]
fn after_space(mut rest: &[u8]) -> &[u8] {
    while let [b' ' | b'\n' | b'\t' | b'\r', after @ ..] = rest {
        rest = after;
    }
    rest
}

/// Reads a string whose opening quote was already read. Returns the string, and the bytes after it.
#[inline(never)]
fn string_beyond_ascii(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = rest.iter().position(|byte| ENDS_ASCII[usize::from(*byte)] && *byte < 0x80)?;
    let (string, rest) = rest.split_at(length);
    std::str::from_utf8(string).ok()?;
    Some((string, rest.strip_prefix(b"\"")?))
}

/// Appends the digits at the start of `text` to `number`. Returns the new number and how many
/// digits were read. The number is meaningless if there are more than [`DIGITS_MAX`] digits.
#[inline(always)]
fn digits(mut number: i64, text: &[u8]) -> (i64, usize) {
    let mut count = 0;
    // Read the first eight digits without checking for the end of the text each time.
    if let Some(first) = text.first_chunk::<8>() {
        while count < first.len() {
            let digit = first[count] ^ b'0'; // above 9 if it is not a digit
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
    fn plain_reader_accepts_common_json_and_rejects_the_rest() {
        let is_plain = |text: &str| {
            let mut plain = Plain::new(text.as_bytes());
            plain.value().is_some() && plain.end().is_some()
        };
        let common = [
            r#" {"lat": 25.7617, "lng":-80.1918,"ts":1767225599123,"x":{"é":[1,"üÀ",null,true,false]}} "#,
            "[ ]",
            "{}",
            "-0",
            &["[".repeat(16), "]".repeat(16)].concat(),
            &format!("[{}]", ["[]"; 20].join(",")),
        ];
        for text in common {
            assert!(is_plain(text), "{text:?}");
        }
        let deep = ["[".repeat(17), "]".repeat(17)].concat();
        let rejected = [
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
        for text in rejected {
            assert!(!is_plain(text), "{text:?}");
        }
    }
}
