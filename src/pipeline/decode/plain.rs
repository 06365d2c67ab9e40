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
const POWERS_OF_TEN: [f64; DIGITS_MAX + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];
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
    pub(super) fn peek(&mut self) -> u8 {
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
            member(plain, key.as_bytes())
        })
    }

    /// Calls `element` where each begins; it reads it.
    pub(super) fn array(&mut self, element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.list([b'[', b']'], element)
    }

    /// A value of any kind.
    pub(super) fn value(&mut self) -> Option<Scalar<'a>> {
        match self.peek() {
            b'"' => self.string().map(|text| Scalar::Text(text.into())),
            b'-' | b'0'..=b'9' => self.number(),
            b'{' => self.object(|plain, _| plain.value().map(drop)).map(|()| Scalar::Other("an object")),
            b'[' => self.array(|plain| plain.value().map(drop)).map(|()| Scalar::Other("an array")),
            b'n' => self.word("null").map(|()| Scalar::Missing),
            b't' => self.word("true").map(|()| Scalar::Other("a boolean")),
            b'f' => self.word("false").map(|()| Scalar::Other("a boolean")),
            _ => None,
        }
    }

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

    fn string(&mut self) -> Option<&'a str> {
        self.token(b'"')?;
        let begin = self.at;
        while !matches!(self.byte(), b'"' | b'\\' | ..b' ') {
            self.at += 1;
        }
        let text = self.text.get(begin..self.at).filter(|_| self.byte() == b'"')?;
        self.at += 1;
        Some(text)
    }

    #[expect(clippy::cast_precision_loss, reason = "as serde_json: its last digits may be lost")]
    fn number(&mut self) -> Option<Scalar<'a>> {
        let is_negative = self.byte() == b'-';
        self.at += usize::from(is_negative);
        let starts_with_zero = self.byte() == b'0';
        let mut digits = 0;
        let whole = self.digits(&mut digits);
        let mut decimals = None;
        if self.byte() == b'.' {
            self.at += 1;
            decimals = Some(self.digits(&mut digits)).filter(|count| *count > 0);
            decimals?;
        }
        let is_plain = whole > 0
            && (whole == 1 || !starts_with_zero)
            && whole + decimals.unwrap_or(0) <= DIGITS_MAX
            && !matches!(self.byte(), b'e' | b'E');
        if !is_plain {
            return None;
        }
        Some(match decimals {
            None if digits == 0 && is_negative => Scalar::Number(-0.0),
            None => Scalar::Integer(if is_negative { -digits } else { digits }),
            Some(decimals) => {
                let number = digits as f64 / POWERS_OF_TEN[decimals];
                Scalar::Number(if is_negative { -number } else { number })
            }
        })
    }

    /// Appends the digits here to `number`; returns how many there are.
    fn digits(&mut self, number: &mut i64) -> usize {
        let begin = self.at;
        while let digit @ 0..=9 = self.byte().wrapping_sub(b'0') {
            *number = number.wrapping_mul(10).wrapping_add(i64::from(digit));
            self.at += 1;
        }
        self.at - begin
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let is_here = self.text.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        is_here.then_some(())
    }

    fn token(&mut self, token: u8) -> Option<()> {
        let is_here = self.peek() == token;
        self.at += 1;
        is_here.then_some(())
    }

    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(END)
    }
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
