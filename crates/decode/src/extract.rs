//! Extracts values from a JSON object by their paths, in one pass.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use super::hemisphere::{self, Side};
use super::json::{FALSE, Scalar, TRUE, Text};
use super::plain::Plain;

/// Maximum number of values that one pass extracts. The last slot is the driver.
const SLOTS_MAX: usize = 18;
/// Slots of the hemispheres that the format does not read: the name of a member that says the
/// latitude is south, and of one that says the longitude is west. [`UNIT`] in the first one: the
/// payload has a unit.
pub(super) const UNREAD_HEMISPHERES: [usize; 2] = [SLOTS_MAX - 3, SLOTS_MAX - 2];

/// Stands for a member such as `speed_unit`, which `unread_unit.rs` looks up.
const UNIT: Scalar<'static> = Scalar::Other("a unit");

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
    pub(super) fn value<'a>(&self, json: &'a str) -> serde_json::Result<Scalar<'a>> {
        let [value, ..] = self.paths.find(json)?;
        Ok(value)
    }

    /// Returns the raw JSON at this path of an object or array.
    pub(super) fn raw<'a>(&self, json: &'a str) -> serde_json::Result<Option<&'a RawValue>> {
        self.raw_in(json).map(|found| found.value)
    }

    /// Like [`raw`](Self::raw); also returns whether a unit may stand beside the path.
    pub(super) fn raw_in<'a>(&self, json: &'a str) -> serde_json::Result<RawFound<'a>> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let mut found = RawFound::default();
        found.extract(&self.paths, &mut deserializer)?;
        deserializer.end()?;
        Ok(found)
    }
}

/// The paths to extract, as a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Paths {
    slot: Option<usize>,
    sharing: Sharing,
    /// The coordinate that the last step of this path names: 0 for lat, 1 for lng.
    coordinate: Option<usize>,
    children: Vec<(Box<str>, Paths)>,
}

/// Relation of a path to the other paths of its slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Sharing {
    #[default]
    Alone,
    /// The slot's own path: its value replaces that of an alias, but null does not.
    HasAlias,
    /// Used only if the slot's own path has no value.
    IsAlias,
}

/// The extracted values, by slot.
pub(super) type Found<'a> = [Scalar<'a>; SLOTS_MAX];

