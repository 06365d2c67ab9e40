//! Extracts values from a JSON object by their paths, in one pass.

use super::announced::may_name_scale;
use super::fix_arrays;
use super::hemisphere::{self, Side};
use super::json::Scalar;
use super::reader::{KnownKey, Reader, as_text};
use super::reference_system;
use super::refusal::{Refusal, invalid, refuse};
use super::unit_words::is_unit;
use super::unread_fix;
use crate::reject::Reason;

/// Maximum number of values that one pass extracts. The last slot holds the driver's id.
const SLOTS_MAX: usize = 19;
/// Slots for hemispheres that the format does not read. The first slot holds the name of a member
/// that states a southern latitude. The second slot holds the name of a member that states a
/// western longitude.
pub(super) const UNREAD_HEMISPHERES: [usize; 2] = [SLOTS_MAX - 3, SLOTS_MAX - 2];
/// Slot for the name of another member that the format does not read. The member may be a unit,
/// such as `speed_unit`, or a flag such as `is_utc` or `valid`. If the slot is filled,
/// `unread_unit.rs`, `unread_zone.rs` and `unread_fix.rs` search the point for all such members.
const UNREAD_OTHER: usize = SLOTS_MAX - 4;

/// A path into JSON: names, and indices of arrays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pointer {
    text: String,
    steps: Vec<String>,
    paths: Paths,
}

impl Pointer {
    /// Parses a JSON pointer (RFC 6901): `/a/b`, with `~1` for `/` and `~0` for `~` in a name.
    ///
    /// # Errors
    /// The pointer is invalid; the error says why.
    pub fn new(text: &str) -> Result<Self, String> {
        let invalid = || format!("\"{text}\": must be a JSON pointer such as \"/device/id\"");
        let steps = text.strip_prefix('/').filter(|steps| !steps.is_empty()).ok_or_else(invalid)?;
        if steps.replace("~0", "").replace("~1", "").contains('~') {
            return Err(invalid() + "; in a name, write ~ as ~0 and / as ~1");
        }
        let steps: Vec<_> =
            steps.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect();
        let mut paths = Paths::default();
        paths.add(steps.iter().map(String::as_str), 0);
        Ok(Self { text: text.to_owned(), steps, paths })
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(String::as_str)
    }

    /// Returns the path in the notation of `keep`: the names with `/` between them.
    pub(super) fn path(&self) -> String {
        self.steps.join("/")
    }

    /// Returns the value at this path of a JSON object or array.
    ///
    /// # Errors
    /// The JSON is invalid, or neither an object nor an array.
    pub(super) fn value<'a>(&self, json: &'a [u8]) -> Result<Scalar<'a>, Refusal> {
        let mut found = Found::default();
        self.paths.find(json, &mut found)?;
        let [value, ..] = found;
        Ok(value)
    }

    /// Returns the JSON of the value at this path of an object or array; `None` if there is no
    /// value.
    ///
    /// # Errors
    /// The JSON is invalid.
    pub(super) fn raw<'a>(&self, json: &'a [u8]) -> Result<Option<&'a str>, Refusal> {
        self.raw_in(json).map(|found| found.value.map(as_text))
    }

    /// Like [`raw`](Self::raw). Also returns facts about the members beside the path.
    pub(super) fn raw_in<'a>(&self, json: &'a [u8]) -> Result<RawFound<'a>, Refusal> {
        let mut reader = Reader::new(json);
        let mut found = RawFound::default();
        let read = self.paths.extract_raw(&mut reader, &mut found);
        read.and_then(|()| reader.end()).ok_or_else(|| invalid(json))?;
        Ok(found)
    }
}

/// The paths to extract, as a tree. Each node stands for the path from the root to this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Paths {
    /// The slot for the value at this path; `None` if only values below this path are extracted.
    slot: Option<usize>,
    sharing: Sharing,
    /// The coordinate that the last step of this path names: 0 for lat, 1 for lng.
    coordinate: Option<usize>,
    hint: Option<ValueHint>,
    children: Vec<Child>,
    /// For each [`bucket`], the [`Link`] of its first child.
    first: [Link; BUCKETS],
}

/// A fact about the value at a path. It is known before the value is read, and makes reading the
/// value cheaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueHint {
    /// The format does not read the value, and the value cannot describe the point.
    Unread,
    /// Nearly every payload has this string here.
    Usual(&'static str),
}

/// Number of groups into which names are divided, so that a key is compared with few names.
const BUCKETS: usize = 32;

