//! Collects the further fields of a point that a source keeps. Each scalar is stored under its
//! path: the names with `/` between them.

use std::cmp::Reverse;
use std::ops::Deref;

use arrayvec::ArrayVec;
use memchr::memmem::Finder;
use memchr::{memchr, memchr2};

use super::json::Scalar;
use super::reader::{Reader, as_text};
use crate::attributes::{ATTRIBUTES_MAX, Attributes};

/// Maximum length of a path in bytes. Longer paths are dropped.
const NAME_BYTES_MAX: usize = 128;
/// Maximum depth of a value. Deeper values are dropped.
const DEPTH_MAX: usize = 16;

/// The setting `keep` of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keep {
    Nothing,
    /// Every scalar that is not a field of the position.
    All,
    /// Scalars at these paths.
    Named(Names),
}

/// Paths that a source keeps, each once.
#[derive(Debug, Clone)]
pub struct Names {
    names: Vec<String>,
    /// Each name in quotes, as a payload contains it.
    keys: Vec<Finder<'static>>,
    /// No name contains a character that JSON escapes.
    are_plain: bool,
}

impl Names {
    fn new(names: Vec<String>) -> Self {
        let keys =
            names.iter().map(|name| Finder::new(&format!("\"{name}\"")).into_owned()).collect();
        let is_plain = |name: &String| !name.contains(|c: char| matches!(c, '"' | '\\') || c < ' ');
        let are_plain = names.iter().all(is_plain);
        Self { names, keys, are_plain }
    }

    /// Returns the kept fields of a point whose JSON is one flat object without escapes: the usual
    /// case. Returns `None` for any other JSON, or if a limit is exceeded.
    ///
    /// This search by bytes is correct for three reasons. The format has parsed the JSON, so the
    /// JSON is valid. Without escapes, a name in quotes is a whole string, and a string before a
    /// colon is a key. In a flat object, every key belongs to the point.
    #[inline(never)]
    fn in_flat_object(&self, origin: &Origin<'_>) -> Option<Attributes> {
        let [b'{', inside @ ..] = origin.raw.trim_ascii_start() else { return None };
        if !self.are_plain || !origin.root.is_empty() || memchr2(b'{', b'\\', inside).is_some() {
            return None;
        }
        let mut attributes = Attributes::default();
        if let ([name], [key]) = (&self.names[..], &self.keys[..]) {
            let fits = values(key, inside).all(|(_, value)| attributes.put_bytes(name, value));
            return fits.then_some(attributes);
        }
        let mut found = ArrayVec::<(usize, &str, &[u8]), ATTRIBUTES_MAX>::new();
        for (name, key) in self.names.iter().zip(&self.keys) {
            for (remaining, value) in values(key, inside) {
                found.try_push((remaining, name, value)).ok()?;
            }
        }
        // Sort by the order in the payload: more remaining bytes mean an earlier key.
        found.sort_unstable_by_key(|(remaining, ..)| Reverse(*remaining));
        let mut pairs = found.iter();
        pairs.all(|(_, name, value)| attributes.put_bytes(name, value)).then_some(attributes)
    }
}

/// Returns each scalar that is the value of this key, with the number of bytes after the key.
/// `key`: the name in quotes.
fn values<'a>(key: &Finder<'_>, object: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8])> {
    let mut rest = object;
    std::iter::from_fn(move || {
        loop {
            rest = &rest[key.find(rest)? + key.needle().len()..];
            if let Some(value) = scalar_after(rest) {
                return Some((rest.len(), value));
            }
        }
    })
}

impl Deref for Names {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.names
    }
}

impl PartialEq for Names {
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names
    }
}

impl Eq for Names {}

/// Returns the value after a key: a string without its quotes, a number or a boolean. `None`: the
/// value is an array or null, or no colon follows, so the string is not a key.
fn scalar_after(rest: &[u8]) -> Option<&[u8]> {
    let rest = rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    match rest {
        [b'"', text @ ..] => Some(&text[..memchr(b'"', text)?]),
        // An array or null.
        [b'[' | b'n', ..] => None,
        _ => {
            let ends_value = |byte: &u8| matches!(byte, b',' | b'}' | b' ' | b'\t' | b'\n' | b'\r');
            Some(&rest[..rest.iter().position(ends_value)?])
        }
    }
}

/// The setting `keep`, for members of an object. `root` is the path of the object at which the
/// paths of `keep` begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept<'k> {
    pub(super) keep: &'k Keep,
    pub(super) root: &'static [&'static str],
}

impl Kept<'_> {
    /// Returns whether the value at this path of the object is kept.
    pub(super) fn has(&self, path: &str) -> bool {
        self.keep.has(self.name(path))
    }

    /// Converts a path in the object to a path as `keep` writes it: removes `root` if the path
    /// begins with it.
    pub(super) fn name<'p>(&self, path: &'p str) -> &'p str {
        let mut name = path;
        for step in self.root {
            match name.strip_prefix(step).and_then(|rest| rest.strip_prefix('/')) {
                Some(rest) => name = rest,
                None => return path,
            }
        }
        name
    }
}