impl Paths {
    /// Creates the tree of these paths, one per slot, written as in a pointer but without the first
    /// `/`.
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
        let mut at = self;
        for step in path {
            let known = at.children.iter().position(|(name, _)| **name == *step);
            let index = known.unwrap_or_else(|| {
                let coordinate = hemisphere::coordinate(step);
                at.children.push((step.into(), Self { coordinate, ..Self::default() }));
                at.children.len() - 1
            });
            at = &mut at.children[index].1;
        }
        (at.slot, at.sharing) = (Some(slot), Sharing::Alone);
    }

    /// Adds another path for a slot's value. A value at a path of [`add`](Self::add) takes
    /// precedence, unless it is null.
    pub(super) fn add_alias(&mut self, path: &str, slot: usize) {
        self.for_each_own_path(slot, &mut |own| own.sharing = Sharing::HasAlias);
        self.add(path.split('/'), slot);
        let mut at = self;
        for step in path.split('/') {
            let index = at.children.iter().position(|(name, _)| **name == *step);
            at = &mut at.children[index.expect("just added")].1;
        }
        at.sharing = Sharing::IsAlias;
    }

    /// Calls `change` with each path of a slot that is not an alias.
    fn for_each_own_path(&mut self, slot: usize, change: &mut impl FnMut(&mut Self)) {
        if self.slot == Some(slot) && self.sharing != Sharing::IsAlias {
            change(self);
        }
        for (_, child) in &mut self.children {
            child.for_each_own_path(slot, change);
        }
    }

    #[inline]
    fn put<'a>(&self, value: Scalar<'a>, found: &mut Found<'a>) {
        match self.slot {
            Some(slot) if self.sharing != Sharing::Alone => {
                put_shared(value, &mut found[slot], self.sharing);
            }
            Some(slot) => found[slot] = value,
            None => {}
        }
    }

    /// Returns whether an unread member may be a hemisphere.
    #[inline]
    fn may_be_hemisphere(&self, key: &[u8]) -> bool {
        self.coordinate.is_some() || hemisphere::may_be_hemisphere(key)
    }

    /// Stores the name of an unread member if its value may say south or west.
    #[cold]
    fn put_hemisphere(&self, key: &str, value: &Scalar<'_>, found: &mut Found<'_>) {
        if hemisphere::is_unit(key.as_bytes()) {
            return put_unit(found);
        }
        let value = value.to_word();
        let mut sides = hemisphere::sides(key, &value);
        if let Some(n) = self.coordinate.filter(|_| hemisphere::is_hemisphere_of_parent(key)) {
            sides[n] = hemisphere::side(key, &value, n);
        }
        Self::put_sides(key, sides, found);
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

    /// Extracts the values from a JSON object or array.
    pub(super) fn find<'a>(&self, json: &'a str) -> serde_json::Result<Found<'a>> {
        self.find_in_plain(json).map_or_else(|| self.find_by_serde_json(json), Ok)
    }

    /// Like [`find`](Self::find), for plain JSON. Returns `None` if the text is not plain, or
    /// neither an object nor an array.
    fn find_in_plain<'a>(&self, json: &'a str) -> Option<Found<'a>> {
        let mut found = Found::default();
        let mut plain = Plain::new(json.as_bytes());
        if !matches!(plain.peek(), b'{' | b'[') {
            return None;
        }
        self.extract_plain(&mut plain, &mut found)?;
        plain.end()?;
        Some(found)
    }

    /// Reads the next value, and stores what the paths below this one find in it.
    fn extract_plain<'a>(&self, json: &mut Plain<'a>, found: &mut Found<'a>) -> Option<()> {
        let value = match json.peek() {
            b'{' => {
                json.object(|json, key| match self.child(key) {
                    Some(paths) => paths.extract_plain(json, found),
                    None => {
                        let value = json.value()?;
                        // The other parser reads the sides in a list.
                        if value.is_list() && hemisphere::may_list_sides(key) {
                            return None;
                        }
                        if value.is_list() && hemisphere::is_unit(key) {
                            put_unit(found);
                        }
                        if value.may_be_hemisphere()
                            && self.may_be_hemisphere(key)
                            && let Ok(key) = str::from_utf8(key)
                        {
                            self.put_hemisphere(key, &value, found);
                        }
                        Some(())
                    }
                })?;
                Scalar::Other("an object")
            }
            b'[' => {
                let mut index = 0;
                json.array(|json| {
                    let paths = self.at_index(index);
                    index += 1;
                    match paths {
                        Some(paths) => paths.extract_plain(json, found),
                        None => json.value().map(drop),
                    }
                })?;
                Scalar::Other("an array")
            }
            _ => json.value()?,
        };
        self.put(value, found);
        Some(())
    }

    /// Like [`find`](Self::find), for any JSON.
    pub(super) fn find_by_serde_json<'a>(&self, json: &'a str) -> serde_json::Result<Found<'a>> {
        if !json.trim_ascii_start().starts_with(['{', '[']) {
            serde_json::from_str::<IgnoredAny>(json)?;
            return Err(serde::de::Error::custom("neither an object nor an array"));
        }
        let mut found = Found::default();
        let mut deserializer = serde_json::Deserializer::from_str(json);
        found.extract(self, &mut deserializer)?;
        deserializer.end()?;
        Ok(found)
    }

    /// Returns the child of this name. Most names of equal length differ in their first byte, so
    /// that is compared before the whole name.
    #[inline(always)]
    fn child(&self, name: &[u8]) -> Option<&Self> {
        let is_match = |known: &[u8]| {
            known.len() == name.len() && known.first() == name.first() && known == name
        };
        self.children.iter().find(|(known, _)| is_match(known.as_bytes())).map(|(_, child)| child)
    }

    fn at_index(&self, index: usize) -> Option<&Self> {
        self.children.iter().find(|(name, _)| name.parse() == Ok(index)).map(|(_, child)| child)
    }
}

/// Notes that the payload has a unit.
#[cold]
fn put_unit(found: &mut Found<'_>) {
    let slot = &mut found[UNREAD_HEMISPHERES[0]];
    if slot.is_missing() {
        *slot = UNIT;
    }
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

/// A destination for the values that a [`PathVisitor`] finds. The last value of a repeated key
/// wins.
trait Extract<'de>: Sized {
    fn extract<D: Deserializer<'de>>(
        &mut self,
        paths: &Paths,
        deserializer: D,
    ) -> Result<(), D::Error>;

    /// Handles a member that `paths` does not name, but that may be a hemisphere or a unit. `json`:
    /// its value.
    fn extract_hemisphere(&mut self, _paths: &Paths, _key: &str, _json: &str) {}
}