/// The index of a child, plus 1; 0 if there is no child.
type Link = u8;

/// The next step of a path, and the tree below it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Child {
    name: Box<str>,
    key: KnownKey,
    paths: Paths,
    /// The next child of the same [`bucket`].
    next: Link,
}

/// How a path shares its slot with other paths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Sharing {
    /// The slot has no alias.
    #[default]
    Alone,
    /// The slot's own path. Its value replaces the value of an alias, unless it is null.
    HasAlias,
    /// Used only if the slot's own path has no value.
    IsAlias,
}

/// The extracted values, by slot.
pub(super) type Found<'a> = [Scalar<'a>; SLOTS_MAX];

impl Paths {
    /// Creates the tree of these paths, one per slot. A path is written like a pointer without its
    /// first `/`.
    pub(super) fn new(paths: &[&str]) -> Self {
        let mut tree = Self::default();
        for (slot, path) in paths.iter().enumerate() {
            tree.add(path.split('/'), slot);
        }
        tree
    }

    /// Adds a path of a slot. If several paths share the slot, the last value in the payload wins.
    pub(super) fn add<'p>(&mut self, path: impl IntoIterator<Item = &'p str>, slot: usize) {
        assert!(slot < SLOTS_MAX, "a format must extract at most {SLOTS_MAX} values");
        let at = self.at(path);
        (at.slot, at.sharing) = (Some(slot), Sharing::Alone);
    }

    /// Returns the tree at a path. Adds the path if it is missing. Clears `hint` in each node of
    /// the path, because the format now reads the value at the end of the path.
    fn at<'p>(&mut self, path: impl IntoIterator<Item = &'p str>) -> &mut Self {
        let mut at = self;
        for step in path {
            let existing = at.children.iter().position(|child| *child.name == *step);
            let index = existing.unwrap_or_else(|| at.add_child(step));
            at = &mut at.children[index].paths;
            at.hint = None;
        }
        at
    }

    /// Adds the name of a member that the format does not read, so that its value is skipped
    /// without further checks. Does nothing if the value must be examined, for example because the
    /// name may be the name of a unit.
    pub(super) fn add_unread(&mut self, name: &str) {
        let key = name.as_bytes();
        if !self.may_matter(key) && self.child(key).is_none() {
            let index = self.add_child(name);
            self.children[index].paths.hint = Some(ValueHint::Unread);
        }
    }

    /// Sets the string that nearly every payload has at a path, so that the string is not checked
    /// for escapes and UTF-8. If the path has no slot, any string at this path is skipped.
    pub(super) fn set_usual(&mut self, path: &str, text: &'static str) {
        self.at(path.split('/')).hint = Some(ValueHint::Usual(text));
    }

    /// Adds a child without a slot, and returns its index.
    fn add_child(&mut self, name: &str) -> usize {
        let index = self.children.len();
        let paths = Self { coordinate: hemisphere::coordinate(name), ..Self::default() };
        let first = &mut self.first[bucket(beginning(name.as_bytes()))];
        let key = KnownKey::new(name);
        self.children.push(Child { name: name.into(), key, paths, next: *first });
        *first = Link::try_from(index + 1).expect("a format has few fields");
        index
    }

    /// Adds another path for a slot's value. A value at a path of [`add`](Self::add) takes
    /// precedence, unless it is null.
    pub(super) fn add_alias(&mut self, path: &str, slot: usize) {
        self.for_each_own_path(slot, &mut |own| own.sharing = Sharing::HasAlias);
        self.add(path.split('/'), slot);
        self.at(path.split('/')).sharing = Sharing::IsAlias;
    }

    /// Calls `change` with each path of a slot that is not an alias.
    fn for_each_own_path(&mut self, slot: usize, change: &mut impl FnMut(&mut Self)) {
        if self.slot == Some(slot) && self.sharing != Sharing::IsAlias {
            change(self);
        }
        for child in &mut self.children {
            child.paths.for_each_own_path(slot, change);
        }
    }

    #[inline(always)]
    fn put<'a>(&self, value: Scalar<'a>, found: &mut Found<'a>) {
        match self.slot {
            Some(slot) if self.sharing != Sharing::Alone => {
                put_shared(value, &mut found[slot], self.sharing);
            }
            Some(slot) => found[slot] = value,
            None => {}
        }
    }

    /// Returns whether an unread member may be a hemisphere, a unit or a reference system.
    #[inline]
    fn may_describe_point(&self, key: &[u8]) -> bool {
        self.coordinate.is_some()
            || hemisphere::may_be_hemisphere_or_unit(key)
            || reference_system::may_be_name(key)
    }

    /// Returns whether [`skip_member`](Self::skip_member) must examine the value of an unread
    /// member with this name, because the value may change what the point means. Ignores names of
    /// arrays of fixes.
    fn may_matter(&self, key: &[u8]) -> bool {
        self.may_text_matter(key) || hemisphere::may_list_sides(key)
    }

    /// Like [`may_matter`](Self::may_matter), for a value that is a string.
    #[inline]
    fn may_text_matter(&self, key: &[u8]) -> bool {
        self.may_describe_point(key) || hemisphere::is_utc_flag(key) || unread_fix::may_be_name(key)
    }

    /// Stores the name of an unread member for later checks, if the member may be:
    ///
    /// - a hemisphere that states south or west;
    /// - a unit or a reference system;
    /// - a flag of UTC, or of a missing fix;
    /// - an array of fixes.
    ///
    /// `json`: the value's JSON.
    #[cold]
    fn put_unread(&self, key: &[u8], value: &Scalar<'_>, json: &[u8], found: &mut Found<'_>) {
        let (Ok(name), Ok(json)) = (str::from_utf8(key), str::from_utf8(json)) else { return };
        let may_deny_fix = unread_fix::may_deny_fix(key, value);
        if may_deny_fix
            || is_unit(key)
            || hemisphere::is_utc_flag(key)
            || reference_system::is_name(key)
            || value.is_container() && fix_arrays::is_name_of_fixes(key)
        {
            found[UNREAD_OTHER] = Scalar::Text(name.to_owned().into());
            return;
        }
        if value.is_container() {
            return Self::put_sides(name, hemisphere::sides_in_list(name, json), found);
        }
        let value = value.to_word();
        let mut sides = hemisphere::sides(name, &value);
        if let Some(coordinate) =
            self.coordinate.filter(|_| hemisphere::is_hemisphere_of_parent(name))
        {
            sides[coordinate] = hemisphere::side(name, &value, coordinate);
        }
        Self::put_sides(name, sides, found);
    }

    /// Stores the name of an unread member for each side that is not north or east.
    fn put_sides(key: &str, sides: [Option<Side>; 2], found: &mut Found<'_>) {
        for (slot, side) in UNREAD_HEMISPHERES.into_iter().zip(sides) {
            let name = match side {
                Some(Side::Negative) => key.to_owned(),
                Some(Side::Unclear) => format!("{key} (O, as in French)"),
                Some(Side::Positive) | None => continue,
            };
            found[slot] = Scalar::Text(name.into());
        }
    }

    /// Adds the path of the driver's id, unless the format already extracts that value.
    pub(super) fn add_driver(&mut self, pointer: &Pointer) {
        let mut at = Some(&*self);
        for step in pointer.steps() {
            at = at.and_then(|paths| paths.child(step.as_bytes()));
        }
        if at.is_none_or(|paths| paths.slot.is_none()) {
            self.add(pointer.steps(), SLOTS_MAX - 1);
        }
    }

    /// Extracts the values from a JSON object or array. Works in place, because the values are
    /// large and this runs for every message.
    ///
    /// # Errors
    /// The JSON is invalid, or neither an object nor an array.
    pub(super) fn find<'a>(&self, json: &'a [u8], found: &mut Found<'a>) -> Result<(), Refusal> {
        let mut reader = Reader::new(json);
        let is_container = matches!(reader.peek(), b'{' | b'[');
        let read = self.extract(&mut reader, found);
        read.and_then(|()| reader.end()).ok_or_else(|| invalid(json))?;
        if is_container {
            Ok(())
        } else {
            refuse(Reason::WrongShape, "neither an object nor an array")
        }
    }

    /// Reads the next value. Stores it, and the values inside it, if this tree has slots for them.
    fn extract<'a>(&self, json: &mut Reader<'a>, found: &mut Found<'a>) -> Option<()> {
        let value = match json.peek() {
            b'{' => {
                json.members(|json| {
                    if let Some(paths) =
                        json.known_key(|word, after| self.child_of_word(word, after))
                    {
                        return paths.extract_member(json, found);
                    }
                    let key = json.key()?;
                    match self.child(&key) {
                        Some(paths) => paths.extract_member(json, found),
                        None => self.skip_member(&key, json, found),
                    }
                })?;
                Scalar::Other("an object")
            }
            b'[' => {
                self.each_element(json, |paths, json| paths.extract(json, found))?;
                Scalar::Other("an array")
            }
            _ => json.value()?,
        };
        self.put(value, found);
        Some(())
    }

    /// Reads an array. Calls `extract` at each element that a path names; `extract` must read it.
    fn each_element<'a>(
        &self,
        json: &mut Reader<'a>,
        mut extract: impl FnMut(&Self, &mut Reader<'a>) -> Option<()>,
    ) -> Option<()> {
        let mut index = 0;
        json.array(|json| {
            let paths = self.at_index(index);
            index += 1;
            match paths {
                Some(paths) => extract(paths, json),
                None => json.value().map(drop),
            }
        })
    }

    /// Reads the value of a member that this path names. Most values are scalars.
    #[inline(always)]
    fn extract_member<'a>(&self, json: &mut Reader<'a>, found: &mut Found<'a>) -> Option<()> {
        let value = match json.peek() {
            b'-' | b'0'..=b'9' => json.number()?,
            b'"' => match self.hint {
                None => json.other_value()?,
                Some(ValueHint::Unread) => return json.skip_text(),
                Some(ValueHint::Usual(text)) if json.skip_known_text(text) => {
                    Scalar::Text(text.into())
                }
                Some(ValueHint::Usual(_)) => json.other_value()?,
            },
            b'{' | b'[' if self.hint != Some(ValueHint::Unread) => {
                return self.extract(json, found);
            }
            _ => json.other_value()?,
        };
        self.put(value, found);
        Some(())
    }

    /// Reads the value of a member that no path names. Stores the member's name if the value may
    /// change what the point means.
    #[inline]
    fn skip_member<'a>(
        &self,
        key: &[u8],
        json: &mut Reader<'a>,
        found: &mut Found<'a>,
    ) -> Option<()> {
        let rest = json.rest();
        // Under most names, a string cannot describe the point.
        if rest.starts_with(b"\"") && !self.may_text_matter(key) {
            return json.skip_text();
        }
        let value = json.value()?;
        let may_matter = if value.is_container() {
            hemisphere::may_list_sides(key)
                || is_unit(key)
                || reference_system::is_name(key)
                || rest.starts_with(b"[") && fix_arrays::is_name_of_fixes(key)
        } else {
            value.may_be_hemisphere() && self.may_describe_point(key)
                || value.is_number() && may_name_scale(key) && is_unit(key)
                || hemisphere::is_utc_flag(key) && value.is_unset()
        } || unread_fix::may_deny_fix(key, &value);
        if may_matter {
            self.put_unread(key, &value, json.read_since(rest), found);
        }
        Some(())
    }

    /// Reads the next value, and stores the JSON at the only path of this tree. The last value of a
    /// repeated key wins.
    fn extract_raw<'a>(&self, json: &mut Reader<'a>, found: &mut RawFound<'a>) -> Option<()> {
        found.value = None;
        if self.slot.is_some() {
            found.value = Some(json.raw()?);
            return Some(());
        }
        match json.peek() {
            b'{' => json.object(|json, key| match self.child(key) {
                Some(paths) => paths.extract_raw(json, found),
                None => {
                    found.may_describe_points |= is_unit(key) || reference_system::is_name(key);
                    found.has_other_points |=
                        json.peek() == b'[' && fix_arrays::is_name_of_fixes(key);
                    json.value().map(drop)
                }
            }),
            b'[' => self.each_element(json, |paths, json| paths.extract_raw(json, found)),
            _ => json.value().map(drop),
        }
    }

    fn child(&self, name: &[u8]) -> Option<&Self> {
        let mut children = self.children_in(bucket(beginning(name)));
        children.find(|child| child.name.as_bytes() == name).map(|child| &child.paths)
    }

    /// Returns the child whose key begins the JSON, and the length of that key with its quotes and
    /// colon. `word`, `after`: see [`Reader::known_key`].
    #[inline(always)]
    fn child_of_word(&self, word: u64, after: &[u8]) -> Option<(&Self, usize)> {
        let [_quote, first, second, ..] = word.to_le_bytes();
        let mut children = self.children_in(bucket([first, second]));
        let child = children.find(|child| child.key.begins(word, after))?;
        Some((&child.paths, child.key.bytes))
    }

    #[inline(always)]
    fn children_in(&self, bucket: usize) -> impl Iterator<Item = &Child> {
        let mut link = self.first[bucket];
        std::iter::from_fn(move || {
            let child = self.children.get(usize::from(link).wrapping_sub(1))?;
            link = child.next;
            Some(child)
        })
    }

    fn at_index(&self, index: usize) -> Option<&Self> {
        let mut children = self.children.iter();
        children.find(|child| child.name.parse() == Ok(index)).map(|child| &child.paths)
    }
}

