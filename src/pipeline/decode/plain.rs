//! Reads plain JSON in one pass over its bytes: a third of what serde_json takes, and most messages are plain.
//!
//! Guarantee: a method returns what serde_json would, or `None`: the text is not plain. It may be valid all the same, so the caller
//! reads it again with serde_json, which also has the words for what is wrong with it. Not plain: strings with escapes, numbers with
//! an exponent or more than 18 digits, values nested deeper than 16.
//!
//! `decode_agrees.rs` and the fuzz target `decode` compare the two on every message.

use super::json::Scalar;

/// So many digits fit an `i64`.
const DIGITS_MAX: usize = 18;
const DEPTH_MAX: u8 = 16;
/// As in serde_json: a decimal number is its digits, divided once.
static POWERS_OF_TEN: [f64; DIGITS_MAX + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];
/// The quote, and what a plain string does not contain.
static ENDS_STRING: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        table[byte] = byte < 0x20 || byte == b'"' as usize || byte == b'\\' as usize;
        byte += 1;
    }
    table
};
/// What [`Plain::peek`] returns at the end: no plain JSON contains it.
const END: u8 = 0;

pub(super) struct Plain<'a> {
    text: &'a str,
    at: usize,
    depth: u8,
}

impl<'a> Plain<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// Whether nothing follows.
    pub(super) fn end(&mut self) -> Option<()> {
        self.peek();
        (self.at == self.text.len()).then_some(())
    }

    /// The first byte of the next token.
    #[inline]
    pub(super) fn peek(&mut self) -> u8 {
        match self.byte() {
            ..=b' ' => self.peek_behind_space(), // or the end
            byte => byte,
        }
    }

    #[inline(never)]
    fn peek_behind_space(&mut self) -> u8 {
        while matches!(self.byte(), b' ' | b'\n' | b'\t' | b'\r') {
            self.at += 1;
        }
        self.byte()
    }

    /// Where the next token begins.
    pub(super) fn position(&mut self) -> usize {
        self.peek();
        self.at
    }

    pub(super) fn since(&self, position: usize) -> Option<&'a str> {
        self.text.get(position..self.at)
    }

    /// Calls `member` with each key; it reads the value.
    pub(super) fn object(&mut self, mut member: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
        self.list([b'{', b'}'], |plain| {
            let key = plain.string()?;
            plain.token(b':')?;
            member(plain, key)
        })
    }

    /// Calls `element` where each begins; it reads it.
    pub(super) fn array(&mut self, element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.list([b'[', b']'], element)
    }

    /// A value of any kind.
    #[inline(always)]
    pub(super) fn value(&mut self) -> Option<Scalar<'a>> {
        match self.peek() {
            b'"' => self.text(),
            b'-' | b'0'..=b'9' => self.number(),
            first => self.other(first),
        }
    }

    fn text(&mut self) -> Option<Scalar<'a>> {
        self.string().and_then(|bytes| std::str::from_utf8(bytes).ok()).map(|text| Scalar::Text(text.into()))
    }

    #[inline(never)]
    fn other(&mut self, first: u8) -> Option<Scalar<'a>> {
        match first {
            b'{' => self.object(|plain, _| plain.value().map(drop)).map(|()| Scalar::Other("an object")),
            b'[' => self.array(|plain| plain.value().map(drop)).map(|()| Scalar::Other("an array")),
            b'n' => self.word("null").map(|()| Scalar::Missing),
            b't' => self.word("true").map(|()| Scalar::Other("a boolean")),
            b'f' => self.word("false").map(|()| Scalar::Other("a boolean")),
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
                if self.peek() != b',' {
                    break;
                }
                self.at += 1;
            }
        }
        self.depth -= 1;
        self.token(end)
    }

    /// Its bytes; they are UTF-8.
    #[inline(always)]
    fn string(&mut self) -> Option<&'a [u8]> {
        self.token(b'"')?;
        let rest = self.rest();
        let length = rest.iter().position(|byte| ENDS_STRING[usize::from(*byte)])?;
        self.at += length + 1;
        (rest[length] == b'"').then_some(&rest[..length])
    }

    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "as serde_json: its last digits may be lost")]
    fn number(&mut self) -> Option<Scalar<'a>> {
        let rest = self.rest();
        let (is_negative, unsigned) = match rest {
            [b'-', unsigned @ ..] => (true, unsigned),
            unsigned => (false, unsigned),
        };
        let (whole, after_whole) = digits(0, unsigned);
        let whole_digits = unsigned.len() - after_whole.len();
        if whole_digits == 0 || (whole_digits > 1 && unsigned[0] == b'0') {
            return None;
        }
        let (number, decimals, after) = match after_whole {
            [b'.', fraction @ ..] => {
                let (number, after) = digits(whole, fraction);
                (number, fraction.len() - after.len(), after)
            }
            after => (whole, 0, after),
        };
        let is_integer = after.len() == after_whole.len();
        if whole_digits + decimals > DIGITS_MAX || (decimals == 0 && !is_integer) {
            return None;
        }
        self.at += rest.len() - after.len();
        if is_integer && !(is_negative && number == 0) {
            return Some(Scalar::Integer(if is_negative { -number } else { number }));
        }
        let size = number as f64 / POWERS_OF_TEN[decimals];
        Some(Scalar::Number(if is_negative { -size } else { size }))
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let is_here = self.rest().starts_with(word.as_bytes());
        self.at += word.len();
        is_here.then_some(())
    }

    fn token(&mut self, token: u8) -> Option<()> {
        let is_here = self.peek() == token;
        self.at += 1;
        is_here.then_some(())
    }

    #[inline]
    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(END)
    }

    #[inline]
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }
}

/// `number`, continued by the digits that `text` begins with, and what follows them. Of too many digits the value is meaningless.
#[inline]
fn digits(mut number: i64, mut text: &[u8]) -> (i64, &[u8]) {
    while let [byte @ b'0'..=b'9', rest @ ..] = text {
        number = number.wrapping_mul(10).wrapping_add(i64::from(byte - b'0'));
        text = rest;
    }
    (number, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_common_is_plain_and_what_is_not_is_left_to_serde_json() {
        let is_plain = |text| {
            let mut plain = Plain::new(text);
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
