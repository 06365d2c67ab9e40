//! Other fields of a point, for a source that keeps some: every scalar by its path, `/` between names.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::json::{Scalar, Text};
use crate::pipeline::attributes::Attributes;

/// A longer path is not kept.
pub(crate) const NAME_BYTES_MAX: usize = 128;

/// What a source keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    /// Every scalar that is not a field of the position.
    All,
    /// Those at these paths.
    Named(Vec<String>),
}

/// Where in a payload a point was.
#[derive(Debug)]
pub(super) struct Origin<'a> {
    /// The point as sent.
    pub(super) raw: &'a str,
    /// The object it came in: itself, or one that holds several.
    pub(super) within: &'a str,
    /// Its driver's id, if the payload is to say it, and the format has come across it.
    pub(super) driver: Scalar<'a>,
    /// The way to the object that the paths of `keep` begin at.
    pub(super) root: &'static [&'static str],
}

impl<'a> Origin<'a> {
    /// An object of its own, and paths begin there.
    pub(super) fn whole(raw: &'a str) -> Self {
        Self { raw, within: raw, driver: Scalar::Missing, root: &[] }
    }
}

impl Keep {
    /// What is kept of a point, and how much there was no room for. `used`: paths of the position's own fields.
    #[inline]
    pub(super) fn collect(&self, origin: &Origin<'_>, used: &[String]) -> (Attributes, u64) {
        match self {
            Self::Nothing => (Attributes::default(), 0),
            Self::All | Self::Named(_) => self.walk(origin, used),
        }
    }

    fn walk(&self, origin: &Origin<'_>, used: &[String]) -> (Attributes, u64) {
        let mut walk =
            Walk { keep: self, used, path: String::new(), attributes: Attributes::default(), cut: 0 };
        let mut deserializer = serde_json::Deserializer::from_str(origin.raw);
        // The format has read this text already: it is JSON.
        let _ = Level { walk: &mut walk, root: origin.root }.deserialize(&mut deserializer);
        (walk.attributes, walk.cut)
    }
}

struct Walk<'w> {
    keep: &'w Keep,
    used: &'w [String],
    /// Of the value that is read.
    path: String,
    attributes: Attributes,
    cut: u64,
}

impl Walk<'_> {
    fn put(&mut self, value: fmt::Arguments<'_>) {
        let is_kept = match self.keep {
            Keep::Nothing => false,
            Keep::All => !self.path.is_empty() && !self.used.contains(&self.path),
            Keep::Named(names) => names.contains(&self.path),
        };
        if is_kept {
            let fits =
                self.path.len() <= NAME_BYTES_MAX && self.attributes.put(&self.path, &value.to_string());
            self.cut += u64::from(!fits);
        }
    }
}

/// A value at the walk's path, or still on the way to the root.
struct Level<'l, 'w> {
    walk: &'l mut Walk<'w>,
    root: &'static [&'static str],
}

impl<'de> DeserializeSeed<'de> for Level<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { walk, root } = self;
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match root {
                [first, rest @ ..] if *key.0 == **first => map.next_value_seed(Level { walk, root: rest })?,
                [_, ..] => drop(map.next_value::<IgnoredAny>()?),
                [] => {
                    let length = walk.path.len();
                    if length > 0 {
                        walk.path.push('/');
                    }
                    walk.path.push_str(&key.0);
                    map.next_value_seed(Level { walk, root })?;
                    walk.path.truncate(length);
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.walk.put(format_args!("{value}"));
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.walk.put(format_args!("{value}"));
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.walk.put(format_args!("{value}"));
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.walk.put(format_args!("{value}"));
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.walk.put(format_args!("{value}"));
        Ok(())
    }
}