/// Returns the first two bytes that follow a key's opening quote. In a shorter name, they include
/// its closing quote and the colon.
#[inline(always)]
fn beginning(name: &[u8]) -> [u8; 2] {
    match name {
        [first, second, ..] => [*first, *second],
        [first] => [*first, b'"'],
        [] => [b'"', b':'],
    }
}

/// Returns the bucket of a name, from its first two bytes.
#[inline(always)]
fn bucket(beginning: [u8; 2]) -> usize {
    // This factor puts the fields of nearly every shipped format into different buckets.
    usize::from(u16::from_le_bytes(beginning).wrapping_mul(7_929) >> 11)
}

/// Stores a value of a slot that has an alias.
#[cold]
fn put_shared<'a>(value: Scalar<'a>, slot: &mut Scalar<'a>, sharing: Sharing) {
    let is_stored = match sharing {
        Sharing::IsAlias => slot.is_missing(),
        Sharing::HasAlias => !value.is_missing(),
        Sharing::Alone => true,
    };
    if is_stored {
        *slot = value;
    }
}

/// The JSON of the value at the only path, and facts about the members beside this path.
#[derive(Default)]
pub(super) struct RawFound<'a> {
    pub(super) value: Option<&'a [u8]>,
    /// A member beside the path may be a unit or a reference system.
    pub(super) may_describe_points: bool,
    /// A member beside the path is an array that may hold fixes.
    pub(super) has_other_points: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(paths: &Paths, json: &'a str) -> Option<Found<'a>> {
        let mut found = Found::default();
        paths.find(json.as_bytes(), &mut found).ok().map(|()| found)
    }

    #[test]
    fn member_added_as_unread_is_skipped_whatever_its_value() {
        let mut paths = Paths::default();
        paths.add_unread("tid");
        paths.add(["lat"], 0);
        for value in ["0", "\"S\"", "\"\\ud800\"", "null", "{\"lat\":1}", "[{\"lat_ref\":\"S\"}]"] {
            let json = format!("{{\"tid\":{value},\"lat\":7,\"tid\" : {value}}}");
            let [lat, others @ ..] = found(&paths, &json).expect("valid");
            assert!(matches!(lat, Scalar::Integer(7)), "{json}");
            assert!(others.iter().all(Scalar::is_missing), "{json}");
        }
        for invalid in ["{\"tid\":\"}", "{\"tid\":\"\n\"}", "{\"tid\":-}", "{\"tid\":[}"] {
            assert!(found(&paths, invalid).is_none(), "{invalid}");
        }
    }

    #[test]
    fn name_that_may_matter_is_not_added_as_unread() {
        let mut paths = Paths::default();
        for name in ["speed_unit", "lat_ref", "utc", "valid", "gps", "is_south", "cardinal"] {
            paths.add_unread(name);
            assert!(paths.child(name.as_bytes()).is_none(), "{name}");
        }
    }

    #[test]
    fn driver_may_be_at_or_below_an_unread_name() {
        for (path, json) in [("/tid", r#"{"tid":"d7"}"#), ("/tid/id", r#"{"tid":{"id":"d7"}}"#)] {
            let mut paths = Paths::default();
            paths.add_unread("tid");
            paths.add_driver(&Pointer::new(path).expect("well formed"));
            let [.., driver] = found(&paths, json).expect("valid");
            assert_eq!(driver.as_text(), Some("d7"), "{path}");
        }
    }

    #[test]
    fn usual_string_is_matched_only_as_a_whole() {
        let mut paths = Paths::default();
        paths.add(["_type"], 0);
        paths.set_usual("_type", "location");
        for text in ["location", "locations", "", "card", "\\u006cocation"] {
            let json = format!("{{\"_type\": \"{text}\"}}");
            let [kind, ..] = found(&paths, &json).expect("valid");
            let expected = if text.ends_with("ocation") { "location" } else { text };
            assert_eq!(kind.as_text(), Some(expected), "{text}");
        }
        assert!(found(&paths, "{\"_type\":\"location}").is_none());
    }
}