/// A point's place in its payload.
#[derive(Debug)]
pub(super) struct Origin<'a> {
    /// The JSON of the point, in UTF-8.
    pub(super) raw: &'a [u8],
    /// The object around the point, or the point itself.
    pub(super) enclosing: &'a [u8],
    /// The driver's id, if the payload names the driver and the format extracted the id.
    pub(super) driver: Scalar<'a>,
    /// Path of the object at which the paths of `keep` begin.
    pub(super) root: &'static [&'static str],
}

impl<'a> Origin<'a> {
    /// Creates the origin of a point without an enclosing object.
    pub(super) fn whole(raw: &'a [u8]) -> Self {
        Self { raw, enclosing: raw, driver: Scalar::Missing, root: &[] }
    }
}

impl Keep {
    /// Returns whether the value at this path is kept.
    pub(super) fn has(&self, path: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| name == path),
        }
    }

    /// Parses the configured names; `["*"]` keeps every field.
    ///
    /// # Errors
    /// A name is invalid, or there are too many.
    pub fn of_names(names: &[String]) -> Result<Self, String> {
        let names: Vec<String> = names
            .iter()
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect();
        if names.is_empty() {
            return Ok(Self::Nothing);
        }
        if names.iter().any(|name| name == "*") {
            let error = "\"*\" keeps every field: give it alone, or give names";
            return if names.len() == 1 { Ok(Self::All) } else { Err(error.to_owned()) };
        }
        if names.len() > ATTRIBUTES_MAX {
            return Err(format!("must hold at most {ATTRIBUTES_MAX} names"));
        }
        let is_invalid = |name: &&String| {
            name.starts_with('/') || name.ends_with('/') || name.len() > NAME_BYTES_MAX
        };
        if let Some(name) = names.iter().find(is_invalid) {
            return Err(format!(
                "\"{name}\": must be a name such as \"batt\", or a path such as \"io/239\" without \
                 a leading /"
            ));
        }
        Ok(Self::Named(Names::new(names)))
    }

    /// Adds names to those that are kept.
    ///
    /// # Errors
    /// There are more than [`ATTRIBUTES_MAX`] names; the error is their number.
    pub fn with(self, added: impl IntoIterator<Item = String>) -> Result<Self, usize> {
        let mut names = match self {
            Self::All => return Ok(Self::All),
            Self::Nothing => Vec::new(),
            Self::Named(names) => names.names,
        };
        for name in added {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        match names.len() {
            0 => Ok(Self::Nothing),
            1..=ATTRIBUTES_MAX => Ok(Self::Named(Names::new(names))),
            count => Err(count),
        }
    }

    /// Returns the kept fields, and the number of fields that exceeded the limits. `used`: the
    /// paths of the position's own fields, which `"*"` skips.
    #[inline(always)]
    pub(super) fn collect(&self, origin: &Origin<'_>, used: &[String]) -> (Attributes, u64) {
        match self {
            Self::Nothing => (Attributes::default(), 0),
            Self::Named(names) => match names.in_flat_object(origin) {
                Some(attributes) => (attributes, 0),
                None => self.walk(origin, used),
            },
            Self::All => self.walk(origin, used),
        }
    }

    /// Like [`collect`](Self::collect), by a walk over all members.
    fn walk(&self, origin: &Origin<'_>, used: &[String]) -> (Attributes, u64) {
        let collected = Collect { keep: self, used, attributes: Attributes::default(), dropped: 0 };
        let Collect { attributes, dropped, .. } = visit(origin.raw, origin.root, collected);
        (attributes, dropped)
    }

    /// Returns whether a value at this path, or below it, is kept.
    fn keeps_below(&self, path: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| {
                name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }),
        }
    }
}

/// Collects the kept fields during a walk.
struct Collect<'w> {
    keep: &'w Keep,
    used: &'w [String],
    attributes: Attributes,
    dropped: u64,
}

impl Visit for Collect<'_> {
    fn should_visit(&self, path: &str) -> bool {
        self.keep.keeps_below(path)
    }

    fn value(&mut self, path: &str, value: Value<'_>) {
        let Value::Scalar(value) = value else { return };
        let is_kept = match self.keep {
            Keep::Nothing => false,
            Keep::All => !path.is_empty() && !self.used.iter().any(|used| used == path),
            Keep::Named(names) => names.iter().any(|name| name == path),
        };
        if is_kept {
            let fits = path.len() <= NAME_BYTES_MAX && self.attributes.put(path, value);
            self.dropped += u64::from(!fits);
        }
    }

    fn skipped(&mut self) {
        self.dropped += 1;
    }
}