impl<'de> Extract<'de> for Found<'de> {
    fn extract<D: Deserializer<'de>>(
        &mut self,
        paths: &Paths,
        deserializer: D,
    ) -> Result<(), D::Error> {
        let value = deserializer.deserialize_any(PathVisitor { paths, target: self })?;
        paths.put(value, self);
        Ok(())
    }

    fn extract_hemisphere(&mut self, paths: &Paths, key: &str, json: &str) {
        if json.starts_with('{') && hemisphere::is_unit(key.as_bytes()) {
            return put_unit(self);
        }
        if json.starts_with(['[', '{']) {
            return Paths::put_sides(key, hemisphere::sides_in_list(key, json), self);
        }
        if let Ok(value) = serde_json::from_str::<Scalar<'_>>(json)
            && value.may_be_hemisphere()
        {
            paths.put_hemisphere(key, &value, self);
        }
    }
}

/// The raw JSON at the only path.
#[derive(Default)]
pub(super) struct RawFound<'de> {
    pub(super) value: Option<&'de RawValue>,
    pub(super) has_unit: bool,
}

impl<'de> Extract<'de> for RawFound<'de> {
    fn extract<D: Deserializer<'de>>(
        &mut self,
        paths: &Paths,
        deserializer: D,
    ) -> Result<(), D::Error> {
        self.value = None;
        if paths.slot.is_some() {
            self.value = Some(<&RawValue>::deserialize(deserializer)?);
        } else {
            deserializer.deserialize_any(PathVisitor { paths, target: self })?;
        }
        Ok(())
    }

    fn extract_hemisphere(&mut self, _: &Paths, key: &str, _: &str) {
        self.has_unit |= hemisphere::is_unit(key.as_bytes());
    }
}

/// Extracts nothing from inside a value: the visitor returns the value itself.
impl<'de> Extract<'de> for () {
    fn extract<D: Deserializer<'de>>(
        &mut self,
        _: &Paths,
        deserializer: D,
    ) -> Result<(), D::Error> {
        IgnoredAny::deserialize(deserializer).map(drop)
    }
}

impl<'de> Deserialize<'de> for Scalar<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PathVisitor { paths: &Paths::default(), target: &mut () })
    }
}

/// Follows the paths into a value, and returns the value as a [`Scalar`].
struct PathVisitor<'p, 'w, W> {
    paths: &'p Paths,
    target: &'w mut W,
}

impl<'de, W: Extract<'de>> DeserializeSeed<'de> for PathVisitor<'_, '_, W> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.target.extract(self.paths, deserializer)
    }
}

impl<'de, W: Extract<'de>> Visitor<'de> for PathVisitor<'_, '_, W> {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match self.paths.child(key.0.as_bytes()) {
                Some(paths) => map.next_value_seed(PathVisitor { paths, target: self.target })?,
                None if self.paths.may_be_hemisphere(key.0.as_bytes())
                    || hemisphere::may_list_sides(key.0.as_bytes()) =>
                {
                    let json = map.next_value::<&RawValue>()?.get();
                    self.target.extract_hemisphere(self.paths, &key.0, json);
                }
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Scalar::Other("an object"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut index = 0_usize;
        loop {
            let more = match self.paths.at_index(index) {
                Some(paths) => {
                    seq.next_element_seed(PathVisitor { paths, target: self.target })?.is_some()
                }
                None => seq.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                return Ok(Scalar::Other("an array"));
            }
            index += 1;
        }
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Scalar::Missing)
    }

    fn visit_bool<E>(self, is_true: bool) -> Result<Self::Value, E> {
        Ok(if is_true { TRUE } else { FALSE })
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Scalar::Integer(number))
    }

    #[expect(clippy::cast_precision_loss, reason = "no field accepts a number beyond i64")]
    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(i64::try_from(number).map_or(Scalar::Number((number as f64).into()), Scalar::Integer))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Scalar::Number(number.into()))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Scalar::Text(text.to_owned().into()))
    }
}
