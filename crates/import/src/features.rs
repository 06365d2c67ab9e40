//! Reads the features of a GeoJSON file one by one, in bounded memory.
//!
//! The scanner only finds the beginning and end of each feature; the decoder decides whether it is
//! valid. So an invalid feature does not affect the others. `NaN` and `Infinity`, which Python
//! writes, become `null`.

use std::io::{self, Read};

use anyhow::{Result, anyhow, bail};
use serde::Deserialize;

use super::read::Emit;

/// Maximum bytes of a feature that are kept. The decoder rejects a longer feature.
const FEATURE_BYTES_MAX: usize = 1 << 20;
/// Maximum nesting depth of a value.
const DEPTH_MAX: usize = 1_000;

/// A scanner over the tokens of JSON.
struct Scanner<R> {
    input: R,
    /// The kind of file, for errors.
    file_kind: &'static str,
    buffer: Vec<u8>,
    /// The unread bytes are `buffer[at..end]`.
    at: usize,
    end: usize,
    line: u64,
}

/// Checks the members of a FeatureCollection other than `features`. Receives a JSON object of these
/// members, and their place in the file, for errors.
pub(super) type CheckFrame<'c> = &'c dyn Fn(&[u8], &str) -> Result<()>;

/// Emits every feature of a FeatureCollection, an array of features, or a single Feature. A file
/// may have several of these values, one after the other. `check`: called with the members before
/// the features, and with each member after them.
pub(super) fn features(input: impl Read, check: CheckFrame<'_>, emit: Emit<'_>) -> Result<()> {
    let mut scanner = Scanner::new(input, "a FeatureCollection");
    let mut is_first = true;
    loop {
        // In a GeoJSON text sequence (RFC 8142), each text begins with a record separator.
        match scanner.token()? {
            Some(b'{') => scanner.object(check, emit)?,
            Some(b'[') => scanner.elements(emit)?,
            Some(0x1e) => {
                scanner.skip();
                continue;
            }
            Some(byte) => {
                let byte = char::from(byte);
                bail!("not a FeatureCollection: line {} begins with {byte:?}", scanner.line)
            }
            None if is_first => bail!("not a FeatureCollection: the file is empty"),
            None => return Ok(()),
        }
        is_first = false;
    }
}

/// Emits the elements of a top-level array. Of a top-level object, emits the elements of those
/// arrays whose names are in `names`. A file may have several arrays and objects, one after the
/// other, for example if the monthly files of Takeout were joined.
pub(super) fn elements_of(input: impl Read, names: &[&str], emit: Emit<'_>) -> Result<()> {
    let mut scanner = Scanner::new(input, "an export of Google's Timeline");
    scanner.some_token()?;
    while let Some(first) = scanner.token()? {
        if first == b'[' {
            scanner.elements(emit)?;
        } else {
            scanner.elements_of_members(names, emit)?;
        }
    }
    Ok(())
}

/// A copy of a JSON value, up to [`FEATURE_BYTES_MAX`].
#[derive(Default)]
struct CopiedValue {
    text: Vec<u8>,
    /// Length of the value, even if only a part of it was copied.
    length: usize,
}

impl CopiedValue {
    fn push(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        if self.text.len() + bytes.len() <= FEATURE_BYTES_MAX {
            self.text.extend_from_slice(bytes);
        }
    }

    fn push_copy(&mut self, value: &Self) {
        self.push(&value.text);
        self.length += value.length - value.text.len();
    }
}

/// Appended to the error for a `crs` or a unit that follows the features.
const FEATURES_MAY_BE_STORED: &str =
    ". The features before it may be stored already: check the driver's fixes";

#[derive(Deserialize)]
struct Typed {
    r#type: String,
}

/// Codes of reference systems whose coordinates are degrees, within metres of those of WGS 84.
const DEGREES: [&str; 7] = ["CRS84", "CRS83", "4326", "4979", "4258", "4269", "4937"];