/// Calls a function with each value. Limits only the length of a path and the depth, not the number
/// and size of the values.
struct EachValue<'v>(&'v mut dyn FnMut(&str, Value<'_>));

impl Visit for EachValue<'_> {
    fn should_visit(&self, path: &str) -> bool {
        path.len() <= NAME_BYTES_MAX
    }

    fn value(&mut self, path: &str, value: Value<'_>) {
        (self.0)(path, value);
    }
}

/// Calls `each` with the path and value of each scalar and array in the object `json`, or in the
/// object at `root` in it. Does not enter arrays.
pub(super) fn visit_values(
    json: &[u8],
    root: &'static [&'static str],
    each: &mut dyn FnMut(&str, Value<'_>),
) {
    visit(json, root, EachValue(each));
}

/// A value of an object.
pub(super) enum Value<'a> {
    /// A string, a number or a boolean, as `keep` stores it.
    Scalar(&'a str),
    /// The JSON of an array.
    Array(&'a str),
}

/// Receives the values that a [`Walk`] visits.
trait Visit {
    /// Returns whether to visit the value at this path, or the values below it.
    fn should_visit(&self, path: &str) -> bool;

    fn value(&mut self, path: &str, value: Value<'_>);

    /// Counts a value that is invalid or nested too deeply.
    fn skipped(&mut self) {}
}

/// Visits the values of the object `json`, or of the object at `root` in it.
fn visit<V: Visit>(json: &[u8], root: &'static [&'static str], visit: V) -> V {
    let json = std::str::from_utf8(json).expect("UTF-8");
    let mut walk = Walk { path: String::new(), visit };
    walk.members(json.trim_ascii_start(), root, 0);
    walk.visit
}

struct Walk<V> {
    path: String,
    visit: V,
}

impl<V: Visit> Walk<V> {
    /// Visits the members of an object, or of the object at `root` in it.
    fn members(&mut self, json: &str, root: &'static [&'static str], depth: usize) {
        if !json.starts_with('{') {
            return;
        }
        let read = Reader::new(json.as_bytes()).object(|reader, key| {
            let (key, value) = (as_text(key), as_text(reader.raw()?));
            match root {
                [first, rest @ ..] if *first == key => self.members(value, rest, depth),
                [_, ..] => {}
                [] => {
                    let length = self.path.len();
                    if length > 0 {
                        self.path.push('/');
                    }
                    self.path.push_str(key);
                    if self.visit.should_visit(&self.path) {
                        self.value(value, depth);
                    }
                    self.path.truncate(length);
                }
            }
            Some(())
        });
        if read.is_none() {
            self.visit.skipped();
        }
    }

    fn value(&mut self, json: &str, depth: usize) {
        match json.as_bytes() {
            [b'{', ..] if depth == DEPTH_MAX => self.visit.skipped(),
            [b'{', ..] => self.members(json, &[], depth + 1),
            // null is not kept.
            [b'n', ..] => {}
            [b'[', ..] => self.visit.value(&self.path, Value::Array(json)),
            [b'"', ..] => match Reader::new(json.as_bytes()).value() {
                Some(Scalar::Text(text)) => self.visit.value(&self.path, Value::Scalar(&text)),
                _ => self.visit.skipped(),
            },
            // A number or a boolean, as it was sent.
            _ => self.visit.value(&self.path, Value::Scalar(json)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_object_keeps_the_same_fields_as_the_walk() {
        let names = ["batt", "a/b", "t", "ä", "long"].map(str::to_owned);
        let keep = Keep::of_names(&names).unwrap();
        let Keep::Named(named) = &keep else { panic!("{keep:?}") };
        let mut flat = 0;
        for json in [
            r#"{"batt":80,"t":true,"lat":1}"#,
            r#" { "t" : "x" , "batt" : -1.50e3 } "#,
            r#"{"x":"batt","y":["batt",1],"batt":null,"t":[1]}"#,
            r#"{"batt":1,"t":2,"batt":"3"}"#,
            r#"{"batt":1,"batt":null}"#,
            r#"{"batt":"","a/b":"x{y","ä":"ö,}"}"#,
            r#"{"batt":"","a/b":"x:y","ä":"ö,}"}"#,
            r#"{"a":{"b":7},"batt":1}"#,
            r#"{"batt":"a\"b","t":1}"#,
            r#"{"b\u0061tt":5}"#,
            r#"{"xbatt":1,"battx":2}"#,
            "{}",
            &format!(r#"{{"batt":1,"long":"{}"}}"#, "x".repeat(5_000)),
        ] {
            let origin = Origin::whole(json.as_bytes());
            let walked = keep.walk(&origin, &[]);
            assert_eq!(keep.collect(&origin, &[]), walked, "{json}");
            if let Some(found) = named.in_flat_object(&origin) {
                flat += 1;
                assert_eq!((found, 0), walked, "{json}");
            }
        }
        assert_eq!(flat, 8, "number of payloads that are flat objects without escapes");
    }
}