/// Checks a `crs`, which GeoJSON had before RFC 7946.
///
/// # Errors
/// The coordinates are not degrees of WGS 84.
fn refuse_other_crs(crs: &[u8]) -> Result<()> {
    let Ok(crs) = serde_json::from_slice::<serde_json::Value>(crs) else { return Ok(()) };
    // The members that state the system in a `crs` of type `name`, `link` and `EPSG`.
    let in_properties = ["/properties/name", "/properties/href", "/properties/code"]
        .iter()
        .find_map(|at| crs.pointer(at).map(|name| name.to_string().replace('"', "")));
    // Some programs write `"crs":"EPSG:3857"`.
    let as_string = || crs.as_str().filter(|name| name.to_uppercase().contains("EPSG"));
    let name = in_properties.or_else(|| as_string().map(str::to_owned));
    let Some(name) = name.filter(|name| name != "null") else { return Ok(()) };
    let is_code = |word: &str| DEGREES.contains(&word.trim_start_matches("EPSG"));
    // Split at parentheses, too, as in `WGS 84 (EPSG:4326)`.
    if !name.split([':', '/', '=', ' ', '(', ')']).any(is_code) {
        bail!(
            "its coordinates are {name:.60}, not degrees of WGS 84; convert it: ogr2ogr -t_srs \
             EPSG:4326 -f GeoJSON new.geojson old.geojson"
        );
    }
    Ok(())
}

impl<R: Read> Scanner<R> {
    fn new(input: R, file_kind: &'static str) -> Self {
        Self { input, file_kind, buffer: vec![0; 64 * 1024], at: 0, end: 0, line: 1 }
    }

    /// Returns the next byte without consuming it; `None` at the end of the file.
    #[inline]
    fn peek(&mut self) -> io::Result<Option<u8>> {
        if self.at == self.end {
            self.end = loop {
                match self.input.read(&mut self.buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    read => break read?,
                }
            };
            self.at = 0;
            if self.end == 0 {
                return Ok(None);
            }
        }
        Ok(Some(self.buffer[self.at]))
    }

    /// Consumes the byte that [`peek`](Self::peek) returned.
    fn skip(&mut self) {
        self.line += u64::from(self.buffer[self.at] == b'\n');
        self.at += 1;
    }

    /// Returns the next byte that is not whitespace, NUL or Ctrl-Z, without consuming it.
    fn token(&mut self) -> io::Result<Option<u8>> {
        while let Some(byte) = self.peek()? {
            // Files written from buffers of fixed size may have NUL bytes after the text. Files
            // from DOS may end with Ctrl-Z.
            if !byte.is_ascii_whitespace() && !matches!(byte, 0 | 0x1a) {
                return Ok(Some(byte));
            }
            self.skip();
        }
        Ok(None)
    }

    /// Like [`token`](Self::token); fails at the end of the file.
    fn some_token(&mut self) -> Result<u8> {
        match self.token()? {
            Some(byte) => Ok(byte),
            None => bail!("not {}: EOF in line {}: the file is cut off", self.file_kind, self.line),
        }
    }

    /// Consumes the next token; fails if it is not `expected`.
    fn expect(&mut self, expected: u8) -> Result<()> {
        let found = self.some_token()?;
        if found != expected {
            let (expected, found) = (char::from(expected), char::from(found));
            bail!("not {}: line {}: {found:?} instead of {expected:?}", self.file_kind, self.line);
        }
        self.skip();
        Ok(())
    }

    /// Emits the object if it is a Feature, or the features of the object if it is a
    /// FeatureCollection.
    fn object(&mut self, check: CheckFrame<'_>, emit: Emit<'_>) -> Result<()> {
        let (mut whole, mut is_collection) = (CopiedValue::default(), false);
        self.expect(b'{')?;
        let line = self.line;
        whole.push(b"{");
        while self.some_token()? != b'}' {
            let mut key = CopiedValue::default();
            self.value(&mut key)?;
            self.expect(b':')?;
            if key.text == b"\"features\"" && self.some_token()? == b'[' {
                let line = self.line;
                let frame = whole.text.strip_suffix(b",").unwrap_or(&whole.text);
                check(&[frame, b"}"].concat(), &format!("line {line}"))?;
                self.elements(emit)?;
                is_collection = true;
            } else {
                // Copy the value by itself, because the copy of the whole object may be full.
                let mut value = CopiedValue::default();
                self.value(&mut value)?;
                if key.text == b"\"crs\"" {
                    let refused = refuse_other_crs(&value.text);
                    refused.map_err(|why| {
                        if is_collection { anyhow!("{why}{FEATURES_MAY_BE_STORED}") } else { why }
                    })?;
                } else if is_collection {
                    let member = [b"{", &*key.text, b":", &*value.text, b"}"].concat();
                    check(&member, &format!("line {}", self.line))
                        .map_err(|why| anyhow!("{why}{FEATURES_MAY_BE_STORED}"))?;
                }
                whole.push(&key.text);
                whole.push(b":");
                whole.push_copy(&value);
            }
            if self.some_token()? == b',' {
                self.skip();
                if self.some_token()? != b'}' && !is_collection {
                    whole.push(b",");
                }
            }
        }
        self.skip();
        whole.push(b"}");
        if is_collection {
            return Ok(());
        }
        let is_feature = serde_json::from_slice::<Typed>(&whole.text)
            .is_ok_and(|typed| typed.r#type == "Feature");
        if !is_feature && whole.length <= FEATURE_BYTES_MAX {
            bail!(
                "not {}: the object that ends in line {} has no features",
                self.file_kind,
                self.line
            );
        }
        emit(&whole.text, whole.length, line)
    }

    /// Emits the elements of those arrays of an object whose names are in `names`.
    fn elements_of_members(&mut self, names: &[&str], emit: Emit<'_>) -> Result<()> {
        self.expect(b'{')?;
        let mut skipped = CopiedValue::default();
        while self.some_token()? != b'}' {
            let mut key = CopiedValue::default();
            self.value(&mut key)?;
            self.expect(b':')?;
            let is_named = names.iter().any(|name| key.text == format!("\"{name}\"").as_bytes());
            if is_named && self.some_token()? == b'[' {
                self.elements(emit)?;
            } else {
                self.value(&mut skipped)?;
                skipped.text.clear();
            }
            if self.some_token()? == b',' {
                self.skip();
            }
        }
        self.skip();
        Ok(())
    }

    /// Emits each element of an array.
    fn elements(&mut self, emit: Emit<'_>) -> Result<()> {
        self.expect(b'[')?;
        let mut feature = CopiedValue::default();
        while self.some_token()? != b']' {
            feature.text.clear();
            feature.length = 0;
            let line = self.line;
            self.value(&mut feature)?;
            emit(&feature.text, feature.length, line)?;
            match self.some_token()? {
                b',' => self.skip(),
                b']' => {}
                byte => {
                    let byte = char::from(byte);
                    bail!("not {}: line {}: {byte:?} after a feature", self.file_kind, self.line);
                }
            }
        }
        self.skip();
        Ok(())
    }

    /// Copies a value. Finds the end of the value by matching the brackets outside of strings.
    fn value(&mut self, into: &mut CopiedValue) -> Result<()> {
        let mut depth = 0_usize;
        loop {
            match self.some_token()? {
                b'"' => self.string(into)?,
                open @ (b'{' | b'[') => {
                    into.push(&[open]);
                    self.skip();
                    depth += 1;
                    if depth > DEPTH_MAX {
                        bail!("not {}: line {}: nested too deeply", self.file_kind, self.line);
                    }
                }
                close @ (b'}' | b']') => {
                    if depth == 0 {
                        bail!("not {}: line {}: a value is missing", self.file_kind, self.line);
                    }
                    into.push(&[close]);
                    self.skip();
                    depth -= 1;
                }
                mark @ (b',' | b':') if depth > 0 => {
                    into.push(&[mark]);
                    self.skip();
                    continue;
                }
                _ => self.word(into)?,
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Copies a string with its quotes.
    fn string(&mut self, into: &mut CopiedValue) -> Result<()> {
        into.push(b"\"");
        self.skip();
        let mut is_escaped = false;
        loop {
            let Some(_) = self.peek()? else {
                bail!("not {}: EOF in line {}: a string has no end", self.file_kind, self.line)
            };
            let unread = &self.buffer[self.at..self.end];
            let stop = unread.iter().position(|byte| matches!(byte, b'"' | b'\\') || is_escaped);
            let length = stop.map_or(unread.len(), |stop| stop + 1);
            into.push(&unread[..length]);
            self.line += unread[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
            self.at += length;
            match stop.map(|_| self.buffer[self.at - 1]) {
                Some(_) if is_escaped => is_escaped = false,
                Some(b'"') => return Ok(()),
                Some(_) => is_escaped = true,
                None => {}
            }
        }
    }

    /// Copies a number, or a word such as `true`; replaces `NaN` and `Infinity` by `null`.
    fn word(&mut self, into: &mut CopiedValue) -> Result<()> {
        let mut word = Vec::new();
        while let Some(byte) = self.peek()? {
            if byte.is_ascii_whitespace() || b",:{}[]\"".contains(&byte) || word.len() > 400 {
                break;
            }
            word.push(byte);
            self.skip();
        }
        if word.is_empty() {
            bail!("not {}: line {}: a value is missing", self.file_kind, self.line);
        }
        let is_not_json = matches!(&*word, b"NaN" | b"-NaN" | b"nan" | b"Infinity" | b"-Infinity");
        into.push(if is_not_json { b"null" } else { &word });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::collect_payloads;

    #[test]
    fn crs_without_degrees_is_refused_at_any_position() {
        let crs = r#""crs":{"type":"name","properties":{"name":"urn:ogc:def:crs:EPSG::3857"}}"#;
        let list = r#""features":[{"type":"Feature"}]"#;
        let long = "x".repeat(FEATURE_BYTES_MAX - 30);
        for (file, features_read, is_after) in [
            (format!("{{{crs},{list}}}"), 0, false),
            (format!("{{{list},{crs}}}"), 1, true),
            (format!("{{\"name\":\"{long}\",{crs},{list}}}"), 0, false),
            (format!("{{\"name\":\"{long}\",{list},{crs}}}"), 1, true),
            (format!("{{\"type\":\"Feature\",\"name\":\"{long}{long}\",{crs}}}"), 0, false),
        ] {
            let (features, end) =
                collect_payloads(|emit| features(file.as_bytes(), &|_, _| Ok(()), emit));
            let message = "are urn:ogc:def:crs:EPSG::3857, not degrees of WGS 84";
            assert!(features.len() == features_read && end.contains(message), "{features:?} {end}");
            assert_eq!(end.contains("before it may be stored already"), is_after, "{end}");
        }
        let name = r#"{"type":"name","properties":{"name":"urn:ogc:def:crs:OGC:1.3:CRS84"}}"#;
        let href = r#""href":"http://x.org/ref/epsg/CODE/proj4/""#;
        let link = format!(r#"{{"type":"link","properties":{{{href},"type":"proj4"}}}}"#);
        for (crs, is_read) in [
            (name.to_owned(), true),
            (link.replace("CODE", "4326"), true),
            (link.replace("CODE", "3857"), false),
            (r#"{"type":"EPSG","properties":{"code":4326}}"#.to_owned(), true),
            (r#"{"type":"EPSG","properties":{"code":3857}}"#.to_owned(), false),
            (r#"{"type":"name","properties":{"name":null}}"#.to_owned(), true),
            ("null".to_owned(), true),
            (r#""EPSG:3857""#.to_owned(), false),
            (r#""EPSG:4326""#.to_owned(), true),
            (r#""WGS84""#.to_owned(), true),
            (r#""EPSG4326""#.to_owned(), true),
            (r#""WGS 84 (EPSG:4326)""#.to_owned(), true),
            (r#""EPSG:3857_4326""#.to_owned(), false),
        ] {
            let file = format!(r#"{{"crs":{crs},{list}}}"#);
            let (features, end) =
                collect_payloads(|emit| features(file.as_bytes(), &|_, _| Ok(()), emit));
            assert_eq!((features.len() == 1, end.is_empty()), (is_read, is_read), "{crs}: {end}");
        }
    }
}
